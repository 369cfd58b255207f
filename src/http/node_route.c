/* node_route.c - routes about the nodes on one database: `bellhop node` lists and drains them, and
 * /cluster/trunk accepts the trunks of other nodes. */
#include <stdlib.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/mem.h"
#include "cluster/node.h"
#include "cluster/porter.h"
#include "http/front_priv.h"
#include "net/loop.h"
#include "net/trunk.h"
#include "store/store.h"

struct ask { /* a scan of the nodes' records, in flight */
    struct store_scan scan;
    struct store_left left;
    struct front *f; /* borrowed */
    struct http_id id;
};

static void ask_release(struct store_left *l, const struct store_ops *ops)
{
    struct ask *a = container_of(l, struct ask, left);

    ops->scan_free(&a->scan);
    free(a);
}

static void write_node(struct jw *w, struct json_parser *parser, const struct store_record *rec,
                       int64_t now_ms)
{
    struct json doc;
    int64_t at_ms = 0, since_ms = 0;

    if (!json_parse(parser, rec->value, &doc))
        return;
    json_as_i64(json_get(doc, "at"), &at_ms);
    json_as_i64(json_get(doc, "since"), &since_ms);
    bool silent = now_ms - at_ms > NODE_SILENT_MS;
    jw_obj(w);
    jw_kstr(w, "node", rec->key);
    jw_kstr(w, "state", silent ? STR("silent") : json_str(doc, "state"));
    jw_ki64(w, "lastSeenAt", at_ms);
    jw_ki64(w, "since", since_ms);
    jw_kstr(w, "version", json_str(doc, "version"));
    if (json_str(doc, "url").p != NULL)
        jw_kstr(w, "url", json_str(doc, "url"));
    jw_end_obj(w);
}

static void on_read(struct store_op *op, enum bh_err err)
{
    struct ask *a = container_of(op, struct ask, scan.op);
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    store_take_back(&a->left);
    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(a->f->loop)));
    jw_key(&w, "nodes");
    jw_arr(&w);
    for (size_t k = 0; err == BH_OK && k < a->scan.n_records; k++)
        write_node(&w, parser, &a->scan.records[k], clock_wall_ms(loop_clock(a->f->loop)));
    jw_end_arr(&w);
    jw_end_obj(&w);
    if (err == BH_OK)
        front_json(a->f, a->id, 200, &body);
    else
        http_answer_error(a->f->server, a->id, 503, bh_err_word(err),
                          "The database cannot be read just now.");
    store_scan_free(a->f->store, &a->scan);
    json_parser_free(parser);
    buf_done(&body);
    free(a);
}

void admin_nodes(struct front *f, struct http_req *req)
{
    struct ask *a = xcalloc(1, sizeof *a);

    a->f = f;
    a->id = http_req_id(req);
    a->scan = (struct store_scan){.op = {.done = on_read}, .ns = NODE_NS, .loose = true};
    store_leave(f->store, &a->left, ask_release);
    store_scan(f->store, &a->scan);
}

/* Drains another node: tells it over its trunk. */
static void drain_other(struct front *f, struct http_req *req, struct str node)
{
    struct http_answer told = {.status = 200, .body = STR("{\"ok\":true}")};

    if (f->node != NULL && !f->standing_by && trunk_say(f->server, node, STR(NODE_DRAIN)))
        http_answer(f->server, http_req_id(req), &told);
    else
        http_answer_error(f->server, http_req_id(req), 404, "not_found",
                          "No node of that name carries connections to the one that serves: see "
                          "bellhop node list, or use bellhop node drain on its machine.");
}

void admin_drain(struct front *f, struct http_req *req)
{
    struct buf node = BUF_INIT;
    bool other = http_query(req, "node", &node) &&
                 (f->node == NULL || !str_eq(buf_str(&node), str_of(node_name(f->node))));

    if (other)
        drain_other(f, req, buf_str(&node));
    buf_done(&node);
    if (other)
        return;
    http_answer(f->server, http_req_id(req),
                &(struct http_answer){.status = 200, .body = STR("{\"ok\":true}"), .close = true});
    f->drain(f->drain_ctx);
}

/* A node that does not hold the lease opens its trunk. */
void cluster_trunk(struct front *f, struct http_req *req)
{
    if (f->node == NULL || f->trunk_key == NULL || f->draining) {
        http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is nothing here.");
        return;
    }
    trunk_accept(f->server, req,
                 &(struct trunk_keeper){.key = f->trunk_key,
                                        .name = node_owner(f->node),
                                        .admin_tag = front_admin_tag});
}
