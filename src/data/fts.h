/* fts.h - what people type, as the MATCH text of SQLite's FTS5.
 *
 * Words are wrapped in quotes, so nothing in them is an operator and all of them must be there;
 * `raw:` in front hands the rest to FTS5 as it is. */
#pragma once
#include "base/buf.h"

enum fts_kind {
    FTS_BLANK,  /* nothing to look for: the newest first */
    FTS_PHRASE, /* quoted words */
    FTS_RAW,    /* the asker's own syntax, which may be wrong */
};

/* Appends the MATCH text; nothing when blank. */
enum fts_kind fts_match_text(struct str query, struct buf *out);
/* What FTS5 makes of it, without a database; @ret_why (@n bytes) is filled when it is wrong. */
bool fts_syntax_ok(struct str match, char *ret_why, size_t n);
