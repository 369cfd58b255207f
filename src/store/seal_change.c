/* seal_change.c - another master key for the same database.
 *
 *      next key on disk --> the database says "next" --> records, a page at a time --> the end, in
 *      one transaction: check, root of fingerprints, salt; "next" goes --> the file takes its name
 *
 * While the database says "next" no server starts, and this goes on where it was: what opens with
 * the next key is done, what opens with the old one is not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/loop.h"
#include "store/seal_priv.h"
#include "store/store.h"

enum { PAGE = 256, SALT_BYTES = 16 };

struct turning { /* one call of seal_change() */
    struct seal_change *c;
    struct seal_records r;
    struct seal *old, *next;                /* owned */
    struct record_reader *as_old, *as_next; /* owned */
    char *why;                              /* borrowed, 256 bytes */
};

/* ---- waiting for the store ---- */

struct waiting {
    union {
        struct store_op op;
        struct store_scan scan;
        struct store_tx tx;
    };
    bool done;
    enum bh_err err;
};

static void on_done(struct store_op *op, enum bh_err err)
{
    struct waiting *w = container_of(op, struct waiting, op);

    w->done = true;
    w->err = err;
}

static enum bh_err wait_for(struct turning *ch, struct waiting *w)
{
    while (!w->done)
        loop_turn(ch->c->loop, 1000);
    if (w->err != BH_OK)
        snprintf(ch->why, 256, "the store failed: %s", bh_err_word(w->err));
    return w->err;
}

static enum bh_err write_now(struct turning *ch, const struct store_kv *items, size_t n)
{
    struct waiting w = {.tx = {.op.done = on_done, .items = items, .n = n}};

    store_tx(ch->c->store, &w.tx, true);
    return wait_for(ch, &w);
}

/* ---- the two keys ---- */

static bool is_text(struct str s)
{
    return !str_is_empty(str_trim(s));
}

/* The old key as the database knows it, the next one made or found. */
static enum bh_err open_keys(struct turning *ch)
{
    struct seal_change *c = ch->c;
    struct buf file = BUF_INIT, plain = BUF_INIT;

    seal_next_path(&file, c->path != NULL ? c->path : "");
    enum bh_err err = seal_key(c->from, buf_str(&ch->r.salt), c->path, &ch->old, ch->why);
    if (err == BH_OK && !seal_fits(ch->old, buf_str(&ch->r.check))) {
        snprintf(ch->why, 256, "the master key does not fit the database");
        err = BH_REFUSED;
    }
    if (err == BH_OK && ch->r.mac.n > 0 &&
        unseal_secret(ch->old, SEAL_MAC, buf_str(&ch->r.mac), &plain) &&
        plain.n == sizeof ch->old->mac_key)
        memcpy(ch->old->mac_key, plain.p, plain.n);
    if (err == BH_OK)
        err = seal_key(c->to, buf_str(&ch->r.next_salt), buf_z(&file), &ch->next, ch->why);
    buf_wipe(&plain);
    buf_done(&file);
    return err;
}

/* From now on no server starts until the change is over. */
static enum bh_err announce(struct turning *ch)
{
    struct buf check = BUF_INIT;

    seal_secret(ch->next, SEAL_CHECK, SEAL_CHECK_TEXT, &check);
    struct store_kv items[] = {
        {KV_PUT, SEAL_NS, SEAL_NEXT, buf_str(&check)},
        {KV_PUT, SEAL_NS, SEAL_NEXT_SALT, buf_str(&ch->r.next_salt)},
    };
    enum bh_err err = write_now(ch, items, ARRAY_LEN(items));
    buf_add_str(&ch->r.next, buf_str(&check));
    buf_done(&check);
    return err;
}

/* Was all of this done already, but for the names of the files?  The database has the key it was to
 * get then. */
static bool is_done(struct turning *ch)
{
    const struct seal_change *c = ch->c;
    struct str check = buf_str(&ch->r.check), salt = buf_str(&ch->r.salt);
    struct buf file = BUF_INIT;
    struct seal *old = NULL, *next = NULL;

    seal_next_path(&file, c->path != NULL ? c->path : "");
    bool made = is_text(c->to) || access(buf_z(&file), F_OK) == 0; /* else it would be made */
    bool done = made && seal_key(c->from, salt, c->path, &old, ch->why) == BH_OK &&
                !seal_fits(old, check) &&
                seal_key(c->to, salt, buf_z(&file), &next, ch->why) == BH_OK &&
                seal_fits(next, check);
    seal_free(old);
    seal_free(next);
    buf_done(&file);
    return done;
}

/* An earlier change to a file may have been over but for its name. */
static enum bh_err settle_last(struct turning *ch)
{
    struct seal *s = NULL;
    enum bh_err err = seal_open_for(ch->c->store, ch->c->from, ch->c->path, &s, ch->why);

    seal_free(s);
    return err;
}

static enum bh_err prepare(struct turning *ch)
{
    struct rand rand = RAND_SYSTEM;
    char salt[SALT_BYTES];
    bool goes_on = ch->r.next.n > 0;

    if (ch->r.check.n == 0) {
        snprintf(ch->why, 256, "nothing was ever sealed in this database");
        return BH_REFUSED;
    }
    if (!goes_on) {
        rand_bytes(&rand, salt, sizeof salt);
        buf_add(&ch->r.next_salt, salt, sizeof salt);
    }
    enum bh_err err = goes_on ? BH_OK : settle_last(ch);
    if (err == BH_OK)
        err = open_keys(ch);
    if (err != BH_OK || !goes_on)
        return err == BH_OK ? announce(ch) : err;
    if (seal_fits(ch->next, buf_str(&ch->r.next)))
        return BH_OK;
    snprintf(ch->why, 256, "the change that was interrupted was to another key: give that one");
    return BH_REFUSED;
}

/* ---- one record ---- */

/* 0: it opens with neither key; 1: it is sealed with the next key already; 2: it is now. */
static int turn_record(const struct turning *ch, const struct record_form *form, void *thing,
                       const struct store_record *rec, struct buf *out)
{
    int how = 0;

    if (record_read(ch->as_next, form, rec->key, rec->value, thing)) {
        how = 1;
    } else if (record_read(ch->as_old, form, rec->key, rec->value, thing)) {
        record_write(form, ch->next, thing, NULL, out);
        how = 2;
    }
    record_done(form, thing);
    return how;
}

/* ---- a page of records ---- */

struct page {
    struct store_kv items[PAGE];
    struct buf values[PAGE];
    size_t n;
};

static enum bh_err turn_page(struct turning *ch, const struct record_form *form,
                             const struct store_scan *scan, struct page *g)
{
    void *thing = xcalloc(1, form->size);

    g->n = 0;
    for (size_t i = 0; i < scan->n_records; i++) {
        const struct store_record *rec = &scan->records[i];
        struct buf *value = &g->values[g->n];
        buf_reset(value);
        int how = turn_record(ch, form, thing, rec, value);
        if (how == 0) {
            snprintf(ch->why, 256, "a sealed record opens with neither key: %.200s",
                     record_why(ch->as_old));
            free(thing);
            return BH_REFUSED;
        }
        if (how == 2)
            g->items[g->n++] = (struct store_kv){KV_PUT, form->ns, rec->key, buf_str(value)};
    }
    free(thing);
    ch->c->records += scan->n_records;
    ch->c->sealed += g->n;
    return g->n > 0 ? write_now(ch, g->items, g->n) : BH_OK;
}

static enum bh_err turn_form(struct turning *ch, const struct record_form *form, struct page *g)
{
    struct buf after = BUF_INIT;
    enum bh_err err;
    bool more;

    do {
        struct waiting w = {.scan = {.op.done = on_done, .ns = form->ns, .limit = PAGE}};
        if (after.n > 0)
            w.scan.after = buf_str(&after);
        store_scan(ch->c->store, &w.scan);
        err = wait_for(ch, &w);
        more = err == BH_OK && w.scan.more;
        if (err == BH_OK)
            err = turn_page(ch, form, &w.scan, g);
        if (more) {
            buf_reset(&after);
            buf_add_str(&after, w.scan.records[w.scan.n_records - 1].key);
        }
        store_scan_free(ch->c->store, &w.scan);
        if (ch->c->each != NULL)
            ch->c->each(ch->c->ctx, ch->c->records);
    } while (err == BH_OK && more);
    buf_done(&after);
    return err;
}

static enum bh_err turn_all(struct turning *ch)
{
    struct page *g = xcalloc(1, sizeof *g);
    enum bh_err err = BH_OK;

    ch->as_old = record_reader_new(ch->old);
    ch->as_next = record_reader_new(ch->next);
    for (size_t i = 0; err == BH_OK && ch->c->forms[i] != NULL; i++)
        if (record_has_sealed(ch->c->forms[i]))
            err = turn_form(ch, ch->c->forms[i], g);
    record_reader_free(ch->as_old);
    record_reader_free(ch->as_next);
    for (size_t i = 0; i < PAGE; i++)
        buf_wipe(&g->values[i]);
    free(g);
    return err;
}

/* ---- the end ---- */

static enum bh_err finish(struct turning *ch)
{
    struct buf check = BUF_INIT, mac = BUF_INIT;
    struct str root = str_make(ch->old->mac_key, sizeof ch->old->mac_key);

    seal_secret(ch->next, SEAL_CHECK, SEAL_CHECK_TEXT, &check);
    seal_secret(ch->next, SEAL_MAC, root, &mac);
    struct store_kv items[] = {
        {KV_PUT, SEAL_NS, SEAL_CHECK, buf_str(&check)},
        {KV_PUT, SEAL_NS, SEAL_MAC, buf_str(&mac)},
        {KV_PUT, SEAL_NS, SEAL_SALT, buf_str(&ch->r.next_salt)},
        {KV_DELETE, SEAL_NS, SEAL_NEXT},
        {KV_DELETE, SEAL_NS, SEAL_NEXT_SALT},
    };
    enum bh_err err = write_now(ch, items, ARRAY_LEN(items));
    buf_done(&check);
    buf_done(&mac);
    return err;
}

/* The database has the next key already: what is left are names. */
static enum bh_err rename_files(struct turning *ch)
{
    struct seal_change *c = ch->c;
    struct buf next = BUF_INIT;
    bool ok = is_text(c->from) || seal_keep_old(c->path, &c->old);

    seal_next_path(&next, c->path);
    if (ok && !is_text(c->to))
        ok = rename(buf_z(&next), c->path) == 0;
    else if (ok && !is_text(c->from))
        ok = unlink(c->path) == 0;
    if (ok && !(is_text(c->from) && is_text(c->to)))
        ok = file_sync_folder_of(c->path);
    if (!ok)
        snprintf(ch->why, 256, "the key is changed, but not the name of its file %.100s: %s",
                 c->path, strerror(errno));
    buf_done(&next);
    return ok ? BH_OK : BH_UNAVAILABLE;
}

enum bh_err seal_change(struct seal_change *c, char *ret_why)
{
    struct turning ch = {.c = c, .why = ret_why};
    enum bh_err err = BH_UNAVAILABLE;

    if (!seal_records_load(c->store, &ch.r))
        snprintf(ret_why, 256, "cannot read the database");
    else if (ch.r.next.n == 0 && ch.r.check.n > 0 && is_done(&ch))
        err = rename_files(&ch);
    else if ((err = prepare(&ch)) == BH_OK && (err = turn_all(&ch)) == BH_OK &&
             (err = finish(&ch)) == BH_OK)
        err = rename_files(&ch);
    seal_free(ch.old);
    seal_free(ch.next);
    seal_records_done(&ch.r);
    return err;
}
