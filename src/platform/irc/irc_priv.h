/* irc_priv.h - struct irc, one bot, and the calls between the files of the IRC platform.
 *
 *      irc.c         settings, open, close, check, status; connecting, channels, the nick
 *      inbound.c     messages: one after the other in each chat; batches
 *      history.c     what came while the bot was away; how far each chat was read, on disk
 *      outbound.c    performs actions; receipts
 *      link.h        one connection; line.h reads and writes its bytes, sasl.h logs in
 *      normalize.h   a line -> an event */
#pragma once
#include "base/arena.h"
#include "platform/irc/irc.h"
#include "platform/irc/link.h"
#include "platform/irc/normalize.h"
#include "platform/lru.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "store/record.h"
#include "store/store.h"

struct irc;
struct recent;

/* ---- records: history.c ---- */

struct irc_cursor {         /* how far a chat was read */
    struct str bot, target; /* the key; target "*": the whole network */
    struct str msgid;       /* of the last message that is done with; absent: none */
    struct str account;     /* of a person's chat: irc_chat.account */
    int64_t at_ms;          /* its time, by the server's clock */
};
struct irc_sts {          /* the server wants secure connections only */
    struct str bot, host; /* the key */
    int64_t until_ms, for_ms;
    uint32_t port;
};
extern const struct record_form irc_cursor_form, irc_sts_form;
extern const struct record_form *const irc_records[];
extern const struct eraser irc_eraser;

/* ---- chats ---- */

struct irc_heard { /* a message that waits for its turn; owned by its chat */
    struct list link;
    struct arena arena; /* of the event */
    struct event ev;
    struct str msgid;   /* absent: none, or it is no cursor in the history */
    int64_t at_ms;      /* by the server's clock; 0: not known */
    bool tried;         /* the host had it before, and could not take it */
    bool unproven_link; /* somebody without an account wants to be linked */
};

struct irc_chat {         /* a channel or a person, by the folded name */
    struct lru_entry lru; /* first */
    struct list queue;    /* struct irc_heard, in order; the first may be with the host */
    struct list later;    /* struct irc_heard: came while the history is being read */
    size_t n_queue;
    bool busy;                     /* the host has the first of the queue */
    uint64_t turn;                 /* counts the calls of the host */
    bool filling;                  /* its history is being read, or will be */
    bool by_time;                  /* its history is asked for by time: the msgid was not found */
    bool named;                    /* CHATHISTORY TARGETS named it */
    bool gap;                      /* messages of it were dropped: its history has them */
    bool kept;                     /* its cursor is on disk */
    struct list dirty;             /* its cursor has to be written */
    char msgid[IRC_MSGID_MAX + 1]; /* its cursor */
    int64_t at_ms;
    char peer[IRC_NAME_MAX + 1];    /* the name as it is spelled */
    char account[IRC_NAME_MAX + 1]; /* of a person: whose nick it is; "": anybody's */
    bool stranger;                  /* ... but somebody else has it now */
    bool asking, same;              /* the server is being asked who has it; it was the account */
    bool asked;                     /* the last proof is the server's answer */
    int64_t asked_ms, typed_ms;     /* monotonic */
};

struct irc_channel { /* of the settings */
    char name[IRC_NAME_MAX + 1], key[64];
    bool joined, asked;
    unsigned failures;
    int64_t again_ms; /* monotonic: the next try */
    uint64_t number;  /* of the JOIN: irc_link_send() */
    char why[160];    /* the bot is not in it: why; empty: not known */
};

struct irc_batch { /* an open batch of the server */
    struct list link;
    char name[64];
    enum { IRC_BATCH_OTHER, IRC_BATCH_MULTI, IRC_BATCH_HISTORY, IRC_BATCH_TARGETS } type;
    bool ours;       /* of the history that was asked for */
    struct buf head; /* owned; MULTI: the line so far, with the tags of the batch */
    size_t n_lines;
    uint64_t label;  /* what it answers; 0: nothing */
    char around[64]; /* the batch that it is part of; empty: none */
};

struct irc_own {          /* a message of the bot's own, for replies and reactions to it */
    struct lru_entry lru; /* first; by msgid */
};

struct irc_asked { /* history that is asked for, one after the other */
    struct list link;
    enum { IRC_ASK_FILL, IRC_ASK_TARGETS, IRC_ASK_LOOK } what;
    char target[IRC_NAME_MAX + 1];
    struct outgoing *out;            /* LOOK; borrowed; NULL: dropped */
    bool sent, moved;                /* moved: this page has something new */
    bool further;                    /* it is not the first page */
    uint64_t label;                  /* 0: it has none */
    uint64_t number;                 /* of its line: irc_link_send() */
    int64_t sent_ms;                 /* monotonic; its line left the bot's own queue */
    size_t n;                        /* lines of this page */
    char last_id[IRC_MSGID_MAX + 1]; /* the next page begins behind this message ... */
    int64_t last_ms;                 /* ... of this time */
};

/* ---- the bot ---- */

struct irc {
    struct platform base;           /* first */
    const struct irc_settings *cfg; /* borrowed */
    char *nick, *network, *host;    /* owned; of `bot` and `server` */
    uint16_t port;
    struct irc_link *link; /* owned; NULL: not connected */
    bool live;
    struct irc_server was; /* of the last connection */
    char was_nick[IRC_NAME_MAX + 1];
    struct irc_channel *channels; /* owned */
    size_t n_channels;
    struct timer again; /* the next attempt to connect */
    struct timer tick;
    unsigned failures;
    struct {
        int64_t until_ms, for_ms; /* wall clock; 0: no policy */
        uint16_t port;
    } sts;
    uint16_t secure_port;    /* the next attempt goes there, by TLS; 0: as configured */
    int64_t regain_ms;       /* monotonic: the last try */
    struct arena arena;      /* of one line */
    struct {                 /* inbound.c */
        struct lru chats;    /* struct irc_chat */
        struct lru own;      /* struct irc_own */
        struct list batches; /* struct irc_batch, owned */
        size_t n_batches, n_queued;
        bool gaps; /* some chat has a gap */
        struct timer retry;
        unsigned failures;
        struct recent *recent; /* owned; NULL: no context */
    } in;
    struct {               /* history.c */
        struct list asked; /* struct irc_asked, owned; the first one is under way */
        size_t n_asked;
        struct timer save;
        struct list dirty; /* struct irc_chat */
        int64_t seen_ms;   /* the newest time of the server that is done with */
        int64_t saved_ms;  /* the same on disk */
    } past;
    struct {                /* outbound.c */
        struct list flying; /* struct irc_send, borrowed from the sender */
        uint64_t labels;
    } out;
    struct {
        uint64_t connects, filled, echoed, lost_lines, dropped, unproven, floods;
    } n;
};
static inline struct irc *irc_of(struct platform *p)
{
    return container_of(p, struct irc, base);
}
static inline int64_t irc_now_ms(const struct irc *i)
{
    return clock_now_ms(i->base.env->clock);
}
static inline bool irc_has(const struct irc *i, unsigned caps)
{
    return i->live && (irc_link_server(i->link)->caps & caps) == caps;
}
/* What normalize.h needs to know; the link is up. */
struct irc_in irc_in_of(const struct irc *i);
/* May the bot send this client tag? */
bool irc_may_tag(const struct irc *i, struct str name);
/* A new label, for a line whose answer is awaited. */
uint64_t irc_label(struct irc *i);
/* The number of a label that bellhop made; 0: none. */
uint64_t irc_label_of(struct irc *i, const struct irc_line *l);

/* ---- inbound.c ---- */
void irc_in_open(struct irc *i);
void irc_in_close(struct irc *i);
void irc_in_line(struct irc *i, const struct irc_line *l); /* PRIVMSG, TAGMSG, REDACT, BATCH */
void irc_in_lost(struct irc *i);                           /* the connection ended */
/* Adds a message to its chat.  @past: it comes from the history.  False: it is not for an agent. */
bool irc_in_take(struct irc *i, const struct irc_line *l, bool past);
bool irc_in_made(
    struct str id); /* has the form of an id that bellhop gives where a msgid is missing */
void irc_in_filled(struct irc *i, struct irc_chat *c); /* its history is read */
void irc_in_drop_later(struct irc *i, struct irc_chat *c);
struct irc_chat *irc_chat_use(struct irc *i, struct str target); /* folded */
void irc_own_add(struct irc *i, struct str msgid);
void irc_whois_line(struct irc *i, const struct irc_line *l, int numeric); /* 330, 318, 401 */
void irc_nick_left(struct irc *i, struct str nick); /* by its holder, as the bot saw */
/* Has @c still the person that it had?  IRC_STALE: not known, and irc_holder_ask() asks the server;
 * IRC_ASKED: it is being asked. */
enum irc_holder { IRC_RIGHTFUL, IRC_STRANGER, IRC_STALE, IRC_ASKED };
enum irc_holder irc_holder(const struct irc *i, const struct irc_chat *c); /* NULL is fine */
void irc_holder_ask(struct irc *i, struct irc_chat *c);

/* ---- history.c ---- */
enum bh_err irc_past_open(struct irc *i, char *ret_why);
void irc_past_close(struct irc *i);
void irc_past_live(struct irc *i);        /* connected: who wrote meanwhile? */
bool irc_past_holds(const struct irc *i); /* messages of people have to wait */
/* The bot is in a channel, since @at_ms by the server's clock: read on. */
void irc_past_joined(struct irc *i, struct str channel, int64_t at_ms);
void irc_past_lost(struct irc *i);
/* @l is of the batch that was asked for. */
void irc_past_line(struct irc *i, const struct irc_line *l);
void irc_past_ended(struct irc *i);                            /* that batch is complete */
bool irc_past_failed(struct irc *i, const struct irc_line *l); /* FAIL: was it about history? */
bool irc_past_is_ours(struct irc *i, uint64_t label, struct str target);
/* All of @c up to this message is done with. */
void irc_past_done(struct irc *i, struct irc_chat *c, struct str msgid, int64_t at_ms);
void irc_past_fill(struct irc *i, struct irc_chat *c);
void irc_past_forget(struct irc *i, const struct irc_chat *c); /* its cursor on disk is deleted */
void irc_past_tick(struct irc *i);
/* Asks whether a message of the bot's own is there.  irc_out_looked() tells. */
void irc_past_look(struct irc *i, struct outgoing *o, struct str target);
void irc_past_drop(struct irc *i, const struct outgoing *o);
void irc_sts_put(struct irc *i);

/* ---- outbound.c ---- */
extern const struct sender_ops irc_sender;
void irc_act(struct platform *p, struct action_id id, const struct action_from *from,
             const struct action *a);
void irc_out_line(struct irc *i, const struct irc_line *l); /* may be a receipt or a refusal */
void irc_out_own(struct irc *i, const struct irc_line *l, uint64_t label); /* our own, come back */
void irc_out_lost(struct irc *i);
void irc_out_tick(struct irc *i);
/* A line of the history, and its end, for a message that is looked for. */
void irc_out_past(struct irc *i, struct outgoing *o, const struct irc_line *l);
void irc_out_looked(struct irc *i, struct outgoing *o, bool asked);
/* Answers a person, without an agent. */
void irc_out_tell(struct irc *i, struct str target, const char *text);
