/* stream_show.c - shows the texts of the streams.  (stream.h: the contract; stream.c: the design.)
 *
 * A stream that has newer text waits for room in its chat, then in one of two lists, one for last
 * texts and one for unfinished ones.  The pump serves the lists while the bot has room. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "net/http_client.h"
#include "platform/stream_priv.h"
#include "store/store.h"

enum {
    QUIET_MS = 3000,  /* a refused text without a further edit becomes a message */
    LONG_MS = 600000, /* how long a stream of several messages is remembered */
    RETRY_MS = 2000,  /* after a failure that is not the platform's refusal */
    MAX_TRIES = 5,
    TYPING_MS = 4000,  /* STREAM_NOTHING: how often typing is shown */
    MARGIN_CHARS = 96, /* of a message, left for marks that rendering adds to a split text */
    FEW_PARTS = SENDER_MAX_PARTS / 4, /* so many times the length of a message is never too long */
    FINAL_MS = 20000,                 /* then a final draft that is on disk is answered "queued" */
};

static uint64_t hash_of(struct str text)
{
    uint64_t h = hash64_brief(hash_process_key(), text);

    return h != 0 ? h : 1;
}

/* Splits @text into the messages that it needs. */
static void split_parts(const struct streams *all, struct str text, struct split *ret)
{
    struct split_limits lim = all->ops->message;

    if (lim.max == 0 || split_length(text, lim.unit) <= lim.max) {
        buf_add_str(&ret->bytes, text); /* as it came */
        ret->ends = xmalloc(sizeof *ret->ends);
        ret->ends[0] = text.n;
        ret->n = 1;
        return;
    }
    lim.max -= MARGIN_CHARS;
    split_within(ret, text, &lim);
}

bool stream_is_too_long(const struct streams *all, struct str text)
{
    struct split s = SPLIT_INIT;

    if (text.n <= all->ops->message.max * FEW_PARTS)
        return false;
    split_parts(all, text, &s);
    bool too_long = s.n > SENDER_MAX_PARTS;
    split_done(&s);
    return too_long;
}

void stream_checkpoints_delete(struct text_stream *st)
{
    for (size_t i = 0; i < ARRAY_LEN(st->checkpoints); i++) {
        if (st->checkpoints[i] != 0)
            outgoing_delete(st->all->sender, st->checkpoints[i]);
        st->checkpoints[i] = 0;
    }
    st->kept_now = st->kept_open = false;
}

/* ---- actions ---- */

static struct action action_of(const struct text_stream *st, enum action_op op, struct str content)
{
    return (struct action){.op = op,
                           .op_name = str_of(action_op_name(op)),
                           .chat_id = st->chat,
                           .thread_id = st->thread.n > 0 ? st->thread : STR_NULL,
                           .scope_id = st->scope.n > 0 ? st->scope : STR_NULL,
                           .user_id = st->user.n > 0 ? st->user : STR_NULL,
                           .content = content,
                           .content_set = op != ACTION_TYPING};
}

/* Gives @a to the adapter.  @id gets the result. */
static void perform(struct text_stream *st, struct action *a, struct action_id id)
{
    struct platform *p = st->all->sender->p;
    struct action_from from = st->from;

    st->state = STREAM_SHOWING;
    st->going_op = a->op;
    a->stream = st;
    if (id.index != ACTION_NOBODY.index) {
        from.request_id = str_of(st->request);
        a->deadline_ms = st->deadline_ms;
    }
    if (st->is_draft && a->final && !st->sealing) /* the record remembers it as sealed */
        from.said = hash128(&st->all->sender->env->store->dedup_key, str_of(st->key));
    p->ops->act(p, id, &from, a);
    if (st->out == NULL) { /* refused without a request; the sender was not called */
        st->state = STREAM_FAILED;
        snprintf(st->why, sizeof st->why, "%s does not take this text",
                 st->all->sender->p->ops->label);
        timer_set(st->all->sender->env->clock, &st->timer, st->is_draft ? 0 : QUIET_MS);
    }
}

/* ---- checkpoints ---- */

static void keep_one(struct text_stream *st, size_t which, const struct action *a)
{
    struct action_from from = st->from;

    if (st->live == 1 && a->op == ACTION_DRAFT) /* the message shows all of it so far */
        from.said = stream_said(st);
    st->checkpoints[which] =
        outgoing_keep_action(st->all->sender, st->checkpoints[which], &from, a);
}

/* The message that grows is complete, and shows @content; absent: as it is. */
static struct action seal_of(const struct text_stream *st, struct str content)
{
    struct action a = action_of(st, ACTION_DRAFT, content);

    a.message_id = str_of(st->parts[st->live - 1].id);
    a.final = true;
    return a;
}

/* A message grows, and shows the newest text: the next start only has to complete the message. */
static void keep_open(struct text_stream *st)
{
    bool whole = st->all->ops->whole;
    struct action a = seal_of(st, whole ? buf_str(&st->shown) : STR_NULL);

    if (st->kept_open && !whole)
        return;
    if (st->checkpoints[1] != 0)
        outgoing_delete(st->all->sender, st->checkpoints[1]);
    st->checkpoints[1] = 0;
    keep_one(st, 0, &a);
    st->kept_open = true;
    st->kept_now = false;
}

/* The next start sends the parts of @s from @i on. */
static void keep_rest(struct text_stream *st, const struct split *s, size_t i)
{
    BUF_LOCAL text = BUF_INIT;

    for (size_t k = i; k < s->n; k++) { /* white space at a cut was dropped */
        if (k > i)
            buf_add_c(&text, '\n');
        buf_add_str(&text, split_part(s, k));
    }
    if (text.n > 0) {
        struct action rest = action_of(st, ACTION_SEND, buf_str(&text));
        keep_one(st, 1, &rest);
    } else if (st->checkpoints[1] != 0) {
        outgoing_delete(st->all->sender, st->checkpoints[1]);
        st->checkpoints[1] = 0;
    }
}

/* Writes what the next start has to show.  Previews need nothing. */
void stream_checkpoints_write(struct text_stream *st)
{
    struct str text = action_without_cursor(buf_str(&st->text));
    struct split s = SPLIT_INIT;
    size_t i = 0;

    bool previews = st->way == STREAM_DRAFT || st->way == STREAM_NOTHING;
    if (st->is_draft && (previews || (st->n_parts == 1 && st->parts[0].id[0] == 0)))
        return;
    split_parts(st->all, text, &s);
    while (i + 1 < s.n && i + 1 < st->n_parts && st->parts[i + 1].id[0] != '\0')
        i++;
    if (i < s.n && st->parts[i].id[0] != '\0' && !st->no_edits) {
        struct action a = st->live == i + 1 ? seal_of(st, split_part(&s, i))
                                            : action_of(st, ACTION_EDIT, split_part(&s, i));
        a.message_id = str_of(st->parts[i].id);
        keep_one(st, 0, &a);
        st->kept_open = false;
        keep_rest(st, &s, i + 1);
    } else if (st->no_edits && (st->final || st->promised)) {
        struct action a = action_of(st, ACTION_SEND, text);
        keep_one(st, 0, &a);
    }
    st->kept_now = true;
    split_done(&s);
}

void stream_on_keep(struct timer *t)
{
    struct text_stream *st = container_of(t, struct text_stream, keep);

    if (st->state == STREAM_SEALING)
        return;
    if (st->asked && st->kept_now) { /* a final text that takes long is on disk */
        host_result(st->all->sender->p->host, st->asker,
                    &(struct action_result){.success = true, .queued = true});
        st->asked = false;
    }
    if (!st->fresh && !st->asked)
        return;
    if (!st->kept_now)
        stream_checkpoints_write(st);
    if (st->asked)
        timer_set(st->all->sender->env->clock, &st->keep, FINAL_MS);
    st->quiet = true;
    if (st->state == STREAM_READY) /* now among the last texts */
        list_move(&st->ready, &st->all->ready[0]);
    else if (st->state == STREAM_WAITING)
        stream_schedule(st);
}

/* ---- showing ---- */

static enum pace_class class_of(const struct text_stream *st)
{
    bool preview =
        st->is_draft && !st->final && (st->way == STREAM_DRAFT || st->way == STREAM_NATIVE);

    return st->is_draft && !st->final && st->way == STREAM_NOTHING ? PACE_TYPING
           : preview                                               ? PACE_DRAFT
           : st->final || st->quiet                                ? PACE_FINAL
                                                                   : PACE_EDIT;
}

/* Nothing is left to show. */
static void settle(struct text_stream *st)
{
    struct clock *clock = st->all->sender->env->clock;

    st->state = STREAM_IDLE;
    st->promised = false;
    timer_stop(clock, &st->keep);
    if (st->live != 0)
        keep_open(st);
    else if (stream_has_cursor(st))
        stream_checkpoints_write(st);
    else
        stream_checkpoints_delete(st);
    timer_set(clock, &st->timer,
              st->live != 0                                       ? STREAM_GROWS_MS
              : st->n_parts > 1 || (st->is_message && !st->final) ? LONG_MS
                                                                  : STREAM_OVER_MS);
}

static void on_sealed(void *ctx, enum bh_err err)
{
    struct text_stream *st = ctx;
    struct action_result done = {.success = true, .message_id = str_of(st->parts[0].id)};

    st->put = NULL;
    if (st->asked)
        host_result(st->all->sender->p->host, st->asker, &done);
    stream_end(st);
}

/* All of a final draft is shown.  Its gateway is told once that is on disk, so that a repeated
 * final gets the same answer after a crash, too. */
static void seal(struct text_stream *st)
{
    struct str message = str_of(st->parts[0].id);

    streams_found_sealed(st->all, stream_said(st), message);
    if (st->going_last) { /* the record of its last action remembers it */
        stream_end(st);
        return;
    }
    st->state = STREAM_SEALING;
    st->put = outgoing_keep_sealed(st->all->sender, &st->from, stream_said(st), st->chat, message,
                                   on_sealed, st);
}

/* The text that is shown now: unfinished Markdown is completed. */
static struct str shown_text(struct text_stream *st, struct buf *room)
{
    bool unfinished = st->is_draft ? !st->final : stream_has_cursor(st);

    if (!unfinished)
        return buf_str(&st->text);
    if (st->is_draft && st->way == STREAM_NATIVE) {
        struct str text = action_without_cursor(buf_str(&st->text));
        size_t n = stream_settled(text);
        if (n < st->reached) /* what was shown stays */
            n = st->reached < text.n ? st->reached : text.n;
        while (n < text.n && ((unsigned char)text.p[n] & 0xc0) == 0x80)
            n++;
        st->reached = n;
        return str_make(text.p, n);
    }
    stream_mend(buf_str(&st->text), room);
    return buf_str(room);
}

/* Must the message of part @k be completed?  @last: it shows the end of the text. */
static bool must_seal(const struct text_stream *st, size_t k, bool last)
{
    return st->live == k + 1 && (st->final || st->ends || !last);
}

/* The action that makes part @k show @text.  @last: as above. */
static struct action action_for(struct text_stream *st, size_t k, struct str text, bool last)
{
    bool sent = st->parts[k].id[0] != '\0', grows = sent && st->live == k + 1;
    struct action a = action_of(st, sent ? ACTION_EDIT : ACTION_SEND, text);

    if (!sent)
        st->live = 0;
    if (st->way == STREAM_NATIVE && !sent && last && !st->final) {
        a.op = ACTION_DRAFT; /* a message that grows */
        st->live = k + 1;
        st->ends = false;
        buf_reset(&st->shown);
    } else if (grows && !must_seal(st, k, last) && str_starts(text, buf_str(&st->shown))) {
        a.op = ACTION_DRAFT;
        a.content = str_skip(text, st->shown.n);
    } else if (grows) {
        if (!must_seal(st, k, last)) /* the text was changed: from now on it is edited */
            st->ends = true;
        a = seal_of(st, text);
        st->sealing = true;
    }
    if (a.op == ACTION_DRAFT) {
        buf_reset(&st->showing);
        buf_add_str(&st->showing, text);
    }
    a.op_name = str_of(action_op_name(a.op));
    if (sent)
        a.message_id = str_of(st->parts[k].id);
    else if (k == 0)
        a.reply_to = st->reply_to.n > 0 ? st->reply_to : STR_NULL;
    return a;
}

/* Shows the first part that differs, as an edit or as a new message. */
static void show_parts(struct text_stream *st, struct str text, struct action_id id)
{
    struct split s = SPLIT_INIT;
    size_t i = 0;

    split_parts(st->all, text, &s);
    if (s.n > SENDER_MAX_PARTS) {
        st->state = STREAM_FAILED;
        snprintf(st->why, sizeof st->why, STREAM_TOO_LONG, SENDER_MAX_PARTS);
        if (id.index != ACTION_NOBODY.index)
            host_fail(st->all->sender->p->host, id, "%s", st->why);
        timer_set(st->all->sender->env->clock, &st->timer, 0);
        split_done(&s);
        return;
    }
    if (s.n > st->n_parts) {
        st->parts = xrealloc(st->parts, s.n * sizeof *st->parts);
        memset(st->parts + st->n_parts, 0, (s.n - st->n_parts) * sizeof *st->parts);
        st->n_parts = s.n;
    }
    /* Messages that a shorter text does not need any more are emptied as far as possible. */
    struct str left = STR("\xe2\x80\xa6");
    size_t n_differ = 0;
    for (size_t k = st->n_parts; k-- > 0;) {
        bool none = k >= s.n && st->parts[k].id[0] == '\0';
        if (none || (!must_seal(st, k, k + 1 >= s.n) &&
                     st->parts[k].shown == hash_of(k < s.n ? split_part(&s, k) : left)))
            continue;
        n_differ++;
        i = k;
    }
    if (n_differ == 0) {
        st->more = false;
        split_done(&s);
        if (st->is_draft && st->final)
            seal(st);
        else
            settle(st);
        return;
    }
    struct str part = i < s.n ? split_part(&s, i) : left;
    struct action a = action_for(st, i, part, i + 1 >= s.n);
    st->going = i;
    st->going_hash = hash_of(part);
    st->more = n_differ > 1;
    pace_count(st->all->pace, st->place, st->group, class_of(st));
    perform(st, &a, id);
    if (a.op == ACTION_SEND && st->checkpoints[1] != 0) {
        /* The part has a record of its own now; the rest gets one that comes after it. */
        uint64_t old = st->checkpoints[1];
        st->checkpoints[1] = 0;
        keep_rest(st, &s, i + 1);
        outgoing_delete(st->all->sender, old);
    }
    split_done(&s);
}

static void show_draft(struct text_stream *st, struct str text)
{
    struct action a = action_of(st, ACTION_DRAFT, text);
    struct split s = SPLIT_INIT;

    st->more = false;
    st->going_last = st->final;
    a.final = st->final;
    a.draft_id = st->draft_id;
    a.is_message = st->is_message;
    if (st->way == STREAM_NOTHING && !st->final) {
        a.op = ACTION_TYPING;
        a.content = STR_NULL;
        a.content_set = false;
        st->typed_ms = clock_now_ms(st->all->sender->env->clock);
    } else if (st->final) {
        a.op = ACTION_SEND;
        a.reply_to = st->reply_to.n > 0 ? st->reply_to : STR_NULL;
    } else { /* a preview shows one message: the last one */
        split_parts(st->all, text, &s);
        a.content = s.n > 0 ? split_part(&s, s.n - 1) : text;
    }
    a.op_name = str_of(action_op_name(a.op));
    pace_count(st->all->pace, st->place, st->group, class_of(st));
    perform(st, &a, st->final ? st->asker : ACTION_NOBODY);
    split_done(&s);
}

static void show(struct text_stream *st)
{
    BUF_LOCAL room = BUF_INIT;
    struct str text = shown_text(st, &room);

    list_remove(&st->ready);
    st->fresh = false;
    if (st->is_draft && (st->way == STREAM_DRAFT || st->way == STREAM_NOTHING))
        show_draft(st, text);
    else if (st->way == STREAM_NATIVE && text.n == 0)
        settle(st); /* all of it is held back */
    else
        show_parts(st, text, ACTION_NOBODY);
}

void stream_show_edit(struct text_stream *st, struct action_id id)
{
    BUF_LOCAL room = BUF_INIT;
    struct str text = shown_text(st, &room);

    timer_stop(st->all->sender->env->clock, &st->timer);
    st->fresh = false;
    show_parts(st, text, id);
}

int64_t stream_room_ms(const struct text_stream *st, bool of_chat)
{
    return pace_wait_ms(st->all->pace, of_chat ? st->place : STR_NULL, st->group, class_of(st));
}

static bool types(const struct streams *all)
{
    return (streams_descriptor(all)->ops & 1u << ACTION_TYPING) != 0;
}

/* Newer text waits: for room in its chat, then for its turn. */
void stream_schedule(struct text_stream *st)
{
    struct streams *all = st->all;
    struct clock *clock = all->sender->env->clock;
    int64_t bot_ms = stream_room_ms(st, false), chat_ms = stream_room_ms(st, true);

    bool typing = st->is_draft && !st->final && st->way == STREAM_NOTHING;
    if ((st->no_edits && st->is_draft && !st->final) || /* only the final text is sent */
        (typing && (!types(all) || clock_now_ms(clock) < st->typed_ms + TYPING_MS))) {
        st->state = STREAM_IDLE;
        timer_set(clock, &st->timer, LONG_MS);
        return;
    }
    list_remove(&st->ready);
    if (chat_ms > bot_ms) {
        st->state = STREAM_WAITING;
        timer_set(clock, &st->timer, chat_ms);
        return;
    }
    st->state = STREAM_READY;
    timer_stop(clock, &st->timer);
    list_append(&all->ready[st->final || st->quiet ? 0 : 1], &st->ready);
    if (!timer_is_set(&all->pump))
        timer_set(clock, &all->pump, bot_ms);
    else if (timer_due_ms(clock, &all->pump) > clock_now_ms(clock) + bot_ms)
        timer_set(clock, &all->pump, bot_ms);
}

void streams_on_pump(struct timer *t)
{
    struct streams *all = container_of(t, struct streams, pump);
    int64_t least_ms = INT64_MAX;

    for (size_t i = 0; i < ARRAY_LEN(all->ready); i++) {
        while (!list_is_empty(&all->ready[i])) {
            struct text_stream *st = list_first(&all->ready[i], struct text_stream, ready);
            int64_t bot_ms = stream_room_ms(st, false);
            if (bot_ms > 0) {
                least_ms = bot_ms < least_ms ? bot_ms : least_ms;
                break;
            }
            if (stream_room_ms(st, true) > 0)
                stream_schedule(st); /* something was sent to its chat meanwhile */
            else
                show(st);
        }
    }
    if (least_ms != INT64_MAX)
        timer_set(all->sender->env->clock, &all->pump, least_ms);
}

/* The text that was promised and cannot be an edit any more becomes a message of its own.  The
 * sender's record takes over from here. */
static void send_anew(struct text_stream *st)
{
    struct platform *p = st->all->sender->p;
    struct action a = action_of(st, ACTION_SEND, action_without_cursor(buf_str(&st->text)));

    p->ops->act(p, ACTION_NOBODY, &st->from, &a);
    stream_end(st);
}

void stream_on_timer(struct timer *t)
{
    struct text_stream *st = container_of(t, struct text_stream, timer);

    switch (st->state) {
    case STREAM_WAITING:
        stream_schedule(st);
        break;
    case STREAM_IDLE: /* no text for a long time */
        if (st->live != 0) {
            st->ends = true;
            stream_schedule(st);
        } else if (!st->is_draft && stream_has_cursor(st)) {
            BUF_LOCAL text = BUF_INIT;
            buf_add_str(&text, action_without_cursor(buf_str(&st->text)));
            stream_set_text(st, buf_str(&text));
            st->promised = st->quiet = true;
            stream_schedule(st);
        } else {
            stream_end(st);
        }
        break;
    case STREAM_FAILED:
        if (st->asked) {
            host_fail(st->all->sender->p->host, st->asker, "%s", st->why);
            stream_end(st);
        } else if (st->promised && !st->is_draft) {
            send_anew(st);
        } else {
            stream_end(st);
        }
        break;
    case STREAM_SHOWING:
    case STREAM_READY:
    case STREAM_SEALING:
        break;
    }
}

/* ---- how actions end ---- */

void streams_began(struct text_stream *st, struct outgoing *o)
{
    st->out = o;
}

/* Newer text, or another part of it, is shown next.  A final draft that is one action of the sender
 * does not wait here: the sender waits for room, and answers in time. */
void stream_go_on(struct text_stream *st)
{
    if (st->is_draft && st->final && (st->way == STREAM_DRAFT || st->way == STREAM_NOTHING))
        show(st);
    else
        stream_schedule(st);
}

static void on_refused(struct text_stream *st, const char *why)
{
    struct clock *clock = st->all->sender->env->clock;

    if (st->way == STREAM_NATIVE && st->going_op == ACTION_DRAFT) { /* edits take over */
        st->way = STREAM_EDIT;
        st->live = 0;
        st->ends = st->sealing = false;
        st->fresh = true;
        stream_schedule(st);
        return;
    }
    if (st->is_draft && st->going_op == ACTION_EDIT) { /* a new message takes over */
        st->parts[st->going] = (struct stream_part){0};
        st->no_edits = !st->final;
        st->fresh = true;
        stream_schedule(st);
        return;
    }
    if (st->key == NULL || (!st->promised && !st->is_draft) || st->going_last) {
        stream_end(st); /* its gateway was told */
        return;
    }
    st->state = STREAM_FAILED;
    snprintf(st->why, sizeof st->why, "%s", why);
    timer_set(clock, &st->timer, st->is_draft ? STREAM_OVER_MS : QUIET_MS);
}

static void on_shown(struct text_stream *st, const struct outgoing *o)
{
    struct stream_part *part = &st->parts[st->going];

    st->all->stats.shown++;
    st->tries = 0;
    if (st->going_op == ACTION_TYPING) {
        st->state = STREAM_IDLE;
        timer_set(st->all->sender->env->clock, &st->timer, STREAM_OVER_MS);
        return;
    }
    if (st->going_op == ACTION_SEND || st->going_op == ACTION_DRAFT)
        if (o->first_id[0] != '\0')
            snprintf(part->id, sizeof part->id, "%s", o->first_id);
    part->shown = st->going_hash;
    if (st->going_op == ACTION_DRAFT && st->live != 0) {
        buf_reset(&st->shown);
        buf_add_str(&st->shown, buf_str(&st->showing));
    }
    if (st->sealing) {
        st->way = st->ends ? STREAM_EDIT : st->way;
        st->live = 0;
        st->ends = st->sealing = false;
        stream_checkpoints_delete(st);
        if (st->final && st->more) /* the rest of it */
            stream_checkpoints_write(st);
    }
    if (st->key == NULL && part->id[0] == '\0') {
        stream_free(st);
        return;
    }
    if (st->key == NULL)
        stream_is_edit(st, part->id); /* the send of a text with a cursor */
    if (st->going_last) {
        seal(st);
        return;
    }
    if (st->fresh || st->more)
        stream_go_on(st);
    else if (st->is_draft && st->final)
        seal(st);
    else
        settle(st);
}

/* A message of the stream may have been sent, and nobody knows its id. */
static void on_lost(struct text_stream *st, const char *why)
{
    if (st->is_draft && st->final && !st->fresh) {
        streams_found_sealed(st->all, stream_said(st), STR(""));
        if (st->asked)
            host_fail(st->all->sender->p->host, st->asker, ACTION_ERROR_UNKNOWN "%s", why);
        stream_end(st);
        return;
    }
    if (!st->is_draft) { /* a text that outgrew its message: the part is not sent again as it is */
        st->parts[st->going].shown = st->going_hash;
        if (st->fresh || st->more)
            stream_go_on(st);
        else
            settle(st);
        return;
    }
    st->no_edits = true;
    stream_schedule(st);
}

void streams_ended(struct text_stream *st, struct outgoing *o, const struct sender_verdict *v)
{
    st->out = NULL;
    o->stream = NULL;
    st->promised |= o->waiter == WAITER_QUEUED && v->end != SENDER_DONE; /* it took too long */
    if (v->end == SENDER_DONE) {
        if (st->going_last)
            st->asked = false; /* the sender has answered */
        on_shown(st, o);
    } else if (v->end == SENDER_REFUSED) {
        on_refused(st, v->why);
    } else if (st->going_last || st->key == NULL) { /* its gateway was told */
        if (st->key != NULL && v->end == SENDER_UNKNOWN)
            streams_found_sealed(st->all, stream_said(st), STR(""));
        stream_end(st);
    } else if (v->end == SENDER_UNKNOWN && (st->going_op == ACTION_SEND ||
                                            (st->live != 0 && st->parts[st->going].id[0] == 0))) {
        st->live = 0;
        on_lost(st, v->why);
    } else if (st->sealing) { /* the sender has tried for long */
        if (st->asked)
            host_fail(st->all->sender->p->host, st->asker, "%s%s",
                      v->end == SENDER_UNKNOWN ? ACTION_ERROR_UNKNOWN : "", v->why);
        stream_end(st);
    } else if (v->end == SENDER_UNKNOWN && st->live != 0) { /* what does the message show? */
        st->ends = st->fresh = true;
        stream_schedule(st);
    } else if (++st->tries > MAX_TRIES || (st->is_draft && st->way == STREAM_DRAFT)) {
        on_refused(st, v->why);
    } else { /* the newest text is tried later */
        st->fresh = true;
        st->state = STREAM_WAITING;
        if (st->kept_now) /* its part is not among those that the checkpoints have */
            stream_checkpoints_write(st);
        timer_set(st->all->sender->env->clock, &st->timer, RETRY_MS << st->tries);
    }
}

void streams_drop(struct outgoing *o)
{
    struct text_stream *st = o->stream;

    if (st == NULL)
        return;
    if (st->asked && !st->going_last)
        host_fail(st->all->sender->p->host, st->asker, "an operator took it out of the outbox");
    stream_end(st);
}
