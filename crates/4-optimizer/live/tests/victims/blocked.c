/* A thread in uninterruptible sleep in a system call: `read` of a pipe whose lock another process holds,
 * which writes to the pipe from memory that a userfaultfd never provides. Prints `ready`, or
 * `unsupported`. Answers a byte on standard input; after a `g` the thread continues.
 * With WORKER, a worker of io_uring is in that sleep, and there is no `g`.
 * With ONE_THREAD, the only thread hangs, after an `h`. It continues and answers when the other process is
 * killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "leaves.h"
#ifdef WORKER
#include "workers.h"
#endif

static int ends[2];
static volatile int thread_id;
static volatile uint64_t got;

__attribute__((unused)) static void *reads(void *unused) {
    thread_id = gettid();
    char byte;
    got = leaf_mix(read(ends[0], &byte, 1));
    return unused;
}

/* The state of a thread as one letter. */
static char state(int tid) {
    char name[64], text[512] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
    int file = open(name, O_RDONLY);
    if (file < 0) return 0;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    char *end = count > 0 ? strrchr(text, ')') : NULL;
    return end ? end[2] : 0;
}

static int say(const char *what) {
    printf("%s\n", what);
    return fflush(stdout);
}

int main(void) {
    if (pipe(ends)) return 1;
    pid_t holder = fork();
    if (holder == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* The parent cannot end while a worker of io_uring hangs. */
        alarm(120);
        int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
        struct uffdio_api api = {.api = UFFD_API};
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        struct uffdio_register range = {.range = {(uintptr_t)page, 4096},
                                        .mode = UFFDIO_REGISTER_MODE_MISSING};
        if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range)) _exit(1);
        write(ends[1], page, 1);
        _exit(2);
    }
    /* Until the holder waits for its page, or has failed. */
    usleep(200000);
    if (waitpid(holder, NULL, WNOHANG) != 0) return say("unsupported");
    char byte;
#ifdef ONE_THREAD
    say("ready");
    while (read(0, &byte, 1) == 1) {
        if (byte == 'h') {
            close(ends[1]);
            reads(NULL);
            waitpid(holder, NULL, 0);
            if (got != leaf_mix(0)) return say("wrong");
        }
        say(leaf_gcd(84, 36) == 12 && leaf_bits(255) == 8 ? "alive" : "wrong");
    }
    return 0;
#endif
#ifdef WORKER
    char unused;
    if (!read_in_worker(ends[0], &unused)) return say("unsupported");
    thread_id = worker();
#else
    pthread_t thread;
    pthread_create(&thread, NULL, reads, NULL);
#endif
    for (int i = 0; i < 2000 && !(thread_id && state(thread_id) == 'D'); i++) usleep(1000);
    if (state(thread_id) != 'D') return say("unsupported");
    say("ready");
    while (read(0, &byte, 1) == 1) {
#ifndef WORKER
        if (byte == 'g') {
            kill(holder, SIGKILL);
            waitpid(holder, NULL, 0);
            write(ends[1], "x", 1);
            pthread_join(thread, NULL);
            if (got != leaf_mix(1)) return say("wrong");
        }
#endif
        say(leaf_gcd(84, 36) == 12 && leaf_bits(255) == 8 ? "alive" : "wrong");
    }
    kill(holder, SIGKILL);
    return 0;
}
