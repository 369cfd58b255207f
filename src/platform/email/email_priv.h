/* email_priv.h - struct email, one bot, and the calls between the files of the mail platform.
 *
 *      email.c       settings, open, close, check, status
 *      inbound.c     the folder: lists, fetches, judges and delivers mails; progress on disk
 *      files.c       attachments of mails that were delivered
 *      outbound.c    writes mails and reads the replies of the SMTP server
 *      records.c     the records: progress, and the mails of both directions
 *      oauth.c       access tokens
 *      imap.h        one connection to the folder; imap_codec.h reads its bytes
 *      mime.h        a mail -> who, thread, text, files; auth.h proves who, text.h has the words
 *      compose.h     an agent's Markdown -> a mail
 *      mail_late.h   GMime and libpsl, loaded late */
#pragma once
#include "net/work.h"
#include "platform/email/email.h"
#include "platform/email/imap.h"
#include "platform/email/mime.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "store/record.h"
#include "store/store.h"

struct email;

/* ---- records.c ---- */

/* How far the folder was read: all mails up to @uid are done with. */
struct email_cursor {
    struct str bot, folder; /* the key */
    uint64_t uidvalidity, uid;
    int64_t since_ms; /* INTERNALDATE of the newest mail at the first start; older mail stays */
    int64_t last_ms;  /* the newest INTERNALDATE that was done with */
    bool anew;        /* UIDVALIDITY has changed, and the folder is being compared */
};
#define EMAIL_KEPT_MS (180 * 86400000ll) /* how long records of mails are kept */

/* A mail that an agent got or wrote, so that it is taken once; or a thread, for its answers. */
enum email_kind { EMAIL_MAIL, EMAIL_THREAD };
struct email_mail {
    struct str bot, hash;  /* the key: email_mail_hash() */
    struct str chat, root; /* the correspondent; the thread's first Message-ID */
    struct str subject;    /* of a thread */
    struct str last;       /* of a thread: the newest Message-ID of the correspondent */
    int64_t at_ms;
    bool taken;                           /* an agent got it: it is never taken again */
    struct str tenant, instance, request; /* of the agent that sent it; absent: it came in */
    uint64_t number;                      /* of its action; 0: it came in */
};
extern const struct record_form email_cursor_form, email_mail_form, email_token_form;
extern const struct record_form *const email_records[];
extern const struct eraser email_eraser;

/* The hash in the key: of the mail @id, or of the thread whose first mail is @id. */
#define EMAIL_HASH_CHARS 32
void email_mail_hash(const struct email *e, char ret[EMAIL_HASH_CHARS + 1], enum email_kind kind,
                     struct str chat, struct str id);
/* Writes @m under that key.  Its members bot, hash, chat and at_ms are filled in. */
void email_mail_put(struct email *e, enum email_kind kind, struct str chat, struct str id,
                    struct email_mail m);

/* Reads that record.  @done runs later, once, with NULL if there is none; the texts are borrowed
 * for the call.  After email_look_cancel() @done does not run. */
typedef void email_looked_cb(void *ctx, const struct email_mail *m);
struct email_look;
struct email_look *email_look(struct email *e, enum email_kind kind, struct str chat, struct str id,
                              email_looked_cb *done, void *ctx) BH_MUST_USE;
void email_look_cancel(struct email_look **l); /* NULL inside is fine; sets it to NULL */
/* Reads the progress of the folder: blocks, for start-up.  False: @ret_why. */
bool email_cursor_load(struct email *e, char *ret_why);

/* ---- the bot ---- */

struct email_fetched; /* files.c */

struct email {
    struct platform base;             /* first */
    const struct email_settings *cfg; /* borrowed */
    struct work_pool *thread;         /* owned; one thread: reads and writes mails */
    struct auth_list *suffixes;       /* owned; NULL: no list is installed */
    struct str own[2];                /* the users of both servers, where they are addresses */
    char *address, *own_text[2];      /* owned; in lower case */
    struct sweep *sweep;              /* owned; old records of mails go */
    struct {                          /* inbound.c */
        struct imap *imap;            /* owned; NULL: not connected */
        bool open;                    /* the folder is selected */
        struct timer again;           /* the next attempt to connect, or to deliver */
        unsigned failures;
        unsigned busy_times; /* in a row: the relay could not take the first letter */
        struct email_cursor cursor;
        bool has_place; /* the folder was opened before */
        bool listing, overflow, reopen;
        uint32_t to;         /* end of the listing; 0: the last mail */
        uint32_t listed;     /* all mails up to here are in @letters or done with */
        uint32_t uidnext;    /* when the folder was opened */
        struct list letters; /* struct letter_in, by UID */
        size_t n_letters, n_busy, busy_bytes;
        int64_t heard_ms; /* monotonic: when the server last answered a listing */
        struct {          /* the first letter, if the server refuses to give it */
            uint32_t uid; /* 0: none */
            unsigned times;
            bool others; /* the server gave another mail meanwhile */
        } withheld;
    } in;
    bool smtp_denied;   /* the SMTP server refuses the login */
    struct list shelf;  /* struct email_fetched: mails whose files may be asked for */
    struct list wanted; /* struct wanted: files that are asked for */
    size_t n_shelf, n_wanted;
    struct {                    /* oauth.c */
        struct http_call *call; /* owned */
        struct buf token;       /* secret; the access token; empty: none */
        struct buf refresh;     /* secret; the refresh token */
        int64_t until_ms;       /* monotonic: the token is used until then */
        struct timer again;
        unsigned failures;
    } oauth;
    struct {
        uint64_t refused, known, bounced, connects;
    } n;
};
static inline struct email *email_of(struct platform *p)
{
    return container_of(p, struct email, base);
}

/* ---- email.c ---- */
void email_login(struct email *e, const struct email_server *s, bool smtp, struct mail_login *ret);
/* The Message-ID of our mail @number; and: is @id one of ours? */
void email_id_add(const struct email *e, struct buf *out, uint64_t number);
bool email_is_own_id(const struct email *e, struct str id);

/* ---- inbound.c ---- */
void email_in_open(struct email *e);
void email_in_close(struct email *e);
void email_in_connect(struct email *e); /* now, if not connected; e.g. a token has come */
void email_rules(const struct email *e, struct mail_rules *ret);
void email_well(
    struct email *e); /* clears the problem, unless logins, tokens or a letter still have one */

/* ---- files.c ---- */
void email_shelve(struct email *e, uint32_t uid, struct mail *m); /* takes the mail over */
void email_media_where(struct platform *p, struct media_ask ask, struct str ref);
bool email_files_want(struct email *e, uint32_t uid); /* a fetch of this mail was for its files */
void email_files_came(struct email *e, uint32_t uid, struct buf *body);
void email_files_connected(struct email *e); /* ask the server for what is wanted */
void email_files_anew(struct email *e);      /* UIDs mean other mails now: forget the old ones */
void email_files_close(struct email *e);

/* ---- outbound.c ---- */
extern const struct sender_ops email_sender;
void email_act(struct platform *p, struct action_id id, const struct action_from *from,
               const struct action *a);

/* ---- oauth.c ---- */
enum bh_err email_oauth_open(struct email *e, char *ret_why);
void email_oauth_close(struct email *e);
/* The access token; NULL: not now, and it is being fetched.  Not called without oauth. */
const char *email_oauth_token(struct email *e);
void email_oauth_refused(struct email *e); /* a server did not take the token */
/* Fetches a token, blocking, for the command line. */
enum bh_err email_oauth_check(const struct email_settings *cfg, struct buf *ret_token,
                              char *ret_why);
