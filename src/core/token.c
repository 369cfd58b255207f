/* token.c - design.  (token.h has the contract.)
 *
 * The signature covers payload ":" exp with exp as a plain number.  A token may write that number
 * with leading zeros.  So token_read() rebuilds the signed bytes from the number, after the decoded
 * text in the scratch buffer, and never takes them from the token. */
#include "core/token.h"
#include "base/crypto.h"

/* Cuts the part after the last colon off *@rest. */
static bool take_last(struct str *rest, struct str *ret_part)
{
    for (size_t i = rest->n; i > 0; i--)
        if (rest->p[i - 1] == ':') {
            *ret_part = str_skip(*rest, i);
            rest->n = i - 1;
            return true;
        }
    return false;
}

/* Decimal digits with an optional "-" and any number of leading zeros. */
static bool read_exp(struct str s, int64_t *ret_exp)
{
    bool minus = s.n > 0 && s.p[0] == '-';
    uint64_t v;

    if (minus)
        s = str_skip(s, 1);
    while (s.n > 1 && s.p[0] == '0')
        s = str_skip(s, 1);
    if (!str_to_u64(s, &v) || v > INT64_MAX)
        return false;
    *ret_exp = minus ? -(int64_t)v : (int64_t)v;
    return true;
}

bool token_read(struct str text, struct buf *scratch, struct token *ret)
{
    struct str rest, sig, exp_text;
    struct token t = {0};

    buf_reset(scratch);
    if (!base64url_decode(text, scratch) || buf_failed(scratch))
        return false;
    rest = buf_str(scratch);
    if (!utf8_valid(rest) || !take_last(&rest, &sig) || !take_last(&rest, &exp_text))
        return false;
    if (!read_exp(exp_text, &t.exp) || !hex_decode(sig, t.mac, sizeof t.mac))
        return false;

    size_t payload_n = rest.n, signed_at = scratch->n;
    if (buf_room(scratch, payload_n + 24) == NULL)
        return false;
    buf_add(scratch, scratch->p, payload_n); /* buf_room() reserved it, so the bytes do not move */
    buf_add_c(scratch, ':');
    buf_add_i64(scratch, t.exp);
    if (buf_failed(scratch))
        return false;
    t.payload = str_make(scratch->p, payload_n);
    t.signed_part = str_make(scratch->p + signed_at, scratch->n - signed_at);
    *ret = t;
    return true;
}

enum token_verdict token_verify(const struct token *t, const struct str *secrets, size_t n,
                                int64_t now_s, int64_t skew_s)
{
    uint8_t mac[SHA256_BYTES];
    bool ours = false;

    for (size_t i = 0; i < n && !ours; i++) {
        if (str_is_empty(secrets[i]))
            continue;
        hmac_sha256(secrets[i], t->signed_part, mac);
        ours = ct_equal(mac, t->mac, sizeof mac);
    }
    secret_wipe(mac, sizeof mac);
    if (!ours)
        return TOKEN_BAD;
    /* Not exp + skew_s, which could overflow: the peer chooses exp. */
    return t->exp != 0 && now_s - skew_s > t->exp ? TOKEN_EXPIRED : TOKEN_OK;
}

void token_mint(struct buf *out, struct str gateway_id, struct str secret, int64_t exp)
{
    struct buf plain = BUF_INIT;
    uint8_t mac[SHA256_BYTES];

    buf_add_str(&plain, gateway_id);
    buf_add_c(&plain, ':');
    buf_add_i64(&plain, exp);
    hmac_sha256(secret, buf_str(&plain), mac);
    buf_add_c(&plain, ':');
    hex_add(&plain, mac, sizeof mac);
    base64url_add(out, plain.p, plain.n);
    secret_wipe(mac, sizeof mac);
    buf_wipe(&plain);
}

struct str token_of_header(struct str authorization)
{
    struct str token;

    authorization = str_trim(authorization);
    if (authorization.n < 8 || !str_eq_ci(str_make(authorization.p, 7), STR("bearer ")))
        return STR_NULL;
    token = str_trim(str_skip(authorization, 7));
    return str_find(token, ' ') < 0 ? token : STR_NULL;
}
