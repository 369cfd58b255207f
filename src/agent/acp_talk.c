/* acp_talk.c - what an agent says in a session: updates, permission requests, modes and models.
 *
 * A permission request becomes a question with buttons that only owners of the instance can answer.
 * Without an answer in time the answer is no: the agent's `reject_once` option, else "cancelled".
 *
 * `/mode` and `/model` list the choices; with a name they choose.  Only owners choose, because a
 * mode may let the agent act without asking. */
#include <stdio.h>
#include <stdlib.h>
#include "agent/acp_priv.h"
#include "agent/channel_priv.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "net/http_client.h"

#define MAX_TITLE 300   /* bytes of a title in a question */
#define MAX_DETAIL 1500 /* bytes of a command or a path that stands on its line */
#define MAX_LISTED 40   /* choices that are listed */
#define ASK_OWNER_MS 10000
#define COMMAND_MS 30000 /* for the answer to a command */

/* ---- failures, for the person who waits ---- */

char *acp_login(struct json methods)
{
    BUF_LOCAL text = BUF_INIT;

    for (struct json_iter it = {0}; json_next(methods, &it) && text.n < 500;) {
        struct str name = json_str(it.value, "name"), more = json_str(it.value, "description"),
                   id = json_str(it.value, "id");
        if (name.n == 0 || id.n == 0)
            continue;
        buf_add_z(&text, text.n > 0 ? "; " : "");
        buf_add_plain(&text, str_make(name.p, name.n < 100 ? name.n : 100));
        log_info(NULL, "the agent offers --login %.*s", (int)(id.n < 100 ? id.n : 100), id.p);
        if (more.n > 0 && more.n < 200) {
            buf_add_z(&text, " (");
            buf_add_plain(&text, more);
            buf_add_z(&text, ")");
        }
    }
    return text.n > 0 ? buf_take(&text) : NULL;
}

char *acp_reason(const struct acp_host *h, const struct jsonrpc_result *r)
{
    BUF_LOCAL text = BUF_INIT;

    if (r->code == AUTH_REQUIRED) {
        buf_add_z(&text, "it wants to be logged in on its machine first");
        if (h->login != NULL)
            buf_printf(&text, ": %s", h->login);
        return buf_take(&text);
    }
    buf_add_plain(&text, str_make(r->message.p, r->message.n < 300 ? r->message.n : 300));
    struct str details = json_as_str(r->value);
    if (details.p == NULL)
        details = json_str(r->value, "details");
    if (details.n > 0) {
        buf_add_z(&text, ": ");
        buf_add_plain(&text, str_make(details.p, details.n < 300 ? details.n : 300));
    }
    return buf_take(&text);
}

/* ---- updates ---- */

static void set_text(char **to, struct str text)
{
    free(*to);
    *to = text.p != NULL ? str_dup(text) : NULL;
}

static void note_tool(struct acp_session *s, struct json call)
{
    struct str id = json_str(call, "toolCallId"), title = json_str(call, "title");

    if (id.n == 0 || id.n > 500 || title.n == 0)
        return;
    struct acp_tool *tool = &s->tools[s->n_tools++ % ACP_MAX_TOOLS];
    set_text(&tool->id, id);
    set_text(&tool->title, str_make(title.p, title.n < MAX_TITLE ? title.n : MAX_TITLE));
}

static const char *tool_title(const struct acp_session *s, struct str id)
{
    size_t n = s->n_tools < ACP_MAX_TOOLS ? s->n_tools : ACP_MAX_TOOLS;

    for (size_t i = 1; i <= n; i++) { /* newest first */
        const struct acp_tool *tool = &s->tools[(s->n_tools - i) % ACP_MAX_TOOLS];
        if (str_eq(str_of(tool->id), id))
            return tool->title;
    }
    return NULL;
}

static void said(struct acp_session *s, struct json update)
{
    struct json content = json_get(update, "content");
    struct str type = json_str(content, "type"), id = json_str(update, "messageId");
    struct str text = json_str(content, "text");

    if (id.p != NULL && id.n < 500) {
        if (s->message != NULL && !str_eq(str_of(s->message), id))
            turn_paragraph(s->turn);
        set_text(&s->message, id);
    }
    if (str_eq(type, STR("resource_link")))
        text = json_str(content, "uri");
    else if (str_eq(type, STR("resource")))
        text = json_str(json_get(content, "resource"), "text");
    else if (str_eq(type, STR("image")) || str_eq(type, STR("audio")))
        text = str_eq(type, STR("image")) ? STR("[image]") : STR("[audio]");
    turn_text(s->turn, text);
}

/* "Plan 2/5: Write the tests" */
static void planned(struct acp_session *s, struct json update)
{
    struct json entries = json_get(update, "entries");
    struct str now = STR_NULL;
    size_t done = 0;
    BUF_LOCAL line = BUF_INIT;

    for (struct json_iter it = {0}; json_next(entries, &it);) {
        struct str status = json_str(it.value, "status");
        done += str_eq(status, STR("completed"));
        if (now.p == NULL && !str_eq(status, STR("completed")))
            now = json_str(it.value, "content");
    }
    buf_printf(&line, "Plan %zu/%zu", done, json_count(entries));
    if (now.n > 0)
        buf_printf(&line, ": %.*s", STR_FMT(now));
    turn_progress(s->turn, buf_str(&line));
}

static void tool_called(struct acp_session *s, struct json update)
{
    struct str status = json_str(update, "status");
    const char *title = tool_title(s, json_str(update, "toolCallId"));

    turn_paragraph(s->turn);
    if (title != NULL && !str_eq(status, STR("completed")) && !str_eq(status, STR("failed")))
        turn_progress(s->turn, str_of(title));
}

void acp_updated(struct acp_session *s, struct json update)
{
    struct str kind = json_str(update, "sessionUpdate");

    if (str_eq(kind, STR("config_option_update")) || str_eq(kind, STR("current_mode_update"))) {
        acp_keep_state(s, update);
        return;
    }
    if (s->replaying)
        return;
    if (str_starts(kind, STR("tool_call")))
        note_tool(s, update);
    if (!s->prompted)
        return; /* outside a turn there is no message to answer */
    if (str_eq(kind, STR("agent_message_chunk")))
        said(s, update);
    else if (str_eq(kind, STR("agent_thought_chunk")))
        turn_progress(s->turn, STR("Thinking"));
    else if (str_starts(kind, STR("tool_call")))
        tool_called(s, update);
    else if (str_eq(kind, STR("plan")))
        planned(s, update);
    else
        turn_alive(s->turn);
}

/* ---- permission requests ---- */

struct acp_permission {
    struct list link; /* session->permissions */
    struct acp_session *session;
    uint64_t ticket;
    struct agent_ask *ask;
    char *ids[TURN_MAX_OPTIONS]; /* owned */
    size_t n_ids;
    int no; /* the option that rejects once; -1: none */
};

static void permission_free(struct acp_permission *p)
{
    ask_withdraw(&p->ask);
    list_remove(&p->link);
    for (size_t i = 0; i < p->n_ids; i++)
        free(p->ids[i]);
    free(p);
}

static void answer(struct acp_session *s, uint64_t ticket, const char *option)
{
    BUF_LOCAL result = BUF_INIT;
    struct jw w = jw_begin(&result);

    jw_obj(&w);
    jw_kobj(&w, "outcome");
    jw_kstr(&w, "outcome", option != NULL ? STR("selected") : STR("cancelled"));
    if (option != NULL)
        jw_kstr(&w, "optionId", str_of(option));
    jw_end_obj(&w);
    jw_end_obj(&w);
    jsonrpc_answer(s->host->rpc, ticket, buf_str(&result));
}

static void on_decided(void *ctx, int chosen)
{
    struct acp_permission *p = ctx;
    int option = chosen >= 0 ? chosen : p->no;

    p->ask = NULL;
    turn_alive(p->session->turn);
    answer(p->session, p->ticket, option >= 0 ? p->ids[option] : NULL);
    if (chosen < 0)
        conversation_tell(p->session->conversation,
                          STR("[No owner of this agent decided in time: the answer is no.]"));
    permission_free(p);
}

static void add_cut(struct buf *out, struct str text, size_t most)
{
    buf_add_str(out, utf8_head(text, most));
    buf_add_z(out, text.n > most ? "…" : "");
}

/* The title on one line.  A link would show its text and hide its address. */
static void add_title(struct buf *out, struct str title)
{
    BUF_LOCAL cut = BUF_INIT, line = BUF_INIT;

    add_cut(&cut, title, MAX_TITLE);
    buf_add_plain(&line, buf_str(&cut));
    for (size_t i = 0; i < line.n; i++) {
        buf_add_c(out, line.p[i]);
        if (line.p[i] == ']' && i + 1 < line.n && line.p[i + 1] == '(')
            buf_add_c(out, ' ');
    }
}

/* Short, and no platform shows it as anything else. */
static bool is_plain(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < ' ' || (unsigned char)text.p[i] >= 0x7f ||
            strchr("*_`~|[]<>\\#@&", text.p[i]) != NULL)
            return false;
    return text.n <= MAX_DETAIL;
}

/* What is to be permitted: the title, and the command or the path where the agent names one, unless
 * all of it is in the title that is shown. */
static void write_question(struct buf *out, const struct acp_session *s, struct json call)
{
    static const char *const telling[] = {"command",  "cmd", "path", "file_path",
                                          "abs_path", "url", "query"};
    struct str title = json_str(call, "title");
    struct json input = json_get(call, "rawInput");
    BUF_LOCAL line = BUF_INIT;

    if (title.n == 0)
        title = str_of(tool_title(s, json_str(call, "toolCallId")));
    add_title(&line, title.n > 0 ? title : STR("a tool call"));
    buf_printf(out, "The agent asks for permission: %s", buf_z(&line));
    for (size_t i = 0; i < ARRAY_LEN(telling); i++) {
        struct json value = json_get(input, telling[i]);
        struct str detail = json_as_str(value);
        BUF_LOCAL words = BUF_INIT;
        struct jw w = jw_begin(&words);
        if (json_type(value) == JSON_ARRAY) { /* a program and its arguments */
            jw_value(&w, value);
            detail = buf_str(&words);
        }
        bool plain = is_plain(detail);
        if (detail.n == 0 || (plain && str_contains(buf_str(&line), detail)))
            continue;
        buf_printf(out, plain ? "\n%s: " : "\n%s:\n```\n", telling[i]);
        if (plain) {
            buf_add_str(out, detail);
        } else {
            question_add_code(out, detail);
            buf_add_z(out, "\n```");
        }
    }
}

/* Adds a button.  The option that rejects once takes the last place if there is no other. */
static void add_option(struct acp_permission *p, struct agent_question *q, struct json option)
{
    struct str kind = json_str(option, "kind"), id = json_str(option, "optionId");
    struct str name = str_trim(json_str(option, "name"));
    bool no = p->no < 0 && str_eq(kind, STR("reject_once"));

    if (id.n == 0 || (p->n_ids == TURN_MAX_OPTIONS && !no))
        return;
    if (p->n_ids == TURN_MAX_OPTIONS)
        free(p->ids[--p->n_ids]);
    q->options[p->n_ids] = (struct agent_option){.label = name.n > 0 ? name : id,
                                                 .yes = str_starts(kind, STR("allow"))};
    if (no)
        p->no = (int)p->n_ids;
    p->ids[p->n_ids++] = str_dup(id);
}

void acp_asked(struct acp_session *s, uint64_t ticket, struct json params)
{
    struct agent_question q = {0};
    struct acp_permission *p;
    BUF_LOCAL text = BUF_INIT;

    if (!s->prompted || s->turn->cancelled) {
        answer(s, ticket, NULL);
        return;
    }
    p = xcalloc(1, sizeof *p);
    *p = (struct acp_permission){.session = s, .ticket = ticket, .no = -1};
    list_init(&p->link);
    list_append(&s->permissions, &p->link);
    for (struct json_iter it = {0}; json_next(json_get(params, "options"), &it);)
        add_option(p, &q, it.value);
    q.n_options = p->n_ids;
    note_tool(s, json_get(params, "toolCall"));
    write_question(&text, s, json_get(params, "toolCall"));
    q.text = buf_str(&text);
    p->ask = turn_ask(s->turn, &q, on_decided, p);
    if (p->ask == NULL) {
        answer(s, ticket, p->no >= 0 ? p->ids[p->no] : NULL);
        permission_free(p);
    }
}

void acp_ask_cancelled(struct acp_host *h, uint64_t ticket)
{
    list_each (&h->sessions, it, next) {
        struct acp_session *s = list_entry(it, struct acp_session, link);
        list_each (&s->permissions, it2, next2) {
            struct acp_permission *p = list_entry(it2, struct acp_permission, link);
            if (p->ticket != ticket)
                continue;
            jsonrpc_refuse(h->rpc, ticket, JSONRPC_CANCELLED, "cancelled");
            permission_free(p);
            return;
        }
    }
}

void acp_drop_permissions(struct acp_session *s, bool tell)
{
    while (!list_is_empty(&s->permissions)) {
        struct acp_permission *p = list_first(&s->permissions, struct acp_permission, link);
        if (tell)
            answer(s, p->ticket, NULL);
        permission_free(p);
    }
}

/* ---- modes and models ---- */

/* False: @v is absent, or too long. */
static bool keep_json(char **to, struct json v)
{
    BUF_LOCAL text = BUF_INIT;
    struct jw w = jw_begin(&text);

    if (json_type(v) == JSON_ABSENT)
        return false;
    jw_value(&w, v);
    if (text.n > ACP_MAX_STATE)
        return false;
    set_text(to, buf_str(&text));
    return true;
}

void acp_keep_state(struct acp_session *s, struct json result)
{
    struct str mode = json_str(result, "currentModeId");

    if (keep_json(&s->modes, json_get(result, "modes")))
        set_text(&s->mode, STR_NULL);
    if (keep_json(&s->models, json_get(result, "models")))
        set_text(&s->model, STR_NULL);
    keep_json(&s->options, json_get(result, "configOptions"));
    if (mode.p == NULL)
        mode = json_str(result, "modeId");
    if (mode.n > 0 && mode.n < 500)
        set_text(&s->mode, mode);
}

/* The choices of one command: an option of the session, else its modes, else its models, which some
 * agents have from a draft of the protocol. */
struct choices {
    struct json list;  /* options or availableModes */
    struct str config; /* id of the option; absent: a mode */
    struct str current;
    const char *key;            /* of a choice's id: "value" or "id" */
    const char *method, *param; /* sets it */
};

/* The option of this name: by its category, else by its id. */
static bool find_option(struct json options, struct str what, struct choices *ret)
{
    for (int by_id = 0; by_id < 2; by_id++)
        for (struct json_iter it = {0}; json_next(options, &it);)
            if (str_eq(json_str(it.value, by_id ? "id" : "category"), what) &&
                str_eq(json_str(it.value, "type"), STR("select"))) {
                *ret = (struct choices){.list = json_get(it.value, "options"),
                                        .config = json_str(it.value, "id"),
                                        .current = json_str(it.value, "currentValue"),
                                        .key = "value",
                                        .method = "session/set_config_option",
                                        .param = "value"};
                return true;
            }
    return false;
}

static bool find_choices(const struct acp_session *s, struct json_parser *p, struct choices *ret)
{
    struct str what = str_of(s->command);
    struct json doc;

    if (s->options != NULL && json_parse(p, str_of(s->options), &doc) &&
        find_option(doc, what, ret))
        return true;
    bool mode = str_eq(what, STR("mode"));
    const char *kept = mode ? s->modes : s->models, *now = mode ? s->mode : s->model;
    if (kept == NULL || !json_parse(p, str_of(kept), &doc))
        return false;
    *ret = (struct choices){.list = json_get(doc, mode ? "availableModes" : "availableModels"),
                            .current = now != NULL ? str_of(now)
                                                   : json_str(doc, mode ? "currentModeId"
                                                                        : "currentModelId"),
                            .key = mode ? "id" : "modelId",
                            .method = mode ? "session/set_mode" : "session/set_model",
                            .param = mode ? "modeId" : "modelId"};
    return json_count(ret->list) > 0;
}

typedef bool choice_fn(void *ctx, struct str id, struct str name);

/* Options may be grouped.  Stops when @fn returns true. */
static bool each_choice(const struct choices *c, choice_fn *fn, void *ctx)
{
    for (struct json_iter it = {0}; json_next(c->list, &it);) {
        struct json inner = json_get(it.value, "options");
        if (json_type(inner) != JSON_ARRAY) {
            if (fn(ctx, json_str(it.value, c->key), json_str(it.value, "name")))
                return true;
            continue;
        }
        for (struct json_iter it2 = {0}; json_next(inner, &it2);)
            if (fn(ctx, json_str(it2.value, c->key), json_str(it2.value, "name")))
                return true;
    }
    return false;
}

struct search {
    struct str wanted, found, current;
    struct buf list;
    size_t n;
};

static bool match(void *ctx, struct str id, struct str name)
{
    struct search *f = ctx;

    if (!str_eq_ci(id, f->wanted) && !str_eq_ci(name, f->wanted))
        return false;
    f->found = id;
    return true;
}

static bool add_choice(void *ctx, struct str id, struct str name)
{
    struct search *f = ctx;

    buf_printf(&f->list, "\n%s %.*s", str_eq(id, f->current) ? "•" : "-", STR_FMT(id));
    if (name.n > 0 && !str_eq_ci(name, id))
        buf_printf(&f->list, " (%.*s)", STR_FMT(name));
    return ++f->n >= MAX_LISTED;
}

void acp_drop_command(struct acp_session *s)
{
    http_cancel(&s->owner_call);
    free(s->command);
    free(s->wanted);
    bhgw_event_free(s->command_ev);
    s->command = s->wanted = NULL;
    s->command_ev = NULL;
    s->may = false;
}

/* Ends the command with a message to the chat. */
static void command_over(struct acp_session *s, struct str text)
{
    conversation_tell(s->conversation, text);
    acp_drop_command(s);
    timer_set(s->conversation->agent->clock, &s->again, 0); /* a turn may wait */
}

static void on_chosen(void *ctx, const struct jsonrpc_result *r)
{
    struct acp_session *s = ctx;
    BUF_LOCAL text = BUF_INIT;

    s->command_request = 0;
    timer_stop(s->conversation->agent->clock, &s->patience);
    if (r->ok) {
        buf_printf(&text, "The %s is now %s.", s->command, s->wanted);
        acp_keep_state(s, r->value);
        set_text(strcmp(s->command, "mode") == 0 ? &s->mode : &s->model, str_of(s->wanted));
    } else {
        buf_printf(&text, "The agent did not change its %s: ", s->command);
        add_cut(&text, r->message, MAX_TITLE);
    }
    command_over(s, buf_str(&text));
}

static void choose(struct acp_session *s, const struct choices *c, struct str id)
{
    BUF_LOCAL params = BUF_INIT;
    struct jw w = jw_begin(&params);

    jw_obj(&w);
    jw_kstr(&w, "sessionId", str_of(s->id));
    jw_kstr_opt(&w, "configId", c->config);
    jw_kstr(&w, c->param, id);
    jw_end_obj(&w);
    set_text(&s->wanted, id);
    s->command_request = jsonrpc_call(s->host->rpc, c->method, buf_str(&params), on_chosen, s);
    timer_set(s->conversation->agent->clock, &s->patience, COMMAND_MS);
}

static void do_command(struct acp_session *s)
{
    struct json_parser *p = json_parser_new();
    struct search f = {.wanted = str_of(s->wanted)};
    struct choices c = {0};
    BUF_LOCAL text = BUF_INIT;

    bool any = find_choices(s, p, &c);
    f.current = c.current;
    if (any && s->wanted[0] != '\0' && each_choice(&c, match, &f)) {
        choose(s, &c, f.found);
    } else {
        if (!any) {
            buf_printf(&text, "This agent has no %s to choose.", s->command);
        } else {
            each_choice(&c, add_choice, &f);
            buf_printf(&text, "%s%sChoose with /%s NAME:%.*s",
                       s->wanted[0] != '\0' ? "There is no " : "",
                       s->wanted[0] != '\0' ? "such name. " : "", s->command,
                       STR_FMT(buf_str(&f.list)));
        }
        command_over(s, buf_str(&text));
    }
    buf_done(&f.list);
    json_parser_free(p);
}

static void on_owner(void *ctx, const struct http_result *r)
{
    struct acp_session *s = ctx;
    struct json doc;

    s->owner_call = NULL;
    if (r->err == BH_OK && r->status == 200 &&
        json_parse(s->conversation->agent->parser, r->body, &doc) &&
        json_as_bool(json_get(doc, "owner"), false)) {
        s->may = true;
        acp_advance(s);
        return;
    }
    BUF_LOCAL text = BUF_INIT;
    buf_printf(&text, "Only an owner of this agent can change its %s.", s->command);
    command_over(s, buf_str(&text));
}

/* Asks the connector whether the author of the command is an owner. */
static void ask_owner(struct acp_session *s)
{
    struct agent *a = s->conversation->agent;
    const struct bhgw_event *ev = s->command_ev;
    BUF_LOCAL url = BUF_INIT, body = BUF_INIT;
    BUF_SECRET bearer = BUF_INIT;
    char *base = bhgw_http_url(a->opt->url);
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "platform", str_of(ev->platform));
    jw_kstr(&w, "userId", str_of(ev->user_id != NULL ? ev->user_id : "-"));
    jw_kstr(&w, "bot", str_of(ev->bot_id != NULL ? ev->bot_id : ""));
    jw_end_obj(&w);
    buf_printf(&url, "%s/manage/owner", base);
    bhgw_string_free(base);
    agent_bearer(a, &bearer);
    const char *const headers[] = {buf_z(&bearer), "Content-Type: application/json", NULL};
    s->owner_call = http_fetch(a->http,
                               &(struct http_fetch){.method = "POST",
                                                    .url = buf_z(&url),
                                                    .body = buf_str(&body),
                                                    .headers = headers,
                                                    .timeout_ms = ASK_OWNER_MS,
                                                    .ca_path = a->opt->ca_file},
                               on_owner, s);
}

void acp_obey(struct acp_session *s)
{
    if (s->command_request != 0 || s->owner_call != NULL)
        return;
    if (s->wanted[0] != '\0' && !s->may)
        ask_owner(s);
    else
        do_command(s);
}

bool acp_command(struct backend *b, const struct message *m, struct str name, struct str rest)
{
    struct acp_session *s = acp_session_of(acp_of(b), m->conversation);

    if ((!str_eq(name, STR("mode")) && !str_eq(name, STR("model"))) || rest.n > 500)
        return false;
    if (s->command != NULL) {
        conversation_tell(m->conversation, STR("Wait for the answer to the last command, please."));
        return true;
    }
    s->command = str_dup(name);
    s->wanted = str_dup(rest);
    s->command_ev = bhgw_event_copy(m->ev);
    acp_advance(s);
    return true;
}
