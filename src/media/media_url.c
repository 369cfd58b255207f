/* media_url.c - where a file is read, and what proves that one may.
 *
 * A signature is the first half of a keyed fingerprint of the id and the second it ends: enough
 * that nobody guesses one, short enough for a URL that people copy. */
#include <inttypes.h>
#include <stdio.h>
#include "base/crypto.h"
#include "media/media_priv.h"
#include "store/seal.h"

enum { SIGNATURE_BYTES = 16 };

static const struct str PLACE = STR("/relay/media/");

static void sign(const struct media *m, struct str id, struct str expires,
                 uint8_t ret_mac[SHA256_BYTES])
{
    struct buf text = BUF_INIT;

    buf_add_str(&text, id);
    buf_add_c(&text, ' ');
    buf_add_str(&text, expires);
    seal_mac(m->env.seal, STR("media url"), buf_str(&text), ret_mac);
    buf_done(&text);
}

void media_url(const struct media *m, struct str base, struct str id, bool with_signature,
               struct buf *out)
{
    uint8_t mac[SHA256_BYTES];
    char expires[24];

    buf_add_str(out, base);
    buf_add_str(out, PLACE);
    buf_add_str(out, id);
    if (!with_signature)
        return;
    snprintf(expires, sizeof expires, "%" PRId64,
             (clock_wall_ms(m->clock) + m->env.settings->ttl_ms) / 1000);
    sign(m, id, str_of(expires), mac);
    buf_printf(out, "?exp=%s&sig=", expires);
    base64url_add(out, mac, SIGNATURE_BYTES);
}

bool media_signature_is_good(const struct media *m, struct str id, struct str expires,
                             struct str signature)
{
    struct buf shown = BUF_INIT;
    uint8_t mac[SHA256_BYTES];
    int64_t until_s;
    bool good = str_to_i64(expires, &until_s) && until_s > clock_wall_ms(m->clock) / 1000 &&
                base64url_decode(signature, &shown) && shown.n == SIGNATURE_BYTES;

    if (good) {
        sign(m, id, expires, mac);
        good = ct_equal(mac, shown.p, SIGNATURE_BYTES);
    }
    buf_done(&shown);
    return good;
}

struct str media_id_in(struct str url)
{
    ptrdiff_t end = str_find(url, '?');

    if (end >= 0)
        url.n = (size_t)end;
    if (url.n < PLACE.n + MEDIA_ID_CHARS)
        return STR_NULL;
    struct str tail = str_skip(url, url.n - PLACE.n - MEDIA_ID_CHARS);
    if (!str_starts(tail, PLACE))
        return STR_NULL;
    tail = str_skip(tail, PLACE.n);
    for (size_t i = 0; i < tail.n; i++)
        if (hex_value(tail.p[i]) < 0 || (tail.p[i] >= 'A' && tail.p[i] <= 'F'))
            return STR_NULL;
    return tail;
}
