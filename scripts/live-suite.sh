#!/bin/sh
# Runs a server's own test suite with its servers as they are, and with the live optimizer in each of them.
#
#     scripts/live-suite.sh mariadb [TESTS]      every n-th test of the suite `main`, 250 in all
#     scripts/live-suite.sh postgresql SOURCE    the regression tests in a source tree of its version
#
# Needs root, to run the servers as another user. Debian's packages: mariadb-test; postgresql and
# postgresql-server-dev-all. TARGET is the directory with the compiled benchmarks.
set -eu

cd "$(dirname "$0")/.."
live=$(realpath -m "${TARGET:-target}")/release/live
bench=$(realpath -m target/bench)
runner=$(realpath scripts/live-suite.sh)
status=0

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$runner" >&2
    exit 2
}

missing() {
    echo "live-suite: $1" >&2
    exit 1
}

[ "$(id -u)" -eq 0 ] || missing "run it as root: the servers run as another user"
[ -x "$live" ] || missing "$live does not exist: run \`make bench-live-suite\`"

# The directory is short, because addresses of sockets in it have at most 107 bytes.
make_directory() {
    dir=$(mktemp -d /var/tmp/suite.XXXXXX)
    trap 'rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM HUP
    chown nobody "$dir"
}

case "${1-}" in
mariadb)
    suite=/usr/share/mysql/mysql-test
    wanted=${2:-250}
    case $wanted in
    '' | *[!0-9]* | 0*) usage ;;
    esac
    [ -d "$suite/main" ] || missing "$suite does not exist: install mariadb-test"
    make_directory
    find "$suite/main" -name '*.test' -printf 'main.%f\n' | sed 's/\.test$//' | sort > "$dir/all"
    awk -v all="$(wc -l < "$dir/all")" -v wanted="$wanted" \
        'int(NR * wanted / all) > int((NR - 1) * wanted / all)' "$dir/all" > "$dir/tests"
    cd "$suite"
    # shellcheck disable=SC2046  # a list of tests
    "$live" suite --server /usr/sbin/mariadbd -- \
        setpriv --reuid=nobody --regid=nogroup --clear-groups \
        perl mysql-test-run.pl --force --max-test-fail=0 --parallel=1 --vardir="$dir/var" \
        --suite-timeout=120 $(cat "$dir/tests")
    ;;
postgresql)
    [ "$#" -eq 2 ] || usage
    tests=$(realpath "$2")/src/test/regress
    [ -f "$tests/parallel_schedule" ] || missing "$tests has no parallel_schedule"
    version=$(sed -n 's/^PACKAGE_VERSION=.\([0-9]*\).*/\1/p' "$2/configure")
    bin=/usr/lib/postgresql/$version/bin
    pgxs=/usr/lib/postgresql/$version/lib/pgxs/src/test/regress/pg_regress
    [ -x "$pgxs" ] || missing "$pgxs does not exist: install postgresql-server-dev-$version"
    make_directory
    cp -r "$tests" "$dir/regress"
    gcc -shared -fPIC -O2 -I"$("$bin/pg_config" --includedir-server)" \
        -o "$dir/regress/regress.so" "$dir/regress/regress.c"
    for library in autoinc refint; do
        cp "/usr/lib/postgresql/$version/lib/$library.so" "$dir/regress/"
    done
    chown -R nobody "$dir/regress"
    cd "$dir"
    "$live" suite --server "$bin/postgres" --family -- \
        setpriv --reuid=nobody --regid=nogroup --clear-groups \
        "$pgxs" --temp-instance="$dir/data" --bindir="$bin" --inputdir="$dir/regress" \
        --outputdir="$dir/regress" --dlpath="$dir/regress" \
        --schedule="$dir/regress/parallel_schedule" --max-concurrent-tests=20 --no-locale --encoding=UTF8 || status=$?
    # How the last pass differs from the expected output.
    [ ! -f "$dir/regress/regression.diffs" ] || mv "$dir/regress/regression.diffs" "$bench/live-suite.diffs"
    exit "$status"
    ;;
*) usage ;;
esac
