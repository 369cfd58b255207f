/* irc.c - settings, open, close, check and status of one bot; its connection, channels and nick.
 * (irc_priv.h lists the other files.)
 *
 *      start --> connect --live--> JOIN, history --lost--> wait --> connect
 *                   '-- the server wants TLS (STS) --> connect there at once
 *
 * Reconnects wait a second, then twice as long each time up to a minute, and some chance, so that
 * many bots do not come back together.  A channel that cannot be joined is tried again after half a
 * minute, then later and later. */
#include "platform/irc/irc.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/addr.h"
#include "base/config.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/loop.h"
#include "platform/irc/irc_priv.h"
#include "platform/recent.h"

enum {
    TICK_MS = 1000,
    FIRST_RETRY_MS = 1000,
    MAX_RETRY_MS = 60000,
    DENIED_MS = 60000,
    BEAT_MS = 44000,
    REGAIN_MS = 30000,
    JOIN_MS = 30000, /* doubled with each failure */
    MAX_JOIN_MS = 600000,
    JOIN_ANSWER_MS = 15000,
    MAX_CHANNELS = 200,
    CHECK_MS = 30000,
    SECRET_MAX = 400,
};

/* ---- settings ---- */

#define AT(member) offsetof(struct irc_settings, member)

static const struct config_key keys[] = {
    {"server", CFG_TEXT, CFG_RESTART, AT(server), .ask = "",
     .what = "The server, `host:port`. Without a port: 6697, without TLS 6667."},
    {"tls", CFG_BOOL, CFG_RESTART, AT(tls), "true",
     .what = "Speak TLS from the first byte. A server that asks for TLS (STS) gets it anyway."},
    {"channels", CFG_TEXTS, CFG_RESTART, AT(channels), .ask = "",
     .what = "The channels to be in: `#lobby`, or `#lobby key`."},
    {"sasl.mechanism", CFG_ENUM, CFG_RESTART, AT(sasl.mechanism), "none",
     "none|plain|external|scram-sha-256", .ask = "",
     .what = "How the bot logs in to its account. A bot that cannot log in does not stay."},
    {"sasl.user", CFG_TEXT, CFG_RESTART, AT(sasl.user), .ask = "sasl.mechanism!=none",
     .what = "The account. Without it: the nick."},
    {"sasl.password", CFG_SECRET, CFG_RESTART, AT(sasl.password), .ask = "sasl.mechanism!=none",
     .what = "Its password, for `plain` and `scram-sha-256`."},
    {"sasl.cert", CFG_SECRET, CFG_RESTART, AT(sasl.cert),
     .what =
         "For `external`: a certificate and its key, as PEM; `cert_file` names a file instead."},
    {"password", CFG_SECRET, CFG_RESTART, AT(password),
     .what = "The password of the server itself, where it has one."},
    {"username", CFG_TEXT, CFG_RESTART, AT(username),
     .what = "The user name in the bot's mask. Without it: the nick."},
    {"real_name", CFG_TEXT, CFG_RESTART, AT(real_name), .what = "What `/whois` shows as the name."},
    {"ca", CFG_TEXT, CFG_RESTART, AT(ca),
     .what = "A PEM file of the authorities to trust, instead of the system's."},
    {"flood.burst", CFG_NUMBER, CFG_RESTART, AT(burst), "4", .min = 1, .max = 1000,
     .what = "How many lines the server takes at once."},
    {"flood.interval", CFG_DURATION, CFG_RESTART, AT(interval_ms), "2s", .min = 1, .max = 60000,
     .what = "After that: one line in this time. Servers cut off whoever is faster."},
    {"context", CFG_NUMBER, CFG_RESTART, AT(context), "20", .max = EVENT_MAX_CONTEXT,
     .what = "How many earlier messages of a channel are remembered and delivered as context."},
    PLATFORM_KEY_REACTIONS,
    {0},
};

/* "host", "host:port", "[v6]:port". */
static bool split_server(const char *text, bool tls, char **ret_host, uint16_t *ret_port)
{
    struct str s = str_of(text), host, port;
    const char *colon = strrchr(text, ':');
    uint64_t n = tls ? 6697 : 6667;

    if (s.n > 0 && s.p[0] == '[') {
        ptrdiff_t end = str_find(s, ']');
        if (end < 0)
            return false;
        host = str_make(s.p + 1, (size_t)end - 1);
        port = str_skip(s, (size_t)end + 1);
        if (port.n > 0 && port.p[0] != ':')
            return false;
        port = port.n > 0 ? str_skip(port, 1) : STR_NULL;
    } else {
        host = colon != NULL ? str_make(s.p, (size_t)(colon - s.p)) : s;
        port = colon != NULL ? str_skip(s, host.n + 1) : STR_NULL;
    }
    bool named = port.p != NULL;
    if (host.n == 0 || (named && (!str_to_u64(port, &n) || n == 0 || n > 65535)) ||
        str_until_control(host) != host.n || str_find(host, ' ') >= 0 || str_find(host, '/') >= 0)
        return false;
    *ret_host = str_dup(host);
    *ret_port = (uint16_t)n;
    return true;
}

static bool is_word(const char *z)
{
    return z == NULL || (str_until_control(str_of(z)) == strlen(z) && strchr(z, ' ') == NULL &&
                         z[0] != ':' && z[0] != '\0' && strlen(z) <= IRC_NAME_MAX);
}

static bool check_channels(const struct irc_settings *s, char *ret_why)
{
    size_t n = 0;

    for (char **c = s->channels; c != NULL && *c != NULL; c++, n++) {
        struct str rest = str_of(*c), name;
        str_split(&rest, ' ', &name);
        if (!irc_is_channel(name, STR("#&+!")) || rest.n > 60 ||
            (rest.p != NULL && (str_has_only(rest, "") ? false : strchr(rest.p, ',') != NULL)))
            return bh_why(ret_why, "`channels`: %.80s is not a channel, such as #lobby", *c);
    }
    return n <= MAX_CHANNELS || bh_why(ret_why, "`channels` has more than %d", MAX_CHANNELS);
}

static bool check_sasl(const struct irc_settings *s, bool local, char *ret_why)
{
    bool by_password = s->sasl.mechanism == SASL_PLAIN || s->sasl.mechanism == SASL_SCRAM;

    if (by_password && s->sasl.password == NULL)
        return bh_why(ret_why, "`sasl.mechanism` needs `sasl.password`");
    if (s->sasl.mechanism == SASL_EXTERNAL && (s->sasl.cert == NULL || !s->tls))
        return bh_why(ret_why, "`sasl.mechanism: external` needs `sasl.cert` and `tls`");
    if (s->sasl.mechanism == SASL_PLAIN && !s->tls && !local)
        return bh_why(ret_why, "`sasl.mechanism: plain` without `tls` would show the password to "
                               "the network: use `tls`, or `scram-sha-256`");
    if (s->sasl.mechanism == SASL_NONE && (s->sasl.user != NULL || s->sasl.password != NULL))
        return bh_why(ret_why, "`sasl` needs a `mechanism`: plain, external or scram-sha-256");
    if ((s->sasl.user != NULL && strlen(s->sasl.user) > IRC_NAME_MAX) ||
        (s->sasl.password != NULL && strlen(s->sasl.password) > SECRET_MAX) ||
        (s->password != NULL && (strlen(s->password) > SECRET_MAX ||
                                 str_until_control(str_of(s->password)) != strlen(s->password))))
        return bh_why(ret_why, "a user or password is too long, or has control characters");
    return true;
}

static bool check(void *settings, char *ret_why)
{
    const struct irc_settings *s = settings;
    struct str bot = str_of(s->base.bot);
    ptrdiff_t at = str_find(bot, '@');
    struct str network = at > 0 ? str_skip(bot, (size_t)at + 1) : STR_NULL;
    char *host;
    uint16_t port;

    if (at <= 0 || !irc_is_nick(str_make(bot.p, (size_t)at)) || network.n == 0 || network.n > 64 ||
        !str_has_only(network, "-._"))
        return bh_why(ret_why, "`bot` must be nick@network, such as desk@libera: the nick, and "
                               "your own name for the network (letters, digits, - . _)");
    if (s->server == NULL || !split_server(s->server, s->tls, &host, &port))
        return bh_why(ret_why, "an irc platform needs `server`, such as irc.libera.chat:6697");
    bool local = addr_host_is_local(str_of(host));
    free(host);
    if (!is_word(s->username))
        return bh_why(ret_why, "`username` must be one word");
    if (s->real_name != NULL && (strlen(s->real_name) > IRC_NAME_MAX ||
                                 str_until_control(str_of(s->real_name)) != strlen(s->real_name)))
        return bh_why(ret_why, "`real_name` is too long, or has control characters");
    return check_channels(s, ret_why) && check_sasl(s, local, ret_why);
}

const struct config_section irc_config = {.name = "irc",
                                          .keys = keys,
                                          .size = sizeof(struct irc_settings),
                                          .check = check};

static char *nick_of(const struct irc_settings *s)
{
    return str_dup(str_make(s->base.bot, (size_t)(strchr(s->base.bot, '@') - s->base.bot)));
}

static void fill_options(const struct irc_settings *cfg, const char *host, uint16_t port, bool tls,
                         const char *nick, struct irc_link_options *ret)
{
    *ret = (struct irc_link_options){.host = host,
                                     .port = port,
                                     .tls = tls,
                                     .ca = cfg->ca,
                                     .cert = tls ? cfg->sasl.cert : NULL,
                                     .nick = nick,
                                     .user = cfg->username != NULL ? cfg->username : nick,
                                     .name = cfg->real_name != NULL ? cfg->real_name
                                                                    : "an agent behind bellhop",
                                     .password = cfg->password,
                                     .sasl = (enum sasl_mechanism)cfg->sasl.mechanism,
                                     .sasl_user = cfg->sasl.user != NULL ? cfg->sasl.user
                                                  : cfg->sasl.mechanism != SASL_EXTERNAL ? nick
                                                                                         : NULL,
                                     .sasl_password = cfg->sasl.password,
                                     .burst = cfg->burst,
                                     .interval_ms = cfg->interval_ms};
}

/* ---- what the other files ask ---- */

struct irc_in irc_in_of(const struct irc *i)
{
    const struct irc_server *s = i->live ? irc_link_server(i->link) : &i->was;

    return (struct irc_in){.bot = str_of(i->base.bot),
                           .network = str_of(i->network),
                           .nick = i->live ? irc_link_nick(i->link) : str_of(i->was_nick),
                           .chantypes = str_of(s->chantypes),
                           .statusmsg = str_of(s->statusmsg),
                           .fold = s->fold,
                           .has_accounts = (s->caps & IRC_ACCOUNT) != 0,
                           .has_tags = (s->caps & IRC_TAGS) != 0,
                           .reactions = i->cfg->base.reactions};
}

bool irc_may_tag(const struct irc *i, struct str name)
{
    struct str denied, word;
    bool may = true;

    if (!irc_has(i, IRC_TAGS))
        return false;
    denied = str_of(irc_link_server(i->link)->tag_deny);
    while (denied.n > 0 && str_split(&denied, ',', &word)) {
        if (str_eq(word, STR("*")) || str_eq(word, name))
            may = false;
        else if (word.n > 1 && word.p[0] == '-' && str_eq(str_skip(word, 1), name))
            return true;
    }
    return may;
}

uint64_t irc_label(struct irc *i)
{
    return ++i->out.labels;
}

/* ---- channels ---- */

static struct irc_channel *find_channel(struct irc *i, struct str name)
{
    struct irc_in in = irc_in_of(i);

    for (size_t n = 0; n < i->n_channels; n++)
        if (irc_eq(in.fold, str_of(i->channels[n].name), name))
            return &i->channels[n];
    return NULL;
}

/* Sets the problem for operators: the first channel that the bot cannot join. */
static void tell_problem(struct irc *i)
{
    char text[256];

    for (size_t n = 0; n < i->n_channels; n++)
        if (!i->channels[n].joined && i->channels[n].why[0] != '\0') {
            snprintf(text, sizeof text, "the bot is not in %.60s: %.160s", i->channels[n].name,
                     i->channels[n].why);
            platform_set_problem(&i->base, text);
            return;
        }
    platform_set_problem(&i->base, NULL);
}

static void join_due(struct irc *i)
{
    int64_t now = irc_now_ms(i);

    for (size_t n = 0; n < i->n_channels; n++) {
        struct irc_channel *c = &i->channels[n];
        BUF_LOCAL line = BUF_INIT;
        if (c->joined || c->again_ms > now)
            continue;
        if (c->asked && irc_link_sent(i->link) < c->number) /* flood control still holds it */
            continue;
        c->asked = true;
        c->again_ms = now + JOIN_ANSWER_MS;
        buf_printf(&line, "JOIN %s%s%s\r\n", c->name, c->key[0] != '\0' ? " " : "", c->key);
        c->number = irc_link_send(i->link, buf_str(&line), 1);
    }
}

static void on_left(struct irc *i, struct str name, struct str why)
{
    struct irc_channel *c = find_channel(i, name);
    BUF_LOCAL plain = BUF_INIT;

    if (c == NULL)
        return;
    buf_add_plain(&plain, utf8_head(why, 100));
    c->joined = c->asked = false;
    c->failures++;
    c->again_ms = irc_now_ms(i) + clock_backoff_ms(c->failures, JOIN_MS, MAX_JOIN_MS);
    snprintf(c->why, sizeof c->why, "%s", plain.n > 0 ? buf_z(&plain) : "it had to leave");
    log_warn(&i->base.log, "not in %s: %s", c->name, c->why);
    tell_problem(i);
}

static void on_join(struct irc *i, const struct irc_line *l)
{
    struct irc_channel *c = find_channel(i, irc_param(l, 0));
    int64_t at_ms = irc_time_ms(irc_tag(l, STR("time"), &i->arena));

    if (c != NULL) {
        c->joined = true;
        c->asked = false;
        c->failures = 0;
        c->why[0] = '\0';
        tell_problem(i);
    }
    irc_past_joined(i, irc_param(l, 0), at_ms > 0 ? at_ms : clock_wall_ms(i->base.env->clock));
}

/* ---- lines ---- */

static bool is_join_error(int numeric)
{
    return numeric == 403 || numeric == 405 || numeric == 437 ||
           (numeric >= 470 && numeric <= 477) || numeric == 479 || numeric == 480 ||
           numeric == 489 || numeric == 520;
}

static void on_line(void *ctx, const struct irc_line *l)
{
    struct irc *i = ctx;
    struct irc_in in = irc_in_of(i);
    bool mine = irc_eq(in.fold, l->nick, in.nick);
    int numeric = irc_numeric(l);

    arena_reset(&i->arena);
    bool batched = numeric == 0 && irc_tag(l, STR("batch"), &i->arena).p != NULL;
    if (irc_is(l, "PRIVMSG") || irc_is(l, "TAGMSG") || irc_is(l, "BATCH") || irc_is(l, "REDACT") ||
        irc_is(l, "CHATHISTORY") || (batched && !irc_is(l, "FAIL") && !irc_is(l, "ACK"))) {
        irc_in_line(i, l);
        return;
    }
    if (irc_is(l, "JOIN") && mine)
        on_join(i, l);
    else if (irc_is(l, "KICK") && irc_eq(in.fold, irc_param(l, 1), in.nick))
        on_left(i, irc_param(l, 0), irc_param(l, 2));
    else if (irc_is(l, "PART") && mine)
        on_left(i, irc_param(l, 0), STR_NULL);
    else if (is_join_error(numeric) && find_channel(i, irc_param(l, 1)) != NULL &&
             find_channel(i, irc_param(l, 1))->asked)
        on_left(i, irc_param(l, 1), irc_param(l, l->n_params - 1));
    else if ((irc_is(l, "QUIT") || irc_is(l, "NICK")) && !mine) {
        irc_nick_left(i, l->nick);
        if (irc_eq(in.fold, l->nick, str_of(i->nick)))
            irc_link_regain(i->link); /* it was the bot's own */
    } else if (!irc_past_failed(i, l)) {
        if (numeric == 330 || numeric == 318 || numeric == 401)
            irc_whois_line(i, l, numeric);
        irc_out_line(i, l);
    }
}

/* ---- the connection ---- */

static void connect_now(struct irc *i);

static void on_heard(void *ctx)
{
    struct irc *i = ctx;

    platform_beat(&i->base, clock_wall_ms(i->base.env->clock), BEAT_MS);
}

static void note_sts(struct irc *i)
{
    const struct irc_server *s = irc_link_server(i->link);

    if (!s->sts)
        return;
    i->sts.for_ms = s->sts_ms;
    i->sts.until_ms = s->sts_ms > 0 ? clock_wall_ms(i->base.env->clock) + s->sts_ms : 0;
    i->sts.port = i->secure_port != 0 ? i->secure_port : i->port;
    irc_sts_put(i);
}

static void on_live(void *ctx)
{
    struct irc *i = ctx;
    const struct irc_server *s = irc_link_server(i->link);
    BUF_LOCAL mode = BUF_INIT;

    i->live = true;
    i->failures = 0;
    i->n.connects++;
    on_heard(i);
    platform_set_problem(&i->base, NULL);
    log_info(&i->base.log, "connected as %.*s", STR_FMT(irc_link_nick(i->link)));
    note_sts(i);
    if (s->bot_mode != 0) { /* others see that it is a bot */
        buf_printf(&mode, "MODE %.*s +%c\r\n", STR_FMT(irc_link_nick(i->link)), s->bot_mode);
        irc_link_send(i->link, buf_str(&mode), 1);
    }
    for (size_t n = 0; n < i->n_channels; n++) {
        i->channels[n].joined = i->channels[n].asked = false;
        i->channels[n].again_ms = 0;
    }
    irc_past_live(i); /* before the channels: private messages wait for its answer */
    join_due(i);
}

static void on_closed(void *ctx, enum irc_end how, const char *why)
{
    struct irc *i = ctx;
    int64_t now = clock_wall_ms(i->base.env->clock), wait_ms;
    char reason[256]; /* @why goes with the link */

    snprintf(reason, sizeof reason, "%s", why);
    if (i->live) {
        i->was = *irc_link_server(i->link);
        snprintf(i->was_nick, sizeof i->was_nick, "%.*s", STR_FMT(irc_link_nick(i->link)));
        if (i->sts.for_ms > 0 && i->was.sts) { /* counts from the end of the connection */
            i->sts.until_ms = now + i->sts.for_ms;
            irc_sts_put(i);
        }
    }
    log_info(&i->base.log, "the connection ended: %s", reason);
    i->live = false;
    i->n.lost_lines += irc_link_skipped(i->link);
    irc_out_lost(i);
    irc_past_lost(i);
    irc_in_lost(i);
    i->secure_port = how == IRC_END_SECURE ? irc_link_secure_port(i->link) : 0;
    irc_link_free(i->link);
    i->link = NULL;
    platform_beat(&i->base, now, 0);
    if (how == IRC_END_SECURE) {
        connect_now(i);
        return;
    }
    i->failures++;
    if (how == IRC_END_DENIED || i->failures > 3)
        platform_set_problem(&i->base, reason);
    wait_ms = clock_backoff_ms(i->failures, FIRST_RETRY_MS, MAX_RETRY_MS);
    if (how == IRC_END_DENIED)
        wait_ms = DENIED_MS;
    wait_ms = wait_ms / 2 + (int64_t)rand_below(i->base.env->rand, (uint64_t)wait_ms);
    timer_set(i->base.env->clock, &i->again, wait_ms);
}

static void connect_now(struct irc *i)
{
    static const struct irc_link_handlers handlers = {.on_live = on_live,
                                                      .on_line = on_line,
                                                      .on_heard = on_heard,
                                                      .on_closed = on_closed};
    bool sts = i->sts.until_ms > clock_wall_ms(i->base.env->clock);
    struct irc_link_options opt;
    uint16_t port = i->port;

    if (!i->cfg->tls && sts && i->secure_port == 0)
        i->secure_port = i->sts.port; /* it must never be spoken to in the clear again */
    if (i->secure_port != 0)
        port = i->secure_port;
    fill_options(i->cfg, i->host, port, i->cfg->tls || i->secure_port != 0, i->nick, &opt);
    i->link = irc_link_open(i->base.env->loop, i->base.env->rand, &opt, &handlers, i);
}

static void on_again(struct timer *t)
{
    connect_now(container_of(t, struct irc, again));
}

static void on_tick(struct timer *t)
{
    struct irc *i = container_of(t, struct irc, tick);
    struct irc_in in = irc_in_of(i);
    int64_t now = irc_now_ms(i);

    timer_set(i->base.env->clock, t, TICK_MS);
    irc_out_tick(i);
    if (!i->live)
        return;
    join_due(i);
    irc_past_tick(i);
    if (!irc_eq(in.fold, in.nick, str_of(i->nick)) && now - i->regain_ms >= REGAIN_MS) {
        i->regain_ms = now;
        irc_link_regain(i->link);
    }
}

/* ---- life ---- */

static enum bh_err irc_open(struct platform *p, char *ret_why)
{
    struct irc *i = irc_of(p);
    size_t n = 0;

    i->cfg = container_of(p->settings, const struct irc_settings, base);
    i->nick = nick_of(i->cfg);
    i->network = xstrdup(strchr(p->bot, '@') + 1);
    split_server(i->cfg->server, i->cfg->tls, &i->host, &i->port);
    i->was = (struct irc_server){.chantypes = "#&", .fold = IRC_ASCII};
    snprintf(i->was_nick, sizeof i->was_nick, "%s", i->nick);
    while (i->cfg->channels != NULL && i->cfg->channels[n] != NULL)
        n++;
    i->n_channels = n;
    i->channels = xcalloc(n + 1, sizeof *i->channels);
    for (n = 0; n < i->n_channels; n++) {
        struct str rest = str_of(i->cfg->channels[n]), name;
        str_split(&rest, ' ', &name);
        snprintf(i->channels[n].name, sizeof i->channels[n].name, "%.*s", STR_FMT(name));
        snprintf(i->channels[n].key, sizeof i->channels[n].key, "%.*s", STR_FMT(str_trim(rest)));
    }
    timer_init(&i->again, on_again);
    timer_init(&i->tick, on_tick);
    list_init(&i->out.flying);
    irc_in_open(i);
    return irc_past_open(i, ret_why);
}

static void irc_start(struct platform *p)
{
    struct irc *i = irc_of(p);

    timer_set(p->env->clock, &i->tick, TICK_MS);
    connect_now(i);
}

static void irc_close(struct platform *p)
{
    struct irc *i = irc_of(p);

    timer_stop(p->env->clock, &i->again);
    timer_stop(p->env->clock, &i->tick);
    i->live = false;
    irc_past_close(i);
    irc_in_close(i);
    irc_link_free(i->link);
    i->link = NULL;
    arena_done(&i->arena);
    free(i->channels);
    free(i->nick);
    free(i->network);
    free(i->host);
}

static const char *irc_reads(const struct platform_settings *settings)
{
    return container_of(settings, const struct irc_settings, base)->ca;
}

static void irc_forget(struct platform *p, struct str person)
{
    struct irc *i = irc_of(p);
    struct str target;
    struct str name = str_starts(person, STR("?")) ? str_skip(person, 1) : person;

    if (i->in.recent != NULL)
        recent_forget(i->in.recent, person);
    if (!irc_target_of(name, str_of(i->network), &target) || lru_oldest(&i->in.chats) == NULL)
        return;
    list_each (&i->in.chats.by_age, it, nxt) { /* an account has chats under any nick */
        struct irc_chat *c = container_of(it, struct irc_chat, lru.age);
        if (str_eq(c->lru.key, target) ||
            (name.p == person.p && str_eq(str_of(c->account), target)))
            lru_drop(&i->in.chats, c);
    }
}

static void irc_forget_chat(struct platform *p, struct str chat)
{
    struct irc *i = irc_of(p);
    struct str target;
    struct irc_chat *c = irc_target_of(chat, str_of(i->network), &target) && irc_is_nick(target)
                             ? lru_find(&i->in.chats, target)
                             : NULL;

    if (c != NULL)
        lru_drop(&i->in.chats, c);
}

/* ---- doctor ---- */

struct checking {
    bool over, live;
    enum irc_end how;
    char why[256];
};

static void on_check_live(void *ctx)
{
    struct checking *c = ctx;

    c->live = c->over = true;
}

static void on_check_line(void *ctx, const struct irc_line *l)
{
}

static void on_check_heard(void *ctx)
{
}

static void on_check_closed(void *ctx, enum irc_end how, const char *why)
{
    struct checking *c = ctx;

    c->over = true;
    c->how = how;
    snprintf(c->why, sizeof c->why, "%s", why);
}

static void report(const struct irc_settings *cfg, const struct irc_link *k,
                   struct platform_report *ret)
{
    const struct irc_server *s = irc_link_server(k);
    BUF_LOCAL missing = BUF_INIT;

    snprintf(ret->name, sizeof ret->name, "%.*s on %.60s", STR_FMT(irc_link_nick(k)),
             s->network[0] != '\0' ? s->network : cfg->server);
    snprintf(ret->reach, sizeof ret->reach, "/msg %.*s, or \"%.*s: ...\" in a channel",
             STR_FMT(irc_link_nick(k)), STR_FMT(irc_link_nick(k)));
    for (const struct irc_cap_name *c = irc_caps; c->name != NULL; c++)
        if (c->lacks != NULL && (s->caps & c->bit) == 0)
            buf_printf(&missing, "%s%s (%s)", missing.n > 0 ? "; " : "", c->name, c->lacks);
    if (missing.n > 0)
        snprintf(ret->notes, sizeof ret->notes, "this server has no %.480s", buf_z(&missing));
    if ((s->caps & IRC_ACCOUNT) == 0)
        platform_warn(ret, "this server has no account-tag: nobody can prove who they are, so "
                           "nobody can be linked; only an open bot has people");
    if (cfg->sasl.mechanism == SASL_NONE)
        platform_warn(ret, "the bot is not logged in: whoever takes its nick while it is away is "
                           "taken for it; register the nick and set `sasl`");
}

/* A second connection, under another nick if the bot runs. */
static enum bh_err irc_check(const struct platform_settings *settings, struct platform_report *ret,
                             char *ret_why)
{
    static const struct irc_link_handlers handlers = {.on_live = on_check_live,
                                                      .on_line = on_check_line,
                                                      .on_heard = on_check_heard,
                                                      .on_closed = on_check_closed};
    const struct irc_settings *cfg = container_of(settings, const struct irc_settings, base);
    struct rand rand = RAND_SYSTEM;
    struct loop *loop = loop_new();
    struct checking c = {.how = IRC_END_SECURE};
    struct irc_link_options opt;
    struct irc_link *k = NULL;
    char *host = NULL, *nick = nick_of(cfg);
    uint16_t port = 0;
    bool tls = cfg->tls;

    if (loop == NULL) {
        free(nick);
        return bh_err_why(BH_UNAVAILABLE, ret_why, "no descriptor is left");
    }
    split_server(cfg->server, tls, &host, &port);
    for (unsigned n = 0; n < 2 && !c.live && c.how == IRC_END_SECURE; n++) {
        c.over = false;
        port = k != NULL ? irc_link_secure_port(k) : port;
        tls = tls || k != NULL;
        irc_link_free(k);
        fill_options(cfg, host, port, tls, nick, &opt);
        k = irc_link_open(loop, &rand, &opt, &handlers, &c);
        int64_t end_ms = clock_os_us(1) / 1000 + CHECK_MS;
        while (!c.over && clock_os_us(1) / 1000 < end_ms)
            loop_turn(loop, 50);
    }
    if (c.live)
        report(cfg, k, ret);
    else
        snprintf(ret_why, 256, "%.80s: %.160s", cfg->server,
                 c.why[0] != '\0' ? c.why : "the server did not welcome the bot in time");
    if (c.live)
        irc_link_try(k, STR("QUIT :bye\r\n"));
    for (unsigned n = 0; c.live && n < 3; n++)
        loop_turn(loop, 10);
    irc_link_free(k);
    loop_free(loop);
    free(host);
    free(nick);
    return c.live ? BH_OK : c.how == IRC_END_DENIED ? BH_REFUSED : BH_UNAVAILABLE;
}

/* ---- status ---- */

static const char *irc_state(struct platform *p)
{
    return p->problem != NULL ? "degraded" : irc_of(p)->live ? "live" : "connecting";
}

static void irc_status(struct platform *p, struct jw *w)
{
    struct irc *i = irc_of(p);
    const struct irc_server *s = i->live ? irc_link_server(i->link) : &i->was;
    struct irc_in in = irc_in_of(i);

    jw_kstr(w, "nick", in.nick);
    jw_kstr(w, "account", str_of(s->account));
    jw_kbool(w, "tls", i->cfg->tls || i->secure_port != 0);
    jw_key(w, "capabilities");
    jw_arr(w);
    for (const struct irc_cap_name *c = irc_caps; c->name != NULL; c++)
        if ((s->caps & c->bit) != 0)
            jw_str(w, str_of(c->name));
    jw_end_arr(w);
    jw_key(w, "missing"); /* what this server does not have, and what that means */
    jw_obj(w);
    for (const struct irc_cap_name *c = irc_caps; c->name != NULL && i->live; c++)
        if (c->lacks != NULL && (s->caps & c->bit) == 0)
            jw_kstr(w, c->name, str_of(c->lacks));
    jw_end_obj(w);
    jw_key(w, "channels");
    jw_obj(w);
    for (size_t n = 0; n < i->n_channels; n++) {
        jw_key_str(w, str_of(i->channels[n].name));
        jw_str(w, i->channels[n].joined && i->live ? STR("joined")
                  : i->channels[n].why[0] != '\0'  ? str_of(i->channels[n].why)
                                                   : STR("joining"));
    }
    jw_end_obj(w);
    jw_ki64(w, "linesWaiting", i->link != NULL ? (int64_t)irc_link_queued(i->link) : 0);
    jw_ki64(w, "messagesWaiting", (int64_t)i->in.n_queued);
    jw_ki64(w, "readFromHistory", (int64_t)i->n.filled);
    jw_ki64(w, "unprovenLinks", (int64_t)i->n.unproven);
    jw_ki64(w, "dropped", (int64_t)i->n.dropped);
    jw_ki64(w, "connects", (int64_t)i->n.connects);
}

static const struct descriptor descriptor = {
    .platform = "irc",
    .label = "IRC",
    .max_message_length = 2000,
    .markdown_dialect = "plain",
    .len_unit = "chars",
    .emoji = "\U0001F4AC",
    .platform_hint = "IRC: plain text in short lines; no Markdown, no files",
    .pii_safe = false,
    .supports_context = true,
    .ops = 1u << ACTION_SEND | 1u << ACTION_TYPING | 1u << ACTION_GET_CHAT_INFO |
           1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT | 1u << ACTION_REACT,
};

const struct platform_ops irc_ops = {
    .name = "irc",
    .config = &irc_config,
    .descriptor = &descriptor,
    .records = irc_records,
    .eraser = &irc_eraser,
    .size = sizeof(struct irc),
    .label = "the IRC server",
    .sender = &irc_sender,
    .open = irc_open,
    .start = irc_start,
    .close = irc_close,
    .check = irc_check,
    .steps = "Choose a network, and register a nick for the bot there (NickServ, or your server's\n"
             "own way); its account and password are `sasl.user` and `sasl.password`.\n"
             "Have the server's name and port at hand, and the channels that the bot should be in.",
    .link_how = "On IRC: /msg NICK /link CODE, with the bot's nick, and logged in to your account.",
    .bot_is = "The bot's nick, @ and your name for the network: desk@libera",
    .reads = irc_reads,
    .act = irc_act,
    .forget = irc_forget,
    .forget_chat = irc_forget_chat,
    .state = irc_state,
    .status = irc_status,
};
