/* config_keys.h - the table of everything that can be configured; shared by config*.c only. */
#pragma once
#include "base/config.h"

enum config_type {
    CFG_TEXT,
    CFG_SECRET, /* text that is never shown and is wiped */
    CFG_CHOICE, /* one of the words in .choices */
    CFG_BOOL,
    CFG_NUMBER,   /* uint32_t from .min to .max */
    CFG_DURATION, /* int64_t ms */
    CFG_BYTES,    /* uint64_t */
    CFG_LEVEL,    /* enum log_level */
    CFG_FORMAT,   /* bool: json */
};

enum config_when { CFG_RESTART, CFG_RELOAD };

struct config_key {
    const char *path; /* "listen", "delivery.window"; in a platform: "token" */
    enum config_type type;
    enum config_when when;
    size_t offset;       /* in struct config or struct config_platform */
    const char *value;   /* the default as the operator would write it; NULL: none */
    const char *choices; /* CFG_CHOICE: "a|b"; platform keys: the platforms that take it, "a b" */
    const char *planned; /* CFG_CHOICE: words that are right but not in this build yet, "c|d" */
    uint64_t min, max;
    const char *what; /* the sentence of the reference */
};

extern const struct config_key config_keys[]; /* end with a NULL path */
extern const struct config_key config_platform_keys[];
extern const char config_platform_names[]; /* "web telegram ..." */

/* True when @word is one of @words, which are separated by @sep. */
bool config_word_in(struct str word, const char *words, char sep);

/* Parse @text into the member of @base that @k describes.  False: @ret_expected tells what would
 * have been right. */
bool config_set(void *base, const struct config_key *k, struct str text, struct buf *ret_expected);
void config_clear(void *base, const struct config_key *k); /* frees text, wipes it when secret */
bool config_same(const void *a, const void *b, const struct config_key *k);
