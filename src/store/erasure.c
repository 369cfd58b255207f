/* erasure.c - runs the erasers in order, and the namespaces of each in order.  (erasure.h has the
 * contract.) */
#include "store/erasure.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "store/store.h"
#include "store/sweep.h"

enum { WORDS_MAX = 32 };

struct noted_chat {
    bool of_tenant, of_others;
    uint32_t n;
    char name[]; /* bot \x1f chat */
};

struct erasure {
    struct store_left left;
    struct store *store; /* borrowed */
    struct erase_subject subject;
    struct buf tenant, platform, user; /* the texts of @subject */
    struct erase_with with[ERASERS_MAX];
    size_t n_with, at;                   /* @at: the eraser that runs now */
    const struct erase_records *records; /* its namespace being read; NULL: its verb is next */
    struct sweep *sweep;                 /* owned; through these records; NULL: none runs */
    struct json_parser *parser;
    struct map chats; /* struct noted_chat, owned */
    struct buf names; /* erasure_put(): each with its NUL */
    size_t names_at;
    struct {
        const char *word;
        uint64_t n;
    } counts[WORDS_MAX];
    erasure_done_cb *done;
    void *ctx; /* owned */
};

static void erasure_free(struct erasure *e)
{
    store_take_back(&e->left);
    map_done_all(&e->chats);
    sweep_stop(&e->sweep);
    buf_done(&e->names);
    buf_done(&e->tenant);
    buf_done(&e->platform);
    buf_done(&e->user);
    json_parser_free(e->parser);
    free(e->ctx);
    free(e);
}

static void on_store_closed(struct store_left *l)
{
    struct erasure *e = container_of(l, struct erasure, left);

    l->prev = NULL; /* the store freed its list already */
    erasure_free(e);
}

static void finish(struct erasure *e, const char *failed)
{
    e->done(e->ctx, e, failed);
    erasure_free(e);
}

void erasure_fail(struct erasure *e, const char *why)
{
    finish(e, why);
}

/* ---- for erasers ---- */

const struct erase_subject *erasure_subject(const struct erasure *e)
{
    return &e->subject;
}

void erasure_count(struct erasure *e, const char *word, uint64_t n)
{
    size_t i = 0;

    while (i < WORDS_MAX && e->counts[i].word != NULL && strcmp(e->counts[i].word, word) != 0)
        i++;
    if (i == WORDS_MAX)
        return;
    e->counts[i].word = word;
    e->counts[i].n += n;
}

void erasure_write(const struct erasure *e, struct jw *w)
{
    jw_kbool(w, "dryRun", e->subject.dry);
    for (size_t i = 0; i < WORDS_MAX && e->counts[i].word != NULL; i++)
        jw_ki64(w, e->counts[i].word, (int64_t)e->counts[i].n);
}

void *erasure_ctx(const struct erasure *e)
{
    return e->with[e->at].ctx;
}

void erasure_put(struct erasure *e, struct str name)
{
    buf_add_str(&e->names, name);
    buf_add_c(&e->names, '\0');
}

bool erasure_take(struct erasure *e, struct str *ret_name)
{
    if (e->names_at >= e->names.n)
        return false;
    *ret_name = str_of(e->names.p + e->names_at);
    e->names_at += ret_name->n + 1;
    return true;
}

struct str erase_part(struct str *key)
{
    struct str one = STR_NULL;

    str_split(key, '\x1f', &one);
    return one;
}

bool erase_by_key(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    return str_eq(erase_part(&key), e->subject.tenant);
}

bool erase_by_value(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    return str_eq(json_str(doc, "tenant"), e->subject.tenant);
}

static struct noted_chat *find_chat(const struct erasure *e, struct str bot, struct str chat,
                                    struct buf *name)
{
    buf_add_str(name, bot);
    buf_add_c(name, '\x1f');
    buf_add_str(name, chat);
    return map_get(&e->chats, buf_str(name));
}

void erasure_chat(struct erasure *e, struct str bot, struct str chat, bool of_tenant)
{
    struct buf name = BUF_INIT;
    struct noted_chat *k = find_chat(e, bot, chat, &name);

    if (k == NULL) {
        k = xcalloc(1, sizeof *k + name.n);
        k->n = (uint32_t)name.n;
        memcpy(k->name, name.p, name.n);
        map_put(&e->chats, str_make(k->name, k->n), k);
    }
    k->of_tenant |= of_tenant;
    k->of_others |= !of_tenant;
    buf_done(&name);
}

bool erasure_owns_chat(const struct erasure *e, struct str bot, struct str chat)
{
    struct buf name = BUF_INIT;
    const struct noted_chat *k = find_chat(e, bot, chat, &name);

    buf_done(&name);
    return k != NULL && k->of_tenant && !k->of_others;
}

void erasure_own_chats(const struct erasure *e, erasure_chat_cb *cb, void *ctx)
{
    void *at;

    for (size_t pos = 0; map_next(&e->chats, &pos, &at);) {
        const struct noted_chat *k = at;
        struct str chat = str_make(k->name, k->n), bot = erase_part(&chat);
        if (k->of_tenant && !k->of_others)
            cb(ctx, bot, chat);
    }
}

/* ---- one namespace after the other ---- */

/* Advances to the next eraser.  False: there is none. */
static bool advance(struct erasure *e)
{
    if (++e->at >= e->n_with)
        return false;
    const struct eraser *r = e->with[e->at].eraser;
    e->records = e->subject.tenant.p != NULL ? r->of_tenant : r->of_person;
    buf_reset(&e->names);
    e->names_at = 0;
    return true;
}

/* True: the record goes. */
static bool erases(void *ctx, struct str key, struct str value)
{
    struct erasure *e = ctx;
    const struct erase_records *of = e->records;
    struct json doc = {0};

    (void)json_parse(e->parser, value, &doc);
    if (!of->is(e->with[e->at].ctx, e, key, doc))
        return false;
    if (of->word != NULL)
        erasure_count(e, of->word, 1);
    return !e->subject.dry && !of->keep;
}

static void go_on(struct erasure *e);

static void on_swept(void *ctx, bool ok)
{
    struct erasure *e = ctx;

    sweep_stop(&e->sweep);
    e->records++;
    if (ok)
        go_on(e);
    else
        erasure_fail(e, "The store failed in the middle: ask again.");
}

/* Continues with the current eraser: its records, then its verb.  Then the next eraser runs. */
static void go_on(struct erasure *e)
{
    static const struct sweep_ops ops = {.goes = erases, .end = on_swept};

    do {
        const struct erase_with *with = &e->with[e->at];
        void (*verb)(void *, struct erasure *) =
            e->subject.tenant.p != NULL ? with->eraser->tenant : with->eraser->person;
        while (e->records != NULL && e->subject.dry && e->records->only_for_real)
            e->records++;
        if (e->records != NULL && e->records->ns != NULL) {
            if (e->records->word != NULL)
                erasure_count(e, e->records->word, 0); /* the answer shows zero counts too */
            e->sweep = sweep_start(e->store, NULL, e->records->ns, 0, &ops, e);
            return;
        }
        if (verb != NULL) {
            verb(with->ctx, e);
            return;
        }
    } while (advance(e));
    finish(e, NULL);
}

void erasure_next(struct erasure *e)
{
    if (advance(e))
        go_on(e);
    else
        finish(e, NULL);
}

void erasure_start(struct store *store, const struct erase_subject *subject,
                   const struct erase_with *with, size_t n, erasure_done_cb *done, void *ctx)
{
    struct erasure *e = xcalloc(1, sizeof *e);

    assert(n <= ERASERS_MAX);
    *e = (struct erasure){.store = store,
                          .parser = json_parser_new(),
                          .n_with = n,
                          .at = SIZE_MAX, /* before the first */
                          .done = done,
                          .ctx = ctx};
    memcpy(e->with, with, e->n_with * sizeof *with);
    buf_add_str(&e->tenant, subject->tenant);
    buf_add_str(&e->platform, subject->platform);
    buf_add_str(&e->user, subject->user);
    e->subject = (struct erase_subject){.platform = buf_str(&e->platform),
                                        .user = buf_str(&e->user),
                                        .dry = subject->dry};
    if (subject->tenant.p != NULL)
        e->subject.tenant = buf_str(&e->tenant);
    store_leave(store, &e->left, on_store_closed);
    erasure_next(e);
}
