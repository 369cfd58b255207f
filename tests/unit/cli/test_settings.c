/* The configuration of the program (cli/settings.h): every section there is, through the file. */
#include "unit.h"
#include "platform/platform.h"
#include <unistd.h>
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/settings.h"
#include "http/front.h"
#include "http/waker.h"
#include "platform/telegram/telegram.h"
#include "platform/web/web.h"
#include "relay/relay.h"
#include "store/store.h"
#include "tenancy/facts.h"

struct loaded {
    char path[64];
    struct config *cfg;
    struct buf why;
};

static enum bh_err load(struct loaded *l, const char *yaml)
{
    snprintf(l->path, sizeof l->path, "/tmp/bellhop-test-config-%d.yaml", (int)getpid());
    l->cfg = NULL;
    l->why = BUF_INIT;
    FILE *f = fopen(l->path, "we");
    assert_non_null(f);
    fputs(yaml, f);
    fclose(f);
    return settings_load(l->path, &l->cfg, &l->why);
}

/* The sections as their owners find them. */
static const struct settings *top(const struct config *c)
{
    return settings_of(c);
}
static const struct relay_limits *limits(const struct config *c)
{
    return config_get(c, &relay_config);
}
static const struct wake_settings *wake(const struct config *c)
{
    return config_get(c, &wake_config);
}
static const struct log_settings *logging(const struct config *c)
{
    return config_get(c, &log_config);
}
static const char *admin_token(const struct config *c)
{
    return ((const struct front_settings *)config_get(c, &front_config))->admin_token;
}
static size_t n_platforms(const struct config *c)
{
    return config_count(c, &platforms_config);
}
static const struct web_settings *nth_web(const struct config *c, size_t i)
{
    return config_entry(c, &platforms_config, i);
}

static void unload(struct loaded *l)
{
    unlink(l->path);
    config_free(l->cfg);
    buf_done(&l->why);
}

/* The error without the directory it was found in. */
static void assert_refused(const char *yaml, const char *expected)
{
    struct loaded l;

    assert_int_equal(load(&l, yaml), BH_MALFORMED);
    const char *tail = strstr(buf_z(&l.why), ".yaml");
    if (tail == NULL || strcmp(tail, expected) != 0)
        fail_msg("for <%s>\n  expected ...%s\n  but got %s", yaml, expected, buf_z(&l.why));
    unload(&l);
}

static void without_a_file_every_default_holds(void **state)
{
    struct config *c = NULL;
    struct buf why = BUF_INIT;

    assert_int_equal(chdir("/tmp"), 0);
    assert_int_equal(settings_load(NULL, &c, &why), BH_OK);
    assert_null(config_path(c));
    assert_string_equal(top(c)->listen, "127.0.0.1:7077");
    assert_string_equal(top(c)->state_dir, "./bellhop-data");
    assert_string_equal(((const struct store_settings *)config_get(c, &store_config))->kind,
                        "sqlite");
    assert_int_equal(limits(c)->window, 8);
    assert_true(limits(c)->live_acks);
    assert_int_equal(limits(c)->max_mailbox_bytes, 1 << 30);
    assert_int_equal(limits(c)->ack_patience_ms, 90000);
    assert_int_equal(limits(c)->wake_cooldown_ms, 30000);
    assert_false(wake(c)->allow_private);
    assert_int_equal(logging(c)->level, LOG_INFO);
    assert_int_equal(n_platforms(c), 1);
    assert_string_equal(nth_web(c, 0)->base.platform, "web");
    assert_string_equal(nth_web(c, 0)->base.bot, "lobby");
    assert_int_equal(nth_web(c, 0)->history, 200);
    config_free(c);
    buf_done(&why);
}

static void every_kind_of_value_is_read(void **state)
{
    struct loaded l;

    assert_int_equal(load(&l, "listen: 0.0.0.0:1\n"
                              "public_url: https://relay.example.org/\n"
                              "delivery: {window: 3, live_acks: no, max_mailbox_bytes: 64MiB,\n"
                              "           ack_patience: 2m}\n"
                              "auth:\n  require_expiry: true\n"
                              "log: {level: debug, format: json}\n"
                              "platforms:\n"
                              "  - {platform: web, bot: a, title: \"The A room\", history: 0}\n"
                              "  - {platform: telegram, bot: b, token: x}\n"),
                     BH_OK);
    assert_string_equal(top(l.cfg)->listen, "0.0.0.0:1");
    assert_string_equal(top(l.cfg)->public_url, "https://relay.example.org");
    assert_int_equal(limits(l.cfg)->window, 3);
    assert_false(limits(l.cfg)->live_acks);
    assert_int_equal(limits(l.cfg)->max_mailbox_bytes, 64 << 20);
    assert_int_equal(limits(l.cfg)->ack_patience_ms, 120000);
    assert_true(((const struct auth_settings *)config_get(l.cfg, &auth_config))->require_expiry);
    assert_int_equal(logging(l.cfg)->level, LOG_DEBUG);
    assert_int_equal(logging(l.cfg)->format, LOG_JSON);
    assert_int_equal(n_platforms(l.cfg), 2);
    assert_string_equal(nth_web(l.cfg, 0)->title, "The A room");
    assert_int_equal(nth_web(l.cfg, 0)->history, 0);
    const struct telegram_settings *t = config_entry(l.cfg, &platforms_config, 1);
    assert_string_equal(t->token, "x");
    assert_int_equal(config_entry_line(l.cfg, &platforms_config, 1), 10);
    unload(&l);
}

static void an_empty_file_or_key_means_the_default(void **state)
{
    struct loaded l;

    assert_int_equal(load(&l, ""), BH_OK);
    assert_int_equal(n_platforms(l.cfg), 1);
    unload(&l);
    assert_int_equal(load(&l, "listen:\ndelivery:\nadmin: {token: \"\"}\n"), BH_OK);
    assert_string_equal(top(l.cfg)->listen, "127.0.0.1:7077");
    assert_null(admin_token(l.cfg));
    unload(&l);
}

/* The error ends with the names of all platforms. */
static void refused_with_names(const char *yaml, const char *expected)
{
    struct buf text = BUF_INIT;

    buf_add_z(&text, expected);
    for (size_t i = 0; platforms[i] != NULL; i++)
        buf_printf(&text, " %s", platforms[i]->name);
    assert_refused(yaml, buf_z(&text));
    buf_done(&text);
}

static void mistakes_are_told_with_line_and_what_was_expected(void **state)
{
    assert_refused("trusted_proxies: [10.0.0.0/8, nginx]\n",
                   ".yaml: trusted_proxies: expected an address, a network such as 10.0.0.0/8, or "
                   "unix, found \"nginx\"");
    assert_refused("proxy_protocol: true\n",
                   ".yaml: proxy_protocol: needs trusted_proxies, or nobody could connect");
    assert_refused(
        "listen: a\nlisten_to: b\n",
        ".yaml:2: unknown key \"listen_to\"; expected one of: listen public_url state_dir "
        "master_key edges retention tls hosts trusted_proxies proxy_protocol store cluster redis "
        "delivery "
        "wake "
        "webhooks auth identity limits skills media outbox admin confine log dispatch why "
        "audit allowances pairing platforms agents include");
    assert_refused(
        "delivery:\n  window: many\n",
        ".yaml:2: delivery.window: expected a whole number from 1 to 64, found \"many\"");
    assert_refused("wake: {cooldwn: 3s}\n",
                   ".yaml:1: unknown key \"wake.cooldwn\"; expected one of: "
                   "cooldown timeout allow_private");
    assert_refused("wake: {cooldown: soon}\n",
                   ".yaml:1: wake.cooldown: expected a duration such as "
                   "30s, 5m or 250ms, found \"soon\"");
    assert_refused("wake: {cooldown: [1]}\n",
                   ".yaml:1: wake.cooldown: expected a single value, found a list");
    assert_refused("wake: 7\n", ".yaml:1: wake: expected a section {key: value, ...}");
    assert_refused("- a\n", ".yaml:1: expected \"key: value\" lines");
    assert_refused("a: [\n", ".yaml:2: not YAML: did not find expected node content");
    assert_refused("listen: a\nlisten: b\n", ".yaml:2: \"listen\" is there twice");
    assert_refused("platforms: {web: lobby}\n",
                   ".yaml:1: platforms: expected a list, \"- {platform: web, bot: lobby}\"");
    refused_with_names("platforms:\n- {bot: lobby}\n",
                       ".yaml:2: platforms: \"platform\" is missing; expected one of:");
    assert_refused("platforms:\n- {platform: web}\n",
                   ".yaml:2: platforms: web: \"bot\" is missing");
    refused_with_names("platforms:\n- {platform: telex, bot: x}\n",
                       ".yaml:2: platforms: unknown platform \"telex\"; expected one of:");
    assert_refused("platforms:\n- {platform: web, bot: x, token: y}\n",
                   ".yaml:2: platforms: \"web\" does not take \"token\"");
    assert_refused("platforms:\n- {platform: web, bot: x}\n- {platform: web, bot: x}\n",
                   ".yaml:3: platforms: web bot \"x\" is there twice");
    assert_refused("platforms:\n- {platform: telegram, bot: x, token: '1:a', mode: both}\n",
                   ".yaml:2: mode: expected one of polling|webhook, found \"both\"");
    assert_refused("agents:\n- {id: a, substrate: exec, command: '/bin/a \"b c'}\n",
                   ".yaml:2: command: expected a command whose quotes end, found "
                   "\"/bin/a \"b c\"");
    assert_refused("platforms:\n- {platform: web, bot: a/b}\n",
                   ".yaml:2: web a/b: the bot of a web platform is part of its address: use "
                   "letters, digits, '-', '_' and '.', not 'a/b'");
    assert_refused("platforms:\n- {platform: discord, bot: x, token: y, public_key: z}\n",
                   ".yaml:2: discord x: `public_key` is not a key: copy the 64 hex digits from the "
                   "Developer Portal (General Information)");
    assert_refused("tls: {cert: a}\n", ".yaml: tls: cert and key are needed together");
    assert_refused("public_url: relay.example.org\n",
                   ".yaml: public_url: expected http://... or https://..., found "
                   "\"relay.example.org\"");
}

static void a_word_that_is_no_choice_is_told_those_there_are(void **state)
{
    assert_refused("store: {kind: mysql}\n",
                   ".yaml:1: store.kind: expected one of sqlite|postgres, found \"mysql\"");
}

static void a_shared_store_needs_an_address(void **state)
{
    assert_refused("store: {kind: postgres}\n",
                   ".yaml: store.url: a store of kind postgres needs one, like "
                   "postgresql://bellhop@127.0.0.1/bellhop");
}

static void the_environment_is_read_inside_values_and_cannot_change_their_shape(void **state)
{
    struct loaded l;

    setenv("BH_TEST_A", "x: {y}, # \"z\"", 1);
    unsetenv("BH_TEST_NONE");
    assert_int_equal(load(&l,
                          "state_dir: /v/${BH_TEST_A}/w\nadmin: {token: \"${BH_TEST_NONE:-}\"}\n"
                          "public_url: ${BH_TEST_NONE:-http://h}\n"),
                     BH_OK);
    assert_string_equal(top(l.cfg)->state_dir, "/v/x: {y}, # \"z\"/w");
    assert_null(admin_token(l.cfg));
    assert_string_equal(top(l.cfg)->public_url, "http://h");
    unload(&l);
    assert_refused("listen: a\nmaster_key: ${BH_TEST_NONE}\n",
                   ".yaml:2: the environment variable BH_TEST_NONE is not set (set it, or write "
                   "${BH_TEST_NONE:-} to go without)");
    assert_refused("listen: ${oops\n", ".yaml:1: \"${\" without its \"}\"");
    assert_refused("listen: ${a b}\n",
                   ".yaml:1: \"${a b}\": expected ${NAME} or ${NAME:-otherwise}");
}

static void bellhop_variables_override_the_file(void **state)
{
    struct loaded l;

    setenv("BELLHOP_LISTEN", "127.0.0.1:0", 1);
    setenv("BELLHOP_LOG_LEVEL", "warn", 1);
    assert_int_equal(load(&l, "listen: a\n"), BH_OK);
    assert_string_equal(top(l.cfg)->listen, "127.0.0.1:0");
    assert_int_equal(logging(l.cfg)->level, LOG_WARN);
    unload(&l);
    setenv("BELLHOP_LOG_LEVEL", "loud", 1);
    assert_int_equal(load(&l, ""), BH_MALFORMED);
    assert_string_equal(buf_z(&l.why),
                        "the environment variable BELLHOP_LOG_LEVEL: expected one of "
                        "error|warn|info|debug");
    unload(&l);
    unsetenv("BELLHOP_LISTEN");
    unsetenv("BELLHOP_LOG_LEVEL");
}

static void a_reload_tells_what_it_takes_and_what_needs_a_restart(void **state)
{
    struct loaded a, b;
    struct buf reload = BUF_INIT, restart = BUF_INIT;

    assert_int_equal(load(&a, ""), BH_OK);
    assert_int_equal(load(&b, "listen: x:1\nadmin: {token: s}\nwake: {cooldown: 1s}\n"
                              "log: {level: debug}\n"
                              "platforms: [{platform: web, bot: z}]\n"),
                     BH_OK);
    config_diff(a.cfg, b.cfg, &reload, &restart);
    assert_string_equal(buf_z(&reload), "wake.cooldown\nadmin.token\nlog.level\n");
    assert_string_equal(buf_z(&restart), "listen\nplatforms\n");
    config_take_reloadable(a.cfg, b.cfg);
    assert_int_equal(limits(a.cfg)->wake_cooldown_ms, 1000);
    assert_string_equal(admin_token(a.cfg), "s");
    assert_string_equal(top(a.cfg)->listen, "127.0.0.1:7077");
    buf_reset(&reload);
    config_diff(a.cfg, b.cfg, &reload, &restart);
    assert_string_equal(buf_z(&reload), "wake.cooldown\nadmin.token\nlog.level\n");
    buf_done(&reload);
    buf_done(&restart);
    unload(&a);
    unload(&b);
}

static void the_reference_names_every_setting(void **state)
{
    struct buf out = BUF_INIT;

    config_describe(&settings_schema, &out);
    assert_non_null(strstr(buf_z(&out), "| `delivery.window` | `8` | reload |"));
    assert_non_null(strstr(buf_z(&out), "| `history` | 200 | web |"));
    buf_done(&out);
}

static struct buf read_page(const char *path)
{
    struct buf page = BUF_INIT;
    FILE *f = fopen(path, "re");
    char piece[4096];

    assert_non_null(f);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(&page, piece, n);
    fclose(f);
    return page;
}

static void the_page_about_security_has_the_table_of_limits(void **state)
{
    struct buf out = BUF_INIT, page = read_page(DOCS "/security.md");

    limits_describe(&out);
    if (strstr(buf_z(&page), buf_z(&out)) == NULL)
        fail_msg("docs/security.md: replace its table of limits with: bellhop help limits");
    buf_done(&out);
    buf_done(&page);
}

static void the_page_of_settings_ends_with_what_the_program_prints(void **state)
{
    struct buf out = BUF_INIT, page = read_page(DOCS "/configuration.md");

    config_describe(&settings_schema, &out);
    if (!str_ends(buf_str(&page), buf_str(&out)))
        fail_msg("docs/configuration.md: replace its tables with those of: bellhop help config");
    buf_done(&out);
    buf_done(&page);
}

UNIT(cli_test_settings)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_every_default_holds),
        cmocka_unit_test(every_kind_of_value_is_read),
        cmocka_unit_test(an_empty_file_or_key_means_the_default),
        cmocka_unit_test(mistakes_are_told_with_line_and_what_was_expected),
        cmocka_unit_test(a_word_that_is_no_choice_is_told_those_there_are),
        cmocka_unit_test(a_shared_store_needs_an_address),
        cmocka_unit_test(the_environment_is_read_inside_values_and_cannot_change_their_shape),
        cmocka_unit_test(bellhop_variables_override_the_file),
        cmocka_unit_test(a_reload_tells_what_it_takes_and_what_needs_a_restart),
        cmocka_unit_test(the_reference_names_every_setting),
        cmocka_unit_test(the_page_about_security_has_the_table_of_limits),
        cmocka_unit_test(the_page_of_settings_ends_with_what_the_program_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
