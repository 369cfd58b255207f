/* fake.h - a host and an HTTP server that remember what they were told, for one test program.
 *
 * Requests are made by hand and handed straight to the adapter; answers and streams are kept by
 * request number.  host_accept() answers when the test says how. */
#pragma once
#include "unit.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/http_server.h"
#include "platform/platform.h"
#include "store/memory/memory.h"

#define FAKE_MAX 512

struct http_req {
    const char *method, *path, *body;
    const char *query[2][2];   /* name, value */
    const char *headers[6][2]; /* name, value */
    const char *cookie;
    struct http_id id;
};

static struct fake {
    struct host_env env;
    struct rand rand;
    /* requests */
    uint32_t n_reqs;
    struct {
        int status;
        struct buf body, headers, stream;
        bool streaming, ended;
        http_stream_closed_cb *closed;
        void *ctx;
    } reqs[FAKE_MAX];
    /* events taken in */
    size_t n_events;
    struct {
        struct buf chat_id, text, event_id, message_id, user_name;
        accepted_cb *done;
        void *ctx;
    } events[FAKE_MAX];
    /* results of actions */
    size_t n_results;
    struct {
        uint32_t index;
        bool success;
        struct buf message_id, error, name;
    } results[FAKE_MAX];
    const char *state;
} fake;

/* ---- the host ---- */

const struct host_env *host_env(struct host *h)
{
    return &fake.env;
}

struct accept_id host_accept(struct host *h, struct platform *p, const struct event *ev,
                             accepted_cb *done, void *ctx)
{
    assert_true(fake.n_events < FAKE_MAX);
    size_t i = fake.n_events++;
    buf_add_str(&fake.events[i].chat_id, ev->chat_id);
    buf_add_str(&fake.events[i].text, ev->text);
    buf_add_str(&fake.events[i].event_id, ev->event_id);
    buf_add_str(&fake.events[i].message_id, ev->message_id);
    buf_add_str(&fake.events[i].user_name, ev->user_name);
    assert_str(ev->platform, "web");
    assert_str(ev->chat_type, "dm");
    assert_str(ev->route_key, p->bot);
    fake.events[i].done = done;
    fake.events[i].ctx = ctx;
    return (struct accept_id){.index = (uint32_t)i};
}
void host_each_target(struct host *h, const struct event *ev, target_cb *cb, void *ctx)
{
}
void host_accept_cancel(struct host *h, struct accept_id id)
{
    fake.events[id.index].done = NULL;
}

void host_result(struct host *h, struct action_id id, const struct action_result *r)
{
    assert_true(fake.n_results < FAKE_MAX);
    size_t i = fake.n_results++;
    fake.results[i].index = id.index;
    fake.results[i].success = r->success;
    buf_add_str(&fake.results[i].message_id, r->message_id);
    buf_add_str(&fake.results[i].error, r->error);
    buf_add_str(&fake.results[i].name, r->chat_name);
}

void host_media_at(struct host *h, struct media_ask ask, const struct media_at *at)
{
}
void host_media_gone(struct host *h, struct media_ask ask, const char *why)
{
}

void host_fail(struct host *h, struct action_id id, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    host_result(h, id, &(struct action_result){.error = str_of(text)});
}

void host_cut_off(struct host *h, const struct action_from *from, const char *error)
{
}
bool host_had_event(struct host *h, struct platform *p, const struct action_from *from,
                    struct str event_id)
{
    return false;
}
enum gate_sight host_may_act(struct host *h, struct platform *p, const struct action_from *from,
                             const struct action_place *place)
{
    return GATE_SEEN;
}
bool host_revive(struct host *h, struct platform *p, const struct action_from *from,
                 enum action_op op, struct str chat, struct action_id *ret_id)
{
    return false;
}
uint64_t host_number(struct host *h)
{
    static uint64_t n;

    return ++n;
}
const char *host_route_state(struct host *h, struct platform *p, struct str route_key)
{
    return fake.state;
}

/* ---- the HTTP server ---- */

struct str http_method(const struct http_req *r)
{
    return str_of(r->method);
}
struct str http_path(const struct http_req *r)
{
    return str_of(r->path);
}
struct str http_body(const struct http_req *r)
{
    return str_of(r->body != NULL ? r->body : "");
}
struct http_id http_req_id(const struct http_req *r)
{
    return r->id;
}
struct party *http_party(const struct http_req *r)
{
    return NULL;
}
bool http_is_tls(const struct http_req *r)
{
    return false;
}
bool http_query(const struct http_req *r, const char *name, struct buf *ret_value)
{
    for (size_t i = 0; i < 2 && r->query[i][0] != NULL; i++)
        if (strcmp(r->query[i][0], name) == 0) {
            buf_add_z(ret_value, r->query[i][1]);
            return true;
        }
    return false;
}
struct str http_header_named(const struct http_req *r, struct str name)
{
    for (size_t i = 0; i < 6 && r->headers[i][0] != NULL; i++)
        if (str_eq_ci(str_of(r->headers[i][0]), name))
            return str_of(r->headers[i][1]);
    return STR_NULL;
}
bool http_cookie(const struct http_req *r, const char *name, struct str *ret_value)
{
    if (r->cookie == NULL || strcmp(name, "bellhop_visitor") != 0)
        return false;
    *ret_value = str_of(r->cookie);
    return true;
}
void http_answer(struct http_server *s, struct http_id id, const struct http_answer *a)
{
    if (fake.reqs[id.index].status != 0)
        return;
    fake.reqs[id.index].status = a->status;
    buf_add_str(&fake.reqs[id.index].body, a->body);
    buf_add_z(&fake.reqs[id.index].headers, a->headers != NULL ? a->headers : "");
    buf_add_z(&fake.reqs[id.index].headers, a->content_type != NULL ? a->content_type : "");
}
void http_answer_error(struct http_server *s, struct http_id id, int status, const char *code,
                       const char *fmt, ...)
{
    http_answer(s, id, &(struct http_answer){.status = status, .body = str_of(code)});
}
void http_stream_begin(struct http_server *s, struct http_id id, const struct http_answer *head,
                       size_t max_queued, http_stream_closed_cb *closed, void *ctx)
{
    http_answer(s, id, head);
    fake.reqs[id.index].streaming = true;
    fake.reqs[id.index].closed = closed;
    fake.reqs[id.index].ctx = ctx;
}
bool http_stream_write(struct http_server *s, struct http_id id, struct str bytes)
{
    if (!fake.reqs[id.index].streaming)
        return false;
    buf_add_str(&fake.reqs[id.index].stream, bytes);
    return true;
}
void http_stream_end(struct http_server *s, struct http_id id)
{
    assert_true(fake.reqs[id.index].streaming);
    fake.reqs[id.index].streaming = false;
    fake.reqs[id.index].ended = true;
}

/* ---- for the tests ---- */

static inline void fake_client_gone(uint32_t req)
{
    fake.reqs[req].streaming = false;
    fake.reqs[req].closed(fake.reqs[req].ctx, (struct http_id){.index = req});
}

static inline void fake_forget(void)
{
    for (uint32_t i = 0; i < FAKE_MAX; i++) {
        buf_done(&fake.reqs[i].body);
        buf_done(&fake.reqs[i].headers);
        buf_done(&fake.reqs[i].stream);
        buf_done(&fake.events[i].chat_id);
        buf_done(&fake.events[i].text);
        buf_done(&fake.events[i].event_id);
        buf_done(&fake.events[i].message_id);
        buf_done(&fake.events[i].user_name);
        buf_done(&fake.results[i].message_id);
        buf_done(&fake.results[i].error);
        buf_done(&fake.results[i].name);
    }
    fake = (struct fake){.state = "live"};
}
