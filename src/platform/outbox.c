/* outbox.c - design.  (outbox.h has the contract.)
 *
 * A lane exists while it has an item, waiting or running.  Where it stands is what it does:
 *
 *      RESTING (its wake timer runs) --due--> READY (linked in box->ready) --pump--> RUNNING
 *         ^------------- again(delay) ---------------------------------------------'   |
 *      READY <-------------------------------- done(), more items waiting -------------'
 *
 * One pump per outbox, driven by a timer, starts items: so start() never nests in another call, and
 * lanes take turns when more of them are ready than may run.  A waiting item carries its own timer
 * for its deadline, so one that stands behind a long rate limit fails on time, not when the limit
 * ends. */
#include "platform/outbox.h"
#include <assert.h>
#include <stdlib.h>
#include "base/map.h"

enum lane_state { LANE_RESTING, LANE_READY, LANE_RUNNING };

struct outbox_lane {
    struct outbox *box; /* borrowed */
    char *key;          /* owned */
    struct list items;  /* waiting, first is next */
    size_t n;
    struct outbox_item *running; /* borrowed from its owner; NULL: none */
    struct list link;            /* in box->ready while READY */
    struct timer wake;           /* armed while RESTING */
    enum lane_state state;
};

struct outbox {
    struct clock *clock; /* borrowed */
    struct outbox_limits limits;
    const struct outbox_handlers *h; /* borrowed */
    void *ctx;
    struct map lanes; /* key -> lane, owned */
    struct list ready;
    struct timer pump;
    int64_t paused_until_ms;
    size_t waiting, running;
};

static timer_cb on_pump, on_wake, on_late;

struct outbox *outbox_new(struct clock *clock, const struct outbox_limits *limits,
                          const struct outbox_handlers *h, void *ctx)
{
    struct outbox *box = xcalloc(1, sizeof *box);

    box->clock = clock;
    box->limits = limits != NULL ? *limits : (struct outbox_limits){0};
    if (box->limits.max_lane == 0)
        box->limits.max_lane = 64;
    if (box->limits.max_all == 0)
        box->limits.max_all = 4096;
    if (box->limits.max_running == 0)
        box->limits.max_running = 64;
    box->h = h;
    box->ctx = ctx;
    list_init(&box->ready);
    timer_init(&box->pump, on_pump);
    return box;
}

static void lane_free(struct outbox_lane *lane)
{
    map_del(&lane->box->lanes, str_of(lane->key));
    timer_stop(lane->box->clock, &lane->wake);
    list_remove(&lane->link);
    free(lane->key);
    free(lane);
}

static struct outbox_lane *lane_get(struct outbox *box, struct str key)
{
    struct outbox_lane *lane = map_get(&box->lanes, key);

    if (lane != NULL)
        return lane;
    lane = xcalloc(1, sizeof *lane);
    lane->box = box;
    lane->key = str_dup(key);
    list_init(&lane->items);
    list_init(&lane->link);
    timer_init(&lane->wake, on_wake);
    map_put(&box->lanes, str_of(lane->key), lane);
    return lane;
}

static void lane_set_ready(struct outbox_lane *lane)
{
    struct outbox *box = lane->box;

    lane->state = LANE_READY;
    timer_stop(box->clock, &lane->wake);
    list_move(&lane->link, &box->ready);
    if (!timer_is_set(&box->pump))
        timer_set(box->clock, &box->pump, box->paused_until_ms - clock_now_ms(box->clock));
}

static void on_wake(struct timer *t)
{
    struct outbox_lane *lane = container_of(t, struct outbox_lane, wake);

    if (lane->n == 0)
        lane_free(lane); /* its last item ran late while the lane rested */
    else
        lane_set_ready(lane);
}

/* Take @it off its lane, where it waits. */
static void item_unlink(struct outbox_item *it)
{
    struct outbox_lane *lane = it->lane;

    list_remove(&it->link);
    timer_stop(lane->box->clock, &it->late);
    lane->n--;
    lane->box->waiting--;
}

static void on_late(struct timer *t)
{
    struct outbox_item *it = container_of(t, struct outbox_item, late);
    struct outbox_lane *lane = it->lane;
    struct outbox *box = lane->box;

    item_unlink(it);
    it->lane = NULL;
    if (lane->n == 0 && lane->state == LANE_READY)
        lane_free(lane); /* a resting lane keeps its rest: the next item owes it too */
    box->h->drop(box->ctx, it, OUTBOX_LATE);
}

static void lane_start(struct outbox_lane *lane)
{
    struct outbox *box = lane->box;
    struct outbox_item *it = list_first(&lane->items, struct outbox_item, link);

    item_unlink(it);
    list_remove(&lane->link);
    lane->state = LANE_RUNNING;
    lane->running = it;
    box->running++;
    it->starts++;
    box->h->start(box->ctx, it);
}

static void on_pump(struct timer *t)
{
    struct outbox *box = container_of(t, struct outbox, pump);

    while (!list_is_empty(&box->ready) && box->running < box->limits.max_running) {
        int64_t pause_ms = box->paused_until_ms - clock_now_ms(box->clock);

        if (pause_ms > 0) {
            timer_set(box->clock, &box->pump, pause_ms);
            return;
        }
        lane_start(list_first(&box->ready, struct outbox_lane, link));
    }
}

enum bh_err outbox_add(struct outbox *box, struct outbox_item *it, struct str key,
                       int64_t patience_ms)
{
    struct outbox_lane *lane = map_get(&box->lanes, key);

    if (box->waiting >= box->limits.max_all || (lane != NULL && lane->n >= box->limits.max_lane))
        return BH_BUSY;
    if (lane != NULL && lane->state == LANE_RESTING &&
        lane->wake.due_ms > clock_now_ms(box->clock) + patience_ms)
        return BH_UNAVAILABLE; /* it would only grow old */
    bool fresh = lane == NULL;
    lane = lane_get(box, key);
    it->lane = lane;
    it->deadline_ms = clock_now_ms(box->clock) + patience_ms;
    it->starts = 0;
    list_init(&it->link);
    list_append(&lane->items, &it->link);
    timer_init(&it->late, on_late);
    timer_set(box->clock, &it->late, patience_ms);
    lane->n++;
    box->waiting++;
    if (fresh)
        lane_set_ready(lane);
    return BH_OK;
}

/* @it runs no more; the place it took is free for another lane. */
static struct outbox_lane *item_stopped(struct outbox *box, struct outbox_item *it)
{
    struct outbox_lane *lane = it->lane;

    assert(lane != NULL && lane->running == it);
    lane->running = NULL;
    box->running--;
    if (!list_is_empty(&box->ready) && !timer_is_set(&box->pump))
        timer_set(box->clock, &box->pump, 0);
    return lane;
}

void outbox_done(struct outbox *box, struct outbox_item *it)
{
    struct outbox_lane *lane = item_stopped(box, it);

    it->lane = NULL;
    if (lane->n == 0)
        lane_free(lane);
    else
        lane_set_ready(lane);
}

void outbox_again(struct outbox *box, struct outbox_item *it, int64_t delay_ms)
{
    struct outbox_lane *lane = item_stopped(box, it);
    int64_t now = clock_now_ms(box->clock);

    list_add_before(lane->items.next, &it->link);
    lane->n++;
    box->waiting++;
    lane->state = LANE_RESTING;
    timer_set(box->clock, &lane->wake, delay_ms > 0 ? delay_ms : 1);
    timer_set(box->clock, &it->late, now + delay_ms >= it->deadline_ms ? 0 : it->deadline_ms - now);
}

void outbox_pause(struct outbox *box, int64_t for_ms)
{
    int64_t until = clock_now_ms(box->clock) + for_ms;

    if (until > box->paused_until_ms)
        box->paused_until_ms = until;
}

int64_t outbox_paused_ms(const struct outbox *box)
{
    int64_t left_ms = box->paused_until_ms - clock_now_ms(box->clock);

    return left_ms > 0 ? left_ms : 0;
}

size_t outbox_waiting(const struct outbox *box)
{
    return box->waiting;
}

size_t outbox_running(const struct outbox *box)
{
    return box->running;
}

static void lane_close(struct outbox_lane *lane)
{
    struct outbox *box = lane->box;
    struct outbox_item *running = lane->running;

    if (running != NULL) {
        lane->running = NULL;
        running->lane = NULL;
        box->h->drop(box->ctx, running, OUTBOX_CLOSED);
    }
    while (lane->n > 0) {
        struct outbox_item *it = list_first(&lane->items, struct outbox_item, link);

        item_unlink(it);
        it->lane = NULL;
        box->h->drop(box->ctx, it, OUTBOX_CLOSED);
    }
    lane_free(lane);
}

void outbox_free(struct outbox *box)
{
    if (box == NULL)
        return;
    timer_stop(box->clock, &box->pump);
    void *lane;
    for (size_t at = 0; map_next(&box->lanes, &at, &lane);)
        lane_close(lane);
    map_done(&box->lanes);
    free(box);
}
