/* sleep.c - design.  (sleep.h has the contract and the picture.) */
#include "relay/sleep/sleep.h"
#include "core/frame.h"
#include "relay/mailbox/delivery.h"
#include "relay/mailbox/fetch.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/session/session.h"

enum {
    PER_S = 5,
    AT_ONCE = 100
}; /* each is a record, two log lines and a state told to every page */

void sleep_load(struct instance *i, bool asleep, int64_t since_ms)
{
    i->sleep.asleep = asleep;
    i->sleep.since_ms = since_ms;
}

static void set_asleep(struct instance *i, bool asleep)
{
    if (i->sleep.asleep == asleep)
        return;
    i->sleep.asleep = asleep;
    if (asleep) {
        i->sleep.since_ms = clock_wall_ms(i->relay->env.clock);
        i->relay->n.sleeps++;
    }
    instance_record(i);
    instance_touch(i);
}

static void owe_ack(struct session *s, bool owed)
{
    if (s->sleep_owed == owed)
        return;
    s->sleep_owed = owed;
    s->inst->sleep.owed += owed ? 1u : -1u;
}

static void fall_asleep(struct session *s)
{
    struct instance *i = s->inst;

    if (i->receiver == s || i->receiver == NULL) {
        i->receiver = NULL;
        fetch_drop(i);
        delivery_drop_kept(i);
        set_asleep(i, true);
    }
    /* An older socket too: what it was sent must be safe before it is told it may go. */
    i->sleep.mark = delivery_next_id(i->relay) - 1;
    session_enter(s, SESSION_ASLEEP);
    s->sleep_version = i->record_want;
    log_info(&s->log, "going idle: asleep=%d unacked=%llu", i->sleep.asleep,
             (unsigned long long)flight_rows(s->flight));
}

void sleep_begin(struct session *s)
{
    int64_t now_ms = clock_now_ms(s->inst->relay->env.clock);

    if (s->state != SESSION_ASLEEP) {
        if (!bucket_take(&s->inst->sleep.often, now_ms, PER_S, AT_ONCE)) {
            session_close(s, CLOSE_SLEEPS_TOO_OFTEN);
            return;
        }
        fall_asleep(s);
    }
    owe_ack(s, true);
    sleep_check(s->inst);
}

void sleep_end(struct session *s)
{
    owe_ack(s, false);
    s->sleep_acked = false;
    set_asleep(s->inst, false);
}

void sleep_leave(struct session *s)
{
    owe_ack(s, false);
}

void sleep_check(struct instance *i)
{
    if (i->sleep.owed == 0 || !delivery_safe_up_to(i, i->sleep.mark))
        return;
    list_each (&i->sessions, it, nxt) {
        struct session *s = list_entry(it, struct session, by_inst);
        if (!s->sleep_owed || i->record_done < s->sleep_version)
            continue;
        owe_ack(s, false);
        s->sleep_acked = true;
        frame_write_going_idle_ack(s->wire->ops->send_begin(s->wire));
        s->wire->ops->send_end(s->wire);
    }
}
