/* wants.c - what a staged event waits for: requested from its platform, answered or given up.
 * (staged.h has the contract, staged_priv.h the row.)
 *
 * A want is one file, the context, or the question who sees the chat:
 *
 *      NOTHING    ASK --its bot is open--> ASKED --answered--> HERE, or LOST
 *                  ^--the bot closed------'  '--timeout------------------^
 *
 * Requests carry the handle of the event and the file's index, so late and repeated answers are
 * harmless. */
#include <stdio.h>
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/in/judge.h"
#include "relay/in/staged_priv.h"

void wants_drop(struct staged *e)
{
    struct outside *o = e->relay->env.outside;

    if (o->drop != NULL)
        o->drop(o, e->handle);
}

static bool is_open(uint8_t want)
{
    return want == WANT_ASK || want == WANT_ASKED;
}

static void settle(struct staged *e)
{
    if (e->state != STAGED_WAITING || !e->judged || e->dropped)
        return;
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (is_open(e->files[i].state))
            return;
    if (is_open(e->context))
        return;
    timer_stop(e->relay->env.clock, &e->timer);
    e->state = STAGED_READY;
    staged_advance(e->chat);
}

bool staged_has_outlet(const struct staged *e)
{
    struct outside *o = e->relay->env.outside;

    return o->find(o, e->ev.platform, e->ev.bot) != NULL;
}

/* Requests the files and the context, if the bot is open. */
static void ask(struct staged *e)
{
    struct outside *o = e->relay->env.outside;

    if (e->state != STAGED_WAITING || !staged_has_outlet(e) || e->relay->draining)
        return;
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (e->files[i].state == WANT_ASK) {
            e->files[i].state = WANT_ASKED;
            o->fetch(o, e->handle, i, &e->ev, str_of(e->tenant));
        }
    if (e->context == WANT_ASK) {
        e->context = WANT_ASKED;
        o->context(o, e->handle, &e->ev);
    }
}

/* Gives each recipient whose sight is asked for a row of its own, unless none of the others is to
 * get the event anyway.  Returns how many verdicts are left. */
static size_t split(struct staged *e, struct gate_verdict *verdicts, size_t n)
{
    size_t kept = 0, n_yes = 0;

    for (size_t i = 0; i < n; i++)
        n_yes += gate_is_yes(verdicts[i].reason);
    for (size_t i = 0; i < n; i++) {
        if (n_yes > 0 && verdicts[i].reason == GATE_NO_SIGHT_ASKED && e->sight != WANT_LOST)
            staged_split_off(e, verdicts[i].to);
        else
            verdicts[kept++] = verdicts[i];
    }
    return kept;
}

void staged_begin(struct staged *e)
{
    struct relay *r = e->relay;
    struct outside *o = r->env.outside;
    struct gate_verdict verdicts[GATE_CANDIDATES];
    struct event routed = judge_route(r, &e->ev);
    size_t all = judge_ask(r, &routed, verdicts), n = 0;

    e->joins = false;                /* a burst ends here */
    for (size_t i = 0; i < all; i++) /* others are in other rows of the event, or in none */
        if (staged_has(e->to, e->n_to, verdicts[i].to))
            verdicts[n++] = verdicts[i];
    n = split(e, verdicts, n);
    struct wants w = wants_of(r, &routed, verdicts, n);

    if (w.sight && e->sight != WANT_LOST) {
        if (e->sight != WANT_ASKED)
            timer_set(r->env.clock, &e->timer, STAGED_SIGHT_MS);
        e->sight = WANT_ASKED;
        return;
    }
    e->judged = true;
    e->context = w.context ? WANT_ASK : WANT_NOTHING;
    for (size_t i = 0; i < e->ev.n_media; i++) {
        const struct event_media *m = &e->ev.media[i];
        e->files[i].state = WANT_NOTHING;
        if (m->ref.n > 0 && (m->url.n == 0 || w.sleeps))
            e->files[i].state = w.tenant.p != NULL && o->fetch != NULL ? WANT_ASK : WANT_LOST;
    }
    if (w.tenant.p != NULL && !str_eq(str_of(e->tenant), w.tenant)) { /* the first was revoked */
        free(e->tenant);
        e->tenant = str_dup(w.tenant);
    }
    e->stranger = w.stranger;
    timer_set(r->env.clock, &e->timer, o->wait_ms != NULL ? o->wait_ms(o) : 0);
    ask(e);
    settle(e);
}

void wants_give_up(struct staged *e)
{
    wants_drop(e);
    if (!e->judged)
        staged_begin(e);
    for (size_t i = 0; i < e->ev.n_media; i++)
        if (is_open(e->files[i].state))
            e->files[i].state = WANT_LOST;
    if (is_open(e->context))
        e->context = WANT_LOST;
    settle(e);
}

/* ---- answers ---- */

static struct staged *asked(struct relay *r, struct handle id, size_t file)
{
    struct staged *e = handles_find(&r->stage->handles, id);

    return e != NULL && file < e->ev.n_media && e->files[file].state == WANT_ASKED ? e : NULL;
}

const struct event_media *relay_wanted_file(struct relay *r, struct handle id, size_t file,
                                            struct str *ret_tenant, struct str *ret_stranger)
{
    struct staged *e = asked(r, id, file);

    if (e == NULL)
        return NULL;
    struct buf *who = &r->stage->scratch;
    buf_reset(who);
    buf_printf(who, "%.*s\x1f", STR_FMT(e->ev.platform));
    buf_add_str(who, str_is_empty(e->ev.user_id) ? e->ev.chat_id : e->ev.user_id);
    *ret_tenant = str_of(e->tenant);
    *ret_stranger = e->stranger ? buf_str(who) : STR_NULL;
    return &e->ev.media[file];
}

void relay_file_here(struct relay *r, struct handle id, size_t file, const struct relay_file *f)
{
    struct staged *e = asked(r, id, file);

    if (e == NULL)
        return;
    e->files[file].state = WANT_HERE;
    e->files[file].here = (struct relay_file){.id = arena_str(&e->arena, f->id),
                                              .type = arena_str(&e->arena, f->type),
                                              .size = f->size};
    settle(e);
}

void relay_file_lost(struct relay *r, struct handle id, size_t file, const char *why)
{
    struct staged *e = asked(r, id, file);

    if (e == NULL)
        return;
    e->files[file].state = WANT_LOST;
    snprintf(e->files[file].why, sizeof e->files[file].why, "%s", why);
    settle(e);
}

void relay_context(struct relay *r, struct handle id, const struct event_said *said, size_t n,
                   bool failed)
{
    struct staged *e = handles_find(&r->stage->handles, id);

    if (e == NULL || e->context != WANT_ASKED)
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
    e->context = failed ? WANT_LOST : WANT_HERE;
    settle(e);
}

/* ---- platforms come and go ---- */

static bool is_of(const struct staged *e, struct str platform, struct str bot)
{
    return str_eq(e->ev.platform, platform) && str_eq(e->ev.bot, bot);
}

void relay_bot_opened(struct relay *r, struct str platform, struct str bot)
{
    list_each (&r->stage->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        if (e->state != STAGED_WAITING || !is_of(e, platform, bot))
            continue;
        if (e->judged)
            ask(e);
        else
            staged_begin(e);
    }
}

void relay_sight(struct relay *r, struct str platform, struct str bot, struct str guild)
{
    list_each (&r->stage->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        if (e->state == STAGED_WAITING && e->sight == WANT_ASKED && !e->judged && !e->dropped &&
            is_of(e, platform, bot) && str_eq(e->ev.scope_id, guild))
            staged_begin(e);
    }
}

void relay_bot_closed(struct relay *r, struct str platform, struct str bot)
{
    list_each (&r->stage->all, it, nxt) {
        struct staged *e = list_entry(it, struct staged, link);
        if (!is_of(e, platform, bot))
            continue;
        wants_drop(e);
        for (size_t i = 0; i < e->ev.n_media; i++)
            if (e->files[i].state == WANT_ASKED)
                e->files[i].state = WANT_ASK;
        if (e->context == WANT_ASKED)
            e->context = WANT_ASK;
    }
}
