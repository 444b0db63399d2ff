#!/bin/sh
# Make everything that the Makefile's targets need: Nix, the Python environment, and (with
# `tests`) what only tests need. Says what it does, does only what is missing, and can be run again.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin # where Debian's users do not look

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Debian packages, as root or through sudo; never a password prompt in the middle of a build.
sudo='sudo -n'
[ "$(id -u)" != 0 ] || sudo=

install() {
    command -v apt-get >/dev/null || die "please install: $*  (this is not a Debian system, so apt-get cannot)"
    $sudo true 2>/dev/null || die "please install as root: apt-get install --no-install-recommends $*"
    say "installing $*"
    log=$(mktemp)
    {
        $sudo apt-get update &&
            $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
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

# What only tests need: the root of another Debian, images of registries, Docker, Podman, and an
# emulator of another machine. One that cannot be had skips the tests that need it, visibly.
tests() {
    # Only root can make another Debian's root.
    [ "$(id -u)" != 0 ] || command -v debootstrap >/dev/null || (install debootstrap) ||
        say "debootstrap: cannot be installed; its test is skipped"
    for program in skopeo npm zstd openssl; do
        command -v "$program" >/dev/null || (install "$program") || say "$program: cannot be installed; its tests are skipped"
    done
    docker_engine
    podman_programs
    far_programs
    [ -e /usr/lib/binfmt.d/qemu-aarch64.conf ] || (install qemu-user-static) ||
        say "qemu: cannot be installed; the tests of other machines' programs are skipped"
}

# The tests start Podman themselves, so it only has to be there: after Docker, whose runc it can use,
# and with what an ordinary user's containers need.
podman_programs() {
    set --
    command -v podman >/dev/null || set -- "$@" podman
    command -v slirp4netns >/dev/null || set -- "$@" slirp4netns
    command -v newuidmap >/dev/null || set -- "$@" uidmap
    command -v nft >/dev/null || set -- "$@" nftables # of which Debian 13's makes networks
    command -v pasta >/dev/null || set -- "$@" passt  # and this one, an ordinary user's
    [ $# = 0 ] || (install "$@") || say "Podman: cannot be installed; its tests are skipped"
}

# The tests start another engine themselves, in a network of its own, which takes root.
far_programs() {
    [ "$(id -u)" = 0 ] || { say "engines of other machines: only root can make them a network; their tests are skipped"; return 0; }
    set --
    command -v ip >/dev/null || set -- "$@" iproute2
    command -v nsenter >/dev/null || set -- "$@" util-linux
    command -v ssh >/dev/null || set -- "$@" openssh-client
    command -v sshd >/dev/null || set -- "$@" openssh-server
    [ $# = 0 ] || (install "$@") || say "engines of other machines: $* cannot be installed; tests that need them are skipped"
}

docker_engine() {
    docker_up || docker_start || return 0
    say "Docker: running"
    # Debian 13 packs its command line by itself.
    command -v docker >/dev/null || (install docker-cli) || say "docker: cannot be installed; its test is skipped"
}

docker_up() {
    .venv/bin/python -c 'import docker; docker.from_env(timeout=5).ping()' >/dev/null 2>&1
}

docker_start() {
    skipped='its tests are skipped'
    ! docker_forbidden || return 1
    $sudo true 2>/dev/null || { say "Docker: not running, and starting it needs root; $skipped"; return 1; }
    command -v dockerd >/dev/null || (install docker.io) || { say "Docker: cannot be installed; $skipped"; return 1; }
    log=.cache/dockerd.log
    say "Docker: starting it, its log is $log"
    mkdir -p .cache
    set -- setsid dockerd
    [ -z "$sudo" ] || set -- "$@" --group "$(id -gn)"
    [ ! -d /run/systemd/system ] || set -- systemctl start docker
    # shellcheck disable=SC2024 # the log is ours, whoever runs the daemon
    $sudo "$@" >"$log" 2>&1 </dev/null &
    tries=30
    while [ "$tries" -gt 0 ]; do
        [ -e "/proc/$!" ] || tries=0 # it has ended: this is the last try
        ! docker_up || return 0
        tries=$((tries - 1))
        sleep 1
    done
    docker_forbidden || say "Docker: does not start here ($(sed -n '/^failed to start/,$p' "$log" | tr -d '\n')); $skipped"
    return 1
}

# An engine that runs, and that only its group may use.
docker_forbidden() {
    [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ] || return 1
    say "Docker: only root and the group docker may use it, and $(id -un) is neither; its tests are skipped"
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
