# A machine of its own for a real systemd: the first process of new namespaces (mount, pid, ipc, uts, cgroup). Whatever can
# be written to is in memory; of the host there are programs and libraries only. What a package writes among them is in memory,
# too, or cannot be written. The network is the host's, since that is where the two worlds listen.
set -eu
root=$1 program=$2
mount --make-rprivate /
mount -t tmpfs -o mode=755 machine "$root"
cd "$root"
mkdir -p dev etc/systemd/system proc root run sys tmp usr var/lib/dpkg/info var/lib/dpkg/updates var/log var/tmp
: > var/lib/dpkg/status
chmod 1777 tmp var/tmp
mkdir .usr .usr/upper .usr/work
if ! mount -t overlay -o "lowerdir=/usr,upperdir=$root/.usr/upper,workdir=$root/.usr/work" usr usr; then
  mount --bind /usr usr
  mount -o remount,bind,ro usr
fi
for folder in bin sbin lib lib64; do
  if [ -L "/$folder" ]; then
    ln -s "$(readlink "/$folder")" "$folder"
  elif [ -d "/$folder" ]; then
    mkdir "$folder"
    mount --bind "/$folder" "$folder"
    mount -o remount,bind,ro "$folder"
  fi
done
mount -t tmpfs local usr/local
mkdir -p usr/local/bin
: > usr/local/bin/alicloud-ccm
chmod 755 usr/local/bin/alicloud-ccm
mount --bind "$program" usr/local/bin/alicloud-ccm
mount -o remount,bind,ro usr/local/bin/alicloud-ccm
echo root:x:0:0:root:/root:/bin/sh > etc/passwd
echo root:x:0: > etc/group
printf 'passwd: files\ngroup: files\n' > etc/nsswitch.conf
echo ID=linux > etc/os-release
for target in sysinit basic network-online shutdown; do echo '[Unit]' > "etc/systemd/system/$target.target"; done
printf '[Unit]\nWants=systemd-journald.service\n' > etc/systemd/system/machine.target
cp /lib/systemd/system/systemd-journald.service /lib/systemd/system/systemd-journald.socket \
  /lib/systemd/system/systemd-journald-dev-log.socket etc/systemd/system/
for certificates in etc/ssl/certs etc/pki/tls etc/pki/ca-trust; do
  if [ -d "/$certificates" ]; then
    mkdir -p "$certificates"
    mount --bind "/$certificates" "$certificates"
    mount -o remount,bind,ro "$certificates"
  fi
done
mount -t proc -o nosuid,nodev,noexec proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 dev dev
for device in null zero full random urandom tty; do
  : > dev/$device
  mount --bind /dev/$device dev/$device
done
mkdir dev/shm dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 run run
mkdir old
pivot_root . old
umount -l /old
rmdir /old
# Among themselves: systemd makes credentials in one mount namespace and hands them to others.
mount --make-rshared /
# Nothing of the host's own units: some of them empty folders.
mount -t tmpfs units /usr/lib/systemd/system
export container=test SYSTEMD_UNIT_PATH=/etc/systemd/system:/usr/lib/systemd/system
exec /lib/systemd/systemd --system --unit=machine.target --show-status=no
