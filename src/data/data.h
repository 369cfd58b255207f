/* data.h - the data store: texts with tags that are found again by their words.
 *
 * One store per (tenant, namespace), each a database file of its own, so that the term statistics
 * behind the scores of one never see the entries of another.  Full text by SQLite's FTS5 over
 * summary and detail, case and diacritics folded.
 *
 * Calls are answered later, from the loop, exactly once, unless cancelled first; what is passed in
 * is copied before the call returns.  A write is durable when it is answered and found by whatever
 * is asked after that.  Answers are ready JSON with the contract's field names.
 *
 *      s->call = data_query(ds, &caller, body, on_found, s);
 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/spill.h"
#include "core/caller.h"
#include "core/fault.h"

struct config_section;
struct loop;
struct data;
struct data_call;
struct ledger;

struct data_settings { /* `data:` in the configuration, owned by it */
    char *node;        /* NULL: none is named */
};
extern const struct config_section data_section;

struct data_config {
    const char *dir;          /* the database files live here; made when missing */
    const char *off;          /* why there is none here: what every call is answered; NULL */
    bool elsewhere;           /* with @off: another node has it */
    size_t max_content_bytes; /* longer entries are refused; 0: 1 MiB */
    size_t max_answer_bytes;  /* longer ones in memory are refused, ask for less; 0: 8 MiB */
    uint64_t max_file_bytes;  /* the same of those in a file; 0: 1 GiB */
    size_t max_waiting;       /* calls under way; the next is answered FAULT_BUSY; 0: 10000 */
    size_t max_open;          /* databases kept open; 0: 64 */
    int64_t max_query_ms;     /* a query that takes longer is given up: TimeoutError; 0: 10 s */
    struct ledger *ledger;    /* limits.data_bytes; NULL: no limit */
};

/* Blocks while it opens (start-up only).  @ret_why: 256 bytes, a sentence for the operator. */
enum bh_err data_open(struct loop *loop, const struct data_config *cfg, struct data **ret_ds,
                      char *ret_why);
/* Waits for the writes under way; no callback runs any more, handles are void.  NULL is fine. */
void data_close(struct data *ds);

struct data_answer {    /* valid during the callback only */
    struct fault fault; /* cls FAULT_NONE: it worked */
    struct str json;    /* write, get: PortableData ("null" on a miss); query: [PortableData] */
    /* Instead of @json, for callers that take files; NULL: it was not that long. */
    const struct spill *file;
    size_t count;       /* query: how many; get: 0 is a miss */
    struct str id;      /* write: a UUID */
    int64_t created_at; /* write: seconds */
};
typedef void data_cb(void *ctx, const struct data_answer *a);

/* The callback will not run.  A write that is under way may still happen.  Sets *@call to NULL;
 * NULL is fine. */
void data_cancel(struct data_call **call);

/* @entry: {content, tags?: [text], recipients?: [text], expires_at?: seconds | null,
 * metadata?: {}}. What metadata says of the eleven curated fields moves to the top level;
 * agent_id is the caller's identity (with `attest` metadata.agent_id counts), created_at
 * the store's clock.  An entry whose expires_at has passed is as good as gone.  Wrong
 * types: a plain error (FAULT_INVALID). */
struct data_call *data_write(struct data *ds, const struct caller *who, struct json entry,
                             data_cb *done, void *ctx) BH_MUST_USE;
/* @filters: {query?, limit?, mode?, permissive_filters?, domain_tags?: text | [text]}; mode is
 * "fts" (also when absent), limit a number above 0 (10).  A blank query lists the newest first.
 * QueryError: another mode, a malformed filter, `raw:` text that is no FTS5 syntax.
 * UnsupportedFilterError: any other key, unless permissive_filters is exactly true. */
struct data_call *data_query(struct data *ds, const struct caller *who, struct json filters,
                             data_cb *done, void *ctx) BH_MUST_USE;
/* Never an error for a miss. */
struct data_call *data_get(struct data *ds, const struct caller *who, struct str id, data_cb *done,
                           void *ctx) BH_MUST_USE;

/* Forget every entry of the caller's store; its file stays, empty.  No @json. */
struct data_call *data_clear(struct data *ds, const struct caller *who, data_cb *done,
                             void *ctx) BH_MUST_USE;
/* The namespaces in which a tenant has a store; "" is the unnamed one.  Reads a folder: not for
 * every request. */
typedef void data_ns_cb(void *ctx, struct str ns);
bool data_is_off(const struct data *ds); /* one elsewhere has the unnamed namespace, as it seems */
void data_namespaces(const struct data *ds, struct str tenant, data_ns_cb *cb, void *ctx);

/* {"capabilities_version": ..., "manifest": {"kind": "sqlite-fts", "supported_modes":
 * ["fts"], "supported_filters": ["domain_tags"], "score_range": "unbounded",
 * "regexp_fallback_active": false}} */
void data_manifest(struct jw *w);
/* {"connector_type": "data_store", "implementation": ..., "contract_version": ...,
 * "features": {}}. */
void data_capabilities(struct jw *w);

struct data_stats {
    uint64_t calls, failed; /* failed: busy and unavailable ones */
    uint64_t commits, waiting, open;
    bool healthy;      /* the last write reached the disk */
    char problem[160]; /* why not */
};
void data_stats(const struct data *ds, struct data_stats *ret);

/* A tenant's databases, as store/erasure.h runs it; ctx is the store. */
extern const struct eraser data_eraser;
