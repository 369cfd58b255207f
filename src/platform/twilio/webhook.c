/* webhook.c - messages that Twilio brings.  (twilio_priv.h has the calls.)
 *
 * The address that was signed is the one Twilio was given: `public_url` and the path, or, without
 * it, what the request itself names.  The answer is an empty TwiML, and only once the event is
 * safe: what the agent says goes out on its own. */
#include "base/crypto.h"
#include "base/jw.h"
#include "core/frame.h"
#include "edge/sanitize.h"
#include "platform/twilio/signature.h"
#include "platform/twilio/twilio_priv.h"

#define DEADLINE_MS 10000 /* Twilio waits 15 s */
#define FORM_TYPE STR("application/x-www-form-urlencoded")

static const struct http_answer empty_twiml = {
    .status = 200,
    .content_type = "text/xml; charset=utf-8",
    .body = {"<?xml version=\"1.0\" encoding=\"UTF-8\"?><Response></Response>", 59},
};

static void write_url(const struct twilio *t, struct http_req *req, struct buf *out)
{
    struct str query = http_raw_query(req);

    if (t->bot.env->public_url != NULL)
        buf_add_z(out, t->bot.env->public_url);
    else
        buf_printf(out, "%s://%.*s", http_is_tls(req) ? "https" : "http",
                   STR_FMT(http_header(req, "Host")));
    buf_add_str(out, http_path(req));
    if (query.p != NULL)
        buf_printf(out, "?%.*s", STR_FMT(query));
}

static bool is_form(struct http_req *req)
{
    struct str type = http_header(req, "Content-Type"), first;

    return str_split(&type, ';', &first) && str_eq_ci(str_trim(first), FORM_TYPE);
}

static bool is_signed(struct twilio *t, struct http_req *req, bool form)
{
    struct buf url = BUF_INIT;

    write_url(t, req, &url);
    bool ok =
        twilio_signature_ok(str_of(t->cfg->auth_token),
                            &(struct twilio_request){.url = buf_str(&url),
                                                     .form = form ? &t->form : NULL,
                                                     .body = http_body(req),
                                                     .signature =
                                                         http_header(req, "X-Twilio-Signature")});
    buf_done(&url);
    return ok;
}

/* ---- what it means ---- */

static void write_form(const struct form *f, struct buf *out)
{
    for (size_t i = 0; i < f->n; i++)
        if (!sanitize_names_credential(f->pairs[i].name))
            form_add_str(out, f->pairs[i].name, f->pairs[i].value);
}

static bool write_body(struct twilio *t, struct http_req *req, bool form, struct buf *out)
{
    struct jw w = jw_begin(out);
    struct json doc;

    if (form) {
        write_form(&t->form, out);
        return true;
    }
    return json_parse(t->bot.parser, http_body(req), &doc) && sanitize_json(&w, doc);
}

static void forward(struct twilio *t, struct http_req *req, bool form, const struct event *ev)
{
    struct buf body = BUF_INIT, json = BUF_INIT;
    bool ok = write_body(t, req, form, &body);

    frame_write_forward(&json, &(struct forward){.platform = STR("twilio"),
                                                 .bot = str_of(t->bot.base.bot),
                                                 .method = STR("POST"),
                                                 .path = http_path(req),
                                                 .content_type =
                                                     form ? STR("application/x-www-form-urlencoded")
                                                          : STR("application/json"),
                                                 .body = buf_str(&body)});
    if (ok)
        await_passthrough(&t->bot.awaits, ev, buf_str(&json), http_req_id(req), &empty_twiml,
                          DEADLINE_MS);
    else
        await_refuse(&t->bot.awaits, http_req_id(req), BH_MALFORMED);
    buf_done(&json);
    buf_done(&body);
}

/* Whatever else Twilio tells a gateway that wants it all: it belongs to the bot. */
static void forward_other(struct twilio *t, struct http_req *req, bool form)
{
    struct str bot = str_of(t->bot.base.bot);
    struct event ev = {.platform = STR("twilio"),
                       .bot = bot,
                       .route_key = bot,
                       .filed_as = STR("relay"),
                       .chat_type = STR("dm"),
                       .mentions_bot = true};

    forward(t, req, form, &ev);
}

static void take(struct twilio *t, struct http_req *req)
{
    struct event *ev = &t->out.ev;
    enum twilio_verdict v =
        twilio_normalize(&t->form, str_of(t->bot.base.bot), str_of(t->cfg->account_sid), &t->out);

    if (v == TWILIO_MALFORMED) {
        await_refuse(&t->bot.awaits, http_req_id(req), BH_MALFORMED);
        return;
    }
    if (v == TWILIO_IGNORED) {
        t->bot.n.ignored++;
        if (t->passthrough)
            forward_other(t, req, true);
        else
            http_answer(t->bot.env->server, http_req_id(req), &empty_twiml);
        return;
    }
    t->bot.n.events++;
    ev->route_key = ev->chat_id;
    if (t->passthrough)
        forward(t, req, true, ev);
    else if (!webhook_bot_answers(&t->bot, ev, http_req_id(req), &empty_twiml, DEADLINE_MS))
        await_accept(&t->bot.awaits, ev, http_req_id(req), &empty_twiml, DEADLINE_MS);
}

bool twilio_http(struct platform *p, struct http_req *req)
{
    struct twilio *t = twilio_of(p);
    bool form = is_form(req);

    if (!str_eq(http_method(req), STR("POST")) || (form && !form_parse(&t->form, http_body(req))) ||
        !is_signed(t, req, form)) {
        t->bot.n.refused++;
        return false;
    }
    if (form)
        take(t, req);
    else if (t->passthrough)
        forward_other(t, req, false);
    else {
        t->bot.n.ignored++;
        http_answer(t->bot.env->server, http_req_id(req), &empty_twiml);
    }
    return true;
}
