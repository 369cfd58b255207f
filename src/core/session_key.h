/* session_key.h - the key the real gateway computes for an event, byte for byte.
 *
 * Two generations of gateways differ for Slack and for prospective threads only.  Never parse a key
 * back: ids may contain its separator. */
#pragma once
#include "core/event.h"

struct session_key_source { /* "set" means present and not empty */
    struct str platform, chat_id, chat_type, user_id, user_id_alt, thread_id;
    struct str scope_id, prospective_thread_id, message_id;
};
struct session_key_options {
    bool group_sessions_per_user;  /* the client's default: true */
    bool thread_sessions_per_user; /* false */
    struct str profile;            /* absent */
    bool august;                   /* the newer generation's rules */
};
#define SESSION_KEY_DEFAULTS ((struct session_key_options){.group_sessions_per_user = true})

/* Appends to @out.  Unknown platform names become "relay", as the client maps them. */
void session_key_write(struct buf *out, const struct session_key_source *src,
                       const struct session_key_options *opt);
/* By the defaults; where the answer opens a thread, by the newer generation's: only that one can
 * find it again. */
void session_key_of_event(struct buf *out, const struct event *ev);
void session_key_of_event_as(struct buf *out, const struct event *ev,
                             const struct session_key_options *opt);
/* The name the client files this platform under: trimmed, lower case, known; else "relay". */
struct str session_key_platform(struct str name);
