/* change.h - how facts change: one after the other, disk first, memory second.
 *
 * A change is worked out from memory only when the change of the same subject before it is on disk,
 * so two of them can never overwrite each other's half.  Until its own write is done nobody sees
 * it.
 *
 *      asked -> WAITING -> (first of its subject) prepare -> store -> apply -> announce -> done()
 *
 * Those who wait hang in the queue of the subject they wait for, so a change that ends touches the
 * one behind it and nobody else.
 *
 * Only files of this folder include it.
 */
#pragma once
#include "store/store.h"
#include "tenancy/facts_priv.h"

struct change;
/* Put the items to write, from memory; false: change_fail() said why not.  No items: nothing to
 * write, and nothing is applied. */
typedef bool prepare_f(struct facts *f, struct change *c);
typedef void apply_f(struct facts *f, struct change *c);

struct change_item {
    enum store_kv_verb verb;
    const char *ns;
    struct buf key, value; /* owned */
};

struct subject; /* change.c */
struct change {
    struct list link;        /* facts->changes */
    struct list queued;      /* of the subject it waits for */
    struct facts *facts;     /* borrowed */
    struct subject *subject; /* its own; shared with those that wait for it */
    struct subject **held; /* owned array: subjects of others that it holds while it is under way */
    size_t n_held;
    /* Asked before it starts, while it has its subject: another subject that must be free, or NULL:
     * nothing is in the way.  Absent: nothing else counts. */
    struct subject *(*waits_for)(const struct facts *f, const struct change *c);
    prepare_f *prepare;
    apply_f *apply;
    /* gateway_change.c: what was asked for; strings owned */
    char *id, *wake_url;
    char *secret; /* wiped */
    int64_t keep_ms;
    bool ackless;
    struct gateway *gateway; /* owned: as it will be */
    struct route *route;     /* owned: to be added or the likeness of the one to go */
    /* grants.c, links.c */
    struct instance_facts *to; /* borrowed: whose grant */
    void *thing;               /* owned: what they please */
    void (*thing_free)(void *thing);
    /* the write */
    struct change_item *items; /* owned */
    size_t n, cap;
    const char *conflict; /* what a conflict means, in words; NULL: "it exists already" */
    /* the answer */
    enum bh_err err;
    char why[200];
    facts_done_cb *done;
    void *ctx;
};

struct change *change_new(struct facts *f, prepare_f *prepare, apply_f *apply, facts_done_cb *done,
                          void *ctx);
bool change_fail(struct change *c, enum bh_err err, const char *fmt, ...) BH_PRINTF(3, 4);
/* One more record of the transaction: written or deleted as @verb says. */
void change_put(struct change *c, enum store_kv_verb verb, const struct record_form *form,
                const void *thing);
/* While it is under way no change of @subject starts.  From prepare() only, and only a free one. */
void change_hold(struct change *c, const char *subject);
/* The subject of this name when a change of it is under way; NULL: it is free. */
struct subject *change_busy(const struct facts *f, const char *subject);
/* Line up; a change that has failed already only answers.  @subject is copied; NULL: none, it waits
 * for nobody. */
void change_submit(struct change *c, const char *subject);
/* Tell the others: "what" or "what id". */
void change_announce(struct facts *f, const char *what, const char *id);

/* ---- gateway_change.c, for enroll.c too ---- */
void gateway_put(struct change *c, enum store_kv_verb verb, const struct gateway *g);
void route_put(struct change *c, enum store_kv_verb verb, const struct route *r);
/* A new secret, also appended to @ret_secret; the caller owns it. */
char *gateway_new_secret(struct facts *f, struct buf *ret_secret);
/* Write the record as it is in memory: something about it was learned. */
void gateway_note(struct facts *f, struct str id);
bool gateway_wake_url_ok(struct str url);
apply_f gateway_apply; /* c->gateway becomes the record, c->route is linked */

/* True, and the change has failed, unless the name is acceptable (or absent and not required). */
bool change_name_bad(struct change *c, const char *what, struct str name, bool required);
