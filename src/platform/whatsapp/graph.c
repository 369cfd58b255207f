/* graph.c - answers of Meta's Graph API.  (whatsapp_priv.h has the contract.)
 *
 *      {"messaging_product": "whatsapp", "contacts": [...], "messages": [{"id": "wamid..."}]}
 *      {"error": {"message", "type", "code", "error_data": {"details"}, "fbtrace_id"}}
 *
 * The code decides, not the HTTP status, which Meta has changed for the same code.  A message that
 * Meta took can still fail: then a status tells so, with a code of the same table.  Gateways resend
 * after some words (sender_is_loaded()): no sentence has them. */
#include <inttypes.h>
#include <stdio.h>
#include "platform/whatsapp/whatsapp_priv.h"

enum wa_means {
    REFUSED,
    BROKEN,   /* refused, and the operator has to do something */
    NOT_DONE, /* a retry may work soon */
};

static const struct {
    int64_t code;
    enum wa_means means;
    const char *sentence;
} codes[] = {
    {0, BROKEN, "Meta refuses the access token: put a valid one into `token`"},
    {3, BROKEN, "the access token lacks whatsapp_business_messaging: make one that has it"},
    {10, BROKEN, "the access token lacks whatsapp_business_messaging: make one that has it"},
    {WA_CODE_NO_NUMBER, BROKEN, "Meta knows no phone number with this id: check `bot`"},
    {190, BROKEN, "the access token has expired or was revoked: put a valid one into `token`"},
    {131005, BROKEN, "the access token may not use this number: check its assets"},
    {131031, BROKEN, "Meta has locked the WhatsApp Business account: see WhatsApp Manager"},
    {131042, BROKEN, "Meta could not bill the WhatsApp Business account: see its payment method"},
    {131045, BROKEN, "the phone number is not registered with the Cloud API: register it"},
    {133010, BROKEN, "the phone number is not registered with the Cloud API: register it"},
    {368, BROKEN, "Meta has blocked the number for a breach of its policies: see WhatsApp Manager"},
    {4, NOT_DONE, "Meta's rate limit of the app asks to wait"},
    {80007, NOT_DONE, "Meta's rate limit of the WhatsApp Business account asks to wait"},
    {130429, NOT_DONE, "Meta's rate limit of the number asks to wait"},
    {131056, NOT_DONE, "WhatsApp takes about one message in six seconds for one person"},
    {2, NOT_DONE, "the Graph API is not available"},
    {131000, NOT_DONE, "Meta had an error of its own"},
    {131016, NOT_DONE, "a service of WhatsApp is not available"},
    {131057, NOT_DONE, "the WhatsApp Business account is in maintenance"},
    {133004, NOT_DONE, "Meta's server is not available"},
    {130472, REFUSED, "Meta holds this message back for an experiment of its own"},
    {130497, REFUSED, "the number may not write to people in this country"},
    {131008, REFUSED, "Meta misses a value in the request"},
    {131009, REFUSED, "Meta does not take a value of the request"},
    {131021, REFUSED, "the number cannot write to itself"},
    {131026, REFUSED,
     "WhatsApp could not deliver this: the person may have no WhatsApp, an old version of it, or "
     "has not taken its new terms"},
    {131030, REFUSED, "a test number writes only to the people in its list of recipients"},
    {131037, REFUSED, "the number's display name is not approved yet: see WhatsApp Manager"},
    {131047, REFUSED, "more than 24 hours have passed since the person's last message"},
    {131048, REFUSED, "Meta limits the number because people blocked or reported it"},
    {131049, REFUSED, "Meta did not deliver this, to keep people's chats free of marketing"},
    {131050, REFUSED, "the person wants no marketing messages of this number"},
    {131051, REFUSED, "WhatsApp does not know this type of message"},
    {131052, REFUSED, "Meta could not fetch the file"},
    {131053, REFUSED, "Meta does not take this file: see its types and sizes"},
    {132000, REFUSED, "the template has another number of parameters: it must have one text"},
    {132001, REFUSED, "there is no approved template of this name and language"},
    {132005, REFUSED, "the text is too long for the template"},
    {132007, REFUSED, "the template's text breaks WhatsApp's policies"},
    {132012, REFUSED, "the template's parameter is not a text"},
    {132015, REFUSED, "the template is paused: people did not like it"},
    {132016, REFUSED, "the template is disabled: people did not like it"},
    {0, REFUSED, NULL},
};

static const char *find(int64_t code, enum wa_means *ret)
{
    for (size_t i = 0; codes[i].sentence != NULL; i++)
        if (codes[i].code == code) {
            *ret = codes[i].means;
            return codes[i].sentence;
        }
    if (code >= 200 && code < 300) { /* permissions */
        *ret = BROKEN;
        return codes[1].sentence;
    }
    return NULL;
}

const char *wa_code_sentence(int64_t code)
{
    enum wa_means means;

    return code != 0 ? find(code, &means) : NULL;
}

static void explain(struct whatsapp *w, struct json error, struct sender_verdict *v)
{
    enum wa_means means = REFUSED;
    const char *sentence = find(v->code, &means);
    int64_t sub = json_i64(error, "error_subcode", 0);

    if (v->code == 100 &&
        sub == WA_CODE_NO_NUMBER) /* an object that does not exist, or may not be seen */
        sentence = find(WA_CODE_NO_NUMBER, &means);
    if (sentence == NULL && v->status >= 500) {
        snprintf(v->why, sizeof v->why,
                 "Meta had an error of its own (HTTP %d, code %" PRId64 "); it may have been sent",
                 v->status, v->code);
        return;
    }
    v->end = means == NOT_DONE ? SENDER_AGAIN : SENDER_REFUSED;
    if (sentence != NULL)
        snprintf(v->why, sizeof v->why, "%s", sentence);
    else
        snprintf(v->why, sizeof v->why, "Meta refused this (code %" PRId64 ")", v->code);
    if (means == BROKEN)
        platform_set_problem(&w->base, v->why);
    w->n.limited += means == NOT_DONE && v->status != 503;
}

void wa_answer_read(struct whatsapp *w, const struct http_result *r, struct sender_verdict *v)
{
    struct json doc, error = {0};
    bool is_json = json_parse(w->base.answers, r->body, &doc) && json_is_object(doc);

    if (is_json)
        error = json_get(doc, "error");
    if (r->status >= 200 && r->status < 300 && is_json && !json_is_object(error)) {
        v->answer = doc;
        v->end = SENDER_DONE;
    } else if (json_is_object(error)) {
        v->code = json_i64(error, "code", -1);
        explain(w, error, v);
    } else if (r->status == 429 || r->status == 503) {
        sender_say(v, SENDER_AGAIN, "Meta asks to wait (HTTP %d)", r->status);
    } else if (r->status >= 400 && r->status < 500) {
        sender_say(v, SENDER_REFUSED, "Meta refused this (HTTP %d)", r->status);
    } else {
        sender_say(v, SENDER_UNKNOWN,
                   "something else answered in Meta's place (HTTP %d); it may have been sent",
                   r->status);
    }
}
