/* enable-cuda-compat: a newer CUDA that an image brings comes first, where it works with the host's driver. */
#include "hook.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOTE_LIMIT = 1 << 16 };

/* Sorts before our own file, so that the linker cache has these libraries first. */
static const char COMPAT[] = "usr/local/cuda/compat", COMPAT_CONFIGURATION[] = "00-compat-nodeagent.conf";
static const char NOTE_SECTION[] = ".note.cuda.fwd_compatibility", NOTE_OWNER[] = "NVIDIA Corporation";

struct compat {
    int count;
    char version[64];
};

static void take_compat(const char *name, void *into) {
    static const char stem[] = "libcuda.so.";
    struct compat *found = into;
    if (strncmp(name, stem, sizeof stem - 1) || !strchr(name + sizeof stem - 1, '.')) return;
    found->count++;
    snprintf(found->version, sizeof found->version, "%s", name + sizeof stem - 1);
}

static int compare_versions(const char *one, const char *other) {
    for (int part = 0; part < 3; part++) {
        char *end, *other_end;
        unsigned long mine = strtoul(one, &end, 10), theirs = strtoul(other, &other_end, 10);
        if (mine != theirs) return mine > theirs ? 1 : -1;
        one = end + (*end == '.');
        other = other_end + (*other_end == '.');
    }
    return 0;
}

static int read_at(int file, void *into, size_t size, unsigned long long offset) {
    return pread(file, into, size, (off_t)offset) == (ssize_t)size;
}

/* The section in which a newer library says with which drivers it works; NULL when it says nothing, or is damaged. */
static char *read_note(int library, size_t *size, size_t *alignment) {
    Elf64_Ehdr header;
    Elf64_Shdr names, section;
    if (!read_at(library, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG)) return NULL;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof section) return NULL;
    if (!read_at(library, &names, sizeof names, header.e_shoff + header.e_shstrndx * sizeof names)) return NULL;
    for (unsigned number = 0; number < header.e_shnum; number++) {
        char name[sizeof NOTE_SECTION] = "";
        if (!read_at(library, &section, sizeof section, header.e_shoff + number * sizeof section)) return NULL;
        if (!read_at(library, name, sizeof name, names.sh_offset + section.sh_name)) continue;
        if (memcmp(name, NOTE_SECTION, sizeof name)) continue;
        if (section.sh_size < sizeof(Elf64_Nhdr) || section.sh_size > NOTE_LIMIT) return NULL;
        char *content = malloc(section.sh_size + 1);
        if (!content) fail("no memory for %s", NOTE_SECTION);
        if (!read_at(library, content, section.sh_size, section.sh_offset)) {
            free(content);
            return NULL;
        }
        content[ *size = section.sh_size] = 0;
        *alignment = section.sh_addralign == 1 || section.sh_addralign == 8 ? section.sh_addralign : 4;
        return content;
    }
    return NULL;
}

/* Whether a note lists the major version of the host's driver: {"Driver": [535, 550], ...}. */
static int lists_driver(char *note, size_t size, size_t alignment, unsigned long driver) {
    Elf64_Nhdr header;
    memcpy(&header, note, sizeof header);
    size_t text_at = sizeof header + (((size_t)header.n_namesz + alignment - 1) & ~(alignment - 1));
    if (header.n_namesz < sizeof NOTE_OWNER || text_at > size || header.n_descsz > size - text_at) return 0;
    if (memcmp(note + sizeof header, NOTE_OWNER, sizeof NOTE_OWNER)) return 0;
    note[text_at + header.n_descsz] = 0;
    const char *at = find_key(note + text_at, "Driver");
    if (!at || *at != '[') return 0;
    while (at && (*at == '[' || *at == ',')) {
        const char *item = skip_space(at + 1);
        if (strtoul(item + (*item == '"'), NULL, 10) == driver) return 1;
        at = skip_value(item);
        if (at) at = skip_space(at);
    }
    return 0;
}

/* An image may bring a CUDA for drivers older than itself: where it is newer than the host's, it comes first. */
static int is_compat_better(int root, const char *driver) {
    struct compat found = {0, ""};
    char path[sizeof COMPAT + 96];
    each_name(root, COMPAT, take_compat, &found);
    if (found.count != 1) return 0;
    snprintf(path, sizeof path, "%s/libcuda.so.%s", COMPAT, found.version);
    int library = open_regular(root, path);
    if (library < 0) return 0;
    size_t size, alignment;
    char *note = read_note(library, &size, &alignment);
    unsigned long major = strtoul(driver, NULL, 10);
    int is_better = note ? lists_driver(note, size, alignment, major) && compare_versions(found.version, driver) > 0
                         : strtoul(found.version, NULL, 10) > major;
    free(note);
    close(library);
    return is_better;
}

void enable_compat(int root, const char *driver) {
    char path[96], folder[sizeof COMPAT + 3];
    snprintf(path, sizeof path, "etc/ld.so.conf.d/%s", COMPAT_CONFIGURATION);
    snprintf(folder, sizeof folder, "/%s\n", COMPAT);
    if (is_compat_better(root, driver)) {
        if (write_inside(root, path, folder, 0644)) pass_over(path);
        return;
    }
    /* A container that is started again may have it from before the host's driver was upgraded. */
    int directory = open_own(root, "etc/ld.so.conf.d", O_PATH | O_DIRECTORY);
    if (directory < 0) return;
    if (unlinkat(directory, COMPAT_CONFIGURATION, 0) && errno != ENOENT && !is_foreign(errno))
        fail("cannot remove %s: %s", path, strerror(errno));
    close(directory);
}
