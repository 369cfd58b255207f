/* facts_priv.h - the inside of struct facts, shared by the files of this folder. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "base/jw.h"
#include "core/gate.h"
#include "tenancy/facts.h"

#define NS_GATEWAY "gateway"
#define NS_ROUTE "route"

struct
    instance_facts { /* what (tenant, instance) is known by: its gateways and what it was granted */
    struct gate_instance gate;       /* first; its names are borrowed from key */
    struct str key;                  /* tenant \x1f instance; owned */
    const struct gateway **gateways; /* owned array of borrowed */
    size_t n;
    struct list bindings, scopes, codes; /* own their members: grants.c, links.c */
};

struct bucket {                /* the routes of one (platform, key), and where they lead */
    struct str key;            /* platform \x1f key; owned */
    struct route **routes;     /* owned array of borrowed */
    struct gate_place *places; /* owned array, linked in order; gate.routes points at the first */
    size_t n_routes, n_places;
};

struct facts {
    struct facts_env env;
    struct list gateways, routes; /* own their members */
    size_t n_gateways, n_routes;
    struct map by_id;       /* id -> struct gateway */
    struct map instances;   /* -> struct instance_facts; they live as long as the facts */
    struct map buckets;     /* -> struct bucket */
    struct gate_facts gate; /* grants.c keeps it, and facts.c its routes */
    struct map tenants;     /* name -> struct tenant: grants.c */
    struct map codes;       /* hash -> struct code: links.c */
    struct map tries;       /* platform \x1f user -> struct tries: links.c */
    struct list tries_by_age;
    struct map delivery_keys; /* tenant -> struct delivery_key: enroll.c */
    struct list used;         /* enrollment tokens: used.c */
    struct timer sweep;       /* of those that have expired */
    struct list changes;      /* waiting or under way, in order; see change.c */
    struct map busy;          /* subject -> the change under way */
    struct timer start;       /* starts what is ready when the turn ends */
};

/* ---- facts.c: memory ---- */
/* Two names as one table key; the caller's buffer holds it.  STR_NULL: longer than any name. */
#define PAIR_MAX 1024
struct str pair_key(char scratch[PAIR_MAX], struct str a, struct str b);
struct instance_facts *facts_find_instance(const struct facts *f, struct str tenant,
                                           struct str name);
struct instance_facts *facts_make_instance(struct facts *f, struct str tenant, struct str name);
void gateway_free(struct gateway *g);
void gateway_wipe_secrets(struct gateway *g);
void facts_link_gateway(struct facts *f, struct gateway *g); /* takes it over */
void facts_relink_gateway(struct facts *f, struct gateway *g,
                          struct gateway *with); /* takes @with's content */
void route_free(struct route *r);
struct route *facts_find_route(const struct facts *f, struct str platform, struct str key,
                               struct str tenant, struct str instance);
void facts_link_route(struct facts *f, struct route *r);   /* takes it over */
void facts_unlink_route(struct facts *f, struct route *r); /* frees it */

/* ---- record.c: the form on disk ---- */
void gateway_write(const struct facts *f, const struct gateway *g, struct buf *out);
struct gateway *gateway_read(const struct facts *f, struct str id,
                             struct json doc); /* NULL: damaged */
void route_write_key(struct buf *out, struct str platform, struct str key, struct str tenant,
                     struct str instance);
void route_write(const struct route *r, int64_t created_ms, struct buf *out);
/* NULL: damaged. */
struct route *route_read(struct json doc, int64_t *ret_created_ms);

/* ---- change.c ---- */
timer_cb facts_start_changes;
void facts_drop_changes(struct facts *f);

/* ---- grants.c, links.c ---- */
enum bh_err grants_load(struct facts *f, struct json_parser *parser, char *ret_why);
void grants_free(struct facts *f);
enum bh_err links_load(struct facts *f, struct json_parser *parser, char *ret_why);
void links_free(struct facts *f);
enum bh_err enroll_load(struct facts *f, char *ret_why);
void enroll_free(struct facts *f);
