/* turn.c - the turns of backends with begin(): queue, timeouts, questions, repetition.
 *
 *      waiting --on_go--> RUNNING (begin) --turn_end()--> SHOWING (answer_finish) --> over, next
 *                            ^    '-- DIED, nothing said: begin() again
 *
 * A conversation has one turn at a time, until its answer is sent completely.  With --merge all
 * messages that waited are one turn.  A turn that is silent for --turn-timeout is cancelled; time
 * that a question is open does not count. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "agent/agent_priv.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "bellhop/gateway.h"

#define TYPING_FIRST_MS 1000
#define TYPING_EVERY_MS 2000
#define MAX_MERGED 32 /* messages of one turn */
#define MAX_ASKS 16   /* open questions of one turn */

struct agent_ask {
    struct list link; /* turn->asks */
    struct agent_turn *turn;
    char id[9]; /* of its prompt */
    size_t n_options;
    turn_answered_cb *done;
    void *ctx;
    int chosen;
    struct timer limit; /* the timeout; after an answer, the callback */
};

static timer_cb on_silence, on_typing, on_ask_over;

static struct agent *agent_of(const struct agent_turn *t)
{
    return t->conversation->agent;
}

static struct message *last_message(const struct agent_turn *t)
{
    return list_entry(t->messages.prev, struct message, link);
}

/* ---- the queue ---- */

void turn_add(struct conversation *c, struct message *m)
{
    list_append(&c->waiting, &m->link);
    turn_go(c);
}

static void finish_message(struct agent *a, struct message *m)
{
    list_remove(&m->link);
    m->over = true;
    message_done(a, m);
}

/* "/name rest" that the backend takes as a command. */
static bool obey(struct conversation *c, struct message *m)
{
    struct str rest = str_trim(str_make(m->ev->text, m->ev->text_bytes)), name;
    struct agent *a = c->agent;

    if (a->ops->command == NULL || !str_starts(rest, STR("/")))
        return false;
    rest = str_skip(rest, 1);
    str_split(&rest, ' ', &name);
    return a->ops->command(a->backend, m, name, str_trim(rest));
}

static void watch(struct agent_turn *t)
{
    if (agent_of(t)->opt->turn_ms > 0 && t->running)
        timer_set(agent_of(t)->clock, &t->silence, agent_of(t)->opt->turn_ms);
}

static void run(struct agent_turn *t)
{
    struct agent *a = agent_of(t);

    t->running = true;
    t->again = false;
    t->mine = NULL;
    watch(t);
    a->ops->begin(a->backend, t);
}

void turn_go(struct conversation *c)
{
    struct agent *a = c->agent;

    if (!agent_may_hand_over(a))
        return;
    if (c->turn != NULL) {
        if (c->turn->again)
            run(c->turn);
        return;
    }
    while (!list_is_empty(&c->waiting) && obey(c, list_first(&c->waiting, struct message, link)))
        finish_message(a, list_first(&c->waiting, struct message, link));
    if (list_is_empty(&c->waiting))
        return;
    struct agent_turn *t = xcalloc(1, sizeof *t);
    *t = (struct agent_turn){.conversation = c, .attempt = 1};
    list_init(&t->messages);
    list_init(&t->asks);
    timer_init(&t->silence, on_silence);
    timer_init(&t->typing, on_typing);
    size_t n = 0;
    do
        list_move(&list_first(&c->waiting, struct message, link)->link, &t->messages);
    while (a->opt->merge && ++n < MAX_MERGED && !list_is_empty(&c->waiting));
    t->answer = answer_new(t);
    c->turn = t;
    a->n_begun++;
    if (!a->opt->no_typing)
        timer_set(a->clock, &t->typing, TYPING_FIRST_MS);
    run(t);
}

/* Typing indicators keep the instance from looking idle to the connector during a long turn. */
static void on_typing(struct timer *timer)
{
    struct agent_turn *t = container_of(timer, struct agent_turn, typing);
    const struct bhgw_event *ev = last_message(t)->ev;

    bhgw_typing(agent_of(t)->gw, ev->chat_id, ev->answer_metadata);
    timer_set(agent_of(t)->clock, &t->typing, TYPING_EVERY_MS);
}

/* ---- questions ---- */

static void ask_free(struct agent_ask *q)
{
    struct agent *a = agent_of(q->turn);

    timer_stop(a->clock, &q->limit);
    map_del(&a->asks, str_of(q->id));
    list_remove(&q->link);
    free(q);
}

void ask_withdraw(struct agent_ask **ask)
{
    if (*ask != NULL)
        ask_free(*ask);
    *ask = NULL;
}

static void on_ask_over(struct timer *timer)
{
    struct agent_ask *q = container_of(timer, struct agent_ask, limit);
    turn_answered_cb *done = q->done;
    struct agent_turn *t = q->turn;
    void *ctx = q->ctx;
    int chosen = q->chosen;

    ask_free(q);
    if (list_is_empty(&t->asks))
        watch(t);
    done(ctx, chosen);
}

struct asked_prompt { /* lives until the connector has answered, which may be after the question */
    struct agent *agent;
    char id[9];
};

static void on_asked(void *ctx, const struct said *r)
{
    struct asked_prompt *sent = ctx;
    struct agent_ask *q = r != NULL ? map_get(&sent->agent->asks, str_of(sent->id)) : NULL;

    if (q != NULL && !r->success) {
        log_warn(NULL, "a question could not be asked: %s", r->error);
        timer_set(sent->agent->clock, &q->limit, 0);
    }
    free(sent);
}

static void write_question(struct buf *json, const struct agent_question *q, const char *id,
                           int64_t timeout_ms)
{
    struct jw w = jw_begin(json);

    jw_obj(&w);
    jw_kstr(&w, "op", STR("prompt"));
    jw_kstr(&w, "content", q->text);
    jw_kstr(&w, "prompt_id", str_of(id));
    jw_kstr(&w, "prompt_kind", STR("approval"));
    jw_kstr(&w, "deciders", STR("owners"));
    jw_ki64(&w, "timeout_s", timeout_ms / 1000 < 10 ? 10 : timeout_ms / 1000);
    jw_karr(&w, "options");
    for (size_t i = 0; i < q->n_options; i++) {
        char option[24];
        snprintf(option, sizeof option, "o%zu", i);
        jw_obj(&w);
        jw_kstr(&w, "id", str_of(option));
        jw_kstr(&w, "label", q->options[i].label);
        jw_kstr(&w, "style", q->options[i].yes ? STR("success") : STR("danger"));
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
}

struct agent_ask *turn_ask(struct agent_turn *t, const struct agent_question *q,
                           turn_answered_cb *done, void *ctx)
{
    struct agent *a = agent_of(t);
    struct rand rand = RAND_SYSTEM;
    BUF_LOCAL json = BUF_INIT;
    size_t open = 0;

    list_each (&t->asks, it, next)
        open++;
    if (open >= MAX_ASKS || q->n_options == 0 || q->n_options > TURN_MAX_OPTIONS || !t->running)
        return NULL;
    struct agent_ask *k = xcalloc(1, sizeof *k);
    *k = (struct agent_ask){
        .turn = t, .n_options = q->n_options, .done = done, .ctx = ctx, .chosen = -1};
    snprintf(k->id, sizeof k->id, "%08x", (unsigned)(rand_u64(&rand) & 0xffffffffu));
    timer_init(&k->limit, on_ask_over);
    timer_set(a->clock, &k->limit, a->opt->permission_ms);
    list_init(&k->link);
    list_append(&t->asks, &k->link);
    map_put(&a->asks, str_of(k->id), k);
    timer_stop(a->clock, &t->silence);
    t->asked = true;
    struct asked_prompt *sent = xcalloc(1, sizeof *sent);
    *sent = (struct asked_prompt){.agent = a};
    memcpy(sent->id, k->id, sizeof sent->id);
    write_question(&json, q, k->id, a->opt->permission_ms);
    conversation_order(t->conversation, buf_str(&json), last_message(t), on_asked, sent);
    return k;
}

bool turn_pressed(struct agent *a, const struct bhgw_event *ev)
{
    struct json doc, press;
    uint64_t option;

    if (strcmp(ev->message_type, "command") != 0 ||
        !json_parse(a->parser, str_make(ev->json, ev->json_bytes), &doc))
        return false;
    press = json_get(json_get(doc, "event"), "prompt_response");
    if (!json_is_object(press))
        return false;
    struct agent_ask *q = map_get(&a->asks, json_str(press, "prompt_id"));
    struct str id = json_str(press, "option_id");
    if (q == NULL || !str_starts(id, STR("o")) || !str_to_u64(str_skip(id, 1), &option) ||
        option >= q->n_options)
        return true; /* the question is over */
    q->chosen = (int)option;
    timer_set(a->clock, &q->limit, 0);
    return true;
}

/* ---- what the agent does ---- */

void turn_alive(struct agent_turn *t)
{
    if (list_is_empty(&t->asks))
        watch(t);
}

void turn_text(struct agent_turn *t, struct str more)
{
    turn_alive(t);
    answer_text(t->answer, more);
}

void turn_paragraph(struct agent_turn *t)
{
    answer_paragraph(t->answer);
}

void turn_progress(struct agent_turn *t, struct str line)
{
    turn_alive(t);
    if (agent_of(t)->opt->progress)
        answer_progress(t->answer, line);
}

static void cancel(struct agent_turn *t)
{
    t->cancelled = true;
    timer_stop(agent_of(t)->clock, &t->silence);
    agent_of(t)->ops->cancel(agent_of(t)->backend, t);
}

static void on_silence(struct timer *timer)
{
    struct agent_turn *t = container_of(timer, struct agent_turn, silence);

    log_warn(NULL, "no sign of the agent in %" PRId64 " ms: cancelling the turn: session_key=%s",
             agent_of(t)->opt->turn_ms, t->conversation->key);
    t->late = true;
    cancel(t);
}

void turn_stop(struct conversation *c)
{
    struct agent_turn *t = c->turn;

    if (t != NULL && t->running && !t->cancelled)
        cancel(t);
    else if (t != NULL && t->again) /* between two attempts */
        turn_end(t, TURN_CANCELLED, NULL);
}

/* ---- the end ---- */

static void withdraw_asks(struct agent_turn *t)
{
    list_each (&t->asks, it, next)
        ask_free(list_entry(it, struct agent_ask, link));
}

/* The sentence at the end of an answer that is not whole. */
static void tell_end(struct agent_turn *t, enum turn_end how, const char *why)
{
    bool said = answer_is_said(t->answer);
    BUF_LOCAL text = BUF_INIT;

    if (how == TURN_DONE)
        return;
    if (how == TURN_CANCELLED && t->late)
        buf_add_z(&text, "[The agent was silent for too long and was stopped.]");
    else if (how == TURN_CANCELLED)
        buf_add_z(&text, said ? "" : "Stopped.");
    else
        buf_printf(&text, "[The agent %s: %s]",
                   said || how == TURN_DIED ? "broke off" : "could not answer", why);
    answer_paragraph(t->answer);
    answer_text(t->answer, buf_str(&text));
}

void turn_end(struct agent_turn *t, enum turn_end how, const char *why)
{
    struct agent *a = agent_of(t);
    bool said = t->asked || answer_is_said(t->answer);

    t->running = t->again = false;
    timer_stop(a->clock, &t->silence);
    withdraw_asks(t);
    if (t->cancelled)
        how = TURN_CANCELLED;
    if (how == TURN_DIED && !said && t->attempt < TURN_MAX_ATTEMPTS && agent_may_hand_over(a)) {
        t->attempt++;
        t->again = true;
        timer_set(a->clock, &t->conversation->go, 0);
        return;
    }
    if (how == TURN_DIED && !said && !agent_may_hand_over(a) && answer_is_quiet(t->answer)) {
        turn_drop(t->conversation); /* shutting down: the connector keeps the messages */
        agent_moved(a);
        return;
    }
    tell_end(t, how, why);
    answer_finish(t->answer);
}

static void free_turn(struct agent_turn *t)
{
    struct agent *a = agent_of(t);

    withdraw_asks(t);
    timer_stop(a->clock, &t->silence);
    timer_stop(a->clock, &t->typing);
    answer_free(t->answer);
    t->conversation->turn = NULL;
    a->n_begun--;
    free(t);
}

void turn_shown(struct agent_turn *t)
{
    struct conversation *c = t->conversation;
    struct list messages;

    list_init(&messages);
    while (!list_is_empty(&t->messages))
        list_move(t->messages.next, &messages);
    free_turn(t);
    while (!list_is_empty(&messages))
        finish_message(c->agent, list_first(&messages, struct message, link));
    timer_set(c->agent->clock, &c->go, 0);
    agent_moved(c->agent);
}

/* Frees messages without acknowledging them, so the connector delivers them again. */
static void drop_messages(struct agent *a, struct list *messages)
{
    while (!list_is_empty(messages)) {
        struct message *m = list_first(messages, struct message, link);
        list_remove(&m->link);
        if (a->gw != NULL && !m->acked) /* after a rest it comes again */
            bhgw_release(a->gw, m->ev->delivery);
        m->acked = m->over = true;
        message_done(a, m);
    }
}

void turn_drop(struct conversation *c)
{
    struct agent_turn *t = c->turn;

    if (t != NULL) {
        timer_stop(c->agent->clock, &t->typing);
        drop_messages(c->agent, &t->messages);
        free_turn(t);
    }
    drop_messages(c->agent, &c->waiting);
}

void turn_leave(struct conversation *c)
{
    if (c->turn != NULL && c->turn->again)
        turn_drop(c);
}
