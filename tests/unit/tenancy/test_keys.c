/* Promises of tenancy/keys.h. */
#include "unit.h"
#include "facts_rig.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "store/sqlite/sqlite.h"
#include "store/store.h"
#include "tenancy/enroll.h"
#include "tenancy/keys.h"

struct rig {
    struct facts_rig f;
    struct keys *keys;
    enum bh_err err;
    char why[256];
    int calls;
};

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct rig *r = ctx;
    r->calls++;
    r->err = err;
    snprintf(r->why, sizeof r->why, "%s", why != NULL ? why : "");
}

static void open_keys(struct rig *r)
{
    char why[256] = "";
    struct keys_env env = {.clock = r->f.clock,
                           .store = r->f.store,
                           .rand = &r->f.rand,
                           .seal = r->f.seal};
    assert_int_equal(keys_open(&env, &r->keys, why), BH_OK);
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);
    facts_rig_open(&r->f);
    open_keys(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    facts_rig_close_store(&r->f);
    keys_free(r->keys);
    facts_rig_done(&r->f);
    free(r);
    return 0;
}

static void restart(struct rig *r)
{
    keys_free(r->keys);
    open_keys(r);
}

/* The key's text; "" when refused. */
static const char *make(struct rig *r, const struct key_spec *spec, char ret_text[KEY_TEXT_MAX + 1],
                        char ret_id[KEY_ID_CHARS + 1])
{
    struct key_made made = {0};
    r->calls = 0;
    keys_make(r->keys, spec, &made, on_done, r);
    assert_int_equal(r->calls, 0);
    facts_rig_turn(&r->f);
    assert_int_equal(r->calls, 1);
    snprintf(ret_text, KEY_TEXT_MAX + 1, "%s", r->err == BH_OK ? buf_z(&made.text) : "");
    if (ret_id != NULL)
        snprintf(ret_id, KEY_ID_CHARS + 1, "%s", r->err == BH_OK ? buf_z(&made.id) : "");
    key_made_done(&made);
    return ret_text;
}

static enum bh_err revoke(struct rig *r, const char *id)
{
    r->calls = 0;
    keys_revoke(r->keys, str_of(id), on_done, r);
    assert_int_equal(r->calls, 0);
    facts_rig_turn(&r->f);
    assert_int_equal(r->calls, 1);
    return r->err;
}

static void a_key_opens_what_it_was_made_for_and_says_who_it_is(void **state)
{
    struct rig *r = *state;
    char text[KEY_TEXT_MAX + 1], id[KEY_ID_CHARS + 1];
    const struct key_spec spec = {.kind = KEY_AGENT,
                                  .tenant = STR("acme"),
                                  .identity = STR("reporter"),
                                  .agent = STR("a@b/c"),
                                  .instance = STR("bot-1"),
                                  .ns = STR("lab"),
                                  .attest = true};
    make(r, &spec, text, id);
    for (int again = 0; again < 2; again++) {
        const struct key *k = keys_check(r->keys, KEY_AGENT, str_of(text));
        assert_non_null(k);
        assert_string_equal(k->id, id);
        assert_string_equal(k->tenant, "acme");
        assert_string_equal(k->identity, "reporter");
        assert_string_equal(k->agent, "a@b/c");
        assert_string_equal(k->instance, "bot-1");
        assert_string_equal(k->ns, "lab");
        assert_true(k->attest);
        assert_null(k->secret);
        assert_int_equal(k->made_ms, NOW_MS);
        assert_null(keys_check(r->keys, KEY_HOOK, str_of(text)));
        assert_null(keys_check(r->keys, KEY_PROVISION, str_of(text)));
        restart(r);
    }
}

static void a_key_is_known_by_the_narrowest_thing_it_is_bound_to(void **state)
{
    struct rig *r = *state;
    char text[KEY_TEXT_MAX + 1];
    struct key_spec spec = {.kind = KEY_AGENT, .tenant = STR("acme")};
    make(r, &spec, text, NULL);
    assert_string_equal(keys_check(r->keys, KEY_AGENT, str_of(text))->identity, "acme");
    spec.instance = STR("bot");
    make(r, &spec, text, NULL);
    assert_string_equal(keys_check(r->keys, KEY_AGENT, str_of(text))->identity, "bot");
    spec.agent = STR("helper");
    make(r, &spec, text, NULL);
    assert_string_equal(keys_check(r->keys, KEY_AGENT, str_of(text))->identity, "helper");
    assert_null(keys_check(r->keys, KEY_AGENT, str_of(text))->ns);
}

static void any_changed_character_makes_it_a_stranger(void **state)
{
    struct rig *r = *state;
    char text[KEY_TEXT_MAX + 1], other[KEY_TEXT_MAX + 1], mixed[KEY_TEXT_MAX + 2];
    const struct key_spec spec = {.kind = KEY_AGENT, .tenant = STR("acme")};
    make(r, &spec, text, NULL);
    make(r, &spec, other, NULL);
    for (size_t i = 0; text[i] != '\0'; i++) {
        char was = text[i];
        text[i] = was == 'A' ? 'B' : 'A';
        assert_null(keys_check(r->keys, KEY_AGENT, str_of(text)));
        text[i] = was;
    }
    for (size_t n = 0; n < strlen(text); n++)
        assert_null(keys_check(r->keys, KEY_AGENT, str_make(text, n)));
    snprintf(mixed, sizeof mixed, "%.*s%s", 4 + KEY_ID_CHARS, text, other + 4 + KEY_ID_CHARS);
    assert_null(keys_check(r->keys, KEY_AGENT, str_of(mixed)));
    snprintf(mixed, sizeof mixed, "%sx", text);
    assert_null(keys_check(r->keys, KEY_AGENT, str_of(mixed)));
    assert_null(keys_check(r->keys, KEY_AGENT, STR_NULL));
    assert_non_null(keys_check(r->keys, KEY_AGENT, str_of(text)));
}

static void revoked_is_revoked_and_stays_so(void **state)
{
    struct rig *r = *state;
    char text[KEY_TEXT_MAX + 1], id[KEY_ID_CHARS + 1];
    const struct key_spec spec = {.kind = KEY_HOOK, .tenant = STR("acme")};
    const struct list *head;
    make(r, &spec, text, id);
    assert_non_null(keys_check(r->keys, KEY_HOOK, str_of(text)));
    assert_int_equal(revoke(r, id), BH_OK);
    assert_null(keys_check(r->keys, KEY_HOOK, str_of(text)));
    assert_int_equal(keys_all(r->keys, &head), 0);
    assert_int_equal(revoke(r, id), BH_NOT_FOUND);
    assert_int_equal(revoke(r, "nobody"), BH_NOT_FOUND);
    facts_rig_pass(&r->f, 120000); /* a note of its last use does not bring it back */
    restart(r);
    assert_null(keys_check(r->keys, KEY_HOOK, str_of(text)));
    assert_null(keys_find(r->keys, str_of(id)));
}

static void of_two_who_revoke_one_key_at_once_one_is_told_that_it_is_gone(void **state)
{
    struct rig *r = *state;
    char text[KEY_TEXT_MAX + 1], id[KEY_ID_CHARS + 1];
    const struct key_spec spec = {.kind = KEY_AGENT, .tenant = STR("acme")};
    make(r, &spec, text, id);
    r->calls = 0;
    keys_revoke(r->keys, str_of(id), on_done, r);
    keys_revoke(r->keys, str_of(id), on_done, r);
    facts_rig_turn(&r->f);
    assert_int_equal(r->calls, 2);
    assert_null(keys_find(r->keys, str_of(id)));
    assert_false(keys_is_good(r->keys, str_of(id)));
}

static void a_key_with_a_time_ends_with_it(void **state)
{
    struct rig *r = *state;
    char text[KEY_TEXT_MAX + 1], id[KEY_ID_CHARS + 1];
    const struct key_spec spec = {.kind = KEY_AGENT, .tenant = STR("acme"), .ttl_ms = 5000};
    make(r, &spec, text, id);
    facts_rig_pass(&r->f, 4999);
    assert_true(keys_is_good(r->keys, str_of(id)));
    assert_non_null(keys_check(r->keys, KEY_AGENT, str_of(text)));
    facts_rig_pass(&r->f, 1);
    assert_null(keys_check(r->keys, KEY_AGENT, str_of(text)));
    assert_false(keys_is_good(r->keys, str_of(id)));
}

static void when_it_was_used_is_known_now_and_about_right_after_a_restart(void **state)
{
    struct rig *r = *state;
    char text[KEY_TEXT_MAX + 1], id[KEY_ID_CHARS + 1];
    struct store_stats before, after;
    const struct key_spec spec = {.kind = KEY_AGENT, .tenant = STR("acme")};
    make(r, &spec, text, id);
    assert_int_equal(keys_find(r->keys, str_of(id))->used_ms, 0);
    facts_rig_pass(&r->f, 10);
    keys_check(r->keys, KEY_AGENT, str_of(text));
    assert_int_equal(keys_find(r->keys, str_of(id))->used_ms, NOW_MS + 10);
    facts_rig_pass(&r->f, 1000);
    restart(r);
    assert_int_equal(keys_find(r->keys, str_of(id))->used_ms, NOW_MS + 10);
    r->f.store->ops->stats(r->f.store, &before);
    for (int i = 0; i < 3000; i++) { /* five minutes of steady use */
        keys_check(r->keys, KEY_AGENT, str_of(text));
        facts_rig_pass(&r->f, 100);
    }
    r->f.store->ops->stats(r->f.store, &after);
    assert_in_range(after.ops - before.ops, 1, 6);
    assert_int_equal(keys_find(r->keys, str_of(id))->used_ms, NOW_MS + r->f.passed_ms - 100);
}

static void a_hook_keeps_a_secret_that_only_the_master_key_opens(void **state)
{
    struct rig *r = *state;
    struct key_made made = {0};
    const struct key_spec spec = {.kind = KEY_HOOK,
                                  .tenant = STR("acme"),
                                  .agent = STR("a"),
                                  .with_secret = true};
    keys_make(r->keys, &spec, &made, on_done, r);
    facts_rig_turn(&r->f);
    assert_int_equal(made.secret.n, 64);
    restart(r);
    const struct key *k = keys_check(r->keys, KEY_HOOK, buf_str(&made.text));
    assert_string_equal(k->secret, buf_z(&made.secret));

    struct seal *mine = r->f.seal, *other;
    char why[256] = "";
    assert_int_equal(seal_open_master(STR("another passphrase, longer"), STR("salt"), NULL, &other,
                                      why),
                     BH_OK);
    struct keys_env env = {.clock = r->f.clock,
                           .store = r->f.store,
                           .rand = &r->f.rand,
                           .seal = other};
    struct keys *none;
    assert_int_equal(keys_open(&env, &none, why), BH_REFUSED);
    assert_non_null(strstr(why, buf_z(&made.id)));
    seal_free(other);
    r->f.seal = mine;
    key_made_done(&made);
}

struct dump {
    struct str needle;
    bool found;
};
static void look(void *ctx, struct str key, struct str value)
{
    struct dump *d = ctx;
    d->found = d->found || str_contains(key, d->needle) || str_contains(value, d->needle);
}

static void the_store_never_has_the_secret_part(void **state)
{
    struct rig *r = *state;
    struct key_made made = {0};
    const struct key_spec spec = {.kind = KEY_HOOK, .tenant = STR("acme"), .with_secret = true};
    keys_make(r->keys, &spec, &made, on_done, r);
    facts_rig_turn(&r->f);
    struct dump d = {.needle = str_skip(buf_str(&made.text), 5 + KEY_ID_CHARS)};
    assert_int_equal(d.needle.n, 43);
    r->f.store->ops->load_records(r->f.store, "key", STR(""), look, &d);
    assert_false(d.found);
    d.needle = buf_str(&made.secret);
    r->f.store->ops->load_records(r->f.store, "key", STR(""), look, &d);
    assert_false(d.found);
    d.needle = STR("acme");
    r->f.store->ops->load_records(r->f.store, "key", STR(""), look, &d);
    assert_true(d.found);
    key_made_done(&made);
}

static void bad_names_are_refused_in_words(void **state)
{
    struct rig *r = *state;
    char text[KEY_TEXT_MAX + 1];
    const struct list *head;
    make(r, &(struct key_spec){.kind = KEY_AGENT}, text, NULL);
    assert_int_equal(r->err, BH_MALFORMED);
    make(r, &(struct key_spec){.kind = KEY_AGENT, .tenant = STR("a b")}, text, NULL);
    assert_int_equal(r->err, BH_MALFORMED);
    make(r, &(struct key_spec){.kind = KEY_AGENT, .tenant = STR("a"), .identity = STR("")}, text,
         NULL);
    assert_int_equal(r->err, BH_MALFORMED);
    assert_non_null(strstr(r->why, "identity"));
    assert_int_equal(keys_all(r->keys, &head), 0);
}

static void read_token(struct rig *r, struct json_parser *p, const struct buf *token,
                       struct local_token *ret)
{
    const char *why;
    assert_true(local_token_read(r->f.facts, buf_str(token), TOKEN_PROVISION, p, ret, &why));
}

static void a_provision_token_can_be_listed_and_revoked(void **state)
{
    struct rig *r = *state;
    struct json_parser *p = json_parser_new();
    struct local_token t = {.kind = TOKEN_PROVISION,
                            .tenant = STR("acme"),
                            .exp_ms = NOW_MS + 1000000};
    struct buf token = BUF_INIT;
    const struct list *head;
    char id[KEY_ID_CHARS + 1];
    local_token_mint(r->f.facts, &t, &token);
    read_token(r, p, &token, &t);
    keys_note_minted(r->keys, &t, on_done, r);
    facts_rig_turn(&r->f);
    assert_int_equal(r->err, BH_OK);
    assert_int_equal(keys_all(r->keys, &head), 1);
    snprintf(id, sizeof id, "%s", list_first(head, struct key, link)->id);
    assert_true(keys_admit(r->keys, &t));
    assert_int_equal(revoke(r, id), BH_OK);
    assert_int_equal(revoke(r, id), BH_NOT_FOUND);
    assert_false(keys_admit(r->keys, &t));
    restart(r); /* its signature is still good: the tombstone speaks */
    assert_false(keys_admit(r->keys, &t));
    facts_rig_pass(&r->f, 1000000);
    restart(r); /* and goes when nobody can show the token any more */
    assert_int_equal(keys_all(r->keys, &head), 0);
    buf_done(&token);
    json_parser_free(p);
}

static void a_token_without_a_record_enters_the_table_when_it_is_shown(void **state)
{
    struct rig *r = *state;
    struct json_parser *p = json_parser_new();
    struct local_token t = {.kind = TOKEN_PROVISION,
                            .tenant = STR("acme"),
                            .exp_ms = NOW_MS + 1000000};
    struct buf token = BUF_INIT;
    const struct list *head;
    local_token_mint(r->f.facts, &t, &token);
    read_token(r, p, &token, &t);
    assert_true(keys_admit(r->keys, &t));
    assert_true(keys_admit(r->keys, &t));
    facts_rig_turn(&r->f);
    restart(r);
    assert_int_equal(keys_all(r->keys, &head), 1);
    const struct key *k = list_first(head, struct key, link);
    assert_int_equal(k->made_ms, 0);
    assert_string_equal(k->tenant, "acme");
    assert_int_equal(revoke(r, k->id), BH_OK);
    assert_false(keys_admit(r->keys, &t));
    buf_done(&token);
    json_parser_free(p);
}

static void limits_count_per_key_and_per_tenant(void **state)
{
    struct rig *r = *state;
    char a[KEY_TEXT_MAX + 1], b[KEY_TEXT_MAX + 1], c[KEY_TEXT_MAX + 1];
    struct key_spec spec = {.kind = KEY_AGENT, .tenant = STR("acme")};
    make(r, &spec, a, NULL);
    make(r, &spec, b, NULL);
    spec.tenant = STR("other");
    make(r, &spec, c, NULL);
    const struct key *ka = keys_check(r->keys, KEY_AGENT, str_of(a));
    const struct key *kb = keys_check(r->keys, KEY_AGENT, str_of(b));
    const struct key *kc = keys_check(r->keys, KEY_AGENT, str_of(c));
    for (int i = 0; i < 20; i++)
        assert_true(keys_may_act(r->keys, ka, 10, 15));
    assert_false(keys_may_act(r->keys, ka, 10, 15)); /* its own */
    for (int i = 0; i < 10; i++)
        assert_true(keys_may_act(r->keys, kb, 10, 15));
    assert_false(keys_may_act(r->keys, kb, 10, 15)); /* the tenant's */
    assert_true(keys_may_act(r->keys, kc, 10, 15));  /* another's is another's */
    facts_rig_pass(&r->f, 1000);
    assert_true(keys_may_act(r->keys, ka, 10, 15));
    for (int i = 0; i < 1000; i++)
        assert_true(keys_may_act(r->keys, kc, 0, 0));
}

static void count_done(void *ctx, enum bh_err err, const char *why)
{
    int *n = ctx;
    assert_int_equal(err, BH_OK);
    (*n)++;
}

/* On the real store: the one in memory moves its records about. */
static void a_hundred_thousand_keys_cost_no_more_each_than_one(void **state)
{
    struct rig *r = *state;
    enum { MANY = 100000 };
    char dir[] = "/tmp/bellhop-keys-XXXXXX", path[64], why[256], clean[96];
    struct key_made *made = xcalloc(MANY, sizeof *made);
    const struct key_spec spec = {.kind = KEY_AGENT, .tenant = STR("acme")};
    struct loop *loop = loop_new();
    struct keys_env env = {.clock = loop_clock(loop), .rand = &r->f.rand, .seal = r->f.seal};
    struct keys *keys;
    const struct list *head;
    int n = 0;
    log_setup(LOG_ERROR, false);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/bellhop.db", dir);
    assert_int_equal(store_sqlite_open(loop, path, &env.store, why), BH_OK);
    assert_int_equal(keys_open(&env, &keys, why), BH_OK);
    for (int i = 0; i < MANY; i++)
        keys_make(keys, &spec, &made[i], count_done, &n);
    while (n < MANY)
        loop_turn(loop, 1000);
    keys_free(keys);
    assert_int_equal(keys_open(&env, &keys, why), BH_OK);
    assert_int_equal(keys_all(keys, &head), MANY);
    for (int i = 0; i < MANY; i++)
        assert_non_null(keys_check(keys, KEY_AGENT, buf_str(&made[i].text)));
    n = 0;
    for (int i = 0; i < MANY; i += 20)
        keys_revoke(keys, buf_str(&made[i].id), count_done, &n);
    while (n < MANY / 20)
        loop_turn(loop, 1000);
    assert_int_equal(keys_all(keys, &head), MANY - MANY / 20);
    store_close(env.store);
    keys_free(keys);
    loop_free(loop);
    for (int i = 0; i < MANY; i++)
        key_made_done(&made[i]);
    free(made);
    snprintf(clean, sizeof clean, "rm -r %s", dir);
    assert_int_equal(system(clean), 0);
}

#define PROMISE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(tenancy_test_keys)
{
    const struct CMUnitTest tests[] = {
        PROMISE(a_key_opens_what_it_was_made_for_and_says_who_it_is),
        PROMISE(a_key_is_known_by_the_narrowest_thing_it_is_bound_to),
        PROMISE(any_changed_character_makes_it_a_stranger),
        PROMISE(revoked_is_revoked_and_stays_so),
        PROMISE(of_two_who_revoke_one_key_at_once_one_is_told_that_it_is_gone),
        PROMISE(a_key_with_a_time_ends_with_it),
        PROMISE(when_it_was_used_is_known_now_and_about_right_after_a_restart),
        PROMISE(a_hook_keeps_a_secret_that_only_the_master_key_opens),
        PROMISE(the_store_never_has_the_secret_part),
        PROMISE(bad_names_are_refused_in_words),
        PROMISE(a_provision_token_can_be_listed_and_revoked),
        PROMISE(a_token_without_a_record_enters_the_table_when_it_is_shown),
        PROMISE(limits_count_per_key_and_per_tenant),
        PROMISE(a_hundred_thousand_keys_cost_no_more_each_than_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
