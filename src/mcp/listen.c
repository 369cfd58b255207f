/* listen.c - design.  (mcp.h has the contract.)
 *
 * A listener is a request of subscriptions/listen, or a session of the older era that has a stream
 * or a subscription.  The listeners of one instance share a watch, which collects the instance's
 * changes and tells them together:
 *
 *      mcp_changed() -> watch: the changed URIs -- timer --> marks subscriptions of each listener
 *                                                    '-----> each sink gets one message per mark
 *
 * A mark stays until a sink takes it, and a session's second stream begins with all marks set: so a
 * session whose stream broke misses nothing.  A busy mailbox costs one walk over its listeners per
 * MCP_NOTIFY_MS, a few in each turn of the loop. */
#include <assert.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/rand.h"
#include "mcp/mcp_priv.h"

#define SESSIONS_ENDED_MAX 4096 /* remembered deleted ids; beyond this the oldest are dropped */
enum { RANDOM_BYTES = 16, MAC_BYTES = 17, ID_CHARS = 44 };
enum {
    CHANGED_MAX = 16, /* URIs a watch remembers; with more, all count as changed */
    TURN_MAX = 32,    /* listeners told in one turn of the loop */
};

struct ended {        /* a deleted session id */
    struct list link; /* oldest first */
    size_t n;
    char id[];
};

struct changes {     /* of one instance's resources */
    struct buf uris; /* each ended by a newline */
    size_t n;
    bool all, list; /* any resource may have changed; the list of resources has */
};

struct watch {             /* of one instance */
    struct mcp *m;         /* borrowed */
    struct list listeners; /* by_watch */
    struct timer tell;
    int64_t told_ms;     /* monotonic; when telling began the last time; 0: never */
    struct changes next; /* nobody was told yet */
    struct changes now;  /* being told */
    struct list *at;     /* the listener to be told next; NULL: nobody is being told */
    bool telling;        /* on_tell() runs: it frees the watch itself */
    size_t key_n;
    char key[]; /* tenant \x1f instance */
};

struct subscription {
    struct subscription *next;
    bool changed; /* the client was not told yet */
    size_t n;
    char uri[];
};

struct mcp_listener {
    struct list link;     /* mcp->listeners */
    struct list by_watch; /* watch->listeners */
    struct mcp *m;        /* borrowed */
    struct watch *watch;  /* NULL: the key acts for no instance */
    struct caller who;
    char *texts;               /* owned; backs the strings of @who */
    struct party *party;       /* one hold */
    struct mcp_sink *sink;     /* borrowed; NULL: no stream now */
    struct subscription *subs; /* owned */
    size_t n_subs, uri_bytes;
    int64_t idle_since_ms; /* monotonic; of a session without a stream */
    bool wants_list, list_changed;
    bool had_sink;
    struct buf id;          /* JSON of the request's id; empty: a session */
    char session[ID_CHARS]; /* its id */
};

/* ---- sessions ----
 *
 *      id = base64url(16 random bytes, 17 bytes of HMAC(session key, random, key id))
 *
 * The length is 33 bytes, a multiple of 3, so base64url has no spare bits and each id has exactly
 * one spelling. */

static void forget(struct mcp *m, struct ended *e)
{
    map_del(&m->ended, str_make(e->id, e->n));
    list_remove(&e->link);
    free(e);
}

static void sign(const struct mcp *m, const void *random, struct str key_id,
                 uint8_t ret_mac[SHA256_BYTES])
{
    struct buf text = BUF_INIT;

    buf_add(&text, random, RANDOM_BYTES);
    buf_add_str(&text, key_id);
    hmac_sha256(str_make(m->env.session_key, sizeof m->env.session_key), buf_str(&text), ret_mac);
    buf_done(&text);
}

void session_issue(struct mcp *m, const struct caller *who, struct buf *ret_id)
{
    uint8_t raw[RANDOM_BYTES + SHA256_BYTES];

    rand_bytes(m->env.rand, raw, RANDOM_BYTES);
    sign(m, raw, who->key_id, raw + RANDOM_BYTES);
    base64url_add(ret_id, raw, RANDOM_BYTES + MAC_BYTES);
}

bool mcp_session_ok(const struct mcp *m, const struct caller *who, struct str id)
{
    struct buf raw = BUF_INIT;
    uint8_t mac[SHA256_BYTES];
    bool ok = false;

    if (id.n == ID_CHARS && base64url_decode(id, &raw) && raw.n == RANDOM_BYTES + MAC_BYTES) {
        sign(m, raw.p, who->key_id, mac);
        ok = ct_equal(mac, raw.p + RANDOM_BYTES, MAC_BYTES) && map_get(&m->ended, id) == NULL;
    }
    buf_done(&raw);
    return ok;
}

/* ---- watches ---- */

static struct watch *find_watch(const struct mcp *m, struct str tenant, struct str instance)
{
    struct buf key = BUF_INIT;

    if (map_count(&m->watches) == 0)
        return NULL;
    buf_printf(&key, "%.*s\x1f%.*s", STR_FMT(tenant), STR_FMT(instance));
    struct watch *w = map_get(&m->watches, buf_str(&key));
    buf_done(&key);
    return w;
}

static void on_tell(struct timer *t);

static struct watch *get_watch(struct mcp *m, struct str tenant, struct str instance)
{
    struct watch *w = find_watch(m, tenant, instance);
    size_t n = tenant.n + 1 + instance.n;

    if (w != NULL)
        return w;
    w = xcalloc(1, sizeof *w + n);
    w->m = m;
    w->key_n = n;
    memcpy(w->key, tenant.p, tenant.n);
    w->key[tenant.n] = '\x1f';
    memcpy(w->key + tenant.n + 1, instance.p, instance.n);
    list_init(&w->listeners);
    timer_init(&w->tell, on_tell);
    map_put(&m->watches, str_make(w->key, n), w);
    if (map_count(&m->watches) == 1)
        m->env.resources->watch(m->env.resources_ctx, true);
    return w;
}

/* Frees a watch that has no listener any more. */
static void drop_watch(struct watch *w)
{
    struct mcp *m = w->m;

    if (w->telling || !list_is_empty(&w->listeners))
        return;
    timer_stop(m->env.clock, &w->tell);
    map_del(&m->watches, str_make(w->key, w->key_n));
    buf_done(&w->next.uris);
    buf_done(&w->now.uris);
    free(w);
    if (map_count(&m->watches) == 0)
        m->env.resources->watch(m->env.resources_ctx, false);
}

static bool has_changed(const struct changes *c, struct str uri)
{
    struct str rest = buf_str(&c->uris), one;

    while (rest.n > 0 && str_split(&rest, '\n', &one))
        if (str_eq(one, uri))
            return true;
    return false;
}

/* ---- listeners ---- */

static void listener_free(struct mcp_listener *l)
{
    struct mcp *m = l->m;

    for (struct subscription *s; (s = l->subs) != NULL;) {
        l->subs = s->next;
        free(s);
    }
    if (l->id.n == 0)
        map_del(&m->sessions, str_make(l->session, ID_CHARS));
    list_remove(&l->link);
    if (l->watch != NULL && l->watch->at == &l->by_watch)
        l->watch->at = l->by_watch.next;
    list_remove(&l->by_watch);
    if (l->watch != NULL)
        drop_watch(l->watch);
    ledger_give(m->env.ledger, l->party, LIMIT_LISTENERS, 1);
    party_drop(l->party);
    buf_done(&l->id);
    free(l->texts);
    free(l);
    if (--m->n_listeners == 0)
        timer_stop(m->env.clock, &m->keep_alive);
}

static void let_go(struct mcp_listener *l)
{
    struct mcp_sink *s = l->sink;

    l->sink = NULL;
    if (s != NULL)
        s->end(s);
}

/* Ends a listener from this side. */
static void listener_end(struct mcp_listener *l)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    if (l->sink != NULL && l->id.n > 0) {
        jw_obj(&w);
        jw_kstr(&w, "jsonrpc", STR("2.0"));
        jw_kraw(&w, "id", buf_str(&l->id));
        jw_kobj(&w, "result");
        jw_kstr(&w, "resultType", STR("complete"));
        mcp_write_meta(l->m, &w, buf_str(&l->id));
        jw_end_obj(&w);
        jw_end_obj(&w);
        l->sink->send(l->sink, buf_str(&out));
    }
    buf_done(&out);
    let_go(l);
    listener_free(l);
}

static void on_keep_alive(struct timer *t)
{
    struct mcp *m = container_of(t, struct mcp, keep_alive);
    int64_t now_ms = clock_now_ms(m->env.clock);

    timer_set(m->env.clock, t, MCP_KEEP_ALIVE_MS);
    list_each (&m->listeners, it, nxt) {
        struct mcp_listener *l = list_entry(it, struct mcp_listener, link);
        if (!mcp_key_is_good(m, &l->who))
            listener_end(l);
        else if (l->sink != NULL)
            l->sink->send(l->sink, STR_NULL);
        else if (l->id.n == 0 && now_ms - l->idle_since_ms >= MCP_SESSION_IDLE_MS)
            listener_free(l);
    }
}

/* Frees the oldest session without a stream, of @party or (NULL) of anybody.  False: none. */
static bool evict(struct mcp *m, const struct party *party)
{
    list_each (&m->listeners, it, nxt) {
        struct mcp_listener *l = list_entry(it, struct mcp_listener, link);
        if (l->id.n == 0 && l->sink == NULL && (party == NULL || l->party == party)) {
            listener_free(l);
            return true;
        }
    }
    return false;
}

/* NULL: the caller, or all callers together, have too many. */
static struct mcp_listener *listener_new(struct mcp *m, const struct caller *who)
{
    struct ledger *ledger = m->env.ledger;
    struct party *party = ledger != NULL && who->key_id.p != NULL
                              ? ledger_party(ledger, PER_CREDENTIAL, who->key_id)
                              : NULL;
    enum limit_answer a = ledger_take(ledger, party, LIMIT_LISTENERS, 1);

    if (a != LIMIT_TAKEN && evict(m, a == LIMIT_EACH_FULL ? party : NULL))
        a = ledger_take(ledger, party, LIMIT_LISTENERS, 1);
    if (a != LIMIT_TAKEN) {
        party_drop(party);
        return NULL;
    }
    struct mcp_listener *l = xcalloc(1, sizeof *l);
    l->m = m;
    l->party = party;
    l->who = *who;
    l->texts = mcp_hold_caller(&l->who);
    l->idle_since_ms = clock_now_ms(m->env.clock);
    list_append(&m->listeners, &l->link);
    if (m->n_listeners++ == 0)
        timer_set(m->env.clock, &m->keep_alive, MCP_KEEP_ALIVE_MS);
    if (who->instance.p != NULL) {
        l->watch = get_watch(m, who->tenant, who->instance);
        list_append(&l->watch->listeners, &l->by_watch);
    }
    return l;
}

static enum subscribed subscribe(struct mcp_listener *l, struct str uri)
{
    const struct mcp_env *env = &l->m->env;

    if (l->watch == NULL || !env->resources->exists(env->resources_ctx, &l->who, uri))
        return SUBSCRIBED_NOTHING;
    struct subscription **end = &l->subs;
    for (; *end != NULL; end = &(*end)->next)
        if (str_eq(str_make((*end)->uri, (*end)->n), uri))
            return SUBSCRIBED;
    if (l->n_subs == MCP_URIS_MAX || l->uri_bytes + uri.n > MCP_URI_BYTES_MAX)
        return SUBSCRIBED_TOO_MUCH;
    struct subscription *s = xcalloc(1, sizeof *s + uri.n);
    s->n = uri.n;
    memcpy(s->uri, uri.p, uri.n);
    *end = s;
    l->n_subs++;
    l->uri_bytes += uri.n;
    return SUBSCRIBED;
}

/* ---- notifications ---- */

static void send_note(struct mcp_listener *l, const char *method, struct str uri)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_obj(&w);
    jw_kstr(&w, "jsonrpc", STR("2.0"));
    jw_kstr(&w, "method", str_of(method));
    if (uri.p != NULL || l->id.n > 0) {
        jw_kobj(&w, "params");
        jw_kstr_opt(&w, "uri", uri);
        if (l->id.n > 0) {
            jw_kobj(&w, "_meta");
            jw_kraw(&w, META "subscriptionId", buf_str(&l->id));
            jw_end_obj(&w);
        }
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
    l->sink->send(l->sink, buf_str(&out));
    buf_done(&out);
}

/* Tells the client what it was not told yet. */
static void tell_client(struct mcp_listener *l)
{
    if (l->sink == NULL)
        return;
    if (l->list_changed)
        send_note(l, "notifications/resources/list_changed", STR_NULL);
    l->list_changed = false;
    for (struct subscription *s = l->subs; s != NULL; s = s->next) {
        if (s->changed)
            send_note(l, "notifications/resources/updated", str_make(s->uri, s->n));
        s->changed = false;
    }
}

static void mark(struct mcp_listener *l, const struct changes *c)
{
    l->list_changed |= l->wants_list && c->list;
    for (struct subscription *s = l->subs; s != NULL; s = s->next)
        s->changed |= c->all || has_changed(c, str_make(s->uri, s->n));
}

static void tell_soon(struct watch *w)
{
    struct clock *clock = w->m->env.clock;

    if (timer_is_set(&w->tell) || w->at != NULL)
        return;
    int64_t since_ms = w->told_ms == 0 ? MCP_NOTIFY_MS : clock_now_ms(clock) - w->told_ms;
    timer_set(clock, &w->tell, since_ms >= MCP_NOTIFY_MS ? 0 : MCP_NOTIFY_MS - since_ms);
}

/* Begins to tell what changed.  False: nobody may read it now, so nobody is told. */
static bool tell_begin(struct watch *w)
{
    const struct mcp_env *env = &w->m->env;
    struct str instance = str_make(w->key, w->key_n), tenant;

    str_split(&instance, '\x1f', &tenant);
    w->told_ms = clock_now_ms(env->clock);
    w->now = w->next;
    w->next = (struct changes){0};
    if (env->resources->readable(env->resources_ctx, tenant, instance)) {
        w->at = w->listeners.next;
        return true;
    }
    buf_done(&w->now.uris);
    return false;
}

static void on_tell(struct timer *t)
{
    struct watch *w = container_of(t, struct watch, tell);

    if (w->at == NULL && !tell_begin(w))
        return;
    w->telling = true;
    for (int n = 0; n < TURN_MAX && w->at != &w->listeners; n++) {
        struct mcp_listener *l = list_entry(w->at, struct mcp_listener, by_watch);
        w->at = w->at->next;
        mark(l, &w->now);
        if (mcp_key_is_good(w->m, &l->who))
            tell_client(l);
        else
            listener_end(l);
    }
    w->telling = false;
    if (w->at != &w->listeners) {
        timer_set(w->m->env.clock, t, 0); /* the others in the next turn */
        return;
    }
    w->at = NULL;
    buf_done(&w->now.uris);
    if (w->next.n > 0 || w->next.all || w->next.list)
        tell_soon(w);
    drop_watch(w);
}

bool mcp_is_watched(const struct mcp *m, struct str tenant, struct str instance)
{
    return find_watch(m, tenant, instance) != NULL;
}

void mcp_changed(struct mcp *m, struct str tenant, struct str instance, struct str uri)
{
    struct watch *w = find_watch(m, tenant, instance);

    if (w == NULL)
        return;
    struct changes *c = &w->next;
    if (uri.p == NULL || (!has_changed(c, uri) && c->n == CHANGED_MAX)) {
        c->all = true;
    } else if (!has_changed(c, uri)) {
        buf_add_str(&c->uris, uri);
        buf_add_c(&c->uris, '\n');
        c->n++;
    }
    tell_soon(w);
}

void mcp_list_changed(struct mcp *m, struct str tenant, struct str instance)
{
    struct watch *w = find_watch(m, tenant, instance);

    if (w == NULL)
        return;
    w->next.list = true;
    tell_soon(w);
}

/* ---- requests of the newer era ---- */

struct mcp_listener *listen_request(struct mcp *m, const struct caller *who, struct str id,
                                    struct json filter, struct buf *ret_first)
{
    struct mcp_listener *l = listener_new(m, who);
    struct jw w = jw_begin(ret_first);

    if (l == NULL)
        return NULL;
    buf_add_str(&l->id, id);
    l->wants_list =
        l->watch != NULL && json_as_bool(json_get(filter, "resourcesListChanged"), false);
    for (struct json_iter it = {0}; json_next(json_get(filter, "resourceSubscriptions"), &it);)
        if (json_type(it.value) == JSON_STRING)
            (void)subscribe(l, json_as_str(it.value)); /* the acknowledgement has those it took */
    jw_obj(&w);
    jw_kstr(&w, "jsonrpc", STR("2.0"));
    jw_kstr(&w, "method", STR("notifications/subscriptions/acknowledged"));
    jw_kobj(&w, "params");
    jw_kobj(&w, "_meta");
    jw_kraw(&w, META "subscriptionId", id);
    jw_end_obj(&w);
    jw_kobj(&w, "notifications");
    if (l->wants_list)
        jw_kbool(&w, "resourcesListChanged", true);
    if (l->subs != NULL) {
        jw_karr(&w, "resourceSubscriptions");
        for (const struct subscription *s = l->subs; s != NULL; s = s->next)
            jw_str(&w, str_make(s->uri, s->n));
        jw_end_arr(&w);
    }
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    return l;
}

void mcp_listener_attach(struct mcp_listener *l, struct mcp_sink *s)
{
    let_go(l);
    l->sink = s;
    /* What the earlier stream was told last may not have arrived. */
    for (struct subscription *sub = l->subs; sub != NULL && l->had_sink; sub = sub->next)
        sub->changed = true;
    l->list_changed |= l->wants_list && l->had_sink;
    l->had_sink = true;
    tell_client(l);
}

void mcp_listener_gone(struct mcp_listener *l, struct mcp_sink *s)
{
    if (l->sink != s)
        return;
    l->sink = NULL;
    l->idle_since_ms = clock_now_ms(l->m->env.clock);
    if (l->id.n > 0 || l->subs == NULL)
        listener_free(l);
}

/* ---- streams and subscriptions of sessions ---- */

struct mcp_listener *mcp_session_listener(struct mcp *m, const struct caller *who,
                                          struct str session)
{
    struct mcp_listener *l = map_get(&m->sessions, session);

    assert(session.n == ID_CHARS); /* mcp_session_ok() */
    if (l != NULL || (l = listener_new(m, who)) == NULL)
        return l;
    memcpy(l->session, session.p, ID_CHARS);
    l->wants_list = l->watch != NULL;
    map_put(&m->sessions, str_make(l->session, ID_CHARS), l);
    return l;
}

enum subscribed session_subscribe(struct mcp *m, const struct caller *who, struct str session,
                                  struct str uri)
{
    struct mcp_listener *l = mcp_session_listener(m, who, session);

    if (l == NULL)
        return SUBSCRIBED_TOO_MUCH;
    enum subscribed how = subscribe(l, uri);
    if (l->sink == NULL && l->subs == NULL)
        listener_free(l);
    return how;
}

void session_unsubscribe(struct mcp *m, struct str session, struct str uri)
{
    struct mcp_listener *l = map_get(&m->sessions, session);

    for (struct subscription **at = l != NULL ? &l->subs : NULL, *s;
         at != NULL && (s = *at) != NULL; at = &s->next)
        if (str_eq(str_make(s->uri, s->n), uri)) {
            *at = s->next;
            l->n_subs--;
            l->uri_bytes -= s->n;
            free(s);
            break;
        }
    if (l != NULL && l->sink == NULL && l->subs == NULL)
        listener_free(l);
}

void mcp_session_end(struct mcp *m, struct str id)
{
    struct mcp_listener *l = map_get(&m->sessions, id);

    if (l != NULL)
        listener_end(l);
    if (map_get(&m->ended, id) != NULL)
        return;
    struct ended *e = xcalloc(1, sizeof *e + id.n);
    e->n = id.n;
    memcpy(e->id, id.p, id.n);
    map_put(&m->ended, str_make(e->id, e->n), e);
    list_append(&m->ended_by_age, &e->link);
    if (map_count(&m->ended) > SESSIONS_ENDED_MAX)
        forget(m, list_first(&m->ended_by_age, struct ended, link));
}

/* ---- all of them ---- */

void mcp_check_keys(struct mcp *m)
{
    list_each (&m->listeners, it, nxt) {
        struct mcp_listener *l = list_entry(it, struct mcp_listener, link);
        if (!mcp_key_is_good(m, &l->who))
            listener_end(l);
    }
}

void mcp_end_streams(struct mcp *m)
{
    if (m == NULL)
        return;
    list_each (&m->listeners, it, nxt) {
        struct mcp_listener *l = list_entry(it, struct mcp_listener, link);
        if (l->sink != NULL)
            listener_end(l);
    }
}

size_t mcp_listeners(const struct mcp *m)
{
    return m->n_listeners;
}

void listen_init(struct mcp *m)
{
    list_init(&m->ended_by_age);
    list_init(&m->listeners);
    timer_init(&m->keep_alive, on_keep_alive);
}

void listen_done(struct mcp *m)
{
    list_each (&m->listeners, it, nxt) {
        struct mcp_listener *l = list_entry(it, struct mcp_listener, link);
        assert(l->sink == NULL);
        listener_free(l);
    }
    list_each (&m->ended_by_age, it, nxt)
        forget(m, list_entry(it, struct ended, link));
    map_done(&m->ended);
    map_done(&m->sessions);
    map_done(&m->watches);
}
