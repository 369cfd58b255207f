/* agent_priv.h - the parts of a running agent and the functions they share.  Private to
 * src/agent/.
 *
 *      agent.c         the gateway client, signals, shutdown
 *      backend.h       an agent behind bellhop
 *      worker.c        ... one that reads lines: starts, lines, restarts, interrupts
 *      turn.c          the turns of the others: queue, timeouts, questions, repetition
 *      answer.c        the text of one turn, shown while it grows
 *      conversation.c  the actions of one conversation, sent in order
 */
#pragma once
#include "agent/agent.h"
#include "agent/backend.h"
#include "agent/line.h"
#include "base/agent_state.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"

struct message {           /* one message inside the agent (agent.h draws its life) */
    struct list link;      /* in waiting, in_hand or told of its worker, or of its turn */
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
    size_t n_turns;          /* messages that refer to this conversation */
    /* turn.c, for backends with begin() */
    struct list waiting;     /* struct message */
    struct agent_turn *turn; /* owned; NULL: none */
    struct timer go;         /* begins the next turn */
    void *session;           /* the backend's; ops->forget() frees it */
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
    const struct backend_ops *ops;
    struct backend *backend;  /* owned */
    struct http_client *http; /* owned; for backends with begin() */
    struct list workers, hungry, conversations;
    size_t n_running, n_conversations;
    size_t n_begun;      /* turns of turn.c that are not over */
    struct map by_key;   /* conversations */
    struct map asks;     /* open questions, by the id of their prompt */
    struct worker *only; /* not per_chat: the only worker */
    size_t say_bytes;    /* of the actions that wait in all conversations */
    bool held;           /* line programs: nothing is read until some of them were sent */
    bool dormant;        /* resting, and going_idle was sent */
    struct timer grace, rest;
};

/* Until a program that died so many times in a row is started again. */
static inline int64_t restart_ms(unsigned failures)
{
    return clock_backoff_ms(failures, 200, 30000);
}

/* agent.c */
void agent_bearer(const struct agent *a, struct buf *out); /* the header, for the connector only */
bool agent_may_hand_over(const struct agent *a);           /* false while shutting down */
void agent_moved(struct agent *a); /* a turn or program ended: continue a shutdown */
void message_settle(struct agent *a, struct message *t); /* acknowledges once */
/* Appends what the agent reads of a message: the text, what it quotes and, where several people
 * share a conversation, who speaks. */
void message_words(const struct agent *a, const struct bhgw_event *ev, struct buf *out);
/* Frees @t if it is over and no answer is in flight. */
void message_done(struct agent *a, struct message *t);

/* worker.c */
void worker_tell(struct worker *w, struct str line);
void workers_hold(struct agent *a, bool held); /* stops reading what the programs print */

/* conversation.c */
struct conversation *conversation_get(struct agent *a, struct str key); /* created when unknown */
struct conversation *conversation_find(struct agent *a, struct str key);
struct conversation *conversation_by_id(struct agent *a, struct str chat_id); /* NULL: unknown */
void conversation_heard(struct conversation *c,
                        const struct bhgw_event *ev); /* also marks it most recently used */
/* Who wrote last. */
struct agent_person conversation_person(const struct conversation *c);
/* Enqueues the action of @o for message @m (NULL: none).  @teller gets the result if @o has a
 * ref. */
void conversation_say(struct conversation *c, const struct order *o, struct message *m,
                      struct worker *teller);
void conversation_forget_worker(struct conversation *c, struct worker *w);
void conversation_connected(struct conversation *c); /* retries what waited for it */
bool conversation_is_quiet(const struct conversation *c);
void conversation_trim(struct agent *a); /* frees unused ones over the limit */
void conversation_free(struct conversation *c);
/* Enqueues an order, given as JSON, for message @m (NULL: none).  @done (NULL: not wanted) gets the
 * result; NULL: the agent ends, and whatever @ctx points to may be gone. */
typedef void said_cb(void *ctx, const struct said *r);
void conversation_order(struct conversation *c, struct str json, struct message *m, said_cb *done,
                        void *ctx);
void conversation_tell(struct conversation *c, struct str text); /* a message of its own */
bool said_is_unknown(const struct said *r); /* it failed, and may have been done */

/* turn.c */
void turn_add(struct conversation *c, struct message *m); /* queues, begins when it can */
void turn_go(struct conversation *c);
void turn_stop(struct conversation *c);  /* /stop */
void turn_drop(struct conversation *c);  /* shutdown: the messages stay with the connector */
void turn_leave(struct conversation *c); /* the same for a turn between two attempts */
/* A button was pressed.  True: the event is used up. */
bool turn_pressed(struct agent *a, const struct bhgw_event *ev);
void turn_shown(struct agent_turn *t); /* answer.c: everything of the answer is sent */

/* answer.c */
struct agent_answer *answer_new(struct agent_turn *t);
void answer_free(struct agent_answer *x);
void answer_text(struct agent_answer *x, struct str more);
void answer_paragraph(struct agent_answer *x);
void answer_progress(struct agent_answer *x, struct str line);
bool answer_is_said(const struct agent_answer *x);  /* there is text */
bool answer_is_quiet(const struct agent_answer *x); /* no action is in flight */
void answer_finish(struct agent_answer *x);         /* turn_shown() follows, later */
