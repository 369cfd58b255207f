/* session.h - session ids that need no memory: random, signed, bound to a key.
 *
 *      id = base64url(16 random bytes, 17 bytes of HMAC(session key, random, key id))
 *
 * 33 bytes, because then every character counts and an id has one spelling.  Only mcp.c includes
 * it. */
#pragma once
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"

#define SESSIONS_ENDED_MAX 4096 /* deleted ids that are remembered; the oldest are forgotten */

struct rand;

struct mcp_sessions {
    uint8_t key[32];  /* wiped */
    struct map ended; /* id -> struct ended, owned */
    struct list ended_by_age;
};
void sessions_init(struct mcp_sessions *s, const uint8_t key[32]);
void sessions_done(struct mcp_sessions *s);
void sessions_open(const struct mcp_sessions *s, struct rand *rand, struct str key_id,
                   struct buf *out);
bool sessions_ok(const struct mcp_sessions *s, struct str key_id, struct str id);
void sessions_end(struct mcp_sessions *s, struct str id); /* it was ok */
