/* fetch.c - design.  (fetch.h has the contract.)
 *
 * The media_ask of a request encodes the event's handle and the file's index.  So no state is
 * needed until the download starts. */
#include "host/fetch.h"
#include <stdlib.h>
#include "base/list.h"
#include "base/mem.h"
#include "media/media.h"
#include "media/media_fetch.h"

struct fetch_in { /* a pending download */
    struct list link;
    struct relay *relay; /* borrowed */
    struct handle id;
    size_t file;
    struct media_fetch *fetch; /* owned */
};

struct fetches_in {
    struct media *media; /* borrowed */
    struct list under_way;
};

struct fetches_in *fetches_in_new(struct media *media)
{
    struct fetches_in *f = xcalloc(1, sizeof *f);

    f->media = media;
    list_init(&f->under_way);
    return f;
}

static void fetch_free(struct fetch_in *x)
{
    media_fetch_cancel(&x->fetch);
    list_remove(&x->link);
    free(x);
}

void fetches_in_free(struct fetches_in *f)
{
    if (f == NULL)
        return;
    list_each (&f->under_way, it, nxt)
        fetch_free(list_entry(it, struct fetch_in, link));
    free(f);
}

void fetch_in_drop(struct fetches_in *f, struct handle id)
{
    list_each (&f->under_way, it, nxt) {
        struct fetch_in *x = list_entry(it, struct fetch_in, link);
        if (x->id.index == id.index && x->id.generation == id.generation)
            fetch_free(x);
    }
}

static struct handle id_of(struct media_ask ask)
{
    return (struct handle){ask.index / EVENT_MAX_MEDIA, ask.generation};
}

void fetch_in_ask(struct platform *p, struct handle id, size_t file, const struct event *ev)
{
    const struct media_ask ask = {(uint32_t)(id.index * EVENT_MAX_MEDIA + file), id.generation};

    p->ops->media_where(p, ask, ev->media[file].ref);
}

void fetch_in_gone(struct relay *r, struct media_ask ask, const char *why)
{
    relay_file_lost(r, id_of(ask), ask.index % EVENT_MAX_MEDIA, why);
}

static void on_fetched(void *ctx, const struct media_file *f, const char *why)
{
    struct fetch_in *x = ctx;
    struct fetch_in told = *x;

    x->fetch = NULL;
    fetch_free(x);
    if (f == NULL)
        relay_file_lost(told.relay, told.id, told.file, why);
    else
        relay_file_here(told.relay, told.id, told.file,
                        &(struct relay_file){str_of(f->id), str_of(f->type), f->size});
}

void fetch_in_at(struct fetches_in *f, struct relay *r, struct media_ask ask,
                 const struct media_at *at)
{
    size_t file = ask.index % EVENT_MAX_MEDIA;
    struct str tenant;
    const struct event_media *m = relay_wanted_file(r, id_of(ask), file, &tenant);

    if (m == NULL)
        return;
    struct media_source src = {.url = at->url,
                               .headers = at->headers,
                               .trusted = !at->foreign,
                               .redirects = at->redirects,
                               .tenant = tenant,
                               .type = m->type,
                               .name = m->name};
    struct fetch_in *x = xcalloc(1, sizeof *x);
    *x = (struct fetch_in){.relay = r, .id = id_of(ask), .file = file};
    list_init(&x->link);
    list_append(&f->under_way, &x->link);
    x->fetch = media_fetch(f->media, &src, on_fetched, x);
}
