/* telegram_priv.h - struct telegram, one bot, and the calls between the files of this folder.
 *
 *      telegram.c   settings, open, close, status; finds the address of a person's file
 *      inbound.c    getUpdates or webhook -> normalize.c -> host_accept()
 *      outbound.c   actions -> the sender -> requests; reads their answers
 *      prompts.c    questions with buttons: keyboards and presses
 *      commands.c   registers the commands of gateways
 *      api.c        requests, answers, refusals; moves of chats
 *
 * normalize.h and markdown.h are pure and do not know struct telegram. */
#pragma once
#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/map.h"
#include "net/http_client.h"
#include "platform/lru.h"
#include "platform/platform.h"
#include "platform/telegram/normalize.h"

#define TG_LIMIT 4096      /* UTF-16 units of visible text in one message */
#define TG_CAPTION 1024    /* UTF-16 units of visible text in a caption */
#define TG_RICH 32768      /* characters of Markdown in a rich message */
#define TG_UPLOAD_MS 60000 /* timeout of one upload */
#define TG_MAX_PARTS 16    /* messages that one action may be split into */
#define TG_BATCH 100       /* updates in one answer of getUpdates */
#define TG_CHAT_CHARS 64

struct prompt;

/* The states of the connection and of one update; inbound.c has the pictures. */
enum tg_state { TG_WHO, TG_HOOK, TG_FETCH, TG_DELIVER, TG_LISTEN, TG_CHECK, TG_REST };

enum tg_mark { TG_WAITING, TG_ACCEPTING, TG_RETRY, TG_DONE };

struct tg_update { /* one update of a batch */
    int64_t id, chat;
    struct json update; /* borrowed from base.parser */
    enum tg_mark mark;
};

struct tg_poll {
    enum tg_state state, back_to; /* back_to: the state after REST */
    struct http_call *call;       /* owned; NULL: none in flight */
    struct timer timer;           /* ends REST or LISTEN; in DELIVER retries updates */
    unsigned failures;            /* in a row */
    int64_t offset;               /* of the next getUpdates; 0: the earliest unconfirmed */
    int64_t heard_ms;             /* wall clock of the last update; 0: never */
    int64_t asked_ms;             /* monotonic; start of the last getUpdates */
    struct tg_update batch[TG_BATCH];
    size_t n_batch;
    uint32_t generation; /* counts batches: late callbacks of an old one are ignored */
};

struct telegram {
    struct platform base;
    struct descriptor descriptor; /* of this bot */
    struct recent *recent;        /* owned; earlier messages of groups; NULL: none kept */
    bool drafts;                  /* answers are shown in private chats as previews */
    bool rich;                    /* send rich messages; false once the API server knew none */
    char *url;                    /* owned, secret: "https://api.telegram.org/bot<token>/" */
    char *token;                  /* owned, secret */
    char *token_id;               /* owned: the public part of the token */
    char *secret;                 /* owned, secret: the header of webhooks; NULL: polling */
    struct tg_me me;
    bool reads_all;     /* Telegram sends every group message, not only those for the bot */
    struct arena arena; /* of the update being read */
    struct tg_poll poll;
    struct list lookups;   /* telegram.c: struct file_lookup, owned */
    struct list answering; /* prompts.c: struct tg_answering, owned */
    size_t n_answering;
    struct tg_commands *commands; /* owned; NULL: no gateway has announced any */
    struct map chats;             /* api.c: chat id -> struct tg_chat, owned */
    struct lru topics;            /* api.c: struct tg_topic */
    struct buf scratch;           /* the name of a person in a lookup */
    struct {
        int64_t chat, message, thread;
    } sent[1024]; /* inbound.c: ring of the bot's last messages */
    size_t n_sent;
    struct {
        uint64_t updates, again, edits, plain, limited;
    } n;
};

static inline struct telegram *telegram_of(struct platform *p)
{
    return container_of(p, struct telegram, base);
}

/* ---- api.c ---- */

enum tg_outcome {
    TG_OK,
    TG_LATER,   /* 429: retry after @retry_after_ms */
    TG_REFUSED, /* 4xx: a retry would be refused too */
    TG_BROKEN,  /* 5xx but 504: Telegram reports its own failure */
    TG_DOWN,    /* Telegram could not be reached */
    TG_UNKNOWN, /* no usable answer: Telegram may have acted on the request */
};

struct tg_answer {
    enum tg_outcome outcome;
    int code;               /* HTTP status or error_code; 0: none */
    char why[256];          /* Telegram's or the network's error text, without the token */
    int64_t retry_after_ms; /* TG_LATER */
    int64_t migrate_to;     /* the chat's new id; 0: it did not move */
    struct json result;     /* TG_OK; borrowed from the parser */
};

/* POSTs @body (JSON) to @method.  Only for idempotent requests; messages go through the sender. */
struct http_call *tg_call(struct telegram *t, const char *method, struct str body,
                          int64_t timeout_ms, http_done_cb *done, void *ctx) BH_MUST_USE;
void tg_answer_read(struct telegram *t, struct json_parser *parser, const struct http_result *r,
                    struct tg_answer *ret);

/* A sentence that explains the refusal @why to people; NULL: use @why itself. */
const char *tg_refusal(int code, const char *why);
bool tg_refuses_entities(const struct tg_answer *a);

enum bh_err tg_chats_load(struct telegram *t, char *ret_why);
void tg_chats_free(struct telegram *t);
void tg_chat_moved(struct telegram *t, struct str from, struct str to);
struct str tg_chat_now(struct telegram *t, struct str id);    /* the current id of chat @id */
struct str tg_chat_before(struct telegram *t, struct str id); /* the former id; absent: none */
/* Names of topics, learned since the start: Telegram tells a name only when it changes. */
struct tg_topic {
    struct lru_entry lru; /* chat, blank, topic */
    bool ours;            /* bellhop gave this name */
    char *name;           /* owned */
};
void tg_topic_free(struct lru *l, void *entry);
void tg_topic_named(struct telegram *t, struct str chat, int64_t topic, struct str name, bool ours);
const struct tg_topic *tg_topic_find(const struct telegram *t, struct str chat, int64_t topic);
/* True: "typing" still shows in the chat.  False: notes that the caller sends it now. */
bool tg_chat_typed(struct telegram *t, struct str id);

/* ---- inbound.c ---- */

void tg_inbound_start(struct telegram *t);
void tg_inbound_stop(struct telegram *t);
const char *tg_state_name(struct platform *p);
bool tg_webhook(struct platform *p, struct http_req *req);
void tg_reactions_sent(struct telegram *t, struct str chat, int64_t message, int64_t thread);
/* The result of accepting an update; never runs after tg_inbound_stop(). */
typedef void tg_accepted_fn(struct telegram *t, uint64_t tag, enum bh_err err);

/* ---- prompts.c ---- */
/* Passes a press to the host.  False: there is nothing to pass on, and @done does not run. */
bool tg_accept_press(struct telegram *t, struct json update, tg_accepted_fn *done, uint64_t tag);
void tg_answer_press(struct telegram *t, struct str callback, struct str words);
void tg_write_keyboard(struct buf *out, const struct prompt *q);
void tg_prompts_cancel(struct telegram *t);
void tg_prompt_over(struct platform *p, struct prompt *q);

/* ---- commands.c ---- */
void tg_set_commands(struct platform *p, struct str commands);
void tg_commands_free(struct telegram *t);
/* The gateway's name of a command, with its dashes; @name is Telegram's. */
struct str tg_command_name(const struct telegram *t, struct str name);

/* ---- outbound.c ---- */
void tg_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a);
extern const struct sender_ops tg_sender;

extern const struct record_form tg_moved_form, tg_offset_form, tg_commands_form;
