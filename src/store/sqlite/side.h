/* side.h - a SQLite database beside the main one: connections of store/side.h, and direct access to
 * SQLite for code that needs more than store/side.h offers.
 *
 * Each thread opens its own connection.  One connection writes, the others only read: a read sees
 * the last commit and never waits for the next one.  Every commit is synced to disk.
 *
 *      struct side_db *db = side_db_open(path, &schema, SIDE_WRITE, why);
 *      sqlite3_stmt *q = side_sql(db, n);               // prepared at first use, then kept
 *
 * A list parameter of store/side.h is the text of a JSON array: json_each(?1).
 *
 * Includes sqlite3.h: only src/store/sqlite, src/skills/sqlite* and src/data include this
 * header. */
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
    bool derived;  /* the file can be rebuilt: a crash may lose the last commits */
};

struct side_db {
    struct side base;
    sqlite3 *db; /* owned */
    const struct side_schema *schema;
    sqlite3_stmt *sql[SIDE_MAX_STATEMENTS][SIDE_MAX_COMMANDS]; /* owned; NULL until used */
    sqlite3_stmt *asked;                                       /* whose rows are read; or NULL */
    bool fresh, has_row; /* of @asked: side_next() was not called yet; it stands on a row */
    struct buf list;     /* a parameter of @asked */
};

/* ---- for any database in SQLite, the main one too ---- */

bool sql_number(sqlite3 *db, const char *sql, int64_t *ret_v); /* false: no row, or it failed */
bool sql_use_wal(sqlite3 *db);
#define SQL_NO_WAL "cannot use a write-ahead log here (a network file system?)"
/* Creates the file with mode 0600, which the log inherits; SQLite would let everybody read it. */
bool sql_file_create(const char *path, char *ret_why);
/* Migrates from the file's version to @n.  False: @ret_why (160 bytes), or, if that is empty,
 * sqlite3_errmsg(), says why. */
bool sql_migrate(sqlite3 *db, int application_id, const char *const *migrations, int64_t n,
                 char *ret_why);

/* NULL: @ret_why, 256 bytes, says why. */
struct side_db *side_db_open(const char *path, const struct side_schema *schema,
                             enum side_mode mode, char *ret_why);

/* The statement, reset and without bound parameters; NULL: preparing it failed (base.why). */
sqlite3_stmt *side_sql(struct side_db *db, unsigned n);
void side_bind_str(sqlite3_stmt *q, int at, struct str s); /* text; absent: NULL.  Borrowed. */
bool side_failed(struct side_db *db, const char *doing);   /* notes why; always false */
