/* outbound.c - turns the actions of gateways into calls of signal-cli, and reads the answers.
 * (signal_priv.h has the calls; platform/sender.h describes lanes and retries.)
 *
 *      signal_act --> struct signal_outgoing --> the sender --> write --> transmit --> signal-cli
 *                                                                read <-- answer <-----'
 *
 * signal-cli takes no idempotency key.  The id of a call that sends a message is made of the number
 * of its record and of the part.  An answer that comes after its call was given up, or that
 * signal-cli printed while bellhop was not running, has that id: signal_late() settles the record.
 * So after a crash of bellhop alone the outcome is known; if signal-cli was killed too, it is not.
 *
 * Limits of Signal's servers: 60 messages to a person at once, and one more each second; ten edits
 * of a message, within a day.  The last edits of a message are kept for texts that are complete.
 *
 * A file goes out as base64 within its call.  A thread reads it, and one file is sent at a time. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "net/work.h"
#include "platform/attachment.h"
#include "platform/signal/compose.h"
#include "platform/signal/signal_priv.h"
#include "platform/stream.h"

enum {
    WAIT_MS = 500,    /* for signal-cli, or for another file */
    LOOK_MS = 400,    /* what an earlier process left is read at once */
    TYPED_MS = 10000, /* Signal shows typing for 15 s */
    EMOJI_BYTES = 64,
    MAX_EDITS = 10,
    LAST_EDITS = 2, /* of these, for complete texts */
    LIMITED_MS = 30000,
};
#define EDIT_MS ((int64_t)24 * 3600 * 1000)

enum code { /* of signal-cli's errors */
            CODE_USER = -1,
            CODE_IO = -3,
            CODE_UNTRUSTED = -4,
            CODE_RATE = -5,
            CODE_CAPTCHA = -6,
            CODE_INTERNAL = -32603,
};

/* ---- one action ---- */

struct file_job { /* reads a file on a thread */
    struct work work;
    struct signal_outgoing *x; /* borrowed; NULL: the action has ended */
    char *path;                /* owned */
    uint64_t size;
    struct buf base64;
    bool ok;
};

struct signal_outgoing {
    struct outgoing out;  /* first */
    struct signal_bot *s; /* borrowed */
    enum action_op op;
    const char *method;
    struct md md;
    struct md_part part; /* of part out.at */
    size_t written;      /* parts up to @part */
    struct attachment file;
    struct buf data;      /* the file as a data: URI */
    struct file_job *job; /* borrowed from the pool; NULL: none runs */
    bool unreadable;      /* the file is */
    bool uploads;         /* its call with a file is under way */
    bool remove, stop;
    bool shed;                         /* an edit that is not worth one of the ten */
    struct child_call *call;           /* NULL: none is open */
    const struct child_answer *answer; /* borrowed; while read() runs */
    char *emoji, *quoted;              /* owned; NULL: none */
    int64_t target;                    /* the message to edit, quote or react to; 0: none */
    char author[SIGNAL_PERSON_MAX + 1];
    char chat[SIGNAL_CHAT_MAX + 1];
};

static struct signal_outgoing *outgoing_of(struct outgoing *o)
{
    return container_of(o, struct signal_outgoing, out);
}

static void outgoing_free(struct outgoing *o)
{
    struct signal_outgoing *x = outgoing_of(o);

    if (x->job != NULL)
        x->job->x = NULL;
    if (x->uploads)
        x->s->uploading = false;
    md_done(&x->md);
    attachment_done(&x->file);
    buf_done(&x->data);
    free(x->emoji);
    free(x->quoted);
    free(x);
}

static bool posts(const struct signal_outgoing *x)
{
    return x->op == ACTION_SEND || x->op == ACTION_PROMPT || x->op == ACTION_SEND_MEDIA;
}

static bool at_file(const struct signal_outgoing *x)
{
    return x->op == ACTION_SEND_MEDIA && x->out.at == 0;
}

/* ---- the id of a call ---- */

#define ID_PARTS SENDER_MAX_PARTS
_Static_assert(ID_PARTS == 16, "a part fits into four bits");

/* 0: the action has no record, or a number too large to have parts in it. */
static uint64_t call_id(const struct signal_outgoing *x)
{
    uint64_t number = sender_number(&x->out);

    return posts(x) && number >= CHILD_OWN_IDS && number < UINT64_C(1) << 58
               ? number * ID_PARTS + x->out.at
               : 0;
}

static void told_key(uint64_t id, char ret[24])
{
    snprintf(ret, 24, "%" PRIu64, id);
}

static struct signal_told *told_find(const struct signal_outgoing *x)
{
    uint64_t id = call_id(x);
    char key[24];

    told_key(id, key);
    return id != 0 ? lru_find(&x->s->told, str_of(key)) : NULL;
}

/* ---- files ---- */

static void job_run(struct work *w)
{
    struct file_job *j = container_of(w, struct file_job, work);
    int fd = open(j->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char *bytes = fd >= 0 ? malloc(j->size + 1) : NULL;
    size_t got = 0;

    while (bytes != NULL && got < j->size) {
        ssize_t n = read(fd, bytes + got, j->size - got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    j->ok = bytes != NULL && got == j->size;
    if (j->ok)
        base64_add(&j->base64, bytes, got);
    free(bytes);
    if (fd >= 0)
        close(fd);
}

static void job_done(struct work *w)
{
    struct file_job *j = container_of(w, struct file_job, work);
    struct signal_outgoing *x = j->x;

    if (x != NULL) {
        BUF_LOCAL name = BUF_INIT;
        x->job = NULL;
        x->unreadable = !j->ok || buf_failed(&j->base64);
        attachment_name_add(&name, &x->file);
        for (size_t i = 0; i < name.n; i++)
            if (name.p[i] == ';' || name.p[i] == ',')
                name.p[i] = '_'; /* they end the name in a data: URI */
        buf_printf(&x->data, "data:%s;filename=%.*s;base64,", x->file.type,
                   STR_FMT(buf_str(&name)));
        buf_add_str(&x->data, buf_str(&j->base64));
        if (x->s->child != NULL) /* else the bot is being closed */
            sender_resume(x->s->base.sender, NULL);
    }
    buf_done(&j->base64);
    free(j->path);
    free(j);
}

/* False: the file is being read, or another one is being sent; @v says so. */
static bool has_file(struct signal_outgoing *x, struct sender_verdict *v)
{
    struct signal_bot *s = x->s;

    if (x->unreadable) {
        sender_say(v, SENDER_REFUSED, "the file is not there any more");
        return false;
    }
    if (s->uploading) {
        v->end = SENDER_AGAIN;
        v->wait_ms = WAIT_MS;
        return false;
    }
    if (x->data.n > 0)
        return true;
    if (x->job == NULL) {
        struct file_job *j = xcalloc(1, sizeof *j);
        *j = (struct file_job){.work = {.run = job_run, .done = job_done},
                               .x = x,
                               .path = xstrdup(x->file.path),
                               .size = x->file.size};
        if (s->readers == NULL)
            s->readers = work_pool_new(s->base.env->loop, 1);
        if (work_start(s->readers, &j->work) != BH_OK) {
            free(j->path);
            free(j);
            v->end = SENDER_AGAIN;
            v->wait_ms = WAIT_MS;
            return false;
        }
        x->job = j;
    }
    v->end = SENDER_HOLD;
    return false;
}

/* ---- writing ---- */

static void write_place(struct jw *w, const struct signal_outgoing *x)
{
    struct str group = signal_group_of(str_of(x->chat));

    if (group.n > 0) {
        jw_kstr(w, "groupId", group);
        return;
    }
    jw_karr(w, "recipient");
    jw_str(w, str_of(x->chat));
    jw_end_arr(w);
    if (strcmp(x->method, "send") == 0 && (str_eq(str_of(x->chat), str_of(x->s->base.bot)) ||
                                           str_eq(str_of(x->chat), str_of(x->s->self))))
        jw_kbool(w, "notifySelf", true); /* Note to Self: else it is shown as the owner's own */
}

static struct str author_of(const struct signal_outgoing *x)
{
    return x->author[0] != '\0' ? str_of(x->author) : str_of(x->s->base.bot);
}

static void write_quote(struct jw *w, const struct signal_outgoing *x)
{
    jw_ki64(w, "quoteTimestamp", x->target);
    jw_kstr(w, "quoteAuthor", author_of(x));
    jw_kstr(w, "quoteMessage", x->quoted != NULL ? str_of(x->quoted) : STR(""));
}

/* Moves x->part to part out.at; after a restart the parts before it are skipped. */
static void find_part(struct signal_outgoing *x)
{
    size_t want = x->out.at + 1;

    if (x->op == ACTION_SEND_MEDIA && x->md.text.n == 0)
        return;
    if (x->written > want) {
        x->written = 0;
        x->part = (struct md_part){0};
    }
    while (x->written < want && md_next(&x->md, SIGNAL_TEXT, &x->part))
        x->written++;
}

static void write_message(struct signal_outgoing *x, struct jw *w)
{
    find_part(x);
    if (x->written == x->out.at + 1)
        signal_write_text(w, &x->md, &x->part);
    if (at_file(x)) {
        jw_karr(w, "attachments");
        jw_str(w, buf_str(&x->data));
        jw_end_arr(w);
        if (str_eq(str_of(x->file.kind), STR("voice")))
            jw_kbool(w, "voiceNote", true);
    }
    if (x->op == ACTION_EDIT)
        jw_ki64(w, "editTimestamp", x->target);
    else if (x->target != 0 && x->out.at == 0)
        write_quote(w, x);
}

static enum pace_class class_of(const struct signal_outgoing *x)
{
    return x->op == ACTION_TYPING  ? PACE_TYPING
           : x->op == ACTION_REACT ? PACE_REACT
           : x->op == ACTION_EDIT  ? PACE_FINAL
                                   : PACE_SEND;
}

static bool is_paced(const struct signal_outgoing *x)
{
    return x->op != ACTION_EDIT; /* the streams have counted it */
}

static int64_t signal_wait(struct platform *p, struct outgoing *o)
{
    struct signal_outgoing *x = outgoing_of(o);

    if (x->op == ACTION_TYPING)
        return 0; /* shed rather than delayed */
    if (!x->s->live)
        return WAIT_MS;
    return is_paced(x) ? pace_wait_ms(sender_budget(p->sender), str_of(x->chat), false, class_of(x))
                       : 0;
}

static void signal_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                         struct sender_verdict *v)
{
    struct signal_outgoing *x = outgoing_of(o);
    struct pace *pace = sender_budget(p->sender);
    struct str chat = str_of(x->chat);

    if (x->shed || (x->op == ACTION_TYPING &&
                    (!x->s->live || pace_wait_ms(pace, chat, false, PACE_TYPING) > 0))) {
        v->end = SENDER_DONE;
        if (x->shed)
            snprintf(v->message_id, sizeof v->message_id, "%" PRId64, x->target);
        return;
    }
    if (at_file(x) && !has_file(x, v))
        return;
    struct jw w = signal_params(x->s, &q->body);
    write_place(&w, x);
    if (x->op == ACTION_TYPING) {
        if (x->stop)
            jw_kbool(&w, "stop", true);
    } else if (x->op == ACTION_REACT) {
        jw_kstr(&w, "emoji", str_of(x->emoji));
        jw_kstr(&w, "targetAuthor", author_of(x));
        jw_ki64(&w, "targetTimestamp", x->target);
        jw_kbool(&w, "remove", x->remove);
    } else {
        write_message(x, &w);
    }
    jw_end_obj(&w);
    if (is_paced(x))
        pace_count(pace, chat, false, class_of(x));
    q->once = posts(x);
    v->end = SENDER_GO;
}

/* ---- carrying ---- */

static void on_answer(void *ctx, const struct child_answer *a)
{
    struct signal_outgoing *x = ctx;
    char why[160];

    x->call = NULL;
    x->answer = a;
    if (x->uploads)
        x->s->uploading = x->uploads = false;
    snprintf(why, sizeof why, "%.*s", STR_FMT(a->message));
    sender_answer(&x->out, &(struct http_result){.err = a->err,
                                                 .status = a->ok ? 200 : 400,
                                                 .why = a->err != BH_OK ? why : NULL,
                                                 .retry_after_ms = -1});
}

static void signal_transmit(struct platform *p, struct outgoing *o, const struct sender_request *q)
{
    struct signal_outgoing *x = outgoing_of(o);

    if (at_file(x))
        x->s->uploading = x->uploads = true;
    x->call = child_call(x->s->child, call_id(x), x->method, buf_str(&q->body),
                         at_file(x) ? SIGNAL_UPLOAD_MS : SIGNAL_CALL_MS, on_answer, x);
}

static void signal_drop(struct platform *p, struct outgoing *o)
{
    struct signal_outgoing *x = outgoing_of(o);

    if (x->s->child != NULL) /* closed before the sender: its calls are gone */
        child_cancel(&x->call);
}

/* ---- answers ---- */

/* The worst outcome among the recipients: {results: [{type, retryAfterSeconds, token}]}. */
struct outcome {
    int64_t retry_s;
    bool network, unregistered, captcha;
};

static struct outcome read_outcome(struct json response)
{
    struct outcome o = {0};

    for (struct json_iter it = {0}; json_next(json_get(response, "results"), &it);) {
        struct str type = json_str(it.value, "type");
        int64_t s = json_i64(it.value, "retryAfterSeconds", 0);
        o.retry_s = s > o.retry_s && s < 86400 ? s : o.retry_s;
        o.network |= str_eq(type, STR("NETWORK_FAILURE"));
        o.unregistered |= str_eq(type, STR("UNREGISTERED_FAILURE"));
        o.captcha |= json_str(it.value, "token").n > 0;
    }
    return o;
}

/* Errors of the connection to Signal before anything was sent. */
static bool never_left(struct str message)
{
    static const char *const classes[] = {"(UnknownHostException)", "(ConnectException)",
                                          "(NoRouteToHostException)",
                                          "(UnresolvedAddressException)"};

    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (str_contains(message, str_of(classes[i])))
            return true;
    return false;
}

static void say_refusal(struct sender_verdict *v, struct str message)
{
    BUF_LOCAL plain = BUF_INIT;

    buf_add_plain(&plain, utf8_head(message, 150));
    if (sender_is_loaded(buf_z(&plain)))
        sender_say(v, SENDER_REFUSED, "Signal did not take it");
    else
        sender_say(v, SENDER_REFUSED, "signal-cli says: %s", buf_z(&plain));
}

/* What signal-cli's answer to a call means. */
static void read_answer(const struct child_answer *a, struct sender_verdict *v)
{
    struct outcome how = read_outcome(json_get(a->value, "response"));

    v->code = a->code;
    if (a->ok) {
        int64_t at = json_i64(a->value, "timestamp", 0);
        v->end = SENDER_DONE;
        if (at > 0)
            snprintf(v->message_id, sizeof v->message_id, "%" PRId64, at);
    } else if (a->code == CODE_RATE) {
        v->end = SENDER_AGAIN;
        v->wait_ms = how.retry_s > 0 ? how.retry_s * 1000 : LIMITED_MS;
    } else if (a->code == CODE_UNTRUSTED) {
        sender_say(v, SENDER_REFUSED,
                   "the person's safety number has changed: an operator has to trust it with "
                   "`signal-cli trust`");
    } else if (how.unregistered) {
        sender_say(v, SENDER_REFUSED, "this person is not on Signal any more");
    } else if (never_left(a->message)) {
        sender_say(v, SENDER_AGAIN, "signal-cli cannot reach Signal");
    } else if (how.network || a->code == CODE_INTERNAL || a->code == CODE_IO) {
        sender_say(v, SENDER_UNKNOWN, "signal-cli lost its connection to Signal");
    } else {
        say_refusal(v, a->message);
    }
}

static void on_limit(struct signal_outgoing *x, struct sender_verdict *v)
{
    struct signal_bot *s = x->s;

    s->n.limited++;
    pace_hit(sender_budget(s->base.sender), str_of(x->chat), v->wait_ms);
    if (read_outcome(json_get(x->answer->value, "response")).captcha)
        platform_set_problem(&s->base,
                             "Signal wants a captcha before it takes more messages: get one at "
                             "https://signalcaptchas.org/challenge/generate.html and give it to "
                             "`signal-cli submitRateLimitChallenge`");
    log_warn(&s->base.log, "rate limited: wait_ms=%" PRId64, v->wait_ms);
}

static void on_done(struct signal_outgoing *x, struct sender_verdict *v)
{
    struct signal_bot *s = x->s;
    struct str chat = str_of(x->chat);

    platform_set_problem(&s->base, NULL);
    if (posts(x)) {
        struct str text = x->written > 0
                              ? str_make(x->md.text.p + x->part.from, x->part.to - x->part.from)
                              : STR("");
        signal_chat(s, chat)->typed_ms = 0; /* a message ends the typing */
        if (v->message_id[0] == '\0')
            sender_say(v, SENDER_UNKNOWN, "signal-cli told no timestamp");
        else
            signal_said_add(s, chat, str_of(v->message_id), utf8_head(text, 200));
    } else {
        v->message_id[0] = '\0';
        if (x->op == ACTION_EDIT) /* the message keeps its id */
            snprintf(v->message_id, sizeof v->message_id, "%" PRId64, x->target);
    }
}

static void signal_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                        struct sender_verdict *v)
{
    struct signal_outgoing *x = outgoing_of(o);

    read_answer(x->answer, v);
    if (v->end == SENDER_DONE)
        on_done(x, v);
    else if (v->end == SENDER_AGAIN && v->code == CODE_RATE)
        on_limit(x, v);
    if (x->op == ACTION_TYPING && v->end != SENDER_DONE)
        v->end = SENDER_FAILED; /* late typing is useless */
}

/* A message whose answer was lost: signal_late() may have read it. */
static void signal_look(struct platform *p, struct outgoing *o, struct sender_request *q,
                        struct sender_verdict *v)
{
    struct signal_outgoing *x = outgoing_of(o);
    const struct signal_told *told = told_find(x);

    if (told == NULL) {
        sender_say(v, SENDER_REFUSED, "signal-cli left no answer");
        v->wait_ms = LOOK_MS;
    } else if (told->v.end == SENDER_DONE) {
        *v = told->v;
    } else {
        v->end = SENDER_REWRITE; /* signal-cli refused it: another try says why */
    }
}

static void signal_looked(struct platform *p, struct outgoing *o, const struct http_result *res,
                          struct sender_verdict *v)
{
    v->end = SENDER_UNKNOWN; /* signal_look() makes no requests */
}

void signal_late(void *ctx, uint64_t id, const struct child_answer *a)
{
    struct signal_bot *s = ctx;
    struct sender_verdict v = {0};
    char key[24];

    read_answer(a, &v);
    if (v.end != SENDER_DONE && v.end != SENDER_REFUSED && v.end != SENDER_AGAIN)
        return;
    s->n.late++;
    v.answer = (struct json){0};
    if (v.end == SENDER_AGAIN) /* limited: it was not sent */
        sender_say(&v, SENDER_REFUSED, "Signal limited the rate of messages");
    (void)sender_settle(s->base.sender, id / ID_PARTS, (size_t)(id % ID_PARTS), &v);
    told_key(id, key); /* at a start the record may not be under way yet: signal_look() finds it */
    struct signal_told *t = lru_use(&s->told, str_of(key), sizeof *t);
    t->v = v;
}

static enum stream_way way(struct platform *p, const struct action *a)
{
    return STREAM_NOTHING; /* people see every edit as such, and there are ten of them */
}

/* 40 messages at once and two in three seconds stay below Signal's 60 and one a second. */
static const struct stream_ops streaming = {
    .way = way,
    .pace = {.gap_ms = 1500, .chat_burst = 40},
    .message = {.max = SIGNAL_TEXT, .unit = SPLIT_UTF16},
};

const struct sender_ops signal_sender = {
    .write = signal_write,
    .read = signal_read,
    .free = outgoing_free,
    .wait = signal_wait,
    .transmit = signal_transmit,
    .drop = signal_drop,
    .stream = &streaming,
    .look = signal_look,
    .looked = signal_looked,
};

/* ---- checking actions ---- */

static const char *read_content(struct signal_outgoing *x, struct str markdown)
{
    if (markdown.n > (size_t)SENDER_MAX_PARTS * 4 * SIGNAL_TEXT)
        return "the message is longer than sixteen Signal messages";
    signal_text(&x->md, markdown);
    x->out.n_parts = 0;
    for (struct md_part p = {0}; md_next(&x->md, SIGNAL_TEXT, &p);)
        x->out.n_parts++;
    return x->out.n_parts == 0 ? "the message is empty"
           : x->out.n_parts > SENDER_MAX_PARTS
               ? "the message is longer than sixteen Signal messages"
               : NULL;
}

static const char *read_media(struct signal_outgoing *x, const struct action *a)
{
    const char *wrong = NULL;

    attachment_copy(&x->file, a);
    if (x->file.size == 0)
        return "the file is empty";
    if (x->file.size > SIGNAL_FILE_MAX)
        return "the file is larger than 16 MiB, the most that goes through signal-cli here";
    if (!str_has_only(str_of(x->file.type), "/.+-_"))
        return "the file has no MIME type that Signal takes";
    if (str_trim(a->content).n > 0)
        wrong = read_content(x, a->content);
    else
        x->out.n_parts = 1;
    return wrong;
}

static bool set_target(struct signal_outgoing *x, struct str id)
{
    struct str author;
    const struct signal_said *said;

    if (!signal_read_id(id, &x->target, &author))
        return false;
    if (author.n > 0)
        memcpy(x->author, author.p, author.n);
    said = signal_said(x->s, str_of(x->chat), id);
    if (said != NULL && said->text != NULL)
        x->quoted = xstrdup(said->text);
    return true;
}

static const char *read_reaction(struct signal_outgoing *x, const struct action *a)
{
    if (!set_target(x, a->message_id))
        return "message_id is not one of Signal's";
    if (a->emoji.n > EMOJI_BYTES || (a->emoji.n > 0 && (signed char)a->emoji.p[0] > 0) ||
        (a->emoji.n == 0 && !a->remove))
        return "emoji must be one emoji";
    x->emoji = str_dup(a->emoji.n > 0 ? a->emoji : STR("\xf0\x9f\x91\x8d"));
    x->remove = a->remove;
    x->method = "sendReaction";
    return NULL;
}

static const char *read_edit(struct signal_outgoing *x, const struct action *a)
{
    const char *wrong = read_content(x, a->content);

    if (!set_target(x, a->message_id) || x->author[0] != '\0')
        return "message_id is not that of a message of this bot";
    if (clock_wall_ms(x->s->base.env->clock) - x->target > EDIT_MS)
        return "Signal lets nobody edit a message after a day";
    if (wrong == NULL && x->out.n_parts > 1)
        wrong = "an edited message must fit into one Signal message";
    return wrong;
}

static const char *read_action(struct signal_outgoing *x, const struct action *a)
{
    x->out.n_parts = 1;
    x->method = "send";
    if (posts(x) && a->reply_to.n > 0)
        (void)set_target(x, a->reply_to);
    switch (x->op) {
    case ACTION_SEND:
    case ACTION_PROMPT:
        return read_content(x, a->content);
    case ACTION_SEND_MEDIA:
        return read_media(x, a);
    case ACTION_EDIT:
        return read_edit(x, a);
    case ACTION_REACT:
        return read_reaction(x, a);
    default:
        x->method = "sendTyping";
        x->stop = a->content_set && str_trim(a->content).n == 0;
        return NULL;
    }
}

/* False: typing is shown already, or not shown. */
static bool wants_typing(struct signal_outgoing *x)
{
    struct signal_chat *c = signal_chat(x->s, str_of(x->chat));
    int64_t now_ms = clock_now_ms(x->s->base.env->clock);
    bool shown = c->typed_ms != 0 && now_ms - c->typed_ms < TYPED_MS;

    if (x->stop ? !shown : shown)
        return false;
    c->typed_ms = x->stop ? 0 : now_ms;
    return true;
}

/* Counts an edit.  NULL: it may be sent, or is shed because a newer text follows. */
static const char *take_edit(struct signal_outgoing *x, const struct action *a)
{
    struct signal_said *said = signal_said(x->s, str_of(x->chat), a->message_id);
    bool unfinished = action_without_cursor(a->content).n < a->content.n;

    if (a->left != NULL)
        return NULL; /* an earlier process counted it */
    if (said == NULL)
        said = signal_said_add(x->s, str_of(x->chat), a->message_id, STR_NULL);
    if (unfinished && said->edits >= MAX_EDITS - LAST_EDITS) {
        x->s->n.edits_shed++;
        x->shed = true;
        return NULL;
    }
    if (said->edits >= MAX_EDITS)
        return "Signal takes ten edits of a message: send a new one";
    said->edits++;
    return NULL;
}

static void start(struct signal_bot *s, const struct sender_order *q)
{
    struct signal_outgoing *x = xcalloc(1, sizeof *x);
    const struct action *a = q->action;
    struct sender_order order = *q;

    x->s = s;
    x->op = a->op;
    memcpy(x->chat, a->chat_id.p, a->chat_id.n);
    order.wrong = read_action(x, a);
    if (order.wrong == NULL && x->op == ACTION_EDIT)
        order.wrong = take_edit(x, a);
    if (x->op == ACTION_TYPING && !wants_typing(x)) {
        host_result(s->base.host, q->id, &(struct action_result){.success = true});
        outgoing_free(&x->out);
        return;
    }
    order.twice = posts(x) ? TWICE_IS_SEEN : TWICE_IS_ONE;
    order.lane = str_of(x->chat);
    order.apart = !posts(x);
    sender_act(s->base.sender, &x->out, &order);
}

void signal_act(struct platform *p, struct action_id id, const struct action_from *from,
                const struct action *action)
{
    struct signal_bot *s = signal_of(p);
    struct action a = *action;
    BUF_LOCAL question = BUF_INIT;

    if (!signal_is_chat(a.chat_id)) {
        host_fail(p->host, id,
                  "chat_id is neither a UUID, nor a number with a +, nor group: and a group's id");
    } else if ((signal_ops.descriptor->ops & 1u << a.op) == 0) {
        host_fail(p->host, id, "unsupported op: %s", action_op_name(a.op));
    } else if (a.op == ACTION_GET_CHAT_INFO) {
        const struct signal_chat *c = lru_find(&s->chats, a.chat_id);
        bool group = signal_group_of(a.chat_id).n > 0;
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = c != NULL && c->name != NULL
                                                             ? str_of(c->name)
                                                             : a.chat_id,
                                            .chat_type = group ? STR("group") : STR("dm")});
    } else if (a.op != ACTION_PROMPT || prompts_add_numbered(p, id, from, &a, &question)) {
        start(s, &(struct sender_order){.id = id, .from = from, .action = &a});
    }
}
