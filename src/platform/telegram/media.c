/* media.c - files to Telegram: which method carries which kind, and its body.
 *
 * What Telegram does not take as a picture, a voice note or a film it takes as a document: a file
 * whose kind it refuses is sent so, once.  A caption longer than Telegram's goes on as messages. */
#include <inttypes.h>
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/telegram/outgoing.h"

#define PHOTO_BYTES ((uint64_t)10 << 20) /* of sendPhoto; the others take 50 MB */

static const struct tg_carrier {
    const char *kind, *method, *field;
    const char *types; /* that it takes; NULL: any */
    uint64_t max_bytes;
} carriers[] = {
    {"image", "sendAnimation", "animation", "image/gif", 0},
    {"image", "sendPhoto", "photo", "image/jpeg image/png image/webp", PHOTO_BYTES},
    {"voice", "sendVoice", "voice", "audio/ogg audio/mpeg audio/mp4 audio/x-m4a", 0},
    {"voice", "sendAudio", "audio", "audio/mpeg audio/mp4 audio/x-m4a", 0},
    {"audio", "sendAudio", "audio", "audio/mpeg audio/mp4 audio/x-m4a", 0},
    {"video", "sendVideo", "video", "video/mp4", 0},
};
static const struct tg_carrier document = {"document", "sendDocument", "document", NULL, 0};

static bool takes(const struct tg_carrier *c, const struct attachment *f)
{
    const char *at = strstr(c->types, f->type);
    size_t n = strlen(f->type);

    return strcmp(c->kind, f->kind) == 0 && at != NULL && (at[n] == ' ' || at[n] == '\0') &&
           (c->max_bytes == 0 || f->size <= c->max_bytes);
}

static const struct tg_carrier *carrier_of(const struct tg_outgoing *x)
{
    for (size_t i = 0; !x->as_document && i < ARRAY_LEN(carriers); i++)
        if (takes(&carriers[i], &x->file))
            return &carriers[i];
    return &document;
}

const char *tg_read_media(struct tg_outgoing *x, const struct action *a)
{
    struct md_part p = {0};
    size_t parts = 1;

    attachment_copy(&x->file, a);
    if (!str_to_i64(a->reply_to, &x->reply_to) || x->reply_to < 0)
        x->reply_to = 0;
    if (utf16_units(a->content) > TG_MAX_PARTS * (size_t)TG_LIMIT)
        return "the caption is longer than sixteen Telegram messages";
    md_parse(&x->md, a->content);
    x->captioned = md_next(&x->md, TG_CAPTION, &p);
    x->part = p;
    while (x->captioned && parts <= TG_MAX_PARTS && md_next(&x->md, TG_LIMIT, &p))
        parts++;
    x->out.n_parts = parts;
    return parts > TG_MAX_PARTS ? "the caption is longer than sixteen Telegram messages" : NULL;
}

static void write_numbers(struct multipart *m, const struct tg_outgoing *x)
{
    char number[24];

    multipart_field(m, "chat_id", tg_outgoing_chat(x));
    snprintf(number, sizeof number, "%" PRId64, x->thread);
    if (x->thread != 0)
        multipart_field(m, "message_thread_id", str_of(number));
    if (x->reply_to == 0)
        return;
    char reply[96];
    snprintf(reply, sizeof reply,
             "{\"message_id\":%" PRId64 ",\"allow_sending_without_reply\":true}", x->reply_to);
    multipart_field(m, "reply_parameters", str_of(reply));
}

static void write_caption(struct multipart *m, const struct tg_outgoing *x)
{
    struct buf entities = BUF_INIT;
    struct jw w = jw_begin(&entities);

    if (!x->captioned)
        return;
    multipart_field(m, "caption", str_make(x->md.text.p + x->part.from, x->part.to - x->part.from));
    if (!x->plain && x->md.n > 0) {
        md_write_entities(&w, &x->md, &x->part);
        multipart_field(m, "caption_entities", buf_str(&entities));
    }
    buf_done(&entities);
}

void tg_write_media(struct tg_outgoing *x, struct sender_request *q)
{
    const struct tg_carrier *c = carrier_of(x);
    struct multipart m;

    buf_printf(&q->url, "%s%s", x->t->url, c->method);
    multipart_begin(&m, x->t->env->rand);
    write_numbers(&m, x);
    write_caption(&m, x);
    multipart_file(&m, c->field, &x->file);
    multipart_end(&m, &x->file, q);
    q->timeout_ms = TG_UPLOAD_MS;
    q->once = true;
}

bool tg_media_again(struct tg_outgoing *x, const struct tg_answer *a)
{
    static const char *const words[] = {"PHOTO_",     "IMAGE_PROCESS", "VOICE_",     "wrong file",
                                        "wrong type", "too big",       "DIMENSIONS", "VIDEO_"};

    if (x->op != ACTION_SEND_MEDIA || x->out.at > 0 || x->as_document || carrier_of(x) == &document)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcasestr(a->why, words[i]) != NULL) {
            x->as_document = true;
            return true;
        }
    return false;
}
