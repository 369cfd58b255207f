/* ed25519.c - Ed25519 over OpenSSL.  (ed25519.h has the contract.) */
#include "base/ed25519.h"
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include "base/mem.h"

#define PEM_MAX 16384

struct ed25519_key {
    EVP_PKEY *pkey; /* owned */
};

static int no_password(char *buf, int size, int rwflag, void *u)
{
    return 0; /* never ask at a terminal */
}

static struct ed25519_key *key_of(EVP_PKEY *pkey)
{
    ERR_clear_error(); /* a refusal leaves one, and nobody else should stumble over it */
    if (pkey != NULL && EVP_PKEY_get_id(pkey) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(pkey);
        pkey = NULL;
    }
    if (pkey == NULL)
        return NULL;
    struct ed25519_key *k = xcalloc(1, sizeof *k);
    k->pkey = pkey;
    return k;
}

static BIO *bio_of(struct str pem)
{
    return pem.n > 0 && pem.n <= PEM_MAX ? BIO_new_mem_buf(pem.p, (int)pem.n) : NULL;
}

struct ed25519_key *ed25519_public(struct str pem)
{
    BIO *bio = bio_of(pem);
    struct ed25519_key *k =
        bio != NULL ? key_of(PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL)) : NULL;

    BIO_free(bio);
    return k;
}

struct ed25519_key *ed25519_public_raw(const uint8_t bytes[ED25519_RAW_BYTES])
{
    return key_of(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, bytes, ED25519_RAW_BYTES));
}

struct ed25519_key *ed25519_private(struct str pem)
{
    BIO *bio = bio_of(pem);
    struct ed25519_key *k =
        bio != NULL ? key_of(PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL)) : NULL;

    BIO_free(bio);
    return k;
}

void ed25519_free(struct ed25519_key *k)
{
    if (k == NULL)
        return;
    EVP_PKEY_free(k->pkey); /* OpenSSL wipes it */
    free(k);
}

static const uint8_t *bytes_of(struct str s)
{
    return (const uint8_t *)(s.p != NULL ? s.p : "");
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
    if (sig.n != ED25519_BYTES)
        return false;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
              EVP_DigestVerify(ctx, bytes_of(sig), sig.n, bytes_of(msg), msg.n) == 1;

    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return ok;
}

static bool take_pem(BIO *bio, struct buf *out)
{
    char *p;
    long n = BIO_get_mem_data(bio, &p);

    if (n > 0)
        buf_add(out, p, (size_t)n);
    return n > 0;
}

bool ed25519_generate(struct buf *private_pem, struct buf *public_pem)
{
    EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    BIO *private_bio = BIO_new(BIO_s_secmem()), *public_bio = BIO_new(BIO_s_mem());
    bool ok = pkey != NULL && private_bio != NULL && public_bio != NULL &&
              PEM_write_bio_PKCS8PrivateKey(private_bio, pkey, NULL, NULL, 0, NULL, NULL) == 1 &&
              PEM_write_bio_PUBKEY(public_bio, pkey) == 1 && take_pem(private_bio, private_pem) &&
              take_pem(public_bio, public_pem);

    BIO_free(private_bio);
    BIO_free(public_bio);
    EVP_PKEY_free(pkey);
    ERR_clear_error();
    return ok;
}
