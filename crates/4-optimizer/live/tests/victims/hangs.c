/* A thread that cannot be stopped: in the kernel, it waits for a child that shares its memory (vfork).
 * Prints a line when it hangs. Continues after reading a `g`; exits at end of input. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t child;

static void *hangs(void *unused) {
    if (vfork() == 0) {
        /* Ends when this program is killed. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child = getpid();
        for (;;) pause();
    }
    waitpid(child, NULL, 0);
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, hangs, NULL);
    while (!child) usleep(1000);
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte == 'g') {
            kill(child, SIGKILL);
            pthread_join(thread, NULL);
        }
        printf("alive\n");
        fflush(stdout);
    }
    return 0;
}
