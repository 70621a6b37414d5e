/* A program that gives up root as services do, keeping its groups, and then opens a device. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 2 || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000)) return 1;
    int device = open(arguments[1], O_RDWR);
    printf("user %d: %s\n", (int)geteuid(), device < 0 ? strerror(errno) : "opened");
    return 0;
}
