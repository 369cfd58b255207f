/* judge.c - design.  (judge.h has the contract.)
 *
 * There are two bounded tables.  The bot streaks are indexed by a keyed hash of the chat, one slot
 * each.  A chat that loses its slot to another starts again at one, which can delay the loop guard
 * and never trips it early.  The decisions are a ring of fixed slots with the ids cut to fit; a
 * message is found by the hash of its whole id. */
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

enum { STREAKS = 8192, ID_SHOWN = 72 };

struct streak {
    uint64_t chat; /* hash; 0: free */
    uint32_t n;    /* bots in a row */
};

struct judged {
    struct hash128 message; /* of platform and message id */
    int64_t at_ms;          /* wall; 0: free */
    const char *consumed;   /* a literal; NULL: it went through the gate, or was refused */
    const char *refused;    /* a literal; NULL: the adapter did not refuse it */
    uint32_t n;             /* candidates, including those without a kept verdict */
    struct gate_verdict verdicts[JUDGED_VERDICTS]; /* recipients come first */
    char platform[24], message_id[ID_SHOWN], chat_id[ID_SHOWN], user_id[ID_SHOWN], chat_type[12];
};

struct judge {
    struct streak *streaks; /* owned; NULL until a bot speaks */
    struct judged *ring;    /* owned; NULL until the first event */
    size_t next;
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
    free(j->ring);
    buf_done(&j->scratch);
    free(j);
}

static struct str joined(struct judge *j, struct str a, struct str b)
{
    buf_reset(&j->scratch);
    buf_add_str(&j->scratch, a);
    buf_add_c(&j->scratch, '\x1f');
    buf_add_str(&j->scratch, b);
    return buf_str(&j->scratch);
}

/* ---- bots in a row ---- */

/* The number of bots in a row, @ev included; 0: the author is no bot.  @count remembers it. */
static unsigned streak_with(struct relay *r, const struct event *ev, bool count)
{
    struct judge *j = r->judge;

    if (j->streaks == NULL && (!ev->author_is_bot || !count))
        return ev->author_is_bot;
    if (j->streaks == NULL)
        j->streaks = xcalloc(STREAKS, sizeof *j->streaks);
    uint64_t chat = hash64(&r->env.store->dedup_key, joined(j, ev->platform, ev->chat_id)) | 1;
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
    const struct known_chat *chat = i != NULL ? chats_find_on(i, ev->platform, ev->chat_id) : NULL;
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

bool judge_looks_back(struct relay *r, const struct gate_verdict *v, const struct event *ev)
{
    const struct outlet *at = r->env.outside->find(r->env.outside, ev->platform, ev->bot);
    struct event place = *ev;

    if (v->reason == GATE_YES_OPEN)
        return true;
    if (v->reason == GATE_YES_OWNER && at != NULL && !at->knows_sight)
        return true; /* an owner who writes in the chat is a member of it */
    place.looks_back = true;
    return judge_sees(r, v->to, &place) == GATE_SEEN;
}

bool judge_reads_context(struct relay *r, const struct gate_verdict *v, const struct event *ev)
{
    return v->to->newer && judge_looks_back(r, v, ev);
}

/* ---- asking and remembering ---- */

static void show(char *to, size_t room, struct str s)
{
    size_t n = s.n < room ? s.n : room - 1;

    if (n > 0) /* not by snprintf(): for every event, five times */
        memcpy(to, s.p, n);
    to[n] = '\0';
}

static struct judged *remember(struct relay *r, const struct event *ev)
{
    struct judge *j = r->judge;
    struct str id = str_is_empty(ev->message_id) ? ev->event_id : ev->message_id;

    if (j->ring == NULL)
        j->ring = xcalloc(JUDGED_MAX, sizeof *j->ring);
    struct judged *d = &j->ring[j->next++ % JUDGED_MAX];
    d->message = hash128(&r->env.store->dedup_key, joined(j, ev->platform, id));
    d->at_ms = clock_wall_ms(r->env.clock);
    d->consumed = d->refused = NULL;
    d->n = 0;
    show(d->platform, sizeof d->platform, ev->platform);
    show(d->message_id, sizeof d->message_id, id);
    show(d->chat_id, sizeof d->chat_id, ev->chat_id);
    show(d->chat_type, sizeof d->chat_type, ev->chat_type);
    show(d->user_id, sizeof d->user_id, ev->user_id);
    return d;
}

struct event judge_route(struct relay *r, const struct event *ev)
{
    struct event routed = *ev;

    r->n.routings++;
    routed.own_key = ev->route_key;
    routed.route_key = facts_route_key(r->env.facts, ev);
    return routed;
}

size_t judge_ask(struct relay *r, const struct event *ev, struct gate_verdict *out)
{
    struct gate_world world = {.sees = sees, .ctx = r, .bot_streak = streak_with(r, ev, false)};

    r->n.judgements++;
    return gate_decide(facts_gate(r->env.facts), &world, ev, out);
}

void judge_note(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                size_t n, bool counts)
{
    struct judged *d = remember(r, ev);
    size_t kept = 0;

    if (counts)
        streak_with(r, ev, true);
    d->n = (uint32_t)n;
    for (int yes = 1; yes >= 0; yes--)
        for (size_t i = 0; i < n && kept < JUDGED_VERDICTS; i++)
            if (gate_is_yes(verdicts[i].reason) == (yes == 1))
                d->verdicts[kept++] = verdicts[i];
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
    remember(r, ev)->consumed = what;
}

void relay_refused(struct relay *r, const struct event *ev, const char *why)
{
    remember(r, ev)->refused = why;
}

/* ---- looking back ---- */

size_t relay_why(struct relay *r, struct str platform, struct str message_id, size_t limit,
                 decision_cb *cb, void *ctx)
{
    struct judge *j = r->judge;
    struct hash128 wanted = hash128(&r->env.store->dedup_key, joined(j, platform, message_id));
    int64_t oldest_ms = clock_wall_ms(r->env.clock) - JUDGED_MS;
    size_t n = j->next < JUDGED_MAX ? j->next : JUDGED_MAX, found = 0;

    for (size_t i = 1; i <= n && found < limit; i++) { /* newest first */
        const struct judged *d = &j->ring[(j->next - i) % JUDGED_MAX];
        if (d->at_ms < oldest_ms)
            break;
        if (!str_is_empty(message_id) && (d->message.lo != wanted.lo || d->message.hi != wanted.hi))
            continue;
        if (!str_is_empty(platform) && !str_eq(str_of(d->platform), platform))
            continue;
        struct decision_view v = {.at_ms = d->at_ms,
                                  .platform = d->platform,
                                  .message_id = d->message_id,
                                  .chat_id = d->chat_id,
                                  .chat_type = d->chat_type,
                                  .user_id = d->user_id,
                                  .consumed = d->consumed,
                                  .refused = d->refused,
                                  .verdicts = d->verdicts,
                                  .n_verdicts = d->n < JUDGED_VERDICTS ? d->n : JUDGED_VERDICTS,
                                  .n_candidates = d->n};
        cb(ctx, &v);
        found++;
    }
    return found;
}
