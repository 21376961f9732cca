#!/usr/bin/env bash
# Runs every test, part by part, and says how long each took. One development cluster serves all parts that need one.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOTOOLCHAIN=local
parts=()
failed=0

part() { # name, command...
  local name=$1 start=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  untested=""
  if "$@"; then
    parts+=("$(printf '%-44s %4ds  ok%s' "$name" $((SECONDS - start)) "$untested")")
  else
    parts+=("$(printf '%-44s %4ds  FAILED' "$name" $((SECONDS - start)))")
    failed=1
  fi
}

finish() {
  [ -z "${cluster:-}" ] || { kill "$cluster" 2>/dev/null && wait "$cluster" 2>/dev/null || true; }
  printf '\n'
  [ ${#parts[@]} -eq 0 ] || printf '%s\n' "${parts[@]}"
}
trap finish EXIT

need() {
  local missing=0
  for tool in go gcc git; do
    command -v "$tool" >/dev/null || { echo "test: $tool is not installed" >&2; missing=1; }
  done
  return $missing
}

build_devcluster() {
  (cd hack/devcluster && CGO_ENABLED=0 go build -buildvcs=false -o ../../bin/devcluster .) && bin/devcluster assets
}

start_devcluster() {
  rm -f bin/test-cluster.json
  bin/devcluster start --die-with-parent --state bin/test-cluster.json --kubeconfig bin/test-cluster.kubeconfig \
    --unsafe-no-fsync >bin/test-cluster.log 2>&1 &
  cluster=$!
  for _ in $(seq 600); do
    [ ! -f bin/test-cluster.json ] || { export DEVCLUSTER_STATE=$PWD/bin/test-cluster.json; return; }
    kill -0 "$cluster" 2>/dev/null || break
    sleep 0.1
  done
  cat bin/test-cluster.log >&2
  return 1
}

containers() {
  if [ -z "${CI:-}" ] && ! docker info >/dev/null 2>&1; then
    echo "NOT TESTED: no Docker engine answers; make containers gets one"
    untested=" (NOT TESTED: no Docker engine)"
    return
  fi
  go test -timeout 15m ./test/containers
}

compose() {
  if [ -z "${CI:-}" ] && { [ "$(id -u)" != 0 ] || ! docker info >/dev/null 2>&1; }; then
    echo "NOT TESTED: no Docker engine answers, or this is not root; make compose-test gets what it needs"
    untested=" (NOT TESTED: needs root and a Docker engine)"
    return
  fi
  hack/docker/compose.sh && go test -timeout 15m ./test/compose
}

need
part "kube-apiserver and etcd" build_devcluster
part "development cluster, its own tests" bash -c 'cd hack/devcluster && go test -race -timeout 10m ./...'
part "real node, its own tests" bash -c 'cd hack/node && go test -race -timeout 5m ./internal/...'
part "development cluster, start" start_devcluster
[ $failed -eq 0 ] || exit 1
part "packages" go test -race -timeout 10m ./client/... ./cmd/... ./hack/... ./internal/...
part "protocol model, 10,000 runs in each weather" go test -timeout 10m ./test/model -runs 10000
part "objects and cases, on a real API server" go test -race -timeout 15m ./test/contract ./test/cases
part "faults, with processes" go test -race -timeout 15m ./test/faults
part "outages, full disks, poison, expiry" go test -timeout 15m ./test/outage
part "NATS and workers in containers" containers
part "docker-compose.yaml" compose
exit $failed
