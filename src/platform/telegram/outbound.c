/* outbound.c - turns the actions of gateways into requests to Telegram, and reads the answers.
 * (telegram_priv.h has the calls; platform/sender.h describes lanes and retries.)
 *
 *      tg_act --> struct tg_outgoing --> the sender --> tg_write --> Telegram --> tg_read
 *
 * Telegram has no idempotency key.  If the answer to a message is lost, nobody knows whether it was
 * sent, so it is not retried; creating a topic is not either.  All other requests are idempotent.
 *
 * With "rich", the Markdown of a text is sent as it is, in one rich message, however many parts
 * the text has otherwise.  Edits and previews are rich too; captions are not.
 *
 * Fallbacks: if Telegram refuses a rich message, the text is sent in parts with entities.  If it
 * refuses the entities of a part, the part is sent as plain text.  A file that Telegram refuses as
 * a picture, a voice note or a video is sent as a document.  A caption that is too long continues
 * as messages.  If a group became a supergroup, the request goes to the new id. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/attachment.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/stream.h"
#include "platform/markdown.h"
#include "platform/telegram/telegram.h"
#include "platform/telegram/telegram_priv.h"

#define GENERAL_TOPIC 1
#define MAX_BROKEN 3                     /* 5xx answers before typing, lookups and reactions fail */
#define MAX_FOLLOWED 2                   /* changes of a group's id, per action */
#define PHOTO_BYTES ((uint64_t)10 << 20) /* Telegram's limit of sendPhoto */

struct tg_outgoing {
    struct outgoing out; /* first */
    struct telegram *t;  /* borrowed */
    enum action_op op;
    int64_t thread, reply_to, message_id; /* 0: none */
    struct md md;
    struct md_part part;    /* the part that is sent next */
    size_t part_at;         /* the number of @part; follows out.at */
    bool plain;             /* Telegram refused the entities of this part */
    struct buf rich;        /* the Markdown of a rich message; empty: sent in parts */
    char *word;             /* owned; an emoji or a name */
    struct attachment file; /* send_media */
    struct buf markup;      /* the buttons, as JSON */
    bool captioned;         /* the file has a caption; for an edit: the text is a caption */
    bool as_document;       /* Telegram refused the file as its own kind */
    unsigned moves, broken;
    char chat[TG_CHAT_CHARS]; /* from the action; see tg_outgoing_chat() */
    int64_t draft;            /* the number of a preview */
    bool counted;             /* the stream has counted its next request: pace.h */
};

static struct tg_outgoing *tg_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct tg_outgoing, out);
}
static struct str tg_outgoing_chat(const struct tg_outgoing *x) /* its current id */
{
    return tg_chat_now(x->t, str_of(x->chat));
}

static void outgoing_free(struct outgoing *o)
{
    struct tg_outgoing *x = tg_outgoing_of(o);

    md_done(&x->md);
    attachment_done(&x->file);
    free(x->word);
    buf_done(&x->markup);
    buf_done(&x->rich);
    free(x);
}

/* ---- files: the method for each kind ---- */

static const struct tg_carrier {
    const char *kind, *method, *field;
    const char *types; /* accepted, separated by spaces; NULL: any */
    uint64_t max_bytes;
} carriers[] = {
    {"image", "sendAnimation", "animation", "image/gif", 0},
    {"image", "sendPhoto", "photo", "image/jpeg image/png image/webp", PHOTO_BYTES},
    {"voice", "sendVoice", "voice", "audio/ogg audio/mpeg audio/mp4 audio/x-m4a", 0},
    {"voice", "sendAudio", "audio", "audio/mpeg audio/mp4 audio/x-m4a", 0},
    {"audio", "sendAudio", "audio", "audio/mpeg audio/mp4 audio/x-m4a", 0},
    {"video", "sendVideo", "video", "video/mp4", 0},
};
static const struct tg_carrier document = {"document", "sendDocument", "document", NULL, 0};

static bool takes(const struct tg_carrier *c, const struct attachment *f)
{
    const char *at = strstr(c->types, f->type);
    size_t n = strlen(f->type);

    return strcmp(c->kind, f->kind) == 0 && at != NULL && (at[n] == ' ' || at[n] == '\0') &&
           (c->max_bytes == 0 || f->size <= c->max_bytes);
}

static const struct tg_carrier *carrier_of(const struct tg_outgoing *x)
{
    for (size_t i = 0; !x->as_document && i < ARRAY_LEN(carriers); i++)
        if (takes(&carriers[i], &x->file))
            return &carriers[i];
    return &document;
}

static void write_media(struct tg_outgoing *x, struct sender_request *q)
{
    const struct tg_carrier *c = carrier_of(x);
    BUF_LOCAL entities = BUF_INIT;
    struct multipart m;
    char text[96];

    buf_printf(&q->url, "%s%s", x->t->url, c->method);
    multipart_begin(&m, x->t->base.env->rand);
    multipart_field(&m, "chat_id", tg_outgoing_chat(x));
    if (x->thread != 0) {
        snprintf(text, sizeof text, "%" PRId64, x->thread);
        multipart_field(&m, "message_thread_id", str_of(text));
    }
    if (x->reply_to != 0) {
        snprintf(text, sizeof text,
                 "{\"message_id\":%" PRId64 ",\"allow_sending_without_reply\":true}", x->reply_to);
        multipart_field(&m, "reply_parameters", str_of(text));
    }
    if (x->captioned)
        multipart_field(&m, "caption",
                        str_make(x->md.text.p + x->part.from, x->part.to - x->part.from));
    if (x->captioned && !x->plain && x->md.n > 0) {
        struct jw w = jw_begin(&entities);
        md_write_entities(&w, &x->md, &x->part);
        multipart_field(&m, "caption_entities", buf_str(&entities));
    }
    multipart_file(&m, c->field, &x->file);
    multipart_end(&m, &x->file, q);
    q->timeout_ms = TG_UPLOAD_MS;
    q->once = true;
}

static bool retry_as_document(struct tg_outgoing *x, const struct tg_answer *a)
{
    static const char *const words[] = {"PHOTO_",     "IMAGE_PROCESS", "VOICE_",     "wrong file",
                                        "wrong type", "too big",       "DIMENSIONS", "VIDEO_"};

    if (x->op != ACTION_SEND_MEDIA || x->out.at > 0 || x->as_document || carrier_of(x) == &document)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcasestr(a->why, words[i]) != NULL) {
            x->as_document = true;
            return true;
        }
    return false;
}

/* ---- the request ---- */

static void write_chat(struct jw *w, const struct tg_outgoing *x)
{
    struct str chat = tg_outgoing_chat(x);
    int64_t number;

    jw_key(w, "chat_id");
    if (str_to_i64(chat, &number))
        jw_i64(w, number);
    else
        jw_str(w, chat); /* "@channel" */
    if (x->thread != 0 && x->op != ACTION_GET_CHAT_INFO)
        jw_ki64(w, "message_thread_id", x->thread);
}

static void write_reply(struct jw *w, const struct tg_outgoing *x)
{
    if (x->reply_to == 0 || x->out.at > 0)
        return;
    jw_kobj(w, "reply_parameters");
    jw_ki64(w, "message_id", x->reply_to);
    jw_kbool(w, "allow_sending_without_reply", true);
    jw_end_obj(w);
}

static void write_reaction(struct jw *w, const struct tg_outgoing *x)
{
    jw_ki64(w, "message_id", x->message_id);
    jw_karr(w, "reaction");
    if (x->word != NULL) { /* an empty list removes the reaction */
        jw_obj(w);
        jw_kstr(w, "type", STR("emoji"));
        jw_kstr(w, "emoji", str_of(x->word));
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

static void write_text(struct jw *w, const struct tg_outgoing *x)
{
    if (x->rich.n > 0) {
        jw_kobj(w, "rich_message");
        jw_kstr(w, "markdown", buf_str(&x->rich));
        jw_end_obj(w);
    } else if (x->op == ACTION_EDIT && x->captioned)
        md_write_caption(w, &x->md, &x->part, !x->plain);
    else
        md_write(w, &x->md, &x->part, !x->plain);
}

static const char *write_body(struct buf *body, const struct tg_outgoing *x)
{
    struct jw w = jw_begin(body);
    bool rich = x->rich.n > 0;
    const char *method = rich ? "sendRichMessage" : "sendMessage";

    jw_obj(&w);
    write_chat(&w, x);
    switch (x->op) {
    case ACTION_EDIT:
        method = x->captioned ? "editMessageCaption" : "editMessageText";
        jw_ki64(&w, "message_id", x->message_id);
        break;
    case ACTION_DRAFT:
        method = rich ? "sendRichMessageDraft" : "sendMessageDraft";
        jw_ki64(&w, "draft_id", x->draft);
        break;
    case ACTION_TYPING:
        method = "sendChatAction";
        jw_kstr(&w, "action", STR("typing"));
        break;
    case ACTION_GET_CHAT_INFO:
        method = "getChat";
        break;
    case ACTION_REACT:
        method = "setMessageReaction";
        write_reaction(&w, x);
        break;
    case ACTION_THREAD_CREATE:
        method = "createForumTopic";
        jw_kstr(&w, "name", str_of(x->word));
        break;
    case ACTION_THREAD_RENAME:
        method = "editForumTopic";
        jw_ki64(&w, "message_thread_id", x->message_id);
        jw_kstr(&w, "name", str_of(x->word));
        break;
    default:
        write_reply(&w, x);
        break;
    }
    if (x->op == ACTION_SEND || x->op == ACTION_EDIT || x->op == ACTION_SEND_MEDIA ||
        x->op == ACTION_PROMPT || x->op == ACTION_DRAFT)
        write_text(&w, x);
    if (x->markup.n > 0 && (rich || x->out.at + 1 == x->out.n_parts))
        jw_kraw(&w, "reply_markup", buf_str(&x->markup));
    jw_end_obj(&w);
    return method;
}

static void wait_for(struct sender_verdict *v, int64_t ms)
{
    v->wait_ms = ms;
    sender_say(v, SENDER_AGAIN, "Telegram asks to wait %" PRId64 " s in this chat",
               (ms + 999) / 1000);
}

/* ---- the budget ---- */

static bool is_group(struct str place)
{
    return place.n > 0 && (place.p[0] == '-' || place.p[0] == '@');
}

static struct str place_of(struct platform *p, const struct action *a)
{
    return tg_chat_now(telegram_of(p), a->chat_id);
}

static enum pace_class class_of(enum action_op op)
{
    return op == ACTION_EDIT                                  ? PACE_FINAL
           : op == ACTION_DRAFT                               ? PACE_DRAFT
           : op == ACTION_TYPING                              ? PACE_TYPING
           : op == ACTION_REACT || op == ACTION_GET_CHAT_INFO ? PACE_REACT
                                                              : PACE_SEND;
}

static int64_t room_ms(const struct tg_outgoing *x)
{
    struct str chat = tg_outgoing_chat(x);

    return pace_wait_ms(sender_budget(x->t->base.sender), chat, is_group(chat), class_of(x->op));
}

/* Typing waits for room once, and is shed then. */
static int64_t tg_wait(struct platform *p, struct outgoing *o)
{
    const struct tg_outgoing *x = tg_outgoing_of(o);

    return x->counted || (x->op == ACTION_TYPING && o->failures > 0) ? 0 : room_ms(x);
}

/* Telegram does not say whether a 429 is for one chat or for the whole bot.  If three chats are
 * limited at once, the whole bot pauses until the shortest limit has passed. */
static void note_limit(struct tg_outgoing *x, int64_t retry_after_ms)
{
    struct telegram *t = x->t;
    struct pace *pace = sender_budget(t->base.sender);
    int64_t shortest_ms = 0;

    t->n.limited++;
    pace_hit(pace, tg_outgoing_chat(x), retry_after_ms);
    bool all = pace_n_limited(pace, &shortest_ms) >= 3;
    if (all)
        sender_pause(t->base.sender, shortest_ms);
    log_warn(&t->base.log, "rate limited: retry_after_ms=%" PRId64 " whole_bot=%d", retry_after_ms,
             all);
}

static enum stream_way way_of(struct platform *p, const struct action *a)
{
    const struct telegram *t = telegram_of(p);

    return t->drafts && !is_group(a->chat_id) ? STREAM_DRAFT : STREAM_EDIT;
}

/* Telegram's limits: 30 requests a second for a bot, one a second in a chat, 20 a minute in a
 * group; of previews 20 in 5 s and 40 in 30 s. */
static const struct stream_ops streaming = {
    .way = way_of,
    .place = place_of,
    .is_group = is_group,
    .pace = {.per_second = 20,
             .burst = 8,
             .gap_ms = 1100,
             .draft_gap_ms = 1000,
             .chat_burst = 8,
             .group_max = 19},
    .message = {.max = TG_LIMIT, .unit = SPLIT_UTF16},
};

static void tg_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                     struct sender_verdict *v)
{
    struct tg_outgoing *x = tg_outgoing_of(o);
    struct str chat = tg_outgoing_chat(x);

    if (x->op == ACTION_TYPING && room_ms(x) > 0) {
        v->end = SENDER_DONE;
        return;
    }
    if (!x->counted)
        pace_count(sender_budget(x->t->base.sender), chat, is_group(chat), class_of(x->op));
    x->counted = false;
    if (!x->t->rich || o->at > 0) /* refused meanwhile, or before a restart */
        buf_reset(&x->rich);
    for (; x->part_at < o->at; x->part_at++) {
        md_next(&x->md, TG_LIMIT, &x->part);
        x->plain = false;
    }
    if (x->op == ACTION_SEND_MEDIA && o->at == 0) {
        write_media(x, q);
        v->end = SENDER_GO;
        return;
    }
    if (x->op == ACTION_EDIT) { /* Telegram removes buttons that an edit does not repeat */
        char id[24];
        snprintf(id, sizeof id, "%" PRId64, x->message_id);
        const struct prompt *shown =
            prompts_of_message(x->t->base.prompts, tg_outgoing_chat(x), str_of(id));
        buf_reset(&x->markup);
        if (shown != NULL)
            tg_write_keyboard(&x->markup, shown);
    }
    const char *method = write_body(&q->body, x);
    buf_printf(&q->url, "%s%s", x->t->url, method);
    q->headers[0] = "Content-Type: application/json";
    q->once = x->op == ACTION_THREAD_CREATE || x->op == ACTION_SEND || x->op == ACTION_SEND_MEDIA ||
              x->op == ACTION_PROMPT;
    v->end = SENDER_GO;
}

/* ---- the answer ---- */

static void set_id(struct sender_verdict *v, int64_t id)
{
    v->end = SENDER_DONE;
    snprintf(v->message_id, sizeof v->message_id, "%" PRId64, id);
}

/* Also for refusals that have nothing to do with the text: the second one tells. */
static bool retry_without_rich(struct tg_outgoing *x, const struct tg_answer *a)
{
    struct telegram *t = x->t;

    if (x->rich.n == 0 || (a->code != 400 && a->code != 404))
        return false;
    if (a->code == 404)
        t->rich = false; /* an older API server: it is not asked again */
    t->n.plain++;
    log_warn(&t->base.log, "Telegram refused a rich message, sending text with entities: %s",
             a->why);
    buf_reset(&x->rich);
    return true;
}

static void on_refusal(struct tg_outgoing *x, const struct tg_answer *a, struct sender_verdict *v)
{
    const char *sentence = tg_refusal(a->code, a->why);

    if (x->op == ACTION_DRAFT && a->code == 404 && x->rich.n == 0) {
        x->t->drafts = false; /* an older API server: answers stream by edits from now on */
        sentence = "this API server shows no previews";
    }
    if (x->op == ACTION_EDIT && strstr(a->why, "message is not modified") != NULL) {
        set_id(v, x->message_id);
        return;
    }
    sender_say(v, SENDER_REFUSED, "Telegram refused: %.230s", sentence != NULL ? sentence : a->why);
    if (x->op == ACTION_EDIT && !x->captioned && strstr(a->why, "no text in the message") != NULL) {
        x->captioned = true; /* the message is a file: edit its caption */
        buf_reset(&x->rich);
        v->end = SENDER_REWRITE;
    } else if (retry_without_rich(x, a) || retry_as_document(x, a)) {
        v->end = SENDER_REWRITE;
    } else if (!x->plain && tg_refuses_entities(a)) {
        x->t->n.plain++;
        log_warn(&x->t->base.log, "Telegram refused entities, sending plain text: %s", a->why);
        x->plain = true;
        v->end = SENDER_REWRITE;
    }
}

static void on_ok(struct tg_outgoing *x, struct json result, struct sender_verdict *v)
{
    v->end = SENDER_DONE;
    if (x->op == ACTION_GET_CHAT_INFO) {
        struct str type = json_str(result, "type"), last = json_str(result, "last_name");
        struct buf *person = &x->t->scratch;
        v->chat_name = json_str(result, "title");
        v->chat_type = STR("group");
        if (str_eq(type, STR("private"))) {
            buf_reset(person);
            buf_add_str(person, json_str(result, "first_name"));
            buf_printf(person, "%s%.*s", last.n > 0 ? " " : "", STR_FMT(last));
            v->chat_name = buf_str(person);
            v->chat_type = STR("dm");
        } else if (str_eq(type, STR("channel"))) {
            v->chat_type = STR("channel");
        } else if (json_as_bool(json_get(result, "is_forum"), false)) {
            v->chat_type = STR("forum");
        }
        if (v->chat_name.n == 0)
            v->chat_name = str_of(x->chat);
    } else if (x->op == ACTION_THREAD_CREATE) {
        int64_t topic = json_i64(result, "message_thread_id", 0);
        snprintf(v->thread_id, sizeof v->thread_id, "%" PRId64, topic);
        tg_topic_named(x->t, tg_outgoing_chat(x), topic, str_of(x->word), true);
    } else if (x->op == ACTION_THREAD_RENAME) {
        tg_topic_named(x->t, tg_outgoing_chat(x), x->message_id, str_of(x->word), true);
    } else if (x->op == ACTION_EDIT) {
        x->t->n.edits++;
        set_id(v, x->message_id);
    } else if (x->op == ACTION_SEND || x->op == ACTION_SEND_MEDIA || x->op == ACTION_PROMPT) {
        int64_t id = json_i64(result, "message_id", 0);
        if (x->rich.n > 0)
            x->out.n_parts = 1; /* it held all parts */
        tg_reactions_sent(x->t, tg_outgoing_chat(x), id, x->thread);
        set_id(v, id);
    }
}

/* True for actions that are retried until they are too old. */
static bool says(const struct tg_outgoing *x)
{
    return x->op != ACTION_TYPING && x->op != ACTION_GET_CHAT_INFO && x->op != ACTION_REACT &&
           x->op != ACTION_DRAFT;
}

static void tg_read(struct platform *p, struct outgoing *o, const struct http_result *r,
                    struct sender_verdict *v)
{
    struct tg_outgoing *x = tg_outgoing_of(o);
    struct telegram *t = x->t;
    struct tg_answer a;

    tg_answer_read(t, t->base.answers, r, &a);
    snprintf(v->why, sizeof v->why, "%.150s", a.why);
    switch (a.outcome) {
    case TG_OK:
        on_ok(x, a.result, v);
        return;
    case TG_LATER:
        note_limit(x, a.retry_after_ms);
        wait_for(v, a.retry_after_ms);
        if (x->op == ACTION_TYPING || x->op == ACTION_DRAFT)
            v->end = SENDER_FAILED; /* useless when late */
        return;
    case TG_REFUSED:
        if (a.migrate_to != 0 && x->moves < MAX_FOLLOWED) {
            char id[24];
            snprintf(id, sizeof id, "%" PRId64, a.migrate_to);
            tg_chat_moved(x->t, tg_outgoing_chat(x), str_of(id));
            x->moves++;
            x->thread = x->reply_to = 0; /* ids of the old group are not valid in the new one */
            sender_say(v, SENDER_REWRITE, "the group became a supergroup");
        } else
            on_refusal(x, &a, v);
        return;
    case TG_BROKEN:
        v->end = ++x->broken < MAX_BROKEN || says(x) ? SENDER_AGAIN : SENDER_FAILED;
        return;
    case TG_DOWN: /* handled by the sender */
    case TG_UNKNOWN:
        snprintf(v->why, sizeof v->why, "Telegram did not answer; it may have been delivered");
        return;
    }
}

const struct sender_ops tg_sender = {
    .write = tg_write,
    .read = tg_read,
    .wait = tg_wait,
    .free = outgoing_free,
    .stream = &streaming,
};

/* ---- checking actions ---- */

/* Splits the text into parts.  Returns the reason why it cannot be sent, or NULL. */
static const char *read_content(struct tg_outgoing *x, const struct action *a, size_t max_parts)
{
    size_t parts = 0;

    /* Checked before parsing: a megabyte of Markdown would block the loop. */
    if (utf16_units(a->content) > TG_MAX_PARTS * (size_t)TG_LIMIT)
        return "the message is longer than sixteen Telegram messages";
    md_parse(&x->md, a->content);
    for (struct md_part p = {0}; parts <= max_parts && md_next(&x->md, TG_LIMIT, &p);)
        parts++;
    x->out.n_parts = parts;
    if (parts == 0)
        return "the message is empty";
    if (parts > max_parts)
        return max_parts == 1 ? "the edited text is longer than one Telegram message holds (4096)"
                              : "the message is longer than sixteen Telegram messages";
    md_next(&x->md, TG_LIMIT, &x->part);
    if (x->t->rich && utf8_chars(a->content) <= TG_RICH)
        buf_add_str(&x->rich, a->content);
    return NULL;
}

/* Telegram allows bots few emoji for reactions.  Agents mark the end of a turn with a check mark
 * or a cross, which are not allowed; they become thumbs up and down. */
static struct str reaction_of(struct str emoji)
{
    if (str_eq(emoji, STR("\xe2\x9c\x85")))
        return STR("\xf0\x9f\x91\x8d");
    return str_eq(emoji, STR("\xe2\x9d\x8c")) ? STR("\xf0\x9f\x91\x8e") : emoji;
}

static const char *read_thread_or_reaction(struct tg_outgoing *x, const struct action *a)
{
    struct str word = x->op == ACTION_REACT ? reaction_of(a->emoji) : a->thread_name;

    if (x->op != ACTION_THREAD_CREATE &&
        (!str_to_i64(a->message_id, &x->message_id) || x->message_id <= 0))
        return "message_id is not one of Telegram's";
    if (word.n == 0 || utf8_chars(word) > 100)
        return "an emoji or a name is missing, or too long";
    const struct tg_topic *topic = x->op == ACTION_THREAD_RENAME
                                       ? tg_topic_find(x->t, tg_outgoing_chat(x), x->message_id)
                                       : NULL;
    if ((a->only_if_current_name.p != NULL || a->only_if_connector_created) && topic == NULL)
        return "Telegram has not told the name of this topic since bellhop started";
    if (a->only_if_current_name.p != NULL && !str_eq(a->only_if_current_name, str_of(topic->name)))
        return "the topic has another name by now";
    if (a->only_if_connector_created && !topic->ours)
        return "the name of this topic is not the one bellhop gave it";
    x->thread = 0;
    if (!a->remove || x->op != ACTION_REACT)
        x->word = str_dup(word);
    return NULL;
}

static const char *read_media(struct tg_outgoing *x, const struct action *a)
{
    struct md_part p = {0};
    size_t parts = 1;

    attachment_copy(&x->file, a);
    if (utf16_units(a->content) > TG_MAX_PARTS * (size_t)TG_LIMIT)
        return "the caption is longer than sixteen Telegram messages";
    md_parse(&x->md, a->content);
    x->captioned = md_next(&x->md, TG_CAPTION, &p);
    x->part = p;
    while (x->captioned && parts <= TG_MAX_PARTS && md_next(&x->md, TG_LIMIT, &p))
        parts++;
    x->out.n_parts = parts;
    return parts > TG_MAX_PARTS ? "the caption is longer than sixteen Telegram messages" : NULL;
}

static bool typing_needs_nothing(struct telegram *t, const struct action *a)
{
    struct str chat = tg_chat_now(t, a->chat_id);

    return (a->content_set && str_is_empty(a->content)) ||
           pace_wait_ms(sender_budget(t->base.sender), chat, is_group(chat), PACE_TYPING) >= 1000 ||
           tg_chat_typed(t, chat);
}

static bool is_chat_id(struct str id)
{
    int64_t number;

    if (id.n == 0 || id.n >= TG_CHAT_CHARS || memchr(id.p, '\0', id.n) != NULL)
        return false;
    return str_to_i64(id, &number) || (id.p[0] == '@' && id.n > 1);
}

static struct tg_outgoing *outgoing_new(struct telegram *t, const struct action *a)
{
    struct tg_outgoing *x = xcalloc(1, sizeof *x);

    x->t = t;
    x->op = a->op;
    x->counted = a->stream != NULL;
    memcpy(x->chat, a->chat_id.p, a->chat_id.n);
    bool says = a->op == ACTION_SEND || a->op == ACTION_PROMPT || a->op == ACTION_SEND_MEDIA;
    if (!says || !str_to_i64(a->reply_to, &x->reply_to) || x->reply_to < 0)
        x->reply_to = 0;
    if (!str_to_i64(a->thread_id, &x->thread) || x->thread <= GENERAL_TOPIC)
        x->thread = 0; /* Telegram refuses the number of the General topic */
    return x;
}

/* Two agents in one chat must not use the same number. */
static int64_t draft_number(const struct action_from *from, const struct action *a)
{
    BUF_LOCAL key = BUF_INIT;

    buf_printf(&key, "%.*s\x1f%.*s\x1f%" PRId64, STR_FMT(from->tenant), STR_FMT(from->instance),
               a->draft_id);
    return (int64_t)(hash64(hash_process_key(), buf_str(&key)) & 0x3fffffff) + 1;
}

static void start(struct telegram *t, struct sender_order *q)
{
    struct tg_outgoing *x = outgoing_new(t, q->action);
    int64_t number;

    q->twice = x->op == ACTION_EDIT || x->op == ACTION_THREAD_RENAME ? TWICE_IS_ONE : TWICE_IS_TWO;
    x->out.n_parts = 1;
    if (x->op == ACTION_PROMPT)
        q->wrong = prompt_wrong(q->action);
    if ((x->op == ACTION_SEND || x->op == ACTION_PROMPT) && q->wrong == NULL)
        q->wrong = read_content(x, q->action, TG_MAX_PARTS);
    else if (x->op == ACTION_EDIT) {
        bool named = str_to_i64(q->action->message_id, &x->message_id) && x->message_id > 0;
        x->thread = 0; /* the message id implies the topic */
        q->wrong = named ? read_content(x, q->action, 1) : "there is no such message to edit";
    } else if (x->op == ACTION_DRAFT) {
        q->wrong = read_content(x, q->action, TG_MAX_PARTS);
        x->out.n_parts = 1;
        x->draft = draft_number(q->from, q->action);
    } else if (x->op == ACTION_SEND_MEDIA)
        q->wrong = read_media(x, q->action);
    else if (x->op == ACTION_REACT || x->op == ACTION_THREAD_CREATE ||
             x->op == ACTION_THREAD_RENAME)
        q->wrong = read_thread_or_reaction(x, q->action);
    if (q->action->thread_id.n > 0 && !str_to_i64(q->action->thread_id, &number))
        q->wrong = "metadata.thread_id is not the number of a topic";
    q->lane = tg_outgoing_chat(x);
    if (q->wrong == NULL && x->op == ACTION_PROMPT)
        tg_write_keyboard(&x->markup, prompts_add(t->base.prompts, q->from, q->action, q->lane));
    /* A preview is in the lane of the messages: it must not be shown after the answer. */
    q->apart = x->op != ACTION_SEND && x->op != ACTION_SEND_MEDIA && x->op != ACTION_PROMPT &&
               x->op != ACTION_DRAFT;
    sender_act(t->base.sender, &x->out, q);
}

void tg_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a)
{
    struct telegram *t = telegram_of(p);
    struct sender_order q = {.id = id, .from = from, .action = a};

    if (!is_chat_id(a->chat_id))
        host_fail(p->host, id, "\"%.*s\" is no Telegram chat",
                  (int)(a->chat_id.n < 64 ? a->chat_id.n : 64),
                  a->chat_id.p != NULL ? a->chat_id.p : "");
    else if ((telegram_ops.descriptor->ops & 1u << a->op) == 0 && a->op != ACTION_DRAFT)
        host_fail(p->host, id, "unsupported op: %s", action_op_name(a->op));
    else if (a->op == ACTION_TYPING && typing_needs_nothing(t, a))
        host_result(p->host, id, &(struct action_result){.success = true});
    else
        start(t, &q);
}
