/* front_priv.h - the handlers in the table of route.c, and the helpers they share.  Private to
 * src/http/. */
#pragma once
#include "http/front.h"
#include "net/http_server.h"

typedef void front_handler(struct front *f, struct http_req *req);

front_handler gateway_upgrade;
front_handler health_live, health_ready, health_standby, metrics_show;
front_handler cluster_trunk;                    /* node_route.c */
front_handler enroll_by_code, enroll_by_caller; /* enroll_route.c */
front_handler front_ops; /* v1.c: finds the operation; answers 404 where there is none */
front_handler front_mcp;
front_handler media_upload, media_download; /* media_route.c */
front_handler site_root, site_chat, site_webhook, site_fixed, site_install;
/* The platform whose fixed_path @path is below; NULL: none. */
struct platform_ops;
const struct platform_ops *site_fixed_at(struct str path);
front_handler site_dashboard; /* dashboard.c */

/* Answer with a JSON body. */
void front_json(struct front *f, struct http_id id, int status, const struct buf *body);
/* Answer 503: the failure is temporary, and the caller should retry. */
void front_retry(struct front *f, struct http_req *req, const char *code, const char *what);
void front_retry_id(struct front *f, struct http_id id, const char *code, const char *what);
/* True while the server is going down: the request has been answered with 503. */
bool front_is_draining(struct front *f, struct http_req *req);
/* Rate limit of log lines about refused requests.  On true, @ret_untold is the number of refusals
 * that were not logged since the last line. */
bool front_may_log(struct front *f, unsigned long long *ret_untold);
/* True when the caller is on this machine and not behind a proxy. */
bool front_is_local(const struct front *f, const struct http_req *req);
/* True when the caller is on this machine, not behind a proxy, or sends the admin token.  On false
 * the refusal has been sent. */
bool front_is_operator(struct front *f, struct http_req *req);
