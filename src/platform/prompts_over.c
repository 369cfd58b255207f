/* prompts_over.c - questions that are over, until their messages show it.  (prompts.h has the
 * contract.)
 *
 *      over --> due --MAX_BUSY at a time--> busy --done, or refused--> gone
 *                ^                           |
 *                '------- resting <----------'  a little longer every time, then given up
 *
 * Many may come due at once, after a long stop: the platform is asked for a few at a time. */
#include "base/list.h"
#include "platform/prompts_priv.h"

enum { MAX_BUSY = 4, MAX_TRIES = 12, FIRST_MS = 2000, LAST_MS = 600 * 1000 };

static void on_tidy(struct timer *t)
{
    struct prompts *ps = container_of(t, struct prompts, tidy);

    while (ps->n_busy < MAX_BUSY && !list_is_empty(&ps->due)) {
        struct prompt *q = list_first(&ps->due, struct prompt, link);
        list_remove(&q->link);
        list_append(&ps->busy, &q->link);
        ps->n_busy++;
        q->tries++;
        ps->over(ps->p, q);
    }
}

static void wake(struct prompts *ps)
{
    if (!timer_is_set(&ps->tidy))
        timer_set(ps->env->clock, &ps->tidy, 0);
}

static void on_rested(struct timer *t)
{
    struct prompt *q = container_of(t, struct prompt, late);

    list_remove(&q->link);
    list_append(&q->of->due, &q->link);
    wake(q->of);
}

static void give_up(struct prompt *q)
{
    q->of->n_over--;
    prompt_remove(q);
}

static void make_room(struct prompts *ps)
{
    if (ps->n_over <= PROMPTS_MAX)
        return;
    if (!list_is_empty(&ps->resting))
        give_up(list_first(&ps->resting, struct prompt, link));
    else if (!list_is_empty(&ps->due))
        give_up(list_first(&ps->due, struct prompt, link));
}

void prompt_over(struct prompt *q)
{
    struct prompts *ps = q->of;

    timer_init(&q->late, on_rested);
    list_append(&ps->due, &q->link);
    ps->n_over++;
    make_room(ps);
    wake(ps);
}

void prompts_tidied(struct prompt *q, int64_t again_ms)
{
    struct prompts *ps = q->of;
    int64_t rest_ms = q->tries < 10 ? (int64_t)FIRST_MS << (q->tries - 1) : LAST_MS;

    ps->n_busy--;
    wake(ps);
    if (again_ms <= 0 || q->tries >= MAX_TRIES) {
        give_up(q);
        return;
    }
    if (rest_ms > LAST_MS)
        rest_ms = LAST_MS;
    list_remove(&q->link);
    list_append(&ps->resting, &q->link);
    timer_set(ps->env->clock, &q->late, again_ms > rest_ms ? again_ms : rest_ms);
}

static bool is_of(const struct prompt *q, struct str chat, struct str tenant)
{
    return (chat.p != NULL && str_eq(str_of(q->chat), chat)) ||
           (tenant.p != NULL && str_eq(str_of(q->tenant), tenant));
}

static void forget_in(struct list *l, struct str chat, struct str tenant)
{
    list_each (l, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, link);
        if (is_of(q, chat, tenant))
            give_up(q);
    }
}

void prompts_over_forget(struct prompts *ps, struct str chat, struct str tenant)
{
    forget_in(&ps->due, chat, tenant);
    forget_in(&ps->resting, chat, tenant);
    list_each (&ps->busy, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, link);
        if (is_of(q, chat, tenant))
            q->tries = MAX_TRIES; /* whoever changes its message still has it */
    }
}

void prompts_over_init(struct prompts *ps)
{
    list_init(&ps->due);
    list_init(&ps->resting);
    list_init(&ps->busy);
    timer_init(&ps->tidy, on_tidy);
}

static void free_all(struct list *l)
{
    list_each (l, it, nxt)
        prompt_free(list_entry(it, struct prompt, link));
}

void prompts_over_close(struct prompts *ps)
{
    timer_stop(ps->env->clock, &ps->tidy);
    free_all(&ps->due);
    free_all(&ps->resting);
    free_all(&ps->busy);
}
