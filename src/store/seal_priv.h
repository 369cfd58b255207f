/* seal_priv.h - what the files of sealing share. */
#pragma once
#include "base/buf.h"
#include "base/crypto.h"
#include "store/seal.h"

#define SEAL_NS "seal"          /* records about the key, all of this namespace */
#define SEAL_CHECK STR("check") /* sealed: tells whether a key fits */
#define SEAL_SALT STR("salt")   /* of a passphrase; made with the database */
#define SEAL_MAC STR("mac")     /* sealed: the root of fingerprints; absent: the key itself */
#define SEAL_NEXT STR("next")   /* while the key is being changed: the check of the next one */
#define SEAL_NEXT_SALT STR("next_salt")
#define SEAL_CHECK_TEXT STR("bellhop")

struct seal {
    uint8_t key[SEAL_KEY_BYTES];
    uint8_t mac_key[SEAL_KEY_BYTES];
};

struct seal_records { /* as they are in the store; failed() or empty: not there */
    struct buf check, salt, mac, next, next_salt;
};
bool seal_records_load(struct store *st, struct seal_records *ret);
void seal_records_done(struct seal_records *r);

/* From @text, or the file at @path; @salt empty: the oldest one. */
enum bh_err seal_key(struct str text, struct str salt, const char *path, struct seal **ret_seal,
                     char *ret_why);
bool seal_fits(const struct seal *s, struct str check); /* does it open this check? */
void seal_next_path(struct buf *out, const char *path); /* where the file of the next key lies */
/* The key file gets another name beside its own; those kept before stay.  @ret_name (may be NULL)
 * is appended to. */
bool seal_keep_old(const char *path, struct buf *ret_name);
