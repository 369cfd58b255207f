/* interrupt.c - design.  (interrupt.h has the contract.)
 *
 * The memory of keys is a table of sets of four, newest first, holding 64-bit keyed hashes and no
 * text: a megabyte however long the keys, and one cache line per event.  The hash is keyed by the
 * database's secret, so nobody can aim at a set, and a simulation gets the same sets every time. */
#include "relay/interrupt.h"
#include <stdlib.h>
#include "core/delivery_id.h"
#include "core/frame.h"
#include "core/session_key.h"
#include "bus/bus.h"
#include "relay/chats.h"
#include "relay/heart.h"
#include "relay/instance.h"
#include "relay/judge.h"
#include "relay/session.h"
#include "store/store.h"

enum { WAYS = 4, SETS = 16384, KEY_MAX_BYTES = 2048 };
#define TOPIC "interrupt"

struct way {
    uint64_t hash;           /* of tenant and session key; 0: free */
    struct known_chat *chat; /* borrowed and pinned; names the instance too */
};

struct interrupts {
    struct relay *relay;      /* borrowed */
    struct way (*sets)[WAYS]; /* owned; NULL until the first event */
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

void interrupt_note(struct instance *i, struct known_chat *chat, struct str session_key)
{
    struct interrupts *t = i->relay->interrupts;
    uint64_t hash = key_hash(t, instance_tenant(i), session_key);
    size_t way = 0;

    if (t->sets == NULL)
        t->sets = xcalloc(SETS, sizeof *t->sets);
    struct way *set = t->sets[(hash >> 8) % SETS];
    while (way < WAYS - 1 && set[way].hash != hash)
        way++;
    if (set[way].chat != NULL)
        set[way].chat->pins--;
    chat->pins++;
    memmove(&set[1], &set[0], way * sizeof set[0]);
    set[0] = (struct way){hash, chat};
}

static struct known_chat *recall(struct interrupts *t, struct str tenant, struct str session_key)
{
    uint64_t hash = key_hash(t, tenant, session_key);

    for (size_t way = 0; t->sets != NULL && way < WAYS; way++) {
        const struct way *w = &t->sets[(hash >> 8) % SETS][way];
        if (w->hash == hash && chats_is_current(w->chat))
            return w->chat;
    }
    return NULL;
}

static bool send_interrupt(struct instance *i, struct str session_key, struct str chat_id)
{
    struct session *s = i->receiver;

    if (!instance_is_live(i))
        return false;
    frame_write_interrupt(s->wire->ops->send_begin(s->wire), session_key, chat_id);
    s->wire->ops->send_end(s->wire);
    i->relay->n.interrupts_out++;
    return true;
}

/* The instance of a tenant that has just one; NULL otherwise. */
static struct instance *only_instance(struct relay *r, struct str tenant)
{
    struct instance *found = NULL;

    list_each (instances_by_age(r), it, nxt) {
        struct instance *i = list_entry(it, struct instance, link);
        if (!str_eq(instance_tenant(i), tenant))
            continue;
        if (found != NULL)
            return NULL;
        found = i;
    }
    return found;
}

static void on_bus(void *ctx, struct str topic, struct str message)
{
    struct interrupts *t = ctx;
    struct str tenant, key = message;

    (void)topic;
    if (!str_split(&key, '\x1f', &tenant) || key.n == 0)
        return;
    struct known_chat *chat = recall(t, tenant, key);
    struct instance *i = chat != NULL ? chat->inst : only_instance(t->relay, tenant);
    if (i == NULL || !send_interrupt(i, key, chat != NULL ? chat->id : STR("")))
        t->relay->n.interrupts_dropped++;
}

void interrupt_from_gateway(struct session *s, struct str session_key)
{
    struct relay *r = s->inst->relay;
    struct buf message = BUF_INIT;

    r->n.interrupts_in++;
    if (session_key.n == 0 || session_key.n > KEY_MAX_BYTES) {
        r->n.interrupts_dropped++;
        return;
    }
    buf_add_str(&message, instance_tenant(s->inst));
    buf_add_c(&message, '\x1f');
    buf_add_str(&message, session_key);
    bus_publish(r->env.bus, STR(TOPIC), buf_str(&message));
    buf_done(&message);
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

/* The platform sent it again: what runs now may be something else. */
static bool is_repeat(struct instance *i, const struct event *ev)
{
    struct relay *r = i->relay;
    struct hash128 name;

    return delivery_id_of(ev, &r->env.store->dedup_key, instance_tenant(i), instance_id(i),
                          &name) &&
           dedup_has(&r->dedup, name);
}

bool interrupt_on_stop(struct relay *r, const struct event *ev)
{
    enum stop stop = read_stop(ev);
    struct interrupts *t = r->interrupts;
    struct gate_verdict verdicts[GATE_CANDIDATES];

    if (stop == STOP_NO)
        return false;
    r->n.stopped++;
    if (stop == STOP_ANOTHERS) {
        judge_consumed(r, ev, "/stop");
        return true;
    }
    buf_reset(&t->stopped);
    session_key_of_event(&t->stopped, ev);
    size_t n = judge_ask(r, ev, verdicts);
    for (size_t k = 0; k < n; k++) {
        const struct gate_instance *to = verdicts[k].to;
        struct instance *i = instance_find(r, to->tenant, to->instance);
        if (i != NULL && gate_is_yes(verdicts[k].reason) && !is_repeat(i, ev))
            send_interrupt(i, buf_str(&t->stopped), ev->chat_id.p != NULL ? ev->chat_id : STR(""));
    }
    return ev->only_stops;
}

struct interrupts *interrupts_new(struct relay *r)
{
    struct interrupts *t = xcalloc(1, sizeof *t);

    t->relay = r;
    return t;
}

void interrupts_listen(struct relay *r)
{
    bus_subscribe(r->env.bus, TOPIC, on_bus, r->interrupts);
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
