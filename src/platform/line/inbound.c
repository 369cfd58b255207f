/* inbound.c - receives LINE's webhooks.  (inbound.h has the pure parts, line_priv.h the calls.)
 *
 *      webhook --> signed, and for this bot? --> its events, one after the other --> 200
 *
 * A webhook carries several events, of several chats.  The next event is accepted once the
 * one before it is safe, so the order of each chat holds.  When one cannot be taken now the later
 * ones of its chat are not tried, and the webhook gets a 503.  LINE sends it again if redelivery is
 * switched on, and the host drops what it has had.  The events of other chats are taken: one full
 * mailbox must not lose them where redelivery is off. */
#include "platform/line/inbound.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/line/line_priv.h"
#include "platform/prompts.h"

/* ---- signatures ---- */

bool line_signature_ok(struct str channel_secret, struct str body, struct str signature)
{
    BUF_LOCAL want = BUF_INIT;
    uint8_t mac[SHA256_BYTES];

    hmac_sha256(channel_secret, body, mac);
    base64_add(&want, mac, sizeof mac);
    return signature.n == want.n && ct_equal(signature.p, want.p, want.n);
}

/* ---- normalizing ---- */

bool line_is_id(struct str id)
{
    if (id.n != LINE_ID_CHARS || (id.p[0] != 'U' && id.p[0] != 'C' && id.p[0] != 'R'))
        return false;
    for (size_t i = 1; i < id.n; i++)
        if (hex_value(id.p[i]) < 0)
            return false;
    return true;
}

static bool is_message_id(struct str id)
{
    return id.n > 0 && id.n <= 64 && str_has_only(id, "-_");
}

static bool set_source(struct json source, struct event *ev)
{
    struct str type = json_str(source, "type"), user = json_str(source, "userId");
    bool dm = str_eq(type, STR("user"));

    ev->chat_id = dm                           ? user
                  : str_eq(type, STR("group")) ? json_str(source, "groupId")
                                               : json_str(source, "roomId");
    ev->chat_type = dm ? STR("dm") : STR("group");
    ev->mentions_bot = dm;
    ev->user_id = ev->user_name = line_is_id(user) ? user : STR_NULL;
    ev->route_key = ev->chat_id;
    ev->chat_name = ev->chat_id;
    return line_is_id(ev->chat_id);
}

static bool names_bot(struct json message)
{
    struct json all = json_get(json_get(message, "mention"), "mentionees");

    for (struct json_iter it = {0}; json_next(all, &it);)
        if (json_as_bool(json_get(it.value, "isSelf"), false))
            return true;
    return false;
}

/* A place and a sticker have no text, so words stand for them. */
static bool set_text(struct json m, struct str type, struct line_out *out)
{
    double lat, lon;
    struct str address = json_str(m, "address");

    buf_reset(&out->text);
    if (str_eq(type, STR("text"))) {
        buf_add_str(&out->text, json_str(m, "text"));
    } else if (str_eq(type, STR("sticker"))) {
        buf_add_z(&out->text, "[sticker]");
    } else if (str_eq(type, STR("location")) && json_as_f64(json_get(m, "latitude"), &lat) &&
               json_as_f64(json_get(m, "longitude"), &lon)) {
        buf_printf(&out->text, "[location: %.6f, %.6f%s%.*s]", lat, lon, address.n > 0 ? "; " : "",
                   (int)address.n, address.n > 0 ? address.p : "");
    }
    out->ev.text = buf_str(&out->text);
    return out->text.n > 0;
}

static bool set_media(struct json m, struct str type, struct line_out *out)
{
    static const char *const kinds[][2] = {{"image", "photo"},
                                           {"video", "video"},
                                           {"audio", "audio"},
                                           {"file", "document"}};
    struct str provider_url = json_str(json_get(m, "contentProvider"), "originalContentUrl");
    uint64_t size = 0;

    json_as_u64(json_get(m, "fileSize"), &size);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!str_eq(type, str_of(kinds[i][0])))
            continue;
        out->media[0] = (struct event_media){.ref = json_str(m, "id"),
                                             .kind = i == 3 ? STR("document") : type,
                                             .name = json_str(m, "fileName"),
                                             .size = size};
        if (provider_url.n > 0 && event_media_is_safe(provider_url)) {
            out->media[0].ref = STR_NULL;
            out->media[0].url = provider_url;
        }
        out->ev.n_media = 1;
        out->ev.message_type = str_of(kinds[i][1]);
        return true;
    }
    return false;
}

static enum webhook_verdict take_unsend(struct json item, struct line_out *out)
{
    struct str id = json_str(json_get(item, "unsend"), "messageId");

    if (!set_source(json_get(item, "source"), &out->ev) || !is_message_id(id))
        return WEBHOOK_MALFORMED;
    buf_reset(&out->text);
    buf_printf(&out->text, "unsend %.*s", STR_FMT(id));
    out->ev.event_id = buf_str(&out->text);
    out->ev.message_id = id;
    out->ev.text = STR("");
    out->ev.edit.set = out->ev.edit.deletes = out->ev.edit.silent = true;
    return WEBHOOK_EVENT;
}

enum webhook_verdict line_normalize(struct json item, struct str bot, struct line_out *out)
{
    struct json m = json_get(item, "message");
    struct str type = json_str(m, "type"), id = json_str(m, "id");
    struct event *ev = &out->ev;

    *ev = (struct event){.platform = STR("line"), .bot = bot, .media = out->media};
    out->quote = STR_NULL;
    if (str_eq(json_str(item, "type"), STR("unsend")))
        return take_unsend(item, out);
    if (!str_eq(json_str(item, "type"), STR("message")) ||
        str_eq(json_str(item, "mode"), STR("standby"))) /* another system answers this chat */
        return WEBHOOK_IGNORED;
    if (!set_source(json_get(item, "source"), ev) || !is_message_id(id))
        return WEBHOOK_MALFORMED;
    ev->event_id = ev->message_id = id;
    ev->mentions_bot |= names_bot(m);
    out->quote = json_str(m, "quoteToken");
    ev->reply_to_message_id = json_str(m, "quotedMessageId");
    if (!is_message_id(ev->reply_to_message_id))
        ev->reply_to_message_id = STR_NULL;
    ev->reply_to.set = ev->reply_to_message_id.p != NULL;
    bool says = set_text(m, type, out), shows = set_media(m, type, out);
    return says || shows ? WEBHOOK_EVENT : WEBHOOK_IGNORED;
}

void line_out_done(struct line_out *out)
{
    buf_done(&out->text);
}

/* ---- webhooks ---- */

void line_quote_keep(struct line *l, struct str message, struct str token)
{
    if (message.n == 0 || token.n == 0 || token.n > LINE_QUOTE_MAX)
        return;
    struct line_quote *q = lru_use(&l->quotes, message, sizeof *q);
    free(q->token);
    q->token = str_dup(token);
}

struct line_batch { /* the events of one webhook */
    struct list link;
    struct arena arena;
    struct event *events; /* in @arena */
    size_t n, at;
    bool left[LINE_MAX_EVENTS]; /* not taken: it comes again */
    enum bh_err err;            /* of the first that is left; BH_OK: none */
    struct http_id http;
};

static void batch_free(struct line_batch *b)
{
    list_remove(&b->link);
    arena_done(&b->arena);
    free(b);
}

void line_batches_cancel(struct line *l)
{
    list_each (&l->batches, it, nxt)
        batch_free(list_entry(it, struct line_batch, link));
}

static awaited_cb on_safe;

/* An earlier event of its chat is left. */
static bool waits_for_another(const struct line_batch *b, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (b->left[i] && str_eq(b->events[i].chat_id, b->events[at].chat_id))
            return true;
    return false;
}

/* Accepts the next event, or answers the webhook. */
static void go_on(struct platform *p, struct line_batch *b)
{
    static const struct http_answer good = {.status = 200, .body = {"", 0}};

    while (b->at < b->n && waits_for_another(b, b->at))
        b->left[b->at++] = true;
    if (b->at == b->n) {
        if (b->err == BH_OK)
            http_answer(p->env->server, b->http, &good);
        else
            await_refuse(p, b->http, b->err);
        batch_free(b);
        return;
    }
    struct webhook_delivery x = {.ev = &b->events[b->at++]};
    if (!x.ev->edit.set)
        x.prompt = prompts_answered(p->prompts, x.ev, STR_NULL, &x.option);
    await_event(p, &x, &b, sizeof b, on_safe);
}

static void on_safe(struct platform *p, void *with, enum bh_err err)
{
    struct line_batch *b;

    memcpy(&b, with, sizeof b);
    if (err == BH_BUSY || err == BH_UNAVAILABLE) {
        b->left[b->at - 1] = true;
        b->err = b->err == BH_OK ? err : b->err;
    } else if (err != BH_OK) {
        log_warn(&p->log, "dropped a message: %s", bh_err_word(err));
    }
    go_on(p, b);
}

/* Copies what the agents are to hear, in order. */
static void read_events(struct line *l, struct json events, struct line_batch *b)
{
    size_t most = json_count(events);

    if (most > LINE_MAX_EVENTS) {
        log_warn(&l->base.log, "dropped the last %zu events of a webhook, which had %zu",
                 most - LINE_MAX_EVENTS, most);
        most = LINE_MAX_EVENTS;
    }
    b->events = arena_alloc(&b->arena, (most + 1) * sizeof *b->events);
    for (struct json_iter it = {0}; b->n < most && json_next(events, &it);) {
        enum webhook_verdict v = line_normalize(it.value, str_of(l->base.bot), &l->out);
        l->base.n.ignored += v == WEBHOOK_IGNORED;
        l->base.n.malformed += v == WEBHOOK_MALFORMED;
        if (v != WEBHOOK_EVENT)
            continue;
        line_quote_keep(l, l->out.ev.message_id, l->out.quote);
        event_copy(&l->out.ev, &b->arena, &b->events[b->n++]);
    }
}

bool line_http(struct platform *p, struct http_req *req)
{
    struct line *l = line_of(p);
    struct str body = http_body(req);
    struct json doc;

    if (!str_eq(http_method(req), STR("POST")) ||
        !line_signature_ok(str_of(l->cfg->channel_secret), body,
                           http_header(req, "X-Line-Signature"))) {
        p->n.refused++;
        return false;
    }
    if (!json_parse(p->parser, body, &doc) ||
        !str_eq(json_str(doc, "destination"), platform_id(p))) {
        p->n.malformed++;
        await_refuse(p, http_req_id(req), BH_MALFORMED);
        return true;
    }
    struct line_batch *b = xcalloc(1, sizeof *b);
    b->http = http_req_id(req);
    list_append(&l->batches, &b->link);
    read_events(l, json_get(doc, "events"), b);
    go_on(p, b);
    return true;
}
