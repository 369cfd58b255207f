/* limits.c - design.  (limits.h has the contract.)
 *
 * Two tables: route + major -> name of its bucket, and bucket + major -> how much is left until
 * when. Before the first answer a route has no bucket and goes unhindered; the lanes above send one
 * request per channel at a time, so at most one goes out blind.  When a table is full everything
 * known is forgotten: the price is one refused request per bucket, and it keeps this small.
 *
 * Beside the buckets at most GLOBAL_PER_SECOND requests are let through in any second. */
#include "platform/discord/limits.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"

enum { MAX_ENTRIES = 20000, GLOBAL_PER_SECOND = 50, SLOTS = 10, SLOT_MS = 60000 };

struct limit_bucket {
    char *key; /* owned */
    int64_t remaining, reset_ms;
};

struct limit_route {
    char *key;    /* owned */
    char *bucket; /* owned; the bucket's key */
};

struct discord_limits {
    struct map routes, buckets; /* values owned */
    struct buf scratch;
    int64_t global_until_ms;
    int64_t second_ms; /* when the second of @in_second began */
    unsigned in_second;
    unsigned refused[SLOTS]; /* per minute, a ring */
    int64_t refused_minute;
};

struct discord_limits *discord_limits_new(void)
{
    return xcalloc(1, sizeof(struct discord_limits));
}

static void forget(struct discord_limits *l)
{
    void *v;

    for (size_t at = 0; map_next(&l->routes, &at, &v);) {
        struct limit_route *r = v;
        free(r->key);
        free(r->bucket);
        free(r);
    }
    for (size_t at = 0; map_next(&l->buckets, &at, &v);) {
        struct limit_bucket *b = v;
        free(b->key);
        free(b);
    }
    map_done(&l->routes);
    map_done(&l->buckets);
    l->routes = l->buckets = MAP_INIT;
}

void discord_limits_free(struct discord_limits *l)
{
    if (l == NULL)
        return;
    forget(l);
    buf_done(&l->scratch);
    free(l);
}

/* @a, a separator, @b; borrowed from l->scratch. */
static struct str pair(struct discord_limits *l, struct str a, struct str b)
{
    buf_reset(&l->scratch);
    buf_add_str(&l->scratch, a);
    buf_add_c(&l->scratch, '\x1f');
    buf_add_str(&l->scratch, b);
    return buf_str(&l->scratch);
}

static struct limit_bucket *get_bucket(struct discord_limits *l, struct str key)
{
    struct limit_bucket *b = map_get(&l->buckets, key);

    if (b != NULL)
        return b;
    b = xcalloc(1, sizeof *b);
    b->key = str_dup(key);
    map_put(&l->buckets, str_of(b->key), b);
    return b;
}

/* Where this route counts: its bucket, or, until Discord names one, a bucket of its own. */
static struct limit_bucket *bucket_of(struct discord_limits *l, struct str route, struct str major,
                                      bool make)
{
    struct str key = pair(l, route, major);
    const struct limit_route *r = map_get(&l->routes, key);
    struct limit_bucket *b = map_get(&l->buckets, r != NULL ? str_of(r->bucket) : key);

    return b == NULL && make ? get_bucket(l, r != NULL ? str_of(r->bucket) : key) : b;
}

static void learn(struct discord_limits *l, struct str route, struct str major, struct str bucket)
{
    struct str key = pair(l, route, major);
    struct limit_route *r = map_get(&l->routes, key);

    if (r == NULL) {
        r = xcalloc(1, sizeof *r);
        r->key = str_dup(key);
        map_put(&l->routes, str_of(r->key), r);
    }
    key = pair(l, bucket, major);
    if (r->bucket != NULL && str_eq(str_of(r->bucket), key))
        return;
    free(r->bucket);
    r->bucket = str_dup(key);
}

int64_t discord_limits_take(struct discord_limits *l, struct str route, struct str major,
                            int64_t now_ms)
{
    struct limit_bucket *b = bucket_of(l, route, major, false);

    if (l->global_until_ms > now_ms)
        return l->global_until_ms - now_ms;
    if (b != NULL && b->remaining <= 0 && b->reset_ms > now_ms)
        return b->reset_ms - now_ms;
    if (now_ms - l->second_ms >= 1000) {
        l->second_ms = now_ms;
        l->in_second = 0;
    }
    if (l->in_second >= GLOBAL_PER_SECOND)
        return l->second_ms + 1000 - now_ms;
    l->in_second++;
    if (b != NULL && b->reset_ms > now_ms)
        b->remaining--;
    return 0;
}

void discord_limits_note(struct discord_limits *l, struct str route, struct str major,
                         int64_t now_ms, const struct discord_limits_headers *h)
{
    if (map_count(&l->routes) >= MAX_ENTRIES || map_count(&l->buckets) >= MAX_ENTRIES)
        forget(l);
    if (!str_is_empty(h->bucket))
        learn(l, route, major, h->bucket);
    if (h->remaining < 0 || h->reset_after_ms < 0)
        return;
    struct limit_bucket *b = bucket_of(l, route, major, true);
    b->remaining = h->remaining;
    b->reset_ms = now_ms + h->reset_after_ms;
}

void discord_limits_hit(struct discord_limits *l, struct str route, struct str major,
                        int64_t now_ms, int64_t wait_ms, bool global)
{
    if (global) {
        if (now_ms + wait_ms > l->global_until_ms)
            l->global_until_ms = now_ms + wait_ms;
        return;
    }
    struct limit_bucket *b = bucket_of(l, route, major, true);
    b->remaining = 0;
    b->reset_ms = now_ms + wait_ms;
}

/* ---- refused requests ---- */

static void turn_ring(struct discord_limits *l, int64_t now_ms)
{
    int64_t minute = now_ms / SLOT_MS;

    if (minute - l->refused_minute >= SLOTS)
        memset(l->refused, 0, sizeof l->refused);
    else
        for (; l->refused_minute < minute; l->refused_minute++)
            l->refused[(l->refused_minute + 1) % SLOTS] = 0;
    l->refused_minute = minute;
}

void discord_limits_refused(struct discord_limits *l, int64_t now_ms)
{
    turn_ring(l, now_ms);
    l->refused[l->refused_minute % SLOTS]++;
}

unsigned discord_limits_refused_count(struct discord_limits *l, int64_t now_ms)
{
    unsigned n = 0;

    turn_ring(l, now_ms);
    for (int i = 0; i < SLOTS; i++)
        n += l->refused[i];
    return n;
}
