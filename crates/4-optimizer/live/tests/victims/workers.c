/* A thread that waits for input, and a worker of io_uring that waits for requests. Prints `ready`, or
 * `unsupported`. Answers a byte on standard input. */
#define _GNU_SOURCE
#include "leaves.h"
#include "workers.h"

static int say(const char *what) {
    printf("%s\n", what);
    return fflush(stdout);
}

int main(void) {
    int ends[2];
    static char read_byte;
    if (pipe(ends) || !read_in_worker(ends[0], &read_byte) || !worker()) return say("unsupported");
    say("ready");
    char byte;
    while (read(0, &byte, 1) == 1) say(leaf_gcd(84, 36) == 12 && leaf_bits(255) == 8 && leaf_mix(1) ? "alive" : "wrong");
    return 0;
}
