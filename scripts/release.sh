#!/usr/bin/env bash
# Makes what is released, in the folder target/release-VERSION: Debian packages, an OCI image, a list of components
# (SBOM), and SHA256SUMS.
set -euo pipefail

cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
folder=target/release-$version
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
PATH=/var/cache/dray/tools/bin:$PATH
rm -rf "$folder"
mkdir -p "$folder"

# The program for packages finds the C library of the system; that of the image has its own.
cargo build --release --locked --quiet --package dray --bin dray
cargo build --release --locked --quiet --package dray-capi
scripts/deb.sh "$folder"
make --no-print-directory --silent image
mv target/package/dray-image.tar "$folder/dray-$version-oci.tar"
for package in cli:dray dataplane/capi:libdray; do
    # It writes a file beside each Cargo.toml of the workspace.
    cargo cyclonedx --quiet --manifest-path "${package%%:*}/Cargo.toml" --format json --spec-version 1.5 \
        --override-filename dray-components
    mv "${package%%:*}/dray-components.json" "$folder/${package##*:}.cdx.json"
    git ls-files --others '*dray-components.json' -z | xargs -0 rm -f
done
(cd "$folder" && sha256sum -- * >SHA256SUMS)
ls -l "$folder"
