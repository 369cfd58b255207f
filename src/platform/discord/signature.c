/* signature.c - design.  (signature.h has the contract.)
 *
 * Everything cheap is looked at first: a stranger who does not even have a plausible header pays
 * with a few comparisons.  The key is read once; OpenSSL wants the message in one piece. */
#include "platform/discord/signature.h"
#include <stdlib.h>
#include "base/crypto.h"
#include "base/ed25519.h"
#include "base/mem.h"

enum { TIMESTAMP_MAX = 12, KEEP_BYTES = 64 * 1024 };

struct discord_sig {
    struct ed25519_key *key; /* owned */
    struct buf message;
};

struct discord_sig *discord_sig_new(struct str public_key)
{
    uint8_t bytes[ED25519_RAW_BYTES];

    if (!hex_decode(str_trim(public_key), bytes, sizeof bytes))
        return NULL;
    struct ed25519_key *key = ed25519_public_raw(bytes);
    if (key == NULL)
        return NULL;
    struct discord_sig *s = xcalloc(1, sizeof *s);
    s->key = key;
    return s;
}

void discord_sig_free(struct discord_sig *s)
{
    if (s == NULL)
        return;
    ed25519_free(s->key);
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

bool discord_sig_is_plausible(struct str timestamp, struct str signature, int64_t wall_ms)
{
    uint8_t bytes[ED25519_BYTES];

    return is_now(timestamp, wall_ms) && hex_decode(signature, bytes, sizeof bytes);
}

bool discord_sig_ok(struct discord_sig *s, struct str timestamp, struct str signature,
                    struct str body, int64_t wall_ms)
{
    uint8_t bytes[ED25519_BYTES];

    if (!is_now(timestamp, wall_ms) || !hex_decode(signature, bytes, sizeof bytes))
        return false;
    buf_reset(&s->message);
    buf_add_str(&s->message, timestamp);
    buf_add_str(&s->message, body);
    bool ok = ed25519_verify(s->key, buf_str(&s->message), str_make(bytes, sizeof bytes));
    if (s->message.cap > KEEP_BYTES)
        buf_done(&s->message);
    return ok;
}
