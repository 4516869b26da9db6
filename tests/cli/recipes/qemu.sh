# Puts in the place of a disk with Linux on it the kernel of the tests' virtual machines, with a first
# process that sets the address of eth0. The processor is emulated: many hosts with /dev/kvm cannot run
# a guest on it.
vm=/var/cache/dray/vm
truncate -s 1M disk.img
mkdir guest
cat >guest/init <<'INIT'
#!/bin/busybox sh
for module in /modules/*; do /bin/busybox insmod $module; done
/bin/busybox ip addr add 10.0.0.2/24 dev eth0
/bin/busybox ip link set eth0 up
while :; do /bin/busybox sleep 1000; done
INIT
chmod 755 guest/init
(cat $vm/initrd && cd guest && echo init | $vm/busybox cpio -o -H newc 2>/dev/null | gzip -1) >initrd
cat >bin/qemu-system-x86_64 <<WRAPPER
#!/bin/bash
exec /var/cache/dray/qemu/qemu-system-x86_64 "\${@/accel=kvm/accel=tcg}" -cpu max \
    -kernel $vm/vmlinuz -initrd $PWD/initrd -append quiet
WRAPPER
chmod 755 bin/qemu-system-x86_64
