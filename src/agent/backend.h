/* backend.h - an agent behind bellhop, whatever it speaks: lines, ACP, an HTTP API.
 *
 *      chat --message--> conversation --turn_...--> backend --> the agent
 *       ^                     | one turn at a time     |
 *       '--- answer.c <-------'<-- turn_text(), turn_progress(), turn_ask(), turn_end() --'
 *
 * agent.c owns one backend, chosen by its options.  A backend is a table of functions.  The common
 * part (turn.c) queues the messages of each conversation, hands over one turn at a time, shows the
 * text while it grows, asks questions, acknowledges messages and decides about repetition:
 *
 *      WAITING --begin()--> RUNNING --turn_end(DONE, CANCELLED, FAILED)--> shown, acknowledged
 *         ^                    |
 *         '---- turn_end(DIED) and nothing was said, at most TURN_MAX_ATTEMPTS times
 *
 * Everything runs on the loop of the agent.  No function of the table runs inside turn_...().
 * Implementations also use agent_priv.h: the fields of messages and conversations, and
 * conversation_tell() for what is no answer.
 *
 * Line programs (worker.c) keep queues of their own and order any action of the relay, so they
 * implement take() and interrupt() in place of begin() and cancel(). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"

struct agent;
struct conversation;
struct message;
struct agent_turn;

#define TURN_MAX_ATTEMPTS 3
#define TURN_MAX_TEXT ((size_t)1 << 20) /* bytes of an answer; the rest is dropped, and told */
#define TURN_MAX_OPTIONS 8              /* of a question */

struct backend {         /* the beginning of each implementation's own struct */
    struct agent *agent; /* borrowed */
};

struct backend_ops {
    const char *name; /* for the log: "acp" */
    /* NULL: @ret_why (256 bytes) says why. */
    struct backend *(*open)(struct agent *a, char *ret_why);
    void (*close)(struct backend *b); /* frees all sessions too; no turn_end() */

    /* Starts a turn.  The backend calls turn_end() exactly once, unless close() comes first. */
    void (*begin)(struct backend *b, struct agent_turn *t);
    /* A person wrote /stop, or the turn was silent for too long: call turn_end() soon. */
    void (*cancel)(struct backend *b, struct agent_turn *t);
    /* A message "/name rest" while no turn runs.  True: it is a command of this backend, which
     * answers with conversation_tell() and acknowledges nothing; @m is gone after the call.  NULL:
     * there are no commands. */
    bool (*command)(struct backend *b, const struct message *m, struct str name, struct str rest);
    /* @c is freed: free c->session, which the backend has set.  NULL: none is kept. */
    void (*forget)(struct backend *b, struct conversation *c);

    void (*take)(struct backend *b, struct message *m); /* instead of begin() */
    void (*interrupt)(struct backend *b, const char *session_key, const char *chat_id);
    bool (*is_busy)(const struct backend *b); /* with take(): has messages in hand */
    void (*go)(struct backend *b);            /* messages may be handed over again; NULL: nothing */

    void (*end)(struct backend *b); /* end the processes; agent_moved() follows */
    bool (*is_ended)(const struct backend *b);
};

extern const struct backend_ops lines_backend;                   /* worker.c */
extern const struct backend_ops acp_backend;                     /* acp.c */
extern const struct backend_ops responses_backend, chat_backend; /* model.c */

/* ---- a turn ---- */

struct agent_turn {                    /* made by turn.c */
    struct conversation *conversation; /* borrowed */
    struct list messages;              /* struct message, oldest first; several with --merge */
    unsigned attempt;                  /* from 1 */
    bool cancelled;                    /* cancel() was called */
    void *mine;                        /* the backend's; NULL at first, and when repeated */
    /* private */
    bool running, again, asked, late; /* again: to be repeated; late: silent for too long */
    struct agent_answer *answer;
    struct list asks;
    struct timer silence, typing;
};

void turn_text(struct agent_turn *t, struct str more); /* more text of the answer */
void turn_paragraph(struct agent_turn *t);             /* the next text begins a paragraph */
/* A short line about what the agent does now ("Reading main.c"), shown below the text with
 * --progress and gone at the end. */
void turn_progress(struct agent_turn *t, struct str line);
/* The agent works without saying anything: restarts the timeout of the turn. */
void turn_alive(struct agent_turn *t);

struct agent_question { /* borrowed for the call */
    struct str text;
    struct agent_option {
        struct str label;
        bool yes; /* the look of its button */
    } options[TURN_MAX_OPTIONS];
    size_t n_options;
};
/* @chosen: the option's index; -1: nobody chose in time, or the question could not be asked. */
typedef void turn_answered_cb(void *ctx, int chosen);
/* Asks in the chat of the turn, for at most --permission-timeout.  Only owners of the instance can
 * answer.  @done runs once, later, unless the question is withdrawn or the turn ends first.  NULL:
 * too many questions are open. */
struct agent_ask *turn_ask(struct agent_turn *t, const struct agent_question *q,
                           turn_answered_cb *done, void *ctx);
void ask_withdraw(struct agent_ask **ask); /* sets NULL; NULL inside is fine */

enum turn_end {
    TURN_DONE,
    TURN_CANCELLED, /* because of cancel() */
    TURN_FAILED,    /* the agent refused; @why is told to the person */
    TURN_DIED,      /* the agent broke off: repeated if nothing was said, else @why is told */
};
/* The backend has nothing to do with @t any more.  @why ends the sentence "The agent could not
 * answer: ..."; NULL for DONE and CANCELLED. */
void turn_end(struct agent_turn *t, enum turn_end how, const char *why);
