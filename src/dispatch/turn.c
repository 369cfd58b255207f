/* turn.c - design.  (turn.h has the contract.)
 *
 * Edits search from the newest text backwards, because gateways edit their newest message. */
#include "dispatch/turn.h"
#include <stdlib.h>
#include "base/limits.h"
#include "base/mem.h"
#include "core/action.h"

struct turn_text {
    struct list link; /* turn->texts */
    char *text;       /* owned; NULL: empty */
    size_t n;
    size_t id_n;
    char id[];
};

static void on_end(struct timer *timer)
{
    struct said_turn *t = container_of(timer, struct said_turn, end);

    t->ended(t);
}

void turn_init(struct said_turn *t, struct clock *clock, int64_t quiet_ms, turn_cb *ended)
{
    *t = (struct said_turn){.clock = clock, .quiet_ms = quiet_ms, .ended = ended};
    timer_init(&t->end, on_end);
    list_init(&t->texts);
}

void turn_charge(struct said_turn *t, struct ledger *ledger, struct str tenant)
{
    t->ledger = ledger;
    t->payer = ledger_party(ledger, PER_TENANT, tenant);
}

/* Changes what the turn holds.  False: there is no room for it. */
static bool hold(struct said_turn *t, size_t now)
{
    if (now > TURN_BYTES)
        t->cut = true;
    else if (ledger_change(t->ledger, t->payer, LIMIT_WORK_BYTES, &t->bytes, now) == LIMIT_TAKEN)
        return true;
    else
        t->refused = true;
    return false;
}

void turn_forget_texts(struct said_turn *t)
{
    t->mute = true;
    list_each (&t->texts, it, nxt) {
        struct turn_text *x = list_entry(it, struct turn_text, link);
        hold(t, t->bytes - x->n);
        free(x->text);
        x->text = NULL;
        x->n = 0;
    }
}

void turn_done(struct said_turn *t)
{
    timer_stop(t->clock, &t->end);
    list_each (&t->texts, it, nxt) {
        struct turn_text *x = list_entry(it, struct turn_text, link);
        list_remove(&x->link);
        free(x->text);
        free(x);
    }
    hold(t, 0);
    party_drop(t->payer);
    t->payer = NULL;
}

static void wait_quietly(struct said_turn *t)
{
    timer_set(t->clock, &t->end, t->open ? TURN_OPEN_MS : t->quiet_ms);
}

/* Sets the end of the turn after @text. */
static void wait_for_more(struct said_turn *t, struct str text, bool final)
{
    t->marked = t->marked || final;
    t->open = action_without_cursor(text).n < text.n;
    if (!t->marked)
        wait_quietly(t);
    else
        timer_set(t->clock, &t->end, text.n >= TURN_PART_BYTES ? TURN_PART_MS : 0);
}

/* Replaces the text of @x if there is room for the new one. */
static void put_text(struct said_turn *t, struct turn_text *x, struct str text)
{
    text = action_without_cursor(text);
    if (t->mute || !hold(t, t->bytes - x->n + text.n))
        return;
    free(x->text);
    x->text = text.n > 0 ? str_dup(text) : NULL;
    x->n = text.n;
}

void turn_say(struct said_turn *t, struct str id, struct str text, bool final)
{
    size_t overhead = sizeof(struct turn_text) + id.n;

    if (hold(t, t->bytes + overhead)) {
        struct turn_text *x = xcalloc(1, overhead);
        memcpy(x->id, id.p, id.n);
        x->id_n = id.n;
        list_append(&t->texts, &x->link);
        put_text(t, x, text);
    }
    wait_for_more(t, text, final);
}

bool turn_edit(struct said_turn *t, struct str id, struct str text, bool final)
{
    for (struct list *it = t->texts.prev; it != &t->texts; it = it->prev) {
        struct turn_text *x = list_entry(it, struct turn_text, link);
        if (!str_eq(str_make(x->id, x->id_n), id))
            continue;
        put_text(t, x, text);
        wait_for_more(t, text, final);
        return true;
    }
    return false;
}

void turn_busy(struct said_turn *t)
{
    if (timer_is_set(&t->end) && !t->marked)
        wait_quietly(t);
}

bool turn_has_text(const struct said_turn *t)
{
    return !list_is_empty(&t->texts);
}

void turn_write(const struct said_turn *t, struct buf *out)
{
    bool first = true;

    for (const struct list *it = t->texts.next; it != &t->texts; it = it->next) {
        const struct turn_text *x = list_entry(it, const struct turn_text, link);
        if (x->n == 0)
            continue;
        if (!first)
            buf_add_c(out, '\n');
        buf_add_str(out, str_make(x->text, x->n));
        first = false;
    }
}
