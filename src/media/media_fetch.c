/* media_fetch.c - design.  (media_fetch.h has the contract.)
 *
 * The transfer pauses while a piece is being written, so it is never faster than the disk.  The
 * writer is created when the first bytes arrive: only then are the answer's type and size known.
 *
 * A platform that still prepares a file answers 202 (LINE does, for videos): it is asked again. */
#include "media/media_fetch.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/mem.h"
#include "media/media_priv.h"
#include "net/http_client.h"

enum { AGAIN_MS = 1000, MAX_HEADERS = 8 };

#define NO_ROOM "there is no room for it (media.per_tenant, media.total, the disk)"

struct media_fetch {
    struct list link;
    struct media *m; /* borrowed */
    media_fetched_cb *done;
    void *ctx;
    struct http_call *call;     /* owned; NULL: ended */
    struct media_write *writer; /* owned; NULL: not begun, or ended */
    struct arena arena;
    struct media_source from; /* its strs are in the arena; without url and headers */
    struct buf asked;         /* secret: the address and the headers, each with its NUL */
    struct timer again;
    int64_t until_ms; /* monotonic */
    bool has_room;
    char why[160];
};

static void fetch_free(struct media_fetch *f)
{
    list_remove(&f->link);
    timer_stop(f->m->clock, &f->again);
    http_cancel(&f->call);
    media_abort(&f->writer);
    buf_wipe(&f->asked);
    arena_done(&f->arena);
    free(f);
}

static void end(struct media_fetch *f, const struct media_file *file, const char *why)
{
    media_fetched_cb *done = f->done;
    void *ctx = f->ctx;
    char text[sizeof f->why];

    snprintf(text, sizeof text, "%s", why);
    fetch_free(f);
    done(ctx, file, text);
}

/* ---- writing ---- */

static void on_room(void *ctx)
{
    struct media_fetch *f = ctx;

    f->has_room = true;
    if (f->call != NULL)
        http_call_resume(f->call);
}

static void on_written(void *ctx, enum bh_err err, const struct media_file *file)
{
    struct media_fetch *f = ctx;

    f->writer = NULL;
    end(f, file,
        err == BH_OK          ? ""
        : err == BH_BUSY      ? NO_ROOM
        : err == BH_MALFORMED ? "it is empty, or larger than allowed"
                              : "it could not be kept");
}

static const struct media_write_ops writer_ops = {.room = on_room, .done = on_written};

/* Creates the writer.  False: f->why has the reason. */
static bool begin(struct media_fetch *f, const struct http_result *head, struct str first)
{
    struct str said = http_result_header(head, "Content-Type");
    struct str page = media_sniff(first);
    struct str type = f->from.type;
    struct media_spec spec = {.tenant = f->from.tenant,
                              .type = type.n > 0 ? type : said,
                              .name = f->from.name,
                              .stranger = f->from.stranger,
                              .max_bytes = f->from.max_bytes};
    enum bh_err err;

    if (str_eq(page, STR("text/html")) && str_starts(said, STR("text/html")) &&
        (f->from.no_page || (type.n > 0 && !str_starts(type, STR("text/"))))) {
        snprintf(f->why, sizeof f->why, "it answered with a web page");
        return false;
    }
    if (str_starts(said, STR("application/json")) && type.n > 0 &&
        !str_eq(type, STR("application/json"))) {
        snprintf(f->why, sizeof f->why, "it answered with an error");
        return false;
    }
    if (!str_to_u64(http_result_header(head, "Content-Length"), &spec.expected))
        spec.expected = 0;
    f->writer = media_begin(f->m, &spec, &writer_ops, f, &err);
    if (f->writer == NULL)
        snprintf(f->why, sizeof f->why, "%s",
                 err == BH_BUSY      ? NO_ROOM
                 : err == BH_REFUSED ? MEDIA_OFF
                                     : "it is larger than allowed");
    return f->writer != NULL;
}

/* ---- downloading ---- */

static http_done_cb on_done;

/* The file is not ready yet. */
static bool is_early(const struct media_fetch *f, const struct http_result *r)
{
    return f->from.trusted && r->status == 202;
}

static enum http_take on_data(void *ctx, const struct http_result *head, struct str bytes)
{
    struct media_fetch *f = ctx;

    if (is_early(f, head))
        return HTTP_TOOK;
    if (f->writer == NULL)
        return begin(f, head, bytes) ? HTTP_LATER : HTTP_STOP;
    if (!f->has_room)
        return HTTP_LATER;
    f->has_room = false;
    media_add(f->writer, bytes);
    return HTTP_TOOK;
}

static void start(struct media_fetch *f, const char *url, const char *const *headers, bool trusted)
{
    struct media *m = f->m;
    int64_t left_ms = f->until_ms - clock_now_ms(m->clock);
    struct http_fetch what = {.url = url,
                              .headers = headers,
                              .timeout_ms = left_ms > 1 ? left_ms : 1,
                              .max_body = (size_t)MEDIA_MAX_BYTES * 2, /* the writer is stricter */
                              .public_only = !trusted && !m->env.settings->allow_private,
                              .not_local = !trusted,
                              .on_data = on_data};

    f->call = http_fetch(m->env.http, &what, on_done, f);
}

static void on_again(struct timer *t)
{
    struct media_fetch *f = container_of(t, struct media_fetch, again);
    const char *headers[MAX_HEADERS + 1] = {0};
    size_t at = strlen(f->asked.p) + 1;

    for (size_t n = 0; at < f->asked.n; at += strlen(f->asked.p + at) + 1)
        headers[n++] = f->asked.p + at;
    start(f, f->asked.p, headers, true);
}

static void keep_asked(struct media_fetch *f, const struct media_source *s)
{
    buf_add(&f->asked, s->url, strlen(s->url) + 1);
    for (size_t n = 0; s->headers != NULL && s->headers[n] != NULL; n++) {
        assert(n < MAX_HEADERS);
        buf_add(&f->asked, s->headers[n], strlen(s->headers[n]) + 1);
    }
}

static void on_done(void *ctx, const struct http_result *r)
{
    struct media_fetch *f = ctx;
    struct str to = http_result_header(r, "Location");

    f->call = NULL;
    if (f->from.redirects && r->err == BH_OK && r->status >= 300 && r->status <= 399 &&
        to.n <= 8192 && (str_starts(to, STR("https://")) || str_starts(to, STR("http://")))) {
        char *url = str_dup(to);
        f->from.redirects = false;
        start(f, url, NULL, false);
        free(url);
        return;
    }
    bool good = r->err == BH_OK && r->status >= 200 && r->status < 300;
    if (good && is_early(f, r)) {
        if (clock_now_ms(f->m->clock) + AGAIN_MS < f->until_ms)
            timer_set(f->m->clock, &f->again, AGAIN_MS);
        else
            end(f, NULL, "its platform is still preparing it");
        return;
    }
    if (good && f->writer != NULL) {
        media_end(f->writer);
        return;
    }
    if (good)
        snprintf(f->why, sizeof f->why, "it is empty");
    else if (f->why[0] != '\0')
        ; /* begin() has said why */
    else if (r->err == BH_REFUSED)
        snprintf(f->why, sizeof f->why, "its address is not a public one");
    else if (r->err != BH_OK)
        snprintf(f->why, sizeof f->why, "it could not be fetched");
    else if (r->status >= 300 && r->status < 400)
        snprintf(f->why, sizeof f->why, "it is elsewhere by now, and redirects are not followed");
    else
        snprintf(f->why, sizeof f->why, "its address answered with status %d", r->status);
    end(f, NULL, f->why);
}

/* ---- the interface ---- */

struct media_fetch *media_fetch(struct media *m, const struct media_source *s,
                                media_fetched_cb *done, void *ctx)
{
    struct media_fetch *f = xcalloc(1, sizeof *f);

    *f = (struct media_fetch){.m = m, .done = done, .ctx = ctx, .from = *s};
    f->from.tenant = arena_str(&f->arena, s->tenant);
    f->from.stranger = arena_str(&f->arena, s->stranger);
    f->from.type = arena_str(&f->arena, s->type);
    f->from.name = arena_str(&f->arena, s->name);
    f->from.url = NULL;
    f->from.headers = NULL;
    list_append(&m->fetches, &f->link);
    timer_init(&f->again, on_again);
    f->until_ms =
        clock_now_ms(m->clock) + (s->timeout_ms > 0 ? s->timeout_ms : m->env.settings->wait_ms);
    if (s->trusted)
        keep_asked(f, s);
    start(f, s->url, s->headers, s->trusted);
    return f;
}

void media_fetch_cancel(struct media_fetch **f)
{
    if (*f != NULL)
        fetch_free(*f);
    *f = NULL;
}

void media_fetches_drop(struct media *m)
{
    list_each (&m->fetches, it, nxt)
        fetch_free(list_entry(it, struct media_fetch, link));
}
