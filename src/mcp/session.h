/* session.h - session ids that need no server state: random, signed, bound to an API key.
 *
 *      id = base64url(16 random bytes, 17 bytes of HMAC(session key, random, key id))
 *
 * The length is 33 bytes, a multiple of 3, so base64url has no spare bits and each id has exactly
 * one spelling.  Only mcp.c includes this header. */
#pragma once
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"

#define SESSIONS_ENDED_MAX 4096 /* remembered deleted ids; beyond this the oldest are dropped */

struct rand;

struct mcp_sessions {
    uint8_t key[32];  /* wiped by sessions_done() */
    struct map ended; /* id -> struct ended, owned */
    struct list ended_by_age;
};
void sessions_init(struct mcp_sessions *s, const uint8_t key[32]);
void sessions_done(struct mcp_sessions *s);
void sessions_open(const struct mcp_sessions *s, struct rand *rand, struct str key_id,
                   struct buf *out);
bool sessions_ok(const struct mcp_sessions *s, struct str key_id, struct str id);
void sessions_end(struct mcp_sessions *s, struct str id); /* @id passed sessions_ok() */
