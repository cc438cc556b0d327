// The cost of frames that are registered with the unwinder at run time, as the live optimizer does: exceptions
// per second of several threads, with and without, in turns.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" void __register_frame_info(const void *list, void *object);

static std::atomic<bool> over;

__attribute__((noinline)) static int throws(int depth) {
    if (depth == 0) throw 1;
    return throws(depth - 1) + 1;
}

// Exceptions through five frames, per second of all threads.
static double rate(int threads) {
    std::atomic<uint64_t> sum{0};
    std::vector<std::thread> all;
    over = false;
    for (int i = 0; i < threads; i++)
        all.emplace_back([&] {
            uint64_t count = 0;
            while (!over) {
                try {
                    throws(5);
                } catch (int one) {
                    count += one;
                }
            }
            sum += count;
        });
    const auto start = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    over = true;
    for (auto &thread : all) thread.join();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    return sum / time.count();
}

// A list of frames with a description of `count` functions of 16 bytes at `code`, and its end.
static std::vector<uint32_t> *frames(const char *code, int count) {
    auto *list = new std::vector<uint32_t>;
    list->reserve(16 + 6 * count);
    // Length, CIE, version 1, "zR", alignment 1 and -8, return address 16, relative 32-bit addresses.
    const unsigned char common[24] = {20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b};
    list->resize(6);
    memcpy(list->data(), common, sizeof common);
    for (int i = 0; i < count; i++) {
        const uint32_t offset = list->size() * 4;
        list->push_back(16);
        list->push_back(offset + 4);
        const char *field = (const char *)(list->data() + list->size());
        list->push_back((uint32_t)(code + 16 * i - field));
        list->push_back(16);
        list->push_back(0);
    }
    list->push_back(0);
    return list;
}

// The rate in a new process: registered frames change the unwinder of a process for good.
static double in_child(int threads, bool registered) {
    int ends[2];
    if (pipe(ends)) exit(1);
    if (fork() == 0) {
        static char code[16 * 1000], objects[2][64];
        // Two lists, as of hot and cold code. The unwinder uses them until the end.
        for (char *object : {objects[0], objects[1]})
            if (registered) __register_frame_info(frames(code, 1000)->data(), object);
        const double found = rate(threads);
        _exit(write(ends[1], &found, sizeof found) != sizeof found);
    }
    double found = 0;
    int status;
    if (wait(&status) < 0 || status || read(ends[0], &found, sizeof found) != sizeof found) exit(1);
    close(ends[0]);
    close(ends[1]);
    return found;
}

int main() {
    const int rounds = 15;
    printf("threads  exceptions per second  with registered frames: median ratio (lowest to highest)\n");
    for (int threads : {1, 2, 4}) {
        std::vector<double> plain, ratios;
        for (int i = 0; i < rounds; i++) {
            const bool first = i % 2;
            const double one = in_child(threads, first), other = in_child(threads, !first);
            plain.push_back(first ? other : one);
            ratios.push_back(first ? one / other : other / one);
        }
        std::sort(plain.begin(), plain.end());
        std::sort(ratios.begin(), ratios.end());
        printf("%7d  %21.0f  %.2f (%.2f to %.2f)\n", threads, plain[rounds / 2], ratios[rounds / 2],
               ratios[0], ratios[rounds - 1]);
        fflush(stdout);
    }
}
