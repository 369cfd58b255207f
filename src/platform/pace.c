/* pace.c - design.  (pace.h has the contract.)
 *
 * The bot has a token bucket.  A request of a class may take a token only while the bucket holds
 * more than the reserve of that class.  So cosmetic requests keep the bucket at their reserve, and
 * a message always finds the reserve full.
 *
 * A group has a ring with the times of its last requests.  The n-th last time says when the next
 * request fits below a limit of n per minute, for the limit of any class. */
#include "platform/pace.h"
#include <assert.h>
#include <stdlib.h>
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

enum {
    MINUTE_MS = 60000,
    GROUP_MS = 61000, /* a minute, and some time for the way to the platform */
    MAX_WIDER = 16,
    STRICT_MS = 1800000, /* after a 429 on a burst, none is tried for this time */
    MAX_REFUSED = 3,     /* bursts that the platform refused: none is tried in any chat */
};

struct pace_chat {
    struct list by_age;
    int64_t last_ms;   /* of a message or an edit; monotonic; 0: never, as for the next */
    int64_t draft_ms;  /* of the last preview */
    int64_t credit_ms; /* when all requests of chat_burst are free again */
    int64_t strict_ms; /* until when no burst is tried */
    int64_t until_ms;  /* of a 429 */
    int64_t wide_ms;   /* when the wider gaps end */
    int64_t used_ms;   /* of the last call about this chat */
    unsigned wider;    /* the factor of the gaps until @wide_ms */
    unsigned at;       /* in @times: where the next time goes */
    int64_t times[PACE_MAX_GROUP]; /* of the last requests; 0: none */
    char id[];
};

struct pace {
    struct clock *clock; /* borrowed */
    const struct pace_rules *rules;
    struct map chats;   /* id -> struct pace_chat, owned */
    struct list by_age; /* the longest unused first */
    int64_t refilled_ms;
    int64_t missing;   /* thousandths of a token below full */
    int64_t strict_ms; /* as of a chat */
    int64_t
        spent_ms; /* credit_ms of a chat that this process has not written to; see pace_spent() */
    unsigned n_bursts_refused;
};

struct pace *pace_new(struct clock *clock, const struct pace_rules *rules)
{
    struct pace *p = xcalloc(1, sizeof *p);

    assert(rules->group_max <= PACE_MAX_GROUP);
    p->clock = clock;
    p->rules = rules;
    list_init(&p->by_age);
    return p;
}

void pace_free(struct pace *p)
{
    if (p == NULL)
        return;
    map_done_all(&p->chats);
    free(p);
}

void pace_spent(struct pace *p)
{
    const struct pace_rules *r = p->rules;

    p->refilled_ms = clock_now_ms(p->clock);
    p->missing = r->per_second > 0 ? (int64_t)r->burst * 1000 : 0;
    p->spent_ms = p->refilled_ms + (r->chat_burst > 0 ? (r->chat_burst - 1) * r->gap_ms : 0);
}

/* ---- chats ---- */

static void forget_old(struct pace *p, int64_t now_ms)
{
    for (int i = 0; i < 2 && !list_is_empty(&p->by_age); i++) {
        struct pace_chat *c = list_first(&p->by_age, struct pace_chat, by_age);
        if (c->used_ms + GROUP_MS > now_ms || c->until_ms > now_ms || c->strict_ms > now_ms)
            return;
        list_remove(&c->by_age);
        map_del(&p->chats, str_of(c->id));
        free(c);
    }
}

/* NULL: too many chats. */
static struct pace_chat *chat_get(struct pace *p, struct str id)
{
    int64_t now_ms = clock_now_ms(p->clock);

    forget_old(p, now_ms); /* first: it may forget this very chat */
    struct pace_chat *c = map_get(&p->chats, id);
    if (c == NULL && map_count(&p->chats) < PACE_MAX_CHATS) {
        c = xcalloc(1, sizeof *c + id.n + 1);
        memcpy(c->id, id.p, id.n);
        c->credit_ms = p->spent_ms;
        list_init(&c->by_age);
        map_put(&p->chats, str_of(c->id), c);
    }
    if (c != NULL) {
        c->used_ms = now_ms;
        list_move(&c->by_age, &p->by_age);
    }
    return c;
}

/* Requests per minute that @class may make in a group. */
static uint32_t group_limit(const struct pace_rules *r, enum pace_class class)
{
    return class == PACE_SEND    ? r->group_max
           : class == PACE_FINAL ? r->group_max - r->group_max / 6
                                 : r->group_max - r->group_max / 3;
}

static bool counts_in_chat(enum pace_class class)
{
    return class == PACE_SEND || class == PACE_FINAL || class == PACE_EDIT;
}

/* When the next request of @class may leave in @c. */
static int64_t chat_due_ms(const struct pace *p, const struct pace_chat *c, bool group,
                           enum pace_class class, int64_t now_ms)
{
    const struct pace_rules *r = p->rules;
    int64_t wider = c->wide_ms > now_ms ? c->wider : 1, due = c->until_ms, at = 0;

    if (class == PACE_SEND || class == PACE_FINAL) {
        int64_t depth = class == PACE_SEND ? r->chat_burst : r->chat_burst / 2 + 1;
        if (c->strict_ms > now_ms || p->strict_ms > now_ms)
            depth = 1;
        at = r->chat_burst > 0 ? c->credit_ms - (depth - 1) * r->gap_ms : 0;
    } else if (class == PACE_EDIT && c->last_ms != 0) {
        int64_t gap = r->gap_ms * wider;
        if (group && r->group_max > 0 && GROUP_MS / group_limit(r, class) > gap)
            gap = GROUP_MS / group_limit(r, class);
        at = c->last_ms + gap > c->credit_ms ? c->last_ms + gap : c->credit_ms;
    } else if (class == PACE_DRAFT && c->draft_ms != 0) {
        at = c->draft_ms + r->draft_gap_ms * wider;
    }
    due = at > due ? at : due;
    if (group && r->group_max > 0 && counts_in_chat(class)) {
        unsigned nth = (c->at + PACE_MAX_GROUP - group_limit(r, class)) % PACE_MAX_GROUP;
        if (c->times[nth] != 0 && c->times[nth] + GROUP_MS > due)
            due = c->times[nth] + GROUP_MS;
    }
    return due;
}

/* ---- the whole bot ---- */

static void refill(struct pace *p, int64_t now_ms)
{
    int64_t gone_ms = now_ms - p->refilled_ms;
    int64_t back = gone_ms > MINUTE_MS ? p->missing : gone_ms * p->rules->per_second;

    p->missing = back < p->missing ? p->missing - back : 0;
    p->refilled_ms = now_ms;
}

/* Thousandths of tokens that @class leaves in the bucket. */
static int64_t reserve(const struct pace_rules *r, enum pace_class class)
{
    static const int64_t eighths[PACE_CLASSES] = {
        [PACE_SEND] = 0, [PACE_FINAL] = 2, [PACE_REACT] = 3,
        [PACE_EDIT] = 4, [PACE_DRAFT] = 4, [PACE_TYPING] = 6,
    };

    return (int64_t)r->burst * 125 * eighths[class];
}

static int64_t bot_wait_ms(struct pace *p, enum pace_class class, int64_t now_ms)
{
    const struct pace_rules *r = p->rules;

    if (r->per_second == 0)
        return 0;
    refill(p, now_ms);
    int64_t over = p->missing + 1000 + reserve(r, class) - (int64_t)r->burst * 1000;
    return over > 0 ? (over + r->per_second - 1) / r->per_second : 0;
}

int64_t pace_wait_ms(struct pace *p, struct str chat, bool group, enum pace_class class)
{
    int64_t now_ms = clock_now_ms(p->clock), wait_ms = bot_wait_ms(p, class, now_ms);
    const struct pace_chat *c = chat.p != NULL ? map_get(&p->chats, chat) : NULL;
    int64_t chat_ms = c != NULL ? chat_due_ms(p, c, group, class, now_ms) - now_ms : 0;

    return chat_ms > wait_ms ? chat_ms : wait_ms;
}

void pace_count(struct pace *p, struct str chat, bool group, enum pace_class class)
{
    int64_t now_ms = clock_now_ms(p->clock);
    struct pace_chat *c = chat_get(p, chat);

    refill(p, now_ms);
    p->missing += p->rules->per_second > 0 ? 1000 : 0;
    if (c == NULL)
        return;
    if (class == PACE_DRAFT)
        c->draft_ms = now_ms;
    if (!counts_in_chat(class))
        return;
    c->last_ms = now_ms;
    c->credit_ms = (c->credit_ms > now_ms ? c->credit_ms : now_ms) + p->rules->gap_ms;
    if (group) {
        c->times[c->at] = now_ms;
        c->at = (c->at + 1) % PACE_MAX_GROUP;
    }
}

void pace_hit(struct pace *p, struct str chat, int64_t retry_after_ms)
{
    int64_t now_ms = clock_now_ms(p->clock);
    struct pace_chat *c = chat_get(p, chat);

    if (c == NULL)
        return;
    /* It came after a burst of ours. */
    if (c->credit_ms > now_ms + p->rules->gap_ms && now_ms >= p->spent_ms) {
        c->strict_ms = now_ms + STRICT_MS;
        if (++p->n_bursts_refused >= MAX_REFUSED)
            p->strict_ms = now_ms + STRICT_MS;
    }
    if (now_ms + retry_after_ms > c->until_ms)
        c->until_ms = now_ms + retry_after_ms;
    c->wider = c->wide_ms > now_ms ? c->wider * 2 : 2;
    if (c->wider > MAX_WIDER)
        c->wider = MAX_WIDER;
    c->wide_ms = c->until_ms + MINUTE_MS;
}

size_t pace_n_limited(const struct pace *p, int64_t *ret_shortest_ms)
{
    int64_t now_ms = clock_now_ms(p->clock);
    size_t n = 0;
    void *value;

    for (size_t i = 0; map_next(&p->chats, &i, &value);) {
        const struct pace_chat *c = value;
        int64_t left_ms = c->until_ms - now_ms;
        if (left_ms <= 0)
            continue;
        if (n++ == 0 || left_ms < *ret_shortest_ms)
            *ret_shortest_ms = left_ms;
    }
    return n;
}
