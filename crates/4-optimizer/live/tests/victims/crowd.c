/* Hundreds of threads that wait, more than are interrupted together; with EPOLL in a call that would fail with EINTR
 * after a stop. Prints `ready`, or `unsupported` if they cannot be started. Answers a byte on standard input. */
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "leaves.h"

#define COUNT 600

static int set;
static volatile int has_failed;

static void *waits(void *unused) {
#ifdef EPOLL
    struct epoll_event event;
    epoll_wait(set, &event, 1, -1);
    has_failed = 1;
#endif
    for (;;) pause();
    return unused;
}

static void say(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
}

int main(void) {
    set = epoll_create1(0);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int i = 0; i < COUNT; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, waits, NULL) != 0) {
            say("unsupported");
            return 0;
        }
    }
    say("ready");
    char byte;
    while (read(0, &byte, 1) == 1)
        say(!has_failed && leaf_mix(1) && leaf_gcd(84, 36) == 12 && leaf_bits(255) == 8 ? "alive" : "wrong");
    return 0;
}
