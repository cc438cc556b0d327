/* The minimum work of a SQLite client for a point query, as a lower bound: draw a key, bind it, step
 * until done, read the text, reset. No clock, no response times; results are only counted. */

#include <stdint.h>

typedef struct sqlite3_stmt sqlite3_stmt;

/* Functions of the library that dbdyno has loaded. */
struct functions {
    int (*bind_int64)(sqlite3_stmt *, int, int64_t);
    int (*step)(sqlite3_stmt *);
    const unsigned char *(*column_text)(sqlite3_stmt *, int);
    int (*column_bytes)(sqlite3_stmt *, int);
    int (*reset)(sqlite3_stmt *);
};

/* Results of the executions of one call. */
struct answers {
    uint64_t rows;
    uint64_t bytes;
    uint64_t digest;
};

enum { SQLITE_OK = 0, SQLITE_ROW = 100, SQLITE_DONE = 101 };

static inline uint64_t rotl(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

/* xoshiro256++ (Blackman, Vigna 2019), as for dbdyno's keys. */
static inline uint64_t next(uint64_t s[4]) {
    uint64_t result = rotl(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

/* Executes the statement `executions` times with keys from 1 to `keys`. Returns 0, or the code of
 * the call that failed. */
int bare_loop(const struct functions *sqlite, sqlite3_stmt *statement, uint64_t state[4],
              uint64_t keys, uint64_t executions, struct answers *answers) {
    uint64_t s[4] = {state[0], state[1], state[2], state[3]};
    uint64_t rows = 0, bytes = 0, digest = 0;
    for (uint64_t i = 0; i < executions; i++) {
        int64_t key = (int64_t)(((unsigned __int128)next(s) * keys) >> 64) + 1;
        int code = sqlite->bind_int64(statement, 1, key);
        if (code != SQLITE_OK)
            return code;
        while ((code = sqlite->step(statement)) == SQLITE_ROW) {
            const unsigned char *text = sqlite->column_text(statement, 0);
            bytes += (uint64_t)sqlite->column_bytes(statement, 0);
            digest += text[0];
            rows++;
        }
        if (code != SQLITE_DONE)
            return code;
        code = sqlite->reset(statement);
        if (code != SQLITE_OK)
            return code;
    }
    for (int i = 0; i < 4; i++)
        state[i] = s[i];
    answers->rows = rows;
    answers->bytes = bytes;
    answers->digest = digest;
    return 0;
}
