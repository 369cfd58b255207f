/* prompts.c - design.  (prompts.h has the contract.)
 *
 * An open question is in three lists: of its chat (at most PROMPTS_PER_CHAT), of its tenant, and of
 * all questions, each oldest first.  The event id of an answer is made from the id of the
 * question's message, so a press that is repeated after a crash is the same delivery.
 *
 * Two instances may have a question of the same id in a chat.  They share a record, so a restart
 * keeps the one that was written last; the other one's buttons are over then.
 *
 * A question that is over keeps its record until its message is updated:
 *
 *      over --> due --MAX_BUSY at a time--> busy --updated, or refused--> deleted
 *                ^                           |
 *                '------- resting <----------'  with backoff; after MAX_TRIES: deleted
 *
 * After a long stop many questions come due at once.  MAX_BUSY keeps their updates from flooding
 * the platform. */
#include "platform/prompts.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "store/store.h"

enum { DEFAULT_S = 3600, LEAST_S = 10, MOST_S = 24 * 3600 };
enum { WAIT_PRESS_MS = 1000, WAIT_SHOWN_MS = 3600 * 1000 };
enum { ID_MAX = 32 };
enum { MAX_BUSY = 4, MAX_TRIES = 12, FIRST_MS = 2000, LAST_MS = 600 * 1000 };
#define PROMPT_PREFIX "hp1:"

struct prompt_group {    /* the open questions of a chat, or of a tenant */
    char *name;          /* owned */
    struct list prompts; /* struct prompt.in_chat or of_tenant, oldest first */
    size_t n;
    struct party *party; /* of a tenant; held; NULL: limits are not counted */
};

struct prompt_press { /* from host_accept() until its callback */
    struct list link;
    struct prompts *of;                 /* borrowed */
    struct prompt *q;                   /* borrowed; NULL: deleted meanwhile */
    const struct prompt_option *option; /* of @q */
    struct accept_id accept;
    accepted_cb *done;
    void *ctx;
};

struct prompts {
    struct platform *p; /* borrowed */
    const struct host_env *env;
    struct map chats;    /* chat id -> struct prompt_group, owned */
    struct map tenants;  /* name -> struct prompt_group, owned */
    struct list all;     /* struct prompt that are open, oldest first; owned */
    struct list presses; /* struct prompt_press, owned */
    size_t n;
    struct list due, resting, busy; /* struct prompt that are over; owned */
    size_t n_over, n_busy;
    struct timer tidy; /* armed: start updates of due questions */
};

static void prompt_over(struct prompt *q);
static struct prompt *prompt_find(const struct prompts *ps, struct str chat, struct str id,
                                  struct str tenant, struct str instance);

/* ---- valid questions, and the tokens of buttons ---- */

static bool is_id(struct str s)
{
    return s.n > 0 && s.n <= ID_MAX && str_has_only(s, "_.-");
}

static bool is_twice(struct json options, size_t before, struct str id)
{
    struct json_iter it = {0};

    for (size_t i = 0; i < before && json_next(options, &it); i++)
        if (str_eq(json_str(it.value, "id"), id))
            return true;
    return false;
}

const char *prompt_wrong(const struct action *a)
{
    size_t n = json_count(a->options), i = 0;

    if (str_is_empty(str_trim(a->content)))
        return "the question is empty";
    if (!is_id(a->prompt_id))
        return "prompt_id must be 1 to 32 letters, digits, '_', '.' or '-'";
    if (json_type(a->options) != JSON_ARRAY || n == 0 || n > PROMPT_MAX_OPTIONS)
        return "a question has 1 to 25 options";
    if (a->deciders.p != NULL && !str_eq(a->deciders, STR("owners")))
        return "deciders can only be \"owners\"";
    for (struct json_iter it = {0}; json_next(a->options, &it); i++) {
        struct str id = json_str(it.value, "id");
        if (!is_id(id) || strlen(PROMPT_PREFIX) + a->prompt_id.n + 1 + id.n > PROMPT_TOKEN_MAX)
            return "an option's id must be 1 to 32 letters, digits, '_', '.' or '-'";
        if (is_twice(a->options, i, id))
            return "two options have the same id";
        if (str_is_empty(str_trim(json_str(it.value, "label"))))
            return "an option has no label";
    }
    return NULL;
}

bool prompt_is_token(struct str payload)
{
    struct str prompt;

    if (!str_starts(payload, STR(PROMPT_PREFIX)))
        return false;
    payload = str_skip(payload, strlen(PROMPT_PREFIX));
    return str_split(&payload, ':', &prompt) && is_id(prompt) && is_id(payload);
}

void prompt_token(char ret[PROMPT_TOKEN_MAX + 1], const struct prompt *q,
                  const struct prompt_option *o)
{
    snprintf(ret, PROMPT_TOKEN_MAX + 1, PROMPT_PREFIX "%s:%s", q->id, o->id);
}

void prompt_write_numbered(struct buf *out, struct str question, const struct prompt *q)
{
    buf_add_str(out, question);
    buf_add_z(out, "\n");
    for (size_t i = 0; i < q->n_options; i++)
        buf_printf(out, "\n%zu. %s", i + 1, q->options[i].label);
    buf_printf(out, "\n\nAnswer with a number (1 to %zu).", q->n_options);
}

bool prompts_add_numbered(struct platform *p, struct action_id id, const struct action_from *from,
                          struct action *a, struct buf *room)
{
    const char *wrong = prompt_wrong(a);

    if (wrong != NULL) {
        host_fail(p->host, id, "%s", wrong);
        return false;
    }
    const struct prompt *q = prompts_add(p->prompts, from, a, a->chat_id);
    if (a->left == NULL) { /* the text of a resumed action has the numbers already */
        prompt_write_numbered(room, a->content, q);
        a->content = buf_str(room);
    }
    return true;
}

/* ---- one question ---- */

const char *const prompt_styles[] = {
    [PROMPT_PLAIN] = "secondary",
    [PROMPT_PRIMARY] = "primary",
    [PROMPT_SUCCESS] = "success",
    [PROMPT_DANGER] = "danger",
    NULL,
};

static const struct record_field option_fields[] = {
    RECORD_FIELD(struct prompt_option, id, "id", RECORD_NEEDED),
    RECORD_FIELD(struct prompt_option, label, "label", RECORD_NEEDED),
    RECORD_FIELD(struct prompt_option, style, "style", 0, .words = prompt_styles),
};
static const struct record_form option_form =
    RECORD_FORM(NULL, struct prompt_option, option_fields);
static const struct record_field prompt_fields[] = {
    RECORD_FIELD(struct prompt, platform, "platform", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct prompt, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct prompt, chat, "chat", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct prompt, id, "prompt", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct prompt, tenant, "tenant", RECORD_NEEDED),
    RECORD_FIELD(struct prompt, instance, "instance", RECORD_NEEDED),
    RECORD_FIELD(struct prompt, message_id, "message", 0),
    RECORD_FIELD(struct prompt, thread, "thread", 0),
    RECORD_FIELD(struct prompt, until_ms, "until", 0),
    RECORD_FIELD(struct prompt, over, "over", 0),
    RECORD_FIELD(struct prompt, owners_only, "owners_only", 0),
    RECORD_FIELD(struct prompt, chosen_id, "chosen", 0),
    RECORD_ARRAY(struct prompt, options, n_options, "options", &option_form, PROMPT_MAX_OPTIONS),
};
const struct record_form prompt_form =
    RECORD_FORM("prompt", struct prompt, prompt_fields, .lossy = true);

static char *cut_label(struct str label)
{
    size_t at = 0;

    label = str_trim(label);
    if (utf8_chars(label) <= PROMPT_LABEL_CHARS)
        return str_dup(label);
    for (size_t chars = 0; chars < PROMPT_LABEL_CHARS - 1; chars++)
        at += utf8_seq_bytes(str_skip(label, at));
    struct buf cut = BUF_INIT;
    buf_add(&cut, label.p, at);
    buf_add_z(&cut, "\xe2\x80\xa6");
    return buf_take(&cut);
}

static void prompt_save(struct prompt *q)
{
    q->chosen_id = q->chosen != NULL ? str_of(q->chosen->id) : STR_NULL;
    record_put(q->of->env->store, &prompt_form, NULL, q, true, NULL, NULL);
}

/* ---- the questions of a chat, and of a tenant ---- */

static void group_leave(struct map *groups, struct prompt_group *g, struct list *link)
{
    list_remove(link);
    if (--g->n > 0)
        return;
    map_del(groups, str_of(g->name));
    party_drop(g->party);
    free(g->name);
    free(g);
}

/* Finds the group, or makes it. */
static struct prompt_group *group_join(struct map *groups, const char *name, struct list *link)
{
    struct prompt_group *g = map_get(groups, str_of(name));

    if (g == NULL) {
        g = xcalloc(1, sizeof *g);
        g->name = xstrdup(name);
        list_init(&g->prompts);
        map_put(groups, str_of(g->name), g);
    }
    list_append(&g->prompts, link);
    g->n++;
    return g;
}

static void prompt_leave(struct prompt *q)
{
    struct prompts *ps = q->of;

    if (q->press != NULL)
        q->press->q = NULL;
    q->press = NULL;
    timer_stop(ps->env->clock, &q->late);
    list_remove(&q->link);
    if (q->where == NULL)
        return;
    if (q->counted)
        ledger_give(ps->env->ledger, q->asker->party, LIMIT_PROMPTS, 1);
    group_leave(&ps->chats, q->where, &q->in_chat);
    group_leave(&ps->tenants, q->asker, &q->of_tenant);
    ps->n--;
    q->where = NULL;
}

static void prompt_free(struct prompt *q)
{
    prompt_leave(q);
    record_done(&prompt_form, q);
    free(q);
}

static void prompt_remove(struct prompt *q)
{
    if (!q->over || prompt_find(q->of, str_of(q->chat), str_of(q->id), str_of(q->tenant),
                                str_of(q->instance)) == NULL) /* not asked anew */
        record_delete_like(q->of->env->store, &prompt_form, q);
    prompt_free(q);
}

static void prompt_end(struct prompt *q)
{
    if (q->of->p->ops->prompt_over == NULL || q->message_id == NULL) {
        prompt_remove(q);
        return;
    }
    prompt_leave(q);
    q->over = true;
    prompt_save(q);
    prompt_over(q);
}

/* The timeout waits for a press that is being accepted.  A question without a message id may still
 * be in the outbox: prompts_shown() ends such a question. */
static void on_late(struct timer *t)
{
    struct prompt *q = container_of(t, struct prompt, late);
    struct clock *clock = q->of->env->clock;
    int64_t waited_ms = clock_wall_ms(clock) - q->until_ms;

    if (q->press != NULL)
        timer_set(clock, &q->late, WAIT_PRESS_MS);
    else if (q->of->p->ops->prompt_over != NULL && q->message_id == NULL &&
             waited_ms < WAIT_SHOWN_MS)
        timer_set(clock, &q->late, WAIT_SHOWN_MS - waited_ms);
    else
        prompt_end(q);
}

/* The question of this id that the instance asked; others may have one of the same id. */
static struct prompt *prompt_find(const struct prompts *ps, struct str chat, struct str id,
                                  struct str tenant, struct str instance)
{
    struct prompt_group *c = map_get(&ps->chats, chat);

    if (c == NULL)
        return NULL;
    list_each (&c->prompts, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, in_chat);
        if (str_eq(str_of(q->id), id) && str_eq(str_of(q->tenant), tenant) &&
            str_eq(str_of(q->instance), instance))
            return q;
    }
    return NULL;
}

/* Links @q into the lists and starts its timeout. */
static void enter(struct prompt *q)
{
    struct prompts *ps = q->of;
    int64_t left_ms = q->until_ms - clock_wall_ms(ps->env->clock);

    q->where = group_join(&ps->chats, q->chat, &q->in_chat);
    q->asker = group_join(&ps->tenants, q->tenant, &q->of_tenant);
    if (q->asker->party == NULL)
        q->asker->party = ledger_party(ps->env->ledger, PER_TENANT, str_of(q->tenant));
    ps->n++;
    list_append(&ps->all, &q->link);
    q->counted = ledger_take(ps->env->ledger, q->asker->party, LIMIT_PROMPTS, 1) == LIMIT_TAKEN;
    timer_init(&q->late, on_late);
    timer_set(ps->env->clock, &q->late, left_ms > 0 ? left_ms : 0);
}

const struct prompt *prompts_add(struct prompts *ps, const struct action_from *from,
                                 const struct action *a, struct str chat)
{
    struct prompt *q = prompt_find(ps, chat, a->prompt_id, from->tenant, from->instance);
    int64_t s = a->timeout_s > 0 ? a->timeout_s : DEFAULT_S;

    if (q != NULL)
        prompt_free(q);
    q = xcalloc(1, sizeof *q);
    q->tenant = str_dup(from->tenant);
    q->instance = str_dup(from->instance);
    q->chat = str_dup(chat);
    q->id = str_dup(a->prompt_id);
    q->thread = str_dup_opt(a->thread_id);
    q->owners_only = str_eq(a->deciders, STR("owners"));
    struct json options = a->options;
    q->options = xcalloc(json_count(options), sizeof *q->options);
    for (struct json_iter it = {0}; json_next(options, &it);) {
        struct prompt_option *o = &q->options[q->n_options++];
        struct str style = json_str(it.value, "style");
        o->id = str_dup(json_str(it.value, "id"));
        o->label = cut_label(json_str(it.value, "label"));
        for (unsigned i = 0; prompt_styles[i] != NULL; i++)
            if (str_eq(style, str_of(prompt_styles[i])))
                o->style = (enum prompt_style)i;
    }
    s = s < LEAST_S ? LEAST_S : s > MOST_S ? MOST_S : s;
    q->until_ms = clock_wall_ms(ps->env->clock) + s * 1000;
    q->of = ps;
    q->platform = str_of(ps->p->ops->name);
    q->bot = str_of(ps->p->bot);
    enter(q);
    /* The oldest question of the chat, the bot or the tenant ends where there are too many. */
    if (q->where->n > PROMPTS_PER_CHAT)
        prompt_end(list_first(&q->where->prompts, struct prompt, in_chat));
    if (ps->n > PROMPTS_MAX)
        prompt_end(list_first(&ps->all, struct prompt, link));
    struct prompt *first = list_first(&q->asker->prompts, struct prompt, of_tenant);
    if (!q->counted && first != q)
        prompt_end(first);
    else if (!q->counted && list_first(&ps->all, struct prompt, link) != q)
        prompt_end(list_first(&ps->all, struct prompt, link));
    if (!q->counted)
        q->counted = ledger_take(ps->env->ledger, q->asker->party, LIMIT_PROMPTS, 1) == LIMIT_TAKEN;
    prompt_save(q);
    return q;
}

void prompts_shown(struct prompts *ps, const struct action_from *from, struct str chat,
                   struct str id, struct str message_id)
{
    struct prompt *q = prompt_find(ps, chat, id, from->tenant, from->instance);

    if (q == NULL)
        return;
    q->shown = true;
    free(q->message_id);
    q->message_id = message_id.n > 0 ? str_dup(message_id) : NULL;
    if (clock_wall_ms(q->of->env->clock) >= q->until_ms && q->press == NULL)
        prompt_end(q);
    else
        prompt_save(q);
}

void prompts_drop(struct prompts *ps, const struct action_from *from, struct str chat,
                  struct str id)
{
    struct prompt *q = prompt_find(ps, chat, id, from->tenant, from->instance);

    if (q != NULL)
        prompt_remove(q);
}

/* ---- answers ---- */

static bool is_open(const struct prompt *q)
{
    return q->press == NULL && clock_wall_ms(q->of->env->clock) < q->until_ms;
}

/* The question under the message; one whose message is not known yet only if it is the only one of
 * its id, because an agent could give its question the id of another's. */
static struct prompt *prompt_under(const struct prompts *ps, struct str chat, struct str id,
                                   struct str message_id)
{
    struct prompt_group *c = map_get(&ps->chats, chat);
    struct prompt *found = NULL;
    size_t n = 0;

    if (c == NULL)
        return NULL;
    list_each (&c->prompts, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, in_chat);
        if (!str_eq(str_of(q->id), id))
            continue;
        if (message_id.n > 0 && q->message_id != NULL && str_eq(str_of(q->message_id), message_id))
            return q;
        n++;
        if (message_id.n == 0 || q->message_id == NULL)
            found = q;
    }
    return n == 1 ? found : NULL;
}

struct prompt *prompts_pressed_under(struct prompts *ps, struct str chat, struct str token,
                                     struct str message_id, const struct prompt_option **ret_option)
{
    struct str id;

    if (!prompt_is_token(token))
        return NULL;
    token = str_skip(token, strlen(PROMPT_PREFIX));
    str_split(&token, ':', &id);
    struct prompt *q = prompt_under(ps, chat, id, message_id);
    for (size_t i = 0; q != NULL && is_open(q) && i < q->n_options; i++)
        if (str_eq(str_of(q->options[i].id), token)) {
            *ret_option = &q->options[i];
            return q;
        }
    return NULL;
}

/* Was @ev said where @q was asked?  A question may begin a thread. */
static bool is_where(const struct prompt *q, const struct event *ev)
{
    struct str asked = str_of(q->message_id), thread = str_of(q->thread);

    if (asked.n > 0 && str_eq(ev->reply_to_message_id, asked))
        return true;
    if (thread.n == 0 && (asked.n == 0 || str_eq(ev->thread_id, asked)))
        return true;
    return str_eq(ev->thread_id, thread);
}

struct prompt *prompts_numbered(struct prompts *ps, const struct event *ev,
                                const struct prompt_option **ret_option)
{
    const struct prompt_group *c = map_get(&ps->chats, ev->chat_id);
    uint64_t number;

    if (c == NULL || !str_to_u64(str_trim(ev->text), &number) || number == 0)
        return NULL;
    for (const struct list *it = c->prompts.prev; it != &c->prompts; it = it->prev) {
        struct prompt *q = list_entry(it, struct prompt, in_chat);
        if (!is_where(q, ev))
            continue;
        if (!q->shown || !is_open(q) || number > q->n_options)
            return NULL;
        *ret_option = &q->options[number - 1];
        return q;
    }
    return NULL;
}

const struct prompt *prompts_of_message(const struct prompts *ps, struct str chat,
                                        struct str message_id)
{
    struct prompt_group *c = map_get(&ps->chats, chat);

    if (c == NULL)
        return NULL;
    list_each (&c->prompts, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, in_chat);
        if (q->message_id != NULL && str_eq(str_of(q->message_id), message_id))
            return q;
    }
    return NULL;
}

/* Turns @ev into the answer; @room holds its text, @name its event id. */
static void fill(const struct prompt *q, const struct prompt_option *o, struct event *ev,
                 struct buf *room, struct buf *name)
{
    struct str asked = q->message_id != NULL ? str_of(q->message_id) : ev->press.message_id;

    buf_printf(room, "/%s", o->id);
    buf_printf(name, "%s:%.*s:%s", q->chat, STR_FMT(asked.n > 0 ? asked : STR("")), q->id);
    ev->text = buf_str(room);
    if (str_is_empty(ev->event_id)) /* a numbered answer is a message and has an id already */
        ev->event_id = buf_str(name);
    ev->message_type = STR("command");
    ev->press.prompt_id = str_of(q->id);
    ev->press.option_id = str_of(o->id);
    ev->press.label = str_of(o->label);
    if (asked.n > 0)
        ev->press.message_id = asked;
    ev->mentions_bot = true;
    ev->only_tenant = str_of(q->tenant);
    ev->only_instance = str_of(q->instance);
    ev->only_owners = q->owners_only;
    ev->media = NULL;
    ev->n_media = 0;
}

static void count_target(void *ctx, struct str tenant, struct str instance)
{
    ++*(size_t *)ctx;
}

bool prompt_may_answer(const struct prompt *q, const struct event *ev)
{
    BUF_LOCAL text = BUF_INIT, name = BUF_INIT;
    struct event answer = *ev;
    size_t n = 0;

    fill(q, &q->options[0], &answer, &text, &name);
    host_each_target(q->of->p->host, &answer, count_target, &n);
    return n > 0;
}

struct prompt *prompts_answered(struct prompts *ps, const struct event *ev, struct str press,
                                const struct prompt_option **ret_option)
{
    struct prompt *q = NULL;

    if (prompt_is_token(press))
        q = prompts_pressed_under(ps, ev->chat_id, press, ev->reply_to_message_id, ret_option);
    else if (ev->n_media == 0)
        q = prompts_numbered(ps, ev, ret_option);
    return q != NULL && prompt_may_answer(q, ev) ? q : NULL;
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct prompt_press x = *(struct prompt_press *)ctx;

    list_remove(&((struct prompt_press *)ctx)->link);
    free(ctx);
    if (x.q != NULL)
        x.q->press = NULL;
    if (x.q != NULL && err == BH_OK) {
        x.q->chosen = x.option;
        prompt_end(x.q);
    }
    x.done(x.ctx, err);
}

struct accept_id prompts_accept(struct prompt *q, const struct prompt_option *o,
                                const struct event *ev, accepted_cb *done, void *ctx)
{
    struct prompts *ps = q->of;
    struct prompt_press *x = xcalloc(1, sizeof *x);
    BUF_LOCAL text = BUF_INIT, name = BUF_INIT;
    struct event answer = *ev;

    *x = (struct prompt_press){.of = ps, .done = done, .ctx = ctx};
    list_append(&ps->presses, &x->link);
    assert(q->press == NULL);
    x->q = q;
    x->option = o;
    q->press = x;
    fill(q, o, &answer, &text, &name);
    x->accept = host_accept(ps->p->host, ps->p, &answer, on_accepted, x);
    return x->accept;
}

/* ---- questions that are over ---- */

static void on_tidy(struct timer *t)
{
    struct prompts *ps = container_of(t, struct prompts, tidy);

    while (ps->n_busy < MAX_BUSY && !list_is_empty(&ps->due)) {
        struct prompt *q = list_first(&ps->due, struct prompt, link);
        list_remove(&q->link);
        list_append(&ps->busy, &q->link);
        ps->n_busy++;
        q->tries++;
        ps->p->ops->prompt_over(ps->p, q);
    }
}

static void wake(struct prompts *ps)
{
    if (!timer_is_set(&ps->tidy))
        timer_set(ps->env->clock, &ps->tidy, 0);
}

static void on_rested(struct timer *t)
{
    struct prompt *q = container_of(t, struct prompt, late);

    list_remove(&q->link);
    list_append(&q->of->due, &q->link);
    wake(q->of);
}

static void give_up(struct prompt *q)
{
    q->of->n_over--;
    prompt_remove(q);
}

static void prompt_over(struct prompt *q)
{
    struct prompts *ps = q->of;

    timer_init(&q->late, on_rested);
    list_append(&ps->due, &q->link);
    ps->n_over++;
    struct list *most = !list_is_empty(&ps->resting) ? &ps->resting : &ps->due;
    if (ps->n_over > PROMPTS_MAX)
        give_up(list_first(most, struct prompt, link));
    wake(ps);
}

void prompts_tidied(struct prompt *q, int64_t again_ms)
{
    struct prompts *ps = q->of;
    int64_t rest_ms = q->tries < 10 ? (int64_t)FIRST_MS << (q->tries - 1) : LAST_MS;

    ps->n_busy--;
    wake(ps);
    if (again_ms <= 0 || q->tries >= MAX_TRIES) {
        give_up(q);
        return;
    }
    if (rest_ms > LAST_MS)
        rest_ms = LAST_MS;
    list_remove(&q->link);
    list_append(&ps->resting, &q->link);
    timer_set(ps->env->clock, &q->late, again_ms > rest_ms ? again_ms : rest_ms);
}

static bool is_of(const struct prompt *q, struct str chat, struct str tenant)
{
    return (chat.p != NULL && str_eq(str_of(q->chat), chat)) ||
           (tenant.p != NULL && str_eq(str_of(q->tenant), tenant));
}

static void forget_in(struct list *l, struct str chat, struct str tenant)
{
    list_each (l, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, link);
        if (is_of(q, chat, tenant))
            give_up(q);
    }
}

static void forget_over(struct prompts *ps, struct str chat, struct str tenant)
{
    forget_in(&ps->due, chat, tenant);
    forget_in(&ps->resting, chat, tenant);
    list_each (&ps->busy, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, link);
        if (is_of(q, chat, tenant))
            q->tries = MAX_TRIES; /* the platform still uses @q; prompts_tidied() deletes it */
    }
}

void prompts_forget_chat(struct prompts *ps, struct str chat)
{
    for (struct prompt_group *c; (c = map_get(&ps->chats, chat)) != NULL;)
        prompt_remove(list_first(&c->prompts, struct prompt, in_chat));
    forget_over(ps, chat, STR_NULL);
}

void prompts_forget_tenant(struct prompts *ps, struct str tenant)
{
    for (struct prompt_group *t; (t = map_get(&ps->tenants, tenant)) != NULL;)
        prompt_remove(list_first(&t->prompts, struct prompt, of_tenant));
    forget_over(ps, STR_NULL, tenant);
}

size_t prompts_count(const struct prompts *ps)
{
    return ps->n;
}

/* ---- life ---- */

static bool on_loaded(void *ctx, struct str key, void *thing)
{
    struct prompts *ps = ctx;
    struct prompt *q = xmalloc(sizeof *q);

    *q = *(struct prompt *)thing;
    for (size_t i = 0; i < q->n_options; i++)
        if (str_eq(str_of(q->options[i].id), q->chosen_id))
            q->chosen = &q->options[i];
    q->shown = true; /* the record does not say; assume it was */
    q->of = ps;
    q->platform = str_of(ps->p->ops->name);
    q->bot = str_of(ps->p->bot);
    if (!q->over || q->message_id == NULL) {
        q->over = false;
        enter(q);
        return true;
    }
    timer_init(&q->late, on_late);
    prompt_over(q);
    return true;
}

enum bh_err prompts_open(struct platform *p, char *ret_why)
{
    struct prompts *ps = xcalloc(1, sizeof *ps);

    ps->p = p;
    p->prompts = ps;
    ps->env = p->env;
    list_init(&ps->all);
    list_init(&ps->presses);
    list_init(&ps->due);
    list_init(&ps->resting);
    list_init(&ps->busy);
    timer_init(&ps->tidy, on_tidy);
    struct prompt own = {.platform = str_of(p->ops->name), .bot = str_of(p->bot)};
    enum bh_err err =
        record_load_like(ps->env->store, &prompt_form, &own, 2, on_loaded, ps, ret_why);
    if (err != BH_OK)
        prompts_close(ps);
    return err;
}

void prompts_close(struct prompts *ps)
{
    if (ps == NULL)
        return;
    list_each (&ps->presses, it, nxt) {
        struct prompt_press *x = list_entry(it, struct prompt_press, link);
        host_accept_cancel(ps->p->host, x->accept);
        if (x->q != NULL)
            x->q->press = NULL;
        list_remove(&x->link);
        free(x);
    }
    timer_stop(ps->env->clock, &ps->tidy);
    struct list *lists[] = {&ps->all, &ps->due, &ps->resting, &ps->busy};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        list_each (lists[i], it, nxt)
            prompt_free(list_entry(it, struct prompt, link));
    map_done(&ps->chats);
    map_done(&ps->tenants);
    ps->p->prompts = NULL;
    free(ps);
}
