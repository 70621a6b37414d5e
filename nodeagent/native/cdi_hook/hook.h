/* What the parts of the hook know of one another; README.md says which part does what. */
#ifndef NODEAGENT_CDI_HOOK_H
#define NODEAGENT_CDI_HOOK_H

#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/types.h>

/* Headers older than the call do not have it; its number is the same on every architecture. */
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
struct mount_attributes {
    unsigned long long set, clear, propagation, user_namespace;
};

enum { STATE_LIMIT = 1 << 20, PATH_LIMIT = 4096, FOLDERS_LIMIT = 64 };

/* ---- state.c: what the runtime says, and what is said to it ------------------------------------------------------- */

extern int
    failure; /* the exit status of who fails: the container does not start, unless it can do without what failed */
extern char root_path[2 * PATH_LIMIT + 16]; /* where open_root found the container's root */

void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void warn(const char *format, ...) __attribute__((format(printf, 1, 2))); /* the container starts all the same */
char *read_all(int descriptor, size_t limit, const char *what);
int open_root(void);

/* ---- json.c: as much of JSON as is needed to find a value in it, without a copy ------------------------------------ */

const char *skip_space(const char *at);
const char *skip_value(const char *at); /* NULL where it has no end */
const char *find_key(const char *at, const char *key);
void copy_string(const char *at, char *into, size_t room);

/* ---- walk.c: the same as openat2 within a root, for a path or a directory --------------------------------------------- */

int walk_inside(int root, const char *path, int flags, int own); /* own: a mount on the way is EXDEV */

/* ---- inside.c: the container's files, whatever links its image has ------------------------------------------------- */

int open_inside(int root, const char *path, int flags);
int open_own(int root, const char *path, int flags); /* on the root's own file system: a mount on the way is EXDEV */
int open_regular(int root, const char *path);        /* to read: what is no plain file is never opened */
int open_parent(int root, const char *path, const char **name);
int write_inside(int root, const char *path, const char *text, mode_t mode);
int is_foreign(int error);        /* the place is a mount or read only: not the image's to change */
void pass_over(const char *path); /* one line: the container starts without what belongs there */
void each_name(int root, const char *path, void (*take)(const char *, void *), void *into);

/* ---- a file for each command --------------------------------------------------------------------------------------- */

void create_symlink(int root, const char *argument);
void update_ldcache(int root, char **folders, int count, const char *ldconfig);
int open_ldconfig(const char *path); /* the host's; NULL looks in the usual places */
void lock_in(void); /* this process and its mounts, with the container's root as the only file system */
void check_includes(const char *path); /* after lock_in: fails where ldconfig would wait, or read without end */
void enable_compat(int root, const char *driver);
void update_profile(int root);
void protect_device_nodes(int root, const char *params);

#endif
