/* front.h - the HTTP face: receives every request and passes it to one handler.
 *
 *      route.c           routes that are no operations; webhooks and pages of platforms
 *      op.h              the operations of /v1, /mcp, /manage and /admin, found by v1.c
 *      mcp_route.c       /mcp: tool calls and resources, as operations
 *      gateway_socket.c  GET /relay: authenticate, then a session
 *      enroll_route.c    POST /relay/enroll, /relay/provision: how a gateway gets its secret
 *      media_route.c     files of gateways and of the chat page
 *      dashboard.c       /dashboard: the operator's page
 *      metrics.c         /metrics, /healthz, /readyz
 *      node_route.c      /cluster/trunk: other nodes forward connections
 *
 * The public listener and the admin socket share one server.  The admin socket lies in the state
 * directory, and its file mode (0600) is its only access control.  The public listener answers 404
 * for admin paths.
 *
 * cli/server.c fills struct front and owns every object in it.
 */
#pragma once
#include "base/bucket.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"

struct http_req;

struct front_settings { /* `admin:` in the configuration, owned by it */
    char *admin_token;  /* for /metrics and /dashboard from other machines; NULL: only this one */
};
extern const struct config_section front_config;

struct front { /* all borrowed, unless it says owned; cli/server.c opens and closes them */
    struct loop *loop;
    struct http_server *server;
    struct ledger *ledger;
    struct dialled *dialled; /* private to gateway_socket.c; NULL at first */
    const struct front_settings *settings;
    const struct wake_settings *wake;
    const struct v1_settings *v1;
    const char *listen, *public_url, *state_dir; /* as configured */
    const char *config_path;                     /* NULL: no file */
    struct store *store;
    struct node *node;        /* NULL: the store is not shared */
    const uint8_t *trunk_key; /* shared by the nodes: net/trunk.h; NULL: no trunks are accepted */
    struct redis_hop *hop;    /* trunks run over Redis; NULL: they do not */
    struct facts *facts;
    struct audit *audit;     /* the log of changes: tenancy/audit.h */
    struct pairing *pairing; /* people who wait to be let in: tenancy/pairing.h */
    struct str peer;         /* whose request is being handled; absent: not known */
    struct keys *keys;
    struct skills *skills;
    struct data *data;
    struct dispatch *dispatch;
    struct mcp *mcp;
    struct media *media;
    struct relay *relay;
    struct host *host;
    struct journal_disk *journal; /* NULL: nothing of it is kept on disk */
    struct flow *flow;            /* ops_care.h */
    struct testbots *testbots;    /* of `serve --ephemeral`; else NULL */
    struct door *door;
    struct idp *idp;
    struct dashboard *dashboard;
    const struct confined *confined; /* the sandbox of this process, for `status` */
    char *base_url; /* http(s)://... that gateways dial, without a trailing slash; NULL: unknown */
    char *loopback_url; /* http(s)://... for browsers on this machine; NULL: a Unix socket */
    int64_t started_ms; /* wall clock */
    bool leaving;       /* it will drain, once its proxy knows: nothing but /readyz says so */
    bool draining;
    bool standing_by; /* another node holds the lease: only server, store and node are set */
    struct bucket_level refusals;      /* rate limit of log lines about refused requests */
    uint64_t refusals_untold;          /* refusals not logged since the last line */
    struct list chat_asks, chat_sends; /* of ops_chat.c, in flight; owned */
    struct pullers *pullers;           /* private to ops_mailbox.c; NULL at first */
    struct list downloads;             /* of media_route.c, being opened; owned */
    struct list op_calls;              /* struct op_call, not answered yet; owned */
    struct v1_work {                   /* memory that the current request counts for: v1.h */
        struct party *party;           /* one reference, owned; NULL: nothing is counted */
        uint64_t bytes;
    } v1_work;
    /* Reads the configuration again.  Appends sentences that say which changes took effect. */
    enum bh_err (*reload)(void *ctx, struct buf *ret_said);
    void *reload_ctx;
    char *
        awaits_restart; /* owned by who reloads: settings that only a restart applies; NULL: none */
    void (*drain)(void *ctx); /* starts a graceful shutdown */
    void *drain_ctx;
};

extern char front_admin_tag[]; /* marks the admin listener: struct http_listener */

/* True when a store operation has taken over a minute: a thread of the store hangs. */
bool health_store_is_stuck(struct store *store);

void front_handle(void *ctx, struct http_req *req); /* an http_handler; @ctx is the front */
/* A gateway's socket outlived the process before this one (net/ws.h): its session continues. */
struct ws_past;
void gateway_present(void *ctx, const struct ws_past *past);
