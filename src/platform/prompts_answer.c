/* prompts_answer.c - presses and numbers: what answers a question, and how the answer goes in.
 * (prompts.h has the contract.) */
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/prompts_priv.h"

static bool is_open(const struct prompt *q)
{
    return q->press == NULL && clock_wall_ms(q->of->env->clock) < q->until_ms;
}

struct prompt *prompts_pressed(struct prompts *ps, struct str chat, struct str token,
                               const struct prompt_option **ret_option)
{
    struct str id;

    if (!prompt_is_token(token))
        return NULL;
    token = str_skip(token, strlen(PROMPT_PREFIX));
    str_split(&token, ':', &id);
    struct prompt *q = prompt_find(ps, chat, id);
    for (size_t i = 0; q != NULL && is_open(q) && i < q->n_options; i++)
        if (str_eq(str_of(q->options[i].id), token)) {
            *ret_option = &q->options[i];
            return q;
        }
    return NULL;
}

struct prompt *prompts_numbered(struct prompts *ps, struct str chat, struct str text,
                                const struct prompt_option **ret_option)
{
    const struct prompt_chat *c = map_get(&ps->chats, chat);
    uint64_t number;

    if (c == NULL || !str_to_u64(str_trim(text), &number) || number == 0)
        return NULL;
    struct prompt *q = list_entry(c->prompts.prev, struct prompt, in_chat);
    if (!q->shown || !is_open(q) || number > q->n_options)
        return NULL;
    *ret_option = &q->options[number - 1];
    return q;
}

const struct prompt *prompts_of_message(const struct prompts *ps, struct str chat,
                                        struct str message_id)
{
    struct prompt_chat *c = map_get(&ps->chats, chat);

    if (c == NULL)
        return NULL;
    list_each (&c->prompts, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, in_chat);
        if (q->message_id != NULL && str_eq(str_of(q->message_id), message_id))
            return q;
    }
    return NULL;
}

/* The answer as an event: @room holds its text, @name its name. */
static void fill(const struct prompt *q, const struct prompt_option *o, struct event *ev,
                 struct buf *room, struct buf *name)
{
    struct str asked = q->message_id != NULL ? str_of(q->message_id) : ev->press.message_id;

    buf_printf(room, "/%s", o->id);
    buf_printf(name, "%s:%.*s:%s", q->chat, STR_FMT(asked.n > 0 ? asked : STR("")), q->id);
    ev->text = buf_str(room);
    if (str_is_empty(ev->event_id)) /* a number is a message, and has a name */
        ev->event_id = buf_str(name);
    ev->message_type = STR("command");
    ev->press.prompt_id = str_of(q->id);
    ev->press.option_id = str_of(o->id);
    ev->press.label = str_of(o->label);
    if (asked.n > 0)
        ev->press.message_id = asked;
    ev->mentions_bot = true;
    ev->only_tenant = str_of(q->tenant);
    ev->only_instance = str_of(q->instance);
    ev->media = NULL;
    ev->n_media = 0;
}

static void count_target(void *ctx, struct str tenant, struct str instance)
{
    ++*(size_t *)ctx;
}

bool prompt_may_answer(const struct prompt *q, const struct event *ev)
{
    struct buf text = BUF_INIT, name = BUF_INIT;
    struct event answer = *ev;
    size_t n = 0;

    fill(q, &q->options[0], &answer, &text, &name);
    host_each_target(q->of->p->host, &answer, count_target, &n);
    buf_done(&text);
    buf_done(&name);
    return n > 0;
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct prompt_press x = *(struct prompt_press *)ctx;

    list_remove(&((struct prompt_press *)ctx)->link);
    free(ctx);
    if (x.q != NULL)
        x.q->press = NULL;
    if (x.q != NULL && err == BH_OK) {
        x.q->chosen = x.option;
        prompt_end(x.q);
    }
    x.done(x.ctx, err);
}

struct accept_id prompts_accept(struct prompt *q, const struct prompt_option *o,
                                const struct event *ev, accepted_cb *done, void *ctx)
{
    struct prompts *ps = q->of;
    struct prompt_press *x = xcalloc(1, sizeof *x);
    struct buf text = BUF_INIT, name = BUF_INIT;
    struct event answer = *ev;

    *x = (struct prompt_press){.of = ps, .done = done, .ctx = ctx};
    list_init(&x->link);
    list_append(&ps->presses, &x->link);
    assert(q->press == NULL);
    x->q = q;
    x->option = o;
    q->press = x;
    fill(q, o, &answer, &text, &name);
    x->accept = host_accept(ps->p->host, ps->p, &answer, on_accepted, x);
    buf_done(&text);
    buf_done(&name);
    return x->accept;
}
