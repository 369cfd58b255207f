/* mime.h - reads a mail: who wrote it, its thread, its text and its files.  GMime parses.
 *
 *      struct mail m = {0};
 *      mail_read(&m, bytes, &rules);      on a thread: GMime may take long for a hostile mail
 *      ... m.refused, m.is_bounce, or m.from, m.text, m.files ...
 *      mail_done(&m);
 *
 * Every text is valid UTF-8 without control characters.  Message ids keep their angle brackets and
 * are no longer than MAIL_MAX_ID. */
#pragma once
#include "base/buf.h"
#include "core/event.h"
#include "platform/email/auth.h"

#define MAIL_MAX_BYTES ((size_t)36 << 20) /* a file of 25 MiB in base64, and some text */
#define MAIL_MAX_ID 250
#define MAIL_MAX_ADDRESS 254

struct mail_rules {        /* borrowed for the call */
    struct str bot;        /* its address, in lower case */
    const struct str *own; /* other addresses of ours, in lower case */
    size_t n_own;
    struct str authserv_id;
    const struct auth_list *suffixes;
    bool allow_lists;
};

struct mail_file {
    char *name, *type; /* owned; the name may be empty */
    struct buf bytes;  /* owned */
};

struct mail { /* zeroed before mail_read(); the texts are owned and may be NULL */
    /* Why no agent gets it: a literal sentence.  NULL: it is for an agent, or a bounce. */
    const char *refused;
    bool is_bounce;    /* a report that a mail of ours was not delivered */
    bool is_first;     /* it refers to no earlier mail */
    char *from, *name; /* the address in lower case, and a name to show */
    char *subject, *message_id, *in_reply_to;
    char *root; /* the first mail of its thread; NULL: it has no usable message id */
    char *text;
    char *whole;     /* the text with the mails that it quotes; NULL: as @text */
    int64_t date_ms; /* of its Date header; 0: none */
    struct mail_file files[EVENT_MAX_MEDIA];
    size_t n_files, n_dropped; /* dropped: files beyond EVENT_MAX_MEDIA, or empty ones */
    /* of a bounce */
    char *bounced_id; /* the Message-ID of the mail that was not delivered */
    char *bounced_why;
};

/* Needs mail_late_load(). */
void mail_read(struct mail *m, struct str bytes, const struct mail_rules *rules);
void mail_done(struct mail *m);
/* The event of @m, whose texts it borrows, without bot, event id and files.  A refused mail has one
 * too, for `bellhop why`. */
void mail_event(const struct mail *m, struct event *ret);

/* Is it an address that a mail can be sent to?  Without spaces, quotes and control characters. */
bool mail_is_address(struct str s);
bool mail_is_id(struct str s); /* "<...@...>" without white space, MAIL_MAX_ID bytes at most */
