#!/bin/bash
# Builds the Dockerfile and prints the mounted root of the result and a file with what buildah says of it, one a line.
#
# Made for machines without a container engine and without a registry of images: buildah with chroot isolation, on two
# bases made from this machine's own Node.js. The one that the image runs on holds Node.js and its libraries and nothing
# else, no shell in particular.
set -eu -o pipefail

home=$1
buildah() { command buildah --root "$home/root" --runroot "$home/run" --storage-driver vfs "$@"; }

mkdir -p "$home"
exec 3>&1 >&2
if [ -d "$home/root" ]; then
  buildah rm --all >/dev/null
  buildah rmi --all --force >/dev/null
fi

# copy_programs ROOT FILE…: programs with the libraries that they load.
copy_programs() {
  local root=$1 file
  shift
  for file in "$@"; do
    echo "$file"
    ldd "$file" 2>/dev/null | grep -o '/[^ ]*' || true
  done | sort -u | while read -r file; do
    mkdir -p "$root$(dirname "$file")"
    cp -L "$file" "$root$file"
  done
}

node=$(readlink -f "$(command -v node)")
npm=$(readlink -f "$(command -v npm)")
npm_home=$(dirname "$(dirname "$npm")")

base=$(buildah from scratch)
root=$(buildah mount "$base")
copy_programs "$root" "$node"
mkdir -p "$root/usr/bin" "$root/tmp"
chmod 1777 "$root/tmp"
[ -e "$root/usr/bin/node" ] || ln -s "$node" "$root/usr/bin/node"
buildah config --env PATH=/usr/bin:/bin "$base"
buildah commit --quiet "$base" localhost/postern-runtime-base >/dev/null

# Building also takes npm, the shell and `env` that npm starts its programs with, and the certificates trusted here.
copy_programs "$root" /bin/sh /usr/bin/env
mkdir -p "$root$(dirname "$npm_home")" "$root/root" "$root/etc/ssl/certs"
cp -r "$npm_home" "$root$npm_home"
ln -s "$npm" "$root/usr/bin/npm"
certificates=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt}
if [ -f "$certificates" ]; then
  cp -L "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
  buildah config --env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$base"
fi
buildah commit --quiet "$base" localhost/postern-build-base >/dev/null
buildah rm "$base" >/dev/null

buildah build --isolation chroot --network host --pull-never --format oci \
  --build-arg BUILD_IMAGE=localhost/postern-build-base --build-arg RUNTIME_IMAGE=localhost/postern-runtime-base \
  --tag localhost/postern "$(dirname "$0")/../.."

buildah inspect --type image localhost/postern >"$home/inspect.json"
image=$(buildah from --pull-never localhost/postern)
buildah mount "$image" >&3
echo "$home/inspect.json" >&3
