/* Promises of relay/in/judge.h and commands.h: who receives, why, and how a person is linked; and
 * what the egress guard makes of the same facts. */
#include "relay/rig.h"
#include "core/journal.h"
#include "relay/in/judge.h"
#include "tenancy/grants.h"

static const struct grant_who ANN = {{"acme", 4}, {"ann", 3}}, BOB = {{"acme", 4}, {"bob", 3}};

static void link_person(struct grant_who who, const char *user)
{
    link_user(who, "web", user, NULL);
}

static void take(const struct event *ev)
{
    relay_accept(rig.relay, ev, on_accepted, NULL);
    turn();
}

struct told {
    int n;
    char text[400];
};
static const char *sought;
static bool on_record(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    struct told *t = ctx;
    size_t n = strlen(t->text);
    struct journal_query q = {.platform = STR("web"), .message = str_of(sought)};
    if (rec->kind != JOURNAL_EVENT || !journal_matches(rec, &q))
        return true;
    t->n++;
    n += (size_t)snprintf(t->text + n, sizeof t->text - n,
                          "%.*s/%.*s%s%.*s:", STR_FMT(rec->platform), STR_FMT(rec->message_id),
                          rec->words.n > 0 ? " " : "", STR_FMT(rec->words));
    for (size_t i = 0; i < rec->n_verdicts; i++)
        n += (size_t)snprintf(t->text + n, sizeof t->text - n, " %.*s=%.*s",
                              STR_FMT(rec->verdicts[i].instance), STR_FMT(rec->verdicts[i].reason));
    return true;
}
static struct told why(const char *message_id)
{
    struct told t = {0};
    sought = message_id;
    journal_each(relay_journal(rig.relay), on_record, &t);
    return t;
}

static void why_tells_who_received_and_who_did_not(void **state)
{
    struct event ev = make_event("both", "e1");
    ev.message_id = STR("m1");
    link_person(ANN, "u7");
    ev.user_id = STR("u7");
    take(&ev);
    struct told t = why("m1");
    assert_int_equal(t.n, 1);
    assert_string_equal(t.text, "web/m1: ann=owner bob=author_first");
    assert_int_equal(why("m2").n, 0);
}

static void a_linked_author_reaches_their_own_instance_without_any_route(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    struct event ev = make_event("nowhere", "e1");
    link_person(BOB, "u7");
    ev.user_id = STR("u7");
    take(&ev);
    assert_int_equal(inbound(f), 0);
    assert_int_equal(inbound(g), 1);
}

static void a_change_takes_effect_for_the_next_event(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    grant_principal(rig.facts, ANN, STR_NULL, GATE_OWNER_ONLY, NULL, 0, rig_changed_fact, NULL);
    turn();
    publish("a", "e2");
    assert_int_equal(inbound(f), 1);
    assert_int_equal(relay_counters(rig.relay)->gated, 1);
    grant_principal(rig.facts, ANN, STR_NULL, GATE_ANY, NULL, 0, rig_changed_fact, NULL);
    turn();
    publish("a", "e3");
    assert_int_equal(inbound(f), 2);
}

static void what_is_not_for_a_sleeper_does_not_wake_it(void **state)
{
    struct fake *f = connect_as("gw-a");
    const struct grant_policy quiet = {.platform = STR("web"), .require_address = true};
    grant_policy(rig.facts, ANN, &quiet, rig_changed_fact, NULL);
    say(f, "{\"type\":\"going_idle\"}");
    turn();
    hang_up(f, 1000);
    struct event ev = make_event("a", "e1");
    ev.chat_type = STR("group");
    take(&ev);
    assert_int_equal(rig.pokes, 0);
    assert_int_equal(look("ann").entries, 0);
    ev.event_id = STR("e2");
    ev.mentions_bot = true;
    take(&ev);
    assert_int_equal(rig.pokes, 1);
    assert_int_equal(look("ann").entries, 1);
}

static void two_bots_do_not_answer_each_other_forever(void **state)
{
    connect_as("gw-a");
    const struct grant_policy bots_too = {.platform = STR("web"), .allow_other_bots = true};
    struct event ev = make_event("a", "e1");
    char id[16];
    grant_policy(rig.facts, ANN, &bots_too, rig_changed_fact, NULL);
    turn();
    ev.author_is_bot = true;
    for (int i = 0; i < GATE_BOT_STREAK + 5; i++) {
        snprintf(id, sizeof id, "bot%d", i);
        ev.event_id = str_of(id);
        take(&ev);
    }
    assert_int_equal(relay_counters(rig.relay)->accepted, GATE_BOT_STREAK);
    publish("a", "person"); /* a person speaks: it may begin again */
    ev.event_id = STR("again");
    take(&ev);
    assert_int_equal(relay_counters(rig.relay)->accepted, GATE_BOT_STREAK + 2);
}

/* ---- /link ---- */

static void new_code(struct grant_who who, struct buf *code)
{
    int64_t until_ms;
    link_code_new(rig.facts, who, &(struct link_for){0}, code, &until_ms, rig_changed_fact, NULL);
    turn();
}

static void say_link(const char *user, const char *event_id, const char *text)
{
    struct event ev = make_event("a", event_id);
    ev.user_id = str_of(user);
    ev.text = str_of(text);
    take(&ev);
}

static void a_link_message_is_consumed_answered_and_links(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    struct buf code = BUF_INIT, text = BUF_INIT;
    new_code(BOB, &code);
    buf_printf(&text, " /LINK  %s ", buf_z(&code));
    say_link("u7", "e1", buf_z(&text));
    assert_int_equal(inbound(f) + inbound(g), 0);
    assert_int_equal(rig.acts, 1); /* the person is told */
    assert_int_equal(rig.act_op, ACTION_SEND);
    assert_string_equal(rig.act_chat, "c1");
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(relay_counters(rig.relay)->linked, 1);
    say_link("u7", "e2", "hello");
    assert_int_equal(inbound(g), 1); /* author first, although the place is routed to ann */
    assert_int_equal(inbound(f), 0);
    say_link("u8", "e3", buf_z(&text)); /* used */
    assert_int_equal(rig.acts, 2);
    say_link("u8", "e4", "hello");
    assert_int_equal(inbound(f), 1);
    buf_done(&code);
    buf_done(&text);
}

static void a_wrong_code_or_none_is_answered_and_never_delivered(void **state)
{
    struct fake *f = connect_as("gw-a");
    say_link("u7", "e1", "/link");
    say_link("u7", "e2", "/link WRONG");
    say_link("u7", "e3", "/link@lobby WRONG234");
    assert_int_equal(inbound(f), 0);
    assert_int_equal(rig.acts, 3);
    say_link("u7", "e4", "/linkage is a word");
    say_link("u7", "e5", "/link my two accounts please");
    say_link("u7", "e6", "/link@other WRONG234");
    assert_int_equal(inbound(f), 3);
    assert_int_equal(rig.acts, 3);
}

/* ---- the egress guard on the same facts ---- */

static void send_to(struct fake *f, const char *id, const char *chat, const char *scope)
{
    struct buf b = BUF_INIT;
    buf_printf(&b,
               "{\"type\":\"outbound\",\"requestId\":\"%s\",\"action\":{\"op\":\"send\","
               "\"chat_id\":\"%s\",\"content\":\"x\",\"metadata\":{\"scope_id\":\"%s\"}}}",
               id, chat, scope);
    say(f, buf_z(&b));
    turn();
    buf_done(&b);
}

static void the_direct_chat_of_a_linked_person_may_be_written_to(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    link_person(ANN, "u7");
    send_to(f, "r1", "u7", "");
    assert_int_equal(rig.acts, 1);
    send_to(g, "r1", "u7", "");
    assert_int_equal(rig.acts, 1);
}

static enum gate_sight sight = GATE_SEEN;
static enum gate_sight fake_sees(const struct event *ev, struct str user)
{
    return str_eq(user, STR("u7")) && str_eq(ev->scope_id, STR("g1")) ? sight : GATE_SIGHT_UNKNOWN;
}

static void a_scope_lets_speak_where_the_owner_can_see_and_nowhere_else(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    rig.sees = fake_sees;
    rig.web.knows_sight = true;
    const struct grant_place at = {STR("web"), STR("g1"), STR("*")};
    grant_scope_claim(rig.facts, ANN, at, GRANT_CLAIMED, rig_changed_fact, NULL);
    turn();
    send_to(f, "r1", "c5", "g1"); /* nobody is linked yet: nobody is known to see it */
    assert_int_equal(rig.acts, 0);
    link_person(ANN, "u7");
    send_to(f, "r2", "c5", "g1");
    assert_int_equal(rig.acts, 1);
    send_to(f, "r3", "c5", "g2"); /* another guild */
    send_to(f, "r4", "c5", "");   /* none */
    send_to(g, "r5", "c5", "g1"); /* another instance */
    sight = GATE_UNSEEN;
    send_to(f, "r6", "c5", "g1");
    assert_int_equal(rig.acts, 1);
    sight = GATE_SEEN;
}

static void a_scope_delivers_what_the_owner_can_see(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.sees = fake_sees;
    rig.web.knows_sight = true;
    const struct grant_place at = {STR("web"), STR("g1"), STR("c1")};
    grant_scope_claim(rig.facts, ANN, at, GRANT_CLAIMED, rig_changed_fact, NULL);
    grant_principal(rig.facts, ANN, STR("web"), GATE_ANY, NULL, 0, rig_changed_fact, NULL);
    link_person(ANN, "u7");
    struct event ev = make_event("nowhere", "e1");
    ev.scope_id = STR("g1");
    ev.chat_type = STR("group");
    take(&ev);
    assert_int_equal(inbound(f), 1);
    sight = GATE_SIGHT_UNKNOWN;
    ev.event_id = STR("e2");
    take(&ev);
    assert_int_equal(inbound(f), 1);
    sight = GATE_SEEN;
}

static void where_a_platform_cannot_tell_a_place_is_seen_once_its_owner_spoke_there(void **state)
{
    struct fake *f = connect_as("gw-a");
    const struct grant_place at = {STR("web"), STR("c1"), STR("*")};
    grant_scope_claim(rig.facts, ANN, at, GRANT_CLAIMED, rig_changed_fact, NULL);
    grant_principal(rig.facts, ANN, STR("web"), GATE_ANY, NULL, 0, rig_changed_fact, NULL);
    link_person(ANN, "u7");
    struct event ev = make_event("nowhere", "e1");
    ev.chat_type = STR("group");
    take(&ev);
    assert_int_equal(inbound(f), 0);
    struct event own = ev;
    own.event_id = STR("e2");
    own.user_id = STR("u7");
    take(&own);
    ev.event_id = STR("e3");
    take(&ev);
    assert_int_equal(inbound(f), 2);
}

static void a_scope_that_contradicts_what_was_delivered_is_refused(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("a", "e1");
    ev.scope_id = STR("g1");
    take(&ev);
    send_to(f, "r1", "c1", "g1");
    send_to(f, "r2", "c1", "");
    assert_int_equal(rig.acts, 2);
    send_to(f, "r3", "c1", "g2");
    assert_int_equal(rig.acts, 2);
    restart();
    f = connect_as("gw-a");
    send_to(f, "r4", "c1", "g2");
    assert_int_equal(rig.acts, 2);
}

static int setup_slow(void **state)
{
    struct relay_limits lim = relay_limits_default;
    lim.instance_actions = 2;
    lim.tenant_actions = 3;
    return setup_with(&lim);
}

static void actions_are_limited_per_instance_and_per_tenant(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    char id[16];
    publish("a", "e1");
    publish("b", "e2");
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "r%d", i);
        send_to(f, id, "c1", "");
    }
    assert_int_equal(rig.acts, 10); /* five seconds' worth of two */
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "q%d", i);
        send_to(g, id, "c1", "");
    }
    assert_int_equal(rig.acts, 15); /* the tenant had fifteen */
    assert_int_equal(relay_counters(rig.relay)->actions_limited, 25);
    assert_int_equal(count_with(f, ACTION_ERROR_TRANSIENT "too many actions"), 10);
    advance(1000);
    send_to(f, "late", "c1", "");
    assert_int_equal(rig.acts, 16);
}

static void say_in_group(const char *id, bool mentions)
{
    struct event ev = make_event("a", id);
    ev.chat_type = STR("group");
    ev.mentions_bot = mentions;
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}

static void relevance_without_a_row_is_what_the_connected_generation_assumes(void **state)
{
    struct fake *f = connect_as("gw-a");
    say_in_group("e1", false); /* an older one: everything */
    assert_int_equal(inbound(f), 1);
    say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\",\"command_manifest\":[]}");
    say_in_group("e2", false);
    assert_int_equal(inbound(f), 1);
    say_in_group("e3", true);
    assert_int_equal(inbound(f), 2);
}

static void the_generation_of_a_sleeper_is_known_after_a_restart(void **state)
{
    struct fake *f = connect_as("gw-a");
    say(f,
        "{\"type\":\"hello\",\"platform\":\"telegram\",\"botId\":\"tg\"}"); /* a second identity */
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    restart();
    say_in_group("e1", false);
    say_in_group("e2", true);
    assert_int_equal(look("ann").entries, 1);
    f = connect_as("gw-a");
    assert_true(is_event(f, 0, "e2"));
}

static void an_older_gateway_stays_one_whatever_it_sends(void **state)
{
    struct fake *f = connect_as("gw-a");
    hello(f);
    publish("a", "e1");
    say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"send\","
           "\"chat_id\":\"c1\",\"content\":\"x\"}}");
    assert_false(facts_gateway(rig.facts, STR("gw-a"))->newer);
    say(f, "{\"type\":\"outbound\",\"requestId\":\"r2\",\"action\":{\"op\":\"typing\","
           "\"chat_id\":\"c1\"}}");
    assert_true(facts_gateway(rig.facts, STR("gw-a"))->newer);
}

static const struct event_said said_before[] = {{STR("from bob"), STR("m1"), STR("u8"), STR("Bob")},
                                                {STR("from ann"), STR("m2"), STR("u7"),
                                                 STR("Ann")}};

static struct event with_context(const char *key, const char *id)
{
    struct event ev = make_event(key, id);

    ev.chat_type = STR("group");
    ev.mentions_bot = true;
    ev.context = said_before;
    ev.n_context = 2;
    return ev;
}

static bool somebody_reads_context(const struct event *ev)
{
    struct gate_verdict verdicts[GATE_CANDIDATES];
    struct event routed = judge_route(rig.relay, ev);
    size_t n = judge_ask(rig.relay, &routed, verdicts);
    bool any = false;

    for (size_t i = 0; i < n; i++)
        any |= gate_is_yes(verdicts[i].reason) &&
               judge_reads_context(rig.relay, &verdicts[i], &routed);
    return any;
}

static void what_was_said_before_is_told_to_newer_gateways_only(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    struct event ev = with_context("both", "e1");

    assert_false(somebody_reads_context(&ev));
    say(g, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"typing\","
           "\"chat_id\":\"c1\"}}");
    assert_true(somebody_reads_context(&ev));
    take(&ev);
    assert_int_equal(count_with(f, "from bob"), 0);
    assert_int_equal(count_with(g, "from bob"), 1);
    assert_int_equal(count_with(g, "from ann"), 1);
    ev = with_context("both", "e2");
    ev.n_context = 0;
    ev.context_error = true;
    take(&ev);
    assert_int_equal(count_with(f, "context_error"), 0);
    assert_int_equal(count_with(g, "\"context\":[],\"context_error\":true"), 1);
}

static void an_owners_own_words_are_known_and_a_place_they_cannot_see_stays_unread(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = with_context("nowhere", "e1");

    say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"typing\","
           "\"chat_id\":\"c1\"}}");
    link_person(ANN, "u7");
    ev.user_id = STR("u7");
    ev.scope_id = STR("g1");
    rig.sees = fake_sees;
    rig.web.knows_sight = true;
    sight = GATE_SIGHT_UNKNOWN;
    assert_false(somebody_reads_context(&ev));
    take(&ev);
    assert_int_equal(inbound(f), 1);
    assert_int_equal(count_with(f, "from bob"), 0);
    sight = GATE_SEEN;
    assert_true(somebody_reads_context(&ev));
    ev.event_id = STR("e2");
    take(&ev);
    assert_int_equal(count_with(f, "from bob"), 1);
    assert_int_equal(count_with(f, "from ann"), 0);
}

UNIT(relay_test_judge)
{
    const struct CMUnitTest tests[] = {
        PROMISE(relevance_without_a_row_is_what_the_connected_generation_assumes),
        PROMISE(the_generation_of_a_sleeper_is_known_after_a_restart),
        PROMISE(an_older_gateway_stays_one_whatever_it_sends),
        PROMISE(what_was_said_before_is_told_to_newer_gateways_only),
        PROMISE(an_owners_own_words_are_known_and_a_place_they_cannot_see_stays_unread),
        PROMISE(why_tells_who_received_and_who_did_not),
        PROMISE(a_linked_author_reaches_their_own_instance_without_any_route),
        PROMISE(a_change_takes_effect_for_the_next_event),
        PROMISE(what_is_not_for_a_sleeper_does_not_wake_it),
        PROMISE(two_bots_do_not_answer_each_other_forever),
        PROMISE(a_link_message_is_consumed_answered_and_links),
        PROMISE(a_wrong_code_or_none_is_answered_and_never_delivered),
        PROMISE(the_direct_chat_of_a_linked_person_may_be_written_to),
        PROMISE(a_scope_lets_speak_where_the_owner_can_see_and_nowhere_else),
        PROMISE(a_scope_delivers_what_the_owner_can_see),
        PROMISE(where_a_platform_cannot_tell_a_place_is_seen_once_its_owner_spoke_there),
        PROMISE(a_scope_that_contradicts_what_was_delivered_is_refused),
        cmocka_unit_test_setup_teardown(actions_are_limited_per_instance_and_per_tenant, setup_slow,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
