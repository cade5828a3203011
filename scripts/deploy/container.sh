#!/bin/bash
# container.sh ROOT USER WITH_TMP CONFIG_DIR SECRETS_DIR ENV… -- COMMAND…: runs COMMAND as a container with the chart's
# security context would: read-only root, its own process ids (COMMAND is number 1), a numeric user without capabilities,
# no new privileges, and only the mounts that the chart declares. To be run under `unshare --mount --pid --fork`.
set -eu

root=$1 user=$2 with_tmp=$3 config=$4 secrets=$5
shift 5
environment=()
while [ "$1" != -- ]; do
  environment+=("$1")
  shift
done
shift
env=$(command -v env) setpriv=$(command -v setpriv) chroot=$(command -v chroot)

mount --bind "$root" "$root"
# What every container runtime mounts. These folders lie in the image's copy, not in the image.
mkdir -p "$root/proc" "$root/dev" "$root/etc/postern" "$root/run/secrets/postern"
touch "$root/dev/null" "$root/dev/urandom"
mount --bind /dev/null "$root/dev/null"
mount --bind /dev/urandom "$root/dev/urandom"
mount -t proc proc "$root/proc"
mount --bind "$config" "$root/etc/postern"
mount -o remount,bind,ro "$root/etc/postern"
mount --bind "$secrets" "$root/run/secrets/postern"
mount -o remount,bind,ro "$root/run/secrets/postern"
[ "$with_tmp" = no ] || mount -t tmpfs -o size=16m tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"

exec "$env" -i "${environment[@]}" "$setpriv" --no-new-privs "$chroot" --userspec="$user" --groups= "$root" "$@"
