/* grants.h - changes and reads the records that core/gate.h decides by.
 *
 *      binding     platform, user, instance   a person is linked to an instance, on some bots
 *      scope       platform, guild, channel   a place belongs to one instance; "*": a whole guild
 *      principal   instance, platform or "*"  which authors the instance admits in its places
 *      policy      instance, platform         which messages are relevant to the instance
 *      allowance   instance                   how many deliveries each person may cause
 *      dm default  platform, user             which of their instances a person talks to
 *      tenant      name                       the default where an instance has no policy
 *      link code   hash                       makes one binding, within ten minutes
 *
 * The records are part of struct facts: loaded at start, and changed in memory once the write is on
 * disk.  The HTTP routes and the relay call this module.  Every change names its instance.  The
 * caller authenticates that name: it comes from a credential's record or from an operator.
 *
 * done() runs later, exactly once.  BH_NOT_FOUND: the instance does not exist, or has no such
 * record.  A record of another instance is reported as BH_NOT_FOUND too.
 */
#pragma once
#include "core/gate.h"
#include "tenancy/facts.h"

#define GRANT_ID_MAX 256    /* bytes of a user, guild or channel id */
#define GRANT_LIST_MAX 2000 /* ids in an allow list or a list of free places */
#define GRANT_RULES_MAX 64  /* platforms with a principal, or a policy, of an instance's own */
#define LINK_CODE_LEN 8
#define LINK_CODE_MS 600000   /* a code expires after ten minutes */
#define LINK_CODES_MAX 8      /* valid codes of one instance at a time */
#define LINK_BOTS_MAX 16      /* bots that one link names */
#define LINK_TRIES 5          /* wrong codes of one person ... */
#define LINK_TRIES_MS 3600000 /* ... per hour */

struct grant_who {
    struct str tenant, instance;
};
struct grant_place {
    struct str platform, guild, channel;
};

/* True for a valid user, guild or channel id: 1..256 bytes of UTF-8 without control characters. */
bool grant_id_ok(struct str id);

/* The authority behind a scope, weakest first.  A stronger claim takes the place from a weaker. */
enum grant_word {
    GRANT_CLAIMED,  /* the instance's own claim */
    GRANT_MANAGED,  /* a person linked to the instance may manage the place */
    GRANT_OPERATOR, /* an operator granted it */
};
#define GRANT_SCOPES_MAX 256         /* scopes that no operator granted: of an instance ... */
#define GRANT_TENANT_SCOPES_MAX 2048 /* ... and of all instances of a tenant */
/* Gives a place to the instance.  BH_CONFLICT: another instance has it with the same or more
 * authority, or an operator routed the place to another tenant.  BH_BUSY: over GRANT_SCOPES_MAX or
 * GRANT_TENANT_SCOPES_MAX.  Idempotent. */
void grant_scope_claim(struct facts *f, struct grant_who who, struct grant_place at,
                       enum grant_word by, facts_done_cb *done, void *ctx);
void grant_scope_release(struct facts *f, struct grant_who who, struct grant_place at,
                         facts_done_cb *done, void *ctx);

/* Sets which authors the instance admits.  @platform absent: on every platform that has no
 * principal of its own.  BH_BUSY: GRANT_RULES_MAX platforms have one; policies likewise. */
void grant_principal(struct facts *f, struct grant_who who, struct str platform,
                     enum gate_principal mode, const struct str *allow, size_t n_allow,
                     facts_done_cb *done, void *ctx);
/* Reads "owner-only", "allow-list" or "any". */
bool grant_principal_parse(struct str word, enum gate_principal *ret_mode);

struct grant_policy { /* replaces the instance's earlier policy for this platform */
    struct str platform;
    bool require_address, allow_other_bots;
    const struct str *free_places; /* channels, threads, topics: require_address is waived there */
    size_t n_free_places;
};
void grant_policy(struct facts *f, struct grant_who who, const struct grant_policy *p,
                  facts_done_cb *done, void *ctx);
/* Limits how many deliveries a person, or a chat, may cause; @a is copied, NULL removes the limit.
 * BH_MALFORMED: no turns, or the reply is longer than GRANT_REPLY_MAX. */
#define GRANT_REPLY_MAX 1000
#define GRANT_TURNS_MAX 1000000
void grant_allowance(struct facts *f, struct grant_who who, const struct gate_allowance *a,
                     facts_done_cb *done, void *ctx);
/* Reads "50/day": a number, and hour, day, week or month. */
bool grant_turns_parse(struct str text, uint32_t *ret_turns, enum gate_period *ret_period);
const char *grant_period_word(enum gate_period p); /* "day" */
/* Sets whether instances of @tenant that have no policy must be addressed. */
void grant_tenant_default(struct facts *f, struct str tenant, bool require_address,
                          facts_done_cb *done, void *ctx);

/* Chooses the instance that gets the person's direct messages; they must be linked to it. */
void grant_dm_default(struct facts *f, struct grant_who who, struct str platform, struct str user,
                      facts_done_cb *done, void *ctx);

struct grant_person {
    struct str platform, user;
    const struct str *bots; /* the link counts on these bots of the platform; "*": on every bot */
    size_t n_bots;
};
/* Link or unlink a person for an operator, without a code.  A second link to the same instance adds
 * its bots to the first.  Unlinking with bots removes these bots from the link, without bots the
 * whole link.  BH_REFUSED: the bot belongs to another tenant (rights.h). */
void grant_link(struct facts *f, struct grant_who who, const struct grant_person *p,
                facts_done_cb *done, void *ctx);
void grant_unlink(struct facts *f, struct grant_who who, const struct grant_person *p,
                  facts_done_cb *done, void *ctx);

struct link_for {        /* what a code is good for */
    struct str platform; /* absent: any platform */
    const struct str *bots;
    size_t n_bots; /* 0: the code counts for the bot that it is sent to */
};
/* Makes a code; the person who sends it to the bot is linked to the instance.  A code that names
 * bots works on these bots only, and the link counts on all of them.  @ret_code is filled before
 * the call returns and is valid once done() gets BH_OK.  BH_BUSY: the instance has LINK_CODES_MAX
 * codes.  BH_REFUSED: the bot belongs to another tenant. */
void link_code_new(struct facts *f, struct grant_who who, const struct link_for *on,
                   struct buf *ret_code, int64_t *ret_expires_ms, facts_done_cb *done, void *ctx);
struct link_sent { /* a code that a person sent to a bot */
    struct str platform, bot, user, code;
};
/* Redeems a code.  BH_OK: linked.  BH_NOT_FOUND: no such code, expired, used, or not for this bot.
 * BH_BUSY: this person sent LINK_TRIES wrong codes within the hour.  Returns the instance that the
 * person is linked to once done() gets BH_OK; NULL: the code is wrong. */
const struct gate_instance *link_code_redeem(struct facts *f, const struct link_sent *at,
                                             facts_done_cb *done, void *ctx);

/* Ends an instance in one transaction: revokes its gateways, deletes its grants and increments its
 * life.  The observers get "ended" with tenant \x1f instance.  The next instance of the same name
 * has another life, so it never receives mail that was kept for this one. */
void grant_deprovision(struct facts *f, struct grant_who who, facts_done_cb *done, void *ctx);

/* ---- read by the relay ---- */
const struct gate_instance *grant_instance(const struct facts *f, struct grant_who who);
/* The link between the person and the instance; NULL: none.  gate_counts_on() says where it
 * counts. */
const struct gate_link *grant_link_of(const struct facts *f, const struct gate_instance *to,
                                      struct str platform, struct str user);
/* True when a scope gives the instance this channel, or its guild while no other instance has the
 * channel.  A scope that no operator granted does not count where an operator routed the place to
 * another tenant. */
bool grant_holds(const struct facts *f, const struct gate_instance *to, struct grant_place at);

/* Writes one page of all grants as members of an object: bindings, scopes, principals, policies,
 * dmDefaults, and on the first page tenants.  @at is the cursor: zeroed for the first page, passed
 * on for the next.  False: this was the last page.  @who selects one instance; empty members mean
 * any. */
struct grants_page {
    uint64_t instance, binding; /* the first that is not written yet; opaque to callers */
};
bool grants_write(const struct facts *f, struct grant_who who, struct grants_page *at,
                  struct jw *w);
