/* history.c - what is kept in the store.
 *
 * Records, all under "<bot> 1f <chat> 1f ...":
 *      web       <id, 16 hex>  -> the message as JSON, exactly what pages get
 *      web_once  <client_id>   -> the id it was kept under, so that a repeated POST is kept once
 *
 * A change is published to the pages when its write is on disk, in the order of the writes.  A chat
 * is cut to length every few writes, so between cuts it may hold an eighth more than `history`.
 */
#include <stdlib.h>
#include "base/jw.h"
#include "base/limits.h"
#include "base/mem.h"
#include "platform/prompts.h"
#include "platform/web/job.h"
#include "platform/web/sweep.h"

#define TRIM_AT_ONCE 256
#define KEPT_BYTES 240 /* of a message beside its text, about: its key and what else is in it */

/* Write @m under its id; with a client_id, only if that one is new. */
static void submit_message(struct web_job *j, const struct web_message *m)
{
    size_t n = 1;

    j->id = m->id;
    j->rev = m->rev;
    web_key_write_id(&j->key, j->chat, m->id);
    web_message_write(&j->value, m);
    j->items = xcalloc(2, sizeof *j->items);
    j->items[0] = (struct store_kv){KV_PUT, "web", buf_str(&j->key), buf_str(&j->value)};
    if (m->client_id.n > 0 && !m->from_agent) {
        web_key_write(&j->once, j->chat, m->client_id);
        j->items[1] = (struct store_kv){KV_INSERT, "web_once", buf_str(&j->once),
                                        str_make(j->key.p + j->key.n - WEB_ID_CHARS, WEB_ID_CHARS)};
        n = 2;
    }
    j->tx.bulk = true;
    web_job_tx(j, n, true);
}

/* ---- cutting to length ---- */

static void on_trimmed(struct web_job *j, enum bh_err err)
{
    if (err != BH_OK)
        j->chat->untrimmed = UINT32_MAX; /* again at the next write */
}

/* The oldest ones, with what they say: each may have come with a client_id, which goes too.  What
 * is kept begins at j->once. */
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
        j->chat->untrimmed = UINT32_MAX; /* it did not fit: the rest at the next write */
    cut = web_job_new(w, j->chat, on_trimmed);
    cut->items = xcalloc(2 * oldest, sizeof *cut->items);
    /* The keys go into one buffer first: it may move while it grows, so views are taken after. */
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
        web_key_write(&cut->key, j->chat, m.client_id);
        cut->items[n].ns = "web_once";
        ends[n++] = cut->key.n;
    }
    for (size_t i = 0, at = 0; i < n; at = ends[i++]) {
        cut->items[i].verb = KV_DELETE;
        cut->items[i].key = str_make(cut->key.p + at, ends[i] - at);
    }
    free(ends);
    web_kept_less(w, bytes);
    web_job_tx(cut, n, false);
}

/* The newest ones, as many as are kept: what comes before them goes. */
static void on_newest_read(struct web_job *j, enum bh_err err)
{
    struct web *w = j->web;
    struct web_job *oldest;

    if (err != BH_OK || !j->scan.more || j->scan.n_records == 0)
        return;
    oldest = web_job_new(w, j->chat, on_oldest_read);
    web_key_write(&oldest->key, j->chat, STR(""));
    buf_add_str(&oldest->once, j->scan.records[j->scan.n_records - 1].key);
    oldest->scan = (struct store_scan){.limit = TRIM_AT_ONCE};
    web_job_scan(oldest, "web");
}

static size_t most_bytes(const struct web *w)
{
    uint64_t each =
        w->env->ledger != NULL ? ledger_bounds(w->env->ledger, LIMIT_HISTORY_BYTES).each : 0;

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
    j = web_job_new(w, c, on_newest_read);
    web_key_write(&j->key, c, STR(""));
    j->scan = (struct store_scan){.limit = w->history, .reverse = true, .max_bytes = most_bytes(w)};
    web_job_scan(j, "web");
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
    struct web_job *j = web_job_new(was->web, was->chat, on_once_read);

    j->http = was->http;
    j->id = was->id;
    buf_add_str(&j->key, buf_str(&was->once));
    j->scan = (struct store_scan){.limit = 1};
    web_job_scan(j, "web_once");
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
    trim_sometimes(j->chat, j->value.n);
}

void web_keep_post(struct web *w, struct str chat_id, const struct web_message *m,
                   struct http_id http)
{
    struct web_message kept = *m;
    const char *event = m->is_stop ? "interrupt" : "message";

    kept.rev = web_next(w);
    if (!web_may_keep(w, KEPT_BYTES + m->text.n + m->files.n + m->prompt.n)) {
        struct web_chat *c = web_chat_find(w, chat_id);
        if (c != NULL) {
            buf_reset(&w->scratch);
            web_message_write(&w->scratch, &kept);
            web_publish(c, event, kept.rev, buf_str(&w->scratch));
        }
        web_post_answer(w, http, m->id);
        return;
    }
    struct web_job *j = web_job_new(w, web_chat_get(w, chat_id), on_post_kept);
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
    trim_sometimes(j->chat, j->value.n);
}

/* The pages are told, and that is all. */
static void pass_on(struct web *w, struct str chat_id, const struct web_message *m,
                    struct action_id id)
{
    struct web_chat *c = web_chat_find(w, chat_id);
    char text[WEB_ID_CHARS + 1];

    if (c != NULL) {
        buf_reset(&w->scratch);
        web_message_write(&w->scratch, m);
        web_publish(c, "message", m->rev, buf_str(&w->scratch));
    }
    web_id_format(m->id, text);
    host_result(w->base.host, id,
                &(struct action_result){.success = true,
                                        .message_id = str_make(text, WEB_ID_CHARS)});
}

void web_keep_send(struct web *w, struct str chat_id, const struct web_message *m,
                   struct action_id id)
{
    struct web_job *j;

    if (!web_may_keep(w, KEPT_BYTES + m->text.n + m->files.n + m->prompt.n)) {
        pass_on(w, chat_id, m, id);
        return;
    }
    j = web_job_new(w, web_chat_get(w, chat_id), on_action_kept);
    j->action = id;
    j->event = "message";
    submit_message(j, m);
}

/* ---- an answered question ---- */

/* Nothing is kept of it: pages that are open are told what was chosen. */
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
    m.chosen = buf_str(&j->text);
    m.rev = web_next(w);
    struct web_job *put = web_job_new(w, j->chat, on_choice_kept);
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
    struct web_job *j = web_job_new(w, web_chat_get(w, chat_id), on_choice_read);
    j->prompt = q;
    j->id = message_id;
    buf_add_z(&j->text, q->chosen->id);
    web_key_write_id(&j->key, j->chat, message_id);
    j->scan = (struct store_scan){.limit = 1};
    web_job_scan(j, "web");
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
    if (j->scan.n_records == 0 || !web_message_read(w, j->scan.records[0].value, &m) ||
        !m.from_agent) {
        host_fail(w->base.host, j->action, "no such message of the agent in this chat");
        return;
    }
    m.text = buf_str(&j->text);
    m.rev = web_next(w);
    m.edited_ms = clock_wall_ms(w->env->clock);
    struct web_job *put = web_job_new(w, j->chat, on_action_kept);
    put->action = j->action;
    put->event = "edit";
    submit_message(put, &m);
}

void web_keep_edit(struct web *w, struct str chat_id, uint64_t message_id, struct str text,
                   struct action_id id)
{
    struct web_job *j = web_job_new(w, web_chat_get(w, chat_id), on_edit_read);

    j->action = id;
    buf_add_str(&j->text, text);
    web_key_write_id(&j->key, j->chat, message_id);
    j->scan = (struct store_scan){.limit = 1};
    web_job_scan(j, "web");
}
