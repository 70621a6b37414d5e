/* See loader.h. */
#define _GNU_SOURCE
#include "front/loader.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "front/real.h"
#include "ledger/text.h"

static const char *const function_names[LOADER_FUNCTIONS] = {"dlsym",   "dlvsym",  "dlopen",
                                                             "dlmopen", "dlerror", "dlclose"};
static const char *const stems[LIBRARIES] = {"libcuda.so", "libnvidia-ml.so"};
static const char *const sonames[LIBRARIES] = {"libcuda.so.1", "libnvidia-ml.so.1"};
static _Atomic(void *) functions[LOADER_FUNCTIONS];
static _Atomic(void *) handles[LIBRARIES];

void *loader_real(enum loader_function which) {
    void *function = atomic_load_explicit(&functions[which], memory_order_acquire);
    if (!function) {
        function = real_find(function_names[which]);
        atomic_store_explicit(&functions[which], function, memory_order_release);
    }
    return function;
}

/* What a question of this library left: a program that asks next would take it for the answer to its own. */
static void *forget_error(void *answer) {
    char *(*read_error)(void) = (char *(*)(void))loader_real(LOADER_DLERROR);
    if (!answer && read_error) read_error();
    return answer;
}

static void *open_library(enum library which, int flags) {
    dlopen_type open = (dlopen_type)loader_real(LOADER_DLOPEN);
    return open ? forget_error(open(sonames[which], RTLD_LAZY | flags)) : NULL;
}

void *loader_library(enum library which) {
    void *handle = atomic_load_explicit(&handles[which], memory_order_acquire);
    if (!handle) {
        handle = open_library(which, RTLD_NOLOAD);
        atomic_store_explicit(&handles[which], handle, memory_order_release);
    }
    return handle;
}

void *loader_open(enum library which) {
    return open_library(which, RTLD_LOCAL);
}

/* By its handle, whose scope has nothing of whoever stands before it. */
void *loader_find_in(void *handle, const char *name) {
    dlsym_type find = (dlsym_type)loader_real(LOADER_DLSYM);
    return handle && find ? forget_error(find(handle, name)) : NULL;
}

void *loader_find(enum library which, const char *name) {
    return loader_find_in(loader_library(which), name);
}

void loader_close(void *handle) {
    int (*close_it)(void *) = (int (*)(void *))loader_real(LOADER_DLCLOSE);
    if (close_it) close_it(handle);
}

bool loader_is_name_of(enum library which, const char *path) {
    const char *version = path ? text_after(text_file_name(path), stems[which]) : NULL;
    return version && (*version == '.' || *version == '\0');
}

static bool has_name(const char *content, size_t bytes) {
    bool found = false;
    for (int which = 0; which < LIBRARIES && !found; which++)
        found = memmem(content, bytes, stems[which], strlen(stems[which])) != NULL;
    return found;
}

bool loader_may_refer(const char *path) {
    int file = path && text_file_name(path) != path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (file < 0) return true;
    off_t bytes = lseek(file, 0, SEEK_END);
    void *content = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (content == MAP_FAILED) return true;
    bool refers = has_name(content, (size_t)bytes);
    munmap(content, (size_t)bytes);
    return refers;
}
