/* health.c - /healthz: the loop turns; /readyz: send me traffic. */
#include "base/jw.h"
#include "http/front_priv.h"
#include "store/store.h"

void health_live(struct front *f, struct http_req *req)
{
    http_answer(f->server, http_req_id(req),
                &(struct http_answer){.status = 200, .body = STR("{\"status\":\"ok\"}")});
}

void health_ready(struct front *f, struct http_req *req)
{
    struct store_stats st;
    struct buf body = BUF_INIT;
    const char *not_ready = NULL;

    f->store->ops->stats(f->store, &st);
    if (f->draining)
        not_ready = "draining";
    else if (!st.healthy)
        not_ready = "store_unavailable";
    struct jw w = jw_begin(&body);
    jw_obj(&w);
    jw_kstr(&w, "status", str_of(not_ready == NULL ? "ready" : "not ready"));
    if (not_ready != NULL) {
        jw_kstr(&w, "error", str_of(f->draining ? "This server is going down." : st.problem));
        jw_kstr(&w, "code", str_of(not_ready));
    }
    jw_end_obj(&w);
    front_json(f, http_req_id(req), not_ready == NULL ? 200 : 503, &body);
    buf_done(&body);
}
