/* imap.c - see imap.h.
 *
 * Commands are sent as they come and answered in order; a table of MAX_COMMANDS tells which tag is
 * which.  While the server is in IDLE, commands gather in `later`: DONE ends IDLE, and its answer
 * lets them go.  A server that is silent for SILENT_MS while a command waits is given up. */
#include "platform/email/imap.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "net/loop.h"
#include "net/tcp_client.h"

enum { IDLE_POLLS = 5, MAX_COMMANDS = 64, SILENT_MS = 60000, CONNECT_MS = 20000 };

enum imap_command { CAPABILITY, HELLO, SELECT, LIST, FETCH, STORE, IDLE };
enum imap_idle { AWAKE, ASKED, IDLING, ENDING };

struct imap_waiting { /* a command that the server has not answered */
    uint32_t tag;
    enum imap_command what;
    uint32_t uid;   /* FETCH */
    bool delivered; /* FETCH: on_mail() was called */
    bool exists;    /* FETCH: the server told something of the mail */
};

struct imap {
    struct loop *loop;       /* borrowed */
    struct tcp_client *conn; /* owned */
    struct imap_handlers h;
    void *ctx;
    char *folder; /* owned */
    int64_t poll_ms;
    struct imap_reader reader;
    struct imap_waiting waiting[MAX_COMMANDS];
    size_t n_waiting;
    uint32_t tags;
    struct buf later; /* owned; commands that wait for the end of IDLE */
    enum imap_idle idle;
    bool can_idle, can_id, resting, news;
    struct imap_folder at;
    struct timer silent, poll;
    bool over; /* on_closed() was called, or will be by @end */
    struct timer end;
    bool denied;
    char why[256];
};

static struct clock *clock_of(const struct imap *i)
{
    return loop_clock(i->loop);
}

/* ---- the end ---- */

static void fail(struct imap *i, const char *fmt, ...) BH_PRINTF(2, 3);
static void fail(struct imap *i, const char *fmt, ...)
{
    va_list args;

    if (i->over)
        return;
    i->over = true;
    va_start(args, fmt);
    vsnprintf(i->why, sizeof i->why, fmt, args);
    va_end(args);
    timer_set(clock_of(i), &i->end, 0);
}

static void on_end(struct timer *t)
{
    struct imap *i = container_of(t, struct imap, end);

    i->h.on_closed(i->ctx, i->why, i->denied);
}

void imap_free(struct imap *i)
{
    if (i == NULL)
        return;
    timer_stop(clock_of(i), &i->silent);
    timer_stop(clock_of(i), &i->poll);
    timer_stop(clock_of(i), &i->end);
    tcp_client_free(i->conn);
    imap_reader_done(&i->reader);
    buf_done(&i->later);
    free(i->folder);
    free(i);
}

static void on_silent(struct timer *t)
{
    fail(container_of(t, struct imap, silent), "the mail server does not answer");
}

/* ---- commands ---- */

static void send_bytes(struct imap *i, struct str bytes)
{
    tcp_client_send(i->conn, bytes);
    timer_set(clock_of(i), &i->silent, SILENT_MS);
}

static void wake(struct imap *i)
{
    i->resting = false;
    timer_stop(clock_of(i), &i->poll);
    if (i->idle == IDLING) {
        i->idle = ENDING;
        send_bytes(i, STR("DONE\r\n"));
    }
}

static void command(struct imap *i, enum imap_command what, uint32_t uid, struct str words)
{
    BUF_LOCAL line = BUF_INIT;

    if (i->over)
        return;
    if (i->n_waiting == MAX_COMMANDS) {
        fail(i, "the mail server is too slow");
        return;
    }
    i->waiting[i->n_waiting++] = (struct imap_waiting){.tag = ++i->tags, .what = what, .uid = uid};
    buf_printf(&line, "b%u %.*s\r\n", i->tags, STR_FMT(words));
    if (i->idle == AWAKE || what == IDLE)
        send_bytes(i, buf_str(&line));
    else
        buf_add_str(&i->later, buf_str(&line));
}

static void commandf(struct imap *i, enum imap_command what, uint32_t uid, const char *fmt, ...)
    BH_PRINTF(4, 5);
static void commandf(struct imap *i, enum imap_command what, uint32_t uid, const char *fmt, ...)
{
    char line[128];
    va_list args;

    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    command(i, what, uid, str_of(line));
}

void imap_list(struct imap *i, uint32_t from, uint32_t to)
{
    char last[16] = "*";

    wake(i);
    i->news = false;
    if (to != 0)
        snprintf(last, sizeof last, "%u", to);
    commandf(i, LIST, 0, "UID FETCH %u:%s (UID RFC822.SIZE INTERNALDATE)", from, last);
}

void imap_fetch(struct imap *i, uint32_t uid)
{
    wake(i);
    commandf(i, FETCH, uid, "UID FETCH %u (UID BODY.PEEK[])", uid);
}

void imap_seen(struct imap *i, uint32_t uid)
{
    wake(i);
    commandf(i, STORE, uid, "UID STORE %u +FLAGS.SILENT (\\Seen)", uid);
}

static void on_poll(struct timer *t)
{
    struct imap *i = container_of(t, struct imap, poll);

    i->resting = false;
    i->h.on_news(i->ctx);
}

void imap_rest(struct imap *i)
{
    if (i->resting || i->over)
        return;
    i->resting = true;
    timer_set(clock_of(i), &i->poll,
              i->news       ? 0
              : i->can_idle ? i->poll_ms * IDLE_POLLS
                            : i->poll_ms);
    if (i->can_idle && i->idle == AWAKE && !i->news) {
        i->idle = ASKED;
        command(i, IDLE, 0, STR("IDLE"));
    }
}

bool imap_is_idle(const struct imap *i)
{
    return i->resting && i->can_idle;
}

/* ---- responses ---- */

static struct imap_waiting *find_fetch(struct imap *i, uint32_t uid)
{
    for (size_t n = 0; n < i->n_waiting; n++)
        if (i->waiting[n].what == FETCH && !i->waiting[n].delivered &&
            (uid == 0 || i->waiting[n].uid == uid))
            return &i->waiting[n];
    return NULL;
}

static void on_fetch(struct imap *i, const struct imap_response *r)
{
    bool body = r->has_body || r->body_too_long;
    struct imap_waiting *w = body || r->uid != 0 ? find_fetch(i, r->uid) : NULL;

    if (w != NULL)
        w->exists = true;
    if (w != NULL && body) {
        w->delivered = true;
        i->h.on_mail(i->ctx, w->uid, r->has_body ? &i->reader.body : NULL, IMAP_TOO_LONG);
    } else if (!body && r->uid != 0 && i->n_waiting > 0 && (r->size != 0 || r->date_ms != 0)) {
        i->h.on_item(i->ctx, r->uid, r->size, r->date_ms);
    }
}

static bool has_word(struct str words, struct str want)
{
    struct str w;

    while (str_split(&words, ' ', &w))
        if (str_eq_ci(w, want))
            return true;
    return false;
}

static void begin_select(struct imap *i)
{
    BUF_LOCAL words = BUF_INIT;

    buf_add_str(&words, STR("SELECT "));
    if (imap_quote(&words, str_of(i->folder)))
        command(i, SELECT, 0, buf_str(&words));
    else
        fail(i, "`folder` must be spelled as the mail server spells it, in ASCII");
}

static void idle_over(struct imap *i, enum imap_status status)
{
    BUF_LOCAL later = BUF_INIT;

    i->idle = AWAKE;
    if (status != IMAP_OK)
        i->can_idle = false; /* poll instead */
    later = i->later;
    i->later = BUF_INIT;
    if (later.n > 0)
        send_bytes(i, buf_str(&later));
}

static void on_tagged(struct imap *i, const struct imap_response *r)
{
    size_t n = 0;

    while (n < i->n_waiting && i->waiting[n].tag != r->tag)
        n++;
    if (n == i->n_waiting) {
        fail(i, "the mail server answered a command that was not sent");
        return;
    }
    struct imap_waiting w = i->waiting[n];
    i->n_waiting--;
    memmove(&i->waiting[n], &i->waiting[n + 1], (i->n_waiting - n) * sizeof w);
    switch (w.what) {
    case CAPABILITY:
        if (i->can_id)
            command(i, HELLO, 0, STR("ID (\"name\" \"bellhop\")"));
        else
            begin_select(i);
        break;
    case HELLO:
        begin_select(i);
        break;
    case SELECT:
        if (r->status != IMAP_OK)
            fail(i, "the folder \"%.60s\" cannot be opened: %.*s", i->folder,
                 r->text.n < 120 ? (int)r->text.n : 120, r->text.p);
        else
            i->h.on_selected(i->ctx, &i->at);
        break;
    case LIST:
        if (r->status != IMAP_OK)
            fail(i, "the mail server refused to list the folder");
        else
            i->h.on_listed(i->ctx);
        break;
    case FETCH:
        if (!w.delivered)
            i->h.on_mail(i->ctx, w.uid, NULL,
                         r->status == IMAP_OK && !w.exists ? IMAP_GONE : IMAP_WITHHELD);
        break;
    case STORE: /* a folder that cannot be written: the flag is a courtesy */
        break;
    case IDLE:
        idle_over(i, r->status);
        break;
    }
}

static void on_response(struct imap *i, const struct imap_response *r)
{
    switch (r->kind) {
    case IMAP_TAGGED:
        on_tagged(i, r);
        break;
    case IMAP_CONTINUE:
        if (i->idle == ASKED) {
            i->idle = IDLING;
            if (!i->resting)
                wake(i);
        }
        break;
    case IMAP_STATUS:
        if (str_eq_ci(r->code, STR("UIDVALIDITY")))
            i->at.uidvalidity = (uint32_t)r->code_value;
        else if (str_eq_ci(r->code, STR("UIDNEXT")))
            i->at.uidnext = (uint32_t)r->code_value;
        else if (r->status == IMAP_BYE)
            fail(i, "the mail server closed the connection: %.*s",
                 r->text.n < 120 ? (int)r->text.n : 120, r->text.p);
        break;
    case IMAP_EXISTS:
        i->news |= r->number > i->at.exists && i->at.uidvalidity != 0;
        i->at.exists = r->number;
        if (i->news && i->resting)
            timer_set(clock_of(i), &i->poll, 0);
        break;
    case IMAP_EXPUNGE:
        i->at.exists -= i->at.exists > 0;
        break;
    case IMAP_FETCH:
        on_fetch(i, r);
        break;
    case IMAP_CAPABILITY:
        i->can_idle = has_word(r->text, STR("IDLE"));
        i->can_id = has_word(r->text, STR("ID"));
        break;
    case IMAP_OTHER:
        break;
    }
}

/* ---- the connection ---- */

static void on_open(void *ctx)
{
    command(ctx, CAPABILITY, 0, STR("CAPABILITY"));
}

static void on_data(void *ctx, struct str bytes)
{
    struct imap *i = ctx;
    struct imap_response r;
    enum imap_fed fed = IMAP_MORE;

    while (!i->over && (fed = imap_feed(&i->reader, &bytes, &r)) == IMAP_RESPONSE)
        on_response(i, &r);
    if (fed == IMAP_BROKEN)
        fail(i, "the mail server does not speak IMAP");
    if (i->n_waiting == 0 || (i->n_waiting == 1 && i->idle == IDLING))
        timer_stop(clock_of(i), &i->silent);
    else
        timer_set(clock_of(i), &i->silent, SILENT_MS);
}

static void on_closed(void *ctx, const char *why)
{
    struct imap *i = ctx;

    i->denied = tcp_client_was_denied(i->conn);
    i->conn = NULL;
    fail(i, "%s", why);
}

struct imap *imap_open(struct loop *loop, const struct imap_options *opt,
                       const struct imap_handlers *h, void *ctx)
{
    static const struct tcp_client_handlers handlers = {on_open, on_data, on_closed};
    struct tcp_client_options to = {.imap = &opt->login, .connect_timeout_ms = CONNECT_MS};
    struct imap *i = xcalloc(1, sizeof *i);

    *i = (struct imap){.loop = loop, .h = *h, .ctx = ctx, .poll_ms = opt->poll_ms};
    i->folder = xstrdup(opt->folder);
    i->reader.max_body = opt->max_body;
    timer_init(&i->silent, on_silent);
    timer_init(&i->poll, on_poll);
    timer_init(&i->end, on_end);
    i->conn = tcp_client_open(loop, &to, &handlers, i);
    return i;
}
