/* erase_tenant.c - POST /admin/erase {"tenant"}: what is kept of one tenant goes.
 *
 *      {"tenant", "dryRun"?} -> {"instances", "keys", "waiting", "chats", "messages", "outgoing",
 *                                "replies", "wakes", "media", "skills", "data", "routes"}
 *
 *      LOOKING: its chats, and whose they are too --> ENDING: every instance, every key
 *          --> DELETING: records, a namespace after the other, 128 KiB at a time
 *          --> STORES: media, skills, a database of data after the other --> the answer, freed
 *
 * First its instances end and its keys are revoked, so that nothing new comes while the rest goes;
 * a dry run leaves that out and counts.  Messages of the chat page are a visitor's: those of chats
 * that an instance of another tenant knows too stay.  Routes are the operator's and only counted.
 *
 * As in erase_route.c, an erasure that is under way when the server closes is freed with the
 * store, and asked for again by whoever asked: everything here may be done twice. */
#include <stdlib.h>
#include "base/jw.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/data.h"
#include "host/host.h"
#include "http/erase.h"
#include "media/media.h"
#include "platform/prompts.h"
#include "relay/relay.h"
#include "skills/skills.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"
#include "tenancy/keys.h"

#define STEP_BYTES ((size_t)128 << 10)

enum counted {
    INSTANCES,
    KEYS,
    WAITING,
    CHATS,
    MESSAGES,
    OUTGOING,
    QUESTIONS,
    REPLIES,
    WAKES,
    MEDIA,
    SKILLS,
    DATA,
    ROUTES,
    N_COUNTED
};
static const char *const words[N_COUNTED] = {"instances", "keys",     "waiting",   "chats",
                                             "messages",  "outgoing", "questions", "replies",
                                             "wakes",     "media",    "skills",    "data",
                                             "routes"};

struct page_chat {
    bool ours, others;
    uint32_t n;
    char name[]; /* bot \x1f chat */
};

struct tenant_erasure {
    struct store_left left;
    struct front *f; /* borrowed */
    struct http_id id;
    struct store_scan scan;
    struct store_tx tx;
    struct store_kv *items; /* owned; of @tx */
    struct json_parser *parser;
    struct buf after, tenant;
    struct buf keys;   /* ids of keys to be revoked, each with its zero */
    struct buf spaces; /* namespaces of data to be cleared, the same */
    size_t at;         /* in @keys, then in @spaces */
    struct map web;    /* name -> struct page_chat, owned */
    size_t place;      /* in places */
    bool dry;
    uint64_t n[N_COUNTED];
};

static struct str tenant_of(const struct tenant_erasure *e)
{
    return buf_str(&e->tenant);
}

static struct str part(struct str *key)
{
    struct str one = STR_NULL;

    str_split(key, '\x1f', &one);
    return one;
}

/* ---- which records are a tenant's ---- */

static struct page_chat *page_chat(struct tenant_erasure *e, struct str bot, struct str chat,
                                   bool make)
{
    struct buf name = BUF_INIT;

    buf_add_str(&name, bot);
    buf_add_c(&name, '\x1f');
    buf_add_str(&name, chat);
    struct page_chat *w = map_get(&e->web, buf_str(&name));
    if (w == NULL && make) {
        w = xcalloc(1, sizeof *w + name.n);
        w->n = (uint32_t)name.n;
        memcpy(w->name, name.p, name.n);
        map_put(&e->web, str_make(w->name, w->n), w);
    }
    buf_done(&name);
    return w;
}

/* Its mailbox: the record is the relay's. */
static bool instance_is(struct tenant_erasure *e, struct str key, struct json doc)
{
    struct str tenant = part(&key);
    struct instance_view v;

    if (!str_eq(tenant, tenant_of(e)))
        return false;
    if (e->dry)
        e->n[WAITING] += relay_instance(e->f->relay, tenant, key, &v) ? v.entries : 0;
    else
        e->n[WAITING] += relay_mailbox_purge(e->f->relay, tenant, key);
    return true;
}

/* Before anything is deleted. */
static bool look_at_chat(struct tenant_erasure *e, struct str key, struct json doc)
{
    bool ours = str_eq(part(&key), tenant_of(e));

    part(&key);
    if (str_eq(part(&key), STR("web"))) {
        struct page_chat *w = page_chat(e, json_str(doc, "bot"), key, true);
        w->ours |= ours;
        w->others |= !ours;
    }
    return ours;
}

static bool chat_is(struct tenant_erasure *e, struct str key, struct json doc)
{
    struct str tenant = part(&key), instance = part(&key), platform = part(&key);

    if (!str_eq(tenant, tenant_of(e)))
        return false;
    relay_forget_chat(e->f->relay, tenant, instance, platform, key);
    return true;
}

static bool web_is(struct tenant_erasure *e, struct str key, struct json doc)
{
    struct str bot = part(&key), chat = part(&key);
    const struct page_chat *w = page_chat(e, bot, chat, false);

    return w != NULL && w->ours && !w->others;
}

static bool named_in_key(struct tenant_erasure *e, struct str key, struct json doc)
{
    return str_eq(part(&key), tenant_of(e));
}

static bool named_in_value(struct tenant_erasure *e, struct str key, struct json doc)
{
    return str_eq(json_str(doc, "tenant"), tenant_of(e));
}

static const struct {
    const char *ns;
    enum counted what;
    bool (*is)(struct tenant_erasure *e, struct str key, struct json doc);
    bool only_look; /* the records are not deleted from here */
    bool then_end;  /* behind it the instances end */
} places[] = {
    {"instance", N_COUNTED, instance_is, true, false},
    {"chat", CHATS, look_at_chat, true, true},
    {"chat", N_COUNTED, chat_is, false, false},
    {"web", MESSAGES, web_is, false, false},
    {"web_once", N_COUNTED, web_is, false, false},
    {"web_name", N_COUNTED, web_is, false, false},
    {"outgoing", OUTGOING, named_in_value, false, false},
    {"prompt", QUESTIONS, named_in_value, false, false},
    {"reply", REPLIES, named_in_key, false, false},
    {"wakeup", WAKES, named_in_value, false, false},
};

/* ---- the end ---- */

static void erasure_free(struct tenant_erasure *e)
{
    void *w;

    store_take_back(&e->left);
    for (size_t pos = 0; map_next(&e->web, &pos, &w);)
        free(w);
    map_done(&e->web);
    free(e->items);
    buf_done(&e->after);
    buf_done(&e->tenant);
    buf_done(&e->keys);
    buf_done(&e->spaces);
    json_parser_free(e->parser);
    free(e);
}

static void fail(struct tenant_erasure *e, const char *what)
{
    http_answer_error(e->f->server, e->id, 503, "unavailable", "%s", what);
    erasure_free(e);
}

static void answer(struct tenant_erasure *e)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kbool(&w, "dryRun", e->dry);
    for (int i = 0; i < N_COUNTED; i++)
        jw_ki64(&w, words[i], (int64_t)e->n[i]);
    jw_end_obj(&w);
    if (!e->dry)
        log_info(NULL, "a tenant was erased: tenant=%.*s", STR_FMT(tenant_of(e)));
    front_json(e->f, e->id, 200, &body);
    buf_done(&body);
    erasure_free(e);
}

/* ---- the stores ---- */

static void clear_next(struct tenant_erasure *e);

static void on_cleared(void *ctx, const struct data_answer *a)
{
    const struct tenant_erasure *e = ctx;

    if (a->fault.cls != FAULT_NONE)
        fail(ctx,
             data_is_off(e->f->data)
                 ? "All but its data is gone: that is on the node of data.node, ask there again."
                 : "The data store failed in the middle: ask again.");
    else
        clear_next(ctx);
}

static void clear_next(struct tenant_erasure *e)
{
    if (e->dry || e->at >= e->spaces.n) {
        answer(e);
        return;
    }
    struct caller who = {.tenant = tenant_of(e), .ns = str_of(e->spaces.p + e->at)};
    e->at += who.ns.n + 1;
    struct data_call *c = data_clear(e->f->data, &who, on_cleared, e);
    (void)c; /* with the server it is void */
}

static void on_namespace(void *ctx, struct str ns)
{
    struct tenant_erasure *e = ctx;

    buf_add_str(&e->spaces, ns);
    buf_add_c(&e->spaces, '\0');
    e->n[DATA]++;
}

static void on_skills(void *ctx, const struct skills_answer *a)
{
    struct tenant_erasure *e = ctx;

    if (a->fault.cls != FAULT_NONE) {
        fail(e, "The skill store failed in the middle: ask again.");
        return;
    }
    e->n[SKILLS] = a->count;
    e->at = 0;
    clear_next(e);
}

/* What the chat page has of its chats in memory. */
static void forget_web(struct tenant_erasure *e)
{
    void *at;

    for (size_t pos = 0; map_next(&e->web, &pos, &at);) {
        const struct page_chat *w = at;
        struct str chat = str_make(w->name, w->n), bot = part(&chat);
        struct platform *p = host_platform(e->f->host, STR("web"), bot);
        if (w->ours && !w->others && p != NULL && p->ops->forget != NULL)
            p->ops->forget(p, chat);
    }
}

static void forget_questions(struct tenant_erasure *e)
{
    for (size_t i = 0; i < host_n_platforms(e->f->host); i++) {
        const struct platform *p = host_nth_platform(e->f->host, i);
        if (p->prompts != NULL)
            prompts_forget_tenant(p->prompts, tenant_of(e));
    }
}

static void empty_stores(struct tenant_erasure *e)
{
    const struct caller who = {.tenant = tenant_of(e)};

    if (!e->dry) {
        forget_web(e);
        forget_questions(e);
    }
    e->n[MEDIA] = e->f->media != NULL ? media_erase(e->f->media, who.tenant, e->dry) : 0;
    data_namespaces(e->f->data, who.tenant, on_namespace, e);
    struct skills_call *c = skills_erase(e->f->skills, &who, e->dry, on_skills, e);
    (void)c;
}

/* ---- its instances and keys ---- */

static void read_on(struct tenant_erasure *e);
static void revoke_next(struct tenant_erasure *e);

static void on_revoked(void *ctx, enum bh_err err, const char *why)
{
    if (err != BH_OK && err != BH_NOT_FOUND)
        fail(ctx, "A key could not be revoked: ask again.");
    else
        revoke_next(ctx);
}

static void revoke_next(struct tenant_erasure *e)
{
    if (e->at >= e->keys.n) {
        read_on(e);
        return;
    }
    struct str id = str_of(e->keys.p + e->at);
    e->at += id.n + 1;
    keys_revoke(e->f->keys, id, on_revoked, e);
}

static void end_next(struct tenant_erasure *e);

static void on_ended(void *ctx, enum bh_err err, const char *why)
{
    if (err != BH_OK)
        fail(ctx, "An instance could not be ended: ask again.");
    else
        end_next(ctx);
}

static void end_next(struct tenant_erasure *e)
{
    struct str name;

    if (facts_instances_of(e->f->facts, tenant_of(e), &name, 1) == 0) {
        e->at = 0;
        revoke_next(e);
        return;
    }
    grant_deprovision(e->f->facts, (struct grant_who){tenant_of(e), name}, on_ended, e);
}

/* What the facts and the keys have of it. */
static void count_facts(struct tenant_erasure *e)
{
    const struct list *keys;
    struct list *all;

    facts_gateways(e->f->facts, &all);
    for (struct list *it = all->next; it != all; it = it->next) {
        const struct gateway *g = list_entry(it, const struct gateway, link);
        e->n[INSTANCES] +=
            str_eq(str_of(g->tenant), tenant_of(e)) && facts_is_first(e->f->facts, g);
    }
    facts_routes(e->f->facts, &all);
    for (struct list *it = all->next; it != all; it = it->next)
        e->n[ROUTES] +=
            str_eq(str_of(list_entry(it, const struct route, link)->tenant), tenant_of(e));
    keys_all(e->f->keys, &keys);
    for (const struct list *it = keys->next; it != keys; it = it->next) {
        const struct key *k = list_entry(it, const struct key, link);
        if (!str_eq(str_of(k->tenant), tenant_of(e)) || k->revoked_ms != 0)
            continue;
        buf_add_z(&e->keys, k->id);
        buf_add_c(&e->keys, '\0');
        e->n[KEYS]++;
    }
}

/* ---- one namespace after the other ---- */

static void next_place(struct tenant_erasure *e)
{
    bool end = places[e->place].then_end && !e->dry;

    buf_reset(&e->after);
    e->place++;
    if (e->dry && e->place < ARRAY_LEN(places) && places[e->place].is == chat_is)
        e->place++; /* they are counted, and to forget is not to count */
    if (e->place == ARRAY_LEN(places))
        empty_stores(e);
    else if (end)
        end_next(e);
    else
        read_on(e);
}

static void step_over(struct tenant_erasure *e, enum bh_err err)
{
    bool more = e->scan.more;

    free(e->items);
    e->items = NULL;
    buf_reset(&e->after);
    if (more && err == BH_OK)
        buf_add_str(&e->after, e->scan.records[e->scan.n_records - 1].key);
    store_scan_free(e->f->store, &e->scan);
    if (err != BH_OK)
        fail(e, "The store failed in the middle: ask again.");
    else if (more)
        read_on(e);
    else
        next_place(e);
}

static void on_deleted(struct store_op *op, enum bh_err err)
{
    step_over(container_of(op, struct tenant_erasure, tx.op), err);
}

/* True: a transaction is under way. */
static bool delete_found(struct tenant_erasure *e)
{
    size_t at = e->place, n = 0;
    bool deletes = !e->dry && !places[at].only_look;

    e->items = xcalloc(e->scan.n_records + 1, sizeof *e->items);
    for (size_t i = 0; i < e->scan.n_records; i++) {
        const struct store_record *r = &e->scan.records[i];
        struct json doc = {0};
        (void)json_parse(e->parser, r->value, &doc);
        if (!places[at].is(e, r->key, doc))
            continue;
        if (places[at].what != N_COUNTED)
            e->n[places[at].what]++;
        if (deletes)
            e->items[n++] = (struct store_kv){KV_DELETE, places[at].ns, r->key, STR_NULL};
    }
    if (n == 0)
        return false;
    e->tx = (struct store_tx){.op = {.done = on_deleted}, .items = e->items, .n = n};
    store_tx(e->f->store, &e->tx, false);
    return true;
}

static void on_read(struct store_op *op, enum bh_err err)
{
    struct tenant_erasure *e = container_of(op, struct tenant_erasure, scan.op);

    if (err != BH_OK || e->scan.n_records == 0 || !delete_found(e))
        step_over(e, err);
}

static void read_on(struct tenant_erasure *e)
{
    e->scan = (struct store_scan){.op = {.done = on_read},
                                  .ns = places[e->place].ns,
                                  .prefix = STR(""),
                                  .max_bytes = STEP_BYTES};
    if (e->after.n > 0)
        e->scan.after = buf_str(&e->after);
    store_scan(e->f->store, &e->scan);
}

static void on_store_closed(struct store_left *l, const struct store_ops *ops)
{
    struct tenant_erasure *e = container_of(l, struct tenant_erasure, left);

    ops->scan_free(&e->scan);
    l->prev = NULL; /* the list is gone with its store */
    erasure_free(e);
}

void erase_tenant(struct front *f, struct http_req *req, struct str tenant, bool dry)
{
    struct tenant_erasure *e = xcalloc(1, sizeof *e);

    *e = (struct tenant_erasure){.f = f,
                                 .id = http_req_id(req),
                                 .parser = json_parser_new(),
                                 .dry = dry};
    buf_add_str(&e->tenant, tenant);
    count_facts(e);
    store_leave(f->store, &e->left, on_store_closed);
    read_on(e);
}
