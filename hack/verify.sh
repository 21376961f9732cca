#!/usr/bin/env bash
# Checks what a reviewer should not have to, in the modules that are its arguments: format, vet, lint, tidy, a clean tree. Changes nothing
# that is right.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOTOOLCHAIN=local
root=$PWD
before=$(git status --porcelain)
for module in "$@"; do
  (
    cd "$module"
    echo "verify $module"
    go mod tidy
    "$root/bin/golangci-lint" fmt ./...
    go vet ./...
    "$root/bin/golangci-lint" run ./...
  )
done
make --no-print-directory generate
for script in hack/*.sh hack/docker/*.sh .ci/run; do
  bash -n "$script"
done
after=$(git status --porcelain)
if [ "$before" != "$after" ]; then
  printf 'verify: these files were not as they should be and have been changed:\n%s\n' "$(git diff --stat)" >&2
  exit 1
fi
echo "verify: clean"
