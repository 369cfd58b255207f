/* world.c - the scheduler: one seed, one life.  (world.h has the contract.)
 *
 *      set up tenants -> TROUBLE: random steps, crashes, restarts -> PEACE: all drains -> judged
 *
 * In a shared world the store is one that several processes have open: it numbers the rows, answers
 * get lost after the commit, and another process may take over while the one before is only
 * stopped, with writes in its hands that reach the disk later.
 *
 * After each step the model's promises are checked and the clock has moved a little. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/observers.h"
#include "simulate/world_priv.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

void world_say(struct world *w, const char *fmt, ...)
{
    va_list ap;
    if (!w->trace)
        return;
    va_start(ap, fmt);
    fprintf(stderr, "%" PRId64 " ", w->now_ms);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

bool world_chance(struct world *w, unsigned percent)
{
    return rand_below(&w->rand, 100) < percent;
}

static void set_clock(struct world *w)
{
    clock_set(w->clock, w->now_ms, 1800000000000 + w->now_ms + w->skew_ms);
}

void world_turn(struct world *w, int64_t ms)
{
    if (w->n_nodes > 0) {
        nodes_turn(w, ms);
        return;
    }
    w->now_ms += ms;
    set_clock(w);
    clock_turn(w->clock);
    edges_move(w);
}

/* Somebody sets the wall clock: an hour back, or most of a day ahead. */
static void jump(struct world *w)
{
    w->skew_ms = w->skew_ms > 0 ? -3600000 : (int64_t)rand_below(&w->rand, 20 * 3600000);
    world_say(w, "the wall clock is set: %" PRId64 " ms from where it should be", w->skew_ms);
    w->result.jumps++;
    set_clock(w);
}

/* What failed is tried again in a while: until then it is not on disk. */
void world_complete(struct world *w, size_t n)
{
    if (sim_store_complete(w->store, n) > 0)
        w->refused_ms = w->now_ms;
}

void world_settle(struct world *w) /* let the disk and the loop catch up with each other */
{
    if (w->n_nodes > 0) {
        nodes_settle(w);
        return;
    }
    for (int i = 0; i < 20; i++) {
        sim_store_commit(w->store, SIZE_MAX, SIM_WELL);
        world_complete(w, SIZE_MAX);
        world_turn(w, 1);
    }
}

/* ---- names and their holders ---- */

/* Two instances share a tenant, the third is a stranger with the same instance name. */
static struct grant_who who(unsigned i)
{
    return (struct grant_who){i < 2 ? STR("acme") : STR("other"), i == 1 ? STR("bob") : STR("ann")};
}

uint32_t world_holder(const struct world *w, unsigned i)
{
    if (w->facts == NULL)
        return w->model.holder[i]; /* nobody serves just now */
    const struct gate_instance *in = grant_instance(w->facts, who(i));
    return in != NULL ? in->life : 0;
}

/* The model learns what the facts know: who holds each name, and whether anybody does. */
void world_tell_holders(struct world *w)
{
    for (unsigned i = 0; i < MODEL_INSTANCES && w->facts != NULL; i++) {
        const struct gateway *gw = facts_gateway(w->facts, str_of(w->peers[i].id));
        uint32_t now = world_holder(w, i);
        w->model.gone[i] = gw != NULL && gw->revoked_ms != 0;
        if (now == w->model.holder[i])
            continue;
        world_say(w, "  the name of instance %u was given up", i);
        model_ended(&w->model, i, now);
        w->peers[i].asleep = false;
        w->last_poke_ms[i] = 0; /* the next holder has its own */
        w->result.endings++;
    }
}

void world_boot(struct world *w)
{
    char why[256] = "";
    w->observers = observers_new(w->clock);
    struct facts_env fenv = {.clock = w->clock,
                             .store = w->store,
                             .observers = w->observers,
                             .rand = &w->relay_rand,
                             .seal = w->seal};
    struct relay_env renv = {.clock = w->clock,
                             .store = w->store,
                             .observers = w->observers,
                             .rand = &w->relay_rand,
                             .waker = &w->waker,
                             .outside = &w->outside};
    if (facts_open(&fenv, &w->facts, why) != BH_OK)
        model_break(&w->model, "facts do not open: %s", why);
    renv.facts = w->facts;
    if (w->facts == NULL || relay_load(&renv, &w->limits, &w->relay, why) != BH_OK)
        model_break(&w->model, "the relay does not open: %s", why);
    else
        relay_begin(w->relay, &renv);
    w->drained = false;
    memset(w->changing, 0, sizeof w->changing);
    world_tell_holders(w);
}

static void boot(struct world *w)
{
    w->store = sim_store_open(w->disk);
    if (w->shared)
        sim_store_serve(w->store);
    world_boot(w);
}

/* The process is gone between two instructions: nothing is flushed, nobody is told. */
static void halt(struct world *w)
{
    store_close(w->store);
    w->store = NULL;
    relay_free(w->relay);
    facts_free(w->facts);
    observers_free(w->observers);
    peers_lost(w);
    clock_free(w->clock);
    w->clock = clock_new();
    set_clock(w);
}

/* Sleep survives: who was told "you sleep" is asleep for the next process too. */
void world_check_sleepers(struct world *w)
{
    for (unsigned i = 0; i < MODEL_INSTANCES && w->relay != NULL; i++) {
        const struct gateway *gw = facts_gateway(w->facts, str_of(w->peers[i].id));
        struct instance_view v;
        if (w->peers[i].asleep && gw != NULL &&
            (!relay_instance(w->relay, str_of(gw->tenant), str_of(gw->instance), &v) ||
             strcmp(v.state, "asleep") != 0))
            model_break(&w->model, "instance %u: was told it sleeps, and a restart forgot it", i);
    }
}

/* May it be poked, and is there something to poke for? */
static bool awaits_poke(struct world *w, unsigned i, struct instance_view *ret)
{
    const struct gateway *gw = facts_gateway(w->facts, str_of(w->peers[i].id));
    return gw != NULL && gw->revoked_ms == 0 &&
           relay_instance(w->relay, str_of(gw->tenant), str_of(gw->instance), ret) &&
           ret->wake_url && ret->entries > ret->parked &&
           (strcmp(ret->state, "asleep") == 0 || strcmp(ret->state, "away") == 0);
}

/* True: all of them are poked in time. */
static bool all_poked(struct world *w, const bool waits[MODEL_INSTANCES], int64_t patience_ms)
{
    for (int64_t waited_ms = 0; waited_ms <= patience_ms; waited_ms += 2000) {
        bool all = true;
        for (unsigned i = 0; i < MODEL_INSTANCES; i++)
            all &= !waits[i] || w->poked[i];
        if (all)
            return true;
        world_turn(w, 2000);
    }
    return false;
}

/* Promise 8: nobody does anything, and yet every sleeper with mail is poked: within ten seconds if
 * it never was, else when the longest pause is over; and again, when that brought nobody. */
static void vigil(struct world *w)
{
    const int64_t longest_ms = 16 * 60000;
    struct instance_view v;
    bool waits[MODEL_INSTANCES] = {false};
    int64_t patience_ms = 10000;
    for (unsigned i = 0; i < MODEL_INSTANCES; i++) {
        waits[i] = awaits_poke(w, i, &v);
        w->poked[i] = false;
        if (waits[i] && v.last_poke_ms != 0)
            patience_ms = longest_ms;
        w->result.vigils += waits[i];
    }
    if (!all_poked(w, waits, patience_ms))
        model_break(&w->model, "somebody has mail, and a restart forgot to poke for it");
    if (!world_chance(w, 30))
        return;
    memset(w->poked, 0, sizeof w->poked);
    while (w->n_pokes > 0) {
        struct pending_poke p = w->pokes[--w->n_pokes];
        p.done(p.ctx, true, NULL);
    }
    if (!all_poked(w, waits, longest_ms))
        model_break(&w->model, "a poke that brought nobody back is not repeated");
}

/* ---- another process takes over ---- */

/* What the stopped one held reaches the disk, some of it or all; nobody in it is told. */
static void late_writes(struct world *w, size_t n)
{
    if (w->stopped.store != NULL)
        sim_store_commit(w->stopped.store, n, SIM_WELL);
}

static void bury(struct world *w)
{
    struct stopped *p = &w->stopped;
    if (p->store == NULL)
        return;
    late_writes(w, SIZE_MAX);
    store_close(p->store);
    relay_free(p->relay);
    facts_free(p->facts);
    observers_free(p->observers);
    clock_free(p->clock);
    *p = (struct stopped){0};
}

/* The process stops between two instructions, and does not know it. */
static void stop(struct world *w)
{
    bury(w);
    w->stopped = (struct stopped){w->clock, w->store, w->observers, w->facts, w->relay};
    w->store = NULL;
    peers_lost(w);
    w->clock = clock_new();
    set_clock(w);
}

static void crash(struct world *w)
{
    bool all_on_disk = sim_store_queued(w->store) == 0 && sim_store_finished(w->store) == 0 &&
                       w->now_ms - w->refused_ms > 5000;
    bool stops = w->shared && world_chance(w, 50);
    world_say(w, stops ? "STOPPED, another takes over" : "CRASH");
    if (stops)
        stop(w);
    else
        halt(w);
    for (unsigned i = 0; i < MODEL_INSTANCES;
         i++) /* the next process counts on by the wall clock */
        if (!all_on_disk || w->poke_skew_ms[i] != w->skew_ms)
            w->last_poke_ms[i] = 0;
    model_crashed(&w->model);
    w->result.crashes++;
    boot(w);
    world_check_sleepers(w);
    if (w->relay != NULL && world_chance(w, 30))
        vigil(w);
}

static void on_drained(void *ctx)
{
    struct world *w = ctx;
    w->drained = true;
}

static void restart(struct world *w)
{
    world_say(w, "DRAIN");
    relay_drain(w->relay, on_drained, w);
    for (int i = 0; i < 50 && !w->drained; i++) {
        sim_store_commit(w->store, SIZE_MAX, SIM_WELL);
        world_complete(w, SIZE_MAX);
        peers_finish_closes(w, true);
        peer_step(w, &w->peers[rand_below(&w->rand, MODEL_INSTANCES)]); /* the last acks, or none */
        world_turn(w, i < 20 ? 5 : 20);
    }
    if (!w->drained)
        model_break(&w->model, "a drain does not end");
    crash(w);
}

static void add_done(void *ctx, enum bh_err err, const char *why)
{
    struct world *w = ctx;
    if (err != BH_OK)
        model_break(&w->model, "setting up failed: %s", why != NULL ? why : bh_err_word(err));
}

static void add_gateway(struct world *w, unsigned i, facts_done_cb *done, void *ctx)
{
    char url[32];
    struct buf id = BUF_INIT, secret = BUF_INIT;
    snprintf(url, sizeof url, "http://wake.example/%u", i);
    struct gateway_spec spec = {.id = str_of(w->peers[i].id),
                                .tenant = who(i).tenant,
                                .instance = who(i).instance,
                                .wake_url = world_chance(w, 80) ? str_of(url) : STR_NULL};
    facts_gateway_add(w->facts, &spec, &id, &secret, done, ctx);
    buf_done(&id);
    buf_done(&secret);
}

static void open_route(struct world *w, const char *key, struct str tenant, struct str instance)
{
    const struct route_spec open = {.platform = STR("web"),
                                    .key = str_of(key),
                                    .tenant = tenant,
                                    .instance = instance,
                                    .open = true};
    facts_route_add(w->facts, &open, add_done, w);
}

static void found_tenants(struct world *w)
{
    open_route(w, "both", STR("acme"), STR_NULL); /* to all of the tenant: while it has none yet */
    world_settle(w);
    for (unsigned i = 0; i < MODEL_INSTANCES; i++) {
        char key[8];
        add_gateway(w, i, add_done, w);
        if (w->waits && i != 1)
            facts_gateway_is_newer(w->facts, str_of(w->peers[i].id));
        snprintf(key, sizeof key, "k%u", i);
        open_route(w, key, who(i).tenant, who(i).instance);
        world_settle(w);
    }
}

static void on_changed_holder(void *ctx, enum bh_err err, const char *why)
{
    (void)err; /* a store that fails: asked again some time */
    (void)why;
    *(bool *)ctx = false;
}

/* Give a name up, or let somebody take one that is free. */
static void change_holder(struct world *w, unsigned i)
{
    if (w->changing[i])
        return;
    w->changing[i] = true;
    world_tell_holders(w);
    if (w->model.gone[i]) {
        world_say(w, "somebody takes the name of instance %u", i);
        add_gateway(w, i, on_changed_holder, &w->changing[i]);
    } else {
        world_say(w, "instance %u is deprovisioned", i);
        grant_deprovision(w->facts, who(i), on_changed_holder, &w->changing[i]);
        w->heat = 30;
    }
}

void world_churn(struct world *w)
{
    unsigned i = (unsigned)rand_below(&w->rand, MODEL_INSTANCES);
    if (w->model.gone[i] ? world_chance(w, 30) : world_chance(w, 3))
        change_holder(w, i);
}

/* Something delicate is under way: writes one by one, crashes between any two of them. */
static void heat_step(struct world *w)
{
    if (w->heat == 0)
        return;
    w->heat--;
    if (world_chance(w, 40))
        sim_store_commit(w->store, 1, SIM_WELL);
    if (world_chance(w, 40))
        world_complete(w, 1);
    if (world_chance(w, 8))
        crash(w);
}

void world_answer(struct world *w)
{
    for (size_t i = w->n_pokes; i-- > 0;) {
        struct pending_poke p = w->pokes[i];
        if (p.of != NULL && p.of->frozen)
            continue;
        w->pokes[i] = w->pokes[--w->n_pokes];
        nodes_enter(w, p.of);
        p.done(p.ctx, world_chance(w, 70), "no answer");
    }
    for (size_t i = w->n_wants; i-- > 0;) {
        struct pending_want p = w->wants[i];
        if ((p.of != NULL && (p.of->frozen || !p.of->alive)) || (!w->peace && world_chance(w, 50)))
            continue;
        w->wants[i] = w->wants[--w->n_wants];
        nodes_enter(w, p.of);
        const struct event_said said = {STR("before"), STR("b"), STR("v"), STR("V")};
        const struct relay_file file = {STR("0123456789abcdef0123456789abcdef"), STR("image/png"),
                                        9};
        if (p.context)
            relay_context(w->relay, p.id, &said, 1, world_chance(w, 20));
        else if (world_chance(w, 70))
            relay_file_here(w->relay, p.id, p.file, &file);
        else
            relay_file_lost(w->relay, p.id, p.file, "nobody knows it");
    }
    if (w->n_actions > 0 && w->actors[w->n_actions - 1] == w->at) {
        struct action_id id = w->actions[--w->n_actions];
        relay_result(w->relay, id,
                     &(struct action_result){.success = true, .message_id = STR("m")});
    }
}

static void commit(struct world *w)
{
    enum sim_fate fate = world_chance(w, 6) ? SIM_ROLLED_BACK : SIM_WELL;
    if (w->shared && fate == SIM_WELL && world_chance(w, 8))
        fate = SIM_ANSWER_LOST;
    sim_store_commit(w->store, 1 + rand_below(&w->rand, 12), fate);
}

static void trouble_step(struct world *w)
{
    uint64_t dice = rand_below(&w->rand, 1000);
    if (dice < 300)
        posts_step(w);
    else if (dice < 650)
        peer_step(w, &w->peers[rand_below(&w->rand, MODEL_INSTANCES)]);
    else if (dice < 780)
        commit(w);
    else if (dice < 900)
        world_complete(w, 1 + rand_below(&w->rand, 12));
    else if (dice < 950)
        peers_finish_closes(w, false);
    else if (dice < 970)
        world_answer(w);
    else if (dice < 985)
        world_turn(w, (int64_t)rand_below(&w->rand, 40000)); /* patience runs out somewhere */
    else if (dice < 993)
        crash(w);
    else if (dice < 995)
        restart(w);
    if (w->churn)
        world_churn(w);
    heat_step(w);
    if (w->stopped.store != NULL && world_chance(w, 20))
        late_writes(w, 1 + rand_below(&w->rand, 4));
    if (world_chance(w, 2) && world_chance(w, 30))
        jump(w);
    world_turn(w, (int64_t)rand_below(&w->rand, 4));
    world_tell_holders(w);
}

static void make_peace(struct world *w)
{
    w->peace = true;
    world_say(w, "PEACE");
    bury(w);
    if (w->n_nodes > 0)
        nodes_calm(w);
    world_settle(w);
    world_tell_holders(w);
    for (unsigned i = 0; i < MODEL_INSTANCES; i++)
        if (w->model.gone[i])
            change_holder(w, i);
    world_settle(w);
    world_tell_holders(w);
    for (int i = 0; i < 400 && w->model.broken[0] == '\0'; i++) {
        for (size_t k = 0; k < MODEL_INSTANCES; k++)
            peer_peace(w, &w->peers[k]);
        world_answer(w);
        world_settle(w);
        model_check(&w->model);
        if (i > 5 && w->store == NULL) {
            model_break(&w->model, "nobody serves, and nothing keeps the nodes from it");
            return;
        }
        if (i > 5 && sim_store_queued(w->store) == 0 && sim_store_finished(w->store) == 0) {
            bool waiting = false;
            struct instance_view v;
            for (uint32_t pos = 0; relay_next_instance(w->relay, &pos, &v);)
                waiting |= v.entries > v.parked;
            for (size_t e = 0; e < w->model.n; e++)
                waiting |= w->model.events[e].accepting;
            waiting |= relay_waiting(w->relay) > 0;
            if (!waiting && i > 20)
                break;
        }
        if (i == 399)
            model_break(&w->model, "everybody acks what comes, and yet a mailbox does not empty");
        world_turn(w, 300);
    }
    model_check_end(&w->model);
    for (size_t e = 0; e < w->model.n; e++)
        if (w->model.events[e].accepting)
            model_break(&w->model, "%s: its accept was never answered", w->model.events[e].name);
}

static void set_limits(struct world *w)
{
    w->limits = relay_limits_default;
    w->limits.window = 1 + rand_below(&w->rand, 8);
    if (world_chance(w, 50))
        w->limits.pack_bytes = 300 + rand_below(&w->rand, 2000);
    w->limits.max_attempts = world_chance(w, 20) ? 3 : 60;
    w->model.max_attempts = w->limits.max_attempts;
}

static void open_world(struct world *w, const struct world_plan *p)
{
    uint64_t seed = p->seed;
    bool shared = p->shared || p->nodes > 0;
    char why[256];
    *w = (struct world){.trace = p->trace, .shared = shared, .now_ms = 1000};
    w->churn = seed % 3 == 0;
    w->rand = rand_seeded(seed * 2 + 1);
    w->relay_rand = rand_seeded(seed * 7919 + 13);
    w->outlet = (struct outlet){.platform = "web", .bot = "lobby", .descriptor = &descriptor_relay};
    w->parser = json_parser_new();
    w->disk = shared ? sim_disk_new_shared() : sim_disk_new();
    model_init(&w->model, w->disk);
    w->model.shared = shared;
    w->waits = seed % 2 == 1;
    w->burst_ms = seed % 4 >= 2 ? 5 + (int64_t)(seed / 4 % 8) * 10 : 0;
    w->model.bursts = w->burst_ms > 0;
    w->model.per_chat = w->waits || w->burst_ms > 0;
    if (seal_open_master(STR("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
                         STR("salt"), NULL, &w->seal, why) != BH_OK)
        model_break(&w->model, "no seal: %s", why);
    peers_init(w);
    for (size_t i = 0; i < MODEL_INSTANCES && seed % 7 == 6; i++)
        w->peers[i].late_acks = true;
    set_limits(w);
    if (p->nodes > 0) {
        nodes_open(w, p->nodes);
        return;
    }
    w->clock = clock_new();
    set_clock(w);
    if (seed % 5 < 3)
        edges_open(w, 2);
    boot(w);
}

static void close_world(struct world *w)
{
    bury(w);
    if (w->n_nodes > 0) {
        nodes_close(w);
    } else {
        halt(w);
        clock_free(w->clock);
    }
    edges_close(w);
    json_parser_free(w->parser);
    seal_free(w->seal);
    sim_disk_free(w->disk);
    model_done(&w->model);
    posts_done(w);
}

struct world_result world_run(const struct world_plan *p)
{
    struct world *w = xcalloc(1, sizeof *w);
    open_world(w, p);
    found_tenants(w);
    uint64_t steps = 100 + rand_below(&w->rand, 200);
    while (w->result.steps < steps && w->model.broken[0] == '\0') {
        w->result.steps++;
        if (w->n_nodes > 0)
            nodes_step(w);
        else
            trouble_step(w);
        model_check(&w->model);
    }
    if (w->model.broken[0] == '\0')
        make_peace(w);
    struct world_result r = w->result;
    r.ok = w->model.broken[0] == '\0';
    r.checks = w->model.checks;
    snprintf(r.broken, sizeof r.broken, "%s", w->model.broken);
    close_world(w);
    free(w);
    return r;
}
