/* The key of a database: its salt, and changing it, with a kill at any moment. */
#include "unit.h"
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/loop.h"
#include "store/sqlite/sqlite.h"

#define PASSPHRASE "correct horse battery staple"

enum { N = 700 };

static char dir[64], db[128], key[128], why[256];
static struct loop *loop;
static struct store *st;

static void open_store(void)
{
    loop = loop_new();
    assert_int_equal(store_sqlite_open(loop, db, &st, why), BH_OK);
}

static void close_store(void)
{
    store_close(st);
    loop_free(loop);
    st = NULL;
}

static int setup(void **state)
{
    log_setup(LOG_ERROR, false);
    strcpy(dir, "/tmp/bellhop-key-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(db, sizeof db, "%s/bellhop.db", dir);
    snprintf(key, sizeof key, "%s/master.key", dir);
    open_store();
    return 0;
}

static int teardown(void **state)
{
    char command[160];

    if (st != NULL)
        close_store();
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static struct seal *seal_of(const char *text)
{
    struct seal *s = NULL;
    enum bh_err err = seal_open_for(st, str_of(text), key, &s, why);

    assert_true((err == BH_OK) == (s != NULL));
    loop_turn(loop, 0);
    return s;
}

static bool opens(const struct seal *a, const struct seal *b)
{
    struct buf sealed = BUF_INIT, plain = BUF_INIT;

    seal_secret(a, STR("name"), STR("hunter2"), &sealed);
    bool ok = unseal_secret(b, STR("name"), buf_str(&sealed), &plain);
    buf_done(&sealed);
    buf_done(&plain);
    return ok;
}

static bool same_mac(const struct seal *a, const struct seal *b)
{
    uint8_t x[32], y[32];

    seal_mac(a, STR("use"), STR("text"), x);
    seal_mac(b, STR("use"), STR("text"), y);
    return memcmp(x, y, sizeof x) == 0;
}

/* ---- the salt ---- */

static void a_passphrase_is_stretched_with_the_salt_of_its_database(void **state)
{
    struct seal *a = seal_of(PASSPHRASE), *plain = NULL;

    assert_int_equal(seal_open_master(STR(PASSPHRASE), NULL, &plain, why), BH_OK);
    assert_false(opens(a, plain));
    close_store();
    open_store();
    struct seal *b = seal_of(PASSPHRASE);
    assert_true(opens(a, b));
    assert_true(same_mac(a, b));
    seal_free(a);
    seal_free(b);
    seal_free(plain);
}

static void a_database_from_before_there_was_a_salt_keeps_working(void **state)
{
    struct seal *plain = NULL;
    struct store_kv gone = {KV_DELETE, "seal", STR("salt")};

    store_put(st, &gone, 1, true, NULL, NULL);
    assert_int_equal(seal_open_master(STR(PASSPHRASE), NULL, &plain, why), BH_OK);
    assert_true(seal_check(plain, st, why));
    close_store();
    open_store();
    struct seal *a = seal_of(PASSPHRASE);
    assert_non_null(a);
    assert_true(opens(a, plain));
    assert_true(same_mac(a, plain));
    seal_free(a);
    seal_free(plain);
}

static void a_foreign_key_is_refused(void **state)
{
    seal_free(seal_of(PASSPHRASE));
    close_store();
    open_store();
    assert_null(seal_of("another passphrase, long enough"));
    assert_non_null(strstr(why, "does not fit"));
}

/* ---- changing it ---- */

static void plain_name(struct buf *out, struct str k)
{
    buf_printf(out, "plain/%.*s", STR_FMT(k));
}
static void json_name(struct buf *out, struct str k)
{
    buf_printf(out, "json/%.*s", STR_FMT(k));
}
static const struct seal_place plain_place = {"plain", NULL, plain_name};
static const struct seal_place json_place = {"json", "sealed", json_name};
static const struct seal_place *const places[] = {&plain_place, &json_place, NULL};

static int under_way;
static void on_put(void *ctx, enum bh_err err)
{
    assert_int_equal(err, BH_OK);
    under_way--;
}

static void put(const char *ns, const char *k, struct str value)
{
    struct store_kv kv = {KV_PUT, ns, str_of(k), value};

    under_way++;
    store_put(st, &kv, 1, false, on_put, NULL);
}

static void fill(const struct seal *s)
{
    struct buf name = BUF_INIT, value = BUF_INIT;
    char k[16];

    for (int i = 0; i < N; i++) {
        snprintf(k, sizeof k, "%06d", i);
        buf_reset(&name), buf_reset(&value);
        plain_name(&name, str_of(k));
        seal_secret(s, buf_str(&name), str_of(k), &value);
        put("plain", k, buf_str(&value));
        buf_reset(&name), buf_reset(&value);
        json_name(&name, str_of(k));
        buf_add_z(&value, "{\"a\":1,\"list\":[{\"sealed\":\"");
        seal_secret(s, buf_str(&name), str_of(k), &value);
        buf_add_z(&value, "\"},{\"sealed\":\"");
        seal_secret(s, buf_str(&name), STR("second"), &value);
        buf_add_z(&value, "\"}],\"z\":\"unsealed\"}");
        put("json", k, buf_str(&value));
    }
    put("json", "empty", STR("{\"list\":[]}"));
    while (under_way > 0)
        loop_turn(loop, 100);
    buf_done(&name);
    buf_done(&value);
}

struct look {
    const struct seal *s;
    size_t n, bad;
};

static void on_plain(void *ctx, struct str k, struct str value)
{
    struct look *l = ctx;
    struct buf name = BUF_INIT, text = BUF_INIT;

    plain_name(&name, k);
    l->n++;
    l->bad += !unseal_secret(l->s, buf_str(&name), value, &text) || !str_eq(buf_str(&text), k);
    buf_done(&name);
    buf_done(&text);
}

static void on_json(void *ctx, struct str k, struct str value)
{
    struct look *l = ctx;
    struct buf name = BUF_INIT, text = BUF_INIT;
    const struct str marks[] = {STR("{\"a\":1,\"list\":[{\"sealed\":\""),
                                STR("\"},{\"sealed\":\"")};
    const struct str want[] = {k, STR("second")};

    if (str_eq(k, STR("empty")))
        return;
    json_name(&name, k);
    l->n++;
    for (int i = 0; i < 2; i++) {
        assert_true(str_starts(value, marks[i]));
        value = str_skip(value, marks[i].n);
        struct str sealed = str_make(value.p, (size_t)str_find(value, '"'));
        buf_reset(&text);
        l->bad +=
            !unseal_secret(l->s, buf_str(&name), sealed, &text) || !str_eq(buf_str(&text), want[i]);
        value = str_skip(value, sealed.n);
    }
    assert_true(str_eq(value, STR("\"}],\"z\":\"unsealed\"}")));
    buf_done(&name);
    buf_done(&text);
}

static void assert_all_open_with(const struct seal *s)
{
    struct look l = {.s = s};

    assert_int_equal(st->ops->load_records(st, "plain", on_plain, &l), BH_OK);
    assert_int_equal(st->ops->load_records(st, "json", on_json, &l), BH_OK);
    assert_int_equal(l.n, 2 * N);
    assert_int_equal(l.bad, 0);
}

static enum bh_err change(const char *from, const char *to)
{
    struct seal_change c = {.store = st,
                            .loop = loop,
                            .from = str_of(from),
                            .to = str_of(to),
                            .path = key,
                            .places = places};
    enum bh_err err = seal_change(&c, why);
    buf_done(&c.old);
    return err;
}

static void every_sealed_text_gets_the_new_key_and_fingerprints_stay(void **state)
{
    struct seal *old = seal_of(NULL);

    fill(old);
    assert_all_open_with(old);
    assert_int_equal(change(NULL, NULL), BH_OK);
    struct seal *next = seal_of(NULL);
    assert_false(opens(old, next));
    assert_true(same_mac(old, next));
    assert_all_open_with(next);
    close_store();
    open_store();
    struct seal *again = seal_of(NULL);
    assert_true(opens(next, again));
    assert_int_equal(change(NULL, PASSPHRASE), BH_OK); /* from a file to a text, and back */
    struct seal *text = seal_of(PASSPHRASE);
    assert_all_open_with(text);
    assert_int_equal(change(PASSPHRASE, NULL), BH_OK);
    struct seal *back = seal_of(NULL);
    assert_all_open_with(back);
    assert_true(same_mac(old, back));
    seal_free(old), seal_free(next), seal_free(again), seal_free(text), seal_free(back);
}

static void a_change_with_the_wrong_key_changes_nothing(void **state)
{
    struct seal *old = seal_of(PASSPHRASE);

    fill(old);
    assert_int_equal(change("not the key of this database", "some new key, long enough"),
                     BH_REFUSED);
    assert_all_open_with(old);
    struct seal *same = seal_of(PASSPHRASE);
    assert_non_null(same);
    seal_free(old), seal_free(same);
}

/* Runs the change in a child and kills it after @us.  True: it was over by then. */
static bool change_and_kill(const char *from, const char *to, useconds_t us)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        open_store();
        _exit(change(from, to) == BH_OK ? 0 : 1);
    }
    usleep(us);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFEXITED(status);
}

static void killed_at_any_moment_it_goes_on_where_it_was(void **state)
{
    struct rand r = rand_seeded((uint64_t)getpid());
    unsigned kills = 0, refused = 0;

    struct seal *old = seal_of(NULL);
    fill(old);
    for (int round = 0; round < 4; round++) {
        uint64_t patience_us = 100000; /* grows, or a slow machine would never get to the end */
        close_store();
        while (!change_and_kill(NULL, NULL, (useconds_t)rand_below(&r, patience_us))) {
            kills++;
            patience_us += 30000;
            open_store(); /* a server would: refused, or all is as it was, or all is done */
            struct seal *s = seal_of(NULL);
            if (s != NULL)
                assert_all_open_with(s);
            else
                assert_non_null(strstr(why, "interrupted"));
            refused += s == NULL;
            seal_free(s);
            close_store();
        }
        open_store();
        struct seal *next = seal_of(NULL);
        assert_non_null(next);
        assert_all_open_with(next);
        assert_true(same_mac(old, next));
        seal_free(next);
    }
    print_message("%u kills, %u of them in the middle\n", kills, refused);
    assert_true(kills > 0);
    seal_free(old);
}

static void a_change_that_was_interrupted_goes_on_with_its_own_key_only(void **state)
{
    struct seal *old = seal_of(PASSPHRASE);
    struct store_kv gone = {KV_DELETE, "json", STR("damaged")};

    fill(old);
    put("json", "damaged", STR("{\"sealed\":\"bm90IHNlYWxlZA==\"}"));
    assert_int_equal(change(PASSPHRASE, "the next key, which is long"), BH_REFUSED);
    assert_non_null(strstr(why, "opens with neither key: json damaged"));
    assert_null(seal_of(PASSPHRASE));
    assert_non_null(strstr(why, "interrupted"));
    store_put(st, &gone, 1, true, NULL, NULL);
    assert_int_equal(change(PASSPHRASE, "yet another key, long enough"), BH_REFUSED);
    assert_non_null(strstr(why, "another key"));
    assert_int_equal(change(PASSPHRASE, "the next key, which is long"), BH_OK);
    struct seal *next = seal_of("the next key, which is long");
    assert_all_open_with(next);
    seal_free(old), seal_free(next);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(store_test_seal_change)
{
    const struct CMUnitTest tests[] = {
        T(a_passphrase_is_stretched_with_the_salt_of_its_database),
        T(a_database_from_before_there_was_a_salt_keeps_working),
        T(a_foreign_key_is_refused),
        T(every_sealed_text_gets_the_new_key_and_fingerprints_stay),
        T(a_change_with_the_wrong_key_changes_nothing),
        T(killed_at_any_moment_it_goes_on_where_it_was),
        T(a_change_that_was_interrupted_goes_on_with_its_own_key_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
