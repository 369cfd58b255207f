/* platform.h - what a chat platform must offer, and what bellhop offers it.
 *
 * The core calls through `ops`; the adapter answers through host_*().  One struct platform is one
 * bot on one platform.  Nothing here may block, no callback runs inside the call that started it.
 * A new platform is a folder with one platform_ops and a line in platforms[].
 */
#pragma once
#include "base/err.h"
#include "core/accept.h"
#include "core/action.h"
#include "core/descriptor.h"
#include "core/event.h"
#include "core/gate.h"

struct clock;
struct config_list;
struct config_section;
struct host;
struct http_client;
struct http_req;
struct http_server;
struct ledger;
struct loop;
struct media;
struct outcomes;
struct platform;
struct rand;
struct seal;
struct sender;
struct store;
struct vault;
struct jw;

struct record_form;
struct platform_settings { /* first member of every adapter's own; filled from `platforms:` */
    char *platform, *bot;  /* owned by the config */
};
struct outbox_settings { /* `outbox:` in the configuration */
    int64_t max_age_ms;
};
extern const struct config_section outbox_config;
extern const struct config_list platforms_config; /* its kinds are the platforms of this build */

struct media_ask { /* a question about a file: a number */
    uint32_t index, generation;
};
struct context_ask { /* a question what was said before an event: a number */
    uint32_t index, generation;
};
struct media_at { /* borrowed for the call */
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    bool foreign;               /* not the platform's own host: asked as any stranger's */
    bool redirects;             /* it may answer with another address */
};

struct platform_ops {
    const char *name;                    /* "telegram": config value, log tag, metric label */
    const struct config_section *config; /* its keys in an entry of `platforms:`; base/config.h */
    const struct descriptor *descriptor; /* what this platform can do */
    const struct record_form *const *records; /* the forms of its records; NULL: none */
    /* Chat ids cannot be guessed and act() knows its own chats.  So an instance that holds the
     * bot's route and names a chat was told of it, and the relay need not remember every chat. */
    bool secret_chats;
    bool ids_per_chat; /* a message's id is unique in its chat only: core/delivery_id.h */
    /* Where verifying a webhook costs more than a few microseconds: could it be genuine, judging by
     * its headers?  If so, the door (edge/door.h) decides whether it is verified.  NULL: every
     * webhook is verified. */
    bool (*plausible)(const struct http_req *req, int64_t wall_ms);
    bool open_by_nature; /* anybody who can reach it may write, without an account that could be
                          * linked: an operator's route to it is always open */

    /* Build and start.  @cfg is the adapter's own struct as @config filled and checked it,
     * borrowed for the life of the platform.  @ret_why (256 bytes) tells the operator what
     * to fix. */
    enum bh_err (*open)(const struct platform_settings *cfg, struct host *host,
                        struct platform **ret_p, char *ret_why);
    /* For `bellhop doctor`: does the platform take the credentials in @cfg?  Blocks, changes
     * nothing.  BH_REFUSED: @ret_why (256 bytes) says what to fix; BH_UNAVAILABLE: it could not be
     * asked.  NULL: open() finds out. */
    enum bh_err (*check)(const struct platform_settings *cfg, char *ret_why);
    /* Perform @a, whose strs are borrowed for this call.  Only ops in descriptor->ops
     * arrive here. */
    void (*act)(struct platform *p, struct action_id id, const struct action_from *from,
                const struct action *a);
    /* For a page of ours that takes and shows files; both NULL: there is none.  Finds the chat of
     * the visitor who asks.  False: the request was refused, and answered. */
    bool (*page_visitor)(struct platform *p, struct http_req *req, bool writes,
                         struct buf *ret_chat);
    /* What proves that this file was given or shown in that chat; it covers all but the url. */
    void (*page_file_key)(struct platform *p, struct str chat, const struct event_media *m,
                          struct buf *out);
    /* A request below /webhooks/<name>/<bot> or, for web, /chat.  NULL: none.  True:
     * answered through http_answer(), now or later.  False: it does not prove that it is
     * meant for this bot, and nothing was done; all such get the same answer, so that a
     * stranger learns nothing from it. */
    bool (*http)(struct platform *p, struct http_req *req);
    /* Forgets what memory holds of @person, whose records were deleted.  NULL: nothing. */
    void (*forget)(struct platform *p, struct str person);
    /* Records of its own that name tenants or people; ctx is a struct platform_erase.  NULL: it has
     * none. */
    const struct eraser *eraser;
    /* Can @user see where @ev was written (or would be: platform, scope_id and chat_id are set)?
     * NULL: this platform cannot tell, and an instance sees what it was ever delivered. */
    enum gate_sight (*sees)(struct platform *p, const struct event *ev, struct str user);
    /* The chat that events from the thread @chat name, written into @room.  Absent: @chat is no
     * thread.  NULL: events always name @chat itself. */
    struct str (*home)(struct platform *p, struct str chat, char room[32]);
    /* May @user manage this channel ("*": the whole guild)?  Unknown is no.  NULL: the platform
     * cannot tell, so nobody may. */
    bool (*manages)(struct platform *p, struct str guild, struct str channel, struct str user);
    /* Where is the file that an event called @ref (struct event_media)?  Answered by
     * host_media_at() or host_media_gone(), now or later.  NULL: events name none. */
    void (*media_where)(struct platform *p, struct media_ask ask, struct str ref);
    /* What was said in its chat before @ev, whose wants_context is set?  Answered by
     * host_context(), later, within a few seconds.  NULL: no event wants to know. */
    void (*context)(struct platform *p, struct context_ask ask, const struct event *ev);
    /* The state of an instance behind this bot changed; @state is the best state among them, for
     * pages to show.  NULL: ignored. */
    void (*instance_changed)(struct platform *p, const char *state);
    /* Registers the commands that people pick in the app: a JSON array of {name, description,
     * options?}, each name once.  The same array again costs nothing.  NULL: not supported. */
    void (*set_commands)(struct platform *p, struct str commands);
    /* An object for `status --json` and the metrics: state, last event, problems.  Write
     * keys only. */
    void (*status)(struct platform *p, struct jw *w);
    /* Cancel everything, free @p.  host_*() is not called after this returns. */
    void (*close)(struct platform *p);
};

struct platform { /* first member of every adapter */
    const struct platform_ops *ops;
    const struct descriptor *descriptor; /* what this very bot can do; NULL: as its ops say */
    struct host *host;                   /* borrowed */
    const char *bot;                     /* borrowed from the config */
    const char *problem;     /* a sentence an operator can act on, or NULL; adapters set it */
    struct sender *sender;   /* borrowed; its way out; NULL: it has none of its own */
    struct prompts *prompts; /* borrowed; its open questions: prompts.h; NULL: it asks none */
    int64_t last_event_ms;   /* wall clock of the last thing heard from the platform; 0: never */
};

extern const struct platform_ops *const platforms[]; /* ends with NULL */
const struct platform_ops *platform_find(struct str name);

/* ---- what the host offers ---- */

struct host_env { /* borrowed, for the life of the platform */
    struct loop *loop;
    struct clock *clock;
    struct store *store;
    struct rand *rand;
    const struct seal *seal;
    struct vault *vault; /* capabilities that gateways use and never see: edge/vault.h */
    struct http_client *http;
    struct http_server *server;
    struct ledger *ledger;     /* base/limits.h; NULL: nothing is counted */
    struct media *media;       /* files: media/media.h; NULL: there are none */
    struct outcomes *outcomes; /* how actions ended: outcomes.h; NULL: nobody asks */
    const char *public_url;    /* without trailing slash; NULL: unknown */
    int64_t retention_ms;      /* how long what people wrote is kept; 0: no limit; may change */
    int64_t outbox_max_age_ms; /* how long what agents say is tried; 0: 10 minutes; may change */
    /* For how long no other process calls the platforms, even if this one dies: a request that a
     * platform keeps open must have ended by then.  NULL: there is no other process. */
    int64_t (*alone_ms)(void *ctx);
    void *alone_ctx;
};
const struct host_env *host_env(struct host *h);

/* Take an event in; see core/accept.h for when @done runs.  The handle calls the answer off: after
 * host_accept_cancel() @done does not run. */
struct accept_id host_accept(struct host *h, struct platform *p, const struct event *ev,
                             accepted_cb *done, void *ctx);
/* The same for a webhook that is handed on as it is, but for its credentials: @forward_json is the
 * forward object, @ev says where it belongs. */
struct accept_id host_passthrough(struct host *h, struct platform *p, const struct event *ev,
                                  struct str forward_json, accepted_cb *done, void *ctx);
void host_accept_cancel(struct host *h, struct accept_id id);
/* Everybody @ev would go to, each once. */
void host_each_target(struct host *h, const struct event *ev, target_cb *cb, void *ctx);

void host_media_at(struct host *h, struct media_ask ask, const struct media_at *at);
void host_media_gone(struct host *h, struct media_ask ask, const char *why);
/* @said is copied, oldest first; @failed: nobody can tell what was said. */
void host_context(struct host *h, struct context_ask ask, const struct event_said *said, size_t n,
                  bool failed);

void host_result(struct host *h, struct action_id id, const struct action_result *r);
void host_fail(struct host *h, struct action_id id, const char *fmt, ...) BH_PRINTF(3, 4);
/* While opening: an earlier process was cut off in the action of @from.  A gateway that still waits
 * is told @error once, and once more when it says the same again within a minute. */
void host_cut_off(struct host *h, const struct action_from *from, const char *error);

/* The action of @from goes on after a restart; its result goes to @ret_id.  False: the instance is
 * gone, and the action should not go on. */
bool host_revive(struct host *h, struct platform *p, const struct action_from *from,
                 enum action_op op, struct str chat, struct action_id *ret_id);
/* A new number, larger than all before, also those of earlier starts. */
uint64_t host_number(struct host *h);

size_t host_n_platforms(const struct host *h); /* in the order they were opened */
struct platform *host_nth_platform(const struct host *h, size_t n);
/* Whose commands are those that @gateway announced? */
enum host_announcer {
    ANNOUNCER_GONE,  /* the gateway was revoked: nobody's */
    ANNOUNCER_OTHER, /* another bot's */
    ANNOUNCER_OWN,   /* of @p: the gateway was added or provisioned for it */
};
enum host_announcer host_announcer(struct host *h, struct str gateway, const struct platform *p);
/* "live", "away", "asleep", "never" or "none" (nobody is routed) for the best instance
 * behind a route. */
const char *host_route_state(struct host *h, struct platform *p, struct str route_key);

/* ---- erasing: store/erasure.h ---- */
struct platform_erase {                           /* ctx of the erasers of platforms; borrowed */
    struct platform *(*nth)(void *ctx, size_t i); /* of those that are open; NULL: no more */
    /* 1: the file was there, and is gone unless @dry. */
    uint64_t (*forget_file)(void *ctx, struct str id, bool dry);
    void *ctx;
};
extern const struct eraser platforms_eraser;
