/* guard.c - design.  (guard.h has the contract.)
 *
 * Nothing is kept here: chats, facts and personas are asked each time. */
#include "relay/out/guard.h"
#include "core/delivery_id.h"
#include "relay/out/chats.h"
#include "relay/out/ground.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/in/judge.h"
#include "relay/session/persona.h"
#include "relay/session/session.h"
#include "relay/out/spoken.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"
#include "tenancy/identity.h"

#define ERROR_IDENTITY "identity not announced on this socket"
#define ERROR_NO_BOT "no such bot is served here"
#define ERROR_CAPABILITY "capability not available"
#define ERROR_NOT_ITS_OWN "this message was not sent by this agent, or too long ago"
#define ERROR_NOT_HEARD "this message was not delivered to this agent, or too long ago"

/* A chat that came through a bot is answered through that bot.  NULL: @ret is set; else why not. */
static const char *by_chat(const struct known_chat *chat, const struct action *a,
                           struct destination *ret)
{
    *ret = (struct destination){.platform = chat_platform(chat), .bot = chat_bot(chat)};
    if (a->bot.n == 0 || str_eq(a->bot, ret->bot))
        return NULL;
    if (!ground_has_bot(chat, a->bot))
        return ERROR_IDENTITY;
    ret->bot = a->bot;
    return NULL;
}

/* Who it speaks as: what the chat's record says, else what it announced.  A hello grants nothing:
 * may_speak() asks whether the bot is its own. */
static const char *choose_persona(const struct session *s, const struct action *a,
                                  struct destination *ret)
{
    bool any = a->platform.n == 0 || str_eq(a->platform, STR("relay"));
    const struct known_chat *chat =
        any ? chats_find(s->inst, a->chat_id) : chats_find_on(s->inst, a->platform, a->chat_id);

    if (chat != NULL)
        return by_chat(chat, a, ret);
    if (any)
        return persona_default(s, &ret->platform, &ret->bot) ? NULL : ACTION_ERROR_NOT_ROUTED;
    ret->platform = a->platform;
    return persona_find(s, a->platform, a->bot, &ret->bot) ? NULL : ERROR_IDENTITY;
}

/* Is the bot one it was added or provisioned for, was routed to, or the only one there is? */
static bool is_own_bot(const struct instance *i, const struct destination *t)
{
    const struct facts *facts = i->relay->env.facts;
    const struct gateway *g = facts_newest_gateway(facts, instance_tenant(i), instance_id(i));
    struct str bot = str_of(t->outlet->bot);

    return t->outlet->alone || (g != NULL && identity_has(g, t->platform, bot)) ||
           facts_owns(facts, t->platform, bot, instance_tenant(i), instance_id(i));
}

/* Somebody who names a chat whose id cannot be guessed was told of it.  Only needed, and only
 * believed, when chats of this instance have been forgotten. */
static bool was_told(const struct instance *i, const struct destination *t)
{
    return i->forgot_chats && t->outlet->secret_chats &&
           facts_owns(i->relay->env.facts, t->platform, str_of(t->outlet->bot), instance_tenant(i),
                      instance_id(i));
}

bool may_speak(struct instance *i, const struct action *a, const struct destination *to)
{
    struct facts *facts = i->relay->env.facts;
    struct grant_who who = {instance_tenant(i), instance_id(i)};
    const struct known_chat *chat = chats_find_on(i, to->platform, a->chat_id);
    const struct gate_instance *me = grant_instance(facts, who);

    if (chat != NULL) /* a scope that contradicts what we delivered is a mistake or a trick */
        return (a->scope_id.n == 0 || chat_scope(chat).n == 0 ||
                str_eq(a->scope_id, chat_scope(chat))) &&
               (to->outlet->answers || ground_holds(chat));
    if (was_told(i, to))
        return true;
    if (facts_owns(facts, to->platform, a->chat_id, who.tenant, who.instance) && is_own_bot(i, to))
        return true;
    if (me == NULL || me->gone)
        return false;
    if (grant_is_linked(facts, me, to->platform, a->chat_id) && is_own_bot(i, to))
        return true; /* where a direct chat has the person's own id */
    return a->scope_id.n != 0 &&
           grant_holds(facts, me, (struct grant_place){to->platform, a->scope_id, a->chat_id}) &&
           judge_sees(i->relay, me, to->platform, to->bot, a->scope_id, a->chat_id);
}

/* What was delivered is known by its deduplication key: for delivery.dedup, also over a restart. */
static bool was_delivered(struct instance *i, const struct action *a, const struct outlet *by)
{
    struct relay *r = i->relay;
    struct event ev = {.platform = str_of(by->platform), .bot = str_of(by->bot)};
    struct buf room = BUF_INIT;
    struct hash128 name;

    ev.event_id = delivery_event_id(&room, by->ids_per_chat, a->chat_id, a->message_id);
    bool known =
        delivery_id_of(&ev, &r->env.store->dedup_key, instance_tenant(i), instance_id(i), &name) &&
        dedup_has(&r->dedup, name);
    buf_done(&room);
    return known;
}

const char *may_touch(struct instance *i, const struct action *a, const struct destination *to)
{
    bool changes = a->op == ACTION_EDIT;
    bool points = a->op == ACTION_REACT || (a->op == ACTION_THREAD_CREATE && a->message_id.n > 0);

    if (!changes && !points)
        return NULL;
    if (spoken_has(i->relay, spoken_place(i, to->platform, str_of(to->outlet->bot), a->chat_id),
                   a->message_id))
        return NULL;
    if (changes)
        return ERROR_NOT_ITS_OWN;
    return was_delivered(i, a, to->outlet) ? NULL : ERROR_NOT_HEARD;
}

static const char *admit_chat(const struct session *s, const struct action *a,
                              struct destination *t)
{
    struct instance *i = s->inst;
    struct outside *outside = i->relay->env.outside;
    const char *why = choose_persona(s, a, t);

    if (why != NULL)
        return why;
    t->outlet = outside->find(outside, t->platform, t->bot);
    if (t->outlet == NULL)
        return ERROR_NO_BOT;
    if (a->chat_id.n == 0 || !may_speak(i, a, t))
        return ACTION_ERROR_NOT_ROUTED;
    bool can = (t->outlet->descriptor->ops & (1u << a->op)) != 0; /* else the refusal says so */
    return can ? may_touch(i, a, t) : NULL;
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
