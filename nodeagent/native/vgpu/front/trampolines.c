/*
 * `dlsym` and its like, as programs call them: the registers of the call are kept, a function of front.c chooses, and the
 * call goes on by a jump. The C library then sees the program's own return address, by which RTLD_NEXT and RTLD_DEFAULT
 * know who asks.
 */
#include <stddef.h>

#include "front/front.h"

_Static_assert(offsetof(struct call, caller) == 24 && sizeof(struct choice) == 16, "as the code below lays them");

#if defined __x86_64__

#define TRAMPOLINE(name)                               \
    __asm__(".text\n"                                  \
            ".p2align 4\n"                             \
            ".globl " #name "\n"                       \
            ".type " #name ", @function\n" #name ":\n" \
            ".cfi_startproc\n"                         \
            "    endbr64\n"                            \
            "    pushq %rdx\n"                         \
            ".cfi_adjust_cfa_offset 8\n"               \
            "    pushq %rsi\n"                         \
            ".cfi_adjust_cfa_offset 8\n"               \
            "    pushq %rdi\n"                         \
            ".cfi_adjust_cfa_offset 8\n"               \
            "    movq %rsp, %rdi\n"                    \
            "    call front_" #name "\n"               \
            "    movq %rax, %r11\n"                    \
            "    movq %rdx, %rax\n"                    \
            "    popq %rdi\n"                          \
            ".cfi_adjust_cfa_offset -8\n"              \
            "    popq %rsi\n"                          \
            ".cfi_adjust_cfa_offset -8\n"              \
            "    popq %rdx\n"                          \
            ".cfi_adjust_cfa_offset -8\n"              \
            "    testq %r11, %r11\n"                   \
            "    jz 1f\n"                              \
            "    jmp *%r11\n"                          \
            "1:  ret\n"                                \
            ".cfi_endproc\n"                           \
            ".size " #name ", . - " #name "\n")

#elif defined __aarch64__

#define TRAMPOLINE(name)                               \
    __asm__(".text\n"                                  \
            ".p2align 4\n"                             \
            ".globl " #name "\n"                       \
            ".type " #name ", %function\n" #name ":\n" \
            ".cfi_startproc\n"                         \
            "    hint #34\n"                           \
            "    stp x29, x30, [sp, #-48]!\n"          \
            ".cfi_def_cfa_offset 48\n"                 \
            ".cfi_offset 29, -48\n"                    \
            ".cfi_offset 30, -40\n"                    \
            "    mov x29, sp\n"                        \
            "    stp x0, x1, [sp, #16]\n"              \
            "    stp x2, x30, [sp, #32]\n"             \
            "    add x0, sp, #16\n"                    \
            "    bl front_" #name "\n"                 \
            "    mov x16, x0\n"                        \
            "    mov x17, x1\n"                        \
            "    ldp x0, x1, [sp, #16]\n"              \
            "    ldr x2, [sp, #32]\n"                  \
            "    ldp x29, x30, [sp], #48\n"            \
            ".cfi_restore 29\n"                        \
            ".cfi_restore 30\n"                        \
            ".cfi_def_cfa_offset 0\n"                  \
            "    cbz x16, 1f\n"                        \
            "    br x16\n"                             \
            "1:  mov x0, x17\n"                        \
            "    ret\n"                                \
            ".cfi_endproc\n"                           \
            ".size " #name ", . - " #name "\n")

#else
#error "no trampolines for this processor"
#endif

TRAMPOLINE(dlsym);
TRAMPOLINE(dlvsym);
TRAMPOLINE(dlopen);
TRAMPOLINE(dlmopen);
