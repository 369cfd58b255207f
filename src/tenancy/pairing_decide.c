/* pairing_decide.c - the queue of strangers as operators see it: lists, decisions, erasure.
 * (pairing.h has the contract.)
 *
 * A decision is a change of facts (change.h).  It holds its entry until it ends, see pairing.c. */
#include <stdlib.h>
#include "base/mem.h"
#include "store/erasure.h"
#include "tenancy/rights.h"
#include "tenancy/pairing_priv.h"

/* ---- reading ---- */

static bool id_parse(struct str text, uint64_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < text.n; i++) {
        int v = hex_value(text.p[i]);
        if (v < 0)
            return false;
        *ret = *ret << 4 | (uint64_t)v;
    }
    return text.n == PAIRING_ID_CHARS;
}

static void view(const struct pairing *p, const struct stranger *e, struct pairing_view *ret)
{
    *ret =
        (struct pairing_view){.platform = e->of->platform,
                              .bot = e->of->bot,
                              .user = str_of(e->user),
                              .name = str_of(e->name),
                              .chat_type = str_of(e->type),
                              .chat = str_of(e->chat),
                              .tenant = rights_tenant_of(p->env.facts, e->of->platform, e->of->bot),
                              .state = e->state,
                              .messages = e->messages,
                              .first_ms = e->first_ms,
                              .last_ms = e->last_ms,
                              .told_ms = e->told_ms};
    hex_u64(e->id, ret->id);
}

bool pairing_find(const struct pairing *p, struct str id, struct str tenant,
                  struct pairing_view *ret)
{
    uint64_t number;
    const struct stranger *e = id_parse(id, &number) ? stranger_find(p, number) : NULL;

    if (e == NULL)
        return false;
    view(p, e, ret);
    return tenant.p == NULL || str_eq(tenant, ret->tenant);
}

static const struct stranger *newest_of(const struct list *head)
{
    return list_is_empty(head) ? NULL : list_entry(head->prev, struct stranger, link);
}

static const struct stranger *next_of(const struct pairing *p, const struct stranger *e)
{
    const struct list *at = e != NULL ? &e->of->link : &p->by_age;

    if (e != NULL && e->state != PAIRING_BLOCKED && e->link.prev == &e->of->people) {
        if (!list_is_empty(&e->of->blocked))
            return newest_of(&e->of->blocked);
    } else if (e != NULL && e->link.prev != &e->of->people && e->link.prev != &e->of->blocked) {
        return list_entry(e->link.prev, struct stranger, link);
    }
    for (at = at->next; at != &p->by_age; at = at->next) {
        const struct queue *q = list_entry(at, const struct queue, link);
        const struct stranger *first = newest_of(&q->people);
        if (first == NULL)
            first = newest_of(&q->blocked);
        if (first != NULL)
            return first;
    }
    return NULL;
}

bool pairing_next(const struct pairing *p, struct str after, struct pairing_view *ret)
{
    uint64_t number = 0;
    const struct stranger *e =
        after.n > 0 && id_parse(after, &number) ? stranger_find(p, number) : NULL;

    if (after.n > 0 && e == NULL)
        return false;
    do
        e = next_of(p, e);
    while (e != NULL && e->state != PAIRING_BLOCKED && stranger_has_link(p, e));
    if (e != NULL)
        view(p, e, ret);
    return e != NULL;
}

uint64_t pairing_waiting(const struct pairing *p, struct str tenant)
{
    uint64_t n = 0;

    list_each (&p->by_age, it, nxt) {
        const struct queue *q = list_entry(it, const struct queue, link);
        if (tenant.n == 0 || str_eq(rights_tenant_of(p->env.facts, q->platform, q->bot), tenant))
            n += q->n_waiting;
    }
    return n;
}

const struct pairing_settings *pairing_settings_of(const struct pairing *p)
{
    return p->env.settings;
}

void pairing_stats(const struct pairing *p, struct pairing_stats *ret)
{
    *ret = p->n;
    ret->waiting = p->in_state[PAIRING_WAITING];
    ret->denied = p->in_state[PAIRING_DENIED];
    ret->blocked = p->in_state[PAIRING_BLOCKED];
}

/* ---- decisions ---- */

static void on_decided(void *ctx, enum bh_err err, const char *why)
{
    struct deciding *d = ctx;
    struct stranger *e = d->id != 0 ? stranger_find(d->p, d->id) : NULL;
    facts_done_cb *done = d->done;
    void *done_ctx = d->ctx;

    if (e != NULL)
        e->held = false;
    list_remove(&d->link);
    free(d);
    if (done != NULL)
        done(done_ctx, err, why);
}

static bool prepare(struct facts *f, struct change *c)
{
    struct deciding *d = c->ctx;
    const struct stranger *e = stranger_find(d->p, d->id);

    if (e == NULL)
        return change_fail(c, BH_NOT_FOUND, "nobody in the queue has this id");
    struct pairing_record r = stranger_record(e);
    if (d->what == APPROVE) {
        d->ret->owner = list_is_empty(&c->to->gate.people);
        if (!link_prepare(f, c))
            return false;
    }
    r.state = d->state;
    r.decided_ms = pairing_now(d->p);
    change_put(c, d->what == SET ? KV_PUT : KV_DELETE, &pairing_form, &r);
    return true;
}

static void apply(struct facts *f, struct change *c)
{
    const struct deciding *d = c->ctx;
    struct pairing *p = d->p;
    struct stranger *e = stranger_find(p, d->id);

    if (d->what == APPROVE)
        link_apply(f, c);
    if (e == NULL) { /* the person was erased meanwhile */
        if (d->what == SET)
            record_delete(p->env.store, &pairing_form, buf_str(&c->items[c->n - 1].key));
        return;
    }
    p->n.approvals += d->what == APPROVE;
    p->n.denials += d->what == SET && d->state == PAIRING_DENIED;
    p->n.blocks += d->what == SET && d->state == PAIRING_BLOCKED;
    if (d->what != SET) {
        stranger_drop(p, e);
        return;
    }
    e->decided_ms = e->written_ms = pairing_now(p);
    if (d->state == PAIRING_WAITING && e->state == PAIRING_BLOCKED)
        strangers_make_room(p, e->of);
    stranger_enter(p, e, d->state);
}

/* Begins a decision and holds its entry.  A change that has failed already holds none. */
static struct change *decide(struct pairing *p, struct str id, enum decision what,
                             enum pairing_state state, facts_done_cb *done, void *ctx)
{
    struct deciding *d = xcalloc(1, sizeof *d);
    struct change *c = change_new(p->env.facts, prepare, apply, on_decided, d);
    uint64_t number;
    struct stranger *e = id_parse(id, &number) ? stranger_find(p, number) : NULL;

    *d = (struct deciding){.p = p, .what = what, .state = state, .done = done, .ctx = ctx};
    list_append(&p->deciding, &d->link);
    if (e == NULL) {
        change_fail(c, BH_NOT_FOUND, "nobody in the queue has this id");
    } else if (e->held) {
        change_fail(c, BH_CONFLICT, "another decision about this person is under way");
    } else if (what == SET && state == PAIRING_BLOCKED && e->state != PAIRING_BLOCKED &&
               e->of->n_blocked >= PAIRING_BLOCKED_MAX) {
        change_fail(c, BH_BUSY, "this bot has %d blocked people; forget some of them first",
                    PAIRING_BLOCKED_MAX);
    } else {
        struct str tenant = rights_tenant_of(p->env.facts, e->of->platform, e->of->bot);
        c->tenant = str_dup_opt(tenant);
        d->id = e->id;
        e->held = true;
    }
    return c;
}

void pairing_approve(struct pairing *p, struct str id, struct grant_who who,
                     struct pairing_link *ret, facts_done_cb *done, void *ctx)
{
    struct change *c = decide(p, id, APPROVE, PAIRING_WAITING, done, ctx);
    struct deciding *d = c->ctx;
    const struct stranger *e = stranger_find(p, d->id);

    d->ret = ret;
    if (c->err != BH_OK || e == NULL) {
        change_submit(c, NULL);
        return;
    }
    struct str bot = e->of->bot;
    link_change(c, who, &(struct grant_person){e->of->platform, str_of(e->user), &bot, 1});
}

void pairing_set(struct pairing *p, struct str id, enum pairing_state state, facts_done_cb *done,
                 void *ctx)
{
    change_submit(decide(p, id, SET, state, done, ctx), NULL);
}

void pairing_forget(struct pairing *p, struct str id, facts_done_cb *done, void *ctx)
{
    change_submit(decide(p, id, FORGET, PAIRING_WAITING, done, ctx), NULL);
}

/* ---- erasure ---- */

/* Is the entry what the erasure is about: the person, or a bot of the tenant? */
static bool is_meant(const struct pairing *p, const struct erase_subject *s, struct str platform,
                     struct str bot, struct str user)
{
    return s->tenant.p != NULL ? str_eq(rights_tenant_of(p->env.facts, platform, bot), s->tenant)
                               : str_eq(platform, s->platform) && str_eq(user, s->user);
}

static bool erase_record(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    struct pairing *p = ctx;
    const struct erase_subject *s = erasure_subject(e);
    struct str platform = erase_part(&key), bot = erase_part(&key);

    if (!is_meant(p, s, platform, bot, key))
        return false;
    struct stranger *known = stranger_find(p, stranger_id(p, platform, bot, key));
    if (known != NULL && !s->dry)
        stranger_drop(p, known);
    return true;
}

/* The entries that have no record yet. */
static void erase_rest(void *ctx, struct erasure *e)
{
    struct pairing *p = ctx;
    const struct erase_subject *s = erasure_subject(e);
    uint64_t n = 0;
    void *v;

    for (size_t pos = 0; map_next(&p->by_id, &pos, &v);) {
        struct stranger *one = v;
        if (!is_meant(p, s, one->of->platform, one->of->bot, str_of(one->user)))
            continue;
        n += !s->dry || one->written_ms == 0;
        if (!s->dry)
            stranger_push_out(p, one);
    }
    erasure_count(e, "pairing", n);
    erasure_next(e);
}

static const struct erase_records records[] = {{"pairing", "pairing", erase_record}, {0}};
const struct eraser pairing_eraser = {.of_tenant = records,
                                      .of_person = records,
                                      .tenant = erase_rest,
                                      .person = erase_rest};
