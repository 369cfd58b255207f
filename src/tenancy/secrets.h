/* secrets.h - the secrets of a gateway: which are good, and until when.
 *
 * Up to GATEWAY_SECRETS, the newest first.  A new one does not end the old ones at once, for the
 * process before may still be there:
 *
 *      after a rotation     they are good for as long as the operator said
 *      after a provision    for an hour, and until a newer one was used: a gateway that was given
 *                           a new secret and never came with it has lost the answer
 *
 * Only files of this folder include it. */
#pragma once
#include "tenancy/facts.h"

/* Takes @secret over as the newest; the others stay valid for @keep_ms at most, or, with
 * @until_used, longer if need be.  When there are too many, one that nobody used goes first. */
void secrets_push(struct gateway *g, char *secret, int64_t now_ms, int64_t keep_ms,
                  bool until_used);
bool secret_is_live(const struct gateway *g, size_t i, int64_t now_ms);
/* Somebody came with it.  True: that is news, to be written down. */
bool secret_was_used(struct gateway *g, size_t i);
