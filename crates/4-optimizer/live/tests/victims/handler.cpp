// Runs in a signal handler that interrupted a wait, like a process that was forked in a handler: the
// handler's frame stays on its stack. Throws and catches exceptions there, and checks the results.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <stdexcept>
#include <sys/select.h>
#include <unistd.h>

#define FAR __attribute__((noinline))

FAR int throws_below(int depth) {
    if (depth == 0) throw std::runtime_error("bottom");
    return throws_below(depth - 1) + 1;
}

FAR int catches(int depth) {
    try {
        return throws_below(depth);
    } catch (const std::runtime_error &) {
        return -depth;
    }
}

FAR unsigned mixes(unsigned x) {
    for (int i = 0; i < 400; i++) x = x & 1 ? x * 3 + 1 : x / 2 + 7;
    return x;
}

static void works(int) {
    printf("ready\n");
    fflush(stdout);
    const unsigned expected = mixes(27);
    for (int turn = 0;; turn = (turn + 1) % 64) {
        if (mixes(27) != expected || catches(turn % 9) != -(turn % 9)) abort();
        struct pollfd input = {0, POLLIN, 0};
        if (turn != 0 || poll(&input, 1, 1) <= 0) continue;
        char byte;
        if (read(0, &byte, 1) != 1) _exit(0);
        printf("alive 1\n");
        fflush(stdout);
    }
}

int main() {
    struct sigaction action = {};
    action.sa_handler = works;
    sigaction(SIGALRM, &action, nullptr);
    ualarm(10000, 0);
    select(0, nullptr, nullptr, nullptr, nullptr);
    return 1;
}
