/* frame.h - parses the lines that a gateway sends, and writes the lines it receives except events.
 *
 * event.h writes the frames of events.  The relay calls this module; so do adapters that forward
 * webhooks.  A frame borrows its texts from the parser and the line. */
#pragma once
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "core/action.h"

enum frame_type {
    FRAME_HELLO,
    FRAME_OUTBOUND,
    FRAME_INTERRUPT,
    FRAME_GOING_IDLE,
    FRAME_INBOUND_ACK,
    FRAME_UNKNOWN,   /* an unknown type or shape: ignored */
    FRAME_MALFORMED, /* not JSON, not UTF-8, too deep, or not an object: counted against the peer */
};

#define FRAME_REQUEST_ID_MAX 128 /* bytes; a frame with a longer requestId is FRAME_UNKNOWN */

struct frame {
    enum frame_type type;
    struct str platform, bot; /* hello */
    struct json manifest;     /* hello: command_manifest of newer gateways; absent: none */
    bool late_acks;           /* hello: acks come when work has ended, hours later */
    struct str request_id;    /* outbound */
    struct action action;     /* outbound */
    struct str session_key;   /* interrupt */
    struct str reason;        /* interrupt; absent: none */
    struct str buffer_id;     /* inbound_ack; borrowed from the parser or from the line */
    const char *why;          /* malformed: for the log */
};

void frame_read(struct json_parser *p, struct str line, struct frame *ret);
/* True for an ack in one of the two usual spellings, which needs no parser. */
bool frame_is_ack(struct str line, struct str *ret_id);

/* An action in the form of a frame: its "action" object.
 * Stored actions survive a restart in this form.  Strs are borrowed from @a. */
struct jw;
void frame_write_action(struct jw *w, const struct action *a); /* the object */
void frame_read_action(struct json a, struct action *ret);     /* @ret is zeroed */

/* Mail for an agent without a gateway (relay/in/inside.h).  @body is one JSON value without a line
 * break.  It is the last member of the object, where frame_dispatch_body() finds it. */
void frame_write_dispatch(struct buf *out, struct str body, struct hash128 id);
struct str frame_dispatch_body(struct str frame); /* absent: another kind of frame */
void frame_write_result(struct buf *out, struct str request_id, const struct action_result *r);
/* @reason: absent for none. */
void frame_write_interrupt(struct buf *out, struct str session_key, struct str chat_id,
                           struct str reason);
void frame_write_going_idle_ack(struct buf *out);
struct forward { /* a webhook request; verified, and without its credentials */
    struct str platform, bot, method, path;
    struct str content_type; /* the only header that is forwarded; absent: none */
    struct str body;
};
void frame_write_forward(struct buf *out, const struct forward *f); /* the object */
/* @forward_json is the whole forward object.  @id NULL: without a bufferId. */
void frame_write_passthrough(struct buf *out, struct str forward_json, const struct hash128 *id);
