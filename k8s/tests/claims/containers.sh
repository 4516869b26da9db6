# Runs two containers with the devices of $RECEIVER and $SENDER, in namespaces of its own, with an empty
# /run: the first receives what the second sends. Each first writes what it is told about its port.
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /dev/shm
# crun refuses a host with both cgroup versions.
umount /sys/fs/cgroup/unified 2>/dev/null || true
touch bin/dray
mount --bind "$DRAY" bin/dray
export HOME=$PWD PATH=$PWD/bin:$PATH:/usr/sbin:/sbin
. "$SETUPS/podman-root.sh"
mkdir /run/cdi
cp "$CDI"/*.json /run/cdi
cat >role <<'ROLE'
# Writes the description of the port as a line, then runs dray, with the port's address for MAC.
described=$(echo $(cat /var/run/kubernetes.io/dra-device-attributes/*/*/net/*.json))
echo "$described"
address='"mac": \{ "string": "([0-9a-f:]+)"'
[[ $described =~ $address ]]
exec dray "${@//MAC/${BASH_REMATCH[1]}}"
ROLE
container() {
    local devices=$1
    shift
    # shellcheck disable=SC2086 # several options
    podman run --rm --network none $devices -v "$DRAY:/usr/bin/dray:ro" -v "$PWD/role:/role:ro" \
        docker.io/library/debian:12 bash -e /role "$@"
}
container "$RECEIVER" receive --port 'virtio:/run/dray/receiver/net/vhost.sock?server=1' --duration 15 >receiver &
sleep 3
container "$SENDER" send --port virtio:/run/dray/sender/net/vhost.sock --src-mac MAC --rate 1k --count 2000 >sender
wait %1
cat receiver sender
