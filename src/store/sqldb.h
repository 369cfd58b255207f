/* sqldb.h - a connection to a database beside the main store, in SQLite or PostgreSQL.  Skills,
 * data and migrate.h use it.  One thread at a time may use a connection.
 *
 *      sqldb_begin(s, true);
 *      sqldb_text(s, name);                            // the parameters of the next statement
 *      bool ok = sqldb_ask(s, SQL_GET);                // runs a statement of the schema
 *      while (sqldb_next(s))                           // one row after the other
 *          meta = sqldb_get_str(s, 2);                 // valid until the next row or statement
 *      sqldb_commit(s);
 *
 * A statement may be several SQL commands separated by semicolons.  All commands get the same
 * parameters, and the rows are those of the last command.  sqlite/sqldb.h and postgres/sqldb.h open
 * connections. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/str.h"

#define SQLDB_MAX_ARGS 16

struct sqldb;

enum sqldb_type { SQLDB_NULL, SQLDB_INT, SQLDB_TEXT, SQLDB_BLOB, SQLDB_TEXTS, SQLDB_INTS };
struct sqldb_arg {
    enum sqldb_type type;
    int64_t i;
    struct str s;
    const void *list; /* struct str, or int64_t */
    size_t n;
};

enum sqldb_end {
    SQLDB_DONE,
    SQLDB_UNDONE,
    SQLDB_UNKNOWN, /* the connection was lost in the commit, whose outcome is unknown */
};

struct sqldb_ops {
    bool (*begin)(struct sqldb *s, bool write);
    enum sqldb_end (*commit)(struct sqldb *s);
    void (*rollback)(struct sqldb *s);
    bool (*ask)(struct sqldb *s, unsigned statement);
    bool (*next)(struct sqldb *s);
    int64_t (*get_int)(const struct sqldb *s, int column);
    struct str (*get_str)(const struct sqldb *s, int column);
    void (*close)(struct sqldb *s);
};

struct sqldb { /* first member of each kind */
    const struct sqldb_ops *ops;
    const struct db_job *job; /* borrowed; long reads stop with it; NULL: no job runs */
    struct sqldb_arg args[SQLDB_MAX_ARGS];
    unsigned n_args;
    bool ok;       /* the last statement, and reading its rows, succeeded */
    bool doubt;    /* of the last commit: SQLDB_UNKNOWN */
    char why[160]; /* of the last failure, for people */
};

/* A read transaction sees one snapshot. */
static inline bool sqldb_begin(struct sqldb *s, bool write)
{
    s->doubt = false;
    return s->ops->begin(s, write);
}
static inline bool sqldb_commit(struct sqldb *s)
{
    enum sqldb_end end = s->ops->commit(s);

    s->doubt = end == SQLDB_UNKNOWN;
    return end == SQLDB_DONE;
}
static inline void sqldb_rollback(struct sqldb *s)
{
    s->ops->rollback(s);
}
static inline void sqldb_close(struct sqldb *s) /* rolls back an open transaction; NULL is fine */
{
    if (s != NULL)
        s->ops->close(s);
}

/* The parameters of the next statement, in order; texts and lists are borrowed until
 * sqldb_ask(). */
static inline void sqldb_arg(struct sqldb *s, struct sqldb_arg a)
{
    s->args[s->n_args++] = a;
}
static inline void sqldb_int(struct sqldb *s, int64_t v)
{
    sqldb_arg(s, (struct sqldb_arg){.type = SQLDB_INT, .i = v});
}
static inline void sqldb_int_if(struct sqldb *s, bool given, int64_t v) /* else: NULL */
{
    sqldb_arg(s, (struct sqldb_arg){.type = given ? SQLDB_INT : SQLDB_NULL, .i = v});
}
static inline void sqldb_text(struct sqldb *s, struct str v) /* absent: NULL */
{
    sqldb_arg(s, (struct sqldb_arg){.type = v.p != NULL ? SQLDB_TEXT : SQLDB_NULL, .s = v});
}
static inline void sqldb_blob(struct sqldb *s, struct str v)
{
    sqldb_arg(s, (struct sqldb_arg){.type = SQLDB_BLOB, .s = v});
}
static inline void sqldb_texts(struct sqldb *s, const struct str *all, size_t n)
{
    sqldb_arg(s, (struct sqldb_arg){.type = SQLDB_TEXTS, .list = all, .n = n});
}
static inline void sqldb_ints(struct sqldb *s, const int64_t *all, size_t n)
{
    sqldb_arg(s, (struct sqldb_arg){.type = SQLDB_INTS, .list = all, .n = n});
}

/* False: the statement failed (@why), and the transaction must be rolled back. */
static inline bool sqldb_ask(struct sqldb *s, unsigned statement)
{
    s->ok = s->ops->ask(s, statement);
    s->n_args = 0;
    return s->ok;
}
/* False: there are no more rows, or reading failed (@ok). */
static inline bool sqldb_next(struct sqldb *s)
{
    return s->ok && s->ops->next(s);
}
static inline int64_t sqldb_get_int(const struct sqldb *s, int column) /* NULL is 0 */
{
    return s->ops->get_int(s, column);
}
static inline struct str sqldb_get_str(const struct sqldb *s, int column) /* NULL is absent */
{
    return s->ops->get_str(s, column);
}
