/* lane_conns.c - a small cache of connections.  (lane_conns.h has the contract.) */
#include "store/lane_conns.h"
#include <stdlib.h>
#include "base/mem.h"

struct lane_conn {
    struct list link;
    char *key;  /* owned */
    void *conn; /* owned */
};

void lane_conns_init(struct lane_conns *c, const struct lanes_config *cfg, bool writer,
                     uint64_t *open)
{
    *c = (struct lane_conns){.cfg = cfg, .writer = writer, .open = open};
    list_init(&c->recent);
}

static void drop_oldest(struct lane_conns *c)
{
    struct lane_conn *old = list_first(&c->recent, struct lane_conn, link);

    map_del(&c->by_key, str_of(old->key));
    list_remove(&old->link);
    c->cfg->ops->close(old->conn);
    free(old->key);
    free(old);
    __atomic_fetch_sub(c->open, 1, __ATOMIC_RELAXED);
}

void *lane_conns_get(struct lane_conns *c, struct str key, char *ret_why)
{
    struct lane_conn *found = map_get(&c->by_key, key);

    if (found != NULL) {
        list_move(&found->link, &c->recent);
        return found->conn;
    }
    if (map_count(&c->by_key) >= c->cfg->max_open)
        drop_oldest(c);
    void *conn = c->cfg->ops->open(c->cfg->ctx, key, c->writer, ret_why);
    if (conn == NULL)
        return NULL;
    found = xcalloc(1, sizeof *found);
    *found = (struct lane_conn){.key = str_dup(key), .conn = conn};
    list_append(&c->recent, &found->link);
    map_put(&c->by_key, str_of(found->key), found);
    __atomic_fetch_add(c->open, 1, __ATOMIC_RELAXED);
    return conn;
}

void lane_conns_close(struct lane_conns *c)
{
    while (!list_is_empty(&c->recent))
        drop_oldest(c);
    map_done(&c->by_key);
}
