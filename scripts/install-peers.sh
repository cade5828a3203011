#!/bin/sh
# Installs the clients of test/peers below .cache/: those of npm with a Node.js of their own (the Inspector needs 22), and
# the Python SDK. Prints nothing. Does nothing when they are there already.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
home=$root/.cache/peers

if ! cmp -s "$root/test/peers/package-lock.json" "$home/installed"; then
  rm -rf "$home"
  mkdir -p "$home"
  cp "$root/test/peers/package.json" "$root/test/peers/package-lock.json" "$home"
  npm ci --prefix "$home" --ignore-scripts --no-audit --no-fund --loglevel error >&2
  cp "$root/test/peers/package-lock.json" "$home/installed"
fi

"$root/scripts/install-python.sh" mcp >/dev/null
