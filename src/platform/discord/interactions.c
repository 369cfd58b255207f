/* interactions.c - verifies, parses, delivers and answers Discord's interactions.  (interactions.h
 * has the pure parts, discord_priv.h the other calls.)
 *
 *      webhook --signed?--no--> 401             PING, autocomplete --> answered here
 *      socket ----.  |
 *                 '--+--> token to the vault, for every instance that receives the event
 *                    +--> event to the host --stored--> "thinking ..."      (or 503)
 *
 * An interaction comes as a webhook or, where the application has no address for webhooks, through
 * the socket.  Discord asks once and waits three seconds.  The answer goes out once the event is
 * stored: as the answer to the webhook, or as a request to the interaction's callback.  The agent's
 * next message goes out through the interaction's token, which the vault keeps (outbound.c).
 */
#include "platform/discord/interactions.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/frame.h"
#include "core/session_key.h"
#include "edge/sanitize.h"
#include "edge/vault.h"
#include "platform/discord/discord_priv.h"
#include "platform/prompts.h"

enum {
    KEEP_BYTES = 64 * 1024,
    DEADLINE_MS = 2500, /* of a webhook's answer */
    CALLBACK_MS = 3000,
    TOKEN_LIFE_MS = 15 * 60 * 1000 - 10000,
    TOKEN_MAX = 2048,
    OPTION_SUBCOMMAND = 1, /* Discord's numbers from here on */
    OPTION_GROUP = 2,
    OPTION_MAX_DEPTH = 4,
    ACTION_ROW = 1,
    BUTTON = 2,
    IN_A_ROW = 5,
};

#define PONG STR("{\"type\":1}")
#define NO_CHOICES STR("{\"type\":8,\"data\":{\"choices\":[]}}")
#define THINKING STR("{\"type\":5}")
#define SEEN STR("{\"type\":6}")
#define STOPPING STR("{\"type\":4,\"data\":{\"content\":\"Stopping.\",\"flags\":64}}")
#define CHECKING STR("{\"type\":4,\"data\":{\"content\":\"One moment.\",\"flags\":64}}")
#define NOBODY \
    STR("{\"type\":4,\"data\":{\"content\":\"Nobody answers commands here yet.\",\"flags\":64}}")
#define NOT_NOW \
    STR("{\"type\":4,\"data\":{\"content\":\"Not now: try again in a moment.\",\"flags\":64}}")
#define OVER \
    STR("{\"type\":4,\"data\":{\"content\":" \
        "\"This was answered already, or its time is up.\",\"flags\":64}}")
#define NOT_YOURS \
    STR("{\"type\":4,\"data\":{\"content\":\"This question is not for you.\",\"flags\":64}}")

/* ---- signatures: cheap checks come first ---- */

struct discord_sig {
    struct ed25519_key *key; /* owned */
    struct buf message;
};

struct discord_sig *discord_sig_new(struct str public_key)
{
    uint8_t bytes[ED25519_RAW_BYTES];

    if (!hex_decode(str_trim(public_key), bytes, sizeof bytes))
        return NULL;
    struct ed25519_key *key = ed25519_public_raw(bytes);
    if (key == NULL)
        return NULL;
    struct discord_sig *s = xcalloc(1, sizeof *s);
    s->key = key;
    return s;
}

void discord_sig_free(struct discord_sig *s)
{
    if (s == NULL)
        return;
    ed25519_free(s->key);
    buf_done(&s->message);
    free(s);
}

/* A cheap check: well-formed headers, and a timestamp within DISCORD_SIG_WINDOW_MS. */
static bool is_plausible(struct str timestamp, struct str signature, int64_t wall_ms,
                         uint8_t ret_bytes[ED25519_BYTES])
{
    return webhook_is_now(timestamp, wall_ms, DISCORD_SIG_WINDOW_MS) &&
           hex_decode(signature, ret_bytes, ED25519_BYTES);
}

bool discord_sig_ok(struct discord_sig *s, struct str timestamp, struct str signature,
                    struct str body, int64_t wall_ms)
{
    uint8_t bytes[ED25519_BYTES];

    if (!is_plausible(timestamp, signature, wall_ms, bytes))
        return false;
    buf_reset(&s->message);
    buf_add_str(&s->message, timestamp);
    buf_add_str(&s->message, body);
    bool ok = ed25519_verify(s->key, buf_str(&s->message), str_make(bytes, sizeof bytes));
    if (s->message.cap > KEEP_BYTES)
        buf_done(&s->message);
    return ok;
}

/* ---- reading ---- */

/* An id as text, also if it came as a number. */
static struct str id_of(struct json v, char room[24])
{
    uint64_t number;

    if (!json_as_u64(v, &number))
        return json_as_str(v);
    return str_make(room, (size_t)snprintf(room, 24, "%" PRIu64, number));
}

bool discord_interaction_read(struct json body, struct discord_interaction *ret)
{
    struct json channel = json_get(body, "channel");

    *ret = (struct discord_interaction){.body = body};
    if (!json_is_object(body) || !json_as_i64(json_get(body, "type"), &ret->type))
        return false;
    ret->id = id_of(json_get(body, "id"), ret->numbers[0]);
    ret->channel_id = id_of(json_get(body, "channel_id"), ret->numbers[1]);
    ret->guild_id = id_of(json_get(body, "guild_id"), ret->numbers[2]);
    ret->application_id = id_of(json_get(body, "application_id"), ret->numbers[4]);
    ret->token = json_str(body, "token");
    ret->name = json_str(json_get(body, "data"), "name");
    struct json member = json_get(body, "member"), user = json_get(member, "user");
    if (!json_is_object(user))
        user = json_get(body, "user");
    ret->user_id = id_of(json_get(user, "id"), ret->numbers[3]);
    ret->user_handle = json_str(user, "username");
    ret->user_display_name = json_str(member, "nick");
    if (str_is_empty(ret->user_display_name))
        ret->user_display_name = json_str(user, "global_name");
    if (str_is_empty(ret->user_display_name))
        ret->user_display_name = ret->user_handle;
    ret->user_name = ret->user_display_name;
    ret->by_bot = json_as_bool(json_get(user, "bot"), false);
    ret->in_thread = discord_channel_is_thread((int)json_i64(channel, "type", 0));
    ret->in_channel = !ret->in_thread && json_get(channel, "type").doc != NULL;
    ret->parent_id = id_of(json_get(channel, "parent_id"), ret->numbers[5]);
    return true;
}

static void add_word(struct buf *out, struct str word)
{
    word = str_trim(word);
    if (word.n == 0)
        return;
    buf_add_c(out, ' ');
    buf_add_str(out, word);
}

static void add_options(struct buf *out, struct json options, int depth)
{
    if (json_type(options) != JSON_ARRAY || depth > OPTION_MAX_DEPTH)
        return;
    for (struct json_iter it = {0}; json_next(options, &it);) {
        int64_t type = json_i64(it.value, "type", 0);
        if (type == OPTION_SUBCOMMAND || type == OPTION_GROUP) {
            add_word(out, json_str(it.value, "name"));
            add_options(out, json_get(it.value, "options"), depth + 1);
        } else {
            struct json v = json_get(it.value, "value");
            BUF_LOCAL text = BUF_INIT;
            struct jw w = jw_begin(&text);
            if (json_type(v) == JSON_STRING) {
                add_word(out, json_as_str(v));
            } else if (json_type(v) == JSON_BOOL) {
                add_word(out, json_as_bool(v, false) ? STR("True") : STR("False"));
            } else if (json_type(v) == JSON_NUMBER) {
                jw_value(&w, v);
                add_word(out, buf_str(&text));
            }
        }
    }
}

/* The fields of a form, one per line, at any depth. */
static void add_fields(struct buf *out, struct json v, int depth)
{
    if (depth > 2 * OPTION_MAX_DEPTH)
        return;
    if (json_type(v) == JSON_ARRAY)
        for (struct json_iter it = {0}; json_next(v, &it);)
            add_fields(out, it.value, depth + 1);
    if (!json_is_object(v))
        return;
    struct str value = str_trim(json_str(v, "value"));
    if (value.n > 0)
        buf_printf(out, "%s%.*s", out->n > 0 ? "\n" : "", STR_FMT(value));
    add_fields(out, json_get(v, "component"), depth + 1);
    add_fields(out, json_get(v, "components"), depth + 1);
}

void discord_interaction_text(const struct discord_interaction *x, struct buf *out)
{
    struct json data = json_get(x->body, "data");

    switch (x->type) {
    case INTERACTION_COMMAND:
        if (x->name.n == 0)
            break;
        buf_printf(out, "/%.*s", STR_FMT(x->name));
        add_options(out, json_get(data, "options"), 0);
        break;
    case INTERACTION_COMPONENT:
        buf_add_str(out, json_str(data, "custom_id"));
        break;
    case INTERACTION_MODAL:
        add_fields(out, json_get(data, "components"), 0);
        break;
    default:
        break;
    }
}

void discord_interaction_event_id(char ret[32], struct str id, bool opens_none)
{
    snprintf(ret, 32, "%c%.*s", opens_none ? 'c' : 'i', id.n < 24 ? (int)id.n : 24,
             id.p != NULL ? id.p : "");
}

static void set_common(struct discord_interaction *x, struct str bot, struct event *ev)
{
    *ev = (struct event){.platform = STR("discord"), .bot = bot};
    discord_interaction_event_id(x->event_id, x->id, x->in_parent && x->in_channel);
    ev->event_id = x->id.n > 0 ? str_of(x->event_id) : STR_NULL;
    ev->message_id = x->id;
    ev->chat_id = x->channel_id;
    ev->user_id = x->user_id;
    ev->user_name = x->user_name;
    ev->user_display_name = x->user_display_name;
    ev->user_handle = x->user_handle;
    ev->author_is_bot = x->by_bot;
    ev->mentions_bot = true; /* a command is always for the bot that it belongs to */
    ev->chat_type = STR("dm");
    if (x->guild_id.n > 0) {
        ev->scope_id = ev->route_key = x->guild_id;
        return;
    }
    snprintf(x->route_key, sizeof x->route_key, "dm:%.*s",
             x->user_id.n < 24 ? (int)x->user_id.n : 24, x->user_id.p != NULL ? x->user_id.p : "");
    ev->route_key = str_of(x->route_key);
}

void discord_interaction_as_forward(struct discord_interaction *x, struct str bot,
                                    struct event *ret)
{
    set_common(x, bot, ret);
    ret->filed_as = STR("relay");
    if (x->guild_id.n > 0)
        ret->chat_type = STR("channel");
}

void discord_interaction_as_message(struct discord_interaction *x, struct str bot, struct str text,
                                    struct event *ret)
{
    set_common(x, bot, ret);
    ret->text = text;
    if (x->type == INTERACTION_COMMAND)
        ret->message_type = STR("command");
    if (x->guild_id.n == 0)
        return;
    ret->chat_type = x->in_thread ? STR("thread") : STR("group");
    if (x->in_thread) {
        ret->thread_id = x->channel_id;
        ret->parent_chat_id = x->parent_id;
        if (x->in_parent && x->parent_id.n > 0)
            ret->chat_id = x->parent_id;
    }
}

/* ---- answering: to the webhook, or to the callback of an interaction from the socket ---- */

static void on_called_back(void *ctx, const struct sender_verdict *v)
{
    struct discord *d = ctx;

    if (v->end != SENDER_DONE)
        log_warn(&d->base.log,
                 "cannot answer an interaction, so the person sees that it failed: %s", v->why);
}

static void call_back(struct discord *d, struct str path, struct str body)
{
    discord_ask(d,
                &(struct discord_question){.method = "POST",
                                           .route = "callback",
                                           .path = path,
                                           .body = body,
                                           .by_token = true,
                                           .lane = path,
                                           .patience_ms = CALLBACK_MS},
                on_called_back, d);
}

static void write_callback_path(const struct discord_asker *to, struct buf *out)
{
    buf_printf(out, "/interactions/%.*s/%.*s/callback", STR_FMT(to->id), STR_FMT(to->token));
}

static void answer(struct discord *d, const struct discord_asker *to, struct str body)
{
    BUF_SECRET path = BUF_INIT;

    if (!to->by_socket) {
        http_answer(d->base.env->server, to->http,
                    &(struct http_answer){.status = 200, .body = body});
        return;
    }
    write_callback_path(to, &path);
    call_back(d, buf_str(&path), body);
}

static void refuse(struct discord *d, const struct discord_asker *to)
{
    if (!to->by_socket)
        await_refuse(&d->base, to->http, BH_MALFORMED);
}

/* @with: the path and the answer of an interaction that came through the socket, each with its NUL;
 * the path is secret. */
static void on_stored(struct platform *p, void *with, enum bh_err err)
{
    struct str path = str_of(with), good = str_of((const char *)with + path.n + 1);

    call_back(discord_of(p), path, err == BH_OK ? good : NOT_NOW);
}

/* Gives @x to the host, and answers with @good once it is stored. */
static void accept_and_answer(struct discord *d, const struct discord_asker *to,
                              const struct webhook_delivery *x, struct str good)
{
    if (!to->by_socket) {
        await_accept(&d->base, x, to->http, &(struct http_answer){.status = 200, .body = good},
                     DEADLINE_MS);
        return;
    }
    BUF_SECRET with = BUF_INIT;
    write_callback_path(to, &with);
    buf_add_c(&with, '\0');
    buf_add_str(&with, good);
    buf_add_c(&with, '\0');
    await_event(&d->base, x, with.p, with.n, on_stored);
}

/* ---- questions with buttons ----
 *
 * A press is answered by changing the message that asked: every button is disabled and the
 * chosen one stands out.  That answer may be lost or late, so discord_prompt_over() changes the
 * message too; for a question that timed out it removes the buttons.  A person who may not answer,
 * or comes too late, gets a private message that says so. */

/* Discord's numbers: 1 blurple, 2 grey, 3 green, 4 red. */
static int style_of(enum prompt_style style)
{
    static const int numbers[] = {
        [PROMPT_PLAIN] = 2, [PROMPT_PRIMARY] = 1, [PROMPT_SUCCESS] = 3, [PROMPT_DANGER] = 4};

    return numbers[style];
}

void discord_write_buttons(struct buf *out, const struct prompt *q,
                           const struct prompt_option *chosen)
{
    struct jw w = jw_begin(out);

    jw_arr(&w);
    for (size_t i = 0; i < q->n_options; i++) {
        if (i % IN_A_ROW == 0) {
            jw_obj(&w);
            jw_ki64(&w, "type", ACTION_ROW);
            jw_karr(&w, "components");
        }
        const struct prompt_option *o = &q->options[i];
        char token[PROMPT_TOKEN_MAX + 1];
        int style = o == chosen && o->style != PROMPT_DANGER ? style_of(PROMPT_SUCCESS)
                    : chosen != NULL && o != chosen          ? style_of(PROMPT_PLAIN)
                                                             : style_of(o->style);
        prompt_token(token, q, o);
        jw_obj(&w);
        jw_ki64(&w, "type", BUTTON);
        jw_ki64(&w, "style", style);
        jw_kstr(&w, "label", str_of(o->label));
        jw_kstr(&w, "custom_id", str_of(token));
        if (chosen != NULL)
            jw_kbool(&w, "disabled", true);
        jw_end_obj(&w);
        if (i % IN_A_ROW == IN_A_ROW - 1 || i + 1 == q->n_options) {
            jw_end_arr(&w);
            jw_end_obj(&w);
        }
    }
    jw_end_arr(&w);
}

static void on_tidied(void *ctx, const struct sender_verdict *v)
{
    prompts_tidied(ctx, v->end == SENDER_DONE || v->end == SENDER_REFUSED ? 0 : 1);
}

void discord_prompt_over(struct platform *p, struct prompt *q)
{
    struct discord *d = discord_of(p);
    BUF_LOCAL path = BUF_INIT, body = BUF_INIT;
    uint64_t channel = snowflake(str_of(q->chat)), message = snowflake(str_of(q->message_id));

    buf_printf(&path, "/channels/%" PRIu64 "/messages/%" PRIu64, channel, message);
    buf_add_z(&body, "{\"components\":");
    if (q->chosen != NULL)
        discord_write_buttons(&body, q, q->chosen);
    else
        buf_add_z(&body, "[]");
    buf_add_z(&body, "}");
    discord_ask(d,
                &(struct discord_question){.method = "PATCH",
                                           .route = "edit",
                                           .major = channel,
                                           .path = buf_str(&path),
                                           .body = buf_str(&body),
                                           .tenant = str_of(q->tenant),
                                           .lane = buf_str(&path)},
                on_tidied, q);
}

bool discord_press(struct discord *d, struct discord_interaction *x, const struct discord_asker *to)
{
    struct str payload = json_str(json_get(x->body, "data"), "custom_id");
    const struct prompt_option *o = NULL;
    BUF_LOCAL good = BUF_INIT;
    struct event ev;

    if (x->type != INTERACTION_COMPONENT || !prompt_is_token(payload))
        return false;
    discord_interaction_as_message(x, str_of(d->base.bot), STR(""), &ev);
    ev.event_id = STR_NULL;
    ev.press.message_id = json_str(json_get(x->body, "message"), "id");
    if (ev.press.message_id.n > 0)
        ev.message_id = ev.press.message_id;
    struct prompt *q =
        prompts_pressed_under(d->base.prompts, x->channel_id, payload, ev.press.message_id, &o);
    if (q == NULL) {
        answer(d, to, OVER);
    } else if (!prompt_may_answer(q, &ev)) {
        answer(d, to, NOT_YOURS);
    } else {
        buf_add_z(&good, "{\"type\":7,\"data\":{\"components\":");
        discord_write_buttons(&good, q, o);
        buf_add_z(&good, "}}");
        accept_and_answer(d, to, &(struct webhook_delivery){.ev = &ev, .prompt = q, .option = o},
                          buf_str(&good));
    }
    return true;
}

/* ---- tokens, kept in the vault ---- */

static bool is_path_safe(struct str s)
{
    return s.n > 0 && s.n <= TOKEN_MAX && s.p[0] != '.' && str_has_only(s, "-_.");
}

struct token_binding {
    struct discord *d;
    struct vault_spec spec;
    size_t n;
};

static void on_target(void *ctx, struct str tenant, struct str instance)
{
    struct token_binding *b = ctx;

    b->n++;
    b->spec.tenant = tenant;
    b->spec.instance = instance;
    if (b->spec.value.p != NULL)
        vault_bind(b->d->base.env->vault, &b->spec);
}

/* Adds the keys that a gateway may give the session of @ev. */
static void add_session_keys(struct buf keys[VAULT_KEYS], const struct event *ev)
{
    BUF_LOCAL key = BUF_INIT;

    for (size_t k = 0; k < SESSION_KEY_RULES; k++) {
        size_t i = 0;
        buf_reset(&key);
        session_key_of_event_as(&key, ev, &session_key_rules[k]);
        while (i < VAULT_KEYS && keys[i].n > 0 && !str_eq(buf_str(&keys[i]), buf_str(&key)))
            i++;
        if (i < VAULT_KEYS && keys[i].n == 0)
            buf_add_str(&keys[i], buf_str(&key));
    }
}

/* Lets every instance that receives @ev use the token; returns how many do. */
static size_t bind_token(struct discord *d, struct discord_interaction *x, const struct event *ev)
{
    struct buf keys[VAULT_KEYS] = {0}, place = BUF_INIT, value = BUF_INIT;
    struct str bot = str_of(d->base.bot);
    struct str app = is_path_safe(x->application_id) ? x->application_id : platform_id(&d->base);
    struct token_binding b = {.d = d};
    struct event other;

    discord_interaction_as_forward(x, bot, &other);
    add_session_keys(keys, &other);
    discord_interaction_as_message(x, bot, STR(""), &other);
    add_session_keys(keys, &other);
    discord_token_place(d, snowflake(x->channel_id), &place);
    buf_printf(&value, "%.*s\x1f%.*s\x1f%.*s", STR_FMT(app), STR_FMT(x->channel_id),
               STR_FMT(x->token));
    b.spec = (struct vault_spec){.kind = STR(DISCORD_TOKEN_KIND),
                                 .bot = bot,
                                 .chat = ev->chat_id,
                                 .scope = ev->scope_id,
                                 .id = x->id,
                                 .place = buf_str(&place),
                                 .user = x->user_id,
                                 .ttl_ms = TOKEN_LIFE_MS};
    for (size_t i = 0; i < VAULT_KEYS && keys[i].n > 0; i++)
        b.spec.session_keys[i] = buf_str(&keys[i]);
    /* A button shows no "thinking ...", so there is nothing to edit: every answer is a new
     * message. */
    b.spec.used = x->type == INTERACTION_COMPONENT;
    if (is_path_safe(x->token) && is_path_safe(app) && snowflake(x->channel_id) != 0)
        b.spec.value = buf_str(&value);
    if (x->in_thread)
        dcache_join_thread(d->cache, snowflake(x->channel_id), snowflake(x->user_id));
    host_each_target(d->base.host, ev, on_target, &b);
    buf_wipe(&value);
    buf_done(&place);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        buf_done(&keys[i]);
    return b.n;
}

/* ---- delivering ---- */

static bool write_forward(struct discord *d, struct discord_interaction *x, struct str path,
                          struct buf *out)
{
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);
    bool ok = sanitize_json(&w, x->body);

    frame_write_forward(out, &(struct forward){.platform = STR("discord"),
                                               .bot = str_of(d->base.bot),
                                               .method = STR("POST"),
                                               .path = path,
                                               .content_type = STR("application/json"),
                                               .body = buf_str(&body)});
    return ok;
}

static void forward(struct discord *d, struct discord_interaction *x,
                    const struct discord_asker *to, struct str answered)
{
    BUF_LOCAL json = BUF_INIT;
    struct event ev;

    discord_interaction_as_forward(x, str_of(d->base.bot), &ev);
    if (!write_forward(d, x, to->path, &json))
        refuse(d, to);
    else if (bind_token(d, x, &ev) == 0)
        answer(d, to, x->type == INTERACTION_COMPONENT ? SEEN : NOBODY);
    else
        accept_and_answer(d, to, &(struct webhook_delivery){.ev = &ev, .forward = buf_str(&json)},
                          answered);
}

/* Delivers the interaction as a message of the person.  "/link CODE" is for bellhop: the host
 * redeems the code as in a message and answers in the chat. */
static void deliver(struct discord *d, struct discord_interaction *x,
                    const struct discord_asker *to, struct str answered, bool link)
{
    BUF_LOCAL text = BUF_INIT;
    struct event ev;

    discord_interaction_text(x, &text);
    discord_interaction_as_message(x, str_of(d->base.bot), buf_str(&text), &ev);
    if (link)
        accept_and_answer(d, to, &(struct webhook_delivery){.ev = &ev}, CHECKING);
    else if (text.n == 0 || bind_token(d, x, &ev) == 0)
        answer(d, to, x->type == INTERACTION_COMPONENT ? SEEN : NOBODY);
    else
        accept_and_answer(d, to, &(struct webhook_delivery){.ev = &ev}, answered);
}

static void on_stopped(void *ctx, enum bh_err err)
{
}

static void take_interaction(struct discord *d, struct discord_interaction *x,
                             const struct discord_asker *to)
{
    struct str answered = x->type == INTERACTION_COMPONENT ? SEEN : THINKING;
    bool link = x->type == INTERACTION_COMMAND && str_eq_ci(x->name, STR("link"));

    d->count.interactions++;
    if (discord_press(d, x, to))
        return;
    if (d->cfg->auto_thread)
        discord_auto_at(d, snowflake(x->id), snowflake(x->channel_id));
    if (x->type == INTERACTION_COMMAND && str_eq_ci(x->name, STR("stop"))) {
        /* The turn may have begun with a command or a message: their session keys differ. */
        struct event ev;
        discord_interaction_as_message(x, str_of(d->base.bot), STR("/stop"), &ev);
        host_accept(d->base.host, &d->base, &ev, on_stopped, NULL);
        discord_interaction_as_forward(x, str_of(d->base.bot), &ev);
        ev.event_id = STR_NULL;
        ev.text = STR("/stop");
        ev.only_stops = true;
        host_accept(d->base.host, &d->base, &ev, on_stopped, NULL);
        answer(d, to, STOPPING);
    } else if (link || d->inbound_interactions)
        deliver(d, x, to, answered, link);
    else
        forward(d, x, to, answered);
}

static void handle(struct discord *d, struct discord_interaction *x, const struct discord_asker *to)
{
    x->in_parent = d->cfg->auto_thread;
    switch (x->type) {
    case INTERACTION_PING:
        answer(d, to, PONG);
        break;
    case INTERACTION_AUTOCOMPLETE:
        answer(d, to, NO_CHOICES);
        break;
    case INTERACTION_COMMAND:
    case INTERACTION_COMPONENT:
    case INTERACTION_MODAL:
        take_interaction(d, x, to);
        break;
    default:
        refuse(d, to);
        break;
    }
}

void discord_interaction_dispatch(struct discord *d, struct json interaction)
{
    struct discord_interaction x;

    if (!discord_interaction_read(interaction, &x) || snowflake(x.id) == 0 ||
        !is_path_safe(x.token)) {
        d->base.n.malformed++;
        return;
    }
    handle(d, &x,
           &(struct discord_asker){
               .by_socket = true, .id = x.id, .token = x.token, .path = STR("/interactions")});
}

bool discord_interaction_plausible(const struct http_req *req, int64_t wall_ms)
{
    uint8_t bytes[ED25519_BYTES];

    return str_eq(http_method(req), STR("POST")) &&
           is_plausible(http_header(req, "X-Signature-Timestamp"),
                        http_header(req, "X-Signature-Ed25519"), wall_ms, bytes);
}

/* An edge may have verified the signature; the time is looked at here. */
static bool is_signed(struct discord *d, const struct http_req *req)
{
    struct str at = http_header(req, "X-Signature-Timestamp");
    struct str signature = http_header(req, "X-Signature-Ed25519");
    int64_t wall_ms = clock_wall_ms(d->base.env->clock);
    uint8_t bytes[ED25519_BYTES];

    switch (http_seal_of(req, d->signer)) {
    case HTTP_SIGNED:
        return is_plausible(at, signature, wall_ms, bytes);
    case HTTP_FORGED:
        return false;
    default:
        return discord_sig_ok(d->sig, at, signature, http_body(req), wall_ms);
    }
}

bool discord_interaction_http(struct platform *p, struct http_req *req)
{
    struct discord *d = discord_of(p);
    struct discord_interaction x;
    struct json body;

    if (d->sig == NULL || !str_eq(http_method(req), STR("POST")) || !is_signed(d, req)) {
        d->base.n.refused++;
        return false;
    }
    if (!json_parse(d->base.parser, http_body(req), &body) || !discord_interaction_read(body, &x)) {
        await_refuse(&d->base, http_req_id(req), BH_MALFORMED);
        return true;
    }
    handle(d, &x, &(struct discord_asker){.http = http_req_id(req), .path = http_path(req)});
    return true;
}

void discord_interactions_init(struct discord *d)
{
    const char *mode = d->cfg->interactions, *key = d->cfg->public_key;

    d->inbound_interactions = mode != NULL && strcmp(mode, "inbound") == 0;
    d->sig = key != NULL ? discord_sig_new(str_of(key)) : NULL; /* NULL: no interactions */
    if (d->sig == NULL || d->base.env->server == NULL)
        return;
    uint8_t raw[HTTP_SIGNER_BYTES];
    BUF_LOCAL path = BUF_INIT;
    buf_printf(&path, "/webhooks/discord/%s", d->cfg->base.bot);
    if (hex_decode(str_trim(str_of(key)), raw, sizeof raw))
        d->signer = http_signer_new(d->base.env->server, buf_str(&path), raw);
}

void discord_interactions_done(struct discord *d)
{
    http_signer_free(d->signer);
    discord_sig_free(d->sig);
}
