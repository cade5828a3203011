#!/bin/sh
# The system tests: real processes on loopback, real OpenBao, real MCP clients and servers.
# Arguments go to vitest, e.g. `npm run test:system -- clients`.
set -eu

cd -- "$(dirname -- "$0")/.."

if ! scripts/install-bao.sh >/dev/null; then
  if [ "${CI:-}" = true ]; then
    echo "OpenBao could not be installed; in CI the tests that need it must not be skipped" >&2
    exit 1
  fi
  echo "OpenBao could not be installed: the tests that need it will be skipped" >&2
fi

if ! scripts/install-peers.sh; then
  if [ "${CI:-}" = true ]; then
    echo "the clients that others wrote could not be installed; in CI their tests must not be skipped" >&2
    exit 1
  fi
  echo "the clients that others wrote could not be installed: their tests will be skipped" >&2
fi

npm run --silent build

# In CI the results are also counted: see .ci/run.
if [ -n "${POSTERN_REPORTS:-}" ]; then
  set -- --reporter=default --reporter=json --outputFile.json="$POSTERN_REPORTS/system.json" "$@"
fi
exec npx vitest run --project system "$@"
