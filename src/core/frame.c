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
#include "base/json_mend.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/event.h"

/* ---- actions ---- */

static const char *const op_names[] = {
    [ACTION_SEND] = "send",
    [ACTION_EDIT] = "edit",
    [ACTION_TYPING] = "typing",
    [ACTION_FOLLOW_UP] = "follow_up",
    [ACTION_GET_CHAT_INFO] = "get_chat_info",
    [ACTION_SEND_MEDIA] = "send_media",
    [ACTION_PROMPT] = "prompt",
    [ACTION_REACT] = "react",
    [ACTION_THREAD_CREATE] = "thread_create",
    [ACTION_THREAD_RENAME] = "thread_rename",
    [ACTION_DRAFT] = "draft",
    [ACTION_TASK_CARD] = "task_card",
    [ACTION_UNKNOWN] = "unknown",
};

const char *action_op_name(enum action_op op)
{
    assert(op <= ACTION_UNKNOWN);
    return op_names[op];
}

/* A cursor is one of the blocks U+2588 to U+258F, after an optional space. */
struct str action_without_cursor(struct str content)
{
    const unsigned char *p = (const unsigned char *)content.p;

    if (content.n < 3 || p[content.n - 3] != 0xe2 || p[content.n - 2] != 0x96 ||
        p[content.n - 1] < 0x88 || p[content.n - 1] > 0x8f)
        return content;
    content.n -= 3;
    if (content.n > 0 && content.p[content.n - 1] == ' ')
        content.n--;
    return content;
}

enum action_op action_op_parse(struct str name)
{
    for (enum action_op op = 0; op < ACTION_UNKNOWN; op++)
        if (str_eq(name, str_of(op_names[op])))
            return op;
    return str_eq(name, STR("task_card_stop")) ? ACTION_TASK_CARD : ACTION_UNKNOWN;
}

struct action_text { /* a text of the "action" object */
    const char *name;
    size_t at;
};
#define TEXT(member) \
    { \
#member, offsetof(struct action, member) \
    }

static const struct action_text texts[] = {
    TEXT(chat_id), TEXT(reply_to), TEXT(message_id), TEXT(session_key), TEXT(kind),
};
/* Only newer gateways send these, and only with the newer ops. */
static const struct action_text rich_texts[] = {
    TEXT(media_kind), TEXT(source_url), TEXT(filename),    TEXT(prompt_kind),
    TEXT(prompt_id),  TEXT(emoji),      TEXT(thread_name), TEXT(only_if_current_name),
    TEXT(deciders),
};

static void texts_read(struct json a, const struct action_text *table, size_t n, struct action *ret)
{
    for (size_t i = 0; i < n; i++)
        *(struct str *)(void *)((char *)ret + table[i].at) = json_str(a, table[i].name);
}

void frame_read_action(struct json a, struct action *ret)
{
    struct json meta = json_get(a, "metadata"), content = json_get(a, "content");

    ret->op_name = json_str(a, "op");
    ret->op = action_op_parse(ret->op_name);
    ret->content = json_as_str(content);
    ret->content_set = json_type(content) == JSON_STRING;
    texts_read(a, texts, ARRAY_LEN(texts), ret);
    if (ret->op == ACTION_DRAFT) {
        if (!json_as_i64(json_get(a, "draft_id"), &ret->draft_id))
            ret->draft_id = 0;
        ret->final = json_as_bool(json_get(a, "final"), false);
        ret->is_message = json_as_bool(json_get(a, "message"), false);
    } else if (ret->op == ACTION_TASK_CARD) {
        ret->card_id = json_str(a, "card_id");
        ret->chunks = json_get(a, "chunks");
        ret->final = str_eq(ret->op_name, STR("task_card_stop"));
    } else if (ret->op >= ACTION_SEND_MEDIA) {
        texts_read(a, rich_texts, ARRAY_LEN(rich_texts), ret);
        ret->options = json_get(a, "options");
        if (!json_as_i64(json_get(a, "timeout_s"), &ret->timeout_s) || ret->timeout_s < 0)
            ret->timeout_s = 0;
        ret->remove = json_as_bool(json_get(a, "remove"), false);
        ret->only_if_connector_created =
            json_as_bool(json_get(a, "only_if_connector_created"), false);
    }
    if (!json_is_object(meta))
        return;
    ret->metadata = meta;
    ret->thread_id = json_str(meta, "thread_id");
    if (str_is_empty(ret->thread_id))
        ret->thread_id = json_str(meta, "thread_ts"); /* Slack's name for it */
    ret->user_id = json_str(meta, "user_id");
    ret->trace = json_str(meta, "traceparent");
    ret->scope_id = json_str(meta, "scope_id");
    if (str_is_empty(ret->scope_id))
        ret->scope_id = json_str(meta, "guild_id");
}

static void texts_write(struct jw *w, const struct action_text *table, size_t n,
                        const struct action *a)
{
    for (size_t i = 0; i < n; i++)
        jw_kstr_opt(w, table[i].name,
                    *(const struct str *)(const void *)((const char *)a + table[i].at));
}

void frame_write_action(struct jw *w, const struct action *a)
{
    jw_obj(w);
    jw_kstr(w, "op", str_of(action_op_name(a->op)));
    jw_kstr_opt(w, "content", a->content);
    texts_write(w, texts, ARRAY_LEN(texts), a);
    if (a->draft_id != 0) { /* a final draft that became a send keeps its number */
        jw_ki64(w, "draft_id", a->draft_id);
        jw_kbool(w, "final", a->final);
        jw_kbool(w, "message", a->is_message);
    }
    if (a->op >= ACTION_SEND_MEDIA) {
        texts_write(w, rich_texts, ARRAY_LEN(rich_texts), a);
        if (json_type(a->options) != JSON_ABSENT) {
            jw_kvalue(w, "options", a->options);
        }
        if (a->timeout_s > 0)
            jw_ki64(w, "timeout_s", a->timeout_s);
        if (a->remove)
            jw_kbool(w, "remove", true);
        if (a->only_if_connector_created)
            jw_kbool(w, "only_if_connector_created", true);
    }
    if (json_is_object(a->metadata)) {
        jw_kvalue(w, "metadata", a->metadata);
    } else if (a->thread_id.p != NULL || a->scope_id.p != NULL || a->user_id.p != NULL) {
        jw_kobj(w, "metadata");
        jw_kstr_opt(w, "thread_id", a->thread_id);
        jw_kstr_opt(w, "scope_id", a->scope_id);
        jw_kstr_opt(w, "user_id", a->user_id);
        jw_end_obj(w);
    }
    jw_end_obj(w);
}

/* ---- reading ---- */

/* The two usual spellings end directly after the id. */
bool frame_is_ack(struct str line, struct str *ret_id)
{
    static const struct str heads[] = {STR("{\"type\":\"inbound_ack\",\"bufferId\":\""),
                                       STR("{\"type\": \"inbound_ack\", \"bufferId\": \"")};
    static const bool plain[256] = {['a' ... 'z'] = true, ['0' ... '9'] = true};

    line = str_trim(line);
    const struct str head = heads[line.n > 8 && line.p[8] == ' '];
    if (line.n < head.n + 3 || memcmp(line.p, head.p, head.n) != 0 || line.p[line.n - 2] != '"' ||
        line.p[line.n - 1] != '}')
        return false;
    struct str id = str_make(line.p + head.n, line.n - head.n - 2);
    for (size_t i = 0; i < id.n; i++)
        if (!plain[(unsigned char)id.p[i]])
            return false;
    *ret_id = id;
    return true;
}

void frame_read(struct json_parser *p, struct str line, struct frame *ret)
{
    static const struct {
        struct str name;
        enum frame_type type;
    } types[] = {
        {STR("outbound"), FRAME_OUTBOUND},     {STR("inbound_ack"), FRAME_INBOUND_ACK},
        {STR("hello"), FRAME_HELLO},           {STR("interrupt"), FRAME_INTERRUPT},
        {STR("going_idle"), FRAME_GOING_IDLE},
    };
    struct json doc;

    *ret = (struct frame){.type = FRAME_UNKNOWN, .action.op = ACTION_UNKNOWN};
    line = str_trim(line);
    if (str_is_empty(line))
        return; /* blank lines between frames are ignored */
    if (frame_is_ack(line, &ret->buffer_id)) {
        ret->type = FRAME_INBOUND_ACK;
        return;
    }
    bool is_json = json_parse_mended(p, line, &doc);
    if (!is_json || !json_is_object(doc)) {
        ret->type = FRAME_MALFORMED;
        ret->why = is_json ? "not an object" : json_error(p);
        return;
    }
    struct str name = json_str(doc, "type");
    bool ok = true; /* else the type is known, but the shape is not */
    for (size_t i = 0; i < ARRAY_LEN(types) && ret->type == FRAME_UNKNOWN; i++)
        if (str_eq(types[i].name, name))
            ret->type = types[i].type;
    switch (ret->type) {
    case FRAME_HELLO:
        ret->platform = event_platform_meant(json_str(doc, "platform"));
        ret->bot = json_str(doc, "botId");
        if (json_type(json_get(doc, "command_manifest")) == JSON_ARRAY)
            ret->manifest = json_get(doc, "command_manifest");
        ret->late_acks = json_as_bool(json_get(doc, "late_acks"), false);
        break;
    case FRAME_OUTBOUND:
        ret->request_id = json_str(doc, "requestId");
        frame_read_action(json_get(doc, "action"), &ret->action);
        ret->action.platform = event_platform_meant(json_str(doc, "platform"));
        ret->action.bot = json_str(doc, "botId");
        ok = ret->request_id.p != NULL && ret->request_id.n <= FRAME_REQUEST_ID_MAX;
        break;
    case FRAME_INTERRUPT:
        ret->session_key = json_str(doc, "session_key");
        ret->reason = json_str(doc, "reason");
        ok = ret->session_key.n > 0;
        break;
    case FRAME_INBOUND_ACK:
        ret->buffer_id = json_str(doc, "bufferId");
        ok = ret->buffer_id.n > 0;
        break;
    default:
        break;
    }
    if (!ok)
        ret->type = FRAME_UNKNOWN;
}

/* ---- writing ---- */

void frame_write_result(struct buf *out, struct str request_id, const struct action_result *r)
{
    struct jw w = jw_begin(out);

    assert(request_id.p != NULL);
    jw_obj(&w);
    jw_kstr(&w, "type", STR("outbound_result"));
    jw_kstr(&w, "requestId", request_id);
    jw_kobj(&w, "result");
    jw_kbool(&w, "success", r->success);
    if (r->queued)
        jw_kbool(&w, "queued", true);
    if (!str_is_empty(r->message_id))
        jw_kstr(&w, "message_id", r->message_id);
    if (!r->success)
        jw_kstr(&w, "error", str_is_empty(r->error) ? STR("failed") : r->error);
    jw_kstr_opt(&w, "thread_id", r->thread_id);
    jw_kstr_opt(&w, "auto_thread_name", r->auto_thread_name);
    if (r->chat_name.p != NULL || r->chat_type.p != NULL) {
        jw_kobj(&w, "chat_info");
        jw_kstr_opt(&w, "name", r->chat_name);
        jw_kstr_opt(&w, "type", r->chat_type);
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

void frame_write_interrupt(struct buf *out, struct str session_key, struct str chat_id,
                           struct str reason)
{
    struct jw w = jw_begin(out);

    assert(session_key.p != NULL);
    jw_obj(&w);
    jw_kstr(&w, "type", STR("interrupt_inbound"));
    jw_kstr(&w, "session_key", session_key);
    jw_kstr(&w, "chat_id",
            chat_id.p != NULL ? chat_id : STR("")); /* unknown: stops no typing indicator */
    jw_kstr_opt(&w, "reason", reason);
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
    jw_karr(&w, "headers");
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
