/* reply_room.c - design.  (reply_room.h has the contract.)
 *
 * A tally per agent that has replies.  Cursors grow for ever: those past the mark that a pass sets
 * when it begins were written since and are counted as they come, so what is counted is exact.
 * Nothing is trimmed while a pass is under way; what is due is done at its end. */
#include "dispatch/reply_room.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/records.h"
#include "store/sweep.h"

#define REST_MS 3600000
#define SQUEEZE_MS 1000
enum { TRIM_EVERY = 64, TRIM_AT_ONCE = 256 };

struct tally { /* the replies of one agent */
    size_t bytes, n;
    size_t found_bytes, found_n;     /* by the pass under way */
    size_t written_bytes, written_n; /* since it began */
    uint64_t goal;                   /* bytes that may be left; 0: as many as there are */
    struct record_scan *scan;        /* the trim under way */
    struct reply_room *t;
    char prefix[]; /* tenant \x1f agent \x1f */
};

struct reply_room {
    struct dispatch *d;  /* borrowed */
    struct map tallies;  /* prefix -> tally; owned */
    struct sweep *sweep; /* owned */
    bool known, passing; /* a pass has ended; one is under way */
    uint64_t mark;       /* cursors above it were written since the pass began */
    uint64_t written;    /* bytes, since the start */
    int64_t squeezed_ms; /* when room was last made */
};

static struct tally *tally_of(struct reply_room *t, struct str prefix)
{
    struct tally *y = map_get(&t->tallies, prefix);

    if (y == NULL) {
        y = xcalloc(1, sizeof *y + prefix.n + 1);
        memcpy(y->prefix, prefix.p, prefix.n);
        y->t = t;
        map_put(&t->tallies, str_of(y->prefix), y);
    }
    return y;
}

static void set_bytes(struct tally *y, size_t now)
{
    if (y->t->d->env.ledger == NULL)
        y->bytes = now;
    ledger_correct(y->t->d->env.ledger, LIMIT_REPLY_BYTES, &y->bytes, now);
}

static struct limit_bounds bounds_of(const struct reply_room *t)
{
    const struct ledger *l = t->d->env.ledger;

    return l != NULL ? ledger_bounds(l, LIMIT_REPLY_BYTES) : (struct limit_bounds){0};
}

/* ---- the oldest go ---- */

static bool is_too_much(const struct tally *y)
{
    return y->n > 1 &&
           (y->n > y->t->d->env.settings->replies || (y->goal != 0 && y->bytes > y->goal));
}

static void trim(struct tally *y);

static void on_oldest(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct tally *y = ctx;
    struct buf end = BUF_INIT;
    size_t i = 0;

    y->scan = NULL;
    for (; err == BH_OK && i < s->n_records && is_too_much(y) && !y->t->passing; i++) {
        size_t bytes = s->records[i].key.n + s->records[i].value.n;
        set_bytes(y, bytes < y->bytes ? y->bytes - bytes : 0);
        y->n--;
    }
    if (i == 0)
        return;
    buf_add_str(&end, s->records[i - 1].key);
    buf_add_c(&end, '\x01'); /* this one included */
    records_clear(y->t->d->env.store, REPLY_NS, str_of(y->prefix), buf_str(&end));
    buf_done(&end);
    if (is_too_much(y))
        trim(y);
    else
        y->goal = 0;
}

static void trim(struct tally *y)
{
    if (y->t->known && !y->t->passing && y->scan == NULL && is_too_much(y))
        y->scan = records_scan(y->t->d->env.store, REPLY_NS, str_of(y->prefix), STR_NULL,
                               TRIM_AT_ONCE, false, on_oldest, y);
}

/* There is hardly any room for all: those who have more than their share give it up. */
static void squeeze(struct reply_room *t)
{
    int64_t now_ms = clock_now_ms(t->d->env.clock);
    uint64_t fair = bounds_of(t).all / 4 * 3 / (map_count(&t->tallies) + 1);
    void *y;

    if (now_ms - t->squeezed_ms < SQUEEZE_MS && t->squeezed_ms != 0)
        return;
    t->squeezed_ms = now_ms;
    for (size_t pos = 0; map_next(&t->tallies, &pos, &y);) {
        struct tally *of = y;
        of->goal = fair;
        trim(of);
    }
}

bool reply_room_take(struct reply_room *t, struct str prefix, size_t bytes)
{
    struct ledger *l = t->d->env.ledger;
    struct limit_bounds b = bounds_of(t);
    struct tally *y = tally_of(t, prefix);
    bool ok = t->known || b.all == 0 || t->written + bytes <= b.all / 8;

    ok =
        ok && ledger_change(l, NULL, LIMIT_REPLY_BYTES, &y->bytes, y->bytes + bytes) == LIMIT_TAKEN;
    if (b.all != 0 && ledger_held(l, NULL, LIMIT_REPLY_BYTES) > b.all / 8 * 7)
        squeeze(t);
    if (!ok)
        return false;
    t->written += bytes;
    y->written_bytes += bytes;
    y->written_n++;
    y->n++;
    y->goal = b.each != 0 && y->bytes > b.each ? b.each / 8 * 7 : y->goal;
    if (y->n >= (size_t)t->d->env.settings->replies + TRIM_EVERY || y->goal != 0)
        trim(y);
    return true;
}

/* ---- a pass ---- */

static void on_begin(void *ctx)
{
    struct reply_room *t = ctx;
    void *y;

    t->passing = true;
    t->mark = t->d->next_number;
    for (size_t pos = 0; map_next(&t->tallies, &pos, &y);) {
        struct tally *of = y;
        of->found_bytes = of->found_n = of->written_bytes = of->written_n = 0;
    }
}

static uint64_t number_of(struct str hex)
{
    uint64_t n = 0;

    for (size_t i = 0; i < hex.n; i++)
        n = n << 4 | ((unsigned)hex_value(hex.p[i]) & 15);
    return n;
}

static bool is_too_old(const struct reply_room *t, struct str value)
{
    int64_t keep_ms = t->d->env.retention_ms != NULL ? *t->d->env.retention_ms : 0, at_ms;
    struct json doc;

    return keep_ms > 0 && json_parse(t->d->json, value, &doc) &&
           json_as_i64(json_get(doc, "sent_at"), &at_ms) &&
           at_ms < clock_wall_ms(t->d->env.clock) - keep_ms;
}

static bool on_record(void *ctx, struct str key, struct str value)
{
    struct reply_room *t = ctx;

    if (key.n <= REPLY_CURSOR_CHARS)
        return true;
    struct str cursor = str_skip(key, key.n - REPLY_CURSOR_CHARS);
    if (number_of(cursor) > t->mark)
        return false;
    if (is_too_old(t, value))
        return true;
    struct tally *y = tally_of(t, str_make(key.p, key.n - REPLY_CURSOR_CHARS));
    y->found_bytes += key.n + value.n;
    y->found_n++;
    return false;
}

static void on_end(void *ctx)
{
    struct reply_room *t = ctx;
    uint64_t each = bounds_of(t).each;
    void *y;

    t->passing = false;
    t->known = true;
    for (size_t pos = 0; map_next(&t->tallies, &pos, &y);) {
        struct tally *of = y;
        set_bytes(of, of->found_bytes + of->written_bytes);
        of->n = of->found_n + of->written_n;
        of->goal = each != 0 && of->bytes > each ? each / 8 * 7 : 0;
        trim(of);
    }
}

static const struct sweep_ops pass_ops = {.begin = on_begin, .goes = on_record, .end = on_end};

/* ---- life ---- */

struct reply_room *reply_room_new(struct dispatch *d)
{
    struct reply_room *t = xcalloc(1, sizeof *t);

    t->d = d;
    t->sweep = sweep_start(d->env.store, d->env.clock, REPLY_NS, REST_MS, &pass_ops, t);
    return t;
}

void reply_room_free(struct reply_room *t)
{
    void *y;

    if (t == NULL)
        return;
    sweep_stop(&t->sweep);
    for (size_t pos = 0; map_next(&t->tallies, &pos, &y);) {
        records_cancel(&((struct tally *)y)->scan);
        set_bytes(y, 0);
        free(y);
    }
    map_done(&t->tallies);
    free(t);
}
