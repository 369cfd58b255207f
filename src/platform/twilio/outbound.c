/* outbound.c - writes requests to Twilio and reads the answers.  (outbound.h has the pure parts;
 * platform/sender.h describes lanes and retries.)
 *
 * A retry could send a second message.  So if an answer is lost, the message is looked up in
 * Twilio's list instead.  The prefix that a trial account adds to every text is ignored.  A message
 * that is not found, for example because Twilio changed its text, ends as unknown. */
#include "platform/twilio/outbound.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "net/http_client.h"
#include "net/http_codec.h"
#include "platform/twilio/twilio_priv.h"

/* ---- a message in Twilio's list ---- */

void twilio_sids_add(struct twilio_sids *s, struct str sid)
{
    if (sid.n == 0 || sid.n > TWILIO_SID_CHARS)
        return;
    char *to = s->all[s->n++ % TWILIO_SIDS];
    memcpy(to, sid.p, sid.n);
    to[sid.n] = '\0';
}

bool twilio_sids_have(const struct twilio_sids *s, struct str sid)
{
    for (unsigned i = 0; i < TWILIO_SIDS && i < s->n; i++)
        if (str_eq(sid, str_of(s->all[i])))
            return true;
    return false;
}

static bool says(struct str body, struct str text)
{
    struct str trial = STR("Sent from your Twilio trial account - ");

    return str_eq(body, text) || (str_starts(body, trial) && str_eq(str_skip(body, trial.n), text));
}

static bool is_it(struct json m, const struct twilio_sought *q, int64_t *ret_s)
{
    struct str sid = json_str(m, "sid");

    return sid.n > 0 && str_eq(json_str(m, "to"), q->to) &&
           (q->from.p == NULL || str_eq(json_str(m, "from"), q->from)) &&
           str_starts(json_str(m, "direction"), STR("outbound")) &&
           says(json_str(m, "body"), q->body) &&
           str_eq(json_str(m, "num_media"), STR("0")) == !q->media &&
           http_date_read(json_str(m, "date_created"), ret_s) && *ret_s >= q->since_s &&
           !str_eq(sid, q->first_id) && !twilio_sids_have(q->known, sid);
}

struct str twilio_find(struct json list, const struct twilio_sought *q)
{
    struct json all = json_get(list, "messages");
    struct str found = STR_NULL;
    int64_t last_s = 0, made_s = 0;

    for (struct json_iter it = {0}; json_next(all, &it);) {
        if (!is_it(it.value, q, &made_s) || (found.n > 0 && made_s <= last_s))
            continue;
        found = json_str(it.value, "sid");
        last_s = made_s;
    }
    return found;
}

/* ---- sending ---- */

static const struct sender_refusal refusals[] = {
    {20003, "Twilio refuses the credentials: put the current `account_sid` and `auth_token` into "
            "bellhop's config"},
    {21211, "Twilio does not know this number"},
    {21408, "the Twilio account may not write to this country: allow it in the console (Messaging, "
            "Geo permissions)"},
    {21606, "the bot's number cannot send messages: check `bot` in bellhop's config"},
    {21608, "a trial account of Twilio writes to verified numbers only"},
    {21610, "this person has unsubscribed (STOP) and cannot be written to"},
    {21612, "Twilio has no way from the bot's number to this one"},
    {21614, "this number cannot receive messages"},
    {21617, "Twilio does not take a text this long"},
    {21660, "the bot's number does not belong to this Twilio account"},
    {63007, "the bot's number is not a WhatsApp sender of this Twilio account"},
    {63016, "WhatsApp allows free text only within 24 hours of the person's last message"},
    {0},
};

static bool is_service(const struct twilio *t)
{
    return str_starts(platform_id(&t->base), STR("MG"));
}

static void add_from(const struct twilio *t, struct str chat, struct buf *out)
{
    struct str bot = platform_id(&t->base);
    ptrdiff_t colon = str_find(chat, ':');

    if (colon >= 0 && str_find(bot, ':') < 0) /* use the person's channel, such as whatsapp: */
        buf_add(out, chat.p, (size_t)colon + 1);
    buf_add_str(out, bot);
}

static void write_from(const struct twilio *t, struct str chat, struct buf *out)
{
    BUF_LOCAL from = BUF_INIT;

    add_from(t, chat, &from);
    form_add(out, "From", buf_str(&from));
}

static void write_address(struct twilio *t, struct sender_request *q)
{
    buf_printf(&q->url, "%s/2010-04-01/Accounts/%s/Messages.json", t->base.api_base,
               t->cfg->account_sid);
    q->headers[0] = buf_z(&t->auth);
}

static void twilio_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                         struct sender_verdict *v)
{
    struct twilio *t = twilio_of(p);
    struct str chat = str_of(text_outgoing_of(o)->chat);

    write_address(t, q);
    q->headers[1] = "Content-Type: application/x-www-form-urlencoded";
    q->once = true;
    form_add(&q->body, "To", chat);
    if (is_service(t))
        form_add(&q->body, "MessagingServiceSid", platform_id(&t->base));
    else
        write_from(t, chat, &q->body);
    struct str text = text_outgoing_part(o);
    const struct attachment *file = &text_outgoing_of(o)->file;
    if (text.n > 0 || file->url == NULL)
        form_add(&q->body, "Body", text);
    if (file->url != NULL && o->at == 0)
        form_add(&q->body, "MediaUrl", str_of(file->url));
    v->end = SENDER_GO;
}

static void twilio_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                        struct sender_verdict *v)
{
    struct twilio *t = twilio_of(p);
    struct json doc = {0};

    if (!json_parse(t->base.answers, res->body, &doc))
        doc = (struct json){0};
    int64_t code = json_i64(doc, "code", 0);
    if (res->status >= 200 && res->status < 300 && json_str(doc, "sid").n == 0) {
        snprintf(v->why, sizeof v->why,
                 "something else answered in Twilio's place; it may have been sent");
    } else if (res->status >= 200 && res->status < 300) {
        v->end = SENDER_DONE;
        snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(json_str(doc, "sid")));
        twilio_sids_add(&t->known, json_str(doc, "sid"));
        platform_set_problem(p, NULL);
    } else if (res->status == 429 || code == 20429) {
        v->wait_ms = res->retry_after_ms;
        sender_say(v, SENDER_AGAIN, "Twilio's rate limit asks to wait");
    } else if (res->status == 503) {
        sender_say(v, SENDER_AGAIN, "Twilio is not available");
    } else if (res->status >= 500) {
        snprintf(v->why, sizeof v->why, "Twilio answered with HTTP %d; it may have been sent",
                 res->status);
    } else {
        const char *sentence = sender_refusal(refusals, code);
        if (res->status == 401) {
            sentence = sender_refusal(refusals, 20003);
            platform_set_problem(p, sentence);
        }
        if (sentence != NULL)
            sender_say(v, SENDER_REFUSED, "%s", sentence);
        else
            sender_say(v, SENDER_REFUSED, "Twilio refused this (HTTP %d, code %" PRId64 ")",
                       res->status, code);
    }
}

/* ---- looking up a message whose answer was lost ---- */

/* The request does not filter by date: a message in Twilio's queue has no date of sending yet. */
static void twilio_look(struct platform *p, struct outgoing *o, struct sender_request *q,
                        struct sender_verdict *v)
{
    struct twilio *t = twilio_of(p);
    struct str chat = str_of(text_outgoing_of(o)->chat);
    BUF_LOCAL query = BUF_INIT;

    write_address(t, q);
    q->method = "GET";
    q->no_body = true;
    form_add(&query, "To", chat);
    if (!is_service(t))
        write_from(t, chat, &query);
    form_add(&query, "PageSize", STR("50"));
    buf_printf(&q->url, "?%.*s", STR_FMT(buf_str(&query)));
    v->end = SENDER_GO;
}

static void twilio_looked(struct platform *p, struct outgoing *o, const struct http_result *res,
                          struct sender_verdict *v)
{
    struct twilio *t = twilio_of(p);
    const struct text_outgoing *x = text_outgoing_of(o);
    BUF_LOCAL from = BUF_INIT;
    struct json list;

    if (res->status != 200 || !json_parse(t->base.answers, res->body, &list)) {
        v->wait_ms = res->retry_after_ms;
        sender_say(v, SENDER_AGAIN, "it may have been sent, and Twilio's list answers with HTTP %d",
                   res->status);
        return;
    }
    int64_t now_ms = clock_wall_ms(t->base.env->clock), their_s = now_ms / 1000;
    http_date_read(http_result_header(res, "Date"), &their_s);
    int64_t tried_s = their_s - (now_ms - o->tried_ms + 999) / 1000; /* by Twilio's clock */
    add_from(t, str_of(x->chat), &from);
    struct str sid =
        twilio_find(list, &(struct twilio_sought){.to = str_of(x->chat),
                                                  .from = is_service(t) ? STR_NULL : buf_str(&from),
                                                  .body = text_outgoing_part(o),
                                                  .media = x->file.url != NULL && o->at == 0,
                                                  .since_s = tried_s,
                                                  .first_id = str_of(o->first_id),
                                                  .known = &t->known});
    v->end = sid.n > 0 ? SENDER_DONE : SENDER_REFUSED;
    snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(sid));
    twilio_sids_add(&t->known, sid);
}

const char *twilio_no_file(struct platform *p, const struct attachment *a)
{
    bool whatsapp = str_starts(platform_id(p), STR("whatsapp:"));

    if (a->url == NULL)
        return "Twilio fetches files itself: bellhop needs `public_url` for that";
    if (a->size > (whatsapp ? (uint64_t)16 << 20 : (uint64_t)5 << 20))
        return "the file is larger than Twilio takes (5 MB, WhatsApp 16 MB)";
    return NULL;
}

const struct sender_ops twilio_sender = {
    .write = twilio_write,
    .read = twilio_read,
    .free = text_outgoing_free,
    .look = twilio_look,
    .looked = twilio_looked,
};
