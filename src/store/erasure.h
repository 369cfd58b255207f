/* erasure.h - deletes everything kept about one tenant or one person.
 *
 *      erasure_start()
 *         `--> eraser: its records, 128 KiB at a time --> its verb: memory, a store of its own
 *                 `--> the next eraser ... --> done(): the counts
 *
 * Each module that keeps data about tenants or people provides an eraser.  The engine here runs the
 * erasers one after the other and adds up their counts.  http/erase_route.c lists the erasers and
 * starts an erasure.
 *
 * The engine finds records by reading whole namespaces: an erasure is rare, so no index by person
 * exists.  A dry erasure counts and deletes nothing.  An erasure is idempotent.  When the server
 * closes during one, the erasure is freed with the store, and the operator runs it again.
 */
#pragma once
#include "base/json.h"
#include "base/jw.h"

struct erasure;
struct store;

/* True when the record is about the subject.  Unless the erasure is dry, the callback may delete
 * related data by a call to its module. */
typedef bool erase_match(void *ctx, struct erasure *e, struct str key, struct json doc);

struct erase_records { /* a namespace to read */
    const char *ns;
    const char *word; /* the name of the count; NULL: not counted */
    erase_match *is;
    bool keep;          /* the engine does not delete the matching records */
    bool only_for_real; /* a dry erasure skips this namespace */
};

struct eraser { /* a module's part of an erasure; ctx is the module */
    const struct erase_records *of_tenant, *of_person; /* end with a NULL ns; NULL: none */
    /* Run after the records.  Each deletes (counts, when dry) the module's other data, then calls
     * erasure_next() or erasure_fail(), now or later.  NULL: nothing to do. */
    void (*tenant)(void *ctx, struct erasure *e);
    void (*person)(void *ctx, struct erasure *e);
};
struct erase_with {
    const struct eraser *eraser;
    void *ctx; /* borrowed until done() */
};

struct erase_subject {         /* copied */
    struct str tenant;         /* absent: a person */
    struct str platform, user; /* of the person */
    bool dry;
};

/* @failed: why it failed, a sentence; NULL: success.  @e is freed after the call. */
typedef void erasure_done_cb(void *ctx, struct erasure *e, const char *failed);
#define ERASERS_MAX 32 /* of one erasure */
/* @with is copied.  @done runs once, later, unless the store closes first.  Takes ownership of
 * @ctx, which is on the heap and freed with the erasure. */
void erasure_start(struct store *store, const struct erase_subject *subject,
                   const struct erase_with *with, size_t n, erasure_done_cb *done, void *ctx);
/* Members {"dryRun", and each word with its count}. */
void erasure_write(const struct erasure *e, struct jw *w);

/* ---- for erasers ---- */
const struct erase_subject *erasure_subject(const struct erasure *e);
void erasure_count(struct erasure *e, const char *word, uint64_t n); /* adds */
void erasure_next(struct erasure *e);
void erasure_fail(struct erasure *e, const char *why);
void *erasure_ctx(const struct erasure *e); /* of the eraser that runs now */
/* A queue for the eraser that runs now: names it works through, one async call each. */
void erasure_put(struct erasure *e, struct str name);
bool erasure_take(struct erasure *e, struct str *ret_name); /* false: the queue is empty */

/* The chats of the tenant, or private chats of the person.  The relay's eraser reports them, an
 * adapter's eraser more of a person; the platforms' erasers read them.  The tenant does
 * not own a chat that another tenant uses too. */
void erasure_chat(struct erasure *e, struct str bot, struct str chat, bool of_tenant);
bool erasure_owns_chat(const struct erasure *e, struct str bot, struct str chat);
typedef void erasure_chat_cb(void *ctx, struct str bot, struct str chat);
void erasure_own_chats(const struct erasure *e, erasure_chat_cb *cb, void *ctx);

/* Match records whose key begins with the tenant, and records whose value has it as "tenant". */
erase_match erase_by_key, erase_by_value;
struct str erase_part(struct str *key); /* removes the first part from a key and returns it */
