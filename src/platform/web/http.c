/* http.c - routes requests, checks access, serves the page and its assets, makes keys of files.
 *
 * Against cross-site requests: a browser sends the visitor's cookie even if another site makes the
 * request.  So a POST must be JSON, which a form cannot send, and its Origin, if present, must be
 * this page's.  The page's Content-Security-Policy allows only its own scripts and connections.
 */
#include <stdio.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "platform/web/assets.h"
#include "platform/web/web_priv.h"

#define COOKIE "bellhop_visitor"
#define COOKIE_SECONDS 31536000
#define SECURITY_HEADERS \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; " \
    "img-src 'self' blob:; media-src 'self'; connect-src 'self'; manifest-src 'self'; " \
    "base-uri 'none'; " \
    "form-action 'none'; frame-ancestors 'self'\r\n" \
    "X-Content-Type-Options: nosniff\r\n" \
    "Referrer-Policy: no-referrer\r\n"

static void refuse(struct web *w, struct http_req *req, int status, const char *code,
                   const char *sentence)
{
    http_answer_error(w->base.env->server, http_req_id(req), status, code, "%s", sentence);
}

void web_refuse_for_now(struct web *w, struct http_id id, int status, const char *code,
                        const char *sentence, int retry_s)
{
    char body[256], headers[40];
    int n = snprintf(body, sizeof body, "{\"error\":\"%s\",\"code\":\"%s\"}", sentence, code);

    snprintf(headers, sizeof headers, "Retry-After: %d\r\n", retry_s);
    http_answer(w->base.env->server, id,
                &(struct http_answer){.status = status,
                                      .headers = headers,
                                      .body = str_make(body, (size_t)n)});
}

/* ---- page and assets ---- */

static void add_html(struct buf *out, struct str s)
{
    static const char *const escapes[256] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;"};

    for (size_t i = 0; i < s.n; i++) {
        const char *escape = escapes[(unsigned char)s.p[i]];
        if (escape != NULL)
            buf_add_z(out, escape);
        else
            buf_add_c(out, s.p[i]);
    }
}

static const struct asset *asset_find(struct str name)
{
    for (const struct asset *a = web_assets; a->name != NULL; a++)
        if (str_eq(str_of(a->name), name))
            return a;
    return NULL;
}

/* index.html with {{title}} and {{bot}} filled in. */
void web_page_build(struct web *w)
{
    struct str rest = asset_find(STR("index.html"))->bytes;

    for (ptrdiff_t at; (at = str_find(rest, '{')) >= 0;) {
        buf_add(&w->page, rest.p, (size_t)at);
        rest = str_skip(rest, (size_t)at);
        if (str_starts(rest, STR("{{title}}"))) {
            add_html(&w->page, str_of(w->title));
            rest = str_skip(rest, strlen("{{title}}"));
        } else if (str_starts(rest, STR("{{bot}}"))) {
            add_html(&w->page, web_bot(w));
            rest = str_skip(rest, strlen("{{bot}}"));
        } else {
            buf_add_c(&w->page, '{');
            rest = str_skip(rest, 1);
        }
    }
    buf_add_str(&w->page, rest);
}

static void answer_page(struct web *w, struct http_req *req)
{
    char token[VISITOR_TOKEN_CHARS + 1], headers[1024];
    struct str had;

    if (http_cookie(req, COOKIE, &had) && visitor_token_is_ok(had) &&
        had.n == VISITOR_TOKEN_CHARS) {
        memcpy(token, had.p, had.n); /* sent again to renew the cookie for a year */
        token[had.n] = '\0';
    } else {
        visitor_mint(w->base.env->rand, token);
    }
    snprintf(headers, sizeof headers,
             SECURITY_HEADERS "Cache-Control: no-store\r\n"
                              "Set-Cookie: " COOKIE
                              "=%s; Path=/chat; Max-Age=%d; HttpOnly; SameSite=Lax%s\r\n",
             token, COOKIE_SECONDS, w->secure_cookies || http_is_tls(req) ? "; Secure" : "");
    http_answer(w->base.env->server, http_req_id(req),
                &(struct http_answer){.status = 200,
                                      .content_type = "text/html; charset=utf-8",
                                      .headers = headers,
                                      .body = buf_str(&w->page)});
}

static void answer_asset(struct web *w, struct http_req *req, struct str name)
{
    const struct asset *a = asset_find(name);
    struct str known = http_header(req, "If-None-Match");
    char headers[1024];
    struct http_answer answer = {.status = 200, .headers = headers};

    if (a == NULL || a->bytes.p == asset_find(STR("index.html"))->bytes.p) {
        refuse(w, req, 404, "not_found", "There is no such file.");
        return;
    }
    snprintf(headers, sizeof headers, SECURITY_HEADERS "ETag: %s\r\nCache-Control: no-cache\r\n",
             a->etag);
    answer.content_type = a->type;
    if (known.p != NULL && str_contains(known, str_of(a->etag)))
        answer.status = 304;
    else
        answer.body = a->bytes;
    http_answer(w->base.env->server, http_req_id(req), &answer);
}

/* ---- access ---- */

static bool find_visitor(const struct web *w, const struct http_req *req, struct web_visitor *ret)
{
    struct str token = http_header(req, "X-Bellhop-Visitor");

    ret->is_person = token.p == NULL;
    if (ret->is_person && !http_cookie(req, COOKIE, &token))
        return false;
    if (!visitor_token_is_ok(token))
        return false;
    visitor_chat_id(&w->visitor_key, token, ret->chat_id);
    return true;
}

static void refuse_stranger(struct web *w, struct http_req *req)
{
    refuse(w, req, 401, "no_visitor",
           "Open the chat page first (it sets a cookie), or send X-Bellhop-Visitor with 16 to 64 "
           "letters, digits, '-' or '_' of your own.");
}

bool web_page_visitor(struct platform *p, struct http_req *req, bool writes, struct buf *ret_chat)
{
    struct web *w = container_of(p, struct web, base);
    struct web_visitor v;

    if (writes && !http_same_origin(req, w->base.env->public_url))
        refuse(w, req, 403, "foreign_origin", "This page does not take files from other sites.");
    else if (!find_visitor(w, req, &v))
        refuse_stranger(w, req);
    else if (writes && !web_may_write_now(w, str_of(v.chat_id), v.is_person))
        web_refuse_for_now(w, http_req_id(req), 429, "rate_limited",
                           "You are sending faster than this chat can take. Wait a moment.", 1);
    else {
        buf_add_z(ret_chat, v.chat_id);
        return true;
    }
    return false;
}

/* ---- files ----
 *
 * A page uploads a file, gets its description, and names the file in a message.  A message of the
 * agent names its file the same way.  A description contains a key, and only with the key a visitor
 * may read or name the file.  The key is a keyed hash of the chat and of the description, so
 * nothing has to be stored. */

void web_file_key(struct platform *p, struct str chat, const struct event_media *m, struct buf *out)
{
    struct web *w = container_of(p, struct web, base);
    const struct str parts[] = {STR("file"), chat, m->id, m->type, m->name};
    BUF_LOCAL what = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_add_u64(&what, parts[i].n); /* lengths make the parts unambiguous */
        buf_add_c(&what, ':');
        buf_add_str(&what, parts[i]);
    }
    buf_add_u64(&what, m->size);
    struct hash128 h = hash128(&w->visitor_key, buf_str(&what));
    buf_printf(out, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

static bool key_is_good(struct web *w, struct str chat, const struct event_media *m, struct str key)
{
    BUF_LOCAL want = BUF_INIT;

    web_file_key(&w->base, chat, m, &want);
    return key.n == want.n && ct_equal(key.p, want.p, key.n);
}

bool web_files_read(struct web *w, struct str chat, struct json list, struct event_media *ret,
                    size_t *ret_n)
{
    size_t n = 0;

    if (json_count(list) > WEB_MAX_FILES)
        return false;
    for (struct json_iter it = {0}; json_next(list, &it); n++) {
        struct event_media *m = &ret[n];
        *m = (struct event_media){.id = json_str(it.value, "id"),
                                  .type = json_str(it.value, "type"),
                                  .name = json_str(it.value, "name"),
                                  .kind = json_str(it.value, "kind")};
        if (!json_as_u64(json_get(it.value, "size"), &m->size) || m->id.n == 0 ||
            !key_is_good(w, chat, m, json_str(it.value, "key")))
            return false;
    }
    *ret_n = n;
    return true;
}

void web_files_write(struct web *w, struct str chat, const struct event_media *m, size_t n,
                     struct buf *out)
{
    struct jw j = jw_begin(out);
    BUF_LOCAL key = BUF_INIT;

    jw_arr(&j);
    for (size_t i = 0; i < n; i++) {
        buf_reset(&key);
        web_file_key(&w->base, chat, &m[i], &key);
        jw_obj(&j);
        jw_kstr(&j, "id", m[i].id);
        jw_kstr(&j, "key", buf_str(&key));
        jw_kstr(&j, "kind", m[i].kind);
        jw_kstr(&j, "type", m[i].type);
        jw_kstr(&j, "name", m[i].name.p != NULL ? m[i].name : STR(""));
        jw_ki64(&j, "size", (int64_t)m[i].size);
        jw_end_obj(&j);
    }
    jw_end_arr(&j);
}

struct str web_file_message_type(struct str kind)
{
    if (str_eq(kind, STR("image")))
        return STR("photo");
    static const char *const same[] = {"voice", "audio", "video"};
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        if (str_eq(kind, str_of(same[i])))
            return str_of(same[i]);
    return STR("document");
}

/* ---- routes ---- */

static const struct {
    struct str method, name;
    void (*serve)(struct web *w, struct http_req *req, const struct web_visitor *v);
} calls[] = {
    {{"POST", 4}, {"message", 7}, web_post_message},  {{"GET", 3}, {"events", 6}, web_stream_open},
    {{"GET", 3}, {"history", 7}, web_history_answer}, {{"POST", 4}, {"name", 4}, web_post_name},
    {{"POST", 4}, {"press", 5}, web_post_press},
};

static void serve_api(struct web *w, struct http_req *req, struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (str_eq(calls[i].name, name)) {
            struct web_visitor v;
            bool is_post = calls[i].method.n == 4;
            if (!str_eq(http_method(req), calls[i].method))
                refuse(w, req, 405, "method_not_allowed",
                       is_post ? "Use POST here." : "Use GET here.");
            else if (is_post && !http_is_json(req))
                refuse(w, req, 415, "json_only", "Send it with Content-Type: application/json.");
            else if (is_post && !http_same_origin(req, w->base.env->public_url))
                refuse(w, req, 403, "foreign_origin",
                       "This page does not take messages from other sites.");
            else if (!find_visitor(w, req, &v))
                refuse_stranger(w, req);
            else
                calls[i].serve(w, req, &v);
            return;
        }
    refuse(w, req, 404, "not_found",
           "There is no such call: message, events, history, name, press, file.");
}

/* /chat, /chat/, /chat/assets/<name>, /chat/api/<call>, /chat/<bot>[/], /chat/<bot>/api/<call> */
bool web_http(struct platform *p, struct http_req *req)
{
    struct web *w = container_of(p, struct web, base), *bot;
    struct str rest = str_skip(http_path(req), strlen("/chat")), part = STR_NULL;
    bool is_get = str_eq(http_method(req), STR("GET"));

    rest = str_skip(rest, rest.n > 0 ? 1 : 0);
    str_split(&rest, '/', &part);
    if (str_eq(part, STR("api"))) {
        serve_api(web_sibling(STR_NULL), req, rest);
        return true;
    }
    if (str_eq(part, STR("assets")) && is_get) {
        answer_asset(w, req, rest);
        return true;
    }
    bot = web_sibling(str_is_empty(part) ? STR_NULL : part);
    if (bot == NULL)
        refuse(w, req, 404, "not_found", "There is no chat of this name.");
    else if (str_starts(rest, STR("api/")))
        serve_api(bot, req, str_skip(rest, strlen("api/")));
    else if (!str_is_empty(rest))
        refuse(w, req, 404, "not_found", "There is no such page.");
    else if (!is_get)
        refuse(w, req, 405, "method_not_allowed", "Use GET here.");
    else
        answer_page(bot, req);
    return true;
}
