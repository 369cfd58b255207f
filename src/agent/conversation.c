/* conversation.c - sends the actions of one conversation, one at a time.
 *
 * A conversation has at most one request in flight, so answers keep their order and an edit knows
 * the id of the message it edits.  Retries depend on the failure:
 *
 *   - never sent: retried when the connection is back
 *   - network trouble, as the connector reports it: retried twice
 *   - unknown outcome of an edit or a draft: retried once, because a repetition changes nothing
 *   - unknown outcome of anything else: not retried, because that might send the message twice
 *
 * What waits is bounded: beyond MAX_SAY_BYTES the output of line programs is not read.  Other
 * backends have one action of each turn under way.
 *
 *      queued --first in line--> in flight --result--> reported to its program, next
 *                 ^                  |
 *                 '--- @again -------'   not connected, network trouble, outcome unknown
 */
#include <stdlib.h>
#include "agent/agent_priv.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "net/loop.h"

#define MAX_CONVERSATIONS 4096
#define NETWORK_TRIES 3
#define UNKNOWN_TRIES 2
#define RECONNECT_LOOK_MS 1000          /* retry interval, in case a reconnect went unnoticed */
#define MAX_SAY_BYTES ((size_t)8 << 20) /* that wait; then programs that print lines have to wait */

struct say { /* one action */
    struct list link;
    struct conversation *conversation;
    char *action, *ref; /* owned */
    bool is_send, edits_last;
    bool repeatable;       /* doing it twice changes nothing */
    struct message *turn;  /* borrowed; NULL: outside a turn */
    struct worker *teller; /* borrowed; gets the result; NULL: not wanted */
    said_cb *done;         /* gets the result; NULL: not wanted */
    void *done_ctx;
    struct said said; /* owned strings; set by the notices thread before it posts */
    unsigned tries;
};

static timer_cb on_again, on_go;

struct conversation *conversation_find(struct agent *a, struct str key)
{
    return map_get(&a->by_key, key);
}

struct conversation *conversation_get(struct agent *a, struct str key)
{
    struct conversation *c = conversation_find(a, key);

    if (c == NULL) {
        c = xcalloc(1, sizeof *c);
        c->key = str_dup(key);
        c->agent = a;
        list_init(&c->link);
        list_init(&c->says);
        list_init(&c->waiting);
        timer_init(&c->again, on_again);
        timer_init(&c->go, on_go);
        map_put(&a->by_key, str_of(c->key), c);
        a->n_conversations++;
        list_append(&a->conversations, &c->link);
    }
    return c;
}

struct conversation *conversation_by_id(struct agent *a, struct str chat_id)
{
    for (struct list *it = a->conversations.prev; it != &a->conversations;
         it = it->prev) { /* newest first */
        struct conversation *c = list_entry(it, struct conversation, link);
        if (c->last != NULL && str_eq(str_of(c->last->chat_id), chat_id))
            return c;
    }
    return NULL;
}

void conversation_heard(struct conversation *c, const struct bhgw_event *ev)
{
    bhgw_event_free(c->last);
    c->last = bhgw_event_copy(ev);
    list_move(&c->link, &c->agent->conversations);
}

struct agent_person conversation_person(const struct conversation *c)
{
    const struct bhgw_event *ev = c->last;

    return ev != NULL ? (struct agent_person){str_of(ev->platform), str_of(ev->user_id)}
                      : (struct agent_person){0};
}

bool conversation_is_quiet(const struct conversation *c)
{
    return list_is_empty(&c->says);
}

static void said_done(struct said *r)
{
    free(r->error);
    free(r->message_id);
    *r = (struct said){0};
}

static size_t bytes_of(const struct say *s)
{
    return sizeof *s + strlen(s->action);
}

static void say_free(struct say *s)
{
    struct agent *a = s->conversation->agent;

    a->say_bytes -= bytes_of(s);
    if (a->held && a->say_bytes < MAX_SAY_BYTES / 2)
        workers_hold(a, false);
    list_remove(&s->link);
    said_done(&s->said);
    free(s->action);
    free(s->ref);
    free(s);
}

void conversation_free(struct conversation *c)
{
    list_each (&c->says, it, next) {
        struct say *s = list_entry(it, struct say, link);
        if (s->done != NULL)
            s->done(s->done_ctx, NULL);
        if (s->turn != NULL) {
            s->turn->n_says--;
            message_done(c->agent, s->turn);
        }
        say_free(s);
    }
    timer_stop(c->agent->clock, &c->again);
    timer_stop(c->agent->clock, &c->go);
    if (c->session != NULL) /* the backend is still open: close() has freed all sessions */
        c->agent->ops->forget(c->agent->backend, c);
    map_del(&c->agent->by_key, str_of(c->key));
    c->agent->n_conversations--;
    list_remove(&c->link);
    bhgw_event_free(c->last);
    free(c->last_sent);
    free(c->key);
    free(c);
}

void conversation_trim(struct agent *a)
{
    list_each (&a->conversations, it, next) {
        struct conversation *c = list_entry(it, struct conversation, link);
        bool about = a->only != NULL && a->only->about == c;
        if (a->n_conversations <= MAX_CONVERSATIONS)
            return;
        if (c->worker == NULL && c->n_turns == 0 && conversation_is_quiet(c) && !about)
            conversation_free(c);
    }
}

void conversation_forget_worker(struct conversation *c, struct worker *w)
{
    list_each (&c->says, it, next) {
        struct say *say = list_entry(it, struct say, link);
        if (say->teller == w)
            say->teller = NULL;
    }
    if (c->worker == w)
        c->worker = NULL;
}

/* ---- sending ---- */

static void say_first(struct conversation *c);

bool said_is_unknown(const struct said *r)
{
    return !r->success && str_contains(str_of(r->error), STR("timed out"));
}

/* True: a retry is scheduled. */
static bool try_again(struct say *s, const struct said *r)
{
    struct conversation *c = s->conversation;
    bool unsent = strcmp(r->error, BHGW_ERROR_NOT_CONNECTED) == 0;
    bool network = str_contains(str_of(r->error), STR("network")) ||
                   str_contains(str_of(r->error), STR("Network"));

    bool unknown = !network && s->repeatable && said_is_unknown(r);

    if (c->agent->state == AGENT_GONE || (!unsent && !network && !unknown) ||
        (!unsent && ++s->tries >= (unknown ? UNKNOWN_TRIES : NETWORK_TRIES)))
        return false;
    timer_set(c->agent->clock, &c->again, unsent ? RECONNECT_LOOK_MS : 2000 * (int64_t)s->tries);
    return true;
}

static void on_said(void *ctx)
{
    struct say *s = ctx;
    struct conversation *c = s->conversation;
    struct agent *a = c->agent;
    struct message *t = s->turn;

    if (!s->said.success && try_again(s, &s->said)) {
        said_done(&s->said);
        return;
    }
    if (!s->said.success)
        log_warn(NULL, "an answer was not sent: session_key=%s why=%s", c->key, s->said.error);
    if (s->said.success && s->is_send && s->said.message_id != NULL) {
        free(c->last_sent);
        c->last_sent = xstrdup(s->said.message_id);
    }
    if (s->ref != NULL && s->teller != NULL) {
        BUF_LOCAL line = BUF_INIT;
        line_result(&line, s->ref, &s->said);
        worker_tell(s->teller, buf_str(&line));
    }
    if (s->done != NULL)
        s->done(s->done_ctx, &s->said);
    say_free(s);
    if (t != NULL) {
        t->n_says--;
        message_done(a, t);
    }
    say_first(c);
    agent_moved(a);
}

/* Runs on the notices thread: copies the result and posts it to the loop. */
static void on_result(void *ctx, struct bhgw *gw, const struct bhgw_result *r)
{
    struct say *s = ctx;

    s->said = (struct said){.success = r->success,
                            .error = xstrdup(r->error),
                            .message_id = xstrdup(r->message_id)};
    loop_post(s->conversation->agent->loop, on_said, s);
}

static void say_first(struct conversation *c)
{
    if (list_is_empty(&c->says) || c->agent->gw == NULL)
        return;
    struct say *s = list_first(&c->says, struct say, link);
    if (!s->edits_last) {
        bhgw_request_json(c->agent->gw, s->action, NULL, NULL, on_result, s);
        return;
    }
    /* The id of the last message is known only now, after all earlier actions were sent. */
    struct buf action = BUF_INIT;
    struct jw w = jw_begin(&action);
    jw_obj(&w);
    jw_kstr(&w, "message_id", str_of(c->last_sent));
    buf_printf(&action, ",%s", s->action + 1);
    bhgw_request_json(c->agent->gw, buf_z(&action), NULL, NULL, on_result, s);
    buf_done(&action);
}

static void on_again(struct timer *t)
{
    say_first(container_of(t, struct conversation, again));
}

static void on_go(struct timer *t)
{
    turn_go(container_of(t, struct conversation, go));
}

void conversation_connected(struct conversation *c)
{
    if (timer_is_set(&c->again))
        timer_set(c->agent->clock, &c->again, 0);
}

static void say_add(struct conversation *c, const struct order *o, struct say *s)
{
    struct buf action = BUF_INIT;
    struct message *m = s->turn;

    order_action(&action, o, m != NULL ? m->ev : c->last,
                 m != NULL ? str_of(m->ev->message_id) : STR_NULL);
    s->conversation = c;
    s->action = buf_take(&action);
    s->is_send = str_eq(o->op, STR("send"));
    s->repeatable = str_eq(o->op, STR("edit")) || str_eq(o->op, STR("draft"));
    s->edits_last = str_eq(o->op, STR("edit")) && json_str(o->doc, "message_id").p == NULL;
    if (m != NULL)
        m->n_says++;
    list_init(&s->link);
    list_append(&c->says, &s->link);
    c->agent->say_bytes += bytes_of(s);
    if (!c->agent->held && c->agent->say_bytes > MAX_SAY_BYTES)
        workers_hold(c->agent, true);
    if (list_first(&c->says, struct say, link) == s)
        say_first(c);
}

void conversation_say(struct conversation *c, const struct order *o, struct message *m,
                      struct worker *teller)
{
    struct say *s = xcalloc(1, sizeof *s);

    *s = (struct say){.turn = m, .ref = o->ref.p != NULL ? str_dup(o->ref) : NULL};
    s->teller = s->ref != NULL ? teller : NULL;
    say_add(c, o, s);
}

void conversation_order(struct conversation *c, struct str json, struct message *m, said_cb *done,
                        void *ctx)
{
    struct say *s = xcalloc(1, sizeof *s);
    struct order o;

    order_read(c->agent->parser, json, &o);
    *s = (struct say){.turn = m, .done = done, .done_ctx = ctx};
    say_add(c, &o, s);
}

void conversation_tell(struct conversation *c, struct str text)
{
    BUF_LOCAL json = BUF_INIT;
    struct jw w = jw_begin(&json);

    jw_obj(&w);
    jw_kstr(&w, "op", STR("send"));
    jw_kstr(&w, "content", text);
    jw_end_obj(&w);
    conversation_order(c, buf_str(&json), NULL, NULL, NULL);
}
