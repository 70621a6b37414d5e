/* A program that works through a daemon of the stand-in, for containers that have no interpreter.
   It says what it may use, and then works until it is cut off (1) or told to end (0). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void end(int number) {
    (void)number;
    _exit(0);
}

int main(void) {
    signal(SIGTERM, end);
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control", pipes ? pipes : "/tmp/nvidia-mps");
    int line = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(line, (struct sockaddr *)&address, sizeof address)) {
        perror(address.sun_path);
        return 2;
    }
    const char *threads = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
               *memory = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    char text[256];
    int size = snprintf(text, sizeof text, "client! %d %s %s\n", (int)getuid(), threads ? threads : "-",
                        memory ? memory : "-");
    if (write(line, text, size) != size) return 2;
    while ((size = read(line, text, sizeof text)) > 0) {
        fwrite(text, 1, size, stdout);
        fflush(stdout);
    }
    puts("cut off");
    return 1;
}
