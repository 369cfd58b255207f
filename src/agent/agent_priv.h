/* agent_priv.h - the parts of a running agent and the functions they share.  Private to
 * src/agent/.
 *
 *      agent.c         the gateway client, signals, shutdown
 *      worker.c        one program and its turns: starts, lines, restarts, interrupts
 *      conversation.c  the actions of one conversation, sent in order
 */
#pragma once
#include "agent/agent.h"
#include "agent/line.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"

struct agent_turn {        /* one message inside the agent (agent.h draws its life) */
    struct list link;      /* in waiting, in_hand or told of its worker; unlinked once over */
    struct bhgw_event *ev; /* owned */
    char *forward;         /* owned; the line of a webhook, which goes to told; else NULL */
    struct conversation *conversation; /* borrowed; kept while its n_turns counts this turn */
    unsigned attempts;                 /* programs that got the message */
    uint64_t end;                      /* taken once program_read() reaches this */
    int64_t handed_ms;
    bool taken, acked, answered, interrupted, over;
    size_t n_says; /* answers in flight */
};

struct conversation { /* identified by its session key */
    char *key;        /* owned */
    struct agent *agent;
    struct list link;        /* agent->conversations, least recently used first */
    struct bhgw_event *last; /* owned; the latest message, which tells where answers go */
    char *last_sent;         /* owned; id of the last message sent */
    struct worker *worker;   /* borrowed; per_chat: its program; NULL: none */
    struct list says;        /* struct say, in order; the first is in flight unless @again is set */
    struct timer again;      /* retries the first */
    size_t n_turns;          /* turns that refer to this conversation */
};

struct worker { /* one program, across restarts */
    struct agent *agent;
    struct list link;                   /* agent->workers, least recently used first */
    struct list hungry;                 /* on agent->hungry: waits for a free program slot */
    struct conversation *conversation;  /* borrowed; per_chat: its conversation; else NULL */
    struct conversation *about;         /* of the last turn: gets lines printed outside a turn */
    struct program *prog;               /* owned; NULL: not running */
    struct list waiting, in_hand, told; /* told: webhooks written, not read yet */
    size_t n_in_hand;
    unsigned failures; /* crashes in a row */
    int64_t started_ms;
    bool interrupted; /* we sent a signal: dying of it is no failure */
    struct timer restart, look, turn_limit, typing, idle;
    unsigned looks;
};

enum agent_state { AGENT_RUNNING, AGENT_RESTING, AGENT_FINISHING, AGENT_ENDING, AGENT_GONE };

struct agent {
    const struct agent_options *opt; /* borrowed */
    struct loop *loop;               /* owned */
    struct clock *clock;             /* borrowed from the loop */
    struct bhgw *gw;                 /* owned */
    char **envp;                     /* owned; our environment without the credential */
    struct json_parser *parser;
    enum agent_state state;
    int status; /* the result of agent_run() */
    struct list workers, hungry, conversations;
    size_t n_running, n_conversations;
    struct map by_key;   /* conversations */
    struct worker *only; /* not per_chat: the only worker */
    bool dormant;        /* resting, and going_idle was sent */
    struct timer grace, rest;
};

/* agent.c */
bool agent_may_hand_over(const struct agent *a); /* false while shutting down */
void agent_moved(struct agent *a);               /* a turn or program ended: continue a shutdown */
void agent_turn_settle(struct agent *a, struct agent_turn *t); /* acknowledges once */
/* Frees @t if it is over and no answer is in flight. */
void agent_turn_done(struct agent *a, struct agent_turn *t);

/* worker.c */
struct worker *worker_new(struct agent *a, struct conversation *c);
void worker_free(struct worker *w); /* unacknowledged messages stay with the connector */
void worker_add(struct worker *w, struct agent_turn *t);
void worker_interrupt(struct worker *w, const char *session_key, const char *chat_id);
bool worker_is_idle(const struct worker *w); /* nothing waits, nothing is in hand */
void worker_go(struct worker *w);  /* passes waiting messages on, and starts the program for them */
void worker_end(struct worker *w); /* closes the program's input */
void worker_tell(struct worker *w, struct str line);

/* conversation.c */
struct conversation *conversation_get(struct agent *a, struct str key); /* created when unknown */
struct conversation *conversation_find(struct agent *a, struct str key);
struct conversation *conversation_by_id(struct agent *a, struct str chat_id); /* NULL: unknown */
void conversation_heard(struct conversation *c,
                        const struct bhgw_event *ev); /* also marks it most recently used */
/* Enqueues the action of @o for turn @t (NULL: none).  @teller gets the result if @o has a ref. */
void conversation_say(struct conversation *c, const struct order *o, struct agent_turn *t,
                      struct worker *teller);
void conversation_forget_worker(struct conversation *c, struct worker *w);
void conversation_connected(struct conversation *c); /* retries what waited for it */
bool conversation_is_quiet(const struct conversation *c);
void conversation_trim(struct agent *a); /* frees unused ones over the limit */
void conversation_free(struct conversation *c);
