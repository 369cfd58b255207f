/* audit.h - the log of every change of facts: who, what, from where, before and after.
 *
 *      audit_as(a, &who)             the caller of the operation that runs now
 *      change.c: audit_add()         the entry is written in the transaction of the change
 *      others:   audit_note()        in a transaction of its own, right behind
 *
 * Entries are numbered 1, 2, 3... and chained: the hash of an entry covers the hash before it, its
 * number and the digest of its text.  An entry that is changed, removed or inserted breaks the
 * chain, and audit_verify() says where.  The hash of the newest entry, kept elsewhere, proves that
 * the whole log was not rewritten.
 *
 * Erasing a person removes the text of entries that name the person and leaves their digests, so
 * the chain stays whole and shows the gap.
 *
 * The log is bounded by age and by bytes.  A cut deletes the oldest entries in one transaction with
 * a new anchor (number and hash of the newest entry that is gone) and with an entry that says so.
 * The oldest entry that is left must stand on the anchor.  One tenant's own changes may fill a
 * quarter of the bytes in a day; audit_has_room() refuses more, so that nobody can push out the
 * entries of others within minutes.
 *
 * Secrets are never in an entry: a field that the store seals is written as "redacted".  Changes
 * that change nothing are not logged.  A change without a caller, such as a note that a secret was
 * used, is bellhop's own and is not logged either.
 */
#pragma once
#include "base/jw.h"
#include "store/erasure.h"
#include "store/store.h"

struct audit;
struct clock;
struct record_form;

enum audit_kind {
    AUDIT_NOBODY,   /* bellhop itself: not logged */
    AUDIT_OPERATOR, /* over the admin socket */
    AUDIT_ADMIN,    /* with the admin token, or on the dashboard */
    AUDIT_GATEWAY,  /* an instance, at /manage */
    AUDIT_KEY,      /* a program, with a key */
    AUDIT_PERSON,   /* in a chat: /link */
    AUDIT_ENROLL,   /* a gateway that enrolls or provisions itself */
};
struct audit_who { /* small enough to copy; texts are cut */
    enum audit_kind kind;
    const char *what; /* a literal: the operation */
    char id[160];     /* the gateway, the key, the person as platform:user; "": the kind says all */
    char from[64];    /* an address; "admin.sock"; "": the chat */
    uint64_t serial;  /* set by audit_as() */
};
struct audit_who audit_who_of(enum audit_kind kind, const char *what, struct str id,
                              struct str from);

struct audit_settings { /* `audit:` in the configuration, owned by it */
    int64_t keep_ms;    /* 0: for ever */
    uint64_t max_bytes; /* 0: no bound */
};
extern const struct config_section audit_config;

/* Loads both ends of the log, and blocks meanwhile.  @settings is borrowed, and read again at every
 * use. */
enum bh_err audit_open(struct clock *clock, struct store *store,
                       const struct audit_settings *settings, struct audit **ret,
                       char *ret_why) BH_MUST_USE;
/* The store must be closed.  NULL is fine. */
void audit_free(struct audit *a);

/* The caller whose changes follow, until the next call.  NULL: bellhop itself.  @a NULL is fine. */
void audit_as(struct audit *a, const struct audit_who *who);
const struct audit_who *audit_current(const struct audit *a);
/* The change of this caller writes an entry of its own. */
void audit_began(struct audit *a);
bool audit_has_begun(const struct audit *a, const struct audit_who *who);

/* ---- an entry in the transaction of its change ---- */

#define AUDIT_ITEMS 2
#define AUDIT_TEXT ((size_t)48 << 10) /* of an entry; what does not fit is left out and counted */
struct audit_ticket;                  /* an entry on its way to disk */
/* Begins the text of an entry: {at, who, ...; the caller adds members and ends the object. */
struct jw audit_begin(struct audit *a, const struct audit_who *who, struct buf *out);
/* Copies a record's JSON without its secrets.  An absent @value is null. */
void audit_write_value(struct audit *a, struct jw *w, const char *key,
                       const struct record_form *form, struct str value);
/* False: @tenant has filled its part of the log today.  Counts @bytes otherwise.  For changes
 * that a tenant makes itself; an absent tenant always has room. */
bool audit_has_room(struct audit *a, struct str tenant, size_t bytes);
/* Numbers and chains the entry.  @ret are the records to write, borrowed until audit_end(). */
struct audit_ticket *audit_add(struct audit *a, struct str entry, struct store_kv ret[AUDIT_ITEMS]);
/* How the transaction ended.  After BH_UNKNOWN the entry is written again, as it is. */
void audit_end(struct audit *a, struct audit_ticket *t, enum bh_err err);

/* An entry of its own: @more has members for the entry, as `"key":value,...`; may be empty. */
void audit_note(struct audit *a, const struct audit_who *who, struct str more);

/* ---- reading ---- */

struct audit_filter { /* 0, empty: anything */
    int64_t since_ms, until_ms;
    struct str tenant;
    uint64_t before; /* entries below this number; 0: the newest */
    size_t limit;
};
/* Writes {"entries": [...], "next"?} to @w, then runs @done.  @filter is copied. */
typedef void audit_done_cb(void *ctx, enum bh_err err);
void audit_list(struct audit *a, const struct audit_filter *filter, struct buf *out,
                audit_done_cb *done, void *ctx);
/* Reads the whole log, a page per turn.  @expect, "NUMBER:HASH" as an earlier run printed it, must
 * be in the log; absent: nothing is expected.  Writes {"ok", "entries", "first", "head",
 * "redacted", "cut"?, "problem"?}. */
void audit_verify(struct audit *a, struct str expect, struct buf *out, audit_done_cb *done,
                  void *ctx);

extern const struct record_form audit_form, audit_head_form;
extern const struct eraser
    audit_eraser; /* ctx is the audit; tenants stay: their changes are ours */
