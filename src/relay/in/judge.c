/* judge.c - design.  (judge.h has the contract.)
 *
 * The bot streaks are one bounded table, indexed by a keyed hash of the chat, one slot each.  A
 * chat that loses its slot to another starts again at one, which can delay the loop guard and never
 * trips it early. */
#include "relay/in/judge.h"
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/out/chats.h"
#include "relay/out/guard.h"
#include "relay/relay.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

enum { STREAKS = 8192 };

struct streak {
    uint64_t chat; /* hash; 0: free */
    uint32_t n;    /* bots in a row */
};

struct judge {
    struct streak *streaks; /* owned; NULL until a bot speaks */
    struct buf scratch;
};

struct judge *judge_new(void)
{
    return xcalloc(1, sizeof(struct judge));
}

void judge_free(struct judge *j)
{
    if (j == NULL)
        return;
    free(j->streaks);
    buf_done(&j->scratch);
    free(j);
}

/* ---- bots in a row ---- */

/* The number of bots in a row, @ev included; 0: the author is no bot.  @count remembers it. */
static unsigned streak_with(struct relay *r, const struct event *ev, bool count)
{
    struct judge *j = r->judge;

    if (j->streaks == NULL && !count)
        return 1;
    if (j->streaks == NULL)
        j->streaks = xcalloc(STREAKS, sizeof *j->streaks);
    buf_reset(&j->scratch);
    buf_add_str(&j->scratch, ev->platform);
    buf_add_c(&j->scratch, '\x1f');
    buf_add_str(&j->scratch, ev->chat_id);
    uint64_t chat = hash64(&r->env.store->dedup_key, buf_str(&j->scratch)) | 1;
    struct streak *s = &j->streaks[(chat >> 16) % STREAKS];
    unsigned n = ev->author_is_bot ? (s->chat == chat ? s->n + 1 : 1) : 0;
    if (count && ev->author_is_bot)
        *s = (struct streak){chat, n};
    else if (count && s->chat == chat)
        *s = (struct streak){0};
    return n;
}

/* ---- who can see ---- */

/* Asks the platform if it knows its permissions.  Elsewhere a chat counts as seen once the instance
 * has a delivery from it through this bot: an owner spoke there, or an operator routed it. */
static enum gate_sight sees(void *ctx, const struct event *ev, const struct gate_instance *to,
                            struct str user)
{
    struct relay *r = ctx;
    struct outside *outside = r->env.outside;
    const struct outlet *at = outside->find(outside, ev->platform, ev->bot);

    if (at == NULL)
        return GATE_SIGHT_UNKNOWN;
    if (at->knows_sight)
        return outside->sees(outside, at, ev, user);
    const struct instance *i = instance_find(r, to->tenant, to->instance);
    const struct known_chat *chat = i != NULL ? chats_find(i, ev->platform, ev->chat_id) : NULL;
    return chat != NULL && basis_shows(chat, ev->bot) ? GATE_SEEN : GATE_SIGHT_UNKNOWN;
}

enum gate_sight judge_sees(struct relay *r, const struct gate_instance *to,
                           const struct event *place)
{
    struct gate_eyes e = gate_eyes_of(to, place->platform, place->bot);
    enum gate_sight best = GATE_UNSEEN;

    for (const struct gate_link *l; (l = gate_next_eye(&e)) != NULL;) {
        enum gate_sight one = sees(r, place, to, l->user);
        if (one == GATE_SEEN)
            return one;
        if (one > best)
            best = one; /* asked, then unknown, then unseen */
    }
    return best;
}

bool judge_reads_context(struct relay *r, const struct gate_verdict *v, const struct event *ev)
{
    const struct outlet *at = r->env.outside->find(r->env.outside, ev->platform, ev->bot);
    struct event place = *ev;

    if (!v->to->newer)
        return false;
    if (v->reason == GATE_YES_OPEN)
        return true;
    if (v->reason == GATE_YES_OWNER && at != NULL && !at->knows_sight)
        return true; /* an owner who writes in the chat is a member of it */
    place.looks_back = true;
    return judge_sees(r, v->to, &place) == GATE_SEEN;
}

/* ---- asking ---- */

struct event judge_route(struct relay *r, const struct event *ev)
{
    struct event routed = *ev;

    r->n.routings++;
    routed.own_key = ev->route_key;
    struct str key = facts_route_key(r->env.facts, ev);
    if (key.p != NULL)
        routed.route_key = key;
    return routed;
}

size_t judge_ask(struct relay *r, const struct event *ev, struct gate_verdict *out)
{
    struct gate_world world = {.sees = sees,
                               .ctx = r,
                               .bot_streak = ev->author_is_bot ? streak_with(r, ev, false) : 0};

    r->n.judgements++;
    return gate_decide(facts_gate(r->env.facts), &world, ev, out);
}

void judge_note(struct relay *r, const struct event *ev)
{
    if (ev->author_is_bot || r->judge->streaks != NULL)
        streak_with(r, ev, true);
}

void relay_each_target(struct relay *r, const struct event *ev, target_cb *cb, void *ctx)
{
    struct gate_verdict verdicts[GATE_CANDIDATES];
    struct event routed = judge_route(r, ev);
    size_t n = judge_ask(r, &routed, verdicts);

    for (size_t i = 0; i < n; i++)
        if (gate_is_yes(verdicts[i].reason))
            cb(ctx, verdicts[i].to->tenant, verdicts[i].to->instance);
}

void judge_consumed(struct relay *r, const struct event *ev, const char *what)
{
    journal_event(r->journal, clock_wall_ms(r->env.clock), ev, JOURNAL_CONSUMED, what, NULL, NULL,
                  0);
}

void relay_refused(struct relay *r, const struct event *ev, const char *why)
{
    journal_event(r->journal, clock_wall_ms(r->env.clock), ev, JOURNAL_REFUSED, why, NULL, NULL, 0);
}
