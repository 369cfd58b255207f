/* store.c - shared by all stores: `store:` in the configuration, store_put(), store_leave() and
 * store_close().
 *
 * ops->close() runs no done().  So a store keeps a list of objects of store_leave(), store_put()s
 * among them, and store_close() frees the rest. */
#include "store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/mem.h"

/* ---- `store:` in the configuration ---- */

#define AT(member) offsetof(struct store_settings, member)

static const struct config_key keys[] = {
    {"store.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "sqlite", "sqlite|postgres",
     .what = "Where state is kept: `sqlite` is one file in `state_dir`, `postgres` a server that "
             "several processes share."},
    {"store.url", CFG_SECRET, CFG_RESTART, AT(url),
     .what =
         "The PostgreSQL database, as libpq has it: `postgresql://user@host/database` and so on."},
    {"store.reserve", CFG_BYTES, CFG_RESTART, AT(reserve), "64MiB",
     .what = "Disk space that new messages may not use (on a small disk, an eighth of it), so that "
             "acks, deletes and `mailbox purge` work when the disk is full."},
    {"store.max_size", CFG_BYTES, CFG_RESTART, AT(max_bytes), "0",
     .what = "The largest size of the database, including its reserve; 0: as the disk allows."},
    {0},
};

static bool check_settings(void *settings, char *ret_why)
{
    const struct store_settings *s = settings;

    if (strcmp(s->kind, "postgres") != 0 || s->url != NULL)
        return true;
    return bh_why(ret_why, "store.url: a store of kind postgres needs one, like "
                           "postgresql://bellhop@127.0.0.1/bellhop");
}

const struct config_section store_config = {.keys = keys,
                                            .size = sizeof(struct store_settings),
                                            .check = check_settings};

const int64_t store_wait_bounds_us[STORE_WAIT_BOUNDS] = {500,   1000,  2000,   5000,   10000,
                                                         20000, 50000, 200000, 1000000};

/* ---- writes that own their memory ---- */

struct store_put { /* one allocation: this, the items, then the bytes they point at */
    struct store_tx tx;
    struct store_left left;
    store_put_cb *done;
    void *ctx;
    struct store_kv items[];
};

static void on_put(struct store_op *op, enum bh_err err)
{
    struct store_put *p = container_of(op, struct store_put, tx.op);

    store_take_back(&p->left);
    store_put_cb *done = p->done;
    void *ctx = p->ctx;
    free(p);
    if (done != NULL)
        done(ctx, err);
}

static void put_release(struct store_left *l)
{
    free(container_of(l, struct store_put, left));
}

struct store_put *store_put(struct store *st, const struct store_kv *items, size_t n, bool urgent,
                            store_put_cb *done, void *ctx)
{
    size_t bytes = 1; /* so that an empty string never points behind the block */
    for (size_t i = 0; i < n; i++)
        bytes += strlen(items[i].ns) + 1 + items[i].key.n + items[i].value.n;

    struct store_put *p = xmalloc(sizeof *p + n * sizeof p->items[0] + bytes);
    *p = (struct store_put){.done = done, .ctx = ctx};
    p->tx = (struct store_tx){.op.done = on_put, .items = p->items, .n = n};
    store_leave(st, &p->left, put_release);

    char *at = (char *)&p->items[n];
    for (size_t i = 0; i < n; i++) {
        struct str ns = str_pack(&at, str_make(items[i].ns, strlen(items[i].ns) + 1));
        p->items[i] = (struct store_kv){.verb = items[i].verb, .ns = ns.p};
        p->items[i].key = str_pack(&at, items[i].key);
        p->items[i].value = str_pack(&at, items[i].value);
    }
    store_tx(st, &p->tx, urgent);
    return p;
}

void store_put_cancel(struct store_put **put)
{
    if (*put != NULL)
        (*put)->done = NULL;
    *put = NULL;
}

void store_leave(struct store *st, struct store_left *l, void (*release)(struct store_left *l))
{
    *l = (struct store_left){.next = st->left, .prev = &st->left, .release = release};
    if (l->next != NULL)
        l->next->prev = &l->next;
    st->left = l;
}

void store_take_back(struct store_left *l)
{
    if (l->prev == NULL)
        return;
    *l->prev = l->next;
    if (l->next != NULL)
        l->next->prev = l->prev;
    l->prev = NULL;
}

void store_close(struct store *st)
{
    if (st == NULL)
        return;
    struct store_left *l = st->left;
    st->ops->close(st);
    while (l != NULL) {
        struct store_left *next = l->next;
        l->release(l);
        l = next;
    }
}
