/* store.h - what survives a crash: mailbox rows, deduplication keys, and named records.
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
 * Reads (fetch, scan) are queued like writes and see every write submitted before them.
 * The loaders are for start-up, before the loop runs: they block.
 */
#pragma once
#include "base/err.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/str.h"

#define STORE_LINGER_MS 6

struct buf;
struct store;
struct store_put;
struct store_op;
typedef void store_done_cb(struct store_op *op, enum bh_err err);

enum store_kind { STORE_APPEND, STORE_ACK, STORE_MARK, STORE_TX, STORE_FETCH, STORE_SCAN };

struct store_op {
    store_done_cb *done; /* set by the caller; may be NULL */
    struct store_op *next;
    uint8_t kind;  /* enum store_kind, set by the call */
    uint8_t state; /* private */
    uint8_t err;   /* private */
};

/* ---- mailbox rows, kept in order of arrival ---- */

enum store_row_kind { STORE_ROW_INBOUND, STORE_ROW_PASSTHROUGH };

struct store_append {
    struct store_op op;
    uint64_t id;  /* > 0, never used before, larger than those before it but for an append that had
                             * to wait or is tried again after a failure; see store.boot */
    uint32_t box; /* the mailbox's number */
    uint8_t row_kind; /* enum store_row_kind */
    bool has_key;     /* @key goes into the deduplication record in the same transaction */
    bool shrunk;      /* private */
    int64_t at_ms;    /* wall clock */
    struct hash128 key;
    struct str frame; /* what goes on the wire, one line with its newline; borrowed until done() */
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
};

struct store_row {
    uint64_t id;
    uint32_t box;
    uint32_t attempts;
    uint8_t row_kind;
    int64_t at_ms;
    struct str frame; /* absent in load_rows() */
    size_t frame_bytes;
    struct str parked; /* the reason; absent: not parked */
};

struct store_fetch { /* read rows by id, ascending; missing ones are left out */
    struct store_op op;
    const uint64_t *ids; /* borrowed until done(); rows come in this order */
    size_t n;
    size_t max_bytes;       /* no more frame bytes than this, but at least one row; 0: no bound */
    struct store_row *rows; /* owned by the op from done() on: store_fetch_free() */
    size_t n_rows;
    void *memory; /* private */
};

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
};

struct store_record {
    struct str key, value;
};
struct store_scan { /* records of @ns whose key starts with @prefix, in byte order */
    struct store_op op;
    const char *ns;
    struct str prefix,
        after;    /* borrowed until done(); @after: exclusive start, absent: from the beginning (or
                               * the end, when reverse) */
    size_t limit; /* 0: all of them */
    bool reverse;
    struct store_record *records; /* owned by the op from done() on: store_scan_free() */
    size_t n_records;
    void *memory; /* private */
};

struct store_stats {
    uint64_t commits, ops, failed_ops, shrunk;
    uint64_t rows_written, keys_written;
    uint64_t queued;        /* ops waiting now */
    int64_t last_commit_us; /* how long the last transaction took */
    int64_t bytes_on_disk;
    bool healthy;      /* the last transaction succeeded */
    char problem[160]; /* why not */
};

typedef void store_row_cb(void *ctx, const struct store_row *row);
typedef void store_record_cb(void *ctx, struct str key, struct str value);
typedef void store_key_cb(void *ctx, struct hash128 key, int64_t at_ms);

struct store_ops {
    const char *name;
    void (*submit)(struct store *st, struct store_op *op, bool urgent);
    /* True: the row will not be written, only its key; done() still runs.  False: too late. */
    bool (*shrink)(struct store *st, struct store_append *a);
    void (*fetch_free)(struct store_fetch *f);
    void (*scan_free)(struct store_scan *s);
    void (*forget_keys)(struct store *st, int64_t before_ms); /* drop older deduplication keys */
    enum bh_err (*load_rows)(struct store *st, store_row_cb *cb, void *ctx);
    enum bh_err (*load_records)(struct store *st, const char *ns, store_record_cb *cb, void *ctx);
    enum bh_err (*load_keys)(struct store *st, int64_t since_ms, store_key_cb *cb, void *ctx);
    void (*stats)(struct store *st, struct store_stats *ret);
    void (*close)(struct store *st); /* commits what is queued, runs no done(), frees @st */
};

struct store { /* first member of every implementation */
    const struct store_ops *ops;
    uint64_t boot;             /* a number no earlier start had: ids are boot << 40 | n, n from 1 */
    struct hash_key dedup_key; /* random per database, for deduplication keys */
    struct store_put *puts;    /* private to store.c, NULL at first: store_put()s under way */
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

static inline void store_fetch_free(struct store *st, struct store_fetch *f) /* twice is fine */
{
    st->ops->fetch_free(f);
}
static inline void store_scan_free(struct store *st, struct store_scan *s)
{
    st->ops->scan_free(s);
}

/* ops->close(), and frees what store_put() still holds: this is how owners close a store. */
void store_close(struct store *st); /* NULL is fine */

/* A whole record transaction as one owned object: copies the items, runs @done (may be NULL) with
 * the result, frees itself. */
typedef void store_put_cb(void *ctx, enum bh_err err);
void store_put(struct store *st, const struct store_kv *items, size_t n, bool urgent,
               store_put_cb *done, void *ctx);

/* ---- at-rest encryption of secrets inside record values ---- */

struct seal; /* the master key; wiped when freed */
/* From @text (BELLHOP_MASTER_KEY: 64 hex digits or any passphrase of 16 bytes or more, which is
 * stretched), or, when absent, from the file @path, created with mode 0600 when missing. */
enum bh_err seal_open_master(struct str text, const char *path, struct seal **ret_seal,
                             char *ret_why);
void seal_free(struct seal *s);
/* base64(sealed); @name binds it to its place, e.g. "gateway/gw-1/secret". */
void seal_secret(const struct seal *s, struct str name, struct str plain, struct buf *out);
bool unseal_secret(const struct seal *s, struct str name, struct str sealed, struct buf *out);
/* A keyed fingerprint under the master key: nobody without it can make or check one.  @name keeps
 * the uses apart. */
void seal_mac(const struct seal *s, struct str name, struct str text, uint8_t ret_mac[32]);
/* A value that tells whether the key matches the database: stored once, checked at every start. */
bool seal_check(const struct seal *s, struct store *st, char *ret_why);
