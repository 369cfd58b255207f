/* inbound.c - receives webhooks.  (inbound.h has the pure part, sign.h the signatures.)
 *
 *      webhook --> signed? --> JSON? --> hook_normalize() --> await_accept() --stored--> 200 {}
 */
#include "platform/hook/inbound.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/mem.h"
#include "platform/hook/hook_priv.h"
#include "platform/hook/pointer.h"
#include "platform/hook/sign.h"
#include "platform/texts.h"

#define DEADLINE_MS 4500 /* many services wait 5 s */
#define MAX_NAMES 64     /* looked up for one text */
#define MAX_MEMBERS 256  /* of the object at `map.names` */

/* ---- normalizing ---- */

/* Appends the id at @pointer.  False: there is none, or it cannot be one. */
static bool add_id(const struct pointer_in *in, const char *pointer, struct buf *out)
{
    size_t from = out->n;

    if (pointer == NULL || !pointer_text(in, str_of(pointer), out))
        return false;
    struct str id = str_skip(buf_str(out), from);
    return id.n > 0 && id.n <= HOOK_MAX_ID && str_until_control(id) == id.n;
}

static bool add_own_id(const struct pointer_in *in, struct str bot, const char *pointer,
                       struct buf *out)
{
    buf_reset(out);
    buf_printf(out, "%.*s/", STR_FMT(bot));
    return add_id(in, pointer, out);
}

/* An id that an event can do without. */
static struct str optional_id(const struct pointer_in *in, const char *pointer, struct buf *out)
{
    buf_reset(out);
    return add_id(in, pointer, out) ? buf_str(out) : STR_NULL;
}

static struct str name_at(const struct pointer_in *in, const char *pointer, struct buf *out)
{
    buf_reset(out);
    if (pointer == NULL || !pointer_text(in, str_of(pointer), out))
        return STR_NULL;
    struct str name = utf8_head(buf_str(out), HOOK_MAX_NAME);
    name.n = str_until_control(name);
    return name.n > 0 ? name : STR_NULL;
}

/* The `name` of the member of @all that @key names, cut as every name is; absent: there is none. */
static struct str name_of(struct json all, struct str key)
{
    size_t looked = 0;

    for (struct json_iter it = {0}; looked++ < MAX_MEMBERS && json_next(all, &it);)
        if (str_eq(it.key, key))
            return utf8_head(json_str(it.value, "name"), HOOK_MAX_NAME);
    return STR_NULL;
}

/* Replaces "{key}" in @text by the name that @all has for the key, as `map.names` promises. */
static void fill_names(struct json all, struct str text, struct buf *out)
{
    for (size_t looked = 0; looked < MAX_NAMES; looked++) {
        ptrdiff_t open = str_find(text, '{');
        if (open < 0)
            break;
        buf_add(out, text.p, (size_t)open);
        text = str_skip(text, (size_t)open);
        struct str near = str_make(text.p, text.n < HOOK_MAX_ID ? text.n : HOOK_MAX_ID);
        ptrdiff_t close = str_find(near, '}');
        struct str name =
            close > 1 ? name_of(all, str_make(text.p + 1, (size_t)close - 1)) : STR_NULL;
        if (name.p == NULL)
            buf_add_c(out, '{');
        else
            buf_add_str(out, name);
        text = str_skip(text, name.p == NULL ? 1 : (size_t)close + 1);
    }
    buf_add_str(out, text);
}

static bool read_text(const struct hook_settings *cfg, const struct pointer_in *in,
                      struct hook_out *out)
{
    BUF_LOCAL raw = BUF_INIT;

    buf_reset(&out->text);
    if (!pointer_text(in, str_of(cfg->map.text), &raw) || raw.n == 0)
        return false;
    struct json names = {0};
    if (cfg->map.names != NULL)
        names = pointer_get(in, str_of(cfg->map.names));
    fill_names(names, buf_str(&raw), &out->text);
    return true;
}

static void set_event_id(const struct hook_settings *cfg, const struct pointer_in *in,
                         struct str body, struct hook_out *out)
{
    uint8_t hash[SHA256_BYTES];
    bool mapped = optional_id(in, cfg->map.event_id, &out->event).p != NULL;

    if (!mapped) {
        sha256(body, hash);
        buf_reset(&out->event);
        hex_add(&out->event, hash, sizeof hash);
    }
    out->ev.event_id = buf_str(&out->event);
    out->ev.message_id = optional_id(in, cfg->map.message_id, &out->message);
    if (out->ev.message_id.p == NULL && mapped)
        out->ev.message_id = out->ev.event_id;
}

enum webhook_verdict hook_normalize(const struct hook_settings *cfg, struct str bot,
                                    struct json doc, struct str body, struct json_parser *inner,
                                    struct hook_out *out)
{
    const struct pointer_in in = {doc, inner};
    struct event *ev = &out->ev;

    *ev = (struct event){.platform = STR("hook"), .bot = bot, .mentions_bot = true};
    for (char **c = cfg->map.skip_if; c != NULL && *c != NULL; c++)
        if (condition_holds(&in, str_of(*c))) {
            out->why = *c;
            return WEBHOOK_IGNORED;
        }
    if (!read_text(cfg, &in, out)) {
        out->why = "map.text finds no text";
        return WEBHOOK_IGNORED;
    }
    if (!add_own_id(&in, bot, cfg->map.chat_id, &out->chat)) {
        out->why = "map.chat_id finds no id";
        return WEBHOOK_MALFORMED;
    }
    if (!add_own_id(&in, bot, cfg->map.user_id, &out->user)) {
        out->why = "map.user_id finds no id";
        return WEBHOOK_MALFORMED;
    }
    ev->text = buf_str(&out->text);
    ev->chat_id = ev->route_key = buf_str(&out->chat);
    ev->chat_type = cfg->chat_type == 1 ? STR("dm") : STR("group");
    ev->user_id = buf_str(&out->user);
    ev->user_name = name_at(&in, cfg->map.user_name, &out->user_name);
    if (ev->user_name.p == NULL)
        ev->user_name = str_skip(ev->user_id, bot.n + 1);
    ev->user_display_name = ev->user_name;
    ev->chat_name = name_at(&in, cfg->map.chat_name, &out->chat_name);
    if (ev->chat_name.p == NULL)
        ev->chat_name = cfg->chat_type == 1 ? ev->user_name : str_skip(ev->chat_id, bot.n + 1);
    ev->thread_id = optional_id(&in, cfg->map.thread_id, &out->thread);
    ev->reply_to_message_id = optional_id(&in, cfg->map.reply_to, &out->reply);
    ev->reply_to.set = ev->reply_to_message_id.p != NULL;
    set_event_id(cfg, &in, body, out);
    return WEBHOOK_EVENT;
}

void hook_out_done(struct hook_out *out)
{
    struct buf *all[] = {&out->text,  &out->chat,  &out->chat_name, &out->user,  &out->user_name,
                         &out->event, &out->reply, &out->message,   &out->thread};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_done(all[i]);
}

/* ---- webhooks ---- */

static const struct http_answer good = {.status = 200,
                                        .content_type = "application/json",
                                        .body = {"{}", 2}};

static struct str header_of(const void *ctx, const char *name)
{
    return http_header(ctx, name);
}

static bool is_signed(struct hook *h, struct http_req *req)
{
    const struct hook_sign *s = &h->cfg->verify;
    struct template_values v = {.header = header_of, .ctx = req};

    v.of[TEMPLATE_BODY] = http_body(req);
    return hook_signature_ok(s, buf_str(&h->verify_key), &v,
                             s->header != NULL ? http_header(req, s->header) : STR_NULL,
                             clock_wall_ms(h->base.env->clock));
}

bool hook_http(struct platform *p, struct http_req *req)
{
    struct hook *h = hook_of(p);
    struct str body = http_body(req);
    enum webhook_verdict verdict = WEBHOOK_MALFORMED;
    struct json doc;

    if (!str_eq(http_method(req), STR("POST")) || !is_signed(h, req)) {
        p->n.refused++;
        return false;
    }
    h->out.why = "the body is not JSON";
    if (json_parse(p->parser, body, &doc))
        verdict = hook_normalize(h->cfg, str_of(p->bot), doc, body, h->inner, &h->out);
    if (verdict == WEBHOOK_IGNORED)
        log_debug(&p->log, "a webhook is ignored: %s", h->out.why);
    else if (verdict == WEBHOOK_MALFORMED)
        log_warn(&p->log, "a webhook is refused: %s", h->out.why);
    text_take(p, verdict, &h->out.ev, http_req_id(req), &good, DEADLINE_MS);
    return true;
}
