/* people.c - what is known of the people who write.  (whatsapp_priv.h has the contract.)
 *
 *      whatsapp_person   bot US id -> number, time and id of the last message
 *      whatsapp_moved    bot US old id -> new id
 *
 * WhatsApp takes free text only within 24 hours of the person's last message.  So the time of that
 * message is kept, on disk too; a record that is a minute old is not written again.  A window that
 * closed less than MARGIN_MS ago counts as open: Meta's clock decides.  A person of whom nothing is
 * known has an unknown window, and Meta is asked.
 *
 * Bounds: the people silent for longest are forgotten, and everybody after KEPT_MS, or after the
 * retention if it is shorter. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/mem.h"
#include "platform/whatsapp/whatsapp_priv.h"
#include "store/erasure.h"
#include "store/record.h"

enum {
    MAX_PEOPLE = 131072,
    MAX_MOVES = 65536,
    MAX_HOPS = 4,
    MARGIN_MS = 300000,
    SAVE_MS = 60000,
    SWEEP_MS = 3600000,
};
#define KEPT_MS ((int64_t)30 * 24 * 3600 * 1000)

struct wa_moved {
    struct list age;
    char *from, *to; /* owned */
};

struct wa_person_record {
    struct str bot, id, number, last;
    int64_t heard_ms;
    bool shut;
};
#define PERSON(member, name, ...) RECORD_FIELD(struct wa_person_record, member, name, __VA_ARGS__)
static const struct record_field person_fields[] = {
    PERSON(bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    PERSON(id, "id", RECORD_KEY | RECORD_NEEDED, .max = WA_ID_MAX),
    PERSON(number, "number", 0, .max = 23),
    PERSON(last, "last", 0, .max = WA_WAMID_MAX),
    PERSON(heard_ms, "heard", 0),
    PERSON(shut, "shut", 0),
};
const struct record_form wa_person_form =
    RECORD_FORM("whatsapp_person", struct wa_person_record, person_fields, .lossy = true);

struct wa_moved_record {
    struct str bot, from, to;
    int64_t at_ms;
};
static const struct record_field moved_fields[] = {
    RECORD_FIELD(struct wa_moved_record, bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct wa_moved_record, from, "from", RECORD_KEY | RECORD_NEEDED,
                 .max = WA_ID_MAX),
    RECORD_FIELD(struct wa_moved_record, to, "to", RECORD_NEEDED, .max = WA_ID_MAX),
    RECORD_FIELD(struct wa_moved_record, at_ms, "at", 0),
};
const struct record_form wa_moved_form =
    RECORD_FORM("whatsapp_moved", struct wa_moved_record, moved_fields, .lossy = true);

/* ---- one person ---- */

static void person_free(struct lru *l, void *entry)
{
    struct whatsapp *w = container_of(l, struct whatsapp, people);
    struct wa_person *p = entry;

    if (map_get(&w->numbers, str_of(p->number)) == p)
        map_del(&w->numbers, str_of(p->number));
    free(p->name);
}

static void person_delete(struct whatsapp *w, struct wa_person *p)
{
    struct wa_person_record r = {.bot = str_of(w->base.bot), .id = p->lru.key};

    if (p->saved_ms != 0)
        record_delete_like(w->base.env->store, &wa_person_form, &r);
    lru_drop(&w->people, p);
}

static void forget_oldest(struct whatsapp *w)
{
    int64_t retention_ms = w->base.env->retention_ms;
    int64_t keep_ms = retention_ms > 0 && retention_ms < KEPT_MS ? retention_ms : KEPT_MS;

    for (struct wa_person *p; (p = lru_oldest(&w->people)) != NULL;) {
        int64_t last_ms = p->heard_ms != 0 ? p->heard_ms : p->saved_ms;
        if (!lru_is_full(&w->people) && last_ms + keep_ms > clock_wall_ms(w->base.env->clock))
            return;
        person_delete(w, p);
    }
}

static void on_sweep(struct timer *t)
{
    struct whatsapp *w = container_of(t, struct whatsapp, sweep);

    forget_oldest(w);
    timer_set(w->base.env->clock, t, SWEEP_MS);
}

static struct wa_person *person_get(struct whatsapp *w, struct str id)
{
    return lru_use(&w->people, id, sizeof(struct wa_person));
}

static void set_number(struct whatsapp *w, struct wa_person *p, struct str number)
{
    if (number.n == 0 || number.n >= sizeof p->number || str_eq(str_of(p->number), number) ||
        str_eq(p->lru.key, number))
        return;
    if (map_get(&w->numbers, str_of(p->number)) == p)
        map_del(&w->numbers, str_of(p->number));
    struct wa_person *other = map_get(&w->numbers, number);
    if (other != NULL) { /* the number has changed hands, and the map must not borrow from it */
        map_del(&w->numbers, number);
        other->number[0] = '\0';
    }
    memcpy(p->number, number.p, number.n);
    p->number[number.n] = '\0';
    map_put(&w->numbers, str_of(p->number), p);
}

static void person_save(struct whatsapp *w, struct wa_person *p)
{
    struct wa_person_record r = {.bot = str_of(w->base.bot),
                                 .id = p->lru.key,
                                 .number = str_of(p->number),
                                 .last = str_of(p->last),
                                 .heard_ms = p->heard_ms,
                                 .shut = p->shut};

    record_put(w->base.env->store, &wa_person_form, NULL, &r, false, NULL, NULL);
    p->saved_ms = p->heard_ms != 0 ? p->heard_ms : clock_wall_ms(w->base.env->clock);
}

void wa_person_heard(struct whatsapp *w, const struct wa_out *out)
{
    int64_t now_ms = clock_wall_ms(w->base.env->clock), at_ms = out->at_ms;
    struct wa_person *p = person_get(w, out->ev.chat_id);
    bool first = p->saved_ms == 0 || p->shut;

    at_ms = at_ms > now_ms ? now_ms : at_ms;
    bool had_number = p->number[0] != '\0';
    set_number(w, p, out->ev.user_id_alt);
    if (out->name.n > 0 && !str_eq(out->name, str_of(p->name))) {
        free(p->name);
        p->name = str_dup(out->name);
    }
    if (at_ms >= p->heard_ms) {
        p->heard_ms = at_ms;
        p->shut &= at_ms + WA_WINDOW_MS <= now_ms;
        if (str_eq(out->ev.message_id, out->ev.event_id)) { /* no typing under a reaction */
            p->typed_ms = 0;
            memcpy(p->last, out->ev.event_id.p, out->ev.event_id.n);
            p->last[out->ev.event_id.n] = '\0';
        }
    }
    if (first || p->heard_ms - p->saved_ms >= SAVE_MS || had_number != (p->number[0] != '\0'))
        person_save(w, p);
    forget_oldest(w);
}

struct wa_person *wa_person_find(struct whatsapp *w, struct str id)
{
    struct wa_person *p = lru_find(&w->people, id);

    return p != NULL ? p : map_get(&w->numbers, id);
}

/* ---- the window ---- */

void wa_person_shut(struct whatsapp *w, struct str id)
{
    struct wa_person *p = wa_person_find(w, id);

    if (p == NULL)
        p = person_get(w, id);
    w->n.shut++;
    if (p->shut)
        return;
    p->shut = true;
    person_save(w, p);
    forget_oldest(w);
}

enum wa_window wa_window(struct whatsapp *w, struct str id)
{
    const struct wa_person *p = wa_person_find(w, id);

    if (p == NULL || (p->heard_ms == 0 && !p->shut))
        return WA_UNKNOWN;
    bool over = clock_wall_ms(w->base.env->clock) - p->heard_ms >= WA_WINDOW_MS + MARGIN_MS;
    return p->shut || over ? WA_SHUT : WA_OPEN;
}

void wa_window_why(struct whatsapp *w, struct str id, char ret[256])
{
    const struct wa_person *p = wa_person_find(w, id);
    time_t at_s = p != NULL ? (time_t)(p->heard_ms / 1000) : 0;
    char when[64] = "";
    struct tm tm;

    if (at_s > 0 && gmtime_r(&at_s, &tm) != NULL)
        strftime(when, sizeof when, ", which came at %Y-%m-%d %H:%M UTC", &tm);
    snprintf(ret, 256,
             "WhatsApp takes free text only within 24 hours of the person's last message%s; "
             "later only a template may be sent: %s",
             when,
             w->cfg->template.name != NULL ? "the configured one takes texts of at most 1,000 "
                                             "characters"
                                           : "none is configured");
}

/* ---- new ids of people ---- */

static void move_free(struct whatsapp *w, struct wa_moved *m)
{
    if (map_get(&w->moved_to, str_of(m->from)) == m)
        map_del(&w->moved_to, str_of(m->from));
    if (map_get(&w->moved_from, str_of(m->to)) == m)
        map_del(&w->moved_from, str_of(m->to));
    list_remove(&m->age);
    free(m->from);
    free(m->to);
    free(m);
}

static void move_delete(struct whatsapp *w, struct wa_moved *m)
{
    struct wa_moved_record r = {.bot = str_of(w->base.bot), .from = str_of(m->from)};

    record_delete_like(w->base.env->store, &wa_moved_form, &r);
    move_free(w, m);
}

static bool remember_move(struct whatsapp *w, struct str from, struct str to)
{
    struct wa_moved *old = map_get(&w->moved_to, from), *m;

    if (str_eq(from, to) || (old != NULL && str_eq(str_of(old->to), to)))
        return false;
    if (old != NULL)
        move_free(w, old);
    if ((old = map_get(&w->moved_from, to)) != NULL)
        move_delete(w, old);
    if (map_count(&w->moved_to) >= MAX_MOVES)
        move_delete(w, list_first(&w->moves, struct wa_moved, age));
    m = xcalloc(1, sizeof *m);
    m->from = str_dup(from);
    m->to = str_dup(to);
    list_append(&w->moves, &m->age);
    map_put(&w->moved_to, str_of(m->from), m);
    map_put(&w->moved_from, str_of(m->to), m);
    return true;
}

void wa_person_moved(struct whatsapp *w, struct str from, struct str to)
{
    struct wa_moved_record r = {.bot = str_of(w->base.bot),
                                .from = from,
                                .to = to,
                                .at_ms = clock_wall_ms(w->base.env->clock)};
    struct wa_person *was = wa_person_find(w, from);

    if (!remember_move(w, from, to))
        return;
    record_put(w->base.env->store, &wa_moved_form, NULL, &r, false, NULL, NULL);
    if (was == NULL || lru_find(&w->people, to) != NULL)
        return;
    struct wa_person *is = person_get(w, to); /* the window goes with the person */
    is->heard_ms = was->heard_ms;
    is->shut = was->shut;
    memcpy(is->last, was->last, sizeof is->last);
    is->name = was->name;
    was->name = NULL;
    person_save(w, is);
    forget_oldest(w);
}

struct str wa_person_now(struct whatsapp *w, struct str id)
{
    for (unsigned i = 0; i < MAX_HOPS; i++) {
        const struct wa_moved *m = map_get(&w->moved_to, id);
        if (m == NULL)
            break;
        id = str_of(m->to);
    }
    const struct wa_person *p = map_get(&w->numbers, id);
    return p != NULL ? p->lru.key : id;
}

struct str wa_person_before(struct whatsapp *w, struct str id)
{
    const struct wa_moved *m = map_get(&w->moved_from, id);

    return m != NULL ? str_of(m->from) : STR_NULL;
}

/* ---- life ---- */

static bool on_person(void *ctx, struct str key, void *thing)
{
    struct whatsapp *w = ctx;
    const struct wa_person_record *r = thing;

    if (!wa_is_bsuid(r->id) && !wa_is_number(r->id))
        return false;
    struct wa_person *p = person_get(w, r->id);
    p->heard_ms = r->heard_ms;
    p->saved_ms = r->heard_ms != 0 ? r->heard_ms : clock_wall_ms(w->base.env->clock);
    p->shut = r->shut;
    if (wa_is_wamid(r->last))
        memcpy(p->last, r->last.p, r->last.n);
    if (wa_is_number(r->number))
        set_number(w, p, r->number);
    return true;
}

static bool on_moved(void *ctx, struct str key, void *thing)
{
    const struct wa_moved_record *r = thing;

    remember_move(ctx, r->from, r->to);
    return true;
}

static int by_heard(const void *a, const void *b)
{
    const struct wa_person *x = *(struct wa_person *const *)a, *y = *(struct wa_person *const *)b;

    return (x->heard_ms > y->heard_ms) - (x->heard_ms < y->heard_ms);
}

enum bh_err wa_people_load(struct whatsapp *w, char *ret_why)
{
    struct wa_person_record person = {.bot = str_of(w->base.bot)};
    struct wa_moved_record moved = {.bot = str_of(w->base.bot)};

    w->people.max = MAX_PEOPLE + 1; /* forget_oldest() keeps one free */
    w->people.free = person_free;
    enum bh_err err =
        record_load_like(w->base.env->store, &wa_person_form, &person, 1, on_person, w, ret_why);

    if (err == BH_OK)
        err = record_load_like(w->base.env->store, &wa_moved_form, &moved, 1, on_moved, w, ret_why);
    lru_sort(&w->people, by_heard); /* records come in the order of their keys */
    timer_init(&w->sweep, on_sweep);
    if (err == BH_OK)
        on_sweep(&w->sweep);
    return err;
}

void wa_people_free(struct whatsapp *w)
{
    timer_stop(w->base.env->clock, &w->sweep);
    lru_done(&w->people);
    list_each (&w->moves, it, nxt)
        move_free(w, list_entry(it, struct wa_moved, age));
    map_done(&w->numbers);
    map_done(&w->moved_to);
    map_done(&w->moved_from);
}

/* ---- erasing ---- */

void wa_forget(struct platform *p, struct str person)
{
    struct whatsapp *w = whatsapp_of(p);
    struct wa_person *x = wa_person_find(w, person);
    struct wa_moved *m = map_get(&w->moved_to, person);

    if (x != NULL)
        person_delete(w, x);
    if (m != NULL)
        move_delete(w, m);
    if ((m = map_get(&w->moved_from, person)) != NULL)
        move_delete(w, m);
}

/* The key is bot, id. */
static bool is_of_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);

    erase_part(&key);
    return str_eq(s->platform, STR("whatsapp")) &&
           (str_eq(key, s->user) || str_eq(json_str(doc, "number"), s->user) ||
            str_eq(json_str(doc, "to"), s->user));
}

static bool is_of_tenant(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    struct str bot = erase_part(&key);

    return erasure_owns_chat(e, bot, key);
}

static const struct erase_records of_tenant[] = {{"whatsapp_person", "people", is_of_tenant},
                                                 {"whatsapp_moved", "people", is_of_tenant},
                                                 {0}};
static const struct erase_records of_person[] = {{"whatsapp_person", "people", is_of_person},
                                                 {"whatsapp_moved", "people", is_of_person},
                                                 {0}};

const struct eraser wa_eraser = {.of_tenant = of_tenant, .of_person = of_person};
