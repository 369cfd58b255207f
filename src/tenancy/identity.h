/* identity.h - the (platform, bot) pairs a gateway was added or provisioned for.
 *
 * A gateway that serves several platforms provisions once for each, under one id.  The pair it
 * named last is the one an identity "relay" without a bot stands for; the others are kept beside
 * it, one of each platform.
 */
#pragma once
#include "base/json.h"
#include "tenancy/facts.h"

#define IDENTITIES_MAX 16 /* of one gateway; the one named longest ago goes first */

struct jw;

/* It is for this pair from now on, and for no other of that platform.  @bot NULL: the one it
 * has. */
void identity_take(struct gateway *g, const char *platform, const char *bot);
/* The @n-th pair, the one named last first.  False: it has no more. */
bool identity_nth(const struct gateway *g, size_t n, struct str *ret_platform, struct str *ret_bot);
/* Was it added or provisioned for this very pair? */
bool identity_has(const struct gateway *g, struct str platform, struct str bot);

/* An array of objects: all of them, or those beside the last. */
void identity_write(struct jw *w, const struct gateway *g, size_t from);
void identity_read(struct gateway *g, struct json array); /* those beside the last */
