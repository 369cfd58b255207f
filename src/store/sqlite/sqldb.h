/* sqldb.h - a SQLite database beside the main one: connections of store/sqldb.h, and direct access
 * to SQLite for code that needs more than store/sqldb.h offers.
 *
 * Each thread opens its own connection.  One connection writes, the others only read: a read sees
 * the last commit and never waits for the next one.  Every commit is synced to disk.
 *
 *      struct sqldb_sqlite *db = sqldb_sqlite_open(path, &schema, SQLDB_WRITE, why);
 *      sqlite3_stmt *q = sqldb_statement(db, n);               // prepared at first use, then kept
 *
 * A list parameter of store/sqldb.h is the text of a JSON array: json_each(?1).
 *
 * Includes sqlite3.h: only src/store/sqlite, src/skills/sqlite* and src/data include this
 * header. */
#pragma once
#include <sqlite3.h>
#include "base/buf.h"
#include "store/sqldb.h"

#define SQLDB_MAX_COMMANDS 6 /* of one statement */
#define SQLDB_MAX_STATEMENTS 48

enum sqldb_mode { SQLDB_READ, SQLDB_WRITE };

struct sqldb_schema {
    int application_id;            /* tells our files from other people's */
    const char *const *migrations; /* [n] takes a database from version n to n + 1; append only */
    int n_migrations;
    const char *const *statements;
    unsigned n_statements;
    int cache_kib; /* page cache of one connection */
    bool derived;  /* the file can be rebuilt: a crash may lose the last commits */
};

struct sqldb_sqlite {
    struct sqldb base;
    sqlite3 *db; /* owned */
    const struct sqldb_schema *schema;
    sqlite3_stmt *sql[SQLDB_MAX_STATEMENTS][SQLDB_MAX_COMMANDS]; /* owned; NULL until used */
    sqlite3_stmt *asked;                                         /* whose rows are read; or NULL */
    bool fresh, has_row; /* of @asked: sqldb_next() was not called yet; it stands on a row */
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
struct sqldb_sqlite *sqldb_sqlite_open(const char *path, const struct sqldb_schema *schema,
                                       enum sqldb_mode mode, char *ret_why);

/* The statement, reset and without bound parameters; NULL: preparing it failed (base.why). */
sqlite3_stmt *sqldb_statement(struct sqldb_sqlite *db, unsigned n);
void sqldb_bind_str(sqlite3_stmt *q, int at, struct str s);    /* text; absent: NULL.  Borrowed. */
bool sqldb_failed(struct sqldb_sqlite *db, const char *doing); /* notes why; always false */
