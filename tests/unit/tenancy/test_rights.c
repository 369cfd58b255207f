/* Promises of tenancy/rights.h: what gives an instance a bot, a person or a menu, and what not. */
#include "unit.h"
#include "facts_rig.h"
#include "base/mem.h"
#include "tenancy/enroll.h"
#include "tenancy/rights.h"

static const struct grant_who BANK = {{"bank", 4}, {"desk", 4}}, EVIL = {{"evil", 4}, {"e", 1}};

struct rig {
    struct facts_rig f;
    enum bh_err err;
    char why[200];
};

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct rig *r = ctx;

    r->err = err;
    snprintf(r->why, sizeof r->why, "%s", why != NULL ? why : "");
}

static enum bh_err add(struct rig *r, struct grant_who who, const struct gateway_for *bots,
                       size_t n)
{
    struct buf id = BUF_INIT, secret = BUF_INIT;
    const struct gateway_spec spec = {.id = who.instance,
                                      .tenant = who.tenant,
                                      .bots = bots,
                                      .n_bots = n};

    facts_gateway_add(r->f.facts, &spec, &id, &secret, on_done, r);
    facts_rig_turn(&r->f);
    buf_done(&id);
    buf_done(&secret);
    return r->err;
}

/* The gateway comes by itself and says which bot it is for. */
static void provision(struct rig *r, struct grant_who who, const char *bot)
{
    struct provision_result result = {0};
    const struct str key = STR("chat-9");
    const struct provision_spec spec = {.tenant = who.tenant,
                                        .gateway = who.instance,
                                        .platform = STR("telegram"),
                                        .bot = str_of(bot),
                                        .route_keys = &key,
                                        .n_route_keys = 1};

    facts_provision(r->f.facts, &spec, NULL, &result, on_done, r);
    facts_rig_turn(&r->f);
    assert_int_equal(r->err, BH_OK);
    provision_result_done(&result);
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);

    facts_rig_open(&r->f);
    assert_int_equal(add(r, BANK, &(struct gateway_for){STR("telegram"), STR("bankbot"), true}, 1),
                     BH_OK);
    provision(r, EVIL, "bankbot");
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

static struct right_at on(struct grant_who who, const char *bot)
{
    return (struct right_at){who, STR("telegram"), str_of(bot)};
}

static bool has_person(struct rig *r, struct grant_who who, const char *bot, const char *user)
{
    struct right_at at = on(who, bot);

    return right_by_person(r->f.facts, &at, str_of(user));
}

static bool has_bot(struct rig *r, struct grant_who who, const char *bot)
{
    struct right_at at = on(who, bot);

    return right_by_bot(r->f.facts, &at);
}

static bool has_menu(struct rig *r, struct grant_who who, const char *platform, const char *bot)
{
    return right_to_menu(r->f.facts, facts_gateway(r->f.facts, who.instance), str_of(platform),
                         str_of(bot));
}

static enum bh_err change(struct rig *r, struct grant_who who, bool remove, const char *user,
                          const char *a, const char *b)
{
    const struct str bots[] = {str_of(a), str_of(b)};
    const struct grant_person p = {STR("telegram"), str_of(user), bots,
                                   (a != NULL) + (size_t)(b != NULL)};

    (remove ? grant_unlink : grant_link)(r->f.facts, who, &p, on_done, r);
    facts_rig_turn(&r->f);
    return r->err;
}

static enum bh_err new_code(struct rig *r, const char *a, const char *b,
                            char ret[LINK_CODE_LEN + 1])
{
    const struct str bots[] = {str_of(a), str_of(b)};
    const struct link_for what = {STR("telegram"), bots, (a != NULL) + (size_t)(b != NULL)};
    struct buf code = BUF_INIT;
    int64_t until_ms;

    link_code_new(r->f.facts, EVIL, &what, &code, &until_ms, on_done, r);
    facts_rig_turn(&r->f);
    snprintf(ret, LINK_CODE_LEN + 1, "%s", buf_z(&code));
    buf_done(&code);
    return r->err;
}

static enum bh_err redeem(struct rig *r, const char *bot, const char *user, const char *code)
{
    const struct link_sent sent = {STR("telegram"), str_of(bot), str_of(user), str_of(code)};

    link_code_redeem(r->f.facts, &sent, on_done, r);
    facts_rig_turn(&r->f);
    return r->err;
}

/* ---- links ---- */

static void a_link_counts_on_the_bot_that_its_code_was_sent_to(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];

    assert_int_equal(new_code(r, NULL, NULL, code), BH_OK);
    assert_int_equal(redeem(r, "evilbot", "ann", code), BH_OK);
    for (int start = 0; start < 2; start++) {
        assert_true(has_person(r, EVIL, "evilbot", "ann"));
        assert_false(has_person(r, EVIL, "bankbot", "ann"));
        assert_false(has_person(r, EVIL, "", "ann"));
        assert_false(has_person(r, BANK, "evilbot", "ann"));
        facts_rig_reopen(&r->f);
    }
    assert_int_equal(new_code(r, NULL, NULL, code), BH_OK); /* the second bot joins the first */
    assert_int_equal(redeem(r, "third", "ann", code), BH_OK);
    assert_true(has_person(r, EVIL, "third", "ann") && has_person(r, EVIL, "evilbot", "ann"));
    assert_false(has_person(r, EVIL, "bankbot", "ann"));
}

static void a_code_for_bots_works_on_these_only_and_counts_on_all_of_them(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];

    assert_int_equal(new_code(r, "one", "two", code), BH_OK);
    assert_int_equal(redeem(r, "three", "ann", code), BH_NOT_FOUND);
    facts_rig_reopen(&r->f); /* the code's bots are on disk */
    assert_int_equal(redeem(r, "three", "ann", code), BH_NOT_FOUND);
    assert_int_equal(redeem(r, "two", "ann", code), BH_OK);
    assert_true(has_person(r, EVIL, "one", "ann") && has_person(r, EVIL, "two", "ann"));
    assert_false(has_person(r, EVIL, "three", "ann"));
}

static void the_operator_links_on_several_bots_or_on_all(void **state)
{
    struct rig *r = *state;

    assert_int_equal(change(r, EVIL, false, "ann", NULL, NULL), BH_MALFORMED); /* on which? */
    assert_int_equal(change(r, EVIL, false, "ann", "one", "two"), BH_OK);
    assert_int_equal(change(r, EVIL, false, "bob", "*", NULL), BH_OK);
    assert_true(has_person(r, EVIL, "two", "ann") && has_person(r, EVIL, "any", "bob"));
    assert_int_equal(change(r, EVIL, true, "ann", "three", NULL), BH_NOT_FOUND);
    assert_int_equal(change(r, EVIL, true, "ann", "two", NULL), BH_OK);
    assert_int_equal(change(r, EVIL, true, "bob", "two", NULL), BH_MALFORMED); /* it has all */
    facts_rig_reopen(&r->f);
    assert_true(has_person(r, EVIL, "one", "ann") && has_person(r, EVIL, "two", "bob"));
    assert_false(has_person(r, EVIL, "two", "ann"));
    assert_int_equal(change(r, EVIL, true, "ann", "one", NULL), BH_OK); /* its last */
    assert_int_equal(change(r, EVIL, true, "ann", NULL, NULL), BH_NOT_FOUND);
    assert_int_equal(change(r, EVIL, true, "bob", NULL, NULL), BH_OK);
    assert_false(has_person(r, EVIL, "two", "bob"));
}

static void the_bots_of_a_link_are_bounded(void **state)
{
    struct rig *r = *state;
    char name[16];

    for (int i = 0; i < LINK_BOTS_MAX; i++) {
        snprintf(name, sizeof name, "bot-%d", i);
        assert_int_equal(change(r, EVIL, false, "ann", name, NULL), BH_OK);
    }
    assert_int_equal(change(r, EVIL, false, "ann", "more", NULL), BH_MALFORMED);
    assert_int_equal(change(r, EVIL, false, "ann", "bot-0", NULL), BH_OK);
    assert_true(has_person(r, EVIL, "bot-15", "ann") && !has_person(r, EVIL, "more", "ann"));
    assert_int_equal(change(r, EVIL, false, "ann", "*", NULL), BH_OK);
    assert_true(has_person(r, EVIL, "more", "ann"));
}

/* ---- bots and menus ---- */

static void a_pair_asserted_while_provisioning_gives_neither_bot_nor_menu(void **state)
{
    struct rig *r = *state;

    for (int start = 0; start < 2; start++) {
        assert_true(identity_has(facts_gateway(r->f.facts, STR("e")), STR("telegram"),
                                 STR("bankbot"))); /* it names the bot all the same */
        assert_false(has_bot(r, EVIL, "bankbot") || has_menu(r, EVIL, "telegram", "bankbot"));
        assert_true(has_bot(r, BANK, "bankbot") && has_menu(r, BANK, "telegram", "bankbot"));
        facts_rig_reopen(&r->f);
    }
    assert_int_equal(change(r, EVIL, false, "ann", "bankbot", NULL), BH_OK);
    assert_false(has_menu(r, EVIL, "telegram", "bankbot")); /* one person speaks for one person */
}

static void a_gateway_added_for_several_bots_has_exactly_these(void **state)
{
    struct rig *r = *state;
    const struct grant_who both = {STR("bank"), STR("both")};
    const struct gateway_for bots[] = {{STR("telegram"), STR("one"), false},
                                       {STR("telegram"), STR("two"), false},
                                       {STR("discord"), STR("app"), false}};
    struct str platform, bot;

    assert_int_equal(add(r, both, bots, ARRAY_LEN(bots)), BH_OK);
    for (int start = 0; start < 3; start++) {
        assert_true(has_menu(r, both, "telegram", "one") && has_menu(r, both, "telegram", "two"));
        assert_true(has_menu(r, both, "discord", "app") && has_bot(r, both, "two"));
        assert_false(has_menu(r, both, "telegram", "bankbot") || has_bot(r, both, "bankbot"));
        if (start == 0) {
            assert_true(identity_nth(facts_gateway(r->f.facts, STR("both")), 0, &platform, &bot));
            assert_str(bot, "one"); /* the first one named */
            facts_rig_reopen(&r->f);
        } else { /* what it asserts later neither adds nor removes one */
            provision(r, both, "bankbot");
        }
    }
}

static void an_operators_route_of_the_bot_gives_it_to_a_gateway_that_named_it(void **state)
{
    struct rig *r = *state;
    const struct route_spec route = {.platform = STR("telegram"),
                                     .key = STR("bankbot"),
                                     .tenant = EVIL.tenant,
                                     .instance = EVIL.instance,
                                     .open = true};

    facts_route_add(r->f.facts, &route, on_done, r);
    facts_rig_turn(&r->f);
    assert_int_equal(r->err, BH_OK);
    assert_true(has_bot(r, EVIL, "bankbot") && has_menu(r, EVIL, "telegram", "bankbot"));
    facts_route_remove(r->f.facts, &route, on_done, r);
    facts_rig_turn(&r->f);
    assert_false(has_bot(r, EVIL, "bankbot") || has_menu(r, EVIL, "telegram", "bankbot"));
}

/* ---- a tenant's own bot ---- */

static void belongs(struct rig *r, const char *bot, const char *tenant)
{
    rights_bot_belongs(r->f.facts, STR("telegram"), str_of(bot), str_of(tenant));
}

static void nothing_gives_an_instance_the_own_bot_of_another_tenant(void **state)
{
    struct rig *r = *state;
    struct right_at at = on(EVIL, "bankbot");
    const struct grant_place place = {STR("telegram"), STR("g"), STR("c")};
    const struct route_spec whole = {.platform = STR("telegram"),
                                     .key = STR("bankbot"),
                                     .tenant = EVIL.tenant,
                                     .open = true},
                            chat = {.platform = STR("telegram"),
                                    .key = STR("chat-7"),
                                    .tenant = EVIL.tenant,
                                    .open = true};

    assert_int_equal(change(r, EVIL, false, "ann", "bankbot", NULL), BH_OK);
    assert_int_equal(change(r, EVIL, false, "bob", "*", NULL), BH_OK);
    grant_scope_claim(r->f.facts, EVIL, place, GRANT_OPERATOR, on_done, r);
    facts_route_add(r->f.facts, &whole, on_done, r);
    facts_route_add(r->f.facts, &chat, on_done, r);
    facts_rig_turn(&r->f);
    for (int barred = 0; barred < 3; barred++) {
        if (barred > 0)
            belongs(r, "bankbot", barred == 1 ? "bank" : NULL);
        bool has = barred != 1;
        assert_int_equal(rights_may_use(r->f.facts, &at), has);
        assert_int_equal(has_person(r, EVIL, "bankbot", "ann"), has);
        assert_int_equal(has_person(r, EVIL, "bankbot", "bob"), has);
        assert_int_equal(right_by_scope(r->f.facts, &at, STR("g"), STR("c")), has);
        assert_int_equal(right_by_route(r->f.facts, &at, STR("chat-7"), STR_NULL), has);
        assert_int_equal(right_by_key(r->f.facts, &at, STR("chat-7")), has);
        assert_int_equal(has_bot(r, EVIL, "bankbot"), has);
        assert_int_equal(has_menu(r, EVIL, "telegram", "bankbot"), has);
        assert_true(has_bot(r, BANK, "bankbot") && has_menu(r, BANK, "telegram", "bankbot"));
        assert_true(has_person(r, EVIL, "other", "bob")); /* elsewhere it stands */
    }
}

static void nobody_is_given_the_own_bot_of_another_tenant(void **state)
{
    struct rig *r = *state;
    const struct gateway_for bot = {STR("telegram"), STR("bankbot"), false};
    const struct route_spec route = {.platform = STR("telegram"),
                                     .key = STR("bankbot"),
                                     .tenant = EVIL.tenant,
                                     .open = true};
    char code[LINK_CODE_LEN + 1];

    belongs(r, "bankbot", "bank");
    assert_int_equal(change(r, EVIL, false, "ann", "bankbot", NULL), BH_REFUSED);
    assert_non_null(strstr(r->why, "belongs to another tenant"));
    assert_int_equal(new_code(r, "bankbot", NULL, code), BH_REFUSED);
    assert_int_equal(new_code(r, NULL, NULL, code), BH_OK);
    assert_int_equal(redeem(r, "bankbot", "ann", code), BH_NOT_FOUND); /* as if there were none */
    assert_int_equal(redeem(r, "evilbot", "ann", code), BH_OK);        /* and it is not used up */
    assert_int_equal(add(r, (struct grant_who){EVIL.tenant, STR("new")}, &bot, 1), BH_REFUSED);
    facts_route_add(r->f.facts, &route, on_done, r);
    facts_rig_turn(&r->f);
    assert_int_equal(r->err, BH_REFUSED);
    provision(r, (struct grant_who){EVIL.tenant, STR("squatter")}, "bankbot");
    assert_null(
        facts_find_route(r->f.facts, STR("telegram"), STR("chat-9"), EVIL.tenant, STR("squatter")));
}

static void its_own_bot_is_given_to_every_gateway_of_the_tenant_that_names_it(void **state)
{
    struct rig *r = *state;
    const struct grant_who late = {STR("bank"), STR("late")};

    provision(r, late, "second");
    assert_false(has_bot(r, late, "second") || has_menu(r, late, "telegram", "second"));
    belongs(r, "second", "bank");
    assert_true(has_bot(r, late, "second") && has_menu(r, late, "telegram", "second"));
    assert_false(has_menu(r, BANK, "telegram", "second")); /* it was added for another bot */
    assert_str(rights_tenant_of(r->f.facts, STR("telegram"), STR("second")), "bank");
}

UNIT(tenancy_test_rights)
{
    const struct CMUnitTest tests[] = {
#define PROMISE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        PROMISE(a_link_counts_on_the_bot_that_its_code_was_sent_to),
        PROMISE(a_code_for_bots_works_on_these_only_and_counts_on_all_of_them),
        PROMISE(the_operator_links_on_several_bots_or_on_all),
        PROMISE(the_bots_of_a_link_are_bounded),
        PROMISE(a_pair_asserted_while_provisioning_gives_neither_bot_nor_menu),
        PROMISE(a_gateway_added_for_several_bots_has_exactly_these),
        PROMISE(an_operators_route_of_the_bot_gives_it_to_a_gateway_that_named_it),
        PROMISE(nothing_gives_an_instance_the_own_bot_of_another_tenant),
        PROMISE(nobody_is_given_the_own_bot_of_another_tenant),
        PROMISE(its_own_bot_is_given_to_every_gateway_of_the_tenant_that_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
