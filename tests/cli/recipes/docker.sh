# Starts an engine that keeps everything in /run, and imports debian:12.
cat >docker.json <<'JSON'
{
    "hosts": ["unix:///run/docker.sock"], "data-root": "/run/docker-data", "exec-root": "/run/docker",
    "pidfile": "/run/docker.pid", "deprecated-key-path": "/run/docker-key.json",
    "storage-driver": "vfs", "exec-opts": ["native.cgroupdriver=cgroupfs"], "cgroup-parent": "/dray-recipes",
    "bridge": "none", "iptables": false, "ip6tables": false, "ip-forward": false, "userland-proxy": false
}
JSON
setsid dockerd --config-file docker.json >dockerd.log 2>&1 &
for _ in {1..150}; do
    docker info >/dev/null 2>&1 && break
    sleep 0.2
done
docker info >/dev/null 2>&1 || { cat dockerd.log; exit 1; }
. "$SETUPS/image.sh"
tar -C image -c . | docker import - debian:12 >/dev/null
