/* normalize.c - reading messages.  (normalize.h has the contract.)
 *
 * Twilio signs names and values run together, so a forger could shift the border between two of
 * them.  Every field that decides something is therefore held to its own form. */
#include "platform/twilio/normalize.h"
#include <stdio.h>
#include "base/str.h"

static bool all_of(struct str s, const char *more)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')) &&
            strchr(more, c) == NULL)
            return false;
    }
    return s.n > 0;
}

bool twilio_address_ok(struct str a)
{
    ptrdiff_t colon = str_find(a, ':');
    struct str rest = colon < 0 ? a : str_skip(a, (size_t)colon + 1);

    if (a.n > 128 || (colon >= 0 && !all_of(str_make(a.p, (size_t)colon), "")))
        return false;
    if (colon >= 0)
        return all_of(rest, "+_.-@");
    for (size_t i = 0; i < rest.n; i++)
        if (!(rest.p[i] >= '0' && rest.p[i] <= '9') && !(rest.p[i] == '+' && i == 0))
            return false;
    return rest.n >= 3 && rest.n <= 20;
}

static bool is_sid(struct str s)
{
    return s.n >= 4 && s.n <= 64 && (str_starts(s, STR("SM")) || str_starts(s, STR("MM"))) &&
           all_of(s, "");
}

static struct str type_of(struct str content_type)
{
    if (str_starts(content_type, STR("image/")))
        return STR("photo");
    if (str_starts(content_type, STR("video/")))
        return STR("video");
    if (str_starts(content_type, STR("audio/")))
        return STR("audio");
    return STR("document");
}

static void set_media(const struct form *f, struct twilio_out *out)
{
    struct event *ev = &out->ev;
    uint64_t n = 0;
    char name[32];

    str_to_u64(form_get(f, "NumMedia"), &n);
    for (uint64_t i = 0; i < n && i < f->n && ev->n_media < EVENT_MAX_MEDIA; i++) {
        snprintf(name, sizeof name, "MediaUrl%u", (unsigned)i);
        struct str url = form_get(f, name);
        if (!event_media_is_safe(url))
            continue;
        snprintf(name, sizeof name, "MediaContentType%u", (unsigned)i);
        struct str type = form_get(f, name), kind = type_of(type);
        if (ev->n_media == 0)
            ev->message_type = kind;
        out->media[ev->n_media++] =
            (struct event_media){.ref = url,
                                 .type = type,
                                 .kind = str_eq(kind, STR("photo")) ? STR("image") : kind};
    }
}

/* WhatsApp's shared places and cards have no words of their own. */
static void set_text(const struct form *f, struct twilio_out *out)
{
    struct str body = form_get(f, "Body"), lat = form_get(f, "Latitude");
    struct str lon = form_get(f, "Longitude"), address = form_get(f, "Address");

    out->ev.text = body.p != NULL ? body : STR("");
    if (lat.n == 0 || lon.n == 0)
        return;
    buf_reset(&out->text);
    buf_printf(&out->text, "%.*s%s[location: %.*s, %.*s%s%.*s]", STR_FMT(out->ev.text),
               body.n > 0 ? "\n" : "", STR_FMT(lat), STR_FMT(lon), address.n > 0 ? "; " : "",
               (int)address.n, address.n > 0 ? address.p : "");
    out->ev.text = buf_str(&out->text);
}

/* WhatsApp says which message is quoted and whose it is, not its words. */
static void set_reply(const struct form *f, struct str bot, struct event *ev)
{
    struct str sid = form_get(f, "OriginalRepliedMessageSid");
    struct str sender = form_get(f, "OriginalRepliedMessageSender");

    if (!is_sid(sid))
        return;
    ev->reply_to_message_id = sid;
    ev->reply_to.set = true;
    ev->reply_to.is_own = ev->replies_to_bot =
        str_eq(sender, bot) ||
        (str_starts(sender, STR("whatsapp:")) && str_eq(str_skip(sender, 9), bot));
}

static bool is_status(const struct form *f)
{
    struct str status = form_get(f, "SmsStatus");

    return form_get(f, "MessageStatus").p != NULL ||
           (status.p != NULL && !str_eq(status, STR("received")));
}

enum twilio_verdict twilio_normalize(const struct form *f, struct str bot, struct str account_sid,
                                     struct twilio_out *out)
{
    struct event *ev = &out->ev;
    struct str sid = form_get(f, "MessageSid"), from = form_get(f, "From");
    struct str account = form_get(f, "AccountSid"), name = form_get(f, "ProfileName");

    *ev = (struct event){.platform = STR("twilio"),
                         .bot = bot,
                         .route_key = bot,
                         .media = out->media};
    if (sid.p == NULL)
        sid = form_get(f, "SmsMessageSid");
    if (!is_sid(sid) || (account.p != NULL && !str_eq(account, account_sid)))
        return TWILIO_MALFORMED;
    if (is_status(f))
        return TWILIO_IGNORED;
    if (!twilio_address_ok(from))
        return TWILIO_MALFORMED;
    ev->event_id = ev->message_id = sid;
    ev->chat_id = ev->user_id = from;
    ev->chat_type = STR("dm");
    ev->user_name = ev->chat_name = name.n > 0 ? name : from;
    ev->user_display_name = ev->user_name;
    ev->user_handle = from;
    ev->mentions_bot = true;
    set_text(f, out);
    set_media(f, out);
    set_reply(f, bot, ev);
    return ev->text.n > 0 || ev->n_media > 0 ? TWILIO_EVENT : TWILIO_IGNORED;
}

void twilio_out_done(struct twilio_out *out)
{
    buf_done(&out->text);
}
