/* link.c - see link.h.
 *
 * The login is asked for before the registration ends (CAP END), so the bot is never seen without
 * its account.  A bot with `sasl` that cannot log in does not stay.
 *
 * A nick that is taken is replaced by another one; irc.c asks for the right one now and then.  The
 * bucket counts what a server would count: each line, also answers to PING. */
#include "platform/irc/link.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/loop.h"
#include "net/tcp_client.h"
#include "net/work.h"

enum {
    CONNECT_MS = 15000,
    REGISTER_MS = 45000, /* from the first byte to the end of the welcome */
    TICK_MS = 5000,
    PING_MS = 15000, /* of silence */
    DEAF_MS = 40000,
    SASL_CHUNK = 400,
    MAX_CHALLENGE = 8192,
    MAX_QUEUED = 4096,
    MAX_NICKS = 20,          /* tries before the server is left */
    DEFAULT_USER_BYTES = 11, /* worst cases while our own mask is not known */
    DEFAULT_HOST_BYTES = 63,
};

const struct irc_cap_name irc_caps[] = {
    {"message-tags", IRC_TAGS, "typing, reactions, replies, ids of messages"},
    {"server-time", IRC_TIME, NULL},
    {"account-tag", IRC_ACCOUNT, "who people are: nobody can be linked"},
    {"batch", IRC_BATCH, NULL},
    {"echo-message", IRC_ECHO, "ids of the bot's own messages"},
    {"labeled-response", IRC_LABELS, "a receipt for each message: the next PONG is taken as one"},
    {"draft/chathistory", IRC_HISTORY, "messages that came while bellhop was away"},
    {"draft/event-playback", IRC_PLAYBACK, NULL},
    {"draft/multiline", IRC_MULTILINE, "long messages in one piece"},
    {"draft/message-redaction", IRC_REDACT, "deleted messages"},
    {"chghost", IRC_CHGHOST, NULL},
    {"sasl", IRC_SASL, NULL},
    {NULL, 0, NULL},
};

enum link_state { CONNECTING, GREETING, ASKING, LOGGING_IN, REGISTERING, LIVE };

struct queued { /* lines that wait */
    struct list link;
    uint64_t number;
    unsigned cost;
    size_t n;
    char bytes[];
};

struct hash_job { /* owns what it needs: the link may be gone when it ends */
    struct work work;
    struct irc_link *of; /* borrowed; NULL: gone */
    struct sasl_hash hash;
};

struct irc_link {
    struct loop *loop; /* borrowed */
    struct clock *clock;
    struct rand *rand;       /* borrowed */
    struct tcp_client *conn; /* owned */
    struct work_pool *pool;  /* owned; NULL: not needed yet */
    struct irc_link_options opt;
    struct irc_link_handlers h;
    void *ctx;
    enum link_state state;
    struct irc_reader reader;
    struct irc_server server;
    struct arena arena; /* of one line */
    struct buf offered; /* owned; the capabilities, with their values */
    struct buf asked;   /* owned; those that are asked for one by one, after a refusal */
    struct sasl sasl;
    struct buf challenge; /* owned; the pieces so far */
    struct hash_job *job; /* owned by its thread */
    char nick[IRC_NAME_MAX + 1];
    unsigned n_nicks;
    size_t mask_bytes; /* of "user@host" as others see it; 0: not known */
    struct list queue; /* struct queued, owned */
    size_t n_queued, queued_cost;
    uint64_t numbered, sent;
    int64_t level_ms, level_at_ms; /* of the bucket: how far it is from full */
    struct timer pump, tick, end;
    int64_t heard_ms, pinged_ms, since_ms, tick_ms;
    uint16_t secure_port;
    bool over; /* on_closed() was called, or will be by @end */
    enum irc_end how;
    char why[256];
};

static int64_t now_ms(const struct irc_link *k)
{
    return clock_now_ms(k->clock);
}

/* ---- the end ---- */

static void finish(struct irc_link *k, enum irc_end how, const char *fmt, ...) BH_PRINTF(3, 4);
static void finish(struct irc_link *k, enum irc_end how, const char *fmt, ...)
{
    va_list args;

    if (k->over)
        return;
    k->over = true;
    k->how = how;
    va_start(args, fmt);
    vsnprintf(k->why, sizeof k->why, fmt, args);
    va_end(args);
    timer_set(k->clock, &k->end, 0);
}

static void on_end(struct timer *t)
{
    struct irc_link *k = container_of(t, struct irc_link, end);

    k->h.on_closed(k->ctx, k->how, k->why);
}

void irc_link_free(struct irc_link *k)
{
    if (k == NULL)
        return;
    timer_stop(k->clock, &k->pump);
    timer_stop(k->clock, &k->tick);
    timer_stop(k->clock, &k->end);
    tcp_client_free(k->conn);
    if (k->job != NULL)
        k->job->of = NULL;
    work_pool_free(k->pool);
    list_each (&k->queue, it, nxt)
        free(list_entry(it, struct queued, link));
    irc_reader_done(&k->reader);
    arena_done(&k->arena);
    buf_done(&k->offered);
    buf_done(&k->asked);
    buf_wipe(&k->challenge);
    sasl_done(&k->sasl);
    free(k);
}

/* ---- what the owner asks ---- */

bool irc_link_is_live(const struct irc_link *k)
{
    return k->state == LIVE && !k->over;
}

const struct irc_server *irc_link_server(const struct irc_link *k)
{
    return &k->server;
}

struct str irc_link_nick(const struct irc_link *k)
{
    return str_of(k->nick);
}

uint16_t irc_link_secure_port(const struct irc_link *k)
{
    return k->secure_port;
}

uint64_t irc_link_skipped(const struct irc_link *k)
{
    return k->reader.skipped;
}

size_t irc_link_room(const struct irc_link *k, struct str target)
{
    size_t mask = k->mask_bytes != 0 ? k->mask_bytes : DEFAULT_USER_BYTES + 1 + DEFAULT_HOST_BYTES;
    /* ":nick!user@host PRIVMSG target :" and CR LF */
    size_t taken = 1 + strlen(k->nick) + 1 + mask + 1 + 8 + target.n + 2 + 2;

    return taken + 64 < k->server.line_max ? k->server.line_max - taken : 64;
}

/* ---- sending ---- */

static void refill(struct irc_link *k)
{
    int64_t now = now_ms(k);

    k->level_ms = k->level_ms > now - k->level_at_ms ? k->level_ms - (now - k->level_at_ms) : 0;
    k->level_at_ms = now;
}

static void write_now(struct irc_link *k, struct str lines, unsigned cost)
{
    refill(k);
    k->level_ms += (int64_t)cost * k->opt.interval_ms;
    tcp_client_send(k->conn, lines);
}

static void writef(struct irc_link *k, const char *fmt, ...) BH_PRINTF(2, 3);
static void writef(struct irc_link *k, const char *fmt, ...)
{
    char line[IRC_BODY_MAX];
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line - 2, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    size_t len = (size_t)n < sizeof line - 2 ? (size_t)n : sizeof line - 3;
    memcpy(line + len, "\r\n", 2);
    write_now(k, str_make(line, len + 2), 1);
    secret_wipe(line, sizeof line);
}

/* Ms until lines of this cost may leave.  What costs more than a whole bucket leaves from a full
 * one. */
static int64_t room_in_ms(const struct irc_link *k, int64_t cost)
{
    int64_t gone = now_ms(k) - k->level_at_ms;
    int64_t level = k->level_ms > gone ? k->level_ms - gone : 0;
    int64_t most = (int64_t)k->opt.burst - cost;

    most = most > 0 ? most * k->opt.interval_ms : 0;
    return level > most ? level - most : 0;
}

static void pump(struct irc_link *k)
{
    while (!list_is_empty(&k->queue) && irc_link_is_live(k)) {
        struct queued *q = list_first(&k->queue, struct queued, link);
        int64_t wait_ms = room_in_ms(k, q->cost);
        if (wait_ms > 0) {
            timer_set(k->clock, &k->pump, wait_ms);
            return;
        }
        write_now(k, str_make(q->bytes, q->n), q->cost);
        k->sent = q->number;
        k->n_queued--;
        k->queued_cost -= q->cost;
        list_remove(&q->link);
        free(q);
    }
}

static void on_pump(struct timer *t)
{
    pump(container_of(t, struct irc_link, pump));
}

uint64_t irc_link_send(struct irc_link *k, struct str lines, unsigned cost)
{
    struct queued *q = xmalloc(sizeof *q + lines.n);

    *q = (struct queued){.number = ++k->numbered, .cost = cost, .n = lines.n};
    memcpy(q->bytes, lines.p, lines.n);
    list_append(&k->queue, &q->link);
    k->n_queued++;
    k->queued_cost += cost;
    if (k->n_queued > MAX_QUEUED)
        finish(k, IRC_END_LOST, "too much is waiting to be sent");
    uint64_t number = q->number;
    pump(k);
    return number;
}

uint64_t irc_link_sent(const struct irc_link *k)
{
    return k->sent;
}

bool irc_link_try(struct irc_link *k, struct str lines)
{
    if (!irc_link_is_live(k) || !list_is_empty(&k->queue) || room_in_ms(k, 2) > 0)
        return false;
    write_now(k, lines, 1);
    return true;
}

int64_t irc_link_wait_ms(const struct irc_link *k)
{
    return room_in_ms(k, (int64_t)k->queued_cost + 1);
}

size_t irc_link_queued(const struct irc_link *k)
{
    return k->n_queued;
}

void irc_link_regain(struct irc_link *k)
{
    if (irc_link_is_live(k) && strcmp(k->nick, k->opt.nick) != 0 && room_in_ms(k, 1) == 0)
        writef(k, "NICK %s", k->opt.nick);
}

/* ---- capabilities ---- */

static const struct irc_cap_name *find_cap(struct str name)
{
    for (const struct irc_cap_name *c = irc_caps; c->name != NULL; c++)
        if (str_eq(name, str_of(c->name)))
            return c;
    return NULL;
}

static struct str cap_name(struct str word)
{
    ptrdiff_t eq = str_find(word, '=');

    return eq >= 0 ? str_make(word.p, (size_t)eq) : word;
}

static void end_caps(struct irc_link *k)
{
    k->state = REGISTERING;
    writef(k, "CAP END");
}

static void begin_login(struct irc_link *k)
{
    struct str offers = irc_token(buf_str(&k->offered), ' ', STR("sasl"));
    const char *name = sasl_name(k->opt.sasl);
    uint8_t nonce[SASL_NONCE_BYTES];

    if (k->opt.sasl == SASL_NONE) {
        end_caps(k);
        return;
    }
    if ((k->server.caps & IRC_SASL) == 0) {
        finish(k, IRC_END_DENIED, "the server has no SASL: remove `sasl`, or use another server");
        return;
    }
    if (offers.n > 0 && irc_token(offers, ',', str_of(name)).p == NULL) {
        BUF_LOCAL plain = BUF_INIT;
        buf_add_plain(&plain, utf8_head(offers, 100));
        finish(k, IRC_END_DENIED, "the server has no SASL %s: it has %s", name, buf_z(&plain));
        return;
    }
    rand_bytes(k->rand, nonce, sizeof nonce);
    sasl_start(&k->sasl, k->opt.sasl, k->opt.sasl_user, k->opt.sasl_password, nonce);
    k->state = LOGGING_IN;
    writef(k, "AUTHENTICATE %s", name);
}

/* Asks for all that is known in one request.  After a refusal each is asked for alone. */
static void ask_caps(struct irc_link *k, struct str offered)
{
    struct str word;
    BUF_LOCAL names = BUF_INIT;

    while (str_split(&offered, ' ', &word)) {
        const struct irc_cap_name *c = find_cap(cap_name(word));
        bool wanted = c != NULL && (c->bit != IRC_SASL || k->opt.sasl != SASL_NONE) &&
                      (k->server.caps & c->bit) == 0;
        if (wanted && names.n + 32 < 400)
            buf_printf(&names, "%s%s", names.n > 0 ? " " : "", c->name);
    }
    buf_reset(&k->asked);
    buf_add_str(&k->asked, buf_str(&names));
    if (names.n > 0)
        writef(k, "CAP REQ :%s", buf_z(&names));
    else if (k->state == ASKING)
        begin_login(k);
}

static void note_values(struct irc_link *k, struct str offered)
{
    struct str multi = irc_token(offered, ' ', STR("draft/multiline"));
    struct str sts = irc_token(offered, ' ', STR("sts"));
    struct str port = irc_token(sts, ',', STR("port"));
    struct str duration = irc_token(sts, ',', STR("duration"));
    uint64_t n;

    if (str_to_u64(irc_token(multi, ',', STR("max-bytes")), &n))
        k->server.multi_bytes = n;
    if (str_to_u64(irc_token(multi, ',', STR("max-lines")), &n))
        k->server.multi_lines = n;
    if (k->opt.tls && duration.n > 0 && str_to_u64(duration, &n) && n < (uint64_t)1 << 33) {
        k->server.sts = true;
        k->server.sts_ms = (int64_t)n * 1000;
    }
    if (!k->opt.tls && str_to_u64(port, &n) && n > 0 && n < 65536) {
        k->secure_port = (uint16_t)n;
        finish(k, IRC_END_SECURE, "the server wants a secure connection");
    }
}

static void on_cap_ack(struct irc_link *k, struct str names)
{
    struct str word;

    while (str_split(&names, ' ', &word)) {
        const struct irc_cap_name *c = find_cap(cap_name(word));
        if (c != NULL)
            k->server.caps |= c->bit;
    }
    if (k->state == ASKING && k->asked.n > 0)
        begin_login(k);
}

/* One of them was refused, and with it all: each is asked for alone.  The answer to CAP LIST tells
 * that all are answered. */
static void on_cap_nak(struct irc_link *k)
{
    BUF_LOCAL names = BUF_INIT;
    struct str rest, word;

    if (k->asked.n == 0)
        return;
    buf_add_str(&names, buf_str(&k->asked));
    buf_reset(&k->asked);
    rest = buf_str(&names);
    while (str_split(&rest, ' ', &word))
        writef(k, "CAP REQ :%.*s", STR_FMT(word));
    writef(k, "CAP LIST");
}

static void on_cap(struct irc_link *k, const struct irc_line *l)
{
    struct str what = irc_param(l, 1), list = irc_param(l, l->n_params - 1), word;
    bool more = l->n_params == 4 && str_eq(irc_param(l, 2), STR("*"));

    if (str_eq_ci(what, STR("LS")) && k->state == GREETING) {
        if (k->offered.n + list.n < 16384)
            buf_printf(&k->offered, "%.*s ", STR_FMT(list));
        if (more)
            return;
        k->state = ASKING;
        note_values(k, buf_str(&k->offered));
        if (!k->over)
            ask_caps(k, buf_str(&k->offered));
    } else if (str_eq_ci(what, STR("ACK"))) {
        on_cap_ack(k, list);
    } else if (str_eq_ci(what, STR("NAK"))) {
        on_cap_nak(k);
    } else if (str_eq_ci(what, STR("LIST")) && k->state == ASKING && !more) {
        begin_login(k);
    } else if (str_eq_ci(what, STR("NEW")) && k->state == LIVE) {
        note_values(k, list);
        if (!k->over)
            ask_caps(k, list);
    } else if (str_eq_ci(what, STR("DEL"))) {
        while (str_split(&list, ' ', &word))
            if (find_cap(word) != NULL)
                k->server.caps &= ~(unsigned)find_cap(word)->bit;
    }
}

/* ---- login ---- */

static void send_answer(struct irc_link *k, struct str answer)
{
    BUF_SECRET text = BUF_INIT;
    size_t n = 0;

    base64_add(&text, answer.p, answer.n);
    struct str rest = buf_str(&text);
    do { /* a last piece of full length is followed by an empty one */
        n = rest.n < SASL_CHUNK ? rest.n : SASL_CHUNK;
        if (n == 0)
            writef(k, "AUTHENTICATE +");
        else
            writef(k, "AUTHENTICATE %.*s", (int)n, rest.p);
        rest = str_skip(rest, n);
    } while (n == SASL_CHUNK);
}

static void run_hash(struct work *w)
{
    sasl_hash(&container_of(w, struct hash_job, work)->hash);
}

static void on_hashed(struct work *w)
{
    struct hash_job *j = container_of(w, struct hash_job, work);
    struct irc_link *k = j->of;
    BUF_SECRET answer = BUF_INIT;

    if (k != NULL && !w->dropped && k->state == LOGGING_IN && !k->over) {
        memcpy(k->sasl.hash.salted, j->hash.salted, sizeof j->hash.salted);
        sasl_hashed(&k->sasl, &answer);
        send_answer(k, buf_str(&answer));
    }
    if (k != NULL)
        k->job = NULL;
    secret_wipe(j, sizeof *j);
    free(j);
}

static void begin_hash(struct irc_link *k)
{
    struct hash_job *j = xcalloc(1, sizeof *j);

    *j = (struct hash_job){.work = {.run = run_hash, .done = on_hashed}, .of = k};
    j->hash = k->sasl.hash;
    if (k->pool == NULL)
        k->pool = work_pool_new(k->loop, 1);
    if (work_start(k->pool, &j->work) == BH_OK) {
        k->job = j;
        return;
    }
    secret_wipe(j, sizeof *j);
    free(j);
    finish(k, IRC_END_LOST, "no thread is left for the login");
}

static void on_authenticate(struct irc_link *k, struct str piece)
{
    BUF_SECRET challenge = BUF_INIT;
    BUF_SECRET answer = BUF_INIT;
    const char *why = "the server's login makes no sense";
    bool last = piece.n < SASL_CHUNK;

    if (k->state != LOGGING_IN || k->job != NULL)
        return;
    if (k->challenge.n + piece.n > MAX_CHALLENGE) {
        finish(k, IRC_END_DENIED, "%s", why);
        return;
    }
    if (!str_eq(piece, STR("+")))
        buf_add_str(&k->challenge, piece);
    if (!last)
        return;
    bool ok = k->challenge.n == 0 || base64_decode(buf_str(&k->challenge), &challenge);
    buf_wipe(&k->challenge);
    enum sasl_next next =
        ok ? sasl_answer(&k->sasl, buf_str(&challenge), &answer, &why) : SASL_WRONG;
    if (next == SASL_WRONG)
        finish(k, IRC_END_DENIED, "%s", why);
    else if (next == SASL_HASHES)
        begin_hash(k);
    else
        send_answer(k, buf_str(&answer));
}

static void on_logged_in(struct irc_link *k, bool ok)
{
    if (k->state != LOGGING_IN)
        return;
    if (!ok)
        finish(k, IRC_END_DENIED,
               "the server refuses the login: check `sasl.user` and its password or certificate");
    else if (!sasl_is_proven(&k->sasl))
        finish(k, IRC_END_DENIED, "the server did not prove that it knows the password");
    else
        end_caps(k);
    sasl_done(&k->sasl);
}

/* ---- what the server says about itself and us ---- */

static void copy_token(char *ret, size_t size, struct str value)
{
    if (value.p != NULL && value.n < size && str_until_control(value) == value.n &&
        utf8_valid(value))
        snprintf(ret, size, "%.*s", STR_FMT(value));
}

static void on_isupport(struct irc_link *k, const struct irc_line *l)
{
    struct irc_server *s = &k->server;

    for (size_t i = 1; i + 1 < l->n_params; i++) {
        ptrdiff_t eq = str_find(l->params[i], '=');
        struct str name = cap_name(l->params[i]);
        struct str value = eq >= 0 ? str_skip(l->params[i], (size_t)eq + 1) : STR("");
        uint64_t n = 0;
        bool number = str_to_u64(value, &n);
        if (str_eq(name, STR("CASEMAPPING")))
            s->fold = irc_case_of(value);
        else if (str_eq(name, STR("CHANTYPES")) && value.n > 0)
            copy_token(s->chantypes, sizeof s->chantypes, value);
        else if (str_eq(name, STR("STATUSMSG")))
            copy_token(s->statusmsg, sizeof s->statusmsg, value);
        else if (str_eq(name, STR("CLIENTTAGDENY")))
            copy_token(s->tag_deny, sizeof s->tag_deny, value);
        else if (str_eq(name, STR("NETWORK")))
            copy_token(s->network, sizeof s->network, value);
        else if (str_eq(name, STR("LINELEN")) && number && n >= IRC_BODY_MAX)
            s->line_max = n < 8192 ? n : 8192;
        else if (str_eq(name, STR("CHATHISTORY")) && number)
            s->history_max = n;
        else if (str_eq(name, STR("MSGREFTYPES"))) {
            s->history_by_id = irc_token(value, ',', STR("msgid")).p != NULL;
            s->history_by_time = irc_token(value, ',', STR("timestamp")).p != NULL;
        } else if (str_eq(name, STR("BOT")) && value.n == 1)
            s->bot_mode = value.p[0];
        else if (str_eq(name, STR("UTF8ONLY")))
            s->utf8_only = true;
    }
}

static void note_mask(struct irc_link *k, struct str source)
{
    ptrdiff_t at = str_find(source, '!');

    if (at >= 0)
        k->mask_bytes = source.n - (size_t)at - 1;
}

static void on_nick_taken(struct irc_link *k)
{
    if (k->state == LIVE)
        return; /* a try to regain it */
    if (++k->n_nicks > MAX_NICKS) {
        finish(k, IRC_END_LOST, "the server takes no nick");
        return;
    }
    unsigned tail = (unsigned)rand_below(k->rand, 1000);
    if (k->n_nicks == 1)
        snprintf(k->nick, sizeof k->nick, "%.190s_", k->opt.nick);
    else
        snprintf(k->nick, sizeof k->nick, "%.8s%u", k->opt.nick, tail);
    writef(k, "NICK %s", k->nick);
}

static void on_welcome(struct irc_link *k, const struct irc_line *l)
{
    struct str nick = irc_param(l, 0), last = irc_param(l, l->n_params - 1);

    if (k->state == LIVE)
        return;
    if (k->opt.sasl != SASL_NONE && k->state != REGISTERING) {
        finish(k, IRC_END_DENIED, "the server has no SASL: remove `sasl`, or use another server");
        return;
    }
    if (irc_is_nick(nick))
        copy_token(k->nick, sizeof k->nick, nick);
    while (str_find(last, ' ') >= 0)
        last = str_skip(last, (size_t)str_find(last, ' ') + 1);
    if (str_find(last, '@') > 0)
        note_mask(k, last);
    k->state = REGISTERING;
}

static void on_numeric(struct irc_link *k, const struct irc_line *l, int n)
{
    switch (n) {
    case 1:
        on_welcome(k, l);
        break;
    case 4:
        copy_token(k->server.version, sizeof k->server.version, irc_param(l, 2));
        break;
    case 5:
        on_isupport(k, l);
        break;
    case 376: /* end of the message of the day; 422: there is none */
    case 422:
        if (k->state == REGISTERING && !k->over) {
            k->state = LIVE;
            k->level_ms = 0; /* servers begin to count now */
            k->h.on_live(k->ctx);
            pump(k);
        }
        break;
    case 396: /* our visible host; some servers name it with the user */
        if (str_find(irc_param(l, 1), '@') > 0)
            k->mask_bytes = irc_param(l, 1).n;
        break;
    case 432: /* the nick is not valid here, taken, or not free yet */
        if (k->state != LIVE && k->n_nicks == 0)
            finish(k, IRC_END_DENIED, "the server does not take the nick %.60s", k->nick);
        break;
    case 433:
    case 436:
    case 437:
        on_nick_taken(k);
        break;
    case 464:
        finish(k, IRC_END_DENIED, "the server wants a password: `password`");
        break;
    case 900:
        copy_token(k->server.account, sizeof k->server.account, irc_param(l, 2));
        break;
    case 901:
        k->server.account[0] = '\0';
        break;
    case 903:
        on_logged_in(k, true);
        break;
    case 902:
    case 904:
    case 905:
    case 906:
    case 908:
        on_logged_in(k, false);
        break;
    default:
        break;
    }
}

static void on_error(struct irc_link *k, struct str text)
{
    BUF_LOCAL plain = BUF_INIT;

    buf_add_plain(&plain, utf8_head(text, 160));
    finish(k, IRC_END_LOST, "the server closed the link: %s", buf_z(&plain));
}

static void take_line(struct irc_link *k, const struct irc_line *l)
{
    /* A line inside a batch of history is old, and changes nothing about this connection. */
    bool mine = irc_eq(k->server.fold, l->nick, str_of(k->nick)) &&
                irc_tag(l, STR("batch"), &k->arena).p == NULL;
    int numeric = irc_numeric(l);

    if (numeric != 0)
        on_numeric(k, l, numeric);
    else if (irc_is(l, "PING"))
        writef(k, "PONG :%.*s",
               irc_param(l, l->n_params - 1).n < 400 ? (int)irc_param(l, l->n_params - 1).n : 400,
               irc_param(l, l->n_params - 1).p != NULL ? irc_param(l, l->n_params - 1).p : "");
    else if (irc_is(l, "CAP"))
        on_cap(k, l);
    else if (irc_is(l, "AUTHENTICATE"))
        on_authenticate(k, irc_param(l, 0));
    else if (irc_is(l, "ERROR"))
        on_error(k, irc_param(l, 0));
    else if (irc_is(l, "NICK") && mine && irc_is_nick(irc_param(l, 0)))
        copy_token(k->nick, sizeof k->nick, irc_param(l, 0));
    else if (irc_is(l, "JOIN") && mine)
        note_mask(k, l->source);
    else if (irc_is(l, "CHGHOST") && mine && l->n_params >= 2)
        k->mask_bytes = irc_param(l, 0).n + 1 + irc_param(l, 1).n;
}

/* ---- the connection ---- */

static void on_data(void *ctx, struct str bytes)
{
    struct irc_link *k = ctx;
    struct irc_line l;
    struct str line;

    k->heard_ms = now_ms(k);
    irc_reader_add(&k->reader, bytes);
    while (!k->over && irc_reader_next(&k->reader, &line)) {
        bool was_live = k->state == LIVE;
        if (!irc_parse(line, &l))
            continue;
        arena_reset(&k->arena);
        take_line(k, &l);
        if (was_live && !k->over)
            k->h.on_line(k->ctx, &l);
    }
    if (k->state == LIVE && !k->over)
        k->h.on_heard(k->ctx);
}

static void on_open(void *ctx)
{
    struct irc_link *k = ctx;

    k->state = GREETING;
    k->since_ms = k->heard_ms = now_ms(k);
    writef(k, "CAP LS 302");
    if (k->opt.password != NULL)
        writef(k, "PASS :%s", k->opt.password);
    writef(k, "NICK %s", k->nick);
    writef(k, "USER %s 0 * :%s", k->opt.user, k->opt.name);
}

static void on_closed(void *ctx, const char *why)
{
    struct irc_link *k = ctx;

    k->conn = NULL; /* it frees itself */
    if (k->over)
        return;
    k->over = true;
    timer_stop(k->clock, &k->end);
    k->h.on_closed(k->ctx, IRC_END_LOST, why);
}

/* After a stall of this process the answers may still be unread, so a late tick judges nothing. */
static void on_tick(struct timer *t)
{
    struct irc_link *k = container_of(t, struct irc_link, tick);
    int64_t now = now_ms(k), silent_ms = now - k->heard_ms;
    bool on_time = now - k->tick_ms < 2 * TICK_MS;

    k->tick_ms = now;
    timer_set(k->clock, t, TICK_MS);
    if (k->state != CONNECTING && k->state != LIVE && now - k->since_ms > REGISTER_MS)
        finish(k, IRC_END_LOST, "the server did not welcome the bot in time");
    else if (k->state == LIVE && on_time && silent_ms > DEAF_MS)
        finish(k, IRC_END_LOST, "the server does not answer");
    else if (k->state == LIVE && silent_ms >= PING_MS && now - k->pinged_ms >= PING_MS) {
        k->pinged_ms = now;
        writef(k, "PING :alive");
    }
}

struct irc_link *irc_link_open(struct loop *loop, struct rand *rand,
                               const struct irc_link_options *opt,
                               const struct irc_link_handlers *h, void *ctx)
{
    static const struct tcp_client_handlers handlers = {.on_open = on_open,
                                                        .on_data = on_data,
                                                        .on_closed = on_closed};
    struct irc_link *k = xcalloc(1, sizeof *k);

    *k = (struct irc_link){
        .loop = loop, .clock = loop_clock(loop), .rand = rand, .opt = *opt, .h = *h, .ctx = ctx};
    k->server = (struct irc_server){.chantypes = "#&",
                                    .line_max = IRC_BODY_MAX,
                                    .history_max = 100,
                                    .history_by_id = true,
                                    .history_by_time = true};
    snprintf(k->nick, sizeof k->nick, "%s", opt->nick);
    list_init(&k->queue);
    timer_init(&k->pump, on_pump);
    timer_init(&k->tick, on_tick);
    timer_init(&k->end, on_end);
    k->since_ms = k->heard_ms = k->level_at_ms = k->tick_ms = now_ms(k);
    timer_set(k->clock, &k->tick, TICK_MS);
    k->conn = tcp_client_open(loop,
                              &(struct tcp_client_options){.host = opt->host,
                                                           .port = opt->port,
                                                           .tls = opt->tls,
                                                           .ca_path = opt->ca,
                                                           .cert = opt->cert,
                                                           .connect_timeout_ms = CONNECT_MS},
                              &handlers, k);
    return k;
}
