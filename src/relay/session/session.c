/* session.c - design.  (session.h has the contract and the picture.)
 *
 * One timer per session serves every deadline: it is armed for the nearest and checks all of them
 * when it fires.  An unplanned end of a receiver counts as an attempt of each delivery on it, once
 * per socket.  Either the socket is lost, or a newer socket replaces it: a client whose reader died
 * reconnects and leaves its old socket open. */
#include "relay/session/session.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/observers.h"
#include "relay/heart.h"
#include "relay/in/inside.h"
#include "relay/in/interrupt.h"
#include "relay/log_limit.h"
#include "relay/mailbox/delivery.h"
#include "relay/out/requests.h"
#include "relay/session/frames.h"
#include "relay/session/pump.h"
#include "relay/sleep/instance.h"
#include "tenancy/facts.h"

#define B(state) (1u << SESSION_##state)
static const struct {
    const char *name;
    unsigned next; /* bit set of states that may follow */
} states[] = {
    [SESSION_NEW] = {"new", B(RECEIVING) | B(ASLEEP) | B(CLOSING)},
    [SESSION_RECEIVING] = {"receiving", B(MUTE) | B(DEAF) | B(ASLEEP) | B(OLD) | B(CLOSING)},
    [SESSION_MUTE] = {"mute", B(RECEIVING) | B(DEAF) | B(ASLEEP) | B(OLD) | B(CLOSING)},
    [SESSION_DEAF] = {"deaf", B(RECEIVING) | B(ASLEEP) | B(OLD) | B(CLOSING)},
    [SESSION_ASLEEP] = {"asleep", B(RECEIVING) | B(CLOSING)},
    [SESSION_OLD] = {"old", B(RECEIVING) | B(ASLEEP) | B(CLOSING)},
    [SESSION_CLOSING] = {"closing", 0},
};

struct sessions {
    struct list by_age;
    uint32_t newest; /* number of the newest session */
    struct log_limit log_malformed, log_parked;
};

struct sessions *sessions_new(void)
{
    struct sessions *t = xcalloc(1, sizeof *t);

    list_init(&t->by_age);
    return t;
}

struct list *sessions_by_age(struct relay *r)
{
    return &r->sessions->by_age;
}

bool session_may_log(struct relay *r, uint64_t *ret_skipped)
{
    return log_limit_passes(&r->sessions->log_malformed, clock_now_ms(r->env.clock), ret_skipped);
}

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct session *s = container_of(log, const struct session, log);

    buf_printf(out, "session=%u gateway=%s instance=%.*s ", s->number, s->gw->id,
               STR_FMT(instance_id(s->inst)));
}

void session_enter(struct session *s, enum session_state next)
{
    assert((states[s->state].next & (1u << next)) != 0);
    log_debug(&s->log, "%s -> %s", states[s->state].name, states[next].name);
    s->state = (uint8_t)next;
    instance_touch(s->inst);
}

static int64_t now_ms(const struct session *s)
{
    return clock_now_ms(s->inst->relay->env.clock);
}

/* ---- acking ----
 *
 * A gateway that is slow to answer must not be mistaken for a gateway that never acks.  The proof
 * is: answers to ANSWERS_PROVE different deliveries, ANSWER_AGE_MS without an ack, and no ack from
 * any socket of the gateway since the start.  A gateway that acks does so long before that. */

enum {
    ANSWER_AGE_MS = 5000,
    ANSWERS_PROVE = 2,
};

struct acking {
    struct map seen; /* ids of gateways that have acked; keys and values owned */
};

struct acking *acking_new(void)
{
    return xcalloc(1, sizeof(struct acking));
}

void acking_free(struct acking *t)
{
    void *id;

    if (t == NULL)
        return;
    for (size_t pos = 0; map_next(&t->seen, &pos, &id);)
        free(id);
    map_done(&t->seen);
    free(t);
}

static bool was_seen(const struct session *s)
{
    return map_get(&s->inst->relay->acking->seen, str_of(s->gw->id)) != NULL;
}

bool acking_is_soft(const struct session *s, const struct slot *slot)
{
    if (s->inside)
        return false;
    return s->acking.never || (slot->flags & SLOT_PASSTHROUGH) != 0 ||
           !s->inst->relay->lim.live_acks;
}

void acking_sent_soft(struct session *s, uint64_t last)
{
    struct flight *f = s->flight;

    session_ping(s);
    if (!f->soft || last > f->ping_upto)
        f->ping_upto = last;
    f->soft = true;
    f->ping_no = s->ping_no;
}

/* Settles the soft deliveries of this socket up to @id. */
static void settle_soft(struct session *s, uint64_t id)
{
    struct instance *i = s->inst;

    for (uint32_t at = 0; at < i->mb.n; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if (slot->id > id)
            break;
        if (slot_waits(slot) && acking_is_soft(s, slot) && session_has_sent(s, slot->id))
            delivery_settle(i, slot);
    }
    mailbox_tidy(&i->mb);
}

static void acking_on_pong(struct session *s, uint32_t number)
{
    struct flight *f = s->flight;

    if (f == NULL || !f->soft || number < f->ping_no)
        return;
    f->soft = false;
    settle_soft(s, f->ping_upto);
    s->ack_since_ms = now_ms(s);
}

static void first_ack(struct session *s)
{
    struct relay *r = s->inst->relay;

    s->acking.acked = true;
    if (s->acking.never || s->gw->ackless)
        facts_gateway_set_ackless(r->env.facts, str_of(s->gw->id), false);
    s->acking.never = false;
    if (!was_seen(s)) {
        char *id = xstrdup(s->gw->id);
        map_put(&r->acking->seen, str_of(id), id);
    }
}

void acking_on_ack(struct session *s, uint64_t id)
{
    if (!s->acking.acked)
        first_ack(s);
    if (s->flight != NULL && s->flight->soft && id > 0)
        settle_soft(s, id - 1); /* gateways read in order: earlier deliveries were read too */
}

static void stop_waiting(struct session *s)
{
    log_info(&s->log, "never acknowledges: deliveries are settled when it has read them");
    s->acking.never = true;
    facts_gateway_set_ackless(s->inst->relay->env.facts, str_of(s->gw->id), true);
    if (s->flight == NULL)
        return;
    acking_sent_soft(s, s->sent_id);
    s->ack_since_ms = now_ms(s);
}

/* Called when no ack came for ack_patience_ms.  True: the gateway turns out never to ack, and its
 * deliveries are soft from now on. */
static bool acking_explain_silence(struct session *s)
{
    if (!s->acking.spoke || s->acking.never || s->acking.acked || was_seen(s))
        return false;
    stop_waiting(s);
    return true;
}

/* True when a DEAF session whose gateway has never acked sends an answer after all: the gateway was
 * slow, not dead. */
static bool answers_late(const struct session *s)
{
    return s->state == SESSION_DEAF && !s->acking.acked && !s->acking.never && !was_seen(s);
}

/* True when this answer completes the proof that the gateway never acks (see above). */
static bool proves(struct session *s, struct str reply_to)
{
    struct acking_signs *a = &s->acking;

    if (a->acked || a->never || flight_rows(s->flight) < ANSWERS_PROVE ||
        now_ms(s) - s->ack_since_ms < ANSWER_AGE_MS)
        return false;
    uint32_t hash = (uint32_t)hash64(&s->inst->relay->env.store->dedup_key, reply_to);
    if (a->answers > 0 && hash == a->answer_hash)
        return false;
    a->answer_hash = hash;
    return ++a->answers >= ANSWERS_PROVE && !was_seen(s);
}

void acking_on_action(struct session *s, const struct action *a)
{
    if (flight_count(s->flight) == 0)
        return;
    s->acking.spoke = true;
    if (a->op != ACTION_SEND || a->reply_to.n == 0)
        return;
    if (answers_late(s)) {
        stop_waiting(s);
        session_alive(s, true);
    } else if (proves(s, a->reply_to)) {
        stop_waiting(s);
    }
}

/* ---- pings, pongs and deadlines ---- */

static bool pings_unanswered(const struct session *s)
{
    return s->ping_no != s->pong_no;
}

void session_ping(struct session *s)
{
    if (!pings_unanswered(s))
        s->quiet_since_ms = now_ms(s);
    s->wire->ops->ping(s->wire, ++s->ping_no);
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_deadline(const struct session *s)
{
    const struct relay_limits *lim = &s->inst->relay->lim;
    int64_t due = s->next_ping_ms, far = 3 * lim->ack_patience_ms;

    if (pings_unanswered(s))
        due = min64(due, s->quiet_since_ms +
                             (s->state == SESSION_RECEIVING ? lim->pong_patience_ms : far));
    if (flight_count(s->flight) > 0 && s->state != SESSION_OLD && s->state != SESSION_ASLEEP)
        due = min64(due, s->ack_since_ms + (s->state == SESSION_DEAF ? far : lim->ack_patience_ms));
    if (s->state == SESSION_OLD || s->state == SESSION_NEW)
        due = min64(due, s->since_ms + lim->old_socket_ms);
    if (s == s->inst->receiver && s->inst->hold_until_ms > now_ms(s))
        due = min64(due, s->inst->hold_until_ms);
    return due;
}

void session_arm(struct session *s)
{
    int64_t due = next_deadline(s);

    if (s->inside)
        return; /* no socket to ping, and no ack deadline */
    if (s->state != SESSION_CLOSING && (!timer_is_set(&s->tick) || due < s->tick.due_ms))
        timer_set(s->inst->relay->env.clock, &s->tick, due - now_ms(s));
}

static void become_away(struct session *s, enum session_state next, const char *why)
{
    s->inst->relay->n.sessions_away++;
    log_info(&s->log, "away: %s", why);
    session_enter(s, next);
    delivery_drop_kept(s->inst);
    fetch_drop(s->inst);
    wake_want(s->inst);
}

static void check_acks(struct session *s, int64_t now)
{
    const struct relay_limits *lim = &s->inst->relay->lim;
    int64_t silent_ms = now - s->ack_since_ms;

    if (flight_count(s->flight) == 0 || silent_ms < lim->ack_patience_ms)
        return;
    if (s->state == SESSION_DEAF && silent_ms >= 3 * lim->ack_patience_ms)
        session_close(s, CLOSE_NO_ACKS);
    else if (s->state == SESSION_RECEIVING && acking_explain_silence(s))
        return;
    else if (s->state == SESSION_RECEIVING || s->state == SESSION_MUTE)
        become_away(s, SESSION_DEAF, "acknowledges nothing");
}

static void check_pongs(struct session *s, int64_t now)
{
    const struct relay_limits *lim = &s->inst->relay->lim;
    int64_t quiet_ms = now - s->quiet_since_ms;

    if (!pings_unanswered(s))
        return;
    if (quiet_ms >= 3 * lim->ack_patience_ms)
        session_close(s, CLOSE_NO_PONGS);
    else if (s->state == SESSION_RECEIVING && quiet_ms >= lim->pong_patience_ms)
        become_away(s, SESSION_MUTE, "answers no ping");
}

/* Frees the memory that only a busy session needs. */
static void slim_down(struct session *s)
{
    if (flight_count(s->flight) == 0) {
        free(s->flight);
        s->flight = NULL;
    }
    mailbox_trim(&s->inst->mb);
    if (mailbox_entries(&s->inst->mb) == 0)
        sent_ids_done(&s->inst->sent);
}

static void on_tick(struct timer *t)
{
    struct session *s = container_of(t, struct session, tick);
    const struct relay_limits *lim = &s->inst->relay->lim;
    int64_t now = now_ms(s);

    check_pongs(s, now);
    if (s->state != SESSION_CLOSING)
        check_acks(s, now);
    if (s->state == SESSION_OLD && now - s->since_ms >= lim->old_socket_ms)
        session_close(s, CLOSE_REPLACED);
    if (s->state == SESSION_NEW && now - s->since_ms >= lim->old_socket_ms)
        session_close(s, CLOSE_NO_HELLO);
    if (s->state == SESSION_CLOSING)
        return;
    if (s == s->inst->receiver && s->inst->hold_until_ms != 0 && now >= s->inst->hold_until_ms)
        pump_want(s->inst);
    if (now >= s->next_ping_ms) {
        session_ping(s);
        s->next_ping_ms = now + lim->ping_ms;
        slim_down(s);
    }
    session_arm(s);
}

void session_alive(struct session *s, bool acked)
{
    if (s == s->inst->receiver)
        interrupt_read(s->inst);
    if (acked)
        s->ack_since_ms = now_ms(s);
    if (s->state != SESSION_MUTE && !(acked && s->state == SESSION_DEAF))
        return;
    log_info(&s->log, "back");
    session_enter(s, SESSION_RECEIVING);
    wake_stop(s->inst);
    pump_want(s->inst);
}

void session_pong(struct session *s, uint32_t number)
{
    if (number > s->ping_no || number <= s->pong_no)
        return; /* not one of ours, or an old one */
    s->pong_no = number;
    s->quiet_since_ms = now_ms(s);
    acking_on_pong(s, number);
    session_alive(s, false);
}

/* ---- questions ---- */

bool session_has_sent(const struct session *s, uint64_t id)
{
    if (id > s->sent_id)
        return false;
    for (size_t k = 0; k < s->n_again; k++)
        if (s->again[k] == id)
            return false;
    return true;
}

bool session_anyone_has(const struct instance *i, uint64_t id)
{
    for (const struct list *it = i->sessions.next; it != &i->sessions; it = it->next) {
        const struct session *s = list_entry(it, struct session, by_inst);
        if (s->state != SESSION_CLOSING && session_has_sent(s, id))
            return true;
    }
    return false;
}

void session_forget_all(struct instance *i, uint64_t id)
{
    list_each (&i->sessions, it, nxt) {
        struct session *s = list_entry(it, struct session, by_inst);
        if (flight_forget(s->flight, id) && s == i->receiver)
            pump_want(i);
    }
}

/* ---- receiving ---- */

void session_park(struct session *s, struct slot *slot, struct str why)
{
    struct instance *i = s->inst;
    struct relay *r = i->relay;
    uint64_t skipped;

    mailbox_park(&i->mb, slot, true);
    i->park_mark = r->sessions->newest;
    r->n.parked++;
    if (log_limit_passes(&r->sessions->log_parked, clock_now_ms(r->env.clock), &skipped))
        log_warn(&s->log, "delivery parked: id=%llx attempts=%u more=%llu",
                 (unsigned long long)slot->id, (unsigned)slot->attempts,
                 (unsigned long long)skipped);
    delivery_mark(i, slot, why);
    session_forget_all(i, slot->id);
}

static void park_lost(struct session *s, struct slot *slot)
{
    char reason[160];
    int n = snprintf(reason, sizeof reason,
                     "%u sockets were lost with it, the last one session %u of %s",
                     (unsigned)slot->attempts, s->number, s->gw->id);

    if (n < 0 || (size_t)n >= sizeof reason)
        n = (int)sizeof reason - 1;
    session_park(s, slot, str_make(reason, (size_t)n));
}

/* The socket is lost: counts an attempt for each unsettled delivery on it. */
static void count_attempts(struct session *s)
{
    struct instance *i = s->inst;
    struct mailbox *mb = &i->mb;

    for (uint32_t at = mailbox_seek(mb, s->counted_id); at < mb->n; at++) {
        struct slot *slot = mailbox_at(mb, at);
        if (slot->id > s->sent_id)
            break;
        if (!slot_waits(slot) || !session_has_sent(s, slot->id))
            continue;
        if (slot->attempts < SLOT_MAX_ATTEMPTS)
            slot->attempts++;
        if (slot->attempts >= i->relay->lim.max_attempts)
            park_lost(s, slot);
        else
            delivery_mark(i, slot, STR_NULL);
    }
    s->counted_id = s->sent_id;
}

static void take_over(struct session *s)
{
    struct instance *i = s->inst;

    assert(i->receiver == NULL);
    i->receiver = s;
    interrupt_read(i); /* unread interrupts of another socket do not count here */
    s->ack_since_ms = now_ms(s);
    session_enter(s, SESSION_RECEIVING);
    wake_stop(i);
    requests_adopt(s);
    pump_want(i);
    session_arm(s);
}

void session_receive(struct session *s)
{
    struct instance *i = s->inst;
    struct session *was = i->receiver;

    assert(was != s);
    fetch_drop(i);
    if (was != NULL) {
        count_attempts(was);
        session_enter(was, SESSION_OLD);
        was->since_ms = now_ms(s);
        session_arm(was);
        i->receiver = NULL;
    }
    list_move(&s->by_inst, &i->sessions);
    instance_seen(i);
    wake_stop(i);
    sleep_end(s);
    take_over(s);
    log_info(&s->log, "receives: waiting=%u parked=%u", mailbox_waiting(&i->mb), i->mb.parked);
}

static struct session *successor(struct instance *i)
{
    for (struct list *it = i->sessions.prev; it != &i->sessions; it = it->prev) {
        struct session *s = list_entry(it, struct session, by_inst);
        if (s->state == SESSION_OLD)
            return s;
    }
    return NULL;
}

/* Closes OLD sockets once a sleeping instance has no receiver.  OLD sockets do not take over while
 * the instance sleeps; a client that is still connected through one reconnects and wakes it. */
static void close_older(struct instance *i)
{
    if (i->closing_older)
        return; /* the outer call closes them all: avoids recursion with thousands of sockets */
    i->closing_older = true;
    list_each (&i->sessions, it, nxt) {
        struct session *s = list_entry(it, struct session, by_inst);
        if (s->state == SESSION_OLD)
            session_close(s, CLOSE_FELL_ASLEEP);
    }
    i->closing_older = false;
}

/* Detaches @s from its instance.  Runs once per session, whatever the reason of the close. */
static void leave(struct session *s, bool planned)
{
    struct instance *i = s->inst;
    struct relay *r = i->relay;
    struct session *heir = NULL;

    timer_stop(r->env.clock, &s->tick);
    sleep_leave(s);
    if (!planned && !s->sleep_acked && !s->inside && !r->draining)
        count_attempts(s);
    session_enter(s, SESSION_CLOSING);
    requests_orphan(s);
    if (i->receiver == s) {
        i->receiver = NULL;
        fetch_drop(i);
        heir = i->sleep.asleep || r->draining ? NULL : successor(i);
    }
    if (heir != NULL)
        take_over(heir);
    delivery_socket_lost(i);
    if (i->receiver == NULL) {
        delivery_drop_kept(i);
        wake_redialling(i);
        if (i->sleep.asleep)
            close_older(i);
    }
}

/* ---- opening and closing ---- */

struct session *session_open(struct relay *r, const struct gateway *gw, struct wire *wire)
{
    struct instance *i =
        r->draining ? NULL : instance_get(r, str_of(gw->tenant), str_of(gw->instance));
    struct session *s;

    if (i == NULL)
        return NULL;
    life_follow(i, life_now(r, instance_tenant(i), instance_id(i)));
    s = xcalloc(1, sizeof *s);
    *s = (struct session){.log = {log_prefix}, .inst = i, .wire = wire, .gw = gw};
    s->number = ++r->sessions->newest;
    s->acking.never = gw->ackless;
    s->since_ms = clock_now_ms(r->env.clock);
    s->next_ping_ms = s->since_ms + r->lim.ping_ms;
    list_init(&s->by_inst);
    list_init(&s->by_age);
    list_init(&s->requests);
    list_append(&i->sessions, &s->by_inst);
    list_append(&r->sessions->by_age, &s->by_age);
    timer_init(&s->tick, on_tick);
    session_arm(s);
    r->n.sessions_opened++;
    return s;
}

void session_close(struct session *s, enum close_reason why)
{
    if (s->state == SESSION_CLOSING)
        return;
    log_info(&s->log, "closing: code=%d reason=%s", contract_closes[why].code,
             contract_closes[why].text);
    leave(s, contract_closes[why].terminal);
    s->wire->ops->close(s->wire, why);
}

static void session_free(struct session *s)
{
    list_remove(&s->by_inst);
    list_remove(&s->by_age);
    if (list_is_empty(&s->inst->sessions))
        sent_ids_done(&s->inst->sent); /* no socket is left that could ack */
    line_reader_free(s->reader);
    free(s->flight);
    free(s->again);
    free(s->personas);
    free(s);
}

void session_closed(struct session *s, int code)
{
    log_info(&s->log, "closed: code=%d state=%s unacked=%llu", code, states[s->state].name,
             (unsigned long long)flight_rows(s->flight));
    if (s->state != SESSION_CLOSING)
        leave(s, false);
    session_free(s);
}

void sessions_free(struct relay *r)
{
    list_each (&r->sessions->by_age, it, nxt) {
        struct session *s = list_entry(it, struct session, by_age);
        timer_stop(r->env.clock, &s->tick);
        session_free(s);
    }
    free(r->sessions);
}

/* ---- revocation ---- */

static void close_revoked(const struct gateway *g, struct session *s)
{
    if (s->gw == g)
        session_close(s, CLOSE_REVOKED);
}

/* Normally the revoked gateway's sockets are in the list of its instance.  If the gateway id has
 * been reissued meanwhile, maybe to another instance, all sessions are checked. */
static void on_revoked(void *ctx, struct str id)
{
    struct relay *r = ctx;
    const struct gateway *g = facts_gateway(r->env.facts, id);
    struct instance *i = g != NULL && g->revoked_ms != 0
                             ? instance_find(r, str_of(g->tenant), str_of(g->instance))
                             : NULL;

    if (i != NULL) {
        list_each (&i->sessions, it, nxt)
            close_revoked(g, list_entry(it, struct session, by_inst));
        return;
    }
    list_each (&r->sessions->by_age, it, nxt)
        close_revoked(g, list_entry(it, struct session, by_age));
}

void sessions_listen(struct relay *r)
{
    observers_add(r->env.observers, "revoked", on_revoked, r);
}

/* ---- agents inside this program: inside.h ---- */

struct session *session_open_inside(struct relay *r, const struct gateway *gw, struct wire *wire)
{
    struct session *s = session_open(r, gw, wire);

    if (s == NULL)
        return NULL;
    s->inside = true;
    timer_stop(r->env.clock, &s->tick);
    return s;
}

bool session_failed(struct session *s, struct str buffer_id, struct str why, bool park)
{
    struct instance *i = s->inst;
    struct relay *r = i->relay;
    uint64_t tag = hash64(&r->env.store->dedup_key, buffer_id);
    uint64_t id = sent_ids_take(&i->sent, tag);
    struct slot *slot = id != 0 ? mailbox_find(&i->mb, id) : NULL;

    if (slot == NULL)
        return true; /* purged meanwhile: nothing to retry */
    if (slot->attempts < SLOT_MAX_ATTEMPTS)
        slot->attempts++;
    if (!park && slot->attempts < r->lim.max_attempts) {
        sent_ids_add(&i->sent, &i->mb, tag, id);
        delivery_mark(i, slot, STR_NULL);
        return false;
    }
    session_park(s, slot, why);
    pump_want(i);
    return true;
}
