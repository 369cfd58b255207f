/* grants_show.c - everything that was granted, for operators to read. */
#include <stdlib.h>
#include "base/mem.h"
#include "tenancy/grants_priv.h"

static bool is_meant(const struct grant_who *who, const struct instance_facts *in)
{
    return (str_is_empty(who->tenant) || str_eq(who->tenant, in->gate.tenant)) &&
           (str_is_empty(who->instance) || str_eq(who->instance, in->gate.instance));
}

static void open_row(struct jw *w, const struct instance_facts *in)
{
    jw_obj(w);
    jw_kstr(w, "tenant", in->gate.tenant);
    jw_kstr(w, "instance", in->gate.instance);
}

static void write_set(struct jw *w, const char *key, const struct map *set)
{
    void *v;

    jw_key(w, key);
    jw_arr(w);
    for (size_t i = 0; map_next(set, &i, &v);)
        jw_str(w, str_of(v));
    jw_end_arr(w);
}

static void write_bindings(const struct facts *f, const struct instance_facts *in, struct jw *w)
{
    (void)f;
    for (const struct list *it = in->bindings.next; it != &in->bindings; it = it->next) {
        const struct binding *b = list_entry(it, struct binding, link);
        open_row(w, in);
        jw_kstr(w, "platform", b->owner.platform);
        jw_kstr(w, "userId", b->owner.user);
        jw_ki64(w, "createdAt", b->created_ms);
        jw_end_obj(w);
    }
}

static void write_scopes(const struct facts *f, const struct instance_facts *in, struct jw *w)
{
    (void)f;
    for (const struct list *it = in->scopes.next; it != &in->scopes; it = it->next) {
        const struct scope *s = list_entry(it, struct scope, link);
        open_row(w, in);
        jw_kstr(w, "platform", s->platform);
        jw_kstr(w, "guildId", s->guild);
        jw_kstr(w, "channelId", s->channel);
        jw_ki64(w, "createdAt", s->created_ms);
        jw_end_obj(w);
    }
}

static void write_principals(const struct facts *f, const struct instance_facts *in, struct jw *w)
{
    void *v;

    (void)f;
    for (size_t i = 0; map_next(&in->gate.principals, &i, &v);) {
        const struct principal *p = v;
        open_row(w, in);
        jw_kstr(w, "platform", str_of(p->platform));
        jw_kstr(w, "mode", str_of(grant_principal_word(p->a.mode)));
        write_set(w, "allow", &p->a.allow);
        jw_end_obj(w);
    }
}

static void write_policies(const struct facts *f, const struct instance_facts *in, struct jw *w)
{
    void *v;

    (void)f;
    for (size_t i = 0; map_next(&in->gate.policies, &i, &v);) {
        const struct policy *p = v;
        open_row(w, in);
        jw_kstr(w, "platform", str_of(p->platform));
        jw_kbool(w, "requireAddress", p->p.require_address);
        jw_kbool(w, "allowOtherBots", p->p.allow_other_bots);
        write_set(w, "freeResponseScopes", &p->p.free_places);
        jw_end_obj(w);
    }
}

static void write_dm_defaults(const struct facts *f, const struct instance_facts *in, struct jw *w)
{
    for (const struct list *it = in->bindings.next; it != &in->bindings; it = it->next) {
        const struct binding *b = list_entry(it, struct binding, link);
        if (map_get(&f->gate.dm_defaults, b->key) != &in->gate)
            continue;
        open_row(w, in);
        jw_kstr(w, "platform", b->owner.platform);
        jw_kstr(w, "userId", b->owner.user);
        jw_end_obj(w);
    }
}

static int by_key(const void *a, const void *b)
{
    const struct instance_facts *x = *(struct instance_facts *const *)a,
                                *y = *(struct instance_facts *const *)b;

    return str_cmp(x->key, y->key);
}

static void write_tenants(const struct facts *f, const struct grant_who *who, struct jw *w)
{
    void *v;

    jw_key(w, "tenants");
    jw_arr(w);
    for (size_t i = 0; map_next(&f->tenants, &i, &v);) {
        const struct tenant_facts *t = v;
        if (!t->require_address || (!str_is_empty(who->tenant) && !str_eq(who->tenant, t->name)))
            continue;
        jw_obj(w);
        jw_kstr(w, "tenant", t->name);
        jw_kbool(w, "requireAddress", true);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

void grants_write(const struct facts *f, struct grant_who who, struct jw *w)
{
    static const struct {
        const char *name;
        void (*write)(const struct facts *f, const struct instance_facts *in, struct jw *w);
    } kinds[] = {
        {"bindings", write_bindings},      {"scopes", write_scopes},
        {"principals", write_principals},  {"policies", write_policies},
        {"dmDefaults", write_dm_defaults},
    };
    struct instance_facts **all = xcalloc(map_count(&f->instances) + 1, sizeof *all);
    size_t n = 0;
    void *v;

    for (size_t i = 0; map_next(&f->instances, &i, &v);)
        if (is_meant(&who, v))
            all[n++] = v;
    qsort(all, n, sizeof *all, by_key);
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        jw_key(w, kinds[k].name);
        jw_arr(w);
        for (size_t i = 0; i < n; i++)
            kinds[k].write(f, all[i], w);
        jw_end_arr(w);
    }
    write_tenants(f, &who, w);
    free(all);
}
