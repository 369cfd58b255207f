/* guard.c - design.  (guard.h has the contract.)
 *
 * Nothing is kept here: chats, facts and personas are asked each time. */
#include "relay/guard.h"
#include "relay/chats.h"
#include "relay/heart.h"
#include "relay/instance.h"
#include "relay/judge.h"
#include "relay/persona.h"
#include "relay/session.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

#define ERROR_IDENTITY "identity not announced on this socket"
#define ERROR_NO_BOT "no such bot is served here"
#define ERROR_CAPABILITY "capability not available"

/* Who it speaks as.  NULL: @ret is set; else why not. */
static const char *choose_persona(const struct session *s, const struct action *a,
                                  struct destination *ret)
{
    const struct known_chat *chat;
    struct str bot;

    if (a->platform.n == 0 || str_eq(a->platform, STR("relay"))) {
        chat = chats_find(s->inst, a->chat_id);
        if (chat != NULL)
            *ret = (struct destination){.platform = chat->platform, .bot = str_of(chat->bot)};
        else if (!persona_default(s, &ret->platform, &ret->bot))
            return ACTION_ERROR_NOT_ROUTED;
        return NULL;
    }
    chat = chats_find_on(s->inst, a->platform, a->chat_id);
    ret->platform = a->platform;
    ret->bot = a->bot;
    if (chat != NULL && (a->bot.n == 0 || str_eq(a->bot, str_of(chat->bot)))) {
        ret->bot = str_of(chat->bot);
        return NULL;
    }
    if (!persona_find(s, a->platform, a->bot, &bot))
        return ERROR_IDENTITY;
    if (a->bot.n == 0)
        ret->bot = bot;
    return NULL;
}

/* Somebody who names a chat whose id cannot be guessed was told of it.  Only needed, and only
 * believed, when chats of this instance have been forgotten. */
static bool was_told(const struct instance *i, const struct destination *t)
{
    struct outside *outside = i->relay->env.outside;
    const struct outlet *at = outside->find(outside, t->platform, t->bot);

    return i->forgot_chats && at != NULL && at->secret_chats &&
           facts_owns(i->relay->env.facts, t->platform, str_of(at->bot), instance_tenant(i),
                      instance_id(i));
}

bool may_speak(struct instance *i, const struct action *a, const struct destination *to)
{
    struct facts *facts = i->relay->env.facts;
    struct grant_who who = {instance_tenant(i), instance_id(i)};
    const struct known_chat *chat = chats_find_on(i, to->platform, a->chat_id);
    const struct gate_instance *me;

    if (chat != NULL) /* a scope that contradicts what we delivered is a mistake or a trick */
        return a->scope_id.n == 0 || *chat->scope == '\0' ||
               str_eq(a->scope_id, str_of(chat->scope));
    if (facts_owns(facts, to->platform, a->chat_id, who.tenant, who.instance) || was_told(i, to))
        return true;
    me = grant_instance(facts, who);
    if (me == NULL || me->gone)
        return false;
    if (grant_is_linked(facts, me, to->platform, a->chat_id))
        return true; /* where a direct chat has the person's own id */
    return a->scope_id.n != 0 &&
           grant_holds(facts, me, (struct grant_place){to->platform, a->scope_id, a->chat_id}) &&
           judge_sees(i->relay, me, to->platform, to->bot, a->scope_id, a->chat_id);
}

static const char *admit_chat(const struct session *s, const struct action *a,
                              struct destination *t)
{
    struct instance *i = s->inst;
    struct outside *outside = i->relay->env.outside;
    const char *why = choose_persona(s, a, t);

    if (why != NULL)
        return why;
    if (a->chat_id.n == 0 || !may_speak(i, a, t))
        return ACTION_ERROR_NOT_ROUTED;
    t->outlet = outside->find(outside, t->platform, t->bot);
    return t->outlet != NULL ? NULL : ERROR_NO_BOT;
}

/* A follow-up names no chat: the platform's vault knows what the key is good for, and for whom. All
 * refusals read the same, so that asking teaches nothing. */
static const char *admit_follow_up(const struct session *s, const struct action *a,
                                   struct destination *t)
{
    struct outside *outside = s->inst->relay->env.outside;
    struct str rest = a->kind;

    t->platform = a->platform;
    if (t->platform.n == 0 && !str_split(&rest, '.', &t->platform))
        return ERROR_CAPABILITY;
    if (!persona_find(s, t->platform, a->bot, &t->bot))
        return ERROR_CAPABILITY;
    t->outlet = outside->find(outside, t->platform, t->bot);
    if (t->outlet == NULL || (t->outlet->descriptor->ops & (1u << ACTION_FOLLOW_UP)) == 0)
        return ERROR_CAPABILITY;
    return NULL;
}

const char *guard_admit(const struct session *s, const struct action *a, struct destination *ret)
{
    *ret = (struct destination){0};
    return a->op == ACTION_FOLLOW_UP ? admit_follow_up(s, a, ret) : admit_chat(s, a, ret);
}
