/* grants_priv.h - the records behind the gate's tables, shared by grants.c, grants_show.c, links.c.
 */
#pragma once
#include "tenancy/change.h"
#include "tenancy/grants.h"

#define NS_BINDING "binding"
#define NS_SCOPE "scope"
#define NS_PRINCIPAL "principal"
#define NS_POLICY "policy"
#define NS_DM_DEFAULT "dm_default"
#define NS_TENANT "tenant"
#define NS_LINK_CODE "link_code"
#define NS_LIFE "life"

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

struct scope *scope_new(struct grant_place at, int64_t created_ms, enum grant_word by);
const char *grant_word_name(enum grant_word by); /* in records: "claim", "manager", "operator" */
enum grant_word grant_word_parse(struct str name);
void scope_attach(struct facts *f, struct instance_facts *in, struct scope *s); /* takes it over */
void scope_drop(struct facts *f, struct scope *s);

struct principal *principal_new(struct str platform, enum gate_principal mode);
void principal_attach(struct instance_facts *in, struct principal *p); /* takes it over */
struct policy *policy_new(struct str platform, bool require_address, bool allow_other_bots);
void policy_attach(struct instance_facts *in, struct policy *p); /* takes it over */
void policies_drop(struct instance_facts *in);
void tenant_set(struct facts *f, struct str name, bool require_address);

/* A set of ids is a map whose values are its keys. */
void grant_set_add(struct map *set, struct str id);
void grant_put_who(struct jw *w, const struct instance_facts *in);
void grant_join(struct buf *out, struct str a, struct str b, struct str c); /* by \x1f */
prepare_f grant_prepare_ready; /* the items were put when it was asked for */
/* The subject of all changes of one instance's grants. */
void grant_submit(struct change *c, struct instance_facts *to);
/* NULL, and the change has failed, when there is no such instance or it was revoked. */
struct instance_facts *grant_target(struct facts *f, struct change *c, struct grant_who who);
/* True, and the change has failed, unless the id is acceptable. */
bool grant_id_bad(struct change *c, const char *what, struct str id);
/* True when the instance has at least one gateway that was not revoked. */
bool grant_is_alive(const struct instance_facts *in);

/* Load one namespace; BH_REFUSED when a record does not read. */
typedef bool grant_record_fn(struct facts *f, struct str key, struct json doc, void *ctx);
enum bh_err grant_load_ns(struct facts *f, struct json_parser *parser, const char *ns,
                          grant_record_fn *read, void *ctx, char *ret_why);
