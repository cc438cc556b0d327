/* Functions that tests copy; the same in every test program. */
#include <stdint.h>

#ifdef __clang__
#define LEAF __attribute__((noinline, aligned(16)))
#else
#define LEAF __attribute__((noipa, aligned(16)))
#endif

/* Without calls, constants in memory or jump tables, so they can be copied bytewise. */
LEAF uint64_t leaf_mix(uint64_t x) {
    for (int i = 0; i < 7; i++) {
        x ^= x >> 33;
        x *= 0xff51afd7ed558ccdULL;
        x ^= x << 13;
    }
    return x;
}
LEAF uint64_t leaf_gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}
LEAF uint64_t leaf_bits(uint64_t x) {
    uint64_t n = 0;
    while (x) {
        n += x & 1;
        x >>= 1;
    }
    return n;
}
