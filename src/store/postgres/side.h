/* side.h - a connection beside the store's own, for what lies in the same PostgreSQL but is not a
 * part of store.h: skills.
 *
 * Used from one thread.  It connects when a transaction begins and the line is not there, so
 * whoever opens one while the server is away only has to try again.  Questions are statements by
 * number; their parameters are put in order, then the question is asked and waited for, no longer
 * than DESK_ANSWER_MS.
 *
 *      pg_desk_begin(d, true);                     // with a write the lock of its schema is held
 *      pg_arg_bytes(d, name);
 *      int rows = pg_desk_ask(d, SQL_GET);         // -1: it failed, pg_desk_why()
 *      struct str meta = pg_get_bytes(d, 0, 2);    // until the next question
 *      pg_desk_commit(d);
 *
 * Bytes are bytea, numbers are bigint, lists bytea[]: text of PostgreSQL has no zero byte and
 * depends on how a database was made. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/str.h"

#define DESK_ANSWER_MS 8000

struct pg_desk;

struct pg_desk_schema {
    const char *name; /* under which its version is kept: "skills" */
    /* [n] takes it from version n to n + 1; append only.  In the schema `bellhop`. */
    const char *const *migrations;
    int n_migrations;
    int oldest; /* programs that know this version can use what this one makes */
    const char *const *statements;
    unsigned n_statements;
    int64_t lock; /* one writing transaction of this schema at a time, on all nodes */
};

/* Make the tables, or bring them up to date; blocks.  False: @ret_why, 256 bytes. */
bool pg_desk_prepare(const char *url, const struct pg_desk_schema *schema, char *ret_why);

/* Connects to nobody yet.  @schema is borrowed. */
struct pg_desk *pg_desk_new(const char *url, const struct pg_desk_schema *schema);
void pg_desk_free(struct pg_desk *d); /* what was not committed did not happen; NULL is fine */
const char *pg_desk_why(const struct pg_desk *d); /* of the last failure, for people */

/* A read sees one moment, however many questions it asks. */
bool pg_desk_begin(struct pg_desk *d, bool write);
enum desk_end {
    DESK_DONE,
    DESK_UNDONE,
    DESK_UNKNOWN, /* the line was lost, and nobody can say whether it happened */
};
enum desk_end pg_desk_commit(struct pg_desk *d);
void pg_desk_rollback(struct pg_desk *d);

/* The parameters of the next question, in order. */
void pg_arg_int(struct pg_desk *d, int64_t v);
void pg_arg_bool(struct pg_desk *d, bool v);
void pg_arg_null(struct pg_desk *d);
void pg_arg_bytes(struct pg_desk *d, struct str s); /* absent: NULL */
void pg_arg_list(struct pg_desk *d, const struct str *items, size_t n);
void pg_arg_ints(struct pg_desk *d, const int64_t *items, size_t n);
/* The number of rows; -1: it failed, and so did the transaction. */
int pg_desk_ask(struct pg_desk *d, unsigned statement);
bool pg_get_is_null(const struct pg_desk *d, int row, int column);
int64_t pg_get_int(const struct pg_desk *d, int row, int column);
struct str pg_get_bytes(const struct pg_desk *d, int row, int column); /* NULL is absent */
