/* webhook.c - interactions that Discord brings itself.  (discord_priv.h has the calls.)
 *
 *      signed? --no--> 401                      PING, autocomplete --> answered here
 *         |
 *         +--> token to the vault, for everybody who receives it
 *         +--> the rest to the mailbox --durable--> "thinking ..."     (or 503)
 *
 * Discord gives three seconds and asks once: whatever is not safe by then is refused, and the
 * person sees that it failed.  What the agent says next goes out through the token: send.c. */
#include <stdio.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/frame.h"
#include "core/session_key.h"
#include "platform/discord/signature.h"
#include "edge/sanitize.h"
#include "edge/vault.h"
#include "platform/discord/discord_priv.h"
#include "platform/discord/interaction.h"

enum { TOKEN_LIFE_MS = 15 * 60 * 1000 - 10000, TOKEN_MAX = 2048 };

#define PONG STR("{\"type\":1}")
#define NO_CHOICES STR("{\"type\":8,\"data\":{\"choices\":[]}}")
#define THINKING STR("{\"type\":5}")
#define SEEN STR("{\"type\":6}")
#define STOPPING STR("{\"type\":4,\"data\":{\"content\":\"Stopping.\",\"flags\":64}}")
#define CHECKING STR("{\"type\":4,\"data\":{\"content\":\"One moment.\",\"flags\":64}}")
#define NOBODY \
    STR("{\"type\":4,\"data\":{\"content\":\"Nobody answers commands here yet.\",\"flags\":64}}")

void discord_webhook_init(struct discord *d)
{
    const char *mode = d->cfg->interactions, *key = d->cfg->public_key;

    d->webhook_parser = json_parser_new();
    d->inbound_interactions = mode != NULL && strcmp(mode, "inbound") == 0;
    d->sig = key != NULL ? discord_sig_new(str_of(key)) : NULL; /* NULL: no interactions */
}

void discord_webhook_done(struct discord *d)
{
    awaits_done(&d->awaits);
    discord_sig_free(d->sig);
    json_parser_free(d->webhook_parser);
}

/* ---- the vault ---- */

static bool is_path_safe(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool ok = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' ||
                  c == '_' || (c == '.' && i > 0);
        if (!ok)
            return false;
    }
    return s.n > 0 && s.n <= TOKEN_MAX;
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
        vault_bind(b->d->env->vault, &b->spec);
}

/* Who receives @ev gets the use of the token; returns how many those are. */
static size_t bind_token(struct discord *d, struct discord_interaction *x, const struct event *ev)
{
    struct buf relay_key = BUF_INIT, key = BUF_INIT, place = BUF_INIT, value = BUF_INIT;
    struct str bot = str_of(d->base.bot);
    struct str app = is_path_safe(x->application_id) ? x->application_id : bot;
    struct token_binding b = {.d = d};
    struct event other;

    discord_interaction_as_forward(x, bot, &other);
    session_key_of_event(&relay_key, &other);
    discord_interaction_as_message(x, bot, STR(""), &other);
    session_key_of_event(&key, &other);
    discord_reply_place(d, snowflake(x->channel_id), &place);
    buf_printf(&value, "%.*s\x1f%.*s\x1f%.*s", STR_FMT(app), STR_FMT(x->channel_id),
               STR_FMT(x->token));
    b.spec = (struct vault_spec){.session_keys = {buf_str(&relay_key), buf_str(&key)},
                                 .kind = STR(DISCORD_TOKEN_KIND),
                                 .id = x->id,
                                 .place = buf_str(&place),
                                 .user = x->user_id,
                                 .life_ms = TOKEN_LIFE_MS};
    /* A button shows no "thinking ...": its message stays, and what comes is new. */
    b.spec.used = x->type == INTERACTION_COMPONENT;
    if (is_path_safe(x->token) && is_path_safe(app) && snowflake(x->channel_id) != 0)
        b.spec.value = buf_str(&value);
    host_each_target(d->base.host, ev, on_target, &b);
    buf_wipe(&value);
    buf_done(&place);
    buf_done(&key);
    buf_done(&relay_key);
    return b.n;
}

/* ---- taking it in ---- */

static bool write_forward(struct discord *d, struct discord_interaction *x, struct str path,
                          struct buf *out)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    bool ok = sanitize_json(&w, x->body);

    frame_write_forward(out, &(struct forward){.platform = STR("discord"),
                                               .bot = str_of(d->base.bot),
                                               .method = STR("POST"),
                                               .path = path,
                                               .content_type = STR("application/json"),
                                               .body = buf_str(&body)});
    buf_done(&body);
    return ok;
}

static void forward(struct discord *d, struct discord_interaction *x,
                    const struct discord_asker *to, struct str answered)
{
    struct buf json = BUF_INIT;
    struct event ev;

    discord_interaction_as_forward(x, str_of(d->base.bot), &ev);
    if (!write_forward(d, x, to->path, &json))
        discord_refuse(d, to);
    else if (bind_token(d, x, &ev) == 0)
        discord_answer(d, to, x->type == INTERACTION_COMPONENT ? SEEN : NOBODY);
    else
        discord_answer_passthrough(d, to, &ev, buf_str(&json), answered);
    buf_done(&json);
}

static void deliver(struct discord *d, struct discord_interaction *x,
                    const struct discord_asker *to, struct str answered)
{
    struct buf text = BUF_INIT;
    struct event ev;

    discord_interaction_text(x, &text);
    discord_interaction_as_message(x, str_of(d->base.bot), buf_str(&text), &ev);
    if (text.n == 0 || bind_token(d, x, &ev) == 0)
        discord_answer(d, to, x->type == INTERACTION_COMPONENT ? SEEN : NOBODY);
    else
        discord_answer_accept(d, to, &ev, answered);
    buf_done(&text);
}

/* "/link CODE" is for us: it is redeemed as a message would be, and answered in the chat. */
static void redeem(struct discord *d, struct discord_interaction *x, const struct discord_asker *to)
{
    struct buf text = BUF_INIT;
    struct event ev;

    discord_interaction_text(x, &text);
    discord_interaction_as_message(x, str_of(d->base.bot), buf_str(&text), &ev);
    discord_answer_accept(d, to, &ev, CHECKING);
    buf_done(&text);
}

static void on_stopped(void *ctx, enum bh_err err)
{
}

/* The turn may have begun with a command or with a message: both have their own key. */
static void stop(struct discord *d, struct discord_interaction *x, const struct discord_asker *to)
{
    struct event ev;

    discord_interaction_as_message(x, str_of(d->base.bot), STR("/stop"), &ev);
    host_accept(d->base.host, &d->base, &ev, on_stopped, NULL);
    discord_interaction_as_forward(x, str_of(d->base.bot), &ev);
    ev.event_id = STR_NULL;
    ev.text = STR("/stop");
    ev.only_stops = true;
    host_accept(d->base.host, &d->base, &ev, on_stopped, NULL);
    discord_answer(d, to, STOPPING);
}

static void take(struct discord *d, struct discord_interaction *x, const struct discord_asker *to)
{
    struct str answered = x->type == INTERACTION_COMPONENT ? SEEN : THINKING;

    d->count.interactions++;
    if (discord_press(d, x, to))
        return;
    if (discord_interaction_is_stop(x))
        stop(d, x, to);
    else if (x->type == INTERACTION_COMMAND && str_eq_ci(x->name, STR("link")))
        redeem(d, x, to);
    else if (d->inbound_interactions)
        deliver(d, x, to, answered);
    else
        forward(d, x, to, answered);
}

static void sort(struct discord *d, struct discord_interaction *x, const struct discord_asker *to)
{
    x->in_parent = d->cfg->auto_thread;
    switch (x->type) {
    case INTERACTION_PING:
        discord_answer(d, to, PONG);
        break;
    case INTERACTION_AUTOCOMPLETE:
        discord_answer(d, to, NO_CHOICES);
        break;
    case INTERACTION_COMMAND:
    case INTERACTION_COMPONENT:
    case INTERACTION_MODAL:
        take(d, x, to);
        break;
    default:
        discord_refuse(d, to);
        break;
    }
}

/* Where the application has no address for them, interactions come through the gateway.  Discord
 * asks once and waits three seconds: what comes again after a lost connection is too late. */
void discord_webhook_dispatch(struct discord *d, struct json interaction)
{
    struct discord_interaction x;

    if (!discord_interaction_read(interaction, &x) || snowflake(x.id) == 0 ||
        !is_path_safe(x.token)) {
        d->count.malformed++;
        return;
    }
    sort(d, &x,
         &(struct discord_asker){
             .by_gateway = true, .id = x.id, .token = x.token, .path = STR("/interactions")});
}

bool discord_webhook_plausible(const struct http_req *req, int64_t wall_ms)
{
    return str_eq(http_method(req), STR("POST")) &&
           discord_sig_is_plausible(http_header(req, "X-Signature-Timestamp"),
                                    http_header(req, "X-Signature-Ed25519"), wall_ms);
}

bool discord_webhook_http(struct platform *p, struct http_req *req)
{
    struct discord *d = discord_of(p);
    struct discord_interaction x;
    struct json body;

    if (d->sig == NULL || !str_eq(http_method(req), STR("POST")) ||
        !discord_sig_ok(d->sig, http_header(req, "X-Signature-Timestamp"),
                        http_header(req, "X-Signature-Ed25519"), http_body(req),
                        clock_wall_ms(d->env->clock))) {
        d->count.forged++;
        return false;
    }
    if (!json_parse(d->webhook_parser, http_body(req), &body) ||
        !discord_interaction_read(body, &x)) {
        await_refuse(&d->awaits, http_req_id(req), BH_MALFORMED);
        return true;
    }
    sort(d, &x, &(struct discord_asker){.http = http_req_id(req), .path = http_path(req)});
    return true;
}
