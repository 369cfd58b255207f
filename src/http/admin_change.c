/* admin_change.c - the changes of the operator: gateways, routes, mailboxes, tokens, the outbox.
 *
 * A change answers when it is on disk.  A new secret or token is shown in that one answer and kept
 * nowhere. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include "base/clock.h"
#include "base/log.h"
#include "dispatch/dispatch.h"
#include "host/host.h"
#include "http/admin.h"
#include "http/v1.h"
#include "net/loop.h"
#include "platform/sender.h"
#include "relay/relay.h"
#include "tenancy/enroll.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

/* ---- gateways ---- */

#define ROTATION_KEEP_MS 3600000

static bool is_open_by_nature(struct str platform)
{
    const struct platform_ops *ops = platform_find(platform);

    return ops != NULL && ops->open_by_nature;
}

static bool is_asked_open(const struct op_call *c, struct str platform)
{
    return op_flag(c, "open") || is_open_by_nature(platform);
}

struct opening {       /* of a place to everybody, for a tenant */
    struct str tenant; /* borrowed */
    struct jw *w;
    bool told;
};

static void BH_PRINTF(2, 3) warn(struct jw *w, const char *fmt, ...)
{
    char text[640];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    jw_str(w, str_of(text));
}

static void on_target(void *ctx, struct str tenant, struct str instance)
{
    struct opening *o = ctx;

    if (!o->told && !str_eq(tenant, o->tenant))
        warn(o->w,
             "the tenant \"%.*s\" has an open route there too, so both tenants receive what people "
             "write. See: bellhop route list",
             STR_FMT(tenant));
    o->told |= !str_eq(tenant, o->tenant);
}

static void warn_of_others(struct op_call *c, struct jw *w, struct str platform, struct str key)
{
    struct opening o = {.tenant = op_text(c, "tenant"), .w = w};

    if (facts_has_route(c->f->facts, platform, key))
        facts_each_target(c->f->facts, platform, key, on_target, &o);
}

/* Revoking a gateway leaves the routes of its instance, which the next one then has. */
static void warn_of_earlier(struct op_call *c, struct jw *w, struct str id,
                            const struct gateway_for *b)
{
    struct str tenant = op_text(c, "tenant"), given = op_text(c, "instance"),
               instance = given.n > 0 ? given : id;
    const struct route *r = facts_find_route(c->f->facts, b->platform, b->bot, tenant, instance);

    if (r != NULL && r->open)
        warn(w,
             "everybody who writes to the %.*s bot %.*s reaches the instance: an open route of "
             "earlier. To close it: bellhop route remove --platform %.*s --key %.*s --tenant %.*s "
             "--instance %.*s",
             STR_FMT(b->platform), STR_FMT(b->bot), STR_FMT(b->platform), STR_FMT(b->bot),
             STR_FMT(tenant), STR_FMT(instance));
}

/* The bots that a gateway is added for: `platform` and `bot` name one, `bots` names several.  One
 * more than the limit is read, so that the facts refuse it. */
static size_t read_bots(const struct op_call *c, struct gateway_for ret_bots[IDENTITIES_MAX + 1])
{
    struct str platform = op_text(c, "platform");
    struct json list = op_value(c, "bots")->json;
    size_t n = 0;

    if (platform.p != NULL)
        ret_bots[n++] =
            (struct gateway_for){platform, op_text(c, "bot"), is_asked_open(c, platform)};
    for (struct json_iter it = {0}; n <= IDENTITIES_MAX && json_next(list, &it);) {
        platform = json_str(it.value, "platform");
        ret_bots[n++] =
            (struct gateway_for){platform, json_str(it.value, "bot"), is_asked_open(c, platform)};
    }
    return n;
}

/* Writes whether a bot is open to anybody, lets people link themselves, and is configured here. */
static void tell_bot(const struct op_call *c, struct jw *w, const struct gateway_for *b)
{
    jw_obj(w);
    jw_kstr(w, "platform", b->platform);
    jw_kstr(w, "bot", b->bot);
    jw_kbool(w, "open", b->open);
    jw_kbool(w, "linkable", platform_find(b->platform) != NULL && !is_open_by_nature(b->platform));
    jw_kbool(w, "configured", host_platform(c->f->host, b->platform, b->bot) != NULL);
    jw_end_obj(w);
}

static void tell_secret(struct op_call *c, struct str id, struct str secret,
                        const struct gateway_for *bots, size_t n_bots)
{
    struct jw w = op_begin(c);

    jw_obj(&w);
    jw_kbool(&w, "ok", true);
    jw_kstr(&w, "id", id);
    jw_kstr(&w, "secret", secret);
    jw_kstr(&w, "url", str_of(c->f->base_url));
    jw_karr(&w, "bots");
    for (size_t i = 0; i < n_bots; i++)
        tell_bot(c, &w, &bots[i]);
    jw_end_arr(&w);
    jw_karr(&w, "warnings");
    for (size_t i = 0; i < n_bots; i++)
        if (bots[i].open)
            warn_of_others(c, &w, bots[i].platform, bots[i].bot);
        else
            warn_of_earlier(c, &w, id, &bots[i]);
    jw_end_arr(&w);
    jw_end_obj(&w);
}

static void add_gateway(struct op_call *c)
{
    struct gateway_for bots[IDENTITIES_MAX + 1];
    size_t n = read_bots(c, bots);
    struct buf id = BUF_INIT, secret = BUF_INIT;

    facts_gateway_add(c->f->facts,
                      &(struct gateway_spec){.id = op_text(c, "id"),
                                             .tenant = op_text(c, "tenant"),
                                             .instance = op_text(c, "instance"),
                                             .wake_url = op_text(c, "wakeUrl"),
                                             .bots = bots,
                                             .n_bots = n},
                      &id, &secret, op_done, c);
    buf_printf(&c->note, "gateway added: gateway=%.*s tenant=%.*s", STR_FMT(buf_str(&id)),
               STR_FMT(op_text(c, "tenant")));
    for (size_t i = 0; i < n; i++)
        buf_printf(&c->note, " platform=%.*s bot=%.*s%s", STR_FMT(bots[i].platform),
                   STR_FMT(bots[i].bot), bots[i].open ? " open" : "");
    tell_secret(c, buf_str(&id), buf_str(&secret), bots, n);
    buf_done(&id);
    buf_wipe(&secret);
}

static void rotate_gateway(struct op_call *c)
{
    struct str id = op_text(c, "id");
    struct buf secret = BUF_INIT;

    facts_gateway_rotate(c->f->facts, id, op_number(c, "keepMs", ROTATION_KEEP_MS), &secret,
                         op_done, c);
    buf_printf(&c->note, "gateway secret rotated: gateway=%.*s", STR_FMT(id));
    tell_secret(c, id, buf_str(&secret), NULL, 0);
    buf_wipe(&secret);
}

/* Writes the answer of a change that shows no secret. */
static void tell_gateway(struct op_call *c, const char *what)
{
    struct jw w = op_begin(c);
    struct str id = op_text(c, "id");

    buf_printf(&c->note, "%s: gateway=%.*s", what, STR_FMT(id));
    jw_obj(&w);
    jw_kbool(&w, "ok", true);
    jw_kstr_opt(&w, "id", id);
    jw_end_obj(&w);
}

static void revoke_gateway(struct op_call *c)
{
    facts_gateway_revoke(c->f->facts, op_text(c, "id"), op_done, c);
    tell_gateway(c, "gateway revoked");
}

static void set_gateway(struct op_call *c)
{
    facts_gateway_set(c->f->facts, op_text(c, "id"), op_text(c, "wakeUrl"), op_done, c);
    tell_gateway(c, "gateway wake URL set");
}

/* ---- routes ---- */

static struct route_spec route_of(const struct op_call *c)
{
    return (struct route_spec){.platform = op_text(c, "platform"),
                               .key = op_text(c, "key"),
                               .tenant = op_text(c, "tenant"),
                               .instance = op_text(c, "instance"),
                               .open = is_asked_open(c, op_text(c, "platform"))};
}

static void note_route(struct op_call *c, const char *what, const struct route_spec *r)
{
    bool one = r->instance.p != NULL;

    buf_printf(&c->note, "%s: platform=%.*s key=%.*s tenant=%.*s%s%.*s%s", what,
               STR_FMT(r->platform), STR_FMT(r->key), STR_FMT(r->tenant), one ? " instance=" : "",
               STR_FMT(r->instance), r->open ? " open" : "");
}

/* Writes the answer, with warnings about names that may be mistyped. */
static void tell_route(struct op_call *c, const struct route_spec *r)
{
    struct jw w = op_begin(c);

    jw_obj(&w);
    jw_kbool(&w, "ok", true);
    jw_karr(&w, "warnings");
    if (!facts_tenant_is_live(c->f->facts, r->tenant))
        warn(&w,
             "the tenant \"%.*s\" has no gateway yet, so the route leads nowhere until one is "
             "added: bellhop gateway add --tenant %.*s",
             STR_FMT(r->tenant), STR_FMT(r->tenant));
    else if (r->instance.p != NULL &&
             facts_newest_gateway(c->f->facts, r->tenant, r->instance) == NULL)
        warn(&w,
             "the tenant \"%.*s\" has no gateway of an instance \"%.*s\", so the route leads "
             "nowhere until one is added. See: bellhop gateway list",
             STR_FMT(r->tenant), STR_FMT(r->instance));
    if (r->open)
        warn_of_others(c, &w, r->platform, r->key);
    jw_end_arr(&w);
    jw_end_obj(&w);
}

static void add_route(struct op_call *c)
{
    struct route_spec spec = route_of(c);

    if (platform_find(spec.platform) == NULL) {
        struct buf known = BUF_INIT;
        for (size_t i = 0; platforms[i] != NULL; i++)
            buf_printf(&known, "%s%s", i > 0 ? ", " : "", platforms[i]->name);
        op_error(c, 400, "malformed", "there is no platform \"%.*s\". There are: %s",
                 STR_FMT(spec.platform), buf_z(&known));
        buf_done(&known);
        return;
    }
    if (!spec.open && host_platform(c->f->host, spec.platform, spec.key) != NULL) {
        op_error(c, 400, "malformed",
                 "\"%.*s\" is a bot, and its chats may belong to several tenants. Open the bot to "
                 "everybody with --open, or add a route for each of its places",
                 STR_FMT(spec.key));
        return;
    }
    note_route(c, "route added", &spec);
    tell_route(c, &spec);
    facts_route_add(c->f->facts, &spec, op_done, c);
}

static void remove_route(struct op_call *c)
{
    struct route_spec spec = route_of(c);

    note_route(c, "route removed", &spec);
    facts_route_remove(c->f->facts, &spec, op_done, c);
}

/* ---- mailboxes ---- */

static void change_mailbox(struct op_call *c, bool purge)
{
    if (!admin_name_instance(c, op_text(c, "tenant"), op_text(c, "instance")))
        return;
    struct str tenant = str_of(c->tenant), instance = str_of(c->instance);
    uint64_t n = purge ? relay_mailbox_purge(c->f->relay, tenant, instance)
                       : relay_parked_change(c->f->relay, tenant, instance, NULL, 0, false);
    buf_printf(&c->note, "mailbox %s: tenant=%s instance=%s deliveries=%" PRIu64,
               purge ? "purged" : "redriven", c->tenant, c->instance, n);
    buf_printf(&c->out, "{\"ok\":true,\"deliveries\":%" PRIu64 "}", n);
    op_done(c, BH_OK, NULL);
}

static void purge_mailbox(struct op_call *c)
{
    change_mailbox(c, true);
}

static void redrive_mailbox(struct op_call *c)
{
    change_mailbox(c, false);
}

static void reload(struct op_call *c)
{
    struct buf said = BUF_INIT;
    enum bh_err err = c->f->reload(c->f->reload_ctx, &said);
    struct jw w = op_begin(c);

    jw_obj(&w);
    jw_kbool(&w, "ok", true);
    jw_kstr(&w, "said", buf_str(&said));
    jw_end_obj(&w);
    op_done(c, err == BH_OK ? BH_OK : BH_MALFORMED, buf_z(&said));
    buf_done(&said);
}

/* ---- tokens ---- */

#define ENROLL_TTL_MS 3600000
#define PROVISION_TTL_MS (365ll * 24 * 3600 * 1000)

/* Writes the answer that shows a new token.  @until_ms 0: it never expires. */
static void tell_token(struct op_call *c, const struct key_made *made, int64_t until_ms)
{
    static const char *const shown[] = {"tenant", "identity", "agent", "instance", "namespace"};
    struct str kind = op_text(c, "kind");
    struct jw w = op_begin(c);

    if (kind.p == NULL)
        kind = STR("provision");
    buf_printf(&c->note, "%.*s token made:", STR_FMT(kind));
    if (made->id.n > 0)
        buf_printf(&c->note, " id=%.*s", STR_FMT(buf_str(&made->id)));
    for (size_t i = 0; i < ARRAY_LEN(shown); i++)
        if (op_text(c, shown[i]).n > 0)
            buf_printf(&c->note, " %s=%.*s", shown[i], STR_FMT(op_text(c, shown[i])));
    buf_add_z(&c->note, op_flag(c, "readOnly") ? " read-only" : "");
    jw_obj(&w);
    if (made->id.n > 0)
        jw_kstr(&w, "id", buf_str(&made->id));
    jw_kstr(&w, "token", buf_str(&made->text));
    if (made->secret.n > 0)
        jw_kstr(&w, "secret", buf_str(&made->secret));
    if (str_eq(kind, STR("hook"))) /* shown as a capability URL */
        jw_kstr_opt(&w, "url", str_of(c->f->base_url));
    if (until_ms != 0)
        jw_ki64(&w, "expiresAt", until_ms);
    jw_end_obj(&w);
}

/* Signed tokens.  The store records an enrollment token when it is used, a provision token when it
 * is made. */
static void make_local_token(struct op_call *c, bool enroll, int64_t now_ms)
{
    struct json_parser *parser = json_parser_new();
    struct key_made made = {0};
    struct local_token t = {.kind = enroll ? TOKEN_ENROLL : TOKEN_PROVISION,
                            .tenant = op_text(c, "tenant"),
                            .instance = op_text(c, "instance"),
                            .wake_url = op_text(c, "wakeUrl")};
    int64_t ttl_ms = op_number(c, "ttlMs", 0);
    const char *why;

    if (ttl_ms == 0)
        ttl_ms = enroll ? ENROLL_TTL_MS : PROVISION_TTL_MS;
    t.exp_ms = now_ms + ttl_ms;
    local_token_mint(c->f->facts, &t, &made.text);
    if (enroll) {
        tell_token(c, &made, t.exp_ms);
        op_done(c, BH_OK, NULL);
    } else if (local_token_read(c->f->facts, buf_str(&made.text), t.kind, parser, &t, &why)) {
        buf_add(&made.id, t.nonce.p, KEY_ID_CHARS);
        tell_token(c, &made, t.exp_ms);
        keys_note_minted(c->f->keys, &t, op_done, c);
    } else { /* a tenant's name that does not survive the way there and back */
        op_done(c, BH_MALFORMED, why);
    }
    key_made_done(&made);
    json_parser_free(parser);
}

static void make_token(struct op_call *c)
{
    struct str kind = op_text(c, "kind");
    bool hook = str_eq(kind, STR("hook")), dashboard = str_eq(kind, STR("dashboard"));
    const struct op_value *sign = op_value(c, "signature");
    int64_t now_ms = clock_wall_ms(loop_clock(c->f->loop)), ttl_ms = op_number(c, "ttlMs", 0);
    struct key_made made = {0};
    struct key_spec spec = {.kind = hook        ? KEY_HOOK
                                    : dashboard ? KEY_DASHBOARD
                                                : KEY_AGENT,
                            .with_secret = hook && (!sign->given || sign->flag),
                            .tenant = op_text(c, "tenant"),
                            .identity = op_text(c, "identity"),
                            .agent = op_text(c, "agent"),
                            .instance = op_text(c, "instance"),
                            .ns = op_text(c, "namespace"),
                            .attest = op_flag(c, "attest"),
                            .read_only = op_flag(c, "readOnly"),
                            .ttl_ms = ttl_ms};

    if (hook && str_is_empty(spec.tenant))
        spec.tenant = v1_operator_tenant(c->f, spec.agent);
    if (hook && str_is_empty(spec.tenant)) {
        if (dispatch_has_entry(c->f->dispatch, spec.agent))
            op_error(c, 400, "malformed", "Which tenant's agent? Name the tenant with --tenant.");
        else
            op_error(c, 404, "not_found",
                     "There is no agent '%.*s' with an entry (bellhop agents list). For an agent "
                     "without one name the tenant with --tenant.",
                     STR_FMT(spec.agent));
    } else if (!facts_name_ok(spec.tenant) && !(dashboard && spec.tenant.p == NULL)) {
        op_error(c, 400, "malformed",
                 "tenant must be 1 to 128 printable characters without blanks");
    } else if (hook || dashboard || str_eq(kind, STR("agent"))) {
        keys_make(c->f->keys, &spec, &made, op_done, c);
        tell_token(c, &made, ttl_ms > 0 ? now_ms + ttl_ms : 0);
    } else {
        make_local_token(c, str_eq(kind, STR("enroll")), now_ms);
    }
    key_made_done(&made);
}

static void write_key(struct jw *w, const struct key *k)
{
    jw_obj(w);
    jw_kstr(w, "id", str_of(k->id));
    jw_kstr(w, "kind", str_of(key_kind_word(k->kind)));
    jw_kstr(w, "tenant", str_of(k->tenant));
    jw_kstr(w, "identity", str_of(k->identity));
    jw_kstr(w, "agent", str_of(k->agent));
    jw_kstr(w, "instance", str_of(k->instance));
    jw_kstr(w, "namespace", str_of(k->ns));
    jw_kbool(w, "attest", k->attest);
    jw_kbool(w, "readOnly", k->read_only);
    admin_time(w, "madeAt", k->made_ms);
    admin_time(w, "usedAt", k->used_ms);
    admin_time(w, "expiresAt", k->until_ms);
    admin_time(w, "revokedAt", k->revoked_ms);
    jw_end_obj(w);
}

static void list_tokens(struct op_call *c)
{
    struct jw w = op_begin(c);
    const struct list *head;

    keys_all(c->f->keys, &head);
    jw_arr(&w);
    for (const struct list *it = head->next; it != head; it = it->next)
        write_key(&w, list_entry(it, struct key, link));
    jw_end_arr(&w);
    op_end(c);
}

static void on_token_revoked(void *ctx, enum bh_err err, const char *why)
{
    struct op_call *c = ctx;

    v1_check_keys(c->f);
    op_done(c, err, why);
}

static void revoke_token(struct op_call *c)
{
    struct str id = op_text(c, "id");
    const struct key *k = keys_find(c->f->keys, id);

    if (k != NULL)
        buf_printf(&c->note, "%s token revoked: id=%s tenant=%s identity=%s",
                   key_kind_word(k->kind), k->id, k->tenant,
                   k->identity != NULL ? k->identity : "");
    keys_revoke(c->f->keys, id, on_token_revoked, c);
}

/* ---- outbox ---- */

enum { MOST = 1000 }; /* entries in one answer */

struct listing {
    struct jw *w;
    const struct platform *p;
    struct str tenant; /* only of this one; empty: of all */
    size_t n;
    bool whole;
};

static void on_view(void *ctx, const struct outgoing_view *v)
{
    struct listing *l = ctx;
    const struct outgoing_entry *e = &v->e;
    struct jw *w = l->w;
    char id[24];

    if ((l->tenant.n > 0 && !str_eq(l->tenant, e->from.tenant)) || l->n++ >= MOST)
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
        if (e->action.text.n > 0)
            jw_kraw(w, "action", e->action.text);
        else
            jw_kvalue(w, "action", e->action.value);
    }
    jw_end_obj(w);
}

static bool read_id(struct str text, uint64_t *ret)
{
    struct str head = STR("queued:");

    return str_to_u64(str_starts(text, head) ? str_skip(text, head.n) : text, ret) && *ret != 0;
}

#define NO_SUCH_ENTRY "There is nothing with this id in the outbox."

static void show_outbox(struct op_call *c)
{
    const struct op_value *id = op_value(c, "id");
    struct jw w = op_begin(c);
    uint64_t number = 0;
    struct listing l = {.w = &w, .whole = id->given, .tenant = op_text(c, "tenant")};

    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(c->f->loop)));
    jw_karr(&w, "entries");
    bool reads = !id->given || read_id(id->text, &number);
    for (size_t i = 0; reads && i < host_n_platforms(c->f->host); i++) {
        l.p = host_nth_platform(c->f->host, i);
        if (l.p->sender != NULL)
            sender_each(l.p->sender, number, on_view, &l);
    }
    jw_end_arr(&w);
    jw_ki64(&w, "more", l.n > MOST ? (int64_t)(l.n - MOST) : 0);
    jw_end_obj(&w);
    op_done(c, id->given && l.n == 0 ? BH_NOT_FOUND : BH_OK, NO_SUCH_ENTRY);
}

static enum bh_err change_one(struct op_call *c, struct str id, uint64_t *ret_number,
                              enum bh_err (*change)(struct sender *s, uint64_t number))
{
    enum bh_err err = BH_REFUSED;
    bool reads = read_id(id, ret_number);

    for (size_t i = 0; reads && err == BH_REFUSED && i < host_n_platforms(c->f->host); i++) {
        const struct platform *p = host_nth_platform(c->f->host, i);
        if (p->sender != NULL)
            err = change(p->sender, *ret_number);
    }
    return err;
}

static void change_outgoing(struct op_call *c, const char *verb,
                            enum bh_err (*change)(struct sender *s, uint64_t number))
{
    const struct op_value *ids = op_value(c, "ids");
    uint64_t number = 0, done = 0;

    for (size_t i = 0; i < ids->n_texts; i++)
        done += change_one(c, ids->texts[i], &number, change) == BH_OK;
    if (ids->given) {
        buf_printf(&c->note, "outbox: %s entries=%" PRIu64, verb, done);
        buf_printf(&c->out, "{\"ok\":true,\"done\":%" PRIu64 ",\"missing\":%" PRIu64 "}", done,
                   ids->n_texts - done);
        op_done(c, BH_OK, NULL);
        return;
    }
    enum bh_err err = change_one(c, op_text(c, "id"), &number, change);
    buf_printf(&c->note, "outbox: %s id=%" PRIu64, verb, number);
    if (err == BH_BUSY)
        op_error(c, 409, "busy",
                 "Its request is under way and cannot be called back; look again in a moment.");
    else
        op_done(c, err == BH_OK ? BH_OK : BH_NOT_FOUND, NO_SUCH_ENTRY);
}

static void retry_outgoing(struct op_call *c)
{
    change_outgoing(c, "retried", sender_retry);
}

static void drop_outgoing(struct op_call *c)
{
    change_outgoing(c, "dropped", sender_drop);
}

/* ---- the table ---- */

#define OK .answer = "{ok: bool}", .answer_what = "The change is on disk."
#define GATEWAY_ID \
    { \
        "id", IN_BODY, OP_TEXT, .what = "The gateway." \
    }
#define ENTRY_ID \
    {"id", IN_BODY, OP_TEXT, .what = "As the outbox lists it."}, \
    { \
        "ids", IN_BODY, OP_LIST, .max = 512, .what = "Several instead." \
    }
#define ROUTE_ARGS \
    (const struct op_arg[]) \
    { \
        {"platform", IN_BODY, OP_TEXT, .what = "Of the chats."}, \
            {"key", IN_BODY, OP_TEXT, .what = "The place, or the bot."}, \
            {"tenant", IN_BODY, OP_TEXT, .what = "Whose they are."}, \
            {"instance", IN_BODY, OP_TEXT, .what = "Of that tenant; else any."}, \
            {"open", IN_BODY, OP_BOOL, .what = "Anybody is heard there."}, \
        { \
            0 \
        } \
    }
#define MAILBOX_ERRORS "malformed (400), not_found (404), ambiguous (409)"
#define MAILBOX_ANSWER \
    .answer = "{ok: bool, deliveries: whole}", .answer_what = "How many they were."

const struct op ops_changes[] = {
    {"addGateway", "POST", "/admin/gateways/add", MAY_OPERATOR, add_gateway,
     "Make a gateway and its secret.",
     .args =
         (const struct op_arg[]){
             {"id", IN_BODY, OP_TEXT, .what = "Its name; else one is made."},
             {"tenant", IN_BODY, OP_TEXT, .what = "Whose agent it is."},
             {"instance", IN_BODY, OP_TEXT, .what = "Its instance; else its id."},
             {"wakeUrl", IN_BODY, OP_TEXT, .what = "A GET there wakes it."},
             {"platform", IN_BODY, OP_TEXT, .what = "It is reached by the chats of a bot there."},
             {"bot", IN_BODY, OP_TEXT, .what = "That bot."},
             {"bots", IN_BODY, OP_OTHER, .flags = OP_UNCHECKED,
              .schema = "[{platform: text, bot: text}]", .what = "Several bots, 16 at most."},
             {"open", IN_BODY, OP_BOOL, .what = "Anybody who writes to the bot is heard."},
             {0}},
     .answer = "{ok: bool, id: text, secret: text, url: text|null, bots: [{platform: text, bot: "
               "text, open: bool, linkable: bool, configured: bool}], warnings: [text]}",
     .answer_what = "The secret is shown only once.",
     .errors = "malformed (400), refused (403), conflict (409)"},
    {"rotateGateway", "POST", "/admin/gateways/rotate", MAY_OPERATOR, rotate_gateway,
     "Make a new secret.",
     .args = (const struct op_arg[]){GATEWAY_ID,
                                     {"keepMs", IN_BODY, OP_WHOLE, .initial = "3600000",
                                      .what = "How long the old secrets stay good."},
                                     {0}},
     .answer = "{ok: bool, id: text, secret: text, url: text|null, bots: [object], warnings: "
               "[text]}",
     .answer_what = "The secret is shown only once.",
     .errors = "malformed (400), refused (403), not_found (404)"},
    {"revokeGateway", "POST", "/admin/gateways/revoke", MAY_OPERATOR, revoke_gateway,
     "Refuse a gateway from now on.", .args = (const struct op_arg[]){GATEWAY_ID, {0}},
     .answer = "{ok: bool, id: text}", .answer_what = "Its sockets are closed.",
     .errors = "not_found (404)"},
    {"setGateway", "POST", "/admin/gateways/set", MAY_OPERATOR, set_gateway,
     "Set or remove the wake URL of a gateway.",
     .args = (const struct op_arg[]){GATEWAY_ID,
                                     {"wakeUrl", IN_BODY, OP_TEXT, .what = "Absent: none."},
                                     {0}},
     .answer = "{ok: bool, id: text}", .answer_what = "The change is on disk.",
     .errors = "malformed (400), refused (403), not_found (404)"},
    {"addRoute", "POST", "/admin/routes/add", MAY_OPERATOR, add_route,
     "Assign the chats of a place to a tenant.", .args = ROUTE_ARGS,
     .answer = "{ok: bool, warnings: [text]}", .answer_what = "The change is on disk.",
     .errors = "malformed (400), conflict (409)"},
    {"removeRoute", "POST", "/admin/routes/remove", MAY_OPERATOR, remove_route, "Remove a route.",
     .args = ROUTE_ARGS, OK, .errors = "malformed (400), not_found (404)"},
    {"purgeMailbox", "POST", "/admin/mailbox/purge", MAY_OPERATOR, purge_mailbox,
     "Delete what waits for an instance.", .tenant_view = true,
     .args = (const struct op_arg[]){INSTANCE_ARGS(IN_BODY), {0}}, MAILBOX_ANSWER,
     .errors = MAILBOX_ERRORS},
    {"redriveMailbox", "POST", "/admin/mailbox/redrive", MAY_OPERATOR, redrive_mailbox,
     "Deliver the parked messages of an instance again.", .tenant_view = true,
     .args = (const struct op_arg[]){INSTANCE_ARGS(IN_BODY), {0}}, MAILBOX_ANSWER,
     .errors = MAILBOX_ERRORS},
    {"reload", "POST", "/admin/reload", MAY_OPERATOR, reload, "Read the configuration again.",
     .answer = "{ok: bool, said: text}", .answer_what = "Which changes took effect.",
     .errors = "malformed (400)"},
    {"makeToken", "POST", "/admin/token", MAY_OPERATOR, make_token,
     "Make a token: for a gateway to enroll or provision itself, a key of a program, or a "
     "token that signs in at the dashboard.",
     .args =
         (const struct op_arg[]){
             {"kind", IN_BODY, OP_TEXT, .one_of = "enroll|provision|agent|hook|dashboard",
              .initial = "\"provision\"", .what = "Which."},
             {"tenant", IN_BODY, OP_TEXT,
              .what = "Whose; of a hook it may be left out where one tenant has the agent, and a "
                      "dashboard token without it is the operator's."},
             {"instance", IN_BODY, OP_TEXT, .what = "For this instance only."},
             {"wakeUrl", IN_BODY, OP_TEXT, .what = "enroll, provision: of its gateway."},
             {"agent", IN_BODY, OP_TEXT, .what = "agent, hook: for this agent only."},
             {"identity", IN_BODY, OP_TEXT, .what = "agent: who writes."},
             {"namespace", IN_BODY, OP_TEXT, .what = "agent: a store of its own."},
             {"attest", IN_BODY, OP_BOOL, .what = "agent: may name authors."},
             {"readOnly", IN_BODY, OP_BOOL, .what = "dashboard: may change nothing."},
             {"signature", IN_BODY, OP_BOOL, .initial = "true", .what = "hook: bodies are signed."},
             {"ttlMs", IN_BODY, OP_WHOLE, .what = "How long it is good; 0: the default."},
             {0}},
     .answer = "{id?: text, token: text, secret?: text, url?: text, expiresAt?: whole}",
     .answer_what = "The token is shown this once.", .errors = "malformed (400)"},
    {"listTokens", "GET", "/admin/tokens", MAY_OPERATOR, list_tokens,
     "Keys of programs and provision tokens.", .answer = "[object]",
     .answer_what = "Without the tokens themselves."},
    {"revokeToken", "POST", "/admin/tokens/revoke", MAY_OPERATOR, revoke_token,
     "Refuse a token from now on.",
     .args = (const struct op_arg[]){{"id", IN_BODY, OP_TEXT, .what = "As the list has it."}, {0}},
     OK, .errors = "not_found (404)"},
    {"showOutbox", "GET", "/admin/outbox", MAY_OPERATOR, show_outbox,
     "What agents said that is not delivered yet.", .tenant_view = true,
     .args = (const struct op_arg[]){{"id", IN_QUERY, OP_TEXT, .what = "One entry, whole."},
                                     {"tenant", IN_QUERY, OP_TEXT,
                                      .what = "Only what its agents said."},
                                     {0}},
     .answer = "{now: whole, entries: [object], more: whole}",
     .answer_what = "At most 1000; more says how many are left out.", .errors = "not_found (404)"},
    {"retryOutgoing", "POST", "/admin/outbox/retry", MAY_OPERATOR, retry_outgoing,
     "Try an entry of the outbox again now.", .args = (const struct op_arg[]){ENTRY_ID, {0}},
     .answer = "{ok: bool, done?: whole, missing?: whole}",
     .answer_what = "done and missing count those of ids.",
     .errors = "not_found (404), busy (409)"},
    {"dropOutgoing", "POST", "/admin/outbox/drop", MAY_OPERATOR, drop_outgoing,
     "Drop an entry of the outbox: it is not sent any more.",
     .args = (const struct op_arg[]){ENTRY_ID, {0}},
     .answer = "{ok: bool, done?: whole, missing?: whole}",
     .answer_what = "done and missing count those of ids.",
     .errors = "not_found (404), busy (409)"},
    {0},
};
