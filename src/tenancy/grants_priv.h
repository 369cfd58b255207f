/* grants_priv.h - the records behind the gate's tables, shared by grants.c, grants_show.c, links.c
 * and gateway_change.c. */
#pragma once
#include "tenancy/change.h"
#include "tenancy/grants.h"

/* ---- as they are written; texts are borrowed ---- */
struct binding_record { /* and the choice among several: dm_default_form */
    struct str platform, user, tenant, instance;
    int64_t created_ms;
};
struct scope_record {
    struct str platform, guild, channel, tenant, instance;
    enum grant_word by;
    int64_t created_ms;
};
struct principal_record {
    struct str tenant, instance, platform;
    enum gate_principal mode;
    struct str *allow; /* owned when it was read */
    size_t n_allow;
};
struct policy_record {
    struct str tenant, instance, platform;
    bool require_address, allow_other_bots;
    struct str *free_places; /* owned when it was read */
    size_t n_free_places;
};
struct tenant_record {
    struct str tenant;
    bool require_address;
};

/* ---- in memory ---- */
struct binding {             /* a person is linked to an instance */
    struct list link;        /* instance->bindings */
    struct gate_link author; /* in the list of this author, oldest first */
    struct gate_owner owner; /* in the list of the instance's people */
    int64_t created_ms;
    struct str key; /* platform \x1f user: the key in gate.authors; bytes follow */
    char bytes[];
};

struct scope {               /* a place belongs to an instance */
    struct gate_place place; /* first: what gate.scopes points at */
    struct list link;        /* instance->scopes */
    int64_t created_ms;
    enum grant_word by;
    struct str platform, guild, channel, key; /* bytes follow */
    char bytes[];
};

struct principal {
    struct gate_admission a; /* first: what instance->gate.principals points at */
    char platform[];
};

struct policy {
    struct gate_policy p; /* first: what instance->gate.policies points at */
    char platform[];
};

struct instance_facts *grant_instance_of(const struct gate_instance *to);
struct binding *binding_find(const struct facts *f, const struct instance_facts *in,
                             struct str platform, struct str user);
struct binding *binding_new(struct str platform, struct str user, int64_t created_ms);
void binding_attach(struct facts *f, struct instance_facts *in,
                    struct binding *b); /* takes it over */
/* Takes it out of everything and frees it; a choice that rested on it goes too. */
void binding_drop(struct facts *f, struct binding *b);
void binding_forget(struct facts *f, struct change *c, const struct binding *b); /* on disk */
/* Write it, for a change that will attach a new binding when it is on disk. */
void binding_put(struct change *c, const struct instance_facts *in, const struct binding *b);
void scope_put(struct change *c, enum store_kv_verb verb, const struct instance_facts *in,
               const struct scope *s);

const char *grant_word_name(enum grant_word by); /* in records: "claim", "manager", "operator" */
void scope_drop(struct facts *f, struct scope *s);

void policies_drop(struct instance_facts *in);

/* The subject of all changes of one instance's grants. */
void grant_submit(struct change *c, struct instance_facts *to);
/* NULL, and the change has failed, when there is no such instance or it was revoked. */
struct instance_facts *grant_target(struct facts *f, struct change *c, struct grant_who who);
/* True, and the change has failed, unless the id is acceptable. */
bool grant_id_bad(struct change *c, const char *what, struct str id);
/* True when the instance has at least one gateway that was not revoked. */
bool grant_is_alive(const struct instance_facts *in);
record_cb grant_life_load; /* gateway_change.c: one life was read; the context is the facts */
