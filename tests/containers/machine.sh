# The first process of a machine (machine.rs), in mount, network and PID namespaces of its own. The files of
# Debian 13 in $1 become its root directory, with memory where programs write; $2 is there under the same path.
set -eu
root=$2/root
mkdir "$root"
mount --make-rprivate /
mount --bind "$1" "$root"
for folder in etc opt root run tmp var; do
    mount -t tmpfs tmpfs "$root/$folder"
done
cp -a "$1/etc/." "$root/etc/"
touch "$root/etc/hosts" "$root/etc/resolv.conf" "$root/etc/crictl.yaml"
mkdir "$root/var/lib" "$root/var/log" "$root/var/tmp" "$root/run/before" "$root/run/dray"
ln -s /run "$root/var/run"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
# crun refuses a host with both cgroup versions. Where this folder exists, containers are in version 1.
umount "$root/sys/fs/cgroup/unified" 2>/dev/null || true
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mkdir -p "$root$2"
mount --bind "$2" "$root$2"
ip link set lo up
cd "$root"
pivot_root . run/before
busybox umount -l /run/before
busybox touch "$2/ready"
exec busybox sleep 1000000
