/* doctor.c - bellhop doctor: checks everything that commonly goes wrong and says what to fix.
 *
 * doctor never changes anything.  It creates no missing database or key.  It connects to wake URLs
 * but sends no request, because a request would wake the agent. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/addr.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/rand.h"
#include "base/url.h"
#include "cli/cli.h"
#include "cli/settings.h"
#include "cli/cluster_dirs.h"
#include "dispatch/dispatch.h"
#include "http/waker.h"
#include "net/http_client.h"
#include "net/http_tls.h"
#include "net/loop.h"
#include "net/redis_client.h"
#include "media/media.h"
#include "platform/platform.h"
#include "skills/skills.h"
#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"
#include "tenancy/facts.h"

enum finding { OK, WARN, BAD };
enum { REDIS_MS = 3000 };

struct doctor {
    struct config *cfg;              /* owned */
    const struct settings *settings; /* in cfg */
    struct wake_settings wake;       /* of the running server, or as configured */
    bool json, running;
    int worst;
    struct buf out;
    struct jw w;
};

static void BH_PRINTF(4, 5)
    found(struct doctor *d, enum finding f, const char *what, const char *fmt, ...)
{
    static const char *const words[] = {"ok", "warn", "FIX"}, *const codes[] = {"ok", "warn",
                                                                                "bad"};
    char text[700];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if ((int)f > d->worst)
        d->worst = f;
    if (!d->json) {
        BUF_LOCAL shown = BUF_INIT; /* platforms and agents name themselves */
        buf_add_plain(&shown, str_of(text));
        printf("%-5s %-10s %s\n", words[f], what, buf_z(&shown));
        return;
    }
    jw_obj(&d->w);
    jw_kstr(&d->w, "result", str_of(codes[f]));
    jw_kstr(&d->w, "check", str_of(what));
    jw_kstr(&d->w, "detail", str_of(text));
    jw_end_obj(&d->w);
}

/* ---- wake URLs ---- */

static bool connects(const struct addrinfo *ai, int64_t timeout_ms)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), e = 0;
    socklen_t n = sizeof e;

    if (fd < 0)
        return false;
    bool ok = connect(fd, ai->ai_addr, ai->ai_addrlen) == 0;
    if (!ok && errno == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ok = poll(&p, 1, (int)timeout_ms) == 1 &&
             getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) == 0 && e == 0;
    }
    close(fd);
    return ok;
}

/* Connects and sends nothing: a request would wake the agent.  Blocks for the wake timeout and a
 * name lookup at most. */
static void check_wake_url(struct doctor *d, struct str gateway, const char *text)
{
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM};
    struct url url;
    char host[256], port[8];

    if (url_split(str_of(text), &url) != NULL) {
        found(d, BAD, "wake", "%.*s: \"%s\" is not a URL. Set it with: bellhop gateway set",
              STR_FMT(gateway), text);
        return;
    }
    bool tls = str_eq(url.scheme, STR("https"));
    snprintf(host, sizeof host, "%.*s", STR_FMT(url.host));
    snprintf(port, sizeof port, "%d", url.port != 0 ? url.port : tls ? 443 : 80);
    int rc = getaddrinfo(host, port, &hints, &list);
    struct addr at = rc == 0 ? addr_of(list->ai_addr) : (struct addr){0};
    if (rc != 0)
        found(d, BAD, "wake", "%.*s: the name %s does not resolve: %s", STR_FMT(gateway), host,
              gai_strerror(rc));
    else if (!d->wake.allow_private && addr_is_private(&at))
        found(d, BAD, "wake",
              "%.*s: %s is a private address, which bellhop does not call. Use a public address, "
              "or set wake.allow_private: true",
              STR_FMT(gateway), host);
    else if (connects(list, d->wake.timeout_ms))
        found(d, OK, "wake", "%.*s: %s:%s can be reached", STR_FMT(gateway), host, port);
    else
        found(d, WARN, "wake",
              "%.*s: nothing answers at %s:%s now, so a sleeping gateway cannot be woken there",
              STR_FMT(gateway), host, port);
    if (rc == 0)
        freeaddrinfo(list);
}

/* ---- the nodes on one PostgreSQL ---- */

struct nodes_seen {
    const char *here; /* the name of this node */
    size_t live, others;
    bool serves, stands_by; /* some node serves; this one stands by and forwards nothing */
};

static bool is_shared(const struct doctor *d)
{
    const struct store_settings *store = config_get(d->cfg, &store_config);

    return strcmp(store->kind, "postgres") == 0;
}

static bool all_serve(const struct doctor *d)
{
    const struct cluster_settings *c = config_get(d->cfg, &cluster_config);

    return strcmp(c->serve, "all") == 0;
}

static bool over_redis(const struct doctor *d)
{
    const struct cluster_settings *c = config_get(d->cfg, &cluster_config);

    return strcmp(c->trunk, "redis") == 0;
}

static void check_node(struct doctor *d, struct nodes_seen *seen, struct str name, struct str state,
                       int64_t age_ms, struct str version)
{
    bool here = str_eq(name, str_of(seen->here)), stands_by = str_eq(state, STR("standby"));

    if (age_ms > NODE_SILENT_MS) {
        found(d, here ? OK : WARN, "cluster",
              "node %.*s was last seen %lld s ago: it ended or cannot reach the database",
              STR_FMT(name), (long long)age_ms / 1000);
        return;
    }
    seen->live++;
    seen->others += !here;
    seen->serves |= str_eq(state, STR("serving"));
    seen->stands_by |= here && stands_by;
    if (stands_by && all_serve(d))
        found(d, WARN, "cluster",
              "node %.*s stands by and forwards no connections: it cannot reach the node that "
              "serves. Check %s of that node, and the log of this one",
              STR_FMT(name), over_redis(d) ? "redis.url" : "cluster.address");
    else
        found(d, OK, "cluster", "node %.*s is %.*s", STR_FMT(name), STR_FMT(state));
    if (!str_eq(version, STR(BELLHOP_VERSION)))
        found(d, WARN, "cluster", "node %.*s runs version %.*s, this program is %s", STR_FMT(name),
              STR_FMT(version), BELLHOP_VERSION);
}

static void judge_nodes(struct doctor *d, const struct nodes_seen *seen, bool here_runs)
{
    if (seen->live > 0 && !seen->serves)
        found(d, BAD, "cluster", "no node serves. See the logs of the nodes");
    if (here_runs && seen->others == 0)
        found(d, WARN, "cluster",
              "this is the only node: when it ends, no other takes over. Start a second one");
}

/* True: some node serves, and this one is it or reaches it. */
static bool check_nodes(struct doctor *d, struct cli_job *j)
{
    char room[NODE_NAME_BYTES + 1];
    struct nodes_seen seen = {.here = cluster_node_name(d->cfg, room)};

    if (cli_op(j, "listNodes", NULL, 0) != CLI_DONE) {
        found(d, BAD, "cluster", "this node cannot read the list of nodes from the database");
        return false;
    }
    int64_t now = cli_i64(j->doc, "now");
    for (struct json_iter it = {0}; json_next(json_get(j->doc, "nodes"), &it);)
        check_node(d, &seen, json_str(it.value, "node"), json_str(it.value, "state"),
                   now - cli_i64(it.value, "lastSeenAt"), json_str(it.value, "version"));
    judge_nodes(d, &seen, true);
    return seen.serves && !seen.stands_by;
}

struct redis_look {
    struct redis_client *client;
    char said[200]; /* an error */
    bool answered;
};

static void on_redis_up(void *ctx)
{
    struct redis_look *l = ctx;
    const struct str words[] = {STR("XADD"),       STR("bellhop:doctor"),
                                STR("NOMKSTREAM"), STR("*"),
                                STR("e"),          STR("")};

    redis_client_send(l->client, words, ARRAY_LEN(words)); /* writes nothing: there is no stream */
}

static void on_redis_down(void *ctx)
{
}

static void on_redis_reply(void *ctx, const struct resp *r)
{
    struct redis_look *l = ctx;

    l->answered = true;
    if (r->kind == RESP_ERROR)
        snprintf(l->said, sizeof l->said, "it says %.*s%s", r->text.n < 100 ? (int)r->text.n : 100,
                 r->text.p, redis_advice(r->text));
}

/* Can this node write streams to the Redis that trunks run over? */
static void check_redis(struct doctor *d, const struct cluster_settings *c)
{
    static const struct redis_client_handlers handlers = {on_redis_up, on_redis_down,
                                                          on_redis_reply};
    struct redis_look l = {0};
    struct loop *loop = loop_new();
    char why[256] = "";

    l.client = redis_client_open(loop,
                                 &(struct redis_client_options){.url = c->redis_url,
                                                                .ca = c->redis_ca,
                                                                .name = "doctor",
                                                                .quiet = true},
                                 &handlers, &l, why);
    for (int64_t end = clock_now_ms(loop_clock(loop)) + REDIS_MS;
         l.client != NULL && !l.answered && clock_now_ms(loop_clock(loop)) < end;)
        loop_turn(loop, 20);
    if (l.client == NULL)
        found(d, BAD, "cluster", "redis.url: %s", why);
    else if (l.answered && l.said[0] == '\0')
        found(d, OK, "cluster", "trunks run over Redis at %s, which answers",
              redis_client_at(l.client));
    else
        found(d, BAD, "cluster", "trunks cannot run over Redis at %s: %s",
              redis_client_at(l.client), l.answered ? l.said : redis_client_fault(l.client));
    redis_client_close(l.client);
    loop_free(loop);
}

/* What the nodes share, and each has to be told. */
static void check_cluster_config(struct doctor *d)
{
    const struct cluster_settings *c = config_get(d->cfg, &cluster_config);
    const struct media_settings *media = config_get(d->cfg, &media_config);
    struct str listen = str_of(d->settings->listen);

    if (over_redis(d))
        check_redis(d, c);
    else if (all_serve(d) && c->address == NULL &&
             (str_starts(listen, STR("0.0.0.0:")) || str_starts(listen, STR("[::]:")) ||
              str_starts(listen, STR("*:")) || str_starts(listen, STR("unix:"))))
        found(d, WARN, "cluster",
              "listen names no address of this machine, so other nodes cannot forward connections "
              "here. Set cluster.address");
    if (media->dir == NULL)
        found(d, WARN, "cluster",
              "media.dir is not set, so no files are accepted. Set it to a directory that all "
              "nodes share");
}

/* ---- while a server runs ---- */

static void check_platform_problems(struct doctor *d, struct json doc)
{
    for (struct json_iter it = {0}; json_next(json_get(doc, "platforms"), &it);) {
        struct str problem = json_str(it.value, "problem"),
                   platform = json_str(it.value, "platform");
        struct str bot = json_str(it.value, "bot");
        if (problem.p != NULL)
            found(d, BAD, "platform", "%.*s %.*s: %.*s", STR_FMT(platform), STR_FMT(bot),
                  STR_FMT(problem));
        else
            found(d, OK, "platform", "%.*s %.*s is open", STR_FMT(platform), STR_FMT(bot));
        struct str webhook = json_str(it.value, "webhook"), host = json_str(it.value, "host");
        if (host.n > 0)
            found(d, OK, "platform", "%.*s %.*s takes webhooks at %.*s", STR_FMT(platform),
                  STR_FMT(bot), STR_FMT(webhook));
    }
}

/* Warns of a route that `tenant:` makes void: every bot that it could apply to is another
 * tenant's. */
static void check_route(struct doctor *d, struct str platform, struct str key, struct str tenant)
{
    const struct platform_settings *other = NULL;

    for (size_t i = 0; i < config_count(d->cfg, &platforms_config); i++) {
        const struct platform_settings *p = config_entry(d->cfg, &platforms_config, i);
        bool barred = p->tenant != NULL && !str_eq(str_of(p->tenant), tenant);
        if (!str_eq(str_of(p->platform), platform))
            continue;
        if (str_eq(str_of(p->bot), key)) { /* a route of this bot alone */
            other = barred ? p : NULL;
            break;
        }
        if (!barred)
            return;
        other = p;
    }
    if (other != NULL)
        found(d, WARN, "routes",
              "the route of %.*s on %.*s to tenant %.*s has no effect: bot %s belongs to tenant "
              "%s (platforms: tenant). Remove it with: bellhop route remove",
              STR_FMT(key), STR_FMT(platform), STR_FMT(tenant), other->bot, other->tenant);
}

/* Warns of an open place where nobody reads: the next gateway of that name hears everybody. */
static void check_open_route(struct doctor *d, const struct route_spec *r)
{
    found(d, WARN, "routes",
          "%.*s on %.*s is open to everybody, but %s%.*s of tenant %.*s is without a gateway, so "
          "nobody reads there. Close it with: bellhop route remove --platform %.*s --key %.*s "
          "--tenant "
          "%.*s%s%.*s. Or add a gateway with: bellhop gateway add",
          STR_FMT(r->key), STR_FMT(r->platform), r->instance.n > 0 ? "instance " : "every instance",
          STR_FMT(r->instance), STR_FMT(r->tenant), STR_FMT(r->platform), STR_FMT(r->key),
          STR_FMT(r->tenant), r->instance.n > 0 ? " --instance " : "", STR_FMT(r->instance));
}

static void check_routes(struct doctor *d, struct cli_job *j)
{
    char *after = NULL;

    do {
        struct op_given given = {"after", str_of(after)};
        if (cli_op(j, "listRoutes", &given, after != NULL) != CLI_DONE)
            break;
        for (struct json_iter it = {0}; json_next(json_get(j->doc, "routes"), &it);) {
            const struct route_spec r = {json_str(it.value, "platform"), json_str(it.value, "key"),
                                         json_str(it.value, "tenant"),
                                         json_str(it.value, "instance")};
            check_route(d, r.platform, r.key, r.tenant);
            if (cli_bool(it.value, "open") && !cli_bool(it.value, "leads"))
                check_open_route(d, &r);
        }
        free(after);
        after = str_dup_opt(json_str(j->doc, "next"));
    } while (after != NULL);
    free(after);
}

/* Mail of an instance without a gateway: its agent was removed, or is another instance now. */
static void check_left_mail(struct doctor *d, struct json instance, long long waiting)
{
    struct str name = json_str(instance, "instance"), tenant = json_str(instance, "tenant");

    found(d, WARN, "mailbox",
          "%.*s: %lld %s, and nobody reads them: all gateways of the instance are revoked. Add one "
          "with: bellhop gateway add --tenant %.*s --instance %.*s. Or delete them with: bellhop "
          "mailbox purge %.*s --tenant %.*s --yes",
          STR_FMT(name), waiting, waiting == 1 ? "message waits" : "messages wait", STR_FMT(tenant),
          STR_FMT(name), STR_FMT(name), STR_FMT(tenant));
}

static void check_instances(struct doctor *d, struct json doc)
{
    for (struct json_iter it = {0}; json_next(json_get(doc, "instances"), &it);) {
        struct str name = json_str(it.value, "instance"), state = json_str(it.value, "state");
        long long waiting = cli_i64(it.value, "entries"), parked = cli_i64(it.value, "parked");
        if (parked > 0)
            found(d, WARN, "mailbox",
                  "%.*s: %lld messages are parked. Look at them with: bellhop mailbox show %.*s. "
                  "Send them again with: bellhop mailbox redrive %.*s",
                  STR_FMT(name), parked, STR_FMT(name), STR_FMT(name));
        if (waiting > 0 && cli_bool(it.value, "gone"))
            check_left_mail(d, it.value, waiting);
        else if (waiting > 0 && !str_eq(state, STR("live")) &&
                 !cli_bool(it.value, "wakeUrlRegistered"))
            found(d, WARN, "mailbox",
                  "%.*s: %lld %s, its gateway %s, and no wake URL is set. Start the gateway, or "
                  "set a wake URL with: bellhop gateway set",
                  STR_FMT(name), waiting, waiting == 1 ? "message waits" : "messages wait",
                  str_eq(state, STR("never"))    ? "has never connected"
                  : str_eq(state, STR("asleep")) ? "sleeps"
                                                 : "is disconnected");
    }
}

/* Uses the running server's wake settings, which its environment may have changed. */
static void take_wake_settings(struct doctor *d, struct json wake)
{
    int64_t ms;

    d->wake.allow_private = json_as_bool(json_get(wake, "allowPrivate"), d->wake.allow_private);
    if (json_as_i64(json_get(wake, "timeoutMs"), &ms))
        d->wake.timeout_ms = ms;
}

static void check_agents(struct doctor *d, struct cli_job *j)
{
    size_t n = 0, ill = 0;

    if (agent_states(j) != CLI_DONE)
        return;
    for (struct json_iter it = {0}; json_next(j->doc, &it); n++) {
        struct str id = json_str(it.value, "agent_id"), problem = agent_problem(it.value);
        if (problem.p == NULL)
            continue;
        found(d, WARN, "dispatch", "agent %.*s: %.*s", STR_FMT(id), STR_FMT(problem));
        ill++;
    }
    if (n > ill)
        found(d, OK, "dispatch", "%zu of %zu agents can be delivered to", n - ill, n);
}

static void check_running(struct doctor *d, struct cli_job *j)
{
    if (is_shared(d) && !check_nodes(d, j))
        return;
    if (cli_op(j, "status", NULL, 0) != CLI_DONE) {
        found(d, BAD, "server",
              "a server holds the database but does not answer on its admin socket");
        return;
    }
    struct str url = json_str(j->doc, "url"), how = json_str(j->doc, "confined");
    struct json store = json_get(j->doc, "store");
    found(d, OK, "server", "running, pid %lld, at %.*s", (long long)cli_i64(j->doc, "pid"),
          STR_FMT(url));
    struct str waits = json_str(j->doc, "awaitsRestart"), key;
    while (waits.n > 0 && str_split(&waits, '\n', &key))
        found(d, WARN, "server", "`%.*s` has changed in the configuration: restart the server",
              STR_FMT(key));
    if (cli_bool(store, "healthy"))
        found(d, OK, "store", "healthy");
    else
        found(d, BAD, "store", "%.*s", STR_FMT(json_str(store, "problem")));
    found(d, cli_bool(j->doc, "fullyConfined") ? OK : WARN, "confined", "%.*s", STR_FMT(how));
    take_wake_settings(d, json_get(j->doc, "wake"));
    check_platform_problems(d, j->doc);
    check_instances(d, j->doc);
    if (cli_i64(j->doc, "routes") == 0 && cli_i64(j->doc, "links") == 0)
        found(d, WARN, "routes",
              "no route and no linked person, so no agent receives anything. Link a person with: "
              "bellhop link. Or open a place with: bellhop route add --open");
    check_routes(d, j);
    if (cli_op(j, "listGateways", NULL, 0) != CLI_DONE)
        return;
    for (struct json_iter it = {0}; json_next(json_get(j->doc, "gateways"), &it);) {
        struct str wake_url = json_str(it.value, "wakeUrl");
        if (wake_url.p == NULL || json_type(json_get(it.value, "revokedAt")) == JSON_NUMBER)
            continue;
        char *z = str_dup(wake_url);
        check_wake_url(d, json_str(it.value, "id"), z);
        free(z);
    }
    check_agents(d, j);
}

/* ---- while no server runs ---- */

static void check_facts(struct doctor *d, struct loop *loop, struct store *store, struct seal *seal)
{
    struct rand rand = RAND_SYSTEM;
    struct facts_env env = {.clock = loop_clock(loop), .store = store, .rand = &rand, .seal = seal};
    struct facts *facts = NULL;
    struct list *head;
    char why[256];

    if (facts_open(&env, &facts, why) != BH_OK) {
        found(d, BAD, "gateways", "%s", why);
        return;
    }
    found(d, OK, "gateways", "%zu known, %zu routes", facts_gateways(facts, &head),
          facts_routes(facts, &head));
    facts_routes(facts, &head);
    list_each (head, it, nxt) {
        const struct route *r = list_entry(it, struct route, link);
        check_route(d, str_of(r->platform), str_of(r->key), str_of(r->tenant));
        if (r->open && !facts_route_leads(r))
            check_open_route(d, &(struct route_spec){str_of(r->platform), str_of(r->key),
                                                     str_of(r->tenant), str_of(r->instance)});
    }
    facts_gateways(facts, &head);
    list_each (head, it, nxt) {
        const struct gateway *g = list_entry(it, struct gateway, link);
        if (g->revoked_ms == 0 && g->wake_url != NULL)
            check_wake_url(d, str_of(g->id), g->wake_url);
    }
    facts_free(facts);
}

static void check_key(struct doctor *d, struct loop *loop, struct store *store)
{
    char *path = state_dir_path(d->settings->state_dir, "master.key"), why[256] = "";
    struct seal *seal = NULL;

    if (d->settings->master_key == NULL && access(path, F_OK) != 0)
        found(d, BAD, "key",
              "%s is missing, and the gateways' secrets in the database are encrypted with it: %s",
              path, is_shared(d) ? "copy it from another node, or set master_key" : "restore it");
    else if (seal_open_for(store, str_of(d->settings->master_key), path, &seal, why) != BH_OK)
        found(d, BAD, "key", "%s", why);
    else {
        found(d, OK, "key", "the master key opens this database");
        check_facts(d, loop, store, seal);
    }
    seal_free(seal);
    free(path);
}

struct nodes_read {
    struct doctor *d;
    struct nodes_seen seen;
    struct record_reader *reader;
};

static void on_node(void *ctx, struct str key, struct str value)
{
    struct nodes_read *r = ctx;
    struct node_record node;

    if (record_read(r->reader, &node_form, key, value, &node))
        check_node(r->d, &r->seen, node.name, str_of(node_words[node.state]),
                   (int64_t)time(NULL) * 1000 - node.at_ms, node.version);
}

static void check_stopped_node(struct doctor *d)
{
    const struct store_settings *settings = config_get(d->cfg, &store_config);
    char room[NODE_NAME_BYTES + 1], why[256] = "";
    struct nodes_read r = {.d = d, .seen.here = cluster_node_name(d->cfg, room)};
    struct loop *loop = loop_new();
    struct store *store = NULL;
    enum bh_err err = BH_UNAVAILABLE;

    found(d, OK, "server", "not running on this machine. Start it with: bellhop serve");
    if (loop != NULL)
        err = store_postgres_look(loop, settings->url, &store, why);
    if (err == BH_NOT_FOUND) {
        found(d, OK, "store", "PostgreSQL answers; the first start creates the tables");
    } else if (err != BH_OK) {
        found(d, BAD, "store", "%s", why);
    } else {
        found(d, OK, "store", "PostgreSQL answers");
        r.reader = record_reader_new(NULL);
        store->ops->load_records(store, node_form.ns, STR(""), on_node, &r);
        record_reader_free(r.reader);
        judge_nodes(d, &r.seen, false);
        check_key(d, loop, store);
    }
    store_close(store);
    loop_free(loop);
}

static void check_stopped(struct doctor *d)
{
    char *db = state_dir_path(d->settings->state_dir, "bellhop.db"), why[256] = "";
    struct store *store = NULL;

    found(d, OK, "server", "not running. Start it with: bellhop serve");
    if (access(db, F_OK) != 0) {
        found(d, OK, "store", "no database yet; the first start creates it");
        free(db);
        return;
    }
    struct loop *loop = loop_new();
    if (loop == NULL) {
        found(d, BAD, "store", "the process has no file descriptor left to open it");
    } else if (store_sqlite_open(loop, db, &store, why) != BH_OK) {
        found(d, BAD, "store", "%s", why);
    } else {
        found(d, OK, "store", "%s opens", db);
        check_key(d, loop, store);
    }
    store_close(store);
    loop_free(loop);
    free(db);
}

/* ---- in both cases ---- */

static void check_config(struct doctor *d)
{
    const struct settings *c = d->settings;
    const char *path = config_path(d->cfg);

    found(d, OK, "config", "%s",
          path != NULL ? path : "no configuration file; all settings have their defaults");
    if (config_count(d->cfg, &platforms_config) == 0)
        found(d, WARN, "config", "platforms is empty, so nobody can write to an agent");
    if (c->public_url == NULL && !str_starts(str_of(c->listen), STR("127.")) &&
        !str_starts(str_of(c->listen), STR("[::1]")) &&
        !str_starts(str_of(c->listen), STR("localhost")))
        found(d, WARN, "config",
              "public_url is not set, so gateways on other machines are told a local address");
}

/* For platforms whose open() does not verify the credentials. */
static void check_credentials(struct doctor *d)
{
    char why[256];
    struct str rest, line;

    for (size_t i = 0; i < config_count(d->cfg, &platforms_config); i++) {
        struct platform_report report = {.webhook = false};
        const struct platform_settings *p = config_entry(d->cfg, &platforms_config, i);
        const struct platform_ops *ops = platform_find(str_of(p->platform));
        if (ops == NULL || ops->check == NULL)
            continue;
        enum bh_err err = ops->check(p, &report, why);
        if (err == BH_OK)
            found(d, OK, "platform", "%s %s: its credentials are valid%s%s%s", p->platform, p->bot,
                  report.name[0] != '\0' ? " (" : "", report.name,
                  report.name[0] != '\0' ? ")" : "");
        else
            found(d, err == BH_REFUSED ? BAD : WARN, "platform", "%s %s: %s", p->platform, p->bot,
                  err == BH_REFUSED
                      ? why
                      : "its credentials could not be checked: the platform does not answer");
        for (rest = str_of(report.warnings); rest.n > 0 && str_split(&rest, '\n', &line);)
            found(d, WARN, "platform", "%s %s: %.*s", p->platform, p->bot, STR_FMT(line));
        if (report.webhook && d->settings->public_url == NULL && p->host == NULL)
            found(d, WARN, "platform",
                  "%s %s: public_url is not set, so bellhop cannot tell the address of its webhook",
                  p->platform, p->bot);
    }
}

static void check_tls(struct doctor *d)
{
    const struct http_tls *tls = config_get(d->cfg, &tls_config);
    int64_t until = 0;
    char why[256];

    if (tls->cert == NULL)
        return;
    if (http_tls_look(tls, &until, why) != BH_OK) {
        found(d, BAD, "tls", "%s", why);
        return;
    }
    long long days = (until - (int64_t)time(NULL)) / 86400;
    if (until <= (int64_t)time(NULL))
        found(d, BAD, "tls", "%s has expired. Renew it, then reload the server", tls->cert);
    else
        found(d, days < 14 ? WARN : OK, "tls", "%s is valid for %lld more days", tls->cert, days);
}

static bool is_public_key(const char *setting, struct buf *pem)
{
    if (strncmp(setting, "-----", 5) == 0)
        buf_add_z(pem, setting);
    else if (!file_read(setting, 65536, pem))
        return false;
    struct ed25519_key *key = ed25519_public(buf_str(pem));
    ed25519_free(key);
    return key != NULL;
}

static void check_skills(struct doctor *d)
{
    const struct skills_settings *c = config_get(d->cfg, &skills_section);
    struct buf pem = BUF_INIT;

    if (c->dir != NULL && access(c->dir, F_OK) == 0 && access(c->dir, R_OK | W_OK | X_OK) != 0)
        found(d, BAD, "skills", "%s: %s", c->dir, strerror(errno));
    if (strcmp(c->approval_mode, "secured") == 0) {
        if (is_public_key(c->approval_key, &pem))
            found(d, OK, "skills", "secured: a skill is Approved only with a signature");
        else
            found(d, BAD, "skills",
                  "skills.approval.public_key is not an Ed25519 public key in PEM form. Make one "
                  "with: openssl pkey -in KEY -pubout");
    }
    buf_done(&pem);
}

/* Checks where agents get their mail.  `dispatch list` shows what only the server knows. */
static void check_agent_path(void *ctx, const char *path, bool is_directory)
{
    struct doctor *d = ctx;
    struct stat st;

    if (lstat(path, &st) != 0)
        found(d, BAD, "agents", "%s: %s", path, strerror(errno));
    else if (is_directory && !S_ISDIR(st.st_mode))
        found(d, BAD, "agents", "%s is not a real directory", path);
    else if (!is_directory && !S_ISFIFO(st.st_mode))
        found(d, BAD, "agents", "%s is not a FIFO. Make one with: mkfifo %s", path, path);
    else if (access(path, is_directory ? W_OK | X_OK : W_OK) != 0)
        found(d, BAD, "agents", "this user cannot write to %s", path);
    else
        found(d, OK, "agents", "%s can be written", path);
}

/* Checks every page of the database, also while a server runs. */
static void check_database(struct doctor *d)
{
    char *db = state_dir_path(d->settings->state_dir, "bellhop.db"), why[256] = "";
    bool exists = !is_shared(d) && access(db, F_OK) == 0;

    if (exists && store_sqlite_check(db, why) == BH_OK)
        found(d, OK, "database", "%s is undamaged", db);
    else if (exists)
        found(d, BAD, "database", "%s. Restore a backup with: bellhop restore FILE", why);
    free(db);
}

/* False: there is nothing to check. */
static bool check_state_dir(struct doctor *d)
{
    const char *dir = d->settings->state_dir;
    struct stat st;

    if (stat(dir, &st) != 0 && errno == ENOENT) {
        found(d, OK, "state_dir", "%s does not exist yet; the first start creates it", dir);
        return false;
    }
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
        found(d, BAD, "state_dir", "%s: %s", dir,
              S_ISDIR(st.st_mode) ? strerror(errno) : "not a directory");
        return false;
    }
    if (access(dir, R_OK | W_OK | X_OK) != 0) {
        found(d, BAD, "state_dir",
              "this user cannot write to %s. Run the command as the user that runs the server; if "
              "that is this user, run as root: chown -R %u %s",
              dir, (unsigned)geteuid(), dir);
        return false;
    }
    if ((st.st_mode & 077) != 0)
        found(d, BAD, "state_dir", "other users can read %s. Close it with: chmod 700 %s", dir,
              dir);
    else
        found(d, OK, "state_dir", "only its owner can read %s", dir);
    return true;
}

static int run_checks(struct cli_job *j)
{
    struct doctor d = {.worst = OK, .json = j->json};
    struct buf why = BUF_INIT;

    d.w = jw_begin(&d.out);
    jw_arr(&d.w);
    if (j->state_dir != NULL)
        setenv("BELLHOP_STATE_DIR", j->state_dir, 1);
    if (settings_load(j->config, &d.cfg, &why) != BH_OK) {
        found(&d, BAD, "config", "%s", buf_z(&why));
    } else {
        d.settings = settings_of(d.cfg);
        d.wake = *(const struct wake_settings *)config_get(d.cfg, &wake_config);
        check_config(&d);
        check_tls(&d);
        check_credentials(&d);
        check_skills(&d);
        char node[NODE_NAME_BYTES + 1];
        dispatch_each_path(d.cfg, cluster_node_name(d.cfg, node), check_agent_path, &d);
        if (is_shared(&d))
            check_cluster_config(&d);
        bool there = check_state_dir(&d);
        if (there)
            check_database(&d);
        if (there && cli_server_answers(d.settings->state_dir))
            check_running(&d, j);
        else if (is_shared(&d))
            check_stopped_node(&d);
        else if (there)
            check_stopped(&d);
    }
    jw_end_arr(&d.w);
    if (d.json)
        puts(buf_z(&d.out));
    else
        puts(d.worst == OK     ? "\nAll is well."
             : d.worst == WARN ? "\nThe server can work; see the warnings above."
                               : "\nFix the lines marked FIX.");
    config_free(d.cfg);
    buf_done(&d.out);
    buf_done(&why);
    return d.worst == BAD ? CLI_FAILED : CLI_DONE;
}

const struct command cmd_doctor = {
    .name = "doctor",
    .summary = "check the installation and say what to fix",
    .help =
        "Usage: bellhop doctor [-c FILE | --state-dir DIR] [--json]\n\n"
        "Checks the configuration, the state directory, the database and its master key, the\n"
        "platforms and their credentials, waiting mailboxes, and whether wake URLs can be\n"
        "reached (it connects to them but sends no request, so no agent wakes).  Works with and\n"
        "without a running server, and changes nothing.  On PostgreSQL it also checks the nodes:\n"
        "who serves, who was not seen for long, who cannot reach the others.  Exit status 1:\n"
        "something must be fixed.\n",
    .verbs = (const struct cli_verb[]){{"", .run = run_checks}, {0}},
};
