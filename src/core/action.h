/* action.h - what a gateway asks for, and how it ended.
 *
 * The one type that crosses from the heart to whoever acts (a platform's sender, later the agents'
 * mail) and back.  An action is borrowed for the call it is passed to; a result too.
 *
 *      gateway --frame--> heart --action--> host --> adapter --result--> host --> heart --> gateway
 */
#pragma once
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"

/* What can be asked for; the bit numbers of a descriptor's ops. */
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
    ACTION_UNKNOWN,
};
enum action_op action_op_parse(struct str name);
const char *action_op_name(enum action_op op);

struct outgoing_left;
struct action_file { /* what an action carries; borrowed for the call */
    const char *path;
    struct str id;         /* how the media calls it */
    struct str type, name; /* the name may be empty */
    struct str url;        /* by which others can fetch it; absent: none */
    uint64_t size;
};

struct action { /* what a gateway asks for; strs borrowed from the parser */
    enum action_op op;
    struct str op_name;
    struct str chat_id, content, reply_to, message_id, session_key, kind;
    struct str thread_id; /* metadata.thread_id */
    struct str scope_id;  /* metadata.scope_id, else metadata.guild_id: a claim, to be checked */
    struct str user_id;   /* metadata.user_id: a claim */
    struct json metadata; /* the whole of it; absent when not an object */
    /* send_media: content is the caption */
    struct str media_kind, source_url, filename;
    const struct action_file *file; /* set by the host, never by a frame */
    /* Set by the platforms' sender, never by a frame: an earlier process began it. */
    const struct outgoing_left *left;
    /* prompt */
    struct str prompt_kind, prompt_id;
    struct json options; /* [{id, label, style?}] */
    int64_t timeout_s;   /* 0: not said */
    /* react */
    struct str emoji;
    bool remove;
    /* thread_create, thread_rename: message_id is the thread of a rename */
    struct str thread_name, only_if_current_name;
    bool only_if_connector_created;
    struct str platform, bot; /* beside the action: which identity is meant; absent: by the chat */
    bool content_set;         /* typing: an absent content means "start", an empty one "clear" */
    int64_t deadline_ms;      /* monotonic: its gateway waits no longer; set by the heart */
};

/* One action under way.  Whoever acts answers exactly once; a number, so answering after the
 * gateway has gone, or twice, is harmless. */
struct action_id {
    uint32_t index, generation;
};
#define ACTION_NOBODY ((struct action_id){.index = UINT32_MAX}) /* waits for its result */

/* Who asked.  Borrowed for the call. */
struct action_from {
    struct str tenant, instance;
    struct str request_id; /* the gateway's own name for it; absent: nobody waits for the answer */
    uint32_t life;         /* of the instance's name: its next holder has asked for nothing */
    struct hash128 said;   /* of where and what is said, made by the heart; zero: not compared */
};
static inline bool action_is_said(const struct action_from *f)
{
    return (f->said.hi | f->said.lo) != 0;
}

/* How it ended. */
struct action_result {
    bool success;
    bool queued; /* with success: it is on disk, and done as soon as the platform lets us */
    struct str message_id;
    struct str error;                /* its words steer the client: see action_error_* */
    struct str chat_name, chat_type; /* get_chat_info */
    struct str thread_id;            /* thread_create, or a send that opened one */
    struct str auto_thread_name;     /* the latter */
};

/* The words the real client acts on: it resends after "network", gives up quietly
 * after "timed out", and otherwise tries once more as plain text.  So these are the
 * only prefixes senders use. */
#define ACTION_ERROR_TRANSIENT "network trouble: " /* the same may work in seconds */
#define ACTION_ERROR_UNKNOWN "timed out: "         /* may have been delivered */
#define ACTION_ERROR_NOT_ROUTED "target not routed to an onboarded tenant"
