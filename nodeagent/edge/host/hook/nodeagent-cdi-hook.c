/* The program that container runtimes run while they create a container, where `cdi.hooks: ldcache` asks for it.
 *
 * It makes the linker cache list the driver's libraries, makes their other names, and keeps the driver's user-space part
 * from changing device nodes. It is linked statically and reads nothing but its arguments, the state on its standard
 * input and the container's own files, because the host may have no Python and every container waits for it.
 *
 * What is in the container is hostile: each path below its root is opened with RESOLVE_IN_ROOT, so that no link in the
 * image leads out, and ldconfig, which reads the image's files, runs from a sealed copy, in namespaces of its own, with
 * the container's root as its only file system.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATE_LIMIT = 1 << 20, CONFIG_LIMIT = 16 << 20, PATH_LIMIT = 4096, FOLDERS_LIMIT = 64 };

static const char PARAMS[] = "/proc/driver/nvidia/params";
static char root_path[2 * PATH_LIMIT + 16];
static const char CONFIGURATION[] = "etc/ld.so.conf.d/00-nodeagent.conf";

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("nodeagent-cdi-hook: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(1);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static char *read_all(int descriptor, size_t limit, const char *what) {
    size_t size = 0, room = 65536;
    char *text = malloc(room + 1);
    for (;;) {
        if (!text) fail("no memory for %s", what);
        ssize_t got = read(descriptor, text + size, room - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("cannot read %s: %s", what, strerror(errno));
        if (got == 0) break;
        size += (size_t)got;
        if (size > limit) fail("%s is larger than %zu bytes", what, limit);
        if (size == room) text = realloc(text, (room *= 2) + 1);
    }
    text[size] = 0;
    return text;
}

static const char *skip_space(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') at++;
    return at;
}

/* The end of a JSON string whose opening quote is at `at`; NULL when it has none. */
static const char *skip_string(const char *at) {
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1]) at++;
    return *at ? at + 1 : NULL;
}

static const char *skip_value(const char *at) {
    int depth = 0;
    do {
        at = skip_space(at);
        if (*at == '"') at = skip_string(at);
        else if (*at == '{' || *at == '[') { depth++; at++; continue; }
        else if (*at == '}' || *at == ']') { depth--; at++; }
        else if (*at == ',' || *at == ':') at++;
        else if (*at) at += strcspn(at, ",:]} \t\n\r\"{[");
        else return NULL;
        if (!at) return NULL;
    } while (depth > 0);
    return at;
}

/* The value of a key of the object at `at`; NULL when it has no such key. */
static const char *find_key(const char *at, const char *key) {
    size_t length = strlen(key);
    at = skip_space(at);
    if (*at++ != '{') return NULL;
    for (;;) {
        at = skip_space(at);
        if (*at != '"') return NULL;
        const char *name = at + 1, *end = skip_string(at);
        if (!end) return NULL;
        at = skip_space(end);
        if (*at++ != ':') return NULL;
        at = skip_space(at);
        if ((size_t)(end - 1 - name) == length && !strncmp(name, key, length)) return at;
        at = skip_value(at);
        if (!at) return NULL;
        at = skip_space(at);
        if (*at++ != ',') return NULL;
    }
}

/* A JSON string without the escapes that no path needs; empty when it is something else. */
static void copy_string(const char *at, char *into, size_t room) {
    into[0] = 0;
    if (!at || *at != '"') return;
    size_t used = 0;
    for (at++; *at && *at != '"'; at++) {
        if (*at == '\\' && *++at != '"' && *at != '\\' && *at != '/') fail("a path in the state has an escape \\%c", *at);
        if (used + 1 >= room) fail("a path in the state is too long");
        into[used++] = *at;
    }
    into[used] = 0;
}

/* The container's root directory, from the state that the runtime writes to standard input. */
static int open_root(void) {
    char bundle[PATH_LIMIT], root[PATH_LIMIT], path[PATH_LIMIT + 16];
    char *state = read_all(STDIN_FILENO, STATE_LIMIT, "the state");
    copy_string(find_key(state, "root"), root, sizeof root);
    copy_string(find_key(state, "bundle"), bundle, sizeof bundle);
    if (!root[0]) {
        if (!bundle[0]) fail("the state names no bundle");
        snprintf(path, sizeof path, "%s/config.json", bundle);
        int descriptor = open(path, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) fail("cannot open %s: %s", path, strerror(errno));
        char *config = read_all(descriptor, CONFIG_LIMIT, "config.json");
        close(descriptor);
        const char *object = find_key(config, "root");
        copy_string(object ? find_key(object, "path") : NULL, root, sizeof root);
        if (!root[0]) fail("%s names no root", path);
        free(config);
    }
    free(state);
    if (root[0] == '/') snprintf(root_path, sizeof root_path, "%s", root);
    else snprintf(root_path, sizeof root_path, "%s/%s", bundle, root);
    int descriptor = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) fail("cannot open the container's root %s: %s", root_path, strerror(errno));
    return descriptor;
}

/* ---- the container's files -------------------------------------------------------------------------------------- */

static int open_inside(int root, const char *path, int flags, mode_t mode) {
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC), .mode = flags & O_CREAT ? mode : 0,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* The directory that a path is in, made where it is missing. */
static int open_parent(int root, const char *path, const char **name) {
    char part[PATH_LIMIT];
    if (strlen(path) >= sizeof part) fail("%s: the path is too long", path);
    strcpy(part, path);
    char *slash = strrchr(part, '/');
    *name = slash ? path + (slash - part) + 1 : path;
    if (!**name || !strcmp(*name, "..") || !strcmp(*name, ".")) fail("%s: the path names no file", path);
    if (!slash) return open_inside(root, ".", O_PATH | O_DIRECTORY, 0);
    *slash = 0;
    for (char *at = part; at && *at;) {
        char *next = strchr(at + 1, '/');
        if (next) *next = 0;
        int here = open_inside(root, part, O_PATH | O_DIRECTORY, 0);
        if (here < 0 && errno == ENOENT) {
            const char *last;
            int above = open_parent(root, part, &last);
            if (mkdirat(above, last, 0755) && errno != EEXIST) fail("cannot make %s: %s", part, strerror(errno));
            close(above);
        } else if (here >= 0) close(here);
        if (next) *next = '/';
        at = next;
    }
    int parent = open_inside(root, *part ? part : ".", O_PATH | O_DIRECTORY, 0);
    if (parent < 0) fail("cannot open %s: %s", part, strerror(errno));
    return parent;
}

static void write_inside(int root, const char *path, const char *text, int flags) {
    const char *name;
    close(open_parent(root, path, &name));
    int descriptor = open_inside(root, path, O_WRONLY | O_CREAT | O_NONBLOCK | flags, 0644);
    if (descriptor < 0) fail("cannot open %s: %s", path, strerror(errno));
    struct stat status;
    if (fstat(descriptor, &status) || !S_ISREG(status.st_mode)) fail("%s is no file", path);
    size_t size = strlen(text);
    while (size) {
        ssize_t written = write(descriptor, text, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail("cannot write %s: %s", path, strerror(errno));
        text += written;
        size -= (size_t)written;
    }
    close(descriptor);
}

/* ---- create-symlinks -------------------------------------------------------------------------------------------- */

static void create_symlink(int root, const char *argument) {
    char target[PATH_LIMIT], temporary[64], present[PATH_LIMIT];
    const char *separator = strstr(argument, "::"), *name;
    if (!separator || separator == argument || (size_t)(separator - argument) >= sizeof target)
        fail("--link=%s: expected TARGET::LINK", argument);
    memcpy(target, argument, (size_t)(separator - argument));
    target[separator - argument] = 0;
    int parent = open_parent(root, separator + 2, &name);
    ssize_t length = readlinkat(parent, name, present, sizeof present - 1);
    if (length >= 0) present[length] = 0;
    if (length < 0 || strcmp(present, target)) {
        snprintf(temporary, sizeof temporary, ".nodeagent-%d", (int)getpid());
        unlinkat(parent, temporary, 0);
        if (symlinkat(target, parent, temporary)) fail("cannot make a link in %s: %s", separator + 2, strerror(errno));
        if (renameat(parent, temporary, parent, name)) {
            int reason = errno;
            unlinkat(parent, temporary, 0);
            fail("cannot make the link %s: %s", separator + 2, strerror(reason));
        }
    }
    close(parent);
}

/* ---- update-ldcache --------------------------------------------------------------------------------------------- */

/* A copy of the host's ldconfig that nothing in the container can write to through /proc. */
static int copy_ldconfig(const char *path) {
    const char *places[] = {path, "/sbin/ldconfig.real", "/usr/sbin/ldconfig.real", "/sbin/ldconfig", "/usr/sbin/ldconfig"};
    int from = -1;
    for (size_t number = 0; number < sizeof places / sizeof *places && from < 0; number++)
        if (places[number]) from = open(places[number], O_RDONLY | O_CLOEXEC);
    if (from < 0) fail("the host has no ldconfig: %s", strerror(errno));
    int copy = memfd_create("ldconfig", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char buffer[65536];
    ssize_t got;
    while ((got = read(from, buffer, sizeof buffer)) > 0)
        if (write(copy, buffer, (size_t)got) != got) fail("cannot copy ldconfig: %s", strerror(errno));
    if (got < 0 || copy < 0) fail("cannot copy ldconfig: %s", strerror(errno));
    close(from);
    if (fcntl(copy, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
        fail("cannot seal the copy of ldconfig: %s", strerror(errno));
    return copy;
}

static void enter(void) {
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET))
        fail("cannot leave the runtime's namespaces: %s", strerror(errno));
    if (mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL)) fail("cannot make mounts private: %s", strerror(errno));
    /* By its name, because a descriptor from before leads to the other namespace; twice, because the bind lies over it. */
    if (chdir(root_path) || mount(".", ".", NULL, MS_BIND | MS_REC, NULL) || chdir(root_path))
        fail("cannot bind the container's root: %s", strerror(errno));
    if (syscall(SYS_pivot_root, ".", ".")) {
        /* A host that runs from its initial RAM disk cannot pivot. */
        if (mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".")) fail("cannot change the root: %s", strerror(errno));
    } else if (umount2(".", MNT_DETACH)) fail("cannot leave the host's root: %s", strerror(errno));
    if (chdir("/")) fail("cannot enter the new root: %s", strerror(errno));
}

static void run_ldconfig(int ldconfig) {
    pid_t child = fork();
    if (child < 0) fail("cannot start ldconfig: %s", strerror(errno));
    if (!child) {
        enter();
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        char *arguments[] = {"ldconfig", "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache", NULL}, *environment[] = {NULL};
        syscall(SYS_execveat, ldconfig, "", arguments, environment, AT_EMPTY_PATH);
        fail("cannot run ldconfig: %s", strerror(errno));
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("cannot wait for ldconfig: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail("ldconfig failed in the container");
}

static void update_ldcache(int root, char **folders, int count, const char *ldconfig) {
    char text[FOLDERS_LIMIT * PATH_LIMIT / 16] = "", separator;
    int alpine = open_inside(root, "etc/alpine-release", O_RDONLY | O_NONBLOCK, 0);
    separator = alpine >= 0 ? ':' : '\n';
    for (int number = 0; number < count; number++) {
        if (strlen(text) + strlen(folders[number]) + 2 > sizeof text) fail("too many folders");
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%c", folders[number], separator);
    }
    if (alpine >= 0) {
        close(alpine);
        char path[64];
        snprintf(path, sizeof path, "etc/ld-musl-%s.path",
#ifdef __aarch64__
                 "aarch64"
#else
                 "x86_64"
#endif
        );
        /* Without this file musl searches three directories; with it, only those that it names. */
        int present = open_inside(root, path, O_RDONLY | O_NONBLOCK, 0);
        if (present >= 0) close(present);
        else write_inside(root, path, "/lib:/usr/local/lib:/usr/lib:", O_TRUNC);
        write_inside(root, path, text, O_APPEND);
        return;
    }
    int copy = copy_ldconfig(ldconfig);
    write_inside(root, CONFIGURATION, text, O_TRUNC);
    int present = open_inside(root, "etc/ld.so.conf", O_RDONLY | O_NONBLOCK, 0);
    if (present >= 0) close(present);
    else write_inside(root, "etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n", O_TRUNC);
    run_ldconfig(copy);
}

/* ---- disable-device-node-modification --------------------------------------------------------------------------- */

/* Headers older than the call do not have them; its number is the same on every architecture. */
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
struct mount_attributes { unsigned long long set, clear, propagation, user_namespace; };

static void protect_device_nodes(int root, const char *params) {
    int descriptor = open(params, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;  /* no driver, nothing to protect */
    char *text = read_all(descriptor, STATE_LIMIT, params);
    close(descriptor);
    char *setting = strstr(text, "ModifyDeviceFiles: 1");
    if (setting) {
        setting[strlen("ModifyDeviceFiles: ")] = '0';
        int target = open_inside(root, "proc/driver/nvidia/params", O_PATH, 0);
        if (target < 0 && errno == ENOENT) { free(text); return; }
        if (target < 0) fail("cannot open the container's %s: %s", params, strerror(errno));
        int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
        if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
            fail("cannot make a file system for %s: %s", params, strerror(errno));
        int mounted = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        if (mounted < 0) fail("cannot mount a file system for %s: %s", params, strerror(errno));
        int copy = openat(mounted, "params", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        if (copy < 0 || write(copy, text, strlen(text)) != (ssize_t)strlen(text))
            fail("cannot copy %s: %s", params, strerror(errno));
        close(copy);
        int tree = (int)syscall(SYS_open_tree, mounted, "params", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        /* Root in the container could write into it otherwise. Kernels before 5.12 do not know the call. */
        struct mount_attributes read_only = {.set = MOUNT_ATTR_RDONLY};
        if (tree >= 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &read_only, sizeof read_only) && errno != ENOSYS)
            fail("cannot protect the copy of %s: %s", params, strerror(errno));
        if (tree < 0 || syscall(SYS_move_mount, tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
            fail("cannot put the copy over %s: %s", params, strerror(errno));
    }
    free(text);
}

/* ---- command line ----------------------------------------------------------------------------------------------- */

static const char *value_of(const char *argument, const char *flag) {
    size_t length = strlen(flag);
    return !strncmp(argument, flag, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

int main(int count, char **arguments) {
    if (count < 2) fail("expected create-symlinks, update-ldcache or disable-device-node-modification");
    const char *command = arguments[1], *value, *ldconfig = NULL, *params = PARAMS;
    char *folders[FOLDERS_LIMIT];
    int folder_count = 0;
    umask(022);
    int links = !strcmp(command, "create-symlinks"), cache = !strcmp(command, "update-ldcache");
    if (!links && !cache && strcmp(command, "disable-device-node-modification")) {
        /* A specification that is newer than this program must not keep containers from starting. */
        fprintf(stderr, "nodeagent-cdi-hook: does not know %s, passed over\n", command);
        return 0;
    }
    int root = open_root();
    for (int number = 2; number < count; number++) {
        if (links && (value = value_of(arguments[number], "--link"))) create_symlink(root, value);
        else if (cache && (value = value_of(arguments[number], "--folder")) && folder_count < FOLDERS_LIMIT)
            folders[folder_count++] = (char *)value;
        else if (cache && (value = value_of(arguments[number], "--ldconfig"))) ldconfig = value;
        else if ((value = value_of(arguments[number], "--params"))) params = value;
        else fail("%s: unknown argument %s", command, arguments[number]);
    }
    if (cache) update_ldcache(root, folders, folder_count, ldconfig);
    else if (!links) protect_device_nodes(root, params);
    return 0;
}
