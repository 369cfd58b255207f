/* change.c - the queues that changes wait in.  (change.h has the contract and the picture.)
 *
 * A subject exists while a change holds it or waits for it.  Changes start from a timer, at most
 * STARTS_PER_TURN in a turn of the loop, so done() never runs inside the call that submitted. */
#include "tenancy/change.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/observers.h"

enum { STARTS_PER_TURN = 64, BEFORE_MAX = 32 };

struct change_before { /* a record as it is, being read */
    struct store_scan scan;
    struct change *c; /* borrowed */
    size_t item;
};

struct subject {           /* a lock with a queue: one change at a time holds it */
    struct list ready;     /* facts->ready */
    struct list queue;     /* change.queued: the changes that wait for it */
    struct change *holder; /* the change under way; NULL: none */
    char name[];           /* "": private to a change that was submitted without a subject */
};

static void want_start(struct facts *f, struct subject *s)
{
    list_move(&s->ready, &f->ready);
    if (!timer_is_set(&f->start))
        timer_set(f->env.clock, &f->start, 0);
}

static struct subject *subject_of(struct facts *f, const char *name)
{
    size_t n = name != NULL ? strlen(name) : 0;
    struct subject *s = n != 0 ? map_get(&f->subjects, str_of(name)) : NULL;

    if (s != NULL)
        return s;
    s = xcalloc(1, sizeof *s + n + 1);
    memcpy(s->name, n != 0 ? name : "", n);
    list_init(&s->queue);
    if (n != 0)
        map_put(&f->subjects, str_of(s->name), s);
    return s;
}

/* Unlocks the subject: starts the next change in its queue, or frees the subject. */
static void subject_let_go(struct facts *f, struct subject *s)
{
    s->holder = NULL;
    if (!list_is_empty(&s->queue)) {
        want_start(f, s);
        return;
    }
    list_remove(&s->ready);
    if (map_get(&f->subjects, str_of(s->name)) == s)
        map_del(&f->subjects, str_of(s->name));
    free(s);
}

struct subject *change_busy(const struct facts *f, const char *subject)
{
    struct subject *s = map_get(&f->subjects, str_of(subject));

    return s != NULL && s->holder != NULL ? s : NULL;
}

struct change *change_new(struct facts *f, prepare_f *prepare, apply_f *apply, facts_done_cb *done,
                          void *ctx)
{
    struct change *c = xcalloc(1, sizeof *c);

    *c = (struct change){.facts = f, .prepare = prepare, .apply = apply, .done = done, .ctx = ctx};
    if (f->env.audit != NULL && audit_current(f->env.audit)->kind != AUDIT_NOBODY) {
        c->who = *audit_current(f->env.audit);
        audit_began(f->env.audit);
    }
    return c;
}

static void change_free(struct change *c)
{
    if (c->secret != NULL)
        secret_wipe(c->secret, strlen(c->secret));
    free(c->secret);
    free(c->id);
    free(c->wake_url);
    free(c->tenant);
    gateway_free(c->gateway);
    for (size_t i = 0; i < c->n_routes; i++)
        free(c->routes[i]);
    free(c->routes);
    if (c->thing != NULL)
        c->thing_free(c->thing);
    for (size_t i = 0; i < c->n; i++) {
        buf_done(&c->items[i].key);
        buf_done(&c->items[i].value);
    }
    free(c->items);
    for (size_t i = 0; i < c->n_before; i++)
        store_scan_free(&c->before[i].scan);
    free(c->before);
    free(c->held);
    free(c);
}

void facts_drop_changes(struct facts *f)
{
    timer_stop(f->env.clock, &f->start);
    list_each (&f->ready, it, nxt)
        list_remove(it);
    list_each (&f->changes, it, nxt) {
        struct change *c = list_entry(it, struct change, link);
        if (c->subject->name[0] == '\0')
            free(c->subject); /* private to the change: in no table */
        change_free(c);
    }
    list_init(&f->changes);
    map_done_all(&f->subjects);
}

bool change_fail(struct change *c, enum bh_err err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->why, sizeof c->why, fmt, ap);
    va_end(ap);
    c->err = err;
    return false;
}

static void finish(struct change *c)
{
    struct facts *f = c->facts;

    list_remove(&c->link);
    subject_let_go(f, c->subject);
    for (size_t i = 0; i < c->n_held; i++)
        subject_let_go(f, c->held[i]);
    if (c->done != NULL)
        c->done(c->ctx, c->err, c->err == BH_OK ? NULL : c->why);
    change_free(c);
}

static void on_stored(void *ctx, enum bh_err err)
{
    struct change *c = ctx;

    if (c->ticket != NULL)
        audit_end(c->facts->env.audit, c->ticket, err);
    c->ticket = NULL;
    if (err == BH_OK)
        c->apply(c->facts, c);
    else if (err == BH_CONFLICT)
        change_fail(c, BH_CONFLICT, "%s", c->conflict != NULL ? c->conflict : "it exists already");
    else
        change_fail(c, err, "the store could not write it");
    finish(c);
}

/* ---- the entry of the audit log ---- */

/* The value that the store has for the item; absent: none, or it was not read. */
static struct str value_before(const struct change *c, size_t item)
{
    for (size_t i = 0; i < c->n_before; i++) {
        const struct change_before *b = &c->before[i];
        if (b->item == item && b->scan.n_records > 0 &&
            str_eq(b->scan.records[0].key, buf_str(&c->items[item].key)))
            return b->scan.records[0].value;
    }
    return STR_NULL;
}

static bool changes_something(const struct change *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct str before = value_before(c, i);
        bool same = c->items[i].verb == KV_PUT ? str_eq(before, buf_str(&c->items[i].value))
                                               : c->items[i].verb == KV_DELETE && before.p == NULL;
        if (!same || i >= BEFORE_MAX)
            return true;
    }
    return false;
}

static void write_item(const struct change *c, struct jw *w, size_t i)
{
    const struct change_item *item = &c->items[i];
    BUF_LOCAL key = BUF_INIT;

    buf_add_str(&key, buf_str(&item->key));
    for (size_t k = 0; k < key.n; k++)
        if (key.p[k] == RECORD_SEPARATOR)
            key.p[k] = ' ';
    jw_obj(w);
    jw_kstr(w, "record", str_of(item->form->ns));
    if (item->form != &link_code_form) /* a hash of eight characters */
        jw_kstr(w, "key", buf_str(&key));
    audit_write_value(c->facts->env.audit, w, "before", item->form, value_before(c, i));
    audit_write_value(c->facts->env.audit, w, "after", item->form, buf_str(&item->value));
    jw_end_obj(w);
}

static struct str tenant_of(const struct change *c)
{
    return c->to != NULL        ? c->to->gate.tenant
           : c->gateway != NULL ? str_of(c->gateway->tenant)
           : c->n_routes > 0    ? str_of(c->routes[0]->tenant)
                                : str_of(c->tenant);
}

static void write_entry(const struct change *c, struct buf *out)
{
    struct jw w = audit_begin(c->facts->env.audit, &c->who, out);
    size_t i = 0;

    if (tenant_of(c).p != NULL)
        jw_kstr(&w, "tenant", tenant_of(c));
    if (c->to != NULL)
        jw_kstr(&w, "instance", c->to->gate.instance);
    else if (c->gateway != NULL)
        jw_kstr(&w, "instance", str_of(c->gateway->instance));
    jw_karr(&w, "records");
    for (; i < c->n && out->n < AUDIT_TEXT; i++)
        write_item(c, &w, i);
    jw_end_arr(&w);
    if (i < c->n)
        jw_ki64(&w, "more", (int64_t)(c->n - i));
    jw_end_obj(&w);
}

/* ---- writing ---- */

static void write_items(struct change *c)
{
    struct facts *f = c->facts;
    size_t n = c->n;
    BUF_LOCAL entry = BUF_INIT;

    if (c->who.kind != AUDIT_NOBODY && !changes_something(c)) {
        on_stored(c, BH_OK);
        return;
    }
    if (c->who.kind != AUDIT_NOBODY)
        write_entry(c, &entry);
    bool by_tenant = c->who.kind == AUDIT_GATEWAY || c->who.kind == AUDIT_KEY ||
                     c->who.kind == AUDIT_PERSON || c->who.kind == AUDIT_ENROLL;
    if (by_tenant && !audit_has_room(f->env.audit, tenant_of(c), entry.n)) {
        change_fail(c, BH_BUSY,
                    "the tenant's own changes of today fill its part of the audit "
                    "log (audit.max_size); try again tomorrow");
        finish(c);
        return;
    }
    struct store_kv *items = xcalloc(n + AUDIT_ITEMS, sizeof *items);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct store_kv){.verb = c->items[i].verb,
                                     .ns = c->items[i].form->ns,
                                     .key = buf_str(&c->items[i].key),
                                     .value = buf_str(&c->items[i].value)};
    if (c->who.kind != AUDIT_NOBODY) {
        c->ticket = audit_add(f->env.audit, buf_str(&entry), items + n);
        n += AUDIT_ITEMS;
    }
    store_put(f->env.store, items, n, true, on_stored, c);
    free(items);
}

static void on_before(struct store_op *op, enum bh_err err)
{
    struct change *c = container_of(op, struct change_before, scan.op)->c;

    (void)err; /* unreadable: the entry shows null, and the write will fail too */
    if (--c->n_reading == 0)
        write_items(c);
}

/* Reads what the change replaces and deletes, then writes. */
static void read_before(struct change *c)
{
    c->before = xcalloc(BEFORE_MAX, sizeof *c->before);
    for (size_t i = 0; i < c->n && c->n_before < BEFORE_MAX; i++)
        if (c->items[i].verb != KV_INSERT)
            c->before[c->n_before++] = (struct change_before){.c = c, .item = i};
    c->n_reading = c->n_before;
    for (size_t i = 0; i < c->n_before; i++) {
        const struct change_item *item = &c->items[c->before[i].item];
        c->before[i].scan = (struct store_scan){.op = {.done = on_before},
                                                .ns = item->form->ns,
                                                .prefix = buf_str(&item->key),
                                                .limit = 1};
        store_scan(c->facts->env.store, &c->before[i].scan);
    }
    if (c->n_before == 0)
        write_items(c);
}

/* The change holds its subject, and starts unless it must wait for another one. */
static void start(struct facts *f, struct change *c)
{
    struct subject *in_the_way =
        c->err == BH_OK && c->waits_for != NULL ? c->waits_for(f, c) : NULL;

    if (in_the_way != NULL)
        list_append(&in_the_way->queue, &c->queued);
    else if (c->err != BH_OK || !c->prepare(f, c) || c->n == 0)
        finish(c);
    else if (c->who.kind != AUDIT_NOBODY)
        read_before(c);
    else
        write_items(c);
}

/* Starts the first change in the queue.  A change of another subject, which only waited for @s to
 * be free, does not hold @s; the next in the queue starts too. */
static void start_first(struct facts *f, struct subject *s)
{
    struct change *c = list_first(&s->queue, struct change, queued);

    list_remove(&c->queued);
    if (c->subject == s)
        s->holder = c;
    else if (list_is_empty(&s->queue))
        subject_let_go(f, s);
    else
        want_start(f, s);
    start(f, c);
}

void facts_start_changes(struct timer *t)
{
    struct facts *f = container_of(t, struct facts, start);

    for (int n = 0; !list_is_empty(&f->ready) && n < STARTS_PER_TURN; n++) {
        struct subject *s = list_first(&f->ready, struct subject, ready);
        list_remove(&s->ready);
        if (s->holder == NULL)
            start_first(f, s);
    }
    if (!list_is_empty(&f->ready))
        timer_set(f->env.clock, &f->start, 0);
}

void change_hold(struct change *c, const char *subject)
{
    struct subject *s = subject_of(c->facts, subject);

    assert(s->holder == NULL);
    s->holder = c;
    c->held = xrealloc(c->held, (c->n_held + 1) * sizeof(struct subject *));
    c->held[c->n_held++] = s;
}

void change_submit(struct change *c, const char *subject)
{
    c->subject = subject_of(c->facts, subject);
    list_append(&c->facts->changes, &c->link);
    list_append(&c->subject->queue, &c->queued);
    if (c->subject->holder == NULL)
        want_start(c->facts, c->subject);
}

void change_announce(struct facts *f, const char *what, const char *id)
{
    BUF_LOCAL message = BUF_INIT;

    buf_printf(&message, "%s%s%s", what, id != NULL ? " " : "", id != NULL ? id : "");
    observers_tell(f->env.observers, "facts", buf_str(&message));
}

void change_put(struct change *c, enum store_kv_verb verb, const struct record_form *form,
                const void *thing)
{
    bool writes = verb == KV_PUT || verb == KV_INSERT;

    c->items = xgrow(c->items, c->n, &c->cap, sizeof *c->items);
    struct change_item *item = &c->items[c->n++];
    *item = (struct change_item){.verb = verb, .form = form};
    record_write(form, c->facts->env.seal, thing, &item->key, writes ? &item->value : NULL);
}

bool change_name_bad(struct change *c, const char *what, struct str name, bool required)
{
    if ((!required && str_is_empty(name)) || facts_name_ok(name))
        return false;
    change_fail(c, BH_MALFORMED, "%s must be 1 to 128 printable characters without blanks", what);
    return true;
}
