/* normalize.h - turns what signal-cli received into an event.  Pure: no clock, no network.
 *
 *      {"envelope": {sourceUuid, timestamp, dataMessage | editMessage | syncMessage | ...}}
 *
 * A syncMessage is what the account wrote on another device.  In Note to Self and in groups its
 * owner writes to the agent; what the owner writes to other people is not for the agent.
 *
 * A message is known by its author and the author's timestamp.  Its id is "<timestamp>:<author>",
 * and "<timestamp>" for messages of the account itself.  inbound.c calls this module. */
#pragma once
#include "base/arena.h"
#include "core/event.h"

#define SIGNAL_UUID 36
#define SIGNAL_PERSON_MAX 40 /* bytes of a UUID or a number */
#define SIGNAL_CHAT_MAX 96   /* bytes of "group:<base64>" */
#define SIGNAL_ID_MAX 64     /* bytes of a message's id */
#define SIGNAL_FILE_MAX ((uint64_t)16 << 20)

bool signal_is_uuid(struct str s);
bool signal_is_number(struct str s); /* "+15551230000" */
/* The base64 id of a group in "group:<id>"; absent: it is no group. */
struct str signal_group_of(struct str chat_id);
bool signal_is_chat(struct str chat_id);
/* Reads the id of a message.  An absent author is the account itself. */
bool signal_read_id(struct str id, int64_t *ret_timestamp, struct str *ret_author);

struct signal_in {   /* borrowed */
    struct str bot;  /* the account's number */
    struct str self; /* the account's UUID; empty: not known yet */
    bool reactions;  /* deliver people's reactions to the account's messages */
};

enum signal_verdict {
    SIGNAL_EVENT,
    SIGNAL_IGNORED,   /* nothing that an agent should hear of: @why */
    SIGNAL_REFUSED,   /* somebody wrote, and it is not delivered: @why */
    SIGNAL_MALFORMED, /* not as signal-cli writes it */
};

struct signal_out { /* borrows from the JSON and the arena */
    struct event ev;
    struct event_media media[EVENT_MAX_MEDIA];
    int64_t timestamp; /* of the message */
    struct str author; /* UUID, or the number */
    struct str self;   /* the account's UUID, if the message told it */
    bool own;          /* the account wrote it on another device */
    const char *why;
};

/* @message is {"envelope": ..., "account": ...}. */
enum signal_verdict signal_normalize(struct json message, const struct signal_in *in,
                                     struct arena *arena, struct signal_out *out);
