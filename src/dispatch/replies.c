/* replies.c - (replies.h has the contract.)  How many there are is reply_room.h's. */
#include "dispatch/replies.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "core/descriptor.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/records.h"
#include "dispatch/reply_room.h"
#include "dispatch/request.h"

#define MAX_ANSWER 1000 /* replies in one answer */

struct replies {
    struct dispatch *d;      /* borrowed */
    struct reply_room *room; /* owned */
    struct list acts;        /* sends whose reply is on its way to the disk */
};

static void write_prefix(struct buf *out, struct str tenant, struct str agent)
{
    buf_add_str(out, tenant);
    buf_add_c(out, '\x1f');
    buf_add_str(out, agent);
    buf_add_c(out, '\x1f');
}

/* ---- keeping ---- */

struct store_put *reply_keep(struct dispatch *d, const struct reply *r,
                             char ret_cursor[REPLY_CURSOR_CHARS + 1], store_put_cb *done, void *ctx)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct jw w = jw_begin(&value);

    snprintf(ret_cursor, REPLY_CURSOR_CHARS + 1, "%016llx", (unsigned long long)dispatch_number(d));
    write_prefix(&key, r->tenant, r->agent);
    jw_obj(&w);
    jw_kstr(&w, "cursor", str_of(ret_cursor));
    jw_kstr(&w, "content", r->content);
    jw_ki64(&w, "sent_at", clock_wall_ms(d->env.clock));
    jw_kstr_opt(&w, "session_id", r->session);
    jw_kstr_opt(&w, "correlation_id", r->correlation_id);
    jw_kstr_opt(&w, "in_reply_to", r->in_reply_to);
    jw_kstr_opt(&w, "dispatch_id", r->dispatch_id);
    jw_end_obj(&w);
    struct store_put *put = NULL;
    if (reply_room_take(d->replies->room, buf_str(&key), key.n + REPLY_CURSOR_CHARS + value.n)) {
        buf_add_z(&key, ret_cursor);
        struct store_kv item = {KV_PUT, REPLY_NS, buf_str(&key), buf_str(&value)};
        put = store_put(d->env.store, &item, 1, true, done, ctx);
        d->n.replied++;
    }
    buf_done(&key);
    buf_done(&value);
    return put;
}

/* ---- what an agent sends ---- */

const struct descriptor dispatch_descriptor = {
    .platform = "relay",
    .label = "Relay",
    .max_message_length = 4096,
    .markdown_dialect = "plain",
    .len_unit = "chars",
    .ops = 1u << ACTION_SEND | 1u << ACTION_TYPING | 1u << ACTION_GET_CHAT_INFO,
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
    char cursor[REPLY_CURSOR_CHARS + 1];
};

static void on_kept(void *ctx, enum bh_err err)
{
    struct act *x = ctx;
    struct action_result result = {.success = err == BH_OK};

    if (err == BH_OK)
        result.message_id = str_of(x->cursor);
    else
        result.error = err == BH_BUSY
                           ? STR(ACTION_ERROR_TRANSIENT "there is no room for replies now")
                           : STR(ACTION_ERROR_TRANSIENT "the reply could not be kept");
    relay_result(x->d->env.relay, x->id, &result);
    list_remove(&x->link);
    free(x);
}

static void keep_sent(struct dispatch *d, struct action_id id, const struct reply *r)
{
    struct act *x = xcalloc(1, sizeof *x);

    x->d = d;
    x->id = id;
    list_append(&d->replies->acts, &x->link);
    x->put = reply_keep(d, r, x->cursor, on_kept, x);
    if (x->put == NULL)
        on_kept(x, BH_BUSY);
}

/* What the agent said, into the chat of (agent, session). */
static void take_reply(struct dispatch *d, struct action_id id, const struct action_from *from,
                       const struct action *a, struct reply *r)
{
    struct buf correlation = BUF_INIT, dispatch_id = BUF_INIT;

    r->tenant = from->tenant;
    r->content = a->content;
    r->in_reply_to = r->dispatch_id = a->reply_to;
    if (asked_answer(d, from->tenant, a->chat_id, a->reply_to, a->content, &correlation,
                     &dispatch_id)) {
        r->correlation_id = buf_str(&correlation);
        r->dispatch_id = buf_str(&dispatch_id);
    }
    keep_sent(d, id, r);
    buf_done(&correlation);
    buf_done(&dispatch_id);
}

void dispatch_act(struct dispatch *d, struct action_id id, const struct action_from *from,
                  const struct action *a)
{
    struct action_result result = {.success = true};
    struct buf agent = BUF_INIT, session = BUF_INIT;

    if (!payload_chat_read(a->chat_id, &agent, &session)) {
        result = (struct action_result){.error = STR(ACTION_ERROR_NOT_ROUTED)};
        relay_result(d->env.relay, id, &result);
    } else if (a->op == ACTION_SEND) {
        struct reply r = {.agent = buf_str(&agent)};
        if (session.n > 0)
            r.session = buf_str(&session);
        take_reply(d, id, from, a, &r);
    } else {
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

struct reading {
    struct dispatch_call call;
    struct record_scan *scan;
    char *after; /* owned; NULL: from the oldest */
};

static void reading_free(struct dispatch_call *c)
{
    struct reading *w = container_of(c, struct reading, call);

    records_cancel(&w->scan);
    free(w->after);
}

static void on_read(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct reading *w = ctx;
    struct jw j = jw_begin(&w->call.json);
    struct str next = str_of(w->after != NULL ? w->after : "");

    w->scan = NULL;
    if (err != BH_OK) {
        fault_set(&w->call.fault, FAULT_UNAVAILABLE, "The store cannot be read now.");
        call_end(&w->call);
        return;
    }
    jw_obj(&j);
    jw_key(&j, "replies");
    jw_arr(&j);
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

static bool cursor_ok(struct str cursor)
{
    for (size_t i = 0; i < cursor.n; i++)
        if (hex_value(cursor.p[i]) < 0)
            return false;
    return cursor.n == REPLY_CURSOR_CHARS;
}

struct dispatch_call *dispatch_replies(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct str after, size_t limit,
                                       dispatch_cb *done, void *ctx)
{
    struct reading *w = call_new(d, sizeof *w, reading_free, done, ctx);
    struct buf prefix = BUF_INIT, from = BUF_INIT;
    struct str session;
    struct recipient *a = call_agent(&w->call, who, address, &session);

    if (a != NULL && !str_is_empty(after) && !cursor_ok(after)) {
        fault_set(&w->call.fault, FAULT_INVALID, "after is no cursor of a reply.");
        a = NULL;
    }
    if (a == NULL) {
        call_end_later(&w->call);
        return &w->call;
    }
    write_prefix(&prefix, str_of(a->tenant), str_of(a->id));
    if (!str_is_empty(after)) {
        w->after = str_dup(after);
        buf_add_str(&from, buf_str(&prefix));
        buf_add_str(&from, after);
    }
    w->scan =
        records_scan(d->env.store, REPLY_NS, buf_str(&prefix),
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
    t->room = reply_room_new(d);
    list_init(&t->acts);
    return t;
}

void replies_free(struct replies *t)
{
    if (t == NULL)
        return;
    list_each (&t->acts, it, nxt) {
        struct act *x = list_entry(it, struct act, link);
        store_put_cancel(&x->put);
        free(x);
    }
    reply_room_free(t->room);
    free(t);
}
