/* front_priv.h - the handlers in the table of route.c, and the helpers they share.  Private to
 * src/http/. */
#pragma once
#include "base/json.h"
#include "http/front.h"
#include "net/http_server.h"

typedef void front_handler(struct front *f, struct http_req *req);

front_handler gateway_upgrade;
front_handler health_live, health_ready, health_standby, metrics_show, metrics_standby;
front_handler cluster_trunk;                                 /* node_route.c */
front_handler enroll_by_code, enroll_by_caller;              /* enroll_route.c */
front_handler admin_token, admin_tokens, admin_token_revoke; /* admin_change.c */
front_handler manage_policy, manage_post, manage_instance;   /* manage.c */
front_handler admin_manage, admin_grants, admin_why;
front_handler front_v1, front_mcp;
front_handler media_upload, media_download; /* media_route.c */
front_handler site_root, site_chat, site_webhook;
front_handler admin_status, admin_reload, admin_nodes, admin_drain;
front_handler admin_agents; /* ops_agents.c */
front_handler admin_gateways, admin_gateway_add, admin_gateway_rotate, admin_gateway_revoke,
    admin_gateway_set;
front_handler admin_routes, admin_route_add, admin_route_remove;
front_handler admin_erase;                                         /* erase_route.c */
front_handler admin_outbox, admin_outbox_retry, admin_outbox_drop; /* admin_change.c */
front_handler admin_mailbox_show, admin_mailbox_purge, admin_mailbox_redrive;

/* Answer with a JSON body. */
void front_json(struct front *f, struct http_id id, int status, const struct buf *body);
/* Answer 503: the failure is temporary, and the caller should retry. */
void front_retry(struct front *f, struct http_req *req, const char *code, const char *what);
void front_retry_id(struct front *f, struct http_id id, const char *code, const char *what);
/* Rate limit of log lines about refused requests.  On true, @ret_untold is the number of refusals
 * that were not logged since the last line. */
bool front_may_log(struct front *f, unsigned long long *ret_untold);
/* True when the caller is on this machine, not behind a proxy, or sends the admin token.  On false
 * the refusal has been sent. */
bool front_is_operator(struct front *f, struct http_req *req);
