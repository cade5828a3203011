#!/usr/bin/env bash
# Charts and image, as far as a machine without a cluster and a container engine can prove them: `npm run test:deploy`.
# Installs helm (Go module proxy), kubernetes-validate (PyPI) and buildah (Debian), pinned where the source can be pinned.
# What cannot be had here is left out loudly; in CI that is a failure. Ends with `N passed, N failed`.
set -u -o pipefail
cd -- "$(dirname -- "$0")/.." || exit 1

helm_version=v3.22.0
missing=()

install_helm() {
  local go
  go=$(command -v go || echo /usr/local/go/bin/go)
  [ -x "$go" ] || { echo "there is no Go to build helm with" >&2; return 1; }
  if [ -x .cache/bin/helm ] && "$go" version -m .cache/bin/helm | grep -q "helm.sh/helm/v3[[:space:]]*$helm_version"; then
    return 0
  fi
  echo "building helm $helm_version"
  mkdir -p .cache/bin
  GOBIN=$PWD/.cache/bin GOTOOLCHAIN=local "$go" install "helm.sh/helm/v3/cmd/helm@$helm_version"
}

install_buildah() {
  command -v buildah >/dev/null && return 0
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "buildah can only be installed by root" >&2; return 1; }
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends buildah; } >/dev/null
}

build_image() {
  [ "$(id -u)" = 0 ] || { echo "building and running the image takes root" >&2; return 1; }
  install_buildah || return 1
  command -v ip >/dev/null || apt-get install -y --no-install-recommends iproute2 >/dev/null || return 1
  echo "building the image: buildah, chroot isolation, on bases made from this machine's Node.js $(node --version)"
  bash scripts/deploy/image.sh "$PWD/.cache/image" >.cache/image.paths 2>.cache/image.log || { tail -n 40 .cache/image.log >&2; return 1; }
}

mkdir -p .cache
npm run --silent build || exit 1
if install_helm && scripts/install-python.sh kubernetes-validate >/dev/null; then
  build_image || missing=(image)
else
  # The image is run with the files that the charts make.
  missing=(charts image)
fi

# A network of its own, so that the charts' ports are free.
run=(unshare --net sh -c 'ip link set lo up && exec npx tsx scripts/test-deploy.ts "$@"' sh)
[[ " ${missing[*]-} " == *" image "* ]] && run=(npx tsx scripts/test-deploy.ts)
"${run[@]}" ${missing[@]/#/--without=}
status=$?
rm -rf .cache/image .cache/image.paths
exit $status
