/* Promises of platform/manifest.h: whose commands a bot has, in whose words. */
#include "unit.h"
#include "facts_rig.h"
#include "base/json.h"
#include "base/mem.h"
#include "platform/manifest.h"
#include "platform/platform.h"
#include "tenancy/enroll.h"
#include "tenancy/rights.h"

struct bot {
    struct platform p;
    struct buf commands; /* as they were set last */
    int sets;
};

static struct {
    struct facts_rig f;
    struct manifests *ms;
    struct json_parser *parser;
    struct bot bots[2];
    struct host_env env;
} w;

/* ---- the host ---- */

size_t host_n_platforms(const struct host *h)
{
    return ARRAY_LEN(w.bots);
}
struct platform *host_nth_platform(const struct host *h, size_t n)
{
    return &w.bots[n].p;
}

const struct host_env *host_env(struct host *h)
{
    return &w.env;
}
enum host_announcer host_announcer(struct host *h, struct str gateway, const struct platform *p)
{
    const struct gateway *gw = facts_gateway(w.f.facts, gateway);

    if (gw == NULL || gw->revoked_ms != 0)
        return ANNOUNCER_GONE;
    return p != NULL && right_to_menu(w.f.facts, gw, STR("discord"), str_of(p->bot))
               ? ANNOUNCER_OWN
               : ANNOUNCER_OTHER;
}

static void set_commands(struct platform *p, struct str commands)
{
    struct bot *b = container_of(p, struct bot, p);

    buf_reset(&b->commands);
    buf_add_str(&b->commands, commands);
    b->sets++;
}

static const struct platform_ops ops = {.name = "discord", .set_commands = set_commands};

static void add_gateway(const char *id, const char *bot)
{
    struct buf ret_id = BUF_INIT, secret = BUF_INIT;

    facts_gateway_add(w.f.facts,
                      &(struct gateway_spec){.id = str_of(id),
                                             .tenant = STR("acme"),
                                             .instance = str_of(id),
                                             .bots = &(struct gateway_for){STR("discord"),
                                                                           str_of(bot), false},
                                             .n_bots = 1},
                      &ret_id, &secret, NULL, NULL);
    facts_rig_turn(&w.f);
    buf_done(&ret_id);
    buf_done(&secret);
}

static void reopen(void)
{
    manifests_close(w.ms);
    w.env = (struct host_env){.clock = w.f.clock, .store = w.f.store};
    w.ms = manifests_open(NULL);
}

static int setup(void **state)
{
    memset(&w, 0, sizeof w);
    facts_rig_open(&w.f);
    w.parser = json_parser_new();
    w.bots[0].p = (struct platform){.ops = &ops, .bot = "one"};
    w.bots[1].p = (struct platform){.ops = &ops, .bot = "two"};
    add_gateway("zz", "one");
    add_gateway("aa", "one");
    add_gateway("other", "two");
    reopen();
    return 0;
}

static int teardown(void **state)
{
    manifests_close(w.ms);
    facts_rig_done(&w.f);
    json_parser_free(w.parser);
    for (size_t i = 0; i < ARRAY_LEN(w.bots); i++)
        buf_done(&w.bots[i].commands);
    return 0;
}

static void hear(const char *gateway, const char *manifest)
{
    struct json doc;
    char *text = xstrdup(manifest);

    for (char *p = text; *p != '\0'; p++)
        *p = *p == '\'' ? '"' : *p;
    assert_true(json_parse(w.parser, str_of(text), &doc));
    manifests_hear(w.ms, str_of(gateway), doc);
    free(text);
    facts_rig_pass(&w.f, 10);
}

static void settle(void)
{
    facts_rig_pass(&w.f, MANIFEST_DEBOUNCE_MS);
}

static void assert_has(size_t bot, const char *commands)
{
    char *text = xstrdup(buf_z(&w.bots[bot].commands));

    for (char *p = text; *p != '\0'; p++)
        *p = *p == '"' ? '\'' : *p;
    assert_string_equal(text, commands);
    free(text);
}

#define C(name, words) "{'name':'" name "','description':'" words "'}"

static void two_gateways_of_a_bot_have_their_commands_together(void **state)
{
    hear("zz", "[" C("ask", "of zz") "]");
    hear("aa", "[" C("ask", "of aa") "," C("tell", "of aa") "]");
    assert_int_equal(w.bots[0].sets, 0); /* not with every hello */
    settle();
    assert_int_equal(w.bots[0].sets, 1);
    assert_has(0, "[" C("ask", "of zz") "," C("tell", "of aa") "]");
    assert_has(1, "[]");
    reopen(); /* the first is the first after a restart too, whatever it is called */
    settle();
    assert_has(0, "[" C("ask", "of zz") "," C("tell", "of aa") "]");
}

static void saying_the_same_again_changes_nothing(void **state)
{
    hear("zz", "[" C("ask", "x") "]");
    settle();
    hear("zz", "[" C("ask", "x") "]");
    settle();
    assert_int_equal(w.bots[0].sets, 1);
}

static void what_is_left_out_or_revoked_goes(void **state)
{
    hear("zz", "[" C("ask", "x") "," C("tell", "x") "]");
    hear("aa", "[" C("sing", "x") "," C("ask", "of aa") "]");
    settle();
    hear("zz", "[" C("tell", "x") "]");
    settle();
    assert_has(0, "[" C("tell", "x") "," C("sing", "x") "," C("ask", "of aa") "]");
    facts_gateway_revoke(w.f.facts, STR("aa"), NULL, NULL);
    facts_rig_turn(&w.f);
    manifests_look(w.ms);
    settle();
    assert_has(0, "[" C("tell", "x") "]");
    reopen();
    settle();
    assert_has(0, "[" C("tell", "x") "]");
}

static void bad_entries_are_left_out_one_by_one(void **state)
{
    hear("zz",
         "[7,null,[],{},{'name':'a'},{'description':'b'}," C("", "x") "," C("UP", "x") "," C(
             "a b",
             "x") "," C("\xc3\xbc",
                        "x") "," C("ok",
                                   "") "," C("a2345678901234567890123456789012x",
                                             "33 characters") ","
                                                              "{'name':'ask','description':'x','"
                                                              "options':7},"
                                                              "{'name':'told','description':'x','"
                                                              "options':[{'type':3}],'default_"
                                                              "permission':true}," C("good",
                                                                                     "x") "]");
    settle();
    assert_has(0, "[{'name':'told','description':'x','options':[{'type':3}]}," C("good", "x") "]");
    hear("zz", "{'name':'x'}"); /* not a list: it announces none */
    settle();
    assert_has(0, "[]");
}

static void nobody_has_more_than_a_platform_takes(void **state)
{
    struct buf many = BUF_INIT;

    buf_add_z(&many, "[");
    for (int i = 0; i < 120; i++)
        buf_printf(&many, "%s{'name':'c%d','description':'x'}", i > 0 ? "," : "", i);
    buf_add_z(&many, "]");
    hear("zz", buf_z(&many));
    hear("aa", "[" C("late", "x") "]");
    settle();
    struct json doc;
    assert_true(json_parse(w.parser, buf_str(&w.bots[0].commands), &doc));
    assert_int_equal(json_count(doc), MANIFEST_COMMANDS);
    buf_done(&many);
}

/* An attack: a gateway that came by itself names somebody's bot and fills the bot's menu. */
static void a_bot_that_was_only_asserted_shows_no_commands(void **state)
{
    struct provision_result result = {0};
    const struct provision_spec spec = {.tenant = STR("evil"),
                                        .gateway = STR("evil"),
                                        .platform = STR("discord"),
                                        .bot = STR("one")};

    facts_provision(w.f.facts, &spec, NULL, &result, NULL, NULL);
    facts_rig_turn(&w.f);
    provision_result_done(&result);
    hear("evil", "[" C("pay", "to evil") "]");
    hear("zz", "[" C("ask", "of zz") "]");
    settle();
    assert_has(0, "[" C("ask", "of zz") "]");
    assert_has(1, "[]");
}

static void a_gateway_of_two_bots_shows_its_commands_on_both(void **state)
{
    const struct gateway_for bots[] = {{STR("discord"), STR("one")}, {STR("discord"), STR("two")}};
    struct buf id = BUF_INIT, secret = BUF_INIT;

    facts_gateway_add(
        w.f.facts,
        &(struct gateway_spec){.id = STR("both"), .tenant = STR("acme"), .bots = bots, .n_bots = 2},
        &id, &secret, NULL, NULL);
    facts_rig_turn(&w.f);
    hear("both", "[" C("ask", "both") "]");
    settle();
    assert_has(0, "[" C("ask", "both") "]");
    assert_has(1, "[" C("ask", "both") "]");
    buf_done(&id);
    buf_done(&secret);
}

UNIT(platform_test_manifest)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(two_gateways_of_a_bot_have_their_commands_together),
        T(saying_the_same_again_changes_nothing),
        T(what_is_left_out_or_revoked_goes),
        T(bad_entries_are_left_out_one_by_one),
        T(nobody_has_more_than_a_platform_takes),
        T(a_bot_that_was_only_asserted_shows_no_commands),
        T(a_gateway_of_two_bots_shows_its_commands_on_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
