/* inbound.c - receives Slack's webhooks; takes events, however they came.  (slack_priv.h has the
 * calls.)
 *
 *      POST --signed, and now?--no--> false: all such requests get the same answer
 *             |-- url_verification --> the challenge
 *             |-- event_callback --> normalize --> host_accept() --safe--> 200
 *             '-- a form: interaction or slash command --> interactions.c
 *
 * Slack sends an event again, with the same event_id, unless it gets 200 within three seconds; the
 * host drops the duplicate.  The header that counts the repeats proves nothing and is not read. */
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/slack/slack_priv.h"

struct slack_in slack_in_of(struct slack *s, const struct slack_team *t)
{
    return (struct slack_in){.bot = str_of(s->base.bot),
                             .bot_user = t != NULL ? str_of(t->bot_user) : STR_NULL,
                             .bot_id = t != NULL ? str_of(t->bot_id) : STR_NULL,
                             .reactions = s->cfg->base.reactions};
}

/* ---- answering ---- */

void slack_reply(struct slack *s, const struct slack_asker *to, struct str body)
{
    if (to->conn != 0)
        slack_socket_ack(s, to);
    else
        http_answer(s->base.env->server, to->http,
                    &(struct http_answer){.status = 200, .body = body});
}

void slack_refuse(struct slack *s, const struct slack_asker *to)
{
    s->base.n.malformed++;
    if (to->conn != 0) /* it would be as malformed the next time */
        slack_socket_ack(s, to);
    else
        await_refuse(&s->base, to->http, BH_MALFORMED);
}

void slack_accept(struct slack *s, const struct slack_asker *to, const struct webhook_delivery *x,
                  struct str good)
{
    if (to->conn != 0)
        slack_socket_accept(s, to, x);
    else
        await_accept(&s->base, x, to->http, &(struct http_answer){.status = 200, .body = good},
                     SLACK_DEADLINE_MS);
}

/* ---- events ---- */

void slack_take_event(struct slack *s, const struct slack_asker *to, struct json body)
{
    struct str team = slack_team_of(body);
    struct slack_team *t = slack_team_find(s, team);
    struct slack_in in = slack_in_of(s, t);

    struct json event = json_get(body, "event");
    struct str type = json_str(event, "type");
    bool revoked = str_eq(type, STR("tokens_revoked"));
    if (revoked || str_eq(type, STR("app_uninstalled"))) {
        if (!revoked || json_count(json_get(json_get(event, "tokens"), "bot")) > 0)
            slack_team_removed(s, team, json_i64(body, "event_time", 0));
        slack_reply(s, to, STR_NULL);
        return;
    }
    arena_reset(&s->arena);
    if (in.bot_user.n == 0) { /* not known yet: the event tells it */
        for (struct json_iter it = {0}; json_next(json_get(body, "authorizations"), &it);)
            if (json_as_bool(json_get(it.value, "is_bot"), false))
                in.bot_user = json_str(it.value, "user_id");
    }
    enum slack_verdict v = slack_normalize(body, &in, &s->arena, &s->out);
    if (v == SLACK_MALFORMED) {
        slack_refuse(s, to);
    } else if (v == SLACK_IGNORED) {
        s->base.n.ignored++;
        log_debug(&s->base.log, "event ignored: %s", s->out.why);
        slack_reply(s, to, STR_NULL);
    } else {
        struct event *ev = &s->out.ev;
        slack_chat_get(s, ev->chat_id, team);
        bool in_thread = ev->thread_id.n > 0;
        struct slack_thread *th =
            slack_thread_use(s, ev->chat_id, in_thread ? ev->thread_id : ev->message_id);
        if (in_thread && th != NULL && th->joined)
            ev->replies_to_bot = true;
        else if (th != NULL && ev->mentions_bot && !ev->author_is_bot)
            th->joined = true;
        if (th != NULL && !ev->author_is_bot && slack_is_id(ev->user_id)) {
            snprintf(th->user, sizeof th->user, "%.*s", STR_FMT(ev->user_id));
            snprintf(th->team, sizeof th->team, "%.*s",
                     slack_is_id(s->out.user_team) ? (int)s->out.user_team.n : 0,
                     s->out.user_team.p != NULL ? s->out.user_team.p : "");
        }
        slack_names_fill(s, t, &s->out.ev);
        slack_accept(s, to, &(struct webhook_delivery){.ev = &s->out.ev}, STR_NULL);
    }
}

static void take_challenge(struct slack *s, const struct slack_asker *to, struct json body)
{
    BUF_LOCAL answer = BUF_INIT;
    struct jw w = jw_begin(&answer);

    jw_obj(&w);
    jw_kstr(&w, "challenge", json_str(body, "challenge"));
    jw_end_obj(&w);
    slack_reply(s, to, buf_str(&answer));
}

static void take_json(struct slack *s, const struct slack_asker *to, struct str text)
{
    struct json body;

    if (!json_parse(s->base.parser, text, &body) || !json_is_object(body)) {
        slack_refuse(s, to);
        return;
    }
    struct str type = json_str(body, "type");
    if (str_eq(type, STR("url_verification"))) {
        take_challenge(s, to, body);
    } else if (str_eq(type, STR("event_callback"))) {
        slack_take_event(s, to, body);
    } else if (str_eq(type, STR("app_rate_limited"))) {
        log_warn(&s->base.log, "Slack holds events back: more than 30,000 came within an hour");
        slack_reply(s, to, STR_NULL);
    } else if (type.n > 0) { /* a kind that bellhop does not know */
        s->base.n.ignored++;
        slack_reply(s, to, STR_NULL);
    } else {
        slack_refuse(s, to);
    }
}

static void take_form(struct slack *s, const struct slack_asker *to, struct str text)
{
    struct json payload;

    if (!form_parse(&s->form, text)) {
        slack_refuse(s, to);
    } else if (form_get(&s->form, "payload").p != NULL) {
        if (json_parse(s->base.parser, form_get(&s->form, "payload"), &payload))
            slack_take_interaction(s, to, payload);
        else
            slack_refuse(s, to);
    } else if (form_get(&s->form, "command").n > 0) {
        slack_take_command(s, to, &s->form);
    } else if (str_eq(form_get(&s->form, "ssl_check"), STR("1"))) {
        slack_reply(s, to, STR_NULL);
    } else {
        slack_refuse(s, to);
    }
}

bool slack_http(struct platform *p, struct http_req *req)
{
    struct slack *s = slack_of(p);
    struct str body = http_body(req);
    struct slack_asker to = {.http = http_req_id(req), .path = http_path(req)};

    if (!str_eq(http_method(req), STR("POST")) ||
        !slack_signature_ok(str_of(s->cfg->signing_secret),
                            http_header(req, "X-Slack-Request-Timestamp"),
                            http_header(req, "X-Slack-Signature"), body,
                            clock_wall_ms(s->base.env->clock), &s->scratch)) {
        s->base.n.refused++;
        return false;
    }
    if (str_starts(str_trim(body), STR("{")))
        take_json(s, &to, body);
    else
        take_form(s, &to, body);
    return true;
}
