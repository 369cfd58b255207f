/* admin_list.c - the reads of the command line: status, gateways and routes in pages, mailboxes.
 *
 * There may be a hundred thousand of each, too many for one turn of the loop.  A page ends after a
 * number of rows, or after a number of rows that the filter skipped; "next" is the cursor of the
 * following page.  A cursor whose route was removed meanwhile answers 410: the reader begins again.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/confine.h"
#include "base/jw.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cluster/node.h"
#include "host/host.h"
#include "http/admin.h"
#include "http/dashboard.h"
#include "http/media_route.h"
#include "http/waker.h"
#include "net/edges.h"
#include "net/redis_hop.h"
#include "net/loop.h"
#include "net/trunk.h"
#include "platform/sender.h"
#include "relay/relay.h"
#include "store/store.h"
#include "tenancy/grants.h"
#include "tenancy/rights.h"

enum { PAGE_ROWS = 500, PAGE_LOOKS = 4000 };

void admin_time(struct jw *w, const char *key, int64_t ms)
{
    jw_key(w, key);
    if (ms != 0)
        jw_i64(w, ms);
    else
        jw_null(w);
}

/* ---- one page ---- */

struct admin_list_page {
    struct op_call *c; /* borrowed */
    struct front *f;   /* borrowed */
    struct jw w;
    size_t rows, looks;
    struct buf next; /* empty: this is the last page */
    struct buf from; /* the cursor that it begins behind; empty: it is the first page */
    struct str after;
    /* the filter; empty: anything */
    struct str tenant, instance, state;
    bool waiting; /* only instances whose mailbox is not empty */
};

bool admin_read_cursor(struct op_call *c, struct buf *ret)
{
    struct str after = op_text(c, "after");

    if (!c->for_tenant)
        buf_add_str(ret, after);
    else if (after.n > 0 && !dashboard_open(c->f->dashboard, op_text(c, "tenant"), after, ret)) {
        op_error(c, 410, "gone", ADMIN_GONE);
        return false;
    }
    return true;
}

void admin_write_cursor(struct op_call *c, struct jw *w, struct str cursor)
{
    BUF_LOCAL sealed = BUF_INIT;

    if (c->for_tenant)
        dashboard_seal(c->f->dashboard, op_text(c, "tenant"), cursor, &sealed);
    jw_kstr(w, "next", c->for_tenant ? buf_str(&sealed) : cursor);
}

/* False: the error has been sent. */
static bool page_begin(struct op_call *c, struct admin_list_page *ret)
{
    *ret = (struct admin_list_page){.c = c,
                                    .f = c->f,
                                    .tenant = op_text(c, "tenant"),
                                    .instance = op_text(c, "instance")};
    if (!admin_read_cursor(c, &ret->from)) {
        buf_done(&ret->from);
        return false;
    }
    ret->after = buf_str(&ret->from);
    ret->w = op_begin(c);
    jw_obj(&ret->w);
    return true;
}

/* True when the page has room for one more row.  On false the caller writes the cursor of the next
 * page to p->next. */
static bool page_has_room(struct admin_list_page *p)
{
    return p->rows < PAGE_ROWS && p->looks++ < PAGE_LOOKS;
}

static bool is_meant(struct str wish, struct str is)
{
    return wish.n == 0 || str_eq(wish, is);
}

/* True when the filter admits a row of that instance; then it counts. */
static bool page_takes(struct admin_list_page *p, struct str tenant, struct str instance)
{
    bool takes = is_meant(p->tenant, tenant) && is_meant(p->instance, instance);

    p->rows += takes;
    return takes;
}

static void page_end(struct admin_list_page *p)
{
    if (p->next.n > 0)
        admin_write_cursor(p->c, &p->w, buf_str(&p->next));
    jw_end_obj(&p->w);
    buf_done(&p->next);
    buf_done(&p->from);
    op_end(p->c);
}

/* ---- status ---- */

void admin_write_instance(struct jw *w, const struct instance_view *v)
{
    jw_kstr(w, "tenant", v->tenant);
    jw_kstr(w, "instance", v->instance);
    jw_kstr(w, "displayName", str_of(v->display_name));
    jw_kstr(w, "state", str_of(v->state));
    jw_ki64(w, "sessions", (int64_t)v->sessions);
    jw_ki64(w, "entries", (int64_t)v->entries);
    jw_ki64(w, "bytes", (int64_t)v->bytes);
    jw_ki64(w, "unacked", (int64_t)v->unacked);
    jw_ki64(w, "parked", (int64_t)v->parked);
    admin_time(w, "oldestAt", v->oldest_ms);
    admin_time(w, "lastInboundAt", v->last_inbound_ms);
    admin_time(w, "lastOutboundAt", v->last_outbound_ms);
    admin_time(w, "flippedAt", v->asleep_since_ms);
    admin_time(w, "lastPokeAt", v->last_poke_ms);
    jw_kbool(w, "wakeUrlRegistered", v->wake_url);
    jw_kbool(w, "gone", v->gone);
    jw_kstr(w, "pokeProblem", str_of(v->last_poke_problem));
    if (v->allowance != NULL) {
        char text[64];
        snprintf(text, sizeof text, "%u/%s per %s", v->allowance->turns,
                 grant_period_word(v->allowance->period),
                 v->allowance->per_chat ? "chat" : "person");
        jw_kstr(w, "allowance", str_of(text));
    }
}

static void offer_instance(struct admin_list_page *p, const struct instance_view *v)
{
    if (is_meant(p->state, str_of(v->state)) && (!p->waiting || v->entries + v->parked > 0) &&
        page_takes(p, v->tenant, v->instance)) {
        jw_obj(&p->w);
        admin_write_instance(&p->w, v);
        jw_end_obj(&p->w);
    }
}

struct instance_view admin_view_unmet(const struct front *f, struct str tenant, struct str instance)
{
    return (struct instance_view){.tenant = tenant,
                                  .instance = instance,
                                  .state = "never",
                                  .wake_url = facts_wake_url(f->facts, tenant, instance) != NULL};
}

/* Writes the instances without a mailbox yet: their gateway never connected and received nothing.
 * Begins with the gateway at @it. */
static void write_unmet(struct admin_list_page *p, struct list *it)
{
    const struct front *f = p->f;
    struct list *head;
    struct instance_view v;

    facts_gateways(f->facts, &head);
    for (; it != head; it = it->next) {
        const struct gateway *g = list_entry(it, struct gateway, link);
        struct str tenant = str_of(g->tenant), instance = str_of(g->instance);
        if (!page_has_room(p)) {
            buf_printf(&p->next, "u%s",
                       it->prev != head ? list_entry(it->prev, struct gateway, link)->id : "");
            return;
        }
        if (g->revoked_ms != 0 || !facts_is_first(f->facts, g) ||
            relay_instance(f->relay, tenant, instance, &v))
            continue;
        v = admin_view_unmet(f, tenant, instance);
        offer_instance(p, &v);
    }
}

void admin_write_store(struct front *f, struct jw *w)
{
    struct store_stats s;

    f->store->ops->stats(f->store, &s);
    jw_kobj(w, "store");
    jw_kstr(w, "kind", str_of(f->store->ops->name));
    jw_kbool(w, "healthy", s.healthy);
    jw_kstr(w, "problem", s.healthy ? STR_NULL : str_of(s.problem));
    jw_ki64(w, "queued", (int64_t)s.queued);
    jw_ki64(w, "commits", (int64_t)s.commits);
    jw_ki64(w, "failed", (int64_t)s.failed_ops);
    jw_ki64(w, "bytesOnDisk", s.bytes_on_disk);
    jw_end_obj(w);
}

void admin_write_platforms(struct front *f, struct jw *w, struct str tenant)
{
    int64_t now_ms = clock_wall_ms(loop_clock(f->loop));
    char why[160];

    jw_karr(w, "platforms");
    for (size_t i = 0; i < host_n_platforms(f->host); i++) {
        struct platform *p = host_nth_platform(f->host, i);
        struct str owner = rights_tenant_of(f->facts, str_of(p->ops->name), str_of(p->bot));
        if (tenant.p != NULL && !str_eq(tenant, owner))
            continue;
        jw_obj(w);
        jw_kstr(w, "platform", str_of(p->ops->name));
        jw_kstr(w, "bot", str_of(p->bot));
        jw_kstr_opt(w, "tenant", owner);
        if (p->ops->http != NULL && p->ops->page_visitor == NULL) {
            BUF_LOCAL url = BUF_INIT;
            if (platform_webhook_url(p, &url))
                jw_kstr(w, "webhook", buf_str(&url));
        }
        jw_kstr_opt(w, "host", str_of(p->hook_host));
        jw_kstr(w, "problem", str_of(p->problem));
        admin_time(w, "lastEventAt", p->last_event_ms);
        jw_ki64(w, "usualGapMs", platform_usual_gap_ms(p));
        jw_kstr(w, "deaf", platform_is_deaf(p, now_ms, why) ? str_of(why) : STR_NULL);
        platform_status(p, w);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

static void write_carrier(void *ctx, struct str node, size_t connections)
{
    struct jw *w = ctx;

    jw_obj(w);
    jw_kstr(w, "node", node);
    jw_ki64(w, "connections", (int64_t)connections);
    jw_end_obj(w);
}

static void write_hop(struct front *f, struct jw *w)
{
    struct redis_hop_state s = redis_hop_state(f->hop);

    jw_kobj(w, "redis");
    jw_kstr(w, "at", str_of(s.at));
    jw_kstr(w, "problem", *s.problem != '\0' ? str_of(s.problem) : STR_NULL);
    if (s.heard_ms >= 0)
        jw_ki64(w, "heardMsAgo", s.heard_ms);
    jw_end_obj(w);
}

static void write_own_node(struct front *f, struct jw *w)
{
    jw_kobj(w, "node");
    jw_kstr(w, "name", str_of(node_name(f->node)));
    jw_ki64(w, "epoch", (int64_t)node_epoch(f->node));
    jw_ki64(w, "leaseLeftMs", node_left_ms(f->node));
    jw_karr(w, "carriers");
    trunk_each(f->server, write_carrier, w);
    jw_end_arr(w);
    if (f->hop != NULL)
        write_hop(f, w);
    jw_end_obj(w);
}

static void write_server(struct front *f, struct jw *w)
{
    struct list *unused;
    char confined[160];

    jw_kstr(w, "version", STR(BELLHOP_VERSION));
    jw_ki64(w, "pid", getpid());
    jw_ki64(w, "startedAt", f->started_ms);
    jw_ki64(w, "now", clock_wall_ms(loop_clock(f->loop)));
    jw_kbool(w, "draining", f->draining || f->leaving);
    jw_kstr(w, "listen", str_of(f->listen));
    jw_ki64(w, "port", http_server_port(f->server));
    jw_kstr(w, "publicUrl", str_of(f->public_url));
    jw_kstr(w, "url", str_of(f->base_url));
    jw_kstr(w, "stateDir", str_of(f->state_dir));
    jw_kstr(w, "config", str_of(f->config_path));
    jw_kstr(w, "awaitsRestart", str_of(f->awaits_restart));
    jw_ki64(w, "connections", (int64_t)http_server_connections(f->server));
    jw_ki64(w, "edges", (int64_t)http_server_edges(f->server));
    jw_ki64(w, "gateways", (int64_t)facts_gateways(f->facts, &unused));
    jw_ki64(w, "routes", (int64_t)facts_routes(f->facts, &unused));
    jw_ki64(w, "links", (int64_t)map_count(&facts_gate(f->facts)->authors));
    confine_describe(f->confined, confined, sizeof confined);
    jw_kstr(w, "confined", str_of(confined));
    if (f->node != NULL)
        write_own_node(f, w);
    jw_kbool(w, "fullyConfined", f->confined->landlock > 0 && f->confined->seccomp > 0);
    jw_kobj(w, "wake");
    jw_kbool(w, "allowPrivate", f->wake->allow_private);
    jw_ki64(w, "timeoutMs", f->wake->timeout_ms);
    jw_end_obj(w);
}

static void BH_PRINTF(5, 6) write_warning(struct jw *w, const char *what, struct str platform,
                                          struct str bot, const char *fmt, ...)
{
    char words[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    jw_obj(w);
    jw_kstr(w, "what", str_of(what));
    jw_kstr_opt(w, "platform", platform);
    jw_kstr_opt(w, "bot", bot);
    jw_kstr(w, "words", str_of(words));
    jw_end_obj(w);
}

/* What needs the operator.  Each is computed now, so it is gone when its cause is. */
static void write_warnings(struct front *f, struct jw *w)
{
    int64_t now_ms = clock_wall_ms(loop_clock(f->loop));
    struct relay_tally t;
    struct store_stats st;
    struct sender_stats s;
    char why[160];

    relay_tally(f->relay, &t);
    f->store->ops->stats(f->store, &st);
    jw_karr(w, "warnings");
    if (t.parked > 0)
        write_warning(w, "dead_letters", STR_NULL, STR_NULL,
                      "%" PRIu64 " %s set aside after too many attempts. See: bellhop mailbox dead",
                      t.parked, t.parked == 1 ? "delivery was" : "deliveries were");
    if (!st.healthy || st.full)
        write_warning(w, "store", STR_NULL, STR_NULL, "%s",
                      st.full ? "The disk is nearly full: new messages are refused." : st.problem);
    for (int i = 0; i < LIMIT_N; i++) {
        uint64_t held = ledger_held(f->ledger, NULL, (enum limit)i);
        uint64_t most = ledger_bounds(f->ledger, (enum limit)i).all;
        if (most > 0 && held >= most - most / 5)
            write_warning(w, "limit", STR_NULL, STR_NULL,
                          "limits.%s: %" PRIu64 " of %" PRIu64 " are in use. See: bellhop help "
                          "limits",
                          limit_rows[i].name, held, most);
    }
    for (size_t i = 0; i < host_n_platforms(f->host); i++) {
        struct platform *p = host_nth_platform(f->host, i);
        struct str platform = str_of(p->ops->name), bot = str_of(p->bot);
        if (p->problem != NULL)
            write_warning(w, "bot", platform, bot, "%s", p->problem);
        else if (platform_is_deaf(p, now_ms, why))
            write_warning(w, "deaf", platform, bot, "%s", why);
        if (p->sender == NULL)
            continue;
        sender_stats(p->sender, &s);
        if (s.kept_unknown > 0)
            write_warning(w, "outbox", platform, bot,
                          "%zu message%s may or may not have been delivered. See: bellhop outbox "
                          "list",
                          s.kept_unknown, s.kept_unknown == 1 ? "" : "s");
    }
    jw_end_arr(w);
}

static void write_instances(struct admin_list_page *p)
{
    char kind = p->after.n > 0 ? p->after.p[0] : '\0';
    struct str cursor = kind != '\0' ? str_skip(p->after, 1) : STR_NULL;
    const struct gateway *g = kind == 'u' ? facts_gateway(p->f->facts, cursor) : NULL;
    struct instance_view v;
    struct list *head;
    uint64_t pos = 0;

    facts_gateways(p->f->facts, &head);
    if (kind == 'm' && !str_to_u64(cursor, &pos))
        pos = 0;
    if (p->tenant.n > 0 && p->instance.n > 0) { /* one instance, without a walk */
        if (relay_instance(p->f->relay, p->tenant, p->instance, &v)) {
            offer_instance(p, &v);
        } else if (facts_newest_gateway(p->f->facts, p->tenant, p->instance) != NULL) {
            v = admin_view_unmet(p->f, p->tenant, p->instance);
            offer_instance(p, &v);
        }
    } else if (kind == 'u') {
        write_unmet(p, g != NULL ? g->link.next : head->next);
    } else { /* those that the relay knows come first */
        uint32_t at = (uint32_t)pos;
        bool more = true;
        while (more && page_has_room(p))
            if ((more = relay_next_instance(p->f->relay, &at, &v)))
                offer_instance(p, &v);
        if (more)
            buf_printf(&p->next, "m%" PRIu32, at);
        else
            write_unmet(p, head->next);
    }
}

static void status(struct op_call *c)
{
    struct admin_list_page p;

    if (!page_begin(c, &p))
        return;
    p.state = op_text(c, "state");
    p.waiting = op_value(c, "waiting")->given;
    if (p.after.n == 0 && !c->for_tenant) { /* only the first page has what is no list */
        write_server(c->f, &p.w);
        admin_write_store(c->f, &p.w);
        admin_write_platforms(c->f, &p.w, STR_NULL);
        write_warnings(c->f, &p.w);
    }
    jw_karr(&p.w, "instances");
    write_instances(&p);
    jw_end_arr(&p.w);
    page_end(&p);
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
    identity_write(w, g);
    jw_ki64(w, "secrets", live);
    jw_kbool(w, "acks", !g->ackless);
    jw_kstr(w, "displayName", str_of(g->display_name));
    jw_kstr(w, "generation", g->newer ? STR("newer") : STR("older"));
    admin_time(w, "createdAt", g->created_ms);
    admin_time(w, "rotatedAt", g->rotated_ms);
    admin_time(w, "revokedAt", g->revoked_ms);
    jw_end_obj(w);
}

static void list_gateways(struct op_call *c)
{
    struct admin_list_page p;
    struct list *head, *it;

    if (!page_begin(c, &p))
        return;
    const struct gateway *g = facts_gateway(c->f->facts, p.after);
    facts_gateways(c->f->facts, &head);
    jw_karr(&p.w, "gateways");
    for (it = g != NULL ? g->link.next : head->next; it != head && page_has_room(&p);
         it = it->next) {
        g = list_entry(it, struct gateway, link);
        if (page_takes(&p, str_of(g->tenant), str_of(g->instance)))
            write_gateway(c->f, &p.w, g);
    }
    jw_end_arr(&p.w);
    if (it != head)
        buf_add_z(&p.next, list_entry(it->prev, struct gateway, link)->id);
    page_end(&p);
}

static void write_route(struct jw *w, const struct route *r)
{
    jw_obj(w);
    jw_kstr(w, "platform", str_of(r->platform));
    jw_kstr(w, "key", str_of(r->key));
    jw_kstr(w, "tenant", str_of(r->tenant));
    jw_kstr(w, "instance", str_of(r->instance));
    jw_kbool(w, "open", r->open);
    jw_kbool(w, "leads", facts_route_leads(r));
    jw_kstr(w, "origin", r->origin == ROUTE_OPERATOR ? STR("operator") : STR("provision"));
    jw_end_obj(w);
}

/* The cursor of a route: its four names, each followed by a newline, which no name contains. */
static const struct route *route_of_text(const struct front *f, struct str text)
{
    struct str name[4];

    for (size_t i = 0; i < ARRAY_LEN(name); i++)
        if (!str_split(&text, '\n', &name[i]))
            return NULL;
    return facts_find_route(f->facts, name[0], name[1], name[2], name[3]);
}

static void list_routes(struct op_call *c)
{
    struct admin_list_page p;
    struct list *head, *it;

    if (!page_begin(c, &p))
        return;
    const struct route *r = route_of_text(c->f, p.after);
    if (p.after.n > 0 && r == NULL) {
        buf_done(&p.from);
        op_error(c, 410, "gone", ADMIN_GONE);
        return;
    }
    facts_routes(c->f->facts, &head);
    jw_karr(&p.w, "routes");
    for (it = r != NULL ? r->link.next : head->next; it != head && page_has_room(&p);
         it = it->next) {
        r = list_entry(it, struct route, link);
        if (page_takes(&p, str_of(r->tenant), str_of(r->instance)))
            write_route(&p.w, r);
    }
    jw_end_arr(&p.w);
    if (it != head) {
        r = list_entry(it->prev, struct route, link);
        buf_printf(&p.next, "%s\n%s\n%s\n%s\n", r->platform, r->key, r->tenant,
                   r->instance != NULL ? r->instance : "");
    }
    page_end(&p);
}

/* ---- mailboxes ---- */

bool admin_name_instance(struct op_call *c, struct str tenant, struct str instance)
{
    struct instance_view v;
    size_t n;

    if (str_is_empty(instance)) {
        op_error(c, 400, "malformed", "Which instance?");
        return false;
    }
    if (!str_is_empty(tenant)) {
        n = facts_knows(c->f->facts, tenant, instance) ||
            relay_instance(c->f->relay, tenant, instance, &v);
    } else {
        n = facts_tenants_with(c->f->facts, instance, true, &tenant);
        bool unknown = n == 0; /* without gateway and route it may still have a mailbox */
        for (uint32_t pos = 0; unknown && n < 2 && relay_next_instance(c->f->relay, &pos, &v);)
            if (str_eq(v.instance, instance) && n++ == 0)
                tenant = v.tenant;
    }
    if (n == 1) {
        c->tenant = str_dup(tenant);
        c->instance = str_dup(instance);
    } else if (n == 0) {
        op_error(c, 404, "not_found", "There is no instance \"%.*s\".", STR_FMT(instance));
    } else {
        op_error(c, 409, "ambiguous",
                 "Several tenants have an instance \"%.*s\"; say which with --tenant.",
                 STR_FMT(instance));
    }
    return n == 1;
}

struct showing { /* a mailbox being read */
    struct op_call *c;
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
        media_add_urls(s->c->f, frame, &placed);
        jw_kraw(&s->w, "frame", buf_str(&placed));
        buf_done(&placed);
    }
    jw_end_obj(&s->w);
}

static void on_shown(void *ctx, enum bh_err err)
{
    struct showing *s = ctx;

    jw_end_arr(&s->w);
    jw_key(&s->w, "more"); /* messages beyond the limit or beyond the size of one answer */
    jw_u64(&s->w, s->waiting > s->shown ? s->waiting - s->shown : 0);
    jw_end_obj(&s->w);
    /* BH_NOT_FOUND: no mailbox yet, so it is empty */
    op_done(s->c, err == BH_NOT_FOUND ? BH_OK : err, "The store does not answer.");
}

static void show_mailbox(struct op_call *c)
{
    struct instance_view view;

    if (!admin_name_instance(c, op_text(c, "tenant"), op_text(c, "instance")))
        return;
    struct showing *s = xcalloc(1, sizeof *s);
    struct str tenant = str_of(c->tenant), instance = str_of(c->instance);
    *s = (struct showing){.c = c, .w = op_begin(c), .bodies = op_value(c, "bodies")->given};
    op_keep(c, s, free);
    if (relay_instance(c->f->relay, tenant, instance, &view))
        s->waiting = view.entries;
    jw_obj(&s->w);
    jw_kstr(&s->w, "tenant", tenant);
    jw_kstr(&s->w, "instance", instance);
    jw_karr(&s->w, "entries");
    relay_mailbox_show(c->f->relay, tenant, instance, (size_t)op_number(c, "limit", 100), on_line,
                       on_shown, s);
}

/* ---- limits ---- */

static void list_limits(struct op_call *c)
{
    struct jw w = op_begin(c);

    jw_obj(&w);
    jw_karr(&w, "limits");
    for (int i = 0; i < LIMIT_N; i++) {
        jw_obj(&w);
        jw_kstr(&w, "name", str_of(limit_rows[i].name));
        jw_kstr(&w, "what", str_of(limit_rows[i].what));
        jw_kstr(&w, "unit", limit_rows[i].unit == LIMIT_BYTES ? STR("bytes") : STR("count"));
        jw_kstr(&w, "per", str_of(limit_rows[i].per));
        jw_ki64(&w, "held", (int64_t)ledger_held(c->f->ledger, NULL, (enum limit)i));
        jw_ki64(&w, "most", (int64_t)ledger_bounds(c->f->ledger, (enum limit)i).all);
        jw_ki64(&w, "each", (int64_t)ledger_bounds(c->f->ledger, (enum limit)i).each);
        jw_ki64(&w, "refused", (int64_t)ledger_refused(c->f->ledger, (enum limit)i));
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    op_end(c);
}

/* ---- the table ---- */

#define AFTER \
    { \
        "after", IN_QUERY, OP_TEXT, .what = "next of the last page." \
    }

const struct op ops_lists[] = {
    {"status", "GET", "/admin/status", MAY_OPERATOR, status,
     "The server, its platforms and its instances, in pages.", .tenant_view = true,
     .args = (const struct op_arg[]){AFTER,
                                     INSTANCE_ARGS(IN_QUERY),
                                     {"state", IN_QUERY, OP_TEXT, .what = "In this state."},
                                     {"waiting", IN_QUERY, OP_TEXT, .one_of = "1",
                                      .what = "Only those whose mailbox is not empty."},
                                     {0}},
     .answer = "object", .answer_what = "instances, next where there are more; the rest once."},
    {"listGateways", "GET", "/admin/gateways", MAY_OPERATOR, list_gateways, "Gateways, in pages.",
     .tenant_view = true, .args = (const struct op_arg[]){AFTER, INSTANCE_ARGS(IN_QUERY), {0}},
     .answer = "{gateways: [object], next?: text}", .answer_what = "Without their secrets."},
    {"listRoutes", "GET", "/admin/routes", MAY_OPERATOR, list_routes, "Routes, in pages.",
     .tenant_view = true, .args = (const struct op_arg[]){AFTER, INSTANCE_ARGS(IN_QUERY), {0}},
     .answer = "{routes: [object], next?: text}", .answer_what = "In the order they were made.",
     .errors = "gone (410): after names a route that was removed"},
    {"showMailbox", "GET", "/admin/mailbox", MAY_OPERATOR, show_mailbox,
     "What waits for an instance, oldest first.", .tenant_view = true,
     .args = (const struct op_arg[]){INSTANCE_ARGS(IN_QUERY),
                                     {"limit", IN_QUERY, OP_WHOLE, .initial = "100",
                                      .what = "At most so many."},
                                     {"bodies", IN_QUERY, OP_TEXT, .one_of = "1",
                                      .what = "With the frames."},
                                     {0}},
     .answer = "{tenant: text, instance: text, entries: [object], more: whole}",
     .answer_what = "more: those that are not shown.",
     .errors = "malformed (400), not_found (404), ambiguous (409), unavailable (503)"},
    {"listLimits", "GET", "/admin/limits", MAY_OPERATOR, list_limits,
     "How much of each limit is in use.", .answer = "{limits: [object]}",
     .answer_what = "0: no limit. `refused` counts from the start."},
    {0},
};
