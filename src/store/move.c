/* move.c - design.  (move.h has the contract.)
 *
 * A resumed move reads the source from the beginning and skips the rows that the target has: a row
 * count is a cursor that fits every table.  The comparison hashes each row and adds up the hashes,
 * so both sides may read in different orders. */
#include "store/move.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/buf.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/mem.h"
#include "store/move_side.h"
#include "store/store.h"

enum { BATCH_ITEMS = 512, BATCH_BYTES = 4 << 20 };

const char *store_table_name(enum store_table t)
{
    static const char *const names[] = {"records", "messages", "deduplication records"};
    return names[t];
}

#define AT(member) offsetof(struct move_item, member)
const struct move_column move_columns[N_MOVE_TABLES][9] = {
    [MOVE_RECORDS] = {{MOVE_TEXT, AT(ns)}, {MOVE_BYTES, AT(key)}, {MOVE_BYTES, AT(value)}},
    [MOVE_ROWS] = {{MOVE_I64, AT(id)},
                   {MOVE_I32, AT(box)},
                   {MOVE_I32, AT(kind)},
                   {MOVE_I32, AT(flags)},
                   {MOVE_I64, AT(at_ms)},
                   {MOVE_I32, AT(attempts)},
                   {MOVE_TEXT, AT(parked)},
                   {MOVE_BYTES, AT(frame)}},
    [MOVE_SEEN] = {{MOVE_BYTES, AT(key)}, {MOVE_I64, AT(at_ms)}},
};
#undef AT

struct move {
    struct move_side *from, *to;
    store_move_cb *each;
    void *ctx;
    uint64_t done, all; /* progress of copying and comparing */
    bool stopped;
    struct store_moved *moved;

    enum store_table table;
    uint64_t at, skip; /* of this table: rows read, and rows that the target already has */
    struct arena arena;
    struct move_item items[BATCH_ITEMS];
    size_t n, bytes;
};

static bool tell(struct move *m)
{
    m->done++;
    if (m->each != NULL && m->done % 256 == 0 && !m->each(m->ctx, m->done, m->all))
        m->stopped = true;
    return !m->stopped;
}

/* ---- copying ---- */

static bool flush(struct move *m)
{
    bool ok = m->n == 0 || m->to->ops->write(m->to, m->table, m->items, m->n, m->at);

    m->n = m->bytes = 0;
    arena_reset(&m->arena);
    return ok;
}

static bool copy_item(void *ctx, const struct move_item *item)
{
    struct move *m = ctx;
    struct move_item *to = &m->items[m->n];

    if (!tell(m))
        return false;
    m->at++;
    if (m->skip > 0) {
        m->skip--;
        return true;
    }
    *to = *item;
    for (const struct move_column *c = move_columns[m->table]; c->type != MOVE_END; c++) {
        void *at = (char *)to + c->at;
        struct str *text = at;
        if (c->type < MOVE_TEXT || text->p == NULL)
            continue;
        *text = arena_str(&m->arena, *text);
        m->bytes += text->n;
    }
    m->n++;
    return (m->n < BATCH_ITEMS && m->bytes < BATCH_BYTES) || flush(m);
}

static bool copy_table(struct move *m, enum store_table t, uint64_t there)
{
    m->table = t;
    m->at = 0;
    m->skip = there;
    m->moved->resumed += there;
    return m->from->ops->read(m->from, t, copy_item, m) && !m->stopped && flush(m);
}

/* ---- comparing ---- */

struct sum {
    struct move *m;
    enum store_table table;
    uint64_t n, lo, hi;
    struct buf text;
};

static void put_number(struct buf *out, uint64_t v)
{
    buf_add(out, &v, sizeof v);
}

static void put_column(struct buf *out, const struct move_column *c, const struct move_item *i)
{
    const void *at = (const char *)i + c->at;
    const struct str *text = at;

    if (c->type == MOVE_I64) {
        put_number(out, *(const uint64_t *)at);
    } else if (c->type == MOVE_I32) {
        put_number(out, *(const uint32_t *)at);
    } else {
        put_number(out, text->p == NULL ? UINT64_MAX : text->n);
        buf_add_str(out, *text);
    }
}

static bool sum_item(void *ctx, const struct move_item *i)
{
    struct sum *s = ctx;
    uint8_t hash[SHA256_BYTES];
    uint64_t lo, hi;

    buf_reset(&s->text);
    for (const struct move_column *c = move_columns[s->table]; c->type != MOVE_END; c++)
        put_column(&s->text, c, i);
    sha256(buf_str(&s->text), hash);
    memcpy(&lo, hash, 8);
    memcpy(&hi, hash + 8, 8);
    s->lo += lo;
    s->hi += hi;
    s->n++;
    return tell(s->m);
}

static bool sum_table(struct move *m, struct move_side *side, enum store_table t, struct sum *ret)
{
    struct sum s = {.m = m, .table = t};
    bool ok = side->ops->read(side, t, sum_item, &s) && !m->stopped;

    buf_done(&s.text);
    *ret = s;
    return ok;
}

static bool compare(struct move *m, enum store_table t)
{
    struct sum a, b;

    if (!sum_table(m, m->from, t, &a) || !sum_table(m, m->to, t, &b))
        return false;
    m->moved->n[t] = a.n;
    if (a.n == b.n && a.lo == b.lo && a.hi == b.hi)
        return true;
    return bh_why(
        m->to->why,
        "what was moved is not what was there: %llu %s in the source, %llu in the target%s",
        (unsigned long long)a.n, store_table_name(t), (unsigned long long)b.n,
        a.n == b.n ? ", and they differ" : "");
}

/* ---- the whole ---- */

static bool count_all(struct move *m)
{
    for (int t = 0; t < N_MOVE_TABLES; t++) {
        uint64_t n;
        if (!m->from->ops->count(m->from, (enum store_table)t, &n))
            return false;
        m->all += 3 * n; /* copied once, then read on both sides */
    }
    return true;
}

static bool move_all(struct move *m)
{
    struct move_identity id;
    uint64_t there[N_MOVE_TABLES] = {0};

    if (!m->from->ops->identity(m->from, &id) || !m->to->ops->begin(m->to, &id, there) ||
        !count_all(m))
        return false;
    for (int t = 0; t < N_MOVE_TABLES; t++)
        if (!copy_table(m, (enum store_table)t, there[t]))
            return false;
    for (int t = 0; t < N_MOVE_TABLES; t++)
        if (!compare(m, (enum store_table)t))
            return false;
    return m->to->ops->finish(m->to, &id);
}

/* Closes both.  NULL: it could not be opened, and @ret_why says why. */
static enum bh_err run(struct move_side *from, struct move_side *to, store_move_cb *each, void *ctx,
                       struct store_moved *ret, char *ret_why)
{
    struct move *m = xcalloc(1, sizeof *m);

    *ret = (struct store_moved){0};
    m->from = from, m->to = to, m->each = each, m->ctx = ctx, m->moved = ret;
    bool ok = to != NULL && move_all(m);
    enum bh_err err = ok ? BH_OK : m->stopped ? BH_CANCELLED : BH_UNAVAILABLE;
    if (m->stopped)
        snprintf(ret_why, 256, "stopped");
    else if (!ok && to != NULL)
        snprintf(ret_why, 256, "%s", from->why[0] != '\0' ? from->why : to->why);
    arena_done(&m->arena);
    free(m);
    if (to != NULL)
        to->ops->close(to);
    if (from != NULL)
        from->ops->close(from);
    return err;
}

enum bh_err store_move_in(const char *db, const char *url, store_move_cb *each, void *ctx,
                          struct store_moved *ret, char *ret_why)
{
    struct move_side *from = move_side_sqlite(db, false, ret_why);
    struct move_side *to = from != NULL ? move_side_postgres(url, ret_why) : NULL;

    return run(from, to, each, ctx, ret, ret_why);
}

enum bh_err store_move_out(const char *url, const char *db, store_move_cb *each, void *ctx,
                           struct store_moved *ret, char *ret_why)
{
    struct buf part = BUF_INIT;

    if (access(db, F_OK) == 0)
        return bh_err_why(BH_CONFLICT, ret_why, "%.180s exists already: move it away first", db);
    buf_printf(&part, "%s.part", db);
    struct move_side *from = move_side_postgres(url, ret_why);
    struct move_side *to = from != NULL ? move_side_sqlite(buf_z(&part), true, ret_why) : NULL;
    enum bh_err err = run(from, to, each, ctx, ret, ret_why);
    if (err == BH_OK && (rename(buf_z(&part), db) != 0 || !file_sync_folder_of(db))) {
        snprintf(ret_why, 256, "cannot name it %.180s", db);
        err = BH_UNAVAILABLE;
    }
    buf_done(&part);
    return err;
}
