/* payload.c - design.  (payload.h has the contract.)
 *
 * A chat id contains the agent, session and skill, each percent-encoded, so payload_chat_read()
 * finds the agent of a reply without a table. */
#include "dispatch/payload.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/percent.h"
#include "core/caller.h"
#include "dispatch/agent.h"
#include "dispatch/dispatch.h"
#include "dispatch/schedule.h"

#define CHAT "dispatch:"
#define YEAR_10000_MS 253402300800000
#define SKILL_MAX 120 /* bytes; a longer name is replaced by its hash in a chat id */

const char *payload_kind(const struct payload *p)
{
    return p->template ? "template" : "augment";
}

/* ---- reading ---- */

static bool refuse(struct fault *f, struct str agent_id, const char *why)
{
    fault_set(f, FAULT_DELIVERY_INVALID, "%s", why);
    fault_field(f, "agent_id", agent_id);
    fault_field(f, "cause_kind", STR("client_validation"));
    fault_field(f, "http_status", STR_NULL);
    return false;
}

static bool read_session(struct json v, struct str agent_id, struct payload *ret, struct fault *f)
{
    struct str s = json_str(v, "session_id");

    if (s.n > DISPATCH_ID_MAX || str_find(s, '\0') >= 0)
        return refuse(f, agent_id, "session_id has at most 200 bytes, and none of them is NUL.");
    if (!str_is_empty(s))
        ret->session = s;
    return true;
}

bool payload_read(struct json body, struct str agent_id, struct payload *ret, struct fault *f)
{
    struct json nested = json_get(body, "payload");
    struct json p = json_is_object(nested) ? nested : body;
    struct json meta = json_get(p, "meta");
    struct str kind = json_str(p, "kind");

    *ret = (struct payload){.template = str_eq(kind, STR("template"))};
    if (!ret->template && !str_eq(kind, STR("augment")))
        return refuse(f, agent_id, "kind must be \"augment\" or \"template\".");
    ret->text = json_str(p, ret->template ? "prompt" : "content");
    if (ret->text.p == NULL)
        return refuse(f, agent_id,
                      ret->template ? "A template needs a prompt, a string."
                                    : "An augment needs content, a string.");
    if (ret->text.n > DISPATCH_CONTENT_MAX) {
        fault_set(f, FAULT_TOO_LARGE, "content and prompt are limited to 512 KiB.");
        return false;
    }
    if (!json_is_object(meta) && json_is_object(nested))
        meta = json_get(body, "meta");
    if (!json_is_object(meta))
        return refuse(f, agent_id, "meta must be an object with a dispatch_id.");
    ret->meta = meta;
    ret->dispatch_id = json_str(meta, "dispatch_id");
    ret->correlation_id = json_str(meta, "correlation_id");
    ret->event_type = json_str(meta, "event_type");
    ret->skill = json_str(json_get(meta, "origin"), "skill_name");
    if (str_is_empty(ret->skill))
        ret->skill = STR("(unnamed)");
    if (ret->dispatch_id.n == 0 || ret->dispatch_id.n > DISPATCH_ID_MAX)
        return refuse(f, agent_id, "meta.dispatch_id must be a string of 1 to 200 bytes.");
    if (ret->correlation_id.n > DISPATCH_ID_MAX)
        return refuse(f, agent_id, "meta.correlation_id must not be longer than 200 bytes.");
    return read_session(body, agent_id, ret, f) && read_session(p, agent_id, ret, f);
}

void payload_recall_wake(struct payload *p)
{
    p->wake = str_starts(p->dispatch_id, STR(PAYLOAD_WAKE_ID)) &&
              !json_is_object(json_get(p->meta, "origin"));
}

void payload_recall_asks(struct payload *p, struct str base)
{
    struct str url = json_str(p->meta, "reply_url");

    if (str_is_empty(base) || !str_starts(url, base) ||
        !str_has_only(str_skip(url, base.n), "")) /* meta is the sender's: no line of its own */
        return;
    p->reply_url = url;
    p->asks = true;
}

struct str payload_trace(const struct payload *p)
{
    struct str trace = p->trace.p != NULL ? p->trace : json_str(p->meta, "traceparent");

    return caller_trace_valid(trace) ? trace : STR_NULL;
}

/* ---- writing ---- */

/* Writes the members of meta into an open object; @beside_ours: without those that
 * write_dispatch() writes itself. */
static void write_meta(struct jw *w, const struct payload *p, bool beside_ours)
{
    struct json origin = json_get(p->meta, "origin");

    for (struct json_iter it = {0}; json_next(p->meta, &it);) {
        bool ours = str_eq(it.key, STR("kind")) || str_eq(it.key, STR("skill_name")) ||
                    str_eq(it.key, STR("trigger_kind")) || str_eq(it.key, STR("session_id"));
        if (!(beside_ours && ours) &&
            (p->reply_url.p == NULL || !str_eq(it.key, STR("reply_url"))) &&
            (p->trace.p == NULL || !str_eq(it.key, STR("traceparent"))) &&
            (p->caller.p == NULL || !str_eq(it.key, STR("origin")))) {
            jw_key_str(w, it.key);
            jw_value(w, it.value);
        }
    }
    jw_kstr_opt(w, "reply_url", p->reply_url);
    jw_kstr_opt(w, "traceparent", p->trace);
    if (p->caller.p == NULL)
        return;
    jw_kobj(w, "origin");
    for (struct json_iter it = {0}; json_is_object(origin) && json_next(origin, &it);)
        if (!str_eq(it.key, STR("caller_agent_id"))) {
            jw_key_str(w, it.key);
            jw_value(w, it.value);
        }
    jw_kstr(w, "caller_agent_id", p->caller);
    jw_end_obj(w);
}

void payload_write_body(struct buf *out, const struct payload *p, struct str agent_id)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "agent_id", agent_id);
    jw_kstr(&w, "kind", str_of(payload_kind(p)));
    jw_kstr(&w, p->template ? "prompt" : "content", p->text);
    jw_kobj(&w, "meta");
    if (json_is_object(p->meta)) {
        write_meta(&w, p, false);
    } else {
        jw_kstr(&w, "dispatch_id", p->dispatch_id);
        jw_ki64(&w, "sent_at", p->sent_at);
        jw_kstr_opt(&w, "traceparent", p->trace);
    }
    jw_end_obj(&w);
    jw_kstr_opt(&w, "session_id", p->session);
    jw_end_obj(&w);
}

/* Adds a name as a single line. */
static void add_line(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n && i < 200; i++)
        buf_add_c(out, (unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f ? ' ' : s.p[i]);
}

static void add_part(struct buf *out, const char *what, struct str s)
{
    if (str_is_empty(s))
        return;
    buf_add_z(out, what);
    add_line(out, s);
}

void payload_write_header(struct buf *out, const struct payload *p, bool whole)
{
    struct json origin = json_get(p->meta, "origin");
    int64_t sent_ms;
    char when[40];

    if (p->wake)
        return;
    buf_printf(out, "[%s from the skill ", p->template ? "task" : p->asks ? "question" : "context");
    add_line(out, p->skill);
    add_part(out, ", event ", p->event_type);
    if (whole) {
        add_part(out, ", trigger ", json_str(origin, "trigger_kind"));
        add_part(out, ", entry skill ", json_str(origin, "entry_skill_name"));
        add_part(out, ", caller ",
                 p->caller.p != NULL ? p->caller : json_str(origin, "caller_agent_id"));
        if (json_as_i64(json_get(p->meta, "sent_at"), &sent_ms) && sent_ms > 0 &&
            sent_ms < YEAR_10000_MS) {
            schedule_format(sent_ms, when, sizeof when);
            add_part(out, ", sent ", str_of(when));
        }
        add_part(out, ", correlation ", p->correlation_id);
        add_part(out, ", dispatch ", p->dispatch_id);
        if (p->reply_url.p != NULL) {
            buf_add_z(out, ", answer by POST of {\"content\", \"final\": true} to ");
            buf_add_str(out, p->reply_url);
        }
    }
    buf_add_c(out, ']');
}

/* ---- chats ---- */

void payload_chat_id(struct buf *out, const struct payload *p, struct str agent_id)
{
    uint8_t hash[SHA256_BYTES];

    buf_add_z(out, CHAT);
    percent_encode(out, agent_id);
    if (!str_is_empty(p->session)) {
        buf_add_c(out, '@');
        percent_encode(out, p->session);
    }
    if (p->wake)
        return;
    buf_add_c(out, '/');
    if (p->skill.n <= SKILL_MAX) {
        percent_encode(out, p->skill);
        return;
    }
    sha256(p->skill, hash);
    buf_add_c(out, '+');
    hex_add(out, hash, 16);
}

bool payload_chat_read(struct str chat_id, struct buf *ret_agent, struct buf *ret_session)
{
    struct str rest, who, agent;

    if (!str_starts(chat_id, STR(CHAT)))
        return false;
    rest = str_skip(chat_id, sizeof CHAT - 1);
    if (!str_split(&rest, '/', &who) || !str_split(&who, '@', &agent) || str_is_empty(agent))
        return false;
    percent_decode(ret_agent, agent);
    percent_decode(ret_session, who.p != NULL ? who : STR(""));
    return true;
}

/* ---- the relay's event ---- */

/* The event's `dispatch` object. */
static void write_dispatch(struct buf *out, const struct payload *p)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "kind", str_of(payload_kind(p)));
    jw_kstr(&w, "skill_name", p->skill);
    jw_kstr_opt(&w, "trigger_kind", json_str(json_get(p->meta, "origin"), "trigger_kind"));
    jw_kstr_opt(&w, "session_id", p->session);
    write_meta(&w, p, true);
    jw_end_obj(&w);
}

void payload_event_id(struct buf *out, struct str agent_id, const char *word,
                      struct str dispatch_id)
{
    buf_add_str(out, agent_id);
    buf_printf(out, "\x1f%s\x1f", word);
    buf_add_str(out, dispatch_id);
}

void payload_event(const struct payload *p, const struct recipient *a, struct payload_event *ret)
{
    struct event *ev = &ret->ev;

    payload_chat_id(&ret->chat, p, str_of(a->id));
    buf_add_z(&ret->user, "skill:");
    add_line(&ret->user, p->wake ? STR("wake") : p->skill);
    if (!p->template && !p->wake) {
        payload_write_header(&ret->text, p, false);
        buf_add_z(&ret->text,
                  p->asks
                      ? "\nThe skill waits for your answer to this.\n\n"
                      : "\nThis is context for you to know; it asks for nothing by itself.\n\n");
    }
    buf_add_str(&ret->text, p->text);
    payload_event_id(&ret->id, str_of(a->id), p->wake ? "wake" : payload_kind(p), p->dispatch_id);
    if (!p->wake)
        write_dispatch(&ret->dispatch, p);
    *ev = (struct event){.platform = STR("relay"),
                         .event_id = buf_str(&ret->id),
                         .dispatch = buf_str(&ret->dispatch),
                         .text = buf_str(&ret->text),
                         .message_id = p->dispatch_id,
                         .chat_id = buf_str(&ret->chat),
                         .chat_type = STR("dm"),
                         .chat_name = p->wake ? STR("wake") : p->skill,
                         .user_id = buf_str(&ret->user),
                         .user_name = p->wake ? STR("wake") : p->skill};
}

void payload_event_done(struct payload_event *e)
{
    buf_done(&e->chat);
    buf_done(&e->user);
    buf_done(&e->text);
    buf_done(&e->id);
    buf_done(&e->dispatch);
}
