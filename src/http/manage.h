/* manage.h - the management plane: the links, scopes, principals and policies of an instance.
 *
 *      /manage/..., /relay/policy   the instance, with its gateway's bearer or a signed token
 *      /admin/manage/...            the operator over the admin socket, who names the instance
 *
 * Both reach the same operations.  On the public side tenant and instance come from the stored
 * record of the credential, never from the body. */
#pragma once
#include "base/json.h"
#include "net/http_server.h"
#include "tenancy/grants.h"

struct front;

struct manage_call { /* one request in flight; freed when it is answered */
    struct front *f; /* borrowed */
    struct http_id id;
    char *tenant, *instance; /* owned */
    char *gateway;           /* owned; the gateway of the bearer; NULL: signed token or operator */
    char *path;              /* owned; below /manage/ */
    bool is_operator;        /* over the admin socket */
    char *body;              /* owned */
    size_t body_n;
    struct buf code; /* link: the code that the person sends to the bot */
    int64_t expires_ms;
    char *platform_copy; /* owned; link: the platform of the code; NULL: any */
};

static inline struct grant_who manage_who(const struct manage_call *c)
{
    return (struct grant_who){str_of(c->tenant), str_of(c->instance)};
}
/* True when the bearer has the three parts of a JSON Web Token; a gateway's bearer has two. */
bool bearer_looks_signed(struct str bearer);
struct idp_claims;
/* The stored gateway of the instance that the token names.  NULL: there is none, or the token names
 * no tenant and several tenants have such an instance. */
const struct gateway *agent_of_claims(struct front *f, const struct idp_claims *claims);

void manage_call_free(struct manage_call *c);
/* Performs the operation that c->path names, and answers.  Takes ownership of @c. */
void manage_perform(struct manage_call *c);
