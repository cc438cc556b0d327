#!/bin/sh
# A compiler for the tests of the cache: as quick as a copy, and it fails as it is told.
# It introduces itself as gcc 1.2.3, "compiles" to an empty object and "links" by copying the
# shell that runs it, which is a valid ELF file.
#
#   --fake-count=FILE   append a line to FILE for each compilation
#   --fake-hang=FILE    the first time: write the process id to FILE, then do nothing for long
#   --fake-error        print fifty lines and fail
#   --fake-full         fail like on a full disk
#   --fake-killed       be killed while compiling

output= compile= error= full= killed= hang= count=
previous=
for arg in "$@"; do
    case $arg in
        --version) echo "${0##*/} (Fake 1.2.3-4) 1.2.3"; exit ;;
        -dumpmachine) echo fake-unknown-linux; exit ;;
        -Wl,--version) echo "fake ld 5.6"; exit ;;
        -dM)
            printf '#define %s\n' '__GNUC__ 1' '__GNUC_MINOR__ 2' '__GNUC_PATCHLEVEL__ 3'
            exit ;;
        -c) compile=1 ;;
        --fake-count=*) count=${arg#*=} ;;
        --fake-hang=*) hang=${arg#*=} ;;
        --fake-error) error=1 ;;
        --fake-full) full=1 ;;
        --fake-killed) killed=1 ;;
    esac
    [ "$previous" = -o ] && output=$arg
    previous=$arg
done

if [ -z "$compile" ]; then
    cp "$(readlink "/proc/$$/exe")" "$output"
    exit
fi
[ -n "$count" ] && echo "$output" >> "$count"
if [ -n "$hang" ] && [ ! -e "$hang" ]; then
    echo half > "$output"
    echo $$ > "$hang.new" && mv "$hang.new" "$hang"
    exec sleep 60
fi
if [ -n "$error" ]; then
    i=0
    while [ $((i += 1)) -le 50 ]; do echo "message $i" >&2; done
    exit 3
fi
[ -n "$full" ] && { echo "error writing to $output: No space left on device" >&2; exit 1; }
[ -n "$killed" ] && kill -KILL $$
: > "$output"
