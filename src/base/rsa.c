/* rsa.c - public keys and signatures of JSON Web Tokens (RSASSA-PKCS1-v1_5 with SHA-256). */
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"

#define MIN_BITS 2048
#define MAX_BITS 8192 /* verifying with a huge key is slow, and a stranger may have chosen it */

struct rsa_key {
    EVP_PKEY *pkey; /* owned */
};

static struct rsa_key *wrap(EVP_PKEY *pkey)
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
    BIO *bio = pem.n > 0 && pem.n < 65536 ? BIO_new_mem_buf(pem.p, (int)pem.n) : NULL;
    EVP_PKEY *pkey = bio != NULL ? PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    return wrap(pkey);
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
    return wrap(pkey);
}

void rsa_key_free(struct rsa_key *k)
{
    if (k != NULL)
        EVP_PKEY_free(k->pkey);
    free(k);
}

bool rsa_sha256_verify(const struct rsa_key *k, struct str msg, struct str signature)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *how = NULL;
    bool ok = ctx != NULL && EVP_DigestVerifyInit(ctx, &how, EVP_sha256(), NULL, k->pkey) == 1 &&
              EVP_PKEY_CTX_set_rsa_padding(how, RSA_PKCS1_PADDING) == 1 &&
              EVP_DigestVerify(ctx, (const unsigned char *)signature.p, signature.n,
                               (const unsigned char *)msg.p, msg.n) == 1;

    EVP_MD_CTX_free(ctx);
    return ok;
}
