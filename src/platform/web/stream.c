/* stream.c - writes messages as JSON, keeps chats in memory, and streams changes to open pages.
 *
 *      GET events --no last id---------------------------> LIVE   gets every change from now on
 *           '------last id--> CATCHING UP --all written--> LIVE   after the changes it missed
 *
 * A page opens its stream first and reads the history afterwards, so it misses nothing in between.
 * It drops duplicates by id and rev.  A browser allows six connections per host, so a visitor's
 * fifth page ends the stream of the oldest page, which reconnects when somebody looks at it.
 */
#include <stdio.h>
#include <stdlib.h>
#include "base/limits.h"
#include "base/mem.h"
#include "platform/web/web_priv.h"

#define MAX_STREAMS_PER_CHAT 4
#define MAX_QUEUED (512u * 1024) /* a stream this far behind is closed; the page reconnects */
#define MAX_IDLE_CHATS 1024

/* ---- ids and messages as text, for the store and for pages ---- */

void web_id_format(uint64_t id, char ret[WEB_ID_CHARS + 1])
{
    _Static_assert((int)WEB_ID_CHARS == (int)HEX_U64_CHARS, "all of a number");
    hex_u64(id, ret);
    ret[WEB_ID_CHARS] = '\0';
}

bool web_id_parse(struct str text, uint64_t *ret_id)
{
    uint64_t id = 0;

    if (text.n != WEB_ID_CHARS)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        int digit = hex_value(text.p[i]);
        if (digit < 0 || (text.p[i] >= 'A' && text.p[i] <= 'F'))
            return false;
        id = id << 4 | (uint64_t)digit;
    }
    *ret_id = id;
    return true;
}

static const char *const authors[] = {[WEB_VISITOR] = "visitor", [WEB_AGENT] = "agent", NULL};
static const char *const kinds[] = {[WEB_WORDS] = "words", [WEB_STOP] = "stop", NULL};
static const struct record_field message_fields[] = {
    RECORD_FIELD(struct web_message, id_text, "id", RECORD_NEEDED),
    RECORD_FIELD(struct web_message, rev_text, "rev", RECORD_NEEDED),
    RECORD_FIELD(struct web_message, from, "from", RECORD_NEEDED, .words = authors),
    RECORD_FIELD(struct web_message, kind, "kind", 0, .words = kinds),
    RECORD_FIELD(struct web_message, text, "text", 0),
    RECORD_FIELD(struct web_message, at_ms, "at", 0),
    RECORD_FIELD(struct web_message, client_id, "client_id", 0),
    RECORD_FIELD(struct web_message, reply_to, "reply_to", 0),
    RECORD_FIELD(struct web_message, edited_ms, "edited", 0),
    RECORD_FIELD(struct web_message, files, "files", 0),
    RECORD_FIELD(struct web_message, prompt, "prompt", 0),
};
const struct record_form web_message_form =
    RECORD_FORM("web", struct web_message, message_fields, .lossy = true);

void web_message_write(struct buf *out, const struct web_message *m)
{
    struct web_message written = *m;

    web_id_format(m->id, written.id_text);
    web_id_format(m->rev, written.rev_text);
    record_write(&web_message_form, NULL, &written, NULL, out);
}

bool web_message_read(struct web *w, struct str record, struct web_message *ret)
{
    return record_read(w->reader, &web_message_form, STR_NULL, record, ret) &&
           web_id_parse(str_of(ret->id_text), &ret->id) &&
           web_id_parse(str_of(ret->rev_text), &ret->rev);
}

/* ---- chats ---- */

struct web_chat *web_chat_find(struct web *w, struct str chat_id)
{
    return map_get(&w->chats, chat_id);
}

struct web_chat *web_chat_get(struct web *w, struct str chat_id)
{
    struct web_chat *c = web_chat_find(w, chat_id);

    if (c != NULL) {
        if (list_is_linked(&c->idle_link)) {
            list_remove(&c->idle_link);
            w->n_idle--;
        }
        return c;
    }
    c = xcalloc(1, sizeof *c);
    memcpy(c->id, chat_id.p, VISITOR_CHAT_CHARS);
    c->web = w;
    c->untrimmed = UINT32_MAX; /* unknown: trim at the first write */
    list_init(&c->streams);
    list_init(&c->waiting);
    map_put(&w->chats, str_make(c->id, VISITOR_CHAT_CHARS), c);
    return c;
}

void web_chat_settle(struct web_chat *c)
{
    struct web *w = c->web;

    if (c->n_streams > 0 || c->n_jobs > 0 || list_is_linked(&c->idle_link))
        return;
    list_append(&w->idle, &c->idle_link);
    if (++w->n_idle <= MAX_IDLE_CHATS)
        return;
    struct web_chat *oldest = list_first(&w->idle, struct web_chat, idle_link);
    list_remove(&oldest->idle_link);
    w->n_idle--;
    map_del(&w->chats, str_make(oldest->id, VISITOR_CHAT_CHARS));
    free(oldest);
}

/* ---- streams ---- */

static void stream_free(struct web_stream *s)
{
    struct web_chat *c = s->chat;

    web_catch_up_cancel(s);
    list_remove(&s->link);
    ledger_give(c->web->base.env->ledger, s->party, LIMIT_STREAMS, 1);
    party_drop(s->party);
    free(s);
    c->n_streams--;
    c->web->n_streams--;
}

static void on_closed(void *ctx, struct http_id id)
{
    struct web_stream *s = ctx;
    struct web_chat *c = s->chat;

    stream_free(s);
    web_chat_settle(c);
}

void web_stream_end(struct web_stream *s)
{
    struct web *w = s->chat->web;

    http_stream_end(w->base.env->server, s->http);
    stream_free(s);
}

void web_chats_free(struct web *w)
{
    void *it;

    for (size_t i = 0; map_next(&w->chats, &i, &it);) {
        struct web_chat *c = it;
        list_each (&c->streams, l, next)
            web_stream_end(list_entry(l, struct web_stream, link));
        map_del(&w->chats, str_make(c->id, VISITOR_CHAT_CHARS));
        free(c);
    }
    map_done(&w->chats);
    list_init(&w->idle);
    w->n_idle = 0;
}

/* ---- writing ---- */

static struct str frame(struct web *w, const char *event, uint64_t rev, struct str json)
{
    char text[WEB_ID_CHARS + 1];

    buf_reset(&w->frame);
    if (rev != 0) {
        web_id_format(rev, text);
        buf_printf(&w->frame, "id: %s\n", text);
    }
    buf_printf(&w->frame, "event: %s\ndata: ", event);
    buf_add_str(&w->frame, json); /* one line: our JSON escapes every control character */
    buf_add_z(&w->frame, "\n\n");
    return buf_str(&w->frame);
}

/* False: the client disconnected; on_closed() runs later or has run. */
static bool stream_write(struct web_stream *s, struct str bytes)
{
    return http_stream_write(s->chat->web->base.env->server, s->http, bytes);
}

void web_publish(struct web_chat *c, const char *event, uint64_t rev, struct str json)
{
    if (rev > c->published)
        c->published = rev;
    if (c->n_streams == 0)
        return;
    struct str bytes = frame(c->web, event, rev, json);
    list_each (&c->streams, it, next) {
        struct web_stream *s = list_entry(it, struct web_stream, link);
        if (s->catching_up == NULL)
            stream_write(s, bytes);
    }
}

void web_publish_unkept(struct web *w, struct str chat_id, const char *event,
                        const struct web_message *m)
{
    struct web_chat *c = web_chat_find(w, chat_id);

    if (c == NULL)
        return;
    buf_reset(&w->scratch);
    web_message_write(&w->scratch, m);
    web_publish(c, event, m->rev, buf_str(&w->scratch));
}

void web_stream_message(struct web_stream *s, const struct web_message *m, struct str json)
{
    const char *event = m->kind == WEB_STOP ? "interrupt" : m->edited_ms != 0 ? "edit" : "message";

    stream_write(s, frame(s->chat->web, event, m->rev, json));
}

static struct str state_json(const char *state, char ret[64])
{
    snprintf(ret, 64, "{\"state\":\"%s\"}", state);
    return str_of(ret);
}

void web_stream_reset(struct web_stream *s)
{
    stream_write(s, frame(s->chat->web, "reset", 0, STR("{}")));
}

void web_stream_go_live(struct web_stream *s, uint64_t rev)
{
    struct web *w = s->chat->web;
    char json[64];

    s->catching_up = NULL;
    stream_write(s, frame(w, "state", rev,
                          state_json(host_route_state(w->base.host, &w->base, web_bot(w)), json)));
}

static void each_stream(struct web *w, struct str bytes)
{
    void *it;

    for (size_t i = 0; map_next(&w->chats, &i, &it);) {
        struct web_chat *c = it;
        list_each (&c->streams, l, next)
            stream_write(list_entry(l, struct web_stream, link), bytes);
    }
}

void web_publish_state(struct web *w, const char *state)
{
    char json[64];

    if (w->n_streams > 0)
        each_stream(w, frame(w, "state", 0, state_json(state, json)));
}

void web_heartbeat(struct timer *t)
{
    struct web *w = container_of(t, struct web, heartbeat);

    if (w->n_streams > 0)
        each_stream(w, STR(": still here\n\n"));
    web_names_age(w);
    timer_set(w->base.env->clock, t, WEB_HEARTBEAT_MS);
}

/* ---- opening ---- */

static bool last_seen(struct web *w, struct http_req *req, uint64_t *ret_last)
{
    struct str header = http_header(req, "Last-Event-ID");

    if (header.p != NULL)
        return web_id_parse(header, ret_last);
    buf_reset(&w->scratch);
    return http_query(req, "last", &w->scratch) && web_id_parse(buf_str(&w->scratch), ret_last);
}

void web_stream_open(struct web *w, struct http_req *req, const struct web_visitor *v)
{
    struct party *party = http_party(req);
    struct web_stream *s;
    struct web_chat *c;
    uint64_t last = 0;
    bool resumes = last_seen(w, req, &last) && w->history > 0;

    if (ledger_take(w->base.env->ledger, party, LIMIT_STREAMS, 1) != LIMIT_TAKEN) {
        party_drop(party);
        w->counters.refused++;
        web_refuse_for_now(w, http_req_id(req), 429, "too_many_streams",
                           "Too many pages are open from here. Close one, or try again later.", 5);
        return;
    }
    s = xcalloc(1, sizeof *s);
    c = web_chat_get(w, str_of(v->chat_id));
    if (c->n_streams >= MAX_STREAMS_PER_CHAT) {
        struct web_stream *oldest = list_first(&c->streams, struct web_stream, link);
        stream_write(oldest, frame(w, "rest", 0, STR("{}")));
        web_stream_end(oldest);
    }
    *s = (struct web_stream){.chat = c, .http = http_req_id(req), .party = party};
    list_append(&c->streams, &s->link);
    c->n_streams++;
    w->n_streams++;
    w->counters.streams_opened++;
    http_stream_begin(w->base.env->server, s->http,
                      &(struct http_answer){.status = 200,
                                            .content_type = "text/event-stream",
                                            .headers = "Cache-Control: no-store\r\n"
                                                       "X-Accel-Buffering: no\r\n"
                                                       "X-Content-Type-Options: nosniff\r\n"},
                      MAX_QUEUED, on_closed, s);
    stream_write(s, STR("retry: 2000\n\n"));
    if (resumes)
        web_catch_up(s, last);
    else
        web_stream_go_live(s, w->counter);
}
