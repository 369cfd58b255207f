/* grants.c - design.  (grants.h has the contract.)
 *
 * Each record is one block of memory that carries its own key, and hangs in two places: the gate's
 * table, which finds it, and its instance, which owns it. */
#include "tenancy/grants.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "tenancy/grants_priv.h"

bool grant_id_ok(struct str id)
{
    if (id.n == 0 || id.n > GRANT_ID_MAX || !utf8_valid(id))
        return false;
    for (size_t i = 0; i < id.n; i++)
        if ((unsigned char)id.p[i] < ' ' || id.p[i] == 0x7f)
            return false;
    return true;
}

/* ---- what the changes share ---- */

struct instance_facts *grant_instance_of(const struct gate_instance *to)
{
    return container_of(to, struct instance_facts, gate);
}

bool grant_is_alive(const struct instance_facts *in)
{
    return in != NULL && !list_is_empty(&in->gateways);
}

struct instance_facts *grant_target(struct facts *f, struct change *c, struct grant_who who)
{
    struct instance_facts *in = facts_find_instance(f, who.tenant, who.instance);

    if (grant_is_alive(in))
        return c->to = in;
    change_fail(c, BH_NOT_FOUND, "there is no instance \"%.*s\" of tenant \"%.*s\"",
                STR_FMT(who.instance), STR_FMT(who.tenant));
    return NULL;
}

void grant_submit(struct change *c, struct instance_facts *to)
{
    char subject[PAIR_MAX + 8] = "";

    if (to != NULL) /* a leading separator, so that no gateway id reads the same */
        snprintf(subject, sizeof subject, "\x1f%.*s", STR_FMT(to->key));
    change_submit(c, to != NULL ? subject : NULL);
}

bool grant_id_bad(struct change *c, const char *what, struct str id)
{
    if (grant_id_ok(id))
        return false;
    change_fail(c, BH_MALFORMED, "%s must be 1 to %d bytes of text without control characters",
                what, GRANT_ID_MAX);
    return true;
}

void grant_put_who(struct jw *w, const struct instance_facts *in)
{
    jw_kstr(w, "tenant", in->gate.tenant);
    jw_kstr(w, "instance", in->gate.instance);
}

void grant_join(struct buf *out, struct str a, struct str b, struct str c)
{
    const struct str parts[] = {a, b, c};

    for (size_t i = 0; i < 3; i++) {
        if (i > 0 && parts[i].p != NULL)
            buf_add_c(out, '\x1f');
        if (parts[i].p != NULL)
            buf_add_str(out, parts[i]);
    }
}

/* ---- bindings ---- */

struct binding *binding_new(struct str platform, struct str user, int64_t created_ms)
{
    struct binding *b = xcalloc(1, sizeof *b + platform.n + user.n + 2);

    list_init(&b->link);
    b->created_ms = created_ms;
    memcpy(b->bytes, platform.p, platform.n);
    b->bytes[platform.n] = '\x1f';
    memcpy(b->bytes + platform.n + 1, user.p, user.n);
    b->key = str_make(b->bytes, platform.n + 1 + user.n);
    b->owner.platform = str_make(b->bytes, platform.n);
    b->owner.user = str_make(b->bytes + platform.n + 1, user.n);
    return b;
}

static struct binding *binding_of(struct gate_link *l)
{
    return container_of(l, struct binding, author);
}

/* A person may be linked to many instances, and an instance to many people: both lists are walked
 * side by side, until the shorter ends. */
struct binding *binding_find(const struct facts *f, const struct instance_facts *in,
                             struct str platform, struct str user)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, user, STR_NULL);
    struct gate_link *l = key.p != NULL ? map_get(&f->gate.authors, key) : NULL;

    for (struct list *it = in->bindings.next; l != NULL && it != &in->bindings;
         l = l->next, it = it->next) {
        struct binding *b = list_entry(it, struct binding, link);
        if (l->to == &in->gate)
            return binding_of(l);
        if (str_eq(b->key, key))
            return b;
    }
    return NULL;
}

void binding_attach(struct facts *f, struct instance_facts *in, struct binding *b)
{
    struct gate_link *first = map_get(&f->gate.authors, b->key);

    b->author.to = &in->gate;
    if (first == NULL) {
        b->author.prev = &b->author;
        map_put(&f->gate.authors, b->key, &b->author);
    } else { /* oldest first: they are attached in order of age */
        b->author.prev = first->prev;
        first->prev->next = &b->author;
        first->prev = &b->author;
    }
    b->owner.next = in->gate.owners;
    b->owner.at = &in->gate.owners;
    if (b->owner.next != NULL)
        b->owner.next->at = &b->owner.next;
    in->gate.owners = &b->owner;
    list_append(&in->bindings, &b->link);
}

static void leave_author(struct facts *f, struct binding *b)
{
    struct gate_link *first = map_get(&f->gate.authors, b->key), *next = b->author.next;

    if (first != &b->author) {
        b->author.prev->next = next;
        (next != NULL ? next : first)->prev = b->author.prev;
    } else if (next == NULL) {
        map_del(&f->gate.authors, b->key);
    } else {
        next->prev = b->author.prev;
        map_put(&f->gate.authors, binding_of(next)->key, next);
    }
}

void binding_drop(struct facts *f, struct binding *b)
{
    struct instance_facts *in = grant_instance_of(b->author.to);

    if (map_get(&f->gate.dm_defaults, b->key) == &in->gate)
        map_del(&f->gate.dm_defaults, b->key);
    leave_author(f, b);
    *b->owner.at = b->owner.next;
    if (b->owner.next != NULL)
        b->owner.next->at = b->owner.at;
    list_remove(&b->link);
    free(b);
}

static void binding_key(struct buf *out, const struct instance_facts *in, const struct binding *b)
{
    grant_join(out, b->key, in->key, STR_NULL);
}

void binding_put(struct change *c, const struct instance_facts *in, const struct binding *b)
{
    struct change_item *item = change_put(c, KV_PUT, NS_BINDING);
    struct jw w = jw_begin(&item->value);

    binding_key(&item->key, in, b);
    jw_obj(&w);
    jw_kstr(&w, "platform", b->owner.platform);
    jw_kstr(&w, "user", b->owner.user);
    grant_put_who(&w, in);
    jw_ki64(&w, "created", b->created_ms);
    jw_end_obj(&w);
}

static bool prepare_link(struct facts *f, struct change *c)
{
    struct binding *b = c->thing;

    if (binding_find(f, c->to, b->owner.platform, b->owner.user) == NULL)
        binding_put(c, c->to, b);
    return true;
}

static void apply_link(struct facts *f, struct change *c)
{
    binding_attach(f, c->to, c->thing);
    c->thing = NULL;
    change_announce(f, "grant", NULL);
}

static bool person_bad(struct change *c, struct str platform, struct str user)
{
    return change_name_bad(c, "platform", platform, true) || grant_id_bad(c, "the user", user);
}

void grant_link(struct facts *f, struct grant_who who, struct str platform, struct str user,
                facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_link, apply_link, done, ctx);

    if (!person_bad(c, platform, user) && grant_target(f, c, who) != NULL) {
        c->thing = binding_new(platform, user, clock_wall_ms(f->env.clock));
        c->thing_free = free;
    }
    grant_submit(c, c->to);
}

void binding_forget(struct facts *f, struct change *c, const struct binding *b)
{
    struct change_item *item = change_put(c, KV_DELETE, NS_BINDING);

    binding_key(&item->key, c->to, b);
    if (map_get(&f->gate.dm_defaults, b->key) == &c->to->gate)
        buf_add_str(&change_put(c, KV_DELETE, NS_DM_DEFAULT)->key, b->key);
}

static bool prepare_unlink(struct facts *f, struct change *c)
{
    const struct binding *like = c->thing;
    const struct binding *b = binding_find(f, c->to, like->owner.platform, like->owner.user);

    if (b == NULL)
        return change_fail(c, BH_NOT_FOUND, "this person is not linked to the instance");
    binding_forget(f, c, b);
    return true;
}

static void apply_unlink(struct facts *f, struct change *c)
{
    const struct binding *like = c->thing;

    binding_drop(f, binding_find(f, c->to, like->owner.platform, like->owner.user));
    change_announce(f, "grant", NULL);
}

void grant_unlink(struct facts *f, struct grant_who who, struct str platform, struct str user,
                  facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_unlink, apply_unlink, done, ctx);

    if (!person_bad(c, platform, user) && grant_target(f, c, who) != NULL) {
        c->thing = binding_new(platform, user, 0);
        c->thing_free = free;
    }
    grant_submit(c, c->to);
}

bool grant_is_linked(const struct facts *f, const struct gate_instance *to, struct str platform,
                     struct str user)
{
    return binding_find(f, grant_instance_of(to), platform, user) != NULL;
}

const struct gate_instance *grant_newest_link(const struct facts *f, struct str platform,
                                              struct str user)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, user, STR_NULL);
    const struct gate_link *l = key.p != NULL ? map_get(&f->gate.authors, key) : NULL;

    while (l != NULL && l->next != NULL)
        l = l->next;
    return l != NULL ? l->to : NULL;
}

/* ---- the choice among several ---- */

static bool prepare_dm_default(struct facts *f, struct change *c)
{
    const struct binding *like = c->thing;

    if (binding_find(f, c->to, like->owner.platform, like->owner.user) == NULL)
        return change_fail(c, BH_NOT_FOUND, "this person is not linked to the instance");
    struct change_item *item = change_put(c, KV_PUT, NS_DM_DEFAULT);
    struct jw w = jw_begin(&item->value);
    buf_add_str(&item->key, like->key);
    jw_obj(&w);
    jw_kstr(&w, "platform", like->owner.platform);
    jw_kstr(&w, "user", like->owner.user);
    grant_put_who(&w, c->to);
    jw_end_obj(&w);
    return true;
}

static void apply_dm_default(struct facts *f, struct change *c)
{
    const struct binding *like = c->thing;
    struct binding *b = binding_find(f, c->to, like->owner.platform, like->owner.user);

    if (b != NULL) /* the table borrows the binding's own key */
        map_put(&f->gate.dm_defaults, b->key, &c->to->gate);
    change_announce(f, "grant", NULL);
}

void grant_dm_default(struct facts *f, struct grant_who who, struct str platform, struct str user,
                      facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_dm_default, apply_dm_default, done, ctx);

    if (!person_bad(c, platform, user) && grant_target(f, c, who) != NULL) {
        c->thing = binding_new(platform, user, 0);
        c->thing_free = free;
    }
    grant_submit(c, c->to);
}

const struct gate_instance *grant_instance(const struct facts *f, struct grant_who who)
{
    const struct instance_facts *in = facts_find_instance(f, who.tenant, who.instance);

    return in != NULL ? &in->gate : NULL;
}
