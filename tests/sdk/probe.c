/* probe.c - the gateway library with a handle on its outside: commands in, JSON lines out.
 *
 * The end-to-end tests drive it; it uses nothing but the public header and the shared library.
 *
 *      probe URL ID SECRET [PLATFORM[=BOT]]...         "-" for ID: no credential
 *
 *      mode ack|later|release|reply|slow MS     what on_event does from now on
 *      open | idle | close | quit | wait MS | state | stats | descriptor [PLATFORM]
 *      send CHAT TEXT | asend CHAT TEXT | edit CHAT MESSAGE TEXT | info CHAT | json ACTION
 *      follow KEY KIND TEXT | interrupt KEY | ackheld | releaseheld
 *      set OPTION NUMBER                        before open
 *
 *      PROBE_CA_FILE, PROBE_SEEN_FILE           options of these names
 *      PROBE_FREE                               declare a policy with this chat free
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bellhop/gateway.h"

#define MAX_HELD 65536

static struct {
    pthread_mutex_t lock;
    char mode[16];
    int slow_ms;
    uint64_t held[MAX_HELD];
    size_t n_held;
    struct bhgw_options opt;
} probe = {.lock = PTHREAD_MUTEX_INITIALIZER, .mode = "ack"};

/* ---- JSON lines ---- */

static void put(const char *s, size_t n)
{
    if (s == NULL) {
        fputs("null", stdout);
        return;
    }
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void field(const char *key, const char *value)
{
    printf(",\"%s\":", key);
    put(value, value != NULL ? strlen(value) : 0);
}

static void begin(const char *type)
{
    flockfile(stdout);
    printf("{\"t\":\"%s\"", type);
}

static void end(void)
{
    puts("}");
    fflush(stdout);
    funlockfile(stdout);
}

static void say_result(const char *type, const struct bhgw_result *r)
{
    begin(type);
    printf(",\"success\":%s", r->success ? "true" : "false");
    field("error", r->error);
    field("message_id", r->message_id);
    field("chat_name", r->chat_name);
    field("chat_type", r->chat_type);
    field("json", r->json);
    end();
}

static void say_status(const char *type, enum bhgw_status status)
{
    static const char *const names[] = {"ok", "timeout", "not_connected", "stopped", "no_threads"};

    begin(type);
    field("status", names[status]);
    end();
}

/* ---- handlers ---- */

static enum bhgw_verdict judge(uint64_t delivery)
{
    pthread_mutex_lock(&probe.lock);
    enum bhgw_verdict verdict = BHGW_ACK;
    if (strcmp(probe.mode, "release") == 0)
        verdict = BHGW_RELEASE;
    if (strcmp(probe.mode, "later") == 0 && probe.n_held < MAX_HELD) {
        verdict = BHGW_LATER;
        probe.held[probe.n_held++] = delivery;
    }
    int slow_ms = probe.slow_ms;
    pthread_mutex_unlock(&probe.lock);
    if (slow_ms > 0) {
        struct timespec t = {slow_ms / 1000, slow_ms % 1000 * 1000000L};
        nanosleep(&t, NULL);
    }
    return verdict;
}

static void current_mode(char mode[16])
{
    pthread_mutex_lock(&probe.lock);
    memcpy(mode, probe.mode, sizeof probe.mode);
    pthread_mutex_unlock(&probe.lock);
}

static enum bhgw_verdict on_event(void *ctx, struct bhgw *gw, const struct bhgw_event *ev)
{
    char mode[16];

    (void)ctx;
    current_mode(mode);
    begin("event");
    printf(",\"text\":");
    put(ev->text, ev->text_bytes);
    field("buffer_id", ev->buffer_id);
    field("session_key", ev->session_key);
    field("message_id", ev->message_id);
    field("platform", ev->platform);
    field("bot_id", ev->bot_id);
    field("chat_id", ev->chat_id);
    field("user_name", ev->user_name);
    field("answer_metadata", ev->answer_metadata);
    end();
    if (strcmp(mode, "reply") == 0) {
        struct bhgw_result *r = bhgw_reply_wait(gw, ev, ev->text);
        say_result("replied", r);
        bhgw_result_free(r);
    }
    if (strcmp(mode, "idle") == 0)
        say_status("idle", bhgw_go_idle_wait(gw));
    if (strcmp(mode, "close") == 0)
        bhgw_close(gw);
    return judge(ev->delivery);
}

static enum bhgw_verdict on_passthrough(void *ctx, struct bhgw *gw,
                                        const struct bhgw_passthrough *fwd)
{
    (void)ctx, (void)gw;
    begin("passthrough");
    field("platform", fwd->platform);
    field("method", fwd->method);
    field("path", fwd->path);
    field("header", fwd->n_headers > 0 ? fwd->header_values[0] : NULL);
    printf(",\"body\":");
    put(fwd->body, fwd->body_bytes);
    field("buffer_id", fwd->buffer_id);
    end();
    return judge(fwd->delivery);
}

static void on_interrupt(void *ctx, struct bhgw *gw, const char *session_key, const char *chat_id)
{
    (void)ctx, (void)gw;
    begin("interrupt");
    field("session_key", session_key);
    field("chat_id", chat_id);
    end();
}

static void on_state(void *ctx, struct bhgw *gw, enum bhgw_state state, const char *why)
{
    (void)ctx, (void)gw;
    begin("state");
    field("state", bhgw_state_name(state));
    field("why", why);
    end();
}

static void on_descriptor(void *ctx, struct bhgw *gw, const struct bhgw_descriptor *d)
{
    (void)ctx, (void)gw;
    begin("descriptor");
    field("platform", d->platform);
    printf(",\"max_message_length\":%d", d->max_message_length);
    end();
}

static void on_log(void *ctx, enum bhgw_log_level level, const char *line)
{
    (void)ctx;
    fprintf(stderr, "probe: %d %s\n", (int)level, line);
}

static void on_done(void *ctx, struct bhgw *gw, const struct bhgw_result *r)
{
    (void)ctx, (void)gw;
    say_result("done", r);
}

/* ---- commands ---- */

static void say_waited(struct bhgw_result *r)
{
    say_result("result", r);
    bhgw_result_free(r);
}

static void say_stats(struct bhgw *gw)
{
    struct bhgw_stats s = {.struct_bytes = sizeof s};

    bhgw_stats_get(gw, &s);
    begin("stats");
    printf(",\"connects\":%llu,\"events\":%llu,\"duplicates\":%llu,\"acks\":%llu,"
           "\"ack_messages\":%llu,\"bad_frames\":%llu,\"timeouts\":%llu,\"pending\":%zu",
           (unsigned long long)s.connects, (unsigned long long)s.events,
           (unsigned long long)s.duplicates, (unsigned long long)s.acks,
           (unsigned long long)s.ack_messages, (unsigned long long)s.bad_frames,
           (unsigned long long)s.timeouts, bhgw_pending(gw));
    end();
}

static void say_descriptor(struct bhgw *gw, const char *platform)
{
    struct bhgw_descriptor *d = bhgw_descriptor_get(gw, platform);

    if (d != NULL)
        on_descriptor(NULL, gw, d);
    else
        say_status("descriptor", BHGW_NOT_CONNECTED);
    bhgw_descriptor_free(d);
}

static void settle_held(struct bhgw *gw, void settle(struct bhgw *, uint64_t))
{
    pthread_mutex_lock(&probe.lock);
    for (size_t i = 0; i < probe.n_held; i++)
        settle(gw, probe.held[i]);
    probe.n_held = 0;
    pthread_mutex_unlock(&probe.lock);
}

static void set_mode(const char *mode, const char *ms)
{
    pthread_mutex_lock(&probe.lock);
    snprintf(probe.mode, sizeof probe.mode, "%s", mode);
    probe.slow_ms = atoi(ms);
    pthread_mutex_unlock(&probe.lock);
}

static bool is(const char *word, const char *command)
{
    return strcmp(word, command) == 0;
}

static void obey(struct bhgw *gw, const char *cmd, char *a, char *b, char *c)
{
    if (is(cmd, "mode"))
        set_mode(a, b), say_status("mode", BHGW_OK);
    else if (is(cmd, "open"))
        say_status("open", bhgw_open(gw));
    else if (is(cmd, "wait"))
        say_status("ready", bhgw_wait_ready(gw, atoi(a)));
    else if (is(cmd, "idle"))
        say_status("idle", bhgw_go_idle_wait(gw));
    else if (is(cmd, "close"))
        bhgw_close(gw), say_status("closed", BHGW_OK);
    else if (is(cmd, "stats"))
        say_stats(gw);
    else if (is(cmd, "state"))
        on_state(NULL, gw, bhgw_state(gw), "asked");
    else if (is(cmd, "descriptor"))
        say_descriptor(gw, a[0] != '\0' ? a : NULL);
    else if (is(cmd, "ackheld"))
        settle_held(gw, bhgw_ack);
    else if (is(cmd, "releaseheld"))
        settle_held(gw, bhgw_release);
    else if (is(cmd, "interrupt"))
        say_status("interrupted", bhgw_interrupt(gw, a, NULL));
    else if (is(cmd, "send"))
        say_waited(bhgw_send_wait(gw, a, b, NULL, NULL));
    else if (is(cmd, "asend"))
        bhgw_send(gw, a, b, NULL, NULL, on_done, NULL);
    else if (is(cmd, "edit"))
        say_waited(bhgw_edit_wait(gw, a, b, c, NULL));
    else if (is(cmd, "info"))
        say_waited(bhgw_get_chat_info_wait(gw, a));
    else if (is(cmd, "follow"))
        say_waited(bhgw_follow_up_wait(gw, a, b, c, NULL));
    else
        fprintf(stderr, "probe: no such command: %s\n", cmd);
}

static void set_option(const char *name, int value)
{
    struct bhgw_options *o = &probe.opt;

    if (is(name, "request_timeout_ms"))
        o->request_timeout_ms = value;
    else if (is(name, "handshake_timeout_ms"))
        o->handshake_timeout_ms = value;
    else if (is(name, "idle_ack_timeout_ms"))
        o->idle_ack_timeout_ms = value;
    else if (is(name, "ping_interval_ms"))
        o->ping_interval_ms = value;
    else if (is(name, "connect_timeout_ms"))
        o->connect_timeout_ms = value;
    else if (is(name, "backoff_min_ms"))
        o->backoff_min_ms = value;
    else if (is(name, "backoff_max_ms"))
        o->backoff_max_ms = value;
    else if (is(name, "max_pending"))
        o->max_pending = (size_t)value;
    else
        fprintf(stderr, "probe: no such option: %s\n", name);
}

static struct bhgw *make(void)
{
    char error[256];
    struct bhgw *gw = bhgw_new(&probe.opt, error, sizeof error);

    if (gw == NULL) {
        fprintf(stderr, "probe: %s\n", error);
        exit(2);
    }
    return gw;
}

static char *word(char **rest)
{
    char *w = strsep(rest, " ");

    return w != NULL ? w : (char *)"";
}

static void loop(void)
{
    struct bhgw *gw = NULL;
    char *line = NULL;
    size_t cap = 0;

    while (getline(&line, &cap, stdin) > 0) {
        char *rest = line, *keep;
        line[strcspn(line, "\n")] = '\0';
        char *cmd = word(&rest);
        if (is(cmd, "quit"))
            break;
        if (is(cmd, "set")) {
            char *name = word(&rest);
            set_option(name, atoi(word(&rest)));
            continue;
        }
        if (gw == NULL)
            gw = make();
        if (is(cmd, "json")) {
            say_waited(bhgw_request_json_wait(gw, rest, NULL, NULL));
            continue;
        }
        char *a = word(&rest), *b = rest != NULL ? rest : (char *)"", *c = (char *)"";
        if (is(cmd, "edit") || is(cmd, "follow")) {
            keep = b;
            b = word(&keep);
            c = keep != NULL ? keep : c;
        }
        obey(gw, cmd, a, b, c);
    }
    bhgw_free(gw);
    free(line);
}

/* Answer when addressed, and always in @chat. */
static void set_policy(const char *chat)
{
    static const char *scopes[1];
    static struct bhgw_policy policy = {.require_address = true, .free_scopes = scopes};

    scopes[0] = chat;
    policy.n_free_scopes = 1;
    probe.opt.policy = &policy;
}

int main(int argc, char **argv)
{
    struct bhgw_identity ids[8] = {{0}};

    if (argc < 4 || argc > 12)
        return 2;
    probe.opt = bhgw_options_init();
    probe.opt.url = argv[1];
    probe.opt.gateway_id = is(argv[2], "-") ? NULL : argv[2];
    probe.opt.secret = is(argv[2], "-") ? NULL : argv[3];
    probe.opt.ca_file = getenv("PROBE_CA_FILE");
    probe.opt.seen_file = getenv("PROBE_SEEN_FILE");
    if (getenv("PROBE_FREE") != NULL)
        set_policy(getenv("PROBE_FREE"));
    probe.opt.on_event = on_event;
    probe.opt.on_passthrough = on_passthrough;
    probe.opt.on_interrupt = on_interrupt;
    probe.opt.on_state = on_state;
    probe.opt.on_descriptor = on_descriptor;
    probe.opt.log = on_log;
    for (int i = 4; i < argc; i++) {
        char *bot = argv[i];
        ids[i - 4].platform = strsep(&bot, "=");
        ids[i - 4].bot_id = bot;
        probe.opt.n_identities++;
    }
    probe.opt.identities = ids;
    loop();
    return 0;
}
