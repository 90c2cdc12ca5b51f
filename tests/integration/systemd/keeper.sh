# Boots the machine in a control group of its own, prints the process id under which it can be found, and ends it when the
# standard input ends, even if that is because whoever started this was killed. Runs in a mount namespace of its own.
set -eu
root=$1 machine=$2 program=$3
# Whatever has no namespace, the machine may not do.
kept_away=-sys_boot,-sys_time,-sys_module,-sys_rawio,-syslog,-mac_admin,-mac_override
mount --make-rprivate /
mount -t cgroup2 cgroup2 "$root"
group=$root$(sed -n 's/^0:://p' /proc/self/cgroup)/machine-$$
mkdir "$group"
(
  echo 0 > "$group/cgroup.procs"
  exec setpriv --bounding-set "$kept_away" \
    unshare --mount --pid --ipc --uts --cgroup --fork --kill-child /bin/sh "$machine" "$root" "$program" < /dev/null >&2
) &
echo $!
cat > /dev/null
kill -9 $!
wait || true
for _ in 1 2 3 4 5 6 7 8 9 10; do
  find "$group" -depth -type d -exec rmdir {} + 2> /dev/null && break
  sleep 0.1
done
