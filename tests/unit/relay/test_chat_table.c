/* Promises of relay/out/chats.h. */
#include "unit.h"
#include "base/mem.h"
#include "relay/heart.h"
#include "relay/out/chat_records.h"
#include "relay/out/chats.h"
#include "relay/sleep/instance.h"

static struct chats chats;
#define t (chats.table)
static struct relay relay = {.chats = &chats};
static struct instance *ann, *bob;

static int setup(void **state)
{
    chat_table_init(&t);
    ann = xcalloc(1, sizeof *ann);
    bob = xcalloc(1, sizeof *bob);
    ann->relay = bob->relay = &relay;
    ann->box = 1;
    bob->box = 2;
    return 0;
}

static struct known_chat *find(const struct instance *i, const char *id)
{
    return chats_find(i, STR_NULL, str_of(id));
}

static int teardown(void **state)
{
    chat_table_done(&t);
    free(ann);
    free(bob);
    return 0;
}

static void an_id_comes_back_as_it_was(void **state)
{
    static const char *const ids[] = {"1",
                                      "0",
                                      "-1",
                                      "00",
                                      "01",
                                      "-0",
                                      "+1",
                                      "1x",
                                      "9223372036854775807",
                                      "9223372036854775808",
                                      "-9223372036854775808",
                                      "123456789012345678",
                                      "web:abc",
                                      " 1",
                                      "-",
                                      "1.0",
                                      "12345678901234567890123456789012345678901234567890"};
    char scratch[CHAT_ID_CHARS];

    for (size_t k = 0; k < ARRAY_LEN(ids); k++)
        chat_add(&t, ann, str_of(ids[k]));
    for (size_t k = 0; k < ARRAY_LEN(ids); k++) {
        struct known_chat *c = find(ann, ids[k]);
        assert_non_null(c);
        assert_str(chat_id(c, scratch), ids[k]);
        assert_null(find(bob, ids[k]));
    }
    assert_null(find(ann, "2"));
    assert_null(find(ann, ""));
}

static void many_are_found_while_they_come_and_go(void **state)
{
    enum { N = 20000 };
    static struct known_chat *all[N];
    char id[32];

    for (int k = 0; k < N; k++) {
        snprintf(id, sizeof id, k % 3 != 0 ? "%d" : "c%d", k * 7919);
        all[k] = chat_add(&t, k % 2 ? ann : bob, str_of(id));
        chat_set_address(&t, all[k], STR("discord"), STR("hop"), str_of(k % 5 ? "g" : ""));
    }
    for (int k = 0; k < N; k += 4)
        chat_remove(&t, all[k]);
    for (int k = 0; k < N; k++) {
        snprintf(id, sizeof id, k % 3 != 0 ? "%d" : "c%d", k * 7919);
        assert_ptr_equal(find(k % 2 ? ann : bob, id), k % 4 ? all[k] : NULL);
    }
}

static void those_of_a_start_are_found_once_all_are_there(void **state)
{
    enum { N = 3000, MORE = 3000 };
    static struct known_chat *all[N + MORE];
    struct chat_list queue = {0};
    char id[32];

    for (int k = 0; k < N; k++) {
        snprintf(id, sizeof id, k % 3 != 0 ? "%d" : "c%d", k / 2 * 7919);
        all[k] = chat_add_unindexed(&t, ann, str_of(id));
        chat_set_address(&t, all[k], str_of(k % 2 ? "discord" : "telegram"), STR("hop"), STR(""));
        chat_list_append(&t, &queue, CHAT_BY_AGE, all[k]);
    }
    chat_index(&t, &queue, CHAT_BY_AGE);
    for (int k = N; k < N + MORE; k++) { /* it grows on as ever */
        snprintf(id, sizeof id, "n%d", k);
        all[k] = chat_add(&t, bob, str_of(id));
    }
    for (int k = 0; k < N + MORE; k++) {
        char scratch[CHAT_ID_CHARS];
        struct str of = k < N ? str_of(k % 2 ? "discord" : "telegram") : STR_NULL;
        struct str name = chat_id(all[k], scratch);
        assert_ptr_equal(chats_find(k < N ? ann : bob, of, name), all[k]);
    }
    assert_true(t.n_buckets <= t.cap);
    for (int k = 0; k < N; k += 3)
        chat_remove(&t, all[k]);
    assert_null(chats_find(ann, STR("telegram"), STR("c0")));
}

static void of_one_id_on_several_platforms_the_leader_comes_first(void **state)
{
    static const char *const platforms[] = {"web", "discord", "telegram"};
    struct known_chat *c[3];

    for (int k = 0; k < 3; k++) {
        c[k] = chat_add(&t, ann, STR("7"));
        chat_set_address(&t, c[k], str_of(platforms[k]), STR(""), STR(""));
    }
    assert_ptr_equal(find(ann, "7"), c[2]);
    chat_lead(&t, c[0]);
    for (int k = 0; k < 5000; k++) { /* the buckets are divided again and again */
        char id[16];
        snprintf(id, sizeof id, "x%d", k);
        chat_add(&t, ann, str_of(id));
    }
    assert_ptr_equal(find(ann, "7"), c[0]);
    for (int k = 0; k < 3; k++)
        assert_ptr_equal(chats_find(ann, str_of(platforms[k]), STR("7")), c[k]);
    chat_remove(&t, c[0]);
    assert_ptr_equal(find(ann, "7"), c[2]);
    assert_null(chats_find(ann, STR("web"), STR("7")));
    assert_ptr_equal(chats_find(ann, STR("discord"), STR("7")), c[1]);
}

static void what_chats_share_is_there_once(void **state)
{
    struct known_chat *a = chat_add(&t, ann, STR("1")), *b = chat_add(&t, bob, STR("2"));

    assert_str(chat_platform(a), "");
    assert_true(chat_set_address(&t, a, STR("discord"), STR("hop"), STR("guild")));
    assert_false(chat_set_address(&t, a, STR("discord"), STR("hop"), STR("guild")));
    assert_true(chat_set_address(&t, b, STR("discord"), STR("hop"), STR("guild")));
    assert_ptr_equal(a->address, b->address);
    assert_true(chat_set_address(&t, b, STR("discord"), STR("hopg"), STR("uild")));
    assert_ptr_not_equal(a->address, b->address);
    assert_str(chat_platform(b), "discord");
    assert_str(chat_bot(b), "hopg");
    assert_str(chat_scope(b), "uild");
    assert_true(chat_set_address(&t, b, STR("web"), STR_NULL, STR_NULL));
    assert_str(chat_bot(b), "");
    assert_str(chat_scope(b), "");
    chat_set_basis(&t, a, STR("x"));
    chat_set_basis(&t, b, STR("x"));
    assert_ptr_equal(a->basis, b->basis);
    chat_set_basis(&t, a, STR("y"));
    assert_str(name_text(b->basis), "x");
}

static void keys_stay_in_their_order(void **state)
{
    struct known_chat *c = chat_add(&t, ann, STR("1"));

    assert_false(chat_has_key(c, 5));
    for (uint64_t k = 1; k <= CHAT_KEYS; k++)
        chat_add_key(c, k * 10);
    assert_int_equal(c->n_keys, CHAT_KEYS);
    for (size_t k = 0; k < CHAT_KEYS; k++)
        assert_int_equal(chat_keys(c)[k], (k + 1) * 10);
    assert_false(chat_remove_key(c, 11));
    for (uint64_t k = 1; k < CHAT_KEYS; k++)
        assert_true(chat_remove_key(c, k * 10));
    assert_int_equal(c->n_keys, 1);
    assert_true(chat_has_key(c, CHAT_KEYS * 10));
    assert_true(chat_remove_key(c, CHAT_KEYS * 10));
    assert_int_equal(c->n_keys, 0);
    assert_false(chat_has_key(c, CHAT_KEYS * 10));
    chat_add_key(c, 3);
    chat_add_key(c, 4);
    assert_int_equal(chat_keys(c)[1], 4);
}

static void queues_keep_the_order_of_their_caller(void **state)
{
    struct chat_list old = {0}, mine = {0};
    struct known_chat *c[4];
    const int order[] = {1, 3, 0};
    uint32_t at;

    for (int k = 0; k < 4; k++) {
        c[k] = chat_add(&t, ann, STR("1"));
        chat_list_append(&t, &old, CHAT_BY_AGE, c[k]);
        chat_list_append(&t, &mine, CHAT_BY_INSTANCE, c[k]);
    }
    chat_list_remove(&t, &old, CHAT_BY_AGE, c[0]);
    chat_list_append(&t, &old, CHAT_BY_AGE, c[0]);
    chat_list_remove(&t, &old, CHAT_BY_AGE, c[2]);
    at = old.first;
    for (int k = 0; k < 3; k++) {
        assert_ptr_equal(pool_at(&t.pool, at), c[order[k]]);
        at = c[order[k]]->in[CHAT_BY_AGE].next;
    }
    assert_int_equal(at, 0);
    assert_ptr_equal(pool_at(&t.pool, old.last), c[0]);
    assert_ptr_equal(pool_at(&t.pool, mine.last), c[3]); /* the other queue did not change */
    for (int k = 0; k < 3; k++)
        chat_list_remove(&t, &old, CHAT_BY_AGE, c[order[k]]);
    assert_int_equal(old.first | old.last, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(relay_test_chat_table)
{
    const struct CMUnitTest tests[] = {
        T(an_id_comes_back_as_it_was),
        T(many_are_found_while_they_come_and_go),
        T(those_of_a_start_are_found_once_all_are_there),
        T(of_one_id_on_several_platforms_the_leader_comes_first),
        T(what_chats_share_is_there_once),
        T(keys_stay_in_their_order),
        T(queues_keep_the_order_of_their_caller),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
