// A process whose hot code is mapped from a device without end.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    // mov ecx, 0x10000000; dec ecx; jne -4; ret
    unsigned char code[] = {0xb9, 0, 0, 0, 0x10, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
    int fd = open("/dev/zero", O_RDWR);
    unsigned char *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    memcpy(memory, code, sizeof code);
    mprotect(memory, 1 << 20, PROT_READ | PROT_EXEC);
    alarm(120);
    puts("ready");
    fflush(stdout);
    for (;;) ((void (*)(void))memory)();
}
