/* erasure.h - deleting what is kept of one tenant or of one person.
 *
 * Each module that keeps something about tenants or people provides an eraser.  The engine here
 * runs the erasers one after the other and adds up what they delete:
 *
 *      erasure_start()
 *         `--> eraser: its records, 128 KiB at a time --> its verb: memory, a store of its own
 *                 `--> the next eraser ... --> done(): the counts
 *
 * http/erase_route.c lists the erasers and asks for an erasure.  Records are found by reading all
 * of a namespace: no index is kept by person, and an erasure happens a few times a year.  A dry
 * erasure counts and deletes nothing.  Everything may be done twice: an erasure that the closing
 * server interrupts is freed with the store, and whoever asked asks again.
 */
#pragma once
#include "base/json.h"
#include "base/jw.h"

struct erasure;
struct store;

/* Is the record about the tenant or the person?  What else has to happen to it happens here, unless
 * the erasure is dry. */
typedef bool erase_match(void *ctx, struct erasure *e, struct str key, struct json doc);

struct erase_records { /* a namespace to look through */
    const char *ns;
    const char *word; /* counted as this; NULL: not counted */
    erase_match *is;
    bool keep;          /* the records are not deleted from here */
    bool only_for_real; /* a dry erasure leaves it out */
};

struct eraser { /* what a module does when a tenant or a person is erased; ctx is the module */
    const struct erase_records *of_tenant, *of_person; /* end with a NULL ns; NULL: none */
    /* After the records: deletes (counts, when dry) what else there is, then erasure_next() or
     * erasure_fail(), now or later.  NULL: nothing. */
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

/* @failed: a sentence, NULL: it is done.  @e is gone after the call. */
typedef void erasure_done_cb(void *ctx, struct erasure *e, const char *failed);
/* @with is copied.  @done runs once, later; not when the store closes before.  @ctx is on the heap
 * and freed with the erasure. */
void erasure_start(struct store *store, const struct erase_subject *subject,
                   const struct erase_with *with, size_t n, erasure_done_cb *done, void *ctx);
/* Members {"dryRun", and each word with its count}. */
void erasure_write(const struct erasure *e, struct jw *w);

/* ---- for erasers ---- */
const struct erase_subject *erasure_subject(const struct erasure *e);
void erasure_count(struct erasure *e, const char *word, uint64_t n); /* adds */
void erasure_next(struct erasure *e);
void erasure_fail(struct erasure *e, const char *why);
void *erasure_ctx(const struct erasure *e); /* of the eraser at work */
/* A list for the eraser at work: names to go through one call after the other. */
void erasure_put(struct erasure *e, struct str name);
bool erasure_take(struct erasure *e, struct str *ret_name); /* false: that was all */

/* The chats of the tenant: the relay's eraser tells them, those of platforms ask.  A chat that
 * other tenants know too is not the tenant's own. */
void erasure_chat(struct erasure *e, struct str bot, struct str chat, bool of_tenant);
bool erasure_owns_chat(const struct erasure *e, struct str bot, struct str chat);
typedef void erasure_chat_cb(void *ctx, struct str bot, struct str chat);
void erasure_own_chats(const struct erasure *e, erasure_chat_cb *cb, void *ctx);

/* Matches of records whose key begins with the tenant, and whose value has "tenant". */
erase_match erase_by_key, erase_by_value;
struct str erase_part(struct str *key); /* takes the first part off a key */
