/* sender.h - the one way out: what one bot says and asks, on its way to its platform.
 *
 * Whoever speaks to a platform over HTTP needs the same around its requests, and it is here, once:
 * a lane per chat, things of several parts at one place in their lane, the record on disk before
 * anything leaves (outgoing_log.h), waiting out what only time can mend, the action's deadline, and
 * the words the gateway's side acts on.  The adapter says what a request looks like (write) and
 * what an answer means (read).
 *
 *      sender_act() --> lane --its turn, its record on disk--> write() --> request --> read()
 *                        ^                                       |                       |
 *                        '---- AGAIN: its old place, later <-----+-----------------------+
 *                              DONE: write() the next part <-----------------------------+
 *        host_result() <------ DONE with its last part, REFUSED, FAILED, UNKNOWN <-------'
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

#define SENDER_MAX_PARTS 16 /* of one action; longer is refused whole */

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
    struct timer early;     /* armed: it fails before it began */
    struct http_call *call; /* owned; NULL: none under way */
    struct action_id id;
    struct action_from from; /* owned, in one block */
    enum action_op op;
    unsigned rewrites;    /* of this part */
    uint8_t early_end;    /* enum sender_end */
    bool is_action;       /* somebody waits for its result; else: told() */
    bool queued, started; /* in a lane; its turn has come */
    bool once;            /* of the request under way */
    bool maybe;           /* a try of this part may have been acted upon */
    bool cancelled;
    char first_id[128]; /* of its first part, once that is there */
    char why[256];      /* what the last try met */
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
    int64_t wait_ms;                 /* SENDER_AGAIN; 0: a little longer every time */
    char message_id[128];            /* SENDER_DONE; of this part; empty: it has none */
    char thread_id[32];              /* SENDER_DONE, for thread_create */
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
};

/* Reads what an earlier process left and reports it with host_cut_off(): blocks, for start-up.  @p
 * and @ops are borrowed; @label is how people call the platform ("Discord"). */
enum bh_err sender_new(struct platform *p, const char *label, const struct sender_ops *ops,
                       struct sender **ret_s, char *ret_why) BH_MUST_USE;
/* What is under way is cut off; whoever asked for something is told, and the records stay, so that
 * whoever misses that is told after the next start.  NULL is fine. */
void sender_free(struct sender *s);

struct sender_order { /* borrowed for the call */
    struct action_id id;
    const struct action_from *from;
    const struct action *action;
    struct str lane; /* absent: the action's chat_id */
    struct str what; /* what makes two of them the same one; absent: it may well be done twice */
};
/* Answers through host_result() exactly once, unless it is cancelled. */
void sender_act(struct sender *s, struct outgoing *o, const struct sender_order *q);
/* The same for a question of the adapter's own. */
void sender_ask(struct sender *s, struct outgoing *o, struct str lane, int64_t patience_ms);
/* Nobody wants to know how it ends.  What waits never leaves; what is under way goes on.  NULL
 * inside is fine; sets it to NULL. */
void sender_cancel(struct outgoing **o);

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
    uint64_t done, refused, unknown; /* actions; without typing and get_chat_info */
    size_t waiting, running;
    size_t cut_off; /* found at start */
};
void sender_stats(const struct sender *s, struct sender_stats *ret);
