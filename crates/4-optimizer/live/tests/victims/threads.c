/* Many threads, frequent signals, waits that must not be interrupted, child processes. Checks every
 * result; exits with a message if one is wrong. Prints a line when it has started. Answers a byte
 * on standard input when every thread has made progress since. Exits with 0 at end of input. */
#define _GNU_SOURCE
#include <errno.h>
#include <immintrin.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "leaves.h"

LEAF uint64_t leaf_sum(const uint64_t *v, uint64_t n) {
    uint64_t s = 0;
    for (uint64_t i = 0; i < n; i++) s += v[i] * (i | 1);
    return s;
}

/* A static probe (USDT), as of SystemTap's sys/sdt.h, which changes nothing. */
#define PROBE(name, value)                                                                         \
    __asm__ volatile("0: nop\n"                                                                    \
                     ".pushsection .note.stapsdt, \"\", \"note\"\n"                                 \
                     ".balign 4\n"                                                                 \
                     ".4byte 8, 2f - 1f, 3\n"                                                      \
                     ".asciz \"stapsdt\"\n"                                                        \
                     "1: .8byte 0b, 0, 0\n"                                                        \
                     ".asciz \"victim\", \"" name "\", \"\"\n"                                     \
                     "2: .balign 4\n"                                                              \
                     ".popsection"                                                                 \
                     : "+r"(value))

LEAF uint64_t leaf_probed_early(uint64_t x) {
    x *= 5;
    PROBE("early", x);
    return x * 7 + 1;
}
LEAF uint64_t leaf_probed_late(uint64_t x) {
    for (int i = 0; i < 3; i++) x = x * 5 + (x >> 3);
    PROBE("late", x);
    return x | 1;
}

static void fail(const char *what) {
    fprintf(stderr, "victim: wrong: %s (errno %d)\n", what, errno);
    fflush(stderr);
    abort();
}

typedef uint64_t (*one)(uint64_t);
static volatile one pointer = leaf_mix;
static volatile uint64_t expected_mix, expected_sum;
static uint64_t values[64];
static volatile int done, disturbed;
static volatile sig_atomic_t signals;

static void check_all(void) {
    if (leaf_mix(42) != expected_mix) fail("mix");
    if (pointer != leaf_mix) fail("identity of a function");
    if (pointer(42) != expected_mix) fail("mix through a pointer");
    if (leaf_gcd(2 * 3 * 5 * 7 * 11 * 13, 7 * 11 * 17 * 19) != 77) fail("gcd");
    if (leaf_bits(0xf0f0f0f0f0f0f0f0ULL) != 32) fail("bits");
    if (leaf_sum(values, 64) != expected_sum) fail("sum");
    if (leaf_probed_early(2) != 71) fail("early probe");
    if (leaf_probed_late(8) != 1077) fail("late probe");
}

/* Number of rounds of each thread. */
typedef volatile uint64_t turns;

static void *computes(void *own) {
    while (!done) {
        check_all();
        ++*(turns *)own;
    }
    return NULL;
}

/* A thread stays in this function until the end. */
LEAF uint64_t leaf_spin(volatile int *stop, turns *own) {
    while (!*stop) ++*own;
    return *own;
}
static void *spins(void *own) {
    if (leaf_spin(&done, own) == 0) fail("spin");
    return NULL;
}

static void *vectors(void *own) {
    while (!done) {
        uint64_t out[4];
        uint64_t in[4] = {1, 2, 3, 4};
        /* A value stays in a vector register during a long loop without memory accesses. */
        __asm__ volatile("vmovdqu %1, %%ymm5\n"
                         "mov $200000, %%rcx\n"
                         "1: dec %%rcx\n"
                         "jnz 1b\n"
                         "vmovdqu %%ymm5, %0\n"
                         "vzeroupper"
                         : "=m"(out)
                         : "m"(in)
                         : "rcx", "xmm5", "cc", "memory");
        if (memcmp(in, out, sizeof in)) fail("vector register");
        check_all();
        ++*(turns *)own;
    }
    return NULL;
}

static void on_alarm(int number) {
    (void)number;
    signals++;
    if (leaf_gcd(84, 36) != 12) fail("gcd in a handler");
}

static void *epolls(void *own) {
    int set = epoll_create1(0);
    while (!done) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, 5) != 0 && !(disturbed && errno == EINTR)) fail("epoll_wait");
        check_all();
        ++*(turns *)own;
    }
    return NULL;
}

static void *sleeps(void *own) {
    while (!done) {
        struct timespec left = {0, 3000000}, from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        if (nanosleep(&left, NULL) != 0) fail("nanosleep");
        clock_gettime(CLOCK_MONOTONIC, &to);
        int64_t nanos = (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec;
        if (nanos < 3000000) fail("slept too short");
        check_all();
        ++*(turns *)own;
    }
    return NULL;
}

static int pipes[2];
static void *reads(void *own) {
    uint32_t next = 0, got;
    for (;;) {
        ssize_t n = read(pipes[0], &got, sizeof got);
        if (n == 0) return NULL;
        if (n != sizeof got || got != next++) fail("read");
        check_all();
        ++*(turns *)own;
    }
}
static void *writes(void *own) {
    for (uint32_t next = 0; !done; next++) {
        if (write(pipes[1], &next, sizeof next) != sizeof next) fail("write");
        if (next % 64 == 0) {
            if (poll(NULL, 0, 1) != 0) fail("poll");
        }
        ++*(turns *)own;
    }
    close(pipes[1]);
    return NULL;
}

/* Reads from a socket with a timeout, which the kernel does not restart after a stop. */
static void *times_out(void *own) {
    int sockets[2];
    struct timeval timeout = {0, 5000};
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) fail("socketpair");
    if (setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout)) fail("timeout");
    while (!done) {
        if (read(sockets[0], &byte, 1) != -1) fail("read from a silent socket");
        if (errno != EAGAIN && !(disturbed && errno == EINTR)) fail("read with a timeout");
        check_all();
        ++*(turns *)own;
    }
    return NULL;
}

static void *forks(void *own) {
    while (!done) {
        pid_t pid = fork();
        if (pid == 0) {
            for (int i = 0; i < 100; i++) check_all();
            _exit(7);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid) fail("waitpid");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) fail("child");
        poll(NULL, 0, 2);
        ++*(turns *)own;
    }
    return NULL;
}

static void *short_lived(void *argument) {
    check_all();
    return argument;
}
static void *starts(void *own) {
    while (!done) {
        pthread_t thread;
        void *result;
        if (pthread_create(&thread, NULL, short_lived, &thread)) fail("pthread_create");
        if (pthread_join(thread, &result) || result != &thread) fail("pthread_join");
        ++*(turns *)own;
    }
    return NULL;
}

/* The only thread that does not block SIGALRM: it is interrupted all the time, also in handlers. */
static void alarms(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    struct itimerval every = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &every, NULL);
}
static void *is_alarmed(void *own) {
    alarms();
    jmp_buf back;
    while (!done) {
        volatile int jumped = 0;
        if (setjmp(back) == 0) {
            check_all();
            jumped = 1;
            longjmp(back, 1);
        }
        if (!jumped) fail("longjmp");
        ++*(turns *)own;
    }
    return NULL;
}

enum { COUNT = 11 };
static turns so_far[COUNT];

/* Waits until every thread has made progress. */
static void wait_for_progress(void) {
    uint64_t before[COUNT];
    for (int i = 0; i < COUNT; i++) before[i] = so_far[i];
    for (int i = 0; i < COUNT; i++) {
        for (int moments = 0; so_far[i] == before[i]; moments++) {
            if (moments > 30000) fail("a thread makes no progress");
            usleep(1000);
        }
    }
}

/* Forks a process that continues with one thread until its parent ends. */
static pid_t split_off(void) {
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        for (int i = 0; i < 100; i++) check_all();
        poll(NULL, 0, 1);
    }
}

int main(void) {
    expected_mix = leaf_mix(42);
    for (uint64_t i = 0; i < 64; i++) values[i] = leaf_mix(i), expected_sum += values[i] * (i | 1);
    if (pipe(pipes)) fail("pipe");
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    void *(*all[COUNT])(void *) = {computes, vectors, epolls, sleeps,     reads, writes,
                                   times_out, forks,  starts, is_alarmed, spins};
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++) pthread_create(&threads[i], NULL, all[i], (void *)&so_far[i]);
    printf("ready\n");
    fflush(stdout);
    char byte;
    pid_t child = 0;
    while (read(0, &byte, 1) == 1) {
        /* A command: respond, accept interrupted waits, or fork a child. */
        if (byte == 'd') disturbed = 1;
        if (byte == 'f') {
            child = split_off();
            printf("child %d\n", (int)child);
            fflush(stdout);
            continue;
        }
        if (child && waitpid(child, NULL, WNOHANG)) fail("the child that was split off ended");
        check_all();
        wait_for_progress();
        printf("alive %d\n", (int)(signals > 0));
        fflush(stdout);
    }
    done = 1;
    if (child) kill(child, SIGKILL);
    for (int i = 0; i < COUNT; i++) pthread_join(threads[i], NULL);
    return 0;
}
