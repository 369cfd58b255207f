/* impl.h - what the files of the embedded store share; nobody outside this folder includes it.
 *
 * Who touches what:
 *      the loop thread    submit, shrink, stats, forget_keys, the done() calls, open and close
 *      the store thread   everything that runs SQL once open() returned
 *      loaders            run SQL on the loop thread, holding @db_lock, which the store thread
 *                         holds while it works on a batch
 */
#pragma once
#include <pthread.h>
#include <sqlite3.h>
#include "base/buf.h"
#include "base/log.h"
#include "net/loop.h"
#include "store/leases.h"
#include "store/result.h"
#include "store/sqlite/sqlite.h"

#define BATCH_MAX_OPS 4096          /* one transaction; later ops wait for the next one, so that */
#define BATCH_MAX_BYTES (16u << 20) /* the first completion is not late because of the last */
#define BATCH_MAX_READS 512         /* rows asked for: whoever asked sends them while we go on */
#define LINGER_FULL 1024            /* this many waiting ops are company enough */
#define GATHER_ROWS 16      /* so many in the last transaction: the next waits for company */
#define GATHER_SLOW_US 1000 /* if that one took so long */
#define GATHER_MAX_US 1000  /* at most this long */
#define ERASE_LOOK 8192     /* rows looked at per transaction while erasing a mailbox */
#define FORGET_ROWS 256     /* deduplication records dropped per transaction */
#define PURGE_ROWS 1024     /* settled rows deleted per transaction when it is quiet */
#define PURGE_QUIET_MS 50   /* it is, when nothing was submitted for this long */
#define PURGE_BACKLOG 65536 /* settled rows: from here on some go after every batch */
#define PURGE_RETRY_MS 1000 /* after a failure */
#define PROBE_MS 1000       /* while ill: between two looks whether writing works again */
#define PURGE_LATE_MS 5000  /* the same when the oldest was settled that long ago */

/* Prepared once, kept as long as the connection.  Their text is in statements.c. */
enum statement {
    SQL_BEGIN_WRITE,
    SQL_BEGIN_READ,
    SQL_COMMIT,
    SQL_SAVEPOINT,
    SQL_RELEASE,
    SQL_UNDO,
    SQL_APPEND,
    SQL_ONCE_FIND,
    SQL_ONCE_ADD,
    SQL_ONCE_FORGET,
    SQL_LEASE_PUT,
    SQL_LEASE_LOAD,
    SQL_SEEN,
    SQL_ACKED_ADD,
    SQL_ACKED_LOAD,
    SQL_ACKED_FORGET,
    SQL_PURGE_RUN,
    SQL_MARK,
    SQL_KV_PUT,
    SQL_KV_INSERT,
    SQL_KV_DELETE,
    SQL_KV_ERASE,
    SQL_FORGET,
    SQL_FETCH,
    SQL_LIST,
    SQL_SCAN_UP,
    SQL_SCAN_DOWN,
    SQL_SCAN_DOWN_ALL,
    SQL_LOAD_ROWS,
    SQL_LOAD_KEYS,
    SQL_PROBE,
    N_STATEMENTS
};

/* Where an op is.  The loop and the store thread race for QUEUED with a compare-and-swap, so an
 * append can be shrunk up to the moment it is executed, and no lock is taken per op.
 *
 *      QUEUED --store thread--> TAKEN
 *        |-----shrink()-------> SHRUNK     (the key is written, the row is not)
 *        '-----cancel()-------> CANCELLED  (a read that nobody wants any more)
 */
enum op_state { OP_QUEUED = 1, OP_TAKEN, OP_SHRUNK, OP_CANCELLED };

/* Finished ops on their way back to the loop.  An object of its own, because a posted call cannot
 * be called off and may find the store closed. */
struct handback {
    pthread_mutex_t lock;
    struct store_op *first, **end; /* finished, in order of submission */
    bool posted;                   /* a call is on its way, or running: it holds one reference */
    bool closed;                   /* no done() from now on */
    unsigned refs;
    struct store_sqlite *st; /* borrowed; NULL once closed */
};

/* Settled rows that still lie in their table: acked.c. */
struct acked {
    uint64_t *set; /* owned; hidden ids, 0 where there is none */
    size_t cap, n;
    struct buf batch; /* ids of the transaction under way, as they are logged */
    int64_t log_end;  /* number of the newest log row */
    uint64_t *plan;   /* owned; what is being purged, ascending; NULL: nothing is */
    size_t plan_n, plan_at;
    int64_t plan_log_end; /* log rows up to here are wholly in @plan */
    int64_t since_us;     /* when the oldest of them was settled; 0: there is none */
    int64_t retry_us;     /* after a failure: not before */
};

enum thread_state { THREAD_BUSY, THREAD_LINGERING, THREAD_IDLE };

struct store_sqlite {
    struct store base;
    struct loop *loop; /* borrowed */
    struct log log;
    char *path;  /* owned */
    int lock_fd; /* holds the flock */

    sqlite3 *db; /* owned; used under db_lock */
    pthread_mutex_t db_lock;
    sqlite3_stmt *sql[N_STATEMENTS]; /* owned */
    struct buf keys;                 /* deduplication keys of the transaction under way */
    int64_t keys_at_ms;              /* the newest of them */
    struct buf scratch;              /* bounds of a scan */
    struct acked acked;
    struct leases leases;    /* as in their table */
    uint64_t company;        /* rows of the last transaction */
    int64_t commit_us;       /* how long it took */
    char batch_problem[160]; /* why something in this batch failed; empty: all well */

    pthread_t thread;
    bool thread_started;
    struct handback *handback; /* shared with posted calls */

    /* of the loop thread: what this turn submitted; it goes to the queue when the turn ends */
    struct store_op *in_first, **in_end;
    size_t in_n;
    bool in_urgent;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    struct store_op *first, **end; /* the queue, linked through op->next */
    int64_t first_at_us;           /* when @first was submitted */
    enum thread_state thread_state;
    bool signalled; /* a wake is under way: another is pointless */
    bool urgent, stopping;
    int64_t forget_before_ms; /* 0: nothing to forget */
    struct store_stats stats;
};

static inline struct store_sqlite *sqlite_of(struct store *st)
{
    return container_of(st, struct store_sqlite, base);
}

/* statements.c: preparing, and what a result code means */
bool statements_prepare(struct store_sqlite *st);
void statements_finalize(struct store_sqlite *st);
int sql_run(struct store_sqlite *st, enum statement s);     /* step to the end and reset */
void sql_bind_bytes(sqlite3_stmt *q, int at, struct str s); /* absent becomes empty, never NULL */
struct str sql_bytes(sqlite3_stmt *q, int column);          /* borrowed until the next step */
void note_problem(struct store_sqlite *st, const char *doing, int rc);

/* schema.c: settings, migrations, boot number */
bool schema_prepare(struct store_sqlite *st, char *ret_why);

/* thread.c: the queue and the thread */
void queue_init(struct store_sqlite *st);
bool queue_start(struct store_sqlite *st);
void queue_stop(struct store_sqlite *st); /* after the last commit; no done() from here on */
void queue_submit(struct store *base, struct store_op *op, bool urgent);
bool queue_shrink(struct store *base, struct store_append *a);
void queue_cancel(struct store *base, struct store_op *read);
void queue_forget_keys(struct store *base, int64_t before_ms);
void queue_stats(struct store *base, struct store_stats *ret);

/* batch.c: one transaction */
void batch_run(struct store_sqlite *st, struct store_op *first, struct store_stats *counts);
bool batch_forget(struct store_sqlite *st, int64_t before_ms); /* false: there is more to forget */
bool batch_probe(struct store_sqlite *st);                     /* does writing work? */

/* write.c: each runs one op inside the batch's transaction, sets op->err and answers SQLITE_OK, or
 * answers the code of a failure that takes the whole transaction down. */
#define ROW_HAS_FLAGS (1 << 15)
int row_kind_pack(const struct store_append *a);
int write_append(struct store_sqlite *st, struct store_append *a, struct store_stats *counts);
int write_ack(struct store_sqlite *st, const struct store_ack *a);
int write_mark(struct store_sqlite *st, struct store_mark *m);
int write_tx(struct store_sqlite *st, struct store_tx *t);
int write_erase(struct store_sqlite *st, struct store_erase *e);
int write_seen(struct store_sqlite *st, struct store_stats *counts); /* the keys of the batch */

/* acked.c: rows that are settled but not deleted yet */
void acked_add(struct acked *a, uint64_t id); /* hidden from reads from now on */
bool acked_has(const struct acked *a, uint64_t id);
int acked_write(struct store_sqlite *st); /* the log row of this batch */
void acked_batch_end(struct acked *a, bool committed);
bool acked_purge(struct store_sqlite *st, size_t max_rows); /* one transaction; false: it failed */
bool acked_recover(struct store_sqlite *st); /* at start; false: the log is unreadable */
void acked_done(struct acked *a);

/* owner.c: leases, and what a fence says */
bool owner_load(struct store_sqlite *st); /* also after a rollback: as in the table */
int owner_run(struct store_sqlite *st, struct store_lease *l);
bool owner_may(struct store_sqlite *st, struct store_op *op); /* else it is BH_FENCED now */

/* read.c: a read that fails fails alone */
void read_run(struct store_sqlite *st, struct store_op *op);
enum bh_err load_rows(struct store *base, store_row_cb *cb, void *ctx);
enum bh_err load_records(struct store *base, const char *ns, store_record_cb *cb, void *ctx);
enum bh_err load_keys(struct store *base, int64_t since_ms, store_key_cb *cb, void *ctx);
