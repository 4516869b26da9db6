#!/usr/bin/env bash
# Installs kubernetes-validate, which checks manifests against the schemas of Kubernetes, at a fixed version,
# into a virtual environment of Python below /var/cache/dray/kubernetes. Nothing is installed again.
set -euo pipefail

cd "$(dirname "$0")"
folder=/var/cache/dray/kubernetes
version=1.34.1
[ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    exec sudo PATH="$PATH" ./setup-kubernetes.sh
fi
mkdir -p "$folder"
exec 8>"$folder/lock"
flock 8
echo "Installing kubernetes-validate $version" >&2
# Debian has the module venv in a package of its own.
if ! python3 -c 'import ensurepip' 2>/dev/null && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
fi
python3 -m venv --clear "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "kubernetes-validate==$version"
echo "$version" >"$folder/version"
