/* job.c - see job.h. */
#include "platform/web/job.h"
#include <stdlib.h>
#include "base/mem.h"

#define MAX_WAITING 8 /* reads of one chat: four pages, each its stream and its history */

struct web_job *web_job_new(struct web *w, struct web_chat *c, web_job_f *done)
{
    struct web_job *j = xcalloc(1, sizeof *j);

    j->store = w->env->store;
    j->web = w;
    j->chat = c;
    j->done = done;
    c->n_jobs++;
    list_init(&j->link);
    list_init(&j->wait_link);
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

/* ---- keys ---- */

void web_key_write(struct buf *out, const struct web_chat *c, struct str tail)
{
    buf_printf(out, "%s\x1f%s\x1f", c->web->base.bot, c->id);
    buf_add_str(out, tail);
}

void web_key_write_id(struct buf *out, const struct web_chat *c, uint64_t id)
{
    char text[WEB_ID_CHARS + 1];

    web_id_format(id, text);
    web_key_write(out, c, str_make(text, WEB_ID_CHARS));
}

/* ---- submitting ---- */

static void go_on(struct web_job *j)
{
    struct store_scan was = j->scan;

    j->next_page = false;
    buf_reset(&j->text);
    buf_add_str(&j->text, was.records[was.n_records - 1].key);
    store_scan_free(j->store, &j->scan);
    j->scan.after = buf_str(&j->text);
    store_scan(j->store, &j->scan);
}

/* The next read of the chat, when one is over. */
static void read_next(struct web_chat *c)
{
    if (list_is_empty(&c->waiting))
        return;
    struct web_job *j = list_first(&c->waiting, struct web_job, wait_link);
    list_remove(&j->wait_link);
    c->n_waiting--;
    c->reading = j;
    web_job_scan(j, "web");
}

static void on_store_done(struct store_op *op, enum bh_err err)
{
    struct web_job *j = container_of(op, struct web_job, op);
    bool is_scan = op->kind == STORE_SCAN;

    if (j->web != NULL && (err == BH_UNAVAILABLE || err == BH_UNKNOWN)) {
        j->web->counters.store_failures++;
        log_warn(&j->web->log, "the store failed: %s of chat history, %s",
                 is_scan ? "read" : "write", bh_err_word(err));
    }
    if (j->web != NULL)
        j->done(j, err);
    if (j->web != NULL && j->next_page && j->scan.n_records > 0) {
        go_on(j);
        return;
    }
    if (is_scan)
        store_scan_free(j->store, &j->scan);
    if (j->web != NULL && j->chat->reading == j) {
        j->chat->reading = NULL;
        read_next(j->chat);
    }
    job_free(j);
}

void web_job_scan(struct web_job *j, const char *ns)
{
    j->scan.op.done = on_store_done;
    j->scan.ns = ns;
    j->scan.prefix = buf_str(&j->key);
    if (j->scan.max_bytes == 0)
        j->scan.max_bytes = WEB_READ_BYTES;
    store_scan(j->store, &j->scan);
}

void web_job_tx(struct web_job *j, size_t n, bool urgent)
{
    j->tx.op.done = on_store_done;
    j->tx.items = j->items;
    j->tx.n = n;
    store_tx(j->store, &j->tx, urgent);
}

bool web_job_read(struct web_job *j)
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

void web_job_call_off(struct web_job *j)
{
    if (list_is_linked(&j->wait_link))
        job_free(j);
    else
        store_cancel(j->store, &j->op);
}

static void on_store_closed(struct store_left *l, const struct store_ops *ops)
{
    struct web_job *j = container_of(l, struct web_job, left);

    if (j->op.kind == STORE_SCAN)
        ops->scan_free(&j->scan);
    l->prev = NULL; /* the list is gone with its store */
    job_free(j);
}

/* Who asks again under the same client_id is told what became of it. */
static void answer_before_leaving(struct web_job *j)
{
    if (j->http.generation != 0)
        web_refuse_for_now(j->web, j->http, 503, "draining",
                           "This server is going down. Try again in a moment.", 1);
}

void web_jobs_leave(struct web *w)
{
    list_each (&w->jobs, it, next) {
        struct web_job *j = list_entry(it, struct web_job, link);
        answer_before_leaving(j);
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
