/* frame.h - the lines a gateway may send, read; and the small ones we send, written. */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "core/descriptor.h"

enum frame_type {
    FRAME_HELLO,
    FRAME_OUTBOUND,
    FRAME_INTERRUPT,
    FRAME_GOING_IDLE,
    FRAME_INBOUND_ACK,
    FRAME_UNKNOWN,   /* a type or shape we do not know: ignored */
    FRAME_MALFORMED, /* not JSON, not UTF-8, too deep, or not an object: counted against the peer */
};

#define FRAME_REQUEST_ID_MAX 128 /* bytes; a longer requestId is a shape we do not know */

struct action { /* what a gateway asks for; strs borrowed from the parser */
    enum action_op op;
    struct str op_name;
    struct str chat_id, content, reply_to, message_id, session_key, kind;
    struct str thread_id; /* metadata.thread_id */
    struct str scope_id;  /* metadata.scope_id, else metadata.guild_id: a claim, to be checked */
    struct str user_id;   /* metadata.user_id: a claim */
    struct json metadata; /* the whole of it; absent when not an object */
    struct str platform, bot; /* beside the action: which identity is meant; absent: by the chat */
    bool content_set;         /* typing: an absent content means "start", an empty one "clear" */
};

struct frame {
    enum frame_type type;
    struct str platform, bot; /* hello */
    bool has_manifest;        /* hello carried command_manifest: a newer gateway */
    struct str request_id;    /* outbound */
    struct action action;     /* outbound */
    struct str session_key;   /* interrupt */
    struct str buffer_id;     /* inbound_ack; borrowed from the parser or from the line */
    const char *why;          /* malformed: for the log */
};

void frame_read(struct json_parser *p, struct str line, struct frame *ret);

/* What the platform's sender answered. */
struct action_result {
    bool success;
    struct str message_id;
    struct str error;                /* its words steer the client: see action_error_* */
    struct str chat_name, chat_type; /* get_chat_info */
};
void frame_write_result(struct buf *out, struct str request_id, const struct action_result *r);
void frame_write_interrupt(struct buf *out, struct str session_key, struct str chat_id);
void frame_write_going_idle_ack(struct buf *out);
/* @forward_json is the whole forward object. */
void frame_write_passthrough(struct buf *out, struct str forward_json, uint64_t buffer_id);

/* The words the real client acts on: it resends after "network", gives up quietly after "timed out",
 * and otherwise tries once more as plain text.  So these are the only prefixes senders use. */
#define ACTION_ERROR_TRANSIENT "network trouble: " /* the same may work in seconds */
#define ACTION_ERROR_UNKNOWN "timed out: "         /* may have been delivered */
#define ACTION_ERROR_NOT_ROUTED "target not routed to an onboarded tenant"
