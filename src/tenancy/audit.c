/* audit.c - design.  (audit.h has the contract.)
 *
 * The number and the hash of an entry are known when its transaction is submitted; the store keeps
 * the order of writes, so several may be under way.  When the newest of them fails, its number is
 * given to the next entry.  When an older one fails, a later one stands on its hash already: then
 * the entry is written by itself, marked as failed, and a further entry says so. */
#include "tenancy/audit.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/record.h"

enum { PAGE = 256, LOOKS_MAX = 4096, BEGUN = 1024 };

struct audit_record {
    char seq[17]; /* 16 hex digits: keys sort by number */
    struct str entry;
    uint8_t digest[SHA256_BYTES], prev[SHA256_BYTES], hash[SHA256_BYTES];
    bool failed; /* the change did not happen; a later entry says so too */
};
static const struct record_field fields[] = {
    RECORD_FIELD(struct audit_record, seq, "seq", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct audit_record, entry, "entry", 0, .max = 2 * AUDIT_TEXT),
    RECORD_FIELD(struct audit_record, digest, "digest", 0),
    RECORD_FIELD(struct audit_record, prev, "prev", 0),
    RECORD_FIELD(struct audit_record, hash, "hash", 0),
    RECORD_FIELD(struct audit_record, failed, "failed", 0),
};
const struct record_form audit_form = RECORD_FORM("audit", struct audit_record, fields);

struct audit_head {
    char name[8]; /* "head" */
    uint64_t seq;
    uint8_t hash[SHA256_BYTES];
};
static const struct record_field head_fields[] = {
    RECORD_FIELD(struct audit_head, name, "name", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct audit_head, seq, "seq", 0),
    RECORD_FIELD(struct audit_head, hash, "hash", 0),
};
const struct record_form audit_head_form =
    RECORD_FORM("audit_head", struct audit_head, head_fields);

struct audit_ticket {
    struct list link; /* audit->under_way, in order */
    struct audit *a;
    uint64_t seq;
    uint8_t prev[SHA256_BYTES];
    bool failed;
    struct buf text, key, value, head_key, head_value;
};

struct audit {
    struct clock *clock;
    struct store *store;
    uint64_t last, serial;
    uint64_t begun[BEGUN];      /* serials of callers whose change has an entry */
    uint8_t hash[SHA256_BYTES]; /* of the last entry */
    struct list under_way;      /* audit_ticket */
    struct list reads;          /* audit_read */
    struct audit_who who;
    struct json_parser *parser;
};

static const char *const kinds[] = {"server", "operator", "admin",     "gateway",
                                    "key",    "person",   "enrollment"};

struct audit_who audit_who_of(enum audit_kind kind, const char *what, struct str id,
                              struct str from)
{
    struct audit_who w = {.kind = kind, .what = what};

    snprintf(w.id, sizeof w.id, "%.*s", (int)(id.n < sizeof w.id ? id.n : sizeof w.id - 1),
             id.n > 0 ? id.p : "");
    snprintf(w.from, sizeof w.from, "%.*s",
             (int)(from.n < sizeof w.from ? from.n : sizeof w.from - 1), from.n > 0 ? from.p : "");
    return w;
}

static void on_head(void *ctx, struct str key, struct str value)
{
    struct audit *a = ctx;
    struct record_reader *reader = record_reader_new(NULL);
    struct audit_head head;

    if (record_read(reader, &audit_head_form, key, value, &head)) {
        a->last = head.seq;
        memcpy(a->hash, head.hash, sizeof a->hash);
    }
    record_reader_free(reader);
}

enum bh_err audit_open(struct clock *clock, struct store *store, struct audit **ret, char *ret_why)
{
    struct audit *a = xcalloc(1, sizeof *a);

    *a = (struct audit){.clock = clock, .store = store, .parser = json_parser_new()};
    list_init(&a->under_way);
    list_init(&a->reads);
    if (store->ops->load_records(store, audit_head_form.ns, STR_NULL, on_head, a) != BH_OK) {
        audit_free(a);
        return bh_err_why(BH_UNAVAILABLE, ret_why, "the audit log cannot be read");
    }
    *ret = a;
    return BH_OK;
}

static void ticket_free(struct audit_ticket *t)
{
    list_remove(&t->link);
    buf_done(&t->text);
    buf_done(&t->key);
    buf_done(&t->value);
    buf_done(&t->head_key);
    buf_done(&t->head_value);
    free(t);
}

static void reads_free(struct audit *a);

void audit_free(struct audit *a)
{
    if (a == NULL)
        return;
    list_each (&a->under_way, it, nxt)
        ticket_free(list_entry(it, struct audit_ticket, link));
    reads_free(a);
    json_parser_free(a->parser);
    free(a);
}

void audit_as(struct audit *a, const struct audit_who *who)
{
    if (a == NULL)
        return;
    a->who = who != NULL ? *who : (struct audit_who){0};
    a->who.serial = ++a->serial;
}

const struct audit_who *audit_current(const struct audit *a)
{
    return &a->who;
}

void audit_began(struct audit *a)
{
    a->begun[a->who.serial % BEGUN] = a->who.serial;
}

bool audit_has_begun(const struct audit *a, const struct audit_who *who)
{
    return a->begun[who->serial % BEGUN] == who->serial;
}

/* ---- texts ---- */

struct jw audit_begin(struct audit *a, const struct audit_who *who, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_ki64(&w, "at", clock_wall_ms(a->clock));
    jw_kstr(&w, "by", str_of(kinds[who->kind]));
    if (who->id[0] != '\0')
        jw_kstr(&w, "who", str_of(who->id));
    if (who->from[0] != '\0')
        jw_kstr(&w, "from", str_of(who->from));
    jw_kstr(&w, "what", str_of(who->what));
    return w;
}

static const struct record_field *field_of(const struct record_form *form, struct str name)
{
    for (size_t i = 0; form != NULL && i < form->n_fields; i++)
        if (form->fields[i].name != NULL && str_eq(name, str_of(form->fields[i].name)))
            return &form->fields[i];
    return NULL;
}

static void write_member(struct jw *w, const struct record_form *form, const struct json_iter *it)
{
    const struct record_field *f = field_of(form, it->key);
    BUF_LOCAL name = BUF_INIT;

    buf_add_str(&name, it->key);
    if (f != NULL && (f->flags & RECORD_SEALED) != 0)
        jw_kstr(w, buf_z(&name), STR("redacted"));
    else
        jw_kvalue(w, buf_z(&name), it->value);
}

/* Lists of structs have a form of their own, without lists in it. */
static void write_list(struct jw *w, struct str key, const struct record_form *of, struct json list)
{
    BUF_LOCAL name = BUF_INIT;

    buf_add_str(&name, key);
    jw_karr(w, buf_z(&name));
    for (struct json_iter it = {0}; json_next(list, &it);) {
        if (!json_is_object(it.value)) {
            bool sealed = of->n_fields > 0 && (of->fields[0].flags & RECORD_SEALED) != 0;
            if (sealed)
                jw_str(w, STR("redacted"));
            else
                jw_value(w, it.value);
            continue;
        }
        jw_obj(w);
        for (struct json_iter in = {0}; json_next(it.value, &in);)
            write_member(w, of, &in);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

void audit_write_value(struct audit *a, struct jw *w, const char *key,
                       const struct record_form *form, struct str value)
{
    struct json doc;

    jw_key(w, key);
    if (value.n == 0 || !json_parse(a->parser, value, &doc) || !json_is_object(doc)) {
        jw_null(w);
        return;
    }
    jw_obj(w);
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        const struct record_field *f = field_of(form, it.key);
        if (f != NULL && f->of != NULL && json_type(it.value) == JSON_ARRAY)
            write_list(w, it.key, f->of, it.value);
        else
            write_member(w, form, &it);
    }
    jw_end_obj(w);
}

/* ---- the chain ---- */

static void chain(const uint8_t prev[SHA256_BYTES], uint64_t seq,
                  const uint8_t digest[SHA256_BYTES], uint8_t ret[SHA256_BYTES])
{
    uint8_t all[2 * SHA256_BYTES + 8];

    memcpy(all, prev, SHA256_BYTES);
    for (int i = 0; i < 8; i++)
        all[SHA256_BYTES + i] = (uint8_t)(seq >> (56 - 8 * i));
    memcpy(all + SHA256_BYTES + 8, digest, SHA256_BYTES);
    sha256(str_make(all, sizeof all), ret);
}

static void write_ticket(struct audit_ticket *t)
{
    struct audit_record rec = {.entry = buf_str(&t->text), .failed = t->failed};

    snprintf(rec.seq, sizeof rec.seq, "%016" PRIx64, t->seq);
    memcpy(rec.prev, t->prev, sizeof rec.prev);
    sha256(rec.entry, rec.digest);
    chain(t->prev, t->seq, rec.digest, rec.hash);
    buf_reset(&t->key);
    buf_reset(&t->value);
    record_write(&audit_form, NULL, &rec, &t->key, &t->value);
    if (!t->failed) {
        struct audit_head head = {.name = "head", .seq = t->seq};
        memcpy(head.hash, rec.hash, sizeof head.hash);
        record_write(&audit_head_form, NULL, &head, &t->head_key, &t->head_value);
        memcpy(t->a->hash, rec.hash, sizeof t->a->hash);
    }
}

struct audit_ticket *audit_add(struct audit *a, struct str entry, struct store_kv ret[AUDIT_ITEMS])
{
    struct audit_ticket *t = xcalloc(1, sizeof *t);

    *t = (struct audit_ticket){.a = a, .seq = ++a->last};
    memcpy(t->prev, a->hash, sizeof t->prev);
    buf_add_str(&t->text, entry);
    write_ticket(t);
    list_append(&a->under_way, &t->link);
    ret[0] = (struct store_kv){.verb = KV_PUT,
                               .ns = audit_form.ns,
                               .key = buf_str(&t->key),
                               .value = buf_str(&t->value)};
    ret[1] = (struct store_kv){.verb = KV_PUT,
                               .ns = audit_head_form.ns,
                               .key = buf_str(&t->head_key),
                               .value = buf_str(&t->head_value)};
    return t;
}

static void on_noted(void *ctx, enum bh_err err)
{
    struct audit_ticket *t = ctx;

    audit_end(t->a, t, err);
}

/* Later entries stand on the hash of @t, whose change did not happen. */
static void write_failed(struct audit *a, struct audit_ticket *t)
{
    char more[64];
    struct store_kv item;
    struct audit_who who = {.what = "changeFailed"};

    t->failed = true;
    write_ticket(t);
    item = (struct store_kv){.verb = KV_PUT,
                             .ns = audit_form.ns,
                             .key = buf_str(&t->key),
                             .value = buf_str(&t->value)};
    store_put(a->store, &item, 1, true, NULL, NULL);
    snprintf(more, sizeof more, "\"entry\":%" PRIu64, t->seq);
    audit_note(a, &who, str_of(more));
}

void audit_end(struct audit *a, struct audit_ticket *t, enum bh_err err)
{
    if (err == BH_OK) {
        ticket_free(t);
        return;
    }
    t->failed = true;
    while (!list_is_empty(&a->under_way)) {
        struct audit_ticket *last = list_entry(a->under_way.prev, struct audit_ticket, link);
        if (!last->failed || last->seq != a->last)
            break;
        a->last--; /* nothing stands on it: its number is free again */
        memcpy(a->hash, last->prev, sizeof a->hash);
        if (last == t)
            t = NULL;
        ticket_free(last);
    }
    if (t == NULL)
        return;
    write_failed(a, t);
    ticket_free(t);
}

void audit_note(struct audit *a, const struct audit_who *who, struct str more)
{
    BUF_LOCAL text = BUF_INIT;
    struct store_kv items[AUDIT_ITEMS];

    if (a == NULL)
        return;
    struct jw w = audit_begin(a, who, &text);
    jw_end_obj(&w);
    if (more.n > 0) { /* before the closing brace */
        text.n--;
        buf_add_c(&text, ',');
        buf_add_str(&text, more);
        buf_add_c(&text, '}');
    }
    struct audit_ticket *t = audit_add(a, buf_str(&text), items);
    store_put(a->store, items, AUDIT_ITEMS, true, on_noted, t);
}

/* ---- reading ---- */

struct audit_read {   /* a list or a verification under way */
    struct list link; /* audit->reads */
    struct audit *a;
    struct store_scan scan;
    struct audit_filter filter;
    char *tenant, *expect; /* owned */
    struct buf *out;       /* borrowed */
    audit_done_cb *done;
    void *ctx;
    struct jw w;
    struct buf after;
    struct record_reader *reader;
    size_t shown, looks;
    uint64_t next;
    /* verifying */
    uint64_t n, first, redacted;
    uint64_t last_seq;
    uint8_t hash[SHA256_BYTES];
    bool found;
    char problem[160];
};

static void read_free(struct audit_read *r)
{
    list_remove(&r->link);
    store_scan_free(&r->scan);
    record_reader_free(r->reader);
    buf_done(&r->after);
    free(r->tenant);
    free(r->expect);
    free(r);
}

static void reads_free(struct audit *a)
{
    list_each (&a->reads, it, nxt)
        read_free(list_entry(it, struct audit_read, link));
}

static struct audit_read *read_new(struct audit *a, struct buf *out, audit_done_cb *done, void *ctx)
{
    struct audit_read *r = xcalloc(1, sizeof *r);

    r->a = a;
    r->out = out;
    r->done = done;
    r->ctx = ctx;
    r->w = jw_begin(out);
    r->reader = record_reader_new(NULL);
    list_append(&a->reads, &r->link);
    return r;
}

static void read_page(struct audit_read *r, store_done_cb *done, bool reverse)
{
    r->scan = (struct store_scan){.op = {.done = done},
                                  .ns = audit_form.ns,
                                  .after = r->after.n > 0 ? buf_str(&r->after) : STR_NULL,
                                  .limit = PAGE,
                                  .max_bytes = 512 << 10,
                                  .reverse = reverse};
    store_scan(r->a->store, &r->scan);
}

static void hex_of(const uint8_t hash[SHA256_BYTES], char ret[2 * SHA256_BYTES + 1])
{
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(ret + 2 * i, 3, "%02x", hash[i]);
}

static void write_entry(struct audit_read *r, const struct audit_record *rec, struct json doc)
{
    char hash[2 * SHA256_BYTES + 1];

    hex_of(rec->hash, hash);
    jw_obj(&r->w);
    jw_ki64(&r->w, "seq", (int64_t)strtoull(rec->seq, NULL, 16));
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        BUF_LOCAL name = BUF_INIT;
        buf_add_str(&name, it.key);
        jw_kvalue(&r->w, buf_z(&name), it.value);
    }
    if (rec->entry.n == 0)
        jw_kbool(&r->w, "redacted", true);
    if (rec->failed)
        jw_kbool(&r->w, "failed", true);
    jw_kstr(&r->w, "hash", str_of(hash));
    jw_end_obj(&r->w);
    r->shown++;
}

/* False: the page ends here. */
static bool list_one(struct audit_read *r, const struct audit_record *rec)
{
    struct json doc = {0};
    int64_t at_ms = 0;
    bool read = rec->entry.n > 0 && json_parse(r->a->parser, rec->entry, &doc);

    if (read)
        json_as_i64(json_get(doc, "at"), &at_ms);
    if (read && r->filter.since_ms > 0 && at_ms < r->filter.since_ms)
        return false; /* newest first: everything behind is older */
    bool wanted =
        (r->filter.until_ms == 0 || at_ms <= r->filter.until_ms) &&
        (r->tenant == NULL || (read && str_eq(json_str(doc, "tenant"), str_of(r->tenant))));
    if (wanted)
        write_entry(r, rec, read ? doc : (struct json){0});
    r->next = strtoull(rec->seq, NULL, 16);
    return r->shown < r->filter.limit && ++r->looks < LOOKS_MAX;
}

static void on_listed(struct store_op *op, enum bh_err err)
{
    struct audit_read *r = container_of(op, struct audit_read, scan.op);
    struct audit_record rec;
    bool more = err == BH_OK && r->scan.n_records > 0, cut = false;

    for (size_t i = 0; more && i < r->scan.n_records; i++) {
        const struct store_record *at = &r->scan.records[i];
        if (!record_read(r->reader, &audit_form, at->key, at->value, &rec))
            continue;
        uint64_t older = r->next;
        more = list_one(r, &rec);
        cut = !more && r->next != older;
        buf_reset(&r->after);
        buf_add_str(&r->after, at->key);
    }
    bool again = more && r->scan.more;
    store_scan_free(&r->scan);
    if (again) {
        read_page(r, on_listed, true);
        return;
    }
    jw_end_arr(&r->w);
    if (cut && r->next > 1)
        jw_ki64(&r->w, "next", (int64_t)r->next);
    jw_end_obj(&r->w);
    audit_done_cb *done = r->done;
    void *ctx = r->ctx;
    read_free(r);
    done(ctx, err);
}

void audit_list(struct audit *a, const struct audit_filter *filter, struct buf *out,
                audit_done_cb *done, void *ctx)
{
    struct audit_read *r = read_new(a, out, done, ctx);

    r->filter = *filter;
    r->tenant = str_dup_opt(filter->tenant);
    if (filter->before > 0)
        buf_printf(&r->after, "%016" PRIx64, filter->before);
    jw_obj(&r->w);
    jw_karr(&r->w, "entries");
    read_page(r, on_listed, true);
}

static void BH_PRINTF(2, 3) broken(struct audit_read *r, const char *fmt, ...)
{
    va_list ap;

    if (r->problem[0] != '\0')
        return;
    va_start(ap, fmt);
    vsnprintf(r->problem, sizeof r->problem, fmt, ap);
    va_end(ap);
}

static void verify_one(struct audit_read *r, const struct audit_record *rec)
{
    uint8_t digest[SHA256_BYTES], hash[SHA256_BYTES];
    uint64_t seq = strtoull(rec->seq, NULL, 16);
    char shown[2 * SHA256_BYTES + 1], line[2 * SHA256_BYTES + 32];

    if (r->n++ == 0)
        r->first = seq;
    else if (seq != r->last_seq + 1)
        broken(r, "entry %" PRIu64 " is missing", r->last_seq + 1);
    else if (memcmp(rec->prev, r->hash, sizeof r->hash) != 0)
        broken(r, "entry %" PRIu64 " does not stand on the entry before it", seq);
    sha256(rec->entry, digest);
    if (rec->entry.n == 0)
        r->redacted++;
    else if (memcmp(digest, rec->digest, sizeof digest) != 0)
        broken(r, "the text of entry %" PRIu64 " was changed", seq);
    chain(rec->prev, seq, rec->digest, hash);
    if (memcmp(hash, rec->hash, sizeof hash) != 0)
        broken(r, "the hash of entry %" PRIu64 " is wrong", seq);
    r->last_seq = seq;
    memcpy(r->hash, rec->hash, sizeof r->hash);
    hex_of(rec->hash, shown);
    snprintf(line, sizeof line, "%" PRIu64 ":%s", seq, shown);
    r->found |= r->expect != NULL && strcmp(line, r->expect) == 0;
}

static void write_verified(struct audit_read *r)
{
    char shown[2 * SHA256_BYTES + 1], head[2 * SHA256_BYTES + 32];

    if (r->last_seq < r->a->last && list_is_empty(&r->a->under_way))
        broken(r, "the newest entries are missing: %" PRIu64 " is the last one, not %" PRIu64,
               r->last_seq, r->a->last);
    if (r->expect != NULL && !r->found)
        broken(r, "the expected entry %.80s is not in the log", r->expect);
    hex_of(r->hash, shown);
    snprintf(head, sizeof head, "%" PRIu64 ":%s", r->last_seq, shown);
    jw_obj(&r->w);
    jw_kbool(&r->w, "ok", r->problem[0] == '\0');
    jw_ki64(&r->w, "entries", (int64_t)r->n);
    jw_ki64(&r->w, "first", (int64_t)r->first);
    jw_kstr(&r->w, "head", str_of(head));
    jw_ki64(&r->w, "redacted", (int64_t)r->redacted);
    if (r->problem[0] != '\0')
        jw_kstr(&r->w, "problem", str_of(r->problem));
    jw_end_obj(&r->w);
}

static void on_verified(struct store_op *op, enum bh_err err)
{
    struct audit_read *r = container_of(op, struct audit_read, scan.op);
    struct audit_record rec;

    for (size_t i = 0; err == BH_OK && i < r->scan.n_records; i++) {
        const struct store_record *at = &r->scan.records[i];
        buf_reset(&r->after);
        buf_add_str(&r->after, at->key);
        if (record_read(r->reader, &audit_form, at->key, at->value, &rec))
            verify_one(r, &rec);
        else
            broken(r, "a record of the log is damaged: %.100s", record_why(r->reader));
    }
    bool again = err == BH_OK && r->scan.more;
    store_scan_free(&r->scan);
    if (again) {
        read_page(r, on_verified, false);
        return;
    }
    if (err == BH_OK)
        write_verified(r);
    audit_done_cb *done = r->done;
    void *ctx = r->ctx;
    read_free(r);
    done(ctx, err);
}

void audit_verify(struct audit *a, struct str expect, struct buf *out, audit_done_cb *done,
                  void *ctx)
{
    struct audit_read *r = read_new(a, out, done, ctx);

    r->expect = str_dup_opt(expect);
    read_page(r, on_verified, false);
}

/* ---- erasing ---- */

/* True when @id stands in @text as a word of its own. */
static bool has_word(struct str text, struct str id)
{
    for (size_t i = 0; id.n > 0 && i + id.n <= text.n; i++) {
        bool begins = i == 0 || !str_has_only(str_make(text.p + i - 1, 1), "-_@.");
        bool ends = i + id.n == text.n || !str_has_only(str_make(text.p + i + id.n, 1), "-_@.");
        if (begins && ends && memcmp(text.p + i, id.p, id.n) == 0)
            return true;
    }
    return false;
}

/* The text of an entry that names the person goes; number, digest and hashes stay. */
static bool names_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    struct audit *a = erasure_ctx(e);
    const struct erase_subject *who = erasure_subject(e);
    struct str text = json_str(doc, "entry");

    (void)ctx;
    if (!has_word(text, who->user) || !has_word(text, who->platform))
        return false;
    if (who->dry)
        return true;
    BUF_LOCAL value = BUF_INIT;
    struct jw w = jw_begin(&value);
    jw_obj(&w);
    for (struct json_iter it = {0}; json_next(doc, &it);)
        if (!str_eq(it.key, STR("entry"))) {
            BUF_LOCAL name = BUF_INIT;
            buf_add_str(&name, it.key);
            jw_kvalue(&w, buf_z(&name), it.value);
        }
    jw_end_obj(&w);
    struct store_kv item = {.verb = KV_PUT,
                            .ns = audit_form.ns,
                            .key = key,
                            .value = buf_str(&value)};
    store_put(a->store, &item, 1, false, NULL, NULL);
    return true;
}

static const struct erase_records of_person[] = {
    {.ns = "audit", .word = "audit", .is = names_person, .keep = true},
    {0},
};
const struct eraser audit_eraser = {.of_person = of_person};
