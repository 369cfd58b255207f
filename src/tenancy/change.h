/* change.h - runs the changes of the facts: serialized per subject, disk first, memory second.
 *
 *      change_submit() -> queue of the subject -> prepare() -> store -> apply() -> done()
 *                                                     '-- of a caller: reads the records as they
 *                                                         are; the audit log is in the same write
 *
 * A subject is a name, such as a gateway's id.  At most one change of a subject is under way.
 * prepare() reads memory only after the previous change of the subject ended, so two changes
 * never overwrite each other.  A change is visible in memory only once its write is on disk.
 *
 * Each subject has its own queue, so a finished change starts only the next change of its subject.
 *
 * Only files of this folder include this header.  A change owns the items it writes, and is freed
 * after done().
 */
#pragma once
#include "store/store.h"
#include "tenancy/audit.h"
#include "tenancy/facts_priv.h"

struct change;
/* Adds the items to write with change_put().  False: the change has failed, see change_fail().
 * Without items the change ends as a success; nothing is written or applied. */
typedef bool prepare_f(struct facts *f, struct change *c);
/* The items are on disk: changes memory and announces the change. */
typedef void apply_f(struct facts *f, struct change *c);

struct change_item {
    enum store_kv_verb verb;
    const struct record_form *form;
    struct buf key, value; /* owned */
};

struct subject; /* change.c */
struct change {
    struct list link;        /* facts->changes */
    struct list queued;      /* the queue of the subject it waits for */
    struct facts *facts;     /* borrowed */
    struct subject *subject; /* the subject it changes; shared with the changes that wait for it */
    struct subject **held;   /* owned array: further subjects locked by change_hold() */
    size_t n_held;
    /* Called before prepare(), when the change holds its subject.  Returns another subject that
     * must be free first, or NULL.  May be NULL. */
    struct subject *(*waits_for)(const struct facts *f, const struct change *c);
    prepare_f *prepare;
    apply_f *apply;
    /* gateway_change.c: the caller's arguments; strings owned */
    char *id, *wake_url;
    char *secret; /* wiped */
    int64_t keep_ms;
    struct gateway *gateway; /* owned: the record as it will be */
    struct route **routes;   /* owned: the routes to add, or copies of those to remove */
    size_t n_routes;
    /* grants.c, links.c */
    struct instance_facts *to; /* borrowed: the instance the grant belongs to */
    void *thing;               /* owned: data of the caller */
    void (*thing_free)(void *thing);
    char *tenant; /* pairing.c: owned; whose bot it concerns; NULL: nobody's alone */
    /* the write */
    struct change_item *items; /* owned */
    size_t n, cap;
    struct audit_who who;         /* whose change it is */
    struct change_before *before; /* owned; the records as they are, for the audit log */
    size_t n_before, n_reading;
    struct audit_ticket *ticket; /* the entry of the log; NULL: none */
    const char *conflict;        /* the sentence for BH_CONFLICT; NULL: "it exists already" */
    /* the answer */
    enum bh_err err;
    char why[200];
    facts_done_cb *done;
    void *ctx;
};

struct change *change_new(struct facts *f, prepare_f *prepare, apply_f *apply, facts_done_cb *done,
                          void *ctx);
/* Sets the error and its sentence.  Always returns false. */
bool change_fail(struct change *c, enum bh_err err, const char *fmt, ...) BH_PRINTF(3, 4);
/* Adds one record to the transaction: written or deleted as @verb says. */
void change_put(struct change *c, enum store_kv_verb verb, const struct record_form *form,
                const void *thing);
/* Locks a further @subject until the change ends.  Call it from prepare() only; @subject must be
 * free. */
void change_hold(struct change *c, const char *subject);
/* The subject of this name while a change holds it; NULL: it is free. */
struct subject *change_busy(const struct facts *f, const char *subject);
/* Enqueues the change behind the others of @subject, which is copied.  NULL: no subject, it waits
 * for no other change.  A change that has failed already only calls done() when its turn comes. */
void change_submit(struct change *c, const char *subject);
/* Tells the observers ("facts") @what, followed by a space and @id unless @id is NULL. */
void change_announce(struct facts *f, const char *what, const char *id);

/* ---- gateway_change.c, for enroll.c too ---- */
void gateway_put(struct change *c, enum store_kv_verb verb, const struct gateway *g);
void route_put(struct change *c, enum store_kv_verb verb, const struct route *r);
/* Makes a random secret and appends it to @ret_secret too; the caller owns the result. */
char *gateway_new_secret(struct facts *f, struct buf *ret_secret);
/* Writes the record as it is in memory, after a field changed there first.  Fire and forget. */
void gateway_note(struct facts *f, struct str id);
bool gateway_wake_url_ok(struct str url);
apply_f gateway_apply; /* c->gateway becomes the record, c->routes are linked */

/* Fails the change and returns true unless the name is valid, or absent and not required. */
bool change_name_bad(struct change *c, const char *what, struct str name, bool required);
