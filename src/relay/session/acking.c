/* acking.c - design.  (acking.h has the contract and the picture.)
 *
 * A gateway that thinks for long before it answers, or that answers from memory, must not be taken
 * for one that never acks: the proof is two different deliveries answered, the older of them long
 * ago, and not one ack from any of its sockets.  An acking gateway has acked long before that. */
#include "relay/session/acking.h"
#include <stdlib.h>
#include "relay/mailbox/delivery.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/session/pulse.h"
#include "relay/session/session.h"
#include "tenancy/facts.h"

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

static int64_t now_ms(const struct session *s)
{
    return clock_now_ms(s->inst->relay->env.clock);
}

static bool was_seen(const struct session *s)
{
    return map_get(&s->inst->relay->acking->seen, str_of(s->gw->id)) != NULL;
}

void acking_begin(struct session *s)
{
    s->acking.never = s->gw->ackless;
}

/* ---- soft deliveries ---- */

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

/* Settles what is soft on this socket, up to @id. */
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

void acking_on_pong(struct session *s, uint32_t number)
{
    struct flight *f = s->flight;

    if (f == NULL || !f->soft || number < f->ping_no)
        return;
    f->soft = false;
    settle_soft(s, f->ping_upto);
    s->ack_since_ms = now_ms(s);
}

/* ---- it acks ---- */

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
        settle_soft(s, id - 1); /* read in order: what came before it was read too */
}

/* ---- it never acks ---- */

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

bool acking_explain_silence(struct session *s)
{
    if (!s->acking.spoke || s->acking.never || s->acking.acked || was_seen(s))
        return false;
    stop_waiting(s);
    return true;
}

/* Given up for its silence it answers what it was sent, and has never acked: it thought for
 * long. */
static bool answers_late(const struct session *s)
{
    return s->state == SESSION_DEAF && !s->acking.acked && !s->acking.never && !was_seen(s);
}

/* Two different deliveries answered, the older of them long ago, and not one ack. */
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
