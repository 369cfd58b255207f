/* deliver.c - the updates of one getUpdates, until every one of them is accepted.
 *
 *      WAITING --tg_take()--> TAKEN --accepted--> DONE
 *         ^--- timer --- HELD <--busy---'
 *
 * Updates of one chat go one after the other, so that one that must wait holds back what follows it
 * in its chat and nothing else. */
#include <stdlib.h>
#include "platform/telegram/telegram_priv.h"

#define MAX_HELD_MS 30000
#define HELD_IS_A_PROBLEM 5 /* retries */

static uint64_t tag_of(const struct telegram *t, size_t i)
{
    return (uint64_t)t->poll.generation << 32 | i;
}

static int64_t chat_of(struct json update)
{
    int64_t id = 0;

    for (struct json_iter it = {0}; json_next(update, &it);)
        if (json_as_i64(json_get(json_get(it.value, "chat"), "id"), &id))
            break;
    return id;
}

static int by_id(const void *a, const void *b)
{
    const struct tg_update *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

void tg_batch_fill(struct telegram *t, struct json updates)
{
    struct tg_poll *p = &t->poll;

    p->n_batch = 0;
    p->generation++;
    for (struct json_iter it = {0}; p->n_batch < TG_BATCH && json_next(updates, &it);) {
        struct tg_update u = {.update = it.value, .chat = chat_of(it.value)};
        if (json_as_i64(json_get(it.value, "update_id"), &u.id))
            p->batch[p->n_batch++] = u;
    }
    if (p->n_batch > 1)
        qsort(p->batch, p->n_batch, sizeof p->batch[0], by_id);
}

/* Does something of the same chat, earlier in the batch, still wait for its answer? */
static bool must_wait(const struct tg_poll *p, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (p->batch[k].mark != TG_DONE && p->batch[k].chat == p->batch[i].chat)
            return true;
    return false;
}

static void on_taken(struct telegram *t, uint64_t tag, enum bh_err err)
{
    struct tg_poll *p = &t->poll;
    size_t i = (uint32_t)tag;

    if (tag >> 32 != p->generation || i >= p->n_batch)
        return;
    if (err == BH_BUSY || err == BH_UNAVAILABLE) {
        p->batch[i].mark = TG_HELD;
        if (timer_is_set(&p->timer))
            return;
        if (++p->failures == HELD_IS_A_PROBLEM)
            tg_set_problem(t,
                           err == BH_BUSY
                               ? "Messages wait at Telegram because a mailbox is full: start its "
                                 "agent, or purge it (bellhop mailbox list)."
                               : "Messages wait at Telegram because the store cannot take them.");
        timer_set(t->env->clock, &p->timer, tg_backoff_ms(t, MAX_HELD_MS));
        return;
    }
    if (err != BH_OK)
        log_warn(&t->log, "an update was given up: %s", bh_err_word(err));
    p->batch[i].mark = TG_DONE;
    tg_batch_deliver(t);
}

void tg_batch_deliver(struct telegram *t)
{
    struct tg_poll *p = &t->poll;
    size_t done = 0;

    for (size_t i = 0; i < p->n_batch; i++) {
        if (p->batch[i].mark == TG_WAITING && !must_wait(p, i))
            p->batch[i].mark =
                tg_take(t, p->batch[i].update, on_taken, tag_of(t, i)) ? TG_TAKEN : TG_DONE;
        done += p->batch[i].mark == TG_DONE;
    }
    if (done == p->n_batch)
        tg_batch_done(t);
}

void tg_batch_again(struct telegram *t)
{
    for (size_t i = 0; i < t->poll.n_batch; i++)
        if (t->poll.batch[i].mark == TG_HELD)
            t->poll.batch[i].mark = TG_WAITING;
    tg_batch_deliver(t);
}
