/* session.c - design.  (session.h has the contract and the picture.)
 *
 * One timer per session carries every deadline: it is armed for the nearest and looks at all of
 * them when it fires.  Attempts are counted when a socket stops being the receiver without a plan:
 * lost, or left behind by a newer one (a client whose reader died dials again and leaves its old
 * socket open), each delivery once per socket. */
#include "relay/session/session.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "bus/bus.h"
#include "relay/session/acking.h"
#include "relay/mailbox/delivery.h"
#include "relay/out/requests.h"
#include "relay/mailbox/fetch.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/in/interrupt.h"
#include "relay/session/line_reader.h"
#include "relay/sleep/life.h"
#include "relay/log_limit.h"
#include "relay/session/pulse.h"
#include "relay/session/pump.h"
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
    uint32_t newest; /* number of the one opened last */
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

/* The socket is lost: one more attempt for everything on it. */
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
    interrupt_read(i); /* what another socket was sent is no matter of this one */
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

/* The one that went to sleep has closed.  Older sockets do not take over from a sleeper; whoever is
 * still behind one of them dials again and wakes the instance. */
static void close_older(struct instance *i)
{
    if (i->closing_older)
        return; /* the one on the stack closes them all: thousands must not nest */
    i->closing_older = true;
    list_each (&i->sessions, it, nxt) {
        struct session *s = list_entry(it, struct session, by_inst);
        if (s->state == SESSION_OLD)
            session_close(s, CLOSE_FELL_ASLEEP);
    }
    i->closing_older = false;
}

/* It stops being one of the instance's sockets, for whatever reason.  Once per session. */
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
    acking_begin(s);
    s->since_ms = clock_now_ms(r->env.clock);
    s->next_ping_ms = s->since_ms + r->lim.ping_ms;
    list_init(&s->by_inst);
    list_init(&s->by_age);
    list_init(&s->requests);
    list_append(&i->sessions, &s->by_inst);
    list_append(&r->sessions->by_age, &s->by_age);
    timer_init(&s->tick, pulse_tick);
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
        sent_ids_done(&s->inst->sent); /* nobody is left who could ack */
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

/* Its sockets are those of its instance; only where the id was given out again meanwhile, maybe to
 * another instance, everybody is looked at. */
static void on_revoked(void *ctx, struct str topic, struct str id)
{
    struct relay *r = ctx;
    const struct gateway *g = facts_gateway(r->env.facts, id);
    struct instance *i = g != NULL && g->revoked_ms != 0
                             ? instance_find(r, str_of(g->tenant), str_of(g->instance))
                             : NULL;

    (void)topic;
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
    bus_subscribe(r->env.bus, "revoked", on_revoked, r);
}
