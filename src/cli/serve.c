/* serve.c - bellhop serve: start, signals, shutdown.
 *
 *      SIGTERM, SIGINT  LEAVING, where other nodes carry connections here: /readyz is 503 and all
 *                       else goes on for cluster.drain, so that a proxy sends nothing more
 *                    -> CLOSING: no new sockets; requests that are on their way here are served
 *                    -> DRAINING: relay_drain (sockets close with 1012, accepted messages go to
 *                       disk) -> pages closed -> the lease is released -> close frames sent -> exit
 *      again            LEAVING: goes on; else stop at once, as after 10 s of DRAINING; queued
 *                       writes are still committed
 *      node drain       as SIGTERM, but exit with EXIT_DRAINED
 *      SIGHUP           reload the configuration
 *      lease lost       another process may serve by now: close sockets with 1012, write nothing,
 *                       exit with EXIT_STAND_BY; the service manager restarts us as a standby
 *
 */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/config.h"
#include "base/zone.h"
#include "relay/in/allowance.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/service.h"
#include "cli/cli.h"
#include "cli/ephemeral.h"
#include "cli/notify.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "dispatch/dispatch.h"
#include "mcp/mcp.h"
#include "cluster/node.h"
#include "http/dashboard.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/trunk.h"
#include "host/host.h"
#include "relay/relay.h"

#define DRAIN_MS 10000
#define PORTERS_MS 2000 /* time for the other nodes to stop sending connections here */
#define CLOSING_MS 500  /* then, time for requests that were on their way, and their answers */
#define GOODBYE_MS 2000 /* time to send close frames, once everything is on disk */
#define LOOK_MS 10
#define PARTING_MS 300 /* time to send close frames after the lease is lost */
#define EXIT_STAND_BY 75
#define EXIT_DRAINED 76 /* service managers do not start the process again */
#define REPEAT_MS \
    1000 /* Ctrl-C often arrives twice: from the terminal and from a script around us */

struct serving {
    struct server server;
    const char *config_path; /* borrowed; as given */
    enum { UP, LEAVING, CLOSING, DRAINING, DRAINED, PARTED } phase;
    int64_t asked_ms;    /* when the newest signal came */
    int64_t deadline_ms; /* when the phase must end */
    int64_t open_ms;     /* CLOSING: when a connection may have been opened last */
    struct timer look;   /* polls whether the phase is over */
    struct watchdog watchdog;
};

/* Memory holds secrets, so no core file may contain it and no other process of this user may read
 * it.  Sanitizers trace their own process, so sanitized builds skip the second restriction. */
static void close_the_shutters(void)
{
    struct rlimit none = {0, 0}, files;

    setrlimit(RLIMIT_CORE, &none);
#ifndef __SANITIZE_ADDRESS__
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
    umask(077);
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1); /* two threads that rarely allocate at once need no second arena */
#endif
}

/* ---- going down ---- */

static void on_drained(void *ctx)
{
    struct serving *s = ctx;

    host_close_platforms(s->server.front.host);
    dashboard_end_streams(s->server.front.dashboard);
    s->phase = DRAINED;
    s->deadline_ms = clock_now_ms(loop_clock(s->server.front.loop)) + GOODBYE_MS;
}

static void close_doors(struct serving *s)
{
    log_info(NULL, "shutting down: closing sockets, writing accepted messages to disk");
    s->phase = CLOSING;
    s->open_ms = clock_now_ms(loop_clock(s->server.front.loop));
    s->deadline_ms = clock_now_ms(loop_clock(s->server.front.loop)) + PORTERS_MS;
    http_server_drain(s->server.front.server);
}

static void drain(struct serving *s)
{
    s->phase = DRAINING;
    s->deadline_ms = clock_now_ms(loop_clock(s->server.front.loop)) + DRAIN_MS;
    s->server.front.draining = true;
    dispatch_stop(s->server.front.dispatch);
    mcp_end_streams(s->server.front.mcp);
    relay_drain(s->server.front.relay, on_drained, s);
}

/* True: this process may end. */
static bool may_end(struct serving *s)
{
    struct http_server *http = s->server.front.server;
    int64_t now_ms = clock_now_ms(loop_clock(s->server.front.loop));
    bool late = now_ms >= s->deadline_ms;

    switch (s->phase) {
    case LEAVING:
        if (late)
            close_doors(s);
        return false;
    case CLOSING:
        if (!trunk_all_quiet(http) && !late)
            s->open_ms = now_ms;
        else if (now_ms - s->open_ms >= CLOSING_MS ||
                 (!http_server_hears(http) && !http_server_handles(http)))
            drain(s);
        return false;
    case DRAINING:
        if (late)
            log_warn(NULL,
                     "some messages were not on disk after %d s; writing them now, then exiting",
                     DRAIN_MS / 1000);
        return late;
    case DRAINED: /* another node may serve while the last sockets of this one close */
        if (http_server_handles(http) || !list_is_empty(&s->server.front.op_calls))
            return late;
        server_part(&s->server);
        s->phase = PARTED;
        return false;
    default:
        return late || http_server_connections(http) == 0;
    }
}

static void on_look(struct timer *t)
{
    struct serving *s = container_of(t, struct serving, look);

    if (may_end(s))
        loop_stop(s->server.front.loop);
    else
        timer_set(loop_clock(s->server.front.loop), &s->look, LOOK_MS);
}

static void on_terminate(void *ctx)
{
    struct serving *s = ctx;
    struct clock *clock = loop_clock(s->server.front.loop);
    const struct cluster_settings *cluster = config_get(s->server.cfg, &cluster_config);

    if (s->phase != UP && clock_now_ms(clock) < s->asked_ms + REPEAT_MS)
        return;
    s->asked_ms = clock_now_ms(clock);
    if (s->phase == LEAVING) {
        s->deadline_ms = s->asked_ms;
        return;
    }
    if (s->phase != UP) {
        log_warn(NULL, "second signal: exiting at once");
        loop_stop(s->server.front.loop);
        return;
    }
    service_tell("STOPPING=1");
    timer_init(&s->look, on_look);
    timer_set(clock, &s->look, 0);
    if (trunk_tally(s->server.front.server).trunks == 0 || cluster->drain_ms == 0) {
        close_doors(s);
        return;
    }
    log_info(NULL,
             "shutting down in %d ms: /readyz is 503 until then, so that proxies use other nodes",
             (int)cluster->drain_ms);
    s->phase = LEAVING;
    s->deadline_ms = s->asked_ms + cluster->drain_ms;
    s->server.front.leaving = true;
    http_server_leave(s->server.front.server);
}

static void on_drain(void *ctx)
{
    struct serving *s = ctx;

    s->server.told_down = true;
    on_terminate(s);
}

/* Exits without closing the store: our memory may be out of date, so nothing may be written. */
static void on_parted(struct timer *t)
{
    const struct serving *s = container_of(t, struct serving, look);

    _exit(s->server.told_down ? EXIT_DRAINED : EXIT_STAND_BY);
}

static void on_lost_lease(void *ctx, const char *why)
{
    struct serving *s = ctx;

    log_error(NULL,
              "cluster: this node lost its lease (%s), so another node may serve by now; exiting",
              why);
    s->server.front.draining = true;
    relay_stop(s->server.front.relay);
    mcp_end_streams(s->server.front.mcp);
    http_server_drain(s->server.front.server);
    host_close_platforms(s->server.front.host);
    timer_stop(loop_clock(s->server.front.loop), &s->look);
    timer_init(&s->look, on_parted);
    timer_set(loop_clock(s->server.front.loop), &s->look, PARTING_MS);
}

static enum bh_err reload(void *ctx, struct buf *ret_said)
{
    struct serving *s = ctx;

    return server_reload(&s->server, s->config_path, ret_said);
}

static void on_hangup(void *ctx)
{
    struct buf said = BUF_INIT;

    if (((struct serving *)ctx)->phase <= LEAVING)
        reload(ctx, &said);
    buf_done(&said);
}

static void say_ready(const struct serving *s)
{
    const struct server *v = &s->server;

    bool web = host_platform(v->front.host, STR("web"), STR_NULL) != NULL;

    if (v->front.base_url == NULL)
        printf("bellhop %s ready: %s", BELLHOP_VERSION, v->settings->listen);
    else
        printf("bellhop %s ready: %s%s", BELLHOP_VERSION, v->front.base_url, web ? "/chat" : "");
    printf(" (relay %s/relay, state %s)\n", v->front.base_url != NULL ? v->front.base_url : "",
           v->settings->state_dir);
    fflush(stdout);
    service_tell("READY=1");
}

static int run(struct cli_job *j, const struct ephemeral *e)
{
    struct serving s = {.config_path = j->config};
    struct config *cfg = cli_settings(j);
    char said[512];

    if (cfg == NULL)
        return CLI_FAILED;
    log_apply(config_get(cfg, &log_config));
    zone_use(((const struct allowance_settings *)config_get(cfg, &allowance_config))->timezone);
    close_the_shutters();
    enum bh_err err = server_open(&s.server, cfg, said);
    if (err == BH_CANCELLED) /* the process was stopped while it stood by */
        return s.server.told_down ? EXIT_DRAINED : CLI_DONE;
    if (err != BH_OK)
        return cli_failed("cannot start: %s", said);
    s.server.lost_lease = on_lost_lease;
    s.server.lost_ctx = &s;
    s.server.front.reload = reload;
    s.server.front.reload_ctx = &s;
    s.server.front.drain = on_drain;
    s.server.front.drain_ctx = &s;
    loop_on_signal(s.server.front.loop, SIGTERM, on_terminate, &s);
    loop_on_signal(s.server.front.loop, SIGINT, on_terminate, &s);
    loop_on_signal(s.server.front.loop, SIGHUP, on_hangup, &s);
    if (s.server.asked_to_reload) /* while it started */
        on_hangup(&s);
    if (s.server.front.node != NULL && node_state(s.server.front.node) == NODE_OVER)
        on_lost_lease(&s, "it expired during start-up");
    mem_trim();
    if (e == NULL) {
        say_ready(&s);
    } else if (ephemeral_ready(e, &s.server, said) != BH_OK) {
        server_close(&s.server);
        return cli_failed("cannot start: %s", said);
    }
    watchdog_start(&s.watchdog, loop_clock(s.server.front.loop), s.server.front.store);
    loop_run(s.server.front.loop);
    watchdog_stop(&s.watchdog);
    timer_stop(loop_clock(s.server.front.loop), &s.look);
    server_close(&s.server);
    log_info(NULL, "stopped");
    return s.server.told_down ? EXIT_DRAINED : CLI_DONE;
}

static int serve(struct cli_job *j)
{
    struct ephemeral e;
    char why[256];
    int rc;

    if (!cli_flag(j, "--ephemeral"))
        return run(j, NULL);
    if (j->config != NULL || j->state_dir != NULL)
        return cli_misused(j, "--ephemeral has a configuration and a state directory of its own. "
                              "Environment variables such as BELLHOP_LOG_LEVEL change settings");
    if (!ephemeral_begin(&e, why))
        return cli_failed("cannot start: %s", why);
    j->config = e.config;
    rc = run(j, &e);
    ephemeral_end(&e);
    return rc;
}

const struct command cmd_serve = {
    .name = "serve",
    .summary = "run the connector in the foreground",
    .help =
        "Usage: bellhop serve [-c FILE] [--state-dir DIR]\n"
        "       bellhop serve --ephemeral\n\n"
        "Runs until SIGTERM or SIGINT.  Then it closes its sockets cleanly, writes everything\n"
        "it accepted to disk, and exits with 0.  SIGHUP reads the configuration again; the log\n"
        "says which settings changed and which ones need a restart.\n\n"
        "Without -c the server reads ./bellhop.yaml if that file exists, else\n"
        "/etc/bellhop/bellhop.yaml.  Without a file it uses the defaults: the chat page on\n"
        "http://127.0.0.1:7077/chat, the state in ./bellhop-data.  Environment variables such as\n"
        "BELLHOP_LISTEN override single settings; see: bellhop help config\n\n"
        "Once ready, it prints one line with its addresses.  With `listen: 127.0.0.1:0` that\n"
        "line and the file <state_dir>/port tell the port.\n\n"
        "--ephemeral runs the same server for a test of a gateway.  It listens on a free port of\n"
        "127.0.0.1, reads no configuration file, and keeps its state in a directory in memory\n"
        "(/dev/shm; else with the temporary files), which goes when the server ends, even by\n"
        "kill -9.  Its bots have no network: `bellhop say` is the person, `bellhop expect` sees\n"
        "what the gateway does.  Once ready, it prints one line of JSON:\n"
        "  url, gateway_id, secret  what the gateway dials with\n"
        "  control                  for `say --control` and `expect --control`\n"
        "  tenant, instance         whose messages the gateway gets\n"
        "  key                      a key of that instance for /v1, /mcp and /relay/provision\n"
        "Other commands reach it with --state-dir, the directory of `control`.\n",
    .options = (const struct cli_option[]){{"--ephemeral", .kind = CLI_FLAG}, {0}},
    .verbs = (const struct cli_verb[]){{"", .run = serve}, {0}},
};
