/* act.c - what a gateway asks for, checked and made an outgoing. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/prompts.h"
#include "platform/telegram/outgoing.h"
#include "platform/telegram/telegram.h"

#define GENERAL_TOPIC 1

void tg_outgoing_free(struct outgoing *o)
{
    struct tg_outgoing *x = tg_outgoing_of(o);
    struct map *edits = &x->t->edits;

    if (x->edit_key[0] != '\0' && map_get(edits, str_of(x->edit_key)) == x)
        map_del(edits, str_of(x->edit_key));
    md_done(&x->md);
    attachment_done(&x->file);
    free(x->word);
    free(x->prompt);
    buf_done(&x->markup);
    free(x);
}

/* NULL: it can be sent; else why not. */
static const char *read_content(struct tg_outgoing *x, const struct action *a, size_t max_parts)
{
    size_t parts = 0;

    /* Looked at before it is read: Markdown of a megabyte would keep everybody waiting. */
    if (utf16_units(a->content) > TG_MAX_PARTS * (size_t)TG_LIMIT)
        return "the message is longer than sixteen Telegram messages";
    md_parse(&x->md, a->content);
    for (struct md_part p = {0}; parts <= max_parts && md_next(&x->md, TG_LIMIT, &p);)
        parts++;
    x->out.n_parts = parts;
    if (parts == 0)
        return "the message is empty";
    if (parts > max_parts)
        return max_parts == 1 ? "the edited text is longer than one Telegram message holds (4096)"
                              : "the message is longer than sixteen Telegram messages";
    md_next(&x->md, TG_LIMIT, &x->part);
    return NULL;
}

static const char *read_send(struct tg_outgoing *x, const struct action *a)
{
    if (!str_to_i64(a->reply_to, &x->reply_to) || x->reply_to < 0)
        x->reply_to = 0;
    return read_content(x, a, TG_MAX_PARTS);
}

static const char *read_edit(struct tg_outgoing *x, const struct action *a)
{
    x->thread = 0; /* a message knows its topic */
    if (!str_to_i64(a->message_id, &x->message_id) || x->message_id <= 0)
        return "there is no such message to edit";
    return read_content(x, a, 1);
}

/* Telegram lets bots react with few signs; the two that agents end a turn with are not
 * among them. */
static struct str reaction_of(struct str emoji)
{
    if (str_eq(emoji, STR("\xe2\x9c\x85")))
        return STR("\xf0\x9f\x91\x8d");
    return str_eq(emoji, STR("\xe2\x9d\x8c")) ? STR("\xf0\x9f\x91\x8e") : emoji;
}

static const char *read_errand(struct tg_outgoing *x, const struct action *a)
{
    struct str word = x->op == ACTION_REACT ? reaction_of(a->emoji) : a->thread_name;

    if (x->op != ACTION_THREAD_CREATE &&
        (!str_to_i64(a->message_id, &x->message_id) || x->message_id <= 0))
        return "message_id is not one of Telegram's";
    if (word.n == 0 || utf8_chars(word) > 100)
        return "an emoji or a name is missing, or too long";
    if (a->only_if_current_name.p != NULL || a->only_if_connector_created)
        return "Telegram does not tell the name of a topic, so it is not changed";
    x->thread = 0;
    if (!a->remove || x->op != ACTION_REACT)
        x->word = str_dup(word);
    return NULL;
}

/* ---- under way ---- */

/* While an edit waits, a newer one of the same message takes its place: nobody would see the first.
 */
static bool replace_edit(struct tg_outgoing *x, const struct sender_order *q)
{
    struct map *edits = &x->t->edits;

    snprintf(x->edit_key, sizeof x->edit_key, "%s %" PRId64, x->chat, x->message_id);
    struct tg_outgoing *old = map_get(edits, str_of(x->edit_key));
    if (old == NULL || !outgoing_waits(&old->out)) {
        map_del(edits, str_of(x->edit_key)); /* first: the key is borrowed from the value */
        map_put(edits, str_of(x->edit_key), x);
        return false;
    }
    struct md md = old->md;
    old->md = x->md;
    x->md = md;
    old->part = x->part;
    old->plain = false;
    sender_supersede(&old->out, q);
    tg_outgoing_free(&x->out);
    return true;
}

static void start_edit(struct tg_outgoing *x, const struct sender_order *q)
{
    if (!replace_edit(x, q))
        sender_act(x->t->sender, &x->out, q);
}

static void start_send(struct tg_outgoing *x, struct sender_order *q)
{
    struct buf what = BUF_INIT;

    buf_printf(&what, "%s\x1f%" PRId64 "\x1f", x->chat, x->thread);
    buf_add_str(&what, buf_str(&x->md.text));
    if (x->file.path != NULL)
        buf_printf(&what, "\x1f%s", x->file.path);
    if (x->prompt != NULL)
        buf_printf(&what, "\x1f%s", x->prompt);
    q->what = buf_str(&what);
    sender_act(x->t->sender, &x->out, q);
    q->what = STR_NULL;
    buf_done(&what);
}

/* Signs and questions have lanes of their own: nothing that is said waits behind them. */
static void start_aside(struct tg_outgoing *x, struct sender_order *q)
{
    char lane[TG_CHAT_CHARS + 16];

    snprintf(lane, sizeof lane, "%s %s", action_op_name(x->op), x->chat);
    x->out.n_parts = 1;
    q->lane = str_of(lane);
    sender_act(x->t->sender, &x->out, q);
    q->lane = STR_NULL;
}

static bool typing_needs_nothing(struct telegram *t, const struct action *a)
{
    struct str chat = tg_chat_now(t, a->chat_id);

    return (a->content_set && str_is_empty(a->content)) || tg_chat_wait_ms(t, chat) > 0 ||
           tg_chat_typed(t, chat);
}

/* ---- the platform's entrance ---- */

static bool is_chat_id(struct str id)
{
    int64_t number;

    if (id.n == 0 || id.n >= TG_CHAT_CHARS || memchr(id.p, '\0', id.n) != NULL)
        return false;
    return str_to_i64(id, &number) || (id.p[0] == '@' && id.n > 1);
}

static struct tg_outgoing *outgoing_new(struct telegram *t, const struct action *a)
{
    struct tg_outgoing *x = xcalloc(1, sizeof *x);

    x->t = t;
    x->op = a->op;
    memcpy(x->chat, a->chat_id.p, a->chat_id.n);
    if (!str_to_i64(a->thread_id, &x->thread) || x->thread <= GENERAL_TOPIC)
        x->thread = 0; /* the General topic has no thread: Telegram refuses its number */
    return x;
}

static void start(struct telegram *t, struct sender_order *q)
{
    struct tg_outgoing *x = outgoing_new(t, q->action);
    const char *wrong = NULL;

    q->twice = x->op == ACTION_EDIT || x->op == ACTION_THREAD_RENAME ? TWICE_IS_ONE : TWICE_IS_TWO;
    if (x->op == ACTION_PROMPT)
        wrong = prompt_wrong(q->action);
    if ((x->op == ACTION_SEND || x->op == ACTION_PROMPT) && wrong == NULL)
        wrong = read_send(x, q->action);
    else if (x->op == ACTION_EDIT)
        wrong = read_edit(x, q->action);
    else if (x->op == ACTION_SEND_MEDIA)
        wrong = tg_read_media(x, q->action);
    else if (x->op == ACTION_REACT || x->op == ACTION_THREAD_CREATE ||
             x->op == ACTION_THREAD_RENAME)
        wrong = read_errand(x, q->action);
    if (wrong != NULL) {
        host_fail(t->base.host, q->id, "%s", wrong);
        tg_outgoing_free(&x->out);
        return;
    }
    struct str chat = tg_outgoing_chat(x);
    q->lane = chat;
    if (x->op == ACTION_PROMPT)
        tg_ask(x, q->from, q->action);
    if (x->op == ACTION_SEND || x->op == ACTION_SEND_MEDIA || x->op == ACTION_PROMPT)
        start_send(x, q);
    else if (x->op == ACTION_EDIT)
        start_edit(x, q);
    else
        start_aside(x, q);
}

void tg_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a)
{
    struct telegram *t = container_of(p, struct telegram, base);
    struct sender_order q = {.id = id, .from = from, .action = a};

    if (!is_chat_id(a->chat_id))
        host_fail(p->host, id, "\"%.*s\" is no Telegram chat",
                  (int)(a->chat_id.n < 64 ? a->chat_id.n : 64),
                  a->chat_id.p != NULL ? a->chat_id.p : "");
    else if ((telegram_ops.descriptor->ops & 1u << a->op) == 0)
        host_fail(p->host, id, "unsupported op: %s", action_op_name(a->op));
    else if (a->op == ACTION_TYPING && typing_needs_nothing(t, a))
        host_result(p->host, id, &(struct action_result){.success = true});
    else
        start(t, &q);
}
