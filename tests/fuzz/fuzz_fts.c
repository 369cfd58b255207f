/* A search from a hostile asker: the quoted text has the words of the query, each once, and nothing
 * in it is an operator: FTS5 never calls it bad syntax. */
#include <stdlib.h>
#include <sqlite3.h>
#include "base/space.h"
#include "data/fts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Undo the quoting, naively: words in quotes, one blank between them. */
static void check_words(struct str match, struct str query)
{
    size_t at = 0;

    while (at < match.n) {
        if (match.p[at++] != '"')
            abort();
        query = str_skip(query, space_run(query));
        for (;; at++) {
            if (at >= match.n)
                abort();
            if (match.p[at] == '"' && (at + 1 == match.n || match.p[at + 1] != '"'))
                break;
            at += match.p[at] == '"';
            if (query.n == 0 || query.p[0] != match.p[at])
                abort();
            query = str_skip(query, 1);
        }
        if (++at < match.n && match.p[at++] != ' ')
            abort();
        if (query.n > 0 && space_bytes(query) == 0)
            abort();
    }
    if (space_trim(query).n > 0)
        abort();
}

static sqlite3_stmt *prepare(void)
{
    static sqlite3 *db;
    sqlite3_stmt *q;

    if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
        sqlite3_exec(db,
                     "CREATE VIRTUAL TABLE w USING fts5(summary, detail, content='');"
                     "INSERT INTO w(rowid, summary, detail) VALUES(1, 'one two', 'three')",
                     NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "SELECT rowid FROM w WHERE w MATCH ?", -1, &q, NULL) != SQLITE_OK)
        abort();
    return q;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static sqlite3_stmt *q;
    struct str query = str_make(data, size);
    struct buf out = BUF_INIT;

    if (size > 2000 || !utf8_valid(query) || memchr(data, 0, size) != NULL)
        return 0;
    if (q == NULL)
        q = prepare();
    enum fts_kind kind = fts_match_text(query, &out);
    if ((kind == FTS_BLANK) != (space_trim(query).n == 0))
        abort();
    if (kind == FTS_PHRASE) {
        check_words(buf_str(&out), query);
        sqlite3_bind_text(q, 1, buf_str(&out).p, (int)out.n, SQLITE_STATIC);
        int rc = sqlite3_step(q);
        bool too_many = out.n > 500; /* of words: FTS5 has a limit, and says so */
        if (rc != SQLITE_ROW && rc != SQLITE_DONE && !too_many)
            abort();
        sqlite3_reset(q);
    }
    buf_done(&out);
    return 0;
}
