/* signature.c - Twilio's signatures.  (signature.h has the contract.) */
#include "platform/twilio/signature.h"
#include "base/crypto.h"
#include "edge/form.h"

enum { SIGNATURE_CHARS = 28 }; /* 20 bytes in base64 */

void twilio_signature(struct str auth_token, struct str url, const struct form *sorted,
                      struct buf *out)
{
    struct buf text = BUF_INIT;
    uint8_t mac[20];

    buf_add_str(&text, url);
    for (size_t i = 0; sorted != NULL && i < sorted->n; i++) {
        buf_add_str(&text, sorted->pairs[i].name);
        buf_add_str(&text, sorted->pairs[i].value);
    }
    hmac_sha1(auth_token, buf_str(&text), mac);
    base64_add(out, mac, sizeof mac);
    buf_done(&text);
}

void twilio_other_url(struct str url, struct buf *out)
{
    bool tls = str_starts(url, STR("https://"));
    size_t from = tls ? 8 : 7, end = from, colon = 0;

    for (; end < url.n && url.p[end] != '/' && url.p[end] != '?' && url.p[end] != '#'; end++) {
        if (url.p[end] == ':')
            colon = end;
        else if (url.p[end] == ']')
            colon = 0; /* those were inside an IPv6 address */
    }
    if (end > url.n)
        end = url.n;
    buf_add(out, url.p, colon > 0 ? colon : end);
    if (colon == 0)
        buf_add_str(out, tls ? STR(":443") : STR(":80"));
    buf_add_str(out, str_skip(url, end));
}

static bool matches(struct str auth_token, struct str url, const struct twilio_request *q)
{
    struct buf want = BUF_INIT;

    twilio_signature(auth_token, url, q->form, &want);
    bool ok = want.n == SIGNATURE_CHARS && q->signature.n == want.n &&
              ct_equal(want.p, q->signature.p, want.n);
    buf_done(&want);
    return ok;
}

/* The value of bodySHA256 in the query, which is signed with the rest of the address. */
static struct str hash_in(struct str url)
{
    ptrdiff_t at = str_find(url, '?');
    struct str rest = at < 0 ? STR_NULL : str_skip(url, (size_t)at + 1), part, found = STR_NULL;
    size_t n = 0;

    while (str_split(&rest, '&', &part))
        if (str_starts(part, STR("bodySHA256="))) {
            found = str_skip(part, 11);
            n++;
        }
    return n == 1 ? found : STR_NULL;
}

static bool body_matches(const struct twilio_request *q)
{
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];

    if (!hex_decode(hash_in(q->url), want, sizeof want))
        return false;
    sha256(q->body, got);
    return ct_equal(want, got, sizeof got);
}

bool twilio_signature_ok(struct str auth_token, const struct twilio_request *q)
{
    struct buf other = BUF_INIT;

    if (q->signature.n != SIGNATURE_CHARS || q->url.n < 8)
        return false;
    if (q->form == NULL && !body_matches(q))
        return false;
    if (q->form != NULL) {
        form_sort(q->form);
        /* Twilio counts twins once, so one could be added without breaking its signature. */
        if (form_has_twins(q->form))
            return false;
    }
    bool ok = matches(auth_token, q->url, q);
    if (!ok) {
        twilio_other_url(q->url, &other);
        ok = matches(auth_token, buf_str(&other), q);
    }
    buf_done(&other);
    return ok;
}
