// Functions that are called through pointers, one of them three times as often by one caller as by another.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OWN __attribute__((noinline, noipa))

typedef unsigned (*function)(unsigned);

static OWN unsigned short_leaf(unsigned x) { return x * 5 + 1; }

static OWN unsigned mixed(unsigned x) {
    unsigned r = short_leaf(x);
    for (unsigned i = 0; i < 40; i++) r = r & 1 ? r * 3 + i : r / 2 + 7;
    return r ^ short_leaf(r);
}

static function volatile table[1] = {mixed};

static OWN unsigned often(unsigned x) {
    unsigned r = table[0](x);
    for (int i = 0; i < 10; i++) r = r * 7 + (r >> i);
    return table[0](r + x) ^ table[0](r) ^ x;
}

static OWN unsigned rarely(unsigned x) {
    unsigned r = table[0](x + 3);
    for (int i = 0; i < 10; i++) r = r * 11 + (r >> i);
    return r ^ x;
}

static OWN unsigned work(void) {
    unsigned x = 1;
    for (int turn = 0; turn < 100; turn++) x = rarely(often(x));
    return x;
}

static void *forever(void *expected) {
    for (;;)
        if (work() != *(unsigned *)expected) abort();
}

int main(void) {
    static unsigned expected;
    expected = work();
    pthread_t thread;
    pthread_create(&thread, 0, forever, &expected);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct pollfd input = {0, POLLIN, 0};
        if (poll(&input, 1, -1) <= 0) continue;
        char byte;
        if (read(0, &byte, 1) != 1) _exit(0);
        printf("alive 1\n");
        fflush(stdout);
    }
}
