/* prompts.c - design.  (prompts.h has the contract.)
 *
 * A question hangs in its chat's short list (at most PROMPTS_PER_CHAT, newest last), in the list of
 * all, oldest first, and has a timer of its own.  The name of an answer's event is made from the
 * message that asked, so that a press repeated after a crash is the same delivery. */
#include "platform/prompts.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/map.h"
#include "base/mem.h"
#include "store/store.h"

#define NS "prompt"
#define PREFIX "hp1:"
enum { DEFAULT_S = 3600, LEAST_S = 10, MOST_S = 24 * 3600 };

struct prompt_chat {
    char *id;            /* owned */
    struct list prompts; /* struct prompt, newest last */
    size_t n;
};

struct prompt_press { /* between host_accept() and its answer */
    struct list link;
    struct prompts *of; /* borrowed */
    struct prompt *q;   /* borrowed; NULL: gone meanwhile */
    struct accept_id accept;
    accepted_cb *done;
    void *ctx;
};

struct prompts {
    struct platform *p; /* borrowed */
    const struct host_env *env;
    struct map chats;    /* chat id -> struct prompt_chat, owned */
    struct list all;     /* struct prompt, oldest first; owned */
    struct list presses; /* struct prompt_press, owned */
    size_t n;
    struct json_parser *parser; /* owned; while opening */
};

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

static void save(const struct prompt *q)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct jw w = jw_begin(&value);

    write_key(q, &key);
    jw_obj(&w);
    jw_kstr(&w, "tenant", str_of(q->tenant));
    jw_kstr(&w, "instance", str_of(q->instance));
    jw_kstr_opt(&w, "message", str_of(q->message_id));
    jw_ki64(&w, "until", q->until_ms);
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
    store_put(q->of->env->store, &item, 1, false, NULL, NULL);
    buf_done(&key);
    buf_done(&value);
}

static void delete_record(struct store *st, struct str key)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = key};

    store_put(st, &item, 1, false, NULL, NULL);
}

static void prompt_free(struct prompt *q)
{
    struct prompts *ps = q->of;

    if (q->press != NULL)
        q->press->q = NULL;
    timer_stop(ps->env->clock, &q->late);
    list_remove(&q->link);
    list_remove(&q->in_chat);
    ps->n--;
    if (--q->where->n == 0) {
        map_del(&ps->chats, str_of(q->where->id));
        free(q->where->id);
        free(q->where);
    }
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

static void prompt_end(struct prompt *q)
{
    struct buf key = BUF_INIT;

    write_key(q, &key);
    delete_record(q->of->env->store, buf_str(&key));
    buf_done(&key);
    prompt_free(q);
}

static void on_late(struct timer *t)
{
    prompt_end(container_of(t, struct prompt, late));
}

static struct prompt *find(const struct prompts *ps, struct str chat, struct str id)
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
    timer_init(&q->late, on_late);
    timer_set(ps->env->clock, &q->late, left_ms > 0 ? left_ms : 0);
}

/* The oldest of the chat, or of all, while there are too many; @q is new and stays. */
static void make_room(struct prompts *ps, struct prompt_chat *c)
{
    if (c->n > PROMPTS_PER_CHAT)
        prompt_end(list_first(&c->prompts, struct prompt, in_chat));
    if (ps->n > PROMPTS_MAX)
        prompt_end(list_first(&ps->all, struct prompt, link));
}

const struct prompt *prompts_add(struct prompts *ps, const struct action_from *from,
                                 const struct action *a, struct str chat)
{
    struct prompt *q = find(ps, chat, a->prompt_id);
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
    make_room(ps, q->where);
    save(q);
    return q;
}

void prompts_shown(struct prompts *ps, struct str chat, struct str id, struct str message_id)
{
    struct prompt *q = find(ps, chat, id);

    if (q == NULL)
        return;
    q->shown = true;
    free(q->message_id);
    q->message_id = message_id.n > 0 ? str_dup(message_id) : NULL;
    save(q);
}

void prompts_drop(struct prompts *ps, struct str chat, struct str id)
{
    struct prompt *q = find(ps, chat, id);

    if (q != NULL)
        prompt_end(q);
}

size_t prompts_count(const struct prompts *ps)
{
    return ps->n;
}

/* ---- life ---- */

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

enum bh_err prompts_open(struct platform *p, struct prompts **ret_ps, char *ret_why)
{
    struct prompts *ps = xcalloc(1, sizeof *ps);

    ps->p = p;
    ps->env = host_env(p->host);
    list_init(&ps->all);
    list_init(&ps->presses);
    ps->parser = json_parser_new();
    enum bh_err err = ps->env->store->ops->load_records(ps->env->store, NS, on_record, ps);
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
    map_done(&ps->chats);
    free(ps);
}

/* ---- answers ---- */

struct prompt *prompts_pressed(struct prompts *ps, struct str chat, struct str token,
                               const struct prompt_option **ret_option)
{
    struct str id;

    if (!prompt_is_token(token))
        return NULL;
    token = str_skip(token, strlen(PREFIX));
    str_split(&token, ':', &id);
    struct prompt *q = find(ps, chat, id);
    for (size_t i = 0; q != NULL && q->press == NULL && i < q->n_options; i++)
        if (str_eq(str_of(q->options[i].id), token)) {
            *ret_option = &q->options[i];
            return q;
        }
    return NULL;
}

struct prompt *prompts_numbered(struct prompts *ps, struct str chat, struct str text,
                                const struct prompt_option **ret_option)
{
    const struct prompt_chat *c = map_get(&ps->chats, chat);
    uint64_t number;

    if (c == NULL || !str_to_u64(str_trim(text), &number) || number == 0)
        return NULL;
    struct prompt *q = list_entry(c->prompts.prev, struct prompt, in_chat);
    if (!q->shown || q->press != NULL || number > q->n_options)
        return NULL;
    *ret_option = &q->options[number - 1];
    return q;
}

/* The answer as an event: @room holds its text, @name its name. */
static void fill(const struct prompt *q, const struct prompt_option *o, struct event *ev,
                 struct buf *room, struct buf *name)
{
    struct str asked = q->message_id != NULL ? str_of(q->message_id) : ev->press.message_id;

    buf_printf(room, "/%s", o->id);
    buf_printf(name, "%s:%.*s:%s", q->chat, STR_FMT(asked.n > 0 ? asked : STR("")), q->id);
    ev->text = buf_str(room);
    if (str_is_empty(ev->event_id)) /* a number is a message, and has a name */
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
    ev->media = NULL;
    ev->n_media = 0;
}

static void count_target(void *ctx, struct str tenant, struct str instance)
{
    ++*(size_t *)ctx;
}

bool prompt_may_answer(const struct prompt *q, const struct event *ev)
{
    struct buf text = BUF_INIT, name = BUF_INIT;
    struct event answer = *ev;
    size_t n = 0;

    fill(q, &q->options[0], &answer, &text, &name);
    host_each_target(q->of->p->host, &answer, count_target, &n);
    buf_done(&text);
    buf_done(&name);
    return n > 0;
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct prompt_press x = *(struct prompt_press *)ctx;

    list_remove(&((struct prompt_press *)ctx)->link);
    free(ctx);
    if (x.q != NULL)
        x.q->press = NULL;
    if (x.q != NULL && err == BH_OK)
        prompt_end(x.q);
    x.done(x.ctx, err);
}

struct accept_id prompts_accept(struct prompt *q, const struct prompt_option *o,
                                const struct event *ev, accepted_cb *done, void *ctx)
{
    struct prompts *ps = q->of;
    struct prompt_press *x = xcalloc(1, sizeof *x);
    struct buf text = BUF_INIT, name = BUF_INIT;
    struct event answer = *ev;

    *x = (struct prompt_press){.of = ps, .done = done, .ctx = ctx};
    list_init(&x->link);
    list_append(&ps->presses, &x->link);
    assert(q->press == NULL);
    x->q = q;
    q->press = x;
    fill(q, o, &answer, &text, &name);
    x->accept = host_accept(ps->p->host, ps->p, &answer, on_accepted, x);
    buf_done(&text);
    buf_done(&name);
    return x->accept;
}
