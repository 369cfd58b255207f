/* press.c - questions with buttons: how they look, and what a press of one means.  (discord_priv.h
 * has the calls.)
 *
 * A press is answered by changing the message that asked: every button is disabled, and the one
 * that was chosen stands out.  That answer may be lost or late, so the message is changed by a
 * request of its own too; when its time is up, that takes the buttons away.  Whoever may not
 * answer, or comes too late, is told so alone. */
#include <inttypes.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"
#include "platform/discord/interaction.h"
#include "platform/prompts.h"

enum { ACTION_ROW = 1, BUTTON = 2, IN_A_ROW = 5 };

#define OVER \
    STR("{\"type\":4,\"data\":{\"content\":" \
        "\"This was answered already, or its time is up.\",\"flags\":64}}")
#define NOT_YOURS \
    STR("{\"type\":4,\"data\":{\"content\":\"This question is not for you.\",\"flags\":64}}")

/* Discord's numbers: 1 blurple, 2 grey, 3 green, 4 red. */
static int style_of(enum prompt_style style)
{
    static const int numbers[] = {
        [PROMPT_PLAIN] = 2, [PROMPT_PRIMARY] = 1, [PROMPT_SUCCESS] = 3, [PROMPT_DANGER] = 4};

    return numbers[style];
}

static void write_button(struct jw *w, const struct prompt *q, const struct prompt_option *o,
                         const struct prompt_option *chosen)
{
    char token[PROMPT_TOKEN_MAX + 1];
    int style = o == chosen && o->style != PROMPT_DANGER ? style_of(PROMPT_SUCCESS)
                : chosen != NULL && o != chosen          ? style_of(PROMPT_PLAIN)
                                                         : style_of(o->style);

    prompt_token(token, q, o);
    jw_obj(w);
    jw_ki64(w, "type", BUTTON);
    jw_ki64(w, "style", style);
    jw_kstr(w, "label", str_of(o->label));
    jw_kstr(w, "custom_id", str_of(token));
    if (chosen != NULL)
        jw_kbool(w, "disabled", true);
    jw_end_obj(w);
}

void discord_write_buttons(struct buf *out, const struct prompt *q,
                           const struct prompt_option *chosen)
{
    struct jw w = jw_begin(out);

    jw_arr(&w);
    for (size_t i = 0; i < q->n_options; i++) {
        if (i % IN_A_ROW == 0) {
            jw_obj(&w);
            jw_ki64(&w, "type", ACTION_ROW);
            jw_key(&w, "components");
            jw_arr(&w);
        }
        write_button(&w, q, &q->options[i], chosen);
        if (i % IN_A_ROW == IN_A_ROW - 1 || i + 1 == q->n_options) {
            jw_end_arr(&w);
            jw_end_obj(&w);
        }
    }
    jw_end_arr(&w);
}

static void on_tidied(void *ctx, const struct discord_told *t)
{
    prompts_tidied(ctx, t->end == SENDER_DONE || t->end == SENDER_REFUSED ? 0 : 1);
}

void discord_prompt_over(struct platform *p, struct prompt *q)
{
    struct discord *d = discord_of(p);
    struct buf path = BUF_INIT, body = BUF_INIT;
    uint64_t channel = snowflake(str_of(q->chat)), message = snowflake(str_of(q->message_id));

    buf_printf(&path, "/channels/%" PRIu64 "/messages/%" PRIu64, channel, message);
    buf_add_z(&body, "{\"components\":");
    if (q->chosen != NULL)
        discord_write_buttons(&body, q, q->chosen);
    else
        buf_add_z(&body, "[]");
    buf_add_z(&body, "}");
    discord_ask(d,
                &(struct discord_question){.method = "PATCH",
                                           .route = "edit",
                                           .major = channel,
                                           .path = buf_str(&path),
                                           .body = buf_str(&body),
                                           .tenant = str_of(q->tenant),
                                           .lane = buf_str(&path)},
                on_tidied, q);
    buf_done(&path);
    buf_done(&body);
}

bool discord_press(struct discord *d, struct discord_interaction *x, const struct discord_asker *to)
{
    struct str payload = json_str(json_get(x->body, "data"), "custom_id");
    const struct prompt_option *o = NULL;
    struct buf good = BUF_INIT;
    struct event ev;

    if (x->type != INTERACTION_COMPONENT || !prompt_is_token(payload))
        return false;
    discord_interaction_as_message(x, str_of(d->base.bot), STR(""), &ev);
    ev.event_id = STR_NULL;
    ev.press.message_id = json_str(json_get(x->body, "message"), "id");
    if (ev.press.message_id.n > 0)
        ev.message_id = ev.press.message_id;
    struct prompt *q = prompts_pressed(d->prompts, x->channel_id, payload, &o);
    if (q == NULL) {
        discord_answer(d, to, OVER);
    } else if (!prompt_may_answer(q, &ev)) {
        discord_answer(d, to, NOT_YOURS);
    } else {
        buf_add_z(&good, "{\"type\":7,\"data\":{\"components\":");
        discord_write_buttons(&good, q, o);
        buf_add_z(&good, "}}");
        discord_answer_press(d, to, &ev,
                             &(struct discord_pressed){.prompt = q,
                                                       .option = o,
                                                       .good = buf_str(&good)});
    }
    buf_done(&good);
    return true;
}
