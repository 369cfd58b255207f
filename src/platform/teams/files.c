/* files.c - files in both directions.  (teams_priv.h has the calls.)
 *
 *      in    a picture in a message    fetched from the connector, with the bot's token
 *            a file in a personal chat fetched from its own address, without a token
 *      out   a picture up to 1 MB      in the message itself
 *            a file, personal chat     offered by a card; the person takes it --> uploaded to the
 *                                      person's OneDrive --> a card that opens it
 *            a file elsewhere          a link to the file at bellhop, if it has a public address
 *
 * Outside of personal chats Teams gives bots no way to send a file, except by Microsoft Graph with
 * permissions of an administrator. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/url.h"
#include "media/media.h"
#include "net/http_server.h"
#include "platform/teams/teams_priv.h"

enum { PICTURE_BYTES = 1 << 20, UPLOAD_MS = 120000, MAX_UPLOADS = 64, MAX_TRIES = 3 };

#define CONSENT_TYPE STR("application/vnd.microsoft.teams.card.file.consent")
#define INFO_TYPE STR("application/vnd.microsoft.teams.card.file.info")

/* ---- in ---- */

void teams_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct teams *t = teams_of(p);

    if (!teams_is_own_url(ref, str_of(t->cfg->base.api_base))) {
        host_media_at(p->host, ask,
                      &(struct media_at){.url = ref, .foreign = true, .redirects = true});
        return;
    }
    const char *const headers[] = {teams_auth_line(t), NULL};
    if (headers[0] == NULL)
        host_media_gone(p->host, ask, "Microsoft gives the bot no access token now");
    else
        host_media_at(p->host, ask, &(struct media_at){.url = ref, .headers = headers});
}

/* ---- out ---- */

static bool is_picture(const struct attachment *f)
{
    return f->size <= PICTURE_BYTES &&
           (strcmp(f->type, "image/png") == 0 || strcmp(f->type, "image/jpeg") == 0 ||
            strcmp(f->type, "image/gif") == 0);
}

/* A file's caption goes with it, and what is too long for one message follows. */
const char *teams_file_read(struct teams_outgoing *x, const struct action *a)
{
    const struct teams_chat *c = teams_chat_find(x->t, str_of(x->chat));

    attachment_copy(&x->file, a);
    x->file_id = str_dup_opt(a->file->id);
    if (x->file.size == 0)
        return "Teams takes no empty file";
    if (a->content.n > (size_t)SENDER_MAX_PARTS * 4 * TEAMS_MAX_CHARS)
        return "the caption is longer than sixteen messages of Teams";
    split_text(&x->parts, a->content, TEAMS_MAX_CHARS, SPLIT_UTF16);
    x->out.n_parts = x->parts.n > 0 ? x->parts.n : 1;
    if (is_picture(&x->file))
        x->carrier = TEAMS_INLINE;
    else if (c != NULL && c->kind == TEAMS_PERSONAL && x->file_id != NULL)
        x->carrier = TEAMS_OFFER;
    else if (x->file.url != NULL)
        x->carrier = TEAMS_LINK;
    else
        return "Teams lets bots send files in personal chats only, and bellhop has no public "
               "address to link to";
    if (x->carrier == TEAMS_OFFER) { /* the record has the action, not this: a new one each time */
        uint8_t id[16];
        BUF_LOCAL hex = BUF_INIT;
        rand_bytes(x->t->base.env->rand, id, sizeof id);
        hex_add(&hex, id, sizeof id);
        snprintf(x->offer, sizeof x->offer, "%s", buf_z(&hex));
    }
    return NULL;
}

static void write_offer(struct teams_outgoing *x, struct jw *w, struct str name, struct str caption)
{
    jw_karr(w, "attachments");
    jw_obj(w);
    jw_kstr(w, "contentType", CONSENT_TYPE);
    jw_kstr(w, "name", name);
    jw_kobj(w, "content");
    jw_kstr(w, "description", caption.n > 0 ? utf8_head(caption, 1000) : name);
    jw_ki64(w, "sizeInBytes", (int64_t)x->file.size);
    for (size_t i = 0; i < 2; i++) {
        jw_kobj(w, i == 0 ? "acceptContext" : "declineContext");
        jw_kstr(w, "bellhop", str_of(x->offer));
        jw_end_obj(w);
    }
    jw_end_obj(w);
    jw_end_obj(w);
    jw_end_arr(w);
}

bool teams_file_write(struct teams_outgoing *x, struct jw *w, struct sender_verdict *v)
{
    struct str caption = x->parts.n > 0 ? split_part(&x->parts, 0) : STR("");
    BUF_LOCAL name = BUF_INIT, bytes = BUF_INIT, url = BUF_INIT, text = BUF_INIT;

    attachment_name_add(&name, &x->file);
    if (x->carrier == TEAMS_OFFER) {
        if (caption.n > 0) {
            jw_kstr(w, "text", caption);
            jw_kstr(w, "textFormat", STR("markdown"));
        }
        teams_card_keep(x->t, str_of(x->chat), str_of(x->offer),
                        &(struct teams_card_as){.file = str_of(x->file_id),
                                                .name = utf8_head(buf_str(&name), 255)});
        write_offer(x, w, buf_str(&name), caption);
        return true;
    }
    if (x->carrier == TEAMS_LINK) {
        buf_printf(&text, "%.*s%s[%s](%s)", STR_FMT(caption), caption.n > 0 ? "\n\n" : "",
                   buf_z(&name), x->file.url);
        jw_kstr(w, "text", buf_str(&text));
        jw_kstr(w, "textFormat", STR("markdown"));
        return true;
    }
    if (!file_read(x->file.path, PICTURE_BYTES, &bytes)) {
        sender_say(v, SENDER_FAILED, "the file cannot be read");
        return false;
    }
    buf_printf(&url, "data:%s;base64,", x->file.type);
    base64_add(&url, bytes.p, bytes.n);
    if (caption.n > 0) {
        jw_kstr(w, "text", caption);
        jw_kstr(w, "textFormat", STR("markdown"));
    }
    jw_karr(w, "attachments");
    jw_obj(w);
    jw_kstr(w, "contentType", str_of(x->file.type));
    jw_kstr(w, "contentUrl", buf_str(&url));
    jw_kstr(w, "name", buf_str(&name));
    jw_end_obj(w);
    jw_end_arr(w);
    return true;
}

void teams_file_sent(struct teams_outgoing *x)
{
    x->t->n.offers += x->carrier == TEAMS_OFFER;
}

/* ---- a person takes an offered file ---- */

struct teams_upload {
    struct list link;
    struct teams *t; /* borrowed */
    struct media_read *read;
    struct http_call *call;
    int fd; /* -1: not open */
    uint64_t size;
    char *chat, *url, *content_url, *name, *unique, *kind; /* owned */
    unsigned tries;
};

static void upload_free(struct teams_upload *u)
{
    media_read_cancel(&u->read);
    http_cancel(&u->call);
    if (u->fd >= 0)
        close(u->fd);
    list_remove(&u->link);
    u->t->n_uploads--;
    free(u->chat);
    free(u->url);
    free(u->content_url);
    free(u->name);
    free(u->unique);
    free(u->kind);
    free(u);
}

void teams_uploads_cancel(struct teams *t)
{
    while (t->uploads.next != NULL && !list_is_empty(&t->uploads))
        upload_free(list_first(&t->uploads, struct teams_upload, link));
}

static void say(struct teams *t, struct str chat, struct str text)
{
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    teams_write_head(&w, t, STR("message"), chat, STR_NULL);
    jw_kstr(&w, "text", text);
    jw_end_obj(&w);
    teams_ask(t, chat, STR_NULL, STR_NULL, buf_str(&body), &(struct sender_question){.lane = chat});
}

static void show_uploaded(struct teams_upload *u)
{
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    teams_write_head(&w, u->t, STR("message"), str_of(u->chat), STR_NULL);
    jw_karr(&w, "attachments");
    jw_obj(&w);
    jw_kstr(&w, "contentType", INFO_TYPE);
    jw_kstr(&w, "contentUrl", str_of(u->content_url));
    jw_kstr(&w, "name", str_of(u->name));
    jw_kobj(&w, "content");
    jw_kstr(&w, "uniqueId", str_of(u->unique));
    jw_kstr(&w, "fileType", str_of(u->kind));
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_arr(&w);
    jw_end_obj(&w);
    teams_ask(u->t, str_of(u->chat), STR_NULL, STR_NULL, buf_str(&body),
              &(struct sender_question){.lane = str_of(u->chat)});
}

static void put(struct teams_upload *u);

static void on_put(void *ctx, const struct http_result *r)
{
    struct teams_upload *u = ctx;
    bool ok = r->err == BH_OK && r->status >= 200 && r->status < 300;

    u->call = NULL;
    if (!ok && ++u->tries < MAX_TRIES && (r->err != BH_OK || r->status >= 500)) {
        put(u);
        return;
    }
    log_info(&u->t->base.log, "upload: ok=%d status=%d bytes=%" PRIu64, ok, r->status, u->size);
    u->t->n.uploads += ok;
    if (ok)
        show_uploaded(u);
    else
        say(u->t, str_of(u->chat), STR("The file could not be uploaded to OneDrive."));
    upload_free(u);
}

/* The address is the credential: no token goes there.  It may be anywhere in Microsoft's cloud, so
 * it is called as any stranger's: never a private address. */
static void put(struct teams_upload *u)
{
    bool own = teams_is_own_url(str_of(u->url), str_of(u->t->cfg->base.api_base));
    char range[96];

    snprintf(range, sizeof range, "Content-Range: bytes 0-%" PRIu64 "/%" PRIu64, u->size - 1,
             u->size);
    const char *const headers[] = {"Content-Type: application/octet-stream", range, NULL};
    lseek(u->fd, 0, SEEK_SET);
    const struct http_file_body body = {.fd = u->fd, .size = u->size};
    u->call = http_fetch(u->t->base.env->http,
                         &(struct http_fetch){.method = "PUT",
                                              .url = u->url,
                                              .headers = headers,
                                              .timeout_ms = UPLOAD_MS,
                                              .public_only = !own,
                                              .file = &body},
                         on_put, u);
}

static void on_open(void *ctx, const struct media_file *f, int fd)
{
    struct teams_upload *u = ctx;

    u->read = NULL;
    if (fd < 0) {
        say(u->t, str_of(u->chat), STR("This file is not kept any more: ask for it again."));
        upload_free(u);
        return;
    }
    u->fd = fd;
    u->size = f->size;
    put(u);
}

static bool is_upload_url(const struct teams *t, struct str url)
{
    struct url u;

    return url.n > 0 && url.n <= 4096 && url_split(url, &u) == NULL && u.user.p == NULL &&
           (str_eq(u.scheme, STR("https")) || teams_is_own_url(url, str_of(t->cfg->base.api_base)));
}

static void start_upload(struct teams *t, struct json info, const struct media_file *f,
                         const char *name)
{
    struct teams_upload *u = xcalloc(1, sizeof *u);

    *u = (struct teams_upload){.t = t,
                               .fd = -1,
                               .chat = str_dup(t->out.ev.chat_id),
                               .url = str_dup(json_str(info, "uploadUrl")),
                               .content_url = str_dup(json_str(info, "contentUrl")),
                               .name = xstrdup(name),
                               .unique = str_dup(json_str(info, "uniqueId")),
                               .kind = str_dup(json_str(info, "fileType"))};
    list_append(&t->uploads, &u->link);
    t->n_uploads++;
    u->read = media_read(t->base.env->media, f, on_open, u);
}

/* The card is replaced by Teams itself.  Only the file of an offer in this chat is uploaded. */
void teams_take_consent(struct teams *t, struct http_id http)
{
    struct json info = json_get(t->out.value, "uploadInfo");
    struct str chat = t->out.ev.chat_id;
    struct str id = json_str(json_get(t->out.value, "context"), "bellhop");
    struct teams_card *card = id.n == 32 ? teams_card_find(t, chat, id) : NULL;
    bool accepts = str_eq(json_str(t->out.value, "action"), STR("accept"));
    struct media *media = t->base.env->media;

    teams_answer(t, http, STR_NULL);
    const struct media_file *f = card != NULL && card->file != NULL && media != NULL
                                     ? media_find(media, str_of(card->file))
                                     : NULL;
    if (accepts && f != NULL && is_upload_url(t, json_str(info, "uploadUrl")) &&
        t->n_uploads < MAX_UPLOADS && f->size > 0)
        start_upload(t, info, f, card->name != NULL ? card->name : "file");
    else if (accepts)
        say(t, chat, STR("This file is not kept any more: ask for it again."));
    teams_card_over(t, chat, id);
}
