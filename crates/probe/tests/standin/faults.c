/* Preloaded: lets one of the calls fail that a program makes on files below $FAULT_FOLDER. Counts them, and writes the
   count to $FAULT_COUNT when the program ends, and the name of the one that failed to $FAULT_NAME. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int done, is_ours[1024];
static const char *failed = "";

static int is_below(const char *path) {
    const char *folder = getenv("FAULT_FOLDER");
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

/* The chosen call fails; of a write, half is done before. */
static int fails_in(const char *name, int concerned) {
    const char *at = getenv("FAULT_AT");
    if (!concerned || !at || done++ != atoi(at)) return 0;
    errno = atoi(getenv("FAULT_ERRNO"));
    failed = name;
    return 1;
}

#define fails(concerned) fails_in(__func__, concerned)
#define fd_fails(fd) fails(fd >= 0 && fd < 1024 && is_ours[fd])

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int fd, int ours) {
    if (fd >= 0 && fd < 1024) is_ours[fd] = ours;
    return fd;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                      \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = va_arg(rest, mode_t);                                                                            \
        va_end(rest);                                                                                                  \
        int ours = is_below(path);                                                                                     \
        return fails(ours) ? -1 : opened(REAL(name)(path, flags, mode), ours);                                         \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (fd >= 0 && fd < 1024) is_ours[fd] = 0;
    return REAL(close)(fd);
}

ssize_t read(int fd, void *to, size_t length) { return fd_fails(fd) ? -1 : REAL(read)(fd, to, length); }

ssize_t write(int fd, const void *from, size_t length) {
    if (!fd_fails(fd)) return REAL(write)(fd, from, length);
    int error = errno;
    if (length > 1 && REAL(write)(fd, from, length / 2) < 0) error = errno;
    errno = error;
    return -1;
}

int fsync(int fd) { return fd_fails(fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fd_fails(fd) ? -1 : REAL(fdatasync)(fd); }
int flock(int fd, int how) { return fd_fails(fd) ? -1 : REAL(flock)(fd, how); }
int ftruncate64(int fd, off64_t to) { return fd_fails(fd) ? -1 : REAL(ftruncate64)(fd, to); }
int fchmod(int fd, mode_t mode) { return fd_fails(fd) ? -1 : REAL(fchmod)(fd, mode); }
int mkdir(const char *path, mode_t mode) { return fails(is_below(path)) ? -1 : REAL(mkdir)(path, mode); }
int unlink(const char *path) { return fails(is_below(path)) ? -1 : REAL(unlink)(path); }
int rename(const char *from, const char *to) { return fails(is_below(to)) ? -1 : REAL(rename)(from, to); }

int statx(int at, const char *path, int flags, unsigned mask, struct statx *to) {
    /* The header says that it is never null. Rust's library asks so whether there is such a call. */
    const char *volatile given = path;
    int ours = given && *given ? is_below(given) : at >= 0 && at < 1024 && is_ours[at];
    return fails(ours) ? -1 : REAL(statx)(at, path, flags, mask, to);
}

__attribute__((destructor)) static void tell(void) {
    const char *count = getenv("FAULT_COUNT"), *name = getenv("FAULT_NAME");
    FILE *file = count ? fopen(count, "w") : NULL;
    if (file) fprintf(file, "%d", done), fclose(file);
    file = name ? fopen(name, "w") : NULL;
    if (file) fputs(failed, file), fclose(file);
}
