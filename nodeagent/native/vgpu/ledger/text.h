/*
 * Strings, for what runs whenever anybody asks the loader for a function: a sanitizer does so for its own strcmp, before
 * there is one that could be called.
 */
#ifndef VGPU_TEXT_H
#define VGPU_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* As strcmp. */
static inline int text_compare(const char *a, const char *b) {
    for (; *a && *a == *b; a++) b++;
    return (unsigned char)*a - (unsigned char)*b;
}

/* NULL, or what comes after this start. */
static inline const char *text_after(const char *text, const char *start) {
    for (; *start; text++)
        if (*text != *start++) return NULL;
    return text;
}

/* The part of a path after its last slash. */
static inline const char *text_file_name(const char *path) {
    const char *name = path;
    for (; *path; path++)
        if (*path == '/') name = path + 1;
    return name;
}

#endif
