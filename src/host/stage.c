/* stage.c - design.  (stage.h has the contract.)
 *
 * A chat that waits is a queue, and an event enters when it is ready and at the front of it.  An
 * event without files that comes behind one with files is ready at once and waits all the same, so
 * the order of a chat is the order of arrival.  It is on disk too: its platform must not have to
 * wait for somebody's picture.
 *
 * An event that the relay cannot take now stays at the front and is tried again; its record is what
 * makes the promise to the platform good. */
#include "host/stage_priv.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/mem.h"
#include "core/event_copy.h"
#include "store/store.h"

enum { MAX_STAGED = 4096, RETRY_MS = 1000 };
#define STAGED_BIT 0x80000000u
#define NS "staged"

/* ---- numbers ---- */

static void slot_take(struct stages *s, struct staged *e)
{
    size_t i = 0;

    while (i < s->n_slots && s->slots[i] != NULL)
        i++;
    if (i == s->n_slots) {
        s->slots = xrealloc(s->slots, (i + 1) * sizeof(struct staged *));
        s->generations = xrealloc(s->generations, (i + 1) * sizeof(uint32_t));
        s->generations[i] = 0;
        s->n_slots++;
    }
    s->slots[i] = e;
    e->index = (uint32_t)i;
    e->generation = ++s->generations[i];
}

struct staged *stage_find(struct stages *s, uint32_t index, uint32_t generation)
{
    if (index >= s->n_slots || s->slots[index] == NULL || s->generations[index] != generation)
        return NULL;
    return s->slots[index];
}

bool stage_owns(struct accept_id id)
{
    return (id.index & STAGED_BIT) != 0;
}

void stage_cancel(struct stages *s, struct accept_id id)
{
    struct staged *e = stage_find(s, id.index & ~STAGED_BIT, id.generation);

    if (e != NULL)
        e->done = NULL;
}

/* ---- life of one ---- */

static void staged_free(struct staged *e)
{
    struct stages *s = e->of;
    struct chat_queue *q = e->chat;

    stage_drop_files(e);
    timer_stop(s->env->clock, &e->timer);
    store_put_cancel(&e->put);
    if (e->is_entering)
        s->hooks.enter_cancel(s->ctx, e->entering);
    list_remove(&e->link);
    list_remove(&e->in_chat);
    s->slots[e->index] = NULL;
    s->n--;
    if (e->event_key != NULL && map_get(&s->by_event, str_of(e->event_key)) == e)
        map_del(&s->by_event, str_of(e->event_key));
    if (q != NULL && list_is_empty(&q->events)) {
        map_del(&s->chats, str_of(q->key));
        free(q->key);
        free(q);
    }
    arena_done(&e->arena);
    free(e->event_key);
    free(e->tenant);
    free(e->record);
    free(e);
}

static void answer(struct staged *e, enum bh_err err)
{
    accepted_cb *done = e->done;

    e->done = NULL;
    if (done != NULL)
        done(e->ctx, err);
}

static void write_key(struct buf *out, const struct event *ev, struct str last)
{
    buf_reset(out);
    buf_printf(out, "%.*s\x1f%.*s\x1f", STR_FMT(ev->platform), STR_FMT(ev->bot));
    buf_add_str(out, last);
}

static struct chat_queue *queue_of(struct stages *s, const struct event *ev, bool make)
{
    write_key(&s->scratch, ev, ev->chat_id);
    struct chat_queue *q = map_get(&s->chats, buf_str(&s->scratch));
    if (q != NULL || !make)
        return q;
    q = xcalloc(1, sizeof *q);
    q->key = xstrdup(buf_z(&s->scratch));
    list_init(&q->events);
    map_put(&s->chats, str_of(q->key), q);
    return q;
}

/* ---- entering ---- */

static bool is_alone(const struct staged *e) /* its queue goes with it */
{
    return e->in_chat.next == e->in_chat.prev;
}

static void enter(struct staged *e);

/* Whoever is at the front of the chat and ready. */
static void advance(struct stages *s, struct chat_queue *q)
{
    if (q == NULL || list_is_empty(&q->events))
        return;
    struct staged *e = list_first(&q->events, struct staged, in_chat);
    if (e->ready && !e->is_entering && !timer_is_set(&e->timer))
        enter(e);
}

static void on_entered(void *ctx, enum bh_err err)
{
    struct staged *e = ctx;
    struct stages *s = e->of;

    e->is_entering = false;
    if (err == BH_BUSY || err == BH_UNAVAILABLE) {
        timer_set(s->env->clock, &e->timer, RETRY_MS);
        return;
    }
    if (err != BH_OK)
        log_warn(NULL, "an event that was received cannot be delivered: platform=%.*s: %s",
                 STR_FMT(e->ev.platform), bh_err_word(err));
    struct store_kv del = {.verb = KV_DELETE, .ns = NS, .key = str_of(e->record)};
    store_put(s->env->store, &del, 1, false, NULL, NULL);
    struct chat_queue *q = is_alone(e) ? NULL : e->chat;
    staged_free(e);
    advance(s, q);
}

/* What is missing is said, so that the agent does not wonder. */
static struct str text_with_notes(struct staged *e)
{
    struct buf text = BUF_INIT;

    buf_add_str(&text, e->ev.text);
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (e->items[i].state != ITEM_HERE && e->ev.media[i].ref.n > 0)
            buf_printf(&text, "%s[%s: %s]", text.n > 0 ? "\n" : "",
                       e->ev.media[i].url.n > 0 ? "the address of a file may not hold"
                                                : "a file is missing",
                       e->items[i].why[0] != '\0' ? e->items[i].why : "it did not come in time");
    struct str kept = arena_str(&e->arena, buf_str(&text));
    buf_done(&text);
    return kept;
}

static void enter(struct staged *e)
{
    struct stages *s = e->of;
    struct event ev = e->ev;

    ev.text = text_with_notes(e);
    for (size_t i = 0; i < ev.n_media; i++) {
        e->media[i] = e->ev.media[i];
        if (e->items[i].state == ITEM_HERE) {
            const struct media_file *f = media_find(s->media, str_of(e->items[i].id));
            e->media[i].id = str_of(e->items[i].id);
            e->media[i].size = f != NULL ? f->size : 0;
            e->media[i].type = f != NULL ? arena_str(&e->arena, str_of(f->type)) : STR_NULL;
        }
    }
    ev.media = e->media;
    ev.context_error |= e->context == ITEM_LOST;
    e->is_entering = true;
    e->entering = s->hooks.enter(s->ctx, &ev, on_entered, e);
}

void stage_settle(struct staged *e)
{
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (e->ev.media[i].ref.n > 0 && item_is_open(&e->items[i]))
            return;
    if (e->put != NULL || state_is_open(e->context))
        return;
    timer_stop(e->of->env->clock, &e->timer);
    e->ready = true;
    advance(e->of, e->chat);
}

static void on_timer(struct timer *t)
{
    struct staged *e = container_of(t, struct staged, timer);

    if (e->failed) { /* it was never taken */
        struct stages *s = e->of;
        struct chat_queue *q = is_alone(e) ? NULL : e->chat;
        answer(e, e->late);
        staged_free(e);
        advance(s, q);
    } else if (e->ready) {
        advance(e->of, e->chat);
    } else { /* late */
        stage_drop_files(e);
        for (size_t i = 0; i < e->ev.n_media; i++)
            if (item_is_open(&e->items[i]))
                e->items[i].state = ITEM_LOST;
        if (state_is_open(e->context))
            e->context = ITEM_LOST;
        stage_settle(e);
    }
}

/* ---- platforms come and go ---- */

void stage_opened(struct stages *s, struct platform *p)
{
    list_each (&s->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        if (!e->begun && e->tenant != NULL && str_eq(e->ev.platform, str_of(p->ops->name)) &&
            str_eq(e->ev.bot, str_of(p->bot)))
            stage_ask(e);
    }
}

void stage_closed(struct stages *s, struct platform *p)
{
    list_each (&s->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        if (!str_eq(e->ev.platform, str_of(p->ops->name)) || !str_eq(e->ev.bot, str_of(p->bot)))
            continue;
        e->done = NULL;
        for (size_t i = 0; i < e->ev.n_media; i++)
            if (e->items[i].state == ITEM_ASKED)
                e->items[i].state = ITEM_WAITS;
        if (e->context == ITEM_ASKED)
            e->context = ITEM_WAITS;
        e->begun = false;
    }
}

/* ---- taking one in ---- */

bool stage_wants(struct stages *s, const struct event *ev)
{
    bool fades = false;

    for (size_t i = 0; i < ev->n_media; i++) {
        if (ev->media[i].ref.n > 0 && ev->media[i].url.n == 0)
            return true;
        fades |= ev->media[i].ref.n > 0;
    }
    if (fades && s->hooks.sleeps(s->ctx, ev))
        return true;
    if (ev->wants_context && s->hooks.wants_context(s->ctx, ev))
        return true;
    if (map_count(&s->chats) == 0 || str_eq(ev->text, STR("/stop")) || ev->only_stops)
        return false; /* nothing that stops an agent waits for a picture */
    return queue_of(s, ev, false) != NULL;
}

static struct staged *staged_new(struct stages *s, struct str saved)
{
    struct staged *e = xcalloc(1, sizeof *e);
    struct json doc;

    if (!json_parse(s->json, saved, &doc) || !event_load(doc, &e->arena, &e->ev)) {
        arena_done(&e->arena);
        free(e);
        return NULL;
    }
    e->of = s;
    list_init(&e->link);
    list_init(&e->in_chat);
    timer_init(&e->timer, on_timer);
    e->chat = queue_of(s, &e->ev, true);
    list_append(&e->chat->events, &e->in_chat);
    list_append(&s->all, &e->link);
    slot_take(s, e);
    s->n++;
    if (e->ev.event_id.n > 0) {
        write_key(&s->scratch, &e->ev, e->ev.event_id);
        e->event_key = xstrdup(buf_z(&s->scratch));
        map_put(&s->by_event, str_of(e->event_key), e);
    }
    return e;
}

/* Everybody is here: addresses that hold for a while will do.  (It waits behind another.) */
static void pass_addresses(struct staged *e)
{
    for (size_t i = 0; i < e->ev.n_media; i++) {
        e->media[i] = e->ev.media[i];
        if (e->media[i].url.n > 0)
            e->media[i].ref = STR_NULL;
    }
    e->ev.media = e->media;
}

/* On disk, or known to be: its files are looked for. */
static void begin(struct staged *e)
{
    struct stages *s = e->of;
    struct buf tenant = BUF_INIT;
    struct str first = s->hooks.tenant(s->ctx, &e->ev, &tenant);

    if (e->ev.n_media > 0 && !s->hooks.sleeps(s->ctx, &e->ev))
        pass_addresses(e);
    timer_set(s->env->clock, &e->timer, media_wait_ms(s->media));
    e->context = ITEM_HERE;
    if (e->ev.wants_context && s->hooks.wants_context(s->ctx, &e->ev))
        e->context = ITEM_WAITS;
    if (first.n > 0) {
        e->tenant = str_dup(first);
        stage_ask(e);
    } else { /* the gate will drop it: nothing is fetched for nobody */
        for (size_t i = 0; i < e->ev.n_media; i++)
            e->items[i].state = ITEM_LOST;
    }
    buf_done(&tenant);
    stage_settle(e);
}

static void on_recorded(void *ctx, enum bh_err err)
{
    struct staged *e = ctx;

    e->put = NULL;
    if (err != BH_OK) {
        e->failed = true;
        e->late = err;
        timer_set(e->of->env->clock, &e->timer, 0);
        return;
    }
    answer(e, BH_OK);
    begin(e);
}

/* A message that is staged already came again, or there are too many: told later, as any other. */
static struct accept_id tell_late(struct stages *s, enum bh_err err, accepted_cb *done, void *ctx)
{
    struct staged *e = xcalloc(1, sizeof *e);

    *e = (struct staged){.of = s, .done = done, .ctx = ctx, .failed = true, .late = err};
    list_init(&e->link);
    list_init(&e->in_chat);
    list_append(&s->all, &e->link);
    slot_take(s, e);
    s->n++;
    timer_init(&e->timer, on_timer);
    timer_set(s->env->clock, &e->timer, 0);
    return (struct accept_id){e->index | STAGED_BIT, e->generation};
}

struct accept_id stage_take(struct stages *s, const struct event *ev, accepted_cb *done, void *ctx)
{
    struct buf saved = BUF_INIT, key = BUF_INIT;
    struct staged *e = NULL;

    write_key(&s->scratch, ev, ev->event_id);
    if (ev->event_id.n > 0)
        e = map_get(&s->by_event, buf_str(&s->scratch));
    if (e != NULL)
        return tell_late(s, e->put == NULL ? BH_OK : BH_BUSY, done, ctx);
    if (s->n >= MAX_STAGED)
        return tell_late(s, BH_BUSY, done, ctx);
    event_save(&saved, ev);
    e = staged_new(s, buf_str(&saved));
    e->done = done;
    e->ctx = ctx;
    buf_printf(&key, "%.*s\x1f%.*s\x1f%016" PRIx64, STR_FMT(ev->platform), STR_FMT(ev->bot),
               s->next++);
    e->record = xstrdup(buf_z(&key));
    struct store_kv put = {.verb = KV_PUT,
                           .ns = NS,
                           .key = str_of(e->record),
                           .value = buf_str(&saved)};
    e->put = store_put(s->env->store, &put, 1, true, on_recorded, e);
    buf_done(&saved);
    buf_done(&key);
    return (struct accept_id){e->index | STAGED_BIT, e->generation};
}

size_t stages_waiting(const struct stages *s)
{
    return s->n;
}

/* ---- life of all ---- */

static void on_record(void *ctx, struct str key, struct str value)
{
    struct stages *s = ctx;
    struct staged *e = staged_new(s, value);

    if (e == NULL) {
        log_warn(NULL, "a staged event cannot be read");
        return;
    }
    e->record = str_dup(key);
}

enum bh_err stages_open(const struct host_env *env, struct media *media,
                        const struct stage_hooks *hooks, void *ctx, struct stages **ret_s,
                        char *ret_why)
{
    struct stages *s = xcalloc(1, sizeof *s);

    *s = (struct stages){.env = env, .media = media, .hooks = *hooks, .ctx = ctx};
    s->next = env->store->boot << 40u; /* above those of every start before */
    s->json = json_parser_new();
    list_init(&s->all);
    enum bh_err err = env->store->ops->load_records(env->store, NS, on_record, s);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "staged events cannot be read");
        stages_close(s);
        return err;
    }
    list_each (&s->all, it, nxt)
        begin(list_entry(it, struct staged, link));
    *ret_s = s;
    return BH_OK;
}

void stages_close(struct stages *s)
{
    if (s == NULL)
        return;
    list_each (&s->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        staged_free(e);
    }
    map_done(&s->chats);
    map_done(&s->by_event);
    free(s->slots);
    free(s->generations);
    json_parser_free(s->json);
    buf_done(&s->scratch);
    free(s);
}
