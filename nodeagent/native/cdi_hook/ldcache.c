/* update-ldcache: the linker finds the driver's libraries. ldconfig reads the image's files, so it is locked in with them. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char CONFIGURATION[] = "etc/ld.so.conf.d/00-nodeagent.conf", TOP[] = "etc/ld.so.conf";

#ifndef LDCONFIG_SECONDS
#define LDCONFIG_SECONDS 60 /* less than the two minutes that the kubelet waits; a test has less of it */
#endif

int open_ldconfig(const char *path) {
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
        /* What it reads is the image's: a pipe that nobody writes to would keep it, and the container, for ever. */
        signal(SIGALRM, SIG_DFL);
        alarm(LDCONFIG_SECONDS);
        enter();
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        char *arguments[] = {"ldconfig", "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache", NULL}, *environment[] = {NULL};
        syscall(SYS_execveat, ldconfig, "", arguments, environment, AT_EMPTY_PATH);
        fail("cannot run ldconfig: %s", strerror(errno));
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("cannot wait for ldconfig: %s", strerror(errno));
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        fail("ldconfig did not end within %d s: what does /etc/ld.so.conf of the image lead to?", LDCONFIG_SECONDS);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail("ldconfig failed in the container");
}

/* Adds to a file of the image, or makes one that begins with `first`, unless it has already what is looked for. */
static void extend(int root, const char *path, const char *first, const char *sought, const char *added) {
    int present = open_inside(root, path, O_RDONLY | O_NONBLOCK, 0);
    if (present < 0) write_inside(root, path, first, O_TRUNC, 0644);
    char *content = present >= 0 ? read_all(present, STATE_LIMIT, path) : NULL;
    if (!strstr(content ? content : first, sought)) write_inside(root, path, added, O_APPEND, 0644);
    free(content);
    if (present >= 0) close(present);
}

void update_ldcache(int root, char **folders, int count, const char *ldconfig) {
    char text[FOLDERS_LIMIT * PATH_LIMIT / 16] = "";
    int alpine = open_inside(root, "etc/alpine-release", O_RDONLY | O_NONBLOCK, 0);
    const char *separator = alpine >= 0 ? ":" : "\n";
    /* musl passes over what is empty; the separator in front keeps ours apart from a last one that has none behind it. */
    if (alpine >= 0) strcpy(text, separator);
    for (int number = 0; number < count; number++) {
        if (strlen(text) + strlen(folders[number]) + 2 > sizeof text) fail("too many folders");
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", folders[number], separator);
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
        extend(root, path, "/lib:/usr/local/lib:/usr/lib", text, text);
        return;
    }
    int copy = copy_ldconfig(ldconfig);
    write_inside(root, CONFIGURATION, text, O_TRUNC, 0644);
    /* An image may have this file without the line by which ours are read. */
    extend(root, TOP, "include /etc/ld.so.conf.d/*.conf\n", "ld.so.conf.d/*", "\ninclude /etc/ld.so.conf.d/*-nodeagent.conf\n");
    run_ldconfig(copy);
}
