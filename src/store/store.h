/* store.h - what survives a crash: mailbox rows, deduplication keys, named records, leases.
 *
 * Writes are queued and committed in groups by a thread of the implementation; they take effect in
 * the order they were submitted, several in one transaction, and each op's done() runs later on the
 * loop thread, exactly once, with BH_OK only when the transaction is on disk.  So a write whose
 * done(BH_OK) ran implies that every write submitted before it either is on disk too or has failed.
 *
 * An op is embedded in the caller's object and belongs to the store from the call until done():
 * no allocation per write, and the caller keeps what the op points at alive until then.
 *
 *      e->append = (struct store_append){.op = {.done = on_appended}, .id = id, .frame = bytes};
 *      store_append(st, &e->append, true);
 *
 * Urgent ops wake the store at once; the others may wait up to STORE_LINGER_MS for company.  That
 * is how a live delivery costs little: its append lingers, the ack comes first, and
 * store_append_shrink() leaves only the deduplication key to be written.
 *
 * Reads (fetch, list, scan) are bounded by bytes, say how to go on, and can be called off.  They
 * run beside the writes, which never wait for them, and are done in any order.  What a read sees:
 *      always            every write whose done() ran before the read was submitted
 *      unless .loose     also every write submitted before it: the read waits until those are done
 *      never             half of a transaction
 *
 * The loaders are for start-up, before the loop runs: they block, and see what a loose read sees.
 * A thread of the caller's may load too, at the same time; its callback is called there.
 *
 * What a failed write tells: BH_UNAVAILABLE, nothing happened and trying again may work; BH_BUSY,
 * there is no room left for new work (acks, marks, deletes and leases still go through);
 * BH_UNKNOWN, only where the store is another machine: it may or may not have happened.  An append,
 * ack, mark, put or delete that ended so is submitted again as it was: each is idempotent.
 *
 * One process writes.  A file is locked by whoever has it open.  A shared store (store.shared) may
 * be open in several nodes; the one that holds the lease writes, and store_guard() has the database
 * check the lease in every transaction.
 */
#pragma once
#include "base/err.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/str.h"
#include "core/contract.h"

#define STORE_LINGER_MS CONTRACT_ACK_LINGER_MS
#define STORE_READ_BYTES ((size_t)8 << 20) /* no read answers with more, but for a single row */

struct config_section;
struct buf;
struct store;
struct store_left;
struct store_put;
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
    STORE_LIST,
    STORE_SCAN,
};

struct store_op {
    store_done_cb *done; /* set by the caller; may be NULL */
    struct store_op *next;
    uint64_t ticket; /* private */
    uint8_t kind;    /* enum store_kind, set by the call */
    uint8_t state;   /* private */
    uint8_t err;     /* private */
};

/* ---- mailbox rows, kept in order of arrival ---- */

enum store_row_kind { STORE_ROW_INBOUND, STORE_ROW_PASSTHROUGH };
enum store_row_flag {
    STORE_ROW_QUIET = 1,     /* it wakes no sleeper */
    STORE_ROW_STAGED = 2,    /* on disk, but not accepted yet: it waits for something */
    STORE_ROW_HAS_MEDIA = 4, /* it names files that must be kept as long as it is */
};

struct store_append {
    struct store_op op;
    uint64_t id;      /* > 0, made by the caller: see store.boot.  A retry keeps its id, and an id
                       * that has its row already is BH_OK and changes nothing */
    uint32_t box;     /* the mailbox's number */
    uint8_t row_kind; /* enum store_row_kind */
    uint8_t flags;    /* of enum store_row_flag */
    bool has_key;     /* @key goes into the deduplication record in the same transaction */
    bool shrunk;      /* private */
    bool tied;        /* in one transaction with the append that was submitted just before it */
    int64_t at_ms;    /* wall clock */
    struct hash128 key;
    struct str frame;  /* what goes on the wire, one line with its newline; borrowed until done() */
    uint64_t replaces; /* 0, or a row that is deleted in the same transaction: the staged one */
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
    struct str frame;  /* what the row says from now on; absent: as before.  Borrowed too. */
};

struct store_row {
    uint64_t id;
    uint32_t box;
    uint32_t attempts;
    uint8_t row_kind;
    uint8_t flags;
    int64_t at_ms;
    struct str frame; /* absent where only facts are read, but for rows that are STORE_ROW_STAGED */
    size_t frame_bytes;
    struct str parked; /* the reason; absent: not parked */
};

struct store_fetch { /* read rows by id; missing ones are left out */
    struct store_op op;
    const uint64_t *ids; /* borrowed until done(); rows come in this order, best ascending */
    size_t n;
    size_t max_bytes;       /* no more frame bytes than this, but at least one row; 0: the bound */
    size_t expected_bytes;  /* of frames, where the caller knows: then the ids ascend, and it may be
                             * read together with others; 0: unknown */
    bool loose;             /* see above */
    struct store_row *rows; /* owned by the op from done() on: store_fetch_free() */
    size_t n_rows;
    size_t n_used; /* ids looked at: the rest did not fit */
    void *memory;  /* private */
};

struct store_list { /* the rows of one mailbox, ascending */
    struct store_op op;
    uint32_t box;
    uint64_t after; /* a row's number: from the one behind it on; 0: from the first */
    bool bodies;    /* with their frames */
    bool loose;
    size_t limit;           /* rows; 0: as many as fit */
    size_t max_bytes;       /* as in a fetch */
    struct store_row *rows; /* owned by the op from done() on: store_list_free() */
    size_t n_rows;
    bool more;    /* there are rows behind the last one */
    void *memory; /* private */
};

/* Does it belong into the transaction of the op before it?  NULL: there is none. */
static inline bool op_is_tied(const struct store_op *op)
{
    return op != NULL && op->kind == STORE_APPEND && ((const struct store_append *)op)->tied;
}

/* ---- records: (namespace, key) -> value, and conditions on them, in one transaction ---- */

enum store_kv_verb {
    KV_PUT,     /* create or replace */
    KV_INSERT,  /* create; conflict when it exists */
    KV_DELETE,  /* remove; absent is fine */
    KV_CONSUME, /* remove; conflict when absent: single-use things */
};
struct store_kv {
    enum store_kv_verb verb;
    const char *ns;
    struct str key, value; /* borrowed until done() */
};
struct store_tx { /* all or nothing; BH_CONFLICT: nothing was done, @ret_failed is the culprit */
    struct store_op op;
    const struct store_kv *items;
    size_t n, ret_failed;
    bool bulk; /* content, not state: refused with BH_BUSY when the disk gets full */
};

/* Delete the records of @ns whose key starts with @prefix and is below @end.  In order, at most
 * STORE_ERASE_ITEMS at a time: while @more, submit it again. */
#define STORE_ERASE_ITEMS 512
struct store_erase {
    struct store_op op;
    const char *ns;
    struct str prefix, end; /* borrowed until done(); @end absent: all of them */
    size_t n;               /* deleted this time */
    bool more;              /* there may be others */
};

struct store_record {
    struct str key, value;
};
struct store_scan { /* records of @ns whose key starts with @prefix, in byte order */
    struct store_op op;
    const char *ns;
    struct str prefix, after; /* borrowed until done(); @after: exclusive start, absent: from the
                               * beginning (or the end, when reverse) */
    size_t limit;             /* records; 0: as many as fit */
    size_t max_bytes; /* no more bytes of keys and values, but at least one record; 0: the bound */
    bool reverse;
    bool keys_only; /* values are absent, and not counted */
    bool loose;
    struct store_record *records; /* owned by the op from done() on: store_scan_free() */
    size_t n_records;
    bool more;    /* stopped by a limit: go on with @after = the last key */
    void *memory; /* private */
};

/* ---- leases: which node writes; of a shared store only, others answer BH_REFUSED ----
 *
 * A lease ends when its time is up on the clock of the store.  Every grant has a larger epoch than
 * the grant before it, so the epoch is a fencing token. */
enum store_lease_verb {
    LEASE_TAKE,    /* if it is free, ended or ours; conflict: @holder has it for @left_ms more */
    LEASE_RENEW,   /* @ttl_ms from now, if it is still ours under @epoch; else BH_FENCED */
    LEASE_RELEASE, /* it is free from now on; not ours any more: fine */
};
#define STORE_OWNER_BYTES 64
struct store_lease {
    struct store_op op;
    enum store_lease_verb verb;
    struct str name, owner; /* borrowed until done(); the owner has fewer than STORE_OWNER_BYTES */
    int64_t ttl_ms;
    uint64_t epoch;  /* given to renew and release; the answer of take */
    int64_t left_ms; /* with BH_CONFLICT */
    char holder[STORE_OWNER_BYTES];
};

struct store_stats {
    uint64_t commits, ops, failed_ops, shrunk;
    uint64_t rows_written, keys_written;
    uint64_t queued;        /* writes waiting now */
    uint64_t reads_queued;  /* reads waiting now */
    uint64_t reads;         /* done */
    uint64_t cancelled;     /* reads that were called off in time */
    int64_t last_commit_us; /* how long the last transaction took */
    int64_t queue_age_us;   /* how long the oldest write has waited; it grows while writing hangs */
    int64_t read_age_us;    /* how long the read under way has taken */
    int64_t bytes_on_disk;
    int64_t free_bytes; /* room for more; -1: unknown */
    bool full;          /* new rows and bulk are refused until there is room */
    bool healthy;       /* the last transaction succeeded */
    char problem[160];  /* why not */
};

typedef void store_row_cb(void *ctx, const struct store_row *row);
typedef void store_record_cb(void *ctx, struct str key, struct str value);
typedef void store_key_cb(void *ctx, struct hash128 key, int64_t at_ms);

struct store_settings { /* `store:` in the configuration, owned by it */
    char *kind;         /* "sqlite" */
    char *url;
    uint64_t reserve;   /* bytes of the disk that new messages never get */
    uint64_t max_bytes; /* of the database; 0: as large as the disk allows */
};
extern const struct config_section store_config;

struct store_ops {
    const char *name;
    void (*submit)(struct store *st, struct store_op *op, bool urgent);
    /* True: the row will not be written, only its key; done() still runs.  False: too late. */
    bool (*shrink)(struct store *st, struct store_append *a);
    void (*cancel)(struct store *st, struct store_op *read);
    void (*fetch_free)(struct store_fetch *f);
    void (*list_free)(struct store_list *l);
    void (*scan_free)(struct store_scan *s);
    void (*forget_keys)(struct store *st, int64_t before_ms); /* drop older deduplication keys */
    enum bh_err (*load_rows)(struct store *st, store_row_cb *cb, void *ctx);
    enum bh_err (*load_records)(struct store *st, const char *ns, store_record_cb *cb, void *ctx);
    /* Those whose key starts with @prefix; nothing else is read. */
    enum bh_err (*load_under)(struct store *st, const char *ns, struct str prefix,
                              store_record_cb *cb, void *ctx);
    enum bh_err (*load_keys)(struct store *st, int64_t since_ms, store_key_cb *cb, void *ctx);
    void (*stats)(struct store *st,
                  struct store_stats *ret); /* from memory: as often as you like */
    void (*close)(struct store *st);        /* commits what is queued, runs no done(), frees @st */
};

/* "I write as the holder of the lease @name under @epoch." */
struct store_fence {
    struct str name;
    uint64_t epoch; /* 0: unguarded */
};

struct store { /* first member of every implementation */
    const struct store_ops *ops;
    uint64_t boot; /* larger than at any earlier start: ids are boot << 40 | n, n from 1 */
    struct hash_key dedup_key; /* random per database, for deduplication keys */
    bool shared;               /* another machine, that several nodes may use: see above */
    struct store_fence guard;  /* see store_guard() */
    struct store_put *puts;    /* private to store.c, NULL at first: store_put()s under way */
    struct store_left *left;   /* the same: see store_leave() */
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
static inline void store_list(struct store *st, struct store_list *l)
{
    l->op.kind = STORE_LIST;
    st->ops->submit(st, &l->op, true);
}
static inline void store_scan(struct store *st, struct store_scan *s)
{
    s->op.kind = STORE_SCAN;
    st->ops->submit(st, &s->op, true);
}

/* From now on every transaction of this shared store, but for leases, checks that the lease @name
 * is held under @epoch.  BH_FENCED: it is not, and nothing was written.  Called before any write.
 * @name is a literal or outlives the store. */
static inline void store_guard(struct store *st, struct str name, uint64_t epoch)
{
    st->guard.name = name;
    __atomic_store_n(&st->guard.epoch, epoch, __ATOMIC_RELEASE); /* read by the store's threads */
}

/* Call a read off.  Its done() still runs, so that the op has one end: with BH_CANCELLED and no
 * result if it had not begun, which costs next to nothing; else as if nobody had asked. */
static inline void store_cancel(struct store *st, struct store_op *read)
{
    st->ops->cancel(st, read);
}

/* Twice is fine for each of these, and so is a read that failed. */
static inline void store_fetch_free(struct store *st, struct store_fetch *f)
{
    st->ops->fetch_free(f);
}
static inline void store_list_free(struct store *st, struct store_list *l)
{
    st->ops->list_free(l);
}
static inline void store_scan_free(struct store *st, struct store_scan *s)
{
    st->ops->scan_free(s);
}

/* ops->close(), and frees what store_put() and store_leave() still hold: this is how owners close a
 * store. */
void store_close(struct store *st); /* NULL is fine */

/* An op belongs to the store until done(), so an owner that goes earlier leaves the object
 * around the op behind: done() still runs, calls store_take_back() and frees it; where the store
 * is closed first, @release does. */
struct store_left { /* embedded beside the op */
    struct store_left *next, **prev;
    void (*release)(struct store_left *l, const struct store_ops *ops);
};
void store_leave(struct store *st, struct store_left *l,
                 void (*release)(struct store_left *l, const struct store_ops *ops));
void store_take_back(struct store_left *l); /* harmless when zeroed */

/* A whole record transaction as one owned object: copies the items, runs @done (may be NULL) with
 * the result, frees itself. */
typedef void store_put_cb(void *ctx, enum bh_err err);
struct store_put *store_put(struct store *st, const struct store_kv *items, size_t n, bool urgent,
                            store_put_cb *done, void *ctx);
/* Before @done ran: it does not run any more; the write goes on.  NULL inside is fine; sets it to
 * NULL. */
void store_put_cancel(struct store_put **put);

#include "store/record.h" /* the form of record values; and secrets inside them: seal.h */
