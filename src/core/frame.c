/* frame.c - design.  (frame.h has the contract.)
 *
 * Every delivery has an ack, nearly always in one of two spellings.  A fast path compares these
 * byte by byte; all other lines go through the JSON parser.  The fast path accepts only ids without
 * JSON escapes, so both paths give the same result.
 *
 * A frame that is a JSON object never counts against the peer: the contract requires both sides to
 * ignore unknown frames.  An `outbound` with an id is always reported, even when its action is
 * unknown, because its sender waits for an answer. */
#include "core/frame.h"
#include <assert.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/delivery_id.h"
#include "core/event.h"

/* ---- reading ---- */

static const struct {
    struct str name;
    enum frame_type type;
} types[] = {
    {STR("outbound"), FRAME_OUTBOUND},     {STR("inbound_ack"), FRAME_INBOUND_ACK},
    {STR("hello"), FRAME_HELLO},           {STR("interrupt"), FRAME_INTERRUPT},
    {STR("going_idle"), FRAME_GOING_IDLE},
};

static enum frame_type type_of(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_eq(types[i].name, name))
            return types[i].type;
    return FRAME_UNKNOWN;
}

/* Reads the id of an ack that starts with @head and ends directly after the id. */
static bool ack_after(struct str line, struct str head, struct str *ret_id)
{
    if (line.n < head.n + 3 || memcmp(line.p, head.p, head.n) != 0 || line.p[line.n - 2] != '"' ||
        line.p[line.n - 1] != '}')
        return false;
    struct str id = str_make(line.p + head.n, line.n - head.n - 2);
    for (size_t i = 0; i < id.n; i++)
        if (!(id.p[i] >= 'a' && id.p[i] <= 'z') && !(id.p[i] >= '0' && id.p[i] <= '9'))
            return false;
    *ret_id = id;
    return true;
}

static bool ack_read(struct str line, struct str *ret_id)
{
    return ack_after(line, STR("{\"type\":\"inbound_ack\",\"bufferId\":\""), ret_id) ||
           ack_after(line, STR("{\"type\": \"inbound_ack\", \"bufferId\": \""), ret_id);
}

/* Reads the members that only newer gateways send. */
static void rich_read(struct json a, struct action *ret)
{
    ret->media_kind = json_str(a, "media_kind");
    ret->source_url = json_str(a, "source_url");
    ret->filename = json_str(a, "filename");
    ret->prompt_kind = json_str(a, "prompt_kind");
    ret->prompt_id = json_str(a, "prompt_id");
    ret->options = json_get(a, "options");
    if (!json_as_i64(json_get(a, "timeout_s"), &ret->timeout_s) || ret->timeout_s < 0)
        ret->timeout_s = 0;
    ret->emoji = json_str(a, "emoji");
    ret->remove = json_as_bool(json_get(a, "remove"), false);
    ret->thread_name = json_str(a, "thread_name");
    ret->only_if_current_name = json_str(a, "only_if_current_name");
    ret->only_if_connector_created = json_as_bool(json_get(a, "only_if_connector_created"), false);
}

void frame_read_action(struct json doc, struct action *ret)
{
    struct json a = json_get(doc, "action"), meta = json_get(a, "metadata");
    struct json content = json_get(a, "content");

    ret->op_name = json_str(a, "op");
    ret->op = action_op_parse(ret->op_name);
    ret->chat_id = json_str(a, "chat_id");
    ret->content = json_as_str(content);
    ret->content_set = json_type(content) == JSON_STRING;
    ret->reply_to = json_str(a, "reply_to");
    ret->message_id = json_str(a, "message_id");
    ret->session_key = json_str(a, "session_key");
    ret->kind = json_str(a, "kind");
    ret->platform = json_str(doc, "platform");
    ret->bot = json_str(doc, "botId");
    if (ret->op >= ACTION_SEND_MEDIA)
        rich_read(a, ret);
    if (!json_is_object(meta))
        return;
    ret->metadata = meta;
    ret->thread_id = json_str(meta, "thread_id");
    ret->user_id = json_str(meta, "user_id");
    ret->scope_id = json_str(meta, "scope_id");
    if (str_is_empty(ret->scope_id))
        ret->scope_id = json_str(meta, "guild_id");
}

static void write_metadata(struct jw *w, const struct action *a)
{
    if (!json_is_object(a->metadata) && a->thread_id.p == NULL && a->scope_id.p == NULL &&
        a->user_id.p == NULL)
        return;
    jw_key(w, "metadata");
    if (json_is_object(a->metadata)) {
        jw_value(w, a->metadata);
        return;
    }
    jw_obj(w);
    jw_kstr_opt(w, "thread_id", a->thread_id);
    jw_kstr_opt(w, "scope_id", a->scope_id);
    jw_kstr_opt(w, "user_id", a->user_id);
    jw_end_obj(w);
}

static void rich_write(struct jw *w, const struct action *a)
{
    jw_kstr_opt(w, "media_kind", a->media_kind);
    jw_kstr_opt(w, "source_url", a->source_url);
    jw_kstr_opt(w, "filename", a->filename);
    jw_kstr_opt(w, "prompt_kind", a->prompt_kind);
    jw_kstr_opt(w, "prompt_id", a->prompt_id);
    if (json_type(a->options) != JSON_ABSENT) {
        jw_key(w, "options");
        jw_value(w, a->options);
    }
    if (a->timeout_s > 0)
        jw_ki64(w, "timeout_s", a->timeout_s);
    jw_kstr_opt(w, "emoji", a->emoji);
    if (a->remove)
        jw_kbool(w, "remove", true);
    jw_kstr_opt(w, "thread_name", a->thread_name);
    jw_kstr_opt(w, "only_if_current_name", a->only_if_current_name);
    if (a->only_if_connector_created)
        jw_kbool(w, "only_if_connector_created", true);
}

void frame_write_action(struct jw *w, const struct action *a)
{
    jw_obj(w);
    jw_kstr(w, "op", str_of(action_op_name(a->op)));
    jw_kstr_opt(w, "chat_id", a->chat_id);
    jw_kstr_opt(w, "content", a->content);
    jw_kstr_opt(w, "reply_to", a->reply_to);
    jw_kstr_opt(w, "message_id", a->message_id);
    jw_kstr_opt(w, "session_key", a->session_key);
    jw_kstr_opt(w, "kind", a->kind);
    if (a->op >= ACTION_SEND_MEDIA)
        rich_write(w, a);
    write_metadata(w, a);
    jw_end_obj(w);
}

/* False: the type is known, but the shape is not. */
static bool fields_read(struct json doc, struct frame *f)
{
    switch (f->type) {
    case FRAME_HELLO:
        f->platform = json_str(doc, "platform");
        f->bot = json_str(doc, "botId");
        f->manifest = json_get(doc, "command_manifest");
        if (json_type(f->manifest) != JSON_ARRAY)
            f->manifest = (struct json){0};
        return true;
    case FRAME_OUTBOUND:
        f->request_id = json_str(doc, "requestId");
        frame_read_action(doc, &f->action);
        return f->request_id.p != NULL && f->request_id.n <= FRAME_REQUEST_ID_MAX;
    case FRAME_INTERRUPT:
        f->session_key = json_str(doc, "session_key");
        return !str_is_empty(f->session_key);
    case FRAME_INBOUND_ACK:
        f->buffer_id = json_str(doc, "bufferId");
        return !str_is_empty(f->buffer_id);
    case FRAME_GOING_IDLE:
    case FRAME_UNKNOWN:
    case FRAME_MALFORMED:
        break;
    }
    return true;
}

void frame_read(struct json_parser *p, struct str line, struct frame *ret)
{
    struct json doc;

    *ret = (struct frame){.type = FRAME_UNKNOWN, .action.op = ACTION_UNKNOWN};
    line = str_trim(line);
    if (str_is_empty(line))
        return; /* blank lines between frames are ignored */
    if (ack_read(line, &ret->buffer_id)) {
        ret->type = FRAME_INBOUND_ACK;
        return;
    }
    if (!json_parse(p, line, &doc)) {
        ret->type = FRAME_MALFORMED;
        ret->why = json_error(p);
    } else if (!json_is_object(doc)) {
        ret->type = FRAME_MALFORMED;
        ret->why = "not an object";
    } else {
        ret->type = type_of(json_str(doc, "type"));
        if (!fields_read(doc, ret))
            ret->type = FRAME_UNKNOWN;
    }
}

/* ---- writing ---- */

static void write_chat_info(struct jw *w, const struct action_result *r)
{
    if (r->chat_name.p == NULL && r->chat_type.p == NULL)
        return;
    jw_key(w, "chat_info");
    jw_obj(w);
    jw_kstr_opt(w, "name", r->chat_name);
    jw_kstr_opt(w, "type", r->chat_type);
    jw_end_obj(w);
}

void frame_write_result(struct buf *out, struct str request_id, const struct action_result *r)
{
    struct jw w = jw_begin(out);

    assert(request_id.p != NULL);
    jw_obj(&w);
    jw_kstr(&w, "type", STR("outbound_result"));
    jw_kstr(&w, "requestId", request_id);
    jw_key(&w, "result");
    jw_obj(&w);
    jw_kbool(&w, "success", r->success);
    if (r->queued)
        jw_kbool(&w, "queued", true);
    if (!str_is_empty(r->message_id))
        jw_kstr(&w, "message_id", r->message_id);
    if (!r->success)
        jw_kstr(&w, "error", str_is_empty(r->error) ? STR("failed") : r->error);
    jw_kstr_opt(&w, "thread_id", r->thread_id);
    jw_kstr_opt(&w, "auto_thread_name", r->auto_thread_name);
    write_chat_info(&w, r);
    jw_end_obj(&w);
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

void frame_write_interrupt(struct buf *out, struct str session_key, struct str chat_id)
{
    struct jw w = jw_begin(out);

    assert(session_key.p != NULL);
    jw_obj(&w);
    jw_kstr(&w, "type", STR("interrupt_inbound"));
    jw_kstr(&w, "session_key", session_key);
    jw_kstr(&w, "chat_id",
            chat_id.p != NULL ? chat_id : STR("")); /* unknown: stops no typing indicator */
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

void frame_write_going_idle_ack(struct buf *out)
{
    buf_add_str(out, STR("{\"type\":\"going_idle_ack\"}\n"));
}

void frame_write_forward(struct buf *out, const struct forward *f)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(out);

    assert(f->platform.p != NULL && f->bot.p != NULL && f->method.p != NULL && f->path.p != NULL);
    buf_add_z(&body, ""); /* an empty body is "", never null */
    base64_add(&body, f->body.p, f->body.n);
    jw_obj(&w);
    jw_kstr(&w, "platform", f->platform);
    jw_kstr(&w, "botId", f->bot);
    jw_kstr(&w, "method", f->method);
    jw_kstr(&w, "path", f->path);
    jw_key(&w, "headers");
    jw_arr(&w);
    if (f->content_type.n > 0) {
        jw_arr(&w);
        jw_str(&w, STR("content-type"));
        jw_str(&w, f->content_type);
        jw_end_arr(&w);
    }
    jw_end_arr(&w);
    jw_kstr(&w, "bodyB64", buf_str(&body));
    jw_end_obj(&w);
    buf_done(&body);
}

void frame_write_passthrough(struct buf *out, struct str forward_json, const struct hash128 *id)
{
    /* A line break would split the frame in two; frame_write_forward() never writes one. */
    assert(forward_json.n > 1 && memchr(forward_json.p, '\n', forward_json.n) == NULL);
    buf_add_str(out, STR("{\"type\":\"passthrough_forward\","));
    if (id != NULL)
        delivery_id_write(out, *id);
    buf_add_str(out, STR("\"forward\":"));
    buf_add_str(out, forward_json);
    buf_add_str(out, STR("}\n"));
}

/* ---- for an agent inside ---- */

#define DISPATCH "\"dispatch\":"

void frame_write_dispatch(struct buf *out, struct str body, struct hash128 id)
{
    assert(body.n > 1 && memchr(body.p, '\n', body.n) == NULL);
    buf_add_str(out, STR("{\"type\":\"inbound\","));
    delivery_id_write(out, id);
    buf_add_str(out, STR(DISPATCH));
    buf_add_str(out, body);
    buf_add_str(out, STR("}\n"));
}

struct str frame_dispatch_body(struct str frame)
{
    struct str id = delivery_id_in(frame);
    struct str rest = id.p != NULL
                          ? str_make(id.p + id.n, (size_t)(frame.p + frame.n - (id.p + id.n)))
                          : STR_NULL;

    rest = str_trim(rest);
    if (!str_starts(rest, STR("\"," DISPATCH)) || rest.n < sizeof("\"," DISPATCH))
        return STR_NULL;
    rest = str_skip(rest, sizeof("\"," DISPATCH) - 1);
    return str_make(rest.p, rest.n - 1); /* without the brace that closes the frame */
}
