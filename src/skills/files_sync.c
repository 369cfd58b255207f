/* files_sync.c - keeps files that people edit, their histories and the index in step.
 * (files.h has the contract.)
 *
 * The files are authoritative and the index follows them.  If the body and the last line of the
 * history disagree, an editor changed the body, and the history gets a line about the edit.  The
 * first access to a directory scans all of it; later scans cover only what the watch reported.
 *
 * A line of a history describes its version completely, so the last line alone describes the skill.
 * Lines that the Skillscript runtime wrote lack author and created_at; the first line of the
 * history has them.
 *
 * The kernel queues an inotify event inside the system call that changes a file, so a request that
 * follows an edit finds the event.  The queue is read on demand; no thread waits for it.  A
 * directory that cannot be watched (inotify limit, or a file system without inotify) is never
 * clean, and every request scans all its files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "skills/files.h"

/* ---- the lines of a history ---- */

#define CHUNK (64u << 10)
#define LINE_MAX_BYTES (64u << 20) /* this store writes no longer lines */

static void kstr_opt(struct jw *w, const char *key, const struct buf *b)
{
    if (b->n > 0)
        jw_kstr(w, key, buf_str(b));
}

void skill_line_write(const struct skill_next *n, bool with_source, struct buf *out)
{
    struct jw w = jw_begin(out);
    struct str hash = str_of(n->content_hash);

    jw_obj(&w);
    jw_kstr(&w, "name", n->name);
    jw_kstr(&w, "version", str_make(hash.p, SKILL_VERSION_HEX));
    jw_kstr(&w, "content_hash", hash);
    jw_kstr(&w, "status", str_of(skill_status_name(n->status)));
    if (n->has_previous)
        jw_kstr(&w, "previous_status", str_of(skill_status_name(n->previous)));
    jw_ki64(&w, "changed_at", n->changed_at);
    kstr_opt(&w, "changed_by", &n->changed_by);
    kstr_opt(&w, "author", &n->author);
    jw_ki64(&w, "created_at", n->created_at);
    jw_ki64(&w, "status_changed_at", n->status_changed_at);
    kstr_opt(&w, "description", &n->description);
    kstr_opt(&w, "type", &n->type);
    if (n->bag.n > 0)
        jw_kraw(&w, "metadata_bag", buf_str(&n->bag));
    if (with_source)
        jw_kstr(&w, "source", buf_str(&n->source));
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

bool skill_line_read(struct json_parser *p, struct str line, struct skill_line *ret_l)
{
    struct json doc;
    struct skill_head *h = &ret_l->head;
    struct skill_version *v = &ret_l->version;
    uint8_t hash[SHA256_BYTES];

    *ret_l = (struct skill_line){0};
    if (!json_parse(p, line, &doc) || !json_is_object(doc))
        return false;
    ret_l->deleted = json_as_bool(json_get(doc, "deleted"), false);
    v->name = json_str(doc, "name");
    v->content_hash = json_str(doc, "content_hash");
    v->changed_by = json_str(doc, "changed_by");
    if (!json_as_i64(json_get(doc, "changed_at"), &v->changed_at))
        v->changed_at = 0;
    if (ret_l->deleted)
        return true;
    if (!hex_decode(v->content_hash, hash, sizeof hash) ||
        !skill_status_parse(json_str(doc, "status"), &v->status))
        return false;
    v->has_previous = skill_status_parse(json_str(doc, "previous_status"), &v->previous);
    *h = (struct skill_head){.status = v->status,
                             .content_hash = v->content_hash,
                             .author = json_str(doc, "author"),
                             .description = json_str(doc, "description"),
                             .type = json_str(doc, "type"),
                             .source = json_str(doc, "source"),
                             .created_at = v->changed_at,
                             .updated_at = v->changed_at,
                             .status_changed_at = v->changed_at};
    ret_l->bag = json_get(doc, "metadata_bag");
    ret_l->is_whole = json_as_i64(json_get(doc, "created_at"), &h->created_at);
    json_as_i64(json_get(doc, "status_changed_at"), &h->status_changed_at);
    return true;
}

static int history_open(struct skill_dir *d, struct str name)
{
    char file[SKILL_NAME_MAX + sizeof SKILL_HISTORY_SUFFIX];

    snprintf(file, sizeof file, "%.*s" SKILL_HISTORY_SUFFIX, STR_FMT(name));
    return d->fd >= 0 ? openat(d->fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
}

static bool read_at(int fd, struct buf *out, int64_t at, size_t n)
{
    while (n > 0) {
        char *room = buf_room(out, n);
        ssize_t got = room != NULL ? pread(fd, room, n, at) : -1;
        if (got <= 0)
            return got == 0; /* truncated during the read */
        out->n += (size_t)got;
        n -= (size_t)got;
        at += got;
    }
    return true;
}

/* The last complete line of @text; returns the offset of its end, 0: none. */
static size_t last_line(struct str text, size_t *ret_start)
{
    const char *end = text.n > 0 ? memrchr(text.p, '\n', text.n) : NULL;

    if (end == NULL)
        return 0;
    const char *before = end > text.p ? memrchr(text.p, '\n', (size_t)(end - text.p)) : NULL;
    *ret_start = before != NULL ? (size_t)(before - text.p) + 1 : 0;
    return (size_t)(end - text.p) + 1;
}

enum skill_found skill_history_last(struct skill_dir *d, struct str name, struct buf *out,
                                    int64_t *ret_end)
{
    int fd = history_open(d, name);
    enum skill_found found = SKILL_MISSING;
    struct stat st;
    size_t start = 0, end = 0;

    *ret_end = 0;
    if (fd < 0)
        return errno == ENOENT || d->fd < 0 ? SKILL_MISSING : SKILL_FAILED;
    if (fstat(fd, &st) != 0)
        found = SKILL_FAILED;
    for (int64_t n = CHUNK; found == SKILL_MISSING && n <= 4 * (int64_t)LINE_MAX_BYTES; n *= 4) {
        int64_t from = st.st_size > n ? st.st_size - n : 0;
        buf_reset(out);
        if (!read_at(fd, out, from, (size_t)(st.st_size - from)))
            found = SKILL_FAILED;
        end = last_line(buf_str(out), &start);
        if (found == SKILL_MISSING && end > 0 && (start > 0 || from == 0)) {
            found = SKILL_FOUND;
            *ret_end = from + (int64_t)end;
        }
        if (from == 0)
            break;
    }
    close(fd);
    if (found == SKILL_FOUND) {
        out->n = end;
        buf_consume(out, start);
    }
    return found;
}

struct each {
    struct json_parser *parser;
    skill_line_cb *cb;
    void *ctx;
};

/* Takes complete lines off the front of @text.  False: the callback stopped the iteration. */
static bool take_lines(struct each *e, struct buf *text)
{
    size_t done = 0;
    bool more = true;

    while (more) {
        struct str rest = str_skip(buf_str(text), done);
        ptrdiff_t eol = str_find(rest, '\n');
        struct skill_line l;
        if (eol < 0)
            break;
        if (skill_line_read(e->parser, str_make(rest.p, (size_t)eol), &l) && !l.deleted)
            more = e->cb(e->ctx, &l);
        done += (size_t)eol + 1;
    }
    buf_consume(text, done);
    return more;
}

enum skill_found skill_history_each(struct skill_dir *d, struct str name, skill_line_cb *cb,
                                    void *ctx)
{
    int fd = history_open(d, name);
    struct buf text = {.limit = LINE_MAX_BYTES};
    struct each e = {json_parser_new(), cb, ctx};
    ssize_t got = 1;

    if (fd < 0) {
        json_parser_free(e.parser);
        return errno == ENOENT ? SKILL_MISSING : SKILL_FAILED;
    }
    while (got > 0) {
        char *room = buf_room(&text, CHUNK);
        got = room != NULL ? read(fd, room, CHUNK) : -1;
        if (got > 0) {
            text.n += (size_t)got;
            if (!take_lines(&e, &text))
                break;
        }
    }
    close(fd);
    buf_done(&text);
    json_parser_free(e.parser);
    return got < 0 ? SKILL_FAILED : SKILL_FOUND;
}

struct origin {
    int64_t *created_at;
    struct buf *author;
};

static bool on_first(void *ctx, const struct skill_line *l)
{
    struct origin *o = ctx;

    *o->created_at = l->version.changed_at;
    buf_reset(o->author);
    buf_add_str(o->author, l->head.author.p != NULL ? l->head.author : l->version.changed_by);
    return false;
}

/* ---- edits by other programs ---- */

#define MAX_DIRTY 1000 /* names; with more, the whole directory is scanned */
#define EVENTS \
    (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | \
     IN_ONLYDIR)

struct dirty {
    struct list link;
    char name[];
};

struct watched {
    char *dir; /* owned */
    int wd;    /* -1: not watched */
    bool all;  /* the next scan covers the whole directory */
    bool seen; /* a full scan was made since start-up */
    struct list dirty;
    size_t n_dirty;
};

struct skill_watch {
    pthread_mutex_t lock;   /* guards all */
    int fd;                 /* inotify; -1: not available */
    struct map by_dir;      /* struct watched */
    struct watched **by_wd; /* owned; indexed by wd, which the kernel counts up */
    size_t n_wd;
};

struct skill_watch *skill_watch_new(void)
{
    struct skill_watch *w = xcalloc(1, sizeof *w);

    pthread_mutex_init(&w->lock, NULL);
    w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    return w;
}

static void forget_dirty(struct watched *d)
{
    list_each (&d->dirty, it, next) {
        struct dirty *x = list_entry(it, struct dirty, link);
        list_remove(it);
        free(x);
    }
    d->n_dirty = 0;
}

void skill_watch_free(struct skill_watch *w)
{
    void *value;

    if (w == NULL)
        return;
    for (size_t i = 0; map_next(&w->by_dir, &i, &value);) {
        struct watched *d = value;
        forget_dirty(d);
        free(d->dir);
        free(d);
    }
    map_done(&w->by_dir);
    if (w->fd >= 0)
        close(w->fd);
    pthread_mutex_destroy(&w->lock);
    free(w->by_wd);
    free(w);
}

/* ---- events; all holding the lock ---- */

static void add_dirty(struct watched *d, struct str file)
{
    struct str name = str_make(file.p, file.n - strlen(SKILL_BODY_SUFFIX));

    if (d->all || !skill_name_valid(name))
        return;
    list_each (&d->dirty, it, next) {
        if (str_eq(str_of(list_entry(it, struct dirty, link)->name), name))
            return;
        if (d->n_dirty > 16)
            break; /* scanning a name twice costs less than searching the list */
    }
    if (d->n_dirty >= MAX_DIRTY) {
        d->all = true;
        forget_dirty(d);
        return;
    }
    struct dirty *x = xmalloc(sizeof *x + name.n + 1);
    memcpy(x->name, name.p, name.n);
    x->name[name.n] = '\0';
    list_append(&d->dirty, &x->link);
    d->n_dirty++;
}

static void take_event(struct skill_watch *w, const struct inotify_event *e)
{
    struct watched *d = e->wd >= 0 && (size_t)e->wd < w->n_wd ? w->by_wd[e->wd] : NULL;
    void *value;

    for (size_t i = 0; e->mask & IN_Q_OVERFLOW && map_next(&w->by_dir, &i, &value);)
        ((struct watched *)value)->all = true;
    if (d == NULL)
        return;
    if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        if (e->mask & IN_MOVE_SELF)
            inotify_rm_watch(w->fd, e->wd);
        w->by_wd[e->wd] = NULL;
        d->wd = -1;
        d->all = true;
        return;
    }
    struct str file = e->len > 0 ? str_of(e->name) : STR("");
    if (str_ends(file, STR(SKILL_BODY_SUFFIX)))
        add_dirty(d, file);
}

static void drain(struct skill_watch *w)
{
    _Alignas(struct inotify_event) char events[16384];
    ssize_t n;

    while (w->fd >= 0 && (n = read(w->fd, events, sizeof events)) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(events + at);
            take_event(w, e);
            at += (ssize_t)(sizeof *e + e->len);
        }
    }
}

static struct watched *watched_get(struct skill_watch *w, struct str dir)
{
    struct watched *d = map_get(&w->by_dir, dir);

    if (d != NULL)
        return d;
    d = xcalloc(1, sizeof *d);
    *d = (struct watched){.dir = str_dup(dir), .wd = -1, .all = true};
    list_init(&d->dirty);
    map_put(&w->by_dir, str_of(d->dir), d);
    return d;
}

static void watch(struct skill_watch *w, struct watched *d)
{
    if (d->wd >= 0 || w->fd < 0)
        return;
    d->wd = inotify_add_watch(w->fd, d->dir, EVENTS);
    if (d->wd < 0)
        return;
    if ((size_t)d->wd >= w->n_wd) {
        size_t n = (size_t)d->wd * 2 + 16;
        w->by_wd = xrealloc(w->by_wd, n * sizeof *w->by_wd);
        memset(w->by_wd + w->n_wd, 0, (n - w->n_wd) * sizeof *w->by_wd);
        w->n_wd = n;
    }
    w->by_wd[d->wd] = d;
}

/* ---- questions ---- */

bool skill_watch_is_clean(struct skill_watch *w, struct str dir)
{
    pthread_mutex_lock(&w->lock);
    drain(w);
    const struct watched *d = map_get(&w->by_dir, dir);
    bool clean = d != NULL && d->wd >= 0 && !d->all && d->n_dirty == 0;
    pthread_mutex_unlock(&w->lock);
    return clean;
}

bool skill_watch_is_seen(struct skill_watch *w, struct str dir)
{
    pthread_mutex_lock(&w->lock);
    const struct watched *d = map_get(&w->by_dir, dir);
    bool seen = d != NULL && d->seen;
    pthread_mutex_unlock(&w->lock);
    return seen;
}

bool skill_watch_take(struct skill_watch *w, struct str dir, bool *ret_all, skill_watch_cb *cb,
                      void *ctx)
{
    struct list taken;
    bool ok = true;

    list_init(&taken);
    pthread_mutex_lock(&w->lock);
    drain(w);
    struct watched *d = watched_get(w, dir);
    watch(w, d);
    *ret_all = d->all || d->wd < 0;
    d->all = false;
    d->seen = true;
    list_each (&d->dirty, it, next)
        list_move(it, &taken);
    d->n_dirty = 0;
    pthread_mutex_unlock(&w->lock);
    list_each (&taken, it, next) {
        struct dirty *x = list_entry(it, struct dirty, link);
        ok = ok && (*ret_all || cb(ctx, str_of(x->name)));
        list_remove(it);
        free(x);
    }
    if (!ok)
        skill_watch_spoil(w, dir);
    return ok;
}

void skill_watch_spoil(struct skill_watch *w, struct str dir)
{
    pthread_mutex_lock(&w->lock);
    struct watched *d = watched_get(w, dir);
    d->all = true;
    d->seen = false;
    pthread_mutex_unlock(&w->lock);
}

/* ---- synchronising files, histories and index ---- */

#define SETTLE_MS 5      /* gives an editor that writes in place time to finish */
#define RACY_NS 50000000 /* a file this new may change again without a new mtime */

bool files_enter(struct files_conn *c, const struct skill_where *at, bool make)
{
    skill_dir_close(&c->dir);
    buf_reset(&c->path);
    skill_dir_path(c->files->root, at, &c->path);
    return skill_dir_open(&c->dir, buf_z(&c->path), make);
}

static void index_broke(struct files_conn *c)
{
    if (c->index_ok)
        log_warn(NULL, "skills: the index of %s: %s; rebuilding it", buf_z(&c->path),
                 c->index->why);
    c->index_ok = false;
    skill_watch_spoil(c->files->watch, buf_str(&c->path));
}

void files_index_put(struct files_conn *c, const struct skill_where *at, const struct skill_next *n,
                     const struct skill_stamp *stamp)
{
    if (c->index_ok && !skill_index_put(c->index, at, n, stamp))
        index_broke(c);
}

void files_index_drop(struct files_conn *c, const struct skill_where *at, struct str name)
{
    if (c->index_ok && !catalog_drop(c->index, at, name))
        index_broke(c);
}

/* ---- one skill ---- */

struct files_known { /* what the history says */
    struct json_parser *parser;
    struct buf line, author, bag;
    struct skill_line last;
    bool any;
};

static void known_done(struct files_known *k)
{
    json_parser_free(k->parser);
    buf_done(&k->line);
    buf_done(&k->author);
    buf_done(&k->bag);
}

static enum skill_found read_history(struct files_conn *c, struct str name, struct files_known *k)
{
    int64_t end;
    struct jw w = jw_begin(&k->bag);

    k->parser = json_parser_new();
    enum skill_found found = skill_history_last(&c->dir, name, &k->line, &end);
    if (found != SKILL_FOUND)
        return found;
    k->any = skill_line_read(k->parser, buf_str(&k->line), &k->last);
    if (!k->any || k->last.deleted)
        return SKILL_FOUND;
    if (!k->last.is_whole) { /* the Skillscript runtime wrote it */
        struct origin o = {&k->last.head.created_at, &k->author};
        found = skill_history_each(&c->dir, name, on_first, &o);
        k->last.head.author = k->author.n > 0 ? buf_str(&k->author) : STR_NULL;
    }
    if (json_is_object(k->last.bag)) {
        jw_value(&w, k->last.bag);
        k->last.head.bag = buf_str(&k->bag);
    }
    return found;
}

static void set(struct buf *b, struct str s)
{
    buf_reset(b);
    buf_add_str(b, s);
}

/* Builds the version that the body and the last line describe. */
static void next_of(const struct files_known *k, struct str name, struct str body,
                    struct skill_next *n)
{
    const struct skill_head *h = &k->last.head;

    n->name = name;
    n->status = h->status;
    n->previous = k->last.version.previous;
    n->has_previous = k->last.version.has_previous;
    n->created_at = h->created_at;
    n->changed_at = h->updated_at;
    n->status_changed_at = h->status_changed_at;
    n->created = false;
    set(&n->source, body);
    set(&n->author, h->author);
    set(&n->changed_by, k->last.version.changed_by);
    set(&n->bag, h->bag);
    set(&n->description, h->description);
    set(&n->type, h->type);
    skill_next_finish(n);
}

static void owner_of(const struct files_conn *c, const struct stat *st, struct buf *out)
{
    struct passwd pw, *found = NULL;
    char text[1024];

    if (c->files->default_author != NULL)
        buf_add_z(out, c->files->default_author);
    else if (getpwuid_r(st->st_uid, &pw, text, sizeof text, &found) == 0 && found != NULL)
        buf_add_z(out, pw.pw_name);
    else
        buf_printf(out, "uid-%u", st->st_uid);
}

/* Reads until two reads in a row give the same bytes: the editor has finished writing. */
static enum skill_found read_settled(struct files_conn *c, struct str name, struct buf *body,
                                     struct stat *st)
{
    const struct timespec pause = {.tv_nsec = SETTLE_MS * 1000000};
    struct buf again = BUF_INIT;
    enum skill_found found;

    for (int tries = 0; tries < 20; tries++) {
        nanosleep(&pause, NULL);
        found = skill_file_read(&c->dir, name, &again, st);
        bool same = found == SKILL_FOUND && str_eq(buf_str(&again), buf_str(body));
        set(body, buf_str(&again));
        if (same || found == SKILL_FAILED)
            break;
    }
    buf_done(&again);
    return found;
}

/* Appends a history line for a body that an editor changed. */
static enum skill_found take_edit(struct files_conn *c, const struct skill_where *at,
                                  struct str name, struct buf *body, const struct files_known *k,
                                  struct skill_next *n)
{
    struct stat st;
    struct buf author = BUF_INIT, line = BUF_INIT;
    struct skill_stamp stamp;
    enum skill_found found = read_settled(c, name, body, &st);

    if (found != SKILL_FOUND)
        return found;
    owner_of(c, &st, &author);
    skill_decide_found(c->files->rules, name, buf_str(body), buf_str(&author), st.st_mtim.tv_sec,
                       k->any ? &k->last.head : NULL, n);
    bool ok, same = str_eq(buf_str(&n->source), buf_str(body));
    if (!same || !k->any || !str_eq(k->last.version.content_hash, str_of(n->content_hash))) {
        skill_line_write(n, true, &line);
        ok = skill_file_write(&c->dir, name, same ? NULL : &n->source, buf_str(&line), !k->any,
                              &stamp);
    } else {
        ok = skill_file_stamp(&c->dir, name, &stamp);
    }
    if (ok)
        files_index_put(c, at, n, &stamp);
    buf_done(&author);
    buf_done(&line);
    return ok ? SKILL_FOUND : SKILL_FAILED;
}

/* Indexes the version that body and history agree on, unless the index has it already. */
static enum skill_found index_known(struct files_conn *c, const struct skill_where *at,
                                    struct str name, const struct skill_next *n)
{
    struct arena arena = ARENA_INIT;
    struct skill_row row;
    struct skill_stamp stamp, old;
    enum skill_found found = SKILL_FOUND;

    if (!skill_file_stamp(&c->dir, name, &stamp))
        return SKILL_MISSING; /* deleted just now; the watch has the event */
    if (c->index_ok)
        found = skill_index_get(c->index, at, name, &arena, &row, &old);
    if (found == SKILL_FAILED)
        index_broke(c);
    else if (found == SKILL_FOUND && c->index_ok && str_eq(row.meta, buf_str(&n->meta)) &&
             row.updated_at == n->changed_at && row.created_at == n->created_at) {
        if (!skill_index_restamp(c->index, at, name, &stamp))
            index_broke(c);
    } else {
        files_index_put(c, at, n, &stamp);
    }
    arena_done(&arena);
    return SKILL_FOUND;
}

enum skill_found files_reconcile(struct files_conn *c, const struct skill_where *at,
                                 struct str name, struct skill_next *ret_n)
{
    struct buf body = BUF_INIT;
    struct files_known k = {0};
    struct stat st;
    enum skill_found found = skill_file_read(&c->dir, name, &body, &st);
    enum skill_found history = found == SKILL_FOUND ? read_history(c, name, &k) : SKILL_FOUND;

    if (found == SKILL_FOUND && k.any && k.last.deleted)
        found = skill_file_recover(&c->dir, name) ? SKILL_MISSING : SKILL_FAILED;
    if (history == SKILL_FAILED)
        found = SKILL_FAILED;
    if (found == SKILL_MISSING)
        files_index_drop(c, at, name);
    if (found == SKILL_FOUND) {
        next_of(&k, name, buf_str(&body), ret_n);
        if (k.any && str_eq(k.last.version.content_hash, str_of(ret_n->content_hash)))
            found = index_known(c, at, name, ret_n);
        else
            found = take_edit(c, at, name, &body, &k, ret_n);
    }
    known_done(&k);
    buf_done(&body);
    return found;
}

/* ---- a directory ---- */

struct sync {
    struct files_conn *c;
    const struct skill_where *at;
};

static bool sync_name(void *ctx, struct str name)
{
    struct sync *s = ctx;
    struct skill_next n = {0};
    enum skill_found found = files_reconcile(s->c, s->at, name, &n);

    skill_next_done(&n);
    return found != SKILL_FAILED;
}

static bool is_unchanged(struct files_conn *c, const struct skill_where *at, struct str name)
{
    struct arena arena = ARENA_INIT;
    struct skill_row row;
    struct skill_stamp now, old = {0};
    bool same = c->index_ok && skill_file_stamp(&c->dir, name, &now) &&
                skill_index_get(c->index, at, name, &arena, &row, &old) == SKILL_FOUND &&
                now.mtime_ns == old.mtime_ns && now.ino == old.ino && now.size == old.size &&
                now.history_size == old.history_size && old.mtime_ns < old.seen_ns - RACY_NS;

    arena_done(&arena);
    return same;
}

/* NAME of ".NAME.tmp", "NAME.versions.jsonl" or "NAME.skill.md"; empty: none of these. */
static struct str name_in(const char *file, const char *prefix, const char *suffix)
{
    struct str s = str_of(file), pre = str_of(prefix), suf = str_of(suffix);

    if (s.n <= pre.n + suf.n || !str_starts(s, pre) || !str_ends(s, suf))
        return STR("");
    s = str_make(s.p + pre.n, s.n - pre.n - suf.n);
    return skill_name_valid(s) ? s : STR("");
}

/* Crash recovery: unfinished writes and deletes. */
static bool recover_one(struct sync *s, const char *file)
{
    struct str name = name_in(file, ".", ".tmp");
    char body[SKILL_NAME_MAX + 16];

    if (name.n == 0) {
        name = name_in(file, "", SKILL_HISTORY_SUFFIX);
        snprintf(body, sizeof body, "%.*s" SKILL_BODY_SUFFIX, STR_FMT(name));
        if (name.n == 0 || faccessat(s->c->dir.fd, body, F_OK, 0) == 0)
            return true;
    }
    return skill_file_recover(&s->c->dir, name);
}

static bool look_at_one(struct sync *s, const char *file)
{
    struct str name = name_in(file, "", SKILL_BODY_SUFFIX);

    return name.n == 0 || is_unchanged(s->c, s->at, name) || sync_name(s, name);
}

static bool walk(struct sync *s, bool (*each)(struct sync *s, const char *file))
{
    int fd = openat(s->c->dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    bool ok = dir != NULL;

    if (dir == NULL && fd >= 0)
        close(fd);
    for (struct dirent *e; ok && (e = readdir(dir)) != NULL;)
        ok = each(s, e->d_name);
    if (dir != NULL)
        closedir(dir);
    return ok;
}

struct gone {
    struct files_conn *c;
    struct buf names; /* each with its NUL */
};

static bool on_indexed(void *ctx, const struct skill_row *row)
{
    struct gone *g = ctx;
    char file[SKILL_NAME_MAX + 16];

    snprintf(file, sizeof file, "%.*s" SKILL_BODY_SUFFIX, STR_FMT(row->name));
    if (g->c->dir.fd >= 0 && faccessat(g->c->dir.fd, file, F_OK, 0) == 0)
        return true;
    buf_add_str(&g->names, row->name);
    buf_add_c(&g->names, '\0');
    return true;
}

static void drop_gone(struct files_conn *c, const struct skill_where *at)
{
    const struct skills_filter everything = {0};
    const struct skill_query q = {&everything, NULL};
    struct gone g = {.c = c};

    if (c->index_ok && catalog_list(c->index, at, &q, on_indexed, &g) == SKILL_FAILED)
        index_broke(c);
    for (struct str rest = buf_str(&g.names); rest.n > 0;) {
        struct str name = str_of(rest.p);
        files_index_drop(c, at, name);
        rest = str_skip(rest, name.n + 1);
    }
    buf_done(&g.names);
}

bool files_sync(struct files_conn *c, const struct skill_where *at)
{
    struct sync s = {c, at};
    bool all = true, ok = true;

    if (c->dir.fd >= 0)
        ok = skill_watch_take(c->files->watch, buf_str(&c->path), &all, sync_name, &s);
    if (!ok || !all)
        return ok;
    if (c->dir.fd >= 0)
        ok = walk(&s, recover_one) && walk(&s, look_at_one);
    if (ok)
        drop_gone(c, at);
    else
        skill_watch_spoil(c->files->watch, buf_str(&c->path));
    return ok;
}

bool files_sync_once(struct files_conn *c, const struct skill_where *at)
{
    return skill_watch_is_seen(c->files->watch, buf_str(&c->path)) || files_sync(c, at);
}
