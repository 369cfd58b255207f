/* inbound.c - receives Twilio's webhooks.  (inbound.h has the pure parts, twilio_priv.h the call.)
 *
 *      webhook --> signed? --> normalize --> host_accept() --stored--> empty TwiML
 *
 * The signed URL is `public_url` and the path; without `public_url` the Host header is used.  The
 * webhook is answered with an empty TwiML once the event is stored; an agent's reply is sent as a
 * separate request.
 *
 * Twilio signs names and values without separators, so a forger could move bytes between a name and
 * a value.  Therefore the syntax of every field that decides something is checked. */
#include "platform/twilio/inbound.h"
#include <stdio.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "core/frame.h"
#include "edge/sanitize.h"
#include "platform/twilio/twilio_priv.h"

#define DEADLINE_MS 10000  /* Twilio waits 15 s */
#define SIGNATURE_CHARS 28 /* 20 bytes in base64 */
#define FORM_TYPE STR("application/x-www-form-urlencoded")

/* ---- signatures ---- */

void twilio_signature(struct str auth_token, struct str url, const struct form *sorted,
                      struct buf *out)
{
    BUF_LOCAL text = BUF_INIT;
    uint8_t mac[20];

    buf_add_str(&text, url);
    for (size_t i = 0; sorted != NULL && i < sorted->n; i++) {
        buf_add_str(&text, sorted->pairs[i].name);
        buf_add_str(&text, sorted->pairs[i].value);
    }
    hmac_sha1(auth_token, buf_str(&text), mac);
    base64_add(out, mac, sizeof mac);
}

void twilio_other_url(struct str url, struct buf *out)
{
    bool tls = str_starts(url, STR("https://"));
    size_t from = tls ? 8 : 7, end = from, colon = 0;

    for (; end < url.n && url.p[end] != '/' && url.p[end] != '?' && url.p[end] != '#'; end++) {
        if (url.p[end] == ':')
            colon = end;
        else if (url.p[end] == ']')
            colon = 0; /* colons inside an IPv6 address */
    }
    if (end > url.n)
        end = url.n;
    buf_add(out, url.p, colon > 0 ? colon : end);
    if (colon == 0)
        buf_add_str(out, tls ? STR(":443") : STR(":80"));
    buf_add_str(out, str_skip(url, end));
}

static bool matches(struct str auth_token, struct str url, const struct twilio_request *q)
{
    BUF_LOCAL want = BUF_INIT;

    twilio_signature(auth_token, url, q->form, &want);
    return want.n == SIGNATURE_CHARS && q->signature.n == want.n &&
           ct_equal(want.p, q->signature.p, want.n);
}

/* The value of bodySHA256 in the query, which the signature covers.  Absent: none or several. */
static struct str hash_in(struct str url)
{
    ptrdiff_t at = str_find(url, '?');
    struct str rest = at < 0 ? STR_NULL : str_skip(url, (size_t)at + 1), part, found = STR_NULL;
    size_t n = 0;

    while (str_split(&rest, '&', &part))
        if (str_starts(part, STR("bodySHA256="))) {
            found = str_skip(part, 11);
            n++;
        }
    return n == 1 ? found : STR_NULL;
}

bool twilio_signature_ok(struct str auth_token, const struct twilio_request *q)
{
    BUF_LOCAL other = BUF_INIT;
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];

    if (q->signature.n != SIGNATURE_CHARS || q->url.n < 8)
        return false;
    if (q->form == NULL) { /* the signature covers the hash of the body, which is in the URL */
        sha256(q->body, got);
        if (!hex_decode(hash_in(q->url), want, sizeof want) || !ct_equal(want, got, sizeof got))
            return false;
    } else {
        form_sort(q->form);
        /* Twilio signs equal parameters once, so a forger could repeat one. */
        if (form_has_twins(q->form))
            return false;
    }
    if (matches(auth_token, q->url, q))
        return true;
    twilio_other_url(q->url, &other);
    return matches(auth_token, buf_str(&other), q);
}

/* ---- normalizing ---- */

bool twilio_address_ok(struct str a)
{
    ptrdiff_t colon = str_find(a, ':');
    struct str rest = colon < 0 ? a : str_skip(a, (size_t)colon + 1);

    if (a.n > 128 ||
        (colon >= 0 && (colon == 0 || !str_has_only(str_make(a.p, (size_t)colon), ""))))
        return false;
    if (colon >= 0)
        return rest.n > 0 && str_has_only(rest, "+_.-@");
    for (size_t i = 0; i < rest.n; i++)
        if (!(rest.p[i] >= '0' && rest.p[i] <= '9') && !(rest.p[i] == '+' && i == 0))
            return false;
    return rest.n >= 3 && rest.n <= 20;
}

static bool is_sid(struct str s)
{
    return s.n >= 4 && s.n <= 64 && (str_starts(s, STR("SM")) || str_starts(s, STR("MM"))) &&
           str_has_only(s, "");
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
        struct str type = form_get(f, name), kind = platform_message_type(type, false);
        if (ev->n_media == 0)
            ev->message_type = kind;
        out->media[ev->n_media++] =
            (struct event_media){.ref = url,
                                 .type = type,
                                 .kind = str_eq(kind, STR("photo")) ? STR("image") : kind};
    }
}

/* A shared location has no text, so its coordinates become the text. */
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

/* WhatsApp names the quoted message and its sender, but not its text. */
static void set_reply(const struct form *f, struct str id, struct event *ev)
{
    struct str sid = form_get(f, "OriginalRepliedMessageSid");
    struct str sender = form_get(f, "OriginalRepliedMessageSender");

    if (!is_sid(sid))
        return;
    ev->reply_to_message_id = sid;
    ev->reply_to.set = true;
    ev->reply_to.is_own = ev->replies_to_bot =
        str_eq(sender, id) ||
        (str_starts(sender, STR("whatsapp:")) && str_eq(str_skip(sender, 9), id));
}

static bool is_status(const struct form *f)
{
    struct str status = form_get(f, "SmsStatus");

    return form_get(f, "MessageStatus").p != NULL ||
           (status.p != NULL && !str_eq(status, STR("received")));
}

enum webhook_verdict twilio_normalize(const struct form *f, struct str bot, struct str account_sid,
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
        return WEBHOOK_MALFORMED;
    if (is_status(f))
        return WEBHOOK_IGNORED;
    if (!twilio_address_ok(from))
        return WEBHOOK_MALFORMED;
    ev->event_id = ev->message_id = sid;
    ev->chat_id = ev->user_id = from;
    ev->chat_type = STR("dm");
    ev->user_name = ev->chat_name = name.n > 0 ? name : from;
    ev->user_display_name = ev->user_name;
    ev->user_handle = from;
    ev->mentions_bot = true;
    set_text(f, out);
    set_media(f, out);
    set_reply(f, platform_id_in(bot), ev);
    return ev->text.n > 0 || ev->n_media > 0 ? WEBHOOK_EVENT : WEBHOOK_IGNORED;
}

void twilio_out_done(struct twilio_out *out)
{
    buf_done(&out->text);
}

/* ---- webhooks ---- */

static const struct http_answer empty_twiml = {
    .status = 200,
    .content_type = "text/xml; charset=utf-8",
    .body = {"<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response></Response>", 59},
};

static bool is_signed(struct twilio *t, struct http_req *req, bool form)
{
    BUF_LOCAL url = BUF_INIT;

    struct str query = http_raw_query(req);
    if (t->base.env->public_url == NULL || !platform_base_url(&t->base, &url))
        buf_printf(&url, "%s://%.*s", http_is_tls(req) ? "https" : "http",
                   STR_FMT(http_header(req, "Host")));
    buf_add_str(&url, http_path(req));
    if (query.p != NULL)
        buf_printf(&url, "?%.*s", STR_FMT(query));
    bool ok =
        twilio_signature_ok(str_of(t->cfg->auth_token),
                            &(struct twilio_request){.url = buf_str(&url),
                                                     .form = form ? &t->form : NULL,
                                                     .body = http_body(req),
                                                     .signature =
                                                         http_header(req, "X-Twilio-Signature")});
    return ok;
}

/* Writes the body without credentials.  False: neither a form nor JSON, or too many credentials. */
static bool write_body(struct twilio *t, struct http_req *req, bool form, struct buf *out)
{
    struct jw w = jw_begin(out);
    struct json doc;

    if (!form)
        return json_parse(t->base.parser, http_body(req), &doc) && sanitize_json(&w, doc);
    for (size_t i = 0; i < t->form.n; i++)
        if (!sanitize_names_credential(t->form.pairs[i].name))
            form_add_str(out, t->form.pairs[i].name, t->form.pairs[i].value);
    return true;
}

static void forward(struct twilio *t, struct http_req *req, bool form, const struct event *ev)
{
    BUF_LOCAL body = BUF_INIT, json = BUF_INIT;
    bool ok = write_body(t, req, form, &body);

    frame_write_forward(&json, &(struct forward){.platform = STR("twilio"),
                                                 .bot = str_of(t->base.bot),
                                                 .method = STR("POST"),
                                                 .path = http_path(req),
                                                 .content_type =
                                                     form ? FORM_TYPE : STR("application/json"),
                                                 .body = buf_str(&body)});
    if (ok)
        await_accept(&t->base, &(struct webhook_delivery){.ev = ev, .forward = buf_str(&json)},
                     http_req_id(req), &empty_twiml, DEADLINE_MS);
    else
        await_refuse(&t->base, http_req_id(req), BH_MALFORMED);
}

/* Forwards a request that is not a message, under the bot's route. */
static void forward_other(struct twilio *t, struct http_req *req, bool form)
{
    struct str bot = str_of(t->base.bot);
    struct event ev = {.platform = STR("twilio"),
                       .bot = bot,
                       .route_key = bot,
                       .filed_as = STR("relay"),
                       .chat_type = STR("dm"),
                       .mentions_bot = true};

    forward(t, req, form, &ev);
}

static void accept_message(struct twilio *t, struct http_req *req)
{
    struct event *ev = &t->out.ev;
    enum webhook_verdict v =
        twilio_normalize(&t->form, str_of(t->base.bot), str_of(t->cfg->account_sid), &t->out);

    if (!t->passthrough || v == WEBHOOK_MALFORMED) {
        text_take(&t->base, v, ev, http_req_id(req), &empty_twiml, DEADLINE_MS);
    } else if (v == WEBHOOK_IGNORED) {
        t->base.n.ignored++;
        forward_other(t, req, true);
    } else {
        ev->route_key = ev->chat_id;
        forward(t, req, true, ev);
    }
}

bool twilio_http(struct platform *p, struct http_req *req)
{
    struct twilio *t = twilio_of(p);
    struct str type = http_header(req, "Content-Type"), first;
    bool form = str_split(&type, ';', &first) && str_eq_ci(str_trim(first), FORM_TYPE);

    if (!str_eq(http_method(req), STR("POST")) || (form && !form_parse(&t->form, http_body(req))) ||
        !is_signed(t, req, form)) {
        t->base.n.refused++;
        return false;
    }
    if (form)
        accept_message(t, req);
    else if (t->passthrough)
        forward_other(t, req, false);
    else {
        t->base.n.ignored++;
        http_answer(t->base.env->server, http_req_id(req), &empty_twiml);
    }
    return true;
}
