/* normalize.h - verifies Slack's requests, and turns what they say into events.
 *
 *      where                     chat_id  chat_type  thread_id  scope_id   route_key
 *      channel, group of people  channel  group      -          workspace  workspace
 *      thread of one of these    channel  group      thread_ts  workspace  workspace
 *      direct message            channel  dm         thread_ts  workspace  dm:<user>
 *
 * inbound.c and interactions.c call it.  Pure: no clock, no network.
 *
 * Messages without a subtype, with files, sent to the channel from a thread, "/me", of bots, and
 * mentions of the bot become events.  Joins, topics, pins and the bot's own messages are ignored.
 * A message may come twice, as `message` and as `app_mention`: both have the same event id. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

struct form;

#define SLACK_WINDOW_MS 300000 /* between the timestamp of a request and the clock */
#define SLACK_ID_MAX 31        /* bytes of an id: a workspace, a channel, a person, a ts */

/* Is @signature that of @body, made with @secret at @timestamp, and is that now?  @scratch is
 * reused from call to call. */
bool slack_signature_ok(struct str secret, struct str timestamp, struct str signature,
                        struct str body, int64_t wall_ms, struct buf *scratch);

enum slack_verdict {
    SLACK_EVENT,
    SLACK_IGNORED,   /* ret->why has the reason */
    SLACK_MALFORMED, /* not what Slack sends */
};

struct slack_in {
    struct str bot;              /* its name in the configuration */
    struct str bot_user, bot_id; /* the bot in this workspace; absent: not known yet */
    bool reactions;              /* people's reactions become events */
};

struct slack_out {
    struct event ev; /* strs are borrowed from the JSON, the arena and this struct */
    struct str team, channel, user;
    struct str user_team; /* of the person, who may come from another one; absent: not told */
    const char *why;
    struct buf id;
    struct event_media media[EVENT_MAX_MEDIA];
};

/* The workspace that @body, an event_callback, was sent for; absent: none. */
struct str slack_team_of(struct json body);
/* @out starts zeroed and may be reused; slack_out_done() frees what it holds. */
enum slack_verdict slack_normalize(struct json body, const struct slack_in *in, struct arena *arena,
                                   struct slack_out *out);
void slack_out_done(struct slack_out *out);

/* ---- interactions and commands ---- */

struct slack_press { /* borrowed as in struct slack_out */
    struct event ev;
    struct str team, value; /* of the button */
};
/* Reads a block_actions payload.  False: it is none, or incomplete. */
bool slack_normalize_press(struct json payload, const struct slack_in *in, struct arena *arena,
                           struct slack_press *ret);
/* Any other interaction, to be forwarded.  False: it names no workspace and person. */
bool slack_normalize_other(struct json payload, const struct slack_in *in, struct arena *arena,
                           struct slack_out *out);
/* A slash command becomes the words that the person could have written. */
enum slack_verdict slack_normalize_command(const struct form *f, const struct slack_in *in,
                                           struct arena *arena, struct slack_out *out);

/* ---- text ---- */

bool slack_is_id(struct str id);   /* upper-case letters and digits */
bool slack_is_chat(struct str id); /* of a channel or a conversation */
bool slack_is_ts(struct str ts);   /* "1700000000.000100" */
/* Slack's mark-up as plain text: links as "label (url)", entities unescaped; mentions of people
 * stay as they are, and mentions of @bot_user at the start are left out. */
struct str slack_text_in(struct arena *arena, struct str text, struct str bot_user);
/* Markdown of an agent, so that nobody is pinged: a zero-width space behind each "<" that begins
 * a mention.  Absent mentions: @text itself. */
struct str slack_neutralize(struct buf *out, struct str text);
/* Appends @text as Slack's plain text: "&", "<" and ">" escaped, @max UTF-16 units at most. */
void slack_escape(struct buf *out, struct str text, size_t max);
/* Slack's name of an emoji, or of ":name:"; absent: it has none. */
struct str slack_emoji_name(struct str emoji);
/* May a file be fetched from @url with the bot's token?  @api_base: the configured address. */
bool slack_is_own_url(struct str url, struct str api_base);
/* The same for the address of a WebSocket. */
bool slack_is_own_socket(struct str url, struct str api_base);
