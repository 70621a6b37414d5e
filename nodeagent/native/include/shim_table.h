/* The table that the agent writes and the runtime shim reads: version, bounds and words.
 * nodeagent/edge/host/shim/table_file.py describes the same; a test holds both equal.
 *
 * First line: NAME, version, length of the rest in bytes and its SHA-256, with one space between. Then lines of fields
 * with one tab between; no field has a tab, a line end or another control character, so nothing is escaped.
 *
 *   set     KEY VALUE                            once each, see below
 *   runtime CANDIDATE                            low-level runtime: path or name, in order
 *   swarm   VARIABLE                             takes the place of NVIDIA_VISIBLE_DEVICES, in order
 *   prefix  TEXT                                 annotations whose key begins so name CDI devices
 *   namespace NAME                               its containers may have management devices without privilege
 *   version PROPERTY VERSION                     cuda or driver, for requirements
 *   fresh   PATH TEXT                            the table is stale unless the first line of the file is this
 *   edits   NUMBER                               counted from 0; what follows belongs to it
 *   env     MASK NAME=VALUE
 *   node    MASK PATH HOST-PATH PERMISSIONS MODE GID     MODE octal or 0 for that of the node, GID 0 for none
 *   mount   MASK PATH HOST-PATH OPTIONS          options with commas
 *   hook    MASK STAGE PATH ARGUMENT...
 *   gid     MASK GID
 *   device  KIND EDITS ARCH BRAND NAME...        EDITS: numbers with commas, before this line; ARCH and BRAND may be empty
 *
 * MASK, in hexadecimal: an entry is used when it has a bit in common with the capabilities wanted, of which ALWAYS is
 * one. KIND: `gpu` (whole or MIG), `parent` (a GPU that is cut up), `imex`, `cdi` (qualified name), `extra` (see
 * EXTRAS). A name that begins with `~` counts in mode legacy alone. Names compare exactly, in mode legacy whatever case.
 */
#ifndef NODEAGENT_SHIM_TABLE_H
#define NODEAGENT_SHIM_TABLE_H

#define SHIM_TABLE_NAME "nodeagent-shim-table"
#define SHIM_TABLE_VERSION 1
#define SHIM_TABLE_FILE "table"
#define SHIM_ON_MISSING_FILE "on_missing"
/* Both files are in this directory beside the program, or in the other one where that is not known. */
#define SHIM_PLACE "shim"
#define SHIM_DIRECTORY "/var/lib/nodeagent/" SHIM_PLACE

enum {
    SHIM_TABLE_LIMIT = 4194304,
    SHIM_SEAL_LIMIT = 128,
    SHIM_LINES_LIMIT = 65536,
    SHIM_FIELDS_LIMIT = 4096,
};

enum {
    SHIM_COMPUTE = 0x01,
    SHIM_UTILITY = 0x02,
    SHIM_VIDEO = 0x04,
    SHIM_GRAPHICS = 0x08,
    SHIM_DISPLAY = 0x10,
    SHIM_NGX = 0x20,
    SHIM_COMPAT32 = 0x40,
    SHIM_ALWAYS = 0x80,
};

/* Keys of `set`, each with its values: 0 or 1, or what is said. */
#define SHIM_SETTINGS                                                                                          \
    "accept_environment", "accept_mounts", "disable_require", "ignore_imex", "mode" /* auto, cdi or legacy */, \
        "default_kind" /* vendor/class */, "supported" /* MASK */, "debug" /* path or empty */

/* Names of devices of the kind `extra`: what every container with a GPU gets, what a variable adds, and MIG rights. */
#define SHIM_EXTRAS "common", "gds", "mofed", "gdrcopy", "nvswitch", "mig-config", "mig-monitor"

#endif
