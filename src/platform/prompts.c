/* prompts.c - design.  (prompts.h has the contract.)
 *
 * A question hangs in its chat's short list (at most PROMPTS_PER_CHAT, newest last), in the list of
 * all, oldest first, and has a timer of its own.  The name of an answer's event is made from the
 * message that asked, so that a press repeated after a crash is the same delivery. */
#include "platform/prompts.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/limits.h"
#include "base/mem.h"
#include "platform/prompts_priv.h"
#include "store/store.h"

#define NS "prompt"
enum { DEFAULT_S = 3600, LEAST_S = 10, MOST_S = 24 * 3600 };
enum { WAIT_PRESS_MS = 1000, WAIT_SHOWN_MS = 3600 * 1000 };

/* ---- one question ---- */

static enum prompt_style style_of(struct str name)
{
    if (str_eq(name, STR("primary")))
        return PROMPT_PRIMARY;
    if (str_eq(name, STR("success")))
        return PROMPT_SUCCESS;
    return str_eq(name, STR("danger")) ? PROMPT_DANGER : PROMPT_PLAIN;
}

static const char *const styles[] = {
    [PROMPT_PLAIN] = "secondary",
    [PROMPT_PRIMARY] = "primary",
    [PROMPT_SUCCESS] = "success",
    [PROMPT_DANGER] = "danger",
};

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

static void take_options(struct prompt *q, struct json options)
{
    size_t n = json_count(options);

    if (n > PROMPT_MAX_OPTIONS)
        n = PROMPT_MAX_OPTIONS;
    q->options = xcalloc(n > 0 ? n : 1, sizeof *q->options);
    for (struct json_iter it = {0}; q->n_options < n && json_next(options, &it);)
        q->options[q->n_options++] =
            (struct prompt_option){.id = str_dup(json_str(it.value, "id")),
                                   .label = cut_label(json_str(it.value, "label")),
                                   .style = style_of(json_str(it.value, "style"))};
}

static void write_key(const struct prompt *q, struct buf *out)
{
    const struct platform *p = q->of->p;

    buf_printf(out, "%s\x1f%s\x1f%s\x1f%s", p->ops->name, p->bot, q->chat, q->id);
}

void prompt_save(const struct prompt *q)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct jw w = jw_begin(&value);

    write_key(q, &key);
    jw_obj(&w);
    jw_kstr(&w, "tenant", str_of(q->tenant));
    jw_kstr(&w, "instance", str_of(q->instance));
    jw_kstr_opt(&w, "message", str_of(q->message_id));
    jw_ki64(&w, "until", q->until_ms);
    if (q->over)
        jw_kbool(&w, "over", true);
    if (q->chosen != NULL)
        jw_kstr(&w, "chosen", str_of(q->chosen->id));
    jw_key(&w, "options");
    jw_arr(&w);
    for (size_t i = 0; i < q->n_options; i++) {
        jw_obj(&w);
        jw_kstr(&w, "id", str_of(q->options[i].id));
        jw_kstr(&w, "label", str_of(q->options[i].label));
        jw_kstr(&w, "style", str_of(styles[q->options[i].style]));
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    struct store_kv item = {.verb = KV_PUT,
                            .ns = NS,
                            .key = buf_str(&key),
                            .value = buf_str(&value)};
    store_put(q->of->env->store, &item, 1, true, NULL, NULL);
    buf_done(&key);
    buf_done(&value);
}

static void delete_record(struct store *st, struct str key)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = key};

    store_put(st, &item, 1, false, NULL, NULL);
}

/* ---- how many of a tenant ---- */

static struct prompt_tenant *asker_get(struct prompts *ps, const char *tenant)
{
    struct prompt_tenant *t = map_get(&ps->tenants, str_of(tenant));

    if (t != NULL)
        return t;
    t = xcalloc(1, sizeof *t);
    t->name = xstrdup(tenant);
    t->party = ledger_party(ps->env->ledger, PER_TENANT, str_of(tenant));
    list_init(&t->prompts);
    map_put(&ps->tenants, str_of(t->name), t);
    return t;
}

static void join_asker(struct prompts *ps, struct prompt *q)
{
    q->asker = asker_get(ps, q->tenant);
    list_init(&q->of_tenant);
    list_append(&q->asker->prompts, &q->of_tenant);
    q->counted = ledger_take(ps->env->ledger, q->asker->party, LIMIT_PROMPTS, 1) == LIMIT_TAKEN;
}

static void leave_asker(struct prompts *ps, struct prompt *q)
{
    struct prompt_tenant *t = q->asker;

    list_remove(&q->of_tenant);
    if (q->counted)
        ledger_give(ps->env->ledger, t->party, LIMIT_PROMPTS, 1);
    if (!list_is_empty(&t->prompts))
        return;
    map_del(&ps->tenants, str_of(t->name));
    party_drop(t->party);
    free(t->name);
    free(t);
}

void prompt_leave(struct prompt *q)
{
    struct prompts *ps = q->of;

    if (q->press != NULL)
        q->press->q = NULL;
    q->press = NULL;
    timer_stop(ps->env->clock, &q->late);
    list_remove(&q->link);
    if (q->where == NULL)
        return;
    list_remove(&q->in_chat);
    leave_asker(ps, q);
    ps->n--;
    if (--q->where->n == 0) {
        map_del(&ps->chats, str_of(q->where->id));
        free(q->where->id);
        free(q->where);
    }
    q->where = NULL;
}

void prompt_free(struct prompt *q)
{
    prompt_leave(q);
    for (size_t i = 0; i < q->n_options; i++) {
        free(q->options[i].id);
        free(q->options[i].label);
    }
    free(q->options);
    free(q->tenant);
    free(q->instance);
    free(q->chat);
    free(q->id);
    free(q->message_id);
    free(q);
}

void prompt_remove(struct prompt *q)
{
    struct buf key = BUF_INIT;

    write_key(q, &key);
    if (!q->over || prompt_find(q->of, str_of(q->chat), str_of(q->id)) == NULL) /* not asked anew */
        delete_record(q->of->env->store, buf_str(&key));
    buf_done(&key);
    prompt_free(q);
}

void prompt_end(struct prompt *q)
{
    if (q->of->over == NULL || q->message_id == NULL) {
        prompt_remove(q);
        return;
    }
    prompt_leave(q);
    q->over = true;
    prompt_save(q);
    prompt_over(q);
}

static bool is_late(const struct prompt *q)
{
    return clock_wall_ms(q->of->env->clock) >= q->until_ms;
}

/* Somebody may just be answering it, and what nobody has seen yet may still be on its way: its
 * buttons go when it is there. */
static void on_late(struct timer *t)
{
    struct prompt *q = container_of(t, struct prompt, late);
    struct clock *clock = q->of->env->clock;
    int64_t waited_ms = clock_wall_ms(clock) - q->until_ms;

    if (q->press != NULL)
        timer_set(clock, &q->late, WAIT_PRESS_MS);
    else if (q->of->over != NULL && q->message_id == NULL && waited_ms < WAIT_SHOWN_MS)
        timer_set(clock, &q->late, WAIT_SHOWN_MS - waited_ms);
    else
        prompt_end(q);
}

struct prompt *prompt_find(const struct prompts *ps, struct str chat, struct str id)
{
    struct prompt_chat *c = map_get(&ps->chats, chat);

    if (c == NULL)
        return NULL;
    list_each (&c->prompts, it, nxt) {
        struct prompt *q = list_entry(it, struct prompt, in_chat);
        if (str_eq(str_of(q->id), id))
            return q;
    }
    return NULL;
}

static struct prompt_chat *chat_get(struct prompts *ps, struct str chat)
{
    struct prompt_chat *c = map_get(&ps->chats, chat);

    if (c != NULL)
        return c;
    c = xcalloc(1, sizeof *c);
    c->id = str_dup(chat);
    list_init(&c->prompts);
    map_put(&ps->chats, str_of(c->id), c);
    return c;
}

/* @q is filled but for what ties it to the others. */
static void enter(struct prompts *ps, struct prompt *q)
{
    int64_t left_ms = q->until_ms - clock_wall_ms(ps->env->clock);

    q->of = ps;
    q->where = chat_get(ps, str_of(q->chat));
    q->where->n++;
    ps->n++;
    list_init(&q->link);
    list_append(&ps->all, &q->link);
    list_init(&q->in_chat);
    list_append(&q->where->prompts, &q->in_chat);
    join_asker(ps, q);
    timer_init(&q->late, on_late);
    timer_set(ps->env->clock, &q->late, left_ms > 0 ? left_ms : 0);
}

/* The oldest of the chat, of the tenant or of all, while there are too many; @q is new and
 * stays. */
static void make_room(struct prompts *ps, struct prompt *q)
{
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
}

const struct prompt *prompts_add(struct prompts *ps, const struct action_from *from,
                                 const struct action *a, struct str chat)
{
    struct prompt *q = prompt_find(ps, chat, a->prompt_id);
    int64_t s = a->timeout_s > 0 ? a->timeout_s : DEFAULT_S;

    if (q != NULL)
        prompt_free(q);
    q = xcalloc(1, sizeof *q);
    q->tenant = str_dup(from->tenant);
    q->instance = str_dup(from->instance);
    q->chat = str_dup(chat);
    q->id = str_dup(a->prompt_id);
    take_options(q, a->options);
    s = s < LEAST_S ? LEAST_S : s > MOST_S ? MOST_S : s;
    q->until_ms = clock_wall_ms(ps->env->clock) + s * 1000;
    enter(ps, q);
    make_room(ps, q);
    prompt_save(q);
    return q;
}

void prompts_shown(struct prompts *ps, struct str chat, struct str id, struct str message_id)
{
    struct prompt *q = prompt_find(ps, chat, id);

    if (q == NULL)
        return;
    q->shown = true;
    free(q->message_id);
    q->message_id = message_id.n > 0 ? str_dup(message_id) : NULL;
    if (is_late(q) && q->press == NULL)
        prompt_end(q);
    else
        prompt_save(q);
}

void prompts_drop(struct prompts *ps, struct str chat, struct str id)
{
    struct prompt *q = prompt_find(ps, chat, id);

    if (q != NULL)
        prompt_remove(q);
}

void prompts_forget_chat(struct prompts *ps, struct str chat)
{
    for (struct prompt_chat *c; (c = map_get(&ps->chats, chat)) != NULL;)
        prompt_remove(list_first(&c->prompts, struct prompt, in_chat));
    prompts_over_forget(ps, chat, STR_NULL);
}

void prompts_forget_tenant(struct prompts *ps, struct str tenant)
{
    for (struct prompt_tenant *t; (t = map_get(&ps->tenants, tenant)) != NULL;)
        prompt_remove(list_first(&t->prompts, struct prompt, of_tenant));
    prompts_over_forget(ps, STR_NULL, tenant);
}

size_t prompts_count(const struct prompts *ps)
{
    return ps->n;
}

/* ---- life ---- */

static void load_over(struct prompts *ps, struct prompt *q, struct str chosen)
{
    q->of = ps;
    q->over = true;
    for (size_t i = 0; i < q->n_options; i++)
        if (str_eq(str_of(q->options[i].id), chosen))
            q->chosen = &q->options[i];
    list_init(&q->link);
    list_init(&q->in_chat);
    timer_init(&q->late, on_late);
    prompt_over(q);
}

static void load_one(struct prompts *ps, struct str chat, struct str id, struct str value)
{
    struct json doc;
    struct prompt *q = xcalloc(1, sizeof *q);

    if (!json_parse(ps->parser, value, &doc))
        doc = (struct json){0};
    q->tenant = str_dup(json_str(doc, "tenant"));
    q->instance = str_dup(json_str(doc, "instance"));
    q->chat = str_dup(chat);
    q->id = str_dup(id);
    if (json_str(doc, "message").n > 0)
        q->message_id = str_dup(json_str(doc, "message"));
    json_as_i64(json_get(doc, "until"), &q->until_ms);
    take_options(q, json_get(doc, "options"));
    q->shown = true; /* as far as anybody knows */
    if (json_as_bool(json_get(doc, "over"), false) && q->message_id != NULL)
        load_over(ps, q, json_str(doc, "chosen"));
    else
        enter(ps, q);
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct prompts *ps = ctx;
    struct str platform, bot, chat;

    if (str_split(&key, '\x1f', &platform) && str_split(&key, '\x1f', &bot) &&
        str_split(&key, '\x1f', &chat) && str_eq(platform, str_of(ps->p->ops->name)) &&
        str_eq(bot, str_of(ps->p->bot)))
        load_one(ps, chat, key, value);
}

enum bh_err prompts_open(struct platform *p, prompt_over_cb *over, struct prompts **ret_ps,
                         char *ret_why)
{
    struct prompts *ps = xcalloc(1, sizeof *ps);

    ps->p = p;
    p->prompts = ps;
    ps->env = host_env(p->host);
    ps->over = over;
    list_init(&ps->all);
    list_init(&ps->presses);
    prompts_over_init(ps);
    ps->parser = json_parser_new();
    struct buf own = BUF_INIT;
    buf_printf(&own, "%s\x1f%s\x1f", p->ops->name, p->bot);
    enum bh_err err =
        ps->env->store->ops->load_under(ps->env->store, NS, buf_str(&own), on_record, ps);
    buf_done(&own);
    json_parser_free(ps->parser);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "the store cannot be read");
        prompts_close(ps);
        return err;
    }
    *ret_ps = ps;
    return BH_OK;
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
    list_each (&ps->all, it, nxt)
        prompt_free(list_entry(it, struct prompt, link));
    prompts_over_close(ps);
    map_done(&ps->chats);
    map_done(&ps->tenants);
    ps->p->prompts = NULL;
    free(ps);
}
