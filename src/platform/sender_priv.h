/* sender_priv.h - between sender.c (orders, lanes, life), sender_try.c (tries and endings),
 * sender_keep.c (records, and what an earlier process left) and sender_desk.c (who asks about it).
 */
#pragma once
#include "base/map.h"
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
    struct map by_number;     /* struct outgoing: those that have a record */
    struct map revived;       /* of them, by hash: gone on with, and not answered yet */
    struct list left;         /* struct outgoing_left, owned: to be gone on with */
    struct list kept;         /* the same: ended as unknown, or sent as queued; by age */
    struct map kept_by_number;
    struct timer revive;          /* armed while there is something in @left */
    struct timer sweep;           /* armed while there is something in @kept */
    struct outgoing_left *taking; /* borrowed; act() is being called with it */
    struct json_parser *parser;   /* owned */
    struct blame blame;           /* whose requests the platform refused */
    struct sender_stats n;
};

static inline int64_t sender_now_ms(const struct sender *s)
{
    return clock_now_ms(s->env->clock);
}

static inline int64_t sender_wall_ms(const struct sender *s)
{
    return clock_wall_ms(s->env->clock);
}

static inline struct str sender_number_key(const uint64_t *number)
{
    return str_make(number, sizeof *number);
}

/* Does it change anything?  Then it is counted, has a record, and is kept until it is done. */
static inline bool outgoing_counts(const struct outgoing *o)
{
    return o->is_action && o->op != ACTION_TYPING && o->op != ACTION_GET_CHAT_INFO &&
           o->op != ACTION_REACT;
}

/* Has every end but "done" been one of which nobody knows whether something is there? */
static inline bool outgoing_is_unsure(const struct outgoing *o, enum sender_end end)
{
    return end != SENDER_DONE && (end == SENDER_UNKNOWN || o->at > 0 || o->maybe);
}

/* Is whoever it is sent for held back?  Asked again at every try: what was in its lane before the
 * first refusal came counts as much as what comes after. */
static inline bool outgoing_is_blamed(const struct outgoing *o)
{
    return blame_is_full(&o->sender->blame, o->blame, sender_now_ms(o->sender));
}
#define SENDER_BLAMED \
    "the platform refused too much of this tenant's within ten minutes; nothing of it is sent " \
    "for a while"

/* ---- sender.c ---- */

outgoing_recorded_cb outgoing_on_recorded;

/* ---- sender_try.c ---- */

/* Its turn has come and its record is there: write what is to be written.  @o may be gone after. */
void outgoing_go(struct outgoing *o);
void outgoing_put_off(struct outgoing *o, int64_t wait_ms); /* 0: a little longer every time */

/* Its answer is known, or it never left: tell, settle the record, let the lane go on, free. */
void outgoing_end(struct outgoing *o, const struct sender_verdict *v);
void outgoing_end_with(struct outgoing *o, enum sender_end how, const char *why);
void outgoing_end_late(struct outgoing *o); /* it was put off until it was too late */
void outgoing_release(struct outgoing *o);  /* without a word */

/* ---- sender_keep.c ---- */

void outgoing_entry_of(const struct outgoing *o, struct outgoing_entry *ret);
/* Write its record; @wait: outgoing_on_recorded() runs when it is on disk. */
void outgoing_note(struct outgoing *o, enum outgoing_state state, bool wait);
/* Must its record say first that this part may have left? */
bool outgoing_needs_note(const struct outgoing *o);
void outgoing_take_over(struct outgoing *o, const struct outgoing_left *left);
/* It has ended: the record goes, or stays for whoever may ask. */
void outgoing_settle(struct outgoing *o, const struct sender_verdict *v);
/* bellhop stops: it stays on disk, and whoever waits is told.  Frees @o. */
void outgoing_stop(struct outgoing *o);
void outgoing_tell_queued(struct outgoing *o);

outgoing_found_cb sender_on_found;
/* Was this being done when an earlier process died?  True at most once for each. */
bool sender_was_cut_off(struct sender *s, struct str what);
void sender_revive(struct sender *s); /* what is left goes on, now */
/* The platform's act() with it; frees @left.  False: nobody wants it, or the platform does not. */
bool sender_revive_one(struct sender *s, struct outgoing_left *left);
void sender_keep(struct sender *s, const struct outgoing_entry *e); /* as unknown or sent */
void sender_unkeep(struct sender *s, struct outgoing_left *left);   /* off the list, not freed */
void sender_keep_init(struct sender *s);
void sender_keep_done(struct sender *s);
