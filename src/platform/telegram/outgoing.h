/* outgoing.h - one action on its way to Telegram; between act.c, which makes them, and send.c,
 * which writes their requests and reads the answers. */
#pragma once
#include "platform/attachment.h"
#include "platform/sender.h"
#include "platform/telegram/markdown.h"
#include "platform/telegram/telegram_priv.h"

struct tg_outgoing {
    struct outgoing out; /* first */
    struct telegram *t;  /* borrowed */
    enum action_op op;
    int64_t thread, reply_to, message_id; /* 0: none */
    struct md md;
    struct md_part part;    /* the one out.at counts */
    size_t part_at;         /* its number */
    bool plain;             /* Telegram refused the entities of this part */
    char *word;             /* owned; an emoji or a name */
    struct attachment file; /* send_media */
    char *prompt;           /* owned; of a question; NULL: it is none */
    struct buf markup;      /* its buttons */
    bool captioned;         /* its first part has a text; of an edit: what it edits is a caption */
    bool as_document;       /* Telegram did not take it as what it is */
    unsigned moves, broken;
    char chat[TG_CHAT_CHARS];          /* as asked; tg_outgoing_chat() says where it is */
    char edit_key[TG_CHAT_CHARS + 24]; /* in telegram->edits; empty: it is not */
};

static inline struct tg_outgoing *tg_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct tg_outgoing, out);
}
static inline struct str tg_outgoing_chat(const struct tg_outgoing *x) /* where it is today */
{
    return tg_chat_now(x->t, str_of(x->chat));
}
void tg_outgoing_free(struct outgoing *o);

/* ---- press.c ---- */
void tg_ask(struct tg_outgoing *x, const struct action_from *from, const struct action *a);
/* An edit names the buttons of what it edits, or they are gone. */
void tg_keep_buttons(struct tg_outgoing *x);
void tg_prompt_ended(struct tg_outgoing *x, const struct sender_verdict *v); /* one of its parts */

/* ---- media.c ---- */
/* NULL: it can be sent; else why not. */
const char *tg_read_media(struct tg_outgoing *x, const struct action *a);
void tg_write_media(struct tg_outgoing *x, struct sender_request *q); /* its first part */
/* Refused as what it is, but a document it may be: write it again. */
bool tg_media_again(struct tg_outgoing *x, const struct tg_answer *a);
