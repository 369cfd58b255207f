/* grants_show.c - writes all grants for operators, in pages.
 *
 * The number of records and of visited instances on a page is bounded, so writing a page never
 * blocks the loop for long.  The bindings of an instance may span several pages; its other records
 * are on the first of them. */
#include "tenancy/grants_priv.h"
#include <stdio.h>

enum { PAGE_RECORDS = 500, PAGE_INSTANCES = 4000 };

enum grants_kind { BINDINGS, SCOPES, PRINCIPALS, POLICIES, ALLOWANCES, DM_DEFAULTS, KINDS };
static const char *const kind_names[] = {"bindings", "scopes",     "principals",
                                         "policies", "allowances", "dmDefaults"};

struct grants_listing {
    const struct facts *f;
    struct buf text[KINDS];
    struct jw w[KINDS];
    size_t n; /* records on this page */
};

static void write_set(struct jw *w, const char *key, const struct map *set)
{
    void *v;

    jw_karr(w, key);
    for (size_t i = 0; map_next(set, &i, &v);)
        jw_str(w, str_of(v));
    jw_end_arr(w);
}

static struct jw *open_record(struct grants_listing *p, enum grants_kind kind,
                              const struct instance_facts *in)
{
    struct jw *w = &p->w[kind];

    p->n++;
    jw_obj(w);
    jw_kstr(w, "tenant", in->gate.tenant);
    jw_kstr(w, "instance", in->gate.instance);
    return w;
}

/* Writes bindings from number @skip on; true: all are written. */
static bool write_bindings(struct grants_listing *p, const struct instance_facts *in,
                           uint64_t *skip)
{
    uint64_t n = 0;

    const struct list *head = &in->gate.people;
    for (const struct list *it = head->next; it != head; it = it->next) {
        const struct binding *b = binding_of(it);
        struct str bots = str_of(b->gate.bots), bot;
        if (n++ < *skip)
            continue;
        if (p->n >= PAGE_RECORDS) {
            *skip = n - 1;
            return false;
        }
        struct jw *w = open_record(p, BINDINGS, in);
        jw_kstr(w, "platform", b->gate.platform);
        jw_kstr(w, "userId", b->gate.user);
        jw_karr(w, "bots");
        while (bots.n > 0 && str_split(&bots, '\x1f', &bot))
            jw_str(w, bot);
        jw_end_arr(w);
        jw_ki64(w, "createdAt", b->created_ms);
        jw_end_obj(w);
        if (map_get(&p->f->gate.dm_defaults, binding_key(b)) != &in->gate)
            continue;
        w = open_record(p, DM_DEFAULTS, in);
        jw_kstr(w, "platform", b->gate.platform);
        jw_kstr(w, "userId", b->gate.user);
        jw_end_obj(w);
    }
    *skip = 0;
    return true;
}

static void write_scopes(struct grants_listing *p, const struct instance_facts *in)
{
    for (const struct list *it = in->scopes.next; it != &in->scopes; it = it->next) {
        const struct scope *s = list_entry(it, struct scope, link);
        struct jw *w = open_record(p, SCOPES, in);
        jw_kstr(w, "platform", s->platform);
        jw_kstr(w, "guildId", s->guild);
        jw_kstr(w, "channelId", s->channel);
        jw_kstr(w, "by", str_of(grant_words[s->by]));
        jw_ki64(w, "createdAt", s->created_ms);
        jw_end_obj(w);
    }
}

static void write_principals(struct grants_listing *page, const struct instance_facts *in)
{
    void *v;

    for (size_t i = 0; map_next(&in->gate.principals, &i, &v);) {
        const struct rule *p = v;
        struct jw *w = open_record(page, PRINCIPALS, in);
        jw_kstr(w, "platform", str_of(p->platform));
        jw_kstr(w, "mode", str_of(principal_words[p->gate.mode]));
        write_set(w, "allow", &p->gate.ids);
        jw_end_obj(w);
    }
}

static void write_policies(struct grants_listing *page, const struct instance_facts *in)
{
    void *v;

    for (size_t i = 0; map_next(&in->gate.policies, &i, &v);) {
        const struct rule *p = v;
        struct jw *w = open_record(page, POLICIES, in);
        jw_kstr(w, "platform", str_of(p->platform));
        jw_kbool(w, "requireAddress", p->gate.require_address);
        jw_kbool(w, "allowOtherBots", p->gate.allow_other_bots);
        write_set(w, "freeResponseScopes", &p->gate.ids);
        jw_end_obj(w);
    }
}

static void write_allowance(struct grants_listing *page, const struct instance_facts *in)
{
    const struct gate_allowance *a = in->gate.allowance;
    char turns[32];

    if (a == NULL)
        return;
    struct jw *w = open_record(page, ALLOWANCES, in);
    snprintf(turns, sizeof turns, "%u/%s", a->turns, grant_period_word(a->period));
    jw_kstr(w, "turns", str_of(turns));
    jw_kstr(w, "per", a->per_chat ? STR("chat") : STR("person"));
    jw_kstr(w, "reply", str_of(a->reply));
    jw_end_obj(w);
}

static void write_tenants(const struct facts *f, const struct grant_who *who, struct jw *w)
{
    jw_karr(w, "tenants");
    for (const struct list *it = f->strict.next; it != &f->strict; it = it->next) {
        const struct tenant_facts *t = list_entry(it, struct tenant_facts, strict);
        if (!str_is_empty(who->tenant) && !str_eq(who->tenant, t->name))
            continue;
        jw_obj(w);
        jw_kstr(w, "tenant", t->name);
        jw_kbool(w, "requireAddress", true);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

/* False: this was the last page. */
static bool fill(struct grants_listing *p, const struct grant_who *who, struct grants_page *at)
{
    const struct facts *f = p->f;

    for (size_t looked = 0; at->instance < f->n_instances; looked++) {
        const struct instance_facts *in = f->by_number[at->instance];
        bool meant = (str_is_empty(who->tenant) || str_eq(who->tenant, in->gate.tenant)) &&
                     (str_is_empty(who->instance) || str_eq(who->instance, in->gate.instance));
        if (p->n >= PAGE_RECORDS || looked == PAGE_INSTANCES)
            return true;
        if (meant && at->binding == 0) {
            write_scopes(p, in);
            write_principals(p, in);
            write_policies(p, in);
            write_allowance(p, in);
        }
        if (meant && !write_bindings(p, in, &at->binding))
            return true;
        at->instance++;
    }
    return false;
}

bool grants_write(const struct facts *f, struct grant_who who, struct grants_page *at, struct jw *w)
{
    struct grants_listing p = {.f = f};
    bool first = at->instance == 0 && at->binding == 0;

    for (size_t k = 0; k < KINDS; k++) {
        p.w[k] = jw_begin(&p.text[k]);
        jw_arr(&p.w[k]);
    }
    bool more = fill(&p, &who, at);
    for (size_t k = 0; k < KINDS; k++) {
        jw_end_arr(&p.w[k]);
        jw_kraw(w, kind_names[k], buf_str(&p.text[k]));
        buf_done(&p.text[k]);
    }
    if (first)
        write_tenants(f, &who, w);
    return more;
}
