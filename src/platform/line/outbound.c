/* outbound.c - writes requests to LINE and reads the answers.  (platform/sender.h describes lanes
 * and retries.)
 *
 * A push carries a retry key, made of the number of its record: LINE performs a request with a
 * known key once, and answers 409 to the others.  So a lost answer is asked for again with the same
 * key.
 *
 * LINE takes no files, only public addresses of pictures; other files go out as links. */
#include <inttypes.h>
#include <stdio.h>
#include "base/json.h"
#include "base/jw.h"
#include "net/http_client.h"
#include "platform/line/line_priv.h"

#define KEY_MS (23 * 3600000ll) /* LINE remembers a retry key for a day */
#define PREVIEW_BYTES ((uint64_t)1 << 20)
#define LOADING_S 20

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

static void write_message(struct jw *w, struct outgoing *o)
{
    const struct attachment *file = &text_outgoing_of(o)->file;
    struct str text = text_outgoing_part(o);
    bool first = file->url != NULL && o->at == 0;

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
    }
    jw_end_obj(w);
}

static void line_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                       struct sender_verdict *v)
{
    struct line *l = line_of(p);
    struct jw w = jw_begin(&q->body);
    struct text_outgoing *x = text_outgoing_of(o);

    write_headers(l, "v2/bot/message/push", q);
    write_retry_key(l, o, q);
    jw_obj(&w);
    jw_kstr(&w, "to", str_of(x->chat));
    jw_karr(&w, "messages");
    write_message(&w, o);
    jw_end_arr(&w);
    jw_end_obj(&w);
    v->end = SENDER_GO;
}

static void read_ok(struct line *l, struct json doc, struct sender_verdict *v)
{
    struct json_iter it = {0};

    v->end = SENDER_DONE;
    if (json_next(json_get(doc, "sentMessages"), &it)) {
        struct str id = json_str(it.value, "id");
        if (id.n < sizeof v->message_id)
            snprintf(v->message_id, sizeof v->message_id, "%.*s", (int)id.n, id.n > 0 ? id.p : "");
    }
    platform_set_problem(&l->base, NULL);
}

static void line_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                      struct sender_verdict *v)
{
    struct line *l = line_of(p);
    struct json doc = {0};

    if (!json_parse(p->answers, res->body, &doc))
        doc = (struct json){0};
    struct str message = json_str(doc, "message");
    bool repeated =
        res->status == 409 && http_result_header(res, "X-Line-Accepted-Request-Id").n > 0;
    if (res->status == 200 || repeated) {
        read_ok(l, doc, v);
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

void line_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a)
{
    if (a->op == ACTION_GET_CHAT_INFO && line_is_id(a->chat_id))
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = a->chat_id,
                                            .chat_type =
                                                a->chat_id.p[0] == 'U' ? STR("dm") : STR("group")});
    else
        text_act(p, id, from, a);
}
