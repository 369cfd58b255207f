/* record.c - design.  (record.h has the contract.)
 *
 * The value is JSON: an operator reads it in the database, and simdjson reads it faster than we
 * would.  Fields are written in the order of the table, so the reader finds each member's field at
 * or just behind the one before, without a search.
 *
 * Lists are one level deep: an entry's form has no lists.  So nothing here calls itself. */
#include "store/record.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/log.h"
#include "store/store.h"

struct record_reader {
    struct json_parser *parser; /* owned */
    const struct seal *seal;    /* borrowed; may be NULL */
    struct buf plain;           /* decrypted texts of the last record; wiped before the next */
    const struct record_form *form;
    struct str key;
    char why[256];
};

static const struct record_field text_fields[] = {
    {.type = RECORD_TEXT, .size = sizeof(struct str)},
};
const struct record_form record_texts = RECORD_FORM(NULL, struct str, text_fields);

/* ---- members ---- */

static void *member(const struct record_field *f, void *thing)
{
    return (char *)thing + f->at;
}

static const void *member_const(const struct record_field *f, const void *thing)
{
    return (const char *)thing + f->at;
}

static size_t *counter(const struct record_field *f, void *thing)
{
    return (size_t *)(void *)((char *)thing + f->count_at);
}

static bool is_list(const struct record_field *f)
{
    return f->type == RECORD_STRUCTS || f->type == RECORD_HEAPED;
}

static bool is_text(const struct record_field *f)
{
    return f->type <= RECORD_CHARS;
}

/* The entries of a list; NULL: the list is empty. */
static char *entries(const struct record_field *f, void *thing, size_t *ret_n)
{
    *ret_n = *counter(f, thing);
    return f->type == RECORD_STRUCTS ? member(f, thing) : *(char **)member(f, thing);
}

static struct str text_of(const struct record_field *f, const void *thing)
{
    const void *m = member_const(f, thing);

    if (f->type == RECORD_TEXT)
        return *(const struct str *)m;
    if (f->type == RECORD_STRING)
        return str_of(*(char *const *)m);
    return *(const char *)m != '\0' ? str_of(m) : STR_NULL;
}

static bool is_sealed(const struct record_form *form)
{
    for (size_t i = 0; i < form->n_fields; i++)
        if (form->fields[i].flags & RECORD_SEALED)
            return true;
    return false;
}

bool record_has_sealed(const struct record_form *form)
{
    for (size_t i = 0; i < form->n_fields; i++)
        if (is_list(&form->fields[i]) && is_sealed(form->fields[i].of))
            return true;
    return is_sealed(form);
}

void record_seal_name(const struct record_form *form, struct str key, const char *field,
                      struct buf *out)
{
    buf_printf(out, "%s/%.*s/%s", form->ns, STR_FMT(key), field);
}

/* ---- writing ---- */

struct writer {
    struct jw w;
    const struct record_form *form;
    const struct seal *seal; /* borrowed; NULL: sealed texts are written as they are */
    struct str key;
};

static void write_sealed(struct writer *wr, const struct record_field *f, struct str plain)
{
    struct buf name = BUF_INIT, sealed = BUF_INIT;

    record_seal_name(wr->form, wr->key, f->name, &name);
    seal_secret(wr->seal, buf_str(&name), plain, &sealed);
    jw_str(&wr->w, buf_str(&sealed));
    buf_done(&name);
    buf_done(&sealed);
}

static bool is_absent(const struct record_field *f, const void *thing)
{
    const void *m = member_const(f, thing);
    const struct record_json *j = m;

    if (is_text(f))
        return text_of(f, thing).p == NULL;
    switch ((enum record_type)f->type) {
    case RECORD_I64:
    case RECORD_U64:
        return *(const uint64_t *)m == 0;
    case RECORD_U32:
        return *(const uint32_t *)m == 0;
    case RECORD_BOOL:
        return !*(const bool *)m;
    case RECORD_JSON:
        return j->text.n == 0 && json_type(j->value) == JSON_ABSENT;
    case RECORD_BYTES:
        for (size_t i = 0; i < f->size; i++)
            if (((const uint8_t *)m)[i] != 0)
                return false;
        return true;
    default:
        return *(const size_t *)(const void *)((const char *)thing + f->count_at) == 0;
    }
}

static void write_scalar(struct writer *wr, const struct record_field *f, const void *thing)
{
    const void *m = member_const(f, thing);
    const struct record_json *j = m;

    switch ((enum record_type)f->type) {
    case RECORD_I64:
        jw_i64(&wr->w, *(const int64_t *)m);
        return;
    case RECORD_U64:
        jw_u64(&wr->w, *(const uint64_t *)m);
        return;
    case RECORD_U32:
        if (f->words != NULL)
            jw_str(&wr->w, str_of(f->words[*(const uint32_t *)m]));
        else
            jw_u64(&wr->w, *(const uint32_t *)m);
        return;
    case RECORD_BOOL:
        jw_bool(&wr->w, *(const bool *)m);
        return;
    case RECORD_BYTES:
        jw_hex(&wr->w, m, f->size);
        return;
    case RECORD_JSON:
        if (j->text.n > 0)
            jw_raw(&wr->w, j->text);
        else
            jw_value(&wr->w, j->value);
        return;
    default:
        if (f->flags & RECORD_SEALED && wr->seal != NULL)
            write_sealed(wr, f, text_of(f, thing));
        else
            jw_str(&wr->w, text_of(f, thing));
    }
}

static bool is_written(const struct record_field *f, const void *thing)
{
    return !(f->flags & RECORD_KEY) && (f->flags & RECORD_NEEDED || !is_absent(f, thing));
}

static void write_entry(struct writer *wr, const struct record_form *form, const void *thing)
{
    if (form->fields[0].name == NULL) {
        write_scalar(wr, &form->fields[0], thing);
        return;
    }
    jw_obj(&wr->w);
    for (size_t i = 0; i < form->n_fields; i++)
        if (is_written(&form->fields[i], thing)) {
            jw_key(&wr->w, form->fields[i].name);
            write_scalar(wr, &form->fields[i], thing);
        }
    jw_end_obj(&wr->w);
}

static void write_list(struct writer *wr, const struct record_field *f, const void *thing)
{
    size_t n;
    const char *all = entries(f, (void *)thing, &n);

    jw_arr(&wr->w);
    for (size_t i = 0; i < n; i++)
        write_entry(wr, f->of, all + i * f->of->size);
    jw_end_arr(&wr->w);
}

static void write_value(struct writer *wr, const void *thing)
{
    const struct record_form *form = wr->form;

    jw_obj(&wr->w);
    for (size_t i = 0; i < form->n_fields; i++) {
        const struct record_field *f = &form->fields[i];
        if (!is_written(f, thing))
            continue;
        jw_key(&wr->w, f->name);
        if (is_list(f))
            write_list(wr, f, thing);
        else
            write_scalar(wr, f, thing);
    }
    jw_end_obj(&wr->w);
}

static void write_part(struct buf *out, const struct record_field *f, const void *thing)
{
    const void *m = member_const(f, thing);

    if (is_text(f))
        buf_add_str(out, text_of(f, thing));
    else if (f->type == RECORD_BYTES)
        hex_add(out, m, f->size);
    else if (f->type == RECORD_I64)
        buf_add_i64(out, *(const int64_t *)m);
    else if (f->type == RECORD_U64)
        buf_add_u64(out, *(const uint64_t *)m);
    else if (f->words != NULL)
        buf_add_z(out, f->words[*(const uint32_t *)m]);
    else
        buf_add_u64(out, *(const uint32_t *)m);
}

void record_write_prefix(const struct record_form *form, const void *thing, size_t parts,
                         struct buf *ret_prefix)
{
    for (size_t i = 0; parts > 0 && i < form->n_fields; i++)
        if (form->fields[i].flags & RECORD_KEY) {
            write_part(ret_prefix, &form->fields[i], thing);
            buf_add_c(ret_prefix, RECORD_SEPARATOR);
            parts--;
        }
}

void record_write(const struct record_form *form, const struct seal *seal, const void *thing,
                  struct buf *ret_key, struct buf *ret_value)
{
    BUF_LOCAL own = BUF_INIT;
    struct buf *key = ret_key != NULL ? ret_key : &own;
    size_t from = key->n, n_parts = 0;

    if (ret_key != NULL || seal != NULL) /* sealed texts are bound to the key */
        for (size_t i = 0; i < form->n_fields; i++)
            if (form->fields[i].flags & RECORD_KEY) {
                if (n_parts++ > 0)
                    buf_add_c(key, RECORD_SEPARATOR);
                write_part(key, &form->fields[i], thing);
            }
    if (ret_value != NULL) {
        struct writer wr = {jw_begin(ret_value), form, seal, str_skip(buf_str(key), from)};
        write_value(&wr, thing);
    }
}

/* ---- reading ---- */

struct record_reader *record_reader_new(const struct seal *seal)
{
    struct record_reader *r = xcalloc(1, sizeof *r);

    r->parser = json_parser_new();
    r->seal = seal;
    return r;
}

void record_reader_free(struct record_reader *r)
{
    if (r == NULL)
        return;
    json_parser_free(r->parser);
    buf_wipe(&r->plain);
    free(r);
}

const char *record_why(const struct record_reader *r)
{
    return r->why;
}

static bool refuse(struct record_reader *r, const char *field, const char *what)
{
    enum { SHOWN = 80 };
    struct buf key = BUF_INIT;

    buf_add_plain(&key, r->key.n > SHOWN ? str_make(r->key.p, SHOWN) : r->key);
    snprintf(r->why, sizeof r->why, "the %s record \"%.*s\" %s%s%s%s", r->form->ns,
             STR_FMT(buf_str(&key)), what, field != NULL ? " (field \"" : "",
             field != NULL ? field : "", field != NULL ? "\")" : "");
    buf_done(&key);
    return false;
}

static bool take_text(struct record_reader *r, const struct record_field *f, struct str s,
                      void *thing)
{
    void *m = member(f, thing);

    if (f->max != 0 && s.n > f->max)
        return refuse(r, f->name, "is damaged: a text is too long");
    if (f->type == RECORD_TEXT) {
        *(struct str *)m = s;
    } else if (f->type == RECORD_STRING) {
        *(char **)m = str_dup(s);
    } else {
        if (s.n >= f->size)
            return refuse(r, f->name, "is damaged: a text is too long");
        memcpy(m, s.p, s.n); /* the struct was zeroed */
    }
    return true;
}

static bool read_sealed(struct record_reader *r, const struct record_field *f, struct str sealed,
                        struct str *ret_plain)
{
    struct buf name = BUF_INIT;
    size_t before = r->plain.n;

    record_seal_name(r->form, r->key, f->name, &name);
    bool ok = unseal_secret(r->seal, buf_str(&name), sealed, &r->plain);
    buf_done(&name);
    if (!ok)
        return refuse(r, NULL, "does not open: damaged, or sealed under another master key");
    *ret_plain = str_make(r->plain.p + before, r->plain.n - before);
    return true;
}

static bool read_text(struct record_reader *r, const struct record_field *f, struct str s,
                      void *thing)
{
    if (s.p == NULL)
        return refuse(r, f->name, "is damaged: a text is none");
    if (f->flags & RECORD_SEALED && r->seal != NULL && !read_sealed(r, f, s, &s))
        return false;
    return take_text(r, f, s, thing);
}

static bool take_number(struct record_reader *r, const struct record_field *f, bool ok, uint64_t v,
                        void *thing)
{
    void *m = member(f, thing);

    if (!ok || (f->max != 0 && v > f->max) || (f->type == RECORD_U32 && v > UINT32_MAX))
        return refuse(r, f->name, "is damaged: a number is none, or out of range");
    if (f->type == RECORD_U32)
        *(uint32_t *)m = (uint32_t)v;
    else
        *(uint64_t *)m = v;
    return true;
}

static bool take_word(struct record_reader *r, const struct record_field *f, struct str word,
                      void *thing)
{
    for (uint32_t i = 0; f->words[i] != NULL; i++)
        if (str_eq(word, str_of(f->words[i]))) {
            *(uint32_t *)member(f, thing) = i;
            return true;
        }
    return refuse(r, f->name, "is damaged: an unknown word");
}

static bool take_bytes(struct record_reader *r, const struct record_field *f, struct str hex,
                       void *thing)
{
    return hex_decode(hex, member(f, thing), f->size) ||
           refuse(r, f->name, "is damaged: bytes are not hex, or too few or many");
}

static bool read_scalar(struct record_reader *r, const struct record_field *f, struct json v,
                        void *thing)
{
    uint64_t number = 0;
    int64_t sign = 0;
    bool ok;

    switch ((enum record_type)f->type) {
    case RECORD_I64:
        ok = json_as_i64(v, &sign);
        return take_number(r, f, ok, (uint64_t)sign, thing);
    case RECORD_U64:
    case RECORD_U32:
        if (f->words != NULL)
            return take_word(r, f, json_as_str(v), thing);
        ok = json_as_u64(v, &number);
        return take_number(r, f, ok, number, thing);
    case RECORD_BOOL:
        if (json_type(v) != JSON_BOOL)
            return refuse(r, f->name, "is damaged: a truth value is none");
        *(bool *)member(f, thing) = json_as_bool(v, false);
        return true;
    case RECORD_BYTES:
        return take_bytes(r, f, json_as_str(v), thing);
    case RECORD_JSON:
        ((struct record_json *)member(f, thing))->value = v;
        return true;
    default:
        return read_text(r, f, json_as_str(v), thing);
    }
}

/* The field called @name; the search begins at @hint and wraps around.  NULL: no such field. */
static const struct record_field *find_field(const struct record_form *form, size_t *hint,
                                             struct str name)
{
    for (size_t step = 0; step < form->n_fields; step++, *hint = (*hint + 1) % form->n_fields) {
        const struct record_field *f = &form->fields[*hint];
        if (!(f->flags & RECORD_KEY) && strncmp(f->name, name.p, name.n) == 0 &&
            f->name[name.n] == '\0')
            return f;
    }
    return NULL;
}

static bool is_missing(const struct record_field *f, const void *thing, bool seen)
{
    if (!(f->flags & RECORD_NEEDED))
        return false;
    if (is_text(f))
        return text_of(f, thing).n == 0;
    if (f->words != NULL || f->type == RECORD_JSON || f->type == RECORD_BOOL)
        return !seen && !(f->flags & RECORD_KEY);
    return is_absent(f, thing);
}

/* Reads all members of @doc except lists, whose type alone is checked. */
static bool read_members(struct record_reader *r, const struct record_form *form, struct json doc,
                         void *thing)
{
    uint32_t seen = 0;
    size_t at = 0;

    if (!json_is_object(doc))
        return refuse(r, NULL, "is damaged: it is no object");
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        const struct record_field *f = find_field(form, &at, it.key);
        if (f == NULL || seen & 1u << at)
            return refuse(r, f != NULL ? f->name : NULL, "is damaged: an unknown field, or twice");
        seen |= 1u << at;
        if (!is_list(f) && !read_scalar(r, f, it.value, thing))
            return false;
        if (is_list(f) && json_type(it.value) != JSON_ARRAY)
            return refuse(r, f->name, "is damaged: a list is none");
    }
    for (size_t i = 0; i < form->n_fields; i++)
        if (is_missing(&form->fields[i], thing, seen & 1u << i))
            return refuse(r, form->fields[i].name, "is damaged: a field is missing");
    return true;
}

static bool read_list(struct record_reader *r, const struct record_field *f, struct json list,
                      void *thing)
{
    size_t n = json_count(list), *count = counter(f, thing);
    char *all = member(f, thing);

    if (f->max != 0 && n > f->max)
        return refuse(r, f->name, "is damaged: a list is too long");
    if (f->type == RECORD_HEAPED && n > 0)
        all = *(char **)member(f, thing) = xcalloc(n, f->of->size);
    for (struct json_iter it = {0}; json_next(list, &it); (*count)++) {
        char *entry = all + *count * f->of->size;
        bool ok = f->of->fields[0].name == NULL ? read_scalar(r, &f->of->fields[0], it.value, entry)
                                                : read_members(r, f->of, it.value, entry);
        if (!ok) {
            (*count)++; /* so that record_done() frees this entry too */
            return false;
        }
    }
    return true;
}

static bool read_part(struct record_reader *r, const struct record_field *f, struct str part,
                      void *thing)
{
    uint64_t number = 0;
    int64_t sign = 0;
    bool ok;

    if (part.n == 0)
        return true; /* absent */
    if (is_text(f))
        return take_text(r, f, part, thing);
    if (f->words != NULL)
        return take_word(r, f, part, thing);
    if (f->type == RECORD_BYTES)
        return take_bytes(r, f, part, thing);
    if (f->type == RECORD_I64) {
        ok = str_to_i64(part, &sign);
        number = (uint64_t)sign;
    } else {
        ok = str_to_u64(part, &number);
    }
    return take_number(r, f, ok, number, thing);
}

static bool read_key(struct record_reader *r, void *thing)
{
    const struct record_form *form = r->form;
    struct str rest = r->key, part;
    size_t left = 0;

    for (size_t i = 0; i < form->n_fields; i++)
        left += (form->fields[i].flags & RECORD_KEY) != 0;
    for (size_t i = 0; i < form->n_fields; i++) {
        if (!(form->fields[i].flags & RECORD_KEY))
            continue;
        if (--left == 0)
            part = rest; /* the last part may contain anything */
        else if (!str_split(&rest, RECORD_SEPARATOR, &part) || rest.p == NULL)
            return refuse(r, form->fields[i].name, "is damaged: its key has too few parts");
        if (!read_part(r, &form->fields[i], part, thing))
            return false;
    }
    return true;
}

bool record_read(struct record_reader *r, const struct record_form *form, struct str key,
                 struct str value, void *ret_thing)
{
    struct json doc;

    r->form = form;
    r->key = key;
    memset(ret_thing, 0, form->size);
    if (r->plain.n > 0)
        secret_wipe(r->plain.p, r->plain.n);
    buf_reset(&r->plain);
    (void)buf_room(&r->plain, value.n); /* must not move later; plain texts are shorter */
    bool ok = json_parse(r->parser, value, &doc) || refuse(r, NULL, "is damaged: it is no JSON");
    ok = ok && read_key(r, ret_thing) && read_members(r, form, doc, ret_thing);
    for (size_t i = 0; ok && i < form->n_fields; i++)
        ok = !is_list(&form->fields[i]) ||
             read_list(r, &form->fields[i], json_get(doc, form->fields[i].name), ret_thing);
    if (!ok)
        record_done(form, ret_thing);
    return ok;
}

/* ---- memory that a struct owns ---- */

static void scalar_done(const struct record_field *f, void *thing)
{
    char **text = member(f, thing);

    if (f->type == RECORD_CHARS && f->flags & RECORD_SEALED)
        secret_wipe(text, f->size);
    if (f->type != RECORD_STRING)
        return;
    if (*text != NULL && f->flags & RECORD_SEALED)
        secret_wipe(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

static void list_done(const struct record_field *f, void *thing)
{
    size_t n;
    char *all = entries(f, thing, &n);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < f->of->n_fields; k++)
            scalar_done(&f->of->fields[k], all + i * f->of->size);
    *counter(f, thing) = 0;
    if (f->type == RECORD_HEAPED) {
        free(all);
        *(char **)member(f, thing) = NULL;
    }
}

void record_done(const struct record_form *form, void *thing)
{
    for (size_t i = 0; i < form->n_fields; i++)
        if (is_list(&form->fields[i]))
            list_done(&form->fields[i], thing);
        else
            scalar_done(&form->fields[i], thing);
}

/* ---- the store ---- */

struct store_put *record_put(struct store *st, const struct record_form *form,
                             const struct seal *seal, const void *thing, bool urgent,
                             void (*done)(void *ctx, enum bh_err err), void *ctx)
{
    enum { USUAL_BYTES = 1000 };
    BUF_LOCAL key = BUF_INIT, value = BUF_INIT;

    buf_room(&value, USUAL_BYTES); /* once, instead of growing step by step */
    record_write(form, seal, thing, &key, &value);
    struct store_kv item = {KV_PUT, form->ns, buf_str(&key), buf_str(&value)};
    return store_put(st, &item, 1, urgent, done, ctx);
}

void record_delete(struct store *st, const struct record_form *form, struct str key)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = form->ns, .key = key};

    store_put(st, &item, 1, false, NULL, NULL);
}

struct record_loading {
    const struct record_form *form;
    struct record_reader *reader;
    record_cb *each;
    void *ctx;
    void *thing; /* owned; one for all records */
    char *why;   /* borrowed, 256 bytes; about the first damaged record */
    bool damaged;
};

static void on_record(void *ctx, struct str key, struct str value)
{
    struct record_loading *l = ctx;
    struct record_reader *r = l->reader;
    bool ok = record_read(r, l->form, key, value, l->thing);

    if (ok && l->each(l->ctx, key, l->thing))
        return;
    if (ok)
        refuse(r, NULL, "is damaged: it contradicts itself");
    if (l->form->lossy)
        log_warn(NULL, "skipped a record: %s", r->why);
    else if (!l->damaged)
        memcpy(l->why, r->why, sizeof r->why);
    l->damaged = !l->form->lossy;
}

enum bh_err record_load(struct store *st, const struct record_form *form,
                        struct record_reader *reader, struct str prefix, record_cb *each, void *ctx,
                        char *ret_why)
{
    struct record_reader *own = reader == NULL ? record_reader_new(NULL) : NULL;
    struct record_loading l = {.form = form,
                               .reader = own != NULL ? own : reader,
                               .each = each,
                               .ctx = ctx,
                               .thing = xcalloc(1, form->size),
                               .why = ret_why};
    enum bh_err err =
        st->ops->load_records(st, form->ns, prefix.p != NULL ? prefix : STR(""), on_record, &l);

    if (err != BH_OK)
        snprintf(ret_why, 256, "the %s records cannot be read from the store", form->ns);
    else if (l.damaged)
        err = BH_REFUSED;
    free(l.thing);
    record_reader_free(own);
    return err;
}

enum bh_err record_load_like(struct store *st, const struct record_form *form, const void *like,
                             size_t parts, record_cb *each, void *ctx, char *ret_why)
{
    struct buf prefix = BUF_INIT;

    record_write_prefix(form, like, parts, &prefix);
    enum bh_err err = record_load(st, form, NULL, buf_str(&prefix), each, ctx, ret_why);
    buf_done(&prefix);
    return err;
}

void record_delete_like(struct store *st, const struct record_form *form, const void *thing)
{
    struct buf key = BUF_INIT;

    record_write(form, NULL, thing, &key, NULL);
    record_delete(st, form, buf_str(&key));
    buf_done(&key);
}
