/* A program that disables huge pages, unless PERMITTED is defined. With FILTERED, a system call filter ends it
 * if it changes that afterwards. Answers a byte on standard input; whether they are still disabled is part of the
 * answer. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "leaves.h"

#ifdef PERMITTED
static const int disabled = 0;
#else
static const int disabled = 1;
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))

static struct sock_filter steps[] = {
    LOAD(nr),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
    LOAD(args[0]),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_THP_DISABLE, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

int main(void) {
    if (prctl(PR_SET_THP_DISABLE, disabled, 0, 0, 0)) return 1;
#ifdef FILTERED
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 1;
#endif
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {
        int right = leaf_mix(1) && leaf_gcd(84, 36) == 12 && leaf_bits(255) == 8;
        right &= prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == disabled;
        printf(right ? "alive\n" : "wrong\n");
        fflush(stdout);
    }
    return 0;
}
