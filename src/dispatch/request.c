/* request.c - dispatch_request(): delivers a payload and waits for the agent's answer.
 *
 *      ASKED --end of the turn in time--> answered
 *        '--timeout_ms--> answered with the texts so far, or TimeoutError; LATE
 *                                         LATE --end of the turn, or LATE_MS--> forgotten
 *
 * On the relay the answer is what the agent sends to the request's chat until its turn ends
 * (turn.h).  Other substrates return the answer as the result of the job.  A late request goes on
 * without its caller: the agent's messages still get its correlation_id as replies. */
#include "dispatch/request.h"
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/receipts.h"
#include "dispatch/replies.h"
#include "dispatch/substrate.h"
#include "dispatch/turn.h"

#define TIMEOUT_DEFAULT_MS 30000
#define TIMEOUT_MAX_MS (10 * 60 * 1000)
#define LATE_MS (10 * 60 * 1000) /* after the timeout; a later answer is an ordinary reply */
#define LATE_JOB_MS 60000        /* extra time of a job after the timeout */
#define OPEN_MAX 10000
#define OPEN_TENANT_MAX 2500 /* of one tenant, so that one tenant cannot use up all requests */

struct chat_asked { /* requests that wait in one chat */
    struct list waiting;
    char key[]; /* tenant \x1f chat id */
};

struct tenant_asked {
    size_t n;
    char name[];
};

struct asked {
    struct map chats;   /* key -> chat_asked; owned */
    struct map tenants; /* name -> tenant_asked; owned */
    size_t n;
};

struct asking {
    struct dispatch_call call;
    struct list in_chat; /* chat_asked->waiting, oldest first */
    struct chat_asked *chat;
    bool late, counted;
    bool unfinished; /* the time was over before the agent's turn */
    struct said_turn turn;
    struct timer patience;
    struct buf payload;         /* a copy of the body, during the search for a receipt */
    struct buf id, correlation; /* from the caller: any bytes */
    int64_t timeout_ms;
};

/* ---- the table of waiting requests ---- */

struct asked *asked_new(void)
{
    return xcalloc(1, sizeof(struct asked));
}

void asked_free(struct asked *t)
{
    void *c;

    if (t == NULL)
        return;
    for (size_t pos = 0; map_next(&t->chats, &pos, &c);)
        free(c);
    map_done(&t->chats);
    for (size_t pos = 0; map_next(&t->tenants, &pos, &c);)
        free(c);
    map_done(&t->tenants);
    free(t);
}

static void chat_key(struct buf *out, struct str tenant, struct str chat_id)
{
    buf_add_str(out, tenant);
    buf_add_c(out, '\x1f');
    buf_add_str(out, chat_id);
}

static void wait_no_more(struct asking *w)
{
    struct chat_asked *c = w->chat;

    if (c == NULL)
        return;
    list_remove(&w->in_chat);
    w->chat = NULL;
    if (!list_is_empty(&c->waiting))
        return;
    map_del(&w->call.d->asked->chats, str_of(c->key));
    free(c);
}

static void asking_free(struct dispatch_call *base)
{
    struct asking *w = container_of(base, struct asking, call);
    struct asked *t = base->d->asked;
    struct tenant_asked *of = w->counted ? map_get(&t->tenants, str_of(base->tenant)) : NULL;

    wait_no_more(w);
    t->n -= w->counted;
    if (of != NULL && --of->n == 0) {
        map_del(&t->tenants, str_of(of->name));
        free(of);
    }
    timer_stop(base->d->env.clock, &w->patience);
    turn_done(&w->turn);
    buf_done(&w->payload);
    buf_done(&w->correlation);
    buf_done(&w->id);
}

/* ---- the answer ---- */

/* Tells the caller.  A request whose agent has not finished goes on without the caller. */
static void tell(struct asking *w)
{
    struct dispatch_call *c = &w->call;
    struct dispatch_answer a = {.fault = c->fault, .json = buf_str(&c->json)};

    if (!w->unfinished) {
        call_end(c);
        return;
    }
    if (c->done != NULL)
        c->done(c->ctx, &a);
    c->done = NULL;
    fault_done(&c->fault);
    w->late = true;
    timer_set(c->d->env.clock, &w->patience, LATE_MS);
}

/* With any @err the answer is valid; without a receipt a repeated call asks the agent again. */
static void on_written(void *ctx, enum bh_err err)
{
    struct asking *w = ctx;

    w->call.put = NULL;
    tell(w);
}

/* Tells the caller when the receipt is on disk; without an Idempotency-Key, now.  Only from
 * callbacks. */
static void answer(struct asking *w, struct str content)
{
    struct receipt_name name = call_receipt(&w->call);
    struct jw j = jw_begin(&w->call.json);

    timer_stop(w->call.d->env.clock, &w->patience);
    jw_obj(&j);
    jw_kstr(&j, "correlation_id", buf_str(&w->correlation));
    jw_kstr(&j, "content", content);
    jw_ki64(&j, "sent_at", clock_wall_ms(w->call.d->env.clock));
    jw_kstr(&j, "agent_id", str_of(w->call.agent));
    call_write_warnings(&w->call, &j);
    jw_end_obj(&j);
    if (w->call.key.n > 0)
        w->call.put =
            receipt_write(w->call.d, &name, w->call.at_ms, buf_str(&w->call.json), on_written, w);
    else
        tell(w);
}

static void answer_with_turn(struct asking *w)
{
    struct buf text = BUF_INIT;

    if (w->turn.cut)
        call_warn(&w->call,
                  STR("the answer is longer than 512 KiB: some of its messages are left out"));
    if (w->unfinished)
        call_warn(&w->call, STR("timeout_ms was over before the agent had finished: more may "
                                "follow as replies"));
    turn_write(&w->turn, &text);
    answer(w, buf_str(&text));
    buf_done(&text);
}

static void on_turn_end(struct said_turn *t)
{
    struct asking *w = container_of(t, struct asking, turn);

    wait_no_more(w);
    if (w->late)
        call_end(&w->call);
    else if (w->call.put != NULL)
        w->unfinished = false; /* the timeout's answer is being written: nothing follows it */
    else
        answer_with_turn(w);
}

static void on_patience(struct timer *t)
{
    struct asking *w = container_of(t, struct asking, patience);
    struct dispatch_call *c = &w->call;

    if (w->late) {
        call_end(c);
        return;
    }
    w->unfinished = true;
    if (turn_has_text(&w->turn)) {
        answer_with_turn(w);
        return;
    }
    c->d->n.timed_out++;
    fault_set(&c->fault, FAULT_TIMEOUT, "No answer within %lld ms.", (long long)w->timeout_ms);
    fault_field_i64(&c->fault, "timeout_ms", w->timeout_ms);
    tell(w);
}

/* ---- what agents do in chats ---- */

static struct chat_asked *asked_in(const struct dispatch *d, struct str tenant, struct str chat_id)
{
    struct buf key = BUF_INIT;

    chat_key(&key, tenant, chat_id);
    struct chat_asked *c = map_get(&d->asked->chats, buf_str(&key));
    buf_done(&key);
    return c;
}

struct asking *asked_find(struct dispatch *d, struct str tenant, struct str chat_id,
                          struct str reply_to, struct reply *ret)
{
    struct chat_asked *c = asked_in(d, tenant, chat_id);
    struct asking *found = NULL;

    if (c == NULL)
        return NULL;
    list_each (&c->waiting, it, nxt) {
        struct asking *w = list_entry(it, struct asking, in_chat);
        bool fits = str_is_empty(reply_to)
                        ? found == NULL || (found->turn.marked && !w->turn.marked)
                        : found == NULL && str_eq(buf_str(&w->id), reply_to);
        if (fits)
            found = w;
    }
    if (found != NULL) {
        ret->correlation_id = buf_str(&found->correlation);
        ret->dispatch_id = buf_str(&found->id);
    }
    return found;
}

void asked_say(struct asking *w, struct str message_id, struct str content, bool final)
{
    turn_say(&w->turn, message_id, content, final);
}

void asked_edit(struct dispatch *d, struct str tenant, struct str chat_id, struct str message_id,
                struct str content, bool final)
{
    struct chat_asked *c = asked_in(d, tenant, chat_id);

    if (c == NULL)
        return;
    list_each (&c->waiting, it, nxt)
        if (turn_edit(&list_entry(it, struct asking, in_chat)->turn, message_id, content, final))
            return;
}

void asked_typing(struct dispatch *d, struct str tenant, struct str chat_id)
{
    struct chat_asked *c = asked_in(d, tenant, chat_id);

    if (c == NULL)
        return;
    list_each (&c->waiting, it, nxt)
        turn_busy(&list_entry(it, struct asking, in_chat)->turn);
}

/* ---- asking ---- */

static void on_brought(void *ctx, const struct errand_end *e)
{
    struct asking *w = ctx;
    char cursor[REPLY_CURSOR_CHARS + 1];

    w->call.job = NULL;
    if (e->result == ERRAND_DONE && !w->late) {
        call_told(&w->call, e);
        answer(w, e->text);
        return;
    }
    struct reply late = {.tenant = str_of(w->call.tenant),
                         .agent = str_of(w->call.agent),
                         .content = e->text,
                         .session = str_of(w->call.session),
                         .correlation_id = buf_str(&w->correlation),
                         .in_reply_to = buf_str(&w->id),
                         .dispatch_id = buf_str(&w->id)};
    if (e->result == ERRAND_DONE)
        reply_keep(w->call.d, &late, cursor, NULL, NULL);
    else if (!w->late)
        call_fail_errand(&w->call, e);
    call_end(&w->call);
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct asking *w = ctx;

    w->call.accepting = false;
    if (err == BH_OK || turn_has_text(&w->turn))
        return; /* the end of the turn or the timeout ends the call */
    if (!w->late)
        call_fail_store(&w->call, err);
    wait_no_more(w);
    call_end_later(&w->call); /* it may have been answered in this turn */
}

static void ask(struct asking *w, struct recipient *a, struct payload *p)
{
    struct dispatch *d = w->call.d;
    struct buf text = BUF_INIT, key = BUF_INIT;

    p->asks = true;
    timer_set(d->env.clock, &w->patience, w->timeout_ms);
    if (a->cfg->ops == &substrate_relay) {
        payload_chat_id(&text, p, str_of(a->id));
        chat_key(&key, str_of(a->tenant), buf_str(&text));
        w->chat = map_get(&d->asked->chats, buf_str(&key));
        if (w->chat == NULL) {
            w->chat = xcalloc(1, sizeof *w->chat + key.n + 1);
            memcpy(w->chat->key, key.p, key.n);
            list_init(&w->chat->waiting);
            map_put(&d->asked->chats, str_of(w->chat->key), w->chat);
        }
        list_append(&w->chat->waiting, &w->in_chat);
        buf_done(&key);
        call_post(&w->call, a, p, true, on_accepted);
    } else {
        payload_write_body(&text, p, str_of(a->id));
        struct errand e = {.kind = ERRAND_REQUEST,
                           .body = buf_str(&text),
                           .dispatch_id = p->dispatch_id,
                           .text = p->text,
                           .session = p->session,
                           .timeout_ms = w->timeout_ms + LATE_JOB_MS,
                           .correlation = p->correlation_id};
        w->call.job = errand_run(a, &e, on_brought, w);
    }
    buf_done(&text);
}

/* ---- the call ---- */

static bool fail(struct asking *w, enum fault_class cls, const char *why)
{
    fault_set(&w->call.fault, cls, "%s", why);
    return false;
}

static bool read_request(struct asking *w, struct recipient *a, struct json body, struct str key,
                         struct payload *p)
{
    struct json opts = json_get(body, "opts"), timeout = json_get(body, "timeout_ms");
    double ms = TIMEOUT_DEFAULT_MS;

    if ((a->cfg->ops->can & SUBSTRATE_ANSWERS) == 0)
        return fail(w, FAULT_NOT_IMPLEMENTED,
                    "request_response is not implemented for this agent.");
    if (!payload_read(body, str_of(a->id), p, &w->call.fault))
        return false;
    if (str_is_empty(p->correlation_id))
        return fail(w, FAULT_INVALID, "A request needs meta.correlation_id.");
    if (json_type(opts) > JSON_NULL && !json_is_object(opts))
        return fail(w, FAULT_INVALID, "opts must be an object: {timeout_ms}.");
    if (json_is_object(opts) && json_type(timeout) <= JSON_NULL)
        timeout = json_get(opts, "timeout_ms");
    if (json_type(timeout) > JSON_NULL && (!json_as_f64(timeout, &ms) || ms < 1))
        return fail(w, FAULT_INVALID, "timeout_ms must be a number above 0.");
    if (!str_is_empty(key) && !call_has_room(&w->call, str_of(a->tenant)))
        return false;
    const struct tenant_asked *of = map_get(&w->call.d->asked->tenants, str_of(a->tenant));
    if (w->call.d->asked->n >= OPEN_MAX || (of != NULL && of->n >= OPEN_TENANT_MAX))
        return fail(w, FAULT_BUSY, "Too many requests wait for an answer.");
    w->timeout_ms = ms > TIMEOUT_MAX_MS ? TIMEOUT_MAX_MS : (int64_t)ms;
    return true;
}

static void on_found(void *ctx, struct str json)
{
    struct asking *w = ctx;
    struct dispatch *d = w->call.d;
    struct recipient *a = agents_find(d->agents, str_of(w->call.tenant), str_of(w->call.agent));
    struct json doc;
    struct payload p;

    w->call.look = NULL;
    if (json.p != NULL) {
        d->n.repeated++;
        buf_add_str(&w->call.json, json);
        call_end(&w->call);
    } else if (a != NULL && json_parse(d->json, buf_str(&w->payload), &doc) &&
               payload_read(doc, str_of(w->call.agent), &p, &w->call.fault)) {
        ask(w, a, &p);
    } else {
        call_fail_unknown(&w->call, str_of(w->call.agent));
        call_end(&w->call);
    }
}

static void begin(struct asking *w, struct recipient *a, struct payload *p, struct str key)
{
    struct asked *t = w->call.d->asked;
    struct str tenant = str_of(a->tenant);
    struct tenant_asked *of = map_get(&t->tenants, tenant);
    struct receipt_name name;

    w->call.d->n.requested++;
    call_begin(&w->call, a, p->session, "request", key);
    if (of == NULL) {
        of = xcalloc(1, sizeof *of + tenant.n + 1);
        memcpy(of->name, tenant.p, tenant.n);
        map_put(&t->tenants, str_of(of->name), of);
    }
    of->n++;
    t->n++;
    w->counted = true;
    buf_add_str(&w->correlation, p->correlation_id);
    buf_add_str(&w->id, p->dispatch_id);
    if (key.n == 0) {
        ask(w, a, p);
        return;
    }
    payload_write_body(&w->payload, p, str_of(a->id));
    name = call_receipt(&w->call);
    if (call_claim(&w->call))
        w->call.look = receipt_find(w->call.d, &name, on_found, w);
    else
        call_end_later(&w->call);
}

struct dispatch_call *dispatch_request(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct json body, struct str key,
                                       dispatch_cb *done, void *ctx)
{
    struct asking *w = call_new(d, sizeof *w, asking_free, done, ctx);
    struct str session;
    struct recipient *a = call_agent(&w->call, who, address, &session);
    struct payload p;

    timer_init(&w->patience, on_patience);
    turn_init(&w->turn, d->env.clock, on_turn_end);
    list_init(&w->in_chat);
    if (a != NULL && read_request(w, a, body, key, &p)) {
        if (p.session.p == NULL)
            p.session = session;
        p.caller = who->caller.for_agent;
        begin(w, a, &p, key);
    } else {
        call_end_later(&w->call);
    }
    return &w->call;
}
