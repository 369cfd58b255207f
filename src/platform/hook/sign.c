/* sign.c - signatures.  (sign.h has the contract.) */
#include "platform/hook/sign.h"
#include "base/crypto.h"
#include "platform/await.h"

#define SHA1_BYTES 20

static bool decode(int encoding, struct str text, struct buf *out)
{
    uint8_t byte;

    if (encoding == HOOK_BASE64)
        return base64_decode(text, out);
    if (encoding == HOOK_AS_TEXT) {
        buf_add_str(out, text);
        return true;
    }
    for (size_t i = 0; i + 2 <= text.n; i += 2) {
        if (!hex_decode(str_make(text.p + i, 2), &byte, 1))
            return false;
        buf_add_c(out, (char)byte);
    }
    return text.n % 2 == 0;
}

bool hook_key(const struct hook_sign *s, struct buf *ret_key)
{
    return decode(s->secret_encoding, str_of(s->secret), ret_key) && ret_key->n > 0;
}

/* The bytes of the signature; 0: the template names a header that is not there. */
static size_t sign(const struct hook_sign *s, struct str key, const struct template_values *v,
                   uint8_t ret_mac[SHA256_BYTES])
{
    BUF_LOCAL covered = BUF_INIT;

    if (!template_plain(str_of(s->covers), v, &covered))
        return 0;
    if (s->hmac == HOOK_SHA1)
        hmac_sha1(key, buf_str(&covered), ret_mac);
    else
        hmac_sha256(key, buf_str(&covered), ret_mac);
    return s->hmac == HOOK_SHA1 ? SHA1_BYTES : SHA256_BYTES;
}

bool hook_signature(const struct hook_sign *s, struct str key, const struct template_values *v,
                    struct buf *out)
{
    uint8_t mac[SHA256_BYTES];
    size_t n = sign(s, key, v, mac);

    if (s->prefix != NULL)
        buf_add_z(out, s->prefix);
    if (s->encoding == HOOK_BASE64)
        base64_add(out, mac, n);
    else
        hex_add(out, mac, n);
    return n > 0;
}

static bool shows(const struct hook_sign *s, struct str one, const uint8_t *mac, size_t n)
{
    struct str prefix = s->prefix != NULL ? str_of(s->prefix) : STR("");
    BUF_LOCAL bytes = BUF_INIT;

    return str_starts(one, prefix) && decode(s->encoding, str_skip(one, prefix.n), &bytes) &&
           bytes.n == n && ct_equal(bytes.p, mac, n);
}

bool hook_signature_ok(const struct hook_sign *s, struct str key, const struct template_values *v,
                       struct str shown, int64_t wall_ms)
{
    uint8_t mac[SHA256_BYTES];
    struct str rest = shown, one;
    size_t n, tried = 0;

    if (s->hmac == HOOK_NONE)
        return true;
    if (s->hmac == HOOK_TOKEN) {
        struct str prefix = s->prefix != NULL ? str_of(s->prefix) : STR("");
        return str_starts(shown, prefix) && webhook_shows(str_skip(shown, prefix.n), s->secret);
    }
    if (s->timestamp_header != NULL &&
        !webhook_is_now(v->header(v->ctx, s->timestamp_header), wall_ms, HOOK_WINDOW_MS))
        return false;
    n = sign(s, key, v, mac);
    while (n > 0 && tried++ < HOOK_MAX_SIGNATURES && str_split(&rest, ' ', &one))
        if (shows(s, one, mac, n))
            return true;
    return false;
}
