/* files_watch.c - design.  (files.h has the contract.)
 *
 * The kernel queues an event inside the system call that changes a file, so whoever asks after an
 * edit finds the event; we read the queue when somebody asks and never wait for it.  Where a
 * directory cannot be watched (a limit of the system, a file system without it) it is never clean,
 * and every question looks at all files. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "skills/files.h"

#define MAX_DIRTY 1000 /* names; more: everything */
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
    bool all;  /* everything has to be looked at */
    bool seen; /* everything was, once */
    struct list dirty;
    size_t n_dirty;
};

struct skill_watch {
    pthread_mutex_t lock;   /* guards all */
    int fd;                 /* -1: there is no watching here */
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
            break; /* a name twice costs less than looking for it */
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

static void spoil_all(struct skill_watch *w)
{
    void *value;

    for (size_t i = 0; map_next(&w->by_dir, &i, &value);)
        ((struct watched *)value)->all = true;
}

static void unwatch(struct skill_watch *w, struct watched *d)
{
    if (d->wd >= 0 && (size_t)d->wd < w->n_wd)
        w->by_wd[d->wd] = NULL;
    d->wd = -1;
    d->all = true;
}

static void take_event(struct skill_watch *w, const struct inotify_event *e)
{
    struct watched *d = e->wd >= 0 && (size_t)e->wd < w->n_wd ? w->by_wd[e->wd] : NULL;

    if (e->mask & IN_Q_OVERFLOW) {
        spoil_all(w);
        return;
    }
    if (d == NULL)
        return;
    if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) {
        if (e->mask & IN_MOVE_SELF)
            inotify_rm_watch(w->fd, e->wd);
        unwatch(w, d);
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
