/* outbound.c - writes requests to LINE and reads the answers.  (platform/sender.h describes lanes
 * and retries.)
 *
 * A push carries a retry key, made of the number of its record: LINE performs a request with a
 * known key once, and answers 409 to the others.  So a lost answer is asked for again with the same
 * key.
 *
 * LINE takes no files, only public addresses of pictures; other files go out as links.  Typing is
 * LINE's loading animation, which private chats have; a message ends it. */
#include <inttypes.h>
#include <stdio.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "platform/line/line_priv.h"

#define KEY_MS (23 * 3600000ll) /* LINE remembers a retry key for a day */
#define PREVIEW_BYTES ((uint64_t)1 << 20)
#define LOADING_S 20           /* a multiple of five */
#define LOADING_AGAIN_MS 10000 /* it is not asked for again earlier */

static bool is_picture(const struct attachment *a)
{
    struct str type = str_of(a->type);

    return a->size <= PREVIEW_BYTES &&
           (str_eq(type, STR("image/png")) || str_eq(type, STR("image/jpeg")));
}

const char *line_no_file(struct platform *p, const struct attachment *a)
{
    return a->url == NULL ? "LINE fetches files itself: bellhop needs `public_url` for that" : NULL;
}

static void write_headers(struct line *l, const char *path, struct sender_request *q)
{
    buf_printf(&q->url, "%s/%s", l->base.api_base, path);
    q->headers[0] = buf_z(&l->auth);
    q->headers[1] = "Content-Type: application/json";
}

/* A UUID that stays the same for this part of this record. */
static void write_retry_key(struct line *l, struct outgoing *o, struct sender_request *q)
{
    uint64_t key = sender_key(o);

    buf_reset(&l->retry_key);
    buf_printf(&l->retry_key, "X-Line-Retry-Key: %08x-%04x-%04x-8000-%012zx", (unsigned)(key >> 32),
               (unsigned)(key >> 16) & 0xffff, (unsigned)key & 0xffff, o->at);
    q->headers[2] = buf_z(&l->retry_key);
}

static void write_message(struct line *l, struct jw *w, struct outgoing *o)
{
    const struct text_outgoing *x = text_outgoing_of(o);
    const struct attachment *file = &x->file;
    struct str text = text_outgoing_part(o);
    bool first = file->url != NULL && o->at == 0;
    const struct line_quote *quoted =
        x->reply_to != NULL && o->at == 0 ? lru_find(&l->quotes, str_of(x->reply_to)) : NULL;

    jw_obj(w);
    if (first && is_picture(file)) {
        jw_kstr(w, "type", STR("image"));
        jw_kstr(w, "originalContentUrl", str_of(file->url));
        jw_kstr(w, "previewImageUrl", str_of(file->url));
    } else {
        if (first)
            text = str_of(file->url);
        jw_kstr(w, "type", STR("text"));
        jw_kstr(w, "text", text);
        if (quoted != NULL)
            jw_kstr(w, "quoteToken", str_of(quoted->token));
    }
    jw_end_obj(w);
}

/* A request of the adapter's own, which shows that somebody types. */
static bool is_typing(const struct text_outgoing *x)
{
    return x->parts.n == 0 && x->file.url == NULL;
}

static void write_loading(struct line *l, const struct text_outgoing *x, struct sender_request *q)
{
    struct jw w = jw_begin(&q->body);

    write_headers(l, "v2/bot/chat/loading/start", q);
    jw_obj(&w);
    jw_kstr(&w, "chatId", str_of(x->chat));
    jw_ki64(&w, "loadingSeconds", LOADING_S);
    jw_end_obj(&w);
}

static void line_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                       struct sender_verdict *v)
{
    struct line *l = line_of(p);
    struct jw w = jw_begin(&q->body);
    const struct text_outgoing *x = text_outgoing_of(o);

    v->end = SENDER_GO;
    if (is_typing(x)) {
        write_loading(l, x, q);
        return;
    }
    write_headers(l, "v2/bot/message/push", q);
    write_retry_key(l, o, q);
    jw_obj(&w);
    jw_kstr(&w, "to", str_of(x->chat));
    jw_karr(&w, "messages");
    write_message(l, &w, o);
    jw_end_arr(&w);
    jw_end_obj(&w);
}

static void read_ok(struct line *l, const struct text_outgoing *x, struct json doc,
                    struct sender_verdict *v)
{
    struct line_chat *c = lru_find(&l->chats, str_of(x->chat));
    struct json_iter it = {0};

    v->end = SENDER_DONE;
    if (c != NULL)
        c->typed_ms = 0;
    if (json_next(json_get(doc, "sentMessages"), &it)) {
        struct str id = json_str(it.value, "id");
        line_quote_keep(l, id, json_str(it.value, "quoteToken"));
        if (id.n < sizeof v->message_id)
            snprintf(v->message_id, sizeof v->message_id, "%.*s", (int)id.n, id.n > 0 ? id.p : "");
    }
    platform_set_problem(&l->base, NULL);
}

static void line_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                      struct sender_verdict *v)
{
    struct line *l = line_of(p);
    const struct text_outgoing *x = text_outgoing_of(o);
    struct json doc = {0};

    if (is_typing(x)) { /* one that failed would be late the next time */
        v->end = res->status == 202 ? SENDER_DONE : SENDER_FAILED;
        return;
    }
    if (!json_parse(p->answers, res->body, &doc))
        doc = (struct json){0};
    struct str message = json_str(doc, "message");
    bool repeated =
        res->status == 409 && http_result_header(res, "X-Line-Accepted-Request-Id").n > 0;
    if (res->status == 200 || repeated) {
        read_ok(l, x, doc, v);
    } else if (res->status == 429 && str_contains(message, STR("monthly"))) {
        sender_say(v, SENDER_REFUSED, "the month's push messages of this LINE account are used up");
    } else if (res->status == 429) {
        sender_say(v, SENDER_AGAIN, "LINE's rate limit asks to wait");
    } else if (res->status >= 500) {
        snprintf(v->why, sizeof v->why, "LINE answered with HTTP %d; it may have been sent",
                 res->status);
    } else {
        sender_say(v, SENDER_REFUSED, "LINE refused this (HTTP %d)", res->status);
        if (res->status == 401)
            platform_set_problem(p, "LINE refuses the channel access token: put the current "
                                    "`token` into bellhop's config");
    }
}

const struct sender_ops line_sender = {
    .write = line_write,
    .read = line_read,
    .free = text_outgoing_free,
    .key_ms = KEY_MS,
};

/* LINE has no request that ends the animation, and shows it to one person only. */
static void show_typing(struct line *l, const struct action *a)
{
    int64_t now_ms = clock_now_ms(l->base.env->clock);
    char lane[64];

    if (a->chat_id.p[0] != 'U' || (a->content_set && a->content.n == 0))
        return;
    struct line_chat *c = lru_use(&l->chats, a->chat_id, sizeof *c);
    if (c->typed_ms != 0 && now_ms - c->typed_ms < LOADING_AGAIN_MS)
        return;
    c->typed_ms = now_ms;
    struct text_outgoing *x = xcalloc(1, sizeof *x + a->chat_id.n + 1);
    memcpy(x->chat, a->chat_id.p, a->chat_id.n);
    x->out.n_parts = 1;
    snprintf(lane, sizeof lane, "loading %s", x->chat); /* no message waits behind it */
    sender_ask(l->base.sender, &x->out,
               &(struct sender_question){.lane = str_of(lane), .patience_ms = 5000});
}

void line_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a)
{
    if (a->op == ACTION_GET_CHAT_INFO && line_is_id(a->chat_id))
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = a->chat_id,
                                            .chat_type =
                                                a->chat_id.p[0] == 'U' ? STR("dm") : STR("group")});
    else if (a->op == ACTION_TYPING && line_is_id(a->chat_id)) {
        show_typing(line_of(p), a);
        host_result(p->host, id, &(struct action_result){.success = true});
    } else
        text_act(p, id, from, a);
}
