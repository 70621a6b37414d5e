/* See front.h. */
#define _GNU_SOURCE
#include "front/front.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

#include "front/hooks.h"
#include "front/loader.h"
#include "front/real.h"
#include "ledger/text.h"

/* As programs call them. */
extern char dlsym_place[] __asm__("dlsym");
extern char dlvsym_place[] __asm__("dlvsym");
extern char dlopen_place[] __asm__("dlopen");
extern char dlmopen_place[] __asm__("dlmopen");

static const struct {
    const char *name;
    void *place;
} own[LOADER_OWNED] = {
    [LOADER_DLSYM] = {"dlsym", dlsym_place},
    [LOADER_DLVSYM] = {"dlvsym", dlvsym_place},
    [LOADER_DLOPEN] = {"dlopen", dlopen_place},
    [LOADER_DLMOPEN] = {"dlmopen", dlmopen_place},
};

static struct choice go_on(enum loader_function which) {
    return (struct choice){loader_real(which), NULL};
}

static struct choice answer(void *value) {
    return (struct choice){NULL, value};
}

static int find_own(const char *name) {
    int which = 0;
    while (which < LOADER_OWNED && text_compare(name, own[which].name) != 0) which++;
    return which;
}

static bool is_located(const struct call *call) {
    return call->first != RTLD_DEFAULT && call->first != RTLD_NEXT;
}

/* What the loader itself says; it does not matter who asks where a handle says in what to look. */
static void *ask_loader(const struct call *call, enum loader_function asked) {
    return asked == LOADER_DLVSYM ? ((dlvsym_type)loader_real(asked))(call->first, call->second, call->third)
                                  : ((dlsym_type)loader_real(asked))(call->first, call->second);
}

/* Names that are none of this library's business cost a few instructions. */
static bool may_concern(const char *name) {
    return name && ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v') ||
                    (name[0] == 'd' && name[1] == 'l'));
}

/* One of those above. By a version only the C library has it: who stands in front of this library would pass it by. */
static struct choice choose_own(const struct call *call, int which, enum loader_function asked) {
    if (is_located(call)) {
        void *found = ask_loader(call, asked);
        return answer(found && found == loader_real(which) ? own[which].place : found);
    }
    bool is_hidden = call->first == RTLD_NEXT && asked == LOADER_DLVSYM;
    return is_hidden && real_find_after(call->caller, call->second) == own[which].place ? answer(own[which].place)
                                                                                        : go_on(asked);
}

static struct choice choose_hook(const struct call *call, const struct hook *hook, enum loader_function asked) {
    void *original = hooks_original(hook);
    /* Where this finds nothing, nothing is asked after it: the program is to hear of that. */
    if (is_located(call)) {
        void *found = ask_loader(call, asked);
        const struct hook *before = found ? hooks_before(hook->owner, found) : NULL;
        return answer(before ? before->place : found);
    }
    /* A program that asks whether there is a driver must not find this library's functions instead. */
    if (!original) return answer(((dlsym_type)loader_real(LOADER_DLSYM))(RTLD_NEXT, call->second));
    /* Behind this library the loader would find the original; behind others that have the name, theirs. */
    bool is_next = call->first == RTLD_NEXT && real_find_after(call->caller, call->second) == original;
    return is_next ? answer(hook->place) : go_on(asked);
}

static struct choice choose(const struct call *call, enum loader_function asked) {
    const char *name = call->second;
    if (!may_concern(name) || !loader_real(asked)) return go_on(asked);
    if (name[0] == 'd') {
        int which = find_own(name);
        return which < LOADER_OWNED ? choose_own(call, which, asked) : go_on(asked);
    }
    const struct hook *hook = hooks_find(name);
    return hook ? choose_hook(call, hook, asked) : go_on(asked);
}

struct choice front_dlsym(struct call *call) {
    return choose(call, LOADER_DLSYM);
}

struct choice front_dlvsym(struct call *call) {
    return choose(call, LOADER_DLVSYM);
}

/* A library that looks into its own files first would find the C library's functions, and the driver's, past this one. */
static void *drop_deepbind(const char *path, void *flags) {
#ifdef RTLD_DEEPBIND
    if ((uintptr_t)flags & RTLD_DEEPBIND && loader_may_refer(path))
        return (void *)((uintptr_t)flags & ~(uintptr_t)RTLD_DEEPBIND);
#endif
    return flags;
}

struct choice front_dlopen(struct call *call) {
    call->second = drop_deepbind(call->first, call->second);
    return go_on(LOADER_DLOPEN);
}

/* Of what is limited there is one in a process: a second one in a namespace of its own would not be seen. */
struct choice front_dlmopen(struct call *call) {
    call->third = drop_deepbind(call->second, call->third);
    for (int library = 0; call->first != (void *)LM_ID_BASE && library < LIBRARIES; library++)
        if (loader_is_name_of(library, call->second))
            return answer(((dlopen_type)loader_real(LOADER_DLOPEN))(call->second, (int)(uintptr_t)call->third));
    return go_on(LOADER_DLMOPEN);
}
