/* Calls without frame pointers: only unwind information describes the return addresses. Its only thread never
 * waits. With ALLOCATOR, it has its own malloc. */

#include <stdint.h>
#include <stdio.h>

#define OWN __attribute__((noinline, noclone))

#ifdef ALLOCATOR
void *malloc(size_t size) {
    static _Alignas(16) char memory[1 << 20];
    static size_t used;
    used = (used + 15) & ~(size_t)15;
    if (size > sizeof memory - used) return NULL;
    used += size;
    return memory + used - size;
}

void free(void *memory) { (void)memory; }
#endif

OWN uint64_t inner(uint64_t x) {
    for (int i = 0; i < 20; i++) x = x % 3 ? x * 5 + 1 : x / 3 + 7;
    return x;
}

OWN uint64_t middle(uint64_t x) {
    uint64_t values[32];
    for (int i = 0; i < 32; i++) values[i] = inner(x + (uint64_t)i);
    uint64_t sum = 0;
    for (int i = 0; i < 32; i++) sum = sum * 31 + values[i];
    return sum;
}

OWN uint64_t outer(uint64_t x) {
    uint64_t sum = x;
    for (int i = 0; i < 8; i++) sum ^= middle(sum + (uint64_t)i);
    return sum;
}

int main(void) {
    puts("ready");
    fflush(stdout);
    volatile uint64_t sum = 0;
    for (;;) sum = outer(sum);
}
