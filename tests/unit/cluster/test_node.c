/* Promises of cluster/node.h, on the in-memory store behind a door that can be shut. */
#include "unit.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "cluster/node.h"
#include "store/memory/memory.h"

enum { LEASE_MS = 5000 };

struct door { /* one node's way to the store */
    struct store base;
    bool shut; /* what is asked stays here */
    struct store_op *kept[16];
    size_t n_kept, asked;
};

static struct clock *c;
static struct store *st;
static int64_t now_ms;
static struct door doors[2];
static struct node *node[2];
static int overs[2];
static struct rand rnd;
static struct cluster_settings settings[2];

static void door_submit(struct store *base, struct store_op *op, bool urgent)
{
    struct door *d = container_of(base, struct door, base);
    d->asked += op->kind == STORE_LEASE;
    if (d->shut && op->kind == STORE_LEASE && d->n_kept < 16)
        d->kept[d->n_kept++] = op;
    else
        st->ops->submit(st, op, urgent);
}

static void open_door(struct door *d)
{
    d->shut = false;
    for (size_t k = 0; k < d->n_kept; k++)
        st->ops->submit(st, d->kept[k], true);
    d->n_kept = 0;
}

static struct store_ops door_ops;

static void turn(int64_t ms)
{
    for (int64_t left = ms; left >= 0; left -= 50) {
        now_ms += left < 50 ? left : 50;
        clock_set(c, now_ms, 1700000000000 + now_ms);
        for (int i = 0; i < 4; i++)
            clock_turn(c);
        if (left == 0)
            break;
    }
}

static void on_over(void *ctx, const char *why)
{
    assert_non_null(why);
    ++*(int *)ctx;
}

static void start(int n)
{
    doors[n].base = *st;
    door_ops = *st->ops;
    door_ops.submit = door_submit;
    doors[n].base.ops = &door_ops;
    node[n] = node_open(&(struct node_env){.clock = c,
                                           .store = &doors[n].base,
                                           .rand = &rnd,
                                           .settings = &settings[n],
                                           .over = on_over,
                                           .ctx = &overs[n]});
}

/* What the program does when everything is read. */
static void begin(int n)
{
    node_move(node[n], &doors[n].base);
    turn(100);
}

static int setup(void **state)
{
    c = clock_new();
    now_ms = 1000;
    clock_set(c, now_ms, 1700000000000 + now_ms);
    st = store_memory_new_shared(c);
    rnd = rand_seeded(7);
    memset(doors, 0, sizeof doors);
    memset(overs, 0, sizeof overs);
    node[0] = node[1] = NULL;
    for (int n = 0; n < 2; n++)
        settings[n] = (struct cluster_settings){.node = xstrdup(n == 0 ? "north" : "south"),
                                                .lease_ms = LEASE_MS};
    start(0);
    turn(100);
    return 0;
}

static int teardown(void **state)
{
    turn(100); /* the records under way belong to the doors */
    store_close(st);
    for (int n = 0; n < 2; n++) {
        node_free(node[n]);
        free(settings[n].node);
    }
    clock_free(c);
    return 0;
}

static void the_first_one_serves_and_the_second_stands_by(void **state)
{
    begin(0);
    start(1);
    turn(30000);
    assert_int_equal(node_state(node[0]), NODE_SERVING);
    assert_int_equal(node_state(node[1]), NODE_WAITING);
    assert_memory_equal(node_holder(node[1]), "north/", 6);
    assert_int_equal(overs[0], 0);
    assert_true(node_left_ms(node[0]) > LEASE_MS / 2);
}

/* Whoever reads everything is kept by somebody else; when it dies, the lease ends as always. */
static void who_has_just_begun_has_no_longer_than_the_others(void **state)
{
    assert_int_equal(node_state(node[0]), NODE_SERVING);
    assert_true(node_left_ms(node[0]) <= LEASE_MS);
    start(1);
    turn(LEASE_MS + 300);
    assert_int_equal(node_state(node[1]), NODE_SERVING);
    assert_int_equal(node_state(node[0]), NODE_OVER);
}

static void who_was_kept_while_it_started_counts_from_the_newest_renewal(void **state)
{
    int64_t asked_ms = now_ms + 2 * LEASE_MS;
    node_move(node[0], &doors[0].base);
    node_kept(node[0], 0); /* none succeeded */
    assert_true(node_left_ms(node[0]) <= LEASE_MS);
    now_ms += 2 * LEASE_MS + LEASE_MS / 2; /* so long it read, and did not turn */
    node_kept(node[0], asked_ms);
    clock_set(c, now_ms, 1700000000000 + now_ms);
    node_look(node[0]);
    assert_int_equal(node_state(node[0]), NODE_SERVING);
    assert_int_equal(node_left_ms(node[0]), LEASE_MS / 2);
    now_ms += LEASE_MS / 2;
    clock_set(c, now_ms, 1700000000000 + now_ms);
    node_look(node[0]);
    assert_int_equal(node_state(node[0]), NODE_OVER);
}

static void who_goes_while_it_is_granted_leaves_no_lease_behind(void **state)
{
    begin(0);
    start(1);
    turn(300);
    doors[1].shut = true;
    turn(300); /* it has asked */
    node_release(node[0]);
    turn(50);
    assert_false(node_rests(node[1]));
    open_door(&doors[1]);
    turn(50);
    assert_true(node_rests(node[1]));
    assert_int_equal(node_state(node[1]), NODE_SERVING);
    node_release(node[1]);
    turn(50);
    node_free(node[0]);
    start(0);
    turn(100);
    assert_int_equal(node_state(node[0]), NODE_SERVING);
}

static void who_rests_asks_no_more(void **state)
{
    begin(0);
    start(1);
    turn(300);
    assert_true(node_rests(node[1]));
    unsigned asked = (unsigned)doors[1].asked;
    turn(5000);
    assert_int_equal(doors[1].asked, asked);
}

static void who_stands_by_takes_over_when_the_lease_ends(void **state)
{
    begin(0);
    start(1);
    turn(1000);
    doors[0].shut = true; /* the machine is gone, or its line is */
    turn(LEASE_MS / 2);
    assert_int_equal(node_state(node[1]), NODE_WAITING);
    turn(LEASE_MS);
    assert_int_equal(node_state(node[1]), NODE_SERVING);
}

static void who_does_not_reach_the_store_is_over_before_another_serves(void **state)
{
    begin(0);
    start(1);
    turn(1000);
    doors[0].shut = true;
    for (int i = 0; i < 300 && node_state(node[1]) != NODE_SERVING; i++) {
        turn(50);
        if (node_state(node[1]) == NODE_SERVING)
            assert_int_equal(node_state(node[0]), NODE_OVER);
    }
    assert_int_equal(node_state(node[1]), NODE_SERVING);
    assert_int_equal(overs[0], 1);
}

static void its_time_counts_from_before_the_request(void **state)
{
    begin(0);
    turn(LEASE_MS / 3 - 100); /* just before it is renewed */
    doors[0].shut = true;
    turn(1000); /* the request is out; its answer comes late */
    int64_t asked_ms = now_ms - 1000;
    open_door(&doors[0]);
    turn(50);
    assert_true(node_left_ms(node[0]) <= asked_ms + LEASE_MS + 150 - now_ms);
}

static void a_process_that_was_stopped_is_over_in_its_first_turn(void **state)
{
    begin(0);
    start(1);
    turn(1000);
    now_ms += 3 * LEASE_MS; /* nobody turned the clock meanwhile */
    clock_set(c, now_ms, 1700000000000 + now_ms);
    clock_turn(c);
    assert_int_equal(node_state(node[0]), NODE_OVER);
    assert_int_equal(overs[0], 1);
}

/* What waited for it is not heard before. */
static void a_process_that_was_stopped_learns_so_before_its_turn(void **state)
{
    begin(0);
    node_look(node[0]);
    assert_int_equal(node_state(node[0]), NODE_SERVING);
    now_ms += LEASE_MS;
    clock_set(c, now_ms, 1700000000000 + now_ms);
    node_look(node[0]);
    assert_int_equal(node_state(node[0]), NODE_OVER);
    assert_int_equal(overs[0], 1);
}

static void what_is_given_up_is_taken_at_once(void **state)
{
    begin(0);
    start(1);
    turn(1000);
    node_release(node[0]);
    turn(300);
    assert_int_equal(node_state(node[0]), NODE_OVER);
    assert_int_equal(node_state(node[1]), NODE_SERVING);
    assert_int_equal(overs[0], 0); /* it knows */
}

static void every_term_has_a_larger_epoch(void **state)
{
    begin(0);
    uint64_t first = node_epoch(node[0]);
    start(1);
    turn(1000);
    node_release(node[0]);
    turn(300);
    assert_true(node_epoch(node[1]) > first);
}

static void an_answer_that_took_longer_than_its_grant_is_none(void **state)
{
    start(1);
    begin(0);
    doors[1].shut = true;
    turn(1000);
    node_release(node[0]);
    turn(LEASE_MS + 100);
    open_door(&doors[1]); /* the old request is granted only now, the store says */
    clock_turn(c);
    clock_turn(c);
    assert_int_not_equal(node_state(node[1]), NODE_SERVING);
    turn(1000);
    assert_int_equal(node_state(node[1]), NODE_SERVING); /* it asked again */
}

static void a_lease_that_is_another_s_ends_it_before_its_time(void **state)
{
    struct store_lease freed = {.verb = LEASE_RELEASE, .name = STR("serve")};
    struct store_lease theft = {.verb = LEASE_TAKE,
                                .name = STR("serve"),
                                .owner = STR("operator"),
                                .ttl_ms = 60000};
    begin(0);
    freed.owner = str_of(node_owner(node[0]));
    freed.epoch = node_epoch(node[0]);
    store_lease(st, &freed);
    store_lease(st, &theft);
    turn(LEASE_MS / 3 + 200);
    assert_int_equal(node_state(node[0]), NODE_OVER);
    assert_int_equal(overs[0], 1);
}

static void two_of_one_name_are_two(void **state)
{
    free(settings[1].node);
    settings[1].node = xstrdup("north");
    begin(0);
    start(1);
    turn(3 * LEASE_MS);
    assert_int_equal(node_state(node[0]), NODE_SERVING);
    assert_int_equal(node_state(node[1]), NODE_WAITING);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(cluster_test_node)
{
    const struct CMUnitTest tests[] = {
        T(the_first_one_serves_and_the_second_stands_by),
        T(who_has_just_begun_has_no_longer_than_the_others),
        T(who_was_kept_while_it_started_counts_from_the_newest_renewal),
        T(who_goes_while_it_is_granted_leaves_no_lease_behind),
        T(who_rests_asks_no_more),
        T(who_stands_by_takes_over_when_the_lease_ends),
        T(who_does_not_reach_the_store_is_over_before_another_serves),
        T(its_time_counts_from_before_the_request),
        T(a_process_that_was_stopped_is_over_in_its_first_turn),
        T(a_process_that_was_stopped_learns_so_before_its_turn),
        T(what_is_given_up_is_taken_at_once),
        T(every_term_has_a_larger_epoch),
        T(an_answer_that_took_longer_than_its_grant_is_none),
        T(a_lease_that_is_another_s_ends_it_before_its_time),
        T(two_of_one_name_are_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
