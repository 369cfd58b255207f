/* courier.h - texts out to a platform that takes one POST per message.
 *
 * What every such sender needs, once: one lane per chat, long texts in parts at one place in their
 * lane, the intent on disk before anything leaves, waiting out what only time can mend, and the
 * words the gateway's side acts on.  The adapter says what a request looks like and what an answer
 * means.
 *
 *      courier_send -> lane -> intent on disk -> ops->write -> POST -> ops->read -> host_result
 *                       ^                            | false              |
 *                       |                       courier_resume()          | again: back to the lane
 *                       '------------------------------------------------'
 */
#pragma once
#include "base/buf.h"
#include "platform/platform.h"
#include "platform/split.h"

struct courier;
struct http_result;

struct courier_request { /* filled by write(); the courier wipes all of it */
    struct buf url, body;
    struct buf header;        /* one line, such as an Authorization; empty: none */
    const char *content_type; /* a literal line: "Content-Type: ..." */
};

enum courier_end {
    COURIER_OK,
    COURIER_AGAIN,   /* not done; ask again in wait_ms */
    COURIER_REFUSED, /* not done, and the same would be refused again */
    COURIER_UNKNOWN, /* nobody knows */
};
struct courier_answer {
    enum courier_end end;
    int64_t wait_ms;      /* COURIER_AGAIN; 0: a little longer every time */
    char message_id[128]; /* COURIER_OK */
    char why[256]; /* else: a sentence for people, without the words "network" or "timed out" */
};

struct courier_ops {
    const char *platform; /* "twilio" */
    size_t max_part;      /* of a message, in @unit */
    size_t max_bytes;     /* the same in bytes; 0: no such limit */
    enum split_unit unit;
    /* False: it cannot be made now; the adapter calls courier_resume() when that has changed. */
    bool (*write)(void *ctx, struct str chat, struct str part, struct courier_request *ret);
    /* Only for answers that came (res->err is BH_OK). */
    void (*read)(void *ctx, const struct http_result *res, struct courier_answer *ret);
};

/* Reads intents of an earlier process: blocks, for start-up. */
enum bh_err courier_new(struct host *host, const char *bot, const struct courier_ops *ops,
                        void *ctx, struct courier **ret_c, char *ret_why) BH_MUST_USE;
/* Cuts off what is under way.  NULL is fine. */
void courier_free(struct courier *c);

/* Answers through host_result() exactly once. */
void courier_send(struct courier *c, struct action_id id, struct str chat, struct str text);
/* Requests that could not be made are made now; @why not NULL: they fail with it, as transient. */
void courier_resume(struct courier *c, const char *why);

struct courier_stats {
    uint64_t sent, refused, unknown;
    size_t waiting, running, cut_off;
};
void courier_stats(const struct courier *c, struct courier_stats *ret);
