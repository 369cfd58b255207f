/* stream.h - shows the text so far of an answer at the platform's pace.
 *
 *      edit, draft --> the newest text of its stream --there is room--> ops->act() --> sender.h
 *         |                        ^                                                     |
 *         '-- it has to wait:      '--- newer text came meanwhile: show it next <-- ended'
 *             answered "queued"         none came: the stream is idle, later forgotten
 *
 * An answer that streams is a stream: one text, replaced many times.  Gateways stream in two ways.
 * Each is keyed by the instance and the chat, and by:
 *
 *      edit    the message.  Every edit is the newest text of its message.
 *      draft   the thread and the draft_id.  The content is the whole text so far; the last one is
 *              `final`.
 *
 * The rule, which docs/contract.md repeats: an edit counts as the newest text of its message.  If
 * nothing of the stream is on its way and the budget has room, the edit is sent at once, and its
 * result is the platform's answer or, after a short time, "queued".  Otherwise the edit
 * replaces the text that waits, and is answered at once with "queued".  The newest text is always
 * delivered in the end.  Few gateways mark the last edit of an answer (metadata.notify), so the
 * newest text is on disk, as a record of the sender, STREAM_KEEP_MS after it came, unless a newer
 * one came or it was shown.  A text that is marked is on disk at once.
 * Texts that were merged do not count against limits.instance_actions.
 *
 *      IDLE --text--> WAITING --room in the chat--> READY --room for the bot--> SHOWING
 *        ^                ^                                                        |
 *        |                '------------------ ended, and newer text came ----------+
 *        '------------------------------------ ended, and nothing is newer --------+
 *      FAILED <-- the platform refused: the next edit gets the reason -------------'
 *      SHOWING --all of a final draft is shown--> SEALING --on disk--> sealed: repeats get the same
 *      message id
 *
 * Budget.  Streams take turns, last texts before unfinished ones, so each chat gets its share of
 * the bot's budget (pace.h), which is counted when a text is given to the adapter.  A text that
 * waits is in no lane, so no message waits behind it.
 *
 * A message that cannot be edited any more: the next edit gets the platform's reason, and the
 * gateway sends a new message.  If the refused text was the last one of a stream that bellhop
 * itself shows as messages, bellhop sends it as a new message.
 *
 * While a text is unfinished its Markdown is completed: open code fences and emphasis are closed,
 * half of a link or a table row is held back.  The last text is sent as it came.
 *
 * A platform that cannot edit messages refuses a text with a cursor that expects edits
 * (metadata.expect_edits): a released gateway then sends its answer once it is complete.
 *
 * Cursors.  Gateways append a cursor (a block such as U+2589) while they stream.  A text with a
 * cursor that is not replaced for STREAM_OVER_MS, because its gateway died, is shown once more
 * without the cursor.  A record keeps that text, so a crash of bellhop leaves no cursor either.
 *
 * Drafts.  On Telegram (private chats) and on the web page a draft is a preview: nothing of it is
 * kept, and the gateway's `send` follows.  That send ends the draft.  A final draft is delivered
 * once, as a message.  With `message: true`, and on platforms that stream natively, the draft is
 * the message: bellhop shows it as the platform can, and the final one answers with its message id.
 *
 *      STREAM_NATIVE   a message that the platform lets grow: act() starts it, appends to it and
 *                      seals it; what outgrows it rolls over into another one.  If the platform
 *                      does not let it grow any more, it goes on as STREAM_EDIT
 *      STREAM_DRAFT    act() gets the drafts as previews; the final one becomes a send
 *      STREAM_EDIT     the first text becomes a send, the later ones edits; what outgrows a message
 *                      rolls over into a new one (split.h)
 *      STREAM_NOTHING  "typing" until the final one, which becomes a send
 *
 * Text can only be appended to a message that grows, so the unfinished end of a text is held back
 * until its Markdown is complete: stream_settled().  act() gets these drafts of STREAM_NATIVE:
 *
 *      no message_id       start a message with the content
 *      message_id          append the content to the message
 *      message_id, final   the message is complete, and shows exactly the content, so far
 *                          stream_shown(); without a content it is complete as it is.
 *                          With stream_ops.whole there is always a content
 *
 * A record keeps the number of a message that grows, so that a restart completes it.  If its
 * gateway goes on after the restart, the message is edited.
 *
 * Sealed drafts are remembered, the last STREAM_SEALED of a bot, also after a restart: a repeated
 * final gets the first message id, and a late frame succeeds and does nothing.
 *
 * The sender calls the functions here.  An adapter provides struct stream_ops, through its
 * sender_ops, and performs ACTION_EDIT and, where it says so, ACTION_DRAFT like any other action.
 * For one stream at most one action is under way.  Bounds: STREAMS_MAX streams and STREAMS_BYTES
 * of text per bot, and once half of them is used, an eighth for one tenant; beyond them an edit
 * takes the ordinary way, and a draft or a longer text of an open stream is refused.
 */
#pragma once
#include "platform/pace.h"
#include "platform/platform.h"
#include "platform/split.h"

#define STREAM_PATIENCE_MS 250 /* then an edit that is under way is answered "queued"; */
#define STREAM_ALONE_MS 1000   /* the same for one without a cursor, which may be the only one */
#define STREAM_KEEP_MS 1000    /* an unshown text is recorded after this time */
#define STREAM_OVER_MS 30000   /* without a text: the stream is over, and its cursor is removed */
#define STREAM_GROWS_MS 240000 /* without a text: a message that grows is completed */
#define STREAM_SEALED 512      /* final drafts that are remembered for a bot */
#define STREAMS_MAX 16384
#define STREAMS_BYTES ((size_t)64 << 20)

struct outgoing;
struct text_stream;
struct streams;
struct sender;
struct sender_verdict;

enum stream_way { /* how an unfinished text can be shown in a chat */
                  STREAM_NOTHING,
                  STREAM_EDIT,   /* a message that is edited */
                  STREAM_DRAFT,  /* previews that are not messages */
                  STREAM_NATIVE, /* a message that the platform lets grow */
};

struct stream_ops { /* of an adapter; what is not set has the default in its comment */
    /* How drafts can be shown in the chat and thread of @a.  NULL: STREAM_EDIT where the
     * descriptor supports edits, else STREAM_NOTHING. */
    enum stream_way (*way)(struct platform *p, const struct action *a);
    /* The key that the platform's limits per chat count under.  NULL: the chat_id of @a. */
    struct str (*place)(struct platform *p, const struct action *a);
    bool (*is_group)(struct str place); /* has pace_rules.group_max; NULL: no place is one */
    struct pace_rules pace;             /* zeroed: no limits */
    struct split_limits message;        /* of one message; max 0: a text is never split here */
    bool native;                        /* drafts are messages, whatever way() says */
    bool whole; /* STREAM_NATIVE: a message is completed by its whole text, never without one */
};

/* ---- for the sender ---- */

/* The bot's streams; the sender owns them.  @ops is borrowed; NULL: the defaults. */
struct streams *streams_new(struct sender *s, const struct stream_ops *ops);
struct pace *streams_pace(struct streams *all);
int64_t streams_patience_ms(const struct text_stream *st); /* of a gateway that waits for an edit */
void streams_free(struct streams *all); /* writes what was promised to disk; NULL is fine */

/* Takes an edit or a draft, and looks at a send while the bot has drafts or if the text has a
 * cursor.  False: not taken, and the caller performs it in the ordinary way. */
bool streams_take(struct streams *all, struct action_id id, const struct action_from *from,
                  const struct action *a);
/* @o starts to perform an action of @st; the action has ended, as DONE, REFUSED, FAILED or
 * UNKNOWN. */
void streams_began(struct text_stream *st, struct outgoing *o);
void streams_ended(struct text_stream *st, struct outgoing *o, const struct sender_verdict *v);
/* @o is taken away by an operator: its stream is dropped. */
void streams_drop(struct outgoing *o);
/* Deletes the streams of an instance (absent: of the whole tenant), or of a chat. */
void streams_forget(struct streams *all, struct str tenant, struct str instance, struct str chat);
/* A start found a final draft that was delivered as @message, or (empty) may have been. */
void streams_found_sealed(struct streams *all, struct hash128 said, struct str message);
/* A start found a draft that was shown in @message: its next frame goes on there. */
void streams_found_open(struct streams *all, struct hash128 said, struct str message);

/* ---- for adapters ---- */

/* STREAM_NATIVE: the text that the message of an action shows; absent: not known.  Borrowed for the
 * call.  @st is action.stream, which the streams set; NULL: not known. */
struct str stream_shown(const struct text_stream *st);

/* ---- pure ---- */

/* Completes the Markdown of the unfinished @text into @out. */
void stream_mend(struct str text, struct buf *out);
/* How much of the unfinished @text may be shown where text can only be appended. */
size_t stream_settled(struct str text);

struct streams_stats {
    uint64_t merged; /* texts that were replaced before they were shown */
    uint64_t shown;  /* texts that were shown */
    size_t open;
};
void streams_stats(const struct streams *all, struct streams_stats *ret);
