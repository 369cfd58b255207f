/* recall.c - what a visitor's page reads back: its history, and what it missed.
 *
 * A page that comes back says what it has seen.  What it missed may lie anywhere, for an old
 * message may have been edited since, so the whole history is looked through, newest first, some of
 * it at a time; what is new to the page is kept aside and told in its own order at the end.
 */
#include "base/jw.h"
#include "platform/web/job.h"

#define ANSWER_MESSAGES 100
#define ANSWER_BYTES ((size_t)1 << 20)     /* of messages in one history answer */
#define CATCH_UP_BYTES ((size_t)256 << 10) /* past this a page had better read its history anew */

/* ---- history ---- */

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
    jw_kbool(&out, "more", shown < scan->n_records || scan->more);
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
    struct web_job *j;

    if (w->history == 0) {
        answer_messages(w, str_of(v->chat_id), http_req_id(req), &(struct store_scan){0}, 0);
        return;
    }
    query_u64(w, req, "limit", &limit);
    if (limit == 0 || limit > w->history)
        limit = w->history;
    j = web_job_new(w, web_chat_get(w, str_of(v->chat_id)), on_history_read);
    j->http = http_req_id(req);
    j->limit = (size_t)limit;
    web_key_write(&j->key, j->chat, STR(""));
    j->scan = (struct store_scan){.limit = j->limit + 1, .reverse = true};
    j->scan.max_bytes = ANSWER_BYTES;
    buf_reset(&w->scratch);
    if (http_query(req, "before", &w->scratch) && web_id_parse(buf_str(&w->scratch), &before)) {
        web_key_write_id(&j->text, j->chat, before);
        j->scan.after = buf_str(&j->text);
    }
    if (!web_job_read(j))
        web_refuse_for_now(w, http_req_id(req), 429, "too_many_reads",
                           "This visitor is reading its history several times already.", 2);
}

/* ---- catching up ---- */

/* Keep aside what the page has not seen, one line each, newest first.  False: it is too much. */
static bool keep_missed(struct web_job *j)
{
    struct web_message m;

    for (size_t i = 0; i < j->scan.n_records; i++) {
        struct str record = j->scan.records[i].value;
        if (!web_message_read(j->web, record, &m) || m.rev <= j->last)
            continue;
        buf_add_str(&j->value, record); /* one line: our JSON escapes every control character */
        buf_add_c(&j->value, '\n');
        if (j->value.n > CATCH_UP_BYTES)
            return false;
    }
    return true;
}

/* From the last line to the first: oldest first. */
static void tell_missed(struct web_job *j)
{
    struct str lines = buf_str(&j->value);
    struct web_message m;

    while (lines.n > 0 && j->stream != NULL) {
        size_t start = lines.n - 1;
        while (start > 0 && lines.p[start - 1] != '\n')
            start--;
        struct str record = str_make(lines.p + start, lines.n - 1 - start);
        if (web_message_read(j->web, record, &m))
            web_stream_message(j->stream, &m, record);
        lines.n = start;
    }
}

static void on_catch_up_read(struct web_job *j, enum bh_err err)
{
    if (j->stream == NULL)
        return;
    if (err != BH_OK) {
        web_stream_end(j->stream); /* the page tries again */
        return;
    }
    bool fits = keep_missed(j);
    if (fits && j->scan.more) {
        j->next_page = true;
        return;
    }
    if (fits)
        tell_missed(j);
    else
        web_stream_reset(j->stream);
    if (j->stream == NULL)
        return; /* it went while we wrote */
    struct web_stream *s = j->stream;
    j->stream = NULL;
    s->catching_up = NULL;
    if (j->chat->published > j->rev)
        web_catch_up(s, j->rev); /* more was published while we read */
    else
        web_stream_go_live(s, j->rev);
}

void web_catch_up(struct web_stream *s, uint64_t last)
{
    struct web_chat *c = s->chat;
    struct web *w = c->web;
    struct web_job *j = web_job_new(w, c, on_catch_up_read);

    j->stream = s;
    j->last = last <= w->counter ? last : 0; /* from another database: tell everything */
    j->rev = w->counter;
    web_key_write(&j->key, c, STR(""));
    j->scan = (struct store_scan){.reverse = true};
    s->catching_up = j;
    if (web_job_read(j))
        return;
    web_stream_end(s); /* the page tries again */
    web_chat_settle(c);
}

void web_catch_up_cancel(struct web_stream *s)
{
    struct web_job *j = s->catching_up;

    s->catching_up = NULL;
    if (j == NULL)
        return;
    j->stream = NULL;
    web_job_call_off(j);
}
