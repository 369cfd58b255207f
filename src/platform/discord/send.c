/* send.c - design.  (discord_priv.h has the calls.)
 *
 * A text longer than Discord takes goes out in parts, one request after the other at one place in
 * the channel's lane, so nothing else of that channel comes between them.  Every part carries a
 * nonce which Discord enforces: a request repeated after a lost answer returns the message that is
 * already there instead of a second one.
 *
 * Before the first part leaves, the intent to send is on disk: a crash in the middle is reported as
 * "may have been delivered" to a gateway that asks for the same again, never repeated blindly.
 *
 * While an interaction waits for its answer, a send to its channel goes out through its token: the
 * first part edits "thinking ...", the rest follows.  Should Discord have forgotten the token, the
 * message goes to the channel as any other.
 *
 * An agent can never ping a role or everyone, whatever it writes; the people it names and the one
 * it answers, it can. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "edge/vault.h"
#include "platform/discord/discord_priv.h"
#include "platform/intent.h"
#include "platform/split.h"

enum { MAX_CONTENT = 2000, TYPING_SHOWS_MS = 8000, TYPING_PATIENCE_MS = 5000 };

struct sending { /* one action under way */
    struct list link;
    struct discord *d; /* borrowed */
    struct action_id id;
    struct rest_call *call;
    struct intent intent;
    struct hook *hook; /* owned; out through an interaction's token; NULL: as the bot */
    uint64_t channel_id;
    uint64_t message_id; /* what is edited; 0: a new message */
    uint64_t reply_to;   /* 0: none */
    uint64_t nonce;
    struct split parts; /* owned */
    size_t at;          /* the part under way */
    bool follow_up;     /* only through its token */
    char first_id[24];  /* of the first part, once it is there */
};

static rest_done_cb on_part, on_typing, on_info;

void send_init(struct discord *d)
{
    list_init(&d->sendings);
}

static struct sending *sending_new(struct discord *d, struct action_id id, uint64_t channel_id)
{
    struct sending *s = xcalloc(1, sizeof *s);

    s->d = d;
    s->id = id;
    s->channel_id = channel_id;
    list_init(&s->link);
    list_append(&d->sendings, &s->link);
    return s;
}

static void sending_free(struct sending *s)
{
    rest_cancel(&s->call);
    intent_end(&s->intent);
    hook_free(s->hook);
    list_remove(&s->link);
    split_done(&s->parts);
    free(s);
}

void send_done(struct discord *d)
{
    intents_free(d->intents); /* first: those under way are being cut off and stay on disk */
    d->intents = NULL;
    list_each (&d->sendings, it, nxt)
        sending_free(list_entry(it, struct sending, link));
}

static void fail(struct sending *s, const struct rest_answer *a)
{
    struct buf text = BUF_INIT;

    /* Some of it is there: that is neither a failure nor a success, and must not be sent again. */
    if (s->first_id[0] != '\0')
        buf_printf(&text, ACTION_ERROR_UNKNOWN "only %zu of %zu parts were delivered", s->at,
                   s->parts.n);
    else
        errors_write(&text, a);
    host_result(s->d->base.host, s->id, &(struct action_result){.error = buf_str(&text)});
    buf_done(&text);
    sending_free(s);
}

/* ---- messages ---- */

static void write_body(const struct sending *s, bool edit, struct buf *out)
{
    struct jw w = jw_begin(out);
    bool reply = s->reply_to != 0 && s->at == 0 && s->hook == NULL;
    char text[32];

    jw_obj(&w);
    jw_kstr(&w, "content", split_part(&s->parts, s->at));
    jw_key(&w, "allowed_mentions");
    jw_raw(&w, reply ? STR("{\"parse\":[\"users\"],\"replied_user\":true}")
                     : STR("{\"parse\":[\"users\"]}"));
    if (!edit && s->hook == NULL) {
        snprintf(text, sizeof text, "%016" PRIx64 ".%zu", s->nonce, s->at % 100000);
        jw_kstr(&w, "nonce", str_of(text));
        jw_kbool(&w, "enforce_nonce", true);
    }
    if (reply) {
        snprintf(text, sizeof text, "%" PRIu64, s->reply_to);
        jw_key(&w, "message_reference");
        jw_obj(&w);
        jw_kstr(&w, "message_id", str_of(text));
        jw_kbool(&w, "fail_if_not_exists", false);
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
}

static bool is_edit(const struct sending *s)
{
    return s->hook != NULL ? hook_edits(s->hook, s->at) : s->message_id != 0 && s->at == 0;
}

/* A token that expired meanwhile leaves a send its ordinary way, and a follow-up none. */
static bool write_path(struct sending *s, struct buf *out)
{
    if (s->hook != NULL && hook_path(s->hook, s->at, out))
        return true;
    hook_free(s->hook);
    s->hook = NULL;
    buf_printf(out, "/channels/%" PRIu64 "/messages", s->channel_id);
    if (is_edit(s))
        buf_printf(out, "/%" PRIu64, s->message_id);
    return !s->follow_up;
}

static void refuse_follow_up(struct sending *s)
{
    s->call = NULL;
    if (s->first_id[0] != '\0')
        host_fail(s->d->base.host, s->id,
                  ACTION_ERROR_UNKNOWN "only %zu of %zu parts were delivered", s->at, s->parts.n);
    else
        host_fail(s->d->base.host, s->id, "%s", VAULT_REFUSED);
    sending_free(s);
}

static void send_part(struct sending *s, bool first)
{
    struct buf body = BUF_INIT, path = BUF_INIT;
    char major[24];

    if (!write_path(s, &path)) {
        buf_done(&path);
        refuse_follow_up(s);
        return;
    }
    write_body(s, is_edit(s), &body);
    const char *method = is_edit(s) ? "PATCH" : "POST";
    const char *route = s->hook != NULL ? "hook" : is_edit(s) ? "edit" : "send";
    snprintf(major, sizeof major, "%" PRIu64, s->channel_id);
    if (first)
        s->call = rest_send(s->d->rest,
                            &(struct rest_request){.method = method,
                                                   .route = route,
                                                   .major = str_of(major),
                                                   .path = buf_str(&path),
                                                   .body = buf_str(&body),
                                                   .repeatable = true},
                            on_part, s);
    else
        rest_continue(s->call, method, route, buf_str(&path), buf_str(&body));
    buf_wipe(&path);
    buf_done(&body);
}

/* Discord does not know the token, or what it should edit, any more. */
static bool is_gone(const struct rest_answer *a)
{
    return a->status == 401 || a->status == 404;
}

/* The token was good for nothing: a send goes to the channel, a follow-up has no other way. */
static void without_hook(struct sending *s)
{
    hook_used(s->hook);
    hook_free(s->hook);
    s->hook = NULL;
    if (s->follow_up)
        refuse_follow_up(s);
    else
        send_part(s, false);
}

static void on_part(void *ctx, const struct rest_answer *a)
{
    struct sending *s = ctx;
    struct str id = json_str(a->body, "id");

    /* The channel hides its history from us: the answer stands without the quote. */
    if (a->end == REST_REFUSED && a->code == 160002 && s->reply_to != 0) {
        s->reply_to = 0;
        send_part(s, false);
        return;
    }
    if (a->end == REST_REFUSED && s->hook != NULL && s->at == 0 && is_gone(a)) {
        without_hook(s);
        return;
    }
    if (a->end != REST_OK) {
        s->call = NULL;
        fail(s, a);
        return;
    }
    if (s->hook != NULL)
        hook_used(s->hook);
    if (s->first_id[0] == '\0' && id.n < sizeof s->first_id && snowflake(id) != 0)
        memcpy(s->first_id, id.p, id.n);
    if (++s->at < s->parts.n) {
        send_part(s, false);
        return;
    }
    s->call = NULL;
    host_result(s->d->base.host, s->id,
                &(struct action_result){.success = true, .message_id = str_of(s->first_id)});
    sending_free(s);
}

static void on_intent(struct intent *it, enum bh_err err)
{
    struct sending *s = container_of(it, struct sending, intent);

    if (err != BH_OK) {
        host_fail(s->d->base.host, s->id,
                  ACTION_ERROR_TRANSIENT "bellhop's store cannot be written; nothing was sent");
        sending_free(s);
        return;
    }
    send_part(s, true);
}

/* What makes two requests the same one. */
static void write_what(const struct sending *s, const struct action *a, struct buf *out)
{
    buf_printf(out, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " ", action_op_name(a->op), s->channel_id,
               s->message_id, s->reply_to);
    buf_add_str(out, a->content);
}

static void begin_message(struct sending *s, const struct action *a)
{
    struct buf what = BUF_INIT;

    write_what(s, a, &what);
    if (intents_was_cut_off(s->d->intents, buf_str(&what))) {
        host_fail(s->d->base.host, s->id,
                  ACTION_ERROR_UNKNOWN
                  "bellhop was restarted while this was being sent; it may have "
                  "been delivered");
        sending_free(s);
    } else {
        intent_begin(s->d->intents, &s->intent, buf_str(&what), on_intent);
    }
    buf_done(&what);
}

static void start_message(struct discord *d, struct action_id id, uint64_t channel_id,
                          const struct action *a, struct hook *hook)
{
    struct sending *s = sending_new(d, id, channel_id);

    s->hook = hook;
    s->follow_up = a->op == ACTION_FOLLOW_UP;

    if (a->op == ACTION_EDIT)
        s->message_id = snowflake(a->message_id);
    else if (a->op == ACTION_SEND)
        s->reply_to = snowflake(a->reply_to);
    s->nonce = rand_u64(d->env->rand);
    split_text(&s->parts, a->content, MAX_CONTENT, SPLIT_CHARS);
    if (a->op == ACTION_EDIT && s->message_id == 0) {
        host_fail(d->base.host, id, "message_id is not the id of a Discord message");
        sending_free(s);
    } else if (s->parts.n == 0) {
        host_fail(d->base.host, id, "there is nothing to send: the text is empty");
        sending_free(s);
    } else {
        begin_message(s, a);
    }
}

/* ---- typing ---- */

static bool typing_shows(const struct discord *d, uint64_t channel_id)
{
    for (size_t i = 0; i < ARRAY_LEN(d->typing); i++)
        if (d->typing[i].channel_id == channel_id &&
            d->typing[i].until_ms > clock_now_ms(d->env->clock))
            return true;
    return false;
}

static void on_typing(void *ctx, const struct rest_answer *a)
{
    struct sending *s = ctx;
    struct discord *d = s->d;

    s->call = NULL;
    if (a->end != REST_OK) {
        fail(s, a);
        return;
    }
    d->typing[d->typing_at % ARRAY_LEN(d->typing)].channel_id = s->channel_id;
    d->typing[d->typing_at++ % ARRAY_LEN(d->typing)].until_ms =
        clock_now_ms(d->env->clock) + TYPING_SHOWS_MS;
    host_result(d->base.host, s->id, &(struct action_result){.success = true});
    sending_free(s);
}

/* Gateways repeat it every two seconds, Discord shows it for ten: most of them need no request.  It
 * has a lane of its own, so that an answer never waits behind it. */
static void start_typing(struct discord *d, struct action_id id, uint64_t channel_id,
                         const struct action *a)
{
    char path[64], major[24], lane[32];

    if ((a->content_set && str_is_empty(a->content)) || typing_shows(d, channel_id)) {
        host_result(d->base.host, id, &(struct action_result){.success = true});
        return;
    }
    struct sending *s = sending_new(d, id, channel_id);
    snprintf(path, sizeof path, "/channels/%" PRIu64 "/typing", channel_id);
    snprintf(major, sizeof major, "%" PRIu64, channel_id);
    snprintf(lane, sizeof lane, "typing %" PRIu64, channel_id);
    s->call = rest_send(d->rest,
                        &(struct rest_request){.method = "POST",
                                               .route = "typing",
                                               .major = str_of(major),
                                               .path = str_of(path),
                                               .lane = str_of(lane),
                                               .patience_ms = TYPING_PATIENCE_MS,
                                               .repeatable = true},
                        on_typing, s);
}

/* ---- chat info ---- */

static const char *chat_type_of(int64_t type)
{
    if (channel_type_is_thread((int)type))
        return "thread";
    return type == CHANNEL_DM || type == CHANNEL_GROUP_DM ? "dm" : "group";
}

static void on_info(void *ctx, const struct rest_answer *a)
{
    struct sending *s = ctx;
    struct json person = {0};
    int64_t type = 0;

    s->call = NULL;
    if (a->end != REST_OK) {
        fail(s, a);
        return;
    }
    json_as_i64(json_get(a->body, "type"), &type);
    for (struct json_iter it = {0};
         person.doc == NULL && json_next(json_get(a->body, "recipients"), &it);)
        person = it.value;
    struct str name = json_str(a->body, "name");
    if (str_is_empty(name))
        name = json_str(person, "global_name");
    if (str_is_empty(name))
        name = json_str(person, "username");
    host_result(s->d->base.host, s->id,
                &(struct action_result){.success = true,
                                        .chat_name = name,
                                        .chat_type = str_of(chat_type_of(type))});
    sending_free(s);
}

static void start_info(struct discord *d, struct action_id id, uint64_t channel_id)
{
    const struct dcache_channel *ch = dcache_channel(d->cache, channel_id);
    char path[64], major[24];

    if (ch != NULL && ch->name != NULL) {
        host_result(d->base.host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = str_of(ch->name),
                                            .chat_type = str_of(chat_type_of(ch->type))});
        return;
    }
    struct sending *s = sending_new(d, id, channel_id);
    snprintf(path, sizeof path, "/channels/%" PRIu64, channel_id);
    snprintf(major, sizeof major, "%" PRIu64, channel_id);
    s->call = rest_send(d->rest,
                        &(struct rest_request){.method = "GET",
                                               .route = "channel",
                                               .major = str_of(major),
                                               .path = str_of(path),
                                               .lane = STR("channels"),
                                               .repeatable = true},
                        on_info, s);
}

/* ---- the platform's entrance ---- */

/* metadata.thread_id is a claim: it is followed only into a thread of the very chat that the relay
 * has checked. */
static uint64_t target_of(struct discord *d, const struct action *a)
{
    uint64_t chat = snowflake(a->chat_id), thread = snowflake(a->thread_id);
    const struct dcache_channel *ch = thread != 0 ? dcache_channel(d->cache, thread) : NULL;

    return ch != NULL && channel_type_is_thread(ch->type) && ch->parent_id == chat ? thread : chat;
}

static void start_follow_up(struct discord *d, struct action_id id, const struct action_from *from,
                            const struct action *a)
{
    uint64_t channel_id = 0;
    struct hook *h = hook_for_follow_up(d, from, a, &channel_id);

    if (h != NULL)
        start_message(d, id, channel_id, a, h);
    else
        host_fail(d->base.host, id, "%s", VAULT_REFUSED);
}

void send_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a)
{
    struct discord *d = discord_of(p);
    uint64_t channel_id = target_of(d, a);

    if (a->op == ACTION_FOLLOW_UP) {
        start_follow_up(d, id, from, a);
        return;
    }
    if (channel_id == 0) {
        host_fail(p->host, id, "chat_id is not the id of a Discord channel");
        return;
    }
    switch (a->op) {
    case ACTION_SEND:
        start_message(d, id, channel_id, a,
                      hook_for_send(d, from, snowflake(a->chat_id), a->user_id));
        break;
    case ACTION_EDIT:
        start_message(d, id, channel_id, a, NULL);
        break;
    case ACTION_TYPING:
        start_typing(d, id, channel_id, a);
        break;
    case ACTION_GET_CHAT_INFO:
        start_info(d, id, channel_id);
        break;
    default:
        host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
        break;
    }
}
