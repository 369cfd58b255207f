/* outbound.c - turns the actions of gateways into requests to the Graph API, and reads the answers.
 * (whatsapp_priv.h has the calls; platform/sender.h describes lanes and retries.)
 *
 *      wa_act --> struct wa_outgoing --> the sender --> wa_write --> Meta --> wa_read
 *                                                          statuses --> wa_told --'
 *
 * Meta takes no idempotency key.  Every message carries the number of its record, its part and a
 * proof as biz_opaque_callback_data, which the statuses of the message repeat.  If the answer to a
 * request is lost, the message's lane waits LOOK_MS for a status, SENDER_LOOKS times; a status that
 * comes later settles the record that ended as unknown.  A message that Meta took and then failed
 * to deliver gets that reason as its outcome.
 *
 * A file takes two requests: its bytes are uploaded, then the message names the upload.
 *
 * Outside of the 24-hour window (people.c) a text that fits goes out in the configured template;
 * everything else is refused.
 *
 * The limits: one message in six seconds for one person, with a few at once, and 80 messages a
 * second for the number, in both directions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/stream.h"
#include "platform/whatsapp/compose.h"
#include "platform/whatsapp/whatsapp_priv.h"
#include "store/store.h"

enum {
    LOOK_MS = 3000,
    TYPED_MS = 20000, /* WhatsApp shows typing for 25 s, or until a message comes */
    UPLOAD_MS = 120000,
    EMOJI_BYTES = 64,
    MAX_PAIR_WAITS = 4, /* 4^0 ... 4^4 s, as Meta says */
    THROUGHPUT_MS = 2000,
};

/* ---- one action ---- */

struct wa_outgoing {
    struct outgoing out;    /* first */
    struct whatsapp *w;     /* borrowed */
    enum action_op op;      /* ACTION_UNKNOWN: a question */
    struct split parts;     /* the text; without a caption that goes with a file */
    struct attachment file; /* send_media */
    const struct wa_files *kind;
    char *upload;                 /* owned; Meta's id of the uploaded file; NULL: none yet */
    bool resumed;                 /* an earlier process began it */
    bool captioned;               /* the first part of the text is the caption */
    bool by_template;             /* the window is closed */
    bool bare;                    /* Meta refused the quoted message: without it */
    unsigned pair_waits;          /* in a row */
    struct buf interactive;       /* of a question with buttons, as JSON; empty: a text */
    char *word;                   /* owned; an emoji; of a question the path */
    char failed[256];             /* a status told that it failed; empty: none did */
    char reply[WA_WAMID_MAX + 1]; /* the message to quote, or to react to; empty: none */
    char chat[WA_ID_MAX + 1];
};

static struct wa_outgoing *wa_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct wa_outgoing, out);
}

static void outgoing_free(struct outgoing *o)
{
    struct wa_outgoing *x = wa_outgoing_of(o);

    split_done(&x->parts);
    attachment_done(&x->file);
    buf_done(&x->interactive);
    free(x->upload);
    free(x->word);
    free(x);
}

static bool posts(const struct wa_outgoing *x)
{
    return x->op == ACTION_SEND || x->op == ACTION_PROMPT || x->op == ACTION_SEND_MEDIA;
}

/* Is the part that is sent next the file itself? */
static bool at_file(const struct wa_outgoing *x)
{
    return x->op == ACTION_SEND_MEDIA && x->out.at == 0;
}

static bool uploads(const struct wa_outgoing *x)
{
    return at_file(x) && x->upload == NULL;
}

static struct str text_of(const struct wa_outgoing *x)
{
    size_t at = x->out.at - (x->op == ACTION_SEND_MEDIA && !x->captioned && x->out.at > 0);

    return at < x->parts.n ? split_part(&x->parts, at) : STR("");
}

/* ---- what a message carries: "<number>.<part>.<proof>" ---- */

static uint64_t proof_of(const struct whatsapp *w, uint64_t number, size_t part)
{
    BUF_LOCAL text = BUF_INIT;

    buf_printf(&text, "whatsapp\x1f%s\x1f%" PRIu64 "\x1f%zu", w->base.bot, number, part);
    return hash64(&w->base.env->store->dedup_key, buf_str(&text));
}

static void add_mark(const struct whatsapp *w, uint64_t number, size_t part, struct buf *out)
{
    buf_printf(out, "%" PRIu64 ".%zu.%016" PRIx64, number, part, proof_of(w, number, part));
}

static bool read_mark(const struct whatsapp *w, struct str mark, uint64_t *ret_number,
                      size_t *ret_part)
{
    struct str rest = mark, number, part;
    BUF_LOCAL want = BUF_INIT;
    uint64_t n;

    if (!str_split(&rest, '.', &number) || !str_split(&rest, '.', &part) ||
        !str_to_u64(number, ret_number) || !str_to_u64(part, &n) || n >= SENDER_MAX_PARTS)
        return false;
    *ret_part = (size_t)n;
    add_mark(w, *ret_number, *ret_part, &want);
    return want.n == mark.n && ct_equal(want.p, mark.p, mark.n);
}

/* ---- statuses ---- */

struct wa_told {          /* a status of a message whose action is still under way */
    struct lru_entry lru; /* number, dot, part */
    char id[WA_WAMID_MAX + 1];
    char why[256]; /* it failed; empty: it did not */
};

static void told_key(char ret[32], uint64_t number, size_t part)
{
    snprintf(ret, 32, "%" PRIu64 ".%zu", number, part);
}

static struct wa_told *told_find(const struct wa_outgoing *x)
{
    char key[32];

    told_key(key, sender_number(&x->out), x->out.at);
    return lru_find(&x->w->told, str_of(key));
}

void wa_told(struct whatsapp *w, const struct wa_status *s)
{
    struct sender_verdict v = {.end = SENDER_DONE};
    uint64_t number;
    size_t part;

    if (s->failed) {
        const char *sentence = wa_code_sentence(s->code);
        w->n.failed++;
        if (s->code == WA_CODE_WINDOW && (wa_is_bsuid(s->recipient) || wa_is_number(s->recipient)))
            wa_person_shut(w, wa_person_now(w, s->recipient));
        if (sentence != NULL)
            sender_say(&v, SENDER_REFUSED, "%s", sentence);
        else
            sender_say(&v, SENDER_REFUSED, "WhatsApp could not deliver this (code %" PRId64 ")",
                       s->code);
        log_warn(&w->base.log, "a message failed: code=%" PRId64 " id=%.*s", s->code,
                 STR_FMT(s->id));
    }
    snprintf(v.message_id, sizeof v.message_id, "%.*s", STR_FMT(s->id));
    if (!read_mark(w, s->data, &number, &part) || !sender_settle(w->base.sender, number, part, &v))
        return;
    char key[32];
    told_key(key, number, part);
    struct wa_told *t = lru_use(&w->told, str_of(key), sizeof *t);
    memcpy(t->id, v.message_id, sizeof t->id);
    memcpy(t->why, v.why, sizeof t->why);
}

/* ---- requests ---- */

static void write_address(struct whatsapp *w, const char *leaf, struct sender_request *q)
{
    buf_printf(&q->url, "%s/%.*s/%s", w->api, STR_FMT(platform_id(&w->base)), leaf);
    q->headers[0] = w->auth;
    q->headers[1] = "Content-Type: application/json";
}

static void write_upload(struct wa_outgoing *x, struct sender_request *q)
{
    struct whatsapp *w = x->w;
    const char *type = x->kind->upload != NULL ? x->kind->upload : x->kind->type;
    struct attachment as = x->file;
    struct multipart m;

    write_address(w, "media", q);
    q->headers[1] = NULL;
    q->timeout_ms = UPLOAD_MS;
    as.type = (char *)type;
    multipart_begin(&m, w->base.env->rand);
    multipart_field(&m, "messaging_product", STR("whatsapp"));
    multipart_field(&m, "type", str_of(type));
    multipart_file(&m, "file", &as);
    multipart_end(&m, &x->file, q);
}

static void write_template(struct jw *w, struct wa_outgoing *x)
{
    BUF_LOCAL text = BUF_INIT;

    wa_parameter_add(&text, text_of(x));
    jw_kstr(w, "type", STR("template"));
    jw_kobj(w, "template");
    jw_kstr(w, "name", str_of(x->w->cfg->template.name));
    jw_kobj(w, "language");
    jw_kstr(w, "code", str_of(x->w->cfg->template.language));
    jw_end_obj(w);
    jw_karr(w, "components");
    jw_obj(w);
    jw_kstr(w, "type", STR("body"));
    jw_karr(w, "parameters");
    jw_obj(w);
    jw_kstr(w, "type", STR("text"));
    jw_kstr(w, "text", buf_str(&text));
    jw_end_obj(w);
    jw_end_arr(w);
    jw_end_obj(w);
    jw_end_arr(w);
    jw_end_obj(w);
}

static void write_file(struct jw *w, struct wa_outgoing *x)
{
    BUF_LOCAL name = BUF_INIT;

    jw_kstr(w, "type", str_of(x->kind->message));
    jw_kobj(w, x->kind->message);
    jw_kstr(w, "id", str_of(x->upload));
    if (x->captioned)
        jw_kstr(w, "caption", split_part(&x->parts, 0));
    if (strcmp(x->kind->type, "audio/ogg") == 0 && str_eq(str_of(x->file.kind), STR("voice")))
        jw_kbool(w, "voice", true);
    if (strcmp(x->kind->message, "document") == 0) {
        attachment_name_add(&name, &x->file);
        jw_kstr(w, "filename", buf_str(&name));
    }
    jw_end_obj(w);
}

static void write_content(struct jw *w, struct wa_outgoing *x)
{
    bool last = x->out.at + 1 == x->out.n_parts;

    if (x->op == ACTION_REACT) {
        jw_kstr(w, "type", STR("reaction"));
        jw_kobj(w, "reaction");
        jw_kstr(w, "message_id", str_of(x->reply));
        jw_kstr(w, "emoji", str_of(x->word));
        jw_end_obj(w);
    } else if (x->by_template) {
        write_template(w, x);
    } else if (at_file(x)) {
        write_file(w, x);
    } else if (x->interactive.n > 0 && last) {
        jw_kstr(w, "type", STR("interactive"));
        jw_kraw(w, "interactive", buf_str(&x->interactive));
    } else {
        jw_kstr(w, "type", STR("text"));
        jw_kobj(w, "text");
        jw_kstr(w, "body", text_of(x));
        jw_kbool(w, "preview_url", false);
        jw_end_obj(w);
    }
}

static void write_message(struct wa_outgoing *x, struct sender_request *q)
{
    struct jw w = jw_begin(&q->body);
    BUF_LOCAL mark = BUF_INIT;

    write_address(x->w, "messages", q);
    jw_obj(&w);
    jw_kstr(&w, "messaging_product", STR("whatsapp"));
    jw_kstr(&w, "recipient_type", STR("individual"));
    jw_kstr(&w, wa_is_number(str_of(x->chat)) ? "to" : "recipient", str_of(x->chat));
    write_content(&w, x);
    if (posts(x)) {
        if (x->reply[0] != '\0' && !x->bare && x->out.at == 0 && !x->by_template) {
            jw_kobj(&w, "context");
            jw_kstr(&w, "message_id", str_of(x->reply));
            jw_end_obj(&w);
        }
        add_mark(x->w, sender_number(&x->out), x->out.at, &mark);
        jw_kstr(&w, "biz_opaque_callback_data", buf_str(&mark));
        q->once = true;
    }
    jw_end_obj(&w);
}

/* WhatsApp shows typing as an answer to a message, and marks that message as read. */
static void write_typing(struct wa_outgoing *x, struct sender_request *q)
{
    struct jw w = jw_begin(&q->body);

    write_address(x->w, "messages", q);
    jw_obj(&w);
    jw_kstr(&w, "messaging_product", STR("whatsapp"));
    jw_kstr(&w, "status", STR("read"));
    jw_kstr(&w, "message_id", str_of(x->reply));
    jw_kobj(&w, "typing_indicator");
    jw_kstr(&w, "type", STR("text"));
    jw_end_obj(&w);
    jw_end_obj(&w);
}

/* For Meta a reaction is a message to the person; the last of a burst is left to an answer. */
static enum pace_class class_of(const struct wa_outgoing *x)
{
    return x->op == ACTION_TYPING ? PACE_TYPING : x->op == ACTION_REACT ? PACE_FINAL : PACE_SEND;
}

static bool is_paced(const struct wa_outgoing *x)
{
    return x->op != ACTION_UNKNOWN && !uploads(x);
}

static int64_t wa_wait(struct platform *p, struct outgoing *o)
{
    const struct wa_outgoing *x = wa_outgoing_of(o);

    return is_paced(x) && x->op != ACTION_REACT && !(x->op == ACTION_TYPING && o->failures > 0)
               ? pace_wait_ms(sender_budget(x->w->base.sender), str_of(x->chat), false, class_of(x))
               : 0;
}

/* Free text may be sent now, or in a template. */
static bool may_be_sent(struct wa_outgoing *x, struct sender_verdict *v)
{
    if (x->failed[0] != '\0') {
        sender_say(v, SENDER_REFUSED, "%s", x->failed);
        return false;
    }
    if (x->by_template || wa_window(x->w, str_of(x->chat)) != WA_SHUT)
        return true;
    BUF_LOCAL text = BUF_INIT;
    x->by_template = x->op == ACTION_SEND && x->out.n_parts == 1 &&
                     x->w->cfg->template.name != NULL && wa_parameter_add(&text, text_of(x));
    if (x->by_template)
        return true;
    v->end = SENDER_REFUSED;
    wa_window_why(x->w, str_of(x->chat), v->why);
    return false;
}

static void wa_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                     struct sender_verdict *v)
{
    struct wa_outgoing *x = wa_outgoing_of(o);
    struct pace *pace = sender_budget(x->w->base.sender);

    v->end = SENDER_GO;
    if (x->op == ACTION_UNKNOWN) {
        buf_printf(&q->url, "%s/%s", x->w->api, x->word);
        q->headers[0] = x->w->auth;
        q->method = "GET";
        q->no_body = true;
        return;
    }
    if (x->op == ACTION_TYPING) {
        if (pace_wait_ms(pace, str_of(x->chat), false, PACE_TYPING) > 0) {
            v->end = SENDER_DONE; /* shed */
            return;
        }
        write_typing(x, q);
    } else if (!may_be_sent(x, v)) {
        return;
    } else if (x->op == ACTION_REACT &&
               pace_wait_ms(pace, str_of(x->chat), false, PACE_FINAL) > 0) {
        sender_say(v, SENDER_REFUSED,
                   "WhatsApp takes one message in six seconds for a person, and "
                   "a reaction is one: it was left out");
        return;
    } else if (uploads(x)) {
        write_upload(x, q);
        return;
    } else {
        write_message(x, q);
    }
    pace_count(pace, str_of(x->chat), false, class_of(x));
}

/* ---- answers ---- */

static void on_ok(struct wa_outgoing *x, struct sender_verdict *v)
{
    struct wa_person *who = wa_person_find(x->w, str_of(x->chat));
    struct json_iter it = {0};
    struct str id = STR_NULL;

    if (x->op == ACTION_UNKNOWN)
        return;
    platform_set_problem(&x->w->base, NULL);
    if (uploads(x)) {
        id = json_str(v->answer, "id");
        if (id.n == 0 || id.n > 64 || !str_has_only(id, "-_")) {
            sender_say(v, SENDER_FAILED, "Meta did not say where the file is");
            return;
        }
        x->upload = str_dup(id);
        v->end = SENDER_REWRITE;
        return;
    }
    if (!posts(x))
        return;
    if (json_next(json_get(v->answer, "messages"), &it))
        id = json_str(it.value, "id");
    if (!wa_is_wamid(id)) {
        sender_say(v, SENDER_UNKNOWN, "something else answered in Meta's place");
        return;
    }
    const struct wa_told *told = told_find(x);
    if (told != NULL && told->why[0] != '\0') { /* its status was faster than its answer */
        sender_say(v, SENDER_REFUSED, "%s", told->why);
        return;
    }
    snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(id));
    x->pair_waits = 0;
    x->w->n.templates += x->by_template;
    if (who != NULL)
        who->typed_ms = 0; /* a message ends the typing */
}

static void on_refusal(struct wa_outgoing *x, struct sender_verdict *v)
{
    if (v->code == WA_CODE_WINDOW && posts(x)) {
        wa_person_shut(x->w, str_of(x->chat));
        v->end = SENDER_REWRITE; /* may_be_sent() takes the template, or says why not */
        if (x->by_template)
            v->end = SENDER_REFUSED;
    } else if ((v->code == WA_CODE_PARAMETER || v->code == 100) && posts(x) &&
               x->reply[0] != '\0' && !x->bare && x->out.at == 0 && !uploads(x)) {
        x->bare = true;
        v->end = SENDER_REWRITE;
    } else if (x->op == ACTION_TYPING) {
        v->end = SENDER_FAILED;
    }
}

/* Meta asks for 4^n seconds after the nth refusal of a pair in a row. */
static void on_limit(struct wa_outgoing *x, const struct http_result *r, struct sender_verdict *v)
{
    struct whatsapp *w = x->w;

    if (v->code == WA_CODE_PAIR) {
        v->wait_ms = INT64_C(1000) << 2 * x->pair_waits;
        x->pair_waits += x->pair_waits < MAX_PAIR_WAITS;
        pace_hit(sender_budget(w->base.sender), str_of(x->chat), v->wait_ms);
    } else if (v->code == 130429 || v->code == 80007 || v->code == 4) {
        v->wait_ms = r->retry_after_ms > THROUGHPUT_MS ? r->retry_after_ms : THROUGHPUT_MS;
        sender_pause(w->base.sender, v->wait_ms);
    }
    log_warn(&w->base.log, "rate limited: code=%" PRId64 " wait_ms=%" PRId64, v->code, v->wait_ms);
}

static void wa_read(struct platform *p, struct outgoing *o, const struct http_result *r,
                    struct sender_verdict *v)
{
    struct wa_outgoing *x = wa_outgoing_of(o);

    wa_answer_read(x->w, r, v);
    if (v->end == SENDER_DONE)
        on_ok(x, v);
    else if (v->end == SENDER_REFUSED)
        on_refusal(x, v);
    else if (v->end == SENDER_AGAIN)
        on_limit(x, r, v);
    if (x->op == ACTION_TYPING && v->end != SENDER_DONE)
        v->end = SENDER_FAILED; /* late typing is useless */
}

/* A message whose answer was lost.  No request tells of it: its status does. */
static void wa_look(struct platform *p, struct outgoing *o, struct sender_request *q,
                    struct sender_verdict *v)
{
    struct wa_outgoing *x = wa_outgoing_of(o);
    const struct wa_told *told = told_find(x);

    if (uploads(x) && !x->resumed) {
        sender_say(v, SENDER_REWRITE, "the file was not sent yet");
    } else if (told == NULL) {
        sender_say(v, SENDER_REFUSED, "WhatsApp told no status of it");
        v->wait_ms = LOOK_MS;
    } else if (told->why[0] != '\0') {
        memcpy(x->failed, told->why, sizeof x->failed);
        v->end = SENDER_REWRITE;
    } else {
        v->end = SENDER_DONE;
        memcpy(v->message_id, told->id, sizeof told->id);
    }
}

static void wa_looked(struct platform *p, struct outgoing *o, const struct http_result *r,
                      struct sender_verdict *v)
{
    v->end = SENDER_UNKNOWN; /* wa_look() makes no requests */
}

/* In any second at most 75 leave; 80 are allowed, in both directions.  A burst that Meta refuses is
 * not tried again for half an hour: pace.h. */
static const struct stream_ops streaming = {
    .pace = {.per_second = 60, .burst = 15, .gap_ms = 6000, .chat_burst = 4},
    .message = {.max = WA_TEXT, .unit = SPLIT_UTF16},
};

const struct sender_ops wa_sender = {
    .write = wa_write,
    .read = wa_read,
    .free = outgoing_free,
    .wait = wa_wait,
    .look = wa_look,
    .looked = wa_looked,
    .stream = &streaming,
};

void wa_ask(struct whatsapp *w, struct str path, const struct sender_question *q)
{
    struct wa_outgoing *x = xcalloc(1, sizeof *x);

    x->w = w;
    x->op = ACTION_UNKNOWN;
    x->word = str_dup(path);
    sender_ask(w->base.sender, &x->out, q);
}

/* ---- checking actions ---- */

static const char *read_content(struct wa_outgoing *x, struct str markdown)
{
    BUF_LOCAL text = BUF_INIT;

    if (markdown.n > (size_t)SENDER_MAX_PARTS * 4 * WA_TEXT)
        return "the message is longer than sixteen WhatsApp messages";
    wa_text_add(&text, markdown);
    split_text(&x->parts, buf_str(&text), WA_TEXT, SPLIT_UTF16);
    x->out.n_parts = x->parts.n;
    return x->parts.n == 0 ? "the message is empty" : NULL;
}

static const char *read_media(struct wa_outgoing *x, const struct action *a)
{
    BUF_LOCAL text = BUF_INIT;

    attachment_copy(&x->file, a);
    x->resumed = a->left != NULL;
    x->kind = wa_files_of(str_of(x->file.type));
    if (x->kind == NULL)
        return "WhatsApp takes no files of this type: it takes JPEG, PNG, WebP, AAC, AMR, MP3, "
               "MPEG-4, Ogg with Opus, 3GPP, PDF, texts and Office documents";
    if (x->file.size == 0)
        return "WhatsApp takes no empty file";
    if (x->file.size > x->kind->max_bytes)
        return "the file is larger than WhatsApp takes: pictures 5 MB, audio and video 16 MB, "
               "stickers 0.5 MB, documents 100 MB";
    if (a->content.n > (size_t)(SENDER_MAX_PARTS - 1) * 4 * WA_TEXT)
        return "the caption is longer than fifteen WhatsApp messages";
    wa_text_add(&text, a->content);
    struct str caption = buf_str(&text);
    x->captioned = wa_files_captioned(x->kind) && utf16_units(caption) <= WA_CAPTION;
    split_text(&x->parts, caption, x->captioned ? WA_CAPTION : WA_TEXT, SPLIT_UTF16);
    x->captioned &= x->parts.n == 1;
    x->out.n_parts = x->captioned ? 1 : 1 + x->parts.n;
    return NULL;
}

static const char *read_reaction(struct wa_outgoing *x, const struct action *a)
{
    if (!wa_is_wamid(a->message_id))
        return "message_id is not one of WhatsApp's";
    if (!a->remove &&
        (a->emoji.n == 0 || a->emoji.n > EMOJI_BYTES || (signed char)a->emoji.p[0] > 0))
        return "emoji must be one emoji";
    memcpy(x->reply, a->message_id.p, a->message_id.n);
    x->word = str_dup(a->remove ? STR("") : a->emoji);
    return NULL;
}

/* A question that fits no buttons has numbers in its text; that of a resumed action has them
 * already. One message is better than two: the text of a long question is not sent apart. */
static const char *read_question(struct wa_outgoing *x, const struct action_from *from,
                                 struct action *a, struct buf *room)
{
    struct str chat = str_of(x->chat);
    const struct prompt *q = prompts_add(x->w->base.prompts, from, a, chat);
    BUF_LOCAL text = BUF_INIT;

    wa_text_add(&text, a->content);
    if (!wa_question_add(&x->interactive, buf_str(&text), q) && a->left == NULL) {
        prompt_write_numbered(room, a->content, q);
        a->content = buf_str(room);
    }
    const char *wrong = read_content(x, a->content);
    if (wrong != NULL)
        prompts_drop(x->w->base.prompts, from, chat, a->prompt_id);
    return wrong;
}

/* False: typing is shown already, or there is no message to show it under. */
static bool wants_typing(struct wa_outgoing *x, const struct action *a)
{
    struct wa_person *p = wa_person_find(x->w, str_of(x->chat));
    int64_t now_ms = clock_now_ms(x->w->base.env->clock);
    bool clear = a->content_set && str_trim(a->content).n == 0;

    if (clear || p == NULL || p->last[0] == '\0' ||
        (p->typed_ms != 0 && now_ms - p->typed_ms < TYPED_MS))
        return false;
    p->typed_ms = now_ms;
    memcpy(x->reply, p->last, sizeof x->reply);
    return true;
}

static const char *read_action(struct wa_outgoing *x, const struct action *a)
{
    x->out.n_parts = 1;
    if (posts(x) && wa_is_wamid(a->reply_to))
        memcpy(x->reply, a->reply_to.p, a->reply_to.n);
    switch (x->op) {
    case ACTION_SEND:
        return read_content(x, a->content);
    case ACTION_SEND_MEDIA:
        return read_media(x, a);
    case ACTION_PROMPT:
        return prompt_wrong(a);
    case ACTION_REACT:
        return read_reaction(x, a);
    default:
        return NULL;
    }
}

static void start(struct whatsapp *w, const struct sender_order *q)
{
    struct wa_outgoing *x = xcalloc(1, sizeof *x);
    struct str chat = wa_person_now(w, q->action->chat_id);
    BUF_LOCAL question = BUF_INIT;
    struct action a = *q->action;
    struct sender_order order = *q;

    order.action = &a;
    x->w = w;
    x->op = a.op;
    memcpy(x->chat, chat.p, chat.n);
    order.wrong = read_action(x, &a);
    if (order.wrong == NULL && x->op == ACTION_PROMPT)
        order.wrong = read_question(x, q->from, &a, &question);
    if (order.wrong == NULL && x->op == ACTION_TYPING && !wants_typing(x, &a)) {
        host_result(w->base.host, q->id, &(struct action_result){.success = true});
        outgoing_free(&x->out);
        return;
    }
    order.twice = posts(x) ? TWICE_IS_SEEN : TWICE_IS_ONE;
    order.lane = str_of(x->chat);
    order.apart = !posts(x);
    sender_act(w->base.sender, &x->out, &order);
}

void wa_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a)
{
    struct whatsapp *w = whatsapp_of(p);
    struct sender_order q = {.id = id, .from = from, .action = a};

    if (!wa_is_bsuid(a->chat_id) && !wa_is_number(a->chat_id)) {
        host_fail(p->host, id,
                  "chat_id is neither a phone number of digits nor an id of WhatsApp's");
    } else if ((whatsapp_ops.descriptor->ops & 1u << a->op) == 0) {
        host_fail(p->host, id, "unsupported op: %s", action_op_name(a->op));
    } else if (a->op == ACTION_GET_CHAT_INFO) {
        const struct wa_person *who = wa_person_find(w, wa_person_now(w, a->chat_id));
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = who != NULL && who->name != NULL
                                                             ? str_of(who->name)
                                                             : a->chat_id,
                                            .chat_type = STR("dm")});
    } else {
        start(w, &q);
    }
}
