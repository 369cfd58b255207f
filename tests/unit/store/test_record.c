/* The codec of records: what is written is read, and damage is named. */
#include "unit.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "store/memory/memory.h"
#include "store/store.h"

#define MASTER "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

enum mood { CALM, ANGRY };
static const char *const moods[] = {"calm", "angry", NULL};

struct pet {
    char *name; /* owned */
    uint32_t legs;
};
struct toy {
    struct str name;
};
struct guest {
    struct str house, room;
    char *title; /* owned */
    char *secret;
    char code[8];
    int64_t since_ms;
    uint64_t size;
    uint32_t box;
    enum mood mood;
    bool vip;
    uint8_t mac[4];
    struct record_json note;
    struct pet pets[2];
    size_t n_pets;
    struct toy *toys; /* owned */
    size_t n_toys;
    int not_ours;
};

static const struct record_field pet_fields[] = {
    RECORD_FIELD(struct pet, name, "name", RECORD_NEEDED | RECORD_SEALED),
    RECORD_FIELD(struct pet, legs, "legs", 0, .max = 8),
};
static const struct record_form pet_form = RECORD_FORM(NULL, struct pet, pet_fields);
static const struct record_field toy_fields[] = {RECORD_FIELD(struct toy, name, NULL, 0)};
static const struct record_form toy_form = RECORD_FORM(NULL, struct toy, toy_fields);
static const struct record_field guest_fields[] = {
    RECORD_FIELD(struct guest, house, "house", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct guest, room, "room", RECORD_KEY, .max = 20),
    RECORD_FIELD(struct guest, title, "title", 0, .max = 10),
    RECORD_FIELD(struct guest, secret, "secret", RECORD_SEALED),
    RECORD_FIELD(struct guest, code, "code", 0),
    RECORD_FIELD(struct guest, since_ms, "since", RECORD_NEEDED),
    RECORD_FIELD(struct guest, size, "size", 0),
    RECORD_FIELD(struct guest, box, "box", 0),
    RECORD_FIELD(struct guest, mood, "mood", RECORD_NEEDED, .words = moods),
    RECORD_FIELD(struct guest, vip, "vip", 0),
    RECORD_FIELD(struct guest, mac, "mac", 0),
    RECORD_FIELD(struct guest, note, "note", 0),
    RECORD_LIST(struct guest, pets, n_pets, "pets", &pet_form, 2),
    RECORD_ARRAY(struct guest, toys, n_toys, "toys", &toy_form, 3),
};
static const struct record_form guest_form = RECORD_FORM("guest", struct guest, guest_fields);
static const struct record_form lossy_form =
    RECORD_FORM("guest", struct guest, guest_fields, .lossy = true);

static struct seal *seal;
static struct record_reader *reader;
static struct buf key, value;

static int setup(void **state)
{
    char why[256];

    assert_int_equal(seal_open_master(STR(MASTER), STR("salt"), NULL, &seal, why), BH_OK);
    reader = record_reader_new(seal);
    return 0;
}

static int teardown(void **state)
{
    record_reader_free(reader);
    seal_free(seal);
    buf_done(&key);
    buf_done(&value);
    return 0;
}

static void write(const struct guest *g)
{
    buf_reset(&key);
    buf_reset(&value);
    record_write(&guest_form, seal, g, &key, &value);
}

/* Of the record that was written last. */
static bool read(struct guest *ret)
{
    return record_read(reader, &guest_form, buf_str(&key), buf_str(&value), ret);
}

static void everything_that_is_written_is_read(void **state)
{
    struct toy toys[] = {{STR("ball")}, {STR("a \"quoted\" \x1f one")}};
    struct guest in = {.house = STR("ritz"),
                       .room = STR("1\x1f"
                                   "2"),
                       .title = (char *)"Dr",
                       .secret = (char *)"hush",
                       .code = "abcdefg",
                       .since_ms = -5,
                       .size = UINT64_MAX,
                       .box = UINT32_MAX,
                       .mood = ANGRY,
                       .vip = true,
                       .mac = {1, 2, 3, 255},
                       .note.text = STR("{\"a\":[1,2]}"),
                       .pets = {{(char *)"Rex", 4}, {(char *)"Tom", 0}},
                       .n_pets = 2,
                       .toys = toys,
                       .n_toys = 2,
                       .not_ours = 9},
                 out;

    write(&in);
    assert_null(memmem(value.p, value.n, "hush", 4));
    assert_null(memmem(value.p, value.n, "Rex", 3));
    assert_true(read(&out));
    assert_true(str_eq(out.house, in.house) && str_eq(out.room, in.room));
    assert_string_equal(out.title, "Dr");
    assert_string_equal(out.secret, "hush");
    assert_string_equal(out.code, "abcdefg");
    assert_int_equal(out.since_ms, -5);
    assert_true(out.size == UINT64_MAX && out.box == UINT32_MAX);
    assert_int_equal(out.mood, ANGRY);
    assert_true(out.vip);
    assert_memory_equal(out.mac, in.mac, 4);
    assert_int_equal(json_count(json_get(out.note.value, "a")), 2);
    assert_int_equal(out.n_pets, 2);
    assert_string_equal(out.pets[0].name, "Rex");
    assert_int_equal(out.pets[0].legs, 4);
    assert_int_equal(out.n_toys, 2);
    assert_true(str_eq(out.toys[1].name, toys[1].name));
    assert_int_equal(out.not_ours, 0);
    record_done(&guest_form, &out);
    assert_null(out.title);
    assert_null(out.toys);
}

static void what_is_absent_is_not_written(void **state)
{
    struct guest in = {.house = STR("ritz"), .since_ms = 1}, out;

    write(&in);
    assert_string_equal(buf_z(&key), "ritz\x1f");
    assert_string_equal(buf_z(&value), "{\"since\":1,\"mood\":\"calm\"}");
    assert_true(read(&out));
    assert_null(out.room.p);
    assert_null(out.title);
    buf_reset(&key);
    record_write_prefix(&guest_form, &in, 1, &key);
    assert_string_equal(buf_z(&key), "ritz\x1f");
}

static void a_sealed_text_opens_only_in_its_own_record(void **state)
{
    struct guest in = {.house = STR("ritz"), .since_ms = 1, .secret = (char *)"hush"}, out;

    write(&in);
    buf_reset(&key);
    buf_add_z(&key, "savoy\x1f");
    assert_false(read(&out));
    assert_non_null(strstr(record_why(reader), "does not open"));
    assert_non_null(strstr(record_why(reader), "savoy"));
}

static void without_a_key_sealed_texts_stay_sealed(void **state)
{
    struct guest in = {.house = STR("ritz"), .since_ms = 1, .secret = (char *)"hush"}, out;
    struct record_reader *plain = record_reader_new(NULL);
    struct buf again = BUF_INIT;

    write(&in);
    assert_true(record_read(plain, &guest_form, buf_str(&key), buf_str(&value), &out));
    assert_string_not_equal(out.secret, "hush");
    record_write(&guest_form, NULL, &out, NULL, &again);
    assert_true(str_eq(buf_str(&again), buf_str(&value)));
    record_done(&guest_form, &out);
    record_reader_free(plain);
    buf_done(&again);
}

static void damage_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *key, *value, *why;
    } bad[] = {
        {"ritz\x1f", "", "no JSON"},
        {"ritz\x1f", "[]", "no object"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\"", "no JSON"},
        {"ritz", "{\"since\":1,\"mood\":\"calm\"}", "too few parts"},
        {"\x1f"
         "1",
         "{\"since\":1,\"mood\":\"calm\"}", "missing (field \"house\")"},
        {"ritz\x1f"
         "a room with a long name",
         "{\"since\":1,\"mood\":\"calm\"}", "too long"},
        {"ritz\x1f", "{\"mood\":\"calm\"}", "missing (field \"since\")"},
        {"ritz\x1f", "{\"since\":1}", "missing (field \"mood\")"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"glad\"}", "unknown word"},
        {"ritz\x1f", "{\"since\":1,\"since\":1,\"mood\":\"calm\"}", "twice"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"x\":1}", "unknown field"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"house\":\"x\"}", "unknown field"},
        {"ritz\x1f", "{\"since\":\"1\",\"mood\":\"calm\"}", "a number is none"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"box\":4294967296}", "out of range"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"size\":-1}", "out of range"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"title\":\"a long title\"}", "too long"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"title\":7}", "a text is none"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"code\":\"abcdefgh\"}", "too long"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"vip\":1}", "truth value"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"mac\":\"0102\"}", "not hex"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"secret\":\"AAAA\"}", "does not open"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"pets\":{}}", "a list is none"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"pets\":[1]}", "no object"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"pets\":[{}]}", "missing (field \"name\")"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"pets\":[{},{},{}]}", "too long"},
        {"ritz\x1f", "{\"since\":1,\"mood\":\"calm\",\"toys\":[\"a\",\"b\",\"c\",\"d\"]}",
         "too long"},
        {"ritz\x1f", "{\"title\":\"Dr\",\"since\":1,\"mood\":\"calm\",\"toys\":[\"a\",1]}",
         "a text"},
    };
    struct guest out;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(
            record_read(reader, &guest_form, str_of(bad[i].key), str_of(bad[i].value), &out));
        if (strstr(record_why(reader), bad[i].why) == NULL)
            fail_msg("%s: %s", bad[i].value, record_why(reader));
        assert_non_null(strstr(record_why(reader), "the guest record \""));
        assert_null(out.title); /* nothing is left to free */
    }
}

static bool count(void *ctx, struct str k, void *thing)
{
    struct guest *g = thing;
    bool ok = g->box != 13; /* unlucky */

    (void)k;
    record_done(&guest_form, g);
    *(size_t *)ctx += ok;
    return ok;
}

static void loading_names_the_first_damage_and_reads_the_rest(void **state)
{
    struct clock *clock = clock_new();
    struct store *st = store_memory_new(clock);
    struct guest in = {.house = STR("ritz"), .since_ms = 1};
    struct store_kv bad = {KV_PUT, "guest", STR("aaa"), STR("{}")};
    char why[256];
    size_t n = 0;

    record_put(st, &guest_form, seal, &in, true, NULL, NULL);
    in.house = STR("savoy");
    record_put(st, &guest_form, seal, &in, true, NULL, NULL);
    clock_turn(clock), clock_turn(clock);
    assert_int_equal(record_load(st, &guest_form, reader, STR_NULL, count, &n, why), BH_OK);
    assert_int_equal(n, 2);
    n = 0;
    assert_int_equal(record_load(st, &guest_form, reader, STR("sa"), count, &n, why), BH_OK);
    assert_int_equal(n, 1);

    in.box = 13;
    record_put(st, &guest_form, seal, &in, true, NULL, NULL);
    store_put(st, &bad, 1, true, NULL, NULL);
    clock_turn(clock), clock_turn(clock);
    n = 0;
    assert_int_equal(record_load(st, &guest_form, reader, STR_NULL, count, &n, why), BH_REFUSED);
    assert_int_equal(n, 1);
    assert_non_null(strstr(why, "aaa"));
    n = 0;
    assert_int_equal(record_load(st, &lossy_form, reader, STR_NULL, count, &n, why), BH_OK);
    assert_int_equal(n, 1);
    record_delete(st, &guest_form, STR("aaa"));
    clock_turn(clock), clock_turn(clock);
    assert_int_equal(record_load(st, &guest_form, reader, STR_NULL, count, &n, why), BH_REFUSED);
    assert_non_null(strstr(why, "contradicts"));
    store_close(st);
    clock_free(clock);
}

UNIT(store_test_record)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_that_is_written_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_absent_is_not_written, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sealed_text_opens_only_in_its_own_record, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(without_a_key_sealed_texts_stay_sealed, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_refused_with_a_sentence, setup, teardown),
        cmocka_unit_test_setup_teardown(loading_names_the_first_damage_and_reads_the_rest, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
