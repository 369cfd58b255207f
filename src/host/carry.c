/* carry.c - actions that carry a file.  (carry.h has the contract.)
 *
 * Who sends a file to a chat has a lane there while it is being fetched: what the same instance
 * says there meanwhile stands in it, in the order of asking, and goes on when all before it has.
 * Others who speak there wait for nothing.  What stands in lanes is counted with the fetches, and
 * where that is too much it does not wait: words go on, at worst before the picture. */
#include "host/carry.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "host/host.h"
#include "media/media.h"
#include "media/media_fetch.h"

enum { MARGIN_MS = 10000, LEAST_MS = 1000 }; /* of the action's time, left for sending */
enum { BEHIND_BYTES = 65536 };               /* a longer text waits for nothing */

struct carries {
    const struct host_env *env; /* borrowed */
    struct media *media;        /* borrowed */
    struct list all;            /* struct carry */
    struct map lanes;           /* struct lane */
};

struct lane {
    char *key;         /* owned: tenant US instance US platform US bot US chat US thread */
    struct list queue; /* struct carry; never empty */
};

struct carry {
    struct list link, in_lane;
    struct carries *of; /* borrowed */
    struct lane *lane;  /* borrowed */
    struct platform *p; /* borrowed */
    struct action_id id;
    struct action_copy *what;      /* owned */
    struct media_fetch *fetch;     /* owned; NULL: it waits for those before it only */
    struct party *party;           /* a hold, and one of its fetches; NULL: nobody counts */
    char file[MEDIA_ID_CHARS + 1]; /* empty: it carries none, or not yet */
    bool from_elsewhere;
};

struct carries *carries_new(const struct host_env *env, struct media *media)
{
    struct carries *c = xcalloc(1, sizeof *c);

    c->env = env;
    c->media = media;
    list_init(&c->all);
    return c;
}

static void write_key(struct buf *out, const struct platform *p, const struct action_from *from,
                      const struct action *a)
{
    buf_printf(out, "%.*s\x1f%.*s\x1f%s\x1f%s\x1f%.*s\x1f%.*s", STR_FMT(from->tenant),
               STR_FMT(from->instance), p->ops->name, p->bot, STR_FMT(a->chat_id),
               STR_FMT(a->thread_id));
}

static struct lane *lane_find(struct carries *c, const struct platform *p,
                              const struct action_from *from, const struct action *a)
{
    struct buf key = BUF_INIT;

    if (map_count(&c->lanes) == 0)
        return NULL;
    write_key(&key, p, from, a);
    struct lane *l = map_get(&c->lanes, buf_str(&key));
    buf_done(&key);
    return l;
}

static struct lane *lane_get(struct carries *c, const struct platform *p,
                             const struct action_from *from, const struct action *a)
{
    struct lane *l = lane_find(c, p, from, a);
    struct buf key = BUF_INIT;

    if (l != NULL)
        return l;
    l = xcalloc(1, sizeof *l);
    list_init(&l->queue);
    write_key(&key, p, from, a);
    l->key = buf_take(&key);
    map_put(&c->lanes, str_of(l->key), l);
    return l;
}

/* One more of this tenant's?  False: too many are under way. */
static bool count(struct carries *c, struct str tenant, struct party **ret_party)
{
    struct ledger *l = c->env->ledger;

    *ret_party = l != NULL ? ledger_party(l, PER_TENANT, tenant) : NULL;
    if (l == NULL || ledger_take(l, *ret_party, LIMIT_FETCHES, 1) == LIMIT_TAKEN)
        return true;
    party_drop(*ret_party);
    return false;
}

/* NULL: too many of this tenant are under way. */
static struct carry *carry_new(struct carries *c, struct platform *p, struct action_id id,
                               const struct action_from *from, const struct action *a)
{
    struct party *party;

    if (!count(c, from->tenant, &party))
        return NULL;
    struct carry *x = xcalloc(1, sizeof *x);
    *x = (struct carry){.of = c, .p = p, .id = id, .party = party, .what = action_copy(a, from)};
    list_init(&x->link);
    list_append(&c->all, &x->link);
    x->lane = lane_get(c, p, from, a);
    list_init(&x->in_lane);
    list_append(&x->lane->queue, &x->in_lane);
    return x;
}

static void carry_free(struct carry *x)
{
    struct lane *l = x->lane;

    list_remove(&x->in_lane);
    if (list_is_empty(&l->queue)) {
        map_del(&x->of->lanes, str_of(l->key));
        free(l->key);
        free(l);
    }
    list_remove(&x->link);
    media_fetch_cancel(&x->fetch);
    if (x->party != NULL)
        ledger_give(x->of->env->ledger, x->party, LIMIT_FETCHES, 1);
    party_drop(x->party);
    free(x->what);
    free(x);
}

void carries_free(struct carries *c)
{
    if (c == NULL)
        return;
    list_each (&c->all, it, nxt)
        carry_free(list_entry(it, struct carry, link));
    map_done(&c->lanes);
    free(c);
}

void carry_drop(struct carries *c, struct platform *p)
{
    list_each (&c->all, it, nxt) {
        struct carry *x = list_entry(it, struct carry, link);
        if (x->p != p)
            continue;
        host_fail(p->host, x->id, ACTION_ERROR_TRANSIENT "bellhop is stopping");
        carry_free(x);
    }
}

/* Act with @f, whose address for others is our own, or @url where we have none. */
static void act(struct carries *c, struct platform *p, struct action_id id,
                const struct action_from *from, const struct action *a, const struct media_file *f,
                struct str url)
{
    struct action with = *a;
    struct buf own = BUF_INIT, name = BUF_INIT;
    struct action_file file = {.path = media_path(c->media, f),
                               .id = str_of(f->id),
                               .type = str_of(f->type),
                               .name = str_of(f->name),
                               .url = url,
                               .size = f->size};

    if (c->env->public_url != NULL) {
        media_url(c->media, str_of(c->env->public_url), str_of(f->id), true, &own);
        file.url = buf_str(&own);
    }
    media_name_add(&name, a->filename); /* as an upload's: nobody is sent a path */
    with.filename = name.n > 0 ? buf_str(&name) : STR_NULL;
    with.file = &file;
    uint64_t before = host_last_number(p->host), number;
    p->ops->act(p, id, from, &with);
    number = host_last_number(p->host);
    if (number != before) /* it is in the outbox now, and the file is kept as long */
        media_hold(c->media, f, from->tenant, from->instance, HOST_ROW_OUTGOING | number);
    buf_done(&own);
    buf_done(&name);
}

/* It waits no longer, neither for its file nor for what was said before it. */
static void go(struct carry *x)
{
    const struct action *a = &x->what->action;
    const struct media_file *f = media_find(x->of->media, str_of(x->file));

    if (a->op != ACTION_SEND_MEDIA)
        x->p->ops->act(x->p, x->id, &x->what->from, a);
    else if (f != NULL)
        act(x->of, x->p, x->id, &x->what->from, a, f, x->from_elsewhere ? a->source_url : STR_NULL);
    else
        host_fail(x->p->host, x->id, "the file cannot be sent: it is not here any more");
}

static bool is_last(const struct carry *x)
{
    return x->lane->queue.prev == &x->in_lane;
}

/* Those at the front of @x's lane that wait for nothing go on; @x may be gone then. */
static void go_on(struct carry *x)
{
    struct lane *l = x->lane;

    for (bool more = true; more;) {
        x = list_first(&l->queue, struct carry, in_lane);
        if (x->fetch != NULL)
            return;
        more = !is_last(x); /* the lane goes with its last */
        go(x);
        carry_free(x);
    }
}

static void on_fetched(void *ctx, const struct media_file *f, const char *why)
{
    struct carry *x = ctx;
    struct carry *first = list_first(&x->lane->queue, struct carry, in_lane);
    struct carry *next = is_last(x) ? NULL : list_entry(x->in_lane.next, struct carry, in_lane);

    x->fetch = NULL;
    if (f != NULL) {
        memcpy(x->file, f->id, sizeof x->file);
        go_on(x);
        return;
    }
    host_fail(x->p->host, x->id, "the file cannot be sent: %s", why);
    carry_free(x);
    if (first == x && next != NULL)
        go_on(next);
}

static void fetch(struct carries *c, struct platform *p, struct action_id id,
                  const struct action_from *from, const struct action *a)
{
    int64_t left = a->deadline_ms - clock_now_ms(c->env->clock) - MARGIN_MS;
    struct carry *x = carry_new(c, p, id, from, a);

    if (x == NULL) {
        host_fail(p->host, id,
                  ACTION_ERROR_TRANSIENT "too many files are being fetched already "
                                         "(limits.fetches)");
        return;
    }
    x->from_elsewhere = true;
    struct media_source s = {.url = x->what->action.source_url.p,
                             .tenant = from->tenant,
                             .name = a->filename,
                             .no_page = !str_eq(a->media_kind, STR("document")),
                             .timeout_ms = left > LEAST_MS ? left : LEAST_MS};
    x->fetch = media_fetch(c->media, &s, on_fetched, x);
}

static bool is_web(struct str url)
{
    return str_starts(url, STR("http://")) || str_starts(url, STR("https://"));
}

/* A file of ours: at once, or behind what its instance is sending there. */
static void carry_own(struct carries *c, struct platform *p, struct action_id id,
                      const struct action_from *from, const struct action *a,
                      const struct media_file *f)
{
    struct carry *x = lane_find(c, p, from, a) != NULL ? carry_new(c, p, id, from, a) : NULL;

    if (x != NULL)
        memcpy(x->file, f->id, sizeof x->file);
    else
        act(c, p, id, from, a, f, STR_NULL);
}

void carry_act(struct carries *c, struct platform *p, struct action_id id,
               const struct action_from *from, const struct action *a)
{
    const struct media_file *f = media_find(c->media, media_id_in(a->source_url));

    if (f != NULL && media_may_read(f, from->tenant))
        carry_own(c, p, id, from, a, f);
    else if (is_web(a->source_url) && event_media_is_safe(a->source_url) &&
             memchr(a->source_url.p, '\0', a->source_url.n) == NULL)
        fetch(c, p, id, from, a);
    else
        host_fail(p->host, id,
                  "the file cannot be sent: source_url names no file of yours here "
                  "and no public http(s) address");
}

bool carry_waits(struct carries *c, struct platform *p, struct action_id id,
                 const struct action_from *from, const struct action *a)
{
    if (a->op != ACTION_SEND || a->content.n > BEHIND_BYTES || lane_find(c, p, from, a) == NULL)
        return false;
    return carry_new(c, p, id, from, a) != NULL;
}
