/* staged.c - design.  (staged.h has the contract and the picture.)
 *
 * Each chat with staged rows has a queue.  A row enters when it is READY and no row before it has
 * one of its recipients, so every recipient gets a chat in its order of arrival, and none waits for
 * a row that is not for it.  An event that only waits for its predecessors is staged too.
 *
 * An event has one row for the recipients that wait for files, context or predecessors, and one for
 * each recipient whose sight is asked for.  A recipient that need not wait is in no row.
 *
 * An event that arrives while its only predecessor is entering is not written.  It is deferred in
 * memory for some milliseconds, unanswered.  So a busy chat returns to one write per event.
 *
 * Requests for files carry the handle of the event and the file's index, so late and repeated
 * answers are harmless. */
#include "relay/in/staged.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/uncleared.h"
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/burst.h"
#include "relay/in/commands.h"
#include "relay/in/judge.h"
#include "relay/in/staged_priv.h"
#include "relay/sleep/instance.h"
#include "store/record.h"

struct deferred_event { /* arrived while its only predecessor was entering */
    struct list link;
    struct accept *accept; /* held */
    struct arena arena;
    struct event ev;      /* in the arena; routed */
    struct staged_to *to; /* in the arena; who passed the gate when it came */
    size_t n_to;
};

/* ---- the body of a row ---- */

struct staged_row {
    struct record_json event; /* as event_save() writes it */
    struct staged_to *to;     /* owned */
    size_t n_to;
};
static const struct record_field to_fields[] = {
    RECORD_FIELD(struct staged_to, tenant, "tenant", RECORD_NEEDED),
    RECORD_FIELD(struct staged_to, instance, "instance", RECORD_NEEDED),
    RECORD_FIELD(struct staged_to, life, "life", 0),
};
static const struct record_form to_form = RECORD_FORM(NULL, struct staged_to, to_fields);
static const struct record_field row_fields[] = {
    RECORD_ARRAY(struct staged_row, to, n_to, "to", &to_form, GATE_CANDIDATES),
    RECORD_FIELD(struct staged_row, event, "event", RECORD_NEEDED),
};
const struct record_form staged_form = RECORD_FORM("staged", struct staged_row, row_fields);

void staged_save(struct staged *e)
{
    struct buf event = BUF_INIT;

    event_save(&event, &e->ev);
    struct staged_row row = {.event.text = buf_str(&event), .to = e->to, .n_to = e->n_to};
    buf_reset(&e->body);
    record_write(&staged_form, NULL, &row, NULL, &e->body);
    buf_done(&event);
}

struct stage *stage_new(struct relay *r)
{
    struct stage *t = xcalloc(1, sizeof *t);

    handles_init(&t->handles, r->env.rand);
    list_init(&t->all);
    t->rows = record_reader_new(NULL);
    return t;
}

size_t relay_waiting(const struct relay *r)
{
    return r->stage->n;
}

/* ---- one staged event ---- */

struct staged_chat *staged_chat_of(struct stage *t, const struct event *ev)
{
    if (t->n == 0)
        return NULL;
    buf_reset(&t->scratch);
    buf_printf(&t->scratch, "%.*s\x1f%.*s\x1f", STR_FMT(ev->platform), STR_FMT(ev->bot));
    buf_add_str(&t->scratch, ev->chat_id);
    return map_get(&t->chats, buf_str(&t->scratch));
}

static bool is_same(const struct staged *e, const struct event *ev)
{
    return burst_find(&e->ev, ev->event_id) >= 0;
}

bool stage_has(struct relay *r, const struct event *ev)
{
    struct staged_chat *c = staged_chat_of(r->stage, ev);

    for (const struct list *it = c != NULL ? c->events.next : NULL; c != NULL && it != &c->events;
         it = it->next)
        if (is_same(list_entry(it, const struct staged, in_chat), ev))
            return true;
    return false;
}

static void join_chat(struct stage *t, struct staged *e)
{
    t->n++;
    struct staged_chat *c = staged_chat_of(t, &e->ev);
    if (c == NULL) {
        c = xcalloc(1, sizeof *c);
        c->key = xstrdup(buf_z(&t->scratch));
        list_init(&c->events);
        list_init(&c->deferred);
        map_put(&t->chats, str_of(c->key), c);
    }
    e->chat = c;
    c->n++;
    struct list *at = &c->events; /* its place is before @at: a /stop passes who waits */
    while (e->stops && at->prev != &c->events &&
           !list_entry(at->prev, struct staged, in_chat)->stops &&
           list_entry(at->prev, struct staged, in_chat)->state != STAGED_ENTERING)
        at = at->prev;
    list_add_before(at, &e->in_chat);
}

static void deferred_free(struct deferred_event *p)
{
    list_remove(&p->link);
    arena_done(&p->arena);
    free(p);
}

static void leave_chat(struct stage *t, struct staged *e)
{
    struct staged_chat *c = e->chat;

    list_remove(&e->in_chat);
    if (--c->n > 0)
        return;
    list_each (&c->deferred, it, nxt)
        deferred_free(list_entry(it, struct deferred_event, link));
    map_del(&t->chats, str_of(c->key));
    free(c->key);
    free(c);
}

void staged_tell(struct staged *e, size_t n, enum bh_err err)
{
    for (; n > 0 && !fifo_is_empty(&e->waiting); n--)
        accept_release(e->relay, fifo_pop(&e->waiting), err);
    e->n_covered = 0;
}

static timer_cb on_timer;
static void group_over(struct delivery_group *g);

static struct staged_to *keep_recipients(struct arena *arena, const struct staged_to *to, size_t n)
{
    struct staged_to *kept = arena_alloc(arena, (n + 1) * sizeof *kept);

    for (size_t i = 0; i < n; i++)
        kept[i] = (struct staged_to){arena_str(arena, to[i].tenant),
                                     arena_str(arena, to[i].instance), to[i].life};
    return kept;
}

static struct staged *staged_new(struct relay *r, const struct event *ev,
                                 const struct staged_to *to, size_t n_to, bool stops)
{
    struct stage *t = r->stage;
    struct staged *e = xcalloc(1, sizeof *e);

    e->relay = r;
    e->stops = e->judged = stops;
    event_copy(ev, &e->arena, &e->ev);
    e->to = keep_recipients(&e->arena, to, n_to);
    e->n_to = n_to;
    e->tenant = n_to > 0 ? str_dup(to[0].tenant) : NULL;
    e->n_safe = e->ev.n_parts > 0 ? e->ev.n_parts : 1;
    list_init(&e->link);
    list_init(&e->in_chat);
    timer_init(&e->timer, on_timer);
    timer_init(&e->again, burst_again);
    delivery_group_init(&e->group, group_over);
    list_append(&t->all, &e->link);
    e->handle = handles_add(&t->handles, e);
    join_chat(t, e);
    return e;
}

static void staged_free(struct staged *e)
{
    struct stage *t = e->relay->stage;

    timer_stop(e->relay->env.clock, &e->timer);
    timer_stop(e->relay->env.clock, &e->again);
    list_remove(&e->link);
    leave_chat(t, e);
    handles_remove(&t->handles, e->handle);
    t->n--;
    arena_done(&e->arena);
    buf_done(&e->body);
    free(e->tenant);
    fifo_done(&e->waiting);
    free(e);
}

void stage_free(struct stage *t)
{
    if (t == NULL)
        return;
    list_each (&t->all, it, nxt)
        staged_free(list_entry(it, struct staged, link));
    map_done(&t->chats);
    handles_done(&t->handles);
    record_reader_free(t->rows);
    buf_done(&t->scratch);
    free(t);
}

bool staged_has(const struct staged_to *to, size_t n, const struct gate_instance *i)
{
    for (size_t k = 0; k < n; k++)
        if (to[k].life == i->life && str_eq(to[k].tenant, i->tenant) &&
            str_eq(to[k].instance, i->instance))
            return true;
    return false;
}

/* ---- entering ---- */

static void enter(struct staged *e);

static bool shares_recipient(const struct staged *a, const struct staged *b)
{
    for (size_t i = 0; i < a->n_to; i++)
        for (size_t k = 0; k < b->n_to; k++)
            if (str_eq(a->to[i].instance, b->to[k].instance) &&
                str_eq(a->to[i].tenant, b->to[k].tenant))
                return true;
    return false;
}

/* True when a row before @e in its chat has one of its recipients. */
static bool is_behind(const struct staged *e)
{
    const struct list *head = &e->chat->events;

    for (const struct list *it = head->next; it != &e->in_chat; it = it->next)
        if (shares_recipient(list_entry(it, const struct staged, in_chat), e))
            return true;
    return false;
}

void staged_advance(struct staged_chat *c)
{
    list_each (&c->events, it, nxt) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        if (e->state == STAGED_READY && !timer_is_set(&e->timer) && !e->rewriting &&
            !e->relay->draining && !is_behind(e))
            enter(e);
    }
}

static void leave(struct staged *e)
{
    struct relay *r = e->relay;
    struct staged_chat *c = e->chat;
    bool last = c->n == 1; /* nothing of the chat waits any more */
    struct list deferred;

    list_init(&deferred);
    list_each (&c->deferred, it, nxt)
        if (last)
            list_move(it, &deferred);
    wants_drop(e);
    staged_free(e);
    if (!last)
        staged_advance(c);
    list_each (&deferred, at, after) {
        struct deferred_event *p = list_entry(at, struct deferred_event, link);
        accept_resume(r, &p->ev, p->to, p->n_to, p->accept);
        r->stage->n_deferred--;
        deferred_free(p);
    }
}

/* Ends ENTERING once every copy has a result and every append has ended. */
static void finish(struct staged *e)
{
    struct relay *r = e->relay;

    if (!e->entered || e->group.left > 0)
        return;
    if (e->err == BH_BUSY || e->err == BH_UNAVAILABLE || e->err == BH_UNKNOWN) {
        e->state = STAGED_READY;
        timer_set(r->env.clock, &e->timer, RETRY_MS);
        return;
    }
    if (e->err != BH_OK)
        log_warn(NULL, "cannot deliver a received event: platform=%.*s: %s",
                 STR_FMT(e->ev.platform), bh_err_word(e->err));
    if (!e->group.replaced && !e->group.unkeyed)
        acks_add(r, e->append.id);
    leave(e);
}

static void group_over(struct delivery_group *g)
{
    finish(container_of(g, struct staged, group));
}

static void on_entered(void *ctx, enum bh_err err)
{
    struct staged *e = ctx;

    e->entered = true;
    e->err = err;
    finish(e);
}

/* The text, with a note for the agent about each missing file. */
static struct str text_with_notes(struct staged *e, struct str said)
{
    struct buf text = BUF_INIT;

    buf_add_str(&text, said);
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (e->files[i].state != WANT_HERE && e->files[i].state != WANT_NOTHING)
            buf_printf(&text, "%s[%s: %s]", text.n > 0 ? "\n" : "",
                       e->ev.media[i].url.n > 0 ? "the address of a file may not hold"
                                                : "a file is missing",
                       e->files[i].why[0] != '\0' ? e->files[i].why : "it did not come in time");
    struct str kept = arena_str(&e->arena, buf_str(&text));
    buf_done(&text);
    return kept;
}

static void enter(struct staged *e)
{
    struct event_media media[EVENT_MAX_MEDIA];
    struct event ev = e->ev;

    burst_finish(&ev, &e->arena);
    ev.text = text_with_notes(e, ev.text);
    for (size_t i = 0; i < ev.n_media; i++) {
        media[i] = e->ev.media[i];
        if (e->files[i].state == WANT_NOTHING)
            media[i].ref = STR_NULL; /* the agent uses the public URL */
        if (e->files[i].state != WANT_HERE)
            continue;
        media[i].id = e->files[i].here.id;
        media[i].size = e->files[i].here.size;
        media[i].type = e->files[i].here.type;
    }
    ev.media = media;
    ev.context_error |= e->context == WANT_LOST;
    e->state = STAGED_ENTERING;
    e->entered = false;
    delivery_group_init(&e->group, group_over);
    e->group.replaces = e->append.id;
    accept_staged(e->relay, &ev, e->to, e->n_to, e->noted, &e->group, on_entered, e);
}

/* ---- waiting ---- */

static void submit(struct staged *e);

static void on_timer(struct timer *timer)
{
    struct staged *e = container_of(timer, struct staged, timer);

    if (e->relay->draining)
        return; /* the next process continues from the row */
    if (e->dropped && e->state != STAGED_WRITING) {
        if (e->rewriting)
            return; /* the end of the rewrite comes back */
        staged_tell(e, e->waiting.n, BH_OK);
        acks_add(e->relay, e->append.id);
        leave(e);
    } else if (e->state == STAGED_WRITING) {
        submit(e);
    } else if (e->state == STAGED_READY) {
        staged_advance(e->chat);
    } else if (e->state == STAGED_WAITING && !e->judged && staged_has_outlet(e)) {
        if (e->sight == WANT_ASKED)
            e->sight = WANT_LOST;
        staged_begin(e);
    } else if (e->state == STAGED_WAITING && e->joins) { /* the bot is closed: wait for it */
        e->joins = false;
        timer_set(e->relay->env.clock, &e->timer, OUTLET_MS);
    } else if (e->state == STAGED_WAITING) { /* timeout */
        wants_give_up(e);
    }
}

/* ---- what an event waits for ---- */

struct wants wants_of(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                      size_t n)
{
    const struct outside *o = r->env.outside;
    struct wants w = {0};
    bool fades = false;

    for (size_t i = 0; i < n; i++) {
        const struct gate_instance *to = verdicts[i].to;
        w.sight |= verdicts[i].reason == GATE_NO_SIGHT_ASKED;
        if (w.tenant.p == NULL && gate_may_yet(verdicts[i].reason)) {
            w.tenant = to->tenant;
            w.stranger = verdicts[i].reason != GATE_YES_OWNER;
        }
        if (!gate_is_yes(verdicts[i].reason))
            continue;
        if (ev->n_media > 0) { /* only files depend on that */
            const struct instance *in = instance_find(r, to->tenant, to->instance);
            w.sleeps |= in == NULL || !instance_is_live(in);
        }
        w.context |=
            ev->wants_context && o->context != NULL && judge_reads_context(r, &verdicts[i], ev);
    }
    for (size_t i = 0; i < ev->n_media && w.tenant.p != NULL && o->fetch != NULL; i++) {
        w.files |= ev->media[i].ref.n > 0 && ev->media[i].url.n == 0;
        fades |= ev->media[i].ref.n > 0;
    }
    w.files |= fades && w.sleeps;
    return w;
}

/* The row is on disk.  Requests start after this turn, so that a node that has lost its lease
 * learns of that first.  After a start the bot may not be open yet. */
static void wait(struct staged *e)
{
    e->state = STAGED_WAITING;
    timer_set(e->relay->env.clock, &e->timer,
              e->stops               ? INTERRUPT_HOLD_MS
              : e->joins             ? e->ev.burst_ms
              : staged_has_outlet(e) ? 0
                                     : OUTLET_MS);
}

/* ---- the first write ---- */

static void on_written(struct store_op *op, enum bh_err err)
{
    struct staged *e = container_of(op, struct staged, append.op);
    struct relay *r = e->relay;

    drain_release(r);
    e->in_doubt |= err == BH_UNKNOWN;
    if (err != BH_OK && e->in_doubt && !r->draining) { /* the row may be there: once more */
        timer_set(r->env.clock, &e->timer, RETRY_MS);
        return;
    }
    if (err != BH_OK) {
        r->n.refused_store++;
        staged_tell(e, e->waiting.n, BH_UNAVAILABLE);
        leave(e);
        return;
    }
    e->in_doubt = false;
    buf_done(&e->body);
    e->body = BUF_INIT;
    staged_tell(e, e->dropped ? e->waiting.n : e->n_covered, BH_OK);
    if (e->dropped) {
        acks_add(r, e->append.id);
        leave(e);
        return;
    }
    wait(e);
    if (!fifo_is_empty(&e->waiting))
        burst_rewrite(e);
}

static void submit(struct staged *e)
{
    struct relay *r = e->relay;

    e->append.op = (struct store_op){.done = on_written};
    drain_hold(r);
    store_append(r->env.store, &e->append, true);
}

/* When the whole is full, a tenant that has few of them is still taken, so that some busy tenants
 * do not keep all others out. */
static bool has_room(struct stage *t, const struct event *ev, struct str tenant, bool sight)
{
    const struct staged_chat *c = staged_chat_of(t, ev);
    size_t most = sight ? STAGED_SIGHT_MAX : STAGED_CHAT_MAX, of_tenant = 0;

    if (t->n >= STAGED_MAX + STAGED_RESERVED || (c != NULL && c->n >= most))
        return false;
    if (t->n < STAGED_TENANT_MAX)
        return true;
    list_each (&t->all, it, nxt) {
        const struct staged *e = list_entry(it, struct staged, link);
        of_tenant += e->tenant != NULL && str_eq(str_of(e->tenant), tenant);
    }
    return of_tenant < (t->n < STAGED_MAX ? STAGED_TENANT_MAX : STAGED_TENANT_SURE);
}

/* Holds @a until the first write of the row is on disk. */
static void staged_cover(struct staged *e, struct accept *a)
{
    fifo_push(&e->waiting, a);
    accept_hold(a);
    e->n_covered++;
}

static struct staged_to recipient(const struct gate_instance *to)
{
    return (struct staged_to){to->tenant, to->instance, to->life};
}

/* Those who pass the gate, or may yet; @ret has room for GATE_CANDIDATES. */
static size_t recipients_of(const struct gate_verdict *verdicts, size_t n, struct staged_to *ret)
{
    size_t n_to = 0;

    for (size_t i = 0; i < n; i++)
        if (gate_may_yet(verdicts[i].reason))
            ret[n_to++] = recipient(verdicts[i].to);
    return n_to;
}

/* Writes a row of @ev for the recipients @to; @a (may be NULL) is held until it is on disk. */
static struct staged *add_row(struct relay *r, const struct event *ev, const struct staged_to *to,
                              size_t n_to, bool stops, struct accept *a)
{
    for (size_t i = 0; i < n_to; i++) /* their records are on disk when the event enters */
        instance_get(r, to[i].tenant, to[i].instance);
    struct staged *e = staged_new(r, ev, to, n_to, stops);
    staged_save(e);
    e->append = (struct store_append){.id = delivery_take_id(r),
                                      .box = STAGED_BOX,
                                      .row_kind = STORE_ROW_INBOUND,
                                      .flags = STORE_ROW_STAGED,
                                      .at_ms = clock_wall_ms(r->env.clock),
                                      .frame = buf_str(&e->body)};
    if (a != NULL)
        staged_cover(e, a);
    submit(e);
    return e;
}

/* After a start a row may have a recipient whose sight is not known any more: the others do not
 * wait for it.  The old row still names it on disk; after a crash deduplication keeps one copy. */
void staged_split_off(struct staged *e, const struct gate_instance *to)
{
    const struct staged_to own = recipient(to);
    size_t kept = 0;

    for (size_t i = 0; i < e->n_to; i++)
        if (!staged_has(&e->to[i], 1, to))
            e->to[kept++] = e->to[i];
    e->n_to = kept;
    if (has_room(e->relay->stage, &e->ev, to->tenant, true))
        add_row(e->relay, &e->ev, &own, 1, false, NULL)->noted = true;
}

bool stage_defer(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                 size_t n, struct accept *a, enum bh_err *ret_err)
{
    struct stage *t = r->stage;
    struct staged_chat *c = t->n > 0 ? staged_chat_of(t, ev) : NULL;
    BH_UNCLEARED struct staged_to to[GATE_CANDIDATES];
    size_t n_to = c != NULL ? recipients_of(verdicts, n, to) : 0;

    if (n_to == 0 ||
        (list_is_empty(&c->deferred) &&
         (c->n > 1 || list_first(&c->events, struct staged, in_chat)->state != STAGED_ENTERING)))
        return false;
    *ret_err = t->n_deferred < STAGED_MAX ? BH_OK : BH_BUSY;
    if (*ret_err != BH_OK)
        return true;
    struct deferred_event *p = xcalloc(1, sizeof *p);
    event_copy(ev, &p->arena, &p->ev);
    p->to = keep_recipients(&p->arena, to, n_to);
    p->n_to = n_to;
    p->accept = a;
    accept_hold(a);
    list_init(&p->link);
    list_append(&c->deferred, &p->link);
    t->n_deferred++;
    return true;
}

/* True when a row of the chat has this recipient, so that a later event must wait behind it. */
static bool waits_for(const struct staged_chat *c, const struct gate_instance *to)
{
    for (const struct list *it = c->events.next; it != &c->events; it = it->next) {
        const struct staged *e = list_entry(it, const struct staged, in_chat);
        if (staged_has(e->to, e->n_to, to))
            return true;
    }
    return false;
}

enum repeat { REPEAT_NONE, REPEAT_ALL, REPEAT_SOME };

/* Its platform may send an event again while rows of it wait.  Each recipient is then in a row, or
 * has its copy; REPEAT_SOME: not all of them. */
static enum repeat is_repeated(struct relay *r, struct staged_chat *c, const struct event *ev,
                               const struct gate_verdict *verdicts, size_t n, struct accept *a)
{
    size_t rows = 0, missing = 0;

    if (c == NULL || !stage_has(r, ev))
        return REPEAT_NONE;
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        list_each (&c->events, it, nxt) {
            const struct staged *e = list_entry(it, struct staged, in_chat);
            found |= is_same(e, ev) && staged_has(e->to, e->n_to, verdicts[i].to);
        }
        missing +=
            gate_may_yet(verdicts[i].reason) && !found && !accept_is_known(r, ev, &verdicts[i], 1);
    }
    if (missing > 0)
        return REPEAT_SOME;
    list_each (&c->events, it, nxt) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        if (!is_same(e, ev))
            continue;
        bool first = burst_find(&e->ev, ev->event_id) == 0;
        if (e->state == STAGED_WRITING && first && e->n_covered == e->waiting.n)
            staged_cover(e, a);
        else if (e->state != STAGED_ENTERING && (!first || e->state == STAGED_WRITING))
            burst_changed(e, a); /* the part may not be on disk yet */
        rows++;
    }
    return rows > 0 ? REPEAT_ALL : REPEAT_NONE;
}

/* Adds a row for each recipient whose sight is asked for; returns how many.  Without room its copy
 * is lost, and `why` has the reason: a refusal would hold back the chat of all others.  @noted:
 * another part of the event is told to `why`. */
static size_t stage_asked(struct relay *r, const struct event *ev,
                          const struct gate_verdict *verdicts, size_t n, bool noted,
                          struct accept *a)
{
    size_t rows = 0;

    for (size_t i = 0; i < n; i++) {
        const struct staged_to own = recipient(verdicts[i].to);
        if (verdicts[i].reason == GATE_NO_SIGHT_ASKED && has_room(r->stage, ev, own.tenant, true))
            add_row(r, ev, &own, 1, false, a)->noted = noted || rows++ > 0;
    }
    return rows;
}

bool stage_take(struct relay *r, const struct event *ev, struct gate_verdict *verdicts,
                size_t *n_verdicts, bool stops, struct accept *a, enum bh_err *ret_err)
{
    size_t n = *n_verdicts, n_to = 0, n_yes = 0, kept = 0, rows = 0;
    struct staged_chat *c = r->stage->n > 0 ? staged_chat_of(r->stage, ev) : NULL;
    struct wants w = wants_of(r, ev, verdicts, n);
    bool all = stops || w.files || w.context;
    bool burst = ev->burst_ms > 0 && !w.sight && burst_takes(ev);
    BH_UNCLEARED bool waits[GATE_CANDIDATES];
    BH_UNCLEARED struct staged_to to[GATE_CANDIDATES];

    *ret_err = BH_OK;
    if (w.tenant.p == NULL || (!all && !burst && !w.sight && c == NULL))
        return false;
    enum repeat again = is_repeated(r, c, ev, verdicts, n, a);
    r->n.duplicates += again == REPEAT_ALL;
    if (again == REPEAT_SOME)
        *ret_err = BH_BUSY; /* once it has entered, who came since gets it too */
    if (again != REPEAT_NONE)
        return true;
    if (accept_is_known(r, ev, verdicts, n))
        return false;         /* it has entered before: a duplicate waits for nothing */
    struct event plain = *ev; /* it is routed again when it enters */
    plain.route_key = ev->own_key;
    plain.own_key = STR_NULL;
    if (burst && c != NULL && burst_take(r, c, &plain, verdicts, n, a))
        return true;
    /* Without room for another row, a message that waits for nothing else is its own delivery. */
    burst =
        burst && !burst_was_given(r, ev, verdicts, n) && has_room(r->stage, ev, w.tenant, false);
    all |= burst;
    if (c != NULL)
        bursts_end(r, ev, verdicts, n);
    if (!all && !w.sight && c == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool yes = gate_is_yes(verdicts[i].reason);
        waits[i] = yes && (all || (c != NULL && waits_for(c, verdicts[i].to)));
        if (waits[i])
            to[n_to++] = recipient(verdicts[i].to);
        n_yes += yes;
    }
    bool room = n_to == 0 || has_room(r->stage, ev, to[0].tenant, false);
    if (!room && stops)
        return false; /* the interrupt was sent; its text is not worth a refusal */
    if (!room) {      /* who need not wait gets it now; its platform sends it again */
        r->n.refused_busy++;
        *ret_err = BH_BUSY;
    } else {
        if (n_to > 0) {
            struct staged *e = add_row(r, &plain, to, n_to, stops, a);
            e->noted = n_yes > n_to;
            e->joins = burst && !burst_is_full(&e->ev);
            e->last_ms = clock_now_ms(r->env.clock) + BURST_MAX_MS;
        }
        rows = n_to > 0 ? 1 : 0;
        rows += stage_asked(r, &plain, verdicts, n, n_yes > 0, a);
    }
    for (size_t i = 0; i < n; i++)
        if (!waits[i])
            verdicts[kept++] = verdicts[i];
    *n_verdicts = kept;
    return n_yes == n_to && (!room || rows > 0);
}

/* ---- starting ---- */

void stage_load(struct relay *r, const struct store_row *row)
{
    struct arena arena = ARENA_INIT;
    struct staged_row body;
    struct event ev;

    if (record_read(r->stage->rows, &staged_form, STR(""), row->frame, &body) &&
        event_load(body.event.value, &arena, &ev)) {
        struct staged *e = staged_new(r, &ev, body.to, body.n_to, false);
        e->append.id = row->id;
        e->state = STAGED_WAITING;
    } else {
        log_error(NULL, "dropped a waiting event that cannot be read: row=%llx",
                  (unsigned long long)row->id);
        acks_add(r, row->id);
    }
    record_done(&staged_form, &body);
    arena_done(&arena);
}

void stage_begin(struct relay *r)
{
    list_each (&r->stage->all, it, nxt)
        wait(list_entry(it, struct staged, link));
}

/* ---- people ---- */

void staged_drop(struct staged *e)
{
    e->dropped = true;
    if (e->state != STAGED_WRITING)
        timer_set(e->relay->env.clock, &e->timer, 0);
}

uint64_t stage_forget(struct relay *r, struct str platform, struct str user, bool only_count,
                      uint64_t *quoted)
{
    uint64_t n = 0;

    list_each (&r->stage->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        bool is_quoted = false;
        if (e->state == STAGED_ENTERING || e->dropped || !str_eq(e->ev.platform, platform))
            continue;
        if (!str_eq(e->ev.user_id, user) && !str_eq(e->ev.chat_id, user)) {
            for (size_t i = 0; i < e->ev.n_context; i++)
                is_quoted |= str_eq(e->ev.context[i].user_id, user);
            *quoted += is_quoted;
            continue;
        }
        n++;
        if (!only_count)
            staged_drop(e);
    }
    return n;
}
