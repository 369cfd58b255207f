/* pulse.c - design.  (pulse.h has the contract.)
 *
 * One timer per session carries every deadline: it is armed for the nearest and looks at all of
 * them when it fires. */
#include "relay/session/pulse.h"
#include <stdlib.h>
#include "relay/session/acking.h"
#include "relay/mailbox/delivery.h"
#include "relay/mailbox/fetch.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/in/interrupt.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"

static int64_t now_ms(const struct session *s)
{
    return clock_now_ms(s->inst->relay->env.clock);
}

/* ---- deadlines ---- */

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
        return; /* nobody to ping, and it may take its time */
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

/* Gives back what only a busy session needs. */
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

void pulse_tick(struct timer *t)
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

/* ---- life ---- */

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
