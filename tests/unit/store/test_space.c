/* A disk that gets full: new messages are refused early, everything that makes room goes on, and it
 * recovers by itself.  Once with a largest size, once on a small disk of its own (needs root). */
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "store/sqlite/sqlite.h"

enum { FRAME_BYTES = 16000, MAX_ROWS = 4000 };

static struct loop *loop;
static struct store *st;
static char dir[64], path[128], filler[128], why[256];
static struct store_settings settings;
static char frame[FRAME_BYTES];
static bool mounted;
static bool finished;
static enum bh_err result;
static uint64_t next_n, ids[MAX_ROWS];
static size_t n_ids;

static void on_done(struct store_op *op, enum bh_err err)
{
    result = err;
    finished = true;
    loop_stop(loop);
}

static enum bh_err wait_done(void)
{
    for (finished = false; !finished;)
        loop_run(loop);
    return result;
}

static enum bh_err append_one(void)
{
    struct store_append a = {.op.done = on_done,
                             .id = st->boot << 40 | ++next_n,
                             .box = 1,
                             .has_key = true,
                             .key = {.lo = next_n, .hi = st->boot},
                             .frame = str_make(frame, sizeof frame)};
    store_append(st, &a, true);
    enum bh_err err = wait_done();
    if (err == BH_OK)
        ids[n_ids++] = a.id;
    return err;
}

static enum bh_err ack_some(size_t n) /* the newest */
{
    struct store_ack a = {.op.done = on_done, .ids = ids + n_ids - n, .n = n};

    store_ack(st, &a);
    enum bh_err err = wait_done();
    if (err == BH_OK)
        n_ids -= n;
    return err;
}

static enum bh_err tx_one(enum store_kv_verb verb, const char *key, bool bulk)
{
    struct store_kv kv = {verb, "t", str_of(key), STR("value")};
    struct store_tx t = {.op.done = on_done, .items = &kv, .n = 1, .bulk = bulk};

    store_tx(st, &t, true);
    return wait_done();
}

static enum bh_err mark_one(void)
{
    struct store_mark m = {.op.done = on_done, .id = ids[0], .attempts = 3};

    store_mark(st, &m);
    return wait_done();
}

static struct store_stats stats_now(void)
{
    struct store_stats s;

    st->ops->stats(st, &s);
    return s;
}

static void open_store(void)
{
    enum bh_err err = store_sqlite_open_with(loop, path, &settings, &st, why);
    if (err != BH_OK)
        print_message("%s\n", why);
    assert_int_equal(err, BH_OK);
    next_n = 0;
}

static void reopen(void)
{
    store_close(st);
    st = NULL;
    open_store();
}

static void on_row(void *ctx, const struct store_row *row)
{
    assert_int_equal(row->frame_bytes, FRAME_BYTES);
    ++*(size_t *)ctx;
}

static void assert_rows_are_there(void)
{
    size_t n = 0;

    assert_int_equal(st->ops->load_rows(st, on_row, &n), BH_OK);
    assert_int_equal(n, n_ids);
}

static void fill_until_refused(void)
{
    enum bh_err err;

    while ((err = append_one()) == BH_OK)
        assert_true(n_ids < MAX_ROWS - 1);
    assert_int_equal(err, BH_BUSY);
    assert_true(stats_now().full);
    assert_true(stats_now().healthy); /* what it is asked to do it does */
}

static void assert_the_rest_works(void)
{
    assert_int_equal(append_one(), BH_BUSY);
    assert_int_equal(tx_one(KV_PUT, "history", true), BH_BUSY);
    assert_int_equal(tx_one(KV_PUT, "state", false), BH_OK);
    assert_int_equal(tx_one(KV_DELETE, "state", false), BH_OK);
    assert_int_equal(mark_one(), BH_OK);
    assert_int_equal(ack_some(1), BH_OK);
    assert_rows_are_there();
}

static void wait_for_room(void)
{
    for (int i = 0; i < 1500 && stats_now().full; i++)
        usleep(20000);
    assert_false(stats_now().full);
    assert_int_equal(append_one(), BH_OK);
    assert_int_equal(tx_one(KV_PUT, "history", true), BH_OK);
}

/* ---- fixtures ---- */

static int setup(void **state)
{
    log_setup(LOG_ERROR, false);
    strcpy(dir, "/tmp/bellhop-space-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/bellhop.db", dir);
    snprintf(filler, sizeof filler, "%s/filler", dir);
    loop = loop_new();
    st = NULL;
    n_ids = 0;
    settings = (struct store_settings){0};
    mounted = false;
    return 0;
}

static int teardown(void **state)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock", ".reserve"};
    char name[160];

    store_close(st);
    loop_free(loop);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    unlink(filler);
    if (mounted)
        assert_int_equal(umount2(dir, MNT_DETACH), 0);
    return rmdir(dir);
}

static void mount_small_disk(void)
{
    if (mount("tmpfs", dir, "tmpfs", 0, "size=32m") != 0) {
        print_message("no small disk: %s\n", strerror(errno));
        skip();
    }
    mounted = true;
    settings.reserve = 4 << 20;
}

/* Somebody else takes all that is left of the disk. */
static void fill_disk(void)
{
    static const char zeros[4096];
    int fd = open(filler, O_WRONLY | O_CREAT | O_APPEND, 0600);

    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof zeros) == (ssize_t)sizeof zeros)
        ;
    close(fd);
}

/* ---- the promises ---- */

static void a_database_of_bounded_size_refuses_new_rows_and_goes_on(void **state)
{
    settings.reserve = settings.max_bytes = 8 << 20;
    open_store();
    fill_until_refused();
    assert_in_range(stats_now().bytes_on_disk, 4 << 20, 24 << 20); /* and its log */
    assert_the_rest_works();
    assert_int_equal(ack_some(n_ids - 10), BH_OK);
    wait_for_room();
    reopen();
    assert_rows_are_there();
}

static void what_is_deleted_makes_the_file_smaller(void **state)
{
    struct stat before, after;

    settings.reserve = settings.max_bytes = 8 << 20;
    open_store();
    fill_until_refused();
    reopen();
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(ack_some(n_ids - 1), BH_OK);
    wait_for_room();
    reopen();
    assert_int_equal(stat(path, &after), 0);
    assert_true(after.st_size < before.st_size / 2);
}

static void a_full_disk_leaves_room_for_what_makes_room(void **state)
{
    mount_small_disk();
    open_store();
    fill_until_refused();
    assert_the_rest_works();
    fill_disk();
    assert_the_rest_works();
    assert_int_equal(ack_some(n_ids - 10), BH_OK);
    wait_for_room();
    assert_rows_are_there();
}

static void it_starts_on_a_full_disk_and_recovers_when_there_is_room(void **state)
{
    mount_small_disk();
    open_store();
    for (int i = 0; i < 100; i++)
        assert_int_equal(append_one(), BH_OK);
    fill_disk();
    uint64_t boot = st->boot;
    reopen();
    assert_true(st->boot > boot);
    assert_the_rest_works();
    fill_disk();
    reopen();
    fill_disk();
    assert_rows_are_there();
    assert_int_equal(append_one(), BH_BUSY);
    assert_int_equal(unlink(filler), 0);
    wait_for_room();
    boot = st->boot;
    reopen();
    assert_true(st->boot > boot);
    assert_rows_are_there();
}

static void a_disk_that_fills_up_under_its_hands_loses_nothing(void **state)
{
    mount_small_disk();
    settings.reserve = 0; /* no early warning: the disk itself says no */
    open_store();
    enum bh_err err;
    while ((err = append_one()) == BH_OK)
        assert_true(n_ids < MAX_ROWS - 1);
    assert_rows_are_there();
    reopen();
    assert_rows_are_there();
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(store_test_space)
{
    const struct CMUnitTest tests[] = {
        T(a_database_of_bounded_size_refuses_new_rows_and_goes_on),
        T(what_is_deleted_makes_the_file_smaller),
        T(a_full_disk_leaves_room_for_what_makes_room),
        T(it_starts_on_a_full_disk_and_recovers_when_there_is_room),
        T(a_disk_that_fills_up_under_its_hands_loses_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
