/* platform.h - the contract between bellhop and the adapter of a chat platform.
 *
 *      host --ops->act(), http(), ...--> adapter --host_accept(), host_result(), ...--> host
 *
 * One struct platform is one bot on one platform.  src/host opens and closes the bots and calls
 * them through `ops`; it also implements host_*().  Of all functions here only ops->open() and
 * ops->check() may block.  No callback runs inside the call that started it.  A new platform is a
 * folder with one platform_ops, and a line in platforms[].
 */
#pragma once
#include "base/err.h"
#include "base/log.h"
#include "core/accept.h"
#include "core/action.h"
#include "core/descriptor.h"
#include "core/event.h"
#include "core/gate.h"
#include "platform/await.h"

struct host;
struct http_fetch;
struct http_req;
struct json;
struct json_parser;
struct jw;
struct prompt;
struct sender_ops;
struct text_ops;

struct platform_settings { /* first member of each adapter's settings; filled from `platforms:` */
    char *platform, *bot;  /* owned by the config */
    char *tenant;          /* owned by the config; the bot belongs to this tenant; NULL: to all */
    char *host; /* owned by the config; its webhooks come by this name only; NULL: by any */
    int64_t debounce_ms; /* messages of one author within this time are one delivery; 0: off */
    char *api_base;      /* owned by the config; PLATFORM_KEY_API_BASE; NULL: ops->api_base */
    bool reactions;      /* PLATFORM_KEY_REACTIONS */
};
/* Keys that several platforms have in their sections; base/config.h. */
#define PLATFORM_KEY_API_BASE \
    { \
        "api_base", CFG_TEXT, CFG_RESTART, offsetof(struct platform_settings, api_base), \
            .what = "The URL of another API server than the platform's own." \
    }
#define PLATFORM_KEY_REACTIONS \
    { \
        "reactions", CFG_BOOL, CFG_RESTART, offsetof(struct platform_settings, reactions), \
            "false", .what = "Deliver people's reactions to the bot's messages to the agent." \
    }
struct outbox_settings { /* `outbox:` in the configuration */
    int64_t max_age_ms;
};
extern const struct config_section outbox_config;
extern const struct config_list platforms_config; /* its kinds are the platforms of this build */
struct config;
/* May all of them be open together?  False: @ret_why (256 bytes) says what to change. */
bool platforms_fit(const struct config *cfg, char *ret_why);

struct media_ask { /* identifies a call of ops->media_where() */
    uint32_t index, generation;
};
struct context_ask { /* identifies a call of ops->context() */
    uint32_t index, generation;
};
struct media_at { /* where a file is; borrowed for the call */
    struct str url;
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    bool foreign;               /* not the platform's own host: fetched as from any stranger */
    bool redirects;             /* follow redirects */
};

struct platform_report { /* what ops->check() learned about a bot; texts may be empty */
    char bot[128];       /* the value that `bot` should have; "": any name will do */
    char name[128];      /* the bot's name on the platform, for people */
    char reach[256];     /* how people reach or invite the bot: a link, or a sentence */
    char notes[512];     /* good to know, a sentence */
    char warnings[1536]; /* what does not work yet and where to change it, a sentence a line */
    bool webhook;        /* the platform sends events to the bot's webhook address */
};

struct platform_ops {
    const char *name;                    /* "telegram": config value, log tag, metric label */
    const struct config_section *config; /* its keys in an entry of `platforms:`; base/config.h */
    /* May one instance be behind two bots with these settings?  False: @ret_why (256 bytes) says
     * what to change.  NULL: behind any. */
    bool (*fits)(const struct platform_settings *a, const struct platform_settings *b,
                 char *ret_why);
    const struct descriptor *descriptor;      /* what this platform can do */
    const struct record_form *const *records; /* the forms of its records; NULL: none */
    /* Chat ids cannot be guessed, and act() refuses chats that are not its own.  So an instance
     * that holds the bot's route and names a chat has had an event from that chat, and the relay
     * need not remember every chat. */
    bool secret_chats;
    bool ids_per_chat; /* a message's id is unique in its chat only: core/event.h */
    /* How long the platform may send an event again, where that is longer than
     * `delivery.dedup`: while one of its bots is configured, deduplication keys are kept
     * for this time.  0: not longer. */
    int64_t repeats_ms;
    /* Servers of the platform choose this path themselves, so it names no bot: every bot gets the
     * requests below it through http(), until one is proven to be meant.  NULL: none. */
    const char *fixed_path;
    size_t max_webhook; /* bytes of its webhooks, where they may exceed the server's limit; 0 */
    /* For platforms where verifying a webhook costs more than a few microseconds: do the headers
     * look genuine?  If so, the door (edge/door.h) decides whether the webhook is verified.  NULL:
     * every webhook is verified. */
    bool (*plausible)(const struct http_req *req, int64_t wall_ms);
    /* Anybody who can reach the bot may write, without an account that could be linked.  An
     * operator's route to the bot is always open. */
    bool open_by_nature;

    /* ---- how a bot is opened and closed: platform_open() ---- */
    size_t size;       /* of the adapter's struct, which begins with a struct platform */
    const char *label; /* the platform's name in messages to people: "Discord" */
    const char
        *api_base; /* the address of its API, without a slash at its end; NULL: it has none */
    const struct sender_ops *sender; /* how its requests are written; NULL: it makes none */
    const struct text_ops *texts;    /* for text_act(): texts.h; NULL: it has an act() of its own */
    /* A question has ended: prompts.h.  NULL: the messages of questions need no update. */
    void (*prompt_over)(struct platform *p, struct prompt *q);
    /* Fills in the adapter's members of @p, which are zeroed, and reads its records.  May block,
     * and sends nothing: sender and prompts are opened afterwards.  On failure @ret_why (256 bytes)
     * tells the operator what to fix, and close() runs.  NULL: it has none. */
    enum bh_err (*open)(struct platform *p, char *ret_why);
    /* Starts to talk to the platform; all of @p is open.  NULL: webhooks are enough. */
    void (*start)(struct platform *p);
    /* Cancels the adapter's own work and frees its members.  Runs once, also after a failed open().
     * Sender and prompts, where open, are closed afterwards; the adapter's calls end here.  NULL:
     * it has none. */
    void (*close)(struct platform *p);

    /* A file that the bot reads while it runs, such as certificates of authorities; may return
     * NULL.  NULL: it reads none. */
    const char *(*reads)(const struct platform_settings *cfg);
    /* The program that the bot runs (platform/child.h), as an argument list that ends with NULL;
     * may return NULL.  NULL: it runs none. */
    char *const *(*runs)(const struct platform_settings *cfg);
    /* For `bellhop setup` and `bellhop doctor`: does the platform accept the credentials in @cfg?
     * Blocks, changes nothing, and adds to the zeroed @ret.  BH_REFUSED: @ret_why (256 bytes) says
     * what to fix; BH_UNAVAILABLE: the platform did not answer.  NULL: only open() finds out. */
    enum bh_err (*check)(const struct platform_settings *cfg, struct platform_report *ret,
                         char *ret_why);
    /* Appends the file that registers bellhop with the platform's server, for `bellhop <name>
     * registration`.  @url: where the server reaches bellhop.  False: the bot with these settings
     * needs none.  NULL: no bot does. */
    bool (*registration)(const struct platform_settings *cfg, struct str url, struct buf *out);
    /* For `bellhop setup`: what a person does on the platform to get the keys, a step a line; NULL:
     * nothing. */
    const char *steps;
    /* For `bellhop setup`: what `bot` must be.  NULL: check() finds out, or any name will do. */
    const char *bot_is;
    /* How people send "/link CODE" where their apps keep lines that begin with "/" to themselves: a
     * sentence.  NULL: as any message. */
    const char *link_how;
    /* Performs @a, whose strs are borrowed for this call.  Only ops in descriptor->ops
     * arrive here. */
    void (*act)(struct platform *p, struct action_id id, const struct action_from *from,
                const struct action *a);
    /* The next two serve a chat page of bellhop's own that takes and shows files; NULL: no page.
     * page_visitor() finds the chat of the visitor who sent @req.  False: the request was refused,
     * and answered. */
    bool (*page_visitor)(struct platform *p, struct http_req *req, bool writes,
                         struct buf *ret_chat);
    /* Writes a proof that @m was uploaded or shown in @chat; it covers all of @m but the url. */
    void (*page_file_key)(struct platform *p, struct str chat, const struct event_media *m,
                          struct buf *out);
    /* Handles a request below /webhooks/<name>/<bot> or, for web, /chat.  NULL: none.  True:
     * answered through http_answer(), now or later.  False: the request does not prove that it is
     * meant for this bot, and the adapter did nothing.  All such requests get the same answer, so
     * that a stranger learns nothing.  An adapter that has to fetch a key first sets p->unproven,
     * returns true, and may call webhook_is_unsigned() later. */
    bool (*http)(struct platform *p, struct http_req *req);
    /* Handles GET /<name>/install/<bot>[/callback], by which people install the bot elsewhere.
     * False: this bot cannot be installed.  NULL: none can. */
    bool (*install)(struct platform *p, struct http_req *req);
    /* Deletes @person from memory; the caller has deleted the records.  NULL: memory holds none. */
    void (*forget)(struct platform *p, struct str person);
    /* The same for @chat, of a tenant that is erased or with one person alone.  An erasure calls it
     * for every chat, so it takes no walk through a table.  NULL: forget() does it. */
    void (*forget_chat)(struct platform *p, struct str chat);
    /* Records of its own that name tenants or people; ctx is a struct platform_erase.  NULL: it has
     * none. */
    const struct eraser *eraser;
    /* Can @user see the chat of @ev?  Of @ev, platform, scope_id and chat_id are set.  NULL: this
     * platform cannot tell, and an instance sees every chat it had an event from. */
    enum gate_sight (*sees)(struct platform *p, const struct event *ev, struct str user);
    /* The chat id in the events of the thread @chat, written into @room.  Absent: events name @chat
     * itself.  NULL: events always do. */
    struct str (*home)(struct platform *p, struct str chat, char room[32]);
    /* May @user manage this channel ("*": the whole guild)?  False if unknown.  NULL: the platform
     * cannot tell, so nobody may. */
    bool (*manages)(struct platform *p, struct str guild, struct str channel, struct str user);
    /* Looks up the address of the file @ref of an event (struct event_media).  The adapter answers
     * with host_media_at() or host_media_gone(), now or later.  NULL: events have no such files. */
    void (*media_where)(struct platform *p, struct media_ask ask, struct str ref);
    /* Looks up the messages before @ev, whose wants_context is set.  The adapter answers with
     * host_context(), later, within a few seconds.  NULL: no event sets wants_context. */
    void (*context)(struct platform *p, struct context_ask ask, const struct event *ev);
    /* An instance behind this bot changed its state; @state is the best state among the instances,
     * for pages to show.  NULL: ignored. */
    void (*instance_changed)(struct platform *p, const char *state);
    /* Registers the commands that people pick in the app: a JSON array of {name, description,
     * options?} with unique names.  Idempotent.  NULL: not supported. */
    void (*set_commands)(struct platform *p, struct str commands);
    /* The bot's state in one word, for `status`.  NULL: "degraded" if it has a problem, else
     * "live". */
    const char *(*state)(struct platform *p);
    /* Adds keys of the adapter's own to those of platform_status().  NULL: none. */
    void (*status)(struct platform *p, struct jw *w);
};

struct platform_rhythm {       /* wall clock */
    int64_t since_ms, last_ms; /* the first and the last event; 0: none yet */
    int64_t beat_due_ms;       /* the next heartbeat, at the latest; 0: there are none */
    double events;             /* of the last PLATFORM_RHYTHM_MS; older ones fade */
};

struct platform { /* one bot; first member of every adapter's struct */
    const struct platform_ops *ops;
    const struct descriptor *descriptor;      /* what this bot can do; NULL: ops->descriptor */
    const struct platform_settings *settings; /* borrowed from the config */
    struct host *host;                        /* borrowed */
    const struct host_env *env;               /* borrowed */
    const char *bot;                          /* borrowed from the config */
    const char *hook_host;       /* borrowed from the config: platform_settings.host; NULL: any */
    int64_t debounce_ms;         /* platform_settings.debounce_ms */
    char *api_base;              /* owned; without a slash at its end; NULL: ops->api_base is */
    struct log log;              /* its lines name the platform and the bot */
    const char *problem;         /* a sentence an operator can act on, or NULL; adapters set it */
    struct json_parser *parser;  /* owned; of what the platform sends; one document at a time */
    struct json_parser *answers; /* owned; of the answers to requests; one document at a time */
    struct sender *sender;       /* owned; NULL: not open yet */
    struct prompts *prompts;     /* owned; its open questions: prompts.h; NULL: it asks none */
    struct awaits awaits;        /* its webhooks that wait for their answer: await.h */
    struct str trace; /* of the webhook that http() is reading, valid; host_accept() adds it to its
                       * events; absent: none */
    bool unproven;    /* http() took a request whose proof is not known yet; its caller clears it */
    int64_t last_event_ms; /* wall clock of the last event from the platform; 0: never */
    struct {
        uint64_t events;                      /* handed to the relay; the host counts */
        uint64_t ignored, malformed, refused; /* of its webhooks and events; adapters count */
    } n;
    struct platform_rhythm rhythm; /* private: platform_heard(), platform_beat() */
    char problem_text[256];        /* private: platform_set_problem() */
};

extern const struct platform_ops *const platforms[];       /* ends with NULL */
extern const struct record_form *const platform_records[]; /* of all platforms; ends with NULL */
const struct platform_ops *platform_find(struct str name);

/* Opens a bot: allocates ops->size bytes, fills in the members of struct platform, and calls
 * ops->open(), prompts_open() if the bot asks questions, sender_new(), ops->start().  Blocks.
 * @settings is the adapter's own struct, filled and checked by ops->config, and is borrowed for the
 * life of the bot.  On failure @ret_why (256 bytes) tells the operator what to fix. */
enum bh_err platform_open(const struct platform_ops *ops, const struct platform_settings *settings,
                          struct host *host, struct platform **ret_p, char *ret_why) BH_MUST_USE;
/* Closes and frees @p.  No callback of @p runs and no host_*() is called afterwards. */
void platform_close(struct platform *p);
/* Writes keys into an object for `status --json`: what all bots have, then ops->status(). */
void platform_status(struct platform *p, struct jw *w);
/* The bot's id in paths and for its platform: its name, without the @host that tells it from
 * another bot of that id. */
struct str platform_id(const struct platform *p);
struct str platform_id_in(struct str bot); /* the same of a name, where no id has an @ */
/* Appends the address that @p has for its platform, as far as the host, without a slash at its end;
 * false: not known, because there is neither `host` nor `public_url`. */
bool platform_base_url(const struct platform *p, struct buf *out);
/* Appends the address of its webhooks; false: not known. */
bool platform_webhook_url(const struct platform *p, struct buf *out);
/* May the bot's credential go to @url?  Yes for https on one of @hosts (ends with NULL; NULL: none)
 * or below, and for the host of @api_base, the configured address; absent: none is. */
bool platform_owns_url(const char *const *hosts, struct str url, struct str api_base);
/* The message_type of an event with a file of this MIME type: "photo", "voice", "document", ... */
struct str platform_message_type(struct str mime, bool voice);
/* Copies @sentence into p->problem and logs it if it is new; NULL: there is no problem any more. */
void platform_set_problem(struct platform *p, const char *sentence);
/* ---- connected but deaf ----
 *
 * A connection can stay open and yet bring no more events.  If the platform has a heartbeat, its
 * adapter calls platform_beat() for each beat.  Otherwise a bot counts as deaf after ten times its
 * usual gap between events, and at least ten minutes. */
#define PLATFORM_RHYTHM_MS ((int64_t)24 * 3600 * 1000)
#define PLATFORM_DEAF_MS 600000
#define PLATFORM_DEAF_EVENTS 10 /* fewer events are no rhythm yet */
#define PLATFORM_DEAF_BEAT_MS 45000

/* An event came; the host calls it for every one. */
static inline void platform_heard(struct platform *p, int64_t wall_ms)
{
    struct platform_rhythm *r = &p->rhythm;
    int64_t gap_ms = wall_ms - r->last_ms;

    if (r->since_ms == 0 || gap_ms >= PLATFORM_RHYTHM_MS)
        *r = (struct platform_rhythm){.since_ms = wall_ms, .beat_due_ms = r->beat_due_ms};
    else if (gap_ms > 0)
        r->events -= r->events * (double)gap_ms / PLATFORM_RHYTHM_MS;
    r->events++;
    r->last_ms = p->last_event_ms = wall_ms;
}
/* A heartbeat came; the next one comes within @every_ms, which is less than PLATFORM_DEAF_BEAT_MS.
 * 0: there are no heartbeats any more, because the adapter gave the connection up. */
static inline void platform_beat(struct platform *p, int64_t wall_ms, int64_t every_ms)
{
    p->rhythm.beat_due_ms = every_ms > 0 ? wall_ms + every_ms : 0;
}
int64_t platform_usual_gap_ms(const struct platform *p); /* between events; 0: not known yet */
/* Does @p seem deaf?  @ret_why is a sentence for the operator. */
bool platform_is_deaf(const struct platform *p, int64_t wall_ms, char ret_why[160]);

/* ---- for ops->check() ---- */

/* Makes a request and reads its answer, which is JSON.  Blocks.  BH_UNAVAILABLE: there was no
 * answer, or one that only a broken server gives; @ret_why (256 bytes). */
enum bh_err platform_ask(const struct http_fetch *f, struct json_parser *parser, int *ret_status,
                         struct json *ret_doc, char *ret_why);
/* As platform_ask(), for @path below the API of the bot with these settings.  Of @f, url and
 * timeout are set here. */
enum bh_err platform_ask_api(const struct platform_ops *ops, const struct platform_settings *cfg,
                             struct str path, struct http_fetch f, struct json_parser *parser,
                             int *ret_status, struct json *ret_doc, char *ret_why);
void platform_warn(struct platform_report *r, const char *fmt, ...) BH_PRINTF(2, 3);
/* Copies @s, cut at @size - 1 bytes. */
void platform_tell(char *ret, size_t size, struct str s);

/* ---- what the host offers ---- */

struct host_env { /* borrowed, for the life of the platform */
    struct loop *loop;
    struct clock *clock;
    struct store *store;
    struct rand *rand;
    const struct seal *seal;
    struct vault *vault; /* credentials that gateways use and never see: edge/vault.h */
    struct http_client *http;
    struct http_server *server;
    struct spawner *spawner;   /* runs the programs of ops->runs(); NULL: there are none */
    const char *state_dir;     /* for files of its own; NULL: it has none */
    struct ledger *ledger;     /* base/limits.h; NULL: limits are not counted */
    struct media *media;       /* files: media/media.h; NULL: no files */
    struct journal *journal;   /* how actions ended: core/journal.h; NULL: not kept */
    const char *public_url;    /* without trailing slash; NULL: unknown */
    int64_t retention_ms;      /* how long people's messages are kept; 0: no limit; may change */
    int64_t outbox_max_age_ms; /* how long a message is retried; 0: 10 minutes; may change */
    /* How long no other process calls the platforms, even if this process stops now.  A long poll
     * must have ended by then.  NULL: there is no other process. */
    int64_t (*alone_ms)(void *ctx);
    void *alone_ctx;
};
const struct host_env *host_env(struct host *h);

/* Gives an event to the relay; core/accept.h says when @done runs.  After host_accept_cancel()
 * @done does not run. */
struct accept_id host_accept(struct host *h, struct platform *p, const struct event *ev,
                             accepted_cb *done, void *ctx);
/* host_accept() for a webhook that is forwarded unchanged but without its credentials:
 * @forward_json is the forward object; @ev names the chat and the route. */
struct accept_id host_passthrough(struct host *h, struct platform *p, const struct event *ev,
                                  struct str forward_json, accepted_cb *done, void *ctx);
void host_accept_cancel(struct host *h, struct accept_id id);
/* The adapter refused @ev itself: @why, a literal sentence, is what `bellhop why` shows. */
void host_refused(struct host *h, const struct event *ev, const char *why);
/* Calls @cb for each instance that @ev would go to, once. */
void host_each_target(struct host *h, const struct event *ev, target_cb *cb, void *ctx);

/* Answers to ops->media_where(). */
void host_media_at(struct host *h, struct media_ask ask, const struct media_at *at);
void host_media_gone(struct host *h, struct media_ask ask, const char *why);
/* As host_media_at(), for a file that the adapter has in memory.  @release runs once, with @ctx,
 * when @bytes are not needed any more; it may run inside the call. */
void host_media_bytes(struct host *h, struct media_ask ask, struct str bytes,
                      void (*release)(void *ctx), void *ctx);
/* Called after sees() returned GATE_SIGHT_ASKED for somebody in @guild: the answer came or
 * never will. */
void host_sight(struct host *h, struct platform *p, struct str guild);
/* Answers ops->context().  @said is copied, oldest first; @failed: the messages are unknown. */
void host_context(struct host *h, struct context_ask ask, const struct event_said *said, size_t n,
                  bool failed);

void host_result(struct host *h, struct action_id id, const struct action_result *r);
void host_fail(struct host *h, struct action_id id, const char *fmt, ...) BH_PRINTF(3, 4);
/* Called while opening: an earlier process ended in the middle of the action of @from.  A gateway
 * that still waits gets @error, and again if it repeats the action within a minute. */
void host_cut_off(struct host *h, const struct action_from *from, const char *error);

/* Called before the action of @from is resumed after a restart; @ret_id takes its result.  False:
 * the instance is gone, and the action must not be resumed. */
bool host_revive(struct host *h, struct platform *p, const struct action_from *from,
                 enum action_op op, struct str chat, struct action_id *ret_id);
/* May the instance of @from act in @place now, by the rules for a fresh action?  GATE_SEEN:
 * yes.  GATE_UNSEEN: no.  Otherwise: a scope grants the place, and the platform has not
 * told yet who sees it. */
enum gate_sight host_may_act(struct host *h, struct platform *p, const struct action_from *from,
                             const struct action_place *place);
/* Had the instance of @from this event of @p, as far as deduplication keys are kept? */
bool host_had_event(struct host *h, struct platform *p, const struct action_from *from,
                    struct str event_id);
#define HOST_NO_RIGHT "this agent has no right to act in this chat any more"
bool host_has_instance(const struct host *h, struct str tenant, struct str instance);
/* A new number, larger than every earlier one, across restarts too. */
uint64_t host_number(struct host *h);

size_t host_n_platforms(const struct host *h);
struct platform *host_nth_platform(const struct host *h, size_t n); /* in the order of opening */
/* Does @p register the commands that @gateway announced? */
enum host_announcer {
    ANNOUNCER_GONE,  /* no bot does: the gateway is unknown or revoked */
    ANNOUNCER_OTHER, /* no: nobody gave @p to the gateway */
    ANNOUNCER_OWN,   /* yes: an operator gave @p to the gateway: tenancy/rights.h */
};
enum host_announcer host_announcer(struct host *h, struct str gateway, const struct platform *p);
/* The state of the best instance behind a route: "live", "away", "asleep", "never", or "none" if
 * the route has no instance. */
const char *host_route_state(struct host *h, struct platform *p, struct str route_key);

/* ---- erasing: store/erasure.h ---- */
struct platform_erase {                           /* ctx of the erasers of platforms; borrowed */
    struct platform *(*nth)(void *ctx, size_t i); /* of those that are open; NULL: no more */
    /* 1: the file was there, and is gone unless @dry. */
    uint64_t (*forget_file)(void *ctx, struct str id, bool dry);
    void *ctx;
};
extern const struct eraser platforms_eraser;
