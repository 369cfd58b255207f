/* token.h - the bearer a gateway shows: base64url(payload ":" exp ":" hex HMAC-SHA256). */
#pragma once
#include "base/buf.h"

#define TOKEN_SKEW_S 120 /* accepted past exp */

struct token {          /* read, not yet believed */
    struct str payload; /* the gateway id; may contain colons; borrowed from @scratch */
    int64_t exp;        /* unix seconds, 0: never */
    struct str signed_part;
    uint8_t mac[32];
};

enum token_verdict { TOKEN_OK, TOKEN_EXPIRED /* well signed */, TOKEN_BAD };

/* Decode into @scratch.  False: not a token at all. */
bool token_read(struct str text, struct buf *scratch, struct token *ret);
/* Against every live secret, newest first, in constant time per secret;
 * empty secrets never match. */
enum token_verdict token_verify(const struct token *t, const struct str *secrets, size_t n,
                                int64_t now_s, int64_t skew_s);
void token_mint(struct buf *out, struct str gateway_id, struct str secret, int64_t exp);
/* The token inside "Bearer x"; STR_NULL when the header is something else. */
struct str token_of_header(struct str authorization);
