/* streams.c - messages that grow while an agent writes, and task cards.  (slack_priv.h has the
 * calls, platform/stream.h the drafts that arrive here.)
 *
 *      start --> chat.startStream --> append ... append --> seal --> chat.stopStream
 *                                       |                     |
 *             edits take over <-- Slack lets it grow no more -'--> chat.update to the whole text
 *
 * Slack can only append to such a message.  The streams hold back what may still change; if a text
 * was changed all the same, or an answer was lost, the seal stops the message and edits it to its
 * whole text.  So the end is right whatever happened before, and a repeated seal changes nothing.
 *
 * Slack streams in threads only, in channels to one person: the last one who wrote in that thread.
 * Everywhere else, where that person is not known, and while chat.startStream has no room, answers
 * are messages that are edited.
 *
 * A task card is a message that grows too: it shows what an agent does, a line for each task.  It
 * is cosmetic: nothing of it is recorded, and its request is given up after a few seconds.  A card
 * that nobody ends is completed after STREAM_GROWS_MS. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/slack/slack_priv.h"

enum {
    MAX_CARDS = 1024,
    MAX_TASKS = 40,    /* of a card; Slack shows 50 blocks in a message */
    TASK_CHARS = 256,  /* of each text of a task, in bytes */
    CARD_ID_MAX = 128, /* bytes */
    TICK_MS = 30000,
    LATER_MS = 600000, /* until a workspace that refused a stream is asked again */
};

/* Direct messages need no recipient. */
static bool is_direct(struct str chat)
{
    return chat.n > 0 && chat.p[0] == 'D';
}

enum stream_way slack_way(struct platform *p, const struct action *a)
{
    struct slack *s = slack_of(p);
    const struct slack_chat *c = lru_find(&s->chats, a->chat_id);
    struct slack_team *t =
        slack_team_find(s, c != NULL && c->team[0] != '\0' ? str_of(c->team) : a->scope_id);
    const struct slack_thread *in = slack_thread_find(s, a->chat_id, a->thread_id);

    if (t == NULL || !slack_is_ts(a->thread_id) ||
        t->no_streams_ms > clock_now_ms(s->base.env->clock) ||
        (!is_direct(a->chat_id) && (in == NULL || in->user[0] == '\0')) ||
        slack_limit_ms(t, SLACK_START) > 0 || slack_limit_ms(t, SLACK_STOP) > 0)
        return STREAM_EDIT;
    return STREAM_NATIVE;
}

/* ---- task cards ---- */

struct slack_card {
    struct lru_entry lru;
    char chat[SLACK_ID_MAX + 1], team[SLACK_ID_MAX + 1];
    char ts[SLACK_ID_MAX + 1]; /* empty: not started */
    int64_t used_ms;           /* monotonic */
    uint64_t shown;            /* hash of the chunks it shows */
    uint32_t tasks[MAX_TASKS]; /* hashes of their ids */
    size_t n_tasks;
};

/* Completes a card that nobody will end. */
static void card_abandon(struct slack *s, struct slack_card *c)
{
    struct slack_team *t = slack_team_find(s, str_of(c->team));
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (t != NULL && c->ts[0] != '\0') {
        jw_obj(&w);
        jw_kstr(&w, "channel", str_of(c->chat));
        jw_kstr(&w, "ts", str_of(c->ts));
        jw_end_obj(&w);
        slack_ask(t, SLACK_STOP, buf_str(&body), &(struct sender_question){.lane = c->lru.key});
    }
    lru_drop(&s->cards, c);
}

static struct slack_card *card_get(struct slack *s, const char *key, const char *chat)
{
    if (lru_is_full(&s->cards) && lru_find(&s->cards, str_of(key)) == NULL)
        card_abandon(s, lru_oldest(&s->cards));
    struct slack_card *c = lru_use(&s->cards, str_of(key), sizeof *c);
    memcpy(c->chat, chat, sizeof c->chat);
    c->used_ms = clock_now_ms(s->base.env->clock);
    if (!timer_is_set(&s->cards_tick))
        timer_set(s->base.env->clock, &s->cards_tick, TICK_MS);
    return c;
}

static void on_tick(struct timer *timer)
{
    struct slack *s = container_of(timer, struct slack, cards_tick);
    int64_t now_ms = clock_now_ms(s->base.env->clock);

    struct slack_card *c;

    while ((c = lru_oldest(&s->cards)) != NULL && c->used_ms + STREAM_GROWS_MS <= now_ms)
        card_abandon(s, c);
    if (c != NULL)
        timer_set(s->base.env->clock, &s->cards_tick, TICK_MS);
}

/* Writes a text of a task, cut between two characters, so that it pings nobody. */
static void write_cut(struct jw *w, const char *name, struct str text)
{
    BUF_LOCAL safe = BUF_INIT;
    size_t n = 0;

    if (text.n == 0)
        return;
    while (n < text.n) {
        size_t one = utf8_seq_bytes(str_skip(text, n));
        one = one > 0 ? one : 1;
        if (n + one > TASK_CHARS)
            break;
        n += one;
    }
    jw_kstr(w, name, slack_neutralize(&safe, str_make(text.p, n)));
}

/* Slack's word for the state of a task. */
static struct str status_of(struct str said)
{
    static const struct {
        const char *said, *is;
    } words[] = {{"pending", "pending"},     {"in_progress", "in_progress"},
                 {"running", "in_progress"}, {"complete", "complete"},
                 {"completed", "complete"},  {"done", "complete"},
                 {"error", "error"},         {"failed", "error"}};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq(said, str_of(words[i].said)))
            return str_of(words[i].is);
    return STR("in_progress");
}

static void write_task(struct jw *w, struct json task)
{
    struct str title = json_str(task, "title");

    jw_obj(w);
    jw_kstr(w, "type", STR("task_update"));
    write_cut(w, "id", json_str(task, "id"));
    write_cut(w, "title", title.n > 0 ? title : json_str(task, "id"));
    jw_kstr(w, "status", status_of(json_str(task, "status")));
    write_cut(w, "details", json_str(task, "details"));
    write_cut(w, "output", json_str(task, "output"));
    jw_end_obj(w);
}

/* Copies the tasks of @chunks into x->body, one object after the other, with commas. */
static const char *read_tasks(struct slack_outgoing *x, struct json chunks)
{
    size_t n = 0;

    for (struct json_iter it = {0}; json_next(chunks, &it); n++) {
        struct jw w;
        if (n == MAX_TASKS)
            return "a task card has at most 40 tasks";
        if (!json_is_object(it.value) || json_str(it.value, "id").n == 0)
            return "each of the chunks is an object with an id";
        if (n > 0)
            buf_add_str(&x->body, STR(","));
        w = jw_begin(&x->body);
        write_task(&w, it.value);
    }
    return n > 0 ? NULL : "chunks is a list of tasks: {id, title, status}";
}

static const char *read_card(struct slack_outgoing *x, const struct action_from *from,
                             const struct action *a)
{
    BUF_LOCAL key = BUF_INIT;

    if (a->card_id.n == 0 || a->card_id.n > CARD_ID_MAX)
        return "a task card needs a card_id of at most 128 bytes";
    buf_printf(&key, "%.*s\x1f%.*s\x1f%s\x1f%.*s", STR_FMT(from->tenant), STR_FMT(from->instance),
               x->chat, STR_FMT(a->card_id));
    x->word = buf_take(&key);
    const struct slack_card *c = lru_find(&x->s->cards, str_of(x->word));
    bool started = c != NULL && c->ts[0] != '\0';
    x->remove = a->final;
    x->method = a->final ? SLACK_STOP : started ? SLACK_APPEND : SLACK_START;
    if (a->final)
        return NULL;
    if (!started && x->thread[0] == '\0')
        return "a task card needs metadata.thread_ts: Slack shows it in a thread";
    return read_tasks(x, a->chunks);
}

/* ---- drafts ---- */

/* A seal: what the message lacks is appended; if what it shows is not known, it is edited. */
static void read_seal(struct slack_outgoing *x, const struct action *a)
{
    BUF_LOCAL safe = BUF_INIT, safe_shown = BUF_INIT;
    struct str shown = stream_shown(a->stream), text = slack_neutralize(&safe, a->content);

    x->method = SLACK_STOP;
    if (a->content.n == 0)
        return;
    split_text(&x->parts, text, SLACK_MAX_TEXT, SPLIT_UTF16);
    x->plain_at = utf16_units(text) > SLACK_MAX_CHARS ? 1 : 0;
    shown = shown.p != NULL ? slack_neutralize(&safe_shown, shown) : STR_NULL;
    x->rewrites = x->parts.n > 0 && (shown.p == NULL || !str_starts(text, shown));
    if (!x->rewrites)
        buf_add_str(&x->body, str_skip(text, shown.n));
}

const char *slack_stream_read(struct slack_outgoing *x, const struct action_from *from,
                              const struct action *a)
{
    BUF_LOCAL safe = BUF_INIT;

    if (x->op == ACTION_TASK_CARD)
        return read_card(x, from, a);
    if (a->final) {
        read_seal(x, a);
    } else {
        x->method = x->message[0] != '\0' ? SLACK_APPEND : SLACK_START;
        buf_add_str(&x->body, slack_neutralize(&safe, a->content));
    }
    return NULL;
}

/* ---- requests ---- */

static void write_recipient(struct jw *w, struct slack_outgoing *x, const struct slack_team *t)
{
    const struct slack_thread *to = slack_thread_find(x->s, str_of(x->chat), str_of(x->thread));

    jw_kstr(w, "thread_ts", str_of(x->thread));
    if (to == NULL || to->user[0] == '\0' || is_direct(str_of(x->chat)))
        return;
    jw_kstr(w, "recipient_user_id", str_of(to->user));
    jw_kstr(w, "recipient_team_id", str_of(to->team[0] != '\0' ? to->team : t->id));
}

/* Slack keeps the tasks that a message shows, so a card has only so many of them. */
static bool has_room(struct slack_card *c, struct str id)
{
    uint32_t hash = map_hash(id);

    for (size_t i = 0; i < c->n_tasks; i++)
        if (c->tasks[i] == hash)
            return true;
    if (c->n_tasks == MAX_TASKS)
        return false;
    c->tasks[c->n_tasks++] = hash;
    return true;
}

/* False: the card has no room for any of them. */
static bool write_chunks(struct jw *w, struct slack_outgoing *x, struct slack_card *c)
{
    BUF_LOCAL all = BUF_INIT;
    struct json list;
    size_t n = 0;

    buf_printf(&all, "[%s]", buf_z(&x->body));
    jw_karr(w, "chunks");
    if (json_parse(x->s->base.answers, buf_str(&all), &list))
        for (struct json_iter it = {0}; json_next(list, &it);)
            if (has_room(c, json_str(it.value, "id"))) {
                jw_value(w, it.value);
                n++;
            }
    jw_end_arr(w);
    return n > 0;
}

static bool write_card(struct slack_outgoing *x, struct slack_team *t, struct jw *w)
{
    struct slack_card *c =
        x->remove ? lru_find(&x->s->cards, str_of(x->word)) : card_get(x->s, x->word, x->chat);
    uint64_t hash = hash64_brief(hash_process_key(), buf_str(&x->body));

    if (c == NULL || (x->remove && c->ts[0] == '\0') || (!x->remove && c->shown == hash))
        return false;
    memcpy(c->team, t->id, sizeof c->team);
    x->method = x->remove ? SLACK_STOP : c->ts[0] != '\0' ? SLACK_APPEND : SLACK_START;
    jw_kstr(w, "channel", str_of(c->chat));
    if (x->method == SLACK_START) {
        write_recipient(w, x, t);
        jw_kstr(w, "task_display_mode", STR("plan"));
    } else {
        jw_kstr(w, "ts", str_of(c->ts));
    }
    return x->remove || write_chunks(w, x, c);
}

bool slack_stream_write(struct slack_outgoing *x, struct slack_team *t, struct buf *body)
{
    struct jw w = jw_begin(body);
    bool some = true;

    jw_obj(&w);
    if (x->op == ACTION_TASK_CARD) {
        some = write_card(x, t, &w);
    } else {
        jw_kstr(&w, "channel", str_of(x->chat));
        if (x->method == SLACK_START)
            write_recipient(&w, x, t);
        else
            jw_kstr(&w, "ts", str_of(x->message));
        if (x->op == ACTION_DRAFT && x->body.n > 0 && !x->rewrites)
            jw_kstr(&w, "markdown_text", buf_str(&x->body));
    }
    jw_end_obj(&w);
    return some;
}

/* ---- answers ---- */

/* The message is stopped: is there more to do? */
static void on_stopped(struct slack_outgoing *x, bool all_shown, struct sender_verdict *v)
{
    v->end = SENDER_DONE;
    snprintf(v->message_id, sizeof v->message_id, "%s", x->message);
    if (x->op == ACTION_DRAFT && (x->parts.n == 0 || all_shown))
        return;
    x->method = SLACK_UPDATE;
    v->end = SENDER_REWRITE;
}

void slack_stream_done(struct slack_outgoing *x, struct sender_verdict *v)
{
    struct slack_card *c =
        x->op == ACTION_TASK_CARD ? lru_find(&x->s->cards, str_of(x->word)) : NULL;
    struct str ts = json_str(v->answer, "ts");

    v->end = SENDER_DONE;
    if (x->op == ACTION_TASK_CARD) {
        x->s->n.cards++;
        if (c == NULL)
            return;
        if (x->remove) {
            lru_drop(&x->s->cards, c);
            return;
        }
        if (slack_is_ts(ts))
            snprintf(c->ts, sizeof c->ts, "%.*s", STR_FMT(ts));
        c->shown = hash64_brief(hash_process_key(), buf_str(&x->body));
    } else if (x->method == SLACK_START) {
        x->s->n.streams++;
        slack_thread_joined(x->s, str_of(x->chat), str_of(x->thread));
        if (slack_is_ts(ts))
            snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(ts));
        else
            sender_say(v, SENDER_UNKNOWN, "something else answered in Slack's place");
    } else if (x->method == SLACK_STOP) {
        on_stopped(x, !x->rewrites, v);
    } else {
        x->s->n.appends += x->method == SLACK_APPEND;
        snprintf(v->message_id, sizeof v->message_id, "%s", x->message);
    }
}

/* Does this refusal concern one place only, not the workspace? */
static bool is_local(struct str error)
{
    static const char *const words[] = {
        "channel_not_found", "is_archived",      "invalid_thread_ts",         "thread_not_found",
        "not_in_channel",    "msg_too_long",     "missing_recipient_user_id", "user_not_found",
        "restricted_action", "message_not_found"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq(error, str_of(words[i])))
            return true;
    return false;
}

void slack_stream_refused(struct slack_outgoing *x, struct slack_team *t, struct sender_verdict *v)
{
    struct str error = slack_error(v);
    struct slack_card *c =
        x->op == ACTION_TASK_CARD ? lru_find(&x->s->cards, str_of(x->word)) : NULL;
    bool over = str_eq(error, STR("message_not_in_streaming_state")) ||
                str_eq(error, STR("stopped_by_user")) || str_eq(error, STR("message_not_found"));

    v->end = SENDER_REFUSED;
    if (x->method == SLACK_START && !is_local(error)) {
        t->no_streams_ms = clock_now_ms(x->s->base.env->clock) + LATER_MS;
        log_warn(&x->s->base.log, "Slack starts no stream in workspace %s: %s; answers are edited",
                 t->id, v->why);
    } else if (c != NULL && x->remove) {
        lru_drop(&x->s->cards, c);
        v->end = SENDER_DONE;
    } else if (c != NULL && over && x->thread[0] != '\0') { /* another message goes on */
        c->ts[0] = '\0';
        c->n_tasks = 0;
        v->end = SENDER_REWRITE;
    } else if (x->op != ACTION_TASK_CARD && x->method == SLACK_STOP && over) {
        on_stopped(x, x->op == ACTION_DRAFT && !x->rewrites && x->body.n == 0, v);
    } else if (x->op == ACTION_DRAFT && x->method == SLACK_STOP && !x->rewrites && x->body.n > 0) {
        x->rewrites = true; /* too much to append: stop it first */
        v->end = SENDER_REWRITE;
    }
}

/* ---- life ---- */

void slack_streams_start(struct slack *s)
{
    s->cards.max = MAX_CARDS;
    timer_init(&s->cards_tick, on_tick);
}

void slack_streams_stop(struct slack *s)
{
    timer_stop(s->base.env->clock, &s->cards_tick);
    lru_done(&s->cards);
}
