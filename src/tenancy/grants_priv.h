/* grants_priv.h - the records of grants.h, stored and in memory.
 *
 * Shared by grants.c, grants_show.c, links.c and gateway_change.c. */
#pragma once
#include "tenancy/change.h"
#include "tenancy/grants.h"

#define ID_FIELD(T, member, flags_) \
    RECORD_FIELD(T, member, #member, (flags_) | RECORD_NEEDED, .max = GRANT_ID_MAX)

/* ---- the stored form; texts are borrowed ---- */
struct binding_record { /* used for dm_default_form too */
    struct str platform, user, tenant, instance;
    struct str bots[LINK_BOTS_MAX];
    size_t n_bots;
    int64_t created_ms;
};
struct scope_record {
    struct str platform, guild, channel, tenant, instance;
    enum grant_word by;
    int64_t created_ms;
};
struct rule_record { /* of principal_form and policy_form */
    struct str tenant, instance, platform;
    enum gate_principal mode;
    bool require_address, allow_other_bots;
    struct str *ids; /* owned when read from the store */
    size_t n_ids;
};
struct allowance_record {
    struct str tenant, instance, reply;
    uint32_t turns;
    enum gate_period period;
    bool per_chat;
};
struct tenant_record {
    struct str tenant;
    bool require_address;
};

/* ---- in memory ---- */
struct binding {           /* links a person to an instance */
    struct gate_link gate; /* first: gate.authors points here */
    int64_t created_ms;
    char bytes[]; /* platform \x1f user: the key in gate.authors */
};

struct scope {               /* gives a place to an instance */
    struct gate_place place; /* first: gate.scopes points here */
    struct list link;        /* instance->scopes */
    int64_t created_ms;
    enum grant_word by;
    struct str platform, guild, channel, key; /* bytes follow */
    char bytes[];
};

struct rule {              /* a principal or a policy */
    struct gate_rule gate; /* first: gate_instance.principals or .policies points here */
    char platform[];
};

struct binding *binding_of(const struct list *of_instance); /* in gate_instance.people */
struct str binding_key(const struct binding *b);
/* Removes the binding from memory and frees it, with the dm default that depends on it. */
void binding_drop(struct facts *f, struct binding *b);
void binding_forget(struct facts *f, struct change *c, const struct binding *b); /* on disk */
/* The codes of the change's instance end with it: on disk, and in memory. */
void codes_forget(struct change *c);
void codes_drop(struct facts *f, struct instance_facts *in);
/* The parts of a change that links a person (links.c), for a change that does more: pairing.c.
 * link_change() fills in the change and submits it. */
prepare_f link_prepare;
apply_f link_apply;
void link_change(struct change *c, struct grant_who who, const struct grant_person *p);
void scope_put(struct change *c, enum store_kv_verb verb, const struct instance_facts *in,
               const struct scope *s);

extern const char *const grant_words[];     /* of enum grant_word, as stored */
extern const char *const principal_words[]; /* of enum gate_principal */
void scope_drop(struct facts *f, struct scope *s);

void policies_drop(struct instance_facts *in);

/* Submits a change under the subject that all grants of the instance share. */
void grant_submit(struct change *c, struct instance_facts *to);
/* Sets c->to.  Without a live instance of that name it fails the change and returns NULL. */
struct instance_facts *grant_target(struct facts *f, struct change *c, struct grant_who who);
/* Fails the change and returns true unless the id is valid. */
bool grant_id_bad(struct change *c, const char *what, struct str id);
/* True when the instance has at least one gateway that is not revoked. */
bool grant_is_alive(const struct instance_facts *in);
record_cb grant_life_load; /* gateway_change.c: loads one life; the context is struct facts */
