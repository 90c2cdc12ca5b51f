/* Lets the wall clock of one process jump: the file that CLOCK_OFFSET_FILE names holds seconds to add. While there is a file that
 * RANDOM_FAILS_FILE names, the system has no random numbers for identifiers. Loaded with LD_PRELOAD by the tests; other clocks
 * stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    const char *name = getenv("CLOCK_OFFSET_FILE");
    FILE *file = name ? fopen(name, "r") : NULL;
    long seconds = 0;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += offset();
    return failed;
}

/* Sixteen bytes without flags are what a UUID asks for; the keys of hash maps have flags. */
ssize_t getrandom(void *buffer, size_t length, unsigned flags) {
    static ssize_t (*real)(void *, size_t, unsigned);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getrandom");
    const char *name = getenv("RANDOM_FAILS_FILE");
    if (name && length == 16 && flags == 0 && access(name, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return real(buffer, length, flags);
}
