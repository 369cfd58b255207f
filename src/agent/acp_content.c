/* acp_content.c - what bellhop tells an agent: about itself, and the texts and files of a turn. */
#include "agent/acp_priv.h"
#include "agent/files.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "bellhop/gateway.h"

static bool is_kind(const char *type, const char *kind)
{
    return str_starts(str_of(type), str_of(kind));
}

bool acp_wants_file(void *ctx, const struct turn_file *f)
{
    const struct acp_host *h = ((const struct acp_session *)ctx)->host;

    return is_kind(f->type, "image/")   ? h->takes_images
           : is_kind(f->type, "audio/") ? h->takes_audio
                                        : h->takes_files;
}

static void add_text(struct jw *w, struct str text)
{
    jw_obj(w);
    jw_kstr(w, "type", STR("text"));
    jw_kstr(w, "text", text);
    jw_end_obj(w);
}

static void add_bytes(struct jw *w, const char *key, const struct buf *bytes)
{
    BUF_LOCAL b64 = BUF_INIT;

    base64_add(&b64, bytes->p, bytes->n);
    jw_kstr(w, key, buf_str(&b64));
}

/* An image or a sound inline, any other file as an embedded resource, else a link. */
static void add_file(struct jw *w, const struct turn_file *f)
{
    bool image = is_kind(f->type, "image/"), audio = is_kind(f->type, "audio/");
    BUF_LOCAL text = BUF_INIT;

    if (!f->fetched && f->kept) {
        buf_printf(&text, "[The person sent a file that cannot be shown here: %s, %s]", f->name,
                   f->type);
        add_text(w, buf_str(&text));
        return;
    }
    jw_obj(w);
    if (!f->fetched) {
        jw_kstr(w, "type", STR("resource_link"));
        jw_kstr(w, "uri", str_of(f->url));
        jw_kstr(w, "name", str_of(f->name));
        jw_kstr(w, "mimeType", str_of(f->type));
    } else if (image || audio) {
        jw_kstr(w, "type", image ? STR("image") : STR("audio"));
        jw_kstr(w, "mimeType", str_of(f->type));
        add_bytes(w, "data", &f->bytes);
    } else {
        jw_kstr(w, "type", STR("resource"));
        jw_kobj(w, "resource");
        jw_kstr(w, "uri", str_of(f->url));
        jw_kstr(w, "mimeType", str_of(f->type));
        if (utf8_valid(buf_str(&f->bytes)))
            jw_kstr(w, "text", buf_str(&f->bytes));
        else
            add_bytes(w, "blob", &f->bytes);
        jw_end_obj(w);
    }
    jw_end_obj(w);
}

void acp_write_prompt(struct buf *params, const struct acp_session *s,
                      const struct turn_file *files, size_t n)
{
    struct jw w = jw_begin(params);

    jw_obj(&w);
    jw_kstr(&w, "sessionId", str_of(s->id));
    jw_karr(&w, "prompt");
    list_each (&s->turn->messages, it, next) {
        const struct bhgw_event *ev = list_entry(it, struct message, link)->ev;
        BUF_LOCAL text = BUF_INIT;
        message_words(s->conversation->agent, ev, &text);
        if (ev->text_bytes > 0 || ev->n_media_urls == 0)
            add_text(&w, buf_str(&text));
    }
    for (size_t i = 0; i < n; i++)
        add_file(&w, &files[i]);
    jw_end_arr(&w);
    jw_end_obj(&w);
}

void acp_write_initialize(struct buf *params)
{
    struct jw w = jw_begin(params);

    jw_obj(&w);
    jw_ki64(&w, "protocolVersion", 1);
    jw_kobj(&w, "clientCapabilities");
    jw_kobj(&w, "fs");
    jw_kbool(&w, "readTextFile", false);
    jw_kbool(&w, "writeTextFile", false);
    jw_end_obj(&w);
    jw_kbool(&w, "terminal", false);
    jw_end_obj(&w);
    jw_kobj(&w, "clientInfo");
    jw_kstr(&w, "name", STR("bellhop"));
    jw_kstr(&w, "title", STR("bellhop"));
    jw_kstr(&w, "version", STR(BELLHOP_VERSION));
    jw_end_obj(&w);
    jw_end_obj(&w);
}
