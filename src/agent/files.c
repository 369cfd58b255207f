/* files.c - see files.h. */
#include "agent/files.h"
#include <stdlib.h>
#include "agent/agent_priv.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "net/http_client.h"

#define FETCH_MS 60000

struct turn_files {
    struct agent *agent;
    files_cb *done;
    void *ctx;
    struct http_call *call; /* one at a time */
    struct timer step;
    struct turn_file all[FILES_MAX];
    char *texts[FILES_MAX * 2]; /* owned: types and names */
    size_t n_texts;
    bool wanted[FILES_MAX];
    size_t n, next, bytes;
};

static timer_cb on_step;

static void files_free(struct turn_files *f)
{
    http_cancel(&f->call);
    timer_stop(f->agent->clock, &f->step);
    for (size_t i = 0; i < f->n; i++)
        buf_done(&f->all[i].bytes);
    for (size_t i = 0; i < f->n_texts; i++)
        free(f->texts[i]);
    free(f);
}

void files_cancel(struct turn_files **f)
{
    if (*f != NULL)
        files_free(*f);
    *f = NULL;
}

static const char *keep_text(struct turn_files *f, struct str text, const char *otherwise)
{
    f->texts[f->n_texts] = text.n > 0 ? str_dup(text) : xstrdup(otherwise);
    return f->texts[f->n_texts++];
}

/* The last part of the path of @url, without its query. */
static struct str name_of(const char *url)
{
    struct str all = str_of(url), part = STR_NULL, next;

    str_split(&all, '?', &part);
    for (struct str rest = part; str_split(&rest, '/', &next);)
        part = next;
    return part;
}

/* True: the connector keeps the file, at the address we connect to. */
static bool is_kept(const struct agent *a, const char *url)
{
    char *base = bhgw_http_url(a->opt->url);
    BUF_LOCAL prefix = BUF_INIT;

    buf_printf(&prefix, "%s/relay/media/", base != NULL ? base : "");
    bhgw_string_free(base);
    return str_starts(str_of(url), buf_str(&prefix));
}

static void add_files(struct turn_files *f, const struct bhgw_event *ev)
{
    struct json doc = {0}, event, item;
    struct json_iter type = {0}, more = {0};

    json_parse(f->agent->parser, str_make(ev->json, ev->json_bytes), &doc);
    event = json_get(doc, "event");
    for (size_t i = 0; i < ev->n_media_urls && f->n < FILES_MAX; i++) {
        struct turn_file *one = &f->all[f->n++];
        bool typed = json_next(json_get(event, "media_types"), &type);
        item = json_next(json_get(event, "media"), &more) ? more.value : (struct json){0};
        one->url = ev->media_urls[i];
        one->type =
            keep_text(f, typed ? json_as_str(type.value) : STR_NULL, "application/octet-stream");
        one->name = keep_text(f, json_str(item, "filename"), NULL);
        if (one->name == NULL) {
            f->n_texts--;
            one->name = keep_text(f, name_of(one->url), "file");
        }
        one->kept = is_kept(f->agent, one->url);
    }
}

static void on_fetched(void *ctx, const struct http_result *r)
{
    struct turn_files *f = ctx;
    struct turn_file *one = &f->all[f->next++];

    f->call = NULL;
    if (r->err == BH_OK && r->status == 200) {
        buf_add_str(&one->bytes, r->body);
        one->fetched = true;
        f->bytes += r->body.n;
    } else {
        log_warn(NULL, "a file of a message cannot be fetched: %s",
                 r->err != BH_OK ? r->why : "the server refused it");
    }
    timer_set(f->agent->clock, &f->step, 0);
}

static void fetch(struct turn_files *f, struct turn_file *one)
{
    BUF_SECRET bearer = BUF_INIT;

    if (one->kept)
        agent_bearer(f->agent, &bearer);
    const char *const headers[] = {one->kept ? buf_z(&bearer) : NULL, NULL};
    f->call = http_fetch(f->agent->http,
                         &(struct http_fetch){.url = one->url,
                                              .headers = headers,
                                              .timeout_ms = FETCH_MS,
                                              .max_body = FILE_MAX_BYTES,
                                              .public_only = !one->kept,
                                              .ca_path = one->kept ? f->agent->opt->ca_file : NULL},
                         on_fetched, f);
}

static void on_step(struct timer *t)
{
    struct turn_files *f = container_of(t, struct turn_files, step);

    while (f->next < f->n && (!f->wanted[f->next] || f->bytes > FILES_MAX_BYTES))
        f->next++;
    if (f->next < f->n)
        fetch(f, &f->all[f->next]);
    else
        f->done(f->ctx, f->all, f->n); /* cancels us */
}

struct turn_files *files_fetch(struct agent *a, struct agent_turn *t, files_want_cb *wants,
                               files_cb *done, void *ctx)
{
    struct turn_files *f = xcalloc(1, sizeof *f);

    *f = (struct turn_files){.agent = a, .done = done, .ctx = ctx};
    timer_init(&f->step, on_step);
    list_each (&t->messages, it, next)
        add_files(f, list_entry(it, struct message, link)->ev);
    if (f->n == 0) {
        files_free(f);
        return NULL;
    }
    for (size_t i = 0; i < f->n; i++)
        f->wanted[i] = wants(ctx, &f->all[i]);
    timer_set(a->clock, &f->step, 0);
    return f;
}
