/* What a container asks for: by annotation, by mount or by variable, in this order, and what of the driver it wants. */
#include "shim.h"

enum { NAMES_LIMIT = 4096 };

static const char AUTOMATIC[] = "runtime.nvidia.com/gpu=", MANAGEMENT[] = "management.nvidia.com/gpu=";
static const char MOUNTED[] = "/var/run/nvidia-container-devices";
static const char VISIBLE[] = "NVIDIA_VISIBLE_DEVICES";

const char *find_variable(const Names *environment, const char *name) {
    const char *found = NULL;
    size_t size = strlen(name);
    for (size_t each = 0; each < environment->count; each++) {
        const char *entry = environment->at[each];
        if (begins(entry, name) && entry[size] == '=') found = entry + size + 1;
    }
    return found;
}

bool is_on(const char *value) {
    static const char *const WORDS[] = {"1", "t", "T", "true", "TRUE", "True"};
    for (size_t each = 0; value && each < sizeof WORDS / sizeof *WORDS; each++)
        if (same(value, WORDS[each])) return true;
    return false;
}

static bool has_value(const char *value) {
    return value && *value;
}

static const Names *read_environment(const Document *document, const char **malformed) {
    static const char *const PATH[] = {"process", "env"};
    Names *environment = take(sizeof *environment);
    uint32_t list = json_find(document, PATH, 2);
    for (uint32_t each = json_first(document, list); each != JSON_NONE; each = json_after(document, list, each)) {
        const char *entry = json_string(document, each);
        if (entry && strchr(entry, '=')) names_add(environment, entry);
        else if (!*malformed) *malformed = entry ? entry : "(none that can be read)";
    }
    return environment;
}

/* CAP_SYS_ADMIN in the bounding set; the first drafts of the specification had one plain list. */
static bool is_privileged(const Document *document) {
    static const char *const PATH[] = {"process", "capabilities", "bounding"};
    uint32_t list = json_find(document, PATH, 2);
    if (!json_is(document, list, JSON_ARRAY)) list = json_find(document, PATH, 3);
    for (uint32_t each = json_first(document, list); each != JSON_NONE; each = json_after(document, list, each)) {
        const char *name = json_string(document, each);
        if (name && same(name, "CAP_SYS_ADMIN")) return true;
    }
    return false;
}

/* `void` is kept behind any number of others, because it makes nothing of all of them. */
static void add_once(Names *names, const char *name) {
    if (names_have(names, name)) return;
    if (names->count < NAMES_LIMIT || same(name, "void")) names_add(names, name);
    else names->is_cut = true;
}

/* The parts of a list with commas; what is empty is none. */
static void split(Names *into, const char *list, bool trims) {
    while (list) {
        size_t size = strcspn(list, ",");
        Slice name = {list, size};
        if (trims) name = trim(name);
        if (name.size) add_once(into, copy_slice(name));
        list = list[size] ? list + size + 1 : NULL;
    }
}

/* `vendor/class=name`. */
static bool is_qualified(const char *name) {
    const char *slash = strchr(name, '/'), *equals = strchr(name, '=');
    return slash && equals && name < slash && slash + 1 < equals && equals[1];
}

/* Names of other vendors in annotations are for the container engine, which has resolved them before we are called. */
static bool is_kind_ours(const Table *table, const char *name) {
    size_t size = (size_t)(strchr(name, '=') - name);
    const char *kind = copy_slice((Slice){name, size});
    if (table->is_head || same(kind, table->default_kind) || begins(name, AUTOMATIC)) return true;
    for (uint32_t each = 0; each < table->count; each++) {
        const Line *line = &table->lines[each];
        if (!same(line->fields[0], "device") || !same(line->fields[1], "cdi")) continue;
        if (begins(line->fields[5], kind) && line->fields[5][size] == '=') return true;
    }
    return false;
}

typedef struct {
    const char *key, *value;
    uint32_t place;
} Annotation;

static int compare(const void *left, const void *right) {
    const Annotation *a = left, *b = right;
    int order = strcmp(a->key, b->key);
    return order ? order : (a->place > b->place) - (a->place < b->place);
}

static Names read_annotations(const Document *document, const Table *table) {
    static const char *const PATH[] = {"annotations"};
    uint32_t object = json_find(document, PATH, 1);
    size_t count = 0, room = json_is(document, object, JSON_OBJECT) ? document->tokens[object].next - object : 0;
    Annotation *found = take((room + 1) * sizeof *found);
    for (uint32_t each = json_first(document, object); room && each != JSON_NONE;
         each = json_after(document, object, each)) {
        const char *key = json_string(document, each), *value = json_string(document, each + 1);
        bool counts = false;
        for (size_t prefix = 0; key && value && prefix < table->prefixes.count; prefix++)
            counts = counts || begins(key, table->prefixes.at[prefix]);
        if (counts) found[count++] = (Annotation){key, value, each};
    }
    qsort(found, count, sizeof *found, compare);
    Names names = {0}, ours = {0};
    for (size_t each = 0; each < count; each++)
        if (each + 1 == count || !same(found[each].key, found[each + 1].key)) split(&names, found[each].value, false);
    for (size_t each = 0; each < names.count; each++)
        if (!is_qualified(names.at[each]) || is_kind_ours(table, names.at[each])) names_add(&ours, names.at[each]);
    ours.is_cut = names.is_cut;
    return ours;
}

/* As the path is written when nothing in it is superfluous; NULL for one that does not begin at the root. */
static const char *clean(const char *path) {
    if (*path != '/') return NULL;
    Text text = {0};
    while (*path) {
        path += strspn(path, "/");
        size_t size = strcspn(path, "/");
        const char *component = copy_slice((Slice){path, size});
        path += size;
        if (same(component, "..")) {
            while (text.size && text.at[--text.size] != '/') continue;
        } else if (size && !same(component, ".")) {
            text_say(&text, "/");
            text_say(&text, component);
        }
    }
    return text.size ? text_end(&text) : "/";
}

/* `cdi/vendor/class/device` and `cdi/vendor/class=device` are both `vendor/class=device`; NULL for less than that. */
static const char *name_mounted(const char *place) {
    if (!begins(place, "cdi/")) return place;
    place += 4;
    const char *slash = strchr(place, '/'), *second = slash ? strchr(slash + 1, '/') : NULL;
    const char *equals = strchr(place, '=');
    if (slash && equals && equals > slash && (!second || equals < second)) return place;
    if (!second) return NULL;
    return compose("%.*s=%s", (int)(second - place), place, second + 1);
}

static void read_mounts(const Document *document, Names *devices, Names *channels, bool warns) {
    static const char *const PATH[] = {"mounts"};
    uint32_t list = json_find(document, PATH, 1);
    for (uint32_t each = json_first(document, list); each != JSON_NONE; each = json_after(document, list, each)) {
        const char *source = json_string(document, json_member(document, each, "source"));
        const char *place = json_string(document, json_member(document, each, "destination"));
        source = source ? clean(source) : NULL;
        place = place ? clean(place) : NULL;
        if (!source || !same(source, "/dev/null") || !place || !begins(place, MOUNTED)) continue;
        place += sizeof MOUNTED - 1;
        if (*place++ != '/') continue;
        const char *name = name_mounted(place);
        if (begins(place, "imex/")) add_once(channels, place + 5);
        else if (name) add_once(devices, name);
        else if (warns) warn("a mount that asks for a CDI device is passed over, since it names none: %s", place);
    }
}

static Names read_variables(const Wish *wish, const Table *table) {
    Names names = {0};
    bool is_set = false;
    for (size_t each = 0; each < table->swarm.count; each++) {
        const char *value = find_variable(wish->environment, table->swarm.at[each]);
        is_set = is_set || value;
        split(&names, value, true);
    }
    if (is_set) return names;
    const char *value = find_variable(wish->environment, VISIBLE);
    if (!value && wish->is_old_image) value = "all";
    split(&names, value, true);
    return names;
}

/* The namespace that containerd says a container is of. What CRI-O starts may have the pod's own annotations in this place. */
static const char *find_namespace(const Document *document) {
    static const char *const PATH[] = {"annotations"};
    const char *found = "";
    uint32_t object = json_find(document, PATH, 1);
    if (!json_is(document, object, JSON_OBJECT)) return found;
    for (uint32_t each = json_first(document, object); each != JSON_NONE; each = json_after(document, object, each)) {
        const char *key = json_string(document, each), *value = json_string(document, each + 1);
        if (!key || begins(key, "io.kubernetes.cri-o.")) return "";
        if (same(key, "io.kubernetes.cri.sandbox-namespace")) found = value ? value : "";
    }
    return found;
}

/* Every node of the driver, MIG rights among them, is for those who look after the node. */
static void check_management(const Wish *wish, const Table *table) {
    if (!wish->qualified || wish->privileged || names_have(&table->namespaces, find_namespace(wish->document))) return;
    for (size_t each = 0; each < wish->devices.count; each++)
        if (begins(wish->devices.at[each], MANAGEMENT))
            fail("%s is for privileged containers, and for those of the namespaces in shim.management_namespaces",
                 wish->devices.at[each]);
}

/* The plain names of GPUs that are asked for by NVIDIA's kind for what is made up at once; false where there is none. */
static bool read_automatic(const Names *names, const char *mode, Names *plain) {
    size_t automatic = 0, others = 0;
    for (size_t each = 0; each < names->count; each++) {
        const char *name = names->at[each];
        bool is_automatic = begins(name, AUTOMATIC) && name[sizeof AUTOMATIC - 1];
        automatic += is_automatic;
        others += !is_automatic && (same(mode, "cdi") || is_qualified(name));
        add_once(plain, is_automatic ? name + sizeof AUTOMATIC - 1 : name);
    }
    if (automatic && others)
        fail("devices of runtime.nvidia.com/gpu and other CDI devices cannot be asked for together");
    return automatic;
}

static void interpret(Wish *wish, const Table *table, const Names *names, const char *mode) {
    if (!names->count || names_have(names, "void")) return;
    wish->asked = true;
    if (names->is_cut) fail("more devices are asked for than any node has");
    Names plain = {0};
    if (!wish->legacy && read_automatic(names, mode, &plain)) names = &plain, mode = "auto";
    size_t qualified = 0;
    for (size_t each = 0; each < names->count; each++) {
        bool is_all = same(names->at[each], "all");
        if (!wish->all && !wish->none) wish->all = is_all, wish->none = same(names->at[each], "none");
        qualified += is_qualified(names->at[each]);
    }
    if (same(mode, "cdi")) {
        Names all = {0};
        wish->qualified = true;
        if (wish->all) names_add(&all, "all");
        const Names *wanted = wish->all ? &all : names;
        for (size_t each = 0; !wish->none && each < wanted->count; each++) {
            const char *name = wanted->at[each];
            names_add(&wish->devices, is_qualified(name) ? name : compose("%s=%s", table->default_kind, name));
        }
        wish->all = false;
        return;
    }
    if (wish->all || wish->none) return;
    wish->devices = *names;
    wish->qualified = !wish->legacy && qualified == names->count;
    if (qualified && qualified < names->count && !wish->legacy)
        fail("CDI names and other names of devices cannot be asked for together");
}

static const struct {
    const char *name;
    unsigned bit;
} CAPABILITIES[] = {
    {"compat32", SHIM_COMPAT32}, {"compute", SHIM_COMPUTE}, {"display", SHIM_DISPLAY}, {"graphics", SHIM_GRAPHICS},
    {"ngx", SHIM_NGX},           {"utility", SHIM_UTILITY}, {"video", SHIM_VIDEO},
};

static unsigned find_bit(const char *name) {
    for (size_t each = 0; each < sizeof CAPABILITIES / sizeof *CAPABILITIES; each++)
        if (same(CAPABILITIES[each].name, name)) return CAPABILITIES[each].bit;
    return 0;
}

static const char *list_capabilities(unsigned mask) {
    Text text = {0};
    for (size_t each = 0; each < sizeof CAPABILITIES / sizeof *CAPABILITIES; each++) {
        if (!(CAPABILITIES[each].bit & mask)) continue;
        text_say(&text, text.size ? "," : "");
        text_say(&text, CAPABILITIES[each].name);
    }
    return text_end(&text);
}

static unsigned read_capabilities(const Wish *wish, unsigned supported) {
    const char *value = find_variable(wish->environment, "NVIDIA_DRIVER_CAPABILITIES");
    if (!value && wish->is_old_image) return supported;
    Names names = {0};
    split(&names, value, true);
    if (!names.count) return (SHIM_COMPUTE | SHIM_UTILITY) & supported;
    if (names_have(&names, "all")) return supported;
    unsigned mask = 0;
    for (size_t each = 0; each < names.count; each++) {
        unsigned bit = find_bit(names.at[each]);
        if (!(bit & supported))
            fail("unsupported capabilities found in '%s' (allowed '%s')", value, list_capabilities(supported));
        mask |= bit;
    }
    return mask;
}

/* What variables add to GPUs that are asked for by their plain names. */
static void read_extras(Wish *wish) {
    static const char *const GATED[][2] = {
        {"NVIDIA_GDS", "gds"},
        {"NVIDIA_MOFED", "mofed"},
        {"NVIDIA_GDRCOPY", "gdrcopy"},
        {"NVIDIA_NVSWITCH", "nvswitch"},
    };
    static const char *const RIGHTS[][2] = {{"MIG_CONFIG_DEVICES", "mig-config"},
                                            {"MIG_MONITOR_DEVICES", "mig-monitor"}};
    for (size_t each = 0; each < 4; each++) {
        const char *value = find_variable(wish->environment, GATED[each][0]);
        if (value && same(value, "enabled")) names_add(&wish->extras, GATED[each][1]);
    }
    for (size_t each = 0; each < 2; each++) {
        const char *name = compose("NVIDIA_%s", RIGHTS[each][0]);
        if (!has_value(find_variable(wish->environment, name))) continue;
        if (!wish->privileged) fail("cannot set %s in non privileged container", RIGHTS[each][0]);
        names_add(&wish->extras, RIGHTS[each][1]);
    }
}

/* The first source that names something; tells in which mode it was read. */
static Names choose_source(Wish *wish, const Table *table, const char **mode, Names *channels) {
    if (!wish->legacy) {
        Names names = read_annotations(wish->document, table);
        size_t qualified = 0;
        for (size_t each = 0; each < names.count; each++) qualified += is_qualified(names.at[each]);
        if (names.count && (same(*mode, "cdi") || qualified == names.count)) return *mode = "cdi", names;
    }
    Names names = {0};
    if (table->accept_mounts) read_mounts(wish->document, &names, channels, true);
    bool accepts = table->accept_environment || wish->privileged;
    Names told = read_variables(wish, table);
    if (accepts && !channels->count) split(channels, find_variable(wish->environment, "NVIDIA_IMEX_CHANNELS"), true);
    if (names.count) return names;
    if (accepts) return told;
    if (told.count && !names_have(&told, "void"))
        warn("a container without privilege asks for GPUs by its environment, which is not accepted: it gets none");
    return names;
}

static Wish look_at(const Document *document) {
    Wish wish = {.document = document};
    wish.environment = read_environment(document, &wish.malformed);
    wish.is_old_image = has_value(find_variable(wish.environment, "CUDA_VERSION")) &&
                        !has_value(find_variable(wish.environment, "NVIDIA_REQUIRE_CUDA"));
    return wish;
}

/* Whatever the policy makes of it: that may be damaged, and is only believed with the whole table. */
bool may_ask(const Document *document, const Table *head) {
    Wish wish = look_at(document);
    Names told = read_variables(&wish, head), mounted = {0}, channels = {0};
    if (told.count && !names_have(&told, "void")) return true;
    read_mounts(document, &mounted, &channels, false);
    return mounted.count || read_annotations(document, head).count;
}

bool may_ask_in_words(const char *path, const Table *head) {
    Names words = {0};
    names_add(&words, VISIBLE);
    names_add(&words, "CUDA_VERSION");
    names_add(&words, base_name(MOUNTED));
    for (size_t each = 0; each < head->swarm.count; each++) names_add(&words, head->swarm.at[each]);
    for (size_t each = 0; each < head->prefixes.count; each++) names_add(&words, head->prefixes.at[each]);
    return file_mentions(path, &words);
}

Wish resolve(const Document *document, const Table *table, const char *mode) {
    Wish wish = look_at(document);
    wish.legacy = same(mode, "legacy");
    wish.privileged = is_privileged(document);
    Names channels = {0};
    Names names = choose_source(&wish, table, &mode, &channels);
    interpret(&wish, table, &names, mode);
    check_management(&wish, table);
    if (wish.asked && wish.malformed) fail("invalid environment variable: %s", wish.malformed);
    if (wish.asked && channels.is_cut) fail("more IMEX channels are asked for than any node has");
    wish.wanted = 0xff;
    if (!wish.asked || (wish.qualified && !wish.none)) return wish;
    wish.qualified = false;
    wish.wanted = SHIM_ALWAYS | read_capabilities(&wish, table->supported);
    read_extras(&wish);
    for (size_t each = 0; !table->ignore_imex && each < channels.count; each++)
        if (!same(channels.at[each], "all")) names_add(&wish.imex, channels.at[each]);
    return wish;
}
