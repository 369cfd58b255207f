/* impl.h - what the files of the embedded store share; nobody outside this folder includes it.
 *
 * Who touches what:
 *      the loop thread    submit, shrink, stats, forget_keys, the done() calls, open and close
 *      the write thread   everything that runs SQL on @main once open() returned
 *      the read thread    @reader, its own connection
 *      the log thread     @checkpoints.db, its own connection
 *      loaders            on the thread that calls them, with @reader holding @read_lock or, when
 *                         that is taken, with @main holding @db_lock; the two threads hold theirs
 *                         while they work on a batch or a read
 */
#pragma once
#include <pthread.h>
#include <sqlite3.h>
#include "base/buf.h"
#include "store/result.h"
#include "store/sqlite/sqldb.h"
#include "store/sqlite/sqlite.h"
#include "store/worker.h"

#define SCHEMA_APPLICATION_ID 0x62686f70 /* "bhop": marks a file as a database of bellhop */
#define SCHEMA_EARLIER_ID 0x62656c6c     /* "bell": files from before the first release */
#define FORGET_ROWS 256                  /* deduplication records dropped per transaction */
#define PURGE_ROWS 1024     /* settled rows deleted per transaction while the store is quiet */
#define PURGE_QUIET_MS 50   /* without a submission: the store is quiet */
#define PURGE_BACKLOG 65536 /* settled rows from here on: some are deleted after every batch */
#define PURGE_RETRY_MS 1000 /* after a failure */
#define PROBE_MS 1000 /* after a failed write: between two probes whether writing works again */
#define VACUUM_PAGES 16384 /* free pages from here on, if most of the file is free, are released */
#define PURGE_LATE_MS 5000 /* some are deleted also if the oldest was settled this long ago */

/* Prepared once, kept as long as the connection.  Their text is in schema.c. */
enum statement {
    SQL_BEGIN_WRITE,
    SQL_BEGIN_READ,
    SQL_COMMIT,
    SQL_BOOT,
    SQL_SAVEPOINT,
    SQL_RELEASE,
    SQL_UNDO,
    SQL_APPEND,
    SQL_SEEN,
    SQL_ACKED_ADD,
    SQL_ACKED_LOAD,
    SQL_LOG_END,
    SQL_ACKED_FORGET,
    SQL_PURGE_RUN,
    SQL_MARK,
    SQL_KV_PUT,
    SQL_KV_INSERT,
    SQL_KV_DELETE,
    SQL_KV_ERASE,
    SQL_FORGET,
    SQL_FETCH,
    SQL_SCAN_UP,
    SQL_SCAN_DOWN,
    SQL_SCAN_DOWN_ALL,
    SQL_LOAD_ROWS,
    SQL_LOAD_KEYS,
    SQL_PROBE,
    N_STATEMENTS
};

/* A connection and its statements: one thread at a time. */
struct sql_conn {
    sqlite3 *db;                     /* owned */
    sqlite3_stmt *sql[N_STATEMENTS]; /* owned; NULL: not for this connection */
    struct buf scratch;              /* bounds of a scan */
};

struct settled {
    uint64_t id;
    int64_t log; /* the log row that says so */
};

/* Rows that are settled but not deleted yet: acked.c. */
struct acked {
    pthread_mutex_t lock; /* guards the members up to @reading; the write thread fills @set */
    struct settled *set;  /* owned; a table, id 0 where there is none */
    size_t cap, n;
    uint64_t reads; /* begun, ever */
    bool reading;   /* a read is under way: ids of rows in its snapshot must stay in the set */

    struct buf batch;       /* ids of the transaction under way, as they are logged */
    int64_t log_end;        /* number of the newest log row */
    uint64_t *plan;         /* owned; ids being purged, ascending; NULL: no purge is under way */
    size_t plan_n, plan_at; /* deleted up to here */
    size_t plan_left;       /* out of the set up to here */
    uint64_t plan_reads;    /* reads begun when the newest slice was deleted */
    int64_t plan_log_end;   /* log rows up to here are wholly in @plan */
    int64_t since_us;       /* when the oldest settled row was settled; 0: there is none */
    int64_t retry_us;       /* after a failure: the next try, at the earliest */
};

/* Room on the disk: space.c has the picture. */
enum space_state { SPACE_ROOMY, SPACE_SHORT, SPACE_FULL, SPACE_DRY };
struct space {
    enum space_state state;
    uint64_t wanted, max_bytes; /* as configured; 0: none */
    uint64_t reserve;           /* less on a small disk */
    uint64_t ballast;           /* bytes of the ballast file; 0: there is none */
    uint64_t room, disk;        /* at the last check: free for rows, and free on the disk itself */
    int64_t look_us;            /* when the next check is due; sooner after many writes */
    uint64_t written;           /* bytes since the last check */
    int64_t told_room;          /* for the loop thread: atomic, like the next ones */
    int64_t told_bytes;         /* of the database and its log */
    bool told_full;
};

/* Writing the log back: log.c. */
struct checkpoints {
    /* of the write thread */
    int pages;       /* of the log, after the last commit */
    int retry_pages; /* the write thread copies the rest only once the log is this long */

    pthread_mutex_t lock;   /* guards the next four */
    pthread_cond_t changed; /* @wanted or @stopping */
    bool wanted;            /* the thread is copying, or about to */
    bool stopping;
    int copied; /* pages of the log that the thread has written back */

    bool started;
    pthread_t thread;
    sqlite3 *db; /* owned; used by the thread only */
};

struct store_sqlite {
    struct store_worker worker;
    struct log log;
    char *path;  /* owned */
    int lock_fd; /* holds the flock */

    struct sql_conn main; /* used under db_lock */
    pthread_mutex_t db_lock;
    struct sql_conn reader; /* used under read_lock, like the next two */
    pthread_mutex_t read_lock;
    int64_t log_end;    /* of the log of settled rows, in the snapshot under way */
    struct buf keys;    /* deduplication keys of the transaction under way */
    int64_t keys_at_ms; /* the newest of them */
    struct acked acked;
    struct space space;
    struct checkpoints checkpoints;
    bool boot_pending;       /* the boot number is not on disk yet: the disk was full */
    char batch_problem[160]; /* why an op of this batch failed; empty: none did */
};

static inline struct store_sqlite *sqlite_of(struct store *st)
{
    return container_of(st, struct store_sqlite, worker.base);
}

/* schema.c: the statements, and the meaning of result codes */
bool statements_prepare(struct sql_conn *c, bool reader);
void statements_finalize(struct sql_conn *c);
int sql_run(struct sql_conn *c, enum statement s);          /* step to the end and reset */
void sql_bind_bytes(sqlite3_stmt *q, int at, struct str s); /* absent becomes empty, never NULL */
struct str sql_bytes(sqlite3_stmt *q, int column);          /* borrowed until the next step */
void note_problem(struct store_sqlite *st, const char *doing, int rc);

/* schema.c: settings, migrations, boot number */
int64_t schema_version(void); /* the newest that this program knows */
/* False: @application_id is of another program, or of a bellhop from before the first release. */
bool schema_id_is_ours(const char *path, int64_t application_id, char *ret_why);
bool schema_prepare(struct store_sqlite *st, char *ret_why);

/* space.c: keeps room on the disk; called on the write thread */
void space_init(struct store_sqlite *st, const struct store_settings *settings);
void space_done(struct store_sqlite *st);           /* the database is closed */
void space_look(struct store_sqlite *st, bool now); /* checks when due, or at once */
void space_tell(struct store_sqlite *st);           /* publishes the size of the database */
bool space_may(struct store_sqlite *st, struct store_op *op); /* false: op->err is BH_BUSY */
bool space_is_out(struct store_sqlite *st, int rc);           /* does the code mean a full disk? */
bool space_hit(struct store_sqlite *st); /* a write met a full disk; true: try it again */

/* batch.c: one transaction */
void batch_run(struct store *base, struct store_op *first, struct store_stats *counts);
bool batch_forget(struct store *base, int64_t before_ms); /* false: there is more to forget */
bool batch_probe(struct store_sqlite *st);                /* does writing work? */

/* batch.c: the upkeep of the write thread between its batches */
void maintain(struct store *base, bool quiet);
int64_t maintain_due_us(struct store *base);

/* log.c: writes the log back into the database, beside the commits */
bool checkpoint_start(struct store_sqlite *st,
                      char *ret_why);              /* false: checkpoint_stop() follows */
void checkpoint_maintain(struct store_sqlite *st); /* the write thread, after a round of work */
void checkpoint_stop(struct store_sqlite *st);     /* the write thread has ended */

/* log.c: the name of a VFS that writes the log in large pieces; NULL: the system's own */
const char *log_vfs(void);

/* acked.c: rows that are settled but not deleted yet */
void acked_init(struct acked *a);
void acked_add(struct acked *a, uint64_t id);       /* in the batch under way */
bool acked_has(const struct acked *a, uint64_t id); /* for the write thread: also in the batch */
/* For a read whose snapshot has the log up to @log_end: is this row hidden from it? */
bool acked_hides(struct acked *a, uint64_t id, int64_t log_end);
struct fetch_wish;
void acked_hide(struct acked *a, struct fetch_wish *wishes, size_t n, int64_t log_end);
int acked_write(struct store_sqlite *st); /* the log row of this batch */
void acked_batch_end(struct acked *a, bool committed);
bool acked_purge(struct store_sqlite *st, size_t max_rows); /* one transaction; false: it failed */
bool acked_recover(struct store_sqlite *st); /* at start; false: the log is unreadable */
void acked_read_begin(struct acked *a);      /* the read thread: its snapshot begins now */
void acked_read_end(struct acked *a);
void acked_done(struct acked *a);

/* read.c: reads that fail take no others with them */
void read_run(struct store *base, struct store_op *first); /* one, or fetches linked by next */
struct fetch_wish {     /* of one row; fetches are answered together */
    uint64_t id;        /* 0: hidden */
    uint32_t op, place; /* whose, and where among its ids */
};
enum bh_err load_rows(struct store *base, store_row_cb *cb, void *ctx);
enum bh_err load_records(struct store *base, const char *ns, struct str prefix, store_record_cb *cb,
                         void *ctx);
enum bh_err load_keys(struct store *base, int64_t since_ms, store_key_cb *cb, void *ctx);
