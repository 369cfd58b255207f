/* grants_load.c - reading the grants at start, and letting go of them at the end. */
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "tenancy/grants_priv.h"

enum { LOOK_AHEAD = 8 };

struct loading {
    struct facts *f;
    struct json_parser *parser; /* borrowed */
    grant_record_fn *read;
    void *ctx;
    char damaged[120];
    bool bad;
};

static void on_record(void *ctx, struct str key, struct str value)
{
    struct loading *l = ctx;
    struct json doc;

    if (json_parse(l->parser, value, &doc) && l->read(l->f, key, doc, l->ctx))
        return;
    if (!l->bad)
        snprintf(l->damaged, sizeof l->damaged, "%.*s", STR_FMT(key));
    l->bad = true;
}

enum bh_err grant_load_ns(struct facts *f, struct json_parser *parser, const char *ns,
                          grant_record_fn *read, void *ctx, char *ret_why)
{
    struct loading l = {.f = f, .parser = parser, .read = read, .ctx = ctx};
    enum bh_err err = f->env.store->ops->load_records(f->env.store, ns, on_record, &l);

    if (err != BH_OK)
        snprintf(ret_why, 256, "the %s records cannot be read from the store", ns);
    else if (l.bad) {
        /* Going on without a restriction would let through what somebody asked to be kept out. */
        snprintf(ret_why, 256, "the %s record \"%s\" is damaged", ns, l.damaged);
        err = BH_REFUSED;
    }
    return err;
}

static struct instance_facts *who_of(struct facts *f, struct json doc)
{
    struct str tenant = json_str(doc, "tenant"), instance = json_str(doc, "instance");

    if (str_is_empty(tenant) || str_is_empty(instance) || tenant.n + instance.n + 1 > PAIR_MAX)
        return NULL;
    return facts_make_instance(f, tenant, instance);
}

static int64_t created_of(struct json doc)
{
    int64_t ms = 0;

    json_as_i64(json_get(doc, "created"), &ms);
    return ms;
}

static bool ids_of(struct json array, struct map *set)
{
    for (struct json_iter it = {0}; json_next(array, &it);) {
        if (!grant_id_ok(json_as_str(it.value)))
            return false;
        grant_set_add(set, json_as_str(it.value));
    }
    return true;
}

struct found { /* bindings are attached in order of age */
    struct found_binding {
        int64_t created_ms;
        struct binding *b;
        struct instance_facts *in;
    } * all;
    size_t n, cap;
    size_t n_authors; /* records come by author */
};

static bool read_binding(struct facts *f, struct str key, struct json doc, void *ctx)
{
    struct found *found = ctx;
    struct instance_facts *in = who_of(f, doc);
    struct str platform = json_str(doc, "platform"), user = json_str(doc, "user");

    (void)key;
    if (in == NULL || !facts_name_ok(platform) || !grant_id_ok(user))
        return false;
    if (found->n == found->cap) {
        found->cap = found->cap != 0 ? found->cap * 2 : 64;
        found->all = xrealloc(found->all, found->cap * sizeof *found->all);
    }
    struct binding *b = binding_new(platform, user, created_of(doc));
    found->n_authors += found->n == 0 || !str_eq(found->all[found->n - 1].b->key, b->key);
    found->all[found->n++] = (struct found_binding){b->created_ms, b, in};
    return true;
}

static int by_age(const void *a, const void *b)
{
    const struct found_binding *x = a, *y = b;

    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return str_cmp(x->in->key, y->in->key);
}

static bool read_scope(struct facts *f, struct str key, struct json doc, void *ctx)
{
    struct instance_facts *in = who_of(f, doc);
    struct grant_place at = {json_str(doc, "platform"), json_str(doc, "guild"),
                             json_str(doc, "channel")};

    (void)key;
    (void)ctx;
    if (in == NULL || !facts_name_ok(at.platform) || !grant_id_ok(at.guild) ||
        !grant_id_ok(at.channel))
        return false;
    scope_attach(f, in, scope_new(at, created_of(doc), grant_word_parse(json_str(doc, "by"))));
    return true;
}

static bool read_principal(struct facts *f, struct str key, struct json doc, void *ctx)
{
    struct instance_facts *in = who_of(f, doc);
    struct str platform = json_str(doc, "platform");
    enum gate_principal mode;

    (void)key;
    (void)ctx;
    if (in == NULL || !facts_name_ok(platform) ||
        !grant_principal_parse(json_str(doc, "mode"), &mode))
        return false;
    struct principal *p = principal_new(platform, mode);
    bool ok = ids_of(json_get(doc, "allow"), &p->a.allow);
    principal_attach(in, p);
    return ok;
}

static bool read_policy(struct facts *f, struct str key, struct json doc, void *ctx)
{
    struct instance_facts *in = who_of(f, doc);
    struct str platform = json_str(doc, "platform");

    (void)key;
    (void)ctx;
    if (in == NULL || !facts_name_ok(platform))
        return false;
    struct policy *p = policy_new(platform, json_as_bool(json_get(doc, "requireAddress"), true),
                                  json_as_bool(json_get(doc, "allowOtherBots"), false));
    bool ok = ids_of(json_get(doc, "freeResponseScopes"), &p->p.free_places);
    policy_attach(in, p);
    return ok;
}

static bool read_dm_default(struct facts *f, struct str key, struct json doc, void *ctx)
{
    struct instance_facts *in = who_of(f, doc);

    (void)key;
    (void)ctx;
    if (in == NULL)
        return false;
    struct binding *b = binding_find(f, in, json_str(doc, "platform"), json_str(doc, "user"));
    if (b != NULL)
        map_put(&f->gate.dm_defaults, b->key, &in->gate);
    return true;
}

static bool read_tenant(struct facts *f, struct str key, struct json doc, void *ctx)
{
    (void)ctx;
    tenant_set(f, key, json_as_bool(json_get(doc, "requireAddress"), true));
    return true;
}

static bool read_life(struct facts *f, struct str key, struct json doc, void *ctx)
{
    struct instance_facts *in = who_of(f, doc);
    int64_t life;

    (void)key;
    (void)ctx;
    if (in == NULL || !json_as_i64(json_get(doc, "life"), &life) || life <= 0 || life > UINT32_MAX)
        return false;
    in->gate.life = (uint32_t)life;
    return true;
}

enum bh_err grants_load(struct facts *f, struct json_parser *parser, char *ret_why)
{
    struct found found = {0};
    enum bh_err err = grant_load_ns(f, parser, NS_BINDING, read_binding, &found, ret_why);

    if (found.n > 0)
        qsort(found.all, found.n, sizeof *found.all, by_age);
    map_reserve(&f->gate.authors, found.n_authors);
    for (size_t i = 0; i < found.n; i++) {
        if (i + LOOK_AHEAD < found.n)
            map_prefetch(&f->gate.authors, map_hash(found.all[i + LOOK_AHEAD].b->key));
        binding_attach(f, found.all[i].in, found.all[i].b);
    }
    free(found.all);
    if (err == BH_OK)
        err = grant_load_ns(f, parser, NS_SCOPE, read_scope, NULL, ret_why);
    if (err == BH_OK)
        err = grant_load_ns(f, parser, NS_PRINCIPAL, read_principal, NULL, ret_why);
    if (err == BH_OK)
        err = grant_load_ns(f, parser, NS_POLICY, read_policy, NULL, ret_why);
    if (err == BH_OK)
        err = grant_load_ns(f, parser, NS_DM_DEFAULT, read_dm_default, NULL, ret_why);
    if (err == BH_OK)
        err = grant_load_ns(f, parser, NS_TENANT, read_tenant, NULL, ret_why);
    if (err == BH_OK)
        err = grant_load_ns(f, parser, NS_LIFE, read_life, NULL, ret_why);
    return err;
}

void grants_free(struct facts *f)
{
    void *v;

    for (size_t i = 0; map_next(&f->instances, &i, &v);) {
        struct instance_facts *in = v;
        list_each (&in->bindings, it, nxt)
            free(list_entry(it, struct binding, link));
        list_each (&in->scopes, it, nxt)
            free(list_entry(it, struct scope, link));
        policies_drop(in);
    }
    map_done(&f->gate.authors);
    map_done(&f->gate.scopes);
    map_done(&f->gate.dm_defaults);
}
