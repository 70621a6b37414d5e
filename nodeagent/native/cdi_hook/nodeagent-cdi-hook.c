/* The program that container runtimes run while they create a container, where `cdi.hooks` asks for it.
 *
 * It makes the linker cache list the driver's libraries, after those of an image that brings newer ones for older
 * drivers, makes their other names, tells EGL which GPUs there are, and keeps the driver's user-space part from changing
 * device nodes. It is linked statically and reads nothing but its arguments, the state on its standard
 * input and the container's own files, because the host may have no Python and every container waits for it.
 *
 * What is in the container is hostile: each path below its root is opened with RESOLVE_IN_ROOT, so that no link in the
 * image leads out, and ldconfig, which reads the image's files, runs from a sealed copy, in namespaces of its own, with
 * the container's root as its only file system.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
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

enum {
    STATE_LIMIT = 1 << 20, CONFIG_LIMIT = 16 << 20, NOTE_LIMIT = 1 << 16, PATH_LIMIT = 4096, FOLDERS_LIMIT = 64,
    NAMES_LIMIT = 1 << 16,
};

static const char PARAMS[] = "/proc/driver/nvidia/params";
static char root_path[2 * PATH_LIMIT + 16];
static const char CONFIGURATION[] = "etc/ld.so.conf.d/00-nodeagent.conf";

/* What is wrong keeps the container from starting, unless it can do without what failed. */
static int failure = 1;

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("nodeagent-cdi-hook: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(failure);
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

static void write_inside(int root, const char *path, const char *text, int flags, mode_t mode) {
    const char *name;
    close(open_parent(root, path, &name));
    int descriptor = open_inside(root, path, O_WRONLY | O_CREAT | O_NONBLOCK | flags, mode);
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

/* Calls back with each name in a directory; a directory that is not there has none. */
static void each_name(int root, const char *path, void (*take)(const char *, void *), void *into) {
    int descriptor = open_inside(root, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    if (descriptor < 0) return;
    DIR *directory = fdopendir(descriptor);
    if (!directory) fail("cannot read %s: %s", path, strerror(errno));
    struct dirent *entry;
    for (int number = 0; number < NAMES_LIMIT && (entry = readdir(directory)); number++) take(entry->d_name, into);
    closedir(directory);
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

static int open_ldconfig(const char *path) {
    const char *places[] = {path, "/sbin/ldconfig.real", "/usr/sbin/ldconfig.real", "/sbin/ldconfig", "/usr/sbin/ldconfig"};
    int from = -1;
    for (size_t number = 0; number < sizeof places / sizeof *places && from < 0; number++)
        if (places[number]) from = open(places[number], O_RDONLY | O_CLOEXEC);
    if (from < 0) fail("the host has no ldconfig: %s", strerror(errno));
    return from;
}

/* A copy of the host's ldconfig that nothing in the container can write to through /proc. */
static int copy_ldconfig(const char *path) {
    int from = open_ldconfig(path);
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
        else write_inside(root, path, "/lib:/usr/local/lib:/usr/lib:", O_TRUNC, 0644);
        write_inside(root, path, text, O_APPEND, 0644);
        return;
    }
    int copy = copy_ldconfig(ldconfig);
    write_inside(root, CONFIGURATION, text, O_TRUNC, 0644);
    int present = open_inside(root, "etc/ld.so.conf", O_RDONLY | O_NONBLOCK, 0);
    if (present >= 0) close(present);
    else write_inside(root, "etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n", O_TRUNC, 0644);
    run_ldconfig(copy);
}

/* ---- enable-cuda-compat ----------------------------------------------------------------------------------------- */

/* Sorts before our own file, so that the linker cache has these libraries first. */
static const char COMPAT[] = "usr/local/cuda/compat", COMPAT_CONFIGURATION[] = "00-compat-nodeagent.conf";
static const char NOTE_SECTION[] = ".note.cuda.fwd_compatibility", NOTE_OWNER[] = "NVIDIA Corporation";

struct compat { int count; char version[64]; };

static void take_compat(const char *name, void *into) {
    static const char stem[] = "libcuda.so.";
    struct compat *found = into;
    if (strncmp(name, stem, sizeof stem - 1) || !strchr(name + sizeof stem - 1, '.')) return;
    found->count++;
    snprintf(found->version, sizeof found->version, "%s", name + sizeof stem - 1);
}

static int compare_versions(const char *one, const char *other) {
    for (int part = 0; part < 3; part++) {
        char *end, *other_end;
        unsigned long mine = strtoul(one, &end, 10), theirs = strtoul(other, &other_end, 10);
        if (mine != theirs) return mine > theirs ? 1 : -1;
        one = end + (*end == '.');
        other = other_end + (*other_end == '.');
    }
    return 0;
}

static int read_at(int file, void *into, size_t size, unsigned long long offset) {
    return pread(file, into, size, (off_t)offset) == (ssize_t)size;
}

/* The section in which a newer library says with which drivers it works; NULL when it says nothing, or is damaged. */
static char *read_note(int library, size_t *size, size_t *alignment) {
    Elf64_Ehdr header;
    Elf64_Shdr names, section;
    if (!read_at(library, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG)) return NULL;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof section) return NULL;
    if (!read_at(library, &names, sizeof names, header.e_shoff + header.e_shstrndx * sizeof names)) return NULL;
    for (unsigned number = 0; number < header.e_shnum; number++) {
        char name[sizeof NOTE_SECTION] = "";
        if (!read_at(library, &section, sizeof section, header.e_shoff + number * sizeof section)) return NULL;
        if (!read_at(library, name, sizeof name, names.sh_offset + section.sh_name)) continue;
        if (memcmp(name, NOTE_SECTION, sizeof name)) continue;
        if (section.sh_size < sizeof(Elf64_Nhdr) || section.sh_size > NOTE_LIMIT) return NULL;
        char *content = malloc(section.sh_size + 1);
        if (!content) fail("no memory for %s", NOTE_SECTION);
        if (!read_at(library, content, section.sh_size, section.sh_offset)) { free(content); return NULL; }
        content[*size = section.sh_size] = 0;
        *alignment = section.sh_addralign == 1 || section.sh_addralign == 8 ? section.sh_addralign : 4;
        return content;
    }
    return NULL;
}

/* Whether a note lists the major version of the host's driver: {"Driver": [535, 550], ...}. */
static int lists_driver(char *note, size_t size, size_t alignment, unsigned long driver) {
    Elf64_Nhdr header;
    memcpy(&header, note, sizeof header);
    size_t text_at = sizeof header + (((size_t)header.n_namesz + alignment - 1) & ~(alignment - 1));
    if (header.n_namesz < sizeof NOTE_OWNER || text_at > size || header.n_descsz > size - text_at) return 0;
    if (memcmp(note + sizeof header, NOTE_OWNER, sizeof NOTE_OWNER)) return 0;
    note[text_at + header.n_descsz] = 0;
    const char *at = find_key(note + text_at, "Driver");
    if (!at || *at != '[') return 0;
    while (at && (*at == '[' || *at == ',')) {
        const char *item = skip_space(at + 1);
        if (strtoul(item + (*item == '"'), NULL, 10) == driver) return 1;
        at = skip_value(item);
        if (at) at = skip_space(at);
    }
    return 0;
}

/* An image may bring a CUDA for drivers older than itself: where it is newer than the host's, it comes first. */
static int is_compat_better(int root, const char *driver) {
    struct compat found = {0, ""};
    char path[sizeof COMPAT + 96];
    each_name(root, COMPAT, take_compat, &found);
    if (found.count != 1) return 0;
    snprintf(path, sizeof path, "%s/libcuda.so.%s", COMPAT, found.version);
    int library = open_inside(root, path, O_RDONLY | O_NONBLOCK, 0);
    struct stat status;
    if (library < 0 || fstat(library, &status) || !S_ISREG(status.st_mode)) return 0;
    size_t size, alignment;
    char *note = read_note(library, &size, &alignment);
    unsigned long major = strtoul(driver, NULL, 10);
    int is_better = note ? lists_driver(note, size, alignment, major) && compare_versions(found.version, driver) > 0
                         : strtoul(found.version, NULL, 10) > major;
    free(note);
    close(library);
    return is_better;
}

static void enable_compat(int root, const char *driver) {
    char path[96], folder[sizeof COMPAT + 3];
    snprintf(path, sizeof path, "etc/ld.so.conf.d/%s", COMPAT_CONFIGURATION);
    snprintf(folder, sizeof folder, "/%s\n", COMPAT);
    if (is_compat_better(root, driver)) { write_inside(root, path, folder, O_TRUNC, 0644); return; }
    /* A container that is started again may have it from before the host's driver was upgraded. */
    int directory = open_inside(root, "etc/ld.so.conf.d", O_PATH | O_DIRECTORY, 0);
    if (directory < 0) return;
    if (unlinkat(directory, COMPAT_CONFIGURATION, 0) && errno != ENOENT) fail("cannot remove %s: %s", path, strerror(errno));
    close(directory);
}

/* ---- update-application-profile --------------------------------------------------------------------------------- */

static void take_gpu(const char *name, void *into) {
    static const char stem[] = "nvidia";
    if (strncmp(name, stem, sizeof stem - 1)) return;
    const char *digits = name + sizeof stem - 1;
    size_t count = strspn(digits, "0123456789");
    unsigned long number = strtoul(digits, NULL, 10);
    if (count && !digits[count] && number < 64) *(unsigned long long *)into |= 1ULL << number;
}

/* EGL would otherwise look for every GPU of the host, and fail on those that this container was not given. */
static void update_profile(int root) {
    char text[256];
    unsigned long long gpus = 0;
    each_name(root, "dev", take_gpu, &gpus);
    if (!gpus) return;
    snprintf(text, sizeof text,
             "{\"profiles\": [{\"name\": \"_container_\", \"settings\": [\"EGLVisibleDGPUDevices\", 0x%llx]}],"
             " \"rules\": [{\"pattern\": [], \"profile\": \"_container_\"}]}\n", gpus);
    write_inside(root, "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf", text, O_TRUNC, 0444);
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

/* What containers will need of the host: a kernel that opens paths within a root, and its ldconfig. */
static void check_host(void) {
    int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host < 0 || open_inside(host, ".", O_PATH | O_DIRECTORY, 0) < 0)
        fail("this kernel does not open paths within a root: %s", strerror(errno));
    open_ldconfig(NULL);
}

enum command { LINKS, COMPATIBILITY, CACHE, PROTECTION, PROFILE, COMMANDS };
static const char *const NAMES[COMMANDS] = {
    "create-symlinks", "enable-cuda-compat", "update-ldcache", "disable-device-node-modification",
    "update-application-profile",
};

int main(int count, char **arguments) {
    if (count < 2) fail("expected create-symlinks, update-ldcache or another command");
    const char *name = arguments[1], *value, *ldconfig = NULL, *params = PARAMS, *driver = "";
    char *folders[FOLDERS_LIMIT];
    int folder_count = 0, command = 0;
    umask(022);
    if (!strcmp(name, "self-check")) { check_host(); return 0; }
    while (command < COMMANDS && strcmp(name, NAMES[command])) command++;
    if (command == COMMANDS) {
        /* A specification that is newer than this program must not keep containers from starting. */
        fprintf(stderr, "nodeagent-cdi-hook: does not know %s, passed over\n", name);
        return 0;
    }
    if (command == PROFILE) failure = 0;
    int root = open_root();
    for (int number = 2; number < count; number++) {
        const char *argument = arguments[number];
        if (command == LINKS && (value = value_of(argument, "--link"))) create_symlink(root, value);
        else if (command == CACHE && (value = value_of(argument, "--folder")) && folder_count < FOLDERS_LIMIT)
            folders[folder_count++] = (char *)value;
        else if (command == CACHE && (value = value_of(argument, "--ldconfig"))) ldconfig = value;
        else if (command == COMPATIBILITY && (value = value_of(argument, "--host-driver-version"))) driver = value;
        else if (command == PROTECTION && (value = value_of(argument, "--params"))) params = value;
        else fail("%s: unknown argument %s", name, argument);
    }
    if (command == COMPATIBILITY && !*driver) fail("%s: expected --host-driver-version", name);
    if (command == COMPATIBILITY) enable_compat(root, driver);
    else if (command == CACHE) update_ldcache(root, folders, folder_count, ldconfig);
    else if (command == PROTECTION) protect_device_nodes(root, params);
    else if (command == PROFILE) update_profile(root);
    return 0;
}
