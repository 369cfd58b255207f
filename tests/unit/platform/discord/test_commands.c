/* Commands registered with Discord: only what differs, only what is ours, bad ones left out. */
#include "bot_rig.h"

#define LIST "GET /applications/" BOT "/commands"
#define MAKE "POST /applications/" BOT "/commands"
#define DROP(id) "DELETE /applications/" BOT "/commands/" id
#define ONE(name, words) "{'name':'" name "','description':'" words "'}"
#define THERE(id, name, words) \
    "{'id':'" id "','type':1,'name':'" name "','description':'" words "'}"

static void want(const char *commands)
{
    char *text = quoted(commands);

    discord_set_commands(w.p, str_of(text));
    free(text);
    pass(10);
}

static bool makes(const char *name)
{
    char *text = quoted(name);
    const struct http_call *call = asked(MAKE);
    bool yes = call != NULL && str_contains(buf_str(&call->body), str_of(text));

    free(text);
    return yes;
}

static bool idle(void)
{
    for (size_t i = 0; i < w.n_calls; i++)
        if (w.calls[i].done != NULL && str_contains(buf_str(&w.calls[i].what), STR("commands")))
            return false;
    return true;
}

/* /a and /b are registered. */
static void register_two(void)
{
    want("[" ONE("a", "first") "," ONE("b", "second") "]");
    answer(LIST, 200, "[]");
    assert_true(makes("'name':'a'"));
    answer(MAKE, 201, "{'id':'1'}");
    assert_true(makes("'name':'b'"));
    answer(MAKE, 201, "{'id':'2'}");
    assert_true(idle());
}

static void only_what_differs_is_sent(void **state)
{
    register_two();
    want("[" ONE("a", "first") "," ONE("b", "other words") "]");
    answer(LIST, 200, "[" THERE("1", "a", "first") "," THERE("2", "b", "second") "]");
    assert_true(makes("other words"));
    answer(MAKE, 200, "{'id':'2'}");
    assert_true(idle());
    want("[" ONE("b", "other words") "]");
    answer(LIST, 200, "[" THERE("1", "a", "first") "," THERE("2", "b", "other words") "]");
    answer(DROP("1"), 204, "");
    assert_true(idle());
    size_t before = w.n_calls;
    want("[" ONE("b", "other words") "]"); /* nothing new: not even asked */
    assert_int_equal(w.n_calls, before);
}

static void what_somebody_changed_or_removed_is_mended(void **state)
{
    register_two();
    want("[" ONE("a", "first") "," ONE("b", "second") "," ONE("c", "third") "]");
    answer(LIST, 200, "[" THERE("1", "a", "by hand") "]");
    for (const char *const *name = (const char *const[]){"'a'", "'b'", "'c'", NULL}; *name;
         name++) {
        assert_true(makes(*name));
        answer(MAKE, 201, "{'id':'7'}");
    }
    assert_true(idle());
}

static void what_is_not_ours_stays(void **state)
{
    register_two();
    want("[]");
    answer(LIST, 200,
           "[" THERE("5", "hand", "made by hand") "," THERE(
               "1", "a", "first") ","
                                  "{'id':'6','type':2,'name':'b'}]"); /* another kind: not ours */
    answer(DROP("1"), 204, "");
    assert_true(idle());
}

static void one_that_is_refused_does_not_keep_the_others_out(void **state)
{
    want("[" ONE("a", "first") "," ONE("bad", "x") "," ONE("c", "third") "]");
    answer(LIST, 200, "[]");
    answer(MAKE, 201, "{'id':'1'}");
    assert_true(makes("'bad'"));
    answer(MAKE, 400, "{'code':50035,'message':'Invalid Form Body'}");
    assert_true(makes("'c'"));
    answer(MAKE, 201, "{'id':'3'}");
    assert_true(idle());
    want("[" ONE("a", "first") "," ONE("c", "third") "]"); /* it was never there: no DELETE */
    answer(LIST, 200, "[" THERE("1", "a", "first") "," THERE("3", "c", "third") "]");
    assert_true(idle());
}

static void what_changes_meanwhile_makes_one_more_round(void **state)
{
    want("[" ONE("a", "1") "]");
    want("[" ONE("a", "2") "]");
    want("[" ONE("a", "3") "]");
    answer(LIST, 200, "[]");
    assert_true(makes("'description':'3'"));
    answer(MAKE, 201, "{'id':'1'}");
    answer(LIST, 200, "[" THERE("1", "a", "3") "]");
    assert_true(idle());
}

static void trouble_is_waited_out(void **state)
{
    want("[" ONE("a", "first") "," ONE("b", "second") "]");
    answer(LIST, 200, "[]");
    answer(MAKE, 201, "{'id':'1'}");
    answer(MAKE, 503, "");
    pass(26000); /* longer than anybody waits for one answer */
    assert_true(idle());
    pass(61000);
    answer(LIST, 200, "[" THERE("1", "a", "first") "]");
    assert_true(makes("'b'")); /* what is done is done */
    answer(MAKE, 201, "{'id':'2'}");
    assert_true(idle());
}

static void a_restart_remembers_what_is_registered(void **state)
{
    register_two();
    platform_close(w.p);
    pass(100);
    open_bot();
    want("[" ONE("a", "first") "," ONE("b", "second") "]");
    answer(LIST, 200, "[" THERE("1", "a", "first") "," THERE("2", "b", "second") "]");
    assert_true(idle());
    want("[" ONE("a", "first") "]");
    answer(LIST, 200, "[" THERE("1", "a", "first") "," THERE("2", "b", "second") "]");
    answer(DROP("2"), 204, "");
    assert_true(idle());
}

static void a_list_that_makes_no_sense_does_no_harm(void **state)
{
    register_two();
    want("[" ONE("b", "second") "]");
    answer(LIST, 200,
           "[7,null,[],{'name':7},{'id':'../guilds','type':1,'name':'a','description':'x'},"
           "{'id':'2','type':'x','name':'b','description':'second'}]");
    assert_null(asked(DROP("../guilds")));
    assert_true(idle());
    want("[" ONE("b", "newer") "]");
    answer(LIST, 200, "{'message':'hm'}");
    assert_true(makes("newer"));
    answer(MAKE, 201, "{'id':'2'}");
    assert_true(idle());
}

UNIT(platform_discord_test_commands)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(only_what_differs_is_sent),
        T(what_somebody_changed_or_removed_is_mended),
        T(what_is_not_ours_stays),
        T(one_that_is_refused_does_not_keep_the_others_out),
        T(what_changes_meanwhile_makes_one_more_round),
        T(trouble_is_waited_out),
        T(a_restart_remembers_what_is_registered),
        T(a_list_that_makes_no_sense_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
