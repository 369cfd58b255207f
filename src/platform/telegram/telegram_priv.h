/* telegram_priv.h - what the files of this folder share.
 *
 *      telegram.c  the bot: configuration, opening, closing, status
 *      poll.c      who we are, webhook or not, getUpdates: the life of the connection
 *      deliver.c   the updates of one getUpdates, until every one of them is accepted
 *      webhook.c   the same updates, brought by Telegram
 *      take.c      an update -> normalize.c -> host_accept()
 *      act.c       actions -> outgoing.h -> the sender; send.c is the sender's two halves
 *      media.c     files: which method carries them
 *      commands.c  the commands of gateways, registered
 *      press.c     questions with buttons: asked, and answered
 *      files.c     files that people send: where they are
 *      reactions.c people's reactions to what we said
 *      refuse.c    Telegram's refusals as sentences
 *      chats.c     what is known of a chat: it moved, it is limited, we just typed in it
 *      api.c       one request and its answer
 */
#pragma once
#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "net/http_client.h"
#include "platform/platform.h"
#include "platform/telegram/normalize.h"

#define TG_LIMIT 4096      /* UTF-16 units of visible text in one message */
#define TG_CAPTION 1024    /* the same of a caption */
#define TG_UPLOAD_MS 60000 /* a file may take as long, within its action's time */
#define TG_MAX_PARTS 16    /* messages one action may become */
#define TG_BATCH 100       /* updates of one getUpdates */
#define TG_CHAT_CHARS 64

struct prompt;
struct prompts;
struct recent;
struct sender;
struct sender_ops;
struct telegram;
struct tg_commands;

/* poll.c has the picture. */
enum tg_state { TG_WHO, TG_HOOK, TG_FETCH, TG_DELIVER, TG_LISTEN, TG_CHECK, TG_REST };

enum tg_mark { TG_WAITING, TG_TAKEN, TG_HELD, TG_DONE };

struct tg_update { /* one of a batch */
    int64_t id, chat;
    struct json update; /* borrowed from poll.parser */
    enum tg_mark mark;
};

struct tg_poll {
    enum tg_state state, back_to; /* back_to: where REST leads */
    struct http_call *call;       /* owned; NULL: none under way */
    struct timer timer;           /* the end of REST or LISTEN, or of patience with what is held */
    unsigned failures;            /* in a row */
    int64_t offset;               /* the next update we want; 0: the earliest unconfirmed */
    int64_t heard_ms;             /* wall clock of the last update; 0: never */
    int64_t asked_ms;             /* monotonic: the last getUpdates */
    struct json_parser *parser;   /* owned; holds the batch */
    struct tg_update batch[TG_BATCH];
    size_t n_batch;
    uint32_t generation; /* of the batch */
};

struct telegram {
    struct platform base;
    struct descriptor descriptor; /* of this bot */
    struct recent *recent;        /* owned; NULL: nothing is remembered */
    bool reactions;               /* they are told */
    struct log log;
    const struct host_env *env; /* borrowed */
    char *url;                  /* owned, secret: "https://api.telegram.org/bot<token>/" */
    char *token;                /* owned, secret */
    char *token_id;             /* owned: the part of the token that is no secret */
    char *secret;               /* owned, secret: what webhooks must show; NULL: polling */
    struct tg_me me;
    bool reads_all;              /* sees every group message, not only those for it */
    char problem[256];           /* base.problem points here, or is NULL */
    struct json_parser *answers; /* owned: of api.c and webhook.c, one document at a time */
    struct arena arena;          /* of the update being taken */
    struct tg_poll poll;
    struct list wheres;    /* files.c: questions under way; owned */
    struct list accepts;   /* take.c: between host_accept() and its answer; owned */
    struct list pressing;  /* press.c: answers on their way in; owned */
    struct list answering; /* press.c: requests about presses; owned */
    size_t n_answering;
    struct prompts *prompts;      /* owned */
    struct tg_commands *commands; /* owned; NULL: nobody has announced any */
    struct map chats;             /* chats.c */
    struct sender *sender;        /* owned */
    struct map edits;   /* act.c: chat and message -> its newest edit; borrowed from the sender */
    struct buf scratch; /* a name that had to be put together */
    struct {
        int64_t chat, message, thread;
    } sent[1024]; /* reactions.c: a ring of what we said last */
    size_t n_sent;
    struct {
        uint64_t updates, events, ignored, again, sent, edits, plain, limited;
    } n;
};

/* A sentence for status and doctor; NULL: all is well.  Logs when it changes. */
void tg_set_problem(struct telegram *t, const char *sentence);

/* ---- api.c ---- */

enum tg_outcome {
    TG_OK,
    TG_LATER,   /* 429: not before @retry_after_ms */
    TG_REFUSED, /* 4xx: the same will be refused again */
    TG_BROKEN,  /* 5xx: Telegram says that it failed */
    TG_DOWN,    /* never reached */
    TG_UNKNOWN, /* sent, but no usable answer: it may have happened */
};

struct tg_answer {
    enum tg_outcome outcome;
    int code;               /* HTTP status or error_code; 0: none */
    char why[256];          /* Telegram's description, or the network's; never the token */
    int64_t retry_after_ms; /* TG_LATER */
    int64_t migrate_to;     /* the chat's new id; 0: it did not move */
    struct json result;     /* TG_OK; borrowed from the parser */
};

/* POST @body (JSON) to @method: for the connection's own calls, which may all be repeated. */
struct http_call *tg_call(struct telegram *t, const char *method, struct str body,
                          int64_t timeout_ms, http_done_cb *done, void *ctx) BH_MUST_USE;
void tg_answer_read(struct telegram *t, struct json_parser *parser, const struct http_result *r,
                    struct tg_answer *ret);

/* ---- poll.c, deliver.c, webhook.c, take.c ---- */

void tg_poll_start(struct telegram *t);
void tg_poll_stop(struct telegram *t);
const char *tg_state_name(const struct telegram *t);

int64_t tg_backoff_ms(struct telegram *t, int64_t max_ms); /* by poll.failures */

void tg_batch_fill(struct telegram *t, struct json updates);
void tg_batch_deliver(struct telegram *t);
void tg_batch_again(struct telegram *t); /* try what is held */
void tg_batch_done(struct telegram *t);  /* poll.c: all accepted, go on */

bool tg_webhook(struct platform *p, struct http_req *req);

/* @done runs later, and never after tg_accepts_cancel().  False: nobody needs this update, @done
 * does not run. */
typedef void tg_taken_fn(struct telegram *t, uint64_t tag, enum bh_err err);
bool tg_take(struct telegram *t, struct json update, tg_taken_fn *done, uint64_t tag);
/* The same for an event that was made of it. */
void tg_take_event(struct telegram *t, const struct event *ev, tg_taken_fn *done, uint64_t tag);
void tg_accepts_cancel(struct telegram *t);

/* ---- press.c ---- */
bool tg_take_press(struct telegram *t, struct json update, tg_taken_fn *done, uint64_t tag);
void tg_presses_cancel(struct telegram *t);
void tg_prompt_over(struct platform *p, struct prompt *q); /* a prompt_over_cb */

/* ---- reactions.c ---- */
bool tg_take_reaction(struct telegram *t, struct json update, tg_taken_fn *done, uint64_t tag);
void tg_reactions_sent(struct telegram *t, struct str chat, int64_t message, int64_t thread);

/* ---- commands.c ---- */
void tg_set_commands(struct platform *p, struct str commands);
void tg_commands_free(struct telegram *t);
/* What its gateway calls the command that Telegram calls @name. */
struct str tg_command_name(const struct telegram *t, struct str name);

/* ---- files.c ---- */

void tg_media_where(struct platform *p, struct media_ask ask, struct str ref);
void tg_files_cancel(struct telegram *t);

/* ---- chats.c ---- */

void tg_chats_load(void *ctx, struct str key, struct str value); /* a store_record_cb */
void tg_chats_free(struct telegram *t);
void tg_chat_moved(struct telegram *t, struct str from, struct str to);
struct str tg_chat_now(struct telegram *t, struct str id);    /* @id when it did not move */
struct str tg_chat_before(struct telegram *t, struct str id); /* its former id; absent: none */
void tg_chat_limit(struct telegram *t, struct str id, int64_t for_ms);
int64_t tg_chat_wait_ms(struct telegram *t, struct str id); /* 0: free */
bool tg_chat_typed(struct telegram *t, struct str id);      /* true: just now, no need to repeat */
int64_t tg_limit_of_all(struct telegram *t); /* ms the whole bot should rest; 0: single chats */

/* ---- act.c, send.c, refuse.c ---- */

void tg_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a);
extern const struct sender_ops tg_sender;

/* What a person can do about Telegram's refusal @why; NULL: nothing better than its own words. */
const char *tg_refusal(int code, const char *why);
bool tg_refuses_entities(const struct tg_answer *a);
