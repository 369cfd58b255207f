/* gate.c - design.  (gate.h has the rules.)
 *
 * gather() collects the candidates: the author's own instances, then the instances that scopes
 * grant the place to, then the targets of its routes.  Each candidate is in the list once, with all
 * its claims as bits.  judge() runs each claim through the same chain: authorize(), look(),
 * weigh().  One claim that passes is enough; otherwise the first "no" of the strongest claim is the
 * reason.  winner() breaks ties among several instances of one author.
 *
 * Nothing adds a candidate after gather(), so a restriction can only narrow.  An instance that a
 * record names, but that the bot of the event excludes, is no candidate.  A few of these are
 * kept apart, so that `bellhop why` can name the reason.
 *
 * With large tables a lookup is a cache miss, so announce_all() prefetches all lookups first. */
#include "core/gate.h"
#include <assert.h>
#include "base/mem.h"
#include "base/uncleared.h"

enum {
    CLAIM_LINK = 1,
    CLAIM_CHANNEL = 2,
    CLAIM_GUILD = 4,
    CLAIM_OPEN = 8,
    CLAIM_CLOSED = 16,
    CLAIM_VOID = 32, /* a scope that does not count: is_routed_away() */
};

struct candidate {
    const struct gate_instance *to;
    unsigned claims;
};

enum { /* the lookups of one event */
       AUTHOR,
       THREAD, /* places, narrowest first */
       CHAT,
       PARENT,
       GUILD,
       ROUTE,
       ROUTE_ALL,
       BOT,
       LOOKUPS
};

struct lookup {
    const struct map *map; /* NULL: no lookup */
    struct str key;
    uint32_t hash;
    char room[GATE_KEY_MAX];
};

enum { EXCLUDED = 8 };

struct gathering {
    size_t n, n_excluded;
    const struct gate_bot *bot; /* NULL: the event's bot serves every tenant */
    bool author_is_linked;
    bool channel_taken; /* a scope grants exactly this channel or thread */
    struct lookup l[LOOKUPS];
    struct candidate c[GATE_CANDIDATES];
    struct gate_verdict excluded[EXCLUDED];
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
    BH_UNCLEARED char room[GATE_KEY_MAX];

    if (map_count(m) == 0)
        return NULL;
    struct str key = gate_key(room, a, b, c);
    return key.p != NULL ? map_get(m, key) : NULL;
}

/* ---- which bots a record counts on ---- */

bool gate_counts_on(const struct gate_link *l, struct str bot)
{
    struct str rest = str_of(l->bots), one;

    if (str_eq(rest, STR("*")))
        return true;
    while (rest.n > 0 && bot.n > 0 && str_split(&rest, '\x1f', &one))
        if (str_eq(one, bot))
            return true;
    return false;
}

static bool bars(const struct gate_bot *bot, struct str tenant)
{
    return bot != NULL && !str_eq(bot->tenant, tenant);
}

bool gate_is_barred(const struct gate_facts *f, struct str platform, struct str bot,
                    struct str tenant)
{
    return map_count(&f->bots) > 0 && bars(find(&f->bots, platform, bot, STR_NULL), tenant);
}

struct gate_eyes gate_eyes_of(const struct gate_instance *to, struct str platform, struct str bot)
{
    return (struct gate_eyes){&to->people, to->people.prev, platform, bot, 16 * GATE_EYES};
}

const struct gate_link *gate_next_eye(struct gate_eyes *e)
{
    while (e->next != e->head && e->left >= 16) {
        const struct gate_link *l = list_entry(e->next, const struct gate_link, of_instance);
        bool here = str_eq(l->platform, e->platform) && gate_counts_on(l, e->bot);
        e->next = e->next->prev;
        e->left -= here ? 16 : 1;
        if (here)
            return l;
    }
    return NULL;
}

/* ---- candidates ---- */

static struct candidate *candidate_of(struct gathering *g, const struct gate_instance *to)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->c[i].to == to)
            return &g->c[i];
    return NULL;
}

static void exclude(struct gathering *g, const struct gate_instance *to, enum gate_reason why)
{
    for (size_t i = 0; i < g->n_excluded; i++)
        if (g->excluded[i].to == to)
            return;
    if (g->n_excluded < EXCLUDED && !to->gone)
        g->excluded[g->n_excluded++] = (struct gate_verdict){.to = to, .reason = why};
}

static bool claim(struct gathering *g, const struct gate_instance *to, unsigned what)
{
    if (bars(g->bot, to->tenant)) {
        exclude(g, to, GATE_NO_FOREIGN_BOT);
        return false;
    }
    struct candidate *c = to->gone ? NULL : candidate_of(g, to);
    if (to->gone || (c == NULL && g->n == GATE_CANDIDATES))
        return false;
    if (c == NULL) {
        c = &g->c[g->n++];
        *c = (struct candidate){.to = to};
    }
    c->claims |= what;
    return true;
}

static void announce(struct gathering *g, int which, const struct map *m, struct str a,
                     struct str b, struct str c)
{
    struct lookup *l = &g->l[which];

    l->map = NULL;
    if (map_count(m) == 0 || str_is_empty(b))
        return;
    l->key = gate_key(l->room, a, b, c);
    if (l->key.p == NULL)
        return;
    l->map = m;
    l->hash = map_hash(l->key);
    map_prefetch(m, l->hash);
}

static void *ask(const struct gathering *g, int which)
{
    const struct lookup *l = &g->l[which];

    return l->map != NULL ? map_get_hashed(l->map, l->key, l->hash) : NULL;
}

static void announce_all(const struct gate_facts *f, const struct event *ev, struct gathering *g)
{
    struct str guild = ev->scope_id, none = STR_NULL;
    const struct str at[] = {ev->thread_id, ev->chat_id, ev->parent_chat_id};

    if (str_is_empty(guild)) /* a chat without a guild is its own; a direct chat has none */
        guild = str_eq(ev->chat_type, STR("dm")) ? none : ev->chat_id;
    /* Neither a bot nor somebody unproven is ever an owner. */
    announce(g, AUTHOR, &f->authors, ev->platform,
             ev->author_is_bot || ev->author_unproven ? none : ev->user_id, none);
    for (int i = 0; i < 3; i++) {
        bool again = i > 0 && str_eq(at[i], at[0]); /* a thread may be its own chat */
        announce(g, THREAD + i, &f->scopes, ev->platform,
                 str_is_empty(at[i]) || again ? none : guild, at[i]);
    }
    announce(g, GUILD, &f->scopes, ev->platform, guild, STR("*"));
    announce(g, ROUTE, &f->routes, ev->platform, ev->route_key, none);
    announce(g, ROUTE_ALL, &f->routes, ev->platform, STR("*"), none);
    announce(g, BOT, &f->bots, ev->platform, ev->bot, none);
}

/* Stops at GATE_CANDIDATES: a route may lead to a tenant with more instances. */
static void claim_routed(struct gathering *g, const struct gate_place *p)
{
    unsigned what = p->open ? CLAIM_OPEN : CLAIM_CLOSED;

    if (p->to != NULL) {
        claim(g, p->to, what);
        return;
    }
    const struct list *head = &p->all->live;
    bool barred = bars(g->bot, p->all->name); /* then one instance is enough, to be excluded */
    for (const struct list *it = head->next; it != head && g->n < GATE_CANDIDATES; it = it->next) {
        claim(g, list_entry(it, const struct gate_instance, of_tenant), what);
        if (barred)
            break;
    }
}

/* The routes of exactly this place; a route of the whole bot does not count.  NULL: none. */
static const struct gate_routes *routes_here(const struct gathering *g, const struct event *ev)
{
    const struct gate_routes *r = str_eq(ev->route_key, ev->bot) ? NULL : ask(g, ROUTE);

    return r != NULL && !list_is_empty(&r->places) ? r : NULL;
}

static bool routes_name(const struct gate_routes *r, struct str tenant)
{
    size_t n = 0;

    for (const struct list *it = r->places.next; it != &r->places && n < GATE_CANDIDATES;
         it = it->next, n++) {
        const struct gate_place *at = list_entry(it, const struct gate_place, link);
        if (str_eq(at->to != NULL ? at->to->tenant : at->all->name, tenant))
            return true;
    }
    return false;
}

/* True when operators' routes give exactly this place to other tenants and none to the tenant that
 * claimed @p. */
static bool is_routed_away(const struct gathering *g, const struct event *ev,
                           const struct gate_place *p)
{
    const struct gate_routes *r = p->firm ? NULL : routes_here(g, ev);

    return r != NULL && !routes_name(r, p->to->tenant);
}

/* An operator's grant of a guild outweighs a channel that a gateway of another tenant claimed. */
static bool is_outweighed(const struct gathering *g, const struct event *ev,
                          const struct gate_place *channel, const struct gate_place *guild)
{
    if (guild == NULL || !guild->firm || channel->firm ||
        str_eq(guild->to->tenant, channel->to->tenant))
        return false;
    const struct gate_routes *r = routes_here(g, ev);
    return r == NULL || !routes_name(r, channel->to->tenant);
}

static void gather(struct gathering *g, const struct event *ev)
{
    const struct gate_place *p = NULL, *guild = ask(g, GUILD);
    size_t looked = 0;

    g->bot = ask(g, BOT);
    for (const struct gate_link *l = ask(g, AUTHOR);
         l != NULL && g->n < GATE_CANDIDATES && looked < GATE_LINKS; l = l->next, looked++)
        if (gate_counts_on(l, ev->bot))
            g->author_is_linked |= claim(g, l->to, CLAIM_LINK);
        else
            exclude(g, l->to, GATE_NO_LINKED_ON_OTHER_BOT);
    for (int which = THREAD; which <= PARENT && p == NULL; which++)
        p = ask(g, which);
    if (p != NULL && (is_routed_away(g, ev, p) || is_outweighed(g, ev, p, guild)))
        claim(g, p->to, CLAIM_VOID);
    else if (p != NULL)
        g->channel_taken = claim(g, p->to, CLAIM_CHANNEL);
    if (guild != NULL)
        claim(g, guild->to, is_routed_away(g, ev, guild) ? CLAIM_VOID : CLAIM_GUILD);
    const struct gate_routes *r = ask(g, ROUTE);
    if (r == NULL || list_is_empty(&r->places))
        r = ask(g, ROUTE_ALL);
    for (const struct list *it = r != NULL ? r->places.next : NULL;
         r != NULL && it != &r->places && g->n < GATE_CANDIDATES; it = it->next)
        claim_routed(g, list_entry(it, const struct gate_place, link));
}

/* The first step, for a claim of an instance that the author is not linked to. */
static enum gate_reason authorize(const struct gathering *g, const struct candidate *c,
                                  const struct event *ev, enum gate_reason yes)
{
    bool open = yes == GATE_YES_OPEN;
    const struct gate_rule *a = map_get(&c->to->principals, ev->platform);
    if (a == NULL)
        a = map_get(&c->to->principals, STR("*"));
    enum gate_principal mode = a != NULL ? a->mode : open ? GATE_ANY : GATE_OWNER_ONLY;

    if (!open && (c->claims & CLAIM_CHANNEL) == 0 && g->channel_taken)
        return GATE_NO_CHANNEL_OWNER;
    if (mode == GATE_OWNER_ONLY)
        return GATE_NO_OWNER_ONLY;
    if (mode == GATE_ALLOW_LIST &&
        (str_is_empty(ev->user_id) || map_get(&a->ids, ev->user_id) == NULL))
        return GATE_NO_NOT_LISTED;
    return yes;
}

static enum gate_reason look(const struct gate_world *w, const struct candidate *c,
                             const struct event *ev)
{
    struct gate_eyes e = gate_eyes_of(c->to, ev->platform, ev->bot);
    bool unknown = true, asked = false;

    if (w->sees == NULL)
        return GATE_NO_SIGHT_UNKNOWN;
    for (const struct gate_link *l; (l = gate_next_eye(&e)) != NULL;) {
        enum gate_sight sight = w->sees(w->ctx, ev, c->to, l->user);
        if (sight == GATE_SEEN)
            return GATE_YES_SCOPE;
        asked |= sight == GATE_SIGHT_ASKED;
        unknown &= sight == GATE_SIGHT_UNKNOWN;
    }
    if (asked)
        return GATE_NO_SIGHT_ASKED;
    return unknown || e.next != e.head ? GATE_NO_SIGHT_UNKNOWN : GATE_NO_UNSEEN;
}

static bool is_free(const struct gate_rule *p, struct str place)
{
    return !str_is_empty(place) && map_get(&p->ids, place) != NULL;
}

/* The places that a scope may grant, narrowest first.  A topic's id is unique in its group only, so
 * a topic may also be named with its group: "group:topic". */
static bool is_free_place(const struct gate_rule *p, const struct event *ev)
{
    struct str thread = ev->thread_id, chat = ev->chat_id;
    BH_UNCLEARED char room[GATE_KEY_MAX];

    if (map_count(&p->ids) == 0)
        return false;
    if (is_free(p, thread) || is_free(p, chat) || is_free(p, ev->parent_chat_id))
        return true;
    if (str_is_empty(thread) || chat.n + 1 + thread.n > sizeof room)
        return false;
    memcpy(room, chat.p, chat.n);
    room[chat.n] = ':';
    memcpy(room + chat.n + 1, thread.p, thread.n);
    return is_free(p, str_make(room, chat.n + 1 + thread.n));
}

static enum gate_reason weigh(const struct gate_world *w, const struct candidate *c,
                              const struct event *ev, enum gate_reason so_far)
{
    const struct gate_rule *p = map_get(&c->to->policies, ev->platform);
    bool direct = str_eq(ev->chat_type, STR("dm"));
    bool must = p != NULL ? p->require_address && !is_free_place(p, ev)
                          : c->to->default_require_address || c->to->newer;

    if (ev->author_is_bot && (p == NULL || !p->allow_other_bots))
        return GATE_NO_OTHER_BOT;
    if (ev->author_is_bot && w->bot_streak > GATE_BOT_STREAK)
        return GATE_NO_BOT_LOOP;
    if (must && !direct && !ev->mentions_bot && !ev->replies_to_bot)
        return GATE_NO_NOT_ADDRESSED;
    return so_far;
}

static enum gate_reason judge_claim(const struct gate_world *w, const struct gathering *g,
                                    const struct candidate *c, const struct event *ev,
                                    enum gate_reason yes)
{
    enum gate_reason r = authorize(g, c, ev, yes);

    if (r == GATE_YES_SCOPE)
        r = look(w, c, ev);
    return gate_may_yet(r) ? weigh(w, c, ev, r) : r;
}

static enum gate_reason judge(const struct gate_world *w, const struct gathering *g,
                              const struct candidate *c, const struct event *ev)
{
    enum gate_reason r = GATE_NO_AUTHOR_FIRST;

    if (c->claims & CLAIM_LINK)
        return GATE_YES_OWNER;
    if (g->author_is_linked)
        return r;
    if (c->claims & (CLAIM_CHANNEL | CLAIM_GUILD))
        r = judge_claim(w, g, c, ev, GATE_YES_SCOPE);
    if (!gate_is_yes(r) && (c->claims & CLAIM_OPEN)) {
        enum gate_reason opened = judge_claim(w, g, c, ev, GATE_YES_OPEN);
        if (gate_is_yes(opened) || r == GATE_NO_AUTHOR_FIRST)
            r = opened;
    }
    if (r != GATE_NO_AUTHOR_FIRST)
        return r;
    return c->claims & CLAIM_VOID ? GATE_NO_OTHER_TENANT : GATE_NO_CLOSED;
}

/* Chooses among several instances of one author: the instance that was granted this place, else the
 * author's choice, else the oldest link (links are gathered oldest first). */
static const struct gate_instance *winner(const struct gate_facts *f, const struct event *ev,
                                          const struct gathering *g)
{
    const struct gate_instance *best = NULL, *chosen;
    size_t n_linked = 0; /* links are gathered first */

    while (n_linked < g->n && (g->c[n_linked].claims & CLAIM_LINK))
        n_linked++;
    if (n_linked == 1)
        return g->c[0].to;
    chosen = find(&f->dm_defaults, ev->platform, ev->user_id, STR_NULL);
    bool direct = str_eq(ev->chat_type, STR("dm"));
    for (size_t i = 0; i < n_linked; i++) {
        const struct candidate *c = &g->c[i];
        if (!direct &&
            ((c->claims & CLAIM_CHANNEL) || ((c->claims & CLAIM_GUILD) && !g->channel_taken)))
            return c->to;
        if (best == NULL || c->to == chosen)
            best = c->to; /* the oldest, unless the chosen one follows */
    }
    return best;
}

static bool asked(const struct gate_instance *i, const struct event *ev)
{
    return str_eq(i->instance, ev->only_instance) && str_eq(i->tenant, ev->only_tenant);
}

size_t gate_decide(const struct gate_facts *f, const struct gate_world *w, const struct event *ev,
                   struct gate_verdict *out)
{
    BH_UNCLEARED struct gathering g; /* candidates and lookups need no clearing */
    g.n = g.n_excluded = 0;
    g.author_is_linked = g.channel_taken = false;
    announce_all(f, ev, &g);
    gather(&g, ev);
    const struct gate_instance *own = g.author_is_linked ? winner(f, ev, &g) : NULL;
    for (size_t i = 0; i < g.n; i++) {
        const struct candidate *c = &g.c[i];
        enum gate_reason r = judge(w, &g, c, ev);
        if (ev->only_instance.p != NULL)
            r = !asked(c->to, ev)                              ? GATE_NO_NOT_ASKED
                : ev->only_owners && !(c->claims & CLAIM_LINK) ? GATE_NO_OWNER_ONLY
                                                               : r;
        else if (r == GATE_YES_OWNER && c->to != own)
            r = GATE_NO_TIE;
        out[i] = (struct gate_verdict){.to = c->to, .reason = r};
    }
    size_t n = g.n;
    for (size_t i = 0; i < g.n_excluded && n < GATE_CANDIDATES; i++)
        if (candidate_of(&g, g.excluded[i].to) == NULL)
            out[n++] = g.excluded[i];
    return n;
}

static const struct {
    const char *word, *sentence;
} reasons[] = {
    [GATE_YES_OWNER] = {"owner", "the author is linked to this instance"},
    [GATE_YES_SCOPE] = {"scope", "the instance was granted this place and admits the author"},
    [GATE_YES_OPEN] = {"open", "an operator opened this place to everybody"},
    [GATE_NO_AUTHOR_FIRST] = {"author_first", "the author is linked to an instance of their own"},
    [GATE_NO_TIE] = {"tie", "another instance of the same author takes it (see dm-default)"},
    [GATE_NO_OWNER_ONLY] = {"owner_only",
                            "the instance listens only to people linked to it (see principal)"},
    [GATE_NO_CLOSED] = {"closed",
                        "the place is routed to the instance, but not open, and the author is not "
                        "linked to it"},
    [GATE_NO_OTHER_TENANT] = {"other_tenant",
                              "the instance claimed this place, but it was routed to another "
                              "tenant"},
    [GATE_NO_NOT_LISTED] = {"not_listed", "the author is not on the instance's allow list"},
    [GATE_NO_CHANNEL_OWNER] = {"channel_owner", "this channel was granted to another instance"},
    [GATE_NO_UNSEEN] = {"unseen", "nobody linked to the instance can see this channel"},
    [GATE_NO_SIGHT_UNKNOWN] =
        {"sight_unknown",
         "whether anybody linked to the instance can see this channel is not known"},
    [GATE_NO_SIGHT_ASKED] =
        {"sight_asked",
         "the platform did not say in time whether anybody linked to the instance can see this "
         "channel"},
    [GATE_NO_NOT_ADDRESSED] = {"not_addressed",
                               "the instance wants to be mentioned or replied to here"},
    [GATE_NO_OTHER_BOT] = {"other_bot",
                           "the author is a bot, and the instance does not listen to bots"},
    [GATE_NO_BOT_LOOP] = {"bot_loop", "bots have been answering each other in this chat"},
    [GATE_NO_NOT_ASKED] = {"not_asked", "it answers a question that another instance asked"},
    [GATE_NO_LINKED_ON_OTHER_BOT] =
        {"linked_on_other_bot", "the author is linked to the instance on another bot, not on this "
                                "one (see link --bot)"},
    [GATE_NO_FOREIGN_BOT] = {"foreign_bot",
                             "this bot belongs to another tenant (platforms: tenant)"},
    [GATE_NO_ALLOWANCE] = {"allowance", "the allowance of this period is used up (see allowance)"},
};

const char *gate_reason_word(enum gate_reason r)
{
    assert(r < ARRAY_LEN(reasons));
    return reasons[r].word;
}

const char *gate_word_sentence(struct str word)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (str_eq(word, str_of(reasons[i].word)))
            return reasons[i].sentence;
    return NULL;
}
