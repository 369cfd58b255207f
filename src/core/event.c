/* event.c - design.  (event.h has the contract.)
 *
 * This is a hot path: every accepted message is written once per receiver.  Keys are constant
 * fragments with their comma and quotes, and only values are escaped.  Because the commas are in
 * the fragments, the order is fixed: keys that are always written come before optional ones.
 *
 * Null is allowed key by key: the real client accepts a null chat_name, but crashes on a null text,
 * chat_id or chat_type.
 *
 * The bufferId is at a fixed place near the front of a frame, so delivery_id_in() finds it without
 * parsing. */
#include "core/event.h"
#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/uncleared.h"

/* ---- the event object ---- */

bool event_media_is_safe(struct str url)
{
    static const char trap[] = "/relay/media/";
    const size_t n = sizeof trap - 1;

    if (!str_eq_ci(str_make(url.p, url.n < 7 ? url.n : 7), STR("http://")) &&
        !str_eq_ci(str_make(url.p, url.n < 8 ? url.n : 8), STR("https://")))
        return false;
    for (size_t i = 0; i + n <= url.n; i++)
        if (url.p[i] == '/' && str_eq_ci(str_make(url.p + i, n), STR("/relay/media/")))
            return false;
    return true;
}

/* @key is a fragment such as ,"chat_name": and the value follows directly.  Inlined, so that the
 * copy of the fragment has a constant length. */
static inline __attribute__((always_inline)) void put(struct jw *w, struct str key,
                                                      struct str value)
{
    const size_t n = key.n + 4;
    bool has_room = !w->out->failed && w->out->cap - w->out->n > n; /* as in buf_room() */

    if (!has_room && buf_grow(w->out, n) == NULL)
        return;
    char *to = w->out->p + w->out->n;
    memcpy(to, key.p, key.n);
    w->out->n += key.n;
    if (value.p != NULL) {
        w->comma = false;
        jw_str(w, value);
    } else {
        memcpy(to + key.n, "null", 4);
        w->out->n += 4;
    }
}
static inline __attribute__((always_inline)) void put_set(struct jw *w, struct str key,
                                                          struct str value)
{
    if (!str_is_empty(value))
        put(w, key, value);
}
static struct str or_else(struct str s, struct str otherwise)
{
    return !str_is_empty(s) ? s : otherwise;
}

static bool is_shown(const struct event_media *m)
{
    return m->id.n > 0 || event_media_is_safe(m->url);
}

static void put_item(struct jw *w, const struct event_media *m)
{
    jw_obj(w);
    jw_kstr(w, "kind", m->kind.n > 0 ? m->kind : STR("document"));
    jw_kstr(w, "mime", m->type.n > 0 ? m->type : STR("application/octet-stream"));
    if (m->size > 0)
        jw_ki64(w, "size", (int64_t)m->size);
    if (m->name.n > 0)
        jw_kstr(w, "filename", m->name);
    if (m->caption.n > 0)
        jw_kstr(w, "caption", m->caption);
    jw_end_obj(w);
}

/* Three lists in the same order: URLs, types and the other members. */
static void put_media(struct jw *w, const struct event *ev)
{
    assert(ev->n_media <= EVENT_MAX_MEDIA);
    buf_add_str(w->out, STR(",\"media_urls\":["));
    w->comma = false;
    for (size_t i = 0; i < ev->n_media; i++) {
        const struct event_media *m = &ev->media[i];
        if (m->id.n > 0) {
            buf_printf(w->out, "%s\"" EVENT_MEDIA_PLACEHOLDER "%.*s\"", w->comma ? "," : "",
                       STR_FMT(m->id));
            w->comma = true;
        } else if (is_shown(m)) {
            jw_str(w, m->url);
        }
    }
    buf_add_c(w->out, ']');
    if (!w->comma)
        return;
    buf_add_str(w->out, STR(",\"media_types\":["));
    w->comma = false;
    for (size_t i = 0; i < ev->n_media; i++)
        if (is_shown(&ev->media[i]))
            jw_str(w,
                   ev->media[i].type.n > 0 ? ev->media[i].type : STR("application/octet-stream"));
    buf_add_str(w->out, STR("],\"media\":["));
    w->comma = false;
    for (size_t i = 0; i < ev->n_media; i++)
        if (is_shown(&ev->media[i]))
            put_item(w, &ev->media[i]);
    buf_add_c(w->out, ']');
}

/* Cuts the JSON string and its comma off the front of @rest.  False: there is no string. */
static bool next_string(struct str *rest, struct str *ret)
{
    size_t i = 1;

    if (rest->n == 0 || rest->p[0] != '"')
        return false;
    while (i < rest->n && rest->p[i] != '"')
        i += rest->p[i] == '\\' ? 2 : 1;
    if (i >= rest->n)
        return false;
    *ret = str_make(rest->p + 1, i - 1);
    *rest = str_skip(*rest, i + 1 < rest->n && rest->p[i + 1] == ',' ? i + 2 : i + 1);
    return true;
}

void event_fill_media(struct buf *out, struct str frame, event_url_cb *url, void *ctx)
{
    static const struct str place = STR(EVENT_MEDIA_PLACEHOLDER), list = STR(",\"media_urls\":[");
    /* A search by bytes is safe: quotes inside of strings are escaped, so no user's text can
     * contain the key. */
    const char *at = frame.n > 0 ? memmem(frame.p, frame.n, list.p, list.n) : NULL;
    struct str urls = STR_NULL, one;
    const char *from = frame.p;

    if (at != NULL)
        urls = str_skip(frame, (size_t)(at - frame.p) + list.n);
    while (next_string(&urls, &one)) {
        if (!str_starts(one, place))
            continue;
        buf_add(out, from, (size_t)(one.p - from));
        url(ctx, str_skip(one, place.n), out);
        from = one.p + one.n;
    }
    buf_add(out, from, (size_t)(frame.p + frame.n - from));
}

static struct str shown(const struct event *ev)
{
    return event_platform_shown(or_else(ev->platform, STR("relay")));
}

static void put_context(struct jw *w, const struct event *ev)
{
    assert(ev->n_context <= EVENT_MAX_CONTEXT);
    buf_add_str(w->out, STR(",\"context\":["));
    for (size_t i = 0; i < ev->n_context; i++) {
        const struct event_said *s = &ev->context[i];
        put(w, i > 0 ? STR(",{\"text\":") : STR("{\"text\":"), or_else(s->text, STR("")));
        put(w, STR(",\"message_id\":"), s->message_id);
        put(w, STR(",\"source\":{\"platform\":"), shown(ev));
        put(w, STR(",\"chat_id\":"), or_else(ev->chat_id, STR("")));
        put(w, STR(",\"chat_type\":"), or_else(ev->chat_type, STR("dm")));
        put(w, STR(",\"user_id\":"), s->user_id);
        put(w, STR(",\"user_name\":"), s->user_name);
        buf_add_str(w->out, STR("}}"));
    }
    buf_add_str(w->out, ev->context_error ? STR("],\"context_error\":true") : STR("]"));
}

/* The ids of a burst's messages, and what each of them has of the text and of the files. */
static void put_parts(struct jw *w, const struct event *ev)
{
    buf_add_str(w->out, STR(EVENT_MESSAGE_IDS));
    w->comma = false;
    for (size_t i = 0; i < ev->n_parts; i++)
        if (!ev->parts[i].deleted)
            jw_str(w, ev->parts[i].message_id);
    buf_add_str(w->out, STR("],\"message_parts\":["));
    w->comma = false;
    for (size_t i = 0, at = 0; i < ev->n_parts; at += ev->parts[i++].n_media) {
        uint64_t files = 0;
        for (size_t k = at; k < at + ev->parts[i].n_media && k < ev->n_media; k++)
            files += is_shown(&ev->media[k]);
        if (!ev->parts[i].deleted)
            event_write_part(w, ev->parts[i].text.n, files);
    }
    buf_add_c(w->out, ']');
}

void event_write(struct buf *out, const struct event *ev)
{
    struct jw w = jw_begin(out);

    put(&w, STR("{\"text\":"), or_else(ev->text, STR("")));
    put(&w, STR(",\"message_type\":"), or_else(ev->message_type, STR("text")));
    put(&w, STR(",\"message_id\":"), ev->message_id);
    put(&w, STR(",\"reply_to_message_id\":"), ev->reply_to_message_id);
    if (ev->n_media > 0)
        put_media(&w, ev);
    else
        buf_add_str(out, STR(",\"media_urls\":[]"));
    if (ev->n_parts > 0)
        put_parts(&w, ev);
    if (ev->reply_to.set) {
        buf_add_str(out, ev->reply_to.is_own ? STR(",\"reply_to\":{\"is_own\":true")
                                             : STR(",\"reply_to\":{\"is_own\":false"));
        if (ev->reply_to.text.p != NULL)
            put(&w, STR(",\"text\":"), ev->reply_to.text);
        if (ev->reply_to.author.p != NULL)
            put(&w, STR(",\"author\":"), ev->reply_to.author);
        buf_add_c(out, '}');
    }
    if (ev->press.prompt_id.n > 0) {
        put(&w, STR(",\"prompt_response\":{\"prompt_id\":"), ev->press.prompt_id);
        put(&w, STR(",\"option_id\":"), ev->press.option_id);
        put_set(&w, STR(",\"label\":"), ev->press.label);
        put_set(&w, STR(",\"prompt_message_id\":"), ev->press.message_id);
        buf_add_c(out, '}');
    }
    if (ev->n_context > 0 || ev->context_error)
        put_context(&w, ev);
    put_set(&w, STR(",\"bot_id\":"), ev->bot);
    put_set(&w, STR(",\"traceparent\":"), ev->trace);
    put(&w, STR(",\"source\":{\"platform\":"), shown(ev));
    put(&w, STR(",\"chat_id\":"), or_else(ev->chat_id, STR("")));
    put(&w, STR(",\"chat_type\":"), or_else(ev->chat_type, STR("dm")));
    put(&w, STR(",\"chat_name\":"), ev->chat_name);
    put(&w, STR(",\"user_id\":"), ev->user_id);
    put(&w, STR(",\"user_name\":"), ev->user_name);
    put(&w, STR(",\"thread_id\":"), ev->thread_id);
    put(&w, STR(",\"chat_topic\":"), ev->chat_topic);
    put_set(&w, STR(",\"user_id_alt\":"), ev->user_id_alt);
    put_set(&w, STR(",\"chat_id_alt\":"), ev->chat_id_alt);
    /* Older gateways read only guild_id, newer ones only scope_id. */
    put_set(&w, STR(",\"guild_id\":"), ev->scope_id);
    put_set(&w, STR(",\"scope_id\":"), ev->scope_id);
    put_set(&w, STR(",\"parent_chat_id\":"), ev->parent_chat_id);
    put_set(&w, STR(",\"message_id\":"), ev->message_id);
    put_set(&w, STR(",\"user_display_name\":"), ev->user_display_name);
    put_set(&w, STR(",\"user_handle\":"), ev->user_handle);
    put_set(&w, STR(",\"prospective_thread_id\":"), ev->prospective_thread_id);
    put_set(&w, STR(",\"auto_thread_created\":true,\"auto_thread_initial_name\":"),
            ev->auto_thread_name);
    buf_add_c(out, '}');
    if (ev->dispatch.n > 0) {
        buf_add_str(out, STR(",\"dispatch\":"));
        buf_add_str(out, ev->dispatch);
    }
    buf_add_c(out, '}');
}

void event_write_frame(struct buf *out, const struct event *ev, const struct hash128 *id)
{
    buf_add_str(out, STR("{\"type\":\"inbound\","));
    if (id != NULL)
        delivery_id_write(out, *id);
    buf_add_str(out, STR("\"event\":"));
    event_write(out, ev);
    buf_add_str(out, STR("}\n"));
}

/* ---- the id of a delivery ---- */

/* Each part is preceded by its length, so different parts never give the same bytes.  The ids are
 * stored: changing this layout would accept every recent event a second time. */
bool delivery_id_of(const struct event *ev, const struct hash_key *key, struct str tenant,
                    struct str instance, struct hash128 *ret)
{
    const struct str parts[] = {tenant, instance, ev->platform, ev->bot, ev->event_id};
    BH_UNCLEARED char small[512];
    char *at, *bytes = small;
    size_t total = 0;

    if (str_is_empty(ev->event_id))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        total += 8 + parts[i].n;
    if (total > sizeof small)
        bytes = xmalloc(total);
    at = bytes;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        uint64_t length = htole64(parts[i].n);
        memcpy(at, &length, sizeof length);
        at += sizeof length;
        if (parts[i].n > 0)
            memcpy(at, parts[i].p, parts[i].n);
        at += parts[i].n;
    }
    *ret = hash128(key, str_make(bytes, total));
    /* Equal for all events of one bot: dedup.h groups its entries by these bits. */
    uint64_t of_bot = hash64(key, ev->platform) + hash64(key, ev->bot) * 31;
    ret->hi = of_bot << (64 - DELIVERY_BOT_BITS) | ret->hi >> DELIVERY_BOT_BITS;
    if (bytes != small)
        free(bytes);
    return true;
}

bool user_id_unproven(struct str platform, struct str user_id)
{
    return (str_starts(user_id, STR("-")) && str_eq(platform, STR("telegram"))) ||
           (str_starts(user_id, STR("?")) && str_eq(platform, STR("irc")));
}

struct str delivery_event_id(struct buf *buf, bool ids_per_chat, struct str chat_id,
                             struct str message_id)
{
    if (!ids_per_chat)
        return message_id;
    buf_reset(buf);
    buf_add_str(buf, chat_id);
    buf_add_c(buf, ':');
    buf_add_str(buf, message_id);
    return buf_str(buf);
}

/* The last @n digits of @v. */
static inline void put_digits(char *to, uint64_t v, int n)
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

    for (; n > 0; v >>= 5)
        to[--n] = digits[v & 31];
}

void delivery_id_format(struct hash128 id, char ret[DELIVERY_ID_CHARS])
{
    ret[0] = 'b';
    put_digits(ret + 1, id.hi >> 56, 2); /* 8 bits, 60 and 60 */
    put_digits(ret + 3, id.hi << 4 | id.lo >> 60, 12);
    put_digits(ret + 15, id.lo, 12);
}

void delivery_id_write(struct buf *out, struct hash128 id)
{
    static const char head[] = "\"bufferId\":\"", tail[] = "\",";
    char *to = buf_room(out, sizeof head + DELIVERY_ID_CHARS + sizeof tail);

    if (to == NULL)
        return;
    memcpy(to, head, sizeof head - 1);
    delivery_id_format(id, to + sizeof head - 1);
    memcpy(to + sizeof head - 1 + DELIVERY_ID_CHARS, tail, sizeof tail - 1);
    out->n += sizeof head - 1 + DELIVERY_ID_CHARS + sizeof tail - 1;
}

struct str delivery_id_in(struct str frame)
{
    static const struct {
        const char *text;
        size_t n;
    } heads[] = {
#define HEAD(type) \
    {"{\"type\":\"" type "\",\"bufferId\":\"", sizeof "{\"type\":\"" type "\",\"bufferId\":\"" - 1}
        HEAD("inbound"),
        HEAD("passthrough_forward"),
#undef HEAD
    };

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        if (frame.n > heads[i].n && memcmp(frame.p, heads[i].text, heads[i].n) == 0) {
            struct str rest = str_skip(frame, heads[i].n), id;
            return str_split(&rest, '"', &id) ? id : STR_NULL;
        }
    return STR_NULL;
}

/* ---- keeping an event past its call ---- */

struct event_text {        /* a text of an event, of a file, or of an earlier message */
    const char *name;      /* in the saved form */
    size_t at;             /* of the struct str */
    const char *in, *wire; /* on the wire: its object ("": the event) and member; NULL: it is not */
};
#define TEXT(owner, member) \
    { \
        .name = #member, .at = offsetof(struct owner, member) \
    }
#define WIRE(member, object, called) \
    { \
        .name = #member, .at = offsetof(struct event, member), .in = object, .wire = called \
    }

static const struct event_text event_texts[] = {
    WIRE(platform, "source", "platform"),
    WIRE(bot, "", "bot_id"),
    WIRE(trace, "", "traceparent"),
    TEXT(event, filed_as),
    TEXT(event, route_key),
    TEXT(event, own_key),
    TEXT(event, former_key),
    TEXT(event, event_id),
    WIRE(text, "", "text"),
    WIRE(message_type, "", "message_type"),
    WIRE(message_id, "", "message_id"),
    WIRE(reply_to_message_id, "", "reply_to_message_id"),
    WIRE(reply_to.text, "reply_to", "text"),
    WIRE(reply_to.author, "reply_to", "author"),
    WIRE(press.prompt_id, "prompt_response", "prompt_id"),
    WIRE(press.option_id, "prompt_response", "option_id"),
    WIRE(press.label, "prompt_response", "label"),
    WIRE(press.message_id, "prompt_response", "prompt_message_id"),
    TEXT(event, only_tenant),
    TEXT(event, only_instance),
    WIRE(chat_id, "source", "chat_id"),
    WIRE(chat_type, "source", "chat_type"),
    WIRE(chat_name, "source", "chat_name"),
    WIRE(chat_topic, "source", "chat_topic"),
    WIRE(user_id, "source", "user_id"),
    WIRE(user_name, "source", "user_name"),
    WIRE(user_id_alt, "source", "user_id_alt"),
    WIRE(chat_id_alt, "source", "chat_id_alt"),
    WIRE(user_display_name, "source", "user_display_name"),
    WIRE(user_handle, "source", "user_handle"),
    WIRE(thread_id, "source", "thread_id"),
    WIRE(parent_chat_id, "source", "parent_chat_id"),
    WIRE(scope_id, "source", "scope_id"),
    WIRE(prospective_thread_id, "source", "prospective_thread_id"),
    WIRE(auto_thread_name, "source", "auto_thread_initial_name"),
    TEXT(event, dispatch),
    TEXT(event, edit.text),
};
/* Other members that carry the same texts, and count less. */
static const struct event_text second_texts[] = {
    WIRE(message_id, "source", "message_id"),
    WIRE(scope_id, "source", "guild_id"),
};
static const struct event_text event_flags[] = {
    /* bools */
    TEXT(event, reply_to.is_own), TEXT(event, reply_to.set),   TEXT(event, author_is_bot),
    TEXT(event, mentions_bot),    TEXT(event, replies_to_bot), TEXT(event, only_stops),
    TEXT(event, context_error),   TEXT(event, wants_context),  TEXT(event, edit.set),
    TEXT(event, edit.deletes),    TEXT(event, edit.silent),    TEXT(event, only_owners),
    TEXT(event, author_unproven),
};
static const struct event_text media_texts[] = {
    TEXT(event_media, url),     TEXT(event_media, ref),  TEXT(event_media, id),
    TEXT(event_media, kind),    TEXT(event_media, type), TEXT(event_media, name),
    TEXT(event_media, caption),
};
static const struct event_text said_texts[] = {
    TEXT(event_said, text),
    TEXT(event_said, message_id),
    TEXT(event_said, user_id),
    TEXT(event_said, user_name),
};

static const struct event_text part_texts[] = {
    TEXT(event_part, event_id),
    TEXT(event_part, message_id),
    TEXT(event_part, message_type),
    TEXT(event_part, text),
};

static void save_texts(struct jw *w, const struct event_text *texts, size_t n, const void *from)
{
    for (size_t i = 0; i < n; i++)
        jw_kstr_opt(w, texts[i].name,
                    *(const struct str *)(const void *)((const char *)from + texts[i].at));
}

void event_save(struct buf *out, const struct event *ev)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    save_texts(&w, event_texts, ARRAY_LEN(event_texts), ev);
    for (size_t i = 0; i < ARRAY_LEN(event_flags); i++)
        if (*(const bool *)((const char *)ev + event_flags[i].at))
            jw_kbool(&w, event_flags[i].name, true);
    jw_karr(&w, "media");
    for (size_t i = 0; i < ev->n_media; i++) {
        jw_obj(&w);
        save_texts(&w, media_texts, ARRAY_LEN(media_texts), &ev->media[i]);
        jw_key(&w, "size");
        jw_u64(&w, ev->media[i].size);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_karr(&w, "context");
    for (size_t i = 0; i < ev->n_context; i++) {
        jw_obj(&w);
        save_texts(&w, said_texts, ARRAY_LEN(said_texts), &ev->context[i]);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_karr(&w, "parts");
    for (size_t i = 0; i < ev->n_parts; i++) {
        jw_obj(&w);
        save_texts(&w, part_texts, ARRAY_LEN(part_texts), &ev->parts[i]);
        jw_key(&w, "files");
        jw_u64(&w, ev->parts[i].n_media);
        if (ev->parts[i].deleted)
            jw_kbool(&w, "deleted", true);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
}

/* Reads the texts from @saved into *@ret.  They are borrowed from the parser. */
static void load_texts(struct json saved, const struct event_text *texts, size_t n, void *ret)
{
    for (size_t i = 0; i < n; i++)
        *(struct str *)(void *)((char *)ret + texts[i].at) = json_str(saved, texts[i].name);
}

/* False: the parts do not fit the files of @ev. */
static bool load_parts(struct json saved, struct event *ev, struct event_part *parts)
{
    struct json_iter it = {0};
    uint64_t files = 0;

    while (ev->n_parts < EVENT_MAX_PARTS && json_next(saved, &it)) {
        struct event_part *p = &parts[ev->n_parts++];
        *p = (struct event_part){.deleted = json_as_bool(json_get(it.value, "deleted"), false)};
        load_texts(it.value, part_texts, ARRAY_LEN(part_texts), p);
        json_as_u64(json_get(it.value, "files"), &p->n_media);
        if (p->n_media > ev->n_media)
            return false;
        files += p->n_media;
    }
    return ev->n_parts == 0 || files == ev->n_media;
}

bool event_load(struct json saved, struct arena *arena, struct event *ret)
{
    struct event_part parts[EVENT_MAX_PARTS];
    struct event_media media[EVENT_MAX_MEDIA];
    struct event_said said[EVENT_MAX_CONTEXT];
    struct event ev = {.media = media, .context = said, .parts = parts};
    struct json_iter it = {0}, at = {0};

    if (!json_is_object(saved) || json_str(saved, "platform").n == 0)
        return false;
    load_texts(saved, event_texts, ARRAY_LEN(event_texts), &ev);
    for (size_t i = 0; i < ARRAY_LEN(event_flags); i++)
        *(bool *)((char *)&ev + event_flags[i].at) =
            json_as_bool(json_get(saved, event_flags[i].name), false);
    while (ev.n_media < EVENT_MAX_MEDIA && json_next(json_get(saved, "media"), &it)) {
        struct event_media *m = &media[ev.n_media++];
        *m = (struct event_media){0};
        load_texts(it.value, media_texts, ARRAY_LEN(media_texts), m);
        json_as_u64(json_get(it.value, "size"), &m->size);
    }
    for (; ev.n_context < EVENT_MAX_CONTEXT && json_next(json_get(saved, "context"), &at);)
        load_texts(at.value, said_texts, ARRAY_LEN(said_texts), &said[ev.n_context++]);
    if (!load_parts(json_get(saved, "parts"), &ev, parts))
        return false;
    event_copy(&ev, arena, ret);
    return true;
}

/* Copies the texts that @thing refers to. */
static void own_texts(const struct event_text *texts, size_t n, struct arena *arena, void *thing)
{
    for (size_t i = 0; i < n; i++) {
        struct str *s = (struct str *)(void *)((char *)thing + texts[i].at);
        if (s->p != NULL)
            *s = arena_str(arena, *s);
    }
}

void event_copy(const struct event *ev, struct arena *arena, struct event *ret)
{
    struct event_media *media = arena_alloc(arena, (ev->n_media + 1) * sizeof *media);
    struct event_said *said = arena_alloc(arena, (ev->n_context + 1) * sizeof *said);
    struct event_part *parts = arena_alloc(arena, (ev->n_parts + 1) * sizeof *parts);

    *ret = *ev;
    ret->media = media;
    ret->context = said;
    ret->parts = parts;
    own_texts(event_texts, ARRAY_LEN(event_texts), arena, ret);
    for (size_t i = 0; i < ev->n_media; i++) {
        media[i] = ev->media[i];
        own_texts(media_texts, ARRAY_LEN(media_texts), arena, &media[i]);
    }
    for (size_t i = 0; i < ev->n_context; i++) {
        said[i] = ev->context[i];
        own_texts(said_texts, ARRAY_LEN(said_texts), arena, &said[i]);
    }
    for (size_t i = 0; i < ev->n_parts; i++) {
        parts[i] = ev->parts[i];
        own_texts(part_texts, ARRAY_LEN(part_texts), arena, &parts[i]);
    }
}

/* ---- reading the wire ---- */

/* A member that is absent or null leaves its text alone. */
static bool read_wire_texts(struct json wire, const struct event_text *texts, size_t n,
                            struct event *ret, char *ret_why)
{
    for (size_t i = 0; i < n; i++) {
        const struct event_text *t = &texts[i];
        if (t->wire == NULL)
            continue;
        struct json value = json_get(t->in[0] != '\0' ? json_get(wire, t->in) : wire, t->wire);
        if (json_type(value) == JSON_STRING)
            *(struct str *)(void *)((char *)ret + t->at) = json_as_str(value);
        else if (json_type(value) > JSON_NULL)
            return bh_why(ret_why, "%s%s%s must be a text", t->in, t->in[0] != '\0' ? "." : "",
                          t->wire);
    }
    return true;
}

static bool is_list(struct json v)
{
    return json_type(v) <= JSON_NULL || json_type(v) == JSON_ARRAY;
}

static struct json nth(struct json list, size_t n)
{
    struct json_iter it = {0};

    while (json_next(list, &it))
        if (n-- == 0)
            return it.value;
    return (struct json){0};
}

/* Three lists in the same order, of which only the URLs must be there. */
static bool read_wire_media(struct json wire, struct arena *arena, struct event *ev, char *ret_why)
{
    struct json urls = json_get(wire, "media_urls"), types = json_get(wire, "media_types"),
                items = json_get(wire, "media");
    struct event_media *media = arena_alloc(arena, EVENT_MAX_MEDIA * sizeof *media);

    if (!is_list(urls) || !is_list(types) || !is_list(items))
        return bh_why(ret_why, "media_urls, media_types and media must be lists");
    for (size_t i = 0; i < json_count(urls); i++) {
        struct json item = nth(items, i);
        struct str type = json_as_str(nth(types, i));
        if (i == EVENT_MAX_MEDIA || !event_media_is_safe(json_as_str(nth(urls, i))))
            return bh_why(ret_why,
                          "media_urls must be at most %d addresses with http:// or https:// and "
                          "without /relay/media/",
                          EVENT_MAX_MEDIA);
        media[i] = (struct event_media){.url = json_as_str(nth(urls, i)),
                                        .kind = json_str(item, "kind"),
                                        .type = type.p != NULL ? type : json_str(item, "mime"),
                                        .name = json_str(item, "filename"),
                                        .caption = json_str(item, "caption")};
        json_as_u64(json_get(item, "size"), &media[i].size);
        ev->n_media++;
    }
    ev->media = media;
    return true;
}

static bool read_wire_context(struct json wire, struct arena *arena, struct event *ev,
                              char *ret_why)
{
    struct event_said *said = arena_alloc(arena, EVENT_MAX_CONTEXT * sizeof *said);
    struct json list = json_get(wire, "context");
    struct json_iter it = {0};

    if (!is_list(list) || json_count(list) > EVENT_MAX_CONTEXT)
        return bh_why(ret_why, "context must be a list of at most %d messages", EVENT_MAX_CONTEXT);
    while (json_type(list) == JSON_ARRAY && json_next(list, &it)) {
        struct json source = json_get(it.value, "source");
        said[ev->n_context++] = (struct event_said){.text = json_str(it.value, "text"),
                                                    .message_id = json_str(it.value, "message_id"),
                                                    .user_id = json_str(source, "user_id"),
                                                    .user_name = json_str(source, "user_name")};
    }
    ev->context = said;
    return true;
}

bool event_read(struct json wire, struct arena *arena, struct event *ret, char *ret_why)
{
    static const char *const objects[] = {"source", "reply_to", "prompt_response", "dispatch"};
    struct json dispatch = json_get(wire, "dispatch");

    *ret = (struct event){0};
    if (!json_is_object(wire))
        return bh_why(ret_why, "an event is a JSON object");
    for (size_t i = 0; i < ARRAY_LEN(objects); i++)
        if (json_type(json_get(wire, objects[i])) > JSON_NULL &&
            !json_is_object(json_get(wire, objects[i])))
            return bh_why(ret_why, "%s must be an object", objects[i]);
    if (!read_wire_texts(wire, second_texts, ARRAY_LEN(second_texts), ret, ret_why) ||
        !read_wire_texts(wire, event_texts, ARRAY_LEN(event_texts), ret, ret_why))
        return false;
    ret->reply_to.set = json_is_object(json_get(wire, "reply_to"));
    ret->reply_to.is_own = json_as_bool(json_get(json_get(wire, "reply_to"), "is_own"), false);
    ret->context_error = json_as_bool(json_get(wire, "context_error"), false);
    if (json_is_object(dispatch)) {
        struct buf text = BUF_INIT;
        struct jw w = jw_begin(&text);
        jw_value(&w, dispatch);
        ret->dispatch = arena_str(arena, buf_str(&text));
        buf_done(&text);
    }
    return read_wire_media(wire, arena, ret, ret_why) &&
           read_wire_context(wire, arena, ret, ret_why);
}
