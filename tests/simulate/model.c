/* model.c - the dumb truth the simulation is held against.  (model.h has the promises.) */
#include "simulate/model.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/event.h"

void model_init(struct model *m, struct sim_disk *disk)
{
    *m = (struct model){.disk = disk, .boot = 1};
}

void model_done(struct model *m)
{
    for (unsigned i = 0; i < MODEL_INSTANCES; i++)
        free(m->remembered[i].ids);
    free(m->events);
}

void model_break(struct model *m, const char *fmt, ...)
{
    va_list ap;
    if (m->broken[0] != '\0')
        return; /* the first one is the cause */
    va_start(ap, fmt);
    vsnprintf(m->broken, sizeof m->broken, fmt, ap);
    va_end(ap);
}

static const char *const tenants[] = {"acme", "acme", "other"};
static const char *const names[] = {"ann", "bob", "ann"};

static struct hash128 key_of(const struct model_event *ev, unsigned instance)
{
    struct event e = {.platform = STR("web"), .bot = STR("lobby"), .event_id = str_of(ev->name)};
    struct hash128 key = {0};

    delivery_id_of(&e, &(struct hash_key)SIM_DEDUP_KEY, str_of(tenants[instance]),
                   str_of(names[instance]), &key);
    return key;
}

void model_name(const struct model_event *ev, unsigned instance, char ret[DELIVERY_ID_CHARS])
{
    delivery_id_format(key_of(ev, instance), ret);
}

/* Events of one chat keep their order; where nothing waits, all those of an instance do. */
static unsigned chat_of(const struct model *m, const struct model_event *ev)
{
    return !m->per_chat ? 0 : ev->route == 2 ? 1 : ev->route == 4 ? 2 : 0;
}

/* Is it part of an event that waits in a row of its own, and never was more? */
static bool is_staged(const struct model *m, const struct model_event *ev, unsigned instance)
{
    return m->per_chat && !sim_disk_has_key(m->disk, key_of(ev, instance)) &&
           sim_disk_is_staged(m->disk, ev->name, tenants[instance], names[instance],
                              ev->copies[instance].holder);
}

/* Has the disk heard of this copy, waiting or settled? */
static bool is_known(const struct model *m, const struct model_event *ev, unsigned instance)
{
    return is_staged(m, ev, instance) || sim_disk_has_key(m->disk, key_of(ev, instance)) ||
           sim_disk_may_get_key(m->disk, key_of(ev, instance));
}

/* The row of the delivery whose first event is @head; 0: none. */
static uint64_t row_of(struct model *m, const struct model_event *head, unsigned instance)
{
    char name[DELIVERY_ID_CHARS];
    size_t n;

    model_name(head, instance, name);
    uint64_t row = sim_disk_named(m->disk, str_make(name, sizeof name), &n);
    if (n > 1)
        model_break(m, "%s: %zu rows for instance %u", head->name, n, instance);
    return row;
}

/* Is it on disk?  Its row is remembered, because looking for it by name takes long.  Before a part
 * of a burst was sent, only its row knows which event comes first. */
static bool on_disk(struct model *m, struct model_event *ev, unsigned instance)
{
    struct copy *c = &ev->copies[instance];

    if (c->row != 0 && sim_disk_has_row(m->disk, c->row))
        return true;
    c->row = row_of(m, c->head != 0 ? &m->events[c->head - 1] : ev, instance);
    for (size_t i = 0; m->bursts && c->row == 0 && c->head == 0 && i < m->n; i++) {
        uint64_t row = &m->events[i] != ev ? row_of(m, &m->events[i], instance) : 0;
        c->row = row != 0 && sim_disk_joins(m->disk, row, ev->name) ? row : 0;
    }
    return c->row != 0;
}

/* Is it on disk, as a delivery or as an event that waits? */
static bool is_kept(struct model *m, struct model_event *ev, unsigned instance)
{
    return on_disk(m, ev, instance) || is_staged(m, ev, instance);
}

static void begin_life(struct model *m, struct model_event *ev)
{
    ev->accepting = true;
    ev->failed = ev->unanswered = false;
    if (ev->lives++ == 0)
        ev->offered_at = ++m->moment;
    for (unsigned i = 0; i < MODEL_INSTANCES; i++) {
        struct copy *c = &ev->copies[i];
        if (!(ev->route & (1u << i)) || c->owed || c->acked_boot != 0 || c->settled || m->gone[i])
            continue; /* what is still owed keeps its place in the order */
        c->owed = true;
        c->holder = m->holder[i];
        c->promised = false;
        c->seen = false; /* of its own life only */
        c->row = 0;
        c->head = c->n_parts = 0;
        c->order = ++m->order;
    }
}

struct model_event *model_offer(struct model *m, unsigned route)
{
    if (m->n == m->cap) {
        m->cap = m->cap != 0 ? m->cap * 2 : 64;
        m->events = xrealloc(m->events, m->cap * sizeof *m->events);
    }
    struct model_event *ev = &m->events[m->n];
    *ev = (struct model_event){.route = route,
                               .author = m->n % 7 == 3 ? 'v' : 'u',
                               .command = m->n % 11 == 5};
    snprintf(ev->name, sizeof ev->name, "e%zu", m->n++);
    begin_life(m, ev);
    return ev;
}

void model_offer_again(struct model *m, struct model_event *ev)
{
    begin_life(m, ev);
}

void model_ended(struct model *m, unsigned instance, uint32_t holder)
{
    m->holder[instance] = holder;
    m->remembered[instance].n = 0; /* the next one has a memory of its own */
    for (size_t i = 0; i < m->n; i++) {
        struct copy *c = &m->events[i].copies[instance];
        if (c->order != 0 && c->holder < holder) {
            c->ended = true;
            c->owed = c->promised = false;
        }
    }
}

bool model_is_over(const struct model *m, const struct model_event *ev)
{
    for (unsigned i = 0; i < MODEL_INSTANCES; i++)
        if (ev->copies[i].ended)
            return true;
    return false;
}

void model_accepted(struct model *m, struct model_event *ev, enum bh_err err)
{
    if (!ev->accepting)
        model_break(m, "%s: accepted twice", ev->name);
    ev->accepting = false;
    if (err == BH_OK) {
        ev->confirmed = true;
        for (unsigned i = 0; i < MODEL_INSTANCES; i++) {
            ev->copies[i].promised = ev->copies[i].owed;
            if (ev->copies[i].owed && !ev->copies[i].confirmed)
                ev->copies[i].confirmed_at = ++m->moment;
            ev->copies[i].confirmed |= ev->copies[i].owed;
        }
        return;
    }
    ev->failed =
        true; /* copies that did reach the disk stay owed; the others are nobody's promise */
    for (unsigned i = 0; i < MODEL_INSTANCES; i++) {
        struct copy *c = &ev->copies[i];
        if (c->owed && !c->promised && !is_known(m, ev, i)) {
            c->owed = false;
            c->loose |= m->shared; /* in doubt: its row may come up, before what came meanwhile */
        }
    }
}

unsigned model_owed(const struct model_event *ev)
{
    unsigned owed = 0;
    for (unsigned i = 0; i < MODEL_INSTANCES; i++)
        owed |= ev->copies[i].owed ? 1u << i : 0;
    return owed;
}

void model_accepted_late(struct model *m, const struct model_event *ev, unsigned owed,
                         enum bh_err err)
{
    for (unsigned i = 0; err == BH_OK && i < MODEL_INSTANCES; i++) {
        const struct copy *c = &ev->copies[i];
        if (c->owed && (owed & 1u << i) != 0 && !sim_disk_has_key(m->disk, key_of(ev, i)) &&
            !is_staged(m, ev, i))
            model_break(m, "%s: a process that was replaced says that it is kept, and it is not",
                        ev->name);
    }
}

struct model_event *model_called(struct model *m, unsigned instance, struct str buffer_id)
{
    for (size_t i = 0; i < m->n; i++) {
        char name[DELIVERY_ID_CHARS];
        model_name(&m->events[i], instance, name);
        if (str_eq(buffer_id, str_make(name, sizeof name)))
            return &m->events[i];
    }
    return NULL;
}

struct model_event *model_find(struct model *m, struct str name)
{
    uint64_t at;
    if (name.n < 2 || name.p[0] != 'e' || !str_to_u64(str_skip(name, 1), &at) || at >= m->n)
        return NULL;
    return &m->events[at];
}

/* Promise 3, second half: whatever the same instance was owed before this one, is still owed and
 * not parked, must have gone down this socket already. */
static void check_nothing_skipped(struct model *m, const struct model_socket *s,
                                  const struct copy *now, unsigned chat, const char *name)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct copy *c = &m->events[i].copies[s->instance];
        if (!c->owed || c->order >= now->order || c->acked_boot != 0 || c->sent_on == s->number ||
            c->loose || now->loose || chat_of(m, &m->events[i]) != chat)
            continue;
        if (c->seen && c->order <= s->last_order[chat])
            continue; /* it went down this one before it went down a newer one */
        if (c->sends >= m->max_attempts)
            continue; /* parked, or about to be: the disk may not know yet */
        if (!c->promised || m->events[i].lives > 1)
            continue; /* an unconfirmed one may have died, a repeated one may have a new place */
        model_break(m, "socket %u: %s overtook %s, which is still owed", s->number, name,
                    m->events[i].name);
    }
}

/* Promise 11. */
static void check_burst(struct model *m, const struct model_socket *s,
                        const struct model_names *all)
{
    const struct model_event *head = model_find(m, all->names[0]);
    for (size_t i = 0; head != NULL && i < all->n; i++) {
        const struct model_event *ev = model_find(m, all->names[i]);
        if (ev == NULL)
            return;
        const struct copy *c = &ev->copies[s->instance];
        if (all->n > 1 && (ev->author != head->author || ev->command || ev->route != head->route))
            model_break(m, "%s does not belong into the burst of %s", ev->name, head->name);
        if (c->seen && c->head != (size_t)(head - m->events) + 1)
            model_break(m, "%s: sent in the burst of %s, and in another one before", ev->name,
                        head->name);
        if (ev == head && c->seen && c->n_parts != all->n)
            model_break(m, "%s: a burst of %zu messages that had %zu", ev->name, all->n,
                        c->n_parts);
    }
}

static void sent_one(struct model *m, struct model_socket *s, struct str name)
{
    struct model_event *ev = model_find(m, name);
    m->checks++;
    if (ev == NULL || !(ev->route & (1u << s->instance))) {
        model_break(m, "socket %u: instance %u got %.*s, which is not for it", s->number,
                    s->instance, STR_FMT(name));
        return;
    }
    struct copy *c = &ev->copies[s->instance];
    unsigned chat = chat_of(m, ev);
    if (!c->loose && c->order <= s->last_order[chat])
        model_break(m, "socket %u: %s is number %" PRIu64 " after %" PRIu64 ": order or twice",
                    s->number, ev->name, c->order, s->last_order[chat]);
    if (c->holder != s->holder)
        model_break(m, "socket %u: holder %u of the name got %s, which is holder %u's", s->number,
                    s->holder, ev->name, c->holder);
    if (c->acked_boot == m->boot)
        model_break(m, "%s: sent again by the process that was told of its ack", ev->name);
    if (c->settled)
        model_break(m, "%s: sent again after its ack was on disk", ev->name);
    if (s->idle_acked)
        model_break(m, "socket %u: %s sent after going_idle_ack", s->number, ev->name);
    if (m->shared && !on_disk(m, ev, s->instance) && !c->settled)
        model_break(m, "socket %u: %s was sent before it was written", s->number, ev->name);
    check_nothing_skipped(m, s, c, chat, ev->name);
    if (!c->loose)
        s->last_order[chat] = c->order;
    c->seen = true;
    c->acked_boot = 0;
    c->sent_on = s->number;
    c->sent_at = ++m->moment;
    c->sends++;
}

void model_sent(struct model *m, struct model_socket *s, const struct model_names *all,
                struct str buffer_id)
{
    const struct model_event *head = model_find(m, all->names[0]);
    char expected[DELIVERY_ID_CHARS];
    check_burst(m, s, all);
    if (head != NULL) {
        model_name(head, s->instance, expected);
        if (!str_eq(buffer_id, str_make(expected, sizeof expected)))
            model_break(m, "%s: called %.*s, which is not its name", head->name,
                        STR_FMT(buffer_id));
    }
    for (size_t i = 0; i < all->n; i++) {
        struct model_event *ev = model_find(m, all->names[i]);
        if (ev != NULL && head != NULL) {
            ev->copies[s->instance].head = (size_t)(head - m->events) + 1;
            ev->copies[s->instance].n_parts = all->n;
        }
        sent_one(m, s, all->names[i]);
    }
}

void model_idle_acked(struct model *m, const struct model_socket *s)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct copy *c = &m->events[i].copies[s->instance];
        bool before = c->order <= s->idle_order; /* one that waited may have entered later */
        m->checks++;
        if (c->sent_on == s->number && before && (!m->per_chat || c->sent_at < s->idle_at) &&
            c->acked_boot == 0 && !c->settled && !c->ended &&
            !is_kept(m, &m->events[i], s->instance))
            model_break(m, "socket %u: going_idle_ack, but %s is neither acked nor on disk",
                        s->number, m->events[i].name);
    }
}

/* True: it was not there yet. */
static bool remember(struct model *m, unsigned instance, struct str buffer_id)
{
    uint64_t id = hash64(&(struct hash_key)SIM_DEDUP_KEY, buffer_id);
    for (size_t i = 0; i < m->remembered[instance].n; i++)
        if (m->remembered[instance].ids[i] == id)
            return false;
    if (m->remembered[instance].n == m->remembered[instance].cap) {
        m->remembered[instance].cap = m->remembered[instance].n * 2 + 64;
        m->remembered[instance].ids =
            xrealloc(m->remembered[instance].ids, m->remembered[instance].cap * sizeof(uint64_t));
    }
    m->remembered[instance].ids[m->remembered[instance].n++] = id;
    return true;
}

/* Promise 7: what was confirmed before this one was ever offered has had its effect. */
static void check_effects_in_order(struct model *m, unsigned instance, const struct model_event *ev)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct model_event *older = &m->events[i];
        const struct copy *c = &older->copies[instance];
        if (!c->confirmed || c->confirmed_at > ev->offered_at || c->effects != 0 || c->ended ||
            c->sends >= m->max_attempts || chat_of(m, older) != chat_of(m, ev))
            continue;
        model_break(m, "instance %u acted on %s before %s, which was confirmed before it", instance,
                    ev->name, older->name);
    }
}

void model_received(struct model *m, unsigned instance, const struct model_names *all,
                    struct str buffer_id)
{
    bool first = false;
    for (size_t i = 0; i < all->n; i++) {
        struct model_event *ev = model_find(m, all->names[i]);
        if (ev == NULL)
            continue;
        struct copy *c = &ev->copies[instance];
        c->received = true;
        if (i == 0)
            first = !c->ended && remember(m, instance, buffer_id);
        if (c->ended || !first)
            continue;
        if (++c->effects > 1)
            model_break(m, "instance %u acted twice on %s", instance, ev->name);
        check_effects_in_order(m, instance, ev);
    }
}

struct model_event *model_unanswered(struct model *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->events[i].unanswered && !model_is_over(m, &m->events[i]))
            return &m->events[i];
    return NULL;
}

void model_acked(struct model *m, unsigned instance, const struct model_event *ev)
{
    for (size_t i = 0; i < m->n; i++) {
        struct copy *c = &m->events[i].copies[instance];
        if (c->seen && c->head == (size_t)(ev - m->events) + 1)
            c->acked_boot = m->boot;
    }
}

/* A new process: it remembers what the disk does.  An ack that was not on disk may be forgotten,
 * an unconfirmed event may be gone; a confirmed one may not. */
void model_crashed(struct model *m)
{
    m->boot++;
    m->planned++;
    for (size_t i = 0; i < m->n; i++) {
        struct model_event *ev = &m->events[i];
        ev->unanswered |= ev->accepting;
        ev->accepting = false;
        for (unsigned k = 0; k < MODEL_INSTANCES; k++) {
            struct copy *c = &ev->copies[k];
            bool kept = is_kept(m, ev, k);
            c->loose |= c->acked_boot != 0 && is_staged(m, ev, k);
            if (c->acked_boot != 0 && !kept) {
                c->settled = is_known(m, ev, k);
                c->owed = false; /* if the disk knows nothing of it, a repeat is taken as new */
            }
            c->acked_boot = 0;
            if (c->owed && !kept && !c->promised && !is_known(m, ev, k))
                c->owed = false;
        }
    }
}

void model_check(struct model *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct model_event *ev = &m->events[i];
        for (unsigned k = 0; k < MODEL_INSTANCES; k++) {
            const struct copy *c = &ev->copies[k];
            if (!c->owed || !c->promised || !c->seen || c->settled || c->acked_boot != 0)
                continue;
            m->checks++;
            if (!is_kept(m, ev, k))
                model_break(m, "%s: confirmed, but instance %u neither acked it nor is it on disk",
                            ev->name, k);
        }
    }
}

/* Promise 6, second half.  The frame of a row names its event; whose it is, only the box knows. */
static void check_row(void *ctx, struct str frame)
{
    struct model *m = ctx;
    for (size_t i = 0; i < m->n; i++) {
        const struct model_event *ev = &m->events[i];
        char mark[48];
        bool owed = false;
        int n = snprintf(mark, sizeof mark, "\"message_id\":\"%s\"", ev->name);
        if (!str_contains(frame, str_make(mark, (size_t)n)))
            continue;
        for (unsigned k = 0; k < MODEL_INSTANCES; k++)
            owed |= ev->copies[k].order != 0 && !ev->copies[k].ended;
        if (!owed)
            model_break(m, "%s: its holder gave the name up, and it is still on disk", ev->name);
    }
}

void model_check_end(struct model *m)
{
    sim_disk_each_frame(m->disk, check_row, m);
    for (size_t i = 0; i < m->n; i++) {
        struct model_event *ev = &m->events[i];
        for (unsigned k = 0; ev->confirmed && k < MODEL_INSTANCES; k++) {
            const struct copy *c = &ev->copies[k];
            m->checks++;
            if (c->acked_boot == m->boot && on_disk(m, ev, k))
                model_break(m, "%s: acked, but its row is still on disk", ev->name);
            if (!(ev->route & (1u << k)) || c->received || c->ended || !c->confirmed)
                continue;
            if (on_disk(m, ev, k) && sim_disk_is_parked(m->disk, c->row))
                continue;
            model_break(m, "%s: confirmed, but instance %u never received it", ev->name, k);
        }
    }
}
