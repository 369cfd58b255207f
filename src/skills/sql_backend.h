/* sql_backend.h - the two databases of sql_backend.c: their statements, and how to connect.
 * Private to this folder. */
#pragma once
#include "skills/catalog.h"

/* The statements behind those of the catalog.  SQL_VERSION_NEW takes: skill, version, content
 * hash, status, previous, changed_at, changed_by, body, source, id, sum and n of the store, tenant,
 * bytes. */
enum {
    SQL_VERSION_NEW = N_CAT_STATEMENTS,
    SQL_OLD,      /* tenant, ns, name, version -> content hash, source */
    SQL_VERSIONS, /* skill, after this id -> id, content hash, status, previous, changed_at, by */
    SQL_BODIES,   /* tenant, ns, after this name -> name, source; some of them */
    N_SQL_STATEMENTS
};

/* open() of struct db_jobs_ops; @ctx is the path or the URL, made by skill_sqlite_new() or
 * skill_postgres_new(). */
void *skill_sqlite_connect(void *ctx, struct str key, bool writer, char *ret_why);
void *skill_postgres_connect(void *ctx, struct str key, bool writer, char *ret_why);
void *skill_sqlite_new(const struct skill_backend_config *cfg, char *ret_why);
void *skill_postgres_new(const struct skill_backend_config *cfg, char *ret_why);
