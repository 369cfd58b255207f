/* conform_frames.c - the lines of a socket, and the checks of their form.  (conform.h has the
 * contract.) */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/conform.h"
#include "core/contract.h"
#include "core/event.h"

#define LINE_MAX_BYTES ((size_t)16 << 20)
#define LINES_MAX 65536 /* that no obligation has taken yet; further ones are only checked */

struct frame_line {
    struct list link;
    size_t n;
    char text[];
};

/* ---- verdicts ---- */

static void BH_PRINTF(2, 0) clean(struct buf *out, const char *fmt, va_list ap)
{
    char *text = NULL;

    if (vasprintf(&text, fmt, ap) < 0)
        return;
    buf_add_plain(out, str_make(text, strnlen(text, 250)));
    free(text);
}

bool came(struct conform *c, bool as_expected, const char *fmt, ...)
{
    va_list ap;

    if (c->end == CONFORM_OPEN) {
        c->end = as_expected ? CONFORM_MET : CONFORM_BROKEN;
        va_start(ap, fmt);
        clean(&c->came, fmt, ap);
        va_end(ap);
    }
    return as_expected;
}

void skip(struct conform *c, const char *fmt, ...)
{
    va_list ap;

    if (c->end != CONFORM_OPEN)
        return;
    c->end = CONFORM_SKIPPED;
    va_start(ap, fmt);
    clean(&c->came, fmt, ap);
    va_end(ap);
}

void lint(struct conform *c, enum lint what, bool good, const char *fmt, ...)
{
    struct linted *l = &c->lint[what];
    struct buf text = BUF_INIT;
    va_list ap;

    l->seen++;
    if (good || l->came[0] != '\0')
        return;
    va_start(ap, fmt);
    clean(&text, fmt, ap);
    va_end(ap);
    snprintf(l->came, sizeof l->came, "%s", buf_z(&text));
    buf_done(&text);
}

int64_t conform_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *quoted(struct conform *c, struct str s)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_str(&w, s.p != NULL ? s : STR(""));
    const char *kept = arena_str(&c->arena, buf_str(&out)).p;
    buf_done(&out);
    return kept;
}

/* ---- lines ---- */

static struct frame_line *line_new(struct list *head, struct str text)
{
    struct frame_line *l = xmalloc(sizeof *l + text.n + 1);

    *l = (struct frame_line){.n = text.n};
    if (text.n > 0)
        memcpy(l->text, text.p, text.n);
    l->text[text.n] = '\0';
    list_init(&l->link);
    list_append(head, &l->link);
    return l;
}

static void line_free(struct frame_line *l)
{
    list_remove(&l->link);
    free(l);
}

void frames_init(struct frames *f, bool is_connector)
{
    *f = (struct frames){.parser = json_parser_new(),
                         .linting = json_parser_new(),
                         .is_connector = is_connector};
    list_init(&f->lines);
    list_init(&f->asked);
}

void frames_end(struct conform *c, struct frames *f)
{
    struct str rest = str_trim(buf_str(&f->part));

    lint(c, LINT_COMPLETE, rest.n == 0 || f->cut, "the socket ended after %.*s, without a newline",
         (int)(rest.n < 60 ? rest.n : 60), rest.n > 0 ? rest.p : "");
}

void frames_done(struct frames *f)
{
    list_each (&f->lines, it, nxt)
        line_free(list_entry(it, struct frame_line, link));
    list_each (&f->asked, it, nxt)
        line_free(list_entry(it, struct frame_line, link));
    json_parser_free(f->parser);
    json_parser_free(f->linting);
    buf_done(&f->part);
}

void frames_asked(struct frames *f, struct str request_id)
{
    line_new(&f->asked, request_id);
}

static bool is_type(struct str line, const char *type, struct json_parser *p, struct json *ret)
{
    return json_parse(p, line, ret) &&
           (type[0] == '\0' || str_eq(json_str(*ret, "type"), str_of(type)));
}

struct json frames_next(struct frames *f, const char *type)
{
    struct json doc;

    list_each (&f->lines, it, nxt) {
        struct frame_line *l = list_entry(it, struct frame_line, link);
        if (!is_type(str_make(l->text, l->n), type, f->parser, &doc))
            continue;
        line_free(l); /* the parser has copied it */
        f->n_lines--;
        return doc;
    }
    return (struct json){0};
}

size_t frames_count(const struct frames *f, const char *type)
{
    struct json doc;
    size_t n = 0;

    for (const struct list *it = f->lines.next; it != &f->lines; it = it->next) {
        const struct frame_line *l = list_entry(it, const struct frame_line, link);
        n += is_type(str_make(l->text, l->n), type, f->linting, &doc);
    }
    return n;
}

/* ---- the form of a connector's frames ---- */

static bool is_text(struct json object, const char *key)
{
    return json_type(json_get(object, key)) == JSON_STRING;
}

static bool is_text_or_null(struct json object, const char *key)
{
    return json_type(json_get(object, key)) <= JSON_NULL || is_text(object, key);
}

static bool is_word(struct str s, const char *words)
{
    struct str rest = str_of(words), word;

    while (str_split(&rest, '|', &word))
        if (str_eq(word, s))
            return true;
    return false;
}

static void lint_descriptor(struct conform *c, struct json frame)
{
    static const struct {
        const char *key;
        enum json_type type;
    } keys[] = {{"contract_version", JSON_NUMBER},
                {"platform", JSON_STRING},
                {"label", JSON_STRING},
                {"max_message_length", JSON_NUMBER},
                {"supports_draft_streaming", JSON_BOOL},
                {"supports_edit", JSON_BOOL},
                {"supports_threads", JSON_BOOL},
                {"markdown_dialect", JSON_STRING},
                {"len_unit", JSON_STRING}};
    struct json d = json_get(frame, "descriptor"), ops = json_get(d, "supported_ops");
    bool texts = json_type(ops) == JSON_ARRAY;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        enum json_type is = json_type(json_get(d, keys[i].key));
        lint(c, LINT_DESCRIPTOR_KEYS, is != JSON_ABSENT, "there is no %s", keys[i].key);
        lint(c, LINT_DESCRIPTOR_TYPES, is == JSON_ABSENT || is == keys[i].type,
             "%s has another type", keys[i].key);
    }
    lint(c, LINT_MAX_LENGTH, json_i64(d, "max_message_length", 0) > 0,
         "max_message_length is no positive whole number");
    lint(c, LINT_LEN_UNIT, is_word(json_str(d, "len_unit"), "chars|utf16"), "len_unit is \"%.*s\"",
         STR_FMT(json_str(d, "len_unit")));
    lint(c, LINT_VERSION, json_i64(d, "contract_version", 0) == 1, "contract_version is %lld",
         (long long)json_i64(d, "contract_version", 0));
    for (struct json_iter it = {0}; texts && json_next(ops, &it);)
        texts = json_type(it.value) == JSON_STRING;
    if (json_type(ops) != JSON_ABSENT)
        lint(c, LINT_OPS, texts, "supported_ops is no list of texts");
}

static void lint_source(struct conform *c, struct json source)
{
    static const char *const ids[] = {"chat_id",    "user_id",     "thread_id",
                                      "guild_id",   "scope_id",    "parent_chat_id",
                                      "message_id", "user_id_alt", "chat_id_alt"};
    struct json guild = json_get(source, "guild_id"), scope = json_get(source, "scope_id");

    lint(c, LINT_SOURCE_NULLS,
         is_text(source, "platform") && is_text(source, "chat_id") && is_text(source, "chat_type"),
         "platform, chat_id or chat_type is missing or null");
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        lint(c, LINT_SOURCE_IDS, is_text_or_null(source, ids[i]), "%s is no text", ids[i]);
    if (is_text(source, "chat_type"))
        lint(c, LINT_CHAT_TYPE,
             is_word(json_str(source, "chat_type"), "dm|group|channel|thread|forum"),
             "chat_type is \"%.*s\"", STR_FMT(json_str(source, "chat_type")));
    if (json_type(guild) > JSON_NULL || json_type(scope) > JSON_NULL)
        lint(c, LINT_SCOPE, str_eq(json_as_str(guild), json_as_str(scope)),
             "guild_id is \"%.*s\", scope_id is \"%.*s\"", STR_FMT(json_as_str(guild)),
             STR_FMT(json_as_str(scope)));
}

static void lint_event(struct conform *c, struct json event)
{
    struct json urls = json_get(event, "media_urls"), source = json_get(event, "source");
    bool safe = json_type(urls) == JSON_ARRAY || json_type(urls) <= JSON_NULL;

    lint(c, LINT_TEXT, is_text(event, "text"), "text is missing, null or no text");
    if (json_type(json_get(event, "message_type")) != JSON_ABSENT)
        lint(c, LINT_MESSAGE_TYPE,
             is_word(json_str(event, "message_type"),
                     "text|location|photo|video|audio|voice|document|sticker|command"),
             "message_type is \"%.*s\"", STR_FMT(json_str(event, "message_type")));
    for (struct json_iter it = {0}; json_type(urls) == JSON_ARRAY && json_next(urls, &it);)
        safe = safe && json_type(it.value) == JSON_STRING;
    lint(c, LINT_MEDIA, safe, "media_urls is no list of texts");
    lint(c, LINT_REPLY_TO,
         json_type(json_get(event, "reply_to")) <= JSON_NULL ||
             json_is_object(json_get(event, "reply_to")),
         "reply_to is neither an object nor null");
    lint(c, LINT_SOURCE_OBJECT, json_is_object(source), "source is no object");
    if (json_is_object(source))
        lint_source(c, source);
}

static void lint_result(struct conform *c, struct frames *f, struct json frame)
{
    struct json result = json_get(frame, "result"), error = json_get(result, "error");
    struct str id = json_str(frame, "requestId");
    bool success = json_as_bool(json_get(result, "success"), false), asked = false;

    lint(c, LINT_RESULT,
         id.n > 0 && json_is_object(result) && json_type(json_get(result, "success")) == JSON_BOOL,
         "a result lacks its requestId, its object or success");
    if (json_is_object(result))
        lint(c, LINT_RESULT_ERROR,
             success ? json_type(error) <= JSON_NULL : json_as_str(error).n > 0,
             success ? "a success has an error" : "a failure has no error");
    list_each (&f->asked, it, nxt) {
        struct frame_line *l = list_entry(it, struct frame_line, link);
        if (!asked && str_eq(str_make(l->text, l->n), id)) {
            asked = true;
            line_free(l);
        }
    }
    lint(c, LINT_ASKED, asked, "a result for \"%.*s\", which was not asked or was answered before",
         STR_FMT(id));
}

static void lint_connector(struct conform *c, struct frames *f, struct json frame, struct str type)
{
    struct json buffer = json_get(frame, "bufferId"), event = json_get(frame, "event");

    if (str_eq(type, STR("descriptor")))
        lint_descriptor(c, frame);
    if (str_eq(type, STR("outbound_result")))
        lint_result(c, f, frame);
    if (str_eq(type, STR("interrupt_inbound")))
        lint(c, LINT_INTERRUPT, is_text(frame, "session_key") && is_text(frame, "chat_id"),
             "session_key or chat_id is no text");
    if (str_eq(type, STR("passthrough_forward")))
        lint(c, LINT_FORWARD,
             json_is_object(json_get(frame, "forward")) &&
                 is_text(json_get(frame, "forward"), "bodyB64"),
             "forward is no object with bodyB64");
    if (!str_eq(type, STR("inbound")))
        return;
    lint(c, LINT_EVENT_OBJECT, json_is_object(event), "event is no object");
    if (json_type(buffer) != JSON_ABSENT)
        lint(c, LINT_BUFFER_ID, json_as_str(buffer).n > 0, "bufferId is empty or no text");
    if (json_is_object(event))
        lint_event(c, event);
}

/* ---- the form of a gateway's frames ---- */

static void lint_action(struct conform *c, struct json frame)
{
    struct json a = json_get(frame, "action"), reply = json_get(a, "reply_to");
    struct str op = json_str(a, "op");
    bool speaks = is_word(op, "send|edit|typing|get_chat_info|send_media|prompt|react");
    size_t n = json_str(frame, "requestId").n;

    lint(c, LINT_REQUEST_ID, n > 0 && n <= 128, "requestId is no text of 1 to 128 bytes");
    lint(c, LINT_ACTION,
         op.n > 0 && (!speaks || is_text(a, "chat_id")) &&
             (!is_word(op, "send|edit") || is_text(a, "content")) &&
             (json_type(reply) <= JSON_NULL || json_type(reply) == JSON_STRING),
         "an action has no op, chat_id or content, or a reply_to that is no text: op \"%.*s\"",
         STR_FMT(op));
    if (json_type(json_get(a, "metadata")) != JSON_ABSENT)
        lint(c, LINT_METADATA, json_is_object(json_get(a, "metadata")), "metadata is no object");
}

static void lint_gateway(struct conform *c, struct frames *f, struct json frame, struct str type)
{
    lint(c, LINT_HELLO_FIRST, f->hello_seen || !is_word(type, "outbound|inbound_ack|interrupt"),
         "%.*s came before hello", STR_FMT(type));
    if (str_eq(type, STR("hello"))) {
        f->hello_seen = true;
        lint(c, LINT_HELLO, is_text(frame, "platform") && is_text(frame, "botId"),
             "platform or botId is no text");
    }
    if (str_eq(type, STR("outbound")))
        lint_action(c, frame);
    if (str_eq(type, STR("inbound_ack")))
        lint(c, LINT_ACK, json_str(frame, "bufferId").n > 0, "bufferId is empty or no text");
}

/* ---- what arrives ---- */

static void take_line(struct conform *c, struct frames *f, struct str line)
{
    struct json doc;
    bool parses, object;

    line = str_trim(line);
    if (line.n == 0)
        return;
    parses = json_parse(f->linting, line, &doc);
    object = parses && json_is_object(doc);
    lint(c, LINT_LINES, object && json_str(doc, "type").n > 0, "%s: %.*s",
         object   ? "an object without a type"
         : parses ? "JSON, but no object"
                  : "no JSON",
         (int)(line.n < 80 ? line.n : 80), line.p);
    if (!object)
        return;
    if (f->is_connector)
        lint_connector(c, f, doc, json_str(doc, "type"));
    else
        lint_gateway(c, f, doc, json_str(doc, "type"));
    if (f->on_line != NULL)
        f->on_line(f->on_line_ctx, doc);
    if (f->n_lines < LINES_MAX) {
        line_new(&f->lines, line);
        f->n_lines++;
    }
}

void frames_take(struct conform *c, struct frames *f, struct str bytes)
{
    const char *end;

    while (bytes.n > 0 && (end = memchr(bytes.p, '\n', bytes.n)) != NULL) {
        struct str line = str_make(bytes.p, (size_t)(end - bytes.p));
        bytes = str_skip(bytes, line.n + 1);
        if (f->part.n == 0) {
            take_line(c, f, line);
            continue;
        }
        buf_add_str(&f->part, line);
        take_line(c, f, buf_str(&f->part));
        buf_reset(&f->part);
    }
    buf_add_str(&f->part, bytes);
    if (f->part.n > LINE_MAX_BYTES) {
        lint(c, LINT_COMPLETE, false, "a line of over %zu MiB", LINE_MAX_BYTES >> 20);
        buf_reset(&f->part);
    }
}
