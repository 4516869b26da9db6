#!/usr/bin/env bash
# Prepares what makes and tests packages, below /var/cache/dray: `tools` builds the subcommands of cargo that a release
# needs; `systems` only the one that makes packages, and unpacks Debian 12 and 13, each with systemd and a C compiler
# (720 MB), in which tests install the packages by chroot. Nothing is built or unpacked again.
# Usage: setup-packages.sh tools|systems
set -euo pipefail

cd "$(dirname "$0")"
purpose=${1:?usage: setup-packages.sh tools|systems}
cache=/var/cache/dray
# NAME@VERSION of each.
tools="cargo-deb@3.8.0"
[ "$purpose" = systems ] || tools+=" cargo-cyclonedx@0.5.9"
suites="bookworm trixie"
# Dependencies of the packages, so that they are installed without a network, and a compiler for the library's users.
include=systemd,init-system-helpers,passwd,gcc,libc6-dev,pkgconf
has_tools() {
    for tool in $tools; do [[ " $(cat "$cache/tools/versions" 2>/dev/null) " = *" $tool "* ]] || return 1; done
}
has_system() { [ "$(cat "$cache/debian/$1/versions" 2>/dev/null)" = "$include" ]; }

# On other systems, tests of packages are skipped.
PATH=$PATH:/usr/sbin:/sbin
if [ "$purpose" = systems ] && ! command -v debootstrap >/dev/null; then exit 0; fi
missing=
has_tools || missing=1
if [ "$purpose" = systems ]; then
    for suite in $suites; do has_system "$suite" || missing=1; done
fi
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    exec sudo PATH="$PATH" CARGO_HOME="${CARGO_HOME:-$HOME/.cargo}" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" \
        ./setup-packages.sh "$purpose"
fi
mkdir -p "$cache"
exec 8>"$cache/packages.lock"
flock 8
work=$(mktemp -d -p "$cache")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

if ! has_tools; then
    echo "Building $tools into $cache/tools" >&2
    # shellcheck disable=SC2086 # a list of words
    CARGO_TARGET_DIR=$work/target CARGO_INCREMENTAL=0 cargo install --quiet --locked --root "$work/tools" $tools
    echo "$tools" >"$work/tools/versions"
    rm -rf "$cache/tools" "$work/target"
    mv "$work/tools" "$cache/tools"
fi
[ "$purpose" = systems ] || exit 0
mkdir -p "$cache/debian"
for suite in $suites; do
    ! has_system "$suite" || continue
    echo "Unpacking Debian $suite into $cache/debian/$suite" >&2
    debootstrap --variant=minbase --include="$include" "$suite" "$work/$suite" \
        http://deb.debian.org/debian >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
    rm -rf "$work/$suite"/var/cache/apt/archives/*.deb "$work/$suite"/usr/share/locale
    echo "$include" >"$work/$suite/versions"
    rm -rf "${cache:?}/debian/$suite"
    mv "$work/$suite" "$cache/debian/$suite"
done
