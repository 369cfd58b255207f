/* sleeper.c - bellhop sleeper: parses the options, opens the wake listener, and executes the small
 * program that waits (src/agent/sleeper/).  That program runs `bellhop sleeper --ask` for each
 * question to the server. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "agent/program.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "cli/cli.h"
#include "cli/paths.h"
#include "net/http_client.h"

#define ASK_TIMEOUT_MS 5000

struct sleeper_wish {
    const char *idle, *listen, *mode, *schedule, *drain, *wake_url, *url, *id, *secret, *ask;
    int64_t idle_ms, every_ms, drain_ms;
    int at_minute;
    bool freeze;
};

/* ---- questions ---- */

static int problem(const char *what, const char *detail)
{
    printf("problem %s%s%s\n", what, *detail != '\0' ? ": " : "", detail);
    return CLI_FAILED;
}

static int64_t time_of(struct json doc, const char *key)
{
    int64_t v = 0;

    json_as_i64(json_get(doc, key), &v);
    return v;
}

static void tell_instance(struct json doc)
{
    struct json mailbox = json_get(doc, "mailbox");
    int64_t in = time_of(doc, "lastInboundAt"), out = time_of(doc, "lastOutboundAt");
    int64_t last = in > out ? in : out, now = time_of(doc, "now");

    if (now == 0)
        now = (int64_t)time(NULL) * 1000; /* the connector sends no time: use our clock */

    printf("state %.*s\n", STR_FMT(json_str(doc, "state")));
    if (last > 0)
        printf("idle_ms %lld\n", (long long)(now > last ? now - last : 0));
    printf("unacked %lld\nentries %lld\n", (long long)time_of(doc, "unacked"),
           (long long)time_of(mailbox, "entries"));
    if (!str_is_empty(json_str(doc, "wakeUrl")))
        printf("wake_url %.*s\n", STR_FMT(json_str(doc, "wakeUrl")));
}

static int ask_instance(void)
{
    const char *where = getenv("GATEWAY_RELAY_URL"), *id = getenv("GATEWAY_RELAY_ID"),
               *secret = getenv("GATEWAY_RELAY_SECRET");
    char *base = where != NULL ? bhgw_http_url(where) : NULL;
    struct json_parser *parser = json_parser_new();
    struct buf url = BUF_INIT, bearer = BUF_INIT, body = BUF_INIT;
    struct json doc;
    char why[256] = "";
    int status = 0, rc;

    if (base == NULL || id == NULL || secret == NULL)
        return problem("%s",
                       "GATEWAY_RELAY_URL, GATEWAY_RELAY_ID or GATEWAY_RELAY_SECRET is missing");
    char *token = bhgw_token(id, secret, 300);
    buf_printf(&url, "%s/manage/instance", base);
    buf_printf(&bearer, "Authorization: Bearer %s", token);
    const char *const headers[] = {buf_z(&bearer), NULL};
    if (http_fetch_now(&(struct http_fetch){.url = buf_z(&url),
                                            .headers = headers,
                                            .timeout_ms = ASK_TIMEOUT_MS,
                                            .max_body = 65536},
                       &status, &body, why) != BH_OK)
        rc = problem("the connector cannot be asked", why);
    else if (status != 200 || !json_parse(parser, buf_str(&body), &doc))
        rc = problem("the connector does not tell about the instance",
                     status == 401 ? "the credential is refused" : "unexpected answer");
    else
        rc = (tell_instance(doc), CLI_DONE);
    bhgw_string_free(token);
    bhgw_string_free(base);
    json_parser_free(parser);
    buf_done(&url);
    buf_wipe(&bearer);
    buf_done(&body);
    return rc;
}

static int ask_probe(const char *url, const char *nonce)
{
    struct buf header = BUF_INIT, body = BUF_INIT;
    char why[256] = "";
    int status = 0, rc = CLI_DONE;

    buf_printf(&header, "X-Bellhop-Probe: %s", nonce);
    const char *const headers[] = {buf_z(&header), NULL};
    if (http_fetch_now(&(struct http_fetch){.url = url,
                                            .headers = headers,
                                            .timeout_ms = ASK_TIMEOUT_MS,
                                            .max_body = 65536},
                       &status, &body, why) != BH_OK)
        rc = problem("the wake URL cannot be reached", why);
    else
        printf("reached %d\n", status);
    buf_done(&header);
    buf_done(&body);
    return rc;
}

/* ---- the wake listener ---- */

/* -1: the error has been printed. */
static int open_listener(const char *where)
{
    const char *colon = strrchr(where, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int fd = -1, yes = 1;

    if (colon == NULL) {
        cli_failed("--wake-listen needs HOST:PORT");
        return -1;
    }
    char *host = xstrndup(where, (size_t)(colon - where));
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = '\0';
        memmove(host, host + 1, strlen(host));
    }
    int rc = getaddrinfo(host[0] != '\0' ? host : NULL, colon + 1, &hints, &found);
    free(host);
    if (rc != 0) {
        cli_failed("%s: %s", where, gai_strerror(rc));
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM, 0); /* inherited: no close-on-exec */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, 64) < 0) {
        cli_failed("cannot listen on %s: %s", where, strerror(errno));
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static void say_where(int fd)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[64], port[16];

    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0 &&
        getnameinfo((struct sockaddr *)&at, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        printf(strchr(host, ':') != NULL ? "sleeper: listening on http://[%s]:%s/\n"
                                         : "sleeper: listening on http://%s:%s/\n",
               host, port);
    fflush(stdout);
}

/* ---- executing the small program ---- */

/* The path of the program: beside us, as in a build tree, or where it is installed.  The caller
 * frees it. */
static char *find_sleeper(char self[4096])
{
    ssize_t n = readlink("/proc/self/exe", self, 4095);
    struct buf path = BUF_INIT;

    self[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(self, '/');
    if (slash != NULL)
        buf_printf(&path, "%.*s/bellhop-sleeper", (int)(slash - self), self);
    if (slash == NULL || access(buf_z(&path), X_OK) != 0) {
        buf_reset(&path);
        buf_add_z(&path, BELLHOP_LIBEXEC "/bellhop-sleeper");
    }
    return buf_take(&path);
}

static int become(const struct sleeper_wish *w, int listener, char **program)
{
    char self[4096], fd[16], idle[24], every[24], minute[16], drain[24];
    char *path = find_sleeper(self);
    size_t n = 0;

    while (program[n] != NULL)
        n++;
    snprintf(fd, sizeof fd, "%d", listener);
    snprintf(idle, sizeof idle, "%lld", (long long)w->idle_ms);
    snprintf(every, sizeof every, "%lld", (long long)w->every_ms);
    snprintf(minute, sizeof minute, "%d", w->at_minute);
    snprintf(drain, sizeof drain, "%lld", (long long)w->drain_ms);
    const char *head[] = {"bellhop-sleeper",
                          fd,
                          idle,
                          every,
                          minute,
                          drain,
                          w->freeze ? "1" : "0",
                          w->wake_url != NULL ? w->wake_url : "",
                          self,
                          "--"};
    const char **argv = xcalloc(ARRAY_LEN(head) + n + 1, sizeof *argv);
    memcpy(argv, head, sizeof head);
    memcpy(argv + ARRAY_LEN(head), program, n * sizeof *program);
    execv(path, (char *const *)(uintptr_t)argv);
    int rc = cli_failed("%s cannot be run: %s", path, strerror(errno));
    free(argv);
    free(path);
    return rc;
}

/* ---- options ---- */

/* "6h", "every 6h", "07:30", "at 07:30" */
static bool read_schedule(const char *text, struct sleeper_wish *w)
{
    struct str s = str_of(text);
    unsigned hour, minute;
    char rest;

    if (str_starts(s, STR("every ")))
        s = str_skip(s, 6);
    else if (str_starts(s, STR("at ")))
        s = str_skip(s, 3);
    if (sscanf(s.p, "%2u:%2u%c", &hour, &minute, &rest) == 2 && hour < 24 && minute < 60) {
        w->at_minute = (int)(hour * 60 + minute);
        return true;
    }
    return str_to_duration_ms(s, &w->every_ms) && w->every_ms >= 1000;
}

static int read_wish(const struct command *c, struct sleeper_wish *w)
{
    if (w->idle == NULL || !str_to_duration_ms(str_of(w->idle), &w->idle_ms) || w->idle_ms < 100)
        return cli_misused(c, "--idle needs a duration such as 5m");
    if (w->listen == NULL)
        return cli_misused(c, "--wake-listen needs HOST:PORT, where the connector's poke arrives");
    if (w->mode != NULL && strcmp(w->mode, "exit") != 0 && strcmp(w->mode, "freeze") != 0)
        return cli_misused(c, "--mode is exit or freeze");
    w->freeze = w->mode != NULL && strcmp(w->mode, "freeze") == 0;
    if (w->schedule != NULL && !read_schedule(w->schedule, w))
        return cli_misused(c, "--schedule is a duration (6h) or a time of day (07:30)");
    if (w->drain != NULL && !str_to_duration_ms(str_of(w->drain), &w->drain_ms))
        return cli_misused(c, "--drain-timeout needs a duration such as 60s");
    if (w->url != NULL)
        setenv("GATEWAY_RELAY_URL", w->url, 1);
    if (w->id != NULL)
        setenv("GATEWAY_RELAY_ID", w->id, 1);
    if (w->secret != NULL)
        setenv("GATEWAY_RELAY_SECRET", w->secret, 1);
    if (getenv("GATEWAY_RELAY_URL") == NULL || getenv("GATEWAY_RELAY_ID") == NULL ||
        getenv("GATEWAY_RELAY_SECRET") == NULL)
        return cli_misused(c,
                           "GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET must be "
                           "set; `bellhop gateway add` prints them");
    return CLI_DONE;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct sleeper_wish w = {.at_minute = -1, .drain_ms = 60000};
    const struct cli_option options[] = {{"--idle", &w.idle, NULL},
                                         {"--wake-listen", &w.listen, NULL},
                                         {"--mode", &w.mode, NULL},
                                         {"--schedule", &w.schedule, NULL},
                                         {"--drain-timeout", &w.drain, NULL},
                                         {"--wake-url", &w.wake_url, NULL},
                                         {"--url", &w.url, NULL},
                                         {"--id", &w.id, NULL},
                                         {"--secret", &w.secret, NULL},
                                         {"--ask", &w.ask, NULL}};
    struct cli_args a;
    int mine = 1;

    while (mine < argc && strcmp(argv[mine], "--") != 0)
        mine++;
    if (!cli_parse(c, mine, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    if (w.ask != NULL && strcmp(w.ask, "instance") == 0)
        return ask_instance();
    if (w.ask != NULL && strcmp(w.ask, "probe") == 0 && a.n_rest == 2)
        return ask_probe(a.rest[0], a.rest[1]);
    if (w.ask != NULL || a.n_rest > 0 || mine + 1 >= argc)
        return cli_misused(
            c, "name the process after --: bellhop sleeper ... -- bellhop agent -- ./mine");
    int rc = read_wish(c, &w);
    if (rc != CLI_DONE)
        return rc;
    if (!program_exists(argv[mine + 1]))
        return cli_failed("there is no program \"%s\"", argv[mine + 1]);
    int listener = open_listener(w.listen);
    if (listener < 0)
        return CLI_FAILED;
    say_where(listener);
    return become(&w, listener, argv + mine + 1);
}

const struct command cmd_sleeper = {
    "sleeper",
    "let a gateway process sleep while nobody writes",
    "Usage: bellhop sleeper --idle D --wake-listen HOST:PORT [OPTIONS] -- PROCESS [ARGUMENTS]\n\n"
    "Runs PROCESS (a Hermes gateway, `bellhop agent -- ./mine`, anything that dials the relay) "
    "and\n"
    "lets it go when the connector has seen nothing of it for D and nothing is in flight; starts "
    "it\n"
    "again when the connector pokes, when the schedule says so, or on SIGUSR1.\n\n"
    "  --idle D              how long nothing may have gone in or out (5m)\n"
    "  --wake-listen ADDR    where the poke arrives; GET /healthz there says how it is\n"
    "  --mode exit|freeze    end the process with SIGTERM (the default), or have it go dormant "
    "with\n"
    "                        SIGUSR1 and stop it with SIGSTOP: faster to wake, keeps its memory\n"
    "  --schedule WHEN       wake it every 6h, or at 07:30, poke or no poke\n"
    "  --drain-timeout D     for the process to leave (60s); then it is killed\n"
    "  --wake-url URL        the registered wake URL, where the connector does not tell it\n"
    "  --url, --id, --secret   as GATEWAY_RELAY_URL, GATEWAY_RELAY_ID, GATEWAY_RELAY_SECRET\n\n"
    "It refuses to sleep while no wake URL is registered, while that URL does not lead to this\n"
    "listener (it pokes itself through it), and while the process does not connect by itself.\n"
    "SIGUSR1 wakes, SIGUSR2 lets it sleep as soon as nothing is in flight, SIGTERM ends both.\n"
    "Exit status: 0 left in good order (asleep included), 1 failed, 2 misused.\n",
    run,
};
