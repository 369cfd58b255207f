/* node.c - design.  (node.h has the contract and the picture.)
 *
 * At most one lease request is in flight.  The timer `ask` sends the next request.  The timer `end`
 * fires when our lease expires, whether or not the store answers. */
#include "cluster/node.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/config.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/redis_client.h"
#include "store/store.h"

/* ---- `cluster:` in the configuration ---- */

#define AT(member) offsetof(struct cluster_settings, member)

static const struct config_key keys[] = {
    {"cluster.node", CFG_TEXT, CFG_RESTART, AT(node),
     .what = "The name of this process among the nodes on one PostgreSQL; the default is the "
             "machine's name."},
    {"cluster.lease", CFG_DURATION, CFG_RESTART, AT(lease_ms), "5s", .min = 1000, .max = 60000,
     .what = "How long the serving node may be unable to reach the database before another node "
             "takes over; the same on all nodes."},
    {"cluster.drain", CFG_DURATION, CFG_RESTART, AT(drain_ms), "5s", .min = 0, .max = 60000,
     .what = "How long a node that is told to end keeps serving while `/readyz` is 503, so that "
             "proxies stop using it; only where another node can take the connections."},
    {"cluster.serve", CFG_CHOICE, CFG_RESTART, AT(serve), "all", .choices = "all|one",
     .what = "`all`: nodes without the lease accept connections and forward them to the node that "
             "serves; `one`: they refuse connections until they serve."},
    {"cluster.address", CFG_TEXT, CFG_RESTART, AT(address),
     .what = "`host:port` under which the other nodes reach this one; the default is `listen`, "
             "unless that is a wildcard."},
    {"cluster.ca", CFG_TEXT, CFG_RESTART, AT(ca),
     .what = "PEM file with the certificate authorities of the other nodes, where `tls` is "
             "configured; the default is the system's."},
    {"cluster.trunk", CFG_CHOICE, CFG_RESTART, AT(trunk), "direct", .choices = "direct|redis",
     .what = "How nodes forward connections: `direct`: to the address of the node that serves; "
             "`redis`: over the Redis server of `redis.url`, where nodes cannot reach each other. "
             "The same on all nodes."},
    {"redis.url", CFG_SECRET, CFG_RESTART, AT(redis_url),
     .what = "The Redis server for `cluster.trunk: redis`: "
             "`redis://[user:password@]host[:port][/database]`, with TLS `rediss://…`, or "
             "`unix:/path`; the same on all nodes."},
    {"redis.ca", CFG_TEXT, CFG_RESTART, AT(redis_ca),
     .what = "PEM file with the certificate authorities for `rediss://`; the default is the "
             "system's."},
    {0},
};

static bool check_redis(const struct cluster_settings *s, char *ret_why)
{
    char why[256];
    bool used = strcmp(s->trunk, "redis") == 0;

    if (used && s->redis_url == NULL)
        return bh_why(ret_why, "cluster.trunk: redis needs redis.url, like "
                               "redis://user:password@10.0.0.5:6379");
    if (!used && s->redis_url != NULL)
        return bh_why(ret_why, "redis.url is for trunks alone: set cluster.trunk: redis too, or "
                               "delete redis");
    if (used && strcmp(s->serve, "all") != 0)
        return bh_why(ret_why,
                      "cluster.trunk: redis has no use with cluster.serve: one: such nodes "
                      "forward no connections");
    if (used && !redis_url_ok(s->redis_url, why))
        return bh_why(ret_why, "redis.url: %s", why);
    return true;
}

static bool check_settings(void *settings, char *ret_why)
{
    struct str name = str_of(((const struct cluster_settings *)settings)->node);
    bool ok = name.n <= NODE_NAME_BYTES;

    if (!check_redis(settings, ret_why))
        return false;

    for (size_t i = 0; i < name.n; i++)
        ok &= (unsigned char)name.p[i] > ' ' && (unsigned char)name.p[i] < 0x7f;
    if (ok)
        return true;
    return bh_why(ret_why, "cluster.node: expected up to %d printable characters without blanks",
                  NODE_NAME_BYTES);
}

const struct config_section cluster_config = {.keys = keys,
                                              .size = sizeof(struct cluster_settings),
                                              .check = check_settings};

/* ---- the state ---- */

enum {
    TRY_MS = 250,     /* between two requests for a lease that another node holds */
    RECORD_MS = 2000, /* between two heartbeats in the node's record */
    RENEWALS = 3,     /* renewals per cluster.lease */
};

struct node {
    struct node_env env;
    struct store_lease op;  /* belongs to the store while @busy */
    struct store_lease bye; /* the release */
    bool busy;
    enum node_state state; /* written by node_enter() only */
    struct timer ask, end, record;
    int64_t asked_ms; /* when the newest request was submitted */
    int64_t until_ms; /* when our lease expires */
    int64_t since_ms; /* wall clock; when this state began */
    char name[NODE_NAME_BYTES + 1];
    char owner[STORE_OWNER_BYTES];
    char holder[STORE_OWNER_BYTES];
    char *url;     /* owned; NULL: unknown */
    char *address; /* owned; NULL: unknown */
    bool tls, carrying;
    bool told;    /* the log has a line about the lease holder */
    bool resting; /* node_rests() was called: no new requests */
};

static const unsigned next_states[] = {
    [NODE_WAITING] = 1u << NODE_SERVING | 1u << NODE_OVER,
    [NODE_SERVING] = 1u << NODE_OVER,
    [NODE_OVER] = 0,
};

static void node_enter(struct node *n, enum node_state next)
{
    assert((next_states[n->state] & 1u << next) != 0);
    n->state = next;
    n->since_ms = clock_wall_ms(n->env.clock);
}

enum node_state node_state(const struct node *n)
{
    return n->state;
}

const char *node_name(const struct node *n)
{
    return n->name;
}

const char *node_owner(const struct node *n)
{
    return n->owner;
}

const char *node_holder(const struct node *n)
{
    return n->state == NODE_SERVING ? n->name : n->holder;
}

int64_t node_left_ms(const struct node *n)
{
    int64_t left = n->until_ms - clock_now_ms(n->env.clock);

    return n->state == NODE_SERVING && left > 0 ? left : 0;
}

uint64_t node_epoch(const struct node *n)
{
    return n->state == NODE_SERVING ? n->op.epoch : 0;
}

/* ---- the node's record: a heartbeat, and the address that forwarders read ---- */

const char *const node_words[] = {
    [NODE_IS_STANDBY] = "standby",
    [NODE_IS_CARRYING] = "carrying",
    [NODE_IS_SERVING] = "serving",
    NULL,
};

static const struct record_field node_fields[] = {
    RECORD_FIELD(struct node_record, name, "name", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct node_record, state, "state", RECORD_NEEDED, .words = node_words),
    RECORD_FIELD(struct node_record, at_ms, "at", 0),
    RECORD_FIELD(struct node_record, since_ms, "since", 0),
    RECORD_FIELD(struct node_record, version, "version", 0),
    RECORD_FIELD(struct node_record, url, "url", 0),
    RECORD_FIELD(struct node_record, address, "address", 0),
    RECORD_FIELD(struct node_record, tls, "tls", 0),
};
const struct record_form node_form = RECORD_FORM("node", struct node_record, node_fields);
const struct record_form *const node_records[] = {&node_form, NULL};

static void write_record(struct node *n)
{
    struct node_record rec = {.name = str_of(n->name),
                              .state = n->state == NODE_SERVING ? NODE_IS_SERVING
                                       : n->carrying            ? NODE_IS_CARRYING
                                                                : NODE_IS_STANDBY,
                              .at_ms = clock_wall_ms(n->env.clock),
                              .since_ms = n->since_ms,
                              .version = STR(BELLHOP_VERSION),
                              .url = str_of(n->url),
                              .address = str_of(n->address),
                              .tls = n->address != NULL && n->tls};

    record_put(n->env.store, &node_form, NULL, &rec, false, NULL, NULL);
}

static void on_record(struct timer *t)
{
    struct node *n = container_of(t, struct node, record);

    if (n->state == NODE_OVER)
        return;
    write_record(n);
    timer_set(n->env.clock, t, RECORD_MS);
}

void node_set_url(struct node *n, const char *url)
{
    free(n->url);
    n->url = url != NULL ? xstrdup(url) : NULL;
}

/* Writes the record at once: the forwarders of other nodes wait for the address. */
void node_set_address(struct node *n, const char *address, bool tls)
{
    free(n->address);
    n->address = address != NULL ? xstrdup(address) : NULL;
    n->tls = tls;
    if (n->state == NODE_SERVING)
        write_record(n);
}

void node_set_carrying(struct node *n, bool carrying)
{
    n->carrying = carrying;
}

/* ---- the lease ---- */

static store_done_cb on_done;

static void submit(struct node *n, enum store_lease_verb verb)
{
    n->op = (struct store_lease){.op = {.done = on_done},
                                 .verb = verb,
                                 .name = STR(NODE_LEASE),
                                 .owner = str_of(n->owner),
                                 .ttl_ms = n->env.settings->lease_ms,
                                 .epoch = n->op.epoch};
    n->busy = true;
    n->asked_ms = clock_now_ms(n->env.clock); /* when this turn began: earlier than the request */
    store_lease(n->env.store, &n->op);
}

/* @why NULL: over() is not called. */
static void go_over(struct node *n, const char *why)
{
    bool served = n->state == NODE_SERVING;

    if (n->state == NODE_OVER)
        return;
    node_enter(n, NODE_OVER);
    timer_stop(n->env.clock, &n->ask);
    timer_stop(n->env.clock, &n->end);
    timer_stop(n->env.clock, &n->record);
    if (served && why != NULL)
        n->env.over(n->env.ctx, why);
}

static void granted(struct node *n)
{
    struct clock *clock = n->env.clock;

    n->until_ms = n->asked_ms + n->op.ttl_ms;
    if (n->until_ms <= clock_now_ms(clock)) { /* the lease expired before the answer arrived */
        timer_set(clock, &n->ask, 0);
        return;
    }
    timer_set(clock, &n->end, n->until_ms - clock_now_ms(clock));
    if (n->state != NODE_WAITING) {
        timer_set(clock, &n->ask,
                  n->asked_ms + n->env.settings->lease_ms / RENEWALS - clock_now_ms(clock));
        return;
    } /* The first renewal waits for node_move(): until then the store may be closed. */
    node_enter(n, NODE_SERVING);
    log_info(NULL, "cluster: %s serves: epoch=%" PRIu64, n->name, n->op.epoch);
    write_record(n);
}

static void on_taken(struct node *n, enum bh_err err)
{
    if (err == BH_OK) {
        granted(n);
        return;
    }
    if (!n->resting)
        timer_set(n->env.clock, &n->ask, TRY_MS);
    if (err != BH_CONFLICT)
        return;
    if (!n->told || strcmp(n->holder, n->op.holder) != 0)
        log_info(NULL, "cluster: %s stands by: %s serves", n->name, n->op.holder);
    n->told = true;
    memcpy(n->holder, n->op.holder, sizeof n->holder);
}

static void on_done(struct store_op *op, enum bh_err err)
{
    struct node *n = container_of(op, struct node, op.op);

    n->busy = false;
    if (n->state == NODE_WAITING) {
        on_taken(n, err);
    } else if (n->state == NODE_SERVING) {
        if (err == BH_OK)
            granted(n);
        else if (err == BH_FENCED)
            go_over(n, "its lease ended");
        else
            timer_set(n->env.clock, &n->ask, TRY_MS);
    }
}

static void on_ask(struct timer *t)
{
    struct node *n = container_of(t, struct node, ask);

    if (!n->busy)
        submit(n, n->state == NODE_WAITING ? LEASE_TAKE : LEASE_RENEW);
}

static void on_end(struct timer *t)
{
    go_over(container_of(t, struct node, end),
            "the database was not reached for as long as the lease lasts");
}

void node_look(struct node *n)
{
    if (n->state == NODE_SERVING && n->until_ms <= clock_now_ms(n->env.clock))
        on_end(&n->end);
}

void node_move(struct node *n, struct store *store)
{
    assert(n->state == NODE_SERVING);
    n->busy = false; /* the previous store is closed, and its requests with it */
    n->env.store = store;
    store_guard(store, STR(NODE_LEASE), n->op.epoch);
    timer_set(n->env.clock, &n->ask, 0); /* renew in the first turn of the loop */
}

void node_kept(struct node *n, int64_t asked_ms)
{
    int64_t until_ms = asked_ms + n->env.settings->lease_ms;

    if (n->state != NODE_SERVING || asked_ms == 0 || until_ms <= n->until_ms)
        return;
    n->until_ms = until_ms;
    timer_set(n->env.clock, &n->end, until_ms - clock_now_ms(n->env.clock));
}

bool node_rests(struct node *n)
{
    n->resting = true;
    if (n->state == NODE_WAITING)
        timer_stop(n->env.clock, &n->ask);
    return !n->busy;
}

void node_release(struct node *n)
{
    uint64_t epoch = node_epoch(n);

    if (n->state != NODE_OVER)
        go_over(n, NULL);
    if (epoch == 0)
        return;
    n->bye = (struct store_lease){.verb = LEASE_RELEASE,
                                  .name = STR(NODE_LEASE),
                                  .owner = str_of(n->owner),
                                  .epoch = epoch};
    store_lease(n->env.store, &n->bye);
}

/* ---- opening ---- */

void node_name_of(const struct cluster_settings *s, char ret_name[NODE_NAME_BYTES + 1])
{
    if (s->node != NULL)
        snprintf(ret_name, NODE_NAME_BYTES + 1, "%s", s->node);
    else if (gethostname(ret_name, NODE_NAME_BYTES + 1) != 0 || ret_name[0] == '\0')
        snprintf(ret_name, NODE_NAME_BYTES + 1, "node");
    ret_name[NODE_NAME_BYTES] = '\0';
}

struct node *node_open(const struct node_env *env)
{
    struct node *n = xcalloc(1, sizeof *n);
    uint32_t once;

    assert(env->store->shared);
    n->env = *env;
    n->since_ms = clock_wall_ms(env->clock);
    node_name_of(env->settings, n->name);
    rand_bytes(env->rand, &once, sizeof once); /* so two processes with one name differ */
    snprintf(n->owner, sizeof n->owner, "%s/%08" PRIx32, n->name, once);
    timer_init(&n->ask, on_ask);
    timer_init(&n->end, on_end);
    timer_init(&n->record, on_record);
    timer_set(env->clock, &n->ask, 0);
    timer_set(env->clock, &n->record, 0);
    return n;
}

void node_free(struct node *n)
{
    if (n == NULL)
        return;
    timer_stop(n->env.clock, &n->ask);
    timer_stop(n->env.clock, &n->end);
    timer_stop(n->env.clock, &n->record);
    free(n->url);
    free(n->address);
    free(n);
}
