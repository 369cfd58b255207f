/* Promises of core/gate.h.
 *
 * The long test walks a truth table: every combination of author, scope, route, principal, sight,
 * place and relevance, and holds the gate against a specification that is written down below as
 * the contract says it, in one expression per layer, sharing nothing with gate.c. */
#include "unit.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/gate.h"

/* ---- a small world: two instances, X which we ask about, and Y which is in its way ---- */

#define CHANNEL "c1"
#define THREAD "t1"
#define GUILD "g1"
#define ANN "u-ann"   /* writes */
#define OLGA "u-olga" /* is linked to X, and says nothing */

struct thing { /* whatever a map needs to own */
    struct thing *next;
    char bytes[];
};
struct world {
    struct gate_facts f;
    struct gate_instance x, y, z; /* z: of another tenant */
    struct gate_rule admission;
    struct gate_rule policy;
    struct gate_link links[8];
    struct gate_place places[8];
    struct gate_routes routes[8];
    size_t n_links, n_places, n_routes;
    struct gate_bot bot;
    struct thing *things;
    enum gate_sight sight;
};

static struct str keep(struct world *w, struct str s)
{
    struct thing *t = xcalloc(1, sizeof *t + s.n + 1);
    memcpy(t->bytes, s.p, s.n);
    t->next = w->things;
    w->things = t;
    return str_make(t->bytes, s.n);
}

static struct str key(struct world *w, const char *a, const char *b, const char *c)
{
    char room[GATE_KEY_MAX];
    return keep(w, gate_key(room, str_of(a), str_of(b), str_of(c)));
}

static void world_init(struct world *w)
{
    *w = (struct world){.sight = GATE_SEEN};
    w->x.tenant = w->y.tenant = STR("acme");
    w->x.instance = STR("x");
    w->y.instance = STR("y");
    w->z.tenant = STR("zorg");
    w->z.instance = STR("z");
    list_init(&w->x.people);
    list_init(&w->y.people);
    list_init(&w->z.people);
}

static void world_done(struct world *w)
{
    struct map *maps[] = {&w->f.authors,    &w->f.scopes,   &w->f.routes,      &w->f.dm_defaults,
                          &w->x.principals, &w->x.policies, &w->admission.ids, &w->policy.ids,
                          &w->y.principals, &w->y.policies, &w->f.bots};
    for (size_t i = 0; i < ARRAY_LEN(maps); i++)
        map_done(maps[i]);
    for (struct thing *t = w->things, *next; t != NULL; t = next) {
        next = t->next;
        free(t);
    }
}

static void link_on(struct world *w, const char *user, struct gate_instance *to, const char *bots)
{
    struct gate_link *l = &w->links[w->n_links++], *first;
    struct str k = key(w, "discord", user, NULL);

    *l = (struct gate_link){.to = to,
                            .platform = STR("discord"),
                            .user = str_of(user),
                            .bots = bots};
    first = map_get(&w->f.authors, k);
    if (first == NULL) {
        map_put(&w->f.authors, k, l);
    } else {
        while (first->next != NULL)
            first = first->next;
        first->next = l;
    }
    list_append(&to->people, &l->of_instance);
}

static void link_person(struct world *w, const char *user, struct gate_instance *to)
{
    link_on(w, user, to, "b"); /* the bot of event_in_channel() */
}

/* From now on the bot of event_in_channel() belongs to one tenant. */
static void give_bot(struct world *w, const char *tenant)
{
    w->bot.tenant = str_of(tenant);
    map_put(&w->f.bots, key(w, "discord", "b", NULL), &w->bot);
}

static void grant(struct world *w, const char *channel, struct gate_instance *to)
{
    struct gate_place *p = &w->places[w->n_places++];

    *p = (struct gate_place){.to = to};
    map_put(&w->f.scopes, key(w, "discord", GUILD, channel), p);
}

static struct gate_routes *routes_of(struct world *w, const char *route_key)
{
    struct str k = key(w, "discord", route_key, NULL);
    struct gate_routes *r = map_get(&w->f.routes, k);

    if (r == NULL) {
        r = &w->routes[w->n_routes++];
        list_init(&r->places);
        map_put(&w->f.routes, k, r);
    }
    return r;
}

static void route(struct world *w, const char *route_key, struct gate_instance *to, bool open)
{
    struct gate_place *p = &w->places[w->n_places++];

    *p = (struct gate_place){.to = to, .open = open};
    list_append(&routes_of(w, route_key)->places, &p->link);
}

static void principal(struct world *w, enum gate_principal mode, const char *allowed)
{
    w->admission.mode = mode;
    if (allowed != NULL)
        map_put(&w->admission.ids, str_of(allowed), w);
    map_put(&w->x.principals, STR("discord"), &w->admission);
}

static enum gate_sight sees(void *ctx, const struct event *ev, const struct gate_instance *to,
                            struct str user)
{
    const struct world *w = ctx;
    return w->sight;
}

static struct event event_in_channel(void)
{
    return (struct event){.platform = STR("discord"),
                          .bot = STR("b"),
                          .route_key = STR(GUILD),
                          .scope_id = STR(GUILD),
                          .chat_id = STR(CHANNEL),
                          .chat_type = STR("group"),
                          .user_id = STR(ANN),
                          .text = STR("hello")};
}

static size_t decide(struct world *w, const struct event *ev, struct gate_verdict *out)
{
    struct gate_world world = {.sees = sees, .ctx = w, .bot_streak = ev->author_is_bot ? 1 : 0};
    return gate_decide(&w->f, &world, ev, out);
}

/* The verdict on @to; -1: it is no candidate. */
static int verdict_on(struct world *w, const struct event *ev, const struct gate_instance *to)
{
    struct gate_verdict v[GATE_CANDIDATES];
    size_t n = decide(w, ev, v);
    for (size_t i = 0; i < n; i++)
        if (v[i].to == to)
            return (int)v[i].reason;
    return -1;
}

static bool received(struct world *w, const struct event *ev, const struct gate_instance *to)
{
    int r = verdict_on(w, ev, to);
    return r >= 0 && gate_is_yes((enum gate_reason)r);
}

/* ---- the specification ---- */

enum author { /* "elsewhere": the link was made through another bot */
              UNBOUND,
              BOUND_TO_X,
              BOUND_TO_Y,
              BOUND_TO_X_ELSEWHERE,
              BOUND_TO_Y_ELSEWHERE,
              A_BOT,
              AUTHORS
};
enum scope { NO_SCOPE, X_HAS_CHANNEL, X_HAS_GUILD, X_HAS_GUILD_Y_CHANNEL, SCOPES };
enum routed { NO_ROUTE, ROUTED, ROUTED_OPEN, ROUTED_ELSEWHERE, ROUTES }; /* by an operator */
enum principals { P_UNSET, P_OWNER_ONLY, P_LISTED, P_NOT_LISTED, P_ANY, PRINCIPALS };
enum sight { SEES, SEES_NOT, SIGHT_UNKNOWN, NOBODY_LINKED, SEES_LINKED_ELSEWHERE, SIGHTS };
enum whose { EVERYBODYS, OF_X, OF_ANOTHER_TENANT }; /* the bot */
enum place { IN_DM, IN_CHANNEL, IN_THREAD, PLACES };
enum relevance {
    NO_ROW,
    NO_ROW_TENANT_WANTS_ADDRESS,
    NO_ROW_NEWER_GATEWAY,
    OPEN,
    MUST_ADDRESS,
    MUST_ADDRESS_FREE_HERE,
    BOTS_TOO,
    BOTS_TOO_MUST_ADDRESS,
    RELEVANCES
};
enum address { NOT_ADDRESSED, MENTIONED, REPLIED_TO, ADDRESSES };

struct row {
    enum author author;
    enum scope scope;
    enum routed route;
    enum principals principal;
    enum sight sight;
    enum place place;
    enum relevance relevance;
    enum address address;
    enum whose bot;
};

/* "per-instance (guild, channel) scope grants"; "a channel is owned by at most one instance"; a
 * direct message lies in no guild; a claim is worth nothing against another tenant. */
static bool scope_covers(const struct row *r)
{
    return r->place != IN_DM && (r->scope == X_HAS_CHANNEL || r->scope == X_HAS_GUILD) &&
           r->route != ROUTED_ELSEWHERE;
}

/* "owner-only | allow-list | any": a scope starts closed, what an operator opened starts open. */
static bool principal_admits(const struct row *r, bool opened)
{
    switch (r->principal) {
    case P_UNSET:
        return opened;
    case P_LISTED:
    case P_ANY:
        return true;
    default:
        return false;
    }
}

/* "Can the instance's bound owner actually VIEW_CHANNEL this?  Fail-closed."  Every grant is held
 * against it but the operator's open one. */
static bool visible(const struct row *r)
{
    return r->sight == SEES;
}

/* "a non-owner message must @mention / reply-to the bot"; "scope ids where requireAddress is
 * waived"; "admit bot-authored messages (default off)".  Who writes to the bot alone addresses it.
 */
static bool relevant(const struct row *r)
{
    bool bots = r->relevance == BOTS_TOO || r->relevance == BOTS_TOO_MUST_ADDRESS;
    bool must = r->relevance == NO_ROW_TENANT_WANTS_ADDRESS ||
                r->relevance == NO_ROW_NEWER_GATEWAY || r->relevance == MUST_ADDRESS ||
                r->relevance == BOTS_TOO_MUST_ADDRESS;
    bool addressed = r->address != NOT_ADDRESSED || r->place == IN_DM;

    return (r->author != A_BOT || bots) && (!must || addressed);
}

/* "deliver <=> authorized AND visible AND relevant"; "the owner floor bypasses the relevance
 * layer"; "each linked member reaches only their own instance"; "an author bound to nothing reaches
 * nobody", unless an operator said otherwise: a route that is not open delivers to nobody. */
static bool spec_delivers_to_x(const struct row *r)
{
    if (r->bot == OF_ANOTHER_TENANT) /* "nobody else's instance is reached", whatever else holds */
        return false;
    if (r->author == BOUND_TO_X) /* "a link counts on the bot it was made through" */
        return true;
    if (r->author == BOUND_TO_Y)
        return false;
    return ((scope_covers(r) && principal_admits(r, false) && visible(r)) ||
            (r->route == ROUTED_OPEN && principal_admits(r, true))) &&
           relevant(r);
}

/* ---- a row as facts and an event ---- */

static void set_relevance(struct world *w, const struct row *r)
{
    if (r->relevance == NO_ROW)
        return;
    if (r->relevance == NO_ROW_TENANT_WANTS_ADDRESS) {
        w->x.default_require_address = true;
        return;
    }
    if (r->relevance == NO_ROW_NEWER_GATEWAY) {
        w->x.newer = true;
        return;
    }
    w->policy.require_address = r->relevance == MUST_ADDRESS ||
                                r->relevance == MUST_ADDRESS_FREE_HERE ||
                                r->relevance == BOTS_TOO_MUST_ADDRESS;
    w->policy.allow_other_bots = r->relevance == BOTS_TOO || r->relevance == BOTS_TOO_MUST_ADDRESS;
    if (r->relevance == MUST_ADDRESS_FREE_HERE)
        map_put(&w->policy.ids, STR(CHANNEL), w); /* a thread's parent counts */
    map_put(&w->x.policies, STR("discord"), &w->policy);
}

static void set_facts(struct world *w, const struct row *r)
{
    bool seen = r->sight == SEES || r->sight == SEES_LINKED_ELSEWHERE;

    if (r->sight != NOBODY_LINKED)
        link_on(w, OLGA, &w->x,
                r->sight == SEES_LINKED_ELSEWHERE ? "bb\x1f"
                                                    "a"
                                                  : "a\x1f"
                                                    "b");
    w->sight = seen ? GATE_SEEN : r->sight == SEES_NOT ? GATE_UNSEEN : GATE_SIGHT_UNKNOWN;
    if (r->author == BOUND_TO_X || r->author == BOUND_TO_X_ELSEWHERE)
        link_on(w, ANN, &w->x, r->author == BOUND_TO_X ? "b" : "other");
    if (r->author == BOUND_TO_Y || r->author == BOUND_TO_Y_ELSEWHERE)
        link_on(w, ANN, &w->y, r->author == BOUND_TO_Y ? "*" : "other");
    if (r->bot != EVERYBODYS)
        give_bot(w, r->bot == OF_X ? "acme" : "zorg");
    if (r->scope == X_HAS_CHANNEL)
        grant(w, CHANNEL, &w->x);
    if (r->scope == X_HAS_GUILD || r->scope == X_HAS_GUILD_Y_CHANNEL)
        grant(w, "*", &w->x);
    if (r->scope == X_HAS_GUILD_Y_CHANNEL)
        grant(w, CHANNEL, &w->y);
    if (r->route != NO_ROUTE)
        route(w, r->place == IN_DM ? "dm:" ANN : GUILD,
              r->route == ROUTED_ELSEWHERE ? &w->z : &w->x, r->route == ROUTED_OPEN);
    if (r->principal == P_OWNER_ONLY)
        principal(w, GATE_OWNER_ONLY, NULL);
    if (r->principal == P_LISTED || r->principal == P_NOT_LISTED)
        principal(w, GATE_ALLOW_LIST, r->principal == P_LISTED ? ANN : "somebody-else");
    if (r->principal == P_ANY)
        principal(w, GATE_ANY, NULL);
    set_relevance(w, r);
}

static struct event event_of(const struct row *r)
{
    struct event ev = event_in_channel();

    if (r->place == IN_DM) {
        ev.scope_id = STR_NULL;
        ev.chat_id = STR("d1");
        ev.chat_type = STR("dm");
        ev.route_key = STR("dm:" ANN);
    } else if (r->place == IN_THREAD) {
        ev.chat_id = ev.thread_id = STR(THREAD);
        ev.parent_chat_id = STR(CHANNEL);
        ev.chat_type = STR("thread");
    }
    ev.author_is_bot = r->author == A_BOT;
    ev.mentions_bot = r->address == MENTIONED;
    ev.replies_to_bot = r->address == REPLIED_TO;
    return ev;
}

static bool gate_delivers_to_x(const struct row *r, int *ret_verdict)
{
    struct world w;
    world_init(&w);
    set_facts(&w, r);
    struct event ev = event_of(r);
    int v = verdict_on(&w, &ev, &w.x);
    world_done(&w);
    if (ret_verdict != NULL)
        *ret_verdict = v;
    return v >= 0 && gate_is_yes((enum gate_reason)v);
}

typedef void row_fn(const struct row *r, void *ctx);

static size_t each_row(row_fn *fn, void *ctx)
{
    struct row r = {.bot = EVERYBODYS};
    size_t n = 0;

    for (r.author = 0; r.author < AUTHORS; r.author++)
        for (r.scope = 0; r.scope < SCOPES; r.scope++)
            for (r.route = 0; r.route < ROUTES; r.route++)
                for (r.principal = 0; r.principal < PRINCIPALS; r.principal++)
                    for (r.sight = 0; r.sight < SIGHTS; r.sight++)
                        for (r.place = 0; r.place < PLACES; r.place++)
                            for (r.relevance = 0; r.relevance < RELEVANCES; r.relevance++)
                                for (r.address = 0; r.address < ADDRESSES; r.address++, n++)
                                    fn(&r, ctx);
    return n;
}

static bool check(const struct row *r)
{
    bool want = spec_delivers_to_x(r), got = gate_delivers_to_x(r, NULL);

    if (want != got)
        fail_msg("author %d scope %d route %d principal %d sight %d place %d relevance %d "
                 "address %d bot %d: the contract says %s",
                 r->author, r->scope, r->route, r->principal, r->sight, r->place, r->relevance,
                 r->address, r->bot, want ? "deliver" : "do not");
    return got;
}

static void check_row(const struct row *r, void *ctx)
{
    size_t *delivered = ctx;
    struct row theirs = *r, ours = *r;

    theirs.bot = OF_ANOTHER_TENANT;
    ours.bot = OF_X;
    if (check(r)) {
        ++*delivered;
        check(&theirs);
    }
    if (r->address == NOT_ADDRESSED)
        check(&ours);
}

static void every_row_of_the_truth_table_is_decided_as_the_contract_says(void **state)
{
    size_t delivered = 0, n = each_row(check_row, &delivered);

    assert_true(n >= 400);
    assert_true(delivered > n / 12 && delivered < n / 2); /* it tells yes from no */
    print_message("%zu rows, %zu delivered\n", n, delivered);
}

/* Every way to restrict a row; none may make a recipient. */
static void check_restrictions(const struct row *r, void *ctx)
{
    size_t *checked = ctx;
    struct row with;

    if (gate_delivers_to_x(r, NULL))
        return;
#define RESTRICT(change) \
    do { \
        with = *r; \
        change; \
        ++*checked; \
        assert_false(gate_delivers_to_x(&with, NULL)); \
    } while (0)
    if (r->route != ROUTED_ELSEWHERE) {
        RESTRICT(with.route = NO_ROUTE);
        RESTRICT(with.route = ROUTED);
    }
    RESTRICT(with.route = ROUTED_ELSEWHERE);
    if (r->author != BOUND_TO_X)
        RESTRICT(with.scope = NO_SCOPE);
    if (r->scope == X_HAS_GUILD)
        RESTRICT(with.scope = X_HAS_GUILD_Y_CHANNEL);
    RESTRICT(with.principal = P_OWNER_ONLY);
    if (r->principal == P_ANY || r->principal == P_LISTED)
        RESTRICT(with.principal = P_NOT_LISTED);
    RESTRICT(with.sight = SEES_NOT);
    RESTRICT(with.sight = SIGHT_UNKNOWN);
    RESTRICT(with.sight = NOBODY_LINKED);
    RESTRICT(with.sight = SEES_LINKED_ELSEWHERE);
    if (r->relevance == OPEN || r->relevance == NO_ROW || r->relevance == MUST_ADDRESS_FREE_HERE)
        RESTRICT(with.relevance = MUST_ADDRESS);
    if (r->relevance == BOTS_TOO)
        RESTRICT(with.relevance = BOTS_TOO_MUST_ADDRESS);
    if (r->author == UNBOUND)
        RESTRICT(with.author = BOUND_TO_Y);
#undef RESTRICT
}

static void a_restriction_never_adds_a_recipient_and_neither_does_an_unknown(void **state)
{
    size_t checked = 0;
    each_row(check_restrictions, &checked);
    assert_true(checked > 10000);
}

/* ---- reasons, one at a time ---- */

static void every_no_has_its_reason(void **state)
{
    const struct {
        struct row row;
        enum gate_reason reason;
    } rows[] = {
        {{BOUND_TO_X, NO_SCOPE, NO_ROUTE, P_UNSET, SEES_NOT, IN_CHANNEL, MUST_ADDRESS, 0},
         GATE_YES_OWNER},
        {{UNBOUND, X_HAS_CHANNEL, NO_ROUTE, P_ANY, SEES, IN_CHANNEL, NO_ROW, 0}, GATE_YES_SCOPE},
        {{UNBOUND, NO_SCOPE, ROUTED_OPEN, P_UNSET, NOBODY_LINKED, IN_DM, NO_ROW, 0}, GATE_YES_OPEN},
        {{UNBOUND, X_HAS_CHANNEL, ROUTED_OPEN, P_UNSET, SEES, IN_CHANNEL, NO_ROW, 0},
         GATE_YES_OPEN},
        {{UNBOUND, NO_SCOPE, ROUTED, P_ANY, SEES, IN_CHANNEL, NO_ROW, MENTIONED}, GATE_NO_CLOSED},
        {{UNBOUND, X_HAS_CHANNEL, ROUTED, P_ANY, SEES, IN_CHANNEL, NO_ROW, 0}, GATE_YES_SCOPE},
        {{UNBOUND, X_HAS_CHANNEL, ROUTED_ELSEWHERE, P_ANY, SEES, IN_CHANNEL, NO_ROW, 0},
         GATE_NO_OTHER_TENANT},
        {{UNBOUND, X_HAS_CHANNEL, ROUTED, P_ANY, SEES_NOT, IN_CHANNEL, NO_ROW, 0}, GATE_NO_UNSEEN},
        {{BOUND_TO_Y, X_HAS_CHANNEL, ROUTED_OPEN, P_ANY, SEES, IN_CHANNEL, NO_ROW, 0},
         GATE_NO_AUTHOR_FIRST},
        {{UNBOUND, X_HAS_CHANNEL, NO_ROUTE, P_UNSET, SEES, IN_CHANNEL, NO_ROW, 0},
         GATE_NO_OWNER_ONLY},
        {{UNBOUND, X_HAS_GUILD, NO_ROUTE, P_NOT_LISTED, SEES, IN_THREAD, NO_ROW, 0},
         GATE_NO_NOT_LISTED},
        {{UNBOUND, X_HAS_GUILD_Y_CHANNEL, NO_ROUTE, P_ANY, SEES, IN_CHANNEL, NO_ROW, 0},
         GATE_NO_CHANNEL_OWNER},
        {{UNBOUND, X_HAS_CHANNEL, NO_ROUTE, P_ANY, SEES_NOT, IN_CHANNEL, NO_ROW, 0},
         GATE_NO_UNSEEN},
        {{UNBOUND, X_HAS_CHANNEL, NO_ROUTE, P_ANY, SIGHT_UNKNOWN, IN_CHANNEL, NO_ROW, 0},
         GATE_NO_SIGHT_UNKNOWN},
        {{UNBOUND, X_HAS_CHANNEL, NO_ROUTE, P_ANY, NOBODY_LINKED, IN_CHANNEL, NO_ROW, 0},
         GATE_NO_SIGHT_UNKNOWN},
        {{UNBOUND, X_HAS_CHANNEL, NO_ROUTE, P_ANY, SEES, IN_CHANNEL, MUST_ADDRESS, 0},
         GATE_NO_NOT_ADDRESSED},
        {{A_BOT, X_HAS_CHANNEL, NO_ROUTE, P_ANY, SEES, IN_CHANNEL, OPEN, 0}, GATE_NO_OTHER_BOT},
        {{BOUND_TO_X_ELSEWHERE, NO_SCOPE, NO_ROUTE, P_UNSET, SEES, IN_DM, NO_ROW, 0},
         GATE_NO_LINKED_ON_OTHER_BOT},
        {{BOUND_TO_X_ELSEWHERE, NO_SCOPE, ROUTED, P_UNSET, SEES, IN_DM, NO_ROW, 0}, GATE_NO_CLOSED},
        {{BOUND_TO_Y_ELSEWHERE, NO_SCOPE, ROUTED_OPEN, P_UNSET, SEES, IN_DM, NO_ROW, 0},
         GATE_YES_OPEN},
        {{UNBOUND, X_HAS_CHANNEL, NO_ROUTE, P_ANY, SEES_LINKED_ELSEWHERE, IN_CHANNEL, NO_ROW, 0},
         GATE_NO_SIGHT_UNKNOWN},
        {{BOUND_TO_X, X_HAS_CHANNEL, ROUTED_OPEN, P_ANY, SEES, IN_CHANNEL, NO_ROW, 0,
          OF_ANOTHER_TENANT},
         GATE_NO_FOREIGN_BOT},
        {{BOUND_TO_X, X_HAS_CHANNEL, ROUTED_OPEN, P_ANY, SEES, IN_CHANNEL, NO_ROW, 0, OF_X},
         GATE_YES_OWNER},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int verdict;
        gate_delivers_to_x(&rows[i].row, &verdict);
        if (verdict != (int)rows[i].reason)
            fail_msg("row %zu: %s, not %s", i,
                     verdict < 0 ? "no candidate" : gate_reason_word(verdict),
                     gate_reason_word(rows[i].reason));
    }
    for (int r = 0; r <= GATE_NO_ALLOWANCE; r++) {
        assert_true(strlen(gate_reason_word(r)) > 0);
        assert_true(strlen(gate_word_sentence(str_of(gate_reason_word(r)))) > 10);
    }
}

static void nobody_linked_granted_or_routed_is_nobody(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    struct gate_verdict v[GATE_CANDIDATES];
    assert_int_equal(decide(&w, &ev, v), 0);
    world_done(&w);
}

static void several_instances_of_one_author_never_both_receive(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel(), dm = ev;
    dm.scope_id = STR_NULL;
    dm.chat_id = STR("d1");
    dm.chat_type = STR("dm");
    link_person(&w, ANN, &w.y);
    link_person(&w, ANN, &w.x);
    /* the oldest link */
    assert_true(received(&w, &ev, &w.y) && verdict_on(&w, &ev, &w.x) == GATE_NO_TIE);
    assert_true(received(&w, &dm, &w.y));
    /* the author's choice */
    map_put(&w.f.dm_defaults, key(&w, "discord", ANN, NULL), &w.x);
    assert_true(received(&w, &dm, &w.x) && verdict_on(&w, &dm, &w.y) == GATE_NO_TIE);
    /* in a place that was granted, its holder; in direct messages still the choice */
    grant(&w, CHANNEL, &w.y);
    assert_true(received(&w, &ev, &w.y) && !received(&w, &ev, &w.x));
    assert_true(received(&w, &dm, &w.x));
    world_done(&w);
}

static void a_choice_of_an_instance_the_author_is_not_linked_to_counts_for_nothing(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    link_person(&w, ANN, &w.x);
    map_put(&w.f.dm_defaults, key(&w, "discord", ANN, NULL), &w.y);
    assert_true(received(&w, &ev, &w.x) && !received(&w, &ev, &w.y));
    world_done(&w);
}

static void a_revoked_instance_is_no_candidate_and_holds_nothing_back(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    link_person(&w, ANN, &w.y);
    link_person(&w, OLGA, &w.x);
    grant(&w, CHANNEL, &w.y);
    grant(&w, "*", &w.x);
    principal(&w, GATE_ANY, NULL);
    assert_false(received(&w, &ev, &w.x));
    w.y.gone = true; /* its people are nobody's, its channel the guild's again */
    assert_int_equal(verdict_on(&w, &ev, &w.y), -1);
    assert_true(received(&w, &ev, &w.x));
    world_done(&w);
}

static void a_bot_is_nobodys_owner(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    ev.author_is_bot = true;
    link_person(&w, ANN, &w.x);
    assert_int_equal(verdict_on(&w, &ev, &w.x), -1);
    world_done(&w);
}

static void bots_that_answer_each_other_are_stopped_and_a_person_starts_them_again(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    struct gate_world world = {.sees = sees, .ctx = &w};
    struct gate_verdict v[GATE_CANDIDATES];
    route(&w, GUILD, &w.x, true);
    w.policy.allow_other_bots = true;
    map_put(&w.x.policies, STR("discord"), &w.policy);
    ev.author_is_bot = true;
    for (world.bot_streak = 1; world.bot_streak <= GATE_BOT_STREAK; world.bot_streak++) {
        assert_int_equal(gate_decide(&w.f, &world, &ev, v), 1);
        assert_true(gate_is_yes(v[0].reason));
    }
    gate_decide(&w.f, &world, &ev, v);
    assert_int_equal(v[0].reason, GATE_NO_BOT_LOOP);
    ev.author_is_bot = false;
    world.bot_streak = 0;
    gate_decide(&w.f, &world, &ev, v);
    assert_int_equal(v[0].reason, GATE_YES_OPEN);
    world_done(&w);
}

static void a_free_place_may_be_a_thread_or_a_topic(void **state)
{
    static const struct {
        const char *free, *guild, *chat, *parent, *thread;
        bool heard;
    } rows[] = {
        {"t1", GUILD, CHANNEL, NULL, "t1", true}, /* a thread that answers open: its own id */
        {"t1", GUILD, "t1", CHANNEL, "t1", true},
        {CHANNEL, GUILD, "t1", CHANNEL, "t1", true},
        {"t2", GUILD, CHANNEL, NULL, "t1", false},
        {"4", NULL, "-100", NULL, "4", true}, /* a topic of a group without a guild */
        {"-100:4", NULL, "-100", NULL, "4", true},
        {"-100:4", NULL, "-200", NULL, "4", false},
        {"-100:5", NULL, "-100", NULL, "4", false},
        {"-100", NULL, "-100", NULL, "4", true},
        {"4", NULL, "-100", NULL, NULL, false}, /* the group outside its topics */
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct world w;
        struct event ev = event_in_channel();
        world_init(&w);
        ev.scope_id = str_of(rows[i].guild);
        ev.chat_id = str_of(rows[i].chat);
        ev.parent_chat_id = str_of(rows[i].parent);
        ev.thread_id = str_of(rows[i].thread);
        route(&w, GUILD, &w.x, true);
        w.policy.require_address = true;
        map_put(&w.policy.ids, str_of(rows[i].free), &w);
        map_put(&w.x.policies, STR("discord"), &w.policy);
        assert_int_equal(received(&w, &ev, &w.x), rows[i].heard);
        world_done(&w);
    }
}

struct counted {
    size_t asked;
    enum gate_sight sight;
};
static enum gate_sight count_sees(void *ctx, const struct event *ev, const struct gate_instance *to,
                                  struct str user)
{
    struct counted *c = ctx;
    assert_str(user, "somebody");
    c->asked++;
    return c->sight;
}

static void of_a_crowd_so_many_are_asked_what_they_see(void **state)
{
    enum { CROWD = 100000 };
    struct gate_link *crowd = xcalloc(CROWD, sizeof *crowd);
    struct counted c = {.sight = GATE_UNSEEN};
    struct gate_world world = {.sees = count_sees, .ctx = &c};
    struct gate_verdict v[GATE_CANDIDATES];
    struct event ev = event_in_channel();
    struct gate_place whole;
    struct world w;

    world_init(&w);
    whole = (struct gate_place){.to = &w.x};
    principal(&w, GATE_ANY, NULL);
    map_put(&w.f.scopes, key(&w, "discord", GUILD, "*"), &whole);
    for (size_t i = 0; i < CROWD; i++) { /* the newest is asked first: it is crowd[0] */
        crowd[i] =
            (struct gate_link){.platform = STR("discord"), .user = STR("somebody"), .bots = "b"};
        list_add_before(w.x.people.next, &crowd[i].of_instance);
    }
    assert_int_equal(gate_decide(&w.f, &world, &ev, v), 1);
    assert_int_equal(v[0].reason, GATE_NO_SIGHT_UNKNOWN);
    assert_int_equal(c.asked, GATE_EYES);
    for (size_t i = 0; i < 10000; i++) /* those elsewhere cost little */
        if (i % 2 == 0)
            crowd[i].platform = STR("telegram");
        else
            crowd[i].bots = "another";
    c = (struct counted){.sight = GATE_SEEN};
    gate_decide(&w.f, &world, &ev, v);
    assert_int_equal(v[0].reason, GATE_YES_SCOPE);
    assert_int_equal(c.asked, 1);
    for (size_t i = 0; i < CROWD; i++) /* and have an end too */
        crowd[i].platform = STR("telegram");
    crowd[CROWD - 1].platform = STR("discord");
    gate_decide(&w.f, &world, &ev, v);
    assert_int_equal(v[0].reason, GATE_NO_SIGHT_UNKNOWN);
    world_done(&w);
    free(crowd);
}

/* An attack: somebody linked to evil writes to the bank's own open bot. */
static void who_is_linked_elsewhere_reaches_the_owner_of_this_bot(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    link_on(&w, ANN, &w.z, "evils"); /* zorg is evil, acme the bank */
    route(&w, GUILD, &w.x, true);
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_YES_OPEN);
    assert_int_equal(verdict_on(&w, &ev, &w.z), GATE_NO_LINKED_ON_OTHER_BOT);
    ev.bot = STR("evils");
    assert_int_equal(verdict_on(&w, &ev, &w.z), GATE_YES_OWNER);
    world_done(&w);
}

static void a_tenants_own_bot_is_closed_to_links_scopes_and_routes_of_others(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    give_bot(&w, "acme");
    link_on(&w, ANN, &w.z, "*");
    grant(&w, CHANNEL, &w.z);
    route(&w, GUILD, &w.z, true);
    route(&w, GUILD, &w.x, true);
    assert_int_equal(verdict_on(&w, &ev, &w.z), GATE_NO_FOREIGN_BOT);
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_YES_OPEN); /* and they are not in its way */
    world_done(&w);
}

static void links_on_other_bots_take_no_room_from_those_that_count(void **state)
{
    enum { MANY = 3 * GATE_CANDIDATES };
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    struct gate_instance *many = xcalloc(MANY, sizeof *many);
    struct gate_link *links = xcalloc(MANY, sizeof *links);
    for (size_t i = 0; i < MANY; i++) {
        many[i] = (struct gate_instance){.tenant = STR("zorg"), .instance = STR("m")};
        links[i] = (struct gate_link){.to = &many[i], .bots = "other", .next = &links[i + 1]};
    }
    links[MANY - 1].next = NULL;
    links[MANY - 1].to = &w.x;
    links[MANY - 1].bots = "other\x1f"
                           "b";
    map_put(&w.f.authors, key(&w, "discord", ANN, NULL), links);
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_YES_OWNER);
    world_done(&w);
    free(links);
    free(many);
}

static void an_asked_sight_is_no_yes_and_only_counts_where_all_else_is_fine(void **state)
{
    struct row r = {UNBOUND, X_HAS_CHANNEL, NO_ROUTE, P_ANY, SEES, IN_CHANNEL, NO_ROW, 0};
    struct world w;

    world_init(&w);
    set_facts(&w, &r);
    w.sight = GATE_SIGHT_ASKED;
    struct event ev = event_of(&r);
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_NO_SIGHT_ASKED);
    assert_false(received(&w, &ev, &w.x));
    assert_true(gate_may_yet(GATE_NO_SIGHT_ASKED) && !gate_may_yet(GATE_NO_SIGHT_UNKNOWN));
    w.x.default_require_address = true;
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_NO_NOT_ADDRESSED);
    w.admission.mode = GATE_OWNER_ONLY;
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_NO_OWNER_ONLY);
    world_done(&w);
}

static void a_group_chat_of_a_platform_without_guilds_is_its_own_guild(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    struct gate_place whole = {.to = &w.x}, topic = {.to = &w.y};
    ev.scope_id = STR_NULL;
    ev.chat_id = STR("-100");
    link_person(&w, OLGA, &w.x);
    principal(&w, GATE_ANY, NULL);
    map_put(&w.f.scopes, key(&w, "discord", "-100", "*"), &whole);
    map_put(&w.f.scopes, key(&w, "discord", "-100", "7"), &topic);
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_YES_SCOPE);
    ev.thread_id = STR("7");
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_NO_CHANNEL_OWNER);
    assert_int_equal(verdict_on(&w, &ev, &w.y), GATE_NO_OWNER_ONLY);
    world_done(&w);
}

static void a_claimed_channel_takes_nothing_from_a_granted_guild(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    struct gate_place whole = {.to = &w.x, .firm = true}, channel = {.to = &w.z};
    link_person(&w, OLGA, &w.x);
    principal(&w, GATE_ANY, NULL);
    map_put(&w.f.scopes, key(&w, "discord", GUILD, "*"), &whole);
    map_put(&w.f.scopes, key(&w, "discord", GUILD, CHANNEL), &channel);
    assert_false(str_eq(w.x.tenant, w.z.tenant));
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_YES_SCOPE);
    channel.firm = true; /* the operator's own word about the channel counts */
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_NO_CHANNEL_OWNER);
    world_done(&w);
}

static void a_route_of_its_own_comes_before_the_route_of_everything(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    route(&w, "*", &w.x, true);
    assert_true(received(&w, &ev, &w.x));
    route(&w, GUILD, &w.y, true);
    assert_true(received(&w, &ev, &w.y) && !received(&w, &ev, &w.x));
    world_done(&w);
}

static void a_place_that_is_routed_is_not_part_of_everything_even_when_it_is_closed(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    route(&w, "*", &w.x, true);
    route(&w, GUILD, &w.y, false);
    assert_int_equal(verdict_on(&w, &ev, &w.y), GATE_NO_CLOSED);
    assert_int_equal(verdict_on(&w, &ev, &w.x), -1);
    world_done(&w);
}

static void what_an_operator_granted_stands_where_a_claim_does_not(void **state)
{
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    link_person(&w, OLGA, &w.x);
    principal(&w, GATE_ANY, NULL);
    grant(&w, CHANNEL, &w.x);
    route(&w, GUILD, &w.z, false);
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_NO_OTHER_TENANT);
    w.places[0].firm = true;
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_YES_SCOPE);
    w.places[0].firm = false;
    ev.bot = ev.route_key; /* the tenant never comes from the bot */
    w.links[0].bots = "*";
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_YES_SCOPE);
    world_done(&w);
}

static void ids_that_contain_the_separator_match_nothing(void **state)
{
    char room[GATE_KEY_MAX];
    assert_null(gate_key(room, STR("discord"),
                         STR("a\x1f"
                             "b"),
                         STR_NULL)
                    .p);
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    grant(&w, CHANNEL, &w.x);
    ev.scope_id = STR(GUILD "\x1f" CHANNEL);
    ev.chat_id = STR("");
    assert_int_equal(verdict_on(&w, &ev, &w.x), -1);
    world_done(&w);
}

static void more_candidates_than_fit_are_left_out_and_nothing_breaks(void **state)
{
    static struct gate_instance many[GATE_CANDIDATES + 10];
    static struct gate_place places[GATE_CANDIDATES + 10];
    struct world w;
    world_init(&w);
    struct event ev = event_in_channel();
    struct gate_verdict v[GATE_CANDIDATES];
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        places[i] = (struct gate_place){.to = &many[i]};
        list_append(&routes_of(&w, GUILD)->places, &places[i].link);
    }
    assert_int_equal(decide(&w, &ev, v), GATE_CANDIDATES);
    world_done(&w);
}

static void a_route_to_a_tenant_leads_to_its_live_instances_up_to_what_fits(void **state)
{
    static struct gate_instance many[GATE_CANDIDATES + 10];
    struct world w;
    struct gate_tenant tenant;
    struct gate_place all = {.all = &tenant};
    struct event ev = event_in_channel();
    struct gate_verdict v[GATE_CANDIDATES];

    (void)state;
    world_init(&w);
    list_init(&tenant.live);
    list_append(&routes_of(&w, GUILD)->places, &all.link);
    assert_int_equal(decide(&w, &ev, v), 0);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        list_append(&tenant.live, &many[i].of_tenant);
    assert_int_equal(decide(&w, &ev, v), GATE_CANDIDATES);
    assert_ptr_equal(v[0].to, &many[0]);
    tenant.live.next = &many[ARRAY_LEN(many) - 3].of_tenant;
    assert_int_equal(decide(&w, &ev, v), 3);
    world_done(&w);
}

static void a_key_whose_routes_lead_nowhere_has_those_of_everything(void **state)
{
    struct world w;
    struct event ev = event_in_channel();

    (void)state;
    world_init(&w);
    routes_of(&w, GUILD);
    route(&w, "*", &w.x, true);
    assert_int_equal(verdict_on(&w, &ev, &w.x), GATE_YES_OPEN);
    world_done(&w);
}

UNIT(core_test_gate)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_truth_table_is_decided_as_the_contract_says),
        cmocka_unit_test(a_restriction_never_adds_a_recipient_and_neither_does_an_unknown),
        cmocka_unit_test(every_no_has_its_reason),
        cmocka_unit_test(nobody_linked_granted_or_routed_is_nobody),
        cmocka_unit_test(several_instances_of_one_author_never_both_receive),
        cmocka_unit_test(a_choice_of_an_instance_the_author_is_not_linked_to_counts_for_nothing),
        cmocka_unit_test(a_revoked_instance_is_no_candidate_and_holds_nothing_back),
        cmocka_unit_test(a_bot_is_nobodys_owner),
        cmocka_unit_test(bots_that_answer_each_other_are_stopped_and_a_person_starts_them_again),
        cmocka_unit_test(a_free_place_may_be_a_thread_or_a_topic),
        cmocka_unit_test(a_group_chat_of_a_platform_without_guilds_is_its_own_guild),
        cmocka_unit_test(of_a_crowd_so_many_are_asked_what_they_see),
        cmocka_unit_test(an_asked_sight_is_no_yes_and_only_counts_where_all_else_is_fine),
        cmocka_unit_test(who_is_linked_elsewhere_reaches_the_owner_of_this_bot),
        cmocka_unit_test(a_tenants_own_bot_is_closed_to_links_scopes_and_routes_of_others),
        cmocka_unit_test(links_on_other_bots_take_no_room_from_those_that_count),
        cmocka_unit_test(a_claimed_channel_takes_nothing_from_a_granted_guild),
        cmocka_unit_test(a_route_of_its_own_comes_before_the_route_of_everything),
        cmocka_unit_test(a_place_that_is_routed_is_not_part_of_everything_even_when_it_is_closed),
        cmocka_unit_test(what_an_operator_granted_stands_where_a_claim_does_not),
        cmocka_unit_test(ids_that_contain_the_separator_match_nothing),
        cmocka_unit_test(more_candidates_than_fit_are_left_out_and_nothing_breaks),
        cmocka_unit_test(a_route_to_a_tenant_leads_to_its_live_instances_up_to_what_fits),
        cmocka_unit_test(a_key_whose_routes_lead_nowhere_has_those_of_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
