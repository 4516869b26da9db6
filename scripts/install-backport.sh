#!/usr/bin/env bash
# Installs Debian packages, on Debian 12 from its backports. Uses a private sources list: the host's
# package sources are not changed.
# Usage: install-backport.sh PACKAGE...
set -euo pipefail

[ "$(id -u)" = 0 ] || exec sudo "$0" "$@"
export DEBIAN_FRONTEND=noninteractive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cp -r /etc/apt/sources.list.d "$work/sources"
options=(-qq -o "Dir::Etc::SourceParts=$work/sources" -o APT::Sandbox::User=root
    -o DPkg::Lock::Timeout=300)
suite=()
if [ "$(. /etc/os-release && echo "$VERSION_CODENAME")" = bookworm ]; then
    suite=(-t bookworm-backports)
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$key] http://deb.debian.org/debian bookworm-backports main" \
        >"$work/sources/dray.list"
fi
echo "Installing: $*" >&2
apt-get "${options[@]}" update
apt-get "${options[@]}" "${suite[@]}" install -y --no-install-recommends "$@" >/dev/null
