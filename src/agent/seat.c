/* seat.c - one program and the messages before it.  (agent.h draws the life of a message.)
 *
 * When it dies with a message in hand, the message goes back to the front of the queue and the next
 * program gets it, unless something was said about it already (it would be answered twice) or a
 * person interrupted it.  A message over which MAX_ATTEMPTS programs died is given up, so that one
 * bad message does not keep all others waiting for ever.
 *
 * "Taken" is asked of the pipe: right after writing, then at growing intervals. */
#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include "agent/desk.h"
#include "agent/program.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "net/loop.h"

#define MAX_ATTEMPTS 3
#define BACKOFF_MIN_MS 200
#define BACKOFF_MAX_MS 30000
#define LOOK_MAX_MS 50
#define TYPING_FIRST_MS 1000
#define TYPING_EVERY_MS 2000
#define STEADY_MS 30000 /* a program that lived so long starts with a clean record */

static void on_line(void *ctx, struct str line);
static void on_ended(void *ctx, bool well, const char *how);
static const struct program_ops ops = {on_line, on_ended};
static timer_cb on_restart, on_look, on_turn, on_typing, on_idle;

struct seat *seat_new(struct agent *a, struct chat *chat)
{
    struct seat *s = xcalloc(1, sizeof *s);

    *s = (struct seat){.agent = a, .chat = chat, .about = chat};
    list_init(&s->link);
    list_init(&s->hungry);
    list_init(&s->waiting);
    list_init(&s->in_hand);
    timer_init(&s->restart, on_restart);
    timer_init(&s->look, on_look);
    timer_init(&s->turn, on_turn);
    timer_init(&s->typing, on_typing);
    timer_init(&s->idle, on_idle);
    list_append(&a->seats, &s->link);
    if (chat != NULL)
        chat->seat = s;
    else
        timer_set(a->clock, &s->restart, 0); /* ready before the first message is */
    return s;
}

/* Not acknowledged: whoever we leave them with hands them over again. */
static void free_messages(struct agent *a, struct list *messages)
{
    list_each (messages, it, next) {
        struct message *m = list_entry(it, struct message, link);
        list_remove(&m->link);
        m->acked = m->over = true;
        message_done(a, m);
    }
}

void seat_free(struct seat *s)
{
    struct agent *a = s->agent;

    free_messages(a, &s->in_hand);
    free_messages(a, &s->waiting);
    list_each (&a->chats, it, next)
        chat_forget_seat(list_entry(it, struct chat, link), s);
    timer_stop(a->clock, &s->restart);
    timer_stop(a->clock, &s->look);
    timer_stop(a->clock, &s->turn);
    timer_stop(a->clock, &s->typing);
    timer_stop(a->clock, &s->idle);
    if (s->prog != NULL)
        a->n_running--;
    program_free(s->prog);
    list_remove(&s->hungry);
    list_remove(&s->link);
    free(s);
}

bool seat_is_idle(const struct seat *s)
{
    return list_is_empty(&s->waiting) && list_is_empty(&s->in_hand);
}

void seat_tell(struct seat *s, struct str line)
{
    if (s->prog != NULL)
        program_write(s->prog, line);
}

void seat_end(struct seat *s)
{
    if (s->prog != NULL)
        program_end(s->prog);
}

/* ---- starting ---- */

static int64_t backoff_ms(unsigned failures)
{
    int64_t ms = BACKOFF_MIN_MS;

    while (failures-- > 1 && ms < BACKOFF_MAX_MS)
        ms *= 2;
    return ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
}

/* Make room by ending the program that was idle longest. */
static void make_room(struct agent *a)
{
    list_each (&a->seats, it, next) {
        struct seat *s = list_entry(it, struct seat, link);
        if (s->prog != NULL && seat_is_idle(s)) {
            seat_end(s);
            return;
        }
    }
}

/* True: it runs. */
static bool start(struct seat *s)
{
    struct agent *a = s->agent;
    char why[256];

    if (s->prog != NULL)
        return true;
    if (timer_is_set(&s->restart))
        return false;
    if (a->opt->per_chat && a->n_running >= a->opt->max_programs) {
        if (!list_is_linked(&s->hungry))
            list_append(&a->hungry, &s->hungry);
        make_room(a);
        return false;
    }
    list_remove(&s->hungry);
    s->prog = program_start(a->loop, a->opt->argv, a->envp, &ops, s, why);
    if (s->prog == NULL) {
        s->failures++;
        log_error(NULL, "cannot start %s; trying again in %" PRId64 " ms", why,
                  backoff_ms(s->failures));
        timer_set(a->clock, &s->restart, backoff_ms(s->failures));
        return false;
    }
    s->started_ms = clock_now_ms(a->clock);
    a->n_running++;
    return true;
}

static void on_restart(struct timer *t)
{
    struct seat *s = container_of(t, struct seat, restart);

    if (agent_may_hand_over(s->agent) && (s->chat == NULL || !seat_is_idle(s)) && start(s))
        seat_go(s);
}

/* ---- handing over ---- */

static void hand_over(struct seat *s, struct message *m)
{
    struct agent *a = s->agent;
    struct buf line = BUF_INIT;

    list_move(&m->link, &s->in_hand);
    s->n_in_hand++;
    m->attempts++;
    m->taken = false;
    m->handed_ms = clock_now_ms(a->clock);
    line_message(&line, m->ev, m->attempts);
    m->end = program_write(s->prog, buf_str(&line));
    buf_done(&line);
    s->about = m->chat;
    s->looks = 0;
    timer_stop(a->clock, &s->idle);
    timer_set(a->clock, &s->look, 0);
    if (a->opt->turn_ms > 0 && !timer_is_set(&s->turn))
        timer_set(a->clock, &s->turn, a->opt->turn_ms);
    if (!a->opt->no_typing && !timer_is_set(&s->typing))
        timer_set(a->clock, &s->typing, TYPING_FIRST_MS);
}

/* A turn under way must be visible at the connector: it is what keeps the instance from looking
 * idle. */
static void on_typing(struct timer *t)
{
    struct seat *s = container_of(t, struct seat, typing);

    if (s->n_in_hand == 0)
        return;
    list_each (&s->in_hand, it, next) {
        const struct bhgw_event *ev = list_entry(it, struct message, link)->ev;
        bhgw_typing(s->agent->gw, ev->chat_id, ev->answer_metadata);
    }
    timer_set(s->agent->clock, &s->typing, TYPING_EVERY_MS);
}

void seat_go(struct seat *s)
{
    struct agent *a = s->agent;

    if (list_is_empty(&s->waiting) || !agent_may_hand_over(a) || !start(s))
        return;
    while (s->n_in_hand < a->opt->window && !list_is_empty(&s->waiting))
        hand_over(s, list_first(&s->waiting, struct message, link));
    list_move(&s->link, &a->seats);
}

void seat_add(struct seat *s, struct message *m)
{
    list_append(&s->waiting, &m->link);
    seat_go(s);
}

/* Which lines has the program read? */
static void look(struct seat *s)
{
    uint64_t read = program_read(s->prog);

    list_each (&s->in_hand, it, next) {
        struct message *m = list_entry(it, struct message, link);
        if (m->taken || read < m->end)
            continue;
        m->taken = true;
        if (!s->agent->opt->ack_on_reply)
            message_settle(s->agent, m);
    }
}

static void on_look(struct timer *t)
{
    struct seat *s = container_of(t, struct seat, look);

    if (s->prog == NULL)
        return;
    look(s);
    list_each (&s->in_hand, it, next) {
        if (!list_entry(it, struct message, link)->taken) {
            int64_t wait_ms = s->looks < 6 ? (int64_t)1 << s->looks++ : LOOK_MAX_MS;
            timer_set(s->agent->clock, &s->look, wait_ms);
            return;
        }
    }
}

/* ---- the end of a turn ---- */

static void over(struct seat *s, struct message *m)
{
    list_remove(&m->link);
    s->n_in_hand--;
    m->over = true;
    message_done(s->agent, m);
}

static void watch_turn(struct seat *s)
{
    struct agent *a = s->agent;

    timer_stop(a->clock, &s->turn);
    if (s->n_in_hand > 0 && a->opt->turn_ms > 0) {
        struct message *oldest = list_first(&s->in_hand, struct message, link);
        timer_set(a->clock, &s->turn, oldest->handed_ms + a->opt->turn_ms - clock_now_ms(a->clock));
    }
}

static void turn_over(struct seat *s, struct message *m)
{
    struct agent *a = s->agent;

    s->failures = 0;
    s->interrupted = false;
    over(s, m);
    watch_turn(s);
    seat_go(s);
    if (seat_is_idle(s) && s->chat != NULL)
        timer_set(a->clock, &s->idle, a->opt->chat_idle_ms);
    if (seat_is_idle(s) && !list_is_empty(&a->hungry))
        make_room(a);
    agent_moved(a);
}

/* A line printed after this could be about anything, so the program has to go. */
static void on_turn(struct timer *t)
{
    struct seat *s = container_of(t, struct seat, turn);

    log_warn(NULL, "no answer in %" PRId64 " ms: giving the message up, starting the program anew",
             s->agent->opt->turn_ms);
    list_each (&s->in_hand, it, next)
        list_entry(it, struct message, link)->interrupted = true;
    if (s->prog != NULL)
        program_signal(s->prog, SIGKILL);
}

static void on_idle(struct timer *t)
{
    struct seat *s = container_of(t, struct seat, idle);

    if (seat_is_idle(s))
        seat_end(s);
}

/* ---- lines ---- */

static struct message *in_hand_by(struct seat *s, const struct order *o)
{
    struct message *found = NULL;

    list_each (&s->in_hand, it, next) {
        struct message *m = list_entry(it, struct message, link);
        if (o->id.p != NULL && !str_eq(o->id, str_of(m->ev->buffer_id)))
            continue;
        if (o->session_key.p != NULL && !str_eq(o->session_key, str_of(m->ev->session_key)))
            continue;
        if (o->chat_id.p != NULL && !str_eq(o->chat_id, str_of(m->ev->chat_id)))
            continue;
        if (found != NULL && found->chat != m->chat)
            return NULL; /* it could be either's */
        if (found == NULL)
            found = m;
    }
    return found;
}

/* The chat an order speaks in, when it is about no message in hand; NULL: nobody can tell. */
static struct chat *chat_of(struct seat *s, const struct order *o)
{
    struct agent *a = s->agent;

    if (o->session_key.p != NULL)
        return chat_find(a, o->session_key);
    if (o->chat_id.p != NULL) {
        struct chat *c = chat_by_id(a, o->chat_id);
        return c != NULL ? c : chat_get(a, o->chat_id);
    }
    return s->n_in_hand == 0 ? s->about : NULL;
}

static void obey(struct seat *s, const struct order *o, struct message *m)
{
    struct chat *c = m != NULL ? m->chat : chat_of(s, o);

    if ((o->plain && str_is_empty(o->text)) || str_eq(o->op, STR("done")))
        return;
    if (c == NULL) {
        log_warn(NULL, "a line was dropped: it does not say which chat it means "
                       "(\"session_key\" or \"chat_id\")");
        return;
    }
    if (m != NULL && order_is_answer(o))
        m->answered = true;
    chat_say(c, o, m, s);
}

static void on_line(void *ctx, struct str line)
{
    struct seat *s = ctx;
    struct order o;

    order_read(s->agent->parser, line, &o);
    struct message *m = in_hand_by(s, &o);
    obey(s, &o, m);
    if (m != NULL && (o.done || (o.plain && !s->agent->opt->until_done))) {
        look(s); /* an answer is proof enough, but the order of things is kept */
        turn_over(s, m);
    }
}

/* ---- interrupts ---- */

void seat_interrupt(struct seat *s, const char *session_key, const char *chat_id)
{
    struct buf line = BUF_INIT;
    bool mine = false, others = false;

    if (s->prog == NULL)
        return;
    list_each (&s->in_hand, it, next) {
        struct message *m = list_entry(it, struct message, link);
        bool is = strcmp(m->ev->session_key, session_key) == 0;
        m->interrupted |= is;
        mine |= is;
        others |= !is;
    }
    line_interrupt(&line, session_key, chat_id);
    seat_tell(s, buf_str(&line));
    buf_done(&line);
    if (mine && !others) { /* a signal cannot say whom it means */
        s->interrupted = true;
        program_signal(s->prog, SIGINT);
    }
}

/* ---- the end of a program ---- */

/* What becomes of a message whose program is gone. */
static void bereave(struct seat *s, struct message *m, bool well)
{
    if (!m->taken) { /* it never saw it */
        m->attempts--;
    } else if (well || m->answered || m->interrupted) {
        over(s, m);
        return;
    } else if (m->attempts >= MAX_ATTEMPTS) {
        log_error(NULL,
                  "the program died %u times over one message: it is given up; "
                  "session_key=%s message_id=%s",
                  m->attempts, m->ev->session_key,
                  m->ev->message_id != NULL ? m->ev->message_id : "-");
        over(s, m);
        return;
    }
    s->n_in_hand--;
    list_remove(&m->link);
    list_add_before(s->waiting.next, &m->link);
}

static void after_end(struct seat *s)
{
    struct agent *a = s->agent;

    if (!list_is_empty(&a->hungry) && agent_may_hand_over(a))
        seat_go(list_entry(a->hungry.next, struct seat, hungry));
    if (!list_is_empty(&a->hungry))
        make_room(a);
    if (s->chat != NULL && seat_is_idle(s)) {
        seat_free(s);
    } else if (s->failures > 0) {
        if (agent_may_hand_over(a))
            timer_set(a->clock, &s->restart, backoff_ms(s->failures));
    } else {
        seat_go(s);
    }
    agent_moved(a);
}

static void on_ended(void *ctx, bool well, const char *how)
{
    struct seat *s = ctx;
    struct agent *a = s->agent;

    look(s);
    if (clock_now_ms(a->clock) - s->started_ms > STEADY_MS)
        s->failures = 0;
    s->failures = well || s->interrupted ? 0 : s->failures + 1;
    if (s->failures > 0 && agent_may_hand_over(a))
        log_warn(NULL, "the program ended: %s; %zu in hand; starting it again in %" PRId64 " ms",
                 how, s->n_in_hand, backoff_ms(s->failures));
    s->interrupted = false;
    timer_stop(a->clock, &s->turn);
    timer_stop(a->clock, &s->look);
    while (
        !list_is_empty(&s->in_hand)) /* newest first, so that the front of the queue is in order */
        bereave(s, list_entry(s->in_hand.prev, struct message, link), well);
    program_free(s->prog);
    s->prog = NULL;
    a->n_running--;
    after_end(s);
}
