/* Promises of platform/outbox.h, on a clock turned by hand. */
#include "unit.h"
#include "base/mem.h"
#include "base/rand.h"
#include "platform/outbox.h"

struct req {
    struct outbox_item item;
    int id;
};

static struct clock *c;
static struct outbox *box;
static int64_t now;
static char seen[4096];
static struct req reqs[200];
static int64_t
    again_ms; /* start() puts the item back with this delay when > 0, finishes it when < 0 */

static void note(char what, int id)
{
    size_t n = strlen(seen);

    snprintf(seen + n, sizeof seen - n, "%c%d ", what, id);
}

static void on_start(void *ctx, struct outbox_item *it)
{
    struct req *q = container_of(it, struct req, item);

    note('s', q->id);
    if (again_ms > 0)
        outbox_again(box, it, again_ms);
    else if (again_ms < 0)
        outbox_done(box, it);
}

static void on_drop(void *ctx, struct outbox_item *it, enum outbox_drop why)
{
    note(why == OUTBOX_LATE ? 'l' : 'c', container_of(it, struct req, item)->id);
}

static const struct outbox_handlers handlers = {on_start, on_drop};

static void pass(int64_t ms)
{
    now += ms;
    clock_set(c, now, now);
    clock_turn(c);
}

/* Let @ms pass in small steps, as a loop would. */
static void run(int64_t ms)
{
    for (; ms > 0; ms -= 50)
        pass(50);
}

static int setup(void **state)
{
    c = clock_new();
    now = 1000;
    clock_set(c, now, now);
    box = outbox_new(c, &(struct outbox_limits){.max_lane = 4, .max_all = 8, .max_running = 3},
                     &handlers, NULL);
    seen[0] = '\0';
    again_ms = 0;
    for (size_t i = 0; i < ARRAY_LEN(reqs); i++)
        reqs[i] = (struct req){.id = (int)i};
    return 0;
}

static int teardown(void **state)
{
    outbox_free(box);
    clock_free(c);
    return 0;
}

static enum bh_err add(int id, const char *lane)
{
    return outbox_add(box, &reqs[id].item, STR("t"), str_of(lane), 25000);
}

static void items_of_one_lane_run_one_after_the_other(void **state)
{
    assert_int_equal(add(1, "a"), BH_OK);
    assert_int_equal(add(2, "a"), BH_OK);
    assert_string_equal(seen, ""); /* never inside the call */
    run(100);
    assert_string_equal(seen, "s1 ");
    outbox_done(box, &reqs[1].item);
    assert_string_equal(seen, "s1 ");
    run(100);
    assert_string_equal(seen, "s1 s2 ");
}

static void other_lanes_are_not_held_up_by_one_that_waits(void **state)
{
    again_ms = 2000;
    assert_int_equal(add(1, "a"), BH_OK);
    assert_int_equal(add(2, "a"), BH_OK);
    run(100);
    again_ms = -1;
    assert_int_equal(add(3, "b"), BH_OK);
    run(100);
    assert_string_equal(seen, "s1 s3 ");
    run(2000);
    assert_string_equal(seen, "s1 s3 s1 s2 ");
    assert_int_equal(reqs[1].item.starts, 2);
}

static void an_item_put_back_keeps_its_place(void **state)
{
    assert_int_equal(add(1, "a"), BH_OK);
    assert_int_equal(add(2, "a"), BH_OK);
    run(100);
    outbox_again(box, &reqs[1].item, 500);
    run(400);
    assert_string_equal(seen, "s1 ");
    run(200);
    assert_string_equal(seen, "s1 s1 ");
}

static void an_item_whose_deadline_passed_is_never_started(void **state)
{
    assert_int_equal(add(1, "a"), BH_OK);
    run(100);
    assert_int_equal(outbox_add(box, &reqs[2].item, STR("t"), STR("a"), 1000), BH_OK);
    run(2000);
    assert_string_equal(seen, "s1 l2 ");
    outbox_done(box, &reqs[1].item);
    run(100);
    assert_string_equal(seen, "s1 l2 ");
    assert_int_equal(outbox_waiting(box), 0);
}

static void a_delay_past_the_deadline_drops_the_item_soon_and_lets_the_lane_rest(void **state)
{
    assert_int_equal(outbox_add(box, &reqs[1].item, STR("t"), STR("a"), 3000), BH_OK);
    run(100);
    outbox_again(box, &reqs[1].item, 60000);
    assert_string_equal(seen, "s1 "); /* not inside the call */
    run(100);
    assert_string_equal(seen, "s1 l1 ");
    /* The next one of that chat owes the same rest. */
    assert_int_equal(outbox_add(box, &reqs[2].item, STR("t"), STR("a"), 90000), BH_OK);
    run(50000);
    assert_string_equal(seen, "s1 l1 ");
    run(15000);
    assert_string_equal(seen, "s1 l1 s2 ");
}

static void a_full_lane_and_a_full_outbox_say_busy(void **state)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(add(i, "a"), BH_OK);
    assert_int_equal(add(4, "a"), BH_BUSY);
    for (int i = 4; i < 8; i++)
        assert_int_equal(add(i, "b"), BH_OK);
    assert_int_equal(add(8, "c"), BH_BUSY);
    assert_int_equal(outbox_waiting(box), 8);
}

static void no_more_than_the_limit_run_at_once_and_lanes_take_turns(void **state)
{
    const char *const lanes[] = {"a", "b", "c", "d", "e"};

    for (int i = 0; i < 5; i++)
        assert_int_equal(add(i, lanes[i]), BH_OK);
    run(100);
    assert_string_equal(seen, "s0 s1 s2 ");
    assert_int_equal(outbox_running(box), 3);
    assert_int_equal(add(5, "a"), BH_OK);
    outbox_done(box, &reqs[0].item);
    run(100);
    assert_string_equal(seen, "s0 s1 s2 s3 ");
}

static void a_pause_holds_everything_and_a_shorter_one_does_not_end_it(void **state)
{
    again_ms = -1;
    outbox_pause(box, 3000);
    outbox_pause(box, 100);
    assert_int_equal(add(1, "a"), BH_OK);
    assert_int_equal(add(2, "b"), BH_OK);
    run(2900);
    assert_string_equal(seen, "");
    run(200);
    assert_string_equal(seen, "s1 s2 ");
}

static void closing_drops_what_waits_and_what_runs(void **state)
{
    assert_int_equal(add(1, "a"), BH_OK);
    run(100);
    assert_int_equal(add(2, "a"), BH_OK);
    outbox_free(box);
    box = NULL;
    assert_string_equal(seen, "s1 c1 c2 ");
}

static enum bh_err add_for(const char *tenant, int id, const char *lane)
{
    return outbox_add(box, &reqs[id].item, str_of(tenant), str_of(lane), 25000);
}

static void tenants_take_turns_and_then_the_lanes_of_each(void **state)
{
    const char *const lanes[] = {"a", "b", "c", "d"};

    again_ms = -1;
    outbox_pause(box, 100);
    for (int i = 0; i < 4; i++)
        assert_int_equal(add_for("greedy", i, lanes[i]), BH_OK);
    assert_int_equal(add_for("modest", 4, "e"), BH_OK);
    assert_int_equal(add_for("modest", 5, "f"), BH_OK);
    run(200);
    assert_string_equal(seen, "s0 s4 s1 s5 s2 s3 ");
}

static void a_tenant_that_filled_the_outbox_leaves_the_others_their_share(void **state)
{
    for (int i = 0; i < 8; i++)
        assert_int_equal(add_for("greedy", i, i < 4 ? "a" : "b"), BH_OK);
    assert_int_equal(add_for("greedy", 8, "c"), BH_BUSY);
    for (int i = 9; i < 13; i++)
        assert_int_equal(add_for("modest", i, "c"), BH_OK);
    assert_int_equal(add_for("modest", 13, "d"), BH_BUSY);
    assert_int_equal(add_for("third", 14, "d"), BH_OK);
}

static void a_lane_one_tenant_has_filled_takes_those_of_another(void **state)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(add_for("greedy", i, "shared"), BH_OK);
    assert_int_equal(add_for("greedy", 4, "shared"), BH_BUSY);
    assert_int_equal(add_for("modest", 5, "shared"), BH_OK);
}

static void a_tenant_whose_requests_hang_leaves_room_to_run(void **state)
{
    char lane[2] = "a";

    outbox_free(box);
    box = outbox_new(c, &(struct outbox_limits){.max_running = 8}, &handlers, NULL);
    for (int i = 0; i < 20; i++, lane[0]++)
        assert_int_equal(add_for("greedy", i, lane), BH_OK);
    run(100);
    assert_int_equal(outbox_running(box), 6);
    seen[0] = '\0';
    assert_int_equal(add_for("modest", 30, "z"), BH_OK);
    run(100);
    assert_string_equal(seen, "s30 ");
    outbox_done(box, &reqs[0].item);
    run(100);
    assert_string_equal(seen, "s30 s6 ");
}

/* Random traffic against the simplest statement of the promise: per lane, first starts come in the
 * order of adding, nothing is started after its deadline, everything ends exactly once. */
static void random_traffic_keeps_order_and_deadlines(void **state)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct rand r = rand_seeded(seed);
        int64_t deadline[200] = {0};
        int ended = 0, added = 0, last[3] = {-1, -1, -1};

        teardown(state);
        setup(state);
        for (int step = 0; step < 1500; step++) {
            if (added < 200 && rand_below(&r, 4) == 0) {
                char lane[2] = {(char)('a' + added % 3), 0};
                int64_t patience = 100 + (int64_t)rand_below(&r, 4000);
                struct str tenant = rand_below(&r, 2) == 0 ? STR("t") : STR("u");
                if (outbox_add(box, &reqs[added].item, tenant, str_of(lane), patience) == BH_OK)
                    deadline[added] = now + patience;
                else
                    ended++;
                added++;
            }
            seen[0] = '\0';
            pass(10);
            int id, off = 0, n;
            char what;
            for (const char *p = seen; sscanf(p, "%c%d %n", &what, &id, &n) == 2;
                 p += n, off += n) {
                ended += what == 'l';
                if (what != 's')
                    continue;
                assert_true(now <= deadline[id] + 10);
                assert_true(id >= last[id % 3]);
                last[id % 3] = id;
            }
            for (int i = 0; i < added; i++) {
                struct outbox_item *it = &reqs[i].item;
                if (it->lane == NULL || list_is_linked(&it->link) || rand_below(&r, 6) != 0)
                    continue;
                if (rand_below(&r, 3) == 0) {
                    outbox_again(box, it, (int64_t)rand_below(&r, 300));
                } else {
                    outbox_done(box, it);
                    ended++;
                }
            }
        }
        seen[0] = '\0';
        run(5000);
        for (const char *p = seen; (p = strchr(p, 'l')) != NULL; p++)
            ended++;
        assert_int_equal(ended + (int)outbox_running(box) + (int)outbox_waiting(box), added);
    }
}

/* ---- tenants whose requests the platform refuses ---- */

static void refuse(const char *tenant, int n, int64_t at_ms)
{
    pass(at_ms - now);
    for (int i = 0; i < n; i++)
        outbox_blame(box, str_of(tenant));
}

static bool is_blamed(const char *tenant, int64_t at_ms)
{
    pass(at_ms - now);
    return outbox_is_blamed(box, str_of(tenant));
}

static void whoever_is_refused_too_often_is_held_back_and_nobody_else(void **state)
{
    assert_false(is_blamed("greedy", 1000));
    refuse("greedy", BLAME_MAX - 1, 1000);
    refuse("modest", 1, 1000);
    assert_false(is_blamed("greedy", 1000));
    refuse("greedy", 1, 2000);
    assert_true(is_blamed("greedy", 2000));
    assert_false(is_blamed("modest", 2000));
    assert_false(is_blamed("third", 2000));
}

static void blame_is_over_after_a_while(void **state)
{
    refuse("greedy", BLAME_MAX, 1000);
    assert_true(is_blamed("greedy", 1000 + BLAME_MS - 1));
    refuse("other", BLAME_MAX, 1000 + BLAME_MS - 1);
    refuse("greedy", 1, 1000 + BLAME_MS); /* a new window, the old one still counts */
    assert_true(is_blamed("greedy", 1000 + BLAME_MS));
    assert_false(is_blamed("greedy", 1000 + BLAME_MS + BLAME_MS / 2));
    assert_false(is_blamed("other", 1000 + 2 * BLAME_MS + BLAME_MS / 10)); /* none came since */
}

static void tenants_that_behave_are_forgotten(void **state)
{
    char name[16];

    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "t%d", i);
        refuse(name, 1, 1000 + i);
    }
    assert_int_equal(outbox_n_blamed(box), 1000);
    refuse("late", 1, 3000 + 2 * BLAME_MS);
    assert_int_equal(outbox_n_blamed(box), 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(platform_test_outbox)
{
    const struct CMUnitTest tests[] = {
        T(items_of_one_lane_run_one_after_the_other),
        T(other_lanes_are_not_held_up_by_one_that_waits),
        T(an_item_put_back_keeps_its_place),
        T(an_item_whose_deadline_passed_is_never_started),
        T(a_delay_past_the_deadline_drops_the_item_soon_and_lets_the_lane_rest),
        T(a_full_lane_and_a_full_outbox_say_busy),
        T(no_more_than_the_limit_run_at_once_and_lanes_take_turns),
        T(a_pause_holds_everything_and_a_shorter_one_does_not_end_it),
        T(closing_drops_what_waits_and_what_runs),
        T(tenants_take_turns_and_then_the_lanes_of_each),
        T(a_tenant_that_filled_the_outbox_leaves_the_others_their_share),
        T(a_lane_one_tenant_has_filled_takes_those_of_another),
        T(a_tenant_whose_requests_hang_leaves_room_to_run),
        T(random_traffic_keeps_order_and_deadlines),
        T(whoever_is_refused_too_often_is_held_back_and_nobody_else),
        T(blame_is_over_after_a_while),
        T(tenants_that_behave_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
