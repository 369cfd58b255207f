/* node_route.c - the operations of `bellhop node`, which lists and drains the nodes on one
 * database, and /cluster/trunk, which accepts the trunks of other nodes. */
#include <stdlib.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "cluster/node.h"
#include "cluster/forwarder.h"
#include "http/front_priv.h"
#include "http/op.h"
#include "net/loop.h"
#include "net/trunk.h"
#include "store/store.h"

struct ask { /* a scan of the nodes' records, in flight */
    struct store_scan scan;
    struct store_left left;
    struct op_call *c; /* borrowed */
};

static void ask_release(struct store_left *l)
{
    struct ask *a = container_of(l, struct ask, left);

    store_scan_free(&a->scan);
    free(a);
}

static void write_node(struct jw *w, struct record_reader *reader, const struct store_record *rec,
                       int64_t now_ms)
{
    struct node_record node;

    if (!record_read(reader, &node_form, rec->key, rec->value, &node))
        return;
    bool silent = now_ms - node.at_ms > NODE_SILENT_MS;
    jw_obj(w);
    jw_kstr(w, "node", node.name);
    jw_kstr(w, "state", str_of(silent ? "silent" : node_words[node.state]));
    jw_ki64(w, "lastSeenAt", node.at_ms);
    jw_ki64(w, "since", node.since_ms);
    jw_kstr(w, "version", node.version);
    jw_kstr_opt(w, "url", node.url);
    jw_end_obj(w);
}

static void on_read(struct store_op *op, enum bh_err err)
{
    struct ask *a = container_of(op, struct ask, scan.op);
    struct front *f = a->c->f;
    struct record_reader *reader = record_reader_new(NULL);
    struct jw w = op_begin(a->c);
    int64_t now_ms = clock_wall_ms(loop_clock(f->loop));

    store_take_back(&a->left);
    jw_obj(&w);
    jw_ki64(&w, "now", now_ms);
    jw_karr(&w, "nodes");
    for (size_t k = 0; err == BH_OK && k < a->scan.n_records; k++)
        write_node(&w, reader, &a->scan.records[k], now_ms);
    jw_end_arr(&w);
    jw_end_obj(&w);
    op_done(a->c, err, "The database cannot be read just now.");
    store_scan_free(&a->scan);
    record_reader_free(reader);
    free(a);
}

static void list_nodes(struct op_call *c)
{
    struct ask *a = xcalloc(1, sizeof *a);

    a->c = c;
    a->scan = (struct store_scan){.op = {.done = on_read}, .ns = node_form.ns, .loose = true};
    store_leave(c->f->store, &a->left, ask_release);
    store_scan(c->f->store, &a->scan);
}

/* Drains this process, or tells another node over its trunk. */
static void drain(struct op_call *c)
{
    struct front *f = c->f;
    struct str node = op_text(c, "node");

    if (node.p == NULL || (f->node != NULL && str_eq(node, str_of(node_name(f->node))))) {
        http_answer(f->server, c->id,
                    &(struct http_answer){.status = 200,
                                          .body = STR("{\"ok\":true}"),
                                          .close = true});
        op_call_free(c);
        f->drain(f->drain_ctx);
    } else if (f->node != NULL && !f->standing_by && trunk_say(f->server, node, STR(NODE_DRAIN))) {
        op_done(c, BH_OK, NULL);
    } else {
        op_error(c, 404, "not_found",
                 "No node of that name carries connections to the one that serves: see "
                 "bellhop node list, or use bellhop node drain on its machine.");
    }
}

const struct op ops_nodes[] = {
    {"listNodes", "GET", "/admin/nodes", MAY_OPERATOR, list_nodes, "The nodes on this database.",
     .answer = "{now: whole, nodes: [object]}",
     .answer_what = "Each with its state, and when it was last seen.",
     .errors = "unavailable (503)"},
    {"drain", "POST", "/admin/drain", MAY_OPERATOR, drain,
     "Begin a graceful shutdown of this process or of another node.",
     .args = (const struct op_arg[]){{"node", IN_QUERY, OP_TEXT,
                                      .what = "A node that carries connections to this one."},
                                     {0}},
     .answer = "{ok: bool}", .answer_what = "It has begun.", .errors = "not_found (404)"},
    {0},
};

/* A node that does not hold the lease opens its trunk. */
void cluster_trunk(struct front *f, struct http_req *req)
{
    if (f->node == NULL || f->trunk_key == NULL || f->draining) {
        http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is nothing here.");
        return;
    }
    trunk_accept(f->server, req,
                 &(struct trunk_heart){.key = f->trunk_key,
                                       .name = node_owner(f->node),
                                       .admin_tag = front_admin_tag});
}
