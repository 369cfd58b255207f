/* ops_mailbox.c - an instance's mailbox over plain HTTP: an agent without a socket pulls its mail.
 *
 *      POST /v1/mailbox       opens the session: the agent is the instance's receiver
 *      GET  /v1/mailbox       the deliveries behind a cursor; waits for the first one
 *      POST /v1/mailbox/done  settles deliveries by their ids
 *      POST /v1/mailbox/act   an action of the contract; may settle the deliveries it answers
 *      DELETE /v1/mailbox     the agent goes: the instance sleeps
 *
 * For an agent whose acks come minutes later, such as a Claude Code session behind `bellhop mcp
 * --channel` (agent/channel.h).  A WebSocket does not fit that agent: its window fills with what a
 * model never acks, its ack timeout takes the agent for dead, and each lost socket is an attempt
 * that ends in parking the delivery.  relay/in/inside.h has what this session promises instead.
 *
 * An instance has one session.  Its number is made here and grows, so that an agent which was away
 * cannot take the mailbox back from one that began later: a session with a smaller number is told
 * that it was taken over, also after a restart of bellhop, when both come back.
 *
 * The session lives while its agent polls.  A poll whose connection is lost ends it after GONE_MS,
 * an agent that does not poll after SILENT_MS; the instance is away then, and is woken for mail.
 * Revoking the key of a poll ends the session at once. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "http/media_route.h"
#include "http/op.h"
#include "net/loop.h"
#include "relay/in/inside.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

enum {
    LOOK_MS = 5000,    /* how often a session checks its poll */
    GONE_MS = 2000,    /* time to poll again after a lost connection */
    SILENT_MS = 20000, /* time between two polls */
    WAIT_S = 25,
    LIMIT_MAX = 256,
    DONE_MAX = 256,
};

struct pullers {
    struct map by_key;     /* tenant US instance */
    struct list all;       /* owned; also those that wait for the end of a read */
    struct list settlings; /* owned */
};

struct puller {              /* the session of one instance */
    struct inner_wire wire;  /* its frames: interrupts, going_idle_ack */
    struct list link;        /* pullers->all */
    struct front *f;         /* borrowed */
    struct session *session; /* NULL: over */
    struct op_call *poll;    /* the call that waits; NULL: none */
    struct op_call *leaving; /* DELETE waits for the sleep to be on disk; NULL: none */
    struct buf out, placed;  /* the answer so far; a frame with the URLs of its files */
    struct timer late;       /* of the poll, or of the session */
    uint64_t number, after;
    size_t limit, n;
    int64_t until_ms; /* of the poll; without a poll: of the session */
    bool peek, reading;
    char key_id[KEY_ID_CHARS + 1]; /* of the poll's caller; "": the operator */
    struct str key;                /* tenant US instance; in @bytes */
    char bytes[];
};

static int64_t now_ms(const struct puller *p)
{
    return clock_now_ms(loop_clock(p->f->loop));
}

/* Frees @p unless a read of the store is in flight, which cannot be cancelled and frees it. */
static void puller_free(struct puller *p)
{
    if (p->session != NULL)
        session_closed(p->session, CLOSE_CODE_NORMAL);
    p->session = NULL;
    p->wire.closed = true;
    timer_stop(loop_clock(p->f->loop), &p->wire.turn);
    timer_stop(loop_clock(p->f->loop), &p->late);
    if (p->poll != NULL)
        op_keep(p->poll, NULL, NULL);
    if (p->leaving != NULL)
        op_keep(p->leaving, NULL, NULL);
    p->poll = p->leaving = NULL;
    if (map_get(&p->f->pullers->by_key, p->key) == p)
        map_del(&p->f->pullers->by_key, p->key);
    if (p->reading)
        return;
    list_remove(&p->link);
    inner_wire_done(&p->wire);
    buf_done(&p->out);
    buf_done(&p->placed);
    free(p);
}

static const char taken_over[] = "another session of this instance has taken over";

/* Ends the session, and tells the call that waits why. */
static void end(struct puller *p, enum fault_class cls, const char *why)
{
    struct op_call *poll = p->poll, *leaving = p->leaving;

    p->poll = p->leaving = NULL;
    if (poll != NULL)
        op_refuse(poll, cls, "%s", why);
    if (leaving != NULL)
        op_answer(leaving, STR("{\"ok\":true}"));
    puller_free(p);
}

/* ---- reading ---- */

static void on_line(void *ctx, const struct mailbox_line *line)
{
    struct puller *p = ctx;

    if (p->wire.closed)
        return;
    struct str frame = line->frame;
    buf_reset(&p->placed);
    media_add_urls(p->f, frame, &p->placed);
    frame = str_trim(buf_str(&p->placed));
    buf_printf(&p->out,
               "%s{\"delivery\":\"%" PRIu64 "\",\"repeat\":%s,\"at\":%" PRId64 ",\"frame\":",
               p->n > 0 ? "," : "", line->id, line->attempts > 1 ? "true" : "false", line->at_ms);
    buf_add_str(&p->out, frame);
    buf_add_c(&p->out, '}');
    p->n++;
}

static void on_read(void *ctx, enum bh_err err)
{
    struct puller *p = ctx;

    p->reading = false;
    if (p->wire.closed && p->session == NULL) {
        puller_free(p);
        return;
    }
    if (err != BH_OK && err != BH_NOT_FOUND && p->poll != NULL) {
        struct op_call *poll = p->poll;
        p->poll = NULL;
        p->until_ms = now_ms(p) + SILENT_MS;
        op_refuse(poll, FAULT_UNAVAILABLE, "the mailbox cannot be read now");
        return;
    }
    inner_wire_wake(&p->wire);
}

static void read_mail(struct puller *p)
{
    p->wire.mail = false;
    p->reading = true;
    session_pull(p->session, p->after, p->limit, p->peek, on_line, on_read, p);
}

/* Writes the interrupts among the relay's frames, one JSON value each. */
static void add_interrupts(struct puller *p, struct jw *w)
{
    struct str rest = buf_str(&p->wire.got), line;

    while (rest.n > 0 && str_split(&rest, '\n', &line))
        if (str_contains(line, STR("\"interrupt_inbound\"")))
            jw_raw(w, line);
}

static bool has_interrupts(const struct puller *p)
{
    return str_contains(buf_str(&p->wire.got), STR("\"interrupt_inbound\""));
}

/* Answers the poll with what was read so far, maybe nothing. */
static void answer_poll(struct puller *p)
{
    struct op_call *c = p->poll;
    BUF_LOCAL list = BUF_INIT;
    struct jw w = op_begin(c);

    buf_printf(&list, "[%.*s]", STR_FMT(buf_str(&p->out)));
    jw_obj(&w);
    jw_kraw(&w, "deliveries", buf_str(&list));
    jw_karr(&w, "interrupts");
    add_interrupts(p, &w);
    jw_end_arr(&w);
    jw_end_obj(&w);
    buf_reset(&p->wire.got);
    buf_reset(&p->out);
    p->n = 0;
    p->poll = NULL;
    p->until_ms = now_ms(p) + SILENT_MS;
    op_end(c);
}

static void on_turn(struct inner_wire *w)
{
    struct puller *p = container_of(w, struct puller, wire);

    if (p->leaving != NULL &&
        (p->wire.closed || str_contains(buf_str(&p->wire.got), STR("going_idle_ack")))) {
        end(p, FAULT_NOT_FOUND, "this session has ended");
    } else if (p->wire.closed && p->wire.why == CLOSE_REPLACED) {
        end(p, FAULT_EXISTS, taken_over);
    } else if (p->wire.closed && p->wire.why == CLOSE_REVOKED) {
        end(p, FAULT_REFUSED, "this instance's gateway was revoked");
    } else if (p->wire.closed) {
        end(p, FAULT_UNAVAILABLE, "this server is going down; try again");
    } else if (p->poll == NULL || p->reading) {
        return;
    } else if (p->n > 0 || has_interrupts(p)) {
        answer_poll(p);
    } else if (p->wire.mail && p->limit > 0) {
        read_mail(p);
    } else if (now_ms(p) >= p->until_ms) {
        answer_poll(p);
    }
}

static void on_late(struct timer *t)
{
    struct puller *p = container_of(t, struct puller, late);
    int64_t now = now_ms(p);

    if (p->poll != NULL && !http_waits(p->f->server, p->poll->id)) {
        struct op_call *gone = p->poll;
        p->poll = NULL;
        p->until_ms = now + GONE_MS;
        op_answer(gone, STR("{}")); /* nobody reads it */
    }
    if (p->poll == NULL && now >= p->until_ms) {
        struct op_call *leaving = p->leaving;
        p->leaving = NULL;
        if (leaving != NULL)
            op_refuse(leaving, FAULT_UNAVAILABLE, "the mailbox cannot be written now; try again");
        puller_free(p);
        return;
    }
    if (p->poll != NULL && p->key_id[0] != '\0' && !keys_is_good(p->f->keys, str_of(p->key_id))) {
        end(p, FAULT_REFUSED, "its key was revoked, or has expired");
        return;
    }
    inner_wire_wake(&p->wire);
    int64_t left = p->until_ms - now;
    timer_set(loop_clock(p->f->loop), t, left < LOOK_MS && left > 0 ? left : LOOK_MS);
}

void mailbox_check_keys(struct front *f)
{
    if (f->pullers == NULL)
        return;
    list_each (&f->pullers->all, it, nxt)
        on_late(&list_entry(it, struct puller, link)->late);
}

/* ---- the operations ---- */

static struct puller *find(const struct op_call *c)
{
    BUF_LOCAL key = BUF_INIT;

    buf_printf(&key, "%.*s\x1f%.*s", STR_FMT(c->caller.tenant), STR_FMT(c->caller.instance));
    return c->f->pullers != NULL ? map_get(&c->f->pullers->by_key, buf_str(&key)) : NULL;
}

static struct pullers *pullers_of(struct front *f)
{
    if (f->pullers == NULL) {
        f->pullers = xcalloc(1, sizeof *f->pullers);
        list_init(&f->pullers->all);
        list_init(&f->pullers->settlings);
    }
    return f->pullers;
}

static struct puller *puller_new(struct op_call *c, uint64_t number)
{
    const struct caller *who = &c->caller;
    struct puller *p = xcalloc(1, sizeof *p + who->tenant.n + who->instance.n + 2);

    *p = (struct puller){.f = c->f, .number = number};
    inner_wire_init(&p->wire, loop_clock(c->f->loop), on_turn);
    p->wire.mail = true; /* the first poll reads */
    int n = snprintf(p->bytes, who->tenant.n + who->instance.n + 2, "%.*s\x1f%.*s",
                     STR_FMT(who->tenant), STR_FMT(who->instance));
    p->key = str_make(p->bytes, (size_t)n);
    p->until_ms = now_ms(p) + SILENT_MS;
    list_init(&p->link);
    list_append(&pullers_of(c->f)->all, &p->link);
    timer_init(&p->late, on_late);
    return p;
}

static void answer_open(struct op_call *c, const struct puller *p)
{
    struct jw w = op_begin(c);
    struct instance_view v = {0};
    char number[24];

    snprintf(number, sizeof number, "%" PRIu64, p->number);
    relay_instance(c->f->relay, c->caller.tenant, c->caller.instance, &v);
    jw_obj(&w);
    jw_kstr(&w, "session", str_of(number));
    jw_kstr(&w, "instance", c->caller.instance);
    jw_ki64(&w, "waiting", (int64_t)(v.entries - v.parked));
    jw_end_obj(&w);
    op_end(c);
}

static void mailbox_open(struct op_call *c)
{
    const struct op_value *session = op_value(c, "session");
    struct str instance = op_text(c, "instance");
    const struct gateway *gw =
        facts_newest_gateway(c->f->facts, c->caller.tenant, c->caller.instance);
    struct puller *was = find(c);
    uint64_t number = 0;

    if (session->given && !str_to_u64(session->text, &number)) {
        op_refuse(c, FAULT_INVALID, "session is what an earlier call of this operation answered");
    } else if (instance.p != NULL && !str_eq(instance, c->caller.instance)) {
        op_refuse(c, FAULT_REFUSED, "this key acts for the instance \"%.*s\", not for \"%.*s\"",
                  STR_FMT(c->caller.instance), STR_FMT(instance));
    } else if (gw == NULL) {
        op_refuse(c, FAULT_REFUSED,
                  "this instance has no gateway; its operator makes one: bellhop gateway add");
    } else if (was != NULL && number != 0 && number < was->number) {
        op_refuse(c, FAULT_EXISTS, "%s", taken_over);
    } else if (was != NULL && number == was->number && !was->wire.closed) {
        answer_open(c, was);
    } else {
        if (number == 0)
            number = (uint64_t)clock_wall_ms(loop_clock(c->f->loop));
        if (was != NULL && number <= was->number)
            number = was->number + 1;
        struct puller *p = puller_new(c, number);
        if (was != NULL)
            end(was, FAULT_EXISTS, taken_over);
        p->session = session_open_pulling(c->f->relay, gw, &p->wire.wire);
        if (p->session == NULL) {
            puller_free(p);
            op_refuse(c, FAULT_UNAVAILABLE, "this server is going down; try again");
            return;
        }
        map_put(&c->f->pullers->by_key, p->key, p);
        timer_set(loop_clock(c->f->loop), &p->late, LOOK_MS);
        answer_open(c, p);
    }
}

/* The caller's session.  NULL: the refusal has been sent. */
static struct puller *session_of(struct op_call *c)
{
    struct puller *p = find(c);
    uint64_t number;

    if (!str_to_u64(op_text(c, "session"), &number))
        op_refuse(c, FAULT_INVALID, "session is what openMailbox answered");
    else if (p != NULL && p->number > number)
        op_refuse(c, FAULT_EXISTS, "%s", taken_over);
    else if (p == NULL || p->wire.closed || p->number != number)
        op_refuse(c, FAULT_NOT_FOUND, "this session has ended; open it again");
    else
        return p;
    return NULL;
}

static void on_dropped(void *mine)
{
    struct puller *p = mine;

    p->poll = NULL; /* answered, or the server goes down */
}

static void on_leaving_dropped(void *mine)
{
    struct puller *p = mine;

    p->leaving = NULL; /* the same */
}

static void mailbox_pull(struct op_call *c)
{
    const struct op_value *after = op_value(c, "after");
    uint64_t from = 0;

    if (after->given && !str_to_u64(after->text, &from)) {
        op_refuse(c, FAULT_INVALID, "after is the id of a delivery, or 0");
        return;
    }
    struct puller *p = session_of(c);
    if (p == NULL)
        return;
    if (p->reading) {
        op_refuse(c, FAULT_BUSY, "this session reads already; try again");
        return;
    }
    if (p->poll != NULL)
        answer_poll(p); /* of a connection that was lost */
    buf_reset(&p->out); /* read for a poll that nobody waits for any more, behind another cursor */
    p->n = 0;
    p->poll = c;
    snprintf(p->key_id, sizeof p->key_id, "%.*s", STR_FMT(c->caller.key_id));
    op_keep(c, p, on_dropped);
    c->may_end = true;
    p->after = from;
    p->limit = (size_t)op_number(c, "limit", 16);
    p->peek = op_flag(c, "peek");
    p->until_ms = now_ms(p) + op_number(c, "wait", WAIT_S) * 1000;
    p->wire.mail = true;
    on_late(&p->late);
}

/* Settles the deliveries that the argument @name lists.  False: the refusal has been sent. */
static bool read_ids(struct op_call *c, const char *name, uint64_t ids[DONE_MAX], size_t *ret_n)
{
    const struct op_value *v = op_value(c, name);

    for (*ret_n = 0; *ret_n < v->n_texts; (*ret_n)++)
        if (!str_to_u64(v->texts[*ret_n], &ids[*ret_n])) {
            op_refuse(c, FAULT_INVALID, "%s has the ids of deliveries", name);
            return false;
        }
    return true;
}

/* ---- settling ----
 *
 * The answer says that deliveries never come again, so it waits until their end is on disk.  The
 * relay submits the acks of a turn when the turn ends.  A read that is submitted after that waits
 * for them. */

struct settling {      /* a call whose answer is written and waits for the disk */
    struct list link;  /* pullers->settlings */
    struct front *f;   /* borrowed */
    struct op_call *c; /* NULL: nobody waits any more */
    bool acted;        /* an action was performed: its result is told in any case */
    struct timer turn;
    char *tenant, *instance; /* owned */
};

static void settling_free(struct settling *s)
{
    timer_stop(loop_clock(s->f->loop), &s->turn);
    list_remove(&s->link);
    free(s->tenant);
    free(s->instance);
    free(s);
}

static void on_settling_dropped(void *mine)
{
    struct settling *s = mine;

    s->c = NULL;
}

static void on_settling_line(void *ctx, const struct mailbox_line *line)
{
    /* only the end of the read matters */
}

static void on_settled(void *ctx, enum bh_err err)
{
    struct settling *s = ctx;

    if (s->c != NULL && (err == BH_OK || err == BH_NOT_FOUND || s->acted))
        op_end(s->c);
    else if (s->c != NULL)
        op_refuse(s->c, FAULT_UNAVAILABLE, "the mailbox cannot be written now; try again");
    settling_free(s);
}

static void on_settling_turn(struct timer *t)
{
    struct settling *s = container_of(t, struct settling, turn);

    relay_mailbox_show(s->f->relay, str_of(s->tenant), str_of(s->instance), 1, on_settling_line,
                       on_settled, s);
}

/* Answers @c with what was written to op_begin(), once the acks so far are on disk.  @acted: an
 * action was performed, so a refusal, which says that nothing was done, would make the caller
 * repeat it.  If the acks do not reach the disk then, the deliveries come again as repeats. */
static void answer_when_settled(struct op_call *c, bool acted)
{
    struct settling *s = xcalloc(1, sizeof *s);

    *s = (struct settling){.f = c->f, .c = c, .acted = acted};
    s->tenant = str_dup(c->caller.tenant);
    s->instance = str_dup(c->caller.instance);
    list_init(&s->link);
    list_append(&pullers_of(c->f)->settlings, &s->link);
    op_keep(c, s, on_settling_dropped);
    c->may_end = true;
    timer_init(&s->turn, on_settling_turn);
    timer_set(loop_clock(s->f->loop), &s->turn, 0);
}

static void mailbox_done_with(struct op_call *c)
{
    uint64_t ids[DONE_MAX];
    size_t n, settled = 0;

    if (!read_ids(c, "deliveries", ids, &n))
        return;
    for (size_t i = 0; i < n; i++)
        settled += relay_mailbox_done(c->f->relay, c->caller.tenant, c->caller.instance, ids[i]);
    struct jw w = op_begin(c);
    jw_obj(&w);
    jw_ki64(&w, "done", (int64_t)settled);
    jw_end_obj(&w);
    answer_when_settled(c, false);
}

struct answered { /* the deliveries that an action answers */
    struct front *f;
    size_t n;
    uint64_t ids[DONE_MAX];
    char *tenant, *instance; /* in @bytes */
    char bytes[];
};

static void on_acted(struct op_call *c, struct json result, void *ctx)
{
    const struct answered *a = ctx;

    if (json_as_bool(json_get(result, "success"), false))
        for (size_t i = 0; i < a->n; i++)
            relay_mailbox_done(a->f->relay, str_of(a->tenant), str_of(a->instance), a->ids[i]);
    if (c == NULL)
        return;
    struct jw w = op_begin(c);
    jw_value(&w, result);
    answer_when_settled(c, true);
}

/* Writes the action, with the chat that the owner is asked in if it names none. */
static bool write_action(struct op_call *c, struct buf *platform, struct buf *out)
{
    struct json action = op_value(c, "action")->json;
    struct jw w = jw_begin(out);
    BUF_LOCAL chat = BUF_INIT;

    buf_add_str(platform, op_text(c, "platform"));
    if (!op_flag(c, "to_owner")) {
        jw_value(&w, action);
        return true;
    }
    buf_reset(platform);
    if (!relay_owner_chat(c->f->relay, c->caller.tenant, c->caller.instance, platform, &chat)) {
        op_refuse(c, FAULT_REFUSED,
                  "nobody who is linked to this instance has a direct chat with "
                  "it");
        return false;
    }
    jw_obj(&w);
    jw_kstr(&w, "chat_id", buf_str(&chat));
    for (struct json_iter it = {0}; json_next(action, &it);)
        if (!str_eq(it.key, STR("chat_id"))) {
            jw_key_str(&w, it.key);
            jw_value(&w, it.value);
        }
    jw_end_obj(&w);
    return true;
}

static void mailbox_act(struct op_call *c)
{
    const struct caller *who = &c->caller;
    struct answered *a = xcalloc(1, sizeof *a + who->tenant.n + who->instance.n + 2);
    BUF_LOCAL platform = BUF_INIT, action = BUF_INIT;

    a->f = c->f;
    a->tenant = a->bytes;
    a->instance = a->bytes + who->tenant.n + 1;
    memcpy(a->tenant, who->tenant.p, who->tenant.n);
    memcpy(a->instance, who->instance.p, who->instance.n);
    if (read_ids(c, "done", a->ids, &a->n) && write_action(c, &platform, &action))
        chat_act(c, buf_str(&platform), buf_str(&action), on_acted, a);
    else
        free(a);
}

static void mailbox_close(struct op_call *c)
{
    struct puller *p = session_of(c);

    if (p == NULL)
        return;
    if (p->poll != NULL)
        answer_poll(p);
    if (p->leaving != NULL) { /* of a connection that was lost */
        op_refuse(p->leaving, FAULT_BUSY, "another call ends this session");
    } else {
        p->until_ms = now_ms(p) + SILENT_MS; /* for the disk */
        session_data(p->session, STR("{\"type\":\"going_idle\"}\n"));
    }
    p->leaving = c;
    op_keep(c, p, on_leaving_dropped);
    c->may_end = true;
    inner_wire_wake(&p->wire);
}

void mailbox_ops_drop(struct front *f)
{
    if (f->pullers == NULL)
        return;
    list_each (&f->pullers->all, it, nxt) {
        struct puller *p = list_entry(it, struct puller, link);
        p->reading = false; /* the relay drops its reads */
        puller_free(p);
    }
    list_each (&f->pullers->settlings, it, nxt) {
        struct settling *s = list_entry(it, struct settling, link);
        if (s->c != NULL)
            op_keep(s->c, NULL, NULL);
        settling_free(s);
    }
    map_done(&f->pullers->by_key);
    free(f->pullers);
    f->pullers = NULL;
}

#define SESSION(in) \
    { \
        "session", in, OP_TEXT, .flags = OP_REQUIRED, .what = "What openMailbox answered." \
    }

const struct op ops_mailbox[] = {
    {"openMailbox", "POST", "/v1/mailbox", MAY_INSTANCE, mailbox_open,
     "Become the agent of this key's instance: its mail is pulled. A session that was open is "
     "taken "
     "over.",
     .body_may_be_empty = true,
     .args = (const struct op_arg[]){{"instance", IN_BODY, OP_TEXT,
                                      .what = "Which instance the key must act for."},
                                     {"session", IN_BODY, OP_TEXT,
                                      .what = "Open this session again, after an interruption."},
                                     {0}},
     .answer = "{session: text, instance: text, waiting: whole}",
     .answer_what = "The session ends when it does not pull for 20 s.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(REFUSED) | OP_FAULT(EXISTS)},
    {"pullMail", "GET", "/v1/mailbox", MAY_INSTANCE, mailbox_pull,
     "The deliveries behind a cursor, oldest first. Waits for the first one.",
     .args = (const struct op_arg[]){SESSION(IN_QUERY),
                                     {"after", IN_QUERY, OP_TEXT,
                                      .what = "The newest delivery that was read; 0: from the "
                                              "oldest that is not done."},
                                     {"limit", IN_QUERY, OP_WHOLE, .min = 0, .max = LIMIT_MAX,
                                      .initial = "16", .what = "At most so many; 0: only wait."},
                                     {"wait", IN_QUERY, OP_WHOLE, .min = 0, .max = 60,
                                      .initial = "25", .what = "Seconds to wait."},
                                     {"peek", IN_QUERY, OP_BOOL, .initial = "false",
                                      .what = "Look only: they do not count as read."},
                                     {0}},
     .answer = "{deliveries: [{delivery: text, repeat: bool, at: whole, frame: object}], "
               "interrupts: [object]}",
     .answer_what = "repeat: an agent may have read it before. frame: as the contract has it. A "
                    "session that was taken over gets 409.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(REFUSED) | OP_FAULT(NOT_FOUND) | OP_FAULT(EXISTS)},
    {"settleMail", "POST", "/v1/mailbox/done", MAY_INSTANCE, mailbox_done_with,
     "Settle deliveries, so that they are not delivered again.",
     .args = (const struct op_arg[]){{"deliveries", IN_BODY, OP_LIST, .flags = OP_REQUIRED,
                                      .max = DONE_MAX, .what = "Their ids."},
                                     {0}},
     .answer = "{done: whole}", .answer_what = "How many of them waited. It is on disk.",
     .faults = OP_FAULT(INVALID)},
    {"actInChat", "POST", "/v1/mailbox/act", MAY_INSTANCE, mailbox_act,
     "Perform an action of the contract as this key's instance.",
     .args = (const struct op_arg[]){{"action", IN_BODY, OP_OBJECT, .flags = OP_REQUIRED,
                                      .what = "The action: send, edit, react, prompt, ..."},
                                     {"platform", IN_BODY, OP_TEXT,
                                      .what = "Where two platforms have a chat of that id."},
                                     {"to_owner", IN_BODY, OP_BOOL, .initial = "false",
                                      .what = "In the direct chat of a person linked to the "
                                              "instance, whatever chat_id says."},
                                     {"done", IN_BODY, OP_LIST, .max = DONE_MAX,
                                      .what = "These deliveries are done if it succeeds."},
                                     {0}},
     .answer = "object", .answer_what = "The result, as the contract has it.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(REFUSED)},
    {"closeMailbox", "DELETE", "/v1/mailbox", MAY_INSTANCE, mailbox_close,
     "Close the session. The instance sleeps, and is woken for mail.",
     .args = (const struct op_arg[]){SESSION(IN_QUERY), {0}}, .answer = "{ok: bool}",
     .answer_what = "The sleep is on disk.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(NOT_FOUND) | OP_FAULT(EXISTS)},
    {0},
};
