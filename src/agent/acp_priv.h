/* acp_priv.h - agents that speak the Agent Client Protocol (version 1) over stdio.
 *
 *      conversation -- acp_session --many to one--> acp_host -- the program
 *
 * bellhop is the client.  A conversation is a session, a turn is a `session/prompt`.  A host is one
 * running program; it holds up to --sessions sessions, and at most --max-programs hosts run.
 *
 *      host:     STARTING --initialize answered--> READY --/stop was ignored--> RETIRING
 *                    '------------------- exits ----------------------------------> freed
 *      session:  OFF --host is ready--> OPENING (new, load, resume) --> OPEN --> prompts
 *                 ^------------------------ the host exits -------------'
 *
 * acp.c has the processes, sessions and turns; acp_content.c the content of a prompt; acp_talk.c
 * what an agent says in a session: updates, permission requests, modes and models. */
#pragma once
#include "agent/agent_priv.h"
#include "net/jsonrpc.h"

struct acp; /* the backend */
struct turn_file;

#define ACP_MAX_TOOLS 32                  /* titles of tool calls that a session remembers */
#define ACP_MAX_STATE ((size_t)256 << 10) /* bytes of a session's modes or options */

enum acp_host_state { HOST_STARTING, HOST_READY, HOST_RETIRING };

struct acp_host { /* one program */
    struct acp *backend;
    struct list link; /* backend->hosts, least recently used first */
    enum acp_host_state state;
    struct program *prog; /* owned */
    struct jsonrpc *rpc;  /* owned */
    struct map by_id;     /* open sessions */
    struct list sessions; /* struct acp_session, least recently used first */
    size_t n_sessions;    /* also those that were left behind in the program */
    size_t n_turns;       /* prompts that run */
    bool can_load, can_resume, can_close;
    bool takes_images, takes_audio, takes_files;
    char *login;   /* owned; how to log in, as the agent says; NULL: unknown */
    char *useless; /* owned; why no session can be opened; NULL: it can */
    int64_t started_ms;
    unsigned stray; /* unusable lines, for the log */
    unsigned complaints;
    struct timer patience; /* STARTING: the timeout; RETIRING: SIGKILL */
    struct timer idle;
};

enum acp_session_state { ACP_OFF, ACP_OPENING, ACP_OPEN };

struct acp_tool { /* a tool call, for questions that name it only */
    char *id, *title;
};

struct acp_session { /* conversation->session */
    struct acp *backend;
    struct conversation *conversation;
    struct acp_host *host; /* NULL: OFF */
    struct list link;      /* host->sessions, or backend->hungry */
    enum acp_session_state state;
    char *id;                 /* owned; while OPENING with load or resume, and OPEN */
    uint64_t request;         /* open: of the opening, or of the prompt */
    bool replaying;           /* loading: the agent repeats what was said */
    bool used;                /* a prompt has ended in the agent's session */
    bool continued;           /* by load or resume; no prompt has ended since */
    bool fresh;               /* the agent's session had no finished prompt: no loss to announce */
    struct agent_turn *turn;  /* borrowed; NULL: none */
    bool prompted;            /* the prompt of the turn was sent */
    struct turn_files *files; /* owned; being fetched for the prompt; NULL: none */
    char *message;            /* owned; id of the agent's message that grows; NULL: unknown */
    char *modes, *models, *options; /* owned; JSON; NULL: none */
    char *mode, *model;             /* owned; the current ones, if told since; NULL: as in these */
    char *command, *wanted; /* owned; "mode" or "model" and its argument, to be done; NULL: none */
    struct bhgw_event *command_ev; /* owned; its message */
    uint64_t command_request;
    struct http_call *owner_call; /* asks whether its author may choose */
    bool may;                     /* the author may */
    struct acp_tool tools[ACP_MAX_TOOLS];
    size_t n_tools; /* ever; the newest replaces the oldest */
    struct list permissions;
    struct timer patience; /* for the answer to session/new, to session/cancel and to a command */
    struct timer again;    /* acp_advance() */
};

/* acp.c */
struct acp_session *acp_session_of(struct acp *b, struct conversation *c); /* made if none */
struct acp *acp_of(struct backend *b);
void acp_advance(struct acp_session *s); /* does the next step that is possible */

/* acp_content.c */
bool acp_wants_file(void *ctx, const struct turn_file *f); /* @ctx: the session */
void acp_write_initialize(struct buf *params);
void acp_write_prompt(struct buf *params, const struct acp_session *s,
                      const struct turn_file *files, size_t n);

/* acp_talk.c */
#define AUTH_REQUIRED -32000
/* The ways to log in that the agent names: "Log in with Claude (run `claude /login`)".  NULL:
 * none.  The caller frees the results of both. */
char *acp_login(struct json methods);
char *acp_reason(const struct acp_host *h, const struct jsonrpc_result *r); /* of an error */
void acp_updated(struct acp_session *s, struct json params);                /* session/update */
void acp_asked(struct acp_session *s, uint64_t ticket, struct json params);
void acp_ask_cancelled(struct acp_host *h, uint64_t ticket);
void acp_drop_permissions(struct acp_session *s, bool tell);    /* @tell: answers "cancelled" */
void acp_keep_state(struct acp_session *s, struct json result); /* modes and options */
bool acp_command(struct backend *b, const struct message *m, struct str name, struct str rest);
void acp_obey(struct acp_session *s); /* does the pending command; the session is OPEN */
void acp_drop_command(struct acp_session *s);
