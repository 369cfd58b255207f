/* watch.c - `bellhop trace` and `bellhop top`: what happens in the server, as it happens. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "cli/cli.h"

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void print_time(FILE *to, int64_t at_ms)
{
    time_t at = (time_t)(at_ms / 1000);
    char when[16] = "-";
    struct tm tm;

    if (localtime_r(&at, &tm) != NULL)
        strftime(when, sizeof when, "%H:%M:%S", &tm);
    fprintf(to, "%s.%03d ", when, (int)(at_ms % 1000));
}

/* ---- trace ---- */

static void print_event(FILE *to, struct json e)
{
    struct str consumed = cli_shown(e, "consumed"), refused = cli_shown(e, "refused");

    fprintf(to, "message %.*s %.*s in %.*s from %.*s%s%.*s\n", STR_FMT(cli_shown(e, "platform")),
            STR_FMT(cli_shown(e, "messageId")), STR_FMT(cli_shown(e, "chatId")),
            STR_FMT(cli_shown(e, "userId")),
            consumed.n > 0  ? ": "
            : refused.n > 0 ? ": refused: "
                            : "",
            STR_FMT(consumed.n > 0 ? consumed : refused));
    for (struct json_iter it = {0}; json_next(json_get(e, "verdicts"), &it);)
        fprintf(to, "             %s %.*s/%.*s: %.*s%s%.*s\n",
                cli_bool(it.value, "received") ? "to" : "not to",
                STR_FMT(cli_shown(it.value, "tenant")), STR_FMT(cli_shown(it.value, "instance")),
                STR_FMT(cli_shown(it.value, "words")),
                json_str(it.value, "delivery").n > 0 ? ", delivery " : "",
                STR_FMT(cli_shown(it.value, "delivery")));
}

static void print_record(FILE *to, struct json r)
{
    struct str kind = json_str(r, "kind");
    struct json x = json_get(r, str_eq(kind, STR("event"))  ? "event"
                                : str_eq(kind, STR("step")) ? "step"
                                                            : "action");

    print_time(to, cli_i64(x, "at"));
    if (str_eq(kind, STR("event")))
        print_event(to, x);
    else if (str_eq(kind, STR("step")))
        fprintf(to, "delivery %.*s: %.*s\n", STR_FMT(cli_shown(x, "delivery")),
                STR_FMT(cli_shown(x, "words")));
    else
        fprintf(to, "%.*s of %.*s/%.*s to %.*s %.*s: %.*s%s%.*s\n", STR_FMT(cli_shown(x, "op")),
                STR_FMT(cli_shown(x, "tenant")), STR_FMT(cli_shown(x, "instance")),
                STR_FMT(cli_shown(x, "platform")), STR_FMT(cli_shown(x, "chat_id")),
                STR_FMT(cli_shown(x, "ended")), json_str(x, "reason").n > 0 ? ", " : "",
                STR_FMT(cli_shown(x, "reason")));
}

static void save_record(FILE *to, struct json r)
{
    struct buf line = BUF_INIT;
    struct jw w = jw_begin(&line);

    jw_value(&w, r);
    buf_add_c(&line, '\n');
    fwrite(line.p, 1, line.n, to);
    buf_done(&line);
}

/* One answer of the server: prints its records and takes the cursor.  @wait_ms 0: only looks. */
static int trace_step(struct cli_job *j, int64_t wait_ms, char after[24], FILE *file)
{
    char wait[24];
    const char *person = cli_value(j, "--person"), *chat = cli_value(j, "--chat");

    snprintf(wait, sizeof wait, "%" PRId64, wait_ms);
    int rc =
        cli_op(j, "trace",
               CLI_GIVEN({"platform", str_of(cli_value(j, "--platform"))},
                         {"person", str_of(person)}, {"chat", str_of(chat)},
                         {"tenant", str_of(cli_value(j, "--tenant"))},
                         {"instance", str_of(cli_value(j, "--instance"))}, {"wait", str_of(wait)},
                         {"after", after[0] != '\0' ? str_of(after) : STR_NULL}));
    if (rc != CLI_DONE)
        return rc;
    for (struct json_iter it = {0}; json_next(json_get(j->doc, "records"), &it);) {
        if (file != NULL)
            save_record(file, it.value);
        if (j->json)
            save_record(stdout, it.value);
        else
            print_record(stdout, it.value);
    }
    snprintf(after, 24, "%.*s", STR_FMT(cli_shown(j->doc, "after")));
    if (file != NULL && fflush(file) != 0)
        return cli_failed("the file cannot be written");
    fflush(stdout);
    return CLI_DONE;
}

static int trace(struct cli_job *j)
{
    const char *path = cli_value(j, "--file");
    int64_t until_ms = now_ms() + cli_number(j, "--for", 600000);
    char after[24] = "";

    if (cli_value(j, "--person") == NULL && cli_value(j, "--chat") == NULL &&
        cli_value(j, "--instance") == NULL)
        return cli_misused(j, "trace what? Give --person, --chat or --instance");
    FILE *file = path != NULL ? fopen(path, "we") : NULL;
    if (path != NULL && file == NULL)
        return cli_failed("%s cannot be written", path);
    int rc = trace_step(j, 0, after, file);
    if (rc == CLI_DONE)
        fputs("Watching. Ctrl-C ends it.\n", stderr);
    while (rc == CLI_DONE && now_ms() < until_ms) {
        int64_t left_ms = until_ms - now_ms();
        rc = trace_step(j, left_ms < 10000 ? left_ms + 1 : 10000, after, file);
    }
    if (file != NULL && fclose(file) != 0)
        return cli_failed("%s cannot be written", path);
    return rc;
}

static const struct cli_verb trace_verbs[] = {{"", .op = "trace", .run = trace}, {0}};
static const struct cli_option trace_options[] = {
    {"--platform"},
    {"--person"},
    {"--chat"},
    {"--tenant"},
    {"--instance"},
    {"--file"},
    {"--for", .kind = CLI_DURATION},
    {0},
};
const struct command cmd_trace = {
    .name = "trace",
    .summary = "watch one person, chat or instance live",
    .help =
        "Usage: bellhop trace --person U | --chat C | --instance I [--tenant T]\n"
        "                     [--platform P]\n"
        "                     [--for 10m] [--file F] [--json]\n\n"
        "Prints every message, verdict, delivery and action that matches, as it happens, until\n"
        "--for is over.  --file saves the records too, one JSON object per line.  Records have\n"
        "ids and times, never the texts of messages.  `bellhop why` looks back.\n",
    .verbs = trace_verbs,
    .options = trace_options,
};

/* ---- top ---- */

struct top { /* the counters of the last look, for rates */
    int64_t at_ms, in, acked, out;
};

static double rate(int64_t now, int64_t then, int64_t ms)
{
    return ms > 0 && now >= then ? (double)(now - then) * 1000 / (double)ms : 0;
}

static void print_latency(struct json flow, const char *key, const char *what)
{
    struct json l = json_get(json_get(flow, "latency"), key);
    int64_t p50, p99;

    if (json_as_i64(json_get(l, "p50"), &p50) && json_as_i64(json_get(l, "p99"), &p99))
        printf("  %-18s half within %" PRId64 " ms, 99 %% within %" PRId64 " ms\n", what, p50, p99);
}

static void print_flow(struct json flow, struct top *t)
{
    struct json n = json_get(flow, "counters"), i = json_get(flow, "instances");
    struct json m = json_get(flow, "mailbox"), o = json_get(flow, "outbox");
    int64_t at_ms = cli_i64(flow, "now"), oldest_ms = cli_i64(m, "oldestAt");
    int64_t in = cli_i64(n, "accepted") + cli_i64(n, "gated") + cli_i64(n, "unrouted");
    int64_t ms = t->at_ms != 0 ? at_ms - t->at_ms : 0;

    printf("instances  %" PRId64 " live, %" PRId64 " away, %" PRId64 " asleep, %" PRId64 " never\n",
           cli_i64(i, "live"), cli_i64(i, "away"), cli_i64(i, "asleep"), cli_i64(i, "never"));
    printf("in         %" PRId64 " events (%.1f/s), %" PRId64 " for nobody, %" PRId64 " refused\n",
           in, rate(in, t->in, ms), cli_i64(n, "gated") + cli_i64(n, "unrouted"),
           cli_i64(n, "refused"));
    printf("delivered  %" PRId64 " sent, %" PRId64 " acked (%.1f/s), %" PRId64 " parked\n",
           cli_i64(n, "delivered"), cli_i64(n, "acked"), rate(cli_i64(n, "acked"), t->acked, ms),
           cli_i64(m, "parked"));
    print_latency(flow, "acceptToSent", "accepted to sent");
    print_latency(flow, "acceptToAck", "accepted to acked");
    printf("waiting    %" PRId64 " deliveries, %" PRId64 " KiB, the oldest %" PRId64 " s\n",
           cli_i64(m, "entries"), cli_i64(m, "bytes") / 1024,
           oldest_ms > 0 ? (at_ms - oldest_ms) / 1000 : 0);
    printf("out        %" PRId64 " actions (%.1f/s), %" PRId64 " refused; outbox %" PRId64
           " waiting, %" PRId64 " trying, %" PRId64 " unknown\n",
           cli_i64(n, "actions"), rate(cli_i64(n, "actions"), t->out, ms),
           cli_i64(n, "actionsRefused"), cli_i64(o, "waiting"), cli_i64(o, "trying"),
           cli_i64(o, "unknown"));
    *t = (struct top){at_ms, in, cli_i64(n, "acked"), cli_i64(n, "actions")};
}

static void print_slow(struct json doc)
{
    size_t rows = 0;

    for (struct json_iter it = {0}; rows < 10 && json_next(json_get(doc, "unacked"), &it); rows++) {
        struct buf name = BUF_INIT;
        if (rows == 0)
            printf("\n%-32s %-7s %8s %8s %10s\n", "INSTANCE", "STATE", "WAITING", "PARKED",
                   "OLDEST");
        buf_add_plain(&name, json_str(it.value, "tenant"));
        buf_add_c(&name, '/');
        buf_add_plain(&name, json_str(it.value, "instance"));
        printf("%-32s %-7.*s %8" PRId64 " %8" PRId64 " %8" PRId64 " s\n", buf_z(&name),
               STR_FMT(cli_shown(it.value, "state")), cli_i64(it.value, "waiting"),
               cli_i64(it.value, "parked"), cli_i64(it.value, "ageMs") / 1000);
        buf_done(&name);
    }
}

static int look(struct cli_job *j, struct top *t, bool terminal)
{
    int rc = cli_op(j, "flow", NULL, 0);

    if (rc != CLI_DONE)
        return rc;
    if (j->json) {
        cli_print_json(j->doc);
        return rc;
    }
    if (terminal)
        fputs("\033[H\033[J", stdout); /* home, and clear */
    print_flow(j->doc, t);
    rc = cli_op(j, "slow", NULL, 0);
    if (rc == CLI_DONE)
        print_slow(j->doc);
    fflush(stdout);
    return rc;
}

static int top(struct cli_job *j)
{
    bool terminal = isatty(STDOUT_FILENO) == 1, once = cli_flag(j, "--once") || !terminal;
    int64_t every_ms = cli_number(j, "--every", 2000);
    struct top t = {0};
    struct pollfd key = {.fd = STDIN_FILENO, .events = POLLIN};
    char pressed[16];
    int rc = look(j, &t, terminal && !once);

    while (rc == CLI_DONE && !once && !ferror(stdout)) {
        if (poll(&key, 1, (int)every_ms) > 0 &&
            (read(STDIN_FILENO, pressed, sizeof pressed) <= 0 || pressed[0] == 'q'))
            break; /* q and Enter, or the end of the input */
        rc = look(j, &t, true);
    }
    return rc;
}

static const struct cli_verb top_verbs[] = {{"", .op = "flow", .run = top}, {0}};
static const struct cli_option top_options[] = {
    {"--once", .kind = CLI_FLAG},
    {"--every", .kind = CLI_DURATION},
    {0},
};
const struct command cmd_top = {
    .name = "top",
    .summary = "a live view of the server in the terminal",
    .help = "Usage: bellhop top [--every 2s] [--once] [--json]\n\n"
            "Shows instances, rates, latencies, what waits and for whom, again every two seconds\n"
            "until q and Enter, or Ctrl-C.  Without a terminal, or with --once, it prints once.\n",
    .verbs = top_verbs,
    .options = top_options,
};
