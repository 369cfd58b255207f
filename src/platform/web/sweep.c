/* sweep.c - deletes history above the limits of age and size, oldest first, in small steps.
 *
 *      RESTING --an hour, or the limit is near--> READING <--> DELETING
 *         ^                                          |
 *         '------ end of the pass, below 7/8 --------'   above 7/8 of the limit: another pass
 *
 * A pass reads the whole history of a bot in the order of its keys, deletes messages older than the
 * cut, and counts the bytes of each age.  At its end the size of the history is known.  If it is
 * above 7/8 of the limit, the bytes per age tell where the next pass cuts.  So a pass needs little
 * memory however large the history is, and no stored index of sizes can be wrong.
 *
 * Before the first pass has ended the size is unknown, so only an eighth of the limit may be
 * added. */
#include <stdlib.h>
#include "base/limits.h"
#include "base/mem.h"
#include "platform/web/web_priv.h"
#include "store/store.h"

#define STEP_BYTES ((size_t)128 << 10)
#define STEP_MS 10
#define REST_MS 3600000
#define HURRY_MS 2000 /* when the limit is near */
#define AGES 256      /* slots: four for each doubling of the age in seconds */

struct web_sweep {
    struct store_left left; /* used after the bot was closed */
    struct web *web;        /* borrowed; NULL: the bot was closed */
    struct store *store;    /* borrowed */
    struct store_scan scan;
    struct store_tx tx;
    struct store_kv *items; /* owned; of @tx */
    struct buf prefix, after, once;
    struct timer timer;
    bool busy;               /* an operation is in flight */
    bool known;              /* a pass has ended: web->kept is right */
    bool hurries;            /* the timer is set to HURRY_MS */
    int64_t cut_ms;          /* wall clock; older messages are deleted */
    uint64_t found, written; /* bytes found by this pass; written since it began */
    uint64_t of_age[AGES];
};

/* ---- ages ---- */

static unsigned age_of(int64_t now_ms, int64_t at_ms)
{
    uint64_t s = now_ms > at_ms ? (uint64_t)(now_ms - at_ms) / 1000 + 1 : 1;
    unsigned doubled = 63 - (unsigned)__builtin_clzll(s);

    return doubled * 4 + (doubled >= 2 ? (unsigned)(s >> (doubled - 2)) & 3 : 0);
}

/* The time of the cut that leaves about the youngest @goal bytes. */
static int64_t cut_for(const struct web_sweep *s, int64_t now_ms, uint64_t goal)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < AGES; i++) {
        sum += s->of_age[i];
        if (sum > goal)
            return now_ms - ((int64_t)(((uint64_t)(4 + i % 4) << (i / 4) >> 2) - 1) * 1000);
    }
    return 0;
}

/* What each bot may keep if all together are to keep @room: those with less than that keep it, the
 * others have the rest in equal parts.  So made-up visitors of one page push out nothing of another
 * one. */
static uint64_t share_of(uint64_t room)
{
    uint64_t share = 0, before;

    do {
        uint64_t rest = room, n = 0;
        for (const struct web *w = web_sibling(STR_NULL); w != NULL; w = web_after(w)) {
            bool has_less = w->kept < share;
            rest -= has_less ? w->kept : 0;
            n += !has_less;
        }
        before = share;
        share = n > 0 ? rest / n : share;
    } while (share > before);
    return share;
}

/* ---- the size of the history ---- */

/* Starts a pass after HURRY_MS, unless one is running or about to start. */
static void hurry(struct web_sweep *s)
{
    if (s->busy || s->after.n > 0 || s->hurries)
        return;
    s->hurries = true;
    timer_set(s->web->base.env->clock, &s->timer, HURRY_MS);
}

bool web_is_routed(struct web *w)
{
    return strcmp(host_route_state(w->base.host, &w->base, web_bot(w)), "none") != 0;
}

bool web_may_keep(struct web *w, size_t bytes)
{
    struct ledger *l = w->base.env->ledger;
    struct web_sweep *s = w->sweep;
    uint64_t all;
    bool ok;

    if (w->history == 0 || !web_is_routed(w))
        return false;
    all = l != NULL ? ledger_bounds(l, LIMIT_HISTORY_BYTES).all : 0;
    ok = all == 0 || s->known || s->written + bytes <= all / 8;
    ok =
        ok && ledger_change(l, NULL, LIMIT_HISTORY_BYTES, &w->kept, w->kept + bytes) == LIMIT_TAKEN;
    if (ok)
        s->written += bytes;
    if (all != 0 && ledger_held(l, NULL, LIMIT_HISTORY_BYTES) > all / 8 * 7)
        hurry(s);
    return ok;
}

void web_kept_less(struct web *w, size_t bytes)
{
    size_t now = bytes < w->kept ? w->kept - bytes : 0;

    (void)ledger_change(w->base.env->ledger, NULL, LIMIT_HISTORY_BYTES, &w->kept, now);
}

/* ---- a pass ---- */

static void step(struct web_sweep *s);

static void end(struct web_sweep *s)
{
    struct web *w = s->web;
    struct ledger *l = w->base.env->ledger;
    uint64_t all = l != NULL ? ledger_bounds(l, LIMIT_HISTORY_BYTES).all : 0, sum, share;

    ledger_correct(l, LIMIT_HISTORY_BYTES, &w->kept, (size_t)(s->found + s->written));
    s->known = true;
    s->cut_ms = 0;
    buf_reset(&s->after);
    sum = l != NULL ? ledger_held(l, NULL, LIMIT_HISTORY_BYTES) : 0;
    share = share_of(all / 4 * 3);
    if (all == 0 || sum <= all / 8 * 7 || w->kept <= share) {
        timer_set(w->base.env->clock, &s->timer, REST_MS);
        return;
    }
    s->cut_ms = cut_for(s, clock_wall_ms(w->base.env->clock), share);
    s->hurries = true;
    timer_set(w->base.env->clock, &s->timer, HURRY_MS);
}

static void sweep_free(struct web_sweep *s)
{
    store_take_back(&s->left);
    free(s->items);
    buf_done(&s->prefix);
    buf_done(&s->after);
    buf_done(&s->once);
    free(s);
}

/* Ends a step.  The next one starts after a pause, so that other writes are not delayed. */
static void go_on(struct web_sweep *s)
{
    bool more = s->scan.more;

    store_scan_free(&s->scan);
    free(s->items);
    s->items = NULL;
    s->busy = false;
    if (s->web == NULL)
        sweep_free(s);
    else if (more)
        timer_set(s->web->base.env->clock, &s->timer, STEP_MS);
    else
        end(s);
}

static void on_deleted(struct store_op *op, enum bh_err err)
{
    /* the next pass retries */
    go_on(container_of(op, struct web_sweep, tx.op));
}

/* Lists the records older than the cut for deletion, and counts the others. */
static size_t sort_out(struct web_sweep *s, size_t *once_ends)
{
    int64_t now = clock_wall_ms(s->web->base.env->clock);
    struct web_message m;
    size_t n = 0;

    for (size_t i = 0; i < s->scan.n_records; i++) {
        const struct store_record *r = &s->scan.records[i];
        size_t bytes = r->key.n + r->value.n;
        bool ours = r->key.n > WEB_ID_CHARS && web_message_read(s->web, r->value, &m);
        if (ours && m.at_ms >= s->cut_ms) {
            s->found += bytes;
            s->of_age[age_of(now, m.at_ms)] += bytes;
            continue;
        }
        s->items[n] = (struct store_kv){.verb = KV_DELETE, .ns = "web", .key = r->key};
        once_ends[n++] = 0;
        if (ours && m.client_id.n > 0) {
            /* The key of its client_id's record: the same bot and chat, then the client_id. */
            struct str key = r->key;
            buf_add(&s->once, key.p, key.n - WEB_ID_CHARS);
            buf_add_str(&s->once, m.client_id);
            s->items[n] = (struct store_kv){.verb = KV_DELETE, .ns = "web_once"};
            once_ends[n++] = s->once.n;
        }
    }
    return n;
}

static void on_read(struct store_op *op, enum bh_err err)
{
    struct web_sweep *s = container_of(op, struct web_sweep, scan.op);
    size_t *ends, n, at = 0;

    if (s->web == NULL || err != BH_OK || s->scan.n_records == 0) {
        s->scan.more = s->scan.more && err == BH_OK;
        go_on(s);
        return;
    }
    buf_reset(&s->after);
    buf_add_str(&s->after, s->scan.records[s->scan.n_records - 1].key);
    buf_reset(&s->once);
    s->items = xcalloc(2 * s->scan.n_records, sizeof *s->items);
    ends = xcalloc(2 * s->scan.n_records, sizeof *ends);
    n = sort_out(s, ends);
    for (size_t i = 0; i < n; i++) { /* the buffer is complete and no longer moves */
        if (ends[i] == 0)
            continue;
        s->items[i].key = str_make(s->once.p + at, ends[i] - at);
        at = ends[i];
    }
    free(ends);
    if (n == 0) {
        go_on(s);
        return;
    }
    s->tx = (struct store_tx){.op = {.done = on_deleted}, .items = s->items, .n = n};
    store_tx(s->store, &s->tx, false);
}

static void step(struct web_sweep *s)
{
    s->busy = true;
    s->scan = (struct store_scan){.op = {.done = on_read},
                                  .ns = "web",
                                  .prefix = buf_str(&s->prefix),
                                  .max_bytes = STEP_BYTES,
                                  .loose = true};
    if (s->after.n > 0)
        s->scan.after = buf_str(&s->after);
    store_scan(s->store, &s->scan);
}

static void on_timer(struct timer *t)
{
    struct web_sweep *s = container_of(t, struct web_sweep, timer);

    if (s->after.n > 0)
        step(s);
    else {
        struct web *w = s->web;
        int64_t now = clock_wall_ms(w->base.env->clock);
        s->hurries = false;
        if (w->base.env->retention_ms > 0 && now - w->base.env->retention_ms > s->cut_ms)
            s->cut_ms = now - w->base.env->retention_ms;
        s->found = s->written = 0;
        memset(s->of_age, 0, sizeof s->of_age);
        buf_reset(&s->after);
        step(s);
    }
}

/* ---- life ---- */

void web_sweep_start(struct web *w)
{
    struct web_sweep *s = xcalloc(1, sizeof *s);

    s->web = w;
    s->store = w->base.env->store;
    buf_printf(&s->prefix, "%s\x1f", w->base.bot);
    timer_init(&s->timer, on_timer);
    w->sweep = s;
    timer_set(w->base.env->clock, &s->timer, STEP_MS);
}

static void on_store_closed(struct store_left *l)
{
    struct web_sweep *s = container_of(l, struct web_sweep, left);

    store_scan_free(&s->scan);
    l->prev = NULL; /* the store freed the list */
    sweep_free(s);
}

void web_sweep_stop(struct web *w)
{
    struct web_sweep *s = w->sweep;

    if (s == NULL)
        return;
    w->sweep = NULL;
    timer_stop(w->base.env->clock, &s->timer);
    (void)ledger_change(w->base.env->ledger, NULL, LIMIT_HISTORY_BYTES, &w->kept, 0);
    s->web = NULL;
    if (!s->busy)
        sweep_free(s);
    else
        store_leave(s->store, &s->left, on_store_closed);
}
