/* crypto.c - design.  (crypto.h has the contract.)
 *
 * OpenSSL 3 looks algorithms up by name, which costs more than hashing a token: they are fetched
 * once per process and kept.  Failures of OpenSSL here mean a broken installation or no memory,
 * never a peer's doing, so they abort; the one thing a peer can cause is a seal that does not open.
 */
#include "base/crypto.h"
#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
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

static void base64_any(struct buf *out, const uint8_t *p, size_t n, const char *last2, bool pad)
{
    static const char common[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
#define DIGIT(v) ((v) < 62 ? common[v] : last2[(v)-62])
    char *to = buf_room(out, (n + 2) / 3 * 4), *start = to;

    if (to == NULL)
        return;
    for (; n > 0; p += 3) {
        size_t part = n < 3 ? n : 3;
        unsigned v = (unsigned)p[0] << 16 | (part > 1 ? (unsigned)p[1] << 8 : 0) |
                     (part > 2 ? (unsigned)p[2] : 0);
        for (size_t i = 0; i < 4; i++) {
            unsigned digit = v >> (18 - 6 * i) & 63;
            if (i <= part)
                *to++ = DIGIT(digit);
            else if (pad)
                *to++ = '=';
        }
        n -= part;
    }
    out->n += (size_t)(to - start);
#undef DIGIT
}

void base64_add(struct buf *out, const void *p, size_t n)
{
    base64_any(out, p, n, "+/", true);
}

void base64url_add(struct buf *out, const void *p, size_t n)
{
    base64_any(out, p, n, "-_", false);
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
