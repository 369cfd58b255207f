/* job.h - one read or write of the store under way for a chat; for the files of this folder.
 *
 * Reads that a visitor asks for (its history, what its page missed) run one at a time per chat and
 * the others wait; too many are refused.  A read is bounded, and one that nobody waits for any more
 * is called off.
 *
 *      WAITING --the one before it is over--> SUBMITTED --done--> freed, or the next page of it
 *         '------called off--> freed              '-----called off--> done() without a result
 */
#pragma once
#include "platform/web/web_priv.h"
#include "store/store.h"

#define WEB_READ_BYTES ((size_t)256 << 10) /* of records, at a time */

typedef void web_job_f(struct web_job *j, enum bh_err err);

struct web_job {
    union {
        struct store_op op; /* first in both */
        struct store_scan scan;
        struct store_tx tx;
    };
    struct store_left left; /* the bot was closed meanwhile */
    struct list link;       /* web->jobs */
    struct list wait_link;  /* WAITING: on its chat */
    struct store *store;    /* borrowed */
    struct web *web;        /* borrowed; NULL: the bot was closed meanwhile */
    struct web_chat *chat;  /* borrowed, pinned by its n_jobs */
    web_job_f *done;        /* must not free the job */
    bool next_page;         /* set by done(): go on behind the last record */
    struct buf key, once, value, text;
    struct store_kv *items;  /* owned */
    const char *event;       /* what the pages are told */
    uint64_t id, rev;        /* of the message; catching up: everything up to rev is in the scan */
    struct http_id http;     /* who asked, when it was a request */
    struct action_id action; /* who asked, when it was an action */
    struct prompt *prompt;   /* borrowed; whose choice is kept */
    struct web_stream *stream; /* catching up; NULL: it has gone */
    uint64_t last;             /* catching up: what the page has seen */
    size_t limit;              /* history answer: messages asked for */
};

struct web_job *web_job_new(struct web *w, struct web_chat *c, web_job_f *done);

/* "<bot> 1f <chat> 1f <tail>", or with the id as the tail. */
void web_key_write(struct buf *out, const struct web_chat *c, struct str tail);
void web_key_write_id(struct buf *out, const struct web_chat *c, uint64_t id);

/* Records of @ns whose key starts with j->key.  The rest of j->scan is set before the call. */
void web_job_scan(struct web_job *j, const char *ns);
/* The first @n of j->items; the rest of j->tx is set before the call. */
void web_job_tx(struct web_job *j, size_t n, bool urgent);

/* The same as web_job_scan() in namespace "web", but one at a time for a chat.  False: too many
 * wait already; the job is freed. */
bool web_job_read(struct web_job *j);
void web_job_call_off(struct web_job *j); /* a read: what it would bring is not wanted */
