#!/usr/bin/env bash
# Sees to it that there is a docker compose, of any kind, on a bare Debian machine too, as root.
set -euo pipefail

if docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null; then
  exit
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "compose: there is no docker compose; install it by hand, or run this as root on Debian" >&2
  exit 1
fi
echo "compose: installing docker-compose"
export DEBIAN_FRONTEND=noninteractive
if ! log=$({ apt-get update -qq && apt-get install -qq -y --no-install-recommends docker-compose; } 2>&1); then
  printf '%s\n' "$log" >&2
  exit 1
fi
