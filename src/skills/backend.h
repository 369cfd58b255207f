/* backend.h - what keeps skills: the table between skills.c and its backends.
 *
 * All of it runs on the threads of the lanes, on a connection that the open() of @lanes made;
 * nothing is called on the loop.  Writes come inside begin() and commit() of the writer.  A backend
 * knows nothing of rules: it is told what to write. */
#pragma once
#include "base/arena.h"
#include "skills/rules.h"
#include "store/lanes.h"

struct regex;

enum skill_found {
    SKILL_FOUND,
    SKILL_MISSING,
    SKILL_FAILED, /* the connection did */
    SKILL_LATER,  /* only the writer can tell: LANE_ASK_WRITER */
};

struct skill_where {       /* one store */
    struct str tenant, ns; /* @ns empty: the unnamed one */
};

struct skill_row {                   /* borrowed until the callback returns, or from the arena */
    struct str name, meta;           /* as in struct skill_next */
    struct str content_hash, source; /* @source absent unless asked for */
    enum skill_status status;
    int64_t created_at, updated_at, status_changed_at;
};

/* False: enough, stop. */
typedef bool skill_row_cb(void *ctx, const struct skill_row *row);
typedef bool skill_version_cb(void *ctx, const struct skill_version *v);

typedef void skill_ns_cb(void *ctx, struct str ns);
typedef void skill_size_cb(void *ctx, struct str tenant, uint64_t bytes);

struct skill_query {
    const struct skills_filter *f;
    const struct regex *pattern; /* NULL: any name */
};

struct skill_backend_ops {
    const char *kind; /* "sqlite", "filesystem", "postgres" */
    size_t max_group; /* writes in one transaction; 0: as many as there are */
    struct lanes_ops lanes;
    void (*free)(void *ctx); /* the context of @lanes; no connection is open any more */
    /* Long reads look at @job now and then; NULL: none is running. */
    void (*for_job)(void *conn, const struct lane_job *job);

    enum skill_found (*head)(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_head *ret_h);
    bool (*put)(void *conn, const struct skill_where *at, const struct skill_next *n);
    bool (*drop)(void *conn, const struct skill_where *at, struct str name); /* it is there */

    enum skill_found (*load)(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_row *ret_row);
    /* The body of an older version: its hash and bytes. */
    enum skill_found (*load_version)(void *conn, const struct skill_where *at, struct str name,
                                     struct str version, struct arena *arena, struct str *ret_hash,
                                     struct str *ret_source);
    enum skill_found (*versions)(void *conn, const struct skill_where *at, struct str name,
                                 skill_version_cb *cb, void *ctx);
    enum skill_found (*list)(void *conn, const struct skill_where *at, const struct skill_query *q,
                             skill_row_cb *cb, void *ctx); /* in byte order of the names */
    enum skill_found (*bodies)(void *conn, const struct skill_where *at, skill_row_cb *cb,
                               void *ctx); /* every name with its source */
    enum skill_found (*token)(void *conn, const struct skill_where *at,
                              char ret_token[SKILL_TOKEN_BYTES]);
    /* Bytes of all skills of a tenant with their history: limits.skill_bytes. */
    bool (*size)(void *conn, struct str tenant, uint64_t *ret_bytes);
    /* Every namespace in which the tenant has, or had, skills; "" is the unnamed one. */
    bool (*namespaces)(void *conn, struct str tenant, skill_ns_cb *cb, void *ctx);
};

struct skill_backend_config {
    const char *path;                /* of the file or the directory */
    const char *url;                 /* of the database server */
    const struct skill_rules *rules; /* for what is found changed */
    const char *default_author;
    skill_size_cb *on_size; /* told what every tenant has, while it opens */
    void *on_size_ctx;
};
/* The context of lanes_ops.open(); NULL: @ret_why. */
void *skill_sqlite_new(const struct skill_backend_config *cfg, char *ret_why);
extern const struct skill_backend_ops skill_sqlite_ops;

void *skill_files_new(const struct skill_backend_config *cfg, char *ret_why);
extern const struct skill_backend_ops skill_files_ops;

void *skill_postgres_new(const struct skill_backend_config *cfg, char *ret_why);
extern const struct skill_backend_ops skill_postgres_ops;
