/* redis.c - design.  (redis.h has the contract and the picture.)
 *
 * Every message starts with whose it is (bus_belong()) and a random number of the process that
 * published it, by which that one knows its own again and leaves it: it has heard it already. */
#include "bus/redis/redis.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "bus/redis/redis_line.h"
#include "net/loop.h"

enum { WHOSE_DIGITS = 8, ORIGIN_DIGITS = 16 };

struct heard {         /* who wants a topic */
    const char *topic; /* borrowed */
    bus_cb *cb;
    void *ctx;
};

struct lost {
    bus_lost_cb *cb;
    void *ctx;
};

struct bus_redis {
    struct bus base;
    struct bus *local; /* owned: our own messages to ourselves */
    struct redis_address address;
    struct redis_line saying, hearing;
    struct buf prefix;              /* owned; with its colon */
    char origin[ORIGIN_DIGITS + 1]; /* whose, then who */
    struct heard *topics;           /* owned */
    size_t n_topics, cap_topics;
    struct lost *losers; /* owned */
    size_t n_losers;
    bool was_up;             /* heard at least once: what comes again after that was lost before */
    bool warned;             /* of another installation */
    bool delivering, closed; /* closed while delivering: freed when that ends */
    struct timer bury;
};

static struct bus_redis *redis_of(struct bus *b)
{
    return container_of(b, struct bus_redis, base);
}

static struct str channel_of(const struct bus_redis *b, struct str topic, struct buf *room)
{
    buf_add_str(room, buf_str(&b->prefix));
    buf_add_str(room, topic);
    return buf_str(room);
}

/* ---- to the others ---- */

static void redis_publish(struct bus *base, struct str topic, struct str message)
{
    struct bus_redis *b = redis_of(base);
    struct buf channel = BUF_INIT, text = BUF_INIT;

    bus_publish(b->local, topic, message);
    if (b->saying.state != REDIS_UP || message.n > BUS_REDIS_MAX_MESSAGE)
        return;
    buf_add_z(&text, b->origin);
    buf_add_str(&text, message);
    redis_line_say(&b->saying,
                   (const struct str[]){STR("PUBLISH"), channel_of(b, topic, &channel),
                                        buf_str(&text)},
                   3);
    buf_done(&channel);
    buf_done(&text);
}

/* ---- from the others ---- */

static void warn_of_stranger(struct bus_redis *b)
{
    if (!b->warned)
        log_warn(NULL,
                 "bus: another installation uses the prefix %.*s on this Redis too: its news are "
                 "not heard here; give each a bus.prefix of its own",
                 (int)b->prefix.n - 1, b->prefix.p);
    b->warned = true;
}

static void on_message(void *ctx, const struct resp *r)
{
    struct bus_redis *b = ctx;
    struct str topic = r->items[1], text = r->items[2];

    if (!str_starts(topic, buf_str(&b->prefix)) || text.n < ORIGIN_DIGITS ||
        memcmp(text.p, b->origin, ORIGIN_DIGITS) == 0)
        return;
    if (memcmp(text.p, b->origin, WHOSE_DIGITS) != 0) {
        warn_of_stranger(b);
        return;
    }
    topic = str_skip(topic, b->prefix.n);
    text = str_skip(text, ORIGIN_DIGITS);
    b->delivering = true;
    for (size_t k = 0, n = b->n_topics; k < n && !b->closed; k++) {
        struct heard h = b->topics[k];
        if (str_eq(str_of(h.topic), topic))
            h.cb(h.ctx, topic, text);
    }
    b->delivering = false;
}

static void say_subscribe(struct bus_redis *b, const char *topic)
{
    struct buf channel = BUF_INIT;

    redis_line_say(&b->hearing,
                   (const struct str[]){STR("SUBSCRIBE"), channel_of(b, str_of(topic), &channel)},
                   2);
    buf_done(&channel);
}

static bool is_first_of_topic(const struct bus_redis *b, size_t at)
{
    for (size_t k = 0; k < at; k++)
        if (strcmp(b->topics[k].topic, b->topics[at].topic) == 0)
            return false;
    return true;
}

static void greet_hearing(void *ctx, struct redis_line *l)
{
    struct bus_redis *b = ctx;

    (void)l;
    for (size_t k = 0; k < b->n_topics; k++)
        if (is_first_of_topic(b, k))
            say_subscribe(b, b->topics[k].topic);
}

static void on_saying(void *ctx, struct redis_line *l)
{
    (void)ctx, (void)l;
}

static void on_hearing(void *ctx, struct redis_line *l)
{
    struct bus_redis *b = ctx;

    (void)l;
    b->delivering = true;
    for (size_t k = 0, n = b->n_losers; b->was_up && k < n && !b->closed; k++)
        b->losers[k].cb(b->losers[k].ctx);
    b->delivering = false;
    b->was_up = true;
}

static void redis_subscribe(struct bus *base, const char *topic, bus_cb *cb, void *ctx)
{
    struct bus_redis *b = redis_of(base);

    bus_subscribe(b->local, topic, cb, ctx);
    if (b->n_topics == b->cap_topics) {
        b->cap_topics = b->cap_topics == 0 ? 8 : b->cap_topics * 2;
        b->topics = xrealloc(b->topics, b->cap_topics * sizeof *b->topics);
    }
    b->topics[b->n_topics++] = (struct heard){topic, cb, ctx};
    if (is_first_of_topic(b, b->n_topics - 1))
        say_subscribe(b, topic); /* does nothing while there is no line: it greets with all */
}

static bool redis_is_deaf(const struct bus *base)
{
    return container_of(base, const struct bus_redis, base)->hearing.state != REDIS_UP;
}

static void redis_belong(struct bus *base, uint32_t whose)
{
    char digits[WHOSE_DIGITS + 1];

    snprintf(digits, sizeof digits, "%08" PRIx32, whose);
    memcpy(redis_of(base)->origin, digits, WHOSE_DIGITS);
}

static void redis_on_lost(struct bus *base, bus_lost_cb *cb, void *ctx)
{
    struct bus_redis *b = redis_of(base);

    b->losers = xrealloc(b->losers, (b->n_losers + 1) * sizeof *b->losers);
    b->losers[b->n_losers++] = (struct lost){cb, ctx};
}

/* ---- opening and closing ---- */

static void redis_free(struct bus_redis *b)
{
    redis_line_done(&b->saying);
    redis_line_done(&b->hearing);
    redis_address_done(&b->address);
    buf_done(&b->prefix);
    free(b->topics);
    free(b->losers);
    free(b);
}

static void on_bury(struct timer *t)
{
    redis_free(container_of(t, struct bus_redis, bury));
}

static void redis_close(struct bus *base)
{
    struct bus_redis *b = redis_of(base);

    b->local->ops->close(b->local);
    b->closed = true;
    if (b->delivering)
        timer_set(loop_clock(b->hearing.loop), &b->bury, 0);
    else
        redis_free(b);
}

static const struct bus_ops redis_ops = {
    .name = "redis",
    .publish = redis_publish,
    .subscribe = redis_subscribe,
    .is_deaf = redis_is_deaf,
    .on_lost = redis_on_lost,
    .close = redis_close,
    .belong = redis_belong,
};

bool bus_redis_url_ok(const char *url, char *ret_why)
{
    struct redis_address a;
    bool ok = redis_address_read(url, &a, ret_why);

    redis_address_done(&a);
    return ok;
}

enum bh_err bus_redis_open(struct loop *loop, const struct bus_settings *s, struct bus **ret_b,
                           char *ret_why)
{
    struct bus_redis *b = xcalloc(1, sizeof *b);
    struct rand rand = RAND_SYSTEM;
    uint64_t origin;

    b->base.ops = &redis_ops;
    if (!redis_address_read(s->url, &b->address, ret_why)) {
        free(b);
        return BH_MALFORMED;
    }
    b->address.ca = s->ca;
    b->local = bus_local_new(loop_clock(loop));
    buf_printf(&b->prefix, "%s:", s->prefix);
    rand_bytes(&rand, &origin, sizeof origin);
    snprintf(b->origin, sizeof b->origin, "%016" PRIx64, origin & UINT32_MAX);
    timer_init(&b->bury, on_bury);
    redis_line_init(&b->saying, loop, &b->address);
    redis_line_init(&b->hearing, loop, &b->address);
    b->saying.name = "publishing";
    b->saying.up = on_saying;
    b->saying.message = on_message; /* never: it subscribes to nothing */
    b->hearing.name = "hearing";
    b->hearing.greet = greet_hearing;
    b->hearing.up = on_hearing;
    b->hearing.message = on_message;
    b->saying.ctx = b->hearing.ctx = b;
    *ret_b = &b->base;
    return BH_OK;
}
