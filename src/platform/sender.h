/* sender.h - the one way out: everything that one bot says to its platform and asks of it.
 *
 *      host --sender_submit()--> [the file is fetched] --> ops->act() of the platform
 *
 *      sender_act() --> lane --its turn, its record on disk--> write() --> request --> read()
 *                        ^                                       |                       |
 *                        '---- AGAIN: its old place, later <-----+-----------------------+
 *                              DONE: write() the next part <-----------------------------+
 *        host_result() <------ DONE with its last part, REFUSED, FAILED, UNKNOWN <-------'
 *
 * The adapter says what a request looks like (write) and what an answer means (read).  The sender
 * owns the rest: files (fetched before the adapter sees the action), lanes (one per chat,
 * outbox.h), records on disk (outgoing.h has the states), retries, and the words that the gateway
 * acts on.
 *
 * What changes something (everything but typing, reactions and questions) is recorded before it
 * leaves, and kept until it is done, refused for good, or older than `outbox.max_age`.  Its gateway
 * waits for SENDER_PATIENCE_MS; then the gateway is told that it is queued, under the name
 * "queued:<number>", by which it can be edited later.
 *
 * A file at a public address is fetched first.  Meanwhile only what the same instance sends to the
 * same chat and thread waits behind it; the fetch takes no running slot of the outbox.
 *
 * After a crash or a stop the next start goes on with every record: the record says whether the
 * part under way may have left, and enum outgoing_twice says what a second request would do.  A
 * part that may have arrived and would arrive twice is not repeated: it ends as unknown, and an
 * operator may retry it.  Where the platform can be asked for the message (TWICE_IS_SEEN), the
 * sender asks up to SENDER_LOOKS times: what the platform shows is done, the rest is unknown.
 *
 * Several tenants speak through one bot: they take turns, and a tenant whose requests are refused
 * again and again is held back before the platform holds back the bot (outbox.h).
 *
 * An outgoing belongs to the sender from sender_act() or sender_ask() until ops->free().
 */
#pragma once
#include "platform/outgoing.h"
#include "platform/platform.h"

#define SENDER_MAX_PARTS 16      /* of one action; longer is refused whole */
#define SENDER_PATIENCE_MS 25000 /* of a gateway: it waits 30 s, and a result needs time too */
#define SENDER_MAX_AGE_MS 600000 /* unless `outbox.max_age` says otherwise */
#define SENDER_LOOKS 3           /* for a message that may have arrived, before it is unknown */
#define SENDER_KNOWN_MS 60000    /* for so long a restart reports what an earlier start found */
#define SENDER_QUEUED_PREFIX "queued:"
/* A file that the outbox still needs is held (media_hold) under the number of its record, marked
 * so: sender_holds() tells how long. */
#define SENDER_FILE_ROW (UINT64_C(1) << 62)

struct http_result;

struct sender_request { /* filled by write(), wiped by the sender */
    const char *method; /* a literal; NULL: POST */
    struct buf url, body;
    const char *headers[4]; /* lines; borrowed from the adapter; NULL ones are skipped */
    /* A file, sent behind @body and before @after; see attachment.h.  NULL: none.  Borrowed. */
    const char *file_path;
    uint64_t file_bytes;
    struct buf after;
    char type[96]; /* room for a header line */
    bool no_body;  /* else an empty one is sent as such */
    /* It must not happen twice: never repeated once it may have arrived.  False: a second request
     * changes nothing (a read, an edit, a message with a key of its own). */
    bool once;
    int64_t timeout_ms; /* 0: 15 s */
};

enum sender_end {
    SENDER_UNKNOWN, /* it may or may not have been done */
    SENDER_GO,      /* write() only: the request is written */
    SENDER_DONE,    /* this part is done */
    SENDER_AGAIN,   /* not done: the same again in wait_ms */
    SENDER_HOLD,    /* write() only: not before sender_resume() */
    SENDER_REWRITE, /* not done, but there is another way (another address, plain text): write() */
    SENDER_REFUSED, /* not done, and the same would be refused again */
    SENDER_FAILED,  /* not done, and not tried any longer; the same may work in a while */
};
struct sender_verdict { /* starts zeroed */
    enum sender_end end;
    int64_t wait_ms;                 /* SENDER_AGAIN; 0: as Retry-After says, else a backoff */
    char message_id[128];            /* SENDER_DONE; of this part; empty: it has none */
    char thread_id[32];              /* SENDER_DONE; of a thread that was made */
    struct str auto_thread_name;     /* the same: the name of that thread; borrowed */
    struct str chat_name, chat_type; /* SENDER_DONE, for get_chat_info; borrowed from the adapter */
    char why[256]; /* else: a sentence for people; foreign words only behind sender_is_loaded() */
};

struct sender_ops { /* @p is the platform the sender was made for */
    /* Write the request for part o->at.  @v says SENDER_GO, or why there is none now. */
    void (*write)(struct platform *p, struct outgoing *o, struct sender_request *q,
                  struct sender_verdict *v);
    /* What does the answer to part o->at mean?  Only for answers that came (res->err is BH_OK). */
    void (*read)(struct platform *p, struct outgoing *o, const struct http_result *res,
                 struct sender_verdict *v);
    /* A question has ended: DONE, REFUSED, FAILED or UNKNOWN.  Never inside sender_ask(), and not
     * after sender_cancel().  NULL: this platform asks none. */
    void (*told)(struct platform *p, struct outgoing *o, const struct sender_verdict *v);
    void (*free)(struct outgoing *o); /* the adapter's struct around it */
    int64_t key_ms; /* for how long the platform remembers sender_key(); 0: it takes none */
    /* For TWICE_IS_SEEN: write() and read() of a request that changes nothing and asks whether part
     * o->at, first tried at o->tried_ms, arrived.  looked() says DONE: it did; REFUSED: the
     * platform does not show it; AGAIN, UNKNOWN: ask again. */
    void (*look)(struct platform *p, struct outgoing *o, struct sender_request *q,
                 struct sender_verdict *v);
    void (*looked)(struct platform *p, struct outgoing *o, const struct http_result *res,
                   struct sender_verdict *v);
};

/* Reads what an earlier process left: blocks, for start-up.  What can go on does so from the first
 * turn of the loop on, through the platform's act(); the rest is reported with host_cut_off().  @p
 * and @ops are borrowed; @label is how people call the platform ("Discord").  Sets p->sender. */
enum bh_err sender_new(struct platform *p, const char *label, const struct sender_ops *ops,
                       struct sender **ret_s, char *ret_why) BH_MUST_USE;
/* Cuts off what is under way.  Gateways that wait are told; the records stay for the next start.
 * NULL is fine. */
void sender_free(struct sender *s);

/* What the host calls for every action.  Replaces names "queued:<number>" by message ids, gets the
 * file of a send_media, and calls the platform's act(), now or later. */
void sender_submit(struct sender *s, struct action_id id, const struct action_from *from,
                   const struct action *a);

struct sender_order { /* borrowed for the call */
    struct action_id id;
    const struct action_from *from;
    const struct action *action;
    struct str lane; /* absent: the action's chat_id */
    enum outgoing_twice twice;
};
/* Answers through host_result() exactly once, unless it is cancelled. */
void sender_act(struct sender *s, struct outgoing *o, const struct sender_order *q);
/* The same for a question of the adapter's own.  @tenant: for whom it is asked; absent: for nobody,
 * and its refusals count against its lane. */
void sender_ask(struct sender *s, struct outgoing *o, struct str tenant, struct str lane,
                int64_t patience_ms);
/* Nobody wants to know how it ends.  What waits never leaves; what is under way goes on.  NULL
 * inside is fine; sets it to NULL. */
void sender_cancel(struct outgoing **o);

/* An idempotency key of @o, which survives restarts and which no other sender uses. */
uint64_t sender_key(const struct outgoing *o);

/* Does @o still wait, and no try of it may have arrived? */
bool outgoing_waits(const struct outgoing *o);
/* @o says something newer now: the gateway that waited for the old text is told that it is done,
 * and @q gets the result instead.  Only while outgoing_waits(). */
void sender_supersede(struct outgoing *o, const struct sender_order *q);

/* The platform counts its answer to @o against the bot: the tenant is held back when that happens
 * too often (outbox.h). */
void sender_blame(const struct outgoing *o);

/* Nothing of this bot leaves for this long. */
void sender_pause(struct sender *s, int64_t for_ms);
/* Write what was held; @why not NULL: it fails with that, as SENDER_FAILED. */
void sender_resume(struct sender *s, const char *why);

/* Would these words make the gateway do something else than a refusal means?  It resends after
 * "network", and gives up quietly after "timed out".  A refusal with such words is told without
 * them. */
bool sender_is_loaded(const char *text);

struct sender_stats {
    uint64_t requests;               /* made, in all */
    uint64_t done, refused, unknown; /* actions; without typing, reactions and questions */
    uint64_t queued;                 /* of them: told so, because it took longer */
    uint64_t expired;                /* given up because of their age */
    uint64_t revived;                /* of an earlier process, and gone on with */
    size_t waiting, running;
    size_t kept_unknown; /* an operator may look at them */
    size_t cut_off;      /* found at start */
    int64_t oldest_ms;   /* the age of what has waited longest; 0: nothing does */
};
void sender_stats(const struct sender *s, struct sender_stats *ret);

/* ---- by number: for gateways that were told "queued", and for operators (outgoing.c) ---- */

enum sender_named {
    SENDER_NAMED_NONE,  /* no such thing, or it failed */
    SENDER_NAMED_WAITS, /* it is not there yet */
    SENDER_NAMED_SENT,  /* it is there */
};
/* What became of "queued:<number>"?  @ret_id gets the message's own id when it is there. */
enum sender_named sender_named(struct sender *s, struct str name, char ret_id[128]);
/* The message that @a edits gets the text of @a once it is there.  False: none waits by that name
 * in that chat. */
bool sender_edit_later(struct sender *s, const struct action *a);

struct outgoing_view { /* borrowed for the call */
    struct outgoing_entry e;
    int64_t next_ms; /* wall clock: not before; 0: as soon as it can */
};
typedef void sender_view_cb(void *ctx, const struct outgoing_view *v);
/* All that waits, is tried, or ended as unknown.  @number 0: of all, else of that one. */
void sender_each(struct sender *s, uint64_t number, sender_view_cb *cb, void *ctx);
/* BH_REFUSED: there is no such thing; BH_BUSY: its request is under way, and cannot be called back.
 * What waits is tried at once; what is unknown is done again. */
enum bh_err sender_retry(struct sender *s, uint64_t number) BH_MUST_USE;
enum bh_err sender_drop(struct sender *s, uint64_t number) BH_MUST_USE;

/* The instance is gone (absent: the whole tenant), or the person behind @chat is to be forgotten:
 * what waits goes, and nobody is told. */
void sender_forget(struct sender *s, struct str tenant, struct str instance);
void sender_forget_chat(struct sender *s, struct str chat);
/* Does the outbox still need the file that it holds under @number? */
bool sender_holds(const struct sender *s, uint64_t number);
