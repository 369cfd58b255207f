/* inbound.c - receives the events of rooms, by /sync or by transactions of the homeserver.
 * (matrix_priv.h has the calls.)
 *
 *      a token:    WHO --whoami, versions--> FETCH --/sync--> DELIVER --all safe--> SAVE --+
 *                                              ^------------ next_batch is on disk --------+
 *      a service:  WHO --registered--> LISTEN; a transaction: DELIVER --> SAVE --> its answer
 *      WHO, FETCH --failure--> REST --timer--> the same state
 *
 * What one sync or transaction told is a batch: a queue for each room, whose events are accepted in
 * order.  `next_batch`, or the id of the transaction, is written when every event of the batch is
 * safe.  If the process dies before that, the homeserver tells the same again, and the host drops
 * what it has by the ids of the events.
 *
 *      a queue:  [gap] --> event --> event ... --> done
 *                 '-- /messages, page by page, oldest first
 *
 * A timeline that is `limited` leaves a gap between the last sync and its first event.  The gap is
 * read forwards from the last `since`, so that a long one needs little memory.
 *
 * The first sync ever only tells where rooms are: old messages stay unanswered.  In a room that
 * the bot has just joined, events count from its invitation on, so a gap there is read from the
 * `since` of the sync that told the invitation.
 *
 * Long because syncs and transactions are one machine: batch, queue and gap end each other. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "platform/matrix/matrix_priv.h"

enum {
    POLL_MS = 30000, /* the homeserver answers a sync after this time at the latest */
    BEAT_MS = 44500, /* so much later without an answer, the bot is deaf */
    CALL_MS = 20000,
    REVOKED_REST_MS = 60000,
    MAX_REST_MS = 60000,
    MAX_RETRY_MS = 30000,
    RETRIES_ARE_A_PROBLEM = 5,
    QUICK_MS = 500, /* empty answers within this time, so many in a row: ... */
    QUICKS = 4,     /* ... a server that does not wait */
    MAX_GAPS = 4,   /* gaps that are filled at once */
    MAX_SELVES = 16,
};
#define TYPES \
    "[\"m.room.message\",\"m.sticker\",\"m.reaction\",\"m.room.redaction\",\"m.room.encrypted\"," \
    "\"m.room.member\",\"m.room.name\",\"m.room.encryption\",\"m.room.tombstone\"]"
#define NOTHING "{\"types\":[]}"
#define FILTER(limit) \
    "{\"presence\":" NOTHING ",\"account_data\":" NOTHING ",\"room\":{\"account_data\":" NOTHING \
    ",\"ephemeral\":" NOTHING ",\"state\":{\"types\":[\"m.room.member\",\"m.room.name\"," \
    "\"m.room.encryption\"],\"lazy_load_members\":true},\"timeline\":{\"limit\":" limit \
    ",\"lazy_load_members\":true,\"types\":" TYPES "}}}"

/* ---- the record ---- */

struct mx_cursor_record { /* how far the homeserver's events were taken */
    struct str bot, next, txn;
};
static const struct record_field cursor_fields[] = {
    RECORD_FIELD(struct mx_cursor_record, bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct mx_cursor_record, next, "next", 0, .max = 4096),
    RECORD_FIELD(struct mx_cursor_record, txn, "txn", 0, .max = 256),
};
const struct record_form mx_cursor_form =
    RECORD_FORM("matrix", struct mx_cursor_record, cursor_fields, .lossy = true);

static bool on_cursor(void *ctx, struct str key, void *thing)
{
    struct matrix *m = ctx;
    const struct mx_cursor_record *r = thing;

    if (!str_eq(r->bot, str_of(m->base.bot)))
        return true; /* another bot, whose name begins alike */
    buf_add_str(&m->in.since, r->next);
    buf_add_str(&m->in.txn, r->txn);
    return true;
}

/* ---- states ---- */

#define B(state) (1u << MX_##state)
static const struct {
    const char *name;
    unsigned next;
} states[] = {
    [MX_WHO] = {"connecting", B(FETCH) | B(LISTEN) | B(REST)},
    [MX_FETCH] = {"live", B(DELIVER) | B(FETCH) | B(REST)},
    [MX_DELIVER] = {"delivering", B(SAVE)},
    [MX_SAVE] = {"saving", B(FETCH) | B(LISTEN) | B(REST)},
    [MX_LISTEN] = {"live", B(DELIVER)},
    [MX_REST] = {"waiting to try again", B(WHO) | B(FETCH)},
};

/* The only place that writes the state. */
static void enter(struct matrix *m, enum mx_in_state next)
{
    assert(states[m->in.state].next & 1u << next);
    log_debug(&m->base.log, "%s -> %s", states[m->in.state].name, states[next].name);
    m->in.state = next;
}

const char *mx_in_state_name(struct platform *p)
{
    const struct matrix *m = matrix_of(p);
    bool busy = m->in.state == MX_DELIVER || m->in.state == MX_SAVE;

    return p->problem != NULL ? "degraded" : busy ? "live" : states[m->in.state].name;
}

static void rest(struct matrix *m, int64_t ms, enum mx_in_state back_to)
{
    m->in.back_to = back_to;
    enter(m, MX_REST);
    timer_set(m->base.env->clock, &m->in.timer, ms);
}

static void failed(struct matrix *m, const struct mx_answer *a)
{
    enum mx_in_state from = m->in.state;
    int64_t ms = clock_backoff_ms(++m->in.failures, 1000, MAX_REST_MS);
    char text[256];

    log_debug(&m->base.log, "%s failed: status=%d %s", states[from].name, a->status, a->why);
    if (a->status == 429) {
        m->n.limited++;
        rest(m, a->retry_after_ms > 0 ? a->retry_after_ms : ms, from);
        return;
    }
    if (a->status == 401 || str_eq(a->errcode, STR("M_UNKNOWN_TOKEN"))) {
        platform_set_problem(
            &m->base, mx_is_service(m)
                          ? "The homeserver does not know appservice.as_token: give it the file "
                            "that `bellhop matrix registration` prints, and restart it."
                          : "The homeserver does not accept the token (logged out, or mistyped): "
                            "get a new one and put it into the configuration.");
        rest(m, REVOKED_REST_MS, MX_WHO);
        return;
    }
    if (from == MX_FETCH && a->status == 400 && m->in.since.n > 0 && m->in.failures > 1) {
        log_warn(&m->base.log,
                 "the homeserver does not know the `since` of the last sync (%s): starting "
                 "at its newest ones",
                 a->why);
        buf_reset(&m->in.since);
    }
    snprintf(text, sizeof text, "The homeserver %s: %.180s",
             a->status == 0 || a->status >= 500 ? "cannot be reached" : "refuses", a->why);
    if (m->in.failures >= 2 || (a->status >= 400 && a->status < 500))
        platform_set_problem(&m->base, text);
    rest(m, ms, from);
}

static struct http_call *get(struct matrix *m, struct buf *path, int64_t timeout_ms,
                             http_done_cb *done, void *ctx)
{
    BUF_LOCAL url = BUF_INIT;
    const char *const headers[] = {m->auth, NULL};

    buf_printf(&url, "%s%s", m->base.api_base, buf_z(path));
    return http_fetch(m->base.env->http,
                      &(struct http_fetch){.url = buf_z(&url),
                                           .headers = headers,
                                           .timeout_ms = timeout_ms,
                                           .max_body = MX_MAX_ANSWER},
                      done, ctx);
}

/* ---- one event ---- */

struct mx_item {
    struct mx_item *next;
    struct json event;
};
struct mx_gap {
    struct http_call *call;     /* owned; NULL: none in flight */
    struct json_parser *parser; /* owned */
    struct json_iter it;        /* of the page */
    struct json page;
    struct buf from, to; /* owned; the next page, and where the gap ends */
    bool has_event;      /* it.value is the next event */
    bool last;           /* there is no other page */
    struct timer timer;
    unsigned failures;
    struct mx_queue *queue;
};
enum mx_queue_state { QUEUE_READY, QUEUE_TAKING, QUEUE_ASKING, QUEUE_RETRY, QUEUE_GAP, QUEUE_DONE };
struct mx_queue { /* the events of one room; in the batch's arena */
    struct matrix *m;
    struct str room;
    struct mx_item *first, *last;
    struct mx_gap *gap; /* owned; NULL: none, or filled */
    enum mx_queue_state state;
    struct list link; /* mx_batch.waiting */
    struct str read;  /* the newest event that was for the bot; absent: none */
    struct str actor; /* the user of ours it was for */
    bool skips;       /* events count from the entry of the bot on, which has not come yet */
    bool has_entry;   /* the entry is in the timeline, maybe not only there */
};

struct mx_accepting {
    struct mx_queue *queue;
    uint32_t generation;
};

static void queue_go(struct mx_queue *l);

static void on_again(struct timer *t)
{
    struct matrix *m = container_of(t, struct matrix, in.batch.again);
    uint32_t generation = m->in.batch.generation;
    struct mx_queue *l;

    for (size_t i = 0;
         generation == m->in.batch.generation && map_next(&m->in.batch.queues, &i, (void **)&l);)
        if (l->state == QUEUE_RETRY) {
            l->state = QUEUE_READY;
            queue_go(l);
        }
}

static void queue_next(struct mx_queue *l)
{
    if (l->gap != NULL && l->gap->has_event)
        l->gap->has_event = json_next(l->gap->page, &l->gap->it);
    else
        l->first = l->first->next;
    l->state = QUEUE_READY;
}

static void on_accepted(struct platform *p, void *with, enum bh_err err)
{
    const struct mx_accepting *a = with;
    struct matrix *m = matrix_of(p);
    struct mx_batch *b = &m->in.batch;
    struct mx_queue *l = a->queue;

    if (a->generation != b->generation)
        return;
    if (err == BH_BUSY || err == BH_UNAVAILABLE) {
        l->state = QUEUE_RETRY;
        if (timer_is_set(&b->again))
            return;
        if (++b->failures == RETRIES_ARE_A_PROBLEM)
            platform_set_problem(p, err == BH_BUSY
                                        ? "Messages wait at the homeserver because a mailbox is "
                                          "full: start its agent, or purge it (bellhop mailbox "
                                          "list)."
                                        : "Messages wait at the homeserver because the store "
                                          "cannot take them.");
        timer_set(p->env->clock, &b->again, clock_backoff_ms(b->failures, 500, MAX_RETRY_MS));
        return;
    }
    if (err != BH_OK)
        log_warn(&p->log, "dropped an event: %s", bh_err_word(err));
    queue_next(l);
    queue_go(l);
}

/* A message that is meant for the user of an instance goes to that instance only. */
static void address(struct matrix *m, struct mx_queue *l, const struct mx_in *in,
                    struct mx_out *out, struct buf *tenant, struct buf *instance)
{
    size_t who = out->addressed;

    if (who == in->n_self && in->n_self == 1)
        who = 0; /* nobody else of ours is in the room */
    if (who == in->n_self)
        return;
    if (in->dm || out->ev.mentions_bot || out->ev.replies_to_bot) {
        l->actor = arena_str(&m->in.batch.arena, in->self[who].id);
        l->read = arena_str(&m->in.batch.arena, out->ev.event_id);
    }
    if (mx_instance_of(m, in->self[who].id, tenant, instance)) {
        out->ev.only_tenant = buf_str(tenant);
        out->ev.only_instance = buf_str(instance);
    }
}

/* False: the event is done with.  True: the queue waits. */
static bool take(struct mx_queue *l, struct json event)
{
    struct matrix *m = l->m;
    struct mx_state s;
    struct str sender = json_str(event, "sender");
    const struct prompt_option *option = NULL;

    if (mx_state_read(event, &s)) {
        mx_room_apply(m, l->room, &s, true);
        return false;
    }
    if (mx_is_ours(m, sender)) { /* replies to it are for the bot */
        if (mx_is_event(json_str(event, "event_id")))
            mx_said_by(m, json_str(event, "event_id"), true);
        return false;
    }
    struct mx_room *r = mx_room_use(m, l->room);
    if (!r->known) {
        l->state = QUEUE_ASKING;
        mx_room_learn(m, r);
        return true;
    }
    struct mx_self selves[MAX_SELVES];
    struct mx_in in = {.bot = str_of(m->base.bot),
                       .server = m->server,
                       .self = selves,
                       .n_self = mx_room_selves(m, r, selves, MAX_SELVES),
                       .room = l->room,
                       .room_name = str_of(r->name),
                       .author_name = mx_person_name(m, sender),
                       .dm = r->members > 0 && r->members <= 2,
                       .reactions = m->cfg->base.reactions,
                       .is_own = mx_is_own,
                       .ctx = m};
    if (!mx_knows_answered(m, r, event, in.dm)) {
        l->state = QUEUE_ASKING;
        return true;
    }
    struct mx_out out;
    enum mx_verdict v = mx_normalize(event, &in, &m->in.batch.arena, &out);
    if (v == MX_ENCRYPTED && r->encrypted) /* in another room anybody can send such an event */
        mx_room_is_encrypted(m, r);
    if (v != MX_EVENT) {
        m->base.n.ignored += v != MX_MALFORMED;
        m->base.n.malformed += v == MX_MALFORMED;
        log_debug(&m->base.log, "event ignored: %s", out.why != NULL ? out.why : "no message");
        return false;
    }
    BUF_LOCAL tenant = BUF_INIT, instance = BUF_INIT;
    out.ev.author_is_bot |= mx_is_neighbour(m, sender);
    address(m, l, &in, &out, &tenant, &instance);
    struct prompt *q =
        out.ev.edit.set ? NULL : prompts_answered(m->base.prompts, &out.ev, STR_NULL, &option);
    l->state = QUEUE_TAKING;
    await_event(&m->base, &(struct webhook_delivery){.ev = &out.ev, .prompt = q, .option = option},
                &(struct mx_accepting){l, m->in.batch.generation}, sizeof(struct mx_accepting),
                on_accepted);
    return true;
}

/* ---- gaps ---- */

static void gap_free(struct matrix *m, struct mx_gap *g)
{
    http_cancel(&g->call);
    timer_stop(m->base.env->clock, &g->timer);
    json_parser_free(g->parser);
    buf_done(&g->from);
    buf_done(&g->to);
    free(g);
}

static void gap_fetch(struct mx_gap *g);

static void on_gap_timer(struct timer *t)
{
    gap_fetch(container_of(t, struct mx_gap, timer));
}

static void on_page(void *ctx, const struct http_result *r)
{
    struct mx_gap *g = ctx;
    struct matrix *m = g->queue->m;
    struct mx_answer a;

    g->call = NULL;
    mx_answer_read(g->parser, r, &a);
    if (a.status == 0 || a.status == 429 || a.status >= 500) {
        int64_t ms = clock_backoff_ms(++g->failures, 1000, MAX_REST_MS);
        timer_set(m->base.env->clock, &g->timer, a.retry_after_ms > ms ? a.retry_after_ms : ms);
        return;
    }
    if (a.status >= 300) {
        log_warn(&m->base.log, "messages of %.*s were missed: %s", STR_FMT(g->queue->room), a.why);
        g->last = true;
    } else {
        struct str end = json_str(a.doc, "end");
        for (struct json_iter it = {0}; json_next(json_get(a.doc, "state"), &it);) {
            struct mx_state s;
            if (mx_state_read(it.value, &s) && s.fact == MX_MEMBER)
                mx_room_apply(m, g->queue->room, &s, false);
        }
        g->page = json_get(a.doc, "chunk");
        g->it = (struct json_iter){0};
        g->has_event = json_next(g->page, &g->it);
        g->last = end.n == 0 || str_eq(end, buf_str(&g->to)) || str_eq(end, buf_str(&g->from));
        buf_reset(&g->from);
        buf_add_str(&g->from, end);
    }
    g->failures = 0;
    g->queue->state = QUEUE_READY;
    queue_go(g->queue);
}

static void gap_fetch(struct mx_gap *g)
{
    BUF_LOCAL path = BUF_INIT;

    mx_room_path(&path, g->queue->room, "/messages?dir=f&limit=100&from=");
    percent_encode(&path, buf_str(&g->from));
    buf_add_z(&path, "&to=");
    percent_encode(&path, buf_str(&g->to));
    buf_add_z(&path, "&filter=");
    percent_encode(&path, STR("{\"lazy_load_members\":true,\"types\":" TYPES "}"));
    g->call = get(g->queue->m, &path, CALL_MS, on_page, g);
}

static void gap_begin(struct mx_queue *l)
{
    struct matrix *m = l->m;

    l->state = QUEUE_GAP;
    if (m->in.batch.n_gaps >= MAX_GAPS) {
        list_append(&m->in.batch.waiting, &l->link);
        return;
    }
    m->in.batch.n_gaps++;
    m->n.gaps++;
    l->gap->parser = json_parser_new();
    timer_init(&l->gap->timer, on_gap_timer);
    gap_fetch(l->gap);
}

static void gap_end(struct mx_queue *l)
{
    struct mx_batch *b = &l->m->in.batch;

    gap_free(l->m, l->gap);
    l->gap = NULL;
    b->n_gaps--;
    if (list_is_empty(&b->waiting))
        return;
    struct mx_queue *next = list_entry(b->waiting.next, struct mx_queue, link);
    list_remove(&next->link);
    gap_begin(next);
}

/* True: the gap of @l is filled up to its next event, or at its end.  False: the queue waits. */
static bool gap_ready(struct mx_queue *l)
{
    struct mx_gap *g = l->gap;

    if (g->has_event)
        return true;
    if (g->last) {
        gap_end(l);
        return true;
    }
    if (g->parser == NULL) {
        gap_begin(l);
    } else {
        l->state = QUEUE_GAP;
        gap_fetch(g);
    }
    return false;
}

/* ---- batches ---- */

static void batch_begin(struct matrix *m)
{
    struct mx_batch *b = &m->in.batch;

    b->generation++;
    b->n_open = b->n_gaps = 0;
    b->failures = 0;
    list_init(&b->waiting);
    enter(m, MX_DELIVER);
}

static void batch_done(struct matrix *m);

/* Is @event of a time before the bot was invited to the room?  Its state counts all the same. */
static bool too_early(struct mx_queue *l, struct json event)
{
    struct mx_state s;

    l->skips =
        l->skips && (l->gap != NULL || l->has_entry) && !mx_is_entry(event, str_of(l->m->base.bot));
    return l->skips && !mx_state_read(event, &s);
}

static void queue_go(struct mx_queue *l)
{
    struct matrix *m = l->m;

    while (l->state == QUEUE_READY) {
        if (l->gap != NULL && !gap_ready(l))
            return;
        struct json event = l->gap != NULL     ? l->gap->it.value
                            : l->first != NULL ? l->first->event
                                               : (struct json){0};
        if (l->gap == NULL && l->first == NULL) {
            l->state = QUEUE_DONE;
            if (l->read.n > 0)
                mx_send_receipt(m, l->room, l->read, l->actor);
            if (--m->in.batch.n_open == 0)
                batch_done(m);
            return;
        }
        if (too_early(l, event) || !take(l, event))
            queue_next(l);
    }
}

void mx_in_room_known(struct matrix *m, struct str room)
{
    struct mx_queue *l = m->in.state == MX_DELIVER ? map_get(&m->in.batch.queues, room) : NULL;

    if (l != NULL && l->state == QUEUE_ASKING) {
        l->state = QUEUE_READY;
        queue_go(l);
    }
}

static struct mx_queue *queue_of(struct matrix *m, struct str room)
{
    struct mx_batch *b = &m->in.batch;
    struct mx_queue *l = map_get(&b->queues, room);

    if (l != NULL)
        return l;
    l = arena_alloc(&b->arena, sizeof *l);
    *l = (struct mx_queue){.m = m, .room = room};
    map_put(&b->queues, room, l);
    b->n_open++;
    return l;
}

static void queue_add(struct mx_queue *l, struct json event)
{
    struct mx_item *i = arena_alloc(&l->m->in.batch.arena, sizeof *i);

    *i = (struct mx_item){.event = event};
    if (l->last != NULL)
        l->last->next = i;
    else
        l->first = i;
    l->last = i;
}

static void batch_run(struct matrix *m)
{
    uint32_t generation = m->in.batch.generation;
    struct mx_queue *l;

    if (m->in.batch.n_open == 0) {
        batch_done(m);
        return;
    }
    m->in.batch.n_open++; /* so that no queue ends the batch inside the loop */
    for (size_t i = 0; map_next(&m->in.batch.queues, &i, (void **)&l);)
        if (l->state == QUEUE_READY)
            queue_go(l);
    assert(generation == m->in.batch.generation);
    if (--m->in.batch.n_open == 0)
        batch_done(m);
}

static void batch_free(struct matrix *m)
{
    struct mx_batch *b = &m->in.batch;
    struct mx_queue *l;

    for (size_t i = 0; map_next(&b->queues, &i, (void **)&l);)
        if (l->gap != NULL)
            gap_free(m, l->gap);
    map_done(&b->queues);
    arena_done(&b->arena);
    buf_done(&b->next);
    buf_done(&b->txn);
    b->generation++;
}

static void fetch(struct matrix *m);

static void on_saved(void *ctx, enum bh_err err)
{
    struct matrix *m = ctx;
    struct mx_batch *b = &m->in.batch;
    bool service = b->txn.n > 0, told = map_count(&b->queues) > 0;
    struct http_id http = b->http;

    m->in.put = NULL;
    if (err == BH_OK && service) {
        buf_reset(&m->in.txn);
        buf_add_str(&m->in.txn, buf_str(&b->txn));
    } else if (err == BH_OK) {
        buf_reset(&m->in.since);
        buf_add_str(&m->in.since, buf_str(&b->next));
    }
    batch_free(m);
    if (service) {
        enter(m, MX_LISTEN);
        if (err == BH_OK)
            http_answer(m->base.env->server, http,
                        &(struct http_answer){.status = 200, .body = STR("{}")});
        else
            await_refuse(&m->base, http, err);
    } else if (err != BH_OK) {
        rest(m, 1000, MX_FETCH); /* the same events come again */
    } else if (!told && clock_now_ms(m->base.env->clock) - m->in.asked_ms < QUICK_MS &&
               ++m->in.quick >= QUICKS) {
        rest(m, QUICK_MS, MX_FETCH);
    } else {
        m->in.quick = told ? 0 : m->in.quick;
        enter(m, MX_FETCH);
        fetch(m);
    }
}

static void batch_done(struct matrix *m)
{
    struct mx_batch *b = &m->in.batch;
    struct mx_cursor_record r = {.bot = str_of(m->base.bot),
                                 .next = b->txn.n > 0 ? buf_str(&m->in.since) : buf_str(&b->next),
                                 .txn = b->txn.n > 0 ? buf_str(&b->txn) : buf_str(&m->in.txn)};

    timer_stop(m->base.env->clock, &b->again);
    if (b->failures >= RETRIES_ARE_A_PROBLEM)
        platform_set_problem(&m->base, NULL);
    enter(m, MX_SAVE);
    if (b->txn.n == 0 && str_eq(r.next, buf_str(&m->in.since))) {
        on_saved(m, BH_OK); /* nothing happened */
        return;
    }
    m->in.put = record_put(m->base.env->store, &mx_cursor_form, NULL, &r, true, on_saved, m);
}

/* ---- /sync ---- */

/* The gap before the timeline @told of the queue's room is to be read from @since on. */
static void add_gap(struct mx_queue *l, struct str since, struct json told)
{
    struct str before = json_str(told, "prev_batch");

    if (before.n == 0 || before.n > 4096 || since.n == 0 ||
        !json_as_bool(json_get(told, "limited"), false))
        return;
    l->gap = xcalloc(1, sizeof *l->gap);
    l->gap->queue = l;
    buf_add_str(&l->gap->from, since);
    buf_add_str(&l->gap->to, before);
}

/* What the timeline tells of the entry of the bot into a room.  True: nothing that is for the bot
 * came before the timeline. */
static bool find_entry(struct mx_queue *l, struct json events, bool was_invited)
{
    bool whole = false;
    struct mx_state s;

    for (struct json_iter it = {0}; json_next(events, &it);)
        if (mx_is_entry(it.value, str_of(l->m->base.bot))) {
            l->has_entry = true;
            whole |= !was_invited ||
                     (mx_state_read(it.value, &s) && str_eq(s.membership, STR("invite")));
        }
    return whole;
}

static void queue_timeline(struct matrix *m, struct str room, struct json timeline, bool was_in,
                           struct str invited_since)
{
    struct mx_queue *l = queue_of(m, room);
    struct json events = json_get(timeline, "events");

    l->skips = !was_in;
    if (was_in || !find_entry(l, events, invited_since.n > 0))
        add_gap(l, invited_since.n > 0 ? invited_since : buf_str(&m->in.since), timeline);
    for (struct json_iter it = {0}; json_next(events, &it);)
        queue_add(l, it.value);
}

static void take_joined(struct matrix *m, struct str room, struct json told, bool first)
{
    struct json timeline = json_get(told, "timeline"), events = json_get(timeline, "events");
    struct mx_room *r = mx_room_use(m, room);
    bool was_in = r->joined;
    struct str since = arena_str(&m->in.batch.arena, str_of(r->invited_since));
    struct mx_state s;

    for (struct json_iter it = {0}; json_next(json_get(json_get(told, "state"), "events"), &it);)
        if (mx_state_read(it.value, &s))
            mx_room_apply(m, room, &s, false);
    if (first) { /* old messages stay unanswered, but their state counts */
        for (struct json_iter it = {0}; json_next(events, &it);)
            if (mx_state_read(it.value, &s))
                mx_room_apply(m, room, &s, false);
    } else if (json_count(events) > 0) {
        queue_timeline(m, room, timeline, was_in, since);
    }
    r = mx_room_use(m, room);
    if (!r->joined) {
        r->joined = true;
        if (r->encrypted)
            mx_room_is_encrypted(m, r);
        mx_room_save(m, r);
    }
}

static void take_invited(struct matrix *m, struct str room, struct json told)
{
    struct str inviter = STR_NULL, reason = STR_NULL;
    struct mx_state s;

    for (struct json_iter it = {0};
         json_next(json_get(json_get(told, "invite_state"), "events"), &it);)
        if (mx_state_read(it.value, &s) && s.fact == MX_MEMBER &&
            str_eq(s.user, str_of(m->base.bot)) && str_eq(s.membership, STR("invite"))) {
            inviter = s.sender;
            reason = s.reason;
        }
    if (inviter.n > 0)
        mx_invited(m, room, inviter, str_of(m->base.bot), reason);
}

static void on_sync(void *ctx, const struct http_result *res)
{
    struct matrix *m = ctx;
    struct mx_answer a;

    m->in.call = NULL;
    mx_answer_read(m->base.parser, res, &a);
    struct str next = json_str(a.doc, "next_batch");
    if (a.status == 200 && (next.n == 0 || next.n > 4096)) {
        a.status = 0;
        snprintf(a.why, sizeof a.why, "its answer has no next_batch");
    }
    if (a.status != 200) {
        failed(m, &a);
        return;
    }
    int64_t now_ms = clock_wall_ms(m->base.env->clock);
    bool first = m->in.since.n == 0;
    m->n.syncs++;
    m->in.failures = 0;
    m->base.last_event_ms = now_ms;
    platform_beat(&m->base, now_ms, BEAT_MS);
    platform_set_problem(&m->base, NULL);
    batch_begin(m);
    buf_add_str(&m->in.batch.next, next);
    struct json rooms = json_get(a.doc, "rooms");
    for (struct json_iter it = {0}; json_next(json_get(rooms, "join"), &it);)
        if (mx_is_room(it.key))
            take_joined(m, it.key, it.value, first);
    for (struct json_iter it = {0}; json_next(json_get(rooms, "invite"), &it);)
        if (mx_is_room(it.key))
            take_invited(m, it.key, it.value);
    for (struct json_iter it = {0}; json_next(json_get(rooms, "leave"), &it);)
        if (mx_is_room(it.key))
            mx_room_left(m, it.key, str_of(m->base.bot));
    batch_run(m);
}

static void fetch(struct matrix *m)
{
    BUF_LOCAL path = BUF_INIT;
    bool first = m->in.since.n == 0;

    buf_printf(&path, MX_CLIENT "/sync?timeout=%d&filter=", first ? 0 : POLL_MS);
    percent_encode(&path, first ? STR(FILTER("1")) : STR(FILTER("50")));
    if (!first) {
        buf_add_z(&path, "&since=");
        percent_encode(&path, buf_str(&m->in.since));
    }
    m->in.asked_ms = clock_now_ms(m->base.env->clock);
    m->in.call = get(m, &path, first ? 120000 : POLL_MS + 15000, on_sync, m);
}

/* ---- who are we ---- */

static void on_versions(void *ctx, const struct http_result *res)
{
    struct matrix *m = ctx;
    struct mx_answer a;
    bool media = false;

    m->in.call = NULL;
    mx_answer_read(m->base.parser, res, &a);
    if (a.status != 200) {
        failed(m, &a);
        return;
    }
    for (struct json_iter it = {0}; json_next(json_get(a.doc, "versions"), &it);) {
        struct str v = json_as_str(it.value);
        uint64_t minor;
        media |= str_starts(v, STR("v1.")) && str_to_u64(str_skip(v, 3), &minor) && minor >= 11;
    }
    m->old_media = !media;
    m->in.failures = 0;
    platform_set_problem(&m->base, NULL);
    log_info(&m->base.log, "the homeserver knows %s: authenticated_media=%d", m->base.bot, media);
    if (mx_is_service(m)) {
        enter(m, MX_LISTEN);
        mx_ping_start(m);
    } else {
        enter(m, MX_FETCH);
        fetch(m);
    }
}

static void on_who(void *ctx, const struct http_result *res)
{
    struct matrix *m = ctx;
    struct mx_answer a;
    BUF_LOCAL path = BUF_INIT;

    m->in.call = NULL;
    mx_answer_read(m->base.parser, res, &a);
    struct str user = json_str(a.doc, "user_id");
    if (a.status != 200) {
        failed(m, &a);
        return;
    }
    if (!str_eq(user, str_of(m->base.bot))) {
        char text[256];
        snprintf(text, sizeof text,
                 "The token belongs to %.*s, not to this bot: give the entry that name, or the "
                 "token of %.80s.",
                 user.n < 80 ? (int)user.n : 80, user.p != NULL ? user.p : "", m->base.bot);
        platform_set_problem(&m->base, text);
        rest(m, REVOKED_REST_MS, MX_WHO);
        return;
    }
    buf_add_z(&path, "/_matrix/client/versions");
    m->in.call = get(m, &path, CALL_MS, on_versions, m);
}

void mx_in_registered(struct matrix *m)
{
    BUF_LOCAL path = BUF_INIT;

    buf_add_z(&path, MX_CLIENT "/account/whoami");
    m->in.call = get(m, &path, CALL_MS, on_who, m);
}

static void who(struct matrix *m)
{
    if (mx_is_service(m))
        mx_register(m);
    else
        mx_in_registered(m);
}

static void on_timer(struct timer *t)
{
    struct matrix *m = container_of(t, struct matrix, in.timer);

    enter(m, m->in.back_to);
    if (m->in.state == MX_WHO)
        who(m);
    else
        fetch(m);
}

/* ---- transactions ---- */

void mx_take_transaction(struct matrix *m, struct http_req *req, struct str txn)
{
    struct http_id id = http_req_id(req);
    struct mx_batch *b = &m->in.batch;
    struct json doc;
    struct mx_state s;
    bool busy = m->in.state == MX_DELIVER || m->in.state == MX_SAVE;

    if (busy && str_eq(txn, buf_str(&b->txn))) {
        b->http = id; /* the homeserver lost its patience, and will get the answer here */
        return;
    }
    if (m->in.state != MX_LISTEN) {
        await_refuse(&m->base, id, BH_UNAVAILABLE);
        return;
    }
    if (m->in.txn.n > 0 && str_eq(txn, buf_str(&m->in.txn))) {
        m->n.repeated++;
        http_answer(m->base.env->server, id,
                    &(struct http_answer){.status = 200, .body = STR("{}")});
        return;
    }
    if (!json_parse(m->base.parser, http_body(req), &doc) ||
        json_type(json_get(doc, "events")) != JSON_ARRAY) {
        m->base.n.malformed++;
        http_answer(m->base.env->server, id,
                    &(struct http_answer){.status = 400,
                                          .body = STR("{\"errcode\":\"M_BAD_JSON\",\"error\":"
                                                      "\"A transaction is {events: [...]}.\"}")});
        return;
    }
    m->n.transactions++;
    m->base.last_event_ms = clock_wall_ms(m->base.env->clock);
    batch_begin(m);
    buf_add_str(&b->txn, txn);
    b->http = id;
    for (struct json_iter it = {0}; json_next(json_get(doc, "events"), &it);) {
        struct str room = json_str(it.value, "room_id");
        if (!mx_is_room(room))
            m->base.n.malformed++;
        else if (mx_state_read(it.value, &s) && s.fact == MX_MEMBER &&
                 str_eq(s.membership, STR("invite")))
            mx_room_apply(m, room, &s, true); /* it does not wait for what is asked of the room */
        else
            queue_add(queue_of(m, room), it.value);
    }
    batch_run(m);
}

/* ---- life ---- */

void mx_in_open(struct matrix *m)
{
    char why[256];

    timer_init(&m->in.timer, on_timer);
    timer_init(&m->in.batch.again, on_again);
    list_init(&m->in.batch.waiting);
    if (record_load(m->base.env->store, &mx_cursor_form, NULL, str_of(m->base.bot), on_cursor, m,
                    why) != BH_OK)
        log_warn(&m->base.log, "%s; events start at the newest ones", why);
}

void mx_in_start(struct matrix *m)
{
    who(m);
    if (m->n_invited > 0)
        timer_set(m->base.env->clock, &m->invites, 0);
}

void mx_in_close(struct matrix *m)
{
    http_cancel(&m->in.call);
    store_put_cancel(&m->in.put);
    timer_stop(m->base.env->clock, &m->in.timer);
    mx_ping_stop(m);
    timer_stop(m->base.env->clock, &m->in.batch.again);
    batch_free(m);
    buf_done(&m->in.since);
    buf_done(&m->in.txn);
}
