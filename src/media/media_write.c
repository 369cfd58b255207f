/* media_write.c - design.  (media_write.h has the contract.)
 *
 *      IDLE --add--> PIECE --> IDLE ...  --end--> FINISH --> RECORD --> done(), freed
 *        '--abort, failure--> REMOVE --> done() unless aborted, freed
 *
 * A writer has at most one job on the threads.  PIECE writes a piece, and creates the file first
 * if needed.  FINISH syncs the file, renames it and syncs the folder.  RECORD waits for the store.
 * media_end() and media_abort() during a job only set a flag; next() acts on it after the job.  An
 * aborted writer has no owner and frees itself. */
#include "media/media_write.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "media/media_priv.h"
#include "store/store.h"

enum { HEAD_BYTES = 64 };
#define SLICE_BYTES ((uint64_t)512 << 10) /* of one file, unsynced at most */

enum write_state { WRITE_IDLE, WRITE_PIECE, WRITE_FINISH, WRITE_REMOVE, WRITE_RECORD };

struct media_write {
    struct list link;
    struct media *m; /* borrowed */
    struct media_write_ops ops;
    void *ctx;
    struct work work;
    struct timer soon;       /* runs callbacks outside of the caller's call */
    struct media_file *file; /* owned; NULL: the media owns it */
    uint64_t max_bytes;
    uint64_t written, on_disk; /* bytes; only the job's thread uses them */
    int fd;                    /* -1: not created yet */
    int error;                 /* errno of the last job; 0: none */
    uint8_t state;             /* enum write_state */
    bool ended;                /* media_end() was called */
    bool aborted;              /* no callback runs any more */
    bool refused;              /* the thread pool refused the job */
    enum bh_err failed;
    char *piece; /* owned; while WRITE_PIECE */
    size_t n_piece;
    struct store_put *put; /* owned; while WRITE_RECORD */
    char *part, *whole;    /* owned: paths */
    char head[HEAD_BYTES];
    size_t n_head;
};

static void next(struct media_write *w);

static void destroy(struct media_write *w)
{
    list_remove(&w->link);
    timer_stop(w->m->clock, &w->soon);
    w->m->n.writing--;
    if (w->fd >= 0)
        close(w->fd);
    if (w->file != NULL) {
        media_discharge(w->m, w->file, 0);
        media_file_free(w->file);
    }
    store_put_cancel(&w->put);
    free(w->piece);
    free(w->part);
    free(w->whole);
    free(w);
}

/* ---- on a thread ---- */

static void piece_on_thread(struct work *work)
{
    struct media_write *w = container_of(work, struct media_write, work);

    struct statvfs disk;

    if (w->fd < 0)
        w->fd = open(w->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    /* spare_bytes of the disk are reserved for the store: files must never stop messages. */
    if (w->fd >= 0 && fstatvfs(w->fd, &disk) == 0 &&
        (uint64_t)disk.f_bavail * disk.f_frsize < w->m->env.spare_bytes + w->n_piece)
        w->error = ENOSPC;
    else if (w->fd < 0 || !file_write(w->fd, str_make(w->piece, w->n_piece), FILE_END))
        w->error = errno;
    w->written += w->n_piece;
    if (w->error != 0 || w->written - w->on_disk < SLICE_BYTES)
        return;
    /* Syncs the file slice by slice.  A commit of the store waits for everything queued on the disk
     * before it, so the page cache must not collect whole files.  The uploader waits instead. */
    sync_file_range(w->fd, (off64_t)w->on_disk, (off64_t)(w->written - w->on_disk),
                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                        SYNC_FILE_RANGE_WAIT_AFTER); /* may fail: not every file system has it */
    w->on_disk = w->written;
}

static void finish_on_thread(struct work *work)
{
    struct media_write *w = container_of(work, struct media_write, work);

    if (fdatasync(w->fd) != 0 || rename(w->part, w->whole) != 0 || !file_sync_folder_of(w->whole))
        w->error = errno != 0 ? errno : EIO;
}

static void remove_on_thread(struct work *work)
{
    struct media_write *w = container_of(work, struct media_write, work);

    unlink(w->part);
    unlink(w->whole);
}

/* ---- on the loop ---- */

static void fail(struct media_write *w, enum bh_err err)
{
    if (w->failed == BH_OK)
        w->failed = err;
}

static void on_recorded(void *ctx, enum bh_err err)
{
    struct media_write *w = ctx;

    w->put = NULL;
    w->state = WRITE_IDLE;
    if (err != BH_OK)
        fail(w, BH_UNAVAILABLE);
    if (err != BH_OK || w->aborted) {
        if (err == BH_OK) /* delete the record before the file */
            record_delete(w->m->env.store, &media_form, str_of(w->file->id));
        next(w);
        return;
    }
    struct media_file *f = w->file;
    w->file = NULL;
    media_file_add(w->m, f);
    w->m->n.written++;
    w->ops.done(w->ctx, BH_OK, f);
    destroy(w);
}

static void on_job(struct work *work)
{
    struct media_write *w = container_of(work, struct media_write, work);
    enum write_state was = (enum write_state)w->state;

    if (w->m->closing)
        return; /* media_writers_drop() frees the writer */
    w->state = WRITE_IDLE;
    free(w->piece);
    w->piece = NULL;
    if (w->error != 0 && was != WRITE_REMOVE) {
        log_warn(NULL, "media: a file cannot be written: %s", strerror(w->error));
        fail(w, w->error == ENOSPC || w->error == EDQUOT ? BH_BUSY : BH_UNAVAILABLE);
        w->error = 0;
    }
    if (was == WRITE_REMOVE) {
        if (!w->aborted)
            w->ops.done(w->ctx, w->failed, NULL);
        destroy(w);
    } else if (was == WRITE_FINISH && w->failed == BH_OK && !w->aborted) {
        w->file->until_ms = clock_wall_ms(w->m->clock) + w->m->env.settings->ttl_ms;
        w->state = WRITE_RECORD;
        w->put = record_put(w->m->env.store, &media_form, NULL, w->file, true, on_recorded, w);
    } else if (was == WRITE_PIECE && w->failed == BH_OK && !w->aborted && !w->ended) {
        w->ops.room(w->ctx);
    } else {
        next(w);
    }
}

static void start(struct media_write *w, enum write_state state, work_fn *run)
{
    w->state = (uint8_t)state;
    w->work = (struct work){.run = run, .done = on_job};
    w->refused = work_start(w->m->threads, &w->work) != BH_OK;
    if (w->refused)
        timer_set(w->m->clock, &w->soon, 0);
}

/* Detects a type that was not given, and drops an image type that the first bytes contradict. */
static void settle_type(struct media_write *w)
{
    struct str seen = media_sniff(str_make(w->head, w->n_head)), said = str_of(w->file->type);
    bool is_picture = str_starts(said, STR("image/")) && !str_eq(said, STR("image/svg+xml"));
    bool unsaid = str_eq(said, STR("application/octet-stream"));

    if (unsaid && !str_is_empty(seen) && !str_eq(seen, STR("text/html"))) {
        free(w->file->type);
        w->file->type = str_dup(seen);
    } else if (is_picture && !str_starts(seen, STR("image/")) && !str_starts(seen, STR("video/")) &&
               (!str_is_empty(seen) || media_sniffs(said))) {
        free(w->file->type);
        w->file->type = xstrdup("application/octet-stream");
    }
}

/* Starts the next job when no job is running. */
static void next(struct media_write *w)
{
    assert(w->state == WRITE_IDLE);
    if (w->aborted || w->failed != BH_OK) {
        start(w, WRITE_REMOVE, remove_on_thread);
    } else if (w->ended) {
        settle_type(w);
        start(w, WRITE_FINISH, finish_on_thread);
    }
}

static void on_soon(struct timer *t)
{
    struct media_write *w = container_of(t, struct media_write, soon);

    if (w->refused) {
        w->refused = false;
        fail(w, BH_BUSY);
        on_job(&w->work);
    } else if (w->state != WRITE_IDLE) {
        return;
    } else if (w->aborted || w->ended || w->failed != BH_OK) {
        next(w);
    } else {
        w->ops.room(w->ctx);
    }
}

/* ---- the interface ---- */

static char *path_of(const struct media *m, const char *id, const char *suffix)
{
    struct buf path = BUF_INIT;

    media_path_add(&path, m, id, suffix);
    return buf_take(&path);
}

/* A keyed hash, so that the database has no address; 0: nobody. */
static uint64_t who(const struct media *m, const char *what, struct str name)
{
    BUF_LOCAL text = BUF_INIT;

    buf_printf(&text, "media %s ", what);
    buf_add_str(&text, name);
    return name.n > 0 ? hash64(&m->env.store->dedup_key, buf_str(&text)) >> 1 | 1 : 0;
}

struct media_write *media_begin(struct media *m, const struct media_spec *spec,
                                const struct media_write_ops *ops, void *ctx, enum bh_err *ret_err)
{
    uint64_t max = spec->max_bytes != 0 ? spec->max_bytes : MEDIA_MAX_BYTES;
    uint64_t charge = spec->expected > MEDIA_LEAST_CHARGE ? spec->expected : MEDIA_LEAST_CHARGE;
    struct media_file *f = xcalloc(1, sizeof *f);

    f->tenant = str_dup(spec->tenant);
    f->stranger = spec->stranger.n > 0;
    f->by = who(m, "by", spec->stranger);
    f->from = who(m, "from", f->stranger ? spec->address : STR_NULL);
    *ret_err = m->env.off             ? BH_REFUSED
               : spec->expected > max ? BH_MALFORMED
                                      : media_charge(m, f, charge);
    if (*ret_err != BH_OK) {
        media_file_free(f);
        return NULL;
    }
    if (f->stranger) /* announced bytes cost a stranger nothing, so they reserve nothing */
        media_discharge(m, f, MEDIA_LEAST_CHARGE);
    struct media_write *w = xcalloc(1, sizeof *w);
    *w = (struct media_write){.m = m, .ops = *ops, .ctx = ctx, .fd = -1, .max_bytes = max};
    BUF_LOCAL text = BUF_INIT;
    w->file = f;
    media_id_make(m, f->id);
    media_type_add(&text, spec->type);
    f->type = buf_take(&text);
    media_name_add(&text, spec->name);
    f->name = text.n > 0 ? buf_take(&text) : xstrdup("");
    w->part = path_of(m, w->file->id, ".part");
    w->whole = path_of(m, w->file->id, "");
    list_append(&m->writers, &w->link);
    m->n.writing++;
    timer_init(&w->soon, on_soon);
    timer_set(m->clock, &w->soon, 0);
    return w;
}

void media_add(struct media_write *w, struct str bytes)
{
    size_t head = HEAD_BYTES - w->n_head < bytes.n ? HEAD_BYTES - w->n_head : bytes.n;

    assert(w->state == WRITE_IDLE && !w->ended && !w->aborted);
    if (bytes.n == 0) {
        timer_set(w->m->clock, &w->soon, 0);
        return;
    }
    memcpy(w->head + w->n_head, bytes.p, head);
    w->n_head += head;
    w->file->size += bytes.n;
    uint64_t more = w->file->size > w->file->charged ? w->file->size - w->file->charged : 0;
    if (w->file->size > w->max_bytes)
        fail(w, BH_MALFORMED);
    else if (more > 0) /* than was announced */
        fail(w, media_charge(w->m, w->file, more));
    if (w->failed != BH_OK) {
        timer_set(w->m->clock, &w->soon, 0);
        return;
    }
    w->piece = xmalloc(bytes.n);
    memcpy(w->piece, bytes.p, bytes.n);
    w->n_piece = bytes.n;
    start(w, WRITE_PIECE, piece_on_thread);
}

void media_end(struct media_write *w)
{
    w->ended = true;
    if (w->file->size == 0)
        fail(w, BH_MALFORMED);
    if (w->state == WRITE_IDLE)
        timer_set(w->m->clock, &w->soon, 0);
}

void media_abort(struct media_write **pw)
{
    struct media_write *w = *pw;

    *pw = NULL;
    if (w == NULL)
        return;
    w->aborted = true;
    if (w->state == WRITE_IDLE)
        timer_set(w->m->clock, &w->soon, 0);
}

void media_writers_drop(struct media *m)
{
    list_each (&m->writers, it, nxt) {
        struct media_write *w = list_entry(it, struct media_write, link);
        if (w->state != WRITE_RECORD) /* else the record may be committed: keep the file */
            unlink(w->whole);
        unlink(w->part);
        destroy(w);
    }
}
