/* erase_route.c - POST /admin/erase: what is kept of one person (or of a tenant: erase_tenant.c)
 * goes.
 *
 *      {"platform", "user", "dryRun"?} -> {"messages", "names", "media", "chats", "outgoing",
 *                                          "questions", "links", "waiting", "quoted",
 *                                          "allowLists"}
 *
 *      READING <--> DELETING       one namespace after the other, 128 KiB at a time
 *         '--the last one is through--> what waits for agents --> memory forgets, the answer, freed
 *
 * Records are found by looking through all of them: nothing is indexed by person, and this happens
 * a few times a year.  What the facts hold in memory goes through them; an allow list that names
 * the person is an operator's decision about others and only counted.
 *
 * The work belongs to the store until its done(): an erasure that is under way when the server
 * closes is freed with the store, and asked for again by whoever asked. */
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "host/host.h"
#include "http/erase.h"
#include "media/media.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "relay/relay.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

#define STEP_BYTES ((size_t)128 << 10)

enum counted {
    MESSAGES,
    NAMES,
    MEDIA,
    CHATS,
    OUTGOING,
    QUESTIONS,
    LINKS,
    WAITING,
    QUOTED,
    ALLOW_LISTS,
    N_COUNTED
};
static const char *const counted_words[N_COUNTED] = {"messages", "names",     "media", "chats",
                                                     "outgoing", "questions", "links", "waiting",
                                                     "quoted",   "allowLists"};

struct erasure {
    struct store_left left;
    struct front *f; /* borrowed */
    struct http_id id;
    struct store_scan scan;
    struct store_tx tx;
    struct store_kv *items; /* owned; of @tx */
    struct buf after;
    struct json_parser *parser; /* owned */
    struct buf platform, user;
    size_t place; /* in places */
    bool dry;
    uint64_t n[N_COUNTED];
};

static struct str part(struct str *key)
{
    struct str one = STR_NULL;

    str_split(key, '\x1f', &one);
    return one;
}

static bool is_platform(const struct erasure *e, struct str s)
{
    return str_eq(s, buf_str(&e->platform));
}

static bool is_user(const struct erasure *e, struct str s)
{
    return str_eq(s, buf_str(&e->user));
}

/* ---- which records name a person ---- */

/* bot, chat, ...: a visitor is its chat. */
static bool web_names(struct erasure *e, struct str key, struct json doc)
{
    (void)doc;
    part(&key);
    return is_platform(e, STR("web")) && is_user(e, part(&key));
}

/* The same; the files of a message go with it. */
static bool message_names(struct erasure *e, struct str key, struct json doc)
{
    struct media *m = e->f->media;

    if (!web_names(e, key, doc))
        return false;
    for (struct json_iter it = {0}; m != NULL && json_next(json_get(doc, "files"), &it);) {
        struct str id = json_str(it.value, "id");
        e->n[MEDIA] += e->dry ? media_find(m, id) != NULL : media_forget(m, id);
    }
    return true;
}

/* platform, bot, chat, question. */
static bool question_names(struct erasure *e, struct str key, struct json doc)
{
    bool here = is_platform(e, part(&key));

    (void)doc;
    part(&key);
    return is_user(e, part(&key)) && here;
}

/* tenant, instance, platform, chat: a chat of two is called by the person on most platforms. */
static bool chat_names(struct erasure *e, struct str key, struct json doc)
{
    struct str tenant = part(&key), instance = part(&key), platform = part(&key);

    (void)doc;
    if (!is_platform(e, platform) || !is_user(e, key))
        return false;
    if (!e->dry)
        relay_forget_chat(e->f->relay, tenant, instance, platform, key);
    return true;
}

static bool outgoing_names(struct erasure *e, struct str key, struct json doc)
{
    return is_platform(e, part(&key)) && is_user(e, json_str(doc, "chat"));
}

static bool binding_names(struct erasure *e, struct str key, struct json doc)
{
    bool here = is_platform(e, part(&key)), theirs = is_user(e, part(&key));
    struct str tenant = part(&key);
    struct grant_who who = {tenant, key};

    (void)doc;
    if (!here || !theirs)
        return false;
    if (!e->dry)
        grant_unlink(e->f->facts, who, buf_str(&e->platform), buf_str(&e->user), NULL, NULL);
    return true;
}

static bool principal_names(struct erasure *e, struct str key, struct json doc)
{
    (void)key;
    for (struct json_iter it = {0}; json_next(json_get(doc, "allow"), &it);)
        if (is_user(e, json_as_str(it.value)))
            return true;
    return false;
}

static const struct {
    const char *ns;
    enum counted what;
    bool (*names)(struct erasure *e, struct str key, struct json doc);
    bool by_others; /* the record is not deleted from here */
} places[] = {
    {"web", MESSAGES, message_names, false},
    {"web_once", N_COUNTED, web_names, false},
    {"web_name", NAMES, web_names, false},
    {"chat", CHATS, chat_names, false},
    {"outgoing", OUTGOING, outgoing_names, false},
    {"prompt", QUESTIONS, question_names, false},
    {"binding", LINKS, binding_names, true},
    {"principal", ALLOW_LISTS, principal_names, true},
};

/* ---- one after the other ---- */

static void erasure_free(struct erasure *e)
{
    store_take_back(&e->left);
    free(e->items);
    buf_done(&e->after);
    buf_done(&e->platform);
    buf_done(&e->user);
    json_parser_free(e->parser);
    free(e);
}

static void forget_in_memory(struct erasure *e)
{
    for (size_t i = 0; i < host_n_platforms(e->f->host); i++) {
        const struct platform *at = host_nth_platform(e->f->host, i);
        struct platform *p = host_platform(e->f->host, str_of(at->ops->name), str_of(at->bot));
        if (!is_platform(e, str_of(at->ops->name)) || p == NULL)
            continue;
        if (p->ops->forget != NULL)
            p->ops->forget(p, buf_str(&e->user));
        if (p->sender != NULL)
            sender_forget_chat(p->sender, buf_str(&e->user));
        if (p->prompts != NULL)
            prompts_forget_chat(p->prompts, buf_str(&e->user));
    }
}

static void answer(struct erasure *e)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kbool(&w, "dryRun", e->dry);
    for (int i = 0; i < N_COUNTED; i++)
        jw_ki64(&w, counted_words[i], (int64_t)e->n[i]);
    jw_end_obj(&w);
    front_json(e->f, e->id, 200, &body);
    buf_done(&body);
}

static void read_on(struct erasure *e);

static void over(struct erasure *e, enum bh_err err)
{
    if (err != BH_OK) {
        http_answer_error(e->f->server, e->id, 503, bh_err_word(err),
                          "The store failed in the middle: ask again.");
    } else {
        if (!e->dry) {
            forget_in_memory(e);
            log_info(NULL, "a person was erased: platform=%.*s", STR_FMT(buf_str(&e->platform)));
        }
        answer(e);
    }
    erasure_free(e);
}

static void on_mail_forgotten(void *ctx, enum bh_err err, const struct relay_forgot *got)
{
    struct erasure *e = ctx;

    e->n[WAITING] = got->n;
    e->n[QUOTED] = got->quoted;
    over(e, err);
}

static void step_over(struct erasure *e, enum bh_err err)
{
    bool more = e->scan.more;

    free(e->items);
    e->items = NULL;
    if (err != BH_OK) {
        store_scan_free(e->f->store, &e->scan);
        over(e, err);
        return;
    }
    if (more) {
        buf_reset(&e->after);
        buf_add_str(&e->after, e->scan.records[e->scan.n_records - 1].key);
    } else {
        buf_reset(&e->after);
        e->place++;
    }
    store_scan_free(e->f->store, &e->scan);
    if (e->place == ARRAY_LEN(places))
        relay_forget_mail(e->f->relay, buf_str(&e->platform), buf_str(&e->user), e->dry,
                          on_mail_forgotten, e);
    else
        read_on(e);
}

static void on_deleted(struct store_op *op, enum bh_err err)
{
    step_over(container_of(op, struct erasure, tx.op), err);
}

static void on_read(struct store_op *op, enum bh_err err)
{
    struct erasure *e = container_of(op, struct erasure, scan.op);
    size_t at = e->place, n = 0;

    if (err != BH_OK || e->scan.n_records == 0) {
        step_over(e, err);
        return;
    }
    e->items = xcalloc(e->scan.n_records, sizeof *e->items);
    for (size_t i = 0; i < e->scan.n_records; i++) {
        const struct store_record *r = &e->scan.records[i];
        struct json doc = {0};
        (void)json_parse(e->parser, r->value, &doc);
        if (!places[at].names(e, r->key, doc))
            continue;
        if (places[at].what != N_COUNTED)
            e->n[places[at].what]++;
        if (!e->dry && !places[at].by_others)
            e->items[n++] = (struct store_kv){KV_DELETE, places[at].ns, r->key, STR_NULL};
    }
    if (n == 0) {
        step_over(e, BH_OK);
        return;
    }
    e->tx = (struct store_tx){.op = {.done = on_deleted}, .items = e->items, .n = n};
    store_tx(e->f->store, &e->tx, false);
}

static void read_on(struct erasure *e)
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
    struct erasure *e = container_of(l, struct erasure, left);

    ops->scan_free(&e->scan);
    l->prev = NULL; /* the list is gone with its store */
    erasure_free(e);
}

void admin_erase(struct front *f, struct http_req *req)
{
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    struct erasure *e;

    bool reads = json_parse(parser, http_body(req), &doc);
    if (reads && facts_name_ok(json_str(doc, "tenant"))) {
        erase_tenant(f, req, json_str(doc, "tenant"), json_as_bool(json_get(doc, "dryRun"), false));
        json_parser_free(parser);
        return;
    }
    if (!reads || !grant_id_ok(json_str(doc, "user")) ||
        platform_find(json_str(doc, "platform")) == NULL) {
        http_answer_error(f->server, http_req_id(req), 400, "malformed",
                          "Whom? A tenant, or platform and user, and the platform must be one that "
                          "this server knows.");
        json_parser_free(parser);
        return;
    }
    e = xcalloc(1, sizeof *e);
    *e = (struct erasure){.f = f, .id = http_req_id(req), .parser = parser};
    buf_add_str(&e->platform, json_str(doc, "platform"));
    buf_add_str(&e->user, json_str(doc, "user"));
    e->dry = json_as_bool(json_get(doc, "dryRun"), false);
    store_leave(f->store, &e->left, on_store_closed);
    read_on(e);
}
