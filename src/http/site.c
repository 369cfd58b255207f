/* site.c - paths that belong to platforms.  Strangers pass the door (edge/door.h) first. */
#include "base/clock.h"
#include "base/percent.h"
#include "edge/door.h"
#include "host/host.h"
#include "http/front_priv.h"
#include "http/media_route.h"
#include "net/loop.h"

/* False: it does not prove that it is meant for @p. */
static bool hand_over(struct front *f, struct http_req *req, struct platform *p)
{
    if (f->draining) /* the platforms close one after the other, and a 404 would be believed */
        front_retry(f, req, "draining", "This server is going down; come back in a moment.");
    else if (p != NULL && p->ops->http != NULL)
        return p->ops->http(p, req);
    else
        http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is nothing here.");
    return true;
}

void site_chat(struct front *f, struct http_req *req)
{
    if (!page_download(f, req))
        hand_over(f, req, host_platform(f->host, STR("web"), STR_NULL));
}

/* The platform of that name, if it takes webhooks at all. */
static const struct platform_ops *takes_webhooks(struct str name)
{
    const struct platform_ops *ops = platform_find(name);

    return ops != NULL && ops->http != NULL && !str_eq(name, STR("web")) ? ops : NULL;
}

static int64_t now_ms(struct front *f)
{
    return clock_now_ms(loop_clock(f->loop));
}

static void turn_away(struct front *f, struct http_req *req)
{
    http_answer(f->server, http_req_id(req),
                &(struct http_answer){.status = 429,
                                      .headers = "Retry-After: 1\r\n",
                                      .body = STR("{\"error\":\"Too many requests: come back in a "
                                                  "moment.\",\"code\":\"too_many_requests\"}")});
}

/* The one answer to a webhook that does not prove it is meant for a bot of ours, whatever about it
 * is wrong: a stranger learns nothing from it, not even which bots there are. */
static void refuse(struct front *f, struct http_req *req)
{
    http_answer_error(f->server, http_req_id(req), 401, "unauthorized",
                      "This request is not signed for a bot here.");
}

static void knock(struct front *f, struct http_req *req, const struct platform_ops *ops,
                  struct str bot)
{
    struct door_source from = door_source(f->door, http_peer(req));
    struct platform *p = NULL;
    bool looks_right =
        ops->plausible == NULL || ops->plausible(req, clock_wall_ms(loop_clock(f->loop)));

    if (ops->plausible != NULL && looks_right && !door_admit(f->door, from, now_ms(f))) {
        turn_away(f, req); /* also when there is no such bot */
        return;
    }
    if (bot.n > 0 && looks_right)
        p = host_platform(f->host, str_of(ops->name), bot);
    if (p != NULL && hand_over(f, req, p)) {
        if (!f->draining)
            door_proved(f->door, from, now_ms(f));
    } else {
        door_refused(f->door, from, now_ms(f));
        refuse(f, req);
    }
}

/* /webhooks/<platform>/<bot>[/...] */
void site_webhook(struct front *f, struct http_req *req)
{
    struct str rest = http_path(req), part[4] = {{0}};
    const struct platform_ops *ops;
    struct buf bot = BUF_INIT;

    for (size_t i = 0; i < 4 && str_split(&rest, '/', &part[i]); i++)
        ;
    percent_decode(&bot, part[3]);
    ops = takes_webhooks(part[2]);
    if (ops == NULL)
        hand_over(f, req, NULL);
    else
        knock(f, req, ops, buf_str(&bot));
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
