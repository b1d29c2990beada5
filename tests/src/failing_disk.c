/* A disk that fails a sync, for a process that is started with this as LD_PRELOAD.
 *
 * Of the files `ledger.sqlite` and `ledger.sqlite-wal` it remembers what the disk has of each page that was
 * written since the last sync. A sync that is told to fail returns EIO and, as Linux does, leaves these pages
 * readable and takes them for clean: what the disk has of them goes to `lost/FILE.PAGE`, until they are written
 * again. At a power cut whoever tests puts back what lies there.
 *
 * In the directory $FENCE_TEST_DISK: `arm` (a file's name and N: its N-th sync from now fails), `cut` (a
 * file's name: the process is killed when it is about to truncate that), `lost/`. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES (1 << 18)

struct file {
    const char *name;
    ino_t inode;
    char **dirty; /* what the disk has of a page that was written since the last sync */
    char *lost;   /* whether that lies in `lost/` */
};

static struct file files[] = {{.name = "ledger.sqlite"}, {.name = "ledger.sqlite-wal"}};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *home;
static char armed[64];
static long countdown;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static ssize_t plain_write(int fd, const void *bytes, size_t size) {
    REAL(write);
    return real(fd, bytes, size);
}

static void lost_path(char *path, const struct file *file, long page) {
    snprintf(path, PATH_MAX, "%s/lost/%s.%ld", home, file->name, page);
}

static void forget(struct file *file, long from) {
    char path[PATH_MAX];
    for (long page = from; page < PAGES; page++) {
        free(file->dirty[page]);
        file->dirty[page] = NULL;
        if (file->lost[page]) {
            lost_path(path, file, page);
            unlink(path);
            file->lost[page] = 0;
        }
    }
}

/* What processes before this one have lost. */
static void load(struct file *file) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lost", home);
    DIR *directory = opendir(path);
    size_t length = strlen(file->name);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (!strncmp(entry->d_name, file->name, length) && entry->d_name[length] == '.')
            file->lost[atol(entry->d_name + length + 1)] = 1;
    if (directory) closedir(directory);
}

/* The file, if it is one of those; with the mutex held. */
static struct file *tracked(int fd) {
    struct stat found;
    if (!home && !(home = getenv("FENCE_TEST_DISK"))) return NULL;
    if (fstat(fd, &found) || !S_ISREG(found.st_mode)) return NULL;
    for (size_t i = 0; i < 2; i++)
        if (files[i].inode == found.st_ino) return &files[i];
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    for (size_t i = 0; name && i < 2; i++) {
        struct file *file = &files[i];
        if (strcmp(name + 1, file->name)) continue;
        if (!file->dirty) {
            file->dirty = calloc(PAGES, sizeof *file->dirty);
            file->lost = calloc(PAGES, 1);
            load(file);
        } else {
            forget(file, 0);
        }
        file->inode = found.st_ino;
        return file;
    }
    return NULL;
}

static void touch(struct file *file, int fd, off_t at, size_t size) {
    char path[PATH_MAX];
    for (long page = at / PAGE; size && page <= (long)((at + size - 1) / PAGE) && page < PAGES; page++) {
        if (file->dirty[page]) continue;
        char *had = calloc(1, PAGE);
        ssize_t got = 0;
        if (file->lost[page]) {
            lost_path(path, file, page);
            int from = open(path, O_RDONLY);
            got = read(from, had, PAGE);
            close(from);
            unlink(path);
            file->lost[page] = 0;
        } else {
            got = pread(fd, had, PAGE, page * PAGE);
        }
        if (got < 0) abort();
        file->dirty[page] = had;
    }
}

static int fails(const struct file *file) {
    char path[PATH_MAX], text[64] = "";
    snprintf(path, sizeof path, "%s/arm", home);
    if (!countdown) {
        int from = open(path, O_RDONLY);
        if (from < 0) return 0;
        if (read(from, text, sizeof text - 1) > 0 && sscanf(text, "%63s %ld", armed, &countdown) != 2) abort();
        close(from);
    }
    if (strcmp(armed, file->name) || --countdown) return 0;
    unlink(path);
    return 1;
}

static int sync_or_fail(int fd, int (*real)(int)) {
    pthread_mutex_lock(&mutex);
    struct file *file = tracked(fd);
    int failed = file && fails(file);
    for (long page = 0; file && page < PAGES; page++) {
        if (!file->dirty[page]) continue;
        if (failed) {
            char path[PATH_MAX];
            lost_path(path, file, page);
            int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (plain_write(to, file->dirty[page], PAGE) != PAGE) abort();
            close(to);
            file->lost[page] = 1;
        }
        free(file->dirty[page]);
        file->dirty[page] = NULL;
    }
    pthread_mutex_unlock(&mutex);
    if (failed) {
        errno = EIO;
        return -1;
    }
    /* The kernel keeps what a killed process has written: nothing more is needed. */
    return file ? 0 : real(fd);
}

int fsync(int fd) {
    REAL(fsync);
    return sync_or_fail(fd, real);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return sync_or_fail(fd, real);
}

static ssize_t write_at(int fd, const void *bytes, size_t size, off_t at, int moves) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    pthread_mutex_lock(&mutex);
    struct file *file = tracked(fd);
    if (file) touch(file, fd, moves ? lseek(fd, 0, SEEK_CUR) : at, size);
    if (!file) pthread_mutex_unlock(&mutex);
    ssize_t written = moves ? plain_write(fd, bytes, size) : real(fd, bytes, size, at);
    if (file) pthread_mutex_unlock(&mutex);
    return written;
}

ssize_t write(int fd, const void *bytes, size_t size) { return write_at(fd, bytes, size, 0, 1); }
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) { return write_at(fd, bytes, size, at, 0); }
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) { return write_at(fd, bytes, size, at, 0); }

static int truncate_to(int fd, off_t size) {
    static int (*real)(int, off_t);
    if (!real) real = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate64");
    pthread_mutex_lock(&mutex);
    struct file *file = tracked(fd);
    if (file) {
        char path[PATH_MAX], text[64] = "";
        snprintf(path, sizeof path, "%s/cut", home);
        int from = open(path, O_RDONLY);
        if (from >= 0 && read(from, text, sizeof text - 1) > 0 && !strcmp(text, file->name)) {
            unlink(path);
            kill(getpid(), SIGKILL);
        }
        if (from >= 0) close(from);
        forget(file, (size + PAGE - 1) / PAGE);
    }
    pthread_mutex_unlock(&mutex);
    return real(fd, size);
}

int ftruncate(int fd, off_t size) { return truncate_to(fd, size); }
int ftruncate64(int fd, off64_t size) { return truncate_to(fd, size); }
