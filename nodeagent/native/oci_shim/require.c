/* What an image demands of the driver: alternatives with blanks between, each of terms with commas between. */
#include "shim.h"

#include <inttypes.h>

typedef enum { EQUAL, DIFFERENT, LESS, AT_MOST, MORE, AT_LEAST, NO_OPERATOR } Operator;
typedef struct {
    uint64_t parts[8];
    size_t count;
} Version;

/* Numbers with dots between, which are all there is. */
static bool read_version(const char *text, Version *version) {
    *version = (Version){0};
    for (;;) {
        const char *dot = strchr(text, '.');
        const char *part = dot ? copy_slice((Slice){text, (size_t)(dot - text)}) : text;
        if (version->count == 8 || !read_number(part, 10, UINT32_MAX, &version->parts[version->count++])) return false;
        if (!dot) return true;
        text = dot + 1;
    }
}

static int compare(const Version *a, const Version *b) {
    for (size_t each = 0; each < 8; each++)
        if (a->parts[each] != b->parts[each]) return a->parts[each] < b->parts[each] ? -1 : 1;
    return 0;
}

static Operator read_operator(const char **at) {
    static const struct {
        const char *sign;
        Operator operator;
    } SIGNS[] = {
        {"!=", DIFFERENT}, {"<=", AT_MOST}, {">=", AT_LEAST}, {"=", EQUAL}, {"<", LESS}, {">", MORE},
    };
    for (size_t each = 0; each < sizeof SIGNS / sizeof *SIGNS; each++)
        if (begins(*at, SIGNS[each].sign)) return *at += strlen(SIGNS[each].sign), SIGNS[each].operator;
    return NO_OPERATOR;
}

static bool holds(Operator operator, int order) {
    switch (operator) {
    case EQUAL: return order == 0;
    case DIFFERENT: return order != 0;
    case LESS: return order < 0;
    case AT_MOST: return order <= 0;
    case MORE: return order > 0;
    default: return order >= 0;
    }
}

/* Where there is no GPU, or one of which nothing is known, a term about it is no obstacle. */
static const char *find_fact(const char *property, const Facts *facts, size_t device, const char *whole) {
    if (same(property, "cuda")) return facts->cuda;
    if (same(property, "driver")) return facts->driver;
    bool is_arch = same(property, "arch");
    if (!is_arch && !same(property, "brand"))
        fail("invalid requirement '%s': '%s' is none of cuda, driver, arch and brand", whole, property);
    return facts->count ? facts->devices[device]->fields[is_arch ? 3 : 4] : "";
}

static bool meets(const char *term, const Facts *facts, size_t device, const char *whole) {
    size_t size = 0;
    while (term[size] && !strchr("=!<>", term[size])) size++;
    const char *property = copy_slice((Slice){term, size}), *value = term + size;
    Operator operator = read_operator(&value);
    if (operator == NO_OPERATOR || !size || !*value)
        fail("invalid requirement '%s': '%s' is no condition", whole, term);
    const char *fact = find_fact(property, facts, device, whole);
    Version known, wanted;
    if (same(property, "brand")) {
        if (operator != EQUAL && operator != DIFFERENT) fail("invalid requirement '%s': brands have no order", whole);
        return !*fact || same_caseless(fact, value) == (operator == EQUAL);
    }
    if (!read_version(value, &wanted)) fail("invalid requirement '%s': '%s' is no version", whole, value);
    return !*fact || !read_version(fact, &known) || holds(operator, compare(&known, &wanted));
}

/* Every term is looked at, so that one that makes no sense is found whatever the others say. */
static bool is_met(const char *whole, const Facts *facts, size_t device) {
    bool met = false, has_any = false;
    for (const char *at = whole; *at;) {
        bool all = true, has_terms = false;
        while (*at == ' ') at++;
        while (*at && *at != ' ') {
            size_t size = 0;
            while (at[size] && at[size] != ' ' && at[size] != ',') size++;
            if (size) {
                has_terms = true;
                all = meets(copy_slice((Slice){at, size}), facts, device, whole) && all;
            }
            at += size + (at[size] == ',');
        }
        met = met || (has_terms && all);
        has_any = has_any || has_terms;
    }
    return met || !has_any;
}

static void check(const char *whole, const Facts *facts) {
    for (size_t device = 0; device == 0 || device < facts->count; device++)
        if (!is_met(whole, facts, device))
            fail("unsatisfied condition: %s, please update your driver to a newer version, or use an earlier cuda "
                 "container",
                 whole);
}

/* `v11.6.2` is `cuda>=11.6`. */
static const char *demand_of_image(const char *told) {
    Version version;
    const char *digits = told + (*told == 'v');
    if (!read_version(digits, &version) || version.count > 3) fail("invalid CUDA_VERSION '%s'", told);
    return compose("cuda>=%" PRIu64 ".%" PRIu64, version.parts[0], version.parts[1]);
}

void check_requirements(const Wish *wish, const Facts *facts) {
    static const char PREFIX[] = "NVIDIA_REQUIRE_", JETPACK[] = "NVIDIA_REQUIRE_JETPACK";
    if (is_on(find_variable(wish->environment, "NVIDIA_DISABLE_REQUIRE"))) return;
    for (size_t each = 0; each < wish->environment->count; each++) {
        const char *entry = wish->environment->at[each], *value = strchr(entry, '=') + 1;
        if (!begins(entry, PREFIX) || begins(entry, JETPACK)) continue;
        /* Of a variable that is there twice the last counts. */
        const char *name = copy_slice((Slice){entry, (size_t)(value - 1 - entry)});
        if (find_variable(wish->environment, name) == value) check(value, facts);
    }
    if (wish->is_old_image) check(demand_of_image(find_variable(wish->environment, "CUDA_VERSION")), facts);
}
