/* relay.c - design.  (relay.h has the contract.)
 *
 * Building and taking down, the end of a turn, and the drain.  The order at the end of a turn:
 * results and deliveries first, so that what came in this turn goes out in it; then the acks, as one
 * write; then the answers to platforms, whose callbacks may start the next round. */
#include "relay/relay.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "bus/bus.h"
#include "relay/accept.h"
#include "relay/chats.h"
#include "relay/delivery.h"
#include "relay/fetch.h"
#include "relay/heart.h"
#include "relay/instance.h"
#include "relay/interrupt.h"
#include "relay/judge.h"
#include "relay/linking.h"
#include "relay/look.h"
#include "relay/pump.h"
#include "relay/rate.h"
#include "relay/requests.h"
#include "relay/session.h"
#include "store/store.h"
#include "tenancy/facts.h"

enum {
    LOG_EVERY_MS = 10000,
    FORGET_EVERY_MS = 600000,
    TRIM_CHATS = 100000, /* looked at each time: some milliseconds */
    BOOT_SHIFT = 40,
    MAX_WINDOW = 1024,
};

const struct relay_limits relay_limits_default = {
    .window = 8,
    .pack_bytes = 256 << 10,
    .max_frame = 1 << 20,
    .max_mailbox_bytes = 1ull << 30,
    .live_acks = true,
    .ping_ms = 10000,
    .pong_patience_ms = 20000,
    .ack_patience_ms = 90000,
    .max_attempts = 10,
    .wake_cooldown_ms = 30000,
    .old_socket_ms = 60000,
    .action_ms = 28000,
    .dedup_ms = 24 * 3600 * 1000ll,
    .dedup_max = 1000000,
    .max_chats = 65536,
    .instance_actions = 200,
    .tenant_actions = 1000,
};

/* ---- the end of a turn ---- */

#define FAREWELL_MS 500 /* how long a drain waits for acks and results that are under way */

void heart_wake(struct relay *r)
{
    if (!timer_is_set(&r->turn))
        timer_set(r->env.clock, &r->turn, 0);
}

/* Peers that are about to ack, or whose request is about to be answered, are worth a moment: an ack
 * still in the socket when we close it is a message delivered twice. */
static bool is_worth_waiting_for(const struct session *s)
{
    return (s->state == SESSION_RECEIVING && flight_count(s->flight) > 0) ||
           !list_is_empty(&s->requests);
}

static void say_farewell(struct relay *r)
{
    if (r->drained == NULL || r->farewell_said)
        return;
    list_each (&r->sessions, it, nxt)
        if (timer_is_set(&r->farewell) &&
            is_worth_waiting_for(list_entry(it, struct session, by_age)))
            return;
    r->farewell_said = true;
    timer_stop(r->env.clock, &r->farewell);
    list_each (&r->sessions, at, after)
        session_close(list_entry(at, struct session, by_age), CLOSE_RESTARTING);
}

static void on_farewell(struct timer *t)
{
    struct relay *r = container_of(t, struct relay, farewell);
    say_farewell(r); /* the timer has gone off: nobody is waited for any more */
    heart_wake(r);
}

static void check_drained(struct relay *r)
{
    if (r->drained == NULL || !r->farewell_said || r->volatile_bytes != 0 || acks_pending(r) ||
        r->records_writing != 0 || !list_is_empty(&r->answers))
        return;
    defer_cb *done = r->drained;
    r->drained = NULL;
    done(r->drained_ctx);
}

static void on_turn(struct timer *t)
{
    struct relay *r = container_of(t, struct relay, turn);

    requests_answer_all(r);
    pump_all(r);
    acks_submit(r);
    accept_answer_all(r);
    instance_tell_changes(r);
    say_farewell(r);
    check_drained(r);
}

void heart_trouble(struct instance *i)
{
    struct relay *r = i->relay;

    list_move(&i->trouble_link, &r->troubled);
    if (!timer_is_set(&r->retry))
        timer_set(r->env.clock, &r->retry, RETRY_MS);
}

static void on_retry(struct timer *t)
{
    struct relay *r = container_of(t, struct relay, retry);

    acks_retry(r);
    while (!list_is_empty(&r->troubled)) {
        struct instance *i = list_first(&r->troubled, struct instance, trouble_link);
        list_remove(&i->trouble_link);
        instance_record_retry(i);
        delivery_retry(i);
        pump_want(i);
    }
}

bool heart_may_log(struct relay *r, struct rate *rate, uint64_t *ret_skipped)
{
    int64_t now_ms = clock_now_ms(r->env.clock);

    if (now_ms < rate->next_ms) {
        rate->skipped++;
        return false;
    }
    *ret_skipped = rate->skipped;
    rate->skipped = 0;
    rate->next_ms = now_ms + LOG_EVERY_MS;
    return true;
}

static void on_forget(struct timer *t)
{
    struct relay *r = container_of(t, struct relay, forget);
    int64_t before_ms = clock_wall_ms(r->env.clock) - r->lim.dedup_ms;

    dedup_expire(&r->dedup, before_ms);
    chats_trim(r, TRIM_CHATS);
    r->env.store->ops->forget_keys(r->env.store, before_ms);
    timer_set(r->env.clock, &r->forget, FORGET_EVERY_MS);
}

/* ---- opening ---- */

static void on_revoked(void *ctx, struct str topic, struct str id)
{
    struct relay *r = ctx;

    (void)topic;
    list_each (&r->sessions, it, nxt) {
        struct session *s = list_entry(it, struct session, by_age);
        if (str_eq(str_of(s->gw->id), id))
            session_close(s, CLOSE_REVOKED);
    }
}

static void on_key(void *ctx, struct hash128 key, int64_t at_ms)
{
    struct relay *r = ctx;

    dedup_add(&r->dedup, key, at_ms, r->lim.dedup_max);
}

static enum bh_err load(struct relay *r)
{
    struct store *st = r->env.store;
    enum bh_err err = instance_load_all(r);

    if (err == BH_OK)
        err = chats_load_all(r);
    if (err == BH_OK)
        err = requests_load(r);
    if (err == BH_OK)
        err = st->ops->load_keys(st, clock_wall_ms(r->env.clock) - r->lim.dedup_ms, on_key, r);
    return err;
}

static void init_lists(struct relay *r)
{
    struct list *const heads[] = {&r->instances, &r->sessions, &r->to_pump,     &r->hungry,
                                  &r->troubled,  &r->changed,  &r->accepts,     &r->answers,
                                  &r->settling,  &r->spare,    &r->ack_batches, &r->fetches,
                                  &r->marks,     &r->shows,    &r->linking,     &r->old_chats};

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        list_init(heads[i]);
}

enum bh_err relay_open(const struct relay_env *env, const struct relay_limits *limits,
                       struct relay **ret_r, char *ret_why)
{
    struct relay *r = xcalloc(1, sizeof *r);

    r->env = *env;
    r->store_ops = env->store->ops;
    relay_set_limits(r, limits);
    init_lists(r);
    timer_init(&r->turn, on_turn);
    timer_init(&r->retry, on_retry);
    timer_init(&r->forget, on_forget);
    dedup_init(&r->dedup);
    r->next_box = 1;
    r->next_id = env->store->boot << BOOT_SHIFT | 1;
    r->json = json_parser_new();
    r->requests = requests_new(r);
    r->rates = rates_new();
    r->judge = judge_new(r);
    enum bh_err err = load(r);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "the store cannot be read: %s", bh_err_word(err));
        relay_free(r);
        return err;
    }
    r->interrupts = interrupts_new(r);
    bus_subscribe(env->bus, "revoked", on_revoked, r);
    timer_set(env->clock, &r->forget, FORGET_EVERY_MS);
    *ret_r = r;
    return BH_OK;
}

void relay_set_limits(struct relay *r, const struct relay_limits *limits)
{
    r->lim = *limits;
    if (r->lim.window == 0 || r->lim.window > MAX_WINDOW)
        r->lim.window = r->lim.window == 0 ? 1 : MAX_WINDOW;
    if (r->lim.max_attempts == 0 || r->lim.max_attempts > SLOT_MAX_ATTEMPTS)
        r->lim.max_attempts = SLOT_MAX_ATTEMPTS;
}

static void free_ackers(struct relay *r)
{
    void *id;

    for (size_t pos = 0; map_next(&r->ackers, &pos, &id);)
        free(id);
    map_done(&r->ackers);
}

void relay_free(struct relay *r)
{
    if (r == NULL)
        return;
    timer_stop(r->env.clock, &r->turn);
    timer_stop(r->env.clock, &r->retry);
    timer_stop(r->env.clock, &r->forget);
    timer_stop(r->env.clock, &r->farewell);
    requests_free(r->requests);
    session_free_all(r);
    fetch_free_all(r);
    look_free_all(r);
    delivery_free_all(r);
    accept_free_all(r);
    chats_free_all(r);
    instance_free_all(r);
    interrupts_free(r->interrupts);
    linking_free_all(r);
    judge_free(r->judge);
    rates_free(r->rates);
    free_ackers(r);
    dedup_done(&r->dedup);
    json_parser_free(r->json);
    buf_done(&r->frame);
    buf_done(&r->key);
    free(r);
}

void relay_drain(struct relay *r, defer_cb *done, void *ctx)
{
    assert(done != NULL && r->drained == NULL);
    r->draining = true;
    r->drained = done;
    r->drained_ctx = ctx;
    timer_init(&r->farewell, on_farewell);
    timer_set(r->env.clock, &r->farewell, FAREWELL_MS);
    timer_stop(r->env.clock, &r->retry);
    on_retry(&r->retry); /* what the store refused before gets its last chance now */
    heart_wake(r);
}
