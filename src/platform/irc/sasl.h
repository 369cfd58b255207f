/* sasl.h - how the bot logs in: PLAIN, EXTERNAL or SCRAM-SHA-256 (RFC 4616, 4422, 5802, 7677).
 *
 *    sasl_start() --challenge--> sasl_answer() --SASL_ANSWERED--> the answer is sent
 *                                    '--SASL_HASHES--> sasl_hash() on a thread, then sasl_hashed()
 *
 * Pure but for the nonce, which the caller gives.  With SCRAM the server has to prove that it knows
 * the password, too: sasl_is_proven(). */
#pragma once
#include "base/buf.h"
#include "base/crypto.h"

enum sasl_mechanism { SASL_NONE, SASL_PLAIN, SASL_EXTERNAL, SASL_SCRAM };
const char *sasl_name(enum sasl_mechanism m); /* "SCRAM-SHA-256" */

#define SASL_MIN_ROUNDS 4096
#define SASL_MAX_ROUNDS 200000
#define SASL_MAX_SALT 256
#define SASL_NONCE_BYTES 18

struct sasl_hash { /* what a thread works on; owns nothing outside */
    char password[512];
    uint8_t salt[SASL_MAX_SALT];
    size_t n_password, n_salt;
    uint32_t rounds;
    uint8_t salted[SHA256_BYTES]; /* the result */
};
void sasl_hash(struct sasl_hash *h); /* takes milliseconds */

struct sasl {
    enum sasl_mechanism mechanism;
    const char *user, *password; /* borrowed */
    unsigned step;
    char nonce[2 * SASL_NONCE_BYTES];
    struct buf first, challenge, final; /* owned; what is signed */
    uint8_t expected[SHA256_BYTES];     /* the server's signature */
    bool proven;
    struct sasl_hash hash;
};
void sasl_start(struct sasl *s, enum sasl_mechanism m, const char *user, const char *password,
                const uint8_t nonce[SASL_NONCE_BYTES]);
void sasl_done(struct sasl *s); /* wipes it; harmless when zeroed */

enum sasl_next {
    SASL_ANSWERED, /* the answer is in @out; it may be empty */
    SASL_HASHES,   /* run sasl_hash() of s->hash, then call sasl_hashed() */
    SASL_WRONG,    /* the server is not to be trusted, or makes no sense: @ret_why */
};
enum sasl_next sasl_answer(struct sasl *s, struct str challenge, struct buf *out,
                           const char **ret_why);
void sasl_hashed(struct sasl *s, struct buf *out);
/* After success: did the server prove itself, where the mechanism has that? */
bool sasl_is_proven(const struct sasl *s);
