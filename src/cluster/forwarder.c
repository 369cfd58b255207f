/* forwarder.c - design.  (forwarder.h has the contract and the picture.)
 *
 * The database says which node to dial: the lease names the holder, and the holder's record has its
 * address.  The trunk is up only once the process that holds the lease has answered and proved
 * that it knows the trunk key. */
#include "cluster/forwarder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/node.h"
#include "net/loop.h"
#include "net/trunk.h"
#include "store/store.h"

enum { LOOK_MS = 200, HOLD_MS = 3000 };

struct forwarder_ask { /* for the record of the one that serves */
    struct store_scan scan;
    struct store_left left;
    struct forwarder *forwarder; /* borrowed; NULL: the forwarder was freed */
    char key[STORE_OWNER_BYTES];
};

struct forwarder {
    struct forwarder_env env;
    struct timer look;
    struct forwarder_ask *ask;  /* NULL: none is under way */
    struct trunk *trunk;        /* NULL: none */
    char to[STORE_OWNER_BYTES]; /* the lease holder that the trunk, or the ask, is for */
    char host[256];             /* of the lease holder; empty: not known yet */
    uint16_t port;
    bool tls;
    char why[160];                /* why the last trunk was lost, as logged */
    struct record_reader *reader; /* owned */
};

/* ---- the trunk ---- */

static void on_up(void *ctx)
{
    struct forwarder *p = ctx;

    log_info(NULL, "cluster: forwarding connections to %s", p->to);
    p->why[0] = '\0';
    node_set_carrying(p->env.node, true);
    /* A failover takes at most the rest of the lease and the start of the next holder. */
    trunk_hold(p->env.server, p->env.settings->lease_ms + HOLD_MS);
}

static void on_lost(void *ctx, const char *why)
{
    struct forwarder *p = ctx;

    p->trunk = NULL;
    node_set_carrying(p->env.node, false);
    p->env.on_lost(p->env.ctx);
    if (strcmp(why, p->why) == 0)
        return; /* logged already */
    snprintf(p->why, sizeof p->why, "%s", why);
    log_warn(NULL, "cluster: cannot forward connections to %s: %s", p->to, why);
}

static void hang_up(struct forwarder *p)
{
    trunk_free(p->trunk);
    p->trunk = NULL;
    node_set_carrying(p->env.node, false);
    p->env.on_lost(p->env.ctx);
}

static void on_ask(void *ctx, uint32_t number, struct str question)
{
    struct forwarder *p = ctx;

    p->env.on_ask(p->env.ctx, number, question);
}

static void on_unask(void *ctx, uint32_t number)
{
    struct forwarder *p = ctx;

    p->env.on_unask(p->env.ctx, number);
}

void forwarder_tell(struct forwarder *p, uint32_t number, struct str answer)
{
    if (p->trunk != NULL)
        trunk_tell(p->trunk, number, answer);
}

/* "host:port", or "[::1]:port". */
static bool take_address(struct forwarder *p, struct str address)
{
    size_t colon = address.n;
    uint64_t port;

    while (colon > 0 && address.p[colon - 1] != ':')
        colon--;
    if (colon < 2 || !str_to_u64(str_skip(address, colon), &port) || port == 0 || port > 65535)
        return false;
    struct str host = str_make(address.p, colon - 1);
    if (host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = str_make(host.p + 1, host.n - 2);
    if (host.n >= sizeof p->host)
        return false;
    memcpy(p->host, host.p, host.n);
    p->host[host.n] = '\0';
    p->port = (uint16_t)port;
    return true;
}

static void dial(struct forwarder *p)
{
    static const struct trunk_handlers handlers = {.on_up = on_up,
                                                   .on_lost = on_lost,
                                                   .on_ask = on_ask,
                                                   .on_unask = on_unask};
    struct trunk_dial d = {.host = p->host,
                           .port = p->port,
                           .tls = p->tls,
                           .ca_path = p->env.settings->ca,
                           .hop = p->env.hop,
                           .key = p->env.key,
                           .name = node_owner(p->env.node),
                           .heart = p->to};

    p->trunk = trunk_open(p->env.loop, p->env.server, &d, &handlers, p);
    p->host[0] = '\0'; /* the next try reads the record again */
}

/* ---- the lease holder's address ---- */

static void ask_release(struct store_left *l)
{
    struct forwarder_ask *a = container_of(l, struct forwarder_ask, left);

    store_scan_free(&a->scan);
    if (a->forwarder != NULL)
        a->forwarder->ask = NULL;
    free(a);
}

static void take_record(struct forwarder *p, const struct store_record *rec)
{
    struct node_record node;

    if (!record_read(p->reader, &node_form, rec->key, rec->value, &node) ||
        node.state != NODE_IS_SERVING)
        return; /* the holder has not updated its record since it took the lease */
    p->tls = node.tls;
    if (str_eq(node.address, STR(NODE_VIA_REDIS)) != (p->env.hop != NULL) && node.address.p != NULL)
        on_lost(p, "cluster.trunk is not the same on both nodes");
    else if (p->env.hop != NULL)
        snprintf(p->host, sizeof p->host, "%.*s", STR_FMT(node.address));
    else if (node.address.p != NULL && !take_address(p, node.address))
        on_lost(p, "where it says that it is reached is no host:port (cluster.address)");
}

static void on_read(struct store_op *op, enum bh_err err)
{
    struct forwarder_ask *a = container_of(op, struct forwarder_ask, scan.op);
    struct forwarder *p = a->forwarder;

    store_take_back(&a->left);
    for (size_t i = 0; p != NULL && err == BH_OK && i < a->scan.n_records; i++)
        if (str_eq(a->scan.records[i].key, str_of(a->key)))
            take_record(p, &a->scan.records[i]);
    if (p != NULL) {
        p->ask = NULL;
        if (p->host[0] != '\0')
            timer_set(loop_clock(p->env.loop), &p->look, 0);
    }
    store_scan_free(&a->scan);
    free(a);
}

static void ask(struct forwarder *p)
{
    struct forwarder_ask *a = xcalloc(1, sizeof *a);
    struct str name, rest = str_of(p->to);

    a->forwarder = p;
    if (str_split(&rest, '/', &name))
        memcpy(a->key, name.p, name.n);
    a->scan = (struct store_scan){.op = {.done = on_read},
                                  .ns = node_form.ns,
                                  .prefix = str_of(a->key),
                                  .loose = true};
    p->ask = a;
    store_leave(p->env.store, &a->left, ask_release);
    store_scan(p->env.store, &a->scan);
}

static void on_look(struct timer *t)
{
    struct forwarder *p = container_of(t, struct forwarder, look);
    const char *holder = node_holder(p->env.node);

    timer_set(loop_clock(p->env.loop), t, LOOK_MS);
    if (node_state(p->env.node) != NODE_WAITING || *holder == '\0')
        return;
    if (strcmp(holder, p->to) != 0) {
        hang_up(p);
        snprintf(p->to, sizeof p->to, "%s", holder);
        p->host[0] = '\0';
    }
    if (p->trunk != NULL || p->ask != NULL)
        return;
    if (p->host[0] != '\0')
        dial(p);
    else
        ask(p);
}

/* ---- life ---- */

struct forwarder *forwarder_open(const struct forwarder_env *env)
{
    struct forwarder *p = xcalloc(1, sizeof *p);

    p->env = *env;
    p->reader = record_reader_new(NULL);
    timer_init(&p->look, on_look);
    timer_set(loop_clock(env->loop), &p->look, 0);
    return p;
}

bool forwarder_is_up(const struct forwarder *p)
{
    return p != NULL && trunk_is_up(p->trunk);
}

size_t forwarder_connections(const struct forwarder *p)
{
    return p != NULL ? trunk_connections(p->trunk) : 0;
}

void forwarder_leave(struct forwarder *p)
{
    if (p->trunk != NULL)
        trunk_leave(p->trunk);
}

void forwarder_free(struct forwarder *p)
{
    if (p == NULL)
        return;
    timer_stop(loop_clock(p->env.loop), &p->look);
    hang_up(p);
    if (p->ask != NULL)
        p->ask->forwarder = NULL;
    record_reader_free(p->reader);
    free(p);
}
