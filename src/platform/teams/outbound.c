/* outbound.c - turns the actions of gateways into requests to the connector of Teams, and reads the
 * answers.  (teams_priv.h has the calls; platform/sender.h describes lanes and retries.)
 *
 *      teams_act --> struct teams_outgoing --> the sender --> teams_write --> Teams --> teams_read
 *
 *      POST {serviceUrl}/v3/conversations/{chat[;messageid=thread]}/activities[/{message}]
 *      PUT  the same, with the message: an edit
 *
 * The connector takes no idempotency key, and has no request that lists messages.  So a message
 * whose answer was lost ends as unknown.  Microsoft wants 412, 429, 502 and 504 retried. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "platform/teams/teams_priv.h"

enum { TYPING_MS = 3000, MAX_REFUSED = 2, MAX_NAMES = 4 };

static struct teams_outgoing *teams_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct teams_outgoing, out);
}

static void outgoing_free(struct outgoing *o)
{
    struct teams_outgoing *x = teams_outgoing_of(o);

    split_done(&x->parts);
    attachment_done(&x->file);
    free(x->file_id);
    free(x->chat);
    free(x->thread);
    buf_done(&x->card);
    buf_done(&x->body);
    buf_done(&x->whole);
    free(x);
}

static bool posts(const struct teams_outgoing *x)
{
    return x->op == ACTION_SEND || x->op == ACTION_PROMPT || x->op == ACTION_SEND_MEDIA;
}

static bool streams(const struct teams_outgoing *x)
{
    return x->method == TEAMS_STREAM || x->method == TEAMS_SEAL;
}

/* ---- the request ---- */

/* A place that is not known is tried at the address that serves all regions. */
static struct str service_of(const struct teams *t, const struct teams_chat *c)
{
    struct str url = c != NULL ? str_of(c->service_url) : STR_NULL;

    if (!teams_is_own_url(url, str_of(t->cfg->base.api_base)))
        url = str_of(t->base.api_base);
    while (str_ends(url, STR("/")))
        url.n--;
    return url;
}

static void add_conversation(struct buf *out, struct str chat, struct str thread)
{
    buf_add_str(out, chat);
    if (thread.n > 0)
        buf_printf(out, ";messageid=%.*s", STR_FMT(thread));
}

void teams_write_head(struct jw *w, struct teams *t, struct str type, struct str chat,
                      struct str thread)
{
    const struct teams_chat *c = teams_chat_find(t, chat);
    BUF_LOCAL id = BUF_INIT, self = BUF_INIT;

    add_conversation(&id, chat, thread);
    buf_printf(&self, "28:%.*s", STR_FMT(t->app));
    jw_kstr(w, "type", type);
    jw_kstr(w, "channelId", STR("msteams"));
    jw_kobj(w, "from");
    jw_kstr(w, "id", c != NULL && c->self != NULL ? str_of(c->self) : buf_str(&self));
    jw_end_obj(w);
    jw_kobj(w, "conversation");
    jw_kstr(w, "id", buf_str(&id));
    if (c != NULL)
        jw_kstr(w, "conversationType", str_of(teams_kinds[c->kind]));
    if (c != NULL && c->tenant != NULL)
        jw_kstr(w, "tenantId", str_of(c->tenant));
    jw_end_obj(w);
    if (c != NULL && c->account != NULL && c->kind == TEAMS_PERSONAL) {
        jw_kobj(w, "recipient");
        jw_kstr(w, "id", str_of(c->account));
        jw_end_obj(w);
    }
}

static void write_address(const struct teams_outgoing *x, const struct teams_chat *c,
                          struct sender_request *q)
{
    BUF_LOCAL id = BUF_INIT;
    struct str under = x->method == TEAMS_EDIT || x->by_put        ? str_of(x->message)
                       : x->method == TEAMS_POST && x->out.at == 0 ? str_of(x->reply)
                                                                   : STR("");

    buf_add_str(&q->url, service_of(x->t, c));
    if (x->method == TEAMS_INFO && c != NULL && c->kind == TEAMS_CHANNEL && c->team != NULL) {
        buf_add_z(&q->url, "/v3/teams/");
        percent_encode(&q->url, str_of(c->team));
        buf_add_z(&q->url, "/conversations");
        return;
    }
    add_conversation(&id, str_of(x->chat), str_of(x->thread));
    buf_add_z(&q->url, "/v3/conversations/");
    percent_encode(&q->url, buf_str(&id));
    if (x->method == TEAMS_INFO) {
        buf_add_z(&q->url, "/pagedmembers?pageSize=50");
        return;
    }
    buf_add_z(&q->url, "/activities");
    if (under.n > 0) {
        buf_add_c(&q->url, '/');
        percent_encode(&q->url, under);
    }
}

/* The part that is sent next.  The file of a send_media comes before its caption. */
static struct str text_of(const struct teams_outgoing *x)
{
    return x->out.at < x->parts.n ? split_part(&x->parts, x->out.at) : STR("");
}

static void write_text(struct jw *w, struct str text)
{
    jw_kstr(w, "text", text);
    jw_kstr(w, "textFormat", STR("markdown"));
}

/* The message of an open question keeps its buttons when its text is edited. */
static bool write_edited_question(struct jw *w, struct teams_outgoing *x)
{
    const struct prompt *q =
        prompts_of_message(x->t->base.prompts, str_of(x->chat), str_of(x->message));

    if (q == NULL)
        return false;
    teams_card_keep(x->t, str_of(x->chat), str_of(q->id),
                    &(struct teams_card_as){.text = text_of(x), .thread = str_of(x->thread)});
    jw_karr(w, "attachments");
    teams_write_question(w, text_of(x), q, true);
    jw_end_arr(w);
    return true;
}

/* False: there is no request, and @v says how it ended. */
static bool write_body(struct teams_outgoing *x, struct buf *body, struct sender_verdict *v)
{
    struct jw w = jw_begin(body);
    bool last = x->out.at + 1 == x->out.n_parts, ok = true;

    if (x->method == TEAMS_ASK) {
        buf_add_str(body, buf_str(&x->body));
        return true;
    }
    bool draws = x->method == TEAMS_TYPING || x->method == TEAMS_STREAM;
    jw_obj(&w);
    teams_write_head(&w, x->t, draws ? STR("typing") : STR("message"), str_of(x->chat),
                     str_of(x->thread));
    if (x->method == TEAMS_EDIT) {
        jw_kstr(&w, "id", str_of(x->message));
        struct str text = x->op == ACTION_DRAFT ? buf_str(&x->whole) : text_of(x);
        if (x->op == ACTION_DRAFT || !write_edited_question(&w, x))
            write_text(&w, text);
    } else if (streams(x)) {
        ok = teams_stream_write(x, &w, v);
    } else if (x->method == TEAMS_POST) {
        if (x->reply[0] != '\0' && x->out.at == 0)
            jw_kstr(&w, "replyToId", str_of(x->reply));
        if (x->card.n > 0 && last) {
            jw_karr(&w, "attachments");
            jw_raw(&w, buf_str(&x->card));
            jw_end_arr(&w);
        } else if (x->op == ACTION_SEND_MEDIA && x->out.at == 0) {
            ok = teams_file_write(x, &w, v);
        } else {
            write_text(&w, text_of(x));
        }
    }
    jw_end_obj(&w);
    return ok;
}

static enum pace_class class_of(const struct teams_outgoing *x)
{
    return x->method == TEAMS_TYPING                            ? PACE_TYPING
           : x->method == TEAMS_STREAM                          ? PACE_DRAFT
           : x->method == TEAMS_EDIT || x->method == TEAMS_SEAL ? PACE_FINAL
           : x->method == TEAMS_INFO || x->method == TEAMS_ASK  ? PACE_REACT
                                                                : PACE_SEND;
}

static int64_t room_ms(const struct teams_outgoing *x)
{
    return pace_wait_ms(sender_budget(x->t->base.sender), str_of(x->chat), false, class_of(x));
}

static int64_t teams_wait(struct platform *p, struct outgoing *o)
{
    const struct teams_outgoing *x = teams_outgoing_of(o);

    return x->counted || x->method == TEAMS_TYPING ? 0 : room_ms(x);
}

static void teams_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                        struct sender_verdict *v)
{
    struct teams_outgoing *x = teams_outgoing_of(o);
    const struct teams_chat *c = teams_chat_find(x->t, str_of(x->chat));

    if (x->method == TEAMS_TYPING && room_ms(x) > 0) {
        v->end = SENDER_DONE; /* shed */
        return;
    }
    const char *auth = teams_auth_line(x->t);
    if (auth == NULL) {
        bearer_wait(&x->t->login, v);
        return;
    }
    if (x->method != TEAMS_INFO && !write_body(x, &q->body, v))
        return;
    if (!x->counted)
        pace_count(sender_budget(x->t->base.sender), str_of(x->chat), false, class_of(x));
    x->counted = false;
    write_address(x, c, q);
    q->headers[0] = auth;
    q->headers[1] = "Content-Type: application/json; charset=utf-8";
    q->method = x->method == TEAMS_INFO                ? "GET"
                : x->method == TEAMS_EDIT || x->by_put ? "PUT"
                                                       : "POST";
    q->no_body = x->method == TEAMS_INFO;
    q->once = x->method == TEAMS_POST || (x->method == TEAMS_STREAM && x->message[0] == '\0') ||
              (x->method == TEAMS_ASK && !x->by_put);
    v->end = SENDER_GO;
}

/* ---- the answer ---- */

static const struct {
    const char *code;
    bool broken; /* an operator has to do something */
    const char *sentence;
} refusals[] = {
    {"BotNotRegistered", true, "Teams does not know the bot: turn on its Teams channel in Azure"},
    {"InvalidBotApiHost", true, "the bot writes to Teams of another cloud than its own"},
    {"BotDisabledByAdmin", false, "an administrator has turned the bot's app off"},
    {"BotNotInConversationRoster", false,
     "the bot is not in this chat any more: somebody has to add its app again"},
    {"ConversationBlockedByUser", false, "the person has blocked the bot"},
    {"MessageWritesBlocked", false, "the person has blocked the bot, or cannot be written to"},
    {"ForbiddenOperationException", false,
     "the bot may not write here: its app was removed, or is not allowed"},
    {"NotEnoughPermissions", false, "the bot lacks a permission for this"},
    {"ActivityNotFoundInConversation", false, "Teams does not have this message any more"},
    {"ConversationNotFound", false, "Teams does not have this chat any more"},
    {"MessageSizeTooBig", false, "Teams takes no message this large"},
    {"RequestEntityTooLarge", false, "Teams takes no message this large"},
};

static void explain(struct teams *t, struct str code, struct sender_verdict *v)
{
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
        if (str_eq(code, str_of(refusals[i].code))) {
            sender_say(v, SENDER_REFUSED, "%s", refusals[i].sentence);
            if (refusals[i].broken)
                platform_set_problem(&t->base, v->why);
            return;
        }
    bool shown = code.n > 0 && code.n <= 60 && str_has_only(code, "_-.");
    sender_say(v, SENDER_REFUSED, "Teams refused this (HTTP %d%s%.*s)", v->status,
               shown ? ", " : "", shown ? (int)code.n : 0, shown ? code.p : "");
}

static void on_limit(struct teams_outgoing *x, const struct http_result *r,
                     struct sender_verdict *v)
{
    if (r->retry_after_ms >= 0)
        v->wait_ms = r->retry_after_ms;
    sender_say(v, SENDER_AGAIN, "Teams asks to wait (HTTP %d)", r->status);
    if (r->status != 429)
        return;
    x->t->n.limited++;
    pace_hit(sender_budget(x->t->base.sender), str_of(x->chat), v->wait_ms > 0 ? v->wait_ms : 2000);
    log_warn(&x->t->base.log, "rate limited: wait_ms=%" PRId64, v->wait_ms);
}

/* A token that Teams does not take is fetched anew; a second refusal is the operator's. */
static void on_unauthorized(struct teams_outgoing *x, struct sender_verdict *v)
{
    bearer_refused(&x->t->login);
    v->wait_ms = 1;
    sender_say(v, SENDER_AGAIN, "Teams does not take the bot's token");
    if (++x->refused < MAX_REFUSED)
        return;
    sender_say(v, SENDER_REFUSED,
               "Teams refuses the bot's token: check `entra_tenant`, and that the Azure Bot has "
               "this app id");
    platform_set_problem(&x->t->base, v->why);
}

static void on_info(struct teams_outgoing *x, struct sender_verdict *v)
{
    static const struct str types[] = {STR("dm"), STR("group"), STR("channel")};
    const struct teams_chat *c = teams_chat_find(x->t, str_of(x->chat));
    enum teams_kind kind = c != NULL ? c->kind : TEAMS_GROUP;
    BUF_LOCAL names = BUF_INIT;
    size_t n = 0;

    v->chat_type = types[kind];
    v->chat_name = c != NULL && c->name != NULL ? str_of(c->name) : STR_NULL;
    for (struct json_iter it = {0}; json_next(json_get(v->answer, "conversations"), &it);)
        if (str_eq(json_str(it.value, "id"), str_of(x->chat)))
            v->chat_name =
                json_str(it.value, "name").n > 0 ? json_str(it.value, "name") : STR("General");
    for (struct json_iter it = {0};
         v->chat_name.n == 0 && json_next(json_get(v->answer, "members"), &it) && n < MAX_NAMES;)
        if (json_str(it.value, "name").n > 0)
            buf_printf(&names, "%s%.*s", n++ > 0 ? ", " : "", STR_FMT(json_str(it.value, "name")));
    if (n > 0) {
        buf_reset(&x->whole);
        buf_add_str(&x->whole, buf_str(&names));
        v->chat_name = buf_str(&x->whole);
    }
    if (v->chat_name.n == 0)
        v->chat_name = str_of(x->chat);
}

static void on_ok(struct teams_outgoing *x, struct sender_verdict *v)
{
    struct str id = json_str(v->answer, "id");

    v->end = SENDER_DONE;
    x->refused = 0;
    if (streams(x)) {
        teams_stream_done(x, v);
    } else if (x->method == TEAMS_INFO) {
        on_info(x, v);
    } else if (x->method == TEAMS_EDIT) {
        x->t->n.edits++;
        snprintf(v->message_id, sizeof v->message_id, "%s", x->message);
    } else if (x->method == TEAMS_POST) {
        struct teams_chat *c = teams_chat_find(x->t, str_of(x->chat));
        if (c != NULL)
            c->typed_ms = 0; /* a message ends the typing */
        if (x->thread != NULL)
            teams_thread_join(x->t, str_of(x->chat), str_of(x->thread));
        if (!teams_is_id(id)) {
            sender_say(v, SENDER_UNKNOWN, "something else answered in Teams' place");
            return;
        }
        snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(id));
        if (x->op == ACTION_SEND_MEDIA && x->out.at == 0)
            teams_file_sent(x);
    }
}

static void teams_read(struct platform *p, struct outgoing *o, const struct http_result *r,
                       struct sender_verdict *v)
{
    struct teams_outgoing *x = teams_outgoing_of(o);
    struct json doc = {0};
    bool is_json = json_parse(x->t->base.answers, r->body, &doc) && json_is_object(doc);
    struct json error = is_json ? json_get(doc, "error") : (struct json){0};
    struct str code = json_str(error, "code");

    v->status = r->status;
    v->answer = is_json ? doc : (struct json){0};
    if (r->status >= 200 && r->status < 300)
        on_ok(x, v);
    else if (r->status == 401 && !str_eq(code, STR("BotNotRegistered")))
        on_unauthorized(x, v);
    else if (r->status == 412 || r->status == 429 || (r->status >= 502 && r->status <= 504))
        on_limit(x, r, v);
    else if (r->status >= 400 && r->status < 500)
        explain(x->t, code, v);
    else
        sender_say(v, SENDER_UNKNOWN,
                   "Teams had an error of its own (HTTP %d); it may have been "
                   "sent",
                   r->status);
    if (v->end == SENDER_REFUSED && streams(x))
        teams_stream_refused(x, code, json_str(error, "message"), v);
    else if (v->end == SENDER_REFUSED && x->op == ACTION_PROMPT)
        teams_card_over(x->t, str_of(x->chat), o->prompt);
    if (x->method == TEAMS_TYPING && v->end != SENDER_DONE)
        v->end = SENDER_FAILED; /* late typing is useless */
    else if (v->end == SENDER_REFUSED && posts(x))
        sender_blame(o);
}

/* Teams' limits of a conversation: 7 requests in a second, 8 in two, 60 in thirty, 1800 in an hour;
 * of the bot 50 a second in a tenant.  A growing message takes one request in 1.5 to 2 s. */
static const struct stream_ops streaming = {
    .way = teams_way,
    .native = true,
    .whole = true,
    .pace = {.per_second = 25, .burst = 20, .gap_ms = 2000, .draft_gap_ms = 1500, .chat_burst = 5},
    .message = {.max = TEAMS_MAX_CHARS, .unit = SPLIT_UTF16},
};

const struct sender_ops teams_sender = {
    .write = teams_write,
    .read = teams_read,
    .free = outgoing_free,
    .wait = teams_wait,
    .stream = &streaming,
};

void teams_ask(struct teams *t, struct str chat, struct str thread, struct str message,
               struct str body, const struct sender_question *q)
{
    struct teams_outgoing *x = xcalloc(1, sizeof *x);

    x->t = t;
    x->op = ACTION_UNKNOWN;
    x->method = TEAMS_ASK;
    x->chat = str_dup(chat);
    x->thread = str_dup_opt(thread);
    x->by_put = message.n > 0;
    snprintf(x->message, sizeof x->message, "%.*s", STR_FMT(message));
    buf_add_str(&x->body, body);
    sender_ask(t->base.sender, &x->out, q);
}

/* ---- checking actions ---- */

static const char *read_content(struct teams_outgoing *x, const struct action *a)
{
    size_t max = x->op == ACTION_PROMPT ? TEAMS_QUESTION_CHARS : TEAMS_MAX_CHARS;

    if (a->content.n > (size_t)SENDER_MAX_PARTS * 4 * max)
        return "the message is longer than sixteen messages of Teams";
    split_text(&x->parts, a->content, max, SPLIT_UTF16);
    if (x->parts.n == 0)
        return "the message is empty";
    if (x->op == ACTION_EDIT && x->parts.n > 1)
        return "the edited text is longer than one message of Teams holds";
    x->out.n_parts = x->parts.n;
    return NULL;
}

static const char *read_action(struct teams_outgoing *x, const struct action *a)
{
    const char *wrong = NULL;

    if (teams_is_id(a->message_id))
        snprintf(x->message, sizeof x->message, "%.*s", STR_FMT(a->message_id));
    if (posts(x) && teams_is_id(a->reply_to))
        snprintf(x->reply, sizeof x->reply, "%.*s", STR_FMT(a->reply_to));
    x->out.n_parts = 1;
    switch (x->op) {
    case ACTION_EDIT:
        x->method = TEAMS_EDIT;
        return x->message[0] == '\0' ? "there is no such message to edit" : read_content(x, a);
    case ACTION_TYPING:
        x->method = TEAMS_TYPING;
        return NULL;
    case ACTION_GET_CHAT_INFO:
        x->method = TEAMS_INFO;
        return NULL;
    case ACTION_DRAFT:
        return teams_stream_read(x, a);
    case ACTION_SEND_MEDIA:
        x->method = TEAMS_POST;
        return teams_file_read(x, a);
    case ACTION_PROMPT:
        wrong = prompt_wrong(a);
        break;
    default:
        break;
    }
    x->method = TEAMS_POST;
    return wrong != NULL ? wrong : read_content(x, a);
}

/* Teams shows typing for a few seconds; a repeat within them changes nothing. */
static bool wants_typing(struct teams_outgoing *x, const struct action *a)
{
    struct teams_chat *c = teams_chat_find(x->t, str_of(x->chat));
    int64_t now_ms = clock_now_ms(x->t->base.env->clock);

    if (a->content_set && str_trim(a->content).n == 0)
        return false; /* Teams has no request that ends it */
    if (c == NULL)
        return true;
    if (c->typed_ms != 0 && now_ms - c->typed_ms < TYPING_MS)
        return false;
    c->typed_ms = now_ms;
    return true;
}

static void add_question(struct teams_outgoing *x, const struct sender_order *q)
{
    struct str text = split_part(&x->parts, x->parts.n - 1);
    const struct prompt *asked =
        prompts_add(x->t->base.prompts, q->from, q->action, str_of(x->chat));
    struct jw w = jw_begin(&x->card);

    teams_write_question(&w, text, asked, true);
    teams_card_keep(x->t, str_of(x->chat), q->action->prompt_id,
                    &(struct teams_card_as){.text = text, .thread = str_of(x->thread)});
}

static void start(struct teams *t, struct sender_order *q, struct str chat, struct str thread)
{
    struct teams_outgoing *x = xcalloc(1, sizeof *x);

    x->t = t;
    x->op = q->action->op;
    x->chat = str_dup(chat);
    x->thread = str_dup_opt(thread);
    x->counted = q->action->stream != NULL;
    q->wrong = read_action(x, q->action);
    if (q->wrong == NULL && x->op == ACTION_TYPING && !wants_typing(x, q->action)) {
        host_result(t->base.host, q->id, &(struct action_result){.success = true});
        outgoing_free(&x->out);
        return;
    }
    bool begins = x->method == TEAMS_STREAM && x->message[0] == '\0';
    q->twice = posts(x) || begins ? TWICE_IS_TWO : TWICE_IS_ONE;
    q->lane = str_of(x->chat);
    q->apart = !posts(x);
    if (q->wrong == NULL && x->op == ACTION_PROMPT)
        add_question(x, q);
    sender_act(t->base.sender, &x->out, q);
}

void teams_act(struct platform *p, struct action_id id, const struct action_from *from,
               const struct action *a)
{
    struct sender_order q = {.id = id, .from = from, .action = a};
    struct str chat, thread;

    if (!teams_split_chat(a->chat_id, &chat, &thread))
        host_fail(p->host, id, "chat_id is not the id of a conversation in Teams");
    else if (a->thread_id.n > 0 && !teams_is_id(a->thread_id))
        host_fail(p->host, id, "metadata.thread_id is not the id of a message in Teams");
    else if ((teams_ops.descriptor->ops & 1u << a->op) == 0)
        host_fail(p->host, id, "unsupported op: %s", action_op_name(a->op));
    else
        start(teams_of(p), &q, chat, a->thread_id.n > 0 ? a->thread_id : thread);
}
