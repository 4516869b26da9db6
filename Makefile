# Entry points. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

DRAY := target/release/dray
LIBDRAY := target/release/libdray.so
# Where `make ns-3` puts its program, which finds libdray beside it.
NS3 := $(CURDIR)/target/ns3
# Where `make install` puts files: below $(DESTDIR)$(PREFIX).
PREFIX := /usr/local
LIBDIR := $(PREFIX)/lib
DESTDIR :=
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# Containers need root; sudo is used only if the user is not root.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# Static linking, if a static C library is installed: containers then need only the program.
STATIC := $(shell [ -e "$$(cc -print-file-name=libc.a)" ] && echo -C target-feature=+crt-static)

.PHONY: help demo build install build-k8s build-lib install-lib image release ns-3 check test test-all coverage bench papers bench-tools fuzz profile clean

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: ## Set up, build, and measure this host for three minutes
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@mkdir -p results
	@echo "Measuring every technique that this host has: about three minutes" >&2
	@$(SUDO) $(DRAY) bench --quick --summary --json results/demo.json --force --report results/demo.html
	@echo
	@echo "Next:"
	@echo "  sudo $(DRAY) bench switches --quick   beside testpmd and OVS"
	@echo "  sudo $(DRAY) bench --list             the other experiments"
	@echo "  sudo $(DRAY) doctor                   what this host lacks"
	@echo "  $(DRAY) switch --help                 connect your containers"

build: ## Build the release
	@if [ -t 2 ]; then quiet=; else quiet=--quiet; fi; \
	[ -x $(DRAY) ] || echo "Building dray: a few minutes the first time" >&2; \
	cargo rustc --release --locked $$quiet --package dray --bin dray -- $(STATIC)

install: ## Install the built program, completions, man pages and units (PREFIX=/usr/local DESTDIR=)
	@[ -x $(DRAY) ] || { echo "$(DRAY) is missing: run make build first" >&2; exit 1; }
	install -D -m 755 $(DRAY) $(DESTDIR)$(PREFIX)/bin/dray
	$(DRAY) install-files $(DESTDIR)$(PREFIX)/share
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	for unit in dray-switch dray-upf; do \
		sed 's|/usr/bin/|$(PREFIX)/bin/|' deploy/systemd/$$unit.service \
			>$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service; \
	done
	install -D -m 644 deploy/systemd/dray.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/dray.conf
	install -D -m 644 deploy/systemd/dray.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/dray.conf

build-k8s: ## Build dray-k8s, the driver for Kubernetes' dynamic resource allocation
	cargo rustc --release --locked --manifest-path k8s/Cargo.toml -- $(STATIC)

build-lib: ## Build libdray, the library for programs in C and C++
	cargo build --release --locked --package dray-capi

install-lib: ## Install the built libdray, its header, pkg-config file and man page
	@[ -e $(LIBDRAY) ] || { echo "$(LIBDRAY) is missing: run make build-lib first" >&2; exit 1; }
	install -D -m 644 $(LIBDRAY) $(DESTDIR)$(LIBDIR)/libdray.so.0
	ln -sf libdray.so.0 $(DESTDIR)$(LIBDIR)/libdray.so
	install -D -m 644 dataplane/capi/include/dray.h $(DESTDIR)$(PREFIX)/include/dray.h
	install -D -m 644 dataplane/capi/libdray.3 $(DESTDIR)$(PREFIX)/share/man/man3/libdray.3
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' dataplane/capi/dray.pc.in \
		>$(DESTDIR)$(LIBDIR)/pkgconfig/dray.pc

image: ## Write an OCI image with the program to target/package/dray-image.tar
	@$(MAKE) --no-print-directory build
	@mkdir -p target/package
	@strip -o target/package/dray-static $(DRAY)
	@scripts/image.py target/package/dray-static target/package/dray-image.tar

release: ## Make packages, image and list of components in target/release-VERSION, with their SHA-256 sums
	@scripts/setup.sh release
	@scripts/release.sh

# Tests build the library otherwise.
ns-3: $(if $(filter target/release/%,$(LIBDRAY)),build-lib) ## Build ns3::DrayNetDevice and dray-ns3, which `dray bench` runs (docs/ns-3.md)
	@scripts/setup.sh ns-3
	@$(MAKE) --no-print-directory -s install-lib PREFIX=$(NS3) DESTDIR=
	@PKG_CONFIG_PATH=$(NS3)/lib/pkgconfig cmake -S contrib/ns-3 -B $(NS3)/build \
		-DCMAKE_INSTALL_PREFIX=$(NS3) -DCMAKE_INSTALL_LIBDIR=lib >/dev/null
	@cmake --build $(NS3)/build >/dev/null
	@cmake --install $(NS3)/build >/dev/null
	@echo "$(NS3)/bin/dray-ns3 --help" >&2

check: ## Checks to run before every commit: format, lints, fast tests
	@scripts/setup.sh build
	cargo fmt --all --check
	cargo fmt --manifest-path k8s/Cargo.toml --check
	scripts/import-cycles.py
	scripts/plain-comments.sh
	scripts/dependencies.sh
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --lib --bins --examples --locked --quiet
	cargo test --workspace --exclude dray --locked --quiet
	cargo test --package dray --lib --locked --quiet

test: ## Run all tests that need no other programs: minutes
	@scripts/setup.sh test
	@scripts/test.sh

test-all: GROUPS := all
test-all: ## Run lints and all tests, also those that need other programs (GROUPS="vm engines": only those groups)
	@scripts/setup.sh test $(GROUPS)
	@scripts/oldest-compiler.sh check
	@scripts/test.sh $(GROUPS)

coverage: ## Run the coverage tests and write docs/coverage.md
	@scripts/setup.sh test dpdk vm engines tools
	DRAY_COVERAGE_WRITE=1 cargo test --package dray --test coverage --locked -- --skip page
	DRAY_COVERAGE_WRITE=1 cargo test --package dray --test coverage --locked page

bench: build ## Measure the figures of the release notes: papers' tables, containers, pacing
	@scripts/setup.sh bench
	@scripts/bench.sh

papers: build ## Measure the five papers' experiments, or resume, and write results/papers.md (a night)
	@scripts/setup.sh bench
	@scripts/papers.sh

bench-tools: build ## Compare figures with those of iperf3, sockperf and testpmd
	@scripts/setup.sh bench
	@$(SUDO) scripts/bench-tools.sh

fuzz: ## Fuzz the parsers of untrusted input (SECONDS_EACH=60, TARGETS=...)
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh

profile: build ## Draw a flame graph of a running role (ROLE=sender TECHNIQUE=veth/udp-mmsg)
	@scripts/setup.sh profile
	@[ -x target/tools/bin/inferno-flamegraph ] || cargo install --quiet --root target/tools \
		inferno --no-default-features --features cli
	@$(SUDO) scripts/profile.sh

clean: ## Remove build outputs and results
	cargo clean
	rm -rf results
