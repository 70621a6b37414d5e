/* The kernel's calls. Without a C library the program is a tenth of the size and starts in a fraction of the time.
 * Built with SHIM_HOSTED the same calls go through the C library, so that sanitizers see them. */
#include "shim.h"

#include <asm/errno.h>
#include <asm/unistd.h>
#include <linux/fcntl.h>
#include <linux/stat.h>

enum { MAP_ANONYMOUS_PRIVATE = 0x22, PROT_READ_WRITE = 3, CLOCK_NOW = 0, MAY_EXECUTE = 1, MAY_MOVE = 1 };

#ifdef SHIM_HOSTED
extern long syscall(long number, ...);
extern int *__errno_location(void);
extern void exit(int status) __attribute__((noreturn));

static long call(long number, long a, long b, long c, long d, long e, long f) {
    long answer = syscall(number, a, b, c, d, e, f);
    return answer == -1 ? -*__errno_location() : answer;
}
#elif defined(__x86_64__)
static long call(long number, long a, long b, long c, long d, long e, long f) {
    long answer;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
}
#elif defined(__aarch64__)
static long call(long number, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#else
#error "a processor that no node has"
#endif

char **environment;

long sys_open(const char *path, int flags, int mode) {
    long answer;
    do answer = call(__NR_openat, AT_FDCWD, (long)path, flags, mode, 0, 0);
    while (answer == -EINTR);
    return answer;
}

long sys_read(int descriptor, void *into, size_t size) {
    long answer;
    do answer = call(__NR_read, descriptor, (long)into, (long)size, 0, 0, 0);
    while (answer == -EINTR);
    return answer;
}

long sys_write(int descriptor, const void *from, size_t size) {
    long answer;
    do answer = call(__NR_write, descriptor, (long)from, (long)size, 0, 0, 0);
    while (answer == -EINTR);
    return answer;
}

long sys_close(int descriptor) {
    return call(__NR_close, descriptor, 0, 0, 0, 0, 0);
}

long sys_status(int descriptor, const char *path, bool follow, Status *into) {
    struct statx status;
    int flags = AT_STATX_SYNC_AS_STAT | (*path ? 0 : AT_EMPTY_PATH) | (follow ? 0 : AT_SYMLINK_NOFOLLOW);
    long answer =
        call(__NR_statx, *path ? AT_FDCWD : descriptor, (long)path, flags, STATX_BASIC_STATS, (long)&status, 0);
    if (answer < 0) return answer;
    *into = (Status){
        .mode = status.stx_mode,
        .uid = status.stx_uid,
        .gid = status.stx_gid,
        .major = status.stx_rdev_major,
        .minor = status.stx_rdev_minor,
        .device_major = status.stx_dev_major,
        .device_minor = status.stx_dev_minor,
        .inode = status.stx_ino,
        .size = status.stx_size,
    };
    return 0;
}

long sys_rename(const char *from, const char *to) {
    return call(__NR_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0, 0);
}

long sys_unlink(const char *path) {
    return call(__NR_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0);
}

long sys_mkdir(const char *path) {
    return call(__NR_mkdirat, AT_FDCWD, (long)path, 0755, 0, 0, 0);
}

long sys_readlink(const char *path, char *into, size_t room) {
    return call(__NR_readlinkat, AT_FDCWD, (long)path, (long)into, (long)room, 0, 0);
}

long sys_own(int descriptor, uint32_t uid, uint32_t gid) {
    return call(__NR_fchown, descriptor, uid, gid, 0, 0, 0);
}

long sys_mode(int descriptor, uint32_t mode) {
    return call(__NR_fchmod, descriptor, mode, 0, 0, 0, 0);
}

long sys_execute(const char *path, char **arguments) {
    return call(__NR_execve, (long)path, (long)arguments, (long)environment, 0, 0, 0);
}

long sys_can_execute(const char *path) {
    return call(__NR_faccessat, AT_FDCWD, (long)path, MAY_EXECUTE, 0, 0, 0);
}

uint32_t sys_user(void) {
    return (uint32_t)call(__NR_geteuid, 0, 0, 0, 0, 0, 0);
}

uint32_t sys_process(void) {
    return (uint32_t)call(__NR_getpid, 0, 0, 0, 0, 0, 0);
}

int64_t sys_time(void) {
    int64_t now[2] = {0, 0};
    call(__NR_clock_gettime, CLOCK_NOW, (long)now, 0, 0, 0, 0);
    return now[0];
}

void *sys_memory(size_t size) {
    long answer = call(__NR_mmap, 0, (long)size, PROT_READ_WRITE, MAP_ANONYMOUS_PRIVATE, -1, 0);
    return answer < 0 && answer > -4096 ? NULL : (void *)answer;
}

void *sys_extend(void *memory, size_t old, size_t size) {
    long answer = call(__NR_mremap, (long)memory, (long)old, (long)size, MAY_MOVE, 0, 0);
    return answer < 0 && answer > -4096 ? NULL : (void *)answer;
}

void sys_exit(int status) {
#ifdef SHIM_HOSTED
    exit(status);
#else
    for (;;) call(__NR_exit_group, status, 0, 0, 0, 0, 0);
#endif
}

const char *sys_error(long error) {
    switch (error < 0 ? -error : error) {
    case ENOENT: return "no such file or directory";
    case EACCES: return "permission denied";
    case EPERM: return "operation not permitted";
    case ENOSPC: return "no space left on device";
    case EDQUOT: return "disk quota exceeded";
    case EFBIG: return "it is too large";
    case EROFS: return "read-only file system";
    case EIO: return "input/output error";
    case ENOMEM: return "no memory";
    case ELOOP: return "it is a symbolic link, or too many of them";
    case ENOTDIR: return "not a directory";
    case EISDIR: return "it is a directory";
    case ENOEXEC: return "it is no program for this machine";
    case ENAMETOOLONG: return "its name is too long";
    case EMFILE:
    case ENFILE: return "too many open files";
    case EEXIST: return "it exists already";
    case E2BIG: return "too many arguments";
    case ETXTBSY: return "it is being written";
    }
    Text text = {0};
    text_say(&text, "error ");
    text_number(&text, (uint64_t)(error < 0 ? -error : error), 10);
    return text_end(&text);
}

const char *sys_variable(const char *name) {
    size_t size = 0;
    while (name[size]) size++;
    for (char **each = environment; *each; each++)
        if (begins(*each, name) && (*each)[size] == '=') return *each + size + 1;
    return NULL;
}
