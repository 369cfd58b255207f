/* chats_end.c - how chats go: too many, erased, or the name has another holder.
 *
 * Chats of a name that was given up wait in a queue of their own until they are removed:
 *
 *      chats_end() --> ENDING --a step: 512 from memory--> their records deleted --> the next step
 *
 * Meanwhile the next holder of the name may have written a record of the same name: that one is
 * left alone.  A crash leaves records of a mailbox that is no more, which the next start deletes.
 *
 * Which platform lets its chats go is asked when one of them has become the oldest: at the start
 * the platforms are not open yet. */
#include "base/buf.h"
#include "relay/out/chats.h"
#include "relay/out/chats_priv.h"
#include "relay/out/company.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/in/interrupt.h"
#include "store/store.h"

enum { DELETE_AT_ONCE = 512 };

struct deletes { /* records to be deleted together */
    struct buf keys[DELETE_AT_ONCE];
    size_t n;
};

static struct store_put *delete_now(struct relay *r, struct deletes *d, store_put_cb *done)
{
    struct store_kv items[DELETE_AT_ONCE];
    struct store_put *put = NULL;

    for (size_t k = 0; k < d->n; k++)
        items[k] = (struct store_kv){KV_DELETE, CHATS_NS, buf_str(&d->keys[k]), STR_NULL};
    if (d->n != 0)
        put = store_put(r->env.store, items, d->n, false, done, done != NULL ? r->chats : NULL);
    for (size_t k = 0; k < d->n; k++)
        buf_done(&d->keys[k]);
    d->n = 0;
    return put;
}

static void leave_instance(struct known_chat *c)
{
    struct chats *t = chats_of(c->inst);
    bool over = chat_is_over(c);

    chat_row_remove(&t->table, over ? &t->ending : &c->inst->chats, CHAT_BY_INSTANCE, c);
    if (over)
        t->n_ending--;
    else
        c->inst->n_chats--;
}

/* Of one that is over: does the next holder of the name know the same chat? */
static bool has_heir(const struct known_chat *c)
{
    char id[CHAT_ID_CHARS];

    return chat_is_over(c) && chats_find_on(c->inst, chat_platform(c), chat_id(c, id)) != NULL;
}

/* From memory; its record is left to the caller in @d. */
static void forget(struct known_chat *c, struct deletes *d)
{
    struct chats *t = chats_of(c->inst);
    struct chat_put *p = chat_put_of(c);

    if (c->counted)
        company_leave(c->inst->relay, chat_company(c));
    chat_leave_old(c);
    leave_instance(c);
    for (size_t k = 0; k < c->n_keys; k++)
        interrupt_forget(c->inst->relay, c, chat_keys(c)[k]);
    if (p != NULL) {
        store_put_cancel(&p->put);
        chat_put_over(p);
    }
    if (!has_heir(c)) {
        d->keys[d->n] = BUF_INIT;
        chat_record_key(c, &d->keys[d->n++]);
    }
    chat_set_day(c, 0);
    chat_remove(&t->table, c);
}

void chat_forget_one(struct known_chat *c)
{
    struct instance *i = c->inst;
    bool over = chat_is_over(c);
    struct deletes d;

    d.n = 0;
    forget(c, &d);
    delete_now(i->relay, &d, NULL);
    if (!over && !i->forgot_chats) {
        i->forgot_chats = true;
        instance_record(i);
    }
}

void chats_trim(struct relay *r, size_t steps)
{
    struct outside *outside = r->env.outside;
    struct chats *t = r->chats;

    while (t->n_old > r->lim.max_chats && steps-- > 0) {
        struct known_chat *c = chats_at(r, t->old.first);
        const struct outlet *at = outside->find(outside, chat_platform(c), chat_bot(c));
        if (at != NULL && at->secret_chats) {
            chat_forget_one(c);
            continue;
        }
        chat_leave_old(c);
        if (at == NULL)
            chat_enter_old(c);
    }
}

void relay_forget_chat(struct relay *r, struct str tenant, struct str instance, struct str platform,
                       struct str chat_id)
{
    struct instance *i = instance_find(r, tenant, instance);
    struct known_chat *c = i != NULL ? chats_find_on(i, platform, chat_id) : NULL;

    if (c != NULL)
        chat_forget_one(c);
}

/* ---- the end of an instance's chats ---- */

static void on_records_gone(void *ctx, enum bh_err err)
{
    struct chats *t = ctx;

    (void)err; /* what stayed names a mailbox that is no more */
    t->ended = NULL;
    timer_set(t->relay->env.clock, &t->end_some, 0);
}

static struct store_put *end_some(struct chats *t, store_put_cb *done)
{
    struct deletes d;

    d.n = 0;
    for (int k = 0; k < DELETE_AT_ONCE && t->n_ending != 0; k++)
        forget(chats_at(t->relay, t->ending.first), &d);
    return delete_now(t->relay, &d, done);
}

void chats_on_end_some(struct timer *timer)
{
    struct chats *t = container_of(timer, struct chats, end_some);

    t->ended = end_some(t, on_records_gone);
    if (t->ended == NULL && t->n_ending != 0)
        timer_set(t->relay->env.clock, timer, 0);
}

void chats_end(struct instance *i)
{
    struct chats *t = chats_of(i);

    if (i->n_chats == 0)
        return;
    t->relay = i->relay;
    i->chat_era = (i->chat_era + 1u) & (CHAT_ERAS - 1);
    while (i->chat_era == 0 && t->n_ending != 0) /* the eras begin anew: none of the last round */
        end_some(t, NULL);
    chat_row_join(&t->table, &t->ending, CHAT_BY_INSTANCE, &i->chats);
    t->n_ending += i->n_chats;
    i->n_chats = 0;
    if (t->ended == NULL && !timer_is_set(&t->end_some))
        timer_set(i->relay->env.clock, &t->end_some, 0);
}

size_t chats_ending(const struct relay *r)
{
    return r->chats->n_ending;
}
