/* Changes a JSON text in places: elements are added to lists and taken out of them, and every other byte stays. */
#include "shim.h"

typedef struct {
    size_t at, cut, order;
    Text put;
} Cut;
typedef struct {
    Cut *cuts;
    size_t count, room;
} Cuts;

static void cut(Cuts *cuts, size_t at, size_t size, Text put) {
    if (cuts->count == cuts->room) {
        size_t room = cuts->room ? cuts->room * 2 : 32;
        cuts->cuts = grow(cuts->cuts, cuts->room * sizeof(Cut), room * sizeof(Cut));
        cuts->room = room;
    }
    cuts->cuts[cuts->count] = (Cut){at, size, cuts->count, put};
    cuts->count++;
}

static int compare(const void *left, const void *right) {
    const Cut *a = left, *b = right;
    return a->at != b->at ? (a->at > b->at) - (a->at < b->at) : (a->order > b->order) - (a->order < b->order);
}

static Text carry_out(const Document *document, const Cuts *cuts) {
    Text text = {0};
    if (cuts->count) qsort(cuts->cuts, cuts->count, sizeof(Cut), compare);
    size_t at = 0;
    for (size_t each = 0; each < cuts->count; each++) {
        const Cut *next = &cuts->cuts[each];
        text_add(&text, document->text + at, next->at - at);
        if (next->put.size) text_add(&text, next->put.at, next->put.size);
        at = next->at + next->cut;
    }
    text_add(&text, document->text + at, document->size - at);
    return text;
}

/* Takes each dropped element with the comma before it, or behind it where nothing that stays is before. */
static void edit_list(Cuts *cuts, const Document *document, uint32_t list, const ListEdit *edit) {
    bool keeps = false;
    size_t end = document->tokens[list].start + 1, number = 0;
    for (uint32_t each = json_first(document, list); each != JSON_NONE; number++) {
        const Token *token = &document->tokens[each];
        uint32_t next = json_after(document, list, each);
        bool drops = edit->drops && edit->drops[number];
        if (drops && keeps) cut(cuts, end, token->end - end, (Text){0});
        else if (drops)
            cut(cuts, token->start, (next == JSON_NONE ? token->end : document->tokens[next].start) - token->start,
                (Text){0});
        else keeps = true;
        end = token->end;
        each = next;
    }
    if (!edit->added.size) return;
    Text put = {0};
    text_say(&put, keeps ? "," : "");
    text_add(&put, edit->added.at, edit->added.size);
    cut(cuts, end, 0, put);
}

/* `{"resources":{"devices":[…]}}`, for as much of the path as is not there. */
static Text nest(const ListEdit *edit, size_t from) {
    Text text = {0};
    for (size_t each = from; each < edit->length; each++) {
        text_say(&text, "{");
        text_json(&text, edit->path[each]);
        text_say(&text, ":");
    }
    text_say(&text, "[");
    text_add(&text, edit->added.at, edit->added.size);
    text_say(&text, "]");
    for (size_t each = from; each < edit->length; each++) text_say(&text, "}");
    return text;
}

static void add_member(Cuts *cuts, const Document *document, uint32_t object, const char *name, Text value) {
    Text put = {0};
    size_t end = document->tokens[object].start + 1;
    for (uint32_t key = json_first(document, object); key != JSON_NONE; key = json_after(document, object, key))
        end = document->tokens[key + 1].end;
    text_say(&put, json_first(document, object) != JSON_NONE ? "," : "");
    text_json(&put, name);
    text_say(&put, ":");
    text_add(&put, value.at, value.size);
    cut(cuts, end, 0, put);
}

/* Where the list is not there, nor perhaps the object that it belongs in; a null gives way. */
static void make_list(Cuts *cuts, const Document *document, const ListEdit *edit) {
    for (size_t length = edit->length + 1; length-- > 0;) {
        uint32_t found = json_find(document, edit->path, length);
        if (found == JSON_NONE) continue;
        const Token *token = &document->tokens[found];
        if (length && token->kind == JSON_NULL) {
            cut(cuts, token->start, token->end - token->start, nest(edit, length));
        } else if (length < edit->length && token->kind == JSON_OBJECT) {
            add_member(cuts, document, found, edit->path[length], nest(edit, length + 1));
        } else {
            fail("config.json: %s is of the wrong kind", length ? edit->path[length - 1] : "all of it");
        }
        return;
    }
}

Text splice_lists(const Document *document, const ListEdit *edits, size_t count) {
    Document now = *document;
    Cuts cuts = {0};
    /* What is missing is made first, one list after the other, since two of them may want the same new object. */
    for (size_t each = 0; each < count; each++) {
        uint32_t list = json_find(&now, edits[each].path, edits[each].length);
        if (json_is(&now, list, JSON_ARRAY) || !edits[each].added.size) continue;
        cuts.count = 0;
        make_list(&cuts, &now, &edits[each]);
        Text text = carry_out(&now, &cuts);
        if (now.tokens == document->tokens) now.tokens = NULL, now.room = 0;
        const char *wrong = json_scan(&now, text.at, text.size);
        if (wrong) fail("config.json cannot be extended: %s", wrong);
    }
    cuts.count = 0;
    for (size_t each = 0; each < count; each++) {
        uint32_t list = json_find(document, edits[each].path, edits[each].length);
        if (json_is(document, list, JSON_ARRAY))
            edit_list(&cuts, &now, json_find(&now, edits[each].path, edits[each].length), &edits[each]);
    }
    return carry_out(&now, &cuts);
}
