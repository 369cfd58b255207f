/* admin.c - what the command line looks at, over the admin socket. */
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/confine.h"
#include "base/jw.h"
#include "base/mem.h"
#include "http/admin.h"
#include "bus/bus.h"
#include "http/front_priv.h"
#include "http/waker.h"
#include "net/loop.h"
#include "host/host.h"
#include "relay/relay.h"
#include "store/store.h"
#include "tenancy/facts.h"

static void jw_time(struct jw *w, const char *key, int64_t ms) /* unix ms, or null for never */
{
    jw_key(w, key);
    if (ms != 0)
        jw_i64(w, ms);
    else
        jw_null(w);
}

/* ---- status ---- */

static void write_instance(struct jw *w, const struct instance_view *v)
{
    jw_obj(w);
    jw_kstr(w, "tenant", v->tenant);
    jw_kstr(w, "instance", v->instance);
    jw_kstr(w, "state", str_of(v->state));
    jw_ki64(w, "sessions", (int64_t)v->sessions);
    jw_ki64(w, "entries", (int64_t)v->entries);
    jw_ki64(w, "bytes", (int64_t)v->bytes);
    jw_ki64(w, "unacked", (int64_t)v->unacked);
    jw_ki64(w, "parked", (int64_t)v->parked);
    jw_time(w, "oldestAt", v->oldest_ms);
    jw_time(w, "lastInboundAt", v->last_inbound_ms);
    jw_time(w, "lastOutboundAt", v->last_outbound_ms);
    jw_time(w, "flippedAt", v->asleep_since_ms);
    jw_time(w, "lastPokeAt", v->last_poke_ms);
    jw_kbool(w, "wakeUrlRegistered", v->wake_url);
    jw_kstr(w, "pokeProblem", str_of(v->last_poke_problem));
    jw_end_obj(w);
}

static void on_instance(void *ctx, const struct instance_view *v)
{
    write_instance(ctx, v);
}

/* Those the relay has not met yet: a gateway was added and nobody came and nothing was sent. */
static void write_unmet(struct front *f, struct jw *w)
{
    struct list *head;
    struct instance_view v;

    facts_gateways(f->facts, &head);
    list_each (head, it, nxt) {
        const struct gateway *g = list_entry(it, struct gateway, link);
        struct str tenant = str_of(g->tenant), instance = str_of(g->instance);
        bool first = true;
        list_each (head, jt, jnxt) { /* one line per instance, however many gateways it has */
            const struct gateway *o = list_entry(jt, struct gateway, link);
            if (o == g)
                break;
            if (strcmp(o->tenant, g->tenant) == 0 && strcmp(o->instance, g->instance) == 0)
                first = false;
        }
        if (g->revoked_ms != 0 || !first || relay_instance(f->relay, tenant, instance, &v))
            continue;
        v = (struct instance_view){.tenant = tenant, .instance = instance, .state = "never"};
        v.wake_url = facts_wake_url(f->facts, tenant, instance) != NULL;
        write_instance(w, &v);
    }
}

static void write_store(struct front *f, struct jw *w)
{
    struct store_stats s;

    f->store->ops->stats(f->store, &s);
    jw_key(w, "store");
    jw_obj(w);
    jw_kstr(w, "kind", str_of(f->store->ops->name));
    jw_kbool(w, "healthy", s.healthy);
    jw_kstr(w, "problem", s.healthy ? STR_NULL : str_of(s.problem));
    jw_ki64(w, "queued", (int64_t)s.queued);
    jw_ki64(w, "commits", (int64_t)s.commits);
    jw_ki64(w, "failed", (int64_t)s.failed_ops);
    jw_ki64(w, "bytesOnDisk", s.bytes_on_disk);
    jw_end_obj(w);
    jw_key(w, "bus");
    jw_obj(w);
    jw_kstr(w, "kind", str_of(f->bus->ops->name));
    jw_end_obj(w);
}

static void write_platforms(struct front *f, struct jw *w)
{
    jw_key(w, "platforms");
    jw_arr(w);
    for (size_t i = 0; i < host_n_platforms(f->host); i++) {
        struct platform *p = host_nth_platform(f->host, i);
        jw_obj(w);
        jw_kstr(w, "platform", str_of(p->ops->name));
        jw_kstr(w, "bot", str_of(p->bot));
        jw_kstr(w, "problem", str_of(p->problem));
        jw_time(w, "lastEventAt", p->last_event_ms);
        if (p->ops->status != NULL)
            p->ops->status(p, w);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

static void write_server(struct front *f, struct jw *w)
{
    struct list *unused;
    char confined[160];

    jw_kstr(w, "version", STR(BELLHOP_VERSION));
    jw_ki64(w, "pid", getpid());
    jw_ki64(w, "startedAt", f->started_ms);
    jw_ki64(w, "now", clock_wall_ms(loop_clock(f->loop)));
    jw_kbool(w, "draining", f->draining);
    jw_kstr(w, "listen", str_of(f->listen));
    jw_ki64(w, "port", http_server_port(f->server));
    jw_kstr(w, "publicUrl", str_of(f->public_url));
    jw_kstr(w, "url", str_of(f->base_url));
    jw_kstr(w, "stateDir", str_of(f->state_dir));
    jw_kstr(w, "config", str_of(f->config_path));
    jw_ki64(w, "connections", (int64_t)http_server_connections(f->server));
    jw_ki64(w, "gateways", (int64_t)facts_gateways(f->facts, &unused));
    jw_ki64(w, "routes", (int64_t)facts_routes(f->facts, &unused));
    confine_describe(f->confined, confined, sizeof confined);
    jw_kstr(w, "confined", str_of(confined));
    jw_kbool(w, "fullyConfined", f->confined->landlock > 0 && f->confined->seccomp > 0);
    jw_key(w, "wake");
    jw_obj(w);
    jw_kbool(w, "allowPrivate", f->wake->allow_private);
    jw_ki64(w, "timeoutMs", f->wake->timeout_ms);
    jw_end_obj(w);
}

void admin_status(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    write_server(f, &w);
    write_store(f, &w);
    write_platforms(f, &w);
    jw_key(&w, "instances");
    jw_arr(&w);
    relay_each_instance(f->relay, on_instance, &w);
    write_unmet(f, &w);
    jw_end_arr(&w);
    jw_end_obj(&w);
    front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
}

/* ---- gateways and routes ---- */

static void write_gateway(struct front *f, struct jw *w, const struct gateway *g)
{
    int64_t now = clock_wall_ms(loop_clock(f->loop));
    int64_t live = 0;

    for (size_t i = 0; i < g->n_secrets; i++)
        live += g->secrets[i].until_ms == 0 || g->secrets[i].until_ms > now;
    jw_obj(w);
    jw_kstr(w, "id", str_of(g->id));
    jw_kstr(w, "tenant", str_of(g->tenant));
    jw_kstr(w, "instance", str_of(g->instance));
    jw_kstr(w, "wakeUrl", str_of(g->wake_url));
    jw_kstr(w, "platform", str_of(g->platform));
    jw_kstr(w, "bot", str_of(g->bot));
    jw_ki64(w, "secrets", live);
    jw_kbool(w, "acks", !g->ackless);
    jw_time(w, "createdAt", g->created_ms);
    jw_time(w, "rotatedAt", g->rotated_ms);
    jw_time(w, "revokedAt", g->revoked_ms);
    jw_end_obj(w);
}

void admin_gateways(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct list *head;

    facts_gateways(f->facts, &head);
    jw_obj(&w);
    jw_key(&w, "gateways");
    jw_arr(&w);
    list_each (head, it, nxt)
        write_gateway(f, &w, list_entry(it, struct gateway, link));
    jw_end_arr(&w);
    jw_end_obj(&w);
    front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
}

void admin_routes(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct list *head;

    facts_routes(f->facts, &head);
    jw_obj(&w);
    jw_key(&w, "routes");
    jw_arr(&w);
    list_each (head, it, nxt) {
        const struct route *r = list_entry(it, struct route, link);
        jw_obj(&w);
        jw_kstr(&w, "platform", str_of(r->platform));
        jw_kstr(&w, "key", str_of(r->key));
        jw_kstr(&w, "tenant", str_of(r->tenant));
        jw_kstr(&w, "instance", str_of(r->instance));
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
}

/* ---- mailboxes ---- */

/* One that has no gateway and no route any more is known to the relay only. */
struct search {
    struct str instance;
    struct buf *tenant; /* borrowed: the first one found */
    size_t found;
};

static void match_view(void *ctx, const struct instance_view *v)
{
    struct search *s = ctx;

    if (str_eq(v->instance, s->instance) && s->found++ == 0)
        buf_add_str(s->tenant, v->tenant);
}

static size_t find_tenant(struct front *f, struct str instance, struct buf *tenant)
{
    struct search s = {.instance = instance, .tenant = tenant};
    struct str found;
    size_t n = facts_tenants_with(f->facts, instance, true, &found);

    if (n == 1)
        buf_add_str(tenant, found);
    if (n == 0)
        relay_each_instance(f->relay, match_view, &s);
    return n != 0 ? n : s.found;
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
    jw_time(&s->w, "at", line->at_ms);
    jw_ki64(&s->w, "attempts", line->attempts);
    jw_kbool(&s->w, "sent", line->sent);
    jw_kstr(&s->w, "parked", line->parked);
    jw_ki64(&s->w, "bytes", (int64_t)line->frame.n);
    if (s->bodies && frame.n > 0) {
        jw_key(&s->w, "frame");
        jw_raw(&s->w, frame);
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
