/* catalog.h - the list of skills in a database: names, metadata, tags, and the change token.
 *
 * The sqlite and postgres backends keep their histories beside it.  The filesystem backend uses a
 * catalog in SQLite as an index that can be rebuilt from the files (sqlite_index.h).  The
 * statements of a database begin with those below; each names its parameters and its columns. */
#pragma once
#include "skills/backend.h"
#include "store/sqldb.h"

enum {
    CAT_STORE,     /* tenant, ns -> id, sum, n */
    CAT_STORE_NEW, /* tenant, ns, sum -> id */
    /* tenant, ns, name, with source -> id, body, the seven of CAT_LIST, author, bag, description,
     * said type, source, listed type, id, sum and n of the store */
    CAT_GET,
    /* store, name, status, type, author, updated_at, created_at, status_changed_at, content hash,
     * description, said type, bag, meta, tags -> id */
    CAT_NEW,
    CAT_SET,
    CAT_SET_REST,   /* status, type and author are as before */
    CAT_DROP,       /* skill, store, sum, n, tenant */
    CAT_SIZE,       /* tenant -> bytes */
    CAT_SIZES,      /* -> tenant, bytes */
    CAT_NAMESPACES, /* tenant -> ns */
    /* store, after this name, statuses, type, author, since, tags, limit, offset -> name, meta,
     * content hash, status, created_at, updated_at, status_changed_at */
    CAT_LIST,
    CAT_NAMES, /* as CAT_LIST without the offset -> name, id */
    CAT_PICK,  /* ids -> the columns of CAT_LIST */
    N_CAT_STATEMENTS
};
#define CATALOG_VERSION_BYTES 256 /* of a version besides its text; the statements repeat it */

struct catalog_store {
    int64_t id;
    struct skill_sum sum;
    uint64_t n;
};

struct catalog_entry {          /* borrowed from the arena */
    int64_t id, body;           /* @body: the version that stores the current body */
    struct catalog_store store; /* the store that has the skill */
    struct skill_row row;
    struct skill_head as_head;
    struct str listed_type; /* the type that queries filter by */
};

/* Asks, and moves to the first row. */
enum skill_found catalog_ask(struct sqldb *s, unsigned statement);

enum skill_found catalog_get(struct sqldb *s, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct catalog_entry *ret_e);
/* Inserts or replaces a skill and its tags.  The caller then writes @ret_store, the store with the
 * new token.  @ret_id: the row of the skill; @ret_body: the version with the same body, or 0. */
bool catalog_put(struct sqldb *s, const struct skill_where *at, const struct skill_next *n,
                 struct catalog_store *ret_store, int64_t *ret_id, int64_t *ret_body);
void catalog_store_args(struct sqldb *s, const struct catalog_store *store); /* id, sum, n */
/* Of struct skill_backend_ops; the connection is a struct sqldb. */
bool catalog_drop(void *conn, const struct skill_where *at, struct str name);
/* Bytes of all skills of a tenant, in all namespaces. */
bool catalog_size(void *conn, struct str tenant, uint64_t *ret_bytes);
bool catalog_namespaces(void *conn, struct str tenant, skill_ns_cb *cb, void *ctx);
bool catalog_sizes(struct sqldb *s, skill_size_cb *cb, void *ctx); /* of every tenant */
enum skill_found catalog_list(void *conn, const struct skill_where *at, const struct skill_query *q,
                              skill_row_cb *cb, void *ctx);
enum skill_found catalog_token(void *conn, const struct skill_where *at,
                               char ret_token[SKILL_TOKEN_BYTES]);
