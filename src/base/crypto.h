/* crypto.h - hashes, HMAC, encodings, sealing and signatures, implemented with OpenSSL.
 *
 * Compare secrets with ct_equal() and wipe them with secret_wipe(). */
#pragma once
#include "base/buf.h"

#define SHA256_BYTES 32
#define SEAL_KEY_BYTES 32

void hmac_sha256(struct str key, struct str msg, uint8_t ret_mac[SHA256_BYTES]);
void hmac_sha1(struct str key, struct str msg, uint8_t ret_mac[20]);
void sha256(struct str msg, uint8_t ret_hash[SHA256_BYTES]);
/* SHA-256 of a message that arrives in pieces. */
struct digest *digest_new(void);
void digest_add(struct digest *d, struct str piece);
/* The hash of the pieces so far; more may follow. */
void digest_look(const struct digest *d, uint8_t ret_hash[SHA256_BYTES]);
void digest_free(struct digest *d); /* NULL is fine */
bool ct_equal(const void *a, const void *b, size_t n);
void secret_wipe(void *p, size_t n);

void hex_add(struct buf *out, const void *p, size_t n);       /* lower case */
bool hex_decode(struct str hex, void *ret_bytes, size_t n);   /* exactly n bytes; either case */
void base64_add(struct buf *out, const void *p, size_t n);    /* standard, padded */
void base64url_add(struct buf *out, const void *p, size_t n); /* no padding */
bool base64_decode(struct str text, struct buf *out);         /* strict, padding required */
bool base64url_decode(struct str text, struct buf *out);      /* padding optional */

/* RSA public keys of 2048 to 8192 bits, for RS256.  NULL: not such a key. */
struct rsa_key *rsa_key_from_pem(struct str pem);
struct rsa_key *rsa_key_from_numbers(struct str n, struct str e); /* big-endian bytes */
void rsa_key_free(struct rsa_key *k);                             /* NULL is fine */
bool rsa_sha256_verify(const struct rsa_key *k, struct str msg, struct str signature);
/* The private key in a PEM, unencrypted, which may have certificates beside it. */
struct rsa_key *rsa_private(struct str pem);
/* PS256 of JSON Web Tokens. */
bool rsa_pss_sha256_sign(const struct rsa_key *k, struct str msg, struct buf *ret_signature);
/* SHA-256 of the first certificate in a PEM, in DER: the "x5t#S256" of a JSON Web Token.  False:
 * there is none, or it is not that of @k. */
bool certificate_thumbprint(struct str pem, const struct rsa_key *k,
                            uint8_t ret_hash[SHA256_BYTES]);

/* AES-256-GCM: out = 12 byte nonce, ciphertext, 16 byte tag.  @aad identifies the record, so that a
 * sealed value copied to another record does not open. */
void seal_add(const uint8_t key[SEAL_KEY_BYTES], struct str aad, struct str plain, struct buf *out);
bool seal_open(const uint8_t key[SEAL_KEY_BYTES], struct str aad, struct str sealed,
               struct buf *out);

/* ---- Ed25519: keys as PEM or raw bytes, signing and verifying ---- */

#define ED25519_BYTES 64     /* of a signature */
#define ED25519_RAW_BYTES 32 /* of a public key without wrapping */

/* NULL: not a PEM of an Ed25519 key of that kind. */
struct ed25519_key *ed25519_public(struct str pem);
struct ed25519_key *ed25519_private(struct str pem); /* unencrypted PKCS#8 */
struct ed25519_key *ed25519_public_raw(const uint8_t bytes[ED25519_RAW_BYTES]);
void ed25519_free(struct ed25519_key *k); /* NULL is fine */

bool ed25519_sign(const struct ed25519_key *k, struct str msg, uint8_t ret_sig[ED25519_BYTES]);
bool ed25519_verify(const struct ed25519_key *k, struct str msg, struct str sig);
