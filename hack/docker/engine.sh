#!/usr/bin/env bash
# Sees to it that a Docker engine answers, on a bare Debian machine too, as root.
#   hack/docker/engine.sh ensure   does nothing when one answers; else installs Debian's and starts it
#   hack/docker/engine.sh stop     ends the engine that ensure started, and no other
set -euo pipefail
cd "$(dirname "$0")/../.."
log=bin/dockerd.log
pid_file=bin/dockerd.pid

say() { echo "engine: $*"; }

fail() {
  echo "engine: $*" >&2
  exit 1
}

answers() { docker info >/dev/null 2>&1; }

# ours is the pid of the engine that ensure started, if it still runs: a pid alone may be somebody else's by now.
ours() {
  local pid
  pid=$(cat "$pid_file" 2>/dev/null) || return 1
  [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && echo "$pid"
}

install_engine() {
  [ "$(id -u)" = 0 ] || fail "installing a Docker engine needs root"
  command -v apt-get >/dev/null || fail "there is no apt-get; install a Docker engine by hand"
  say "installing docker.io"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >"$log" 2>&1 || { cat "$log" >&2; fail "apt-get update failed"; }
  apt-get install -qq -y --no-install-recommends docker.io >>"$log" 2>&1 || { cat "$log" >&2; fail "apt-get install failed"; }
  # Newer releases have the client in a package of its own.
  command -v docker >/dev/null || apt-get install -qq -y --no-install-recommends docker-cli >>"$log" 2>&1 || fail "there is no docker client"
}

ensure() {
  if answers; then
    say "a Docker engine answers already"
    return
  fi
  mkdir -p bin
  if ! { command -v docker && command -v dockerd; } >/dev/null; then
    install_engine
  fi
  if answers; then # the package has started it
    say "the Docker engine was installed and answers"
    return
  fi
  [ "$(id -u)" = 0 ] || fail "starting a Docker engine needs root"
  # A session of its own: Ctrl-C at the caller must not end it, and it must not keep the caller's output open.
  setsid dockerd </dev/null >"$log" 2>&1 &
  local pid=$!
  echo "$pid" >"$pid_file"
  for _ in $(seq 300); do
    if answers; then
      say "the Docker engine was started, pid $pid, log $log"
      return
    fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.2
  done
  tail -30 "$log" >&2
  stop
  fail "the Docker engine does not answer"
}

stop() {
  local pid
  if ! pid=$(ours); then
    rm -f "$pid_file"
    say "no engine of ours runs"
    return
  fi
  kill "$pid"
  for _ in $(seq 150); do
    [ -d "/proc/$pid" ] || break
    sleep 0.2
  done
  [ ! -d "/proc/$pid" ] || fail "the Docker engine, pid $pid, does not end"
  rm -f "$pid_file"
  say "the Docker engine was stopped"
}

case "${1:-}" in
ensure) ensure ;;
stop) stop ;;
*)
  echo "usage: hack/docker/engine.sh ensure|stop" >&2
  exit 2
  ;;
esac
