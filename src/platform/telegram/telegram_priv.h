/* telegram_priv.h - what the files of this folder share.
 *
 *      telegram.c   settings, open, close, status; where people's files are
 *      inbound.c    getUpdates or webhook -> normalize.c -> host_accept()
 *      outbound.c   actions -> the sender -> requests; their answers
 *      prompts.c    questions with buttons: the keyboard, and what a press does
 *      commands.c   the commands of gateways, registered
 *      api.c        one request and its answer; refusals in words; limits and moves of chats
 *
 * normalize.h and markdown.h are pure and know nothing of struct telegram. */
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

/* inbound.c has the pictures. */
enum tg_state { TG_WHO, TG_HOOK, TG_FETCH, TG_DELIVER, TG_LISTEN, TG_CHECK, TG_REST };

enum tg_mark { TG_WAITING, TG_ACCEPTING, TG_RETRY, TG_DONE };

struct tg_update { /* one of a batch */
    int64_t id, chat;
    struct json update; /* borrowed from poll.parser */
    enum tg_mark mark;
};

struct tg_poll {
    enum tg_state state, back_to; /* back_to: where REST leads */
    struct http_call *call;       /* owned; NULL: none in flight */
    struct timer timer;           /* ends REST or LISTEN, or retries updates */
    unsigned failures;            /* in a row */
    int64_t offset;               /* the next update; 0: the earliest unconfirmed */
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
    bool reactions;               /* people's reactions reach the agent */
    struct log log;
    const struct host_env *env; /* borrowed */
    char *url;                  /* owned, secret: "https://api.telegram.org/bot<token>/" */
    char *token;                /* owned, secret */
    char *token_id;             /* owned: the part of the token that is not secret */
    char *secret;               /* owned, secret: which webhooks show; NULL: polling */
    struct tg_me me;
    bool reads_all;              /* gets every group message, not only those for the bot */
    char problem[256];           /* base.problem points here, or is NULL */
    struct json_parser *answers; /* owned; one document at a time */
    struct arena arena;          /* of the update being read */
    struct tg_poll poll;
    struct list lookups;   /* telegram.c: struct file_lookup, owned */
    struct list accepts;   /* inbound.c: struct tg_accept, owned */
    struct list pressing;  /* prompts.c: struct tg_pressing, owned */
    struct list answering; /* prompts.c: struct tg_answering, owned */
    size_t n_answering;
    struct prompts *prompts;      /* owned */
    struct tg_commands *commands; /* owned; NULL: no gateway has announced any */
    struct map chats;             /* api.c: chat id -> struct tg_chat, owned */
    struct sender *sender;        /* owned */
    struct map edits;   /* outbound.c: chat and message -> newest edit, borrowed from the sender */
    struct buf scratch; /* a name that had to be put together */
    struct {
        int64_t chat, message, thread;
    } sent[1024]; /* inbound.c: a ring of the bot's last messages */
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
    TG_DOWN,    /* Telegram was not reached */
    TG_UNKNOWN, /* sent, no usable answer: Telegram may have acted */
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

/* What a person can do about Telegram's refusal @why; NULL: its own words are best. */
const char *tg_refusal(int code, const char *why);
bool tg_refuses_entities(const struct tg_answer *a);

enum bh_err tg_chats_load(struct telegram *t, char *ret_why);
void tg_chats_free(struct telegram *t);
void tg_chat_moved(struct telegram *t, struct str from, struct str to);
struct str tg_chat_now(struct telegram *t, struct str id);    /* @id unless the chat moved */
struct str tg_chat_before(struct telegram *t, struct str id); /* the former id; absent: none */
void tg_chat_limit(struct telegram *t, struct str id, int64_t for_ms);
int64_t tg_chat_wait_ms(struct telegram *t, struct str id); /* 0: not limited */
bool tg_chat_typed(struct telegram *t, struct str id);      /* true: typing still shows there */
int64_t tg_limit_of_all(struct telegram *t); /* ms the whole bot should rest; 0: single chats */

/* ---- inbound.c ---- */

void tg_inbound_start(struct telegram *t);
void tg_inbound_stop(struct telegram *t);
const char *tg_state_name(const struct telegram *t);
bool tg_webhook(struct platform *p, struct http_req *req);
void tg_reactions_sent(struct telegram *t, struct str chat, int64_t message, int64_t thread);
/* An update was accepted or not; never runs after tg_inbound_stop(). */
typedef void tg_accepted_fn(struct telegram *t, uint64_t tag, enum bh_err err);

/* ---- prompts.c ---- */
/* False: the press needs no accepting, and @done does not run. */
bool tg_accept_press(struct telegram *t, struct json update, tg_accepted_fn *done, uint64_t tag);
void tg_write_keyboard(struct buf *out, const struct prompt *q);
void tg_prompts_cancel(struct telegram *t);
void tg_prompt_over(struct platform *p, struct prompt *q); /* a prompt_over_cb */

/* ---- commands.c ---- */
void tg_set_commands(struct platform *p, struct str commands);
void tg_commands_free(struct telegram *t);
/* The gateway's name of the command that Telegram calls @name. */
struct str tg_command_name(const struct telegram *t, struct str name);

/* ---- outbound.c ---- */
void tg_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a);
extern const struct sender_ops tg_sender;

extern const struct record_form tg_moved_form, tg_offset_form, tg_commands_form;
