/* node.h - leader election among the processes that share a database: the lease holder serves.
 *
 *      WAITING --lease taken--> SERVING --renewed every third of its time--> SERVING
 *         ^  free or expired       |
 *         |                        |  the lease expired, or the store says that it is not ours
 *         |                        v
 *         '----- a new process -- OVER        every state --node_release()--> OVER, lease released
 *
 * cli/server_store.c opens the node and waits in WAITING; cli/serve.c stops the process on OVER.
 *
 * The lease (store.h, name "serve") has an epoch, which is the fencing token of every write.
 * store_guard() makes the database check the epoch inside each transaction.  So a process that was
 * suspended past the end of its lease cannot change anything.
 *
 * A server that has got the lease first loads its state from the database, and the loop does not
 * run to renew.  Meanwhile a thread of the store renews (lease_renewer_start()), for NODE_START_MS
 * at most; node_kept() takes over from it.  So a process that dies while it starts leaves the lease
 * for no longer than one that dies later.
 *
 * The node counts the lease on its monotonic clock from before it sends the request; the store
 * counts from the grant.  So the node's own deadline always passes first.  After it the process may
 * not deliver or call a platform: its memory may be out of date.  The process exits, and the
 * service manager starts it again. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/str.h"

#define NODE_NAME_BYTES 40
#define NODE_START_MS 30000  /* a start takes no longer */
#define NODE_SILENT_MS 10000 /* a node whose record is older is down or cut off from the store */
#define NODE_LEASE "serve"   /* the name of the lease */

struct cluster_settings { /* `cluster:` in the configuration, owned by it */
    char *node;           /* the name of this node; NULL: the host name */
    int64_t lease_ms;
    int64_t drain_ms; /* a node that goes takes requests for so long: its proxy is to notice */
    char *serve;   /* "all": waiting nodes forward connections (forwarder.h); "one": they refuse */
    char *address; /* "host:port" where other nodes reach this node; NULL: the `listen` address */
    char *ca;      /* PEM file of the CAs for the TLS of other nodes; NULL: the system's CAs */
    char *trunk;   /* "direct": nodes dial each other; "redis": net/redis_hop.h */
    char *redis_url, *redis_ca; /* `redis:`, for "redis" */
};
#define NODE_VIA_REDIS "redis" /* instead of an address in a node's record */
extern const struct config_section cluster_config;

/* The node's record: a heartbeat, and the address that forwarders read. */
enum node_word { NODE_IS_STANDBY, NODE_IS_CARRYING, NODE_IS_SERVING };
struct node_record {
    struct str name;
    enum node_word state;
    int64_t at_ms, since_ms; /* wall clock: of the heartbeat, and when the state began */
    struct str version;
    struct str url, address; /* absent: unknown */
    bool tls;                /* of @address */
};
extern const char *const node_words[]; /* of enum node_word */
extern const struct record_form node_form;
extern const struct record_form *const node_records[]; /* ends with NULL */

enum node_state { NODE_WAITING, NODE_SERVING, NODE_OVER };

struct node_env { /* borrowed for the life of the node */
    struct clock *clock;
    struct store *store; /* store.shared is true */
    struct rand *rand;
    const struct cluster_settings *settings;
    /* The lease was lost in SERVING: stop at once.  Called from a timer, from the store's done() or
     * from node_look(). */
    void (*over)(void *ctx, const char *why);
    void *ctx;
};

/* Starts to request the lease, again and again until it is granted.  Does not block. */
struct node *node_open(const struct node_env *env);
/* Called once the store is closed, or no lease request is in flight.  NULL is fine. */
void node_free(struct node *n);

enum node_state node_state(const struct node *n);
const char *node_name(const struct node *n);
const char *node_owner(const struct node *n); /* the name and a random part, unique per process */
/* The lease holder that was seen last; "": none yet.  In WAITING: its node_owner(); in SERVING: our
 * own name. */
const char *node_holder(const struct node *n);
/* The name of a node with these settings. */
void node_name_of(const struct cluster_settings *s, char ret_name[NODE_NAME_BYTES + 1]);
/* Until the lease expires: for so long no other node can take it, even if this process is suspended
 * now.  0 outside SERVING. */
int64_t node_left_ms(const struct node *n);
uint64_t node_epoch(const struct node *n); /* of the lease; 0 outside SERVING */
/* Switches to @store, the same database opened again, right after SERVING began.  Sets the store's
 * guard and starts the renewals. */
void node_move(struct node *n, struct store *store);
/* Somebody else renewed the lease until now: a renewal that succeeded was asked for at @asked_ms,
 * monotonic; 0: none. */
void node_kept(struct node *n, int64_t asked_ms);
/* Ends SERVING when the lease has expired.  Each turn of the loop begins with this call, before any
 * input is read, so that a process that was suspended answers nothing after its lease. */
void node_look(struct node *n);
/* The public URL for the node's record; copied. */
void node_set_url(struct node *n, const char *url);
/* The "host:port" that other nodes connect to, for the node's record; copied.  NULL: none. */
void node_set_address(struct node *n, const char *address, bool tls);
void node_set_carrying(struct node *n, bool carrying); /* by forwarder.c, for the node's record */
/* Stops requesting the lease.  Returns true once no request is in flight; a node that is SERVING
 * then releases the lease with node_release().  On false, turn the loop and call again: a grant
 * that arrives unnoticed would block every other node for as long as the lease lasts. */
bool node_rests(struct node *n);
/* Releases the lease, so that another node takes it at once.  The release is the last write of this
 * process, queued behind all others.  Its result is not reported; store_close() waits for it. */
void node_release(struct node *n);
