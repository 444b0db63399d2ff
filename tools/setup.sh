#!/bin/sh
# Make everything that the Makefile's targets need: Nix, the Python environment, and (with
# `tests`) what only tests need. Says what it does, does only what is missing, and can be run again.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Debian packages, as root or through sudo; never a password prompt in the middle of a build.
install() {
    command -v apt-get >/dev/null || die "please install: $*  (this is not a Debian system, so apt-get cannot)"
    if [ "$(id -u)" = 0 ]; then as_root=
    elif sudo -n true 2>/dev/null; then as_root='sudo -n'
    else die "please install as root: apt-get install --no-install-recommends $*"
    fi
    say "installing $*"
    log=$(mktemp)
    {
        $as_root apt-get update &&
            $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
    } >"$log" 2>&1 || { tail -n 20 "$log" >&2; rm -f "$log"; die "apt-get could not install $*"; }
    rm -f "$log"
}

packages() {
    command -v nix-build >/dev/null || echo nix-bin
    command -v git >/dev/null || echo git
    [ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
    command -v gpgv >/dev/null || echo gpgv
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || echo debian-archive-keyring
    command -v python3 >/dev/null && python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
}

environment() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "Python 3.11 or newer is needed, python3 is $(python3 -V)"
    stamp=.venv/agentix-setup
    wanted=$(cat requirements-dev.txt pyproject.toml runtime/pyproject.toml plugins/*/pyproject.toml | sha256sum)
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && { say "Python environment: up to date"; return; }
    say "Python environment: installing into .venv"
    [ -x .venv/bin/python ] || python3 -m venv .venv
    if [ ! -x .venv/bin/uv ]; then # by hash, as everything after it
        pinned=$(mktemp)
        sed -n '/^uv==/,/[^\\]$/p' requirements-dev.txt >"$pinned"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$pinned"
        rm -f "$pinned"
    fi
    VIRTUAL_ENV=$PWD/.venv .venv/bin/uv pip install --quiet --compile-bytecode --require-hashes -r requirements-dev.txt
    set --
    for project in . runtime plugins/*/; do set -- "$@" --editable "$project"; done
    VIRTUAL_ENV=$PWD/.venv .venv/bin/uv pip install --quiet --no-deps "$@"
    printf '%s\n' "$wanted" >"$stamp"
}

# What only tests need: the root of another Debian, and Docker. A machine that forbids one of them
# skips the tests that need it, visibly.
tests() {
    if ! command -v debootstrap >/dev/null; then
        (install debootstrap) || say "debootstrap: cannot be installed; its test is skipped"
    fi
    docker_engine
}

docker_engine() {
    docker_up 1 && { say "Docker: running"; return; }
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || { say "Docker: not running, and starting it needs root; its tests are skipped"; return; }
    command -v dockerd >/dev/null || (install docker.io) || { say "Docker: cannot be installed; its tests are skipped"; return; }
    as_root=; [ "$(id -u)" = 0 ] || as_root='sudo -n'
    mkdir -p .cache
    if ! $as_root service docker start >/dev/null 2>&1 || ! docker_up 10; then
        say "Docker: starting dockerd, its log is .cache/dockerd.log"
        # shellcheck disable=SC2024 # the log is ours, whoever runs the daemon
        $as_root setsid dockerd >.cache/dockerd.log 2>&1 </dev/null &
    fi
    docker_up 30 || { say "Docker: does not start here ($(tail -n 1 .cache/dockerd.log 2>/dev/null)); its tests are skipped"; return; }
    say "Docker: running"
}

docker_up() {
    tries=$1
    until .venv/bin/python -c 'import docker; docker.from_env(timeout=5).ping()' >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 1
    done
}

case "${1:-}" in
'')
    missing=$(packages)
    # shellcheck disable=SC2086 # one word a package
    [ -z "$missing" ] || install $missing
    environment
    ;;
tests) tests ;;
*) die "usage: tools/setup.sh [tests]" ;;
esac
