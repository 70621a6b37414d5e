/* Reads a JSON text into a flat list of its values, by the grammar that runc's reader has, without changing or copying
 * it: what is spliced later stays in every other byte as it was. */
#include "shim.h"

enum Want { WANT_VALUE, WANT_VALUE_OR_END, WANT_KEY, WANT_KEY_OR_END, WANT_MORE };

static size_t skip_space(const Document *document, size_t at) {
    const char *text = document->text;
    while (at < document->size && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r')) at++;
    return at;
}

static bool is_digit(char each) {
    return each >= '0' && each <= '9';
}

static bool is_hex(char each) {
    return is_digit(each) || (each >= 'a' && each <= 'f') || (each >= 'A' && each <= 'F');
}

/* The end of the string that begins at `at`, 0 when it is none. The text ends with a NUL, which no string may have. */
static size_t end_string(const char *text, size_t at) {
    for (at++;; at++) {
        unsigned char each = (unsigned char)text[at];
        if (each == '"') return at + 1;
        if (each < 0x20) return 0;
        if (each != '\\') continue;
        each = (unsigned char)text[++at];
        if (each == 'u') {
            for (int digit = 1; digit <= 4; digit++)
                if (!is_hex(text[at + (size_t)digit])) return 0;
            at += 4;
        } else if (!each || !strchr("\"\\/bfnrt", (char)each)) {
            return 0;
        }
    }
}

static size_t end_number(const char *text, size_t at) {
    if (text[at] == '-') at++;
    if (!is_digit(text[at])) return 0;
    if (text[at] == '0') at++;
    else
        while (is_digit(text[at])) at++;
    if (text[at] == '.') {
        if (!is_digit(text[++at])) return 0;
        while (is_digit(text[at])) at++;
    }
    if (text[at] == 'e' || text[at] == 'E') {
        at++;
        if (text[at] == '+' || text[at] == '-') at++;
        if (!is_digit(text[at])) return 0;
        while (is_digit(text[at])) at++;
    }
    return at;
}

static size_t end_word(const char *text, size_t at, const char *word) {
    return begins(text + at, word) ? at + strlen(word) : 0;
}

static size_t end_scalar(const char *text, size_t at, JsonKind *kind) {
    switch (text[at]) {
    case '"': *kind = JSON_STRING; return end_string(text, at);
    case 't': *kind = JSON_TRUE; return end_word(text, at, "true");
    case 'f': *kind = JSON_FALSE; return end_word(text, at, "false");
    case 'n': *kind = JSON_NULL; return end_word(text, at, "null");
    default: *kind = JSON_NUMBER; return end_number(text, at);
    }
}

static uint32_t push(Document *document, JsonKind kind, size_t start, size_t end, uint32_t parent) {
    if (document->count == document->room) {
        uint32_t room = document->room ? document->room * 2 : 1024;
        document->tokens = grow(document->tokens, document->room * sizeof(Token), room * sizeof(Token));
        document->room = room;
    }
    uint32_t number = document->count++;
    document->tokens[number] = (Token){(uint32_t)start, (uint32_t)end, number + 1, parent, kind};
    return number;
}

static const char *complain(const char *what, size_t at) {
    return compose("%s at byte %zu", what, at);
}

const char *json_scan(Document *document, const char *text, size_t size) {
    *document = (Document){.text = text, .size = size, .tokens = document->tokens, .room = document->room};
    if (size > JSON_LIMIT) return "it is too large";
    uint32_t parent = JSON_NONE, depth = 0;
    enum Want want = WANT_VALUE;
    size_t at = 0, end;
    for (;;) {
        at = skip_space(document, at);
        if (at >= size) return complain("it ends too early,", at);
        char each = text[at];
        bool in_object = parent != JSON_NONE && document->tokens[parent].kind == JSON_OBJECT;
        if (want == WANT_MORE && each == ',') {
            want = in_object ? WANT_KEY : WANT_VALUE;
            at++;
        } else if (each == (in_object ? '}' : ']') &&
                   (want == WANT_MORE || want == WANT_KEY_OR_END || want == WANT_VALUE_OR_END)) {
            Token *token = &document->tokens[parent];
            token->end = (uint32_t)++at;
            token->next = document->count;
            parent = token->parent;
            depth--;
            want = WANT_MORE;
        } else if (want == WANT_MORE) {
            return complain("neither a comma nor an end", at);
        } else if (want == WANT_KEY || want == WANT_KEY_OR_END) {
            if (each != '"' || !(end = end_string(text, at))) return complain("no key", at);
            push(document, JSON_STRING, at, end, parent);
            at = skip_space(document, end);
            if (at >= size || text[at++] != ':') return complain("no colon", at);
            want = WANT_VALUE;
            continue;
        } else if (each == '{' || each == '[') {
            if (++depth > JSON_DEPTH) return complain("it is nested too deeply", at);
            parent = push(document, each == '{' ? JSON_OBJECT : JSON_ARRAY, at, at + 1, parent);
            want = each == '{' ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
            at++;
        } else {
            JsonKind kind;
            if (!(end = end_scalar(text, at, &kind)) || end > size) return complain("no value", at);
            push(document, kind, at, end, parent);
            at = end;
            want = WANT_MORE;
        }
        if (want == WANT_MORE && parent == JSON_NONE) return NULL;
    }
}
