/* visitor.c - design.  (visitor.h has the contract.)
 *
 * chat id = 24 hex digits of SipHash-128(key, token), then 8 hex digits of SipHash-64(key, those
 * 24).  SipHash is a pseudo-random function under a secret key, which is all that is asked for, and
 * it costs a twentieth of an HMAC: this runs for every message posted. */
#include "platform/web/visitor.h"
#include <assert.h>
#include "base/rand.h"

#define ID_CHARS 24
#define CHECK_CHARS 8
static_assert(ID_CHARS + CHECK_CHARS == VISITOR_CHAT_CHARS, "a chat id is an id and its check");

static void hex_put(char *p, uint64_t v, int digits)
{
    for (int i = digits - 1; i >= 0; i--, v >>= 4)
        p[i] = "0123456789abcdef"[v & 15];
}

void visitor_mint(struct rand *r, char ret_token[VISITOR_TOKEN_CHARS + 1])
{
    uint64_t bits[2];

    rand_bytes(r, bits, sizeof bits);
    hex_put(ret_token, bits[0], 16);
    hex_put(ret_token + 16, bits[1], 16);
    ret_token[VISITOR_TOKEN_CHARS] = '\0';
}

bool visitor_token_is_ok(struct str token)
{
    if (token.n < 16 || token.n > 64)
        return false;
    for (size_t i = 0; i < token.n; i++) {
        char c = token.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return true;
}

static void put_check(const struct hash_key *key, char *chat_id)
{
    hex_put(chat_id + ID_CHARS, hash64(key, str_make(chat_id, ID_CHARS)), CHECK_CHARS);
}

void visitor_chat_id(const struct hash_key *key, struct str token,
                     char ret_chat_id[VISITOR_CHAT_CHARS + 1])
{
    struct hash128 h = hash128(key, token);

    hex_put(ret_chat_id, h.lo, 16);
    hex_put(ret_chat_id + 16, h.hi, ID_CHARS - 16);
    put_check(key, ret_chat_id);
    ret_chat_id[VISITOR_CHAT_CHARS] = '\0';
}

bool visitor_chat_is_ours(const struct hash_key *key, struct str chat_id)
{
    char copy[VISITOR_CHAT_CHARS];

    if (chat_id.n != VISITOR_CHAT_CHARS)
        return false;
    memcpy(copy, chat_id.p, sizeof copy);
    put_check(key, copy);
    return memcmp(copy, chat_id.p, sizeof copy) == 0;
}
