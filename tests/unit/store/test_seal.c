/* Promises of sealing in store/store.h. */
#include "unit.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/clock.h"
#include "store/memory/memory.h"

#define HEX "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

static char dir[64], path[128], why[256];

static int setup(void **state)
{
    strcpy(dir, "/tmp/bellhop-seal-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/key", dir);
    why[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    rmdir(dir);
    return 0;
}

static struct seal *open_text(const char *text)
{
    struct seal *s = NULL;
    assert_int_equal(seal_open_master(str_of(text), STR("salt"), NULL, &s, why), BH_OK);
    return s;
}

static struct seal *open_file(void)
{
    struct seal *s = NULL;
    enum bh_err err = seal_open_master(STR_NULL, STR("salt"), path, &s, why);
    assert_true((err == BH_OK) == (s != NULL));
    return s;
}

static bool opens(const struct seal *a, const struct seal *b, const char *name)
{
    struct buf sealed = BUF_INIT, plain = BUF_INIT;
    seal_secret(a, STR("gateway/1/secret"), STR("hunter2"), &sealed);
    bool ok = unseal_secret(b, str_of(name), buf_str(&sealed), &plain);
    if (ok)
        assert_true(str_eq(buf_str(&plain), STR("hunter2")));
    buf_done(&sealed);
    buf_done(&plain);
    return ok;
}

static void a_sealed_secret_opens_only_in_its_place_and_with_its_key(void **state)
{
    struct seal *a = open_text(HEX), *b = open_text("a passphrase of some length");
    assert_true(opens(a, a, "gateway/1/secret"));
    assert_false(opens(a, a, "gateway/2/secret"));
    assert_false(opens(a, b, "gateway/1/secret"));
    seal_free(a);
    seal_free(b);
}

static void a_damaged_secret_does_not_open(void **state)
{
    struct seal *s = open_text(HEX);
    struct buf sealed = BUF_INIT, plain = BUF_INIT;
    seal_secret(s, STR("n"), STR("hunter2"), &sealed);
    for (size_t i = 0; i < sealed.n; i++) {
        char kept = sealed.p[i];
        sealed.p[i] = kept == 'A' ? 'B' : 'A';
        assert_false(unseal_secret(s, STR("n"), buf_str(&sealed), &plain));
        sealed.p[i] = kept;
    }
    assert_false(unseal_secret(s, STR("n"), STR(""), &plain));
    assert_false(unseal_secret(s, STR("n"), STR("!!"), &plain));
    assert_true(unseal_secret(s, STR("n"), buf_str(&sealed), &plain));
    buf_done(&sealed);
    buf_done(&plain);
    seal_free(s);
}

static void a_passphrase_gives_the_same_key_every_time(void **state)
{
    struct seal *a = open_text("correct horse battery"), *b = open_text("correct horse battery\n");
    assert_true(opens(a, b, "gateway/1/secret"));
    seal_free(a);
    seal_free(b);
}

static void a_short_passphrase_is_refused(void **state)
{
    struct seal *s = NULL;
    assert_int_equal(seal_open_master(STR("fifteen bytes.."), STR("salt"), path, &s, why),
                     BH_REFUSED);
    assert_non_null(strstr(why, "too short"));
    assert_null(s);
}

static void a_missing_key_file_is_created_private_and_read_back(void **state)
{
    struct stat info;
    struct seal *a = open_file(), *b = open_file();
    assert_non_null(a);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_true(opens(a, b, "gateway/1/secret"));
    seal_free(a);
    seal_free(b);
}

static void a_key_file_open_to_others_is_refused(void **state)
{
    seal_free(open_file());
    assert_int_equal(chmod(path, 0640), 0);
    assert_null(open_file());
    assert_non_null(strstr(why, "chmod 600"));
}

static void a_damaged_key_file_is_refused_and_left_alone(void **state)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "abc\n", 4), 4);
    close(fd);
    assert_null(open_file());
    assert_non_null(strstr(why, "64 hex digits"));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 4);
}

static void a_key_file_that_is_a_link_is_refused(void **state)
{
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_null(open_file());
}

static void a_database_notices_a_foreign_key(void **state)
{
    struct clock *c = clock_new();
    struct store *st = store_memory_new(c);
    struct seal *a = NULL, *b = NULL, *c2 = NULL;

    assert_int_equal(seal_open_for(st, STR(HEX), path, &a, why), BH_OK); /* the first settles it */
    clock_turn(c);
    assert_int_equal(seal_open_for(st, STR(HEX), path, &b, why), BH_OK);
    assert_int_equal(seal_open_for(st, STR_NULL, path, &c2, why), BH_REFUSED);
    assert_non_null(strstr(why, "does not fit"));
    seal_free(a);
    seal_free(b);
    store_close(st);
    clock_free(c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(store_test_seal)
{
    const struct CMUnitTest tests[] = {
        T(a_sealed_secret_opens_only_in_its_place_and_with_its_key),
        T(a_damaged_secret_does_not_open),
        T(a_passphrase_gives_the_same_key_every_time),
        T(a_short_passphrase_is_refused),
        T(a_missing_key_file_is_created_private_and_read_back),
        T(a_key_file_open_to_others_is_refused),
        T(a_damaged_key_file_is_refused_and_left_alone),
        T(a_key_file_that_is_a_link_is_refused),
        T(a_database_notices_a_foreign_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
