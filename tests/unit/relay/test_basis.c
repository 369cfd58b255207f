/* Promises of relay/out/guard.h: the right to speak ends with what gave it, and a
 * hello grants nothing. */
#include "relay/asking.h"
#include "relay/out/guard.h"
#include "tenancy/enroll.h"
#include "tenancy/rights.h"

static const struct grant_who ANN = {{"acme", 4}, {"ann", 3}}, BOB = {{"acme", 4}, {"bob", 3}};

static bool speaks_in(struct fake *f, const char *chat, const char *metadata, const char *beside)
{
    static int asked;
    struct buf action = BUF_INIT;
    char id[16];
    int before = (int)rig.acts;

    snprintf(id, sizeof id, "q%d", ++asked);
    buf_printf(&action, "\"op\":\"send\",\"chat_id\":\"%s\",\"content\":\"x\",\"metadata\":{%s}",
               chat, metadata);
    ask(f, id, buf_z(&action), beside);
    buf_done(&action);
    return (int)rig.acts != before;
}
static bool answers(struct fake *f)
{
    return speaks_in(f, "c1", "", "");
}

static void hear(struct event ev)
{
    static int n;
    char id[16];
    snprintf(id, sizeof id, "h%d", ++n);
    ev.event_id = ev.message_id = str_of(id);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}

static struct event from(const char *user)
{
    struct event ev = make_event("nowhere", "x");
    ev.user_id = str_of(user);
    return ev;
}

static struct fake *restarted(const char *gateway)
{
    restart();
    return connect_as(gateway);
}

static void link_them(struct grant_who who, const char *user, bool linked)
{
    if (linked)
        link_user(who, "web", user, "lobby");
    else
        unlink_user(who, "web", user);
}

static void unroute(const char *key, const char *instance)
{
    const struct route_spec gone = {.platform = STR("web"),
                                    .key = str_of(key),
                                    .tenant = STR("acme"),
                                    .instance = str_of(instance)};
    facts_route_remove(rig.facts, &gone, rig_changed_fact, NULL);
    turn();
}

static void the_right_to_speak_ends_when_the_route_moves(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    assert_true(answers(f));
    f = restarted("gw-a");
    assert_true(answers(f));
    unroute("a", "ann");
    assert_false(answers(f)); /* from the next action on */
    assert_true(result_says(f, results(f) - 1, ACTION_ERROR_NOT_ROUTED));
    f = restarted("gw-a");
    assert_false(answers(f));
    add_route("a", "bob");
    assert_false(answers(f));
    add_route("a", "ann");
    assert_true(answers(f));
}

static void a_narrower_route_to_somebody_else_ends_a_wider_one(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("guild-9", "x"); /* leads nowhere: the bot's route is chosen */
    add_route("lobby", "ann");
    hear(ev);
    assert_true(answers(f));
    add_route("guild-9", "bob");
    assert_false(answers(f));
    f = restarted("gw-a");
    assert_false(answers(f));
}

static void the_right_to_speak_ends_when_the_link_is_removed(void **state)
{
    struct fake *f = connect_as("gw-a");
    link_them(ANN, "u7", true);
    hear(from("u7"));
    assert_int_equal(inbound(f), 1);
    assert_true(answers(f));
    f = restarted("gw-a");
    assert_true(answers(f));
    link_them(ANN, "u7", false);
    assert_false(answers(f));
    f = restarted("gw-a");
    assert_false(answers(f));
    link_them(ANN, "u8", true); /* somebody else's link is no basis for this chat */
    assert_false(answers(f));
    link_them(ANN, "u7", true);
    assert_true(answers(f));
}

static enum gate_sight sight;
static enum gate_sight sees(const struct event *ev, struct str user)
{
    return str_eq(user, STR("u7")) ? sight : GATE_SIGHT_UNKNOWN;
}

static void the_right_to_speak_ends_when_the_scope_is_released(void **state)
{
    struct fake *f = connect_as("gw-a");
    const struct grant_place at = {STR("web"), STR("g1"), STR("parent")};
    struct event ev = from("stranger");
    rig.sees = sees;
    sight = GATE_SEEN;
    rig.web.knows_sight = true;
    ev.scope_id = STR("g1");
    ev.chat_type = STR("thread");
    ev.parent_chat_id = STR("parent");
    link_them(ANN, "u7", true);
    grant_scope_claim(rig.facts, ANN, at, GRANT_CLAIMED, rig_changed_fact, NULL);
    grant_principal(rig.facts, ANN, STR("web"), GATE_ANY, NULL, 0, rig_changed_fact, NULL);
    turn();
    hear(ev);
    assert_int_equal(inbound(f), 1);
    assert_true(answers(f));
    sight = GATE_UNSEEN; /* its people cannot see the place any more */
    assert_false(answers(f));
    sight = GATE_SEEN;
    f = restarted("gw-a");
    assert_true(answers(f));
    grant_scope_release(rig.facts, ANN, at, rig_changed_fact, NULL);
    turn();
    assert_false(answers(f));
    f = restarted("gw-a");
    assert_false(answers(f));
}

static void a_hello_grants_nothing(void **state)
{
    rig.web.alone = rig.telegram.alone = false; /* there are others of their platforms */
    add_gateway("gw-t", "tim", NULL, NULL, NULL);
    struct fake *tim = dial("gw-t");
    say(tim, "{\"type\":\"hello\",\"platform\":\"telegram\",\"botId\":\"tg\"}");
    link_user((struct grant_who){STR("acme"), STR("tim")}, "telegram", "u7", "another");
    const char *as_tg = ",\"platform\":\"telegram\",\"botId\":\"tg\"";
    assert_false(speaks_in(tim, "u7", "", as_tg)); /* the link counts on another bot */
    assert_false(speaks_in(tim, "u7", "", ""));
    add_gateway("gw-own", "owen", NULL, "telegram", "tg");
    struct fake *owen = dial("gw-own");
    say(owen, "{\"type\":\"hello\",\"platform\":\"telegram\",\"botId\":\"tg\"}");
    assert_false(speaks_in(owen, "u7", "", as_tg)); /* its bot, but nobody of its own */
    link_user((struct grant_who){STR("acme"), STR("owen")}, "telegram", "u7", "tg");
    assert_true(speaks_in(owen, "u7", "", as_tg));
}

static void a_chat_that_came_through_a_bot_is_answered_through_that_bot(void **state)
{
    const char *as_attic = ",\"platform\":\"web\",\"botId\":\"attic\"";
    const char *as_lobby = ",\"platform\":\"web\",\"botId\":\"lobby\"";
    rig.has_attic = true;
    struct fake *f = connect_as("gw-a");
    say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"attic\"}");
    add_route("attic", "ann"); /* both bots are its own */
    add_route("lobby", "ann");
    publish("a", "e1");
    assert_true(answers(f));
    assert_string_equal(rig.act_bot, "lobby");
    assert_true(speaks_in(f, "c1", "", as_lobby));
    assert_false(speaks_in(f, "c1", "", as_attic));
    struct event ev = make_event("a", "x"); /* the same person writes to the other bot too */
    ev.bot = STR("attic");
    hear(ev);
    for (int again = 0; again < 2; again++) {
        assert_true(speaks_in(f, "c1", "", as_attic));
        assert_string_equal(rig.act_bot, "attic");
        assert_true(speaks_in(f, "c1", "", as_lobby));
        assert_string_equal(rig.act_bot, "lobby");
        f = restarted("gw-a");
        say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"attic\"}");
    }
}

static void who_links_in_a_direct_chat_can_be_written_to_through_that_bot(void **state)
{
    struct buf code = BUF_INIT;
    int64_t expires;
    rig.has_attic = true;
    rig.web.alone = false;
    struct fake *f = connect_as("gw-b");
    link_code_new(rig.facts, BOB, &(struct link_for){.platform = STR("web")}, &code, &expires,
                  rig_changed_fact, NULL);
    turn();
    struct event ev = from("u7");
    struct buf text = BUF_INIT;
    buf_printf(&text, "/link %s", buf_z(&code));
    ev.text = buf_str(&text);
    ev.bot = STR("attic");
    ev.chat_id = STR("dm-7");
    hear(ev);
    int told = (int)rig.acts; /* "Linked." */
    assert_int_equal(told, 1);
    assert_true(speaks_in(f, "dm-7", "", ""));
    assert_string_equal(rig.act_bot, "attic");
    assert_false(speaks_in(f, "dm-8", "", ""));
    buf_done(&code);
    buf_done(&text);
}

/* ---- attacks: whose bot ---- */

/* A gateway of tenant evil comes by itself, and says that it is for acme's bot "tg". */
static struct fake *evil_arrives(void)
{
    struct provision_result result = {0};
    const struct provision_spec spec = {.tenant = STR("evil"),
                                        .gateway = STR("gw-e"),
                                        .platform = STR("telegram"),
                                        .bot = STR("tg")};

    rig.telegram.alone = false;
    facts_provision(rig.facts, &spec, NULL, &result, rig_changed_fact, NULL);
    turn();
    provision_result_done(&result);
    struct fake *f = dial("gw-e");
    say(f, "{\"type\":\"hello\",\"platform\":\"telegram\",\"botId\":\"tg\"}");
    return f;
}
static const struct grant_who EVIL = {{"evil", 4}, {"gw-e", 4}};

static void an_asserted_bot_does_not_reach_who_linked_through_another(void **state)
{
    const char *as_tg = ",\"platform\":\"telegram\",\"botId\":\"tg\"";
    struct fake *evil = evil_arrives();
    const struct route_spec chat = {.platform = STR("telegram"),
                                    .key = STR("c9"),
                                    .tenant = STR("evil")};

    link_user(EVIL, "telegram", "u7", "evilbot");
    assert_false(speaks_in(evil, "u7", "", as_tg));
    assert_false(speaks_in(evil, "u7", "", ""));
    facts_route_add(rig.facts, &chat, rig_changed_fact, NULL);
    turn();
    assert_false(speaks_in(evil, "c9", "", as_tg)); /* its chat, but nobody gave it the bot */
    link_user(EVIL, "telegram", "u7", "tg");
    assert_true(speaks_in(evil, "u7", "", as_tg)); /* the person did, for this person's chat */
    assert_false(speaks_in(evil, "c9", "", as_tg));
}

static void a_ground_on_one_bot_is_none_on_another_that_delivered_too(void **state)
{
    const char *as_attic = ",\"platform\":\"web\",\"botId\":\"attic\"";
    const char *as_lobby = ",\"platform\":\"web\",\"botId\":\"lobby\"";
    struct fake *f = connect_as("gw-a");
    struct event ev = from("u7");

    rig.has_attic = true;
    link_user(ANN, "web", "u7", NULL);
    hear(ev);
    ev.bot = STR("attic");
    hear(ev);
    assert_int_equal(inbound(f), 2);
    assert_true(speaks_in(f, "c1", "", as_attic) && speaks_in(f, "c1", "", as_lobby));
    unlink_user(ANN, "web", "u7");
    link_user(ANN, "web", "u7", "lobby");
    assert_false(speaks_in(f, "c1", "", as_attic));
    assert_false(speaks_in(f, "c1", "", "")); /* by default through the bot it came by last */
    assert_true(speaks_in(f, "c1", "", as_lobby));
    ev.bot = STR("attic");
    hear(ev);
    assert_int_equal(inbound(f), 2); /* nor is it delivered */
}

static void through_the_own_bot_of_another_tenant_nothing_is_said_or_heard(void **state)
{
    const char *as_tg = ",\"platform\":\"telegram\",\"botId\":\"tg\"";
    struct fake *evil = evil_arrives();
    struct event ev = from("u7");

    ev.platform = STR("telegram");
    ev.bot = STR("tg");
    link_user(EVIL, "telegram", "u7", NULL);
    hear(ev);
    assert_int_equal(inbound(evil), 1);
    assert_true(speaks_in(evil, "c1", "", as_tg) && speaks_in(evil, "u7", "", as_tg));
    rights_bot_belongs(rig.facts, STR("telegram"), STR("tg"), STR("acme"));
    assert_false(speaks_in(evil, "c1", "", as_tg)); /* delivered before: no longer */
    assert_false(speaks_in(evil, "u7", "", as_tg));
    hear(ev);
    assert_int_equal(inbound(evil), 1);
}

static void a_direct_chat_where_several_people_write_is_nobodys(void **state)
{
    struct buf now = BUF_INIT, before = BUF_INIT;
    struct event ev = from("u1");
    static const struct {
        const char *user;
        bool changes, is_of_u1;
    } steps[] = {{"u1", true, true},   {"u1", false, true},  {"u2", true, false},
                 {"u1", false, false}, {"u2", false, false}, {"c1", false, false}};

    ev.chat_type = STR("dm");
    ev.chat_id = STR("c1");
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        ev.user_id = str_of(steps[i].user);
        struct str was = i > 0 ? buf_str(&before) : STR_NULL;
        assert_int_equal(basis_of(&ev, false, ev.bot, was, &now), steps[i].changes);
        struct buf text = BUF_INIT;
        struct json_parser *json = json_parser_new();
        basis_write(&text, buf_str(&now));
        struct json doc;
        assert_true(json_parse(json, buf_str(&text), &doc));
        struct str who = basis_direct(doc);
        assert_int_equal(str_eq(who, STR("u1")), steps[i].is_of_u1);
        assert_true(steps[i].is_of_u1 || who.n == 0);
        json_parser_free(json);
        buf_done(&text);
        buf_reset(&before);
        buf_add_str(&before, buf_str(&now));
    }
    buf_done(&now);
    buf_done(&before);
}

static void a_basis_changes_with_each_of_its_texts(void **state)
{
    struct event ev = from("u1"), with[5];
    struct buf before = BUF_INIT, now = BUF_INIT;

    ev.chat_id = STR("c1");
    ev.chat_type = STR("group");
    for (size_t i = 0; i < ARRAY_LEN(with); i++)
        with[i] = ev;
    with[0].route_key = STR("another");
    with[1].former_key = STR("former");
    with[2].parent_chat_id = STR("parent");
    with[3].chat_type = STR("dm");
    with[4].bot = STR("attic");
    assert_true(basis_of(&ev, false, ev.bot, STR_NULL, &before));
    assert_false(basis_of(&ev, false, ev.bot, buf_str(&before), &now));
    assert_true(basis_of(&ev, true, ev.bot, buf_str(&before), &now)); /* its author is linked */
    assert_false(str_eq(buf_str(&now), buf_str(&before)));
    for (size_t i = 0; i < ARRAY_LEN(with); i++) {
        assert_true(basis_of(&with[i], false, ev.bot, buf_str(&before), &now));
        assert_false(str_eq(buf_str(&now), buf_str(&before)));
    }
    buf_done(&before);
    buf_done(&now);
}

UNIT(relay_test_basis)
{
    const struct CMUnitTest tests[] = {
        PROMISE(the_right_to_speak_ends_when_the_route_moves),
        PROMISE(a_narrower_route_to_somebody_else_ends_a_wider_one),
        PROMISE(the_right_to_speak_ends_when_the_link_is_removed),
        PROMISE(the_right_to_speak_ends_when_the_scope_is_released),
        PROMISE(a_hello_grants_nothing),
        PROMISE(a_basis_changes_with_each_of_its_texts),
        PROMISE(a_direct_chat_where_several_people_write_is_nobodys),
        PROMISE(a_chat_that_came_through_a_bot_is_answered_through_that_bot),
        PROMISE(who_links_in_a_direct_chat_can_be_written_to_through_that_bot),
        PROMISE(an_asserted_bot_does_not_reach_who_linked_through_another),
        PROMISE(a_ground_on_one_bot_is_none_on_another_that_delivered_too),
        PROMISE(through_the_own_bot_of_another_tenant_nothing_is_said_or_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
