/* agent_priv.h - the parts of a running agent and what they may ask of each other.  Private to
 * src/agent/.
 *
 *      agent.c         the gateway client, signals, leaving in good order
 *      worker.c        one program and the turns it has: starts, lines, restarts, interrupts
 *      conversation.c  what was said in one conversation, and what is being said, in order
 */
#pragma once
#include "agent/agent.h"
#include "agent/line.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"

struct agent;
struct bhgw;
struct bhgw_event;
struct bhgw_result;
struct loop;
struct program;

struct agent_turn {        /* one message on its way through us (agent.h draws its life) */
    struct list link;      /* waiting, in_hand or told of its worker; unlinked once over */
    struct bhgw_event *ev; /* owned */
    char *forward;         /* owned; a webhook's line, which is told and not in hand; else NULL */
    struct conversation *conversation; /* borrowed; lives as long as we do, see conversation.c */
    unsigned attempts;                 /* times it was handed over */
    uint64_t end;                      /* program_read() past this: taken */
    int64_t handed_ms;
    bool taken, acked, answered, interrupted, over;
    size_t n_says; /* answers under way */
};

struct conversation { /* named by its session key */
    char *key;        /* owned */
    struct agent *agent;
    struct list link;        /* agent->conversations, least recently used first */
    struct bhgw_event *last; /* owned; the latest message: where it is, what an answer carries */
    char *last_sent;         /* owned; id of what we said last */
    struct worker *worker;   /* per_chat: its program; NULL: none */
    struct list says;        /* struct say, in order; the first is under way unless @again is set */
    struct timer again;      /* the first is to be tried again */
    size_t n_turns;          /* that point here */
};

struct worker { /* one program, from start to start */
    struct agent *agent;
    struct list link;                   /* agent->workers, least recently used first */
    struct list hungry;                 /* on agent->hungry: wants to start, and may not yet */
    struct conversation *conversation;  /* per_chat: whose; else NULL */
    struct conversation *about;         /* of the last turn: a line with nothing in hand means it */
    struct program *prog;               /* owned; NULL: not running */
    struct list waiting, in_hand, told; /* told: webhooks written, not read yet */
    size_t n_in_hand;
    unsigned failures; /* deaths in a row */
    int64_t started_ms;
    bool interrupted; /* a signal of ours is on its way: dying of it is no failure */
    struct timer restart, look, turn_limit, typing, idle;
    unsigned looks;
};

enum agent_state { AGENT_RUNNING, AGENT_RESTING, AGENT_FINISHING, AGENT_ENDING, AGENT_GONE };

struct agent {
    const struct agent_options *opt; /* borrowed */
    struct loop *loop;               /* owned */
    struct clock *clock;             /* borrowed from the loop */
    struct bhgw *gw;                 /* owned */
    char **envp;                     /* owned; ours without the credential */
    struct json_parser *parser;
    enum agent_state state;
    int status; /* what agent_run() will return */
    struct list workers, hungry, conversations;
    size_t n_running, n_conversations;
    struct map by_key;   /* conversations */
    struct worker *only; /* not per_chat: the worker */
    bool dormant;        /* resting, and the connector was told */
    struct timer grace, rest;
};

/* agent.c */
bool agent_may_hand_over(const struct agent *a); /* not leaving */
void agent_moved(struct agent *a);               /* something ended: is it time to go? */
void agent_turn_settle(struct agent *a, struct agent_turn *t); /* acknowledge, once */
/* Free it if nothing needs it any more. */
void agent_turn_done(struct agent *a, struct agent_turn *t);

/* worker.c */
struct worker *worker_new(struct agent *a, struct conversation *c);
void worker_free(struct worker *w); /* what was before it stays with the connector */
void worker_add(struct worker *w, struct agent_turn *t);
void worker_interrupt(struct worker *w, const char *session_key, const char *chat_id);
bool worker_is_idle(const struct worker *w); /* nothing waits, nothing is in hand */
void worker_go(struct worker *w);  /* hand over what may be handed over, starting it if need be */
void worker_end(struct worker *w); /* no more input */
void worker_tell(struct worker *w, struct str line);

/* conversation.c */
struct conversation *conversation_get(struct agent *a, struct str key); /* made when unknown */
struct conversation *conversation_find(struct agent *a, struct str key);
struct conversation *conversation_by_id(struct agent *a,
                                        struct str chat_id); /* NULL: never heard of */
void conversation_heard(struct conversation *c,
                        const struct bhgw_event *ev); /* also makes it the latest used */
/* Do what @o says: for @t (NULL: for nobody in particular), told back to @teller if it has a
 * ref. */
void conversation_say(struct conversation *c, const struct order *o, struct agent_turn *t,
                      struct worker *teller);
void conversation_forget_worker(struct conversation *c, struct worker *w);
void conversation_connected(struct conversation *c); /* what waited for the connection may go */
bool conversation_is_quiet(const struct conversation *c);
void conversation_trim(struct agent *a); /* forget the oldest beyond a bound */
void conversation_free(struct conversation *c);
