/* A program that disables huge pages, unless PERMITTED is defined. Answers a byte on standard input; whether
 * they are still disabled is part of the answer. */
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "leaves.h"

#ifdef PERMITTED
static const int disabled = 0;
#else
static const int disabled = 1;
#endif

int main(void) {
    if (prctl(PR_SET_THP_DISABLE, disabled, 0, 0, 0)) return 1;
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
