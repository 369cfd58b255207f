/* gate.h - whose message is it: one pure function over an event and the facts.
 *
 *      deliver  <=>  authorized  AND  visible  AND  relevant     (it only narrows; unknown is no)
 *
 *   authorized  the author is linked to the instance (the owner floor), or the instance was granted
 *               the place by a scope, or an operator opened a route to it; and its principal policy
 *               admits the author: in a scope nobody but the owner until it says otherwise, in an
 *               open place everybody until it says otherwise.  A route that is not open says whose
 *               place it is and delivers to nobody
 *   visible     one of the people linked to the instance can see this place.  What an author wrote
 *               there they have seen; an open route is the operator's word and needs no sight
 *   relevant    the instance's own wish for this platform: must be addressed, unless in a free
 *               place; other bots or not.  The owner floor passes by it: nobody has to mention
 *               their own agent
 *
 * Author first: a linked author reaches their own instances only, and one of them only.  With
 * several, the one granted the place wins; else, and in direct messages always, the one the author
 * chose (dm-default); else the oldest link.
 *
 * What an instance claimed for itself counts for nothing in a place that an operator routed to
 * another tenant.
 *
 * A place is (platform, guild, channel).  Where a platform has no guilds, a group chat is its own
 * guild and its topics are the channels.  A thread belongs to the channel it hangs under, unless it
 * was granted by itself.
 *
 * Every candidate gets a verdict with its reason, so that `bellhop why` can tell who did not
 * receive and why.  No allocation, no I/O, no clock.  The indexes in struct gate_facts are kept by
 * tenancy/grants.h.
 */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "core/event.h"

#define GATE_CANDIDATES 128 /* per event; past it nobody more is considered */
#define GATE_BOT_STREAK 12  /* bot messages in a row in one chat before we stop answering bots */

enum gate_principal { GATE_OWNER_ONLY, GATE_ALLOW_LIST, GATE_ANY };

struct gate_policy { /* one platform's wish of one instance */
    bool require_address, allow_other_bots;
    struct map free_places; /* chat ids; values are non-NULL */
};

struct gate_owner { /* a person linked to an instance */
    struct gate_owner *next;
    struct str platform, user; /* borrowed from the binding that owns this */
    struct gate_owner **at;    /* what points here: whoever keeps the list leaves it by this */
};

struct gate_tenant {
    struct str name;  /* borrowed */
    struct list live; /* gate_instance.of_tenant: those with a gateway that was not revoked */
};

struct gate_instance {            /* what the gate knows of one instance */
    struct list of_tenant;        /* gate_tenant.live */
    struct str tenant, instance;  /* borrowed */
    struct map principals;        /* platform, or "*" -> struct gate_admission */
    struct map policies;          /* platform -> struct gate_policy */
    struct gate_owner *owners;    /* everybody linked to it */
    uint32_t life;                /* how often this name was given up: see tenancy/grants.h */
    bool default_require_address; /* its tenant's wish where it has no policy */
    bool newer;                   /* its gateway takes that wish for granted */
    bool gone;                    /* revoked: it is no candidate */
};

struct gate_admission {
    enum gate_principal mode;
    struct map allow; /* user ids; values are non-NULL */
};

struct gate_link { /* author -> instance; a list per author, oldest first */
    struct gate_link *next;
    struct gate_instance *to;
    struct gate_link *prev; /* of the first: the last */
};
struct gate_place {                /* a granted place: whom it leads to */
    struct list link;              /* of a route: gate_routes.places */
    struct gate_instance *to;      /* NULL: ... */
    const struct gate_tenant *all; /* ... to every instance of a tenant; routes only */
    bool open;                     /* of a route: an operator lets everybody in */
    bool firm;                     /* of a scope: an operator's word, no claim of its own */
};
struct gate_routes {
    struct list places; /* gate_place.link: those that lead anywhere, oldest first */
};

struct gate_facts {     /* keys are joined by gate_key() */
    struct map authors; /* (platform, user)           -> struct gate_link list */
    struct map
        scopes; /* (platform, guild, channel) -> struct gate_place; channel "*": the whole guild */
    struct map routes; /* (platform, route key)      -> struct gate_routes; key "*": everything */
    struct map dm_defaults; /* (platform, user)           -> struct gate_instance */
};

enum gate_sight { GATE_UNSEEN, GATE_SEEN, GATE_SIGHT_UNKNOWN };
/* Can @user, who is linked to @to, see where @ev was written? */
typedef enum gate_sight gate_sees_fn(void *ctx, const struct event *ev,
                                     const struct gate_instance *to, struct str user);

struct gate_world {
    gate_sees_fn *sees; /* NULL: nothing is known */
    void *ctx;
    unsigned bot_streak; /* bot messages in a row in this chat, this one included */
};

enum gate_reason {
    /* delivered */
    GATE_YES_OWNER, /* the author is linked to this instance */
    GATE_YES_SCOPE, /* granted this place, and the author is admitted */
    GATE_YES_OPEN,  /* an operator opened the place to everybody */
    /* not delivered */
    GATE_NO_AUTHOR_FIRST,  /* the author is linked to another instance of their own */
    GATE_NO_TIE,           /* another instance of the same author takes it */
    GATE_NO_OWNER_ONLY,    /* admits only people linked to it */
    GATE_NO_CLOSED,        /* its place by a route, which is not open */
    GATE_NO_ELSEWHERE,     /* it claimed the place, but an operator routed it to another tenant */
    GATE_NO_NOT_LISTED,    /* the author is not on its list */
    GATE_NO_CHANNEL_OWNER, /* granted the guild, but this channel belongs to another instance */
    GATE_NO_UNSEEN,        /* nobody linked to it can see this place */
    GATE_NO_SIGHT_UNKNOWN, /* whether they can is not known */
    GATE_NO_NOT_ADDRESSED, /* it wants to be mentioned or replied to */
    GATE_NO_OTHER_BOT,     /* the author is a bot and it does not listen to bots */
    GATE_NO_BOT_LOOP,      /* bots have been answering each other */
    GATE_NO_NOT_ASKED,     /* it answers what another instance asked */
};

struct gate_verdict {
    const struct gate_instance *to;
    enum gate_reason reason;
};

static inline bool gate_is_yes(enum gate_reason r)
{
    return r <= GATE_YES_OPEN;
}
const char *
gate_reason_word(enum gate_reason r); /* "owner", "not_addressed": stable, for JSON and metrics */
const char *gate_reason_sentence(enum gate_reason r); /* for people */

/* Those linked to an instance on one platform, the newest links first, who are asked what they see:
 * so many of so many, and when none of these sees it nobody knows.
 *
 *      struct gate_eyes e = gate_eyes_of(to);
 *      for (const struct gate_owner *o; (o = gate_next_eye(&e, platform)) != NULL;) ... */
struct gate_eyes {
    const struct gate_owner *next;
    unsigned left; /* steps; somebody who is asked is 16 of them */
};
#define GATE_EYES 1024
static inline struct gate_eyes gate_eyes_of(const struct gate_instance *to)
{
    return (struct gate_eyes){to->owners, 16 * GATE_EYES};
}
static inline const struct gate_owner *gate_next_eye(struct gate_eyes *e, struct str platform)
{
    while (e->next != NULL && e->left >= 16) {
        const struct gate_owner *o = e->next;
        bool here = str_eq(o->platform, platform);
        e->next = o->next;
        e->left -= here ? 16 : 1;
        if (here)
            return o;
    }
    return NULL;
}

/* Decide.  @out has room for GATE_CANDIDATES; returns how many candidates there were.  None: nobody
 * is linked, granted or routed here. */
size_t gate_decide(const struct gate_facts *f, const struct gate_world *w, const struct event *ev,
                   struct gate_verdict *out);

/* The guild an event's place lies in; absent: none (direct messages). */
struct str gate_guild_of(const struct event *ev);

/* The joined key of the indexes: parts separated by 0x1f, which no id may contain; an absent part
 * is left out.  STR_NULL when it does not fit @room or a part contains the separator: such ids
 * match nothing. */
#define GATE_KEY_MAX 512
struct str gate_key(char room[GATE_KEY_MAX], struct str a, struct str b, struct str c);
