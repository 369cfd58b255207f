/* backend.h - the interface that a storage backend for skills implements.
 *
 * run.c calls through struct skill_backend_ops, on the threads of
 * store/jobs.h and never on the loop.  Each request gets a connection that open() of @jobs made.
 * Writes run between begin() and commit() of the writer's connection.  A backend stores what it is
 * given and applies no rules; rules.c decides what is written. */
#pragma once
#include "base/arena.h"
#include "skills/rules.h"
#include "store/jobs.h"

enum skill_found {
    SKILL_FOUND,
    SKILL_MISSING,
    SKILL_FAILED, /* the connection failed */
    SKILL_LATER,  /* a reader cannot answer: run the request on the writer (DB_JOB_ASK_WRITER) */
};

struct skill_where {       /* one store */
    struct str tenant, ns; /* @ns empty: the unnamed namespace */
};

struct skill_row {                   /* borrowed until the callback returns, or from the arena */
    struct str name, meta;           /* as in struct skill_next */
    struct str content_hash, source; /* @source absent unless asked for */
    enum skill_status status;
    int64_t created_at, updated_at, status_changed_at;
};

/* False: stop the iteration. */
typedef bool skill_row_cb(void *ctx, const struct skill_row *row);
typedef bool skill_version_cb(void *ctx, const struct skill_version *v);

typedef void skill_ns_cb(void *ctx, struct str ns);
typedef void skill_size_cb(void *ctx, struct str tenant, uint64_t bytes);

struct skill_query {
    const struct skills_filter *f;
    const struct regex *pattern; /* NULL: any name */
};

struct skill_backend_config {
    const char *path;                /* sqlite: the file; filesystem: the directory */
    const char *url;                 /* postgres */
    const struct skill_rules *rules; /* filesystem: for files that an editor changed */
    const char *default_author;
    skill_size_cb *on_size; /* called once per tenant while the backend opens */
    void *on_size_ctx;
};

struct skill_backend_ops {
    const char *kind; /* "sqlite", "filesystem", "postgres" */
    size_t max_group; /* most writes in one transaction; 0: no limit */
    struct db_jobs_ops jobs;
    /* Returns the context of open() in @jobs; NULL: @ret_why says why. */
    void *(*create)(const struct skill_backend_config *cfg, char *ret_why);
    void (*free)(void *ctx); /* frees the context of @jobs, after all connections are closed */
    /* Long reads check now and then whether @job was cancelled; NULL: no job is running. */
    void (*for_job)(void *conn, const struct db_job *job);

    enum skill_found (*head)(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_head *ret_h);
    bool (*put)(void *conn, const struct skill_where *at, const struct skill_next *n);
    bool (*drop)(void *conn, const struct skill_where *at, struct str name); /* @name exists */

    enum skill_found (*load)(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_row *ret_row);
    /* The hash and the body of one version. */
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
    /* Bytes of all skills of a tenant, history included; counts against limits.skill_bytes. */
    bool (*size)(void *conn, struct str tenant, uint64_t *ret_bytes);
    /* Every namespace in which the tenant has, or had, skills; "" is the unnamed one. */
    bool (*namespaces)(void *conn, struct str tenant, skill_ns_cb *cb, void *ctx);
};

extern const struct skill_backend_ops skill_sqlite_ops, skill_files_ops, skill_postgres_ops;
