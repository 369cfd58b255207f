/* outbox.c - design.  (outbox.h has the contract.)
 *
 * A lane exists while it has an item or rests.  Its state says where it is linked:
 *
 *      RESTING (its wake timer runs) --due--> READY (linked in payer->ready) --pump--> RUNNING
 *         ^------------- again(delay) -----------------------------------------------'   |
 *      READY <---------------------------------- done(), more items waiting -------------'
 *
 * A ready lane is linked at the payer of its first item.  A payer that has ready lanes and may run
 * more items is linked in box->ready.  One pump per outbox, driven by a timer, starts items.  So
 * start() never nests in another call, payers take turns, and so do the lanes of a payer.  Each
 * waiting item has a timer for its deadline, so an item behind a long rate limit is dropped on
 * time, not when the limit ends. */
#include "platform/outbox.h"
#include <assert.h>
#include <stdlib.h>
#include "base/map.h"

enum lane_state { LANE_RESTING, LANE_READY, LANE_RUNNING };

struct outbox_payer { /* a tenant, while it has items here */
    char *name;       /* owned */
    struct list link; /* in box->ready while it has ready lanes and may run more */
    struct list ready;
    size_t waiting, running, bytes;
};

struct outbox_lane {
    struct outbox *box; /* borrowed */
    char *key;          /* owned */
    struct list items;  /* waiting, first is next */
    size_t n;
    struct outbox_item *running; /* borrowed from its owner; NULL: none */
    struct list link;            /* in payer->ready while READY */
    struct outbox_payer *payer;  /* borrowed; of its first item, while READY */
    struct timer wake;           /* armed while RESTING */
    enum lane_state state;
};

struct blamed { /* refusals of one tenant: this window, and the one before */
    struct list link;
    int64_t since_ms; /* when this window began */
    uint32_t now, before;
    char name[];
};

struct outbox {
    struct clock *clock; /* borrowed */
    struct outbox_limits limits;
    const struct outbox_handlers *h; /* borrowed */
    void *ctx;
    struct map lanes;  /* key -> lane, owned */
    struct map payers; /* name -> payer, owned */
    struct list ready; /* payers */
    struct timer pump;
    size_t most_of_payer; /* items of one payer that may run */
    int64_t paused_until_ms;
    size_t waiting, running, bytes;
    struct map blamed; /* name -> struct blamed, owned */
    struct list blamed_by_age;
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
        box->limits.max_all = 16384;
    if (box->limits.max_bytes == 0)
        box->limits.max_bytes = (size_t)64 << 20;
    if (box->limits.max_running == 0)
        box->limits.max_running = 64;
    box->most_of_payer = box->limits.max_running - box->limits.max_running / 4;
    box->h = h;
    box->ctx = ctx;
    list_init(&box->ready);
    list_init(&box->blamed_by_age);
    timer_init(&box->pump, on_pump);
    return box;
}

/* ---- payers ---- */

/* Links @p into box->ready, or unlinks it: does it take turns? */
static void payer_settle(struct outbox *box, struct outbox_payer *p)
{
    if (list_is_empty(&p->ready) || p->running >= box->most_of_payer)
        list_remove(&p->link);
    else if (!list_is_linked(&p->link))
        list_append(&box->ready, &p->link);
}

/* @it leaves the outbox for good. */
static void payer_release(struct outbox *box, struct outbox_item *it)
{
    it->payer->bytes -= it->bytes;
    box->bytes -= it->bytes;
    struct outbox_payer *p = it->payer;
    if (p->waiting > 0 || p->running > 0)
        return;
    list_remove(&p->link);
    map_del(&box->payers, str_of(p->name));
    free(p->name);
    free(p);
}

/* ---- lanes ---- */

static void lane_unready(struct outbox_lane *lane)
{
    list_remove(&lane->link);
    if (lane->payer != NULL)
        payer_settle(lane->box, lane->payer);
    lane->payer = NULL;
}

static void lane_free(struct outbox_lane *lane)
{
    lane_unready(lane);
    map_del(&lane->box->lanes, str_of(lane->key));
    timer_stop(lane->box->clock, &lane->wake);
    free(lane->key);
    free(lane);
}

static void lane_set_ready(struct outbox_lane *lane)
{
    struct outbox *box = lane->box;

    lane_unready(lane);
    lane->state = LANE_READY;
    timer_stop(box->clock, &lane->wake);
    lane->payer = list_first(&lane->items, struct outbox_item, link)->payer;
    list_append(&lane->payer->ready, &lane->link);
    payer_settle(box, lane->payer);
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

/* Takes the waiting @it off its lane. */
static void item_unlink(struct outbox_item *it)
{
    struct outbox_lane *lane = it->lane;

    list_remove(&it->link);
    timer_stop(lane->box->clock, &it->late);
    lane->n--;
    lane->box->waiting--;
    it->payer->waiting--;
}

void outbox_remove(struct outbox *box, struct outbox_item *it)
{
    struct outbox_lane *lane = it->lane;

    assert(lane != NULL && lane->running != it);
    item_unlink(it);
    it->lane = NULL;
    if (lane->n == 0 && lane->state == LANE_READY)
        lane_free(lane); /* a resting lane stays: the rate limit holds for the next item too */
    else if (lane->state == LANE_READY)
        lane_set_ready(lane); /* its first item may have another payer now */
    payer_release(box, it);
}

static void on_late(struct timer *t)
{
    struct outbox_item *it = container_of(t, struct outbox_item, late);
    struct outbox *box = it->lane->box;

    outbox_remove(box, it);
    box->h->drop(box->ctx, it, OUTBOX_LATE);
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
        struct outbox_payer *p = list_first(&box->ready, struct outbox_payer, link);
        list_move(&p->link, &box->ready); /* to the end: payers take turns */
        struct outbox_lane *lane = list_first(&p->ready, struct outbox_lane, link);
        struct outbox_item *it = list_first(&lane->items, struct outbox_item, link);
        item_unlink(it);
        box->running++;
        it->payer->running++;
        lane_unready(lane);
        lane->state = LANE_RUNNING;
        lane->running = it;
        it->starts++;
        box->h->start(box->ctx, it);
    }
}

/* May @p, NULL: a new payer, not add @bytes to @lane, NULL: a new lane?  Once the outbox is full, a
 * payer may not have more than an even share. */
static bool is_full(const struct outbox *box, const struct outbox_lane *lane,
                    const struct outbox_payer *p, size_t bytes)
{
    size_t n = p != NULL ? p->waiting : 0, n_payers = map_count(&box->payers) + (p == NULL);
    size_t of_payer = bytes + (p != NULL ? p->bytes : 0), most = box->limits.max_bytes, in_lane = 0;

    if ((box->waiting >= box->limits.max_all && n >= box->limits.max_all / n_payers) ||
        (box->bytes + bytes > most && of_payer > most / n_payers))
        return true;
    if (lane == NULL || lane->n < box->limits.max_lane)
        return false;
    for (const struct list *at = lane->items.next; at != &lane->items; at = at->next)
        in_lane += list_entry(at, const struct outbox_item, link)->payer == p;
    return in_lane >= box->limits.max_lane;
}

enum bh_err outbox_add(struct outbox *box, struct outbox_item *it, struct str payer, struct str key,
                       int64_t patience_ms)
{
    struct outbox_lane *lane = map_get(&box->lanes, key);
    struct outbox_payer *p = map_get(&box->payers, payer);
    bool fresh = lane == NULL;

    if (is_full(box, lane, p, it->bytes))
        return BH_BUSY;
    if (lane != NULL && lane->state == LANE_RESTING &&
        timer_due_ms(box->clock, &lane->wake) > clock_now_ms(box->clock) + patience_ms)
        return BH_UNAVAILABLE; /* the item would only miss its deadline */
    if (lane == NULL) {
        lane = xcalloc(1, sizeof *lane);
        lane->box = box;
        lane->key = str_dup(key);
        list_init(&lane->items);
        timer_init(&lane->wake, on_wake);
        map_put(&box->lanes, str_of(lane->key), lane);
    }
    if (p == NULL) {
        p = xcalloc(1, sizeof *p);
        p->name = str_dup(payer);
        list_init(&p->ready);
        map_put(&box->payers, str_of(p->name), p);
    }
    p->waiting++;
    p->bytes += it->bytes;
    it->payer = p;
    it->lane = lane;
    box->bytes += it->bytes;
    it->deadline_ms = clock_now_ms(box->clock) + patience_ms;
    it->starts = 0;
    list_append(&lane->items, &it->link);
    timer_init(&it->late, on_late);
    timer_set(box->clock, &it->late, patience_ms);
    lane->n++;
    box->waiting++;
    if (fresh)
        lane_set_ready(lane);
    return BH_OK;
}

/* Gives back the running slot of @it and wakes the pump. */
static struct outbox_lane *item_stopped(struct outbox *box, struct outbox_item *it)
{
    struct outbox_lane *lane = it->lane;

    assert(lane != NULL && lane->running == it);
    lane->running = NULL;
    box->running--;
    it->payer->running--;
    payer_settle(box, it->payer);
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
    payer_release(box, it);
}

bool outbox_is_running(const struct outbox_item *it)
{
    return it->lane != NULL && it->lane->running == it;
}

bool outbox_starts_at_once(const struct outbox *box, const struct outbox_item *it)
{
    return it->lane->state == LANE_READY && it->lane->items.next == &it->link &&
           box->paused_until_ms <= clock_now_ms(box->clock) &&
           box->waiting + box->running <= box->most_of_payer;
}

void outbox_hurry(struct outbox *box, struct outbox_item *it)
{
    struct outbox_lane *lane = it->lane;

    if (lane != NULL && lane->state == LANE_RESTING)
        timer_set(box->clock, &lane->wake, 0);
}

int64_t outbox_next_ms(const struct outbox_item *it)
{
    const struct outbox_lane *lane = it->lane;

    return lane != NULL && lane->state == LANE_RESTING ? timer_due_ms(lane->box->clock, &lane->wake)
                                                       : 0;
}

void outbox_again(struct outbox *box, struct outbox_item *it, int64_t delay_ms)
{
    struct outbox_lane *lane = item_stopped(box, it);
    int64_t now = clock_now_ms(box->clock);

    list_add_before(lane->items.next, &it->link);
    lane->n++;
    box->waiting++;
    it->payer->waiting++;
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

/* ---- tenants whose requests the platform refuses ---- */

void outbox_blame(struct outbox *box, struct str who)
{
    int64_t now_ms = clock_now_ms(box->clock);

    while (!list_is_empty(&box->blamed_by_age)) {
        struct blamed *old = list_first(&box->blamed_by_age, struct blamed, link);
        if (now_ms - old->since_ms < 2 * BLAME_MS)
            break;
        map_del(&box->blamed, str_of(old->name));
        list_remove(&old->link);
        free(old);
    }
    struct blamed *t = map_get(&box->blamed, who);
    if (t == NULL) {
        t = xcalloc(1, sizeof *t + who.n + 1);
        memcpy(t->name, who.n > 0 ? who.p : "", who.n);
        t->since_ms = now_ms;
        list_append(&box->blamed_by_age, &t->link);
        map_put(&box->blamed, str_of(t->name), t);
    }
    if (now_ms - t->since_ms >= BLAME_MS) {
        t->before = t->now;
        t->now = 0;
        t->since_ms = now_ms;
        list_move(&t->link, &box->blamed_by_age);
    }
    t->now++;
}

/* A sliding window from two counters: the earlier window weighs less as the current one ages. */
bool outbox_is_blamed(const struct outbox *box, struct str who)
{
    const struct blamed *t = map_get(&box->blamed, who);
    int64_t age_ms = t != NULL ? clock_now_ms(box->clock) - t->since_ms : 0;

    if (t == NULL || age_ms >= 2 * BLAME_MS)
        return false;
    if (age_ms >= BLAME_MS) /* no refusal has started a new window: this is the earlier one */
        return (int64_t)t->now * (2 * BLAME_MS - age_ms) >= (int64_t)BLAME_MAX * BLAME_MS;
    return (int64_t)t->now * BLAME_MS + (int64_t)t->before * (BLAME_MS - age_ms) >=
           (int64_t)BLAME_MAX * BLAME_MS;
}

size_t outbox_n_blamed(const struct outbox *box)
{
    return map_count(&box->blamed);
}

/* ---- life ---- */

void outbox_free(struct outbox *box)
{
    if (box == NULL)
        return;
    timer_stop(box->clock, &box->pump);
    void *v;
    for (size_t at = 0; map_next(&box->lanes, &at, &v);) {
        struct outbox_lane *lane = v;
        struct outbox_item *running = lane->running;

        if (running != NULL) {
            lane->running = NULL;
            running->lane = NULL;
            running->payer->running--;
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
    map_done(&box->lanes);
    for (size_t at = 0; map_next(&box->payers, &at, &v);) {
        free(((struct outbox_payer *)v)->name);
        free(v);
    }
    map_done(&box->payers);
    list_each (&box->blamed_by_age, it, nxt)
        free(list_entry(it, struct blamed, link));
    map_done(&box->blamed);
    free(box);
}
