#!/bin/sh
# Runs the tests, and fails if they leave a process, a directory or a file behind.
#
#     scripts/run-tests.sh quick     a minute: no servers, no browser, no compilers
#     scripts/run-tests.sh           ten minutes: those of every day
#     scripts/run-tests.sh servers   the part of these that starts servers
#     scripts/run-tests.sh others    the part of these that is neither quick nor starts servers
#     scripts/run-tests.sh full      all: also the tests with `#[ignore = "full"]`
#
# The tests of each day have each kind of defect once: damaged input, one kill per phase, one lost host. The
# others repeat them with more systems, moments and sizes.
#
# Tests use a temporary directory of their own, which must be empty at the end. Servers also keep
# data in /var/tmp, and perf's maps of generated code are always in /tmp: those are compared.
set -eu
umask 022

cd "$(dirname "$0")/.."

# Packages with tests that start database servers.
servers="dbdyno dbdyno-drivers dbdyno-engines"
with_servers=$(printf -- '-p %s ' $servers)
without_servers=$(printf -- '--exclude %s ' $servers)

case "${1-}" in
quick) tests="--workspace --lib --bins --test spec --test import --test results" ;;
servers) tests="$with_servers --test *" ;;
others) tests="--workspace $without_servers --test *" ;;
'') tests=--workspace ;;
full) tests="--workspace -- --include-ignored" ;;
*)
    echo "usage: scripts/run-tests.sh [quick | servers | others | full]" >&2
    exit 2
    ;;
esac

# One line for each directory and process of dbdyno outside the tests' own directory.
list_outside() {
    for path in /tmp/dbdyno-* /var/tmp/dbdyno-* /tmp/perf-*.map /tmp/org.chromium.*; do
        case $path in
        /tmp/dbdyno-tests.*) ;; # of this run, and of others
        *) [ ! -e "$path" ] || echo "file $path" ;;
        esac
    done
    for link in /proc/[0-9]*/cwd; do
        cwd=$(readlink "$link" 2>/dev/null) || continue
        case $cwd in
        */dbdyno-*/data | */data/servers/*)
            pid=${link#/proc/}
            echo "process ${pid%/cwd} in $cwd"
            ;;
        esac
    done
}

# Servers run as another user, so the directory is open like /tmp. The path is short because
# addresses of Unix sockets have at most 107 bytes.
TMPDIR=$(mktemp -d /tmp/dbdyno-tests.XXXXXX)
chmod 1777 "$TMPDIR"
export TMPDIR
# Reasons why tests were skipped, one per line; cargo does not show what passing tests print.
DBDYNO_SKIPPED_TESTS=$(mktemp /tmp/skipped-tests-of-dbdyno.XXXXXX)
export DBDYNO_SKIPPED_TESTS
trap 'rm -rf "$TMPDIR" "$DBDYNO_SKIPPED_TESTS" ${own_dir:+"$own_dir"}' EXIT
trap 'exit 130' INT TERM HUP

# As root, dbdyno trusts only directories that nobody else can change, which a checkout of another
# user is not, and servers run as another user, who cannot enter root's home. The tests' cache and runs
# are in the target directory otherwise.
own_dir=
if [ "$(id -u)" -eq 0 ]; then
    dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    while [ -z "$own_dir" ]; do
        if [ -n "$(find "$dir" -maxdepth 0 \( ! -uid 0 -o ! -perm -001 -o -perm /022 ! -perm -1000 \) 2>/dev/null)" ]; then
            own_dir=$(mktemp -d /var/tmp/tests-of-dbdyno.XXXXXX)
            chmod 755 "$own_dir"
            export DBDYNO_TEST_DIR="$own_dir"
        fi
        [ "$dir" != / ] || break
        dir=$(dirname "$dir")
    done
fi

# The compiler that checks the lints also compiles: all is read once instead of twice. While code is
# written, warnings are no errors.
if [ "${1-}" != quick ]; then
    export RUSTC_WORKSPACE_WRAPPER=clippy-driver
    # As `cargo clippy -- -D warnings` passes it.
    export CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings
fi

# Servers of the tests are not behind a proxy.
export no_proxy="${no_proxy-},127.0.0.1,localhost"

# Most tests wait for others most of the time: for servers, slices, or the end of a process.
RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}
export RUST_TEST_THREADS

before=$(list_outside)
status=0
set -f # `--test *` names no file.
# shellcheck disable=SC2086  # a list of arguments
cargo test --no-fail-fast $tests || status=$?
set +f
sort -u "$DBDYNO_SKIPPED_TESTS"

list_left() {
    find "$TMPDIR" -mindepth 1 -maxdepth 1 | sed 's/^/file /'
    list_outside | while read -r line; do
        printf '%s\n' "$before" | grep -qxF "$line" || echo "$line"
    done
}
# A process that was killed a moment ago may not have ended.
left=$(list_left)
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$left" ] || break
    sleep 1
    left=$(list_left)
done
if [ -n "$left" ]; then
    echo "$left" | sed 's/^/run-tests: left behind: /' >&2
    [ "$status" -ne 0 ] || status=1
fi
exit "$status"
