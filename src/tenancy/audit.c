/* audit.c - entries and their chain.  (audit.h has the contract; audit_read.c reads and cuts.)
 *
 * The number and the hash of an entry are known when its transaction is submitted; the store keeps
 * the order of writes, so several may be under way.
 *
 *      UNDER_WAY --written--> freed
 *          |--failed--> FAILED --nothing stands on it--> freed, its number goes to the next entry
 *          |              '-----a later entry is on disk--> LOST
 *          '--unknown--> LOST --written by itself, at last--> freed, and an entry says so
 *
 * A LOST entry is written without its change: later entries stand on its hash.  It is marked as
 * failed, unless nobody knows whether the change happened.
 *
 * Bytes are counted from the first entry ever.  An entry has the count at its end, so the size of
 * the log is the difference between its two ends, and nothing has to be read to know it. */
#include "tenancy/audit_priv.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/mem.h"

enum { ENTRY_BYTES = 512 }; /* of an entry besides its text */

#define AT(member) offsetof(struct audit_settings, member)
static const struct config_key keys[] = {
    {"audit.keep", CFG_DURATION, CFG_RELOAD, AT(keep_ms), "400d", .max = INT64_MAX,
     .what = "How long entries of `bellhop audit` are kept. 0: for ever."},
    {"audit.max_size", CFG_BYTES, CFG_RELOAD, AT(max_bytes), "256MiB",
     .what = "The most bytes of it in the database; the oldest entries go first. One tenant's own "
             "changes may fill a quarter of it in a day; further ones are refused (429). 0: no "
             "limit."},
    {0},
};
const struct config_section audit_config = {.keys = keys, .size = sizeof(struct audit_settings)};

static const struct record_field fields[] = {
    RECORD_FIELD(struct audit_record, seq, "seq", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct audit_record, entry, "entry", 0, .max = 2 * AUDIT_TEXT),
    RECORD_FIELD(struct audit_record, digest, "digest", 0),
    RECORD_FIELD(struct audit_record, prev, "prev", 0),
    RECORD_FIELD(struct audit_record, hash, "hash", 0),
    RECORD_FIELD(struct audit_record, failed, "failed", 0),
    RECORD_FIELD(struct audit_record, bytes, "bytes", 0),
};
const struct record_form audit_form = RECORD_FORM("audit", struct audit_record, fields);

static const struct record_field head_fields[] = {
    RECORD_FIELD(struct audit_head, name, "name", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct audit_head, seq, "seq", 0),
    RECORD_FIELD(struct audit_head, hash, "hash", 0),
    RECORD_FIELD(struct audit_head, bytes, "bytes", 0),
};
const struct record_form audit_head_form =
    RECORD_FORM("audit_head", struct audit_head, head_fields);

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

static bool on_head(void *ctx, struct str key, void *thing)
{
    struct audit *a = ctx;
    const struct audit_head *head = thing;

    *(strcmp(head->name, "cut") == 0 ? &a->cut : &a->last) = *head;
    return true;
}

static void on_retry(struct timer *t);

enum bh_err audit_open(struct clock *clock, struct store *store,
                       const struct audit_settings *settings, struct audit **ret, char *ret_why)
{
    struct audit *a = xcalloc(1, sizeof *a);

    *a = (struct audit){.clock = clock,
                        .store = store,
                        .settings = settings,
                        .parser = json_parser_new()};
    list_init(&a->under_way);
    list_init(&a->reads);
    timer_init(&a->retry, on_retry);
    timer_init(&a->upkeep, audit_upkeep);
    enum bh_err err = record_load(store, &audit_head_form, NULL, STR_NULL, on_head, a, ret_why);
    if (err != BH_OK) {
        audit_free(a);
        return err;
    }
    a->on_disk = a->last.seq;
    timer_set(clock, &a->upkeep, AUDIT_RETRY_MS);
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

void audit_free(struct audit *a)
{
    if (a == NULL)
        return;
    timer_stop(a->clock, &a->retry);
    timer_stop(a->clock, &a->upkeep);
    map_done_all(&a->days);
    list_each (&a->under_way, it, nxt)
        ticket_free(list_entry(it, struct audit_ticket, link));
    audit_reads_free(a);
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
    a->begun[a->who.serial % AUDIT_BEGUN] = a->who.serial;
}

bool audit_has_begun(const struct audit *a, const struct audit_who *who)
{
    return a->begun[who->serial % AUDIT_BEGUN] == who->serial;
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

    jw_key_str(w, it->key);
    if (f != NULL && (f->flags & RECORD_SEALED) != 0)
        jw_str(w, STR("redacted"));
    else
        jw_value(w, it->value);
}

/* Lists of structs have a form of their own, without lists in it. */
static void write_list(struct jw *w, struct str key, const struct record_form *of, struct json list)
{
    jw_key_str(w, key);
    jw_arr(w);
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

void audit_chain(const uint8_t prev[SHA256_BYTES], uint64_t seq, const uint8_t digest[SHA256_BYTES],
                 uint8_t ret[SHA256_BYTES])
{
    uint8_t all[2 * SHA256_BYTES + 8];

    memcpy(all, prev, SHA256_BYTES);
    for (int i = 0; i < 8; i++)
        all[SHA256_BYTES + i] = (uint8_t)(seq >> (56 - 8 * i));
    memcpy(all + SHA256_BYTES + 8, digest, SHA256_BYTES);
    sha256(str_make(all, sizeof all), ret);
}

bool audit_has_room(struct audit *a, struct str tenant, size_t bytes)
{
    int64_t today = clock_wall_ms(a->clock) / AUDIT_DAY_MS;
    struct audit_day *d = map_get(&a->days, tenant);

    if (a->settings->max_bytes == 0 || tenant.n == 0)
        return true;
    if (d == NULL) {
        d = xcalloc(1, sizeof *d + tenant.n + 1);
        memcpy(d->tenant, tenant.p, tenant.n);
        map_put(&a->days, str_of(d->tenant), d);
    }
    if (d->day != today)
        d->day = today, d->bytes = 0;
    if (d->bytes + bytes + ENTRY_BYTES > a->settings->max_bytes / 4)
        return false;
    d->bytes += bytes + ENTRY_BYTES;
    return true;
}

static void write_record(struct audit_ticket *t)
{
    buf_reset(&t->key);
    buf_reset(&t->value);
    record_write(&audit_form, NULL, &t->rec, &t->key, &t->value);
}

static struct store_kv entry_item(const struct audit_ticket *t)
{
    return (struct store_kv){KV_PUT, audit_form.ns, buf_str(&t->key), buf_str(&t->value)};
}

struct audit_ticket *audit_add(struct audit *a, struct str entry, struct store_kv ret[AUDIT_ITEMS])
{
    struct audit_ticket *t = xcalloc(1, sizeof *t);
    struct audit_head head = {.name = "head",
                              .seq = a->last.seq + 1,
                              .bytes = a->last.bytes + entry.n + ENTRY_BYTES};

    *t = (struct audit_ticket){.a = a, .before = a->last};
    buf_add_str(&t->text, entry);
    t->rec = (struct audit_record){.entry = buf_str(&t->text), .bytes = head.bytes};
    snprintf(t->rec.seq, sizeof t->rec.seq, "%016" PRIx64, head.seq);
    memcpy(t->rec.prev, a->last.hash, sizeof t->rec.prev);
    sha256(entry, t->rec.digest);
    audit_chain(t->rec.prev, head.seq, t->rec.digest, t->rec.hash);
    memcpy(head.hash, t->rec.hash, sizeof head.hash);
    write_record(t);
    record_write(&audit_head_form, NULL, &head, &t->head_key, &t->head_value);
    a->last = head;
    list_append(&a->under_way, &t->link);
    ret[0] = entry_item(t);
    ret[1] = (struct store_kv){KV_PUT, audit_head_form.ns, buf_str(&t->head_key),
                               buf_str(&t->head_value)};
    if (a->settings->max_bytes != 0 && head.bytes - a->cut.bytes > a->settings->max_bytes)
        timer_set(a->clock, &a->upkeep, 0);
    return t;
}

static void on_noted(void *ctx, enum bh_err err)
{
    struct audit_ticket *t = ctx;

    audit_end(t->a, t, err);
}

static void on_rewritten(void *ctx, enum bh_err err)
{
    struct audit_ticket *t = ctx;
    struct audit *a = t->a;
    struct audit_who who = {.what = t->rec.failed ? "changeFailed" : "changeUnknown"};
    char more[64];

    if (err != BH_OK) {
        t->state = LOST;
        timer_set(a->clock, &a->retry, AUDIT_RETRY_MS);
        return;
    }
    snprintf(more, sizeof more, "\"entry\":%" PRIu64, t->before.seq + 1);
    ticket_free(t);
    audit_note(a, &who, str_of(more));
}

static void on_retry(struct timer *timer)
{
    struct audit *a = container_of(timer, struct audit, retry);

    list_each (&a->under_way, it, nxt) {
        struct audit_ticket *t = list_entry(it, struct audit_ticket, link);
        if (t->state != LOST)
            continue;
        t->state = REWRITING;
        write_record(t);
        struct store_kv item = entry_item(t);
        store_put(a->store, &item, 1, true, on_rewritten, t);
    }
}

/* The numbers at the end whose changes failed are free again.  Others that failed have entries on
 * disk that stand on them. */
static void settle_failed(struct audit *a)
{
    while (!list_is_empty(&a->under_way)) {
        struct audit_ticket *t = list_entry(a->under_way.prev, struct audit_ticket, link);
        if (t->state != FAILED || t->before.seq + 1 != a->last.seq)
            break;
        a->last = t->before;
        ticket_free(t);
    }
    list_each (&a->under_way, it, nxt) {
        struct audit_ticket *t = list_entry(it, struct audit_ticket, link);
        if (t->state != FAILED || t->before.seq + 1 > a->on_disk)
            continue;
        t->state = LOST;
        t->rec.failed = true;
        on_retry(&a->retry);
    }
}

void audit_end(struct audit *a, struct audit_ticket *t, enum bh_err err)
{
    uint64_t seq = t->before.seq + 1;

    if ((err == BH_OK || err == BH_UNKNOWN) && seq > a->on_disk)
        a->on_disk = seq;
    if (err == BH_UNKNOWN) {
        t->state = LOST;
        timer_set(a->clock, &a->retry, AUDIT_RETRY_MS);
    } else if (err != BH_OK) {
        t->state = FAILED;
    } else {
        ticket_free(t);
    }
    settle_failed(a);
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
