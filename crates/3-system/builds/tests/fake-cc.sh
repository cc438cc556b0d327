#!/bin/sh
# A fake compiler for tests of the build cache. It reports gcc 1.2.3. Compiling creates an empty
# object; linking copies the shell that runs this script, which is a valid ELF file.
#
#   --fake-count=FILE   append a line to FILE for each compilation
#   --fake-hang=FILE    in the first run: sleep 60 seconds in a child, whose process id is in FILE.child, and write
#                       the own one to FILE
#   --fake-error        print 50 lines and fail
#   --fake-full         fail with the error of a full disk
#   --fake-killed       exit by SIGKILL while compiling

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
    # The child keeps the standard input, which is a lock.
    exec 3<&0
    sleep 60 <&3 &
    echo $! > "$hang.child"
    echo $$ > "$hang.new" && mv "$hang.new" "$hang"
    wait
fi
if [ -n "$error" ]; then
    i=0
    while [ $((i += 1)) -le 50 ]; do echo "message $i" >&2; done
    exit 3
fi
[ -n "$full" ] && { echo "error writing to $output: No space left on device" >&2; exit 1; }
[ -n "$killed" ] && kill -KILL $$
: > "$output"
