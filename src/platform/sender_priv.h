/* sender_priv.h - between sender.c (orders, lanes, life) and sender_try.c (tries and endings). */
#pragma once
#include "platform/blame.h"
#include "platform/sender.h"

struct sender {
    struct platform *p;         /* borrowed */
    const struct host_env *env; /* borrowed */
    const char *label;          /* borrowed */
    const struct sender_ops *ops;
    struct outbox *box;       /* owned */
    struct outgoing_log *log; /* owned */
    struct list all;          /* struct outgoing, owned; but for those in @held */
    struct list held;         /* they wait for sender_resume() */
    struct blame blame;       /* whose requests the platform refused */
    struct sender_stats n;
};

static inline int64_t sender_now_ms(const struct sender *s)
{
    return clock_now_ms(s->env->clock);
}

/* Does it change anything?  Then it is counted, and has a record. */
static inline bool outgoing_counts(const struct outgoing *o)
{
    return o->is_action && o->op != ACTION_TYPING && o->op != ACTION_GET_CHAT_INFO &&
           o->op != ACTION_REACT;
}

/* Its turn has come and its record is there: write what is to be written.  @o may be gone after. */
void outgoing_go(struct outgoing *o);

/* Its answer is known, or it never left: tell, remove the record, let the lane go on, free. */
void outgoing_end(struct outgoing *o, const struct sender_verdict *v);
void outgoing_end_with(struct outgoing *o, enum sender_end how, const char *why);
void outgoing_end_late(struct outgoing *o); /* it was put off until it was too late */
