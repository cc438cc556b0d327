#!/bin/sh
# Prints the size of each crate, and with `check` fails if one exceeds its ceiling.
#
#     scripts/size.sh          a table: lines of code, comments, tests, and files
#     scripts/size.sh check    fail if a crate exceeds its ceiling in scripts/size-ceilings.txt
#     scripts/size.sh accept   write the present sizes, rounded up, as ceilings
#
# Code is what is neither blank, nor a comment, nor a test. Tests are files below tests/, tests.rs,
# *_tests.rs, the made-up reports of tests in report/src/sample, and items behind #[cfg(test)].
set -eu

cd "$(dirname "$0")/.."
ceilings=scripts/size-ceilings.txt

table() {
    git ls-files 'crates/*.rs' | while read -r file; do
        [ ! -e "$file" ] || printf '%s\n' "$file"
    done | xargs awk '
        function braces(text) { return gsub(/[{]/, "&", text) - gsub(/[}]/, "&", text) }
        FNR == 1 {
            split(FILENAME, part, "/"); crate = part[3]; files[crate]++
            test_file = FILENAME ~ /\/tests\/|\/tests\.rs$|_tests?\.rs$|\/report\/src\/sample/
            in_test = pending = depth = 0
        }
        {
            line = $0; sub(/^[ \t]+/, "", line); sub(/[ \t]+$/, "", line)
            if (test_file) { tests[crate]++; next }
            if (in_test) {
                tests[crate]++; depth += braces(line)
                if (depth <= 0 && line ~ /[}]|;$/) in_test = 0
                next
            }
            if (line ~ /^#\[cfg\((any\()?test/) { pending = 1; tests[crate]++; next }
            if (pending) {
                tests[crate]++
                if (line ~ /^#\[/) next
                pending = 0; depth = braces(line)
                in_test = depth > 0 || line !~ /;$/
                next
            }
            if (line == "") next
            if (line ~ /^\/\//) { comments[crate]++; next }
            code[crate]++
        }
        END { for (crate in files) print crate, code[crate] + 0, comments[crate] + 0, tests[crate] + 0, files[crate] }
    ' | sort
}

case "${1-}" in
'')
    table | awk '
        BEGIN { printf "%-12s %8s %8s %8s %8s\n", "crate", "code", "comment", "test", "files" }
        {
            printf "%-12s %8d %8d %8d %8d\n", $1, $2, $3, $4, $5
            for (i = 2; i <= 5; i++) sum[i] += $i
        }
        END { printf "%-12s %8d %8d %8d %8d\n", "sum", sum[2], sum[3], sum[4], sum[5] }'
    ;;
check)
    table | awk -v file="$ceilings" '
        BEGIN { while ((getline line < file) > 0) if (line !~ /^#/) { split(line, part, " "); code[part[1]] = part[2]; files[part[1]] = part[3] } }
        !($1 in code) { printf "size: crate %s has no ceiling in %s\n", $1, file; failed = 1; next }
        $2 > code[$1] { printf "size: %s has %d lines of code, ceiling %d\n", $1, $2, code[$1]; failed = 1 }
        $5 > files[$1] { printf "size: %s has %d files, ceiling %d\n", $1, $5, files[$1]; failed = 1 }
        END {
            if (failed) printf "size: remove code, or raise the ceiling in %s and say why in the commit\n", file
            exit failed
        }' >&2
    ;;
accept)
    {
        echo "# Ceilings per crate: lines of code without comments and tests, and files. Raise one on purpose only."
        table | awk '{ printf "%s %d %d\n", $1, int(($2 + 49) / 50) * 50, $5 }'
    } >"$ceilings"
    ;;
*)
    echo "usage: scripts/size.sh [check | accept]" >&2
    exit 2
    ;;
esac
