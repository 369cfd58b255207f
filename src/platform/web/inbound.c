/* inbound.c - accepts messages, names and presses of visitors, and shows questions with buttons.
 *
 *      POST message --parse--> host_accept() --stored--> kept (history.c) --> 200 {"id"}
 *                                   |          '------- history off ------^
 *                                   '--failed--> 503, the page offers a retry
 *
 *      question   --> a message with its options --> pages
 *      POST press --> prompts_accept() --stored--> 200
 *      answered   --> the message gets the choice --> pages; repeated after a restart
 *
 * For a bot without history this is the hot path.  It allocates nothing: the event is on the stack
 * and the struct web_post comes from a free list.
 */
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/uncleared.h"
#include "platform/prompts.h"
#include "platform/web/web_priv.h"

#define BURST_MILLI 30000       /* burst: 30 messages of a person */
#define REFILL_MILLI_PER_S 3000 /* then three per second */
#define KEEP_TEXT_BYTES 2048

struct web_post {     /* a message until host_accept() calls back */
    struct list link; /* web->posts or the free list */
    struct web *web;  /* borrowed */
    struct accept_id accept;
    struct http_id http;
    uint64_t id;
    int64_t at_ms;
    char chat_id[VISITOR_CHAT_CHARS + 1];
    char client_id[WEB_MAX_CLIENT_ID];
    uint8_t client_n;
    enum web_kind kind;
    bool wanted;            /* the history or an open page needs @text */
    struct buf text, files; /* as pages get them */
};

static struct web_post *post_new(struct web *w)
{
    struct web_post *p;

    if (list_is_empty(&w->free_posts)) {
        p = xcalloc(1, sizeof *p);
        p->web = w;
    } else {
        p = list_first(&w->free_posts, struct web_post, link);
    }
    list_move(&p->link, &w->posts);
    buf_reset(&p->text);
    buf_reset(&p->files);
    return p;
}

static void post_free(struct web_post *p)
{
    list_remove(&p->link);
    buf_done(&p->text);
    buf_done(&p->files);
    free(p);
}

void web_post_answer(struct web *w, struct http_id id, uint64_t message_id)
{
    char body[] = "{\"id\":\"0123456789abcdef\"}";

    web_id_format(message_id, body + 7);
    body[7 + WEB_ID_CHARS] = '"';
    http_answer(w->base.env->server, id,
                &(struct http_answer){.status = 200, .body = str_make(body, sizeof body - 1)});
}

static void web_post_refuse(struct web *w, struct http_id http, enum bh_err err)
{
    w->counters.refused++;
    if (err == BH_BUSY)
        web_refuse_for_now(
            w, http, 503, "busy",
            "There is too much waiting for the agent right now. Try again in a moment.", 2);
    else
        web_refuse_for_now(w, http, 503, bh_err_word(err),
                           "The message could not be kept safely. Try again in a moment.", 2);
}

static void on_post_accepted(void *ctx, enum bh_err err)
{
    struct web_post *p = ctx;
    struct web *w = p->web;

    if (err != BH_OK) {
        web_post_refuse(w, p->http, err);
    } else if (!p->wanted) {
        web_post_answer(w, p->http, p->id);
    } else {
        struct web_message m = {.id = p->id,
                                .text = buf_str(&p->text),
                                .files.text = buf_str(&p->files),
                                .kind = p->kind,
                                .client_id = p->client_n > 0 ? str_make(p->client_id, p->client_n)
                                                             : STR_NULL,
                                .at_ms = p->at_ms};
        web_keep_post(w, str_make(p->chat_id, VISITOR_CHAT_CHARS), &m, p->http);
    }
    if (p->text.cap > KEEP_TEXT_BYTES)
        buf_done(&p->text);
    if (p->files.cap > KEEP_TEXT_BYTES)
        buf_done(&p->files);
    list_remove(&p->link);
    /* At the front: the most recent is in the CPU's cache. */
    list_add_before(w->free_posts.next, &p->link);
}

/* ---- checking bodies ---- */

static bool client_id_is_ok(struct str id)
{
    if (id.p == NULL)
        return true; /* optional */
    if (id.n == 0 || id.n > WEB_MAX_CLIENT_ID)
        return false;
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] <= ' ' || id.p[i] > '~')
            return false;
    return true;
}

static bool name_is_ok(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.p[i] < ' ' || name.p[i] == 0x7f)
            return false;
    return utf8_chars(name) <= WEB_MAX_NAME_CHARS;
}

bool web_may_write_now(struct web *w, struct str chat_id, bool is_person)
{
    struct web_bucket *b;
    uint64_t who;
    int64_t now = clock_now_ms(w->base.env->clock), left;

    if (!is_person)
        return true; /* programs are limited by the mailbox alone */
    if (w->buckets == NULL)
        w->buckets = xcalloc(WEB_BUCKETS, sizeof *w->buckets);
    who = hash64(hash_process_key(), chat_id) | 1;
    b = &w->buckets[(who >> 1) % WEB_BUCKETS];
    /* Visitors cost nothing to make up.  One in the same place is forgotten, not counted with this
     * one: else a crowd of them would keep everybody else from writing. */
    left =
        b->who != who ? BURST_MILLI : b->left_milli + (now - b->at_ms) * REFILL_MILLI_PER_S / 1000;
    if (left > BURST_MILLI)
        left = BURST_MILLI;
    if (left < 1000)
        return false;
    *b = (struct web_bucket){who, now, (int32_t)(left - 1000)};
    return true;
}

/* Control characters are dropped: they mean nothing, and JSON needs six bytes for each. */
static bool is_control(char c)
{
    return ((unsigned char)c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
}

static struct str without_controls(struct web *w, struct str text)
{
    size_t i = 0;

    while ((i += str_until_control(str_skip(text, i))) < text.n && !is_control(text.p[i]))
        i++; /* a tab, or the end of a line */
    if (i == text.n)
        return text;
    buf_reset(&w->clean);
    for (i = 0; i < text.n; i++)
        if (!is_control(text.p[i]))
            buf_add_c(&w->clean, text.p[i]);
    return buf_str(&w->clean);
}

struct post_body {
    struct str text, client_id, name;
    struct event_media files[WEB_MAX_FILES];
    size_t n_files;
};

/* False: the request was answered with an error. */
static bool read_body(struct web *w, struct http_req *req, const struct web_visitor *v,
                      struct post_body *ret)
{
    struct http_server *srv = w->base.env->server;
    struct http_id id = http_req_id(req);
    struct json doc;

    if (!json_parse(w->base.parser, http_body(req), &doc) || !json_is_object(doc)) {
        http_answer_error(srv, id, 400, "bad_json", "The body must be a JSON object.");
        return false;
    }
    ret->text = without_controls(w, json_str(doc, "text"));
    if (ret->text.p == NULL)
        ret->text = STR("");
    ret->client_id = json_str(doc, "client_id");
    ret->name = str_trim(json_str(doc, "name"));
    if (!web_files_read(w, str_of(v->chat_id), json_get(doc, "files"), ret->files, &ret->n_files))
        http_answer_error(srv, id, 400, "bad_files",
                          "\"files\" must be what `file` answered in this chat, at most %d.",
                          WEB_MAX_FILES);
    else if (str_is_empty(str_trim(ret->text)) && ret->n_files == 0)
        http_answer_error(srv, id, 400, "no_text",
                          "\"text\" must be a string with something in it.");
    else if (ret->text.n > WEB_MAX_TEXT_BYTES)
        http_answer_error(srv, id, 413, "text_too_long",
                          "The message is too long: at most %u bytes are taken at once.",
                          WEB_MAX_TEXT_BYTES);
    else if (!client_id_is_ok(ret->client_id))
        http_answer_error(srv, id, 400, "bad_client_id",
                          "\"client_id\" must be 1 to %d visible ASCII characters.",
                          WEB_MAX_CLIENT_ID);
    else if (!name_is_ok(ret->name))
        http_answer_error(srv, id, 400, "bad_name",
                          "\"name\" must be at most %d characters on one line.",
                          WEB_MAX_NAME_CHARS);
    else
        return true;
    return false;
}

static void accept_post(struct web *w, struct http_req *req, const struct web_visitor *v,
                        const struct post_body *b)
{
    struct web_post *p = post_new(w);
    struct str chat = str_make(p->chat_id, VISITOR_CHAT_CHARS);
    BH_UNCLEARED char event_id[VISITOR_CHAT_CHARS + 1 + WEB_MAX_CLIENT_ID];
    char id[WEB_ID_CHARS + 1], made[16];
    struct web_chat *c;

    memcpy(p->chat_id, v->chat_id, sizeof p->chat_id);
    p->http = http_req_id(req);
    p->id = web_next(w);
    p->at_ms = w->base.last_event_ms = clock_wall_ms(w->base.env->clock);
    p->client_n = (uint8_t)b->client_id.n;
    if (b->client_id.n > 0)
        memcpy(p->client_id, b->client_id.p, b->client_id.n);
    p->kind = str_eq(str_trim(b->text), STR("/stop")) ? WEB_STOP : WEB_WORDS;
    c = web_chat_find(w, chat);
    p->wanted = w->history > 0 || (c != NULL && c->n_streams > 0);
    if (p->wanted)
        buf_add_str(&p->text, b->text);
    if (p->wanted && b->n_files > 0)
        web_files_write(w, chat, b->files, b->n_files, &p->files);

    struct event ev = {.platform = STR("web"),
                       .bot = web_bot(w),
                       .route_key = web_bot(w),
                       .text = b->text,
                       .media = b->files,
                       .n_media = b->n_files,
                       .chat_id = chat,
                       .chat_type = STR("dm"),
                       .user_id = chat};
    if (b->n_files > 0)
        ev.message_type = web_file_message_type(b->files[0].kind);
    web_id_format(p->id, id);
    ev.message_id = str_make(id, WEB_ID_CHARS);
    web_name_heard(w, chat);
    ev.user_name = str_is_empty(b->name) ? web_name_of(w, chat, made) : b->name;
    ev.chat_name = ev.user_name;
    if (b->client_id.n >
        0) { /* with the chat id, so that visitors cannot use up each other's ids */
        memcpy(event_id, v->chat_id, VISITOR_CHAT_CHARS);
        event_id[VISITOR_CHAT_CHARS] = ':';
        memcpy(event_id + VISITOR_CHAT_CHARS + 1, b->client_id.p, b->client_id.n);
        ev.event_id = str_make(event_id, VISITOR_CHAT_CHARS + 1 + b->client_id.n);
    }
    p->accept = host_accept(w->base.host, &w->base, &ev, on_post_accepted, p);
}

void web_post_message(struct web *w, struct http_req *req, const struct web_visitor *v)
{
    BH_UNCLEARED struct post_body b;

    b.n_files = 0;
    w->counters.posted++;
    if (!web_may_write_now(w, str_of(v->chat_id), v->is_person)) {
        w->counters.refused++;
        web_refuse_for_now(w, http_req_id(req), 429, "rate_limited",
                           "You are writing faster than this chat can take. Wait a moment.", 1);
        return;
    }
    if (read_body(w, req, v, &b))
        accept_post(w, req, v, &b);
    else
        w->counters.refused++;
}

void web_post_name(struct web *w, struct http_req *req, const struct web_visitor *v)
{
    struct http_server *srv = w->base.env->server;
    struct http_id id = http_req_id(req);
    struct json doc;
    struct str name;
    struct jw out;

    if (!json_parse(w->base.parser, http_body(req), &doc) || json_str(doc, "name").p == NULL) {
        http_answer_error(srv, id, 400, "bad_json", "The body must be {\"name\": \"...\"}.");
        return;
    }
    if (!web_may_write_now(w, str_of(v->chat_id), v->is_person)) {
        web_refuse_for_now(w, id, 429, "rate_limited", "Wait a moment with the next name.", 1);
        return;
    }
    name = str_trim(json_str(doc, "name"));
    if (!name_is_ok(name)) {
        http_answer_error(srv, id, 400, "bad_name",
                          "A name must be at most %d characters on one line.", WEB_MAX_NAME_CHARS);
        return;
    }
    web_name_set(w, str_of(v->chat_id), name);
    buf_reset(&w->scratch);
    out = jw_begin(&w->scratch);
    jw_obj(&out);
    jw_kstr(&out, "name", name);
    jw_end_obj(&out);
    http_answer(srv, id, &(struct http_answer){.status = 200, .body = buf_str(&w->scratch)});
}

/* ---- questions with buttons ---- */

void web_act_prompt(struct web *w, struct action_id id, const struct action_from *from,
                    const struct action *a)
{
    struct web_message m = {.from = WEB_AGENT, .text = a->content};
    BUF_LOCAL prompt = BUF_INIT;
    char name[WEB_ID_CHARS + 1];

    if (prompt_wrong(a) != NULL) {
        host_fail(w->base.host, id, "%s", prompt_wrong(a));
        return;
    }
    m.id = web_next(w);
    const struct prompt *q = prompts_add(w->base.prompts, from, a, a->chat_id);
    struct jw j = jw_begin(&prompt);
    jw_obj(&j);
    jw_kstr(&j, "id", str_of(q->id));
    jw_ki64(&j, "until", q->until_ms);
    jw_karr(&j, "options");
    for (size_t i = 0; i < q->n_options; i++) {
        jw_obj(&j);
        jw_kstr(&j, "id", str_of(q->options[i].id));
        jw_kstr(&j, "label", str_of(q->options[i].label));
        jw_kstr(&j, "style", str_of(prompt_styles[q->options[i].style]));
        jw_end_obj(&j);
    }
    jw_end_arr(&j);
    jw_end_obj(&j);
    m.prompt.text = buf_str(&prompt);
    web_id_format(m.id, name);
    prompts_shown(w->base.prompts, from, a->chat_id, a->prompt_id, str_make(name, WEB_ID_CHARS));
    web_keep_send(w, a->chat_id, &m, id);
}

void web_prompt_over(struct platform *p, struct prompt *q)
{
    if (q->chosen != NULL)
        web_keep_choice(container_of(p, struct web, base), q);
    else
        prompts_tidied(q, 0); /* pages know when a question expires */
}

static void on_press_accepted(struct platform *p, void *with, enum bh_err err)
{
    const struct http_id *http = with;

    if (err == BH_OK)
        http_answer(p->env->server, *http,
                    &(struct http_answer){.status = 200, .body = STR("{\"ok\":true}")});
    else
        web_post_refuse(container_of(p, struct web, base), *http, err);
}

void web_post_press(struct web *w, struct http_req *req, const struct web_visitor *v)
{
    struct http_id id = http_req_id(req);
    const struct prompt_option *o = NULL;
    BUF_LOCAL token = BUF_INIT;
    struct prompt *q = NULL;
    struct json doc;

    if (!json_parse(w->base.parser, http_body(req), &doc) || json_str(doc, "prompt").p == NULL ||
        json_str(doc, "option").p == NULL) {
        http_answer_error(w->base.env->server, id, 400, "bad_json",
                          "The body must be {\"prompt\": \"...\", \"option\": \"...\"}.");
        return;
    }
    if (!web_may_write_now(w, str_of(v->chat_id), v->is_person)) {
        web_refuse_for_now(w, id, 429, "rate_limited",
                           "You are writing faster than this chat can take. Wait a moment.", 1);
        return;
    }
    buf_printf(&token, "hp1:%.*s:%.*s", STR_FMT(json_str(doc, "prompt")),
               STR_FMT(json_str(doc, "option")));
    q = prompts_pressed(w->base.prompts, str_of(v->chat_id), buf_str(&token), &o);
    if (q != NULL) {
        struct str chat = str_make(v->chat_id, VISITOR_CHAT_CHARS);
        char made[16];
        struct event ev = {.platform = STR("web"),
                           .bot = web_bot(w),
                           .route_key = web_bot(w),
                           .chat_id = chat,
                           .chat_type = STR("dm"),
                           .user_id = chat,
                           .message_id = str_of(q->message_id)};
        ev.user_name = ev.chat_name = web_name_of(w, chat, made);
        w->base.last_event_ms = clock_wall_ms(w->base.env->clock);
        if (prompt_may_answer(q, &ev)) {
            await_event(&w->base, &(struct webhook_delivery){.ev = &ev, .prompt = q, .option = o},
                        &id, sizeof id, on_press_accepted);
            return;
        }
        http_answer_error(w->base.env->server, id, 403, "not_yours",
                          "This question is not for you.");
    } else
        http_answer_error(w->base.env->server, id, 409, "answered",
                          "This was answered already, or its time is up.");
}

/* ---- life ---- */

/* The host may still store a post; a retry with the same client_id is then a duplicate. */
void web_inbound_cancel(struct web *w)
{
    list_each (&w->posts, it, next) {
        struct web_post *p = list_entry(it, struct web_post, link);
        host_accept_cancel(w->base.host, p->accept);
        web_post_refuse(w, p->http, BH_BUSY);
        post_free(p);
    }
    list_each (&w->free_posts, it, next)
        post_free(list_entry(it, struct web_post, link));
}
