/* req.h - one action on its way to Telegram; between act.c, which makes them, and send.c, which
 * carries them out.  Every request ends with tg_req_succeed() or tg_req_fail(), which free it. */
#pragma once
#include "platform/intent.h"
#include "platform/outbox.h"
#include "platform/telegram/markdown.h"
#include "platform/telegram/telegram_priv.h"

struct tg_req {
    struct outbox_item item;
    struct intent intent;
    struct list link;
    struct telegram *t; /* borrowed */
    struct action_id id;
    enum action_op op;
    char chat[TG_CHAT_CHARS];             /* as asked; tg_chat_now() says where it is */
    int64_t thread, reply_to, message_id; /* 0: none */
    struct md md;
    struct md_part part;  /* the one being sent */
    bool plain;           /* Telegram refused its entities */
    bool queued, waiting; /* in the outbox; not started yet */
    unsigned n_sent, broken, moves;
    int64_t first_id;       /* of the messages sent */
    struct http_call *call; /* owned; NULL: none under way */
    char why[160];          /* what the last try met */
};

struct tg_req *tg_req_new(struct telegram *t, struct action_id id, const struct action *a);
void tg_req_succeed(struct tg_req *q, int64_t message_id); /* 0: there is none to tell */
void tg_req_fail(struct tg_req *q, const char *prefix, const char *words);

struct str tg_req_chat(const struct tg_req *q); /* where the chat is today */
/* Chat, thread and words: what makes two sends the same. */
void tg_req_describe(struct buf *out, const struct tg_req *q);

void tg_req_queue(struct tg_req *q); /* behind the others of its chat */
void tg_req_call(struct tg_req *q);  /* now */
