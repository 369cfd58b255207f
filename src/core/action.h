/* action.h - an action that a gateway requests, such as sending a message, and its result.
 *
 *      gateway --frame--> relay --action--> host --> adapter --result--> host --> relay --> gateway
 *
 * A platform's adapter performs the action; dispatch.h performs actions in chats of dispatches.
 * Actions and results own nothing: both are borrowed for the call they are passed to.
 */
#pragma once
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"

/* The kinds of actions; also the bit numbers of a descriptor's ops. */
enum action_op {
    ACTION_SEND,
    ACTION_EDIT,
    ACTION_TYPING,
    ACTION_FOLLOW_UP,
    ACTION_GET_CHAT_INFO,
    ACTION_SEND_MEDIA,
    ACTION_PROMPT,
    ACTION_REACT,
    ACTION_THREAD_CREATE,
    ACTION_THREAD_RENAME,
    ACTION_DRAFT,
    ACTION_TASK_CARD,
    ACTION_UNKNOWN,
};
enum action_op action_op_parse(struct str name); /* all three in frame.c */
const char *action_op_name(enum action_op op);
/* @content without the cursor at its end.  Gateways append one while a text streams, so a text
 * with a cursor is unfinished. */
struct str action_without_cursor(struct str content);

struct action_file { /* the file of an action; borrowed for the call */
    const char *path;
    struct str id;         /* its id in media/media.h */
    struct str type, name; /* the name may be empty */
    struct str url;        /* a public URL of the file; absent: none */
    uint64_t size;
};

struct action { /* strs are borrowed from the parser */
    enum action_op op;
    struct str op_name;
    struct str chat_id, content, reply_to, message_id, session_key, kind;
    struct str thread_id; /* metadata.thread_id */
    struct str scope_id;  /* metadata.scope_id, else metadata.guild_id: unverified */
    struct str user_id;   /* metadata.user_id: unverified */
    struct str trace;     /* metadata.traceparent: unverified */
    struct json metadata; /* the whole object; absent when it is not an object */
    /* send_media: content is the caption */
    struct str media_kind, source_url, filename;
    const struct action_file *file; /* set by the host, never by a frame */
    /* Set by the platform's sender, never by a frame: an earlier process started this action. */
    const struct outgoing_left *left;
    /* prompt */
    struct str prompt_kind, prompt_id;
    struct str deciders; /* "owners": only people linked to the instance may answer */
    struct json options; /* [{id, label, style?}] */
    int64_t timeout_s;   /* 0: none given */
    /* react */
    struct str emoji;
    bool remove;
    /* thread_create, thread_rename: message_id is the thread of a rename */
    struct str thread_name, only_if_current_name;
    bool only_if_connector_created;
    /* draft: content is the whole text so far */
    int64_t draft_id;
    bool final;                 /* the text is complete */
    bool is_message;            /* the draft becomes the message: platform/stream.h */
    struct text_stream *stream; /* set by the sender's streams, never by a frame; NULL: none */
    /* task_card: the progress of a turn; @final ends the card */
    struct str card_id;
    struct json chunks;       /* [{id, title, status?, details?, output?}] */
    struct str platform, bot; /* beside the action: the bot to use; absent: chosen by the chat */
    bool content_set;         /* typing: absent content means "start", empty content "clear" */
    int64_t deadline_ms;      /* monotonic: the gateway stops waiting; set by the relay */
};

/* Names an action under way.  The adapter answers exactly once.  The id is a number, so a second
 * answer, or one after the gateway disconnected, does nothing. */
struct action_id {
    uint32_t index, generation;
};
#define ACTION_NOBODY ((struct action_id){.index = UINT32_MAX}) /* its result is discarded */

/* The instance that requested an action.  Borrowed for the call. */
struct action_from {
    struct str tenant, instance;
    struct str request_id; /* the gateway's id of the request; absent: no answer is expected */
    uint32_t life;         /* of the instance (gate.h): the next of its name did not ask */
    struct hash128 said;   /* hash of place and content, made by the relay; zero: not compared */
    struct str trace;      /* the valid W3C `traceparent` that it continues; absent: none */
};
static inline bool action_is_said(const struct action_from *f)
{
    return (f->said.hi | f->said.lo) != 0;
}

/* Where an action takes place, for the question whether its instance has a right there. */
struct action_place {
    struct str chat_id;
    struct str scope_id;  /* as the frame or the event said it; absent: not said */
    struct str thread_id; /* a thread of the chat that not everybody in the chat sees; absent:
                           * none */
};

/* How an action ended. */
struct action_result {
    bool success;
    bool queued; /* with success: on disk, and sent as soon as the platform allows */
    bool merged; /* a newer text of a stream, which costs no request: it does not count */
    struct str message_id;
    struct str error;                /* starts with one of the ACTION_ERROR_* prefixes */
    struct str chat_name, chat_type; /* get_chat_info */
    struct str thread_id;            /* thread_create, or a send that opened one */
    struct str auto_thread_name;     /* the latter */
};

/* The real client acts on the words of an error.  It retries after "network", gives up silently
 * after "timed out", and otherwise retries once as plain text.  Senders use no other prefixes. */
#define ACTION_ERROR_TRANSIENT "network trouble: " /* a retry may work in seconds */
#define ACTION_ERROR_UNKNOWN "timed out: "         /* may have been delivered */
#define ACTION_ERROR_NOT_ROUTED "target not routed to an onboarded tenant"
