/* Promises of host/stage.h: an event waits for its files on disk, its chat behind it, and enters
 * with them or with a word about what is missing. */
#include "media_rig.h"
#include "host/stage.h"

struct rig {
    struct media_rig m;
    struct stages *s;
    struct platform p;
    struct buf heard;       /* what entered: "text|id or url;" */
    int entered, told, oks; /* events; answers to whoever brought them; good ones of these */
    int asks;               /* of the platform, where a file is */
    enum bh_err answer;     /* of the mailbox */
    bool nobody, sleeps, is_open, silent;
    struct timer timer;
    accepted_cb *done;
    void *done_ctx;
};
static struct rig *rig;

/* ---- the host ---- */

static void on_turn(struct timer *t)
{
    accepted_cb *done = rig->done;

    rig->done = NULL;
    if (done != NULL)
        done(rig->done_ctx, rig->answer);
}

static struct accept_id enter(void *ctx, const struct event *ev, accepted_cb *done, void *done_ctx)
{
    struct rig *r = ctx;

    buf_add_str(&r->heard, ev->text);
    for (size_t i = 0; i < ev->n_media; i++) {
        struct str id = ev->media[i].id;
        const struct media_file *f = id.n > 0 ? media_find(r->m.media, id) : NULL;
        buf_printf(&r->heard, "|%s", f != NULL ? f->tenant : "");
        buf_add_str(&r->heard,
                    f == NULL && ev->media[i].url.n > 0 ? STR("at its address")
                    : f != NULL && f->size == ev->media[i].size && f->size == sizeof PNG - 1
                        ? STR("'s")
                        : STR("nothing"));
    }
    buf_add_z(&r->heard, ";");
    r->entered++;
    r->done = done;
    r->done_ctx = done_ctx;
    timer_set(loop_clock(r->m.loop), &r->timer, 0);
    return (struct accept_id){1, 1};
}

static void enter_cancel(void *ctx, struct accept_id id)
{
    ((struct rig *)ctx)->done = NULL;
}

static struct str tenant(void *ctx, const struct event *ev, struct buf *ret)
{
    if (!((struct rig *)ctx)->nobody)
        buf_add_z(ret, "acme");
    return buf_str(ret);
}

static bool sleeps(void *ctx, const struct event *ev)
{
    return ((struct rig *)ctx)->sleeps;
}

static struct platform *platform(void *ctx, struct str name, struct str bot)
{
    struct rig *r = ctx;

    return r->is_open ? &r->p : NULL;
}

/* ---- the platform ---- */

static void media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    char url[128];

    rig->asks++;
    if (rig->silent)
        return;
    snprintf(url, sizeof url, "%s/%.*s", rig->m.base, STR_FMT(ref));
    if (str_eq(ref, STR("unknown")))
        stage_media_gone(rig->s, ask, "nobody knows it");
    else
        stage_media_at(rig->s, ask, &(struct media_at){.url = url});
}

static const struct platform_ops ops = {.name = "letters", .media_where = media_where};

/* ---- the rig ---- */

static void open_stages(struct rig *r)
{
    static const struct stage_hooks hooks = {.enter = enter,
                                             .enter_cancel = enter_cancel,
                                             .tenant = tenant,
                                             .sleeps = sleeps,
                                             .platform = platform};

    assert_int_equal(stages_open(&r->m.env, r->m.media, &hooks, r, &r->s, r->m.why), BH_OK);
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);

    rig = r;
    rig_open(&r->m);
    timer_init(&r->timer, on_turn);
    r->p = (struct platform){.ops = &ops, .bot = "bot"};
    r->is_open = true;
    open_stages(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    stages_close(r->s);
    timer_stop(loop_clock(r->m.loop), &r->timer);
    rig_close(&r->m);
    buf_done(&r->heard);
    free(r);
    return 0;
}

static void on_told(void *ctx, enum bh_err err)
{
    struct rig *r = ctx;

    r->told++;
    r->oks += err == BH_OK;
}

/* An event with up to two files; a name that starts with '+' has an address too. */
static struct event event_of(const char *id, const char *chat, const char *ref, const char *other,
                             struct event_media room[2])
{
    const char *refs[] = {ref, other};
    struct event ev = {.platform = STR("letters"),
                       .bot = STR("bot"),
                       .event_id = str_of(id),
                       .chat_id = str_of(chat),
                       .text = str_of(id),
                       .media = room};

    for (size_t i = 0; i < 2 && refs[i] != NULL; i++) {
        bool fades = refs[i][0] == '+';
        room[ev.n_media++] = (struct event_media){.ref = str_of(refs[i] + fades),
                                                  .url = fades ? STR("https://x/y") : STR_NULL,
                                                  .type = STR("image/png")};
    }
    return ev;
}

static bool wants(struct rig *r, const char *id, const char *chat, const char *ref)
{
    struct event_media room[2];
    struct event ev = event_of(id, chat, ref, NULL, room);

    return stage_wants(r->s, &ev);
}

static struct accept_id take(struct rig *r, const char *id, const char *chat, const char *ref,
                             const char *other)
{
    struct event_media room[2];
    struct event ev = event_of(id, chat, ref, other, room);

    return stage_take(r->s, &ev, on_told, r);
}

/* ---- the promises ---- */

static void it_is_received_when_it_is_on_disk_and_enters_with_its_files(void **state)
{
    struct rig *r = *state;

    assert_true(wants(r, "look", "c", "slow"));
    take(r, "look", "c", "slow", "cat");
    assert_int_equal(r->told, 0); /* never inside the call */
    rig_until(&r->m, &r->told, 1);
    assert_int_equal(r->oks, 1);
    rig_rest(&r->m);
    assert_int_equal(r->entered, 0);
    rig_release(&r->m, 1);
    rig_until(&r->m, &r->entered, 1);
    assert_string_equal(buf_z(&r->heard), "look|acme's|acme's;");
    rig_rest(&r->m);
    assert_int_equal(stages_waiting(r->s), 0);
}

static void its_chat_waits_behind_it_in_order_and_no_other_does(void **state)
{
    struct rig *r = *state;

    assert_false(wants(r, "x", "c", NULL));
    take(r, "one", "c", "slow", NULL);
    rig_until(&r->m, &r->told, 1);
    assert_true(wants(r, "two", "c", NULL));
    assert_false(wants(r, "x", "d", NULL));
    assert_false(wants(r, "/stop", "c", NULL)); /* what stops an agent waits for no picture */
    take(r, "two", "c", NULL, NULL);
    take(r, "three", "c", "cat", NULL);
    rig_until(&r->m, &r->told, 3);
    rig_rest(&r->m);
    assert_int_equal(r->entered, 0);
    rig_release(&r->m, 1);
    rig_until(&r->m, &r->entered, 3);
    assert_string_equal(buf_z(&r->heard), "one|acme's;two;three|acme's;");
}

static void what_does_not_come_is_said(void **state)
{
    struct rig *r = *state;

    take(r, "look", "c", "unknown", "gone");
    rig_until(&r->m, &r->entered, 1);
    assert_string_equal(buf_z(&r->heard),
                        "look\n[a file is missing: nobody knows it]\n"
                        "[a file is missing: its address answered with status 404]"
                        "|nothing|nothing;");
}

static void what_comes_too_late_is_missing_and_keeps_nobody(void **state)
{
    struct rig *r = *state;

    r->m.settings.wait_ms = 200;
    take(r, "late", "c", "slow", NULL);
    take(r, "next", "c", NULL, NULL);
    rig_until(&r->m, &r->entered, 2);
    assert_true(str_contains(buf_str(&r->heard), STR("late\n[a file is missing: ")));
    assert_true(str_ends(buf_str(&r->heard), STR("|nothing;next;")));
    rig_release(&r->m, 1); /* harmless */
    rig_rest(&r->m);
}

static void a_start_goes_on_with_what_was_received(void **state)
{
    struct rig *r = *state;

    take(r, "one", "c", "slow", NULL);
    take(r, "two", "c", NULL, NULL);
    rig_until(&r->m, &r->told, 2);
    stages_close(r->s);
    r->is_open = false;
    open_stages(r);
    rig_rest(&r->m);
    assert_int_equal(r->entered, 0); /* its platform is not there yet */
    r->is_open = true;
    r->m.n_held = 0; /* whoever asked has gone */
    stage_opened(r->s, &r->p);
    rig_release(&r->m, 1);
    rig_until(&r->m, &r->entered, 2);
    assert_string_equal(buf_z(&r->heard), "one|acme's;two;");
    rig_rest(&r->m);
    stages_close(r->s);
    open_stages(r);
    rig_rest(&r->m);
    assert_int_equal(r->entered, 2); /* nothing is left of them */
}

static void a_mailbox_that_is_full_is_tried_again(void **state)
{
    struct rig *r = *state;

    r->answer = BH_BUSY;
    take(r, "one", "c", "cat", NULL);
    rig_until(&r->m, &r->entered, 1);
    rig_rest(&r->m);
    r->answer = BH_OK;
    rig_until(&r->m, &r->entered, 2);
    assert_string_equal(buf_z(&r->heard), "one|acme's;one|acme's;");
    rig_rest(&r->m);
    assert_int_equal(stages_waiting(r->s), 0);
}

static void the_same_event_again_is_the_same(void **state)
{
    struct rig *r = *state;

    take(r, "one", "c", "slow", NULL);
    rig_until(&r->m, &r->told, 1);
    take(r, "one", "c", "slow", NULL);
    assert_int_equal(r->told, 1);
    rig_until(&r->m, &r->told, 2);
    assert_int_equal(r->oks, 2);
    rig_release(&r->m, 1);
    rig_until(&r->m, &r->entered, 1);
    rig_rest(&r->m);
    assert_string_equal(buf_z(&r->heard), "one|acme's;");
}

static void nothing_is_fetched_for_nobody(void **state)
{
    struct rig *r = *state;

    r->nobody = true;
    take(r, "spam", "c", "cat", NULL);
    rig_until(&r->m, &r->entered, 1); /* the gate drops it */
    assert_int_equal(r->asks, 0);
    assert_int_equal(r->m.asked, 0);
}

static void whoever_calls_off_is_not_told_and_the_event_goes_on(void **state)
{
    struct rig *r = *state;
    struct accept_id id = take(r, "one", "c", "cat", NULL);

    assert_true(stage_owns(id));
    stage_cancel(r->s, id);
    rig_until(&r->m, &r->entered, 1);
    assert_int_equal(r->told, 0);
    stage_cancel(r->s, id); /* harmless */
}

static void a_platform_that_closes_is_asked_again_when_it_opens(void **state)
{
    struct rig *r = *state;

    r->silent = true;
    take(r, "one", "c", "cat", NULL);
    rig_until(&r->m, &r->asks, 1);
    stage_closed(r->s, &r->p);
    r->silent = false;
    stage_opened(r->s, &r->p);
    rig_until(&r->m, &r->entered, 1);
    assert_int_equal(r->asks, 2);
    assert_string_equal(buf_z(&r->heard), "one|acme's;");
}

static void an_address_that_fades_is_kept_for_who_sleeps(void **state)
{
    struct rig *r = *state;

    assert_false(wants(r, "one", "c", "+cat"));
    r->sleeps = true;
    assert_true(wants(r, "one", "c", "+cat"));
    take(r, "one", "c", "+cat", "+gone");
    rig_until(&r->m, &r->entered, 1);
    assert_string_equal(
        buf_z(&r->heard),
        "one\n[the address of a file may not hold: its address answered with status 404]"
        "|acme's|at its address;");
}

static void who_is_awake_gets_the_address_also_behind_another(void **state)
{
    struct rig *r = *state;

    take(r, "one", "c", "slow", NULL);
    take(r, "two", "c", "+gone", NULL);
    take(r, "three", "c", "+gone", "cat");
    rig_until(&r->m, &r->told, 3);
    rig_release(&r->m, 1);
    rig_until(&r->m, &r->entered, 3);
    assert_string_equal(buf_z(&r->heard),
                        "one|acme's;two|at its address;three|at its address|acme's;");
    assert_int_equal(r->asks, 2);
}

static void too_many_are_sent_back(void **state)
{
    struct rig *r = *state;
    char id[32];
    int taken = 0;

    r->silent = true;
    for (; taken < 4096; taken++) {
        snprintf(id, sizeof id, "e%d", taken);
        take(r, id, id, "slow", NULL);
    }
    rig_until(&r->m, &r->oks, taken);
    take(r, "more", "more", "slow", NULL);
    rig_until(&r->m, &r->told, taken + 1);
    assert_int_equal(r->oks, taken);
}

UNIT(host_test_stage)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(it_is_received_when_it_is_on_disk_and_enters_with_its_files),
        T(its_chat_waits_behind_it_in_order_and_no_other_does),
        T(what_does_not_come_is_said),
        T(what_comes_too_late_is_missing_and_keeps_nobody),
        T(a_start_goes_on_with_what_was_received),
        T(a_mailbox_that_is_full_is_tried_again),
        T(the_same_event_again_is_the_same),
        T(nothing_is_fetched_for_nobody),
        T(whoever_calls_off_is_not_told_and_the_event_goes_on),
        T(a_platform_that_closes_is_asked_again_when_it_opens),
        T(an_address_that_fades_is_kept_for_who_sleeps),
        T(who_is_awake_gets_the_address_also_behind_another),
        T(too_many_are_sent_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
