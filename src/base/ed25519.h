/* ed25519.h - Ed25519 signatures: keys as PEM files or bare bytes, signing and checking. */
#pragma once
#include "base/buf.h"

#define ED25519_BYTES 64     /* of a signature */
#define ED25519_RAW_BYTES 32 /* of a public key without wrapping */

struct ed25519_key;

/* NULL: not a PEM of an Ed25519 key of that kind. */
struct ed25519_key *ed25519_public(struct str pem);
struct ed25519_key *ed25519_private(struct str pem); /* unencrypted PKCS#8 */
struct ed25519_key *ed25519_public_raw(const uint8_t bytes[ED25519_RAW_BYTES]);
void ed25519_free(struct ed25519_key *k); /* NULL is fine */

bool ed25519_sign(const struct ed25519_key *k, struct str msg, uint8_t ret_sig[ED25519_BYTES]);
bool ed25519_verify(const struct ed25519_key *k, struct str msg, struct str sig);

/* A new pair as PEM texts; @private_pem is for buf_wipe(). */
bool ed25519_generate(struct buf *private_pem, struct buf *public_pem);
