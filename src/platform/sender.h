/* sender.h - the one way out: what one bot says and asks, on its way to its platform.
 *
 * Whoever speaks to a platform over HTTP needs the same around its requests, and it is here, once:
 * a lane per chat, things of several parts at one place in their lane, the record on disk before
 * anything leaves (outgoing_log.h), waiting out what only time can mend, and the words the
 * gateway's side acts on.  The adapter says what a request looks like (write) and what an answer
 * means (read).
 *
 *      sender_act() --> lane --its turn, its record on disk--> write() --> request --> read()
 *                        ^                                       |                       |
 *                        '---- AGAIN: its old place, later <-----+-----------------------+
 *                              DONE: write() the next part <-----------------------------+
 *        host_result() <------ DONE with its last part, REFUSED, FAILED, UNKNOWN <-------'
 *
 * What changes something (all but typing, signs and questions) is kept until it is done, refused
 * for good or older than `outbox.max_age`.  Its gateway waits for SENDER_PATIENCE_MS; then it is
 * told that it is queued, under the name "queued:<number>", by which it can be edited later.  After
 * a crash it goes on where it was: its record says whether the part under way may have left, and
 * the order says what a second request would do (enum outgoing_twice).  What may be there already
 * and would be there twice is not repeated: it ends as unknown, and an operator may retry it.
 * Where the platform can be asked for what it has, it is asked first, SENDER_LOOKS times; what it
 * shows is done, and what it does not show is unknown still.
 *
 *      open: record --may have left, twice is two--> told "it may have been delivered", kept
 *                   --else--> ops->act() of the platform, with action.left --> sender_act()
 *
 *      lost answer, or found so --> look() --> looked() --there--> DONE, the next part
 *                                     ^-----not there, 3 times-----'--> UNKNOWN
 *
 * A thing on its way is a struct outgoing inside a struct of the adapter's, which holds what
 * write() needs.  It belongs to the sender from sender_act() or sender_ask() until ops->free().  It
 * has an op and a number of parts; what a part is (a text, a file, a page of a list) only the
 * adapter knows.  "Only some of its parts were delivered" is decided here and nowhere else.
 *
 * Several tenants speak through one bot: they take turns (outbox.h), and one whose requests are
 * refused again and again is held back before the platform holds back the bot (blame.h).
 *
 * What the adapter itself wants to know of its platform (sender_ask) goes the same way, without a
 * record, and ends with ops->told().
 */
#pragma once
#include "base/buf.h"
#include "platform/outbox.h"
#include "platform/outgoing_log.h"
#include "platform/platform.h"

#define SENDER_MAX_PARTS 16      /* of one action; longer is refused whole */
#define SENDER_PATIENCE_MS 25000 /* of a gateway: it waits 30 s, and we are not the only ones */
#define SENDER_MAX_AGE_MS 600000 /* unless the host says otherwise */
#define SENDER_LOOKS 3           /* for something that may be there, before it is unknown */

struct http_call;
struct http_result;
struct sender;

struct outgoing {          /* first member of the adapter's own struct; zeroed before it starts */
    size_t n_parts;        /* set by the adapter: requests it takes, one after the other */
    size_t at;             /* the part to be written, or just answered; from 0 */
    unsigned failures;     /* times this part has been put off so far */
    struct sender *sender; /* private from here on; borrowed */
    struct outbox_item item;
    struct outgoing_record record;
    struct list link;
    struct timer early;     /* armed: it fails before it began, or its gateway is told "queued" */
    struct http_call *call; /* owned; NULL: none under way */
    struct action_id id;
    char *block;                               /* owned; the next three lines point into it */
    struct action_from from;                   /* who asked */
    struct str chat, lane, hash, action, file; /* see outgoing_entry.h */
    struct str blame;                          /* whom its refusals count against */
    char *edit;                                /* owned; NULL: it stays as it is */
    int64_t asked_ms, tried_ms;                /* wall clock */
    int64_t try_ms, maybe_ms;                  /* of the request under way; of the first maybe */
    enum action_op op;
    uint32_t attempts;
    uint32_t part_on_disk;
    uint8_t on_disk;      /* enum outgoing_state */
    uint8_t twice;        /* enum outgoing_twice */
    unsigned rewrites;    /* of this part */
    unsigned looks;       /* of this part: times the platform did not show it */
    uint8_t early_end;    /* enum sender_end */
    bool is_action;       /* somebody waits for its result; else: told() */
    bool recorded;        /* its record has been on disk */
    bool answered;        /* its gateway knows that it is queued, and waits no longer */
    bool queued, started; /* in a lane; its turn has come */
    bool once;            /* of the request under way */
    bool looking;         /* the request under way asks whether this part is there */
    bool maybe;           /* a try of this part may have been acted upon */
    bool cancelled;
    char first_id[128]; /* of its first part, once that is there */
    char why[256];      /* what the last try met */
};

struct outgoing_left {       /* what an earlier process left, or what ended without a known end */
    struct list link;        /* private, but for @e */
    struct outgoing_entry e; /* while the platform's act() is called with it */
    uint64_t number;
    int64_t since_ms; /* wall clock: when it ended */
    bool taken;
    size_t n;
    char value[]; /* its record */
};

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
    /* It must not happen twice: never repeated once it may have been acted upon.  False: twice is
     * once (a read, an edit, a message with a key of its own). */
    bool once;
    int64_t timeout_ms; /* 0: 15 s */
};

enum sender_end {
    SENDER_UNKNOWN, /* it may or may not have been done */
    SENDER_GO,      /* write() only: the request is written */
    SENDER_DONE,    /* this part is done */
    SENDER_AGAIN,   /* not done: the same again in wait_ms */
    SENDER_HOLD,    /* write() only: not before sender_resume() */
    SENDER_REWRITE, /* not done, but there is another way (elsewhere, plain text): write() anew */
    SENDER_REFUSED, /* not done, and the same would be refused again */
    SENDER_FAILED,  /* not done, and not tried any longer; the same may work in a while */
};
struct sender_verdict { /* starts zeroed */
    enum sender_end end;
    int64_t wait_ms; /* SENDER_AGAIN; 0: as Retry-After says, else a little longer every time */
    char message_id[128];            /* SENDER_DONE; of this part; empty: it has none */
    char thread_id[32];              /* SENDER_DONE; of a thread that was made */
    struct str auto_thread_name;     /* the same, for an answer: how it is called; borrowed */
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
     * o->at is there, which left not before outgoing_tried_ms().  looked() says DONE: it is;
     * REFUSED: it is not to be seen; AGAIN, UNKNOWN: to be asked again. */
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
/* What is under way is cut off; whoever asked for something is told, and the records stay: the next
 * start goes on with them.  NULL is fine. */
void sender_free(struct sender *s);

struct sender_order { /* borrowed for the call */
    struct action_id id;
    const struct action_from *from;
    const struct action *action;
    struct str lane; /* absent: the action's chat_id */
    struct str what; /* what makes two of them the same one; absent: it may well be done twice */
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

/* A number of its own, which it keeps over restarts, and no other sender's has. */
uint64_t sender_key(const struct outgoing *o);

/* When the part under way may have left first; wall clock. */
static inline int64_t outgoing_tried_ms(const struct outgoing *o)
{
    return o->tried_ms;
}

/* Does it still wait, with no request of it written yet (or none that was acted upon)? */
bool outgoing_waits(const struct outgoing *o);
/* @o says something newer now: whoever waited for the old is told that it is done, @q is answered
 * in its stead.  Only while outgoing_waits(). */
void sender_supersede(struct outgoing *o, const struct sender_order *q);

/* The platform counts what it just answered to @o against the bot: whoever asked for it is held
 * back when that happens too often (blame.h). */
void sender_blame(const struct outgoing *o);

/* Nothing of this bot leaves for this long. */
void sender_pause(struct sender *s, int64_t for_ms);
/* What was held is written now; @why not NULL: it fails with that, as SENDER_FAILED. */
void sender_resume(struct sender *s, const char *why);

/* Would these words make the gateway's side do something else than a refusal means?  It resends
 * after "network", and gives up quietly after "timed out".  A refusal that says such a thing is
 * told without it. */
bool sender_is_loaded(const char *text);

struct sender_stats {
    uint64_t requests;               /* made, in all */
    uint64_t done, refused, unknown; /* actions; without typing, signs and questions */
    uint64_t queued;                 /* of them: told so, because it took longer */
    uint64_t expired;                /* given up because of their age */
    uint64_t revived;                /* of an earlier process, and gone on with */
    size_t waiting, running;
    size_t kept_unknown; /* an operator may look at them */
    size_t cut_off;      /* found at start */
    int64_t oldest_ms;   /* the age of what has waited longest; 0: nothing does */
};
void sender_stats(const struct sender *s, struct sender_stats *ret);

/* ---- what waits: for gateways that were told "queued", and for operators ---- */

enum sender_named {
    SENDER_NAMED_NONE,  /* no such thing, or it failed */
    SENDER_NAMED_WAITS, /* it is not there yet */
    SENDER_NAMED_SENT,  /* it is there */
};
/* What became of "queued:<number>"?  @ret_id gets the message's own id when it is there. */
enum sender_named sender_named(struct sender *s, struct str name, char ret_id[128]);
/* Once that is there, it is to have the text of @a, an edit of it; answers @id. */
void sender_edit_later(struct sender *s, struct action_id id, const struct action *a);

struct outgoing_view { /* borrowed for the call */
    struct outgoing_entry e;
    int64_t next_ms; /* wall clock: not before; 0: as soon as it can */
};
typedef void sender_view_cb(void *ctx, const struct outgoing_view *v);
/* All that waits, is tried, or ended without a known end.  @number 0: of all, else of that one. */
void sender_each(struct sender *s, uint64_t number, sender_view_cb *cb, void *ctx);
/* BH_REFUSED: there is no such thing; BH_BUSY: its request is under way, and cannot be called back.
 * What waits is tried at once; what is unknown is done again. */
enum bh_err sender_retry(struct sender *s, uint64_t number) BH_MUST_USE;
enum bh_err sender_drop(struct sender *s, uint64_t number) BH_MUST_USE;

/* The instance is no more (absent: the tenant), or a person whose chat is @chat is to be forgotten:
 * what waits of it goes, and nobody is told. */
void sender_forget(struct sender *s, struct str tenant, struct str instance);
void sender_forget_chat(struct sender *s, struct str chat);
/* Does the outbox still need what @number names (a file)? */
bool sender_holds(const struct sender *s, uint64_t number);
