/* prompts.c - shows questions with buttons, and handles presses.  (telegram_priv.h has the calls.)
 *
 * Telegram expects an answer to every press, which stops the button's spinner; bellhop answers once
 * the press is stored.  An inline keyboard cannot be disabled, so an answered question keeps one
 * button with the choice, and an expired question keeps none.  A press whose payload is not
 * bellhop's is answered and dropped. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/prompts.h"
#include "platform/telegram/telegram_priv.h"

enum { ANSWER_MS = 10000, MAX_ANSWERS = 64, SHORT_LABEL = 16, CALLBACK_CHARS = 128 };

struct tg_answering { /* a request that answers a press, or ends a question */
    struct list link;
    struct telegram *t;     /* borrowed */
    struct prompt *q;       /* borrowed; NULL: a press */
    struct http_call *call; /* owned; NULL: ended */
};

/* ---- the keyboard ---- */

static void write_button(struct jw *w, struct str label, const char *token)
{
    jw_obj(w);
    jw_kstr(w, "text", label);
    jw_kstr(w, "callback_data", str_of(token));
    jw_end_obj(w);
}

/* Buttons per row: two if all labels are short. */
static size_t row_of(const struct prompt *q)
{
    for (size_t i = 0; i < q->n_options; i++)
        if (utf8_chars(str_of(q->options[i].label)) > SHORT_LABEL)
            return 1;
    return 2;
}

void tg_write_keyboard(struct buf *out, const struct prompt *q)
{
    struct jw w = jw_begin(out);
    char token[PROMPT_TOKEN_MAX + 1];
    size_t row = row_of(q);

    jw_obj(&w);
    jw_karr(&w, "inline_keyboard");
    for (size_t i = 0; i < q->n_options; i++) {
        if (i % row == 0)
            jw_arr(&w);
        prompt_token(token, q, &q->options[i]);
        write_button(&w, str_of(q->options[i].label), token);
        if (i % row == row - 1 || i + 1 == q->n_options)
            jw_end_arr(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
}

/* ---- telling Telegram ---- */

static void on_answered(void *ctx, const struct http_result *r)
{
    struct tg_answering *x = ctx;
    struct tg_answer a;

    x->call = NULL;
    list_remove(&x->link);
    x->t->n_answering--;
    if (x->q != NULL) { /* retry until the buttons are right; an answer to a press is not retried */
        tg_answer_read(x->t, x->t->base.answers, r, &a);
        bool final = a.outcome == TG_OK || a.outcome == TG_REFUSED;
        prompts_tidied(x->q, final ? 0 : a.outcome == TG_LATER ? a.retry_after_ms : 1);
    }
    free(x);
}

static void tell_telegram(struct telegram *t, const char *method, struct str body, struct prompt *q)
{
    struct tg_answering *x = xcalloc(1, sizeof *x);

    x->t = t;
    x->q = q;
    list_append(&t->answering, &x->link);
    t->n_answering++;
    x->call = tg_call(t, method, body, ANSWER_MS, on_answered, x);
}

void tg_answer_press(struct telegram *t, struct str callback, struct str words)
{
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (t->n_answering >= MAX_ANSWERS)
        return;
    jw_obj(&w);
    jw_kstr(&w, "callback_query_id", callback);
    if (words.n > 0)
        jw_kstr(&w, "text", words);
    jw_end_obj(&w);
    tell_telegram(t, "answerCallbackQuery", buf_str(&body), NULL);
}

void tg_prompt_over(struct platform *p, struct prompt *q)
{
    struct telegram *t = telegram_of(p);
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int64_t chat = 0, message_id = 0;

    str_to_i64(tg_chat_now(t, str_of(q->chat)), &chat);
    str_to_i64(str_of(q->message_id), &message_id);
    jw_obj(&w);
    jw_ki64(&w, "chat_id", chat);
    jw_ki64(&w, "message_id", message_id);
    jw_kobj(&w, "reply_markup");
    jw_karr(&w, "inline_keyboard");
    if (q->chosen != NULL) {
        char token[PROMPT_TOKEN_MAX + 1];
        BUF_LOCAL label = BUF_INIT;
        buf_printf(&label, "\xe2\x9c\x94 %s", q->chosen->label);
        prompt_token(token, q, q->chosen);
        jw_arr(&w);
        write_button(&w, buf_str(&label), token);
        jw_end_arr(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    tell_telegram(t, "editMessageReplyMarkup", buf_str(&body), q);
}

/* ---- a press ---- */

void tg_prompts_cancel(struct telegram *t)
{
    list_each (&t->answering, it, nxt) {
        struct tg_answering *x = list_entry(it, struct tg_answering, link);
        http_cancel(&x->call);
        list_remove(&x->link);
        free(x);
    }
}

struct pressed {
    tg_accepted_fn *done;
    uint64_t tag;
    char callback[CALLBACK_CHARS], label[4 * PROMPT_LABEL_CHARS + 1];
};

static void on_pressed(struct platform *p, void *with, enum bh_err err)
{
    const struct pressed *x = with;
    struct telegram *t = telegram_of(p);

    t->n.again += err != BH_OK;
    if (err == BH_OK)
        tg_answer_press(t, str_of(x->callback), str_of(x->label));
    x->done(t, x->tag, err);
}

bool tg_accept_press(struct telegram *t, struct json update, tg_accepted_fn *done, uint64_t tag)
{
    const struct prompt_option *o = NULL;
    struct tg_press p;

    arena_reset(&t->arena);
    if (!tg_normalize_press(update, str_of(t->base.bot), &t->arena, &p) || p.callback.n == 0 ||
        p.callback.n >= CALLBACK_CHARS) {
        t->base.n.ignored++;
        return false;
    }
    p.ev.former_key = tg_chat_before(t, p.ev.chat_id);
    struct prompt *q =
        prompts_pressed_under(t->base.prompts, p.ev.chat_id, p.data, p.ev.press.message_id, &o);
    if (q != NULL && prompt_may_answer(q, &p.ev)) {
        struct pressed pressed = {.done = done, .tag = tag};
        memcpy(pressed.callback, p.callback.p, p.callback.n);
        snprintf(pressed.label, sizeof pressed.label, "%s", o->label);
        await_event(&t->base, &(struct webhook_delivery){.ev = &p.ev, .prompt = q, .option = o},
                    &pressed, sizeof pressed, on_pressed);
        return true;
    }
    if (q != NULL)
        tg_answer_press(t, p.callback, STR("This question is not for you."));
    else
        tg_answer_press(t, p.callback,
                        prompt_is_token(p.data)
                            ? STR("This was answered already, or its time is up.")
                            : STR_NULL);
    return false;
}
