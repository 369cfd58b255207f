/* gate.h - decides which instances receive an event, and why: one pure function.
 *
 *      deliver  <=>  authorized  AND  visible  AND  relevant     (each step only narrows)
 *
 *   authorized  the author is linked to the instance (an owner), or a scope grants the place to the
 *               instance, or an operator's open route leads there.  Except for owners, the
 *               instance's principal must admit the author; the default admits nobody in a scope
 *               and everybody on an open route.  A route that is not open delivers nothing
 *   visible     in a scope, a person linked to the instance must be able to see the place; unknown
 *               means no.  Owners and open routes skip this check
 *   relevant    the instance's policy for the platform: whether it must be addressed, except in a
 *               free place, and whether it hears other bots.  Owners skip this check
 *
 * A link counts on the bots that it was made for, and nowhere else: for the author of an event, and
 * for the people who must see a place.  A bot may belong to one tenant (gate_facts.bots); then no
 * instance of another tenant is a candidate on that bot, whatever the other records say.
 *
 * A linked author reaches only one of their own instances.  With several, the instance that was
 * granted the place wins, except in direct messages.  Next comes the author's choice (dm-default),
 * then the oldest link.
 *
 * A scope that no operator granted does not count in a place that an operator routed to another
 * tenant.
 *
 * A place is (platform, guild, channel).  Where a platform has no guilds, a group chat is its own
 * guild and its topics are the channels.  A thread belongs to its parent channel, unless the thread
 * itself was granted.
 *
 * relay/in/judge.c calls gate_decide().  Every candidate gets a verdict with a reason, which
 * `bellhop why` shows.  The gate allocates nothing and uses no I/O and no clock.  tenancy/grants.c
 * and tenancy/routes.c keep the indexes in struct gate_facts.
 */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "core/event.h"

#define GATE_CANDIDATES 128 /* per event; further instances are not considered */
#define GATE_BOT_STREAK 12  /* bot messages in a row in one chat that are still delivered */
#define GATE_LINKS 4096     /* links of one author that are looked at */

enum gate_principal { GATE_OWNER_ONLY, GATE_ALLOW_LIST, GATE_ANY };

struct gate_rule { /* what an instance declared for one platform: a principal, or a policy */
    struct map
        ids; /* the users on the allow list; or the chats, threads and topics in which it need
                     * not be addressed.  Values are non-NULL */
    enum gate_principal mode;               /* of a principal: whom it admits */
    bool require_address, allow_other_bots; /* of a policy */
};

struct gate_tenant {
    struct str name;  /* borrowed */
    struct list live; /* gate_instance.of_tenant: those with a gateway that is not revoked */
};

enum gate_period { GATE_HOUR, GATE_DAY, GATE_WEEK, GATE_MONTH };

struct gate_allowance { /* how many deliveries each person, or each chat, may cause in a period */
    uint32_t turns;
    enum gate_period period;
    bool per_chat; /* else per person */
    char *reply;   /* owned; what a person over it is told; NULL: a sentence of bellhop's own */
};

struct gate_instance {            /* an instance as the gate sees it */
    struct list of_tenant;        /* gate_tenant.live */
    struct str tenant, instance;  /* borrowed */
    struct map principals;        /* platform, or "*" -> struct gate_rule */
    struct map policies;          /* platform -> struct gate_rule */
    struct list people;           /* gate_link.of_instance: the people linked to it, by age */
    uint32_t life;                /* how often an instance of this name ended: tenancy/grants.h */
    bool default_require_address; /* the tenant's default, used without a policy */
    bool newer;                   /* newer gateway: without a policy it must be addressed */
    bool gone;                    /* all its gateways are revoked: never a candidate */
    struct gate_allowance *allowance; /* owned; NULL: none.  The relay counts */
};

struct gate_link {           /* a person is linked to an instance */
    struct gate_link *next;  /* links of the same person, oldest first */
    struct gate_link *prev;  /* of the first: the last */
    struct list of_instance; /* gate_instance.people */
    struct gate_instance *to;
    struct str platform, user; /* borrowed */
    const char *bots; /* the bots it counts on, divided by 0x1f; "*": every bot.  Borrowed */
};
struct gate_bot {      /* a bot that belongs to one tenant */
    struct str tenant; /* borrowed */
};
struct gate_place {                /* where a scope or a route leads */
    struct list link;              /* of a route: gate_routes.places */
    struct gate_instance *to;      /* NULL: to all live instances of ... */
    const struct gate_tenant *all; /* ... this tenant; routes only */
    bool open;                     /* of a route: the operator admits every author */
    bool firm;                     /* of a scope: granted by an operator */
};
struct gate_routes {
    struct list places; /* gate_place.link: those with a live target, oldest first */
};

struct gate_facts {     /* keys are joined by gate_key() */
    struct map authors; /* (platform, user)           -> struct gate_link list */
    struct map
        scopes; /* (platform, guild, channel) -> struct gate_place; channel "*": the whole guild */
    struct map routes; /* (platform, route key)      -> struct gate_routes; key "*": everything */
    struct map dm_defaults; /* (platform, user)           -> struct gate_instance */
    struct map bots;        /* (platform, bot)            -> struct gate_bot */
};

/* True when the link counts on @bot. */
bool gate_counts_on(const struct gate_link *l, struct str bot);
/* True when the bot belongs to a tenant other than @tenant. */
bool gate_is_barred(const struct gate_facts *f, struct str platform, struct str bot,
                    struct str tenant);

enum gate_sight {
    GATE_UNSEEN,
    GATE_SEEN,
    GATE_SIGHT_UNKNOWN,
    GATE_SIGHT_ASKED, /* unknown, and the platform is being asked */
};
/* Whether @user, who is linked to @to, can see the place of @ev. */
typedef enum gate_sight gate_sees_fn(void *ctx, const struct event *ev,
                                     const struct gate_instance *to, struct str user);

struct gate_world {
    gate_sees_fn *sees; /* NULL: visibility is unknown */
    void *ctx;
    unsigned bot_streak; /* bot messages in a row in this chat, this event included */
};

enum gate_reason {
    /* delivered */
    GATE_YES_OWNER, /* the author is linked to this instance */
    GATE_YES_SCOPE, /* a scope grants the place, and the author is admitted */
    GATE_YES_OPEN,  /* an operator's open route leads to this instance */
    /* not delivered */
    GATE_NO_AUTHOR_FIRST,  /* the author is linked to another instance */
    GATE_NO_TIE,           /* another instance of the same author receives it */
    GATE_NO_OWNER_ONLY,    /* the instance admits only people linked to it */
    GATE_NO_CLOSED,        /* a route gives the place to the instance, but is not open */
    GATE_NO_OTHER_TENANT,  /* the instance claimed a place that is routed to another tenant */
    GATE_NO_NOT_LISTED,    /* the author is not on the allow list */
    GATE_NO_CHANNEL_OWNER, /* has the guild, but another instance has this channel */
    GATE_NO_UNSEEN,        /* no person linked to the instance can see this place */
    GATE_NO_SIGHT_UNKNOWN, /* the visibility of the place is not known */
    GATE_NO_SIGHT_ASKED,   /* not known yet: the platform has not answered; all else is fine */
    GATE_NO_NOT_ADDRESSED, /* the instance must be mentioned or replied to */
    GATE_NO_OTHER_BOT,     /* the author is a bot, and the instance ignores bots */
    GATE_NO_BOT_LOOP,      /* more than GATE_BOT_STREAK bot messages in a row */
    GATE_NO_NOT_ASKED,     /* the event answers a question of another instance */
    GATE_NO_LINKED_ON_OTHER_BOT, /* the author is linked to the instance, but on other bots */
    GATE_NO_FOREIGN_BOT,         /* the bot belongs to another tenant */
    GATE_NO_ALLOWANCE, /* the author's or the chat's allowance is used up: the relay says so */
};
#define GATE_REASONS (GATE_NO_ALLOWANCE + 1) /* how many there are */

struct gate_verdict {
    const struct gate_instance *to;
    enum gate_reason reason;
};

static inline bool gate_is_yes(enum gate_reason r)
{
    return r <= GATE_YES_OPEN;
}
/* True when the instance receives the event, or will once the platform answers. */
static inline bool gate_may_yet(enum gate_reason r)
{
    return gate_is_yes(r) || r == GATE_NO_SIGHT_ASKED;
}
const char *
gate_reason_word(enum gate_reason r); /* "owner", "not_addressed": stable, for JSON and metrics */
const char *gate_word_sentence(struct str word); /* for people; NULL: no gate_reason_word() */

/* Iterates over the people linked to an instance on one bot, newest links first.  The walk is
 * bounded: at most GATE_EYES people are asked, and at most 16 * GATE_EYES links are visited.  Past
 * the bound the visibility counts as unknown.
 *
 *      struct gate_eyes e = gate_eyes_of(to, platform, bot);
 *      for (const struct gate_link *l; (l = gate_next_eye(&e)) != NULL;) ... */
struct gate_eyes {
    const struct list *head, *next;
    struct str platform, bot; /* borrowed */
    unsigned left;            /* steps; a person on the bot costs 16, any other costs 1 */
};
#define GATE_EYES 1024
struct gate_eyes gate_eyes_of(const struct gate_instance *to, struct str platform, struct str bot);
const struct gate_link *gate_next_eye(struct gate_eyes *e); /* NULL: no more, or out of steps */

/* Writes a verdict per candidate to @out, which has room for GATE_CANDIDATES.  Returns how many
 * candidates there are.  0: no link, scope or route matches the event. */
size_t gate_decide(const struct gate_facts *f, const struct gate_world *w, const struct event *ev,
                   struct gate_verdict *out);

/* Joins the parts of an index key, separated by 0x1f, in @room.  Absent parts are left out.
 * Returns STR_NULL when the key does not fit or a part contains 0x1f: such ids match nothing. */
#define GATE_KEY_MAX 512
struct str gate_key(char room[GATE_KEY_MAX], struct str a, struct str b, struct str c);
