/* What the parts of the runtime shim know of one another; README.md says which part does what. */
#ifndef NODEAGENT_SHIM_H
#define NODEAGENT_SHIM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../include/shim_table.h"

enum { JSON_LIMIT = 16 << 20 };

/* ---- memory.c ------------------------------------------------------------------------------------------------------ */

enum { MEMORY_LIMIT = JSON_LIMIT * 16 }; /* of one piece */

void *take(size_t size);                         /* zeroed; ends the program when there is none */
void *grow(void *old, size_t room, size_t size); /* what was taken with this room, larger; the old memory is gone */

/* ---- text.c --------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *at;
    size_t size;
} Slice;
typedef struct {
    char *at;
    size_t size, room;
} Text;
/* places: where a name is, from 1 on; is_cut: there were more than any node has devices */
typedef struct {
    const char **at;
    uint32_t *places;
    size_t count, room;
    bool is_cut;
} Names;

void text_add(Text *text, const char *from, size_t size);
void text_say(Text *text, const char *words);
void text_number(Text *text, uint64_t number);
void text_json(Text *text, const char *words); /* with quotes */
const char *text_end(Text *text);              /* as a C string */
char *compose(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
char *compose_from(const char *pattern, va_list values) __attribute__((format(printf, 1, 0)));
void names_add(Names *names, const char *name);
bool names_have(const Names *names, const char *name);
const char *copy_slice(Slice slice);
Slice trim(Slice name); /* without white space before and behind it */
const char *base_name(const char *path);
bool read_number(const char *text, int base, uint64_t limit, uint64_t *into); /* digits alone */

static inline bool same(const char *a, const char *b) {
    return !strcmp(a, b);
}

static inline bool same_caseless(const char *a, const char *b) {
    return !strcasecmp(a, b);
}

static inline bool begins(const char *text, const char *with) {
    return !strncmp(text, with, strlen(with));
}

/* ---- report.c: one line for people ---------------------------------------------------------------------------- */

void report_to(const char *log, bool json); /* the low-level runtime's own log, from the arguments */
void report_debug(const char *path);        /* a second place; nothing for none */
void fail(const char *pattern, ...) __attribute__((format(printf, 1, 2), noreturn));
void warn(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
const char *describe_error(int error); /* an errno */

/* ---- files.c ------------------------------------------------------------------------------------------------------ */

/* The whole file: 0 or an errno, EFBIG for one beyond the limit. The text ends with a NUL that is not counted. */
int read_file(const char *path, size_t limit, bool only_roots, Text *into);
int read_head(const char *path, size_t limit, Text *into); /* about so much of it, of root's own files */
/* By a new file and rename, which takes the place of a link too. NULL, or what went wrong. */
const char *replace_file(const char *path, const Text *content);
/* one of the words, however long the file is; or the file cannot be read */
bool file_mentions(const char *path, const Names *words);

/* ---- arguments.c -------------------------------------------------------------------------------------------------- */

typedef struct {
    bool creates, log_json;
    const char *bundle, *log;
} Call;

Call read_arguments(char **arguments);

/* ---- launch.c ------------------------------------------------------------------------------------------------------ */

void launch(const Names *candidates, char **arguments) __attribute__((noreturn));

/* ---- json_scan.c ---------------------------------------------------------------------------------------------------- */

enum { JSON_NONE = UINT32_MAX, JSON_DEPTH = 10000 };
typedef enum { JSON_OBJECT, JSON_ARRAY, JSON_STRING, JSON_NUMBER, JSON_TRUE, JSON_FALSE, JSON_NULL } JsonKind;
typedef struct {
    uint32_t start, end, next, parent;
    JsonKind kind;
} Token;
typedef struct {
    const char *text;
    size_t size;
    Token *tokens;
    uint32_t count, room;
} Document;

/* Scans one value; what is behind it is nobody's business, as in runc. NULL, or what is wrong. */
const char *json_scan(Document *document, const char *text, size_t size);
/* The value at a path of keys, as Go reads it: whatever case, the last one counts, and objects of one key are one.
 * JSON_NONE when there is none; a null is found. */
uint32_t json_find(const Document *document, const char *const *path, size_t length);
/* The first element or key in a value, or JSON_NONE, and the one after it. */
uint32_t json_first(const Document *document, uint32_t value);
uint32_t json_after(const Document *document, uint32_t parent, uint32_t element);
const char *json_string(const Document *document, uint32_t value); /* decoded; NULL for what is none or has a NUL */
bool json_is(const Document *document, uint32_t value, JsonKind kind);
bool json_number(const Document *document, uint32_t value, uint64_t *into);
uint32_t json_member(const Document *document, uint32_t object, const char *key); /* the last, as json_find */

/* ---- splice.c ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *const *path;
    size_t length;
    Text added;
    bool *drops;
} ListEdit;

/* The text with elements added to the list at each path, and without those whose number is in `drops`. All else stays. */
Text splice_lists(const Document *document, const ListEdit *edits, size_t count);

/* ---- table.c -------------------------------------------------------------------------------------------------------- */

typedef struct {
    char **fields;
    uint32_t count;
} Line;
typedef struct {
    Line *lines;
    uint32_t count;
    uint32_t *edits; /* the line of each number */
    uint32_t edits_count;
    bool accept_environment, accept_mounts, disable_require, ignore_imex;
    bool is_head; /* the policy alone */
    const char *mode, *default_kind, *debug, *cuda, *driver;
    unsigned supported;
    Names runtimes, swarm, prefixes, namespaces;
} Table;

/* Without one that can be used: what is wrong with it, and the policy of a toolkit that nobody has configured. */
const char *table_load(Table *table, const char *directory);
/* The policy, which comes first, without the checksum over all of it: enough for whatever asks for nothing. */
bool table_peek(Table *table, const char *directory);
bool table_passes(const char *directory); /* what to do then */
const Line *table_find(const Table *table, const char *kind, const char *name, bool legacy);

/* ---- resolve.c: what a container asks for ------------------------------------------------------------------------ */

typedef struct {
    bool asked, none, all, qualified, legacy, is_old_image, privileged;
    Names devices, imex, extras;
    unsigned wanted; /* capabilities */
    const Document *document;
    const Names *environment;
    const char *malformed; /* the first variable that is none; NULL for none */
} Wish;

Wish resolve(const Document *document, const Table *table, const char *mode);
/* False when it surely asks for nothing; of the table only the head is needed. */
bool may_ask(const Document *document, const Table *head);
/* False when a file that is no document that can be understood has no word in it with which a container asks. */
bool may_ask_in_words(const char *path, const Table *head);
const char *find_variable(const Names *environment, const char *name); /* the last counts; NULL when it is not set */
bool is_on(const char *value);                                         /* as Go reads a boolean */

/* ---- require.c ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *cuda, *driver;
    const Line *const *devices;
    size_t count;
} Facts;

void check_requirements(const Wish *wish, const Facts *facts); /* ends the program when one is not met */

/* ---- apply.c ------------------------------------------------------------------------------------------------------ */

/* The document as it should be; false when it is right as it is. */
bool apply(const Document *document, const Table *table, const Wish *wish, Text *into);

#endif
