/* A program under a system call filter that permits only what it lists, as those of containers do; anything
 * else fails. With EXECUTABLE, mmap of executable memory is permitted, too; otherwise it ends the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "leaves.h"

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define PERMIT(call)                                   \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter steps[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
    PERMIT(SYS_read),
    PERMIT(SYS_write),
    PERMIT(SYS_munmap),
    PERMIT(SYS_madvise),
    PERMIT(SYS_brk),
    PERMIT(SYS_futex),
    PERMIT(SYS_rt_sigprocmask),
    PERMIT(SYS_rt_sigreturn),
    PERMIT(SYS_restart_syscall),
    PERMIT(SYS_exit_group),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 4),
    LOAD(args[2]),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
#ifdef EXECUTABLE
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
#else
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
#endif
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
};

int main(void) {
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 1;
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {
        printf(leaf_mix(1) && leaf_gcd(84, 36) == 12 && leaf_bits(255) == 8 ? "alive\n" : "wrong\n");
        fflush(stdout);
    }
    return 0;
}
