/* Promises of tenancy/enroll.h that need a clock to see. */
#include "unit.h"
#include "facts_rig.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "tenancy/enroll.h"
#include "tenancy/facts.h"

struct rig {
    struct facts_rig f;
    enum bh_err err;
    int calls;
};

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct rig *r = ctx;
    r->calls++;
    r->err = err;
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);
    facts_rig_open(&r->f);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    facts_rig_done(&r->f);
    free(r);
    return 0;
}

static enum bh_err provision(struct rig *r, const char *tenant, char ret_secret[65])
{
    struct provision_result result = {0};
    const struct provision_spec spec = {.tenant = str_of(tenant), .gateway = STR("gw-1")};
    r->calls = 0;
    facts_provision(r->f.facts, &spec, NULL, &result, on_done, r);
    assert_int_equal(r->calls, 0);
    facts_rig_turn(&r->f);
    assert_int_equal(r->calls, 1);
    if (r->err == BH_OK)
        snprintf(ret_secret, 65, "%s", buf_z(&result.secret));
    provision_result_done(&result);
    return r->err;
}

static bool lets_in(struct rig *r, const char *secret)
{
    struct buf header = BUF_INIT;
    const struct gateway *gw = NULL;
    const char *why;
    buf_add_z(&header, "Bearer ");
    token_mint(&header, STR("gw-1"), str_of(secret), (NOW_MS + r->f.passed_ms) / 1000 + 60);
    bool ok = facts_authenticate(r->f.facts, buf_str(&header), &gw, &why) == AUTH_OK;
    buf_done(&header);
    return ok;
}

/* A gateway that comes back with other keys each time. */
static void what_one_instance_claims_by_provisioning_is_bounded(void **state)
{
    struct rig *r = *state;
    char names[PROVISION_ROUTES_MAX][16];
    struct str keys[PROVISION_ROUTES_MAX];
    struct list *head;

    for (int call = 0; call < 6; call++) {
        struct provision_result result = {0};
        const struct provision_spec spec = {.tenant = STR("acme"),
                                            .gateway = STR("gw-1"),
                                            .platform = STR("web"),
                                            .bot = STR("lobby"),
                                            .route_keys = keys,
                                            .n_route_keys = PROVISION_ROUTES_MAX};
        for (int i = 0; i < PROVISION_ROUTES_MAX; i++) {
            snprintf(names[i], sizeof names[i], "k%d-%d", call < 5 ? call : 0, i);
            keys[i] = str_of(names[i]);
        }
        facts_provision(r->f.facts, &spec, NULL, &result, on_done, r);
        facts_rig_turn(&r->f);
        assert_int_equal(r->err, BH_OK);
        /* full: nothing new is granted, and what it has stays its own */
        assert_int_equal(str_eq(buf_str(&result.route_keys), STR("[]")), call == 4);
        provision_result_done(&result);
    }
    assert_int_equal(facts_routes(r->f.facts, &head), PROVISION_CLAIMS_MAX);
}

static void within_the_window_the_secret_is_the_same_and_later_the_old_one_lives_on(void **state)
{
    struct rig *r = *state;
    char first[65], again[65], second[65];
    assert_int_equal(provision(r, "acme", first), BH_OK);
    facts_rig_pass(&r->f, PROVISION_SAME_MS - 1);
    assert_int_equal(provision(r, "acme", again), BH_OK);
    assert_string_equal(first, again);
    facts_rig_reopen(&r->f); /* and after a restart */
    assert_int_equal(provision(r, "acme", again), BH_OK);
    assert_string_equal(first, again);
    facts_rig_pass(&r->f, 1);
    assert_int_equal(provision(r, "acme", second), BH_OK);
    assert_string_not_equal(first, second);
    assert_true(lets_in(r, first) && lets_in(r, second));
    facts_rig_pass(&r->f, PROVISION_KEEP_MS - 1);
    assert_true(lets_in(r, first) && lets_in(r, second));
    facts_rig_pass(&r->f, 1);
    assert_false(lets_in(r, first));
    assert_true(lets_in(r, second));
}

/* Late: after PROVISION_SAME_MS.  The process that asked never came back with what it got. */
static void after_a_late_provision_the_old_secret_lives_until_the_new_one_was_used(void **state)
{
    struct rig *r = *state;
    char first[65], second[65];
    assert_int_equal(provision(r, "acme", first), BH_OK);
    facts_rig_pass(&r->f, PROVISION_SAME_MS);
    assert_int_equal(provision(r, "acme", second), BH_OK);
    facts_rig_pass(&r->f, 30ll * 24 * PROVISION_KEEP_MS);
    assert_true(lets_in(r, first));
    facts_rig_reopen(&r->f);
    assert_true(lets_in(r, first));
    assert_true(lets_in(r, second));
    facts_rig_turn(&r->f);
    assert_false(lets_in(r, first)); /* the hour had passed long ago */
    facts_rig_reopen(&r->f);
    assert_false(lets_in(r, first));
    assert_true(lets_in(r, second));
}

static void secrets_nobody_used_never_push_out_the_one_in_use(void **state)
{
    struct rig *r = *state;
    char first[65], lost[65];
    assert_int_equal(provision(r, "acme", first), BH_OK);
    for (int i = 0; i < 20; i++) {
        facts_rig_pass(&r->f, PROVISION_SAME_MS);
        assert_int_equal(provision(r, "acme", lost), BH_OK);
        assert_true(lets_in(r, first));
        facts_rig_turn(&r->f);
    }
    assert_true(lets_in(r, lost));
    facts_rig_turn(&r->f);
    facts_rig_pass(&r->f, PROVISION_KEEP_MS);
    assert_false(lets_in(r, first));
}

static void a_rotation_by_the_operator_ends_the_old_secret_used_or_not(void **state)
{
    struct rig *r = *state;
    struct buf secret = BUF_INIT;
    char first[65], second[65];
    assert_int_equal(provision(r, "acme", first), BH_OK);
    facts_rig_pass(&r->f, PROVISION_SAME_MS);
    assert_int_equal(provision(r, "acme", second), BH_OK);
    facts_gateway_rotate(r->f.facts, STR("gw-1"), 1000, &secret, on_done, r);
    facts_rig_turn(&r->f);
    assert_true(lets_in(r, first) && lets_in(r, second));
    facts_rig_pass(&r->f, 1000);
    assert_false(lets_in(r, first) || lets_in(r, second));
    assert_true(lets_in(r, buf_z(&secret)));
    buf_wipe(&secret);
}

static enum bh_err enroll(struct rig *r, const struct buf *token)
{
    struct provision_result result = {0};
    struct json_parser *p = json_parser_new();
    struct local_token t;
    const char *why;
    assert_true(local_token_read(r->f.facts, buf_str(token), TOKEN_ENROLL, p, &t, &why));
    const struct provision_spec spec = {.tenant = t.tenant, .gateway = STR("gw-1")};
    facts_provision(r->f.facts, &spec, &t, &result, on_done, r);
    facts_rig_turn(&r->f);
    json_parser_free(p);
    provision_result_done(&result);
    return r->err;
}

static void count_record(void *ctx, struct str key, struct str value)
{
    ++*(size_t *)ctx;
}

static size_t used_on_disk(struct rig *r)
{
    size_t n = 0;
    r->f.store->ops->load_records(r->f.store, "enrolled", STR(""), count_record, &n);
    return n;
}

static void used_enrollment_nonces_are_cleaned_up(void **state)
{
    struct rig *r = *state;
    struct buf token = BUF_INIT, last = BUF_INIT;
    struct local_token t = {.kind = TOKEN_ENROLL, .tenant = STR("acme")};
    for (int i = 0; i < 600; i++) { /* more than are deleted at once */
        buf_reset(&token);
        t.exp_ms = NOW_MS + r->f.passed_ms + 3600000;
        local_token_mint(r->f.facts, &t, &token);
        assert_int_equal(enroll(r, &token), BH_OK);
    }
    t.exp_ms += 10ll * 3600000;
    local_token_mint(r->f.facts, &t, &last);
    assert_int_equal(enroll(r, &last), BH_OK);
    assert_int_equal(enroll(r, &last), BH_CONFLICT);
    assert_int_equal(used_on_disk(r), 601);
    facts_rig_pass(&r->f, 3600000 - 1);
    assert_int_equal(used_on_disk(r), 601);
    for (int i = 0; i < 5; i++)
        facts_rig_pass(&r->f, 3600000);
    assert_int_equal(used_on_disk(r), 1);
    assert_int_equal(enroll(r, &last), BH_CONFLICT);
    facts_rig_reopen(&r->f); /* after a restart it is known, and then forgotten too */
    assert_int_equal(enroll(r, &last), BH_CONFLICT);
    for (int i = 0; i < 7; i++)
        facts_rig_pass(&r->f, 3600000);
    assert_int_equal(used_on_disk(r), 0);
    buf_done(&token);
    buf_done(&last);
}

static void a_gateway_that_restarts_in_a_loop_is_never_locked_out(void **state)
{
    struct rig *r = *state;
    char secret[65];
    for (int i = 0; i < 200; i++) {
        assert_int_equal(provision(r, "acme", secret), BH_OK);
        assert_true(lets_in(r, secret));
        facts_rig_pass(&r->f, 600000);
    }
    assert_true(facts_gateway(r->f.facts, STR("gw-1"))->n_secrets <= GATEWAY_SECRETS);
}

static void another_tenant_gets_nowhere_and_neither_does_a_revoked_gateway(void **state)
{
    struct rig *r = *state;
    char first[65], other[65];
    assert_int_equal(provision(r, "acme", first), BH_OK);
    assert_int_equal(provision(r, "Acme", other), BH_REFUSED);
    assert_true(lets_in(r, first));
    facts_gateway_revoke(r->f.facts, STR("gw-1"), on_done, r);
    facts_rig_turn(&r->f);
    assert_false(lets_in(r, first));
    assert_int_equal(provision(r, "acme", other), BH_REFUSED);
}

static void a_local_token_is_good_for_its_purpose_and_its_time(void **state)
{
    struct rig *r = *state;
    struct json_parser *p = json_parser_new();
    struct buf token = BUF_INIT;
    struct local_token t = {.kind = TOKEN_ENROLL,
                            .tenant = STR("acme"),
                            .instance = STR("agent \"1\""),
                            .exp_ms = NOW_MS + 1000},
                       got;
    const char *why;
    local_token_mint(r->f.facts, &t, &token);
    assert_true(local_token_read(r->f.facts, buf_str(&token), TOKEN_ENROLL, p, &got, &why));
    assert_str(got.tenant, "acme");
    assert_str(got.instance, "agent \"1\"");
    assert_null(got.wake_url.p);
    assert_int_equal(got.nonce.n, 32);
    assert_false(local_token_read(r->f.facts, buf_str(&token), TOKEN_PROVISION, p, &got, &why));
    for (size_t i = 0; i + 1 < token.n; i++) { /* the last character has bits that do not count */
        char was = token.p[i];
        token.p[i] = was == 'A' ? 'B' : 'A';
        bool same = i + 1 < token.n && token.p[i + 1] == '.';
        assert_true(same ||
                    !local_token_read(r->f.facts, buf_str(&token), TOKEN_ENROLL, p, &got, &why));
        token.p[i] = was;
    }
    facts_rig_pass(&r->f, 1000);
    assert_false(local_token_read(r->f.facts, buf_str(&token), TOKEN_ENROLL, p, &got, &why));
    assert_string_equal(why, "it has expired");
    buf_done(&token);
    json_parser_free(p);
}

static void provision_as(struct rig *r, const char *platform, const char *bot)
{
    struct provision_result result = {0};
    const struct provision_spec spec = {.tenant = STR("acme"),
                                        .gateway = STR("gw-1"),
                                        .platform = str_of(platform),
                                        .bot = str_of(bot)};
    facts_provision(r->f.facts, &spec, NULL, &result, on_done, r);
    facts_rig_turn(&r->f);
    assert_int_equal(r->err, BH_OK);
    provision_result_done(&result);
}

static bool is_for(struct rig *r, const char *platform, const char *bot)
{
    const struct gateway *g = facts_gateway(r->f.facts, STR("gw-1"));
    return identity_has(g, str_of(platform), str_of(bot));
}

static void a_gateway_provisioned_for_several_platforms_is_for_each_of_them(void **state)
{
    struct rig *r = *state;
    provision_as(r, "telegram", "my_bot");
    provision_as(r, "discord", "");
    provision_as(r, "discord", "app1");
    provision_as(r, "web", "lobby");
    provision_as(r, "relay", "");
    for (int start = 0; start < 2; start++) {
        const struct gateway *g = facts_gateway(r->f.facts, STR("gw-1"));
        assert_true(is_for(r, "telegram", "my_bot") && is_for(r, "discord", "app1"));
        assert_true(is_for(r, "web", "lobby"));
        assert_false(is_for(r, "discord", "") || is_for(r, "telegram", "app1"));
        assert_string_equal(g->platform, "web"); /* the one it named last */
        assert_string_equal(g->bot, "lobby");
        facts_rig_reopen(&r->f);
    }
    provision_as(r, "telegram", ""); /* it did not say: the same bot */
    assert_true(is_for(r, "telegram", "my_bot") && is_for(r, "web", "lobby"));
    provision_as(r, "telegram", "other");
    assert_true(is_for(r, "telegram", "other") && !is_for(r, "telegram", "my_bot"));
}

static void the_platforms_of_a_gateway_are_bounded_and_the_oldest_goes(void **state)
{
    struct rig *r = *state;
    struct str platform, bot;
    char name[8];
    for (int n = 0; n <= IDENTITIES_MAX; n++) {
        snprintf(name, sizeof name, "p%d", n);
        provision_as(r, name, "b");
    }
    assert_false(is_for(r, "p0", "b"));
    assert_true(is_for(r, "p1", "b") && is_for(r, "p16", "b"));
    const struct gateway *g = facts_gateway(r->f.facts, STR("gw-1"));
    assert_true(identity_nth(g, IDENTITIES_MAX - 1, &platform, &bot));
    assert_false(identity_nth(g, IDENTITIES_MAX, &platform, &bot));
}

#define PROMISE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(tenancy_test_enroll)
{
    const struct CMUnitTest tests[] = {
        PROMISE(a_gateway_provisioned_for_several_platforms_is_for_each_of_them),
        PROMISE(the_platforms_of_a_gateway_are_bounded_and_the_oldest_goes),
        PROMISE(what_one_instance_claims_by_provisioning_is_bounded),
        PROMISE(within_the_window_the_secret_is_the_same_and_later_the_old_one_lives_on),
        PROMISE(after_a_late_provision_the_old_secret_lives_until_the_new_one_was_used),
        PROMISE(secrets_nobody_used_never_push_out_the_one_in_use),
        PROMISE(a_rotation_by_the_operator_ends_the_old_secret_used_or_not),
        PROMISE(used_enrollment_nonces_are_cleaned_up),
        PROMISE(a_gateway_that_restarts_in_a_loop_is_never_locked_out),
        PROMISE(another_tenant_gets_nowhere_and_neither_does_a_revoked_gateway),
        PROMISE(a_local_token_is_good_for_its_purpose_and_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
