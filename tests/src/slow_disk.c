/* A disk that is slow, for a process that is started with this as LD_PRELOAD: each sync takes longer, by the
 * milliseconds that the file $FENCE_TEST_SYNC_MS says at that moment. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_longer(void) {
    const char *path = getenv("FENCE_TEST_SYNC_MS");
    char text[16] = "";
    int from = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (from < 0) return;
    if (read(from, text, sizeof text - 1) > 0) usleep(1000 * atoi(text));
    close(from);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_longer();
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_longer();
    return real(fd);
}
