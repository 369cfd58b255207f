/* line.h - formats the lines that an agent program reads, and parses those it prints.
 *
 * A program reads one JSON object per line (docs/agents.md lists the fields).  A line that it
 * prints is text, or a JSON object with "op".  Other JSON is text: an agent may answer "{}".
 *
 *      line_message(&out, ev, 1);                       // {"type":"message",...}\n
 *      line_forward(&out, fwd, chat);                   // {"type":"passthrough",...}\n
 *      struct order o;
 *      order_read(parser, line, &o);                    // never fails
 *      order_action(&out, &o, ev, reply_to);            // the relay's action, as JSON
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"

struct bhgw_event;
struct bhgw_passthrough;

/* @attempt counts from 1; 2 means that the program died over the first attempt. */
void line_message(struct buf *out, const struct bhgw_event *ev, unsigned attempt);
/* A webhook that the connector passes through.  @chat, from bhgw_passthrough_event(), has the
 * sender and the chat for an answer. */
void line_forward(struct buf *out, const struct bhgw_passthrough *fwd,
                  const struct bhgw_event *chat);
void line_interrupt(struct buf *out, const char *session_key, const char *chat_id);
/* The result of an order that carried "ref". */
struct said {
    bool success;
    char *error, *message_id;
};
void line_result(struct buf *out, const char *ref, const struct said *r);

struct order {       /* one output line; borrowed from the line and from the parser that read it */
    struct str op;   /* "send" for a line of text */
    bool plain;      /* a line of text; an empty line sends nothing and ends the turn */
    bool done;       /* the turn ends with it: "op":"done", "done":true, or a line of text */
    struct str text; /* if plain */
    struct str id;   /* of the message it answers; absent: not given */
    struct str session_key; /* absent: not given; so are the next two */
    struct str chat_id;
    struct str ref;
    struct json doc; /* if not plain */
};
void order_read(struct json_parser *p, struct str line, struct order *ret_o);
/* The order is visible in the chat, so repeating the message to a program would answer twice. */
bool order_is_answer(const struct order *o);

/* Writes the relay's action.  @ev (NULL: unknown chat) and @reply_to (absent: none) supply the
 * fields that the order leaves out.  An edit of the last message gets no message_id here;
 * conversation.c adds it. */
void order_action(struct buf *out, const struct order *o, const struct bhgw_event *ev,
                  struct str reply_to);
