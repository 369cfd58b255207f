/* confinement.h - the sandbox of a running server, derived from its configuration.
 *
 *      reads     system libraries and settings, the configuration, the files that it names
 *      writes    the state directory, and the directories that the configuration names
 *
 * All other files and system calls are denied before the server accepts any input.  server.c calls
 * this; base/confine.h does the work. */
#pragma once
#include "base/confine.h"

struct config;

struct confine_settings { /* `confine`, owned by the config */
    char *confine;        /* "on", "off" */
};
extern const struct config_section confine_config;

/* Restricts files.  Called before the first thread starts, after the state directory is created.
 * @ret_why: 256 bytes. */
enum bh_err confinement_of_files(const struct config *cfg, struct confined *ret,
                                 char *ret_why) BH_MUST_USE;
/* Restricts system calls.  Called when everything is open.  Logs the restrictions that hold. */
enum bh_err confinement_of_calls(const struct config *cfg, struct confined *ret,
                                 char *ret_why) BH_MUST_USE;
