/* session_key.h - computes the same session key for an event as the real gateway, byte for byte.
 *
 * The relay uses it to name the session an event belongs to.  The two generations of gateways
 * differ only for Slack and for prospective threads.  Never parse a key: ids may contain its
 * separator. */
#pragma once
#include "core/event.h"

struct session_key_options {
    bool group_sessions_per_user;  /* the client's default: true */
    bool thread_sessions_per_user; /* false */
    struct str profile;            /* absent */
    bool august;                   /* the newer generation's rules */
};
#define SESSION_KEY_DEFAULTS ((struct session_key_options){.group_sessions_per_user = true})

/* The rules that a gateway may be configured with, apart from its profile; the default comes first.
 * Several of them may give the same key. */
#define SESSION_KEY_RULES 5
extern const struct session_key_options session_key_rules[SESSION_KEY_RULES];
/* Appends @key as a gateway without a profile has it.  bellhop knows sessions by that key. */
void session_key_without_profile(struct buf *out, struct str key);

/* Appends the key of the source of @ev, as the client computes it.  Unknown platform names become
 * "relay", as the client maps them. */
void session_key_write(struct buf *out, const struct event *ev,
                       const struct session_key_options *opt);
/* The key of an event as event_write() sends it. */
void session_key_of_event_as(struct buf *out, const struct event *ev,
                             const struct session_key_options *opt);
/* Uses SESSION_KEY_DEFAULTS.  For an event with a prospective thread it uses the newer generation's
 * rules, because only a newer gateway finds that session again. */
void session_key_of_event(struct buf *out, const struct event *ev);
/* The client's name of a platform: trimmed and in lower case; "relay" for an unknown one. */
struct str session_key_platform(struct str name);
