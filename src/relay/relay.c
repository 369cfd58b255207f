/* relay.c - design.  (relay.h has the contract.)
 *
 * This file has the limits, the retries, the drain, the end of a turn, and the construction and
 * destruction of the parts.  Each part does its work in a file of its own. */
#include "relay/relay.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/json.h"
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/allowance.h"
#include "relay/in/commands.h"
#include "relay/in/judge.h"
#include "relay/in/staged.h"
#include "relay/latency.h"
#include "relay/mailbox/mailbox.h"
#include "relay/out/chat_records.h"
#include "relay/out/requests.h"
#include "relay/out/spoken.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "relay/upkeep.h"
#include "store/store.h"
#include "tenancy/pairing.h"

enum { MAX_WINDOW = 1024, FAREWELL_MS = 500 };

/* ---- limits ---- */

const struct relay_limits relay_limits_default = {
    .window = CONTRACT_WINDOW,
    .pack_bytes = CONTRACT_PACK_BYTES,
    .max_frame = CONTRACT_MAX_FRAME,
    .max_mailbox_bytes = 1ull << 30,
    .live_acks = true,
    .ping_ms = CONTRACT_PING_MS,
    .pong_patience_ms = CONTRACT_PONG_PATIENCE_MS,
    .ack_patience_ms = CONTRACT_ACK_PATIENCE_MS,
    .max_attempts = CONTRACT_MAX_ATTEMPTS,
    .wake_cooldown_ms = CONTRACT_WAKE_COOLDOWN_MS,
    .old_socket_ms = CONTRACT_OLD_SOCKET_MS,
    .action_ms = CONTRACT_ACTION_MS,
    .dedup_ms = 24 * 3600 * 1000ll,
    .dedup_max = 1000000,
    .max_chats = 65536,
    .max_instance_chats = 1000000,
    .instance_actions = 200,
    .tenant_actions = 1000,
};

#define AT(member) offsetof(struct relay_limits, member)

static const struct config_key delivery_keys[] = {
    {"delivery.window", CFG_NUMBER, CFG_RELOAD, AT(window), "8", .min = 1, .max = 64,
     .what = "Unacknowledged WebSocket messages per socket. Gateways stop reading at 16."},
    {"delivery.live_acks", CFG_BOOL, CFG_RELOAD, AT(live_acks), "true",
     .what = "Put a `bufferId` on every delivery, so that live ones are acknowledged too. If off, "
             "a delivery counts as taken once the gateway's socket answered a later ping; a "
             "gateway that crashes right then loses it."},
    {"delivery.max_mailbox_bytes", CFG_BYTES, CFG_RELOAD, AT(max_mailbox_bytes), "1GiB",
     .min = 1 << 16,
     .what = "Bytes that may wait for one instance; more events are refused as busy."},
    {"delivery.max_attempts", CFG_NUMBER, CFG_RELOAD, AT(max_attempts), "10", .min = 1,
     .max = SLOT_MAX_ATTEMPTS,
     .what = "Failed attempts (the socket was lost during the delivery) after which a delivery is "
             "parked, with the reason; at most 63."},
    {"delivery.ack_patience", CFG_DURATION, CFG_RELOAD, AT(ack_patience_ms), "90s", .min = 1000,
     .max = 3600000,
     .what = "A gateway that acknowledges nothing for this long is treated as away."},
    {"delivery.settle", CFG_DURATION, CFG_RELOAD, AT(settle_ms), "0s", .max = 60000,
     .what = "How long a gateway that is not known to be of the newer generation gets nothing "
             "after it has dialled. Released Hermes gateways of the older generation acknowledge "
             "and drop what comes while they start. Once one has answered a message bellhop knows "
             "it, and then waits 3 s, if this says less; set `3s` to have the first start covered "
             "too."},
    {"delivery.dedup", CFG_DURATION, CFG_RELOAD, AT(dedup_ms), "24h", .min = 60000,
     .max = 180 * INT64_C(86400000),
     .what = "How long a platform's event id is remembered, to recognize repetitions; eight days "
             "at least while a bot of WhatsApp or LINE is configured, thirty days with one of "
             "Matrix: they repeat for longer than a day."},
    {"wake.cooldown", CFG_DURATION, CFG_RELOAD, AT(wake_cooldown_ms), "30s", .min = 100,
     .max = 86400000, .what = "At most one poke per instance in this time."},
    {0},
};
const struct config_section relay_config = {.keys = delivery_keys,
                                            .size = sizeof(struct relay_limits),
                                            .defaults = &relay_limits_default};

static const struct config_key rate_keys[] = {
    {"limits.instance_actions", CFG_NUMBER, CFG_RELOAD, AT(instance_actions), "200", .max = 1000000,
     .what = "Actions per second of one instance, five times that at once; 0: no limit."},
    {"limits.tenant_actions", CFG_NUMBER, CFG_RELOAD, AT(tenant_actions), "1000", .max = 1000000,
     .what = "The same for all instances of a tenant together."},
    {"limits.instance_chats", CFG_NUMBER, CFG_RELOAD, AT(max_instance_chats), "1000000", .min = 1,
     .max = 100000000,
     .what = "Chats remembered per instance. Beyond that the chats silent for longest are "
             "forgotten, and the instance may write there only after somebody writes again."},
    {0},
};
const struct config_section relay_rate_config = {.keys = rate_keys, .into = &relay_config};

/* ---- retries of failed store operations ----
 *
 * One timer serves all instances with failures, which are in a list.  While the store is down, the
 * retries cost one walk of that list per second. */

static void on_retry(struct timer *t)
{
    struct relay *r = container_of(t, struct relay, retry);

    timer_stop(r->env.clock, t);
    acks_retry(r);
    for (struct instance *i; (i = fifo_pop(&r->troubled)) != NULL;) {
        i->is_troubled = false;
        instance_record_retry(i);
        delivery_retry(i);
        pump_want(i);
    }
}

void retry_want_acks(struct relay *r)
{
    if (!timer_is_set(&r->retry))
        timer_set(r->env.clock, &r->retry, RETRY_MS);
}

void retry_want(struct instance *i)
{
    if (!i->is_troubled)
        fifo_push(&i->relay->troubled, i);
    i->is_troubled = true;
    retry_want_acks(i->relay);
}

/* ---- drain ----
 *
 *      relay_drain() -> wait for pending acks and results, FAREWELL_MS at most
 *                    -> close every socket with CLOSE_RESTARTING
 *                    -> every accepted event is on disk: call back
 *
 * An ack that is lost with its socket causes a second delivery.  Therefore the drain waits for
 * gateways that have something to ack or a result to receive, but not for one that has owed its ack
 * for longer than that. */

static void say_farewell(struct relay *r)
{
    struct list *sessions = sessions_by_age(r);

    if (r->said_farewell)
        return;
    list_each (sessions, it, nxt) {
        const struct session *s = list_entry(it, struct session, by_age);
        bool acks = s->state == SESSION_RECEIVING && flight_count(s->flight) > 0 &&
                    clock_now_ms(r->env.clock) - s->ack_since_ms < FAREWELL_MS;
        if (timer_is_set(&r->farewell) && (acks || !list_is_empty(&s->requests)))
            return;
    }
    r->said_farewell = true;
    timer_stop(r->env.clock, &r->farewell);
    list_each (sessions, at, after)
        session_close(list_entry(at, struct session, by_age), CLOSE_RESTARTING);
}

static void on_farewell(struct timer *t)
{
    struct relay *r = container_of(t, struct relay, farewell);

    say_farewell(r); /* the timer is no longer set, so say_farewell() closes the sockets now */
    turn_want(r, 0);
}

static void drain_go_on(struct relay *r)
{
    say_farewell(r);
    if (!r->said_farewell)
        return;
    activity_write(r);
    if (r->unsafe != 0)
        return;
    defer_cb *done = r->drained;
    r->drained = NULL;
    done(r->drained_ctx);
}

void relay_drain(struct relay *r, defer_cb *done, void *ctx)
{
    assert(done != NULL && r->drained == NULL);
    r->draining = true;
    r->drained = done;
    r->drained_ctx = ctx;
    timer_set(r->env.clock, &r->farewell, FAREWELL_MS);
    on_retry(&r->retry); /* the last retry of failed store operations */
    turn_want(r, 0);
}

void relay_stop(struct relay *r)
{
    r->draining = true;
    timer_stop(r->env.clock, &r->farewell);
    say_farewell(r);
}

/* ---- the end of a turn ----
 *
 * Results and deliveries come first, so that input of this turn is sent in this turn.  The acks
 * follow as one write, then the answers to platforms, whose callbacks may accept new events. */

static void on_turn_end(struct timer *t)
{
    static const struct {
        unsigned step;
        void (*run)(struct relay *r);
    } steps[] = {
        {TURN_RESULTS, requests_answer_all},
        {TURN_PUMP, pump_all},
        {TURN_ACKS, acks_submit},
        {TURN_ANSWERS, accept_answer_all},
        {TURN_STATES, instance_tell_changes},
    };
    struct relay *r = container_of(t, struct relay, turn_end);

    for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
        if ((r->turn & steps[k].step) == 0)
            continue;
        r->turn &= ~steps[k].step; /* what wants it again from here on waits for the next turn */
        steps[k].run(r);
    }
    if (r->drained != NULL)
        drain_go_on(r);
}

void turn_want(struct relay *r, unsigned steps)
{
    r->turn |= steps;
    if (!timer_is_set(&r->turn_end))
        timer_set(r->env.clock, &r->turn_end, 0);
}

void pending_add(struct relay *r, struct pending *p, void (*free)(struct pending *p))
{
    p->free = free;
    list_init(&p->link);
    list_append(&r->pending, &p->link);
}

void pending_end(struct pending *p)
{
    list_remove(&p->link);
    p->free(p);
}

/* ---- building and taking down ---- */

static void on_key(void *ctx, struct hash128 key, int64_t at_ms)
{
    struct relay *r = ctx;

    dedup_add(&r->dedup, key, at_ms, r->lim.dedup_max);
}

static void build(struct relay *r)
{
    timer_init(&r->turn_end, on_turn_end);
    timer_init(&r->retry, on_retry);
    timer_init(&r->farewell, on_farewell);
    list_init(&r->pending);
    r->upkeep = upkeep_new(r);
    r->json = json_parser_new();
    dedup_init(&r->dedup);
    r->instances = instances_new(r);
    r->sessions = sessions_new();
    r->accepts = accepts_new(r);
    r->deliveries = deliveries_new(r);
    r->pump = pump_new();
    r->chats = chats_new(r);
    r->requests = requests_new(r);
    r->judge = judge_new();
    r->latency = latency_new();
    r->tally = tally_new(r);
    r->journal = r->env.journal != NULL ? r->env.journal : journal_new();
    r->commands = commands_new(r);
    r->spoken = spoken_new();
    r->stage = stage_new(r);
    r->allowances = allowances_new();
}

enum bh_err relay_load(const struct relay_env *env, const struct relay_limits *limits,
                       struct relay **ret_r, char *ret_why)
{
    struct relay *r = xcalloc(1, sizeof *r);

    r->env = *env;
    relay_set_limits(r, limits);
    build(r);
    enum bh_err err = instances_load(r);
    if (err == BH_OK)
        err = chats_load(r);
    commands_load(r);
    if (err == BH_OK)
        err = activity_load(r);
    if (err == BH_OK)
        err = spoken_load(r);
    if (err == BH_OK)
        err = allowances_load(r);
    int64_t since_ms = clock_wall_ms(env->clock) - r->lim.dedup_ms;
    if (err == BH_OK)
        err = env->store->ops->load_keys(env->store, since_ms, on_key, r);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "the store cannot be read: %s", bh_err_word(err));
        relay_free(r);
        return err;
    }
    *ret_r = r;
    return BH_OK;
}

static void tell_stranger(void *ctx, const struct event *place, struct str text)
{
    command_tell(ctx, place, text);
}

void relay_begin(struct relay *r, const struct relay_env *env)
{
    r->env = *env;
    if (env->pairing != NULL)
        pairing_on_tell(env->pairing, tell_stranger, r);
    rand_bytes(env->rand, &r->life, sizeof r->life);
    lives_follow(r);
    sessions_listen(r);
    lives_listen(r);
    wake_listen(r);
    wake_after_start(r);
    stage_begin(r);
    tally_begin(r->tally);
}

void relay_set_limits(struct relay *r, const struct relay_limits *limits)
{
    r->lim = *limits;
    if (r->lim.window == 0 || r->lim.window > MAX_WINDOW)
        r->lim.window = r->lim.window == 0 ? 1 : MAX_WINDOW;
    if (r->lim.max_attempts == 0 || r->lim.max_attempts > SLOT_MAX_ATTEMPTS)
        r->lim.max_attempts = SLOT_MAX_ATTEMPTS;
}

struct journal *relay_journal(const struct relay *r)
{
    return r->journal;
}

/* Parts that point to instances are freed before the instances. */
void relay_free(struct relay *r)
{
    if (r == NULL)
        return;
    timer_stop(r->env.clock, &r->turn_end);
    timer_stop(r->env.clock, &r->retry);
    timer_stop(r->env.clock, &r->farewell);
    upkeep_free(r->upkeep);
    tally_free(r->tally);
    requests_free(r->requests);
    sessions_free(r);
    pump_free(r);
    list_each (&r->pending, it, nxt)
        pending_end(list_entry(it, struct pending, link));
    deliveries_free(r);
    stage_free(r->stage);
    allowances_free(r->allowances);
    accepts_free(r->accepts);
    chats_free(r->chats);
    spoken_free(r->spoken);
    free(r->traced);
    instances_free(r->instances);
    wakes_done(&r->wakes);
    commands_free(r->commands);
    judge_free(r->judge);
    latency_free(r->latency);
    if (r->journal != r->env.journal)
        journal_free(r->journal);
    dedup_done(&r->dedup);
    fifo_done(&r->troubled);
    json_parser_free(r->json);
    free(r);
}
