/* crypto.c - design.  (crypto.h has the contract.)
 *
 * OpenSSL 3 looks algorithms up by name, which costs more than hashing a token, so they are fetched
 * once per process.  A failure of OpenSSL itself means a broken installation or no memory, and
 * aborts.  Failures that a peer can cause (a bad seal, key or signature) are returned. */
#include "base/crypto.h"

#include <assert.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/rsa.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"

#define NONCE_BYTES 12
#define TAG_BYTES 16
#define BLOCK_BYTES 64 /* of SHA-256 and of SHA-1 */

static struct {
    EVP_MD *sha256, *sha1;
    EVP_CIPHER *aes256gcm;
} algo; /* fetched once, kept until the process ends */
static pthread_once_t algo_once = PTHREAD_ONCE_INIT;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    log_error(NULL, "openssl failed: %s", what);
    abort();
}

static void fetch_algorithms(void)
{
    algo.sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    algo.sha1 = EVP_MD_fetch(NULL, "SHA1", NULL);
    algo.aes256gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    must(algo.sha256 != NULL && algo.sha1 != NULL && algo.aes256gcm != NULL, "fetch");
}

static const unsigned char *bytes_of(struct str s)
{
    return (const unsigned char *)(s.p != NULL ? s.p : "");
}

/* H((key ^ opad) H((key ^ ipad) msg)), RFC 2104.  By hand, because EVP_MAC looks its digest up by
 * name at every key and so takes three times as long; every request carries a token to check. */
static void hmac(EVP_MD *md, struct str key, struct str msg, uint8_t *ret_mac, size_t n)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    uint8_t pad[BLOCK_BYTES] = {0};
    bool ok = ctx != NULL;

    if (key.n > sizeof pad)
        ok = ok && EVP_Digest(key.p, key.n, pad, NULL, md, NULL) == 1;
    else
        memcpy(pad, bytes_of(key), key.n);
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36;
    ok = ok && EVP_DigestInit_ex2(ctx, md, NULL) == 1 &&
         EVP_DigestUpdate(ctx, pad, sizeof pad) == 1 &&
         EVP_DigestUpdate(ctx, bytes_of(msg), msg.n) == 1 &&
         EVP_DigestFinal_ex(ctx, ret_mac, NULL) == 1;
    for (size_t i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    ok = ok && EVP_DigestInit_ex2(ctx, md, NULL) == 1 &&
         EVP_DigestUpdate(ctx, pad, sizeof pad) == 1 && EVP_DigestUpdate(ctx, ret_mac, n) == 1 &&
         EVP_DigestFinal_ex(ctx, ret_mac, NULL) == 1;
    must(ok, "hmac");
    OPENSSL_cleanse(pad, sizeof pad);
    EVP_MD_CTX_free(ctx);
}

void hmac_sha256(struct str key, struct str msg, uint8_t ret_mac[SHA256_BYTES])
{
    pthread_once(&algo_once, fetch_algorithms);
    hmac(algo.sha256, key, msg, ret_mac, SHA256_BYTES);
}

void hmac_sha1(struct str key, struct str msg, uint8_t ret_mac[20])
{
    pthread_once(&algo_once, fetch_algorithms);
    hmac(algo.sha1, key, msg, ret_mac, 20);
}

void sha256(struct str msg, uint8_t ret_hash[SHA256_BYTES])
{
    pthread_once(&algo_once, fetch_algorithms);
    must(EVP_Digest(bytes_of(msg), msg.n, ret_hash, NULL, algo.sha256, NULL) == 1, "sha256");
}

struct digest {
    EVP_MD_CTX *ctx; /* owned */
};

struct digest *digest_new(void)
{
    struct digest *d = xcalloc(1, sizeof *d);

    pthread_once(&algo_once, fetch_algorithms);
    d->ctx = EVP_MD_CTX_new();
    must(d->ctx != NULL && EVP_DigestInit_ex2(d->ctx, algo.sha256, NULL) == 1, "sha256");
    return d;
}

void digest_add(struct digest *d, struct str piece)
{
    must(EVP_DigestUpdate(d->ctx, bytes_of(piece), piece.n) == 1, "sha256");
}

void digest_look(const struct digest *d, uint8_t ret_hash[SHA256_BYTES])
{
    EVP_MD_CTX *copy = EVP_MD_CTX_new();

    must(copy != NULL && EVP_MD_CTX_copy_ex(copy, d->ctx) == 1 &&
             EVP_DigestFinal_ex(copy, ret_hash, NULL) == 1,
         "sha256");
    EVP_MD_CTX_free(copy);
}

void digest_free(struct digest *d)
{
    if (d != NULL)
        EVP_MD_CTX_free(d->ctx);
    free(d);
}

bool ct_equal(const void *a, const void *b, size_t n)
{
    return n == 0 || CRYPTO_memcmp(a, b, n) == 0;
}

void secret_wipe(void *p, size_t n)
{
    if (n > 0)
        OPENSSL_cleanse(p, n);
}

void hex_add(struct buf *out, const void *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = p;
    char *to = buf_room(out, n * 2);

    if (to == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        to[2 * i] = digits[in[i] >> 4];
        to[2 * i + 1] = digits[in[i] & 15];
    }
    out->n += n * 2;
}

bool hex_decode(struct str hex, void *ret_bytes, size_t n)
{
    uint8_t *to = ret_bytes;

    if (hex.n % 2 != 0 || hex.n / 2 != n)
        return false;
    for (size_t i = 0; i < hex.n; i++) /* all of it first: written on success only */
        if (hex_value(hex.p[i]) < 0)
            return false;
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(hex_value(hex.p[2 * i]) * 16 + hex_value(hex.p[2 * i + 1]));
    return true;
}

void base64_add(struct buf *out, const void *p, size_t n)
{
    char *to = buf_room(out, (n + 2) / 3 * 4); /* and a NUL, which buf_room() leaves space for */

    assert(n < INT32_MAX);
    if (to != NULL)
        out->n += (size_t)EVP_EncodeBlock((unsigned char *)to, p, (int)n);
}

void base64url_add(struct buf *out, const void *p, size_t n)
{
    size_t from = out->n;

    base64_add(out, p, n);
    while (out->n > from && out->p[out->n - 1] == '=')
        out->n--;
    for (size_t i = from; i < out->n; i++)
        if (out->p[i] == '+' || out->p[i] == '/')
            out->p[i] = out->p[i] == '+' ? '-' : '_';
}

static int base64_value(char c, const char *last2)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == last2[0] ? 62 : c == last2[1] ? 63 : -1;
}

/* @text has no padding any more.  One spelling per value: bits that carry nothing must be zero, or
 * a token could be changed without changing what it says. */
static bool base64_digits(struct str text, const char *last2, struct buf *out)
{
    char *to = buf_room(out, text.n / 4 * 3 + 3), *start = to;
    unsigned v = 0, bits = 0;

    if (to == NULL || text.n % 4 == 1)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        int digit = base64_value(text.p[i], last2);
        if (digit < 0)
            return false;
        v = v << 6 | (unsigned)digit;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            *to++ = (char)(v >> bits);
            v &= (1u << bits) - 1;
        }
    }
    if (v != 0)
        return false;
    out->n += (size_t)(to - start);
    return true;
}

static struct str without_padding(struct str text)
{
    for (int i = 0; i < 2 && text.n > 0 && text.p[text.n - 1] == '='; i++)
        text.n--;
    return text;
}

bool base64_decode(struct str text, struct buf *out)
{
    return text.n % 4 == 0 && base64_digits(without_padding(text), "+/", out);
}

bool base64url_decode(struct str text, struct buf *out)
{
    struct str bare = without_padding(text);

    if (bare.n != text.n && text.n % 4 != 0)
        return false;
    return base64_digits(bare, "-_", out);
}

/* One step of the cipher; OpenSSL counts in int, our buffers are smaller than that. */
static bool crypt_update(EVP_CIPHER_CTX *ctx, void *out, struct str in)
{
    int n = 0;

    assert(in.n <= BUF_LIMIT);
    return in.n == 0 || EVP_CipherUpdate(ctx, out, &n, bytes_of(in), (int)in.n) == 1;
}

static EVP_CIPHER_CTX *seal_ctx(const uint8_t *key, const uint8_t *nonce, struct str aad, int enc)
{
    pthread_once(&algo_once, fetch_algorithms);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

    must(ctx != NULL && EVP_CipherInit_ex2(ctx, algo.aes256gcm, key, nonce, enc, NULL) == 1 &&
             crypt_update(ctx, NULL, aad),
         "aes-256-gcm");
    return ctx;
}

void seal_add(const uint8_t key[SEAL_KEY_BYTES], struct str aad, struct str plain, struct buf *out)
{
    struct rand r = RAND_SYSTEM;
    char *to = buf_room(out, NONCE_BYTES + plain.n + TAG_BYTES);
    int n = 0;

    if (to == NULL)
        return;
    rand_bytes(&r, to, NONCE_BYTES);
    EVP_CIPHER_CTX *ctx = seal_ctx(key, (uint8_t *)to, aad, 1);
    char *body = to + NONCE_BYTES, *tag = body + plain.n;
    must(crypt_update(ctx, body, plain) && EVP_CipherFinal_ex(ctx, (uint8_t *)tag, &n) == 1 &&
             EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, tag) == 1,
         "seal");
    out->n += NONCE_BYTES + plain.n + TAG_BYTES;
    EVP_CIPHER_CTX_free(ctx);
}

bool seal_open(const uint8_t key[SEAL_KEY_BYTES], struct str aad, struct str sealed,
               struct buf *out)
{
    bool ok = false;
    uint8_t tag[TAG_BYTES];
    int n = 0;

    if (sealed.n < NONCE_BYTES + TAG_BYTES || sealed.n > BUF_LIMIT)
        return false;
    struct str body = str_make(sealed.p + NONCE_BYTES, sealed.n - NONCE_BYTES - TAG_BYTES);
    char *to = buf_room(out, body.n);
    if (to == NULL)
        return false;
    memcpy(tag, body.p + body.n, TAG_BYTES); /* OpenSSL takes it by a pointer that is not const */
    EVP_CIPHER_CTX *ctx = seal_ctx(key, (const uint8_t *)sealed.p, aad, 0);
    ok = crypt_update(ctx, to, body) &&
         EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) == 1 &&
         EVP_CipherFinal_ex(ctx, (uint8_t *)to + body.n, &n) == 1;
    if (ok)
        out->n += body.n;
    else
        secret_wipe(to, body.n); /* nobody gets to see what did not verify */
    EVP_CIPHER_CTX_free(ctx);
    return ok;
}

/* ---- keys and signatures ---- */

#define PEM_MAX 65536

static int no_password(char *buf, int size, int rwflag, void *u)
{
    return 0; /* never ask at a terminal */
}

/* NULL: not a PEM of a key of that kind. */
static EVP_PKEY *read_pem(struct str pem, bool private)
{
    BIO *bio = pem.n > 0 && pem.n < PEM_MAX ? BIO_new_mem_buf(pem.p, (int)pem.n) : NULL;
    EVP_PKEY *pkey = NULL;

    if (bio != NULL)
        pkey = private ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL)
                       : PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
    BIO_free(bio);
    ERR_clear_error(); /* a refusal leaves one, and nobody else should stumble over it */
    return pkey;
}

static bool verify(EVP_PKEY *pkey, const EVP_MD *md, struct str msg, struct str sig)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, md, NULL, pkey) == 1 &&
              EVP_DigestVerify(ctx, bytes_of(sig), sig.n, bytes_of(msg), msg.n) == 1;

    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return ok;
}

struct ed25519_key {
    EVP_PKEY *pkey; /* owned */
};

static struct ed25519_key *ed25519_of(EVP_PKEY *pkey)
{
    struct ed25519_key *k;

    if (pkey == NULL || EVP_PKEY_get_id(pkey) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(pkey);
        return NULL;
    }
    k = xcalloc(1, sizeof *k);
    k->pkey = pkey;
    return k;
}

struct ed25519_key *ed25519_public(struct str pem)
{
    return ed25519_of(read_pem(pem, false));
}

struct ed25519_key *ed25519_private(struct str pem)
{
    return ed25519_of(read_pem(pem, true));
}

struct ed25519_key *ed25519_public_raw(const uint8_t bytes[ED25519_RAW_BYTES])
{
    return ed25519_of(
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes, ED25519_RAW_BYTES));
}

void ed25519_free(struct ed25519_key *k)
{
    if (k == NULL)
        return;
    EVP_PKEY_free(k->pkey); /* OpenSSL wipes it */
    free(k);
}

bool ed25519_sign(const struct ed25519_key *k, struct str msg, uint8_t ret_sig[ED25519_BYTES])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t n = ED25519_BYTES;
    bool ok = ctx != NULL && EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
              EVP_DigestSign(ctx, ret_sig, &n, bytes_of(msg), msg.n) == 1 && n == ED25519_BYTES;

    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return ok;
}

bool ed25519_verify(const struct ed25519_key *k, struct str msg, struct str sig)
{
    return sig.n == ED25519_BYTES && verify(k->pkey, NULL, msg, sig);
}

/* ---- RSA: RSASSA-PKCS1-v1_5 with SHA-256, as JSON Web Tokens use ---- */

#define MIN_BITS 2048
#define MAX_BITS 8192 /* verifying with a huge key is slow, and a stranger may have chosen it */

struct rsa_key {
    EVP_PKEY *pkey; /* owned */
};

static struct rsa_key *rsa_of(EVP_PKEY *pkey)
{
    if (pkey == NULL || EVP_PKEY_get_base_id(pkey) != EVP_PKEY_RSA ||
        EVP_PKEY_get_bits(pkey) < MIN_BITS || EVP_PKEY_get_bits(pkey) > MAX_BITS) {
        EVP_PKEY_free(pkey);
        return NULL;
    }
    struct rsa_key *k = xcalloc(1, sizeof *k);
    k->pkey = pkey;
    return k;
}

struct rsa_key *rsa_key_from_pem(struct str pem)
{
    return rsa_of(read_pem(pem, false));
}

struct rsa_key *rsa_key_from_numbers(struct str n, struct str e)
{
    EVP_PKEY *pkey = NULL;
    EVP_PKEY_CTX *ctx = NULL;
    OSSL_PARAM *params = NULL;
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    BIGNUM *bn_n = NULL, *bn_e = NULL;

    if (bld == NULL || n.n == 0 || n.n > MAX_BITS / 8 + 1 || e.n == 0 || e.n > 8)
        goto out;
    bn_n = BN_bin2bn((const unsigned char *)n.p, (int)n.n, NULL);
    bn_e = BN_bin2bn((const unsigned char *)e.p, (int)e.n, NULL);
    if (bn_n == NULL || bn_e == NULL || !OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_N, bn_n) ||
        !OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_E, bn_e))
        goto out;
    params = OSSL_PARAM_BLD_to_param(bld);
    ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    if (params == NULL || ctx == NULL || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1)
        pkey = NULL;
out:
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(bld);
    BN_free(bn_n);
    BN_free(bn_e);
    return rsa_of(pkey);
}

void rsa_key_free(struct rsa_key *k)
{
    if (k != NULL)
        EVP_PKEY_free(k->pkey);
    free(k);
}

bool rsa_sha256_verify(const struct rsa_key *k, struct str msg, struct str signature)
{
    return verify(k->pkey, EVP_sha256(), msg, signature); /* PKCS#1 v1.5 is the default padding */
}

struct rsa_key *rsa_private(struct str pem)
{
    return rsa_of(read_pem(pem, true));
}

bool rsa_pss_sha256_sign(const struct rsa_key *k, struct str msg, struct buf *ret_signature)
{
    uint8_t signature[MAX_BITS / 8];
    size_t n = sizeof signature;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *how = NULL; /* owned by @ctx */
    bool ok = ctx != NULL && EVP_DigestSignInit(ctx, &how, EVP_sha256(), NULL, k->pkey) == 1 &&
              EVP_PKEY_CTX_set_rsa_padding(how, RSA_PKCS1_PSS_PADDING) == 1 &&
              EVP_PKEY_CTX_set_rsa_pss_saltlen(how, RSA_PSS_SALTLEN_DIGEST) == 1 &&
              EVP_DigestSign(ctx, signature, &n, bytes_of(msg), msg.n) == 1;

    if (ok)
        buf_add(ret_signature, signature, n);
    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return ok;
}

bool certificate_thumbprint(struct str pem, const struct rsa_key *k, uint8_t ret_hash[SHA256_BYTES])
{
    BIO *bio = pem.n > 0 && pem.n < PEM_MAX ? BIO_new_mem_buf(pem.p, (int)pem.n) : NULL;
    X509 *x = bio != NULL ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
    unsigned n = SHA256_BYTES;
    bool ok = x != NULL && X509_check_private_key(x, k->pkey) == 1 &&
              X509_digest(x, EVP_sha256(), ret_hash, &n) == 1 && n == SHA256_BYTES;

    X509_free(x);
    BIO_free(bio);
    ERR_clear_error();
    return ok;
}
