/* entry.c - design.  (entry.h has the contract.)
 *
 * One table lists the curated fields: where each may be given, and its type.  data_entry_read()
 * formats them once as JSON members, which are stored and returned unchanged. */
#include "data/entry.h"
#include <math.h>
#include <stdio.h>
#include "base/crypto.h"
#include "base/rand.h"

enum { SUMMARY_UNITS = 200, SUMMARY_KEPT = 197 };

static bool bad(struct fault *f, const char *fmt, const char *what)
{
    char text[200];

    snprintf(text, sizeof text, "%s %s", fmt, what);
    fault_set(f, FAULT_INVALID, "%s", text);
    fault_field(f, "connector_type", STR("data_store"));
    return false;
}

static bool given(struct json v)
{
    return json_type(v) != JSON_ABSENT && json_type(v) != JSON_NULL;
}

/* ---- ids ---- */

void data_uuid_make(uint8_t ret_uuid[DATA_UUID_BYTES])
{
    struct rand r = RAND_SYSTEM;

    rand_bytes(&r, ret_uuid, DATA_UUID_BYTES);
    ret_uuid[6] = (uint8_t)((ret_uuid[6] & 0x0f) | 0x40);
    ret_uuid[8] = (uint8_t)((ret_uuid[8] & 0x3f) | 0x80);
}

void data_uuid_text(const uint8_t uuid[DATA_UUID_BYTES], char ret_text[DATA_UUID_TEXT])
{
    static const char hex[] = "0123456789abcdef";
    char *to = ret_text;

    for (size_t i = 0; i < DATA_UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *to++ = '-';
        *to++ = hex[uuid[i] >> 4];
        *to++ = hex[uuid[i] & 15];
    }
    *to = '\0';
}

bool data_uuid_parse(struct str text, uint8_t ret_uuid[DATA_UUID_BYTES])
{
    char digits[2 * DATA_UUID_BYTES];
    size_t n = 0;

    if (text.n != DATA_UUID_TEXT - 1)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash != (text.p[i] == '-'))
            return false;
        if (!dash)
            digits[n++] = text.p[i];
    }
    return hex_decode(str_make(digits, n), ret_uuid, DATA_UUID_BYTES);
}

/* ---- the summary ---- */

/* Bytes of the first @units UTF-16 units of valid UTF-8; *@ret_split: the last one is half a
 * character, which is not among the bytes. */
static size_t cut_units(struct str s, size_t units, bool *ret_split)
{
    size_t at = 0, n = 0;

    *ret_split = false;
    while (at < s.n && n < units) {
        size_t step = utf8_seq_bytes(str_skip(s, at)), wide = step == 4 ? 2 : 1;
        if (n + wide > units) {
            *ret_split = true;
            return at;
        }
        n += wide;
        at += step > 0 ? step : 1;
    }
    return at;
}

void data_summary(struct str content, struct buf *out)
{
    ptrdiff_t eol = str_find(content, '\n');
    struct str line = eol >= 0 ? str_make(content.p, (size_t)eol) : content;
    bool split;

    /* Short texts need no counting: every unit takes at least one byte. */
    if (cut_units(line, SUMMARY_UNITS, &split) == line.n && !split) {
        buf_add_str(out, line);
        return;
    }
    buf_add(out, line.p, cut_units(line, SUMMARY_KEPT, &split));
    buf_add_z(out, split ? "\xef\xbf\xbd..." : "...");
}

/* ---- fields to filter by ---- */

const struct data_field data_fields[N_DATA_FIELDS] = {
    {"domain_tags", 't'},
    {"recipients", 'r'},
    {"agent_id", 'a'},
    {"vault", 'v'},
    {"thread_status", 's'},
    {"payload_type", 'y'},
    {"knowledge_type", 'k'},
    [DATA_PINNED] = {"pinned", 'p'}, /* last: its filter may be a negative one */
};

struct str data_mark(struct arena *arena, unsigned field, struct str value)
{
    char *mark = arena_alloc(arena, value.n + 1);

    mark[0] = data_fields[field].letter;
    if (value.n > 0)
        memcpy(mark + 1, value.p, value.n);
    return str_make(mark, value.n + 1);
}

static void add_mark(struct data_entry *e, struct arena *arena, unsigned field, struct json v)
{
    if (json_type(v) == JSON_STRING)
        e->marks[e->n_marks++] = data_mark(arena, field, json_as_str(v));
    else if (json_as_bool(v, false))
        e->marks[e->n_marks++] = data_mark(arena, field, STR(""));
    for (struct json_iter it = {0}; json_type(v) == JSON_ARRAY && json_next(v, &it);)
        e->marks[e->n_marks++] = data_mark(arena, field, json_as_str(it.value));
}

/* ---- reading ---- */

struct lists {
    struct json tags, recipients;
    struct json expires; /* JSON_ABSENT: not said */
};

static bool is_texts(struct json v)
{
    if (json_type(v) != JSON_ARRAY || json_count(v) > DATA_MAX_LIST)
        return false;
    for (struct json_iter it = {0}; json_next(v, &it);)
        if (json_type(it.value) != JSON_STRING || json_as_str(it.value).n > DATA_MAX_WORD)
            return false;
    return true;
}

static const char list_is[] = "is a list of at most 256 texts of at most 1024 bytes";

/* A field of the entry takes precedence over the same field in metadata. */
static bool read_lists(struct json entry, struct json metadata, struct lists *ret, struct fault *f)
{
    struct json tags = json_get(entry, "tags"), recipients = json_get(entry, "recipients"),
                expires = json_get(entry, "expires_at");

    ret->tags = given(tags) ? tags : json_get(metadata, "domain_tags");
    ret->recipients = given(recipients) ? recipients : json_get(metadata, "recipients");
    ret->expires = json_type(expires) != JSON_ABSENT ? expires : json_get(metadata, "expires_at");
    if (given(ret->tags) && !is_texts(ret->tags))
        return bad(f, "`tags`", list_is);
    if (given(ret->recipients) && !is_texts(ret->recipients))
        return bad(f, "`recipients`", list_is);
    return true;
}

static bool read_expiry(struct json v, int64_t *ret, struct fault *f)
{
    double d;

    *ret = DATA_FOREVER;
    if (!given(v))
        return true;
    if (!json_as_f64(v, &d) || !(fabs(d) < 9e15))
        return bad(f, "`expires_at`", "is a time in seconds, or null for ever");
    *ret = (int64_t)floor(d);
    return true;
}

static bool write_value(struct jw *w, struct json metadata, const char *key, enum json_type type,
                        const char *what, struct fault *f)
{
    struct json v = json_get(metadata, key);
    char name[48];

    if (!given(v))
        return true;
    snprintf(name, sizeof name, "`metadata.%s`", key);
    if (json_type(v) != type)
        return bad(f, name, what);
    jw_key(w, key);
    jw_value(w, v);
    return true;
}

static void write_list(struct jw *w, const char *key, struct json list)
{
    if (json_count(list) == 0)
        return;
    jw_key(w, key);
    jw_value(w, list);
}

static bool is_curated(struct str key)
{
    static const char *const curated[] = {"thread_status", "pinned",       "confidence",
                                          "domain_tags",   "payload_type", "knowledge_type",
                                          "recipients",    "expires_at",   "created_at",
                                          "agent_id",      "vault"};

    for (size_t i = 0; i < sizeof curated / sizeof curated[0]; i++)
        if (str_eq(key, str_of(curated[i])))
            return true;
    return false;
}

static void write_rest(struct jw *w, struct json metadata)
{
    bool any = false;

    for (struct json_iter it = {0}; json_next(metadata, &it);) {
        if (is_curated(it.key))
            continue;
        if (!any) {
            jw_kobj(w, "metadata");
        }
        any = true;
        jw_key_str(w, it.key);
        jw_value(w, it.value);
    }
    if (any)
        jw_end_obj(w);
}

static bool write_agent(struct jw *w, struct json metadata, const struct caller *who,
                        struct fault *f)
{
    struct json named = json_get(metadata, "agent_id");

    if (given(named) && json_type(named) != JSON_STRING)
        return bad(f, "`metadata.agent_id`", "is a text");
    if (given(named) && who->attest)
        jw_kstr(w, "agent_id", json_as_str(named));
    else if (who->identity.n > 0)
        jw_kstr(w, "agent_id", who->identity);
    return true;
}

/* All members after score except created_at, in the order of the contract. */
static bool write_extra(struct jw *w, struct json m, const struct lists *l, int64_t expires_at,
                        const struct caller *who, struct fault *f)
{
    if (!write_value(w, m, "thread_status", JSON_STRING, "is a text", f) ||
        !write_value(w, m, "pinned", JSON_BOOL, "is true or false", f) ||
        !write_value(w, m, "confidence", JSON_NUMBER, "is a number", f))
        return false;
    write_list(w, "domain_tags", l->tags);
    if (!write_value(w, m, "payload_type", JSON_STRING, "is a text", f) ||
        !write_value(w, m, "knowledge_type", JSON_STRING, "is a text", f))
        return false;
    write_list(w, "recipients", l->recipients);
    if (expires_at != DATA_FOREVER)
        jw_ki64(w, "expires_at", expires_at);
    if (!write_agent(w, m, who, f) || !write_value(w, m, "vault", JSON_STRING, "is a text", f))
        return false;
    write_rest(w, m);
    return true;
}

static bool read_content(struct json entry, size_t max_bytes, struct arena *arena,
                         struct data_entry *e, struct fault *f)
{
    struct str content = json_str(entry, "content");
    char what[80];

    snprintf(what, sizeof what, "is a text of at most %zu bytes", max_bytes);
    if (content.p == NULL || content.n > max_bytes)
        return bad(f, "`content`", what);
    e->content = arena_str(arena, content);
    return true;
}

void data_entry_marks(struct data_entry *e, struct arena *arena)
{
    struct json_parser *p = json_parser_new();
    struct buf text = BUF_INIT;
    struct json doc;

    e->n_marks = 0;
    buf_printf(&text, "{%.*s}", STR_FMT(e->extra));
    if (json_parse(p, buf_str(&text), &doc))
        for (unsigned i = 0; i < N_DATA_FIELDS; i++)
            add_mark(e, arena, i, json_get(doc, data_fields[i].name));
    buf_done(&text);
    json_parser_free(p);
}

bool data_entry_read(struct json entry, const struct caller *who, size_t max_content_bytes,
                     struct arena *arena, struct data_entry *ret_e, struct fault *ret_fault)
{
    struct json m = json_get(entry, "metadata");
    struct buf extra = {.limit = DATA_MAX_EXTRA};
    struct jw w = jw_begin(&extra);
    struct lists l = {0};

    if (!json_is_object(entry))
        return bad(ret_fault, "an entry", "is an object");
    if (given(m) && !json_is_object(m))
        return bad(ret_fault, "`metadata`", "is an object");
    if (!read_content(entry, max_content_bytes, arena, ret_e, ret_fault) ||
        !read_lists(entry, m, &l, ret_fault) ||
        !read_expiry(l.expires, &ret_e->expires_at, ret_fault))
        return false;
    bool ok = write_extra(&w, m, &l, ret_e->expires_at, who, ret_fault);
    if (ok && buf_failed(&extra))
        ok = bad(ret_fault, "an entry", "has at most 64 KiB beside its content");
    if (ok)
        ret_e->extra = arena_str(arena, buf_str(&extra));
    buf_done(&extra);
    if (ok)
        data_entry_marks(ret_e, arena);
    return ok;
}

void data_found_json(const struct data_found *f, struct jw *w)
{
    struct buf summary = BUF_INIT;
    char id[DATA_UUID_TEXT];

    data_uuid_text(f->uuid, id);
    data_summary(f->content, &summary);
    jw_obj(w);
    jw_kstr(w, "id", str_of(id));
    jw_kstr(w, "summary", buf_str(&summary));
    jw_kstr(w, "detail", f->content);
    if (f->score != NULL) {
        jw_key(w, "score");
        jw_f64(w, *f->score);
    }
    jw_ki64(w, "created_at", f->created_at);
    if (f->extra.n > 0)
        jw_raw(w, f->extra);
    jw_end_obj(w);
    buf_done(&summary);
}
