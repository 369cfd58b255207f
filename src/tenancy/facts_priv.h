/* facts_priv.h - the inside of struct facts, shared by the files of this folder. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "base/jw.h"
#include "core/gate.h"
#include "tenancy/facts.h"

#define NAME_BYTES 128 /* of the longest name: facts_name_ok() */

/* A tenant, as soon as anything names it; lives as long as the facts. */
struct tenant_facts {
    struct gate_tenant gate; /* first */
    struct list instances;   /* instance_facts.link: all that were ever named */
    struct list routes;      /* route.by_target: those to the whole tenant */
    size_t n_gateways;       /* the revoked ones too */
    struct list strict;      /* facts->strict; linked: be addressed where there is no policy */
    size_t n_claimed;        /* scopes of its instances by less than the operator's word */
    struct str name;         /* in bytes */
    char bytes[];
};

/* What (tenant, instance) is known by: its gateways and what it was granted.  Lives as long as the
 * facts. */
struct instance_facts {
    struct gate_instance gate;           /* first; its names are borrowed from key */
    struct tenant_facts *tenant;         /* borrowed */
    struct list link;                    /* tenant->instances */
    struct instance_facts *namesake;     /* the next with its name, of another tenant: by_name */
    struct list gateways;                /* gateway.by_inst: those not revoked, by age */
    const struct gateway *waker;         /* the newest of them with a wake URL */
    size_t n_gateways;                   /* the revoked ones too */
    struct list routes;                  /* route.by_target: those that name it */
    struct list bindings, scopes, codes; /* own their members: grants.c, links.c */
    size_t n_claimed;                    /* of the scopes: by less than the operator's word */
    struct str key;                      /* tenant \x1f instance; in bytes, with a zero behind */
    char bytes[];
};

enum { ROUTE_ORIGINS = ROUTE_PROVISION + 1 };

struct keyed {          /* routes of one key and one origin */
    struct list routes; /* route.by_key: all, whether they lead anywhere or not */
    size_t n_borders;   /* neighbours in @routes of different tenants; 0: all of one */
};

struct bucket {              /* the routes of one (platform, key); never none */
    struct gate_routes gate; /* first: what gate.routes points at */
    struct keyed of[ROUTE_ORIGINS];
    struct str key; /* platform \x1f key; in bytes */
    char bytes[];
};

struct facts {
    struct facts_env env;
    struct facts_reading *reading; /* owned; NULL: all is read */
    struct list gateways, routes;  /* own their members */
    size_t n_gateways, n_routes;
    size_t n_tenants;                  /* with a gateway, revoked or not */
    struct map by_id;                  /* id -> struct gateway */
    struct map instances;              /* tenant \x1f instance -> struct instance_facts */
    struct instance_facts **by_number; /* owned array, in the order they were first named */
    size_t n_instances, cap_instances;
    struct map by_name;     /* instance -> the first struct instance_facts of that name */
    struct map tenants;     /* name -> struct tenant_facts */
    struct list strict;     /* tenant_facts.strict: grants.c */
    struct map routes_by;   /* route.id -> struct route */
    struct gate_facts gate; /* grants.c keeps it, and routes.c its routes: struct bucket */
    struct map codes;       /* hash -> struct code: links.c */
    struct map tries;       /* platform \x1f user -> struct tries: links.c */
    struct list tries_by_age;
    struct map delivery_keys; /* tenant -> struct delivery_key: enroll.c */
    struct list used;         /* enrollment tokens: enroll.c */
    struct timer sweep;       /* of those that have expired */
    struct list changes;      /* waiting or under way: change.c */
    struct map subjects;      /* name -> struct subject: change.c */
    struct list ready;        /* struct subject: those that can go on */
    struct timer start;       /* starts what is ready when the turn ends */
};

/* ---- gateways.c: tenants, instances, gateways ---- */
/* Two names as one table key; the caller's buffer holds it.  STR_NULL: longer than any name. */
#define PAIR_MAX 1024
struct str pair_key(char scratch[PAIR_MAX], struct str a, struct str b);
struct tenant_facts *facts_make_tenant(struct facts *f, struct str name);
struct instance_facts *facts_find_instance(const struct facts *f, struct str tenant,
                                           struct str name);
struct instance_facts *facts_make_instance(struct facts *f, struct str tenant, struct str name);
struct gateway_record { /* as it is written; texts are borrowed */
    struct str id, tenant, instance, wake_url, platform, bot, display_name;
    struct gateway_pair {
        struct str platform, bot;
    } also[IDENTITIES_MAX - 1];
    size_t n_also;
    int64_t created_ms, rotated_ms, revoked_ms;
    bool ackless, newer;
    struct gateway_secret_record {
        struct str text;
        int64_t until_ms;
        bool used, waits;
    } secrets[GATEWAY_SECRETS];
    size_t n_secrets;
};
extern const struct record_form gateway_form;
void gateway_view(const struct gateway *g, struct gateway_record *ret);
/* Not in the facts yet.  An empty instance: the id. */
struct gateway *gateway_new(const struct gateway_record *r);
struct gateway *gateway_copy(const struct gateway *g);
void gateway_free(struct gateway *g);
void gateway_wipe_secrets(struct gateway *g);
/* The gateway is for this pair from now on, and for no other of that platform.  @bot NULL: the bot
 * it has there. */
void identity_take(struct gateway *g, const char *platform, const char *bot);
/* Takes @secret over as the newest; the others stay valid for @keep_ms at most, or, with
 * @until_used, until a newer one was used.  When there are too many, one that nobody used goes
 * first. */
void secrets_push(struct gateway *g, char *secret, int64_t now_ms, int64_t keep_ms,
                  bool until_used);
bool secret_is_live(const struct gateway *g, size_t i, int64_t now_ms);
/* A gateway came with it.  True: the record must be written again. */
bool secret_was_used(struct gateway *g, size_t i);
void facts_link_gateway(struct facts *f, struct gateway *g); /* takes it over */
void facts_relink_gateway(struct facts *f, struct gateway *g,
                          struct gateway *with); /* takes @with's content */
void gateway_table_free(struct facts *f);

/* ---- routes.c ---- */
struct route_record { /* as it is written; texts are borrowed */
    struct str platform, key, tenant, instance;
    enum route_origin origin;
    bool open;
    int64_t created_ms;
};
extern const struct record_form route_form;
struct route_record route_view(const struct route *r);
struct route *route_of_record(const struct route_record *rec); /* not in the facts yet */
/* Not in the facts yet; an empty @instance: all of the tenant. */
struct route *route_new(struct str platform, struct str key, struct str tenant,
                        struct str instance);
void route_free(struct route *r); /* NULL is fine */
/* The route in the facts that is like @r, which is not; NULL: there is none. */
struct route *facts_find_like(const struct facts *f, const struct route *r);
const struct bucket *facts_bucket(const struct facts *f, struct str platform, struct str key);
/* Has another tenant than @tenant a route of this very key, of any origin, or an operator's? */
bool facts_is_others(const struct facts *f, struct str platform, struct str key, struct str tenant);
bool facts_is_given(const struct facts *f, struct str platform, struct str key, struct str tenant);
/* So many are about to come, the routes under so many keys. */
void facts_expect(struct facts *f, size_t gateways, size_t routes, size_t keys);
void facts_prefetch_route(const struct facts *f, const struct route *r); /* it comes soon */
void facts_link_route(struct facts *f, struct route *r);                 /* takes it over */
void facts_unlink_route(struct facts *f, struct route *r);               /* frees it */
/* What @r means from now on. */
void facts_set_route(struct facts *f, struct route *r, enum route_origin origin, bool open);
/* Did an operator route this very key to other tenants, and not to @tenant? */
bool facts_is_routed_away(const struct facts *f, struct str platform, struct str key,
                          struct str tenant);
/* The first claim to the key of @r after @after (NULL: of all) that belongs to another tenant. */
struct route *facts_foreign_claim(const struct facts *f, const struct route *r,
                                  const struct route *after);
/* The instance, or the tenant, came to life or ended: its routes lead there now, or nowhere. */
void routes_follow_instance(struct instance_facts *in);
void routes_follow_tenant(struct tenant_facts *t);
void route_table_free(struct facts *f);

/* ---- change.c ---- */
timer_cb facts_start_changes;
void facts_drop_changes(struct facts *f);

/* ---- grants.c, links.c, enroll.c ---- */
struct record_reader;
extern const struct record_form binding_form, dm_default_form, scope_form, principal_form,
    policy_form, tenant_form, life_form, link_code_form, delivery_key_form, enrolled_form;
enum bh_err grants_load(struct facts *f, struct record_reader *reader, char *ret_why);
void grants_free(struct facts *f);
enum bh_err links_load(struct facts *f, struct record_reader *reader, char *ret_why);
void links_free(struct facts *f);
enum bh_err enroll_load(struct facts *f, char *ret_why);
void enroll_free(struct facts *f);
