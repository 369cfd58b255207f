/* fts.h - turns a user's query into the MATCH text of SQLite's FTS5.
 *
 * Each word is quoted, so that FTS5 sees no operators; an entry must contain all words.  After the
 * prefix `raw:` the rest is passed to FTS5 unchanged. */
#pragma once
#include "base/buf.h"

enum fts_kind {
    FTS_BLANK,  /* no words: list the newest entries */
    FTS_PHRASE, /* quoted words */
    FTS_RAW,    /* FTS5 syntax from the caller, possibly invalid */
};

/* Appends the MATCH text; nothing when blank. */
enum fts_kind fts_match_text(struct str query, struct buf *out);
/* Checks the syntax without touching a store.  False: @ret_why (@n bytes) has FTS5's message. */
bool fts_syntax_ok(struct str match, char *ret_why, size_t n);
