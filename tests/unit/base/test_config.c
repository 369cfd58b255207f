/* Promises of base/config.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/config.h"
#include "base/mem.h"

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
    return config_load(l->path, &l->cfg, &l->why);
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
    assert_int_equal(config_load(NULL, &c, &why), BH_OK);
    assert_null(c->path);
    assert_string_equal(c->listen, "127.0.0.1:7077");
    assert_string_equal(c->state_dir, "./bellhop-data");
    assert_string_equal(c->store_kind, "sqlite");
    assert_int_equal(c->delivery.window, 8);
    assert_true(c->delivery.live_acks);
    assert_int_equal(c->delivery.max_mailbox_bytes, 1 << 30);
    assert_int_equal(c->delivery.ack_patience_ms, 90000);
    assert_int_equal(c->wake.cooldown_ms, 30000);
    assert_false(c->wake.allow_private);
    assert_int_equal(c->log_level, LOG_INFO);
    assert_int_equal(c->n_platforms, 1);
    assert_string_equal(c->platforms[0].platform, "web");
    assert_string_equal(c->platforms[0].bot, "lobby");
    assert_int_equal(c->platforms[0].history, 200);
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
    assert_string_equal(l.cfg->listen, "0.0.0.0:1");
    assert_string_equal(l.cfg->public_url, "https://relay.example.org");
    assert_int_equal(l.cfg->delivery.window, 3);
    assert_false(l.cfg->delivery.live_acks);
    assert_int_equal(l.cfg->delivery.max_mailbox_bytes, 64 << 20);
    assert_int_equal(l.cfg->delivery.ack_patience_ms, 120000);
    assert_true(l.cfg->require_expiry);
    assert_int_equal(l.cfg->log_level, LOG_DEBUG);
    assert_true(l.cfg->log_json);
    assert_int_equal(l.cfg->n_platforms, 2);
    assert_string_equal(l.cfg->platforms[0].title, "The A room");
    assert_int_equal(l.cfg->platforms[0].history, 0);
    assert_string_equal(l.cfg->platforms[1].token, "x");
    assert_int_equal(l.cfg->platforms[1].line, 10);
    unload(&l);
}

static void an_empty_file_or_key_means_the_default(void **state)
{
    struct loaded l;

    assert_int_equal(load(&l, ""), BH_OK);
    assert_int_equal(l.cfg->n_platforms, 1);
    unload(&l);
    assert_int_equal(load(&l, "listen:\ndelivery:\nadmin: {token: \"\"}\n"), BH_OK);
    assert_string_equal(l.cfg->listen, "127.0.0.1:7077");
    assert_null(l.cfg->admin_token);
    unload(&l);
}

static void mistakes_are_told_with_line_and_what_was_expected(void **state)
{
    assert_refused(
        "listen: a\nlisten_to: b\n",
        ".yaml:2: unknown key \"listen_to\"; expected one of: listen public_url state_dir "
        "master_key tls store bus delivery wake webhooks auth identity limits admin log platforms");
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
    assert_refused("platforms:\n- {bot: lobby}\n",
                   ".yaml:2: platforms: \"platform\" is missing; expected one of: web telegram "
                   "discord twilio wecom");
    assert_refused("platforms:\n- {platform: web}\n",
                   ".yaml:2: platforms: web: \"bot\" is missing");
    assert_refused("platforms:\n- {platform: irc, bot: x}\n",
                   ".yaml:2: platforms: unknown platform \"irc\"; expected one of: web telegram "
                   "discord twilio wecom");
    assert_refused("platforms:\n- {platform: web, bot: x, token: y}\n",
                   ".yaml:2: platforms: \"web\" does not take \"token\"");
    assert_refused("platforms:\n- {platform: web, bot: x}\n- {platform: web, bot: x}\n",
                   ".yaml:3: platforms: web bot \"x\" is there twice");
    assert_refused("tls: {cert: a}\n", ".yaml: tls: cert and key are needed together");
    assert_refused("public_url: relay.example.org\n",
                   ".yaml: public_url: expected http://... or https://..., found "
                   "\"relay.example.org\"");
}

static void what_this_build_lacks_is_named_as_such(void **state)
{
    assert_refused("store: {kind: postgres}\n",
                   ".yaml:1: store.kind: expected sqlite (this build of bellhop does not have "
                   "\"postgres\" yet), found \"postgres\"");
    assert_refused("store: {kind: mysql}\n",
                   ".yaml:1: store.kind: expected one of sqlite, found \"mysql\"");
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
    assert_string_equal(l.cfg->state_dir, "/v/x: {y}, # \"z\"/w");
    assert_null(l.cfg->admin_token);
    assert_string_equal(l.cfg->public_url, "http://h");
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
    assert_string_equal(l.cfg->listen, "127.0.0.1:0");
    assert_int_equal(l.cfg->log_level, LOG_WARN);
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
    assert_int_equal(a.cfg->wake.cooldown_ms, 1000);
    assert_string_equal(a.cfg->admin_token, "s");
    assert_string_equal(a.cfg->listen, "127.0.0.1:7077");
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

    config_describe(&out);
    assert_non_null(strstr(buf_z(&out), "| `delivery.window` | `8` | reload |"));
    assert_non_null(strstr(buf_z(&out), "| `history` | 200 | web |"));
    buf_done(&out);
}

static void the_page_of_settings_ends_with_what_the_program_prints(void **state)
{
    struct buf out = BUF_INIT, page = BUF_INIT;
    FILE *f = fopen(DOCS "/configuration.md", "re");
    char piece[4096];

    assert_non_null(f);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(&page, piece, n);
    fclose(f);
    config_describe(&out);
    if (!str_ends(buf_str(&page), buf_str(&out)))
        fail_msg("docs/configuration.md: replace its tables with those of: bellhop help config");
    buf_done(&out);
    buf_done(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_every_default_holds),
        cmocka_unit_test(every_kind_of_value_is_read),
        cmocka_unit_test(an_empty_file_or_key_means_the_default),
        cmocka_unit_test(mistakes_are_told_with_line_and_what_was_expected),
        cmocka_unit_test(what_this_build_lacks_is_named_as_such),
        cmocka_unit_test(the_environment_is_read_inside_values_and_cannot_change_their_shape),
        cmocka_unit_test(bellhop_variables_override_the_file),
        cmocka_unit_test(a_reload_tells_what_it_takes_and_what_needs_a_restart),
        cmocka_unit_test(the_reference_names_every_setting),
        cmocka_unit_test(the_page_of_settings_ends_with_what_the_program_prints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
