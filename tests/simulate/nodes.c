/* nodes.c - several processes on one database, each with the real lease logic (cluster/node.h).
 *
 *      DOWN --started--> waits --granted--> reads everything --> serves --its time is up--> over
 *       ^                  |                                       |                         |
 *       '---- killed ------'------------ killed, drained ----------'-------------------------'
 *
 *      any of them may be frozen for longer than its lease, between BEGIN and COMMIT too, and goes
 *      on later as if nothing had happened; or its line to the database is deaf, and it runs on
 *
 * Each has clocks of its own: a monotonic one that began somewhere, and a wall clock that is wrong.
 * The time by which the world and the database go is w->now_ms.  One turn of a process is what
 * net/loop.h says: the clock is set, node_look(), what came meanwhile, timers.
 *
 * Whoever began to serve last is w->current; the process whose code runs is w->at. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/observers.h"
#include "simulate/truth.h"
#include "simulate/world_priv.h"
#include "tenancy/facts.h"

enum {
    STEP_MS = 100,     /* longer times pass in steps */
    IDLE_TX_MS = 2000, /* the database ends a transaction whose client says nothing */
    PARTING_MS = 500,  /* from the end of its lease to the end of the process */
    DRAIN_MS = 3000,
    CALM_STEPS = 2000,
};

void nodes_enter(struct world *w, struct sim_node *n)
{
    if (w->n_nodes == 0 || w->at == n)
        return;
    w->at = n;
    w->clock = n != NULL ? n->clock : NULL;
    w->store = n != NULL ? n->store : NULL;
    w->observers = n != NULL ? n->observers : NULL;
    w->facts = n != NULL ? n->facts : NULL;
    w->relay = n != NULL ? n->relay : NULL;
}

void nodes_judge(struct world *w, const char *what)
{
    const struct truth *t = w->n_nodes > 0 ? sim_disk_truth(w->disk) : NULL;
    if (t != NULL && !truth_holds(t, w->at->epoch, w->now_ms))
        model_break(&w->model, "%s: %s under epoch %" PRIu64 " %" PRId64 " ms after its end",
                    w->at->name, what, w->at->epoch, w->now_ms - t->until_ms);
}

static void set_clock(struct world *w, const struct sim_node *n)
{
    clock_set(n->clock, w->now_ms + n->offset_ms, 1800000000000 + w->now_ms + n->skew_ms);
}

/* ---- the life of a process ---- */

static void on_over(void *ctx, const char *why)
{
    struct sim_node *n = ctx;
    struct world *w = n->world;
    world_say(w, "%s is over: %s", n->name, why);
    n->over = true;
    n->since_ms = w->now_ms;
    n->poll_ms = 0; /* it hangs up */
    if (n->relay != NULL)
        relay_stop(n->relay);
}

static void start(struct world *w, struct sim_node *n)
{
    world_say(w, "%s starts", n->name);
    n->alive = true;
    n->frozen = n->draining = n->drained = n->over = n->serves = false;
    n->line = LINE_WELL;
    n->epoch = n->boot = 0;
    n->clock = clock_new();
    set_clock(w, n);
    n->store = sim_store_open(w->disk);
    n->node = node_open(&(struct node_env){.clock = n->clock,
                                           .store = n->store,
                                           .rand = &n->rand,
                                           .settings = &n->settings,
                                           .over = on_over,
                                           .ctx = n});
}

static void forget_asked(struct world *w, const struct sim_node *n)
{
    for (size_t i = w->n_pokes; i-- > 0;)
        if (w->pokes[i].of == n)
            w->pokes[i] = w->pokes[--w->n_pokes];
    for (size_t i = w->n_actions; i-- > 0;)
        if (w->actors[i] == n) {
            w->actions[i] = w->actions[--w->n_actions];
            w->actors[i] = w->actors[w->n_actions];
        }
    for (size_t i = w->n_wants; i-- > 0;)
        if (w->wants[i].of == n)
            w->wants[i] = w->wants[--w->n_wants];
}

/* What the one that serves knows of the holders, whether it goes on or not. */
static void learn(struct world *w)
{
    if (w->current == NULL || !w->current->serves)
        return;
    nodes_enter(w, w->current);
    world_tell_holders(w);
}

/* @clean: it gives the lease up and writes what is queued. */
static void end(struct world *w, struct sim_node *n, bool clean)
{
    world_say(w, "%s %s", n->name, clean ? "ends" : "is killed");
    learn(w);
    nodes_enter(w, n);
    if (clean) {
        node_release(n->node);
        sim_store_commit(n->store, SIZE_MAX, SIM_WELL);
    }
    store_close(n->store);
    node_free(n->node);
    relay_free(n->relay);
    facts_free(n->facts);
    if (n->observers != NULL)
        observers_free(n->observers);
    n->node = NULL;
    n->store = NULL;
    n->relay = NULL;
    n->facts = NULL;
    n->observers = NULL;
    n->alive = n->serves = false;
    n->since_ms = w->now_ms;
    forget_asked(w, n);
    nodes_enter(w, NULL);
    sockets_cut(w, n);
    clock_free(n->clock);
    n->clock = NULL;
    if (clean || world_chance(w, 50)) /* else its machine died: the platform is not told */
        n->poll_ms = 0;
}

/* Its line to the database is deaf for a while, and it runs on. */
static void lose_line(struct world *w, struct sim_node *n, bool cut)
{
    n->line = cut ? LINE_CUT : LINE_LATE;
    n->heals_ms = w->now_ms + (int64_t)rand_below(&w->rand, (uint64_t)n->settings.lease_ms * 2);
    world_say(w, "%s hears nothing of the database%s", n->name,
              n->line == LINE_LATE ? ", which hears it" : "");
}

/* As the program does: the store is opened anew, and everything is read from it. */
static void begin_to_serve(struct world *w, struct sim_node *n)
{
    nodes_enter(w, NULL);
    sim_store_commit(n->store, SIZE_MAX, SIM_WELL);
    store_close(n->store);
    n->store = sim_store_open(w->disk);
    node_move(n->node, n->store);
    n->epoch = node_epoch(n->node);
    world_say(w, "%s serves under epoch %" PRIu64, n->name, n->epoch);
    model_crashed(&w->model);
    n->boot = w->model.boot;
    memset(w->last_poke_ms, 0, sizeof w->last_poke_ms);
    for (size_t i = 0; i < MODEL_INSTANCES; i++)
        w->peers[i].has_acked = false;
    nodes_enter(w, n);
    w->current = n;
    n->serves = true;
    world_boot(w);
    n->observers = w->observers;
    n->facts = w->facts;
    n->relay = w->relay;
    world_check_sleepers(w);
    w->result.crashes++;
    if (!w->peace && world_chance(w, 15))
        lose_line(w, n, world_chance(w, 40));
}

static void on_drained(void *ctx)
{
    ((struct sim_node *)ctx)->drained = true;
}

static void drain(struct world *w, struct sim_node *n)
{
    if (n->draining || n->over)
        return;
    world_say(w, "%s drains", n->name);
    n->draining = true;
    n->since_ms = w->now_ms;
    if (n->serves)
        relay_drain(n->relay, on_drained, n);
}

static void freeze(struct world *w, struct sim_node *n)
{
    n->frozen = true;
    n->since_ms = w->now_ms;
    n->thaw_ms = w->now_ms + (int64_t)rand_below(&w->rand, (uint64_t)n->settings.lease_ms);
    if (world_chance(w, 50))
        n->thaw_ms += n->settings.lease_ms * (int64_t)(1 + rand_below(&w->rand, 3));
    w->result.freezes++;
    if (world_chance(w, 60))
        sim_store_begin(n->store, 1 + rand_below(&w->rand, 6));
    world_say(w, "%s is frozen%s", n->name,
              sim_store_is_open(n->store) ? " between BEGIN and COMMIT" : "");
}

/* ---- time ---- */

static void turn_one(struct world *w, struct sim_node *n)
{
    nodes_enter(w, n);
    set_clock(w, n);
    node_look(n->node);
    if (n->line == LINE_WELL &&
        world_chance(w, 20)) /* the store and the sockets are heard before the timers */
        world_complete(w, 1 + rand_below(&w->rand, 12));
    if (world_chance(w, 40))
        sockets_move(w, n);
    nodes_enter(w, n);
    clock_turn(n->clock);
    if (n->draining && !n->serves)
        n->drained = node_rests(n->node); /* it waits for no answer that may be a lease */
    else if (node_state(n->node) == NODE_SERVING && !n->serves && !n->over)
        begin_to_serve(w, n);
    if (n->over && w->now_ms - n->since_ms >= PARTING_MS)
        end(w, n, false);
    else if (n->draining && (n->drained || w->now_ms - n->since_ms >= DRAIN_MS))
        end(w, n, true);
}

/* What waited arrives at once; and then it may go again. */
static void heal(struct world *w, struct sim_node *n)
{
    world_say(w, "%s hears the database again", n->name);
    n->line = LINE_WELL;
    nodes_enter(w, n);
    set_clock(w, n);
    node_look(n->node);
    world_complete(w, SIZE_MAX);
    if (!w->peace && world_chance(w, 60))
        lose_line(w, n, true);
}

static void care_for(struct world *w, struct sim_node *n)
{
    if (n->alive && !n->frozen && n->line != LINE_WELL && (w->peace || w->now_ms >= n->heals_ms))
        heal(w, n);
    if (!n->alive) {
        if (w->peace || world_chance(w, 3))
            start(w, n);
    } else if (n->frozen) {
        if (sim_store_is_open(n->store) && w->now_ms - n->since_ms >= IDLE_TX_MS &&
            world_chance(w, 20))
            sim_store_abort(n->store);
        if (!w->peace && w->now_ms < n->thaw_ms)
            return;
        world_say(w, "%s goes on after %" PRId64 " ms", n->name, w->now_ms - n->since_ms);
        w->result.late += w->now_ms - n->since_ms > n->settings.lease_ms;
        n->frozen = false;
    }
}

static void check_truth(struct world *w)
{
    const struct truth *t = sim_disk_truth(w->disk);
    if (t->broken[0] != '\0')
        model_break(&w->model, "%s", t->broken);
    w->result.grants = t->grants;
}

static void turn_all(struct world *w, int64_t ms)
{
    w->now_ms += ms;
    sim_disk_set_time(w->disk, w->now_ms);
    if (sim_disk_in_limbo(w->disk) && (w->peace || world_chance(w, 10)))
        sim_disk_end_limbo(w->disk, world_chance(w, 40));
    for (size_t i = 0; i < w->n_nodes; i++) {
        care_for(w, &w->nodes[i]);
        if (w->nodes[i].alive && !w->nodes[i].frozen)
            turn_one(w, &w->nodes[i]);
    }
    edges_move(w);
    learn(w);
    (void)nodes_reach(w);
    check_truth(w);
}

/* The database does what each of them asks. */
static void serve_all(struct world *w, unsigned percent)
{
    for (size_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *n = &w->nodes[i];
        if (!n->alive || n->frozen || n->line == LINE_CUT || !world_chance(w, percent))
            continue;
        sim_store_commit(n->store, SIZE_MAX, SIM_WELL);
        if (world_chance(w, 10))
            sim_store_tire(n->store);
        nodes_enter(w, n);
        if (n->line == LINE_WELL)
            world_complete(w, SIZE_MAX);
    }
    (void)nodes_reach(w);
}

void nodes_turn(struct world *w, int64_t ms)
{
    for (; ms > STEP_MS; ms -= STEP_MS) {
        serve_all(w, w->peace ? 100 : 85);
        turn_all(w, STEP_MS);
    }
    turn_all(w, ms);
}

void nodes_settle(struct world *w)
{
    for (int i = 0; i < 20; i++) {
        serve_all(w, 100);
        turn_all(w, 1);
    }
}

/* ---- who is there ---- */

static bool is_reached(const struct sim_node *n)
{
    return n->alive && !n->frozen && n->serves && !n->over && !n->draining;
}

bool nodes_reach(struct world *w)
{
    bool ok = w->current != NULL && is_reached(w->current);
    nodes_enter(w, ok ? w->current : NULL);
    return ok;
}

/* Any that runs; one that serves more often. */
static struct sim_node *pick(struct world *w)
{
    struct sim_node *n = w->current;
    if (n == NULL || !n->alive || n->frozen || world_chance(w, 50))
        n = &w->nodes[rand_below(&w->rand, w->n_nodes)];
    return n->alive && !n->frozen ? n : NULL;
}

struct sim_node *nodes_heart_of(struct world *w, struct sim_node *via)
{
    if (via->serves)
        return via->over ? NULL : via;
    for (size_t i = 0; i < w->n_nodes; i++) { /* whom it believes to serve */
        struct sim_node *n = &w->nodes[i];
        if (n->alive && !n->frozen && n->serves &&
            strcmp(node_owner(n->node), node_holder(via->node)) == 0)
            return n;
    }
    return NULL;
}

struct sim_node *nodes_dial(struct world *w, struct sim_node **ret_via)
{
    struct sim_node *via = &w->nodes[rand_below(&w->rand, w->n_nodes)];
    if (!via->alive || via->frozen)
        return NULL;
    *ret_via = via;
    return nodes_heart_of(w, via);
}

/* ---- trouble ---- */

static void commit(struct world *w, struct sim_node *n)
{
    enum sim_fate fate = world_chance(w, 6) ? SIM_ROLLED_BACK : SIM_WELL;
    if (fate == SIM_WELL && world_chance(w, 8))
        fate = SIM_ANSWER_LOST;
    if (world_chance(w, 6))
        sim_store_limbo(n->store, 1 + rand_below(&w->rand, 6));
    else
        sim_store_commit(n->store, 1 + rand_below(&w->rand, 12), fate);
    if (world_chance(w, 5))
        sim_store_tire(n->store);
}

/* One long poll per bot, as long as nobody else can serve whatever becomes of us. */
static void poll_platform(struct world *w)
{
    struct sim_node *n = w->at;
    if (n->poll_ms > w->now_ms) {
        if (world_chance(w, 10))
            n->poll_ms = 0; /* answered */
        return;
    }
    nodes_judge(w, "a poll");
    for (size_t i = 0; i < w->n_nodes; i++)
        if (&w->nodes[i] != n && w->nodes[i].poll_ms > w->now_ms)
            model_break(&w->model, "%s polls while %s does", n->name, w->nodes[i].name);
    n->poll_ms = w->now_ms + node_left_ms(n->node);
}

static void harm(struct world *w)
{
    struct sim_node *n = pick(w);
    if (n == NULL)
        return;
    switch (rand_below(&w->rand, 10)) {
    case 0:
        nodes_enter(w, n);
        drain(w, n);
        break;
    case 1:
    case 2:
        if (world_chance(w, 40))
            sim_store_begin(n->store, 1 + rand_below(&w->rand, 6));
        end(w, n, false);
        break;
    case 3:
        n->skew_ms = n->skew_ms > 0 ? -3600000 : (int64_t)rand_below(&w->rand, 20 * 3600000);
        w->result.jumps++;
        break;
    case 4:
    case 5:
    case 6:
        lose_line(w, n, world_chance(w, 40));
        break;
    default:
        freeze(w, n);
    }
}

static void work(struct world *w, uint64_t dice)
{
    struct sim_node *n = pick(w);
    if (n == NULL)
        return;
    nodes_enter(w, n);
    if (dice < 60 && n->line != LINE_CUT)
        commit(w, n);
    else if (n->over && n->relay != NULL && dice < 62)
        posts_stray(w);
    else if (n->line == LINE_WELL)
        world_complete(w, 1 + rand_below(&w->rand, 12));
}

void nodes_step(struct world *w)
{
    uint64_t dice = rand_below(&w->rand, 1000);
    bool reached = nodes_reach(w);
    if (reached && world_chance(w, 20))
        poll_platform(w);
    if (reached && w->churn)
        world_churn(w);
    if (dice < 250 && reached)
        posts_step(w);
    else if (dice < 600)
        peer_step(w, &w->peers[rand_below(&w->rand, MODEL_INSTANCES)]);
    else if (dice < 860)
        work(w, rand_below(&w->rand, 110));
    else if (dice < 900)
        peers_finish_closes(w, false);
    else if (dice < 920)
        world_answer(w);
    else if (dice < 970)
        nodes_turn(w, (int64_t)rand_below(&w->rand, 4000));
    else
        harm(w);
    nodes_turn(w, (int64_t)rand_below(&w->rand, 8));
}

/* ---- the beginning and the end ---- */

void nodes_calm(struct world *w)
{
    for (int i = 0; i < CALM_STEPS; i++) {
        serve_all(w, 100);
        turn_all(w, STEP_MS);
        bool all = nodes_reach(w) && node_state(w->current->node) == NODE_SERVING &&
                   node_left_ms(w->current->node) > w->current->settings.lease_ms / 2;
        for (size_t k = 0; k < w->n_nodes; k++)
            all &= w->nodes[k].alive && !w->nodes[k].frozen && !w->nodes[k].over;
        if (all || w->model.broken[0] != '\0')
            return;
    }
    model_break(&w->model, "nobody serves, although nothing is in the way");
}

void nodes_open(struct world *w, unsigned n)
{
    int64_t lease_ms = 1000 + (int64_t)rand_below(&w->rand, 3000);
    bool was = w->peace;
    (void)sim_disk_truth(w->disk);
    sim_disk_set_time(w->disk, w->now_ms);
    w->n_nodes = n < MAX_NODES ? n : MAX_NODES;
    for (size_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *k = &w->nodes[i];
        snprintf(k->name, sizeof k->name, "n%zu", i);
        k->world = w;
        k->offset_ms = (int64_t)rand_below(&w->rand, 1000000000);
        k->settings = (struct cluster_settings){.node = k->name, .lease_ms = lease_ms};
        k->rand = rand_seeded(rand_u64(&w->rand));
    }
    edges_open(w, w->n_nodes);
    w->peace = true;
    nodes_calm(w);
    w->peace = was;
}

void nodes_close(struct world *w)
{
    for (size_t i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].alive)
            end(w, &w->nodes[i], false);
}
