/* grants.h - whose message is it, as records: links, scopes, principals, policies, choices.
 *
 * What gate.h decides by, kept in struct facts: changed through here, stored, loaded at start, and
 * in memory from the moment its write is on disk.  Every change names the instance it is about;
 * where the name comes from (a credential's own record, or an operator) is the caller's business.
 * done() runs later, exactly once.  BH_NOT_FOUND: there is no such instance, or nothing of the kind
 * that belongs to it; what belongs to others reads the same as what does not exist.
 *
 *      binding     platform, user, instance   a person is linked to an instance
 *      scope       platform, guild, channel   a place belongs to one instance; "*": a whole guild
 *      principal   instance, platform or "*"  whom it listens to in its places
 *      policy      instance, platform         what is relevant to it
 *      dm default  platform, user             which of their instances a person talks to
 *      tenant      name                       what holds where an instance has no policy
 *      link code   hash                       good for one binding, for ten minutes
 */
#pragma once
#include "core/gate.h"
#include "tenancy/facts.h"

struct jw;

#define GRANT_ID_MAX 256    /* bytes of a user, guild or channel id */
#define GRANT_LIST_MAX 2000 /* ids in an allow list or a list of free places */
#define LINK_CODE_LEN 8
#define LINK_CODE_MS 600000   /* a code is good for ten minutes */
#define LINK_CODES_MAX 8      /* at a time, per instance */
#define LINK_TRIES 5          /* wrong codes of one person ... */
#define LINK_TRIES_MS 3600000 /* ... per hour */

struct grant_who {
    struct str tenant, instance;
};
struct grant_place {
    struct str platform, guild, channel;
};

/* Is a user, guild or channel id acceptable: 1..256 bytes of UTF-8 without control characters. */
bool grant_id_ok(struct str id);

/* Whose word a claim rests on.  A better word takes a place from whoever has it by a lesser one. */
enum grant_word {
    GRANT_CLAIMED,  /* the instance's own */
    GRANT_MANAGED,  /* somebody linked to it may manage the place */
    GRANT_OPERATOR, /* the operator's */
};
#define GRANT_SCOPES_MAX 256         /* by lesser words than the operator's: of an instance ... */
#define GRANT_TENANT_SCOPES_MAX 2048 /* ... and of all of a tenant */
/* BH_CONFLICT: another instance has it by as good a word, or an operator routed the place to
 * another tenant.  BH_BUSY: it has claimed too many.  Having it already is fine. */
void grant_scope_claim(struct facts *f, struct grant_who who, struct grant_place at,
                       enum grant_word by, facts_done_cb *done, void *ctx);
void grant_scope_release(struct facts *f, struct grant_who who, struct grant_place at,
                         facts_done_cb *done, void *ctx);

/* @platform absent: every platform that has no principal of its own. */
void grant_principal(struct facts *f, struct grant_who who, struct str platform,
                     enum gate_principal mode, const struct str *allow, size_t n_allow,
                     facts_done_cb *done, void *ctx);
const char *grant_principal_word(enum gate_principal mode); /* "owner-only", "allow-list", "any" */
bool grant_principal_parse(struct str word, enum gate_principal *ret_mode);

struct grant_policy { /* replaces what was declared before for this platform */
    struct str platform;
    bool require_address, allow_other_bots;
    const struct str *free_places; /* channel ids where require_address is waived */
    size_t n_free_places;
};
void grant_policy(struct facts *f, struct grant_who who, const struct grant_policy *p,
                  facts_done_cb *done, void *ctx);
/* What holds for instances of @tenant without a policy: must they be addressed? */
void grant_tenant_default(struct facts *f, struct str tenant, bool require_address,
                          facts_done_cb *done, void *ctx);

/* The person must be linked to the instance. */
void grant_dm_default(struct facts *f, struct grant_who who, struct str platform, struct str user,
                      facts_done_cb *done, void *ctx);

/* Link or unlink a person by an operator's word, without a code. */
void grant_link(struct facts *f, struct grant_who who, struct str platform, struct str user,
                facts_done_cb *done, void *ctx);
void grant_unlink(struct facts *f, struct grant_who who, struct str platform, struct str user,
                  facts_done_cb *done, void *ctx);

/* A code that links whoever sends it to the bot.  @platform absent: on any.  @ret_code is filled
 * before the call returns and means something when done() says BH_OK.  BH_BUSY: too many are out.
 */
void link_code_new(struct facts *f, struct grant_who who, struct str platform, struct buf *ret_code,
                   int64_t *ret_expires_ms, facts_done_cb *done, void *ctx);
/* Somebody sent @code.  BH_OK: linked.  BH_NOT_FOUND: no such code, expired, used, or for another
 * platform.  BH_BUSY: this person tried too often. */
void link_code_redeem(struct facts *f, struct str platform, struct str user, struct str code,
                      facts_done_cb *done, void *ctx);

/* End an instance, all or nothing: its gateways are revoked, everything it was granted goes, and
 * its life grows by one, told to the observers as "ended" with tenant \x1f instance.  Whoever
 * takes the name next has another life: nothing that was kept for the one before is theirs. */
void grant_deprovision(struct facts *f, struct grant_who who, facts_done_cb *done, void *ctx);

/* Questions of the guard. */
const struct gate_instance *grant_instance(const struct facts *f, struct grant_who who);
bool grant_is_linked(const struct facts *f, const struct gate_instance *to, struct str platform,
                     struct str user);
/* Whom the person was linked to last; NULL: nobody. */
const struct gate_instance *grant_newest_link(const struct facts *f, struct str platform,
                                              struct str user);
/* Does the instance hold this channel, or its guild while nobody else holds the channel?  What it
 * claimed in a place that an operator routed to another tenant it does not hold. */
bool grant_holds(const struct facts *f, const struct gate_instance *to, struct grant_place at);

/* Keys of an object with what there is: bindings, scopes, principals, policies, dmDefaults,
 * tenants. One page of it: begin with a zeroed @at, go on with what it became.  False: that was
 * the last. @who: of one instance; empty members mean any. */
struct grants_page {
    uint64_t instance, binding; /* the first that was not written; opaque to others */
};
bool grants_write(const struct facts *f, struct grant_who who, struct grants_page *at,
                  struct jw *w);
