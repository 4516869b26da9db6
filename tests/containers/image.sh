# Makes the image of a machine's containers in the folder $1: layer.tar, and image.tar with it for
# `ctr images import`. It has the program $2, busybox of $3, and, as far as they are installed, iperf3 and DPDK's
# testpmd with the libraries that they load.
set -eu
cd "$1"
mkdir -p stage/bin stage/etc stage/tmp
chmod 1777 stage/tmp
echo root:x:0:0:root:/:/bin/sh >stage/etc/passwd
strip -o stage/bin/dray "$2"
cp "$3/usr/bin/busybox" stage/bin/
for name in sh ping ip sleep; do
    ln -s busybox "stage/bin/$name"
done
pmds=$(echo /usr/lib/*/dpdk/pmds-*)
programs=
for file in /usr/bin/iperf3 /usr/bin/dpdk-testpmd "$pmds"/librte_net_memif.so* "$pmds"/librte_mempool_ring.so*; do
    [ ! -e "$file" ] || programs="$programs $file"
done
# shellcheck disable=SC2086 # lists of words
libraries=$(ldd stage/bin/dray $programs | grep -o '/[^ ]*' | grep -v ':$' | sort -u)
# shellcheck disable=SC2086
tar -chf layer.tar -C stage bin etc tmp -C / $(echo $programs $libraries | tr ' ' '\n' | sed 's,^/,,' | sort -u)
hash=$(sha256sum layer.tar | cut -d ' ' -f 1)
cat >config.json <<JSON
{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:$hash"]}, "config":
 {"Env": ["PATH=/bin:/usr/bin", "LD_LIBRARY_PATH=$pmds"], "Cmd": ["/bin/sleep", "1000000"]}}
JSON
echo '[{"Config": "config.json", "RepoTags": ["localhost/dray:1"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf image.tar config.json manifest.json layer.tar
rm -r stage
