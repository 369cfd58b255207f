/* jsonrpc.c - see jsonrpc.h.
 *
 * Our calls are numbered from 1 and found by number, so an answer that comes late, twice or for
 * nothing finds nothing.  The peer's requests are kept as their id's JSON text, which goes back
 * unchanged. */
#include "net/jsonrpc.h"
#include <stdlib.h>
#include "base/json_mend.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

struct rpc_call {
    uint64_t number;
    jsonrpc_done_cb *done;
    void *ctx;
};

struct rpc_asked {
    struct list link;
    uint64_t ticket;
    char *id; /* owned; JSON */
};

struct jsonrpc {
    const struct jsonrpc_ops *ops; /* borrowed */
    void *ctx;
    struct json_parser *parser; /* owned */
    struct map calls;           /* struct rpc_call, by the bytes of its number */
    struct list asked;          /* struct rpc_asked */
    size_t n_asked;
    uint64_t last_call, last_ticket;
};

static struct str number_key(const uint64_t *number)
{
    return str_make(number, sizeof *number);
}

struct jsonrpc *jsonrpc_new(const struct jsonrpc_ops *ops, void *ctx)
{
    struct jsonrpc *r = xcalloc(1, sizeof *r);

    *r = (struct jsonrpc){.ops = ops, .ctx = ctx, .parser = json_parser_new(), .calls = MAP_INIT};
    list_init(&r->asked);
    return r;
}

static void asked_free(struct jsonrpc *r, struct rpc_asked *q)
{
    list_remove(&q->link);
    r->n_asked--;
    free(q->id);
    free(q);
}

void jsonrpc_free(struct jsonrpc *r)
{
    if (r == NULL)
        return;
    list_each (&r->asked, it, next)
        asked_free(r, list_entry(it, struct rpc_asked, link));
    map_done_all(&r->calls);
    json_parser_free(r->parser);
    free(r);
}

/* ---- out ---- */

static struct jw begin_message(struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "jsonrpc", STR("2.0"));
    return w;
}

static void send_message(struct jsonrpc *r, struct jw *w)
{
    jw_end_obj(w);
    buf_add_c(w->out, '\n');
    r->ops->write(r->ctx, buf_str(w->out));
}

static void send_method(struct jsonrpc *r, uint64_t number, const char *method, struct str params)
{
    BUF_LOCAL line = BUF_INIT;
    struct jw w = begin_message(&line);

    if (number != 0) {
        jw_key(&w, "id");
        jw_u64(&w, number);
    }
    jw_kstr(&w, "method", str_of(method));
    if (params.p != NULL)
        jw_kraw(&w, "params", params);
    send_message(r, &w);
}

bool jsonrpc_call_as(struct jsonrpc *r, uint64_t number, const char *method, struct str params,
                     jsonrpc_done_cb *done, void *ctx)
{
    if (map_count(&r->calls) >= JSONRPC_MAX_CALLS ||
        map_get(&r->calls, number_key(&number)) != NULL)
        return false;
    struct rpc_call *c = xcalloc(1, sizeof *c);
    *c = (struct rpc_call){.number = number, .done = done, .ctx = ctx};
    map_put(&r->calls, number_key(&c->number), c);
    send_method(r, c->number, method, params);
    return true;
}

uint64_t jsonrpc_call(struct jsonrpc *r, const char *method, struct str params,
                      jsonrpc_done_cb *done, void *ctx)
{
    return jsonrpc_call_as(r, r->last_call + 1, method, params, done, ctx) ? ++r->last_call : 0;
}

void jsonrpc_forget(struct jsonrpc *r, uint64_t *call)
{
    free(map_del(&r->calls, number_key(call)));
    *call = 0;
}

void jsonrpc_notify(struct jsonrpc *r, const char *method, struct str params)
{
    send_method(r, 0, method, params);
}

static void send_error(struct jsonrpc *r, const char *id, enum jsonrpc_code code, const char *why)
{
    BUF_LOCAL line = BUF_INIT;
    struct jw w = begin_message(&line);

    jw_kraw(&w, "id", str_of(id));
    jw_kobj(&w, "error");
    jw_ki64(&w, "code", code);
    jw_kstr(&w, "message", str_of(why));
    jw_end_obj(&w);
    send_message(r, &w);
}

static struct rpc_asked *asked_find(const struct jsonrpc *r, uint64_t ticket)
{
    list_each (&r->asked, it, next) {
        struct rpc_asked *q = list_entry(it, struct rpc_asked, link);
        if (q->ticket == ticket)
            return q;
    }
    return NULL;
}

void jsonrpc_answer(struct jsonrpc *r, uint64_t ticket, struct str result)
{
    struct rpc_asked *q = asked_find(r, ticket);
    BUF_LOCAL line = BUF_INIT;

    if (q == NULL)
        return;
    struct jw w = begin_message(&line);
    jw_kraw(&w, "id", str_of(q->id));
    jw_kraw(&w, "result", result);
    asked_free(r, q);
    send_message(r, &w);
}

void jsonrpc_refuse(struct jsonrpc *r, uint64_t ticket, enum jsonrpc_code code, const char *why)
{
    struct rpc_asked *q = asked_find(r, ticket);

    if (q == NULL)
        return;
    send_error(r, q->id, code, why);
    asked_free(r, q);
}

/* ---- in ---- */

/* The JSON text of a peer's id.  False: not an id, or too long. */
static bool id_text(struct json id, struct buf *out)
{
    struct jw w = jw_begin(out);
    enum json_type type = json_type(id);

    if ((type != JSON_STRING && type != JSON_NUMBER && type != JSON_NULL) ||
        json_as_str(id).n > JSONRPC_MAX_ID)
        return false;
    jw_value(&w, id);
    return out->n <= JSONRPC_MAX_ID;
}

uint64_t jsonrpc_ticket(const struct jsonrpc *r, struct json id)
{
    BUF_LOCAL text = BUF_INIT;

    if (!id_text(id, &text))
        return 0;
    list_each (&r->asked, it, next) {
        struct rpc_asked *q = list_entry(it, struct rpc_asked, link);
        if (str_eq(str_of(q->id), buf_str(&text)))
            return q->ticket;
    }
    return 0;
}

static void take_request(struct jsonrpc *r, struct json id, struct str method, struct json params)
{
    BUF_LOCAL text = BUF_INIT;

    if (!id_text(id, &text)) {
        send_error(r, "null", JSONRPC_INVALID_REQUEST, "the id is not a string, number or null");
        return;
    }
    if (r->n_asked >= JSONRPC_MAX_ASKED) {
        send_error(r, buf_z(&text), JSONRPC_BUSY, "too many open requests");
        return;
    }
    if (jsonrpc_ticket(r, id) != 0) {
        send_error(r, buf_z(&text), JSONRPC_INVALID_REQUEST, "a request with this id is open");
        return;
    }
    struct rpc_asked *q = xcalloc(1, sizeof *q);
    *q = (struct rpc_asked){.ticket = ++r->last_ticket, .id = buf_take(&text)};
    list_init(&q->link);
    list_append(&r->asked, &q->link);
    r->n_asked++;
    r->ops->request(r->ctx, q->ticket, method, params);
}

static void take_answer(struct jsonrpc *r, struct json doc, struct str line)
{
    uint64_t number = 0;
    struct json error = json_get(doc, "error"), result = json_get(doc, "result");
    bool numbered = json_as_u64(json_get(doc, "id"), &number);
    struct rpc_call *c = numbered ? map_del(&r->calls, number_key(&number)) : NULL;

    if (c == NULL && (!numbered || r->ops->stray == NULL)) {
        r->ops->noise(r->ctx, line, "an answer to no open request");
        return;
    }
    struct jsonrpc_result end = {.ok = json_type(result) != JSON_ABSENT && !json_is_object(error),
                                 .value = result};
    if (!end.ok) {
        end.value = json_get(error, "data");
        end.code = json_i64(error, "code", JSONRPC_INTERNAL);
        end.message = json_str(error, "message");
        if (str_is_empty(end.message))
            end.message = STR("no reason given");
    }
    if (c == NULL) {
        r->ops->stray(r->ctx, number, &end);
        return;
    }
    jsonrpc_done_cb *done = c->done;
    void *ctx = c->ctx;
    free(c);
    done(ctx, &end);
}

void jsonrpc_line(struct jsonrpc *r, struct str line)
{
    struct json doc;

    line = str_trim(line);
    if (line.n == 0)
        return;
    if (!json_parse_mended(r->parser, line, &doc)) {
        r->ops->noise(r->ctx, line, "not JSON");
        return;
    }
    struct json method = json_get(doc, "method"), id = json_get(doc, "id"),
                params = json_get(doc, "params");
    enum json_type shape = json_type(params);
    bool request = json_type(id) != JSON_ABSENT;

    if (json_type(doc) == JSON_ARRAY) {
        send_error(r, "null", JSONRPC_INVALID_REQUEST, "batches are not supported");
    } else if (!json_is_object(doc)) {
        r->ops->noise(r->ctx, line, "not an object");
    } else if (json_type(method) == JSON_ABSENT) {
        take_answer(r, doc, line);
    } else if (json_type(method) != JSON_STRING || (shape != JSON_ABSENT && shape != JSON_NULL &&
                                                    shape != JSON_OBJECT && shape != JSON_ARRAY)) {
        r->ops->noise(r->ctx, line, "not a JSON-RPC message");
        if (request)
            send_error(r, "null", JSONRPC_INVALID_REQUEST, "not a JSON-RPC request");
    } else if (request) {
        take_request(r, id, json_as_str(method), shape == JSON_NULL ? (struct json){0} : params);
    } else {
        r->ops->notified(r->ctx, json_as_str(method),
                         shape == JSON_NULL ? (struct json){0} : params);
    }
}
