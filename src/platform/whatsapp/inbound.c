/* inbound.c - receives Meta's webhooks.  (whatsapp_priv.h has the calls.)
 *
 *      GET  --the verify token?--> the challenge
 *      POST --signed?--no--> false: all such requests get the same answer
 *             |-- statuses, new ids of people --> outbound.c, people.c
 *             '-- messages --> normalize --> host_accept() --all are safe--> 200
 *
 * A webhook may carry many messages, of many people, for several numbers of the app: Meta has one
 * address for all of them.  The messages of one person are accepted one after the other; when one
 * cannot be taken now, those behind it wait, and the webhook gets a 503.  Meta then sends the whole
 * webhook again, for up to seven days, and the host drops what it has had.
 *
 *      one message:  WAITING --its turn--> ACCEPTING --accepted--> done: the next of its chat
 *                                              '------busy-------> failed, with all of its chat */
#include <inttypes.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_server.h"
#include "platform/whatsapp/whatsapp_priv.h"

#define GOOD ((struct http_answer){.status = 200, .body = STR("")})

struct wa_batch { /* the messages of one webhook that has more than one */
    struct list link;
    struct whatsapp *w; /* borrowed; the bot whose address was called */
    struct arena arena; /* of the copies */
    struct batch_item *items;
    size_t n, open; /* @open: not done and not failed */
    struct http_id http;
    struct timer late;
    bool answered, failed;
};

struct batch_item {
    struct wa_batch *batch;  /* borrowed */
    struct whatsapp *to;     /* borrowed; the bot that it is for */
    struct batch_item *next; /* of the same chat; NULL: none */
    struct event ev;
    struct str press;
    struct accept_id accept;
    bool accepting;
};

/* ---- one message ---- */

static struct webhook_delivery delivery_of(struct whatsapp *w, const struct event *ev,
                                           struct str press)
{
    struct webhook_delivery x = {.ev = ev};

    if (!ev->edit.set)
        x.prompt = prompts_answered(w->base.prompts, ev, press, &x.option);
    w->n.presses += x.prompt != NULL;
    return x;
}

/* ---- many messages ---- */

static void batch_free(struct wa_batch *b)
{
    timer_stop(b->w->base.env->clock, &b->late);
    list_remove(&b->link);
    arena_done(&b->arena);
    free(b->items);
    free(b);
}

void wa_batches_cancel(struct whatsapp *w)
{
    list_each (&w->batches, it, nxt) {
        struct wa_batch *b = list_entry(it, struct wa_batch, link);
        for (size_t i = 0; i < b->n; i++)
            if (b->items[i].accepting)
                host_accept_cancel(w->base.host, b->items[i].accept);
        batch_free(b);
    }
}

static void batch_answer(struct wa_batch *b)
{
    if (!b->answered && b->failed)
        await_refuse(&b->w->base, b->http, BH_UNAVAILABLE);
    else if (!b->answered)
        http_answer(b->w->base.env->server, b->http, &GOOD);
    b->answered = true;
}

static void on_late(struct timer *t)
{
    struct wa_batch *b = container_of(t, struct wa_batch, late);

    b->w->base.awaits.late++;
    b->failed = true;
    batch_answer(b);
}

static void on_item(void *ctx, enum bh_err err);

static void submit(struct batch_item *i)
{
    struct webhook_delivery x = delivery_of(i->to, &i->ev, i->press);

    i->accepting = true;
    i->accept = webhook_delivery_accept(&i->to->base, &x, on_item, i);
}

static void on_item(void *ctx, enum bh_err err)
{
    struct batch_item *i = ctx;
    struct wa_batch *b = i->batch;

    i->accepting = false;
    b->open--;
    if (err == BH_BUSY || err == BH_UNAVAILABLE) {
        b->failed = true;
        for (struct batch_item *n = i->next; n != NULL; n = n->next)
            b->open--;
    } else {
        if (err != BH_OK)
            log_warn(&i->to->base.log, "dropped a message: %s", bh_err_word(err));
        if (i->next != NULL)
            submit(i->next);
    }
    if (b->open > 0)
        return;
    batch_answer(b);
    batch_free(b);
}

/* ---- the items of a webhook ---- */

/* The bot that serves @number_id: one of the same app, so that its secret signed the webhook. */
static struct whatsapp *bot_of(struct whatsapp *w, struct str number_id)
{
    if (str_eq(platform_id(&w->base), number_id))
        return w;
    for (size_t i = 0; i < host_n_platforms(w->base.host); i++) {
        struct platform *p = host_nth_platform(w->base.host, i);
        if (p->ops != &whatsapp_ops || !str_eq(platform_id(p), number_id))
            continue;
        struct whatsapp *o = whatsapp_of(p);
        bool same_host =
            p->hook_host == NULL || str_eq(str_of(p->hook_host), str_of(w->base.hook_host));
        if (same_host && strlen(o->cfg->app_secret) == strlen(w->cfg->app_secret) &&
            ct_equal(o->cfg->app_secret, w->cfg->app_secret, strlen(w->cfg->app_secret)))
            return o;
    }
    return NULL;
}

/* Reads one message into w->out.  True: there is an event to accept, of the bot *@ret_to. */
static bool take_message(struct whatsapp *w, const struct wa_item *it, struct whatsapp **ret_to)
{
    struct whatsapp *to = bot_of(w, it->number_id);
    struct wa_out *out = &w->out;

    *ret_to = to;
    if (to == NULL) {
        w->n.other_numbers++;
        return false;
    }
    const struct wa_in in = {.bot = str_of(to->base.bot), .reactions = to->cfg->base.reactions};
    enum wa_verdict v = wa_normalize(it, &in, &w->arena, out);
    if (v == WA_MALFORMED) {
        to->base.n.malformed++;
        log_warn(&to->base.log, "a message is not as Meta documents it, and is dropped");
        return false;
    }
    if (out->moved.n > 0)
        wa_person_moved(to, out->ev.chat_id, out->moved);
    if (v == WA_EVENT && !out->ev.edit.set) /* a message to a group opens no window */
        wa_person_heard(to, out);
    if (v != WA_EVENT) {
        to->base.n.ignored++;
        log_debug(&to->base.log, "message ignored: %s", out->why);
        if (v == WA_REFUSED)
            host_refused(to->base.host, &out->ev, out->why);
        return false;
    }
    struct str before = wa_person_before(to, out->ev.chat_id);
    if (before.n > 0)
        out->ev.former_key = before;
    return true;
}

static void take_other(struct whatsapp *w, const struct wa_item *it)
{
    struct whatsapp *to = it->number_id.n > 0 ? bot_of(w, it->number_id) : w;
    struct wa_status s;
    struct wa_new_id m;

    if (to == NULL) {
        w->n.other_numbers++;
    } else if (it->kind == WA_STATUS && wa_read_status(it->thing, &s)) {
        to->n.statuses++;
        wa_told(to, &s);
    } else if (it->kind == WA_NEW_ID && wa_read_new_id(it->thing, &m)) {
        wa_person_moved(to, m.from, m.to);
    } else {
        to->base.n.ignored++;
        if (it->kind == WA_ERROR)
            log_warn(&to->base.log, "Meta reports an error: code=%" PRId64,
                     json_i64(it->thing, "code", 0));
    }
}

/* Copies the event in w->out to the end of @b; @chats has the last item of each chat. */
static void batch_add(struct wa_batch *b, struct whatsapp *to, struct map *chats)
{
    struct batch_item *i = &b->items[b->n++], *before;
    BUF_LOCAL key = BUF_INIT;

    *i = (struct batch_item){.batch = b, .to = to};
    event_copy(&b->w->out.ev, &b->arena, &i->ev);
    i->press = arena_str(&b->arena, b->w->out.press);
    buf_printf(&key, "%s %.*s", to->base.bot, STR_FMT(i->ev.chat_id));
    before = map_put(chats, arena_str(&b->arena, buf_str(&key)), i);
    if (before != NULL)
        before->next = i;
    else
        i->accepting = true; /* it begins */
    b->open++;
}

static void take_batch(struct whatsapp *w, struct json body, struct http_id http, size_t n)
{
    struct wa_batch *b = xcalloc(1, sizeof *b);
    struct map chats = MAP_INIT;
    struct whatsapp *to;
    struct wa_item it;

    *b = (struct wa_batch){.w = w, .http = http};
    b->items = xcalloc(n, sizeof *b->items);
    list_append(&w->batches, &b->link);
    timer_init(&b->late, on_late);
    for (struct wa_walk walk = {.body = body}; wa_next(&walk, &it);) {
        if (it.kind != WA_MESSAGE)
            continue;
        arena_reset(&w->arena);
        if (b->n < n && take_message(w, &it, &to))
            batch_add(b, to, &chats);
    }
    map_done(&chats);
    if (b->open == 0) {
        batch_answer(b);
        batch_free(b);
        return;
    }
    timer_set(w->base.env->clock, &b->late, WA_DEADLINE_MS);
    size_t total = b->n; /* on_item() never runs inside submit() */
    for (size_t i = 0; i < total; i++)
        if (b->items[i].accepting)
            submit(&b->items[i]);
}

static void take_webhook(struct whatsapp *w, struct json body, struct http_id http)
{
    struct wa_item it, message;
    struct whatsapp *to;
    size_t n = 0;

    for (struct wa_walk walk = {.body = body}; wa_next(&walk, &it);)
        if (it.kind != WA_MESSAGE)
            take_other(w, &it);
        else if (n++ == 0)
            message = it;
    arena_reset(&w->arena);
    if (n > 1) {
        take_batch(w, body, http, n);
    } else if (n == 1 && take_message(w, &message, &to)) {
        struct webhook_delivery x = delivery_of(to, &w->out.ev, w->out.press);
        await_accept(&to->base, &x, http, &GOOD, WA_DEADLINE_MS);
    } else {
        http_answer(w->base.env->server, http, &GOOD);
    }
}

/* ---- requests ---- */

static bool challenge(struct whatsapp *w, struct http_req *req)
{
    BUF_LOCAL mode = BUF_INIT, token = BUF_INIT, text = BUF_INIT;
    bool ok = http_query(req, "hub.mode", &mode) && http_query(req, "hub.verify_token", &token) &&
              http_query(req, "hub.challenge", &text) && str_eq(buf_str(&mode), STR("subscribe")) &&
              webhook_shows(buf_str(&token), w->cfg->verify_token) && text.n <= 1024;

    if (ok)
        http_answer(w->base.env->server, http_req_id(req),
                    &(struct http_answer){.status = 200,
                                          .content_type = "text/plain; charset=utf-8",
                                          .body = buf_str(&text)});
    return ok;
}

static bool webhook(struct whatsapp *w, struct http_req *req)
{
    struct str text = http_body(req);
    struct json body;

    if (!wa_signature_ok(str_of(w->cfg->app_secret), http_header(req, "X-Hub-Signature-256"), text))
        return false;
    if (!json_parse(w->base.parser, text, &body) || !json_is_object(body)) {
        w->base.n.malformed++;
        await_refuse(&w->base, http_req_id(req), BH_MALFORMED);
    } else if (!wa_is_webhook(body)) { /* of another product of the same app */
        w->base.n.ignored++;
        http_answer(w->base.env->server, http_req_id(req), &GOOD);
    } else {
        take_webhook(w, body, http_req_id(req));
    }
    return true;
}

bool wa_http(struct platform *p, struct http_req *req)
{
    struct whatsapp *w = whatsapp_of(p);
    bool ok = str_eq(http_method(req), STR("GET"))    ? challenge(w, req)
              : str_eq(http_method(req), STR("POST")) ? webhook(w, req)
                                                      : false;

    w->base.n.refused += !ok;
    return ok;
}
