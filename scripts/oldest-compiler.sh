#!/usr/bin/env bash
# Checks the workspace with the oldest compiler that it supports (rust-version in Cargo.toml), or prints its version.
# Usage: oldest-compiler.sh check|version
set -euo pipefail

cd "$(dirname "$0")/.."
version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
case ${1:?usage: oldest-compiler.sh check|version} in
    version) echo "$version" && exit ;;
    check) ;;
    *) echo "oldest-compiler.sh: unknown word '$1': give check or version" >&2 && exit 2 ;;
esac
if [[ $(rustc --version) == "rustc $version".* ]]; then
    echo "rustc $version is the default compiler, which builds everything else"
    exit
fi
toolchain=$(rustup toolchain list 2>/dev/null | sed -n "s/^\($version[.0-9]*\)-.*/\1/p" | head -1)
if [ -z "$toolchain" ]; then
    echo "Rust $version is not installed, so it is not tried: rustup toolchain install $version --profile minimal" >&2
    exit
fi
RUSTUP_TOOLCHAIN=$toolchain cargo check --workspace --all-targets --locked --quiet --target-dir target/oldest-compiler
