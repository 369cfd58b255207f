/* server.c - design.  (server.h has the contract.)
 *
 *      config -> state directory -> store -> master key -> facts -> host -> relay -> listeners ...
 *
 * Closing is not quite the reverse.  Platforms and sockets close first, so that sessions end while
 * the relay exists.  Then the store commits its queue and runs no callbacks.  The objects whose
 * memory the store was reading are freed last. */
#include "cli/server.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/observers.h"
#include "cli/confinement.h"
#include "cli/settings.h"
#include "cli/cluster_dirs.h"
#include "cluster/node.h"
#include "cluster/forwarder.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "dispatch/remote.h"
#include "edge/door.h"
#include "edge/vault.h"
#include "host/host.h"
#include "testbots/testbots.h"
#include "http/dashboard.h"
#include "http/idp.h"
#include "http/media_route.h"
#include "http/ops_care.h"
#include "http/v1.h"
#include "http/waker.h"
#include "mcp/mcp.h"
#include "media/media.h"
#include "net/edges.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/http_tls.h"
#include "net/loop.h"
#include "net/redis_hop.h"
#include "net/spawner.h"
#include "net/trunk.h"
#include "net/ws.h"
#include "platform/outgoing.h"
#include "platform/sender.h"
#include "relay/relay.h"
#include "relay/upkeep.h"
#include "skills/skills.h"
#include "store/journal_disk.h"
#include "store/postgres/postgres.h"
#include "store/store.h"
#include "tenancy/audit.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"
#include "tenancy/pairing.h"

/* ---- the agents of the configuration ---- */

static void act_on_mail(void *ctx, struct action_id id, const struct action_from *from,
                        const struct action *a)
{
    dispatch_act(ctx, id, from, a);
}

/* On a node that does not serve, the members of the heart are NULL. */
static struct dispatch_env dispatch_env_of(struct server *s)
{
    const struct wake_settings *wake = config_get(s->cfg, &wake_config);

    if (s->spawner != NULL)
        spawner_watch(s->spawner, s->front.loop);
    return (struct dispatch_env){.loop = s->front.loop,
                                 .clock = loop_clock(s->front.loop),
                                 .store = s->front.store,
                                 .rand = &s->rand,
                                 .facts = s->front.facts,
                                 .relay = s->front.relay,
                                 .http = s->http,
                                 .spawner = s->spawner,
                                 .ledger = s->front.ledger,
                                 .retention_ms = &s->host_env.retention_ms,
                                 .settings = config_get(s->cfg, &dispatch_config),
                                 .wake_allow_private = &wake->allow_private,
                                 .node = s->front.node != NULL ? node_name(s->front.node) : NULL,
                                 .server = s->front.server,
                                 .base_url = &s->front.base_url,
                                 .local_url = &s->local_url,
                                 .state_dir = s->settings->state_dir,
                                 .seal = s->seal};
}

static enum bh_err open_dispatch(struct server *s, char *why)
{
    struct dispatch_env de = dispatch_env_of(s);

    relay_retain(s->front.relay, s->settings->retention_ms);
    enum bh_err err = dispatch_open(&de, s->cfg, &s->front.dispatch, why);

    if (err == BH_OK)
        host_set_mail(s->front.host, &dispatch_outlet, act_on_mail, s->front.dispatch);
    return err;
}

/* ---- while another node serves ---- */

static void on_told(void *ctx, uint32_t number, struct str answer)
{
    struct server *s = ctx;

    forwarder_tell(s->forwarder, number, answer);
}

void server_start_runner(struct server *s)
{
    if (!dispatch_names_node(s->cfg, node_name(s->front.node)))
        return;
    s->http = http_client_new(s->front.loop);
    struct dispatch_env de = dispatch_env_of(s);
    s->runner = runner_new(&de, s->cfg, on_told, s);
}

void server_stop_runner(struct server *s)
{
    if (s->runner == NULL)
        return;
    runner_free(s->runner);
    s->runner = NULL;
    http_client_free(s->http);
    s->http = NULL;
}

/* ---- the skill store, the data store, and the tools over them ---- */

static bool read_approval_key(const char *setting, struct buf *pem, char *why)
{
    if (strncmp(setting, "-----", 5) == 0) {
        buf_add_z(pem, setting);
        return true;
    }
    if (file_read(setting, 65536, pem))
        return true;
    snprintf(why, 512, "skills.approval.public_key: %.200s: %s", setting, strerror(errno));
    return false;
}

static enum bh_err open_skills(struct server *s, char *why)
{
    const struct skills_settings *c = config_get(s->cfg, &skills_section);
    const char *kind = skills_kind(c, s->front.store->shared);
    bool files = strcmp(kind, "filesystem") == 0;
    bool secured = strcmp(c->approval_mode, "secured") == 0;
    char *path = files && c->dir != NULL
                     ? xstrdup(c->dir)
                     : state_dir_path(s->settings->state_dir, files ? "skills" : "skills.db");
    const struct store_settings *store = config_get(s->cfg, &store_config);
    struct skills_config sc = {.backend = kind,
                               .path = path,
                               .url = store->url,
                               .ledger = s->front.ledger};
    struct buf pem = BUF_INIT;
    enum bh_err err = BH_REFUSED;

    if (!secured || read_approval_key(c->approval_key, &pem, why)) {
        sc.approval_key = secured ? buf_z(&pem) : NULL;
        err = skills_open(s->front.loop, &sc, &s->front.skills, why);
    }
    buf_done(&pem);
    free(path);
    return err;
}

/* Opens what programs reach with a key: the stores, and the tools over them. */
static enum bh_err open_stores(struct server *s, char *why)
{
    const struct store_settings *store = config_get(s->cfg, &store_config);
    /* Files that are built from PostgreSQL are not those that have the entries. */
    char *data =
        state_dir_path(s->settings->state_dir, s->front.store->shared ? "fulltext" : "data");
    struct data_config dc = {.dir = data,
                             .url = s->front.store->shared ? store->url : NULL,
                             .epoch = s->front.node != NULL ? node_epoch(s->front.node) : 0,
                             .ledger = s->front.ledger};
    enum bh_err err = open_skills(s, why);

    if (err == BH_OK)
        err = data_open(s->front.loop, &dc, &s->front.data, why);
    free(data);
    if (err != BH_OK)
        return err;
    struct mcp_env me = {.clock = loop_clock(s->front.loop),
                         .rand = &s->rand,
                         .version = BELLHOP_VERSION,
                         .may = v1_may_again,
                         .may_ctx = &s->front,
                         .ledger = s->front.ledger,
                         .resources = &chat_resources,
                         .resources_ctx = &s->front,
                         .instructions =
                             "Skills are named texts with a status and a history; data "
                             "are notes found by their words. Both are shared by the "
                             "agents of one organisation. Where there are chat tools, "
                             "people write to you: read, answer, then say what you have "
                             "taken care of."};
    seal_mac(s->seal, STR("mcp sessions"), STR(""), me.session_key);
    s->front.mcp = mcp_new(&me);
    tools_add(s->front.mcp, &s->front);
    return BH_OK;
}

/* ---- opening ---- */

/* The programs of agents and of platforms. */
static enum bh_err open_spawner(struct server *s, char *why)
{
    size_t n = config_count(s->cfg, &platforms_config), used = 0;
    const char *const **commands = xcalloc(n + 1, sizeof *commands);
    char node[NODE_NAME_BYTES + 1];

    for (size_t i = 0; i < n; i++) {
        const struct platform_settings *bot = config_entry(s->cfg, &platforms_config, i);
        const struct platform_ops *ops = platform_find(str_of(bot->platform));
        char *const *argv = ops != NULL && ops->runs != NULL ? ops->runs(bot) : NULL;
        if (argv != NULL)
            commands[used++] = (const char *const *)argv;
    }
    enum bh_err err = dispatch_spawner(s->cfg, cluster_node_name(s->cfg, node),
                                       s->settings->state_dir, commands, used, &s->spawner, why);
    free(commands);
    return err;
}

static enum bh_err open_state(struct server *s, char *why)
{
    const struct settings *c = s->settings;
    enum bh_err err = state_dir_open(c->state_dir, why);

    if (err == BH_OK) /* before the sandbox, which the spawner must escape */
        err = open_spawner(s, why);
    if (err == BH_OK)
        err = confinement_of_files(s->cfg, &s->confined, why); /* before the store's threads */
    return err == BH_OK ? server_open_store(s, why) : err;
}

static void set_door(struct server *s)
{
    door_set_limits(s->front.door, config_get(s->cfg, &door_config));
}

static struct str tenant_of_gateway(void *ctx, struct str id)
{
    const struct gateway *g = facts_gateway(ctx, id);

    return g != NULL ? str_of(g->tenant) : STR_NULL;
}

static bool tenant_has_gateway(void *ctx, struct str tenant)
{
    return facts_tenant_is_live(ctx, tenant);
}

/* Grants change often and give no menu. */
static void on_fact(void *ctx, struct str about)
{
    if (!str_starts(about, STR("grant")))
        host_facts_changed(((struct server *)ctx)->front.host);
}

static int64_t alone_ms(void *ctx)
{
    return node_left_ms(((const struct server *)ctx)->front.node);
}

static const struct journal_settings *why_settings(const struct server *s)
{
    return config_get(s->cfg, &journal_config);
}

/* What is kept for `bellhop why` holds ids of people, so the retention counts if it is shorter. */
static int64_t why_keep_ms(const struct server *s)
{
    int64_t keep_ms = why_settings(s)->keep_ms, retention_ms = s->settings->retention_ms;

    return retention_ms > 0 && retention_ms < keep_ms ? retention_ms : keep_ms;
}

static enum bh_err open_journal(struct server *s, char *why)
{
    const struct store_settings *store = config_get(s->cfg, &store_config);
    char *dir = state_dir_path(s->settings->state_dir, "why");
    struct journal_disk_env env = {.loop = s->front.loop,
                                   .journal = s->journal = journal_new(),
                                   .dir = dir,
                                   .key = s->front.store->dedup_key,
                                   .keep_ms = why_keep_ms(s),
                                   .max_bytes = why_settings(s)->max_bytes,
                                   .spare_bytes = 2 * store->reserve};
    enum bh_err err = env.keep_ms > 0 ? journal_disk_open(&env, &s->front.journal, why) : BH_OK;

    free(dir);
    return err;
}

/* Deduplication keys are kept for as long as a configured platform repeats its events. */
static struct relay_limits relay_limits_of(const struct server *s)
{
    struct relay_limits limits = *(const struct relay_limits *)config_get(s->cfg, &relay_config);

    for (size_t i = 0; i < config_count(s->cfg, &platforms_config); i++) {
        const struct platform_settings *p = config_entry(s->cfg, &platforms_config, i);
        const struct platform_ops *ops = platform_find(str_of(p->platform));
        if (ops != NULL && ops->repeats_ms > limits.dedup_ms)
            limits.dedup_ms = ops->repeats_ms;
    }
    return limits;
}

static uint64_t acks_mark(void *relay)
{
    return relay_acks_mark(relay);
}

static uint64_t acks_safe(void *relay)
{
    return relay_acks_safe(relay);
}

static enum bh_err open_heart(struct server *s, char *why)
{
    struct clock *clock = loop_clock(s->front.loop);
    const struct auth_settings *auth = config_get(s->cfg, &auth_config);
    struct facts_env fe = {.clock = clock,
                           .store = s->front.store,
                           .observers = s->observers,
                           .rand = &s->rand,
                           .seal = s->seal,
                           .require_expiry = auth->require_expiry,
                           .ledger = s->front.ledger};
    struct relay_env re = {.clock = clock,
                           .store = s->front.store,
                           .observers = s->observers,
                           .rand = &s->rand,
                           .journal = s->journal};

    enum bh_err read =
        audit_open(clock, s->front.store, config_get(s->cfg, &audit_config), &s->front.audit, why);
    if (read != BH_OK)
        return read;
    fe.audit = s->front.audit;
    s->front.facts = facts_begin(&fe); /* facts and relay, the two largest, load in parallel */
    const struct relay_limits limits = relay_limits_of(s);
    enum bh_err loaded = relay_load(&re, &limits, &s->front.relay, why);
    enum bh_err err = facts_finish(s->front.facts, why);
    if (loaded != BH_OK || err != BH_OK)
        return loaded != BH_OK ? loaded : err;
    trunk_set_acks(s->front.server, &(struct trunk_acks){acks_mark, acks_safe, s->front.relay});
    struct keys_env ke = {clock, s->front.store, &s->rand, s->seal};
    if ((err = keys_open(&ke, &s->front.keys, why)) != BH_OK)
        return err;
    s->tenants = (struct vault_tenants){tenant_of_gateway, tenant_has_gateway, s->front.facts};
    err = vault_open(&(struct vault_env){clock, s->front.store, s->seal, s->observers, &s->tenants},
                     &s->vault, why);
    if (err != BH_OK)
        return err;
    s->http = http_client_new(s->front.loop);
    struct idp_env ie = {.clock = clock,
                         .http = s->http,
                         .facts = s->front.facts,
                         .keys = s->front.keys,
                         .cfg = config_get(s->cfg, &identity_config)};
    err = idp_open(&ie, &s->front.idp, why);
    if (err != BH_OK)
        return err;
    http_waker_init(&s->waker, s->http, config_get(s->cfg, &wake_config));
    if (s->spawner != NULL)
        spawner_watch(s->spawner, s->front.loop);
    s->host_env = (struct host_env){.loop = s->front.loop,
                                    .clock = clock,
                                    .store = s->front.store,
                                    .rand = &s->rand,
                                    .seal = s->seal,
                                    .vault = s->vault,
                                    .http = s->http,
                                    .server = s->front.server,
                                    .spawner = s->spawner,
                                    .state_dir = s->settings->state_dir,
                                    .ledger = s->front.ledger,
                                    .journal = s->journal,
                                    .public_url = s->settings->public_url,
                                    .retention_ms = s->settings->retention_ms,
                                    .outbox_max_age_ms = settings_max_age_ms(s->cfg),
                                    .alone_ms = s->front.node != NULL ? alone_ms : NULL,
                                    .alone_ctx = s};
    s->front.host = host_new(&s->host_env, s->front.facts);
    observers_add(s->observers, "facts", on_fact, s);
    s->front.door = door_new(&s->rand);
    set_door(s);
    struct pairing_env pe = {.clock = clock,
                             .store = s->front.store,
                             .facts = s->front.facts,
                             .settings = config_get(s->cfg, &pairing_config),
                             .retention_ms = &s->host_env.retention_ms};
    if ((err = pairing_open(&pe, &s->front.pairing, why)) != BH_OK)
        return err;
    re.facts = s->front.facts;
    re.pairing = s->front.pairing;
    re.waker = &s->waker.base;
    re.outside = host_outside(s->front.host);
    relay_begin(s->front.relay, &re);
    host_set_relay(s->front.host, s->front.relay);
    return BH_OK;
}

/* For media: true while a delivery or an outbox entry still needs its files. */
static bool delivery_waits(void *ctx, struct str tenant, struct str instance, uint64_t row)
{
    struct server *s = ctx;

    if ((row & SENDER_FILE_ROW) != 0)
        return host_outbox_holds(s->front.host, row);
    return relay_waits(s->front.relay, tenant, instance, row);
}

static enum bh_err open_media(struct server *s, char *why)
{
    const struct store_settings *store = config_get(s->cfg, &store_config);
    const struct media_settings *settings = config_get(s->cfg, &media_config);
    char *dir = settings->dir != NULL ? xstrdup(settings->dir)
                                      : state_dir_path(s->settings->state_dir, "media");
    struct media_env env = {.loop = s->front.loop,
                            .store = s->front.store,
                            .rand = &s->rand,
                            .seal = s->seal,
                            .http = s->http,
                            .settings = settings,
                            .dir = dir,
                            .off = s->front.store->shared && settings->dir == NULL,
                            .spare_bytes = 2 * store->reserve, /* files stop before messages do */
                            .is_waiting = delivery_waits,
                            .ctx = s};
    enum bh_err err = media_open(&env, &s->front.media, why);

    if (env.off)
        log_info(NULL, "media: " MEDIA_OFF);
    s->host_env.media = s->front.media;
    if (err == BH_OK)
        host_set_media(s->front.host, s->front.media);
    free(dir);
    return err;
}

/* The names of webhooks are names of this server, too. */
static void apply_http(struct server *s)
{
    size_t n = config_count(s->cfg, &platforms_config), kept = 0;
    const char **hosts = xcalloc(n + 1, sizeof *hosts);

    for (size_t i = 0; i < n; i++) {
        const struct platform_settings *p = config_entry(s->cfg, &platforms_config, i);
        if (p->host != NULL)
            hosts[kept++] = p->host;
    }
    http_settings_apply(s->front.server, config_get(s->cfg, &http_config), s->settings->listen,
                        s->settings->public_url, hosts);
    free(hosts);
}

static enum bh_err open_platforms(struct server *s, char *why)
{
    for (size_t i = 0; i < config_count(s->cfg, &platforms_config); i++) {
        const struct platform_settings *p = config_entry(s->cfg, &platforms_config, i);
        int line = config_entry_line(s->cfg, &platforms_config, i);
        char said[256] = "";
        enum bh_err err = host_open_platform(s->front.host, p, said);
        if (err == BH_OK)
            continue;
        if (line > 0)
            snprintf(why, 512, "%s:%d: %s %s: %s", config_entry_file(s->cfg, &platforms_config, i),
                     line, p->platform, p->bot, said);
        else
            snprintf(why, 512, "%s %s: %s", p->platform, p->bot, said);
        return err;
    }
    return BH_OK;
}

/* ---- listening ---- */

static const struct http_tls *tls_of(const struct config *cfg)
{
    return config_get(cfg, &tls_config);
}

/* The "host:port" of the listener for clients on this machine; a wildcard becomes loopback. */
static void authority(const struct server *s, struct buf *out)
{
    struct str listen = str_of(s->settings->listen);
    size_t colon = listen.n;

    while (colon > 0 && listen.p[colon - 1] != ':')
        colon--;
    struct str host = str_make(listen.p, colon > 0 ? colon - 1 : 0);
    if (str_is_empty(host) || str_eq(host, STR("0.0.0.0")) || str_eq(host, STR("*")))
        host = STR("127.0.0.1");
    if (str_eq(host, STR("[::]")))
        host = STR("[::1]");
    buf_printf(out, "%.*s:%d", STR_FMT(host), http_server_port(s->front.server));
}

static void name_url(struct server *s)
{
    struct buf base = BUF_INIT;

    if (s->settings->public_url != NULL) {
        buf_add_z(&base, s->settings->public_url);
    } else if (!str_starts(str_of(s->settings->listen), STR("unix:"))) {
        buf_add_z(&base, tls_of(s->cfg)->cert != NULL ? "https://" : "http://");
        authority(s, &base);
    }
    if (base.n > 0)
        s->front.base_url = buf_take(&base);
    buf_done(&base);
    if (!str_starts(str_of(s->settings->listen), STR("unix:"))) {
        buf_add_z(&base, tls_of(s->cfg)->cert != NULL ? "https://" : "http://");
        authority(s, &base);
        s->front.loopback_url = buf_take(&base);
    }
    /* With TLS the certificate is for the public name. */
    if (str_starts(str_of(s->settings->listen), STR("unix:")) || tls_of(s->cfg)->cert != NULL) {
        s->local_url = xstrdup(s->settings->public_url);
        return;
    }
    buf_add_z(&base, "http://");
    authority(s, &base);
    s->local_url = buf_take(&base);
}

enum bh_err server_listen(struct server *s, char *why)
{
    const struct settings *c = s->settings;
    const struct http_settings *hs = config_get(s->cfg, &http_config);
    const struct http_tls *tls = tls_of(s->cfg);
    struct buf admin = BUF_INIT;
    enum bh_err err;

    if (s->listening)
        return BH_OK;
    err = http_server_listen(s->front.server, str_of(c->listen), tls, 0660, why);

    if (err != BH_OK)
        return err;
    http_server_set_last(s->front.server,
                         &(struct http_listener){.proxy_protocol = hs->proxy_protocol});
    apply_http(s);
    buf_printf(&admin, "unix:%s/admin.sock", c->state_dir);
    err = http_server_listen(s->front.server, buf_str(&admin), NULL, 0600, why);
    buf_done(&admin);
    if (err != BH_OK)
        return err;
    http_server_set_last(s->front.server,
                         &(struct http_listener){.tag = front_admin_tag, .reserved = true});
    s->listening = true;
    return state_dir_write_port(c->state_dir, http_server_port(s->front.server), why);
}

/* Called when this process serves: while another node does, its one thread is enough. */
static enum bh_err open_edges(struct server *s, char *why)
{
    size_t n = settings_edges(s->settings);

    if (n == 0)
        return BH_OK;
    if (!str_starts(str_of(s->settings->listen), STR("unix:")))
        return http_server_start_edges(s->front.server, n, why);
    log_warn(NULL, "edges: listen is a Unix socket, which one thread serves; edges are ignored");
    return BH_OK;
}

static enum bh_err open_parts(struct server *s, char *why)
{
    enum bh_err err = open_state(s, why);

    s->observers = observers_new(loop_clock(s->front.loop));
    if (err == BH_OK && (err = open_journal(s, why)) == BH_OK &&
        (err = open_heart(s, why)) == BH_OK && (err = open_stores(s, why)) == BH_OK &&
        (err = open_media(s, why)) == BH_OK && (err = open_dispatch(s, why)) == BH_OK &&
        (err = server_listen(s, why)) == BH_OK && (err = open_platforms(s, why)) == BH_OK &&
        (err = open_edges(s, why)) == BH_OK)
        err = confinement_of_calls(s->cfg, &s->confined, why);
    return err;
}

enum bh_err server_open(struct server *s, struct config *cfg, char *ret_why)
{
    enum bh_err err;

    *s = (struct server){.cfg = cfg, .settings = settings_of(cfg), .rand = RAND_SYSTEM};
    s->front = (struct front){.loop = loop_new(),
                              .settings = config_get(cfg, &front_config),
                              .wake = config_get(cfg, &wake_config),
                              .v1 = config_get(cfg, &v1_config),
                              .listen = s->settings->listen,
                              .public_url = s->settings->public_url,
                              .state_dir = s->settings->state_dir,
                              .config_path = config_path(cfg),
                              .confined = &s->confined};
    if (s->front.loop == NULL) {
        snprintf(ret_why, 512, "no descriptor is left for the event loop");
        config_free(cfg);
        return BH_UNAVAILABLE;
    }
    list_init(&s->waker.under_way);
    *ret_why = '\0';
    s->front.ledger = ledger_new(config_get(cfg, &limits_config));
    s->front.server = http_server_new(s->front.loop, &http_limits_default, front_handle, &s->front);
    http_server_count(s->front.server, s->front.ledger);
    http_server_on_head(s->front.server, front_on_head);
    http_server_on_present(s->front.server, gateway_present);
    if ((err = open_parts(s, ret_why)) == BH_OK) {
        name_url(s);
        s->front.started_ms = clock_wall_ms(loop_clock(s->front.loop));
        s->front.standing_by = false;
        list_init(&s->front.op_calls);
        list_init(&s->front.downloads);
        list_init(&s->front.chat_asks);
        list_init(&s->front.chat_sends);
        s->front.dashboard = dashboard_new(&s->front, &s->rand);
        s->front.flow = flow_new(&s->front);
        server_meet_nodes(s);
        if (s->front.node != NULL)
            node_kept(s->front.node, lease_renewer_stop(&s->renewer));
        return BH_OK;
    }
    server_close(s);
    return err;
}

void server_part(struct server *s)
{
    if (s->front.node == NULL)
        return; /* nobody waits for the database */
    s->front.standing_by = true;
    host_set_mail(s->front.host, NULL, NULL, NULL);
    dispatch_close(s->front.dispatch);
    s->front.dispatch = NULL;
    pairing_flush(s->front.pairing);
    node_release(s->front.node);
}

void server_close(struct server *s)
{
    if (s->front.host != NULL)
        host_close_platforms(s->front.host);
    forwarder_free(s->forwarder);
    server_stop_runner(s);
    mcp_end_streams(s->front.mcp);
    dashboard_free(s->front.dashboard);
    http_server_free(s->front.server); /* every session ends here */
    redis_hop_close(s->hop);
    http_waker_done(&s->waker);
    idp_free(s->front.idp);
    mcp_free(s->front.mcp); /* its tools cancel their calls to the stores */
    chat_ops_drop(&s->front);
    mailbox_ops_drop(&s->front);
    skills_close(s->front.skills);
    data_close(s->front.data);
    if (s->front.host != NULL)
        host_set_mail(s->front.host, NULL, NULL, NULL);
    dispatch_close(s->front.dispatch);
    spawner_free(s->spawner);
    flow_free(s->front.flow);
    s->front.flow = NULL;
    journal_disk_close(s->front.journal);
    op_calls_drop(&s->front);
    if (s->front.host != NULL)
        host_set_media(s->front.host, NULL);
    media_downloads_drop(&s->front);
    media_close(s->front.media);
    http_client_free(s->http);
    lease_renewer_stop(&s->renewer);
    if (s->front.node != NULL) {
        loop_on_wake(s->front.loop, NULL, NULL);
        node_release(s->front.node);
    }
    pairing_flush(s->front.pairing);
    store_close(s->front.store);
    node_free(s->front.node);
    if (s->front.host != NULL)
        host_set_relay(s->front.host, NULL);
    relay_free(s->front.relay);
    host_free(s->front.host);
    testbots_free(s->front.testbots);
    journal_free(s->journal);
    door_free(s->front.door);
    vault_free(s->vault);
    keys_free(s->front.keys);
    pairing_free(s->front.pairing);
    facts_free(s->front.facts);
    audit_free(s->front.audit);
    observers_free(s->observers);
    seal_free(s->seal);
    secret_wipe(s->trunk_key, sizeof s->trunk_key);
    ledger_free(s->front.ledger);
    loop_free(s->front.loop);
    if (s->front.relay != NULL) /* the server was up: remove admin.sock and port */
        state_dir_forget(s->settings->state_dir);
    free(s->front.base_url);
    free(s->front.loopback_url);
    free(s->front.awaits_restart);
    free(s->local_url);
    config_free(s->cfg);
    *s = (struct server){.told_down = s->told_down};
}

/* ---- reload ---- */

static void say(struct buf *out, const char *what, struct buf *keys)
{
    struct str rest = str_trim(buf_str(keys)), key;

    if (keys->n == 0)
        return;
    buf_printf(out, "%s%s: ", out->n > 0 ? "; " : "", what);
    for (bool first = true; str_split(&rest, '\n', &key); first = false)
        buf_printf(out, "%s%.*s", first ? "" : ", ", STR_FMT(key));
}

/* Reads the files at every reload: they may have changed under the same names. */
static enum bh_err renew_tls(struct server *s, const struct config *now, struct buf *ret_said)
{
    const struct http_tls *is = tls_of(s->cfg), *will = tls_of(now);
    char why[256] = "tls: on or off needs a restart";
    enum bh_err err = (is->cert == NULL) == (will->cert == NULL) ? BH_OK : BH_REFUSED;

    if (err == BH_OK && will->cert != NULL)
        err = http_server_renew_tls(s->front.server, will, why);
    if (err != BH_OK)
        buf_add_z(ret_said, why);
    return err;
}

/* A node that waits for the lease has none of these. */
static void reload_heart(struct server *s)
{
    const struct relay_limits limits = relay_limits_of(s);
    const struct auth_settings *auth = config_get(s->cfg, &auth_config);

    relay_set_limits(s->front.relay, &limits);
    facts_set_require_expiry(s->front.facts, auth->require_expiry);
    set_door(s);
    s->host_env.retention_ms = s->settings->retention_ms;
    relay_retain(s->front.relay, s->settings->retention_ms);
    if (s->front.journal != NULL && why_keep_ms(s) > 0)
        journal_disk_set(s->front.journal, why_keep_ms(s), why_settings(s)->max_bytes);
    s->host_env.outbox_max_age_ms = settings_max_age_ms(s->cfg);
    dispatch_reload(s->front.dispatch, s->cfg);
}

enum bh_err server_reload(struct server *s, const char *path, struct buf *ret_said)
{
    struct buf reload = BUF_INIT, restart = BUF_INIT;
    struct config *now = NULL;
    enum bh_err err = settings_load(path, &now, ret_said);

    if (err == BH_OK)
        err = renew_tls(s, now, ret_said);
    if (err != BH_OK) {
        config_free(now);
        log_error(NULL, "reload: kept the old configuration: %s", buf_z(ret_said));
        return err;
    }
    config_diff(s->cfg, now, &reload, &restart);
    config_take_reloadable(s->cfg, now);
    config_free(now);
    ledger_set(s->front.ledger, config_get(s->cfg, &limits_config));
    apply_http(s);
    if (s->runner != NULL)
        runner_reload(s->runner, s->cfg);
    if (s->front.relay != NULL)
        reload_heart(s);
    log_apply(config_get(s->cfg, &log_config));
    say(ret_said, "taken", &reload);
    say(ret_said, "needs a restart", &restart);
    free(s->front.awaits_restart);
    s->front.awaits_restart = str_dup_opt(str_trim(buf_str(&restart)));
    if (ret_said->n == 0)
        buf_add_z(ret_said, "nothing has changed");
    buf_done(&reload);
    buf_done(&restart);
    log_info(NULL, "reload: %s", buf_z(ret_said));
    return BH_OK;
}
