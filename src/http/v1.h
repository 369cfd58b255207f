/* v1.h - the HTTP face of the operations that http/op.h declares: /v1, /manage and /admin.
 *
 *      key -> caller -> limits -> op_match() -> arguments -> the operation's handler -> its JSON
 *
 * Every error is {"error", "code", "class", ...fields of the class} (core/fault.h); those of
 * /manage and /admin have no class.  The key alone decides who the caller is.  The admin socket
 * takes no key: the operator names the tenant (X-Bellhop-Tenant) and may name authors.
 */
#pragma once
#include "core/caller.h"
#include "core/fault.h"
#include "http/front_priv.h"
#include "http/op.h"

struct v1_settings {                        /* `limits:` in the configuration, owned by it */
    uint32_t key_requests, tenant_requests; /* per second at /v1 and /mcp; 0: no limit */
    uint32_t tenant_provisions;             /* at /relay/provision and /relay/enroll; 0: no limit */
};
extern const struct config_section v1_config;

/* ---- authentication and limits, also for /mcp ---- */

/* Authenticates the caller and applies the rate limits.  @agent is the agent in the path, or
 * absent; on the admin socket it may decide the tenant.  False: the refusal has been sent.  True:
 * f->v1_work holds the bytes that the request counts for (limits.work_bytes), and the op_call takes
 * them over.  v1_give_work() returns bytes that no call took. */
bool v1_admit(struct front *f, struct http_req *req, struct str agent, struct caller *ret_caller);
/* The tenant that the operator means who names none: the agent's, else the only one.  Absent: none
 * or several. */
struct str v1_operator_tenant(const struct front *f, struct str agent);
void v1_give_work(struct front *f, struct v1_work *w); /* an empty @w is fine */
/* An mcp_may_cb: applies the rate limits of the caller's key once more. */
bool v1_may_again(void *front, const struct caller *who);

/* Keys were revoked: ends the calls, sessions and streams that they began.  A call that a change or
 * a search still has is refused when that is done. */
void v1_check_keys(struct front *f);

/* ---- answers ---- */

void v1_answer(struct op_call *c, int status, struct str json, struct str etag);
void v1_answer_file(struct op_call *c, const struct spill *file, struct str etag);
void v1_fault(struct front *f, struct http_id id, const struct op *op, const struct fault *fault);
/* Reads the arguments of @c, which are all in @body, and runs its handler. */
void v1_run_body(struct op_call *c, struct str body);
/* Runs @op for a page of the dashboard, which has been let in: every argument is a member of the
 * JSON body.  @tenant, unless absent, is the only tenant that the page may see; @key_id, unless
 * absent, the key that the page signed in with. */
void v1_run_page(struct front *f, struct http_req *req, const struct op *op, struct str identity,
                 struct str key_id, struct str tenant);

/* ---- the MCP face: mcp_route.c ---- */
void tools_add(struct mcp *m, struct front *f); /* every operation that is a tool */
void tool_answer(struct op_call *c, struct str json);
extern const struct mcp_resources chat_resources; /* ctx is the front */
