/* JSON that is read where it lies: keys are found, values passed over, whatever they are. */
#include "hook.h"

#include <string.h>

const char *skip_space(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') at++;
    return at;
}

/* The end of a JSON string whose opening quote is at `at`; NULL when it has none. */
static const char *skip_string(const char *at) {
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1]) at++;
    return *at ? at + 1 : NULL;
}

const char *skip_value(const char *at) {
    int depth = 0;
    do {
        at = skip_space(at);
        if (*at == '"') at = skip_string(at);
        else if (*at == '{' || *at == '[') {
            depth++;
            at++;
            continue;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == ',' || *at == ':') at++;
        else if (*at) at += strcspn(at, ",:]} \t\n\r\"{[");
        else return NULL;
        if (!at) return NULL;
    } while (depth > 0);
    return at;
}

/* The value of a key of the object at `at`; NULL when it has no such key. */
const char *find_key(const char *at, const char *key) {
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

/* As runc's writer puts `&`, `<` and `>`: \u0026. What is beyond printable ASCII it does not write so, and -1 here. */
static int read_escape(const char *at) {
    static const char DIGITS[] = "0123456789abcdef";
    int number = 0;
    for (int each = 1; each <= 4; each++) {
        const char *digit = at[each] ? strchr(DIGITS, at[each] | 32) : NULL;
        if (!digit) return -1;
        number = number * 16 + (int)(digit - DIGITS);
    }
    return number >= ' ' && number < 0x7f ? number : -1;
}

/* A JSON string without the escapes that no path needs; empty when it is something else. */
void copy_string(const char *at, char *into, size_t room) {
    into[0] = 0;
    if (!at || *at != '"') return;
    size_t used = 0;
    for (at++; *at && *at != '"'; at++) {
        int each = *at, is_escaped = *at == '\\';
        if (is_escaped) each = *++at;
        if (is_escaped && each == 'u' && (each = read_escape(at)) >= 0) at += 4;
        else if (is_escaped && each != '"' && each != '\\' && each != '/')
            fail("a path in the state has an escape \\%c", *at);
        if (used + 1 >= room) fail("a path in the state is too long");
        into[used++] = (char)each;
    }
    into[used] = 0;
}
