/* channel.c - standard input and output, requests to bellhop, the mailbox session.  (channel.h has
 * the contract.)
 *
 *      client lists the tools --settle_ms--> READY --open--> POLLING --409--> told, exit 0
 *                                              ^                |------401, 403-> told, exit 1
 *                                              '-- 404, 5xx, no answer: again, with a pause
 *
 * One poll is open all the time: it is how bellhop knows that the agent is there.  It asks for as
 * many deliveries as the window has room for.  With a full window it asks for none; while a
 * question is open it then looks at the mail behind the window, because the answer to the question
 * lies there.  Only a poll that takes nothing is ever cancelled, so no delivery is read in vain.
 *
 * bellhop notes on disk what it hands out before it answers, so `repeat` is right after any crash
 * of the client, of this program or of bellhop. */
#include "agent/channel.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "agent/channel_priv.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "net/loop.h"

#define LINE_MAX_BYTES ((size_t)4 << 20)
#define UNSENT_MAX_BYTES ((size_t)64 << 20) /* the client reads nothing: give up */
enum {
    POLL_S = 25,
    POLL_MS = 60000,
    CALL_MS = 40000,
    RETRY_FIRST_MS = 250,
    RETRY_LAST_MS = 5000,
    RETRY_FOR_MS = 60000,
    LEAVE_MS = 3000,
    PEEK_ROWS = 64,
    DONE_KEPT = 1000,    /* deliveries that are done and can still be named */
    UNDONE_KEPT = 20000, /* beyond it the oldest can only be acked */
    LINES_KEPT = 2000,
    LINE_TEXT_BYTES = 4000,
};

struct channel_fetch {
    struct list link; /* channel->fetches */
    struct channel *ch;
    struct http_call *http;
    struct timer again;
    struct channel_query q; /* its texts are owned */
    char *method, *path, *url;
    struct buf body;
    int64_t give_up_ms;
    unsigned tries;
    channel_reply_cb *done;
    void *ctx;
};

/* ---- the end ---- */

static void complain(const char *what, const char *more)
{
    fprintf(stderr, "bellhop mcp --channel: %s%s%s\n", what, *more != '\0' ? ": " : "", more);
}

static void stop_if_written(struct channel *ch)
{
    if (ch->ending && ch->unsent.n == 0 && !timer_is_set(&ch->leaving))
        loop_stop(ch->loop);
}

static void on_left(void *ctx, const struct channel_reply *r)
{
    struct channel *ch = ctx;

    timer_stop(ch->clock, &ch->leaving);
    stop_if_written(ch);
}

static void on_leaving(struct timer *t)
{
    loop_stop(container_of(t, struct channel, leaving)->loop);
}

void channel_end(struct channel *ch, int status)
{
    BUF_LOCAL path = BUF_INIT;

    if (ch->ending)
        return;
    ch->ending = true;
    ch->status = status;
    channel_cancel(&ch->poll);
    timer_stop(ch->clock, &ch->again);
    timer_set(ch->clock, &ch->leaving, LEAVE_MS);
    if (ch->is_open) {
        buf_printf(&path, "/v1/mailbox?session=%s", ch->session);
        channel_send(ch, &(struct channel_query){.method = "DELETE", .path = buf_str(&path)},
                     on_left, ch);
    } else {
        timer_set(ch->clock, &ch->leaving, ch->unsent.n > 0 ? LEAVE_MS : 0);
    }
}

/* The channel may not go on.  Tells the model and the log. */
static void give_up(struct channel *ch, int status, const char *what, const char *why)
{
    BUF_LOCAL text = BUF_INIT, params = BUF_INIT;

    if (ch->ending)
        return;
    complain(what, why);
    buf_printf(&text, "%s%s%s. No further messages arrive here.", what, *why != '\0' ? ": " : "",
               why);
    channel_write_notice(&params, "ended", STR_NULL, buf_str(&text));
    channel_emit(ch, buf_str(&params));
    ch->is_open = false;
    channel_end(ch, status);
}

/* ---- standard output ---- */

/* Writes without blocking: a client that does not read must not stop the polls. */
static ssize_t write_some(struct str bytes)
{
    struct pollfd room = {.fd = STDOUT_FILENO, .events = POLLOUT};
    ssize_t n = send(STDOUT_FILENO, bytes.p, bytes.n, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n >= 0 || errno != ENOTSOCK)
        return n;
    if (poll(&room, 1, 0) != 1) {
        errno = EAGAIN;
        return -1;
    }
    return write(STDOUT_FILENO, bytes.p, bytes.n < 4096 ? bytes.n : 4096); /* PIPE_BUF */
}

static void on_writable(void *ctx, int events)
{
    struct channel *ch = ctx;

    while (ch->unsent.n > 0) {
        ssize_t n = write_some(buf_str(&ch->unsent));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            buf_reset(&ch->unsent); /* the client has gone */
            channel_end(ch, 0);
            break;
        }
        if (n < 0)
            break;
        buf_consume(&ch->unsent, (size_t)n);
    }
    if (ch->unsent.n > 0 && ch->out == NULL) {
        ch->out = loop_fd_add(ch->loop, STDOUT_FILENO, LOOP_WRITE, on_writable, ch);
    } else if (ch->unsent.n == 0 && ch->out != NULL) {
        loop_fd_free(ch->out);
        ch->out = NULL;
    }
    stop_if_written(ch);
}

static void on_write(void *ctx, struct str line)
{
    struct channel *ch = ctx;

    buf_add_str(&ch->unsent, line);
    if (ch->unsent.n > UNSENT_MAX_BYTES || buf_failed(&ch->unsent)) {
        complain("the client does not read what it is sent", "");
        ch->status = 1;
        loop_stop(ch->loop);
        return;
    }
    on_writable(ch, 0);
}

void channel_emit(struct channel *ch, struct str params)
{
    jsonrpc_notify(ch->rpc, "notifications/claude/channel", params);
}

/* ---- standard input ---- */

static void on_noise(void *ctx, struct str line, const char *why)
{
    complain("a line of the client is not used", why);
}

static const struct jsonrpc_ops rpc_ops = {
    .write = on_write,
    .request = channel_request,
    .notified = channel_notified,
    .noise = on_noise,
};

static void take_lines(struct channel *ch)
{
    size_t used = 0;

    while (!ch->ending) {
        const char *from = ch->line.p + used;
        const char *end = ch->line.n > used ? memchr(from, '\n', ch->line.n - used) : NULL;
        if (end == NULL)
            break;
        struct str line = str_trim(str_make(from, (size_t)(end - from)));
        used += (size_t)(end - from) + 1;
        if (line.n > 0)
            jsonrpc_line(ch->rpc, line);
    }
    buf_consume(&ch->line, used);
}

static void on_input(void *ctx, int events)
{
    struct channel *ch = ctx;
    char piece[65536];
    ssize_t n = read(STDIN_FILENO, piece, sizeof piece);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0) {
        buf_add(&ch->line, piece, (size_t)n);
        take_lines(ch);
    }
    if (n > 0 && ch->line.n <= LINE_MAX_BYTES)
        return;
    if (n > 0)
        complain("a line of the client is longer than 4 MiB", "");
    loop_fd_free(ch->in);
    ch->in = NULL;
    channel_end(ch, n > 0 ? 1 : 0);
}

/* ---- requests to bellhop ---- */

static void fetch_free(struct channel_fetch *c)
{
    http_cancel(&c->http);
    timer_stop(c->ch->clock, &c->again);
    list_remove(&c->link);
    free(c->method);
    free(c->path);
    free(c->url);
    if (c->q.drop != NULL)
        c->q.drop(c->ctx);
    buf_done(&c->body);
    free(c);
}

void channel_cancel(struct channel_fetch **f)
{
    if (*f != NULL)
        fetch_free(*f);
    *f = NULL;
}

static void fetch_try(struct channel_fetch *c);

static void on_again(struct timer *t)
{
    fetch_try(container_of(t, struct channel_fetch, again));
}

static bool may_retry(const struct channel_fetch *c, const struct http_result *r)
{
    bool unsent =
        r->err == BH_UNAVAILABLE || (r->err == BH_OK && (r->status == 503 || r->status == 429));

    if (clock_now_ms(c->ch->clock) >= c->give_up_ms || c->ch->ending)
        return false;
    return c->q.retry == RETRY_ALWAYS ? unsent || r->err != BH_OK
                                      : c->q.retry == RETRY_UNSENT && unsent;
}

static void on_answer(void *ctx, const struct http_result *r)
{
    struct channel_fetch *c = ctx;
    struct channel *ch = c->ch;
    struct channel_reply reply = {.why = ""};
    char why[300];

    c->http = NULL;
    if (may_retry(c, r)) {
        timer_set(ch->clock, &c->again,
                  clock_backoff_ms(++c->tries, RETRY_FIRST_MS, RETRY_LAST_MS));
        return;
    }
    if (r->err == BH_OK) {
        reply.status = r->status;
        reply.body = r->body;
        if (c->url == NULL)
            json_parse(ch->parser, r->body, &reply.doc);
    }
    if (r->err != BH_OK || r->status != 200) {
        struct str said = json_str(reply.doc, "error");
        if (said.n > 0)
            snprintf(why, sizeof why, "%.*s", said.n < 280 ? (int)said.n : 280, said.p);
        else if (r->err != BH_OK)
            snprintf(why, sizeof why, "bellhop does not answer: %.200s", r->why);
        else
            snprintf(why, sizeof why, "the server answered %d", r->status);
        reply.why = why;
        reply.unknown = r->err != BH_OK && r->err != BH_UNAVAILABLE;
    }
    channel_reply_cb *done = c->done;
    void *done_ctx = c->ctx;
    bool revoked = reply.status == 401 && c->url == NULL;
    if (ch->poll == c)
        ch->poll = NULL;
    c->q.drop = NULL;
    fetch_free(c);
    done(done_ctx, &reply);
    if (revoked)
        give_up(ch, 1, "bellhop refuses this channel", reply.why);
}

static void fetch_try(struct channel_fetch *c)
{
    const struct channel_options *o = c->ch->opt;
    const char *headers[8];
    BUF_LOCAL url = BUF_INIT;
    size_t n = 0;

    for (; c->url == NULL && o->headers[n] != NULL && n < 6; n++)
        headers[n] = o->headers[n];
    if (c->body.n > 0)
        headers[n++] = "Content-Type: application/json";
    headers[n] = NULL;
    buf_printf(&url, "%s%s", c->url == NULL ? o->url : "", c->url == NULL ? c->path : c->url);
    c->http =
        http_fetch(c->ch->http,
                   &(struct http_fetch){.method = c->method,
                                        .url = buf_z(&url),
                                        .headers = headers,
                                        .body = c->body.n > 0 ? buf_str(&c->body) : STR_NULL,
                                        .timeout_ms = c->q.timeout_ms,
                                        .max_body = c->q.max_body,
                                        .public_only = c->url != NULL && !c->q.private_url,
                                        .once = c->q.retry == RETRY_UNSENT,
                                        .unix_socket = c->url == NULL ? o->unix_socket : NULL},
                   on_answer, c);
}

struct channel_fetch *channel_send(struct channel *ch, const struct channel_query *q,
                                   channel_reply_cb *done, void *ctx)
{
    struct channel_fetch *c = xcalloc(1, sizeof *c);

    *c = (struct channel_fetch){.ch = ch, .q = *q, .done = done, .ctx = ctx};
    c->method = xstrdup(q->method);
    c->path = str_dup(q->path);
    c->url = q->url != NULL ? xstrdup(q->url) : NULL;
    buf_add_str(&c->body, q->body);
    if (q->timeout_ms == 0)
        c->q.timeout_ms = CALL_MS;
    c->give_up_ms = clock_now_ms(ch->clock) + RETRY_FOR_MS;
    list_init(&c->link);
    list_append(&ch->fetches, &c->link);
    timer_init(&c->again, on_again);
    fetch_try(c);
    return c;
}

/* ---- deliveries ---- */

static void delivery_free(struct channel *ch, struct channel_delivery *d)
{
    list_remove(&d->link);
    map_del(&ch->by_id, str_of(d->id));
    for (size_t i = 0; i < d->n_files; i++) {
        free(d->files[i].url);
        free(d->files[i].name);
        free(d->files[i].type);
    }
    free(d->files);
    free(d->platform);
    free(d->chat_id);
    free(d->message_id);
    free(d->metadata);
    free(d->text);
    free(d);
}

struct channel_delivery *channel_find(const struct channel *ch, struct str id)
{
    return map_get(&ch->by_id, id);
}

static void learn_files(struct channel_delivery *d, struct json event)
{
    struct json_iter url = {0}, type = {0}, more = {0};

    while (d->n_files < CHANNEL_FILES_MAX && json_next(json_get(event, "media_urls"), &url)) {
        struct json item =
            json_next(json_get(event, "media"), &more) ? more.value : (struct json){0};
        struct str t =
            json_next(json_get(event, "media_types"), &type) ? json_as_str(type.value) : STR_NULL;
        d->files = xrealloc(d->files, (d->n_files + 1) * sizeof *d->files);
        d->files[d->n_files++] =
            (struct channel_file){.url = str_dup(json_as_str(url.value)),
                                  .name = str_dup_opt(json_str(item, "filename")),
                                  .type = str_dup(t.n > 0 ? t : STR("application/octet-stream"))};
    }
}

/* The metadata that puts an answer where the message came from. */
static char *answer_metadata(struct json source)
{
    static const char *const names[] = {"thread_id", "guild_id", "scope_id", "user_id"};
    BUF_LOCAL out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_obj(&w);
    jw_kbool(&w, "notify", true);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        jw_kstr_opt(&w, names[i], json_str(source, names[i]));
    jw_end_obj(&w);
    return buf_take(&out);
}

static void delivery_add(struct channel *ch, uint64_t number, struct json frame)
{
    struct json event = json_get(frame, "event"), source = json_get(event, "source");
    struct channel_delivery *d = xcalloc(1, sizeof *d);
    BUF_LOCAL text = BUF_INIT;

    d->number = number;
    snprintf(d->id, sizeof d->id, "%" PRIu64, number);
    d->platform = str_dup_opt(json_str(source, "platform"));
    d->chat_id = str_dup_opt(json_str(source, "chat_id"));
    d->message_id = str_dup_opt(json_str(event, "message_id"));
    d->metadata = answer_metadata(source);
    d->shown_ms = clock_now_ms(ch->clock);
    if (d->message_id == NULL && channel_add_text(&text, frame))
        d->text = str_dup(utf8_head(buf_str(&text), LINE_TEXT_BYTES));
    learn_files(d, event);
    list_init(&d->link);
    list_append(&ch->undone, &d->link);
    map_put(&ch->by_id, str_of(d->id), d);
    if (++ch->n_undone > UNDONE_KEPT) {
        delivery_free(ch, list_first(&ch->undone, struct channel_delivery, link));
        ch->n_undone--;
    }
}

void channel_finished(struct channel *ch, struct str id)
{
    struct channel_delivery *d = channel_find(ch, id);

    if (d == NULL || d->over)
        return;
    d->over = true;
    list_move(&d->link, &ch->done);
    ch->n_undone--;
    if (++ch->n_done > DONE_KEPT) {
        delivery_free(ch, list_first(&ch->done, struct channel_delivery, link));
        ch->n_done--;
    }
    channel_poll_again(ch);
}

/* Deliveries that count for the window, and when the oldest of them stops to (0: none does). */
static size_t in_hand(const struct channel *ch, int64_t *ret_until_ms)
{
    int64_t fresh_ms = clock_now_ms(ch->clock) - CHANNEL_STALE_MS;
    size_t n = 0;

    *ret_until_ms = 0;
    for (const struct list *it = ch->undone.prev; it != &ch->undone; it = it->prev) {
        const struct channel_delivery *d = list_entry(it, const struct channel_delivery, link);
        if (d->shown_ms <= fresh_ms)
            break; /* the others are older */
        *ret_until_ms = d->shown_ms + CHANNEL_STALE_MS;
        n++;
    }
    return n;
}

/* ---- what was said ---- */

static void line_free(struct channel *ch, struct channel_line *l)
{
    list_remove(&l->link);
    free(l->chat_id);
    free(l->who);
    free(l->text);
    free(l->message_id);
    free(l);
    ch->n_lines--;
}

void channel_said(struct channel *ch, struct str chat_id, struct str who, struct str text,
                  struct str message_id, int64_t at_ms)
{
    struct channel_line *l = xcalloc(1, sizeof *l);

    *l = (struct channel_line){.chat_id = str_dup_opt(chat_id),
                               .who = who.p != NULL ? str_dup(who) : NULL,
                               .text = str_dup(utf8_head(text, LINE_TEXT_BYTES)),
                               .message_id = str_dup_opt(message_id),
                               .at_ms = at_ms};
    list_init(&l->link);
    list_append(&ch->lines, &l->link);
    if (++ch->n_lines > LINES_KEPT)
        line_free(ch, list_first(&ch->lines, struct channel_line, link));
}

static struct str name_of(struct json source)
{
    struct str name = json_str(source, "user_name");

    return name.p != NULL ? name : STR("");
}

static void hear(struct channel *ch, struct json event, int64_t at_ms)
{
    struct json source = json_get(event, "source");
    struct str chat = json_str(source, "chat_id");

    for (struct json_iter it = {0}; json_next(json_get(event, "context"), &it);)
        channel_said(ch, chat, name_of(json_get(it.value, "source")), json_str(it.value, "text"),
                     json_str(it.value, "message_id"), at_ms);
    channel_said(ch, chat, name_of(source), json_str(event, "text"), json_str(event, "message_id"),
                 at_ms);
}

/* ---- the mailbox session ---- */

static void poll_next(struct channel *ch);

static void on_poll_again(struct timer *t)
{
    poll_next(container_of(t, struct channel, again));
}

static void on_settled(void *ctx, const struct channel_reply *r)
{
    /* retried while bellhop was away; what still waits comes again at the next start */
}

static void settle(struct channel *ch, struct str id)
{
    BUF_LOCAL body = BUF_INIT;

    buf_printf(&body, "{\"deliveries\":[\"%.*s\"]}", STR_FMT(id));
    channel_send(ch,
                 &(struct channel_query){.method = "POST",
                                         .path = STR("/v1/mailbox/done"),
                                         .body = buf_str(&body),
                                         .retry = RETRY_ALWAYS},
                 on_settled, NULL);
}

/* One delivery of the mailbox.  @peek: only an answer to a question is of interest. */
static void take(struct channel *ch, struct json item, bool peek)
{
    struct str id = json_str(item, "delivery");
    struct json frame = json_get(item, "frame"), event = json_get(frame, "event");
    bool repeat = json_as_bool(json_get(item, "repeat"), false);
    BUF_LOCAL params = BUF_INIT;
    uint64_t number;
    int64_t at_ms = 0;

    if (!str_to_u64(id, &number))
        return;
    json_as_i64(json_get(item, "at"), &at_ms);
    if (number > ch->peeked)
        ch->peeked = number;
    if (!peek && number > ch->cursor)
        ch->cursor = number;
    if (channel_pressed(ch, event)) {
        settle(ch, id);
        return;
    }
    if (peek)
        return;
    if (!channel_write_event(&params, frame, id, repeat, at_ms)) {
        settle(ch, id); /* nothing that anybody could do anything with */
        return;
    }
    delivery_add(ch, number, frame);
    if (json_is_object(event))
        hear(ch, event, at_ms);
    channel_emit(ch, buf_str(&params));
}

/* What a refusal means for the session; the poll goes on later unless the channel ends. */
static void refused(struct channel *ch, const struct channel_reply *r)
{
    if (r->status == 401) {
        return; /* on_answer() ends the channel */
    } else if (r->status == 403) {
        give_up(ch, 1, "bellhop refuses this channel", r->why);
    } else if (r->status == 409) {
        give_up(ch, 0, "Another session of this instance has taken over", "");
    } else {
        if (r->status == 404)
            ch->is_open = false; /* bellhop restarted, or did not hear of us: open it again */
        ch->failures++;
        timer_set(ch->clock, &ch->again,
                  r->status == 404 && ch->failures == 1
                      ? 0
                      : clock_backoff_ms(ch->failures, RETRY_FIRST_MS, RETRY_LAST_MS));
    }
}

static void on_polled(void *ctx, const struct channel_reply *r)
{
    struct channel *ch = ctx;
    bool peek = ch->poll_idle;

    if (r->status != 200) {
        refused(ch, r);
        return;
    }
    ch->failures = 0;
    /* Handling a delivery may send requests, whose replies are parsed later: the document stays. */
    for (struct json_iter it = {0}; json_next(json_get(r->doc, "deliveries"), &it);)
        take(ch, it.value, peek);
    for (struct json_iter it = {0}; json_next(json_get(r->doc, "interrupts"), &it);) {
        BUF_LOCAL params = BUF_INIT;
        channel_write_notice(&params, "stop", json_str(it.value, "chat_id"),
                             STR("The person in this chat asks you to stop."));
        channel_emit(ch, buf_str(&params));
    }
    poll_next(ch);
}

static void on_stale(struct timer *t)
{
    channel_poll_again(container_of(t, struct channel, stale));
}

static void pull(struct channel *ch)
{
    int64_t until_ms;
    size_t held = in_hand(ch, &until_ms),
           room = ch->opt->window > held ? ch->opt->window - held : 0;
    bool peek = room == 0 && ch->n_questions > 0;
    uint64_t after = peek && ch->peeked > ch->cursor ? ch->peeked : ch->cursor;
    BUF_LOCAL path = BUF_INIT;

    ch->poll_idle = room == 0;
    if (room == 0)
        timer_set(ch->clock, &ch->stale, until_ms - clock_now_ms(ch->clock));
    buf_printf(&path, "/v1/mailbox?session=%s&after=%" PRIu64 "&limit=%zu&wait=%d%s", ch->session,
               after, peek ? PEEK_ROWS : room, POLL_S, peek ? "&peek=true" : "");
    ch->poll = channel_send(ch,
                            &(struct channel_query){.method = "GET",
                                                    .path = buf_str(&path),
                                                    .timeout_ms = POLL_MS,
                                                    .max_body = (size_t)64 << 20},
                            on_polled, ch);
}

static void on_opened(void *ctx, const struct channel_reply *r)
{
    struct channel *ch = ctx;
    struct str session = json_str(r->doc, "session");

    if (r->status != 200 || session.n == 0 || session.n >= sizeof ch->session) {
        refused(ch, r);
        return;
    }
    snprintf(ch->session, sizeof ch->session, "%.*s", STR_FMT(session));
    ch->is_open = true;
    poll_next(ch);
}

static void poll_next(struct channel *ch)
{
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (ch->poll != NULL || ch->ending || !ch->is_ready)
        return;
    if (ch->is_open) {
        pull(ch);
        return;
    }
    jw_obj(&w);
    jw_kstr(&w, "instance", str_of(ch->opt->instance));
    if (ch->session[0] != '\0')
        jw_kstr(&w, "session", str_of(ch->session));
    jw_end_obj(&w);
    ch->poll_idle = false;
    ch->poll = channel_send(ch,
                            &(struct channel_query){.method = "POST",
                                                    .path = STR("/v1/mailbox"),
                                                    .body = buf_str(&body)},
                            on_opened, ch);
}

void channel_poll_again(struct channel *ch)
{
    if (ch->poll == NULL || !ch->poll_idle || ch->ending)
        return;
    channel_cancel(&ch->poll);
    poll_next(ch);
}

static void on_ready(struct timer *t)
{
    struct channel *ch = container_of(t, struct channel, ready);

    ch->is_ready = true;
    poll_next(ch);
}

/* ---- the process ---- */

static void on_signal(void *ctx)
{
    channel_end(ctx, 0);
}

int channel_run(const struct channel_options *opt)
{
    struct channel ch = {.opt = opt, .loop = loop_new()};

    if (ch.loop == NULL)
        return 1;
    signal(SIGPIPE, SIG_IGN);
    ch.clock = loop_clock(ch.loop);
    ch.http = http_client_new(ch.loop);
    ch.rpc = jsonrpc_new(&rpc_ops, &ch);
    ch.parser = json_parser_new();
    struct list *const lists[] = {&ch.fetches, &ch.undone, &ch.done, &ch.lines, &ch.questions};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        list_init(lists[i]);
    timer_init(&ch.again, on_poll_again);
    timer_init(&ch.ready, on_ready);
    timer_init(&ch.stale, on_stale);
    timer_init(&ch.leaving, on_leaving);
    loop_on_signal(ch.loop, SIGTERM, on_signal, &ch);
    loop_on_signal(ch.loop, SIGINT, on_signal, &ch);
    ch.in = loop_fd_add(ch.loop, STDIN_FILENO, LOOP_READ, on_input, &ch);
    loop_run(ch.loop);
    struct timer *const timers[] = {&ch.again, &ch.ready, &ch.stale, &ch.leaving};
    for (size_t i = 0; i < ARRAY_LEN(timers); i++)
        timer_stop(ch.clock, timers[i]);
    channel_questions_free(&ch);
    list_each (&ch.fetches, it, next)
        fetch_free(list_entry(it, struct channel_fetch, link));
    list_each (&ch.undone, it, next)
        delivery_free(&ch, list_entry(it, struct channel_delivery, link));
    list_each (&ch.done, it, next)
        delivery_free(&ch, list_entry(it, struct channel_delivery, link));
    list_each (&ch.lines, it, next)
        line_free(&ch, list_entry(it, struct channel_line, link));
    map_done(&ch.by_id);
    loop_fd_free(ch.in);
    loop_fd_free(ch.out);
    jsonrpc_free(ch.rpc);
    json_parser_free(ch.parser);
    http_client_free(ch.http);
    loop_free(ch.loop);
    buf_done(&ch.line);
    buf_done(&ch.unsent);
    channel_files_remove(&ch);
    return ch.status;
}
