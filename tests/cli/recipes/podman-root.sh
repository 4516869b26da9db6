# Gives root's Podman the image debian:12, and has it keep everything in /run.
. "$SETUPS/image.sh"
cp -a /etc/containers etc-containers
mount --bind etc-containers /etc/containers
cat >/etc/containers/storage.conf <<'CONF'
[storage]
driver = "vfs"
runroot = "/run/podman"
graphroot = "/run/podman-storage"
CONF
# Limits of the engine's own would exceed those of this machine.
cat >/etc/containers/containers.conf <<'CONF'
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
CONF
tar -C image -c . | podman import -q - docker.io/library/debian:12 >/dev/null
