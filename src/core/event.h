/* event.h - a normalized inbound message: what every platform turns its messages into.
 *
 * All strs are borrowed from whoever made the event, for the call it is passed to.  Absent is
 * STR_NULL.  Ids are strings even where the platform has numbers. */
#pragma once
#include "base/buf.h"
#include "base/hash.h"

#define EVENT_MAX_MEDIA 16
#define EVENT_MAX_CONTEXT 50
#define EVENT_CONTEXT_BYTES 16384 /* of all texts of a context together */

struct event_media { /* a file that came with a message; what is absent is not known */
    struct str url;  /* where anybody can fetch it */
    struct str ref;  /* what its platform calls it: only bellhop can fetch it or, where it has a
                      * url too, that one does not hold for long */
    struct str id;   /* it is here, under this id (media/media.h) */
    struct str kind; /* "image", "voice", "audio", "video", "document" */
    struct str type, name;
    struct str caption; /* what was written to this file, where the platform says so */
    uint64_t size;
};

struct event_said { /* something that was said before, by somebody */
    struct str text, message_id, user_id, user_name;
};

struct event {
    /* where it came from */
    struct str platform; /* "discord", lower case */
    struct str bot;      /* which of our identities on that platform */
    struct str filed_as; /* the platform in its session key, where the gateway files it under
                          * another name (a forwarded interaction: "relay"); absent: platform */
    /* The most specific of what `bellhop route` may name: a guild, a chat, a person; a bot where
     * there is nothing more specific.  Which route it takes is chosen above: tenancy/facts.h. */
    struct str route_key;
    struct str former_key; /* the same, as it was called before it moved; absent: it did not */
    struct str own_key;    /* route_key as the adapter said it, when another was chosen */
    struct str event_id;   /* the platform's own id, for deduplication; absent: never a duplicate */
    /* the message */
    struct str text;         /* never null on the wire */
    struct str message_type; /* absent: "text" */
    struct str message_id, reply_to_message_id;
    const struct event_media *media; /* in order; EVENT_MAX_MEDIA at most */
    size_t n_media;
    struct {
        struct str text, author;
        bool is_own, set;
    } reply_to; /* the quoted message */
    struct {
        struct str prompt_id, option_id, label, message_id;
    } press; /* it answers a question an agent asked with buttons; no prompt_id: it does not */
    /* What was said in this chat before: oldest first, EVENT_MAX_CONTEXT at most.  Who may not see
     * the place is not shown it. */
    const struct event_said *context;
    size_t n_context;
    bool context_error; /* there may be some, and nobody could tell */
    bool wants_context; /* its platform can be asked for it; never on the wire */
    /* SessionSource */
    struct str chat_id, chat_type, chat_name, chat_topic;
    struct str user_id, user_name, user_id_alt, chat_id_alt;
    struct str user_display_name, user_handle;
    struct str thread_id, parent_chat_id;
    struct str scope_id; /* guild, workspace, server: sent as guild_id and scope_id */
    /* The thread that an answer to it will open; and of a thread that was opened so, the name it
     * was given then. */
    struct str prospective_thread_id, auto_thread_name;
    /* for the gate only, never on the wire */
    bool author_is_bot, mentions_bot, replies_to_bot;
    bool looks_back; /* of a question who can see a place: what was said there before, too */
    /* For this instance alone, if the gate lets it; absent: for whoever the gate says. */
    struct str only_tenant, only_instance;
    bool only_stops; /* a /stop that is no message: the same was said in another way too */
    /* It changes an earlier message, the one that has its message_id.  Where that message still
     * waits for its agent, the message gets this text, or goes.  An agent that has it already
     * receives this event instead, unless it is silent. */
    struct {
        struct str text;
        bool set, deletes, silent;
    } edit;
};

/* The `event` object of an inbound frame, as the contract wants it: never null where the real
 * client dies of it, both scope names, no is_bot, and media URLs that would leak the gateway's
 * bearer left out (see event_media_is_safe()). */
void event_write(struct buf *out, const struct event *ev);

/* How a file that is here stands in a frame that is kept: where it is read depends on who asks, and
 * when.  event_place_media() puts the address there when the frame is sent. */
#define EVENT_MEDIA_PLACE "bellhop:media/"
bool event_has_place(const struct event *ev);
typedef void event_url_cb(void *ctx, struct str id, struct buf *out); /* appends the URL */
void event_place_media(struct buf *out, struct str frame, event_url_cb *url, void *ctx);

/* False for URLs that are not http(s) or contain "/relay/media/". */
bool event_media_is_safe(struct str url);

/* A frame that event_write_frame() wrote, with another text.  False: it is none. */
struct json_parser;
bool event_change_text(struct buf *out, struct json_parser *parser, struct str frame,
                       struct str text);

/* The whole line {"type":"inbound","bufferId":...,"event":{...}}\n.  @id NULL: without one. */
void event_write_frame(struct buf *out, const struct event *ev, const struct hash128 *id);
