/* sessions.c - design.  (sessions.h has the contract.)
 *
 * The time of a session changes with every message, so it is written at most once a minute.  The
 * sessions of one agent are a short list, searched from its newest end. */
#include "dispatch/sessions.h"
#include <stdlib.h>
#include "base/jw.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"

struct session_record {
    struct str tenant, agent, session;
    int64_t seen_ms, registered_ms; /* registered_ms 0: only seen */
};
static const struct record_field fields[] = {
    RECORD_FIELD(struct session_record, tenant, "tenant", RECORD_KEY | RECORD_NEEDED, .max = 128),
    RECORD_FIELD(struct session_record, agent, "agent", RECORD_KEY | RECORD_NEEDED, .max = 128),
    RECORD_FIELD(struct session_record, session, "session", RECORD_KEY | RECORD_NEEDED,
                 .max = DISPATCH_ID_MAX),
    RECORD_FIELD(struct session_record, seen_ms, "seen", 0),
    RECORD_FIELD(struct session_record, registered_ms, "registered", 0),
};
const struct record_form session_form =
    RECORD_FORM("agent_session", struct session_record, fields, .lossy = true);

struct agent_session {
    struct list link; /* of_agent->all; seen last is last */
    int64_t seen_ms, written_ms, registered_ms;
    char name[];
};

struct sessions_of {
    struct list all;
    size_t n;
    char key[]; /* tenant \x1f agent */
};

struct agent_sessions {
    struct dispatch *d;
    struct map agents; /* struct sessions_of, owned */
    size_t n;
};

static struct sessions_of *find_of(const struct agent_sessions *t, struct str tenant,
                                   struct str agent)
{
    return pair_get(&t->agents, tenant, agent);
}

static struct agent_session *find(const struct sessions_of *of, struct str name)
{
    for (struct list *it = of != NULL ? of->all.prev : NULL; of != NULL && it != &of->all;
         it = it->prev) {
        struct agent_session *s = list_entry(it, struct agent_session, link);
        if (str_eq(str_of(s->name), name))
            return s;
    }
    return NULL;
}

static void drop(struct agent_sessions *t, struct sessions_of *of, struct agent_session *s,
                 bool on_disk)
{
    struct str rest = str_of(of->key), tenant;
    struct session_record r = {.session = str_of(s->name)};

    str_split(&rest, '\x1f', &tenant);
    r.tenant = tenant;
    r.agent = rest;
    if (on_disk)
        record_delete_like(t->d->env.store, &session_form, &r);
    list_remove(&s->link);
    free(s);
    of->n--;
    t->n--;
    if (of->n == 0) {
        map_del(&t->agents, str_of(of->key));
        free(of);
    }
}

/* Makes the session, in the place of the agent's oldest if there are too many.  NULL: no room. */
static struct agent_session *add(struct agent_sessions *t, struct str tenant, struct str agent,
                                 struct str name)
{
    struct sessions_of *of = find_of(t, tenant, agent);
    struct agent_session *s;

    if (of != NULL && of->n >= SESSIONS_EACH)
        drop(t, of, list_first(&of->all, struct agent_session, link), true);
    if (t->n >= SESSIONS_ALL)
        return NULL;
    if (of == NULL) {
        of = xcalloc(1, sizeof *of + PAIR_BYTES(tenant, agent));
        list_init(&of->all);
        map_put(&t->agents, pair_write(of->key, tenant, agent), of);
    }
    s = xcalloc(1, sizeof *s + name.n + 1);
    memcpy(s->name, name.p, name.n);
    list_append(&of->all, &s->link);
    of->n++;
    t->n++;
    return s;
}

static struct session_record record_of(const struct agent_session *s, struct str tenant,
                                       struct str agent)
{
    return (struct session_record){.tenant = tenant,
                                   .agent = agent,
                                   .session = str_of(s->name),
                                   .seen_ms = s->seen_ms,
                                   .registered_ms = s->registered_ms};
}

void session_seen(struct dispatch *d, struct str tenant, struct str agent, struct str session)
{
    struct agent_sessions *t = d->sessions;
    struct agent_session *s = find(find_of(t, tenant, agent), session);
    int64_t now_ms = clock_wall_ms(d->env.clock);

    if (str_is_empty(session) || session.n > DISPATCH_ID_MAX || str_find(session, '\0') >= 0)
        return;
    if (s == NULL)
        s = add(t, tenant, agent, session);
    if (s == NULL)
        return;
    s->seen_ms = now_ms;
    list_move(&s->link, &find_of(t, tenant, agent)->all);
    if (now_ms - s->written_ms < SESSION_WRITE_MS)
        return;
    struct session_record r = record_of(s, tenant, agent);
    s->written_ms = now_ms;
    record_put(d->env.store, &session_form, NULL, &r, false, NULL, NULL);
}

bool session_is_known(const struct dispatch *d, struct str tenant, struct str agent,
                      struct str session)
{
    return find(find_of(d->sessions, tenant, agent), session) != NULL;
}

/* ---- listing ---- */

static void write_session(struct jw *w, struct str name, struct str target, const char *source,
                          int64_t seen_ms)
{
    jw_obj(w);
    jw_kstr(w, "session_id", name);
    jw_kstr(w, "source", str_of(source));
    jw_kstr_opt(w, "target", target);
    if (seen_ms != 0)
        jw_ki64(w, "last_seen_at", seen_ms);
    jw_end_obj(w);
}

static void write_all(const struct recipient *a, struct jw *w)
{
    const struct sessions_of *of = find_of(a->d->sessions, str_of(a->tenant), str_of(a->id));
    char *const *configured = a->cfg->s.sessions;

    jw_arr(w);
    for (size_t i = 0; configured != NULL && configured[i] != NULL; i++) {
        struct str rest = str_of(configured[i]), name;
        str_split(&rest, '=', &name);
        const struct agent_session *s = find(of, name);
        write_session(w, name, rest, "configured", s != NULL ? s->seen_ms : 0);
    }
    for (struct list *it = of != NULL ? of->all.prev : NULL; of != NULL && it != &of->all;
         it = it->prev) {
        const struct agent_session *s = list_entry(it, struct agent_session, link);
        if (agent_session(a->cfg, str_of(s->name)) == NULL)
            write_session(w, str_of(s->name), STR_NULL,
                          s->registered_ms != 0 ? "registered" : "seen", s->seen_ms);
    }
    jw_end_arr(w);
}

struct dispatch_call *dispatch_sessions(struct dispatch *d, const struct dispatch_who *who,
                                        struct str address, dispatch_cb *done, void *ctx)
{
    struct dispatch_call *c = call_new(d, sizeof *c, NULL, done, ctx);
    struct jw w = jw_begin(&c->json);
    struct str session;
    struct recipient *a = call_agent(c, who, address, &session);

    if (a != NULL)
        write_all(a, &w);
    call_end_later(c);
    return c;
}

/* ---- registering ---- */

static void on_written(void *ctx, enum bh_err err)
{
    struct dispatch_call *c = ctx;

    c->put = NULL;
    if (err != BH_OK)
        call_fail_store(c, BH_UNAVAILABLE);
    call_end(c);
}

struct dispatch_call *dispatch_session_set(struct dispatch *d, const struct dispatch_who *who,
                                           struct str address, struct str name, bool live,
                                           dispatch_cb *done, void *ctx)
{
    struct dispatch_call *c = call_new(d, sizeof *c, NULL, done, ctx);
    struct agent_sessions *t = d->sessions;
    struct str in_address;
    struct recipient *a = call_agent(c, who, address, &in_address);
    struct agent_session *s;
    struct jw w = jw_begin(&c->json);

    if (a != NULL && !call_may_answer(who, a)) {
        call_fail_unknown(c, address);
        a = NULL;
    }
    if (a == NULL) {
        call_end_later(c);
        return c;
    }
    struct str tenant = str_of(a->tenant), agent = str_of(a->id);
    s = find(find_of(t, tenant, agent), name);
    if (!live) {
        if (s == NULL)
            fault_set(&c->fault, FAULT_NOT_FOUND, "The agent '%s' has no session '%.*s'.", a->id,
                      STR_FMT(name));
        else
            drop(t, find_of(t, tenant, agent), s, true);
        buf_add_z(&c->json, "{\"ok\":true}");
        call_end_later(c);
        return c;
    }
    if (s == NULL && (s = add(t, tenant, agent, name)) == NULL) {
        fault_set(&c->fault, FAULT_BUSY, "There are too many sessions.");
        call_end_later(c);
        return c;
    }
    s->seen_ms = s->written_ms = s->registered_ms = clock_wall_ms(d->env.clock);
    list_move(&s->link, &find_of(t, tenant, agent)->all);
    write_session(&w, name, STR_NULL,
                  agent_session(a->cfg, name) != NULL ? "configured" : "registered", s->seen_ms);
    struct session_record r = record_of(s, tenant, agent);
    c->put = record_put(d->env.store, &session_form, NULL, &r, true, on_written, c);
    return c;
}

/* ---- life ---- */

static bool load(void *ctx, struct str key, void *thing)
{
    struct agent_sessions *t = ctx;
    const struct session_record *r = thing;
    struct agent_session *s = add(t, r->tenant, r->agent, r->session);

    if (s != NULL) {
        s->seen_ms = s->written_ms = r->seen_ms;
        s->registered_ms = r->registered_ms;
    }
    return true;
}

void agent_sessions_forget(struct agent_sessions *t, struct str tenant)
{
    void *at;

    for (size_t pos = 0; map_next(&t->agents, &pos, &at);) {
        struct sessions_of *of = at;
        struct str rest = str_of(of->key), owner;
        bool gone = str_split(&rest, '\x1f', &owner) && str_eq(owner, tenant);
        for (size_t n = gone ? of->n : 0; n > 0; n--) /* drop() frees @of with its last session */
            drop(t, of, list_first(&of->all, struct agent_session, link), false);
    }
}

void agent_sessions_tidy(struct agent_sessions *t)
{
    int64_t before_ms = clock_wall_ms(t->d->env.clock) - SESSION_KEPT_MS;
    void *at;

    for (size_t pos = 0; map_next(&t->agents, &pos, &at);) {
        struct sessions_of *of = at;
        for (size_t n = of->n; n > 0; n--) { /* drop() frees @of with its last session */
            struct agent_session *s = list_first(&of->all, struct agent_session, link);
            if (s->seen_ms >= before_ms)
                break;
            drop(t, of, s, true);
        }
    }
}

struct agent_sessions *agent_sessions_new(struct dispatch *d)
{
    struct agent_sessions *t = xcalloc(1, sizeof *t);
    char why[256];

    t->d = d;
    if (record_load(d->env.store, &session_form, NULL, STR_NULL, load, t, why) != BH_OK)
        log_warn(NULL, "sessions of agents cannot be read: %s", why);
    return t;
}

void agent_sessions_free(struct agent_sessions *t)
{
    void *of;

    if (t == NULL)
        return;
    for (size_t pos = 0; map_next(&t->agents, &pos, &of);) {
        list_each (&((struct sessions_of *)of)->all, it, nxt)
            free(list_entry(it, struct agent_session, link));
        free(of);
    }
    map_done(&t->agents);
    free(t);
}
