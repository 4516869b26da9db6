# Makes the user `alice`, who has the image debian:12. Her containers have no control groups: here
# there is no systemd that would let her make some.
. "$SETUPS/image.sh"
mkdir -p alice/.config/containers /run/user/2000
for name in passwd group subuid subgid; do
    cp /etc/$name etc-$name
done
echo "alice:x:2000:2000::$PWD/alice:/bin/bash" >>etc-passwd
echo alice:x:2000: >>etc-group
echo alice:100000:65536 | tee etc-subuid >etc-subgid
for name in passwd group subuid subgid; do
    chmod 644 etc-$name
    mount --bind etc-$name /etc/$name
done
cat >alice/.config/containers/containers.conf <<'CONF'
[containers]
cgroups = "disabled"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
CONF
echo '[storage]
driver = "vfs"' >alice/.config/containers/storage.conf
tar -C image -c -f image.tar .
chown -R alice:alice alice /run/user/2000
chmod 700 /run/user/2000
as alice <<COMMANDS
podman import -q $PWD/image.tar docker.io/library/debian:12 >/dev/null
COMMANDS
