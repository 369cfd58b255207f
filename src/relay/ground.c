/* ground.c - design.  (ground.h has the contract.)
 *
 * Texts in one string, divided by 0x1f: few chats need more than one of them.  The key is left
 * out where it is the guild or the chat itself. */
#include "relay/ground.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/event.h"
#include "relay/chats.h"
#include "relay/heart.h"
#include "relay/instance.h"
#include "relay/judge.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

enum { TEXTS = 5, TEXT_MAX = 1024, BOTS = 4 };

struct ground {
    struct str key;    /* what a route may name the place by; empty: its guild, else its id */
    struct str former; /* the same, as it was called before */
    struct str person; /* who is linked to the instance and wrote there last; empty: nobody */
    struct str parent; /* the channel a thread hangs under */
    struct str bots;   /* others it came through before its bot, the last one first; by 0x1e */
};

static const char *const names[] = {"key", "former", "person", "parent", "bots"};

static void texts(struct ground *g, struct str *ret[TEXTS])
{
    ret[0] = &g->key;
    ret[1] = &g->former;
    ret[2] = &g->person;
    ret[3] = &g->parent;
    ret[4] = &g->bots;
}

static struct ground unpack(const char *packed)
{
    struct str rest = str_of(packed), *all[TEXTS];
    struct ground g = {0};

    texts(&g, all);
    for (int i = 0; i < TEXTS - 1; i++)
        str_split(&rest, '\x1f', all[i]);
    g.bots = rest;
    return g;
}

static struct str usable(struct str s)
{
    return s.n > TEXT_MAX || str_find(s, '\x1f') >= 0 || str_find(s, '\0') >= 0 ? STR_NULL : s;
}

static char *pack(struct ground *g)
{
    struct buf b = BUF_INIT;
    struct str *all[TEXTS];

    texts(g, all);
    for (int i = 0; i < TEXTS; i++) {
        if (i > 0)
            buf_add_c(&b, '\x1f');
        buf_add_str(&b, usable(*all[i]));
    }
    return buf_take(&b);
}

static bool has_bot(struct str bots, struct str bot)
{
    struct str one;

    while (bots.n > 0 && str_split(&bots, '\x1e', &one))
        if (str_eq(one, bot))
            return true;
    return false;
}

/* The bots besides @now: the one before it, then the others, BOTS at most. */
static void add_bots(struct buf *out, struct str now, struct str last, struct str bots)
{
    struct str one;
    int n = 0;

    if (!str_is_empty(last) && !str_eq(last, now)) {
        buf_add_str(out, last);
        n++;
    }
    while (bots.n > 0 && n < BOTS && str_split(&bots, '\x1e', &one)) {
        if (str_eq(one, now) || str_eq(one, last))
            continue;
        if (n++ > 0)
            buf_add_c(out, '\x1e');
        buf_add_str(out, one);
    }
}

bool ground_has_bot(const struct known_chat *c, struct str bot)
{
    return c->ground != NULL && has_bot(unpack(c->ground).bots, bot);
}

char *ground_of(const struct event *ev, bool owner, const char *bot, const char *before)
{
    struct ground g = {.former = ev->former_key, .parent = ev->parent_chat_id};
    struct buf bots = BUF_INIT;
    struct str key = ev->own_key.p != NULL ? ev->own_key : ev->route_key;

    if (!str_eq(key, str_is_empty(ev->scope_id) ? ev->chat_id : ev->scope_id))
        g.key = key;
    g.person = owner ? ev->user_id : before != NULL ? unpack(before).person : STR_NULL;
    add_bots(&bots, ev->bot, str_of(bot), before != NULL ? unpack(before).bots : STR_NULL);
    g.bots = buf_str(&bots);
    char *now = pack(&g);
    buf_done(&bots);
    if (before == NULL || strcmp(before, now) != 0)
        return now;
    free(now);
    return NULL;
}

void ground_write(struct jw *w, const char *ground)
{
    struct ground g = unpack(ground != NULL ? ground : "");
    struct str *all[TEXTS];

    if (ground == NULL)
        return;
    texts(&g, all);
    jw_key(w, "ground");
    jw_obj(w);
    for (int i = 0; i < TEXTS; i++)
        if (all[i]->n > 0)
            jw_kstr(w, names[i], *all[i]);
    jw_end_obj(w);
}

char *ground_read(struct json doc)
{
    struct json at = json_get(doc, "ground");
    struct ground g = {0};
    struct str *all[TEXTS];

    if (!json_is_object(at))
        return NULL;
    texts(&g, all);
    for (int i = 0; i < TEXTS; i++)
        *all[i] = json_str(at, names[i]);
    return pack(&g);
}

/* ---- the question ---- */

static bool has_person(const struct gate_instance *me, struct str platform)
{
    for (const struct gate_owner *o = me->owners; o != NULL; o = o->next)
        if (str_eq(o->platform, platform))
            return true;
    return false;
}

static bool by_person(const struct known_chat *c, const struct gate_instance *me,
                      const struct ground *g)
{
    struct facts *facts = c->inst->relay->env.facts;

    if (c->ground == NULL) /* of an older database, which does not say who it was */
        return has_person(me, c->platform);
    return g->person.n > 0 && grant_is_linked(facts, me, c->platform, g->person);
}

static bool by_scope(const struct known_chat *c, const struct gate_instance *me,
                     const struct ground *g)
{
    struct facts *facts = c->inst->relay->env.facts;
    struct str guild = *c->scope != '\0' ? str_of(c->scope) : c->id;
    struct str channel = c->id;

    if (!grant_holds(facts, me, (struct grant_place){c->platform, guild, channel})) {
        channel = g->parent;
        if (channel.n == 0 ||
            !grant_holds(facts, me, (struct grant_place){c->platform, guild, channel}))
            return false;
    }
    return judge_sees(c->inst->relay, me, c->platform, str_of(c->bot), guild, c->id);
}

static bool by_route(const struct known_chat *c, const struct ground *g)
{
    struct str own = *c->scope != '\0' ? str_of(c->scope) : c->id;
    struct event place = {.platform = c->platform,
                          .bot = str_of(c->bot),
                          .route_key = g->key.n > 0 ? g->key : own,
                          .former_key = g->former};

    return facts_owns_place(c->inst->relay->env.facts, &place, instance_tenant(c->inst),
                            instance_id(c->inst));
}

bool ground_holds(const struct known_chat *c)
{
    struct grant_who who = {instance_tenant(c->inst), instance_id(c->inst)};
    const struct gate_instance *me = grant_instance(c->inst->relay->env.facts, who);
    struct ground g = unpack(c->ground != NULL ? c->ground : "");

    return me != NULL && !me->gone &&
           (by_person(c, me, &g) || by_route(c, &g) || by_scope(c, me, &g));
}
