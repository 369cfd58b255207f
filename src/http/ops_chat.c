/* ops_chat.c - the tools chat_* and the resources bellhop://...: an MCP client reads and answers an
 * instance's chats as its agent.
 *
 * Reading shows the mailbox as `bellhop mailbox show` does and changes nothing.  A client that
 * passes the cursor of a message acknowledges everything up to that message, and chat_read settles
 * those entries.  So an answer that a client lost is read again.  While a gateway of the instance
 * is connected, the gateway reads the mail and chat_read is refused.
 *
 * Sending is one action through a session without a socket.  The session says no hello, so it
 * receives nothing; its action passes the same guard and the same limits as a gateway's.
 *
 *      chat_send -> session_open, outbound -> guard -> platform
 *                              result -> inner_wire -> the turn ends -> answer, session_closed
 *
 * The relay's reads cannot be cancelled, so an ask outlives its call and is freed when it ends. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/rand.h"
#include "core/event.h"
#include "http/media_route.h"
#include "http/op.h"
#include "mcp/mcp.h"
#include "net/loop.h"
#include "relay/relay.h"
#include "tenancy/facts.h"

/* ---- chat_send ---- */

struct send {
    struct inner_wire wire;
    struct list link;  /* front->chat_sends */
    struct op_call *c; /* NULL: nobody waits any more */
    struct session *session;
    const struct gateway *gw; /* borrowed from the facts, which keep tombstones */
    chat_acted_cb *told;
    void *ctx; /* of @told; owned */
};

static void send_free(struct send *d)
{
    if (d->session != NULL)
        session_closed(d->session, CLOSE_CODE_NORMAL);
    list_remove(&d->link);
    inner_wire_done(&d->wire);
    free(d->ctx);
    free(d);
}

static void on_sent(struct op_call *c, struct json result, void *ctx)
{
    struct str error = json_str(result, "error");

    if (c == NULL)
        return;
    if (json_as_bool(json_get(result, "success"), false)) {
        struct jw w = op_begin(c);
        jw_obj(&w);
        jw_kbool(&w, "success", true);
        jw_kstr_opt(&w, "message_id", json_str(result, "message_id"));
        jw_end_obj(&w);
        op_end(c);
    } else {
        op_refuse(c, FAULT_REFUSED, "not sent: %.*s",
                  STR_FMT(error.p != NULL ? error : STR("no reason given")));
    }
}

static void on_turn(struct inner_wire *w)
{
    struct send *d = container_of(w, struct send, wire);
    struct json_parser *parser = json_parser_new();
    struct str rest = buf_str(&w->got), line;
    struct json doc;
    bool found = false; /* the result of the action was among the lines */

    while (!found && rest.n > 0 && str_split(&rest, '\n', &line)) {
        found =
            json_parse(parser, line, &doc) && str_eq(json_str(doc, "type"), STR("outbound_result"));
        if (found)
            d->told(d->c, json_get(doc, "result"), d->ctx);
    }
    json_parser_free(parser);
    if (!found && w->closed && d->c != NULL)
        op_refuse(d->c, FAULT_UNAVAILABLE,
                  d->session == NULL ? "not sent: this server is going down"
                                     : "this server is going down, and the message may have been "
                                       "sent: look before you repeat it");
    buf_reset(&w->got);
    if (found || w->closed)
        send_free(d);
}

static void on_dropped(void *mine)
{
    struct send *d = mine;

    d->c = NULL; /* the send itself continues */
}

static void write_outbound(struct buf *out, struct str platform, struct str action)
{
    struct jw w = jw_begin(out);
    struct rand rand = RAND_SYSTEM;
    BUF_LOCAL id = BUF_INIT;
    uint8_t raw[8];

    rand_bytes(&rand, raw, sizeof raw);
    buf_add_z(&id, "mcp-");
    hex_add(&id, raw, sizeof raw);
    jw_obj(&w);
    jw_kstr(&w, "type", STR("outbound"));
    jw_kstr(&w, "requestId", buf_str(&id));
    jw_kstr_opt(&w, "platform", platform);
    jw_kraw(&w, "action", action);
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

void chat_act(struct op_call *c, struct str platform, struct str action, chat_acted_cb *told,
              void *ctx)
{
    struct front *f = c->f;
    const struct caller *who = &c->caller;
    const struct gateway *gw = facts_newest_gateway(f->facts, who->tenant, who->instance);
    BUF_LOCAL frame = BUF_INIT;

    if (gw == NULL) {
        free(ctx);
        op_refuse(c, FAULT_REFUSED,
                  "this instance has no gateway; its operator makes one: bellhop gateway add");
        return;
    }
    struct send *d = xcalloc(1, sizeof *d);
    *d = (struct send){.c = c, .gw = gw, .told = told, .ctx = ctx};
    inner_wire_init(&d->wire, loop_clock(f->loop), on_turn);
    list_init(&d->link);
    list_append(&f->chat_sends, &d->link);
    op_keep(c, d, on_dropped);
    c->may_end = true;
    d->session = session_open(f->relay, gw, &d->wire.wire);
    if (d->session == NULL) {
        d->wire.closed = true;
        inner_wire_wake(&d->wire);
        return;
    }
    write_outbound(&frame, platform, action);
    session_data(d->session, buf_str(&frame));
}

static void chat_send(struct op_call *c)
{
    struct str thread_id = op_text(c, "thread_id");
    BUF_LOCAL action = BUF_INIT;
    struct jw w = jw_begin(&action);

    jw_obj(&w);
    jw_kstr(&w, "op", STR("send"));
    jw_kstr(&w, "chat_id", op_text(c, "chat_id"));
    jw_kstr(&w, "content", op_text(c, "content"));
    jw_kstr_opt(&w, "reply_to", op_text(c, "reply_to"));
    if (thread_id.p != NULL) {
        jw_kobj(&w, "metadata");
        jw_kstr(&w, "thread_id", thread_id);
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
    chat_act(c, op_text(c, "platform"), buf_str(&action), on_sent, NULL);
}

/* ---- chat_list, chat_read ---- */

enum { READ_LIMIT = 20, READ_MAX = 200, CHATS_MAX = 500, LOOK_MAX = 1000, PAGE_CHATS = 100 };

struct chat_seen {                  /* one line of chat_list */
    struct str key;                 /* platform \x1f chat id; points into @bytes */
    char *bot, *name, *type, *from; /* owned; NULL: not known */
    uint64_t waiting;
    int64_t at_ms; /* of the newest waiting message; 0: none */
    size_t platform_n;
    char bytes[];
};

struct chat_ask {
    struct list link;         /* front->chat_asks */
    struct front *f;          /* borrowed */
    struct op_call *c;        /* NULL: nobody waits any more */
    char *tenant, *instance;  /* owned */
    char *platform, *chat_id; /* owned; the only chat that is read; NULL: all */
    struct json_parser *parser;
    struct buf placed; /* a line with the URLs of its files */
    struct buf out;    /* the answer so far */
    struct jw w;
    size_t limit, n;
    uint64_t last;    /* the newest cursor shown */
    uint64_t total;   /* in the mailbox */
    struct map chats; /* chat_list: struct chat_seen, owned */
    struct chat_seen **order;
    size_t n_order;
};

static void ask_free(struct chat_ask *k)
{
    list_remove(&k->link);
    for (size_t i = 0; i < k->n_order; i++) {
        struct chat_seen *s = k->order[i];
        free(s->bot);
        free(s->name);
        free(s->type);
        free(s->from);
        free(s);
    }
    free(k->order);
    map_done(&k->chats);
    json_parser_free(k->parser);
    buf_done(&k->out);
    free(k->tenant);
    free(k->instance);
    free(k->platform);
    free(k->chat_id);
    buf_done(&k->placed);
    free(k);
}

static void on_ask_dropped(void *mine)
{
    struct chat_ask *k = mine;

    k->c = NULL;
}

static struct chat_ask *ask_new(struct op_call *c)
{
    struct front *f = c->f;
    struct chat_ask *k = xcalloc(1, sizeof *k);

    *k = (struct chat_ask){.f = f, .c = c, .parser = json_parser_new()};
    k->tenant = str_dup(c->caller.tenant);
    k->instance = str_dup(c->caller.instance);
    k->w = jw_begin(&k->out);
    list_init(&k->link);
    list_append(&f->chat_asks, &k->link);
    op_keep(c, k, on_ask_dropped);
    c->may_end = true;
    return k;
}

/* Answers the call, if it still waits, and frees the ask. */
static void finish(struct chat_ask *k, enum bh_err err)
{
    if (k->c != NULL && err == BH_OK)
        op_answer(k->c, buf_str(&k->out));
    else if (k->c != NULL)
        op_refuse(k->c, FAULT_UNAVAILABLE, "the mailbox cannot be read now");
    ask_free(k);
}

/* ---- messages ---- */

static struct str cursor_text(uint64_t id, char room[24])
{
    snprintf(room, 24, "%" PRIu64, id);
    return str_of(room);
}

static void copy_fields(struct jw *w, struct json from, const char *const *names)
{
    for (; *names != NULL; names++)
        jw_kstr_opt(w, *names, json_str(from, *names));
}

static void write_message(struct chat_ask *k, const struct mailbox_line *line, struct json frame)
{
    static const char *const of_source[] = {"platform",  "chat_id", "chat_type", "chat_name",
                                            "thread_id", "user_id", "user_name", NULL};
    static const char *const of_event[] = {"text", "message_id", "message_type", NULL};
    struct json event = json_get(frame, "event"), source = json_get(event, "source");
    char cursor[24];

    jw_obj(&k->w);
    jw_kstr(&k->w, "cursor", cursor_text(line->id, cursor));
    jw_kstr(&k->w, "kind", json_is_object(event) ? STR("message") : STR("webhook"));
    jw_ki64(&k->w, "at", line->at_ms / 1000);
    copy_fields(&k->w, source, of_source);
    copy_fields(&k->w, event, of_event);
    jw_kstr_opt(&k->w, "reply_to", json_str(event, "reply_to_message_id"));
    if (json_count(json_get(event, "media_urls")) > 0)
        jw_kvalue(&k->w, "media_urls", json_get(event, "media_urls"));
    if (!json_is_object(event)) /* a button or a slash command: the platform's own form */
        copy_fields(&k->w, json_get(frame, "forward"), of_source);
    jw_end_obj(&k->w);
}

static void on_read_line(void *ctx, const struct mailbox_line *line)
{
    struct chat_ask *k = ctx;
    struct json frame;

    buf_reset(&k->placed);
    media_add_urls(k->f, line->frame, &k->placed);
    if (k->n == k->limit || !json_parse(k->parser, buf_str(&k->placed), &frame))
        return;
    write_message(k, line, frame);
    k->last = line->id;
    k->n++;
}

static void on_read_done(void *ctx, enum bh_err err)
{
    struct chat_ask *k = ctx;
    char cursor[24];

    if (err == BH_NOT_FOUND)
        err = BH_OK; /* no mailbox yet, so it is empty */
    jw_end_arr(&k->w);
    jw_kstr(&k->w, "next", k->last != 0 ? cursor_text(k->last, cursor) : STR_NULL);
    jw_ki64(&k->w, "more", (int64_t)(k->total > k->n ? k->total - k->n : 0));
    jw_end_obj(&k->w);
    finish(k, err);
}

bool chats_readable(struct front *f, struct str tenant, struct str instance,
                    struct instance_view *ret)
{
    size_t sends = 0; /* sessions of our own */

    *ret = (struct instance_view){0};
    if (!relay_instance(f->relay, tenant, instance, ret))
        return true; /* the instance has no mailbox yet */
    list_each (&f->chat_sends, it, nxt) {
        const struct gateway *gw = list_entry(it, struct send, link)->gw;
        sends += str_eq(str_of(gw->tenant), tenant) && str_eq(str_of(gw->instance), instance);
    }
    return ret->sessions <= sends;
}

/* False: the refusal has been sent. */
static bool may_read(struct op_call *c, struct instance_view *ret)
{
    if (chats_readable(c->f, c->caller.tenant, c->caller.instance, ret))
        return true;
    op_refuse(c, FAULT_REFUSED, "a gateway of this instance is connected and reads its own mail");
    return false;
}

static void chat_read(struct op_call *c)
{
    const struct op_value *after = op_value(c, "after"), *limit = op_value(c, "limit");
    struct front *f = c->f;
    struct instance_view v;
    uint64_t up_to = 0;

    if (after->given && !str_to_u64(after->text, &up_to)) {
        op_refuse(c, FAULT_INVALID, "after is the cursor of a message, as chat_read told it");
        return;
    }
    if (!may_read(c, &v))
        return;
    struct chat_ask *k = ask_new(c);
    uint64_t taken =
        up_to > 0 ? relay_mailbox_take(f->relay, str_of(k->tenant), str_of(k->instance), up_to) : 0;
    k->limit = limit->given ? (size_t)limit->number : READ_LIMIT;
    k->last = up_to;
    k->total = v.entries - (taken < v.entries ? taken : v.entries);
    jw_obj(&k->w);
    jw_karr(&k->w, "messages");
    relay_mailbox_show(f->relay, str_of(k->tenant), str_of(k->instance), k->limit, on_read_line,
                       on_read_done, k);
}

/* ---- chats ---- */

static struct chat_seen *seen(struct chat_ask *k, struct str platform, struct str chat_id)
{
    struct buf key = BUF_INIT;

    buf_printf(&key, "%.*s\x1f%.*s", STR_FMT(platform), STR_FMT(chat_id));
    struct chat_seen *s = map_get(&k->chats, buf_str(&key));
    if (s == NULL && k->n_order < CHATS_MAX) {
        s = xcalloc(1, sizeof *s + key.n + 1);
        memcpy(s->bytes, key.p, key.n);
        s->key = str_make(s->bytes, key.n);
        s->platform_n = platform.n;
        map_put(&k->chats, s->key, s);
        k->order = xrealloc(k->order, (k->n_order + 1) * sizeof(struct chat_seen *));
        k->order[k->n_order++] = s;
    }
    buf_done(&key);
    return s;
}

static void learn(char **field, struct str value)
{
    if (str_is_empty(value))
        return;
    free(*field);
    *field = str_dup(value);
}

static void on_list_mail(void *ctx, const struct mailbox_line *line)
{
    struct chat_ask *k = ctx;
    struct json frame;

    if (!json_parse(k->parser, line->frame, &frame))
        return;
    struct json source = json_get(json_get(frame, "event"), "source");
    if (str_is_empty(json_str(source, "chat_id")))
        return;
    struct chat_seen *s =
        seen(k, event_platform_meant(json_str(source, "platform")), json_str(source, "chat_id"));
    if (s == NULL)
        return;
    s->waiting++;
    s->at_ms = line->at_ms;
    learn(&s->name, json_str(source, "chat_name"));
    learn(&s->type, json_str(source, "chat_type"));
    learn(&s->from, json_str(source, "user_name"));
}

static void on_list_mail_done(void *ctx, enum bh_err err)
{
    struct chat_ask *k = ctx;

    jw_obj(&k->w);
    jw_karr(&k->w, "chats");
    for (size_t i = 0; i < k->n_order; i++) {
        const struct chat_seen *s = k->order[i];
        jw_obj(&k->w);
        jw_kstr(&k->w, "platform", str_make(s->key.p, s->platform_n));
        jw_kstr(&k->w, "chat_id", str_skip(s->key, s->platform_n + 1));
        jw_kstr_opt(&k->w, "chat_name", str_of(s->name));
        jw_kstr_opt(&k->w, "chat_type", str_of(s->type));
        jw_kstr_opt(&k->w, "bot_id", str_of(s->bot));
        jw_ki64(&k->w, "waiting", (int64_t)s->waiting);
        if (s->waiting > 0) {
            jw_ki64(&k->w, "last_at", s->at_ms / 1000);
            jw_kstr_opt(&k->w, "last_from", str_of(s->from));
        }
        jw_end_obj(&k->w);
    }
    jw_end_arr(&k->w);
    jw_ki64(&k->w, "waiting", (int64_t)k->total);
    jw_end_obj(&k->w);
    finish(k, err == BH_NOT_FOUND ? BH_OK : err);
}

static void on_list_chat(void *ctx, const struct chat_line *line)
{
    struct chat_ask *k = ctx;
    struct chat_seen *s = seen(k, line->platform, line->chat_id);

    if (s != NULL)
        learn(&s->bot, line->bot);
}

static void on_list_chats_done(void *ctx, enum bh_err err)
{
    struct chat_ask *k = ctx;

    if (err == BH_OK)
        relay_mailbox_show(k->f->relay, str_of(k->tenant), str_of(k->instance), LOOK_MAX,
                           on_list_mail, on_list_mail_done, k);
    else
        finish(k, err);
}

static void chat_list(struct op_call *c)
{
    struct instance_view v;

    if (!may_read(c, &v))
        return;
    struct chat_ask *k = ask_new(c);
    k->total = v.entries;
    relay_chats_show(c->f->relay, str_of(k->tenant), str_of(k->instance), STR_NULL, CHATS_MAX,
                     on_list_chat, on_list_chats_done, k);
}

/* ---- resources ----
 *
 *      bellhop://inbox                       what chat_read tells
 *      bellhop://chats                       what chat_list tells
 *      bellhop://chats/{platform}/{chat_id}  the messages that wait in one chat
 *
 * Both parts of a chat's URI are percent-encoded.  A URI has one spelling, so that a change finds
 * its subscribers. */

void chat_uri(struct buf *out, struct str platform, struct str chat_id)
{
    buf_add_z(out, CHATS_URI "/");
    percent_encode(out, platform);
    buf_add_c(out, '/');
    percent_encode(out, chat_id);
}

bool chat_of_uri(struct str uri, struct buf *ret_platform, struct buf *ret_chat_id)
{
    struct str rest = str_skip(uri, sizeof CHATS_URI), platform;
    struct buf again = BUF_INIT;
    bool ok = str_starts(uri, STR(CHATS_URI "/")) && str_split(&rest, '/', &platform) &&
              rest.n > 0 && percent_decode(ret_platform, platform) &&
              percent_decode(ret_chat_id, rest);

    if (ok)
        chat_uri(&again, buf_str(ret_platform), buf_str(ret_chat_id));
    ok = ok && str_eq(buf_str(&again), uri) && utf8_valid(buf_str(ret_platform)) &&
         utf8_valid(buf_str(ret_chat_id));
    buf_done(&again);
    return ok;
}

static bool is_of_chat(const struct chat_ask *k, struct json frame)
{
    struct json event = json_get(frame, "event");
    struct json source =
        json_is_object(event) ? json_get(event, "source") : json_get(frame, "forward");

    return str_eq(event_platform_meant(json_str(source, "platform")), str_of(k->platform)) &&
           str_eq(json_str(source, "chat_id"), str_of(k->chat_id));
}

static void on_chat_line(void *ctx, const struct mailbox_line *line)
{
    struct chat_ask *k = ctx;
    struct json frame;

    if (!json_parse(k->parser, line->frame, &frame) || !is_of_chat(k, frame))
        return;
    k->total++;
    if (k->n < k->limit)
        on_read_line(k, line);
}

static void on_chat_done(void *ctx, enum bh_err err)
{
    struct chat_ask *k = ctx;

    jw_end_arr(&k->w);
    jw_ki64(&k->w, "waiting", (int64_t)k->total);
    jw_end_obj(&k->w);
    finish(k, err == BH_NOT_FOUND ? BH_OK : err);
}

static void chat_show(struct op_call *c)
{
    struct str platform = op_text(c, "platform"), chat_id = op_text(c, "chat_id");
    const struct caller *who = &c->caller;
    struct instance_view v;

    if (!relay_has_chat(c->f->relay, who->tenant, who->instance, platform, chat_id)) {
        op_refuse(c, FAULT_NOT_FOUND, "there is no such chat");
        return;
    }
    if (!may_read(c, &v))
        return;
    struct chat_ask *k = ask_new(c);
    k->platform = str_dup(platform);
    k->chat_id = str_dup(chat_id);
    k->limit = READ_MAX;
    jw_obj(&k->w);
    jw_kstr(&k->w, "platform", platform);
    jw_kstr(&k->w, "chat_id", chat_id);
    jw_karr(&k->w, "messages");
    relay_mailbox_show(c->f->relay, str_of(k->tenant), str_of(k->instance), LOOK_MAX, on_chat_line,
                       on_chat_done, k);
}

static void write_resource(struct jw *w, struct str uri, struct str name, const char *title,
                           const char *what)
{
    jw_obj(w);
    jw_kstr(w, "uri", uri);
    jw_kstr(w, "name", name);
    jw_kstr_opt(w, "title", str_of(title));
    jw_kstr_opt(w, "description", str_of(what));
    jw_kstr(w, "mimeType", STR("application/json"));
    jw_end_obj(w);
}

static void on_page_chat(void *ctx, const struct chat_line *line)
{
    struct chat_ask *k = ctx;
    struct buf uri = BUF_INIT, name = BUF_INIT;

    buf_printf(&name, "%.*s\x1f%.*s", STR_FMT(line->platform), STR_FMT(line->chat_id));
    if (k->n == PAGE_CHATS && k->c != NULL) { /* one more than a page: there is a next one */
        mcp_call_next(k->c->mcp, buf_str(&k->placed));
    } else if (k->n < PAGE_CHATS) {
        buf_reset(&k->placed);
        base64url_add(&k->placed, name.p, name.n); /* the cursor, if this is the last one */
        chat_uri(&uri, line->platform, line->chat_id);
        name.p[line->platform.n] = ' ';
        write_resource(&k->w, buf_str(&uri), buf_str(&name), NULL, NULL);
    }
    k->n++;
    buf_done(&uri);
    buf_done(&name);
}

static void on_page_done(void *ctx, enum bh_err err)
{
    struct chat_ask *k = ctx;

    jw_end_arr(&k->w);
    finish(k, err);
}

static void chat_resources(struct op_call *c)
{
    struct str cursor = op_text(c, "cursor");
    struct buf after = BUF_INIT;

    if (cursor.p != NULL &&
        (cursor.n > 4096 || !base64url_decode(cursor, &after) || !utf8_valid(buf_str(&after)) ||
         str_find(buf_str(&after), '\x1f') < 0)) {
        op_refuse(c, FAULT_INVALID, "cursor must be the nextCursor of an earlier answer");
    } else {
        struct chat_ask *k = ask_new(c);
        jw_arr(&k->w);
        if (cursor.p == NULL) {
            write_resource(&k->w, STR(INBOX_URI), STR("inbox"), "Waiting messages",
                           "The messages that wait for you, oldest first, as chat_read tells them");
            write_resource(&k->w, STR(CHATS_URI), STR("chats"), "Chats",
                           "The chats people have written to you in, as chat_list tells them");
        }
        relay_chats_show(c->f->relay, str_of(k->tenant), str_of(k->instance),
                         cursor.p != NULL ? buf_str(&after) : STR_NULL, PAGE_CHATS + 1,
                         on_page_chat, on_page_done, k);
    }
    buf_done(&after);
}

const struct op op_chat_show = {
    .name = "showChat",
    .run = chat_show,
    .args =
        (const struct op_arg[]){{"platform", IN_TOOL, OP_TEXT}, {"chat_id", IN_TOOL, OP_TEXT}, {0}},
};
const struct op op_chat_resources = {
    .name = "listChatResources",
    .run = chat_resources,
    .args = (const struct op_arg[]){{"cursor", IN_TOOL, OP_TEXT}, {0}},
};

void chat_ops_drop(struct front *f)
{
    if (f->chat_asks.next == NULL)
        return; /* it never opened */
    list_each (&f->chat_asks, it, nxt)
        ask_free(list_entry(it, struct chat_ask, link));
    list_each (&f->chat_sends, it, nxt)
        send_free(list_entry(it, struct send, link));
}

/* ---- the table ---- */

const struct op ops_chat[] = {
    {"listChats", NULL, NULL, MAY_INSTANCE, chat_list,
     "The chats people have written to this instance in.", .tool = "chat_list",
     .title = "List chats",
     .tool_what = "The chats people have written to you in, and how many messages wait in each.",
     .reads_only = true},
    {"readChats", NULL, NULL, MAY_INSTANCE, chat_read,
     "The messages that wait for this instance, oldest first.",
     .args = (const struct op_arg[]){{"after", IN_TOOL, OP_TEXT,
                                      .what = "The cursor up to which messages are taken care of"},
                                     {"limit", IN_TOOL, OP_WHOLE, .min = 1, .max = 200,
                                      .initial = "20", .what = "At most so many."},
                                     {0}},
     .faults = OP_FAULT(INVALID) | OP_FAULT(REFUSED), .tool = "chat_read", .title = "Read messages",
     .tool_what =
         "The messages that wait for you, oldest first. They wait until you say that they are "
         "taken care of: pass `next` of the last answer as `after`, and everything up to it is "
         "gone."},
    {"sendToChat", NULL, NULL, MAY_INSTANCE, chat_send,
     "Send a message to a chat of this instance.",
     .args =
         (const struct op_arg[]){
             {"chat_id", IN_TOOL, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED, .what = "Which chat."},
             {"content", IN_TOOL, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED, .max = 256 << 10,
              .what = "The text."},
             {"platform", IN_TOOL, OP_TEXT, .what = "Where two platforms have a chat of that id"},
             {"reply_to", IN_TOOL, OP_TEXT, .what = "The message_id to answer"},
             {"thread_id", IN_TOOL, OP_TEXT, .what = "The thread to answer in."},
             {0}},
     .faults = OP_FAULT(INVALID) | OP_FAULT(REFUSED), .tool = "chat_send",
     .title = "Send a message", .tool_what = "Answer in a chat somebody has written to you in."},
    {0},
};
