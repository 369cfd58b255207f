/* gateways.c - gateways, their instances and tenants, in memory and as records.
 *
 * Adding, changing or revoking a gateway touches only its own record and the lists the record is
 * in.  So loading is linear, and the cost of a change does not depend on the number of gateways.
 *
 *      tenant --instances--> instance --gateways--> gateway (not revoked, by age)
 *        '-- gate.live -------'  (while the instance has a gateway that is not revoked)
 *
 * A gateway has up to GATEWAY_SECRETS secrets, the newest first.  Old secrets stay valid for a
 * while, because the gateway's previous process may still use them:
 *
 *      after a rotation     for as long as the operator said
 *      after a provision    for an hour, and until a newer secret is used: a gateway that never
 *                           uses the new secret did not get the answer
 *
 * The (platform, bot) pair that a gateway named last is in its own fields; the other pairs are one
 * string, "platform \x1f bot \x1e" each, the pair named last first.  The bots that an operator
 * added the gateway for are another such string. */
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/uncleared.h"
#include "store/store.h"
#include "tenancy/facts_priv.h"

struct str pair_key(char scratch[PAIR_MAX], struct str a, struct str b)
{
    if (a.n + b.n + 1 > PAIR_MAX)
        return STR_NULL; /* matches nothing */
    memcpy(scratch, a.p != NULL ? a.p : "", a.n);
    scratch[a.n] = '\x1f';
    memcpy(scratch + a.n + 1, b.p != NULL ? b.p : "", b.n);
    return str_make(scratch, a.n + 1 + b.n);
}

/* ---- tenants ---- */

struct tenant_facts *facts_make_tenant(struct facts *f, struct str name)
{
    struct tenant_facts *t = map_get(&f->tenants, name);

    if (t != NULL)
        return t;
    t = xcalloc(1, sizeof *t + name.n + 1);
    memcpy(t->bytes, name.p != NULL ? name.p : "", name.n);
    t->name = str_make(t->bytes, name.n);
    t->gate.name = t->name;
    list_init(&t->gate.live);
    list_init(&t->instances);
    list_init(&t->routes);
    map_put(&f->tenants, t->name, t);
    return t;
}

bool facts_tenant_is_live(const struct facts *f, struct str tenant)
{
    const struct tenant_facts *t = map_get(&f->tenants, tenant);

    return t != NULL && !list_is_empty(&t->gate.live);
}

size_t facts_tenants(const struct facts *f, struct str *ret_any)
{
    if (f->n_gateways > 0)
        *ret_any = str_of(list_first(&f->gateways, struct gateway, link)->tenant);
    return f->n_tenants;
}

/* ---- instances ---- */

struct instance_facts *facts_find_instance(const struct facts *f, struct str tenant,
                                           struct str name)
{
    BH_UNCLEARED char scratch[PAIR_MAX];
    struct str key = pair_key(scratch, tenant, name);

    return key.p != NULL ? map_get(&f->instances, key) : NULL;
}

struct instance_facts *facts_make_instance(struct facts *f, struct str tenant, struct str name)
{
    struct instance_facts *in = facts_find_instance(f, tenant, name);
    char scratch[PAIR_MAX];

    if (in != NULL)
        return in;
    struct str key = pair_key(scratch, tenant, name);
    in = xcalloc(1, sizeof *in + key.n + 1);
    memcpy(in->bytes, key.p, key.n);
    in->key = str_make(in->bytes, key.n);
    in->tenant = facts_make_tenant(f, tenant);
    in->gate.tenant = in->tenant->name;
    in->gate.instance = str_skip(in->key, tenant.n + 1);
    in->gate.default_require_address = list_is_linked(&in->tenant->strict);
    list_init(&in->gateways);
    list_init(&in->routes);
    list_init(&in->gate.people);
    list_init(&in->scopes);
    list_init(&in->codes);
    list_append(&in->tenant->instances, &in->link);
    map_put(&f->instances, in->key, in);
    f->by_number = xgrow(f->by_number, f->n_instances, &f->cap_instances, sizeof in);
    f->by_number[f->n_instances++] = in;
    struct instance_facts *first = map_get(&f->by_name, in->gate.instance);
    if (first == NULL) {
        map_put(&f->by_name, in->gate.instance, in);
    } else {
        in->namesake = first->namesake;
        first->namesake = in;
    }
    return in;
}

static bool is_known(const struct instance_facts *in)
{
    return in->n_gateways > 0 || !list_is_empty(&in->routes);
}

bool facts_knows(const struct facts *f, struct str tenant, struct str instance)
{
    const struct instance_facts *in = facts_find_instance(f, tenant, instance);

    return in != NULL && is_known(in);
}

size_t facts_tenants_with(const struct facts *f, struct str instance, bool gone_too,
                          struct str *ret_tenant)
{
    const struct instance_facts *in = map_get(&f->by_name, instance);
    size_t n = 0;

    for (; in != NULL && n < 2; in = in->namesake) {
        if (gone_too ? !is_known(in) : list_is_empty(&in->gateways))
            continue;
        *ret_tenant = in->gate.tenant;
        n++;
    }
    return n;
}

/* ---- secrets ---- */

static void wipe(char *text)
{
    secret_wipe(text, strlen(text));
    free(text);
}

bool secret_is_live(const struct gateway *g, size_t i, int64_t now_ms)
{
    const struct gateway_secret *s = &g->secrets[i];
    bool newer_was_used = false;

    while (i-- > 0)
        newer_was_used |= g->secrets[i].used;
    return s->until_ms == 0 || s->until_ms > now_ms || (s->waits && !newer_was_used);
}

bool secret_was_used(struct gateway *g, size_t i)
{
    bool news = !g->secrets[i].used && g->n_secrets > 1;

    g->secrets[i].used = true;
    return news;
}

void secrets_push(struct gateway *g, char *secret, int64_t now_ms, int64_t keep_ms, bool until_used)
{
    struct gateway_secret old[GATEWAY_SECRETS];
    size_t n = 0;

    if (g->n_secrets == 1)
        g->secrets[0].used = true; /* the only secret: a connected gateway must have it */
    for (size_t i = 0; i < g->n_secrets; i++) {
        struct gateway_secret s = g->secrets[i];
        if (!secret_is_live(g, i, now_ms) || (!until_used && keep_ms <= 0)) {
            wipe(s.text);
            continue;
        }
        if (s.until_ms == 0 || s.until_ms > now_ms + keep_ms)
            s.until_ms = now_ms + keep_ms;
        s.waits = until_used;
        old[n++] = s;
    }
    if (n == GATEWAY_SECRETS) {
        size_t out = n - 1; /* the oldest that was never used, else the oldest */
        while (out > 0 && old[out].used)
            out--;
        out = old[out].used ? n - 1 : out;
        wipe(old[out].text);
        memmove(&old[out], &old[out + 1], (--n - out) * sizeof *old);
    }
    g->secrets[0] = (struct gateway_secret){.text = secret};
    memcpy(&g->secrets[1], old, n * sizeof *old);
    g->n_secrets = n + 1;
}

/* ---- identities ---- */

static bool next_pair(struct str *rest, struct str *ret_platform, struct str *ret_bot)
{
    struct str pair;

    if (!str_split(rest, '\x1e', &pair) || pair.n == 0)
        return false;
    str_split(&pair, '\x1f', ret_platform);
    *ret_bot = pair;
    return true;
}

static void add_pair(struct buf *out, struct str platform, struct str bot)
{
    buf_add_str(out, platform);
    buf_add_c(out, '\x1f');
    buf_add_str(out, bot);
    buf_add_c(out, '\x1e');
}

bool identity_nth(const struct gateway *g, size_t n, struct str *ret_platform, struct str *ret_bot)
{
    struct str rest = str_of(g->also);

    *ret_platform = str_of(g->platform);
    *ret_bot = str_of(g->bot);
    if (g->platform == NULL)
        return false;
    while (n-- > 0)
        if (!next_pair(&rest, ret_platform, ret_bot))
            return false;
    return true;
}

void identity_take(struct gateway *g, struct str platform, struct str bot)
{
    struct str p, b, before = STR_NULL;
    BUF_LOCAL also = BUF_INIT;

    for (size_t n = 0, kept = 1; identity_nth(g, n, &p, &b); n++) {
        if (str_eq(p, platform))
            before = b;
        else if (kept++ < IDENTITIES_MAX)
            add_pair(&also, p, b);
    }
    char *as = str_dup_opt(str_is_empty(bot) ? before : bot);
    free(g->platform);
    free(g->bot);
    free(g->also);
    g->platform = str_dup(platform);
    g->bot = as;
    g->also = also.n != 0 ? buf_take(&also) : NULL;
}

bool identity_has(const struct gateway *g, struct str platform, struct str bot)
{
    struct str p, b;

    for (size_t n = 0; identity_nth(g, n, &p, &b); n++)
        if (str_eq(p, platform) && str_eq(b, bot))
            return true;
    return false;
}

bool gateway_has_bot(const struct gateway *g, struct str platform, struct str bot)
{
    struct str rest = str_of(g->bots), p, b;

    while (next_pair(&rest, &p, &b))
        if (str_eq(p, platform) && str_eq(b, bot))
            return true;
    return false;
}

static void write_pair(struct jw *w, struct str platform, struct str bot)
{
    jw_obj(w);
    jw_kstr(w, "platform", platform);
    jw_kstr(w, "bot", bot);
    jw_end_obj(w);
}

void identity_write(struct jw *w, const struct gateway *g)
{
    struct str rest = str_of(g->bots), p, b;

    jw_karr(w, "identities");
    for (size_t n = 0; identity_nth(g, n, &p, &b); n++)
        write_pair(w, p, b);
    jw_end_arr(w);
    jw_karr(w, "bots");
    while (next_pair(&rest, &p, &b))
        write_pair(w, p, b);
    jw_end_arr(w);
}

/* ---- the record ---- */

static const struct record_field pair_fields[] = {
    NAME_FIELD(struct gateway_pair, platform, 0),
    RECORD_FIELD(struct gateway_pair, bot, "bot", 0, .max = NAME_BYTES),
};
static const struct record_form pair_form = RECORD_FORM(NULL, struct gateway_pair, pair_fields);

static const struct record_field secret_fields[] = {
    RECORD_FIELD(struct gateway_secret_record, text, "secret", RECORD_NEEDED | RECORD_SEALED),
    RECORD_FIELD(struct gateway_secret_record, until_ms, "until", 0),
    RECORD_FIELD(struct gateway_secret_record, used, "used", 0),
    RECORD_FIELD(struct gateway_secret_record, waits, "waits", 0),
};
static const struct record_form secret_form =
    RECORD_FORM(NULL, struct gateway_secret_record, secret_fields);

static const struct record_field fields[] = {
    NAME_FIELD(struct gateway_record, id, RECORD_KEY),
    NAME_FIELD(struct gateway_record, tenant, 0),
    NAME_FIELD(struct gateway_record, instance, 0),
    RECORD_FIELD(struct gateway_record, wake_url, "wakeUrl", 0),
    RECORD_FIELD(struct gateway_record, platform, "platform", 0, .max = NAME_BYTES),
    RECORD_FIELD(struct gateway_record, bot, "bot", 0, .max = NAME_BYTES),
    RECORD_LIST(struct gateway_record, also, n_also, "also", &pair_form, IDENTITIES_MAX - 1),
    RECORD_LIST(struct gateway_record, bots, n_bots, "bots", &pair_form, IDENTITIES_MAX),
    RECORD_FIELD(struct gateway_record, created_ms, "created", 0),
    RECORD_FIELD(struct gateway_record, rotated_ms, "rotated", 0),
    RECORD_FIELD(struct gateway_record, revoked_ms, "revoked", 0),
    RECORD_FIELD(struct gateway_record, ackless, "ackless", 0),
    RECORD_FIELD(struct gateway_record, display_name, "displayName", 0),
    RECORD_FIELD(struct gateway_record, newer, "newer", 0),
    RECORD_FIELD(struct gateway_record, drops, "drops", 0),
    RECORD_LIST(struct gateway_record, secrets, n_secrets, "secrets", &secret_form,
                GATEWAY_SECRETS),
};
const struct record_form gateway_form = RECORD_FORM("gateway", struct gateway_record, fields);

void gateway_view(const struct gateway *g, struct gateway_record *ret)
{
    struct str bots = str_of(g->bots);

    *ret = (struct gateway_record){.id = str_of(g->id),
                                   .tenant = str_of(g->tenant),
                                   .instance = str_of(g->instance),
                                   .wake_url = str_of(g->wake_url),
                                   .platform = str_of(g->platform),
                                   .bot = str_of(g->bot),
                                   .display_name = str_of(g->display_name),
                                   .created_ms = g->created_ms,
                                   .rotated_ms = g->rotated_ms,
                                   .revoked_ms = g->revoked_ms,
                                   .ackless = g->ackless,
                                   .newer = g->newer,
                                   .drops = g->drops,
                                   .n_secrets = g->n_secrets};
    while (ret->n_also < IDENTITIES_MAX - 1 &&
           identity_nth(g, ret->n_also + 1, &ret->also[ret->n_also].platform,
                        &ret->also[ret->n_also].bot))
        ret->n_also++;
    while (ret->n_bots < IDENTITIES_MAX &&
           next_pair(&bots, &ret->bots[ret->n_bots].platform, &ret->bots[ret->n_bots].bot))
        ret->n_bots++;
    for (size_t i = 0; i < g->n_secrets; i++)
        ret->secrets[i] = (struct gateway_secret_record){
            .text = str_of(g->secrets[i].text),
            .until_ms = g->secrets[i].until_ms,
            .used = g->secrets[i].used,
            .waits = g->secrets[i].waits,
        };
}

static char *pack_pairs(const struct gateway_pair *pairs, size_t n)
{
    struct buf out = BUF_INIT;

    for (size_t i = 0; i < n; i++)
        add_pair(&out, pairs[i].platform, pairs[i].bot);
    return n > 0 ? buf_take(&out) : NULL;
}

struct gateway *gateway_new(const struct gateway_record *r)
{
    struct gateway *g = xcalloc(1, sizeof *g);

    g->id = str_dup(r->id);
    g->tenant = str_dup(r->tenant);
    g->instance = str_dup(str_is_empty(r->instance) ? r->id : r->instance);
    g->wake_url = str_dup_opt(r->wake_url);
    g->platform = str_dup_opt(r->platform);
    g->bot = str_dup_opt(r->bot);
    g->display_name = str_dup_opt(r->display_name);
    g->also = pack_pairs(r->also, r->n_also);
    g->bots = pack_pairs(r->bots, r->n_bots);
    g->created_ms = r->created_ms;
    g->rotated_ms = r->rotated_ms;
    g->revoked_ms = r->revoked_ms;
    g->ackless = r->ackless;
    g->newer = r->newer;
    g->drops = r->drops;
    for (size_t i = 0; i < r->n_secrets; i++)
        g->secrets[i] = (struct gateway_secret){.text = str_dup(r->secrets[i].text),
                                                .until_ms = r->secrets[i].until_ms,
                                                .used = r->secrets[i].used,
                                                .waits = r->secrets[i].waits};
    g->n_secrets = (uint8_t)r->n_secrets;
    return g;
}

struct gateway *gateway_copy(const struct gateway *g)
{
    struct gateway_record r;

    gateway_view(g, &r);
    return gateway_new(&r);
}

/* ---- a gateway's texts ---- */

enum { TEXTS = 8, OWN_TEXTS = 6 };

/* All texts but the id; the two that the instance has too come last. */
static void texts_of(struct gateway *g, char **ret_at[TEXTS])
{
    char **const at[TEXTS] = {&g->wake_url, &g->platform,     &g->bot,    &g->also,
                              &g->bots,     &g->display_name, &g->tenant, &g->instance};

    memcpy(ret_at, at, sizeof at);
}

static void free_texts(struct gateway *g)
{
    char **text[TEXTS];

    texts_of(g, text);
    for (size_t i = 0; i < TEXTS && g->words == NULL; i++)
        free(*text[i]);
    free(g->words);
    g->words = NULL;
}

/* Moves the texts to one block.  Tenant and instance are borrowed from @in, which lives longer. */
static void settle_texts(struct gateway *g, const struct instance_facts *in)
{
    char **text[TEXTS], *old[TEXTS];
    size_t bytes = 0;

    texts_of(g, text);
    for (size_t i = 0; i < TEXTS; i++) {
        old[i] = *text[i];
        bytes += i < OWN_TEXTS && old[i] != NULL ? strlen(old[i]) + 1 : 0;
    }
    char *to = g->words = xmalloc(bytes);
    for (size_t i = 0; i < OWN_TEXTS; i++)
        if (old[i] != NULL) {
            *text[i] = to;
            to = stpcpy(to, old[i]) + 1;
        }
    g->tenant = (char *)in->tenant->name.p;
    g->instance = (char *)in->gate.instance.p;
    for (size_t i = 0; i < TEXTS; i++)
        free(old[i]);
}

/* ---- gateways of an instance ---- */

/* Updates what depends on the instance's gateways.  An instance is gone when all its gateways are
 * revoked.  Without any gateway it is not gone: a route may be added before the first gateway. */
static void follow(struct facts *f, struct instance_facts *in)
{
    struct tenant_facts *t = in->tenant;
    bool alive = !list_is_empty(&in->gateways), gone = in->n_gateways > 0 && !alive;
    bool tenant_was_alive = !list_is_empty(&t->gate.live);

    in->gate.newer = alive && list_entry(in->gateways.prev, struct gateway, by_inst)->newer;
    if (gone != in->gate.gone) {
        in->gate.gone = gone;
        routes_follow(&in->routes);
    }
    if (alive == list_is_linked(&in->gate.of_tenant))
        return;
    if (alive)
        list_append(&t->gate.live, &in->gate.of_tenant);
    else
        list_remove(&in->gate.of_tenant);
    f->n_live += alive ? 1 : -1;
    if (tenant_was_alive != !list_is_empty(&t->gate.live))
        routes_follow(&t->routes);
}

static const struct gateway *by_inst(const struct list *it)
{
    return list_entry(it, const struct gateway, by_inst);
}

static void instance_add(struct facts *f, struct gateway *g)
{
    struct instance_facts *in = facts_make_instance(f, str_of(g->tenant), str_of(g->instance));
    struct list *at = &in->gateways; /* a new gateway is usually the youngest */

    settle_texts(g, in);
    in->n_gateways++;
    f->n_tenants += in->tenant->n_gateways++ == 0;
    if (g->revoked_ms == 0) {
        while (at->prev != &in->gateways && by_inst(at->prev)->created_ms > g->created_ms)
            at = at->prev;
        list_add_before(at, &g->by_inst);
        if (g->wake_url != NULL && (in->waker == NULL || in->waker->created_ms <= g->created_ms))
            in->waker = g;
    }
    follow(f, in);
}

/* Does not call follow(): the caller adds the changed gateway again first. */
static struct instance_facts *instance_drop(struct facts *f, struct gateway *g)
{
    struct instance_facts *in = facts_find_instance(f, str_of(g->tenant), str_of(g->instance));

    in->n_gateways--;
    f->n_tenants -= --in->tenant->n_gateways == 0;
    list_remove(&g->by_inst);
    if (in->waker != g)
        return in;
    in->waker = NULL; /* the newest of the others that has a wake URL */
    for (struct list *it = in->gateways.prev; it != &in->gateways && in->waker == NULL;
         it = it->prev)
        if (by_inst(it)->wake_url != NULL)
            in->waker = by_inst(it);
    return in;
}

bool facts_is_first(const struct facts *f, const struct gateway *g)
{
    const struct instance_facts *in =
        facts_find_instance(f, str_of(g->tenant), str_of(g->instance));

    return in->gateways.next == &g->by_inst;
}

size_t facts_live_instances(const struct facts *f)
{
    return f->n_live;
}

size_t facts_instances_of(const struct facts *f, struct str tenant, struct str *ret_names,
                          size_t room)
{
    const struct tenant_facts *t = map_get(&f->tenants, tenant);
    size_t n = 0;

    if (t == NULL)
        return 0;
    const struct list *head = &t->gate.live;
    for (const struct list *it = head->next; it != head && n < room; it = it->next)
        ret_names[n++] = list_entry(it, const struct gate_instance, of_tenant)->instance;
    return n;
}

const struct gateway *facts_newest_gateway(const struct facts *f, struct str tenant,
                                           struct str instance)
{
    const struct instance_facts *in = facts_find_instance(f, tenant, instance);

    return in != NULL && !list_is_empty(&in->gateways) ? by_inst(in->gateways.prev) : NULL;
}

const char *facts_wake_url(const struct facts *f, struct str tenant, struct str instance)
{
    const struct instance_facts *in = facts_find_instance(f, tenant, instance);

    return in != NULL && in->waker != NULL ? in->waker->wake_url : NULL;
}

/* ---- gateways ---- */

void gateway_wipe_secrets(struct gateway *g)
{
    for (size_t i = 0; i < g->n_secrets; i++) {
        wipe(g->secrets[i].text);
        g->secrets[i].text = NULL;
    }
    g->n_secrets = 0;
}

static void gateway_clear(struct gateway *g)
{
    gateway_wipe_secrets(g);
    free_texts(g);
}

void gateway_free(struct gateway *g)
{
    if (g == NULL)
        return;
    gateway_clear(g);
    if (!g->shares_id)
        free(g->id);
    free(g);
}

void facts_link_gateway(struct facts *f, struct gateway *g)
{
    list_append(&f->gateways, &g->link);
    f->n_gateways++;
    instance_add(f, g);
    if (strcmp(g->id, g->instance) == 0) { /* borrows it; an id never moves afterwards */
        free(g->id);
        g->id = g->instance;
        g->shares_id = true;
    }
    map_put(&f->by_id, str_of(g->id), g);
}

void facts_relink_gateway(struct facts *f, struct gateway *g, struct gateway *with)
{
    struct instance_facts *was = instance_drop(f, g);
    struct gateway old = *g;

    free(with->id);
    *g = *with;
    g->link = old.link; /* its neighbours in the list point here */
    g->id = old.id;
    g->shares_id = old.shares_id;
    if (old.revoked_ms == 0) { /* these change in memory first */
        g->ackless = old.ackless;
        g->newer |= old.newer;
        g->drops |= old.drops;
    }
    free(with);
    instance_add(f, g);
    gateway_clear(&old);
    follow(f, was);
}

const struct gateway *facts_gateway(const struct facts *f, struct str id)
{
    return map_get(&f->by_id, id);
}

size_t facts_gateways(const struct facts *f, struct list **ret_head)
{
    *ret_head = (struct list *)&f->gateways;
    return f->n_gateways;
}

void gateway_table_free(struct facts *f)
{
    list_each (&f->gateways, it, nxt)
        gateway_free(list_entry(it, struct gateway, link));
    map_done(&f->by_id);
    map_done(&f->by_name);
    map_done_all(&f->instances);
    map_done_all(&f->tenants);
    free(f->by_number);
}
