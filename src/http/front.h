/* front.h - the HTTP face: every request comes in here and goes to one handler.
 *
 * Two kinds of listeners share one server: the public one, and the admin socket in the state
 * directory, whose file mode (0600) is its only lock.  Admin paths do not exist on the public one.
 *
 *      route.c           the table: method, path -> handler; paths of platforms
 *      gateway_socket.c  GET /relay: authenticate, then a session
 *      enroll_route.c    POST /relay/enroll, /relay/provision: how a gateway gets its secret
 *      op.h              the operations of /v1 and /mcp: the stores and the agents, for programs
 *      media_route.c     files of gateways and of the chat page
 *      manage.h          /manage/..., /relay/policy: what an instance declares about itself
 *      metrics.c         /metrics, /healthz, /readyz
 *      admin.h           what the command line asks for, over the admin socket
 *      node_route.c      the other nodes: /cluster/trunk, by which they carry connections here
 *
 */
#pragma once
#include "base/bucket.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"

struct config_section;
struct data;
struct dispatch;
struct door;
struct facts;
struct confined;
struct host;
struct http_req;
struct http_server;
struct idp;
struct keys;
struct dialled;
struct ledger;
struct loop;
struct mcp;
struct node;
struct media;
struct relay;
struct skills;
struct store;
struct v1_settings;
struct wake_settings;

struct front_settings { /* `admin:` in the configuration, owned by it */
    char *admin_token;  /* for /metrics off loopback; NULL: refused there */
};
extern const struct config_section front_config;

struct front { /* all borrowed; filled by whoever wires the program */
    struct loop *loop;
    struct http_server *server;
    struct ledger *ledger;
    struct dialled *dialled; /* of gateway_socket.c; NULL at first */
    const struct front_settings *settings;
    const struct wake_settings *wake;
    const struct v1_settings *v1;
    const char *listen, *public_url, *state_dir; /* as configured */
    const char *config_path;                     /* NULL: no file */
    struct store *store;
    struct node *node;        /* NULL: the store is this process's alone */
    const uint8_t *trunk_key; /* other nodes carry connections here: net/trunk.h; NULL: none do */
    struct facts *facts;
    struct keys *keys;
    struct skills *skills;
    struct data *data;
    struct dispatch *dispatch;
    struct mcp *mcp;
    struct media *media;
    struct relay *relay;
    struct host *host;
    struct door *door;
    struct idp *idp;
    const struct confined *confined; /* what this process gave up */
    const char *base_url;            /* what a gateway is told to dial; NULL: unknown */
    int64_t started_ms;              /* wall clock */
    bool draining;
    bool standing_by; /* another process serves: nothing but server, store and node is set */
    struct bucket_level refusals;      /* how many lines strangers may still cause in the log */
    uint64_t refusals_untold;          /* since the last one */
    struct list chat_asks, chat_sends; /* of the chat tools, on their way; owned */
    struct list downloads;             /* of media_route.c, being opened; owned */
    struct list op_calls;              /* struct op_call: without an answer yet; owned */
    struct v1_work {                   /* what the request at hand counts for: v1.h */
        struct party *party;           /* held; NULL: nothing was taken */
        uint64_t bytes;
    } v1_work;
    /* Read the configuration again; appends what was taken and what was not, in sentences. */
    enum bh_err (*reload)(void *ctx, struct buf *ret_said);
    void *reload_ctx;
    void (*drain)(void *ctx); /* go down in good order */
    void *drain_ctx;
};

extern char front_admin_tag[]; /* marks the admin listener: struct http_listener */

/* A thread of the store has not come back for over a minute. */
bool health_store_is_stuck(struct store *store);

void front_handle(void *ctx, struct http_req *req); /* an http_handler; @ctx is the front */
