/* site.c - paths that belong to platforms, and the front door. */
#include "http/front_priv.h"
#include "host/host.h"

static void hand_over(struct front *f, struct http_req *req, struct platform *p)
{
    if (f->draining) /* the platforms close one after the other, and a 404 would be believed */
        front_retry(f, req, "draining", "This server is going down; come back in a moment.");
    else if (p != NULL && p->ops->http != NULL)
        p->ops->http(p, req);
    else
        http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is nothing here.");
}

void site_chat(struct front *f, struct http_req *req)
{
    hand_over(f, req, host_platform(f->host, STR("web"), STR_NULL));
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

static void percent_decode(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        int hi = s.p[i] == '%' && i + 2 < s.n ? hex_digit(s.p[i + 1]) : -1;
        int lo = hi >= 0 ? hex_digit(s.p[i + 2]) : -1;
        if (lo >= 0) {
            buf_add_c(out, (char)(hi << 4 | lo));
            i += 2;
        } else {
            buf_add_c(out, s.p[i]);
        }
    }
}

/* Does this platform take webhooks at all? */
static bool takes_webhooks(struct str name)
{
    const struct platform_ops *ops = platform_find(name);

    return ops != NULL && ops->http != NULL && !str_eq(name, STR("web"));
}

/* /webhooks/<platform>/<bot>[/...] */
void site_webhook(struct front *f, struct http_req *req)
{
    struct str rest = http_path(req), part[4] = {{0}};
    struct platform *p = NULL;
    struct buf bot = BUF_INIT, name = BUF_INIT;

    for (size_t i = 0; i < 4 && str_split(&rest, '/', &part[i]); i++)
        ;
    percent_decode(part[3], &bot);
    buf_printf(&name, "%.*s/%.*s", STR_FMT(part[2]), STR_FMT(buf_str(&bot)));
    if (takes_webhooks(part[2]) && !host_admit_webhook(f->host, req, buf_str(&name)))
        goto out;
    if (bot.n > 0 && takes_webhooks(part[2]))
        p = host_platform(f->host, part[2], buf_str(&bot));
    if (p == NULL && takes_webhooks(part[2]))
        host_refuse_webhook(f->host, req);
    else
        hand_over(f, req, p);
out:
    buf_done(&name);
    buf_done(&bot);
}

void site_root(struct front *f, struct http_req *req)
{
    struct http_answer a = {.status = 302, .headers = "Location: /chat\r\n"};

    if (host_platform(f->host, STR("web"), STR_NULL) == NULL)
        a = (struct http_answer){
            .status = 200,
            .content_type = "text/html; charset=utf-8",
            .body = STR(
                "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>bellhop</title>"
                "<body><h1>bellhop</h1><p>A connector between chat platforms and agents. "
                "Gateways dial <code>/relay</code>; the chat page is off, because no web "
                "platform is configured.</p></body></html>")};
    http_answer(f->server, http_req_id(req), &a);
}
