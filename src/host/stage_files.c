/* stage_files.c - the files of staged events: asked for, fetched, here or lost.  And what was said
 * before them, which is asked for in the same breath. */
#include <stdio.h>
#include "host/stage_priv.h"

void stage_drop_files(struct staged *e)
{
    for (size_t i = 0; i < e->ev.n_media; i++)
        media_fetch_cancel(&e->items[i].fetch);
}

static void lose(struct staged *e, struct item *it, const char *why)
{
    it->state = ITEM_LOST;
    snprintf(it->why, sizeof it->why, "%s", why);
    stage_settle(e);
}

static void on_fetched(void *ctx, const struct media_file *f, const char *why)
{
    struct item *it = ctx;
    struct staged *e = it->of;

    it->fetch = NULL;
    if (f == NULL) {
        lose(e, it, why);
        return;
    }
    memcpy(it->id, f->id, sizeof it->id);
    it->state = ITEM_HERE;
    stage_settle(e);
}

static struct staged *asked(struct stages *s, struct media_ask ask, struct item **ret)
{
    struct staged *e = stage_find(s, ask.index / EVENT_MAX_MEDIA, ask.generation);
    size_t i = ask.index % EVENT_MAX_MEDIA;

    if (e == NULL || i >= e->ev.n_media || e->items[i].state != ITEM_ASKED)
        return NULL;
    *ret = &e->items[i];
    return e;
}

void stage_media_gone(struct stages *s, struct media_ask ask, const char *why)
{
    struct item *it;
    struct staged *e = asked(s, ask, &it);

    if (e != NULL)
        lose(e, it, why);
}

void stage_media_at(struct stages *s, struct media_ask ask, const struct media_at *at)
{
    struct item *it;
    struct staged *e = asked(s, ask, &it);

    if (e == NULL)
        return;
    size_t i = (size_t)(it - e->items);
    const struct event_media *m = &e->ev.media[i];
    struct media_source src = {.url = at->url,
                               .headers = at->headers,
                               .trusted = !at->foreign,
                               .redirects = at->redirects,
                               .tenant = str_of(e->tenant),
                               .type = m->type,
                               .name = m->name};
    it->state = ITEM_FETCHED;
    it->of = e;
    it->fetch = media_fetch(s->media, &src, on_fetched, it);
}

void stage_context(struct stages *s, struct context_ask ask, const struct event_said *said,
                   size_t n, bool failed)
{
    struct staged *e = stage_find(s, ask.index, ask.generation);

    if (e == NULL || e->context != ITEM_ASKED)
        return;
    n = n < EVENT_MAX_CONTEXT ? n : EVENT_MAX_CONTEXT;
    struct event_said *kept = arena_alloc(&e->arena, (n + 1) * sizeof *kept);
    for (size_t i = 0; i < n; i++)
        kept[i] = (struct event_said){.text = arena_str(&e->arena, said[i].text),
                                      .message_id = arena_str(&e->arena, said[i].message_id),
                                      .user_id = arena_str(&e->arena, said[i].user_id),
                                      .user_name = arena_str(&e->arena, said[i].user_name)};
    e->ev.context = kept;
    e->ev.n_context = n;
    e->context = failed ? ITEM_LOST : ITEM_HERE;
    stage_settle(e);
}

static void ask_context(struct staged *e, struct platform *p)
{
    if (e->context != ITEM_WAITS)
        return;
    e->context = p->ops->context != NULL ? ITEM_ASKED : ITEM_LOST;
    if (p->ops->context != NULL)
        p->ops->context(p, (struct context_ask){e->index, e->generation}, &e->ev);
}

void stage_ask(struct staged *e)
{
    struct stages *s = e->of;
    struct platform *p = s->hooks.platform(s->ctx, e->ev.platform, e->ev.bot);

    if (p == NULL || e->put != NULL)
        return;
    e->begun = true;
    ask_context(e, p);
    for (size_t i = 0; i < e->ev.n_media && p->ops->media_where != NULL; i++) {
        if (e->ev.media[i].ref.n == 0 || e->items[i].state != ITEM_WAITS)
            continue;
        struct media_ask ask = {(uint32_t)(e->index * EVENT_MAX_MEDIA + i), e->generation};
        e->items[i].state = ITEM_ASKED;
        p->ops->media_where(p, ask, e->ev.media[i].ref);
    }
}
