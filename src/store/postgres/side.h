/* side.h - a connection beside the store's own, for what lies in the same PostgreSQL but is not a
 * part of store.h: skills.  Used through store/side.h.
 *
 * It connects when a transaction begins and the line is not there, so whoever opens one while the
 * server is away only has to try again.  A question is waited for no longer than PG_SIDE_ANSWER_MS.
 * With a write the lock of its schema is held.
 *
 * Texts are bytea, numbers are bigint, lists arrays of these: text of PostgreSQL has no zero byte
 * and depends on how a database was made. */
#pragma once
#include "store/side.h"

#define PG_SIDE_ANSWER_MS 8000

struct pg_side_schema {
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
bool pg_side_prepare(const char *url, const struct pg_side_schema *schema, char *ret_why);
/* Connects to nobody yet.  @schema is borrowed. */
struct side *pg_side_new(const char *url, const struct pg_side_schema *schema);
