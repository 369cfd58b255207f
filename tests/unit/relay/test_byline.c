/* Promises of relay/out/spoken.h: a name where several agents share a chat. */
#include "relay/asking.h"
#include "relay/out/spoken.h"
#include "relay/heart.h"
#include "tenancy/enroll.h"
#include "tenancy/grants.h"

static void call_it(const char *gateway, const char *instance, const char *name)
{
    struct provision_result result = {0};
    const struct provision_spec spec = {.tenant = STR("acme"),
                                        .gateway = str_of(gateway),
                                        .instance = str_of(instance),
                                        .display_name = str_of(name)};
    facts_provision(rig.facts, &spec, NULL, &result, rig_changed_fact, NULL);
    turn();
    provision_result_done(&result);
}

/* What reaches the platform when @f asks for @action. */
static const char *said(struct fake *f, const char *action)
{
    static int asked;
    char id[16];
    int before = (int)rig.acts;

    snprintf(id, sizeof id, "b%d", ++asked);
    ask(f, id, action, "");
    assert_int_equal(rig.acts, before + 1);
    answer_it("m1");
    return rig.act_content;
}
#define MEDIA(caption) \
    "\"op\":\"send_media\",\"chat_id\":\"c1\",\"media_kind\":\"image\",\"content\":\"" caption "\""
#define EDIT(text) \
    "\"op\":\"edit\",\"chat_id\":\"c1\",\"message_id\":\"m1\",\"content\":\"" text "\""

static void alone_in_a_chat_an_agent_has_no_name_in_front(void **state)
{
    struct fake *ann = connect_as("gw-a");
    call_it("gw-a", "ann", "Ann");
    publish("a", "e1");
    publish("a", "e2");
    assert_string_equal(said(ann, SEND), "hi");
    assert_string_equal(said(ann, EDIT("new")), "new");
}

static void where_agents_share_a_chat_each_says_its_name(void **state)
{
    struct fake *ann = connect_as("gw-a"), *bob = connect_as("gw-b");
    call_it("gw-a", "ann", "Ann");
    publish("both", "e1");
    assert_string_equal(said(ann, SEND), "**Ann:** hi");
    assert_string_equal(said(bob, SEND), "hi"); /* it has none */
    call_it("gw-b", "bob", "Bob");
    assert_string_equal(said(bob, SEND), "**Bob:** hi");
    assert_string_equal(said(ann, EDIT("new")), "**Ann:** new");
    assert_string_equal(said(ann, MEDIA("a cat")), "**Ann:** a cat");
    assert_string_equal(said(ann, MEDIA("")), "");
    restart();
    assert_string_equal(said(connect_as("gw-a"), SEND), "**Ann:** hi");
}

static void the_name_is_plain_where_there_is_no_markdown_and_escaped_where_there_is(void **state)
{
    struct descriptor plain = web_descriptor;
    struct fake *ann = connect_as("gw-a");
    call_it("gw-a", "ann", "*A_n[n");
    publish("both", "e1");
    assert_string_equal(said(ann, SEND), "**\\*A\\_n\\[n:** hi");
    plain.markdown_dialect = "plain";
    rig.web.descriptor = &plain;
    assert_string_equal(said(ann, SEND), "*A_n[n: hi");
}

static void the_name_goes_with_the_company(void **state)
{
    struct fake *ann = connect_as("gw-a");
    call_it("gw-a", "ann", "Ann");
    publish("both", "e1");
    assert_string_equal(said(ann, SEND), "**Ann:** hi");
    grant_deprovision(rig.facts, (struct grant_who){STR("acme"), STR("bob")}, rig_changed_fact,
                      NULL);
    turn();
    assert_string_equal(said(ann, SEND), "hi");
}

static void who_only_spoke_is_company_too(void **state)
{
    struct fake *ann = connect_as("gw-a"), *bob = connect_as("gw-b");
    call_it("gw-a", "ann", "Ann");
    call_it("gw-b", "bob", "Bob");
    publish("a", "e1");
    assert_string_equal(said(ann, SEND), "hi");
    add_route("c1", "bob"); /* the very chat: it may speak there unheard */
    assert_string_equal(said(bob, SEND), "**Bob:** hi");
    assert_string_equal(said(ann, SEND), "**Ann:** hi");
    publish("b", "e2"); /* now bob is heard there too, and counts once */
    relay_forget_chat(rig.relay, STR("acme"), STR("ann"), STR("web"), STR("c1"));
    publish("b", "e3");
    assert_string_equal(said(bob, SEND), "hi");
}

static void another_bot_is_another_chat(void **state)
{
    struct fake *ann = connect_as("gw-a");
    struct event ev = make_event("b", "e2");
    rig.has_attic = true;
    call_it("gw-a", "ann", "Ann");
    publish("a", "e1");
    ev.bot = STR("attic"); /* people see by the account who speaks */
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_string_equal(said(ann, SEND), "hi");
}

static void an_edit_that_would_be_too_long_goes_without(void **state)
{
    struct descriptor tight = web_descriptor;
    struct fake *ann = connect_as("gw-a");
    call_it("gw-a", "ann", "Ann");
    publish("both", "e1");
    said(ann, SEND);
    tight.max_message_length = 14;
    rig.web.descriptor = &tight;
    assert_string_equal(said(ann, EDIT("12345")), "**Ann:** 12345");
    assert_string_equal(said(ann, EDIT("123456")), "123456");
}

static void places_are_counted_each_for_itself(void **state)
{
    enum { N = 20000 };
    uint64_t *all = xcalloc(N, sizeof *all);
    char name[16];

    for (int n = 0; n < N; n++) {
        snprintf(name, sizeof name, "x%d", n);
        all[n] = participants_key(rig.relay, STR("web"), STR("lobby"), str_of(name));
        for (int k = 0; k < n % 3 + 1; k++)
            participants_join(rig.relay, all[n]);
    }
    for (int n = 0; n < N; n += 2) /* every other one empties, so that gaps are closed */
        for (int k = 0; k < n % 3 + 1; k++)
            participants_leave(rig.relay, all[n]);
    for (int n = 0; n < N; n++)
        assert_int_equal(participants_count(rig.relay, all[n]), n % 2 != 0 ? n % 3 + 1 : 0);
    for (int k = 0; k < 1000; k++)
        participants_join(rig.relay, all[0]);
    assert_int_equal(participants_count(rig.relay, all[0]), PARTICIPANTS_MAX);
    free(all);
}

UNIT(relay_test_byline)
{
    const struct CMUnitTest tests[] = {
        PROMISE(alone_in_a_chat_an_agent_has_no_name_in_front),
        PROMISE(where_agents_share_a_chat_each_says_its_name),
        PROMISE(the_name_is_plain_where_there_is_no_markdown_and_escaped_where_there_is),
        PROMISE(the_name_goes_with_the_company),
        PROMISE(who_only_spoke_is_company_too),
        PROMISE(another_bot_is_another_chat),
        PROMISE(an_edit_that_would_be_too_long_goes_without),
        PROMISE(places_are_counted_each_for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
