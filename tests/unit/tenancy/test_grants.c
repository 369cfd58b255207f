/* Promises of tenancy/grants.h. */
#include "unit.h"
#include "facts_rig.h"
#include "base/buf.h"
#include "base/jw.h"
#include "base/mem.h"
#include "tenancy/grants.h"

struct rig {
    struct facts_rig f;
};

struct answer { /* of one change */
    int calls;
    enum bh_err err;
    char why[200];
};

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct answer *a = ctx;
    a->calls++;
    a->err = err;
    snprintf(a->why, sizeof a->why, "%s", why != NULL ? why : "");
}

static void add_gateway(struct rig *r, const char *id, const char *tenant, const char *instance)
{
    struct buf ret_id = BUF_INIT, secret = BUF_INIT;
    struct answer a = {0};
    facts_gateway_add(r->f.facts,
                      &(struct gateway_spec){.id = str_of(id),
                                             .tenant = str_of(tenant),
                                             .instance = str_of(instance)},
                      &ret_id, &secret, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.err, BH_OK);
    buf_done(&ret_id);
    buf_done(&secret);
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);
    facts_rig_open(&r->f);
    add_gateway(r, "gw-x", "acme", "x");
    add_gateway(r, "gw-y", "acme", "y");
    add_gateway(r, "gw-z", "zorg", "x"); /* the same name, another tenant */
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

static const struct grant_who X = {{"acme", 4}, {"x", 1}}, Y = {{"acme", 4}, {"y", 1}},
                              Z = {{"zorg", 4}, {"x", 1}};
static const struct grant_place CHANNEL = {{"discord", 7}, {"g1", 2}, {"c1", 2}},
                                GUILD = {{"discord", 7}, {"g1", 2}, {"*", 1}};

static enum bh_err claim(struct rig *r, struct grant_who who, struct grant_place at)
{
    struct answer a = {0};
    grant_scope_claim(r->f.facts, who, at, GRANT_CLAIMED, on_done, &a);
    assert_int_equal(a.calls, 0);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    return a.err;
}

static enum bh_err release(struct rig *r, struct grant_who who, struct grant_place at)
{
    struct answer a = {0};
    grant_scope_release(r->f.facts, who, at, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    return a.err;
}

static const struct str EVERY = {"*", 1};

static enum bh_err link_person(struct rig *r, struct grant_who who, const char *user)
{
    struct answer a = {0};
    grant_link(r->f.facts, who, &(struct grant_person){STR("discord"), str_of(user), &EVERY, 1},
               on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    return a.err;
}

static enum bh_err choose(struct rig *r, struct grant_who who, const char *user)
{
    struct answer a = {0};
    grant_dm_default(r->f.facts, who, STR("discord"), str_of(user), on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    return a.err;
}

/* Who would receive a message of @user in c1: "x", "y", "" nobody. */
static const char *receiver(struct rig *r, const char *user, bool direct)
{
    static char name[64];
    struct gate_verdict v[GATE_CANDIDATES];
    struct gate_world w = {0};
    struct event ev = {.platform = STR("discord"),
                       .bot = STR("b"),
                       .route_key = direct ? STR("dm:u") : STR("g1"),
                       .scope_id = direct ? STR_NULL : STR("g1"),
                       .chat_id = STR("c1"),
                       .chat_type = direct ? STR("dm") : STR("group"),
                       .user_id = str_of(user)};
    size_t n = gate_decide(facts_gate(r->f.facts), &w, &ev, v);
    name[0] = '\0';
    for (size_t i = 0; i < n; i++)
        if (gate_is_yes(v[i].reason)) {
            assert_string_equal(name, "");
            snprintf(name, sizeof name, "%.*s/%.*s", STR_FMT(v[i].to->tenant),
                     STR_FMT(v[i].to->instance));
        }
    return name;
}

static bool holds(struct rig *r, struct grant_who who, struct grant_place at)
{
    return grant_holds(r->f.facts, grant_instance(r->f.facts, who), at);
}

static void a_place_belongs_to_one_instance(void **state)
{
    struct rig *r = *state;
    assert_int_equal(claim(r, X, CHANNEL), BH_OK);
    assert_int_equal(claim(r, Y, CHANNEL), BH_CONFLICT);
    assert_int_equal(claim(r, Z, CHANNEL), BH_CONFLICT);
    assert_int_equal(claim(r, X, CHANNEL), BH_OK); /* again is fine */
    assert_true(holds(r, X, CHANNEL) && !holds(r, Y, CHANNEL));
    assert_int_equal(claim(r, Y, GUILD), BH_OK); /* the guild is another place */
    assert_false(holds(r, Y, CHANNEL));
}

static enum bh_err claim_by(struct rig *r, struct grant_who who, struct grant_place at,
                            enum grant_word by)
{
    struct answer a = {0};
    grant_scope_claim(r->f.facts, who, at, by, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    return a.err;
}

static void the_operator_or_whoever_may_manage_the_place_displaces_a_squatter(void **state)
{
    struct rig *r = *state;
    assert_int_equal(claim(r, Z, CHANNEL), BH_OK); /* anybody may squat */
    assert_int_equal(claim_by(r, X, CHANNEL, GRANT_MANAGED), BH_OK);
    assert_true(holds(r, X, CHANNEL) && !holds(r, Z, CHANNEL));
    assert_int_equal(claim(r, Z, CHANNEL), BH_CONFLICT);
    assert_int_equal(claim_by(r, Z, CHANNEL, GRANT_MANAGED), BH_CONFLICT); /* as good a word */
    assert_int_equal(release(r, Z, CHANNEL), BH_NOT_FOUND);
    assert_int_equal(claim_by(r, Y, CHANNEL, GRANT_OPERATOR), BH_OK);
    assert_int_equal(claim_by(r, Z, CHANNEL, GRANT_OPERATOR), BH_CONFLICT); /* release it first */
    facts_rig_reopen(&r->f);
    assert_true(holds(r, Y, CHANNEL) && !holds(r, X, CHANNEL) && !holds(r, Z, CHANNEL));
    assert_int_equal(claim_by(r, X, CHANNEL, GRANT_MANAGED), BH_CONFLICT);
}

static void a_better_word_for_the_same_holder_is_kept(void **state)
{
    struct rig *r = *state;
    assert_int_equal(claim(r, X, CHANNEL), BH_OK);
    assert_int_equal(claim_by(r, X, CHANNEL, GRANT_OPERATOR), BH_OK);
    assert_int_equal(claim(r, X, CHANNEL), BH_OK); /* a lesser one changes nothing */
    facts_rig_reopen(&r->f);
    assert_int_equal(claim_by(r, Z, CHANNEL, GRANT_MANAGED), BH_CONFLICT);
    assert_int_equal(release(r, X, CHANNEL), BH_OK);
}

static enum bh_err claim_nth(struct rig *r, struct grant_who who, int n, enum grant_word by)
{
    char id[16];
    snprintf(id, sizeof id, "c%d", n);
    const struct grant_place at = {STR("discord"), STR("g2"), str_of(id)};
    return claim_by(r, who, at, by);
}

static void claims_are_bounded_per_instance_and_per_tenant(void **state)
{
    struct rig *r = *state;
    char id[16];
    int n = 0;
    for (; n < GRANT_SCOPES_MAX; n++)
        assert_int_equal(claim_nth(r, X, n, GRANT_CLAIMED), BH_OK);
    assert_int_equal(claim_nth(r, X, n, GRANT_CLAIMED), BH_BUSY);
    assert_int_equal(claim_nth(r, X, n, GRANT_MANAGED), BH_BUSY);
    assert_int_equal(claim_nth(r, X, n, GRANT_OPERATOR), BH_OK); /* the operator's do not count */
    assert_int_equal(claim_nth(r, X, 0, GRANT_CLAIMED), BH_OK);  /* its own */
    facts_rig_reopen(&r->f);
    assert_int_equal(claim_nth(r, X, n + 1, GRANT_CLAIMED), BH_BUSY);
    const struct grant_place first = {STR("discord"), STR("g2"), STR("c0")};
    assert_int_equal(release(r, X, first), BH_OK);
    assert_int_equal(claim_nth(r, X, ++n, GRANT_CLAIMED), BH_OK);
    for (int k = 1; k < GRANT_TENANT_SCOPES_MAX / GRANT_SCOPES_MAX; k++) {
        snprintf(id, sizeof id, "many%d", k);
        add_gateway(r, id, "acme", id);
        for (int i = 0; i < GRANT_SCOPES_MAX; i++)
            assert_int_equal(claim_nth(r, (struct grant_who){STR("acme"), str_of(id)}, ++n,
                                       GRANT_CLAIMED),
                             BH_OK);
    }
    assert_int_equal(claim_nth(r, Y, ++n, GRANT_CLAIMED), BH_BUSY); /* of the same tenant */
    assert_int_equal(claim_nth(r, Z, ++n, GRANT_CLAIMED), BH_OK);   /* of another */
}

static void route_guild(struct rig *r, const char *tenant, bool add)
{
    const struct route_spec spec = {.platform = STR("discord"),
                                    .key = STR("g1"),
                                    .tenant = str_of(tenant)};
    struct answer a = {0};
    (add ? facts_route_add : facts_route_remove)(r->f.facts, &spec, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.err, BH_OK);
}

static void a_claim_counts_for_nothing_where_an_operator_routed_the_place_to_another(void **state)
{
    struct rig *r = *state;
    assert_int_equal(claim(r, Z, CHANNEL), BH_OK);
    assert_true(holds(r, Z, CHANNEL));
    route_guild(r, "acme", true);
    assert_false(holds(r, Z, CHANNEL));
    const struct grant_place other = {STR("discord"), STR("g1"), STR("c2")};
    assert_int_equal(claim(r, Z, other), BH_CONFLICT);
    assert_int_equal(claim_by(r, Z, other, GRANT_MANAGED), BH_CONFLICT);
    assert_int_equal(claim(r, X, other), BH_OK);
    assert_true(holds(r, X, other));
    assert_int_equal(claim_by(r, Z, GUILD, GRANT_OPERATOR), BH_OK); /* the operator may say so */
    assert_true(holds(r, Z, GUILD));
    route_guild(r, "zorg", true); /* shared by both */
    assert_true(holds(r, Z, CHANNEL) && holds(r, X, other));
}

static void a_claimed_channel_takes_nothing_from_a_granted_guild(void **state)
{
    struct rig *r = *state;
    const struct grant_place other = {STR("discord"), STR("g1"), STR("c2")};
    assert_int_equal(claim(r, Z, CHANNEL), BH_OK); /* before the operator's grant */
    assert_int_equal(claim_by(r, X, GUILD, GRANT_OPERATOR), BH_OK);
    assert_int_equal(claim(r, Z, other), BH_CONFLICT);
    assert_true(holds(r, X, CHANNEL) && holds(r, X, other));
    assert_false(holds(r, Z, CHANNEL));
    assert_int_equal(claim_by(r, Z, other, GRANT_OPERATOR), BH_OK);
    assert_true(holds(r, Z, other));
}

static void of_two_claims_at_once_one_wins(void **state)
{
    struct rig *r = *state;
    struct answer a = {0}, b = {0};
    grant_scope_claim(r->f.facts, X, CHANNEL, GRANT_CLAIMED, on_done, &a);
    grant_scope_claim(r->f.facts, Z, CHANNEL, GRANT_CLAIMED, on_done, &b);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls + b.calls, 2);
    assert_int_equal((a.err == BH_OK) + (b.err == BH_OK), 1);
    assert_int_equal((a.err == BH_CONFLICT) + (b.err == BH_CONFLICT), 1);
    assert_int_equal(holds(r, X, CHANNEL) + holds(r, Z, CHANNEL), 1);
}

static void a_place_is_released_by_its_holder_only_and_others_learn_nothing(void **state)
{
    struct rig *r = *state;
    assert_int_equal(release(r, Y, CHANNEL), BH_NOT_FOUND);
    claim(r, X, CHANNEL);
    assert_int_equal(release(r, Y, CHANNEL), BH_NOT_FOUND); /* the same as when nobody has it */
    assert_int_equal(release(r, X, CHANNEL), BH_OK);
    assert_int_equal(claim(r, Y, CHANNEL), BH_OK);
}

static void ids_that_could_be_read_two_ways_are_refused(void **state)
{
    struct rig *r = *state;
    struct grant_place at = CHANNEL;
    at.guild = STR("g\x1f"
                   "c1");
    assert_int_equal(claim(r, X, at), BH_MALFORMED);
    at.guild = STR("");
    assert_int_equal(claim(r, X, at), BH_MALFORMED);
    at.guild = STR("g\xff");
    assert_int_equal(claim(r, X, at), BH_MALFORMED);
    assert_int_equal(link_person(r, X, "a\nb"), BH_MALFORMED);
}

static void names_that_differ_by_case_or_separator_are_different(void **state)
{
    struct rig *r = *state;
    struct grant_place lower = {STR("discord"), STR("ga"), STR("b")},
                       upper = {STR("discord"), STR("gA"), STR("b")},
                       other = {STR("discord"), STR("g"), STR("ab")};
    assert_int_equal(claim(r, X, lower), BH_OK);
    assert_int_equal(claim(r, Y, upper), BH_OK);
    assert_int_equal(claim(r, Z, other), BH_OK);
    assert_true(holds(r, X, lower) && holds(r, Y, upper) && holds(r, Z, other));
}

static void an_instance_that_does_not_exist_or_was_revoked_gets_nothing(void **state)
{
    struct rig *r = *state;
    struct answer a = {0};
    assert_int_equal(claim(r, (struct grant_who){STR("acme"), STR("nobody")}, CHANNEL),
                     BH_NOT_FOUND);
    assert_int_equal(claim(r, (struct grant_who){STR("zorg"), STR("y")}, CHANNEL), BH_NOT_FOUND);
    facts_gateway_revoke(r->f.facts, STR("gw-y"), on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(claim(r, Y, CHANNEL), BH_NOT_FOUND);
}

static void a_linked_person_reaches_their_own_instance(void **state)
{
    struct rig *r = *state;
    assert_string_equal(receiver(r, "ann", false), "");
    assert_int_equal(link_person(r, X, "ann"), BH_OK);
    assert_int_equal(link_person(r, X, "ann"), BH_OK); /* again is fine */
    assert_string_equal(receiver(r, "ann", false), "acme/x");
    assert_string_equal(receiver(r, "Ann", false), "");
    struct answer a = {0};
    grant_unlink(r->f.facts, Y, &(struct grant_person){STR("discord"), STR("ann")}, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.err, BH_NOT_FOUND);
    grant_unlink(r->f.facts, X, &(struct grant_person){STR("discord"), STR("ann")}, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.err, BH_OK);
    assert_string_equal(receiver(r, "ann", false), "");
}

static void a_person_with_several_instances_chooses_and_only_among_their_own(void **state)
{
    struct rig *r = *state;
    link_person(r, X, "ann");
    facts_rig_pass(&r->f, 10);
    link_person(r, Y, "ann");
    assert_string_equal(receiver(r, "ann", true), "acme/x");
    assert_int_equal(choose(r, Y, "ann"), BH_OK);
    assert_string_equal(receiver(r, "ann", true), "acme/y");
    assert_int_equal(choose(r, Z, "ann"), BH_NOT_FOUND);
    assert_string_equal(receiver(r, "ann", true), "acme/y");
    facts_rig_reopen(&r->f);
    assert_string_equal(receiver(r, "ann", true), "acme/y");
    struct answer a = {0}; /* unlinking takes the choice with it */
    grant_unlink(r->f.facts, Y, &(struct grant_person){STR("discord"), STR("ann")}, on_done, &a);
    facts_rig_turn(&r->f);
    assert_string_equal(receiver(r, "ann", true), "acme/x");
    link_person(r, Y, "ann");
    assert_string_equal(receiver(r, "ann", true), "acme/x");
}

static void the_oldest_link_comes_first_after_a_restart_too(void **state)
{
    struct rig *r = *state;
    link_person(r, Y, "ann");
    facts_rig_pass(&r->f, 10);
    link_person(r, X, "ann"); /* its record comes first by name */
    facts_rig_reopen(&r->f);
    assert_string_equal(receiver(r, "ann", true), "acme/y");
}

static enum bh_err set_principal(struct rig *r, struct grant_who who, enum gate_principal mode,
                                 const char *allowed)
{
    struct answer a = {0};
    struct str one = str_of(allowed);
    grant_principal(r->f.facts, who, STR_NULL, mode, &one, allowed != NULL ? 1 : 0, on_done, &a);
    facts_rig_turn(&r->f);
    return a.err;
}

static void everything_granted_survives_a_restart(void **state)
{
    struct rig *r = *state;
    struct answer a = {0};
    const struct str free_places[] = {STR("c1"), STR("c2")};
    link_person(r, X, "olga");
    claim(r, X, CHANNEL);
    assert_int_equal(set_principal(r, X, GATE_ALLOW_LIST, "ann"), BH_OK);
    const struct grant_policy policy = {.platform = STR("discord"),
                                        .require_address = true,
                                        .free_places = free_places,
                                        .n_free_places = 2};
    grant_policy(r->f.facts, X, &policy, on_done, &a);
    grant_tenant_default(r->f.facts, STR("acme"), true, on_done, &a);
    facts_rig_turn(&r->f);
    facts_rig_reopen(&r->f);
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);
    jw_obj(&w);
    struct grants_page at = {0};
    assert_false(grants_write(r->f.facts, (struct grant_who){STR("acme"), STR_NULL}, &at, &w));
    jw_end_obj(&w);
    const char *text = buf_z(&out);
    assert_non_null(strstr(text, "\"userId\":\"olga\""));
    assert_non_null(strstr(text, "\"guildId\":\"g1\",\"channelId\":\"c1\""));
    assert_non_null(strstr(text, "\"mode\":\"allow-list\",\"allow\":[\"ann\"]"));
    assert_non_null(strstr(text, "\"requireAddress\":true,\"allowOtherBots\":false"));
    assert_non_null(strstr(text, "\"c1\""));
    assert_non_null(strstr(text, "{\"tenant\":\"acme\",\"requireAddress\":true}"));
    buf_done(&out);
    assert_true(grant_instance(r->f.facts, Y)->default_require_address);
    assert_false(grant_instance(r->f.facts, Z)->default_require_address);
    assert_true(holds(r, X, CHANNEL));
}

static void many_people_are_shown_in_pages_each_once(void **state)
{
    enum { PEOPLE = 1203 };
    struct rig *r = *state;
    struct grants_page at = {0};
    size_t pages = 0, shown = 0;
    bool more = true;

    for (int i = 0; i < PEOPLE; i++) {
        char user[16];
        snprintf(user, sizeof user, "u%d", i);
        grant_link(r->f.facts, i % 3 == 0 ? Y : X,
                   &(struct grant_person){STR("discord"), str_of(user), &EVERY, 1}, NULL, NULL);
    }
    for (int i = 0; i < PEOPLE; i++)
        facts_rig_turn(&r->f);
    for (; more; pages++) {
        struct buf out = BUF_INIT;
        struct jw w = jw_begin(&out);
        jw_obj(&w);
        more = grants_write(r->f.facts, (struct grant_who){0}, &at, &w);
        jw_end_obj(&w);
        for (const char *p = buf_z(&out); (p = strstr(p, "\"userId\"")) != NULL; p++)
            shown++;
        assert_true(out.n < 100000);
        buf_done(&out);
    }
    assert_int_equal(shown, PEOPLE);
    assert_int_equal(pages, 3);
}

static void a_declaration_replaces_the_one_before(void **state)
{
    struct rig *r = *state;
    const struct gate_instance *x = grant_instance(r->f.facts, X);
    struct answer a = {0};
    const struct str free_place = STR("c1");
    struct grant_policy policy = {.platform = STR("discord"),
                                  .require_address = true,
                                  .free_places = &free_place,
                                  .n_free_places = 1};
    grant_policy(r->f.facts, X, &policy, on_done, &a);
    facts_rig_turn(&r->f);
    const struct gate_rule *p = map_get(&x->policies, STR("discord"));
    assert_true(p->require_address && map_count(&p->ids) == 1);
    policy = (struct grant_policy){.platform = STR("discord"), .allow_other_bots = true};
    grant_policy(r->f.facts, X, &policy, on_done, &a);
    facts_rig_turn(&r->f);
    p = map_get(&x->policies, STR("discord"));
    assert_true(!p->require_address && p->allow_other_bots && map_count(&p->ids) == 0);
    assert_null(map_get(&grant_instance(r->f.facts, Z)->policies, STR("discord")));
}

static void a_deprovisioned_instance_leaves_nothing_and_its_places_are_free(void **state)
{
    struct rig *r = *state;
    struct answer a = {0};
    link_person(r, X, "ann");
    choose(r, X, "ann");
    claim(r, X, CHANNEL);
    set_principal(r, X, GATE_ANY, NULL);
    grant_deprovision(r->f.facts, X, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.err, BH_OK);
    assert_true(facts_gateway(r->f.facts, STR("gw-x"))->revoked_ms != 0);
    assert_string_equal(receiver(r, "ann", true), "");
    assert_int_equal(claim(r, Y, CHANNEL), BH_OK);
    facts_rig_reopen(&r->f);
    add_gateway(r, "gw-x", "acme", "x"); /* the id comes back, without what it had */
    assert_string_equal(receiver(r, "ann", true), "");
    assert_true(holds(r, Y, CHANNEL));
    assert_int_equal(map_count(&grant_instance(r->f.facts, X)->principals), 0);
    a = (struct answer){0};
    grant_deprovision(r->f.facts, (struct grant_who){STR("acme"), STR("nobody")}, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.err, BH_NOT_FOUND);
}

static void deprovisioning_waits_for_a_change_of_a_gateway_and_outlives_it(void **state)
{
    struct rig *r = *state;
    struct answer rotated = {0}, ended = {0}, again = {0}, late = {0};
    struct buf secret = BUF_INIT;
    facts_gateway_rotate(r->f.facts, STR("gw-x"), 1000, &secret, on_done, &rotated);
    grant_deprovision(r->f.facts, X, on_done, &ended);
    grant_deprovision(r->f.facts, X, on_done, &again);
    facts_gateway_rotate(r->f.facts, STR("gw-x"), 1000, &secret, on_done, &late);
    facts_rig_turn(&r->f);
    assert_int_equal(rotated.calls + ended.calls + again.calls + late.calls, 4);
    assert_int_equal(ended.err, BH_OK);
    assert_int_equal(again.err, BH_OK);
    assert_int_equal(grant_instance(r->f.facts, X)->life,
                     1); /* once, however often it is asked for */
    facts_rig_reopen(&r->f);
    assert_true(facts_gateway(r->f.facts, STR("gw-x"))->revoked_ms != 0);
    assert_int_equal(facts_gateway(r->f.facts, STR("gw-x"))->n_secrets, 0);
    assert_int_equal(grant_instance(r->f.facts, X)->life, 1);
    add_gateway(r, "gw-x", "acme", "x");
    assert_int_equal(grant_instance(r->f.facts, X)->life, 1); /* of whoever holds the name now */
    buf_done(&secret);
}

static void a_damaged_restriction_stops_the_start(void **state)
{
    struct rig *r = *state;
    char why[256] = "";
    struct store_kv item = {KV_PUT, "principal", STR("acme\x1fx\x1f*"), STR("{\"mode\":\"al\"}")};
    store_put(r->f.store, &item, 1, true, NULL, NULL);
    facts_rig_turn(&r->f);
    assert_int_equal(facts_rig_try(&r->f, why), BH_REFUSED);
    assert_non_null(strstr(why, "principal"));
    item = (struct store_kv){KV_DELETE, "principal", STR("acme\x1fx\x1f*"), STR_NULL};
    store_put(r->f.store, &item, 1, true, NULL, NULL);
    facts_rig_turn(&r->f);
    facts_rig_reopen(&r->f);
}

/* ---- link codes ---- */

static enum bh_err new_code(struct rig *r, struct grant_who who, const char *platform,
                            char ret_code[LINK_CODE_LEN + 1])
{
    struct buf code = BUF_INIT;
    struct answer a = {0};
    int64_t until_ms;
    link_code_new(r->f.facts, who, &(struct link_for){.platform = str_of(platform)}, &code,
                  &until_ms, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    if (a.err == BH_OK)
        snprintf(ret_code, LINK_CODE_LEN + 1, "%s", buf_z(&code));
    buf_done(&code);
    return a.err;
}

static enum bh_err redeem(struct rig *r, const char *user, const char *code)
{
    struct answer a = {0};
    link_code_redeem(r->f.facts,
                     &(struct link_sent){STR("discord"), STR("b"), str_of(user), str_of(code)},
                     on_done, &a);
    assert_int_equal(a.calls, 0);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls, 1);
    return a.err;
}

static void a_code_links_whoever_sends_it_once(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];
    assert_int_equal(new_code(r, X, NULL, code), BH_OK);
    assert_int_equal(strlen(code), LINK_CODE_LEN);
    assert_int_equal(redeem(r, "ann", code), BH_OK);
    assert_string_equal(receiver(r, "ann", true), "acme/x");
    assert_int_equal(redeem(r, "bob", code), BH_NOT_FOUND);
    assert_string_equal(receiver(r, "bob", true), "");
}

static void a_code_may_be_typed_in_either_case_and_with_dashes(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1], typed[32];
    new_code(r, X, NULL, code);
    for (size_t i = 0; i < LINK_CODE_LEN; i++)
        if (code[i] >= 'A')
            code[i] = (char)(code[i] | 32);
    snprintf(typed, sizeof typed, "%.4s-%s", code, code + 4);
    assert_int_equal(redeem(r, "ann", typed), BH_OK);
}

static void of_two_who_send_a_code_at_once_one_is_linked(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];
    struct answer a = {0}, b = {0};
    new_code(r, X, NULL, code);
    link_code_redeem(r->f.facts,
                     &(struct link_sent){STR("discord"), STR("b"), STR("ann"), str_of(code)},
                     on_done, &a);
    link_code_redeem(r->f.facts,
                     &(struct link_sent){STR("discord"), STR("b"), STR("bob"), str_of(code)},
                     on_done, &b);
    facts_rig_turn(&r->f);
    assert_int_equal(a.calls + b.calls, 2);
    assert_int_equal((a.err == BH_OK) + (b.err == BH_OK), 1);
    assert_int_equal((*receiver(r, "ann", true) != '\0') + (*receiver(r, "bob", true) != '\0'), 1);
}

static void a_code_expires_and_is_for_its_platform(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];
    new_code(r, X, "telegram", code);
    assert_int_equal(redeem(r, "ann", code), BH_NOT_FOUND);
    new_code(r, X, "discord", code);
    facts_rig_pass(&r->f, LINK_CODE_MS);
    assert_int_equal(redeem(r, "ann", code), BH_NOT_FOUND);
}

static void a_code_survives_a_restart_and_lies_in_the_store_as_a_fingerprint(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];
    new_code(r, X, NULL, code);
    struct store_scan scan = {.ns = "link_code", .limit = 10};
    store_scan(r->f.store, &scan);
    facts_rig_turn(&r->f);
    assert_int_equal(scan.n_records, 1);
    assert_false(str_contains(scan.records[0].key, str_of(code)) ||
                 str_contains(scan.records[0].value, str_of(code)));
    store_scan_free(&scan);
    facts_rig_reopen(&r->f);
    assert_int_equal(redeem(r, "ann", code), BH_OK);
    facts_rig_reopen(&r->f);
    assert_string_equal(receiver(r, "ann", true), "acme/x");
    assert_int_equal(redeem(r, "bob", code), BH_NOT_FOUND);
}

static void guessing_codes_is_stopped_and_forgiven_after_an_hour(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];
    for (int i = 0; i < LINK_TRIES; i++)
        assert_int_equal(redeem(r, "eve", "AAAA2222"), BH_NOT_FOUND);
    new_code(r, X, NULL, code);
    assert_int_equal(redeem(r, "eve", code), BH_BUSY);
    assert_int_equal(redeem(r, "ann", code), BH_OK); /* others are not held back */
    facts_rig_pass(&r->f, LINK_TRIES_MS);
    new_code(r, X, NULL, code);
    assert_int_equal(redeem(r, "eve", code), BH_OK);
}

static void only_so_many_codes_are_out_at_a_time(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];
    for (int i = 0; i < LINK_CODES_MAX; i++)
        assert_int_equal(new_code(r, X, NULL, code), BH_OK);
    assert_int_equal(new_code(r, X, NULL, code), BH_BUSY);
    assert_int_equal(new_code(r, Y, NULL, code), BH_OK);
    facts_rig_pass(&r->f, LINK_CODE_MS);
    assert_int_equal(new_code(r, X, NULL, code), BH_OK);
}

static void a_code_of_a_deprovisioned_instance_is_worth_nothing(void **state)
{
    struct rig *r = *state;
    char code[LINK_CODE_LEN + 1];
    struct answer a = {0};
    new_code(r, X, NULL, code);
    grant_deprovision(r->f.facts, X, on_done, &a);
    facts_rig_turn(&r->f);
    assert_int_equal(redeem(r, "ann", code), BH_NOT_FOUND);
}

static void made_up_platforms_have_no_rules_without_end(void **state)
{
    struct rig *r = *state;
    char platform[16];

    for (int i = 0; i <= GRANT_RULES_MAX; i++) {
        struct answer a = {0}, b = {0};
        snprintf(platform, sizeof platform, "p%d", i);
        grant_principal(r->f.facts, X, str_of(platform), GATE_ANY, NULL, 0, on_done, &a);
        grant_policy(r->f.facts, X, &(struct grant_policy){.platform = str_of(platform)}, on_done,
                     &b);
        facts_rig_turn(&r->f);
        assert_int_equal(a.err, i < GRANT_RULES_MAX ? BH_OK : BH_BUSY);
        assert_int_equal(b.err, i < GRANT_RULES_MAX ? BH_OK : BH_BUSY);
    }
    struct answer again = {0}, other = {0};
    grant_principal(r->f.facts, X, STR("p0"), GATE_OWNER_ONLY, NULL, 0, on_done, &again);
    grant_principal(r->f.facts, Y, STR("p99"), GATE_ANY, NULL, 0, on_done, &other);
    facts_rig_turn(&r->f);
    assert_int_equal(again.err, BH_OK);
    assert_int_equal(other.err, BH_OK);
}

#define PROMISE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(tenancy_test_grants)
{
    const struct CMUnitTest tests[] = {
        PROMISE(a_place_belongs_to_one_instance),
        PROMISE(a_claimed_channel_takes_nothing_from_a_granted_guild),
        PROMISE(of_two_claims_at_once_one_wins),
        PROMISE(the_operator_or_whoever_may_manage_the_place_displaces_a_squatter),
        PROMISE(a_better_word_for_the_same_holder_is_kept),
        PROMISE(claims_are_bounded_per_instance_and_per_tenant),
        PROMISE(a_claim_counts_for_nothing_where_an_operator_routed_the_place_to_another),
        PROMISE(a_place_is_released_by_its_holder_only_and_others_learn_nothing),
        PROMISE(ids_that_could_be_read_two_ways_are_refused),
        PROMISE(names_that_differ_by_case_or_separator_are_different),
        PROMISE(an_instance_that_does_not_exist_or_was_revoked_gets_nothing),
        PROMISE(a_linked_person_reaches_their_own_instance),
        PROMISE(a_person_with_several_instances_chooses_and_only_among_their_own),
        PROMISE(the_oldest_link_comes_first_after_a_restart_too),
        PROMISE(everything_granted_survives_a_restart),
        PROMISE(many_people_are_shown_in_pages_each_once),
        PROMISE(a_declaration_replaces_the_one_before),
        PROMISE(made_up_platforms_have_no_rules_without_end),
        PROMISE(a_deprovisioned_instance_leaves_nothing_and_its_places_are_free),
        PROMISE(deprovisioning_waits_for_a_change_of_a_gateway_and_outlives_it),
        PROMISE(a_damaged_restriction_stops_the_start),
        PROMISE(a_code_links_whoever_sends_it_once),
        PROMISE(a_code_may_be_typed_in_either_case_and_with_dashes),
        PROMISE(of_two_who_send_a_code_at_once_one_is_linked),
        PROMISE(a_code_expires_and_is_for_its_platform),
        PROMISE(a_code_survives_a_restart_and_lies_in_the_store_as_a_fingerprint),
        PROMISE(guessing_codes_is_stopped_and_forgiven_after_an_hour),
        PROMISE(only_so_many_codes_are_out_at_a_time),
        PROMISE(a_code_of_a_deprovisioned_instance_is_worth_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
