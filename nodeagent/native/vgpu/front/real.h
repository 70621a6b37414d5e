/*
 * Functions of the C library itself, for a library that stands before them: read from its symbol table in memory, since
 * to ask dlsym for dlsym is to ask oneself, or another library of this kind that stands before both.
 */
#ifndef VGPU_REAL_H
#define VGPU_REAL_H

/* Its address, or NULL where no C library that is loaded has it. */
void *real_find(const char *name);

/* What RTLD_NEXT means for this caller: in the first file loaded after the caller's own that has it, or NULL. */
void *real_find_after(const void *caller, const char *name);

#endif
