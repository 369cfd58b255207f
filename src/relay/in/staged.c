/* staged.c - design.  (staged.h has the contract and the picture.)
 *
 * Each chat with staged rows has a queue.  A row enters when it is READY and no row before it has
 * one of its recipients, so every recipient gets a chat in its order of arrival, and none waits for
 * a row that is not for it.  An event that only waits for its predecessors is staged too.
 *
 * An event has one row for the recipients that wait for files, context or predecessors, and one for
 * each recipient whose sight is asked for.  A recipient that need not wait is in no row.
 *
 * An event that arrives while its only predecessor is entering is not written.  It is parked in
 * memory for some milliseconds, unanswered.  So a busy chat returns to one write per event.
 *
 * Requests for files carry the handle of the event and the file's index, so late and repeated
 * answers are harmless.
 *
 * Long because writing, waiting and entering are the states of one event. */
#include "relay/in/staged.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/handles.h"
#include "base/json.h"
#include "core/event.h"
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/burst.h"
#include "relay/in/commands.h"
#include "relay/in/edits.h"
#include "relay/in/judge.h"
#include "relay/mailbox/mailbox.h"
#include "relay/sleep/instance.h"
#include "store/record.h"

enum stage_state { STAGED_WRITING, STAGED_WAITING, STAGED_READY, STAGED_ENTERING };
enum { OUTLET_MS = 60000 }; /* how long an event waits for its platform to open */
enum want_state { WANT_NOTHING, WANT_ASK, WANT_ASKED, WANT_HERE, WANT_LOST };

struct want_file {
    uint8_t state;          /* enum want_state */
    struct relay_file here; /* in the arena of its event */
    char why[96];
};

struct accept_list {   /* accepts that are held */
    struct accept **a; /* owned, not what they point at */
    size_t n;
};

struct parked { /* arrived while its only predecessor was entering */
    struct list link;
    struct accept *accept; /* held */
    struct arena arena;
    struct event ev;      /* in the arena; routed */
    struct staged_to *to; /* in the arena; who passed the gate when it came */
    size_t n_to;
};

struct staged_chat {
    char *key;          /* owned; platform US bot US chat id */
    struct list parked; /* struct parked, owned, in order */
    struct list events; /* struct staged, by in_chat; never empty */
    size_t n;
};

struct staged {
    struct relay *relay; /* borrowed */
    struct list link;    /* stage->all */
    struct list in_chat;
    struct staged_chat *chat; /* shared */
    char *tenant;             /* owned; its quota pays for the files; NULL: no recipient */
    bool stranger;            /* the author is not linked to the recipient that pays */
    uint8_t state;            /* enum stage_state */
    uint8_t context;          /* enum want_state */
    uint8_t sight;            /* enum want_state: the platform's answer about who sees the chat */
    bool stops;               /* a /stop: it waits for time to pass, and goes before the others */
    bool noted;               /* another part of the event is told to `why` and counted */
    bool judged;              /* begin() has decided which files and context it waits for */
    bool dropped;             /* deleted by its author or an erasure: it never enters */
    bool in_doubt;            /* an append ended with BH_UNKNOWN: the row may exist */
    struct handle handle;
    struct arena arena;
    struct event ev;      /* in the arena; not routed */
    struct staged_to *to; /* in the arena; who passed the gate when it came */
    size_t n_to;
    struct want_file files[EVENT_MAX_MEDIA];
    struct timer timer; /* timeout of the wait, or retry of entering or writing */

    struct store_append append; /* of its row; with the store while STAGED_WRITING */
    struct buf body;            /* owned; what @append writes; empty once that is on disk */
    struct accept_list waiting; /* told when the write under way is on disk */

    /* A burst (burst.h).  While a rewrite is under way the row neither enters nor leaves. */
    bool joins;               /* more messages may join */
    bool rewriting;           /* @rewrite is with the store, or waits in @again */
    size_t n_safe;            /* parts on disk; an event without parts is one */
    size_t n_written;         /* parts in @rewrite */
    int64_t last_ms;          /* when it ends at the latest */
    struct accept_list later; /* told when the rewrite after this one is on disk */
    struct store_mark rewrite;
    struct timer again; /* retry of a rewrite in doubt */

    struct delivery_group group; /* its deliveries, while STAGED_ENTERING */
    bool entered;                /* every copy is on disk, acked or refused */
    enum bh_err err;             /* valid once @entered: the result */
};

struct stage {
    struct list all;        /* struct staged, by age */
    struct map chats;       /* struct staged_chat */
    struct handles handles; /* struct staged */
    size_t n, n_parked;
    struct buf scratch;
    struct record_reader *rows; /* owned */
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

static void save_body(struct buf *out, const struct event *ev, struct staged_to *to, size_t n)
{
    struct buf event = BUF_INIT;

    event_save(&event, ev);
    struct staged_row row = {.event.text = buf_str(&event), .to = to, .n_to = n};
    record_write(&staged_form, NULL, &row, NULL, out);
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

static struct staged_chat *chat_of(struct stage *t, const struct event *ev)
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
    struct staged_chat *c = chat_of(r->stage, ev);

    for (const struct list *it = c != NULL ? c->events.next : NULL; c != NULL && it != &c->events;
         it = it->next)
        if (is_same(list_entry(it, const struct staged, in_chat), ev))
            return true;
    return false;
}

static void join_chat(struct stage *t, struct staged *e)
{
    t->n++;
    struct staged_chat *c = chat_of(t, &e->ev);
    if (c == NULL) {
        c = xcalloc(1, sizeof *c);
        c->key = xstrdup(buf_z(&t->scratch));
        list_init(&c->events);
        list_init(&c->parked);
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

static void parked_free(struct parked *p)
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
    list_each (&c->parked, it, nxt)
        parked_free(list_entry(it, struct parked, link));
    map_del(&t->chats, str_of(c->key));
    free(c->key);
    free(c);
}

static struct staged *find(struct relay *r, struct handle id)
{
    return handles_find(&r->stage->handles, id);
}

static void waiting_add(struct accept_list *w, struct accept *a)
{
    if (a == NULL)
        return;
    w->a = xrealloc(w->a, (w->n + 1) * sizeof(struct accept *));
    w->a[w->n++] = a;
    accept_hold(a);
}

static void waiting_tell(struct relay *r, struct accept_list *w, enum bh_err err)
{
    for (size_t i = 0; i < w->n; i++)
        accept_release(r, w->a[i], err);
    w->n = 0;
}

static void waiting_move(struct accept_list *from, struct accept_list *to)
{
    if (from->n == 0)
        return;
    to->a = xrealloc(to->a, (to->n + from->n) * sizeof(struct accept *));
    memcpy(to->a + to->n, from->a, from->n * sizeof(struct accept *));
    to->n += from->n;
    from->n = 0;
}

static timer_cb on_timer, on_again;
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
    e->n_safe = e->ev.n_parts > 0 ? e->ev.n_parts : 1;
    list_init(&e->link);
    list_init(&e->in_chat);
    timer_init(&e->timer, on_timer);
    timer_init(&e->again, on_again);
    delivery_group_init(&e->group, group_over);
    list_append(&t->all, &e->link);
    e->handle = handles_add(&t->handles, e);
    join_chat(t, e);
    return e;
}

static void drop_wants(struct staged *e)
{
    struct outside *o = e->relay->env.outside;

    if (o->drop != NULL)
        o->drop(o, e->handle);
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
    free(e->waiting.a);
    free(e->later.a);
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

/* Lets the rows of the chat enter that are READY and behind none. */
static void advance(struct relay *r, struct str chat)
{
    struct staged_chat *c = map_get(&r->stage->chats, chat);

    if (c == NULL || r->draining)
        return;
    list_each (&c->events, it, nxt) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        if (e->state == STAGED_READY && !timer_is_set(&e->timer) && !e->rewriting && !is_behind(e))
            enter(e);
    }
}

static void leave(struct staged *e)
{
    struct relay *r = e->relay;
    char *chat = xstrdup(e->chat->key);
    struct list parked;

    list_init(&parked);
    list_each (&e->chat->parked, it, nxt)
        if (e->chat->n == 1) /* nothing of the chat waits any more */
            list_move(it, &parked);
    drop_wants(e);
    staged_free(e);
    advance(r, str_of(chat));
    list_each (&parked, at, after) {
        struct parked *p = list_entry(at, struct parked, link);
        accept_resume(r, &p->ev, p->to, p->n_to, p->accept);
        r->stage->n_parked--;
        parked_free(p);
    }
    free(chat);
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

static bool is_open(uint8_t want)
{
    return want == WANT_ASK || want == WANT_ASKED;
}

static void settle(struct staged *e)
{
    if (e->state != STAGED_WAITING || !e->judged || e->dropped)
        return;
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (is_open(e->files[i].state))
            return;
    if (is_open(e->context))
        return;
    timer_stop(e->relay->env.clock, &e->timer);
    e->state = STAGED_READY;
    advance(e->relay, str_of(e->chat->key));
}

static bool has_outlet(const struct staged *e)
{
    struct outside *o = e->relay->env.outside;

    return o->find(o, e->ev.platform, e->ev.bot) != NULL;
}

/* Requests the files and the context, if the bot is open. */
static void ask(struct staged *e)
{
    struct outside *o = e->relay->env.outside;

    if (e->state != STAGED_WAITING || !has_outlet(e) || e->relay->draining)
        return;
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (e->files[i].state == WANT_ASK) {
            e->files[i].state = WANT_ASKED;
            o->fetch(o, e->handle, i, &e->ev, str_of(e->tenant));
        }
    if (e->context == WANT_ASK) {
        e->context = WANT_ASKED;
        o->context(o, e->handle, &e->ev);
    }
}

static void submit(struct staged *e);
static void begin(struct staged *e);

static void on_timer(struct timer *timer)
{
    struct staged *e = container_of(timer, struct staged, timer);

    if (e->relay->draining)
        return; /* the next process continues from the row */
    if (e->dropped && e->state != STAGED_WRITING) {
        if (e->rewriting)
            return; /* rewritten() comes back */
        waiting_tell(e->relay, &e->later, BH_OK);
        acks_add(e->relay, e->append.id);
        leave(e);
    } else if (e->state == STAGED_WRITING) {
        submit(e);
    } else if (e->state == STAGED_READY) {
        advance(e->relay, str_of(e->chat->key));
    } else if (e->state == STAGED_WAITING && !e->judged && has_outlet(e)) {
        if (e->sight == WANT_ASKED)
            e->sight = WANT_LOST;
        begin(e);
    } else if (e->state == STAGED_WAITING && e->joins) { /* the bot is closed: wait for it */
        e->joins = false;
        timer_set(e->relay->env.clock, &e->timer, OUTLET_MS);
    } else if (e->state == STAGED_WAITING) { /* timeout */
        drop_wants(e);
        if (!e->judged)
            begin(e);
        for (size_t i = 0; i < e->ev.n_media; i++)
            if (is_open(e->files[i].state))
                e->files[i].state = WANT_LOST;
        if (is_open(e->context))
            e->context = WANT_LOST;
        settle(e);
    }
}

/* ---- what an event waits for ---- */

struct wants {
    bool files, context, sleeps;
    bool sight;        /* a recipient depends on what the platform was asked */
    struct str tenant; /* of the first recipient; absent: no recipient */
    bool stranger;     /* to whom the author is not linked */
};

static struct wants wants_of(struct relay *r, const struct event *ev,
                             const struct gate_verdict *verdicts, size_t n)
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

static void split_off(struct staged *e, const struct gate_instance *to);

/* Gives each recipient whose sight is asked for a row of its own, unless none of the others is to
 * get the event anyway.  Returns how many verdicts are left. */
static size_t split(struct staged *e, struct gate_verdict *verdicts, size_t n)
{
    size_t kept = 0, n_yes = 0;

    for (size_t i = 0; i < n; i++)
        n_yes += gate_is_yes(verdicts[i].reason);
    for (size_t i = 0; i < n; i++) {
        if (n_yes > 0 && verdicts[i].reason == GATE_NO_SIGHT_ASKED && e->sight != WANT_LOST)
            split_off(e, verdicts[i].to);
        else
            verdicts[kept++] = verdicts[i];
    }
    return kept;
}

/* Decides which files and context the event waits for, and requests them.  While the platform is
 * asked who sees the chat, this is undecided: relay_sight() or the timer begins again. */
static void begin(struct staged *e)
{
    struct relay *r = e->relay;
    struct outside *o = r->env.outside;
    struct gate_verdict verdicts[GATE_CANDIDATES];
    struct event routed = judge_route(r, &e->ev);
    size_t all = judge_ask(r, &routed, verdicts), n = 0;

    e->joins = false;                /* a burst ends here */
    for (size_t i = 0; i < all; i++) /* others are in other rows of the event, or in none */
        if (staged_has(e->to, e->n_to, verdicts[i].to))
            verdicts[n++] = verdicts[i];
    n = split(e, verdicts, n);
    struct wants w = wants_of(r, &routed, verdicts, n);

    if (w.sight && e->sight != WANT_LOST) {
        if (e->sight != WANT_ASKED)
            timer_set(r->env.clock, &e->timer, STAGED_SIGHT_MS);
        e->sight = WANT_ASKED;
        return;
    }
    e->judged = true;
    e->context = w.context ? WANT_ASK : WANT_NOTHING;
    for (size_t i = 0; i < e->ev.n_media; i++) {
        const struct event_media *m = &e->ev.media[i];
        e->files[i].state = WANT_NOTHING;
        if (m->ref.n > 0 && (m->url.n == 0 || w.sleeps))
            e->files[i].state = w.tenant.p != NULL && o->fetch != NULL ? WANT_ASK : WANT_LOST;
    }
    if (w.tenant.p != NULL && e->tenant == NULL)
        e->tenant = str_dup(w.tenant);
    e->stranger = w.stranger;
    timer_set(r->env.clock, &e->timer, o->wait_ms != NULL ? o->wait_ms(o) : 0);
    ask(e);
    settle(e);
}

/* The row is on disk.  Requests start after this turn, so that a node that has lost its lease
 * learns of that first.  After a start the bot may not be open yet. */
static void wait(struct staged *e)
{
    e->state = STAGED_WAITING;
    timer_set(e->relay->env.clock, &e->timer,
              e->stops        ? INTERRUPT_HOLD_MS
              : e->joins      ? e->ev.burst_ms
              : has_outlet(e) ? 0
                              : OUTLET_MS);
}

/* ---- a burst grows ---- */

static store_done_cb on_rewritten;

/* Writes the row again, as the event is now. */
static void rewrite(struct staged *e)
{
    struct relay *r = e->relay;

    buf_reset(&e->body);
    save_body(&e->body, &e->ev, e->to, e->n_to);
    waiting_move(&e->later, &e->waiting);
    e->rewriting = true;
    e->n_written = e->ev.n_parts > 0 ? e->ev.n_parts : 1;
    e->rewrite = (struct store_mark){.op = {.done = on_rewritten},
                                     .id = e->append.id,
                                     .frame = buf_str(&e->body)};
    drain_hold(r);
    store_mark(r->env.store, &e->rewrite);
}

static void on_again(struct timer *timer)
{
    rewrite(container_of(timer, struct staged, again));
}

/* The event has changed: @a is held until that is on disk. */
static void want_rewrite(struct staged *e, struct accept *a)
{
    waiting_add(&e->later, a);
    if (e->state != STAGED_WRITING && !e->rewriting)
        rewrite(e);
}

/* Goes on with what waited for the rewrite. */
static void rewritten(struct staged *e)
{
    e->rewriting = false;
    if (e->dropped) {
        timer_set(e->relay->env.clock, &e->timer, 0);
    } else if (e->later.n > 0) {
        rewrite(e);
    } else if (e->state == STAGED_READY) {
        advance(e->relay, str_of(e->chat->key));
    }
}

/* Parts that the store refused leave the burst: their platform sends them again.  A part must not
 * enter before it is on disk.  After a crash the burst would enter without it under the same
 * bufferId, and its repetition would be another delivery. */
static void on_rewritten(struct store_op *op, enum bh_err err)
{
    struct staged *e = container_of(op, struct staged, rewrite.op);
    struct relay *r = e->relay;

    drain_release(r);
    e->in_doubt = err == BH_UNKNOWN || (e->in_doubt && err != BH_OK);
    if (e->in_doubt && !r->draining) {
        timer_set(r->env.clock, &e->again, RETRY_MS);
        return;
    }
    if (err == BH_OK) {
        e->n_safe = e->n_written;
        waiting_tell(r, &e->waiting, BH_OK);
    } else {
        r->n.refused_store++;
        waiting_tell(r, &e->waiting, BH_UNAVAILABLE);
        waiting_tell(r, &e->later, BH_UNAVAILABLE);
        burst_cut(&e->ev, e->n_safe);
    }
    rewritten(e);
}

/* Ends the open bursts of the chat that have a recipient in @verdicts. */
static void end_bursts(struct staged_chat *c, const struct gate_verdict *verdicts, size_t n)
{
    list_each (&c->events, it, nxt) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        bool shared = false;
        for (size_t i = 0; e->joins && i < n && !shared; i++)
            shared = gate_may_yet(verdicts[i].reason) && staged_has(e->to, e->n_to, verdicts[i].to);
        if (!shared)
            continue;
        e->joins = false;
        if (e->state == STAGED_WAITING && has_outlet(e))
            begin(e); /* may enter now, but stays in the list until that is on disk */
        else if (e->state == STAGED_WAITING)
            timer_set(e->relay->env.clock, &e->timer, OUTLET_MS);
    }
}

void stage_end_bursts(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                      size_t n)
{
    struct staged_chat *c = chat_of(r->stage, ev);

    if (c != NULL)
        end_bursts(c, verdicts, n);
}

/* True when a recipient has the event already, and others have not. */
static bool someone_has(struct relay *r, const struct event *ev,
                        const struct gate_verdict *verdicts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (gate_is_yes(verdicts[i].reason) && accept_is_known(r, ev, &verdicts[i], 1))
            return true;
    return false;
}

static bool has_recipients(const struct staged *e, const struct gate_verdict *verdicts, size_t n)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        if (gate_is_yes(verdicts[i].reason)) {
            if (!staged_has(e->to, e->n_to, verdicts[i].to))
                return false;
            found++;
        }
    return found == e->n_to;
}

/* Joins @ev to the open burst that it belongs to.  False: there is none. */
static bool join_burst(struct relay *r, struct staged_chat *c, const struct event *ev,
                       const struct gate_verdict *verdicts, size_t n, struct accept *a)
{
    struct clock *clock = r->env.clock;

    list_each (&c->events, it, nxt) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        int64_t left_ms = e->last_ms - clock_now_ms(clock);
        if (!e->joins || e->dropped || left_ms <= 0 || !has_recipients(e, verdicts, n) ||
            !burst_fits(&e->ev, ev) || someone_has(r, ev, verdicts, n))
            continue;
        burst_join(&e->ev, &e->arena, ev);
        r->n.joined++;
        want_rewrite(e, a);
        if (burst_is_full(&e->ev))
            left_ms = 0;
        if (e->state == STAGED_WAITING)
            timer_set(clock, &e->timer, left_ms < e->ev.burst_ms ? left_ms : e->ev.burst_ms);
        return true;
    }
    return false;
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
        waiting_tell(r, &e->waiting, BH_UNAVAILABLE);
        waiting_tell(r, &e->later, BH_UNAVAILABLE);
        leave(e);
        return;
    }
    e->in_doubt = false;
    buf_done(&e->body);
    e->body = BUF_INIT;
    waiting_tell(r, &e->waiting, BH_OK);
    if (e->dropped) {
        waiting_tell(r, &e->later, BH_OK);
        acks_add(r, e->append.id);
        leave(e);
        return;
    }
    wait(e);
    if (e->later.n > 0)
        rewrite(e);
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
    const struct staged_chat *c = chat_of(t, ev);
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
    e->tenant = str_dup(to[0].tenant);
    save_body(&e->body, &e->ev, e->to, e->n_to);
    e->append = (struct store_append){.id = delivery_take_id(r),
                                      .box = STAGED_BOX,
                                      .row_kind = STORE_ROW_INBOUND,
                                      .flags = STORE_ROW_STAGED,
                                      .at_ms = clock_wall_ms(r->env.clock),
                                      .frame = buf_str(&e->body)};
    waiting_add(&e->waiting, a);
    submit(e);
    return e;
}

/* After a start a row may have a recipient whose sight is not known any more: the others do not
 * wait for it.  The old row still names it on disk; after a crash deduplication keeps one copy. */
static void split_off(struct staged *e, const struct gate_instance *to)
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

bool stage_park(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                size_t n, struct accept *a, enum bh_err *ret_err)
{
    struct stage *t = r->stage;
    struct staged_chat *c = t->n > 0 ? chat_of(t, ev) : NULL;
    struct staged_to to[GATE_CANDIDATES];
    size_t n_to = c != NULL ? recipients_of(verdicts, n, to) : 0;

    if (n_to == 0 ||
        (list_is_empty(&c->parked) &&
         (c->n > 1 || list_first(&c->events, struct staged, in_chat)->state != STAGED_ENTERING)))
        return false;
    *ret_err = t->n_parked < STAGED_MAX ? BH_OK : BH_BUSY;
    if (*ret_err != BH_OK)
        return true;
    struct parked *p = xcalloc(1, sizeof *p);
    event_copy(ev, &p->arena, &p->ev);
    p->to = keep_recipients(&p->arena, to, n_to);
    p->n_to = n_to;
    p->accept = a;
    accept_hold(a);
    list_init(&p->link);
    list_append(&c->parked, &p->link);
    t->n_parked++;
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
        if (e->state == STAGED_WRITING && first)
            waiting_add(&e->waiting, a);
        else if (e->state != STAGED_ENTERING && !first)
            want_rewrite(e, a); /* the part may not be on disk yet */
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
    struct staged_chat *c = chat_of(r->stage, ev);
    struct wants w = wants_of(r, ev, verdicts, n);
    bool all = stops || w.files || w.context, waits[GATE_CANDIDATES];
    bool burst = ev->burst_ms > 0 && !w.sight && burst_takes(ev);
    struct staged_to to[GATE_CANDIDATES];

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
    if (burst && c != NULL && join_burst(r, c, &plain, verdicts, n, a))
        return true;
    /* Without room for another row, a message that waits for nothing else is its own delivery. */
    burst = burst && !someone_has(r, ev, verdicts, n) && has_room(r->stage, ev, w.tenant, false);
    all |= burst;
    if (c != NULL)
        end_bursts(c, verdicts, n);
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

/* ---- answers ---- */

static struct staged *asked(struct relay *r, struct handle id, size_t file)
{
    struct staged *e = find(r, id);

    return e != NULL && file < e->ev.n_media && e->files[file].state == WANT_ASKED ? e : NULL;
}

const struct event_media *relay_wanted_file(struct relay *r, struct handle id, size_t file,
                                            struct str *ret_tenant, struct str *ret_stranger)
{
    struct staged *e = asked(r, id, file);

    if (e == NULL)
        return NULL;
    struct buf *who = &r->stage->scratch;
    buf_reset(who);
    buf_printf(who, "%.*s\x1f", STR_FMT(e->ev.platform));
    buf_add_str(who, str_is_empty(e->ev.user_id) ? e->ev.chat_id : e->ev.user_id);
    *ret_tenant = str_of(e->tenant);
    *ret_stranger = e->stranger ? buf_str(who) : STR_NULL;
    return &e->ev.media[file];
}

void relay_file_here(struct relay *r, struct handle id, size_t file, const struct relay_file *f)
{
    struct staged *e = asked(r, id, file);

    if (e == NULL)
        return;
    e->files[file].state = WANT_HERE;
    e->files[file].here = (struct relay_file){.id = arena_str(&e->arena, f->id),
                                              .type = arena_str(&e->arena, f->type),
                                              .size = f->size};
    settle(e);
}

void relay_file_lost(struct relay *r, struct handle id, size_t file, const char *why)
{
    struct staged *e = asked(r, id, file);

    if (e == NULL)
        return;
    e->files[file].state = WANT_LOST;
    snprintf(e->files[file].why, sizeof e->files[file].why, "%s", why);
    settle(e);
}

void relay_context(struct relay *r, struct handle id, const struct event_said *said, size_t n,
                   bool failed)
{
    struct staged *e = find(r, id);

    if (e == NULL || e->context != WANT_ASKED)
        return;
    n = n < EVENT_MAX_CONTEXT ? n : EVENT_MAX_CONTEXT;
    struct event_said *kept = arena_alloc(&e->arena, (n + 1) * sizeof *kept);
    for (size_t i = 0; i < n; i++)
        kept[i] = (struct event_said){.text = arena_str(&e->arena, said[i].text),
                                      .message_id = arena_str(&e->arena, said[i].message_id),
                                      .user_id = arena_str(&e->arena, said[i].user_id),
                                      .user_name = arena_str(&e->arena, said[i].user_name)};
    e->ev.context = kept;
    e->ev.n_context = n;
    e->context = failed ? WANT_LOST : WANT_HERE;
    settle(e);
}

/* ---- platforms come and go ---- */

static bool is_of(const struct staged *e, struct str platform, struct str bot)
{
    return str_eq(e->ev.platform, platform) && str_eq(e->ev.bot, bot);
}

void relay_bot_opened(struct relay *r, struct str platform, struct str bot)
{
    list_each (&r->stage->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        if (e->state != STAGED_WAITING || !is_of(e, platform, bot))
            continue;
        if (e->judged)
            ask(e);
        else
            begin(e);
    }
}

void relay_sight(struct relay *r, struct str platform, struct str bot, struct str guild)
{
    list_each (&r->stage->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        if (e->state == STAGED_WAITING && e->sight == WANT_ASKED && !e->judged && !e->dropped &&
            is_of(e, platform, bot) && str_eq(e->ev.scope_id, guild))
            begin(e);
    }
}

void relay_bot_closed(struct relay *r, struct str platform, struct str bot)
{
    list_each (&r->stage->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        if (!is_of(e, platform, bot))
            continue;
        drop_wants(e);
        for (size_t i = 0; i < e->ev.n_media; i++)
            if (e->files[i].state == WANT_ASKED)
                e->files[i].state = WANT_ASK;
        if (e->context == WANT_ASKED)
            e->context = WANT_ASK;
    }
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

/* It goes when the turn ends, or when its row is on disk. */
static void drop(struct staged *e)
{
    e->dropped = true;
    if (e->state != STAGED_WRITING)
        timer_set(e->relay->env.clock, &e->timer, 0);
}

/* Deletes one message of a burst. */
static void drop_part(struct staged *e, int part, const struct event *ev, struct accept *a)
{
    if (!burst_edit(&e->ev, &e->arena, part, ev)) {
        drop(e);
        return;
    }
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (e->ev.media[i].ref.n == 0 && e->ev.media[i].url.n == 0)
            e->files[i].state = WANT_NOTHING;
    want_rewrite(e, a);
}

static bool is_burst(const struct staged *e)
{
    return e->joins || e->ev.n_parts > 0;
}

static void edit_row(struct staged *e, int part, const struct event *ev, struct accept *a)
{
    struct relay *r = e->relay;
    struct buf body = BUF_INIT;

    if (ev->edit.deletes) {
        r->n.retracted++;
        if (is_burst(e))
            drop_part(e, part, ev, a);
        else
            drop(e);
        return;
    }
    r->n.revised++;
    if (is_burst(e)) {
        burst_edit(&e->ev, &e->arena, part, ev);
        want_rewrite(e, a);
        return;
    }
    e->ev.text = arena_str(&e->arena, ev->edit.text);
    save_body(&body, &e->ev, e->to, e->n_to);
    row_rewrite(r, e->append.id, buf_str(&body), a); /* the store has the append before it */
    buf_done(&body);
}

bool stage_edit(struct relay *r, const struct event *ev, struct gate_verdict *verdicts, size_t *n,
                struct accept *a)
{
    struct buf room = BUF_INIT;
    struct event original = edit_original(r, ev, &room);
    struct staged_chat *c = chat_of(r->stage, &original);
    bool found = false;

    for (struct list *it = c != NULL ? c->events.next : NULL; c != NULL && it != &c->events;
         it = it->next) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        size_t kept = 0;
        int part = burst_find(&e->ev, original.event_id);
        if (part < 0 || e->state == STAGED_ENTERING || e->dropped)
            continue;
        edit_row(e, part, ev, a);
        for (size_t i = 0; i < *n; i++)
            if (!staged_has(e->to, e->n_to, verdicts[i].to))
                verdicts[kept++] = verdicts[i];
        *n = kept;
        found = true;
    }
    buf_done(&room);
    return found;
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
            drop(e);
    }
    return n;
}
