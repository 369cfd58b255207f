/* replies.c - design.  (replies.h has the contract.)
 *
 * Each agent that has replies has a tally of their number and bytes.  A pass over all records
 * (store/sweep.h) makes the tallies exact.  The pass notes the newest cursor when it begins and
 * counts records up to that cursor; newer replies are counted as they are written.  Nothing is
 * trimmed during a pass; its end trims all agents. */
#include "dispatch/replies.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "core/descriptor.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/track.h"
#include "dispatch/records.h"
#include "dispatch/request.h"
#include "dispatch/sessions.h"
#include "store/sweep.h"

/* ---- counting ---- */

/* The stored value is sent to readers of replies as it is. */
static const struct record_field reply_fields[] = {
    RECORD_FIELD(struct reply, tenant, "tenant", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct reply, agent, "agent", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct reply, cursor, "key", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct reply, of, "cursor", RECORD_NEEDED),
    RECORD_FIELD(struct reply, content, "content", 0),
    RECORD_FIELD(struct reply, sent_at_ms, "sent_at", 0),
    RECORD_FIELD(struct reply, session, "session_id", 0),
    RECORD_FIELD(struct reply, correlation_id, "correlation_id", 0),
    RECORD_FIELD(struct reply, in_reply_to, "in_reply_to", 0),
    RECORD_FIELD(struct reply, dispatch_id, "dispatch_id", 0),
};
const struct record_form reply_form = RECORD_FORM("reply", struct reply, reply_fields);

#define REST_MS 3600000
#define SQUEEZE_MS 1000
enum { TRIM_EVERY = 64, TRIM_AT_ONCE = 256 };

struct tally { /* the replies of one agent */
    size_t bytes, n;
    size_t found_bytes, found_n;     /* counted by the pass under way */
    size_t written_bytes, written_n; /* since the pass began */
    uint64_t goal;                   /* trim down to this many bytes; 0: no goal */
    struct record_scan *scan;        /* the trim under way */
    struct replies *t;
    char prefix[]; /* tenant \x1f agent \x1f */
};

struct replies {
    struct dispatch *d;  /* borrowed */
    struct list acts;    /* sends whose reply is being written */
    struct map tallies;  /* prefix -> tally; owned */
    struct sweep *sweep; /* owned */
    bool known, passing; /* the first pass has ended; a pass is under way */
    uint64_t mark;       /* the newest cursor when the pass began */
    uint64_t written;    /* bytes, since the start */
    int64_t squeezed_ms; /* time of the last squeeze() */
};

static struct tally *tally_of(struct replies *t, struct str prefix)
{
    struct tally *y = map_get(&t->tallies, prefix);

    if (y == NULL) {
        y = xcalloc(1, sizeof *y + prefix.n + 1);
        memcpy(y->prefix, prefix.p, prefix.n);
        y->t = t;
        map_put(&t->tallies, str_of(y->prefix), y);
    }
    return y;
}

static void set_bytes(struct tally *y, size_t now)
{
    if (y->t->d->env.ledger == NULL)
        y->bytes = now;
    ledger_correct(y->t->d->env.ledger, LIMIT_REPLY_BYTES, &y->bytes, now);
}

static struct limit_bounds bounds_of(const struct replies *t)
{
    const struct ledger *l = t->d->env.ledger;

    return l != NULL ? ledger_bounds(l, LIMIT_REPLY_BYTES) : (struct limit_bounds){0};
}

/* ---- trimming the oldest ---- */

static bool is_too_much(const struct tally *y)
{
    return y->n > 1 &&
           (y->n > y->t->d->env.settings->replies || (y->goal != 0 && y->bytes > y->goal));
}

static void trim(struct tally *y);

static void on_oldest(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct tally *y = ctx;
    struct buf end = BUF_INIT;
    size_t i = 0;

    y->scan = NULL;
    for (; err == BH_OK && i < s->n_records && is_too_much(y) && !y->t->passing; i++) {
        size_t bytes = s->records[i].key.n + s->records[i].value.n;
        set_bytes(y, bytes < y->bytes ? y->bytes - bytes : 0);
        y->n--;
    }
    if (i == 0)
        return;
    buf_add_str(&end, s->records[i - 1].key);
    buf_add_c(&end, '\x01'); /* includes this key */
    records_clear(y->t->d->env.store, reply_form.ns, str_of(y->prefix), buf_str(&end));
    buf_done(&end);
    if (is_too_much(y))
        trim(y);
    else
        y->goal = 0;
}

static void trim(struct tally *y)
{
    if (y->t->known && !y->t->passing && y->scan == NULL && is_too_much(y))
        y->scan = records_scan(y->t->d->env.store, reply_form.ns, str_of(y->prefix), STR_NULL,
                               TRIM_AT_ONCE, false, on_oldest, y);
}

/* The total is nearly used up: trims every agent to a fair share. */
static void squeeze(struct replies *t)
{
    int64_t now_ms = clock_now_ms(t->d->env.clock);
    uint64_t fair = bounds_of(t).all / 4 * 3 / (map_count(&t->tallies) + 1);
    void *y;

    if (now_ms - t->squeezed_ms < SQUEEZE_MS && t->squeezed_ms != 0)
        return;
    t->squeezed_ms = now_ms;
    for (size_t pos = 0; map_next(&t->tallies, &pos, &y);) {
        struct tally *of = y;
        of->goal = fair;
        trim(of);
    }
}

static bool reply_room_take(struct replies *t, struct str prefix, size_t bytes)
{
    struct ledger *l = t->d->env.ledger;
    struct limit_bounds b = bounds_of(t);
    struct tally *y = tally_of(t, prefix);
    bool ok = t->known || b.all == 0 || t->written + bytes <= b.all / 8;

    ok =
        ok && ledger_change(l, NULL, LIMIT_REPLY_BYTES, &y->bytes, y->bytes + bytes) == LIMIT_TAKEN;
    if (b.all != 0 && ledger_held(l, NULL, LIMIT_REPLY_BYTES) > b.all / 8 * 7)
        squeeze(t);
    if (!ok)
        return false;
    t->written += bytes;
    y->written_bytes += bytes;
    y->written_n++;
    y->n++;
    y->goal = b.each != 0 && y->bytes > b.each ? b.each / 8 * 7 : y->goal;
    if (y->n >= (size_t)t->d->env.settings->replies + TRIM_EVERY || y->goal != 0)
        trim(y);
    return true;
}

/* ---- a pass ---- */

static void on_pass_begin(void *ctx)
{
    struct replies *t = ctx;
    void *y;

    t->passing = true;
    t->mark = t->d->next_number;
    for (size_t pos = 0; map_next(&t->tallies, &pos, &y);) {
        struct tally *of = y;
        of->found_bytes = of->found_n = of->written_bytes = of->written_n = 0;
    }
}

static bool on_pass_record(void *ctx, struct str key, struct str value)
{
    struct replies *t = ctx;

    if (key.n <= REPLY_CURSOR_CHARS)
        return true;
    struct str cursor = str_skip(key, key.n - REPLY_CURSOR_CHARS);
    if (records_number(cursor, REPLY_CURSOR_CHARS) > t->mark)
        return false;
    int64_t keep_ms = t->d->env.retention_ms != NULL ? *t->d->env.retention_ms : 0;
    struct reply r;
    if (keep_ms > 0 && record_read(t->d->records, &reply_form, key, value, &r) &&
        r.sent_at_ms < clock_wall_ms(t->d->env.clock) - keep_ms)
        return true;
    struct tally *y = tally_of(t, str_make(key.p, key.n - REPLY_CURSOR_CHARS));
    y->found_bytes += key.n + value.n;
    y->found_n++;
    return false;
}

static void on_pass_end(void *ctx, bool ok)
{
    struct replies *t = ctx;
    uint64_t each = bounds_of(t).each;
    void *y;

    if (!ok)
        return;
    t->passing = false;
    t->known = true;
    for (size_t pos = 0; map_next(&t->tallies, &pos, &y);) {
        struct tally *of = y;
        set_bytes(of, of->found_bytes + of->written_bytes);
        of->n = of->found_n + of->written_n;
        of->goal = each != 0 && of->bytes > each ? each / 8 * 7 : 0;
        trim(of);
    }
}

static const struct sweep_ops pass_ops = {.begin = on_pass_begin,
                                          .goes = on_pass_record,
                                          .end = on_pass_end};

#define MAX_ANSWER 1000 /* replies in one answer */

/* ---- keeping ---- */

struct store_put *reply_keep(struct dispatch *d, struct reply *r,
                             char ret_cursor[REPLY_CURSOR_CHARS + 1], store_put_cb *done, void *ctx)
{
    struct buf key = BUF_INIT, value = BUF_INIT, prefix = BUF_INIT;

    snprintf(ret_cursor, REPLY_CURSOR_CHARS + 1, "%016llx", (unsigned long long)dispatch_number(d));
    r->cursor = r->of = str_of(ret_cursor);
    r->sent_at_ms = clock_wall_ms(d->env.clock);
    if (r->content.p == NULL)
        r->content = STR("");
    record_write(&reply_form, NULL, r, &key, &value);
    record_write_prefix(&reply_form, r, 2, &prefix);
    struct store_put *put = NULL;
    if (reply_room_take(d->replies, buf_str(&prefix), key.n + value.n)) {
        struct store_kv item = {KV_PUT, reply_form.ns, buf_str(&key), buf_str(&value)};
        put = store_put(d->env.store, &item, 1, true, done, ctx);
        d->n.replied++;
    }
    buf_done(&prefix);
    buf_done(&key);
    buf_done(&value);
    return put;
}

/* ---- messages of agents ---- */

const struct descriptor dispatch_descriptor = {
    .platform = "relay",
    .label = "Relay",
    .max_message_length = 4096,
    .markdown_dialect = "plain",
    .len_unit = "chars",
    .supports_edit = true,
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING | 1u << ACTION_GET_CHAT_INFO,
};
const struct outlet dispatch_outlet = {.platform = "relay",
                                       .answers = true,
                                       .bot = "",
                                       .descriptor = &dispatch_descriptor};

struct act {
    struct list link; /* replies->acts */
    struct dispatch *d;
    struct action_id id;
    struct store_put *put;
    struct record_scan *scan; /* of an edit: looks for the reply */
    struct buf content;       /* of an edit */
    char cursor[REPLY_CURSOR_CHARS + 1];
};

static struct act *act_new(struct dispatch *d, struct action_id id)
{
    struct act *x = xcalloc(1, sizeof *x);

    *x = (struct act){.d = d, .id = id};
    list_append(&d->replies->acts, &x->link);
    return x;
}

static void act_free(struct act *x)
{
    list_remove(&x->link);
    store_put_cancel(&x->put);
    records_cancel(&x->scan);
    buf_done(&x->content);
    free(x);
}

static void act_end(struct act *x, const struct action_result *result)
{
    relay_result(x->d->env.relay, x->id, result);
    act_free(x);
}

static void on_kept(void *ctx, enum bh_err err)
{
    struct act *x = ctx;
    struct action_result result = {.success = err == BH_OK};

    x->put = NULL;
    if (err == BH_OK)
        result.message_id = str_of(x->cursor);
    else
        result.error = err == BH_BUSY
                           ? STR(ACTION_ERROR_TRANSIENT "there is no room for replies now")
                           : STR(ACTION_ERROR_TRANSIENT "the reply could not be kept");
    act_end(x, &result);
}

static bool is_final(const struct action *a)
{
    return a->final || json_as_bool(json_get(a->metadata, "notify"), false);
}

/* Stores a message of the agent, and adds it to the answer of the request it belongs to. */
static void take_reply(struct dispatch *d, struct action_id id, const struct action_from *from,
                       const struct action *a, struct reply *r)
{
    struct act *x = act_new(d, id);

    r->tenant = from->tenant;
    r->content = a->content;
    r->in_reply_to = r->dispatch_id = a->reply_to;
    struct asking *w = asked_find(d, from->tenant, a->chat_id, a->reply_to, r);

    session_seen(d, r->tenant, r->agent, r->session);
    x->put = reply_keep(d, r, x->cursor, on_kept, x);
    if (x->put == NULL)
        on_kept(x, BH_BUSY);
    else if (w != NULL)
        asked_say(w, str_of(x->cursor), a->content, is_final(a));
    else
        track_answered(d, from->tenant, r->agent, r->dispatch_id);
}

/* ---- replies that are posted ---- */

struct replying {
    struct dispatch_call call;
    struct buf capability, correlation, agent, dispatch, content; /* of struct dispatch_said */
    bool by_url, final;
    char cursor[REPLY_CURSOR_CHARS + 1];
};

static void replying_free(struct dispatch_call *c)
{
    struct replying *w = container_of(c, struct replying, call);

    buf_wipe(&w->capability);
    buf_done(&w->correlation);
    buf_done(&w->agent);
    buf_done(&w->dispatch);
    buf_done(&w->content);
}

static void on_reply_kept(void *ctx, enum bh_err err)
{
    struct replying *w = ctx;

    w->call.put = NULL;
    if (err == BH_OK) {
        call_keep(&w->call, false);
        return;
    }
    call_fail_store(&w->call, BH_UNAVAILABLE);
    call_end(&w->call);
}

/* Keeps the reply and tells the request @to (NULL: none waits).  False: the fault is set. */
static bool say(struct replying *w, struct asking *to, struct reply *r)
{
    struct dispatch_call *c = &w->call;
    struct jw j = jw_begin(&c->json);
    bool taken = to != NULL && !asked_is_late(to);

    r->content = buf_str(&w->content);
    r->in_reply_to = r->dispatch_id;
    c->put = reply_keep(c->d, r, w->cursor, on_reply_kept, w);
    if (c->put == NULL) {
        fault_set(&c->fault, FAULT_BUSY, "There is no room for replies now (limits.reply_bytes).");
        return false;
    }
    jw_obj(&j);
    jw_kstr(&j, "cursor", str_of(w->cursor));
    jw_kbool(&j, "taken", taken);
    jw_end_obj(&j);
    if (to != NULL)
        asked_say(to, str_of(w->cursor), buf_str(&w->content), w->final);
    else
        track_answered(c->d, r->tenant, r->agent, r->dispatch_id);
    return true;
}

/* Finds the request, or else the agent, and keeps the reply.  False: the fault is set. */
static bool find_and_say(struct replying *w)
{
    struct dispatch_call *c = &w->call;
    struct str named = w->agent.n > 0 ? buf_str(&w->agent) : STR_NULL;
    struct dispatch_who who = {.caller = {.tenant = str_of(c->tenant), .agent = named}};
    struct reply r = {.tenant = str_of(c->tenant), .correlation_id = buf_str(&w->correlation)};
    struct asking *to = NULL;

    if (w->by_url)
        to = asked_by_url(c->d, buf_str(&w->capability));
    else if (named.p != NULL)
        to = asked_by_correlation(c->d, &who, r.correlation_id, named);
    if (to != NULL) {
        asked_describe(to, &r);
        if (w->correlation.n == 0 || str_eq(r.correlation_id, buf_str(&w->correlation)))
            return say(w, to, &r);
        fault_set(&c->fault, FAULT_INVALID,
                  "This URL is for a request with another correlation_id.");
        return false;
    }
    if (w->by_url || named.p == NULL) {
        fault_set(&c->fault, FAULT_NOT_FOUND,
                  w->by_url ? "This request does not wait any more: it has its answer, or its time "
                              "is over."
                            : "No request with this correlation_id waits. A reply to something "
                              "else needs agent_id, or a key made with --agent.");
        return false;
    }
    r.agent = named;
    if (w->dispatch.n > 0)
        r.dispatch_id = buf_str(&w->dispatch);
    return say(w, NULL, &r);
}

static void reply_go(struct dispatch_call *c)
{
    if (!find_and_say(container_of(c, struct replying, call)))
        call_end_later(c);
}

/* Sets w->agent to the agent that this caller answers for; of a reply URL it stays empty.  False:
 * the fault is set. */
static bool reply_as(struct replying *w, const struct dispatch_who *who, struct str agent_id)
{
    struct str session, named = agent_id.p != NULL ? agent_id : who->caller.agent;
    struct asking *to = NULL;
    struct reply r = {0};

    if (named.p != NULL) {
        struct recipient *a = call_agent(&w->call, who, named, &session);
        if (a == NULL)
            return false;
        if (!call_may_answer(who, a)) {
            call_fail_unknown(&w->call, named);
            return false;
        }
        buf_add_z(&w->agent, a->id);
    } else if (!w->by_url) {
        to = asked_by_correlation(w->call.d, who, buf_str(&w->correlation), STR_NULL);
        if (to != NULL)
            asked_describe(to, &r);
        buf_add_str(&w->agent, r.agent);
    }
    return true;
}

bool dispatch_reply_who(struct dispatch *d, struct str capability, struct caller *ret)
{
    struct asking *w = asked_by_url(d, capability);
    struct reply r = {0};

    if (w == NULL)
        return false;
    asked_describe(w, &r);
    *ret = (struct caller){.tenant = r.tenant, .identity = r.agent, .agent = r.agent};
    return true;
}

struct dispatch_call *dispatch_reply(struct dispatch *d, const struct dispatch_who *who,
                                     const struct dispatch_said *said, struct str key,
                                     dispatch_cb *done, void *ctx)
{
    struct replying *w = call_new(d, sizeof *w, replying_free, done, ctx);
    struct dispatch_call *c = &w->call;

    w->by_url = said->capability.p != NULL;
    w->final = said->final;
    buf_add_str(&w->capability, said->capability);
    buf_add_str(&w->correlation, said->correlation_id);
    buf_add_str(&w->dispatch, said->dispatch_id);
    buf_add_str(&w->content, said->content);
    c->tenant = str_dup(who->caller.tenant);
    c->at_ms = clock_wall_ms(d->env.clock);
    c->word = "reply";
    if (!reply_as(w, who, said->agent_id)) {
        call_end_later(c);
        return c;
    }
    c->agent = str_dup(w->by_url ? who->caller.agent : buf_str(&w->agent));
    buf_add_str(&c->key, key);
    if (key.n == 0 || call_has_room(c, who->caller.tenant))
        call_once(c, reply_go, NULL);
    else
        call_end_later(c);
    return c;
}

/* ---- edits ---- */

static void on_reply_found(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct act *x = ctx;
    struct replies *t = x->d->replies;
    struct action_result gone = {.error = STR("the message is not kept any more")};
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct reply r;

    x->scan = NULL;
    if (err != BH_OK) {
        on_kept(x, err);
        return;
    }
    if (s->n_records == 0 ||
        !record_read(x->d->records, &reply_form, s->records[0].key, s->records[0].value, &r)) {
        act_end(x, &gone);
        return;
    }
    r.content = buf_str(&x->content);
    record_write(&reply_form, NULL, &r, &key, &value);
    struct tally *y = tally_of(t, str_make(key.p, key.n - REPLY_CURSOR_CHARS));
    if (y->bytes + value.n > s->records[0].value.n)
        set_bytes(y, y->bytes + value.n - s->records[0].value.n);
    struct store_kv item = {KV_PUT, reply_form.ns, buf_str(&key), buf_str(&value)};
    x->put = store_put(x->d->env.store, &item, 1, true, on_kept, x);
    buf_done(&key);
    buf_done(&value);
}

/* Replaces the text of a kept reply, and of the answer it is part of. */
static void edit_reply(struct dispatch *d, struct action_id id, const struct action_from *from,
                       const struct action *a, struct str agent)
{
    struct reply of = {.tenant = from->tenant, .agent = agent};
    struct buf key = BUF_INIT;
    struct act *x = act_new(d, id);

    asked_edit(d, from->tenant, a->chat_id, a->message_id, a->content, is_final(a));
    buf_add_str(&x->content, a->content);
    snprintf(x->cursor, sizeof x->cursor, "%.*s", STR_FMT(a->message_id));
    record_write_prefix(&reply_form, &of, 2, &key);
    buf_add_str(&key, str_of(x->cursor));
    x->scan = records_scan(d->env.store, reply_form.ns, buf_str(&key), STR_NULL, 1, false,
                           on_reply_found, x);
    buf_done(&key);
}

void dispatch_act(struct dispatch *d, struct action_id id, const struct action_from *from,
                  const struct action *a)
{
    struct action_result result = {.success = true};
    struct buf agent = BUF_INIT, session = BUF_INIT;
    struct reply r = {0};

    if (!payload_chat_read(a->chat_id, &agent, &session)) {
        result = (struct action_result){.error = STR(ACTION_ERROR_NOT_ROUTED)};
        relay_result(d->env.relay, id, &result);
    } else if (a->op == ACTION_SEND || (a->op == ACTION_DRAFT && a->final)) {
        r.agent = buf_str(&agent);
        if (session.n > 0)
            r.session = buf_str(&session);
        take_reply(d, id, from, a, &r);
    } else if (a->op == ACTION_EDIT) {
        edit_reply(d, id, from, a, buf_str(&agent));
    } else {
        if (a->op == ACTION_TYPING || a->op == ACTION_DRAFT) /* nobody sees an unfinished text */
            asked_typing(d, from->tenant, a->chat_id);
        if (a->op == ACTION_GET_CHAT_INFO)
            result = (struct action_result){.success = true,
                                            .chat_name = STR("dispatch"),
                                            .chat_type = STR("dm")};
        relay_result(d->env.relay, id, &result);
    }
    buf_done(&agent);
    buf_done(&session);
}

/* ---- reading ---- */

struct replies_reading {
    struct dispatch_call call;
    struct record_scan *scan;
    char *after; /* owned; NULL: from the oldest */
};

static void reading_free(struct dispatch_call *c)
{
    struct replies_reading *w = container_of(c, struct replies_reading, call);

    records_cancel(&w->scan);
    free(w->after);
}

static void on_read(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct replies_reading *w = ctx;
    struct jw j = jw_begin(&w->call.json);
    struct str next = str_of(w->after != NULL ? w->after : "");

    w->scan = NULL;
    if (err != BH_OK) {
        fault_set(&w->call.fault, FAULT_UNAVAILABLE, "The store cannot be read now.");
        call_end(&w->call);
        return;
    }
    jw_obj(&j);
    jw_karr(&j, "replies");
    for (size_t i = 0; i < s->n_records; i++) {
        struct str key = s->records[i].key;
        jw_raw(&j, s->records[i].value);
        next = str_skip(key, key.n - REPLY_CURSOR_CHARS);
    }
    jw_end_arr(&j);
    jw_kstr(&j, "next", next);
    jw_end_obj(&j);
    call_end(&w->call);
}

struct dispatch_call *dispatch_replies(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct str after, size_t limit,
                                       dispatch_cb *done, void *ctx)
{
    struct replies_reading *w = call_new(d, sizeof *w, reading_free, done, ctx);
    struct buf prefix = BUF_INIT, from = BUF_INIT;
    struct str session;
    struct recipient *a = call_agent(&w->call, who, address, &session);

    bool ok = after.n == 0 || after.n == REPLY_CURSOR_CHARS;
    for (size_t i = 0; i < after.n; i++)
        ok = ok && hex_value(after.p[i]) >= 0;
    if (a != NULL && !ok) {
        fault_set(&w->call.fault, FAULT_INVALID, "after is no cursor of a reply.");
        a = NULL;
    }
    if (a == NULL) {
        call_end_later(&w->call);
        return &w->call;
    }
    struct reply of = {.tenant = str_of(a->tenant), .agent = str_of(a->id)};
    record_write_prefix(&reply_form, &of, 2, &prefix);
    if (!str_is_empty(after)) {
        w->after = str_dup(after);
        buf_add_str(&from, buf_str(&prefix));
        buf_add_str(&from, after);
    }
    w->scan =
        records_scan(d->env.store, reply_form.ns, buf_str(&prefix),
                     w->after != NULL ? buf_str(&from) : STR_NULL,
                     limit == 0 || limit > MAX_ANSWER ? MAX_ANSWER : limit, false, on_read, w);
    buf_done(&prefix);
    buf_done(&from);
    return &w->call;
}

/* ---- life ---- */

struct replies *replies_new(struct dispatch *d)
{
    struct replies *t = xcalloc(1, sizeof *t);

    t->d = d;
    list_init(&t->acts);
    t->sweep = sweep_start(d->env.store, d->env.clock, reply_form.ns, REST_MS, &pass_ops, t);
    return t;
}

void replies_free(struct replies *t)
{
    void *y;

    if (t == NULL)
        return;
    list_each (&t->acts, it, nxt)
        act_free(list_entry(it, struct act, link));
    sweep_stop(&t->sweep);
    for (size_t pos = 0; map_next(&t->tallies, &pos, &y);) {
        records_cancel(&((struct tally *)y)->scan);
        set_bytes(y, 0);
        free(y);
    }
    map_done(&t->tallies);
    free(t);
}
