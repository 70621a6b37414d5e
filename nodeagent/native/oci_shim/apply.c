/* Turns what was asked for into changes of the configuration. */
#include "shim.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { LISTS_LIMIT = 12 };

static const char *const ENV[] = {"process", "env"}, *const GROUPS[] = {"process", "user", "additionalGids"};
static const char *const MOUNTS[] = {"mounts"}, *const NODES[] = {"linux", "devices"};
static const char *const RULES[] = {"linux", "resources", "devices"}, *const PRESTART[] = {"hooks", "prestart"};

typedef struct {
    const Document *document;
    const Table *table;
    ListEdit lists[LISTS_LIMIT];
    size_t lists_count;
    Names env, groups, mounts, nodes, seen;
    const char *options; /* those of the mount before, which are mostly those of the next */
    Text options_said;
    uint64_t uid, gid;
} Work;

static ListEdit *find_list(Work *work, const char *const *path, size_t length) {
    for (size_t each = 0; each < work->lists_count; each++) {
        ListEdit *list = &work->lists[each];
        if (list->length == length && same(list->path[length - 1], path[length - 1]) && same(list->path[0], path[0]))
            return list;
    }
    if (work->lists_count == LISTS_LIMIT) fail("the table has hooks for more stages than there are");
    ListEdit *list = &work->lists[work->lists_count++];
    *list = (ListEdit){.path = path, .length = length};
    return list;
}

static Text *begin_element(Work *work, const char *const *path, size_t length) {
    Text *added = &find_list(work, path, length)->added;
    text_say(added, added->size ? "," : "");
    return added;
}

static void say_field(Text *text, const char *key, const char *value) {
    text_json(text, key);
    text_say(text, ":");
    text_json(text, value);
}

static void say_number(Text *text, const char *key, uint64_t number) {
    text_say(text, ",");
    text_json(text, key);
    text_say(text, ":");
    text_number(text, number);
}

static void say_list(Text *text, char **from, size_t count) {
    for (size_t each = 0; each < count; each++) {
        text_say(text, each ? "," : "");
        text_json(text, from[each]);
    }
}

static const char *name_of(const char *entry) {
    return copy_slice((Slice){entry, (size_t)(strchr(entry, '=') - entry)});
}

static void add_env(Work *work, const char *entry) {
    if (names_have(&work->env, name_of(entry))) return;
    names_add(&work->env, name_of(entry));
    text_json(begin_element(work, ENV, 2), entry);
}

static void add_group(Work *work, const char *gid) {
    uint32_t list = json_find(work->document, GROUPS, 3);
    uint64_t known, wanted = 0;
    read_number(gid, 10, UINT32_MAX, &wanted);
    for (uint32_t each = json_first(work->document, list); each != JSON_NONE;
         each = json_after(work->document, list, each))
        if (json_number(work->document, each, &known) && known == wanted) return;
    if (!wanted || names_have(&work->groups, gid)) return;
    names_add(&work->groups, gid);
    text_number(begin_element(work, GROUPS, 3), wanted);
}

/* Numbers, type and mode are those that the node has now, since a reboot or a new driver changes them. */
static void add_node(Work *work, char **fields) {
    const char *path = fields[2], *access = fields[4];
    uint64_t mode, gid;
    struct stat status;
    if (names_have(&work->nodes, path)) return;
    names_add(&work->nodes, path);
    if (lstat(fields[3], &status) < 0) fail("device node %s: %s", fields[3], describe_error(errno));
    if (!S_ISCHR(status.st_mode) && !S_ISBLK(status.st_mode)) fail("device node %s is none", fields[3]);
    const char *type = S_ISCHR(status.st_mode) ? "c" : "b";
    read_number(fields[5], 8, 07777, &mode);
    read_number(fields[6], 10, UINT32_MAX, &gid);
    Text *node = begin_element(work, NODES, 2);
    text_say(node, "{");
    say_field(node, "path", path);
    text_say(node, ",");
    say_field(node, "type", type);
    say_number(node, "major", major(status.st_rdev));
    say_number(node, "minor", minor(status.st_rdev));
    say_number(node, "fileMode", mode ? mode : status.st_mode & 07777);
    if (work->uid) say_number(node, "uid", work->uid);
    if (gid || work->gid) say_number(node, "gid", gid ? gid : work->gid);
    text_say(node, "}");
    if (same(access, "none")) return;
    Text *rule = begin_element(work, RULES, 3);
    text_say(rule, "{\"allow\":true,");
    say_field(rule, "type", type);
    say_number(rule, "major", major(status.st_rdev));
    say_number(rule, "minor", minor(status.st_rdev));
    text_say(rule, ",");
    say_field(rule, "access", access);
    text_say(rule, "}");
}

static void say_options(Work *work, const char *options) {
    if (work->options && same(work->options, options)) return;
    Text *said = &work->options_said;
    work->options = options;
    said->size = 0;
    text_say(said, ",\"options\":[");
    for (const char *at = options; at && *at;) {
        const char *comma = strchr(at, ',');
        text_say(said, at == options ? "" : ",");
        text_json(said, copy_slice((Slice){at, comma ? (size_t)(comma - at) : strlen(at)}));
        at = comma ? comma + 1 : NULL;
    }
    text_say(said, "]");
}

static void add_mount(Work *work, char **fields) {
    if (names_have(&work->mounts, fields[2])) return;
    names_add(&work->mounts, fields[2]);
    Text *mount = begin_element(work, MOUNTS, 1);
    text_say(mount, "{");
    say_field(mount, "destination", fields[2]);
    text_say(mount, ",");
    say_field(mount, "type", "bind");
    text_say(mount, ",");
    say_field(mount, "source", fields[3]);
    say_options(work, fields[4]);
    text_add(mount, work->options_said.at, work->options_said.size);
    text_say(mount, "}");
}

static void add_hook(Work *work, const Line *line) {
    const char **path = take(2 * sizeof *path);
    path[0] = "hooks";
    path[1] = line->fields[2];
    Text *hook = begin_element(work, path, 2);
    text_say(hook, "{");
    say_field(hook, "path", line->fields[3]);
    text_say(hook, ",\"args\":[");
    say_list(hook, line->fields + 4, line->count - 4);
    text_say(hook, "]}");
}

static void add_entry(Work *work, const Line *line) {
    const char *word = line->fields[0];
    if (same(word, "env")) add_env(work, line->fields[2]);
    else if (same(word, "gid")) add_group(work, line->fields[2]);
    else if (same(word, "node")) add_node(work, line->fields);
    else if (same(word, "mount")) add_mount(work, line->fields);
    else add_hook(work, line);
}

/* The sets of edits of a device, each once for a container. */
static void add_device(Work *work, const Line *device, unsigned wanted) {
    for (const char *at = device->fields[2]; at && *at;) {
        const char *comma = strchr(at, ',');
        const char *number = copy_slice((Slice){at, comma ? (size_t)(comma - at) : strlen(at)});
        at = comma ? comma + 1 : NULL;
        if (names_have(&work->seen, number)) continue;
        names_add(&work->seen, number);
        uint64_t edits = 0, mask = 0;
        read_number(number, 10, UINT32_MAX, &edits);
        const Line *end = work->table->lines + work->table->count;
        for (const Line *line = &work->table->lines[work->table->edits[edits]] + 1; line < end; line++) {
            if (same(line->fields[0], "edits") || same(line->fields[0], "device")) break;
            read_number(line->fields[1], 16, 0xff, &mask);
            if (mask & wanted) add_entry(work, line);
        }
    }
}

static const Line *need(const Table *table, const char *kind, const char *name, bool legacy) {
    const Line *line = table_find(table, kind, name, legacy);
    if (!line && same(kind, "gpu")) line = table_find(table, "parent", name, legacy);
    if (!line && same(kind, "cdi")) fail("unresolvable CDI device %s", name);
    if (!line && legacy) fail("unknown device '%s'", name);
    if (!line)
        fail("%s '%s' is not on this node: neither a UUID nor an index that it has",
             same(kind, "imex") ? "IMEX channel" : "GPU", name);
    return line;
}

static void add_devices(Work *work, const Wish *wish) {
    const Table *table = work->table;
    const Line **devices = take((table->count + wish->devices.count + 1) * sizeof *devices);
    size_t count = 0;
    for (uint32_t each = 0; wish->all && each < table->count; each++) {
        const Line *line = &table->lines[each];
        if (same(line->fields[0], "device") && same(line->fields[1], "gpu")) devices[count++] = line;
    }
    if (wish->all && !count) fail("all GPUs are asked for, and this node has none");
    for (size_t each = 0; each < wish->devices.count; each++)
        devices[count++] = need(table, wish->qualified ? "cdi" : "gpu", wish->devices.at[each], wish->legacy);
    if (!wish->qualified && !table->disable_require)
        check_requirements(wish,
                           &(Facts){.cuda = table->cuda, .driver = table->driver, .devices = devices, .count = count});
    for (size_t each = 0; each < count; each++) add_device(work, devices[each], wish->wanted);
    if (wish->qualified) return;
    const Line *common = table_find(table, "extra", "common", false);
    if (!common) fail("GPUs are asked for, and the driver of this node has no files");
    add_device(work, common, wish->wanted);
    for (size_t each = 0; each < wish->extras.count; each++) {
        const Line *extra = table_find(table, "extra", wish->extras.at[each], false);
        if (extra) add_device(work, extra, 0xff);
        else warn("a container asks for %s, which this node does not have", wish->extras.at[each]);
    }
    for (size_t each = 0; each < wish->imex.count; each++)
        add_device(work, need(table, "imex", wish->imex.at[each], false), 0xff);
}

/* ---- what makes room ------------------------------------------------------------------------------------------------ */

static bool is_foreign_hook(const Document *document, uint32_t hook) {
    const char *path = json_string(document, json_member(document, hook, "path"));
    return path && (same(base_name(path), "nvidia-container-runtime-hook") ||
                    same(base_name(path), "nvidia-container-toolkit"));
}

static bool is_replaced(const Work *work, const char *const *path, uint32_t element) {
    if (path == PRESTART) return is_foreign_hook(work->document, element);
    if (path == ENV) {
        const char *entry = json_string(work->document, element);
        return entry && names_have(&work->env, name_of(entry));
    }
    const char *place =
        json_string(work->document, json_member(work->document, element, path == MOUNTS ? "destination" : "path"));
    return place && names_have(path == MOUNTS ? &work->mounts : &work->nodes, place);
}

static void drop(Work *work, const char *const *path, size_t length) {
    uint32_t list = json_find(work->document, path, length), room = 0;
    bool drops_any = false;
    if (!json_is(work->document, list, JSON_ARRAY)) return;
    room = work->document->tokens[list].next - list;
    bool *drops = take(room);
    size_t number = 0;
    for (uint32_t each = json_first(work->document, list); each != JSON_NONE;
         each = json_after(work->document, list, each))
        drops_any = (drops[number++] = is_replaced(work, path, each)) || drops_any;
    if (drops_any) find_list(work, path, length)->drops = drops;
}

bool apply(const Document *document, const Table *table, const Wish *wish, Text *into) {
    static const char *const UID[] = {"process", "user", "uid"}, *const GID[] = {"process", "user", "gid"};
    Work *work = take(sizeof *work);
    *work = (Work){.document = document, .table = table};
    json_number(document, json_find(document, UID, 3), &work->uid);
    json_number(document, json_find(document, GID, 3), &work->gid);
    if (!work->uid) work->gid = 0;
    if (wish->asked) add_devices(work, wish);
    drop(work, PRESTART, 2);
    if (wish->asked) {
        drop(work, ENV, 2);
        drop(work, MOUNTS, 1);
        drop(work, NODES, 2);
    }
    if (!work->lists_count) return false;
    *into = splice_lists(document, work->lists, work->lists_count);
    return true;
}
