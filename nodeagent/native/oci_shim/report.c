/* One line for whoever asked for the container: on standard error, and in the log of the low-level runtime, from where
 * containerd takes what it tells the kubelet. */
#include "shim.h"

#include <linux/fcntl.h>

static const char *log_path, *debug_path;
static bool log_is_json;

void report_to(const char *log, bool json) {
    log_path = log;
    log_is_json = json;
}

void report_debug(const char *path) {
    debug_path = path && *path ? path : NULL;
}

static void say_two(Text *text, uint64_t number) {
    if (number < 10) text_add(text, "0", 1);
    text_number(text, number, 10);
}

/* Days since 1970 as year, month and day: counted from March of the year 0, so that leap days come last. */
static void say_time(Text *text) {
    int64_t now = sys_time();
    uint64_t days = (uint64_t)(now / 86400) + 719468, seconds = (uint64_t)(now % 86400);
    uint64_t era = days / 146097, day = days % 146097;
    uint64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    uint64_t of_year = day - (365 * year + year / 4 - year / 100);
    uint64_t month = (5 * of_year + 2) / 153;
    uint64_t calendar = month < 10 ? month + 3 : month - 9;
    text_number(text, year + era * 400 + (calendar <= 2), 10);
    text_say(text, "-");
    say_two(text, calendar);
    text_say(text, "-");
    say_two(text, of_year - (153 * month + 2) / 5 + 1);
    text_say(text, "T");
    say_two(text, seconds / 3600);
    text_say(text, ":");
    say_two(text, seconds / 60 % 60);
    text_say(text, ":");
    say_two(text, seconds % 60);
    text_say(text, "Z");
}

static void write_all(int descriptor, const Text *line) {
    for (size_t done = 0; done < line->size;) {
        long wrote = sys_write(descriptor, line->at + done, line->size - done);
        if (wrote <= 0) return;
        done += (size_t)wrote;
    }
}

static void append(const char *path, const Text *line) {
    Text parent = {0};
    text_add(&parent, path, (size_t)(base_name(path) - path));
    while (parent.size > 1 && parent.at[parent.size - 1] == '/') parent.at[--parent.size] = 0;
    if (parent.size) sys_mkdir(parent.at);
    /* Whoever can put a link or a pipe in the place of a log must not have root write elsewhere, or wait. */
    long file = sys_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (file < 0) return; /* There is standard error, and nobody left to tell. */
    Status status;
    if (sys_status((int)file, "", true, &status) == 0 && is_kind(status.mode, REGULAR)) write_all((int)file, line);
    sys_close((int)file);
}

static void log_line(const char *path, bool json, const char *level, const char *message) {
    Text line = {0}, time = {0};
    say_time(&time);
    text_say(&line, json ? "{\"level\":\"" : "time=\"");
    text_say(&line, json ? level : text_end(&time));
    text_say(&line, json ? "\",\"msg\":" : "\" level=");
    if (!json) {
        text_say(&line, level);
        text_say(&line, " msg=");
    }
    text_json(&line, message);
    if (json) {
        text_say(&line, ",\"time\":\"");
        text_say(&line, text_end(&time));
        text_say(&line, "\"}");
    }
    text_say(&line, "\n");
    append(path, &line);
}

static const char *report(const char *level, const char *const *words) {
    Text message = {0};
    text_say(&message, "nodeagent-oci-shim: ");
    for (; *words; words++) text_say(&message, *words);
    for (size_t each = 0; each < message.size; each++)
        if (message.at[each] == '\n' || message.at[each] == '\r') message.at[each] = ' ';
    if (log_path && *log_path) log_line(log_path, log_is_json, level, text_end(&message));
    if (debug_path) log_line(debug_path, false, level, text_end(&message));
    return text_end(&message);
}

void fail_with(const char *const *words) {
    Text line = {0};
    text_say(&line, report("error", words));
    text_say(&line, "\n");
    write_all(2, &line);
    sys_exit(1);
}

void warn_with(const char *const *words) {
    report("warning", words);
}
