/* requests.c - design.  (requests.h has the contract.)
 *
 * A request is found by its handle, so late or repeated results do no harm.  All requests have the
 * same timeout, so the list in order of start is also in order of deadline, and one timer serves
 * it. */
#include "relay/out/requests.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/handles.h"
#include "base/jw.h"
#include "relay/sleep/instance.h"
#include "relay/out/chats.h"
#include "relay/out/guard.h"
#include "relay/heart.h"
#include "relay/session/session.h"
#include "relay/out/spoken.h"
#include "relay/out/traced.h"
#include "store/store.h"
#include "tenancy/rights.h"

enum { PARTS_MAX = 16, CUT_OFF_MS = 60000 };
enum { BURST_S = 5 }; /* the burst is the rate of so many seconds */

struct request {
    struct list owner;     /* session->requests, or instance->orphans */
    struct list by_due;    /* requests->due */
    struct list told;      /* requests->told, while its result waits for the end of the turn */
    struct session *s;     /* borrowed; NULL: the session has closed */
    struct instance *inst; /* borrowed */
    int64_t due_ms;
    char *held; /* owned; the result frame of an orphan, see give(); NULL: none */
    size_t held_n;
    uint32_t given_to, given_ping; /* the session that was sent @held, and a ping behind it */
    char *asked;                   /* owned; the chat id of a get_chat_info; else NULL */
    struct noted *noted;           /* owned; NULL: the outlet tells the journal, or nobody does */
    size_t result_at, result_n;    /* its frame in requests->results, while told */
    struct handle handle;
    uint16_t id_n;
    bool counted;        /* in s->n_requests: its result is not known yet */
    bool speaks;         /* sends messages, which may be edited later: spoken.h */
    bool opens;          /* opens a thread under no message, which may be renamed later */
    struct hash128 said; /* action_from.said */
    struct spoken_chat where;
    char id[FRAME_REQUEST_ID_MAX];
};

struct noted { /* what the journal needs to know of a request when it ends */
    enum action_op op;
    int64_t asked_ms;
    struct str platform, bot, chat, trace; /* in @words */
    char words[];
};

struct cut_off { /* an action that an earlier process may or may not have performed */
    struct hash128 said;
    unsigned n; /* number of such actions */
};

struct tenant_rate { /* the token bucket of all instances of a tenant */
    struct bucket_level level;
    size_t name_n;
    char name[];
};

struct requests {
    struct relay *relay;    /* borrowed */
    struct handles handles; /* struct request */
    struct list due;        /* owned, in order of deadline; without those in @told past theirs */
    struct list told;       /* requests whose result came in this turn, in that order */
    struct buf named;       /* scratch: a text with the byline */
    struct buf results;     /* the result frames of @told; reset every turn */
    struct timer timer;
    struct buf said;         /* scratch: the input of hash_said() */
    struct map tenant_rates; /* name -> struct tenant_rate; owned */
    struct map cut_off;      /* said -> struct cut_off; owned */
    struct timer forget_cut_off;
};

static timer_cb on_deadline, forget_cut_off;

struct requests *requests_new(struct relay *r)
{
    struct requests *q = xcalloc(1, sizeof *q);

    q->relay = r;
    handles_init(&q->handles, r->env.rand);
    list_init(&q->due);
    list_init(&q->told);
    timer_init(&q->timer, on_deadline);
    timer_init(&q->forget_cut_off, forget_cut_off);
    return q;
}

/* ---- requests ---- */

static void request_free(struct requests *q, struct request *req)
{
    if (req->s != NULL && req->counted)
        req->s->n_requests--;
    list_remove(&req->owner);
    list_remove(&req->by_due);
    list_remove(&req->told);
    handles_remove(&q->handles, req->handle);
    free(req->asked);
    free(req->noted);
    free(req->held);
    free(req);
}

void requests_free(struct requests *q)
{
    if (q == NULL)
        return;
    timer_stop(q->relay->env.clock, &q->timer);
    timer_stop(q->relay->env.clock, &q->forget_cut_off);
    forget_cut_off(&q->forget_cut_off);
    list_each (&q->due, it, nxt)
        request_free(q, list_entry(it, struct request, by_due));
    list_each (&q->told, it, nxt) /* past their deadline, result not sent yet */
        request_free(q, list_entry(it, struct request, told));
    void *rate;
    for (size_t pos = 0; map_next(&q->tenant_rates, &pos, &rate);)
        free(rate);
    map_done(&q->tenant_rates);
    buf_done(&q->results);
    buf_done(&q->said);
    buf_done(&q->named);
    handles_done(&q->handles);
    free(q);
}

/* Sets the request id and starts the timeout. */
static void request_begin(struct requests *q, struct request *req, struct str id)
{
    req->due_ms = clock_now_ms(q->relay->env.clock) + q->relay->lim.action_ms;
    req->id_n = (uint16_t)id.n;
    memcpy(req->id, id.p, id.n);
    list_remove(&req->by_due);
    list_append(&q->due, &req->by_due);
    if (!timer_is_set(&q->timer))
        timer_set(q->relay->env.clock, &q->timer, q->relay->lim.action_ms);
}

/* @s NULL: an orphan, without a session. */
static struct request *request_new(struct requests *q, struct instance *inst, struct session *s,
                                   struct str id)
{
    struct request *req = xcalloc(1, sizeof *req);

    req->handle = handles_add(&q->handles, req);
    req->inst = inst;
    req->s = s;
    list_init(&req->owner);
    list_init(&req->by_due);
    list_init(&req->told);
    list_append(s != NULL ? &s->requests : &inst->orphans, &req->owner);
    if (s != NULL)
        s->n_requests++;
    req->counted = s != NULL;
    request_begin(q, req, id);
    return req;
}

static void hold(struct request *req, struct str frame)
{
    req->held = xmalloc(frame.n);
    req->held_n = frame.n;
    memcpy(req->held, frame.p, frame.n);
}

/* ---- answers ---- */

static void send_result(struct session *s, struct str id, struct str frame)
{
    s->wire->ops->send(s->wire, frame);
    if (s->wire->ops->answered != NULL)
        s->wire->ops->answered(s->wire, id);
}

static void reply(struct session *s, struct str id, const struct action_result *result)
{
    BUF_LOCAL frame = BUF_INIT;

    frame_write_result(&frame, id, result);
    send_result(s, id, buf_str(&frame));
}

static void refuse(struct session *s, struct str id, const char *error)
{
    struct action_result result = {.success = false, .error = str_of(error)};

    s->inst->relay->n.actions_refused++;
    reply(s, id, &result);
}

/* A text that streaming merged into a newer one does not count: see rate_take(). */
static void rate_give_back(struct instance *i)
{
    struct tenant_rate *t = map_get(&i->relay->requests->tenant_rates, instance_tenant(i));

    bucket_give(&i->actions);
    if (t != NULL)
        bucket_give(&t->level);
}

static bool is_decided(const struct request *req)
{
    return req->held != NULL || list_is_linked(&req->told);
}

static struct noted *noted_new(const struct relay *r, const struct destination *to,
                               const struct action *a, struct str trace)
{
    struct str bot = str_of(to->outlet->bot);
    struct noted *n = xmalloc(sizeof *n + to->platform.n + bot.n + a->chat_id.n + trace.n);
    char *at = n->words;

    n->op = a->op;
    n->asked_ms = clock_wall_ms(r->env.clock);
    n->platform = str_pack(&at, to->platform);
    n->bot = str_pack(&at, bot);
    n->chat = str_pack(&at, a->chat_id);
    n->trace = str_pack(&at, trace);
    return n;
}

/* Tells the journal how an action of @i ended; the caller has filled in the rest of @x. */
static void note_end(struct instance *i, struct str request, struct journal_outcome x)
{
    x.tenant = instance_tenant(i);
    x.instance = instance_id(i);
    x.request = request;
    x.ended_ms = clock_wall_ms(i->relay->env.clock);
    if (x.asked_ms == 0)
        x.asked_ms = x.ended_ms;
    journal_action(i->relay->journal, &x);
}

/* Enqueues the result frame for the end of the turn, because the caller may be in the middle of its
 * own work. */
static void tell(struct requests *q, struct request *req, const struct action_result *result)
{
    struct action_result r = *result;

    const struct noted *n = req->noted;
    if (n != NULL)
        note_end(req->inst, str_make(req->id, req->id_n),
                 (struct journal_outcome){.how = r.success ? "done" : "failed",
                                          .platform = n->platform,
                                          .bot = n->bot,
                                          .chat = n->chat,
                                          .message_id = r.message_id,
                                          .why = r.error,
                                          .op = n->op,
                                          .asked_ms = n->asked_ms,
                                          .attempts = 1,
                                          .trace = n->trace});
    if (req->asked != NULL && r.success) { /* clients expect both fields */
        if (str_is_empty(r.chat_name))
            r.chat_name = str_of(req->asked);
        if (str_is_empty(r.chat_type))
            r.chat_type = STR("dm");
    }
    req->result_at = q->results.n;
    frame_write_result(&q->results, str_make(req->id, req->id_n), &r);
    req->result_n = q->results.n - req->result_at;
    if (req->counted) /* many texts of streams may be answered in one turn */
        req->s->n_requests--;
    req->counted = false;
    list_append(&q->told, &req->told);
    turn_want(q->relay, TURN_RESULTS);
}

void relay_result(struct relay *r, struct action_id id, const struct action_result *result)
{
    struct requests *q = r->requests;
    struct request *req = handles_find(&q->handles, (struct handle){id.index, id.generation});

    if (req == NULL || is_decided(req))
        return;
    if (result->merged)
        rate_give_back(req->inst);
    struct str made = req->speaks ? result->message_id : result->thread_id;
    if ((req->speaks || req->opens) && result->success && made.n > 0)
        spoken_note(req->inst, req->where, made);
    tell(q, req, result);
}

/* Sends @s the result of an action whose own socket is gone.  The result is kept until @s has read
 * it, because the gateway may have repeated the action before. */
static void give(struct session *s, struct request *req)
{
    send_result(s, str_make(req->id, req->id_n), str_make(req->held, req->held_n));
    if (s->inside || (req->said.hi | req->said.lo) == 0) {
        request_free(s->inst->relay->requests, req);
        return;
    }
    session_ping(s);
    session_arm(s);
    req->given_to = s->number;
    req->given_ping = s->ping_no;
}

void requests_read(struct session *s)
{
    list_each (&s->inst->orphans, it, nxt) {
        struct request *req = list_entry(it, struct request, owner);
        if (req->given_to == s->number && req->given_ping <= s->pong_no)
            request_free(s->inst->relay->requests, req);
    }
}

void requests_answer_all(struct relay *r)
{
    struct requests *q = r->requests;

    while (!list_is_empty(&q->told)) {
        struct request *req = list_first(&q->told, struct request, told);
        struct session *s = req->s != NULL ? req->s : req->inst->receiver;
        struct str frame = str_make(q->results.p + req->result_at, req->result_n);
        bool waits = list_is_linked(&req->by_due); /* else the client has stopped waiting */
        list_remove(&req->told);
        if (req->s == NULL && waits)
            hold(req, frame);
        else if (s != NULL)
            send_result(s, str_make(req->id, req->id_n), frame);
        if (req->held == NULL)
            request_free(q, req);
        else if (s != NULL)
            give(s, req);
    }
    buf_reset(&q->results);
}

static void on_deadline(struct timer *t)
{
    struct requests *q = container_of(t, struct requests, timer);
    int64_t now_ms = clock_now_ms(q->relay->env.clock);
    struct action_result late = {.error = STR(ACTION_ERROR_UNKNOWN "the platform did not answer")};

    while (!list_is_empty(&q->due)) {
        struct request *req = list_first(&q->due, struct request, by_due);
        if (req->due_ms > now_ms) {
            timer_set(q->relay->env.clock, &q->timer, req->due_ms - now_ms);
            return;
        }
        if (req->held != NULL) {
            request_free(q, req); /* the client has stopped waiting */
            continue;
        }
        list_remove(&req->by_due);
        if (is_decided(req))
            continue; /* its result goes out when this turn ends */
        q->relay->n.actions_timed_out++;
        tell(q, req, &late);
    }
}

void requests_orphan(struct session *s)
{
    list_each (&s->requests, it, nxt) {
        struct request *req = list_entry(it, struct request, owner);
        req->s = NULL;
        req->counted = false;
        list_move(&req->owner, &s->inst->orphans);
    }
    s->n_requests = 0;
}

void requests_adopt(struct session *s)
{
    list_each (&s->inst->orphans, it, nxt) {
        struct request *req = list_entry(it, struct request, owner);
        if (req->held != NULL && req->given_to != s->number)
            give(s, req);
    }
}

void requests_tell_lost(struct session *s, const struct str *ids, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        bool goes_on = false;
        list_each (&s->inst->orphans, it, nxt) {
            const struct request *req = list_entry(it, struct request, owner);
            goes_on |= str_eq(str_make(req->id, req->id_n), ids[k]);
        }
        if (!goes_on)
            refuse(s, ids[k],
                   ACTION_ERROR_UNKNOWN "another node took over; it may have been delivered");
    }
}

void requests_forget(struct instance *i)
{
    list_each (&i->orphans, it, nxt)
        request_free(i->relay->requests, list_entry(it, struct request, owner));
}

/* ---- actions that an earlier process did not finish ---- */

static void forget_cut_off(struct timer *t)
{
    struct requests *q = container_of(t, struct requests, forget_cut_off);
    void *c;

    for (size_t pos = 0; map_next(&q->cut_off, &pos, &c);)
        free(c);
    map_done(&q->cut_off);
}

void relay_cut_off(struct relay *r, const struct action_from *from, struct str error)
{
    struct instance *i = instance_find(r, from->tenant, from->instance);
    struct requests *q = r->requests;
    struct str id = from->request_id;
    struct buf frame = BUF_INIT;

    if (i == NULL || i->life != from->life)
        return;
    if (action_is_said(from)) {
        struct cut_off *c = map_get(&q->cut_off, str_make(&from->said, sizeof from->said));
        if (c == NULL) {
            c = xcalloc(1, sizeof *c);
            c->said = from->said;
            map_put(&q->cut_off, str_make(&c->said, sizeof c->said), c);
        }
        c->n++;
        timer_set(r->env.clock, &q->forget_cut_off, CUT_OFF_MS);
    }
    if (id.n == 0 || id.n > FRAME_REQUEST_ID_MAX)
        return; /* nobody waits for it */
    struct request *req = request_new(q, i, NULL, id);
    frame_write_result(&frame, id, &(struct action_result){.error = error});
    hold(req, buf_str(&frame));
    buf_done(&frame);
}

/* True for actions that send messages, which may be edited later. */
static bool speaks(enum action_op op)
{
    return op == ACTION_SEND || op == ACTION_SEND_MEDIA || op == ACTION_PROMPT ||
           op == ACTION_DRAFT;
}

bool relay_revive(struct relay *r, const struct action_from *from, struct str platform,
                  struct str bot, enum action_op op, struct str chat_id, struct action_id *ret_id)
{
    struct instance *i = instance_find(r, from->tenant, from->instance);
    struct requests *q = r->requests;

    *ret_id = ACTION_NOBODY;
    const struct right_at at = {{from->tenant, from->instance}, platform, bot};
    if (i == NULL || i->life != from->life || !rights_may_use(r->env.facts, &at))
        return false;
    if (from->request_id.n == 0 || from->request_id.n > FRAME_REQUEST_ID_MAX)
        return true; /* nobody waits for it */
    struct request *req = request_new(q, i, NULL, from->request_id);
    req->speaks = speaks(op);
    req->said = from->said;
    req->where = spoken_chat(i, platform, bot, chat_id);
    *ret_id = (struct action_id){req->handle.index, req->handle.generation};
    return true;
}

/* ---- starting ---- */

/* Takes @n tokens from the buckets of @i and its tenant (limits.instance_actions and
 * limits.tenant_actions per second).  An action counts once per message that it sends.  False: over
 * the limit. */
static bool rate_take(struct instance *i, uint32_t n)
{
    struct relay *r = i->relay;
    struct str tenant = instance_tenant(i);
    int64_t now_ms = clock_now_ms(r->env.clock);
    uint32_t mine = r->lim.instance_actions, ours = r->lim.tenant_actions;
    struct tenant_rate *t = map_get(&r->requests->tenant_rates, tenant);

    if (t == NULL) {
        t = xcalloc(1, sizeof *t + tenant.n);
        t->name_n = tenant.n;
        memcpy(t->name, tenant.p, tenant.n);
        map_put(&r->requests->tenant_rates, str_make(t->name, t->name_n), t);
    }
    for (uint32_t k = 0; k < n; k++)
        if (!bucket_take(&i->actions, now_ms, mine, mine * BURST_S) ||
            !bucket_take(&t->level, now_ms, ours, ours * BURST_S))
            return false;
    return true;
}

static void refuse_op(struct session *s, struct str id, struct str op_name)
{
    char error[96];

    snprintf(error, sizeof error, "unsupported op: %.*s", op_name.n < 64 ? (int)op_name.n : 64,
             op_name.p != NULL ? op_name.p : "");
    refuse(s, id, error);
}

/* Estimates from the length how many messages the action sends besides the first. */
static uint32_t extra_parts(const struct action *a, const struct descriptor *d)
{
    size_t n = 0;

    if ((!speaks(a->op) && a->op != ACTION_FOLLOW_UP) || d->max_message_length <= 0)
        return 0;
    for (size_t i = 0; i < a->content.n; i++)
        n += ((unsigned char)a->content.p[i] & 0xc0) != 0x80; /* code points */
    n = n > 0 ? (n - 1) / (size_t)d->max_message_length : 0;
    return n < PARTS_MAX ? (uint32_t)n : PARTS_MAX; /* the platform refuses longer texts */
}

/* ---- repeated actions ---- */

/* Hashes everything that identifies an action: instance, destination, replied message, content. */
static struct hash128 hash_said(struct instance *i, const struct destination *to,
                                const struct action *a)
{
    const struct str parts[] = {instance_key(i), str_of(action_op_name(a->op)),
                                to->platform,    str_of(to->outlet->bot),
                                a->chat_id,      a->thread_id,
                                a->reply_to,     a->message_id,
                                a->session_key,  a->kind,
                                a->source_url,   a->filename,
                                a->prompt_id,    a->content};
    struct buf *b = &i->relay->requests->said;

    buf_reset(b);
    buf_add_u64(b, i->life);
    buf_add_c(b, ' ');
    for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
        buf_add_u64(b, parts[k].n);
        buf_add_c(b, ':');
        buf_add_str(b, parts[k]);
    }
    return hash128(&i->relay->env.store->dedup_key, buf_str(b));
}

/* The new request @id repeats @old, whose result is known: it gets the same result. */
static void answer_again(struct session *s, struct request *old, struct str id)
{
    struct requests *q = s->inst->relay->requests;
    struct str frame = old->held != NULL ? str_make(old->held, old->held_n)
                                         : str_make(q->results.p + old->result_at, old->result_n);
    const struct str member = STR(",\"result\":"); /* quotes inside an id are escaped */
    const char *at = memmem(frame.p, frame.n, member.p, member.n);
    BUF_LOCAL again = BUF_INIT;

    assert(at != NULL);
    if (old->given_to == s->number && str_eq(str_make(old->id, old->id_n), id))
        return; /* this socket has it */
    struct jw w = jw_begin(&again);
    jw_obj(&w);
    jw_kstr(&w, "type", STR("outbound_result"));
    jw_kstr(&w, "requestId", id);
    buf_add_str(&again, str_skip(frame, (size_t)(at - frame.p)));
    send_result(s, id, buf_str(&again));
}

static struct request *find_said(struct list *requests, struct hash128 said)
{
    list_each (requests, it, nxt) {
        struct request *req = list_entry(it, struct request, owner);
        if (req->said.hi == said.hi && req->said.lo == said.lo)
            return req;
    }
    return NULL;
}

/* What @s says again: an action of a socket that has closed, or that its gateway has replaced with
 * @s, because it is lost and we do not know yet. */
static struct request *find_repeated(struct session *s, struct hash128 said)
{
    struct instance *i = s->inst;
    struct request *req = find_said(&i->orphans, said);

    for (struct list *it = i->sessions.next; it != &i->sessions && req == NULL; it = it->next) {
        struct session *old = list_entry(it, struct session, by_inst);
        if (old->state == SESSION_OLD && old->gw == s->gw && old->number < s->number)
            req = find_said(&old->requests, said);
    }
    return req;
}

/* Makes actions idempotent for a gateway that repeats one after a lost socket or a restart.  Until
 * the gateway has read the result of the first, that is the result of the new request too.  If an
 * earlier process did not finish the first, the new request gets an error.  True: a repetition,
 * which must not be performed. */
static bool is_said_again(struct session *s, struct str id, struct hash128 said)
{
    struct requests *q = s->inst->relay->requests;
    struct cut_off *c = map_get(&q->cut_off, str_make(&said, sizeof said));

    if (c != NULL) {
        if (--c->n == 0) {
            map_del(&q->cut_off, str_make(&said, sizeof said));
            free(c);
        }
        refuse(s, id,
               ACTION_ERROR_UNKNOWN "bellhop was restarted while this was being sent; it may have "
                                    "been delivered");
        return true;
    }
    const struct instance *i = s->inst;
    if (list_is_empty(&i->orphans) && i->sessions.next == i->sessions.prev)
        return false; /* nearly always: there is no other socket, and was none lately */
    struct request *old = find_repeated(s, said);
    if (old == NULL)
        return false;
    if (is_decided(old)) {
        answer_again(s, old, id);
        return true;
    }
    if (old->counted)
        old->s->n_requests--;
    list_move(&old->owner, &s->requests);
    old->s = s;
    s->n_requests++;
    old->counted = true;
    request_begin(q, old, id); /* restarts the timeout */
    return true;
}

/* A gateway may name a thread as the chat: then the parent chat becomes chat_id, and the thread
 * thread_id.  @room holds the parent's id. */
static void go_home(struct outside *o, struct action *a, char room[32])
{
    struct str platform = str_eq(a->platform, STR("relay")) ? STR_NULL : a->platform;
    struct str home = o->home(o, platform, a->bot, a->chat_id, room);

    if (home.n == 0)
        return;
    if (a->thread_id.n == 0)
        a->thread_id = a->chat_id;
    a->chat_id = home;
}

static void start(struct session *s, struct str id, struct action a)
{
    struct relay *r = s->inst->relay;
    struct destination to;
    char room[32];

    if (r->env.outside->home != NULL && a.chat_id.n != 0 &&
        chats_find(s->inst, STR_NULL, a.chat_id) == NULL)
        go_home(r->env.outside, &a, room);
    const char *why = guard_admit(s, &a, &to);

    if (why != NULL) {
        note_end(s->inst, id,
                 (struct journal_outcome){.how = "refused",
                                          .platform = a.platform,
                                          .bot = a.bot,
                                          .chat = a.chat_id,
                                          .why = str_of(why),
                                          .op = a.op});
        refuse(s, id, why);
        return;
    }
    /* A draft that becomes the message is shown wherever a message can be sent. */
    enum action_op needs = a.op == ACTION_DRAFT && a.is_message ? ACTION_SEND : a.op;
    if ((to.outlet->descriptor->ops & (1u << needs)) == 0) {
        struct action_result nothing_to_do = {.success = true};
        if (a.op == ACTION_TYPING)
            reply(s, id, &nothing_to_do); /* cosmetic: a platform without it is not a failure */
        else
            refuse_op(s, id, a.op_name);
        return;
    }
    buf_reset(&r->requests->named);
    a.content = byline_add(s->inst, &to, &a, &r->requests->named);
    const struct descriptor *d = to.outlet->descriptor;
    bool long_text = a.content.n > (size_t)d->max_message_length && a.op != ACTION_DRAFT;
    uint32_t more = long_text ? extra_parts(&a, d) : 0;
    if (more > 0 && !rate_take(s->inst, more)) {
        r->n.actions_limited++;
        refuse(s, id, ACTION_ERROR_TRANSIENT "too many messages per second");
        return;
    }
    struct action_from from = {instance_tenant(s->inst), instance_id(s->inst), id, s->inst->life};
    if (a.trace.n > 0 && caller_trace_valid(a.trace))
        from.trace = a.trace;
    else if (r->traced != NULL)
        from.trace = traced_find(s->inst, to.platform, str_of(to.outlet->bot), &a);
    if ((speaks(a.op) && a.op != ACTION_DRAFT) || a.op == ACTION_FOLLOW_UP || a.op == ACTION_EDIT) {
        from.said = hash_said(s->inst, &to, &a);
        if (is_said_again(s, id, from.said))
            return;
    }
    struct request *req = request_new(r->requests, s->inst, s, id);
    if (a.op == ACTION_GET_CHAT_INFO)
        req->asked = str_dup(a.chat_id);
    if (!to.outlet->has_outbox && a.op != ACTION_TYPING && a.op != ACTION_GET_CHAT_INFO)
        req->noted = noted_new(r, &to, &a, from.trace);
    req->speaks = speaks(a.op);
    req->opens = a.op == ACTION_THREAD_CREATE && a.message_id.n == 0;
    req->said = from.said;
    req->where = spoken_chat(s->inst, to.platform, str_of(to.outlet->bot), a.chat_id);
    struct action_id aid = {req->handle.index, req->handle.generation};
    a.deadline_ms = req->due_ms;
    r->env.outside->act(r->env.outside, to.outlet, aid, &from,
                        &a); /* may answer: @req may be gone */
}

/* Is it the first text of an answer that streams, from a gateway that never edits?  Released older
 * gateways send such a text, and the rest of the answer as a second message.  If the first text is
 * refused, they send the answer once it is complete. */
static bool is_stub(const struct session *s, const struct action *a)
{
    return !s->gw->newer && a->op == ACTION_SEND &&
           action_without_cursor(a->content).n < a->content.n &&
           json_as_bool(json_get(a->metadata, "expect_edits"), false);
}

void requests_start(struct session *s, const struct frame *f)
{
    struct relay *r = s->inst->relay;
    bool repeated = false;

    for (const struct list *it = s->requests.next; it != &s->requests; it = it->next) {
        const struct request *req = list_entry(it, struct request, owner);
        repeated |= str_eq(str_make(req->id, req->id_n), f->request_id);
    }
    r->n.actions++;
    activity_note(s->inst, &s->inst->last_outbound_ms);
    if (f->request_id.n == 0)
        refuse(s, f->request_id, "unusable requestId");
    else if (repeated)
        return; /* a repeated frame: the result of the first follows */
    else if (f->action.op == ACTION_UNKNOWN)
        refuse_op(s, f->request_id, f->action.op_name);
    else if (is_stub(s, &f->action))
        refuse(s, f->request_id, "this gateway does not edit: send the text once it is complete");
    else if (!rate_take(s->inst, 1)) {
        r->n.actions_limited++;
        refuse(s, f->request_id, ACTION_ERROR_TRANSIENT "too many actions per second");
    } else if (s->n_requests >= REQUESTS_PER_SESSION)
        refuse(s, f->request_id, ACTION_ERROR_TRANSIENT "too many requests in flight");
    else
        start(s, f->request_id, f->action);
}
