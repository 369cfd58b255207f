/* sqldb.h - a connection of store/sqldb.h to the PostgreSQL of the main store, for skills, data and
 * migrations.
 *
 * A connection connects when a transaction begins.  If the server is away, that transaction fails,
 * and a later one connects again.  A statement has PG_SQLDB_ANSWER_MS to answer.  A write
 * transaction holds the advisory lock of its schema.
 *
 * Texts are bytea, numbers bigint, lists arrays of these: a text of PostgreSQL cannot contain a
 * zero byte, and its order depends on the database's collation. */
#pragma once
#include "store/sqldb.h"

#define PG_SQLDB_ANSWER_MS 8000

struct pg_sqldb_schema {
    const char *name; /* the key of its version in the table `part`: "skills" */
    /* [n] takes it from version n to n + 1; append only.  In the schema `bellhop`. */
    const char *const *migrations;
    int n_migrations;
    int oldest; /* the oldest version whose programs can use these tables */
    const char *const *statements;
    unsigned n_statements;
    int64_t lock; /* one writing transaction of this schema at a time, on all nodes */
};

/* Creates or migrates the tables; blocks.  False: @ret_why, 256 bytes. */
bool pg_sqldb_prepare(const char *url, const struct pg_sqldb_schema *schema, char *ret_why);
/* Does not connect yet.  @schema is borrowed. */
struct sqldb *pg_sqldb_new(const char *url, const struct pg_sqldb_schema *schema);
