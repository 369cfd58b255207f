/* admin.c - design.  (relay.h has the contract.)
 *
 * Status comes from memory.  `show` and the search for a person's mail read rows from the store,
 * because mailboxes hold no bytes. */
#include <stdlib.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/inside.h"
#include "relay/in/staged.h"
#include "relay/mailbox/mailbox.h"
#include "relay/out/chat_records.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

/* ---- status ---- */

const struct relay_counters *relay_counters(const struct relay *r)
{
    return &r->n;
}

const char *relay_state_name(enum relay_state s)
{
    static const char *const names[] = {[RELAY_NONE] = "none",
                                        [RELAY_NEVER] = "never",
                                        [RELAY_ASLEEP] = "asleep",
                                        [RELAY_AWAY] = "away",
                                        [RELAY_LIVE] = "live"};

    return names[s];
}

enum relay_state relay_state(struct relay *r, struct str tenant, struct str instance)
{
    const struct instance *i = instance_find(r, tenant, instance);

    return i != NULL ? instance_state(i) : RELAY_NEVER;
}

static size_t count_sessions(const struct instance *i)
{
    size_t n = 0;

    for (const struct list *it = i->sessions.next; it != &i->sessions; it = it->next)
        n++;
    return n;
}

static int64_t oldest_ms(const struct instance *i)
{
    for (uint32_t at = 0; at < i->mb.n; at++)
        if ((mailbox_at(&i->mb, at)->flags & SLOT_GONE) == 0)
            return (int64_t)mailbox_at(&i->mb, at)->at_s * 1000;
    return 0;
}

static void view(struct instance *i, struct instance_view *ret)
{
    const struct facts *facts = i->relay->env.facts;
    const struct gateway *gw = facts_newest_gateway(facts, instance_tenant(i), instance_id(i));

    *ret = (struct instance_view){
        .tenant = instance_tenant(i),
        .instance = instance_id(i),
        .state = relay_state_name(instance_state(i)),
        .sessions = count_sessions(i),
        .entries = mailbox_entries(&i->mb),
        .bytes = mailbox_bytes(&i->mb),
        .unacked = i->receiver != NULL ? flight_rows(i->receiver->flight) : 0,
        .parked = i->mb.parked,
        .oldest_ms = oldest_ms(i),
        .last_inbound_ms = i->last_inbound_ms,
        .last_outbound_ms = i->last_outbound_ms,
        .asleep_since_ms = i->sleep.asleep ? i->sleep.since_ms : 0,
        .last_poke_ms = wake_of(i)->last_wall_ms,
        .wake_url = facts_wake_url(facts, instance_tenant(i), instance_id(i)) != NULL,
        .last_poke_problem = wake_of(i)->problem,
        .display_name = gw != NULL ? gw->display_name : NULL,
    };
    const struct gate_instance *in =
        grant_instance(facts, (struct grant_who){instance_tenant(i), instance_id(i)});
    ret->allowance = in != NULL ? in->allowance : NULL;
    ret->gone = in != NULL && in->gone;
}

bool relay_next_instance(struct relay *r, uint32_t *pos, struct instance_view *ret)
{
    struct instance *i = instance_after(r, *pos);

    if (i == NULL)
        return false;
    *pos = i->box;
    view(i, ret);
    return true;
}

/* ---- the tally of all instances ----
 *
 *      RESTING --TALLY_MS, or TALLY_IDLE_MS--> COUNTING: AT_ONCE instances per turn --> RESTING
 *
 * A hundred thousand instances take tens of milliseconds: too long for one turn.  Few of them are
 * counted at once, and the numbers are those of the moment. */

enum { TALLY_IDLE_MS = 60000, TALLY_ASKED_MS = 300000 };

struct tally_rounds {
    struct relay *relay;          /* borrowed */
    struct timer timer;           /* the next round, or the next turn of this one */
    struct relay_tally now, last; /* being counted; of the last round */
    uint32_t at;                  /* the mailbox number that was counted last; 0: resting */
    int64_t asked_ms;             /* monotonic: somebody wanted the numbers */
};

static void tally_add(struct relay_tally *t, const struct instance *i)
{
    int64_t oldest = oldest_ms(i);

    t->in_state[instance_state(i)]++;
    t->live +=
        facts_newest_gateway(i->relay->env.facts, instance_tenant(i), instance_id(i)) != NULL;
    t->sessions += count_sessions(i);
    t->entries += mailbox_entries(&i->mb);
    t->bytes += mailbox_bytes(&i->mb);
    t->unacked += i->receiver != NULL ? flight_rows(i->receiver->flight) : 0;
    t->parked += i->mb.parked;
    if (oldest != 0 && (t->oldest_ms == 0 || oldest < t->oldest_ms))
        t->oldest_ms = oldest;
}

static void count_all(struct relay *r, struct relay_tally *ret)
{
    *ret = (struct relay_tally){0};
    list_each (instances_by_age(r), it, nxt)
        tally_add(ret, list_entry(it, struct instance, link));
}

static void on_tally(struct timer *timer)
{
    struct tally_rounds *t = container_of(timer, struct tally_rounds, timer);
    struct clock *clock = t->relay->env.clock;
    struct instance *i = NULL;

    if (t->at == 0)
        t->now = (struct relay_tally){0};
    for (int n = 0; n < RELAY_TALLY_AT_ONCE && (i = instance_after(t->relay, t->at)) != NULL; n++) {
        tally_add(&t->now, i);
        t->at = i->box;
    }
    if (i != NULL) {
        timer_set(clock, timer, 0);
        return;
    }
    t->last = t->now;
    t->at = 0;
    bool wanted = clock_now_ms(clock) - t->asked_ms < TALLY_ASKED_MS;
    timer_set(clock, timer, wanted ? RELAY_TALLY_MS : TALLY_IDLE_MS);
}

struct tally_rounds *tally_new(struct relay *r)
{
    struct tally_rounds *t = xcalloc(1, sizeof *t);

    t->relay = r;
    timer_init(&t->timer, on_tally);
    return t;
}

void tally_begin(struct tally_rounds *t)
{
    if (instances_count(t->relay) <= RELAY_TALLY_AT_ONCE || timer_is_set(&t->timer))
        return;
    count_all(t->relay, &t->last);
    timer_set(t->relay->env.clock, &t->timer, RELAY_TALLY_MS);
}

void tally_free(struct tally_rounds *t)
{
    if (t != NULL)
        timer_stop(t->relay->env.clock, &t->timer);
    free(t);
}

static void last_tally(struct relay *r, struct relay_tally *ret)
{
    struct tally_rounds *t = r->tally;

    tally_begin(t); /* the server grew since its start */
    bool rested = clock_now_ms(r->env.clock) - t->asked_ms >= TALLY_ASKED_MS;
    t->asked_ms = clock_now_ms(r->env.clock);
    if (rested && t->at == 0)
        timer_set(r->env.clock, &t->timer, 0);
    *ret = t->last;
}

void relay_tally(struct relay *r, struct relay_tally *ret)
{
    size_t live = facts_live_instances(r->env.facts);

    if (instances_count(r) <= RELAY_TALLY_AT_ONCE)
        count_all(r, ret);
    else
        last_tally(r, ret);
    if (live > ret->live) /* the rest have no mailbox yet */
        ret->in_state[RELAY_NEVER] += live - ret->live;
    ret->live = live;
}

bool relay_instance(struct relay *r, struct str tenant, struct str instance,
                    struct instance_view *ret)
{
    struct instance *i = instance_find(r, tenant, instance);

    if (i != NULL)
        view(i, ret);
    return i != NULL;
}

/* ---- the mail of one person ----
 *
 * relay_forget_mail() settles the waiting deliveries that a person wrote.
 *
 *      next instance with mail --> read a page of its rows --> settle the rows of this person
 *             ^------------------- last page ----------'  ^--- next page ---'
 *
 * No index by person exists, because this happens a few times a year.  Every waiting row is read, a
 * page at a time; a turn skips at most TURN_INSTANCES instances without mail.  A row whose context
 * quotes the person is another author's message: it is counted and stays unchanged. */

enum { PAGE_ROWS = 256, PAGE_BYTES = 512 << 10, TURN_INSTANCES = 4096 };

struct forgetting {
    struct store_fetch op;
    struct pending pending;
    struct timer turn;     /* continues in the next turn, or reports the end */
    struct relay *relay;   /* borrowed */
    struct instance *inst; /* borrowed: instances live as long as the relay; NULL: all are done */
    uint64_t after;        /* cursor: rows of @inst up to this id are done */
    struct relay_forgot got;
    bool only_count;
    relay_forgot_cb *done;
    void *ctx;
    struct json_parser *parser; /* owned */
    struct buf platform, user;
    uint64_t ids[PAGE_ROWS];
};

static void forgetting_free(struct pending *p)
{
    struct forgetting *w = container_of(p, struct forgetting, pending);

    timer_stop(w->relay->env.clock, &w->turn);
    json_parser_free(w->parser);
    buf_done(&w->platform);
    buf_done(&w->user);
    free(w);
}

/* True when the person wrote @frame, or when the id of its chat is the person's id. */
static bool names(struct forgetting *w, struct str frame)
{
    struct str user = buf_str(&w->user);
    struct json doc;

    if (!json_parse(w->parser, frame, &doc))
        return false;
    struct json event = json_get(doc, "event"), source = json_get(event, "source");
    if (!str_eq(event_platform_meant(json_str(source, "platform")), buf_str(&w->platform)))
        return false;
    if (str_eq(json_str(source, "user_id"), user) || str_eq(json_str(source, "chat_id"), user))
        return true;
    for (struct json_iter it = {0}; json_next(json_get(event, "context"), &it);)
        if (str_eq(json_str(json_get(it.value, "source"), "user_id"), user)) {
            w->got.quoted++;
            break;
        }
    return false;
}

static void read_on(struct forgetting *w);

static void on_turn(struct timer *t)
{
    struct forgetting *w = container_of(t, struct forgetting, turn);

    if (w->inst != NULL) {
        read_on(w);
        return;
    }
    w->done(w->ctx, BH_OK, &w->got);
    pending_end(&w->pending);
}

static void on_page(struct store_op *op, enum bh_err err)
{
    struct forgetting *w = container_of(op, struct forgetting, op.op);

    for (size_t k = 0; err == BH_OK && k < w->op.n_rows; k++) {
        struct slot *slot = mailbox_find(&w->inst->mb, w->op.rows[k].id);
        if (slot == NULL || !names(w, w->op.rows[k].frame))
            continue;
        w->got.n++;
        if (!w->only_count)
            delivery_settle(w->inst, slot);
    }
    if (err != BH_OK) {
        w->done(w->ctx, err, &w->got);
        pending_end(&w->pending);
        return;
    }
    w->after = w->op.n_used != 0 ? w->ids[w->op.n_used - 1] : UINT64_MAX;
    mailbox_tidy(&w->inst->mb);
    store_fetch_free(&w->op);
    read_on(w);
}

/* False: this instance has no more rows. */
static bool read_page(struct forgetting *w)
{
    struct mailbox *mb = &w->inst->mb;
    bool on_disk = true;
    size_t n = 0;

    for (uint32_t at = mailbox_seek(mb, w->after); at < mb->n && n < PAGE_ROWS; at++) {
        const struct slot *slot = mailbox_at(mb, at);
        if ((slot->flags & SLOT_GONE) != 0)
            continue;
        w->ids[n++] = slot->id;
        on_disk = on_disk && (slot->flags & SLOT_DURABLE) != 0;
    }
    if (n == 0)
        return false;
    w->op = (struct store_fetch){.op = {.done = on_page},
                                 .ids = w->ids,
                                 .n = n,
                                 .max_bytes = PAGE_BYTES,
                                 .loose = on_disk}; /* else the read waits for pending writes */
    store_fetch(w->relay->env.store, &w->op);
    return true;
}

static void read_on(struct forgetting *w)
{
    for (int k = 0; w->inst != NULL && k < TURN_INSTANCES; k++) {
        if (w->after != UINT64_MAX && read_page(w))
            return;
        w->inst = instance_after(w->relay, w->inst->box);
        w->after = 0;
    }
    timer_set(w->relay->env.clock, &w->turn, 0);
}

void relay_forget_mail(struct relay *r, struct str platform, struct str user, bool only_count,
                       relay_forgot_cb *done, void *ctx)
{
    struct forgetting *w = xcalloc(1, sizeof *w);

    w->relay = r;
    w->only_count = only_count;
    w->done = done;
    w->ctx = ctx;
    w->parser = json_parser_new();
    timer_init(&w->turn, on_turn);
    buf_add_str(&w->platform, platform);
    buf_add_str(&w->user, user);
    w->inst = instance_after(r, 0);
    w->got.n = stage_forget(r, platform, user, only_count, &w->got.quoted);
    pending_add(r, &w->pending, forgetting_free);
    read_on(w);
}

/* ---- bellhop mailbox, bellhop chats ---- */

enum { SHOW_MAX_ROWS = 10000, SHOW_MAX_BYTES = 8 << 20 };
enum { PULL_MARKS = 2 }; /* above 1: an agent may have seen the delivery before */

struct show {
    struct store_fetch op;
    struct pending pending;
    struct relay *relay;   /* borrowed */
    struct instance *inst; /* borrowed; NULL: unknown instance */
    mailbox_line_cb *each;
    accepted_cb *done;
    void *ctx;
    uint64_t ids[];
};

struct roster { /* a pending read of one instance's chats */
    struct store_scan op;
    struct pending pending;
    struct relay *relay;   /* borrowed */
    struct instance *inst; /* borrowed; NULL: unknown instance */
    struct buf prefix;     /* owned; the key prefix that @op reads */
    struct buf after;      /* owned; the key that @op reads on from */
    chat_line_cb *each;
    accepted_cb *done;
    void *ctx;
};

static void show_free(struct pending *p)
{
    free(container_of(p, struct show, pending));
}

static void roster_free(struct pending *p)
{
    struct roster *o = container_of(p, struct roster, pending);

    buf_done(&o->prefix);
    buf_done(&o->after);
    free(o);
}

static void on_shown(struct store_op *op, enum bh_err err)
{
    struct show *w = container_of(op, struct show, op.op);
    struct instance *i = w->inst;

    for (size_t k = 0; err == BH_OK && k < w->op.n_rows; k++) {
        const struct store_row *row = &w->op.rows[k];
        const struct slot *slot = mailbox_find(&i->mb, row->id);
        if (slot == NULL)
            continue; /* settled while we read */
        struct mailbox_line line = {.id = row->id,
                                    .at_ms = row->at_ms,
                                    .attempts = slot->attempts,
                                    .sent = slot_waits(slot) && i->receiver != NULL &&
                                            session_has_sent(i->receiver, row->id),
                                    .frame = row->frame};
        if ((slot->flags & SLOT_PARKED) != 0)
            line.parked = row->parked.p != NULL ? row->parked : STR("parked");
        w->each(w->ctx, &line);
    }
    if (err == BH_OK)
        store_fetch_free(&w->op);
    w->done(w->ctx, err == BH_OK && w->inst == NULL ? BH_NOT_FOUND : err);
    pending_end(&w->pending);
}

static struct show *show_new(struct relay *r, struct instance *i, size_t most,
                             mailbox_line_cb *each, accepted_cb *done, void *ctx)
{
    size_t entries = i != NULL ? mailbox_entries(&i->mb) : 0;
    struct show *w = xcalloc(1, sizeof *w + (most < entries ? most : entries) * sizeof w->ids[0]);

    w->relay = r;
    w->inst = i;
    w->each = each;
    w->done = done;
    w->ctx = ctx;
    return w;
}

/* Reads the rows of w->ids.  The read waits for all writes that were submitted before it. */
static void show_read(struct show *w, size_t n)
{
    w->op = (struct store_fetch){.op = {.done = on_shown},
                                 .ids = w->ids,
                                 .n = n,
                                 .max_bytes = SHOW_MAX_BYTES};
    pending_add(w->relay, &w->pending, show_free);
    store_fetch(w->relay->env.store, &w->op);
}

void relay_mailbox_show(struct relay *r, struct str tenant, struct str instance, size_t limit,
                        mailbox_line_cb *each, accepted_cb *done, void *ctx)
{
    struct instance *i = instance_find(r, tenant, instance);
    size_t n = 0;

    if (limit == 0 || limit > SHOW_MAX_ROWS)
        limit = SHOW_MAX_ROWS;
    struct show *w = show_new(r, i, limit, each, done, ctx);
    for (uint32_t at = 0; i != NULL && at < i->mb.n && n < limit; at++)
        if ((mailbox_at(&i->mb, at)->flags & SLOT_GONE) == 0)
            w->ids[n++] = mailbox_at(&i->mb, at)->id;
    show_read(w, n);
}

/* ---- an agent that pulls: in/inside.h ---- */

/* The agent is about to read the delivery: notes on disk that it may have seen it. */
static void note_pulled(struct session *s, struct slot *slot)
{
    struct instance *i = s->inst;

    if (slot->attempts < PULL_MARKS) {
        slot->attempts++;
        delivery_mark(i, slot, STR_NULL);
    }
    if (i->has_parcels)
        parcel_tell(i, slot, PARCEL_SENT, STR_NULL);
    bool again = slot->attempts > 1;
    i->relay->n.delivered++;
    i->relay->n.redelivered += again;
    journal_step(i->relay->journal, clock_wall_ms(i->relay->env.clock),
                 again ? JOURNAL_RESENT : JOURNAL_SENT, slot->id, slot->attempts, STR_NULL);
    delivery_sent(i, slot);
    if (slot->id > s->sent_id)
        s->sent_id = slot->id;
}

void session_pull(struct session *s, uint64_t after, size_t limit, bool peek, mailbox_line_cb *each,
                  accepted_cb *done, void *ctx)
{
    struct instance *i = s->inst;
    struct show *w = show_new(i->relay, i, limit, each, done, ctx);
    size_t n = 0, bytes = 0;

    for (uint32_t at = mailbox_seek(&i->mb, after); at < i->mb.n && n < limit; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if ((slot->flags & SLOT_DURABLE) == 0)
            break; /* it may still be refused, and nothing passes it */
        if (!slot_waits(slot))
            continue;
        bytes += slot->units * SLOT_UNIT;
        if (n > 0 && bytes > PULL_BYTES)
            break;
        if (!peek)
            note_pulled(s, slot);
        w->ids[n++] = slot->id;
    }
    if (n > 0 && !peek)
        activity_note(i, &i->last_inbound_ms);
    show_read(w, n);
}

bool relay_mailbox_done(struct relay *r, struct str tenant, struct str instance, uint64_t id)
{
    struct instance *i = instance_find(r, tenant, instance);
    struct slot *slot = i != NULL ? mailbox_find(&i->mb, id) : NULL;

    if (slot == NULL)
        return false;
    journal_step(r->journal, clock_wall_ms(r->env.clock), JOURNAL_ACKED, id, slot->attempts,
                 STR_NULL);
    r->taking = true;
    delivery_settle(i, slot);
    r->taking = false;
    mailbox_tidy(&i->mb);
    r->n.acked++;
    return true;
}

/* ---- chats ---- */

static void on_roster(struct store_op *op, enum bh_err err)
{
    struct roster *o = container_of(op, struct roster, op.op);

    for (size_t k = 0; err == BH_OK && o->inst != NULL && k < o->op.n_records; k++) {
        const struct store_record *at = &o->op.records[k];
        struct chat_record rec;
        if (!chats_read(o->relay, at->key, at->value, &rec) || rec.box != o->inst->box)
            continue;
        struct chat_line line = {rec.platform, rec.id, rec.bot, rec.scope};
        o->each(o->ctx, &line);
    }
    store_scan_free(&o->op);
    o->done(o->ctx, err);
    pending_end(&o->pending);
}

void relay_chats_show(struct relay *r, struct str tenant, struct str instance, struct str after,
                      size_t limit, chat_line_cb *each, accepted_cb *done, void *ctx)
{
    struct roster *o = xcalloc(1, sizeof *o);

    *o = (struct roster){.relay = r, .each = each, .done = done, .ctx = ctx};
    o->inst = instance_find(r, tenant, instance);
    buf_printf(&o->prefix, "%.*s\x1f%.*s\x1f", STR_FMT(tenant), STR_FMT(instance));
    if (after.p != NULL) {
        buf_add_str(&o->after, buf_str(&o->prefix));
        buf_add_str(&o->after, after);
    }
    pending_add(r, &o->pending, roster_free);
    o->op = (struct store_scan){.op = {.done = on_roster},
                                .ns = chat_form.ns,
                                .prefix = buf_str(&o->prefix),
                                .after = after.p != NULL ? buf_str(&o->after) : STR_NULL,
                                .limit = limit};
    store_scan(r->env.store, &o->op);
}

bool relay_has_chat(struct relay *r, struct str tenant, struct str instance, struct str platform,
                    struct str chat_id)
{
    const struct instance *i = instance_find(r, tenant, instance);

    return i != NULL && platform.n > 0 && chats_find(i, platform, chat_id) != NULL;
}

/* ---- who wants to know of mail ---- */

void relay_watch_mail(struct relay *r, mail_news_cb *cb, void *ctx)
{
    r->on_mail = cb;
    r->mail_ctx = ctx;
}

void mail_tell(const struct instance *i, const struct event *ev, bool new_chat)
{
    struct mail_news news = {.tenant = instance_tenant(i),
                             .instance = instance_id(i),
                             .new_chat = new_chat};

    if (ev != NULL) {
        news.platform = ev->platform;
        news.chat_id = ev->chat_id;
    }
    i->relay->on_mail(i->relay->mail_ctx, &news);
}

/* ---- purge, take and redrive ---- */

/* Settles the whole mailbox.  Deliveries in memory or on a socket are settled one by one; the rest
 * is detached as one ring, so that the cost per turn is bounded. */
enum { PURGES_TOLD = 256 }; /* deliveries of one purge that the journal names: the newest */

static uint64_t settle_all(struct instance *i)
{
    uint32_t before = mailbox_entries(&i->mb);
    unsigned known = list_is_empty(&i->sessions) ? 0 : SLOT_SENT;

    for (uint32_t at = 0; at < i->mb.n; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if ((slot->flags & SLOT_GONE) == 0 && i->mb.n - at <= PURGES_TOLD)
            journal_step(i->relay->journal, clock_wall_ms(i->relay->env.clock), JOURNAL_PURGED,
                         slot->id, slot->attempts, STR_NULL);
        if ((slot->flags & SLOT_GONE) == 0 && (slot->d != NULL || (slot->flags & known) != 0))
            delivery_settle(i, slot);
    }
    i->relay->n.settled += mailbox_entries(&i->mb);
    if (mailbox_entries(&i->mb) != 0)
        acks_add_ring(i->relay, mailbox_detach(&i->mb));
    mail_changed(i->relay, i);
    mailbox_tidy(&i->mb);
    return before;
}

uint64_t relay_mailbox_purge(struct relay *r, struct str tenant, struct str instance)
{
    struct instance *i = instance_find(r, tenant, instance);
    uint64_t n = i != NULL ? settle_all(i) : 0;

    r->n.purged += n;
    if (i != NULL)
        log_info(NULL, "mailbox purged: tenant=%.*s instance=%.*s entries=%llu",
                 STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)), (unsigned long long)n);
    return n;
}

uint64_t relay_mailbox_take(struct relay *r, struct str tenant, struct str instance, uint64_t up_to)
{
    struct instance *i = instance_find(r, tenant, instance);
    r->taking = true;
    uint64_t n = i != NULL ? delivery_settle_until(i, up_to, INT64_MAX, UINT64_MAX) : 0;
    r->taking = false;

    r->n.acked += n;
    return n;
}

bool relay_waits(struct relay *r, struct str tenant, struct str instance, uint64_t id)
{
    struct instance *i = instance_find(r, tenant, instance);

    return i != NULL && mailbox_find(&i->mb, id) != NULL;
}

bool relay_next_parked(struct relay *r, uint32_t *box, uint64_t *id, size_t *looks,
                       struct parked_view *ret)
{
    struct instance *i = *box != 0 ? instance_at(r, *box) : instance_after(r, 0);

    for (; i != NULL; i = instance_after(r, i->box)) {
        if (i->box != *box)
            *id = 0;
        *box = i->box;
        if (*looks == 0)
            return false;
        --*looks;
        for (uint32_t at = i->mb.parked > 0 ? mailbox_seek(&i->mb, *id) : i->mb.n; at < i->mb.n;
             at++) {
            const struct slot *slot = mailbox_at(&i->mb, at);
            if ((slot->flags & (SLOT_PARKED | SLOT_GONE)) != SLOT_PARKED)
                continue;
            *id = slot->id;
            *ret = (struct parked_view){.tenant = instance_tenant(i),
                                        .instance = instance_id(i),
                                        .id = slot->id,
                                        .bytes = (uint64_t)slot->units * SLOT_UNIT,
                                        .at_ms = (int64_t)slot->at_s * 1000,
                                        .attempts = slot->attempts};
            return true;
        }
    }
    *box = 0;
    return false;
}

/* Redrives or drops one slot, if it is parked. */
static bool change_slot(struct instance *i, struct slot *slot, bool drop)
{
    struct relay *r = i->relay;

    if ((slot->flags & (SLOT_PARKED | SLOT_GONE)) != SLOT_PARKED)
        return false;
    journal_step(r->journal, clock_wall_ms(r->env.clock), drop ? JOURNAL_PURGED : JOURNAL_REDRIVEN,
                 slot->id, drop ? slot->attempts : 0, STR_NULL);
    if (drop) {
        delivery_settle(i, slot);
        r->n.purged++;
        return true;
    }
    mailbox_park(&i->mb, slot, false);
    slot->attempts = 0;
    delivery_mark(i, slot, STR_NULL);
    pump_again(i, slot->id);
    return true;
}

static void changed(struct instance *i, uint64_t n)
{
    if (n == 0)
        return;
    mailbox_tidy(&i->mb);
    pump_want(i);
    wake_want(i);
}

uint64_t relay_parked_change(struct relay *r, struct str tenant, struct str instance,
                             const uint64_t *ids, size_t n, bool drop)
{
    struct instance *i = instance_find(r, tenant, instance);
    uint64_t done = 0;

    for (uint32_t at = 0; i != NULL && at < i->mb.n; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        bool meant = n == 0;
        for (size_t k = 0; k < n && !meant; k++)
            meant = ids[k] == slot->id;
        done += meant && change_slot(i, slot, drop);
    }
    changed(i, done);
    return done;
}

bool relay_parked_step(struct relay *r, struct parked_walk *w)
{
    size_t looks = PARKED_STEP;
    struct instance *i = w->id != 0 ? instance_at(r, w->box) : NULL;

    if (i == NULL) { /* begins an instance; or the one it was in is gone */
        w->id = 0;
        i = instance_after(r, w->box);
    }
    for (; i != NULL && looks > 0; i = instance_after(r, w->box), looks--) {
        uint64_t n = 0;
        bool meant = w->tenant.n == 0 || str_eq(w->tenant, instance_tenant(i));
        uint32_t at = meant && i->mb.parked > 0 ? mailbox_seek(&i->mb, w->id) : i->mb.n;
        for (; at < i->mb.n && looks > 1; at++) {
            struct slot *slot = mailbox_at(&i->mb, at);
            looks--;
            w->id = slot->id;
            if (change_slot(i, slot, w->drop)) {
                n++;
                looks -= looks > PARKED_COST ? PARKED_COST : looks - 1;
            }
        }
        bool rest = at < i->mb.n;
        changed(i, n);
        w->done += n;
        w->box = i->box;
        if (rest)
            return true;
        w->id = 0;
    }
    return i != NULL;
}
