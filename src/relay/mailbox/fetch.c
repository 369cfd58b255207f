/* fetch.c - design.  (fetch.h has the contract.)
 *
 * A read that is dropped while the store has it is disowned (inst is NULL) and freed by done(). */
#include "relay/mailbox/fetch.h"
#include <assert.h>
#include <stdlib.h>
#include "relay/mailbox/delivery.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/session/pump.h"
#include "relay/mailbox/retry.h"
#include "relay/session/session.h"
#include "store/store.h"

enum { MAX_ROWS = 4096 };

struct fetch {
    struct store_fetch op;
    struct list link;      /* fetches->all */
    struct relay *relay;   /* borrowed */
    struct instance *inst; /* borrowed; NULL: disowned */
    size_t bytes;          /* counted in fetches->bytes */
    size_t next;           /* row to be used next */
    bool ready;
    uint64_t ids[];
};

struct fetches {
    struct list all;    /* so that they can be freed */
    struct list hungry; /* instances that found no room, by hungry_link */
    uint64_t bytes;     /* read back or on their way */
};

struct fetches *fetches_new(void)
{
    struct fetches *t = xcalloc(1, sizeof *t);

    list_init(&t->all);
    list_init(&t->hungry);
    return t;
}

static void fetch_free(struct fetch *f)
{
    struct relay *r = f->relay;
    struct fetches *t = r->fetches;

    if (f->ready)
        r->store_ops->fetch_free(&f->op);
    t->bytes -= f->bytes;
    list_remove(&f->link);
    free(f);
    if (!list_is_empty(&t->hungry)) {
        struct instance *i = list_first(&t->hungry, struct instance, hungry_link);
        list_remove(&i->hungry_link);
        pump_want(i);
    }
}

static void on_fetched(struct store_op *op, enum bh_err err)
{
    struct fetch *f = container_of(op, struct fetch, op.op);
    struct instance *i = f->inst;

    f->ready = err == BH_OK;
    if (i == NULL) {
        fetch_free(f);
        return;
    }
    if (err != BH_OK) { /* drop both: the order of the second depends on the first */
        f->inst = NULL;
        i->fetch[i->fetch[0] == f ? 0 : 1] = NULL;
        fetch_free(f);
        fetch_drop(i);
        retry_want(i);
        return;
    }
    pump_want(i);
}

/* Plans the rows from @id on that are in the store only and not on the receiver's socket. */
static size_t plan(struct instance *i, uint64_t id, uint64_t *ids, size_t *ret_bytes)
{
    const struct mailbox *mb = &i->mb;
    size_t n = 0, bytes = 0;

    for (uint32_t at = mailbox_seek(mb, id - 1); at < mb->n && n < MAX_ROWS; at++) {
        const struct slot *slot = mailbox_at(mb, at);
        if (!slot_waits(slot) || slot->d != NULL || session_has_sent(i->receiver, slot->id))
            continue;
        if (n > 0 && bytes + slot->units * SLOT_UNIT > FETCH_BYTES)
            break;
        bytes += slot->units * SLOT_UNIT;
        ids[n++] = slot->id;
    }
    *ret_bytes = bytes;
    return n;
}

static struct fetch *start(struct instance *i, uint64_t id)
{
    struct relay *r = i->relay;
    struct fetches *t = r->fetches;
    uint64_t ids[MAX_ROWS];
    size_t bytes, n = plan(i, id, ids, &bytes);

    if (n == 0)
        return NULL;
    if (t->bytes != 0 && t->bytes + bytes > FETCH_TOTAL_BYTES) {
        list_move(&i->hungry_link, &t->hungry);
        return NULL;
    }
    struct fetch *f = xmalloc(sizeof *f + n * sizeof ids[0]);
    *f = (struct fetch){.relay = r, .inst = i, .bytes = bytes};
    memcpy(f->ids, ids, n * sizeof ids[0]);
    f->op = (struct store_fetch){
        .op = {.done = on_fetched}, .ids = f->ids, .n = n, .expected_bytes = bytes, .loose = true};
    list_append(&t->all, &f->link);
    t->bytes += bytes;
    store_fetch(r->env.store, &f->op);
    return f;
}

static uint64_t last_id(const struct fetch *f)
{
    return f->ids[f->op.n - 1];
}

static void shift(struct instance *i)
{
    struct fetch *used = i->fetch[0];

    i->fetch[0] = i->fetch[1];
    i->fetch[1] = NULL;
    used->inst = NULL;
    if (used->ready)
        fetch_free(used);
}

/* From the reads at hand.  FETCH_LOST here means: they do not have it. */
static enum fetch_verdict from_reads(struct instance *i, uint64_t id, struct str *ret_bytes)
{
    while (i->fetch[0] != NULL) {
        struct fetch *f = i->fetch[0];
        if (!f->ready)
            return last_id(f) < id || f->ids[0] > id ? FETCH_LOST : FETCH_WAIT;
        while (f->next < f->op.n_rows && f->op.rows[f->next].id < id)
            f->next++;
        if (f->next < f->op.n_rows) {
            if (f->op.rows[f->next].id != id)
                return FETCH_LOST;
            *ret_bytes = f->op.rows[f->next].frame;
            return FETCH_HERE;
        }
        shift(i);
    }
    return FETCH_LOST;
}

/* True when a finished read asked for @id and the store did not have it. */
static bool was_missing(const struct instance *i, uint64_t id)
{
    const struct fetch *f = i->fetch[0];

    return f != NULL && f->ready && f->ids[0] == id &&
           (f->op.n_rows == 0 || f->op.rows[0].id != id);
}

enum fetch_verdict fetch_body(struct instance *i, struct slot *slot, struct str *ret_bytes)
{
    if (slot->d != NULL) {
        *ret_bytes = slot->d->append.frame;
        return FETCH_HERE;
    }
    if (was_missing(i, slot->id)) {
        fetch_drop(i);
        return FETCH_LOST;
    }
    enum fetch_verdict v = from_reads(i, slot->id, ret_bytes);
    if (v == FETCH_LOST) {
        fetch_drop(i);
        i->fetch[0] = start(i, slot->id);
        v = FETCH_WAIT;
    }
    if (i->fetch[0] != NULL && i->fetch[0]->ready && i->fetch[0]->next == 0 && i->fetch[1] == NULL)
        i->fetch[1] = start(i, last_id(i->fetch[0]) + 1);
    return v;
}

void fetch_drop(struct instance *i)
{
    list_remove(&i->hungry_link);
    while (i->fetch[0] != NULL || i->fetch[1] != NULL) {
        if (i->fetch[0] == NULL) {
            i->fetch[0] = i->fetch[1];
            i->fetch[1] = NULL;
        }
        shift(i);
    }
}

void fetches_free(struct relay *r)
{
    list_each (&r->fetches->all, it, nxt) {
        struct fetch *f = list_entry(it, struct fetch, link);
        if (f->ready)
            r->store_ops->fetch_free(&f->op);
        free(f);
    }
    free(r->fetches);
}
