/* event.h - the normalized inbound message, its wire form for gateways, and the id of a delivery.
 *
 *      platform adapter --struct event--> relay: gate.h decides --event_write_frame()--> gateway
 *
 * Every adapter turns its platform's messages into this struct.  An event owns nothing: its strs
 * are borrowed for the call it is passed to.  Absent is STR_NULL.  Ids are strings even where the
 * platform has numbers. */
#pragma once
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"

struct arena;
struct jw;

#define EVENT_MAX_MEDIA 16
#define EVENT_MAX_CONTEXT 50
#define EVENT_CONTEXT_BYTES 16384 /* all texts of a context together */
#define EVENT_MAX_PARTS 32

struct event_media { /* a file that came with a message; absent members are unknown */
    struct str url;  /* a public address */
    struct str ref;  /* the platform's id of the file: only bellhop can fetch it, or its url
                      * expires soon */
    struct str id;   /* bellhop stores the file under this id (media/media.h) */
    struct str kind; /* "image", "voice", "audio", "video", "document" */
    struct str type, name;
    struct str caption; /* the caption of this file, where the platform has captions */
    uint64_t size;
};

struct event_said { /* an earlier message of the chat */
    struct str text, message_id, user_id, user_name;
};

struct event_part { /* one message of a burst */
    struct str event_id, message_id, message_type, text;
    uint64_t n_media; /* its files; they follow those of the parts before it */
    bool deleted;     /* its author deleted it: it has its event_id, and its files are empty */
};

struct event {
    /* the origin */
    struct str platform; /* "discord", lower case */
    struct str bot;      /* the id of our bot on that platform */
    struct str filed_as; /* the platform in the session key, where it differs (a forwarded
                          * interaction: "relay"); absent: platform */
    /* The most specific key that `bellhop route` may name: a guild, a chat, a person; else the bot.
     * The relay replaces it by the key that facts_route_key() selects (tenancy/facts.h). */
    struct str route_key;
    struct str former_key; /* the route key before the chat was renamed or moved; absent: none */
    struct str own_key;    /* the adapter's route_key, after the relay replaced it */
    struct str event_id;   /* the platform's id, for deduplication; absent: never a duplicate */
    /* the message */
    struct str text;         /* never null on the wire */
    struct str message_type; /* absent: "text" */
    struct str message_id, reply_to_message_id;
    const struct event_media *media; /* in order; EVENT_MAX_MEDIA at most */
    size_t n_media;
    /* A burst: the messages that the relay joined to this event, whose event_id is that of the
     * first one.  EVENT_MAX_PARTS at most; 0: one message. */
    const struct event_part *parts;
    size_t n_parts;
    int64_t burst_ms; /* the relay waits so long for more messages of the author; 0: it does not.
                       * Never on the wire, and never saved */
    struct {
        struct str text, author;
        bool is_own, set;
    } reply_to; /* the quoted message */
    struct {
        struct str prompt_id, option_id, label, message_id;
    } press; /* answers a prompt with buttons; without a prompt_id: it does not */
    /* Earlier messages of the chat, oldest first, EVENT_MAX_CONTEXT at most.  The relay removes
     * them for instances that may not read the place. */
    const struct event_said *context;
    size_t n_context;
    bool context_error; /* there may be a context, but it could not be read */
    bool wants_context; /* the platform can fetch the context; never on the wire */
    /* SessionSource */
    struct str chat_id, chat_type, chat_name, chat_topic;
    struct str user_id, user_name, user_id_alt, chat_id_alt;
    struct str user_display_name, user_handle;
    struct str thread_id, parent_chat_id;
    struct str scope_id; /* guild, workspace, server: sent as guild_id and scope_id */
    /* The thread that an answer to this event will open.  In a thread that was opened that way, the
     * name the thread got then. */
    struct str prospective_thread_id, auto_thread_name;
    struct str dispatch; /* a JSON object: what a program told of its dispatch; absent: none */
    struct str trace; /* the valid W3C `traceparent` of its webhook (core/caller.h); absent: none */
    /* for the gate only, never on the wire */
    bool author_is_bot, mentions_bot, replies_to_bot;
    bool author_unproven; /* others have or may get @user_id too: nobody is linked by it */
    bool looks_back;      /* the visibility check must include earlier messages of the place */
    /* The only instance that may receive it, if the gate agrees; absent: the gate alone decides. */
    struct str only_tenant, only_instance;
    bool only_owners; /* with @only_instance: and only if the author is linked to it */
    bool only_stops;  /* a second /stop under another session key: interrupts, is never delivered */
    /* Edits or deletes the earlier message with the same message_id.  If that message is still
     * queued, it gets this text or is removed.  If the agent has it already, the agent receives
     * this event, unless @silent. */
    struct {
        struct str text;
        bool set, deletes, silent;
    } edit;
};

/* The platform "hook" is called "webhook" on the wire, a name that gateways know.  Every other
 * platform has one name.  Frames are written with the first function; the second reads a name that
 * a gateway or a client wrote, by either name. */
static inline struct str event_platform_shown(struct str name)
{
    return str_eq(name, STR("hook")) ? STR("webhook") : name;
}
static inline struct str event_platform_meant(struct str shown)
{
    return str_eq(shown, STR("webhook")) ? STR("hook") : shown;
}

/* Writes the `event` object of an inbound frame.  Members that crash the real client as null are
 * never null, the scope has both names, and is_bot is left out.  Unsafe media URLs are left out,
 * see event_media_is_safe(). */
void event_write(struct buf *out, const struct event *ev);

/* Reads an `event` object as event_write() writes it, for events that a tool makes up.  Unknown
 * members are ignored; the lists live in @arena, the texts in the parser.  The members that are not
 * on the wire stay zero.  False: @ret_why (256 bytes) names the member with a wrong type. */
bool event_read(struct json wire, struct arena *arena, struct event *ret, char *ret_why);

/* Prefix of the placeholder for a stored file in a queued frame.  The URL depends on the receiver
 * and the time, so event_fill_media() fills it in when the frame is sent. */
#define EVENT_MEDIA_PLACEHOLDER "bellhop:media/"
typedef void event_url_cb(void *ctx, struct str id, struct buf *out); /* appends the URL */
void event_fill_media(struct buf *out, struct str frame, event_url_cb *url, void *ctx);

/* False for URLs that are not http(s), and for URLs that contain "/relay/media/": the client would
 * send its bearer token to them. */
bool event_media_is_safe(struct str url);

/* True when the frame is one of event_write_frame() with several messages in it. */
#define EVENT_MESSAGE_IDS ",\"message_ids\":["
bool event_frame_is_burst(struct str frame);
/* May the author of @edit change what @author wrote?  A text is changed by its own author alone:
 * Matrix passes on everybody's edits.  Who may delete a message, the platform decides. */
bool event_may_change(const struct event *edit, struct str author);
/* Appends a frame of event_write_frame() with one of its messages changed.  @edit has the message's
 * chat_id and its edit, and the message_id for a burst; any other frame is the message itself.
 * EVENT_PART_UNKNOWN: there is no such message, it is of another chat, or event_may_change()
 * refuses.  EVENT_PART_LAST: @edit deletes the only message that is left. */
enum event_part_change { EVENT_PART_UNKNOWN, EVENT_PART_CHANGED, EVENT_PART_LAST };
void event_write_part(struct jw *w, uint64_t bytes, uint64_t files); /* of message_parts */
enum event_part_change event_change_part(struct buf *out, struct json_parser *parser,
                                         struct str frame, const struct event *edit);

/* Writes {"type":"inbound","bufferId":...,"event":{...}}\n.  @id NULL: without a bufferId. */
void event_write_frame(struct buf *out, const struct event *ev, const struct hash128 *id);

/* ---- keeping an event past its call ---- */

/* Copies @ev; the copy and its texts live in @arena. */
void event_copy(const struct event *ev, struct arena *arena, struct event *ret);
/* Saves an event as private JSON, which is never sent to a peer, and loads it into @arena.  The
 * form holds every member but looks_back, which only queries use.  False: @saved is no event. */
void event_save(struct buf *out, const struct event *ev);
bool event_load(struct json saved, struct arena *arena, struct event *ret);

/* ---- the id of a delivery: its bufferId on the wire and its deduplication key ----
 *
 * The id is a hash of tenant, instance, platform, bot and event id.  The same event has the same id
 * after a crash, on every node, and when its platform repeats it.  A client that remembers ids
 * handles each delivery once.  The row number in the mailbox only gives the order and is never
 * sent.
 *
 *      the event             its event id
 *      a message             delivery_event_id(): the platform's message id, with the chat where it
 *                            is unique only within the chat
 *      an edit, a press      the platform's id of that update
 *      a forwarded webhook   the message's id
 *      an interaction        its id behind an "i": it is no message to react to (relay/out/guard.c)
 *      without an id         none: the delivery gets a random id, and a repeat is a new delivery
 */
#define DELIVERY_ID_CHARS 27 /* "b" and 26 digits of five bits */
#define DELIVERY_BOT_BITS 10 /* the first bits are a hash of the bot */

/* The id of @ev for one instance; false when @ev has no event id.  The first DELIVERY_BOT_BITS are
 * equal for all events of one bot.  @key is random per database and stored in it. */
bool delivery_id_of(const struct event *ev, const struct hash_key *key, struct str tenant,
                    struct str instance, struct hash128 *ret);

/* True for an id that others have or may get too: of a chat of Telegram, or a nick of IRC
 * without an account.  An author with such an id is unproven, and no link of it counts. */
bool user_id_unproven(struct str platform, struct str user_id);

/* The event id of a message.  The result is borrowed from @buf, which holds the joined id, or from
 * @message_id. */
struct str delivery_event_id(struct buf *buf, bool ids_per_chat, struct str chat_id,
                             struct str message_id);

/* Appends `"bufferId":"...",`. */
void delivery_id_write(struct buf *out, struct hash128 id);
void delivery_id_format(struct hash128 id, char ret[DELIVERY_ID_CHARS]);
/* The bufferId of a frame that bellhop wrote; absent: it has none. */
struct str delivery_id_in(struct str frame);
