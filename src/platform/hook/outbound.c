/* outbound.c - turns actions into requests, as the templates of the configuration say, and reads
 * the answers.  (platform/sender.h describes lanes and retries.)
 *
 * A request is made of the URL, the headers and the body; the signature covers them and comes last.
 * Only a service that was given `{key}` can recognize a repeated request.  Without it a request
 * whose answer is lost ends as unknown. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/http_client.h"
#include "platform/hook/hook_priv.h"
#include "platform/hook/pointer.h"
#include "platform/hook/sign.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/split.h"

enum { RANDOM_BYTES = 32, MAX_PAUSE_MS = 60000 };

struct hook_outgoing {
    struct outgoing out;         /* first */
    struct split parts;          /* owned */
    struct str chat, thread, to; /* as the service has them; in @room */
    char room[];
};

static struct hook_outgoing *hook_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct hook_outgoing, out);
}

static void outgoing_free(struct outgoing *o)
{
    struct hook_outgoing *x = hook_outgoing_of(o);

    split_done(&x->parts);
    free(x);
}

/* ---- requests ---- */

struct own_values { /* the values that are made for one request */
    char random[2 * RANDOM_BYTES + 1], now[24], key[48];
};

static void make_values(struct hook *h, struct hook_outgoing *x, struct own_values *own,
                        struct template_values *ret)
{
    BUF_LOCAL hex = BUF_INIT;
    uint8_t bytes[RANDOM_BYTES];

    rand_bytes(h->base.env->rand, bytes, sizeof bytes);
    hex_add(&hex, bytes, sizeof bytes);
    memcpy(own->random, buf_z(&hex), sizeof own->random);
    snprintf(own->now, sizeof own->now, "%" PRId64, clock_wall_ms(h->base.env->clock) / 1000);
    snprintf(own->key, sizeof own->key, "%016" PRIx64 "-%zu", sender_key(&x->out), x->out.at);
    *ret = (struct template_values){0};
    ret->of[TEMPLATE_TEXT] = split_part(&x->parts, x->out.at);
    ret->of[TEMPLATE_CHAT_ID] = x->chat;
    ret->of[TEMPLATE_THREAD_ID] = x->thread;
    ret->of[TEMPLATE_REPLY_TO] = x->out.at == 0 ? x->to : STR("");
    ret->of[TEMPLATE_KEY] = str_of(own->key);
    ret->of[TEMPLATE_RANDOM] = str_of(own->random);
    ret->of[TEMPLATE_TIMESTAMP] = str_of(own->now);
    ret->of[TEMPLATE_SECRET] = str_of(h->cfg->send.secret);
}

struct header_lines { /* the headers of a request, each ended by NUL */
    struct buf *text;
    size_t at[SENDER_MAX_HEADERS];
    size_t n;
};

static struct str line_at(const struct header_lines *l, size_t i)
{
    return str_of(l->text->p + l->at[i]);
}

/* Looks up "{header:Name}" of what is signed. */
static struct str own_header(const void *ctx, const char *name)
{
    const struct header_lines *l = ctx;

    for (size_t i = 0; i < l->n; i++) {
        struct str value = line_at(l, i), is;
        str_split(&value, ':', &is);
        if (str_eq_ci(is, str_of(name)))
            return str_skip(value, 1); /* the blank after the colon */
    }
    return STR_NULL;
}

/* Begins a header; its value is appended to @l->text, and end_line() ends it. */
static void begin_line(struct header_lines *l, struct str name)
{
    l->at[l->n++] = l->text->n;
    buf_printf(l->text, "%.*s: ", STR_FMT(name));
}

static void end_line(struct header_lines *l)
{
    buf_add_c(l->text, '\0');
}

static bool write_headers(struct hook *h, const struct template_values *v, struct header_lines *l)
{
    const struct hook_sign *s = &h->cfg->send.sign;

    for (struct json_iter it = {0}; json_next(h->headers, &it);) {
        begin_line(l, it.key);
        if (!template_header(json_as_str(it.value), v, l->text))
            return false;
        end_line(l);
    }
    if (s->timestamp_header != NULL) {
        begin_line(l, str_of(s->timestamp_header));
        buf_add_str(l->text, v->of[TEMPLATE_TIMESTAMP]);
        end_line(l);
    }
    if (own_header(l, "Content-Type").p == NULL) {
        begin_line(l, STR("Content-Type"));
        buf_add_z(l->text, "application/json");
        end_line(l);
    }
    return true;
}

static bool write_signature(struct hook *h, struct template_values *v, struct header_lines *l)
{
    const struct hook_sign *s = &h->cfg->send.sign;
    BUF_LOCAL value = BUF_INIT;

    if (s->header == NULL)
        return true;
    v->header = own_header;
    v->ctx = l;
    if (!hook_signature(s, buf_str(&h->sign_key), v, &value))
        return false;
    begin_line(l, str_of(s->header));
    buf_add_str(l->text, buf_str(&value));
    end_line(l);
    return true;
}

static int64_t hook_wait(struct platform *p, struct outgoing *o)
{
    struct hook *h = hook_of(p);

    return h->pace != NULL ? pace_wait_ms(h->pace, hook_outgoing_of(o)->chat, false, PACE_SEND) : 0;
}

static void hook_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                       struct sender_verdict *v)
{
    struct hook *h = hook_of(p);
    struct own_values own;
    struct template_values values;
    struct header_lines lines = {.text = &h->lines};

    make_values(h, hook_outgoing_of(o), &own, &values);
    buf_reset(&h->lines);
    if (!template_url(str_of(h->cfg->send.url), &values, &q->url) ||
        !template_json(h->body, &values, &q->body) || !write_headers(h, &values, &lines)) {
        sender_say(
            v, SENDER_REFUSED,
            "an id of this chat or message cannot stand in the request that bellhop's config "
            "describes");
        return;
    }
    values.of[TEMPLATE_BODY] = buf_str(&q->body);
    if (!write_signature(h, &values, &lines)) {
        sender_say(v, SENDER_REFUSED, "the request cannot be signed");
        return;
    }
    for (size_t i = 0; i < lines.n; i++)
        q->headers[i] = line_at(&lines, i).p;
    q->once = !h->keyed;
    q->public_only = !h->cfg->send.allow_private;
    if (h->pace != NULL)
        pace_count(h->pace, hook_outgoing_of(o)->chat, false, PACE_SEND);
    v->end = SENDER_GO;
}

/* ---- answers ---- */

static void read_message_id(struct hook *h, struct str answer, struct sender_verdict *v)
{
    BUF_LOCAL id = BUF_INIT;
    struct pointer_in in = {.inner = h->inner};

    if (h->cfg->send.message_id == NULL || !json_parse(h->base.answers, answer, &in.doc))
        return;
    if (pointer_text(&in, str_of(h->cfg->send.message_id), &id) && id.n < sizeof v->message_id &&
        str_until_control(buf_str(&id)) == id.n)
        memcpy(v->message_id, buf_z(&id), id.n + 1);
}

static void hook_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                      struct sender_verdict *v)
{
    struct hook *h = hook_of(p);
    int64_t wait_ms = res->retry_after_ms < MAX_PAUSE_MS ? res->retry_after_ms : MAX_PAUSE_MS;

    if (res->status >= 200 && res->status < 300) {
        v->end = SENDER_DONE;
        read_message_id(h, res->body, v);
        platform_set_problem(p, NULL);
    } else if (res->status == 429 || res->status == 503) {
        v->wait_ms = res->retry_after_ms;
        if (wait_ms > 0) /* the limit is rarely that of one chat */
            sender_pause(p->sender, wait_ms);
        sender_say(v, SENDER_AGAIN, "the service asks to wait (HTTP %d)", res->status);
    } else if (res->status >= 500) {
        snprintf(v->why, sizeof v->why, "the service answered with HTTP %d; it may have been sent",
                 res->status);
    } else {
        sender_say(v, SENDER_REFUSED, "the service refused this (HTTP %d)", res->status);
        if (res->status == 401 || res->status == 403)
            platform_set_problem(p, "the service refuses the credentials of `send`: check its "
                                    "secrets in bellhop's config");
    }
}

const struct sender_ops hook_sender = {
    .write = hook_write,
    .read = hook_read,
    .free = outgoing_free,
    .wait = hook_wait,
};

/* ---- actions ---- */

/* The id of the chat at the service; absent: it is no chat of this bot. */
static struct str chat_of(const struct platform *p, struct str chat_id)
{
    struct str bot = str_of(p->bot);

    return str_starts(chat_id, bot) && chat_id.n > bot.n + 1 && chat_id.p[bot.n] == '/'
               ? str_skip(chat_id, bot.n + 1)
               : STR_NULL;
}

static void send_text(struct hook *h, struct action_id id, const struct action_from *from,
                      const struct action *a, struct str chat)
{
    struct hook_outgoing *x = xcalloc(1, sizeof *x + chat.n + a->thread_id.n + a->reply_to.n + 1);
    char *at = x->room;

    x->chat = str_pack(&at, chat);
    x->thread = str_pack(&at, a->thread_id);
    x->to = str_pack(&at, a->reply_to);
    split_text(&x->parts, a->content, h->cfg->send.max_length, SPLIT_UTF16);
    x->out.n_parts = x->parts.n;
    sender_act(h->base.sender, &x->out,
               &(struct sender_order){.id = id,
                                      .from = from,
                                      .action = a,
                                      .twice = h->keyed ? TWICE_IS_ONE : TWICE_IS_TWO});
}

void hook_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a)
{
    struct hook *h = hook_of(p);
    struct str chat = chat_of(p, a->chat_id);
    struct action numbered = *a;
    BUF_LOCAL room = BUF_INIT;

    if (chat.p == NULL)
        host_fail(p->host, id, "chat_id is not a chat of this bot");
    else if (a->op == ACTION_SEND)
        send_text(h, id, from, a, chat);
    else if (a->op == ACTION_PROMPT) {
        if (prompts_add_numbered(p, id, from, &numbered, &room))
            send_text(h, id, from, &numbered, chat);
    } else if (a->op == ACTION_GET_CHAT_INFO)
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = chat,
                                            .chat_type =
                                                h->cfg->chat_type == 1 ? STR("dm") : STR("group")});
    else
        host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
}
