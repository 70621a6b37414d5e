/* update-ldcache: the linker finds the driver's libraries. ldconfig reads the image's files, so it is locked in with them. */
#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static const char CONFIGURATION[] = "etc/ld.so.conf.d/00-nodeagent.conf", TOP[] = "etc/ld.so.conf";

enum { SAID = 3 }; /* the exit status of a child that has told why */

#ifndef LDCONFIG_SECONDS
#define LDCONFIG_SECONDS 60 /* less than the two minutes that the kubelet waits; a test has less of it */
#endif

int open_ldconfig(const char *path) {
    const char *places[] = {path, "/sbin/ldconfig.real", "/usr/sbin/ldconfig.real", "/sbin/ldconfig",
                            "/usr/sbin/ldconfig"};
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

/* Folders are named on the command line where the configuration is not the image's to change. */
static void run_ldconfig(int ldconfig, char **folders, int count) {
    pid_t child = fork();
    if (child < 0) fail("cannot start ldconfig: %s", strerror(errno));
    if (!child) {
        /* What it reads is the image's: a pipe that nobody writes to would keep it, and the container, for ever. */
        signal(SIGALRM, SIG_DFL);
        alarm(LDCONFIG_SECONDS);
        failure = SAID;
        lock_in();
        check_includes("/etc/ld.so.conf");
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        char *arguments[FOLDERS_LIMIT + 6] = {"ldconfig", "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache"};
        char *environment[] = {NULL};
        memcpy(arguments + 5, folders, (size_t)count * sizeof *folders);
        syscall(SYS_execveat, ldconfig, "", arguments, environment, AT_EMPTY_PATH);
        fail("cannot run ldconfig: %s", strerror(errno));
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) fail("cannot wait for ldconfig: %s", strerror(errno));
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        fail("ldconfig did not end within %d s: what does /etc/ld.so.conf of the image lead to?", LDCONFIG_SECONDS);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SAID) exit(failure);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail("ldconfig failed in the container");
}

/* Adds to a file of the image, or makes one that begins with `first`, unless it has already what is looked for. */
static int extend(int root, const char *path, const char *first, const char *sought, const char *added) {
    int present = open_regular(root, path);
    if (present < 0 && errno != ENOENT && errno != ELOOP) fail("/%s of the image cannot be read, or is no file", path);
    char *content = present >= 0 ? read_all(present, STATE_LIMIT, path) : NULL, *whole;
    if (present >= 0) close(present);
    if (content && strstr(content, sought)) {
        free(content);
        return 0;
    }
    if (asprintf(&whole, "%s%s", content ? content : first, content || !strstr(first, sought) ? added : "") < 0)
        fail("no memory for %s", path);
    int answer = write_inside(root, path, whole, 0644);
    free(whole);
    free(content);
    return answer;
}

/* Whether the cache can be written: neither it nor its directory is a mount, and nothing there is read only. */
static int has_place(int root) {
    struct statvfs system;
    int directory = open_own(root, "etc", O_PATH | O_DIRECTORY), file = -1;
    if (directory < 0) return !is_foreign(errno);
    int is_writable = !fstatvfs(directory, &system) && !(system.f_flag & ST_RDONLY);
    if (is_writable) file = open_own(directory, "ld.so.cache", O_PATH | O_NOFOLLOW);
    if (is_writable && file < 0) is_writable = !is_foreign(errno);
    if (file >= 0) close(file);
    close(directory);
    return is_writable;
}

void update_ldcache(int root, char **folders, int count, const char *ldconfig) {
    char text[FOLDERS_LIMIT * PATH_LIMIT / 16] = "";
    int alpine = open_inside(root, "etc/alpine-release", O_PATH);
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
        if (extend(root, path, "/lib:/usr/local/lib:/usr/lib", text, text)) pass_over(path);
        return;
    }
    if (!has_place(root)) {
        pass_over("etc/ld.so.cache");
        return;
    }
    int copy = copy_ldconfig(ldconfig);
    int is_foreign_place = write_inside(root, CONFIGURATION, text, 0644) != 0;
    /* An image may have this file without the line by which ours are read. */
    if (extend(root, TOP, "include /etc/ld.so.conf.d/*.conf\n", "ld.so.conf.d/*",
               "\ninclude /etc/ld.so.conf.d/*-nodeagent.conf\n"))
        is_foreign_place = 1;
    run_ldconfig(copy, folders, is_foreign_place ? count : 0);
}
