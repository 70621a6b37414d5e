/* Clocks of their own for the processes that preload this.
 *
 * The wall clock is the machine's plus what a shared file says, and is stepped by writing there. All clocks may also run
 * faster: time is then told faster, and whatever waits for a time or for a while is woken so much sooner. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile struct shared {
    int64_t ahead; /* nanoseconds by which the wall clock is set ahead */
    int64_t since; /* from when on the monotonic clock time runs faster */
    int64_t speed;
} *shared;

static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
static int (*real_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

static void *find(const char *name, const char *version) {
    void *found = dlvsym(RTLD_NEXT, name, version);
    return found ? found : dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("NODEAGENT_OTHER_CLOCK");
    *(void **)&real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    *(void **)&real_nanosleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    *(void **)&real_sem_clockwait = dlsym(RTLD_NEXT, "sem_clockwait");
    *(void **)&real_cond_timedwait = find("pthread_cond_timedwait", "GLIBC_2.3.2");
    int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (descriptor < 0) return;
    void *memory = mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (memory != MAP_FAILED) shared = memory;
}

static int64_t to_number(const struct timespec *time) {
    return time->tv_sec * SECOND + time->tv_nsec;
}

static struct timespec to_time(int64_t number) {
    return (struct timespec){.tv_sec = number / SECOND, .tv_nsec = number % SECOND};
}

static int64_t read_real(clockid_t clock) {
    struct timespec now;
    real_gettime(clock, &now);
    return to_number(&now);
}

/* What the monotonic clock of here has gained on the real one by then. */
static int64_t gained(int64_t real_monotonic) {
    return (real_monotonic - shared->since) * (shared->speed - 1);
}

/* A moment on the monotonic clock of here, on the real one. */
static int64_t to_real(int64_t here) {
    return shared->since + (here - shared->since) / shared->speed;
}

static int is_fast(void) {
    return shared && shared->speed > 1;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = real_gettime(clock, now);
    if (status || !shared) return status;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        *now = to_time(to_number(now) + shared->ahead + gained(read_real(CLOCK_MONOTONIC)));
    else if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME)
        *now = to_time(to_number(now) + gained(read_real(CLOCK_MONOTONIC)));
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec at;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return status;
}

time_t time(time_t *now) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (now) *now = at.tv_sec;
    return at.tv_sec;
}

/* Waiting until a moment. */

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    if (!is_fast() || (flags && clock != CLOCK_MONOTONIC)) return real_nanosleep(clock, flags, wanted, left);
    struct timespec real = to_time(flags ? to_real(to_number(wanted)) : to_number(wanted) / shared->speed);
    return real_nanosleep(clock, flags, &real, left);
}

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    return clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left) ? -1 : 0;
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    if (!is_fast() || clock != CLOCK_MONOTONIC) return real_sem_clockwait(semaphore, clock, until);
    struct timespec real = to_time(to_real(to_number(until)));
    return real_sem_clockwait(semaphore, clock, &real);
}

/* Python tells its condition variables to go by the monotonic clock; nobody else here uses any with a time. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    if (!is_fast()) return real_cond_timedwait(condition, mutex, until);
    struct timespec real = to_time(to_real(to_number(until)));
    return real_cond_timedwait(condition, mutex, &real);
}

/* Waiting for a while. */

int epoll_wait(int descriptor, struct epoll_event *events, int most, int milliseconds) {
    struct timespec wait = to_time((int64_t)milliseconds * 1000000 / (is_fast() ? shared->speed : 1));
    return syscall(SYS_epoll_pwait2, descriptor, events, most, milliseconds < 0 ? NULL : &wait, NULL, 0);
}

int poll(struct pollfd *descriptors, nfds_t count, int milliseconds) {
    struct timespec wait = to_time((int64_t)milliseconds * 1000000 / (is_fast() ? shared->speed : 1));
    return ppoll(descriptors, count, milliseconds < 0 ? NULL : &wait, NULL);
}

int select(int count, fd_set *restrict to_read, fd_set *restrict to_write, fd_set *restrict broken,
           struct timeval *restrict timeout) {
    struct timespec wait;
    if (timeout) wait = to_time((timeout->tv_sec * SECOND + timeout->tv_usec * 1000) / (is_fast() ? shared->speed : 1));
    return pselect(count, to_read, to_write, broken, timeout ? &wait : NULL, NULL);
}
