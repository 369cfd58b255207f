/* convert.c - JSON to the structs of the public header.
 *
 * Everything read is copied into an arena, so that strings end in a NUL and outlive the parser's
 * document.  Structs that the application frees are in a box with their arena.
 *
 * A Discord interaction names its channel and its person in its body.  Both are read into an event
 * as released gateways do: the platform is "relay", so the session key is the one under which the
 * connector keeps the interaction's token. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "client.h"
#include "core/session_key.h"

#define MAX_LIST 256 /* media, headers, ops; the rest is ignored */

struct box {
    union { /* first: what the application gets */
        struct bhgw_descriptor descriptor;
        struct bhgw_event event;
        struct bhgw_result result;
    };
    struct arena arena;
    struct list link; /* in gw->descriptors, of a descriptor that is kept there */
};

static void box_free(struct box *box)
{
    if (box == NULL)
        return;
    arena_done(&box->arena);
    free(box);
}

static const char *keep(struct arena *a, struct str s)
{
    return s.p != NULL ? arena_str(a, s).p : NULL;
}

/* Ids are strings on the wire; a number is accepted too. */
static struct str text_of(struct arena *a, struct json v)
{
    char digits[24];
    int64_t i;

    if (json_as_i64(v, &i))
        return arena_str(a, str_make(digits, (size_t)snprintf(digits, sizeof digits, "%lld",
                                                              (long long)i)));
    return json_as_str(v);
}

static const char *get(struct arena *a, struct json object, const char *key)
{
    return keep(a, text_of(a, json_get(object, key)));
}

static const char *get_or(struct arena *a, struct json object, const char *key, const char *other)
{
    const char *s = get(a, object, key);

    return s != NULL ? s : other;
}

struct str gwc_buffer_id(struct json v, char scratch[24])
{
    struct str s = json_as_str(v);
    uint64_t u;

    if (s.n > 0)
        return s;
    if (json_as_u64(v, &u) && u != 0)
        return str_make(scratch, (size_t)snprintf(scratch, 24, "%llu", (unsigned long long)u));
    return STR_NULL;
}

static const char *buffer_id_of(struct arena *a, struct json doc)
{
    char scratch[24];

    return keep(a, gwc_buffer_id(json_get(doc, "bufferId"), scratch));
}

static const char *const *strings(struct arena *a, struct json array, size_t *ret_n)
{
    size_t max = json_type(array) == JSON_ARRAY ? json_count(array) : 0, n = 0;

    if (max > MAX_LIST)
        max = MAX_LIST;
    const char **list = arena_alloc(a, (max + 1) * sizeof *list);
    for (struct json_iter it = {0}; n < max && json_next(array, &it);) {
        if (json_type(it.value) == JSON_STRING)
            list[n++] = keep(a, json_as_str(it.value));
    }
    list[n] = NULL;
    *ret_n = n;
    return list;
}

/* ---- events ---- */

static const char *session_key(struct arena *a, const struct bhgw_event *ev, struct json source)
{
    struct buf key = BUF_INIT;
    struct session_key_options opt = SESSION_KEY_DEFAULTS;
    struct event src = {
        .platform = str_of(ev->platform),
        .chat_id = str_of(ev->chat_id),
        .chat_type = str_of(ev->chat_type),
        .user_id = str_of(ev->user_id),
        .user_id_alt = json_str(source, "user_id_alt"),
        .thread_id = str_of(ev->thread_id),
        .scope_id = str_of(ev->scope_id),
        .prospective_thread_id = json_str(source, "prospective_thread_id"),
        .message_id = json_str(source, "message_id"),
    };

    session_key_write(&key, &src, &opt);
    const char *kept = keep(a, buf_str(&key));
    buf_done(&key);
    return kept;
}

static const char *answer_metadata(struct arena *a, const struct bhgw_event *ev)
{
    struct buf b = BUF_INIT;
    struct jw w = jw_begin(&b);

    jw_obj(&w);
    jw_kbool(&w, "notify", true);
    jw_kstr_opt(&w, "thread_id", str_of(ev->thread_id));
    jw_kstr_opt(&w, "guild_id", str_of(ev->scope_id));
    jw_kstr_opt(&w, "scope_id", str_of(ev->scope_id));
    jw_kstr_opt(&w, "user_id", str_of(ev->user_id));
    jw_end_obj(&w);
    const char *kept = keep(a, buf_str(&b));
    buf_done(&b);
    return kept;
}

static void read_source(struct json source, struct arena *a, struct bhgw_event *ev)
{
    ev->platform = get_or(a, source, "platform", "relay");
    ev->chat_id = get_or(a, source, "chat_id", "");
    ev->chat_type = get_or(a, source, "chat_type", "dm");
    ev->chat_name = get(a, source, "chat_name");
    ev->chat_topic = get(a, source, "chat_topic");
    ev->user_id = get(a, source, "user_id");
    ev->user_name = get(a, source, "user_display_name");
    if (ev->user_name == NULL || ev->user_name[0] == '\0')
        ev->user_name = get(a, source, "user_name");
    ev->thread_id = get(a, source, "thread_id");
    ev->parent_chat_id = get(a, source, "parent_chat_id");
    ev->scope_id = get(a, source, "scope_id");
    if (ev->scope_id == NULL)
        ev->scope_id = get(a, source, "guild_id");
}

bool gwc_event_read(struct json doc, struct arena *a, struct bhgw_event *ev)
{
    struct json event = json_get(doc, "event"), source = json_get(event, "source");
    struct json quoted = json_get(event, "reply_to");
    struct str text = json_str(event, "text");

    if (json_type(event) != JSON_OBJECT && json_type(event) != JSON_ABSENT)
        return false;
    *ev = (struct bhgw_event){
        .text = text.p != NULL ? keep(a, text) : "",
        .text_bytes = text.n,
        .message_type = get_or(a, event, "message_type", "text"),
        .message_id = get(a, event, "message_id"),
        .reply_to_message_id = get(a, event, "reply_to_message_id"),
        .quoted_text = get(a, quoted, "text"),
        .quoted_author = get(a, quoted, "author"),
        .quoted_is_own = json_as_bool(json_get(quoted, "is_own"), false),
        .bot_id = get(a, event, "bot_id"),
        .buffer_id = buffer_id_of(a, doc),
    };
    ev->media_urls = strings(a, json_get(event, "media_urls"), &ev->n_media_urls);
    read_source(source, a, ev);
    ev->session_key = session_key(a, ev, source);
    ev->answer_metadata = answer_metadata(a, ev);
    return true;
}

/* Read once more from the frame, which an event always carries: shorter than copying every field,
 * and a new field is never forgotten. */
struct bhgw_event *bhgw_event_copy(const struct bhgw_event *ev)
{
    struct box *box = xcalloc(1, sizeof *box);
    struct json_parser *p = json_parser_new();
    struct str frame = arena_str(&box->arena, str_make(ev->json, ev->json_bytes));
    struct json doc;
    bool ok = json_parse(p, frame, &doc) && gwc_event_read(doc, &box->arena, &box->event);

    assert(ok); /* the same bytes were parsed before */
    box->event.delivery = ev->delivery;
    box->event.json = frame.p;
    box->event.json_bytes = frame.n;
    json_parser_free(p);
    return &box->event;
}

void bhgw_event_free(struct bhgw_event *ev)
{
    box_free((struct box *)ev);
}

static void read_headers(struct json pairs, struct arena *a, struct bhgw_passthrough *fwd)
{
    size_t max = json_type(pairs) == JSON_ARRAY ? json_count(pairs) : 0, n = 0;

    if (max > MAX_LIST)
        max = MAX_LIST;
    const char **names = arena_alloc(a, (max + 1) * sizeof *names);
    const char **values = arena_alloc(a, (max + 1) * sizeof *values);
    for (struct json_iter it = {0}; n < max && json_next(pairs, &it);) {
        struct json_iter part = {0};
        if (json_type(it.value) != JSON_ARRAY || json_count(it.value) != 2)
            continue;
        json_next(it.value, &part);
        struct str name = json_as_str(part.value);
        json_next(it.value, &part);
        struct str value = json_as_str(part.value);
        if (name.p == NULL || value.p == NULL)
            continue;
        names[n] = keep(a, name);
        values[n++] = keep(a, value);
    }
    fwd->header_names = names;
    fwd->header_values = values;
    fwd->n_headers = n;
}

bool gwc_passthrough_read(struct json doc, struct arena *a, struct bhgw_passthrough *fwd)
{
    struct json forward = json_get(doc, "forward");
    struct buf body = BUF_INIT;

    if (!json_is_object(forward))
        return false;
    *fwd = (struct bhgw_passthrough){
        .platform = get_or(a, forward, "platform", ""),
        .bot_id = get_or(a, forward, "botId", ""),
        .method = get_or(a, forward, "method", "POST"),
        .path = get_or(a, forward, "path", "/"),
        .buffer_id = buffer_id_of(a, doc),
    };
    read_headers(json_get(forward, "headers"), a, fwd);
    if (!base64_decode(json_str(forward, "bodyB64"), &body))
        buf_reset(&body); /* an invalid body becomes an empty one */
    fwd->body = arena_str(a, buf_str(&body)).p;
    fwd->body_bytes = body.n;
    buf_done(&body);
    return true;
}

/* ---- descriptors ---- */

static bool has_all_keys(struct json d)
{
    static const char *const required[] = {
        "contract_version",
        "platform",
        "label",
        "max_message_length",
        "supports_draft_streaming",
        "supports_edit",
        "supports_threads",
        "markdown_dialect",
        "len_unit",
    };

    for (size_t i = 0; i < ARRAY_LEN(required); i++)
        if (json_type(json_get(d, required[i])) == JSON_ABSENT)
            return false;
    return true;
}

static int int_of(struct json v, int otherwise)
{
    int64_t i;

    return json_as_i64(v, &i) && i > 0 && i <= INT_MAX ? (int)i : otherwise;
}

struct bhgw_descriptor *gwc_descriptor_read(struct json d)
{
    if (!json_is_object(d) || !has_all_keys(d))
        return NULL;
    struct box *box = xcalloc(1, sizeof *box);
    struct arena *a = &box->arena;
    box->descriptor = (struct bhgw_descriptor){
        .contract_version = int_of(json_get(d, "contract_version"), 1),
        .platform = get_or(a, d, "platform", "relay"),
        .label = get_or(a, d, "label", ""),
        .max_message_length = int_of(json_get(d, "max_message_length"), 4096),
        .counts_utf16 = str_eq(json_str(d, "len_unit"), STR("utf16")),
        .supports_draft_streaming = json_as_bool(json_get(d, "supports_draft_streaming"), false),
        .supports_edit = json_as_bool(json_get(d, "supports_edit"), false),
        .supports_threads = json_as_bool(json_get(d, "supports_threads"), false),
        .markdown_dialect = get_or(a, d, "markdown_dialect", "plain"),
        .emoji = get_or(a, d, "emoji", "\xf0\x9f\x94\x8c"), /* a plug */
        .platform_hint = get_or(a, d, "platform_hint", ""),
        .pii_safe = json_as_bool(json_get(d, "pii_safe"), false),
    };
    box->descriptor.supported_ops =
        strings(a, json_get(d, "supported_ops"), &box->descriptor.n_supported_ops);
    return &box->descriptor;
}

struct bhgw_descriptor *gwc_descriptor_copy(const struct bhgw_descriptor *d)
{
    struct box *box = xcalloc(1, sizeof *box);
    struct arena *a = &box->arena;
    const char **ops = arena_alloc(a, (d->n_supported_ops + 1) * sizeof *ops);

    for (size_t i = 0; i < d->n_supported_ops; i++)
        ops[i] = keep(a, str_of(d->supported_ops[i]));
    ops[d->n_supported_ops] = NULL;
    box->descriptor = *d;
    box->descriptor.platform = keep(a, str_of(d->platform));
    box->descriptor.label = keep(a, str_of(d->label));
    box->descriptor.markdown_dialect = keep(a, str_of(d->markdown_dialect));
    box->descriptor.emoji = keep(a, str_of(d->emoji));
    box->descriptor.platform_hint = keep(a, str_of(d->platform_hint));
    box->descriptor.supported_ops = ops;
    return &box->descriptor;
}

void bhgw_descriptor_free(struct bhgw_descriptor *d)
{
    box_free((struct box *)d);
}

void gwc_descriptor_keep(struct bhgw *gw, struct bhgw_descriptor *d, bool primary)
{
    struct box *box = (struct box *)d;
    size_t n = 0;

    list_each (&gw->descriptors, it, next) {
        struct box *old = list_entry(it, struct box, link);
        if (strcmp(old->descriptor.platform, d->platform) != 0 && ++n < MAX_LIST)
            continue;
        list_remove(it); /* the new one replaces it */
        box_free(old);
        break;
    }
    list_init(&box->link);
    list_add_before(primary ? gw->descriptors.next : &gw->descriptors, &box->link);
}

void gwc_descriptors_free(struct bhgw *gw)
{
    list_each (&gw->descriptors, it, next)
        box_free(list_entry(it, struct box, link));
}

struct bhgw_descriptor *bhgw_descriptor_get(struct bhgw *gw, const char *platform)
{
    struct bhgw_descriptor *copy = NULL;

    pthread_mutex_lock(&gw->lock);
    list_each (&gw->descriptors, it, next) {
        const struct bhgw_descriptor *d = &list_entry(it, struct box, link)->descriptor;
        if (copy == NULL && (platform == NULL || strcmp(d->platform, platform) == 0))
            copy = gwc_descriptor_copy(d);
    }
    pthread_mutex_unlock(&gw->lock);
    return copy;
}

/* ---- results ---- */

static bool is_truthy(struct json v)
{
    double f;

    switch (json_type(v)) {
    case JSON_BOOL:
        return json_as_bool(v, false);
    case JSON_NUMBER:
        return json_as_f64(v, &f) && f != 0;
    case JSON_STRING:
    case JSON_ARRAY:
    case JSON_OBJECT:
        return json_type(v) == JSON_STRING ? json_as_str(v).n > 0 : json_count(v) > 0;
    case JSON_NULL:
    case JSON_ABSENT:
        break;
    }
    return false;
}

struct bhgw_result *gwc_result_failure(const char *error)
{
    struct box *box = xcalloc(1, sizeof *box);

    box->result.error = keep(&box->arena, str_of(error));
    return &box->result;
}

struct bhgw_result *gwc_result_read(struct json object, const struct gwc_request *req)
{
    if (!json_is_object(object))
        return gwc_result_failure("the connector's result is malformed");
    struct box *box = xcalloc(1, sizeof *box);
    struct arena *a = &box->arena;
    struct json info = json_get(object, "chat_info");
    struct buf whole = BUF_INIT;
    struct jw w = jw_begin(&whole);

    if (!json_is_object(info))
        info = object;
    jw_value(&w, object);
    box->result = (struct bhgw_result){
        .success = is_truthy(json_get(object, "success")),
        .message_id = get_or(a, object, "message_id", keep(a, str_of(req->message_id))),
        .chat_name = get_or(a, info, "name", keep(a, str_of(req->chat_id))),
        .chat_type = get_or(a, info, "type", "dm"),
        .thread_id = get(a, object, "thread_id"),
        .json = keep(a, buf_str(&whole)),
    };
    if (!box->result.success)
        box->result.error = get_or(a, object, "error", "the connector gave no reason");
    buf_done(&whole);
    return &box->result;
}

void bhgw_result_free(struct bhgw_result *result)
{
    box_free((struct box *)result);
}

/* ---- Discord interactions ---- */

static void write_source(struct jw *w, struct json body)
{
    struct json member = json_get(json_get(body, "member"), "user");
    struct json user = json_is_object(member) ? member : json_get(body, "user");
    struct str guild = json_str(body, "guild_id"), channel = json_str(body, "channel_id");

    jw_kstr(w, "platform", STR("relay"));
    jw_kstr(w, "chat_id", channel.p != NULL ? channel : STR(""));
    jw_kstr(w, "chat_type", guild.n > 0 ? STR("channel") : STR("dm"));
    jw_kstr(w, "user_id", json_str(user, "id"));
    jw_kstr(w, "user_name", json_str(user, "username"));
    jw_kstr_opt(w, "scope_id", guild);
    jw_kstr_opt(w, "message_id", json_str(body, "id"));
}

/* The frame an event is read from, here and by bhgw_event_copy(). */
static void write_frame(struct buf *out, const struct bhgw_passthrough *fwd, struct json body)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("inbound"));
    if (fwd->buffer_id != NULL)
        jw_kstr(&w, "bufferId", str_of(fwd->buffer_id));
    jw_key(&w, "event");
    jw_obj(&w);
    jw_kstr(&w, "text", STR(""));
    jw_kstr(&w, "bot_id", str_of(fwd->bot_id));
    jw_key(&w, "source");
    jw_obj(&w);
    if (strcmp(fwd->platform, "discord") == 0 && json_is_object(body)) {
        write_source(&w, body);
    } else {
        jw_kstr(&w, "platform", STR("relay"));
        jw_kstr(&w, "chat_id", STR(""));
        jw_kstr(&w, "chat_type", STR("channel"));
    }
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
}

struct bhgw_event *bhgw_passthrough_event(const struct bhgw_passthrough *fwd)
{
    struct json_parser *p = json_parser_new();
    struct json body = {0};
    struct buf frame = BUF_INIT;

    if (!json_parse(p, str_make(fwd->body, fwd->body_bytes), &body))
        body = (struct json){0};
    write_frame(&frame, fwd, body);
    struct bhgw_event ev = {.json = buf_z(&frame), .json_bytes = frame.n};
    ev.delivery = fwd->delivery;
    struct bhgw_event *copy = bhgw_event_copy(&ev);
    buf_done(&frame);
    json_parser_free(p);
    return copy;
}
