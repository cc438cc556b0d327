// A program without a library that is executed step by step: functions with frames of all kinds.
typedef unsigned long u64;
// clang does not know `noipa`.
#define OWN __attribute__((noinline, noipa))

static volatile u64 sink;

static OWN u64 leaf(u64 x) { return x * 3 + 1; }

static OWN u64 by_pointer(u64 x) {
    u64 r = x;
    for (int i = 0; i < 3; i++) r = r * 5 + i;
    return r;
}

typedef u64 (*function)(u64);
static function volatile table[2] = {leaf, by_pointer};

// Jumps to the function: the callee returns to the caller of this one.
static OWN u64 tail(u64 x) { return table[x & 1](x + 1); }

static OWN u64 saves_registers(u64 a, u64 b, u64 c, u64 d) {
    u64 x = leaf(a), y = leaf(b), z = leaf(c), w = leaf(d);
    return table[0](x) + y * table[1](z) + w + x * z;
}

// Saves registers only on one path.
static OWN u64 returns_early(u64 x) {
    if (x % 3 == 0) return x;
    u64 y = leaf(x);
    return table[1](y) + y;
}

static OWN u64 variable_frame(u64 n) {
    u64 area[n % 7 + 1];
    for (u64 i = 0; i <= n % 7; i++) area[i] = leaf(i);
    sink = area[n % 7];
    return table[n & 1](area[0]) + n;
}

static OWN u64 large_frame(u64 n) {
    u64 area[40];
    for (int i = 0; i < 40; i++) area[i] = n + i;
    sink = area[n % 40];
    return leaf(area[3]) + area[n % 40];
}

static OWN u64 arguments_on_stack(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h) {
    return leaf(a + b + c) ^ (d + e) ^ (f + g * h);
}

static OWN u64 recursive(u64 n) { return n == 0 ? 1 : n * recursive(n - 1) + leaf(n); }

__attribute__((used)) u64 run(void) {
    u64 r = 0;
    for (u64 i = 0; i < 4; i++) {
        r += tail(i) + saves_registers(i, 2, 3, r) + returns_early(i) + variable_frame(i);
        r += large_frame(i) + arguments_on_stack(1, 2, 3, 4, i, 6, 7, r) + recursive(i);
    }
    sink = r;
    return 0;
}

__asm__(".globl _start\n_start:\n\tcall run\n\tmov %eax, %edi\n\tmov $231, %eax\n\tsyscall\n");
