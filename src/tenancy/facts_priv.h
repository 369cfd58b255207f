/* facts_priv.h - the inside of struct facts, shared by the files of this folder. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "base/jw.h"
#include "tenancy/facts.h"

#define NS_GATEWAY "gateway"
#define NS_ROUTE "route"

struct instance { /* what (tenant, instance) is known by: its gateways */
    struct str key;                    /* tenant "\n" instance; owned */
    const struct gateway **gateways;   /* owned array of borrowed */
    size_t n;
};

struct target {
    struct str tenant, instance; /* borrowed from routes and gateways */
};

struct bucket { /* the routes of one (platform, key), and where they lead */
    struct str key;        /* platform "\n" key; owned */
    struct route **routes; /* owned array of borrowed */
    size_t n_routes;
    struct target *targets; /* owned; valid while generation matches */
    size_t n_targets;
    uint64_t generation;
};

struct facts {
    struct facts_env env;
    struct list gateways, routes; /* own their members */
    size_t n_gateways, n_routes;
    struct map by_id;     /* id -> struct gateway */
    struct map instances; /* -> struct instance */
    struct map buckets;   /* -> struct bucket */
    uint64_t generation;  /* counts changes that may move a target */
    struct list changes;  /* waiting or under way, in order; see change.c */
    struct map busy;      /* gateway id -> the change under way */
    struct timer start;   /* starts what is ready when the turn ends */
};

/* ---- facts.c: memory ---- */
void gateway_free(struct gateway *g);
void gateway_wipe_secrets(struct gateway *g);
void facts_link_gateway(struct facts *f, struct gateway *g);   /* takes it over */
void facts_relink_gateway(struct facts *f, struct gateway *g, struct gateway *with); /* takes @with's content */
void route_free(struct route *r);
struct route *facts_find_route(const struct facts *f, struct str platform, struct str key,
                               struct str tenant, struct str instance);
void facts_link_route(struct facts *f, struct route *r);       /* takes it over */
void facts_unlink_route(struct facts *f, struct route *r);     /* frees it */

/* ---- record.c: the form on disk ---- */
void gateway_write(const struct facts *f, const struct gateway *g, struct buf *out);
struct gateway *gateway_read(const struct facts *f, struct str id, struct json doc); /* NULL: damaged */
void route_write_key(struct buf *out, struct str platform, struct str key, struct str tenant,
                     struct str instance);
void route_write(const struct route *r, int64_t created_ms, struct buf *out);
/* NULL: damaged. */
struct route *route_read(struct json doc, int64_t *ret_created_ms);

/* ---- change.c ---- */
timer_cb facts_start_changes;
void facts_drop_changes(struct facts *f);
