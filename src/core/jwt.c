/* jwt.c - design.  (jwt.h has the contract.)
 *
 * A token without a key id is verified with the only key.  With several keys it is refused, because
 * an issuer with several keys names them. */
#include "core/jwt.h"
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"

#define KEYS_MAX 64
#define ENDORSEMENTS_MAX 4096 /* bytes of one key's */

struct jwt_keys {
    struct {
        char *kid;           /* owned; NULL: none */
        struct rsa_key *rsa; /* owned */
        char *endorsements;  /* owned; each between two separators; NULL: none */
    } all[KEYS_MAX];
    size_t n;
    int64_t skew_s;
};
#define SEPARATOR '\x1f'

struct jwt_keys *jwt_keys_new(void)
{
    struct jwt_keys *k = xcalloc(1, sizeof *k);

    k->skew_s = JWT_SKEW_S;
    return k;
}

static void clear(struct jwt_keys *k)
{
    for (size_t i = 0; i < k->n; i++) {
        free(k->all[i].kid);
        free(k->all[i].endorsements);
        rsa_key_free(k->all[i].rsa);
    }
    k->n = 0;
}

void jwt_keys_free(struct jwt_keys *k)
{
    if (k != NULL)
        clear(k);
    free(k);
}

size_t jwt_keys_count(const struct jwt_keys *k)
{
    return k->n;
}

void jwt_keys_set_skew(struct jwt_keys *k, int64_t skew_s)
{
    k->skew_s = skew_s;
}

static bool add(struct jwt_keys *k, struct str kid, struct rsa_key *rsa)
{
    if (rsa == NULL || k->n == KEYS_MAX) {
        rsa_key_free(rsa);
        return false;
    }
    k->all[k->n].kid = kid.p != NULL ? str_dup(kid) : NULL;
    k->all[k->n].endorsements = NULL;
    k->all[k->n++].rsa = rsa;
    return true;
}

/* A list too long to keep endorses nothing. */
static char *endorsements_of(struct json list)
{
    struct buf all = BUF_INIT;

    if (json_count(list) == 0)
        return NULL;
    buf_add_c(&all, SEPARATOR);
    for (struct json_iter it = {0}; json_next(list, &it);) {
        struct str one = json_as_str(it.value);
        if (all.n + one.n + 1 > ENDORSEMENTS_MAX)
            break;
        buf_add_str(&all, one);
        buf_add_c(&all, SEPARATOR);
    }
    return buf_take(&all);
}

bool jwt_key_endorses(const struct jwt_keys *k, struct str kid, struct str channel)
{
    struct buf word = BUF_INIT;
    bool found = false;

    buf_printf(&word, "%c%.*s%c", SEPARATOR, STR_FMT(channel), SEPARATOR);
    for (size_t i = 0; i < k->n && !found; i++)
        if (k->all[i].kid != NULL && str_eq(str_of(k->all[i].kid), kid))
            found = k->all[i].endorsements == NULL ||
                    (channel.n > 0 && str_contains(str_of(k->all[i].endorsements), buf_str(&word)));
    buf_done(&word);
    return found;
}

bool jwt_keys_add_pem(struct jwt_keys *k, struct str pem)
{
    return add(k, STR_NULL, rsa_key_from_pem(pem));
}

static bool absent_or(struct json key, const char *name, struct str want)
{
    struct str got = json_str(key, name);

    return got.p == NULL || str_eq(got, want);
}

size_t jwt_keys_set_jwks(struct jwt_keys *k, struct json jwks)
{
    struct buf n = BUF_INIT, e = BUF_INIT;

    clear(k);
    for (struct json_iter it = {0}; json_next(json_get(jwks, "keys"), &it);) {
        buf_reset(&n);
        buf_reset(&e);
        if (str_eq(json_str(it.value, "kty"), STR("RSA")) &&
            absent_or(it.value, "use", STR("sig")) && absent_or(it.value, "alg", STR("RS256")) &&
            base64url_decode(json_str(it.value, "n"), &n) &&
            base64url_decode(json_str(it.value, "e"), &e) &&
            add(k, json_str(it.value, "kid"), rsa_key_from_numbers(buf_str(&n), buf_str(&e))))
            k->all[k->n - 1].endorsements = endorsements_of(json_get(it.value, "endorsements"));
    }
    buf_done(&n);
    buf_done(&e);
    return k->n;
}

/* ---- reading ---- */

bool jwt_read(struct str text, struct jwt *t)
{
    struct str rest = text, part[3];
    size_t at[3], n[3];
    struct json head;

    *t = (struct jwt){.head_parser = json_parser_new(), .claims_parser = json_parser_new()};
    if (text.n > JWT_MAX_BYTES)
        return false;
    for (size_t i = 0; i < 3; i++) {
        at[i] = t->bytes.n;
        if (!str_split(&rest, '.', &part[i]) || !base64url_decode(part[i], &t->bytes))
            return false;
        n[i] = t->bytes.n - at[i];
    }
    if (rest.p != NULL)
        return false;
    t->signed_part = str_make(text.p, part[0].n + 1 + part[1].n);
    t->signature = str_make(t->bytes.p + at[2], n[2]);
    if (!json_parse(t->head_parser, str_make(t->bytes.p + at[0], n[0]), &head) ||
        !json_is_object(head) ||
        !json_parse(t->claims_parser, str_make(t->bytes.p + at[1], n[1]), &t->claims) ||
        !json_is_object(t->claims))
        return false;
    t->kid = json_str(head, "kid");
    /* "crit" lists extensions that a verifier must support; bellhop supports none. */
    t->alg = json_type(json_get(head, "crit")) == JSON_ABSENT ? json_str(head, "alg") : STR_NULL;
    return true;
}

void jwt_done(struct jwt *t)
{
    json_parser_free(t->head_parser);
    json_parser_free(t->claims_parser);
    buf_done(&t->bytes);
    *t = (struct jwt){0};
}

/* ---- verifying ---- */

static const struct rsa_key *find_key(const struct jwt *t, const struct jwt_keys *k)
{
    if (t->kid.p == NULL || (k->n == 1 && k->all[0].kid == NULL))
        return k->n == 1 ? k->all[0].rsa : NULL;
    for (size_t i = 0; i < k->n; i++)
        if (k->all[i].kid != NULL && str_eq(str_of(k->all[i].kid), t->kid))
            return k->all[i].rsa;
    return NULL;
}

enum jwt_verdict jwt_verify(const struct jwt *t, const struct jwt_keys *k, int64_t now_s)
{
    const struct rsa_key *key;
    double s; /* a time may have a fraction */

    if (!str_eq(t->alg, STR("RS256")))
        return JWT_BAD_ALG;
    key = find_key(t, k);
    if (key == NULL)
        return JWT_UNKNOWN_KEY;
    if (!rsa_sha256_verify(key, t->signed_part, t->signature))
        return JWT_BAD_SIGNATURE;
    if (!json_as_f64(json_get(t->claims, "exp"), &s))
        return JWT_NO_EXPIRY;
    if (!(s + (double)k->skew_s > (double)now_s))
        return JWT_EXPIRED;
    if (json_type(json_get(t->claims, "nbf")) != JSON_ABSENT &&
        (!json_as_f64(json_get(t->claims, "nbf"), &s) || !(s - (double)k->skew_s <= (double)now_s)))
        return JWT_EARLY;
    return JWT_OK;
}

const char *jwt_verdict_text(enum jwt_verdict v)
{
    static const char *const texts[] = {
        [JWT_OK] = "valid",
        [JWT_BAD_ALG] = "the token is not signed with RS256, or requires an extension (crit)",
        [JWT_UNKNOWN_KEY] = "the token is signed with an unknown key (kid)",
        [JWT_BAD_SIGNATURE] = "the token's signature is wrong",
        [JWT_NO_EXPIRY] = "the token has no expiry (exp)",
        [JWT_EXPIRED] = "the token has expired (exp)",
        [JWT_EARLY] = "the token is not valid yet (nbf)",
    };
    return texts[v];
}

bool jwt_has_audience(struct json claims, struct str want)
{
    struct json aud = json_get(claims, "aud");

    if (json_type(aud) == JSON_STRING)
        return str_eq(json_as_str(aud), want);
    if (json_type(aud) == JSON_ARRAY)
        for (struct json_iter it = {0}; json_next(aud, &it);)
            if (str_eq(json_as_str(it.value), want))
                return true;
    return false;
}
