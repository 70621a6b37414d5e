/* Lines on the standard error, only where NODEAGENT_VGPU_LOG asks for them: the streams are the program's. */
#ifndef VGPU_LOG_H
#define VGPU_LOG_H

void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
