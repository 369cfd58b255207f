/* webhook_bot.h - the common part of bots that receive webhooks and send one text per request.
 *
 *      webhook_bot_open()                      fills in struct webhook_bot
 *      webhook_bot_act(), webhook_bot_status() go into the adapter's platform_ops
 *      webhook_bot_done()                      before the adapter frees its own struct
 *
 * Twilio and WeCom use it: they have no connection of their own, every chat is one person, and
 * there are no buttons.  The adapter's struct begins with a struct webhook_bot.  The adapter
 * verifies and reads webhooks itself, and implements write() and read() of the sender.
 */
#pragma once
#include "platform/attachment.h"
#include "platform/await.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/split.h"

struct webhook_bot;

struct webhook_bot_kind { /* const, one per platform */
    const struct platform_ops *ops;
    const char *label;               /* "Twilio" */
    const char *api_base;            /* the default; the configuration may name another */
    const struct sender_ops *sender; /* for struct text_outgoing */
    struct split_limits limits;
    /* Returns why this file cannot be sent, or NULL.  The pointer is NULL: no files at all. */
    const char *(*no_file)(struct webhook_bot *b, const struct attachment *a);
    bool file_alone;                     /* a caption follows as a message of its own */
    bool (*is_chat)(struct str chat_id); /* is it the id of a chat of this platform? */
    const char *no_chat;                 /* the error if it is not */
};

struct webhook_bot {
    struct platform base; /* first */
    const struct webhook_bot_kind *kind;
    const struct host_env *env; /* borrowed */
    char *api_base;             /* owned; without a slash at its end */
    struct awaits awaits;
    struct json_parser *parser; /* owned */
    struct sender *sender;      /* owned */
    struct prompts *prompts;    /* owned */
    struct {
        uint64_t events, ignored, refused;
    } n;
};

/* @b is zeroed.  @api_base: the configured address, or NULL.  On failure only
 * webhook_bot_done() may follow. */
enum bh_err webhook_bot_open(struct webhook_bot *b, const struct webhook_bot_kind *kind,
                             const struct platform_settings *settings, const char *api_base,
                             struct host *host, char *ret_why) BH_MUST_USE;
void webhook_bot_done(
    struct webhook_bot *b); /* frees the members of @b, not @b; harmless when zeroed */

static inline struct webhook_bot *webhook_bot_of(struct platform *p)
{
    return container_of(p, struct webhook_bot, base);
}

void webhook_bot_act(struct platform *p, struct action_id id, const struct action_from *from,
                     const struct action *a);
void webhook_bot_status(struct platform *p, struct jw *w);
/* Counts a webhook and answers it: @good at once if it is ignored, after await_accept() if it is a
 * message.  A message answers an open question if it is the number of an option. */
void webhook_bot_take(struct webhook_bot *b, enum webhook_verdict v, struct event *ev,
                      struct http_id id, const struct http_answer *good, int64_t deadline_ms);

struct text_outgoing {      /* the outgoing that write() and read() get */
    struct outgoing out;    /* first */
    struct split parts;     /* owned */
    struct attachment file; /* owned; goes with the first part, or before it */
    char *handle;           /* owned; the platform's id of the uploaded file; NULL: none yet */
    char chat[];
};
void text_outgoing_free(struct outgoing *o);
static inline struct text_outgoing *text_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct text_outgoing, out);
}
static inline struct str text_outgoing_part(struct outgoing *o) /* the text of part o->at */
{
    const struct split *s = &text_outgoing_of(o)->parts;

    return o->at < s->n ? split_part(s, o->at) : STR("");
}
