/* webhook.c - callbacks of WeCom.  (wecom_priv.h has the calls.)
 *
 * GET proves to WeCom that we hold the key: the echo comes back decrypted.  POST brings a message;
 * it is answered empty once the event is safe, and WeCom repeats what was not answered within five
 * seconds - the same MsgId, so it is one delivery.  Everything that is wrong before the message is
 * known to be WeCom's is the same 401: an attacker who sends ciphertexts learns nothing from it. */
#include "platform/wecom/wecom_priv.h"

enum { DEADLINE_MS = 4500, WINDOW_MS = 600000 };

static const struct http_answer empty = {.status = 200,
                                         .content_type = "text/plain; charset=utf-8"};

struct envelope { /* owned */
    struct buf signature, timestamp, nonce;
};

static bool is_now(const struct wecom *c, struct str timestamp)
{
    uint64_t seconds;

    if (timestamp.n > 12 || !str_to_u64(timestamp, &seconds))
        return false;
    int64_t off_ms = (int64_t)seconds * 1000 - clock_wall_ms(c->bot.env->clock);
    return off_ms <= WINDOW_MS && off_ms >= -WINDOW_MS;
}

/* True: @encrypted is WeCom's, and its message is in @out. */
static bool open_envelope(struct wecom *c, struct http_req *req, struct str encrypted,
                          struct buf *out)
{
    struct envelope e = {BUF_INIT, BUF_INIT, BUF_INIT};
    bool ok = http_query(req, "msg_signature", &e.signature) &&
              http_query(req, "timestamp", &e.timestamp) && http_query(req, "nonce", &e.nonce) &&
              is_now(c, buf_str(&e.timestamp)) &&
              wecom_signature_ok(str_of(c->cfg->token), buf_str(&e.timestamp), buf_str(&e.nonce),
                                 encrypted, buf_str(&e.signature)) &&
              wecom_decrypt(c->key, str_of(c->cfg->corp_id), encrypted, out);

    buf_done(&e.signature);
    buf_done(&e.timestamp);
    buf_done(&e.nonce);
    return ok;
}

static bool echo(struct wecom *c, struct http_req *req)
{
    struct buf sent = BUF_INIT, plain = BUF_INIT;
    bool ok = http_query(req, "echostr", &sent) && open_envelope(c, req, buf_str(&sent), &plain);

    if (ok)
        http_answer(c->bot.env->server, http_req_id(req),
                    &(struct http_answer){.status = 200,
                                          .content_type = "text/plain; charset=utf-8",
                                          .body = buf_str(&plain)});
    buf_done(&sent);
    buf_done(&plain);
    return ok;
}

static void take(struct wecom *c, struct http_req *req, struct str message)
{
    struct event *ev = &c->out.ev;
    enum wecom_verdict v = wecom_xml_parse(c->inner, message)
                               ? wecom_normalize(c->inner, str_of(c->bot.base.bot), &c->out)
                               : WECOM_MALFORMED;

    if (v == WECOM_MALFORMED) {
        await_refuse(&c->bot.awaits, http_req_id(req), BH_MALFORMED);
    } else if (v == WECOM_IGNORED) {
        c->bot.n.ignored++;
        http_answer(c->bot.env->server, http_req_id(req), &empty);
    } else {
        c->bot.n.events++;
        ev->route_key = ev->chat_id;
        if (!webhook_bot_answers(&c->bot, ev, http_req_id(req), &empty, DEADLINE_MS))
            await_accept(&c->bot.awaits, ev, http_req_id(req), &empty, DEADLINE_MS);
    }
}

static bool message(struct wecom *c, struct http_req *req)
{
    struct buf text = BUF_INIT;
    bool ok = wecom_xml_parse(c->xml, http_body(req)) &&
              open_envelope(c, req, wecom_xml_get(c->xml, "Encrypt"), &text);

    if (ok)
        take(c, req, buf_str(&text));
    buf_done(&text);
    return ok;
}

bool wecom_http(struct platform *p, struct http_req *req)
{
    struct wecom *c = wecom_of(p);
    bool ok = str_eq(http_method(req), STR("GET"))    ? echo(c, req)
              : str_eq(http_method(req), STR("POST")) ? message(c, req)
                                                      : false;

    if (!ok)
        c->bot.n.refused++;
    return ok;
}
