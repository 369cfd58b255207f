/* texts.h - the common part of platforms where a chat is one person, a request sends one text, and
 * messages have no buttons.
 *
 *      ops.texts = &texts, ops.act = text_act, ops.sender = &sender
 *      text_act() --> struct text_outgoing --> the sender --> write() and read() of the adapter
 *      webhook --> text_take() --> the relay, or the answer to a question
 *
 * Twilio, WeCom and LINE use it.  The adapter verifies and reads what the platform sends, and
 * implements write() and read() of the sender; text_outgoing_free() is its free().  A platform with
 * idempotency keys sets sender_ops.key_ms and writes sender_key() and the part into its requests.
 * Questions have numbered options, and a bare number answers the newest one.
 */
#pragma once
#include "platform/attachment.h"
#include "platform/platform.h"
#include "platform/sender.h"
#include "platform/split.h"

struct text_ops { /* const, one per platform */
    struct split_limits limits;
    /* Returns why this file cannot be sent, or NULL.  The pointer is NULL: no files at all. */
    const char *(*no_file)(struct platform *p, const struct attachment *a);
    bool file_alone;                     /* a caption follows as a message of its own */
    bool (*is_chat)(struct str chat_id); /* is it the id of a chat of this platform? */
    const char *no_chat;                 /* the error if it is not */
};

/* Goes into platform_ops.act. */
void text_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a);
/* Counts a webhook and answers it: @good at once if it is ignored, after await_accept() if it is a
 * message.  A message answers an open question if it is the number of an option. */
void text_take(struct platform *p, enum webhook_verdict v, struct event *ev, struct http_id id,
               const struct http_answer *good, int64_t deadline_ms);

struct text_outgoing {      /* the outgoing that write() and read() get */
    struct outgoing out;    /* first */
    struct split parts;     /* owned */
    struct attachment file; /* owned; goes with the first part, or before it */
    char *handle;           /* owned; the platform's id of the uploaded file; NULL: none yet */
    char *reply_to;         /* owned; the message that it answers; NULL: none */
    char chat[];
};
void text_outgoing_free(struct outgoing *o);
static inline struct text_outgoing *text_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct text_outgoing, out);
}
static inline struct str text_outgoing_part(struct outgoing *o) /* the text of part o->at */
{
    const struct split *s = &text_outgoing_of(o)->parts;

    return o->at < s->n ? split_part(s, o->at) : STR("");
}
