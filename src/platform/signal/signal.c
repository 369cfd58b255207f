/* signal.c - settings, open, close, check and status of one account; fetches people's files.
 * (signal_priv.h is the map of the other files.) */
#include "platform/signal/signal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/loop.h"
#include "net/spawner.h"
#include "net/work.h"
#include "platform/signal/compose.h"
#include "platform/signal/signal_priv.h"

enum {
    MAX_CHATS = 4096,
    MAX_SAID = 2048,
    MAX_TOLD = 1024,
    MAX_WORDS = 100,
    CHECK_MS = 20000,
    LISTEN_MS = 60000,
    SUBSCRIBE_MS = 60000, /* signal-cli connects to Signal first */
};
#define MANUAL "--receive-mode=manual"

/* ---- settings ---- */

#define AT(member) offsetof(struct signal_settings, member)

static const struct config_key keys[] = {
    {"command", CFG_TEXTS, CFG_RESTART, AT(command), .words = true, .ask = "",
     .what = "The program to run: `[signal-cli, -a, \"+15551230000\", jsonRpc]`. bellhop adds "
             "`" MANUAL "`, and starts the program again when it ends."},
    {"address", CFG_TEXT, CFG_RESTART, AT(address),
     .what = "Instead of `command`: where a `signal-cli daemon` listens, as `unix:/path` or "
             "`host:port`. The connection is not encrypted."},
    {"read_receipts", CFG_BOOL, CFG_RESTART, AT(read_receipts), "true",
     .what = "Tell people that their messages were read, once an agent's mailbox has them."},
    PLATFORM_KEY_REACTIONS,
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct signal_settings *s = settings;
    size_t words = 0;

    while (s->command != NULL && s->command[words] != NULL)
        words++;
    if (!signal_is_number(str_of(s->base.bot)))
        return bh_why(ret_why, "`bot` is the account's number, such as \"+15551230000\"");
    if ((words > 0) == (s->address != NULL))
        return bh_why(ret_why, "a signal platform needs `command` or `address`, and not both");
    if (words > MAX_WORDS)
        return bh_why(ret_why, "`command` has more than %d words", MAX_WORDS);
    if (s->address != NULL && child_address_wrong(s->address) != NULL)
        return bh_why(ret_why, "`address`: %s", child_address_wrong(s->address));
    return true;
}

const struct config_section signal_config = {.name = "signal",
                                             .keys = keys,
                                             .size = sizeof(struct signal_settings),
                                             .check = check};

static char *const *signal_runs(const struct platform_settings *cfg)
{
    return container_of(cfg, const struct signal_settings, base)->command;
}

/* ---- what all files use ---- */

struct jw signal_params(struct signal_bot *s, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "account", str_of(s->base.bot));
    return w;
}

struct signal_chat *signal_chat(struct signal_bot *s, struct str chat)
{
    return lru_use(&s->chats, chat, sizeof(struct signal_chat));
}

static void said_key(struct str chat, struct str id, struct buf *out)
{
    buf_printf(out, "%.*s %.*s", STR_FMT(chat), STR_FMT(id));
}

struct signal_said *signal_said(struct signal_bot *s, struct str chat, struct str id)
{
    BUF_LOCAL key = BUF_INIT;

    said_key(chat, id, &key);
    return lru_find(&s->said, buf_str(&key));
}

struct signal_said *signal_said_add(struct signal_bot *s, struct str chat, struct str id,
                                    struct str text)
{
    BUF_LOCAL key = BUF_INIT;
    struct signal_said *m;

    said_key(chat, id, &key);
    m = lru_use(&s->said, buf_str(&key), sizeof *m);
    free(m->text);
    m->text = str_dup_opt(text);
    return m;
}

static void chat_done(struct lru *l, void *entry)
{
    free(((struct signal_chat *)entry)->name);
}

static void said_done(struct lru *l, void *entry)
{
    free(((struct signal_said *)entry)->text);
}

/* ---- people's files: signal-cli has downloaded them, and gives them as base64 ---- */

struct signal_file {
    struct list link;
    struct signal_bot *s; /* borrowed; NULL: the bot is closed */
    struct media_ask ask;
    struct child_call *call; /* NULL: answered */
    struct buf bytes;
};

static void file_free(struct signal_file *f)
{
    list_remove(&f->link);
    buf_done(&f->bytes);
    free(f);
}

static void on_released(void *ctx)
{
    file_free(ctx);
}

static void on_file(void *ctx, const struct child_answer *a)
{
    struct signal_file *f = ctx;
    struct host *host = f->s->base.host;
    struct str data = json_str(a->value, "data");

    f->call = NULL;
    if (a->ok && data.n > 0 && base64_decode(data, &f->bytes) && !buf_failed(&f->bytes)) {
        list_remove(&f->link); /* the host has it now */
        host_media_bytes(host, f->ask, buf_str(&f->bytes), on_released, f);
        return;
    }
    host_media_gone(host, f->ask,
                    a->err == BH_OK ? "signal-cli does not have the file"
                                    : "signal-cli did not hand the file over");
    file_free(f);
}

static void signal_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct signal_bot *s = signal_of(p);
    struct signal_file *f = xcalloc(1, sizeof *f);
    BUF_LOCAL params = BUF_INIT;
    struct jw w = signal_params(s, &params);

    jw_kstr(&w, "id", ref);
    jw_end_obj(&w);
    *f = (struct signal_file){.s = s, .ask = ask};
    list_append(&s->files, &f->link);
    f->call =
        child_call(s->child, 0, "getAttachment", buf_str(&params), SIGNAL_UPLOAD_MS, on_file, f);
}

/* ---- the account at signal-cli ---- */

static void on_subscribed(void *ctx, const struct child_answer *a)
{
    struct signal_bot *s = ctx;
    char why[256];
    BUF_LOCAL plain = BUF_INIT;

    s->subscribe = NULL;
    if (a->ok) {
        s->live = true;
        platform_set_problem(&s->base, NULL);
        log_info(&s->base.log, "signal-cli receives messages");
        return;
    }
    buf_add_plain(&plain, utf8_head(a->message, 120));
    snprintf(why, sizeof why, "signal-cli does not receive messages for this number: %s",
             buf_z(&plain));
    platform_set_problem(&s->base, why);
    child_restart(s->child, "it refused to receive messages");
}

static void on_version(void *ctx, const struct child_answer *a)
{
    struct signal_bot *s = ctx;
    BUF_LOCAL plain = BUF_INIT;

    s->ask_version = NULL;
    if (!a->ok)
        return;
    buf_add_plain(&plain, utf8_head(json_str(a->value, "version"), 40));
    snprintf(s->version, sizeof s->version, "%s", buf_z(&plain));
}

static void on_up(void *ctx)
{
    struct signal_bot *s = ctx;
    BUF_LOCAL params = BUF_INIT;
    struct jw w = signal_params(s, &params);

    jw_end_obj(&w);
    child_cancel(&s->ask_version);
    child_cancel(&s->subscribe);
    s->ask_version =
        child_call(s->child, 0, "version", buf_str(&params), SUBSCRIBE_MS, on_version, s);
    s->subscribe = child_call(s->child, 0, "subscribeReceive", buf_str(&params), SUBSCRIBE_MS,
                              on_subscribed, s);
}

static void on_down(void *ctx, const char *why)
{
    struct signal_bot *s = ctx;

    s->live = false;
    platform_set_problem(&s->base, why);
}

static const struct child_ops child_ops = {.up = on_up,
                                           .down = on_down,
                                           .notified = signal_notified,
                                           .late = signal_late};

/* ---- life ---- */

static bool has_word(char *const *argv, const char *word)
{
    for (; argv != NULL && *argv != NULL; argv++)
        if (strncmp(*argv, word, strlen(word)) == 0)
            return true;
    return false;
}

/* signal-cli can answer and yet have lost its connection to Signal.  Where no message came for much
 * longer than usual, a new process makes a new connection; the host says it in `status`. */
static void on_listen(struct timer *t)
{
    struct signal_bot *s = container_of(t, struct signal_bot, listen);
    struct clock *clock = s->base.env->clock;
    int64_t now_ms = clock_now_ms(clock);
    char why[160];

    timer_set(clock, t, LISTEN_MS);
    if (!s->live || (s->poked_ms != 0 && now_ms - s->poked_ms < PLATFORM_DEAF_MS) ||
        !platform_is_deaf(&s->base, clock_wall_ms(clock), why))
        return;
    s->poked_ms = now_ms;
    child_restart(s->child, why);
}

static enum bh_err signal_open(struct platform *p, char *ret_why)
{
    struct signal_bot *s = signal_of(p);
    BUF_LOCAL dir = BUF_INIT;

    s->cfg = container_of(p->settings, const struct signal_settings, base);
    bool manual =
        has_word(s->cfg->command, "jsonRpc") && !has_word(s->cfg->command, "--receive-mode");
    s->chats = (struct lru){.max = MAX_CHATS, .free = chat_done};
    s->said = (struct lru){.max = MAX_SAID, .free = said_done};
    s->told.max = MAX_TOLD;
    list_init(&s->files);
    list_init(&s->receipts);
    timer_init(&s->again, signal_again);
    buf_printf(&dir, "%s/children", p->env->state_dir);
    (void)mkdir(buf_z(&dir), 0700); /* child_open() says what is wrong */
    buf_add_z(&dir, "/signal-");
    file_name_add(&dir, str_of(p->bot));
    s->dir = buf_take(&dir);
    s->options = (struct child_options){.argv = s->cfg->command,
                                        .more = manual ? MANUAL : NULL,
                                        .address = s->cfg->address,
                                        .ping = "version",
                                        .max_line = SIGNAL_LINE_MAX,
                                        .loop = p->env->loop,
                                        .spawner = p->env->spawner,
                                        .dir = s->dir,
                                        .log = &p->log};
    s->child = child_open(&s->options, &child_ops, s, ret_why);
    timer_init(&s->listen, on_listen);
    timer_set(p->env->clock, &s->listen, LISTEN_MS);
    return s->child != NULL ? BH_OK : BH_UNAVAILABLE;
}

static void signal_close(struct platform *p)
{
    struct signal_bot *s = signal_of(p);

    signal_inbound_close(s);
    timer_stop(p->env->clock, &s->listen);
    child_close(s->child);
    s->child = NULL;
    work_pool_free(s->readers);
    list_each (&s->files, it, nxt)
        file_free(list_entry(it, struct signal_file, link));
    lru_done(&s->chats);
    lru_done(&s->said);
    lru_done(&s->told);
    arena_done(&s->arena);
    free(s->dir);
}

/* ---- setup and doctor ---- */

struct signal_asked { /* the answer of a program or a daemon, for the command line */
    bool over, ok;
    char text[200];
};

static void on_ran(void *ctx, const struct spawn_end *end)
{
    struct signal_asked *q = ctx;
    struct str words = str_trim(end->well ? end->output : end->errors);
    BUF_LOCAL plain = BUF_INIT;

    buf_add_plain(&plain, utf8_head(words.n > 0 ? words : str_of(end->how), 150));
    snprintf(q->text, sizeof q->text, "%s", buf_z(&plain));
    q->ok = end->well;
    q->over = true;
}

static void turn_until(struct loop *loop, const bool *over)
{
    int64_t end_ms = clock_now_ms(loop_clock(loop)) + CHECK_MS;

    while (!*over && clock_now_ms(loop_clock(loop)) < end_ms)
        loop_turn(loop, 200);
}

/* Runs the command with --version in place of jsonRpc: the account may be in use. */
static enum bh_err check_command(char *const *command, struct signal_asked *q, char *ret_why)
{
    const char *argv[MAX_WORDS + 2] = {0};
    const char *const *const commands[] = {argv};
    struct spawner *spawner;
    struct loop *loop;
    size_t n = 0;

    while (command[n] != NULL && strcmp(command[n], "jsonRpc") != 0) {
        argv[n] = command[n];
        n++;
    }
    if (command[n] == NULL || n == 0) { /* a script of the operator's */
        q->over = q->ok = true;
        return BH_OK;
    }
    argv[n] = "--version";
    spawner = spawner_new(commands, 1, STR_NULL, false, ret_why);
    loop = spawner != NULL ? loop_new() : NULL;
    if (loop != NULL) {
        spawner_watch(spawner, loop);
        struct spawn *run =
            spawner_run(spawner, &(struct spawn_order){.timeout_ms = CHECK_MS, .max_output = 1000},
                        on_ran, q);
        if (run != NULL)
            turn_until(loop, &q->over);
        if (run != NULL && !q->over)
            spawn_cancel(&run);
    }
    spawner_free(spawner);
    if (loop != NULL)
        loop_free(loop);
    if (!q->over || !q->ok)
        return bh_err_why(BH_REFUSED, ret_why, "%s cannot be run: %.150s", argv[0],
                          q->over ? q->text : "it does not end");
    return BH_OK;
}

struct signal_dialled {
    struct signal_asked asked;
    const char *bot;
    struct child_peer *child;
};

static void on_told(void *ctx, const struct child_answer *a)
{
    struct signal_dialled *d = ctx;
    BUF_LOCAL plain = BUF_INIT;

    buf_add_plain(&plain, utf8_head(a->ok ? json_str(a->value, "version") : a->message, 120));
    snprintf(d->asked.text, sizeof d->asked.text, "%s", buf_z(&plain));
    d->asked.ok = a->ok;
    d->asked.over = true;
}

static void on_dialled(void *ctx)
{
    struct signal_dialled *d = ctx;
    BUF_LOCAL params = BUF_INIT;
    struct jw w = jw_begin(&params);

    jw_obj(&w);
    jw_kstr(&w, "account", str_of(d->bot));
    jw_end_obj(&w);
    (void)!child_call(d->child, 0, "version", buf_str(&params), CHECK_MS, on_told, d);
}

static void on_undialled(void *ctx, const char *why)
{
    struct signal_dialled *d = ctx;

    snprintf(d->asked.text, sizeof d->asked.text, "%s", why);
    d->asked.over = true;
}

static bool on_passed(void *ctx, struct str method, struct json params)
{
    return true;
}

static enum bh_err check_address(const struct signal_settings *cfg, struct signal_asked *ret,
                                 char *ret_why)
{
    static const struct child_ops ops = {.up = on_dialled,
                                         .down = on_undialled,
                                         .notified = on_passed};
    static const struct log quiet = {0};
    char dir[] = "/tmp/bellhop-XXXXXX";
    struct signal_dialled d = {.bot = cfg->base.bot};
    struct loop *loop = mkdtemp(dir) != NULL ? loop_new() : NULL;
    BUF_LOCAL file = BUF_INIT;

    if (loop == NULL)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "cannot make a directory in /tmp");
    struct child_options o = {
        .address = cfg->address, .max_line = 65536, .loop = loop, .dir = dir, .log = &quiet};
    d.child = child_open(&o, &ops, &d, ret_why);
    if (d.child != NULL)
        turn_until(loop, &d.asked.over);
    child_close(d.child);
    loop_free(loop);
    buf_printf(&file, "%s/1", dir);
    (void)unlink(buf_z(&file));
    (void)rmdir(dir);
    *ret = d.asked;
    if (d.child == NULL || !d.asked.over)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "%s does not answer", cfg->address);
    if (!d.asked.ok)
        return bh_err_why(BH_REFUSED, ret_why, "%.200s", d.asked.text);
    return BH_OK;
}

static enum bh_err signal_check(const struct platform_settings *settings,
                                struct platform_report *ret, char *ret_why)
{
    const struct signal_settings *cfg = container_of(settings, const struct signal_settings, base);
    struct signal_asked q = {0};
    enum bh_err err = cfg->command != NULL ? check_command(cfg->command, &q, ret_why)
                                           : check_address(cfg, &q, ret_why);

    if (err != BH_OK)
        return err;
    platform_tell(ret->bot, sizeof ret->bot, str_of(cfg->base.bot));
    snprintf(ret->reach, sizeof ret->reach, "in Signal, write to %.40s", cfg->base.bot);
    if (q.text[0] != '\0')
        snprintf(ret->notes, sizeof ret->notes, "%s%s",
                 str_starts(str_of(q.text), STR("signal-cli")) ? "" : "signal-cli ", q.text);
    return BH_OK;
}

/* ---- status ---- */

static const char *signal_state(struct platform *p)
{
    return signal_of(p)->live ? "live" : p->problem != NULL ? "degraded" : "starting";
}

static void signal_status(struct platform *p, struct jw *w)
{
    struct signal_bot *s = signal_of(p);
    struct child_stats n = {0};

    if (s->child != NULL)
        child_stats(s->child, &n);
    jw_kstr(w, "signalCli", str_of(s->version));
    jw_ki64(w, "programStarts", (int64_t)n.starts);
    jw_ki64(w, "programLines", (int64_t)n.lines);
    jw_ki64(w, "programNoise", (int64_t)n.noise);
    jw_ki64(w, "unreadBytes", (int64_t)n.unread);
    jw_ki64(w, "ownDevices", (int64_t)s->n.synced);
    jw_ki64(w, "notDecrypted", (int64_t)s->n.undecrypted);
    jw_ki64(w, "editsShed", (int64_t)s->n.edits_shed);
    jw_ki64(w, "limited", (int64_t)s->n.limited);
    jw_ki64(w, "answersLate", (int64_t)s->n.late);
}

static void signal_forget(struct platform *p, struct str person)
{
    struct signal_bot *s = signal_of(p);
    struct signal_chat *c = lru_find(&s->chats, person);

    if (c != NULL)
        lru_drop(&s->chats, c);
    for (struct list *it = s->said.by_age.next, *next; it != NULL && it != &s->said.by_age;
         it = next) {
        struct signal_said *m = container_of(it, struct signal_said, lru.age);
        next = it->next;
        if (str_contains(m->lru.key, person))
            lru_drop(&s->said, m);
    }
}

static const struct descriptor descriptor = {
    .platform = "signal",
    .label = "Signal",
    .max_message_length = SIGNAL_TEXT,
    .supports_edit = true,
    .markdown_dialect = "markdown",
    .len_unit = "utf16",
    .emoji = "\xf0\x9f\x94\xb5",
    .platform_hint =
        "You are talking on Signal. Bold, italic, strike, spoilers and code are shown; links are "
        "shown as text. Tables are not shown. A message can be edited ten times within a day.",
    .pii_safe = true,
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING |
           1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT |
           1u << ACTION_REACT,
};

const struct platform_ops signal_ops = {
    .name = "signal",
    .config = &signal_config,
    .descriptor = &descriptor,
    .size = sizeof(struct signal_bot),
    .label = "Signal",
    .sender = &signal_sender,
    .open = signal_open,
    .close = signal_close,
    .runs = signal_runs,
    .check = signal_check,
    .steps = "Install signal-cli: https://github.com/AsamK/signal-cli\n"
             "Give it an account, as the user that runs bellhop: link it to your phone with\n"
             "`signal-cli link -n bellhop`, or register a number of its own.",
    .bot_is = "The account's number: +15551230000",
    .act = signal_act,
    .forget = signal_forget,
    .media_where = signal_media_where,
    .state = signal_state,
    .status = signal_status,
};
