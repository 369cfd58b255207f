/* sender_priv.h - the internals that the three files of the sender share.
 *
 * sender.c moves outgoings through their states, sender_files.c holds the actions that wait for a
 * file, and outgoing.c reads and writes the records. */
#pragma once
#include "base/map.h"
#include "platform/sender.h"
#include "store/store.h"

struct media_file;

struct sender {
    struct platform *p;         /* borrowed */
    const struct host_env *env; /* borrowed */
    int64_t opened_ms;          /* monotonic */
    const struct sender_ops *ops;
    struct outbox *box;      /* owned */
    struct list all;         /* struct outgoing, owned, but for those in @held */
    struct list held;        /* struct outgoing in state HELD */
    struct map by_number;    /* struct outgoing that have a record */
    struct map file_queues;  /* struct file_queue, owned */
    size_t n_fetching;       /* struct outgoing in state FETCHING */
    struct streams *streams; /* owned */
    size_t n_drafts;         /* streams of drafts */
    struct list left; /* struct outgoing_left, owned: records of an earlier process to resume */
    struct list kept; /* struct outgoing_left, owned: UNKNOWN or SENT; by age */
    struct map kept_by_number;
    struct timer revive;          /* armed while @left is not empty */
    struct timer sweep;           /* armed while @kept is not empty */
    struct outgoing_left *taking; /* borrowed; the record that act() is being called with */
    struct record_reader *reader; /* owned */
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

/* A failure after a part was delivered, or after a try that may have arrived, counts as unknown: a
 * retry of the whole action would repeat that part. */
static inline bool outgoing_is_unsure(const struct outgoing *o, enum sender_end end)
{
    return end != SENDER_DONE && (end == SENDER_UNKNOWN || o->at > 0 || o->maybe_ms != 0);
}

/* ---- sender.c ---- */

/* Gives the action to the platform's act(), once it has its file. */
void sender_pass_on(struct sender *s, struct action_id id, const struct action_from *from,
                    const struct action *a);
/* Gives @o to @s, in state NEW, and copies the order into @o. */
void outgoing_start(struct sender *s, struct outgoing *o, const struct sender_order *q);
void outgoing_enter(struct outgoing *o, enum outgoing_state next);
void outgoing_recorded(void *o, enum bh_err err); /* a write of the record has ended */
/* Tells the result, settles the record, releases the lane and frees @o. */
void outgoing_end_with(struct outgoing *o, enum sender_end how, const char *why);
/* Ends an @o that waits in its lane or for a file, as refused. */
void outgoing_take_out(struct outgoing *o, const char *why);
void outgoing_release(struct outgoing *o); /* frees @o and tells nobody */

/* ---- sender_files.c ---- */

/* Gives a record to the platform; frees @l.  @ready: the record need not wait for a file any more.
 * @f: its file, fetched from @url (absent: not fetched); NULL: none.  False: the platform did not
 * take the record, and it was deleted. */
bool sender_take_left(struct sender *s, struct outgoing_left *l, struct action_id id, bool ready,
                      const struct media_file *f, struct str url);

/* Takes an action that has to wait for its file, or behind another one that does.  False: it need
 * not wait. */
bool sender_files_take(struct sender *s, struct action_id id, const struct action_from *from,
                       const struct action *a);
void sender_draft_free(struct outgoing *o); /* an outgoing in state FETCHING */

/* ---- outgoing.c ---- */

/* Writes the action and its file as JSON; @ret_file stays empty for an action without a file. */
void outgoing_write_action(const struct action *a, struct buf *ret_action, struct buf *ret_file);
/* Writes the record of @o; @wait: outgoing_recorded() runs once the write has ended. */
void outgoing_note(struct outgoing *o, enum outgoing_state state, bool wait);
/* Must the record of @o be rewritten as TRYING before the request of this part leaves? */
bool outgoing_needs_note(const struct outgoing *o);
/* Called when @o ends: deletes its record, or keeps it as SENT or UNKNOWN. */
void outgoing_settle(struct outgoing *o, enum sender_end end, const char *why);
void outgoing_note_end(const struct outgoing *o, enum sender_end end,
                       const char *why); /* for `why` */
/* Detaches the record from @o and leaves it on disk as it is. */
void outgoing_leave_record(struct outgoing *o);
void outgoing_delete(struct sender *s, uint64_t number);
/* Writes a record without an outgoing, which the next start performs.  @number 0: a new one.
 * Returns its number. */
uint64_t outgoing_keep_action(struct sender *s, uint64_t number, const struct action_from *from,
                              const struct action *a);
/* Writes a record that a final draft was delivered as @message: streams_found_sealed().  @done runs
 * once the record is on disk. */
struct store_put *outgoing_keep_sealed(struct sender *s, const struct action_from *from,
                                       struct hash128 said, struct str chat, struct str message,
                                       store_put_cb *done, void *ctx);
/* Detaches the record from @o and returns it. */
struct outgoing_left *outgoing_to_left(struct outgoing *o);
/* Parses l->value into l->e, which borrows from the sender's reader.  False: not a record. */
bool outgoing_left_read(struct sender *s, struct outgoing_left *l);
/* Reads the action of l->e; @path holds the path of its file. */
void outgoing_left_action(const struct outgoing_left *l, struct action *ret,
                          struct action_file *file, struct buf *path);
/* Continues the record @left as @o, which the platform made from it. */
void outgoing_take_over(struct outgoing *o, const struct outgoing_left *left);

enum bh_err records_open(struct sender *s, char *ret_why);
void records_close(struct sender *s);
void records_revive(struct sender *s); /* gives all of s->left to the platform, now */
