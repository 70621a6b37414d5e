/* Called like runc: gives a container that is being created the GPUs it asks for, then becomes the low-level runtime.
 * README.md says what it understands. It decides nothing: what is looked up here, the agent has written. */
#include "shim.h"

#include <asm/errno.h>

/* Beside the program, by whatever link or name it was called: who could replace the one could replace the other. */
static const char *find_directory(void) {
    const char *told = sys_variable("NODEAGENT_SHIM_DIR");
    if (told && *told == '/') return told;
    enum { PATH_LIMIT = 4096 };
    char *own = take(PATH_LIMIT);
    long size = sys_readlink("/proc/self/exe", own, PATH_LIMIT - 1);
    if (size <= 0 || *own != '/' || size == PATH_LIMIT - 1) return SHIM_DIRECTORY;
    return join((const char *const[]){copy_slice((Slice){own, (size_t)(base_name(own) - own)}), SHIM_PLACE, NULL});
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
    const char *path = *call->bundle ? join((const char *const[]){call->bundle, "/config.json", NULL}) : "config.json";
    Text content = {0};
    long answer = read_file(path, JSON_LIMIT, false, &content);
    Document document = {0};
    const char *reason = answer < 0 ? NULL : json_scan(&document, content.at, content.size);
    /* What is wrong with it is the low-level runtime's to say, if it matters there. */
    if ((reason || answer == -EFBIG) && !may_ask_in_words(path, head)) return;
    if (answer < 0) fail("cannot read ", path, ": ", sys_error(answer));
    if (reason) fail("cannot understand ", path, ": ", reason);
    Text changed = {0};
    if (!may_ask(&document, head)) {
        Wish nothing = {.document = &document};
        const char *unwritten =
            has_head && apply(&document, head, &nothing, &changed) ? replace_file(path, &changed) : NULL;
        if (unwritten) warn("a hook of another program stays in a container that asks for no GPU: ", unwritten);
        return;
    }
    Table table = {0};
    const char *wrong = table_load(&table, directory);
    Wish wish = resolve(&document, &table, choose_mode(&table, name));
    if (wrong && wish.asked) {
        if (!table_passes(directory))
            fail("the container asks for GPUs, and the agent's table cannot be used: ", wrong,
                 "; is nodeagent running?");
        warn("the container gets no GPU, because the agent's table cannot be used: ", wrong);
    }
    if (wrong) return;
    const char *unwritten = apply(&document, &table, &wish, &changed) ? replace_file(path, &changed) : NULL;
    if (unwritten && wish.asked) fail(unwritten);
    if (unwritten) warn("a hook of another program stays in a container that gets no GPU: ", unwritten);
}

int main(int count, char **arguments, char **variables) {
    static char *nothing[] = {(char *)(uintptr_t)"nodeagent-oci-shim", NULL};
    environment = variables;
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
