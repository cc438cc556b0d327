// Exceptions thrown through, caught in and cleaned up by functions.
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

using u64 = std::uint64_t;
using u8 = unsigned char;

namespace {
struct Guard {
    u64 &sum;
    u64 weight;
    ~Guard() { sum = sum * 3 + weight; }
};
struct Small { u64 value; };
struct Large : std::runtime_error { using std::runtime_error::runtime_error; };
}

extern "C" {
__attribute__((noinline)) u64 case_thrower(u64 a, u64 b, u8 *buffer) noexcept(false) {
    if (a % 7 == 6) return b + buffer[1];
    try {
        switch (a % 5) {
        case 0: throw Small{b};
        case 1: throw Large("large " + std::to_string(b & 1023));
        case 2: throw static_cast<int>(b & 0xffff);
        case 3: return a + b;
        default: throw std::string(a & 31, 'x');
        }
    } catch (const char *) {
        return 1;
    } catch (int value) {
        if (value & 1) throw;
        return static_cast<u64>(value) * 2;
    }
}

// Exceptions only pass through: it has no exception table.
__attribute__((noinline)) u64 through(u64 a, u64 b, u8 *buffer) {
    return case_thrower(a, b, buffer) * 3 + buffer[2];
}

__attribute__((noinline)) u64 middle(u64 a, u64 b, u8 *buffer, u64 &sum) {
    Guard outer{sum, a};
    std::vector<u64> held(a & 15, b);
    Guard inner{sum, held.size()};
    u64 r = case_thrower(a, b, buffer);
    if (a & 64) r += through(a >> 1, b, buffer);
    return r + held.size();
}

__attribute__((noinline)) u64 case_catch(u64 a, u64 b, u8 *buffer) {
    u64 sum = 0;
    try {
        sum += middle(a, b, buffer, sum);
    } catch (const Small &small) {
        sum += small.value;
    } catch (const std::exception &problem) {
        sum += std::string(problem.what()).size() * 1000;
    } catch (int value) {
        sum ^= static_cast<u64>(value);
    } catch (...) {
        sum += 77;
    }
    return sum;
}

u64 case_rethrow(u64 a, u64 b, u8 *buffer) {
    u64 r = 0;
    for (u64 i = 0; i < 4; i++) {
        try {
            try {
                r += case_thrower(a + i, b, buffer);
            } catch (const Small &) {
                r += 5;
                throw;
            }
        } catch (...) {
            r = r * 7 + case_catch(b, a + i, buffer);
        }
    }
    return r;
}

u64 case_deep(u64 a, u64 b, u8 *buffer) {
    u64 sum = 0;
    Guard guard{sum, 1};
    if ((a & 63) == 0) throw Small{b};
    try {
        return case_deep((a & 63) - 1, b + buffer[a & 63], buffer) + 1;
    } catch (Small &small) {
        small.value += 3;
        if (a & 1) throw;
        return small.value;
    }
}

u64 case_deep_caught(u64 a, u64 b, u8 *buffer) {
    try {
        return case_deep(a, b, buffer);
    } catch (const Small &small) {
        return ~small.value;
    }
}
}
