/* payload.c - design.  (payload.h has the contract.)
 *
 * A chat id contains the agent, session and skill, each percent-encoded, so payload_chat_read()
 * finds the agent of a reply without a table. */
#include "dispatch/payload.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/percent.h"
#include "dispatch/agent.h"
#include "dispatch/dispatch.h"

#define CHAT "dispatch:"
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

/* ---- writing ---- */

void payload_write_body(struct buf *out, const struct payload *p, struct str agent_id)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "agent_id", agent_id);
    jw_kstr(&w, "kind", str_of(payload_kind(p)));
    jw_kstr(&w, p->template ? "prompt" : "content", p->text);
    if (json_is_object(p->meta)) {
        jw_kvalue(&w, "meta", p->meta);
    } else {
        jw_kobj(&w, "meta");
        jw_kstr(&w, "dispatch_id", p->dispatch_id);
        jw_ki64(&w, "sent_at", p->sent_at);
        jw_end_obj(&w);
    }
    jw_kstr_opt(&w, "session_id", p->session);
    jw_end_obj(&w);
}

/* Adds a name as a single line. */
static void add_line(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n && i < 200; i++)
        buf_add_c(out, (unsigned char)s.p[i] < ' ' || s.p[i] == 0x7f ? ' ' : s.p[i]);
}

void payload_write_header(struct buf *out, const struct payload *p)
{
    if (p->wake)
        return;
    buf_printf(out, "[%s from the skill ", p->template ? "task" : p->asks ? "question" : "context");
    add_line(out, p->skill);
    if (!str_is_empty(p->event_type)) {
        buf_add_z(out, ", event ");
        add_line(out, p->event_type);
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

void payload_event(const struct payload *p, const struct recipient *a, struct payload_event *ret)
{
    struct event *ev = &ret->ev;

    payload_chat_id(&ret->chat, p, str_of(a->id));
    buf_add_z(&ret->user, "skill:");
    add_line(&ret->user, p->wake ? STR("wake") : p->skill);
    if (!p->template && !p->wake) {
        payload_write_header(&ret->text, p);
        buf_add_z(&ret->text,
                  p->asks
                      ? "\nThe skill waits for your answer to this.\n\n"
                      : "\nThis is context for you to know; it asks for nothing by itself.\n\n");
    }
    buf_add_str(&ret->text, p->text);
    buf_printf(&ret->id, "%s\x1f%s\x1f", a->id, p->wake ? "wake" : payload_kind(p));
    buf_add_str(&ret->id, p->dispatch_id);
    *ev = (struct event){.platform = STR("relay"),
                         .event_id = buf_str(&ret->id),
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
}
