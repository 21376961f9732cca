#!/usr/bin/env bash
# Builds images from static programs that are compiled here: nothing is pulled. Needs Go and a Docker engine.
#   hack/docker/images.sh [api|worker|standalone|nats]...   prints their names and sizes
# Those of the programs are tagged "local" and, when no names are given and all are built, with the version too. That of NATS has the
# names under which it would be pulled, so that whoever asks for it finds it.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOTOOLCHAIN=local CGO_ENABLED=0 DOCKER_BUILDKIT=0
out=bin/docker
stage=sandbox-provisioner.stage title=org.opencontainers.image.title # labels
limit=$((40 * 1000 * 1000)) # bytes, of a program's image
nats=github.com/nats-io/nats-server/v2
VERSION=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
COMMIT=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
export VERSION COMMIT

fail() {
  echo "images: $*" >&2
  exit 1
}

# build runs docker build with a directory and a Dockerfile from stdin, and shows what it says only when it fails.
build() { # directory, argument...
  local directory=$1 log
  shift
  mkdir -p "$directory"
  cat >"$directory/Dockerfile"
  if ! log=$(tar -C "$directory" -cf - . | docker build "$@" - 2>&1); then
    fail "docker build failed:
$log"
  fi
}

# forget removes images that have lost their names, or never had one, and that carry a label.
forget() { docker image prune --force --filter "label=$1" >/dev/null; }

report() { # name, limit
  local size
  size=$(docker image inspect --format '{{.Size}}' "$1")
  printf '%-44s %5.1f MB\n' "$1" "$((size / 100000))e-1"
  [ "$size" -le "$2" ] || fail "$1 is larger than $(($2 / 1000000)) MB"
}

program() { # name
  local name=sandbox-provisioner-$1
  # All of them, whatever is asked for: docker build goes through the stages of the others too. The second time it costs nothing.
  hack/docker/compile.sh "$out/programs"
  # The stage that compiles, which needs a registry, is replaced by one that takes what is compiled.
  { printf 'FROM scratch AS build\nLABEL %s=build\nCOPY . /out\n' "$stage" && sed '1,/^# images$/d' Dockerfile; } |
    build "$out/programs" --target "$1" --build-arg VERSION="$VERSION" --build-arg COMMIT="$COMMIT" --tag "$name:local"
  [ -z "$release" ] || docker tag "$name:local" "$name:${VERSION//[^A-Za-z0-9_.-]/-}"
  forget "$title=$name"
  forget "$stage"
  report "$name:local" "$limit"
}

nats() {
  local version dir=$out/nats
  version=$(go list -m -f '{{.Version}}' "$nats")
  go build -buildvcs=false -ldflags "-s -w" -o "$dir/nats-server" "$nats"
  go build -buildvcs=false -ldflags "-s -w" -o "$dir/wget" ./hack/docker/wget
  printf 'FROM scratch\nCOPY nats-server wget /usr/local/bin/\nENTRYPOINT ["nats-server"]\n' |
    build "$dir" --tag "nats:${version#v}" --tag "nats:${version#v}-alpine"
  report "nats:${version#v}" "$limit"
  report "nats:${version#v}-alpine" "$limit"
}

mkdir -p "$out"
exec 9>"$out/lock" # tests that run at the same time share the directory
flock 9
release=""
[ $# -gt 0 ] || { set -- api worker standalone nats && release=yes; }
for image in "$@"; do
  case "$image" in
  api | worker | standalone) program "$image" ;;
  nats) nats ;;
  *) fail "no image is called $image" ;;
  esac
done
