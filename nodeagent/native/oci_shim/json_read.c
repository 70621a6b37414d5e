/* What a scanned JSON text says, as the reader of runc understands it. */
#include "shim.h"

bool json_is(const Document *document, uint32_t value, JsonKind kind) {
    return value != JSON_NONE && document->tokens[value].kind == kind;
}

uint32_t json_first(const Document *document, uint32_t value) {
    if (!json_is(document, value, JSON_OBJECT) && !json_is(document, value, JSON_ARRAY)) return JSON_NONE;
    return document->tokens[value].next > value + 1 ? value + 1 : JSON_NONE;
}

uint32_t json_after(const Document *document, uint32_t parent, uint32_t element) {
    uint32_t last = document->tokens[parent].kind == JSON_OBJECT ? element + 1 : element;
    uint32_t next = document->tokens[last].next;
    return next < document->tokens[parent].next ? next : JSON_NONE;
}

static uint32_t read_hex(const char *at) {
    uint32_t number = 0;
    for (int digit = 0; digit < 4; digit++, at++)
        number = number * 16 + (uint32_t)(*at <= '9' ? *at - '0' : (*at | 32) - 'a' + 10);
    return number;
}

static void add_rune(Text *text, uint32_t rune) {
    char bytes[4];
    size_t size = rune < 0x80 ? 1 : rune < 0x800 ? 2 : rune < 0x10000 ? 3 : 4;
    for (size_t each = size; each-- > 1; rune >>= 6) bytes[each] = (char)(0x80 | (rune & 0x3f));
    bytes[0] = (char)(size == 1 ? rune : rune | (0xf00u >> size & 0xff));
    text_add(text, bytes, size);
}

/* A backslash and what follows; two halves of a pair are one character, a half alone is U+FFFD. */
static const char *add_escape(Text *text, const char *at) {
    static const char LETTERS[] = "bfnrt", MEANT[] = "\b\f\n\r\t";
    if (at[1] != 'u') {
        const char *letter = strchr(LETTERS, at[1]);
        text_add(text, letter ? &MEANT[letter - LETTERS] : &at[1], 1);
        return at + 2;
    }
    uint32_t rune = read_hex(at + 2);
    at += 6;
    if (rune >= 0xd800 && rune < 0xe000) {
        uint32_t low = at[0] == '\\' && at[1] == 'u' ? read_hex(at + 2) : 0;
        bool is_pair = rune < 0xdc00 && low >= 0xdc00 && low < 0xe000;
        rune = is_pair ? 0x10000 + ((rune - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
        if (is_pair) at += 6;
    }
    add_rune(text, rune);
    return at;
}

/* How many bytes of valid UTF-8 one character has here; 0 when it is none. */
static size_t measure(const char *at, const char *end) {
    const unsigned char *text = (const unsigned char *)at;
    size_t size = text[0] < 0x80   ? 1
                  : text[0] < 0xc2 ? 0
                  : text[0] < 0xe0 ? 2
                  : text[0] < 0xf0 ? 3
                  : text[0] < 0xf5 ? 4
                                   : 0;
    if ((size_t)(end - at) < size) return 0;
    for (size_t each = 1; each < size; each++)
        if ((text[each] & 0xc0) != 0x80) return 0;
    bool is_long = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
    bool is_half = text[0] == 0xed && text[1] > 0x9f, is_beyond = text[0] == 0xf4 && text[1] > 0x8f;
    return size > 1 && (is_long || is_half || is_beyond) ? 0 : size;
}

const char *json_string(const Document *document, uint32_t value) {
    if (!json_is(document, value, JSON_STRING)) return NULL;
    const char *at = document->text + document->tokens[value].start + 1;
    const char *end = document->text + document->tokens[value].end - 1;
    Text text = {.room = (size_t)(end - at) + 1};
    text.at = take(text.room);
    while (at < end) {
        size_t size;
        if (*at == '\\') {
            at = add_escape(&text, at);
        } else if ((size = measure(at, end))) {
            text_add(&text, at, size);
            at += size;
        } else {
            add_rune(&text, 0xfffd);
            at++;
        }
    }
    return strlen(text.at) == text.size ? text.at : NULL;
}

bool json_number(const Document *document, uint32_t value, uint64_t *into) {
    if (!json_is(document, value, JSON_NUMBER)) return false;
    const Token *token = &document->tokens[value];
    const char *digits = copy_slice((Slice){document->text + token->start, token->end - token->start});
    return read_number(digits, 10, UINT32_MAX, into);
}

/* Go's reader takes a key for a field's when they differ in nothing but case, to which two letters beyond ASCII count. */
static bool is_key(const Document *document, uint32_t key, const char *wanted) {
    const char *name = json_string(document, key);
    if (!name) return false;
    Text folded = {0};
    for (; *name; name++) {
        if (begins(name, "\xc5\xbf")) text_say(&folded, "s"), name++;
        else if (begins(name, "\xe2\x84\xaa")) text_say(&folded, "k"), name += 2;
        else text_add(&folded, name, 1);
    }
    return same_caseless(text_end(&folded), wanted);
}

/* Most keys are told apart by their size alone, without a copy. */
static bool may_be_key(const Document *document, uint32_t key, const char *wanted) {
    const Token *token = &document->tokens[key];
    return token->end - token->start - 2 >= strlen(wanted);
}

static void look(const Document *document, uint32_t at, const char *const *path, size_t length, uint32_t *found) {
    if (!length) {
        *found = at;
        return;
    }
    if (json_is(document, at, JSON_NULL)) *found = JSON_NONE;
    if (!json_is(document, at, JSON_OBJECT)) return;
    for (uint32_t key = json_first(document, at); key != JSON_NONE; key = json_after(document, at, key))
        if (may_be_key(document, key, *path) && is_key(document, key, *path))
            look(document, key + 1, path + 1, length - 1, found);
}

uint32_t json_find(const Document *document, const char *const *path, size_t length) {
    uint32_t found = JSON_NONE;
    look(document, 0, path, length, &found);
    return found;
}

uint32_t json_member(const Document *document, uint32_t object, const char *key) {
    uint32_t found = JSON_NONE;
    if (object != JSON_NONE) look(document, object, &key, 1, &found);
    return found;
}
