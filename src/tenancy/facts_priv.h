/* facts_priv.h - struct facts and its tables, shared by the files of this folder. */
#pragma once
#include "base/clock.h"
#include "base/jw.h"
#include "core/gate.h"
#include "tenancy/facts.h"

#define NAME_BYTES 128 /* length of the longest name: facts_name_ok() */
/* A field of a record that has a name, called like its member. */
#define NAME_FIELD(T, member, flags_) \
    RECORD_FIELD(T, member, #member, (flags_) | RECORD_NEEDED, .max = NAME_BYTES)

/* A tenant; made when a record first names it, and lives as long as the facts. */
struct tenant_facts {
    struct gate_tenant gate; /* first */
    struct list instances;   /* instance_facts.link: the dead ones too */
    struct list routes;      /* route.by_target: routes to the whole tenant */
    size_t n_gateways;       /* the revoked ones too */
    struct list strict;      /* facts->strict; linked: instances without a policy need an address */
    size_t n_claimed;        /* scopes of its instances that no operator granted */
    struct str name;         /* in bytes */
    char bytes[];
};

/* An instance: its gateways, routes and grants.  Lives as long as the facts. */
struct instance_facts {
    struct gate_instance gate;       /* first; its names are borrowed from key */
    struct tenant_facts *tenant;     /* borrowed */
    struct list link;                /* tenant->instances */
    struct instance_facts *namesake; /* next of the same name, of another tenant: by_name */
    struct list gateways;            /* gateway.by_inst: not revoked, by age */
    const struct gateway *waker;     /* the newest of @gateways with a wake URL */
    size_t n_gateways;               /* the revoked ones too */
    struct list routes;              /* route.by_target: routes that name this instance */
    struct list scopes, codes;       /* own their members: grants.c, links.c */
    size_t n_claimed;                /* scopes that no operator granted */
    struct str key;                  /* tenant \x1f instance; in bytes, NUL-terminated */
    char bytes[];
};

enum { ROUTE_ORIGINS = ROUTE_PROVISION + 1 };

struct keyed {          /* routes of one key and one origin */
    struct list routes; /* route.by_key: those with a live target and the others */
    size_t n_borders;   /* neighbours in @routes of different tenants; 0: all of one tenant */
};

struct bucket {              /* the routes of one (platform, key); freed with its last route */
    struct gate_routes gate; /* first: gate.routes points here */
    struct keyed of[ROUTE_ORIGINS];
    struct str key; /* platform \x1f key; in bytes */
    char bytes[];
};

struct facts {
    struct facts_env env;
    struct facts_reading *reading; /* owned; NULL: loading has ended */
    struct list gateways, routes;  /* own their members */
    size_t n_gateways, n_routes;
    size_t n_tenants;                  /* with a gateway, revoked or not */
    size_t n_live;                     /* instances with a gateway that is not revoked */
    struct map by_id;                  /* id -> struct gateway */
    struct map instances;              /* tenant \x1f instance -> struct instance_facts */
    struct instance_facts **by_number; /* owned array, in order of creation */
    size_t n_instances, cap_instances;
    struct map by_name;     /* instance -> the first struct instance_facts of that name */
    struct map tenants;     /* name -> struct tenant_facts */
    struct list strict;     /* tenant_facts.strict: grants.c */
    struct map routes_by;   /* route.id -> struct route */
    struct gate_facts gate; /* kept by grants.c, links.c, rights.c; its routes by routes.c */
    struct map bot_sets;    /* text -> the same text, owned: gate_link.bots of links.c */
    struct map codes;       /* hash -> struct code: links.c */
    struct map tries;       /* platform \x1f user -> struct tries: links.c */
    struct list tries_by_age;
    struct map delivery_keys; /* tenant -> struct delivery_key: enroll.c */
    struct list used;         /* redeemed enrollment tokens: enroll.c */
    struct timer sweep;       /* deletes expired entries of @used */
    struct list changes;      /* waiting or under way: change.c */
    struct map subjects;      /* name -> struct subject: change.c */
    struct list ready;        /* struct subject: their next change can start */
    struct timer start;       /* starts the ready changes when the turn ends */
};

/* ---- gateways.c: tenants, instances, gateways ---- */
/* Joins two names to a table key in @scratch.  STR_NULL: longer than any two names. */
#define PAIR_MAX 1024
struct str pair_key(char scratch[PAIR_MAX], struct str a, struct str b);
struct tenant_facts *facts_make_tenant(struct facts *f, struct str name);
struct instance_facts *facts_find_instance(const struct facts *f, struct str tenant,
                                           struct str name);
struct instance_facts *facts_make_instance(struct facts *f, struct str tenant, struct str name);
struct gateway_record { /* the stored form; texts are borrowed */
    struct str id, tenant, instance, wake_url, platform, bot, display_name;
    struct gateway_pair also[IDENTITIES_MAX - 1], bots[IDENTITIES_MAX];
    size_t n_also, n_bots;
    int64_t created_ms, rotated_ms, revoked_ms;
    bool ackless, newer, drops;
    struct gateway_secret_record {
        struct str text;
        int64_t until_ms;
        bool used, waits;
    } secrets[GATEWAY_SECRETS];
    size_t n_secrets;
};
extern const struct record_form gateway_form;
void gateway_view(const struct gateway *g, struct gateway_record *ret);
/* Makes a gateway that is not in the facts yet.  An empty instance defaults to the id. */
struct gateway *gateway_new(const struct gateway_record *r);
struct gateway *gateway_copy(const struct gateway *g);
void gateway_free(struct gateway *g);
void gateway_wipe_secrets(struct gateway *g);
/* Makes the pair the gateway's first, replacing its pair of the same platform.  An empty @bot keeps
 * the bot of that pair. */
void identity_take(struct gateway *g, struct str platform, struct str bot);
/* Adds @secret as the newest and owns it.  The older secrets expire after @keep_ms at most.  With
 * @until_used they also stay valid until a newer secret is used.  Over GATEWAY_SECRETS, a secret
 * that was never used is dropped first. */
void secrets_push(struct gateway *g, char *secret, int64_t now_ms, int64_t keep_ms,
                  bool until_used);
bool secret_is_live(const struct gateway *g, size_t i, int64_t now_ms);
/* A gateway authenticated with secret @i.  True: the record changed and must be written. */
bool secret_was_used(struct gateway *g, size_t i);
void facts_link_gateway(struct facts *f, struct gateway *g); /* owns @g from now on */
void facts_relink_gateway(struct facts *f, struct gateway *g,
                          struct gateway *with); /* moves the content of @with to @g */
void gateway_table_free(struct facts *f);

/* ---- routes.c ---- */
struct route_record { /* the stored form; texts are borrowed */
    struct str platform, key, tenant, instance;
    enum route_origin origin;
    bool open;
    int64_t created_ms;
};
extern const struct record_form route_form;
struct route_record route_view(const struct route *r);
struct route *route_of_record(const struct route_record *rec); /* not in the facts yet */
/* Makes a route that is not in the facts yet; an empty @instance: to the whole tenant. */
struct route *route_new(struct str platform, struct str key, struct str tenant,
                        struct str instance);
/* The route in the facts that has the same names as @r; NULL: none. */
struct route *facts_find_like(const struct facts *f, const struct route *r);
/* True when a tenant other than @tenant has a route of exactly this key: of any origin for
 * facts_is_others(), an operator's for facts_is_given(). */
bool facts_is_others(const struct facts *f, struct str platform, struct str key, struct str tenant);
bool facts_is_given(const struct facts *f, struct str platform, struct str key, struct str tenant);
/* Reserves room in the tables before loading. */
void facts_expect(struct facts *f, size_t gateways, size_t routes, size_t keys);
void facts_prefetch_route(const struct facts *f, const struct route *r); /* will be linked soon */
void facts_link_route(struct facts *f, struct route *r);                 /* owns @r from now on */
void facts_unlink_route(struct facts *f, struct route *r);               /* frees it */
/* Changes the origin and openness of a route in the facts. */
void facts_set_route(struct facts *f, struct route *r, enum route_origin origin, bool open);
/* True when an operator's route gives exactly this key to @tenant. */
bool facts_is_routed_to(const struct facts *f, struct str platform, struct str key,
                        struct str tenant);
/* True when operators' routes give exactly this key to other tenants and none to @tenant. */
bool facts_is_routed_away(const struct facts *f, struct str platform, struct str key,
                          struct str tenant);
/* The next claim of another tenant to the key of @r, behind @after (NULL: the first one). */
struct route *facts_foreign_claim(const struct facts *f, const struct route *r,
                                  const struct route *after);
/* The instance or tenant with these routes became live or dead: adds them to gate.places or removes
 * them. */
void routes_follow(struct list *routes);
void route_table_free(struct facts *f);

/* ---- change.c ---- */
timer_cb facts_start_changes;
void facts_drop_changes(struct facts *f);

/* ---- grants.c, links.c, enroll.c ---- */
struct record_reader;
extern const struct record_form binding_form, dm_default_form, scope_form, principal_form,
    policy_form, allowance_form, tenant_form, life_form, link_code_form, delivery_key_form,
    enrolled_form;
enum bh_err grants_load(struct facts *f, struct record_reader *reader, char *ret_why);
void grants_free(struct facts *f);
enum bh_err links_load(struct facts *f, struct record_reader *reader, char *ret_why);
void links_free(struct facts *f);
void rights_free(struct facts *f);
enum bh_err enroll_load(struct facts *f, char *ret_why);
void enroll_free(struct facts *f);
