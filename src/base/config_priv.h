/* config_priv.h - the contents of a struct config, shared by config.c and config_yaml.c.  Private
 * to these two files. */
#pragma once
#include "base/config.h"
#include "base/map.h"

struct config_entries {                  /* one list */
    void **v;                            /* owned structs */
    const struct config_section **kinds; /* owned array; NULL inside: the list has no kinds */
    int *lines;                          /* owned */
    char **files;                        /* owned, with its texts */
    size_t n;
    struct map names; /* "kind/name" of each entry, if names must be unique; owned keys */
    bool given;       /* the file has this list */
};

struct config {
    char *path;     /* owned; NULL: defaults */
    char **files;   /* owned: the file and everything it led to, see config_file() */
    size_t n_files; /* of them */
    struct map set; /* the keys that the files set: path -> "file:line", owned */
    const struct config_schema *schema;
    void **settings; /* owned structs, one per section; NULL: the section has .into */
    size_t n_settings;
    struct config_entries *lists; /* owned, one per list */
    size_t n_lists;
    struct buf secret_variables; /* config_secret_variables() */
};

/* ---- config.c: one value and its type ---- */

/* True when @word is one of @words, which are separated by @sep. */
bool config_word_in(struct str word, const char *words, char sep);
/* Parses @text into the member of @base that @k describes.  False: @ret_expected describes a valid
 * value. */
bool config_set(void *base, const struct config_key *k, struct str text, struct buf *ret_expected);
void config_add_text(void *base, const struct config_key *k, struct str text); /* CFG_TEXTS */
void config_clear(void *base, const struct config_key *k);          /* frees texts, wipes secrets */
bool config_is_given(const void *base, const struct config_key *k); /* texts: not NULL */
char *config_text(const void *base, const struct config_key *k);    /* of a text key */
const struct config_key *config_find(const struct config_key *keys, struct str path);

/* Allocates the struct of @s with its defaults.  Ignores @s->into. */
void *config_make(const struct config_section *s);
void config_apply_defaults(void *base, const struct config_key *keys);

/* ---- config.c: expanding a value ---- */

/* Appends @s to @out with every ${NAME} and ${NAME:-otherwise} replaced.  Appends the names, each
 * followed by a NUL, to @ret_names, which may be NULL. */
bool config_expand(struct str s, struct buf *out, struct buf *ret_names, struct buf *why);

/* ---- config.c: the files ---- */

/* Remembers a path that was read, for config_file(); returns the copy. */
const char *config_add_file(struct config *c, const char *path);
/* Reads the secret of @k from the file @path.  False: @why is a sentence. */
bool config_set_from_file(void *base, const struct config_key *k, const char *path,
                          struct buf *why);

/* ---- config_yaml.c: the file ---- */

bool config_read_file(struct config *c, const char *path, struct buf *why);
bool config_read_text(struct config *c, struct str text, struct buf *why); /* config_parse() */
/* Fills a list that the file does not have from its .otherwise. */
void config_read_otherwise(struct config *c, size_t list);

/* ---- config.c: a configuration ---- */

void *config_settings(const struct config *c, size_t section); /* follows .into */
