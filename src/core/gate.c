/* gate.c - design.  (gate.h has the rules.)
 *
 * Candidates are gathered first (the author's own instances, then whoever was granted the place,
 * then the operator's routes), each once.  Then each is judged by the same short chain: authorized,
 * visible, relevant; the first "no" is the reason.  Last, ties among several instances of one
 * author are broken.  Nothing here adds a recipient after the gathering, which is why a restriction
 * can only narrow. */
#include "core/gate.h"
#include <assert.h>
#include "base/mem.h"

enum claim { CLAIM_LINK, CLAIM_CHANNEL, CLAIM_GUILD, CLAIM_ROUTE };

struct candidate {
    const struct gate_instance *to;
    enum claim claim;
    bool linked; /* the author is linked to it, whatever else it claims */
};

struct gathering {
    struct candidate c[GATE_CANDIDATES];
    size_t n;
    bool author_is_linked;
    bool channel_taken; /* somebody owns this very channel */
};

struct str gate_key(char room[GATE_KEY_MAX], struct str a, struct str b, struct str c)
{
    const struct str parts[] = {a, b, c};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        if (parts[i].p == NULL)
            continue;
        if (n + parts[i].n + 1 > GATE_KEY_MAX || memchr(parts[i].p, 0x1f, parts[i].n) != NULL)
            return STR_NULL;
        if (n > 0)
            room[n++] = 0x1f;
        memcpy(room + n, parts[i].p, parts[i].n);
        n += parts[i].n;
    }
    return str_make(room, n);
}

static void *find(const struct map *m, struct str a, struct str b, struct str c)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, a, b, c);
    return key.p != NULL ? map_get(m, key) : NULL;
}

static struct candidate *candidate_of(struct gathering *g, const struct gate_instance *to)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->c[i].to == to)
            return &g->c[i];
    return NULL;
}

/* A stronger claim of the same instance replaces a weaker one; being linked is remembered beside
 * it. */
static void claim(struct gathering *g, const struct gate_instance *to, enum claim what)
{
    struct candidate *c = candidate_of(g, to);
    if (c == NULL) {
        if (g->n == GATE_CANDIDATES)
            return;
        c = &g->c[g->n++];
        *c = (struct candidate){.to = to, .claim = what};
    }
    if (what == CLAIM_LINK)
        c->linked = true;
    else if (c->claim == CLAIM_LINK || what < c->claim)
        c->claim = what;
}

static void gather_author(const struct gate_facts *f, const struct event *ev, struct gathering *g)
{
    if (str_is_empty(ev->user_id) || ev->author_is_bot)
        return; /* bots are nobody's owner */
    for (const struct gate_link *l = find(&f->authors, ev->platform, ev->user_id, STR_NULL);
         l != NULL; l = l->next) {
        claim(g, l->to, CLAIM_LINK);
        g->author_is_linked = true;
    }
}

/* A thread belongs to the place it hangs under, unless it was granted by itself. */
static const struct gate_place *channel_owner(const struct gate_facts *f, const struct event *ev)
{
    const struct gate_place *p = find(&f->scopes, ev->platform, ev->scope_id, ev->chat_id);
    if (p == NULL && !str_is_empty(ev->parent_chat_id))
        p = find(&f->scopes, ev->platform, ev->scope_id, ev->parent_chat_id);
    return p;
}

static void gather_scopes(const struct gate_facts *f, const struct event *ev, struct gathering *g)
{
    if (str_is_empty(ev->scope_id))
        return;
    const struct gate_place *p = channel_owner(f, ev);
    if (p != NULL) {
        claim(g, p->to, CLAIM_CHANNEL);
        g->channel_taken = true;
    }
    p = find(&f->scopes, ev->platform, ev->scope_id, STR("*"));
    if (p != NULL)
        claim(g, p->to, CLAIM_GUILD);
}

static void gather_routes(const struct gate_facts *f, const struct event *ev, struct gathering *g)
{
    const struct gate_place *p = NULL;
    if (!str_is_empty(ev->route_key))
        p = find(&f->routes, ev->platform, ev->route_key, STR_NULL);
    if (p == NULL)
        p = find(&f->routes, ev->platform, STR("*"), STR_NULL);
    for (; p != NULL; p = p->next)
        claim(g, p->to, CLAIM_ROUTE);
}

static const struct gate_admission *admission_of(const struct gate_instance *i, struct str platform)
{
    const struct gate_admission *a = map_get(&i->principals, platform);
    return a != NULL ? a : map_get(&i->principals, STR("*"));
}

/* The first layer.  An operator's route admits everybody unless the instance itself says otherwise;
 * a claimed scope admits nobody but the owner until it is opened. */
static enum gate_reason authorize(const struct gathering *g, const struct candidate *c,
                                  const struct event *ev)
{
    if (c->linked)
        return GATE_YES_OWNER;
    if (g->author_is_linked)
        return GATE_NO_AUTHOR_FIRST;
    if (c->claim == CLAIM_GUILD && g->channel_taken)
        return GATE_NO_CHANNEL_OWNER;
    const struct gate_admission *a = admission_of(c->to, ev->platform);
    enum gate_principal mode = a != NULL                 ? a->mode
                               : c->claim == CLAIM_ROUTE ? GATE_ANY
                                                         : GATE_OWNER_ONLY;
    if (mode == GATE_OWNER_ONLY)
        return GATE_NO_OWNER_ONLY;
    if (mode == GATE_ALLOW_LIST &&
        (str_is_empty(ev->user_id) || map_get(&a->allow, ev->user_id) == NULL))
        return GATE_NO_NOT_LISTED;
    return c->claim == CLAIM_ROUTE ? GATE_YES_ROUTE : GATE_YES_SCOPE;
}

static enum gate_reason look(const struct gate_world *w, const struct candidate *c,
                             const struct event *ev, enum gate_reason so_far)
{
    bool unknown = true;
    if (so_far != GATE_YES_SCOPE || w->sees == NULL)
        return so_far;
    for (const struct gate_owner *o = c->to->owners; o != NULL; o = o->next) {
        if (!str_eq(str_of(o->platform), ev->platform))
            continue;
        enum gate_sight sight = w->sees(w->ctx, ev, str_of(o->user));
        if (sight == GATE_SEEN)
            return so_far;
        unknown &= sight == GATE_SIGHT_UNKNOWN;
    }
    return unknown ? GATE_NO_SIGHT_UNKNOWN : GATE_NO_UNSEEN;
}

static bool is_free_place(const struct gate_policy *p, const struct event *ev)
{
    return map_get(&p->free_places, ev->chat_id) != NULL ||
           (!str_is_empty(ev->parent_chat_id) &&
            map_get(&p->free_places, ev->parent_chat_id) != NULL);
}

static enum gate_reason weigh(const struct gate_world *w, const struct candidate *c,
                              const struct event *ev, enum gate_reason so_far)
{
    if (so_far == GATE_YES_OWNER)
        return so_far;
    const struct gate_policy *p = map_get(&c->to->policies, ev->platform);
    if (ev->author_is_bot && (p == NULL || !p->allow_other_bots))
        return GATE_NO_OTHER_BOT;
    if (ev->author_is_bot && w->bot_streak > GATE_BOT_STREAK)
        return GATE_NO_BOT_LOOP;
    bool direct = str_eq(ev->chat_type, STR("dm"));
    bool must =
        p != NULL ? p->require_address && !is_free_place(p, ev) : c->to->default_require_address;
    if (must && !direct && !ev->mentions_bot && !ev->replies_to_bot)
        return GATE_NO_NOT_ADDRESSED;
    return so_far;
}

/* Which of several instances of one author takes it: the one granted this place, else the author's
 * choice, else the oldest link (they were gathered in that order). */
static const struct gate_instance *winner(const struct gate_facts *f, const struct event *ev,
                                          const struct gathering *g)
{
    const struct gate_instance *best = NULL; /* the oldest, until the chosen one turns up */
    const struct gate_instance *chosen = find(&f->dm_defaults, ev->platform, ev->user_id, STR_NULL);
    bool direct = str_eq(ev->chat_type, STR("dm"));
    for (size_t i = 0; i < g->n; i++) {
        const struct candidate *c = &g->c[i];
        if (!c->linked)
            continue;
        if (!direct &&
            (c->claim == CLAIM_CHANNEL || (c->claim == CLAIM_GUILD && !g->channel_taken)))
            return c->to;
        if (best == NULL || c->to == chosen)
            best = c->to;
    }
    return best;
}

size_t gate_decide(const struct gate_facts *f, const struct gate_world *w, const struct event *ev,
                   struct gate_verdict *out)
{
    struct gathering g = {.n = 0};
    gather_author(f, ev, &g);
    gather_scopes(f, ev, &g);
    gather_routes(f, ev, &g);
    const struct gate_instance *own = g.author_is_linked ? winner(f, ev, &g) : NULL;
    for (size_t i = 0; i < g.n; i++) {
        const struct candidate *c = &g.c[i];
        enum gate_reason r = authorize(&g, c, ev);
        if (gate_is_yes(r))
            r = look(w, c, ev, r);
        if (gate_is_yes(r))
            r = weigh(w, c, ev, r);
        if (r == GATE_YES_OWNER && c->to != own)
            r = GATE_NO_TIE;
        out[i] = (struct gate_verdict){.to = c->to, .reason = r};
    }
    return g.n;
}

static const struct {
    const char *word, *sentence;
} reasons[] = {
    [GATE_YES_OWNER] = {"owner", "the author is linked to this instance"},
    [GATE_YES_SCOPE] = {"scope", "the instance was granted this place and admits the author"},
    [GATE_YES_ROUTE] = {"route", "an operator's route sends this place to the instance"},
    [GATE_NO_AUTHOR_FIRST] = {"author_first", "the author is linked to an instance of their own"},
    [GATE_NO_TIE] = {"tie", "another instance of the same author takes it (see dm-default)"},
    [GATE_NO_OWNER_ONLY] = {"owner_only",
                            "the instance listens only to people linked to it (see principal)"},
    [GATE_NO_NOT_LISTED] = {"not_listed", "the author is not on the instance's allow list"},
    [GATE_NO_CHANNEL_OWNER] = {"channel_owner", "this channel was granted to another instance"},
    [GATE_NO_UNSEEN] = {"unseen", "nobody linked to the instance can see this channel"},
    [GATE_NO_SIGHT_UNKNOWN] =
        {"sight_unknown",
         "whether anybody linked to the instance can see this channel is not known"},
    [GATE_NO_NOT_ADDRESSED] = {"not_addressed",
                               "the instance wants to be mentioned or replied to here"},
    [GATE_NO_OTHER_BOT] = {"other_bot",
                           "the author is a bot, and the instance does not listen to bots"},
    [GATE_NO_BOT_LOOP] = {"bot_loop", "bots have been answering each other in this chat"},
};

const char *gate_reason_word(enum gate_reason r)
{
    assert(r < ARRAY_LEN(reasons));
    return reasons[r].word;
}
const char *gate_reason_sentence(enum gate_reason r)
{
    assert(r < ARRAY_LEN(reasons));
    return reasons[r].sentence;
}
