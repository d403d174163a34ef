#!/usr/bin/env bash
# Makes a release of the commit that is checked out:
#
#   release.sh <folder> <cyclonedx-gomod>
#
# leaves in the folder, for each architecture, the program and its SBOM
# (CycloneDX, of what is linked into it), and the checksums of all. Each program
# is built a second time, from a clone in another folder with an empty build
# cache; a difference of one byte is an error. To check a release that somebody
# else has made, check out its tag, run this with the Go version that
# `slipway version` names, and compare the checksums.
#
# ARCHITECTURES limits it, for trying: ARCHITECTURES=amd64.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "$1")
gomod=$(realpath "$2")
architectures=${ARCHITECTURES:-amd64 arm64}

# What a machine has set for its own builds does not change a release.
export GOFLAGS=-mod=readonly GOWORK=off GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 CGO_ENABLED=0 GOOS=linux
unset GIT_DIR GIT_WORK_TREE

if [[ -n $(git status --porcelain) ]]; then
  echo "There are changes that are not committed; a release is of a commit." >&2
  exit 1
fi
# The version is the tag of the commit, else one made from the tags before it.
if [[ $(git rev-parse --is-shallow-repository) == true && -z $(git tag --points-at HEAD --list 'v*') ]]; then
  echo "The clone is shallow, so the version may lack the tag before it: git fetch --unshallow --tags" >&2
fi
say() { echo "$(date +%T) $*"; }
build() { # build <folder of the source> <architecture> <program>
  GOARCH=$2 go build -C "$1" -trimpath -buildvcs=true -o "$3" ./cmd/slipway
}

again=$(mktemp -d)
trap 'chmod -R u+w "$again"; rm -rf "$again"' EXIT
git -c advice.detachedHead=false clone -q --no-local . "$again/source"
git -C "$again/source" checkout -q --detach "$(git rev-parse HEAD)"

rm -rf "$out"
mkdir -p "$out"
for architecture in $architectures; do
  program=slipway-linux-$architecture
  say "$program: builds it"
  build . "$architecture" "$out/$program"
  say "$program: builds it again with an empty cache, which takes minutes"
  GOCACHE=$again/cache build "$again/source" "$architecture" "$again/$program"
  cmp "$out/$program" "$again/$program" || { echo "$program is not reproducible." >&2; exit 1; }
  say "$program: lists what is in it, with licences"
  # No serial number and no time: an SBOM is reproducible too.
  GOARCH=$architecture "$gomod" app -json -noserial -notimestamp -licenses -std -main cmd/slipway -output "$out/$program.cdx.json" .
done
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
