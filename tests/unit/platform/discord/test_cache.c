/* Promises of platform/discord/cache.h. */
#include "unit.h"
#include "base/json.h"
#include "base/rand.h"
#include "platform/discord/cache.h"
#include "platform/discord/guild.h"

static struct dcache *c;
static struct json_parser *p;

static struct json parse(const char *text)
{
    struct json d;

    assert_true(json_parse(p, str_of(text), &d));
    return d;
}

static bool tell(const char *type, const char *d)
{
    return dcache_dispatch(c, str_of(type), parse(d));
}

static int setup(void **state)
{
    p = json_parser_new();
    c = dcache_new(&(struct dcache_limits){.max_channels = 8, .max_members = 3});
    dcache_set_bot(c, 9);
    return !tell("GUILD_CREATE", GUILD_77);
}

static int teardown(void **state)
{
    dcache_free(c);
    json_parser_free(p);
    return 0;
}

static void a_guild_brings_its_roles_channels_threads_and_members(void **state)
{
    const struct dcache_guild *g = dcache_guild(c, 77);

    assert_string_equal(g->name, "Hotel");
    assert_true(g->loaded);
    assert_int_equal(g->owner_id, 1);
    assert_int_equal(g->n_roles, 4);
    assert_true(g->roles[1].is_ours);
    assert_string_equal(dcache_channel(c, 100)->topic, "all things");
    assert_int_equal(dcache_channel(c, 100)->last_message_id, 1000);
    assert_int_equal(dcache_channel(c, 200)->parent_id, 100);
    assert_int_equal(dcache_channel(c, 200)->guild_id, 77);
    assert_string_equal(dcache_member(c, 77, 42)->nick, "Ann of 77");
    assert_null(dcache_channel(c, 999));
}

static void events_keep_it_current(void **state)
{
    assert_true(tell("CHANNEL_UPDATE", "{\"id\":\"100\",\"guild_id\":\"77\",\"type\":0,\"name\":"
                                       "\"lobby\",\"permission_overwrites\":[]}"));
    assert_string_equal(dcache_channel(c, 100)->name, "lobby");
    assert_null(dcache_channel(c, 100)->topic);
    assert_true(tell("CHANNEL_DELETE", "{\"id\":\"110\",\"guild_id\":\"77\"}"));
    assert_null(dcache_channel(c, 110));
    assert_true(tell("THREAD_CREATE", "{\"id\":\"230\",\"guild_id\":\"77\",\"parent_id\":\"100\","
                                      "\"type\":11,\"name\":\"new\"}"));
    assert_int_equal(dcache_channel(c, 230)->type, CHANNEL_PUBLIC_THREAD);
    assert_true(tell("THREAD_DELETE", "{\"id\":\"230\",\"guild_id\":\"77\"}"));
    assert_null(dcache_channel(c, 230));
    assert_true(tell("GUILD_ROLE_CREATE",
                     "{\"guild_id\":\"77\",\"role\":{\"id\":\"503\",\"permissions\":\"8\"}}"));
    assert_int_equal(dcache_guild(c, 77)->n_roles, 5);
    assert_true(tell("GUILD_ROLE_DELETE", "{\"guild_id\":\"77\",\"role_id\":\"500\"}"));
    assert_int_equal(dcache_guild(c, 77)->n_roles, 4);
    assert_true(tell("GUILD_MEMBER_UPDATE", "{\"guild_id\":\"77\",\"user\":{\"id\":\"42\"},"
                                            "\"nick\":null,\"roles\":[\"501\"]}"));
    assert_null(dcache_member(c, 77, 42)->nick);
    assert_int_equal(dcache_member(c, 77, 42)->roles[0], 501);
    assert_true(tell("GUILD_MEMBER_REMOVE", "{\"guild_id\":\"77\",\"user\":{\"id\":\"42\"}}"));
    assert_null(dcache_member(c, 77, 42));
    assert_false(tell("TYPING_START", "{}"));
}

static void a_thread_sync_ends_the_threads_it_does_not_name(void **state)
{
    tell("THREAD_LIST_SYNC", "{\"guild_id\":\"77\",\"channel_ids\":[\"100\"],\"threads\":["
                             "{\"id\":\"240\",\"type\":11,\"parent_id\":\"100\",\"name\":\"n\"}]}");
    assert_null(dcache_channel(c, 200));
    assert_non_null(dcache_channel(c, 240));
    assert_non_null(dcache_channel(c, 220)); /* of another parent */
}

static void an_outage_keeps_a_guild_and_leaving_forgets_it(void **state)
{
    tell("GUILD_DELETE", "{\"id\":\"77\",\"unavailable\":true}");
    assert_true(dcache_guild(c, 77)->unavailable);
    assert_non_null(dcache_channel(c, 100));
    tell("GUILD_DELETE", "{\"id\":\"77\"}");
    assert_null(dcache_guild(c, 77));
    assert_null(dcache_channel(c, 100));
    assert_null(dcache_member(c, 77, 42));
}

static void beyond_its_limit_the_least_used_channel_is_forgotten(void **state)
{
    struct dcache_stats s;

    dcache_channel(c, 100); /* used: not the oldest any more */
    for (int i = 0; i < 3; i++) {
        char text[80];
        snprintf(text, sizeof text, "{\"id\":\"%d\",\"guild_id\":\"77\",\"type\":0}", 900 + i);
        tell("CHANNEL_CREATE", text);
    }
    dcache_stats(c, &s);
    assert_int_equal(s.channels, 8);
    assert_int_equal(s.evicted, 1);
    assert_non_null(dcache_channel(c, 100));
    assert_null(dcache_channel(c, 110));
}

static void beyond_their_limit_members_are_forgotten_too(void **state)
{
    for (uint64_t u = 1; u < 10; u++)
        dcache_put_member(c, parse("{\"roles\":[]}"), 77, u);
    assert_null(dcache_member(c, 77, 42));
    assert_non_null(dcache_member(c, 77, 9));
}

static void seeing_follows_roles_and_overwrites(void **state)
{
    assert_int_equal(dcache_can_view(c, 100, 42), DCACHE_YES);
    assert_int_equal(dcache_can_view(c, 110, 42), DCACHE_NO);
    dcache_put_member(c, parse("{\"roles\":[\"501\"]}"), 77, 42);
    assert_int_equal(dcache_can_view(c, 110, 42), DCACHE_YES);
}

static void a_thread_is_seen_through_its_parent(void **state)
{
    assert_int_equal(dcache_can_view(c, 200, 42), DCACHE_YES);
    tell("CHANNEL_UPDATE", "{\"id\":\"100\",\"guild_id\":\"77\",\"type\":0,\"name\":\"general\","
                           "\"permission_overwrites\":[{\"id\":\"42\",\"type\":1,\"allow\":\"0\","
                           "\"deny\":\"1024\"}]}");
    assert_int_equal(dcache_can_view(c, 200, 42), DCACHE_NO);
}

static void a_private_thread_is_for_its_members_and_for_those_who_manage_threads(void **state)
{
    assert_int_equal(dcache_can_view(c, 210, 42), DCACHE_UNKNOWN);
    tell("THREAD_MEMBERS_UPDATE", "{\"id\":\"210\",\"guild_id\":\"77\",\"added_members\":["
                                  "{\"user_id\":\"42\",\"member\":{\"roles\":[]}}]}");
    assert_int_equal(dcache_can_view(c, 210, 42), DCACHE_YES);
    tell("THREAD_MEMBERS_UPDATE",
         "{\"id\":\"210\",\"guild_id\":\"77\",\"removed_member_ids\":[\"42\"]}");
    assert_int_equal(dcache_can_view(c, 210, 42), DCACHE_UNKNOWN);
    dcache_put_member(c, parse("{\"roles\":[\"502\"]}"), 77, 42);
    assert_int_equal(dcache_can_view(c, 210, 42), DCACHE_YES);
}

static void whatever_is_unknown_makes_the_answer_unknown(void **state)
{
    assert_int_equal(dcache_can_view(c, 100, 43), DCACHE_UNKNOWN); /* who is that? */
    assert_int_equal(dcache_can_view(c, 999, 42), DCACHE_UNKNOWN);
    tell("GUILD_DELETE", "{\"id\":\"77\",\"unavailable\":true}");
    assert_int_equal(dcache_can_view(c, 100, 42), DCACHE_UNKNOWN);
}

static void an_id_is_digits_and_nothing_else(void **state)
{
    struct rand r = rand_seeded(3);

    assert_int_equal(snowflake(STR("1306950547890123456")), 1306950547890123456);
    assert_true(snowflake(STR("18446744073709551615")) == UINT64_MAX);
    assert_int_equal(snowflake(STR("18446744073709551616")), 0);
    assert_int_equal(snowflake(STR("")), 0);
    assert_int_equal(snowflake(STR_NULL), 0);
    assert_int_equal(snowflake(STR("12345678x")), 0);
    assert_int_equal(snowflake(STR("1234567/12345678")), 0);
    assert_int_equal(snowflake(STR("1234567:12345678")), 0);
    assert_int_equal(snowflake(STR("-1")), 0);
    for (int i = 0; i < 20000; i++) { /* as the slow and obvious reader has it */
        char text[32];
        uint64_t want = 0;
        int n = snprintf(text, sizeof text, "%llu",
                         (unsigned long long)(rand_u64(&r) >> rand_below(&r, 64)));
        if (rand_below(&r, 3) == 0)
            text[rand_below(&r, (uint64_t)n)] = (char)rand_below(&r, 256);
        if (!str_to_u64(str_make(text, (size_t)n), &want))
            want = 0;
        assert_true(snowflake(str_make(text, (size_t)n)) == want);
    }
}

static void nonsense_changes_nothing(void **state)
{
    static const char *const types[] = {
        "GUILD_CREATE",   "GUILD_DELETE",     "GUILD_ROLE_CREATE",     "GUILD_ROLE_DELETE",
        "CHANNEL_CREATE", "THREAD_LIST_SYNC", "THREAD_MEMBERS_UPDATE", "GUILD_MEMBER_UPDATE",
    };
    static const char *const bodies[] = {
        "{}",
        "[]",
        "null",
        "{\"id\":77}",
        "{\"id\":\"x\",\"channels\":7,\"roles\":{}}",
        "{\"guild_id\":\"77\",\"role\":[],\"threads\":[1,null],\"channel_ids\":[7]}",
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++)
            tell(types[i], bodies[k]);
    assert_int_equal(dcache_guild(c, 77)->n_roles, 4);
    assert_non_null(dcache_channel(c, 100));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(platform_discord_test_cache)
{
    const struct CMUnitTest tests[] = {
        T(a_guild_brings_its_roles_channels_threads_and_members),
        T(events_keep_it_current),
        T(a_thread_sync_ends_the_threads_it_does_not_name),
        T(an_outage_keeps_a_guild_and_leaving_forgets_it),
        T(beyond_its_limit_the_least_used_channel_is_forgotten),
        T(beyond_their_limit_members_are_forgotten_too),
        T(seeing_follows_roles_and_overwrites),
        T(a_thread_is_seen_through_its_parent),
        T(a_private_thread_is_for_its_members_and_for_those_who_manage_threads),
        T(whatever_is_unknown_makes_the_answer_unknown),
        T(an_id_is_digits_and_nothing_else),
        T(nonsense_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
