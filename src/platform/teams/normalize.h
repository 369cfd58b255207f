/* normalize.h - turns the activities that Teams sends into events.
 *
 *      where          chat_id          chat_type  thread_id      scope_id      route_key
 *      personal chat  conversation     dm         -              Entra tenant  dm:<person>
 *      group chat     conversation     group      -              Entra tenant  Entra tenant
 *      channel        channel          channel    first message  Entra tenant  Entra tenant
 *
 * inbound.c calls it.  Pure: no clock, no network.
 *
 * In a channel every conversation has an id "<channel>;messageid=<first message>".  The channel is
 * the chat, and the first message the thread.  A person is known by the id in Entra
 * (aadObjectId), where Teams tells it, else by the id that Teams made for this bot. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

#define TEAMS_CHAT_MAX 255   /* bytes of a conversation's id, without the message */
#define TEAMS_ID_MAX 127     /* bytes of a message's id, and of an Entra id */
#define TEAMS_PERSON_MAX 255 /* bytes of the id of an account */
#define TEAMS_URL_MAX 512    /* bytes of a serviceUrl */
#define TEAMS_NAME_MAX 200   /* bytes; longer names are left out */

enum teams_verdict {
    TEAMS_EVENT,
    TEAMS_PRESS,        /* a button: ev, and ret->press */
    TEAMS_CONSENT,      /* a person took or declined a file: ret->value */
    TEAMS_INSTALLED,    /* the bot came to a place, or the place was renamed */
    TEAMS_REMOVED,      /* the bot was removed from a place */
    TEAMS_INVOKE,       /* wants an answer that nobody here has */
    TEAMS_IGNORED,      /* ret->why has the reason */
    TEAMS_OTHER_TENANT, /* an organisation that the bot does not serve */
    TEAMS_MALFORMED,    /* not what Teams sends */
};

enum teams_kind { TEAMS_PERSONAL, TEAMS_GROUP, TEAMS_CHANNEL };
extern const char *const teams_kinds[]; /* Teams' names of them; ends with NULL */

struct teams_place { /* what Teams must be told when the bot writes there; borrowed */
    enum teams_kind kind;
    struct str chat, thread;        /* thread absent: none */
    struct str service_url, tenant; /* tenant absent: not told */
    struct str team, name;          /* absent: none, or not told */
    struct str account;             /* of the person in a personal chat; absent elsewhere */
    struct str self;                /* the bot's account: "28:<app id>" */
};

struct teams_in {
    struct str bot;    /* its name in the configuration */
    struct str tenant; /* the only Entra tenant that it serves; absent: any */
    bool reactions;    /* people's reactions become events */
};

struct teams_out {
    struct event ev; /* strs are borrowed from the JSON, the arena and this struct */
    struct teams_place at;
    struct str activity; /* its id */
    struct str press;    /* the token of a button */
    bool invoke;         /* Teams waits for the answer to an invoke */
    struct json value;   /* of an invoke */
    const char *why;
    struct buf id;
    struct event_media media[EVENT_MAX_MEDIA];
};

/* @out starts zeroed and may be reused; teams_out_done() frees what it holds. */
enum teams_verdict teams_normalize(struct json activity, const struct teams_in *in,
                                   struct arena *arena, struct teams_out *out);
void teams_out_done(struct teams_out *out);

/* Splits "<chat>;messageid=<thread>".  False: this is no id of a conversation. */
bool teams_split_chat(struct str id, struct str *ret_chat, struct str *ret_thread);
bool teams_is_id(struct str id); /* of a message */

/* A text as Teams sends it: mentions of the bot are removed, other mentions become "@Name". */
struct str teams_text_in(struct arena *arena, struct str text, struct json entities,
                         struct str self, bool *ret_mentioned);
