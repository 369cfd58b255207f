/* attachment.c - outbound files and multipart bodies.  (attachment.h has the contract.) */
#include "platform/attachment.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "base/rand.h"
#include "platform/sender.h"

void attachment_copy(struct attachment *a, const struct action *from)
{
    const struct action_file *f = from->file;

    *a = (struct attachment){.path = xstrdup(f->path),
                             .type = str_dup(f->type),
                             .name = str_dup(from->filename.n > 0 ? from->filename : f->name),
                             .url = f->url.p != NULL ? str_dup(f->url) : NULL,
                             .kind = str_dup(from->media_kind),
                             .size = f->size};
}

void attachment_done(struct attachment *a)
{
    free(a->path);
    free(a->type);
    free(a->name);
    free(a->url);
    free(a->kind);
    *a = (struct attachment){0};
}

static const struct {
    const char *type, *ending;
} endings[] = {
    {"image/png", "png"},   {"image/jpeg", "jpg"},      {"image/gif", "gif"},
    {"image/webp", "webp"}, {"audio/ogg", "ogg"},       {"audio/mpeg", "mp3"},
    {"audio/mp4", "m4a"},   {"audio/wav", "wav"},       {"audio/amr", "amr"},
    {"video/mp4", "mp4"},   {"application/pdf", "pdf"}, {"video/webm", "webm"},
    {"text/plain", "txt"},  {"application/zip", "zip"},
};

void attachment_name_add(struct buf *out, const struct attachment *a)
{
    if (a->name[0] != '\0') {
        buf_add_z(out, a->name);
        return;
    }
    buf_add_z(out, "file");
    for (size_t i = 0; i < ARRAY_LEN(endings); i++)
        if (strcmp(endings[i].type, a->type) == 0)
            buf_printf(out, ".%s", endings[i].ending);
}

/* ---- multipart/form-data ---- */

void multipart_begin(struct multipart *m, struct rand *rand)
{
    *m = (struct multipart){0};
    snprintf(m->boundary, sizeof m->boundary, "%016" PRIx64 "%016" PRIx64, rand_u64(rand),
             rand_u64(rand));
}

static struct buf *side(struct multipart *m)
{
    return m->has_file ? &m->after : &m->before;
}

static void part(struct multipart *m, const char *name)
{
    struct buf *out = side(m);

    buf_printf(out, "%s--%s\r\nContent-Disposition: form-data; name=\"%s\"",
               m->has_file || out->n > 0 ? "\r\n" : "", m->boundary, name);
}

void multipart_field(struct multipart *m, const char *name, struct str value)
{
    part(m, name);
    buf_add_z(side(m), "\r\n\r\n");
    buf_add_str(side(m), value);
}

void multipart_json(struct multipart *m, const char *name, struct str value)
{
    part(m, name);
    buf_add_z(side(m), "\r\nContent-Type: application/json\r\n\r\n");
    buf_add_str(side(m), value);
}

void multipart_file(struct multipart *m, const char *name, const struct attachment *a)
{
    BUF_LOCAL shown = BUF_INIT;

    part(m, name);
    attachment_name_add(&shown, a);
    buf_add_z(&m->before, "; filename=\"");
    for (size_t i = 0; i < shown.n; i++) { /* escaped as browsers do */
        char c = shown.p[i];
        if (c == '"')
            buf_add_z(&m->before, "%22");
        else if ((unsigned char)c >= ' ')
            buf_add_c(&m->before, c);
    }
    buf_printf(&m->before, "\"\r\nContent-Type: %s\r\n\r\n", a->type);
    m->has_file = true;
}

void multipart_end(struct multipart *m, const struct attachment *a, struct sender_request *q)
{
    buf_printf(side(m), "\r\n--%s--\r\n", m->boundary);
    q->body = m->before;
    q->after = m->after;
    snprintf(q->type, sizeof q->type, "Content-Type: multipart/form-data; boundary=%s",
             m->boundary);
    q->headers[ARRAY_LEN(q->headers) - 1] = q->type;
    q->file_path = a->path;
    q->file_bytes = a->size;
    m->before = m->after = BUF_INIT;
}
