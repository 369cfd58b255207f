/* token.h - the bearer token of a gateway: base64url(payload ":" exp ":" hex HMAC-SHA256).
 *
 * tenancy/facts.c verifies tokens with the gateway's secrets. */
#pragma once
#include "base/buf.h"

#define TOKEN_SKEW_S 120 /* accepted past exp */

struct token {          /* parsed, not verified */
    struct str payload; /* the gateway id; may contain colons; borrowed from the scratch buffer */
    int64_t exp;        /* unix seconds, 0: never */
    struct str signed_part;
    uint8_t mac[32];
};

enum token_verdict { TOKEN_OK, TOKEN_EXPIRED /* well signed */, TOKEN_BAD };

/* Decodes into @scratch.  False: not a token. */
bool token_read(struct str text, struct buf *scratch, struct token *ret);
/* Tries the @n secrets in order, in constant time per secret.  Empty secrets never match. */
enum token_verdict token_verify(const struct token *t, const struct str *secrets, size_t n,
                                int64_t now_s, int64_t skew_s);
void token_mint(struct buf *out, struct str gateway_id, struct str secret, int64_t exp);
/* The token inside "Bearer x"; STR_NULL when the header is something else. */
struct str token_of_header(struct str authorization);
