/* See real.h. */
#define _GNU_SOURCE
#include "front/real.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#include "ledger/text.h"

#define HIDDEN_VERSION 0x8000u

#pragma weak _r_debug /* not every C library shows it */

struct table {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
    const ElfW(Half) * versions;
};

struct search {
    const char *name;
    const void *caller; /* NULL: in the C library only */
    bool passed;        /* the caller's own file */
    void *found;
};

/* glibc before 2.34 has these functions in a library of their own; musl has one file for everything. */
static bool is_c_library(const char *path) {
    static const char *const starts[] = {"libc.so.", "libc-2.", "libdl.so.", "libdl-2.", "ld-musl-", "libc.musl-"};
    for (unsigned i = 0; path && i < sizeof starts / sizeof *starts; i++)
        if (text_after(text_file_name(path), starts[i])) return true;
    return false;
}

/* Where the loader has not made an address of it yet, it still counts from the start of the file. */
static const void *place(ElfW(Addr) start, ElfW(Addr) value) {
    return (const void *)(value < start ? start + value : value);
}

static struct table read_table(ElfW(Addr) start, const ElfW(Dyn) * entry) {
    struct table table = {NULL, NULL, NULL, NULL, NULL};
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        const void *content = place(start, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB: table.symbols = content; break;
        case DT_STRTAB: table.strings = content; break;
        case DT_GNU_HASH: table.gnu_hash = content; break;
        case DT_HASH: table.hash = content; break;
        case DT_VERSYM: table.versions = content; break;
        default: break;
        }
    }
    return table;
}

/* One of an older version only serves programs that ask for it by that version. */
static bool is_it(const struct table *table, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &table->symbols[index];
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) return false;
    if (table->versions && table->versions[index] & HIDDEN_VERSION) return false;
    return text_compare(table->strings + symbol->st_name, name) == 0;
}

static uint32_t find_by_gnu_hash(const struct table *table, const char *name) {
    uint32_t value = 5381;
    for (const char *at = name; *at; at++) value = value * 33 + (uint8_t)*at;
    uint32_t count = table->gnu_hash[0], first = table->gnu_hash[1], words = table->gnu_hash[2];
    const uint32_t *starts = table->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = starts + count;
    uint32_t index = count ? starts[value % count] : 0;
    if (index < first) return 0;
    for (;; index++) {
        uint32_t other = chain[index - first];
        if ((other | 1) == (value | 1) && is_it(table, index, name)) return index;
        if (other & 1) return 0;
    }
}

static uint32_t find_by_count(const struct table *table, const char *name) {
    for (uint32_t index = 1; index < table->hash[1]; index++)
        if (is_it(table, index, name)) return index;
    return 0;
}

static void *find_in(ElfW(Addr) start, const ElfW(Dyn) * dynamic, const char *name) {
    struct table table = read_table(start, dynamic);
    if (!table.symbols || !table.strings) return NULL;
    uint32_t index = table.gnu_hash ? find_by_gnu_hash(&table, name) : table.hash ? find_by_count(&table, name) : 0;
    return index ? (void *)(start + table.symbols[index].st_value) : NULL;
}

static void *find_in_object(const struct dl_phdr_info *object, const char *name) {
    const ElfW(Dyn) *dynamic = NULL;
    for (unsigned i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    return find_in(object->dlpi_addr, dynamic, name);
}

static bool has_in_it(const struct dl_phdr_info *object, const void *address) {
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (uintptr_t)address - (object->dlpi_addr + part->p_vaddr) < part->p_memsz)
            return true;
    }
    return false;
}

static int look_into(struct dl_phdr_info *object, size_t size, void *argument) {
    (void)size;
    struct search *search = argument;
    if (search->caller ? search->passed : is_c_library(object->dlpi_name))
        search->found = find_in_object(object, search->name);
    search->passed = search->passed || has_in_it(object, search->caller);
    return search->found != NULL;
}

/* Where there is the loader's own list, nobody else's function is called: whoever asks first may be starting up. */
void *real_find(const char *name) {
    struct search search = {name, NULL, false, NULL};
    if (!&_r_debug) dl_iterate_phdr(look_into, &search);
    else
        for (struct link_map *each = _r_debug.r_map; each && !search.found; each = each->l_next)
            if (is_c_library(each->l_name)) search.found = find_in(each->l_addr, each->l_ld, name);
    return search.found;
}

void *real_find_after(const void *caller, const char *name) {
    struct search search = {name, caller, false, NULL};
    dl_iterate_phdr(look_into, &search);
    return search.found;
}
