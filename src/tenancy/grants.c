/* grants.c - design.  (grants.h has the contract.)
 *
 * Each record is one allocation that includes its key.  The instance owns it, and the gate's table
 * finds it.
 *
 * A scope's record is inserted, never replaced, except by a claim with more authority.  So of two
 * concurrent claims one fails, even with several processes on one database.  A principal or policy
 * replaces the previous one as a whole, so a gateway that declares it at every start repairs it. */
#include "tenancy/grants.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "tenancy/grants_priv.h"

bool grant_id_ok(struct str id)
{
    if (id.n == 0 || id.n > GRANT_ID_MAX || !utf8_valid(id))
        return false;
    for (size_t i = 0; i < id.n; i++)
        if ((unsigned char)id.p[i] < ' ' || id.p[i] == 0x7f)
            return false;
    return true;
}

/* ---- the records ---- */

const char *const grant_words[] = {
    [GRANT_CLAIMED] = "claim", [GRANT_MANAGED] = "manager", [GRANT_OPERATOR] = "operator", NULL};

static const struct record_field scope_fields[] = {
    NAME_FIELD(struct scope_record, platform, RECORD_KEY),
    ID_FIELD(struct scope_record, guild, RECORD_KEY),
    ID_FIELD(struct scope_record, channel, RECORD_KEY),
    NAME_FIELD(struct scope_record, tenant, 0),
    NAME_FIELD(struct scope_record, instance, 0),
    RECORD_FIELD(struct scope_record, by, "by", RECORD_NEEDED, .words = grant_words),
    RECORD_FIELD(struct scope_record, created_ms, "created", 0),
};
const struct record_form scope_form = RECORD_FORM("scope", struct scope_record, scope_fields);

const char *const principal_words[] = {
    [GATE_OWNER_ONLY] = "owner-only", [GATE_ALLOW_LIST] = "allow-list", [GATE_ANY] = "any", NULL};

static const struct record_field principal_fields[] = {
    NAME_FIELD(struct rule_record, tenant, RECORD_KEY),
    NAME_FIELD(struct rule_record, instance, RECORD_KEY),
    NAME_FIELD(struct rule_record, platform, RECORD_KEY),
    RECORD_FIELD(struct rule_record, mode, "mode", RECORD_NEEDED, .words = principal_words),
    RECORD_ARRAY(struct rule_record, ids, n_ids, "allow", &record_texts, GRANT_LIST_MAX),
};
const struct record_form principal_form =
    RECORD_FORM("principal", struct rule_record, principal_fields);

static const struct record_field policy_fields[] = {
    NAME_FIELD(struct rule_record, tenant, RECORD_KEY),
    NAME_FIELD(struct rule_record, instance, RECORD_KEY),
    NAME_FIELD(struct rule_record, platform, RECORD_KEY),
    RECORD_FIELD(struct rule_record, require_address, "requireAddress", 0),
    RECORD_FIELD(struct rule_record, allow_other_bots, "allowOtherBots", 0),
    RECORD_ARRAY(struct rule_record, ids, n_ids, "freeResponseScopes", &record_texts,
                 GRANT_LIST_MAX),
};
const struct record_form policy_form = RECORD_FORM("policy", struct rule_record, policy_fields);

static const char *const period_words[] = {
    [GATE_HOUR] = "hour", [GATE_DAY] = "day", [GATE_WEEK] = "week", [GATE_MONTH] = "month", NULL};

static const struct record_field allowance_fields[] = {
    NAME_FIELD(struct allowance_record, tenant, RECORD_KEY),
    NAME_FIELD(struct allowance_record, instance, RECORD_KEY),
    RECORD_FIELD(struct allowance_record, turns, "turns", RECORD_NEEDED, .max = GRANT_TURNS_MAX),
    RECORD_FIELD(struct allowance_record, period, "period", RECORD_NEEDED, .words = period_words),
    RECORD_FIELD(struct allowance_record, per_chat, "perChat", 0),
    RECORD_FIELD(struct allowance_record, reply, "reply", 0, .max = GRANT_REPLY_MAX),
};
const struct record_form allowance_form =
    RECORD_FORM("allowance", struct allowance_record, allowance_fields);

static const struct record_field tenant_fields[] = {
    NAME_FIELD(struct tenant_record, tenant, RECORD_KEY),
    RECORD_FIELD(struct tenant_record, require_address, "requireAddress", 0),
};
const struct record_form tenant_form = RECORD_FORM("tenant", struct tenant_record, tenant_fields);

/* ---- shared by all changes ---- */

bool grant_is_alive(const struct instance_facts *in)
{
    return in != NULL && !list_is_empty(&in->gateways);
}

struct instance_facts *grant_target(struct facts *f, struct change *c, struct grant_who who)
{
    struct instance_facts *in = facts_find_instance(f, who.tenant, who.instance);

    if (grant_is_alive(in))
        return c->to = in;
    change_fail(c, BH_NOT_FOUND, "there is no instance \"%.*s\" of tenant \"%.*s\"",
                STR_FMT(who.instance), STR_FMT(who.tenant));
    return NULL;
}

void grant_submit(struct change *c, struct instance_facts *to)
{
    char subject[PAIR_MAX + 8] = "";

    if (to != NULL) /* the leading separator keeps it apart from gateway ids */
        snprintf(subject, sizeof subject, "\x1f%.*s", STR_FMT(to->key));
    change_submit(c, to != NULL ? subject : NULL);
}

bool grant_id_bad(struct change *c, const char *what, struct str id)
{
    if (grant_id_ok(id))
        return false;
    change_fail(c, BH_MALFORMED, "%s must be 1 to %d bytes of text without control characters",
                what, GRANT_ID_MAX);
    return true;
}

const struct gate_instance *grant_instance(const struct facts *f, struct grant_who who)
{
    const struct instance_facts *in = facts_find_instance(f, who.tenant, who.instance);

    return in != NULL ? &in->gate : NULL;
}

/* ---- scopes: places that belong to an instance ---- */

static struct scope *scope_new(struct grant_place at, int64_t created_ms, enum grant_word by)
{
    struct scope *s = xcalloc(1, sizeof *s + at.platform.n + at.guild.n + at.channel.n + 3);
    char *p = s->bytes;

    s->created_ms = created_ms;
    s->by = by;
    s->place.firm = by == GRANT_OPERATOR;
    s->platform = str_pack(&p, at.platform);
    *p++ = '\x1f';
    s->guild = str_pack(&p, at.guild);
    *p++ = '\x1f';
    s->channel = str_pack(&p, at.channel);
    s->key = str_make(s->bytes, (size_t)(p - s->bytes));
    return s;
}

static struct scope *scope_find(const struct facts *f, struct str platform, struct str guild,
                                struct str channel)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, guild, channel);

    return key.p != NULL ? map_get(&f->gate.scopes, key) : NULL;
}

static void scope_attach(struct facts *f, struct instance_facts *in, struct scope *s)
{
    s->place.to = &in->gate;
    map_put(&f->gate.scopes, s->key, s);
    list_append(&in->scopes, &s->link);
    in->n_claimed += s->by != GRANT_OPERATOR;
    in->tenant->n_claimed += s->by != GRANT_OPERATOR;
}

void scope_drop(struct facts *f, struct scope *s)
{
    struct instance_facts *in = container_of(s->place.to, struct instance_facts, gate);

    in->n_claimed -= s->by != GRANT_OPERATOR;
    in->tenant->n_claimed -= s->by != GRANT_OPERATOR;
    map_del(&f->gate.scopes, s->key);
    list_remove(&s->link);
    free(s);
}

#define SCOPE_TAKEN "this place belongs to another instance"

/* The operator granted the whole guild to another tenant, and routed it to @tenant nowhere.  The
 * gate judges events by the same rule. */
static bool is_granted_away(const struct facts *f, struct str platform, struct str guild,
                            struct str tenant)
{
    const struct scope *s = scope_find(f, platform, guild, STR("*"));

    return s != NULL && s->by == GRANT_OPERATOR && !str_eq(s->place.to->tenant, tenant) &&
           !facts_is_routed_to(f, platform, guild, tenant);
}

static bool may_claim(struct facts *f, struct change *c, const struct scope *s)
{
    const struct instance_facts *in = c->to;

    if (s->by == GRANT_OPERATOR)
        return true;
    if (facts_is_routed_away(f, s->platform, s->guild, in->gate.tenant) ||
        is_granted_away(f, s->platform, s->guild, in->gate.tenant))
        return change_fail(c, BH_CONFLICT, "this place belongs to another tenant");
    if (in->n_claimed >= GRANT_SCOPES_MAX || in->tenant->n_claimed >= GRANT_TENANT_SCOPES_MAX)
        return change_fail(c, BH_BUSY,
                           "too many places are claimed already: release some, or ask the "
                           "operator");
    return true;
}

void scope_put(struct change *c, enum store_kv_verb verb, const struct instance_facts *in,
               const struct scope *s)
{
    struct scope_record r = {s->platform,       s->guild, s->channel,   in->gate.tenant,
                             in->gate.instance, s->by,    s->created_ms};

    change_put(c, verb, &scope_form, &r);
}

static bool prepare_claim(struct facts *f, struct change *c)
{
    const struct scope *s = c->thing, *known = map_get(&f->gate.scopes, s->key);
    bool own = known != NULL && known->place.to == &c->to->gate;

    if (own && known->by >= s->by)
        return true; /* the instance has the scope already */
    if (known != NULL && known->by >= s->by)
        return change_fail(c, BH_CONFLICT, SCOPE_TAKEN);
    if (!own && !may_claim(f, c, s))
        return false;
    c->conflict = SCOPE_TAKEN;
    scope_put(c, known != NULL ? KV_PUT : KV_INSERT, c->to, s);
    return true;
}

static void apply_claim(struct facts *f, struct change *c)
{
    const struct scope *s = c->thing;
    struct scope *known = map_get(&f->gate.scopes, s->key);

    if (known != NULL)
        scope_drop(f, known); /* the weaker claim */
    scope_attach(f, c->to, c->thing);
    c->thing = NULL;
    change_announce(f, "grant", NULL);
}

static void scope_change(struct change *c, struct grant_who who, struct grant_place at,
                         enum grant_word by)
{
    if (!change_name_bad(c, "platform", at.platform, true) &&
        !grant_id_bad(c, "the guild", at.guild) && !grant_id_bad(c, "the channel", at.channel) &&
        grant_target(c->facts, c, who) != NULL) {
        c->thing = scope_new(at, clock_wall_ms(c->facts->env.clock), by);
        c->thing_free = free;
    }
    grant_submit(c, c->to);
}

void grant_scope_claim(struct facts *f, struct grant_who who, struct grant_place at,
                       enum grant_word by, facts_done_cb *done, void *ctx)
{
    scope_change(change_new(f, prepare_claim, apply_claim, done, ctx), who, at, by);
}

static bool prepare_release(struct facts *f, struct change *c)
{
    const struct scope *s = c->thing, *known = map_get(&f->gate.scopes, s->key);

    if (known == NULL || known->place.to != &c->to->gate)
        return change_fail(c, BH_NOT_FOUND, "this place does not belong to the instance");
    scope_put(c, KV_DELETE, c->to, s);
    return true;
}

static void apply_release(struct facts *f, struct change *c)
{
    const struct scope *like = c->thing;
    struct scope *known = map_get(&f->gate.scopes, like->key);

    if (known != NULL)
        scope_drop(f, known);
    change_announce(f, "grant", NULL);
}

void grant_scope_release(struct facts *f, struct grant_who who, struct grant_place at,
                         facts_done_cb *done, void *ctx)
{
    scope_change(change_new(f, prepare_release, apply_release, done, ctx), who, at, GRANT_CLAIMED);
}

bool grant_holds(const struct facts *f, const struct gate_instance *to, struct grant_place at)
{
    const struct scope *s = scope_find(f, at.platform, at.guild, at.channel);

    if (s == NULL ||
        (s->by != GRANT_OPERATOR && is_granted_away(f, at.platform, at.guild, s->place.to->tenant)))
        s = scope_find(f, at.platform, at.guild, STR("*"));
    return s != NULL && s->place.to == to &&
           (s->by == GRANT_OPERATOR || !facts_is_routed_away(f, at.platform, at.guild, to->tenant));
}

bool grant_principal_parse(struct str word, enum gate_principal *ret_mode)
{
    for (size_t i = 0; principal_words[i] != NULL; i++)
        if (str_eq(word, str_of(principal_words[i]))) {
            *ret_mode = (enum gate_principal)i;
            return true;
        }
    return false;
}

/* ---- principals and policies ---- */

/* The rule of a record.  The map's values are its keys. */
static struct rule *rule_new(const struct rule_record *r)
{
    struct rule *p = xcalloc(1, sizeof *p + r->platform.n + 1);

    p->gate = (struct gate_rule){.mode = r->mode,
                                 .require_address = r->require_address,
                                 .allow_other_bots = r->allow_other_bots};
    memcpy(p->platform, r->platform.p, r->platform.n);
    for (size_t i = 0; i < r->n_ids; i++) {
        char *id = map_get(&p->gate.ids, r->ids[i]) == NULL ? str_dup(r->ids[i]) : NULL;
        if (id != NULL)
            map_put(&p->gate.ids, str_make(id, r->ids[i].n), id);
    }
    return p;
}

static void rule_free(void *thing)
{
    struct rule *p = thing;

    if (p != NULL)
        map_done_all(&p->gate.ids);
    free(p);
}

static void apply_principal(struct facts *f, struct change *c)
{
    struct rule *p = c->thing;

    rule_free(map_put(&c->to->gate.principals, str_of(p->platform), p));
    c->thing = NULL;
    change_announce(f, "grant", NULL);
}

static void apply_policy(struct facts *f, struct change *c)
{
    struct rule *p = c->thing;

    rule_free(map_put(&c->to->gate.policies, str_of(p->platform), p));
    c->thing = NULL;
    change_announce(f, "grant", NULL);
}

static bool prepare_ready(struct facts *f, struct change *c)
{
    return c->err == BH_OK; /* the items were added before change_submit() */
}

static bool rule_fits(struct change *c, const struct map *rules)
{
    const struct rule *p = c->thing;

    return map_count(rules) < GRANT_RULES_MAX || map_get(rules, str_of(p->platform)) != NULL ||
           change_fail(c, BH_BUSY, "at most %d platforms of an instance have one", GRANT_RULES_MAX);
}

static bool prepare_principal(struct facts *f, struct change *c)
{
    return rule_fits(c, &c->to->gate.principals);
}

static bool prepare_policy(struct facts *f, struct change *c)
{
    return rule_fits(c, &c->to->gate.policies);
}

/* Replaces a rule of the instance; @what names its list of ids. */
static void rule_change(struct change *c, struct grant_who who, const struct record_form *form,
                        const struct rule_record *r, const char *what)
{
    bool ok = !change_name_bad(c, "platform", r->platform, true);

    if (ok && r->n_ids > GRANT_LIST_MAX)
        ok = change_fail(c, BH_MALFORMED, "%s may hold %d ids at most", what, GRANT_LIST_MAX);
    for (size_t i = 0; ok && i < r->n_ids; i++)
        ok = !grant_id_bad(c, what, r->ids[i]);
    if (ok && grant_target(c->facts, c, who) != NULL) {
        c->thing = rule_new(r);
        c->thing_free = rule_free;
        change_put(c, KV_PUT, form, r);
    }
    grant_submit(c, c->to);
}

void grant_principal(struct facts *f, struct grant_who who, struct str platform,
                     enum gate_principal mode, const struct str *allow, size_t n_allow,
                     facts_done_cb *done, void *ctx)
{
    rule_change(change_new(f, prepare_principal, apply_principal, done, ctx), who, &principal_form,
                &(struct rule_record){.tenant = who.tenant,
                                      .instance = who.instance,
                                      .platform = str_is_empty(platform) ? STR("*") : platform,
                                      .mode = mode,
                                      .ids = (struct str *)allow,
                                      .n_ids = n_allow},
                "the allow list");
}

void grant_policy(struct facts *f, struct grant_who who, const struct grant_policy *p,
                  facts_done_cb *done, void *ctx)
{
    rule_change(change_new(f, prepare_policy, apply_policy, done, ctx), who, &policy_form,
                &(struct rule_record){.tenant = who.tenant,
                                      .instance = who.instance,
                                      .platform = p->platform,
                                      .require_address = p->require_address,
                                      .allow_other_bots = p->allow_other_bots,
                                      .ids = (struct str *)p->free_places,
                                      .n_ids = p->n_free_places},
                "freeResponseScopes");
}

/* ---- allowances ---- */

const char *grant_period_word(enum gate_period p)
{
    return period_words[p];
}

bool grant_turns_parse(struct str text, uint32_t *ret_turns, enum gate_period *ret_period)
{
    struct str number;
    uint64_t turns;

    if (!str_split(&text, '/', &number) || !str_to_u64(number, &turns) || turns == 0 ||
        turns > GRANT_TURNS_MAX)
        return false;
    for (int p = 0; period_words[p] != NULL; p++)
        if (str_eq(text, str_of(period_words[p]))) {
            *ret_turns = (uint32_t)turns;
            *ret_period = (enum gate_period)p;
            return true;
        }
    return false;
}

static struct gate_allowance *allowance_new(const struct allowance_record *r)
{
    struct gate_allowance *a = xcalloc(1, sizeof *a);

    *a = (struct gate_allowance){.turns = r->turns, .period = r->period, .per_chat = r->per_chat};
    a->reply = r->reply.n > 0 ? str_dup(r->reply) : NULL;
    return a;
}

static void allowance_free(void *thing)
{
    struct gate_allowance *a = thing;

    if (a != NULL)
        free(a->reply);
    free(a);
}

static void apply_allowance(struct facts *f, struct change *c)
{
    allowance_free(c->to->gate.allowance);
    c->to->gate.allowance = c->thing;
    c->thing = NULL;
    change_announce(f, "grant", NULL);
}

void grant_allowance(struct facts *f, struct grant_who who, const struct gate_allowance *a,
                     facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_ready, apply_allowance, done, ctx);
    struct allowance_record r = {.tenant = who.tenant, .instance = who.instance};

    if (a != NULL)
        r = (struct allowance_record){who.tenant, who.instance, str_of(a->reply),
                                      a->turns,   a->period,    a->per_chat};
    if (r.reply.n > GRANT_REPLY_MAX || !utf8_valid(r.reply))
        change_fail(c, BH_MALFORMED, "the reply must be text of at most %d bytes", GRANT_REPLY_MAX);
    else if (grant_target(f, c, who) != NULL) {
        c->thing = a != NULL ? allowance_new(&r) : NULL;
        c->thing_free = allowance_free;
        change_put(c, a != NULL ? KV_PUT : KV_DELETE, &allowance_form, &r);
    }
    grant_submit(c, c->to);
}

static void tenant_set(struct facts *f, struct str name, bool require_address)
{
    struct tenant_facts *t = facts_make_tenant(f, name);

    list_remove(&t->strict);
    if (require_address)
        list_append(&f->strict, &t->strict);
    list_each (&t->instances, it, nxt)
        list_entry(it, struct instance_facts, link)->gate.default_require_address = require_address;
}

static void apply_tenant(struct facts *f, struct change *c)
{
    tenant_set(f, str_of(c->id), c->items[0].verb == KV_PUT);
    change_announce(f, "grant", NULL);
}

void grant_tenant_default(struct facts *f, struct str tenant, bool require_address,
                          facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_ready, apply_tenant, done, ctx);

    if (!change_name_bad(c, "tenant", tenant, true)) {
        struct tenant_record r = {tenant, true};
        c->id = str_dup(tenant);
        change_put(c, require_address ? KV_PUT : KV_DELETE, &tenant_form, &r);
    }
    change_submit(c, NULL);
}

void policies_drop(struct instance_facts *in)
{
    void *v;

    for (size_t i = 0; map_next(&in->gate.principals, &i, &v);)
        rule_free(v);
    for (size_t i = 0; map_next(&in->gate.policies, &i, &v);)
        rule_free(v);
    map_done(&in->gate.principals);
    map_done(&in->gate.policies);
    allowance_free(in->gate.allowance);
    in->gate.allowance = NULL;
}

/* ---- start and end ---- */

static bool on_scope(void *ctx, struct str key, void *thing)
{
    struct facts *f = ctx;
    const struct scope_record *r = thing;
    struct grant_place at = {r->platform, r->guild, r->channel};

    if (!facts_name_ok(at.platform) || !grant_id_ok(at.guild) || !grant_id_ok(at.channel))
        return false;
    scope_attach(f, facts_make_instance(f, r->tenant, r->instance),
                 scope_new(at, r->created_ms, r->by));
    return true;
}

/* A loaded rule; frees the ids of its record.  False: a name in it is invalid. */
static bool load_rule(struct map *rules, const struct rule_record *r)
{
    struct rule *p = rule_new(r);
    bool ok = facts_name_ok(r->platform);

    for (size_t i = 0; i < r->n_ids && ok; i++)
        ok = grant_id_ok(r->ids[i]);
    free(r->ids);
    rule_free(map_put(rules, str_of(p->platform), p));
    return ok;
}

static bool on_principal(void *ctx, struct str key, void *thing)
{
    const struct rule_record *r = thing;

    return load_rule(&facts_make_instance(ctx, r->tenant, r->instance)->gate.principals, r);
}

static bool on_policy(void *ctx, struct str key, void *thing)
{
    const struct rule_record *r = thing;

    return load_rule(&facts_make_instance(ctx, r->tenant, r->instance)->gate.policies, r);
}

static bool on_allowance(void *ctx, struct str key, void *thing)
{
    const struct allowance_record *r = thing;

    facts_make_instance(ctx, r->tenant, r->instance)->gate.allowance = allowance_new(r);
    return true;
}

static bool on_tenant(void *ctx, struct str key, void *thing)
{
    const struct tenant_record *r = thing;

    tenant_set(ctx, r->tenant, r->require_address);
    return true;
}

enum bh_err grants_load(struct facts *f, struct record_reader *reader, char *ret_why)
{
    static const struct {
        const struct record_form *form;
        record_cb *each;
    } all[] = {{&scope_form, on_scope},   {&principal_form, on_principal},
               {&policy_form, on_policy}, {&allowance_form, on_allowance},
               {&tenant_form, on_tenant}, {&life_form, grant_life_load}};
    enum bh_err err = BH_OK;

    for (size_t i = 0; i < ARRAY_LEN(all) && err == BH_OK; i++)
        err = record_load(f->env.store, all[i].form, reader, STR_NULL, all[i].each, f, ret_why);
    return err;
}

void grants_free(struct facts *f)
{
    void *v;

    for (size_t i = 0; map_next(&f->instances, &i, &v);) {
        struct instance_facts *in = v;
        list_each (&in->scopes, it, nxt)
            free(list_entry(it, struct scope, link));
        policies_drop(in);
    }
    map_done(&f->gate.scopes);
}
