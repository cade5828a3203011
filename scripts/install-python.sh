#!/bin/sh
# install-python.sh NAME: a virtual environment .cache/NAME with exactly what scripts/NAME-requirements.txt lists. Prints
# the path of its python. Does nothing when it is there already.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
requirements=$root/scripts/$1-requirements.txt
home=$root/.cache/$1

if ! cmp -s "$requirements" "$home/installed"; then
  rm -rf "$home"
  python3 -m venv "$home" >&2
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: -r "$requirements" >&2
  "$home/bin/python" -m pip check >&2
  cp "$requirements" "$home/installed"
fi

echo "$home/bin/python"
