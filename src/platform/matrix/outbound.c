/* outbound.c - turns the actions of gateways into requests to the homeserver, and reads the
 * answers.  (matrix_priv.h has the calls; platform/sender.h describes lanes and retries.)
 *
 *      mx_act --> struct mx_outgoing --> the sender --> mx_write --> homeserver --> mx_read
 *
 * Every event is sent by PUT with a transaction id, which is made from the number of the outbox
 * record.  The homeserver answers a second PUT with the first event's id, so a lost answer or a
 * crash leads to one message.
 *
 *      a text      [HTML on a thread] --> PUT send
 *      a file      POST upload --> PUT send, then the rest of a long caption
 *      - reaction  GET relations: which event is ours? --> PUT redact
 *
 * A message in an encrypted room would be readable by the homeserver, so there is none. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "platform/attachment.h"
#include "platform/html.h"
#include "platform/matrix/matrix_priv.h"
#include "platform/split.h"
#include "platform/stream.h"

enum {
    BURST = 9,   /* messages at once: of ten that a homeserver allows, since the clocks differ */
    RESERVE = 3, /* of them, that edits and reactions leave to messages */
    TYPING_MS = 20000,       /* the homeserver shows it for so long */
    TYPING_FRESH_MS = 10000, /* it is not sent again earlier */
    UPLOAD_MS = 120000,
    KEY_MS = 25 * 60000, /* Synapse remembers transaction ids for half an hour */
    MAX_EVENT = 60000,   /* bytes of a content; an event may have 65,536 */
    MAX_FORMATTED = 40000,
    MAX_WAIT_MS = 300000,
    MAX_NAMED = 4096, /* bytes of mx_said.named that are kept */
};

struct html_job { /* owns all it needs, since the message may be dropped meanwhile */
    struct work work;
    struct mx_outgoing *of; /* borrowed; NULL: dropped */
    struct buf text, html;
};

struct mx_outgoing {
    struct outgoing out; /* first */
    struct matrix *m;    /* borrowed */
    enum action_op op;   /* ACTION_UNKNOWN: a request of the adapter's own */
    struct split parts;  /* owned */
    struct attachment file;
    struct html_job *job; /* owned by its thread; NULL: none */
    struct buf html;      /* owned; of part @html_at - 1 */
    size_t html_at;       /* 0: of none */
    bool plain;           /* the homeserver refused the event as too large */
    uint64_t number;      /* of its transaction, where it has no record */
    char *mxc;            /* owned; the uploaded file */
    char *found;          /* owned; the reaction to remove */
    char *word;           /* owned; an emoji */
    char *user;           /* owned; who of ours speaks */
    const char *method;   /* of a request of the adapter's own; a literal */
    struct buf path, body;
    char *thread, *reply_to, *message; /* owned; NULL: none */
    char room[];
};

static struct mx_outgoing *mx_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct mx_outgoing, out);
}

static void outgoing_free(struct outgoing *o)
{
    struct mx_outgoing *x = mx_outgoing_of(o);
    char *texts[] = {x->mxc, x->found, x->word, x->user, x->thread, x->reply_to, x->message};

    if (x->job != NULL)
        x->job->of = NULL;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(texts[i]);
    split_done(&x->parts);
    attachment_done(&x->file);
    buf_done(&x->html);
    buf_done(&x->path);
    buf_done(&x->body);
    free(x);
}

/* Does it add an event to the room? */
static bool posts(const struct mx_outgoing *x)
{
    return x->op == ACTION_SEND || x->op == ACTION_PROMPT || x->op == ACTION_SEND_MEDIA ||
           x->op == ACTION_EDIT || x->op == ACTION_REACT;
}

/* Is the part that is sent next the file itself? */
static bool at_file(const struct mx_outgoing *x)
{
    return x->op == ACTION_SEND_MEDIA && x->out.at == 0;
}

static struct str text_of(const struct mx_outgoing *x)
{
    return x->out.at < x->parts.n ? split_part(&x->parts, x->out.at) : STR("");
}

/* ---- the budget: what a homeserver allows to one user ---- */

static void refill(struct matrix *m)
{
    int64_t now_ms = clock_now_ms(m->base.env->clock), gone_ms = now_ms - m->budget.at_ms;

    m->budget.at_ms = now_ms;
    if (gone_ms > 3600000)
        m->budget.missing = 0;
    else
        m->budget.missing -= gone_ms * m->cfg->rate / 60;
    if (m->budget.missing < 0)
        m->budget.missing = 0;
}

static int64_t mx_wait(struct platform *p, struct outgoing *o)
{
    const struct mx_outgoing *x = mx_outgoing_of(o);
    struct matrix *m = x->m;
    bool uploads = at_file(x) && x->mxc == NULL;

    if (!posts(x) || uploads || m->cfg->rate == 0 || mx_is_service(m))
        return 0;
    refill(m);
    int64_t reserve = x->op == ACTION_EDIT || x->op == ACTION_REACT ? RESERVE : 0;
    int64_t lacks = m->budget.missing + 1000 - (BURST - reserve) * 1000;
    return lacks > 0 ? lacks * 60 / m->cfg->rate + 1 : 0;
}

/* ---- HTML ---- */

static void run_html(struct work *w)
{
    struct html_job *j = container_of(w, struct html_job, work);
    BUF_LOCAL plain = BUF_INIT;

    html_from_markdown(&j->html, buf_str(&j->text), false);
    while (j->html.n > 0 && j->html.p[j->html.n - 1] == '\n')
        j->html.n--;
    buf_add_z(&plain, "<p>");
    html_escape(&plain, str_trim(buf_str(&j->text)));
    buf_add_z(&plain, "</p>");
    if (str_eq(buf_str(&plain), buf_str(&j->html)) || j->html.n > MAX_FORMATTED)
        buf_reset(&j->html);
}

static void on_html(struct work *w)
{
    struct html_job *j = container_of(w, struct html_job, work);
    struct mx_outgoing *x = j->of;

    if (x != NULL)
        x->job = NULL;
    if (x != NULL && !w->dropped) {
        buf_done(&x->html);
        x->html = j->html;
        j->html = BUF_INIT;
        x->html_at = x->out.at + 1;
        sender_resume(x->m->base.sender, NULL);
    }
    buf_done(&j->text);
    buf_done(&j->html);
    free(j);
}

/* True: the HTML of the current part is known.  False: it is being made. */
static bool html_ready(struct mx_outgoing *x)
{
    struct str text = text_of(x);

    if (x->html_at == x->out.at + 1)
        return true;
    if (x->job != NULL)
        return false;
    buf_reset(&x->html);
    if (!x->plain && mx_has_markup(text)) {
        struct html_job *j = xcalloc(1, sizeof *j);
        buf_add_str(&j->text, text);
        j->of = x;
        j->work = (struct work){.run = run_html, .done = on_html};
        if (work_start(x->m->thread, &j->work) == BH_OK) {
            x->job = j;
            return false;
        }
        buf_done(&j->text); /* then without */
        free(j);
    }
    x->html_at = x->out.at + 1;
    return true;
}

/* ---- the request ---- */

void mx_room_path(struct buf *out, struct str room, const char *rest)
{
    buf_add_z(out, MX_CLIENT "/rooms/");
    percent_encode(out, room);
    buf_add_z(out, rest);
}

static void write_address(struct mx_outgoing *x, struct sender_request *q, const char *method,
                          struct str path)
{
    struct matrix *m = x->m;

    buf_printf(&q->url, "%s%.*s", m->base.api_base, STR_FMT(path));
    if (mx_is_service(m) && x->user != NULL && strcmp(x->user, m->base.bot) != 0) {
        buf_add_z(&q->url, str_find(path, '?') >= 0 ? "&user_id=" : "?user_id=");
        percent_encode(&q->url, str_of(x->user));
    }
    q->method = method;
    q->headers[0] = m->auth;
    q->headers[1] = "Content-Type: application/json";
    q->no_body = strcmp(method, "GET") == 0;
}

static void write_txn(struct buf *path, const struct mx_outgoing *x)
{
    if (x->number != 0)
        buf_printf(path, "bellhop-n%016" PRIx64, x->number);
    else
        buf_printf(path, "bellhop-%016" PRIx64 "-%zu", sender_key(&x->out), x->out.at);
}

/* @prefix not empty: of an edit, for apps that know no edits.  That part mentions only whom the
 * message has not mentioned before: people would be notified of every edit. */
static void write_words(struct jw *w, const struct mx_outgoing *x, const char *prefix)
{
    const struct mx_said *before =
        prefix[0] != '\0' ? lru_find(&x->m->said, str_of(x->message)) : NULL;
    struct str text = text_of(x);
    BUF_LOCAL body = BUF_INIT;

    buf_add_z(&body, prefix);
    mx_clean(&body, text);
    jw_kstr(w, "body", buf_str(&body));
    if (x->html.n > 0 && prefix[0] == '\0') {
        jw_kstr(w, "format", STR("org.matrix.custom.html"));
        jw_kstr(w, "formatted_body", buf_str(&x->html));
    }
    mx_write_mentions(w, text, before != NULL ? str_of(before->named) : STR_NULL);
}

static void write_relation(struct jw *w, const struct mx_outgoing *x)
{
    const char *reply = x->out.at == 0 ? x->reply_to : NULL;

    if (x->thread == NULL && reply == NULL)
        return;
    jw_kobj(w, "m.relates_to");
    if (x->thread != NULL) {
        jw_kstr(w, "rel_type", STR("m.thread"));
        jw_kstr(w, "event_id", str_of(x->thread));
        jw_kbool(w, "is_falling_back", reply == NULL);
        reply = reply != NULL ? reply : x->thread;
    }
    jw_kobj(w, "m.in_reply_to");
    jw_kstr(w, "event_id", str_of(reply));
    jw_end_obj(w);
    jw_end_obj(w);
}

static void write_edit(struct jw *w, const struct mx_outgoing *x)
{
    jw_kstr(w, "msgtype", STR("m.text"));
    write_words(w, x, "* ");
    jw_kobj(w, "m.new_content");
    jw_kstr(w, "msgtype", STR("m.text"));
    write_words(w, x, "");
    jw_end_obj(w);
    jw_kobj(w, "m.relates_to");
    jw_kstr(w, "rel_type", STR("m.replace"));
    jw_kstr(w, "event_id", str_of(x->message));
    jw_end_obj(w);
}

static void write_file(struct jw *w, const struct mx_outgoing *x)
{
    const struct attachment *f = &x->file;
    struct str type = platform_message_type(str_of(f->type), false);
    const char *kind = str_eq(type, STR("photo"))   ? "m.image"
                       : str_eq(type, STR("video")) ? "m.video"
                       : str_eq(type, STR("audio")) ? "m.audio"
                                                    : "m.file";
    BUF_LOCAL name = BUF_INIT;

    attachment_name_add(&name, f);
    jw_kstr(w, "msgtype", str_of(kind));
    jw_kstr(w, "filename", buf_str(&name));
    if (x->parts.n > 0) {
        write_words(w, x, "");
    } else {
        jw_kstr(w, "body", buf_str(&name));
        mx_write_mentions(w, STR(""), STR_NULL);
    }
    jw_kstr(w, "url", str_of(x->mxc));
    jw_kobj(w, "info");
    jw_kstr(w, "mimetype", str_of(f->type));
    jw_ki64(w, "size", (int64_t)f->size);
    jw_end_obj(w);
    if (strcmp(f->kind != NULL ? f->kind : "", "voice") == 0 && strcmp(kind, "m.audio") == 0) {
        jw_kobj(w, "org.matrix.msc3245.voice");
        jw_end_obj(w);
    }
    write_relation(w, x);
}

static void write_content(struct buf *body, const struct mx_outgoing *x)
{
    struct jw w = jw_begin(body);

    jw_obj(&w);
    if (x->op == ACTION_REACT) {
        jw_kobj(&w, "m.relates_to");
        jw_kstr(&w, "rel_type", STR("m.annotation"));
        jw_kstr(&w, "event_id", str_of(x->message));
        jw_kstr(&w, "key", str_of(x->word));
        jw_end_obj(&w);
    } else if (x->op == ACTION_EDIT) {
        write_edit(&w, x);
    } else if (at_file(x)) {
        write_file(&w, x);
    } else {
        jw_kstr(&w, "msgtype", STR("m.text"));
        write_words(&w, x, "");
        write_relation(&w, x);
    }
    jw_end_obj(&w);
}

static void write_upload(struct mx_outgoing *x, struct sender_request *q)
{
    BUF_LOCAL path = BUF_INIT, name = BUF_INIT;

    attachment_name_add(&name, &x->file);
    buf_add_z(&path, "/_matrix/media/v3/upload?filename=");
    percent_encode(&path, buf_str(&name));
    write_address(x, q, "POST", buf_str(&path));
    snprintf(q->type, sizeof q->type, "Content-Type: %.70s", x->file.type);
    q->headers[1] = q->type;
    q->file_path = x->file.path;
    q->file_bytes = x->file.size;
    q->timeout_ms = UPLOAD_MS;
}

static void write_typing(struct mx_outgoing *x, struct buf *path, struct buf *body)
{
    mx_room_path(path, str_of(x->room), "/typing/");
    percent_encode(path, str_of(x->user));
    if (x->word != NULL)
        buf_printf(body, "{\"typing\":true,\"timeout\":%d}", TYPING_MS);
    else
        buf_add_z(body, "{\"typing\":false}");
}

static void write_event(struct mx_outgoing *x, struct buf *path, struct buf *body)
{
    mx_room_path(path, str_of(x->room),
                 x->op == ACTION_REACT ? "/send/m.reaction/" : "/send/m.room.message/");
    write_txn(path, x);
    write_content(body, x);
    if (body->n > MAX_EVENT && x->html.n > 0) {
        buf_reset(&x->html);
        buf_reset(body);
        write_content(body, x);
    }
}

static void mx_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                     struct sender_verdict *v)
{
    struct mx_outgoing *x = mx_outgoing_of(o);
    const struct mx_room *r = mx_room_find(x->m, str_of(x->room));
    BUF_LOCAL path = BUF_INIT;

    v->end = SENDER_GO;
    if (x->op == ACTION_UNKNOWN) {
        write_address(x, q, x->method, buf_str(&x->path));
        buf_add_str(&q->body, buf_str(&x->body));
        q->max_body = MX_MAX_ANSWER; /* the members of a large room */
        return;
    }
    if (r != NULL && r->encrypted) {
        sender_say(v, SENDER_REFUSED,
                   "this room is encrypted, and bellhop holds no keys: use a room without "
                   "encryption");
        return;
    }
    if (r != NULL && r->invited != NULL && !r->joined && r->users == NULL) {
        v->wait_ms = 500;
        sender_say(v, SENDER_AGAIN, "the bot is invited to this room and has not joined yet");
        return;
    }
    if (x->op == ACTION_TYPING) {
        write_typing(x, &path, &q->body);
        write_address(x, q, "PUT", buf_str(&path));
        return;
    }
    if (x->op == ACTION_GET_CHAT_INFO) {
        mx_room_path(&path, str_of(x->room), "/state/m.room.name/");
        write_address(x, q, "GET", buf_str(&path));
        return;
    }
    if (at_file(x) && x->mxc == NULL) {
        write_upload(x, q);
        return;
    }
    if (x->op == ACTION_REACT && x->word == NULL) { /* which reaction is ours? */
        if (x->found != NULL) {
            mx_room_path(&path, str_of(x->room), "/redact/");
            percent_encode(&path, str_of(x->found));
            buf_add_c(&path, '/');
            write_txn(&path, x);
            buf_add_z(&q->body, "{}");
            write_address(x, q, "PUT", buf_str(&path));
        } else {
            buf_add_z(&path, "/_matrix/client/v1/rooms/");
            percent_encode(&path, str_of(x->room));
            buf_add_z(&path, "/relations/");
            percent_encode(&path, str_of(x->message));
            buf_add_z(&path, "/m.annotation/m.reaction?limit=100");
            write_address(x, q, "GET", buf_str(&path));
        }
        return;
    }
    if (!html_ready(x)) {
        v->end = SENDER_HOLD;
        return;
    }
    refill(x->m);
    x->m->budget.missing += 1000;
    write_event(x, &path, &q->body);
    write_address(x, q, "PUT", buf_str(&path));
}

/* ---- the answer ---- */

void mx_answer_read(struct json_parser *parser, const struct http_result *r, struct mx_answer *ret)
{
    *ret = (struct mx_answer){.status = r->err == BH_OK ? r->status : 0,
                              .retry_after_ms = r->retry_after_ms};
    if (r->err != BH_OK) {
        snprintf(ret->why, sizeof ret->why, "%.180s", r->why != NULL ? r->why : "no answer");
        return;
    }
    if (!json_parse(parser, r->body, &ret->doc) || !json_is_object(ret->doc))
        ret->doc = (struct json){0};
    ret->errcode = json_str(ret->doc, "errcode");
    if (ret->retry_after_ms < 0)
        ret->retry_after_ms = json_i64(ret->doc, "retry_after_ms", -1);
    struct str error = json_str(ret->doc, "error");
    if (r->status < 300 && json_is_object(ret->doc))
        return;
    if (r->status < 300)
        ret->status = 0; /* something else answered in the homeserver's place */
    BUF_LOCAL plain = BUF_INIT;
    buf_add_plain(&plain, utf8_head(error, 120));
    snprintf(ret->why, sizeof ret->why, "%.*s%s%s (HTTP %d)",
             ret->errcode.n < 40 ? (int)ret->errcode.n : 40,
             ret->errcode.p != NULL ? ret->errcode.p : "", plain.n > 0 ? ": " : "", buf_z(&plain),
             r->status);
}

/* Of the words of the homeserver only its code is repeated. */
static void on_refusal(struct mx_outgoing *x, const struct mx_answer *a, struct sender_verdict *v)
{
    static const struct {
        const char *code, *sentence;
    } known[] = {
        {"M_FORBIDDEN", "the bot is not in this room, or may not write there: invite it again, or "
                        "raise its power level"},
        {"M_NOT_FOUND", "there is no such room or message"},
        {"M_TOO_LARGE", "the message or file is larger than the homeserver takes"},
        {"M_USER_DEACTIVATED", "the bot's user was deactivated"},
        {"M_USER_LOCKED", "the bot's user was locked"},
        {"M_DUPLICATE_ANNOTATION", "the bot has reacted so already"},
    };

    if (str_eq(a->errcode, STR("M_TOO_LARGE")) && x->html.n > 0 && !x->plain) {
        x->plain = true;
        x->m->n.plain++;
        buf_reset(&x->html);
        sender_say(v, SENDER_REWRITE, "the homeserver refused the event as too large");
        return;
    }
    if (x->op == ACTION_REACT && (str_eq(a->errcode, STR("M_DUPLICATE_ANNOTATION")) ||
                                  (x->found != NULL && a->status == 404))) {
        v->end = SENDER_DONE; /* it is as it should be */
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_eq(a->errcode, str_of(known[i].code))) {
            sender_say(v, SENDER_REFUSED, "the homeserver refused: %s (%s)", known[i].sentence,
                       known[i].code);
            if (posts(x) && a->status == 403)
                sender_blame(&x->out);
            return;
        }
    sender_say(v, SENDER_REFUSED, "the homeserver refused: %.180s", a->why);
}

static void stop_typing(struct mx_outgoing *x)
{
    struct mx_room *r = mx_room_find(x->m, str_of(x->room));
    BUF_LOCAL path = BUF_INIT;

    if (r == NULL || r->typed_ms == 0)
        return;
    r->typed_ms = 0;
    mx_room_path(&path, str_of(x->room), "/typing/");
    percent_encode(&path, str_of(x->user));
    mx_ask(x->m, "PUT", buf_str(&path), STR("{\"typing\":false}"), str_of(x->user),
           &(struct sender_question){.patience_ms = 5000});
}

/* The users that @text mentions have been notified of message @id. */
static void note_mentions(struct matrix *m, struct str id, struct str text)
{
    struct mx_said *s = mx_said_by(m, id, true);
    struct str users[MX_MENTIONS];
    size_t n = mx_mentions(text, users);
    BUF_LOCAL all = BUF_INIT;

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        buf_printf(&all, "%.*s\x1f", STR_FMT(users[i]));
    if (s->named != NULL && strlen(s->named) < MAX_NAMED)
        buf_add_z(&all, s->named);
    free(s->named);
    s->named = buf_take(&all);
}

static void on_sent(struct mx_outgoing *x, struct str id, struct sender_verdict *v)
{
    if (!mx_is_event(id)) {
        sender_say(v, SENDER_UNKNOWN, "something else answered in the homeserver's place");
        return;
    }
    mx_said_by(x->m, id, true);
    if (x->op == ACTION_EDIT)
        id = str_of(x->message); /* further edits name the first event */
    if (x->op != ACTION_REACT)
        note_mentions(x->m, id, text_of(x));
    if (id.n < sizeof v->message_id && x->op != ACTION_REACT)
        snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(id));
    if (x->op != ACTION_REACT && x->out.at + 1 == x->out.n_parts)
        stop_typing(x);
}

/* Finds the bot's own reaction. */
static void on_relations(struct mx_outgoing *x, struct json doc, struct sender_verdict *v)
{
    for (struct json_iter it = {0}; json_next(json_get(doc, "chunk"), &it);) {
        struct json rel = json_get(json_get(it.value, "content"), "m.relates_to");
        struct str id = json_str(it.value, "event_id");
        if (str_eq(json_str(it.value, "sender"), str_of(x->user)) &&
            str_eq(json_str(rel, "key"), buf_str(&x->body)) && mx_is_event(id)) {
            x->found = str_dup(id);
            v->end = SENDER_REWRITE;
            return;
        }
    }
}

static void on_ok(struct mx_outgoing *x, const struct mx_answer *a, struct sender_verdict *v)
{
    v->end = SENDER_DONE;
    v->answer = a->doc;
    if (at_file(x) && x->mxc == NULL) {
        struct str uri = json_str(a->doc, "content_uri"), server, id;
        if (mx_media_split(uri, &server, &id)) {
            x->mxc = str_dup(uri);
            v->end = SENDER_REWRITE;
        } else {
            sender_say(v, SENDER_FAILED, "the homeserver did not say where it keeps the file");
        }
    } else if (x->op == ACTION_REACT && x->word == NULL) {
        if (x->found == NULL)
            on_relations(x, a->doc, v);
    } else if (x->op == ACTION_GET_CHAT_INFO) {
        v->chat_name = json_str(a->doc, "name");
        v->chat_type = STR("group");
        if (v->chat_name.n == 0)
            v->chat_name = str_of(x->room);
    } else if (posts(x)) {
        on_sent(x, json_str(a->doc, "event_id"), v);
    }
}

static void mx_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                    struct sender_verdict *v)
{
    struct mx_outgoing *x = mx_outgoing_of(o);
    struct matrix *m = x->m;
    struct mx_answer a;

    mx_answer_read(p->answers, res, &a);
    if (a.status >= 200 && a.status < 300) {
        on_ok(x, &a, v);
    } else if (a.status == 429) {
        int64_t ms = a.retry_after_ms > 0 ? a.retry_after_ms : 1000;
        m->n.limited++;
        m->budget.missing = BURST * 1000;
        pace_hit(sender_budget(p->sender), str_of(x->room), ms);
        v->wait_ms = ms < MAX_WAIT_MS ? ms : MAX_WAIT_MS;
        sender_say(v, SENDER_AGAIN, "the homeserver asks to wait %" PRId64 " s", (ms + 999) / 1000);
    } else if (a.status == 401) {
        platform_set_problem(p, "The homeserver does not accept the token any more: get a new one "
                                "and put it into the configuration.");
        v->wait_ms = 30000;
        sender_say(v, SENDER_AGAIN, "the homeserver does not accept the bot's token");
    } else if (a.status == 0 || a.status >= 500) { /* the same transaction again */
        sender_say(v, SENDER_AGAIN, "the homeserver is in trouble: %.150s", a.why);
    } else if (x->op == ACTION_GET_CHAT_INFO && a.status == 404) {
        v->end = SENDER_DONE;
        v->chat_name = str_of(x->room);
        v->chat_type = STR("group");
    } else if (x->op == ACTION_UNKNOWN) {
        sender_say(v, SENDER_REFUSED, "%.180s", a.why);
    } else {
        on_refusal(x, &a, v);
    }
    if (x->op == ACTION_TYPING && v->end == SENDER_AGAIN)
        v->end = SENDER_FAILED; /* useless when late */
}

/* What Synapse allows by default: 12 messages a minute, 10 at once.  mx_wait() counts; here is the
 * pace of unfinished texts. */
static const struct stream_ops streaming = {
    .pace = {.per_second = 2, .burst = 4, .gap_ms = 2500, .chat_burst = 4},
    .message = {.max = MX_MAX_CHARS, .unit = SPLIT_CHARS, .max_bytes = MX_MAX_BYTES},
};

const struct sender_ops mx_sender = {
    .write = mx_write,
    .read = mx_read,
    .free = outgoing_free,
    .wait = mx_wait,
    .stream = &streaming,
    .key_ms = KEY_MS,
};

/* ---- actions ---- */

static struct mx_outgoing *outgoing_new(struct matrix *m, enum action_op op, struct str room)
{
    struct mx_outgoing *x = xcalloc(1, sizeof *x + room.n + 1);

    x->m = m;
    x->op = op;
    x->out.n_parts = 1;
    memcpy(x->room, room.p != NULL ? room.p : "", room.n);
    return x;
}

void mx_ask(struct matrix *m, const char *method, struct str path, struct str body, struct str user,
            const struct sender_question *q)
{
    struct mx_outgoing *x = outgoing_new(m, ACTION_UNKNOWN, STR(""));

    x->method = method;
    x->user = str_dup_opt(user);
    buf_add_str(&x->path, path);
    buf_add_str(&x->body, body);
    struct sender_question own = *q;
    own.lane = path; /* no message waits behind it */
    sender_ask(m->base.sender, &x->out, &own);
}

static char *event_or_null(struct str id)
{
    return mx_is_event(id) ? str_dup(id) : NULL;
}

static const char *read_text(struct mx_outgoing *x, const struct action *a)
{
    if (a->content.n > (size_t)SENDER_MAX_PARTS * MX_MAX_BYTES)
        return "the message is longer than 16 Matrix messages";
    split_within(&x->parts, a->content, &streaming.message);
    if (x->parts.n == 0 && a->op != ACTION_SEND_MEDIA)
        return "the message is empty";
    x->out.n_parts = x->parts.n > 0 ? x->parts.n : 1;
    if (x->parts.n > 1 && a->op == ACTION_EDIT)
        return "the text is longer than one Matrix message holds (8000 characters)";
    return x->parts.n > SENDER_MAX_PARTS ? "the message is longer than 16 Matrix messages" : NULL;
}

static const char *read_action(struct mx_outgoing *x, const struct action *a)
{
    bool says = a->op == ACTION_SEND || a->op == ACTION_PROMPT || a->op == ACTION_SEND_MEDIA;

    if (a->op == ACTION_EDIT || a->op == ACTION_REACT) {
        x->message = event_or_null(a->message_id);
        if (x->message == NULL)
            return "message_id is not the id of a Matrix event ($...)";
    }
    if (says) {
        x->reply_to = event_or_null(a->reply_to);
        x->thread = event_or_null(a->thread_id);
        if (a->thread_id.n > 0 && x->thread == NULL)
            return "metadata.thread_id is not the id of a Matrix event ($...)";
    }
    if (a->op == ACTION_SEND_MEDIA)
        attachment_copy(&x->file, a);
    if (a->op == ACTION_REACT) {
        if (a->emoji.n == 0 || a->emoji.n > 100)
            return "an emoji is missing, or too long";
        if (a->remove)
            buf_add_str(&x->body, a->emoji);
        else
            x->word = str_dup(a->emoji);
        x->number = host_number(x->m->base.host);
    }
    if (a->op == ACTION_TYPING && !(a->content_set && a->content.n == 0))
        x->word = xstrdup("on");
    return says || a->op == ACTION_EDIT ? read_text(x, a) : NULL;
}

static void start(struct matrix *m, struct sender_order *q)
{
    const struct action *a = q->action;
    struct mx_outgoing *x = outgoing_new(m, a->op, a->chat_id);
    BUF_LOCAL user = BUF_INIT;

    mx_room_actor(m, mx_room_find(m, a->chat_id), q->from, &user);
    x->user = str_dup(buf_str(&user));
    q->wrong = read_action(x, a);
    q->twice = TWICE_IS_KEYED;
    q->apart = a->op == ACTION_TYPING || a->op == ACTION_REACT || a->op == ACTION_GET_CHAT_INFO ||
               a->op == ACTION_EDIT;
    sender_act(m->base.sender, &x->out, q);
}

/* True: nothing has to be sent. */
static bool typing_is_shown(struct matrix *m, const struct action *a)
{
    struct mx_room *r = mx_room_find(m, a->chat_id);
    int64_t now_ms = clock_now_ms(m->base.env->clock);
    bool off = a->content_set && a->content.n == 0;

    if (r == NULL)
        return off;
    if (off ? r->typed_ms == 0 : r->typed_ms != 0 && now_ms < r->typed_ms + TYPING_FRESH_MS)
        return true;
    r->typed_ms = off ? 0 : now_ms;
    return false;
}

void mx_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a)
{
    struct matrix *m = matrix_of(p);
    struct sender_order q = {.id = id, .from = from, .action = a};
    const struct mx_room *r = mx_room_find(m, a->chat_id);
    struct action numbered = *a;
    BUF_LOCAL room = BUF_INIT;

    if (!mx_is_room(a->chat_id)) {
        host_fail(p->host, id, "\"%.*s\" is not the id of a Matrix room (!...)",
                  (int)(a->chat_id.n < 64 ? a->chat_id.n : 64),
                  a->chat_id.p != NULL ? a->chat_id.p : "");
    } else if ((p->ops->descriptor->ops & 1u << a->op) == 0) {
        host_fail(p->host, id, "unsupported op: %s", action_op_name(a->op));
    } else if (a->op == ACTION_TYPING && typing_is_shown(m, a)) {
        host_result(p->host, id, &(struct action_result){.success = true});
    } else if (a->op == ACTION_GET_CHAT_INFO && r != NULL && r->known) {
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name =
                                                r->name != NULL ? str_of(r->name) : a->chat_id,
                                            .chat_type =
                                                r->members <= 2 ? STR("dm") : STR("group")});
    } else if (a->op == ACTION_PROMPT) {
        if (prompts_add_numbered(p, id, from, &numbered, &room)) {
            q.action = &numbered;
            start(m, &q);
        }
    } else {
        start(m, &q);
    }
}

void mx_send_receipt(struct matrix *m, struct str room, struct str event, struct str user)
{
    BUF_LOCAL path = BUF_INIT;

    mx_room_path(&path, room, "/receipt/m.read/");
    percent_encode(&path, event);
    mx_ask(m, "POST", buf_str(&path), STR("{}"), user,
           &(struct sender_question){.patience_ms = 5000});
}
