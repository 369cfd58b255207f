/* keys_priv.h - the inside of struct keys, shared by keys.c and keys_record.c. */
#pragma once
#include "base/clock.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/map.h"
#include "tenancy/keys.h"

#define NS_KEY "key"
#define NS_KEY_USED "key_used" /* id -> when, beside the record: a late note revives nothing */

struct held {          /* a key as the table holds it: one allocation with its texts */
    struct key pub;    /* first */
    struct list dirty; /* keys->dirty while its last use is not on disk */
    int64_t noted_ms;  /* the use that is on disk */
    struct bucket_level acts;
    bool has_mac;              /* provision tokens have none: they are signed */
    bool going;                /* being revoked: its uses are not noted any more */
    uint8_t mac[SHA256_BYTES]; /* of the secret, under the master key */
    size_t secret_n;           /* to wipe it */
    char text[];
};

struct tenant_acts { /* what the keys of one tenant do together */
    struct bucket_level acts, joins;
    char tenant[];
};

struct keys {
    struct keys_env env;
    struct list all; /* struct held by age; owned */
    size_t n;
    struct map by_id;
    struct list under_way; /* changes; owned */
    struct list dirty;     /* in order of their first unnoted use */
    struct timer note;
    struct timer refuse;           /* tells, when the turn ends, what was wrong */
    struct map tenants;            /* name -> struct tenant_acts; owned */
    uint8_t mac_key[SHA256_BYTES]; /* wiped */
};

/* What a record is made of; texts are borrowed. */
struct key_parts {
    enum key_kind kind;
    bool attest, has_mac;
    struct str id, tenant, identity, agent, instance, ns, secret;
    int64_t made_ms, until_ms, revoked_ms;
    uint8_t mac[SHA256_BYTES];
};
struct held *held_new(const struct key_parts *p);
void held_free(struct held *h);
void held_write(const struct keys *k, const struct held *h, struct buf *out);
/* NULL: damaged, or sealed under another master key. */
struct held *held_read(const struct keys *k, struct str id, struct json doc);
bool held_is_over(const struct keys *k, const struct held *h); /* revoked, or its time is over */
void keys_link(struct keys *k, struct held *h);                /* takes it over */
enum bh_err keys_load(struct keys *k, char *ret_why);
