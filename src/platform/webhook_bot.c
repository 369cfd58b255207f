/* webhook_bot.c - the common part of webhook bots.  (webhook_bot.h has the contract.) */
#include "platform/webhook_bot.h"
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"

/* ---- texts ---- */

void text_outgoing_free(struct outgoing *o)
{
    struct text_outgoing *t = text_outgoing_of(o);

    split_done(&t->parts);
    attachment_done(&t->file);
    free(t->handle);
    free(t);
}

void webhook_bot_take(struct webhook_bot *b, enum webhook_verdict v, struct event *ev,
                      struct http_id id, const struct http_answer *good, int64_t deadline_ms)
{
    struct webhook_delivery x = {.ev = ev};

    if (v == WEBHOOK_MALFORMED) {
        await_refuse(&b->awaits, id, BH_MALFORMED);
        return;
    }
    if (v == WEBHOOK_IGNORED) {
        b->n.ignored++;
        http_answer(b->env->server, id, good);
        return;
    }
    b->n.events++;
    ev->route_key = ev->chat_id;
    struct prompt *q =
        ev->n_media == 0 ? prompts_numbered(b->prompts, ev->chat_id, ev->text, &x.option) : NULL;
    if (q != NULL && prompt_may_answer(q, ev))
        x.prompt = q;
    await_accept(&b->awaits, &x, id, good, deadline_ms);
}

static void send_text(struct webhook_bot *b, struct action_id id, const struct action_from *from,
                      const struct action *a)
{
    struct text_outgoing *t = xcalloc(1, sizeof *t + a->chat_id.n + 1);

    memcpy(t->chat, a->chat_id.p, a->chat_id.n);
    split_within(&t->parts, a->content, &b->kind->limits);
    t->out.n_parts = t->parts.n;
    if (a->file != NULL)
        t->out.n_parts = b->kind->file_alone ? t->parts.n + 1 : t->parts.n > 0 ? t->parts.n : 1;
    if (a->file != NULL)
        attachment_copy(&t->file, a);
    const char *wrong = a->file != NULL ? b->kind->no_file(b, &t->file) : NULL;
    if (wrong != NULL) {
        host_fail(b->base.host, id, "%s", wrong);
        text_outgoing_free(&t->out);
        return;
    }
    sender_act(b->sender, &t->out,
               &(struct sender_order){.id = id,
                                      .from = from,
                                      .action = a,
                                      .twice = b->kind->sender->look != NULL ? TWICE_IS_SEEN
                                                                             : TWICE_IS_TWO});
}

void webhook_bot_act(struct platform *p, struct action_id id, const struct action_from *from,
                     const struct action *a)
{
    struct webhook_bot *b = webhook_bot_of(p);

    if (!b->kind->is_chat(a->chat_id))
        host_fail(p->host, id, "%s", b->kind->no_chat);
    else if (a->op == ACTION_SEND || a->op == ACTION_SEND_MEDIA)
        send_text(b, id, from, a);
    else if (a->op == ACTION_PROMPT) {
        /* Asks a question with numbered options: these platforms have no buttons. */
        const char *wrong = prompt_wrong(a);
        struct action numbered = *a;
        BUF_LOCAL text = BUF_INIT;
        if (wrong != NULL) {
            host_fail(b->base.host, id, "%s", wrong);
            return;
        }
        const struct prompt *q = prompts_add(b->prompts, from, a, a->chat_id);
        if (a->left == NULL) { /* the text of a resumed action has the numbers already */
            prompt_write_numbered(&text, a->content, q);
            numbered.content = buf_str(&text);
        }
        send_text(b, id, from, &numbered);
    } else if (a->op == ACTION_GET_CHAT_INFO)
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = a->chat_id,
                                            .chat_type = STR("dm")});
    else
        host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
}

/* ---- life ---- */

enum bh_err webhook_bot_open(struct webhook_bot *b, const struct webhook_bot_kind *kind,
                             const struct platform_settings *settings, const char *api_base,
                             struct host *host, char *ret_why)
{
    platform_init(&b->base, kind->ops, host, settings);
    b->kind = kind;
    b->env = host_env(host);
    b->api_base = platform_api_base(api_base, kind->api_base);
    b->parser = json_parser_new();
    awaits_init(&b->awaits, &b->base);
    enum bh_err err = prompts_open(&b->base, NULL, &b->prompts, ret_why);
    return err == BH_OK ? sender_new(&b->base, kind->label, kind->sender, &b->sender, ret_why)
                        : err;
}

void webhook_bot_done(struct webhook_bot *b)
{
    awaits_done(&b->awaits);
    prompts_close(b->prompts);
    sender_free(b->sender);
    json_parser_free(b->parser);
    free(b->api_base);
}

void webhook_bot_status(struct platform *p, struct jw *w)
{
    const struct webhook_bot *b = webhook_bot_of(p);
    struct sender_stats s;

    sender_stats(b->sender, &s);
    jw_kstr(w, "state", str_of(p->problem != NULL ? "degraded" : "live"));
    jw_ki64(w, "events", (int64_t)b->n.events);
    jw_ki64(w, "ignored", (int64_t)b->n.ignored);
    jw_ki64(w, "webhooksRefused", (int64_t)b->n.refused);
    jw_ki64(w, "webhooksLate", (int64_t)b->awaits.late);
    jw_ki64(w, "sent", (int64_t)s.done);
    jw_ki64(w, "sendsRefused", (int64_t)s.refused);
    jw_ki64(w, "sendsUnknown", (int64_t)s.unknown);
    jw_ki64(w, "requestsWaiting", (int64_t)s.waiting);
    jw_ki64(w, "cutOffAtStart", (int64_t)s.cut_off);
    jw_ki64(w, "openQuestions", (int64_t)prompts_count(b->prompts));
}
