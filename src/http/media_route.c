/* media_route.c - POST /relay/media and GET /relay/media/<id>: files, for gateways.
 *
 *      head -> authenticate -> media_begin() -> pieces, no faster than the disk -> {"id", "size"}
 *
 * Uploads have a size limit of their own and are never in memory as a whole.  A download needs the
 * gateway's bearer, or a URL that we signed.  A file of another tenant answers 404. */
#include "http/media_route.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "core/event.h"
#include "host/host.h"
#include "http/front_priv.h"
#include "media/media.h"
#include "media/media_write.h"
#include "tenancy/facts.h"

/* Headers that keep a browser from running a file: it can only be shown or saved. */
#define FILE_HEADERS \
    "X-Content-Type-Options: nosniff\r\n" \
    "Content-Security-Policy: sandbox; default-src 'none'\r\n" \
    "Cross-Origin-Resource-Policy: same-origin\r\n" \
    "Referrer-Policy: no-referrer\r\n" \
    "Cache-Control: private, max-age=3600, immutable\r\n"

static const struct gateway *authenticate(struct front *f, struct http_req *req)
{
    const struct gateway *gw = NULL;
    const char *why = "";

    if (facts_authenticate(f->facts, http_header(req, "Authorization"), &gw, &why) == AUTH_OK)
        return gw;
    return NULL;
}

static void refuse_stranger(struct front *f, struct http_req *req)
{
    http_answer_error(
        f->server, http_req_id(req), 401, "unauthorized",
        "Send Authorization: Bearer with the gateway's token, made from the id and secret "
        "that `bellhop gateway add` prints.");
}

/* ---- uploads ---- */

struct media_upload {   /* borrowed for the call, which copies it */
    const char *tenant; /* the tenant whose quota the file counts against */
    struct str name;
    const char *chat, *bot; /* of the chat page; NULL: a gateway uploads */
    /* The file is stored: answer the request. */
    void (*answer)(struct front *f, struct http_id id, const struct media_upload *u,
                   const struct media_file *file);
};

struct upload {
    struct media_upload what; /* first; its strings are owned, except the name */
    struct front *front;      /* borrowed */
    struct http_id id;
    struct media_write *writer; /* owned; NULL: finished or aborted */
};

static void on_room(void *ctx)
{
    struct upload *u = ctx;

    http_body_resume(u->front->server, u->id);
}

static void media_refuse(struct http_server *server, struct http_id id, enum bh_err err)
{
    if (err == BH_BUSY)
        http_answer_error(
            server, id, 507, "no_room",
            "There is no room for this file: media.per_tenant, media.total or the disk. Visitors "
            "of the chat page may use a quarter of the first two.");
    else if (err == BH_REFUSED)
        http_answer_error(server, id, 501, "media_off", "No: " MEDIA_OFF ".");
    else if (err == BH_MALFORMED)
        http_answer_error(server, id, 413, "file_size",
                          "A file has at least one byte and at most %llu.",
                          (unsigned long long)MEDIA_MAX_BYTES);
    else
        http_answer_error(server, id, 503, "unavailable", "The file could not be kept.");
}

static void upload_free(struct upload *u)
{
    free((char *)u->what.chat);
    free((char *)u->what.bot);
    free(u);
}

static void answer_gateway(struct front *f, struct http_id id, const struct media_upload *u,
                           const struct media_file *file)
{
    struct buf body = BUF_INIT;

    buf_printf(&body, "{\"id\":\"%s\",\"size\":%llu}", file->id, (unsigned long long)file->size);
    front_json(f, id, 200, &body);
    buf_done(&body);
}

static void on_written(void *ctx, enum bh_err err, const struct media_file *file)
{
    struct upload *u = ctx;

    if (err == BH_OK)
        u->what.answer(u->front, u->id, &u->what, file);
    else
        media_refuse(u->front->server, u->id, err);
    upload_free(u);
}

static void on_data(void *ctx, struct http_id id, struct str bytes)
{
    struct upload *u = ctx;

    http_body_pause(u->front->server, id);
    media_add(u->writer, bytes);
}

static void on_end(void *ctx, struct http_id id)
{
    media_end(((struct upload *)ctx)->writer);
}

static void on_gone(void *ctx, struct http_id id)
{
    struct upload *u = ctx;

    media_abort(&u->writer);
    upload_free(u);
}

static void media_take_upload(struct front *f, struct http_req *req,
                              const struct media_upload *what)
{
    static const struct media_write_ops ops = {.room = on_room, .done = on_written};
    static const struct http_sink sink = {.max_bytes = MEDIA_MAX_BYTES,
                                          .on_data = on_data,
                                          .on_end = on_end,
                                          .on_gone = on_gone};
    BUF_LOCAL visitor = BUF_INIT;
    struct media_spec spec = {.tenant = str_of(what->tenant),
                              .type = http_header(req, "Content-Type"),
                              .name = what->name};
    enum bh_err err = BH_OK;

    if (!str_to_u64(http_header(req, "Content-Length"), &spec.expected))
        spec.expected = 0;
    if (what->chat != NULL) {
        buf_printf(&visitor, "web\x1f%s\x1f%s", what->bot, what->chat);
        spec.stranger = buf_str(&visitor);
        spec.address = http_peer(req);
    }
    struct upload *u = xcalloc(1, sizeof *u);
    *u = (struct upload){.what = *what, .front = f, .id = http_req_id(req)};
    u->what.tenant = NULL;
    u->what.name = STR_NULL;
    u->what.chat = what->chat != NULL ? xstrdup(what->chat) : NULL;
    u->what.bot = what->bot != NULL ? xstrdup(what->bot) : NULL;
    u->writer = media_begin(f->media, &spec, &ops, u, &err);
    if (u->writer == NULL) {
        upload_free(u);
        media_refuse(f->server, http_req_id(req), err);
        return;
    }
    http_take_body(req, &sink, u);
    http_body_pause(f->server, u->id);
}

static bool page_upload(struct front *f, struct http_req *req);

/* Webhooks of some platforms carry more than other requests. */
static void webhook_on_head(struct http_req *req)
{
    struct str rest = http_path(req), part = STR_NULL;
    const struct platform_ops *ops = site_fixed_at(rest);

    if (str_starts(rest, STR("/webhooks/"))) {
        for (size_t i = 0; i < 3 && str_split(&rest, '/', &part); i++)
            ;
        ops = platform_find(part);
    }
    if (ops != NULL && ops->max_webhook > 0)
        http_allow_body(req, ops->max_webhook);
}

void front_on_head(void *ctx, struct http_req *req)
{
    struct front *f = ctx;

    webhook_on_head(req);
    if (f->standing_by || http_listener_tag(req) == front_admin_tag ||
        !str_eq(http_method(req), STR("POST")) ||
        (str_starts(http_path(req), STR("/chat/")) && page_upload(f, req)) ||
        !str_eq(http_path(req), STR("/relay/media")))
        return;
    const struct gateway *gw = authenticate(f, req);
    if (gw == NULL)
        refuse_stranger(f, req);
    else if (!front_is_draining(f, req))
        media_take_upload(f, req,
                          &(struct media_upload){.tenant = gw->tenant,
                                                 .name = http_header(req, "X-Media-Filename"),
                                                 .answer = answer_gateway});
}

/* Handles a request without a body, for which front_on_head() started no upload. */
void media_upload(struct front *f, struct http_req *req)
{
    if (authenticate(f, req) == NULL)
        refuse_stranger(f, req);
    else
        media_refuse(f->server, http_req_id(req), BH_MALFORMED);
}

/* ---- downloads ---- */

struct download {
    struct list link;
    struct front *front; /* borrowed */
    struct http_id id;
    struct media_read *read;    /* owned */
    struct buf range, if_range; /* owned */
    bool shown;                 /* to a person: inline if its type is harmless */
};

static void download_free(struct download *d)
{
    list_remove(&d->link);
    media_read_cancel(&d->read);
    buf_done(&d->range);
    buf_done(&d->if_range);
    free(d);
}

static bool may_be_shown(struct str type)
{
    return str_eq(type, STR("image/png")) || str_eq(type, STR("image/jpeg")) ||
           str_eq(type, STR("image/gif")) || str_eq(type, STR("image/webp")) ||
           str_starts(type, STR("audio/")) || str_starts(type, STR("video/"));
}

static void on_opened(void *ctx, const struct media_file *file, int fd)
{
    struct download *d = ctx;
    struct buf headers = BUF_INIT;
    char etag[MEDIA_ID_CHARS + 3];

    d->read = NULL;
    if (file == NULL) {
        http_answer_error(d->front->server, d->id, 404, "not_found", "There is no such file.");
        download_free(d);
        return;
    }
    buf_add_z(&headers, FILE_HEADERS "Content-Disposition: ");
    media_disposition_add(&headers, d->shown && may_be_shown(str_of(file->type)),
                          str_of(file->name));
    buf_add_z(&headers, "\r\n");
    snprintf(etag, sizeof etag, "\"%s\"", file->id);
    http_answer_file(d->front->server, d->id,
                     &(struct http_answer){.content_type = file->type, .headers = buf_z(&headers)},
                     &(struct http_file){.fd = fd,
                                         .size = file->size,
                                         .range = d->range.n > 0 ? buf_str(&d->range) : STR_NULL,
                                         .if_range =
                                             d->if_range.n > 0 ? buf_str(&d->if_range) : STR_NULL,
                                         .etag = etag});
    buf_done(&headers);
    download_free(d);
}

static void media_answer(struct front *f, struct http_req *req, const struct media_file *file,
                         bool shown)
{
    struct download *d = xcalloc(1, sizeof *d);

    *d = (struct download){.front = f, .id = http_req_id(req), .shown = shown};
    list_init(&d->link);
    list_append(&f->downloads, &d->link);
    buf_add_str(&d->range, http_header(req, "Range"));
    buf_add_str(&d->if_range, http_header(req, "If-Range"));
    d->read = media_read(f->media, file, on_opened, d);
}

void media_downloads_drop(struct front *f)
{
    if (f->downloads.next == NULL)
        return;
    list_each (&f->downloads, it, nxt)
        download_free(list_entry(it, struct download, link));
}

void media_download(struct front *f, struct http_req *req)
{
    struct str id = media_id_in(http_path(req));
    const struct media_file *file = media_find(f->media, id);
    const struct gateway *gw = NULL;
    struct buf expires = BUF_INIT, signature = BUF_INIT;
    bool trusted = http_query(req, "exp", &expires) && http_query(req, "sig", &signature) &&
                   media_signature_is_good(f->media, id, buf_str(&expires), buf_str(&signature));

    buf_done(&expires);
    buf_done(&signature);
    if (!trusted && (gw = authenticate(f, req)) == NULL) {
        refuse_stranger(f, req);
        return;
    }
    if (file == NULL || (!trusted && !media_may_read(file, str_of(gw->tenant)))) {
        http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is no such file.");
        return;
    }
    media_answer(f, req, file, false);
}

/* ---- for people ---- */

static void place_url(void *ctx, struct str id, struct buf *out)
{
    const struct front *f = ctx;
    const char *base = f->public_url != NULL ? f->public_url : f->base_url;

    media_url(f->media, str_of(base != NULL ? base : ""), id, true, out);
}

void media_add_urls(const struct front *f, struct str frame, struct buf *out)
{
    event_fill_media(out, frame, place_url, (void *)f);
}

/* ---- files of the chat page: /chat[/<bot>]/api/file ----
 *
 * The page's platform (platform.h) identifies the visitor and decides which files they may read.
 * An upload counts against the tenant that would receive a message of that visitor, in the share
 * that strangers may use, because a visitor needs no credential.  Harmless
 * pictures, sound and films are shown in the page; other types are saved. */

/* Parses "/chat/api/file[/<id>]" or "/chat/<bot>/api/file[/<id>]".  False: another path. */
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

static bool page_upload(struct front *f, struct http_req *req)
{
    struct buf chat = BUF_INIT, payer = BUF_INIT, name = BUF_INIT;
    struct platform *p;
    struct event ev;
    struct str id;

    if (!read_path(f, http_path(req), &p, &id) || id.p != NULL)
        return false;
    if (!front_is_draining(f, req) && p->ops->page_visitor(p, req, true, &chat)) {
        ev = (struct event){.platform = str_of(p->ops->name),
                            .bot = str_of(p->bot),
                            .route_key = str_of(p->bot),
                            .chat_id = buf_str(&chat),
                            .chat_type = STR("dm"),
                            .user_id = buf_str(&chat)};
        host_each_target(f->host, &ev, first_target, &payer);
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

bool page_download(struct front *f, struct http_req *req)
{
    struct buf chat = BUF_INIT, key = BUF_INIT, shown = BUF_INIT;
    struct platform *p;
    struct str id;

    if (!str_eq(http_method(req), STR("GET")) || !read_path(f, http_path(req), &p, &id) ||
        id.p == NULL)
        return false;
    if (p->ops->page_visitor(p, req, false, &chat)) {
        const struct media_file *file = f->media != NULL ? media_find(f->media, id) : NULL;
        struct event_media m;
        bool good = false; /* the key is the one of this visitor and file */
        if (file != NULL) {
            m = media_of(file);
            p->ops->page_file_key(p, buf_str(&chat), &m, &key);
            good =
                http_query(req, "k", &shown) && shown.n == key.n && ct_equal(shown.p, key.p, key.n);
        }
        if (good)
            media_answer(f, req, file, true);
        else
            http_answer_error(f->server, http_req_id(req), 404, "not_found",
                              "There is no such file any more.");
    }
    buf_done(&key);
    buf_done(&shown);
    buf_done(&chat);
    return true;
}
