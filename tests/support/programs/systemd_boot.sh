#!/bin/sh
# Becomes systemd in the namespaces it was started in, with a root directory of its own made from this machine's programs.
# $1: an empty directory; further words: directories of the machine that systemd's side sees too, under the same names.
# $BASE: a directory with a whole system of its own, to be used, unchanged, in place of this machine's programs.
#
# Nothing of the machine can be changed from in there: kernel settings are read-only, all files are made in memory, with
# /usr over that of the machine.
set -eu
root=$1
shift
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
if [ -n "${BASE:-}" ]; then
  mkdir -m 755 upper work whole
  mount -t overlay -o "lowerdir=$BASE,upperdir=$root/upper,workdir=$root/work" overlay whole
  cd whole
  mkdir old
else
  mkdir -p usr etc/systemd/system run tmp proc sys dev var/lib var/log root home old
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done
  mkdir old/upper old/work
  mount -t overlay -o lowerdir=/usr,upperdir="$root/old/upper",workdir="$root/old/work" overlay usr
  for name in passwd group nsswitch.conf ld.so.cache ld.so.conf ld.so.conf.d ssl alternatives; do
    [ ! -e "/etc/$name" ] || cp -a "/etc/$name" etc/
  done
fi
echo 0123456789abcdef0123456789abcdef >etc/machine-id
echo 127.0.0.1 localhost >etc/hosts
: >etc/resolv.conf
for directory; do
  mkdir -p "./$directory"
  mount --rbind "$directory" "./$directory"
done

mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
  while IFS=: read -r _ controllers _; do
    case $controllers in
      "") continue ;;
      name=*) options=none,$controllers ;;
      *) options=$controllers ;;
    esac
    mkdir "sys/fs/cgroup/${controllers#name=}"
    mount -t cgroup -o "$options" cgroup "sys/fs/cgroup/${controllers#name=}"
  done </proc/self/cgroup
fi

mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/char dev/pts dev/shm
make_node() {
  mknod -m 666 "dev/$1" c "$2" "$3"
  ln -s "../$1" "dev/char/$2:$3"
}
make_node null 1 3
make_node zero 1 5
make_node full 1 7
make_node random 1 8
make_node urandom 1 9
make_node tty 5 0
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755 tmpfs run

# Units that belong to a machine, and would act on this one's kernel.
for unit in systemd-sysctl.service systemd-binfmt.service systemd-modules-load.service systemd-udevd.service \
  dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
  sys-fs-fuse-connections.mount systemd-remount-fs.service systemd-update-utmp.service; do
  ln -s /dev/null "etc/systemd/system/$unit"
done
cat >etc/systemd/system/test.target <<'UNIT'
[Unit]
Description=a system for tests
Requires=basic.target
Wants=dbus.service systemd-journald.service
After=basic.target dbus.service systemd-journald.service
AllowIsolate=yes
UNIT

pivot_root . old
umount -l /old
[ -z "${BASE:-}" ] || rmdir /old
# The last word keeps it from using both versions of cgroups at once, which runc cannot follow here.
exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=test.target --log-target=journal --show-status=no \
  systemd.legacy_systemd_cgroup_controller=yes
