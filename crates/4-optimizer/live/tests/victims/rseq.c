/* A thread that is in a restartable sequence until it is told to leave it. The sequence is started again
 * whenever the kernel has aborted it. Prints `ready`, or `unsupported` without rseq. Answers a byte on
 * standard input; after a `g` the thread has left the sequence. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/rseq.h>
#include <unistd.h>

#include "leaves.h"

static volatile int leave, started;
static volatile uint64_t aborted, committed;

static void *sequences(void *unused) {
    volatile struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    __asm__ volatile(".pushsection .data.rel, \"aw\"\n"
                     ".balign 32\n"
                     "9: .long 0, 0\n"
                     ".quad 1f, 2f - 1f, 4f\n"
                     ".popsection\n"
                     "3: leaq 9b(%%rip), %%rax\n"
                     "movq %%rax, %[current]\n"
                     "1: movl $1, %[started]\n"
                     "cmpl $0, %[leave]\n"
                     "je 1b\n"
                     "incq %[committed]\n"
                     "2: jmp 5f\n"
                     /* The signature of abort handlers, as part of an invalid instruction. */
                     ".byte 0x0f, 0xb9, 0x3d\n"
                     ".long 0x53053053\n"
                     "4: incq %[aborted]\n"
                     "jmp 3b\n"
                     "5: movq $0, %[current]\n"
                     : [current] "+m"(area->rseq_cs), [committed] "+m"(committed),
                       [aborted] "+m"(aborted), [started] "+m"(started)
                     : [leave] "m"(leave)
                     : "rax", "cc", "memory");
    return unused;
}

static void say(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
}

int main(void) {
    if (__rseq_size == 0) {
        say("unsupported");
        return 0;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, sequences, NULL);
    while (!started) usleep(1000);
    say("ready");
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte == 'g') {
            leave = 1;
            pthread_join(thread, NULL);
            if (committed != 1) say("wrong");
        }
        say(leaf_mix(1) && leaf_gcd(84, 36) == 12 && leaf_bits(255) == 8 ? "alive" : "wrong");
    }
    return 0;
}
