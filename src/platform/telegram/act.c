/* act.c - what a gateway asks for, checked and made a request. */
#include "base/mem.h"
#include "platform/telegram/req.h"

#define GENERAL_TOPIC 1

static bool read_content(struct tg_req *q, const struct action *a, size_t max_parts)
{
    size_t parts = 0;

    md_parse(&q->md, a->content);
    for (struct md_part p = {0}; parts <= max_parts && md_next(&q->md, TG_LIMIT, &p);)
        parts++;
    if (parts == 0) {
        tg_req_fail(q, "", "the message is empty");
        return false;
    }
    if (parts > max_parts) {
        tg_req_fail(q, "",
                    max_parts == 1
                        ? "the edited text is longer than one Telegram message holds (4096)"
                        : "the message is longer than sixteen Telegram messages");
        return false;
    }
    return md_next(&q->md, TG_LIMIT, &q->part);
}

static void act_send(struct tg_req *q, const struct action *a)
{
    struct buf what = BUF_INIT;

    if (!str_to_i64(a->reply_to, &q->reply_to) || q->reply_to < 0)
        q->reply_to = 0;
    if (!read_content(q, a, TG_MAX_PARTS))
        return;
    tg_req_describe(&what, q);
    bool cut_off = intents_was_cut_off(q->t->intents, buf_str(&what));
    buf_done(&what);
    if (cut_off) {
        q->t->n.unknown++;
        tg_req_fail(
            q, ACTION_ERROR_UNKNOWN,
            "the same message was being sent when bellhop stopped; it may have been delivered");
        return;
    }
    tg_req_queue(q);
}

/* While an edit waits, a newer one of the same message takes its place: nobody would see the first.
 */
static bool replace_edit(struct tg_req *q)
{
    list_each (&q->t->reqs, it, nxt) {
        struct tg_req *old = list_entry(it, struct tg_req, link);
        if (old == q || old->op != ACTION_EDIT || !old->waiting ||
            old->message_id != q->message_id || strcmp(old->chat, q->chat) != 0)
            continue;
        struct action_id id = old->id;
        struct md md = old->md;
        old->id = q->id;
        old->md = q->md;
        old->part = q->part;
        old->plain = false;
        q->id = id;
        q->md = md;
        tg_req_succeed(q, q->message_id);
        return true;
    }
    return false;
}

static void act_edit(struct tg_req *q, const struct action *a)
{
    q->thread = 0; /* a message knows its topic */
    if (!str_to_i64(a->message_id, &q->message_id) || q->message_id <= 0) {
        tg_req_fail(q, "", "there is no such message to edit");
        return;
    }
    if (read_content(q, a, 1) && !replace_edit(q))
        tg_req_queue(q);
}

static void act_typing(struct tg_req *q, const struct action *a)
{
    struct str chat = tg_req_chat(q);
    bool clear = a->content_set && str_is_empty(a->content);

    if (clear || tg_chat_wait_ms(q->t, chat) > 0 || tg_chat_typed(q->t, chat))
        tg_req_succeed(q, 0);
    else
        tg_req_call(q);
}

static bool is_chat_id(struct str id)
{
    int64_t number;

    if (id.n == 0 || id.n >= TG_CHAT_CHARS || memchr(id.p, '\0', id.n) != NULL)
        return false;
    return str_to_i64(id, &number) || (id.p[0] == '@' && id.n > 1);
}

void tg_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a)
{
    struct telegram *t = container_of(p, struct telegram, base);

    if (!is_chat_id(a->chat_id)) {
        host_fail(p->host, id, "\"%.*s\" is no Telegram chat",
                  (int)(a->chat_id.n < 64 ? a->chat_id.n : 64),
                  a->chat_id.p != NULL ? a->chat_id.p : "");
        return;
    }
    struct tg_req *q = tg_req_new(t, id, a);
    if (!str_to_i64(a->thread_id, &q->thread) || q->thread <= GENERAL_TOPIC)
        q->thread = 0; /* the General topic has no thread: Telegram refuses its number */
    switch (a->op) {
    case ACTION_SEND:
        act_send(q, a);
        return;
    case ACTION_EDIT:
        act_edit(q, a);
        return;
    case ACTION_TYPING:
        act_typing(q, a);
        return;
    case ACTION_GET_CHAT_INFO:
        q->thread = 0;
        tg_req_call(q);
        return;
    case ACTION_FOLLOW_UP:
    case ACTION_UNKNOWN:
        break;
    }
    tg_req_fail(q, "unsupported op: ", action_op_name(a->op));
}
