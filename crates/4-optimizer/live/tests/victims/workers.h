/* A worker of the kernel for io_uring, which is listed like a thread of the process. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Has a worker read a byte. Returns 0 if the kernel permits no io_uring. */
static int read_in_worker(int file, char *byte) {
    static struct io_uring_params params;
    int ring = syscall(SYS_io_uring_setup, 4, &params);
    if (ring < 0) return 0;
    int access = PROT_READ | PROT_WRITE;
    size_t entries_size = params.sq_entries * sizeof(struct io_uring_sqe);
    size_t ring_size = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    struct io_uring_sqe *entry = mmap(NULL, entries_size, access, MAP_SHARED, ring, IORING_OFF_SQES);
    char *queue = mmap(NULL, ring_size, access, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    if (entry == MAP_FAILED || queue == MAP_FAILED) return 0;
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = file,
                                   .addr = (uintptr_t)byte, .len = 1};
    ((uint32_t *)(queue + params.sq_off.array))[0] = 0;
    __atomic_store_n((uint32_t *)(queue + params.sq_off.tail), 1, __ATOMIC_RELEASE);
    return syscall(SYS_io_uring_enter, ring, 1, 0, 0, NULL, 0) == 1;
}

/* The thread ID of a worker, or 0 if there is none after some time. */
static int worker(void) {
    for (int i = 0; i < 1000; i++, usleep(1000)) {
        DIR *tasks = opendir("/proc/self/task");
        int found = 0;
        for (struct dirent *task; tasks && (task = readdir(tasks));) {
            char path[64], name[32] = "";
            snprintf(path, sizeof path, "/proc/self/task/%.16s/comm", task->d_name);
            FILE *file = fopen(path, "r");
            if (!file) continue;
            if (fgets(name, sizeof name, file) && !strncmp(name, "iou-", 4)) found = atoi(task->d_name);
            fclose(file);
        }
        if (tasks) closedir(tasks);
        if (found) return found;
    }
    return 0;
}
