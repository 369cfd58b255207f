/* outside.h - the world as the heart sees it: outlets it can speak through, and nothing behind
 * them.
 *
 *      heart --outside->act()--> whoever serves the outlet --relay_result()--> heart
 *
 * An outlet is one bot on one platform, or any other place where chats live; who serves it (an
 * adapter, the agents' mail) the heart does not know.  host/ implements this for the program, the
 * unit tests and the simulator with a few lines.
 */
#pragma once
#include "core/action.h"
#include "core/descriptor.h"
#include "core/event.h"
#include "core/gate.h"

struct outlet { /* what the heart may know of it; lives while it is served */
    const char *platform, *bot;
    const struct descriptor *descriptor;
    bool secret_chats; /* chat ids cannot be guessed and act() knows its own: an instance that holds
                        * the bot's route and names one was told of it, so the heart need not
                        * remember them all */
    bool knows_sight;  /* sees() can tell; else an instance sees what it was ever delivered */
    bool answers; /* no platform: whatever was delivered from there may be answered there, by the
                   * instance that got it */
    bool alone;   /* the only one of its platform: who is reached there is reached through it */
    bool ids_per_chat; /* a message's id is unique in its chat only: core/delivery_id.h */
};

struct wait_id { /* an event that waits: a number */
    uint32_t index, generation;
};

struct outside {
    /* The outlet that serves (platform, bot); absent bot: the only or first one.  NULL: none. */
    const struct outlet *(*find)(struct outside *o, struct str platform, struct str bot);
    /* Perform @a, borrowed for the call.  Only ops of the descriptor arrive here. */
    void (*act)(struct outside *o, const struct outlet *to, struct action_id id,
                const struct action_from *from, const struct action *a);
    /* Can @user see where @ev was written (or would be: platform, scope_id and chat_id are set)? */
    enum gate_sight (*sees)(struct outside *o, const struct outlet *at, const struct event *ev,
                            struct str user);
    /* An instance went live, away or asleep.  NULL: nobody wants to know. */
    void (*changed)(struct outside *o, struct str tenant, struct str instance, const char *state);
    /* The instance is no more: nothing that it asked for is done any longer.  NULL: ignored. */
    void (*gone)(struct outside *o, struct str tenant, struct str instance);
    /* A gateway named its commands, [{name, description, options?}]; borrowed for the call.  NULL:
     * nobody wants to know. */
    void (*announced)(struct outside *o, struct str gateway, struct json manifest);
    /* The delivery @row of an instance names this file; it must be kept until it is settled.
     * NULL: there are no files. */
    void (*holds)(struct outside *o, struct str media_id, struct str tenant, struct str instance,
                  uint64_t row);
    /* Fetch the file @ev->media[@file], paid for by @tenant, for the event that waits under @id.
     * Answered by relay_file_here() or relay_file_lost(), later.  NULL: there are no files. */
    void (*fetch)(struct outside *o, struct wait_id id, size_t file, const struct event *ev,
                  struct str tenant);
    /* What was said before @ev?  Answered by relay_context(), later.  NULL: nobody can be asked. */
    void (*context)(struct outside *o, struct wait_id id, const struct event *ev);
    void (*drop)(struct outside *o, struct wait_id id); /* nobody waits any more.  NULL: ignored */
    int64_t (*wait_ms)(struct outside *o); /* how long an event waits for such; NULL: not at all */
    /* @chat_id may be a thread, whose events name another chat: that one, written into @room; the
     * platform absent: any.  Absent: it is none.  NULL: there are no such threads. */
    struct str (*home)(struct outside *o, struct str platform, struct str bot, struct str chat_id,
                       char room[32]);
};
