/* guard.c - design.  (guard.h has the contract.)
 *
 * The guard remembers no verdicts: it asks chats, rights and personas at every action, so a right
 * ends with the change that ends it.  Only the basis of a chat is stored, with the chat: six texts
 * in one string, divided by 0x1f, because few chats need more than one of them.  The key is left
 * out where it equals the guild or the chat itself. */
#include "relay/out/guard.h"
#include "base/buf.h"
#include "base/jw.h"
#include "core/event.h"
#include "core/session_key.h"
#include "relay/heart.h"
#include "relay/in/commands.h"
#include "relay/in/judge.h"
#include "relay/out/chats.h"
#include "relay/out/spoken.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "tenancy/rights.h"

#define ERROR_IDENTITY "identity not announced on this socket"
#define ERROR_NO_BOT "no such bot is served here"
#define ERROR_CAPABILITY "capability not available"
#define ERROR_NOT_ITS_OWN "this message was not sent by this agent, or too long ago"
#define ERROR_NOT_HEARD "this message was not delivered to this agent, or too long ago"
#define ERROR_NOT_ITS_THREAD \
    "this agent neither opened this thread nor had a message from it, or too long ago"

/* ---- the basis of a chat ---- */

enum { TEXTS = 6, TEXT_MAX = 1024, BOTS = 4 };
enum { OWNER_LOOKS = 4096 }; /* chats that relay_owner_chat() looks at */

struct basis { /* its texts */
    struct str of[TEXTS];
};
enum {
    KEY,    /* route key of the chat; empty: its guild, else its id */
    FORMER, /* the previous route key */
    PERSON, /* the linked person who wrote there last; empty: none */
    PARENT, /* the parent channel of a thread */
    DIRECT, /* whose direct chat it is, where the chat's id does not tell; empty: nobody's */
    EARLIER /* earlier bots that delivered events, newest first; divided by 0x1e */
};

static const char *const names[] = {[KEY] = "key",       [FORMER] = "former", [PERSON] = "person",
                                    [PARENT] = "parent", [DIRECT] = "direct", [EARLIER] = "bots"};

static const struct str several = STR(" "); /* DIRECT: more than one person wrote there */

static struct basis unpack(struct str packed)
{
    struct basis g = {0};
    size_t from = 0, k = 0;

    if (packed.p == NULL)
        return g;
    for (size_t i = 0; i < packed.n && k < TEXTS - 1; i++) /* nearly always a few bytes */
        if (packed.p[i] == '\x1f') {
            g.of[k++] = str_make(packed.p + from, i - from);
            from = i + 1;
        }
    g.of[k] = str_make(packed.p + from, packed.n - from);
    return g;
}

/* Leaves out texts that are too long or contain a separator. */
static void pack(const struct basis *g, struct buf *out)
{
    buf_reset(out);
    for (int i = 0; i < TEXTS; i++) {
        struct str s = g->of[i];
        if (i > 0)
            buf_add_c(out, '\x1f');
        if (s.n <= TEXT_MAX && str_find(s, '\x1f') < 0 && str_find(s, '\0') < 0)
            buf_add_str(out, s);
    }
}

static bool has_bot(struct str bots, struct str bot)
{
    struct str one;

    while (bots.n > 0 && str_split(&bots, '\x1e', &one))
        if (str_eq(one, bot))
            return true;
    return false;
}

/* The bots besides @now: the one before it, then the others, BOTS at most. */
static void add_bots(struct buf *out, struct str now, struct str last, struct str bots)
{
    struct str one;
    int n = 0;

    if (!str_is_empty(last) && !str_eq(last, now)) {
        buf_add_str(out, last);
        n++;
    }
    while (bots.n > 0 && n < BOTS && str_split(&bots, '\x1e', &one)) {
        if (str_eq(one, now) || str_eq(one, last))
            continue;
        if (n++ > 0)
            buf_add_c(out, '\x1e');
        buf_add_str(out, one);
    }
}

bool basis_of(const struct event *ev, bool owner, struct str bot, struct str before,
              struct buf *out)
{
    struct basis g = {{[FORMER] = ev->former_key, [PARENT] = ev->parent_chat_id}};
    struct basis was = unpack(before);
    struct buf bots = BUF_INIT;
    struct str key = ev->own_key.p != NULL ? ev->own_key : ev->route_key;

    if (!str_eq(key, str_is_empty(ev->scope_id) ? ev->chat_id : ev->scope_id))
        g.of[KEY] = key;
    g.of[PERSON] = owner ? ev->user_id : was.of[PERSON];
    g.of[DIRECT] = was.of[DIRECT];
    if (str_eq(ev->chat_type, STR("dm")) && ev->user_id.n > 0 &&
        !str_eq(ev->chat_id, ev->user_id) && !str_eq(was.of[DIRECT], ev->user_id))
        g.of[DIRECT] = was.of[DIRECT].n == 0 ? ev->user_id : several;
    if (was.of[EARLIER].n > 0 || !str_eq(bot, ev->bot))
        add_bots(&bots, ev->bot, bot, was.of[EARLIER]);
    g.of[EARLIER] = buf_str(&bots);
    bool news = before.n == 0;
    for (int i = 0; i < TEXTS; i++)
        news |= !str_eq(g.of[i], was.of[i]);
    if (news) /* else it would be packed as it was */
        pack(&g, out);
    buf_done(&bots);
    return before.p == NULL || (news && !str_eq(before, buf_str(out)));
}

void basis_write(struct buf *out, struct str basis)
{
    struct basis g = unpack(basis);
    struct jw w = jw_begin(out);

    if (basis.p == NULL)
        return;
    jw_obj(&w);
    for (int i = 0; i < TEXTS; i++)
        if (g.of[i].n > 0)
            jw_kstr(&w, names[i], g.of[i]);
    jw_end_obj(&w);
}

bool basis_read(struct json at, struct buf *out)
{
    struct basis g;

    if (!json_is_object(at))
        return false;
    for (int i = 0; i < TEXTS; i++)
        g.of[i] = json_str(at, names[i]);
    pack(&g, out);
    return true;
}

struct str basis_direct(struct json at)
{
    struct str who = json_str(at, names[DIRECT]);

    return str_eq(who, several) ? STR_NULL : who;
}

/* ---- does the basis still hold? ---- */

/* GATE_SEEN: a scope of the instance covers the place, and its people can see the place. */
static enum gate_sight by_scope(const struct instance *i, const struct right_at *at,
                                struct str guild, struct str chat, struct str parent)
{
    struct facts *facts = i->relay->env.facts;
    const struct event place = {.platform = at->platform,
                                .bot = at->bot,
                                .scope_id = guild,
                                .chat_id = chat};

    if (!right_by_scope(facts, at, guild, chat) &&
        (parent.n == 0 || !right_by_scope(facts, at, guild, parent)))
        return GATE_UNSEEN;
    return judge_sees(i->relay, grant_instance(facts, at->who), &place);
}

/* GATE_SEEN: a right of the chat holds on @bot. */
static enum gate_sight basis_holds(const struct known_chat *c, struct str bot)
{
    const struct facts *facts = c->inst->relay->env.facts;
    struct right_at at = {{instance_tenant(c->inst), instance_id(c->inst)}, chat_platform(c), bot};
    struct basis g = unpack(name_text(c->basis));
    char scratch[CHAT_ID_CHARS];
    struct str id = chat_id(c, scratch), guild = chat_scope(c).n != 0 ? chat_scope(c) : id;

    if (right_by_person(facts, &at, g.of[PERSON]) ||
        right_by_route(facts, &at, g.of[KEY].n > 0 ? g.of[KEY] : guild, g.of[FORMER]))
        return GATE_SEEN;
    return by_scope(c->inst, &at, guild, id, g.of[PARENT]);
}

bool basis_shows(const struct known_chat *c, struct str bot)
{
    const struct facts *facts = c->inst->relay->env.facts;
    struct right_at at = {{instance_tenant(c->inst), instance_id(c->inst)}, chat_platform(c), bot};
    struct basis g = unpack(name_text(c->basis));
    char scratch[CHAT_ID_CHARS];
    struct str guild = chat_scope(c).n != 0 ? chat_scope(c) : chat_id(c, scratch);

    return (str_eq(chat_bot(c), bot) || has_bot(g.of[EARLIER], bot)) &&
           (right_by_person(facts, &at, g.of[PERSON]) ||
            right_by_route(facts, &at, g.of[KEY].n > 0 ? g.of[KEY] : guild, g.of[FORMER]));
}

/* True when the session of a direct chat is among those of @c. */
static bool is_direct(const struct known_chat *c, struct str id)
{
    struct event ev = {.platform = chat_platform(c), .chat_id = id, .chat_type = STR("dm")};
    BUF_LOCAL key = BUF_INIT;

    session_key_of_event(&key, &ev);
    return chat_has_key(c, interrupt_key(c->inst, buf_str(&key)));
}

bool relay_owner_chat(struct relay *r, struct str tenant, struct str instance,
                      struct buf *ret_platform, struct buf *ret_chat)
{
    const struct instance *i = instance_find(r, tenant, instance);
    const struct known_chat *c = i != NULL ? chats_at(r, i->chats.last) : NULL;
    char scratch[CHAT_ID_CHARS];

    for (int n = 0; c != NULL && n < OWNER_LOOKS; n++) {
        struct right_at at = {{instance_tenant(i), instance_id(i)}, chat_platform(c), chat_bot(c)};
        struct str person = unpack(name_text(c->basis)).of[PERSON], id = chat_id(c, scratch);
        if (!chat_is_over(c) && person.n > 0 && right_by_person(r->env.facts, &at, person) &&
            is_direct(c, id)) {
            buf_add_str(ret_platform, at.platform);
            buf_add_str(ret_chat, id);
            return true;
        }
        c = chats_at(r, c->in[CHAT_BY_INSTANCE].prev);
    }
    return false;
}

/* ---- one action ---- */

/* Selects platform and bot: the bot that delivered the chat's events, or an earlier one that @a
 * names; without a record of the chat, from the hellos.  A hello grants no right: right_in_chat()
 * checks whether the bot belongs to the instance.  NULL: @ret is set; else the reason. */
static const char *choose_persona(const struct session *s, const struct action *a,
                                  struct destination *ret)
{
    bool any = a->platform.n == 0 || str_eq(a->platform, STR("relay"));
    const struct known_chat *chat = chats_find(s->inst, any ? STR_NULL : a->platform, a->chat_id);

    if (chat != NULL) {
        *ret = (struct destination){.platform = chat_platform(chat), .bot = chat_bot(chat)};
        if (a->bot.n == 0 || str_eq(a->bot, ret->bot))
            return NULL;
        ret->bot = a->bot;
        return has_bot(unpack(name_text(chat->basis)).of[EARLIER], a->bot) ? NULL : ERROR_IDENTITY;
    }
    if (any)
        return persona_default(s, &ret->platform, &ret->bot) ? NULL : ACTION_ERROR_NOT_ROUTED;
    ret->platform = a->platform;
    return persona_find(s, a->platform, a->bot, &ret->bot) ? NULL : ERROR_IDENTITY;
}

/* May the instance speak in the chat?  Only records decide; the scope selects the record. */
static enum gate_sight right_in_chat(struct instance *i, const struct action_place *place,
                                     const struct outlet *by)
{
    const struct facts *facts = i->relay->env.facts;
    struct right_at at = {{instance_tenant(i), instance_id(i)},
                          str_of(by->platform),
                          str_of(by->bot)};
    const struct known_chat *chat = chats_find(i, at.platform, place->chat_id);

    if (chat != NULL && place->scope_id.n > 0 && chat_scope(chat).n > 0 &&
        !str_eq(place->scope_id, chat_scope(chat)))
        return GATE_UNSEEN; /* a scope that contradicts the record is a mistake or an attack */
    if (chat != NULL)
        return by->answers ? GATE_SEEN : basis_holds(chat, at.bot);
    if (i->forgot_chats && by->secret_chats && right_by_key(facts, &at, at.bot))
        return GATE_SEEN; /* nobody can guess the id: the chat was delivered, and forgotten since */
    if (right_by_key(facts, &at, place->chat_id) && (by->alone || right_by_bot(facts, &at)))
        return GATE_SEEN;
    if (right_by_person(facts, &at, place->chat_id))
        return GATE_SEEN; /* where a direct chat has the person's own id */
    return place->scope_id.n != 0 ? by_scope(i, &at, place->scope_id, place->chat_id, STR_NULL)
                                  : GATE_UNSEEN;
}

/* A delivered message is known by its deduplication key: for delivery.dedup, across restarts. */
static bool was_delivered(struct instance *i, const struct action *a, const struct outlet *by)
{
    struct event ev = {.platform = str_of(by->platform), .bot = str_of(by->bot)};
    struct buf room = BUF_INIT;

    ev.event_id = delivery_event_id(&room, by->ids_per_chat, a->chat_id, a->message_id);
    bool known = relay_known_ms(i->relay, instance_tenant(i), instance_id(i), &ev) != 0;
    buf_done(&room);
    return known;
}

/* Had the instance an event from this thread?  A thread is a chat of its own, or its session is one
 * of the newest CHAT_KEYS of its chat. */
static bool heard_in(struct instance *i, struct str platform, struct str chat_id, struct str thread)
{
    static const struct str types[] = {STR("thread"), STR("forum"), STR("group"), STR("channel")};
    const struct known_chat *chat = chats_find(i, platform, chat_id);
    struct event ev = {.platform = platform, .chat_id = chat_id, .thread_id = thread};
    BUF_LOCAL key = BUF_INIT;

    if (chats_find(i, platform, thread) != NULL)
        return true;
    for (size_t k = 0; chat != NULL && k < ARRAY_LEN(types); k++) {
        ev.chat_type = types[k];
        buf_reset(&key);
        session_key_of_event(&key, &ev);
        if (chat_has_key(chat, interrupt_key(i, buf_str(&key))))
            return true;
    }
    return false;
}

/* May the instance do this to @a's message?  It may speak in the chat.  NULL: yes; else the
 * reason. */
static const char *may_touch(struct instance *i, const struct action *a,
                             const struct destination *to)
{
    if (a->op == ACTION_THREAD_CREATE && a->message_id.n == 0)
        return NULL; /* under no message */
    if (spoken_has(i->relay, spoken_chat(i, to->platform, str_of(to->outlet->bot), a->chat_id),
                   a->message_id))
        return NULL;
    if (a->op == ACTION_EDIT)
        return ERROR_NOT_ITS_OWN;
    if (was_delivered(i, a, to->outlet)) /* a thread under a message has the message's id */
        return NULL;
    if (a->op != ACTION_THREAD_RENAME)
        return ERROR_NOT_HEARD;
    return heard_in(i, to->platform, a->chat_id, a->message_id) ? NULL : ERROR_NOT_ITS_THREAD;
}

/* A private thread of a chat in which the instance may speak: its people must see the thread, or it
 * had an event from there, or it hears everybody in the place. */
static enum gate_sight right_in_thread(struct instance *i, const struct action_place *place,
                                       const struct outlet *by)
{
    struct facts *facts = i->relay->env.facts;
    struct right_at at = {{instance_tenant(i), instance_id(i)},
                          str_of(by->platform),
                          str_of(by->bot)};
    const struct known_chat *chat = chats_find(i, at.platform, place->chat_id);
    const struct known_chat *thread = chats_find(i, at.platform, place->thread_id);
    struct basis g = unpack(chat != NULL ? name_text(chat->basis) : STR_NULL);
    const struct event seen = {.platform = at.platform,
                               .bot = at.bot,
                               .scope_id = place->scope_id,
                               .chat_id = place->chat_id,
                               .thread_id = place->thread_id};

    if (right_by_open(facts, &at, g.of[KEY].n > 0 ? g.of[KEY] : place->scope_id, g.of[FORMER]) ||
        (thread != NULL && basis_holds(thread, at.bot) == GATE_SEEN))
        return GATE_SEEN;
    return judge_sees(i->relay, grant_instance(facts, at.who), &seen);
}

enum gate_sight relay_may_act(struct relay *r, const struct action_from *from, struct str platform,
                              struct str bot, const struct action_place *place)
{
    struct instance *i = instance_find(r, from->tenant, from->instance);
    const struct outlet *by = r->env.outside->find(r->env.outside, platform, bot);

    if (str_is_empty(from->tenant) && str_is_empty(from->instance))
        return GATE_SEEN; /* bellhop itself, to whoever sent it a command */
    if (i == NULL || i->life != from->life || by == NULL)
        return GATE_UNSEEN;
    enum gate_sight sight = right_in_chat(i, place, by);
    return sight == GATE_SEEN && place->thread_id.n > 0 ? right_in_thread(i, place, by) : sight;
}

/* A follow-up names no chat: the platform's vault knows what the key is good for, and for whom, and
 * asks relay_may_act() for the chat of its token.  All other refusals read the same, so that asking
 * teaches nothing.  A gateway that names no bot means the bot of the chat in the key. */
static const char *admit_follow_up(const struct session *s, const struct action *a,
                                   struct destination *t)
{
    struct outside *outside = s->inst->relay->env.outside;
    struct str rest = a->kind;

    t->platform = a->platform;
    if (t->platform.n == 0 && !str_split(&rest, '.', &t->platform))
        return ERROR_CAPABILITY;
    const struct known_chat *chat = a->bot.n == 0 ? interrupt_chat(s->inst, a->session_key) : NULL;
    bool known = chat != NULL && str_eq(chat_platform(chat), t->platform) &&
                 persona_find(s, t->platform, chat_bot(chat), &t->bot);
    if (!known && !persona_find(s, t->platform, a->bot, &t->bot))
        return ERROR_CAPABILITY;
    t->outlet = outside->find(outside, t->platform, t->bot);
    if (t->outlet == NULL || (t->outlet->descriptor->ops & (1u << ACTION_FOLLOW_UP)) == 0)
        return ERROR_CAPABILITY;
    struct right_at at = {{instance_tenant(s->inst), instance_id(s->inst)},
                          t->platform,
                          str_of(t->outlet->bot)};
    return rights_may_use(s->inst->relay->env.facts, &at) ? NULL : ERROR_CAPABILITY;
}

const char *guard_admit(const struct session *s, const struct action *a, struct destination *ret)
{
    const unsigned touching = 1u << ACTION_EDIT | 1u << ACTION_REACT | 1u << ACTION_THREAD_CREATE |
                              1u << ACTION_THREAD_RENAME;
    struct outside *outside = s->inst->relay->env.outside;

    *ret = (struct destination){0};
    if (a->op == ACTION_FOLLOW_UP)
        return admit_follow_up(s, a, ret);
    const char *why = choose_persona(s, a, ret);
    if (why != NULL)
        return why;
    ret->outlet = outside->find(outside, ret->platform, ret->bot);
    if (ret->outlet == NULL)
        return ERROR_NO_BOT;
    const struct action_place place = {.chat_id = a->chat_id, .scope_id = a->scope_id};
    if (a->chat_id.n == 0 || right_in_chat(s->inst, &place, ret->outlet) != GATE_SEEN)
        return ACTION_ERROR_NOT_ROUTED;
    /* An op that the outlet does not have is refused by the caller, with the op's name. */
    bool touches = (touching & ret->outlet->descriptor->ops & (1u << a->op)) != 0;
    return touches ? may_touch(s->inst, a, ret) : NULL;
}
