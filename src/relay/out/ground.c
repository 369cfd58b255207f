/* ground.c - design.  (ground.h has the contract.)
 *
 * Texts in one string, divided by 0x1f: few chats need more than one of them.  The key is left
 * out where it is the guild or the chat itself. */
#include "relay/out/ground.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/event.h"
#include "relay/out/chats.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/in/judge.h"
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

static struct ground unpack(struct str packed)
{
    struct str rest = packed.p != NULL ? packed : STR(""), *all[TEXTS];
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

static void pack(struct ground *g, struct buf *out)
{
    struct str *all[TEXTS];

    texts(g, all);
    buf_reset(out);
    for (int i = 0; i < TEXTS; i++) {
        if (i > 0)
            buf_add_c(out, '\x1f');
        buf_add_str(out, usable(*all[i]));
    }
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
    return has_bot(unpack(name_text(c->ground)).bots, bot);
}

bool ground_of(const struct event *ev, bool owner, struct str bot, struct str before,
               struct buf *out)
{
    struct ground g = {.former = ev->former_key, .parent = ev->parent_chat_id};
    struct ground was = unpack(before);
    struct buf bots = BUF_INIT;
    struct str key = ev->own_key.p != NULL ? ev->own_key : ev->route_key;

    if (!str_eq(key, str_is_empty(ev->scope_id) ? ev->chat_id : ev->scope_id))
        g.key = key;
    g.person = owner ? ev->user_id : was.person;
    add_bots(&bots, ev->bot, bot, was.bots);
    g.bots = buf_str(&bots);
    pack(&g, out);
    buf_done(&bots);
    return before.p == NULL || !str_eq(before, buf_str(out));
}

void ground_write(struct jw *w, struct str ground)
{
    struct ground g = unpack(ground);
    struct str *all[TEXTS];

    if (ground.p == NULL)
        return;
    texts(&g, all);
    jw_key(w, "ground");
    jw_obj(w);
    for (int i = 0; i < TEXTS; i++)
        if (all[i]->n > 0)
            jw_kstr(w, names[i], *all[i]);
    jw_end_obj(w);
}

bool ground_read(struct json doc, struct buf *out)
{
    struct json at = json_get(doc, "ground");
    struct ground g = {0};
    struct str *all[TEXTS];

    if (!json_is_object(at))
        return false;
    texts(&g, all);
    for (int i = 0; i < TEXTS; i++)
        *all[i] = json_str(at, names[i]);
    pack(&g, out);
    return true;
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
        return has_person(me, chat_platform(c));
    return g->person.n > 0 && grant_is_linked(facts, me, chat_platform(c), g->person);
}

/* The guild, or the chat itself where it lies in none. */
static struct str guild_of(const struct known_chat *c, struct str id)
{
    return chat_scope(c).n != 0 ? chat_scope(c) : id;
}

static bool by_scope(const struct known_chat *c, const struct gate_instance *me,
                     const struct ground *g)
{
    struct facts *facts = c->inst->relay->env.facts;
    char scratch[CHAT_ID_CHARS];
    struct str id = chat_id(c, scratch), guild = guild_of(c, id), platform = chat_platform(c);

    if (!grant_holds(facts, me, (struct grant_place){platform, guild, id}) &&
        (g->parent.n == 0 ||
         !grant_holds(facts, me, (struct grant_place){platform, guild, g->parent})))
        return false;
    return judge_sees(c->inst->relay, me, platform, chat_bot(c), guild, id);
}

static bool by_route(const struct known_chat *c, const struct ground *g)
{
    char scratch[CHAT_ID_CHARS];
    struct str own = guild_of(c, chat_id(c, scratch));
    struct event place = {.platform = chat_platform(c),
                          .bot = chat_bot(c),
                          .route_key = g->key.n > 0 ? g->key : own,
                          .former_key = g->former};

    return facts_owns_place(c->inst->relay->env.facts, &place, instance_tenant(c->inst),
                            instance_id(c->inst));
}

bool ground_holds(const struct known_chat *c)
{
    struct grant_who who = {instance_tenant(c->inst), instance_id(c->inst)};
    const struct gate_instance *me = grant_instance(c->inst->relay->env.facts, who);
    struct ground g = unpack(name_text(c->ground));

    return me != NULL && !me->gone &&
           (by_person(c, me, &g) || by_route(c, &g) || by_scope(c, me, &g));
}
