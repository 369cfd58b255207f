/* mime.c - see mime.h.
 *
 * A mail is refused in this order, and the first reason counts: it cannot be read, no single
 * author, our own, automatic, a list, not proven.  So a forged mail never starts anything, and two
 * robots never answer each other.
 *
 * GMime makes objects of more than a hundred times the size of what it reads: a part of five bytes,
 * a header of four, an address of four.  So a stranger's mail is judged by its headers alone, which
 * are limited to MAX_HEAD, and only a mail that an agent gets is parsed whole, as far as frugal()
 * lets it.  A report is nobody's: its first MAX_REPORT bytes have all that is needed.
 *
 * The tree of parts is walked to MAX_DEPTH and MAX_PARTS; what lies beyond is left out. */
#include "platform/email/mime.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "media/media.h"
#include "platform/email/mail_late.h"
#include "platform/email/text.h"

enum { MAX_DEPTH = 24, MAX_PARTS = 256, MAX_NAME = 128, MAX_SUBJECT = 500, MAX_HEADERS = 2000 };
enum {
    MAX_HEAD = 128 << 10,   /* bytes of the headers of a mail */
    MAX_REPORT = 256 << 10, /* bytes of a report that are read */
    MAX_COST = 100000,      /* frugal(): objects that GMime makes, about */
    PART_COST = 10,         /* of a part, compared with a header */
    ITEM_COST = 4,          /* of an address or a parameter */
};

/* ---- addresses and ids ---- */

bool mail_is_address(struct str s)
{
    ptrdiff_t at = str_find(s, '@');
    struct str domain = at > 0 ? str_skip(s, (size_t)at + 1) : STR_NULL;

    return s.n <= MAIL_MAX_ADDRESS && at > 0 && at <= 64 && domain.n > 0 && s.p[0] != '-' &&
           str_has_only(str_make(s.p, (size_t)at), "!#$%&'*+-/=?^_`{|}~.") &&
           str_has_only(domain, ".-") && domain.p[0] != '.' && domain.p[0] != '-' &&
           domain.p[domain.n - 1] != '.';
}

bool mail_is_id(struct str s)
{
    if (s.n < 3 || s.n > MAIL_MAX_ID || s.p[0] != '<' || s.p[s.n - 1] != '>')
        return false;
    for (size_t i = 1; i + 1 < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] >= 0x7f || s.p[i] == '<' || s.p[i] == '>')
            return false;
    return true;
}

/* A message id in angle brackets; NULL: it cannot be used. */
static char *id_dup(const char *bare)
{
    BUF_LOCAL id = BUF_INIT;

    if (bare == NULL)
        return NULL;
    buf_printf(&id, bare[0] == '<' ? "%s" : "<%s>", bare);
    return mail_is_id(buf_str(&id)) ? buf_take(&id) : NULL;
}

static char *clean_dup(const char *z, size_t max)
{
    BUF_LOCAL b = BUF_INIT;
    struct str s = str_of(z);

    if (z == NULL)
        return NULL;
    text_clean(&b, str_make(s.p, s.n < 4 * max ? s.n : 4 * max), true);
    s = str_trim(buf_str(&b));
    while (s.n > max && utf8_seq_bytes(str_skip(s, max)) == 0)
        max--; /* not in the middle of a character */
    return str_dup(str_make(s.p, s.n < max ? s.n : max));
}

static bool is_a(void *object, GType type)
{
    return object != NULL && g_type_check_instance_is_a(object, type);
}

/* ---- headers ---- */

/* The raw value of the topmost header of this name; NULL: there is none.  @n counts them. */
static const char *header(GMimeObject *o, const char *name, size_t *ret_n)
{
    GMimeHeaderList *all = g_mime_object_get_header_list(o);
    int count = g_mime_header_list_get_count(all);
    const char *found = NULL;
    size_t n = 0;

    for (int i = 0; i < count && i < MAX_HEADERS; i++) {
        GMimeHeader *h = g_mime_header_list_get_header_at(all, i);
        if (!str_eq_ci(str_of(g_mime_header_get_name(h)), str_of(name)))
            continue;
        if (n++ == 0)
            found = g_mime_header_get_raw_value(h);
    }
    if (ret_n != NULL)
        *ret_n = n;
    return found;
}

static struct str value_of(GMimeObject *o, const char *name)
{
    return str_trim(str_of(header(o, name, NULL)));
}

/* The first word of a header, before white space, a comment or a parameter. */
static struct str first_word(struct str s)
{
    size_t n = 0;

    while (n < s.n && strchr(" \t\r\n(;", s.p[n]) == NULL)
        n++;
    return str_make(s.p, n);
}

/* Fills in from and name.  False: From does not name exactly one author. */
static bool read_author(struct mail *m, GMimeMessage *msg)
{
    InternetAddressList *list = g_mime_message_get_from(msg);
    size_t n_headers;

    header((GMimeObject *)msg, "From", &n_headers);
    if (n_headers != 1 || list == NULL || internet_address_list_length(list) != 1)
        return false;
    InternetAddress *a = internet_address_list_get_address(list, 0);
    if (!is_a(a, internet_address_mailbox_get_type()))
        return false;
    m->from = clean_dup(internet_address_mailbox_get_addr((InternetAddressMailbox *)a), 1024);
    if (m->from == NULL || !mail_is_address(str_of(m->from)))
        return false;
    for (char *p = m->from; *p != '\0'; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
    m->name = clean_dup(internet_address_get_name(a), MAX_NAME);
    if (m->name == NULL || m->name[0] == '\0' || strchr(m->name, '@') != NULL) {
        free(m->name); /* a name that looks like another address is not shown */
        m->name = xstrdup(m->from);
    }
    return true;
}

static void read_thread(struct mail *m, GMimeMessage *msg)
{
    const char *refs[] = {g_mime_object_get_header((GMimeObject *)msg, "References"),
                          g_mime_object_get_header((GMimeObject *)msg, "In-Reply-To")};

    m->message_id = id_dup(g_mime_message_get_message_id(msg));
    for (size_t i = 0; i < 2; i++) {
        GMimeReferences *r = refs[i] != NULL ? g_mime_references_parse(NULL, refs[i]) : NULL;
        if (r != NULL && g_mime_references_length(r) > 0) {
            char *first = id_dup(g_mime_references_get_message_id(r, 0));
            if (i == 1)
                m->in_reply_to = first != NULL ? xstrdup(first) : NULL;
            if (m->root == NULL)
                m->root = first;
            else
                free(first);
        }
        if (r != NULL)
            g_mime_references_free(r);
    }
    m->is_first = m->root == NULL;
    if (m->root == NULL && m->message_id != NULL)
        m->root = xstrdup(m->message_id);
}

/* ---- may an agent get it? ---- */

static const char *why_automatic(GMimeObject *o, const struct mail_rules *rules)
{
    struct str word = first_word(value_of(o, "Auto-Submitted"));
    struct str precedence = first_word(value_of(o, "Precedence"));
    struct str suppress = first_word(value_of(o, "X-Auto-Response-Suppress"));
    bool list = value_of(o, "List-Id").n > 0;

    if (word.n > 0 && !str_eq_ci(word, STR("no")))
        return "a program wrote it (Auto-Submitted), and answering it could start a loop";
    if (value_of(o, "X-Autoreply").n > 0 || value_of(o, "X-Autorespond").n > 0 ||
        (suppress.n > 0 && !str_eq_ci(suppress, STR("none")))) /* older programs, Exchange */
        return "a program wrote it (X-Autoreply, X-Autorespond or X-Auto-Response-Suppress)";
    if (str_eq_ci(precedence, STR("junk")) || str_eq_ci(precedence, STR("auto_reply")))
        return "it is bulk mail (Precedence)";
    if (list && !rules->allow_lists)
        return "it came through a mailing list (List-Id), and allow_lists is not set";
    if ((str_eq_ci(precedence, STR("bulk")) || str_eq_ci(precedence, STR("list"))) &&
        !(list && rules->allow_lists))
        return "it is bulk mail (Precedence)";
    return NULL;
}

static bool is_own(struct str from, const struct mail_rules *rules)
{
    for (size_t i = 0; i < rules->n_own; i++)
        if (str_eq(from, rules->own[i]))
            return true;
    return str_eq(from, rules->bot);
}

static const char *why_unproven(GMimeObject *o, struct str from, const struct mail_rules *rules)
{
    GMimeHeaderList *all = g_mime_object_get_header_list(o);
    int count = g_mime_header_list_get_count(all);
    struct str domain = str_skip(from, (size_t)str_find(from, '@') + 1);

    for (int i = 0; i < count && i < MAX_HEADERS; i++) {
        GMimeHeader *h = g_mime_header_list_get_header_at(all, i);
        struct str value = str_of(g_mime_header_get_raw_value(h));
        if (str_eq_ci(str_of(g_mime_header_get_name(h)), STR("Authentication-Results")) &&
            auth_is_of(value, rules->authserv_id))
            return auth_judge(value, domain, rules->suffixes);
    }
    return auth_missing;
}

static const char *why_refused(struct mail *m, GMimeMessage *msg, const struct mail_rules *rules)
{
    GMimeObject *o = (GMimeObject *)msg;
    struct str sender = value_of(o, "Return-Path");

    if (!read_author(m, msg))
        return "From does not name exactly one author";
    struct str from = str_of(m->from);
    if (is_own(from, rules))
        return "it comes from the bot's own address";
    if (str_eq(sender, STR("<>")) || str_starts(from, STR("mailer-daemon@")))
        return "a mail server wrote it (empty return path)";
    const char *why = why_automatic(o, rules);
    return why != NULL ? why : why_unproven(o, from, rules);
}

/* ---- parts ---- */

struct part_walk {
    struct mail *m;
    struct buf text; /* owned */
    unsigned n_parts;
    struct {
        GMimeMultipart *of;
        int next;
        bool chooses; /* multipart/alternative: its first child with words is shown */
        int told;     /* that child, from 1; 0: none yet */
    } in[MAX_DEPTH];
    size_t depth;
};

static void add_bytes(GMimeObject *o, struct buf *out)
{
    GMimeStream *mem = g_mime_stream_mem_new();
    bool part = is_a(o, g_mime_part_get_type());
    GMimeDataWrapper *content = part ? g_mime_part_get_content((GMimePart *)o) : NULL;

    if (content != NULL)
        g_mime_data_wrapper_write_to_stream(content, mem);
    else if (!part)
        g_mime_object_write_to_stream(o, NULL, mem);
    GByteArray *bytes = g_mime_stream_mem_get_byte_array((GMimeStreamMem *)mem);
    if (bytes->len <= MEDIA_MAX_BYTES)
        buf_add(out, bytes->data, bytes->len);
    g_object_unref(mem);
}

static void add_file(struct part_walk *w, GMimeObject *o, const char *name, const char *fallback)
{
    GMimeContentType *type = g_mime_object_get_content_type(o);
    struct mail *m = w->m;
    BUF_LOCAL bytes = BUF_INIT, media = BUF_INIT, file = BUF_INIT;

    if (m->n_files < ARRAY_LEN(m->files))
        add_bytes(o, &bytes);
    if (bytes.n == 0) {
        m->n_dropped++;
        return;
    }
    struct mail_file *f = &m->files[m->n_files++];
    buf_printf(&file, "%s/%s", g_mime_content_type_get_media_type(type),
               g_mime_content_type_get_media_subtype(type));
    media_type_add(&media, buf_str(&file));
    f->type = buf_take(&media);
    char *shown = clean_dup(name != NULL ? name : fallback, 200);
    buf_reset(&file);
    media_name_add(&file, str_of(shown));
    free(shown);
    f->name = buf_take(&file);
    f->bytes = bytes;
    bytes = BUF_INIT;
}

/* The words of a part, clean. */
static void read_words(GMimeObject *o, struct str text, bool html, struct buf *out)
{
    GMimeContentType *type = g_mime_object_get_content_type(o);
    struct str flowed = str_of(g_mime_content_type_get_parameter(type, "format"));
    struct str delsp = str_of(g_mime_content_type_get_parameter(type, "delsp"));
    BUF_LOCAL raw = BUF_INIT;

    if (html) {
        text_from_html(&raw, text);
        text_clean(out, buf_str(&raw), false);
    } else if (str_eq_ci(flowed, STR("flowed"))) {
        text_clean(&raw, text, false);
        text_unflow(out, buf_str(&raw), str_eq_ci(delsp, STR("yes")));
    } else {
        text_clean(out, text, false);
    }
}

/* A part is shown unless it is another form of what is shown already. */
static void add_text(struct part_walk *w, GMimeObject *o, bool html)
{
    char *text = g_mime_text_part_get_text((GMimeTextPart *)o);
    struct str s = str_of(text);
    bool shown = text != NULL && w->text.n <= 4 * TEXT_MAX;
    BUF_LOCAL words = BUF_INIT;

    for (size_t i = 0; i < w->depth; i++)
        shown &= !w->in[i].chooses || w->in[i].told == 0 || w->in[i].told == w->in[i].next;
    s.n = s.n < 8 * TEXT_MAX ? s.n : 8 * TEXT_MAX;
    if (shown)
        read_words(o, s, html, &words);
    g_free(text);
    s = str_trim(buf_str(&words));
    if (s.n == 0)
        return;
    for (size_t i = 0; i < w->depth; i++)
        w->in[i].told = w->in[i].next;
    if (w->text.n > 0)
        buf_add_c(&w->text, '\n');
    buf_add_str(&w->text, s);
}

static void take_part(struct part_walk *w, GMimeObject *o)
{
    GMimeContentType *type = g_mime_object_get_content_type(o);
    GMimeContentDisposition *d = g_mime_object_get_content_disposition(o);
    struct str how = d != NULL ? str_of(g_mime_content_disposition_get_disposition(d)) : STR_NULL;
    const char *name =
        is_a(o, g_mime_part_get_type()) ? g_mime_part_get_filename((GMimePart *)o) : NULL;
    bool text =
        is_a(o, g_mime_text_part_get_type()) && name == NULL && !str_eq_ci(how, STR("attachment"));

    if (g_mime_content_type_is_type(type, "application", "pgp-signature") ||
        g_mime_content_type_is_type(type, "application", "pkcs7-signature"))
        return;
    if (text && g_mime_content_type_is_type(type, "text", "plain"))
        add_text(w, o, false);
    else if (text && g_mime_content_type_is_type(type, "text", "html"))
        add_text(w, o, true);
    else if (is_a(o, g_mime_message_part_get_type()))
        add_file(w, o, name, "message.eml");
    else
        add_file(w, o, name, "");
}

static void go_into(struct part_walk *w, GMimeObject *o)
{
    GMimeContentType *type = g_mime_object_get_content_type(o);

    w->in[w->depth].of = (GMimeMultipart *)o;
    w->in[w->depth].next = w->in[w->depth].told = 0;
    w->in[w->depth++].chooses = g_mime_content_type_is_type(type, "multipart", "alternative");
}

/* Iterative: the depth is a stranger's choice. */
static void walk_parts(struct part_walk *w, GMimeObject *top)
{
    if (top == NULL)
        return;
    if (!is_a(top, g_mime_multipart_get_type())) {
        take_part(w, top);
        return;
    }
    go_into(w, top);
    while (w->depth > 0 && w->n_parts < MAX_PARTS) {
        GMimeMultipart *of = w->in[w->depth - 1].of;
        int at = w->in[w->depth - 1].next++;
        GMimeObject *o =
            at < g_mime_multipart_get_count(of) ? g_mime_multipart_get_part(of, at) : NULL;
        if (o == NULL) {
            w->depth--;
        } else if (!is_a(o, g_mime_multipart_get_type())) {
            w->n_parts++;
            take_part(w, o);
        } else if (w->depth < MAX_DEPTH) {
            w->n_parts++;
            go_into(w, o);
        }
    }
}

/* "Fwd: " as mail programs write it.  What a person forwards is what they want to show. */
static bool is_forward(struct str subject)
{
    static const char *const words[] = {"fwd", "fw", "wg",           "tr",          "rv",
                                        "enc", "i",  "pd",           "vs",          "vb",
                                        "vl",  "tv", "\u8f6c\u53d1", "\u8f49\u5bc4"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct str rest = str_skip(subject, strlen(words[i]));
        if (rest.n > 0 && str_eq_ci(str_make(subject.p, subject.n - rest.n), str_of(words[i])) &&
            (rest.p[0] == ':' || str_starts(rest, STR("\uff1a"))))
            return true;
    }
    return false;
}

/* The text that an agent gets for the words @said. */
static char *text_of(const struct mail *m, struct str said)
{
    struct str subject = str_of(m->subject);
    bool command = said.n > 0 && said.p[0] == '/';
    BUF_LOCAL out = BUF_INIT;

    if (said.n == 0)
        buf_add_str(&out, m->is_first ? subject : STR(""));
    else if (m->is_first && subject.n > 0 && !command)
        buf_printf(&out, "[Subject: %.*s]\n\n", STR_FMT(subject));
    buf_add_str(&out, said);
    if (out.n > TEXT_MAX) {
        out.n = TEXT_MAX;
        while (out.n > 0 && ((unsigned char)out.p[out.n] & 0xc0) == 0x80)
            out.n--;
        buf_add_str(&out, STR("\n[the rest of the mail was cut]"));
    }
    if (m->n_dropped > 0)
        buf_printf(&out, "%s[%zu attachments were left out]", out.n > 0 ? "\n" : "", m->n_dropped);
    return buf_take(&out);
}

static void read_text(struct mail *m, struct part_walk *w)
{
    struct str body = str_trim(buf_str(&w->text));
    BUF_LOCAL answer = BUF_INIT;

    if (is_forward(str_of(m->subject)))
        buf_add_str(&answer, body);
    else
        text_answer(&answer, body, m->is_first);
    m->text = text_of(m, buf_str(&answer));
    if (!m->is_first && answer.n < body.n)
        m->whole = text_of(m, body);
}

/* ---- bounces (RFC 3464) ---- */

/* The value of a field in the text of a report; absent: not there. */
static struct str field(struct str text, struct str name)
{
    struct str line;

    while (str_split(&text, '\n', &line))
        if (line.n > name.n && line.p[name.n] == ':' && str_eq_ci(str_make(line.p, name.n), name))
            return str_trim(str_skip(line, name.n + 1));
    return STR_NULL;
}

/* "failed; 550 5.1.1 ..." from the per-recipient fields; the first report of a mail counts.  False:
 * nothing failed. */
static bool read_failure(struct mail *m, struct str report)
{
    struct str action = field(report, STR("Action")), status = field(report, STR("Status"));
    struct str words = field(report, STR("Diagnostic-Code"));
    BUF_LOCAL why = BUF_INIT;

    if (!str_eq_ci(first_word(action), STR("failed")))
        return false;
    buf_printf(&why, "the mail came back: %.*s %.*s", STR_FMT(first_word(status)),
               words.n < 160 ? (int)words.n : 160, words.n > 0 ? words.p : "");
    if (m->bounced_why == NULL)
        m->bounced_why = clean_dup(buf_z(&why), 220);
    return true;
}

static void read_bounce(struct mail *m, GMimeMultipart *report)
{
    int n = g_mime_multipart_get_count(report);
    bool failed = false;

    for (int i = 0; i < n && i < 8; i++) {
        GMimeObject *o = g_mime_multipart_get_part(report, i);
        GMimeContentType *type = g_mime_object_get_content_type(o);
        BUF_LOCAL bytes = BUF_INIT;
        if (is_a(o, g_mime_message_part_get_type()) &&
            !g_mime_content_type_is_type(type, "message", "delivery-status")) {
            GMimeMessage *sent = g_mime_message_part_get_message((GMimeMessagePart *)o);
            if (sent != NULL && m->bounced_id == NULL)
                m->bounced_id = id_dup(g_mime_message_get_message_id(sent));
            continue;
        }
        add_bytes(o, &bytes);
        struct str text = buf_str(&bytes);
        text.n = text.n < 65536 ? text.n : 65536;
        if (g_mime_content_type_is_type(type, "message", "delivery-status"))
            failed |= read_failure(m, text);
        else if (g_mime_content_type_is_type(type, "text", "rfc822-headers") &&
                 m->bounced_id == NULL) {
            char *id = str_dup(field(text, STR("Message-ID")));
            m->bounced_id = id_dup(id);
            free(id);
        }
    }
    m->is_bounce = failed && m->bounced_id != NULL;
    if (!m->is_bounce)
        m->refused = "it is a report of a mail server";
}

/* ---- all of it ---- */

/* The bytes up to the first empty line, with it. */
static struct str head_of(struct str bytes)
{
    struct str rest = bytes, line;

    while (str_split(&rest, '\n', &line))
        if (line.n == 0 || (line.n == 1 && line.p[0] == '\r'))
            break;
    return str_make(bytes.p, rest.p != NULL ? (size_t)(rest.p - bytes.p) : bytes.n);
}

static bool is_header(struct str line)
{
    size_t n = 0;

    while (n < line.n && line.p[n] > ' ' && line.p[n] != ':')
        n++;
    while (n < line.n && (line.p[n] == ' ' || line.p[n] == '\t'))
        n++;
    return n < line.n && line.p[n] == ':';
}

/* The beginning of @bytes, up to the line where GMime would have made too many objects.  Every line
 * after a possible boundary, "--", may be a header, until an empty line; so may the line behind
 * that one, in a mail inside of the mail. */
static struct str frugal(struct str bytes)
{
    struct str rest = bytes, line;
    bool in_head = true, was_empty = false;
    size_t cost = 0;

    while (cost <= MAX_COST && str_split(&rest, '\n', &line)) {
        if (line.n > 0 && line.p[line.n - 1] == '\r')
            line.n--;
        if (str_starts(line, STR("--"))) {
            cost += PART_COST;
            in_head = true;
            was_empty = false;
            continue;
        }
        in_head = in_head && (!was_empty || line.n == 0 || is_header(line));
        was_empty = line.n == 0;
        if (!in_head)
            continue;
        cost++;
        for (size_t i = 0; i < line.n; i++)
            if (line.p[i] == ',' || line.p[i] == ';') /* an address, a parameter */
                cost += ITEM_COST;
    }
    return cost <= MAX_COST ? bytes : str_make(bytes.p, (size_t)(line.p - bytes.p));
}

static GMimeMessage *parse(struct str bytes)
{
    GMimeStream *stream = g_mime_stream_mem_new_with_buffer(bytes.p, bytes.n);
    GMimeParser *parser = g_mime_parser_new_with_stream(stream);
    GMimeMessage *msg = g_mime_parser_construct_message(parser, NULL);

    g_object_unref(parser);
    g_object_unref(stream);
    return msg;
}

/* Reads the headers.  True: the mail is a report. */
static bool read_head(struct mail *m, GMimeMessage *msg, const struct mail_rules *rules)
{
    GMimeObject *body = g_mime_message_get_mime_part(msg);
    GMimeContentType *type = body != NULL ? g_mime_object_get_content_type(body) : NULL;
    GDateTime *date = g_mime_message_get_date(msg);
    bool report = is_a(body, g_mime_multipart_get_type()) &&
                  g_mime_content_type_is_type(type, "multipart", "report");

    m->subject = clean_dup(g_mime_message_get_subject(msg), MAX_SUBJECT);
    m->date_ms = date != NULL ? (int64_t)g_date_time_to_unix(date) * 1000 : 0;
    read_thread(m, msg);
    if (report)
        read_author(m, msg);
    else
        m->refused = why_refused(m, msg, rules);
    return report;
}

static void read_body(struct mail *m, struct str bytes, bool report)
{
    struct str some = frugal(bytes);
    GMimeMessage *msg = parse(some);
    GMimeObject *body = msg != NULL ? g_mime_message_get_mime_part(msg) : NULL;
    struct part_walk w = {.m = m};

    if (report && is_a(body, g_mime_multipart_get_type())) {
        read_bounce(m, (GMimeMultipart *)body);
    } else {
        m->n_dropped += some.n < bytes.n;
        walk_parts(&w, body);
        read_text(m, &w);
        if (m->text[0] == '\0' && m->n_files == 0)
            m->refused = "it is empty";
    }
    buf_done(&w.text);
    if (msg != NULL)
        g_object_unref(msg);
}

void mail_read(struct mail *m, struct str bytes, const struct mail_rules *rules)
{
    struct str head = head_of(bytes);
    GMimeMessage *msg = head.n <= MAX_HEAD ? parse(head) : NULL;
    bool report = msg != NULL && read_head(m, msg, rules);

    if (head.n > MAX_HEAD)
        m->refused = "its headers are longer than 128 KiB";
    else if (msg == NULL)
        m->refused = "it cannot be read as a mail";
    if (msg != NULL)
        g_object_unref(msg);
    if (m->refused == NULL)
        read_body(m,
                  report ? str_make(bytes.p, bytes.n < MAX_REPORT ? bytes.n : MAX_REPORT) : bytes,
                  report);
}

void mail_event(const struct mail *m, struct event *ret)
{
    struct str from = m->from != NULL ? str_of(m->from) : STR("unknown");
    struct str name = m->name != NULL ? str_of(m->name) : from;

    *ret = (struct event){.platform = STR("email"),
                          .route_key = from,
                          .message_id = str_of(m->message_id),
                          .reply_to_message_id = str_of(m->in_reply_to),
                          .text = m->text != NULL ? str_of(m->text) : STR(""),
                          .chat_id = from,
                          .chat_type = STR("dm"),
                          .chat_name = name,
                          .user_id = from,
                          .user_name = name,
                          .user_display_name = name,
                          .user_handle = from,
                          .thread_id = str_of(m->root),
                          .mentions_bot = true};
    if (m->subject != NULL && m->subject[0] != '\0')
        ret->chat_topic = str_of(m->subject);
}

void mail_done(struct mail *m)
{
    char *texts[] = {m->from, m->name, m->subject, m->message_id, m->in_reply_to,
                     m->root, m->text, m->whole,   m->bounced_id, m->bounced_why};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(texts[i]);
    for (size_t i = 0; i < m->n_files; i++) {
        free(m->files[i].name);
        free(m->files[i].type);
        buf_done(&m->files[i].bytes);
    }
    *m = (struct mail){0};
}
