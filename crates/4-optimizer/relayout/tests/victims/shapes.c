/* Functions of many shapes. Each `case_*` computes something from its arguments and the buffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef unsigned char u8;

static __thread u64 per_thread;
static u64 shared_counter;
static const double factors[8] = {1.5, 2.25, -3.0, 0.125, 7.5, -0.5, 11.0, 3.14159};
extern u64 case_mutual_b(u64 a, u64 b, u8 *buffer);

u64 case_straight(u64 a, u64 b, u8 *buffer) { return a * 31 + (b ^ (a >> 7)) + buffer[a & 63]; }

u64 case_branches(u64 a, u64 b, u8 *buffer) {
    u64 r = 0;
    if (a > b) r += 3; else r ^= b;
    if ((a & 15) == 3 && (b & 7) != 2) r = r * 5 + buffer[1];
    if ((int64_t)a < 0 || (int64_t)b > 1000) r -= a;
    if (a == b) return r;
    return r + (a % 17 < b % 13 ? buffer[2] : buffer[3]);
}

u64 case_loops(u64 a, u64 b, u8 *buffer) {
    u64 r = b;
    for (u64 i = 0; i < (a & 63); i++) {
        for (u64 j = i; j < (b & 15); j++) r = r * 3 + (buffer[(i + j) & 63] ^ j);
        if (r % 1000 == 7) break;
        if (r & 1) continue;
        r += i;
    }
    while (r > 1u << 20) r >>= 3;
    do { r += 7; } while (r % 5);
    return r;
}

u64 case_switch(u64 a, u64 b, u8 *buffer) {
    switch (a % 23) {
    case 0: return b + 1;
    case 1: return b * 3;
    case 2: buffer[0] ^= 1; return buffer[0];
    case 3: return b - a;
    case 4: return strlen((char *)buffer);
    case 5: return b << 3;
    case 6: return b >> 5;
    case 7: return ~b;
    case 9: return a ^ b;
    case 10: return case_branches(a, b, buffer);
    case 12: return b / (a + 1);
    case 13: return b % (a + 1);
    case 15: return 99;
    case 17: return a * b;
    case 20: return case_loops(b, a, buffer);
    default: return 12345;
    }
}

u64 case_machine(u64 a, u64 b, u8 *buffer) {
    u64 r = 1;
    for (unsigned i = 0; i < 40; i++) {
        switch (buffer[(a + i) & 63] & 15) {
        case 0: r += b; break;
        case 1: r ^= a; break;
        case 2: r *= 7; break;
        case 3: r = (r << 9) | (r >> 55); break;
        case 4: if (r & 4) i++; break;
        case 5: r -= i; break;
        case 6: r = ~r; break;
        case 7: r += factors[r & 7] > 0 ? 5 : 9; break;
        case 8: r |= 0x10; break;
        case 9: if (r > b) return r; break;
        case 10: r += per_thread++; break;
        case 11: r ^= r >> 3; break;
        default: r++; break;
        }
    }
    return r - per_thread * 0;
}

u64 case_labels(u64 a, u64 b, u8 *buffer) {
    static const void *const steps[] = {&&add, &&mix, &&twist, &&out};
    u64 r = b;
    unsigned i = 0;
next:
    goto *steps[i < 32 ? buffer[(a + i++) & 63] % 3 : 3];
add: r += 17; goto next;
mix: r ^= r << 5; goto next;
twist: r = r * 9 + i; goto next;
out: return r;
}

u64 case_recursion(u64 a, u64 b, u8 *buffer) {
    u64 n = a & 15;
    if (n < 2) return n + (b & 3);
    return case_recursion(n - 1, b, buffer) + case_recursion(n - 2, b >> 1, buffer);
}

u64 case_mutual_a(u64 a, u64 b, u8 *buffer) {
    return (a & 31) == 0 ? b : case_mutual_b((a & 31) - 1, b * 3, buffer);
}
u64 case_mutual_b(u64 a, u64 b, u8 *buffer) {
    return (a & 31) == 0 ? b + 1 : case_mutual_a((a & 31) - 1, b ^ 5, buffer);
}

u64 case_floats(u64 a, u64 b, u8 *buffer) {
    double x = (double)(a & 0xffff) * factors[b & 7];
    float y = (float)buffer[5] / 3.0f;
    for (int i = 0; i < 8; i++) x = x * 0.75 + factors[i] * y;
    if (x > 1000.0) x -= 1000.0;
    u64 bits;
    memcpy(&bits, &x, 8);
    return bits;
}

static u64 sum_of(int count, ...) {
    va_list arguments;
    u64 sum = 0;
    va_start(arguments, count);
    for (int i = 0; i < count; i++) sum = sum * 3 + va_arg(arguments, u64);
    va_end(arguments);
    return sum;
}
u64 case_varargs(u64 a, u64 b, u8 *buffer) {
    return sum_of(9, a, b, a + b, (u64)buffer[0], a ^ b, 5ull, 6ull, a >> 3, b << 1) +
           sum_of((int)(a & 3), a, b, a);
}

static jmp_buf jump_back;
static void __attribute__((noinline)) leap(u64 a) {
    if (a & 1) longjmp(jump_back, (int)(a & 7) + 1);
}
u64 case_setjmp(u64 a, u64 b, u8 *buffer) {
    volatile u64 r = b;
    int came = setjmp(jump_back);
    if (came) return r * 5 + (u64)came + buffer[7];
    r += 3;
    leap(a);
    return r;
}

static int by_value(const void *x, const void *y) { return *(const u8 *)x - *(const u8 *)y; }
u64 case_callback(u64 a, u64 b, u8 *buffer) {
    u8 copy[64];
    memcpy(copy, buffer, 64);
    qsort(copy, 64, 1, by_value);
    u64 r = 0;
    for (int i = 0; i < 64; i++) r = r * 31 + copy[i];
    return r ^ a ^ b;
}

u64 case_library(u64 a, u64 b, u8 *buffer) {
    char text[128];
    int n = snprintf(text, sizeof text, "%llu:%llx:%u", (unsigned long long)a,
                     (unsigned long long)b, buffer[9]);
    char *heap = malloc((size_t)n + 1);
    strcpy(heap, text);
    u64 r = strtoull(heap, NULL, 10) + strlen(heap);
    free(heap);
    shared_counter++;
    return r;
}

u64 case_thread_local(u64 a, u64 b, u8 *buffer) {
    u64 before = per_thread;
    per_thread += a;
    u64 r = per_thread - before + b + buffer[0];
    per_thread = before;
    return r;
}

typedef u64 (*shape)(u64, u64, u8 *);
static const shape shapes[] = {case_straight, case_branches, case_loops, case_switch};
u64 case_indirect(u64 a, u64 b, u8 *buffer) {
    shape chosen = shapes[a & 3];
    u64 same = chosen == case_straight || chosen == case_branches || chosen == case_loops ||
               chosen == case_switch;
    return chosen(b, a, buffer) * 2 + same;
}

u64 case_vectors(u64 a, u64 b, u8 *buffer) {
    u8 out[64];
    for (int i = 0; i < 64; i++) out[i] = (u8)(buffer[i] * (u8)a + (u8)b);
    u64 r = 0;
    for (int i = 0; i < 64; i += 8) {
        u64 word;
        memcpy(&word, out + i, 8);
        r ^= word * (u64)(i + 1);
    }
    return r;
}

u64 case_identity(u64 a, u64 b, u8 *buffer) {
    (void)buffer;
    return (u64)(uintptr_t)(void *)case_switch + (u64)(uintptr_t)&shared_counter + a + b;
}

/* Endless loops of nothing but jumps; the arguments of the calls avoid them. */
u64 case_endless(u64 a, u64 b, u8 *buffer) {
    if (a == 0x123456789abcdef0) for (;;);
    if (b == 0x123456789abcdef0) __asm__ volatile("1: nop\n\tjmp 1b");
    return a * 7 + b + buffer[5];
}

/* The size of pushed arguments stays as it was where the rest of the unwinding rules is restored. */
__asm__(".text\n"
        ".globl case_argument_size\n"
        ".type case_argument_size, @function\n"
        "case_argument_size:\n"
        "    .cfi_startproc\n"
        "    push %rbx\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset rbx, -16\n"
        "    mov %rdi, %rbx\n"
        "    test $1, %sil\n"
        "    je 1f\n"
        "    .cfi_remember_state\n"
        "    sub $16, %rsp\n"
        "    .cfi_def_cfa_offset 32\n"
        "    .cfi_escape 0x2e, 16\n" /* DW_CFA_GNU_args_size */
        "    lea 1(%rbx, %rsi, 2), %rax\n"
        "    add $16, %rsp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    pop %rbx\n"
        "    .cfi_def_cfa_offset 8\n"
        "    ret\n"
        "1:  .cfi_restore_state\n"
        "    lea 2(%rbx, %rsi, 4), %rax\n"
        "    pop %rbx\n"
        "    .cfi_def_cfa_offset 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size case_argument_size, . - case_argument_size\n");
