#!/usr/bin/env python3
"""Writes an OCI image with a statically linked program, as a tar archive of an image layout.

usage: image.py PROGRAM ARCHIVE

`podman load -i ARCHIVE`, `ctr images import ARCHIVE` and `skopeo copy oci-archive:ARCHIVE ...` read it; no registry is
needed. The same program gives the same archive: all times are those of SOURCE_DATE_EPOCH, by default 0.
"""
import hashlib
import io
import json
import os
import platform
import sys
import tarfile
from datetime import datetime, timezone

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def archive(files):
    """Returns a tar archive of files (name, mode, bytes); a name that ends in a slash is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, mode, data in files:
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.mode, entry.mtime, entry.size = mode, EPOCH, len(data)
            entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip().splitlines()[2])
    with open(sys.argv[1], "rb") as file:
        program = file.read()
    if b"/ld-linux" in program:
        sys.exit(f"{sys.argv[1]}: not linked statically; `make build` does it where libc.a is installed")
    blobs = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layer = archive(
        [
            ("etc/", 0o755, b""),
            # `dray switch` and `dray upf` become dray; deploy/kubernetes/switch.yaml has its group's number.
            ("etc/passwd", 0o644, b"root:x:0:0:root:/:/sbin/nologin\ndray:x:60777:60777::/:/sbin/nologin\n"),
            ("etc/group", 0o644, b"root:x:0:\ndray:x:60777:\n"),
            ("run/", 0o755, b""),
            ("tmp/", 0o1777, b""),
            ("usr/", 0o755, b""),
            ("usr/local/", 0o755, b""),
            ("usr/local/bin/", 0o755, b""),
            ("usr/local/bin/dray", 0o755, program),
        ]
    )
    layer = blob(layer, "layer.v1.tar")
    config = {
        "created": datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin"], "Entrypoint": ["/usr/local/bin/dray"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [layer],
    }
    manifest = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    names = {"org.opencontainers.image.ref.name": "latest", "io.containerd.image.name": "docker.io/library/dray:latest"}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{**manifest, "annotations": names}],
    }
    layout = [("oci-layout", 0o644, b'{"imageLayoutVersion": "1.0.0"}')]
    layout += [("index.json", 0o644, json.dumps(index).encode())]
    layout += [("blobs/", 0o755, b""), ("blobs/sha256/", 0o755, b"")]
    layout += [(f"blobs/sha256/{digest}", 0o644, data) for digest, data in sorted(blobs.items())]
    os.makedirs(os.path.dirname(sys.argv[2]) or ".", exist_ok=True)
    with open(sys.argv[2], "wb") as file:
        file.write(archive(layout))
    print(f"{sys.argv[2]}: {manifest['digest']}")


main()
