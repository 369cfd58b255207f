/* web.c - design.  (web.h has the surface, web_priv.h the parts and the numbering.)
 *
 * The page is bellhop's own, so there is no request to a platform.  A message of the agent is
 * committed to the store (unless history is off), then published to open pages, and then the
 * gateway gets "success".  The HTTP server passes a request for /chat to any web bot, so
 * web_sibling() finds the right one among the open bots.
 */
#include "platform/web/web.h"
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/stream.h"
#include "platform/web/web_priv.h"
#include "store/store.h"

#define TYPING_MS 6000
#define MAX_STATUS_CHARS 200

/* ---- settings ---- */

#define AT(member) offsetof(struct web_settings, member)

static const struct config_key keys[] = {
    {"title", CFG_TEXT, CFG_RESTART, AT(title), .ask = "", .what = "The title of the chat page."},
    {"history", CFG_NUMBER, CFG_RESTART, AT(history), "200", .max = 100000,
     .what = "Messages kept per chat; 0 keeps none."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct web_settings *s = settings;
    struct str bot = str_of(s->base.bot);

    if (bot.n > 0 && bot.n <= 64 && str_has_only(bot, "-_.") && !str_eq(bot, STR("assets")) &&
        !str_eq(bot, STR("api")))
        return true;
    return bh_why(ret_why,
                  "the bot of a web platform is part of its address: use letters, digits, '-', '_' "
                  "and '.', not '%.*s'",
                  (int)(bot.n < 80 ? bot.n : 80), bot.p != NULL ? bot.p : "");
}

const struct config_section web_config = {.name = "web",
                                          .keys = keys,
                                          .size = sizeof(struct web_settings),
                                          .check = check};

/* ---- the open bots ---- */

/* In order of opening, and by name. */
static struct list open_bots = {&open_bots, &open_bots};
static struct map open_by_name = MAP_INIT;

static struct web *web_of(struct platform *p)
{
    return container_of(p, struct web, base);
}

struct web *web_sibling(struct str bot)
{
    if (bot.p != NULL)
        return map_get(&open_by_name, bot);
    return list_is_empty(&open_bots) ? NULL : list_first(&open_bots, struct web, link);
}

struct web *web_after(const struct web *w)
{
    return w->link.next == &open_bots ? NULL : list_entry(w->link.next, struct web, link);
}

/* ---- the visitor key ---- */

struct visitor_key {
    struct str bot;
    struct str key; /* sizeof(struct hash_key) bytes */
};
static const struct record_field key_fields[] = {
    RECORD_FIELD(struct visitor_key, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct visitor_key, key, "key", RECORD_NEEDED | RECORD_SEALED),
};
static const struct record_form key_form = RECORD_FORM("web_key", struct visitor_key, key_fields);
static const struct record_form *const web_records[] = {&key_form, &web_name_form,
                                                        &web_message_form, &web_once_form, NULL};

struct key_load {
    struct web *w;
    bool found;
};

static bool on_key_loaded(void *ctx, struct str key, void *thing)
{
    struct key_load *l = ctx;
    const struct visitor_key *k = thing;

    if (!str_eq(key, web_bot(l->w)))
        return true; /* a bot whose name begins with ours */
    if (k->key.n != sizeof l->w->visitor_key)
        return false;
    memcpy(&l->w->visitor_key, k->key.p, k->key.n);
    l->found = true;
    return true;
}

static enum bh_err load_visitor_key(struct web *w, char *ret_why)
{
    const struct host_env *env = w->base.env;
    struct record_reader *reader = record_reader_new(env->seal);
    struct key_load l = {.w = w};
    enum bh_err err =
        record_load(env->store, &key_form, reader, web_bot(w), on_key_loaded, &l, ret_why);

    record_reader_free(reader);
    if (err == BH_OK && !l.found) {
        rand_bytes(env->rand, &w->visitor_key, sizeof w->visitor_key);
        struct visitor_key k = {web_bot(w), str_make(&w->visitor_key, sizeof w->visitor_key)};
        /* Writes are ordered: once a record with a chat id is committed, this key is too. */
        record_put(env->store, &key_form, env->seal, &k, true, NULL, NULL);
    }
    return err;
}

/* ---- life ---- */

static void web_close(struct platform *p)
{
    struct web *w = web_of(p);

    web_live_close(w);
    timer_stop(p->env->clock, &w->heartbeat);
    web_sweep_stop(w);
    web_inbound_cancel(w);
    web_jobs_leave(w);
    web_chats_free(w); /* ends the streams */
    lru_done(&w->names);
    if (list_is_linked(&w->link))
        map_del(&open_by_name, web_bot(w));
    list_remove(&w->link);
    if (list_is_empty(&open_bots))
        map_done(&open_by_name);
    record_reader_free(w->reader);
    free(w->buckets);
    buf_done(&w->page);
    buf_done(&w->frame);
    buf_done(&w->scratch);
    buf_done(&w->clean);
    secret_wipe(&w->visitor_key, sizeof w->visitor_key);
    free(w->title);
}

static enum bh_err web_open(struct platform *p, char *ret_why)
{
    const struct web_settings *cfg = container_of(p->settings, const struct web_settings, base);
    struct web *w = web_of(p);

    w->title = xstrdup(cfg->title != NULL ? cfg->title : p->bot);
    w->history = cfg->history;
    w->secure_cookies = str_starts(str_of(p->env->public_url), STR("https:"));
    w->reader = record_reader_new(NULL);
    w->counter = p->env->store->boot << 40;
    list_init(&w->idle);
    list_init(&w->posts);
    list_init(&w->free_posts);
    list_init(&w->jobs);
    web_live_open(w);
    timer_init(&w->heartbeat, web_heartbeat);
    if (web_sibling(str_of(p->bot)) != NULL)
        return bh_err_why(BH_REFUSED, ret_why, "there are two web bots called '%.80s'", p->bot);
    enum bh_err err = load_visitor_key(w, ret_why);
    return err == BH_OK ? web_names_open(w, ret_why) : err;
}

static void web_start(struct platform *p)
{
    struct web *w = web_of(p);

    web_page_build(w);
    list_append(&open_bots, &w->link);
    map_put(&open_by_name, web_bot(w), w);
    timer_set(p->env->clock, &w->heartbeat, WEB_HEARTBEAT_MS);
    if (w->history > 0)
        web_sweep_start(w);
    log_info(&p->log, "open: history=%" PRIu32 " path=/chat/%s", w->history, p->bot);
}

/* ---- actions ---- */

void web_succeed(struct web *w, struct action_id id, struct str message_id)
{
    host_result(w->base.host, id,
                &(struct action_result){.success = true, .message_id = message_id});
}

static bool content_is_ok(struct web *w, struct action_id id, struct str content)
{
    if (str_is_empty(content)) {
        host_fail(w->base.host, id, "the message is empty");
        return false;
    }
    if (utf8_chars(content) > (size_t)web_ops.descriptor->max_message_length) {
        host_fail(w->base.host, id, "the message is longer than %d characters",
                  web_ops.descriptor->max_message_length);
        return false;
    }
    return true;
}

/* A message, or a draft: the final one is a message. */
static void act_send(struct web *w, struct action_id id, const struct action_from *from,
                     const struct action *a)
{
    struct web_message m = {.from = WEB_AGENT,
                            .text = action_without_cursor(a->content),
                            .reply_to = a->reply_to};
    uint64_t replied;
    char once[WEB_ONCE_CHARS] = "";

    if (!content_is_ok(w, id, a->content))
        return;
    if (!web_id_parse(a->reply_to, &replied))
        m.reply_to = STR_NULL;
    if (a->op == ACTION_DRAFT && !web_live_draft(w, id, from, a, &m.id, once))
        return;
    m.client_id = str_of(once);
    if (w->n_previews > 0)
        web_live_said(w, a->chat_id);
    web_keep_send(w, a->chat_id, &m, id);
}

static void act_edit(struct web *w, struct action_id id, const struct action_from *from,
                     const struct action *a)
{
    struct web_message m = {.from = WEB_AGENT, .text = action_without_cursor(a->content)};

    if (!web_id_parse(a->message_id, &m.id)) {
        host_fail(w->base.host, id, "no such message in this chat");
        return;
    }
    if (!content_is_ok(w, id, a->content))
        return;
    if (web_live_edit(w, id, from, a))
        return;
    w->counters.edits++;
    if (w->history > 0) {
        web_keep_edit(w, a->chat_id, m.id, m.text, id);
        return;
    }
    m.rev = web_next(w);
    m.at_ms = m.edited_ms = clock_wall_ms(w->base.env->clock);
    web_publish_unkept(w, a->chat_id, "edit", &m);
    web_succeed(w, id, a->message_id);
}

static void act_send_media(struct web *w, struct action_id id, const struct action *a)
{
    struct web_message m = {.from = WEB_AGENT, .text = a->content.p != NULL ? a->content : STR("")};
    struct event_media file = {.id = a->file->id,
                               .kind = a->media_kind.n > 0 ? a->media_kind : STR("document"),
                               .type = a->file->type,
                               .name = a->file->name,
                               .size = a->file->size};
    BUF_LOCAL files = BUF_INIT;

    if (m.text.n > 0 && !content_is_ok(w, id, m.text))
        return;
    web_files_write(w, a->chat_id, &file, 1, &files);
    m.files.text = buf_str(&files);
    web_keep_send(w, a->chat_id, &m, id);
}

static void act_typing(struct web *w, struct action_id id, const struct action *a)
{
    struct web_chat *c = web_chat_find(w, a->chat_id);
    bool clear = a->content_set && str_is_empty(a->content);

    buf_reset(&w->scratch);
    struct jw j = jw_begin(&w->scratch);
    jw_obj(&j);
    jw_kbool(&j, "on", !clear);
    jw_ki64(&j, "for_ms", TYPING_MS);
    if (a->content.n > 0 && utf8_chars(a->content) <= MAX_STATUS_CHARS)
        jw_kstr(&j, "text", a->content); /* what the agent is doing */
    jw_end_obj(&j);
    if (c != NULL)
        web_publish(c, "typing", 0, buf_str(&w->scratch));
    web_succeed(w, id, STR_NULL);
}

static void web_act(struct platform *p, struct action_id id, const struct action_from *from,
                    const struct action *a)
{
    struct web *w = web_of(p);
    char made[16];

    if (!visitor_chat_is_ours(&w->visitor_key, a->chat_id)) {
        host_fail(p->host, id, "there is no such chat on this page");
        return;
    }
    switch (a->op) {
    case ACTION_SEND:
    case ACTION_DRAFT:
        act_send(w, id, from, a);
        return;
    case ACTION_SEND_MEDIA:
        act_send_media(w, id, a);
        return;
    case ACTION_PROMPT:
        if (content_is_ok(w, id, a->content))
            web_act_prompt(w, id, from, a);
        return;
    case ACTION_EDIT:
        act_edit(w, id, from, a);
        return;
    case ACTION_TYPING:
        act_typing(w, id, a);
        return;
    case ACTION_GET_CHAT_INFO:
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_type = STR("dm"),
                                            .chat_name = web_name_of(w, a->chat_id, made)});
        return;
    case ACTION_FOLLOW_UP:
    default:
        break;
    }
    host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
}

static void web_forget(struct platform *p, struct str person)
{
    struct web *w = web_of(p);
    struct web_chat *c = web_chat_find(w, person);

    web_name_drop(w, person);
    web_live_forget(w, person);
    if (c == NULL)
        return;
    list_each (&c->streams, it, next) {
        struct web_stream *s = list_entry(it, struct web_stream, link);
        web_stream_reset(s); /* the page reads its history again */
    }
}

static void web_instance_changed(struct platform *p, const char *state)
{
    web_publish_state(web_of(p), state);
}

static void web_status(struct platform *p, struct jw *out)
{
    struct web *w = web_of(p);

    jw_ki64(out, "pages", (int64_t)w->n_streams);
    jw_ki64(out, "history", w->history);
    jw_ki64(out, "posted", (int64_t)w->counters.posted);
    jw_ki64(out, "refused", (int64_t)w->counters.refused);
    jw_ki64(out, "sent", (int64_t)w->counters.sent);
    jw_ki64(out, "edits", (int64_t)w->counters.edits);
    jw_ki64(out, "store_failures", (int64_t)w->counters.store_failures);
}

static const struct descriptor web_descriptor = {
    .platform = "web",
    .label = "Web chat",
    .max_message_length = 16000,
    .supports_edit = true,
    .markdown_dialect = "markdown",
    .len_unit = "chars",
    .emoji = "\xf0\x9f\x9b\x8e\xef\xb8\x8f",
    .platform_hint =
        "You are talking on bellhop's own web chat page. It shows Markdown: paragraphs, "
        "lists, quotes, headings, code with fences, links; no tables. Send images as files.",
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING |
           1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT |
           1u << ACTION_DRAFT,
};

const struct platform_ops web_ops = {
    .name = "web",
    .config = &web_config,
    .records = web_records,
    .descriptor = &web_descriptor,
    .secret_chats = true,
    .open_by_nature = true,
    .size = sizeof(struct web),
    .label = "the chat page",
    .prompt_over = web_prompt_over,
    .open = web_open,
    .start = web_start,
    .close = web_close,
    .act = web_act,
    .http = web_http,
    .page_visitor = web_page_visitor,
    .page_file_key = web_file_key,
    .forget = web_forget,
    .eraser = &web_eraser,
    .instance_changed = web_instance_changed,
    .status = web_status,
};
