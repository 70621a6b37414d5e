/*
 * The loader's functions that programs find other functions with. Whoever asks is who asked: a question that is not
 * answered here goes on to the C library as if nobody stood between.
 */
#ifndef VGPU_FRONT_H
#define VGPU_FRONT_H

/* What was called, as the trampolines keep it; what is changed in it goes on so. */
struct call {
    void *first;
    void *second;
    void *third;
    void *caller; /* to read only */
};

/* Where the call goes on; with NULL it has been answered. */
struct choice {
    void *go;
    void *answer;
};

struct choice front_dlsym(struct call *call);
struct choice front_dlvsym(struct call *call);
struct choice front_dlopen(struct call *call);
struct choice front_dlmopen(struct call *call);

#endif
