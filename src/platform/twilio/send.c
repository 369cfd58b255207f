/* send.c - what a request to Twilio looks like, and what its answers mean.  (courier.h does the
 * rest.) */
#include <inttypes.h>
#include <stdio.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "platform/twilio/twilio_priv.h"

enum { MAX_CHARS = 1600 };

static const struct {
    int64_t code;
    const char *sentence;
} table[] = {
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
};

static const char *sentence_of(int64_t code)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].code == code)
            return table[i].sentence;
    return NULL;
}

static void write_from(const struct twilio *t, struct str chat, struct buf *out)
{
    struct str bot = str_of(t->base.bot);
    ptrdiff_t colon = str_find(chat, ':');
    struct buf from = BUF_INIT;

    if (str_starts(bot, STR("MG"))) {
        form_add(out, "MessagingServiceSid", bot);
        return;
    }
    if (colon >= 0 && str_find(bot, ':') < 0) /* an answer leaves by the way the question came */
        buf_add(&from, chat.p, (size_t)colon + 1);
    buf_add_str(&from, bot);
    form_add(out, "From", buf_str(&from));
    buf_done(&from);
}

static bool twilio_write(void *ctx, struct str chat, struct str part, struct courier_request *ret)
{
    const struct twilio *t = ctx;
    struct buf pair = BUF_INIT;

    buf_printf(&ret->url, "%s/2010-04-01/Accounts/%s/Messages.json", t->api_base,
               t->cfg->account_sid);
    ret->content_type = "Content-Type: application/x-www-form-urlencoded";
    form_add(&ret->body, "To", chat);
    write_from(t, chat, &ret->body);
    form_add(&ret->body, "Body", part);
    buf_printf(&pair, "%s:%s", t->cfg->account_sid, t->cfg->auth_token);
    buf_add_z(&ret->header, "Authorization: Basic ");
    base64_add(&ret->header, pair.p, pair.n);
    buf_wipe(&pair);
    return true;
}

static void read_refusal(struct twilio *t, int status, int64_t code, struct courier_answer *ret)
{
    const char *sentence = sentence_of(code);

    ret->end = COURIER_REFUSED;
    if (status == 401) {
        sentence = sentence_of(20003);
        twilio_set_problem(t, sentence);
    }
    if (sentence != NULL)
        snprintf(ret->why, sizeof ret->why, "%s", sentence);
    else
        snprintf(ret->why, sizeof ret->why, "Twilio refused this (HTTP %d, code %" PRId64 ")",
                 status, code);
}

static void twilio_read(void *ctx, const struct http_result *res, struct courier_answer *ret)
{
    struct twilio *t = ctx;
    struct json doc = {0};
    int64_t code = 0;

    if (!json_parse(t->parser, res->body, &doc))
        doc = (struct json){0};
    json_as_i64(json_get(doc, "code"), &code);
    if (res->status >= 200 && res->status < 300) {
        ret->end = COURIER_OK;
        snprintf(ret->message_id, sizeof ret->message_id, "%.*s", STR_FMT(json_str(doc, "sid")));
        twilio_set_problem(t, NULL);
    } else if (res->status == 429 || code == 20429) {
        ret->end = COURIER_AGAIN;
        ret->wait_ms = res->retry_after_ms > 0 ? res->retry_after_ms : 0;
        snprintf(ret->why, sizeof ret->why, "Twilio's rate limit asks to wait");
    } else if (res->status == 503) {
        ret->end = COURIER_AGAIN;
        snprintf(ret->why, sizeof ret->why, "Twilio is not available");
    } else if (res->status >= 500) {
        snprintf(ret->why, sizeof ret->why, "Twilio answered with HTTP %d; it may have been sent",
                 res->status);
    } else {
        read_refusal(t, res->status, code, ret);
    }
}

const struct courier_ops twilio_courier = {
    .platform = "twilio",
    .max_part = MAX_CHARS,
    .unit = SPLIT_UTF16, /* the shorter reading of "characters" */
    .write = twilio_write,
    .read = twilio_read,
};
