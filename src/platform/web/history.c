/* history.c - stores the messages of chats, and reads them back for pages.
 *
 * Records, all under "<bot> 1f <chat> 1f ...":
 *      web       <id, 16 hex>  -> web_message_form: the message exactly as pages get it
 *      web_once  <client_id>   -> the message's id; it makes a repeated POST or final draft
 *                                 idempotent
 *
 * A change is published to pages once its write is committed, in the order of the writes.  A chat
 * is trimmed every few writes, so it may hold an eighth more than `history` between trims.
 *
 * A page that reconnects sends the last rev it has seen.  Any old message may have been edited
 * since, so the whole history is read, newest first and in pages.  Changes with a larger rev are
 * collected, and written to the stream oldest first at the end.
 *
 * One read or write of the store is a struct web_job.  The reads of one visitor run one at a time;
 * above MAX_WAITING waiting reads, further ones are refused:
 *
 *      WAITING --the read before it ended--> SUBMITTED --done--> freed, or its next page
 *         '------cancelled--> freed              '-----cancelled--> done() without a result
 */
#include <stdlib.h>
#include "base/jw.h"
#include "base/limits.h"
#include "base/mem.h"
#include "platform/prompts.h"
#include "platform/web/web_priv.h"
#include "store/store.h"

#define MAX_WAITING 8 /* reads of one chat: a stream and a history for each of four pages */
#define READ_BYTES ((size_t)256 << 10) /* of records per read */
#define TRIM_AT_ONCE 256
#define KEPT_BYTES 240 /* estimate: a message's key and fields without its text */
#define ANSWER_MESSAGES 100
#define ANSWER_BYTES ((size_t)1 << 20)     /* of messages in one history answer */
#define CATCH_UP_BYTES ((size_t)256 << 10) /* above this the page reads its history again */

/* ---- jobs ---- */

typedef void web_job_f(struct web_job *j, enum bh_err err);

struct web_job {
    union {
        struct store_op op; /* first in both */
        struct store_scan scan;
        struct store_tx tx;
    };
    struct store_left left; /* used after the bot was closed */
    struct list link;       /* web->jobs */
    struct list wait_link;  /* WAITING: on its chat */
    struct store *store;    /* borrowed */
    struct web *web;        /* borrowed; NULL: the bot was closed */
    struct web_chat *chat;  /* borrowed, pinned by its n_jobs */
    web_job_f *done;        /* must not free the job */
    bool next_page;         /* set by done(): read on after the last record */
    struct buf key, once, value, text;
    struct store_kv *items;    /* owned */
    const char *event;         /* type of the published event */
    uint64_t id, rev;          /* of the message; catching up: the scan has everything up to rev */
    struct http_id http;       /* the request to answer, if any */
    struct action_id action;   /* the action to answer, if any */
    struct prompt *prompt;     /* borrowed; the question whose choice is stored */
    struct web_stream *stream; /* catching up; NULL: the stream ended */
    uint64_t last;             /* catching up: the last rev that the page has seen */
    size_t limit;              /* history answer: number of messages */
};

static struct web_job *job_new(struct web *w, struct web_chat *c, web_job_f *done)
{
    struct web_job *j = xcalloc(1, sizeof *j);

    j->store = w->base.env->store;
    j->web = w;
    j->chat = c;
    j->done = done;
    c->n_jobs++;
    list_append(&w->jobs, &j->link);
    return j;
}

static void job_free(struct web_job *j)
{
    struct web_chat *c = j->web != NULL ? j->chat : NULL;

    store_take_back(&j->left);
    list_remove(&j->link);
    if (j->stream != NULL)
        j->stream->catching_up = NULL;
    if (list_is_linked(&j->wait_link)) {
        list_remove(&j->wait_link);
        if (c != NULL)
            c->n_waiting--;
    }
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

/* "<bot> 1f <chat> 1f <tail>" */
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

static void job_scan(struct web_job *j, const char *ns);

/* Starts the next waiting read of the chat. */
static void read_next(struct web_chat *c)
{
    if (list_is_empty(&c->waiting))
        return;
    struct web_job *j = list_first(&c->waiting, struct web_job, wait_link);
    list_remove(&j->wait_link);
    c->n_waiting--;
    c->reading = j;
    job_scan(j, "web");
}

static void on_store_done(struct store_op *op, enum bh_err err)
{
    struct web_job *j = container_of(op, struct web_job, op);
    bool is_scan = op->kind == STORE_SCAN;

    if (j->web != NULL && (err == BH_UNAVAILABLE || err == BH_UNKNOWN)) {
        j->web->counters.store_failures++;
        log_warn(&j->web->base.log, "the store failed: %s of chat history, %s",
                 is_scan ? "read" : "write", bh_err_word(err));
    }
    if (j->web != NULL)
        j->done(j, err);
    if (j->web != NULL && j->next_page && j->scan.n_records > 0) {
        struct store_scan was = j->scan;
        j->next_page = false;
        buf_reset(&j->text);
        buf_add_str(&j->text, was.records[was.n_records - 1].key);
        store_scan_free(&j->scan);
        j->scan.after = buf_str(&j->text);
        store_scan(j->store, &j->scan);
        return;
    }
    if (is_scan)
        store_scan_free(&j->scan);
    if (j->web != NULL && j->chat->reading == j) {
        j->chat->reading = NULL;
        read_next(j->chat);
    }
    job_free(j);
}

static void job_scan(struct web_job *j, const char *ns)
{
    j->scan.op.done = on_store_done;
    j->scan.ns = ns;
    j->scan.prefix = buf_str(&j->key);
    if (j->scan.max_bytes == 0)
        j->scan.max_bytes = READ_BYTES;
    store_scan(j->store, &j->scan);
}

static void job_tx(struct web_job *j, size_t n, bool urgent)
{
    j->tx.op.done = on_store_done;
    j->tx.items = j->items;
    j->tx.n = n;
    store_tx(j->store, &j->tx, urgent);
}

static bool job_read(struct web_job *j)
{
    struct web_chat *c = j->chat;

    if (c->reading != NULL && c->n_waiting >= MAX_WAITING) {
        job_free(j);
        return false;
    }
    list_append(&c->waiting, &j->wait_link);
    c->n_waiting++;
    if (c->reading == NULL)
        read_next(c);
    return true;
}

static void on_store_closed(struct store_left *l)
{
    struct web_job *j = container_of(l, struct web_job, left);

    if (j->op.kind == STORE_SCAN)
        store_scan_free(&j->scan);
    l->prev = NULL; /* the store freed the list */
    job_free(j);
}

void web_jobs_leave(struct web *w)
{
    list_each (&w->jobs, it, next) {
        struct web_job *j = list_entry(it, struct web_job, link);
        if (j->http.generation !=
            0) /* the write may still commit: a retry with the same client_id finds it */
            web_refuse_for_now(w, j->http, 503, "draining",
                               "This server is going down. Try again in a moment.", 1);
        if (list_is_linked(&j->wait_link)) {
            job_free(j);
            continue;
        }
        if (j->op.kind == STORE_SCAN)
            store_cancel(j->store, &j->op);
        j->web = NULL;
        list_remove(it);
        store_leave(j->store, &j->left, on_store_closed);
    }
}

/* ---- writing ---- */

struct web_once {
    struct str bot, chat, client_id;
    char id[WEB_ID_CHARS + 1]; /* of the message */
};
static const struct record_field once_fields[] = {
    RECORD_FIELD(struct web_once, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct web_once, chat, "chat", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct web_once, client_id, "client_id", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct web_once, id, "id", RECORD_NEEDED),
};
const struct record_form web_once_form =
    RECORD_FORM("web_once", struct web_once, once_fields, .lossy = true);

/* Writes @m under its id.  The write fails with BH_CONFLICT if its client_id exists already. */
static void submit_message(struct web_job *j, const struct web_message *m)
{
    size_t n = 1;

    j->id = m->id;
    j->rev = m->rev;
    key_write_id(&j->key, j->chat, m->id);
    web_message_write(&j->value, m);
    j->items = xcalloc(2, sizeof *j->items);
    j->items[0] = (struct store_kv){KV_PUT, "web", buf_str(&j->key), buf_str(&j->value)};
    if (m->client_id.n > 0 && (m->from == WEB_VISITOR || m->rev == m->id)) { /* not an edit */
        struct web_once r = {web_bot(j->web), str_of(j->chat->id), m->client_id, {0}};
        web_id_format(m->id, r.id);
        record_write(&web_once_form, NULL, &r, &j->once, &j->text);
        j->items[1] =
            (struct store_kv){KV_INSERT, web_once_form.ns, buf_str(&j->once), buf_str(&j->text)};
        n = 2;
    }
    j->tx.bulk = true;
    job_tx(j, n, true);
}

/* ---- trimming ---- */

static void on_trimmed(struct web_job *j, enum bh_err err)
{
    if (err != BH_OK)
        j->chat->untrimmed = UINT32_MAX; /* retry at the next write */
}

/* Deletes the messages before the key j->once, each with the record of its client_id. */
static void on_oldest_read(struct web_job *j, enum bh_err err)
{
    struct web *w = j->web;
    struct web_job *cut;
    size_t oldest = 0, n = 0, bytes = 0;

    while (err == BH_OK && oldest < j->scan.n_records &&
           str_cmp(j->scan.records[oldest].key, buf_str(&j->once)) < 0)
        oldest++;
    if (oldest == 0)
        return;
    if (oldest == j->scan.n_records && j->scan.more)
        j->chat->untrimmed = UINT32_MAX; /* too many for one step: continue at the next write */
    cut = job_new(w, j->chat, on_trimmed);
    cut->items = xcalloc(2 * oldest, sizeof *cut->items);
    /* A buffer may move while it grows, so views into it are made after the last key. */
    size_t *ends = xcalloc(2 * oldest, sizeof *ends);
    for (size_t i = 0; i < oldest; i++) {
        const struct store_record *r = &j->scan.records[i];
        struct web_message m;

        bytes += r->key.n + r->value.n;
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
    web_kept_less(w, bytes);
    job_tx(cut, n, false);
}

/* The scan has the newest messages, as many as are kept.  Starts deleting the older ones. */
static void on_newest_read(struct web_job *j, enum bh_err err)
{
    struct web *w = j->web;
    struct web_job *oldest;

    if (err != BH_OK || !j->scan.more || j->scan.n_records == 0)
        return;
    oldest = job_new(w, j->chat, on_oldest_read);
    key_write(&oldest->key, j->chat, STR(""));
    buf_add_str(&oldest->once, j->scan.records[j->scan.n_records - 1].key);
    oldest->scan = (struct store_scan){.limit = TRIM_AT_ONCE};
    job_scan(oldest, "web");
}

static size_t most_bytes(const struct web *w)
{
    uint64_t each = w->base.env->ledger != NULL
                        ? ledger_bounds(w->base.env->ledger, LIMIT_HISTORY_BYTES).each
                        : 0;

    return each != 0 && each < STORE_READ_BYTES ? (size_t)each : STORE_READ_BYTES;
}

static void trim_sometimes(struct web_chat *c, size_t bytes)
{
    struct web *w = c->web;
    uint32_t slack = w->history / 8 > 0 ? w->history / 8 : 1;
    struct web_job *j;

    if (c->untrimmed != UINT32_MAX)
        c->untrimmed++;
    c->untrimmed_bytes += bytes;
    if (c->untrimmed < slack && c->untrimmed_bytes < most_bytes(w) / 8)
        return;
    c->untrimmed = 0;
    c->untrimmed_bytes = 0;
    j = job_new(w, c, on_newest_read);
    key_write(&j->key, c, STR(""));
    j->scan = (struct store_scan){.limit = w->history, .reverse = true, .max_bytes = most_bytes(w)};
    job_scan(j, "web");
}

/* ---- a repeated message ---- */

static void on_once_read(struct web_job *j, enum bh_err err)
{
    const struct store_record *r = err == BH_OK && j->scan.n_records > 0 ? j->scan.records : NULL;
    struct web_once once;
    uint64_t id = j->id;

    if (r != NULL && record_read(j->web->reader, &web_once_form, r->key, r->value, &once))
        web_id_parse(str_of(once.id), &id);
    if (j->event == NULL) {
        web_post_answer(j->web, j->http, id);
        return;
    }
    char text[WEB_ID_CHARS + 1];
    web_id_format(id, text);
    web_succeed(j->web, j->action, str_of(text));
}

/* A message with the client_id of @j was stored before: answers with the id of that message. */
static void answer_again(const struct web_job *j, bool action)
{
    struct web_job *again = job_new(j->web, j->chat, on_once_read);

    again->http = j->http;
    again->action = j->action;
    again->event = action ? j->event : NULL;
    again->id = j->id;
    buf_add_str(&again->key, buf_str(&j->once));
    again->scan = (struct store_scan){.limit = 1};
    job_scan(again, "web_once");
}

/* ---- a visitor's message ---- */

static void on_post_kept(struct web_job *j, enum bh_err err)
{
    if (err == BH_CONFLICT) {
        answer_again(j, false);
        return;
    }
    /* Even if the write failed, the agent's mailbox has the message, so the POST succeeded. */
    web_publish(j->chat, j->event, j->rev, buf_str(&j->value));
    web_post_answer(j->web, j->http, j->id);
    trim_sometimes(j->chat, j->value.n);
}

void web_keep_post(struct web *w, struct str chat_id, const struct web_message *m,
                   struct http_id http)
{
    struct web_message kept = *m;
    const char *event = m->kind == WEB_STOP ? "interrupt" : "message";

    kept.rev = web_next(w);
    if (!web_may_keep(w, KEPT_BYTES + m->text.n + m->files.text.n + m->prompt.text.n)) {
        web_publish_unkept(w, chat_id, event, &kept);
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

    if (err != BH_OK)
        web_live_lost(w, j->id);
    if (err == BH_CONFLICT) { /* a final draft of before the start */
        answer_again(j, true);
        return;
    }
    if (err != BH_OK) {
        host_fail(w->base.host, j->action, ACTION_ERROR_TRANSIENT "the message could not be kept");
        return;
    }
    web_publish(j->chat, j->event, j->rev, buf_str(&j->value));
    web_id_format(j->id, id);
    web_succeed(w, j->action, str_of(id));
    trim_sometimes(j->chat, j->value.n);
}

void web_keep_send(struct web *w, struct str chat_id, struct web_message *m, struct action_id id)
{
    struct web_job *j;

    w->counters.sent++;
    m->id = m->id != 0 ? m->id : web_next(w);
    m->rev = m->id;
    m->at_ms = clock_wall_ms(w->base.env->clock);
    if (!web_may_keep(w, KEPT_BYTES + m->text.n + m->files.text.n + m->prompt.text.n)) {
        char text[WEB_ID_CHARS + 1];
        web_publish_unkept(w, chat_id, "message", m);
        web_id_format(m->id, text);
        web_succeed(w, id, str_of(text));
        return;
    }
    j = job_new(w, web_chat_get(w, chat_id), on_action_kept);
    j->action = id;
    j->event = "message";
    submit_message(j, m);
}

/* ---- an answered question ---- */

/* Without history: only open pages get the choice. */
static void tell_choice(struct web *w, struct str chat_id, uint64_t message_id, struct str option)
{
    struct web_chat *c = web_chat_find(w, chat_id);
    char id[WEB_ID_CHARS + 1];

    if (c == NULL)
        return;
    web_id_format(message_id, id);
    buf_reset(&w->scratch);
    struct jw j = jw_begin(&w->scratch);
    jw_obj(&j);
    jw_kstr(&j, "id", str_make(id, WEB_ID_CHARS));
    jw_kstr(&j, "option", option);
    jw_end_obj(&j);
    web_publish(c, "pressed", 0, buf_str(&w->scratch));
}

static void on_choice_kept(struct web_job *j, enum bh_err err)
{
    if (err == BH_OK)
        web_publish(j->chat, j->event, j->rev, buf_str(&j->value));
    prompts_tidied(j->prompt, err == BH_OK ? 0 : 1);
}

static void on_choice_read(struct web_job *j, enum bh_err err)
{
    struct web *w = j->web;
    struct web_message m;

    if (err != BH_OK) {
        prompts_tidied(j->prompt, 1);
        return;
    }
    if (j->scan.n_records == 0 || !web_message_read(w, j->scan.records[0].value, &m)) {
        tell_choice(w, str_of(j->chat->id), j->id, buf_str(&j->text));
        prompts_tidied(j->prompt, 0);
        return;
    }
    BUF_LOCAL prompt = BUF_INIT;
    struct jw out = jw_begin(&prompt);
    jw_obj(&out);
    for (struct json_iter it = {0}; json_next(m.prompt.value, &it);)
        if (!str_eq(it.key, STR("chosen"))) {
            jw_key_str(&out, it.key);
            jw_value(&out, it.value);
        }
    jw_kstr(&out, "chosen", buf_str(&j->text));
    jw_end_obj(&out);
    m.prompt.text = buf_str(&prompt);
    m.rev = web_next(w);
    struct web_job *put = job_new(w, j->chat, on_choice_kept);
    put->prompt = j->prompt;
    put->event = "edit";
    submit_message(put, &m);
}

void web_keep_choice(struct web *w, struct prompt *q)
{
    struct str chat_id = str_of(q->chat);
    uint64_t message_id = 0;

    web_id_parse(str_of(q->message_id), &message_id);
    if (w->history == 0) {
        tell_choice(w, chat_id, message_id, str_of(q->chosen->id));
        prompts_tidied(q, 0);
        return;
    }
    struct web_job *j = job_new(w, web_chat_get(w, chat_id), on_choice_read);
    j->prompt = q;
    j->id = message_id;
    buf_add_z(&j->text, q->chosen->id);
    key_write_id(&j->key, j->chat, message_id);
    j->scan = (struct store_scan){.limit = 1};
    job_scan(j, "web");
}

/* ---- edits ---- */

static void on_edit_read(struct web_job *j, enum bh_err err)
{
    struct web *w = j->web;
    struct web_message m;

    if (err != BH_OK) {
        host_fail(w->base.host, j->action, ACTION_ERROR_TRANSIENT "the message could not be read");
        return;
    }
    bool ok = j->scan.n_records > 0 && web_message_read(w, j->scan.records[0].value, &m) &&
              m.from == WEB_AGENT;
    web_live_found(w, str_of(j->chat->id), j->id, ok);
    if (!ok) {
        host_fail(w->base.host, j->action, "no such message of the agent in this chat");
        return;
    }
    m.text = buf_str(&j->text);
    m.rev = web_next(w);
    m.edited_ms = clock_wall_ms(w->base.env->clock);
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
    j->id = message_id;
    buf_add_str(&j->text, text);
    key_write_id(&j->key, j->chat, message_id);
    j->scan = (struct store_scan){.limit = 1};
    job_scan(j, "web");
}

/* ---- reading the history ---- */

/* @scan holds records, newest first.  The answer has at most @limit of them, oldest first. */
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
    jw_karr(&out, "messages");
    while (shown > 0)
        jw_raw(&out, scan->records[--shown].value);
    jw_end_arr(&out);
    jw_end_obj(&out);
    http_answer(w->base.env->server, http,
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

void web_history_answer(struct web *w, struct http_req *req, const struct web_visitor *v)
{
    uint64_t limit = ANSWER_MESSAGES, before;
    struct web_job *j;

    if (w->history == 0) {
        answer_messages(w, str_of(v->chat_id), http_req_id(req), &(struct store_scan){0}, 0);
        return;
    }
    buf_reset(&w->scratch);
    if (http_query(req, "limit", &w->scratch))
        str_to_u64(buf_str(&w->scratch), &limit);
    if (limit == 0 || limit > w->history)
        limit = w->history;
    j = job_new(w, web_chat_get(w, str_of(v->chat_id)), on_history_read);
    j->http = http_req_id(req);
    j->limit = (size_t)limit;
    key_write(&j->key, j->chat, STR(""));
    j->scan = (struct store_scan){.limit = j->limit + 1, .reverse = true};
    j->scan.max_bytes = ANSWER_BYTES;
    buf_reset(&w->scratch);
    if (http_query(req, "before", &w->scratch) && web_id_parse(buf_str(&w->scratch), &before)) {
        key_write_id(&j->text, j->chat, before);
        j->scan.after = buf_str(&j->text);
    }
    if (!job_read(j))
        web_refuse_for_now(w, http_req_id(req), 429, "too_many_reads",
                           "This visitor is reading its history several times already.", 2);
}

/* ---- catching up ---- */

/* Collects the records that the page has not seen, one per line, newest first.  False: more than
 * CATCH_UP_BYTES. */
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

static void on_catch_up_read(struct web_job *j, enum bh_err err)
{
    if (j->stream == NULL)
        return;
    if (err != BH_OK) {
        web_stream_end(j->stream); /* the page reconnects */
        return;
    }
    bool fits = keep_missed(j);
    if (fits && j->scan.more) {
        j->next_page = true;
        return;
    }
    if (fits) {
        /* Writes the collected records to the stream, last line first: oldest first. */
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
    } else
        web_stream_reset(j->stream);
    if (j->stream == NULL)
        return; /* the stream ended during the write */
    struct web_stream *s = j->stream;
    j->stream = NULL;
    s->catching_up = NULL;
    if (j->chat->published > j->rev)
        web_catch_up(s, j->rev); /* more was published during the read */
    else
        web_stream_go_live(s, j->rev);
}

void web_catch_up(struct web_stream *s, uint64_t last)
{
    struct web_chat *c = s->chat;
    struct web *w = c->web;
    struct web_job *j = job_new(w, c, on_catch_up_read);

    j->stream = s;
    j->last = last <= w->counter ? last : 0; /* a rev of another database: send everything */
    j->rev = w->counter;
    key_write(&j->key, c, STR(""));
    j->scan = (struct store_scan){.reverse = true};
    s->catching_up = j;
    if (job_read(j))
        return;
    web_stream_end(s); /* the page reconnects */
    web_chat_settle(c);
}

void web_catch_up_cancel(struct web_stream *s)
{
    struct web_job *j = s->catching_up;

    s->catching_up = NULL;
    if (j == NULL)
        return;
    j->stream = NULL;
    if (list_is_linked(&j->wait_link))
        job_free(j);
    else
        store_cancel(j->store, &j->op);
}
