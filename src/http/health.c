/* health.c - /healthz: the loop turns, and so do the threads of the store; /readyz: send me
 * traffic.
 *
 * A database that is away is not a stuck thread: its writes fail, and fail in time. */
#include "base/jw.h"
#include "cluster/node.h"
#include "http/front_priv.h"
#include "store/store.h"

#define SLOW_US 3000000   /* a write waits that long: not ready */
#define STUCK_US 60000000 /* nothing that the store does takes so long */

bool health_store_is_stuck(struct store *store)
{
    struct store_stats st;

    store->ops->stats(store, &st);
    return st.queue_age_us > STUCK_US || st.read_age_us > STUCK_US;
}

void health_live(struct front *f, struct http_req *req)
{
    if (health_store_is_stuck(f->store)) {
        http_answer_error(f->server, http_req_id(req), 503, "store_stuck",
                          "A thread of the store has been stuck for over a minute.");
        return;
    }
    http_answer(f->server, http_req_id(req),
                &(struct http_answer){.status = 200, .body = STR("{\"status\":\"ok\"}")});
}

/* Another process serves. */
void health_standby(struct front *f, struct http_req *req)
{
    bool operator= http_listener_tag(req) == front_admin_tag;

    if (operator&& str_eq(http_path(req), STR("/admin/nodes")))
        admin_nodes(f, req);
    else if (operator&& str_eq(http_path(req), STR("/admin/drain")))
        admin_drain(f, req);
    else if (str_eq(http_path(req), STR("/metrics")))
        metrics_standby(f, req);
    else if (str_eq(http_path(req), STR("/healthz")))
        http_answer(f->server, http_req_id(req),
                    &(struct http_answer){.status = 200, .body = STR("{\"status\":\"standby\"}")});
    else
        front_retry(f, req, "standby", "This process stands by: another one serves.");
}

static const char *sentence(const struct front *f, const struct store_stats *st)
{
    if (f->draining)
        return "This server is going down.";
    if (f->node != NULL && !node_is_settled(f->node))
        return "This server has just begun to serve.";
    return st->healthy ? "Writes have waited for seconds." : st->problem;
}

void health_ready(struct front *f, struct http_req *req)
{
    struct store_stats st;
    struct buf body = BUF_INIT;
    const char *not_ready = NULL;

    f->store->ops->stats(f->store, &st);
    if (f->draining)
        not_ready = "draining";
    else if (f->node != NULL && !node_is_settled(f->node))
        not_ready = "starting";
    else if (!st.healthy)
        not_ready = "store_unavailable";
    else if (st.queue_age_us > SLOW_US)
        not_ready = "store_slow";
    struct jw w = jw_begin(&body);
    jw_obj(&w);
    jw_kstr(&w, "status", str_of(not_ready == NULL ? "ready" : "not ready"));
    if (not_ready != NULL) {
        jw_kstr(&w, "error", str_of(sentence(f, &st)));
        jw_kstr(&w, "code", str_of(not_ready));
    }
    jw_end_obj(&w);
    front_json(f, http_req_id(req), not_ready == NULL ? 200 : 503, &body);
    buf_done(&body);
}
