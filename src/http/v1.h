/* v1.h - /v1: the HTTP face of the operations that http/op.h declares.
 *
 *      key -> caller -> limits -> op_match() -> arguments -> the operation's handler -> its JSON
 *
 * Every error is {"error", "code", "class", ...fields of the class} (core/fault.h).  The caller
 * comes from the key alone.  On the admin socket, which takes no key, the operator names the tenant
 * (X-Bellhop-Tenant) and may name authors.
 */
#pragma once
#include "core/caller.h"
#include "core/fault.h"
#include "http/front_priv.h"
#include "http/op.h"

struct v1_settings {                        /* `limits:` in the configuration, owned by it */
    uint32_t key_requests, tenant_requests; /* per second at /v1 and /mcp; 0: no limit */
    uint32_t tenant_provisions;             /* the same at /relay/provision and /relay/enroll */
};
extern const struct config_section v1_config;

/* ---- who may: also for /mcp ---- */

/* @agent: the agent the path names, which may tell the operator's tenant; absent: none.  False: the
 * refusal has been sent.  What the request counts for (limits.work_bytes) lies in f->v1_work then,
 * for the call to take over; v1_give_work() gives back what no call took. */
bool v1_admit(struct front *f, struct http_req *req, struct str agent, struct caller *ret_caller);
void v1_give_work(struct front *f, struct v1_work *w);    /* none is fine */
bool v1_may_again(void *front, const struct caller *who); /* an mcp_may_cb: limits of its key */

/* ---- answers ---- */

void v1_answer(struct op_call *c, int status, struct str json, struct str etag);
void v1_answer_file(struct op_call *c, const struct spill *file, struct str etag);
void v1_fault(struct front *f, struct http_id id, const struct fault *fault);

/* ---- the MCP face: mcp_route.c ---- */
struct mcp;
void tools_add(struct mcp *m, struct front *f); /* every operation that is a tool */
void tool_answer(struct op_call *c, struct str json);
