#!/usr/bin/env bash
# Compiles what goes into the images of the programs, and nothing else goes into them. Needs Go alone; the Dockerfile runs it too.
#   hack/docker/compile.sh DIRECTORY
# VERSION and COMMIT are stamped in. Left out are the tables for debuggers, and what gin has for MessagePack, which nobody uses: half of
# the size together. The build cache of what takes long to compile is the same as without.
set -euo pipefail
out=$(realpath -m "$1")
cd "$(dirname "$0")/../.."
export GOTOOLCHAIN=local CGO_ENABLED=0
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
stamp=sandbox-provisioner/internal/version

for program in api worker standalone; do
  go build -buildvcs=false -tags nomsgpack -o "$out/$program" \
    -ldflags "-s -w -X $stamp.version=$version -X $stamp.commit=$commit" "./cmd/$program"
done

# What lies below root belongs to root, and what lies below data to the user of the image. Docker gives a new volume the owner and the
# mode of the directory that it covers; whichever user an operator chooses has to be able to write there.
mkdir -p "$out/root/etc/ssl/certs" "$out/data/var/lib/sandbox-provisioner"
chmod 0777 "$out/data/var/lib/sandbox-provisioner"
(cd hack/docker/roots && go run -buildvcs=false .) >"$out/root/etc/ssl/certs/ca-certificates.crt"
