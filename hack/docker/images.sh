#!/usr/bin/env bash
# Builds the images that the tests of test/containers start, from static binaries alone: nothing is pulled. That of NATS has the
# name under which it would be, so that whoever asks for it finds it.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0
out=bin/docker
nats=github.com/nats-io/nats-server/v2

mkdir -p "$out"
go build -buildvcs=false -o "$out/nats-server" "$nats"
go build -buildvcs=false -o "$out/worker" ./cmd/worker
version=$(go list -m -f '{{.Version}}' "$nats")

image() { # name, program
  printf 'FROM scratch\nCOPY %s /%s\nENTRYPOINT ["/%s"]\n' "$2" "$2" "$2" >"$out/$2.dockerfile"
  tar -C "$out" -cf - "$2" "$2.dockerfile" |
    DOCKER_BUILDKIT=0 docker build --quiet --tag "$1" --file "$2.dockerfile" - >/dev/null
  echo "$1"
}

image "nats:${version#v}" nats-server
image sandbox-provisioner-worker:test worker
