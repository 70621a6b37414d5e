/* Memory, text and names. */
#include "shim.h"

#include <string.h>

enum { CHUNK = 256 << 10, LARGE = CHUNK / 8 };

#ifdef SHIM_HOSTED
/* One block for each, so that a sanitizer sees where it ends; and the nth fails where a test says so. */
extern void *calloc(size_t count, size_t size);
static void *find_room(size_t size) {
    static uint64_t taken, refused;
    static bool reads;
    if (!taken++ && sys_variable("SHIM_REFUSE_ALLOCATION")) {
        reads = read_number(sys_variable("SHIM_REFUSE_ALLOCATION"), 10, UINT32_MAX, &refused);
    }
    return reads && taken == refused ? NULL : calloc(1, size ? size : 1);
}

static void *extend(void *old, size_t room, size_t size) {
    (void)old, (void)room, (void)size;
    return NULL;
}
#else
static size_t round_up(size_t size) {
    return (size + 4095) & ~(size_t)4095;
}

/* What is large has pages of its own, which can be moved without a copy. */
static void *find_room(size_t size) {
    static char *chunk;
    static size_t left;
    size = (size + 15) & ~(size_t)15;
    if (size > LARGE) return sys_memory(round_up(size));
    if (size > left) {
        chunk = sys_memory(CHUNK);
        if (!chunk) return NULL;
        left = CHUNK;
    }
    char *place = chunk;
    chunk += size;
    left -= size;
    return place;
}

static void *extend(void *old, size_t room, size_t size) {
    return room > LARGE ? sys_extend(old, round_up(room), round_up(size)) : NULL;
}
#endif

void *take(size_t size) {
    void *place = size > JSON_LIMIT * (size_t)16 ? NULL : find_room(size);
    if (!place) {
        /* Without memory for a message: the line is fixed, and the log that is named in the arguments stays silent. */
        static const char said[] = "nodeagent-oci-shim: no memory\n";
        sys_write(2, said, sizeof said - 1);
        sys_exit(1);
    }
    return place;
}

void *grow(void *old, size_t used, size_t room, size_t size) {
    void *fresh = extend(old, room, size);
    if (fresh) return fresh;
    fresh = take(size);
    if (used) memcpy(fresh, old, used);
    return fresh;
}

void text_add(Text *text, const char *from, size_t size) {
    if (text->size + size + 1 > text->room) {
        size_t room = (text->size + size + 1) * 2;
        text->at = grow(text->at, text->size, text->room, room);
        text->room = room;
    }
    if (size) memcpy(text->at + text->size, from, size);
    text->size += size;
    text->at[text->size] = 0;
}

void text_say(Text *text, const char *words) {
    text_add(text, words, strlen(words));
}

void text_number(Text *text, uint64_t number, unsigned base) {
    char digits[24];
    size_t at = sizeof digits;
    do digits[--at] = "0123456789abcdef"[number % base];
    while (number /= base);
    text_add(text, digits + at, sizeof digits - at);
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
            text_say(text, "\\u00");
            text_add(text, &"0123456789abcdef"[each >> 4], 1);
            text_add(text, &"0123456789abcdef"[each & 15], 1);
        }
    }
    text_add(text, "\"", 1);
}

const char *text_end(Text *text) {
    text_add(text, "", 0);
    return text->at;
}

const char *join(const char *const *words) {
    Text text = {0};
    for (; *words; words++) text_say(&text, *words);
    return text_end(&text);
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
        names->at = grow(names->at, names->count * sizeof *names->at, names->room * sizeof *names->at,
                         room * sizeof *names->at);
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

bool same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static char lower(char each) {
    return each >= 'A' && each <= 'Z' ? (char)(each + 32) : each;
}

bool same_caseless(const char *a, const char *b) {
    while (*a && lower(*a) == lower(*b)) a++, b++;
    return lower(*a) == lower(*b);
}

bool begins(const char *text, const char *with) {
    while (*with && *text == *with) text++, with++;
    return !*with;
}

const char *find_char(const char *text, char wanted) {
    for (; *text; text++)
        if (*text == wanted) return text;
    return NULL;
}

const char *base_name(const char *path) {
    const char *name = path;
    for (; *path; path++)
        if (*path == '/') name = path + 1;
    return name;
}

bool read_number(const char *text, unsigned base, uint64_t limit, uint64_t *into) {
    uint64_t number = 0;
    if (!*text) return false;
    for (; *text; text++) {
        char each = lower(*text);
        unsigned digit = each >= '0' && each <= '9'   ? (unsigned)(each - '0')
                         : each >= 'a' && each <= 'f' ? (unsigned)(each - 'a' + 10)
                                                      : 16;
        if (digit >= base || number > (limit - digit) / base) return false;
        number = number * base + digit;
    }
    *into = number;
    return true;
}

void *sort_copy(const void *from, size_t count, size_t size, bool (*after)(const void *, const void *)) {
    char *sorted = grow((void *)(uintptr_t)from, count * size, 0, count * size + 1), *kept = take(size + 1);
    for (size_t each = 1; each < count; each++) {
        size_t at = each;
        memcpy(kept, sorted + each * size, size);
        for (; at && after(sorted + (at - 1) * size, kept); at--)
            memcpy(sorted + at * size, sorted + (at - 1) * size, size);
        memcpy(sorted + at * size, kept, size);
    }
    return sorted;
}
