/* channel_tools.c - what the client asks for: the handshake, the tools, permissions.
 * (channel_priv.h has the contract.)
 *
 * A tool that fails answers with isError and a sentence, which the model reads.  Requests that may
 * have been executed are never repeated: the model is told that the outcome is unknown. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "agent/channel_priv.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"

enum {
    NOT_DONE_SHOWN = 20,
    HISTORY_LINES = 50,
    ACKS_MAX = 256,
    QUESTIONS_MAX = 64,
    TEXT_MAX_BYTES = 256 << 10,
};

/* ---- answers ---- */

static void answer(struct channel *ch, uint64_t ticket, struct str text, bool is_error)
{
    BUF_LOCAL out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_obj(&w);
    jw_karr(&w, "content");
    jw_obj(&w);
    jw_kstr(&w, "type", STR("text"));
    jw_kstr(&w, "text", text);
    jw_end_obj(&w);
    jw_end_arr(&w);
    jw_kbool(&w, "isError", is_error);
    jw_end_obj(&w);
    jsonrpc_answer(ch->rpc, ticket, buf_str(&out));
}

static void fail(struct channel *ch, uint64_t ticket, const char *why)
{
    answer(ch, ticket, str_of(why), true);
}

static void write_not_done(struct channel *ch, struct jw *w)
{
    size_t n = 0;

    jw_karr(w, "not_done");
    list_each (&ch->undone, it, next) {
        if (n++ == NOT_DONE_SHOWN)
            break;
        jw_str(w, str_of(list_entry(it, struct channel_delivery, link)->id));
    }
    jw_end_arr(w);
    if (ch->n_undone > NOT_DONE_SHOWN)
        jw_ki64(w, "not_done_in_all", (int64_t)ch->n_undone);
}

/* ---- actions ---- */

struct tool_run { /* a tool that waits for bellhop */
    struct channel *ch;
    uint64_t ticket;
    struct buf done; /* an action: the delivery that it finishes; ack: all, a blank behind each */
    char *chat_id, *text; /* owned; of an action */
    char *name, *type;    /* owned; of a file */
};

static struct tool_run *run_new(struct channel *ch, uint64_t ticket)
{
    struct tool_run *a = xcalloc(1, sizeof *a);

    *a = (struct tool_run){.ch = ch, .ticket = ticket};
    return a;
}

static void run_free(void *ctx)
{
    struct tool_run *a = ctx;

    buf_done(&a->done);
    free(a->chat_id);
    free(a->text);
    free(a->name);
    free(a->type);
    free(a);
}

/* The deliveries of a->done are done. */
static void run_finished(const struct tool_run *a)
{
    struct str rest = buf_str(&a->done), id;

    while (rest.n > 0 && str_split(&rest, ' ', &id))
        channel_finished(a->ch, id);
}

static void on_acted(void *ctx, const struct channel_reply *r)
{
    struct tool_run *a = ctx;
    struct channel *ch = a->ch;
    bool ok = r->status == 200 && json_as_bool(json_get(r->doc, "success"), false);
    BUF_LOCAL text = BUF_INIT;
    struct jw w = jw_begin(&text);

    if (ok)
        run_finished(a);
    if (ok && a->text != NULL)
        channel_said(ch, str_of(a->chat_id), STR_NULL, str_of(a->text),
                     json_str(r->doc, "message_id"), clock_wall_ms(ch->clock));
    if (ok) {
        jw_obj(&w);
        jw_kbool(&w, "ok", true);
        jw_kstr_opt(&w, "message_id", json_str(r->doc, "message_id"));
        write_not_done(ch, &w);
        jw_end_obj(&w);
    } else if (r->unknown) {
        buf_printf(&text,
                   "It is not known whether this was delivered: %s. The delivery is not "
                   "done. Do not repeat a message that may have arrived.",
                   r->why);
    } else {
        struct str error = json_str(r->doc, "error");
        buf_printf(&text, "Not done: %.*s", STR_FMT(error.n > 0 ? error : str_of(r->why)));
    }
    answer(ch, a->ticket, buf_str(&text), !ok);
    run_free(a);
}

/* An action in the making: @w stands inside the object. */
struct channel_order {
    struct buf action;
    struct jw w;
    const struct channel_delivery *d; /* NULL: the model named a chat */
    struct str chat_id, platform;
};

/* Reads where the action goes.  False: the model has been told what is missing. */
static bool order_begin(struct channel *ch, struct channel_order *o, uint64_t ticket,
                        const char *op, struct json args)
{
    struct str id = json_str(args, "delivery");

    *o = (struct channel_order){.action = BUF_INIT};
    o->d = id.n > 0 ? channel_find(ch, id) : NULL;
    o->chat_id = json_str(args, "chat_id");
    o->platform = json_str(args, "platform");
    if (o->d != NULL && o->d->chat_id != NULL) {
        o->chat_id = str_of(o->d->chat_id);
        o->platform = str_of(o->d->platform);
    }
    if (o->chat_id.n == 0) {
        fail(ch, ticket,
             id.n > 0 ? "This session was not shown such a delivery. Pass chat_id "
                        "instead, or `ack` it."
                      : "Pass the delivery that this is about, or a chat_id.");
        return false;
    }
    o->w = jw_begin(&o->action);
    jw_obj(&o->w);
    jw_kstr(&o->w, "op", str_of(op));
    jw_kstr(&o->w, "chat_id", o->chat_id);
    if (o->d != NULL) {
        jw_kraw(&o->w, "metadata", str_of(o->d->metadata));
    } else if (json_str(args, "thread_id").n > 0) {
        jw_kobj(&o->w, "metadata");
        jw_kstr(&o->w, "thread_id", json_str(args, "thread_id"));
        jw_end_obj(&o->w);
    }
    return true;
}

/* Sends the action.  @done: the delivery that it finishes; absent: none.  @said: what it says. */
static void order_send(struct channel *ch, struct channel_order *o, uint64_t ticket,
                       struct str done, struct str said)
{
    struct tool_run *a = run_new(ch, ticket);
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    a->chat_id = str_dup(o->chat_id);
    a->text = said.p != NULL ? str_dup(said) : NULL;
    buf_add_str(&a->done, done);
    jw_end_obj(&o->w);
    jw_obj(&w);
    jw_kraw(&w, "action", buf_str(&o->action));
    if (o->platform.n > 0)
        jw_kstr(&w, "platform", o->platform);
    if (done.n > 0) {
        jw_karr(&w, "done");
        jw_str(&w, done);
        jw_end_arr(&w);
    }
    jw_end_obj(&w);
    channel_send(ch,
                 &(struct channel_query){.method = "POST",
                                         .path = STR("/v1/mailbox/act"),
                                         .body = buf_str(&body),
                                         .retry = RETRY_UNSENT,
                                         .drop = run_free},
                 on_acted, a);
    buf_done(&o->action);
}

static bool text_ok(struct channel *ch, uint64_t ticket, struct str text)
{
    if (text.n > 0 && text.n <= TEXT_MAX_BYTES)
        return true;
    fail(ch, ticket, text.n == 0 ? "text must not be empty." : "text has more than 256 KiB.");
    return false;
}

static bool is_number(struct str id)
{
    uint64_t n;

    return str_to_u64(id, &n);
}

/* Only what was shown can be done: a guess must not settle a message that nobody has seen. */
static bool was_shown(const struct channel *ch, struct str id)
{
    uint64_t n;

    return str_to_u64(id, &n) && n <= ch->cursor;
}

static void tool_reply(struct channel *ch, uint64_t ticket, struct json args)
{
    struct str text = json_str(args, "text"), id = json_str(args, "delivery");
    bool ends = json_as_bool(json_get(args, "done"), true);
    struct channel_order o;

    if (!text_ok(ch, ticket, text) || !order_begin(ch, &o, ticket, "send", args))
        return;
    jw_kstr(&o.w, "content", text);
    if (json_str(args, "reply_to").n > 0)
        jw_kstr(&o.w, "reply_to", json_str(args, "reply_to"));
    else if (o.d != NULL)
        jw_kstr_opt(&o.w, "reply_to", str_of(o.d->message_id));
    order_send(ch, &o, ticket, ends && was_shown(ch, id) ? id : STR_NULL, text);
}

static void tool_edit(struct channel *ch, uint64_t ticket, struct json args)
{
    struct str text = json_str(args, "text"), message = json_str(args, "message_id");
    struct channel_order o;

    if (!text_ok(ch, ticket, text))
        return;
    if (message.n == 0) {
        fail(ch, ticket, "Pass message_id: what `reply` answered.");
        return;
    }
    if (!order_begin(ch, &o, ticket, "edit", args))
        return;
    jw_kstr(&o.w, "message_id", message);
    jw_kstr(&o.w, "content", text);
    order_send(ch, &o, ticket, STR_NULL, text);
}

static void tool_react(struct channel *ch, uint64_t ticket, struct json args)
{
    struct str message = json_str(args, "message_id"), emoji = json_str(args, "emoji");
    struct channel_order o;

    if (emoji.n == 0 || emoji.n > 64) {
        fail(ch, ticket, "Pass one emoji.");
        return;
    }
    if (!order_begin(ch, &o, ticket, "react", args))
        return;
    if (message.n == 0 && o.d != NULL)
        message = str_of(o.d->message_id);
    if (message.n == 0) {
        buf_done(&o.action);
        fail(ch, ticket, "Pass the delivery or the message_id to react to.");
        return;
    }
    jw_kstr(&o.w, "message_id", message);
    jw_kstr(&o.w, "emoji", emoji);
    if (json_as_bool(json_get(args, "remove"), false))
        jw_kbool(&o.w, "remove", true);
    order_send(ch, &o, ticket, STR_NULL, STR_NULL);
}

/* ---- ack ---- */

static void on_acked(void *ctx, const struct channel_reply *r)
{
    struct tool_run *a = ctx;
    BUF_LOCAL text = BUF_INIT;
    struct jw w = jw_begin(&text);
    int64_t done = 0;

    if (r->status == 200) {
        json_as_i64(json_get(r->doc, "done"), &done);
        run_finished(a);
        jw_obj(&w);
        jw_ki64(&w, "done", done);
        write_not_done(a->ch, &w);
        jw_end_obj(&w);
    } else {
        buf_printf(&text, "Not done: %s", r->why);
    }
    answer(a->ch, a->ticket, buf_str(&text), r->status != 200);
    run_free(a);
}

static void tool_ack(struct channel *ch, uint64_t ticket, struct json args)
{
    struct json list = json_get(args, "deliveries");
    struct str one = json_str(args, "delivery");
    struct tool_run *a = run_new(ch, ticket);
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);
    bool is_list = json_type(list) == JSON_ARRAY, ok = is_list || one.n > 0;
    size_t n = 0;

    jw_obj(&w);
    jw_karr(&w, "deliveries");
    for (struct json_iter it = {0}; one.n > 0 || (is_list && json_next(list, &it)); n++) {
        struct str id = one.n > 0 ? one : json_as_str(it.value);
        one = STR_NULL;
        ok = ok && is_number(id) && n < ACKS_MAX;
        if (!was_shown(ch, id))
            continue;
        jw_str(&w, id);
        buf_printf(&a->done, "%.*s ", STR_FMT(id));
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    if (!ok) {
        run_free(a);
        fail(ch, ticket, "deliveries is a list of at most 256 ids, as the messages have them.");
        return;
    }
    channel_send(ch,
                 &(struct channel_query){.method = "POST",
                                         .path = STR("/v1/mailbox/done"),
                                         .body = buf_str(&body),
                                         .retry = RETRY_ALWAYS,
                                         .drop = run_free},
                 on_acked, a);
}

/* ---- history ---- */

static void write_line(struct jw *w, const struct channel_line *l, bool with_chat)
{
    BUF_LOCAL text = BUF_INIT, who = BUF_INIT;

    channel_clean_text(&text, str_of(l->text));
    channel_clean_meta(&who, str_of(l->who));
    jw_obj(w);
    if (with_chat)
        jw_kstr_opt(w, "chat_id", str_of(l->chat_id));
    if (l->who == NULL)
        jw_kbool(w, "own", true);
    else
        jw_kstr(w, "from", buf_str(&who));
    jw_kstr(w, "text", buf_str(&text));
    jw_kstr_opt(w, "message_id", str_of(l->message_id));
    jw_ki64(w, "at", l->at_ms / 1000);
    jw_end_obj(w);
}

static bool is_of(const struct channel_line *l, struct str chat)
{
    return chat.n == 0 || str_eq(str_of(l->chat_id), chat);
}

/* The messages of the chat, the newest @most of them, oldest first. */
static void write_lines(struct channel *ch, struct jw *w, struct str chat, size_t most)
{
    size_t n = 0, at = 0;

    list_each (&ch->lines, it, next)
        n += is_of(list_entry(it, struct channel_line, link), chat);
    jw_karr(w, "messages");
    list_each (&ch->lines, it, next) {
        const struct channel_line *l = list_entry(it, struct channel_line, link);
        if (is_of(l, chat) && at++ + most >= n)
            write_line(w, l, chat.n == 0);
    }
    jw_end_arr(w);
}

/* The text of the message of a delivery; absent: too long ago. */
static struct str text_of(const struct channel *ch, const struct channel_delivery *d)
{
    if (d->text != NULL)
        return str_of(d->text);
    for (const struct list *it = ch->lines.prev; it != &ch->lines; it = it->prev) {
        const struct channel_line *l = list_entry(it, const struct channel_line, link);
        if (d->message_id != NULL && l->message_id != NULL && d->chat_id != NULL &&
            l->chat_id != NULL && strcmp(l->message_id, d->message_id) == 0 &&
            strcmp(l->chat_id, d->chat_id) == 0)
            return str_of(l->text);
    }
    return STR_NULL;
}

static void write_waiting(struct channel *ch, struct jw *w)
{
    size_t n = 0;

    jw_karr(w, "not_done");
    list_each (&ch->undone, it, next) {
        const struct channel_delivery *d = list_entry(it, struct channel_delivery, link);
        BUF_LOCAL text = BUF_INIT;
        if (n++ == NOT_DONE_SHOWN)
            break;
        channel_clean_text(&text, text_of(ch, d));
        jw_obj(w);
        jw_kstr(w, "delivery", str_of(d->id));
        jw_kstr_opt(w, "platform", str_of(d->platform));
        jw_kstr_opt(w, "chat_id", str_of(d->chat_id));
        jw_kstr(w, "text", buf_str(&text));
        jw_ki64(w, "attachments", (int64_t)d->n_files);
        jw_end_obj(w);
    }
    jw_end_arr(w);
    jw_ki64(w, "not_done_in_all", (int64_t)ch->n_undone);
}

static void tool_history(struct channel *ch, uint64_t ticket, struct json args)
{
    struct str chat = json_str(args, "chat_id");
    BUF_LOCAL text = BUF_INIT;
    struct jw w = jw_begin(&text);
    int64_t most = HISTORY_LINES;

    json_as_i64(json_get(args, "limit"), &most);
    if (most < 1 || most > 500) {
        fail(ch, ticket, "limit is 1 to 500.");
        return;
    }
    jw_obj(&w);
    write_lines(ch, &w, chat, (size_t)most);
    if (chat.n == 0)
        write_waiting(ch, &w);
    jw_end_obj(&w);
    answer(ch, ticket, buf_str(&text), false);
}

/* ---- attachment ---- */

static bool make_dir(struct channel *ch)
{
    const char *top = getenv("XDG_RUNTIME_DIR");
    BUF_LOCAL path = BUF_INIT;

    if (ch->dir != NULL)
        return true;
    if (top == NULL || access(top, W_OK | X_OK) != 0)
        top = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    buf_printf(&path, "%s/bellhop-channel-XXXXXX", top);
    ch->dir = buf_take(&path);
    if (mkdtemp(ch->dir) != NULL)
        return true;
    free(ch->dir);
    ch->dir = NULL;
    return false;
}

void channel_files_remove(struct channel *ch)
{
    DIR *dir = ch->dir != NULL ? opendir(ch->dir) : NULL;
    const struct dirent *e;

    while (dir != NULL && (e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(dir), e->d_name, 0);
    if (dir != NULL)
        closedir(dir);
    if (ch->dir != NULL)
        rmdir(ch->dir);
    free(ch->dir);
    ch->dir = NULL;
}

static void on_fetched(void *ctx, const struct channel_reply *r)
{
    struct tool_run *f = ctx;
    struct channel *ch = f->ch;
    BUF_LOCAL path = BUF_INIT, text = BUF_INIT;
    struct jw w = jw_begin(&text);

    if (r->status != 200) {
        buf_printf(&text, "The file cannot be fetched: %s", r->why);
        answer(ch, f->ticket, buf_str(&text), true);
    } else if (ch->file_bytes + r->body.n > CHANNEL_FILES_BYTES) {
        fail(ch, f->ticket, "This session has saved 256 MiB of files; it saves no more.");
    } else if (!make_dir(ch)) {
        fail(ch, f->ticket, "No folder for files can be made: set TMPDIR to one that is writable.");
    } else {
        buf_printf(&path, "%s/%s", ch->dir, f->name);
        if (access(buf_z(&path), F_OK) != 0 && !file_put(buf_z(&path), O_EXCL, r->body)) {
            fail(ch, f->ticket, "The file cannot be written: the disk may be full.");
        } else {
            ch->file_bytes += r->body.n;
            jw_obj(&w);
            jw_kstr(&w, "path", buf_str(&path));
            jw_kstr(&w, "type", str_of(f->type));
            jw_ki64(&w, "bytes", (int64_t)r->body.n);
            jw_end_obj(&w);
            answer(ch, f->ticket, buf_str(&text), false);
        }
    }
    run_free(f);
}

static void tool_attachment(struct channel *ch, uint64_t ticket, struct json args)
{
    static const struct str kept = STR("/relay/media/");
    const struct channel_delivery *d = channel_find(ch, json_str(args, "delivery"));
    struct tool_run *f;
    int64_t index = 0;
    BUF_LOCAL name = BUF_INIT;

    json_as_i64(json_get(args, "index"), &index);
    if (d == NULL || index < 0 || (uint64_t)index >= d->n_files) {
        fail(ch, ticket,
             d == NULL ? "This session was not shown such a delivery."
                       : "This delivery has no attachment of that index.");
        return;
    }
    const struct channel_file *file = &d->files[index];
    const char *own = strstr(file->url, kept.p); /* bellhop passes on no foreign URL with this */
    bool direct = own == NULL || ch->opt->unix_socket != NULL; /* that socket serves no files */
    buf_printf(&name, "%s-%" PRId64 "-", d->id, index);
    file_name_add(&name, str_of(file->name != NULL ? file->name : "file"));
    f = run_new(ch, ticket);
    f->type = xstrdup(file->type);
    f->name = buf_take(&name);
    channel_send(ch,
                 &(struct channel_query){.method = "GET",
                                         .path = str_of(own),
                                         .url = direct ? file->url : NULL,
                                         .private_url = own != NULL,
                                         .retry = RETRY_ALWAYS,
                                         .max_body = CHANNEL_FILE_BYTES,
                                         .drop = run_free},
                 on_fetched, f);
}

/* ---- the table of tools ---- */

#define DELIVERY \
    "\"delivery\":{\"type\":\"string\",\"description\":\"The delivery of the message.\"}"
#define CHAT \
    "\"chat_id\":{\"type\":\"string\",\"description\":\"Which chat, where no delivery is " \
    "passed.\"}," \
    "\"platform\":{\"type\":\"string\",\"description\":\"Where two platforms have a chat of that " \
    "id.\"}"
#define THREAD "\"thread_id\":{\"type\":\"string\",\"description\":\"The thread in that chat.\"}"
#define TEXT "\"text\":{\"type\":\"string\",\"description\":\"The text, in Markdown.\"}"
#define MESSAGE(what) "\"message_id\":{\"type\":\"string\",\"description\":\"" what "\"}"
#define SCHEMA(props, required) \
    "{\"type\":\"object\",\"properties\":{" props "},\"required\":[" required "]}"

static const struct {
    const char *name, *what, *schema;
    void (*run)(struct channel *ch, uint64_t ticket, struct json args);
} tools[] = {
    {"reply",
     "Answer a message in its chat. The delivery is done then. Without a delivery: say something "
     "in a chat that wrote to you before.",
     SCHEMA(DELIVERY "," TEXT ",\"done\":{\"type\":\"boolean\",\"description\":\"false: more "
                     "follows, the delivery is not done yet.\"},"
                     "\"reply_to\":{\"type\":\"string\",\"description\":\"Quote this message_id "
                     "instead of the delivery's.\"}," CHAT "," THREAD,
            "\"text\""),
     tool_reply},
    {"ack", "Deliveries that need no answer, or no further one, are done.",
     SCHEMA("\"deliveries\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":256,"
            "\"description\":\"The deliveries.\"}",
            "\"deliveries\""),
     tool_ack},
    {"react", "Add an emoji to a message.",
     SCHEMA(DELIVERY ",\"emoji\":{\"type\":\"string\"},\"remove\":{\"type\":\"boolean\"}," MESSAGE(
                "Another message than the delivery's.") "," CHAT "," THREAD,
            "\"emoji\""),
     tool_react},
    {"edit", "Change the text of a message that you sent.",
     SCHEMA(MESSAGE("What reply answered.") "," TEXT "," DELIVERY "," CHAT "," THREAD,
            "\"message_id\",\"text\""),
     tool_edit},
    {"history",
     "What was said in a chat, as far as this session has seen it. Without a chat: in all chats, "
     "with the deliveries that are not done.",
     SCHEMA("\"chat_id\":{\"type\":\"string\",\"description\":\"Which chat.\"},\"limit\":{\"type\":"
            "\"integer\",\"minimum\":1,\"maximum\":500,\"description\":\"At most so many "
            "messages.\"}",
            ""),
     tool_history},
    {"attachment", "Save a file that came with a message, and tell its path.",
     SCHEMA(DELIVERY
            ",\"index\":{\"type\":\"integer\",\"minimum\":0,\"description\":\"Which of its "
            "attachments; the first is 0.\"}",
            "\"delivery\""),
     tool_attachment},
};

/* ---- the handshake ---- */

static void initialize(struct channel *ch, uint64_t ticket, struct json params)
{
    static const char *const versions[] = {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"};
    struct str asked = json_str(params, "protocolVersion");
    const char *version = versions[ARRAY_LEN(versions) - 1];
    BUF_LOCAL out = BUF_INIT;
    struct jw w = jw_begin(&out);

    for (size_t i = 0; i < ARRAY_LEN(versions); i++)
        if (str_eq(asked, str_of(versions[i])))
            version = versions[i];
    jw_obj(&w);
    jw_kstr(&w, "protocolVersion", str_of(version));
    jw_kraw(&w, "capabilities",
            STR("{\"experimental\":{\"claude/channel\":{},\"claude/channel/permission\":{}},"
                "\"tools\":{}}"));
    jw_kobj(&w, "serverInfo");
    jw_kstr(&w, "name", STR("bellhop"));
    jw_kstr(&w, "version", str_of(ch->opt->version));
    jw_end_obj(&w);
    jw_kstr(&w, "instructions", str_of(channel_instructions));
    jw_end_obj(&w);
    jsonrpc_answer(ch->rpc, ticket, buf_str(&out));
}

/* Claude Code begins to listen after it has listed the tools, and does not say when. */
static void list_tools(struct channel *ch, uint64_t ticket)
{
    BUF_LOCAL out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_obj(&w);
    jw_karr(&w, "tools");
    for (size_t i = 0; i < ARRAY_LEN(tools); i++) {
        jw_obj(&w);
        jw_kstr(&w, "name", str_of(tools[i].name));
        jw_kstr(&w, "description", str_of(tools[i].what));
        jw_kraw(&w, "inputSchema", str_of(tools[i].schema));
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    jsonrpc_answer(ch->rpc, ticket, buf_str(&out));
    if (!ch->listed)
        timer_set(ch->clock, &ch->ready, ch->opt->settle_ms);
    ch->listed = true;
}

static void call_tool(struct channel *ch, uint64_t ticket, struct json params)
{
    struct str name = json_str(params, "name");
    struct json args = json_get(params, "arguments");

    for (size_t i = 0; i < ARRAY_LEN(tools); i++)
        if (str_eq(name, str_of(tools[i].name))) {
            tools[i].run(ch, ticket, args);
            return;
        }
    jsonrpc_refuse(ch->rpc, ticket, JSONRPC_INVALID_PARAMS,
                   "unknown tool; tools/list has those there are");
}

void channel_request(void *ctx, uint64_t ticket, struct str method, struct json params)
{
    struct channel *ch = ctx;

    if (str_eq(method, STR("initialize")))
        initialize(ch, ticket, params);
    else if (str_eq(method, STR("ping")))
        jsonrpc_answer(ch->rpc, ticket, STR("{}"));
    else if (str_eq(method, STR("tools/list")))
        list_tools(ch, ticket);
    else if (str_eq(method, STR("tools/call")))
        call_tool(ch, ticket, params);
    else
        jsonrpc_refuse(ch->rpc, ticket, JSONRPC_NO_METHOD, "there is no such method here");
}

/* ---- permissions ---- */

struct channel_question { /* a permission request that people are asked about */
    struct list link;     /* channel->questions */
    struct channel *ch;
    struct channel_fetch *fetch; /* asks; NULL: asked */
    struct timer late;
    char request[64]; /* the client's id */
    char prompt[33];  /* ours */
    struct buf text;
    bool at_owner; /* asked in the direct chat of an owner */
};

#define PROMPT_PREFIX "ccp-"

static void question_free(struct channel_question *q)
{
    channel_cancel(&q->fetch);
    timer_stop(q->ch->clock, &q->late);
    list_remove(&q->link);
    q->ch->n_questions--;
    buf_done(&q->text);
    free(q);
}

void channel_questions_free(struct channel *ch)
{
    list_each (&ch->questions, it, next)
        question_free(list_entry(it, struct channel_question, link));
}

static void verdict(struct channel_question *q, bool allow)
{
    struct channel *ch = q->ch;
    BUF_LOCAL params = BUF_INIT;
    struct jw w = jw_begin(&params);

    jw_obj(&w);
    jw_kstr(&w, "request_id", str_of(q->request));
    jw_kstr(&w, "behavior", allow ? STR("allow") : STR("deny"));
    jw_end_obj(&w);
    jsonrpc_notify(ch->rpc, "notifications/claude/channel/permission", buf_str(&params));
    question_free(q);
    channel_poll_again(ch);
}

static void on_question_late(struct timer *t)
{
    verdict(container_of(t, struct channel_question, late), false);
}

static void ask_people(struct channel_question *q, const struct channel_delivery *d);

static void on_asked(void *ctx, const struct channel_reply *r)
{
    struct channel_question *q = ctx;

    q->fetch = NULL;
    if (r->unknown || (r->status == 200 && json_as_bool(json_get(r->doc, "success"), false)))
        return; /* the buttons may be there */
    if (!q->at_owner)
        ask_people(q, NULL);
    else
        verdict(q, false);
}

/* Asks in the chat of @d; NULL: in the direct chat of an owner. */
static void ask_people(struct channel_question *q, const struct channel_delivery *d)
{
    struct channel *ch = q->ch;
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int64_t seconds = ch->opt->permission_ms / 1000;

    q->at_owner = d == NULL;
    jw_obj(&w);
    jw_kobj(&w, "action");
    jw_kstr(&w, "op", STR("prompt"));
    if (d != NULL) {
        jw_kstr(&w, "chat_id", str_of(d->chat_id));
        jw_kraw(&w, "metadata", str_of(d->metadata));
    }
    jw_kstr(&w, "content", buf_str(&q->text));
    jw_kstr(&w, "prompt_id", str_of(q->prompt));
    jw_kstr(&w, "prompt_kind", STR("approval"));
    jw_kstr(&w, "deciders", STR("owners"));
    jw_ki64(&w, "timeout_s", seconds < 10 ? 10 : seconds > 86400 ? 86400 : seconds);
    jw_kraw(&w, "options",
            STR("[{\"id\":\"allow\",\"label\":\"Allow\",\"style\":\"success\"},"
                "{\"id\":\"deny\",\"label\":\"Deny\",\"style\":\"danger\"}]"));
    jw_end_obj(&w);
    if (d != NULL)
        jw_kstr_opt(&w, "platform", str_of(d->platform));
    else
        jw_kbool(&w, "to_owner", true);
    jw_end_obj(&w);
    q->fetch = channel_send(ch,
                            &(struct channel_query){.method = "POST",
                                                    .path = STR("/v1/mailbox/act"),
                                                    .body = buf_str(&body),
                                                    .retry = RETRY_UNSENT},
                            on_asked, q);
}

/* The delivery in hand: the oldest that is not done and was not shown too long ago. */
static const struct channel_delivery *in_hand(const struct channel *ch)
{
    int64_t fresh_ms = clock_now_ms(ch->clock) - CHANNEL_STALE_MS;

    list_each (&ch->undone, it, next) {
        const struct channel_delivery *d = list_entry(it, struct channel_delivery, link);
        if (d->shown_ms > fresh_ms && d->chat_id != NULL)
            return d;
    }
    return NULL;
}

static void ask_permission(struct channel *ch, struct json params)
{
    struct str id = json_str(params, "request_id");
    struct channel_question *q = xcalloc(1, sizeof *q);
    struct rand rand = RAND_SYSTEM;

    if (id.n == 0 || id.n >= sizeof q->request) {
        free(q);
        return;
    }
    *q = (struct channel_question){.ch = ch};
    snprintf(q->request, sizeof q->request, "%.*s", STR_FMT(id));
    snprintf(q->prompt, sizeof q->prompt, PROMPT_PREFIX "%016" PRIx64, rand_u64(&rand));
    channel_write_question(&q->text, params);
    timer_init(&q->late, on_question_late);
    timer_set(ch->clock, &q->late, ch->opt->permission_ms);
    list_init(&q->link);
    list_append(&ch->questions, &q->link);
    if (++ch->n_questions > QUESTIONS_MAX)
        verdict(list_first(&ch->questions, struct channel_question, link), false);
    ask_people(q, in_hand(ch));
    channel_poll_again(ch); /* the answer may lie behind the window */
}

bool channel_pressed(struct channel *ch, struct json event)
{
    struct json press = json_get(event, "prompt_response");
    struct str prompt = json_str(press, "prompt_id");

    if (!str_starts(prompt, STR(PROMPT_PREFIX)))
        return false;
    list_each (&ch->questions, it, next) {
        struct channel_question *q = list_entry(it, struct channel_question, link);
        if (str_eq(str_of(q->prompt), prompt)) {
            verdict(q, str_eq(json_str(press, "option_id"), STR("allow")));
            break;
        }
    }
    return true; /* else of a question that is over, maybe of an earlier session */
}

void channel_notified(void *ctx, struct str method, struct json params)
{
    if (str_eq(method, STR("notifications/claude/channel/permission_request")))
        ask_permission(ctx, params);
}
