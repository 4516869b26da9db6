#!/usr/bin/env bash
# Makes Debian packages of the built programs, in a folder: dray, libdray0, libdray-dev.
# Usage: deb.sh FOLDER [PROFILE [OPTION...]]: PROFILE as cargo names it (release, dev), options of cargo-deb
set -euo pipefail

cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:?usage: deb.sh FOLDER [PROFILE [OPTION...]]}")
profile=${2:-release}
shift $(($# > 2 ? 2 : $#))
built=$PWD/target/$([ "$profile" = dev ] && echo debug || echo "$profile")
stage=$PWD/target/package
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)-1
maintainer="${DEBFULLNAME:-The dray developers} <${DEBEMAIL:-dray@example.org}>"
# Files in packages are as old as the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
PATH=/var/cache/dray/tools/bin:$PATH

rm -rf "$stage"
mkdir -p "$stage/lib" "$folder"
install() { make --no-print-directory --silent "$@" PREFIX=/usr; }
install install DRAY="$built/dray" DESTDIR="$stage/dray"
cat >"$stage/changelog" <<END
dray ($version) unstable; urgency=medium

  * Release $version: changelog.gz of the package dray has its changes.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
cargo deb --no-build --locked --package dray --profile "$profile" --strip --quiet --maintainer "$maintainer" \
    --output "$folder/" "$@"

# The library's packages need a control file that cargo-deb does not write (shlibs).
architecture=$(dpkg --print-architecture)
libdir=/usr/lib/$(cc -dumpmachine)
strip --strip-unneeded -o "$stage/libdray.so" "$built/libdray.so"
install install-lib LIBDRAY="$stage/libdray.so" LIBDIR="$libdir" DESTDIR="$stage/lib"
gzip -9n "$stage"/lib/usr/share/man/man3/*

# library NAME SECTION DEPENDS CONTENTS: makes a package of what is below $stage/NAME
library() {
    local root=$stage/$1
    mkdir -p "$root/usr/share/doc/$1" "$root/DEBIAN"
    cp deploy/debian/copyright "$root/usr/share/doc/$1/"
    gzip -9nc "$stage/changelog" >"$root/usr/share/doc/$1/changelog.Debian.gz"
    (cd "$root" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
    cat >"$root/DEBIAN/control" <<END
Package: $1
Source: dray
Version: $version
Architecture: $architecture
Multi-Arch: same
Section: $2
Priority: optional
Maintainer: $maintainer
Installed-Size: $(du -k -s "$root/usr" | cut -f 1)
Depends: $3
Description: ports of dray for programs in C and C++: $4
 Frames over sockets, AF_XDP, vhost-user, memif, netmap and others, lent in
 place and copied once.
END
    chmod -R u=rwX,go=rX "$root"
    find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --build "$root" "$folder/" >/dev/null
}
mkdir -p "$stage/libdray0$libdir" "$stage/libdray0/DEBIAN"
mv "$stage/lib$libdir/libdray.so.0" "$stage/libdray0$libdir/"
echo "libdray 0 libdray0 (>= $version)" >"$stage/libdray0/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$stage/libdray0/DEBIAN/triggers"
# dpkg-shlibdeps wants a source package.
mkdir -p "$stage/source/debian"
printf 'Source: dray\n\nPackage: libdray0\nArchitecture: any\n' >"$stage/source/debian/control"
depends=$(cd "$stage/source" && dpkg-shlibdeps -O -e"$stage/libdray0$libdir/libdray.so.0")
depends=${depends#shlibs:Depends=}
library libdray0 libs "$depends" library
mv "$stage/lib" "$stage/libdray-dev"
mkdir -p "$stage/libdray-dev/usr/share/doc/libdray-dev/examples"
cp dataplane/capi/examples/forward.c "$stage/libdray-dev/usr/share/doc/libdray-dev/examples/"
library libdray-dev libdevel "libdray0 (= $version)" header
