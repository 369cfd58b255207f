/* sasl.c - see sasl.h. */
#include "platform/irc/sasl.h"
#include <openssl/evp.h>
#include <stdio.h>
#include "base/mem.h"
#include "platform/irc/line.h"

const char *sasl_name(enum sasl_mechanism m)
{
    static const char *const names[] = {"none", "PLAIN", "EXTERNAL", "SCRAM-SHA-256"};

    return names[m];
}

void sasl_hash(struct sasl_hash *h)
{
    PKCS5_PBKDF2_HMAC(h->password, (int)h->n_password, h->salt, (int)h->n_salt, (int)h->rounds,
                      EVP_sha256(), sizeof h->salted, h->salted);
}

void sasl_start(struct sasl *s, enum sasl_mechanism m, const char *user, const char *password,
                const uint8_t nonce[SASL_NONCE_BYTES])
{
    BUF_LOCAL text = BUF_INIT;

    sasl_done(s);
    s->mechanism = m;
    s->user = user != NULL ? user : "";
    s->password = password != NULL ? password : "";
    base64_add(&text, nonce, SASL_NONCE_BYTES);
    snprintf(s->nonce, sizeof s->nonce, "%s", buf_z(&text));
}

void sasl_done(struct sasl *s)
{
    buf_wipe(&s->first);
    buf_wipe(&s->challenge);
    buf_wipe(&s->final);
    secret_wipe(s, sizeof *s);
}

/* "=" and "," have a meaning of their own (RFC 5802, 5.1). */
static void add_user(struct buf *out, const char *user)
{
    for (; *user != '\0'; user++)
        if (*user == '=' || *user == ',')
            buf_add_z(out, *user == '=' ? "=3D" : "=2C");
        else
            buf_add_c(out, *user);
}

/* The server's first message: "r=<our nonce and its own>,s=<salt>,i=<rounds>". */
static bool read_first(struct sasl *s, struct str challenge, struct str *ret_nonce)
{
    BUF_LOCAL salt = BUF_INIT;
    struct str mine = str_of(s->nonce);
    uint64_t rounds = 0;

    *ret_nonce = irc_token(challenge, ',', STR("r"));
    if (!str_starts(*ret_nonce, mine) || ret_nonce->n <= mine.n || ret_nonce->n > 512 ||
        irc_token(challenge, ',', STR("m")).p != NULL ||
        !base64_decode(irc_token(challenge, ',', STR("s")), &salt) || salt.n == 0 ||
        salt.n > SASL_MAX_SALT || !str_to_u64(irc_token(challenge, ',', STR("i")), &rounds) ||
        rounds < SASL_MIN_ROUNDS || rounds > SASL_MAX_ROUNDS)
        return false;
    size_t n = strlen(s->password);
    s->hash.n_password = n < sizeof s->hash.password ? n : sizeof s->hash.password;
    memcpy(s->hash.password, s->password, s->hash.n_password);
    memcpy(s->hash.salt, salt.p, salt.n);
    s->hash.n_salt = salt.n;
    s->hash.rounds = (uint32_t)rounds;
    return true;
}

static enum sasl_next scram(struct sasl *s, struct str challenge, struct buf *out,
                            const char **ret_why)
{
    struct str nonce;
    BUF_LOCAL proof = BUF_INIT;

    switch (s->step++) {
    case 0:
        buf_add_z(&s->first, "n=");
        add_user(&s->first, s->user);
        buf_printf(&s->first, ",r=%s", s->nonce);
        buf_printf(out, "n,,%s", buf_z(&s->first));
        return SASL_ANSWERED;
    case 1:
        if (!read_first(s, challenge, &nonce)) {
            *ret_why = "the server's SCRAM-SHA-256 makes no sense, or asks for too few or too many "
                       "rounds";
            return SASL_WRONG;
        }
        buf_add_str(&s->challenge, challenge);
        buf_printf(&s->final, "c=biws,r=%.*s", STR_FMT(nonce));
        return SASL_HASHES;
    case 2:
        s->proven = base64_decode(irc_token(challenge, ',', STR("v")), &proof) &&
                    proof.n == sizeof s->expected &&
                    ct_equal(proof.p, s->expected, sizeof s->expected);
        *ret_why = "the server does not know the password: it may be somebody else's server";
        return s->proven ? SASL_ANSWERED : SASL_WRONG;
    default:
        *ret_why = "the server asks too much";
        return SASL_WRONG;
    }
}

void sasl_hashed(struct sasl *s, struct buf *out)
{
    uint8_t client[SHA256_BYTES], stored[SHA256_BYTES], mac[SHA256_BYTES], server[SHA256_BYTES];
    struct str salted = str_make(s->hash.salted, sizeof s->hash.salted);
    BUF_SECRET text = BUF_INIT;

    buf_printf(&text, "%s,", buf_z(&s->first));
    buf_printf(&text, "%s,", buf_z(&s->challenge));
    buf_add_str(&text, buf_str(&s->final));
    hmac_sha256(salted, STR("Client Key"), client);
    sha256(str_make(client, sizeof client), stored);
    hmac_sha256(str_make(stored, sizeof stored), buf_str(&text), mac);
    for (size_t i = 0; i < sizeof client; i++)
        client[i] ^= mac[i];
    hmac_sha256(salted, STR("Server Key"), server);
    hmac_sha256(str_make(server, sizeof server), buf_str(&text), s->expected);
    buf_printf(out, "%s,p=", buf_z(&s->final));
    base64_add(out, client, sizeof client);
    secret_wipe(&s->hash, sizeof s->hash);
    secret_wipe(client, sizeof client);
    secret_wipe(server, sizeof server);
}

enum sasl_next sasl_answer(struct sasl *s, struct str challenge, struct buf *out,
                           const char **ret_why)
{
    *ret_why = "the server asks too much";
    switch (s->mechanism) {
    case SASL_PLAIN: /* authorize as, user, password */
        if (s->step++ > 0)
            return SASL_WRONG;
        buf_add_c(out, '\0');
        buf_add_z(out, s->user);
        buf_add_c(out, '\0');
        buf_add_z(out, s->password);
        return SASL_ANSWERED;
    case SASL_EXTERNAL: /* the certificate says who it is */
        buf_add_z(out, s->user);
        return s->step++ > 0 ? SASL_WRONG : SASL_ANSWERED;
    case SASL_SCRAM:
        return scram(s, challenge, out, ret_why);
    default:
        return SASL_WRONG;
    }
}

bool sasl_is_proven(const struct sasl *s)
{
    return s->mechanism != SASL_SCRAM || s->proven;
}
