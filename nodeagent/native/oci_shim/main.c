/* Called like runc: gives a container that is being created the GPUs it asks for, then becomes the low-level runtime.
 * README.md says what it understands. It decides nothing: what is looked up here, the agent has written. */
#include "shim.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* Beside the program, by whatever link or name it was called: who could replace the one could replace the other. */
static const char *find_directory(void) {
    const char *told = getenv("NODEAGENT_SHIM_DIR");
    if (told && *told == '/') return told;
    char own[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", own, sizeof own - 1);
    if (size <= 0 || *own != '/' || (size_t)size == sizeof own - 1) return SHIM_DIRECTORY;
    own[size] = 0;
    return compose("%.*s%s", (int)(base_name(own) - own), own, SHIM_PLACE);
}

static bool ends(const char *text, const char *with) {
    for (; *text; text++)
        if (same(text, with)) return true;
    return false;
}

/* As NVIDIA's: a name that ends so forces the mode. */
static const char *choose_mode(const Table *table, const char *name) {
    if (ends(name, ".cdi")) return "cdi";
    if (ends(name, ".legacy")) return "legacy";
    return table->mode;
}

static void create(const Call *call, const Table *head, bool has_head, const char *directory, const char *name) {
    const char *path = *call->bundle ? compose("%s/config.json", call->bundle) : "config.json";
    Text content = {0};
    int error = read_file(path, JSON_LIMIT, false, &content);
    Document document = {0};
    const char *reason = error ? NULL : json_scan(&document, content.at, content.size);
    /* What is wrong with it is the low-level runtime's to say, if it matters there. */
    if ((reason || error == EFBIG) && !may_ask_in_words(path, head)) return;
    if (error) fail("cannot read %s: %s", path, describe_error(error));
    if (reason) fail("cannot understand %s: %s", path, reason);
    Text changed = {0};
    if (!may_ask(&document, head)) {
        Wish nothing = {.document = &document};
        const char *unwritten =
            has_head && apply(&document, head, &nothing, &changed) ? replace_file(path, &changed) : NULL;
        if (unwritten) warn("a hook of another program stays in a container that asks for no GPU: %s", unwritten);
        return;
    }
    Table table = {0};
    const char *wrong = table_load(&table, directory);
    Wish wish = resolve(&document, &table, choose_mode(&table, name));
    if (wrong && wish.asked) {
        if (!table_passes(directory))
            fail("the container asks for GPUs, and the agent's table cannot be used: %s; is nodeagent running?", wrong);
        warn("the container gets no GPU, because the agent's table cannot be used: %s", wrong);
    }
    if (wrong) return;
    const char *unwritten = apply(&document, &table, &wish, &changed) ? replace_file(path, &changed) : NULL;
    if (unwritten && wish.asked) fail("%s", unwritten);
    if (unwritten) warn("a hook of another program stays in a container that gets no GPU: %s", unwritten);
}

int main(int count, char **arguments) {
    static char *nothing[] = {(char *)(uintptr_t)"nodeagent-oci-shim", NULL};
    /* No command of any low-level runtime: who installs it sees that it runs here, whatever there is behind it. */
    if (count == 2 && same(arguments[1], "self-check")) return 0;
    if (count < 1) arguments = nothing;
    Call call = read_arguments(arguments);
    report_to(call.log, call.log_json);
    Table head = {0};
    const char *directory = find_directory();
    bool has_head = table_peek(&head, directory);
    report_debug(head.debug);
    if (call.creates) create(&call, &head, has_head, directory, base_name(arguments[0]));
    launch(&head.runtimes, arguments);
}
