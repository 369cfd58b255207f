/* texts.c - actions and messages of platforms with plain texts.  (texts.h has the contract.) */
#include "platform/texts.h"
#include <stdlib.h>
#include "base/mem.h"
#include "platform/prompts.h"

void text_outgoing_free(struct outgoing *o)
{
    struct text_outgoing *t = text_outgoing_of(o);

    split_done(&t->parts);
    attachment_done(&t->file);
    free(t->handle);
    free(t->reply_to);
    free(t);
}

void text_take(struct platform *p, enum webhook_verdict v, struct event *ev, struct http_id id,
               const struct http_answer *good, int64_t deadline_ms)
{
    struct webhook_delivery x = {.ev = ev};

    if (v == WEBHOOK_MALFORMED) {
        p->n.malformed++;
        await_refuse(p, id, BH_MALFORMED);
        return;
    }
    if (v == WEBHOOK_IGNORED) {
        p->n.ignored++;
        http_answer(p->env->server, id, good);
        return;
    }
    ev->route_key = ev->chat_id;
    x.prompt = prompts_answered(p->prompts, ev, STR_NULL, &x.option);
    await_accept(p, &x, id, good, deadline_ms);
}

static void send_text(struct platform *p, struct action_id id, const struct action_from *from,
                      const struct action *a)
{
    const struct text_ops *ops = p->ops->texts;
    struct text_outgoing *t = xcalloc(1, sizeof *t + a->chat_id.n + 1);
    struct sender_order q = {.id = id, .from = from, .action = a, .twice = TWICE_IS_TWO};

    if (p->ops->sender->look != NULL)
        q.twice = TWICE_IS_SEEN;
    else if (p->ops->sender->key_ms > 0)
        q.twice = TWICE_IS_KEYED;
    memcpy(t->chat, a->chat_id.p, a->chat_id.n);
    t->reply_to = str_dup_opt(a->reply_to);
    split_within(&t->parts, a->content, &ops->limits);
    t->out.n_parts = t->parts.n;
    if (a->file != NULL) {
        t->out.n_parts = ops->file_alone ? t->parts.n + 1 : t->parts.n > 0 ? t->parts.n : 1;
        attachment_copy(&t->file, a);
        q.wrong = ops->no_file(p, &t->file);
    }
    sender_act(p->sender, &t->out, &q);
}

void text_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a)
{
    struct action numbered = *a;
    BUF_LOCAL room = BUF_INIT;

    if (!p->ops->texts->is_chat(a->chat_id))
        host_fail(p->host, id, "%s", p->ops->texts->no_chat);
    else if (a->op == ACTION_SEND || a->op == ACTION_SEND_MEDIA)
        send_text(p, id, from, a);
    else if (a->op == ACTION_PROMPT) {
        if (prompts_add_numbered(p, id, from, &numbered, &room))
            send_text(p, id, from, &numbered);
    } else if (a->op == ACTION_GET_CHAT_INFO)
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = a->chat_id,
                                            .chat_type = STR("dm")});
    else
        host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
}
