/* imap.h - one connection to an IMAP folder: lists, fetches and flags mails, and waits for news.
 *
 *      CONNECTING --libcurl logged in--> GREETING --CAPABILITY, ID, SELECT--> READY <--> RESTING
 *         any state --lost, refused, silent--> on_closed(), once; then imap_free()
 *
 * In RESTING the server reports news by itself (IDLE, RFC 2177).  After poll_ms the connection
 * reports news anyway: a server may forget to, and a connection may have died.  Servers without
 * IDLE are only polled.  The next call ends RESTING.
 *
 * inbound.c owns it.  Mails are named by UID only.  Nothing here marks a mail as read but
 * imap_seen().  No handler runs inside a call. */
#pragma once
#include "net/mail.h"
#include "platform/email/imap_codec.h"

struct clock;
struct loop;

struct imap_folder {
    uint32_t uidvalidity;
    uint32_t uidnext; /* 0: not told */
    uint32_t exists;
};

/* Why imap_fetch() brought no bytes. */
enum imap_missing {
    IMAP_GONE,     /* the mail is not in the folder any more */
    IMAP_TOO_LONG, /* it is longer than max_body */
    IMAP_WITHHELD, /* the server refused, or answered without the mail: it may give it later */
};

struct imap_handlers {
    void (*on_selected)(void *ctx, const struct imap_folder *f);
    void (*on_item)(void *ctx, uint32_t uid, uint64_t size, int64_t date_ms); /* of a listing */
    void (*on_listed)(void *ctx);
    /* The answer to imap_fetch().  The handler may take the bytes of @body away.  Without a body,
     * @why tells the reason. */
    void (*on_mail)(void *ctx, uint32_t uid, struct buf *body, enum imap_missing why);
    void (*on_news)(void *ctx); /* in RESTING: list again */
    /* @denied: the server refused the login. */
    void (*on_closed)(void *ctx, const char *why, bool denied);
};

struct imap_options {
    struct mail_login login;
    const char *folder; /* as the server spells it */
    int64_t poll_ms;    /* with IDLE five times as long; under five minutes, so that both stay under
                      * the 29 minutes after which a server may hang up */
    size_t max_body;
};

/* @opt is copied, but for texts, which are borrowed for the call. */
struct imap *imap_open(struct loop *loop, const struct imap_options *opt,
                       const struct imap_handlers *h, void *ctx);
void imap_free(struct imap *i); /* at once, silently; NULL is fine */

/* Lists the UIDs from @from to @to (0: to the last).  The server may add the last mail, whatever
 * its UID. */
void imap_list(struct imap *i, uint32_t from, uint32_t to);
void imap_fetch(struct imap *i, uint32_t uid);
void imap_seen(struct imap *i, uint32_t uid);
void imap_rest(struct imap *i);
bool imap_is_idle(const struct imap *i); /* the server reports news by itself */
