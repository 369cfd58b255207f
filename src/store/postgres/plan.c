/* plan.c - the appends of a transaction: which are new, and which numbers they get.
 *
 *      pg_plan_begin  take them (what was shrunk by now has a key but no row)
 *      pg_plan_ask    which of the keys that may come once are there?  and: so many numbers for
 *                     each mailbox, as if none were
 *      pg_plan_read   none was there: the numbers are given out in order
 *                     some were: they are marked, and the transaction starts anew without them, so
 *                     that no number stays unused
 *
 * A key that comes twice in one group is sorted out here.  One that another node writes at the same
 * moment makes the insert fail, and the next try finds it.
 *
 * Under the guard of the store nobody else appends: keys are only written down (limbo.c), and
 * numbers are taken in blocks (numbers.c). */
#include "store/postgres/impl.h"
#include <endian.h>
#include <stdlib.h>
#include "base/mem.h"

void pg_plan_done(struct plan *p)
{
    free(p->all);
    free(p->by);
    buf_done(&p->seen);
}

static struct str key_bytes(const struct store_append *a, uint64_t room[2])
{
    room[0] = htole64(a->key.lo);
    room[1] = htole64(a->key.hi);
    return str_make(room, 2 * sizeof room[0]);
}

static bool is_once(const struct store_append *a)
{
    return a->has_key && a->once;
}

static bool has_row(const struct store_append *a)
{
    return !a->exists && !a->shrunk;
}

void pg_plan_begin(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    struct plan *p = &st->plan;

    p->n = 0;
    p->trusting = pg_is_guarded(st);
    p->new_box = false;
    for (struct store_op *op = first; op != end; op = op->next) {
        if (op->kind != STORE_APPEND)
            continue;
        struct store_append *a = container_of(op, struct store_append, op);
        a->exists = false;
        a->sequence = 0;
        a->shrunk = !worker_take_append(a);
        a->op.ticket = p->n; /* reads alone use it: here it is the place in the order */
        if (p->n == p->cap) {
            p->cap = p->cap != 0 ? p->cap * 2 : 64;
            p->all = xrealloc(p->all, p->cap * sizeof *p->all);
            p->by = xrealloc(p->by, p->cap * sizeof *p->by);
        }
        p->all[p->n++] = a;
    }
}

/* ---- keys ---- */

static int hash_cmp(struct hash128 a, struct hash128 b)
{
    uint64_t x[2], y[2];

    x[0] = htole64(a.lo), x[1] = htole64(a.hi);
    y[0] = htole64(b.lo), y[1] = htole64(b.hi);
    return memcmp(x, y, sizeof x); /* as the database sorts them */
}

/* By key; the same key in order of submission: whoever is first keeps it. */
static int by_key(const void *x, const void *y)
{
    const struct store_append *a = *(struct store_append *const *)x;
    const struct store_append *b = *(struct store_append *const *)y;
    int c = hash_cmp(a->key, b->key);

    return c != 0 ? c : (a->op.ticket > b->op.ticket) - (a->op.ticket < b->op.ticket);
}

/* Those with a key that may come once, sorted. */
static size_t sort_keys(struct plan *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        if (is_once(p->all[i]))
            p->by[n++] = p->all[i];
    if (n > 1)
        qsort(p->by, n, sizeof p->by[0], by_key);
    return n;
}

/* The second of a key exists already: its number follows when the first has one. */
static void mark_twins(struct plan *p, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (hash_cmp(p->by[i]->key, p->by[i - 1]->key) == 0)
            p->by[i]->exists = true;
}

static void tell_twins(struct plan *p)
{
    size_t n = sort_keys(p);

    for (size_t i = 1; i < n; i++)
        if (hash_cmp(p->by[i]->key, p->by[i - 1]->key) == 0)
            p->by[i]->sequence = p->by[i - 1]->sequence;
}

static void mark_limbo(struct store_postgres *st, size_t n)
{
    struct plan *p = &st->plan;

    for (size_t i = 0; st->limbo.n > 0 && i < n; i++) {
        const struct limbo_key *known = pg_limbo_find(&st->limbo, p->by[i]->key);
        if (known != NULL) {
            p->by[i]->exists = true;
            p->by[i]->sequence = known->row;
        }
    }
}

static void ask_keys(struct store_postgres *st)
{
    struct plan *p = &st->plan;
    size_t n = sort_keys(p);
    uint64_t room[2];

    mark_twins(p, n);
    p->n_keys = 0;
    if (p->trusting) {
        mark_limbo(st, n);
        return;
    }
    params_reset(&st->params);
    array_begin(&st->params, PARAM_BYTES);
    for (size_t i = 0; i < n; i++)
        if (!p->by[i]->exists) {
            array_bytes(&st->params, key_bytes(p->by[i], room));
            p->n_keys++;
        }
    array_end(&st->params);
    if (p->n_keys > 0)
        line_ask(&st->main, PG_KEYS, &st->params);
}

static void mark_found(struct plan *p, size_t n, struct str key, uint64_t row)
{
    struct store_append probe = {0}, *at = &probe;
    uint64_t words[2];

    if (key.n != sizeof words)
        return;
    memcpy(words, key.p, sizeof words);
    probe.key = (struct hash128){.lo = le64toh(words[0]), .hi = le64toh(words[1])};
    size_t lo = 0, hi = n;
    while (lo < hi) { /* the first that is not below */
        size_t mid = lo + (hi - lo) / 2;
        if (by_key(&p->by[mid], &at) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < n && hash_cmp(p->by[lo]->key, probe.key) == 0; lo++) {
        p->by[lo]->exists = true;
        p->by[lo]->sequence = row;
    }
}

static enum line_end read_keys(struct store_postgres *st)
{
    PGresult *r;
    enum line_end e = line_answer(&st->main, &r);

    if (e != LINE_OK)
        return e;
    int found = PQntuples(r);
    size_t n = found > 0 ? sort_keys(&st->plan) : 0;
    for (int i = 0; i < found; i++)
        mark_found(&st->plan, n, column_bytes(r, i, 0), (uint64_t)column_int(r, i, 1));
    PQclear(r);
    return found > 0 ? LINE_AGAIN : LINE_OK;
}

/* ---- numbers ---- */

static int by_box(const void *x, const void *y)
{
    const struct store_append *a = *(struct store_append *const *)x;
    const struct store_append *b = *(struct store_append *const *)y;

    if (a->box != b->box)
        return a->box < b->box ? -1 : 1;
    return (a->op.ticket > b->op.ticket) - (a->op.ticket < b->op.ticket);
}

static void sort_rows(struct plan *p)
{
    p->n_rows = 0;
    for (size_t i = 0; i < p->n; i++)
        if (has_row(p->all[i]))
            p->by[p->n_rows++] = p->all[i];
    if (p->n_rows > 1)
        qsort(p->by, p->n_rows, sizeof p->by[0], by_box);
}

static size_t box_run(const struct plan *p, size_t at)
{
    size_t end = at;

    while (end < p->n_rows && p->by[end]->box == p->by[at]->box)
        end++;
    return end - at;
}

/* How many numbers of its mailbox the @n rows at @at have to be asked for. */
static size_t short_of(struct store_postgres *st, size_t at, size_t n)
{
    const struct plan *p = &st->plan;

    return p->trusting ? pg_numbers_short(&st->numbers, p->by[at]->box, n) : n;
}

static void ask_numbers(struct store_postgres *st)
{
    struct plan *p = &st->plan;

    sort_rows(p);
    p->numbering = false;
    params_reset(&st->params);
    array_begin(&st->params, PARAM_I32);
    for (size_t i = 0; i < p->n_rows; i += box_run(p, i))
        if (short_of(st, i, box_run(p, i)) > 0) {
            array_i32(&st->params, (int32_t)p->by[i]->box);
            p->numbering = true;
        }
    array_end(&st->params);
    array_begin(&st->params, PARAM_I64);
    for (size_t i = 0; i < p->n_rows; i += box_run(p, i)) {
        size_t n = short_of(st, i, box_run(p, i));
        if (n > 0)
            array_i64(&st->params, (int64_t)n);
    }
    array_end(&st->params);
    if (p->numbering)
        line_ask(&st->main, p->trusting && !p->new_box ? PG_RAISE : PG_NUMBER, &st->params);
}

/* The first number of the @n rows at @at.  The answer has the mailboxes in the order they were
 * asked in; 0: it lacks this one. */
static uint64_t first_number(struct store_postgres *st, size_t at, size_t n, const PGresult *r,
                             int *line)
{
    struct plan *p = &st->plan;
    uint32_t box = p->by[at]->box;
    size_t asked = short_of(st, at, n);

    if (asked > 0) {
        if (*line >= PQntuples(r) || (uint64_t)column_int(r, *line, 0) != box)
            return 0;
        uint64_t last = (uint64_t)column_int(r, (*line)++, 1);
        if (!p->trusting)
            return last - n + 1;
        pg_numbers_add(&st->numbers, box, last, asked);
    }
    return pg_numbers_use(&st->numbers, box, n);
}

/* @r is NULL where nothing was asked. */
static bool give_numbers(struct store_postgres *st, const PGresult *r)
{
    struct plan *p = &st->plan;
    int line = 0;

    sort_rows(p);
    for (size_t at = 0, n; at < p->n_rows; at += n) {
        n = box_run(p, at);
        uint64_t first = first_number(st, at, n, r, &line);
        if (first == 0)
            return false;
        for (size_t k = 0; k < n; k++)
            p->by[at + k]->sequence = (uint64_t)p->by[at]->box << 40 | (first + k);
    }
    return true;
}

static enum line_end read_numbers(struct store_postgres *st)
{
    struct plan *p = &st->plan;
    PGresult *r = NULL;
    enum line_end e = p->numbering ? line_answer(&st->main, &r) : LINE_OK;

    if (e != LINE_OK)
        return e;
    bool whole = give_numbers(st, r);
    if (r != NULL)
        PQclear(r);
    if (whole)
        return LINE_OK;
    bool again = p->trusting && !p->new_box;
    p->new_box = true;
    return again ? LINE_AGAIN : LINE_FAILED;
}

void pg_plan_undo(struct store_postgres *st)
{
    for (size_t i = 0; st->plan.trusting && i < st->plan.n; i++)
        pg_numbers_drop(&st->numbers, st->plan.all[i]->box);
}

/* ---- both ---- */

void pg_plan_ask(struct store_postgres *st)
{
    ask_keys(st);
    ask_numbers(st);
}

/* Both answers are read, whatever the first one says: the line must stay in step. */
enum line_end pg_plan_read(struct store_postgres *st)
{
    struct plan *p = &st->plan;
    size_t n_rows = p->n_rows;
    enum line_end keys = p->n_keys > 0 ? read_keys(st) : LINE_OK;

    if (keys == LINE_LOST || n_rows == 0)
        return keys;
    if (keys != LINE_OK) { /* numbers that nobody gets: the transaction is rolled back */
        PGresult *r;
        enum line_end e = line_answer(&st->main, &r);
        if (r != NULL)
            PQclear(r);
        return e == LINE_LOST ? e : keys;
    }
    enum line_end e = read_numbers(st);
    if (e == LINE_OK)
        tell_twins(p);
    return e;
}

/* ---- the keys of the group ---- */

static void ask_once(struct store_postgres *st, size_t n)
{
    struct plan *p = &st->plan;
    uint64_t room[2];

    params_reset(&st->params);
    array_begin(&st->params, PARAM_BYTES);
    for (size_t i = 0; i < n; i++)
        if (!p->by[i]->exists)
            array_bytes(&st->params, key_bytes(p->by[i], room));
    array_end(&st->params);
    array_begin(&st->params, PARAM_I64);
    for (size_t i = 0; i < n; i++)
        if (!p->by[i]->exists)
            array_i64(&st->params, p->by[i]->at_ms);
    array_end(&st->params);
    array_begin(&st->params, PARAM_I64);
    for (size_t i = 0; i < n; i++)
        if (!p->by[i]->exists)
            array_i64(&st->params, (int64_t)p->by[i]->sequence);
    array_end(&st->params);
    line_ask(&st->main, PG_ONCE, &st->params);
}

static void ask_seen(struct store_postgres *st)
{
    struct plan *p = &st->plan;

    params_reset(&st->params);
    param_i64(&st->params, p->seen_at_ms);
    param_bytes(&st->params, buf_str(&p->seen));
    line_ask(&st->main, PG_SEEN, &st->params);
}

int pg_plan_ask_keys(struct store_postgres *st)
{
    struct plan *p = &st->plan;
    uint64_t room[2];

    buf_reset(&p->seen);
    p->seen_at_ms = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->all[i]->has_key && !p->all[i]->exists && (!p->all[i]->once || p->trusting)) {
            buf_add_str(&p->seen, key_bytes(p->all[i], room));
            if (p->all[i]->at_ms > p->seen_at_ms)
                p->seen_at_ms = p->all[i]->at_ms;
        }
    if (p->n_keys > 0)
        ask_once(st, sort_keys(p));
    if (p->seen.n > 0)
        ask_seen(st);
    return (p->n_keys > 0) + (p->seen.n > 0);
}
