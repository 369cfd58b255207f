/* webhook.c - updates that Telegram brings itself.
 *
 * Telegram shows the secret we registered in a header of every request; without it nothing is read.
 * The answer is 200 only when the event is safe, so Telegram repeats what we could not take.  It
 * brings updates of one chat one after the other, so order needs no care here. */
#include "base/crypto.h"
#include "net/http_server.h"
#include "platform/telegram/telegram_priv.h"

static bool shows_secret(const struct telegram *t, struct http_req *req)
{
    struct str shown = http_header(req, "X-Telegram-Bot-Api-Secret-Token");
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];

    if (t->secret == NULL)
        return false; /* this bot polls */
    sha256(shown, a); /* hashes have one length, so the comparison tells nothing about it */
    sha256(str_of(t->secret), b);
    return ct_equal(a, b, sizeof a);
}

static struct http_id http_of(uint64_t tag)
{
    return (struct http_id){.index = (uint32_t)(tag >> 32), .generation = (uint32_t)tag};
}

static void on_taken(struct telegram *t, uint64_t tag, enum bh_err err)
{
    if (err == BH_OK)
        http_answer(t->env->server, http_of(tag),
                    &(struct http_answer){.status = 200, .body = STR("{}")});
    else
        http_answer_error(t->env->server, http_of(tag), 503, bh_err_word(err),
                          "Not now: send it again later.");
}

bool tg_webhook(struct platform *p, struct http_req *req)
{
    struct telegram *t = container_of(p, struct telegram, base);
    struct http_id id = http_req_id(req);
    struct json update;

    if (!shows_secret(t, req))
        return false;
    if (!str_eq(http_method(req), STR("POST"))) {
        http_answer_error(t->env->server, id, 405, "method_not_allowed", "Updates are POSTed.");
        return true;
    }
    if (!json_parse(t->answers, http_body(req), &update) || !json_is_object(update)) {
        http_answer_error(t->env->server, id, 400, "malformed", "An update is a JSON object.");
        return true;
    }
    uint64_t tag = (uint64_t)id.index << 32 | id.generation;
    if (!tg_take(t, update, on_taken, tag))
        on_taken(t, tag, BH_OK);
    return true;
}
