/* tools_chat.c - chat_list, chat_read: an instance's mail for whoever uses an MCP client as agent.
 *
 * Reading looks at the mailbox as `bellhop mailbox show` does and changes nothing; coming back with
 * the cursor of the last message says that everything up to it is taken care of, and settles it.
 * So what a client lost on the way is there again.  A gateway that is connected reads its own mail:
 * then reading here is refused.
 *
 * The relay's looks cannot be called off, so an ask outlives its call and is freed when it ends. */
#include <stdlib.h>
#include "base/jw.h"
#include "base/map.h"
#include "base/mem.h"
#include "http/chat_tools.h"
#include "http/front.h"
#include "http/media_route.h"
#include "relay/relay.h"

enum { READ_LIMIT = 20, READ_MAX = 200, CHATS_MAX = 500, LOOK_MAX = 1000 };

struct chat_seen {                  /* one line of chat_list */
    struct str key;                 /* platform \x1f chat id; points into @bytes */
    char *bot, *name, *type, *from; /* owned; NULL: not known */
    uint64_t waiting;
    int64_t at_ms; /* of the newest that waits; 0: none */
    size_t platform_n;
    char bytes[];
};

struct chat_ask {
    struct list link;        /* front->chat_asks */
    struct front *f;         /* borrowed */
    struct mcp_call *c;      /* NULL: nobody waits any more */
    char *tenant, *instance; /* owned */
    struct json_parser *parser;
    struct buf placed; /* a line with the addresses of its files */
    struct buf out;    /* what was found so far */
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
    buf_done(&k->placed);
    free(k);
}

static void on_dropped(void *mine)
{
    struct chat_ask *k = mine;

    k->c = NULL;
}

static struct chat_ask *ask_new(struct front *f, struct mcp_call *c)
{
    const struct mcp_who *who = mcp_call_who(c);
    struct chat_ask *k = xcalloc(1, sizeof *k);

    *k = (struct chat_ask){.f = f, .c = c, .parser = json_parser_new()};
    k->tenant = str_dup(who->caller.tenant);
    k->instance = str_dup(who->instance);
    k->w = jw_begin(&k->out);
    list_init(&k->link);
    list_append(&f->chat_asks, &k->link);
    mcp_call_keep(c, k, on_dropped);
    return k;
}

void chat_asks_drop(struct front *f)
{
    if (f->chat_asks.next == NULL)
        return; /* it never opened */
    list_each (&f->chat_asks, it, nxt)
        ask_free(list_entry(it, struct chat_ask, link));
}

/* The last thing that happens to an ask. */
static void finish(struct chat_ask *k, enum bh_err err)
{
    if (k->c != NULL && err == BH_OK)
        mcp_answer(k->c, buf_str(&k->out));
    else if (k->c != NULL)
        mcp_refuse(k->c, FAULT_UNAVAILABLE, "the mailbox cannot be read now");
    ask_free(k);
}

/* ---- messages ---- */

static void cursor_text(uint64_t id, char ret[24])
{
    char digits[24];
    size_t n = 0, at = 0;

    do
        digits[n++] = (char)('0' + id % 10);
    while ((id /= 10) != 0);
    while (n > 0)
        ret[at++] = digits[--n];
    ret[at] = '\0';
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

    cursor_text(line->id, cursor);
    jw_obj(&k->w);
    jw_kstr(&k->w, "cursor", str_of(cursor));
    jw_kstr(&k->w, "kind", json_is_object(event) ? STR("message") : STR("webhook"));
    jw_ki64(&k->w, "at", line->at_ms / 1000);
    copy_fields(&k->w, source, of_source);
    copy_fields(&k->w, event, of_event);
    jw_kstr_opt(&k->w, "reply_to", json_str(event, "reply_to_message_id"));
    if (json_count(json_get(event, "media_urls")) > 0) {
        jw_key(&k->w, "media_urls");
        jw_value(&k->w, json_get(event, "media_urls"));
    }
    if (!json_is_object(event)) /* a button, a slash command: what the platform sent, stripped */
        copy_fields(&k->w, json_get(frame, "forward"), of_source);
    jw_end_obj(&k->w);
}

static void on_read_line(void *ctx, const struct mailbox_line *line)
{
    struct chat_ask *k = ctx;
    struct json frame;

    buf_reset(&k->placed);
    media_place(k->f, line->frame, &k->placed);
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
        err = BH_OK; /* nothing was ever delivered to it */
    jw_end_arr(&k->w);
    cursor_text(k->last, cursor);
    jw_kstr(&k->w, "next", k->last != 0 ? str_of(cursor) : STR_NULL);
    jw_ki64(&k->w, "more", (int64_t)(k->total > k->n ? k->total - k->n : 0));
    jw_end_obj(&k->w);
    finish(k, err);
}

/* False: the refusal has been sent. */
static bool may_read(struct front *f, struct mcp_call *c, struct instance_view *ret)
{
    const struct mcp_who *who = mcp_call_who(c);

    *ret = (struct instance_view){0};
    if (!relay_instance(f->relay, who->caller.tenant, who->instance, ret))
        return true; /* nothing was ever delivered to it */
    if (ret->sessions <= chat_sends_open(f, who->caller.tenant, who->instance))
        return true;
    mcp_refuse(c, FAULT_REFUSED, "a gateway of this instance is connected and reads its own mail");
    return false;
}

static void chat_read(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    const struct mcp_who *who = mcp_call_who(c);
    struct str after = json_str(args, "after");
    struct instance_view v;
    uint64_t up_to = 0;
    int64_t limit = READ_LIMIT;

    if (json_type(json_get(args, "after")) > JSON_NULL && !str_to_u64(after, &up_to)) {
        mcp_refuse(c, FAULT_INVALID, "after is the cursor of a message, as chat_read told it");
        return;
    }
    json_as_i64(json_get(args, "limit"), &limit);
    if (limit < 1 || limit > READ_MAX) {
        mcp_refuse(c, FAULT_INVALID, "limit is a number from 1 to %d", READ_MAX);
        return;
    }
    if (!may_read(f, c, &v))
        return;
    struct chat_ask *k = ask_new(f, c);
    uint64_t taken =
        up_to > 0 ? relay_mailbox_take(f->relay, str_of(k->tenant), str_of(k->instance), up_to) : 0;
    k->limit = (size_t)limit;
    k->last = up_to;
    k->total = v.entries - (taken < v.entries ? taken : v.entries);
    jw_obj(&k->w);
    jw_key(&k->w, "messages");
    jw_arr(&k->w);
    relay_mailbox_show(f->relay, who->caller.tenant, who->instance, k->limit, on_read_line,
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
    struct chat_seen *s = seen(k, json_str(source, "platform"), json_str(source, "chat_id"));
    if (s == NULL)
        return;
    s->waiting++;
    s->at_ms = line->at_ms;
    learn(&s->name, json_str(source, "chat_name"));
    learn(&s->type, json_str(source, "chat_type"));
    learn(&s->from, json_str(source, "user_name"));
}

static void write_chat(struct jw *w, const struct chat_seen *s)
{
    jw_obj(w);
    jw_kstr(w, "platform", str_make(s->key.p, s->platform_n));
    jw_kstr(w, "chat_id", str_skip(s->key, s->platform_n + 1));
    jw_kstr_opt(w, "chat_name", str_of(s->name));
    jw_kstr_opt(w, "chat_type", str_of(s->type));
    jw_kstr_opt(w, "bot_id", str_of(s->bot));
    jw_ki64(w, "waiting", (int64_t)s->waiting);
    if (s->waiting > 0) {
        jw_ki64(w, "last_at", s->at_ms / 1000);
        jw_kstr_opt(w, "last_from", str_of(s->from));
    }
    jw_end_obj(w);
}

static void on_list_mail_done(void *ctx, enum bh_err err)
{
    struct chat_ask *k = ctx;

    jw_obj(&k->w);
    jw_key(&k->w, "chats");
    jw_arr(&k->w);
    for (size_t i = 0; i < k->n_order; i++)
        write_chat(&k->w, k->order[i]);
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

static void chat_list(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct instance_view v;

    (void)args;
    if (!may_read(f, c, &v))
        return;
    struct chat_ask *k = ask_new(f, c);
    k->total = v.entries;
    relay_chats_show(f->relay, str_of(k->tenant), str_of(k->instance), CHATS_MAX, on_list_chat,
                     on_list_chats_done, k);
}

/* ---- the table ---- */

const struct mcp_tool tools_chat[] = {
    {.name = "chat_list",
     .title = "List chats",
     .description = "The chats people have written to you in, and how many messages wait in each.",
     .input_schema = "{\"type\":\"object\",\"properties\":{}}",
     .reads_only = true,
     .for_instance = true,
     .call = chat_list},
    {.name = "chat_read",
     .title = "Read messages",
     .description =
         "The messages that wait for you, oldest first. They wait until you say that they are "
         "taken "
         "care of: pass `next` of the last answer as `after`, and everything up to it is gone.",
     .input_schema = "{\"type\":\"object\",\"properties\":{\"after\":{\"type\":\"string\","
                     "\"description\":\"The cursor up to which messages are taken care of\"},"
                     "\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":200,"
                     "\"default\":20}}}",
     .for_instance = true,
     .call = chat_read},
    {.name = "chat_send",
     .title = "Send a message",
     .description = "Answer in a chat somebody has written to you in.",
     .input_schema =
         "{\"type\":\"object\",\"properties\":{\"chat_id\":{\"type\":\"string\"},"
         "\"content\":{\"type\":\"string\"},\"platform\":{\"type\":\"string\",\"description\":"
         "\"Where two platforms have a chat of that id\"},\"reply_to\":{\"type\":\"string\","
         "\"description\":\"The message_id to answer\"},\"thread_id\":{\"type\":\"string\"}},"
         "\"required\":[\"chat_id\",\"content\"]}",
     .for_instance = true,
     .call = chat_send},
};
const size_t n_tools_chat = ARRAY_LEN(tools_chat);
