/* allowance.c - design.  (allowance.h has the contract.)
 *
 * Every count is in memory and on disk.  A period is a number that grows with time: hours, days,
 * weeks or months, by local time.  The counts of each kind of period are in one list, in order of
 * use, so the counts of past periods are at its front. */
#include "relay/in/allowance.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/config.h"
#include "base/map.h"
#include "base/zone.h"
#include "core/event.h"
#include "relay/heart.h"
#include "relay/in/commands.h"
#include "relay/in/staged.h"
#include "relay/sleep/instance.h"
#include "store/record.h"

enum { KINDS = GATE_MONTH + 1 };

struct turns_share { /* the counts of one tenant */
    struct list by_use;
    size_t n, n_name;
    char name[];
};

struct turns {                 /* of one person, or one chat, with one instance */
    struct list link;          /* allowances->by_use[kind] */
    struct list of_tenant;     /* share->by_use */
    struct turns_share *share; /* borrowed */
    enum gate_period in;       /* the kind of @period */
    int64_t period;
    uint32_t n, life;
    bool told;
    size_t n_key;
    char key[]; /* of its record */
};

struct allowances {
    struct map counts;         /* key -> struct turns, owned */
    struct list by_use[KINDS]; /* the one used last is at the end */
    struct map tenants;        /* name -> struct turns_share, owned */
    struct buf key, value;     /* scratch */
    struct store_kv kv;        /* what allowance_count() returned */
};

struct turns_record {
    struct str tenant, instance, platform, who;
    uint32_t in; /* enum gate_period */
    int64_t period;
    uint32_t n, life;
    bool told;
};
static const struct record_field turns_fields[] = {
    RECORD_FIELD(struct turns_record, tenant, "tenant", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct turns_record, instance, "instance", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct turns_record, platform, "platform", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct turns_record, who, "who", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct turns_record, in, "in", 0, .max = GATE_MONTH),
    RECORD_FIELD(struct turns_record, period, "period", 0),
    RECORD_FIELD(struct turns_record, n, "n", 0),
    RECORD_FIELD(struct turns_record, life, "life", 0),
    RECORD_FIELD(struct turns_record, told, "told", 0),
};
const struct record_form turns_form =
    RECORD_FORM("turns", struct turns_record, turns_fields, .lossy = true);

static const struct config_key keys[] = {
    {"allowances.timezone", CFG_TEXT, CFG_RESTART, offsetof(struct allowance_settings, timezone),
     "UTC",
     .what = "The time zone whose days, weeks and months `bellhop allowance` counts, such as "
             "`Europe/Berlin`."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct allowance_settings *s = settings;
    char why[256];

    return zone_exists(s->timezone, why) || bh_why(ret_why, "allowances.timezone: %.220s", why);
}

const struct config_section allowance_config = {.keys = keys,
                                                .size = sizeof(struct allowance_settings),
                                                .check = check};

/* ---- the table ---- */

struct allowances *allowances_new(void)
{
    struct allowances *t = xcalloc(1, sizeof *t);

    for (size_t k = 0; k < KINDS; k++)
        list_init(&t->by_use[k]);
    return t;
}

static struct turns_share *share_of(struct allowances *t, struct str key)
{
    struct str name = STR_NULL;

    str_split(&key, RECORD_SEPARATOR, &name);
    struct turns_share *s = map_get(&t->tenants, name);
    if (s != NULL)
        return s;
    s = xcalloc(1, sizeof *s + name.n);
    memcpy(s->name, name.p, name.n);
    s->n_name = name.n;
    list_init(&s->by_use);
    map_put(&t->tenants, str_make(s->name, s->n_name), s);
    return s;
}

static void drop(struct allowances *t, struct turns *c)
{
    struct turns_share *s = c->share;

    list_remove(&c->link);
    list_remove(&c->of_tenant);
    map_del(&t->counts, str_make(c->key, c->n_key));
    free(c);
    if (--s->n > 0)
        return;
    map_del(&t->tenants, str_make(s->name, s->n_name));
    free(s);
}

void allowances_free(struct allowances *t)
{
    if (t == NULL)
        return;
    for (size_t k = 0; k < KINDS; k++)
        list_each (&t->by_use[k], it, nxt)
            drop(t, list_entry(it, struct turns, link));
    map_done(&t->counts);
    map_done(&t->tenants);
    buf_done(&t->key);
    buf_done(&t->value);
    free(t);
}

static int64_t period_at(enum gate_period in, int64_t wall_ms)
{
    struct tm tm;

    zone_at(wall_ms, &tm);
    int64_t local_s = wall_ms / 1000 + tm.tm_gmtoff;
    switch (in) {
    case GATE_HOUR:
        return local_s / 3600;
    case GATE_DAY:
        return local_s / 86400;
    case GATE_WEEK:
        return (local_s / 86400 + 3) / 7; /* 1970 began on a Thursday */
    default:
        return (int64_t)tm.tm_year * 12 + tm.tm_mon;
    }
}

static struct turns *add(struct allowances *t, struct str key)
{
    struct turns *c = xcalloc(1, sizeof *c + key.n);

    memcpy(c->key, key.p, key.n);
    c->n_key = key.n;
    list_init(&c->link);
    c->share = share_of(t, key);
    c->share->n++;
    list_append(&c->share->by_use, &c->of_tenant);
    map_put(&t->counts, str_make(c->key, c->n_key), c);
    return c;
}

static bool on_turns(void *ctx, struct str key, void *thing)
{
    struct allowances *t = ((struct relay *)ctx)->allowances;
    const struct turns_record *rec = thing;
    struct turns *c = add(t, key);

    c->in = (enum gate_period)rec->in;
    c->period = rec->period;
    c->n = rec->n;
    c->life = rec->life;
    c->told = rec->told;
    list_append(&t->by_use[c->in], &c->link);
    return true;
}

static int by_period(const void *a, const void *b)
{
    const struct turns *x = *(struct turns *const *)a, *y = *(struct turns *const *)b;

    return (x->period > y->period) - (x->period < y->period);
}

enum bh_err allowances_load(struct relay *r)
{
    struct allowances *t = r->allowances;
    char why[256];
    enum bh_err err = record_load(r->env.store, &turns_form, NULL, STR_NULL, on_turns, r, why);

    for (size_t k = 0; k < KINDS; k++) { /* records come in the order of their keys */
        struct turns **all = xcalloc(map_count(&t->counts) + 1, sizeof(struct turns *));
        size_t n = 0;
        list_each (&t->by_use[k], it, nxt)
            all[n++] = list_entry(it, struct turns, link);
        if (n > 0)
            qsort(all, n, sizeof all[0], by_period);
        for (size_t i = 0; i < n; i++) {
            list_move(&all[i]->link, &t->by_use[k]);
            list_move(&all[i]->of_tenant, &all[i]->share->by_use);
        }
        free(all);
    }
    return err;
}

/* ---- one count ---- */

/* The count of the current period; NULL: nothing is counted yet.  The key is in t->key. */
static struct turns *find(struct relay *r, const struct gate_instance *to, const struct event *ev)
{
    struct allowances *t = r->allowances;
    bool chat = to->allowance->per_chat || str_is_empty(ev->user_id);
    const struct turns_record rec = {.tenant = to->tenant,
                                     .instance = to->instance,
                                     .platform = ev->platform,
                                     .who = chat ? ev->chat_id : ev->user_id};

    buf_reset(&t->key);
    record_write(&turns_form, NULL, &rec, &t->key, NULL);
    struct turns *c = map_get(&t->counts, buf_str(&t->key));
    enum gate_period in = to->allowance->period;
    int64_t now = period_at(in, clock_wall_ms(r->env.clock));
    if (c != NULL && (c->in != in || c->period != now || c->life != to->life)) {
        c->in = in;
        c->period = now;
        c->life = to->life;
        c->n = 0;
        c->told = false;
    }
    return c;
}

/* The count that makes room for one more of the tenant in @key; NULL: there is room. */
static struct turns *in_the_way(const struct allowances *t, struct str key)
{
    struct str name = STR_NULL;

    str_split(&key, RECORD_SEPARATOR, &name);
    const struct turns_share *s = map_get(&t->tenants, name);
    if (s != NULL && s->n >= ALLOWANCE_TENANT_MAX)
        return list_first(&s->by_use, struct turns, of_tenant);
    for (size_t k = 0; k < KINDS && map_count(&t->counts) >= ALLOWANCE_COUNTS_MAX; k++)
        if (!list_is_empty(&t->by_use[k]))
            return list_first(&t->by_use[k], struct turns, link);
    return NULL;
}

static struct turns *make(struct relay *r, const struct gate_instance *to, const struct event *ev)
{
    struct allowances *t = r->allowances;
    struct turns *c = find(r, to, ev);
    struct turns *oldest = c == NULL ? in_the_way(t, buf_str(&t->key)) : NULL;

    if (oldest != NULL) {
        record_delete(r->env.store, &turns_form, str_make(oldest->key, oldest->n_key));
        drop(t, oldest);
    }
    if (c == NULL) {
        c = add(t, buf_str(&t->key));
        c->in = to->allowance->period;
        c->period = period_at(c->in, clock_wall_ms(r->env.clock));
        c->life = to->life;
    }
    list_move(&c->link, &t->by_use[c->in]);
    list_move(&c->of_tenant, &c->share->by_use);
    return c;
}

/* The record of @c; borrowed until the next call. */
static const struct store_kv *kv_of(struct allowances *t, const struct turns *c)
{
    const struct turns_record rec = {
        .in = c->in, .period = c->period, .n = c->n, .life = c->life, .told = c->told};

    buf_reset(&t->value);
    record_write(&turns_form, NULL, &rec, NULL, &t->value);
    t->kv =
        (struct store_kv){KV_PUT, turns_form.ns, str_make(c->key, c->n_key), buf_str(&t->value)};
    return &t->kv;
}

const struct store_kv *allowance_count(struct relay *r, const struct gate_verdict *v,
                                       const struct event *ev)
{
    struct turns *c = make(r, v->to, ev);

    c->n++;
    return kv_of(r->allowances, c);
}

void allowance_uncount(struct relay *r, struct str key)
{
    struct turns *c = map_get(&r->allowances->counts, key);

    if (c != NULL && c->n > 0)
        c->n--;
}

void allowance_keep(struct relay *r, struct str key)
{
    const struct turns *c = map_get(&r->allowances->counts, key);

    if (c != NULL)
        store_put(r->env.store, kv_of(r->allowances, c), 1, false, NULL, NULL);
}

void allowance_forget(struct relay *r, struct str key)
{
    struct turns *c = map_get(&r->allowances->counts, key);

    if (c != NULL)
        drop(r->allowances, c);
}

/* ---- used up ---- */

struct telling { /* a sentence for a person, once it is on disk that the person was told */
    struct pending pending;
    struct relay *relay; /* borrowed */
    struct arena arena;
    struct event ev; /* in the arena */
    struct str text, key;
};

static void telling_free(struct pending *p)
{
    struct telling *l = container_of(p, struct telling, pending);

    arena_done(&l->arena);
    free(l);
}

static void on_told(void *ctx, enum bh_err err)
{
    struct telling *l = ctx;
    struct turns *c = map_get(&l->relay->allowances->counts, l->key);

    if (err == BH_OK)
        command_tell(l->relay, &l->ev, l->text);
    else if (c != NULL)
        c->told = false;
    pending_end(&l->pending);
}

static void tell(struct relay *r, struct turns *c, const struct gate_allowance *a,
                 const struct event *ev)
{
    static const char *const spans[] = {"this hour", "today", "this week", "this month"};
    struct telling *l = xcalloc(1, sizeof *l);
    char text[160];

    c->told = true;
    l->relay = r;
    snprintf(text, sizeof text, "You have used up the %u messages that you may send me %s.",
             a->turns, spans[a->period]);
    if (a->per_chat)
        snprintf(text, sizeof text, "The %u messages that this chat may send me %s are used up.",
                 a->turns, spans[a->period]);
    const struct event place = {.platform = ev->platform,
                                .bot = ev->bot,
                                .chat_id = ev->chat_id,
                                .message_id = ev->message_id,
                                .thread_id = ev->thread_id};
    event_copy(&place, &l->arena, &l->ev);
    l->text = arena_str(&l->arena, a->reply != NULL ? str_of(a->reply) : str_of(text));
    l->key = arena_str(&l->arena, str_make(c->key, c->n_key));
    pending_add(r, &l->pending, telling_free);
    store_put(r->env.store, kv_of(r->allowances, c), 1, true, on_told, l);
}

void allowances_judge(struct relay *r, const struct event *ev, struct gate_verdict *verdicts,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct gate_instance *to = verdicts[i].to;
        if (to->allowance == NULL || !gate_may_yet(verdicts[i].reason) ||
            relay_known_ms(r, to->tenant, to->instance, ev) != 0)
            continue; /* a duplicate is answered as before, whatever was used since */
        struct turns *c = find(r, to, ev);
        if ((c != NULL ? c->n : 0) < to->allowance->turns)
            continue;
        verdicts[i].reason = GATE_NO_ALLOWANCE;
        r->n.over_allowance++;
        c = c != NULL ? c : make(r, to, ev);
        if (!c->told)
            tell(r, c, to->allowance, ev);
    }
}

/* ---- every ten minutes ---- */

void allowances_sweep(struct relay *r)
{
    struct allowances *t = r->allowances;
    int64_t now_ms = clock_wall_ms(r->env.clock);
    size_t left = ALLOWANCE_SWEEP;

    for (size_t k = 0; k < KINDS; k++) {
        int64_t now = period_at((enum gate_period)k, now_ms);
        list_each (&t->by_use[k], it, nxt) {
            struct turns *c = list_entry(it, struct turns, link);
            if (c->period >= now || left == 0)
                break;
            left--;
            record_delete(r->env.store, &turns_form, str_make(c->key, c->n_key));
            drop(t, c);
        }
    }
}
