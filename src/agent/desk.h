/* desk.h - the parts of a running agent and what they may ask of each other.  Private to
 * src/agent/.
 *
 *      agent.c  the gateway client, signals, leaving in good order
 *      seat.c   one program and the messages before it: turns, restarts, interrupts
 *      chat.c   one conversation: what was said in it, and what is being said, in order
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

struct message {           /* one delivery on its way through us */
    struct list link;      /* waiting or in_hand of its seat; unlinked once over */
    struct bhgw_event *ev; /* owned */
    struct chat *chat;     /* borrowed; lives as long as we do, see chat.c */
    unsigned attempts;     /* times it was handed over */
    uint64_t end;          /* program_read() past this: taken */
    int64_t handed_ms;
    bool taken, acked, answered, interrupted, over;
    size_t n_says; /* answers under way */
};

struct chat {  /* a conversation, named by its session key */
    char *key; /* owned */
    struct agent *agent;
    struct list link;        /* agent->chats, least recently used first */
    struct bhgw_event *last; /* owned; the latest message: where it is, what an answer carries */
    char *last_sent;         /* owned; id of what we said last */
    struct seat *seat;       /* per_chat: its program; NULL: none */
    struct list says;        /* struct say, in order; the first is under way unless @again is set */
    struct timer again;      /* the first is to be tried again */
    size_t n_messages;       /* that point here */
};

struct seat { /* where a program sits */
    struct agent *agent;
    struct list link;     /* agent->seats, least recently used first */
    struct list hungry;   /* on agent->hungry: wants to start, and may not yet */
    struct chat *chat;    /* per_chat: whose; else NULL */
    struct chat *about;   /* the chat of the last turn: a line with nothing in hand means it */
    struct program *prog; /* owned; NULL: not running */
    struct list waiting, in_hand;
    size_t n_in_hand;
    unsigned failures; /* deaths in a row */
    int64_t started_ms;
    bool interrupted; /* a signal of ours is on its way: dying of it is no failure */
    struct timer restart, look, turn, typing, idle;
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
    struct list seats, hungry, chats;
    size_t n_running, n_chats;
    struct map by_key; /* chats */
    struct seat *only; /* not per_chat: the seat */
    bool dormant;      /* resting, and the connector was told */
    struct timer grace, rest;
};

/* agent.c */
bool agent_may_hand_over(const struct agent *a);         /* not leaving */
void agent_moved(struct agent *a);                       /* something ended: is it time to go? */
void message_settle(struct agent *a, struct message *m); /* acknowledge, once */
void message_done(struct agent *a, struct message *m);   /* free it if nothing needs it any more */

/* seat.c */
struct seat *seat_new(struct agent *a, struct chat *chat);
void seat_free(struct seat *s); /* what was before it stays with the connector */
void seat_add(struct seat *s, struct message *m);
void seat_interrupt(struct seat *s, const char *session_key, const char *chat_id);
bool seat_is_idle(const struct seat *s); /* nothing waits, nothing is in hand */
void seat_go(struct seat *s);  /* hand over what may be handed over, starting it if need be */
void seat_end(struct seat *s); /* no more input */
void seat_tell(struct seat *s, struct str line);

/* chat.c */
struct chat *chat_get(struct agent *a, struct str key); /* made when unknown */
struct chat *chat_find(struct agent *a, struct str key);
struct chat *chat_by_id(struct agent *a, struct str chat_id); /* NULL: never heard of */
void chat_heard(struct chat *c, const struct bhgw_event *ev); /* also makes it the latest used */
/* Do what @o says: for @m (NULL: for nobody in particular), told back to @teller if it has a ref.
 */
void chat_say(struct chat *c, const struct order *o, struct message *m, struct seat *teller);
void chat_forget_seat(struct chat *c, struct seat *s);
void chat_connected(struct chat *c); /* what waited for the connection may go */
bool chat_is_quiet(const struct chat *c);
void chat_trim(struct agent *a); /* forget the oldest beyond a bound */
void chat_free(struct chat *c);
