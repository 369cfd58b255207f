/* stream.c - design.  (stream.h has the contract and the states.)
 *
 * A stream shows its text in parts, one for each message that the text needs; nearly all have one
 * part.  A part knows its message and a hash of what the message shows.  show() compares the parts
 * of the newest text with them and performs one action, for the first part that differs.  When the
 * action ends, the stream waits for room again if more parts differ or newer text came.  So only
 * one action of a stream is ever under way, and texts cannot overtake each other.
 *
 * The checkpoint is a record of the sender without an outgoing: an edit (or a send) that the
 * next start performs.  It is written when a text is not shown STREAM_KEEP_MS after it came, and
 * for every text that is shown with a cursor, without the cursor.  It is deleted once the newest
 * text is shown without one.  For a message that grows (STREAM_NATIVE) it is there from the
 * start: without a text, it only completes the message. */
#include "platform/stream.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/stream_priv.h"
#include "store/store.h"

#define TOO_MANY ACTION_ERROR_TRANSIENT "too many answers are streaming already"

/* ---- shares ---- */

static struct stream_share *share_of(struct streams *all, struct str tenant)
{
    struct stream_share *x = map_get(&all->shares, tenant);

    if (x == NULL) {
        x = xcalloc(1, sizeof *x + tenant.n + 1);
        memcpy(x->tenant, tenant.p, tenant.n);
        map_put(&all->shares, str_of(x->tenant), x);
    }
    return x;
}

static void share_count(struct text_stream *st, size_t now_bytes)
{
    st->all->bytes += now_bytes - st->text.n;
    st->share->bytes += now_bytes - st->text.n;
}

static void share_leave(struct text_stream *st)
{
    share_count(st, 0);
    st->all->n--;
    if (--st->share->n > 0)
        return;
    map_del(&st->all->shares, str_of(st->share->tenant));
    free(st->share);
}

/* Is there no room for the text of @a?  @st NULL: nor for its stream. */
static bool is_full(const struct streams *all, const struct text_stream *st,
                    const struct action_from *from, const struct action *a)
{
    const struct stream_share *own = map_get(&all->shares, from->tenant);
    size_t more = st == NULL, had = st != NULL ? st->text.n : 0;
    size_t n = all->n + more, bytes = all->bytes - had + a->content.n;
    size_t own_n = own != NULL ? own->n + more : 0;
    size_t own_bytes = own != NULL ? own->bytes - had + a->content.n : 0;

    return n > STREAMS_MAX || bytes > STREAMS_BYTES ||
           (n > STREAMS_MAX / 2 && own_n > STREAMS_MAX / 8) ||
           (bytes > STREAMS_BYTES / 2 && own_bytes > STREAMS_BYTES / 8);
}

/* ---- life ---- */

struct streams *streams_new(struct sender *s, const struct stream_ops *ops)
{
    static const struct stream_ops none;
    struct streams *all = xcalloc(1, sizeof *all);

    all->sender = s;
    all->ops = ops != NULL ? ops : &none;
    all->pace = pace_new(s->env->clock, &all->ops->pace);
    list_init(&all->streams);
    list_init(&all->ready[0]);
    list_init(&all->ready[1]);
    all->sealed.max = STREAM_SEALED;
    timer_init(&all->pump, streams_on_pump);
    return all;
}

struct pace *streams_pace(struct streams *all)
{
    return all->pace;
}

static struct str place_of(const struct text_stream *st)
{
    return str_make(st->key, st->place_n);
}

static void drafts_add(struct text_stream *st)
{
    struct streams *all = st->all;

    st->next = map_get(&all->drafts, place_of(st));
    map_del(&all->drafts, place_of(st)); /* first: the key is borrowed from the value */
    map_put(&all->drafts, place_of(st), st);
    all->sender->n_drafts++;
}

static void drafts_remove(struct text_stream *st)
{
    struct streams *all = st->all;
    struct text_stream *first = map_get(&all->drafts, place_of(st));

    all->sender->n_drafts--;
    if (first == st) {
        map_del(&all->drafts, place_of(st));
        if (st->next != NULL)
            map_put(&all->drafts, place_of(st->next), st->next);
        return;
    }
    while (first != NULL && first->next != st)
        first = first->next;
    if (first != NULL)
        first->next = st->next;
}

void stream_free(struct text_stream *st)
{
    struct streams *all = st->all;
    struct clock *clock = all->sender->env->clock;

    if (st->out != NULL)
        st->out->stream = NULL;
    store_put_cancel(&st->put);
    timer_stop(clock, &st->timer);
    timer_stop(clock, &st->keep);
    list_remove(&st->link);
    list_remove(&st->ready);
    if (st->key != NULL && map_get(&all->by_key, str_of(st->key)) == st)
        map_del(&all->by_key, str_of(st->key));
    if (st->key != NULL && st->is_draft)
        drafts_remove(st);
    share_leave(st);
    buf_done(&st->text);
    buf_done(&st->showing);
    buf_done(&st->shown);
    free(st->parts);
    free(st->key);
    free(st->block);
    free(st);
}

/* The stream is over: everything is shown, or its gateway was told. */
void stream_end(struct text_stream *st)
{
    stream_checkpoints_delete(st);
    stream_free(st);
}

/* Writes what identifies the place of @a: the instance, the chat and the thread. */
static size_t write_key(struct buf *out, const struct action_from *from, const struct action *a)
{
    buf_reset(out);
    buf_printf(out, "%.*s\x1f%.*s\x1f%.*s\x1f%.*s\x1f", STR_FMT(from->tenant),
               STR_FMT(from->instance), STR_FMT(a->chat_id), STR_FMT(a->thread_id));
    return out->n;
}

/* The same for the edits of a message.  A gateway may name its thread in the send only. */
static size_t write_edit_key(struct buf *out, const struct action_from *from, struct str chat_id,
                             struct str message)
{
    struct action a = {.chat_id = chat_id};
    size_t place_n = write_key(out, from, &a);

    buf_printf(out, "e%.*s", STR_FMT(message));
    return place_n;
}

static struct text_stream *stream_new(struct streams *all, const struct action_from *from,
                                      const struct action *a)
{
    struct text_stream *st = xcalloc(1, sizeof *st);
    struct str place = all->ops->place != NULL ? all->ops->place(all->sender->p, a) : a->chat_id;
    size_t n = from->tenant.n + from->instance.n + from->trace.n + a->chat_id.n + a->thread_id.n +
               a->scope_id.n + a->user_id.n + a->reply_to.n + place.n;
    char *at = st->block = xmalloc(n + 1);

    st->all = all;
    st->from = (struct action_from){.life = from->life};
    st->from.tenant = str_pack(&at, from->tenant);
    st->from.instance = str_pack(&at, from->instance);
    st->from.trace = str_pack(&at, from->trace);
    st->share = share_of(all, from->tenant);
    st->share->n++;
    st->chat = str_pack(&at, a->chat_id);
    st->thread = str_pack(&at, a->thread_id);
    st->scope = str_pack(&at, a->scope_id);
    st->user = str_pack(&at, a->user_id);
    st->reply_to = str_pack(&at, a->reply_to);
    st->place = str_pack(&at, place);
    st->group = all->ops->is_group != NULL && all->ops->is_group(st->place);
    st->parts = xcalloc(1, sizeof *st->parts);
    st->n_parts = 1;
    st->asker = ACTION_NOBODY;
    list_init(&st->link);
    list_init(&st->ready);
    list_append(&all->streams, &st->link);
    timer_init(&st->timer, stream_on_timer);
    timer_init(&st->keep, stream_on_keep);
    all->n++;
    return st;
}

static void stream_name(struct text_stream *st, struct str key, size_t place_n)
{
    struct text_stream *old = map_get(&st->all->by_key, key);

    if (old != NULL)
        stream_end(old);
    st->key = str_dup(key);
    st->place_n = place_n;
    map_put(&st->all->by_key, str_of(st->key), st);
    if (st->is_draft)
        drafts_add(st);
}

void stream_is_edit(struct text_stream *st, const char *message)
{
    struct buf *key = &st->all->scratch;
    size_t place_n = write_edit_key(key, &st->from, st->chat, str_of(message));

    stream_name(st, buf_str(key), place_n);
}

struct hash128 stream_said(const struct text_stream *st)
{
    return hash128(&st->all->sender->env->store->dedup_key, str_of(st->key));
}

const struct descriptor *streams_descriptor(const struct streams *all)
{
    const struct platform *p = all->sender->p;

    return p->descriptor != NULL ? p->descriptor : p->ops->descriptor;
}

/* ---- the text ---- */

int64_t streams_patience_ms(const struct text_stream *st)
{
    return action_without_cursor(buf_str(&st->text)).n < st->text.n ? STREAM_PATIENCE_MS
                                                                    : STREAM_ALONE_MS;
}

bool stream_has_cursor(const struct text_stream *st)
{
    return action_without_cursor(buf_str(&st->text)).n < st->text.n;
}

void stream_set_text(struct text_stream *st, struct str text)
{
    struct streams *all = st->all;

    all->stats.merged += st->fresh;
    share_count(st, text.n);
    buf_reset(&st->text);
    buf_add_str(&st->text, text);
    st->fresh = true;
    st->quiet = st->kept_now = false;
    st->tries = 0;
}

/* ---- sealed drafts ---- */

void streams_found_sealed(struct streams *all, struct hash128 said, struct str message)
{
    struct sealed *x = lru_use(&all->sealed, str_make(&said, sizeof said), sizeof *x);

    x->open = false;
    memset(x->message, 0, sizeof x->message);
    if (message.n < sizeof x->message)
        memcpy(x->message, message.p != NULL ? message.p : "", message.n);
}

void streams_found_open(struct streams *all, struct hash128 said, struct str message)
{
    if (message.n == 0 || message.n >= MESSAGE_ID_MAX)
        return;
    streams_found_sealed(all, said, message);
    ((struct sealed *)lru_find(&all->sealed, str_make(&said, sizeof said)))->open = true;
}

/* A new stream whose draft was shown before the last start. */
static void go_on_there(struct text_stream *st)
{
    struct hash128 said = stream_said(st);
    struct sealed *x = lru_find(&st->all->sealed, str_make(&said, sizeof said));

    if (x == NULL)
        return;
    memcpy(st->parts[0].id, x->message, sizeof x->message);
    st->way = STREAM_EDIT;
    lru_drop(&st->all->sealed, x);
}

/* True: the draft was sealed before, and @id is answered. */
static bool was_sealed(struct streams *all, struct action_id id, const struct action *a,
                       struct str key)
{
    struct hash128 said = hash128(&all->sender->env->store->dedup_key, key);
    struct sealed *x = lru_find(&all->sealed, str_make(&said, sizeof said));
    struct action_result done = {.success = true};

    if (x == NULL || x->open)
        return false;
    if (a->final && x->message[0] == '\0') { /* told once; a further try is sent */
        host_fail(all->sender->p->host, id,
                  ACTION_ERROR_UNKNOWN "its first try may have been delivered");
        lru_drop(&all->sealed, x);
        return true;
    }
    if (a->final)
        done.message_id = str_of(x->message);
    host_result(all->sender->p->host, id, &done);
    return true;
}

/* ---- what gateways ask ---- */

static void answer_merged(struct streams *all, struct action_id id, struct str message)
{
    host_result(all->sender->p->host, id,
                &(struct action_result){
                    .success = true, .queued = true, .merged = true, .message_id = message});
}

/* Newer text came while other text waits or is being shown. */
static void merge(struct text_stream *st)
{
    st->promised = true;
    timer_set(st->all->sender->env->clock, &st->keep, st->final ? 0 : STREAM_KEEP_MS);
    if (st->state == STREAM_IDLE || (st->state == STREAM_READY && st->final))
        stream_schedule(st);
}

static bool take_edit(struct streams *all, struct action_id id, const struct action_from *from,
                      const struct action *a)
{
    struct buf *key = &all->scratch;
    size_t place_n = write_edit_key(key, from, a->chat_id, a->message_id);
    struct text_stream *st = map_get(&all->by_key, buf_str(key));
    if (st != NULL && st->state == STREAM_FAILED) {
        host_fail(all->sender->p->host, id, "%s", st->why);
        stream_end(st);
        return true;
    }
    if (a->message_id.n == 0 || a->message_id.n >= MESSAGE_ID_MAX || str_is_empty(a->content))
        return false;
    if (is_full(all, st, from, a)) {
        if (st != NULL) /* the ordinary way would overtake the text that waits */
            host_fail(all->sender->p->host, id, TOO_MANY);
        return st != NULL;
    }
    if (stream_is_too_long(all, a->content)) { /* what waits is shown nevertheless */
        host_fail(all->sender->p->host, id, STREAM_TOO_LONG, SENDER_MAX_PARTS);
        return true;
    }
    if (st == NULL) {
        st = stream_new(all, from, a);
        memcpy(st->parts[0].id, a->message_id.p, a->message_id.n);
        stream_name(st, buf_str(key), place_n);
    }
    st->from.life = from->life;
    stream_set_text(st, a->content);
    st->final = json_as_bool(json_get(a->metadata, "notify"), false);
    st->quiet = st->state == STREAM_IDLE && !stream_has_cursor(st); /* perhaps the only edit */
    if (st->state == STREAM_IDLE && list_is_empty(&all->ready[0]) &&
        list_is_empty(&all->ready[1]) &&
        stream_room_ms(st, true) == 0) { /* now; the platform answers */
        snprintf(st->request, sizeof st->request, "%.*s", STR_FMT(from->request_id));
        st->deadline_ms = a->deadline_ms;
        stream_show_edit(st, id);
        if (st->state == STREAM_FAILED) /* the adapter has answered */
            stream_end(st);
        else if (st->state == STREAM_IDLE)
            host_result(all->sender->p->host, id, /* it shows this text already */
                        &(struct action_result){.success = true, .message_id = a->message_id});
        return true;
    }
    st->quiet = false;
    merge(st);
    if (id.index == ACTION_NOBODY.index) /* it was on disk already, and stays there */
        stream_checkpoints_write(st);
    answer_merged(all, id, a->message_id);
    return true;
}

static enum stream_way way_of(struct streams *all, const struct action *a)
{
    if (all->ops->way != NULL)
        return all->ops->way(all->sender->p, a);
    return streams_descriptor(all)->supports_edit ? STREAM_EDIT : STREAM_NOTHING;
}

/* Why the draft is refused; NULL: it is not. */
static const char *draft_wrong(struct streams *all, const struct text_stream *st,
                               const struct action_from *from, const struct action *a,
                               enum stream_way way)
{
    if (a->draft_id == 0)
        return "a draft needs a draft_id that is not 0";
    if (str_is_empty(a->content))
        return "a draft needs a content";
    if (!a->is_message && way != STREAM_DRAFT && !all->ops->native)
        return "drafts are not shown in this chat: send a message and edit it";
    return is_full(all, st, from, a) ? TOO_MANY : NULL;
}

static void take_draft(struct streams *all, struct action_id id, const struct action_from *from,
                       const struct action *a)
{
    struct buf *key = &all->scratch;
    struct action at = *a;
    if (all->ops->native) /* its last frame may name another thread, or none */
        at.thread_id = STR_NULL;
    size_t place_n = write_key(key, from, &at);

    buf_printf(key, "d%" PRId64, a->draft_id);
    struct text_stream *st = map_get(&all->by_key, buf_str(key));
    if (st == NULL && was_sealed(all, id, a, buf_str(key)))
        return;
    enum stream_way way = st != NULL ? st->way : way_of(all, a);
    const char *wrong = draft_wrong(all, st, from, a, way);
    if (wrong == NULL && st != NULL && st->state == STREAM_FAILED)
        wrong = st->why;
    if (wrong != NULL) {
        host_fail(all->sender->p->host, id, "%s", wrong);
        if (st != NULL && st->state == STREAM_FAILED)
            stream_end(st);
        return;
    }
    if (st == NULL) {
        st = stream_new(all, from, a);
        st->is_draft = true;
        st->way = way;
        st->is_message = a->is_message || all->ops->native;
        st->draft_id = a->draft_id;
        stream_name(st, buf_str(key), place_n);
        go_on_there(st);
    }
    if (st->final) { /* repeated while the first is under way: the result goes to the last */
        if (st->out != NULL && a->final && st->going_last) {
            st->out->id = id;
        } else if (a->final) {
            st->asker = id;
            st->asked = true;
        } else {
            answer_merged(all, id, STR_NULL); /* a late frame */
        }
        return;
    }
    st->from.life = from->life;
    stream_set_text(st, a->content);
    st->final = a->final;
    if (!a->final) {
        answer_merged(all, id, STR_NULL);
    } else {
        st->asker = id;
        st->asked = true;
        snprintf(st->request, sizeof st->request, "%.*s", STR_FMT(from->request_id));
        st->deadline_ms = a->deadline_ms;
    }
    if (st->state == STREAM_SHOWING)
        return; /* and stream_go_on() when that has ended */
    if (a->final && (st->way == STREAM_EDIT || st->way == STREAM_NATIVE))
        timer_set(all->sender->env->clock, &st->keep, 0);
    if (a->final)
        stream_go_on(st);
    else if (st->state == STREAM_IDLE)
        stream_schedule(st);
}

/* The answer follows the previews: a preview that still waits must not be shown after it. */
static void end_previews(struct streams *all, struct str place)
{
    struct text_stream *st = map_get(&all->drafts, place);

    while (st != NULL) {
        struct text_stream *next = st->next;
        if (!st->is_message && !st->final)
            stream_end(st);
        st = next;
    }
}

bool streams_take(struct streams *all, struct action_id id, const struct action_from *from,
                  const struct action *a)
{
    if (a->op == ACTION_EDIT)
        return take_edit(all, id, from, a);
    if (a->op == ACTION_DRAFT) {
        take_draft(all, id, from, a);
        return true;
    }
    size_t place_n = write_key(&all->scratch, from, a);
    end_previews(all, str_make(all->scratch.p, place_n));
    if (action_without_cursor(a->content).n == a->content.n || is_full(all, NULL, from, a))
        return false;
    if (way_of(all, a) == STREAM_NOTHING &&
        json_as_bool(json_get(a->metadata, "expect_edits"), false)) {
        host_fail(all->sender->p->host, id,
                  "messages cannot be edited here: send the text once it is complete");
        return true;
    }
    /* The first text of an answer: its message is known when it is sent. */
    struct text_stream *st = stream_new(all, from, a);
    struct action with = *a;
    stream_set_text(st, a->content);
    st->fresh = false;
    st->state = STREAM_SHOWING;
    st->going_op = ACTION_SEND;
    with.stream = st;
    sender_pass_on(all->sender, id, from, &with);
    if (st->out == NULL)
        stream_free(st); /* refused at once, or it waits for a file */
    return true;
}

/* ---- the rest ---- */

struct str stream_shown(const struct text_stream *st)
{
    return st != NULL && st->live != 0 && !st->ends ? buf_str(&st->shown) : STR_NULL;
}

void streams_forget(struct streams *all, struct str tenant, struct str instance, struct str chat)
{
    list_each (&all->streams, it, nxt) {
        struct text_stream *st = list_entry(it, struct text_stream, link);
        if ((tenant.p == NULL || str_eq(tenant, st->from.tenant)) &&
            (instance.p == NULL || str_eq(instance, st->from.instance)) &&
            (chat.p == NULL || str_eq(chat, st->chat)))
            stream_end(st);
    }
}

void streams_stats(const struct streams *all, struct streams_stats *ret)
{
    *ret = all->stats;
    ret->open = all->n;
}

void streams_free(struct streams *all)
{
    if (all == NULL)
        return;
    list_each (&all->streams, it, nxt) {
        struct text_stream *st = list_entry(it, struct text_stream, link);
        if (st->promised && st->fresh && !st->kept_now)
            stream_checkpoints_write(st);
        stream_free(st);
    }
    timer_stop(all->sender->env->clock, &all->pump);
    pace_free(all->pace);
    map_done(&all->by_key);
    map_done(&all->drafts);
    map_done(&all->shares); /* empty: all streams are gone */
    lru_done(&all->sealed);
    buf_done(&all->scratch);
    free(all);
}
