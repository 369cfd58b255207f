/* outbound.c - turns the actions of gateways into requests to Slack, and reads the answers.
 * (slack_priv.h has the calls; platform/sender.h describes lanes and retries.)
 *
 *      slack_act --> struct slack_outgoing --> the sender --> slack_write --> Slack --> slack_read
 *
 * Slack takes no idempotency key.  Every message carries a number in its metadata; if the answer is
 * lost, the history of the channel tells whether the message arrived.  All other requests are
 * idempotent.
 *
 * A file takes three requests: an address is asked for, the bytes go there, and the file is shared
 * in the channel.  A short plain caption goes with it, any other as a message of its own.
 *
 * A text is a Markdown block; Slack refuses some (too many headings, tables): then it goes out as
 * plain text.  Nobody is pinged by what an agent writes: slack_neutralize().  A message is threaded
 * by metadata.thread_id or thread_ts, never by reply_to. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/slack/slack_priv.h"

enum {
    STATUS_FRESH_MS = 60000, /* Slack shows a status for two minutes */
    STATUS_CHARS = 100,
    LOOK_BACK_S = 300, /* the clocks may differ */
    LOOK_LIMIT = 100,
    UPLOAD_MS = 120000,
    CAPTION_BYTES = 2000,
    SECTION_BYTES = 2900, /* a section takes 3,000 characters, and a message 50 blocks */
};

#define METADATA "bellhop_message"

static struct slack_outgoing *slack_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct slack_outgoing, out);
}

static void outgoing_free(struct outgoing *o)
{
    struct slack_outgoing *x = slack_outgoing_of(o);

    split_done(&x->parts);
    attachment_done(&x->file);
    free(x->upload_url);
    free(x->word);
    buf_done(&x->buttons);
    buf_done(&x->body);
    free(x);
}

struct slack_team *slack_outgoing_team(const struct slack_outgoing *x)
{
    const struct slack_chat *c = lru_find(&x->s->chats, str_of(x->chat));

    if (x->team != NULL)
        return x->team;
    return slack_team_find(x->s,
                           c != NULL && c->team[0] != '\0' ? str_of(c->team) : str_of(x->scope));
}

static bool posts(const struct slack_outgoing *x)
{
    return x->op == ACTION_SEND || x->op == ACTION_PROMPT || x->op == ACTION_SEND_MEDIA;
}

/* Is the part that is sent next the file itself? */
static bool at_file(const struct slack_outgoing *x)
{
    return x->op == ACTION_SEND_MEDIA && x->out.at == 0;
}

/* Is the request that is sent next one of streams.c? */
static bool streams(const struct slack_outgoing *x)
{
    return x->op != ACTION_UNKNOWN &&
           (x->method == SLACK_START || x->method == SLACK_APPEND || x->method == SLACK_STOP);
}

/* The text of the part that is sent next. */
static struct str text_of(const struct slack_outgoing *x)
{
    size_t at = x->out.at - (x->op == ACTION_SEND_MEDIA && !x->captioned && x->out.at > 0);

    return at < x->parts.n ? split_part(&x->parts, at) : STR("");
}

/* ---- the request ---- */

static void write_key(char ret[40], const struct slack_outgoing *x)
{
    snprintf(ret, 40, "%016" PRIx64 "-%zu", sender_key(&x->out), x->out.at);
}

/* A message with buttons shows its blocks alone, so its plain text stands in sections. */
static void write_sections(struct jw *w, struct str text)
{
    for (struct str head; (head = utf8_head(text, SECTION_BYTES)).n > 0;
         text = str_skip(text, head.n)) {
        jw_obj(w);
        jw_kstr(w, "type", STR("section"));
        jw_kobj(w, "text");
        jw_kstr(w, "type", STR("plain_text"));
        jw_kstr(w, "text", head);
        jw_end_obj(w);
        jw_end_obj(w);
    }
}

static void write_text(struct jw *w, struct slack_outgoing *x, bool plain)
{
    struct str text = text_of(x);
    bool last = x->out.at + 1 == x->out.n_parts;
    BUF_LOCAL escaped = BUF_INIT;

    slack_escape(&escaped, text, SLACK_MAX_TEXT);
    jw_kstr(w, "text", buf_str(&escaped));
    jw_karr(w, "blocks"); /* empty: the plain text is shown */
    if (!plain) {
        jw_obj(w);
        jw_kstr(w, "type", STR("markdown"));
        jw_kstr(w, "text", text);
        jw_end_obj(w);
    } else if (x->buttons.n > 0 && last) {
        write_sections(w, text);
    }
    if (x->buttons.n > 0 && last)
        jw_raw(w, buf_str(&x->buttons));
    jw_end_arr(w);
    jw_kstr(w, "parse", STR("none"));
}

static void write_body(struct buf *body, struct slack_outgoing *x, bool plain)
{
    struct jw w = jw_begin(body);
    char key[40];

    jw_obj(&w);
    jw_kstr(&w, x->op == ACTION_TYPING ? "channel_id" : "channel", str_of(x->chat));
    switch (x->op) {
    case ACTION_EDIT:
        jw_kstr(&w, "ts", str_of(x->message));
        write_text(&w, x, plain);
        break;
    case ACTION_TYPING:
        jw_kstr(&w, "thread_ts", str_of(x->thread));
        jw_kstr(&w, "status", str_of(x->word));
        break;
    case ACTION_REACT:
        jw_kstr(&w, "timestamp", str_of(x->message));
        jw_kstr(&w, "name", str_of(x->word));
        break;
    case ACTION_DRAFT: /* a seal that edits */
        jw_kstr(&w, "ts", str_of(x->message));
        write_text(&w, x, plain);
        break;
    default:
        if (x->thread[0] != '\0')
            jw_kstr(&w, "thread_ts", str_of(x->thread));
        write_text(&w, x, plain);
        write_key(key, x);
        jw_kobj(&w, "metadata");
        jw_kstr(&w, "event_type", STR(METADATA));
        jw_kobj(&w, "event_payload");
        jw_kstr(&w, "key", str_of(key));
        jw_end_obj(&w);
        jw_end_obj(&w);
        break;
    }
    jw_end_obj(&w);
}

static void write_address(struct slack_team *t, enum slack_method m, bool json,
                          struct sender_request *q)
{
    buf_printf(&q->url, "%s/%s", t->s->base.api_base, slack_method_name(m));
    q->headers[0] = t->auth;
    q->headers[1] = json ? "Content-Type: application/json; charset=utf-8"
                         : "Content-Type: application/x-www-form-urlencoded";
}

static bool takes_json(enum slack_method m)
{
    return m == SLACK_POST || m == SLACK_UPDATE || m == SLACK_EPHEMERAL || m == SLACK_REACT ||
           m == SLACK_UNREACT || m == SLACK_STATUS || m == SLACK_START || m == SLACK_APPEND ||
           m == SLACK_STOP;
}

/* An edit must repeat the buttons of an open question. */
static void keep_buttons(struct slack_outgoing *x)
{
    const struct prompt *q =
        prompts_of_message(x->s->base.prompts, str_of(x->chat), str_of(x->message));
    struct jw w = jw_begin(&x->buttons);

    buf_reset(&x->buttons);
    if (q != NULL)
        slack_write_buttons(&w, q);
}

static void write_file(struct slack_team *t, struct slack_outgoing *x, struct sender_request *q)
{
    struct jw w = jw_begin(&q->body);
    BUF_LOCAL name = BUF_INIT, caption = BUF_INIT;
    char size[24];

    attachment_name_add(&name, &x->file);
    if (x->method == SLACK_UPLOAD) { /* the address is the credential: no token goes there */
        buf_add_z(&q->url, x->upload_url);
        q->headers[0] = "Content-Type: application/octet-stream";
        q->file_path = x->file.path;
        q->file_bytes = x->file.size;
        q->timeout_ms = UPLOAD_MS;
        return;
    }
    write_address(t, x->method, x->method == SLACK_COMPLETE, q);
    if (x->method == SLACK_UPLOAD_URL) {
        snprintf(size, sizeof size, "%" PRIu64, x->file.size);
        form_add(&q->body, "filename", buf_str(&name));
        form_add(&q->body, "length", str_of(size));
        return;
    }
    jw_obj(&w);
    jw_karr(&w, "files");
    jw_obj(&w);
    jw_kstr(&w, "id", str_of(x->file_id));
    jw_kstr(&w, "title", buf_str(&name));
    jw_end_obj(&w);
    jw_end_arr(&w);
    jw_kstr(&w, "channel_id", str_of(x->chat));
    if (x->thread[0] != '\0')
        jw_kstr(&w, "thread_ts", str_of(x->thread));
    if (x->captioned) {
        slack_escape(&caption, split_part(&x->parts, 0), SLACK_MAX_TEXT);
        jw_kstr(&w, "initial_comment", buf_str(&caption));
    }
    jw_end_obj(&w);
    q->once = true;
}

static void slack_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                        struct sender_verdict *v)
{
    struct slack_outgoing *x = slack_outgoing_of(o);
    struct slack_team *t = slack_outgoing_team(x);
    bool shows = posts(x) || x->method == SLACK_START;
    struct slack_chat *c = shows ? slack_chat_get(x->s, str_of(x->chat), STR_NULL) : NULL;

    if (t == NULL) {
        sender_say(v, SENDER_REFUSED, "the app is not installed in the workspace of this channel");
        return;
    }
    if (x->op == ACTION_SEND_MEDIA && !at_file(x))
        x->method = SLACK_POST; /* what is left of the caption */
    if (at_file(x)) {
        write_file(t, x, q);
        slack_called(t, x->method);
        if (c != NULL && x->method == SLACK_COMPLETE)
            c->next_post_ms = clock_now_ms(x->s->base.env->clock) + SLACK_POST_MS;
        v->end = SENDER_GO;
        return;
    }
    if (streams(x)) {
        if (!slack_stream_write(x, t, &q->body)) {
            v->end = SENDER_DONE;
            return;
        }
        write_address(t, x->method, true, q);
        q->once = x->method == SLACK_START || x->method == SLACK_APPEND;
        slack_called(t, x->method);
        if (c != NULL)
            c->next_post_ms = clock_now_ms(x->s->base.env->clock) + SLACK_POST_MS;
        v->end = SENDER_GO;
        return;
    }
    write_address(t, x->method, takes_json(x->method), q);
    if (x->op == ACTION_EDIT)
        keep_buttons(x);
    if (x->op == ACTION_GET_CHAT_INFO)
        form_add(&q->body, "channel", str_of(x->chat));
    else if (x->op == ACTION_UNKNOWN)
        buf_add_str(&q->body, buf_str(&x->body));
    else
        write_body(&q->body, x, x->plain_at == o->at + 1);
    q->once = posts(x) || x->method == SLACK_EPHEMERAL;
    slack_called(t, x->method);
    if (c != NULL)
        c->next_post_ms = clock_now_ms(x->s->base.env->clock) + SLACK_POST_MS;
    v->end = SENDER_GO;
}

static int64_t slack_wait(struct platform *p, struct outgoing *o)
{
    struct slack_outgoing *x = slack_outgoing_of(o);
    struct slack_team *t = slack_outgoing_team(x);

    return t != NULL ? slack_wait_ms(t, x->method, lru_find(&x->s->chats, str_of(x->chat))) : 0;
}

/* ---- the answer ---- */

static bool refuses_blocks(struct str error)
{
    return str_eq(error, STR("invalid_blocks")) || str_eq(error, STR("invalid_blocks_format")) ||
           str_eq(error, STR("msg_blocks_too_long")) || str_eq(error, STR("msg_too_long"));
}

static void on_refusal(struct slack_outgoing *x, struct sender_verdict *v)
{
    struct str error = slack_error(v);

    if ((x->op == ACTION_REACT &&
         (str_eq(error, STR("already_reacted")) || str_eq(error, STR("no_reaction"))))) {
        v->end = SENDER_DONE;
    } else if (x->op == ACTION_TYPING) {
        v->end = SENDER_FAILED;
    } else if (x->op == ACTION_EDIT && str_eq(error, STR("streaming_state_conflict"))) {
        x->method = SLACK_STOP; /* an earlier process let it grow */
        v->end = SENDER_REWRITE;
    } else if ((posts(x) || x->method == SLACK_UPDATE) && x->plain_at != x->out.at + 1 &&
               refuses_blocks(error)) {
        x->s->n.plain++;
        x->plain_at = x->out.at + 1;
        v->end = SENDER_REWRITE;
    } else if (at_file(x) && x->file_id[0] != '\0' && str_eq(error, STR("file_not_found"))) {
        x->file_id[0] = '\0'; /* the upload did not arrive whole: from the start */
        x->method = SLACK_UPLOAD_URL;
        v->end = SENDER_REWRITE;
    } else if (x->team == NULL) {
        sender_blame(&x->out);
    }
}

static void on_info(struct slack_outgoing *x, struct json channel, struct sender_verdict *v)
{
    bool im = json_as_bool(json_get(channel, "is_im"), false);

    v->chat_name = json_str(channel, im ? "user" : "name");
    v->chat_type = im ? STR("dm") : STR("group");
    if (v->chat_name.n == 0)
        v->chat_name = str_of(x->chat);
}

static void on_ok(struct slack_outgoing *x, struct sender_verdict *v)
{
    struct slack_chat *c = lru_find(&x->s->chats, str_of(x->chat));
    struct str ts = json_str(v->answer, "ts");

    if (x->op == ACTION_GET_CHAT_INFO) {
        on_info(x, json_get(v->answer, "channel"), v);
    } else if (x->method == SLACK_UPDATE && x->op != ACTION_UNKNOWN) {
        x->s->n.edits++;
        snprintf(v->message_id, sizeof v->message_id, "%s", x->message);
    } else if (posts(x)) {
        if (x->thread[0] != '\0')
            slack_thread_joined(x->s, str_of(x->chat), str_of(x->thread));
        if (c != NULL) {
            c->next_post_ms = clock_now_ms(x->s->base.env->clock) + SLACK_POST_MS;
            c->status_ts[0] = '\0'; /* a message ends the status */
        }
        if (slack_is_ts(ts))
            snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(ts));
        else
            sender_say(v, SENDER_UNKNOWN, "something else answered in Slack's place");
    }
}

/* Each answer on the way of a file leads to the next request. */
static void on_file(struct slack_outgoing *x, struct sender_verdict *v)
{
    struct str url = json_str(v->answer, "upload_url"), id = json_str(v->answer, "file_id");
    struct slack_chat *c = lru_find(&x->s->chats, str_of(x->chat));

    if (x->method == SLACK_COMPLETE) {
        if (c != NULL)
            c->next_post_ms = clock_now_ms(x->s->base.env->clock) + SLACK_POST_MS;
        return;
    }
    v->end = SENDER_FAILED;
    snprintf(v->why, sizeof v->why, "Slack did not say where to upload the file");
    if (!slack_is_own_url(url, str_of(x->s->cfg->base.api_base)) || !slack_is_id(id))
        return;
    free(x->upload_url);
    x->upload_url = str_dup(url);
    snprintf(x->file_id, sizeof x->file_id, "%.*s", STR_FMT(id));
    x->method = SLACK_UPLOAD;
    v->end = SENDER_REWRITE;
}

static void on_uploaded(struct slack_outgoing *x, const struct http_result *r,
                        struct sender_verdict *v)
{
    if (r->status == 200) {
        x->method = SLACK_COMPLETE;
        v->end = SENDER_REWRITE;
    } else if (r->status >= 500 || r->status == 429) {
        sender_say(v, SENDER_AGAIN, "Slack does not take the file now");
    } else {
        sender_say(v, SENDER_REFUSED, "Slack refused the file (HTTP %d)", r->status);
    }
}

static void slack_read(struct platform *p, struct outgoing *o, const struct http_result *r,
                       struct sender_verdict *v)
{
    struct slack_outgoing *x = slack_outgoing_of(o);
    struct slack_team *t = slack_outgoing_team(x);

    if (at_file(x) && x->method == SLACK_UPLOAD) {
        on_uploaded(x, r, v);
        return;
    }
    if (t != NULL)
        slack_answer_read(t, x->method, r, v);
    bool done = v->end == SENDER_DONE, refused = v->end == SENDER_REFUSED;
    if (done && t != NULL && x->method == SLACK_AUTH_TEST) {
        BUF_LOCAL missing = BUF_INIT;
        struct str granted = http_result_header(r, "x-oauth-scopes");
        if (granted.p != NULL)
            slack_scopes_missing(granted, &missing);
        free(t->missing);
        t->missing = str_dup_opt(buf_str(&missing));
    }
    if (done && streams(x)) {
        struct slack_chat *c = lru_find(&x->s->chats, str_of(x->chat));
        if (c != NULL && x->method == SLACK_START)
            c->status_ts[0] = '\0'; /* a message ends the status */
        slack_stream_done(x, v);
    } else if (refused && streams(x)) {
        slack_stream_refused(x, t, v);
    } else if (done && at_file(x))
        on_file(x, v);
    else if (done)
        on_ok(x, v);
    else if (refused)
        on_refusal(x, v);
    else if (x->op == ACTION_TYPING)
        v->end = SENDER_FAILED; /* a late status is useless */
}

/* ---- looking up a message whose answer was lost ---- */

static void slack_look(struct platform *p, struct outgoing *o, struct sender_request *q,
                       struct sender_verdict *v)
{
    struct slack_outgoing *x = slack_outgoing_of(o);
    struct slack_team *t = slack_outgoing_team(x);
    bool in_thread = x->thread[0] != '\0';
    enum slack_method m = in_thread ? SLACK_REPLIES : SLACK_HISTORY;
    char since[32], limit[8];

    if (t == NULL) {
        sender_say(v, SENDER_UNKNOWN, "it may have been delivered, and the app is not installed");
        return;
    }
    if (at_file(x) && x->method != SLACK_COMPLETE && !x->resumed) {
        sender_say(v, SENDER_REWRITE, "the file was not shared yet");
        return;
    }
    int64_t wait_ms = slack_wait_ms(t, m, NULL);
    if (wait_ms > 0) {
        v->wait_ms = wait_ms;
        sender_say(v, SENDER_AGAIN, "Slack asks to wait");
        return;
    }
    write_address(t, m, false, q);
    snprintf(since, sizeof since, "%" PRId64 ".000000", o->tried_ms / 1000 - LOOK_BACK_S);
    snprintf(limit, sizeof limit, "%d", LOOK_LIMIT);
    form_add(&q->body, "channel", str_of(x->chat));
    if (in_thread)
        form_add(&q->body, "ts", str_of(x->thread));
    form_add(&q->body, "oldest", str_of(since));
    form_add(&q->body, "limit", str_of(limit));
    form_add(&q->body, "include_all_metadata", STR("true"));
    slack_called(t, m);
    v->end = SENDER_GO;
}

static bool has_file(struct json message, struct str id)
{
    for (struct json_iter it = {0}; json_next(json_get(message, "files"), &it);)
        if (id.n > 0 && str_eq(json_str(it.value, "id"), id))
            return true;
    return false;
}

static void slack_looked(struct platform *p, struct outgoing *o, const struct http_result *r,
                         struct sender_verdict *v)
{
    struct slack_outgoing *x = slack_outgoing_of(o);
    struct slack_team *t = slack_outgoing_team(x);
    char key[40];

    if (t != NULL)
        slack_answer_read(t, x->thread[0] != '\0' ? SLACK_REPLIES : SLACK_HISTORY, r, v);
    if (v->end == SENDER_UNKNOWN)
        v->end = SENDER_AGAIN;
    if (v->end != SENDER_DONE)
        return;
    write_key(key, x);
    v->end = SENDER_REFUSED; /* Slack does not show it */
    for (struct json_iter it = {0}; json_next(json_get(v->answer, "messages"), &it);) {
        struct json meta = json_get(it.value, "metadata");
        struct str ts = json_str(it.value, "ts");
        bool ours = at_file(x)
                        ? has_file(it.value, str_of(x->file_id))
                        : str_eq(json_str(meta, "event_type"), STR(METADATA)) &&
                              str_eq(json_str(json_get(meta, "event_payload"), "key"), str_of(key));
        if (!ours || !slack_is_ts(ts))
            continue;
        v->end = SENDER_DONE;
        snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(ts));
    }
}

/* chat.update and chat.appendStream are allowed about once a second; limits of the single methods:
 * slack_wait(). */
static const struct stream_ops streaming = {
    .way = slack_way,
    .native = true,
    .pace = {.per_second = 1, .burst = 4, .gap_ms = 1200, .draft_gap_ms = 1000, .chat_burst = 4},
    .message = {.max = SLACK_MAX_CHARS, .unit = SPLIT_UTF16},
};

const struct sender_ops slack_sender = {
    .write = slack_write,
    .read = slack_read,
    .free = outgoing_free,
    .wait = slack_wait,
    .look = slack_look,
    .looked = slack_looked,
    .stream = &streaming,
};

void slack_ask(struct slack_team *t, enum slack_method m, struct str body,
               const struct sender_question *q)
{
    struct slack_outgoing *x = xcalloc(1, sizeof *x);

    x->s = t->s;
    x->op = ACTION_UNKNOWN;
    x->team = t;
    x->method = m;
    buf_add_str(&x->body, body);
    sender_ask(t->s->base.sender, &x->out, q);
}

/* ---- checking actions ---- */

static bool copy_id(char ret[SLACK_ID_MAX + 1], struct str id)
{
    if (id.n > SLACK_ID_MAX)
        return false;
    memcpy(ret, id.p != NULL ? id.p : "", id.n);
    ret[id.n] = '\0';
    return true;
}

static const char *read_content(struct slack_outgoing *x, const struct action *a)
{
    BUF_LOCAL safe = BUF_INIT;
    bool edit = x->op == ACTION_EDIT;

    if (a->content.n > (size_t)16 * 4 * SLACK_MAX_CHARS)
        return "the message is longer than sixteen Slack messages";
    struct str text = slack_neutralize(&safe, a->content);
    split_text(&x->parts, text, SLACK_MAX_CHARS, SPLIT_UTF16);
    if (x->parts.n == 0)
        return "the message is empty";
    if (!edit || x->parts.n == 1) {
        x->out.n_parts = x->parts.n;
        return NULL;
    }
    /* Slack edits one message: a text that is too long for a Markdown block becomes plain. */
    if (utf16_units(text) > SLACK_MAX_TEXT)
        return "the edited text is longer than one Slack message holds";
    split_done(&x->parts);
    split_text(&x->parts, text, SLACK_MAX_TEXT, SPLIT_UTF16);
    x->plain_at = 1;
    x->out.n_parts = 1;
    return NULL;
}

/* A caption with mark-up is a message of its own: beside a file Slack shows no Markdown. */
static const char *read_media(struct slack_outgoing *x, const struct action *a)
{
    BUF_LOCAL safe = BUF_INIT;

    attachment_copy(&x->file, a);
    x->resumed = a->left != NULL;
    x->method = SLACK_UPLOAD_URL;
    if (x->file.size == 0)
        return "Slack takes no empty file";
    if (a->content.n > (size_t)16 * 4 * SLACK_MAX_CHARS)
        return "the caption is longer than sixteen Slack messages";
    split_text(&x->parts, slack_neutralize(&safe, a->content), SLACK_MAX_CHARS, SPLIT_UTF16);
    x->captioned = x->parts.n == 1 && a->content.n <= CAPTION_BYTES &&
                   strpbrk(buf_z(&x->parts.bytes), "*_~`#[\n") == NULL;
    x->out.n_parts = x->captioned ? 1 : 1 + x->parts.n;
    return NULL;
}

static const char *read_reaction(struct slack_outgoing *x, const struct action *a)
{
    struct str name = slack_emoji_name(a->emoji);

    if (x->message[0] == '\0')
        return "message_id is not one of Slack's";
    if (name.p == NULL)
        return "Slack has no such emoji";
    x->word = str_dup(name);
    x->method = a->remove ? SLACK_UNREACT : SLACK_REACT;
    return NULL;
}

static const char *read_action(struct slack_outgoing *x, const struct action_from *from,
                               const struct action *a)
{
    struct str thread = a->thread_id;
    const char *wrong = NULL;

    if (thread.n > 0 && !slack_is_ts(thread))
        return "metadata.thread_id is not the ts of a message";
    copy_id(x->chat, a->chat_id);
    copy_id(x->thread, thread);
    if (slack_is_id(a->scope_id))
        copy_id(x->scope, a->scope_id);
    if (slack_is_ts(a->message_id))
        copy_id(x->message, a->message_id);
    x->out.n_parts = 1;
    switch (x->op) {
    case ACTION_EDIT:
        x->method = SLACK_UPDATE;
        return x->message[0] == '\0' ? "there is no such message to edit" : read_content(x, a);
    case ACTION_REACT:
        return read_reaction(x, a);
    case ACTION_DRAFT:
    case ACTION_TASK_CARD:
        return slack_stream_read(x, from, a);
    case ACTION_TYPING:
        x->method = SLACK_STATUS;
        return NULL;
    case ACTION_GET_CHAT_INFO:
        x->method = SLACK_CHANNEL_INFO;
        return NULL;
    case ACTION_SEND_MEDIA:
        return read_media(x, a);
    case ACTION_PROMPT:
        wrong = prompt_wrong(a);
        break;
    default:
        break;
    }
    x->method = SLACK_POST;
    return wrong != NULL ? wrong : read_content(x, a);
}

/* Sets the text of a status.  False: Slack shows it already, or there is no thread to show it in.
 * Slack shows a status in a thread only, until a message comes or two minutes have passed. */
static bool wants_status(struct slack_outgoing *x, const struct action *a)
{
    struct slack_chat *c = slack_chat_get(x->s, str_of(x->chat), STR_NULL);
    bool clear = a->content_set && str_trim(a->content).n == 0;
    struct str text = clear              ? STR("")
                      : a->content.n > 0 ? a->content
                                         : STR("is typing\xe2\x80\xa6");
    int64_t now_ms = clock_now_ms(x->s->base.env->clock);
    size_t n = 0;

    if (x->thread[0] == '\0' || c == NULL)
        return false;
    bool shown = strcmp(c->status_ts, x->thread) == 0;
    while (n < text.n && n < STATUS_CHARS)
        n += utf8_seq_bytes(str_skip(text, n)) > 0 ? utf8_seq_bytes(str_skip(text, n)) : 1;
    text.n = n < text.n ? n : text.n;
    uint32_t hash = map_hash(text);
    if ((clear && !shown) ||
        (shown && !clear && c->status == hash && now_ms - c->status_ms < STATUS_FRESH_MS))
        return false;
    x->word = str_dup(text);
    memcpy(c->status_ts, clear ? "" : x->thread, clear ? 1 : sizeof c->status_ts);
    c->status = hash;
    c->status_ms = now_ms;
    return true;
}

static void start(struct slack *s, struct sender_order *q)
{
    struct slack_outgoing *x = xcalloc(1, sizeof *x);

    x->s = s;
    x->op = q->action->op;
    q->wrong = read_action(x, q->from, q->action);
    if (q->wrong == NULL && x->op == ACTION_TYPING && !wants_status(x, q->action)) {
        host_result(s->base.host, q->id, &(struct action_result){.success = true});
        outgoing_free(&x->out);
        return;
    }
    q->twice = posts(x) ? TWICE_IS_SEEN : TWICE_IS_ONE;
    q->lane = str_of(x->chat);
    q->apart = !posts(x);
    if (q->wrong == NULL && x->op == ACTION_PROMPT) {
        struct jw w = jw_begin(&x->buttons);
        slack_write_buttons(&w, prompts_add(s->base.prompts, q->from, q->action, q->lane));
    }
    sender_act(s->base.sender, &x->out, q);
}

void slack_act(struct platform *p, struct action_id id, const struct action_from *from,
               const struct action *a)
{
    struct sender_order q = {.id = id, .from = from, .action = a};

    if (!slack_is_chat(a->chat_id))
        host_fail(p->host, id, "chat_id is not the id of a channel in Slack");
    else if ((slack_ops.descriptor->ops & 1u << a->op) == 0)
        host_fail(p->host, id, "unsupported op: %s", action_op_name(a->op));
    else
        start(slack_of(p), &q);
}
