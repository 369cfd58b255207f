/* outcomes.c - how actions ended.  (outcomes.h has the contract.)
 *
 * A lookup walks the whole ring: only people look up outcomes, so lookups are rare. */
#include "platform/outcomes.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/sender.h"

struct kept_outcome {
    const char *platform, *how;                                    /* literals */
    struct str bot, tenant, instance, request, chat, message, why; /* into @block */
    char *block; /* owned; NULL: this slot is free */
    int64_t asked_ms, ended_ms;
    uint64_t number;
    uint32_t attempts;
    enum action_op op;
    bool queued;
};

struct outcomes {
    size_t max, next;
    struct kept_outcome at[];
};

struct outcomes *outcomes_new(size_t max)
{
    struct outcomes *e = xcalloc(1, sizeof *e + max * sizeof e->at[0]);

    e->max = max;
    return e;
}

void outcomes_free(struct outcomes *e)
{
    for (size_t i = 0; e != NULL && i < e->max; i++)
        free(e->at[i].block);
    free(e);
}

static struct str copy_to(char **at, struct str s)
{
    char *p = *at;

    memcpy(p, s.n > 0 ? s.p : "", s.n);
    *at += s.n;
    return str_make(p, s.n);
}

void outcomes_note(struct outcomes *e, const struct outcome *x)
{
    if (e == NULL)
        return;
    struct kept_outcome *to = &e->at[e->next];
    struct str bot = str_of(x->bot), why = str_of(x->why);
    const struct action_from *f = x->from;

    e->next = (e->next + 1) % e->max;
    free(to->block);
    char *at = to->block = xmalloc(bot.n + f->tenant.n + f->instance.n + f->request_id.n +
                                   x->chat.n + x->message_id.n + why.n + 1);
    *to = (struct kept_outcome){.block = to->block,
                                .platform = x->platform,
                                .how = x->how,
                                .bot = copy_to(&at, bot),
                                .tenant = copy_to(&at, f->tenant),
                                .instance = copy_to(&at, f->instance),
                                .request = copy_to(&at, f->request_id),
                                .chat = copy_to(&at, x->chat),
                                .message = copy_to(&at, x->message_id),
                                .why = copy_to(&at, why),
                                .asked_ms = x->asked_ms,
                                .ended_ms = x->ended_ms,
                                .number = x->number,
                                .attempts = x->attempts,
                                .op = x->op,
                                .queued = x->queued};
}

static void write_one(struct jw *w, const struct kept_outcome *x)
{
    char number[24];

    snprintf(number, sizeof number, "%" PRIu64, x->number);
    jw_obj(w);
    jw_kstr(w, "id", str_of(number));
    jw_kstr(w, "request", x->request);
    jw_kstr(w, "tenant", x->tenant);
    jw_kstr(w, "instance", x->instance);
    jw_kstr(w, "platform", str_of(x->platform));
    jw_kstr(w, "bot", x->bot);
    jw_kstr(w, "chat_id", x->chat);
    jw_kstr(w, "op", str_of(action_op_name(x->op)));
    jw_kstr(w, "ended", str_of(x->how));
    jw_kstr(w, "reason", x->why);
    jw_kstr(w, "message_id", x->message);
    jw_kbool(w, "queued", x->queued);
    jw_ki64(w, "attempts", x->attempts);
    jw_ki64(w, "asked", x->asked_ms);
    jw_ki64(w, "at", x->ended_ms);
    jw_end_obj(w);
}

void outcomes_write(const struct outcomes *e, struct str id, size_t limit, struct jw *w)
{
    struct str head = STR(SENDER_QUEUED_PREFIX);
    uint64_t number = 0;

    if (!str_to_u64(str_starts(id, head) ? str_skip(id, head.n) : id, &number))
        number = 0;
    for (size_t i = 1; e != NULL && i <= e->max && limit > 0; i++) {
        const struct kept_outcome *x = &e->at[(e->next + e->max - i) % e->max];
        if (x->block == NULL)
            break;
        if (id.n > 0 && !str_eq(id, x->request) && (number == 0 || number != x->number))
            continue;
        write_one(w, x);
        limit--;
    }
}
