/* request.c - dispatch_request(): delivers a payload and waits for the agent's answer.
 *
 *      ASKED --end of the turn in time--> answered
 *        '--timeout_ms--> answered with the texts so far, or TimeoutError; LATE
 *                                         LATE --end of the turn, or LATE_MS--> forgotten
 *
 * On the relay the answer is what the agent sends to the request's chat until its turn ends
 * (turn.h).  A webhook and a program return the answer as the result of the job.  Every other
 * substrate but "none" gets the request as mail.  Each of them may post the answer as replies
 * instead, which are joined as on the relay; a job that ends without a text then ends nothing.  A
 * late request goes on without its caller: the agent's messages still get its correlation_id as
 * replies. */
#include "dispatch/request.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
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
#define NUMBER_CHARS 16      /* of a reply URL's capability: the request's number, ... */
#define SECRET_BYTES 16      /* ... and so many random bytes, in hex */

struct asked_group { /* requests that wait in one chat, or that have one correlation_id */
    struct list waiting;
    struct str key; /* tenant \x1f chat id, or tenant \x1f correlation_id; in @bytes */
    char bytes[];
};

struct tenant_asked {
    size_t n;
    char name[];
};

struct asked_record { /* the record; strs borrowed */
    struct str tenant, number;
    struct str agent, session, correlation, id;
    uint8_t proof[SHA256_BYTES]; /* hash of the capability */
    int64_t until_ms;            /* wall clock */
};
static const struct record_field asked_fields[] = {
    RECORD_FIELD(struct asked_record, tenant, "tenant", RECORD_KEY | RECORD_NEEDED, .max = 128),
    RECORD_FIELD(struct asked_record, number, "number", RECORD_KEY | RECORD_NEEDED, .max = 32),
    RECORD_FIELD(struct asked_record, agent, "agent", RECORD_NEEDED, .max = 128),
    RECORD_FIELD(struct asked_record, session, "session", 0, .max = 256),
    RECORD_FIELD(struct asked_record, correlation, "correlation_id", 0, .max = 256),
    RECORD_FIELD(struct asked_record, id, "dispatch_id", 0, .max = 256),
    RECORD_FIELD(struct asked_record, proof, "proof", RECORD_NEEDED),
    RECORD_FIELD(struct asked_record, until_ms, "until", RECORD_NEEDED),
};
const struct record_form asked_form =
    RECORD_FORM("asked", struct asked_record, asked_fields, .lossy = true);

struct asked {
    struct dispatch *d; /* borrowed */
    bool stopping;
    struct map chats;        /* key -> asked_group; owned */
    struct map correlations; /* key -> asked_group; owned */
    struct map urls;         /* asking->number -> asking */
    struct map tenants;      /* name -> tenant_asked; owned */
    size_t n;
};

struct asking {
    struct dispatch_call call;
    struct list in_chat; /* asked_group->waiting, oldest first */
    struct asked_group *chat;
    struct list in_correlation;
    struct asked_group *correlated; /* NULL: its answer is complete */
    char number[NUMBER_CHARS + 1];  /* in asked->urls */
    bool recorded;                  /* it has a URL, with a record */
    uint8_t proof[SHA256_BYTES];    /* hash of the URL's capability */
    bool late, counted;
    bool unfinished; /* the time was over before the agent's turn */
    struct said_turn turn;
    struct timer patience;
    struct payload *given;      /* borrowed during dispatch_request(); NULL: read @payload */
    struct buf payload;         /* a copy of the body, during the search for a receipt */
    struct buf id, correlation; /* from the caller: any bytes */
    int64_t timeout_ms;
};

static struct asked_group *group_join(struct map *in, struct str tenant, struct str id,
                                      struct list *member)
{
    struct asked_group *g = pair_get(in, tenant, id);

    if (g == NULL) {
        g = xcalloc(1, sizeof *g + PAIR_BYTES(tenant, id));
        list_init(&g->waiting);
        g->key = pair_write(g->bytes, tenant, id);
        map_put(in, g->key, g);
    }
    list_append(&g->waiting, member);
    return g;
}

static void group_leave(struct map *in, struct asked_group **group, struct list *member)
{
    struct asked_group *g = *group;

    *group = NULL;
    if (g == NULL)
        return;
    list_remove(member);
    if (!list_is_empty(&g->waiting))
        return;
    map_del(in, g->key);
    free(g);
}

static void wait_no_more(struct asking *w)
{
    struct asked *t = w->call.d->asked;

    if (w->correlated != NULL)
        map_del(&t->urls, str_of(w->number));
    if (w->recorded && !t->stopping)
        record_delete_like(w->call.d->env.store, &asked_form,
                           &(struct asked_record){.tenant = str_of(w->call.tenant),
                                                  .number = str_of(w->number)});
    w->recorded = false;
    group_leave(&t->chats, &w->chat, &w->in_chat);
    group_leave(&t->correlations, &w->correlated, &w->in_correlation);
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

/* ---- the table ---- */

static timer_cb on_patience;
static turn_cb on_turn_end;

static struct asking *asking_new(struct dispatch *d, dispatch_cb *done, void *ctx)
{
    struct asking *w = call_new(d, sizeof *w, asking_free, done, ctx);

    timer_init(&w->patience, on_patience);
    turn_init(&w->turn, d->env.clock, d->env.settings->answer_quiet_ms, on_turn_end);
    list_init(&w->in_chat);
    list_init(&w->in_correlation);
    return w;
}

/* From now on replies that name the request are parts of its answer. */
static void await_replies(struct asking *w)
{
    struct asked *t = w->call.d->asked;

    map_put(&t->urls, str_of(w->number), w);
    w->correlated = group_join(&t->correlations, str_of(w->call.tenant), buf_str(&w->correlation),
                               &w->in_correlation);
}

/* A request of before the last start: its caller is gone, its URL is good. */
static bool on_record(void *ctx, struct str key, void *thing)
{
    struct asked *t = ctx;
    const struct asked_record *r = thing;
    int64_t left_ms = r->until_ms - clock_wall_ms(t->d->env.clock);

    if (left_ms <= 0 || map_count(&t->urls) >= OPEN_MAX || map_get(&t->urls, r->number) != NULL) {
        record_delete(t->d->env.store, &asked_form, key);
        return true;
    }
    struct asking *w = asking_new(t->d, NULL, NULL);
    w->late = w->recorded = true;
    w->call.tenant = str_dup(r->tenant);
    w->call.agent = str_dup(r->agent);
    w->call.session = str_dup_opt(r->session);
    buf_add_str(&w->correlation, r->correlation);
    buf_add_str(&w->id, r->id);
    snprintf(w->number, sizeof w->number, "%.*s", STR_FMT(r->number));
    memcpy(w->proof, r->proof, sizeof w->proof);
    turn_forget_texts(&w->turn);
    await_replies(w);
    timer_set(t->d->env.clock, &w->patience, left_ms);
    return true;
}

void asked_open(struct dispatch *d)
{
    char why[256];

    d->asked = xcalloc(1, sizeof *d->asked);
    d->asked->d = d;
    if (record_load(d->env.store, &asked_form, NULL, STR_NULL, on_record, d->asked, why) != BH_OK)
        log_warn(NULL, "reply URLs of earlier requests are lost: %s", why);
}

void asked_stop(struct asked *t)
{
    if (t != NULL)
        t->stopping = true;
}

void asked_forget(struct asked *t, struct str tenant)
{
    void *w;

    for (size_t pos = 0; map_next(&t->urls, &pos, &w);)
        if (((struct asking *)w)->late && str_eq(str_of(((struct asking *)w)->call.tenant), tenant))
            call_end_later(w);
}

void asked_free(struct asked *t)
{
    if (t == NULL)
        return;
    map_done_all(&t->chats);
    map_done_all(&t->correlations);
    map_done_all(&t->tenants);
    map_done(&t->urls);
    free(t);
}

/* ---- the answer ---- */

/* Tells the caller.  A request whose agent has not finished, or whose job still runs, goes on
 * without the caller. */
static void tell(struct asking *w)
{
    struct dispatch_call *c = &w->call;
    struct dispatch_answer a = {.fault = c->fault, .json = buf_str(&c->json)};

    if (!w->unfinished && c->job == NULL) {
        call_end(c);
        return;
    }
    if (c->done != NULL)
        c->done(c->ctx, &a);
    c->done = NULL;
    fault_done(&c->fault);
    buf_done(&c->json);
    buf_done(&w->payload);
    turn_forget_texts(&w->turn);
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
        w->call.put = receipt_write(w->call.d, &name, w->call.at_ms, buf_str(&w->call.json), KV_PUT,
                                    on_written, w);
    else
        tell(w);
}

static void answer_with_turn(struct asking *w)
{
    struct buf text = BUF_INIT;

    if (w->turn.cut)
        call_warn(&w->call,
                  STR("the answer is longer than 512 KiB: some of its messages are left out"));
    if (w->turn.refused)
        call_warn(&w->call, STR("too much of this tenant's is under way (limits.work_bytes): some "
                                "messages of the answer are left out"));
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
    if (w->late && w->call.job != NULL)
        return; /* the end of the job, or LATE_MS, ends the call */
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

struct asking *asked_find(struct dispatch *d, struct str tenant, struct str chat_id,
                          struct str reply_to, struct reply *ret)
{
    struct asked_group *c = pair_get(&d->asked->chats, tenant, chat_id);
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
    struct asked_group *c = pair_get(&d->asked->chats, tenant, chat_id);

    if (c == NULL)
        return;
    list_each (&c->waiting, it, nxt)
        if (turn_edit(&list_entry(it, struct asking, in_chat)->turn, message_id, content, final))
            return;
}

void asked_typing(struct dispatch *d, struct str tenant, struct str chat_id)
{
    struct asked_group *c = pair_get(&d->asked->chats, tenant, chat_id);

    if (c == NULL)
        return;
    list_each (&c->waiting, it, nxt)
        turn_busy(&list_entry(it, struct asking, in_chat)->turn);
}

/* ---- replies ---- */

/* Writes the URL that takes replies to this request, and records it.  Nothing: bellhop does not
 * know its own address. */
static void write_url(struct asking *w, struct buf *out)
{
    struct dispatch *d = w->call.d;
    uint8_t secret[SECRET_BYTES];

    if (!dispatch_reply_base(d, out))
        return;
    size_t base = out->n;
    rand_bytes(d->env.rand, secret, sizeof secret);
    buf_add_z(out, w->number);
    hex_add(out, secret, sizeof secret);
    sha256(str_skip(buf_str(out), base), w->proof);
    struct asked_record r = {.tenant = str_of(w->call.tenant),
                             .number = str_of(w->number),
                             .agent = str_of(w->call.agent),
                             .session = str_of(w->call.session),
                             .correlation = buf_str(&w->correlation),
                             .id = buf_str(&w->id),
                             .until_ms = clock_wall_ms(d->env.clock) + w->timeout_ms + LATE_MS};
    memcpy(r.proof, w->proof, sizeof r.proof);
    record_put(d->env.store, &asked_form, NULL, &r, false, NULL, NULL);
    w->recorded = true;
}

struct asking *asked_by_url(struct dispatch *d, struct str capability)
{
    uint8_t proof[SHA256_BYTES];
    struct asking *w = capability.n == NUMBER_CHARS + 2 * SECRET_BYTES
                           ? map_get(&d->asked->urls, str_make(capability.p, NUMBER_CHARS))
                           : NULL;

    sha256(capability, proof);
    return w != NULL && w->recorded && !w->turn.marked && ct_equal(proof, w->proof, sizeof proof)
               ? w
               : NULL;
}

struct asking *asked_by_correlation(struct dispatch *d, const struct dispatch_who *who,
                                    struct str correlation_id, struct str agent)
{
    struct asked_group *g = pair_get(&d->asked->correlations, who->caller.tenant, correlation_id);

    if (g == NULL)
        return NULL;
    list_each (&g->waiting, it, nxt) {
        struct asking *w = list_entry(it, struct asking, in_correlation);
        struct recipient *a = agents_find(d->agents, who->caller.tenant, str_of(w->call.agent));
        if (a != NULL && !w->turn.marked && call_may_answer(who, a) &&
            (agent.p == NULL || str_eq(agent, str_of(a->id))))
            return w;
    }
    return NULL;
}

void asked_describe(const struct asking *w, struct reply *ret)
{
    ret->tenant = str_of(w->call.tenant);
    ret->agent = str_of(w->call.agent);
    ret->session = str_of(w->call.session);
    ret->correlation_id = buf_str(&w->correlation);
    ret->dispatch_id = buf_str(&w->id);
}

bool asked_is_late(const struct asking *w)
{
    return w->late;
}

/* ---- asking ---- */

/* The answer of a job that ended well, with or without a text. */
static void take_answer(struct asking *w, const struct errand_end *e)
{
    call_told(&w->call, e);
    if (str_is_empty(e->text))
        return; /* the agent may post its answer; the timeout ends the call */
    if (turn_has_text(&w->turn)) {
        turn_say(&w->turn, STR(""), e->text, true);
        return;
    }
    wait_no_more(w);
    answer(w, e->text);
}

static void on_brought(void *ctx, const struct errand_end *e)
{
    struct asking *w = ctx;
    char cursor[REPLY_CURSOR_CHARS + 1];
    struct reply late = {.content = e->text};

    bool well = e->result == ERRAND_DONE, said = well && !str_is_empty(e->text);

    w->call.job = NULL;
    if (!w->late && w->call.put == NULL) { /* the caller waits */
        if (well) {
            take_answer(w, e);
        } else if (!turn_has_text(&w->turn)) {
            call_fail_errand(&w->call, e);
            call_end(&w->call);
        }
        return;
    }
    asked_describe(w, &late);
    late.in_reply_to = late.dispatch_id;
    if (said)
        reply_keep(w->call.d, &late, cursor, NULL, NULL);
    if (w->call.put == NULL && (said || !well || w->correlated == NULL))
        call_end(&w->call); /* else: being written, or the agent may still post its answer */
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
    struct buf text = BUF_INIT, url = BUF_INIT;

    p->asks = true;
    timer_set(d->env.clock, &w->patience, w->timeout_ms);
    turn_charge(&w->turn, d->env.ledger, str_of(a->tenant));
    snprintf(w->number, sizeof w->number, "%016llx", (unsigned long long)dispatch_number(d));
    await_replies(w);
    if (agent_is_relayed(a->cfg)) {
        payload_chat_id(&text, p, str_of(a->id));
        w->chat = group_join(&d->asked->chats, str_of(a->tenant), buf_str(&text), &w->in_chat);
        call_post(&w->call, a, p, true, on_accepted);
        buf_done(&text);
        return;
    }
    write_url(w, &url);
    if (url.n > 0)
        p->reply_url = buf_str(&url);
    if ((a->cfg->ops->can & SUBSTRATE_ANSWERS) == 0) {
        call_post(&w->call, a, p, a->cfg->s.wake_on_deliver, on_accepted);
    } else {
        payload_write_body(&text, p, str_of(a->id));
        struct errand e = {.kind = ERRAND_REQUEST,
                           .body = buf_str(&text),
                           .dispatch_id = p->dispatch_id,
                           .text = p->text,
                           .session = p->session,
                           .timeout_ms = w->timeout_ms + LATE_JOB_MS,
                           .correlation = p->correlation_id,
                           .trace = payload_trace(p)};
        call_run(&w->call, a, &e, on_brought);
    }
    buf_wipe(&text);
    buf_wipe(&url);
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

    if (a->cfg->ops == &substrate_none)
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

static void request_go(struct dispatch_call *c)
{
    struct asking *w = container_of(c, struct asking, call);
    struct recipient *a = agents_find(c->d->agents, str_of(c->tenant), str_of(c->agent));
    struct json doc;
    struct payload p;

    if (a != NULL && w->given != NULL) {
        ask(w, a, w->given);
    } else if (a != NULL && json_parse(c->d->json, buf_str(&w->payload), &doc) &&
               payload_read(doc, str_of(c->agent), &p, &c->fault)) {
        ask(w, a, &p);
    } else {
        call_fail_unknown(c, str_of(c->agent));
        call_end_later(c);
    }
}

static void begin(struct asking *w, struct recipient *a, struct payload *p, struct str key)
{
    struct asked *t = w->call.d->asked;
    struct str tenant = str_of(a->tenant);
    struct tenant_asked *of = map_get(&t->tenants, tenant);

    w->call.d->n.requested++;
    call_begin(&w->call, a, p->session, "request", key);
    if (of == NULL) {
        of = xcalloc(1, sizeof *of + tenant.n + 1);
        if (tenant.n > 0)
            memcpy(of->name, tenant.p, tenant.n);
        map_put(&t->tenants, str_of(of->name), of);
    }
    of->n++;
    t->n++;
    w->counted = true;
    buf_add_str(&w->correlation, p->correlation_id);
    buf_add_str(&w->id, p->dispatch_id);
    if (key.n > 0)
        payload_write_body(&w->payload, p, str_of(a->id));
    else
        w->given = p;
    call_once(&w->call, request_go, NULL);
    w->given = NULL;
}

struct dispatch_call *dispatch_request(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct json body, struct str key,
                                       dispatch_cb *done, void *ctx)
{
    struct asking *w = asking_new(d, done, ctx);
    struct str session;
    struct recipient *a = call_agent(&w->call, who, address, &session);
    struct payload p;

    if (a != NULL && read_request(w, a, body, key, &p)) {
        if (p.session.p == NULL)
            p.session = session;
        p.caller = who->caller.for_agent;
        p.trace = who->caller.trace;
        begin(w, a, &p, key);
    } else {
        call_end_later(&w->call);
    }
    return &w->call;
}
