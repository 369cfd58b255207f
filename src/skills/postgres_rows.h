/* postgres_rows.h - the tables of skills in PostgreSQL, and reading them.  Of postgres_backend.c.
 *
 *      skill_store    tenant, namespace: the sum and the number of its skills
 *      skill          one row per name: metadata, the newest version
 *      skill_version  one row per write, oldest first
 *      skill_size     what a tenant has: limits.skill_bytes */
#pragma once
#include "skills/backend.h"
#include "store/postgres/side.h"

#define SKILL_PG_PAGE 256          /* rows of one question; the statements have it too */
#define SKILL_PG_VERSION_BYTES 256 /* of a row besides its text; the statements have it too */

enum {
    SKILL_PG_STORE,
    SKILL_PG_STORE_NEW,
    SKILL_PG_GET,
    SKILL_PG_OLD,
    SKILL_PG_VERSIONS,
    SKILL_PG_NEW,
    SKILL_PG_SET,
    SKILL_PG_VERSION_NEW,
    SKILL_PG_DROP,
    SKILL_PG_SIZE,
    SKILL_PG_SIZES,
    SKILL_PG_NAMESPACES,
    SKILL_PG_LIST,
    SKILL_PG_NAMES,
    SKILL_PG_PICK,
    SKILL_PG_BODIES,
    N_SKILL_PG_STATEMENTS
};
extern const struct pg_desk_schema skill_pg_schema;

struct skill_pg_store {
    int64_t id;
    struct skill_sum sum;
    uint64_t n;
};
/* @make: in a write; a store that is not there is made. */
enum skill_found skill_pg_store_get(struct pg_desk *d, const struct skill_where *at, bool make,
                                    struct skill_pg_store *ret);

struct skill_pg_entry {   /* borrowed from the arena */
    int64_t id, bytes_at; /* @bytes_at: the version that has the bytes of the newest */
    struct skill_row row;
    struct skill_head as_head;
};
enum skill_found skill_pg_get(struct pg_desk *d, const struct skill_where *at, struct str name,
                              bool with_source, struct arena *arena, struct skill_pg_entry *ret_e);

/* @job: long ones look at it; NULL: none. */
enum skill_found skill_pg_list(struct pg_desk *d, const struct lane_job *job,
                               const struct skill_where *at, const struct skill_query *q,
                               skill_row_cb *cb, void *ctx);
enum skill_found skill_pg_bodies(struct pg_desk *d, const struct skill_where *at, skill_row_cb *cb,
                                 void *ctx);
