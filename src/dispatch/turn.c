/* turn.c - design.  (turn.h has the contract.)
 *
 * Edits search from the newest text backwards, because gateways edit their newest message. */
#include "dispatch/turn.h"
#include <stdlib.h>
#include "base/mem.h"

struct turn_text {
    struct list link; /* turn->texts */
    struct buf text;
    size_t id_n;
    char id[];
};

static void on_end(struct timer *timer)
{
    struct said_turn *t = container_of(timer, struct said_turn, end);

    t->ended(t);
}

void turn_init(struct said_turn *t, struct clock *clock, turn_cb *ended)
{
    *t = (struct said_turn){.clock = clock, .ended = ended};
    timer_init(&t->end, on_end);
    list_init(&t->texts);
}

void turn_done(struct said_turn *t)
{
    timer_stop(t->clock, &t->end);
    list_each (&t->texts, it, nxt) {
        struct turn_text *x = list_entry(it, struct turn_text, link);
        list_remove(&x->link);
        buf_done(&x->text);
        free(x);
    }
}

/* Sets the end of the turn after a text of @n bytes. */
static void wait_for_more(struct said_turn *t, size_t n, bool final)
{
    t->marked = t->marked || final;
    if (!t->marked)
        timer_set(t->clock, &t->end, TURN_QUIET_MS);
    else
        timer_set(t->clock, &t->end, n >= TURN_PART_BYTES ? TURN_PART_MS : 0);
}

/* Replaces the text of @x if there is room for the new one. */
static void put_text(struct said_turn *t, struct turn_text *x, struct str text)
{
    if (t->bytes - x->text.n + text.n > TURN_BYTES) {
        t->cut = true;
        return;
    }
    t->bytes += text.n - x->text.n;
    buf_reset(&x->text);
    buf_add_str(&x->text, text);
}

void turn_say(struct said_turn *t, struct str id, struct str text, bool final)
{
    size_t overhead = sizeof(struct turn_text) + id.n;

    if (t->bytes + overhead + text.n > TURN_BYTES) {
        t->cut = true;
    } else {
        struct turn_text *x = xcalloc(1, overhead);
        memcpy(x->id, id.p, id.n);
        x->id_n = id.n;
        t->bytes += overhead;
        list_append(&t->texts, &x->link);
        put_text(t, x, text);
    }
    wait_for_more(t, text.n, final);
}

bool turn_edit(struct said_turn *t, struct str id, struct str text, bool final)
{
    for (struct list *it = t->texts.prev; it != &t->texts; it = it->prev) {
        struct turn_text *x = list_entry(it, struct turn_text, link);
        if (!str_eq(str_make(x->id, x->id_n), id))
            continue;
        put_text(t, x, text);
        wait_for_more(t, text.n, final);
        return true;
    }
    return false;
}

void turn_busy(struct said_turn *t)
{
    if (timer_is_set(&t->end) && !t->marked)
        timer_set(t->clock, &t->end, TURN_QUIET_MS);
}

bool turn_has_text(const struct said_turn *t)
{
    return !list_is_empty(&t->texts);
}

void turn_write(const struct said_turn *t, struct buf *out)
{
    bool first = true;

    for (const struct list *it = t->texts.next; it != &t->texts; it = it->next) {
        const struct buf *text = &list_entry(it, const struct turn_text, link)->text;
        if (text->n == 0)
            continue;
        if (!first)
            buf_add_c(out, '\n');
        buf_add_str(out, buf_str(text));
        first = false;
    }
}
