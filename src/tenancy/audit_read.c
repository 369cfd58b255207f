/* audit_read.c - reads the log: lists, verifications, cuts, erasures.
 *
 * All of them read page by page.  A cut verifies what it deletes, and waits while somebody else
 * reads: a verification must find the entries that it began with.  A cut of unknown fate is
 * submitted again, for its deletes and its anchor are idempotent. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"
#include "tenancy/audit_priv.h"

enum { PAGE = 256, LOOKS_MAX = 4096, CUT_MS = 3600000 };

struct audit_read {   /* a list, a verification or a cut under way */
    struct list link; /* audit->reads */
    struct audit *a;
    struct store_scan scan;
    struct audit_filter filter;
    char *tenant, *expect; /* owned */
    audit_done_cb *done;
    void *ctx;
    struct jw w; /* of the caller's buffer */
    struct buf after;
    struct record_reader *reader;
    size_t shown, looks;
    uint64_t next;
    /* verifying, and cutting */
    uint64_t n, first, redacted;
    struct audit_head cut, last; /* the log begins behind @cut; @last: the entry just read */
    bool begun, found;
    char problem[160];
    /* cutting */
    struct audit_ticket *ticket; /* the entry that says so */
    size_t n_cut;                /* records of @scan that go, up to @cut */
    bool in_doubt;               /* they may be gone already */
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

void audit_reads_free(struct audit *a)
{
    list_each (&a->reads, it, nxt)
        read_free(list_entry(it, struct audit_read, link));
}

/* The last of it; @done may close the log. */
static void read_over(struct audit_read *r, enum bh_err err)
{
    audit_done_cb *done = r->done;
    void *ctx = r->ctx;

    read_free(r);
    done(ctx, err);
}

static struct audit_read *read_new(struct audit *a, struct buf *out, audit_done_cb *done, void *ctx)
{
    struct audit_read *r = xcalloc(1, sizeof *r);

    *r = (struct audit_read){.a = a, .done = done, .ctx = ctx, .w = jw_begin(out)};
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

static void write_entry(struct audit_read *r, const struct audit_record *rec, struct json doc)
{
    jw_obj(&r->w);
    jw_ki64(&r->w, "seq", (int64_t)strtoull(rec->seq, NULL, 16));
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        jw_key_str(&r->w, it.key);
        jw_value(&r->w, it.value);
    }
    if (rec->entry.n == 0)
        jw_kbool(&r->w, "redacted", true);
    if (rec->failed)
        jw_kbool(&r->w, "failed", true);
    jw_key(&r->w, "hash");
    jw_hex(&r->w, rec->hash, sizeof rec->hash);
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
    read_over(r, err);
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

static void head_text(const struct audit_head *h, char ret[2 * SHA256_BYTES + 32])
{
    BUF_LOCAL hash = BUF_INIT;

    hex_add(&hash, h->hash, sizeof h->hash);
    snprintf(ret, 2 * SHA256_BYTES + 32, "%" PRIu64 ":%s", h->seq, buf_z(&hash));
}

static void expect_head(struct audit_read *r, const struct audit_head *h)
{
    char line[2 * SHA256_BYTES + 32];

    head_text(h, line);
    r->found |= r->expect != NULL && strcmp(line, r->expect) == 0;
}

/* Where the log begins is known when the first page is there: an earlier cut has ended then. */
static void verify_begin(struct audit_read *r)
{
    if (r->begun)
        return;
    r->begun = true;
    r->cut = r->last = r->a->cut;
    expect_head(r, &r->cut);
}

static void verify_one(struct audit_read *r, const struct audit_record *rec)
{
    uint8_t digest[SHA256_BYTES], hash[SHA256_BYTES];
    uint64_t seq = strtoull(rec->seq, NULL, 16);

    if (r->n++ == 0)
        r->first = seq;
    if (seq != r->last.seq + 1)
        broken(r, "entry %" PRIu64 " is missing", r->last.seq + 1);
    else if (memcmp(rec->prev, r->last.hash, sizeof r->last.hash) != 0)
        broken(r, "entry %" PRIu64 " does not stand on the entry before it", seq);
    sha256(rec->entry, digest);
    if (rec->entry.n == 0)
        r->redacted++;
    else if (memcmp(digest, rec->digest, sizeof digest) != 0)
        broken(r, "the text of entry %" PRIu64 " was changed", seq);
    audit_chain(rec->prev, seq, rec->digest, hash);
    if (memcmp(hash, rec->hash, sizeof hash) != 0)
        broken(r, "the hash of entry %" PRIu64 " is wrong", seq);
    r->last = (struct audit_head){.seq = seq, .bytes = rec->bytes};
    memcpy(r->last.hash, rec->hash, sizeof r->last.hash);
    expect_head(r, &r->last);
}

static void write_verified(struct audit_read *r)
{
    char text[2 * SHA256_BYTES + 32];
    uint64_t newest = r->a->last.seq;

    if (r->last.seq < newest && list_is_empty(&r->a->under_way))
        broken(r, "the newest entries are missing: %" PRIu64 " is the last one, not %" PRIu64,
               r->last.seq, newest);
    if (r->expect != NULL && !r->found && strtoull(r->expect, NULL, 10) < r->cut.seq)
        broken(r, "the expected entry is older than the log, which begins behind entry %" PRIu64,
               r->cut.seq);
    if (r->expect != NULL && !r->found)
        broken(r, "the expected entry %.80s is not in the log", r->expect);
    jw_obj(&r->w);
    jw_kbool(&r->w, "ok", r->problem[0] == '\0');
    jw_ki64(&r->w, "entries", (int64_t)r->n);
    jw_ki64(&r->w, "first", (int64_t)r->first);
    head_text(&r->last, text);
    jw_kstr(&r->w, "head", str_of(text));
    jw_ki64(&r->w, "redacted", (int64_t)r->redacted);
    head_text(&r->cut, text);
    if (r->cut.seq > 0)
        jw_kstr(&r->w, "cut", str_of(text));
    if (r->problem[0] != '\0')
        jw_kstr(&r->w, "problem", str_of(r->problem));
    jw_end_obj(&r->w);
}

static void on_verified(struct store_op *op, enum bh_err err)
{
    struct audit_read *r = container_of(op, struct audit_read, scan.op);
    struct audit_record rec;

    verify_begin(r);
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
    read_over(r, err);
}

void audit_verify(struct audit *a, struct str expect, struct buf *out, audit_done_cb *done,
                  void *ctx)
{
    struct audit_read *r = read_new(a, out, done, ctx);

    r->expect = str_dup_opt(expect);
    read_page(r, on_verified, false);
}

/* ---- cutting ---- */

static void cut_over(struct audit_read *r, bool more)
{
    struct audit *a = r->a;

    a->cutting = NULL;
    timer_set(a->clock, &a->upkeep, more ? 0 : CUT_MS);
    read_free(r);
}

static void on_cut(void *ctx, enum bh_err err)
{
    struct audit_read *r = ctx;
    struct audit *a = r->a;

    if (r->ticket != NULL)
        audit_end(a, r->ticket, err);
    r->ticket = NULL;
    r->in_doubt |= err == BH_UNKNOWN;
    if (err != BH_OK && r->in_doubt) { /* audit_upkeep() submits it again */
        timer_set(a->clock, &a->upkeep, AUDIT_RETRY_MS);
        return;
    }
    if (err == BH_OK)
        a->cut = r->cut;
    cut_over(r, err == BH_OK && r->n_cut == r->scan.n_records);
}

static void add_cut_entry(struct audit_read *r, struct store_kv ret[AUDIT_ITEMS])
{
    static const struct audit_who server = {.what = "cutLog"};
    BUF_LOCAL text = BUF_INIT;
    struct jw w = audit_begin(r->a, &server, &text);
    char head[2 * SHA256_BYTES + 32];

    head_text(&r->cut, head);
    jw_ki64(&w, "entries", (int64_t)r->n_cut);
    jw_kstr(&w, "upTo", str_of(head));
    if (r->problem[0] != '\0')
        jw_kstr(&w, "problem", str_of(r->problem));
    jw_end_obj(&w);
    r->ticket = audit_add(r->a, buf_str(&text), ret);
}

static void submit_cut(struct audit_read *r)
{
    struct store_kv *items = xcalloc(r->n_cut + 1 + AUDIT_ITEMS, sizeof *items);
    BUF_LOCAL key = BUF_INIT, value = BUF_INIT;
    size_t n = r->n_cut + 1;

    snprintf(r->cut.name, sizeof r->cut.name, "cut");
    record_write(&audit_head_form, NULL, &r->cut, &key, &value);
    for (size_t i = 0; i < r->n_cut; i++)
        items[i] = (struct store_kv){KV_DELETE, audit_form.ns, r->scan.records[i].key, STR_NULL};
    items[r->n_cut] = (struct store_kv){KV_PUT, audit_head_form.ns, buf_str(&key), buf_str(&value)};
    if (!r->in_doubt) { /* else audit_end() sees to it */
        add_cut_entry(r, items + n);
        n += AUDIT_ITEMS;
    }
    store_put(r->a->store, items, n, true, on_cut, r);
    free(items);
}

/* The entries from the oldest on that are too old, or too many bytes.  Entries without a text go
 * with the next one that has a time. */
static void on_oldest(struct store_op *op, enum bh_err err)
{
    struct audit_read *r = container_of(op, struct audit_read, scan.op);
    struct audit *a = r->a;
    const struct audit_settings *s = a->settings;
    int64_t old_ms = s->keep_ms > 0 ? clock_wall_ms(a->clock) - s->keep_ms : 0, at_ms;
    int64_t slack_ms = s->keep_ms / 8 < AUDIT_DAY_MS ? s->keep_ms / 8 : AUDIT_DAY_MS;
    bool full = s->max_bytes != 0 && a->last.bytes - a->cut.bytes > s->max_bytes;
    uint64_t safe = a->last.seq; /* entries under way stay */
    struct audit_record rec;
    struct json doc;

    verify_begin(r);
    if (!list_is_empty(&a->under_way))
        safe = list_first(&a->under_way, struct audit_ticket, link)->before.seq;
    for (size_t i = 0; err == BH_OK && i < r->scan.n_records; i++) {
        const struct store_record *at = &r->scan.records[i];
        if (!record_read(r->reader, &audit_form, at->key, at->value, &rec)) {
            broken(r, "a record of the log is damaged: %.100s", record_why(r->reader));
            continue;
        }
        bool timed = rec.entry.n > 0 && json_parse(a->parser, rec.entry, &doc) &&
                     json_as_i64(json_get(doc, "at"), &at_ms);
        bool old = timed && at_ms < (r->n_cut == 0 ? old_ms - slack_ms : old_ms);
        bool goes = old || (full && a->last.bytes - r->last.bytes > s->max_bytes / 8 * 7);
        if (strtoull(rec.seq, NULL, 16) > safe || (timed && !goes))
            break;
        verify_one(r, &rec);
        if (goes) {
            r->n_cut = i + 1;
            r->cut = r->last;
        }
    }
    if (r->n_cut > 0)
        submit_cut(r);
    else
        cut_over(r, false);
}

void audit_upkeep(struct timer *t)
{
    struct audit *a = container_of(t, struct audit, upkeep);
    struct audit_day *d;

    for (size_t i = 0; map_next(&a->days, &i, (void **)&d);)
        if (d->day != clock_wall_ms(a->clock) / AUDIT_DAY_MS)
            free(map_del(&a->days, str_of(d->tenant)));
    if (a->cutting != NULL) {
        if (a->cutting->in_doubt)
            submit_cut(a->cutting);
        return;
    }
    if (!list_is_empty(&a->reads)) { /* a verification must find what it began with */
        timer_set(a->clock, t, AUDIT_RETRY_MS);
        return;
    }
    a->cutting = read_new(a, NULL, NULL, NULL);
    read_page(a->cutting, on_oldest, false);
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
    uint64_t gone = a->cut.seq;
    if (a->cutting != NULL && a->cutting->cut.seq > gone)
        gone = a->cutting->cut.seq;
    if (!has_word(text, who->user) || !has_word(text, who->platform))
        return false;
    BUF_LOCAL seq = BUF_INIT;
    buf_add_str(&seq, key);
    if (strtoull(buf_z(&seq), NULL, 16) <= gone)
        return false; /* a put would bring it back */
    if (who->dry)
        return true;
    BUF_LOCAL value = BUF_INIT;
    struct jw w = jw_begin(&value);
    jw_obj(&w);
    for (struct json_iter it = {0}; json_next(doc, &it);)
        if (!str_eq(it.key, STR("entry"))) {
            jw_key_str(&w, it.key);
            jw_value(&w, it.value);
        }
    jw_end_obj(&w);
    struct store_kv item = {KV_PUT, audit_form.ns, key, buf_str(&value)};
    store_put(a->store, &item, 1, false, NULL, NULL);
    return true;
}

static const struct erase_records of_person[] = {
    {.ns = "audit", .word = "audit", .is = names_person, .keep = true},
    {0},
};
const struct eraser audit_eraser = {.of_person = of_person};
