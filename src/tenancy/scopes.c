/* scopes.c - places that belong to an instance: claimed by itself, by somebody who may manage the
 * place, or given by an operator.
 *
 * A place's record is inserted, never replaced, unless a better word takes it: so of two claims one
 * fails whoever else runs on the same database. */
#include <stdlib.h>
#include "base/mem.h"
#include "tenancy/grants_priv.h"

static const char *const words[] = {
    [GRANT_CLAIMED] = "claim",
    [GRANT_MANAGED] = "manager",
    [GRANT_OPERATOR] = "operator",
};

const char *grant_word_name(enum grant_word by)
{
    return words[by];
}

enum grant_word grant_word_parse(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq(name, str_of(words[i])))
            return (enum grant_word)i;
    return GRANT_CLAIMED; /* of an older database */
}

struct scope *scope_new(struct grant_place at, int64_t created_ms, enum grant_word by)
{
    struct scope *s = xcalloc(1, sizeof *s + at.platform.n + at.guild.n + at.channel.n + 3);
    char *p = s->bytes;

    list_init(&s->link);
    s->created_ms = created_ms;
    s->by = by;
    s->place.firm = by == GRANT_OPERATOR;
    memcpy(p, at.platform.p, at.platform.n);
    s->platform = str_make(p, at.platform.n);
    p += at.platform.n;
    *p++ = '\x1f';
    memcpy(p, at.guild.p, at.guild.n);
    s->guild = str_make(p, at.guild.n);
    p += at.guild.n;
    *p++ = '\x1f';
    memcpy(p, at.channel.p, at.channel.n);
    s->channel = str_make(p, at.channel.n);
    s->key = str_make(s->bytes, (size_t)(p - s->bytes) + at.channel.n);
    return s;
}

static struct scope *scope_find(const struct facts *f, struct str platform, struct str guild,
                                struct str channel)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, guild, channel);

    return key.p != NULL ? map_get(&f->gate.scopes, key) : NULL;
}

void scope_attach(struct facts *f, struct instance_facts *in, struct scope *s)
{
    s->place.to = &in->gate;
    map_put(&f->gate.scopes, s->key, s);
    list_append(&in->scopes, &s->link);
    in->n_claimed += s->by != GRANT_OPERATOR;
    in->tenant->n_claimed += s->by != GRANT_OPERATOR;
}

void scope_drop(struct facts *f, struct scope *s)
{
    struct instance_facts *in = grant_instance_of(s->place.to);

    in->n_claimed -= s->by != GRANT_OPERATOR;
    in->tenant->n_claimed -= s->by != GRANT_OPERATOR;
    map_del(&f->gate.scopes, s->key);
    list_remove(&s->link);
    free(s);
}

#define SCOPE_TAKEN "this place belongs to another instance"

static bool may_claim(struct facts *f, struct change *c, const struct scope *s)
{
    const struct instance_facts *in = c->to;

    if (s->by == GRANT_OPERATOR)
        return true;
    if (facts_is_elsewhere(f, s->platform, s->guild, in->gate.tenant))
        return change_fail(c, BH_CONFLICT, "this place belongs to another tenant");
    if (in->n_claimed >= GRANT_SCOPES_MAX || in->tenant->n_claimed >= GRANT_TENANT_SCOPES_MAX)
        return change_fail(c, BH_BUSY,
                           "too many places are claimed already: release some, or ask the "
                           "operator");
    return true;
}

static void put_scope(struct change *c, const struct scope *s, enum store_kv_verb verb)
{
    struct change_item *item = change_put(c, verb, NS_SCOPE);
    struct jw w = jw_begin(&item->value);

    c->conflict = SCOPE_TAKEN;
    buf_add_str(&item->key, s->key);
    jw_obj(&w);
    jw_kstr(&w, "platform", s->platform);
    jw_kstr(&w, "guild", s->guild);
    jw_kstr(&w, "channel", s->channel);
    grant_put_who(&w, c->to);
    jw_kstr(&w, "by", str_of(grant_word_name(s->by)));
    jw_ki64(&w, "created", s->created_ms);
    jw_end_obj(&w);
}

static bool prepare_claim(struct facts *f, struct change *c)
{
    const struct scope *s = c->thing, *known = map_get(&f->gate.scopes, s->key);
    bool own = known != NULL && known->place.to == &c->to->gate;

    if (own && known->by >= s->by)
        return true; /* it has it already */
    if (known != NULL && known->by >= s->by)
        return change_fail(c, BH_CONFLICT, SCOPE_TAKEN);
    if (!own && !may_claim(f, c, s))
        return false;
    put_scope(c, s, known != NULL ? KV_PUT : KV_INSERT);
    return true;
}

static void apply_claim(struct facts *f, struct change *c)
{
    const struct scope *s = c->thing;
    struct scope *known = map_get(&f->gate.scopes, s->key);

    if (known != NULL)
        scope_drop(f, known); /* whoever had it by a lesser word */
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
    buf_add_str(&change_put(c, KV_DELETE, NS_SCOPE)->key, s->key);
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

    if (s == NULL)
        s = scope_find(f, at.platform, at.guild, STR("*"));
    return s != NULL && s->place.to == to &&
           (s->by == GRANT_OPERATOR || !facts_is_elsewhere(f, at.platform, at.guild, to->tenant));
}
