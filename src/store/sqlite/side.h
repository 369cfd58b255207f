/* side.h - a SQLite database beside the main one, as its owner's threads use it: store/side.h, and
 * what needs more of SQLite than that has.
 *
 * Opened once per thread: a connection that writes and, beside it, connections that only read, so
 * that reads see the last commit and never wait for the next.  Every commit is on disk.
 *
 *      struct side_db *db = side_db_open(path, &schema, SIDE_WRITE, why);
 *      sqlite3_stmt *q = side_sql(db, n);               // prepared when first used, kept
 *
 * In a statement of store/side.h a list is the text of a JSON array: json_each(?1).
 *
 * Includes sqlite3.h: only src/store/sqlite, src/skills/sqlite*, src/data include this. */
#pragma once
#include <sqlite3.h>
#include "base/buf.h"
#include "store/side.h"

#define SIDE_MAX_COMMANDS 6 /* of one statement */
#define SIDE_MAX_STATEMENTS 48

enum side_mode { SIDE_READ, SIDE_WRITE };

struct side_schema {
    int application_id;            /* tells our files from other people's */
    const char *const *migrations; /* [n] takes a database from version n to n + 1; append only */
    int n_migrations;
    const char *const *statements;
    unsigned n_statements;
    int cache_kib; /* page cache of one connection */
    bool derived;  /* can be made anew: a commit may be lost, never torn */
};

struct side_db {
    struct side base;
    sqlite3 *db; /* owned */
    const struct side_schema *schema;
    sqlite3_stmt *sql[SIDE_MAX_STATEMENTS][SIDE_MAX_COMMANDS]; /* owned; NULL until used */
    sqlite3_stmt *asked;                                       /* whose rows are read; or NULL */
    bool fresh, has_row; /* of @asked: nobody looked at its first row yet; it stands on a row */
    struct buf list;     /* a parameter of @asked */
};

/* ---- for any database in SQLite, the main one too ---- */

bool sql_number(sqlite3 *db, const char *sql, int64_t *ret_v); /* false: no row, or it failed */
bool sql_use_wal(sqlite3 *db);
/* SQLite would create it readable by everybody; the log beside it inherits the mode. */
bool sql_file_create(const char *path, char *ret_why);
/* From its version to @n.  False: @ret_why, 160 bytes, or else sqlite3_errmsg(). */
bool sql_migrate(sqlite3 *db, int application_id, const char *const *migrations, int64_t n,
                 char *ret_why);

/* NULL: @ret_why, 256 bytes, says why.  SIDE_READ waits for nobody and needs the writer to have
 * opened the file once. */
struct side_db *side_db_open(const char *path, const struct side_schema *schema,
                             enum side_mode mode, char *ret_why);

/* Reset, with nothing bound; NULL: it could not be prepared (why). */
sqlite3_stmt *side_sql(struct side_db *db, unsigned n);
void side_bind_str(sqlite3_stmt *q, int at, struct str s); /* text; absent: NULL.  Borrowed. */
bool side_failed(struct side_db *db, const char *doing);   /* notes why; always false */
