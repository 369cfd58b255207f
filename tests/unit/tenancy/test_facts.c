/* Promises of tenancy/facts.h. */
#include <unistd.h>
#include "unit.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/observers.h"
#include "store/memory/memory.h"
#include "core/event.h"
#include "tenancy/enroll.h"
#include "tenancy/facts.h"

#define NOW_MS 1800000000000

struct rig {
    struct clock *clock;
    struct store *store;
    struct observers *observers;
    struct rand rand;
    struct seal *seal;
    struct facts *facts;
    struct buf id, secret;
    /* the last change */
    int calls;
    enum bh_err err;
    char why[200];
    /* what was told */
    struct buf news;
};

static struct facts_env env_of(struct rig *r)
{
    return (struct facts_env){.clock = r->clock,
                              .store = r->store,
                              .observers = r->observers,
                              .rand = &r->rand,
                              .seal = r->seal};
}

static void on_changed(void *ctx, struct str what)
{
    buf_printf(&((struct rig *)ctx)->news, "facts:%.*s;", STR_FMT(what));
}

static void on_revoked(void *ctx, struct str id)
{
    buf_printf(&((struct rig *)ctx)->news, "revoked:%.*s;", STR_FMT(id));
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);
    char why[256];

    r->clock = clock_new();
    clock_set(r->clock, 1000, NOW_MS);
    r->store = store_memory_new(r->clock);
    r->observers = observers_new(r->clock);
    r->rand = rand_seeded(7);
    observers_add(r->observers, "facts", on_changed, r);
    observers_add(r->observers, "revoked", on_revoked, r);
    assert_int_equal(seal_open_master(STR("a passphrase of some length"), STR("salt"), NULL,
                                      &r->seal, why),
                     BH_OK);
    struct facts_env env = env_of(r);
    assert_int_equal(facts_open(&env, &r->facts, why), BH_OK);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    store_close(r->store);
    facts_free(r->facts);
    observers_free(r->observers);
    seal_free(r->seal);
    clock_free(r->clock);
    buf_done(&r->id);
    buf_done(&r->secret);
    buf_done(&r->news);
    free(r);
    return 0;
}

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct rig *r = ctx;

    r->calls++;
    r->err = err;
    snprintf(r->why, sizeof r->why, "%s", why != NULL ? why : "");
}

static void turn(struct rig *r)
{
    for (int i = 0; i < 8; i++)
        clock_turn(r->clock);
}

static enum bh_err add(struct rig *r, const char *id, const char *tenant, const char *instance,
                       const char *wake_url)
{
    buf_reset(&r->id);
    buf_reset(&r->secret);
    r->calls = 0;
    facts_gateway_add(r->facts,
                      &(struct gateway_spec){.id = str_of(id),
                                             .tenant = str_of(tenant),
                                             .instance = str_of(instance),
                                             .wake_url = str_of(wake_url)},
                      &r->id, &r->secret, on_done, r);
    assert_int_equal(r->calls, 0);
    turn(r);
    assert_int_equal(r->calls, 1);
    return r->err;
}

static void reopen(struct rig *r)
{
    struct facts_env env = env_of(r);
    char why[256];

    facts_free(r->facts);
    assert_int_equal(facts_open(&env, &r->facts, why), BH_OK);
}

static void a_thread_reads_the_same(void **state)
{
    struct rig *r = *state;
    struct facts_env env = env_of(r);
    char why[256] = "nothing";

    assert_int_equal(add(r, "gw-1", "acme", "ann", "http://10.0.0.1/wake"), BH_OK);
    facts_free(r->facts);
    r->facts = facts_begin(&env);
    assert_int_equal(facts_finish(r->facts, why), BH_OK);
    assert_string_equal(why, "nothing");
    assert_non_null(facts_gateway(r->facts, STR("gw-1")));
    assert_string_equal(facts_wake_url(r->facts, STR("acme"), STR("ann")), "http://10.0.0.1/wake");
    facts_free(facts_begin(&env)); /* it is waited for */
}

static void what_a_thread_cannot_open_is_told(void **state)
{
    struct rig *r = *state;
    struct seal *other;
    char why[256] = "";

    assert_int_equal(add(r, "gw-1", "acme", "ann", NULL), BH_OK);
    assert_int_equal(seal_open_master(STR("another passphrase, not that"), STR("salt"), NULL,
                                      &other, why),
                     BH_OK);
    struct facts_env env = env_of(r);
    env.seal = other;
    struct facts *f = facts_begin(&env);
    assert_int_equal(facts_finish(f, why), BH_REFUSED);
    assert_non_null(strstr(why, "gw-1"));
    facts_free(f);
    seal_free(other);
}

static enum auth_verdict show(struct rig *r, const char *id, struct str secret, int64_t exp)
{
    struct buf header = BUF_INIT;
    const struct gateway *gw = NULL;
    const char *why = NULL;

    buf_add_z(&header, "Bearer ");
    token_mint(&header, str_of(id), secret, exp);
    enum auth_verdict v = facts_authenticate(r->facts, buf_str(&header), &gw, &why);
    assert_true((v == AUTH_OK) == (gw != NULL));
    buf_done(&header);
    return v;
}

static void collect(void *ctx, struct str tenant, struct str instance)
{
    buf_printf(ctx, "%.*s/%.*s ", STR_FMT(tenant), STR_FMT(instance));
}

static void assert_targets(struct rig *r, const char *platform, const char *key,
                           const char *expected)
{
    struct buf out = BUF_INIT;

    facts_each_target(r->facts, str_of(platform), str_of(key), collect, &out);
    assert_string_equal(buf_z(&out), expected);
    buf_done(&out);
}

static void route(struct rig *r, const char *key, const char *tenant, const char *instance,
                  bool adding)
{
    r->calls = 0;
    const struct route_spec open = {STR("web"), str_of(key), str_of(tenant), str_of(instance),
                                    true};
    (adding ? facts_route_add : facts_route_remove)(r->facts, &open, on_done, r);
    turn(r);
    assert_int_equal(r->calls, 1);
}

static enum bh_err route_closed(struct rig *r, const char *key, const char *tenant,
                                const char *instance)
{
    const struct route_spec closed = {.platform = STR("web"),
                                      .key = str_of(key),
                                      .tenant = str_of(tenant),
                                      .instance = str_of(instance)};
    r->calls = 0;
    facts_route_add(r->facts, &closed, on_done, r);
    turn(r);
    assert_int_equal(r->calls, 1);
    return r->err;
}

/* A gateway joins by itself and asserts one key of "web"; the keys it was told are its tenant's. */
static void provision(struct rig *r, const char *tenant, const char *gateway, const char *bot,
                      const char *key, char ret_keys[64])
{
    struct provision_result result = {0};
    const struct str keys[] = {str_of(key)};
    const struct provision_spec spec = {.tenant = str_of(tenant),
                                        .gateway = str_of(gateway),
                                        .platform = STR("web"),
                                        .bot = str_of(bot),
                                        .route_keys = keys,
                                        .n_route_keys = 1};
    facts_provision(r->facts, &spec, NULL, &result, on_done, r);
    turn(r);
    assert_int_equal(r->err, BH_OK);
    snprintf(ret_keys, 64, "%s", buf_z(&result.route_keys));
    provision_result_done(&result);
}

/* ---- promises ---- */

static void an_added_gateway_is_known_only_when_it_is_on_disk(void **state)
{
    struct rig *r = *state;

    facts_gateway_add(r->facts, &(struct gateway_spec){.id = STR("g"), .tenant = STR("t")}, &r->id,
                      &r->secret, on_done, r);
    assert_int_equal(r->secret.n, 64);
    assert_null(facts_gateway(r->facts, STR("g")));
    turn(r);
    const struct gateway *g = facts_gateway(r->facts, STR("g"));
    assert_non_null(g);
    assert_string_equal(g->instance, "g");
    assert_int_equal(g->created_ms, NOW_MS);
    assert_string_equal(buf_z(&r->news), "facts:gateway g;");
}

static void a_gateway_without_an_id_gets_one(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, NULL, "t", NULL, NULL), BH_OK);
    assert_true(str_starts(buf_str(&r->id), STR("gw-")));
    assert_non_null(facts_gateway(r->facts, buf_str(&r->id)));
}

static void an_id_exists_once(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "g", "t", NULL, NULL), BH_OK);
    assert_int_equal(add(r, "g", "u", NULL, NULL), BH_CONFLICT);
    assert_string_equal(facts_gateway(r->facts, STR("g"))->tenant, "t");
}

static void two_adds_of_one_id_in_one_turn_give_one_gateway(void **state)
{
    struct rig *r = *state;
    struct gateway_spec spec = {.id = STR("g"), .tenant = STR("t")};

    facts_gateway_add(r->facts, &spec, &r->id, &r->secret, on_done, r);
    facts_gateway_add(r->facts, &spec, &r->news, &r->news, on_done, r);
    turn(r);
    assert_int_equal(r->calls, 2);
    assert_int_equal(r->err, BH_CONFLICT);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_OK);
}

static void names_that_could_be_mistaken_are_refused(void **state)
{
    struct rig *r = *state;
    char long_name[200];
    const char *bad[] = {"a b",          "a\tb",         "a\nb",      "\x7f",
                         "\xc2\x85",     "\xff",         "a\xc2\xa0", "\xe2\x80\x8b",
                         "\xe2\x80\xae", "\xef\xbb\xbf", long_name};

    memset(long_name, 'x', sizeof long_name);
    long_name[129] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(facts_name_ok(str_of(bad[i])));
        assert_int_equal(add(r, bad[i], "t", NULL, NULL), BH_MALFORMED);
    }
    assert_int_equal(add(r, "g", NULL, NULL, NULL), BH_MALFORMED);
    assert_int_equal(add(r, "g", "t", NULL, "file:///etc/passwd"), BH_MALFORMED);
    assert_int_equal(add(r, "g", "t", NULL, "http://h/\r\nx: y"), BH_MALFORMED);
    assert_true(facts_name_ok(STR("a:b/c@d#\xc3\xa9\xe6\x97\xa5")));
}

static void everything_survives_a_restart(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "b", "t", "i", "http://h/wake"), BH_OK);
    route(r, "lobby", "t", "i", true);
    route(r, "all", "t", NULL, true);
    reopen(r);
    const struct gateway *g = facts_gateway(r->facts, STR("b"));
    assert_non_null(g);
    assert_string_equal(g->instance, "i");
    assert_string_equal(g->wake_url, "http://h/wake");
    assert_int_equal(show(r, "b", buf_str(&r->secret), 0), AUTH_OK);
    assert_targets(r, "web", "lobby", "t/i ");
    assert_targets(r, "web", "all", "t/i ");
}

static void secrets_are_not_readable_in_the_store(void **state)
{
    struct rig *r = *state;
    struct seal *other = NULL;
    struct facts *f = NULL;
    char why[256] = "";

    assert_int_equal(add(r, "g", "t", NULL, NULL), BH_OK);
    assert_int_equal(seal_open_master(STR("another passphrase of some length"), STR("salt"), NULL,
                                      &other, why),
                     BH_OK);
    struct facts_env env = env_of(r);
    env.seal = other;
    assert_int_equal(facts_open(&env, &f, why), BH_REFUSED);
    assert_non_null(strstr(why, "master key"));
    seal_free(other);
}

static void the_verdict_separates_wrong_from_retry(void **state)
{
    struct rig *r = *state;
    const struct gateway *gw;
    const char *why;
    int64_t now_s = NOW_MS / 1000;

    assert_int_equal(add(r, "g:with:colons", "t", NULL, NULL), BH_OK);
    struct str secret = buf_str(&r->secret);
    assert_int_equal(show(r, "g:with:colons", secret, now_s + 300), AUTH_OK);
    assert_int_equal(show(r, "g:with:colons", secret, now_s - 120), AUTH_OK);
    assert_int_equal(show(r, "g:with:colons", secret, now_s - 121), AUTH_RETRY);
    assert_int_equal(show(r, "g:with:colons", STR("wrong"), now_s + 300), AUTH_UNAUTHORIZED);
    assert_int_equal(show(r, "g:with:colons", STR("wrong"), now_s - 300), AUTH_UNAUTHORIZED);
    assert_int_equal(show(r, "nobody", secret, now_s + 300), AUTH_RETRY);
    assert_int_equal(facts_authenticate(r->facts, STR_NULL, &gw, &why), AUTH_UNAUTHORIZED);
    assert_int_equal(facts_authenticate(r->facts, STR("Bearer"), &gw, &why), AUTH_UNAUTHORIZED);
    assert_int_equal(facts_authenticate(r->facts, STR("Bearer %%%"), &gw, &why), AUTH_UNAUTHORIZED);
    assert_int_equal(facts_authenticate(r->facts, STR("Basic eDp5"), &gw, &why), AUTH_UNAUTHORIZED);
}

static void tokens_that_never_expire_can_be_refused(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "g", "t", NULL, NULL), BH_OK);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_OK);
    facts_set_require_expiry(r->facts, true);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_RETRY);
    assert_int_equal(show(r, "g", buf_str(&r->secret), NOW_MS / 1000), AUTH_OK);
}

static void a_rotated_secret_leaves_the_old_one_its_window(void **state)
{
    struct rig *r = *state;
    struct buf fresh = BUF_INIT;

    assert_int_equal(add(r, "g", "t", NULL, NULL), BH_OK);
    facts_gateway_rotate(r->facts, STR("g"), 3600000, &fresh, on_done, r);
    turn(r);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_OK);
    assert_int_equal(show(r, "g", buf_str(&fresh), 0), AUTH_OK);
    reopen(r);
    clock_set(r->clock, 2000, NOW_MS + 3600000);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_UNAUTHORIZED);
    assert_int_equal(show(r, "g", buf_str(&fresh), 0), AUTH_OK);
    buf_done(&fresh);
}

static void rotating_often_never_locks_the_newest_out(void **state)
{
    struct rig *r = *state;
    struct buf fresh = BUF_INIT;

    assert_int_equal(add(r, "g", "t", NULL, NULL), BH_OK);
    for (int i = 0; i < 10; i++) {
        buf_reset(&fresh);
        facts_gateway_rotate(r->facts, STR("g"), 3600000, &fresh, on_done, r);
    }
    turn(r);
    turn(r);
    turn(r);
    assert_int_equal(show(r, "g", buf_str(&fresh), 0), AUTH_OK);
    assert_int_equal(facts_gateway(r->facts, STR("g"))->n_secrets, GATEWAY_SECRETS);
    buf_done(&fresh);
}

static void a_revoked_gateway_stays_as_a_tombstone(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "g", "t", NULL, "http://h/w"), BH_OK);
    route(r, "lobby", "t", "g", true);
    const struct gateway *before = facts_gateway(r->facts, STR("g"));
    buf_reset(&r->news);
    facts_gateway_revoke(r->facts, STR("g"), on_done, r);
    turn(r);
    assert_string_equal(buf_z(&r->news), "facts:gateway g;revoked:g;");
    assert_ptr_equal(facts_gateway(r->facts, STR("g")), before);
    assert_int_equal(before->n_secrets, 0);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_UNAUTHORIZED);
    assert_targets(r, "web", "lobby", "");
    assert_null(facts_wake_url(r->facts, STR("t"), STR("g")));
    reopen(r);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_UNAUTHORIZED);
    facts_gateway_rotate(r->facts, STR("g"), 0, &r->news, on_done, r);
    turn(r);
    assert_int_equal(r->err, BH_REFUSED);
}

static void a_revoked_id_may_be_added_again(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "g", "t", NULL, NULL), BH_OK);
    facts_gateway_revoke(r->facts, STR("g"), on_done, r);
    turn(r);
    assert_int_equal(add(r, "g", "u", "other", NULL), BH_OK);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_OK);
    assert_string_equal(facts_gateway(r->facts, STR("g"))->tenant, "u");
    struct list *head;
    assert_int_equal(facts_gateways(r->facts, &head), 1);
}

static void an_unknown_gateway_is_not_found(void **state)
{
    struct rig *r = *state;

    facts_gateway_revoke(r->facts, STR("nobody"), on_done, r);
    turn(r);
    assert_int_equal(r->err, BH_NOT_FOUND);
    assert_string_equal(r->why, "there is no gateway \"nobody\"");
}

static void routes_lead_to_each_instance_once(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "a", "t", NULL, NULL), BH_OK);
    assert_int_equal(add(r, "b", "t", NULL, NULL), BH_OK);
    assert_int_equal(add(r, "b2", "t", "b", NULL), BH_OK);
    assert_int_equal(add(r, "c", "other", NULL, NULL), BH_OK);
    assert_targets(r, "web", "lobby", "");
    route(r, "lobby", "t", "b", true);
    route(r, "lobby", "t", "b", true);
    assert_targets(r, "web", "lobby", "t/b ");
    route(r, "hall", "t", NULL, true);
    assert_int_equal(r->err, BH_MALFORMED); /* which of the two does everybody reach? */
    assert_non_null(strstr(r->why, "--instance"));
    assert_int_equal(route_closed(r, "hall", "t", NULL), BH_OK);
    route(r, "hall", "t", NULL, false);
    assert_targets(r, "web", "lobb", "");
    assert_targets(r, "we", "lobby", "");
    route(r, "lobby", "t", "b", false);
    assert_targets(r, "web", "lobby", "");
    route(r, "lobby", "t", "b", false);
    assert_int_equal(r->err, BH_NOT_FOUND);
}

static void a_route_to_a_tenant_leads_to_each_of_its_instances_once(void **state)
{
    struct rig *r = *state;

    route(r, "lobby", "t", "b", true);
    route(r, "lobby", "t", NULL, true); /* it has none yet */
    assert_int_equal(add(r, "a", "t", NULL, NULL), BH_OK);
    assert_int_equal(add(r, "b", "t", NULL, NULL), BH_OK);
    assert_int_equal(add(r, "b2", "t", "b", NULL), BH_OK);
    assert_int_equal(add(r, "c", "other", NULL, NULL), BH_OK);
    assert_targets(r, "web", "lobby", "t/b t/a ");
    route(r, "lobby", "t", NULL, false);
    assert_targets(r, "web", "lobby", "t/b ");
}

/* ---- who may reach whom ---- */

static void a_route_that_is_not_open_leads_nobody_anywhere_and_owns_its_place(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "a", "t", NULL, NULL), BH_OK);
    for (int restarted = 0; restarted < 2; restarted++) {
        assert_int_equal(route_closed(r, "hall", "t", "a"), BH_OK);
        assert_targets(r, "web", "hall", "");
        assert_true(facts_has_route(r->facts, STR("web"), STR("hall")));
        assert_true(facts_owns(r->facts, STR("web"), STR("hall"), STR("t"), STR("a")));
        route(r, "hall", "t", "a", true); /* the last word counts */
        assert_targets(r, "web", "hall", "t/a ");
        if (restarted == 0)
            reopen(r);
        assert_targets(r, "web", "hall", "t/a ");
        assert_int_equal(route_closed(r, "hall", "t", "a"), BH_OK);
        assert_targets(r, "web", "hall", "");
        reopen(r);
        assert_targets(r, "web", "hall", "");
    }
}

static void everything_there_is_can_only_be_opened(void **state)
{
    struct rig *r = *state;

    assert_int_equal(route_closed(r, "*", "t", "a"), BH_MALFORMED);
    route(r, "*", "t", "a", true);
    assert_int_equal(r->err, BH_OK);
    assert_targets(r, "web", "anything", "t/a ");
}

static void a_gateway_that_is_added_is_reached_by_nobody_unless_it_is_open(void **state)
{
    struct rig *r = *state;
    struct gateway_for bot = {STR("web"), STR("b"), false};
    struct gateway_spec spec = {.id = STR("g"), .tenant = STR("t"), .bots = &bot, .n_bots = 1};

    facts_gateway_add(r->facts, &spec, &r->id, &r->secret, on_done, r);
    turn(r);
    assert_targets(r, "web", "b", "");
    assert_false(facts_has_route(r->facts, STR("web"), STR("b")));
    spec.id = STR("h");
    bot.open = true;
    buf_reset(&r->id);
    facts_gateway_add(r->facts, &spec, &r->id, &r->secret, on_done, r);
    turn(r);
    assert_targets(r, "web", "b", "t/h ");
}

static void
what_a_gateway_asserts_of_itself_delivers_nothing_and_lets_it_speak_nowhere(void **state)
{
    struct rig *r = *state;
    char keys[64];
    struct event ev = {.platform = STR("web"), .bot = STR("b"), .route_key = STR("+1555")};

    assert_int_equal(add(r, "a", "t", NULL, NULL), BH_OK);
    provision(r, "u", "g", "other", "+1555", keys);
    assert_string_equal(keys, "[\"+1555\"]");
    for (int restarted = 0; restarted < 2; restarted++) {
        assert_targets(r, "web", "+1555", "");
        assert_false(facts_has_route(r->facts, STR("web"), STR("+1555")));
        assert_false(facts_owns(r->facts, STR("web"), STR("+1555"), STR("u"), STR("g")));
        route(r, "b", "t", "a", true);
        assert_str(facts_route_key(r->facts, &ev), "b"); /* and it hides nobody's bot */
        reopen(r);
    }
}

static void a_key_under_a_bot_or_a_star_of_another_tenant_is_taken(void **state)
{
    struct rig *r = *state;
    char keys[64];

    assert_int_equal(add(r, "a", "t", NULL, NULL), BH_OK);
    route(r, "b", "t", "a", true);
    provision(r, "u", "g", "b", "+1555", keys);
    assert_string_equal(keys, "[]");
    provision(r, "t", "own", "b", "+1555", keys); /* whose bot it is may say more */
    assert_string_equal(keys, "[\"+1555\"]");
    provision(r, "u", "g", "c", "+1555", keys); /* and what one tenant said is taken too */
    assert_string_equal(keys, "[]");
    route(r, "*", "t", "a", true);
    provision(r, "u", "g", "c", "+1666", keys);
    assert_string_equal(keys, "[]");
}

static void the_operators_word_ends_what_others_have_claimed(void **state)
{
    struct rig *r = *state;
    struct list *head;
    char keys[64];

    assert_int_equal(add(r, "a", "t", NULL, NULL), BH_OK);
    provision(r, "u", "g", "other", "+1555", keys);
    assert_int_equal(facts_routes(r->facts, &head), 1);
    assert_int_equal(route_closed(r, "+1555", "t", "a"), BH_OK);
    assert_int_equal(facts_routes(r->facts, &head), 1);
    reopen(r);
    assert_int_equal(facts_routes(r->facts, &head), 1);
    assert_true(facts_owns(r->facts, STR("web"), STR("+1555"), STR("t"), STR("a")));
    provision(r, "u", "g", "other", "+1555", keys);
    assert_string_equal(keys, "[]");
}

static void a_route_may_come_before_its_gateway(void **state)
{
    struct rig *r = *state;

    route(r, "lobby", "t", "later", true);
    assert_targets(r, "web", "lobby", "t/later ");
}

static void owning_a_chat_needs_a_route_of_ones_own(void **state)
{
    struct rig *r = *state;

    route(r, "lobby", "t", "a", true);
    route(r, "all", "t", NULL, true);
    assert_true(facts_owns(r->facts, STR("web"), STR("lobby"), STR("t"), STR("a")));
    assert_false(facts_owns(r->facts, STR("web"), STR("lobby"), STR("t"), STR("b")));
    assert_false(facts_owns(r->facts, STR("web"), STR("lobby"), STR("u"), STR("a")));
    assert_true(facts_owns(r->facts, STR("web"), STR("all"), STR("t"), STR("b")));
    assert_false(facts_owns(r->facts, STR("web"), STR("all"), STR("u"), STR("b")));
}

static void the_newest_wake_url_counts(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "a", "t", "i", "http://old"), BH_OK);
    clock_set(r->clock, 2000, NOW_MS + 1000);
    assert_int_equal(add(r, "b", "t", "i", "http://new"), BH_OK);
    assert_string_equal(facts_wake_url(r->facts, STR("t"), STR("i")), "http://new");
    facts_gateway_set(r->facts, STR("b"), STR(""), on_done, r);
    turn(r);
    assert_string_equal(facts_wake_url(r->facts, STR("t"), STR("i")), "http://old");
    assert_null(facts_wake_url(r->facts, STR("u"), STR("i")));
}

static void never_acking_is_remembered(void **state)
{
    struct rig *r = *state;

    assert_int_equal(add(r, "g", "t", NULL, NULL), BH_OK);
    facts_gateway_set_ackless(r->facts, STR("g"), true);
    assert_true(facts_gateway(r->facts, STR("g"))->ackless);
    turn(r);
    reopen(r);
    assert_true(facts_gateway(r->facts, STR("g"))->ackless);
    assert_int_equal(show(r, "g", buf_str(&r->secret), 0), AUTH_OK);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(tenancy_test_facts)
{
    const struct CMUnitTest tests[] = {
        T(an_added_gateway_is_known_only_when_it_is_on_disk),
        T(a_gateway_without_an_id_gets_one),
        T(an_id_exists_once),
        T(two_adds_of_one_id_in_one_turn_give_one_gateway),
        T(names_that_could_be_mistaken_are_refused),
        T(everything_survives_a_restart),
        T(secrets_are_not_readable_in_the_store),
        T(the_verdict_separates_wrong_from_retry),
        T(tokens_that_never_expire_can_be_refused),
        T(a_rotated_secret_leaves_the_old_one_its_window),
        T(rotating_often_never_locks_the_newest_out),
        T(a_revoked_gateway_stays_as_a_tombstone),
        T(a_revoked_id_may_be_added_again),
        T(an_unknown_gateway_is_not_found),
        T(routes_lead_to_each_instance_once),
        T(a_route_to_a_tenant_leads_to_each_of_its_instances_once),
        T(a_route_that_is_not_open_leads_nobody_anywhere_and_owns_its_place),
        T(everything_there_is_can_only_be_opened),
        T(a_gateway_that_is_added_is_reached_by_nobody_unless_it_is_open),
        T(what_a_gateway_asserts_of_itself_delivers_nothing_and_lets_it_speak_nowhere),
        T(a_key_under_a_bot_or_a_star_of_another_tenant_is_taken),
        T(the_operators_word_ends_what_others_have_claimed),
        T(a_route_may_come_before_its_gateway),
        T(owning_a_chat_needs_a_route_of_ones_own),
        T(the_newest_wake_url_counts),
        T(never_acking_is_remembered),
        T(a_thread_reads_the_same),
        T(what_a_thread_cannot_open_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
