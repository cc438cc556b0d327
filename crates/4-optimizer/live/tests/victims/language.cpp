// C++ features that use code addresses: exceptions through many frames, jump tables, virtual calls,
// tail calls, recursion, threads, thread-local storage, guards of static initialisation, varargs,
// computed goto, setjmp. Every result is checked.
#include <atomic>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define FAR __attribute__((noinline))

#define TEXT "a text that is longer than what fits into the object itself "

static void fail(const char *what) {
    fprintf(stderr, "victim: wrong: %s\n", what);
    fflush(stderr);
    abort();
}

struct Counted {
    static thread_local int alive;
    Counted() { alive++; }
    ~Counted() { alive--; }
};
thread_local int Counted::alive = 0;

struct Odd : std::runtime_error {
    int depth;
    explicit Odd(int d) : std::runtime_error("odd"), depth(d) {}
};

FAR int throws_at(int depth, int at) {
    Counted here;
    if (depth == at) throw Odd(depth);
    if (depth > 40) return depth;
    return throws_at(depth + 1, at) + (depth & 1);
}

FAR int passes(int at) {
    Counted here;
    std::string text = TEXT + std::to_string(at);
    int got = throws_at(0, at);
    return got + (int)text.size();
}

FAR int catches(int at) {
    try {
        return passes(at);
    } catch (const Odd &odd) {
        if (odd.depth != at) fail("what was thrown");
        if (at % 3 == 0) throw;
        return -odd.depth;
    }
}

FAR int chooses(int which, int x) {
    switch (which) {
    case 0: return x + 1;
    case 1: return x * 3;
    case 2: return x - 7;
    case 3: return x ^ 0x55;
    case 4: return x << 2;
    case 5: return x % 11;
    case 6: return x | 64;
    case 7: return ~x;
    case 8: return x / 3;
    default: return 0;
    }
}

FAR uint64_t recurses(uint64_t n) { return n < 2 ? n : recurses(n - 1) + recurses(n - 2); }

FAR int interprets(const unsigned char *code) {
    static const void *const labels[] = {&&stop, &&add, &&twice, &&less};
    int x = 1;
    goto *labels[*code];
add:
    x += 5;
    goto *labels[*++code];
twice:
    x *= 2;
    goto *labels[*++code];
less:
    x -= 3;
    goto *labels[*++code];
stop:
    return x;
}

FAR int sums(int count, ...) {
    va_list list;
    va_start(list, count);
    double sum = 0;
    for (int i = 0; i < count; i++) sum += i % 2 ? va_arg(list, double) : va_arg(list, int);
    va_end(list);
    return (int)sum;
}

struct Shape {
    virtual ~Shape() = default;
    virtual int area() const = 0;
};
struct Square : Shape {
    int side;
    explicit Square(int s) : side(s) {}
    FAR int area() const override { return side * side; }
};
struct Strip : Shape {
    int length;
    explicit Strip(int l) : length(l) {}
    FAR int area() const override { return length; }
};

FAR int tail_b(int n, int x);
FAR int tail_a(int n, int x) { return n == 0 ? x : tail_b(n - 1, x + 2); }
FAR int tail_b(int n, int x) { return n == 0 ? x : tail_a(n - 1, x - 1); }

FAR const std::string &guarded() {
    static const std::string text = "made once";
    return text;
}

FAR int jumps(int n) {
    jmp_buf back;
    volatile int turns = 0;
    int got = setjmp(back);
    if (got < n) {
        turns = turns + 1;
        longjmp(back, got + 1);
    }
    return turns;
}

static int (*volatile pointer)(int, int) = chooses;

FAR void round(int seed) {
    for (int i = 0; i < 20; i++) {
        int at = (seed + i * 7) % 60;
        int got = 12345;
        try {
            got = catches(at);
        } catch (const std::runtime_error &) {
            if (at % 3 != 0 || at > 41) fail("an exception that was to be caught before");
            got = -at;
        }
        if (at <= 41 && got != -at) fail("exception");
        // 41 from the end, 20 odd depths, and the length of the text with two digits.
        if (at > 41 && got != 41 + 20 + (int)sizeof TEXT - 1 + 2) fail("no exception");
        if (Counted::alive != 0) fail("destructors");
    }
    static const int expected[] = {101, 300, 93, 49, 400, 1, 100, -101, 33, 0};
    for (int i = 0; i < 10; i++)
        if (chooses(i, 100) != expected[i]) fail("switch");
    if (pointer != chooses || pointer(1, 100) != 300) fail("pointer");
    if (recurses(15) != 610) fail("recursion");
    static const unsigned char code[] = {1, 2, 3, 2, 1, 0};
    if (interprets(code) != 23) fail("computed goto");
    if (sums(4, 1, 2.0, 3, 4.0) != 10) fail("varargs");
    Square square(seed % 100);
    Strip strip(seed % 77);
    const Shape *shapes[] = {&square, &strip};
    if (shapes[0]->area() != (seed % 100) * (seed % 100)) fail("virtual");
    if (shapes[1]->area() != seed % 77) fail("virtual");
    if (tail_a(10, 0) != 5) fail("tail calls");
    if (guarded() != "made once") fail("guard");
    if (jumps(5) != 5) fail("setjmp");
}

static std::atomic<bool> done{false};

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back([i] {
            for (int seed = i; !done; seed = (seed + 13) & 0xffff) round(seed);
        });
    threads.emplace_back([] {
        while (!done) usleep(1000);
    });
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {
        round(1);
        printf("alive 1\n");
        fflush(stdout);
    }
    done = true;
    for (auto &thread : threads) thread.join();
}
