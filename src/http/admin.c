/* admin.c - mailboxes, for the command line: whose is meant, what waits in it. */
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "http/admin.h"
#include "http/front_priv.h"
#include "http/media_route.h"
#include "relay/relay.h"
#include "tenancy/facts.h"

/* ---- mailboxes ---- */

static size_t find_tenant(struct front *f, struct str instance, struct buf *tenant)
{
    struct str found;
    size_t n = facts_tenants_with(f->facts, instance, true, &found);

    if (n > 0) {
        buf_add_str(tenant, found);
        return n;
    }
    struct instance_view v; /* without gateway and route, only the relay may know it */
    for (uint32_t pos = 0; n < 2 && relay_next_instance(f->relay, &pos, &v);)
        if (str_eq(v.instance, instance) && n++ == 0)
            buf_add_str(tenant, v.tenant);
    return n;
}

static bool is_known(struct front *f, struct str tenant, struct str instance)
{
    struct instance_view v;

    return facts_knows(f->facts, tenant, instance) ||
           relay_instance(f->relay, tenant, instance, &v);
}

bool admin_find_instance(struct front *f, struct http_id id, struct str instance,
                         struct buf *tenant)
{
    size_t n;

    if (str_is_empty(instance)) {
        http_answer_error(f->server, id, 400, "malformed", "Which instance?");
        return false;
    }
    if (tenant->n != 0)
        n = is_known(f, buf_str(tenant), instance);
    else
        n = find_tenant(f, instance, tenant);
    if (n == 0)
        http_answer_error(f->server, id, 404, "not_found", "There is no instance \"%.*s\".",
                          STR_FMT(instance));
    else if (n > 1)
        http_answer_error(f->server, id, 409, "ambiguous",
                          "Several tenants have an instance \"%.*s\"; say which with --tenant.",
                          STR_FMT(instance));
    return n == 1;
}

struct showing {     /* a mailbox being read */
    struct front *f; /* borrowed */
    struct http_id id;
    struct buf body;
    struct jw w;
    bool bodies;
    uint64_t waiting, shown;
};

static void on_line(void *ctx, const struct mailbox_line *line)
{
    struct showing *s = ctx;
    struct str frame = line->frame;

    s->shown++;
    if (frame.n > 0 && frame.p[frame.n - 1] == '\n')
        frame.n--;
    jw_obj(&s->w);
    jw_key(&s->w, "id");
    jw_u64(&s->w, line->id);
    admin_time(&s->w, "at", line->at_ms);
    jw_ki64(&s->w, "attempts", line->attempts);
    jw_kbool(&s->w, "sent", line->sent);
    jw_kstr(&s->w, "parked", line->parked);
    jw_ki64(&s->w, "bytes", (int64_t)line->frame.n);
    if (s->bodies && frame.n > 0) {
        struct buf placed = BUF_INIT;
        media_place(s->f, frame, &placed);
        jw_key(&s->w, "frame");
        jw_raw(&s->w, buf_str(&placed));
        buf_done(&placed);
    }
    jw_end_obj(&s->w);
}

static void on_shown(void *ctx, enum bh_err err)
{
    struct showing *s = ctx;

    jw_end_arr(&s->w);
    jw_key(&s->w, "more"); /* not shown: past the limit, or past what one answer holds */
    jw_u64(&s->w, s->waiting > s->shown ? s->waiting - s->shown : 0);
    jw_end_obj(&s->w);
    if (err == BH_OK || err == BH_NOT_FOUND) /* known, but nothing was ever delivered to it */
        front_json(s->f, s->id, 200, &s->body);
    else
        http_answer_error(s->f->server, s->id, 503, bh_err_word(err), "The store does not answer.");
    buf_done(&s->body);
    free(s);
}

void admin_mailbox_show(struct front *f, struct http_req *req)
{
    struct buf tenant = BUF_INIT, instance = BUF_INIT, text = BUF_INIT;
    uint64_t limit = 100;
    struct instance_view view;

    http_query(req, "tenant", &tenant);
    http_query(req, "instance", &instance);
    if (http_query(req, "limit", &text))
        str_to_u64(buf_str(&text), &limit);
    if (!admin_find_instance(f, http_req_id(req), buf_str(&instance), &tenant))
        goto out;
    struct showing *s = xcalloc(1, sizeof *s);
    *s = (struct showing){.f = f, .id = http_req_id(req)};
    if (relay_instance(f->relay, buf_str(&tenant), buf_str(&instance), &view))
        s->waiting = view.entries;
    buf_reset(&text);
    s->bodies = http_query(req, "bodies", &text);
    s->w = jw_begin(&s->body);
    jw_obj(&s->w);
    jw_kstr(&s->w, "tenant", buf_str(&tenant));
    jw_kstr(&s->w, "instance", buf_str(&instance));
    jw_key(&s->w, "entries");
    jw_arr(&s->w);
    relay_mailbox_show(f->relay, buf_str(&tenant), buf_str(&instance), limit, on_line, on_shown, s);
out:
    buf_done(&tenant);
    buf_done(&instance);
    buf_done(&text);
}
