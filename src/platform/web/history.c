/* history.c - what is kept in the store, and everything that waits for the store.
 *
 * Records, all under "<bot> 1f <chat> 1f ...":
 *      web       <id, 16 hex>  -> the message as JSON, exactly what pages get
 *      web_once  <client_id>   -> the id it was kept under, so that a repeated POST is kept once
 *
 * A change is published to the pages when its write is on disk, in the order of the writes.  A chat
 * is cut to length every few writes, so between cuts it may hold an eighth more than `history`.
 */
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/web/web_priv.h"
#include "store/store.h"

#define ANSWER_MESSAGES 100
#define ANSWER_BYTES ((size_t)1 << 20)     /* of messages in one history answer */
#define CATCH_UP_BYTES ((size_t)256 << 10) /* past this a page had better read its history anew */
#define TRIM_AT_ONCE 256

typedef void job_done_f(struct web_job *j, enum bh_err err);

struct web_job { /* one read or write under way */
    union {
        struct store_op op; /* first in both */
        struct store_scan scan;
        struct store_tx tx;
    };
    struct list link;      /* web->jobs, or the orphans */
    struct store *store;   /* borrowed */
    struct web *web;       /* borrowed; NULL: the bot was closed meanwhile */
    struct web_chat *chat; /* borrowed, pinned by its n_jobs */
    job_done_f *done;      /* must not free the job */
    struct buf key, once, value, text;
    struct store_kv *items;  /* owned */
    const char *event;       /* what the pages are told */
    uint64_t id, rev;        /* of the message; catching up: everything up to rev is in the scan */
    struct http_id http;     /* who asked, when it was a request */
    struct action_id action; /* who asked, when it was an action */
    struct web_stream *stream; /* catching up; NULL: it has gone */
    uint64_t last;             /* catching up: what the page has seen */
    size_t limit;              /* history answer: messages asked for */
};

/* Reachable from here, so that a shutdown in the middle is not called a leak. */
static struct list orphans = {&orphans, &orphans};

static struct web_job *job_new(struct web *w, struct web_chat *c, job_done_f *done)
{
    struct web_job *j = xcalloc(1, sizeof *j);

    j->store = w->env->store;
    j->web = w;
    j->chat = c;
    j->done = done;
    c->n_jobs++;
    list_init(&j->link);
    list_append(&w->jobs, &j->link);
    return j;
}

static void job_free(struct web_job *j)
{
    struct web_chat *c = j->web != NULL ? j->chat : NULL;

    list_remove(&j->link);
    buf_done(&j->key);
    buf_done(&j->once);
    buf_done(&j->value);
    buf_done(&j->text);
    free(j->items);
    free(j);
    if (c != NULL) {
        c->n_jobs--;
        web_chat_settle(c);
    }
}

static void on_store_done(struct store_op *op, enum bh_err err)
{
    struct web_job *j = container_of(op, struct web_job, op);
    bool is_scan = op->kind == STORE_SCAN;

    if (j->web != NULL && err != BH_OK && err != BH_CONFLICT) {
        j->web->counters.store_failures++;
        log_warn(&j->web->log, "the store failed: %s of chat history, %s",
                 is_scan ? "read" : "write", bh_err_word(err));
    }
    if (j->web != NULL)
        j->done(j, err);
    if (is_scan)
        j->store->ops->scan_free(&j->scan);
    job_free(j);
}

void web_jobs_orphan(struct web *w)
{
    list_each (&w->jobs, it, next) {
        list_entry(it, struct web_job, link)->web = NULL;
        list_move(it, &orphans);
    }
}

/* ---- keys and submitting ---- */

static void key_write(struct buf *out, const struct web_chat *c, struct str tail)
{
    buf_printf(out, "%s\x1f%s\x1f", c->web->base.bot, c->id);
    buf_add_str(out, tail);
}

static void key_write_id(struct buf *out, const struct web_chat *c, uint64_t id)
{
    char text[WEB_ID_CHARS + 1];

    web_id_format(id, text);
    key_write(out, c, str_make(text, WEB_ID_CHARS));
}

static void submit_scan(struct web_job *j, const char *ns, struct str after, size_t limit,
                        bool reverse)
{
    j->scan = (struct store_scan){.op.done = on_store_done,
                                  .ns = ns,
                                  .prefix = buf_str(&j->key),
                                  .after = after,
                                  .limit = limit,
                                  .reverse = reverse};
    store_scan(j->store, &j->scan);
}

static void submit_tx(struct web_job *j, size_t n, bool urgent)
{
    j->tx = (struct store_tx){.op.done = on_store_done, .items = j->items, .n = n};
    store_tx(j->store, &j->tx, urgent);
}

/* Write @m under its id; with a client_id, only if that one is new. */
static void submit_message(struct web_job *j, const struct web_message *m)
{
    size_t n = 1;

    j->id = m->id;
    j->rev = m->rev;
    key_write_id(&j->key, j->chat, m->id);
    web_message_write(&j->value, m);
    j->items = xcalloc(2, sizeof *j->items);
    j->items[0] = (struct store_kv){KV_PUT, "web", buf_str(&j->key), buf_str(&j->value)};
    if (m->client_id.n > 0 && !m->from_agent) {
        key_write(&j->once, j->chat, m->client_id);
        j->items[1] = (struct store_kv){KV_INSERT, "web_once", buf_str(&j->once),
                                        str_make(j->key.p + j->key.n - WEB_ID_CHARS, WEB_ID_CHARS)};
        n = 2;
    }
    submit_tx(j, n, true);
}

/* ---- cutting to length ---- */

static void on_trimmed(struct web_job *j, enum bh_err err)
{
    if (err != BH_OK)
        j->chat->untrimmed = UINT32_MAX; /* again at the next write */
}

static void on_trim_read(struct web_job *j, enum bh_err err)
{
    struct web *w = j->web;
    struct web_job *cut;
    size_t excess, n = 0;

    if (err != BH_OK || j->scan.n_records <= w->history)
        return;
    excess = j->scan.n_records - w->history;
    cut = job_new(w, j->chat, on_trimmed);
    cut->items = xcalloc(2 * excess, sizeof *cut->items);
    /* The keys go into one buffer first: it may move while it grows, so views are taken after. */
    size_t *ends = xcalloc(2 * excess, sizeof *ends);
    for (size_t i = 0; i < excess; i++) {
        const struct store_record *r = &j->scan.records[i];
        struct web_message m;

        buf_add_str(&cut->key, r->key);
        cut->items[n].ns = "web";
        ends[n++] = cut->key.n;
        if (!web_message_read(w, r->value, &m) || m.client_id.n == 0)
            continue;
        key_write(&cut->key, j->chat, m.client_id);
        cut->items[n].ns = "web_once";
        ends[n++] = cut->key.n;
    }
    for (size_t i = 0, at = 0; i < n; at = ends[i++]) {
        cut->items[i].verb = KV_DELETE;
        cut->items[i].key = str_make(cut->key.p + at, ends[i] - at);
    }
    free(ends);
    submit_tx(cut, n, false);
}

static void trim_sometimes(struct web_chat *c)
{
    struct web *w = c->web;
    uint32_t slack = w->history / 8 > 0 ? w->history / 8 : 1;
    struct web_job *j;

    if (c->untrimmed != UINT32_MAX)
        c->untrimmed++;
    if (c->untrimmed < slack)
        return;
    c->untrimmed = 0;
    j = job_new(w, c, on_trim_read);
    key_write(&j->key, c, STR(""));
    submit_scan(j, "web", STR_NULL, (size_t)w->history + TRIM_AT_ONCE, false);
}

/* ---- a visitor's message ---- */

static void on_once_read(struct web_job *j, enum bh_err err)
{
    uint64_t id = j->id;

    if (err == BH_OK && j->scan.n_records > 0)
        web_id_parse(j->scan.records[0].value, &id);
    web_post_answer(j->web, j->http, id);
}

/* Kept before, by the POST that this one repeats: answer with that message's id. */
static void answer_repeated(struct web_job *was)
{
    struct web_job *j = job_new(was->web, was->chat, on_once_read);

    j->http = was->http;
    j->id = was->id;
    buf_add_str(&j->key, buf_str(&was->once));
    submit_scan(j, "web_once", STR_NULL, 1, false);
}

static void on_post_kept(struct web_job *j, enum bh_err err)
{
    if (err == BH_CONFLICT) {
        answer_repeated(j);
        return;
    }
    /* The agent's mailbox has it whatever became of the record, so the answer is yes. */
    web_publish(j->chat, j->event, j->rev, buf_str(&j->value));
    web_post_answer(j->web, j->http, j->id);
    trim_sometimes(j->chat);
}

void web_keep_post(struct web *w, struct str chat_id, const struct web_message *m,
                   struct http_id http)
{
    struct web_message kept = *m;
    const char *event = m->is_stop ? "interrupt" : "message";

    kept.rev = web_next(w);
    if (w->history == 0) {
        struct web_chat *c = web_chat_find(w, chat_id);
        if (c != NULL) {
            buf_reset(&w->scratch);
            web_message_write(&w->scratch, &kept);
            web_publish(c, event, kept.rev, buf_str(&w->scratch));
        }
        web_post_answer(w, http, m->id);
        return;
    }
    struct web_job *j = job_new(w, web_chat_get(w, chat_id), on_post_kept);
    j->http = http;
    j->event = event;
    submit_message(j, &kept);
}

/* ---- the agent's messages ---- */

static void on_action_kept(struct web_job *j, enum bh_err err)
{
    struct web *w = j->web;
    char id[WEB_ID_CHARS + 1];

    if (err != BH_OK) {
        host_fail(w->base.host, j->action, ACTION_ERROR_TRANSIENT "the message could not be kept");
        return;
    }
    web_publish(j->chat, j->event, j->rev, buf_str(&j->value));
    web_id_format(j->id, id);
    host_result(w->base.host, j->action,
                &(struct action_result){.success = true, .message_id = str_make(id, WEB_ID_CHARS)});
    trim_sometimes(j->chat);
}

void web_keep_send(struct web *w, struct str chat_id, const struct web_message *m,
                   struct action_id id)
{
    struct web_job *j = job_new(w, web_chat_get(w, chat_id), on_action_kept);

    j->action = id;
    j->event = "message";
    submit_message(j, m);
}

static void on_edit_read(struct web_job *j, enum bh_err err)
{
    struct web *w = j->web;
    struct web_message m;

    if (err != BH_OK) {
        host_fail(w->base.host, j->action, ACTION_ERROR_TRANSIENT "the message could not be read");
        return;
    }
    if (j->scan.n_records == 0 || !web_message_read(w, j->scan.records[0].value, &m) ||
        !m.from_agent) {
        host_fail(w->base.host, j->action, "no such message of the agent in this chat");
        return;
    }
    m.text = buf_str(&j->text);
    m.rev = web_next(w);
    m.edited_ms = clock_wall_ms(w->env->clock);
    struct web_job *put = job_new(w, j->chat, on_action_kept);
    put->action = j->action;
    put->event = "edit";
    submit_message(put, &m);
}

void web_keep_edit(struct web *w, struct str chat_id, uint64_t message_id, struct str text,
                   struct action_id id)
{
    struct web_job *j = job_new(w, web_chat_get(w, chat_id), on_edit_read);

    j->action = id;
    buf_add_str(&j->text, text);
    key_write_id(&j->key, j->chat, message_id);
    submit_scan(j, "web", STR_NULL, 1, false);
}

/* ---- reading it back ---- */

/* @scan holds at least @limit records, newest first, when there are that many. */
static void answer_messages(struct web *w, struct str chat_id, struct http_id http,
                            const struct store_scan *scan, size_t limit)
{
    size_t bytes = 0, shown = 0;
    struct jw out;

    while (shown < scan->n_records && shown < limit && bytes < ANSWER_BYTES)
        bytes += scan->records[shown++].value.n;
    buf_reset(&w->scratch);
    out = jw_begin(&w->scratch);
    jw_obj(&out);
    jw_kstr(&out, "title", str_of(w->title));
    jw_kstr(&out, "name", web_name_given(w, chat_id));
    jw_kstr(&out, "state", str_of(host_route_state(w->base.host, &w->base, web_bot(w))));
    jw_kbool(&out, "more", shown < scan->n_records);
    jw_key(&out, "messages");
    jw_arr(&out);
    while (shown > 0)
        jw_raw(&out, scan->records[--shown].value);
    jw_end_arr(&out);
    jw_end_obj(&out);
    http_answer(w->env->server, http,
                &(struct http_answer){.status = 200,
                                      .headers = "Cache-Control: no-store\r\n",
                                      .body = buf_str(&w->scratch)});
    if (w->scratch.cap > ANSWER_BYTES / 4)
        buf_done(&w->scratch);
}

static void on_history_read(struct web_job *j, enum bh_err err)
{
    if (err != BH_OK)
        web_refuse_for_now(j->web, j->http, 503, bh_err_word(err),
                           "The history cannot be read right now.", 2);
    else
        answer_messages(j->web, str_of(j->chat->id), j->http, &j->scan, j->limit);
}

static bool query_u64(struct web *w, struct http_req *req, const char *name, uint64_t *ret)
{
    buf_reset(&w->scratch);
    return http_query(req, name, &w->scratch) && str_to_u64(buf_str(&w->scratch), ret);
}

void web_history_answer(struct web *w, struct http_req *req, const struct web_visitor *v)
{
    uint64_t limit = ANSWER_MESSAGES, before;
    struct str after = STR_NULL;
    struct web_job *j;

    if (w->history == 0) {
        answer_messages(w, str_of(v->chat_id), http_req_id(req), &(struct store_scan){0}, 0);
        return;
    }
    query_u64(w, req, "limit", &limit);
    if (limit == 0 || limit > w->history)
        limit = w->history;
    j = job_new(w, web_chat_get(w, str_of(v->chat_id)), on_history_read);
    j->http = http_req_id(req);
    j->limit = (size_t)limit;
    key_write(&j->key, j->chat, STR(""));
    buf_reset(&w->scratch);
    if (http_query(req, "before", &w->scratch) && web_id_parse(buf_str(&w->scratch), &before)) {
        key_write_id(&j->text, j->chat, before);
        after = buf_str(&j->text);
    }
    submit_scan(j, "web", after, j->limit + 1, true);
}

/* ---- catching up ---- */

static void tell_changes(struct web_job *j)
{
    struct web *w = j->web;
    struct web_message m;
    size_t bytes = 0;

    for (size_t i = 0; i < j->scan.n_records; i++)
        if (web_message_read(w, j->scan.records[i].value, &m) && m.rev > j->last)
            bytes += j->scan.records[i].value.n;
    if (bytes > CATCH_UP_BYTES) {
        web_stream_reset(j->stream);
        return;
    }
    for (size_t i = j->scan.n_records; i-- > 0 && j->stream != NULL;)
        if (web_message_read(w, j->scan.records[i].value, &m) && m.rev > j->last)
            web_stream_message(j->stream, &m, j->scan.records[i].value);
}

static void on_catch_up_read(struct web_job *j, enum bh_err err)
{
    if (j->stream == NULL)
        return;
    if (err != BH_OK) {
        web_stream_end(j->stream); /* the page tries again */
        return;
    }
    tell_changes(j);
    if (j->stream == NULL)
        return; /* it went while we wrote */
    if (j->chat->published > j->rev)
        web_catch_up(j->stream, j->rev); /* more was published while we read */
    else
        web_stream_go_live(j->stream, j->rev);
}

void web_catch_up(struct web_stream *s, uint64_t last)
{
    struct web *w = s->chat->web;
    struct web_job *j = job_new(w, s->chat, on_catch_up_read);

    j->stream = s;
    j->last = last <= w->counter ? last : 0; /* from another database: tell everything */
    j->rev = w->counter;
    s->catching_up = j;
    key_write(&j->key, s->chat, STR(""));
    submit_scan(j, "web", STR_NULL, w->history, true);
}

void web_catch_up_cancel(struct web_stream *s)
{
    if (s->catching_up != NULL)
        s->catching_up->stream = NULL;
    s->catching_up = NULL;
}
