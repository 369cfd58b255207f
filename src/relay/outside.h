/* outside.h - the interface through which the relay acts on platforms and asks them questions.
 *
 *      relay --outside->act()--> the adapter of the outlet --relay_result()--> relay
 *
 * An outlet is one bot on one platform, or another place with chats (the agents' mail).  The relay
 * does not know which adapter serves an outlet.  host/ implements struct outside for the program;
 * the unit tests and the simulator have small implementations of their own.
 */
#pragma once
#include "base/handles.h"
#include "core/action.h"
#include "core/descriptor.h"
#include "core/event.h"
#include "core/gate.h"

struct outlet { /* valid while the outlet is open */
    const char *platform, *bot;
    const struct descriptor *descriptor;
    bool secret_chats; /* chat ids cannot be guessed, and act() recognizes its own.  An instance
                        * that holds the bot's route may use any such id, so the relay may forget
                        * old chats */
    bool knows_sight;  /* sees() works; else an instance sees the chats it has deliveries from */
    bool answers; /* not a platform: an instance may answer in every chat it has a delivery from */
    bool alone;   /* the only bot on this platform */
    bool has_outbox;   /* its sender tells the journal how actions ended; else the relay does */
    bool ids_per_chat; /* a message's id is unique in its chat only: core/event.h */
};

struct outside {
    /* The outlet of (platform, bot); absent bot: the platform's first outlet.  NULL: none. */
    const struct outlet *(*find)(struct outside *o, struct str platform, struct str bot);
    /* Performs @a, borrowed for the call.  The relay passes only ops that the descriptor lists. */
    void (*act)(struct outside *o, const struct outlet *to, struct action_id id,
                const struct action_from *from, const struct action *a);
    /* Can @user see the chat of @ev?  Only platform, scope_id and chat_id of @ev need be set. */
    enum gate_sight (*sees)(struct outside *o, const struct outlet *at, const struct event *ev,
                            struct str user);
    /* The state of an instance changed.  May be NULL. */
    void (*changed)(struct outside *o, struct str tenant, struct str instance, const char *state);
    /* A gateway of the instance acked the delivery @buffer_id.  NULL: nobody wants to know. */
    void (*acked)(struct outside *o, struct str tenant, struct str instance, struct str buffer_id);
    /* The instance was deprovisioned: drop its pending actions.  May be NULL. */
    void (*gone)(struct outside *o, struct str tenant, struct str instance);
    /* A gateway announced its commands, [{name, description, options?}]; @manifest is borrowed for
     * the call.  May be NULL. */
    void (*announced)(struct outside *o, struct str gateway, struct json manifest);
    /* The delivery @row refers to the file @media_id: keep the file until the delivery is settled.
     * NULL: files are not supported. */
    void (*holds)(struct outside *o, struct str media_id, struct str tenant, struct str instance,
                  uint64_t row);
    /* Fetches the file @ev->media[@file] for the staged event @id; it counts against the quota of
     * @tenant.  Answered by relay_file_here() or relay_file_lost().  NULL: no files. */
    void (*fetch)(struct outside *o, struct handle id, size_t file, const struct event *ev,
                  struct str tenant);
    /* Requests the messages before @ev.  Answered by relay_context().  NULL: no context. */
    void (*context)(struct outside *o, struct handle id, const struct event *ev);
    void (*drop)(struct outside *o, struct handle id); /* cancels the fetches of @id; may be NULL */
    int64_t (*wait_ms)(struct outside *o);             /* timeout for files and context; NULL: 0 */
    /* If @chat_id is a thread whose events name its parent chat, returns that chat, written into
     * @room; else absent.  An absent @platform matches any.  NULL: no such threads. */
    struct str (*home)(struct outside *o, struct str platform, struct str bot, struct str chat_id,
                       char room[32]);
};
