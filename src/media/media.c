/* media.c - design.  (media.h has the contract.)
 *
 * The sweep checks every file four times per ttl.  All files have the same interval, so appending
 * keeps the list by_look in order.  If a delivery that names the file has not ended yet, the
 * check postpones the expiry to one ttl and one interval from now.  So the file outlives the
 * delivery by at least a ttl, and nobody has to report the end of a delivery to this module.
 *
 * A new file is renamed into place before its record is written; an expired file loses its record
 * first.  A crash in between leaves a file without a record, which the next start deletes. */
#include "media/media.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "media/media_priv.h"
#include "net/loop.h"
#include "store/erasure.h"
#include "store/store.h"

enum { THREADS = 2, LOOKS = 4, SHARED_AGE_MS = 3600 * 1000 };

#define AT(member) offsetof(struct media_settings, member)

static const struct config_key keys[] = {
    {"media.dir", CFG_TEXT, CFG_RESTART, AT(dir),
     .what =
         "The directory of files; the default is `state_dir/media`. With `store.kind: postgres` it "
         "must be a directory that all nodes share; without one no files are accepted."},
    {"media.per_tenant", CFG_BYTES, CFG_RELOAD, AT(tenant_bytes), "1GiB",
     .what = "Bytes of files that one tenant may store at once; a file counts as at least 64 KiB. "
             "Visitors of its chat page, and people not linked to its agent, may use a quarter of "
             "them, and each of these a quarter of that."},
    {"media.total", CFG_BYTES, CFG_RELOAD, AT(all_bytes), "10GiB",
     .what = "The same for all tenants together."},
    {"media.ttl", CFG_DURATION, CFG_RELOAD, AT(ttl_ms), "1h", .min = 1000, .max = 2592000000,
     .what = "How long a file is kept, counted from its upload, or from the moment the gateway "
             "took the message it came with."},
    {"media.wait", CFG_DURATION, CFG_RELOAD, AT(wait_ms), "20s", .min = 100, .max = 600000,
     .what = "How long a message waits for its files; after that it is delivered with a note in "
             "their place."},
    {"media.allow_private", CFG_BOOL, CFG_RELOAD, AT(allow_private), "false",
     .what = "Let agents send files from private addresses. Link-local and metadata addresses are "
             "always refused."},
    {0},
};
const struct config_section media_config = {.keys = keys, .size = sizeof(struct media_settings)};

/* ---- the record ---- */

static const struct record_field hold_fields[] = {
    RECORD_FIELD(struct media_hold, tenant, "tenant", RECORD_NEEDED),
    RECORD_FIELD(struct media_hold, instance, "instance", RECORD_NEEDED),
    RECORD_FIELD(struct media_hold, row, "row", RECORD_NEEDED),
};
static const struct record_form hold_form = RECORD_FORM(NULL, struct media_hold, hold_fields);

static const struct record_field file_fields[] = {
    RECORD_FIELD(struct media_file, id, "id", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct media_file, tenant, "tenant", RECORD_NEEDED),
    RECORD_FIELD(struct media_file, type, "type", RECORD_NEEDED),
    RECORD_FIELD(struct media_file, name, "name", 0),
    RECORD_FIELD(struct media_file, size, "size", 0),
    RECORD_FIELD(struct media_file, until_ms, "until", 0),
    RECORD_FIELD(struct media_file, stranger, "stranger", 0),
    RECORD_FIELD(struct media_file, by, "by", 0),
    RECORD_FIELD(struct media_file, from, "from", 0),
    RECORD_ARRAY(struct media_file, holds, n_holds, "held", &hold_form, MEDIA_MAX_HOLDS),
};
const struct record_form media_form =
    RECORD_FORM("media", struct media_file, file_fields, .lossy = true);
const struct record_form *const media_records[] = {&media_form, NULL};

void media_file_free(struct media_file *f)
{
    record_done(&media_form, f);
    free(f);
}

/* ---- quotas ---- */

/* Strangers together use at most 1 / STRANGERS_SHARE of a quota, so that they cannot use it up.
 * One stranger, or one address, uses at most the other two fractions of that. */
#define STRANGERS_SHARE 4
#define STRANGER_SHARE 4
#define ADDRESS_SHARE 2

static struct str share_key(const uint64_t *who)
{
    return str_make(who, sizeof *who);
}

static bool has_room(uint64_t has, uint64_t n, uint64_t most)
{
    return has <= most && n <= most - has;
}

/* True when @who has room for @n bytes more.  One file of the least size always fits. */
static bool share_fits(const struct media_charges *has, uint64_t who, uint64_t n, uint64_t most)
{
    const struct media_share *s = who != 0 ? map_get(&has->shares, share_key(&who)) : NULL;

    return who == 0 || (s == NULL && n <= MEDIA_LEAST_CHARGE) ||
           has_room(s != NULL ? s->bytes : 0, n, most);
}

static bool fits(const struct media_charges *has, const struct media_file *f, uint64_t n,
                 uint64_t most)
{
    uint64_t strangers = most / STRANGERS_SHARE;

    return has_room(has->all, n, most) &&
           (!f->stranger || (has_room(has->strangers, n, strangers) &&
                             share_fits(has, f->by, n, strangers / STRANGER_SHARE) &&
                             share_fits(has, f->from, n, strangers / ADDRESS_SHARE)));
}

static void add_share(struct media_charges *has, uint64_t who, int64_t n)
{
    struct media_share *s = who != 0 ? map_get(&has->shares, share_key(&who)) : NULL;

    if (who == 0)
        return;
    if (s == NULL) {
        s = xcalloc(1, sizeof *s);
        s->who = who;
        map_put(&has->shares, share_key(&s->who), s);
    }
    s->bytes += (uint64_t)n;
    if (s->bytes > 0)
        return;
    map_del(&has->shares, share_key(&s->who));
    free(s);
}

static void add_charge(struct media_charges *has, const struct media_file *f, int64_t n)
{
    has->all += (uint64_t)n;
    if (!f->stranger)
        return;
    has->strangers += (uint64_t)n;
    add_share(has, f->by, n);
    add_share(has, f->from, n);
}

enum bh_err media_charge(struct media *m, struct media_file *f, uint64_t n)
{
    static const struct media_charges none;
    const struct media_settings *s = m->env.settings;
    struct media_tenant *t = map_get(&m->tenants, str_of(f->tenant));

    if (!fits(t != NULL ? &t->has : &none, f, n, s->tenant_bytes) ||
        !fits(&m->has, f, n, s->all_bytes)) {
        m->n.refused_quota++;
        return BH_BUSY;
    }
    if (t == NULL) {
        t = xcalloc(1, sizeof *t);
        t->name = xstrdup(f->tenant);
        map_put(&m->tenants, str_of(t->name), t);
    }
    add_charge(&t->has, f, (int64_t)n);
    add_charge(&m->has, f, (int64_t)n);
    f->charged += n;
    return BH_OK;
}

void media_discharge(struct media *m, struct media_file *f, uint64_t n)
{
    struct media_tenant *t = map_get(&m->tenants, str_of(f->tenant));
    int64_t change = (int64_t)n - (int64_t)f->charged;

    f->charged = n;
    if (t == NULL || change == 0)
        return;
    add_charge(&t->has, f, change);
    add_charge(&m->has, f, change);
    if (t->has.all > 0)
        return;
    map_del(&m->tenants, str_of(t->name));
    map_done_all(&t->has.shares);
    free(t->name);
    free(t);
}

/* ---- files ---- */

void media_id_make(struct media *m, char ret_id[MEDIA_ID_CHARS + 1])
{
    uint8_t raw[MEDIA_ID_CHARS / 2];
    BUF_LOCAL hex = BUF_INIT;

    rand_bytes(m->env.rand, raw, sizeof raw);
    hex_add(&hex, raw, sizeof raw);
    memcpy(ret_id, buf_z(&hex), MEDIA_ID_CHARS + 1);
}

static int64_t step_ms(const struct media *m)
{
    return m->env.settings->ttl_ms / LOOKS + 1;
}

static void arm_sweep(struct media *m)
{
    if (list_is_empty(&m->by_look) || timer_is_set(&m->sweep))
        return;
    struct media_file *first = list_first(&m->by_look, struct media_file, link);
    int64_t left = first->look_ms - clock_wall_ms(m->clock);
    timer_set(m->clock, &m->sweep, left > 1000 ? left : 1000);
}

void media_file_add(struct media *m, struct media_file *f)
{
    f->look_ms = clock_wall_ms(m->clock) + step_ms(m);
    list_append(&m->by_look, &f->link);
    map_put(&m->files, str_of(f->id), f);
    m->n.files++;
    m->n.bytes += f->size;
    arm_sweep(m);
}

struct removal {
    struct work work;
    char *path; /* owned */
};

static void remove_on_thread(struct work *w)
{
    unlink(container_of(w, struct removal, work)->path);
}

static void removal_done(struct work *w)
{
    struct removal *r = container_of(w, struct removal, work);

    if (w->dropped)
        unlink(r->path);
    free(r->path);
    free(r);
}

static void expire(struct media *m, struct media_file *f)
{
    struct removal *r = xcalloc(1, sizeof *r);

    record_delete(m->env.store, &media_form, str_of(f->id));
    r->path = xstrdup(media_path(m, f));
    r->work = (struct work){.run = remove_on_thread, .done = removal_done};
    if (work_start(m->threads, &r->work) != BH_OK) {
        free(r->path); /* the queue is full: the next start deletes the file */
        free(r);
    }
    list_remove(&f->link);
    map_del(&m->files, str_of(f->id));
    media_discharge(m, f, 0);
    m->n.files--;
    m->n.bytes -= f->size;
    m->n.expired++;
    media_file_free(f);
}

bool media_forget(struct media *m, struct str id)
{
    struct media_file *f = map_get(&m->files, id);

    if (f != NULL)
        expire(m, f);
    return f != NULL;
}

static void on_sweep(struct timer *t)
{
    struct media *m = container_of(t, struct media, sweep);
    int64_t now = clock_wall_ms(m->clock), step = step_ms(m);

    list_each (&m->by_look, it, nxt) {
        struct media_file *f = list_entry(it, struct media_file, link);
        if (f->look_ms > now && f->look_ms <= now + step) /* further: the clock was set back */
            break;
        bool held = false;
        for (size_t i = 0; i < f->n_holds && m->env.is_waiting != NULL && !held; i++)
            held = m->env.is_waiting(m->env.ctx, str_of(f->holds[i].tenant),
                                     str_of(f->holds[i].instance), f->holds[i].row);
        if (held)
            f->until_ms = now + m->env.settings->ttl_ms + step;
        if (f->until_ms <= now) {
            expire(m, f);
            continue;
        }
        f->look_ms = now + step;
        list_move(&f->link, &m->by_look);
        if (nxt == &m->by_look)
            break; /* every file was checked once */
    }
    arm_sweep(m);
}

/* ---- lookup ---- */

const struct media_file *media_find(const struct media *m, struct str id)
{
    return id.n == MEDIA_ID_CHARS ? map_get(&m->files, id) : NULL;
}

bool media_may_read(const struct media_file *f, struct str tenant)
{
    if (str_eq(str_of(f->tenant), tenant))
        return true;
    for (size_t i = 0; i < f->n_holds; i++)
        if (str_eq(str_of(f->holds[i].tenant), tenant))
            return true;
    return false;
}

const char *media_path(struct media *m, const struct media_file *f)
{
    buf_reset(&m->path);
    media_path_add(&m->path, m, f->id, "");
    return buf_z(&m->path);
}

void media_hold(struct media *m, const struct media_file *file, struct str tenant,
                struct str instance, uint64_t row)
{
    struct media_file *f = map_get(&m->files, str_of(file->id));

    if (f == NULL || f->n_holds == MEDIA_MAX_HOLDS)
        return;
    f->holds = xrealloc(f->holds, (f->n_holds + 1) * sizeof f->holds[0]);
    f->holds[f->n_holds++] =
        (struct media_hold){.tenant = str_dup(tenant), .instance = str_dup(instance), .row = row};
    record_put(m->env.store, &media_form, NULL, f, false, NULL, NULL);
}

int64_t media_wait_ms(const struct media *m)
{
    return m->env.settings->wait_ms;
}

void media_stats(const struct media *m, struct media_stats *ret)
{
    *ret = m->n;
}

/* ---- reading ---- */

struct media_read {
    struct work work;
    struct timer refused; /* armed when the threads refuse the job */
    struct list link;
    struct media *m;       /* borrowed */
    media_opened_cb *done; /* NULL: cancelled */
    void *ctx;
    char id[MEDIA_ID_CHARS + 1];
    char *path; /* owned */
    int fd;
};

static void open_on_thread(struct work *w)
{
    struct media_read *r = container_of(w, struct media_read, work);

    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

static void opened(struct work *w)
{
    struct media_read *r = container_of(w, struct media_read, work);
    const struct media_file *f = media_find(r->m, str_of(r->id));

    list_remove(&r->link);
    if ((r->done == NULL || f == NULL) && r->fd >= 0) {
        close(r->fd);
        r->fd = -1;
    }
    if (r->done != NULL)
        r->done(r->ctx, r->fd >= 0 ? f : NULL, r->fd);
    free(r->path);
    free(r);
}

static void read_refused(struct timer *t)
{
    opened(&container_of(t, struct media_read, refused)->work);
}

struct media_read *media_read(struct media *m, const struct media_file *f, media_opened_cb *done,
                              void *ctx)
{
    struct media_read *r = xcalloc(1, sizeof *r);

    *r = (struct media_read){.m = m, .done = done, .ctx = ctx, .fd = -1};
    memcpy(r->id, f->id, sizeof r->id);
    r->path = xstrdup(media_path(m, f));
    r->work = (struct work){.run = open_on_thread, .done = opened};
    timer_init(&r->refused, read_refused);
    list_append(&m->reads, &r->link);
    if (work_start(m->threads, &r->work) != BH_OK)
        timer_set(m->clock, &r->refused, 0);
    return r;
}

void media_read_cancel(struct media_read **r)
{
    if (*r != NULL)
        (*r)->done = NULL;
    *r = NULL;
}

/* ---- URLs and their signatures ----
 *
 * A signature is the first 16 bytes of a MAC over the id and the expiry time in seconds: too long
 * to guess, and short enough for a URL that people copy. */

enum { SIGNATURE_BYTES = 16 };

static const struct str PLACE = STR("/relay/media/");

static void sign(const struct media *m, struct str id, struct str expires,
                 uint8_t ret_mac[SHA256_BYTES])
{
    BUF_LOCAL text = BUF_INIT;

    buf_add_str(&text, id);
    buf_add_c(&text, ' ');
    buf_add_str(&text, expires);
    seal_mac(m->env.seal, STR("media url"), buf_str(&text), ret_mac);
}

void media_url(const struct media *m, struct str base, struct str id, bool with_signature,
               struct buf *out)
{
    uint8_t mac[SHA256_BYTES];
    char expires[24];

    buf_add_str(out, base);
    buf_add_str(out, PLACE);
    buf_add_str(out, id);
    if (!with_signature)
        return;
    snprintf(expires, sizeof expires, "%" PRId64,
             (clock_wall_ms(m->clock) + m->env.settings->ttl_ms) / 1000);
    sign(m, id, str_of(expires), mac);
    buf_printf(out, "?exp=%s&sig=", expires);
    base64url_add(out, mac, SIGNATURE_BYTES);
}

bool media_signature_is_good(const struct media *m, struct str id, struct str expires,
                             struct str signature)
{
    BUF_LOCAL shown = BUF_INIT;
    uint8_t mac[SHA256_BYTES];
    int64_t until_s;
    bool good = str_to_i64(expires, &until_s) && until_s > clock_wall_ms(m->clock) / 1000 &&
                base64url_decode(signature, &shown) && shown.n == SIGNATURE_BYTES;

    if (good) {
        sign(m, id, expires, mac);
        good = ct_equal(mac, shown.p, SIGNATURE_BYTES);
    }
    return good;
}

struct str media_id_in(struct str url)
{
    ptrdiff_t end = str_find(url, '?');

    if (end >= 0)
        url.n = (size_t)end;
    if (url.n < PLACE.n + MEDIA_ID_CHARS)
        return STR_NULL;
    struct str tail = str_skip(url, url.n - PLACE.n - MEDIA_ID_CHARS);
    if (!str_starts(tail, PLACE))
        return STR_NULL;
    tail = str_skip(tail, PLACE.n);
    for (size_t i = 0; i < tail.n; i++)
        if (hex_value(tail.p[i]) < 0 || (tail.p[i] >= 'A' && tail.p[i] <= 'F'))
            return STR_NULL;
    return tail;
}

/* ---- start ---- */

struct media_loading {
    struct media *m;
    struct media_file **all; /* owned; the media takes over the files */
    size_t n, cap;
    struct buf lost; /* ids of missing files, MEDIA_ID_CHARS each */
};

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct media_loading *l = ctx;
    struct media_file *f = xmalloc(sizeof *f);
    struct stat st;

    *f = *(struct media_file *)thing;
    if (key.n != MEDIA_ID_CHARS) {
        media_file_free(f);
        return false;
    }
    if (f->name == NULL)
        f->name = xstrdup("");
    if (stat(media_path(l->m, f), &st) != 0 || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != f->size) {
        buf_add_str(&l->lost, key);
        media_file_free(f);
        return true;
    }
    l->all = xgrow(l->all, l->n, &l->cap, sizeof(struct media_file *));
    l->all[l->n++] = f;
    return true;
}

/* Loads every record whose file exists with the recorded size, and deletes the other records.  A
 * restored backup of the store leaves such records. */
static enum bh_err load(struct media *m, char *ret_why)
{
    struct media_loading l = {.m = m};
    struct record_reader *reader = record_reader_new(NULL);
    int64_t now = clock_wall_ms(m->clock);
    enum bh_err err =
        record_load(m->env.store, &media_form, reader, STR_NULL, on_record, &l, ret_why);

    for (size_t i = 0; i < l.n; i++) {
        struct media_file *f = l.all[i];
        uint64_t charge = f->size > MEDIA_LEAST_CHARGE ? f->size : MEDIA_LEAST_CHARGE;
        if (media_charge(m, f, charge) != BH_OK)
            f->charged = 0; /* a smaller quota does not shorten the life of a file */
        /* A delivery may have ended just before the process stopped. */
        if (f->n_holds > 0)
            f->until_ms = now + m->env.settings->ttl_ms;
        media_file_add(m, f);
    }
    m->n.refused_quota = 0;
    for (size_t at = 0; at < l.lost.n; at += MEDIA_ID_CHARS)
        record_delete(m->env.store, &media_form, str_make(l.lost.p + at, MEDIA_ID_CHARS));
    buf_done(&l.lost);
    free(l.all);
    record_reader_free(reader);
    return err;
}

/* ---- life ---- */

void media_close(struct media *m)
{
    struct media_file *f;
    struct media_tenant *t;

    if (m == NULL)
        return;
    m->closing = true;
    timer_stop(m->clock, &m->sweep);
    list_each (&m->reads, it, nxt) {
        struct media_read *r = list_entry(it, struct media_read, link);
        r->done = NULL;
        if (timer_is_set(&r->refused)) {
            timer_stop(m->clock, &r->refused);
            opened(&r->work);
        }
    }
    media_fetches_drop(m);
    work_pool_free(m->threads);
    media_writers_drop(m);
    for (size_t i = 0; map_next(&m->files, &i, (void **)&f);)
        media_file_free(f);
    map_done(&m->files);
    for (size_t i = 0; map_next(&m->tenants, &i, (void **)&t);) {
        map_done_all(&t->has.shares);
        free(t->name);
        free(t);
    }
    map_done(&m->tenants);
    map_done_all(&m->has.shares);
    buf_done(&m->path);
    free(m->dir);
    free(m);
}

static enum bh_err tidy_folder(struct media *m, char *ret_why)
{
    DIR *d = opendir(m->env.dir);
    BUF_LOCAL path = BUF_INIT;
    size_t removed = 0;
    struct stat st;

    if (d == NULL)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "%.150s: %s", m->env.dir, strerror(errno));
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || media_find(m, str_of(e->d_name)) != NULL)
            continue;
        buf_reset(&path);
        media_path_add(&path, m, e->d_name, "");
        /* With a shared store, another node may still be writing the file or its record. */
        bool young = stat(buf_z(&path), &st) != 0 ||
                     st.st_mtim.tv_sec * 1000 > clock_wall_ms(m->clock) - SHARED_AGE_MS;
        if (m->env.store->shared && young)
            continue;
        removed += unlink(buf_z(&path)) == 0;
    }
    closedir(d);
    if (removed > 0)
        log_info(NULL, "media: removed unused files: %zu", removed);
    return BH_OK;
}

enum bh_err media_open(const struct media_env *env, struct media **ret_m, char *ret_why)
{
    struct media *m = xcalloc(1, sizeof *m);
    enum bh_err err = BH_OK;

    m->env = *env;
    m->dir = xstrdup(env->dir);
    m->env.dir = m->dir;
    m->clock = loop_clock(env->loop);
    list_init(&m->by_look);
    list_init(&m->writers);
    list_init(&m->reads);
    list_init(&m->fetches);
    timer_init(&m->sweep, on_sweep);
    m->threads = work_pool_new(env->loop, THREADS);
    if (mkdir(env->dir, 0700) != 0 && errno != EEXIST) {
        snprintf(ret_why, 256, "%.150s: %s", env->dir, strerror(errno));
        err = BH_UNAVAILABLE;
    }
    if (err == BH_OK)
        err = load(m, ret_why);
    if (err == BH_OK)
        err = tidy_folder(m, ret_why);
    if (err != BH_OK)
        media_close(m);
    else
        *ret_m = m;
    return err;
}

/* ---- erasing ---- */

static void erase_tenant(void *ctx, struct erasure *e)
{
    struct media *m = ctx;
    const struct erase_subject *s = erasure_subject(e);
    size_t n = 0;

    list_each (&m->by_look, it, nxt) {
        struct media_file *f = list_entry(it, struct media_file, link);
        if (!str_eq(str_of(f->tenant), s->tenant))
            continue;
        n++;
        if (!s->dry)
            expire(m, f);
    }
    erasure_count(e, "media", n);
    erasure_next(e);
}

const struct eraser media_eraser = {.tenant = erase_tenant};
