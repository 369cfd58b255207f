/* take.c - an update becomes an event and is handed to the host. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/recent.h"
#include "platform/telegram/telegram_priv.h"

struct tg_accept {
    struct list link;
    struct telegram *t; /* borrowed */
    struct accept_id id;
    tg_taken_fn *done;
    uint64_t tag;
};

void tg_accepts_cancel(struct telegram *t)
{
    list_each (&t->accepts, it, nxt) {
        struct tg_accept *a = list_entry(it, struct tg_accept, link);
        host_accept_cancel(t->base.host, a->id);
        list_remove(&a->link);
        free(a);
    }
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct tg_accept *a = ctx;
    struct tg_accept copy = *a;

    list_remove(&a->link);
    free(a);
    if (err != BH_OK)
        copy.t->n.again++;
    copy.done(copy.t, copy.tag, err);
}

static void note_migration(struct telegram *t, struct json update)
{
    int64_t from, to;
    char was[24], is[24];

    if (!tg_migration(update, &from, &to))
        return;
    snprintf(was, sizeof was, "%" PRId64, from);
    snprintf(is, sizeof is, "%" PRId64, to);
    tg_chat_moved(t, str_of(was), str_of(is));
}

/* "/new_chat now": Telegram's names have no dashes, those of gateways may. */
static void restore_name(struct telegram *t, struct event *ev)
{
    struct str rest = ev->text, word;

    if (t->commands == NULL || !str_eq(ev->message_type, STR("command")) ||
        !str_starts(rest, STR("/")))
        return;
    size_t n = 1;
    while (n < rest.n && rest.p[n] != ' ' && rest.p[n] != '\n')
        n++;
    word = str_make(rest.p + 1, n - 1);
    struct str name = tg_command_name(t, word);
    if (str_eq(name, word))
        return;
    char *text = arena_alloc(&t->arena, rest.n); /* names are of one length */
    memcpy(text, rest.p, rest.n);
    memcpy(text + 1, name.p, name.n);
    ev->text = str_make(text, rest.n);
}

/* What was said before it in its group, or topic, as far as we were allowed to remember. */
static void add_context(struct telegram *t, struct event *ev)
{
    struct event_said *said;

    if (t->recent == NULL || str_eq(ev->chat_type, STR("dm")) || str_starts(ev->text, STR("/")))
        return;
    struct buf place = BUF_INIT;
    buf_printf(&place, "%.*s %.*s", STR_FMT(ev->chat_id), STR_FMT(ev->thread_id));
    said = arena_alloc(&t->arena, EVENT_MAX_CONTEXT * sizeof *said);
    recent_retain(t->recent, t->env->retention_ms);
    ev->n_context = recent_before(t->recent, buf_str(&place), ev, said);
    ev->context = said;
    for (size_t i = 0; i < ev->n_context; i++) { /* noting may drop them */
        said[i].text = arena_str(&t->arena, said[i].text);
        said[i].message_id = arena_str(&t->arena, said[i].message_id);
        said[i].user_id = arena_str(&t->arena, said[i].user_id);
        said[i].user_name = arena_str(&t->arena, said[i].user_name);
    }
    recent_note(t->recent, buf_str(&place), ev);
    buf_done(&place);
}

void tg_take_event(struct telegram *t, const struct event *ev, tg_taken_fn *done, uint64_t tag)
{
    struct tg_accept *a = xcalloc(1, sizeof *a);

    *a = (struct tg_accept){.t = t, .done = done, .tag = tag};
    list_init(&a->link);
    list_append(&t->accepts, &a->link);
    t->n.events++;
    a->id = host_accept(t->base.host, &t->base, ev, on_accepted, a);
}

bool tg_take(struct telegram *t, struct json update, tg_taken_fn *done, uint64_t tag)
{
    struct event ev;
    const char *why;

    t->n.updates++;
    t->poll.heard_ms = clock_wall_ms(t->env->clock);
    t->base.last_event_ms = t->poll.heard_ms;
    note_migration(t, update);
    if (json_is_object(json_get(update, "callback_query")))
        return tg_take_press(t, update, done, tag);
    arena_reset(&t->arena);
    if (json_is_object(json_get(update, "message_reaction")))
        return tg_take_reaction(t, update, done, tag);
    if (!tg_normalize(update, &t->me, str_of(t->base.bot), &t->arena, &ev, &why)) {
        t->n.ignored++;
        log_debug(&t->log, "update ignored: %s", why);
        return false;
    }
    restore_name(t, &ev);
    ev.former_key = tg_chat_before(t, ev.chat_id); /* it became a supergroup */
    add_context(t, &ev);
    tg_take_event(t, &ev, done, tag);
    return true;
}
