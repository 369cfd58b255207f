/* channel_priv.h - the parts of a running channel.  Private to src/agent/.
 *
 *      channel.c        standard input and output, requests to bellhop, the mailbox session
 *      channel_tools.c  what the client asks for: the tools, permissions
 *      channel_text.c   what the model reads, pure
 */
#pragma once
#include "agent/channel.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/list.h"
#include "base/map.h"
#include "net/jsonrpc.h"

struct channel;

/* ---- what the model reads: channel_text.c ---- */

#define CHANNEL_META_BYTES 300           /* of one value of meta; longer values are cut */
#define CHANNEL_TEXT_BYTES (100u * 1024) /* of a message's text; longer texts are cut */
#define CHANNEL_FILES_MAX 16             /* attachments of one delivery */

/* Appends @text as a value of meta: an attribute of a tag that the model trusts.  Control
 * characters, invisible ones and changes of direction are left out, quotes and angle brackets are
 * replaced. */
void channel_clean_meta(struct buf *out, struct str text);
/* Appends the text of a person: control characters are left out, and a tag that looks like the
 * client's own loses its bracket. */
void channel_clean_text(struct buf *out, struct str text);
/* Appends what the model reads of a frame of the mailbox.  False: the frame has no meaning for a
 * model. */
bool channel_add_text(struct buf *out, struct json frame);
/* Writes the params of notifications/claude/channel for a frame of the mailbox.  @at_ms is the time
 * of acceptance.  False: as above. */
bool channel_write_event(struct buf *out, struct json frame, struct str delivery, bool repeat,
                         int64_t at_ms);
/* The same for words of bellhop's own. */
void channel_write_notice(struct buf *out, const char *kind, struct str chat_id, struct str text);
/* Appends a text for a block of code in a question: nothing in it is hidden or changes how the rest
 * is shown, and of a long one the beginning and the end are there. */
void question_add_code(struct buf *out, struct str text);
/* Writes the question for people: which tool Claude Code wants to use. */
void channel_write_question(struct buf *out, struct json request);
extern const char channel_instructions[];

/* ---- deliveries ---- */

struct channel_file {
    char *url, *name, *type; /* owned; name may be NULL */
};
struct channel_delivery { /* one that the model was shown */
    struct list link;     /* channel->undone or channel->done, oldest first */
    uint64_t number;
    char id[24];
    char *platform, *chat_id, *message_id; /* owned; NULL: none */
    char *metadata;                        /* owned; JSON for an answer */
    char *text;                 /* owned; of a message without an id; NULL: channel->lines has it */
    struct channel_file *files; /* owned */
    size_t n_files;
    int64_t shown_ms;
    bool over; /* done */
};
struct channel_line {                        /* something that was said, for the tool history */
    struct list link;                        /* channel->lines, oldest first */
    char *chat_id, *who, *text, *message_id; /* owned; who NULL: the model itself */
    int64_t at_ms;                           /* wall */
};

/* ---- requests to bellhop: channel.c ---- */

struct channel_reply { /* borrowed for the callback */
    int status;        /* 0: no answer came */
    struct json doc;   /* absent: none */
    struct str body;
    const char *why; /* a sentence unless status is 200 */
    bool unknown;    /* no answer came, and the request may have been executed */
};
typedef void channel_reply_cb(void *ctx, const struct channel_reply *r);
enum channel_retry {
    RETRY_NEVER,
    RETRY_UNSENT, /* while it certainly was not executed */
    RETRY_ALWAYS, /* twice does no harm */
};
struct channel_query {     /* texts are borrowed for the call */
    const char *method;    /* "POST" */
    struct str path, body; /* body empty: none */
    enum channel_retry retry;
    int64_t timeout_ms; /* of one try; 0: 40 s */
    size_t max_body;    /* 0: 8 MiB */
    const char *url;    /* fetch this address instead of @path, without our key; NULL: none */
    bool private_url;   /* bellhop made @url: it may be on this machine; else it must be public */
    void (*drop)(void *ctx); /* frees @ctx when @done will not run; NULL: nothing to free */
};
/* @done runs once, later, unless the request is cancelled or the channel ends first. */
struct channel_fetch *channel_send(struct channel *ch, const struct channel_query *q,
                                   channel_reply_cb *done, void *ctx);
void channel_cancel(struct channel_fetch **f); /* sets NULL; @done does not run */

/* ---- the channel ---- */

struct channel {
    const struct channel_options *opt; /* borrowed */
    struct loop *loop;                 /* owned */
    struct clock *clock;               /* borrowed from the loop */
    struct http_client *http;          /* owned */
    struct jsonrpc *rpc;               /* owned */
    struct json_parser *parser;        /* of replies */
    struct list fetches;               /* struct channel_fetch, owned */
    /* standard input and output */
    struct loop_fd *in, *out;
    struct buf line, unsent;
    /* the mailbox session */
    char session[24]; /* its number; "": it never was open */
    bool is_open;
    uint64_t cursor, peeked;    /* the newest delivery that was shown, looked at */
    struct channel_fetch *poll; /* NULL: none */
    bool poll_idle;             /* the poll takes nothing: it may be cancelled */
    struct timer again;         /* polls after a failure */
    unsigned failures;
    struct timer ready; /* the client has loaded the channel */
    bool listed, is_ready;
    struct timer stale;   /* the oldest delivery in hand makes room */
    struct timer leaving; /* the goodbye takes too long */
    bool ending;
    int status;
    /* what the model knows */
    struct list undone, done, lines;
    struct map by_id; /* struct channel_delivery */
    size_t n_undone, n_done, n_lines;
    struct list questions; /* struct channel_question, owned: channel_tools.c */
    size_t n_questions;
    char *dir; /* owned; of attachments; NULL: none yet */
    size_t file_bytes;
};

void channel_emit(struct channel *ch, struct str params); /* a notification to the model */
void channel_poll_again(struct channel *ch); /* the window or the questions have changed */
struct channel_delivery *channel_find(const struct channel *ch, struct str id); /* NULL: unknown */
/* The delivery is done, as bellhop confirmed. */
void channel_finished(struct channel *ch, struct str id);
/* Remembers what was said.  @who absent: by the model. */
void channel_said(struct channel *ch, struct str chat_id, struct str who, struct str text,
                  struct str message_id, int64_t at_ms);
/* Ends the process: tells bellhop goodbye, if there is still a session. */
void channel_end(struct channel *ch, int status);

/* channel_tools.c */
void channel_request(void *ctx, uint64_t ticket, struct str method, struct json params);
void channel_notified(void *ctx, struct str method, struct json params);
/* A button of a permission question.  True: the delivery is used up. */
bool channel_pressed(struct channel *ch, struct json event);
void channel_questions_free(struct channel *ch);
void channel_files_remove(struct channel *ch); /* saved attachments */
