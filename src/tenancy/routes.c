/* routes.c - routes in memory and as records, indexed by key, by name and by target.
 *
 *      bucket (platform, key) ----of---> all routes of the key, by origin
 *           '-- gate.places -----------> the routes that lead to a live instance, for the gate
 *      instance or tenant ----routes---> the routes that name it
 *
 * A route embeds its list links, so a change of one route rebuilds no list.  A route is dead when
 * its instance was revoked or its tenant has no live instance.  Dead routes are not in gate.places,
 * so an event never walks past them. */
#include <stdlib.h>
#include "base/mem.h"
#include "base/uncleared.h"
#include "core/event.h"
#include "store/store.h"
#include "tenancy/facts_priv.h"

/* ---- one route ---- */

enum { NAMES = 4, ID_MAX_BYTES = 1024 };

/* Writes the names one after the other, a NUL after each, if they fit into @room; returns their
 * bytes.  @ret_at gets the start of each. */
static size_t put_names(char *to, size_t room, const struct str name[NAMES], char *ret_at[NAMES])
{
    size_t n = NAMES;

    for (size_t i = 0; i < NAMES; i++)
        n += name[i].n;
    for (size_t i = 0; i < NAMES && n <= room; i++) {
        ret_at[i] = to;
        memcpy(to, name[i].n != 0 ? name[i].p : "", name[i].n);
        to += name[i].n;
        *to++ = '\0';
    }
    return n;
}

struct route *route_new(struct str platform, struct str key, struct str tenant, struct str instance)
{
    const struct str name[NAMES] = {platform, key, tenant, instance};
    char *at[NAMES];
    size_t n = put_names(NULL, 0, name, at);
    struct route *r = xcalloc(1, sizeof *r + n);

    put_names(r->bytes, n, name, at);
    r->id = str_make(r->bytes, n);
    r->platform = at[0];
    r->key = at[1];
    r->tenant = at[2];
    r->instance = instance.n != 0 ? at[3] : NULL;
    return r;
}

/* ---- the record ---- */

static const char *const origins[] = {
    [ROUTE_OPERATOR] = "operator", [ROUTE_PROVISION] = "provision", NULL};

static const struct record_field fields[] = {
    NAME_FIELD(struct route_record, platform, RECORD_KEY),
    NAME_FIELD(struct route_record, key, RECORD_KEY),
    NAME_FIELD(struct route_record, tenant, RECORD_KEY),
    RECORD_FIELD(struct route_record, instance, "instance", RECORD_KEY, .max = NAME_BYTES),
    RECORD_FIELD(struct route_record, origin, "origin", RECORD_NEEDED, .words = origins),
    RECORD_FIELD(struct route_record, open, "open", 0),
    RECORD_FIELD(struct route_record, created_ms, "created", 0),
};
const struct record_form route_form = RECORD_FORM("route", struct route_record, fields);

struct route_record route_view(const struct route *r)
{
    return (struct route_record){.platform = str_of(r->platform),
                                 .key = str_of(r->key),
                                 .tenant = str_of(r->tenant),
                                 .instance = str_of(r->instance),
                                 .origin = r->origin,
                                 .open = r->open,
                                 .created_ms = r->created_ms};
}

struct route *route_of_record(const struct route_record *rec)
{
    struct route *r = route_new(rec->platform, rec->key, rec->tenant, rec->instance);

    r->origin = rec->origin;
    r->open = rec->open && rec->origin == ROUTE_OPERATOR;
    r->created_ms = rec->created_ms;
    return r;
}

/* ---- finding ---- */

static const struct bucket *facts_bucket(const struct facts *f, struct str platform, struct str key)
{
    BH_UNCLEARED char room[GATE_KEY_MAX];
    struct str k = gate_key(room, platform, key, STR_NULL);

    return k.p != NULL ? map_get(&f->gate.routes, k) : NULL;
}

struct route *facts_find_like(const struct facts *f, const struct route *r)
{
    return map_get(&f->routes_by, r->id);
}

struct route *facts_find_route(const struct facts *f, struct str platform, struct str key,
                               struct str tenant, struct str instance)
{
    const struct str name[NAMES] = {platform, key, tenant, instance};
    BH_UNCLEARED char id[ID_MAX_BYTES];
    char *at[NAMES];
    size_t n = put_names(id, sizeof id, name, at);

    return n <= sizeof id ? map_get(&f->routes_by, str_make(id, n)) : NULL;
}

size_t facts_routes(const struct facts *f, struct list **ret_head)
{
    *ret_head = (struct list *)&f->routes;
    return f->n_routes;
}

bool facts_owns(const struct facts *f, struct str platform, struct str key, struct str tenant,
                struct str instance)
{
    const struct route *r = facts_find_route(f, platform, key, tenant, instance);

    if (r == NULL || r->origin != ROUTE_OPERATOR)
        r = facts_find_route(f, platform, key, tenant, STR_NULL);
    return r != NULL && r->origin == ROUTE_OPERATOR;
}

/* ---- live targets ---- */

bool facts_route_leads(const struct route *r)
{
    return r->place.to != NULL ? !r->place.to->gone : !list_is_empty(&r->place.all->live);
}

static void follow_target(struct route *r)
{
    bool leads = r->origin == ROUTE_OPERATOR && facts_route_leads(r);

    r->place.open = r->open;
    if (leads && !list_is_linked(&r->place.link))
        list_append(&r->bucket->gate.places, &r->place.link);
    else if (!leads)
        list_remove(&r->place.link);
}

void routes_follow(struct list *routes)
{
    list_each (routes, it, nxt)
        follow_target(list_entry(it, struct route, by_target));
}

/* ---- linking and unlinking ---- */

static struct bucket *make_bucket(struct facts *f, const struct route *r)
{
    struct bucket *b = (struct bucket *)facts_bucket(f, str_of(r->platform), str_of(r->key));
    char scratch[PAIR_MAX];

    if (b != NULL)
        return b;
    struct str key = pair_key(scratch, str_of(r->platform), str_of(r->key));
    b = xcalloc(1, sizeof *b + key.n);
    memcpy(b->bytes, key.p, key.n);
    b->key = str_make(b->bytes, key.n);
    list_init(&b->gate.places);
    for (size_t i = 0; i < ROUTE_ORIGINS; i++)
        list_init(&b->of[i].routes);
    map_put(&f->gate.routes, b->key, b);
    return b;
}

/* 1 when @at and its predecessor in the list belong to different tenants, else 0. */
static size_t border(const struct keyed *k, const struct list *at)
{
    if (at == &k->routes || at->prev == &k->routes)
        return 0;
    return strcmp(list_entry(at, struct route, by_key)->tenant,
                  list_entry(at->prev, struct route, by_key)->tenant) != 0;
}

static void join_key(struct route *r)
{
    struct keyed *k = &r->bucket->of[r->origin];

    list_append(&k->routes, &r->by_key);
    k->n_borders += border(k, &r->by_key);
}

static void leave_key(struct route *r)
{
    struct keyed *k = &r->bucket->of[r->origin];
    struct list *after = r->by_key.next;

    k->n_borders -= border(k, &r->by_key) + border(k, after);
    list_remove(&r->by_key);
    k->n_borders += border(k, after);
}

void facts_set_route(struct facts *f, struct route *r, enum route_origin origin, bool open)
{
    leave_key(r);
    r->origin = origin;
    r->open = open;
    join_key(r);
    follow_target(r);
}

/* True when one of the routes belongs to another tenant.  Takes constant time. */
static bool has_others(const struct keyed *k, struct str tenant)
{
    return !list_is_empty(&k->routes) &&
           (k->n_borders != 0 ||
            !str_eq(str_of(list_first(&k->routes, struct route, by_key)->tenant), tenant));
}

bool facts_is_given(const struct facts *f, struct str platform, struct str key, struct str tenant)
{
    const struct bucket *b = facts_bucket(f, platform, key);

    return b != NULL && has_others(&b->of[ROUTE_OPERATOR], tenant);
}

bool facts_is_routed_to(const struct facts *f, struct str platform, struct str key,
                        struct str tenant)
{
    const struct bucket *b = facts_bucket(f, platform, key);
    const struct keyed *k = b != NULL ? &b->of[ROUTE_OPERATOR] : NULL;
    const struct list *it = k != NULL ? k->routes.next : NULL;

    for (; k != NULL && it != &k->routes; it = it->next) {
        if (str_eq(str_of(list_entry(it, const struct route, by_key)->tenant), tenant))
            return true;
        if (k->n_borders == 0) /* all are one tenant's */
            break;
    }
    return false;
}

bool facts_is_routed_away(const struct facts *f, struct str platform, struct str key,
                          struct str tenant)
{
    return facts_is_given(f, platform, key, tenant) &&
           !facts_is_routed_to(f, platform, key, tenant);
}

bool facts_is_others(const struct facts *f, struct str platform, struct str key, struct str tenant)
{
    const struct bucket *b = facts_bucket(f, platform, key);

    return b != NULL && (has_others(&b->of[ROUTE_OPERATOR], tenant) ||
                         has_others(&b->of[ROUTE_PROVISION], tenant));
}

struct route *facts_foreign_claim(const struct facts *f, const struct route *r,
                                  const struct route *after)
{
    const struct bucket *b = facts_bucket(f, str_of(r->platform), str_of(r->key));
    const struct list *head = b != NULL ? &b->of[ROUTE_PROVISION].routes : NULL;

    if (head == NULL || !has_others(&b->of[ROUTE_PROVISION], str_of(r->tenant)))
        return NULL;
    for (const struct list *it = after != NULL ? after->by_key.next : head->next; it != head;
         it = it->next) {
        struct route *claim = list_entry(it, struct route, by_key);
        if (strcmp(claim->tenant, r->tenant) != 0)
            return claim;
    }
    return NULL;
}

void facts_expect(struct facts *f, size_t gateways, size_t routes, size_t keys)
{
    map_reserve(&f->by_id, gateways);
    map_reserve(&f->instances, gateways); /* usually one instance per gateway */
    map_reserve(&f->by_name, gateways);
    map_reserve(&f->gate.routes, keys);
    map_reserve(&f->routes_by, routes);
}

void facts_prefetch_route(const struct facts *f, const struct route *r)
{
    char room[GATE_KEY_MAX];

    map_prefetch(&f->routes_by, map_hash(r->id));
    map_prefetch(&f->gate.routes,
                 map_hash(gate_key(room, str_of(r->platform), str_of(r->key), STR_NULL)));
}

void facts_link_route(struct facts *f, struct route *r)
{
    r->bucket = make_bucket(f, r);
    join_key(r);
    list_append(&f->routes, &r->link);
    f->n_routes++;
    map_put(&f->routes_by, r->id, r);
    if (r->instance != NULL) {
        struct instance_facts *in = facts_make_instance(f, str_of(r->tenant), str_of(r->instance));
        r->place.to = &in->gate;
        list_append(&in->routes, &r->by_target);
    } else {
        struct tenant_facts *t = facts_make_tenant(f, str_of(r->tenant));
        r->place.all = &t->gate;
        list_append(&t->routes, &r->by_target);
    }
    follow_target(r);
}

void facts_unlink_route(struct facts *f, struct route *r)
{
    struct bucket *b = r->bucket;

    map_del(&f->routes_by, r->id);
    leave_key(r);
    list_remove(&r->link);
    list_remove(&r->by_target);
    list_remove(&r->place.link);
    f->n_routes--;
    if (list_is_empty(&b->of[ROUTE_OPERATOR].routes) &&
        list_is_empty(&b->of[ROUTE_PROVISION].routes)) {
        map_del(&f->gate.routes, b->key);
        free(b);
    }
    free(r);
}

void route_table_free(struct facts *f)
{
    list_each (&f->routes, it, nxt)
        free(list_entry(it, struct route, link));
    map_done_all(&f->gate.routes);
    map_done(&f->routes_by);
}

/* ---- queries ---- */

bool facts_has_route(const struct facts *f, struct str platform, struct str key)
{
    const struct bucket *b = facts_bucket(f, platform, key);

    return b != NULL && !list_is_empty(&b->gate.places);
}

struct str facts_route_key(const struct facts *f, const struct event *ev)
{
    const struct str keys[] = {ev->route_key, ev->former_key, ev->bot};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (!str_is_empty(keys[i]) && facts_has_route(f, ev->platform, keys[i]))
            return keys[i];
    return STR_NULL;
}

struct targets {
    const struct gate_instance *seen[GATE_CANDIDATES];
    size_t n;
    target_cb *cb;
    void *ctx;
};

static void tell(struct targets *t, const struct gate_instance *to)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->seen[i] == to)
            return;
    t->seen[t->n++] = to;
    t->cb(t->ctx, to->tenant, to->instance);
}

static void tell_place(struct targets *t, const struct gate_place *p)
{
    if (!p->open)
        return;
    if (p->to != NULL) {
        tell(t, p->to);
        return;
    }
    const struct list *head = &p->all->live;
    for (const struct list *it = head->next; it != head && t->n < GATE_CANDIDATES; it = it->next)
        tell(t, list_entry(it, const struct gate_instance, of_tenant));
}

void facts_each_target(const struct facts *f, struct str platform, struct str route_key,
                       target_cb *cb, void *ctx)
{
    const struct bucket *b = facts_bucket(f, platform, route_key);
    struct targets t = {.cb = cb, .ctx = ctx};

    if (b == NULL || list_is_empty(&b->gate.places))
        b = facts_bucket(f, platform, STR("*"));
    if (b == NULL)
        return;
    const struct list *head = &b->gate.places;
    for (const struct list *it = head->next; it != head && t.n < GATE_CANDIDATES; it = it->next)
        tell_place(&t, list_entry(it, const struct gate_place, link));
}

void facts_each_route_to(const struct facts *f, struct str tenant, struct str instance,
                         route_cb *cb, void *ctx)
{
    struct instance_facts *in = facts_find_instance(f, tenant, instance);

    if (in == NULL)
        return;
    list_each (&in->routes, it, nxt)
        cb(ctx, list_entry(it, struct route, by_target));
    list_each (&in->tenant->routes, at, after)
        cb(ctx, list_entry(at, struct route, by_target));
}
