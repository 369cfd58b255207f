/* config.h - the configuration file, checked against the tables that modules declare.
 *
 * A module that can be configured declares a section: a struct of its own, and a line per setting.
 *
 *      struct wake_settings { int64_t timeout_ms; bool allow_private; };
 *
 *      #define AT(member) offsetof(struct wake_settings, member)
 *      static const struct config_key keys[] = {
 *          {"wake.timeout", CFG_DURATION, CFG_RELOAD, AT(timeout_ms), "5s", .max = 60000,
 *           .what = "How long a poke may take."},
 *          {"wake.allow_private", CFG_BOOL, CFG_RELOAD, AT(allow_private), "false", .what = "..."},
 *          {0},
 *      };
 *      const struct config_section wake_config = {.keys = keys,
 *                                                 .size = sizeof(struct wake_settings)};
 *
 * The caller that loads a configuration passes the list of sections (cli/settings.c has the
 * program's), and config_get(cfg, &wake_config) returns the module's filled struct.
 * The table drives parsing, defaults, `BELLHOP_` variables, errors with file and line, reloads and
 * docs/configuration.md.  Two modules may share a prefix (`wake:` above and the relay's
 * `wake.cooldown`) but not a setting.
 *
 * In a value of the file `${NAME}` reads an environment variable; `${NAME:-otherwise}` gives a
 * default.  A secret `token` may stand in a file of its own: `token_file: PATH`.  `include:
 * PATTERN` (or a list of patterns) at the top of the file reads more files, in the order of their
 * names; these cannot include others.  Paths are relative to the file that names them.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

enum config_type {
    CFG_TEXT,     /* char *, NULL when empty or not given */
    CFG_SECRET,   /* char *, never shown, wiped when freed */
    CFG_CHOICE,   /* char *, one of the words in .choices */
    CFG_ENUM,     /* int: the place of the word in .choices, from 0 */
    CFG_BOOL,     /* bool */
    CFG_NUMBER,   /* uint32_t from .min to .max */
    CFG_COUNT,    /* uint64_t from .min to .max; .max 0: no maximum */
    CFG_DURATION, /* int64_t, in ms, from .min to .max */
    CFG_BYTES,    /* uint64_t, at least .min */
    CFG_TEXTS,    /* char **, ends with NULL; NULL when not given.  `[a, b]`, or "a, b" */
    CFG_JSON,     /* char *, a JSON value of any shape; NULL when not given.  YAML that is no single
                   * value is written as JSON, a single value is JSON already.  May hold secrets:
                   * never shown in errors, wiped when freed */
};

enum config_when { CFG_RESTART, CFG_RELOAD }; /* what a change needs */

struct config_key {
    const char *path; /* "listen", "wake.timeout": as it stands in the file; NULL ends the table */
    enum config_type type;
    enum config_when when;
    size_t offset;       /* in the section's struct */
    const char *value;   /* the default as the operator would write it; NULL: as in .defaults */
    const char *choices; /* CFG_CHOICE, CFG_ENUM: "a|b" */
    uint64_t min, max;
    const char *what; /* the sentence of the reference */
    /* `bellhop setup` asks for it: "" always, "mode=webhook" if the key mode has this value,
     * "mode!=webhook" if it has another one.  NULL: only if no key of its table has .ask; then for
     * those without a default. */
    const char *ask;
    bool required; /* in a list: an entry without it is refused */
    bool words;    /* CFG_TEXTS: one text is split as a shell would, not at commas */
};

struct config_section {
    const struct config_key *keys;
    size_t size;          /* of the struct that the offsets are in */
    const void *defaults; /* what it holds before any key is set; NULL: zeros */
    /* The section whose struct the keys fill; pass that one to config_get().  NULL: this one. */
    const struct config_section *into;
    /* Checks combinations of keys after all are read; may adjust values, but not replace texts.
     * False: @ret_why (256 bytes) tells the operator what to fix.  NULL: no check. */
    bool (*check)(void *settings, char *ret_why);
    const char *name; /* of a kind in a list; NULL otherwise */
};

/* A list of entries, `platforms: [{platform: web, bot: lobby}, ...]`.  The struct of an entry
 * starts with the one that @entry describes; with kinds, each kind's section describes the whole
 * struct and declares the keys that only this kind takes. */
struct config_list {
    const char *name; /* "platforms" */
    const struct config_section *entry;
    enum config_when when;
    const char *example;   /* an entry, for errors: "{platform: web, bot: lobby}" */
    const char *otherwise; /* the whole list, as YAML, when the file has none; NULL: it is empty */
    /* The text key of @entry that no two entries (of a kind) share; NULL: none. */
    const char *unique;
    /* A text key that tells entries with the same @unique apart: a later one is then called
     * <name>@<its value>.  NULL: none. */
    const char *apart;
    /* "platform": the text key of @entry that names the kind; NULL: no kinds. */
    const char *kind_key;
    const struct config_section *(*kind)(size_t i); /* NULL after the last */
};

struct config_gone {  /* a key that older files may have */
    const char *path; /* NULL ends the table */
    const char *what; /* the error message: what to delete */
};

struct config_schema { /* all lists end with NULL; must outlive every config loaded with it */
    const struct config_section *const *sections;
    const struct config_list *const *lists;
    const struct config_gone *gone; /* NULL: none */
};

struct config;

/* @path NULL: ./bellhop.yaml if it exists, else the defaults.  An unknown key, a missing key or a
 * wrong value is refused; @ret_why has the file, the line and the expected value. */
enum bh_err config_load(const char *path, const struct config_schema *schema,
                        struct config **ret_cfg, struct buf *ret_why) BH_MUST_USE;
/* Reads the entries of one list from @text, which is JSON or YAML from somebody other than the
 * operator's file: `${NAME}` stays as it is, no variable of the environment counts, and errors have
 * no line.  The schema has no sections. */
enum bh_err config_parse(struct str text, const struct config_schema *schema,
                         struct config **ret_cfg, struct buf *ret_why) BH_MUST_USE;
void config_free(struct config *c);              /* secrets are wiped */
const char *config_path(const struct config *c); /* the file it came from; NULL: defaults */

/* The struct of @s, which must be in the schema.  The struct is valid as long as @c, its values
 * until a reload. */
const void *config_get(const struct config *c, const struct config_section *s);
size_t config_count(const struct config *c, const struct config_list *l);
const void *config_entry(const struct config *c, const struct config_list *l, size_t i);
/* The line of the entry in its file, for errors; 0: a default. */
int config_entry_line(const struct config *c, const struct config_list *l, size_t i);
const char *config_entry_file(const struct config *c, const struct config_list *l, size_t i);

/* The section of an entry's kind; NULL: the list has no kinds. */
const struct config_section *config_entry_kind(const struct config *c, const struct config_list *l,
                                               size_t i);

/* Entries that outlive their configuration.  @keys is a table that describes the entry: that of the
 * list, and that of its kind.  config_keep() gives @to texts of its own in place of those that it
 * has from a copied struct; config_drop() frees them. */
void config_keep(void *to, const struct config_key *keys);
void config_drop(void *base, const struct config_key *keys);
bool config_same(const void *a, const void *b, const struct config_key *keys);

/* The paths that loading the configuration read: the file, the patterns of `include` and the files
 * they matched, and the files of secrets.  NULL after the last. */
const char *config_file(const struct config *c, size_t i);

/* The names of the environment variables that provided secrets, each followed by a NUL. */
struct str config_secret_variables(const struct config *c);

/* Lists the keys that differ, one per line: those that a reload applies, and those that need a
 * restart. */
void config_diff(const struct config *was, const struct config *now, struct buf *ret_reload,
                 struct buf *ret_restart);
/* Exchanges the reloadable settings of @was and @now, so that both stay complete. */
void config_take_reloadable(struct config *was, struct config *now);
/* Appends the value of @k in @base as an operator would write it.  False: it is the default, or not
 * given. */
bool config_show(const void *base, const struct config_key *k, struct buf *out);
void config_describe(const struct config_schema *schema, struct buf *out); /* as Markdown */
