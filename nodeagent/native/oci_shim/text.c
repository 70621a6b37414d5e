/* Text and names. */
#include "shim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void text_add(Text *text, const char *from, size_t size) {
    if (text->size + size + 1 > text->room) {
        size_t room = (text->size + size + 1) * 2;
        text->at = grow(text->at, text->room, room);
        text->room = room;
    }
    if (size) memcpy(text->at + text->size, from, size);
    text->size += size;
    text->at[text->size] = 0;
}

void text_say(Text *text, const char *words) {
    text_add(text, words, strlen(words));
}

void text_number(Text *text, uint64_t number) {
    text_say(text, compose("%" PRIu64, number));
}

void text_json(Text *text, const char *words) {
    text_add(text, "\"", 1);
    for (const char *plain = words;; words++) {
        unsigned char each = (unsigned char)*words;
        if (each >= 0x20 && each != 0x7f && each != '"' && each != '\\') continue;
        text_add(text, plain, (size_t)(words - plain));
        plain = words + 1;
        if (!each) break;
        if (each == '"' || each == '\\') {
            text_add(text, "\\", 1);
            text_add(text, words, 1);
        } else {
            text_say(text, compose("\\u%04x", each));
        }
    }
    text_add(text, "\"", 1);
}

const char *text_end(Text *text) {
    text_add(text, "", 0);
    return text->at;
}

char *compose_from(const char *pattern, va_list values) {
    va_list again;
    va_copy(again, values);
    size_t room = (size_t)vsnprintf(NULL, 0, pattern, values) + 1;
    char *text = take(room);
    vsnprintf(text, room, pattern, again);
    va_end(again);
    return text;
}

char *compose(const char *pattern, ...) {
    va_list values;
    va_start(values, pattern);
    char *text = compose_from(pattern, values);
    va_end(values);
    return text;
}

static uint32_t sum_up(const char *name) {
    uint32_t sum = 2166136261u;
    for (; *name; name++) sum = (sum ^ (unsigned char)*name) * 16777619u;
    return sum;
}

/* Where the number of this name is, or would be: half of the places are free. */
static size_t find_place(const Names *names, const char *name) {
    size_t last = 2 * names->room - 1, at = sum_up(name) & last;
    while (names->places[at] && !same(names->at[names->places[at] - 1], name)) at = (at + 1) & last;
    return at;
}

void names_add(Names *names, const char *name) {
    if (names->count == names->room) {
        size_t room = names->room ? names->room * 2 : 16;
        names->at = grow(names->at, names->room * sizeof *names->at, room * sizeof *names->at);
        names->places = take(2 * room * sizeof *names->places);
        names->room = room;
        for (size_t each = 0; each < names->count; each++)
            names->places[find_place(names, names->at[each])] = (uint32_t)each + 1;
    }
    uint32_t *place = &names->places[find_place(names, name)];
    names->at[names->count++] = name;
    if (!*place) *place = (uint32_t)names->count;
}

bool names_have(const Names *names, const char *name) {
    return names->count && names->places[find_place(names, name)];
}

const char *copy_slice(Slice slice) {
    char *copy = take(slice.size + 1);
    if (slice.size) memcpy(copy, slice.at, slice.size);
    return copy;
}

/* What Go takes for white space, since what names GPUs is read so by NVIDIA's programs. */
static const char *const BLANKS[] = {
    " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\u00a0",   "\u1680", "\u2000",
    "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007",   "\u2008", "\u2009",
    "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\xc2\x85",
};

Slice trim(Slice name) {
    for (bool is_changed = true; is_changed && name.size;) {
        is_changed = false;
        for (size_t each = 0; each < sizeof BLANKS / sizeof *BLANKS; each++) {
            size_t size = strlen(BLANKS[each]);
            if (name.size < size) continue;
            bool is_first = !memcmp(name.at, BLANKS[each], size);
            bool is_last = !is_first && !memcmp(name.at + name.size - size, BLANKS[each], size);
            if (!is_first && !is_last) continue;
            if (is_first) name.at += size;
            name.size -= size;
            is_changed = true;
        }
    }
    return name;
}

const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool read_number(const char *text, int base, uint64_t limit, uint64_t *into) {
    /* No blank, sign or prefix, which `strtoull` would take. */
    if (!*text || text[strspn(text, "0123456789abcdefABCDEF")]) return false;
    char *end;
    errno = 0;
    uint64_t number = strtoull(text, &end, base);
    if (*end || errno || number > limit) return false;
    *into = number;
    return true;
}
