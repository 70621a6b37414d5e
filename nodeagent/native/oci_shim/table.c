/* Reads the table of the agent and believes nothing of it beyond its checksum: every line has the fields of its word,
 * every number is in bounds, every set of edits that is named is there. */
#include "shim.h"

#include <inttypes.h>
#include <stdio.h>

#include "sha256.h"

typedef struct {
    const char *word;
    uint32_t least, most;
} Shape;

static const Shape SHAPES[] = {
    {"set", 3, 3},       {"runtime", 2, 2},
    {"swarm", 2, 2},     {"prefix", 2, 2},
    {"namespace", 2, 2}, {"version", 3, 3},
    {"fresh", 3, 3},     {"edits", 2, 2},
    {"env", 3, 3},       {"node", 7, 7},
    {"mount", 5, 5},     {"hook", 4, SHIM_FIELDS_LIMIT},
    {"gid", 3, 3},       {"device", 6, SHIM_FIELDS_LIMIT},
};
static const char *const SETTINGS[] = {SHIM_SETTINGS};
static const char *const EXTRAS[] = {SHIM_EXTRAS};
static const char *const KINDS[] = {"gpu", "parent", "imex", "cdi", "extra", NULL};

enum { SETTINGS_COUNT = sizeof SETTINGS / sizeof *SETTINGS, ALL_SETTINGS = (1 << SETTINGS_COUNT) - 1 };

static void use_defaults(Table *table) {
    *table = (Table){
        .accept_environment = true,
        .mode = "auto",
        .default_kind = "nvidia.com/gpu",
        .supported = 0x7f,
        .debug = "",
        .cuda = "",
        .driver = "",
    };
    names_add(&table->runtimes, "runc");
    names_add(&table->runtimes, "crun");
    names_add(&table->prefixes, "cdi.k8s.io/");
}

/* The three fields of the first line, and the body behind it; or what is wrong. */
static const char *split_seal(Text *content, char *fields[3], char **body, size_t *size) {
    static const char HEAD[] = SHIM_TABLE_NAME " ";
    char *at = content->at, *end = strchr(at, '\n');
    if (!end || end - at > SHIM_SEAL_LIMIT || !begins(at, HEAD)) return "its first line is damaged";
    *end = 0;
    at += sizeof HEAD - 1;
    for (int each = 0; each < 3; each++) {
        fields[each] = at;
        char *blank = strchr(at, ' ');
        if (!blank != (each == 2)) return "its first line is damaged";
        if (blank) *blank = 0, at = blank + 1;
    }
    uint64_t version;
    if (!read_number(fields[0], 10, UINT32_MAX, &version)) return "its first line is damaged";
    if (version != SHIM_TABLE_VERSION) return compose("it is of version %s, this program reads another", fields[0]);
    *body = end + 1;
    *size = content->size - (size_t)(end + 1 - content->at);
    return NULL;
}

static const char *open_seal(Text *content, char **body, size_t *size) {
    char *fields[3];
    uint64_t length;
    const char *wrong = split_seal(content, fields, body, size);
    if (wrong) return wrong;
    if (!read_number(fields[1], 10, SHIM_TABLE_LIMIT, &length) || length != *size) return "it is not whole";
    unsigned char sum[32];
    char told[2 * sizeof sum + 1];
    sha256(*body, *size, sum);
    for (size_t each = 0; each < sizeof sum; each++) sprintf(told + 2 * each, "%02x", sum[each]);
    return same(told, fields[2]) ? NULL : "its checksum is wrong";
}

static bool split(Table *table, char *body, size_t size) {
    size_t lines = 0, fields = 0;
    for (size_t each = 0; each < size; each++) {
        lines += body[each] == '\n';
        fields += body[each] == '\n' || body[each] == '\t';
        if (!body[each]) return false;
    }
    if (lines > SHIM_LINES_LIMIT || (size && body[size - 1] != '\n')) return false;
    char **all = take((fields + 1) * sizeof *all), *begin = body;
    table->lines = take((lines + 1) * sizeof(Line));
    table->edits = take((lines + 1) * sizeof(uint32_t));
    Line *line = table->lines;
    line->fields = all;
    for (size_t each = 0; each < size; each++) {
        if (body[each] != '\n' && body[each] != '\t') continue;
        line->fields[line->count++] = begin;
        begin = body + each + 1;
        if (body[each] == '\n') {
            line[1].fields = line->fields + line->count;
            line++;
            table->count++;
        }
        body[each] = 0;
    }
    return true;
}

static bool is_flag(const char *value, bool *into) {
    *into = same(value, "1");
    return *into || same(value, "0");
}

static bool take_setting(Table *table, const char *key, const char *value) {
    uint64_t mask;
    if (same(key, "accept_environment")) return is_flag(value, &table->accept_environment);
    if (same(key, "accept_mounts")) return is_flag(value, &table->accept_mounts);
    if (same(key, "disable_require")) return is_flag(value, &table->disable_require);
    if (same(key, "ignore_imex")) return is_flag(value, &table->ignore_imex);
    if (same(key, "mode"))
        return table->mode = value, same(value, "auto") || same(value, "cdi") || same(value, "legacy");
    if (same(key, "default_kind")) return table->default_kind = value, strchr(value, '/') != NULL;
    if (same(key, "supported")) return read_number(value, 16, 0x7f, &mask) && (table->supported = (unsigned)mask, true);
    return table->debug = value, !*value || *value == '/';
}

static unsigned number_setting(const char *key) {
    for (unsigned each = 0; each < SETTINGS_COUNT; each++)
        if (same(SETTINGS[each], key)) return 1u << each;
    return 0;
}

static bool is_word(const char *const *list, size_t count, const char *word) {
    for (size_t each = 0; each < count && list[each]; each++)
        if (same(list[each], word)) return true;
    return false;
}

/* Numbers of edits with commas between; none is fine. */
static bool are_edits(const Table *table, const char *list) {
    while (*list) {
        const char *comma = strchr(list, ',');
        const char *one = comma ? copy_slice((Slice){list, (size_t)(comma - list)}) : list;
        uint64_t number;
        if (!read_number(one, 10, UINT32_MAX, &number) || number >= table->edits_count) return false;
        if (!comma) break;
        list = comma + 1;
        if (!*list) return false;
    }
    return true;
}

static bool take_line(Table *table, const Line *line, bool in_edits) {
    char **fields = line->fields;
    uint64_t number;
    const char *word = fields[0];
    if (same(word, "set")) return number_setting(fields[1]) && take_setting(table, fields[1], fields[2]);
    if (same(word, "runtime")) return names_add(&table->runtimes, fields[1]), *fields[1];
    if (same(word, "swarm")) return names_add(&table->swarm, fields[1]), *fields[1];
    if (same(word, "prefix")) return names_add(&table->prefixes, fields[1]), *fields[1];
    if (same(word, "namespace")) return names_add(&table->namespaces, fields[1]), *fields[1];
    if (same(word, "version")) {
        if (same(fields[1], "cuda")) return table->cuda = fields[2], true;
        return table->driver = fields[2], same(fields[1], "driver");
    }
    if (same(word, "fresh")) return fields[1][0] == '/';
    if (same(word, "edits")) {
        if (!read_number(fields[1], 10, UINT32_MAX, &number) || number != table->edits_count) return false;
        return table->edits[table->edits_count++] = (uint32_t)(line - table->lines), true;
    }
    if (same(word, "device")) {
        if (!is_word(KINDS, 5, fields[1]) || !are_edits(table, fields[2])) return false;
        return !same(fields[1], "extra") ||
               (line->count == 6 && is_word(EXTRAS, sizeof EXTRAS / sizeof *EXTRAS, fields[5]));
    }
    if (!in_edits || !read_number(fields[1], 16, 0xff, &number)) return false;
    if (same(word, "env")) return strchr(fields[2], '=') && fields[2][0] != '=';
    if (same(word, "gid")) return read_number(fields[2], 10, UINT32_MAX, &number);
    if (same(word, "mount")) return fields[2][0] == '/' && fields[3][0] == '/';
    if (same(word, "hook")) return *fields[2] && fields[3][0] == '/';
    return fields[2][0] == '/' && fields[3][0] == '/' && read_number(fields[5], 8, 07777, &number) &&
           read_number(fields[6], 10, UINT32_MAX, &number);
}

static const char *read_lines(Table *table) {
    bool in_edits = false;
    unsigned set = 0;
    for (uint32_t each = 0; each < table->count; each++) {
        const Line *line = &table->lines[each];
        bool is_known = false;
        for (size_t shape = 0; shape < sizeof SHAPES / sizeof *SHAPES; shape++)
            if (same(SHAPES[shape].word, line->fields[0]))
                is_known = line->count >= SHAPES[shape].least && line->count <= SHAPES[shape].most;
        if (!is_known || !take_line(table, line, in_edits))
            return compose("its line %" PRIu32 " is none that this program knows", each + 2);
        if (same(line->fields[0], "set")) set |= number_setting(line->fields[1]);
        in_edits = (in_edits || same(line->fields[0], "edits")) && !same(line->fields[0], "device");
    }
    return set == ALL_SETTINGS && table->runtimes.count ? NULL : "it lacks a setting";
}

/* The driver, or the machine's boot, may be another than the one that the table was made for. */
static const char *find_stale(const Table *table) {
    for (uint32_t each = 0; each < table->count; each++) {
        char **fields = table->lines[each].fields;
        if (!same(fields[0], "fresh")) continue;
        Text found = {0};
        int error = read_file(fields[1], 4096, false, &found);
        if (error) return compose("it is stale, since %s cannot be read: %s", fields[1], describe_error(error));
        found.at[strcspn(found.at, "\n")] = 0;
        if (!same(found.at, fields[2]))
            return compose("it is stale: %s says %s and not %s", fields[1], found.at, fields[2]);
    }
    return NULL;
}

static const char *load(Table *table, const char *path) {
    Text content = {0};
    int error = read_file(path, SHIM_TABLE_LIMIT + SHIM_SEAL_LIMIT, true, &content);
    if (error) return describe_error(error);
    char *body = NULL;
    size_t size = 0;
    const char *wrong = open_seal(&content, &body, &size);
    if (wrong) return wrong;
    *table = (Table){.cuda = "", .driver = ""};
    if (!split(table, body, size)) return "it has too many lines, or half a line";
    wrong = read_lines(table);
    return wrong ? wrong : find_stale(table);
}

const char *table_load(Table *table, const char *directory) {
    const char *path = compose("%s/%s", directory, SHIM_TABLE_FILE);
    const char *wrong = load(table, path);
    if (!wrong) return NULL;
    use_defaults(table);
    return compose("%s: %s", path, wrong);
}

/* As much of the text as whole lines of policy reach. */
static size_t measure_policy(const char *body) {
    static const char *const WORDS[] = {"set\t",       "runtime\t", "swarm\t", "prefix\t",
                                        "namespace\t", "version\t", "fresh\t"};
    const char *at = body;
    for (;;) {
        bool is_policy = false;
        for (size_t each = 0; each < sizeof WORDS / sizeof *WORDS; each++)
            is_policy = is_policy || begins(at, WORDS[each]);
        const char *end = strchr(at, '\n');
        if (!is_policy || !end) return (size_t)(at - body);
        at = end + 1;
    }
}

bool table_peek(Table *table, const char *directory) {
    enum { HEAD_LIMIT = 16384 };
    Text content = {0};
    char *fields[3], *body;
    size_t size;
    use_defaults(table);
    table->is_head = true;
    if (read_head(compose("%s/%s", directory, SHIM_TABLE_FILE), HEAD_LIMIT, &content)) return false;
    if (split_seal(&content, fields, &body, &size)) return false;
    Table head = {.cuda = "", .driver = "", .is_head = true};
    if (!split(&head, body, measure_policy(body)) || read_lines(&head)) return false;
    *table = head;
    return true;
}

bool table_passes(const char *directory) {
    Text said = {0};
    const char *path = compose("%s/%s", directory, SHIM_ON_MISSING_FILE);
    return read_file(path, 16, true, &said) == 0 && same(said.at, "pass\n");
}

const Line *table_find(const Table *table, const char *kind, const char *name, bool legacy) {
    for (uint32_t each = 0; each < table->count; each++) {
        const Line *line = &table->lines[each];
        if (!same(line->fields[0], "device") || !same(line->fields[1], kind)) continue;
        for (uint32_t field = 5; field < line->count; field++) {
            const char *known = line->fields[field];
            if (legacy ? same_caseless(known + (*known == '~'), name) : *known != '~' && same(known, name)) return line;
        }
    }
    return NULL;
}
