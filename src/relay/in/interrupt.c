/* interrupt.c - design.  (interrupt.h has the contract.)
 *
 * The keys are in a set-associative table, WAYS per set, newest first.  It holds keyed hashes and
 * no text: half a megabyte, or more if more keys are loaded at start, and one cache line per event.
 * The hash is keyed with the database's secret.  So an attacker cannot aim at one set, a simulation
 * is repeatable, and the records of chats can store the hash.
 *
 * Every key in the table is also in its chat's own list.  The table has half of the hash; a lookup
 * compares the whole hash with the chat's list, so entries of forgotten chats never match.  A key
 * that moves to another chat is removed from the earlier chat's record, unless the event has
 * several recipients: then all of them keep it. */
#include "relay/in/interrupt.h"
#include <stdlib.h>
#include "core/delivery_id.h"
#include "core/frame.h"
#include "core/session_key.h"
#include "relay/heart.h"
#include "relay/in/judge.h"
#include "relay/out/chats.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "tenancy/facts.h"

#define BETWEEN_HOLDS_MS 100
enum { WAYS = 8, FEWEST_SETS = 1 << 13, MOST_SETS = 1 << 18, KEY_MAX_BYTES = 2048, LOOK_AT = 16 };

struct way {
    uint32_t tag;  /* half of the hash of tenant and session key */
    uint32_t chat; /* chats_number() of the chat, which implies the instance; 0: free */
};

struct interrupts {
    struct relay *relay;      /* borrowed */
    struct way (*sets)[WAYS]; /* owned; NULL until the first key */
    size_t n_sets;
    struct buf scratch;
    struct buf stopped; /* the session key of a /stop */
};

static uint64_t key_hash(struct interrupts *t, struct str tenant, struct str session_key)
{
    buf_reset(&t->scratch);
    buf_add_str(&t->scratch, tenant);
    buf_add_c(&t->scratch, '\x1f');
    buf_add_str(&t->scratch, session_key);
    return hash64(&t->relay->env.store->dedup_key, buf_str(&t->scratch)) | 1;
}

uint64_t interrupt_key(const struct instance *i, struct str session_key)
{
    return key_hash(i->relay->interrupts, instance_tenant(i), session_key);
}

static struct way *set_of(struct interrupts *t, uint64_t hash)
{
    if (t->sets == NULL)
        t->sets = xcalloc(t->n_sets, sizeof *t->sets);
    return t->sets[((hash & UINT32_MAX) * t->n_sets) >> 32];
}

static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

static bool is_way(const struct relay *r, const struct way *w, uint64_t hash)
{
    if (w->chat == 0 || w->tag != tag_of(hash))
        return false;
    const struct known_chat *c = chats_at(r, w->chat);
    return !chat_is_over(c) && chat_has_key(c, hash);
}

/* The index of @hash in @set; WAYS: not found. */
static size_t way_of(const struct relay *r, const struct way *set, uint64_t hash)
{
    size_t way = 0;

    while (way < WAYS && !is_way(r, &set[way], hash))
        way++;
    return way;
}

void interrupt_note(struct known_chat *chat, uint64_t key, bool alone)
{
    struct relay *r = chat->inst->relay;
    struct way *set = set_of(r->interrupts, key);
    size_t way = way_of(r, set, key);
    struct known_chat *before = way < WAYS ? chats_at(r, set[way].chat) : NULL;

    if (before != NULL && before != chat && alone)
        chats_drop_key(before, key);
    if (way == WAYS)
        way--; /* evicts the oldest of the set */
    memmove(&set[1], &set[0], way * sizeof set[0]);
    set[0] = (struct way){tag_of(key), chats_number(chat)};
}

void interrupt_forget(struct relay *r, const struct known_chat *chat, uint64_t key)
{
    struct interrupts *t = r->interrupts;
    struct way *set = t->sets != NULL ? set_of(t, key) : NULL;

    for (size_t way = 0; set != NULL && way < WAYS; way++)
        if (set[way].tag == tag_of(key) && set[way].chat == chats_number(chat))
            set[way] = (struct way){0};
}

static struct known_chat *recall(struct interrupts *t, struct str tenant, struct str session_key)
{
    uint64_t hash = key_hash(t, tenant, session_key);
    size_t way = t->sets != NULL ? way_of(t->relay, set_of(t, hash), hash) : WAYS;

    return way < WAYS ? chats_at(t->relay, set_of(t, hash)[way].chat) : NULL;
}

/* ---- after a start ---- */

static size_t count_keys(struct relay *r)
{
    size_t n = 0;

    list_each (instances_by_age(r), it, nxt) {
        const struct instance *i = list_entry(it, struct instance, link);
        for (struct known_chat *c = chats_next_of(i, NULL); c != NULL; c = chats_next_of(i, c))
            n += c->n_keys;
    }
    return n;
}

/* Fills free ways only: loaded keys have no order of age. */
static void load_chat(struct interrupts *t, struct known_chat *c)
{
    for (size_t k = 0; k < c->n_keys; k++) {
        uint64_t key = chat_keys(c)[k];
        struct way *set = set_of(t, key);
        size_t way = 0;
        while (way < WAYS && set[way].chat != 0)
            way++;
        if (way < WAYS && way_of(t->relay, set, key) == WAYS)
            set[way] = (struct way){tag_of(key), chats_number(c)};
    }
}

void interrupts_load(struct relay *r)
{
    struct interrupts *t = r->interrupts;
    size_t n = count_keys(r);

    size_t wanted = n * 4 / 3 / WAYS; /* three quarters full */
    if (wanted > t->n_sets)
        t->n_sets = wanted < MOST_SETS ? wanted : MOST_SETS;
    list_each (instances_by_age(r), it, nxt) {
        const struct instance *i = list_entry(it, struct instance, link);
        for (struct known_chat *c = chats_next_of(i, NULL); c != NULL; c = chats_next_of(i, c))
            load_chat(t, c);
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
                           bool by_person)
{
    struct session *s = i->receiver;
    uint64_t key = interrupt_key(i, session_key);

    if (!instance_is_live(i) || !may_interrupt(i, by_person ? key : ~key))
        return false;
    frame_write_interrupt(s->wire->ops->send_begin(s->wire), session_key, chat_id);
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

void interrupt_from_gateway(struct session *s, struct str session_key)
{
    struct relay *r = s->inst->relay;
    struct str tenant = instance_tenant(s->inst);
    char id[CHAT_ID_CHARS];

    r->n.interrupts_in++;
    if (session_key.n == 0 || session_key.n > KEY_MAX_BYTES) {
        r->n.interrupts_dropped++;
        return;
    }
    struct known_chat *chat = recall(r->interrupts, tenant, session_key);
    struct instance *i = chat != NULL ? chat->inst : only_instance(r, tenant);
    if (i == NULL ||
        !send_interrupt(i, session_key, chat != NULL ? chat_id(chat, id) : STR(""), false))
        r->n.interrupts_dropped++;
}

/* ---- a person's /stop ---- */

enum stop { STOP_NO, STOP_OURS, STOP_ANOTHERS };

static enum stop read_stop(const struct event *ev)
{
    struct str text = str_trim(ev->text), head = str_make(text.p, text.n < 5 ? text.n : 5);

    if (ev->author_is_bot || !str_eq_ci(head, STR("/stop")))
        return STOP_NO;
    if (text.n == 5)
        return STOP_OURS;
    struct str who = str_skip(text, 6);
    for (size_t k = 0; k < who.n; k++)
        if (who.p[k] == ' ' || who.p[k] == '\n' || who.p[k] == '\t' || who.p[k] == '\r')
            return STOP_NO; /* more than the command alone */
    if (text.p[5] != '@' || who.n == 0)
        return STOP_NO;
    return str_eq_ci(who, ev->bot) ? STOP_OURS : STOP_ANOTHERS;
}

/* True when the platform repeats a /stop: the turn that runs now may be another one. */
static bool is_repeat(struct instance *i, const struct event *ev)
{
    struct relay *r = i->relay;
    struct hash128 name;

    return delivery_id_of(ev, &r->env.store->dedup_key, instance_tenant(i), instance_id(i),
                          &name) &&
           dedup_has(&r->dedup, name);
}

/* Holds deliveries back for INTERRUPT_HOLD_MS.  A new hold starts BETWEEN_HOLDS_MS after the last
 * one at the earliest, so that repeated /stops cannot block the mailbox for ever. */
static void hold_text(struct instance *i)
{
    int64_t now_ms = clock_now_ms(i->relay->env.clock);

    if (i->hold_until_ms != 0 && now_ms - i->hold_until_ms < BETWEEN_HOLDS_MS)
        return;
    i->hold_until_ms = now_ms + INTERRUPT_HOLD_MS;
    session_arm(i->receiver);
}

/* Sends an interrupt under every key that the gateway may use for the session; a gateway ignores
 * unknown keys. */
static void stop_turn(struct instance *i, const struct event *ev)
{
    static const struct session_key_options kinds[] = {
        {.group_sessions_per_user = true},
        {.group_sessions_per_user = false},
        {.group_sessions_per_user = true, .thread_sessions_per_user = true},
        {.group_sessions_per_user = true, .august = true},
    };
    struct buf *key = &i->relay->interrupts->stopped;
    bool any = false;

    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        buf_reset(key);
        session_key_of_event_as(key, ev, &kinds[k]);
        any |= send_interrupt(i, buf_str(key), ev->chat_id.p != NULL ? ev->chat_id : STR(""), true);
    }
    if (!any)
        i->relay->n.interrupts_dropped++;
    else if (!ev->only_stops)
        hold_text(i);
}

bool interrupt_on_stop(struct relay *r, const struct event *ev, bool *ret_is_stop)
{
    enum stop stop = read_stop(ev);
    struct gate_verdict verdicts[GATE_CANDIDATES];

    *ret_is_stop = stop != STOP_NO;
    if (stop == STOP_NO)
        return false;
    r->n.stopped++;
    if (stop == STOP_ANOTHERS) {
        judge_consumed(r, ev, "/stop");
        return true;
    }
    size_t n = judge_ask(r, ev, verdicts);
    for (size_t k = 0; k < n; k++) {
        const struct gate_instance *to = verdicts[k].to;
        struct instance *i = instance_find(r, to->tenant, to->instance);
        if (i != NULL && gate_is_yes(verdicts[k].reason) && instance_is_live(i) &&
            !is_repeat(i, ev))
            stop_turn(i, ev);
    }
    return ev->only_stops;
}

struct interrupts *interrupts_new(struct relay *r)
{
    struct interrupts *t = xcalloc(1, sizeof *t);

    t->relay = r;
    t->n_sets = FEWEST_SETS;
    return t;
}

void interrupts_free(struct interrupts *t)
{
    if (t == NULL)
        return;
    free(t->sets);
    buf_done(&t->scratch);
    buf_done(&t->stopped);
    free(t);
}
