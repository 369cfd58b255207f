/* files_history.c - the lines of a history, read and written.  (files.h has the contract.)
 *
 * A line says everything about its version, so the last one alone tells what a skill is.  Lines
 * that the Skillscript runtime wrote say less: there the first has the author and the beginning. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "base/json.h"
#include "skills/files.h"

#define CHUNK (64u << 10)
#define LINE_MAX_BYTES (64u << 20) /* longer lines are not ours */

static void kstr_opt(struct jw *w, const char *key, const struct buf *b)
{
    if (b->n > 0)
        jw_kstr(w, key, buf_str(b));
}

void skill_line_write(const struct skill_next *n, bool with_source, struct buf *out)
{
    struct jw w = jw_begin(out);
    struct str hash = str_of(n->content_hash);

    jw_obj(&w);
    jw_kstr(&w, "name", n->name);
    jw_kstr(&w, "version", str_make(hash.p, SKILL_VERSION_HEX));
    jw_kstr(&w, "content_hash", hash);
    jw_kstr(&w, "status", str_of(skill_status_name(n->status)));
    if (n->has_previous)
        jw_kstr(&w, "previous_status", str_of(skill_status_name(n->previous)));
    jw_ki64(&w, "changed_at", n->changed_at);
    kstr_opt(&w, "changed_by", &n->changed_by);
    kstr_opt(&w, "author", &n->author);
    jw_ki64(&w, "created_at", n->created_at);
    jw_ki64(&w, "status_changed_at", n->status_changed_at);
    kstr_opt(&w, "description", &n->description);
    kstr_opt(&w, "type", &n->type);
    if (n->bag.n > 0) {
        jw_key(&w, "metadata_bag");
        jw_raw(&w, buf_str(&n->bag));
    }
    if (with_source)
        jw_kstr(&w, "source", buf_str(&n->source));
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

static bool is_hash(struct str s)
{
    uint8_t bytes[SHA256_BYTES];
    return s.n == SKILL_HASH_HEX && hex_decode(s, bytes, sizeof bytes);
}

bool skill_line_read(struct json_parser *p, struct str line, struct skill_line *ret_l)
{
    struct json doc;
    struct skill_head *h = &ret_l->head;
    struct skill_version *v = &ret_l->version;

    *ret_l = (struct skill_line){0};
    if (!json_parse(p, line, &doc) || !json_is_object(doc))
        return false;
    ret_l->deleted = json_as_bool(json_get(doc, "deleted"), false);
    v->name = json_str(doc, "name");
    v->content_hash = json_str(doc, "content_hash");
    v->changed_by = json_str(doc, "changed_by");
    if (!json_as_i64(json_get(doc, "changed_at"), &v->changed_at))
        v->changed_at = 0;
    if (ret_l->deleted)
        return true;
    if (!is_hash(v->content_hash) || !skill_status_parse(json_str(doc, "status"), &v->status))
        return false;
    v->has_previous = skill_status_parse(json_str(doc, "previous_status"), &v->previous);
    *h = (struct skill_head){.status = v->status,
                             .content_hash = v->content_hash,
                             .author = json_str(doc, "author"),
                             .description = json_str(doc, "description"),
                             .type = json_str(doc, "type"),
                             .source = json_str(doc, "source"),
                             .created_at = v->changed_at,
                             .updated_at = v->changed_at,
                             .status_changed_at = v->changed_at};
    ret_l->bag = json_get(doc, "metadata_bag");
    ret_l->is_whole = json_as_i64(json_get(doc, "created_at"), &h->created_at);
    json_as_i64(json_get(doc, "status_changed_at"), &h->status_changed_at);
    return true;
}

static int history_open(struct skill_dir *d, struct str name)
{
    char file[SKILL_NAME_MAX + sizeof SKILL_HISTORY_SUFFIX];

    snprintf(file, sizeof file, "%.*s" SKILL_HISTORY_SUFFIX, STR_FMT(name));
    return d->fd >= 0 ? openat(d->fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
}

static bool read_at(int fd, struct buf *out, int64_t at, size_t n)
{
    while (n > 0) {
        char *room = buf_room(out, n);
        ssize_t got = room != NULL ? pread(fd, room, n, at) : -1;
        if (got <= 0)
            return got == 0; /* cut off meanwhile */
        out->n += (size_t)got;
        n -= (size_t)got;
        at += got;
    }
    return true;
}

/* The last line of @text that is whole; its end as an offset, 0: none. */
static size_t last_line(struct str text, size_t *ret_start)
{
    const char *end = text.n > 0 ? memrchr(text.p, '\n', text.n) : NULL;

    if (end == NULL)
        return 0;
    const char *before = end > text.p ? memrchr(text.p, '\n', (size_t)(end - text.p)) : NULL;
    *ret_start = before != NULL ? (size_t)(before - text.p) + 1 : 0;
    return (size_t)(end - text.p) + 1;
}

enum skill_found skill_history_last(struct skill_dir *d, struct str name, struct buf *out,
                                    int64_t *ret_end)
{
    int fd = history_open(d, name);
    enum skill_found found = SKILL_MISSING;
    struct stat st;
    size_t start = 0, end = 0;

    *ret_end = 0;
    if (fd < 0)
        return errno == ENOENT || d->fd < 0 ? SKILL_MISSING : SKILL_FAILED;
    if (fstat(fd, &st) != 0)
        found = SKILL_FAILED;
    for (int64_t n = CHUNK; found == SKILL_MISSING && n <= 4 * (int64_t)LINE_MAX_BYTES; n *= 4) {
        int64_t from = st.st_size > n ? st.st_size - n : 0;
        buf_reset(out);
        if (!read_at(fd, out, from, (size_t)(st.st_size - from)))
            found = SKILL_FAILED;
        end = last_line(buf_str(out), &start);
        if (found == SKILL_MISSING && end > 0 && (start > 0 || from == 0)) {
            found = SKILL_FOUND;
            *ret_end = from + (int64_t)end;
        }
        if (from == 0)
            break;
    }
    close(fd);
    if (found == SKILL_FOUND) {
        out->n = end;
        buf_consume(out, start);
    }
    return found;
}

struct each {
    struct json_parser *parser;
    skill_line_cb *cb;
    void *ctx;
};

/* Whole lines off the front of @text.  False: the callback has enough. */
static bool take_lines(struct each *e, struct buf *text)
{
    size_t done = 0;
    bool more = true;

    while (more) {
        struct str rest = str_skip(buf_str(text), done);
        ptrdiff_t eol = str_find(rest, '\n');
        struct skill_line l;
        if (eol < 0)
            break;
        if (skill_line_read(e->parser, str_make(rest.p, (size_t)eol), &l) && !l.deleted)
            more = e->cb(e->ctx, &l);
        done += (size_t)eol + 1;
    }
    buf_consume(text, done);
    return more;
}

enum skill_found skill_history_each(struct skill_dir *d, struct str name, skill_line_cb *cb,
                                    void *ctx)
{
    int fd = history_open(d, name);
    struct buf text = {.limit = LINE_MAX_BYTES};
    struct each e = {json_parser_new(), cb, ctx};
    ssize_t got = 1;

    if (fd < 0) {
        json_parser_free(e.parser);
        return errno == ENOENT ? SKILL_MISSING : SKILL_FAILED;
    }
    while (got > 0) {
        char *room = buf_room(&text, CHUNK);
        got = room != NULL ? read(fd, room, CHUNK) : -1;
        if (got > 0) {
            text.n += (size_t)got;
            if (!take_lines(&e, &text))
                break;
        }
    }
    close(fd);
    buf_done(&text);
    json_parser_free(e.parser);
    return got < 0 ? SKILL_FAILED : SKILL_FOUND;
}

struct origin {
    int64_t *created_at;
    struct buf *author;
};

static bool on_first(void *ctx, const struct skill_line *l)
{
    struct origin *o = ctx;

    *o->created_at = l->version.changed_at;
    buf_reset(o->author);
    buf_add_str(o->author, l->head.author.p != NULL ? l->head.author : l->version.changed_by);
    return false;
}

enum skill_found skill_history_origin(struct skill_dir *d, struct str name, int64_t *ret_created_at,
                                      struct buf *ret_author)
{
    struct origin o = {ret_created_at, ret_author};
    return skill_history_each(d, name, on_first, &o);
}
