/* manage.c - the management plane: authentication and operations.  (manage.h has the contract.)
 *
 * An operation calls one function of tenancy/grants.h and answers when the change is on disk.  An
 * argument of the wrong type is refused rather than ignored, because here most arguments are
 * restrictions. */
#include "http/manage.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/token.h"
#include "host/host.h"
#include "http/admin.h"
#include "http/idp.h"
#include "http/v1.h"
#include "net/loop.h"
#include "relay/relay.h"
#include "tenancy/grants.h"
#include "tenancy/rights.h"

static struct grant_who who_of(const struct op_call *c)
{
    return (struct grant_who){str_of(c->tenant), str_of(c->instance)};
}

/* ---- the operations ---- */

/* Warns of an id that proves nobody, and of bots that the server does not have: their name may be
 * mistyped. */
static void write_link_warnings(const struct op_call *c, struct jw *w, struct str platform,
                                struct str user, const struct str *bots, size_t n_bots)
{
    char text[512];

    jw_karr(w, "warnings");
    if (n_bots > 0 && user_id_unproven(platform, user))
        jw_str(w,
               STR("this id proves nobody, because others have or may get it too, so the link "
                   "counts nowhere. To hear everybody in a place: bellhop route add ... --open"));
    for (size_t i = 0; i < n_bots; i++) {
        if (str_eq(bots[i], STR("*")) || host_platform(c->f->host, platform, bots[i]) != NULL)
            continue;
        snprintf(text, sizeof text,
                 "the server has no bot \"%.*s\" of %.*s, so the link counts nowhere until one is "
                 "added under platforms: in the configuration. See: bellhop status",
                 STR_FMT(bots[i]), STR_FMT(platform));
        jw_str(w, str_of(text));
    }
    jw_end_arr(w);
}

/* An instance names one bot; only the operator's code may count on several bots, or on all. */
static void make_link_code(struct op_call *c)
{
    const struct op_value *bots = op_value(c, "bots");
    struct str bot = op_text(c, "bot");
    struct link_for on = {.platform = op_text(c, "platform"), .bots = &bot, .n_bots = bot.n > 0};
    struct buf code = BUF_INIT;
    int64_t expires_ms;

    if (!c->by_operator && (bots->given || str_eq(bot, STR("*")))) {
        op_error(c, 400, "malformed",
                 "Name one bot. A code for several bots is made by the operator: bellhop link "
                 "--bot B.");
        return;
    }
    if (bots->given) {
        on.bots = bots->texts;
        on.n_bots = bots->n_texts;
    }
    struct jw w = op_begin(c);
    link_code_new(c->f->facts, who_of(c), &on, &code, &expires_ms, op_done, c);
    jw_obj(&w);
    jw_kstr(&w, "code", buf_str(&code));
    jw_kstr_opt(&w, "platform", on.platform);
    jw_kstr_opt(&w, "bot", bot);
    jw_ki64(&w, "expiresAt", expires_ms);
    if (c->by_operator)
        write_link_warnings(c, &w, on.platform, STR_NULL, on.bots, on.n_bots);
    jw_end_obj(&w);
    buf_wipe(&code);
}

static struct grant_place place_of(const struct op_call *c)
{
    return (struct grant_place){op_text(c, "platform"), op_text(c, "guildId"),
                                op_text(c, "channelId")};
}

/* Claiming a place needs a person who is linked to the instance and may manage that place. */
static enum grant_word word_of(const struct op_call *c, struct grant_place at)
{
    if (c->by_operator)
        return GRANT_OPERATOR;
    return host_manages(c->f->host, who_of(c), at) ? GRANT_MANAGED : GRANT_CLAIMED;
}

static void claim_scope(struct op_call *c)
{
    struct grant_place at = place_of(c);

    grant_scope_claim(c->f->facts, who_of(c), at, word_of(c, at), op_done, c);
}

static void release_scope(struct op_call *c)
{
    grant_scope_release(c->f->facts, who_of(c), place_of(c), op_done, c);
}

static void set_principal(struct op_call *c)
{
    const struct op_value *allow = op_value(c, "allow");
    enum gate_principal mode = GATE_OWNER_ONLY;

    grant_principal_parse(op_text(c, "mode"), &mode); /* cannot fail: the table has the words */
    grant_principal(c->f->facts, who_of(c), op_text(c, "platform"), mode, allow->texts,
                    allow->n_texts, op_done, c);
}

static void set_policy(struct op_call *c)
{
    const struct op_value *places = op_value(c, "freeResponseScopes");
    struct grant_policy p = {.platform = op_text(c, "platform"),
                             .require_address = op_flag(c, "requireAddress"),
                             .allow_other_bots = op_flag(c, "allowOtherBots"),
                             .free_places = places->texts,
                             .n_free_places = places->n_texts};

    grant_policy(c->f->facts, who_of(c), &p, op_done, c);
}

static void set_dm_default(struct op_call *c)
{
    grant_dm_default(c->f->facts, who_of(c), op_text(c, "platform"), op_text(c, "userId"), op_done,
                     c);
}

static void deprovision(struct op_call *c)
{
    grant_deprovision(c->f->facts, who_of(c), op_done, c);
}

/* The operator needs no further proof.  Without bots a link counts on the platform's only bot. */
static void link_person(struct op_call *c)
{
    const struct op_value *bots = op_value(c, "bots");
    struct grant_person p = {op_text(c, "platform"), op_text(c, "userId"), bots->texts,
                             bots->n_texts};
    struct str only = host_only_bot(c->f->host, p.platform);
    bool remove = op_flag(c, "remove");

    if (!admin_name_instance(c, op_text(c, "tenant"), op_text(c, "instance")))
        return;
    if (p.n_bots == 0 && !remove) {
        p.bots = &only;
        p.n_bots = only.n > 0;
    }
    if (p.n_bots == 0 && !remove) {
        op_error(c, 400, "malformed",
                 "On which bot does the link count? Name it with --bot; --bot '*' means every bot "
                 "of the platform.");
        return;
    }
    buf_printf(&c->note, "%s: tenant=%s instance=%s platform=%.*s user=%.*s bots=",
               remove ? "person unlinked" : "person linked", c->tenant, c->instance,
               STR_FMT(p.platform), STR_FMT(p.user));
    for (size_t i = 0; i < p.n_bots; i++)
        buf_printf(&c->note, "%s%.*s", i > 0 ? "," : "", STR_FMT(p.bots[i]));
    if (p.n_bots == 0)
        buf_add_z(&c->note, "*");
    struct jw w = op_begin(c);
    jw_obj(&w);
    jw_kbool(&w, "ok", true);
    write_link_warnings(c, &w, p.platform, p.user, p.bots, remove ? 0 : p.n_bots);
    jw_end_obj(&w);
    (remove ? grant_unlink : grant_link)(c->f->facts, who_of(c), &p, op_done, c);
}

static void set_allowance(struct op_call *c)
{
    struct gate_allowance a = {.per_chat = str_eq(op_text(c, "per"), STR("chat"))};
    struct str turns = op_text(c, "turns"), reply = op_text(c, "reply");
    bool remove = op_flag(c, "remove");

    if (!admin_name_instance(c, op_text(c, "tenant"), op_text(c, "instance")))
        return;
    if (!remove && !grant_turns_parse(turns, &a.turns, &a.period)) {
        op_error(c, 400, "malformed",
                 "turns: expected a number and hour, day, week or month, such as 50/day, found "
                 "\"%.*s\"",
                 (int)(turns.n < 40 ? turns.n : 40), turns.p != NULL ? turns.p : "");
        return;
    }
    buf_printf(&c->note, "allowance %s: tenant=%s instance=%s turns=%.*s per=%s",
               remove ? "removed" : "set", c->tenant, c->instance, STR_FMT(turns),
               a.per_chat ? "chat" : "person");
    a.reply = reply.n > 0 ? str_dup(reply) : NULL;
    grant_allowance(c->f->facts, who_of(c), remove ? NULL : &a, op_done, c);
    free(a.reply);
}

static void set_tenant_default(struct op_call *c)
{
    struct str tenant = op_text(c, "tenant");

    buf_printf(&c->note, "default policy set: tenant=%.*s requireAddress=%s", STR_FMT(tenant),
               op_flag(c, "requireAddress") ? "true" : "false");
    grant_tenant_default(c->f->facts, tenant, op_flag(c, "requireAddress"), op_done, c);
}

/* For an agent that lets only its owners decide something. */
static void is_owner(struct op_call *c)
{
    struct right_at at = {.who = who_of(c),
                          .platform = op_text(c, "platform"),
                          .bot = op_text(c, "bot")};
    struct jw w = op_begin(c);

    jw_obj(&w);
    jw_kbool(&w, "owner", right_by_person(c->f->facts, &at, op_text(c, "userId")));
    jw_end_obj(&w);
    op_end(c);
}

/* The state of an instance, for a supervisor that decides when to put its agent to sleep. */
static void show_instance(struct op_call *c)
{
    struct grant_who who = who_of(c);
    struct instance_view v = {.state = "never"};
    const struct gateway *g = facts_newest_gateway(c->f->facts, who.tenant, who.instance);
    struct jw w = op_begin(c);

    relay_instance(c->f->relay, who.tenant, who.instance, &v);
    jw_obj(&w);
    jw_kstr(&w, "tenant", who.tenant);
    jw_kstr(&w, "instanceId", who.instance);
    jw_kstr(&w, "gatewayId",
            c->caller.key_id.p != NULL ? c->caller.key_id : str_of(g != NULL ? g->id : NULL));
    jw_kstr(&w, "state", str_of(v.state));
    admin_time(&w, "lastInboundAt", v.last_inbound_ms);
    admin_time(&w, "lastOutboundAt", v.last_outbound_ms);
    jw_ki64(&w, "unacked", (int64_t)v.unacked);
    jw_kobj(&w, "mailbox");
    jw_ki64(&w, "entries", (int64_t)v.entries);
    jw_ki64(&w, "bytes", (int64_t)v.bytes);
    admin_time(&w, "oldestAt", v.oldest_ms);
    jw_end_obj(&w);
    const char *wake_url = facts_wake_url(c->f->facts, who.tenant, who.instance);
    jw_kbool(&w, "wakeUrlRegistered", wake_url != NULL);
    jw_kstr(&w, "wakeUrl", str_of(wake_url)); /* so that the instance can test its own URL */
    admin_time(&w, "flippedAt", v.asleep_since_ms);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(c->f->loop))); /* clocks may differ */
    jw_end_obj(&w);
    op_end(c);
}

/* ---- who asks: an instance by its own credential, or the operator, who names the instance ---- */

static void refuse_stranger(struct op_call *c, const char *why)
{
    unsigned long long untold;

    if (front_may_log(c->f, &untold))
        log_warn(NULL, "management refused: op=%s reason=%s more=%llu", c->op->name, why, untold);
    op_error(c, 401, "unauthorized",
             "Send the bearer of a gateway (made from the id and secret that `bellhop gateway add` "
             "prints), or a token signed for its instance.");
}

/* A signed token may leave out its tenant, if only one tenant has such an instance. */
const struct gateway *gateway_of_claims(struct front *f, const struct idp_claims *claims)
{
    struct str tenant = claims->tenant;

    if (str_is_empty(tenant) && facts_tenants_with(f->facts, claims->instance, false, &tenant) != 1)
        return NULL;
    return facts_newest_gateway(f->facts, tenant, claims->instance);
}

bool bearer_looks_signed(struct str bearer)
{
    struct str part;
    size_t n = 0;

    while (str_split(&bearer, '.', &part))
        n++;
    return n == 3;
}

static void perform(struct op_call *c, struct str body)
{
    buf_printf(&c->note, "%s: tenant=%s instance=%s", c->op->log, c->tenant, c->instance);
    v1_run_body(c, body);
}

static void perform_as(struct op_call *c, const struct gateway *gw, struct str body)
{
    c->tenant = xstrdup(gw->tenant);
    c->instance = xstrdup(gw->instance);
    perform(c, body);
}

static void on_verified(void *ctx, enum bh_err err, const struct idp_claims *claims,
                        const char *why)
{
    struct op_call *c = ctx;
    const struct gateway *gw = err == BH_OK ? gateway_of_claims(c->f, claims) : NULL;

    if (err == BH_UNAVAILABLE)
        op_error(c, 503, "identity_unavailable", "%s", why);
    else if (gw == NULL)
        refuse_stranger(c,
                        err == BH_OK ? "no gateway has the instance that the token is for" : why);
    else
        perform_as(c, gw, str_of(c->mine));
}

void manage_name(struct op_call *c, struct str body, struct str tenant)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;

    c->by_operator = tenant.p == NULL;
    if (!json_parse(parser, body, &doc) || !json_is_object(doc))
        op_error(c, 400, "malformed", "Expected a JSON object.");
    else if (admin_name_instance(c, tenant.p != NULL ? tenant : json_str(doc, "tenant"),
                                 json_str(doc, "instance")))
        perform(c, body);
    json_parser_free(parser);
}

void manage_enter(struct front *f, struct http_req *req, const struct op *op)
{
    struct str header = http_header(req, "Authorization"), bearer = token_of_header(header);
    struct str body = http_body(req);
    const struct gateway *gw = NULL;
    const char *why;

    if (http_listener_tag(req) != front_admin_tag && front_is_draining(f, req))
        return;
    struct op_call *c = op_call_new(f, op);
    c->id = http_req_id(req);
    if (http_listener_tag(req) == front_admin_tag) {
        manage_name(c, body, STR_NULL);
    } else if (bearer_looks_signed(bearer)) {
        op_keep(c, xstrndup(body.p != NULL ? body.p : "", body.n), free);
        idp_ask(f->idp, IDP_INSTANCE, bearer, on_verified, c);
    } else if (facts_authenticate(f->facts, header, &gw, &why) != AUTH_OK) {
        refuse_stranger(c, why);
    } else {
        c->caller.key_id = str_of(gw->id);
        perform_as(c, gw, body);
    }
}

/* ---- what the operator reads: grants ---- */

static void list_grants(struct op_call *c)
{
    struct jw w = op_begin(c);
    struct grants_page at = {0};
    char after[48], next[48];

    snprintf(after, sizeof after, "%.*s", STR_FMT(op_text(c, "after")));
    sscanf(after, "%" SCNu64 ".%" SCNu64, &at.instance, &at.binding);
    jw_obj(&w);
    if (grants_write(c->f->facts, (struct grant_who){op_text(c, "tenant"), op_text(c, "instance")},
                     &at, &w)) {
        snprintf(next, sizeof next, "%" PRIu64 ".%" PRIu64, at.instance, at.binding);
        jw_kstr(&w, "next", str_of(next));
    }
    jw_end_obj(&w);
    op_end(c);
}

/* ---- the table ---- */

#define CHANGE \
    .body_may_be_empty = true, .answer = "{ok: bool}", .answer_what = "The change is on disk."
#define PLACE \
    {"platform", IN_BODY, OP_TEXT, .flags = OP_REQUIRED, .what = "Of the place."}, \
        {"guildId", IN_BODY, OP_TEXT, .flags = OP_REQUIRED, \
         .what = "The guild; the group chat where there are none."}, \
    { \
        "channelId", IN_BODY, OP_TEXT, .flags = OP_REQUIRED, \
                                       .what = "A channel of it; `*`: all others." \
    }

const struct op ops_manage[] = {
    {"link", "POST", "/manage/link", MAY_GATEWAY, make_link_code,
     "Make a code; whoever sends it to the bot is linked to the instance.", .log = "link code made",
     .operator_path = "/admin/manage/link", .body_may_be_empty = true,
     .args = (const struct op_arg[]){{"platform", IN_BODY, OP_TEXT, .what = "Only there."},
                                     {"bot", IN_BODY, OP_TEXT,
                                      .what = "Only on this bot of the platform; else the link "
                                              "counts on the bot that the code is sent to."},
                                     {"bots", IN_BODY, OP_LIST, .max = LINK_BOTS_MAX,
                                      .what = "The operator only: the link counts on all of "
                                              "them; `*`: on every bot."},
                                     {0}},
     .answer = "{code: text, platform?: text, bot?: text, expiresAt: whole, warnings?: [text]}",
     .answer_what = "Good once, within ten minutes.",
     .errors = "malformed (400), refused (403), rate_limited (429)"},
    {"claimScope", "POST", "/manage/scope", MAY_GATEWAY, claim_scope,
     "Give a place to the instance.", .log = "scope claimed",
     .operator_path = "/admin/manage/scope", CHANGE, .args = (const struct op_arg[]){PLACE, {0}},
     .errors = "malformed (400), scope_taken (409), rate_limited (429)"},
    {"releaseScope", "POST", "/manage/scope/release", MAY_GATEWAY, release_scope,
     "Give a place back.", .log = "scope released", .operator_path = "/admin/manage/scope/release",
     CHANGE, .args = (const struct op_arg[]){PLACE, {0}},
     .errors = "malformed (400), not_found (404)"},
    {"setPrincipal", "POST", "/manage/principal", MAY_GATEWAY, set_principal,
     "Say whom the instance listens to.", .log = "principal set",
     .operator_path = "/admin/manage/principal", CHANGE,
     .args =
         (const struct op_arg[]){
             {"platform", IN_BODY, OP_TEXT, .what = "There; else where nothing else is set."},
             {"mode", IN_BODY, OP_TEXT, .flags = OP_REQUIRED, .one_of = "owner-only|allow-list|any",
              .what = "Linked people, a list, or everybody."},
             {"allow", IN_BODY, OP_LIST, .max = GRANT_LIST_MAX, .what = "User ids."},
             {0}},
     .errors = "malformed (400), rate_limited (429)"},
    {"setPolicy", "POST", "/relay/policy", MAY_GATEWAY, set_policy,
     "Say which messages of a place are for the instance; replaces the policy of the platform.",
     .log = "policy set", .operator_path = "/admin/manage/policy", CHANGE,
     .args =
         (const struct op_arg[]){
             {"platform", IN_BODY, OP_TEXT, .flags = OP_REQUIRED, .what = "Where."},
             {"requireAddress", IN_BODY, OP_BOOL, .what = "Only what addresses the bot."},
             {"allowOtherBots", IN_BODY, OP_BOOL, .what = "What other bots say, too."},
             {"freeResponseScopes", IN_BODY, OP_LIST, .max = GRANT_LIST_MAX,
              .what = "Channels, threads and topics where requireAddress "
                      "does not hold; a topic also as group:topic."},
             {0}},
     .errors = "malformed (400), rate_limited (429)"},
    {"setDmDefault", "POST", "/manage/dm-default", MAY_GATEWAY, set_dm_default,
     "Make this instance the one that gets a person's direct messages.",
     .log = "default instance for direct messages set", .operator_path = "/admin/manage/dm-default",
     CHANGE,
     .args = (const struct op_arg[]){{"platform", IN_BODY, OP_TEXT, .flags = OP_REQUIRED,
                                      .what = "Of the person."},
                                     {"userId", IN_BODY, OP_TEXT, .flags = OP_REQUIRED,
                                      .what = "A linked person."},
                                     {0}},
     .errors = "malformed (400), not_found (404)"},
    {"deprovision", "POST", "/manage/deprovision", MAY_GATEWAY, deprovision,
     "End the instance: its gateways are revoked and its grants deleted.",
     .log = "instance deprovisioned", .operator_path = "/admin/manage/deprovision", CHANGE},
    {"showInstance", "GET", "/manage/instance", MAY_GATEWAY, show_instance,
     "The state of the instance and of its mailbox.", .log = "instance shown",
     .operator_path = "/admin/manage/instance",
     .answer = "{tenant: text, instanceId: text, gatewayId: text|null, state: "
               "live|away|asleep|never, lastInboundAt: whole|null, lastOutboundAt: whole|null, "
               "unacked: whole, mailbox: {entries: whole, bytes: whole, oldestAt: whole|null}, "
               "wakeUrlRegistered: bool, wakeUrl: text|null, flippedAt: whole|null, now: whole}",
     .answer_what = "Times are unix milliseconds."},
    {"isOwner", "POST", "/manage/owner", MAY_GATEWAY, is_owner,
     "Whether a person is linked to the instance.", .log = "owner looked up",
     .args =
         (const struct op_arg[]){
             {"platform", IN_BODY, OP_TEXT, .flags = OP_REQUIRED, .what = "Of the person."},
             {"userId", IN_BODY, OP_TEXT, .flags = OP_REQUIRED, .what = "The person."},
             {"bot", IN_BODY, OP_TEXT, .what = "The bot that the person wrote to."},
             {0}},
     .answer = "{owner: bool}", .answer_what = "A link counts on its own bots.",
     .errors = "malformed (400)"},
    {"linkPerson", "POST", "/admin/manage/person", MAY_OPERATOR, link_person,
     "Link a person to an instance, or unlink them, without a code.", .body_may_be_empty = true,
     .answer = "{ok: bool, warnings: [text]}", .answer_what = "The change is on disk.",
     .args = (const struct op_arg[]){INSTANCE_ARGS(IN_BODY),
                                     {"platform", IN_BODY, OP_TEXT, .what = "Of the person."},
                                     {"userId", IN_BODY, OP_TEXT, .what = "The person."},
                                     {"bots", IN_BODY, OP_LIST, .max = LINK_BOTS_MAX,
                                      .what = "The link counts on these bots; `*`: on every "
                                              "bot. Else on the platform's only bot."},
                                     {"remove", IN_BODY, OP_BOOL,
                                      .what = "Unlink them: from the bots, else from all."},
                                     {0}},
     .errors = "malformed (400), refused (403), not_found (404), ambiguous (409)"},
    {"setAllowance", "POST", "/admin/manage/allowance", MAY_OPERATOR, set_allowance,
     "Limit how many deliveries each person, or each chat, may cause in a period.", CHANGE,
     .args =
         (const struct op_arg[]){INSTANCE_ARGS(IN_BODY),
                                 {"turns", IN_BODY, OP_TEXT,
                                  .what = "How many, and in which period: `50/day`; also `hour`, "
                                          "`week`, `month`."},
                                 {"per", IN_BODY, OP_TEXT, .one_of = "person|chat",
                                  .what = "Who shares it; else each person."},
                                 {"reply", IN_BODY, OP_TEXT,
                                  .what = "What a person over it is told, once per period."},
                                 {"remove", IN_BODY, OP_BOOL, .what = "Remove the limit."},
                                 {0}},
     .errors = "malformed (400), not_found (404), ambiguous (409)"},
    {"setTenantDefault", "POST", "/admin/manage/tenant", MAY_OPERATOR, set_tenant_default,
     "Say whether instances of a tenant that have no policy must be addressed.", CHANGE,
     .args = (const struct op_arg[]){{"tenant", IN_BODY, OP_TEXT, .what = "Whose."},
                                     {"requireAddress", IN_BODY, OP_BOOL, .what = "They must."},
                                     {0}},
     .errors = "malformed (400)"},
    {"listGrants", "GET", "/admin/grants", MAY_OPERATOR, list_grants,
     "Links, scopes, principals, policies and choices, in pages.", .tenant_view = true,
     .args = (const struct op_arg[]){INSTANCE_ARGS(IN_QUERY),
                                     {"after", IN_QUERY, OP_TEXT, .what = "next of the last page."},
                                     {0}},
     .answer = "object",
     .answer_what = "bindings, scopes, principals, policies, allowances, dmDefaults."},
    {0},
};
