/* interactions.c - buttons, forms, shortcuts and slash commands.  (slack_priv.h has the calls.)
 *
 *      press on a button of bellhop's --> the question's instance, as its answer
 *      slash command --> a message of the person: "/stop", "/link CODE", "/hermes TEXT"
 *      any other interaction --> forwarded without its credentials (response_url, token)
 *
 * Slack wants 200 within three seconds, and gets it once the event is safe.  A person who may not
 * answer a question, or comes too late, gets a message that only they see.  A question that is over
 * loses its buttons: its message is read from Slack, and written again without them, because an
 * edit replaces all blocks. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "core/frame.h"
#include "edge/sanitize.h"
#include "platform/slack/slack_priv.h"

enum { LABEL_CHARS = 75, TIDY_MS = 30000 };

/* ---- buttons ---- */

static void write_label(struct jw *w, struct str label)
{
    size_t n = 0, chars = 0;

    while (n < label.n && chars < LABEL_CHARS) {
        size_t one = utf8_seq_bytes(str_skip(label, n));
        n += one > 0 ? one : 1;
        chars += one == 4 ? 2 : 1;
    }
    jw_kobj(w, "text");
    jw_kstr(w, "type", STR("plain_text"));
    jw_kstr(w, "text", str_make(label.p, n < label.n ? n : label.n));
    jw_kbool(w, "emoji", true);
    jw_end_obj(w);
}

void slack_write_buttons(struct jw *w, const struct prompt *q)
{
    char token[PROMPT_TOKEN_MAX + 1], id[32];

    jw_obj(w);
    jw_kstr(w, "type", STR("actions"));
    jw_karr(w, "elements");
    for (size_t i = 0; i < q->n_options; i++) {
        const struct prompt_option *o = &q->options[i];
        prompt_token(token, q, o);
        snprintf(id, sizeof id, "bellhop_%zu", i);
        jw_obj(w);
        jw_kstr(w, "type", STR("button"));
        jw_kstr(w, "action_id", str_of(id));
        jw_kstr(w, "value", str_of(token));
        write_label(w, str_of(o->label));
        if (o->style == PROMPT_DANGER)
            jw_kstr(w, "style", STR("danger"));
        else if (o->style != PROMPT_PLAIN)
            jw_kstr(w, "style", STR("primary"));
        jw_end_obj(w);
    }
    jw_end_arr(w);
    jw_end_obj(w);
}

/* ---- a question that is over ---- */

struct tidying {
    struct slack_team *team; /* borrowed */
    struct prompt *q;        /* borrowed */
};

static void ask(const struct tidying *t, enum slack_method m, struct str body, sender_told_cb *told)
{
    struct tidying *copy = xmalloc(sizeof *copy);

    *copy = *t;
    slack_ask(t->team, m, body,
              &(struct sender_question){.lane = str_of(t->q->message_id),
                                        .tenant = str_of(t->q->tenant),
                                        .patience_ms = TIDY_MS,
                                        .told = told,
                                        .ctx = copy,
                                        .owns_ctx = true});
}

static void on_updated(void *ctx, const struct sender_verdict *v)
{
    bool over = v->end == SENDER_DONE || v->end == SENDER_REFUSED;

    prompts_tidied(((const struct tidying *)ctx)->q, over ? 0 : 1);
}

static void write_without_buttons(struct jw *w, const struct prompt *q, struct json message)
{
    jw_kstr(w, "text", json_str(message, "text"));
    jw_karr(w, "blocks");
    for (struct json_iter it = {0}; json_next(json_get(message, "blocks"), &it);)
        if (!str_eq(json_str(it.value, "type"), STR("actions")))
            jw_value(w, it.value);
    if (q->chosen != NULL) {
        BUF_LOCAL label = BUF_INIT;
        buf_printf(&label, "\xe2\x9c\x94 %s", q->chosen->label);
        jw_obj(w);
        jw_kstr(w, "type", STR("context"));
        jw_karr(w, "elements");
        jw_obj(w);
        jw_kstr(w, "type", STR("plain_text"));
        jw_kstr(w, "text", buf_str(&label));
        jw_end_obj(w);
        jw_end_arr(w);
        jw_end_obj(w);
    }
    jw_end_arr(w);
    jw_kstr(w, "parse", STR("none"));
}

static void on_message(void *ctx, const struct sender_verdict *v)
{
    const struct tidying *t = ctx;
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json message = {0};

    for (struct json_iter it = {0}; json_next(json_get(v->answer, "messages"), &it);)
        if (str_eq(json_str(it.value, "ts"), str_of(t->q->message_id)))
            message = it.value;
    if (!json_is_object(message)) { /* nothing to update, or not read */
        on_updated(ctx, v);
        return;
    }
    jw_obj(&w);
    jw_kstr(&w, "channel", str_of(t->q->chat));
    jw_kstr(&w, "ts", str_of(t->q->message_id));
    write_without_buttons(&w, t->q, message);
    jw_end_obj(&w);
    ask(t, SLACK_UPDATE, buf_str(&body), on_updated);
}

void slack_prompt_over(struct platform *p, struct prompt *q)
{
    struct slack *s = slack_of(p);
    const struct slack_chat *c = lru_find(&s->chats, str_of(q->chat));
    struct slack_team *team = slack_team_find(s, c != NULL ? str_of(c->team) : STR_NULL);
    BUF_LOCAL body = BUF_INIT;

    if (team == NULL) {
        prompts_tidied(q, 0);
        return;
    }
    form_add(&body, "channel", str_of(q->chat));
    form_add(&body, "ts", str_of(q->message_id));
    form_add(&body, "oldest", str_of(q->message_id));
    form_add(&body, "latest", str_of(q->message_id));
    form_add(&body, "inclusive", STR("true"));
    form_add(&body, "limit", STR("15"));
    ask(&(struct tidying){.team = team, .q = q}, SLACK_REPLIES, buf_str(&body), on_message);
}

/* ---- a press ---- */

static void tell_privately(struct slack_team *team, const struct event *ev, struct str words)
{
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (team == NULL)
        return;
    jw_obj(&w);
    jw_kstr(&w, "channel", ev->chat_id);
    jw_kstr(&w, "user", ev->user_id);
    jw_kstr_opt(&w, "thread_ts", ev->thread_id);
    jw_kstr(&w, "text", words);
    jw_end_obj(&w);
    slack_ask(team, SLACK_EPHEMERAL, buf_str(&body),
              &(struct sender_question){.lane = ev->user_id});
}

static void take_press(struct slack *s, const struct slack_asker *to, struct slack_press *p)
{
    const struct prompt_option *o = NULL;
    struct slack_team *team = slack_team_find(s, p->team);
    struct prompt *q =
        prompts_pressed_under(s->base.prompts, p->ev.chat_id, p->value, p->ev.press.message_id, &o);

    s->n.presses++;
    slack_chat_get(s, p->ev.chat_id, p->team);
    if (q != NULL && prompt_may_answer(q, &p->ev)) {
        slack_accept(s, to, &(struct webhook_delivery){.ev = &p->ev, .prompt = q, .option = o},
                     STR_NULL);
        return;
    }
    tell_privately(team, &p->ev,
                   q != NULL ? STR("This question is not for you.")
                             : STR("This was answered already, or its time is up."));
    slack_reply(s, to, STR_NULL);
}

/* ---- everything else ---- */

static void on_target(void *ctx, struct str tenant, struct str instance)
{
    ++*(size_t *)ctx;
}

static void forward(struct slack *s, const struct slack_asker *to, struct json payload)
{
    BUF_LOCAL body = BUF_INIT, json = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct str team = json_str(json_get(payload, "team"), "id");
    struct slack_in in = slack_in_of(s, slack_team_find(s, team));
    size_t targets = 0;

    if (!slack_normalize_other(payload, &in, &s->arena, &s->out) || !sanitize_json(&w, payload)) {
        slack_refuse(s, to);
        return;
    }
    host_each_target(s->base.host, &s->out.ev, on_target, &targets);
    if (targets == 0) {
        s->base.n.ignored++;
        slack_reply(s, to, STR_NULL);
        return;
    }
    s->n.forwarded++;
    frame_write_forward(&json, &(struct forward){.platform = STR("slack"),
                                                 .bot = str_of(s->base.bot),
                                                 .method = STR("POST"),
                                                 .path = to->path,
                                                 .content_type = STR("application/json"),
                                                 .body = buf_str(&body)});
    slack_accept(s, to, &(struct webhook_delivery){.ev = &s->out.ev, .forward = buf_str(&json)},
                 STR_NULL);
}

void slack_take_interaction(struct slack *s, const struct slack_asker *to, struct json payload)
{
    struct slack_in in = slack_in_of(s, NULL);
    struct slack_press press;

    arena_reset(&s->arena);
    if (slack_normalize_press(payload, &in, &s->arena, &press) && prompt_is_token(press.value))
        take_press(s, to, &press);
    else
        forward(s, to, payload);
}

void slack_take_command(struct slack *s, const struct slack_asker *to, const struct form *f)
{
    struct slack_in in = slack_in_of(s, NULL);

    arena_reset(&s->arena);
    if (slack_normalize_command(f, &in, &s->arena, &s->out) != SLACK_EVENT) {
        slack_refuse(s, to);
        return;
    }
    s->n.commands++;
    slack_chat_get(s, s->out.ev.chat_id, s->out.team);
    slack_names_fill(s, slack_team_find(s, s->out.team), &s->out.ev);
    slack_accept(s, to, &(struct webhook_delivery){.ev = &s->out.ev}, STR_NULL);
}
