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

    assert_int_equal(seal_open_master(STR(PASSPHRASE), STR("salt"), NULL, &plain, why), BH_OK);
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

static void a_passphrase_without_its_salt_is_refused(void **state)
{
    struct store_kv gone = {KV_DELETE, "seal", STR("salt")};

    store_put(st, &gone, 1, true, NULL, NULL);
    close_store();
    open_store();
    assert_null(seal_of(PASSPHRASE));
    assert_non_null(strstr(why, "no salt"));
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

struct plain {
    struct str id, text;
};
static const struct record_field plain_fields[] = {
    RECORD_FIELD(struct plain, id, "id", RECORD_KEY),
    RECORD_FIELD(struct plain, text, "text", RECORD_SEALED),
};
static const struct record_form plain_form = RECORD_FORM("plain", struct plain, plain_fields);

struct listed {
    char *id; /* owned */
    int64_t a;
    struct listed_entry {
        char *text; /* owned */
    } * list;       /* owned */
    size_t n;
    struct str z;
};
static const struct record_field entry_fields[] = {
    RECORD_FIELD(struct listed_entry, text, "text", RECORD_SEALED),
};
static const struct record_form entry_form = RECORD_FORM(NULL, struct listed_entry, entry_fields);
static const struct record_field listed_fields[] = {
    RECORD_FIELD(struct listed, id, "id", RECORD_KEY),
    RECORD_FIELD(struct listed, a, "a", 0),
    RECORD_ARRAY(struct listed, list, n, "list", &entry_form, 2),
    RECORD_FIELD(struct listed, z, "z", 0),
};
static const struct record_form listed_form = RECORD_FORM("listed", struct listed, listed_fields);

static const struct record_field open_fields[] = {RECORD_FIELD(struct plain, id, "id", RECORD_KEY)};
static const struct record_form open_form = RECORD_FORM("open", struct plain, open_fields);
static const struct record_form *const forms[] = {&plain_form, &open_form, &listed_form, NULL};

static int under_way;
static void on_put(void *ctx, enum bh_err err)
{
    assert_int_equal(err, BH_OK);
    under_way--;
}

static void put(const struct seal *s, const struct record_form *form, const void *thing)
{
    under_way++;
    record_put(st, form, s, thing, false, on_put, NULL);
}

static void fill(const struct seal *s)
{
    struct store_kv junk = {KV_PUT, "open", STR("junk"), STR("not a record")};
    char k[16];

    for (int i = 0; i < N; i++) {
        struct listed_entry list[] = {{k}, {(char *)"second"}};
        snprintf(k, sizeof k, "%06d", i);
        put(s, &plain_form, &(struct plain){str_of(k), str_of(k)});
        put(s, &listed_form, &(struct listed){k, 1, list, 2, STR("unsealed")});
    }
    put(s, &listed_form, &(struct listed){.id = (char *)"empty"});
    under_way++;
    store_put(st, &junk, 1, false, on_put, NULL); /* nothing is sealed there: it is not read */
    while (under_way > 0)
        loop_turn(loop, 100);
}

static bool on_plain(void *ctx, struct str k, void *thing)
{
    const struct plain *p = thing;

    ++*(size_t *)ctx;
    return str_eq(p->text, k);
}

static bool on_listed(void *ctx, struct str k, void *thing)
{
    struct listed *l = thing;
    bool ok = str_eq(k, STR("empty")) ||
              (l->a == 1 && l->n == 2 && str_eq(str_of(l->list[0].text), k) &&
               strcmp(l->list[1].text, "second") == 0 && str_eq(l->z, STR("unsealed")));

    *(size_t *)ctx += l->n / 2;
    record_done(&listed_form, l);
    return ok;
}

static void assert_all_open_with(const struct seal *s)
{
    struct record_reader *r = record_reader_new(s);
    size_t n = 0;

    assert_int_equal(record_load(st, &plain_form, r, STR_NULL, on_plain, &n, why), BH_OK);
    assert_int_equal(record_load(st, &listed_form, r, STR_NULL, on_listed, &n, why), BH_OK);
    assert_int_equal(n, 2 * N);
    record_reader_free(r);
}

static enum bh_err change(const char *from, const char *to)
{
    struct seal_change c = {.store = st,
                            .loop = loop,
                            .from = str_of(from),
                            .to = str_of(to),
                            .path = key,
                            .forms = forms};
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
        uint64_t patience_us = 1; /* the first kill comes at once, later ones ever later */
        close_store();
        while (!change_and_kill(NULL, NULL, (useconds_t)rand_below(&r, patience_us))) {
            kills++;
            patience_us += patience_us / 2 + 5000;
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
    struct store_kv gone = {KV_DELETE, "listed", STR("damaged")};
    struct store_kv damaged = {KV_PUT, "listed", STR("damaged"),
                               STR("{\"list\":[{\"text\":\"bm90IHNlYWxlZA==\"}]}")};

    fill(old);
    store_put(st, &damaged, 1, true, NULL, NULL);
    assert_int_equal(change(PASSPHRASE, "the next key, which is long"), BH_REFUSED);
    assert_non_null(strstr(why, "opens with neither key: the listed record \"damaged\""));
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
        T(a_passphrase_without_its_salt_is_refused),
        T(a_foreign_key_is_refused),
        T(every_sealed_text_gets_the_new_key_and_fingerprints_stay),
        T(a_change_with_the_wrong_key_changes_nothing),
        T(killed_at_any_moment_it_goes_on_where_it_was),
        T(a_change_that_was_interrupted_goes_on_with_its_own_key_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
