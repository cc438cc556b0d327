#!/bin/sh
# Checks the build requirements of dbdyno and installs what is missing.
#
#     scripts/setup.sh         to build and run it
#     scripts/setup.sh test    to run its tests as well
#     scripts/setup.sh full    to check that it compiles for aarch64
#     scripts/setup.sh bench   to run its benchmarks against servers as well
#
# Prints nothing if nothing is missing. As root on Debian it installs the missing packages; otherwise
# it prints the command to run and exits with 1. The Rust toolchain is installed by rustup, which
# installs the one named in rust-toolchain.toml when cargo is first called.
set -eu

cd "$(dirname "$0")/.."

case "${1-}" in
'' | test | full | bench) wanted=${1-} ;;
*)
    echo "usage: scripts/setup.sh [test | full | bench]" >&2
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

# Whether version $1 is at least version $2. Compares MAJOR.MINOR only.
at_least() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        split(a, x, "."); split(b, y, ".")
        exit !(x[1] > y[1] || x[1] == y[1] && x[2] + 0 >= y[2] + 0)
    }'
}

is_root() {
    [ "$(id -u)" -eq 0 ]
}

# A minimal system has no package lists. Without them nothing is known to be installable.
refreshed=false
refresh_package_lists() {
    if is_root && ! $refreshed; then
        say "updating the package lists"
        apt-get update -q -o Acquire::Retries=5 >&2
        refreshed=true
    fi
}

# Whether this package can be installed.
packaged() {
    have apt-get || return 1
    refresh_package_lists
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [^(]'
}

# Whether a file matches this pattern.
exists() {
    for file in $1; do
        [ -e "$file" ] && return 0
    done
    return 1
}

# Whether clang can link instrumented programs. Without the library it prints the bare name.
has_profile_runtime() {
    case $(clang -print-file-name="libclang_rt.profile-$(uname -m).a" 2>/dev/null) in
    /*) return 0 ;;
    esac
    return 1
}

has_font() {
    for folder in /usr/share/fonts /usr/local/share/fonts; do
        [ -n "$(find "$folder" -name '*.[to]tf' 2>/dev/null | head -n 1)" ] && return 0
    done
    return 1
}

explain_rustup() {
    say "install rustup as described by the Rust project (Debian 13 and later: apt-get install rustup),"
    say "then run this script again"
}

# The packages to install, kept in the script's own arguments.
set --
have make || set -- "$@" make
# With --no-install-recommends, gcc does not pull in the C library's headers.
if ! have gcc; then
    set -- "$@" gcc libc6-dev
elif have apt-get && [ ! -e /usr/include/stdio.h ]; then
    set -- "$@" libc6-dev
fi
if [ "$wanted" = full ]; then
    have aarch64-linux-gnu-gcc || set -- "$@" gcc-aarch64-linux-gnu libc6-dev-arm64-cross
fi
if [ "$wanted" = test ] || [ "$wanted" = bench ]; then
    have g++ || set -- "$@" g++
fi
if [ "$wanted" = test ]; then
    have clang || set -- "$@" clang
    have xz || set -- "$@" xz-utils
    have llvm-profdata || set -- "$@" llvm
    # Instrumented programs link this library. The clang package only recommends it.
    if ! has_profile_runtime && packaged libclang-rt-dev; then
        set -- "$@" libclang-rt-dev
    fi
    # Needed to compile PostgreSQL.
    have bison || set -- "$@" bison
    have flex || set -- "$@" flex
    perl -MFindBin -MFile::Compare -e 1 2>/dev/null || set -- "$@" perl
    # Needed to compile MySQL.
    have cmake || set -- "$@" cmake
    have ninja || set -- "$@" ninja-build
    have pkg-config || set -- "$@" pkg-config
    exists '/usr/include/openssl/ssl.h' || set -- "$@" libssl-dev
    exists '/usr/include/unicode/uversion.h' || set -- "$@" libicu-dev
    exists '/usr/include/libaio.h' || set -- "$@" libaio-dev
    exists '/usr/include/curses.h' || set -- "$@" libncurses-dev
    # The version differs between Debian releases.
    if ! exists '/usr/bin/llvm-bolt*'; then
        for version in 21 20 19 18 17 16; do
            if packaged "bolt-$version"; then
                set -- "$@" "bolt-$version"
                break
            fi
        done
    fi
    # Slurm for fleet runs; its daemons are started by the tests only.
    if ! have slurmctld && [ ! -x /usr/sbin/slurmctld ] && packaged slurm-wlm; then
        set -- "$@" slurm-wlm munge procps
    fi
    have curl || set -- "$@" curl ca-certificates
    have git || set -- "$@" git
    have gdb || set -- "$@" gdb
    # Sets the loader of releases that are unpacked.
    have patchelf || set -- "$@" patchelf
    # The program, not the shell's builtin.
    env kill -l >/dev/null 2>&1 || set -- "$@" procps
    exists '/usr/lib/postgresql/*/bin/postgres' || set -- "$@" postgresql
    if [ "${DBDYNO_SKIP_BROWSER-}" != 1 ]; then
        have chromium || set -- "$@" chromium
        has_font || set -- "$@" fonts-dejavu-core
    fi
fi

if [ "$wanted" = test ] || [ "$wanted" = bench ]; then
    have mariadbd || [ -x /usr/sbin/mariadbd ] || set -- "$@" mariadb-server
    exists '/usr/lib/mysql/plugin/ha_rocksdb.so' || set -- "$@" mariadb-plugin-rocksdb
    have sysbench || set -- "$@" sysbench
fi

# The state of the Rust toolchain: missing, old, bare (no clippy or rustfmt) or ok.
needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
rust=ok
if ! have cargo || ! have rustc; then
    rust=missing
elif ! have rustup; then
    # Not rustup's cargo: calling it downloads nothing.
    version=$(cargo --version | cut -d ' ' -f 2)
    if ! at_least "$version" "$needed"; then
        rust=old
    elif [ "$wanted" = test ] && ! { have cargo-clippy && have cargo-fmt; }; then
        rust=bare
    fi
fi

[ $# -gt 0 ] || [ "$rust" != ok ] || exit 0

if ! have apt-get; then
    [ $# -eq 0 ] || say "install the equivalents of these Debian packages: $*"
    [ "$rust" = ok ] || say "Rust $needed or later is required, with rustfmt and clippy for the tests"
    [ "$rust" = ok ] || explain_rustup
    exit 1
fi

# rustup is packaged since Debian 13, whose own cargo is too old.
manual=false
if [ "$rust" = missing ] && packaged rustup; then
    set -- "$@" rustup ca-certificates
elif [ "$rust" != ok ]; then
    manual=true
    have curl || set -- "$@" curl ca-certificates
fi

if [ $# -gt 0 ]; then
    if is_root; then
        refresh_package_lists
        say "installing $*"
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y -o Acquire::Retries=5 \
            --no-install-recommends "$@"
    else
        say "missing; run as root:"
        say "    apt-get update && apt-get install -y --no-install-recommends $*"
    fi
fi
if $manual; then
    case $rust in
    missing) say "cargo is missing" ;;
    old) say "cargo $version is too old: Rust $needed or later is required" ;;
    bare) say "rustfmt or clippy is missing from this Rust installation" ;;
    esac
    explain_rustup
    exit 1
fi
# Nothing was installed without root.
is_root || exit 1
