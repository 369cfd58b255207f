/* data.h - the data store: texts with tags, and full-text search over them.
 *
 * There is one store per (tenant, namespace), each in its own database file, so that the term
 * statistics behind the scores never mix the entries of two stores.  SQLite's FTS5 searches summary
 * and detail, ignoring case and diacritics.  Where several nodes share a PostgreSQL, the entries
 * are there, and the files of the node that serves are built from them and brought up to date when
 * it first uses them.
 *
 * Arguments are copied before a call returns.  The callback runs exactly once, later, from the
 * loop, unless the request is cancelled first.  A write is durable when it is answered, and every
 * later query finds it.  Answers are complete JSON with the contract's field names.
 *
 *      s->request = data_query(ds, &caller, body, on_found, s);
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/spill.h"
#include "core/caller.h"
#include "core/fault.h"

struct loop;
struct data;
struct data_request;
struct db_jobs_stats;

struct data_config {
    const char *dir; /* directory of the database files; created when missing */
    const char *url; /* of the PostgreSQL that has the entries; NULL: the files have them */
    uint64_t epoch;  /* with @url: of the lease; only the node of the latest may write */
    size_t max_content_bytes; /* longer entries are refused; 0: 1 MiB */
    size_t max_answer_bytes;  /* longer answers in memory are refused; 0: 8 MiB */
    uint64_t max_file_bytes;  /* longer answers in a file are refused; 0: 1 GiB */
    size_t max_waiting;       /* requests in flight; the next is answered FAULT_BUSY; 0: 10000 */
    size_t max_open;          /* databases that each thread keeps open; 0: 16 */
    int64_t max_query_ms;     /* timeout of a query (TimeoutError); 0: 10 s */
    struct ledger *ledger;    /* limits.data_bytes; NULL: no limit */
};

/* Blocks while it opens (start-up only).  @ret_why: 256 bytes, a sentence for the operator. */
enum bh_err data_open(struct loop *loop, const struct data_config *cfg, struct data **ret_ds,
                      char *ret_why);
/* Waits for writes in flight.  No callback runs afterwards and all handles are invalid.  NULL is
 * fine. */
void data_close(struct data *ds);

struct data_answer {    /* valid during the callback only */
    struct fault fault; /* cls FAULT_NONE: success */
    struct str json;    /* write, get: PortableData ("null" on a miss); query: [PortableData] */
    /* Replaces @json when the answer is long and the caller accepts files; NULL: use @json. */
    const struct spill *file;
    size_t count;       /* query: number of entries; get: 0 is a miss */
    struct str id;      /* write: a UUID */
    int64_t created_at; /* write: seconds */
};
typedef void data_cb(void *ctx, const struct data_answer *a);

/* The callback will not run.  A write in flight may still commit.  Sets *@request to NULL; NULL is
 * fine. */
void data_cancel(struct data_request **request);

/* @entry: {content, tags?: [text], recipients?: [text], expires_at?: seconds | null,
 * metadata?: {}}.  Curated fields inside metadata move to the top level.  agent_id is the caller's
 * identity (with `attest`: metadata.agent_id), created_at the store's clock.  An entry is
 * invisible once its expires_at has passed.  Wrong types are a plain error (FAULT_INVALID). */
struct data_request *data_write(struct data *ds, const struct caller *who, struct json entry,
                                data_cb *done, void *ctx) BH_MUST_USE;
/* @filters: {query?, limit?, mode?, permissive_filters?, and filters}; mode is "fts" (the default),
 * limit a number above 0 (default 10).  Filters are the fields of data_manifest(): `pinned` is true
 * or false (not pinned), each of the others a text, or a list any of which will do.  An entry must
 * pass all filters.  A blank query lists the newest entries first.  QueryError: another mode, a
 * malformed filter, or `raw:` text that is not valid FTS5 syntax.  UnsupportedFilterError: any
 * other key, unless permissive_filters is exactly true. */
struct data_request *data_query(struct data *ds, const struct caller *who, struct json filters,
                                data_cb *done, void *ctx) BH_MUST_USE;
/* A miss is not an error. */
struct data_request *data_get(struct data *ds, const struct caller *who, struct str id,
                              data_cb *done, void *ctx) BH_MUST_USE;

/* {"capabilities_version": ..., "manifest": {"kind": "sqlite-fts", "supported_modes":
 * ["fts"], "supported_filters": [...], "score_range": "unbounded", "regexp_fallback_active":
 * false}} */
void data_manifest(struct jw *w);

void data_stats(const struct data *ds, struct db_jobs_stats *ret);

/* A tenant's databases, as store/erasure.h runs it; ctx is the store. */
extern const struct eraser data_eraser;
