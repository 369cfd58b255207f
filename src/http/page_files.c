/* page_files.c - files of the chat page: POST /chat[/<bot>]/api/file takes one, GET
 * /chat[/<bot>]/api/file/<id>?k=<key> shows it.
 *
 * Who asks, and whether a file is his to see, the page's platform says (platform.h); who pays
 * for an upload is whoever a message of that visitor would go to.  Pictures, sound and films
 * that cannot do anything are shown in the page, everything else is saved. */
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "core/event.h"
#include "host/host.h"
#include "http/front_priv.h"
#include "http/media_route.h"
#include "media/media.h"

/* "/chat/api/file[/<id>]" or "/chat/<bot>/api/file[/<id>]".  False: another path. */
static bool read_path(struct front *f, struct str path, struct platform **ret_p, struct str *ret_id)
{
    struct str part[6] = {{0}}, rest = path;
    struct buf bot = BUF_INIT;
    size_t n = 0;

    while (n < 6 && str_split(&rest, '/', &part[n]))
        n++;
    size_t api = n > 2 && str_eq(part[2], STR("api")) ? 2 : 3;
    if (rest.p != NULL || n < api + 2 || n > api + 3 || !str_eq(part[1], STR("chat")) ||
        !str_eq(part[api], STR("api")) || !str_eq(part[api + 1], STR("file")))
        return false;
    *ret_id = n == api + 3 ? part[api + 2] : STR_NULL;
    percent_decode(&bot, api == 3 ? part[2] : STR(""));
    *ret_p = host_platform(f->host, STR("web"), bot.n > 0 ? buf_str(&bot) : STR_NULL);
    buf_done(&bot);
    return *ret_p != NULL && (*ret_p)->ops->page_visitor != NULL;
}

/* ---- uploads ---- */

static void first_target(void *ctx, struct str tenant, struct str instance)
{
    struct buf *first = ctx;

    if (first->n == 0)
        buf_add_str(first, tenant);
}

static void find_payer(struct front *f, struct platform *p, struct str chat, struct buf *ret)
{
    const struct event ev = {.platform = str_of(p->ops->name),
                             .bot = str_of(p->bot),
                             .route_key = str_of(p->bot),
                             .chat_id = chat,
                             .chat_type = STR("dm"),
                             .user_id = chat};

    host_each_target(f->host, &ev, first_target, ret);
}

static struct event_media media_of(const struct media_file *file)
{
    return (struct event_media){.id = str_of(file->id),
                                .kind = str_of(media_kind_of_type(str_of(file->type))),
                                .type = str_of(file->type),
                                .name = str_of(file->name),
                                .size = file->size};
}

static void answer_upload(struct front *f, struct http_id id, const struct media_upload *u,
                          const struct media_file *file)
{
    struct platform *p = host_platform(f->host, STR("web"), str_of(u->bot));
    struct event_media m = media_of(file);
    struct buf body = BUF_INIT, key = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (p == NULL) {
        http_answer_error(f->server, id, 404, "not_found", "There is no chat of this name.");
        return;
    }
    p->ops->page_file_key(p, str_of(u->chat), &m, &key);
    jw_obj(&w);
    jw_kstr(&w, "id", m.id);
    jw_kstr(&w, "key", buf_str(&key));
    jw_kstr(&w, "kind", m.kind);
    jw_kstr(&w, "type", m.type);
    jw_kstr(&w, "name", m.name);
    jw_ki64(&w, "size", (int64_t)m.size);
    jw_end_obj(&w);
    front_json(f, id, 200, &body);
    buf_done(&key);
    buf_done(&body);
}

bool page_upload(struct front *f, struct http_req *req)
{
    struct buf chat = BUF_INIT, payer = BUF_INIT, name = BUF_INIT;
    struct platform *p;
    struct str id;

    if (!read_path(f, http_path(req), &p, &id) || id.p != NULL)
        return false;
    if (f->draining) {
        front_retry(f, req, "draining", "This server is going down; come back in a moment.");
    } else if (p->ops->page_visitor(p, req, true, &chat)) {
        find_payer(f, p, buf_str(&chat), &payer);
        percent_decode(&name, http_header(req, "X-File-Name"));
        if (payer.n == 0)
            http_answer_error(f->server, http_req_id(req), 409, "nobody_here",
                              "No agent is attached to this page yet.");
        else
            media_take_upload(f, req,
                              &(struct media_upload){.tenant = buf_z(&payer),
                                                     .name = buf_str(&name),
                                                     .chat = buf_z(&chat),
                                                     .bot = p->bot,
                                                     .answer = answer_upload});
    }
    buf_done(&name);
    buf_done(&payer);
    buf_done(&chat);
    return true;
}

/* ---- downloads ---- */

static bool may_see(struct platform *p, struct http_req *req, struct str chat,
                    const struct media_file *file)
{
    struct buf key = BUF_INIT, shown = BUF_INIT;
    struct event_media m = media_of(file);

    p->ops->page_file_key(p, chat, &m, &key);
    bool good = http_query(req, "k", &shown) && shown.n == key.n && ct_equal(shown.p, key.p, key.n);
    buf_done(&key);
    buf_done(&shown);
    return good;
}

bool page_download(struct front *f, struct http_req *req)
{
    struct buf chat = BUF_INIT;
    struct platform *p;
    struct str id;

    if (!str_eq(http_method(req), STR("GET")) || !read_path(f, http_path(req), &p, &id) ||
        id.p == NULL)
        return false;
    if (p->ops->page_visitor(p, req, false, &chat)) {
        const struct media_file *file = f->media != NULL ? media_find(f->media, id) : NULL;
        if (file != NULL && may_see(p, req, buf_str(&chat), file))
            media_answer(f, req, file, true);
        else
            http_answer_error(f->server, http_req_id(req), 404, "not_found",
                              "There is no such file any more.");
    }
    buf_done(&chat);
    return true;
}
