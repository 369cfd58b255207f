/* setup_try.c - the last step of `bellhop setup`: a server, the first message, the first answer,
 * and the checks of doctor.  (setup.h is the map.)
 *
 * Everything is written by now, so this step never says that nothing was changed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/jw.h"
#include "base/launch.h"
#include "base/mem.h"
#include "cli/self.h"
#include "cli/settings.h"
#include "cli/setup.h"

enum {
    WAIT_MS = 5 * 60 * 1000,
    POLL_MS = 300,
    ANSWER_MS = 30000,
};

struct attempt {
    pid_t server; /* 0: none of ours */
    FILE *log;    /* of that server */
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the service ---- */

static bool systemctl(bool user, const char *verb, const char *more)
{
    const char *const words[] = {"systemctl", user ? "--user" : "--system", verb, more, NULL};
    char *argv[5] = {NULL};
    int status = 1;
    pid_t pid;

    for (size_t i = 0; words[i] != NULL; i++)
        argv[i] = (char *)(uintptr_t)words[i];
    if (launch(argv, environ, (int[]){-1, -1, -1}, &pid) != 0)
        return false;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0;
}

/* Writes a unit of the user's own manager, for everybody who is not root. */
static bool write_user_unit(const struct setup *s)
{
    const char *home = getenv("HOME");
    struct fileset d = {.n = 0};
    BUF_LOCAL path = BUF_INIT, text = BUF_INIT;
    char self[4096] = "", why[256] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (home == NULL || n <= 0)
        return false;
    buf_printf(&path, "%s/.config/systemd/user/bellhop.service", home);
    buf_printf(&text,
               "[Unit]\nDescription=bellhop, a connector between chat platforms and agents\n"
               "StartLimitIntervalSec=0\n\n"
               "[Service]\nType=notify\nExecStart=\"%s\" serve -c \"%s\"\n"
               "ExecReload=/bin/kill -HUP $MAINPID\nWatchdogSec=60\nRestart=always\nRestartSec=1\n"
               "RestartPreventExitStatus=2 76\nUMask=0077\n\n"
               "[Install]\nWantedBy=default.target\n",
               self, s->path);
    fileset_add(&d, buf_z(&path), buf_str(&text), 0644);
    bool ok = state_dir_make_parents(buf_z(&path), 1, 0755) && fileset_write(&d, why);
    if (ok)
        fileset_keep(&d);
    else
        terminal_say("The service was not installed: %s", why);
    fileset_done(&d);
    return ok;
}

/* Installs and starts the service if wanted.  True: it has been started. */
static bool start_service(struct setup *s)
{
    bool root = geteuid() == 0, wanted = cli_flag(s->j, "--service"), ok;

    if (!wanted && access("/run/systemd/system", F_OK) == 0 &&
        !terminal_confirm(&s->t,
                          root ? "Start bellhop with systemd, now and with the machine?"
                               : "Start bellhop with systemd, now and when you log in?",
                          false, &wanted))
        return false;
    if (!wanted)
        return false;
    if (root && strcmp(s->path, SETTINGS_SYSTEM) != 0) {
        terminal_say("The service reads /etc/bellhop/bellhop.yaml: run this command with -c "
                     "/etc/bellhop/bellhop.yaml to set it up. It was not started.");
        return false;
    }
    if (!root && !write_user_unit(s))
        return false;
    ok = (root || systemctl(true, "daemon-reload", NULL)) &&
         systemctl(!root, "enable", "bellhop.service") &&
         systemctl(!root, "restart", "bellhop.service");
    if (!ok)
        terminal_say("systemd did not start the service. See: systemctl %sstatus bellhop, and "
                     "docs/operations.md to install it.",
                     root ? "" : "--user ");
    else
        terminal_say(root ? "The service bellhop runs, and starts with the machine."
                          : "The service bellhop runs while you are logged in. So that it starts "
                            "with the machine and goes on without you: loginctl enable-linger");
    return ok;
}

/* ---- a server ---- */

static void show_log(FILE *log)
{
    char line[512];

    rewind(log);
    while (fgets(line, sizeof line, log) != NULL)
        if (strstr(line, "info") == NULL)
            terminal_say("  %.*s", (int)strcspn(line, "\n"), line);
}

static bool start_server(struct setup *s, struct attempt *a)
{
    const char *const args[] = {"serve", "-c", s->path, NULL};
    BUF_LOCAL ready = BUF_INIT;
    char why[256] = "";
    int fd;

    if (state_dir_is_foreign(settings_of(s->cfg)->state_dir)) {
        terminal_say("No server runs, and one that root starts would write files into %s that the "
                     "service cannot read. Start the service, and run this command again to see "
                     "the first message.",
                     settings_of(s->cfg)->state_dir);
        return false;
    }
    a->log = tmpfile();
    if (a->log == NULL || !self_start(args, fileno(a->log), &a->server, &fd, why)) {
        terminal_say("The server was not started: %s", a->log == NULL ? strerror(errno) : why);
        a->server = 0;
        return false;
    }
    bool up = self_read(fd, true, &ready);
    close(fd);
    if (up)
        return true;
    terminal_say("The configuration is written, but the server did not start:");
    show_log(a->log);
    self_end(a->server);
    a->server = 0;
    return false;
}

/* True: the running server has the bot, with its present settings. */
static bool server_has_bot(struct setup *s)
{
    if (cli_op(s->j, "status", NULL, 0) != CLI_DONE || json_str(s->j->doc, "awaitsRestart").n > 0)
        return false;
    for (struct json_iter it = {0}; json_next(json_get(s->j->doc, "platforms"), &it);)
        if (str_eq(json_str(it.value, "platform"), str_of(s->ops->name)) &&
            str_eq(json_str(it.value, "bot"), str_of(s->bot)))
            return true;
    return false;
}

static bool wait_for_restart(struct setup *s, const char *dir, int64_t wait_ms)
{
    int64_t end = now_ms() + wait_ms;

    if (wait_ms > 0)
        terminal_say("A server runs already. Restart it, so that it opens the bot as it is now "
                     "(Enter skips this).");
    while (now_ms() < end && !terminal_wait(&s->t, POLL_MS))
        if (cli_server_answers(dir) && server_has_bot(s))
            return true;
    return false;
}

/* ---- the gateway of a Hermes agent ---- */

static const char *const env_names[] = {"GATEWAY_RELAY_URL", "GATEWAY_RELAY_ID",
                                        "GATEWAY_RELAY_SECRET"};
static const char *const env_keys[] = {"url", "id", "secret"};

static struct str env_value(struct str line, const char *name)
{
    size_t n = strlen(name);

    return str_starts(line, str_of(name)) && line.n > n && line.p[n] == '=' ? str_skip(line, n + 1)
                                                                            : STR_NULL;
}

/* True: the gateway that the file names is one of this server's. */
static bool is_attached(struct setup *s, struct str text)
{
    struct str line, id = STR_NULL;

    while (str_split(&text, '\n', &line))
        if (env_value(line, env_names[1]).n > 0)
            id = str_trim(env_value(line, env_names[1]));
    if (id.n == 0 || cli_op(s->j, "listGateways", NULL, 0) != CLI_DONE)
        return false;
    for (struct json_iter it = {0}; json_next(json_get(s->j->doc, "gateways"), &it);)
        if (str_eq(json_str(it.value, "id"), id) &&
            json_type(json_get(it.value, "revokedAt")) != JSON_NUMBER)
            return true;
    return false;
}

/* Replaces the three lines of the file, or adds them at its end; everything else stays. */
static void change_env(struct str text, struct json credential, struct buf *out)
{
    bool done[3] = {false};
    struct str line;

    if (text.n > 0 && text.p[text.n - 1] == '\n')
        text.n--;
    while (text.n > 0 && str_split(&text, '\n', &line)) {
        bool ours = false;
        for (size_t i = 0; i < 3; i++)
            if (env_value(line, env_names[i]).p != NULL) {
                ours = true;
                if (!done[i])
                    buf_printf(out, "%s=%.*s\n", env_names[i],
                               STR_FMT(json_str(credential, env_keys[i])));
                done[i] = true;
            }
        if (!ours)
            buf_printf(out, "%.*s\n", STR_FMT(line));
    }
    for (size_t i = 0; i < 3; i++)
        if (!done[i])
            buf_printf(out, "%s=%.*s\n", env_names[i], STR_FMT(json_str(credential, env_keys[i])));
}

static bool attach_hermes(struct setup *s)
{
    BUF_LOCAL bots = BUF_INIT;
    BUF_SECRET text = BUF_INIT, changed = BUF_INIT;
    struct fileset d = {.n = 0};
    struct jw w = jw_begin(&bots);
    char why[256] = "";

    if (s->env_file != NULL && !file_read(s->env_file, (size_t)1 << 20, &text))
        return setup_stop(s, "%s: %s", s->env_file, strerror(errno));
    if (s->env_file != NULL && is_attached(s, buf_str(&text))) {
        terminal_say("%s names a gateway of this server already; it stays as it is.", s->env_file);
        return true;
    }
    jw_arr(&w);
    jw_obj(&w);
    jw_kstr(&w, "platform", str_of(s->ops->name));
    jw_kstr(&w, "bot", str_of(s->bot));
    jw_end_obj(&w);
    jw_end_arr(&w);
    if (cli_op(s->j, "addGateway",
               CLI_GIVEN({"tenant", str_of(setup_tenant(s))}, {"instance", str_of(s->instance)},
                         {"bots", buf_str(&bots)},
                         {"open", s->open ? STR("true") : STR("false")})) != CLI_DONE)
        return false;
    change_env(buf_str(&text), s->j->doc, &changed);
    if (s->env_file == NULL) {
        terminal_say("Put these lines into the gateway's .env:");
        fwrite(changed.p, 1, changed.n, stdout);
        fflush(stdout);
        return true;
    }
    struct stat st;
    unsigned mode = stat(s->env_file, &st) == 0 ? st.st_mode & 07777 : 0644;
    fileset_add(&d, s->env_file, buf_str(&changed), mode == 0600 ? 0600 : 0644);
    bool ok = fileset_write(&d, why);
    if (ok)
        fileset_keep(&d);
    fileset_done(&d);
    terminal_say(ok ? "%s has the gateway's three lines. Restart the gateway." : "%s: %s",
                 s->env_file, why);
    return ok;
}

/* ---- the first message ---- */

static void tell_reach(struct setup *s)
{
    if (s->ops->page_visitor != NULL && cli_op(s->j, "status", NULL, 0) == CLI_DONE)
        terminal_say("\nOpen %.*s/chat/%s in a browser and write something.",
                     STR_FMT(json_str(s->j->doc, "url")), s->bot);
    else if (s->report.reach[0] != '\0')
        terminal_say("\nReach the bot: %s", s->report.reach);
}

static bool has_instance(struct setup *s)
{
    if (cli_op(s->j, "listGateways", CLI_GIVEN({"instance", str_of(s->instance)})) != CLI_DONE)
        return false;
    return json_count(json_get(s->j->doc, "gateways")) > 0;
}

static bool is_live(struct setup *s)
{
    return cli_op(s->j, "showInstance",
                  CLI_GIVEN({"tenant", str_of(setup_tenant(s))},
                            {"instance", str_of(s->instance)})) == CLI_DONE &&
           str_eq(json_str(s->j->doc, "state"), STR("live"));
}

/* The gateway of an agent that the server runs is there a moment after the start; a message that
 * comes before it has nobody to go to.  The agent itself connects a moment later. */
static void wait_for_instance(struct setup *s)
{
    bool there = has_instance(s);

    for (int i = 0; i < 100 && !there && !terminal_wait(&s->t, 100); i++)
        there = has_instance(s);
    for (int i = 0; i < 20 && there && s->who == SETUP_HOSTED && !is_live(s); i++)
        if (terminal_wait(&s->t, 100))
            break;
}

static void tell_link(struct setup *s)
{
    if (s->open || s->who == SETUP_NOBODY)
        return;
    if (cli_op(s->j, "link",
               CLI_GIVEN({"tenant", str_of(setup_tenant(s))}, {"instance", str_of(s->instance)},
                         {"platform", str_of(s->ops->name)}, {"bots", str_of(s->bot)})) ==
        CLI_DONE) {
        terminal_say("To link yourself to the agent, send the bot this message: /link %.*s",
                     STR_FMT(json_str(s->j->doc, "code")));
        cli_link_how(str_of(s->ops->name));
    }
}

/* Prints the messages since *@last_ms, and moves it.  True: an agent received one. */
static bool show_arrivals(struct setup *s, int64_t *last_ms)
{
    int64_t newest = *last_ms;
    bool received = false;

    if (cli_op(s->j, "why", CLI_GIVEN({"platform", str_of(s->ops->name)})) != CLI_DONE)
        return false;
    for (struct json_iter it = {0}; json_next(json_get(s->j->doc, "decisions"), &it);) {
        int64_t at = cli_i64(it.value, "at");
        struct str consumed = json_str(it.value, "consumed");
        struct json verdicts = json_get(it.value, "verdicts");
        bool taken = false;
        if (at <= *last_ms)
            continue;
        newest = at > newest ? at : newest;
        for (struct json_iter v = {0}; json_next(verdicts, &v);)
            taken |= cli_bool(v.value, "received");
        received |= taken;
        terminal_say("A message from %.*s has arrived: %s", STR_FMT(json_str(it.value, "userId")),
                     consumed.n > 0 ? "it was a command to bellhop. Write something to "
                                      "the agent now."
                     : taken        ? "the agent gets it."
                                    : "no agent gets it, because its author is not linked.");
    }
    *last_ms = newest;
    return received;
}

static bool has_answered(struct setup *s, int64_t since_ms)
{
    return cli_op(s->j, "showInstance",
                  CLI_GIVEN({"tenant", str_of(setup_tenant(s))},
                            {"instance", str_of(s->instance)})) == CLI_DONE &&
           cli_i64(s->j->doc, "lastOutboundAt") >= since_ms;
}

/* @since_ms: before anybody was told how to reach the bot. */
static void wait_for_message(struct setup *s, int64_t since_ms, int64_t wait_ms)
{
    int64_t last = since_ms - 1, end = now_ms() + wait_ms;
    bool received = false, answered = false, skipped = false;

    terminal_say("Waiting for the first message (Enter skips this) ...");
    while (!received && !skipped && now_ms() < end) {
        received = show_arrivals(s, &last);
        skipped = !received && terminal_wait(&s->t, POLL_MS);
    }
    for (end = now_ms() + ANSWER_MS; received && !answered && !skipped && now_ms() < end;) {
        answered = has_answered(s, since_ms);
        skipped = !answered && terminal_wait(&s->t, POLL_MS);
    }
    terminal_say(answered   ? "The agent has answered. It works."
                 : received ? "The agent has not answered yet. See: bellhop agent list"
                            : "No message yet. `bellhop why` shows every message that arrives, and "
                              "who gets it.");
}

/* ---- all of it ---- */

static void try_bot(struct setup *s, struct attempt *a, const char *dir, int64_t wait_ms)
{
    bool service = start_service(s), runs = cli_server_answers(dir);

    if (terminal_is_stopped(&s->t))
        return;
    if (!runs && !service && (wait_ms > 0 || s->who == SETUP_HERMES))
        runs = start_server(s, a);
    for (int i = 0; service && !runs && i < 100 && !terminal_wait(&s->t, 100); i++)
        runs = cli_server_answers(dir);
    if (!runs)
        return;
    if (s->files.n > 0 && a->server == 0 && !service)
        (void)cli_op(s->j, "reload", NULL, 0); /* a new agent needs no restart */
    if (!server_has_bot(s) && !wait_for_restart(s, dir, wait_ms)) {
        terminal_say("The running server does not have the bot as it is now: restart it.");
        return;
    }
    if (s->who == SETUP_HERMES && !attach_hermes(s))
        return;
    if (s->who != SETUP_NOBODY)
        wait_for_instance(s);
    int64_t since_ms = now_ms();
    tell_reach(s);
    tell_link(s);
    if (wait_ms > 0 && s->who != SETUP_NOBODY)
        wait_for_message(s, since_ms, wait_ms);
}

bool setup_try(struct setup *s)
{
    char *dir = xstrdup(settings_of(s->cfg)->state_dir);
    struct attempt a = {.server = 0};
    char doctor[] = "doctor", c[] = "-c", *argv[] = {doctor, c, s->path, NULL};

    if (s->ops != NULL)
        try_bot(s, &a, dir, cli_number(s->j, "--wait", s->t.asks ? WAIT_MS : 0));
    if (!terminal_is_stopped(&s->t)) {
        terminal_say("\nThe checks of `bellhop doctor`:");
        int rc = cli_run(&cmd_doctor, 3, argv);
        s->rc = s->rc != CLI_DONE ? s->rc : rc;
        fflush(stdout);
    }
    if (a.server != 0)
        self_end(a.server);
    if (a.log != NULL)
        fclose(a.log);
    if (!cli_server_answers(dir) && state_dir_is_foreign(dir))
        terminal_say("\nStart it with: systemctl start bellhop");
    else if (!cli_server_answers(dir))
        terminal_say("\nStart it with: bellhop serve -c %s", s->path);
    free(dir);
    return true;
}
