/* store.h - the durable state of bellhop: mailbox rows, deduplication keys, named records, leases.
 *
 * The store queues writes, and its thread commits them in groups, several in one transaction.
 * Writes take effect in the order of submission.  Each op's done() runs later, exactly once, on the
 * loop thread; BH_OK means that the transaction is on disk.  So once done(BH_OK) of a write ran,
 * every write submitted before it is on disk too, or has failed.
 *
 * An op is embedded in the caller's object and belongs to the store from the call until done().  A
 * write needs no allocation; the caller keeps the memory that the op points at alive until done().
 *
 *      e->append = (struct store_append){.op = {.done = on_appended}, .id = id, .frame = bytes};
 *      store_append(st, &e->append, true);
 *
 * Urgent ops wake the store at once; other ops may wait up to STORE_LINGER_MS to share a
 * transaction.  This makes a live delivery cheap: its ack arrives while the append still waits, and
 * store_append_shrink() reduces the append to its deduplication key.
 *
 * Reads (fetch, scan) are bounded by bytes, return a cursor, and can be cancelled.  They run
 * beside the writes, which never wait for them, and finish in any order.  What a read sees:
 *      always            every write whose done() ran before the read was submitted
 *      unless .loose     also every write submitted before it: the read waits until those are done
 *      never             half of a transaction
 *
 * The loaders (load_rows and so on) are for start-up, before the loop runs: they block, and see
 * what a loose read sees.  Other threads of the caller may load too; the callback runs on the
 * thread that loads.
 *
 * How a write fails:
 *      BH_UNAVAILABLE    nothing happened; a retry may work
 *      BH_BUSY           the disk is full for new work; acks, marks, deletes and leases still work
 *      BH_UNKNOWN        shared stores only: the write may or may not have happened.  Appends,
 *                        acks, marks, puts and deletes are idempotent: submit the same op again
 *
 * One process writes.  A database file is locked by the process that has it open.  A shared store
 * (store.shared) may be open in several nodes.  The lease holder writes, and store_guard() makes
 * the database check the lease in every transaction.
 */
#pragma once
#include "base/err.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/str.h"
#include "core/contract.h"

#define STORE_LINGER_MS CONTRACT_ACK_LINGER_MS
#define STORE_READ_BYTES ((size_t)8 << 20) /* limit of one read; a single larger row still fits */

struct store;
struct store_kv;
struct store_op;
typedef void store_done_cb(struct store_op *op, enum bh_err err);

enum store_kind {
    STORE_APPEND,
    STORE_ACK,
    STORE_MARK,
    STORE_TX,
    STORE_ERASE,
    STORE_LEASE,
    STORE_FETCH, /* from here on: reads */
    STORE_SCAN,
};

struct store_op {
    store_done_cb *done; /* set by the caller; may be NULL */
    struct store_op *next;
    uint64_t ticket; /* private */
    uint8_t kind;    /* enum store_kind, set by the call */
    uint8_t err;     /* private; beside @kind: compilers read both in one load */
    uint8_t turn;    /* private */
    uint8_t state;   /* private; two threads change it, so no load of its neighbours covers it */
    uint32_t at_us;  /* private; when the op entered the state it is in, modulo 2^32 */
};

/* ---- mailbox rows, kept in order of arrival ---- */

enum store_row_kind { STORE_ROW_INBOUND, STORE_ROW_PASSTHROUGH };
enum store_row_flag {
    STORE_ROW_QUIET = 1,     /* the row wakes no sleeping agent */
    STORE_ROW_STAGED = 2,    /* on disk, but in no mailbox yet: relay/in/staged.h */
    STORE_ROW_HAS_MEDIA = 4, /* the frame names files, which must be kept as long as the row */
};

/* What the transaction of an append writes besides: also for an append that was shrunk. */
struct store_extra {
    const struct hash128 *keys; /* further deduplication keys */
    size_t n_keys;
    const struct store_kv *puts; /* records, with KV_PUT only */
    size_t n_puts;
};

struct store_append {
    struct store_op op;
    uint64_t id;      /* > 0, made by the caller: see store.boot.  A retry keeps its id: an append
                       * whose row exists ends with BH_OK and changes nothing */
    uint32_t box;     /* the mailbox's number */
    uint8_t row_kind; /* enum store_row_kind */
    uint8_t flags;    /* of enum store_row_flag */
    bool has_key;     /* @key goes into the deduplication record in the same transaction */
    bool shrunk;      /* private */
    bool tied;        /* commits in one transaction with the op submitted just before it */
    int64_t at_ms;    /* wall clock */
    struct hash128 key;
    struct str frame;  /* the line for the wire, with its newline; borrowed until done() */
    uint64_t replaces; /* 0, or the staged row that the same transaction deletes */
    const struct store_extra *extra; /* NULL: nothing; borrowed until done(), with its lists */
};

struct store_ack { /* delete rows; unknown ids are fine */
    struct store_op op;
    const uint64_t *ids; /* borrowed until done() */
    size_t n;
};

struct store_mark { /* set attempts and, with a reason, park; parked rows stay until acked away */
    struct store_op op;
    uint64_t id;
    uint32_t attempts;
    struct str parked; /* absent: not parked.  Borrowed until done(). */
    struct str frame;  /* the row's new frame; absent: unchanged.  Borrowed until done(). */
};

struct store_row {
    uint64_t id;
    uint32_t box;
    uint32_t attempts;
    uint8_t row_kind;
    uint8_t flags;
    int64_t at_ms;
    struct str frame; /* absent in reads without frames, but staged rows always have it */
    size_t frame_bytes;
    struct str parked; /* the reason; absent: not parked */
};

struct store_fetch { /* read rows by id; missing ones are left out */
    struct store_op op;
    const uint64_t *ids; /* borrowed until done(); rows come in this order, best ascending */
    size_t n;
    size_t max_bytes;       /* limit of frame bytes, but at least one row; 0: STORE_READ_BYTES */
    size_t expected_bytes;  /* of frames, if the caller knows; 0: unknown.  Known: the ids ascend,
                             * and the store may merge this fetch with others */
    bool loose;             /* see above */
    struct store_row *rows; /* owned by the op from done() on: store_fetch_free() */
    size_t n_rows;
    size_t n_used; /* ids that were read; the rest did not fit */
    void *memory;  /* private */
};

/* True when @op must commit in the transaction of the op before it.  NULL: false. */
static inline bool op_is_tied(const struct store_op *op)
{
    return op != NULL && op->kind == STORE_APPEND && ((const struct store_append *)op)->tied;
}

/* ---- records: (namespace, key) -> value, and conditions on them, in one transaction ---- */

enum store_kv_verb {
    KV_PUT,     /* create or replace */
    KV_INSERT,  /* create; BH_CONFLICT when the key exists */
    KV_DELETE,  /* remove; a missing key is fine */
    KV_CONSUME, /* remove; BH_CONFLICT when the key is missing: for single-use tokens */
};
struct store_kv {
    enum store_kv_verb verb;
    const char *ns;
    struct str key, value; /* borrowed until done() */
};
struct store_tx { /* all or nothing; BH_CONFLICT: a condition did not hold, nothing changed */
    struct store_op op;
    const struct store_kv *items; /* borrowed until done() */
    size_t n;
    bool bulk; /* content, not state: refused with BH_BUSY when the disk is nearly full */
};

/* Deletes the records of @ns whose key starts with @prefix and is below @end, in key order.  One op
 * deletes STORE_ERASE_ITEMS at most; while @more is set, submit it again. */
#define STORE_ERASE_ITEMS 512
struct store_erase {
    struct store_op op;
    const char *ns;
    struct str prefix, end; /* borrowed until done(); @end absent: no upper bound */
    size_t n;               /* records deleted by this submission */
    bool more;              /* more records may match */
};

struct store_record {
    struct str key, value;
};
struct store_scan { /* records of @ns whose key starts with @prefix, in byte order */
    struct store_op op;
    const char *ns;
    struct str prefix, after; /* borrowed until done(); @after: the cursor, exclusive; absent: the
                               * beginning (the end, when reverse) */
    size_t limit;             /* records; 0: as many as fit */
    size_t max_bytes;         /* of keys and values, but at least one record; 0: STORE_READ_BYTES */
    bool reverse;
    bool keys_only; /* values are absent, and do not count */
    bool loose;
    struct store_record *records; /* owned by the op from done() on: store_scan_free() */
    size_t n_records;
    bool more;    /* stopped by a limit: continue with @after = the last key */
    void *memory; /* private */
};

/* ---- leases: decide which node writes; a store that is not shared answers BH_REFUSED ----
 *
 * A lease expires by the clock of the store.  Every grant has a larger epoch than the grant before
 * it, so the epoch is a fencing token. */
enum store_lease_verb {
    LEASE_TAKE,    /* if free, expired or ours; BH_CONFLICT: @holder has it for @left_ms more */
    LEASE_RENEW,   /* for @ttl_ms from now, if still ours under @epoch; else BH_FENCED */
    LEASE_RELEASE, /* BH_OK also when the lease is not ours any more */
};
#define STORE_OWNER_BYTES 64
struct store_lease {
    struct store_op op;
    enum store_lease_verb verb;
    struct str name, owner; /* borrowed until done(); the owner has fewer than STORE_OWNER_BYTES */
    int64_t ttl_ms;
    uint64_t epoch;  /* in: for renew and release; out: from take */
    int64_t left_ms; /* with BH_CONFLICT */
    char holder[STORE_OWNER_BYTES];
};

/* What a message waited for between its append and done(), a histogram of each. */
enum store_wait {
    STORE_WAIT_QUEUE,      /* until its transaction began */
    STORE_WAIT_CHECKPOINT, /* the part of that in which the write thread wrote the log back */
    STORE_WAIT_COMMIT,     /* the transaction */
    STORE_WAIT_ANSWER,     /* from the commit until the loop called done() */
    STORE_WAITS
};
enum { STORE_WAIT_BOUNDS = 9 };
extern const int64_t store_wait_bounds_us[STORE_WAIT_BOUNDS];
struct store_waits {
    uint64_t rows[STORE_WAIT_BOUNDS + 1]; /* by bound; the last: above all of them */
    uint64_t total_us;
};

struct store_stats {
    struct store_waits waits[STORE_WAITS];
    uint64_t commits, ops, failed_ops, shrunk;
    uint64_t rows_written, keys_written;
    uint64_t queued;        /* writes waiting now */
    uint64_t reads_queued;  /* reads waiting now */
    uint64_t reads;         /* done */
    uint64_t cancelled;     /* reads cancelled before they began */
    int64_t last_commit_us; /* how long the last transaction took */
    int64_t queue_age_us;   /* how long the oldest write has waited; grows while a commit hangs */
    int64_t read_age_us;    /* how long the current read has taken */
    int64_t bytes_on_disk;
    int64_t free_bytes; /* space left for the database; -1: unknown */
    bool full;          /* new rows and bulk transactions are refused until space is free */
    bool healthy;       /* the last transaction succeeded */
    char problem[160];  /* why it failed */
};

typedef void store_row_cb(void *ctx, const struct store_row *row);
typedef void store_record_cb(void *ctx, struct str key, struct str value);
typedef void store_key_cb(void *ctx, struct hash128 key, int64_t at_ms);

struct store_settings { /* `store:` in the configuration, owned by it */
    char *kind;         /* "sqlite" */
    char *url;
    uint64_t reserve;   /* bytes of the disk that stay free: new messages are refused instead */
    uint64_t max_bytes; /* of the database; 0: as large as the disk allows */
};
extern const struct config_section store_config;

struct store_ops {
    const char *name;
    void (*submit)(struct store *st, struct store_op *op, bool urgent);
    /* True: only the deduplication key will be written, not the row; done() still runs.  False: too
     * late, the append is being written. */
    bool (*shrink)(struct store *st, struct store_append *a);
    void (*cancel)(struct store *st, struct store_op *read);
    void (*forget_keys)(struct store *st, int64_t before_ms); /* drop older deduplication keys */
    enum bh_err (*load_rows)(struct store *st, store_row_cb *cb, void *ctx);
    /* The records whose key starts with @prefix. */
    enum bh_err (*load_records)(struct store *st, const char *ns, struct str prefix,
                                store_record_cb *cb, void *ctx);
    enum bh_err (*load_keys)(struct store *st, int64_t since_ms, store_key_cb *cb, void *ctx);
    void (*stats)(struct store *st, struct store_stats *ret); /* cheap: reads memory only */
    void (*close)(struct store *st); /* commits queued writes, runs no done(), frees @st */
};

/* The lease that every write of this process must still hold. */
struct store_fence {
    struct str name;
    uint64_t epoch; /* 0: unguarded */
};

struct store { /* first member of every implementation */
    const struct store_ops *ops;
    uint64_t boot; /* larger than at any earlier start: ids are boot << 40 | n, n from 1 */
    struct hash_key dedup_key; /* random per database, for deduplication keys */
    bool shared;               /* several nodes may have this store open: see above */
    struct store_fence guard;  /* see store_guard() */
    struct store_left *left;   /* private to store.c, NULL at first: see store_leave() */
};

static inline void store_append(struct store *st, struct store_append *a, bool urgent)
{
    a->op.kind = STORE_APPEND;
    st->ops->submit(st, &a->op, urgent);
}
static inline bool store_append_shrink(struct store *st, struct store_append *a)
{
    return st->ops->shrink(st, a);
}
static inline void store_ack(struct store *st, struct store_ack *a)
{
    a->op.kind = STORE_ACK;
    st->ops->submit(st, &a->op, false);
}
static inline void store_mark(struct store *st, struct store_mark *m)
{
    m->op.kind = STORE_MARK;
    st->ops->submit(st, &m->op, false);
}
static inline void store_tx(struct store *st, struct store_tx *t, bool urgent)
{
    t->op.kind = STORE_TX;
    st->ops->submit(st, &t->op, urgent);
}
static inline void store_erase(struct store *st, struct store_erase *e)
{
    e->op.kind = STORE_ERASE;
    st->ops->submit(st, &e->op, false);
}
static inline void store_lease(struct store *st, struct store_lease *l)
{
    l->op.kind = STORE_LEASE;
    st->ops->submit(st, &l->op, true);
}
static inline void store_fetch(struct store *st, struct store_fetch *f)
{
    f->op.kind = STORE_FETCH;
    st->ops->submit(st, &f->op, true);
}
static inline void store_scan(struct store *st, struct store_scan *s)
{
    s->op.kind = STORE_SCAN;
    st->ops->submit(st, &s->op, true);
}

/* From now on every transaction of this shared store, except lease ops, checks that the lease @name
 * is held under @epoch.  If not, the ops end with BH_FENCED and nothing is written.  Called before
 * the first write.  @name is a literal or outlives the store. */
static inline void store_guard(struct store *st, struct str name, uint64_t epoch)
{
    st->guard.name = name;
    __atomic_store_n(&st->guard.epoch, epoch, __ATOMIC_RELEASE); /* read by the store's threads */
}

/* Cancels a read.  Its done() still runs: with BH_CANCELLED and no result if the read had not
 * begun, else with the read's normal result. */
static inline void store_cancel(struct store *st, struct store_op *read)
{
    st->ops->cancel(st, read);
}

/* Free the result of a read.  Freeing twice, or after a failed read, is fine. */
void store_fetch_free(struct store_fetch *f);
void store_scan_free(struct store_scan *s);

/* How owners close a store: calls ops->close(), then frees the objects of store_put() and
 * store_leave(). */
void store_close(struct store *st); /* NULL is fine */

/* For an object whose op may outlive its owner.  store_leave() registers the object with the store.
 * Normally done() calls store_take_back() and frees the object.  If the store closes first, done()
 * never runs, and store_close() calls @release to free it. */
struct store_left { /* embedded beside the op */
    struct store_left *next, **prev;
    void (*release)(struct store_left *l);
};
void store_leave(struct store *st, struct store_left *l, void (*release)(struct store_left *l));
void store_take_back(struct store_left *l); /* does nothing when @l is zeroed */

/* Submits a record transaction that owns its memory: copies the items, runs @done (may be NULL)
 * with the result, and frees itself. */
typedef void store_put_cb(void *ctx, enum bh_err err);
struct store_put *store_put(struct store *st, const struct store_kv *items, size_t n, bool urgent,
                            store_put_cb *done, void *ctx);
/* Called before @done ran: drops the callback, but the write still happens.  Sets *@put to NULL; a
 * NULL inside is fine. */
void store_put_cancel(struct store_put **put);

#include "store/record.h" /* the codec of record values */
