/* sender_priv.h - between sender.c, which moves outgoings through their states, sender_files.c,
 * where actions wait for their files, and outgoing.c, which keeps the records. */
#pragma once
#include "base/map.h"
#include "platform/sender.h"

struct media_file;

struct sender {
    struct platform *p;         /* borrowed */
    const struct host_env *env; /* borrowed */
    const char *label;          /* borrowed */
    const struct sender_ops *ops;
    struct outbox *box;     /* owned */
    struct list all;        /* struct outgoing, owned, but for those in @held */
    struct list held;       /* struct outgoing in state HELD */
    struct map by_number;   /* struct outgoing that have a record */
    struct map file_queues; /* struct file_queue, owned */
    size_t n_fetching;      /* struct outgoing in state FETCHING */
    struct list left; /* struct outgoing_left, owned: an earlier process did not finish them */
    struct list kept; /* struct outgoing_left, owned: UNKNOWN or SENT; by age */
    struct map kept_by_number;
    struct timer revive;          /* armed while @left has something */
    struct timer sweep;           /* armed while @kept has something */
    struct outgoing_left *taking; /* borrowed; the platform's act() is being called with it */
    struct json_parser *parser;   /* owned */
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

static inline bool outgoing_has_record(const struct outgoing *o)
{
    return o->record.number != 0;
}

/* A failure after a part was delivered, or after a try that may have arrived, is unknown too: to
 * ask for all of it again would repeat that part. */
static inline bool outgoing_is_unsure(const struct outgoing *o, enum sender_end end)
{
    return end != SENDER_DONE && (end == SENDER_UNKNOWN || o->at > 0 || o->maybe_ms != 0);
}

/* ---- sender.c ---- */

void outgoing_start(struct sender *s, struct outgoing *o); /* it belongs to @s now, in state NEW */
void outgoing_enter(struct outgoing *o, enum outgoing_state next);
void outgoing_set_order(struct outgoing *o, const struct sender_order *q);
void outgoing_recorded(struct outgoing *o, enum bh_err err); /* the write that @o waited for */
/* Tell the result, settle the record, let the lane go on, free @o. */
void outgoing_end_with(struct outgoing *o, enum sender_end how, const char *why);
/* The same for an @o that waits, in its lane or for a file: it leaves its queue first. */
void outgoing_take_out(struct outgoing *o, const char *why);
void outgoing_release(struct outgoing *o); /* without a word */

/* ---- sender_files.c ---- */

/* Give a record to the platform; frees @l.  @ready: nothing is before it in its chat, and @f is its
 * file, from @url (absent: it was here); f NULL: it carries none.  False: the platform did not take
 * it, and the record is gone. */
bool sender_take_left(struct sender *s, struct outgoing_left *l, struct action_id id, bool ready,
                      const struct media_file *f, struct str url);

void sender_draft_free(struct outgoing *o); /* an outgoing in state FETCHING */

/* ---- outgoing.c ---- */

/* The action and its file as JSON; @ret_file stays empty without one. */
void outgoing_write_action(const struct action *a, struct buf *ret_action, struct buf *ret_file);
/* Write the record of @o; @wait: outgoing_recorded() runs once it is on disk. */
void outgoing_note(struct outgoing *o, enum outgoing_state state, bool wait);
/* Does the record of @o have to say first that this part may have left? */
bool outgoing_needs_note(const struct outgoing *o);
/* @o has ended: delete its record, or keep it for those who may ask. */
void outgoing_settle(struct outgoing *o, enum sender_end end, const char *why);
/* Take the record from @o and leave it on disk as it is. */
void outgoing_leave_record(struct outgoing *o);
void outgoing_delete(struct sender *s, uint64_t number);
/* The record of @o, which keeps it no longer. */
struct outgoing_left *outgoing_to_left(struct outgoing *o);
/* False: it is no record.  l->e borrows from the sender's parser. */
bool outgoing_left_read(struct sender *s, struct outgoing_left *l);
/* The action of l->e; the file's path is kept in @path. */
void outgoing_left_action(const struct outgoing_left *l, struct action *ret,
                          struct action_file *file, struct buf *path);
/* @o, which the platform made of @left, goes on with its record. */
void outgoing_take_over(struct outgoing *o, const struct outgoing_left *left);

enum bh_err records_open(struct sender *s, char *ret_why);
void records_close(struct sender *s);
void records_revive(struct sender *s); /* give all of s->left to the platform, now */
