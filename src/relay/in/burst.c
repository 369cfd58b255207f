/* burst.c - design.  (burst.h has the contract.)
 *
 * While a burst waits, only its parts have the text.  burst_finish() makes the text of the joined
 * event from the parts once, so that a long burst costs no more memory than its messages. */
#include "relay/in/burst.h"
#include <assert.h>
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/staged_priv.h"

bool burst_takes(const struct event *ev)
{
    struct str text = str_trim(ev->text);
    bool plain = str_is_empty(ev->message_type) || str_eq(ev->message_type, STR("text"));

    return ev->burst_ms > 0 && ev->event_id.n > 0 && ev->message_id.n > 0 && ev->user_id.n > 0 &&
           !ev->author_is_bot && !ev->edit.set && ev->press.prompt_id.n == 0 &&
           ev->dispatch.n == 0 && ev->filed_as.n == 0 && ev->only_instance.n == 0 &&
           !ev->only_stops && (plain || ev->n_media > 0) &&
           !str_eq(ev->message_type, STR("command")) && (text.n == 0 || text.p[0] != '/') &&
           utf8_valid(ev->text); /* message_parts counts the bytes that are written */
}

static size_t text_bytes(const struct event *burst)
{
    size_t n = burst->n_parts == 0 ? burst->text.n : 0;

    for (size_t i = 0; i < burst->n_parts; i++)
        n += burst->parts[i].text.n + 1;
    return n;
}

bool burst_is_full(const struct event *burst)
{
    return burst->n_parts >= EVENT_MAX_PARTS || burst->n_media >= EVENT_MAX_MEDIA ||
           text_bytes(burst) >= BURST_TEXT_BYTES;
}

bool burst_fits(const struct event *burst, const struct event *ev)
{
    return !burst_is_full(burst) && str_eq(burst->user_id, ev->user_id) &&
           str_eq(burst->thread_id, ev->thread_id) && str_eq(burst->scope_id, ev->scope_id) &&
           str_eq(burst->chat_type, ev->chat_type) && str_eq(burst->route_key, ev->route_key) &&
           (str_is_empty(ev->reply_to_message_id) ||
            str_eq(burst->reply_to_message_id, ev->reply_to_message_id)) &&
           burst->n_media + ev->n_media <= EVENT_MAX_MEDIA &&
           text_bytes(burst) + ev->text.n <= BURST_TEXT_BYTES;
}

static struct event_part part_of(const struct event *ev)
{
    return (struct event_part){.event_id = ev->event_id,
                               .message_id = ev->message_id,
                               .message_type = ev->message_type,
                               .text = ev->text,
                               .n_media = ev->n_media};
}

void burst_finish(struct event *burst, struct arena *arena)
{
    const struct event_part *first = NULL, *typed = NULL;
    struct buf text = BUF_INIT;

    for (size_t i = 0; i < burst->n_parts; i++) {
        const struct event_part *p = &burst->parts[i];
        if (p->deleted)
            continue;
        first = first != NULL ? first : p;
        typed = typed == NULL && p->n_media > 0 ? p : typed;
        if (p->text.n > 0 && text.n > 0)
            buf_add_c(&text, '\n');
        buf_add_str(&text, p->text);
    }
    if (first != NULL) {
        burst->message_id = first->message_id;
        burst->message_type = typed != NULL ? typed->message_type : first->message_type;
        burst->text = arena_str(arena, buf_str(&text));
    }
    if (burst->n_parts == 1)
        burst->n_parts = 0; /* one message is no burst */
    buf_done(&text);
}

/* The first part, and room for all that may follow. */
static void make_room(struct event *burst, struct arena *arena)
{
    struct event_part *parts = arena_alloc(arena, EVENT_MAX_PARTS * sizeof *parts);
    struct event_media *media = arena_alloc(arena, EVENT_MAX_MEDIA * sizeof *media);

    parts[0] = part_of(burst);
    if (burst->n_media > 0)
        memcpy(media, burst->media, burst->n_media * sizeof *media);
    burst->parts = parts;
    burst->n_parts = 1;
    burst->media = media;
}

static struct event_part *parts_in(struct event *burst) /* they are in the arena */
{
    return (struct event_part *)burst->parts;
}

void burst_join(struct event *burst, struct arena *arena, const struct event *ev)
{
    const struct event kept = {.event_id = ev->event_id,
                               .message_id = ev->message_id,
                               .message_type = ev->message_type,
                               .text = ev->text,
                               .media = ev->media,
                               .n_media = ev->n_media};
    struct event own;

    if (burst->n_parts == 0)
        make_room(burst, arena);
    assert(burst->n_parts < EVENT_MAX_PARTS && burst->n_media + ev->n_media <= EVENT_MAX_MEDIA);
    event_copy(&kept, arena, &own);
    parts_in(burst)[burst->n_parts++] = part_of(&own);
    if (own.n_media > 0)
        memcpy((struct event_media *)burst->media + burst->n_media, own.media,
               own.n_media * sizeof *own.media);
    burst->n_media += own.n_media;
    burst->mentions_bot |= ev->mentions_bot;
    burst->replies_to_bot |= ev->replies_to_bot;
}

void burst_cut(struct event *burst, size_t n_parts)
{
    assert(n_parts > 0);
    while (burst->n_parts > n_parts)
        burst->n_media -= burst->parts[--burst->n_parts].n_media;
}

int burst_find(const struct event *burst, struct str event_id)
{
    if (str_is_empty(event_id))
        return -1;
    for (size_t i = 0; i < burst->n_parts; i++)
        if (str_eq(burst->parts[i].event_id, event_id))
            return (int)i;
    return burst->n_parts == 0 && str_eq(burst->event_id, event_id) ? 0 : -1;
}

bool burst_edit(struct event *burst, struct arena *arena, int part, const struct event *ev)
{
    size_t left = 0;

    if (burst->n_parts == 0)
        make_room(burst, arena);
    struct event_part *p = &parts_in(burst)[part];
    if (ev->edit.deletes) {
        /* Its files are emptied.  The others keep their places: fetches under way name them. */
        struct event_media *media = (struct event_media *)burst->media; /* in the arena */
        for (int i = 0; i < part; i++)
            media += burst->parts[i].n_media;
        for (size_t i = 0; i < p->n_media; i++)
            media[i] = (struct event_media){0};
        *p = (struct event_part){.event_id = p->event_id, .n_media = p->n_media, .deleted = true};
        if (part == 0) { /* the quote was its own */
            burst->reply_to.set = false;
            burst->reply_to_message_id = STR_NULL;
        }
    } else if (!p->deleted) {
        p->text = arena_str(arena, ev->edit.text);
    }
    for (size_t i = 0; i < burst->n_parts; i++)
        left += !burst->parts[i].deleted;
    return left > 0;
}

/* ---- the row of a burst ---- */

static store_done_cb on_rewritten;

void burst_rewrite(struct staged *e)
{
    staged_save(e);
    e->n_covered = e->waiting.n;
    e->rewriting = true;
    e->n_written = e->ev.n_parts > 0 ? e->ev.n_parts : 1;
    e->rewrite = (struct store_mark){.op = {.done = on_rewritten},
                                     .id = e->append.id,
                                     .frame = buf_str(&e->body)};
    drain_hold(e->relay);
    store_mark(e->relay->env.store, &e->rewrite);
}

void burst_again(struct timer *timer)
{
    burst_rewrite(container_of(timer, struct staged, again));
}

void burst_changed(struct staged *e, struct accept *a)
{
    fifo_push(&e->waiting, a);
    accept_hold(a);
    if (e->state != STAGED_WRITING && !e->rewriting)
        burst_rewrite(e);
}

/* A part must not enter before it is on disk.  After a crash the burst would enter without it under
 * the same bufferId, and its repetition would be another delivery. */
static void on_rewritten(struct store_op *op, enum bh_err err)
{
    struct staged *e = container_of(op, struct staged, rewrite.op);
    struct relay *r = e->relay;

    drain_release(r);
    e->in_doubt = err == BH_UNKNOWN || (e->in_doubt && err != BH_OK);
    if (e->in_doubt && !r->draining) {
        timer_set(r->env.clock, &e->again, RETRY_MS);
        return;
    }
    e->rewriting = false;
    if (err == BH_OK) {
        e->n_safe = e->n_written;
        staged_tell(e, e->n_covered, BH_OK);
    } else {
        r->n.refused_store++;
        staged_tell(e, e->waiting.n, BH_UNAVAILABLE);
        burst_cut(&e->ev, e->n_safe);
    }
    if (e->dropped)
        timer_set(r->env.clock, &e->timer, 0);
    else if (!fifo_is_empty(&e->waiting))
        burst_rewrite(e);
    else if (e->state == STAGED_READY)
        staged_advance(e->chat);
}

/* ---- the end of a burst ---- */

void bursts_end(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                size_t n)
{
    struct staged_chat *c = staged_chat_of(r->stage, ev);

    if (c == NULL)
        return;
    list_each (&c->events, it, nxt) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        bool shared = false;
        for (size_t i = 0; e->joins && i < n && !shared; i++)
            shared = gate_may_yet(verdicts[i].reason) && staged_has(e->to, e->n_to, verdicts[i].to);
        if (!shared)
            continue;
        e->joins = false;
        if (e->state == STAGED_WAITING && staged_has_outlet(e))
            staged_begin(e); /* may enter now, but stays in the list until that is on disk */
        else if (e->state == STAGED_WAITING)
            timer_set(r->env.clock, &e->timer, OUTLET_MS);
    }
}

/* ---- joining ---- */

bool burst_was_given(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                     size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (gate_is_yes(verdicts[i].reason) && accept_is_known(r, ev, &verdicts[i], 1))
            return true;
    return false;
}

/* True when @verdicts name exactly the recipients of the row. */
static bool has_recipients(const struct staged *e, const struct gate_verdict *verdicts, size_t n)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        if (gate_is_yes(verdicts[i].reason)) {
            if (!staged_has(e->to, e->n_to, verdicts[i].to))
                return false;
            found++;
        }
    return found == e->n_to;
}

bool burst_take(struct relay *r, struct staged_chat *c, const struct event *ev,
                const struct gate_verdict *verdicts, size_t n, struct accept *a)
{
    struct clock *clock = r->env.clock;

    list_each (&c->events, it, nxt) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        int64_t left_ms = e->last_ms - clock_now_ms(clock);
        if (!e->joins || e->dropped || left_ms <= 0 || !has_recipients(e, verdicts, n) ||
            !burst_fits(&e->ev, ev) || burst_was_given(r, ev, verdicts, n))
            continue;
        burst_join(&e->ev, &e->arena, ev);
        r->n.joined++;
        burst_changed(e, a);
        if (burst_is_full(&e->ev))
            left_ms = 0;
        if (e->state == STAGED_WAITING)
            timer_set(clock, &e->timer, left_ms < e->ev.burst_ms ? left_ms : e->ev.burst_ms);
        return true;
    }
    return false;
}
