/* manage.h - the management plane: the links, scopes, principals and policies of an instance.
 *
 *      /manage/..., /relay/policy   the instance, with its gateway's bearer or a signed token
 *      /admin/manage/...            the operator over the admin socket, who names the instance
 *
 * Both reach the same operations (ops_manage).  On the public side tenant and instance come from
 * the stored record of the credential, never from the body. */
#pragma once
#include "http/op.h"

struct idp_claims;

/* Authenticates the instance or finds the one that the operator names, then runs @op. */
void manage_enter(struct front *f, struct http_req *req, const struct op *op);

/* Runs the operation of @c for the instance that @body names.  @tenant is absent for the operator;
 * else it is the only tenant that @body may name, and @c has the rights of the instance itself. */
void manage_name(struct op_call *c, struct str body, struct str tenant);

/* True when the bearer has the three parts of a JSON Web Token; a gateway's bearer has two. */
bool bearer_looks_signed(struct str bearer);
/* The stored gateway of the instance that the token names.  NULL: there is none, or the token names
 * no tenant and several tenants have such an instance. */
const struct gateway *gateway_of_claims(struct front *f, const struct idp_claims *claims);
