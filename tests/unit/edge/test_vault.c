/* Promises of edge/vault.h. */
#include "unit.h"
#include "facts_rig.h"
#include "base/mem.h"
#include "edge/vault.h"

#define LIFE_MS 900000
#define KIND STR("discord.interaction_token")
#define TOKEN "aW50ZXJhY3Rpb24-the-planted-token"

struct rig {
    struct facts_rig f;
    struct vault *vault;
    struct vault_tenants tenants;
    struct buf id, secret, plain;
};

static struct str of_gateway(void *ctx, struct str id)
{
    struct rig *r = ctx;
    const struct gateway *g = facts_gateway(r->f.facts, id);

    return g != NULL ? str_of(g->tenant) : STR_NULL;
}

static bool has_gateway(void *ctx, struct str tenant)
{
    return facts_tenant_is_live(((struct rig *)ctx)->f.facts, tenant);
}

static void open_vault(struct rig *r)
{
    char why[256];
    struct vault_env env = {r->f.clock, r->f.store, r->f.seal, r->f.observers, &r->tenants};

    r->tenants = (struct vault_tenants){of_gateway, has_gateway, r};

    assert_int_equal(vault_open(&env, &r->vault, why), BH_OK);
}

static void add_gateway(struct rig *r, const char *id, const char *tenant)
{
    buf_reset(&r->id);
    buf_reset(&r->secret);
    facts_gateway_add(r->f.facts,
                      &(struct gateway_spec){.id = str_of(id), .tenant = str_of(tenant)}, &r->id,
                      &r->secret, NULL, NULL);
    facts_rig_turn(&r->f);
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);
    facts_rig_open(&r->f);
    add_gateway(r, "ga", "a");
    add_gateway(r, "gb", "b");
    open_vault(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    facts_rig_close_store(&r->f);
    vault_free(r->vault);
    facts_rig_done(&r->f);
    buf_done(&r->id);
    buf_done(&r->secret);
    buf_done(&r->plain);
    free(r);
    return 0;
}

static struct vault_spec spec(const char *tenant, const char *id)
{
    return (struct vault_spec){.tenant = str_of(tenant),
                               .instance = STR("i1"),
                               .session_keys = {STR("relay-key"), STR("discord-key")},
                               .kind = KIND,
                               .bot = STR("app"),
                               .chat = STR("7"),
                               .scope = STR("8"),
                               .id = str_of(id),
                               .place = STR("chan"),
                               .user = STR("42"),
                               .value = STR(TOKEN),
                               .ttl_ms = LIFE_MS};
}

static void bind(struct rig *r, const char *tenant, const char *id)
{
    struct vault_spec s = spec(tenant, id);

    vault_bind(r->vault, &s);
    facts_rig_turn(&r->f);
}

static bool take(struct rig *r, const char *tenant, const char *key, struct vault_ref *ref,
                 bool *first)
{
    const struct vault_user who = {str_of(tenant), STR("i1"), STR("app"), KIND};

    return vault_take(r->vault, &who, str_of(key), ref, first);
}

static bool take_place(struct rig *r, const char *instance, const char *user, struct vault_ref *ref)
{
    const struct vault_user who = {STR("a"), str_of(instance), STR("app"), KIND};

    return vault_take_place(r->vault, &who, STR("chan"), str_of(user), ref);
}

static void an_entry_is_found_under_both_its_keys(void **state)
{
    struct rig *r = *state;
    struct vault_ref ref;
    bool first = false;

    bind(r, "a", "1");
    assert_true(take(r, "a", "discord-key", &ref, &first));
    assert_true(first);
    assert_true(vault_open_value(r->vault, ref, &r->plain));
    assert_str(buf_str(&r->plain), TOKEN);
    vault_used(r->vault, ref);
    assert_true(take(r, "a", "relay-key", &ref, &first));
    assert_false(first);
}

static void absent_expired_and_foreign_look_the_same(void **state)
{
    struct rig *r = *state;
    struct vault_ref ref;
    bool first;

    bind(r, "a", "1");
    assert_false(take(r, "b", "relay-key", &ref, &first));
    assert_false(take(r, "a", "another-key", &ref, &first));
    const struct vault_user others[] = {{STR("a"), STR("i1"), STR("app"), STR("discord.other")},
                                        {STR("a"), STR("i2"), STR("app"), KIND},
                                        {STR("a"), STR("i1"), STR("another"), KIND}};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_false(vault_take(r->vault, &others[i], STR("relay-key"), &ref, &first));
        assert_false(vault_take_place(r->vault, &others[i], STR("chan"), STR("42"), &ref));
    }
    facts_rig_pass(&r->f, LIFE_MS);
    assert_false(take(r, "a", "relay-key", &ref, &first));
}

static void an_entry_that_expires_while_it_is_taken_does_not_open(void **state)
{
    struct rig *r = *state;
    struct vault_ref ref;
    bool first;

    bind(r, "a", "1");
    facts_rig_pass(&r->f, LIFE_MS - 1);
    assert_true(take(r, "a", "relay-key", &ref, &first));
    facts_rig_pass(&r->f, 1);
    assert_false(vault_open_value(r->vault, ref, &r->plain));
    facts_rig_pass(&r->f, 10000);
    assert_int_equal(vault_count(r->vault), 0);
    vault_used(r->vault, ref); /* harmless */
}

static void a_fresh_entry_belongs_to_one_at_a_time(void **state)
{
    struct rig *r = *state;
    struct vault_ref one, two;
    bool first;

    bind(r, "a", "1");
    assert_true(take_place(r, "i1", NULL, &one));
    assert_false(take_place(r, "i1", NULL, &two));
    assert_true(take(r, "a", "relay-key", &two, &first));
    assert_false(first);
    vault_give_back(r->vault, one);
    assert_true(take_place(r, "i1", NULL, &two));
    vault_used(r->vault, two);
    assert_false(take_place(r, "i1", NULL, &two));
}

static void a_place_answers_the_oldest_first_and_the_named_person_before(void **state)
{
    struct rig *r = *state;
    struct vault_spec s = spec("a", "2");
    struct vault_ref first, second, third;

    bind(r, "a", "1");
    s.user = STR("43");
    vault_bind(r->vault, &s);
    bind(r, "a", "3");
    assert_true(take_place(r, "i1", "43", &second));
    assert_true(take_place(r, "i1", "77", &first));
    assert_true(take_place(r, "i1", "42", &third));
    assert_true(first.id.index < second.id.index && second.id.index < third.id.index);
}

static void only_an_instance_that_received_it_may_use_it_by_place(void **state)
{
    struct rig *r = *state;
    struct vault_spec s = spec("a", "1");
    struct vault_ref ref;

    bind(r, "a", "1");
    assert_false(take_place(r, "i2", NULL, &ref));
    assert_false(take_place(r, "", NULL, &ref));
    s.instance = STR("i2");
    vault_bind(r->vault, &s);
    assert_int_equal(vault_count(r->vault), 1);
    assert_true(take_place(r, "i2", NULL, &ref));
    assert_false(take_place(r, "i1", NULL, &ref)); /* one token, whoever is first */
}

static void binding_the_same_again_does_not_make_it_fresh(void **state)
{
    struct rig *r = *state;
    struct vault_ref ref;

    bind(r, "a", "1");
    assert_true(take_place(r, "i1", NULL, &ref));
    vault_used(r->vault, ref);
    bind(r, "a", "1");
    assert_false(take_place(r, "i1", NULL, &ref));
}

static void entries_survive_a_restart_with_what_was_used(void **state)
{
    struct rig *r = *state;
    struct vault_ref ref;
    bool first;

    bind(r, "a", "1");
    bind(r, "a", "2");
    assert_true(take_place(r, "i1", NULL, &ref));
    vault_used(r->vault, ref);
    facts_rig_turn(&r->f);
    vault_free(r->vault);
    open_vault(r);
    assert_int_equal(vault_count(r->vault), 2);
    assert_true(take_place(r, "i1", "42", &ref));
    assert_true(vault_open_value(r->vault, ref, &r->plain));
    assert_str(buf_str(&r->plain), TOKEN);
    assert_true(take(r, "a", "discord-key", &ref, &first));
    assert_false(first);
}

static void what_expired_while_nobody_ran_is_gone(void **state)
{
    struct rig *r = *state;

    bind(r, "a", "1");
    vault_free(r->vault);
    facts_rig_pass(&r->f, LIFE_MS + 1);
    open_vault(r);
    assert_int_equal(vault_count(r->vault), 0);
}

static void count_record(void *ctx, struct str key, struct str value)
{
    struct buf *all = ctx;

    buf_add_str(all, key);
    buf_add_str(all, value);
}

static void the_store_never_holds_the_value(void **state)
{
    struct rig *r = *state;
    struct buf all = BUF_INIT;

    bind(r, "a", "1");
    assert_int_equal(r->f.store->ops->load_records(r->f.store, "vault", STR(""), count_record,
                                                   &all),
                     BH_OK);
    assert_true(all.n > 0);
    assert_false(str_contains(buf_str(&all), STR(TOKEN)));
    assert_false(str_contains(buf_str(&all), STR("planted")));
    buf_done(&all);
}

static void a_revocation_wipes_the_tenant_and_nobody_else(void **state)
{
    struct rig *r = *state;
    struct vault_ref ref;
    struct buf all = BUF_INIT;
    bool first;

    bind(r, "a", "1");
    bind(r, "b", "2");
    facts_gateway_revoke(r->f.facts, STR("ga"), NULL, NULL);
    facts_rig_turn(&r->f);
    assert_false(take(r, "a", "relay-key", &ref, &first));
    assert_true(take(r, "b", "relay-key", &ref, &first));
    facts_rig_turn(&r->f);
    assert_int_equal(r->f.store->ops->load_records(r->f.store, "vault", STR(""), count_record,
                                                   &all),
                     BH_OK);
    assert_true(str_contains(buf_str(&all), STR("\"tenant\":\"b\"")));
    assert_false(str_contains(buf_str(&all), STR("\"tenant\":\"a\"")));
    buf_done(&all);
}

static void a_revocation_that_was_missed_counts_at_the_next_start(void **state)
{
    struct rig *r = *state;

    bind(r, "a", "1");
    bind(r, "b", "2");
    vault_free(r->vault);           /* the observers keep a dead listener: nothing is told until */
    observers_free(r->f.observers); /* it is replaced */
    r->f.observers = observers_new(r->f.clock);
    facts_rig_reopen(&r->f);
    facts_gateway_revoke(r->f.facts, STR("gb"), NULL, NULL);
    facts_rig_turn(&r->f);
    open_vault(r);
    assert_int_equal(vault_count(r->vault), 1);
}

static void a_record_under_another_tenants_name_does_not_open(void **state)
{
    struct rig *r = *state;
    struct buf all = BUF_INIT, key = BUF_INIT;
    struct vault_ref ref;
    bool first;

    bind(r, "a", "1");
    assert_int_equal(r->f.store->ops->load_records(r->f.store, "vault", STR(""), count_record,
                                                   &all),
                     BH_OK);
    struct str value = str_skip(buf_str(&all), (size_t)str_find(buf_str(&all), '{'));
    buf_add_str(&key, STR("b\x1f"
                          "discord.interaction_token\x1f"
                          "1"));
    char *forged = str_dup(value), *at = strstr(forged, "\"tenant\":\"a\"");
    at[10] = 'b';
    store_put(r->f.store,
              &(struct store_kv){
                  .verb = KV_PUT, .ns = "vault", .key = buf_str(&key), .value = str_of(forged)},
              1, true, NULL, NULL);
    facts_rig_turn(&r->f);
    vault_free(r->vault);
    open_vault(r);
    assert_true(take(r, "b", "relay-key", &ref, &first));
    assert_false(vault_open_value(r->vault, ref, &r->plain));
    free(forged);
    buf_done(&all);
    buf_done(&key);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(edge_test_vault)
{
    const struct CMUnitTest tests[] = {
        T(an_entry_is_found_under_both_its_keys),
        T(absent_expired_and_foreign_look_the_same),
        T(an_entry_that_expires_while_it_is_taken_does_not_open),
        T(a_fresh_entry_belongs_to_one_at_a_time),
        T(a_place_answers_the_oldest_first_and_the_named_person_before),
        T(only_an_instance_that_received_it_may_use_it_by_place),
        T(binding_the_same_again_does_not_make_it_fresh),
        T(entries_survive_a_restart_with_what_was_used),
        T(what_expired_while_nobody_ran_is_gone),
        T(the_store_never_holds_the_value),
        T(a_revocation_wipes_the_tenant_and_nobody_else),
        T(a_revocation_that_was_missed_counts_at_the_next_start),
        T(a_record_under_another_tenants_name_does_not_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
