/* confinement.h - what of the machine a running server may still touch, read off its configuration.
 *
 * It reads the system's own libraries and settings, its configuration and the files that names; it
 * writes into its state directory, and where the configuration says it keeps things.  Everything
 * else is closed before the first byte comes from outside. */
#pragma once
#include "base/confine.h"

struct config;
struct config_section;

struct confine_settings { /* `confine`, owned by the config */
    char *confine;        /* "on", "off" */
};
extern const struct config_section confine_config;

/* Before the first thread, once the state directory is there.  @ret_why: 256 bytes. */
enum bh_err confinement_of_files(const struct config *cfg, struct confined *ret,
                                 char *ret_why) BH_MUST_USE;
/* When everything is open.  Logs what holds. */
enum bh_err confinement_of_calls(const struct config *cfg, struct confined *ret,
                                 char *ret_why) BH_MUST_USE;
