/* What a C library would do before main, and the four functions that a compiler calls by itself. */
#include <stddef.h>
#include <stdint.h>

#include "shim.h"

int main(int count, char **arguments, char **variables);

uintptr_t __stack_chk_guard;

__attribute__((noreturn)) void __stack_chk_fail(void) {
    static const char said[] = "nodeagent-oci-shim: its stack is damaged\n";
    sys_write(2, said, sizeof said - 1);
    sys_exit(1);
}

enum { AUXILIARY_RANDOM = 25 };

/* The stack as the kernel leaves it: count, arguments, NULL, variables, NULL, pairs of facts. */
__attribute__((noreturn, used, optimize("no-stack-protector"))) void start_with(uintptr_t *stack) {
    int count = (int)stack[0];
    char **arguments = (char **)(stack + 1), **variables = arguments + count + 1;
    char **after = variables;
    while (*after) after++;
    for (uintptr_t *fact = (uintptr_t *)(after + 1); fact[0]; fact += 2)
        if (fact[0] == AUXILIARY_RANDOM) __stack_chk_guard = *(uintptr_t *)fact[1] & ~(uintptr_t)0xff;
    sys_exit(main(count, arguments, variables));
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n call start_with\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n mov x29,#0\n mov x30,#0\n mov x0,sp\n b start_with\n");
#endif

void *memcpy(void *restrict into, const void *restrict from, size_t size) {
    enum { FEW = 64 }; /* up to which the instruction takes longer than the loop */
    char *to = into;
    const char *at = from;
#if defined(__x86_64__)
    if (size > FEW) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(at), "+c"(size) : : "memory");
        return into;
    }
#endif
    while (size--) *to++ = *at++;
    return into;
}

void *memmove(void *into, const void *from, size_t size) {
    char *to = into;
    const char *at = from;
    if (to <= at)
        while (size--) *to++ = *at++;
    else
        while (size--) to[size] = at[size];
    return into;
}

void *memset(void *into, int value, size_t size) {
    char *to = into;
    while (size--) *to++ = (char)value;
    return into;
}

int memcmp(const void *a, const void *b, size_t size) {
    const unsigned char *left = a, *right = b;
    for (; size; size--, left++, right++)
        if (*left != *right) return *left - *right;
    return 0;
}

size_t strlen(const char *text) {
    size_t size = 0;
    while (text[size]) size++;
    return size;
}
