/* settings.h - the configuration of the whole program: its own section and everybody's. */
#pragma once
#include "base/config.h"

struct settings { /* what stands at the top of the file, owned by the config */
    char *listen, *public_url, *state_dir; /* public_url without trailing slash; NULL: not known */
    char *master_key;
    int64_t retention_ms; /* 0: no limit */
};
extern const struct config_section settings_config;

/* Every section and list there is; a module that wants settings has its line here. */
extern const struct config_schema settings_schema;

/* config_load() with the program's schema; what -c named, or NULL. */
enum bh_err settings_load(const char *path, struct config **ret_cfg,
                          struct buf *ret_why) BH_MUST_USE;
const struct settings *settings_of(const struct config *c);
int64_t settings_max_age_ms(const struct config *c); /* of what agents say */

/* ---- the directory that holds database, master key, admin socket and port ---- */
/* Create it (and its parents) with mode 0700 when missing; refuse what cannot be written.  @ret_why
 * has 256 bytes. */
enum bh_err state_dir_open(const char *dir, char *ret_why) BH_MUST_USE;
char *state_dir_path(const char *dir, const char *name); /* caller frees */
/* <dir>/port: the TCP port in decimal, for scripts that asked for port 0; 0 (a Unix socket) writes
 * none. */
enum bh_err state_dir_write_port(const char *dir, int port, char *ret_why) BH_MUST_USE;
void state_dir_forget(const char *dir); /* remove admin.sock and port */
