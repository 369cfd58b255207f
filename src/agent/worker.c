/* worker.c - one program and its turns.  (agent.h draws the life of a message.)
 *
 * When a program dies with a message in hand, the message returns to the front of the queue for the
 * next program.  Exceptions: the message was answered already, or a person interrupted it.  After
 * MAX_ATTEMPTS dead programs the message is given up, so one bad message cannot block the others.
 *
 * The worker checks the pipe to learn whether the program has read its line: right after writing,
 * then at growing intervals.  A webhook is over once it is read; an unread webhook goes to the next
 * program.
 *
 * An output line may name a message, a conversation or a chat; otherwise it belongs to the message
 * in hand.  An ambiguous line is dropped, so that it cannot reach the wrong chat. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

#include "agent/agent_priv.h"
#include "net/program.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "net/loop.h"

/* ---- finding the turn of an output line, and executing the line ---- */

static struct message *in_hand_by(struct worker *w, const struct order *o)
{
    struct message *found = NULL;

    list_each (&w->in_hand, it, next) {
        struct message *t = list_entry(it, struct message, link);
        if (o->id.p != NULL && !str_eq(o->id, str_of(t->ev->buffer_id)))
            continue;
        if (o->session_key.p != NULL && !str_eq(o->session_key, str_of(t->ev->session_key)))
            continue;
        if (o->chat_id.p != NULL && !str_eq(o->chat_id, str_of(t->ev->chat_id)))
            continue;
        if (found != NULL && found->conversation != t->conversation)
            return NULL; /* ambiguous */
        if (found == NULL)
            found = t;
    }
    return found;
}

/* The conversation of an order that belongs to no message in hand; NULL: unknown. */
static struct conversation *chat_of(struct worker *w, const struct order *o)
{
    struct agent *a = w->agent;

    if (o->session_key.p != NULL)
        return conversation_find(a, o->session_key);
    if (o->chat_id.p != NULL) {
        struct conversation *c = conversation_by_id(a, o->chat_id);
        return c != NULL ? c : conversation_get(a, o->chat_id);
    }
    return w->n_in_hand == 0 ? w->about : NULL;
}

/* Executes @o.  Returns the turn it belongs to; NULL: none in hand. */
static struct message *worker_obey(struct worker *w, const struct order *o)
{
    struct message *t = in_hand_by(w, o);
    struct conversation *c = t != NULL ? t->conversation : chat_of(w, o);

    if ((o->plain && str_is_empty(o->text)) || str_eq(o->op, STR("done")))
        return t;
    if (c == NULL) {
        log_warn(NULL,
                 "dropped a line of the program: it does not name its chat (\"session_key\" or "
                 "\"chat_id\")");
        return t;
    }
    if (t != NULL && order_is_answer(o))
        t->answered = true;
    conversation_say(c, o, t, w);
    return t;
}

/* ---- one program and its turns ---- */

#define MAX_ATTEMPTS 3
#define LOOK_MAX_MS 50
#define TYPING_FIRST_MS 1000
#define TYPING_EVERY_MS 2000
#define STEADY_MS 30000 /* running this long resets the failure count */

static void on_line(void *ctx, struct str line);
static void on_ended(void *ctx, bool well, const char *how);
static const struct program_ops ops = {.line = on_line, .ended = on_ended};
static void worker_go(struct worker *w);
static timer_cb on_restart, on_look, on_turn_limit, on_typing, on_idle;

static struct worker *worker_new(struct agent *a, struct conversation *c)
{
    struct worker *w = xcalloc(1, sizeof *w);

    *w = (struct worker){.agent = a, .conversation = c, .about = c};
    list_init(&w->link);
    list_init(&w->hungry);
    list_init(&w->waiting);
    list_init(&w->in_hand);
    list_init(&w->told);
    timer_init(&w->restart, on_restart);
    timer_init(&w->look, on_look);
    timer_init(&w->turn_limit, on_turn_limit);
    timer_init(&w->typing, on_typing);
    timer_init(&w->idle, on_idle);
    list_append(&a->workers, &w->link);
    if (c != NULL)
        c->worker = w;
    else
        timer_set(a->clock, &w->restart, 0); /* ready before the first message is */
    return w;
}

/* Frees turns without acknowledging them, so the connector delivers the messages again. */
static void free_turns(struct agent *a, struct list *turns)
{
    list_each (turns, it, next) {
        struct message *t = list_entry(it, struct message, link);
        list_remove(&t->link);
        t->acked = t->over = true;
        message_done(a, t);
    }
}

static void worker_free(struct worker *w)
{
    struct agent *a = w->agent;

    free_turns(a, &w->in_hand);
    free_turns(a, &w->told);
    free_turns(a, &w->waiting);
    list_each (&a->conversations, it, next)
        conversation_forget_worker(list_entry(it, struct conversation, link), w);
    struct timer *const timers[] = {&w->restart, &w->look, &w->turn_limit, &w->typing, &w->idle};
    for (size_t i = 0; i < ARRAY_LEN(timers); i++)
        timer_stop(a->clock, timers[i]);
    if (w->prog != NULL)
        a->n_running--;
    program_free(w->prog);
    list_remove(&w->hungry);
    list_remove(&w->link);
    free(w);
}

static bool worker_is_idle(const struct worker *w)
{
    return list_is_empty(&w->waiting) && list_is_empty(&w->in_hand) && list_is_empty(&w->told);
}

void worker_tell(struct worker *w, struct str line)
{
    if (w->prog != NULL)
        program_write(w->prog, line);
}

void workers_hold(struct agent *a, bool held)
{
    a->held = held;
    list_each (&a->workers, it, next) {
        struct worker *w = list_entry(it, struct worker, link);
        if (w->prog != NULL)
            program_hold(w->prog, held);
    }
}

static void worker_end(struct worker *w)
{
    if (w->prog != NULL)
        program_end(w->prog);
}

/* ---- starting ---- */

/* Ends the program that was idle longest, to free a program slot. */
static void make_room(struct agent *a)
{
    list_each (&a->workers, it, next) {
        struct worker *w = list_entry(it, struct worker, link);
        if (w->prog != NULL && worker_is_idle(w)) {
            worker_end(w);
            return;
        }
    }
}

/* True: the program runs. */
static bool start(struct worker *w)
{
    struct agent *a = w->agent;
    char why[256];

    if (w->prog != NULL)
        return true;
    if (timer_is_set(&w->restart))
        return false;
    if (a->opt->per_chat && a->n_running >= a->opt->max_programs) {
        if (!list_is_linked(&w->hungry))
            list_append(&a->hungry, &w->hungry);
        make_room(a);
        return false;
    }
    list_remove(&w->hungry);
    w->prog = program_start(a->loop, &(struct program_order){.argv = a->opt->argv, .envp = a->envp},
                            &ops, w, why);
    if (w->prog == NULL) {
        w->failures++;
        log_error(NULL, "cannot start %s; next try in %" PRId64 " ms", why,
                  restart_ms(w->failures));
        timer_set(a->clock, &w->restart, restart_ms(w->failures));
        return false;
    }
    program_hold(w->prog, a->held);
    w->started_ms = clock_now_ms(a->clock);
    a->n_running++;
    return true;
}

static void on_restart(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, restart);

    if (agent_may_hand_over(w->agent) && (w->conversation == NULL || !worker_is_idle(w)) &&
        start(w))
        worker_go(w);
}

/* ---- handing over ---- */

/* The line is written: start checking whether it was read. */
static void write_line(struct worker *w, struct message *t, struct str line)
{
    t->end = program_write(w->prog, line);
    w->about = t->conversation;
    w->looks = 0;
    timer_stop(w->agent->clock, &w->idle);
    timer_set(w->agent->clock, &w->look, 0);
}

/* A webhook needs no answer, so it does not count as in hand. */
static void pass_on(struct worker *w, struct message *t)
{
    list_move(&t->link, &w->told);
    write_line(w, t, str_of(t->forward));
}

static void hand_over(struct worker *w, struct message *t)
{
    struct agent *a = w->agent;
    struct buf line = BUF_INIT;

    list_move(&t->link, &w->in_hand);
    w->n_in_hand++;
    t->attempts++;
    t->taken = false;
    t->handed_ms = clock_now_ms(a->clock);
    line_message(&line, t->ev, t->attempts);
    write_line(w, t, buf_str(&line));
    buf_done(&line);
    if (a->opt->turn_ms > 0 && !timer_is_set(&w->turn_limit))
        timer_set(a->clock, &w->turn_limit, a->opt->turn_ms);
    if (!a->opt->no_typing && !timer_is_set(&w->typing))
        timer_set(a->clock, &w->typing, TYPING_FIRST_MS);
}

/* Typing indicators keep the instance from looking idle to the connector during a long turn. */
static void on_typing(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, typing);

    if (w->n_in_hand == 0)
        return;
    list_each (&w->in_hand, it, next) {
        const struct bhgw_event *ev = list_entry(it, struct message, link)->ev;
        bhgw_typing(w->agent->gw, ev->chat_id, ev->answer_metadata);
    }
    timer_set(w->agent->clock, &w->typing, TYPING_EVERY_MS);
}

static void worker_go(struct worker *w)
{
    struct agent *a = w->agent;

    if (list_is_empty(&w->waiting) || !agent_may_hand_over(a) || !start(w))
        return;
    while (w->n_in_hand < a->opt->window && !list_is_empty(&w->waiting)) {
        struct message *t = list_first(&w->waiting, struct message, link);
        (t->forward != NULL ? pass_on : hand_over)(w, t);
    }
    list_move(&w->link, &a->workers);
}

/* Marks the lines that the program has read. */
static void look(struct worker *w)
{
    uint64_t read = program_read(w->prog);

    list_each (&w->in_hand, it, next) {
        struct message *t = list_entry(it, struct message, link);
        if (t->taken || read < t->end)
            continue;
        t->taken = true;
        if (!w->agent->opt->ack_on_reply)
            message_settle(w->agent, t);
    }
    list_each (&w->told, it2, next2) {
        struct message *t = list_entry(it2, struct message, link);
        if (read < t->end)
            break; /* the others were written later */
        list_remove(&t->link);
        t->over = true;
        message_done(w->agent, t);
    }
}

/* An idle program of one chat stays for a while, or gives its slot to a waiting worker. */
static void rest(struct worker *w)
{
    struct agent *a = w->agent;

    if (worker_is_idle(w) && w->conversation != NULL && !timer_is_set(&w->idle))
        timer_set(a->clock, &w->idle, a->opt->chat_idle_ms);
    if (worker_is_idle(w) && !list_is_empty(&a->hungry))
        make_room(a);
}

static void on_look(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, look);

    if (w->prog == NULL)
        return;
    look(w);
    bool unread = !list_is_empty(&w->told);
    list_each (&w->in_hand, it, next)
        unread |= !list_entry(it, struct message, link)->taken;
    if (unread)
        timer_set(w->agent->clock, &w->look, w->looks < 6 ? (int64_t)1 << w->looks++ : LOOK_MAX_MS);
    else
        rest(w);
}

/* ---- the end of a turn ---- */

static void end_turn(struct worker *w, struct message *t)
{
    list_remove(&t->link);
    w->n_in_hand--;
    t->over = true;
    message_done(w->agent, t);
}

static void watch_turn(struct worker *w)
{
    struct agent *a = w->agent;

    timer_stop(a->clock, &w->turn_limit);
    if (w->n_in_hand > 0 && a->opt->turn_ms > 0) {
        struct message *oldest = list_first(&w->in_hand, struct message, link);
        timer_set(a->clock, &w->turn_limit,
                  oldest->handed_ms + a->opt->turn_ms - clock_now_ms(a->clock));
    }
}

static void finish_turn(struct worker *w, struct message *t)
{
    struct agent *a = w->agent;

    w->failures = 0;
    w->interrupted = false;
    end_turn(w, t);
    watch_turn(w);
    worker_go(w);
    rest(w);
    agent_moved(a);
}

/* Later output could belong to the abandoned turn, so the program is ended. */
static void on_turn_limit(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, turn_limit);

    log_warn(NULL, "no answer in %" PRId64 " ms: dropping the message, restarting the program",
             w->agent->opt->turn_ms);
    list_each (&w->in_hand, it, next)
        list_entry(it, struct message, link)->interrupted = true;
    if (w->prog != NULL)
        program_signal(w->prog, SIGKILL);
}

static void on_idle(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, idle);

    if (worker_is_idle(w))
        worker_end(w);
}

/* ---- lines ---- */

static void on_line(void *ctx, struct str line)
{
    struct worker *w = ctx;
    struct order o;

    order_read(w->agent->parser, line, &o);
    o.done = o.done || (o.plain && !w->agent->opt->until_done);
    struct message *t = worker_obey(w, &o);
    if (t != NULL && o.done) {
        look(w); /* notes what the program has read, before the turn ends */
        finish_turn(w, t);
    }
}

/* ---- interrupts ---- */

static void worker_interrupt(struct worker *w, const char *session_key, const char *chat_id)
{
    struct buf line = BUF_INIT;
    bool mine = false, others = false;

    if (w->prog == NULL)
        return;
    list_each (&w->in_hand, it, next) {
        struct message *t = list_entry(it, struct message, link);
        bool is = strcmp(t->ev->session_key, session_key) == 0;
        t->interrupted |= is;
        mine |= is;
        others |= !is;
    }
    line_interrupt(&line, session_key, chat_id);
    worker_tell(w, buf_str(&line));
    buf_done(&line);
    if (mine && !others) { /* a signal cannot name a chat */
        w->interrupted = true;
        program_signal(w->prog, SIGINT);
    }
}

/* ---- the end of a program ---- */

static void put_back(struct worker *w, struct message *t)
{
    list_remove(&t->link);
    list_add_before(w->waiting.next, &t->link);
}

/* Requeues or gives up a message whose program has died. */
static void bereave(struct worker *w, struct message *t, bool well)
{
    if (!t->taken) { /* the program never read it */
        t->attempts--;
    } else if (well || t->answered || t->interrupted) {
        end_turn(w, t);
        return;
    } else if (t->attempts >= MAX_ATTEMPTS) {
        log_error(NULL,
                  "the program died %u times over one message, which is dropped: "
                  "session_key=%s message_id=%s",
                  t->attempts, t->ev->session_key,
                  t->ev->message_id != NULL ? t->ev->message_id : "-");
        end_turn(w, t);
        return;
    }
    w->n_in_hand--;
    put_back(w, t);
}

static void after_end(struct worker *w)
{
    struct agent *a = w->agent;

    if (!list_is_empty(&a->hungry) && agent_may_hand_over(a))
        worker_go(list_entry(a->hungry.next, struct worker, hungry));
    if (!list_is_empty(&a->hungry))
        make_room(a);
    if (w->conversation != NULL && worker_is_idle(w)) {
        worker_free(w);
    } else if (w->failures > 0) {
        if (agent_may_hand_over(a))
            timer_set(a->clock, &w->restart, restart_ms(w->failures));
    } else {
        worker_go(w);
    }
    agent_moved(a);
}

static void on_ended(void *ctx, bool well, const char *how)
{
    struct worker *w = ctx;
    struct agent *a = w->agent;

    look(w);
    if (clock_now_ms(a->clock) - w->started_ms > STEADY_MS)
        w->failures = 0;
    w->failures = well || w->interrupted ? 0 : w->failures + 1;
    if (w->failures > 0 && agent_may_hand_over(a))
        log_warn(NULL,
                 "the program ended: %s; unfinished messages: %zu; restarting it in %" PRId64 " ms",
                 how, w->n_in_hand, restart_ms(w->failures));
    w->interrupted = false;
    timer_stop(a->clock, &w->turn_limit);
    timer_stop(a->clock, &w->look);
    /* Newest first, so that the front of the queue is in order. */
    while (!list_is_empty(&w->told))
        put_back(w, list_entry(w->told.prev, struct message, link));
    while (!list_is_empty(&w->in_hand))
        bereave(w, list_entry(w->in_hand.prev, struct message, link), well);
    program_free(w->prog);
    w->prog = NULL;
    a->n_running--;
    after_end(w);
}

/* ---- the backend of line programs ---- */

static struct backend *lines_open(struct agent *a, char *why)
{
    struct backend *b = xcalloc(1, sizeof *b);

    b->agent = a;
    if (!a->opt->per_chat)
        a->only = worker_new(a, NULL);
    return b;
}

static void lines_close(struct backend *b)
{
    list_each (&b->agent->workers, it, next)
        worker_free(list_entry(it, struct worker, link));
    free(b);
}

static void lines_take(struct backend *b, struct message *m)
{
    struct agent *a = b->agent;
    struct conversation *c = m->conversation;

    if (a->opt->per_chat && c->worker == NULL)
        worker_new(a, c);
    struct worker *w = a->opt->per_chat ? c->worker : a->only;
    list_append(&w->waiting, &m->link);
    worker_go(w);
}

static void lines_interrupt(struct backend *b, const char *session_key, const char *chat_id)
{
    struct agent *a = b->agent;
    struct conversation *c = conversation_find(a, str_of(session_key));
    struct worker *w = a->opt->per_chat ? (c != NULL ? c->worker : NULL) : a->only;

    if (w != NULL)
        worker_interrupt(w, session_key, chat_id);
}

static bool lines_are_busy(const struct backend *b)
{
    list_each (&b->agent->workers, it, next)
        if (list_entry(it, struct worker, link)->n_in_hand > 0)
            return true;
    return false;
}

static void lines_go(struct backend *b)
{
    list_each (&b->agent->workers, it, next)
        worker_go(list_entry(it, struct worker, link));
}

static void lines_end(struct backend *b)
{
    list_each (&b->agent->workers, it, next)
        worker_end(list_entry(it, struct worker, link));
}

static bool lines_are_ended(const struct backend *b)
{
    return b->agent->n_running == 0;
}

const struct backend_ops lines_backend = {
    .name = "lines",
    .open = lines_open,
    .close = lines_close,
    .take = lines_take,
    .interrupt = lines_interrupt,
    .is_busy = lines_are_busy,
    .go = lines_go,
    .end = lines_end,
    .is_ended = lines_are_ended,
};
