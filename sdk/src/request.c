/* request.c - requests and their results.
 *
 *      made --> waiting for its result --result, 30 s, or a deliberate close--> finished
 *
 * A lost connection does not end a request: the connector may answer on the next connection.  The
 * list is in order of age and all requests have the same timeout, so the oldest expires first.  A
 * finished request wakes its waiting thread, or goes to the notices thread as a notice. */
#include <assert.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "client.h"

#define MAX_UNSENT_BYTES ((size_t)32 << 20) /* bound for a connector that reads too slowly */
#define ERROR_BUSY "network trouble: the connector reads too slowly"
#define ERROR_BAD_ACTION "the action is not a JSON object"

void gwc_request_free(struct gwc_request *req)
{
    bhgw_result_free(req->result);
    free(req->chat_id);
    free(req->message_id);
    free(req);
}

static struct gwc_request *request_new(struct bhgw *gw)
{
    struct gwc_request *req = xcalloc(1, sizeof *req);
    struct rand r = RAND_SYSTEM;
    struct buf hex = BUF_INIT;
    uint8_t raw[16];

    rand_bytes(&r, raw, sizeof raw);
    hex_add(&hex, raw, sizeof raw);
    memcpy(req->id, buf_z(&hex), sizeof req->id);
    buf_done(&hex);
    list_init(&req->link);
    req->due_ms = gwc_now_ms() + gw->opt.request_timeout_ms;
    return req;
}

static void finish(struct bhgw *gw, struct gwc_request *req, struct bhgw_result *result)
{
    list_remove(&req->link);
    map_del(&gw->request_by_id, str_of(req->id));
    if (req->waiter != NULL) {
        req->waiter->result = result;
        pthread_cond_signal(&req->waiter->cond);
        gwc_request_free(req);
        return;
    }
    req->result = result;
    if (req->done == NULL) {
        gwc_request_free(req);
        return;
    }
    struct gwc_notice *n = xcalloc(1, sizeof *n);
    n->kind = GWC_NOTICE_DONE;
    n->request = req;
    gwc_notify_locked(gw, n);
}

void gwc_result_arrived(struct bhgw *gw, struct json doc)
{
    struct gwc_request *req = map_get(&gw->request_by_id, json_str(doc, "requestId"));

    if (req != NULL) /* NULL: late or unknown */
        finish(gw, req, gwc_result_read(json_get(doc, "result"), req));
}

void gwc_requests_expire(struct bhgw *gw, int64_t now_ms)
{
    list_each (&gw->requests, it, next) {
        struct gwc_request *req = list_entry(it, struct gwc_request, link);
        if (req->due_ms > now_ms)
            break;
        gw->stats.timeouts++;
        finish(gw, req, gwc_result_failure(BHGW_ERROR_TIMED_OUT));
    }
}

void gwc_requests_fail(struct bhgw *gw)
{
    list_each (&gw->requests, it, next)
        finish(gw, list_entry(it, struct gwc_request, link),
               gwc_result_failure(BHGW_ERROR_NOT_CONNECTED));
}

static void send_request(struct bhgw *gw, const struct gwc_request *req, struct str action,
                         const char *platform, const char *bot_id)
{
    struct buf line = BUF_INIT;
    struct jw w = jw_begin(&line);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("outbound"));
    jw_kstr(&w, "requestId", str_of(req->id));
    jw_kraw(&w, "action", action);
    jw_kstr_opt(&w, "platform", str_of(platform));
    jw_kstr_opt(&w, "botId", str_of(bot_id));
    jw_end_obj(&w);
    buf_add_c(&line, '\n');
    gwc_send_line(gw, buf_str(&line));
    buf_done(&line);
    gwc_wake_locked(gw);
}

/* Registers @req, and sends it if connected. */
static void submit_locked(struct bhgw *gw, struct gwc_request *req, struct str action,
                          const char *platform, const char *bot_id)
{
    list_append(&gw->requests, &req->link);
    map_put(&gw->request_by_id, str_of(req->id), req);
    gw->stats.requests++;
    if (action.p == NULL)
        finish(gw, req, gwc_result_failure(ERROR_BAD_ACTION));
    else if (!gwc_is_connected(gw))
        finish(gw, req, gwc_result_failure(BHGW_ERROR_NOT_CONNECTED));
    else if (gwc_conn_unsent(&gw->conn) > MAX_UNSENT_BYTES)
        finish(gw, req, gwc_result_failure(ERROR_BUSY));
    else
        send_request(gw, req, action, platform, bot_id);
}

/* How the caller gets the result: by a callback, or by waiting for it. */
struct reply_to {
    bhgw_done_cb *done; /* NULL: nobody is told */
    void *done_ctx;
    bool wait;
};

/* Submits @req.  An empty @action is malformed.  Frees @action.  Returns the result if the caller
 * waits for it, else NULL. */
static struct bhgw_result *submit(struct bhgw *gw, struct gwc_request *req, struct buf *action,
                                  const char *platform, const char *bot_id, struct reply_to to)
{
    struct gwc_waiter waiter = {.cond = PTHREAD_COND_INITIALIZER};

    assert(gw->magic == GWC_MAGIC);
    req->done = to.done;
    req->done_ctx = to.done_ctx;
    if (to.wait)
        req->waiter = &waiter; /* cppcheck-suppress autoVariables ; answered before we return */
    pthread_mutex_lock(&gw->lock);
    submit_locked(gw, req, action->n > 0 ? buf_str(action) : STR_NULL, platform,
                  bot_id); /* may free @req */
    while (to.wait && waiter.result == NULL)
        pthread_cond_wait(&waiter.cond, &gw->lock);
    pthread_mutex_unlock(&gw->lock);
    pthread_cond_destroy(&waiter.cond);
    buf_done(action);
    return waiter.result;
}

/* ---- actions as JSON ---- */

/* The members of @json, an object, are written where @w stands; false: it is not an object. */
static bool add_members(struct jw *w, struct json_parser *p, const char *json)
{
    struct json doc;

    if (!json_parse(p, str_of(json), &doc) || !json_is_object(doc))
        return false;
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        jw_key_str(w, it.key);
        jw_value(w, it.value);
    }
    return true;
}

static bool write_action(struct buf *out, const struct bhgw_action *a)
{
    static const char *const with_metadata[] = {"send", "edit", "typing", "follow_up"};
    struct json_parser *p = json_parser_new();
    struct jw w = jw_begin(out);
    bool ok = true, metadata = a->metadata != NULL;

    for (size_t i = 0; i < ARRAY_LEN(with_metadata); i++)
        metadata |= strcmp(a->op, with_metadata[i]) == 0;
    jw_obj(&w);
    jw_kstr(&w, "op", str_of(a->op));
    jw_kstr_opt(&w, "chat_id", str_of(a->chat_id));
    jw_kstr_opt(&w, "message_id", str_of(a->message_id));
    jw_kstr_opt(&w, "session_key", str_of(a->session_key));
    jw_kstr_opt(&w, "kind", str_of(a->kind));
    jw_kstr_opt(&w, "content", str_of(a->content));
    if (a->reply_to != NULL || strcmp(a->op, "send") == 0)
        jw_kstr(&w, "reply_to", str_of(a->reply_to));
    if (metadata) {
        jw_kobj(&w, "metadata");
        ok = a->metadata == NULL || add_members(&w, p, a->metadata);
        jw_end_obj(&w);
    }
    if (ok && a->extra != NULL)
        ok = add_members(&w, p, a->extra);
    jw_end_obj(&w);
    json_parser_free(p);
    return ok && !buf_failed(out);
}

static struct bhgw_result *perform(struct bhgw *gw, const struct bhgw_action *given,
                                   struct reply_to to)
{
    struct bhgw_action a = {0}; /* a copy, as far as the caller's version of the struct goes */
    struct gwc_request *req = request_new(gw);
    struct buf action = BUF_INIT;

    assert(given->struct_bytes >= offsetof(struct bhgw_action, chat_id) && given->op != NULL);
    memcpy(&a, given, given->struct_bytes < sizeof a ? given->struct_bytes : sizeof a);
    req->chat_id = xstrdup(a.chat_id);
    req->message_id = strcmp(a.op, "edit") == 0 ? xstrdup(a.message_id) : NULL;
    if (!write_action(&action, &a))
        buf_done(&action);
    return submit(gw, req, &action, a.platform, a.bot_id, to);
}

void bhgw_request(struct bhgw *gw, const struct bhgw_action *a, bhgw_done_cb *done, void *done_ctx)
{
    perform(gw, a, (struct reply_to){done, done_ctx, false});
}

struct bhgw_result *bhgw_request_wait(struct bhgw *gw, const struct bhgw_action *a)
{
    return perform(gw, a, (struct reply_to){.wait = true});
}

/* Parses and rewrites the JSON, so that it is valid and on one line. */
static struct bhgw_result *perform_json(struct bhgw *gw, const char *json, const char *platform,
                                        const char *bot_id, struct reply_to to)
{
    struct gwc_request *req = request_new(gw);
    struct json_parser *p = json_parser_new();
    struct buf action = BUF_INIT;
    struct jw w = jw_begin(&action);
    struct json doc;

    if (json_parse(p, str_of(json), &doc) && json_is_object(doc)) {
        struct str chat = json_str(doc, "chat_id"), message = json_str(doc, "message_id");
        req->chat_id = chat.p != NULL ? str_dup(chat) : NULL;
        if (message.p != NULL && str_eq(json_str(doc, "op"), STR("edit")))
            req->message_id = str_dup(message);
        jw_value(&w, doc);
    }
    json_parser_free(p);
    return submit(gw, req, &action, platform, bot_id, to);
}

void bhgw_request_json(struct bhgw *gw, const char *action_json, const char *platform,
                       const char *bot_id, bhgw_done_cb *done, void *done_ctx)
{
    perform_json(gw, action_json, platform, bot_id, (struct reply_to){done, done_ctx, false});
}

struct bhgw_result *bhgw_request_json_wait(struct bhgw *gw, const char *action_json,
                                           const char *platform, const char *bot_id)
{
    return perform_json(gw, action_json, platform, bot_id, (struct reply_to){.wait = true});
}

/* ---- the common requests in one call each ---- */

static struct bhgw_action action(const char *op, const char *chat_id, const char *content,
                                 const char *metadata)
{
    struct bhgw_action a = bhgw_action_init(op);

    a.chat_id = chat_id;
    a.content = content;
    a.metadata = metadata;
    return a;
}

static struct bhgw_action answer(const struct bhgw *gw, const struct bhgw_event *ev,
                                 const char *content)
{
    struct bhgw_action a = action("send", ev->chat_id, content, ev->answer_metadata);

    a.reply_to = ev->message_id;
    /* Name the platform only where we said hello for it: for anything else the connector knows
     * better, by the chat. */
    for (size_t i = 0; i < gw->opt.n_identities && a.platform == NULL; i++) {
        if (strcmp(gw->opt.identities[i].platform, ev->platform) == 0) {
            a.platform = ev->platform;
            a.bot_id = ev->bot_id;
        }
    }
    return a;
}

void bhgw_reply(struct bhgw *gw, const struct bhgw_event *ev, const char *content,
                bhgw_done_cb *done, void *done_ctx)
{
    struct bhgw_action a = answer(gw, ev, content);

    bhgw_request(gw, &a, done, done_ctx);
}

struct bhgw_result *bhgw_reply_wait(struct bhgw *gw, const struct bhgw_event *ev,
                                    const char *content)
{
    struct bhgw_action a = answer(gw, ev, content);

    return bhgw_request_wait(gw, &a);
}

void bhgw_send(struct bhgw *gw, const char *chat_id, const char *content, const char *reply_to,
               const char *metadata, bhgw_done_cb *done, void *done_ctx)
{
    struct bhgw_action a = action("send", chat_id, content, metadata);

    a.reply_to = reply_to;
    bhgw_request(gw, &a, done, done_ctx);
}

struct bhgw_result *bhgw_send_wait(struct bhgw *gw, const char *chat_id, const char *content,
                                   const char *reply_to, const char *metadata)
{
    struct bhgw_action a = action("send", chat_id, content, metadata);

    a.reply_to = reply_to;
    return bhgw_request_wait(gw, &a);
}

void bhgw_edit(struct bhgw *gw, const char *chat_id, const char *message_id, const char *content,
               const char *metadata, bhgw_done_cb *done, void *done_ctx)
{
    struct bhgw_action a = action("edit", chat_id, content, metadata);

    a.message_id = message_id;
    bhgw_request(gw, &a, done, done_ctx);
}

struct bhgw_result *bhgw_edit_wait(struct bhgw *gw, const char *chat_id, const char *message_id,
                                   const char *content, const char *metadata)
{
    struct bhgw_action a = action("edit", chat_id, content, metadata);

    a.message_id = message_id;
    return bhgw_request_wait(gw, &a);
}

void bhgw_typing(struct bhgw *gw, const char *chat_id, const char *metadata)
{
    struct bhgw_action a = action("typing", chat_id, NULL, metadata);

    bhgw_request(gw, &a, NULL, NULL);
}

struct bhgw_result *bhgw_get_chat_info_wait(struct bhgw *gw, const char *chat_id)
{
    struct bhgw_action a = action("get_chat_info", chat_id, NULL, NULL);

    return bhgw_request_wait(gw, &a);
}

static struct bhgw_action follow_up(const char *session_key, const char *kind, const char *content,
                                    const char *metadata)
{
    struct bhgw_action a = action("follow_up", NULL, content, metadata);

    a.session_key = session_key;
    a.kind = kind;
    return a;
}

void bhgw_follow_up(struct bhgw *gw, const char *session_key, const char *kind, const char *content,
                    const char *metadata, bhgw_done_cb *done, void *done_ctx)
{
    struct bhgw_action a = follow_up(session_key, kind, content, metadata);

    bhgw_request(gw, &a, done, done_ctx);
}

struct bhgw_result *bhgw_follow_up_wait(struct bhgw *gw, const char *session_key, const char *kind,
                                        const char *content, const char *metadata)
{
    struct bhgw_action a = follow_up(session_key, kind, content, metadata);

    return bhgw_request_wait(gw, &a);
}

enum bhgw_status bhgw_interrupt(struct bhgw *gw, const char *session_key, const char *reason)
{
    enum bhgw_status status = BHGW_NOT_CONNECTED;
    struct buf line = BUF_INIT;
    struct jw w = jw_begin(&line);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("interrupt"));
    jw_kstr(&w, "session_key", str_of(session_key));
    jw_kstr(&w, "reason", str_of(reason));
    jw_end_obj(&w);
    buf_add_c(&line, '\n');
    pthread_mutex_lock(&gw->lock);
    if (gwc_is_connected(gw)) {
        gwc_send_line(gw, buf_str(&line));
        gwc_wake_locked(gw);
        status = BHGW_OK;
    }
    pthread_mutex_unlock(&gw->lock);
    buf_done(&line);
    return status;
}
