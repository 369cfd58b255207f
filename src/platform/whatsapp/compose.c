/* compose.c - what a message is made of.  (compose.h has the contract.)
 *
 * Marks of emphasis are toggled from left to right within a line: a mark opens if it touches the
 * word behind it and another one follows in the line, and closes if it touches the word before it.
 * A search for the other mark that failed is not repeated in its line, so the work is linear. */
#include "platform/whatsapp/compose.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/prompts.h"

enum {
    BUTTONS = 3,
    BUTTON_TITLE = 20,
    ROWS = 10,
    ROW_TITLE = 24,
    ROW_DESCRIPTION = 72,
    LABEL_MAX = 200, /* bytes of a link's label */
    ADDRESS_MAX = 2000,
};

/* ---- Markdown ---- */

enum mark { BOLD, ITALIC, STRIKE, MARKS };
static const char shown_as[MARKS] = {'*', '_', '~'};

struct wa_line { /* one line that is being written */
    struct str s;
    size_t at;
    bool is_open[MARKS];
    char by[MARKS];       /* the character that opened it */
    size_t failed[MARKS]; /* 1 + where a search for its end failed; 0: none did */
    bool heading;         /* all of it is bold already */
};

static bool is_space(struct str s, size_t i)
{
    return i >= s.n || (unsigned char)s.p[i] <= ' ';
}

static bool is_word(struct str s, size_t i)
{
    return i < s.n && ((unsigned char)s.p[i] >= 0x80 || str_has_only(str_make(s.p + i, 1), ""));
}

/* A run of @c that ends a mark of @n of them: no space before it, and for one "_" no word after. */
static bool may_close(struct str s, size_t i, char c, size_t n)
{
    bool alone = n > 1 || ((i == 0 || s.p[i - 1] != c) && (i + 1 >= s.n || s.p[i + 1] != c));

    return i + n <= s.n && i > 0 && !is_space(s, i - 1) && alone && (n > 1 || !is_word(s, i + n));
}

static bool has_end(struct wa_line *l, enum mark m, char c, size_t n)
{
    struct str s = l->s;

    if (l->failed[m] != 0)
        return false;
    for (size_t i = l->at + n + 1; i + n <= s.n; i++)
        if (s.p[i] == c && s.p[i + n - 1] == c && may_close(s, i, c, n))
            return true;
    l->failed[m] = l->at + 1;
    return false;
}

/* Writes the mark of @n times @c at l->at, as WhatsApp has it or as it came. */
static void write_mark(struct wa_line *l, enum mark m, char c, size_t n, struct buf *out)
{
    struct str s = l->s;
    bool closes = l->is_open[m] && l->by[m] == c && may_close(s, l->at, c, n);
    bool opens = !l->is_open[m] && !is_space(s, l->at + n) &&
                 (n > 1 || l->at == 0 || !is_word(s, l->at - 1)) && has_end(l, m, c, n);

    if (!closes && !opens)
        buf_add(out, s.p + l->at, n);
    else if (!(m == BOLD && l->heading))
        buf_add_c(out, shown_as[m]);
    if (closes || opens) {
        l->is_open[m] = opens;
        l->by[m] = c;
    }
    l->at += n;
}

/* "[label](address)" at l->at; false: it is none. */
static bool write_link(struct wa_line *l, struct buf *out)
{
    struct str rest = str_skip(l->s, l->at + 1);
    size_t n = 0, k;

    while (n < rest.n && n < LABEL_MAX && rest.p[n] != ']' && rest.p[n] != '[')
        n++;
    if (n == 0 || n + 2 >= rest.n || rest.p[n] != ']' || rest.p[n + 1] != '(')
        return false;
    for (k = n + 2; k < rest.n && k < n + ADDRESS_MAX && rest.p[k] != ')'; k++)
        if ((unsigned char)rest.p[k] <= ' ')
            return false;
    if (k >= rest.n || rest.p[k] != ')' || k == n + 2)
        return false;
    struct str label = str_make(rest.p, n), address = str_make(rest.p + n + 2, k - n - 2);
    if (str_eq(label, address))
        buf_add_str(out, address);
    else
        buf_printf(out, "%.*s (%.*s)", STR_FMT(label), STR_FMT(address));
    l->at += k + 2;
    return true;
}

/* A code span stays as it is.  False: it has no end in this line. */
static bool write_code(struct wa_line *l, struct buf *out)
{
    size_t n = 0, run = 0;

    while (l->at + n < l->s.n && l->s.p[l->at + n] == '`')
        n++;
    for (size_t i = l->at + n; i < l->s.n; i++) {
        run = l->s.p[i] == '`' ? run + 1 : 0;
        if (run != n || (i + 1 < l->s.n && l->s.p[i + 1] == '`'))
            continue;
        buf_add(out, l->s.p + l->at, i + 1 - l->at);
        l->at = i + 1;
        return true;
    }
    /* The rest of the line, so that no other backtick searches again. */
    buf_add_str(out, str_skip(l->s, l->at));
    l->at = l->s.n;
    return false;
}

static void write_inline(struct wa_line *l, struct buf *out)
{
    while (l->at < l->s.n) {
        char c = l->s.p[l->at], next = l->at + 1 < l->s.n ? l->s.p[l->at + 1] : '\0';
        if (c == '\\' && next != '\0' && strchr("\\`*_~[]#>-", next) != NULL) {
            buf_add_c(out, next);
            l->at += 2;
        } else if (c == '`') {
            write_code(l, out);
        } else if ((c == '*' || c == '_') && next == c) { /* three are bold, too */
            bool three = l->at + 2 < l->s.n && l->s.p[l->at + 2] == c;
            write_mark(l, BOLD, c, three ? 3 : 2, out);
        } else if (c == '~' && next == c) {
            write_mark(l, STRIKE, c, 2, out);
        } else if (c == '*' || c == '_') {
            write_mark(l, ITALIC, c, 1, out);
        } else if (!(c == '[' && write_link(l, out))) {
            buf_add_c(out, c);
            l->at++;
        }
    }
}

/* Is @line the fence of a block of code?  *@ret_c is its character. */
static bool is_fence(struct str line, char *ret_c)
{
    struct str s = str_trim(line);

    *ret_c = s.n > 0 ? s.p[0] : '\0';
    return str_starts(s, STR("```")) || str_starts(s, STR("~~~"));
}

static void write_line(struct str text, struct buf *out)
{
    struct wa_line l = {.s = text};
    size_t indent = 0, n = 0;

    while (indent < text.n && text.p[indent] == ' ')
        indent++;
    buf_add(out, text.p, indent);
    struct str rest = str_skip(text, indent);
    while (n < rest.n && n < 7 && rest.p[n] == '#')
        n++;
    if (n > 0 && n < 7 && n < rest.n && rest.p[n] == ' ') {
        l.s = str_trim(str_skip(rest, n));
        l.heading = l.s.n > 0;
    } else if (rest.n > 2 && (rest.p[0] == '*' || rest.p[0] == '+') && rest.p[1] == ' ') {
        buf_add_z(out, "- ");
        l.s = str_skip(rest, 2);
    } else {
        l.s = rest;
    }
    if (l.heading)
        buf_add_c(out, '*');
    write_inline(&l, out);
    if (l.heading)
        buf_add_c(out, '*');
}

void wa_text_add(struct buf *out, struct str markdown)
{
    struct str rest = markdown, line;
    char fence = '\0', c;
    bool first = true;

    while (str_split(&rest, '\n', &line)) {
        if (!first)
            buf_add_c(out, '\n');
        first = false;
        bool is = is_fence(line, &c);
        if (is && (fence == '\0' || (fence == c && str_trim(line).n == 3))) {
            buf_add_z(out, "```");
            fence = fence == '\0' ? c : '\0';
        } else if (fence != '\0') {
            buf_add_str(out, line);
        } else {
            write_line(line, out);
        }
    }
}

/* ---- cutting ---- */

/* How many bytes of @s have at most @max UTF-16 units. */
static size_t bytes_of_units(struct str s, size_t max)
{
    size_t n = 0, units = 0;

    while (n < s.n) {
        size_t bytes = utf8_seq_bytes(str_skip(s, n)), more = bytes > 3 ? 2 : 1;
        if (units + more > max)
            break;
        units += more;
        n += bytes > 0 ? bytes : 1;
    }
    return n;
}

static void add_cut(struct buf *out, struct str s, size_t max)
{
    if (bytes_of_units(s, max) == s.n) {
        buf_add_str(out, s);
        return;
    }
    buf_add(out, s.p, bytes_of_units(s, max - 1));
    buf_add_z(out, "\xe2\x80\xa6");
}

bool wa_parameter_add(struct buf *out, struct str text)
{
    BUF_LOCAL flat = BUF_INIT;
    bool blank = true;

    for (size_t i = 0; i < text.n; i++) {
        bool space = (unsigned char)text.p[i] <= ' ';
        if (!space || !blank)
            buf_add_c(&flat, space ? ' ' : text.p[i]);
        blank = space;
    }
    struct str line = str_trim(buf_str(&flat));
    bool fits = utf16_units(line) <= WA_TEMPLATE;
    if (fits)
        buf_add_str(out, line);
    return fits;
}

/* ---- questions ---- */

static void kcut(struct jw *w, const char *key, struct str label, size_t max)
{
    BUF_LOCAL cut = BUF_INIT;

    add_cut(&cut, label, max);
    jw_kstr(w, key, buf_str(&cut));
}

static bool fits_buttons(const struct prompt *q)
{
    for (size_t i = 0; i < q->n_options && q->n_options <= BUTTONS; i++) {
        if (utf16_units(str_of(q->options[i].label)) > BUTTON_TITLE)
            return false;
        for (size_t k = 0; k < i; k++) /* Meta wants them to differ */
            if (strcmp(q->options[i].label, q->options[k].label) == 0)
                return false;
    }
    return q->n_options <= BUTTONS;
}

static void write_button(struct jw *w, struct str token, struct str label)
{
    jw_obj(w);
    jw_kstr(w, "type", STR("reply"));
    jw_kobj(w, "reply");
    jw_kstr(w, "id", token);
    jw_kstr(w, "title", label);
    jw_end_obj(w);
    jw_end_obj(w);
}

static void write_row(struct jw *w, struct str token, struct str label)
{
    jw_obj(w);
    jw_kstr(w, "id", token);
    kcut(w, "title", label, ROW_TITLE);
    if (utf16_units(label) > ROW_TITLE)
        kcut(w, "description", label, ROW_DESCRIPTION);
    jw_end_obj(w);
}

bool wa_question_add(struct buf *out, struct str question, const struct prompt *q)
{
    struct jw w = jw_begin(out);
    bool buttons = fits_buttons(q);
    char token[PROMPT_TOKEN_MAX + 1];

    if (q->n_options > ROWS || str_trim(question).n == 0 || utf16_units(question) > WA_CAPTION)
        return false;
    jw_obj(&w);
    jw_kstr(&w, "type", buttons ? STR("button") : STR("list"));
    jw_kobj(&w, "body");
    jw_kstr(&w, "text", question);
    jw_end_obj(&w);
    jw_kobj(&w, "action");
    if (!buttons) {
        jw_kstr(&w, "button", STR("\xe2\x98\xb0")); /* a menu, in every language */
        jw_karr(&w, "sections");
        jw_obj(&w);
    }
    jw_karr(&w, buttons ? "buttons" : "rows");
    for (size_t i = 0; i < q->n_options; i++) {
        prompt_token(token, q, &q->options[i]);
        (buttons ? write_button : write_row)(&w, str_of(token), str_of(q->options[i].label));
    }
    jw_end_arr(&w);
    if (!buttons) {
        jw_end_obj(&w);
        jw_end_arr(&w);
    }
    jw_end_obj(&w);
    jw_end_obj(&w);
    return true;
}

/* ---- files ---- */

#define MB ((uint64_t)1 << 20)
#define OFFICE "application/vnd.openxmlformats-officedocument."
static const struct wa_files files[] = {
    {"image/jpeg", "image", NULL, 5 * MB},
    {"image/png", "image", NULL, 5 * MB},
    {"image/webp", "sticker", NULL, 500 * 1024},
    {"audio/aac", "audio", NULL, 16 * MB},
    {"audio/amr", "audio", NULL, 16 * MB},
    {"audio/mpeg", "audio", NULL, 16 * MB},
    {"audio/mp4", "audio", NULL, 16 * MB},
    {"audio/ogg", "audio", "audio/ogg; codecs=opus", 16 * MB},
    {"video/mp4", "video", NULL, 16 * MB},
    {"video/3gpp", "video", "video/3gp", 16 * MB},
    {"application/pdf", "document", NULL, 100 * MB},
    {"application/msword", "document", NULL, 100 * MB},
    {"application/vnd.ms-excel", "document", NULL, 100 * MB},
    {"application/vnd.ms-powerpoint", "document", NULL, 100 * MB},
    {OFFICE "wordprocessingml.document", "document", NULL, 100 * MB},
    {OFFICE "spreadsheetml.sheet", "document", NULL, 100 * MB},
    {OFFICE "presentationml.presentation", "document", NULL, 100 * MB},
    {"application/json", "document", "text/plain", 100 * MB},
    {"application/xml", "document", "text/plain", 100 * MB},
    {"text/", "document", "text/plain", 100 * MB},
};

const struct wa_files *wa_files_of(struct str type)
{
    struct str first;

    if (str_split(&type, ';', &first))
        type = str_trim(first);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct str known = str_of(files[i].type);
        if (str_eq_ci(type, known) || (str_ends(known, STR("/")) && str_starts(type, known)))
            return &files[i];
    }
    return NULL;
}

bool wa_files_captioned(const struct wa_files *f)
{
    return strcmp(f->message, "audio") != 0 && strcmp(f->message, "sticker") != 0;
}
