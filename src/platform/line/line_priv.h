/* line_priv.h - struct line, one bot, and the calls between the files of the LINE adapter.
 *
 *      line.c      settings, open, close, check; people's files; built on platform/texts.h
 *      inbound.c   signed webhooks -> events -> the host
 *      outbound.c  writes requests to LINE and reads the answers */
#pragma once
#include "platform/line/inbound.h"
#include "platform/line/line.h"
#include "platform/lru.h"
#include "platform/texts.h"

struct line_quote { /* by the id of a message */
    struct lru_entry lru;
    char *token; /* owned; lets a message quote that one */
};
struct line_chat { /* by the id of a person */
    struct lru_entry lru;
    int64_t typed_ms; /* monotonic; typing was shown then; 0: it is not shown */
};

struct line {
    struct platform base;            /* first */
    const struct line_settings *cfg; /* borrowed; holds the secrets */
    struct buf auth;                 /* secret: the Authorization line */
    struct buf retry_key;            /* the line of the request that is written */
    struct line_out out;
    struct list batches; /* webhooks whose events are being accepted */
    struct lru quotes;   /* struct line_quote */
    struct lru chats;    /* struct line_chat */
};

static inline struct line *line_of(struct platform *p)
{
    return container_of(p, struct line, base);
}

bool line_http(struct platform *p, struct http_req *req);
void line_batches_cancel(struct line *l);
void line_quote_keep(struct line *l, struct str message, struct str token);
void line_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a);
const char *line_no_file(struct platform *p, const struct attachment *a);
extern const struct sender_ops line_sender;
