/* stored.c - design.  (stored.h has the contract.)
 *
 * The configuration's own reader checks an entry (config_parse()), so that an added agent is
 * refused with the same sentences as one of the file.  A change is applied when it is on disk.
 * Changes of one agent run one at a time: call_claim() refuses a second one. */
#include "dispatch/stored.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/hosted.h"
#include "net/spawner.h"

struct stored_agent { /* the record */
    char *tenant, *id;
    char *entry;   /* owned JSON text: the keys that are no secrets */
    char *secrets; /* owned JSON text, wiped: the others */
    int64_t created_ms, changed_ms;
};
static const struct record_field fields[] = {
    RECORD_FIELD(struct stored_agent, tenant, "tenant", RECORD_KEY | RECORD_NEEDED, .max = 128),
    RECORD_FIELD(struct stored_agent, id, "id", RECORD_KEY | RECORD_NEEDED, .max = 128),
    RECORD_FIELD(struct stored_agent, entry, "entry", RECORD_NEEDED, .max = STORED_ENTRY_BYTES),
    RECORD_FIELD(struct stored_agent, secrets, "secrets", RECORD_SEALED),
    RECORD_FIELD(struct stored_agent, created_ms, "created", 0),
    RECORD_FIELD(struct stored_agent, changed_ms, "changed", 0),
};
const struct record_form stored_form = RECORD_FORM("agent", struct stored_agent, fields);

struct stored_one {
    struct stored_agent r;
    struct config *cfg; /* owned; has its one entry; NULL: not valid any more */
    char key[];         /* tenant \x1f id */
};

struct stored {
    struct dispatch *d; /* borrowed */
    struct map by_key;  /* struct stored_one, owned */
};

/* ---- entries ---- */

static const struct config_section *const no_sections[] = {NULL};
static const struct config_list *const lists[] = {&agents_config, NULL};
static const struct config_schema schema = {.sections = no_sections, .lists = lists};

static const struct agent_settings *settings_of(const struct config *cfg)
{
    return config_entry(cfg, &agents_config, 0);
}

/* Writes the members of @from that @into does not have; id, tenant and nulls are left out. */
static void write_others(struct jw *w, struct json from, struct json into)
{
    for (struct json_iter it = {0}; json_is_object(from) && json_next(from, &it);) {
        bool has = false;
        for (struct json_iter other = {0}; json_is_object(into) && json_next(into, &other);)
            has |= str_eq(other.key, it.key);
        if (has || json_type(it.value) == JSON_NULL || str_eq(it.key, STR("id")) ||
            str_eq(it.key, STR("tenant")))
            continue;
        jw_key_str(w, it.key);
        jw_value(w, it.value);
    }
}

/* Parses {"agents": [@entry]} and checks it as a whole.  NULL: @ret_why says why not. */
static struct config *parse_entry(struct str entry, struct buf *ret_why)
{
    struct buf text = BUF_INIT;
    struct config *cfg = NULL;
    char why[256] = "";

    buf_printf(&text, "{\"agents\":[%.*s]}", STR_FMT(entry));
    if (str_contains(buf_str(&text), STR("\\u0000")))
        buf_add_z(ret_why, "an entry has no NUL");
    else if (config_parse(buf_str(&text), &schema, &cfg, ret_why) == BH_OK &&
             !agent_settings_ok(settings_of(cfg), why)) {
        buf_add_z(ret_why, why);
        config_free(cfg);
        cfg = NULL;
    }
    buf_wipe(&text);
    return cfg;
}

static bool is_secret(const struct config *cfg, struct str key)
{
    const struct config_section *kind = config_entry_kind(cfg, &agents_config, 0);

    for (const struct config_key *k = kind->keys; k->path != NULL; k++)
        if (str_eq(str_of(k->path), key))
            return k->type == CFG_SECRET;
    return false;
}

/* The members of @entry that are secrets, or those that are not, as an object. */
static char *part_of(const struct config *cfg, struct json entry, bool secrets)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_obj(&w);
    for (struct json_iter it = {0}; json_next(entry, &it);)
        if (is_secret(cfg, it.key) == secrets) {
            jw_key_str(&w, it.key);
            jw_value(&w, it.value);
        }
    jw_end_obj(&w);
    if (str_eq(buf_str(&out), STR("{}"))) {
        buf_done(&out);
        return NULL;
    }
    return buf_take(&out);
}

/* The whole entry: both parts, with the members of @change (absent: none) instead of theirs. */
static void join(struct json_parser *a, struct json_parser *b, const struct stored_agent *r,
                 struct json change, struct buf *out)
{
    struct json entry = {0}, secrets = {0};
    struct jw w = jw_begin(out);

    json_parse(a, str_of(r->entry), &entry);
    if (r->secrets != NULL)
        json_parse(b, str_of(r->secrets), &secrets);
    jw_obj(&w);
    jw_kstr(&w, "id", str_of(r->id));
    jw_kstr(&w, "tenant", str_of(r->tenant));
    write_others(&w, entry, change);
    write_others(&w, secrets, change);
    write_others(&w, change, (struct json){0});
    jw_end_obj(&w);
}

/* ---- the table ---- */

static struct stored_one *find(const struct stored *s, struct str tenant, struct str id)
{
    return pair_get(&s->by_key, tenant, id);
}

static void one_free(struct stored_one *o)
{
    if (o == NULL)
        return;
    record_done(&stored_form, &o->r);
    config_free(o->cfg);
    free(o);
}

/* Takes over the texts of @r and @cfg; replaces an older entry. */
static void put(struct stored *s, struct stored_agent *r, struct config *cfg)
{
    struct str tenant = str_of(r->tenant), id = str_of(r->id);
    struct stored_one *o = xcalloc(1, sizeof *o + PAIR_BYTES(tenant, id));

    o->r = *r;
    o->cfg = cfg;
    struct str key = pair_write(o->key, tenant, id);
    one_free(map_del(&s->by_key, key));
    map_put(&s->by_key, key, o);
    *r = (struct stored_agent){0};
}

void stored_each(const struct stored *s, stored_cb *cb, void *ctx)
{
    void *o;

    for (size_t pos = 0; s != NULL && map_next(&s->by_key, &pos, &o);)
        if (((struct stored_one *)o)->cfg != NULL)
            cb(ctx, settings_of(((struct stored_one *)o)->cfg));
}

void stored_forget(struct dispatch *d, struct str tenant)
{
    struct stored *s = d->stored;
    void *at;

    for (size_t pos = 0; map_next(&s->by_key, &pos, &at);) {
        struct stored_one *o = at;
        if (!str_eq(str_of(o->r.tenant), tenant))
            continue;
        map_del(&s->by_key, str_of(o->key));
        agents_change(d->agents, tenant, str_of(o->r.id), NULL);
        one_free(o);
    }
    hosted_update(d);
}

/* Why dispatch.added forbids an agent of this entry; NULL: it does not. */
static const char *why_not_here(const struct dispatch *d, const struct agent_settings *s)
{
    const struct substrate_ops *ops = substrate_find(str_of(s->substrate));

    if (strcmp(d->env.settings->added, "all") == 0)
        return NULL;
    if ((ops->can & SUBSTRATE_HOSTED) != 0)
        return s->command == NULL
                   ? NULL
                   : "Added agents may not run programs on this machine (dispatch.added: remote). "
                     "Make it an entry of the configuration file.";
    return (ops->can & SUBSTRATE_LOCAL) == 0
               ? NULL
               : "Added agents may not use files and programs of this machine "
                 "(dispatch.added: remote). Make it an entry of the configuration file.";
}

static bool load(void *ctx, struct str key, void *thing)
{
    struct stored *s = ctx;
    struct stored_agent *r = thing;
    struct json_parser *a = json_parser_new(), *b = json_parser_new();
    struct buf entry = BUF_INIT, why = BUF_INIT;

    join(a, b, r, (struct json){0}, &entry);
    struct config *cfg = parse_entry(buf_str(&entry), &why);
    const char *wrong = cfg != NULL ? why_not_here(s->d, settings_of(cfg)) : NULL;
    if (wrong != NULL) { /* it was added when dispatch.added was all */
        buf_add_z(&why, wrong);
        config_free(cfg);
        cfg = NULL;
    }
    if (cfg == NULL)
        log_warn(NULL, "stored agent left out: tenant=%s agent=%s why=%s", r->tenant, r->id,
                 buf_z(&why));
    put(s, r, cfg);
    buf_wipe(&entry);
    buf_done(&why);
    json_parser_free(a);
    json_parser_free(b);
    return true;
}

enum bh_err stored_open(struct dispatch *d, struct stored **ret_s, char *ret_why)
{
    struct stored *s = xcalloc(1, sizeof *s);
    struct record_reader *reader = record_reader_new(d->env.seal);
    enum bh_err err;

    s->d = d;
    err = record_load(d->env.store, &stored_form, reader, STR_NULL, load, s, ret_why);
    record_reader_free(reader);
    *ret_s = s;
    return err;
}

void stored_free(struct stored *s)
{
    void *o;

    if (s == NULL)
        return;
    for (size_t pos = 0; map_next(&s->by_key, &pos, &o);)
        one_free(o);
    map_done(&s->by_key);
    free(s);
}

/* ---- showing ---- */

/* {entry..., "secrets": [names], "created_at", "changed_at"} */
static void write_agent(struct jw *w, struct json_parser *parser, const struct stored_agent *r)
{
    struct json doc = {0};

    jw_obj(w);
    jw_kstr(w, "id", str_of(r->id));
    jw_kstr(w, "tenant", str_of(r->tenant));
    if (json_parse(parser, str_of(r->entry), &doc))
        write_others(w, doc, (struct json){0});
    jw_karr(w, "secrets");
    if (r->secrets != NULL && json_parse(parser, str_of(r->secrets), &doc))
        for (struct json_iter it = {0}; json_next(doc, &it);)
            jw_str(w, it.key);
    jw_end_arr(w);
    jw_ki64(w, "created_at", r->created_ms);
    jw_ki64(w, "changed_at", r->changed_ms);
    jw_end_obj(w);
}

/* ---- changes ---- */

struct changing {
    struct dispatch_call call;
    struct stored_agent r;
    struct config *cfg; /* owned; NULL: a removal */
    const char *verb;   /* "added" */
    struct spawn *run; /* asks tmux for a pane; the entry is written once all its panes are there */
    size_t at;         /* the next pane; 0: the target; then the sessions */
    char *pane;        /* owned */
};

static void changing_free(struct dispatch_call *c)
{
    struct changing *w = container_of(c, struct changing, call);

    spawn_cancel(&w->run);
    free(w->pane);
    record_done(&stored_form, &w->r);
    config_free(w->cfg);
}

static void on_changed(void *ctx, enum bh_err err)
{
    struct changing *w = ctx;
    struct dispatch_call *c = &w->call;
    struct stored *s = c->d->stored;

    c->put = NULL;
    if (err != BH_OK) {
        call_fail_store(c, BH_UNAVAILABLE);
        call_end(c);
        return;
    }
    struct str tenant = str_of(c->tenant), id = str_of(c->agent);
    if (w->cfg == NULL) {
        struct stored_one *o = find(s, tenant, id);
        if (o != NULL)
            map_del(&s->by_key, str_of(o->key));
        one_free(o);
        agents_change(c->d->agents, tenant, id, NULL);
        buf_add_z(&c->json, "{\"ok\":true}");
    } else {
        struct jw j = jw_begin(&c->json);
        write_agent(&j, c->d->json, &w->r);
        put(s, &w->r, w->cfg);
        agents_change(c->d->agents, tenant, id, settings_of(w->cfg));
        w->cfg = NULL;
    }
    hosted_update(c->d);
    log_info(NULL, "agent %s: tenant=%s agent=%s", w->verb, c->tenant, c->agent);
    call_end(c);
}

static bool fail(struct dispatch_call *c, enum fault_class cls, const char *why)
{
    fault_set(&c->fault, cls, "%s", why);
    return false;
}

/* False: the agent is in the file, or there is none; the fault is set. */
static bool may_change(struct dispatch_call *c, struct str tenant, struct str id, bool adds)
{
    const struct agent_config *is = agents_entry(c->d->agents, tenant, id);
    const struct agent_config *of_all = agents_entry(c->d->agents, STR_NULL, id);
    bool stored = find(c->d->stored, tenant, id) != NULL;
    size_t n = 0;
    void *o;

    if ((is != NULL && !is->stored) || (of_all != NULL && !adds && !stored)) {
        fault_set(&c->fault, FAULT_CONFIGURED,
                  "The agent '%.*s' is an entry of the configuration file: change it there.",
                  STR_FMT(id));
        return false;
    }
    if (adds && stored) {
        fault_set(&c->fault, FAULT_EXISTS,
                  "The tenant has an agent '%.*s' already: change it with PATCH, or bellhop agent "
                  "set.",
                  STR_FMT(id));
        return false;
    }
    if (!adds && !stored) {
        call_fail_unknown(c, id);
        return false;
    }
    for (size_t pos = 0; adds && map_next(&c->d->stored->by_key, &pos, &o);)
        n += str_eq(str_of(((struct stored_one *)o)->r.tenant), tenant);
    if (adds && (map_count(&c->d->stored->by_key) >= STORED_MAX || n >= STORED_TENANT_MAX))
        return fail(c, FAULT_BUSY, "There are too many added agents: remove some.");
    return true;
}

/* Checks the new entry and fills w->r and w->cfg.  False: the fault is set. */
static bool build(struct changing *w, struct json change, const struct stored_agent *is)
{
    struct json_parser *a = json_parser_new(), *b = json_parser_new();
    struct buf entry = BUF_INIT, why = BUF_INIT;
    struct dispatch_call *c = &w->call;
    struct str id = json_str(change, "id"), tenant = json_str(change, "tenant");
    struct stored_agent none = {.id = c->agent, .tenant = c->tenant, .entry = (char[]){"{}"}};
    int64_t now_ms = clock_wall_ms(c->d->env.clock);
    struct json whole;
    bool ok = false;

    if ((id.p != NULL && !str_eq(id, str_of(c->agent))) ||
        (tenant.p != NULL && !str_eq(tenant, str_of(c->tenant)))) {
        fail(c, FAULT_INVALID, "id and tenant of an agent do not change.");
        goto out;
    }
    join(a, b, is != NULL ? is : &none, change, &entry);
    if (entry.n > STORED_ENTRY_BYTES) {
        fail(c, FAULT_TOO_LARGE, "An entry has at most 16 KiB.");
        goto out;
    }
    w->cfg = parse_entry(buf_str(&entry), &why);
    if (w->cfg == NULL) {
        fault_set(&c->fault, FAULT_INVALID, "%s.", buf_z(&why));
        goto out;
    }
    const char *wrong = why_not_here(c->d, settings_of(w->cfg));
    if (settings_of(w->cfg)->node != NULL) {
        fail(c, FAULT_INVALID,
             "node: an agent of another machine is an entry of the configuration file.");
        goto out;
    }
    if ((wrong != NULL && !fail(c, FAULT_REFUSED, wrong)) ||
        !json_parse(a, buf_str(&entry), &whole))
        goto out;
    w->r = (struct stored_agent){.tenant = xstrdup(c->tenant),
                                 .id = xstrdup(c->agent),
                                 .entry = part_of(w->cfg, whole, false),
                                 .secrets = part_of(w->cfg, whole, true),
                                 .created_ms = is != NULL ? is->created_ms : now_ms,
                                 .changed_ms = now_ms};
    ok = true;
out:
    buf_wipe(&entry);
    buf_done(&why);
    json_parser_free(a);
    json_parser_free(b);
    return ok;
}

static void write_change(struct changing *w)
{
    struct dispatch_call *c = &w->call;
    struct buf key = BUF_INIT;

    if (w->cfg != NULL) {
        c->put =
            record_put(c->d->env.store, &stored_form, c->d->env.seal, &w->r, true, on_changed, w);
        return;
    }
    struct stored_agent of = {.tenant = c->tenant, .id = c->agent};
    record_write(&stored_form, NULL, &of, &key, NULL);
    struct store_kv item = {KV_DELETE, stored_form.ns, buf_str(&key), STR_NULL};
    c->put = store_put(c->d->env.store, &item, 1, true, on_changed, w);
    buf_done(&key);
}

/* ---- the panes that an entry names ---- */

static void check_next(struct changing *w);

static void on_pane(void *ctx, const struct spawn_end *end)
{
    struct changing *w = ctx;
    struct dispatch_call *c = &w->call;

    w->run = NULL;
    if (end->well) {
        check_next(w);
        return;
    }
    fault_set(&c->fault, FAULT_INVALID, "tmux has no pane '%.100s': %.*s", w->pane,
              STR_FMT(str_trim(end->errors).n > 0 ? str_trim(end->errors) : str_of(end->how)));
    call_end(c);
}

/* The next pane that the entry names; NULL: no more. */
static const char *next_pane(struct changing *w)
{
    const struct agent_settings *s = settings_of(w->cfg);
    const char *equals;

    if (w->at++ == 0)
        return s->target;
    while (s->sessions != NULL && s->sessions[w->at - 2] != NULL) {
        equals = strchr(s->sessions[w->at - 2], '=');
        if (equals != NULL)
            return equals + 1;
        w->at++;
    }
    return NULL;
}

static void check_next(struct changing *w)
{
    struct spawner *spawner = w->call.d->env.spawner;
    const char *pane = next_pane(w), *base[4];
    int number;

    if (pane == NULL) {
        write_change(w);
        return;
    }
    free(w->pane);
    w->pane = xstrdup(pane);
    tmux_command(settings_of(w->cfg), base);
    number = spawner != NULL ? spawner_learn(spawner, base) : -1;
    const char *const look[] = {"has-session", "-t", w->pane, NULL};
    if (number >= 0)
        w->run = spawner_run(spawner,
                             &(struct spawn_order){.command = (unsigned)number,
                                                   .more = look,
                                                   .timeout_ms = 5000},
                             on_pane, w);
    if (w->run == NULL) {
        fault_set(&w->call.fault, FAULT_UNAVAILABLE, "tmux cannot be asked for its panes now.");
        call_end_later(&w->call);
    }
}

/* ---- the calls ---- */

static struct changing *begin(struct dispatch *d, struct str tenant, struct str id,
                              const char *verb, dispatch_cb *done, void *ctx)
{
    struct changing *w = call_new(d, sizeof *w, changing_free, done, ctx);

    w->call.tenant = str_dup(tenant);
    w->call.agent = str_dup(id);
    w->call.word = "agent";
    w->verb = verb;
    return w;
}

static struct dispatch_call *go(struct changing *w, bool ready)
{
    if (!ready || !call_claim(&w->call))
        call_end_later(&w->call);
    else if (w->cfg != NULL && settings_of(w->cfg)->target != NULL)
        check_next(w);
    else
        write_change(w);
    return &w->call;
}

struct dispatch_call *dispatch_agent_add(struct dispatch *d, struct str tenant, struct json entry,
                                         dispatch_cb *done, void *ctx)
{
    struct str id = json_str(entry, "id");
    struct changing *w = begin(d, tenant, id, "added", done, ctx);
    bool ok = facts_name_ok(tenant) && facts_name_ok(id)
                  ? may_change(&w->call, tenant, id, true) && build(w, entry, NULL)
                  : fail(&w->call, FAULT_INVALID,
                         "id and tenant: expected 1 to 120 printable characters without blanks.");

    return go(w, ok);
}

struct dispatch_call *dispatch_agent_set(struct dispatch *d, struct str tenant, struct str id,
                                         struct json change, dispatch_cb *done, void *ctx)
{
    struct changing *w = begin(d, tenant, id, "changed", done, ctx);

    return go(w, may_change(&w->call, tenant, id, false) &&
                     build(w, change, &find(d->stored, tenant, id)->r));
}

struct dispatch_call *dispatch_agent_remove(struct dispatch *d, struct str tenant, struct str id,
                                            dispatch_cb *done, void *ctx)
{
    struct changing *w = begin(d, tenant, id, "removed", done, ctx);

    return go(w, may_change(&w->call, tenant, id, false));
}

bool dispatch_agent_show(struct dispatch *d, struct str tenant, struct str id, struct jw *w)
{
    const struct stored_one *o = find(d->stored, tenant, id);
    const struct agent_config *c = agents_entry(d->agents, tenant, id);

    if (c == NULL)
        c = agents_entry(d->agents, STR_NULL, id);
    if (c != NULL && !c->stored)
        o = NULL; /* the file's entry hides it */
    if (c == NULL && o == NULL)
        return false;
    jw_obj(w);
    jw_kstr(w, "source", o != NULL ? STR("added") : STR("configured"));
    jw_key(w, "entry");
    if (o != NULL) {
        write_agent(w, d->json, &o->r);
    } else {
        jw_obj(w);
        jw_kstr(w, "id", str_of(c->s.id));
        jw_kstr_opt(w, "tenant", str_of(c->s.tenant));
        jw_kstr(w, "substrate", str_of(c->s.substrate));
        jw_kstr_opt(w, "name", str_of(c->s.name));
        jw_kstr_opt(w, "target", str_of(agent_target(c)));
        jw_end_obj(w);
    }
    jw_end_obj(w);
    return true;
}
