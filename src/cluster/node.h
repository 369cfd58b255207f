/* node.h - this process among those that share a database: one of them serves, the others stand by.
 *
 *      WAITING --lease taken--> SERVING --renewed every third of its time--> SERVING
 *         ^  free or ended         |
 *         |                        |  its time is up, or the store says that it is not ours
 *         |                        v
 *         '---the next process--- OVER        every state --node_release()--> OVER, and it is free
 *
 * The lease (store.h, name "serve") is a fence too: store_guard() has every write of this process
 * checked against it inside the transaction.  So even a process that was stopped for minutes and
 * does not know it yet changes nothing any more.
 *
 * The first grant lasts at least NODE_START_MS: everything is read from the database then, and the
 * loop does not turn meanwhile.
 *
 * Its time counts on our monotonic clock from before the request was sent, and in the store from
 * when it was granted: ours is over first.  From then on nothing may be delivered or asked of a
 * platform; what memory holds is not true any more, so the process ends and whoever runs it starts
 * it again. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/str.h"

struct config_section;
struct node;
struct rand;
struct store;

#define NODE_NAME_BYTES 40
#define NODE_START_MS 30000
#define NODE_SILENT_MS 10000 /* its record is older: it has ended, or does not reach the database */
#define NODE_LEASE "serve"   /* the name of the lease */
#define NODE_NS "node" /* records: name -> {"state", "at", "since", "version", "url", "address"} */

struct cluster_settings { /* `cluster:` in the configuration, owned by it */
    char *node;           /* its name; NULL: the machine's */
    int64_t lease_ms;
    char *serve;   /* "all": those that do not serve carry (porter.h); "one": they stand by */
    char *address; /* "host:port" by which the others reach this node; NULL: as it listens */
    char *ca;      /* PEM file: who may vouch for the others' TLS; NULL: the system's */
};
extern const struct config_section cluster_config;

enum node_state { NODE_WAITING, NODE_SERVING, NODE_OVER };

struct node_env { /* borrowed for the life of the node */
    struct clock *clock;
    struct store *store; /* a shared one */
    struct rand *rand;
    const struct cluster_settings *settings;
    void (*over)(void *ctx, const char *why); /* in SERVING: stop at once; never in a call */
    void *ctx;
};

/* Asks for the lease from now on.  Never waits. */
struct node *node_open(const struct node_env *env);
/* The store is closed, or holds none of our operations any more.  NULL is fine. */
void node_free(struct node *n);

enum node_state node_state(const struct node *n);
/* It serves, and the long first grant has ended: it is replaced as fast as the lease says. */
bool node_is_settled(const struct node *n);
const char *node_name(const struct node *n);
const char *node_owner(const struct node *n);  /* this process, and no other of its name */
const char *node_holder(const struct node *n); /* who serves, as far as we know; "": nobody.  In
                                                * WAITING it is what that one's node_owner() says */
/* What a node with these settings is called. */
void node_name_of(const struct cluster_settings *s, char ret_name[NODE_NAME_BYTES + 1]);
int64_t node_left_ms(const struct node *n); /* of the lease, in SERVING */
/* For how long nobody else serves, even if this process is stopped now; 0 in other states. */
int64_t node_alone_ms(const struct node *n);
uint64_t node_epoch(const struct node *n); /* of the lease, in SERVING */
/* In SERVING, right after it began: the same database, opened anew.  It is guarded from now on. */
void node_move(struct node *n, struct store *store);
/* Is our time up?  At the beginning of every turn, before anything else is heard in it: who was
 * stopped for longer than the lease learns so here, and not after it has answered what waited. */
void node_look(struct node *n);
/* Where people find it, for its record; copied. */
void node_set_url(struct node *n, const char *url);
/* Where the other nodes find it: "host:port"; copied.  NULL: nowhere. */
void node_set_address(struct node *n, const char *address, bool tls);
void node_set_carrying(struct node *n, bool carrying); /* porter.h; for its record */
/* Ask for nothing more.  True: what was asked for is answered; if that was a grant, it is SERVING
 * and gives it up with node_release().  Else turn the loop and ask again: a grant that nobody
 * heard of would keep everybody out for NODE_START_MS. */
bool node_rests(struct node *n);
/* Give the lease up, so that somebody else takes it at once: the last write of this process, behind
 * all that is queued.  Nobody is told how it ended; store_close() waits for it. */
void node_release(struct node *n);
