/* A thread that is in a call until it is told to leave it. A jump at the start of the caller replaces a part of
 * the call. Answers a byte on standard input: after a `c` the thread is in the call, after a `g` it has
 * ended. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "leaves.h"

void leaf_calls(void (*callee)(void));
__asm__(".text\n"
        ".balign 16\n"
        ".type leaf_calls, @function\n"
        "leaf_calls:\n"
        "push %rbx\n"
        "mov %rdi, %rbx\n"
        "call *%rdi\n"
        "pop %rbx\n"
        "ret\n"
        ".size leaf_calls, .-leaf_calls\n");

static volatile int inside, leave;

static void waits(void) {
    inside = 1;
    while (!leave) usleep(1000);
}

static void *calls(void *unused) {
    leaf_calls(waits);
    return unused;
}

static void say(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
}

int main(void) {
    pthread_t thread;
    say("ready");
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte == 'c') {
            pthread_create(&thread, NULL, calls, NULL);
            while (!inside) usleep(1000);
        } else if (byte == 'g') {
            leave = 1;
            pthread_join(thread, NULL);
        }
        say(leaf_mix(1) && leaf_gcd(84, 36) == 12 && leaf_bits(255) == 8 ? "alive" : "wrong");
    }
    return 0;
}
