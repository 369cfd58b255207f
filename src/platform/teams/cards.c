/* cards.c - questions as Adaptive Cards, and presses on their buttons.  (teams_priv.h has the
 * calls.)
 *
 *      press: an invoke, which wants its answer now --> the question's instance --safe--> a card
 *             or a message with a value, from old clients                           without buttons
 *
 * A button is Action.Execute; a client that does not know it takes its fallback, Action.Submit.
 * The answer to the invoke replaces the card for the person who pressed.  prompt_over() then
 * edits the message, for everybody. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_server.h"
#include "platform/teams/teams_priv.h"

#define CARD_TYPE STR("application/vnd.microsoft.card.adaptive")
#define MESSAGE_TYPE STR("application/vnd.microsoft.activity.message")

enum { TIDY_MS = 30000 };

/* ---- cards ---- */

static void write_block(struct jw *w, struct str text, bool subtle)
{
    jw_obj(w);
    jw_kstr(w, "type", STR("TextBlock"));
    jw_kstr(w, "text", text);
    jw_kbool(w, "wrap", true);
    if (subtle)
        jw_kbool(w, "isSubtle", true);
    jw_end_obj(w);
}

static void write_data(struct jw *w, const char *token)
{
    jw_kobj(w, "data");
    jw_kobj(w, "bellhop");
    jw_kstr(w, "press", str_of(token));
    jw_end_obj(w);
    jw_end_obj(w);
}

static void write_button(struct jw *w, const struct prompt *q, const struct prompt_option *o)
{
    char token[PROMPT_TOKEN_MAX + 1];
    struct str style = o->style == PROMPT_DANGER  ? STR("destructive")
                       : o->style != PROMPT_PLAIN ? STR("positive")
                                                  : STR("default");

    prompt_token(token, q, o);
    jw_obj(w);
    jw_kstr(w, "type", STR("Action.Execute"));
    jw_kstr(w, "verb", STR("bellhop"));
    jw_kstr(w, "title", str_of(o->label));
    jw_kstr(w, "style", style);
    write_data(w, token);
    jw_kobj(w, "fallback");
    jw_kstr(w, "type", STR("Action.Submit"));
    jw_kstr(w, "title", str_of(o->label));
    write_data(w, token);
    jw_end_obj(w);
    jw_end_obj(w);
}

/* Teams shows six actions of a set, so buttons come in sets of that size. */
static void write_card(struct jw *w, struct str text, const struct prompt *q, bool open,
                       const struct prompt_option *chosen)
{
    enum { IN_A_SET = 6 };
    BUF_LOCAL label = BUF_INIT;

    jw_obj(w);
    jw_kstr(w, "type", STR("AdaptiveCard"));
    jw_kstr(w, "$schema", STR("http://adaptivecards.io/schemas/adaptive-card.json"));
    jw_kstr(w, "version", STR("1.4"));
    jw_karr(w, "body");
    if (text.n > 0)
        write_block(w, text, false);
    for (size_t i = 0; open && i < q->n_options; i += IN_A_SET) {
        jw_obj(w);
        jw_kstr(w, "type", STR("ActionSet"));
        jw_karr(w, "actions");
        for (size_t k = i; k < q->n_options && k < i + IN_A_SET; k++)
            write_button(w, q, &q->options[k]);
        jw_end_arr(w);
        jw_end_obj(w);
    }
    if (!open && chosen != NULL)
        buf_printf(&label, "\xe2\x9c\x94 %s", chosen->label);
    else if (!open)
        buf_add_z(&label, "This question is not open any more.");
    if (!open)
        write_block(w, buf_str(&label), true);
    jw_end_arr(w);
    jw_end_obj(w);
}

void teams_write_question(struct jw *w, struct str text, const struct prompt *q, bool open)
{
    jw_obj(w);
    jw_kstr(w, "contentType", CARD_TYPE);
    jw_key(w, "content");
    write_card(w, text, q, open, q->chosen);
    jw_end_obj(w);
}

/* ---- presses ---- */

static void write_answer(struct buf *out, struct str type, struct str value_json)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_ki64(&w, "statusCode", 200);
    jw_kstr(&w, "type", type);
    jw_kraw(&w, "value", value_json);
    jw_end_obj(&w);
}

void teams_take_press(struct teams *t, struct http_id http)
{
    const struct prompt_option *o = NULL;
    const struct event *ev = &t->out.ev;
    struct prompt *q =
        prompts_pressed_under(t->base.prompts, ev->chat_id, t->out.press, ev->press.message_id, &o);
    BUF_LOCAL value = BUF_INIT, body = BUF_INIT;
    struct jw w = jw_begin(&value);

    t->n.presses++;
    if (q != NULL && prompt_may_answer(q, ev)) {
        const struct teams_card *card = teams_card_find(t, ev->chat_id, str_of(q->id));
        write_card(&w, card != NULL ? str_of(card->text) : STR_NULL, q, false, o);
        if (t->out.invoke)
            write_answer(&body, CARD_TYPE, buf_str(&value));
        else
            buf_add_z(&body, "{}");
        await_accept(&t->base, &(struct webhook_delivery){.ev = ev, .prompt = q, .option = o}, http,
                     &(struct http_answer){.status = 200, .body = buf_str(&body)}, TEAMS_INVOKE_MS);
        return;
    }
    jw_str(&w, q != NULL ? STR("This question is not for you.")
                         : STR("This was answered already, or its time is up."));
    if (t->out.invoke)
        write_answer(&body, MESSAGE_TYPE, buf_str(&value));
    teams_answer(t, http, t->out.invoke ? buf_str(&body) : STR_NULL);
}

/* ---- a question that is over ---- */

struct card_tidying {
    struct teams *t;  /* borrowed */
    struct prompt *q; /* borrowed */
};

static void on_tidied(void *ctx, const struct sender_verdict *v)
{
    const struct card_tidying *x = ctx;
    bool over = v->end == SENDER_DONE || v->end == SENDER_REFUSED;

    if (over)
        teams_card_over(x->t, str_of(x->q->chat), str_of(x->q->id));
    prompts_tidied(x->q, over ? 0 : 1);
}

void teams_prompt_over(struct platform *p, struct prompt *q)
{
    struct teams *t = teams_of(p);
    const struct teams_card *card = teams_card_find(t, str_of(q->chat), str_of(q->id));
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (q->message_id == NULL || !teams_is_id(str_of(q->message_id))) {
        prompts_tidied(q, 0);
        return;
    }
    struct str thread = card != NULL ? str_of(card->thread) : STR_NULL;
    struct card_tidying *x = xmalloc(sizeof *x);
    *x = (struct card_tidying){t, q};
    jw_obj(&w);
    teams_write_head(&w, t, STR("message"), str_of(q->chat), thread);
    jw_kstr(&w, "id", str_of(q->message_id));
    jw_karr(&w, "attachments");
    teams_write_question(&w, card != NULL ? str_of(card->text) : STR_NULL, q, false);
    jw_end_arr(&w);
    jw_end_obj(&w);
    teams_ask(t, str_of(q->chat), thread, str_of(q->message_id), buf_str(&body),
              &(struct sender_question){.lane = str_of(q->message_id),
                                        .tenant = str_of(q->tenant),
                                        .patience_ms = TIDY_MS,
                                        .told = on_tidied,
                                        .ctx = x,
                                        .owns_ctx = true});
}
