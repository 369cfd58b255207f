/* file.c - files to WeCom: uploaded first, then named in a message.
 *
 * An upload that is never named is nothing, so it may be repeated; the message may not.  WeCom is
 * strict about pictures, voices and films; anything else, and anything larger, is a file. */
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "edge/form.h"
#include "platform/wecom/wecom_priv.h"

enum { UPLOAD_MS = 60000 };

static const struct {
    const char *kind, *type, *as;
    uint64_t max_bytes;
} carriers[] = {
    {"image", "image/png", "image", 10 << 20},
    {"image", "image/jpeg", "image", 10 << 20},
    {"voice", "audio/amr", "voice", 2 << 20},
    {"video", "video/mp4", "video", 10 << 20},
};

static const char *carrier_of(const struct attachment *a)
{
    for (size_t i = 0; i < ARRAY_LEN(carriers); i++)
        if (strcmp(carriers[i].kind, a->kind) == 0 && strcmp(carriers[i].type, a->type) == 0 &&
            a->size <= carriers[i].max_bytes)
            return carriers[i].as;
    return "file";
}

const char *wecom_no_file(struct webhook_bot *b, const struct attachment *a)
{
    if (a->size < 5)
        return "WeCom takes no file of less than five bytes";
    return a->size > (uint64_t)20 << 20 ? "WeCom takes no file of more than 20 MB" : NULL;
}

bool wecom_uploads(struct outgoing *o)
{
    const struct text_outgoing *t = text_outgoing_of(o);

    return t->file.path != NULL && o->at == 0 && t->handle == NULL;
}

void wecom_write_upload(struct wecom *c, struct outgoing *o, struct str token,
                        struct sender_request *q)
{
    const struct attachment *a = &text_outgoing_of(o)->file;
    struct buf query = BUF_INIT;
    struct multipart m;

    form_add(&query, "access_token", token);
    form_add(&query, "type", str_of(carrier_of(a)));
    buf_printf(&q->url, "%s/cgi-bin/media/upload?", c->bot.api_base);
    buf_add_str(&q->url, buf_str(&query));
    buf_wipe(&query);
    multipart_begin(&m, c->bot.env->rand);
    multipart_file(&m, "media", a);
    multipart_end(&m, a, q);
    q->timeout_ms = UPLOAD_MS;
}

void wecom_write_file(struct jw *w, struct outgoing *o)
{
    const struct text_outgoing *t = text_outgoing_of(o);
    const char *as = carrier_of(&t->file);

    jw_kstr(w, "msgtype", str_of(as));
    jw_key(w, as);
    jw_obj(w);
    jw_kstr(w, "media_id", str_of(t->handle));
    jw_end_obj(w);
}

/* ---- files that people send ---- */

void wecom_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct wecom *c = wecom_of(p);
    struct str token = wecom_token(c);
    struct buf url = BUF_INIT, query = BUF_INIT;

    if (token.p == NULL) {
        host_media_gone(p->host, ask, "WeCom gives no access token now");
        return;
    }
    form_add(&query, "access_token", token);
    form_add(&query, "media_id", ref);
    buf_printf(&url, "%s/cgi-bin/media/get?", c->bot.api_base);
    buf_add_str(&url, buf_str(&query));
    host_media_at(p->host, ask, &(struct media_at){.url = buf_z(&url)});
    buf_wipe(&query);
    buf_wipe(&url);
}
