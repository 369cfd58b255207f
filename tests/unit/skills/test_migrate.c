/* Promises of skills/migrate.h, kept between a real SQLite file and a real PostgreSQL. */
#include "skills/rig.h"
#include "skills/migrate.h"

static const struct caller other = {.tenant = {"zeta", 4},
                                    .ns = {"lab", 3},
                                    .identity = {"zoe", 3},
                                    .attest = true};
static struct skills_migrated moved;
static char why[256];

static void fill(struct rig *r)
{
    char name[16], body[64];

    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "s%d", i);
        snprintf(body, sizeof body, "# Skill: s%d\n# Status: Draft\nbody \xc3\xa9 %d\n", i, i);
        assert_int_equal(store(r, name, body,
                               i % 3 ? NULL : "{\"metadata_bag\": {\"tags\": [\"ops\"]}}"),
                         FAULT_NONE);
    }
    assert_int_equal(store(r, "s1", "second", NULL), FAULT_NONE);
    assert_int_equal(store(r, "s1", "second", NULL), FAULT_NONE); /* the same bytes again */
    assert_int_equal(set_status(r, "s2", "Approved"), FAULT_NONE);
    assert_int_equal(store(r, "s3", "", NULL), FAULT_NONE);
    assert_int_equal(store_as(r, &other, "mine", STR("x\0y"), "{\"description\": \"d\"}"),
                     FAULT_NONE);
    assert_int_equal(store_as(r, &other, "s1", STR("not the other's"), NULL), FAULT_NONE);
}

/* Everything that can be asked of both, as one text. */
static void tell_all(struct rig *r, struct buf *out)
{
    char name[16];

    buf_reset(out);
    assert_int_equal(query_as(r, &tester, "{}"), FAULT_NONE);
    buf_add_str(out, buf_str(&r->json));
    buf_add_z(out, token(r));
    assert_int_equal(query_as(r, &other, "{}"), FAULT_NONE);
    buf_add_str(out, buf_str(&r->json));
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "s%d", i);
        assert_int_equal(load(r, name), FAULT_NONE);
        buf_add_str(out, buf_str(&r->json));
        assert_int_equal(versions(r, name), FAULT_NONE);
        buf_add_str(out, buf_str(&r->json));
    }
    assert_int_equal(load_as(r, &other, "mine", NULL), FAULT_NONE);
    buf_add_str(out, buf_str(&r->source));
}

static bool never_stop(void *ctx, uint64_t done, uint64_t all)
{
    assert_true(done <= all);
    return true;
}

static bool stop_soon(void *ctx, uint64_t done, uint64_t all)
{
    return done < 35;
}

static void there_and_back_is_the_same(void **state)
{
    struct rig *a = rig_new("sqlite", NULL), *b = rig_new("postgres", NULL);
    struct rig *c = rig_new("sqlite", NULL);
    struct buf before = BUF_INIT, after = BUF_INIT;
    const struct skills_location file = {.path = a->path}, server = {.url = pg_url};
    const struct skills_location back = {.path = c->path};

    fill(a);
    tell_all(a, &before);
    skills_close(a->sk);
    a->sk = NULL;
    /* interrupted, gone on with, and once more for nothing */
    assert_int_equal(skills_migrate(&file, &server, stop_soon, NULL, &moved, why), BH_CANCELLED);
    if (skills_migrate(&file, &server, never_stop, NULL, &moved, why) != BH_OK)
        fail_msg("%s", why);
    assert_int_equal(moved.skills, 42);
    assert_int_equal(moved.versions, 46);
    assert_false(moved.resumed); /* what was interrupted left nothing */
    assert_int_equal(skills_migrate(&file, &server, never_stop, NULL, &moved, why), BH_OK);
    assert_true(moved.resumed);
    tell_all(b, &after);
    assert_string_equal(buf_z(&after), buf_z(&before));
    if (skills_migrate(&server, &back, never_stop, NULL, &moved, why) != BH_OK)
        fail_msg("%s", why);
    tell_all(c, &after);
    assert_string_equal(buf_z(&after), buf_z(&before));
    /* and it goes on from there */
    assert_int_equal(store(b, "s1", "third", NULL), FAULT_NONE);
    assert_int_equal(versions(b, "s1"), FAULT_NONE);
    assert_int_equal(b->got.count, 4);
    buf_done(&before);
    buf_done(&after);
    rig_free(a);
    rig_free(b);
    rig_free(c);
}

static void a_target_with_other_skills_is_refused(void **state)
{
    struct rig *a = rig_new("sqlite", NULL), *b = rig_new("postgres", NULL);
    const struct skills_location file = {.path = a->path}, server = {.url = pg_url};

    assert_int_equal(store(a, "x", "one", NULL), FAULT_NONE);
    assert_int_equal(store(b, "y", "alone there", NULL), FAULT_NONE);
    assert_int_equal(skills_migrate(&file, &server, NULL, NULL, &moved, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "is not what was there"));
    assert_int_equal(delete (b, "y"), FAULT_NONE);
    assert_int_equal(store(b, "x", "another", NULL), FAULT_NONE);
    assert_int_equal(skills_migrate(&file, &server, NULL, NULL, &moved, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "is not what was there"));
    rig_free(a);
    rig_free(b);
}

UNIT(skills_test_migrate)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back_is_the_same),
        cmocka_unit_test(a_target_with_other_skills_is_refused),
    };
    return cmocka_run_group_tests(tests, pg_setup, pg_teardown);
}
