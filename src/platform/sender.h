/* sender.h - sends the actions of gateways, and the adapter's own requests, to one bot's platform.
 *
 *      host --sender_submit()--> [the file is fetched] --> ops->act() of the platform
 *
 *      sender_act() --> lane --its turn, its record on disk--> write() --> request --> read()
 *                        ^                                       |                       |
 *                        '---- AGAIN: same place, later <--------+-----------------------+
 *                              DONE: write() the next part <-----------------------------+
 *        host_result() <------ DONE with its last part, REFUSED, FAILED, UNKNOWN <-------'
 *
 * The host calls sender_submit() and the functions at the end; adapters call the others.  An
 * adapter writes requests (write) and interprets answers (read).  The sender owns the rest: files
 * (fetched before the adapter sees the action), lanes (one per chat, outbox.h), records on disk
 * (outgoing.h has the states), retries, and the error texts that gateways act on.
 *
 * Typing, reactions and lookups have no record.  Every other action is recorded before its request
 * leaves.  The record is kept until the action is done, refused, or older than `outbox.max_age`.
 * After SENDER_PATIENCE_MS the sender tells the gateway "queued" (a thread_create fails instead).
 * New messages also get the name "queued:<number>", by which the gateway can edit them later.
 *
 * A file at a public address is fetched first.  Messages of the same instance to the same chat and
 * thread wait behind the fetch; nothing else does.  A fetch takes no running slot of the outbox.
 *
 * The next start resumes every record.  A record says whether the current part may have left, and
 * enum outgoing_twice says what a second request would do.  A part that may have arrived, and would
 * arrive twice, is not retried: it ends as unknown, and an operator may retry it.  Where the
 * platform can list its messages (TWICE_IS_SEEN), the sender looks for the part up to SENDER_LOOKS
 * times: done if the platform shows it, unknown otherwise.
 *
 * Tenants that share a bot take turns.  The sender stops sending for a tenant whose requests are
 * often refused, before the platform blocks the bot for everyone (outbox_blame()).
 *
 * A question (prompts.h) counts as shown once its last part is delivered, and is dropped if it is
 * refused.  Its adapter adds it under the lane of its order.
 *
 * An outgoing belongs to the sender from sender_act() or sender_ask() until ops->free().
 */
#pragma once
#include "base/json.h"
#include "platform/outgoing.h"
#include "platform/platform.h"

#define SENDER_MAX_PARTS 16      /* of one action; an action with more parts is refused */
#define SENDER_MAX_HEADERS 20    /* of one request */
#define SENDER_PATIENCE_MS 25000 /* gateways time out after 30 s, and a result needs time too */
#define SENDER_MAX_AGE_MS 600000 /* the default of `outbox.max_age` */
#define SENDER_LOOKS 3           /* lookups of a message that may have arrived, before UNKNOWN */
#define SENDER_RIGHT_TRIES 15    /* while the platform is asked whether an action may still leave */
#define SENDER_RIGHT_MS 1000     /* between these tries */
#define SENDER_YOUNG_MS 60000    /* after a start, what is not known yet may become known */
#define SENDER_KNOWN_MS 60000    /* later starts report an unknown record again for this long */
#define SENDER_QUEUED_PREFIX "queued:"
/* media_hold() keeps a file under this bit and the number of its record, while sender_holds() is
 * true for that number. */
#define SENDER_FILE_ROW (UINT64_C(1) << 62)

struct http_result;
struct mail_envelope;

struct sender_request { /* filled by write(), wiped by the sender */
    const char *method; /* a literal; NULL: POST */
    struct buf url, body;
    const char *headers[SENDER_MAX_HEADERS]; /* lines; borrowed from the adapter; NULL entries are
                                              * skipped */
    /* A file, sent between @body and @after; see attachment.h.  NULL: none.  Borrowed. */
    const char *file_path;
    uint64_t file_bytes;
    struct buf after;
    char type[96]; /* space for the Content-Type line */
    bool no_body;  /* send none; otherwise an empty @body is sent as an empty body */
    /* Not idempotent: never retried once it may have arrived.  False: a second request changes
     * nothing (a read, an edit, a message with an idempotency key). */
    bool once;
    bool public_only;   /* private addresses are refused: http_client.h */
    int64_t timeout_ms; /* 0: 15 s */
    size_t max_body;    /* of the answer: http_client.h; 0: 8 MiB */
    /* The body is a mail for this SMTP server, and a file is sent as base64; NULL: HTTP.
     * Borrowed. */
    const struct mail_envelope *mail;
};

enum sender_end {
    SENDER_UNKNOWN, /* the platform may or may not have acted */
    SENDER_GO,      /* write() only: the request is written */
    SENDER_DONE,    /* this part is done */
    SENDER_AGAIN,   /* not done: retry in wait_ms */
    SENDER_HOLD,    /* write() only: wait for sender_resume() */
    SENDER_REWRITE, /* not done: call write() again, for another address or plain text */
    SENDER_REFUSED, /* not done, and a retry would be refused too */
    SENDER_FAILED,  /* not done, no more retries now; the same action may work later */
};
struct sender_verdict { /* starts zeroed */
    enum sender_end end;
    int64_t wait_ms;                 /* SENDER_AGAIN; 0: Retry-After, else a backoff */
    char message_id[128];            /* SENDER_DONE; of this part; empty: it has none */
    char thread_id[128];             /* SENDER_DONE; of the thread of this message; empty: none */
    struct str auto_thread_name;     /* SENDER_DONE; the name of that thread; borrowed */
    struct str chat_name, chat_type; /* SENDER_DONE, for get_chat_info; borrowed from the adapter */
    /* Otherwise: a sentence for people.  The platform's own words may be part of it only if
     * sender_is_loaded() is false for them. */
    char why[256];
    int status;         /* HTTP; set by the sender; 0: no answer came */
    int64_t code;       /* the platform's own error code; 0: none */
    struct json answer; /* for told(); borrowed from the adapter's parser; absent: none */
};

void sender_say(struct sender_verdict *v, enum sender_end end, const char *fmt, ...)
    BH_PRINTF(3, 4);

/* Sentences for the error codes of a platform; the last entry has none. */
struct sender_refusal {
    int64_t code;
    const char *sentence;
};
const char *sender_refusal(const struct sender_refusal *all, int64_t code); /* NULL: not listed */

struct sender_ops { /* @p is the platform the sender was made for */
    /* Writes the request for part o->at.  @v says SENDER_GO, or why no request is written now. */
    void (*write)(struct platform *p, struct outgoing *o, struct sender_request *q,
                  struct sender_verdict *v);
    /* Interprets the answer to part o->at.  Not called without an answer (res->err not BH_OK). */
    void (*read)(struct platform *p, struct outgoing *o, const struct http_result *res,
                 struct sender_verdict *v);
    void (*free)(struct outgoing *o); /* frees the adapter's struct around @o */
    /* Ms until part o->at may be written, because of a limit the adapter knows; 0: now.  Called
     * before the record says TRYING, so a crash during the wait leaves no doubt about the part,
     * unlike an AGAIN from write().  NULL: always now. */
    int64_t (*wait)(struct platform *p, struct outgoing *o);
    /* For platforms that are not spoken to over HTTP (a socket of lines, a child process).
     * transmit() sends the request that write() wrote: q->body, and what else the adapter
     * finds in @o.  Later, never inside transmit(), the adapter calls sender_answer() once;
     * a connection that is down is an answer too (BH_UNAVAILABLE: nothing was sent), and so
     * is silence (BH_UNKNOWN).  drop(): @o is freed now, no answer may come for it.  NULL
     * both: HTTP. */
    void (*transmit)(struct platform *p, struct outgoing *o, const struct sender_request *q);
    void (*drop)(struct platform *p, struct outgoing *o);
    const struct stream_ops *stream; /* stream.h; NULL: its defaults */
    int64_t key_ms;     /* how long the platform remembers sender_key(); 0: it takes no key */
    size_t max_running; /* requests at once; 0: as outbox.h has it */
    /* For TWICE_IS_SEEN: write() and read() of a request that only asks whether part o->at,
     * first tried at o->tried_ms, arrived.  look() says REWRITE: it cannot have arrived, write()
     * it again.  looked() says DONE: it arrived; REFUSED: the platform does not show it; AGAIN,
     * UNKNOWN: ask again.  A platform that tells by itself (sender_settle) needs no request: its
     * look() says what looked() would. */
    void (*look)(struct platform *p, struct outgoing *o, struct sender_request *q,
                 struct sender_verdict *v);
    void (*looked)(struct platform *p, struct outgoing *o, const struct http_result *res,
                   struct sender_verdict *v);
};

/* Sets p->sender and reads the records of an earlier process: blocks, for start-up.  The first turn
 * of the loop gives the records that can be resumed to the platform's act().  The others are
 * reported with host_cut_off(). */
enum bh_err sender_new(struct platform *p, char *ret_why) BH_MUST_USE;
/* Cancels the requests in flight and tells the gateways that wait.  The records stay for the next
 * start.  NULL is fine. */
void sender_free(struct sender *s);

/* The host calls this for every action.  Replaces names "queued:<number>" by message ids, fetches
 * the file of a send_media, and calls the platform's act(), now or later. */
void sender_submit(struct sender *s, struct action_id id, const struct action_from *from,
                   const struct action *a);

struct sender_order { /* borrowed for the call */
    struct action_id id;
    const struct action_from *from;
    const struct action *action;
    struct str lane; /* absent: the action's chat_id */
    bool apart;      /* in a lane of its own beside @lane: no message waits behind it */
    enum outgoing_twice twice;
    const char *wrong; /* a sentence: the platform cannot do this, and it is refused; NULL: none */
};
/* Called by the platform's act().  Answers through host_result() exactly once, unless the action is
 * cancelled. */
void sender_act(struct sender *s, struct outgoing *o, const struct sender_order *q);
struct sender_question { /* borrowed for the call */
    struct str lane;
    struct str tenant;   /* for whom the adapter asks; absent: for none, and @lane is blamed */
    int64_t patience_ms; /* 0: SENDER_PATIENCE_MS */
    /* The question has ended: DONE, REFUSED, FAILED or UNKNOWN.  Never runs inside sender_ask(),
     * nor after sender_cancel().  NULL: nobody waits for the end. */
    sender_told_cb *told;
    void *ctx;
    bool owns_ctx; /* @ctx is on the heap and freed with the question, whether told() ran or not */
};
/* Sends a request of the adapter's own, a question. */
void sender_ask(struct sender *s, struct outgoing *o, const struct sender_question *q);
/* Drops the result of *@o, and its request if that has not left yet.  A request in flight goes on.
 * *@o may be NULL, and is NULL afterwards. */
void sender_cancel(struct outgoing **o);

/* Writes a record of @a, which the next start performs. */
void sender_keep(struct sender *s, const struct action_from *from, const struct action *a);

/* The answer to a request that ops->transmit() sent; see there.  @o may be freed. */
void sender_answer(struct outgoing *o, const struct http_result *res);

/* The number of the record of @o, for platforms that give it back: sender_settle().  0: none. */
uint64_t sender_number(const struct outgoing *o);
/* The platform tells how part @part of record @number ended: @v says DONE, with the message id, or
 * REFUSED, with the reason.  True: the action is still under way, and look() or read() is called
 * for it soon.  Otherwise a record that ended as unknown is settled, and a failure replaces the
 * outcome of an action that had seemed done. */
bool sender_settle(struct sender *s, uint64_t number, size_t part, const struct sender_verdict *v);

/* The idempotency key of @o.  It is unique, and stays the same after a restart. */
uint64_t sender_key(const struct outgoing *o);

/* The platform counts its answer to @o as a refusal of this bot: outbox_blame() for the tenant. */
void sender_blame(const struct outgoing *o);

/* The budget of the bot (pace.h): for requests beside the streams, and for 429s. */
struct pace *sender_budget(struct sender *s);
/* Sends nothing for @for_ms. */
void sender_pause(struct sender *s, int64_t for_ms);
/* Calls write() for every held outgoing.  @why not NULL: they end as SENDER_FAILED with @why. */
void sender_resume(struct sender *s, const char *why);

/* Does @text have words that a gateway misreads in a refusal?  A gateway resends after "network",
 * and gives up silently after "timed out".  The sender leaves such words out. */
bool sender_is_loaded(const char *text);

struct sender_stats {
    uint64_t requests;               /* made, in all */
    uint64_t done, refused, unknown; /* actions; without typing, reactions and questions */
    uint64_t queued;                 /* actions whose gateway was told "queued" */
    uint64_t expired;                /* recorded actions dropped at their deadline */
    uint64_t revived;                /* records resumed after a restart or by an operator */
    size_t waiting, running;
    size_t kept_unknown; /* records that ended as unknown and are still kept */
    size_t cut_off;      /* unknown records reported at start */
    int64_t oldest_ms;   /* age of the oldest recorded action; 0: there is none */
    uint64_t merged;     /* texts of streams that a newer one replaced before they were shown */
    size_t streaming;    /* streams */
};
void sender_stats(const struct sender *s, struct sender_stats *ret);
/* False: the sender only downloads files, and the adapter performs the actions. */
bool sender_requests(const struct sender *s);

/* ---- by number: for gateways that were told "queued", and for operators (outgoing.c) ---- */

enum sender_named {
    SENDER_NAMED_NONE,  /* no such message, or it failed */
    SENDER_NAMED_WAITS, /* not delivered yet */
    SENDER_NAMED_SENT,  /* delivered */
};
/* Resolves "queued:<number>".  @ret_id gets the platform's message id of a delivered message. */
enum sender_named sender_named(struct sender *s, struct str name, char ret_id[128]);
/* Edits the queued message that @a names, once it is delivered.  False: no message of that name
 * waits in that chat. */
bool sender_edit_later(struct sender *s, const struct action *a);

struct outgoing_view { /* borrowed for the call */
    struct outgoing_entry e;
    int64_t next_ms; /* wall clock of the next try; 0: as soon as its turn comes */
};
typedef void sender_view_cb(void *ctx, const struct outgoing_view *v);
/* Lists the records that wait, are being tried, or ended as unknown.  @number 0: all of them. */
void sender_each(struct sender *s, uint64_t number, sender_view_cb *cb, void *ctx);
/* Retry: a waiting action is tried at once, an unknown one is sent again.  Drop: the record goes.
 * BH_REFUSED: no such record; BH_BUSY: its turn has come, and its request may be in flight. */
enum bh_err sender_retry(struct sender *s, uint64_t number) BH_MUST_USE;
enum bh_err sender_drop(struct sender *s, uint64_t number) BH_MUST_USE;

/* Deletes the records of an instance (absent: of the whole tenant), or of a chat, and drops what
 * waits.  No gateway is told. */
void sender_forget(struct sender *s, struct str tenant, struct str instance);
void sender_forget_chat(struct sender *s, struct str chat);
/* Does record @number still need the file that is held for it? */
bool sender_holds(const struct sender *s, uint64_t number);
