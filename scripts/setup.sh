#!/bin/sh
# Checks what building dbdyno needs, and gets what is missing where that is simple.
#
#     scripts/setup.sh         to build and run it
#     scripts/setup.sh test    for its tests, too
#     scripts/setup.sh bench   for its benchmarks against servers, too
#
# Says nothing when everything is there. As root on a Debian system it installs the packages that
# are missing; otherwise it prints the command to run and exits with 1. The Rust toolchain itself
# is rustup's business: it gets the one that rust-toolchain.toml names when cargo is first called.
set -eu

cd "$(dirname "$0")/.."

case "${1-}" in
'' | test | bench) wanted=${1-} ;;
*)
    echo "usage: scripts/setup.sh [test | bench]" >&2
    exit 2
    ;;
esac

PATH=$PATH:${CARGO_HOME:-${HOME-}/.cargo}/bin

say() {
    printf 'setup: %s\n' "$*" >&2
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# Whether version $1 is at least version $2; both as MAJOR.MINOR, what follows does not count.
at_least() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        split(a, x, "."); split(b, y, ".")
        exit !(x[1] > y[1] || x[1] == y[1] && x[2] + 0 >= y[2] + 0)
    }'
}

# Whether Debian has a package of this name for this system.
packaged() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [^(]'
}

# Whether a file of this pattern is there.
there_is() {
    for file in $1; do
        [ -e "$file" ] && return 0
    done
    return 1
}

has_font() {
    for folder in /usr/share/fonts /usr/local/share/fonts; do
        [ -n "$(find "$folder" -name '*.[to]tf' 2>/dev/null | head -n 1)" ] && return 0
    done
    return 1
}

rustup_by_hand() {
    say "get rustup as the Rust project describes it (Debian 13 and later: apt-get install rustup),"
    say "then run this again"
}

# The packages to get: kept as the script's own arguments, one word each.
set --
have make || set -- "$@" make
# With --no-install-recommends gcc comes without the C library's headers.
if ! have gcc; then
    set -- "$@" gcc libc6-dev
elif have apt-get && [ ! -e /usr/include/stdio.h ]; then
    set -- "$@" libc6-dev
fi
if [ "$wanted" = test ]; then
    have clang || set -- "$@" clang
    have xz || set -- "$@" xz-utils
    # The tools that make clang's profiles belong to its version.
    if have clang; then
        have llvm-profdata || set -- "$@" llvm
    else
        set -- "$@" llvm
    fi
    # Compiling PostgreSQL asks for them.
    have bison || set -- "$@" bison
    have flex || set -- "$@" flex
    have perl || set -- "$@" perl
    # Each release of Debian has other versions of it.
    if ! there_is '/usr/bin/llvm-bolt*'; then
        for version in 21 20 19 18 17 16; do
            if packaged "bolt-$version"; then
                set -- "$@" "bolt-$version"
                break
            fi
        done
    fi
    have curl || set -- "$@" curl ca-certificates
    have git || set -- "$@" git
    have gdb || set -- "$@" gdb
    # The program: every shell has a command of this name besides.
    env kill -l >/dev/null 2>&1 || set -- "$@" procps
    there_is '/usr/lib/postgresql/*/bin/postgres' || set -- "$@" postgresql
    if [ "${DBDYNO_SKIP_BROWSER-}" != 1 ]; then
        have chromium || set -- "$@" chromium
        has_font || set -- "$@" fonts-dejavu-core
    fi
fi

if [ -n "$wanted" ]; then
    have mariadbd || [ -x /usr/sbin/mariadbd ] || set -- "$@" mariadb-server
    there_is '/usr/lib/mysql/plugin/ha_rocksdb.so' || set -- "$@" mariadb-plugin-rocksdb
fi
if [ "$wanted" = bench ]; then
    have sysbench || set -- "$@" sysbench
    for module in pymysql:python3-pymysql MySQLdb:python3-mysqldb; do
        /usr/bin/python3 -c "import ${module%%:*}" 2>/dev/null || set -- "$@" "${module#*:}"
    done
fi

# `missing`, `old`, `bare` (without what the tests need) or `there`.
needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
rust=there
if ! have cargo || ! have rustc; then
    rust=missing
elif ! have rustup; then
    # Not rustup's cargo, so asking it for its version makes it download nothing.
    version=$(cargo --version | cut -d ' ' -f 2)
    if ! at_least "$version" "$needed"; then
        rust=old
    elif [ "$wanted" = test ] && ! { have cargo-clippy && have cargo-fmt; }; then
        rust=bare
    fi
fi

[ $# -gt 0 ] || [ "$rust" != there ] || exit 0

if ! have apt-get; then
    [ $# -eq 0 ] || say "missing, under the names of Debian's packages: $*; install them"
    [ "$rust" = there ] || say "Rust $needed or later is needed, with rustfmt and clippy for tests"
    [ "$rust" = there ] || rustup_by_hand
    exit 1
fi

root=false
if [ "$(id -u)" -eq 0 ]; then
    root=true
    export DEBIAN_FRONTEND=noninteractive
    say "updating the list of packages"
    apt-get update -q
fi

# Debian 13 is the first to have rustup; its own cargo is too old there, too.
by_hand=false
if [ "$rust" = missing ] && packaged rustup; then
    set -- "$@" rustup ca-certificates
elif [ "$rust" != there ]; then
    by_hand=true
    have curl || set -- "$@" curl ca-certificates
fi

if [ $# -gt 0 ]; then
    if $root; then
        say "installing $*"
        apt-get install -q -y --no-install-recommends "$@"
    else
        say "missing; run as root:"
        say "    apt-get update && apt-get install -y --no-install-recommends $*"
    fi
fi
if $by_hand; then
    case $rust in
    missing) say "cargo is missing" ;;
    old) say "cargo $version is too old: Rust $needed or later is needed" ;;
    bare) say "cargo $version has no rustfmt or no clippy" ;;
    esac
    rustup_by_hand
    exit 1
fi
# Without root nothing was installed.
$root || exit 1
