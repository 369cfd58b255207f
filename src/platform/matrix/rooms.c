/* rooms.c - what is known of rooms and people, invitations, encrypted rooms.  (matrix_priv.h has
 * the calls.)
 *
 *      matrix_room    bot US room -> name, members, who of ours is there, an invitation
 *
 * A homeserver tells of a room what changes, and not again after a restart what was told before.
 * So the facts of a room are a record, and a room without one is asked for: members, encryption,
 * name.  The number of members tells a private chat from a group.
 *
 *      invited --may its author reach an agent there?--yes--> join
 *                 '--no--> waits; asked again every INVITES_MS, since people get linked
 *
 * A person who is not linked yet may write "/link CODE" as the reason of the invitation.
 *
 * A reply to a message that is older than this process is for the bot if the message is the bot's:
 * the homeserver is asked whose it is.
 *
 * An encrypted room gets one sentence, and nothing else: bellhop holds no keys. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "platform/matrix/matrix_priv.h"
#include "store/erasure.h"

enum {
    INVITES_MS = 2000,
    MAX_INVITES = 1024, /* that wait; beyond it the oldest one is declined */
    FEW_MEMBERS = 10,   /* in such rooms a change is a reason to count again */
    MAX_USERS = 2048,   /* bytes of mx_room.users */
    MAX_NAME = 256,
};
#define NOTICE \
    "This room is encrypted, and I cannot read encrypted messages. Please write to me in a room " \
    "without encryption."

/* ---- records ---- */

struct room_record {
    struct str bot, room, name, users, inviter, invited, invited_since;
    uint32_t members;
    bool known, joined, encrypted, told;
};
static const struct record_field room_fields[] = {
    RECORD_FIELD(struct room_record, bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct room_record, room, "room", RECORD_KEY | RECORD_NEEDED, .max = MX_ID_MAX),
    RECORD_FIELD(struct room_record, name, "name", 0, .max = MAX_NAME),
    RECORD_FIELD(struct room_record, users, "users", 0, .max = MAX_USERS),
    RECORD_FIELD(struct room_record, inviter, "inviter", 0, .max = MX_ID_MAX),
    RECORD_FIELD(struct room_record, invited, "invited", 0, .max = MX_ID_MAX),
    RECORD_FIELD(struct room_record, invited_since, "invited_since", 0, .max = 4096),
    RECORD_FIELD(struct room_record, members, "members", 0),
    RECORD_FIELD(struct room_record, known, "known", 0),
    RECORD_FIELD(struct room_record, joined, "joined", 0),
    RECORD_FIELD(struct room_record, encrypted, "encrypted", 0),
    RECORD_FIELD(struct room_record, told, "told", 0),
};
const struct record_form mx_room_form =
    RECORD_FORM("matrix_room", struct room_record, room_fields, .lossy = true);

void mx_room_save(struct matrix *m, const struct mx_room *r)
{
    struct room_record x = {.bot = str_of(m->base.bot),
                            .room = r->lru.key,
                            .name = str_of(r->name),
                            .users = str_of(r->users),
                            .inviter = str_of(r->inviter),
                            .invited = str_of(r->invited),
                            .invited_since = str_of(r->invited_since),
                            .members = r->members,
                            .known = r->known,
                            .joined = r->joined,
                            .encrypted = r->encrypted,
                            .told = r->told};

    if (r->joined || r->users != NULL || r->invited != NULL || r->told)
        record_put(m->base.env->store, &mx_room_form, NULL, &x, false, NULL, NULL);
    else
        record_delete_like(m->base.env->store, &mx_room_form, &x);
}

static void set(char **at, struct str s)
{
    free(*at);
    *at = str_dup_opt(s);
}

/* @since stays the first one while the invitation is repeated. */
static void set_invitation(struct mx_room *r, struct str inviter, struct str invited,
                           struct str since)
{
    bool was = r->invited != NULL;

    set(&r->inviter, inviter);
    set(&r->invited, invited);
    if (!was || r->invited == NULL)
        set(&r->invited_since, since);
    if (!was && r->invited != NULL) {
        list_append(&r->of->invited, &r->waits);
        r->of->n_invited++;
    } else if (was && r->invited == NULL) {
        list_remove(&r->waits);
        r->of->n_invited--;
    }
}

static void end_invitation(struct mx_room *r)
{
    set_invitation(r, STR_NULL, STR_NULL, STR_NULL);
}

static void room_free(struct lru *l, void *entry)
{
    struct mx_room *r = entry;

    end_invitation(r);
    r->of->n_encrypted -= r->encrypted;
    free(r->name);
    free(r->users);
}

static void name_free(struct lru *l, void *entry)
{
    free(((struct mx_name *)entry)->name);
}

static void said_free(struct lru *l, void *entry)
{
    free(((struct mx_said *)entry)->named);
}

struct mx_room *mx_room_use(struct matrix *m, struct str id)
{
    struct mx_room *r = lru_use(&m->rooms, id, sizeof *r);

    r->of = m;
    return r;
}

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct matrix *m = ctx;
    const struct room_record *x = thing;

    if (!mx_is_room(x->room) || lru_is_full(&m->rooms))
        return mx_is_room(x->room);
    struct mx_room *r = mx_room_use(m, x->room);
    set(&r->name, x->name);
    set(&r->users, x->users);
    set_invitation(r, x->inviter, x->invited, x->invited_since);
    r->members = x->members;
    r->known = x->known;
    r->joined = x->joined;
    r->encrypted = x->encrypted;
    r->told = x->told;
    m->n_encrypted += r->encrypted;
    return true;
}

static void on_invites(struct timer *t);

enum bh_err mx_rooms_load(struct matrix *m, char *ret_why)
{
    struct room_record like = {.bot = str_of(m->base.bot)};

    m->rooms.max = m->names.max = m->said.max = MX_MAX_ROOMS;
    m->rooms.free = room_free;
    m->names.free = name_free;
    m->said.free = said_free;
    list_init(&m->invited);
    timer_init(&m->invites, on_invites);
    return record_load_like(m->base.env->store, &mx_room_form, &like, 1, on_record, m, ret_why);
}

void mx_rooms_done(struct matrix *m)
{
    timer_stop(m->base.env->clock, &m->invites);
    lru_done(&m->rooms);
    lru_done(&m->names);
    lru_done(&m->said);
}

/* ---- people ---- */

void mx_person_named(struct matrix *m, struct str user, struct str name)
{
    struct mx_name *n = lru_use(&m->names, user, sizeof *n);

    set(&n->name, name.n <= MAX_NAME ? name : STR_NULL);
}

struct str mx_person_name(const struct matrix *m, struct str user)
{
    const struct mx_name *n = lru_find(&m->names, user);

    return n != NULL ? str_of(n->name) : STR_NULL;
}

void mx_forget(struct platform *p, struct str person)
{
    struct matrix *m = matrix_of(p);
    struct mx_name *n = lru_find(&m->names, person);

    if (n != NULL)
        lru_drop(&m->names, n);
    list_each (&m->invited, it, nxt) {
        struct mx_room *r = list_entry(it, struct mx_room, waits);
        if (str_eq(str_of(r->inviter), person))
            end_invitation(r);
    }
}

static bool is_of_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);

    return str_eq(s->platform, STR("matrix")) && str_eq(json_str(doc, "inviter"), s->user);
}

static const struct erase_records of_person[] = {
    {.ns = "matrix_room", .word = "people", .is = is_of_person},
    {0},
};
const struct eraser mx_eraser = {.of_person = of_person};

/* ---- who of ours is in a room ---- */

static bool has_user(const struct mx_room *r, struct str user)
{
    struct str rest = str_of(r->users), one;

    while (str_split(&rest, RECORD_SEPARATOR, &one))
        if (str_eq(one, user))
            return true;
    return false;
}

static void set_user(struct mx_room *r, struct str user, bool there)
{
    struct str rest = str_of(r->users), one;
    BUF_LOCAL all = BUF_INIT;

    while (str_split(&rest, RECORD_SEPARATOR, &one))
        if (one.n > 0 && !str_eq(one, user))
            buf_printf(&all, "%.*s%c", STR_FMT(one), RECORD_SEPARATOR);
    if (there && all.n + user.n + 1 <= MAX_USERS)
        buf_printf(&all, "%.*s%c", STR_FMT(user), RECORD_SEPARATOR);
    set(&r->users, buf_str(&all));
}

size_t mx_room_selves(const struct matrix *m, const struct mx_room *r, struct mx_self *ret,
                      size_t max)
{
    struct str rest = str_of(r != NULL ? r->users : NULL), one, bot = str_of(m->base.bot);
    size_t n = 0;

    if (r == NULL || r->joined || r->users == NULL)
        ret[n++] = (struct mx_self){bot, mx_person_name(m, bot)};
    while (n < max && str_split(&rest, RECORD_SEPARATOR, &one))
        if (one.n > 0)
            ret[n++] = (struct mx_self){one, mx_person_name(m, one)};
    return n;
}

void mx_room_actor(const struct matrix *m, const struct mx_room *r, const struct action_from *from,
                   struct buf *ret_user)
{
    struct mx_self first = {0};

    if (from != NULL && r != NULL && r->users != NULL) {
        mx_virtual_write(ret_user, str_of(m->base.bot), str_of(m->cfg->base.tenant), from->tenant,
                         from->instance);
        if (has_user(r, buf_str(ret_user)))
            return;
        buf_reset(ret_user);
    }
    mx_room_selves(m, r, &first, 1);
    buf_add_str(ret_user, first.id);
}

/* ---- facts ---- */

static void count(struct mx_room *r, const struct mx_state *s)
{
    bool now = str_eq(s->membership, STR("join")), before = str_eq(s->was, STR("join"));

    if (str_eq(s->membership, STR("invite")) || str_eq(s->membership, STR("knock")))
        return; /* not there, now or before */
    if (now == before && s->was.n > 0)
        return; /* a new name */
    if (r->members < FEW_MEMBERS || (s->was.n == 0 && !now))
        r->known = false;
    else
        r->members += now ? 1u : -1u; /* whoever joins for the first time has no state before */
}

void mx_room_left(struct matrix *m, struct str room, struct str user)
{
    struct mx_room *r = mx_room_find(m, room);

    if (r == NULL)
        return;
    if (str_eq(user, str_of(m->base.bot)))
        r->joined = false;
    else
        set_user(r, user, false);
    if (str_eq(str_of(r->invited), user))
        end_invitation(r);
    r->known = false;
    mx_room_save(m, r);
}

static void our_membership(struct matrix *m, struct mx_room *r, const struct mx_state *s, bool live)
{
    if (str_eq(s->membership, STR("join"))) {
        if (str_eq(s->user, str_of(m->base.bot)))
            r->joined = true;
        else
            set_user(r, s->user, true);
        if (str_eq(str_of(r->invited), s->user))
            end_invitation(r);
        if (r->encrypted)
            mx_room_is_encrypted(m, r);
        if (mx_is_service(m)) /* a sync tells the state of a room that was joined */
            mx_room_learn(m, r);
    } else if (str_eq(s->membership, STR("invite"))) {
        if (live && mx_is_service(m))
            mx_invited(m, r->lru.key, s->sender, s->user, s->reason);
    } else {
        mx_room_left(m, r->lru.key, s->user);
    }
}

void mx_room_apply(struct matrix *m, struct str room, const struct mx_state *s, bool live)
{
    struct mx_room *r = mx_room_use(m, room);

    switch (s->fact) {
    case MX_MEMBER:
        if (str_eq(s->membership, STR("join")))
            mx_person_named(m, s->user, s->name);
        if (live)
            count(r, s);
        if (mx_is_ours(m, s->user))
            our_membership(m, r, s, live);
        break;
    case MX_NAME:
        set(&r->name, s->name.n <= MAX_NAME ? s->name : STR_NULL);
        break;
    case MX_ENCRYPTION:
        mx_room_is_encrypted(m, r);
        break;
    case MX_TOMBSTONE: /* as if its author had invited the bot to the next room */
        if (live && mx_is_room(s->name) && mx_is_user(s->sender) && r->joined)
            mx_invited(m, s->name, s->sender, str_of(m->base.bot), STR_NULL);
        break;
    case MX_OTHER:
        return;
    }
    mx_room_save(m, r);
}

struct learning {
    struct matrix *m;
    char room[MX_ID_MAX + 1];
    enum { MEMBERS, ENCRYPTION, NAME } step;
};

static void learn_step(struct matrix *m, struct mx_room *r, int step);

static void on_learned(void *ctx, const struct sender_verdict *v)
{
    const struct learning *l = ctx;
    struct matrix *m = l->m;
    struct mx_room *r = mx_room_find(m, str_of(l->room));
    bool done = v->end == SENDER_DONE;

    if (r == NULL) {
        mx_in_room_known(m, str_of(l->room));
        return;
    }
    if (!done && v->end != SENDER_REFUSED) { /* not now: its events wait */
        learn_step(m, r, l->step);
        return;
    }
    if (l->step == MEMBERS) {
        struct json joined = json_get(v->answer, "joined");
        r->members = done ? (uint32_t)json_count(joined) : 0;
        size_t names = 0;
        for (struct json_iter it = {0}; done && names < 256 && json_next(joined, &it); names++) {
            mx_person_named(m, it.key, json_str(it.value, "display_name"));
            if (str_eq(it.key, str_of(m->base.bot)))
                r->joined = true;
            else if (mx_is_ours(m, it.key))
                set_user(r, it.key, true);
        }
        if (done) {
            learn_step(m, r, ENCRYPTION);
            return;
        }
    } else if (l->step == ENCRYPTION) {
        if (done)
            mx_room_is_encrypted(m, r);
        learn_step(m, r, NAME);
        return;
    } else if (done) {
        struct str name = json_str(v->answer, "name");
        set(&r->name, name.n <= MAX_NAME ? name : STR_NULL);
    }
    r->known = true;
    r->asking = false;
    mx_room_save(m, r);
    mx_in_room_known(m, r->lru.key);
}

static void learn_step(struct matrix *m, struct mx_room *r, int step)
{
    static const char *const paths[] = {"/joined_members", "/state/m.room.encryption/",
                                        "/state/m.room.name/"};
    struct learning *l = xcalloc(1, sizeof *l);
    BUF_LOCAL path = BUF_INIT, user = BUF_INIT;

    l->m = m;
    l->step = step;
    snprintf(l->room, sizeof l->room, "%.*s", STR_FMT(r->lru.key));
    mx_room_path(&path, r->lru.key, paths[step]);
    mx_room_actor(m, r, NULL, &user);
    mx_ask(m, "GET", buf_str(&path), STR_NULL, buf_str(&user),
           &(struct sender_question){.told = on_learned, .ctx = l, .owns_ctx = true});
}

void mx_room_learn(struct matrix *m, struct mx_room *r)
{
    if (r->asking)
        return;
    r->asking = true;
    learn_step(m, r, MEMBERS);
}

/* ---- whose message is it? ---- */

struct mx_said *mx_said_by(struct matrix *m, struct str id, bool ours)
{
    struct mx_said *s = lru_use(&m->said, id, sizeof *s);

    s->foreign = !ours;
    s->asking = false;
    return s;
}

bool mx_is_own(void *m, struct str id)
{
    const struct mx_said *s = lru_find(&((struct matrix *)m)->said, id);

    return s != NULL && !s->foreign;
}

struct asking_whose {
    struct matrix *m;
    char room[MX_ID_MAX + 1], id[MX_ID_MAX + 1];
};

/* Without an answer it counts as somebody else's, so that the events behind it do not wait. */
static void on_whose(void *ctx, const struct sender_verdict *v)
{
    const struct asking_whose *q = ctx;

    if (v->end != SENDER_DONE)
        log_debug(&q->m->base.log, "nobody knows whose %s is: %s", q->id, v->why);
    mx_said_by(q->m, str_of(q->id),
               v->end == SENDER_DONE && mx_is_ours(q->m, json_str(v->answer, "sender")));
    mx_in_room_known(q->m, str_of(q->room));
}

static void ask_whose(struct matrix *m, const struct mx_room *r, struct str id)
{
    struct asking_whose *q = xcalloc(1, sizeof *q);
    BUF_LOCAL path = BUF_INIT, user = BUF_INIT;

    q->m = m;
    snprintf(q->room, sizeof q->room, "%.*s", STR_FMT(r->lru.key));
    snprintf(q->id, sizeof q->id, "%.*s", STR_FMT(id));
    mx_room_path(&path, r->lru.key, "/event/");
    percent_encode(&path, id);
    mx_room_actor(m, r, NULL, &user);
    mx_ask(m, "GET", buf_str(&path), STR_NULL, buf_str(&user),
           &(struct sender_question){.told = on_whose, .ctx = q, .owns_ctx = true});
}

bool mx_knows_answered(struct matrix *m, const struct mx_room *r, struct json event, bool dm)
{
    bool reaction = str_eq(json_str(event, "type"), STR("m.reaction"));
    struct str id = json_str(event, "event_id"), to = mx_answered(event);

    if (reaction ? !m->cfg->base.reactions : dm) /* in a private chat all is for the bot */
        return true;
    if (!reaction && mx_is_event(id))
        mx_said_by(m, id, false);
    struct mx_said *s = to.n > 0 && !r->encrypted ? lru_find(&m->said, to) : NULL;
    if (to.n == 0 || r->encrypted || (s != NULL && !s->asking))
        return true;
    if (s == NULL) {
        mx_said_by(m, to, false)->asking = true;
        ask_whose(m, r, to);
    }
    return false;
}

/* ---- encrypted rooms ---- */

struct mx_told_ctx {
    struct matrix *m;
    char room[MX_ID_MAX + 1];
};

static void on_told(void *ctx, const struct sender_verdict *v)
{
    const struct mx_told_ctx *t = ctx;
    struct mx_room *r = mx_room_find(t->m, str_of(t->room));

    if (r == NULL || v->end == SENDER_DONE)
        return;
    r->told = false; /* the next message there is another occasion */
    mx_room_save(t->m, r);
}

void mx_room_is_encrypted(struct matrix *m, struct mx_room *r)
{
    BUF_LOCAL path = BUF_INIT, body = BUF_INIT, user = BUF_INIT;
    struct jw w = jw_begin(&body);
    char rest[64];

    m->n_encrypted += !r->encrypted;
    r->encrypted = true;
    if (r->told || (!r->joined && r->users == NULL)) {
        mx_room_save(m, r);
        return;
    }
    r->told = true;
    mx_room_save(m, r);
    log_info(&m->base.log, "room %.*s is encrypted: nothing is read or written there",
             STR_FMT(r->lru.key));
    snprintf(rest, sizeof rest, "/send/m.room.message/bellhop-n%016llx",
             (unsigned long long)host_number(m->base.host));
    mx_room_path(&path, r->lru.key, rest);
    mx_room_actor(m, r, NULL, &user);
    jw_obj(&w);
    jw_kstr(&w, "msgtype", STR("m.notice"));
    jw_kstr(&w, "body", STR(NOTICE));
    jw_kobj(&w, "m.mentions");
    jw_end_obj(&w);
    jw_end_obj(&w);
    struct mx_told_ctx *t = xcalloc(1, sizeof *t);
    t->m = m;
    snprintf(t->room, sizeof t->room, "%.*s", STR_FMT(r->lru.key));
    mx_ask(m, "PUT", buf_str(&path), buf_str(&body), buf_str(&user),
           &(struct sender_question){.told = on_told, .ctx = t, .owns_ctx = true});
}

/* ---- invitations ---- */

static void on_target(void *ctx, struct str tenant, struct str instance)
{
    ++*(size_t *)ctx;
}

/* The invitation as a message of its author. */
static struct event as_event(const struct matrix *m, const struct mx_room *r, struct str text)
{
    return (struct event){.platform = STR("matrix"),
                          .bot = str_of(m->base.bot),
                          .route_key = r->lru.key,
                          .chat_id = r->lru.key,
                          .chat_type = STR("group"),
                          .scope_id = m->server,
                          .user_id = str_of(r->inviter),
                          .user_name = str_of(r->inviter),
                          .text = text,
                          .mentions_bot = true};
}

/* Would what the author of the invitation writes in the room reach an agent? */
static bool may_join(struct matrix *m, const struct mx_room *r)
{
    BUF_LOCAL tenant = BUF_INIT, instance = BUF_INIT;
    struct event ev = as_event(m, r, STR(""));
    size_t n = 0;

    if (mx_instance_of(m, str_of(r->invited), &tenant, &instance)) {
        ev.only_tenant = buf_str(&tenant);
        ev.only_instance = buf_str(&instance);
    }
    host_each_target(m->base.host, &ev, on_target, &n);
    return n > 0;
}

static void on_joined(void *ctx, const struct sender_verdict *v)
{
    const struct mx_told_ctx *t = ctx;
    struct matrix *m = t->m;
    struct mx_room *r = mx_room_find(m, str_of(t->room));

    m->n.joins += v->end == SENDER_DONE;
    if (r == NULL)
        return;
    r->joining = false;
    if (v->end == SENDER_REFUSED) {
        log_warn(&m->base.log, "room %s cannot be joined: %s", t->room, v->why);
        end_invitation(r);
        mx_room_save(m, r);
    }
}

static void join(struct matrix *m, struct mx_room *r)
{
    BUF_LOCAL path = BUF_INIT;
    struct mx_told_ctx *t = xcalloc(1, sizeof *t);

    r->joining = true;
    t->m = m;
    snprintf(t->room, sizeof t->room, "%.*s", STR_FMT(r->lru.key));
    struct str server = mx_server_of(str_of(r->inviter));
    buf_add_z(&path, MX_CLIENT "/join/");
    percent_encode(&path, r->lru.key);
    buf_add_z(&path, "?via="); /* nobody of ours may be in the room that replaces an upgraded one */
    percent_encode(&path, server);
    buf_add_z(&path, "&server_name="); /* homeservers before version 1.12 */
    percent_encode(&path, server);
    mx_ask(m, "POST", buf_str(&path), STR("{}"), str_of(r->invited),
           &(struct sender_question){.told = on_joined, .ctx = t, .owns_ctx = true});
}

static void on_invites(struct timer *timer)
{
    struct matrix *m = container_of(timer, struct matrix, invites);

    list_each (&m->invited, it, nxt) {
        struct mx_room *r = list_entry(it, struct mx_room, waits);
        if (!r->joining && may_join(m, r))
            join(m, r);
    }
    if (m->n_invited > 0)
        timer_set(m->base.env->clock, &m->invites, INVITES_MS);
}

static void on_stranger(struct platform *p, void *with, enum bh_err err)
{
    struct matrix *m = matrix_of(p);

    timer_set(p->env->clock, &m->invites, 0); /* if there was a right code, its author is linked */
}

/* The relay lists the author among the people who wait to be let in.  A stranger cannot say
 * "/link CODE" in the room, so the reason of the invitation may say it. */
static void take_stranger(struct matrix *m, const struct mx_room *r, struct str reason)
{
    BUF_LOCAL text = BUF_INIT;
    bool code = reason.n > 6 && reason.n <= 100 && (reason.p[0] == '/' || reason.p[0] == '!') &&
                str_starts(str_skip(reason, 1), STR("link "));

    if (code)
        buf_printf(&text, "/%.*s", STR_FMT(str_skip(reason, 1)));
    struct event ev = as_event(m, r, code ? buf_str(&text) : STR("[an invitation to this room]"));
    await_event(&m->base, &(struct webhook_delivery){.ev = &ev}, "", 0, on_stranger);
}

void mx_invited(struct matrix *m, struct str room, struct str inviter, struct str user,
                struct str reason)
{
    struct mx_room *r = mx_room_use(m, room);

    if (!mx_is_user(inviter))
        return;
    if (m->n_invited >= MAX_INVITES && r->invited == NULL) {
        struct mx_room *old = list_entry(m->invited.next, struct mx_room, waits);
        BUF_LOCAL path = BUF_INIT;
        mx_room_path(&path, old->lru.key, "/leave");
        mx_ask(m, "POST", buf_str(&path), STR("{}"), str_of(old->invited),
               &(struct sender_question){0});
        end_invitation(old);
        mx_room_save(m, old);
    }
    set_invitation(r, inviter, user, buf_str(&m->in.since));
    mx_room_save(m, r);
    if (may_join(m, r)) {
        if (!r->joining)
            join(m, r);
    } else {
        struct event ev = as_event(m, r, STR(""));
        m->n.refused_invites++;
        host_refused(m->base.host, &ev,
                     "an invitation by a person who is not linked, to a room that is not open: it "
                     "waits until bellhop link or bellhop route add --open changes that");
        take_stranger(m, r, reason);
    }
    if (!timer_is_set(&m->invites))
        timer_set(m->base.env->clock, &m->invites, INVITES_MS);
}
