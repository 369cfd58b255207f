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
#include "net/program.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "cli/cli.h"
#include "cli/paths.h"
#include "net/http_client.h"

#define ASK_TIMEOUT_MS 5000

struct sleeper_times {
    int64_t every_ms;
    int at_minute; /* of the day; -1: none */
};

/* ---- questions ---- */

static int problem(const char *what, const char *detail)
{
    printf("problem %s%s%s\n", what, *detail != '\0' ? ": " : "", detail);
    return CLI_FAILED;
}

static void tell_instance(struct json doc)
{
    struct json mailbox = json_get(doc, "mailbox");
    int64_t in = cli_i64(doc, "lastInboundAt"), out = cli_i64(doc, "lastOutboundAt");
    int64_t last = in > out ? in : out, now = cli_i64(doc, "now");

    if (now == 0)
        now = (int64_t)time(NULL) * 1000; /* the connector sends no time: use our clock */

    printf("state %.*s\n", STR_FMT(json_str(doc, "state")));
    if (last > 0)
        printf("idle_ms %lld\n", (long long)(now > last ? now - last : 0));
    printf("unacked %lld\nentries %lld\n", (long long)cli_i64(doc, "unacked"),
           (long long)cli_i64(mailbox, "entries"));
    if (!str_is_empty(json_str(doc, "wakeUrl")))
        printf("wake_url %.*s\n", STR_FMT(json_str(doc, "wakeUrl")));
}

/* False: @ret_why (256 bytes) says why there is no answer. */
static bool fetch(const char *url, const char *header, int *ret_status, struct buf *ret_body,
                  char *ret_why)
{
    const char *const headers[] = {header, NULL};

    return http_fetch_now(&(struct http_fetch){.url = url,
                                               .headers = headers,
                                               .timeout_ms = ASK_TIMEOUT_MS,
                                               .max_body = 65536},
                          ret_status, ret_body, ret_why) == BH_OK;
}

static int ask_instance(void)
{
    const char *where = getenv("GATEWAY_RELAY_URL"), *id = getenv("GATEWAY_RELAY_ID"),
               *secret = getenv("GATEWAY_RELAY_SECRET");
    char *base = where != NULL ? bhgw_http_url(where) : NULL, why[256] = "";
    struct json_parser *parser = json_parser_new();
    struct buf url = BUF_INIT, bearer = BUF_INIT, body = BUF_INIT;
    struct json doc;
    int status = 0, rc;

    if (base == NULL || id == NULL || secret == NULL)
        return problem("GATEWAY_RELAY_URL, GATEWAY_RELAY_ID or GATEWAY_RELAY_SECRET is missing",
                       "");
    char *token = bhgw_token(id, secret, 300);
    buf_printf(&url, "%s/manage/instance", base);
    buf_printf(&bearer, "Authorization: Bearer %s", token);
    if (!fetch(buf_z(&url), buf_z(&bearer), &status, &body, why))
        rc = problem("the connector cannot be reached", why);
    else if (status != 200 || !json_parse(parser, buf_str(&body), &doc))
        rc = problem("the connector does not tell the state of the instance",
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
    if (fetch(url, buf_z(&header), &status, &body, why))
        printf("reached %d\n", status);
    else
        rc = problem("the wake URL cannot be reached", why);
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

static int become(struct cli_job *j, const struct sleeper_times *t, int listener)
{
    const char *mode = cli_value(j, "--mode"), *wake_url = cli_value(j, "--wake-url");
    char self[4096], fd[16], idle[24], every[24], minute[16], drain[24];
    char *path = find_sleeper(self);
    size_t n = 0;

    while (j->program[n] != NULL)
        n++;
    snprintf(fd, sizeof fd, "%d", listener);
    snprintf(idle, sizeof idle, "%lld", (long long)cli_number(j, "--idle", 0));
    snprintf(every, sizeof every, "%lld", (long long)t->every_ms);
    snprintf(minute, sizeof minute, "%d", t->at_minute);
    snprintf(drain, sizeof drain, "%lld", (long long)cli_number(j, "--drain-timeout", 60000));
    const char *head[] = {"bellhop-sleeper",
                          fd,
                          idle,
                          every,
                          minute,
                          drain,
                          mode == NULL || strcmp(mode, "exit") == 0 ? "0"
                          : strcmp(mode, "freeze") == 0             ? "1"
                                                                    : "2",
                          wake_url != NULL ? wake_url : "",
                          self,
                          "--"};
    const char **argv = xcalloc(ARRAY_LEN(head) + n + 1, sizeof *argv);
    memcpy(argv, head, sizeof head);
    memcpy(argv + ARRAY_LEN(head), j->program, n * sizeof *j->program);
    execv(path, (char *const *)(uintptr_t)argv);
    int rc = cli_failed("%s cannot be run: %s", path, strerror(errno));
    free(argv);
    free(path);
    return rc;
}

/* ---- options ---- */

/* "6h", "every 6h", "07:30", "at 07:30" */
static bool read_schedule(const char *text, struct sleeper_times *t)
{
    struct str s = str_of(text);
    unsigned hour, minute;
    char rest;

    if (str_starts(s, STR("every ")))
        s = str_skip(s, 6);
    else if (str_starts(s, STR("at ")))
        s = str_skip(s, 3);
    if (sscanf(s.p, "%2u:%2u%c", &hour, &minute, &rest) == 2 && hour < 24 && minute < 60) {
        t->at_minute = (int)(hour * 60 + minute);
        return true;
    }
    return str_to_duration_ms(s, &t->every_ms) && t->every_ms >= 1000;
}

/* Options of the credential become environment, which the program and the questions read. */
static bool has_credential(struct cli_job *j)
{
    static const char *const names[][2] = {{"--url", "GATEWAY_RELAY_URL"},
                                           {"--id", "GATEWAY_RELAY_ID"},
                                           {"--secret", "GATEWAY_RELAY_SECRET"}};
    bool all = true;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *given = cli_value(j, names[i][0]);
        if (given != NULL)
            setenv(names[i][1], given, 1);
        all = all && getenv(names[i][1]) != NULL;
    }
    return all;
}

static int run(struct cli_job *j)
{
    const char *ask = cli_value(j, "--ask"), *schedule = cli_value(j, "--schedule"),
               *where = cli_value(j, "--wake-listen"), *mode = cli_value(j, "--mode");
    bool starts_only = mode != NULL && strcmp(mode, "start") == 0;
    struct sleeper_times t = {.at_minute = -1};

    if (ask != NULL && strcmp(ask, "instance") == 0)
        return ask_instance();
    if (ask != NULL && j->n_args == 2)
        return ask_probe(j->args[0], j->args[1]);
    if (ask != NULL || j->n_args > 0 || j->program == NULL || j->program[0] == NULL)
        return cli_misused(j, "name the process after --: bellhop sleeper ... -- bellhop agent -- "
                              "./mine");
    if (cli_number(j, "--idle", 0) < 100 && !starts_only)
        return cli_misused(j, "--idle needs a duration such as 5m");
    if (where == NULL)
        return cli_misused(j, "--wake-listen needs HOST:PORT, where the connector's wake request "
                              "arrives");
    if (schedule != NULL && !read_schedule(schedule, &t))
        return cli_misused(j, "--schedule is a duration (6h) or a time of day (07:30)");
    if (!starts_only && !has_credential(j))
        return cli_misused(j, "GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET must "
                              "be set; `bellhop gateway add` prints them");
    if (!program_exists(j->program[0]))
        return cli_failed("there is no program \"%s\"", j->program[0]);
    int listener = open_listener(where);
    if (listener < 0)
        return CLI_FAILED;
    say_where(listener);
    return become(j, &t, listener);
}

static const struct cli_option options[] = {
    {"--idle", .kind = CLI_DURATION},
    {"--wake-listen"},
    {"--mode", .one_of = "exit|freeze|start"},
    {"--schedule"},
    {"--drain-timeout", .kind = CLI_DURATION},
    {"--wake-url"},
    {"--url"},
    {"--id"},
    {"--secret"},
    {"--ask", .one_of = "instance|probe"}, /* called by bellhop-sleeper */
    {0},
};

const struct command cmd_sleeper = {
    .name = "sleeper",
    .summary = "let a gateway process sleep while nobody writes",
    .help =
        "Usage: bellhop sleeper --idle D --wake-listen HOST:PORT [OPTIONS] -- PROCESS [ARG...]\n"
        "       bellhop sleeper --mode start --wake-listen HOST:PORT -- COMMAND [ARG...]\n\n"
        "Runs PROCESS (a Hermes gateway, `bellhop agent -- ./mine`, any program that dials the\n"
        "relay).  Stops the process once its instance was idle for D and nothing is in flight.\n"
        "Starts it again when the connector sends its wake request (the poke), at the scheduled\n"
        "time, or on SIGUSR1.\n\n"
        "  --idle D              time without any message in or out (for example 5m)\n"
        "  --wake-listen ADDR    address for the poke; GET /healthz there tells the state\n"
        "  --mode exit|freeze    end the process with SIGTERM (the default), or tell it to go\n"
        "                        dormant with SIGUSR1 and stop it with SIGSTOP: it wakes faster\n"
        "                        and keeps its memory\n"
        "  --mode start          run COMMAND at each poke, and nothing else: it starts an agent\n"
        "                        that looks after itself (tmux, systemctl); needs no credential\n"
        "  --schedule WHEN       also wake it every 6h, or at 07:30\n"
        "  --drain-timeout D     time for the process to exit (60s); then it is killed\n"
        "  --wake-url URL        the registered wake URL, if the connector does not tell it\n"
        "  --url, --id, --secret   as GATEWAY_RELAY_URL, GATEWAY_RELAY_ID, GATEWAY_RELAY_SECRET\n\n"
        "The sleeper keeps the process running while no wake URL is registered, while that URL\n"
        "does not lead to this listener (it tests the URL itself), and while the process is not\n"
        "connected.  SIGUSR1 wakes the process, SIGUSR2 stops it as soon as nothing is in\n"
        "flight, SIGTERM ends both.  Exit status: 0 clean exit (also while asleep), 1 failed,\n"
        "2 misused.\n",
    .verbs = (const struct cli_verb[]){{"", .args = "[url] [nonce]", .run = run}, {0}},
    .options = options,
    .program = true,
};
