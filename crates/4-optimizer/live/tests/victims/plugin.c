/* A program and a library that it loads and unloads. Checks every result. Prints a line when it has
 * started, and exits with 0 at end of input. */
#define _GNU_SOURCE
#include "leaves.h"

#ifdef LIBRARY
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t loaded = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static uint64_t (*mix)(uint64_t), (*gcd)(uint64_t, uint64_t), (*bits)(uint64_t);
static volatile int done;

static void fail(const char *what) {
    fprintf(stderr, "victim: wrong: %s\n", what);
    abort();
}

static void check_all(void) {
    if (leaf_gcd(2 * 3 * 5 * 7 * 11 * 13, 7 * 11 * 17 * 19) != 77) fail("gcd");
    if (leaf_bits(0xf0f0f0f0f0f0f0f0ULL) != 32) fail("bits");
    pthread_mutex_lock(&loaded);
    if (library) {
        if (mix(42) != leaf_mix(42)) fail("mix in the library");
        if (gcd(84, 36) != 12) fail("gcd in the library");
        if (bits(0xff00ff) != 16) fail("bits in the library");
    }
    pthread_mutex_unlock(&loaded);
}

static void *computes(void *unused) {
    while (!done) check_all();
    return unused;
}

static void load(void) {
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail("dlopen");
    mix = (uint64_t (*)(uint64_t))dlsym(library, "leaf_mix");
    gcd = (uint64_t (*)(uint64_t, uint64_t))dlsym(library, "leaf_gcd");
    bits = (uint64_t (*)(uint64_t))dlsym(library, "leaf_bits");
    if (!mix || !gcd || !bits) fail("dlsym");
}

static void unload(void) {
    pthread_mutex_lock(&loaded);
    dlclose(library);
    library = NULL;
    pthread_mutex_unlock(&loaded);
    if (dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD)) fail("dlclose");
}

/* Maps the program at the former address of the library's code. */
static void take_its_place(void) {
    const uintptr_t page = 4096;
    void *place = (void *)((uintptr_t)mix / page * page);
    int file = open("/proc/self/exe", O_RDONLY);
    void *got = mmap(place, page, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0);
    if (got != place) fail("mmap");
    close(file);
}

int main(void) {
    load();
    pthread_t thread;
    pthread_create(&thread, NULL, computes, NULL);
    printf("ready\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) == 1) {
        /* A command: respond, unload the library, or map something else at its address. */
        if (byte == 'u') unload();
        if (byte == 'm') take_its_place();
        check_all();
        printf("alive\n");
        fflush(stdout);
    }
    done = 1;
    pthread_join(thread, NULL);
    return 0;
}
#endif
