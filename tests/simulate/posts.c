/* posts.c - what people write, and platforms that repeat themselves. */
#include <stdio.h>
#include <stdlib.h>
#include "simulate/world_priv.h"

struct accept_ctx {
    struct accept_ctx
        *next; /* kept until the life ends: a dead process may not call back, but if it does */
    struct world *world;
    size_t event; /* events move when their array grows: a number, not a pointer */
    uint64_t boot;
    unsigned owed; /* to whom, when it was offered */
    bool stray;    /* whoever got it was over before */
};

static void on_accepted(void *ctx, enum bh_err err)
{
    struct accept_ctx *a = ctx;
    struct world *w = a->world;
    if (a->stray) {
        if (err == BH_OK)
            model_break(&w->model, "a process whose lease is over took a message");
        return;
    }
    struct model_event *ev = &w->model.events[a->event];
    world_say(w, "  %s accepted: %s", ev->name, bh_err_word(err));
    if (a->boot == w->model.boot)
        model_accepted(&w->model, ev, err);
    else if (w->n_nodes > 0)
        model_accepted_late(&w->model, ev, a->owed, err);
    else
        model_break(&w->model, "%s: told of its accept by a dead process", ev->name);
}

/* What an event waits for is a part of it: the same each time it is sent. */
static bool has_file(const struct world *w, const char *name)
{
    return w->waits && name[0] == 'e' && atoi(name + 1) % 4 == 0;
}

static void write_to(struct world *w, unsigned route, const char *name,
                     const struct model_event *of, struct accept_ctx *ctx)
{
    static const char *const keys[] = {[1] = "k0", [2] = "k1", [4] = "k2", [3] = "both"};
    char chat[4] = "c0";
    chat[1] = (char)('0' + (route == 2 ? 1 : route == 4 ? 2 : 0));
    struct event e = {.platform = STR("web"),
                      .bot = STR("lobby"),
                      .route_key = str_of(keys[route]),
                      .event_id = str_of(name),
                      .message_id = str_of(name),
                      .text = of != NULL && of->command ? STR("/new") : STR("hello"),
                      .chat_id = str_of(chat),
                      .chat_type = STR("dm"),
                      .user_id = of != NULL && of->author == 'v' ? STR("v") : STR("u"),
                      .burst_ms = w->burst_ms};
    const struct event_media file = {.ref = STR("file"), .type = STR("image/png")};
    e.media = &file;
    e.n_media = has_file(w, name);
    e.wants_context = w->waits && name[0] == 'e' && atoi(name + 1) % 5 == 0;
    world_say(w, "publish %s to %s%s", name, keys[route], e.n_media > 0 ? " with a file" : "");
    relay_accept(w->relay, &e, on_accepted, ctx);
}

static struct accept_ctx *new_context(struct world *w)
{
    struct accept_ctx *ctx = xcalloc(1, sizeof *ctx);
    *ctx = (struct accept_ctx){.next = w->contexts, .world = w, .boot = w->model.boot};
    w->contexts = ctx;
    return ctx;
}

static void publish(struct world *w, struct model_event *ev)
{
    struct accept_ctx *ctx = new_context(w);
    ctx->event = (size_t)(ev - w->model.events);
    ctx->owed = model_owed(ev);
    write_to(w, ev->route, ev->name, ev, ctx);
}

void posts_stray(struct world *w)
{
    char name[24];
    struct accept_ctx *ctx = new_context(w);
    ctx->stray = true;
    snprintf(name, sizeof name, "stray%zu", w->strays++); /* nobody may ever get it */
    write_to(w, 1, name, NULL, ctx);
}

void posts_step(struct world *w)
{
    static const unsigned routes[] = {1, 1, 2, 4, 3};
    struct model_event *unanswered = model_unanswered(&w->model);
    world_tell_holders(w);
    for (unsigned i = 0; i < MODEL_INSTANCES; i++)
        if (w->peers[i].asleep && w->heat == 0 && world_chance(w, 10))
            w->heat = 12; /* from the accept to the poke */
    if (unanswered != NULL &&
        world_chance(w, 60)) { /* what nobody confirmed comes again, in order */
        w->result.repeats++;
        model_offer_again(&w->model, unanswered);
        publish(w, unanswered);
        return;
    }
    if (w->model.n > 0 && world_chance(w, 15)) { /* the platform repeats itself */
        struct model_event *ev = &w->model.events[rand_below(&w->rand, w->model.n)];
        if (ev->accepting || model_is_over(&w->model, ev))
            return;
        w->result.repeats++;
        model_offer_again(&w->model, ev);
        publish(w, ev);
        return;
    }
    publish(w, model_offer(&w->model, routes[rand_below(&w->rand, ARRAY_LEN(routes))]));
}

void posts_done(struct world *w)
{
    for (struct accept_ctx *a; (a = w->contexts) != NULL;) {
        w->contexts = a->next;
        free(a);
    }
}
