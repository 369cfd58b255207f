/* press.c - questions with buttons on the page.
 *
 *      prompt --> a message with its options --> pages
 *      POST press --> prompts_accept() --taken--> answered
 *      a question is over --> the message says what was chosen --> pages
 *
 * The latter is done again after a restart that came before it. */
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/prompts.h"
#include "platform/web/web_priv.h"

struct web_press { /* between prompts_accept() and its answer */
    struct list link;
    struct web *web; /* borrowed */
    struct http_id http;
};

static void press_free(struct web_press *x)
{
    list_remove(&x->link);
    free(x);
}

void web_presses_cancel(struct web *w)
{
    list_each (&w->presses, it, nxt)
        press_free(list_entry(it, struct web_press, link));
}

static const char *style_name(enum prompt_style s)
{
    static const char *const names[] = {[PROMPT_PLAIN] = "secondary",
                                        [PROMPT_PRIMARY] = "primary",
                                        [PROMPT_SUCCESS] = "success",
                                        [PROMPT_DANGER] = "danger"};

    return names[s];
}

static void write_prompt(struct buf *out, const struct prompt *q)
{
    struct jw j = jw_begin(out);

    jw_obj(&j);
    jw_kstr(&j, "id", str_of(q->id));
    jw_ki64(&j, "until", q->until_ms);
    jw_key(&j, "options");
    jw_arr(&j);
    for (size_t i = 0; i < q->n_options; i++) {
        jw_obj(&j);
        jw_kstr(&j, "id", str_of(q->options[i].id));
        jw_kstr(&j, "label", str_of(q->options[i].label));
        jw_kstr(&j, "style", str_of(style_name(q->options[i].style)));
        jw_end_obj(&j);
    }
    jw_end_arr(&j);
    jw_end_obj(&j);
}

void web_act_prompt(struct web *w, struct action_id id, const struct action_from *from,
                    const struct action *a)
{
    struct web_message m = {.from_agent = true, .text = a->content};
    struct buf prompt = BUF_INIT;
    char name[WEB_ID_CHARS + 1];

    if (prompt_wrong(a) != NULL) {
        host_fail(w->base.host, id, "%s", prompt_wrong(a));
        return;
    }
    m.id = m.rev = web_next(w);
    m.at_ms = clock_wall_ms(w->env->clock);
    write_prompt(&prompt, prompts_add(w->prompts, from, a, a->chat_id));
    m.prompt = buf_str(&prompt);
    web_id_format(m.id, name);
    prompts_shown(w->prompts, a->chat_id, a->prompt_id, str_make(name, WEB_ID_CHARS));
    w->counters.sent++;
    web_keep_send(w, a->chat_id, &m, id);
    buf_done(&prompt);
}

void web_prompt_over(struct platform *p, struct prompt *q)
{
    if (q->chosen != NULL)
        web_keep_choice(container_of(p, struct web, base), q);
    else
        prompts_tidied(q, 0); /* pages know when its time is up */
}

/* ---- a press ---- */

static void on_accepted(void *ctx, enum bh_err err)
{
    struct web_press *x = ctx;

    if (err == BH_OK)
        http_answer(x->web->env->server, x->http,
                    &(struct http_answer){.status = 200, .body = STR("{\"ok\":true}")});
    else
        web_post_refuse(x->web, x->http, err);
    press_free(x);
}

static void take(struct web *w, struct http_id http, const struct web_visitor *v, struct prompt *q,
                 const struct prompt_option *o)
{
    struct str chat = str_make(v->chat_id, VISITOR_CHAT_CHARS);
    struct web_press *x = xcalloc(1, sizeof *x);
    char made[16];
    struct event ev = {.platform = STR("web"),
                       .bot = web_bot(w),
                       .route_key = web_bot(w),
                       .chat_id = chat,
                       .chat_type = STR("dm"),
                       .user_id = chat,
                       .message_id = str_of(q->message_id)};

    *x = (struct web_press){.web = w, .http = http};
    list_init(&x->link);
    list_append(&w->presses, &x->link);
    ev.user_name = ev.chat_name = web_name_of(w, chat, made);
    w->base.last_event_ms = clock_wall_ms(w->env->clock);
    if (prompt_may_answer(q, &ev)) {
        prompts_accept(q, o, &ev, on_accepted, x);
        return;
    }
    http_answer_error(w->env->server, http, 403, "not_yours", "This question is not for you.");
    press_free(x);
}

void web_post_press(struct web *w, struct http_req *req, const struct web_visitor *v)
{
    struct http_id id = http_req_id(req);
    const struct prompt_option *o = NULL;
    struct buf token = BUF_INIT;
    struct prompt *q = NULL;
    struct json doc;

    if (!json_parse(w->json, http_body(req), &doc) || json_str(doc, "prompt").p == NULL ||
        json_str(doc, "option").p == NULL) {
        http_answer_error(w->env->server, id, 400, "bad_json",
                          "The body must be {\"prompt\": \"...\", \"option\": \"...\"}.");
        return;
    }
    if (!web_may_write_now(w, str_of(v->chat_id), v->is_person)) {
        web_refuse_for_now(w, id, 429, "rate_limited",
                           "You are writing faster than this chat can take. Wait a moment.", 1);
        return;
    }
    buf_printf(&token, "hp1:%.*s:%.*s", STR_FMT(json_str(doc, "prompt")),
               STR_FMT(json_str(doc, "option")));
    q = prompts_pressed(w->prompts, str_of(v->chat_id), buf_str(&token), &o);
    buf_done(&token);
    if (q != NULL)
        take(w, id, v, q, o);
    else
        http_answer_error(w->env->server, id, 409, "answered",
                          "This was answered already, or its time is up.");
}
