/* fts.c - quoting words for FTS5.  (fts.h has the contract.) */
#include "data/fts.h"
#include <sqlite3.h>
#include <stdio.h>
#include "base/space.h"

static void add_quoted(struct str word, struct buf *out)
{
    buf_add_c(out, '"');
    for (size_t i = 0; i < word.n; i++) {
        if (word.p[i] == '"')
            buf_add_c(out, '"');
        buf_add_c(out, word.p[i]);
    }
    buf_add_c(out, '"');
}

static struct str next_word(struct str *rest)
{
    size_t n = 0;

    *rest = str_skip(*rest, space_run(*rest));
    while (n < rest->n && space_bytes(str_skip(*rest, n)) == 0)
        n++;
    struct str word = str_make(rest->p, n);
    *rest = str_skip(*rest, n);
    return word;
}

enum fts_kind fts_match_text(struct str query, struct buf *out)
{
    size_t from = out->n;

    if (space_trim(query).n == 0)
        return FTS_BLANK;
    if (str_starts(query, STR("raw:"))) {
        buf_add_str(out, space_trim(str_skip(query, 4)));
        return FTS_RAW;
    }
    for (struct str word; (word = next_word(&query)).n > 0;) {
        if (out->n > from)
            buf_add_c(out, ' ');
        add_quoted(word, out);
    }
    return FTS_PHRASE;
}

bool fts_syntax_ok(struct str match, char *ret_why, size_t n)
{
    sqlite3_stmt *q = NULL;
    sqlite3 *db = NULL;
    bool ok = sqlite3_open(":memory:", &db) == SQLITE_OK &&
              sqlite3_exec(db, "CREATE VIRTUAL TABLE words USING fts5(summary, detail)", NULL, NULL,
                           NULL) == SQLITE_OK &&
              sqlite3_prepare_v2(db, "SELECT rowid FROM words WHERE words MATCH ?", -1, &q, NULL) ==
                  SQLITE_OK &&
              sqlite3_bind_text(q, 1, match.p, (int)match.n, SQLITE_STATIC) == SQLITE_OK &&
              sqlite3_step(q) == SQLITE_DONE;

    if (!ok)
        snprintf(ret_why, n, "%s", db != NULL ? sqlite3_errmsg(db) : "out of memory");
    sqlite3_finalize(q);
    sqlite3_close(db);
    return ok;
}
