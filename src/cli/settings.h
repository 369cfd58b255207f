/* settings.h - the configuration of the whole program: the top-level settings, the list of all
 * sections, and the state directory. */
#pragma once
#include "base/config.h"

struct settings {                          /* the top-level keys of the file, owned by the config */
    char *listen, *public_url, *state_dir; /* public_url without trailing slash; NULL: not set */
    char *master_key;
    int64_t retention_ms; /* 0: no limit */
    char *edges;          /* "auto", or a number; settings_edges() reads it */
};
extern const struct config_section settings_config;

/* All sections and lists.  A module with settings has its line in this schema. */
extern const struct config_schema settings_schema;

/* The configuration of an installed service. */
#define SETTINGS_SYSTEM "/etc/bellhop/bellhop.yaml"
/* The file that is read without -c: ./bellhop.yaml, else that of an installed service if this user
 * can read it; NULL: neither. */
const char *settings_default_path(void);

/* config_load() with the program's schema.  @path: the argument of -c, or NULL. */
enum bh_err settings_load(const char *path, struct config **ret_cfg,
                          struct buf *ret_why) BH_MUST_USE;
const struct settings *settings_of(const struct config *c);
size_t settings_edges(const struct settings *s);     /* how many threads: net/edges.h */
int64_t settings_max_age_ms(const struct config *c); /* outbox.max_age */

/* For a server in a temporary directory: removes what the environment says about the address, the
 * state and the files of another server.  Other settings may come from there, as for any server. */
void settings_drop_environment(void);

/* ---- the directory that holds database, master key, admin socket and port ---- */
/* Creates the directory (and its parents) with mode 0700 when missing.  BH_REFUSED: it cannot
 * be created or written.  @ret_why has 256 bytes. */
enum bh_err state_dir_open(const char *dir, char *ret_why) BH_MUST_USE;
/* Creates the missing folders of @file that lie behind its first @from bytes.  False: errno. */
bool state_dir_make_parents(const char *file, size_t from, unsigned mode);
char *state_dir_path(const char *dir, const char *name); /* caller frees */
/* Writes the TCP port in decimal to <dir>/port, for scripts that configured port 0.  @port 0 (a
 * Unix socket): writes nothing. */
enum bh_err state_dir_write_port(const char *dir, int port, char *ret_why) BH_MUST_USE;
/* True: this is root, and the database in @dir, or @dir without one, belongs to another user: the
 * one that the server runs as.  That user could not read what root writes there. */
bool state_dir_is_foreign(const char *dir);
/* Becomes that user for the rest of the process if the directory is foreign.  False: errno. */
bool state_dir_as_owner(const char *dir) BH_MUST_USE;
void state_dir_forget(const char *dir); /* removes admin.sock and port */
void state_dir_remove(const char *dir); /* with everything in it */
