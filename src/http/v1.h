/* v1.h - /v1: the stores and the agents for programs, by key.
 *
 *      key -> who -> limits -> the table in v1_route.c -> one call of a module -> its JSON
 *
 * Every error is {"error", "code", "class", ...fields of the class} (core/fault.h).  Who the caller
 * is comes from the key alone; on the admin socket, where there is none, the operator names the
 * tenant (X-Bellhop-Tenant) and may name authors.
 */
#pragma once
#include "base/arena.h"
#include "core/caller.h"
#include "core/fault.h"
#include "http/front_priv.h"

struct data_answer;
struct data_call;
struct dispatch_call;
struct dispatch_who;
struct key;
struct skills_answer;
struct skills_call;

struct mcp_who;
bool v1_may_again(void *front, const struct mcp_who *who); /* an mcp_may_cb: limits of its key */

struct v1_settings {                        /* `limits:` in the configuration, owned by it */
    uint32_t key_requests, tenant_requests; /* per second at /v1 and /mcp; 0: no limit */
    uint32_t tenant_provisions;             /* the same at /relay/provision and /relay/enroll */
};
extern const struct config_section v1_config;

struct v1_who { /* borrowed for this turn */
    struct caller caller;
    const struct key *key; /* NULL: the operator */
};

#define V1_ARGS_MAX 2
struct v1_request { /* while the handler runs */
    struct front *f;
    struct http_req *req;
    struct v1_who who;
    struct str args[V1_ARGS_MAX]; /* what stands for {…} in the path, decoded */
    struct arena *arena;
};
typedef void v1_handler(struct v1_request *r);

struct v1_route {
    const char *method, *pattern; /* "{name}" stands for one segment, anything in it */
    v1_handler *handler;
    bool open; /* without a key too */
};
extern const struct v1_route v1_routes[]; /* ends with a NULL method; the OpenAPI document says the
                                             same, and a test holds them together */

/* Does @path match?  Segments are decoded into @arena; false also for a broken escape, a NUL or
 * what is not UTF-8. */
bool v1_match(const char *pattern, struct str path, struct arena *arena,
              struct str ret_args[V1_ARGS_MAX]);
/* Who is it, and may it ask now?  False: the refusal has been sent. */
bool v1_admit(struct front *f, struct http_req *req, struct v1_who *ret_who);
/* What the request costs while it is under way (limits.work_bytes) is taken with that, kept by the
 * call that is made for it, and given back by front_v1() and front_mcp() where there was none. */
bool v1_take_work(struct front *f, struct http_req *req, struct str tenant);
void v1_give_work(struct front *f, struct v1_work *w); /* none is fine */
/* A bearer was shown and is nobody's (or none was): 401. */
void v1_refuse_stranger(struct front *f, struct http_req *req);

struct dispatch_who
v1_dispatch_who(const struct v1_who *who); /* v1_agents.c; dispatch/dispatch.h */

/* A call of the dispatch has ended: a dispatch_cb, its ctx the struct v1_call. */
struct dispatch_answer;
void v1_on_dispatched(void *ctx, const struct dispatch_answer *a);

/* ---- answers ---- */
/* A refusal that is no class of the contract's. */
void v1_refuse(struct front *f, struct http_req *req, int status, const char *headers,
               const char *code, const char *what);
void v1_answer(struct front *f, struct http_id id, int status, const char *headers,
               struct str json);
/* 200 with @file, or with @json where @file is NULL. */
struct spill;
void v1_answer_long(struct front *f, struct http_id id, const char *headers, struct str json,
                    const struct spill *file);
void v1_fault(struct front *f, struct http_id id, const struct fault *fault);
/* A fault of the request itself, in words. */
void v1_bad(struct v1_request *r, enum fault_class cls, const char *fmt, ...) BH_PRINTF(3, 4);
/* The body as a JSON object.  NULL: the refusal has been sent; else the caller frees the parser. */
struct json_parser *v1_body(struct v1_request *r, struct json *ret_doc);

/* ---- a call on its way ---- */
struct v1_call {
    struct list link; /* front->v1_calls */
    struct front *f;  /* borrowed */
    struct http_id id;
    struct skills_call *skills; /* one of them, until its callback */
    struct data_call *data;
    struct dispatch_call *dispatch;
    bool stream;         /* /mcp: its reply goes as an event stream */
    struct v1_work work; /* until it is answered */
};
struct v1_call *v1_call_new(struct front *f, struct http_id id);
void v1_call_free(struct v1_call *c);
/* The server goes down: the stores are closed and call nobody back. */
void v1_drop_calls(struct front *f);

v1_handler v1_skills_query, v1_skills_load, v1_skills_metadata, v1_skills_versions, v1_skills_store,
    v1_skills_status, v1_skills_delete, v1_skills_manifest, v1_skills_version,
    v1_skills_dependents;                                               /* v1_skills.c */
v1_handler v1_data_write, v1_data_query, v1_data_get, v1_data_manifest; /* v1_data.c */
v1_handler v1_agents_list, v1_agents_deliver, v1_agents_wake, v1_agents_request, v1_agents_status,
    v1_agents_replies;                                    /* v1_agents.c */
v1_handler v1_hook_deliver, v1_hook_wake, v1_hook_status; /* v1_hooks.c */
v1_handler v1_health, v1_openapi;                         /* v1_route.c */
