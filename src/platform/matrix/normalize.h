/* normalize.h - turns the events of Matrix rooms into events for agents.
 *
 *      where                          chat_id  chat_type  thread_id  scope_id       route_key
 *      a room with two members        room     dm         -          bot's server   room
 *      any other room                 room     group      -          bot's server   room
 *      a thread of either (m.thread)  room     as above   its root   bot's server   room
 *
 * inbound.c calls it.  Pure: no clock, no network.  Texts, files, stickers, edits, deletions and
 * reactions become events.  Notices (m.notice) are messages of bots.  A "!" before a word becomes
 * a "/", since apps keep commands with a "/" to themselves. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

#define MX_ID_MAX 255 /* bytes of any id: the specification's limit */

bool mx_is_room(struct str id);           /* "!opaque", with or without ":server" */
bool mx_is_event(struct str id);          /* "$opaque" */
bool mx_is_user(struct str id);           /* "@local:server" */
struct str mx_server_of(struct str user); /* what follows the first ":"; absent: nothing does */
struct str mx_local_of(struct str user);  /* "local" of "@local:server" */

struct mx_self {         /* a user of ours who is in the room */
    struct str id, name; /* the name may be absent */
};
struct mx_in {                  /* borrowed */
    struct str bot;             /* its name in the configuration: its user id */
    struct str server;          /* of the bot */
    const struct mx_self *self; /* the users of ours in the room */
    size_t n_self;
    struct str room, room_name; /* the name may be absent */
    struct str author_name;     /* of the sender in this room; absent: not known */
    bool dm;
    bool reactions; /* people's reactions to our messages become events */
    /* Is the message @id one of ours?  NULL: not known. */
    bool (*is_own)(void *ctx, struct str id);
    void *ctx;
};
enum mx_verdict {
    MX_EVENT,
    MX_IGNORED,   /* ret->why has the reason */
    MX_ENCRYPTED, /* only its devices can read it */
    MX_MALFORMED, /* not what a homeserver sends */
};
struct mx_out {
    struct event ev; /* strs are borrowed from the JSON, the arena and struct mx_in */
    const char *why;
    size_t addressed; /* which of @self is meant; n_self: none of them */
    struct event_media media;
};
enum mx_verdict mx_normalize(struct json event, const struct mx_in *in, struct arena *arena,
                             struct mx_out *out);

/* The message that @event replies or reacts to, or the root of its thread; absent: none. */
struct str mx_answered(struct json event);

/* ---- state ---- */

enum mx_fact { MX_OTHER, MX_MEMBER, MX_NAME, MX_ENCRYPTION, MX_TOMBSTONE };
struct mx_state { /* a state event; strs are borrowed from the JSON */
    enum mx_fact fact;
    struct str user, sender, membership, name; /* of a member; @name also of a room */
    struct str was;    /* the membership before, where the homeserver tells it */
    struct str reason; /* of an invitation */
};
/* False: not a state event, or one of no interest. */
bool mx_state_read(struct json event, struct mx_state *ret);
bool mx_is_entry(struct json event, struct str user); /* @user was invited, or joined, by it */

/* ---- text ---- */

/* The user ids that @text names, each once; returns how many. */
#define MX_MENTIONS 8
size_t mx_mentions(struct str text, struct str ret[MX_MENTIONS]);
/* Appends those user ids as "m.mentions", without those in @before, each followed by 0x1f. */
struct jw;
void mx_write_mentions(struct jw *w, struct str text, struct str before);
/* Appends @text without control characters other than newline and tab. */
void mx_clean(struct buf *out, struct str text);
/* Could cmark make anything but one paragraph of @text? */
bool mx_has_markup(struct str text);

/* ---- files: "mxc://server/id" ---- */
bool mx_media_split(struct str mxc, struct str *ret_server, struct str *ret_id);

/* ---- the users of instances: "@desk_home.main:example.org" ----
 *
 * Tenant and instance are written with letters, digits and "-"; other bytes as "=xx".  A bot that
 * belongs to one tenant leaves the tenant out. */
void mx_virtual_write(struct buf *out, struct str bot, struct str own_tenant, struct str tenant,
                      struct str instance);
/* False: @user is none.  Appends to both bufs. */
bool mx_virtual_read(struct str user, struct str bot, struct str own_tenant, struct buf *ret_tenant,
                     struct buf *ret_instance);
