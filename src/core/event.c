/* event.c - design.  (event.h has the contract.)
 *
 * Every accepted message passes here once per receiver, so the keys go out as ready-made fragments,
 * comma and quotes included, and only the values are escaped.  A fragment that opens the object or
 * follows a value that is always there carries its comma; so the order below is fixed, and the
 * optional keys come after the ones that are always written.
 *
 * Null is chosen key by key, not by habit: the real client survives a null chat_name, and dies of a
 * null text, chat_id or chat_type.  */
#include "core/event.h"
#include <assert.h>
#include "base/jw.h"
#include "base/mem.h"
#include "core/delivery_id.h"

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

/* @key is a fragment such as ,"chat_name": and the value follows it directly.  Inlined, because a
 * copy of known length is a few moves. */
static inline __attribute__((always_inline)) void put(struct jw *w, struct str key,
                                                      struct str value)
{
    char *to = buf_room(w->out, key.n + 4);

    if (to == NULL)
        return;
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
    return s.p != NULL ? s : otherwise;
}
static struct str set_or_else(struct str s, struct str otherwise)
{
    return !str_is_empty(s) ? s : otherwise;
}

static void put_media(struct jw *w, const struct event *ev)
{
    struct str before = STR(",\"media_urls\":[");

    assert(ev->n_media <= EVENT_MAX_MEDIA);
    for (size_t i = 0; i < ev->n_media; i++) {
        if (!event_media_is_safe(ev->media_urls[i]))
            continue;
        put(w, before, ev->media_urls[i]);
        before = STR(",");
    }
    if (before.n > 1)
        buf_add_str(w->out, before);
    buf_add_c(w->out, ']');
}

static void put_reply_to(struct jw *w, const struct event *ev)
{
    if (!ev->reply_to.set)
        return;
    buf_add_str(w->out, ev->reply_to.is_own ? STR(",\"reply_to\":{\"is_own\":true")
                                            : STR(",\"reply_to\":{\"is_own\":false"));
    if (ev->reply_to.text.p != NULL)
        put(w, STR(",\"text\":"), ev->reply_to.text);
    if (ev->reply_to.author.p != NULL)
        put(w, STR(",\"author\":"), ev->reply_to.author);
    buf_add_c(w->out, '}');
}

static void put_source(struct jw *w, const struct event *ev)
{
    put(w, STR(",\"source\":{\"platform\":"), set_or_else(ev->platform, STR("relay")));
    put(w, STR(",\"chat_id\":"), or_else(ev->chat_id, STR("")));
    put(w, STR(",\"chat_type\":"), set_or_else(ev->chat_type, STR("dm")));
    put(w, STR(",\"chat_name\":"), ev->chat_name);
    put(w, STR(",\"user_id\":"), ev->user_id);
    put(w, STR(",\"user_name\":"), ev->user_name);
    put(w, STR(",\"thread_id\":"), ev->thread_id);
    put(w, STR(",\"chat_topic\":"), ev->chat_topic);
    put_set(w, STR(",\"user_id_alt\":"), ev->user_id_alt);
    put_set(w, STR(",\"chat_id_alt\":"), ev->chat_id_alt);
    /* Older gateways read the first name only, newer ones the second only. */
    put_set(w, STR(",\"guild_id\":"), ev->scope_id);
    put_set(w, STR(",\"scope_id\":"), ev->scope_id);
    put_set(w, STR(",\"parent_chat_id\":"), ev->parent_chat_id);
    put_set(w, STR(",\"message_id\":"), ev->message_id);
    put_set(w, STR(",\"user_display_name\":"), ev->user_display_name);
    put_set(w, STR(",\"user_handle\":"), ev->user_handle);
    buf_add_c(w->out, '}');
}

void event_write(struct buf *out, const struct event *ev)
{
    struct jw w = jw_begin(out);

    put(&w, STR("{\"text\":"), or_else(ev->text, STR("")));
    put(&w, STR(",\"message_type\":"), set_or_else(ev->message_type, STR("text")));
    put(&w, STR(",\"message_id\":"), ev->message_id);
    put(&w, STR(",\"reply_to_message_id\":"), ev->reply_to_message_id);
    put_media(&w, ev);
    put_reply_to(&w, ev);
    put_set(&w, STR(",\"bot_id\":"), ev->bot);
    put_source(&w, ev);
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
