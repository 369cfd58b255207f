/* An Authorization header from anybody: reading and judging it must not crash, and nothing that is
 * not signed with the secret may be accepted. */
#include <stdlib.h>
#include "base/crypto.h"
#include "core/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was accepted must be what minting gives for the same id and time. */
static void check_accepted(const struct token *t, struct str secret)
{
    struct buf again = BUF_INIT, scratch = BUF_INIT;
    struct token back;

    token_mint(&again, t->payload, secret, t->exp);
    if (!token_read(buf_str(&again), &scratch, &back) || !ct_equal(back.mac, t->mac, 32))
        abort();
    buf_done(&again);
    buf_done(&scratch);
}

static void try_token(struct str text)
{
    static const struct str secrets[] = {{"s3cret", 6}, {"", 0}};
    struct buf scratch = BUF_INIT;
    struct token t;

    if (token_read(text, &scratch, &t)) {
        if (!utf8_valid(t.payload) || t.signed_part.n < t.payload.n + 2)
            abort();
        if (token_verify(&t, secrets, 2, 1782000000, TOKEN_SKEW_S) != TOKEN_BAD)
            check_accepted(&t, secrets[0]);
    }
    buf_done(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str header = str_make(data, size);
    struct buf text = BUF_INIT;

    try_token(header);
    try_token(token_of_header(header));
    base64url_add(&text, data, size); /* so that the fuzzer need not discover base 64 */
    try_token(buf_str(&text));
    buf_done(&text);
    return 0;
}
