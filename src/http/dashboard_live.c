/* dashboard_live.c - design.  (dashboard_priv.h has the contract.)
 *
 *      every second, while a page is open:
 *      tick -> one event for all pages -> sweep, SLICE instances per turn of the loop
 *                                            '-> the rows that changed, to each page
 *
 * The sweep copies the state of every instance to a table (about 300 bytes each), so that a page
 * can filter and sort without a walk through the relay.  A page names the window of rows that it
 * shows and gets these rows, and later only those that changed.  So the cost of a page does not
 * grow with the number of instances that change.  The table is freed when no page has been open for
 * KEEP_MS.
 *
 * The order of a window is found by selection, in linear time; only the window is sorted.  A turn
 * of the loop does a part of that for one page: a hundred thousand instances take tens of ms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/hash.h"
#include "base/jw.h"
#include "host/host.h"
#include "http/admin.h"
#include "http/dashboard_priv.h"
#include "net/loop.h"
#include "platform/sender.h"
#include "tenancy/facts.h"

enum {
    TICK_MS = 1000,
    SLICE = 500,
    PER_TICK = 4000,
    GATHER = 5000,    /* rows of a page that a turn looks at */
    COMPARES = 10000, /* of rows, in a turn */
    KEEP_MS = 60000,
    MAX_STREAMS = 64,
    MAX_STREAMS_PER_SESSION = 4,
    MAX_QUEUED = 512 * 1024, /* a page this far behind is cut off; it reconnects */
    STALE_MS = 60000,        /* mail that waits longer needs somebody */
    NAME_BYTES = 256,
};

struct dash_row {
    struct instance_view v; /* the row owns its names and texts */
    uint32_t number, rev;   /* @rev: of its last change */
    uint32_t seen;          /* the sweep that met it last */
    char *fold;             /* owned; names in lower case, for the filter */
    char name[];            /* tenant, '\x1f', instance: the key in by_name */
};

static int64_t now_ms(const struct dash_live *l)
{
    return clock_now_ms(loop_clock(l->f->loop));
}

/* ---- the table of instances ---- */

static void row_drop(struct dash_live *l, struct dash_row *r)
{
    map_del(&l->by_name, str_make(r->name, r->v.tenant.n + 1 + r->v.instance.n));
    free((char *)r->v.last_poke_problem);
    free((char *)r->v.display_name);
    free(r->fold);
    free(r);
}

static struct dash_row *row_new(struct dash_live *l, const struct instance_view *v)
{
    size_t n = v->tenant.n + 1 + v->instance.n;
    struct dash_row *r = xcalloc(1, sizeof *r + n);
    char *at = r->name;

    r->number = ++l->next_number;
    r->v.tenant = str_pack(&at, v->tenant);
    *at++ = '\x1f';
    r->v.instance = str_pack(&at, v->instance);
    l->rows = xgrow(l->rows, l->n_rows, &l->cap_rows, sizeof *l->rows);
    l->rows[l->n_rows++] = r;
    map_put(&l->by_name, str_make(r->name, n), r);
    return r;
}

static bool text_is(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool row_is(const struct instance_view *a, const struct instance_view *b)
{
    return a->state == b->state && a->sessions == b->sessions && a->entries == b->entries &&
           a->bytes == b->bytes && a->unacked == b->unacked && a->parked == b->parked &&
           a->oldest_ms == b->oldest_ms && a->last_inbound_ms == b->last_inbound_ms &&
           a->last_outbound_ms == b->last_outbound_ms && a->asleep_since_ms == b->asleep_since_ms &&
           a->last_poke_ms == b->last_poke_ms && a->wake_url == b->wake_url &&
           text_is(a->last_poke_problem, b->last_poke_problem) &&
           text_is(a->display_name, b->display_name);
}

static void fold_names(struct dash_row *r)
{
    BUF_LOCAL text = BUF_INIT;

    buf_printf(&text, "%.*s/%.*s %s", STR_FMT(r->v.tenant), STR_FMT(r->v.instance),
               r->v.display_name != NULL ? r->v.display_name : "");
    free(r->fold);
    r->fold = buf_take(&text);
    for (char *c = r->fold; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c + ('a' - 'A'));
}

static struct dash_row *find_row(const struct dash_live *l, const struct instance_view *v)
{
    char name[2 * NAME_BYTES + 1], *at = name;

    if (v->tenant.n + v->instance.n >= sizeof name)
        return NULL; /* the facts allow no such names */
    str_pack(&at, v->tenant);
    *at++ = '\x1f';
    str_pack(&at, v->instance);
    return map_get(&l->by_name, str_make(name, (size_t)(at - name)));
}

static void take_view(struct dash_live *l, const struct instance_view *v)
{
    struct dash_row *r = find_row(l, v);

    if (r == NULL)
        r = row_new(l, v);
    r->seen = l->sweeps;
    if (r->rev != 0 && row_is(&r->v, v))
        return;
    struct instance_view was = r->v;
    r->v = *v;
    r->v.tenant = was.tenant;
    r->v.instance = was.instance;
    r->v.last_poke_problem = xstrdup(v->last_poke_problem);
    r->v.display_name = xstrdup(v->display_name);
    if (r->rev == 0 || !text_is(was.display_name, v->display_name))
        fold_names(r);
    free((char *)was.last_poke_problem);
    free((char *)was.display_name);
    r->rev = ++l->changes;
}

static void drop_unseen(struct dash_live *l)
{
    size_t kept = 0;

    for (size_t i = 0; i < l->n_rows; i++) {
        struct dash_row *r = l->rows[i];
        if (r->seen == l->sweeps) {
            l->rows[kept++] = r;
            continue;
        }
        row_drop(l, r);
    }
    l->n_rows = kept;
}

/* Frees at most @most rows.  True: the table is gone. */
static bool table_free(struct dash_live *l, size_t most)
{
    for (; l->n_rows > 0 && most > 0; most--)
        row_drop(l, l->rows[--l->n_rows]);
    if (l->n_rows > 0)
        return false;
    free(l->rows);
    map_done(&l->by_name);
    free(l->at_gateway);
    l->rows = NULL;
    l->at_gateway = NULL;
    l->by_name = MAP_INIT;
    l->cap_rows = 0;
    l->sweeping = false;
    return true;
}

/* Gateways whose instance never connected; the relay does not know these.  False: the last. */
static bool sweep_gateways(struct dash_live *l)
{
    struct front *f = l->f;
    const struct gateway *g = facts_gateway(f->facts, str_of(l->at_gateway));
    struct list *head, *it;
    struct instance_view v;
    int looks = 0;

    facts_gateways(f->facts, &head);
    /* A gateway that went away meanwhile ends the sweep; the next one begins anew. */
    it = g != NULL ? g->link.next : *l->at_gateway == '\0' ? head->next : head;
    for (; it != head && looks < SLICE; it = it->next, looks++) {
        g = list_entry(it, struct gateway, link);
        struct str tenant = str_of(g->tenant), instance = str_of(g->instance);
        if (g->revoked_ms != 0 || !facts_is_first(f->facts, g) ||
            relay_instance(f->relay, tenant, instance, &v))
            continue;
        v = admin_view_unmet(f, tenant, instance);
        take_view(l, &v);
    }
    free(l->at_gateway);
    l->at_gateway = it != head ? xstrdup(g->id) : NULL;
    return it != head;
}

/* ---- what a page looks at ---- */

static bool needs_somebody(const struct instance_view *v, int64_t wall_ms)
{
    return v->parked > 0 || (v->last_poke_problem != NULL && v->entries > 0) ||
           (v->entries > 0 && v->oldest_ms != 0 && wall_ms - v->oldest_ms > STALE_MS);
}

static bool is_meant(const struct dash_look *k, const struct dash_row *r, int64_t wall_ms)
{
    if (k->waiting && r->v.entries + r->v.parked == 0)
        return false;
    if (strcmp(k->state, "problem") == 0 ? !needs_somebody(&r->v, wall_ms)
                                         : k->state[0] != '\0' && strcmp(k->state, r->v.state) != 0)
        return false;
    return k->filter[0] == '\0' || strstr(r->fold, k->filter) != NULL;
}

/* Rows come in the order of this number, then of their names.  0 is "never" and comes last. */
static uint64_t sort_key(enum dash_sort sort, const struct instance_view *v)
{
    uint64_t oldest = v->oldest_ms > 0 ? (uint64_t)v->oldest_ms : UINT64_MAX >> 3;
    uint64_t rank = v->parked > 0                                     ? 0
                    : v->last_poke_problem != NULL && v->entries > 0  ? 1
                    : v->entries > 0 && strcmp(v->state, "live") != 0 ? 2
                    : v->entries > 0                                  ? 3
                    : strcmp(v->state, "live") == 0                   ? 4
                                                                      : 5;

    switch (sort) {
    case DASH_BY_ATTENTION: /* what needs somebody first */
        return rank << 61 | (v->entries > 0 ? oldest : 0);
    case DASH_BY_WAITING:
        return UINT64_MAX - v->entries - v->parked;
    case DASH_BY_AGE:
        return oldest;
    case DASH_BY_HEARD:
        return UINT64_MAX - (uint64_t)v->last_inbound_ms;
    case DASH_BY_NAME:
        break;
    }
    return 0;
}

struct dash_found { /* a row that the page means, with its place of the moment when it was found */
    uint64_t key;
    struct dash_row *row;
};

static int in_order(const void *a, const void *b)
{
    const struct dash_found *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    int tenant = str_cmp(x->row->v.tenant, y->row->v.tenant);
    return tenant != 0 ? tenant : str_cmp(x->row->v.instance, y->row->v.instance);
}

/* Moves the entries that belong at @nth and before it to the front, in any order. */
struct selection {
    size_t lo, hi, nth; /* @nth is in between */
    size_t i, k;        /* of the partition under way */
    struct dash_found pivot;
    bool parting;
};

/* Goes on for so many comparisons.  True: done. */
static bool select_on(struct selection *s, struct dash_found *all, struct rand *rand, int compares)
{
    while (s->hi - s->lo > 1) {
        if (!s->parting) {
            s->pivot = all[s->lo + rand_below(rand, s->hi - s->lo)];
            s->i = s->lo;
            s->k = s->hi - 1;
            s->parting = true;
        }
        for (;;) { /* Hoare's partition; the order is strict, because names are unique */
            if (compares-- <= 0)
                return false;
            if (in_order(&all[s->i], &s->pivot) < 0) {
                s->i++;
            } else if (in_order(&all[s->k], &s->pivot) > 0) {
                s->k--;
            } else if (s->i < s->k) {
                struct dash_found swap = all[s->i];
                all[s->i] = all[s->k];
                all[s->k] = swap;
            } else {
                break;
            }
        }
        s->parting = false;
        if (s->nth == s->i)
            return true;
        if (s->nth < s->i)
            s->hi = s->i;
        else
            s->lo = s->i + 1;
    }
    return true;
}

struct dash_tally {
    uint64_t live, away, asleep, never, sessions, entries, bytes, unacked, parked, problems;
    int64_t oldest_ms;
};

static void count(struct dash_tally *t, const struct instance_view *v, int64_t wall_ms)
{
    t->live += strcmp(v->state, "live") == 0;
    t->away += strcmp(v->state, "away") == 0;
    t->asleep += strcmp(v->state, "asleep") == 0;
    t->never += strcmp(v->state, "never") == 0;
    t->sessions += v->sessions;
    t->entries += v->entries;
    t->bytes += v->bytes;
    t->unacked += v->unacked;
    t->parked += v->parked;
    t->problems += needs_somebody(v, wall_ms);
    if (v->oldest_ms != 0 && (t->oldest_ms == 0 || v->oldest_ms < t->oldest_ms))
        t->oldest_ms = v->oldest_ms;
}

static void write_tally(struct jw *w, const struct dash_tally *t)
{
    jw_kobj(w, "tally");
    jw_ki64(w, "live", (int64_t)t->live);
    jw_ki64(w, "away", (int64_t)t->away);
    jw_ki64(w, "asleep", (int64_t)t->asleep);
    jw_ki64(w, "never", (int64_t)t->never);
    jw_ki64(w, "problems", (int64_t)t->problems);
    jw_ki64(w, "sessions", (int64_t)t->sessions);
    jw_ki64(w, "entries", (int64_t)t->entries);
    jw_ki64(w, "bytes", (int64_t)t->bytes);
    jw_ki64(w, "unacked", (int64_t)t->unacked);
    jw_ki64(w, "parked", (int64_t)t->parked);
    admin_time(w, "oldestAt", t->oldest_ms);
    jw_end_obj(w);
}

/* ---- streams ---- */

static void send(struct dash_stream *st, const char *event, struct str json)
{
    struct dash_live *l = st->live;

    buf_reset(&l->frame);
    buf_printf(&l->frame, "event: %s\ndata: ", event);
    buf_add_str(&l->frame, json); /* one line: our JSON escapes every control character */
    buf_add_z(&l->frame, "\n\n");
    http_stream_write(l->f->server, st->http, buf_str(&l->frame));
}

/* Writes the instance as it is now: what the row borrowed from the relay may be gone. */
static void write_row(const struct dash_live *l, struct jw *w, const struct dash_row *r)
{
    struct instance_view v;

    if (!relay_instance(l->f->relay, r->v.tenant, r->v.instance, &v))
        v = admin_view_unmet(l->f, r->v.tenant, r->v.instance);
    jw_obj(w);
    jw_ki64(w, "n", r->number);
    admin_write_instance(w, &v);
    jw_end_obj(w);
}

/* The rows of the window that @st lacks, or has in an older state. */
static bool write_window(struct dash_stream *st, const struct dash_found *rows, size_t n,
                         struct jw *w)
{
    struct dash_shown shown[DASH_WINDOW] = {0};
    bool moved = n != st->n_shown, changed = false;

    jw_karr(w, "rows");
    for (size_t i = 0; i < n; i++) {
        bool has = false;
        shown[i] = (struct dash_shown){rows[i].row, rows[i].row->number, rows[i].row->rev};
        moved |= i >= st->n_shown || st->shown[i].number != shown[i].number;
        for (size_t k = 0; k < st->n_shown && !has; k++)
            has = st->shown[k].number == shown[i].number && st->shown[k].rev == shown[i].rev;
        if (!has)
            write_row(st->live, w, rows[i].row);
        changed |= !has;
    }
    jw_end_arr(w);
    if (moved) {
        jw_karr(w, "order");
        for (size_t i = 0; i < n; i++)
            jw_i64(w, shown[i].number);
        jw_end_arr(w);
    }
    memcpy(st->shown, shown, n * sizeof *shown);
    st->n_shown = n;
    return moved || changed;
}

/* The rows in the window as they are now, between two sweeps. */
static void show_changes(struct dash_stream *st)
{
    struct dash_live *l = st->live;
    struct instance_view v;
    bool changed = false;

    buf_reset(&l->json);
    struct jw w = jw_begin(&l->json);
    jw_obj(&w);
    jw_karr(&w, "rows");
    for (size_t i = 0; i < st->n_shown; i++) {
        const struct dash_row *r = st->shown[i].row;
        if (relay_instance(l->f->relay, r->v.tenant, r->v.instance, &v))
            take_view(l, &v);
        if (r->rev == st->shown[i].rev)
            continue;
        write_row(l, &w, r);
        st->shown[i].rev = r->rev;
        changed = true;
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    if (changed)
        send(st, "changes", buf_str(&l->json));
}

/* ---- finding the rows of a page, a part per turn of the loop ----
 *
 *      GATHER the rows that the page means --> SELECT the window's first, then its last --> show
 *
 * A sweep that ends meanwhile may free rows, so it lets the search begin anew. */

struct dash_showing {
    struct dash_stream *st;   /* borrowed */
    struct dash_found *found; /* owned */
    size_t n, cap, total;
    size_t at; /* rows looked at */
    struct dash_tally tally;
    struct selection first, last; /* of the window */
    bool gathered, first_is_there;
};

static void each_stream(struct dash_live *l, void (*fn)(struct dash_stream *st))
{
    list_each (&l->sessions->all, it, nxt) {
        struct dash_session *s = list_entry(it, struct dash_session, link);
        list_each (&s->streams, k, next)
            fn(list_entry(k, struct dash_stream, link));
    }
}

static void stop_showing(struct dash_live *l)
{
    if (l->showing != NULL)
        free(l->showing->found);
    free(l->showing);
    l->showing = NULL;
}

/* The page gets its rows soon. */
static void want_rows(struct dash_stream *st)
{
    struct dash_live *l = st->live;

    if (l->showing != NULL && l->showing->st == st)
        stop_showing(l);
    st->wants_rows = true;
    timer_set(loop_clock(l->f->loop), &l->show, 0);
}

static void gather(struct dash_live *l, struct dash_showing *x)
{
    const struct dash_look *k = &x->st->look;
    struct str tenant = str_of(x->st->session->role.tenant);
    int64_t wall_ms = clock_wall_ms(loop_clock(l->f->loop));
    size_t end = l->n_rows - x->at > GATHER ? x->at + GATHER : l->n_rows;

    for (; x->at < end; x->at++) {
        struct dash_row *r = l->rows[x->at];
        if (tenant.p != NULL && !str_eq(tenant, r->v.tenant))
            continue;
        x->total++;
        count(&x->tally, &r->v, wall_ms);
        if (k->count == 0 || !is_meant(k, r, wall_ms))
            continue;
        x->found = xgrow(x->found, x->n, &x->cap, sizeof *x->found);
        x->found[x->n++] = (struct dash_found){sort_key(k->sort, &r->v), r};
    }
    if (x->at < l->n_rows)
        return;
    size_t from = k->offset < x->n ? k->offset : x->n;
    size_t to = x->n - from < k->count ? x->n : from + k->count;
    x->gathered = true;
    x->first = (struct selection){.hi = from > 0 && from < to ? x->n : 0, .nth = from};
    x->last = (struct selection){.lo = from, .hi = from < to && to < x->n ? x->n : from, .nth = to};
}

static void show_rows(struct dash_live *l, struct dash_showing *x)
{
    struct dash_stream *st = x->st;
    size_t from = x->first.nth, to = x->last.nth;

    if (from < to)
        qsort(x->found + from, to - from, sizeof *x->found, in_order);
    buf_reset(&l->json);
    struct jw w = jw_begin(&l->json);
    jw_obj(&w);
    jw_ki64(&w, "total", (int64_t)x->total);
    jw_ki64(&w, "found", (int64_t)x->n);
    jw_ki64(&w, "offset", (int64_t)from);
    write_tally(&w, &x->tally);
    uint64_t head = hash64(hash_process_key(), buf_str(&l->json));
    bool news = write_window(st, x->found + from, to - from, &w);
    jw_end_obj(&w);
    if (news || head != st->told)
        send(st, "rows", buf_str(&l->json));
    st->told = head;
}

static void begin_showing(struct dash_stream *st)
{
    struct dash_live *l = st->live;

    if (!st->wants_rows || l->showing != NULL)
        return;
    st->wants_rows = false;
    l->showing = xcalloc(1, sizeof *l->showing);
    l->showing->st = st;
}

static void on_show(struct timer *t)
{
    struct dash_live *l = container_of(t, struct dash_live, show);
    struct dash_showing *x;

    if (l->showing == NULL)
        each_stream(l, begin_showing);
    if ((x = l->showing) == NULL)
        return; /* every page has its rows */
    if (!x->gathered)
        gather(l, x);
    else if (!x->first_is_there)
        x->first_is_there = select_on(&x->first, x->found, l->sessions->rand, COMPARES);
    else if (select_on(&x->last, x->found, l->sessions->rand, COMPARES)) {
        show_rows(l, x);
        stop_showing(l);
    }
    timer_set(loop_clock(l->f->loop), &l->show, 0);
}

void dash_stream_look(struct dash_stream *st, const struct dash_look *look)
{
    st->look = *look;
    st->n_shown = 0; /* a page forgets the rows of its last window */
    st->told = 0;
    if (st->live->n_rows > 0 || !st->live->sweeping)
        want_rows(st);
}

/* ---- every second ---- */

static void write_counters(struct dash_live *l, struct jw *w)
{
    const struct relay_counters *c = relay_counters(l->f->relay);
    struct sender_stats sum = {0}, s;

    for (size_t i = 0; i < host_n_platforms(l->f->host); i++) {
        const struct platform *p = host_nth_platform(l->f->host, i);
        if (p->sender == NULL)
            continue;
        sender_stats(p->sender, &s);
        sum.refused += s.refused;
        sum.waiting += s.waiting;
        sum.running += s.running;
        sum.kept_unknown += s.kept_unknown;
        sum.oldest_ms = s.oldest_ms > sum.oldest_ms ? s.oldest_ms : sum.oldest_ms;
    }
    jw_kobj(w, "counters");
    jw_ki64(w, "accepted", (int64_t)c->accepted);
    jw_ki64(w, "duplicates", (int64_t)c->duplicates);
    jw_ki64(w, "unrouted", (int64_t)c->unrouted);
    jw_ki64(w, "gated", (int64_t)c->gated);
    jw_ki64(w, "refused", (int64_t)(c->refused_busy + c->refused_store));
    jw_ki64(w, "delivered", (int64_t)(c->delivered + c->redelivered));
    jw_ki64(w, "acked", (int64_t)c->acked);
    jw_ki64(w, "parked", (int64_t)c->parked);
    jw_ki64(w, "out", (int64_t)(c->actions - c->actions_refused - c->actions_limited));
    jw_ki64(w, "outRefused", (int64_t)(c->actions_refused + c->actions_limited + sum.refused));
    jw_ki64(w, "pokes", (int64_t)c->pokes);
    jw_ki64(w, "pokesFailed", (int64_t)c->pokes_failed);
    jw_end_obj(w);
    jw_kobj(w, "outbox");
    jw_ki64(w, "waiting", (int64_t)sum.waiting);
    jw_ki64(w, "trying", (int64_t)sum.running);
    jw_ki64(w, "unknown", (int64_t)sum.kept_unknown);
    jw_ki64(w, "oldestMs", sum.oldest_ms);
    jw_end_obj(w);
}

/* What only the operator sees; a tenant's page gets the time. */
static void write_tick(struct dash_live *l)
{
    struct loop_stalls stalls;
    uint64_t slow = 0;

    loop_stalls(l->f->loop, &stalls);
    for (int i = 0; i < LOOP_STALL_BUCKETS; i++)
        slow += i > 0 && loop_stall_bounds_us[i - 1] >= 10000 ? stalls.turns[i] : 0;
    buf_reset(&l->json);
    struct jw w = jw_begin(&l->json);
    jw_obj(&w);
    jw_ki64(&w, "at", clock_wall_ms(loop_clock(l->f->loop)));
    write_counters(l, &w);
    admin_write_store(l->f, &w);
    jw_ki64(&w, "connections", (int64_t)http_server_connections(l->f->server));
    jw_ki64(&w, "pages", (int64_t)l->n_streams);
    jw_ki64(&w, "loopSlow", (int64_t)slow);
    jw_ki64(&w, "loopBusyUs", (int64_t)stalls.sum_us);
    jw_end_obj(&w);
}

static void write_bots(struct dash_live *l, struct buf *out, struct str tenant)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    admin_write_platforms(l->f, &w, tenant);
    jw_end_obj(&w);
}

static void send_tick(struct dash_stream *st)
{
    struct dash_live *l = st->live;
    char at[48];

    if (st->session->role.tenant == NULL) {
        send(st, "tick", buf_str(&l->json));
        if (l->bots.n > 0)
            send(st, "bots", buf_str(&l->bots));
        return;
    }
    snprintf(at, sizeof at, "{\"at\":%lld}", (long long)clock_wall_ms(loop_clock(l->f->loop)));
    send(st, "tick", str_of(at));
    BUF_LOCAL bots = BUF_INIT;
    write_bots(l, &bots, str_of(st->session->role.tenant));
    send(st, "bots", buf_str(&bots));
}

static void end_stale(struct dash_live *l)
{
    list_each (&l->sessions->all, it, nxt) {
        struct dash_session *s = list_entry(it, struct dash_session, link);
        if (!l->f->draining && !dash_session_is_over(l->sessions, s))
            continue;
        list_each (&s->streams, k, next) {
            struct dash_stream *st = list_entry(k, struct dash_stream, link);
            send(st, "over", l->f->draining ? STR("{\"why\":\"draining\"}") : STR("{}"));
            dash_stream_end(st);
        }
    }
}

static void on_sweep(struct timer *t)
{
    struct dash_live *l = container_of(t, struct dash_live, sweep);
    struct instance_view v;

    for (int i = 0; l->at_gateway == NULL && i < SLICE; i++) {
        if (relay_next_instance(l->f->relay, &l->at, &v))
            take_view(l, &v);
        else
            l->at_gateway = xstrdup("");
    }
    l->swept += SLICE;
    if (l->at_gateway == NULL || sweep_gateways(l)) {
        if (l->swept < PER_TICK || l->filling)
            timer_set(loop_clock(l->f->loop), &l->sweep, 0);
        return; /* the next tick goes on */
    }
    stop_showing(l); /* its rows may be freed now; its page is among those that want theirs */
    drop_unseen(l);
    l->sweeping = false;
    each_stream(l, want_rows);
}

static void on_tick(struct timer *t)
{
    struct dash_live *l = container_of(t, struct dash_live, tick);
    uint64_t hash;

    end_stale(l);
    if (l->n_streams == 0 && now_ms(l) - l->alone_ms > KEEP_MS) {
        timer_stop(loop_clock(l->f->loop), &l->sweep);
        l->sweeping = false;
        if (!table_free(l, 2 * SLICE))
            timer_set(loop_clock(l->f->loop), &l->tick, 0);
        return; /* the next page sets the timer again */
    }
    timer_set(loop_clock(l->f->loop), &l->tick, TICK_MS);
    if (l->n_streams == 0)
        return;
    buf_reset(&l->bots);
    write_bots(l, &l->bots, STR_NULL);
    hash = hash64(hash_process_key(), buf_str(&l->bots));
    if (hash == l->bots_hash)
        buf_reset(&l->bots); /* nothing is new */
    l->bots_hash = hash;
    write_tick(l);
    each_stream(l, send_tick);
    each_stream(l, show_changes);
    if (!l->sweeping) {
        l->sweeping = true;
        l->filling = l->n_rows == 0;
        l->sweeps++;
        l->at = 0;
    }
    l->swept = 0;
    timer_set(loop_clock(l->f->loop), &l->sweep, 0);
}

/* ---- opening and closing ---- */

static void stream_free(struct dash_stream *st)
{
    struct dash_live *l = st->live;

    if (l->showing != NULL && l->showing->st == st)
        stop_showing(l);
    list_remove(&st->link);
    st->session->n_streams--;
    st->session->used_ms = now_ms(l);
    free(st);
    if (--l->n_streams == 0)
        l->alone_ms = now_ms(l);
}

static void on_closed(void *ctx, struct http_id id)
{
    stream_free(ctx);
}

void dash_stream_end(struct dash_stream *st)
{
    http_stream_end(st->live->f->server, st->http);
    stream_free(st);
}

/* The oldest stream of the tenant, or the operator, with the most; NULL: @s is one of theirs, so it
 * gets no more. */
static struct dash_stream *stream_to_end(const struct dash_live *l, const struct dash_session *s)
{
    struct dash_session *found = NULL;
    size_t most = 0;

    list_each (&l->sessions->all, it, nxt) {
        struct dash_session *one = list_entry(it, struct dash_session, link);
        size_t n = 0;
        list_each (&l->sessions->all, at, after) {
            const struct dash_session *other = list_entry(at, struct dash_session, link);
            n += dash_session_like(one, other) ? other->n_streams : 0;
        }
        if (one->n_streams > 0 && n > most) {
            most = n;
            found = one;
        }
    }
    return found == NULL || dash_session_like(found, s)
               ? NULL
               : list_first(&found->streams, struct dash_stream, link);
}

static void send_to_rest(struct dash_stream *st)
{
    send(st, "rest", STR("{}"));
    dash_stream_end(st);
}

/* The streams have a bound of their own, so they do not count for limits.streams: strangers who
 * open chat pages keep nobody from the dashboard. */
void dash_stream_open(struct dash_live *l, struct http_req *req, struct dash_session *s)
{
    struct dash_stream *st;
    uint64_t id = rand_u64(l->sessions->rand);
    char hello[64];

    if (s->n_streams >= MAX_STREAMS_PER_SESSION)
        send_to_rest(list_first(&s->streams, struct dash_stream, link));
    if (l->n_streams >= MAX_STREAMS && (st = stream_to_end(l, s)) != NULL)
        send_to_rest(st);
    if (l->n_streams >= MAX_STREAMS) {
        http_answer_error(l->f->server, http_req_id(req), 429, "too_many_streams",
                          "Too many dashboards are open. Close one, or try again later.");
        return;
    }
    st = xcalloc(1, sizeof *st);
    *st = (struct dash_stream){.live = l, .session = s, .http = http_req_id(req)};
    hex_u64(id, st->id);
    list_append(&s->streams, &st->link);
    s->n_streams++;
    l->n_streams++;
    http_stream_begin(l->f->server, st->http,
                      &(struct http_answer){.status = 200,
                                            .content_type = "text/event-stream",
                                            .headers = "Cache-Control: no-store\r\n"
                                                       "X-Accel-Buffering: no\r\n"
                                                       "X-Content-Type-Options: nosniff\r\n"},
                      MAX_QUEUED, on_closed, st);
    http_stream_write(l->f->server, st->http, STR("retry: 2000\n\n"));
    snprintf(hello, sizeof hello, "{\"stream\":\"%s\"}", st->id);
    send(st, "hello", str_of(hello));
    l->bots_hash = 0; /* the new page has none */
    timer_set(loop_clock(l->f->loop), &l->tick, 0);
}

void dash_live_init(struct dash_live *l, struct front *f, struct dash_sessions *sessions)
{
    *l = (struct dash_live){.f = f, .sessions = sessions};
    timer_init(&l->tick, on_tick);
    timer_init(&l->sweep, on_sweep);
    timer_init(&l->show, on_show);
}

void dash_live_done(struct dash_live *l)
{
    timer_stop(loop_clock(l->f->loop), &l->tick);
    timer_stop(loop_clock(l->f->loop), &l->sweep);
    timer_stop(loop_clock(l->f->loop), &l->show);
    stop_showing(l);
    table_free(l, SIZE_MAX);
    buf_done(&l->json);
    buf_done(&l->frame);
    buf_done(&l->bots);
}
