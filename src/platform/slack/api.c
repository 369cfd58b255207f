/* api.c - workspaces and their tokens, rate limits, errors, questions, names.  (slack_priv.h has
 * the contract.)
 *
 * Slack counts requests per method, app and workspace, and messages per channel: one a second.
 * "50+ per minute" (a tier) is drained as 40 a minute with room for 10 at once, so that no minute
 * has more than 50.  An answer 429 stops the method in its workspace until Retry-After.
 *
 * Slack answers {"ok": true, ...} or {"ok": false, "error": "word"} with status 200. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/slack/slack_priv.h"

enum {
    MAX_ASKED = 32,
    NAME_FRESH_MS = 6 * 3600 * 1000,
    LATER_MS = 60000, /* until auth.test is asked again */
    MAX_WAIT_MS = 3600000,
};

static const struct {
    const char *name;
    int per_minute; /* 0: not counted here */
} methods[] = {
    [SLACK_AUTH_TEST] = {"auth.test", 0},
    [SLACK_POST] = {"chat.postMessage", 0}, /* per channel */
    [SLACK_UPDATE] = {"chat.update", 50},
    [SLACK_EPHEMERAL] = {"chat.postEphemeral", 100},
    [SLACK_REACT] = {"reactions.add", 50},
    [SLACK_UNREACT] = {"reactions.remove", 20},
    [SLACK_STATUS] = {"assistant.threads.setStatus", 100},
    [SLACK_CHANNEL_INFO] = {"conversations.info", 50},
    [SLACK_HISTORY] = {"conversations.history", 50},
    [SLACK_REPLIES] = {"conversations.replies", 50},
    [SLACK_USER_INFO] = {"users.info", 100},
    [SLACK_UPLOAD_URL] = {"files.getUploadURLExternal", 100},
    [SLACK_UPLOAD] = {"", 0},
    [SLACK_COMPLETE] = {"files.completeUploadExternal", 100},
    [SLACK_FILE_INFO] = {"files.info", 100},
    [SLACK_OAUTH] = {"oauth.v2.access", 0},
    [SLACK_CONNECT] = {"apps.connections.open", 0}, /* socket.c waits between two */
    [SLACK_START] = {"chat.startStream", 20},
    [SLACK_APPEND] = {"chat.appendStream", 100},
    [SLACK_STOP] = {"chat.stopStream", 20},
};

const char *slack_method_name(enum slack_method m)
{
    return methods[m].name;
}

/* ---- workspaces ---- */

struct slack_team *slack_team_new(struct slack *s, struct str id, struct str token)
{
    struct slack_team *t = xcalloc(1, sizeof *t);
    BUF_LOCAL auth = BUF_INIT;

    t->s = s;
    if (id.n > 0 && id.n <= SLACK_ID_MAX)
        memcpy(t->id, id.p, id.n);
    if (token.n > 0) {
        buf_printf(&auth, "Authorization: Bearer %.*s", STR_FMT(token));
        t->auth = buf_take(&auth);
    }
    return t;
}

void slack_team_free(struct slack_team *t)
{
    if (t == NULL)
        return;
    if (t->auth != NULL)
        secret_wipe(t->auth, strlen(t->auth));
    free(t->auth);
    free(t->name);
    free(t->missing);
    free(t);
}

struct slack_team *slack_team_find(struct slack *s, struct str id)
{
    struct slack_team *t = id.n > 0 ? map_get(&s->teams, id) : NULL;

    if (t == NULL && s->own != NULL &&
        (id.n == 0 || s->own->id[0] == '\0' || str_eq(str_of(s->own->id), id) ||
         map_count(&s->teams) == 0))
        t = s->own;
    if (t == NULL && id.n == 0 && map_count(&s->teams) == 1) {
        size_t at = 0;
        void *value = NULL;
        map_next(&s->teams, &at, &value);
        t = value;
    }
    return t;
}

static const char *const scopes[] = {
    "chat:write",   "app_mentions:read", "channels:history", "groups:history", "im:history",
    "mpim:history", "channels:read",     "groups:read",      "im:read",        "mpim:read",
    "users:read",   "reactions:write",   "files:read",       "files:write",
};

struct str slack_scopes(void)
{
    static char all[512];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(scopes); i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i > 0 ? "," : "", scopes[i]);
    return str_make(all, n);
}

void slack_scopes_missing(struct str granted, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(scopes); i++) {
        struct str rest = granted, one;
        bool has = false;
        while (str_split(&rest, ',', &one))
            has |= str_eq(str_trim(one), str_of(scopes[i]));
        if (!has)
            buf_printf(out, "%s%s", out->n > 0 ? ", " : "", scopes[i]);
    }
}

static void keep(char ret[SLACK_ID_MAX + 1], struct str id)
{
    if (slack_is_id(id)) {
        memcpy(ret, id.p, id.n);
        ret[id.n] = '\0';
    }
}

static void on_auth(void *ctx, const struct sender_verdict *v)
{
    struct slack_team *t = ctx;
    struct slack *s = t->s;

    if (v->end !=
        SENDER_DONE) { /* it cannot be reached, or refuses the token, which may be mended */
        timer_set(s->base.env->clock, &s->again, LATER_MS);
        return;
    }
    keep(t->id, json_str(v->answer, "team_id"));
    keep(t->bot_user, json_str(v->answer, "user_id"));
    keep(t->bot_id, json_str(v->answer, "bot_id"));
    free(t->name);
    t->name = str_dup(json_str(v->answer, "team"));
    slack_well(s);
    log_info(&s->base.log, "the bot is %s in workspace %s", t->bot_user, t->id);
    if (t->missing != NULL)
        log_warn(&s->base.log, "the app lacks scopes in workspace %s: %s", t->id, t->missing);
}

void slack_team_ask(struct slack_team *t)
{
    slack_ask(t, SLACK_AUTH_TEST, STR_NULL,
              &(struct sender_question){.lane = STR("auth"), .told = on_auth, .ctx = t});
}

/* ---- chats ---- */

struct slack_chat *slack_chat_get(struct slack *s, struct str id, struct str team)
{
    if (id.n == 0 || id.n > SLACK_ID_MAX || team.n > SLACK_ID_MAX)
        return NULL;
    struct slack_chat *c = lru_use(&s->chats, id, sizeof *c);
    if (team.n > 0)
        snprintf(c->team, sizeof c->team, "%.*s", STR_FMT(team));
    return c;
}

/* ---- threads ---- */

static struct str thread_key(char ret[2 * SLACK_ID_MAX + 2], struct str chat, struct str ts)
{
    if (!slack_is_chat(chat) || !slack_is_ts(ts))
        return STR_NULL;
    snprintf(ret, 2 * SLACK_ID_MAX + 2, "%.*s %.*s", STR_FMT(chat), STR_FMT(ts));
    return str_of(ret);
}

struct slack_thread *slack_thread_find(struct slack *s, struct str chat, struct str ts)
{
    char key[2 * SLACK_ID_MAX + 2];

    return lru_find(&s->threads, thread_key(key, chat, ts));
}

struct slack_thread *slack_thread_use(struct slack *s, struct str chat, struct str ts)
{
    char room[2 * SLACK_ID_MAX + 2];
    struct str key = thread_key(room, chat, ts);

    return key.n > 0 ? lru_use(&s->threads, key, sizeof(struct slack_thread)) : NULL;
}

void slack_thread_joined(struct slack *s, struct str chat, struct str ts)
{
    struct slack_thread *t = slack_thread_use(s, chat, ts);

    if (t != NULL)
        t->joined = true;
}

/* ---- rate limits ---- */

static double drained(const struct slack_limit *l, int per_minute, int64_t now_ms)
{
    double level = l->level - (double)(now_ms - l->at_ms) * per_minute * 0.8 / 60000;

    return level > 0 ? level : 0;
}

int64_t slack_limit_ms(struct slack_team *t, enum slack_method m)
{
    const struct slack_limit *l = &t->limits[m];
    int64_t now_ms = clock_now_ms(t->s->base.env->clock), wait_ms = l->until_ms - now_ms;
    int per_minute = methods[m].per_minute;

    if (per_minute > 0) {
        double over = drained(l, per_minute, now_ms) + 1 - per_minute * 0.2;
        int64_t ms = over > 0 ? (int64_t)(over * 60000 / (per_minute * 0.8)) + 1 : 0;
        wait_ms = ms > wait_ms ? ms : wait_ms;
    }
    return wait_ms > 0 ? wait_ms : 0;
}

int64_t slack_wait_ms(struct slack_team *t, enum slack_method m, const struct slack_chat *c)
{
    int64_t now_ms = clock_now_ms(t->s->base.env->clock), wait_ms = slack_limit_ms(t, m);

    if (m == SLACK_POST || m == SLACK_COMPLETE ||
        m == SLACK_START) { /* the process before this one may have posted just now */
        int64_t next_ms = c != NULL ? c->next_post_ms : 0;
        next_ms = next_ms > t->s->first_post_ms ? next_ms : t->s->first_post_ms;
        wait_ms = next_ms - now_ms > wait_ms ? next_ms - now_ms : wait_ms;
    }
    return wait_ms;
}

void slack_called(struct slack_team *t, enum slack_method m)
{
    struct slack_limit *l = &t->limits[m];
    int64_t now_ms = clock_now_ms(t->s->base.env->clock);

    l->level = drained(l, methods[m].per_minute, now_ms) + 1;
    l->at_ms = now_ms;
}

/* ---- answers ---- */

void slack_well(struct slack *s)
{
    bool connected = s->sockets.app == NULL || slack_sockets_live(s) > 0;

    if (connected && !(s->own != NULL && s->own->denied) &&
        !(s->sockets.app != NULL && s->sockets.app->denied))
        platform_set_problem(&s->base, NULL);
}

/* Slack refuses the token of @t.  The tokens of the configuration are an operator's problem; a
 * workspace that installed the app and dropped it again is not. */
static void deny(struct slack_team *t, const char *why)
{
    struct slack *s = t->s;

    t->denied = true;
    if (t == s->own || t == s->sockets.app)
        platform_set_problem(&s->base, why);
    else
        log_warn(&s->base.log, "workspace %s: %s", t->id, why);
    if (t == s->own && !timer_is_set(&s->again))
        timer_set(s->base.env->clock, &s->again, LATER_MS);
}

enum means { REFUSED, WORKSPACE, NOT_DONE, MAYBE };

/* What Slack's words mean.  Gateways resend after some words (sender_is_loaded()): no sentence has
 * them. */
static const struct {
    const char *error;
    enum means means;
    const char *sentence;
} errors[] = {
    {"invalid_auth", WORKSPACE,
     "Slack refuses the bot's token: copy the current one (OAuth & "
     "Permissions) into the configuration and restart bellhop"},
    {"not_authed", WORKSPACE, "Slack got no token: set bot_token in the configuration"},
    {"account_inactive", WORKSPACE,
     "the app was removed from the workspace, or the workspace is "
     "gone: install the app again"},
    {"token_revoked", WORKSPACE,
     "the bot's token was revoked: install the app again and put the "
     "new token into the configuration"},
    {"token_expired", WORKSPACE,
     "the bot's token has expired, because the app has token rotation: "
     "use an app without it"},
    {"channel_not_found", REFUSED, "Slack knows no such channel, or the bot is not in it"},
    {"not_in_channel", REFUSED, "the bot is not in this channel: invite it with /invite"},
    {"is_archived", REFUSED, "this channel is archived"},
    {"msg_too_long", REFUSED, "the message is too long for Slack"},
    {"no_text", REFUSED, "the message is empty"},
    {"restricted_action", REFUSED, "the workspace does not let the bot write here"},
    {"message_not_found", REFUSED, "there is no such message"},
    {"cant_update_message", REFUSED, "Slack lets the bot edit its own messages only"},
    {"edit_window_closed", REFUSED, "the workspace does not let this message be edited any more"},
    {"message_not_in_streaming_state", REFUSED, "Slack lets this message grow no more"},
    {"stopped_by_user", REFUSED, "somebody stopped this answer in Slack"},
    {"thread_not_found", REFUSED, "there is no such thread in this channel"},
    {"invalid_thread_ts", REFUSED, "there is no such thread in this channel"},
    {"invalid_name", REFUSED, "Slack has no such emoji"},
    {"too_many_reactions", REFUSED, "the message has too many reactions already"},
    {"file_uploads_disabled", REFUSED, "the workspace does not take files"},
    {"file_uploads_except_images_disabled", REFUSED, "the workspace takes pictures only"},
    {"file_upload_size_restricted", REFUSED, "the file is larger than the workspace allows"},
    {"file_type_not_allowed", REFUSED, "the workspace does not take this kind of file"},
    {"file_not_found", REFUSED, "Slack does not know the uploaded file"},
    {"rate_limited", NOT_DONE, "Slack asks to wait"},
    {"ratelimited", NOT_DONE, "Slack asks to wait"},
    {"service_unavailable", NOT_DONE, "Slack is not available"},
    {"request_timeout", NOT_DONE, "Slack did not get the whole request"},
    {"team_added_to_org", NOT_DONE, "the workspace is being moved"},
    {"internal_error", MAYBE, "Slack had an error of its own; it may have been delivered"},
    {"fatal_error", MAYBE, "Slack had an error of its own; it may have been delivered"},
};

struct str slack_error(const struct sender_verdict *v)
{
    return json_str(v->answer, "error");
}

static void explain(struct slack_team *t, struct sender_verdict *v)
{
    static const enum sender_end ends[] = {[REFUSED] = SENDER_REFUSED,
                                           [WORKSPACE] = SENDER_REFUSED,
                                           [NOT_DONE] = SENDER_AGAIN,
                                           [MAYBE] = SENDER_UNKNOWN};
    struct str needed = json_str(v->answer, "needed"), error = slack_error(v);
    char word[64];

    snprintf(word, sizeof word, "%.*s", error.n < 60 ? (int)error.n : 60, error.p);
    v->end = SENDER_REFUSED;
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        if (!str_eq(error, str_of(errors[i].error)))
            continue;
        sender_say(v, ends[errors[i].means], "%s", errors[i].sentence);
        if (errors[i].means == WORKSPACE && t == t->s->sockets.app)
            sender_say(v, v->end,
                       "Slack refuses app_token: make an app-level token with connections:write "
                       "(Basic Information) and put it into the configuration");
        if (errors[i].means == WORKSPACE)
            deny(t, v->why);
        return;
    }
    if (str_eq(error, STR("missing_scope")) && needed.n < 100)
        snprintf(v->why, sizeof v->why,
                 "the app lacks the scope %.*s: add it (OAuth & Permissions) and install the app "
                 "again",
                 STR_FMT(needed));
    else if (str_has_only(str_of(word), "_") && !sender_is_loaded(word))
        snprintf(v->why, sizeof v->why, "Slack refused: %s", word);
    else
        snprintf(v->why, sizeof v->why, "Slack refused this");
}

void slack_answer_read(struct slack_team *t, enum slack_method m, const struct http_result *r,
                       struct sender_verdict *v)
{
    int64_t wait_ms = r->retry_after_ms > 0 ? r->retry_after_ms : 0;
    struct json doc;

    wait_ms = wait_ms < MAX_WAIT_MS ? wait_ms : MAX_WAIT_MS;
    if (json_parse(t->s->base.answers, r->body, &doc) && json_is_object(doc))
        v->answer = doc;
    struct str error = slack_error(v);
    if (r->status == 200 && json_as_bool(json_get(v->answer, "ok"), false)) {
        v->end = SENDER_DONE;
        if (t->denied) {
            t->denied = false;
            slack_well(t->s);
        }
    } else if (r->status == 429 || (r->status == 200 && (str_eq(error, STR("ratelimited")) ||
                                                         str_eq(error, STR("rate_limited"))))) {
        t->s->n.limited++;
        v->wait_ms = wait_ms > 0 ? wait_ms : 1000;
        t->limits[m].until_ms = clock_now_ms(t->s->base.env->clock) + v->wait_ms;
        sender_say(v, SENDER_AGAIN, "Slack asks to wait %" PRId64 " s", (v->wait_ms + 999) / 1000);
        log_warn(&t->s->base.log, "rate limited: method=%s retry_after_ms=%" PRId64,
                 methods[m].name, v->wait_ms);
    } else if (error.n > 0 && r->status < 500) {
        explain(t, v);
    } else if (r->status == 503) {
        v->wait_ms = wait_ms;
        sender_say(v, SENDER_AGAIN, "Slack is not available");
    } else if (r->status >= 400 && r->status < 500) {
        sender_say(v, SENDER_REFUSED, "Slack refused this (HTTP %d)", r->status);
    } else {
        sender_say(v, SENDER_UNKNOWN, "Slack answered with HTTP %d; it may have been delivered",
                   r->status);
    }
}

/* ---- names ---- */

struct slack_name {
    struct lru_entry lru; /* workspace, blank, id */
    struct slack *s;
    char *name, *handle; /* owned; NULL: not known */
    int64_t asked_ms;    /* monotonic; 0: never */
    bool asking;
};

void slack_name_free(struct lru *l, void *entry)
{
    struct slack_name *n = entry;

    free(n->name);
    free(n->handle);
}

static void set_name(char **to, struct str name)
{
    if (name.n == 0 || name.n > 200)
        return;
    free(*to);
    *to = str_dup(name);
}

static void on_named(void *ctx, const struct sender_verdict *v)
{
    struct slack_name *n = ctx;
    struct json user = json_get(v->answer, "user"), profile = json_get(user, "profile");
    struct str key = n->lru.key, team;

    n->asking = false;
    n->s->names_asked--;
    set_name(&n->name, json_str(json_get(v->answer, "channel"), "name"));
    set_name(&n->handle, json_str(user, "name"));
    set_name(&n->name, json_str(user, "real_name"));
    set_name(&n->name, json_str(profile, "real_name"));
    set_name(&n->name, json_str(profile, "display_name"));
    str_split(&key, ' ', &team);
    struct slack_team *t = slack_team_find(n->s, team);
    if (v->end == SENDER_REFUSED && t != NULL && n->name == NULL)
        t->no_names = t->missing != NULL; /* do not ask for what the app may not know */
}

static struct slack_name *find_name(struct slack *s, struct slack_team *t, struct str team,
                                    struct str id)
{
    char key[2 * SLACK_ID_MAX + 2];
    int64_t now_ms = clock_now_ms(s->base.env->clock);
    bool channel = id.n > 0 && (id.p[0] == 'C' || id.p[0] == 'G');
    BUF_LOCAL body = BUF_INIT;

    if (!slack_is_id(id) || !slack_is_id(team))
        return NULL;
    snprintf(key, sizeof key, "%.*s %.*s", STR_FMT(team), STR_FMT(id));
    if (lru_is_full(&s->names) && lru_find(&s->names, str_of(key)) == NULL &&
        ((struct slack_name *)lru_oldest(&s->names))->asking)
        return NULL;
    struct slack_name *n = lru_use(&s->names, str_of(key), sizeof *n);
    n->s = s;
    bool fresh = n->asked_ms != 0 && now_ms - n->asked_ms < NAME_FRESH_MS;
    if (fresh || n->asking || t == NULL || t->no_names || s->names_asked >= MAX_ASKED ||
        id.p[0] == 'B')
        return n;
    n->asking = true;
    n->asked_ms = now_ms;
    s->names_asked++;
    form_add(&body, channel ? "channel" : "user", id);
    slack_ask(t, channel ? SLACK_CHANNEL_INFO : SLACK_USER_INFO, buf_str(&body),
              &(struct sender_question){.lane = n->lru.key, .told = on_named, .ctx = n});
    return n;
}

void slack_names_fill(struct slack *s, struct slack_team *t, struct event *ev)
{
    const struct slack_name *n = find_name(s, t, ev->scope_id, ev->user_id);
    bool unnamed = str_eq(ev->user_name, ev->user_id);

    if (n != NULL && n->name != NULL && unnamed)
        ev->user_name = ev->user_display_name = str_of(n->name);
    if (n != NULL && n->handle != NULL && ev->user_handle.n == 0)
        ev->user_handle = str_of(n->handle);
    if (str_eq(ev->chat_type, STR("dm"))) {
        ev->chat_name = ev->user_name;
        return;
    }
    n = find_name(s, t, ev->scope_id, ev->chat_id);
    if (n != NULL && n->name != NULL)
        ev->chat_name = str_of(n->name);
}
