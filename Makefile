# The front door. `make` alone lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

DRAY := target/release/dray
# Containers need root. Where we are root already, nothing is put in front.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Linked statically, where the C library can be: then containers need nothing but the program.
STATIC := $(shell [ -e "$$(cc -print-file-name=libc.a)" ] && echo -C target-feature=+crt-static)

.PHONY: help demo build check test test-vm coverage bench bench-tools fuzz profile clean

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: ## Set up, build, and measure this host for three minutes
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@mkdir -p results
	@$(SUDO) $(DRAY) bench --quick --json results/demo.json
	@echo "Results: results/demo.json"

build: ## Build the release
	@cargo rustc --release --locked --quiet --package dray --bin dray -- $(STATIC)

check: ## What to run before every commit: format, lints, fast tests
	@scripts/setup.sh build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	cargo test --workspace --exclude dray --locked --quiet
	cargo test --package dray --bins --locked --quiet

test: ## Everything that checks the project
	@scripts/setup.sh test
	@scripts/test.sh

test-vm: ## Of these, the tests in virtual machines alone
	@scripts/setup.sh test
	cargo test --package dray --test vm --locked

coverage: ## What works where: run the tests that show it, and write docs/coverage.md
	@scripts/setup.sh test
	DRAY_COVERAGE_WRITE=1 cargo test --package dray --test coverage --locked -- --skip page
	DRAY_COVERAGE_WRITE=1 cargo test --package dray --test coverage --locked page

bench: build ## Figures for the notes: papers' tables, containers, pacing
	@scripts/setup.sh bench
	@scripts/bench.sh

bench-tools: build ## Our figures beside those of iperf3, sockperf and testpmd
	@scripts/setup.sh bench
	@$(SUDO) scripts/bench-tools.sh

fuzz: ## Fuzz whatever reads others' bytes (SECONDS_EACH=60, TARGETS=...)
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh

profile: build ## A flame graph of a running role (ROLE=sender TECHNIQUE=veth/udp-mmsg)
	@scripts/setup.sh profile
	@[ -x target/tools/bin/inferno-flamegraph ] || cargo install --quiet --root target/tools \
		inferno --no-default-features --features cli
	@$(SUDO) scripts/profile.sh

clean: ## Remove what was built
	cargo clean
	rm -rf results
