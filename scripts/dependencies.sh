#!/usr/bin/env bash
# Fails if a dependency is unused (cargo-machete), or if deny.toml does not allow its licence, source or version or an
# advisory warns of it (cargo-deny). Names a tool that is not installed, and does without it. The list of advisories is at
# github.com; where that cannot be reached, it is left out. Hosted CI does all of this.
set -euo pipefail

cd "$(dirname "$0")/.."
PATH=/var/cache/dray/tools/bin:$PATH

# has NAME@VERSION: succeeds if this subcommand of cargo is installed
has() {
    command -v "${1%@*}" >/dev/null && return
    echo "${1%@*} is not installed, so its checks are left out: cargo install --locked $1" >&2
    return 1
}

if has cargo-machete@0.9.2; then
    cargo machete --skip-target-dir
fi
if has cargo-deny@0.20.2; then
    checks="bans licenses sources"
    if cargo deny --log-level off fetch db 2>/dev/null; then
        checks+=" advisories"
    else
        echo "github.com cannot be reached, so advisories are left out" >&2
    fi
    for manifest in Cargo.toml k8s/Cargo.toml; do
        # shellcheck disable=SC2086 # a list of words
        cargo deny --log-level error --locked --manifest-path $manifest check $checks
    done
fi
