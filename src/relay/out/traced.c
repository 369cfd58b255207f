/* traced.c - design.  (traced.h has the contract.)
 *
 * Each message takes two slots: one under its id, for actions that reply to it, and one under no
 * id, for actions that reply to nothing.  A message without a trace empties the second slot. */
#include "relay/out/traced.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/event.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "store/store.h"

struct traced_slot {
    struct hash128 key;
    int64_t until_ms; /* monotonic; 0: empty */
    uint32_t n;
    char trace[CALLER_TRACE_MAX];
};
struct traced {
    struct traced_slot slots[TRACED_SLOTS];
};

static struct hash128 key_of(const struct instance *i, struct str platform, struct str bot,
                             struct str chat_id, struct str thread_id, struct str message_id)
{
    const struct str parts[] = {instance_key(i), platform, bot, chat_id, thread_id, message_id};
    BUF_LOCAL name = BUF_INIT;

    buf_add_u64(&name, i->life);
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        buf_add_c(&name, ' ');
        buf_add_u64(&name, parts[k].n);
        buf_add_c(&name, ':');
        buf_add_str(&name, parts[k]);
    }
    return hash128(&i->relay->env.store->dedup_key, buf_str(&name));
}

static void put(struct traced *t, struct hash128 key, struct str trace, int64_t until_ms)
{
    struct traced_slot *s = &t->slots[key.lo % TRACED_SLOTS];

    if (trace.n == 0 && (s->key.hi != key.hi || s->key.lo != key.lo))
        return; /* the slot is another message's */
    *s = (struct traced_slot){.key = key, .until_ms = until_ms, .n = (uint32_t)trace.n};
    if (trace.n > 0)
        memcpy(s->trace, trace.p, trace.n);
}

void traced_note(struct instance *i, const struct event *ev)
{
    struct relay *r = i->relay;
    int64_t until_ms = clock_now_ms(r->env.clock) + TRACED_MS;
    struct str trace = caller_trace_valid(ev->trace) ? ev->trace : STR_NULL;

    if (r->traced == NULL)
        r->traced = xcalloc(1, sizeof *r->traced);
    put(r->traced, key_of(i, ev->platform, ev->bot, ev->chat_id, ev->thread_id, STR_NULL), trace,
        until_ms);
    if (trace.n > 0 && ev->message_id.n > 0)
        put(r->traced, key_of(i, ev->platform, ev->bot, ev->chat_id, STR_NULL, ev->message_id),
            trace, until_ms);
}

struct str traced_find(const struct instance *i, struct str platform, struct str bot,
                       const struct action *a)
{
    const struct relay *r = i->relay;
    bool replies = a->reply_to.n > 0;
    struct hash128 key = key_of(i, platform, bot, a->chat_id, replies ? STR_NULL : a->thread_id,
                                replies ? a->reply_to : STR_NULL);
    const struct traced_slot *s = &r->traced->slots[key.lo % TRACED_SLOTS];

    if (s->n == 0 || s->key.hi != key.hi || s->key.lo != key.lo ||
        s->until_ms <= clock_now_ms(r->env.clock))
        return STR_NULL;
    return str_make(s->trace, s->n);
}
