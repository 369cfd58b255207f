/* commands.c - design.  (commands.h has the contract.)
 *
 *      /link CODE -> link_code_redeem() -> on disk -> accepted, and told to the person
 *                                       -> store error -> the platform sends the message again
 *
 * The session keys are in a set-associative table, WAYS per set, newest first.  It holds keyed
 * hashes and no text: half a megabyte, or more if more keys are loaded at start, and one cache line
 * per event.  The hash is keyed with the database's secret.  So an attacker cannot aim at one set,
 * a simulation is repeatable, and the records of chats can store the hash.
 *
 * Every key in the table is also in its chat's own list.  The table has half of the hash; a lookup
 * compares the whole hash with the chat's list, so entries of forgotten chats never match.  A key
 * that moves to another chat is removed from the earlier chat's record, unless the event has
 * several recipients: then all of them keep it.
 *
 * A /stop outside of threads means the thread that the person's newest message belongs to.  The
 * hashes do not reveal the thread's id, so a second table of the same kind stores the id for the
 * people who wrote last. */
#include "relay/in/commands.h"
#include <stdlib.h>
#include "base/arena.h"
#include "core/event.h"
#include "core/frame.h"
#include "core/session_key.h"
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/judge.h"
#include "relay/in/staged.h"
#include "relay/out/chats.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "tenancy/audit.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

enum {
    WAYS = 8,
    FEWEST_SETS = 1 << 13,
    MOST_SETS = 1 << 18,
    THREAD_SETS = 2048,
    THREAD_WAYS = 4,
    THREAD_MAX_BYTES = 112, /* a longer id is not remembered */
    KEY_MAX_BYTES = 2048,
    REASON_MAX_BYTES = 2048,
    LOOK_AT = 16
};

struct way {
    uint32_t tag;  /* half of the hash of tenant and session key */
    uint32_t chat; /* chats_number() of the chat, which implies the instance; 0: free */
};

struct last_thread {
    uint64_t who; /* hash of instance, platform, chat and person; 0: free */
    uint8_t n;
    char id[THREAD_MAX_BYTES];
};

struct commands {
    struct relay *relay;      /* borrowed */
    struct way (*sets)[WAYS]; /* owned; NULL until the first key */
    size_t n_sets;
    struct last_thread (*threads)[THREAD_WAYS]; /* owned; newest first; NULL until the first one */
    struct buf scratch;
    struct buf stopped; /* the session key of a /stop or an interrupt */
};

uint64_t interrupt_key(const struct instance *i, struct str session_key)
{
    struct buf *b = &i->relay->commands->scratch;

    buf_reset(b);
    buf_add_str(b, instance_tenant(i));
    buf_add_c(b, '\x1f');
    buf_add_str(b, session_key);
    return hash64(&i->relay->env.store->dedup_key, buf_str(b)) | 1;
}

static struct way *set_of(struct commands *t, uint64_t hash)
{
    if (t->sets == NULL)
        t->sets = xcalloc(t->n_sets, sizeof *t->sets);
    return t->sets[((hash & UINT32_MAX) * t->n_sets) >> 32];
}

/* The index of @hash in @set; WAYS: not found. */
static size_t way_of(const struct relay *r, const struct way *set, uint64_t hash)
{
    for (size_t way = 0; way < WAYS; way++) {
        const struct known_chat *c =
            set[way].tag == (uint32_t)(hash >> 32) ? chats_at(r, set[way].chat) : NULL;
        if (c != NULL && !chat_is_over(c) && chat_has_key(c, hash))
            return way;
    }
    return WAYS;
}

void interrupt_note(struct known_chat *chat, uint64_t key, bool alone)
{
    struct relay *r = chat->inst->relay;
    struct way *set = set_of(r->commands, key);
    size_t way = way_of(r, set, key);
    struct known_chat *before = way < WAYS ? chats_at(r, set[way].chat) : NULL;

    if (before != NULL && before != chat && alone)
        chats_drop_key(before, key);
    if (way == WAYS)
        way--; /* evicts the oldest of the set */
    memmove(&set[1], &set[0], way * sizeof set[0]);
    set[0] = (struct way){(uint32_t)(key >> 32), chats_number(chat)};
}

void interrupt_forget(struct relay *r, const struct known_chat *chat, uint64_t key)
{
    struct commands *t = r->commands;
    struct way *set = t->sets != NULL ? set_of(t, key) : NULL;

    for (size_t way = 0; set != NULL && way < WAYS; way++)
        if (set[way].tag == (uint32_t)(key >> 32) && set[way].chat == chats_number(chat))
            set[way] = (struct way){0};
}

/* ---- after a start ---- */

/* Fills free ways only: loaded keys have no order of age. */
static void load_key(struct commands *t, const struct known_chat *c, uint64_t key)
{
    struct way *set = set_of(t, key);
    size_t way = 0;

    while (way < WAYS && set[way].chat != 0)
        way++;
    if (way < WAYS && way_of(t->relay, set, key) == WAYS)
        set[way] = (struct way){(uint32_t)(key >> 32), chats_number(c)};
}

void commands_load(struct relay *r)
{
    struct commands *t = r->commands;
    size_t n = 0;

    list_each (instances_by_age(r), at, after) {
        const struct instance *i = list_entry(at, struct instance, link);
        for (struct known_chat *c = chats_next_of(i, NULL); c != NULL; c = chats_next_of(i, c))
            n += c->n_keys;
    }
    size_t wanted = n * 4 / 3 / WAYS; /* three quarters full */
    if (wanted > t->n_sets)
        t->n_sets = wanted < MOST_SETS ? wanted : MOST_SETS;
    list_each (instances_by_age(r), it, nxt) {
        const struct instance *i = list_entry(it, struct instance, link);
        for (struct known_chat *c = chats_next_of(i, NULL); c != NULL; c = chats_next_of(i, c))
            for (size_t k = 0; k < c->n_keys; k++)
                load_key(t, c, chat_keys(c)[k]);
    }
}

/* ---- to the gateway ---- */

struct unread { /* interrupts that the receiver may not have read yet */
    int64_t since_ms;
    size_t n;
    uint64_t keys[INTERRUPTS_UNREAD];
};

void interrupt_read(struct instance *i)
{
    free(i->unread);
    i->unread = NULL;
}

/* False: an interrupt with this key may still be unread, or too many are. */
static bool may_interrupt(struct instance *i, uint64_t key)
{
    int64_t now_ms = clock_now_ms(i->relay->env.clock);

    if (i->unread != NULL && now_ms - i->unread->since_ms >= INTERRUPTS_UNREAD_MS)
        interrupt_read(i);
    if (i->unread == NULL) {
        i->unread = xcalloc(1, sizeof *i->unread);
        i->unread->since_ms = now_ms;
    }
    for (size_t k = 0; k < i->unread->n; k++)
        if (i->unread->keys[k] == key)
            return false;
    if (i->unread->n == INTERRUPTS_UNREAD)
        return false;
    i->unread->keys[i->unread->n++] = key;
    return true;
}

static bool send_interrupt(struct instance *i, struct str session_key, struct str chat_id,
                           struct str reason, bool by_person)
{
    struct session *s = i->receiver;
    uint64_t key = interrupt_key(i, session_key);

    if (!instance_is_live(i) || !may_interrupt(i, by_person ? key : ~key))
        return false;
    frame_write_interrupt(s->wire->ops->send_begin(s->wire), session_key, chat_id, reason);
    s->wire->ops->send_end(s->wire);
    i->relay->n.interrupts_out++;
    return true;
}

/* The tenant's only known instance; NULL: none, several, or too many names to check. */
static struct instance *only_instance(struct relay *r, struct str tenant)
{
    struct str names[LOOK_AT];
    size_t n = facts_instances_of(r->env.facts, tenant, names, LOOK_AT);
    struct instance *found = NULL;

    for (size_t k = 0; k < n && n < LOOK_AT; k++) {
        struct instance *i = instance_find(r, tenant, names[k]);
        if (i != NULL && found != NULL)
            return NULL;
        found = i != NULL ? i : found;
    }
    return found;
}

struct interruption { /* a gateway's interrupt; on the stack */
    struct str plain; /* its session key without the profile */
    struct str named; /* its session key as the gateway said it */
    struct str reason;
    bool sent;
};

/* Released gateways know their running turns by the key without the profile. */
static void interrupt_instance(struct interruption *x, struct instance *i, struct str chat_id)
{
    x->sent |= send_interrupt(i, x->plain, chat_id, x->reason, false);
    if (!str_eq(x->plain, x->named))
        x->sent |= send_interrupt(i, x->named, chat_id, x->reason, false);
}

/* Ids may contain the separator, so the key is not taken apart: it names a chat if the chat's id
 * stands in its place, from the longest candidate down. */
struct known_chat *interrupt_chat(const struct instance *i, struct str key)
{
    struct str platform, part;
    int tries = LOOK_AT;

    if (!str_split(&key, ':', &part) || !str_split(&key, ':', &part) || /* agent, main */
        !str_split(&key, ':', &platform) || !str_split(&key, ':', &part))
        return NULL;
    for (size_t n = key.n; n > 0 && tries > 0; n--) {
        if (n < key.n && key.p[n] != ':')
            continue;
        struct known_chat *c = chats_find(i, STR_NULL, str_make(key.p, n));
        tries--;
        if (c != NULL && (str_eq(platform, STR("relay")) ||
                          str_eq(platform, session_key_platform(chat_platform(c)))))
            return c;
    }
    return NULL;
}

/* Interrupts every instance of the tenant that knows the chat in the key. */
static bool interrupt_by_chat(struct interruption *x, struct relay *r, struct instance *sender)
{
    struct str names[LOOK_AT], tenant = instance_tenant(sender);
    size_t n = facts_instances_of(r->env.facts, tenant, names, LOOK_AT);
    char id[CHAT_ID_CHARS];
    bool any = false;

    for (size_t k = 0; k <= n; k++) { /* the sender first: it may not be among LOOK_AT names */
        struct instance *i = k == 0 ? sender : instance_find(r, tenant, names[k - 1]);
        struct known_chat *c =
            i != NULL && (k == 0 || i != sender) ? interrupt_chat(i, x->plain) : NULL;
        if (c != NULL)
            interrupt_instance(x, i, chat_id(c, id));
        any |= c != NULL;
    }
    return any;
}

void interrupt_from_gateway(struct session *s, const struct frame *f)
{
    struct relay *r = s->inst->relay;
    struct buf *plain = &r->commands->stopped;
    char id[CHAT_ID_CHARS];

    r->n.interrupts_in++;
    if (f->session_key.n > KEY_MAX_BYTES) {
        r->n.interrupts_dropped++;
        return;
    }
    buf_reset(plain);
    session_key_without_profile(plain, f->session_key);
    struct interruption x = {.plain = buf_str(plain), .named = f->session_key};
    if (f->reason.n <= REASON_MAX_BYTES)
        x.reason = f->reason;
    uint64_t key = interrupt_key(s->inst, x.plain);
    const struct way *set = set_of(r->commands, key);
    size_t way = way_of(r, set, key);
    struct known_chat *chat = way < WAYS ? chats_at(r, set[way].chat) : NULL;
    if (chat != NULL) {
        interrupt_instance(&x, chat->inst, chat_id(chat, id));
    } else if (!interrupt_by_chat(&x, r, s->inst)) {
        struct instance *only = only_instance(r, instance_tenant(s->inst));
        if (only != NULL)
            interrupt_instance(&x, only, STR(""));
    }
    if (!x.sent)
        r->n.interrupts_dropped++;
}

/* ---- the thread of a person's newest message ---- */

static uint64_t person_in_chat(const struct instance *i, const struct event *ev)
{
    struct buf *b = &i->relay->commands->scratch;

    buf_reset(b);
    buf_printf(b, "%.*s\x1f%.*s\x1f%.*s\x1f%.*s\x1f%.*s", STR_FMT(instance_tenant(i)),
               STR_FMT(instance_id(i)), STR_FMT(ev->platform), STR_FMT(ev->chat_id),
               STR_FMT(ev->user_id));
    return hash64(&i->relay->env.store->dedup_key, buf_str(b)) | 1;
}

static size_t thread_way(const struct last_thread *set, uint64_t who)
{
    size_t way = 0;

    while (way < THREAD_WAYS && set[way].who != who)
        way++;
    return way;
}

void stop_note(const struct instance *i, const struct event *ev)
{
    struct commands *t = i->relay->commands;
    struct str thread = ev->thread_id;

    /* Released gateways begin a thread under every message of Slack that is in none. */
    if (thread.n == 0 && str_eq(ev->platform, STR("slack")))
        thread = ev->message_id;
    if (ev->user_id.n == 0 || (thread.n == 0 && t->threads == NULL) || command_is_stop(ev))
        return;
    if (t->threads == NULL)
        t->threads = xcalloc(THREAD_SETS, sizeof *t->threads);
    uint64_t who = person_in_chat(i, ev);
    struct last_thread *set = t->threads[who / 2 % THREAD_SETS], now = {.who = who};
    size_t way = thread_way(set, who);
    if (thread.n == 0 || thread.n > sizeof now.id) {
        if (way < THREAD_WAYS)
            set[way] = (struct last_thread){0}; /* the newest message is in no known thread */
        return;
    }
    memcpy(now.id, thread.p, thread.n);
    now.n = (uint8_t)thread.n;
    memmove(&set[1], &set[0], (way < THREAD_WAYS ? way : THREAD_WAYS - 1) * sizeof set[0]);
    set[0] = now;
}

/* The thread that a /stop outside of threads means; absent: none.  Borrowed until stop_note(). */
static struct str thread_to_stop(const struct instance *i, const struct event *ev)
{
    const struct commands *t = i->relay->commands;
    bool outside = ev->thread_id.n == 0 || str_eq(ev->thread_id, ev->message_id);

    if (t->threads == NULL || !outside || ev->user_id.n == 0)
        return STR_NULL;
    uint64_t who = person_in_chat(i, ev);
    const struct last_thread *set = t->threads[who / 2 % THREAD_SETS];
    size_t way = thread_way(set, who);
    return way < THREAD_WAYS ? str_make(set[way].id, set[way].n) : STR_NULL;
}

/* ---- a person's /stop ---- */

/* Released newer gateways clear Slack's status at every interrupt, whatever its key, and read
 * nothing for half a minute meanwhile. */
static bool is_costly(const struct instance *i, const struct event *ev)
{
    return i->receiver->gw->newer && str_eq(ev->platform, STR("slack"));
}

/* Sends an interrupt under every key that the gateway may use for the session; a gateway ignores
 * unknown keys.  True: at least one was sent. */
static bool stop_session(struct instance *i, const struct event *ev)
{
    struct buf *key = &i->relay->commands->stopped;
    bool any = false;

    for (size_t k = 0; k < SESSION_KEY_RULES; k++) {
        if (is_costly(i, ev) && (any || !session_key_rules[k].august))
            continue;
        buf_reset(key);
        session_key_of_event_as(key, ev, &session_key_rules[k]);
        any |= send_interrupt(i, buf_str(key), ev->chat_id.p != NULL ? ev->chat_id : STR(""),
                              STR_NULL, true);
    }
    return any;
}

static void stop_turn(struct instance *i, const struct event *ev)
{
    struct event other = *ev;

    other.thread_id = thread_to_stop(i, ev);
    bool any = other.thread_id.n > 0 && stop_session(i, &other);
    if (!any || !is_costly(i, ev))
        any |= stop_session(i, ev);
    if (!any)
        i->relay->n.interrupts_dropped++;
}

/* True: a recipient is live. */
static bool stop_recipients(struct relay *r, const struct event *ev)
{
    struct gate_verdict verdicts[GATE_CANDIDATES];
    size_t n = judge_ask(r, ev, verdicts);
    bool repeated = stage_has(r, ev), live = false;

    for (size_t k = 0; k < n; k++) {
        const struct gate_instance *to = verdicts[k].to;
        struct instance *i = instance_find(r, to->tenant, to->instance);
        if (i == NULL || !gate_is_yes(verdicts[k].reason) || !instance_is_live(i))
            continue;
        live = true;
        /* If the platform repeats a /stop, the turn that runs now may be another one. */
        if (!repeated && relay_known_ms(r, to->tenant, to->instance, ev) == 0)
            stop_turn(i, ev);
    }
    return live;
}

/* ---- a person's /link ---- */

struct linking {
    struct pending pending;
    struct relay *relay; /* borrowed */
    struct accept *a;    /* held */
    struct arena arena;
    struct event ev;                /* in the arena; routed */
    const struct gate_instance *to; /* the code's instance; NULL: the code is wrong */
};

static void linking_free(struct pending *p)
{
    struct linking *l = container_of(p, struct linking, pending);

    arena_done(&l->arena);
    free(l);
}

void command_tell(struct relay *r, const struct event *ev, struct str text)
{
    struct outside *outside = r->env.outside;
    const struct outlet *at = outside->find(outside, ev->platform, ev->bot);
    struct action act = {.op = ACTION_SEND,
                         .op_name = STR("send"),
                         .chat_id = ev->chat_id,
                         .content = text,
                         .reply_to = ev->message_id,
                         .thread_id = ev->thread_id,
                         .platform = ev->platform,
                         .bot = ev->bot,
                         .deadline_ms = clock_now_ms(r->env.clock) + r->lim.action_ms};
    const struct action_from us = {STR(""), STR(""), STR_NULL, 0};

    if (at != NULL && !str_is_empty(act.chat_id))
        outside->act(outside, at, ACTION_NOBODY, &us, &act);
}

/* After a /link in a direct chat the instance may write in that chat, through that bot. */
static void note_chat(struct relay *r, const struct gate_instance *to, const struct event *from)
{
    struct event ev = {.platform = from->platform,
                       .bot = from->bot,
                       .route_key = from->own_key.p != NULL ? from->own_key : from->route_key,
                       .chat_id = from->chat_id,
                       .chat_type = STR("dm"),
                       .user_id = from->user_id};
    bool direct = str_eq(from->chat_type, STR("dm"));
    struct instance *i = direct ? instance_get(r, to->tenant, to->instance) : NULL;
    struct buf key = BUF_INIT;

    if (i == NULL || i->life != to->life)
        return;
    session_key_of_event(&key, &ev);
    chats_note(i, &ev, interrupt_key(i, buf_str(&key)), true);
    buf_done(&key);
}

void relay_person_linked(struct relay *r, struct str tenant, struct str instance,
                         const struct event *at, struct str text)
{
    const struct gate_instance *to =
        grant_instance(r->env.facts, (struct grant_who){tenant, instance});
    struct event ev = *at;

    ev.chat_type = STR("dm");
    ev.route_key = at->chat_id;
    r->n.linked++;
    if (to == NULL || str_is_empty(at->chat_id))
        return;
    note_chat(r, to, &ev);
    if (text.n > 0)
        command_tell(r, &ev, text);
}

static const char *answer_to(enum bh_err err)
{
    switch (err) {
    case BH_OK:
        return "Linked. What you write here now goes to your agent.";
    case BH_BUSY:
        return "Too many wrong codes. Try again in an hour.";
    case BH_MALFORMED:
        return "Send /link followed by the code you were given.";
    case BH_NOT_FOUND:
    case BH_CONFLICT:
        return "That code is not valid. A code works once and for ten minutes; ask for a new one.";
    default:
        return NULL; /* ours to repeat, not theirs */
    }
}

static void on_redeemed(void *ctx, enum bh_err err, const char *why)
{
    struct linking *l = ctx;
    struct relay *r = l->relay;
    const char *answer = answer_to(err);

    if (err == BH_OK) {
        r->n.linked++;
        note_chat(r, l->to, &l->ev);
        log_info(NULL, "person linked: platform=%.*s bot=%.*s tenant=%.*s instance=%.*s",
                 STR_FMT(l->ev.platform), STR_FMT(l->ev.bot), STR_FMT(l->to->tenant),
                 STR_FMT(l->to->instance));
    }
    if (answer != NULL)
        command_tell(r, &l->ev, str_of(answer));
    accept_release(r, l->a, answer != NULL ? BH_OK : BH_UNAVAILABLE);
    pending_end(&l->pending);
}

static void link_person(struct relay *r, const struct event *ev, struct str code, struct accept *a)
{
    struct linking *l = xcalloc(1, sizeof *l);

    l->relay = r;
    l->a = a;
    event_copy(ev, &l->arena, &l->ev);
    pending_add(r, &l->pending, linking_free);
    accept_hold(a);
    judge_consumed(r, ev, "/link");
    const struct link_sent sent = {ev->platform, ev->bot, ev->user_id, code};
    BUF_LOCAL person = BUF_INIT;
    buf_printf(&person, "%.*s:%.*s", STR_FMT(ev->platform), STR_FMT(ev->user_id));
    struct audit_who who = audit_who_of(AUDIT_PERSON, "redeemCode", buf_str(&person), STR_NULL);
    audit_as(facts_audit(r->env.facts), &who);
    l->to = link_code_redeem(r->env.facts, &sent, on_redeemed, l);
    audit_as(facts_audit(r->env.facts), NULL);
}

/* Others have this author's id too, and would be linked with it. */
static void refuse_link(struct relay *r, const struct event *ev)
{
    judge_consumed(r, ev, "/link");
    command_tell(r, ev,
                 STR("Only a person can be linked. Send /link again in your own name, best in a "
                     "direct chat with this bot."));
}

/* ---- reading a command ---- */

enum spoken_command { COMMAND_NONE, COMMAND_STOP, COMMAND_LINK };

/* The text up to the first blank. */
static struct str first_word(struct str s)
{
    size_t n = 0;

    while (n < s.n && memchr(" \t\n\r", s.p[n], 4) == NULL)
        n++;
    return str_make(s.p, n);
}

/* "/stop", "/stop@bot", "/link", "/link CODE", "/link@bot CODE".  @ret_ours: it names this bot, or
 * none. */
static enum spoken_command read_command(const struct event *ev, struct str *ret_code,
                                        bool *ret_ours)
{
    struct str text = str_trim(ev->text);

    *ret_ours = true;
    if (text.n < 5 || text.p[0] != '/' || ev->author_is_bot)
        return COMMAND_NONE;
    struct str head = str_make(text.p, 5), rest = str_skip(text, 5), bot = first_word(rest);
    bool stop = str_eq_ci(head, STR("/stop"));
    if ((!stop && !str_eq_ci(head, STR("/link"))) || (bot.n > 0 && (bot.p[0] != '@' || bot.n == 1)))
        return COMMAND_NONE; /* another command, such as /links */
    *ret_code = str_trim(str_skip(rest, bot.n));
    *ret_ours = bot.n == 0 || str_eq_ci(str_skip(bot, 1), ev->bot);
    if (stop)
        return ret_code->n == 0 ? COMMAND_STOP : COMMAND_NONE; /* else more than the command */
    bool one_word = first_word(*ret_code).n == ret_code->n;
    return *ret_ours && one_word ? COMMAND_LINK : COMMAND_NONE;
}

bool command_is_stop(const struct event *ev)
{
    struct str code;
    bool ours;

    return read_command(ev, &code, &ours) == COMMAND_STOP;
}

bool command_take(struct relay *r, const struct event *ev, struct accept *a,
                  enum stop_text *ret_stop)
{
    struct str code;
    bool ours;
    enum spoken_command what = read_command(ev, &code, &ours);

    if (what == COMMAND_NONE)
        return false;
    if (what == COMMAND_LINK) {
        if (ev->author_unproven)
            refuse_link(r, ev);
        else
            link_person(r, ev, code, a);
        return true;
    }
    r->n.stopped++;
    if (ours)
        *ret_stop = stop_recipients(r, ev) ? STOP_HELD : STOP_AT_ONCE;
    else
        judge_consumed(r, ev, "/stop");
    return !ours || ev->only_stops;
}

struct commands *commands_new(struct relay *r)
{
    struct commands *t = xcalloc(1, sizeof *t);

    t->relay = r;
    t->n_sets = FEWEST_SETS;
    return t;
}

void commands_free(struct commands *t)
{
    if (t == NULL)
        return;
    free(t->sets);
    free(t->threads);
    buf_done(&t->scratch);
    buf_done(&t->stopped);
    free(t);
}
