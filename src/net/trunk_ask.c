/* trunk_ask.c - questions over a trunk: the keeper has a porter do something on its machine.
 *
 *      keeper --QUESTION: a part--> ... --ASK: the last part--> porter: on_ask()
 *             --UNASK: never mind-->                            on_unask()
 *             <--ANSWER: a part-- ... <--TOLD: the last part--  trunk_tell()
 *
 * Their numbers are the keeper's and have nothing to do with those of connections. */
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"
#include "net/trunk_priv.h"

enum { MAX_ASKS = 256 }; /* under way on one trunk: they are looked for one by one */

struct trunk_ask {    /* at the keeper */
    struct list link; /* trunk->asks, until it is told or lost */
    struct clock *clock;
    struct trunk *trunk; /* borrowed; NULL: told, or lost */
    struct buf answer;
    struct timer told; /* nobody is called from within a read */
    trunk_told_cb *done;
    void *ctx;
    uint32_t number;
    bool lost;
};

struct question {     /* at the porter, until it is whole */
    struct list link; /* trunk->asks */
    uint32_t number;
    struct buf text;
};

static void send_parts(struct trunk *t, uint32_t number, enum trunk_what part, enum trunk_what last,
                       struct str text)
{
    for (; text.n > TRUNK_MAX_PAYLOAD; text = str_skip(text, TRUNK_MAX_PAYLOAD))
        trunk_send(t, number, part, str_make(text.p, TRUNK_MAX_PAYLOAD));
    trunk_send(t, number, last, text);
}

/* ---- the keeper ---- */

/* A porter's name is node_owner(): what is before the slash is the node's. */
static struct str node_of(const struct trunk *t)
{
    struct str name = STR_NULL, rest = str_of(t->other);

    if (t->up && !t->lost)
        str_split(&rest, '/', &name);
    return name;
}

static struct trunk *trunk_of(const struct http_server *s, struct str node)
{
    list_each (&s->trunks, it, nxt)
        if (str_eq(node_of(list_entry(it, struct trunk, link)), node))
            return list_entry(it, struct trunk, link);
    return NULL;
}

void trunk_each(const struct http_server *s, trunk_each_cb *cb, void *ctx)
{
    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        if (node_of(t).p != NULL)
            cb(ctx, node_of(t), t->n_carried);
    }
}

bool trunk_reaches(const struct http_server *s, struct str node)
{
    return trunk_of(s, node) != NULL;
}

static void on_told(struct timer *timer)
{
    struct trunk_ask *a = container_of(timer, struct trunk_ask, told);

    a->done(a->ctx, a->lost ? STR_NULL : buf_str(&a->answer));
    buf_done(&a->answer);
    free(a);
}

static void end_ask(struct trunk_ask *a, bool lost)
{
    list_remove(&a->link);
    a->trunk->n_asks--;
    a->trunk = NULL;
    a->lost = lost;
    timer_set(a->clock, &a->told, 0);
}

struct trunk_ask *trunk_ask(struct http_server *s, struct str node, struct str question,
                            trunk_told_cb *done, void *ctx)
{
    struct trunk *t = trunk_of(s, node);
    struct trunk_ask *a;

    if (t == NULL || trunk_is_full(t) || t->n_asks >= MAX_ASKS || question.n > TRUNK_MAX_QUESTION)
        return NULL;
    a = xcalloc(1, sizeof *a);
    *a = (struct trunk_ask){
        .clock = s->clock, .trunk = t, .done = done, .ctx = ctx, .number = ++t->last_ask};
    timer_init(&a->told, on_told);
    list_append(&t->asks, &a->link);
    t->n_asks++;
    send_parts(t, a->number, TRUNK_QUESTION, TRUNK_ASK, question);
    return a;
}

bool trunk_say(struct http_server *s, struct str node, struct str words)
{
    struct trunk *t = trunk_of(s, node);

    if (t != NULL)
        send_parts(t, 0, TRUNK_QUESTION, TRUNK_ASK, words); /* no ask has this number */
    return t != NULL;
}

void trunk_ask_cancel(struct trunk_ask **a)
{
    struct trunk_ask *is = *a;

    *a = NULL;
    if (is == NULL)
        return;
    if (is->trunk != NULL) {
        trunk_send(is->trunk, is->number, TRUNK_UNASK, STR_NULL);
        is->trunk->n_asks--;
    }
    list_remove(&is->link);
    timer_stop(is->clock, &is->told);
    buf_done(&is->answer);
    free(is);
}

void trunk_take_answer(struct trunk *t, const struct trunk_frame *f)
{
    list_each (&t->asks, it, nxt) {
        struct trunk_ask *a = list_entry(it, struct trunk_ask, link);
        if (a->number != f->number)
            continue;
        buf_add_str(&a->answer, f->payload);
        if (a->answer.n > TRUNK_MAX_QUESTION)
            trunk_fail(t, "an answer is too long");
        else if (f->what == TRUNK_TOLD)
            end_ask(a, false);
        return;
    } /* else nobody waits for it any more */
}

void trunk_lose_asks(struct trunk *t)
{
    list_each (&t->asks, it, nxt)
        end_ask(list_entry(it, struct trunk_ask, link), true);
}

/* ---- the porter ---- */

static void question_free(struct question *q)
{
    list_remove(&q->link);
    buf_done(&q->text);
    free(q);
}

void trunk_drop_questions(struct trunk *t)
{
    list_each (&t->asks, it, nxt)
        question_free(list_entry(it, struct question, link));
}

static struct question *question_of(struct trunk *t, uint32_t number)
{
    struct question *q;
    size_t n = 0;

    list_each (&t->asks, it, nxt) {
        if (list_entry(it, struct question, link)->number == number)
            return list_entry(it, struct question, link);
        n++;
    }
    if (n >= MAX_ASKS)
        return NULL;
    q = xcalloc(1, sizeof *q);
    q->number = number;
    list_append(&t->asks, &q->link);
    return q;
}

static void take_part(struct trunk *t, const struct trunk_frame *f)
{
    struct question *q = question_of(t, f->number);

    if (q == NULL || q->text.n + f->payload.n > TRUNK_MAX_QUESTION) {
        trunk_fail(t, "a question is too long");
        return;
    }
    buf_add_str(&q->text, f->payload);
    if (f->what != TRUNK_ASK)
        return;
    if (t->handlers.on_ask != NULL)
        t->handlers.on_ask(t->ctx, f->number, buf_str(&q->text));
    question_free(q);
}

void trunk_take_question(struct trunk *t, const struct trunk_frame *f)
{
    if (f->what == TRUNK_QUESTION || f->what == TRUNK_ASK)
        take_part(t, f);
    else if (f->what == TRUNK_UNASK && t->handlers.on_unask != NULL)
        t->handlers.on_unask(t->ctx, f->number);
}

void trunk_tell(struct trunk *t, uint32_t number, struct str answer)
{
    assert(answer.n <= TRUNK_MAX_QUESTION);
    if (trunk_is_up(t))
        send_parts(t, number, TRUNK_ANSWER, TRUNK_TOLD, answer);
}
