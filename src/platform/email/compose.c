/* compose.c - see compose.h. */
#include "platform/email/compose.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/email/mail_late.h"
#include "platform/email/text.h"
#include "platform/html.h"

enum {
    MAX_HTML = 65536, /* bytes of Markdown that become HTML; a longer text goes as plain text */
    MAX_SUBJECT = 120,
};

/* ---- the subject ---- */

void compose_subject(struct buf *out, struct str text)
{
    BUF_LOCAL clean = BUF_INIT;
    struct str rest = text, line = STR("");

    while (line.n == 0 && str_split(&rest, '\n', &line)) {
        line = str_trim(line);
        while (line.n > 0 && (line.p[0] == '#' || line.p[0] == '*' || line.p[0] == ' ' ||
                              line.p[0] == '>' || line.p[0] == '`' || line.p[0] == '_'))
            line = str_skip(line, 1);
        while (line.n > 0 && (line.p[line.n - 1] == '*' || line.p[line.n - 1] == '`' ||
                              line.p[line.n - 1] == '_'))
            line.n--;
    }
    text_clean(&clean, str_make(line.p, line.n < 4 * MAX_SUBJECT ? line.n : 4 * MAX_SUBJECT), true);
    struct str s = str_trim(buf_str(&clean));
    size_t n = s.n < MAX_SUBJECT ? s.n : MAX_SUBJECT;
    while (n > 0 && n < s.n && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    buf_add_str(out, n > 0 ? str_make(s.p, n) : STR("A message"));
}

void compose_reply_subject(struct buf *out, struct str subject)
{
    if (!(subject.n >= 3 && str_eq_ci(str_make(subject.p, 3), STR("re:"))))
        buf_add_str(out, STR("Re: "));
    text_clean(out, subject, true);
}

/* ---- parts ---- */

static GMimeObject *text_part(const char *subtype, struct str text)
{
    GMimeTextPart *part = g_mime_text_part_new_with_subtype(subtype);
    char *z = str_dup(text);

    g_mime_text_part_set_charset(part, "utf-8");
    g_mime_text_part_set_text(part, z);
    free(z);
    return (GMimeObject *)part;
}

/* A multipart of @a and @b, which it takes over. */
static GMimeObject *together(const char *subtype, const char *boundary, GMimeObject *a,
                             GMimeObject *b)
{
    GMimeMultipart *m = g_mime_multipart_new_with_subtype(subtype);

    g_mime_multipart_set_boundary(m, boundary);
    g_mime_multipart_add(m, a);
    g_mime_multipart_add(m, b);
    g_object_unref(a);
    g_object_unref(b);
    return (GMimeObject *)m;
}

/* A part whose content is @marker: the place of the file's base64 in the written mail. */
static GMimeObject *file_part(const struct letter *l, const char *marker)
{
    struct str rest = l->file_type, type, sub;
    GMimeStream *stream = g_mime_stream_mem_new_with_buffer(marker, strlen(marker));
    GMimeDataWrapper *content =
        g_mime_data_wrapper_new_with_stream(stream, GMIME_CONTENT_ENCODING_BASE64);

    str_split(&rest, '/', &type);
    sub = rest.n > 0 ? rest : STR("octet-stream");
    char *main_type = str_dup(type), *subtype = str_dup(sub);
    BUF_LOCAL name = BUF_INIT;
    text_clean(&name, l->file_name, true);
    GMimePart *part = g_mime_part_new_with_type(main_type, subtype);
    g_mime_part_set_content_encoding(part, GMIME_CONTENT_ENCODING_BASE64);
    g_mime_object_set_disposition((GMimeObject *)part, "attachment");
    g_mime_part_set_filename(part, name.n > 0 ? buf_z(&name) : "file");
    g_mime_part_set_content(part, content);
    g_object_unref(content);
    g_object_unref(stream);
    free(main_type);
    free(subtype);
    return (GMimeObject *)part;
}

/* ---- the mail ---- */

static void set_headers(GMimeMessage *msg, const struct letter *l)
{
    GMimeObject *o = (GMimeObject *)msg;
    char *from = str_dup(l->from), *to = str_dup(l->to), *subject = str_dup(l->subject);
    char *name = l->name.n > 0 ? str_dup(l->name) : NULL;
    char *id = str_dup(str_make(l->message_id.p + 1, l->message_id.n - 2));
    GDateTime *date = g_date_time_new_from_unix_utc(l->date_ms / 1000);
    BUF_LOCAL refs = BUF_INIT;

    g_mime_message_add_mailbox(msg, GMIME_ADDRESS_TYPE_FROM, name, from);
    g_mime_message_add_mailbox(msg, GMIME_ADDRESS_TYPE_TO, NULL, to);
    g_mime_message_set_subject(msg, subject, "utf-8");
    g_mime_message_set_date(msg, date);
    g_mime_message_set_message_id(msg, id);
    if (l->in_reply_to.n > 0) {
        if (l->root.n > 0 && !str_eq(l->root, l->in_reply_to))
            buf_printf(&refs, "%.*s ", STR_FMT(l->root));
        buf_add_str(&refs, l->in_reply_to);
        g_mime_object_set_header(o, "References", buf_z(&refs), NULL);
        buf_reset(&refs);
        buf_add_str(&refs, l->in_reply_to);
        g_mime_object_set_header(o, "In-Reply-To", buf_z(&refs), NULL);
    }
    g_mime_object_set_header(o, "Auto-Submitted",
                             l->in_reply_to.n > 0 ? "auto-replied" : "auto-generated", NULL);
    g_mime_object_set_header(o, "X-Auto-Response-Suppress", "All", NULL);
    g_date_time_unref(date);
    free(from);
    free(to);
    free(subject);
    free(name);
    free(id);
}

static void write_message(GMimeMessage *msg, struct buf *out)
{
    GMimeFormatOptions *options = g_mime_format_options_new();
    GMimeStream *mem = g_mime_stream_mem_new();

    g_mime_format_options_set_newline_format(options, GMIME_NEWLINE_FORMAT_DOS);
    g_mime_object_encode((GMimeObject *)msg, GMIME_ENCODING_CONSTRAINT_7BIT);
    g_mime_object_write_to_stream((GMimeObject *)msg, options, mem);
    GByteArray *bytes = g_mime_stream_mem_get_byte_array((GMimeStreamMem *)mem);
    buf_add(out, bytes->data, bytes->len);
    g_object_unref(mem);
    g_mime_format_options_free(options);
}

void compose(const struct letter *l, struct buf *ret_before, struct buf *ret_after)
{
    GMimeMessage *msg = g_mime_message_new(FALSE);
    struct str unique = str_make(l->message_id.p + 1, 33); /* the number and its proof */
    BUF_LOCAL inner = BUF_INIT, outer = BUF_INIT, html = BUF_INIT, text = BUF_INIT;
    BUF_LOCAL marker = BUF_INIT, all = BUF_INIT;
    bool has_file = l->file_type.n > 0;

    buf_printf(&inner, "a-%.*s", STR_FMT(unique));
    buf_printf(&outer, "m-%.*s", STR_FMT(unique));
    buf_printf(&marker, "=file=%.*s=", STR_FMT(unique));
    text_clean(&text, l->text, false);
    buf_add_c(&text, '\n');
    set_headers(msg, l);
    GMimeObject *body = text_part("plain", buf_str(&text));
    if (l->text.n <= MAX_HTML) {
        buf_add_z(&html, "<!DOCTYPE html>\n<html><body>\n");
        html_from_markdown(&html, buf_str(&text), true);
        buf_add_z(&html, "</body></html>\n");
        body = together("alternative", buf_z(&inner), body, text_part("html", buf_str(&html)));
    }
    if (has_file)
        body = together("mixed", buf_z(&outer), body, file_part(l, buf_z(&marker)));
    g_mime_message_set_mime_part(msg, body);
    g_object_unref(body);
    write_message(msg, &all);
    g_object_unref(msg);
    char *at = has_file ? memmem(all.p, all.n, marker.p, marker.n) : NULL;
    size_t before = at != NULL ? (size_t)(at - all.p) : all.n;
    buf_add(ret_before, all.p, before);
    if (at != NULL)
        buf_add_str(ret_after, str_skip(buf_str(&all), before + marker.n));
}
