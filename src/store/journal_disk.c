/* journal_disk.c - design.  (journal_disk.h has the contract and the picture.)
 *
 * The loop copies new bytes of the journal into jobs of a pool with one thread.  Everything below
 * "the thread's side" runs there, one job after the other, and needs no lock.  A block is written
 * piece by piece: the bytes first, then its head, so a head never counts bytes that are not there.
 *
 * A search has two passes.  The first walks the blocks backwards and collects events and actions.
 * The second walks forwards from the oldest of them and collects the steps of their deliveries.
 * Both look at the filter of a block before they read it.
 *
 * Writing computes no filter: it would cost more than the write itself, and most blocks are never
 * searched.  The first search that meets a block reads the whole block and writes its filter. */
#include "store/journal_disk.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "net/work.h"
#include "store/engine.h"

enum {
    FLUSH_MS = 1000,
    EXPIRE_MS = 600000,
    IN_FLIGHT_MAX = 8 << 20, /* bytes in jobs; more stay in the journal's own memory */
    FILES_MAX = 64,
    FILES_WANTED = 8, /* a file is this part of the limits */
    FILTER_BYTES = 2048,
    STEPS_MAX = 8192,    /* of one search */
    SEARCHES_MAX = 32,   /* waiting at once */
    SEARCH_US = 2000000, /* then the search ends with a cursor */
};
#define MAGIC "BHWHY01"

struct
    block_head { /* of a block, on disk; native byte order: the files never leave their machine */
    char magic[8];
    uint64_t block;
    int64_t first_ms, last_ms;
    uint32_t used;     /* bytes of the payload */
    uint32_t filtered; /* the filter has the records of so many bytes; others than @used: none */
    uint32_t unused[6];
    uint8_t filter[FILTER_BYTES];
};
#define HEAD_FIXED offsetof(struct block_head, filter)
_Static_assert(sizeof(struct block_head) == JOURNAL_HEAD, "core/journal.h reserves this room");

struct file {          /* why-<first>.log */
    uint64_t first, n; /* blocks */
    int64_t first_ms, last_ms;
    int fd;
};

struct journal_disk {
    struct journal_disk_env env; /* dir: owned */
    struct work_pool *pool;
    struct timer flush, expiry;
    size_t in_flight;
    struct list searches; /* struct journal_search; waiting, or under way */
    unsigned n_searches;
    bool closing, told_drops;
    /* the thread's side */
    struct file files[FILES_MAX]; /* oldest first */
    size_t n_files;
    struct block_head head; /* of the block that is being written */
    bool has_head, told_failure;
    char *block;                     /* owned; room for one block */
    uint64_t bytes, written, failed; /* read by the loop, atomically */
};

#define AT(member) offsetof(struct journal_settings, member)
static const struct config_key keys[] = {
    {"why.keep", CFG_DURATION, CFG_RELOAD, AT(keep_ms), "7d", .max = INT64_MAX,
     .what = "How long `bellhop why` can look back: ids, verdicts and times of messages, without "
             "their texts. A shorter `retention` counts instead. 0: nothing is written to disk."},
    {"why.max_bytes", CFG_BYTES, CFG_RELOAD, AT(max_bytes), "256MiB", .min = 1 << 20,
     .what = "The most bytes of it on disk; the oldest go first."},
    {0},
};
const struct config_section journal_config = {.keys = keys,
                                              .size = sizeof(struct journal_settings)};

/* ---- the thread's side: filters ---- */

static uint64_t key_of(const struct journal_disk *d, char kind, struct str text)
{
    char room[JOURNAL_TEXT + 1];
    size_t n = text.n < JOURNAL_TEXT ? text.n : JOURNAL_TEXT;

    room[0] = kind;
    if (n > 0)
        memcpy(room + 1, text.p, n);
    return hash64_brief(&d->env.key, str_make(room, n + 1));
}

static uint64_t key_of_number(const struct journal_disk *d, char kind, uint64_t number)
{
    return key_of(d, kind, str_make(&number, sizeof number));
}

static void filter_add(uint8_t *filter, uint64_t key)
{
    for (int i = 0; i < 3; i++, key >>= 20)
        filter[(key & 16383) / 8] |= (uint8_t)(1u << (key & 7));
}

static bool filter_has(const uint8_t *filter, uint64_t key)
{
    for (int i = 0; i < 3; i++, key >>= 20)
        if ((filter[(key & 16383) / 8] & (1u << (key & 7))) == 0)
            return false;
    return true;
}

static void filter_record(const struct journal_disk *d, uint8_t *filter,
                          const struct journal_record *rec)
{
    char number[24];

    if (rec->kind == JOURNAL_STEP)
        filter_add(filter, key_of_number(d, 'd', rec->delivery));
    if (rec->kind != JOURNAL_EVENT && rec->kind != JOURNAL_ACTION)
        return;
    filter_add(filter, key_of(d, 'm', rec->message_id));
    filter_add(filter, key_of(d, 'c', rec->chat_id));
    if (rec->trace.n > 0)
        filter_add(filter, key_of(d, 'w', journal_trace_id(rec->trace)));
    filter_add(filter, key_of(d, 'u', rec->kind == JOURNAL_EVENT ? rec->user_id : rec->chat_id));
    for (size_t i = 0; i < rec->n_verdicts; i++) {
        filter_add(filter, key_of(d, 't', rec->verdicts[i].tenant));
        filter_add(filter, key_of(d, 'i', rec->verdicts[i].instance));
        if (rec->verdicts[i].delivery != 0)
            filter_add(filter, key_of_number(d, 'd', rec->verdicts[i].delivery));
    }
    if (rec->kind == JOURNAL_EVENT)
        return;
    snprintf(number, sizeof number, "%" PRIu64, rec->number);
    filter_add(filter, key_of(d, 't', rec->tenant));
    filter_add(filter, key_of(d, 'i', rec->instance));
    filter_add(filter, key_of(d, 'r', rec->request));
    filter_add(filter, key_of(d, 'r', str_of(number)));
}

/* ---- the thread's side: files ---- */

static char *path_of(const struct journal_disk *d, uint64_t first)
{
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s/why-%016" PRIx64 ".log", d->env.dir, first);
    return buf_take(&path);
}

static void remove_oldest(struct journal_disk *d)
{
    char *path = path_of(d, d->files[0].first);

    close(d->files[0].fd);
    unlink(path);
    free(path);
    memmove(&d->files[0], &d->files[1], --d->n_files * sizeof d->files[0]);
}

/* Without its filter. */
static bool write_head(const struct journal_disk *d, const struct file *f)
{
    return file_write(f->fd, str_make(&d->head, HEAD_FIXED),
                      (int64_t)((d->head.block - f->first) * JOURNAL_BLOCK));
}

/* Empties the newest file.  Its last block may go on, behind one blank record. */
static void empty_newest(struct journal_disk *d)
{
    struct file *f = &d->files[d->n_files - 1];
    char blank[12] = {0};
    uint16_t used = (uint16_t)d->head.used;

    f->last_ms = clock_os_us(CLOCK_REALTIME) / 1000;
    if (ftruncate(f->fd, 0) != 0 || !d->has_head || d->head.block < f->first || used < sizeof blank)
        return;
    memcpy(blank, &used, sizeof used);
    d->head = (struct block_head){.magic = MAGIC, .block = d->head.block, .used = used};
    if (file_write(f->fd, str_make(blank, sizeof blank),
                   (int64_t)((d->head.block - f->first) * JOURNAL_BLOCK + JOURNAL_HEAD)))
        write_head(d, f);
}

/* Deletes files past their time, and the oldest beyond the bytes; the newest stays. */
static void expire(struct journal_disk *d)
{
    int64_t keep_ms = __atomic_load_n(&d->env.keep_ms, __ATOMIC_RELAXED);
    uint64_t max = __atomic_load_n(&d->env.max_bytes, __ATOMIC_RELAXED), bytes = 0;

    while (d->n_files > 1 && d->files[0].last_ms < clock_os_us(CLOCK_REALTIME) / 1000 - keep_ms)
        remove_oldest(d);
    if (d->n_files == 1 && d->files[0].last_ms < clock_os_us(CLOCK_REALTIME) / 1000 - keep_ms)
        empty_newest(d);
    for (size_t i = 0; i < d->n_files; i++)
        bytes += d->files[i].n * JOURNAL_BLOCK;
    while (d->n_files > 1 && (bytes > max || d->n_files == FILES_MAX)) {
        bytes -= d->files[0].n * JOURNAL_BLOCK;
        remove_oldest(d);
    }
    __atomic_store_n(&d->bytes, bytes, __ATOMIC_RELAXED);
}

static bool has_room(const struct journal_disk *d)
{
    struct statvfs st;

    return statvfs(d->env.dir, &st) != 0 ||
           (uint64_t)st.f_bavail * st.f_frsize > d->env.spare_bytes + JOURNAL_BLOCK;
}

/* The file of a block that is about to be written; NULL: it cannot be. */
static struct file *file_for(struct journal_disk *d, uint64_t block)
{
    struct file *f = d->n_files > 0 ? &d->files[d->n_files - 1] : NULL;
    int64_t old_ms = __atomic_load_n(&d->env.keep_ms, __ATOMIC_RELAXED) / FILES_WANTED;
    uint64_t blocks =
        __atomic_load_n(&d->env.max_bytes, __ATOMIC_RELAXED) / FILES_WANTED / JOURNAL_BLOCK;

    if (f != NULL && block < f->first + f->n)
        return f;
    if (!has_room(d)) {
        errno = ENOSPC;
        return NULL;
    }
    if (f != NULL && block < f->first + (blocks > 0 ? blocks : 1) &&
        clock_os_us(CLOCK_REALTIME) / 1000 - f->first_ms < old_ms) {
        __atomic_fetch_add(&d->bytes, (block - f->first + 1 - f->n) * JOURNAL_BLOCK,
                           __ATOMIC_RELAXED);
        f->n = block - f->first + 1;
        return f;
    }
    expire(d);
    char *path = path_of(d, block);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    free(path);
    if (fd < 0)
        return NULL;
    f = &d->files[d->n_files++];
    *f = (struct file){.first = block,
                       .n = 1,
                       .first_ms = clock_os_us(CLOCK_REALTIME) / 1000,
                       .fd = fd};
    __atomic_fetch_add(&d->bytes, JOURNAL_BLOCK, __ATOMIC_RELAXED);
    return f;
}

static void write_piece(struct journal_disk *d, uint64_t block, size_t offset, struct str bytes)
{
    struct file *f = file_for(d, block);
    int64_t now_ms = clock_os_us(CLOCK_REALTIME) / 1000;

    if (!d->has_head || d->head.block != block)
        d->head = (struct block_head){.magic = MAGIC, .block = block, .first_ms = now_ms};
    d->has_head = true;
    d->head.last_ms = now_ms;
    d->head.used = (uint32_t)(offset + bytes.n - JOURNAL_HEAD);
    if (f != NULL &&
        file_write(f->fd, bytes, (int64_t)((block - f->first) * JOURNAL_BLOCK + offset)) &&
        write_head(d, f)) {
        f->last_ms = d->head.last_ms;
        __atomic_fetch_add(&d->written, bytes.n, __ATOMIC_RELAXED);
        d->told_failure = false;
        return;
    }
    __atomic_fetch_add(&d->failed, 1, __ATOMIC_RELAXED);
    if (!d->told_failure)
        log_warn(NULL, "why: %s cannot be written, so later questions find gaps: %s", d->env.dir,
                 strerror(errno));
    d->told_failure = true;
}

/* Reads the head of block @i of the file.  False: damaged, or never written. */
static bool read_head(const struct file *f, uint64_t i, struct block_head *ret)
{
    return pread(f->fd, ret, sizeof *ret, (off_t)(i * JOURNAL_BLOCK)) == (ssize_t)sizeof *ret &&
           memcmp(ret->magic, MAGIC, sizeof ret->magic) == 0 && ret->block == f->first + i &&
           ret->used <= JOURNAL_BLOCK - JOURNAL_HEAD;
}

static struct str read_payload(struct journal_disk *d, const struct file *f, uint64_t i,
                               const struct block_head *h)
{
    ssize_t n = pread(f->fd, d->block, h->used, (off_t)(i * JOURNAL_BLOCK + JOURNAL_HEAD));

    return str_make(d->block, n > 0 ? (size_t)n : 0);
}

/* Reads the head of block @i of the file and makes its filter if it has none.  False: as for
 * read_head(). */
static bool read_filter(struct journal_disk *d, const struct file *f, uint64_t i,
                        struct block_head *ret)
{
    struct journal_record rec;

    if (!read_head(f, i, ret))
        return false;
    if (ret->filtered == ret->used)
        return true;
    struct str bytes = read_payload(d, f, i, ret);
    memset(ret->filter, 0, sizeof ret->filter);
    while (journal_read(&bytes, &rec))
        filter_record(d, ret->filter, &rec);
    ret->filtered = ret->used;
    /* A filter that cannot be written is made again by the next search. */
    (void)file_write(f->fd, str_make(ret, sizeof *ret), (int64_t)(i * JOURNAL_BLOCK));
    return true;
}

/* ---- jobs ---- */

struct piece { /* bytes on their way to disk; none: old files are looked for */
    struct work work;
    struct journal_disk *d;
    uint64_t block;
    size_t offset, n;
    char bytes[];
};

static void piece_run(struct work *w)
{
    struct piece *p = container_of(w, struct piece, work);

    if (p->n > 0)
        write_piece(p->d, p->block, p->offset, str_make(p->bytes, p->n));
    else
        expire(p->d);
}

static void piece_done(struct work *w)
{
    struct piece *p = container_of(w, struct piece, work);

    if (w->dropped) /* the pool is being freed: journal_disk_close() waits here for nobody else */
        piece_run(w);
    p->d->in_flight -= p->n;
    free(p);
}

static void start_piece(struct journal_disk *d, uint64_t block, size_t offset, struct str bytes)
{
    struct piece *p = xmalloc(sizeof *p + bytes.n);

    *p = (struct piece){.work = {.run = piece_run, .done = piece_done},
                        .d = d,
                        .block = block,
                        .offset = offset,
                        .n = bytes.n};
    if (bytes.n > 0)
        memcpy(p->bytes, bytes.p, bytes.n);
    d->in_flight += p->n;
    if (work_start(d->pool, &p->work) != BH_OK) {
        d->in_flight -= p->n;
        __atomic_fetch_add(&d->failed, 1, __ATOMIC_RELAXED);
        free(p);
    }
}

static void push(struct journal_disk *d)
{
    uint64_t block;
    size_t offset;
    struct str bytes;

    timer_stop(loop_clock(d->env.loop), &d->flush);
    while (d->in_flight < IN_FLIGHT_MAX && journal_take(d->env.journal, &block, &offset, &bytes))
        start_piece(d, block, offset, bytes);
    if (journal_dropped(d->env.journal) > 0 && !d->told_drops) {
        log_warn(NULL, "why: the disk is slower than the traffic, so some records are left out");
        d->told_drops = true;
    }
}

static void on_flush(struct timer *t)
{
    push(container_of(t, struct journal_disk, flush));
}

static void on_expiry(struct timer *t)
{
    struct journal_disk *d = container_of(t, struct journal_disk, expiry);

    start_piece(d, 0, 0, STR_NULL);
    timer_set(loop_clock(d->env.loop), t, EXPIRE_MS);
}

static void on_fresh(void *ctx, bool urgent)
{
    struct journal_disk *d = ctx;

    if (urgent || !timer_is_set(&d->flush))
        timer_set(loop_clock(d->env.loop), &d->flush, urgent ? 0 : FLUSH_MS);
}

/* ---- searching ---- */

struct journal_search {
    struct work work;
    struct list link; /* d->searches */
    struct journal_disk *d;
    journal_found_cb *cb;
    void *ctx;
    struct journal_query q; /* its texts are in the arena */
    uint64_t before;
    size_t limit;
    struct arena arena; /* the bytes of the hits */
    struct journal_hit *hits, *steps;
    size_t n_hits, n_steps;
    uint64_t *deliveries; /* ascending */
    size_t n_deliveries;
    uint64_t next;
    /* an erasure instead */
    struct erasure *e;
    struct journal_subject subject;
    bool only_count;
    size_t n_gone;
};

static size_t query_keys(const struct journal_search *s, uint64_t keys_out[8])
{
    const struct journal_disk *d = s->d;
    const struct journal_query *q = &s->q;
    struct str head = STR("queued:"), id = q->action;
    size_t n = 0;

    if (q->message.n > 0)
        keys_out[n++] = key_of(d, 'm', q->message);
    if (q->person.n > 0)
        keys_out[n++] = key_of(d, 'u', q->person);
    if (q->chat.n > 0)
        keys_out[n++] = key_of(d, 'c', q->chat);
    if (q->tenant.n > 0)
        keys_out[n++] = key_of(d, 't', q->tenant);
    if (q->instance.n > 0)
        keys_out[n++] = key_of(d, 'i', q->instance);
    if (id.n > 0)
        keys_out[n++] = key_of(d, 'r', str_starts(id, head) ? str_skip(id, head.n) : id);
    if (q->delivery != 0)
        keys_out[n++] = key_of_number(d, 'd', q->delivery);
    if (q->trace.n > 0)
        keys_out[n++] = key_of(d, 'w', journal_trace_id(q->trace));
    return n;
}

static struct journal_hit keep_hit(struct journal_search *s, uint64_t pos, struct str bytes)
{
    struct journal_hit hit = {.pos = pos};
    struct str copy = arena_str(&s->arena, bytes);

    journal_read(&copy, &hit.rec);
    return hit;
}

/* The matches of one block, newest first.  False: there are enough. */
static bool search_block(struct journal_search *s, uint64_t block, struct str bytes,
                         int64_t oldest_ms)
{
    struct str rest = bytes, before = bytes;
    struct journal_record rec;
    size_t *at = NULL, n = 0, cap = 0;

    for (; journal_read(&rest, &rec); before = rest) {
        size_t off = (size_t)(before.p - bytes.p);
        if (rec.kind == JOURNAL_GONE || rec.kind == JOURNAL_STEP || rec.at_ms < oldest_ms ||
            !journal_matches(&rec, &s->q) ||
            (s->before != 0 && block * JOURNAL_BLOCK + JOURNAL_HEAD + off >= s->before))
            continue;
        at = xgrow(at, n, &cap, sizeof *at);
        at[n++] = off;
    }
    while (n > 0 && s->n_hits < s->limit) {
        size_t off = at[--n];
        uint64_t pos = block * JOURNAL_BLOCK + JOURNAL_HEAD + off;
        s->hits[s->n_hits++] = keep_hit(s, pos, str_skip(bytes, off));
        s->next = pos;
    }
    free(at);
    return s->n_hits < s->limit;
}

static void collect(struct journal_search *s)
{
    struct journal_disk *d = s->d;
    int64_t oldest_ms =
        clock_os_us(CLOCK_REALTIME) / 1000 - __atomic_load_n(&d->env.keep_ms, __ATOMIC_RELAXED);
    int64_t until_us = thread_now_us() + SEARCH_US;
    uint64_t wanted[8], from = s->before != 0 ? s->before / JOURNAL_BLOCK : UINT64_MAX;
    size_t n = query_keys(s, wanted);
    struct block_head h;

    for (size_t i = d->n_files; i-- > 0;) {
        const struct file *f = &d->files[i];
        for (uint64_t b = f->n; b-- > 0;) {
            bool may = f->first + b <= from && read_filter(d, f, b, &h) && h.last_ms >= oldest_ms;
            for (size_t k = 0; may && k < n; k++)
                may = filter_has(h.filter, wanted[k]);
            if (may && !search_block(s, f->first + b, read_payload(d, f, b, &h), oldest_ms))
                return;
            if (thread_now_us() > until_us) {
                s->next = (f->first + b) * JOURNAL_BLOCK;
                return;
            }
        }
    }
    s->next = 0;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void name_deliveries(struct journal_search *s)
{
    size_t n = 0;

    s->deliveries = xcalloc(s->n_hits * JOURNAL_VERDICTS + 1, sizeof *s->deliveries);
    for (size_t i = 0; i < s->n_hits; i++)
        for (size_t k = 0; k < s->hits[i].rec.n_verdicts; k++)
            if (s->hits[i].rec.verdicts[k].delivery != 0)
                s->deliveries[n++] = s->hits[i].rec.verdicts[k].delivery;
    qsort(s->deliveries, n, sizeof *s->deliveries, by_number);
    s->n_deliveries = n;
}

static void follow_block(struct journal_search *s, uint64_t block, struct str bytes)
{
    struct str rest = bytes, before = bytes;
    struct journal_record rec;

    for (; s->n_steps < STEPS_MAX && journal_read(&rest, &rec); before = rest) {
        if (rec.kind != JOURNAL_STEP || bsearch(&rec.delivery, s->deliveries, s->n_deliveries,
                                                sizeof *s->deliveries, by_number) == NULL)
            continue;
        uint64_t pos = block * JOURNAL_BLOCK + JOURNAL_HEAD + (size_t)(before.p - bytes.p);
        s->steps[s->n_steps++] = keep_hit(s, pos, before);
    }
}

static void follow(struct journal_search *s)
{
    struct journal_disk *d = s->d;
    uint64_t oldest = UINT64_MAX;
    int64_t until_us = thread_now_us() + SEARCH_US;
    struct block_head h;

    for (size_t i = 0; i < s->n_hits; i++)
        if (s->hits[i].pos < oldest)
            oldest = s->hits[i].pos;
    oldest /= JOURNAL_BLOCK;
    uint64_t *wanted = xcalloc(s->n_deliveries + 1, sizeof *wanted);
    for (size_t i = 0; i < s->n_deliveries; i++)
        wanted[i] = key_of_number(d, 'd', s->deliveries[i]);
    for (size_t i = 0; i < d->n_files; i++) {
        const struct file *f = &d->files[i];
        for (uint64_t b = f->first < oldest ? oldest - f->first : 0;
             b < f->n && thread_now_us() < until_us; b++) {
            bool may = false;
            if (!read_filter(d, f, b, &h))
                continue;
            for (size_t k = 0; !may && k < s->n_deliveries; k++)
                may = filter_has(h.filter, wanted[k]);
            if (may)
                follow_block(s, f->first + b, read_payload(d, f, b, &h));
        }
    }
    free(wanted);
}

static void search_run(struct work *w)
{
    struct journal_search *s = container_of(w, struct journal_search, work);

    s->hits = xcalloc(s->limit, sizeof *s->hits);
    collect(s);
    name_deliveries(s);
    if (s->n_deliveries == 0)
        return;
    s->steps = xcalloc(STEPS_MAX, sizeof *s->steps);
    follow(s);
}

static void search_free(struct journal_search *s)
{
    list_remove(&s->link);
    s->d->n_searches--;
    arena_done(&s->arena);
    free(s->hits);
    free(s->steps);
    free(s->deliveries);
    free(s);
}

static void search_done(struct work *w)
{
    struct journal_search *s = container_of(w, struct journal_search, work);

    if (!s->d->closing)
        s->cb(s->ctx, &(struct journal_found){.hits = s->hits,
                                              .n_hits = s->n_hits,
                                              .steps = s->steps,
                                              .n_steps = s->n_steps,
                                              .next = s->next});
    search_free(s);
}

static struct journal_search *search_new(struct journal_disk *d, work_fn *run, work_fn *done)
{
    struct journal_search *s = xcalloc(1, sizeof *s);

    *s = (struct journal_search){.work = {.run = run, .done = done}, .d = d};
    list_append(&d->searches, &s->link);
    d->n_searches++;
    push(d); /* the thread writes what is new first */
    return s;
}

static bool has_room_for(const struct journal_disk *d, const struct journal_query *q)
{
    unsigned of_tenant = 0;

    for (const struct list *it = d->searches.next; it != &d->searches; it = it->next) {
        const struct journal_query *other = &list_entry(it, const struct journal_search, link)->q;
        of_tenant += other->by_tenant && str_eq(other->tenant, q->tenant);
    }
    return d->n_searches < SEARCHES_MAX &&
           (!q->by_tenant || of_tenant < SEARCHES_MAX / JOURNAL_SHARE);
}

bool journal_disk_find(struct journal_disk *d, const struct journal_query *q, uint64_t before,
                       size_t limit, journal_found_cb *cb, void *ctx)
{
    if (!has_room_for(d, q))
        return false;
    struct journal_search *s = search_new(d, search_run, search_done);
    struct str *texts[] = {&s->q.platform, &s->q.message,  &s->q.person, &s->q.chat,
                           &s->q.tenant,   &s->q.instance, &s->q.action, &s->q.trace};
    s->cb = cb;
    s->ctx = ctx;
    s->q = *q;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        *texts[i] = arena_str(&s->arena, *texts[i]);
    s->before = before;
    s->limit = limit < JOURNAL_LIMIT ? limit : JOURNAL_LIMIT;
    if (work_start(d->pool, &s->work) == BH_OK)
        return true;
    search_free(s);
    return false;
}

/* ---- erasing ---- */

static void erase_run(struct work *w)
{
    struct journal_search *s = container_of(w, struct journal_search, work);
    struct journal_disk *d = s->d;
    bool tenant = s->subject.tenant.n > 0;
    uint64_t as_user = key_of(d, 'u', s->subject.user), as_chat = key_of(d, 'c', s->subject.user);
    uint64_t as_tenant = key_of(d, 't', s->subject.tenant);
    struct block_head h;

    for (size_t i = 0; i < d->n_files; i++)
        for (uint64_t b = 0; b < d->files[i].n; b++) {
            const struct file *f = &d->files[i];
            if (!read_filter(d, f, b, &h) ||
                (tenant ? !filter_has(h.filter, as_tenant)
                        : !filter_has(h.filter, as_user) && !filter_has(h.filter, as_chat)))
                continue;
            struct str bytes = read_payload(d, f, b, &h);
            size_t n = journal_blank(d->block, bytes.n, &s->subject, s->only_count);
            s->n_gone += n;
            if (n == 0 || s->only_count)
                continue;
            memset(h.filter, 0, sizeof h.filter); /* it tells of the records that are gone */
            h.filtered = 0;
            off_t at = (off_t)(b * JOURNAL_BLOCK);
            if (!file_write(f->fd, bytes, (int64_t)at + JOURNAL_HEAD) ||
                !file_write(f->fd, str_make(&h, sizeof h), (int64_t)at) || fdatasync(f->fd) != 0)
                s->next = (uint64_t)errno;
        }
}

static void erase_done(struct work *w)
{
    struct journal_search *s = container_of(w, struct journal_search, work);

    if (!s->d->closing && s->next != 0) {
        erasure_fail(s->e, "the files of `bellhop why` cannot be written");
    } else if (!s->d->closing) {
        erasure_count(s->e, "why", s->n_gone);
        erasure_next(s->e);
    }
    search_free(s);
}

static void erase_with(void *ctx, struct erasure *e)
{
    struct journal_disk *d = ctx;
    const struct erase_subject *who = erasure_subject(e);
    struct journal_search *s = search_new(d, erase_run, erase_done);

    s->e = e;
    s->only_count = who->dry;
    s->subject = (struct journal_subject){.tenant = arena_str(&s->arena, who->tenant),
                                          .platform = arena_str(&s->arena, who->platform),
                                          .user = arena_str(&s->arena, who->user)};
    if (work_start(d->pool, &s->work) != BH_OK) {
        search_free(s);
        erasure_fail(e, "too much waits for the files of `bellhop why`; try again");
    }
}

const struct eraser journal_eraser = {.tenant = erase_with, .person = erase_with};

/* ---- opening ---- */

static int by_first(const void *a, const void *b)
{
    return by_number(&((const struct file *)a)->first, &((const struct file *)b)->first);
}

/* Files with other names are left alone. */
static void take_file(struct journal_disk *d, const char *name)
{
    struct file f = {.fd = -1};
    struct block_head h;
    struct stat st;
    char end;

    if (d->n_files == FILES_MAX - 1 || strlen(name) != strlen("why-0123456789abcdef.log") ||
        sscanf(name, "why-%16" SCNx64 ".lo%c", &f.first, &end) != 2 || end != 'g')
        return;
    char *path = path_of(d, f.first);
    f.fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (f.fd < 0 || fstat(f.fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        f.first > UINT64_MAX / JOURNAL_BLOCK / 2 || st.st_size == 0) {
        if (f.fd >= 0)
            close(f.fd);
        free(path);
        return;
    }
    free(path);
    f.n = ((uint64_t)st.st_size + JOURNAL_BLOCK - 1) / JOURNAL_BLOCK;
    /* Searches change a file too, so its time counts only where the heads are damaged. */
    f.last_ms = read_head(&f, f.n - 1, &h) ? h.last_ms : (int64_t)st.st_mtim.tv_sec * 1000;
    f.first_ms = read_head(&f, 0, &h) ? h.first_ms : f.last_ms;
    d->files[d->n_files++] = f;
}

enum bh_err journal_disk_open(const struct journal_disk_env *env, struct journal_disk **ret,
                              char *ret_why)
{
    if (mkdir(env->dir, 0700) != 0 && errno != EEXIST)
        return bh_err_why(BH_REFUSED, ret_why, "%.160s: %s", env->dir, strerror(errno));
    DIR *dir = opendir(env->dir);
    if (dir == NULL)
        return bh_err_why(BH_REFUSED, ret_why, "%.160s: %s", env->dir, strerror(errno));
    struct journal_disk *d = xcalloc(1, sizeof *d);
    d->env = *env;
    d->env.dir = xstrdup(env->dir);
    d->block = xmalloc(JOURNAL_BLOCK);
    list_init(&d->searches);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        take_file(d, e->d_name);
    closedir(dir);
    qsort(d->files, d->n_files, sizeof d->files[0], by_first);
    expire(d);
    const struct file *last = d->n_files > 0 ? &d->files[d->n_files - 1] : NULL;
    journal_begin_at(env->journal, last != NULL ? last->first + last->n : 1);
    journal_on_fresh(env->journal, on_fresh, d);
    timer_init(&d->flush, on_flush);
    timer_init(&d->expiry, on_expiry);
    timer_set(loop_clock(env->loop), &d->expiry, EXPIRE_MS);
    d->pool = work_pool_new(env->loop, 1);
    *ret = d;
    return BH_OK;
}

void journal_disk_close(struct journal_disk *d)
{
    if (d == NULL)
        return;
    d->closing = true;
    journal_on_fresh(d->env.journal, NULL, NULL);
    timer_stop(loop_clock(d->env.loop), &d->flush);
    timer_stop(loop_clock(d->env.loop), &d->expiry);
    work_pool_free(d->pool); /* the thread is gone: its side is ours */
    uint64_t block;
    size_t offset;
    for (struct str bytes; journal_take(d->env.journal, &block, &offset, &bytes);)
        write_piece(d, block, offset, bytes);
    for (size_t i = 0; i < d->n_files; i++)
        close(d->files[i].fd);
    free((char *)(uintptr_t)d->env.dir);
    free(d->block);
    free(d);
}

void journal_disk_set(struct journal_disk *d, int64_t keep_ms, uint64_t max_bytes)
{
    __atomic_store_n(&d->env.keep_ms, keep_ms, __ATOMIC_RELAXED);
    __atomic_store_n(&d->env.max_bytes, max_bytes, __ATOMIC_RELAXED);
}

void journal_disk_stats(struct journal_disk *d, struct journal_stats *ret)
{
    *ret = (struct journal_stats){.bytes = __atomic_load_n(&d->bytes, __ATOMIC_RELAXED),
                                  .records_bytes = __atomic_load_n(&d->written, __ATOMIC_RELAXED),
                                  .dropped_blocks = journal_dropped(d->env.journal),
                                  .thinned = journal_thinned(d->env.journal),
                                  .failed = __atomic_load_n(&d->failed, __ATOMIC_RELAXED)};
}
