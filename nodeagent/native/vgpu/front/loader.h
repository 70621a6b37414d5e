/*
 * What the dynamic loader has, asked past whoever stands before it: the C library's own functions, and the two libraries
 * of NVIDIA once the program has loaded them. Loads one by itself only where it is told to.
 */
#ifndef VGPU_LOADER_H
#define VGPU_LOADER_H

#include <stdbool.h>

enum loader_function {
    LOADER_DLSYM,
    LOADER_DLVSYM,
    LOADER_DLOPEN,
    LOADER_DLMOPEN,
    LOADER_OWNED,
    LOADER_DLERROR = LOADER_OWNED,
    LOADER_DLCLOSE,
    LOADER_FUNCTIONS
};
enum library { LIBRARY_CUDA, LIBRARY_NVML, LIBRARIES };

typedef void *(*dlsym_type)(void *, const char *);
typedef void *(*dlvsym_type)(void *, const char *, const char *);
typedef void *(*dlopen_type)(const char *, int);

/* The C library's own; NULL where it has none of that name. */
void *loader_real(enum loader_function which);

/* Its handle, which keeps it loaded from here on, or NULL. */
void *loader_library(enum library which);

/*
 * For a while, loaded where it is not yet: a handle that is to be closed, or NULL. A program that asks whether there is such a
 * library must not find it because of this one.
 */
void *loader_open(enum library which);
void *loader_find_in(void *handle, const char *name);
void loader_close(void *handle);

/* Of that library; NULL where it has none of that name, or is not loaded, and no program hears of that by dlerror. */
void *loader_find(enum library which, const char *name);

/* Whether this is a name under which that library is opened. */
bool loader_is_name_of(enum library which, const char *path);

/*
 * Whether a file has the name of one of them in it: as a library that it needs, or for a question of its own to the loader.
 * True also where the loader alone knows which file is meant, and where it cannot be read.
 */
bool loader_may_refer(const char *path);

#endif
