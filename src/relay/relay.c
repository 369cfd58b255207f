/* relay.c - design.  (relay.h has the contract.)
 *
 * Building and taking down.  What the parts do is in their own files. */
#include "relay/relay.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "relay/in/accept.h"
#include "relay/session/acking.h"
#include "relay/mailbox/acks.h"
#include "relay/sleep/activity.h"
#include "relay/out/byline.h"
#include "relay/out/chats.h"
#include "relay/mailbox/delivery.h"
#include "relay/drain.h"
#include "relay/mailbox/fetch.h"
#include "relay/mailbox/gap.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/in/interrupt.h"
#include "relay/in/judge.h"
#include "relay/sleep/life.h"
#include "relay/in/linking.h"
#include "relay/session/pump.h"
#include "relay/out/requests.h"
#include "relay/mailbox/retry.h"
#include "relay/session/session.h"
#include "relay/out/spoken.h"
#include "relay/mailbox/tend.h"
#include "relay/turn.h"
#include "relay/upkeep.h"
#include "store/store.h"

enum { MAX_WINDOW = 1024 };

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

static void on_key(void *ctx, struct hash128 key, int64_t at_ms)
{
    struct relay *r = ctx;

    dedup_add(&r->dedup, key, at_ms, r->lim.dedup_max);
}

static enum bh_err load(struct relay *r)
{
    struct store *st = r->env.store;
    enum bh_err err = instances_load(r);

    if (err == BH_OK)
        err = chats_load(r);
    interrupts_load(r);
    if (err == BH_OK)
        err = activity_load(r);
    if (err == BH_OK)
        err = requests_load(r);
    if (err == BH_OK)
        err = spoken_load(r);
    if (err == BH_OK)
        err = st->ops->load_keys(st, clock_wall_ms(r->env.clock) - r->lim.dedup_ms, on_key, r);
    return err;
}

static void build(struct relay *r)
{
    r->turn = turn_new(r);
    r->retry = retry_new(r);
    r->drain = drain_new(r);
    r->upkeep = upkeep_new(r);
    r->json = json_parser_new();
    dedup_init(&r->dedup);
    r->instances = instances_new();
    r->lives = lives_new();
    r->sessions = sessions_new();
    r->accepts = accepts_new();
    r->deliveries = deliveries_new(r);
    r->acks = acks_new();
    r->activity = activity_new(r);
    r->acking = acking_new();
    r->pump = pump_new();
    r->fetches = fetches_new();
    r->gaps = gaps_new();
    r->chats = chats_new();
    r->participants = participants_new();
    r->requests = requests_new(r);
    r->judge = judge_new();
    r->interrupts = interrupts_new(r);
    r->linkings = linkings_new();
    r->shows = shows_new();
    r->spoken = spoken_new();
}

enum bh_err relay_load(const struct relay_env *env, const struct relay_limits *limits,
                       struct relay **ret_r, char *ret_why)
{
    struct relay *r = xcalloc(1, sizeof *r);

    r->env = *env;
    r->store_ops = env->store->ops;
    relay_set_limits(r, limits);
    build(r);
    enum bh_err err = load(r);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "the store cannot be read: %s", bh_err_word(err));
        relay_free(r);
        return err;
    }
    *ret_r = r;
    return BH_OK;
}

void relay_begin(struct relay *r, const struct relay_env *env)
{
    r->env = *env;
    lives_follow(r);
    sessions_listen(r);
    lives_listen(r);
    interrupts_listen(r);
    wake_listen(r);
    wake_after_start(r);
}

enum bh_err relay_open(const struct relay_env *env, const struct relay_limits *limits,
                       struct relay **ret_r, char *ret_why)
{
    enum bh_err err = relay_load(env, limits, ret_r, ret_why);

    if (err == BH_OK)
        relay_begin(*ret_r, env);
    return err;
}

void relay_set_limits(struct relay *r, const struct relay_limits *limits)
{
    r->lim = *limits;
    if (r->lim.window == 0 || r->lim.window > MAX_WINDOW)
        r->lim.window = r->lim.window == 0 ? 1 : MAX_WINDOW;
    if (r->lim.max_attempts == 0 || r->lim.max_attempts > SLOT_MAX_ATTEMPTS)
        r->lim.max_attempts = SLOT_MAX_ATTEMPTS;
}

/* Those that hold something of an instance go before the instances. */
void relay_free(struct relay *r)
{
    if (r == NULL)
        return;
    turn_free(r->turn);
    retry_free(r->retry);
    drain_free(r->drain);
    upkeep_free(r->upkeep);
    requests_free(r->requests);
    sessions_free(r);
    fetches_free(r);
    gaps_free(r->gaps);
    shows_free(r->shows);
    deliveries_free(r);
    acks_free(r->acks);
    activity_free(r->activity);
    acking_free(r->acking);
    accepts_free(r->accepts);
    chats_free(r->chats);
    pump_free(r->pump);
    instances_free(r->instances);
    wakes_done(&r->wakes);
    lives_free(r->lives);
    interrupts_free(r->interrupts);
    linkings_free(r->linkings);
    judge_free(r->judge);
    spoken_free(r->spoken);
    participants_free(r->participants);
    dedup_done(&r->dedup);
    json_parser_free(r->json);
    free(r);
}
