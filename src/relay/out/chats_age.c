/* chats_age.c - chats that were heard from no more for longer than the retention go.
 *
 * The record of a chat says on which day it was last heard from, and memory has two bytes for each
 * that tell whether it still says so: one write a day for a chat that is used, none where there is
 * no retention.  Records without a day are of a time without a retention; they get today's. */
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"
#include "relay/out/chats.h"
#include "relay/out/chats_priv.h"
#include "store/store.h"
#include "store/sweep.h"

#define DAY_MS (24 * INT64_C(3600000))

uint16_t chats_today(const struct relay *r)
{
    return (uint16_t)(clock_wall_ms(r->env.clock) / DAY_MS);
}

uint16_t chat_day(const struct known_chat *c)
{
    const struct chats *t = chats_of(c->inst);
    uint32_t number = chats_number(c);

    return number < t->n_days ? t->days[number] : 0;
}

void chat_set_day(const struct known_chat *c, uint16_t day)
{
    struct chats *t = chats_of(c->inst);
    uint32_t number = chats_number(c);

    if (day == 0 && number >= t->n_days)
        return;
    if (number >= t->n_days) {
        size_t n = ((size_t)number + 1) * 2;
        t->days = xrealloc(t->days, n * sizeof t->days[0]);
        memset(t->days + t->n_days, 0, (n - t->n_days) * sizeof t->days[0]);
        t->n_days = n;
    }
    t->days[number] = day;
}

void chats_retain(struct relay *r, int64_t retention_ms)
{
    r->chats->retention_ms = retention_ms;
}

static struct known_chat *chat_of(struct relay *r, struct str key)
{
    struct str tenant, name, platform;

    if (!str_split(&key, '\x1f', &tenant) || !str_split(&key, '\x1f', &name) ||
        !str_split(&key, '\x1f', &platform) || key.p == NULL)
        return NULL;
    struct instance *i = instance_find(r, tenant, name);
    return i != NULL ? chats_find_on(i, platform, key) : NULL;
}

static bool goes(void *ctx, struct str key, struct str value)
{
    struct relay *r = ctx;
    int64_t keep_days = (r->chats->retention_ms + DAY_MS - 1) / DAY_MS, day;
    struct known_chat *c = chat_of(r, key);
    struct json doc;

    if (r->chats->retention_ms <= 0 || c == NULL || !json_parse(r->json, value, &doc))
        return false; /* of a life that is over: life.h sees to it */
    if (!json_as_i64(json_get(doc, "day"), &day)) {
        if (chat_day(c) == 0)
            chat_store(c);
        return false;
    }
    if (chat_day(c) != 0 && chat_day(c) != day)
        return false; /* written anew meanwhile */
    if (chats_today(r) - day > keep_days)
        chat_forget_one(c); /* with its record */
    return false;
}

const struct sweep_ops chats_age_ops = {.goes = goes};
