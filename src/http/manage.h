/* manage.h - the management plane: what an instance declares about itself.
 *
 * Two ways to the same operations: /manage/... and /relay/policy for whoever shows a gateway's own
 * bearer or a token signed for the instance; /admin/manage/... for the operator, who names the
 * instance.  On the public side tenant and instance come from the stored record behind the
 * credential; what a body says about them is not read. */
#pragma once
#include "base/json.h"
#include "net/http_server.h"
#include "tenancy/grants.h"

struct front;

struct manage_call { /* one request on its way; freed when it is answered */
    struct front *f; /* borrowed */
    struct http_id id;
    char *tenant, *instance; /* owned */
    char *gateway;           /* owned; whose bearer it was; NULL: a signed token, or the operator */
    char *path;              /* owned; below /manage/ */
    bool is_operator;        /* over the admin socket */
    char *body;              /* owned */
    size_t body_n;
    struct buf code; /* link: what to show */
    int64_t expires_ms;
    char *platform_copy; /* owned; link: what it is for; NULL: any */
};

static inline struct grant_who manage_who(const struct manage_call *c)
{
    return (struct grant_who){str_of(c->tenant), str_of(c->instance)};
}
/* A bearer that is, or would like to be, a JSON Web Token; those of gateways have two parts. */
bool bearer_looks_signed(struct str bearer);
struct idp_claims;
/* The gateway a token for an instance speaks for: the record behind it, not its words.  NULL: there
 * is none, or it does not say which tenant's. */
const struct gateway *agent_of_claims(struct front *f, const struct idp_claims *claims);

void manage_call_free(struct manage_call *c);
/* Perform the operation c->path names, and answer; takes @c over. */
void manage_perform(struct manage_call *c);
