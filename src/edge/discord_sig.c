/* discord_sig.c - design.  (discord_sig.h has the contract.)
 *
 * Everything cheap is looked at first: a stranger who does not even have a plausible header pays
 * with a few comparisons.  The key is read once; OpenSSL wants the message in one piece. */
#include "edge/discord_sig.h"
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"

enum { KEY_BYTES = 32, SIGNATURE_BYTES = 64, TIMESTAMP_MAX = 12, KEEP_BYTES = 64 * 1024 };

struct discord_sig {
    EVP_PKEY *key;   /* owned */
    EVP_MD_CTX *ctx; /* owned */
    struct buf message;
};

struct discord_sig *discord_sig_new(struct str public_key)
{
    uint8_t bytes[KEY_BYTES];

    if (!hex_decode(str_trim(public_key), bytes, sizeof bytes))
        return NULL;
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes, sizeof bytes);
    if (key == NULL)
        return NULL;
    struct discord_sig *s = xcalloc(1, sizeof *s);
    s->key = key;
    s->ctx = EVP_MD_CTX_new();
    return s;
}

void discord_sig_free(struct discord_sig *s)
{
    if (s == NULL)
        return;
    EVP_PKEY_free(s->key);
    EVP_MD_CTX_free(s->ctx);
    buf_done(&s->message);
    free(s);
}

static bool is_now(struct str timestamp, int64_t wall_ms)
{
    uint64_t seconds;

    if (timestamp.n == 0 || timestamp.n > TIMESTAMP_MAX || !str_to_u64(timestamp, &seconds))
        return false;
    int64_t off_ms = (int64_t)seconds * 1000 - wall_ms;
    return off_ms <= DISCORD_SIG_WINDOW_MS && off_ms >= -DISCORD_SIG_WINDOW_MS;
}

bool discord_sig_ok(struct discord_sig *s, struct str timestamp, struct str signature,
                    struct str body, int64_t wall_ms)
{
    uint8_t bytes[SIGNATURE_BYTES];

    if (!is_now(timestamp, wall_ms) || !hex_decode(signature, bytes, sizeof bytes))
        return false;
    buf_reset(&s->message);
    buf_add_str(&s->message, timestamp);
    buf_add_str(&s->message, body);
    EVP_MD_CTX_reset(s->ctx);
    bool ok = EVP_DigestVerifyInit(s->ctx, NULL, NULL, NULL, s->key) == 1 &&
              EVP_DigestVerify(s->ctx, bytes, sizeof bytes, (const uint8_t *)s->message.p,
                               s->message.n) == 1;
    ERR_clear_error(); /* a refusal leaves one, and nobody else should stumble over it */
    if (s->message.cap > KEEP_BYTES)
        buf_done(&s->message);
    return ok;
}
