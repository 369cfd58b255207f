/* A store whose process is killed at random moments: what was reported done must be there.
 *
 * A child appends, shrinks and acks with the real store.  Through a pipe it tells what it is about
 * to do and what was done; the parent kills it, opens the database again and compares.  Frames are
 * computed from their id, so that every byte can be checked. */
#include "unit.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/loop.h"
#include "store/sqlite/sqlite.h"

enum { ROUNDS = 30, MAX_BOOT = 2 * ROUNDS + 1, IN_FLIGHT = 64, MAX_FRAME = 900 };

/* What is known of an id: told by the child, or found by the parent. */
enum {
    APPENDED = 1,  /* done(BH_OK) of the append, not shrunk */
    SHRINKING = 2, /* about to be shrunk: there may be no row */
    SHRUNK = 4,    /* done(BH_OK) of the append, shrunk */
    ACKING = 8,    /* about to be acked: the row may be gone */
    ACKED = 16,    /* done(BH_OK) of the ack */
    FOUND_ROW = 32,
    FOUND_KEY = 64,
};
struct report {
    uint64_t id;
    uint64_t fact;
};

static char dir[64], path[128], why[256];
static struct store *st;

static size_t make_frame(uint64_t id, char *frame)
{
    struct rand r = rand_seeded(id);
    size_t n = 1 + rand_below(&r, MAX_FRAME - 1);
    rand_bytes(&r, frame, n);
    return n;
}

static struct hash128 key_of(uint64_t id)
{
    return (struct hash128){.lo = id, .hi = id * UINT64_C(0x9e3779b97f4a7c15)};
}

/* ---- the child ---- */

struct slot {
    struct store_append append;
    struct store_ack ack;
    uint64_t id;
    char frame[MAX_FRAME];
};
static struct slot slots[IN_FLIGHT];
static uint64_t next_n;
static int report_fd;
static struct rand dice;

static void slot_start(struct slot *s);

static void tell(uint64_t id, uint64_t fact)
{
    struct report r = {.id = id, .fact = fact};
    if (write(report_fd, &r, sizeof r) != sizeof r) /* below PIPE_BUF: whole or not at all */
        _exit(2);
}

static void on_acked(struct store_op *op, enum bh_err err)
{
    struct slot *s = container_of(op, struct slot, ack.op);
    if (err != BH_OK)
        _exit(3);
    tell(s->id, ACKED);
    slot_start(s);
}

static void on_appended(struct store_op *op, enum bh_err err)
{
    struct slot *s = container_of(op, struct slot, append.op);
    if (err != BH_OK)
        _exit(4);
    tell(s->id, s->append.shrunk ? SHRUNK : APPENDED);
    if (rand_below(&dice, 4) == 0) {
        tell(s->id, ACKING);
        s->ack = (struct store_ack){.op.done = on_acked, .ids = &s->id, .n = 1};
        store_ack(st, &s->ack);
    } else {
        slot_start(s);
    }
}

static void slot_start(struct slot *s)
{
    s->id = st->boot << 40 | ++next_n;
    s->append = (struct store_append){.op.done = on_appended,
                                      .id = s->id,
                                      .box = (uint32_t)(s->id % 7),
                                      .at_ms = 1000,
                                      .has_key = true,
                                      .key = key_of(s->id),
                                      .frame = {s->frame, make_frame(s->id, s->frame)}};
    store_append(st, &s->append, rand_below(&dice, 2) == 0);
    if (rand_below(&dice, 8) == 0) {
        tell(s->id, SHRINKING);
        store_append_shrink(st, &s->append);
    }
}

static void child_main(uint64_t seed)
{
    struct loop *loop = loop_new();
    dice = rand_seeded(seed);
    if (store_sqlite_open(loop, path, &st, why) != BH_OK)
        _exit(5);
    for (size_t i = 0; i < IN_FLIGHT; i++)
        slot_start(&slots[i]);
    loop_run(loop); /* until we are killed */
}

/* ---- the parent ---- */

static struct {
    uint8_t *facts; /* owned; by the lower part of the id */
    size_t cap;
} books[MAX_BOOT + 1]; /* by boot */

static uint8_t *facts_of(uint64_t id)
{
    uint64_t boot = id >> 40, n = id & ((UINT64_C(1) << 40) - 1);
    assert_in_range(boot, 1, MAX_BOOT);
    assert_in_range(n, 1, 10000000);
    if (n >= books[boot].cap) {
        size_t cap = (n + 1) * 2;
        books[boot].facts = xrealloc(books[boot].facts, cap);
        memset(books[boot].facts + books[boot].cap, 0, cap - books[boot].cap);
        books[boot].cap = cap;
    }
    return &books[boot].facts[n];
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Listen for @ms, kill, listen to the end.  The time counts from the first report, or, in every
 * fourth round, from the start, so that opening is hit too. */
static void run_child(uint64_t seed, int64_t ms)
{
    int fds[2];
    struct report r;
    struct pollfd first = {.events = POLLIN};

    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        report_fd = fds[1];
        close(fds[0]);
        child_main(seed);
        _exit(6);
    }
    close(fds[1]);
    first.fd = fds[0];
    if (seed % 4 != 0)
        assert_int_equal(poll(&first, 1, 20000), 1);
    for (int64_t until = now_ms() + ms, left; (left = until - now_ms()) > 0;) {
        struct pollfd p = {.fd = fds[0], .events = POLLIN};
        if (poll(&p, 1, (int)left) > 0 && read(fds[0], &r, sizeof r) == sizeof r)
            *facts_of(r.id) |= (uint8_t)r.fact;
        else if (p.revents != 0)
            break; /* it ended by itself: the status below says why */
    }
    kill(child, SIGKILL);
    while (read(fds[0], &r, sizeof r) == sizeof r)
        *facts_of(r.id) |= (uint8_t)r.fact;
    close(fds[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

struct found {
    uint64_t *ids; /* owned */
    size_t n, cap;
};

static void on_row(void *ctx, const struct store_row *row)
{
    struct found *f = ctx;
    char frame[MAX_FRAME];

    assert_true(f->n == 0 || row->id > f->ids[f->n - 1]);
    assert_int_equal(row->box, row->id % 7);
    assert_int_equal(row->frame_bytes, make_frame(row->id, frame));
    *facts_of(row->id) |= FOUND_ROW;
    if (f->n == f->cap) {
        f->cap = f->cap == 0 ? 1024 : f->cap * 2;
        f->ids = xrealloc(f->ids, f->cap * sizeof *f->ids);
    }
    f->ids[f->n++] = row->id;
}

static void on_key(void *ctx, struct hash128 key, int64_t at_ms)
{
    uint8_t *facts = facts_of(key.lo);
    assert_int_equal(key.hi, key_of(key.lo).hi);
    assert_int_equal(at_ms, 1000);
    assert_false(*facts & FOUND_KEY); /* once, not twice */
    *facts |= FOUND_KEY;
}

static size_t check_facts(void)
{
    size_t told = 0;
    for (size_t b = 1; b <= MAX_BOOT; b++)
        for (size_t n = 0; n < books[b].cap; n++) {
            uint8_t f = books[b].facts[n];
            if (f & APPENDED && !(f & ACKING))
                assert_true(f & FOUND_ROW);
            if (f & (APPENDED | SHRUNK))
                assert_true(f & FOUND_KEY);
            if (f & (SHRUNK | ACKED))
                assert_false(f & FOUND_ROW);
            if (f & FOUND_ROW)
                assert_true(f & FOUND_KEY); /* a row and its key share a transaction */
            if (f & FOUND_KEY && !(f & (SHRINKING | ACKING)))
                assert_true(f & FOUND_ROW);
            told += (f & (APPENDED | SHRUNK)) != 0;
            books[b].facts[n] = f & (uint8_t) ~(FOUND_ROW | FOUND_KEY);
        }
    return told;
}

static struct loop *check_loop;

static void on_fetched(struct store_op *op, enum bh_err err)
{
    struct store_fetch *f = container_of(op, struct store_fetch, op);
    char frame[MAX_FRAME];

    assert_int_equal(err, BH_OK);
    assert_int_equal(f->n_rows, f->n_used);
    for (size_t i = 0; i < f->n_rows; i++) {
        size_t n = make_frame(f->ids[i], frame);
        assert_int_equal(f->rows[i].frame.n, n);
        assert_memory_equal(f->rows[i].frame.p, frame, n);
    }
    f->ids += f->n_used;
    f->n -= f->n_used;
    store_fetch_free(f);
    if (f->n > 0)
        store_fetch(st, f);
    else
        loop_stop(check_loop);
}

static size_t check_database(uint64_t *boot)
{
    struct found found = {0};
    struct store_fetch fetch = {.op.done = on_fetched};

    check_loop = loop_new();
    assert_int_equal(store_sqlite_open(check_loop, path, &st, why), BH_OK);
    assert_true(st->boot > *boot);
    *boot = st->boot;
    assert_int_equal(st->ops->load_rows(st, on_row, &found), BH_OK);
    assert_int_equal(st->ops->load_keys(st, 0, on_key, NULL), BH_OK);
    size_t told = check_facts();
    fetch.ids = found.ids;
    fetch.n = found.n;
    store_fetch(st, &fetch);
    loop_run(check_loop);
    free(found.ids);
    store_close(st);
    loop_free(check_loop);
    return told;
}

static void what_was_reported_done_survives_a_kill_at_any_moment(void **state)
{
    struct rand r = rand_seeded((uint64_t)now_ms());
    uint64_t boot = 0;
    size_t told = 0;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        run_child(round + 1, (int64_t)rand_below(&r, 80));
        told = check_database(&boot);
    }
    print_message("%zu appends were reported done\n", told);
    assert_true(told > IN_FLIGHT); /* or nothing was tested */
}

static int setup(void **state)
{
    log_setup(LOG_ERROR, false);
    strcpy(dir, "/tmp/bellhop-crash-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/bellhop.db", dir);
    return 0;
}

static int teardown(void **state)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    char name[160];
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    for (size_t i = 0; i < ARRAY_LEN(books); i++)
        free(books[i].facts);
    return rmdir(dir);
}

UNIT(store_test_crash)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_reported_done_survives_a_kill_at_any_moment, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
