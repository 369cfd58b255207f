/* turn.h - joins the messages of one turn of an agent into one answer, and finds the turn's end.
 *
 *      turn_say, turn_edit, turn_busy --> texts in order --final mark, or silence--> ended()
 *
 * Gateways mark the last message of a turn (metadata.notify).  A streamed answer has no mark: its
 * last frame is an edit.  So a turn without a mark ends @quiet_ms after the last message, edit
 * or typing.  Silence before the first message ends nothing: the agent may still be thinking.
 * After a text with a cursor, which is unfinished, silence ends the turn only after TURN_OPEN_MS:
 * older gateways cannot edit, and send the rest of such a text as a last message.
 *
 * A final text that is too long for one message comes as several marked ones.  After a marked text
 * of TURN_PART_BYTES or more the turn therefore waits TURN_PART_MS for the next part.
 *
 * The texts are memory of the tenant that asked: they count against limits.work_bytes until
 * turn_forget_texts() or turn_done().  What does not fit there, or into TURN_BYTES, is left out.
 *
 * request.c has a turn in each request that waits on the relay. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "base/list.h"

#define TURN_OPEN_MS 30000
#define TURN_PART_MS 300
#define TURN_PART_BYTES 500
#define TURN_BYTES ((size_t)512 << 10) /* of all texts */

struct said_turn;
typedef void turn_cb(struct said_turn *t);

struct ledger;
struct party;

struct said_turn { /* embedded; container_of() finds the owner */
    struct clock *clock;
    struct ledger *ledger; /* borrowed; NULL: nothing is counted */
    struct party *payer;   /* held; the tenant; NULL: nobody yet, or nothing is counted */
    struct timer end;
    int64_t quiet_ms;
    struct list texts; /* struct turn_text, owned, in the order they were said */
    size_t bytes;      /* of the texts and their ids: what the payer holds */
    bool marked;       /* the gateway said that the turn is over */
    bool open;         /* the newest text has a cursor */
    bool cut;          /* some text did not fit into TURN_BYTES */
    bool refused;      /* some text did not fit into what the payer may hold */
    bool mute;         /* after turn_forget_texts() */
    turn_cb *ended;
};

/* @ended runs from a timer, at most once after each message or edit. */
void turn_init(struct said_turn *t, struct clock *clock, int64_t quiet_ms, turn_cb *ended);
void turn_done(struct said_turn *t);
/* From now on the texts count for the tenant; call it once, before the first text. */
void turn_charge(struct said_turn *t, struct ledger *ledger, struct str tenant);
/* Frees the texts.  The turn goes on and ends as before; of later messages only the ids are kept,
 * for edits. */
void turn_forget_texts(struct said_turn *t);

/* The agent sent a message; @id names it for edits.  @final: the gateway's mark. */
void turn_say(struct said_turn *t, struct str id, struct str text, bool final);
/* The agent replaced the text of a message.  False: not a message of this turn. */
bool turn_edit(struct said_turn *t, struct str id, struct str text, bool final);
/* The agent is typing. */
void turn_busy(struct said_turn *t);

bool turn_has_text(const struct said_turn *t);
/* Appends all texts, each on a new line. */
void turn_write(const struct said_turn *t, struct buf *out);
