/* line.h - the lines an agent program reads and prints.
 *
 * In: one JSON object per line (docs/agents.md lists the fields).  Out: a line is either text, or a
 * JSON object with "op".  Anything else that looks like JSON is text: an agent may well say "{}".
 *
 *      line_message(&out, ev, 1);                       // {"type":"message",...}\n
 *      line_forward(&out, fwd, chat);                   // {"type":"passthrough",...}\n
 *      struct order o;
 *      order_read(parser, line, &o);                    // total: every line means something
 *      order_action(&out, &o, ev, reply_to);            // the relay's action, as JSON
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"

struct bhgw_event;
struct bhgw_passthrough;

/* @attempt counts from 1; a second one means that the program died over the first. */
void line_message(struct buf *out, const struct bhgw_event *ev, unsigned attempt);
/* A webhook the connector passes through.  @chat tells whom it is from and where an answer
 * belongs: bhgw_passthrough_event(). */
void line_forward(struct buf *out, const struct bhgw_passthrough *fwd,
                  const struct bhgw_event *chat);
void line_interrupt(struct buf *out, const char *session_key, const char *chat_id);
/* The result of an order that carried "ref". */
struct said {
    bool success;
    char *error, *message_id;
};
void line_result(struct buf *out, const char *ref, const struct said *r);

struct order {       /* one line out; borrowed from the line and from the parser that read it */
    struct str op;   /* "send" for a line of text */
    bool plain;      /* it was text; an empty one says nothing and ends the turn */
    bool done;       /* "op":"done" or "done":true */
    struct str text; /* of a plain one */
    struct str id;   /* of the message it belongs to; absent: not said */
    struct str session_key; /* ditto */
    struct str chat_id;
    struct str ref;
    struct json doc; /* of one that is not plain */
};
void order_read(struct json_parser *p, struct str line, struct order *ret_o);
/* People see the order: answering again would be answering twice. */
bool order_is_answer(const struct order *o);

/* The relay's action.  What the order leaves out follows from where it was said: @ev describes the
 * chat (NULL: unknown), @reply_to is the message it answers (absent: none).  An edit of "the last
 * one" is left without its message_id. */
void order_action(struct buf *out, const struct order *o, const struct bhgw_event *ev,
                  struct str reply_to);
