/* normalize.c - reading messages.  (normalize.h has the contract.)
 *
 * Pictures, voice, video and files need the agent's own credential to be fetched: file.c. */
#include "platform/wecom/normalize.h"

static void set_location(const struct wecom_xml *x, struct wecom_out *out)
{
    struct str label = wecom_xml_get(x, "Label");

    buf_printf(&out->text, "[location: %.*s, %.*s%s%.*s]", STR_FMT(wecom_xml_get(x, "Location_X")),
               STR_FMT(wecom_xml_get(x, "Location_Y")), label.n > 0 ? "; " : "", (int)label.n,
               label.n > 0 ? label.p : "");
}

static void set_link(const struct wecom_xml *x, struct wecom_out *out)
{
    struct str title = wecom_xml_get(x, "Title"), url = wecom_xml_get(x, "Url");

    buf_printf(&out->text, "%.*s%s%.*s", STR_FMT(title), title.n > 0 && url.n > 0 ? "\n" : "",
               STR_FMT(url));
}

/* WeCom keeps what people send for three days under a name of its own. */
static bool set_file(const struct wecom_xml *x, struct wecom_out *out, const char *kind,
                     const char *type)
{
    struct str ref = wecom_xml_get(x, "MediaId");

    if (ref.n == 0 || ref.n > 512)
        return false;
    out->media[out->ev.n_media++] = (struct event_media){.ref = ref,
                                                         .kind = str_of(kind),
                                                         .type = str_of(type),
                                                         .name = wecom_xml_get(x, "FileName")};
    return true;
}

static void set_picture(const struct wecom_xml *x, struct wecom_out *out, struct str url)
{
    out->ev.message_type = STR("photo");
    if (set_file(x, out, "image", "image/jpeg"))
        return;
    if (event_media_is_safe(url))
        out->media[out->ev.n_media++] =
            (struct event_media){.url = url, .kind = STR("image"), .type = STR("image/jpeg")};
    else
        buf_add_z(&out->text, "[picture]");
}

static void set_other(const struct wecom_xml *x, struct wecom_out *out, const char *kind)
{
    bool video = kind[0] == 'v';

    buf_add_z(&out->text, video ? "[video]" : "[file]");
    out->ev.message_type = str_of(kind);
    set_file(x, out, kind, video ? "video/mp4" : "application/octet-stream");
}

static void set_voice(const struct wecom_xml *x, struct wecom_out *out)
{
    struct str words = wecom_xml_get(x, "Recognition");

    out->ev.message_type = STR("voice");
    set_file(x, out, "voice", "audio/amr");
    buf_printf(&out->text, "[voice message]%s%.*s", words.n > 0 ? " " : "", (int)words.n,
               words.n > 0 ? words.p : "");
}

static bool set_content(const struct wecom_xml *x, struct wecom_out *out)
{
    struct str type = wecom_xml_get(x, "MsgType"), picture = wecom_xml_get(x, "PicUrl");

    if (str_eq(type, STR("text")))
        buf_add_str(&out->text, wecom_xml_get(x, "Content"));
    else if (str_eq(type, STR("image")))
        set_picture(x, out, picture);
    else if (str_eq(type, STR("voice")))
        set_voice(x, out);
    else if (str_eq(type, STR("video")))
        set_other(x, out, "video");
    else if (str_eq(type, STR("file")))
        set_other(x, out, "document");
    else if (str_eq(type, STR("location")))
        set_location(x, out);
    else if (str_eq(type, STR("link")))
        set_link(x, out);
    return out->text.n > 0 || out->ev.n_media > 0;
}

/* Callbacks are set up per agent; a stray one is not for us. */
static bool is_for_another(const struct wecom_xml *x, struct str bot)
{
    struct str agent = wecom_xml_get(x, "AgentID");
    uint64_t a, b;

    return str_to_u64(agent, &a) && str_to_u64(bot, &b) && a != b;
}

enum wecom_verdict wecom_normalize(const struct wecom_xml *x, struct str bot, struct wecom_out *out)
{
    struct event *ev = &out->ev;
    struct str from = wecom_xml_get(x, "FromUserName"), id = wecom_xml_get(x, "MsgId");

    buf_reset(&out->text);
    buf_reset(&out->id);
    *ev =
        (struct event){.platform = STR("wecom"), .bot = bot, .route_key = bot, .media = out->media};
    if (from.n == 0 || from.n > 128 || wecom_xml_get(x, "MsgType").n == 0)
        return WECOM_MALFORMED;
    if (id.n == 0) { /* events have none */
        buf_printf(&out->id, "%.*s-%.*s", STR_FMT(from), STR_FMT(wecom_xml_get(x, "CreateTime")));
        id = buf_str(&out->id);
    }
    if (is_for_another(x, bot) || !set_content(x, out))
        return WECOM_IGNORED;
    ev->event_id = ev->message_id = id;
    ev->text = buf_str(&out->text);
    ev->chat_id = ev->user_id = from;
    ev->chat_type = STR("dm");
    ev->user_name = ev->chat_name = ev->user_display_name = ev->user_handle = from;
    ev->mentions_bot = true;
    return WECOM_EVENT;
}

void wecom_out_done(struct wecom_out *out)
{
    buf_done(&out->text);
    buf_done(&out->id);
}
