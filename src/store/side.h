/* side.h - a connection to a database beside the main store, in SQLite or PostgreSQL.  Skills, data
 * and migrate.h use it.  One thread at a time may use a connection.
 *
 *      side_begin(s, true);
 *      side_text(s, name);                            // the parameters of the next statement
 *      bool ok = side_ask(s, SQL_GET);                // runs a statement of the schema
 *      while (side_next(s))                           // one row after the other
 *          meta = side_get_str(s, 2);                 // valid until the next row or statement
 *      side_commit(s);
 *
 * A statement may be several SQL commands separated by semicolons.  All commands get the same
 * parameters, and the rows are those of the last command.  sqlite/side.h and postgres/side.h open
 * connections. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/str.h"

#define SIDE_MAX_ARGS 16

struct side;

enum side_type { SIDE_NULL, SIDE_INT, SIDE_TEXT, SIDE_BLOB, SIDE_TEXTS, SIDE_INTS };
struct side_arg {
    enum side_type type;
    int64_t i;
    struct str s;
    const void *list; /* struct str, or int64_t */
    size_t n;
};

enum side_end {
    SIDE_DONE,
    SIDE_UNDONE,
    SIDE_UNKNOWN, /* the connection was lost in the commit, whose outcome is unknown */
};

struct side_ops {
    bool (*begin)(struct side *s, bool write);
    enum side_end (*commit)(struct side *s);
    void (*rollback)(struct side *s);
    bool (*ask)(struct side *s, unsigned statement);
    bool (*next)(struct side *s);
    int64_t (*get_int)(const struct side *s, int column);
    struct str (*get_str)(const struct side *s, int column);
    void (*close)(struct side *s);
};

struct side { /* first member of each kind */
    const struct side_ops *ops;
    const struct db_job *job; /* borrowed; long reads stop with it; NULL: no job runs */
    struct side_arg args[SIDE_MAX_ARGS];
    unsigned n_args;
    bool ok;       /* the last statement, and reading its rows, succeeded */
    bool doubt;    /* of the last commit: SIDE_UNKNOWN */
    char why[160]; /* of the last failure, for people */
};

/* A read transaction sees one snapshot. */
static inline bool side_begin(struct side *s, bool write)
{
    s->doubt = false;
    return s->ops->begin(s, write);
}
static inline bool side_commit(struct side *s)
{
    enum side_end end = s->ops->commit(s);

    s->doubt = end == SIDE_UNKNOWN;
    return end == SIDE_DONE;
}
static inline void side_rollback(struct side *s)
{
    s->ops->rollback(s);
}
static inline void side_close(struct side *s) /* rolls back an open transaction; NULL is fine */
{
    if (s != NULL)
        s->ops->close(s);
}

/* The parameters of the next statement, in order; texts and lists are borrowed until side_ask(). */
static inline void side_arg(struct side *s, struct side_arg a)
{
    s->args[s->n_args++] = a;
}
static inline void side_int(struct side *s, int64_t v)
{
    side_arg(s, (struct side_arg){.type = SIDE_INT, .i = v});
}
static inline void side_int_if(struct side *s, bool given, int64_t v) /* else: NULL */
{
    side_arg(s, (struct side_arg){.type = given ? SIDE_INT : SIDE_NULL, .i = v});
}
static inline void side_text(struct side *s, struct str v) /* absent: NULL */
{
    side_arg(s, (struct side_arg){.type = v.p != NULL ? SIDE_TEXT : SIDE_NULL, .s = v});
}
static inline void side_blob(struct side *s, struct str v)
{
    side_arg(s, (struct side_arg){.type = SIDE_BLOB, .s = v});
}
static inline void side_texts(struct side *s, const struct str *all, size_t n)
{
    side_arg(s, (struct side_arg){.type = SIDE_TEXTS, .list = all, .n = n});
}
static inline void side_ints(struct side *s, const int64_t *all, size_t n)
{
    side_arg(s, (struct side_arg){.type = SIDE_INTS, .list = all, .n = n});
}

/* False: the statement failed (@why), and the transaction must be rolled back. */
static inline bool side_ask(struct side *s, unsigned statement)
{
    s->ok = s->ops->ask(s, statement);
    s->n_args = 0;
    return s->ok;
}
/* False: there are no more rows, or reading failed (@ok). */
static inline bool side_next(struct side *s)
{
    return s->ok && s->ops->next(s);
}
static inline int64_t side_get_int(const struct side *s, int column) /* NULL is 0 */
{
    return s->ops->get_int(s, column);
}
static inline struct str side_get_str(const struct side *s, int column) /* NULL is absent */
{
    return s->ops->get_str(s, column);
}
