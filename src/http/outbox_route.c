/* outbox_route.c - what waits to be sent, for the command line.
 *
 *      GET  /admin/outbox[?id=N]     {"now", "entries": [{id, tenant, instance, platform, bot,
 *                                    chat_id, op, state, attempts, since, next_try, last_error}]};
 *                                    of one also its action
 *      POST /admin/outbox/retry|drop {"id"} -> {"ok": true}
 *
 * Numbers are told as text: they are larger than what JavaScript can count. */
#include <inttypes.h>
#include <stdio.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "host/host.h"
#include "net/loop.h"
#include "http/admin.h"
#include "http/front_priv.h"
#include "platform/sender.h"

enum { MOST = 1000 }; /* entries in one answer */

struct listing {
    struct jw *w;
    const struct platform *p;
    size_t n;
    bool whole;
};

static void write_action(struct jw *w, const struct outgoing_entry *e)
{
    jw_key(w, "action");
    if (e->action.n > 0)
        jw_raw(w, e->action);
    else
        jw_value(w, json_get(e->doc, "action"));
}

static void on_view(void *ctx, const struct outgoing_view *v)
{
    struct listing *l = ctx;
    const struct outgoing_entry *e = &v->e;
    struct jw *w = l->w;
    char id[24];

    if (l->n++ >= MOST)
        return;
    snprintf(id, sizeof id, "%" PRIu64, e->number);
    jw_obj(w);
    jw_kstr(w, "id", str_of(id));
    jw_kstr(w, "tenant", e->from.tenant);
    jw_kstr(w, "instance", e->from.instance);
    jw_kstr(w, "platform", str_of(l->p->ops->name));
    jw_kstr(w, "bot", str_of(l->p->bot));
    jw_kstr(w, "chat_id", e->chat);
    jw_kstr(w, "op", str_of(action_op_name(e->op)));
    jw_kstr(w, "state", str_of(outgoing_state_name(e->state)));
    jw_ki64(w, "attempts", e->attempts);
    jw_ki64(w, "since", e->asked_ms);
    admin_time(w, "next_try", v->next_ms);
    jw_kstr(w, "last_error", e->why.n > 0 ? e->why : STR_NULL);
    if (l->whole) {
        jw_ki64(w, "part", e->part);
        jw_ki64(w, "parts", e->n_parts);
        write_action(w, e);
    }
    jw_end_obj(w);
}

static void list(struct front *f, uint64_t number, struct listing *l)
{
    for (size_t i = 0; i < host_n_platforms(f->host); i++) {
        l->p = host_nth_platform(f->host, i);
        if (l->p->sender != NULL)
            sender_each(l->p->sender, number, on_view, l);
    }
}

static bool read_id(struct str text, uint64_t *ret)
{
    struct str head = STR("queued:");

    return str_to_u64(str_starts(text, head) ? str_skip(text, head.n) : text, ret) && *ret != 0;
}

void admin_outbox(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT, id = BUF_INIT;
    struct jw w = jw_begin(&body);
    uint64_t number = 0;
    bool whole = http_query(req, "id", &id);
    struct listing l = {.w = &w, .whole = whole};

    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(f->loop)));
    jw_key(&w, "entries");
    jw_arr(&w);
    if (!whole || read_id(buf_str(&id), &number))
        list(f, number, &l);
    jw_end_arr(&w);
    jw_ki64(&w, "more", l.n > MOST ? (int64_t)(l.n - MOST) : 0);
    jw_end_obj(&w);
    if (whole && l.n == 0)
        http_answer_error(f->server, http_req_id(req), 404, "not_found",
                          "There is nothing with this id in the outbox.");
    else
        front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
    buf_done(&id);
}

static enum bh_err change(struct front *f, uint64_t number,
                          enum bh_err (*what)(struct sender *s, uint64_t number))
{
    enum bh_err err = BH_REFUSED;

    for (size_t i = 0; err == BH_REFUSED && i < host_n_platforms(f->host); i++) {
        const struct platform *p = host_nth_platform(f->host, i);
        if (p->sender != NULL)
            err = what(p->sender, number);
    }
    return err;
}

static void answer_change(struct front *f, struct http_req *req, const char *verb,
                          enum bh_err (*what)(struct sender *s, uint64_t number))
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct json doc = {0};
    uint64_t number = 0;
    enum bh_err err = BH_REFUSED;

    if (json_parse(parser, http_body(req), &doc) && read_id(json_str(doc, "id"), &number))
        err = change(f, number, what);
    if (err == BH_OK) {
        log_info(NULL, "outbox: %s id=%" PRIu64, verb, number);
        buf_add_z(&body, "{\"ok\":true}");
        front_json(f, http_req_id(req), 200, &body);
    } else if (err == BH_BUSY) {
        http_answer_error(f->server, http_req_id(req), 409, "busy",
                          "Its request is under way and cannot be called back; look again in a "
                          "moment.");
    } else {
        http_answer_error(f->server, http_req_id(req), 404, "not_found",
                          "There is nothing with this id in the outbox.");
    }
    json_parser_free(parser);
    buf_done(&body);
}

void admin_outbox_retry(struct front *f, struct http_req *req)
{
    answer_change(f, req, "retried", sender_retry);
}

void admin_outbox_drop(struct front *f, struct http_req *req)
{
    answer_change(f, req, "dropped", sender_drop);
}
