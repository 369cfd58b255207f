/* What prompts.h promises: who may answer, once, until when, and what a restart leaves. */
#include "unit.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "platform/prompts.h"
#include "store/memory/memory.h"

static struct {
    struct clock *clock;
    struct store *store;
    struct host_env env;
    struct platform p;
    struct prompts *ps;
    struct json_parser *parser;
    bool lets_in;
    struct buf taken; /* "text tenant/instance event_id;" */
    accepted_cb *done;
    void *ctx;
    int n_done;
    enum bh_err err;
    struct prompt *over[8]; /* whose buttons are to go */
    size_t n_over;
} w;

/* ---- the host ---- */

const struct host_env *host_env(struct host *h)
{
    return &w.env;
}
struct accept_id host_accept(struct host *h, struct platform *p, const struct event *ev,
                             accepted_cb *done, void *ctx)
{
    buf_printf(&w.taken, "%.*s %.*s/%.*s %.*s;", STR_FMT(ev->text), STR_FMT(ev->only_tenant),
               STR_FMT(ev->only_instance), STR_FMT(ev->event_id));
    w.done = done;
    w.ctx = ctx;
    return (struct accept_id){7, 7};
}
void host_accept_cancel(struct host *h, struct accept_id id)
{
    w.done = NULL;
}
void host_each_target(struct host *h, const struct event *ev, target_cb *cb, void *ctx)
{
    assert_true(ev->mentions_bot);
    if (w.lets_in)
        cb(ctx, ev->only_tenant, ev->only_instance);
}

/* ---- the rig ---- */

static void on_over(struct platform *p, struct prompt *q)
{
    assert_true(w.n_over < ARRAY_LEN(w.over));
    assert_ptr_equal(p, &w.p);
    w.over[w.n_over++] = q;
}

static const struct platform_ops ops = {.name = "letters"};
static const struct platform_ops ops_with_buttons = {.name = "letters", .prompt_over = on_over};

static void open_prompts(void)
{
    char why[256];

    assert_int_equal(prompts_open(&w.p, why), BH_OK);
    w.ps = w.p.prompts;
}

static void open_with_buttons(void)
{
    prompts_close(w.ps);
    w.n_over = 0;
    w.p.ops = &ops_with_buttons;
    open_prompts();
}

static int setup(void **state)
{
    memset(&w, 0, sizeof w);
    w.clock = clock_new();
    clock_set(w.clock, 1000, 1700000000000);
    w.store = store_memory_new(w.clock);
    w.env = (struct host_env){.clock = w.clock, .store = w.store};
    w.p = (struct platform){.ops = &ops, .env = &w.env, .bot = "bot"};
    w.parser = json_parser_new();
    w.lets_in = true;
    open_prompts();
    return 0;
}

static int teardown(void **state)
{
    prompts_close(w.ps);
    store_close(w.store);
    json_parser_free(w.parser);
    buf_done(&w.taken);
    clock_free(w.clock);
    return 0;
}

static void turn(int64_t ms)
{
    clock_set(w.clock, clock_now_ms(w.clock) + ms, clock_wall_ms(w.clock) + ms);
    for (int i = 0; i < 8; i++)
        clock_turn(w.clock);
}

static struct action asking(const char *id, const char *options)
{
    struct action a = {.op = ACTION_PROMPT, .content = STR("Well?"), .prompt_id = str_of(id)};

    assert_true(json_parse(w.parser, str_of(options), &a.options));
    return a;
}

#define YES_NO \
    "[{\"id\":\"yes\",\"label\":\"Yes\",\"style\":\"primary\"},{\"id\":\"no\",\"label\":\"No\"}]"
static const struct action_from mine = {.tenant = STR("t"), .instance = STR("i")};

static void ask(const char *id, const char *chat, int64_t timeout_s)
{
    struct action a = asking(id, YES_NO);

    a.timeout_s = timeout_s;
    assert_null(prompt_wrong(&a));
    prompts_add(w.ps, &mine, &a, str_of(chat));
    prompts_shown(w.ps, &mine, str_of(chat), str_of(id), STR("m1"));
}

static void on_done(void *ctx, enum bh_err err)
{
    w.n_done++;
    w.err = err;
}

static struct prompt *pressed(const char *chat, const char *token, const struct prompt_option **o)
{
    return prompts_pressed(w.ps, str_of(chat), str_of(token), o);
}

/* ---- the promises ---- */

static void the_first_press_that_is_taken_is_the_answer(void **state)
{
    const struct prompt_option *o;
    struct event ev = {.platform = STR("letters"), .user_id = STR("ann")};

    ask("q", "c", 0);
    struct prompt *q = pressed("c", "hp1:q:no", &o);
    assert_non_null(q);
    assert_true(prompt_may_answer(q, &ev));
    prompts_accept(q, o, &ev, on_done, NULL);
    assert_null(pressed("c", "hp1:q:yes", &o)); /* somebody is just answering */
    w.done(w.ctx, BH_BUSY);
    assert_int_equal(w.err, BH_BUSY);
    q = pressed("c", "hp1:q:yes", &o); /* it was not taken: open again */
    assert_non_null(q);
    prompts_accept(q, o, &ev, on_done, NULL);
    w.done(w.ctx, BH_OK);
    assert_null(pressed("c", "hp1:q:yes", &o));
    assert_int_equal(prompts_count(w.ps), 0);
    assert_string_equal(buf_z(&w.taken), "/no t/i c:m1:q;/yes t/i c:m1:q;");
}

static void whom_the_gate_does_not_let_in_cannot_answer(void **state)
{
    const struct prompt_option *o;

    ask("q", "c", 0);
    w.lets_in = false;
    assert_false(prompt_may_answer(pressed("c", "hp1:q:no", &o), &(struct event){0}));
}

static void only_what_is_ours_is_a_press(void **state)
{
    static const char *const foreign[] = {"",          "hp1",       "hp1:q",      "hp1:q:",
                                          "hp1::no",   "hp2:q:no",  "hp1:q:no:x", "hp1:q:maybe",
                                          "hp1:r:yes", "HP1:q:yes", "hp1:q:y/s"};
    const struct prompt_option *o;

    ask("q", "c", 0);
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
        assert_null(pressed("c", foreign[i], &o));
    assert_null(pressed("elsewhere", "hp1:q:yes", &o));
    assert_non_null(pressed("c", "hp1:q:yes", &o));
}

static struct prompt *numbered(const char *text, const char *thread, const char *reply_to,
                               const struct prompt_option **ret)
{
    const struct event ev = {.chat_id = STR("c"),
                             .text = str_of(text),
                             .thread_id = str_of(thread),
                             .reply_to_message_id = str_of(reply_to)};

    return prompts_numbered(w.ps, &ev, ret);
}

static void a_number_answers_the_question_of_its_thread(void **state)
{
    const struct prompt_option *o;
    struct action in_thread = asking("threaded", YES_NO);

    in_thread.thread_id = STR("t1");
    prompts_add(w.ps, &mine, &in_thread, STR("c"));
    prompts_shown(w.ps, &mine, STR("c"), STR("threaded"), STR("m1"));
    assert_null(numbered("1", NULL, NULL, &o));
    assert_null(numbered("1", "t2", NULL, &o));
    assert_string_equal(numbered("1", "t1", NULL, &o)->id, "threaded");
    assert_string_equal(numbered("1", NULL, "m1", &o)->id, "threaded");
    struct action a = asking("elsewhere", YES_NO);
    prompts_add(w.ps, &mine, &a, STR("c"));
    prompts_shown(w.ps, &mine, STR("c"), STR("elsewhere"), STR("m2"));
    assert_string_equal(numbered("2", NULL, NULL, &o)->id, "elsewhere");
    assert_string_equal(numbered("2", "m2", NULL, &o)->id, "elsewhere"); /* a thread of its own */
    assert_string_equal(numbered("2", "t1", NULL, &o)->id, "threaded");
    assert_null(numbered("2", "t2", NULL, &o));
}

static void a_number_in_range_answers_the_newest(void **state)
{
    static const char *const texts[] = {"0",   "3", "-1",  "1.",         "+1",
                                        "one", "",  "1 2", "99999999999"};
    const struct prompt_option *o;

    ask("old", "c", 0);
    ask("new", "c", 0);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        assert_null(numbered(texts[i], NULL, NULL, &o));
    struct prompt *q = numbered(" 2\n", NULL, NULL, &o);
    assert_string_equal(q->id, "new");
    assert_string_equal(o->id, "no");
    prompts_drop(w.ps, &mine, STR("c"), STR("new"));
    assert_string_equal(numbered("1", NULL, NULL, &o)->id, "old");
    struct action a = asking("unseen", YES_NO);
    prompts_add(w.ps, &mine, &a, STR("c"));
    assert_null(numbered("1", NULL, NULL, &o)); /* nobody has seen it yet */
}

static void its_time_is_up(void **state)
{
    const struct prompt_option *o;

    ask("q", "c", 30);
    ask("hour", "c", 0);
    ask("least", "d", 1);
    turn(9999);
    assert_non_null(pressed("d", "hp1:least:yes", &o));
    turn(2);
    assert_null(pressed("d", "hp1:least:yes", &o));
    turn(20000);
    assert_null(pressed("c", "hp1:q:yes", &o));
    assert_non_null(pressed("c", "hp1:hour:yes", &o));
    turn(3600 * 1000);
    assert_int_equal(prompts_count(w.ps), 0);
}

static void a_restart_leaves_what_is_open(void **state)
{
    const struct prompt_option *o;

    ask("q", "c", 0);
    ask("answered", "c", 0);
    ask("late", "d", 60);
    prompts_drop(w.ps, &mine, STR("c"), STR("answered"));
    turn(1);
    prompts_close(w.ps);
    turn(61000);
    open_prompts();
    turn(1);
    assert_int_equal(prompts_count(w.ps), 1);
    struct prompt *q = pressed("c", "hp1:q:yes", &o);
    assert_non_null(q);
    assert_string_equal(q->tenant, "t");
    assert_string_equal(q->message_id, "m1");
    assert_string_equal(q->options[1].label, "No");
    assert_int_equal(q->options[0].style, PROMPT_PRIMARY);
    turn(3600 * 1000);
    prompts_close(w.ps);
    open_prompts();
    turn(1);
    assert_int_equal(prompts_count(w.ps), 0);
}

static void a_chat_has_so_many_and_the_oldest_goes(void **state)
{
    const struct prompt_option *o;
    char id[16], token[32];

    for (int i = 0; i <= PROMPTS_PER_CHAT; i++) {
        snprintf(id, sizeof id, "q%d", i);
        ask(id, "c", 0);
    }
    assert_int_equal(prompts_count(w.ps), PROMPTS_PER_CHAT);
    assert_null(pressed("c", "hp1:q0:yes", &o));
    snprintf(token, sizeof token, "hp1:q%d:yes", PROMPTS_PER_CHAT);
    assert_non_null(pressed("c", token, &o));
    ask("q5", "c", 0); /* the same again replaces it */
    assert_int_equal(prompts_count(w.ps), PROMPTS_PER_CHAT);
}

static void a_tenant_has_so_many_and_its_own_oldest_goes(void **state)
{
    const struct action_from other = {.tenant = STR("u"), .instance = STR("i")};
    struct limit_settings few = limit_defaults;
    const struct prompt_option *o;
    char id[16], chat[16];

    few.of[LIMIT_PROMPTS] = (struct limit_bounds){.each = 5, .all = 7};
    w.env.ledger = ledger_new(&few);
    prompts_close(w.ps);
    open_prompts();
    struct action a = asking("theirs", YES_NO);
    prompts_add(w.ps, &other, &a, STR("x"));
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof id, "q%d", i);
        snprintf(chat, sizeof chat, "c%d", i);
        ask(id, chat, 0);
    }
    assert_int_equal(prompts_count(w.ps), 6);
    assert_int_equal(ledger_held(w.env.ledger, NULL, LIMIT_PROMPTS), 6);
    assert_null(pressed("c3", "hp1:q3:yes", &o));
    assert_non_null(pressed("c4", "hp1:q4:yes", &o));
    prompts_shown(w.ps, &other, STR("x"), STR("theirs"), STR("m9"));
    assert_non_null(pressed("x", "hp1:theirs:yes", &o));
    prompts_forget_chat(w.ps, STR("c4"));
    assert_null(pressed("c4", "hp1:q4:yes", &o));
    turn(1);
    prompts_close(w.ps);
    open_prompts(); /* counted anew, and what was forgotten is not there */
    assert_int_equal(ledger_held(w.env.ledger, NULL, LIMIT_PROMPTS), 5);
    prompts_close(w.ps);
    ledger_free(w.env.ledger);
    w.env.ledger = NULL;
    open_prompts();
}

static void closing_calls_off_what_is_under_way(void **state)
{
    const struct prompt_option *o;
    struct event ev = {0};

    ask("q", "c", 0);
    struct prompt *q = pressed("c", "hp1:q:no", &o);
    prompts_accept(q, o, &ev, on_done, NULL);
    prompts_drop(w.ps, &mine, STR("c"), STR("q")); /* gone before the answer is there */
    w.done(w.ctx, BH_OK);
    assert_int_equal(w.n_done, 1);
    ask("r", "c", 0);
    q = pressed("c", "hp1:r:no", &o);
    prompts_accept(q, o, &ev, on_done, NULL);
    prompts_close(w.ps);
    w.ps = NULL;
    assert_null(w.done);
    assert_int_equal(w.n_done, 1);
}

/* The one question whose buttons are to go, by now. */
static struct prompt *only_over(void)
{
    assert_int_equal(w.n_over, 1);
    w.n_over = 0;
    return w.over[0];
}

static void the_buttons_go_when_its_time_is_up(void **state)
{
    const struct prompt_option *o;

    open_with_buttons();
    ask("q", "c", 30);
    turn(29000);
    assert_int_equal(w.n_over, 0);
    turn(1001);
    struct prompt *q = only_over();
    assert_string_equal(q->message_id, "m1");
    assert_string_equal(q->chat, "c");
    assert_null(q->chosen);
    assert_int_equal(prompts_count(w.ps), 0);
    assert_null(pressed("c", "hp1:q:yes", &o));
    prompts_tidied(q, 0);
    turn(3600 * 1000);
    assert_int_equal(w.n_over, 0);
    open_with_buttons(); /* nothing is left of it */
    turn(1);
    assert_int_equal(w.n_over, 0);
}

static void the_buttons_show_what_was_chosen_also_after_a_restart(void **state)
{
    const struct prompt_option *o;
    struct event ev = {0};

    open_with_buttons();
    ask("q", "c", 0);
    struct prompt *q = pressed("c", "hp1:q:no", &o);
    prompts_accept(q, o, &ev, on_done, NULL);
    w.done(w.ctx, BH_OK);
    assert_int_equal(w.n_over, 0); /* not inside the call */
    turn(1);
    assert_string_equal(only_over()->chosen->id, "no");
    open_with_buttons(); /* nobody knows how that ended */
    assert_null(pressed("c", "hp1:q:yes", &o));
    turn(1);
    q = only_over();
    assert_string_equal(q->chosen->id, "no");
    assert_string_equal(q->message_id, "m1");
    prompts_tidied(q, 0);
    turn(1);
    open_with_buttons();
    turn(1);
    assert_int_equal(w.n_over, 0);
}

static void what_could_not_be_changed_is_tried_again_later_and_not_for_ever(void **state)
{
    open_with_buttons();
    ask("q", "c", 10);
    turn(10000);
    prompts_tidied(only_over(), 30000);
    turn(29000);
    assert_int_equal(w.n_over, 0); /* it was asked to wait */
    turn(1001);
    prompts_tidied(only_over(), 1);
    turn(1000);
    assert_int_equal(w.n_over, 0); /* a little longer every time */
    int tries = 2;
    for (int i = 0; i < 100; i++) {
        turn(600 * 1000);
        if (w.n_over == 0)
            break;
        prompts_tidied(only_over(), 1);
        tries++;
    }
    assert_int_equal(tries, 12);
}

static void a_few_are_changed_at_a_time(void **state)
{
    char chat[16];

    open_with_buttons();
    for (int i = 0; i < 6; i++) {
        snprintf(chat, sizeof chat, "c%d", i);
        ask("q", chat, 10);
    }
    turn(10000);
    assert_int_equal(w.n_over, 4);
    prompts_tidied(w.over[2], 0);
    turn(1);
    assert_int_equal(w.n_over, 5);
    prompts_tidied(w.over[0], 1); /* it rests, and is in nobody's way */
    turn(1);
    assert_int_equal(w.n_over, 6);
    open_with_buttons();
    turn(1);
    assert_int_equal(w.n_over, 4); /* of the five that are left */
}

static void what_is_shown_too_late_loses_its_buttons_at_once(void **state)
{
    struct action a = asking("q", YES_NO);
    const struct prompt_option *o;

    open_with_buttons();
    a.timeout_s = 10;
    prompts_add(w.ps, &mine, &a, STR("c"));
    turn(60000); /* the platform is slow */
    assert_int_equal(w.n_over, 0);
    assert_null(pressed("c", "hp1:q:yes", &o));
    prompts_shown(w.ps, &mine, STR("c"), STR("q"), STR("m9"));
    turn(1);
    struct prompt *q = only_over();
    assert_string_equal(q->message_id, "m9");
    prompts_tidied(q, 0);
    prompts_add(w.ps, &mine, &a, STR("c")); /* never shown */
    turn(2 * 3600 * 1000);
    assert_int_equal(prompts_count(w.ps), 0);
    assert_int_equal(w.n_over, 0);
}

static void what_is_asked_anew_is_not_forgotten_with_the_old(void **state)
{
    const struct prompt_option *o;

    open_with_buttons();
    ask("q", "c", 10);
    turn(10000);
    struct prompt *old = only_over();
    ask("q", "c", 0);
    prompts_tidied(old, 0);
    turn(1);
    open_with_buttons();
    assert_non_null(pressed("c", "hp1:q:yes", &o));
}

static void who_is_forgotten_is_forgotten_there_too(void **state)
{
    char chat[16];

    open_with_buttons();
    for (int i = 0; i < 6; i++) {
        snprintf(chat, sizeof chat, "c%d", i);
        ask("q", chat, 10);
    }
    turn(10000); /* four are being changed, two wait for that */
    prompts_tidied(w.over[3], 1000);
    prompts_forget_chat(w.ps, STR("c5"));
    prompts_forget_chat(w.ps, STR("c3"));
    prompts_forget_chat(w.ps, STR("c0"));
    prompts_tidied(w.over[0], 1000); /* it did not work: nothing more is tried */
    turn(3600 * 1000);
    assert_int_equal(w.n_over, 5);
    assert_string_equal(w.over[4]->chat, "c4");
    prompts_forget_tenant(w.ps, STR("t"));
    for (int i = 1; i < 5; i++)
        if (i != 3)
            prompts_tidied(w.over[i], 1000);
    turn(3600 * 1000);
    assert_int_equal(w.n_over, 5);
    open_with_buttons();
    turn(1);
    assert_int_equal(w.n_over, 0);
}

static void numbered_options_are_text(void **state)
{
    struct action a = asking("q", YES_NO);
    struct buf out = BUF_INIT;

    prompt_write_numbered(&out, a.content, prompts_add(w.ps, &mine, &a, STR("c")));
    assert_string_equal(buf_z(&out), "Well?\n\n1. Yes\n2. No\n\nAnswer with a number (1 to 2).");
    buf_done(&out);
}

static struct prompt *under(const char *message, const struct prompt_option **o)
{
    return prompts_pressed_under(w.ps, STR("c"), STR("hp1:q:yes"), str_of(message), o);
}

static void a_button_belongs_to_the_question_that_it_hangs_under(void **state)
{
    const struct action_from other = {.tenant = STR("evil"), .instance = STR("e")};
    const struct prompt_option *o;
    struct action a = asking("q", YES_NO);

    ask("q", "c", 0); /* under m1 */
    prompts_add(w.ps, &other, &a, STR("c"));
    assert_string_equal(under("m1", &o)->tenant, "t");
    assert_null(under("m2", &o)); /* whose is it? */
    prompts_shown(w.ps, &other, STR("c"), STR("q"), STR("m2"));
    assert_string_equal(under("m1", &o)->tenant, "t");
    assert_string_equal(under("m2", &o)->tenant, "evil");
    assert_null(under("m3", &o));
    prompts_drop(w.ps, &other, STR("c"), STR("q"));
    assert_string_equal(under("m1", &o)->tenant, "t");
    assert_null(under("m2", &o));
}

UNIT(platform_test_prompts)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(the_first_press_that_is_taken_is_the_answer),
        T(a_button_belongs_to_the_question_that_it_hangs_under),
        T(whom_the_gate_does_not_let_in_cannot_answer),
        T(only_what_is_ours_is_a_press),
        T(a_number_in_range_answers_the_newest),
        T(a_number_answers_the_question_of_its_thread),
        T(its_time_is_up),
        T(a_restart_leaves_what_is_open),
        T(a_chat_has_so_many_and_the_oldest_goes),
        T(a_tenant_has_so_many_and_its_own_oldest_goes),
        T(closing_calls_off_what_is_under_way),
        T(the_buttons_go_when_its_time_is_up),
        T(the_buttons_show_what_was_chosen_also_after_a_restart),
        T(what_could_not_be_changed_is_tried_again_later_and_not_for_ever),
        T(a_few_are_changed_at_a_time),
        T(what_is_shown_too_late_loses_its_buttons_at_once),
        T(what_is_asked_anew_is_not_forgotten_with_the_old),
        T(who_is_forgotten_is_forgotten_there_too),
        T(numbered_options_are_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
