/* A kernel of 2018 for the hook: the linker puts this in the place of `syscall`, and calls that are younger do not exist. */
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>

enum { ARGUMENTS = 6 };

long __real_syscall(long number, long, long, long, long, long, long);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...) {
    static const long YOUNGER[] = {
        SYS_openat2, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_open_tree, SYS_move_mount, 442 /* mount_setattr */,
    };
    long values[ARGUMENTS];
    va_list list;
    va_start(list, number);
    for (int each = 0; each < ARGUMENTS; each++) values[each] = va_arg(list, long);
    va_end(list);
    for (unsigned each = 0; each < sizeof YOUNGER / sizeof *YOUNGER; each++)
        if (number == YOUNGER[each]) {
            errno = ENOSYS;
            return -1;
        }
    return __real_syscall(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
