/* dispatch.c - opens and closes the dispatch, and lists its agents.  (dispatch.h has the
 * contract.) */
#include "dispatch/dispatch.h"
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/courier.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/replies.h"
#include "dispatch/hosted.h"
#include "dispatch/hosted_state.h"
#include "dispatch/request.h"
#include "dispatch/schedule.h"
#include "dispatch/sessions.h"
#include "dispatch/stored.h"
#include "dispatch/substrate.h"
#include "dispatch/track.h"
#include "net/work.h"
#include "store/erasure.h"
#include "store/store.h"

#define FILE_THREADS 2
#define TIDY_MS (10 * 60 * 1000)
#define TIDY_FIRST_MS 5000 /* threads may start: the sandbox is closed */

const struct substrate_ops *const substrates[] = {
    &substrate_relay, &substrate_webhook,   &substrate_tmux, &substrate_file,
    &substrate_pipe,  &substrate_exec,      &substrate_none, &substrate_lines,
    &substrate_acp,   &substrate_responses, &substrate_chat, NULL,
};

const struct substrate_ops *substrate_find(struct str name)
{
    for (size_t i = 0; substrates[i] != NULL; i++)
        if (str_eq(str_of(substrates[i]->name), name))
            return substrates[i];
    return NULL;
}

const struct record_form *const dispatch_records[] = {&receipt_form, &delivered_form,
                                                      &reply_form,   &wakeup_form,
                                                      &stored_form,  &session_form,
                                                      &asked_form,   NULL};

void *pair_get(const struct map *m, struct str tenant, struct str name)
{
    BUF_LOCAL key = BUF_INIT;

    buf_add_str(&key, tenant);
    buf_add_c(&key, '\x1f');
    buf_add_str(&key, name);
    return map_get(m, buf_str(&key));
}

struct str pair_write(char *key, struct str tenant, struct str name)
{
    char *at = key;

    str_pack(&at, tenant);
    *at++ = '\x1f';
    str_pack(&at, name);
    *at = '\0';
    return str_make(key, (size_t)(at - key));
}

uint64_t dispatch_number(struct dispatch *d)
{
    return ++d->next_number;
}

bool dispatch_reply_base(const struct dispatch *d, struct buf *out)
{
    const char *base = d->env.base_url != NULL ? *d->env.base_url : NULL;

    if (base != NULL)
        buf_printf(out, "%s/v1/replies/", base);
    return base != NULL;
}

static void on_tidy(struct timer *t)
{
    struct dispatch *d = container_of(t, struct dispatch, tidy);

    receipts_expire(d->receipts);
    agent_sessions_tidy(d->sessions);
    hosted_state_age(d);
    timer_set(d->env.clock, &d->tidy, TIDY_MS);
}

enum bh_err dispatch_open(const struct dispatch_env *env, const struct config *cfg,
                          struct dispatch **ret_d, char *ret_why)
{
    struct dispatch *d;

    if (!dispatch_check(cfg, ret_why))
        return BH_REFUSED;
    d = xcalloc(1, sizeof *d);
    d->env = *env;
    list_init(&d->calls);
    list_init(&d->ending);
    timer_init(&d->endings, calls_on_timer);
    timer_init(&d->tidy, on_tidy);
    d->json = json_parser_new();
    d->records = record_reader_new(NULL);
    d->files = work_pool_new(env->loop, FILE_THREADS);
    d->next_number = env->store->boot << 40;
    d->replies = replies_new(d);
    d->tracks = tracks_new(d);
    d->receipts = receipts_new(d);
    d->agents = agents_new(d);
    d->hosts = hosts_new(d);
    d->sessions = agent_sessions_new(d);
    asked_open(d);
    d->schedule = schedule_new(d);
    timer_set(env->clock, &d->tidy, TIDY_FIRST_MS);
    enum bh_err err = stored_open(d, &d->stored, ret_why);
    if (err != BH_OK) {
        dispatch_close(d);
        return err;
    }
    agents_set(d->agents, cfg);
    hosted_update(d);
    hosted_revoke_removed(d);
    *ret_d = d;
    return BH_OK;
}

void dispatch_close(struct dispatch *d)
{
    if (d == NULL)
        return;
    d->closing = true;
    timer_stop(d->env.clock, &d->tidy);
    timer_stop(d->env.clock, &d->endings);
    hosts_free(d->hosts);
    schedule_free(d->schedule);
    asked_stop(d->asked);
    calls_free(d);
    asked_free(d->asked);
    receipts_free(d->receipts);
    tracks_free(d->tracks);
    map_done(&d->claims);
    agents_free(d->agents);
    stored_free(d->stored);
    agent_sessions_free(d->sessions);
    replies_free(d->replies);
    work_pool_free(d->files);
    json_parser_free(d->json);
    record_reader_free(d->records);
    free(d);
}

void dispatch_reload(struct dispatch *d, const struct config *cfg)
{
    agents_set(d->agents, cfg);
    hosted_update(d);
}

const struct dispatch_counters *dispatch_counters(const struct dispatch *d)
{
    return &d->n;
}

const char *dispatch_caller_header(const struct dispatch *d)
{
    return d->env.settings->caller_header;
}

/* ---- lists of agents ---- */

bool agent_rings(const struct agent_config *c)
{
    return (c->ops->can & SUBSTRATE_RINGS) != 0 &&
           (c->ops != &substrate_webhook || c->s.wake_url != NULL);
}

static const struct str capabilities[] = {STR("deliver"), STR("wake"), STR("augment"),
                                          STR("template")};

static int by_name(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    int order = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

size_t dispatch_gateways(const struct dispatch *d, struct str tenant, struct str **ret_names)
{
    size_t room = 64, n, kept = 0;
    struct str *names = NULL, *used;

    do { /* until all fit */
        room *= 4;
        names = xrealloc(names, room * sizeof *names);
        n = facts_instances_of(d->env.facts, tenant, names, room);
    } while (n == room);
    used = xcalloc(n + 1, sizeof *used);
    qsort(names, n, sizeof *names, by_name);
    list_each (&d->agents->configs, it, nxt) { /* the instances that entries stand for */
        const struct agent_config *c = list_entry(it, struct agent_config, link);
        struct str of =
            str_of(c->s.instance != NULL && agent_is_relayed(c) ? c->s.instance : c->s.id);
        struct str *found = c->of_gateway || !agent_config_is_for(d->agents, c, tenant)
                                ? NULL
                                : bsearch(&of, names, n, sizeof *names, by_name);
        if (found != NULL)
            used[found - names] = of;
    }
    for (size_t i = 0; i < n; i++)
        if (used[i].p == NULL)
            names[kept++] = names[i];
    free(used);
    *ret_names = names;
    return kept;
}

/* @c NULL: a gateway that no entry names. */
static void write_agent(struct jw *w, const struct dispatch_who *who, struct str id,
                        const struct agent_config *c)
{
    char *const *named = c != NULL ? c->s.capabilities : NULL;

    if (who->caller.agent.p != NULL && !str_eq(who->caller.agent, id))
        return;
    jw_obj(w);
    jw_kstr(w, "agent_id", id);
    jw_kstr_opt(w, "agent_name", c != NULL ? str_of(c->s.name) : STR_NULL);
    jw_karr(w, "capabilities");
    for (size_t i = 0; named != NULL && named[i] != NULL; i++)
        jw_str(w, str_of(named[i]));
    for (size_t i = 0; named == NULL && i < ARRAY_LEN(capabilities); i++)
        if (!str_eq(capabilities[i], STR("wake")) || c == NULL || agent_rings(c))
            jw_str(w, capabilities[i]);
    jw_end_arr(w);
    jw_end_obj(w);
}

void dispatch_list(const struct dispatch *d, const struct dispatch_who *who, struct jw *w)
{
    jw_arr(w);
    list_each (&d->agents->configs, it, nxt) {
        const struct agent_config *c = list_entry(it, struct agent_config, link);
        if (!c->of_gateway && agent_config_is_for(d->agents, c, who->caller.tenant))
            write_agent(w, who, str_of(c->s.id), c);
    }
    struct str *names;
    size_t n = dispatch_gateways(d, who->caller.tenant, &names);
    for (size_t i = 0; i < n; i++)
        write_agent(w, who, names[i], NULL);
    free(names);
    jw_end_arr(w);
}

/* @tenant absent: the entry is for every tenant, and none has used it yet. */
static void show(const struct dispatch *d, const struct agent_config *c, struct str tenant,
                 dispatch_agent_cb *cb, void *ctx)
{
    struct dispatch_agent_view v = {.tenant = tenant,
                                    .id = str_of(c->s.id),
                                    .name = str_of(c->s.name),
                                    .substrate = str_of(c->ops->name),
                                    .target = str_of(agent_target(c)),
                                    .source = c->of_gateway ? "gateway"
                                              : c->stored   ? "added"
                                                            : "configured",
                                    .state = "never"};
    const struct recipient *a = agents_made(d->agents, tenant, v.id);
    BUF_LOCAL instance = BUF_INIT;
    struct instance_view i;

    agent_instance(c, &instance);
    if (tenant.p != NULL && relay_instance(d->env.relay, tenant, buf_str(&instance), &i)) {
        v.state = i.state;
        v.waiting = i.entries - i.parked;
        v.parked = i.parked;
    }
    if (a != NULL && a->courier != NULL)
        v.problem = courier_problem(a->courier);
    if (v.problem == NULL && (c->ops->can & SUBSTRATE_HOSTED) != 0)
        v.problem = hosted_problem(d, v.tenant, v.id);
    cb(ctx, &v);
}

/* Only looks: an agent that is made here would open its session after its state was told. */
void dispatch_each(const struct dispatch *d, dispatch_agent_cb *cb, void *ctx)
{
    list_each (&d->agents->configs, it, nxt) {
        const struct agent_config *c = list_entry(it, struct agent_config, link);
        if (c->s.tenant != NULL || !c->spoken)
            show(d, c, str_of(c->s.tenant), cb, ctx);
    }
    list_each (&d->agents->made, at, after) {
        const struct recipient *a = list_entry(at, struct recipient, link);
        if (a->cfg->s.tenant == NULL)
            show(d, a->cfg, str_of(a->tenant), cb, ctx);
    }
}

/* ---- erasing ---- */

static const struct erase_records of_tenant[] = {
    {"reply", "replies", erase_by_key},  {"wakeup", "wakes", erase_by_value},
    {"agent", "agents", erase_by_key},   {"agent_session", "sessions", erase_by_key},
    {"asked", "requests", erase_by_key}, {0},
};

/* The records of added agents and of sessions are gone; so are they in memory. */
static void erase_tenant(void *ctx, struct erasure *e)
{
    struct dispatch *d = ctx;

    if (!erasure_subject(e)->dry) {
        stored_forget(d, erasure_subject(e)->tenant);
        agent_sessions_forget(d->sessions, erasure_subject(e)->tenant);
        asked_forget(d->asked, erasure_subject(e)->tenant);
    }
    hosted_state_erase(d, e);
}

static void erase_person(void *ctx, struct erasure *e)
{
    hosted_state_erase(ctx, e);
}

const struct eraser dispatch_eraser = {.of_tenant = of_tenant,
                                       .tenant = erase_tenant,
                                       .person = erase_person};
