/* dashboard_session.c - design.  (dashboard_priv.h has the contract.)
 *
 * There are at most MAX_SESSIONS sessions, so a walk through their list finds one.  A cookie is
 * compared by its hash, so the time of the comparison tells nothing about a cookie.
 *
 * Guesses at `admin.token` are limited per address (an IPv6 /64 counts as one) and for all
 * addresses together.  An address at its limit is refused before its token is compared. */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "edge/door.h"
#include "http/dashboard_priv.h"
#include "net/loop.h"

enum {
    MAX_SESSIONS = 64,
    MAX_LINKS = 16,
    AGE_MS = 12 * 3600000,
    IDLE_MS = 3600000, /* an open page is in use */
    TRIES = 5,         /* wrong credentials of one address at once; then one in TRY_MS */
    TRY_MS = 12000,
    TRIES_OF_ALL = 60, /* then one a second */
};

static int64_t now_ms(const struct dash_sessions *t)
{
    return clock_now_ms(loop_clock(t->f->loop));
}

static void make_secret(struct dash_sessions *t, char ret[DASH_SECRET_CHARS + 1])
{
    uint8_t raw[32];
    BUF_SECRET text = BUF_INIT;

    rand_bytes(t->rand, raw, sizeof raw);
    base64url_add(&text, raw, sizeof raw);
    memcpy(ret, buf_z(&text), DASH_SECRET_CHARS + 1);
    secret_wipe(raw, sizeof raw);
}

static void role_done(struct dash_role *r)
{
    free(r->tenant);
    r->tenant = NULL;
}

void dash_sessions_init(struct dash_sessions *t, struct front *f, struct rand *rand)
{
    *t = (struct dash_sessions){.f = f, .rand = rand};
    list_init(&t->all);
    list_init(&t->links);
}

/* ---- one-time links ---- */

static void link_free(struct dash_sessions *t, struct dash_link *l)
{
    list_remove(&l->link);
    role_done(&l->role);
    free(l);
    t->n_links--;
}

void dash_link_make(struct dash_sessions *t, struct str tenant, bool read_only, int64_t ttl_ms,
                    char ret_text[DASH_SECRET_CHARS + 1])
{
    struct dash_link *l = xcalloc(1, sizeof *l);

    if (t->n_links == MAX_LINKS)
        link_free(t, list_first(&t->links, struct dash_link, link));
    make_secret(t, ret_text);
    l->role = (struct dash_role){.by = DASH_BY_LINK,
                                 .tenant = str_dup_opt(tenant),
                                 .read_only = read_only};
    l->until_ms = now_ms(t) + ttl_ms;
    sha256(str_of(ret_text), l->hash);
    list_append(&t->links, &l->link);
    t->n_links++;
}

bool dash_link_use(struct dash_sessions *t, struct str text, struct dash_role *ret)
{
    uint8_t hash[SHA256_BYTES];
    bool found = false;

    sha256(text, hash);
    list_each (&t->links, it, nxt) {
        struct dash_link *l = list_entry(it, struct dash_link, link);
        bool meant = ct_equal(l->hash, hash, sizeof hash), over = l->until_ms <= now_ms(t);
        if (meant && !over) {
            *ret = l->role;
            l->role.tenant = NULL; /* @ret has it */
            found = true;
        }
        if (meant || over)
            link_free(t, l);
    }
    return found;
}

void dash_links_forget(struct dash_sessions *t, struct str tenant)
{
    list_each (&t->links, it, nxt) {
        struct dash_link *l = list_entry(it, struct dash_link, link);
        if (l->role.tenant != NULL && str_eq(str_of(l->role.tenant), tenant))
            link_free(t, l);
    }
}

/* ---- tokens ---- */

static void hash_of_token(const struct dash_sessions *t, uint8_t ret[SHA256_BYTES])
{
    sha256(str_of(t->f->settings->admin_token), ret);
}

bool dash_key_check(struct dash_sessions *t, struct str text, struct dash_role *ret)
{
    const struct key *k = keys_check(t->f->keys, KEY_DASHBOARD, text);

    if (k == NULL)
        return false;
    *ret = (struct dash_role){.by = DASH_BY_KEY,
                              .tenant = str_dup_opt(str_of(k->tenant)),
                              .read_only = k->read_only};
    memcpy(ret->key_id, k->id, KEY_ID_CHARS);
    return true;
}

bool dash_token_check(struct dash_sessions *t, struct str text, struct dash_role *ret)
{
    uint8_t given[SHA256_BYTES], want[SHA256_BYTES];

    sha256(text, given); /* hash first: the time of the comparison must not reveal the length */
    hash_of_token(t, want);
    if (str_is_empty(str_of(t->f->settings->admin_token)) || !ct_equal(given, want, sizeof given))
        return false;
    *ret = (struct dash_role){.by = DASH_BY_TOKEN};
    memcpy(ret->token_hash, want, sizeof want);
    return true;
}

static struct bucket_level *tries_of(struct dash_sessions *t, struct str peer)
{
    return &t->tries[door_source(t->f->door, peer).hash % DASH_SOURCES];
}

/* A bucket counts whole tokens per second; a clock that runs slower makes them rarer. */
static bool has_try(struct bucket_level *b, int64_t at_ms, int64_t try_ms, uint32_t burst)
{
    return bucket_take(b, at_ms * 1000 / try_ms, 1, burst);
}

bool dash_may_try(struct dash_sessions *t, struct str peer)
{
    struct bucket_level one = *tries_of(t, peer), all = t->tries_of_all; /* copies: a look */

    return has_try(&one, now_ms(t), TRY_MS, TRIES) && has_try(&all, now_ms(t), 1000, TRIES_OF_ALL);
}

void dash_tried_wrong(struct dash_sessions *t, struct str peer)
{
    (void)has_try(tries_of(t, peer), now_ms(t), TRY_MS, TRIES);
    (void)has_try(&t->tries_of_all, now_ms(t), 1000, TRIES_OF_ALL);
}

/* ---- sessions ---- */

struct dash_session *dash_session_begin(struct dash_sessions *t, struct dash_role *role,
                                        char ret_cookie[DASH_SECRET_CHARS + 1])
{
    struct dash_session *s = xcalloc(1, sizeof *s);

    s->role = *role;
    *role = (struct dash_role){0};
    s->made_ms = s->used_ms = now_ms(t);
    list_init(&s->streams);
    make_secret(t, ret_cookie);
    make_secret(t, s->csrf);
    sha256(str_of(ret_cookie), s->cookie_hash);
    list_append(&t->all, &s->link);
    t->n++;
    return s;
}

struct dash_session *dash_session_oldest(struct dash_sessions *t)
{
    struct dash_session *found = NULL;
    size_t most = 0;

    if (t->n < MAX_SESSIONS)
        return NULL;
    list_each (&t->all, it, nxt) {
        struct dash_session *s = list_entry(it, struct dash_session, link);
        size_t n = 0;
        list_each (&t->all, at, after)
            n += dash_session_like(s, list_entry(at, struct dash_session, link));
        if (n > most) {
            most = n;
            found = s;
        }
    }
    return found;
}

static bool credential_is_good(const struct dash_sessions *t, const struct dash_role *r)
{
    uint8_t now[SHA256_BYTES];

    switch (r->by) {
    case DASH_BY_TOKEN:
        hash_of_token(t, now);
        return t->f->settings->admin_token != NULL && ct_equal(now, r->token_hash, sizeof now);
    case DASH_BY_KEY:
        return keys_is_good(t->f->keys, str_of(r->key_id));
    default:
        return true;
    }
}

bool dash_session_is_over(const struct dash_sessions *t, const struct dash_session *s)
{
    int64_t now = now_ms(t);

    return now - s->made_ms >= AGE_MS || (s->n_streams == 0 && now - s->used_ms >= IDLE_MS) ||
           !credential_is_good(t, &s->role);
}

int64_t dash_session_left_ms(const struct dash_sessions *t, const struct dash_session *s)
{
    return s->made_ms + AGE_MS - now_ms(t);
}

struct dash_session *dash_session_find(struct dash_sessions *t, struct str cookie)
{
    uint8_t hash[SHA256_BYTES];

    if (cookie.n != DASH_SECRET_CHARS)
        return NULL;
    sha256(cookie, hash);
    list_each (&t->all, it, nxt) {
        struct dash_session *s = list_entry(it, struct dash_session, link);
        if (!ct_equal(s->cookie_hash, hash, sizeof hash))
            continue;
        s->used_ms = dash_session_is_over(t, s) ? s->used_ms : now_ms(t);
        list_move(&s->link, &t->all);
        return s;
    }
    return NULL;
}

void dash_session_free(struct dash_sessions *t, struct dash_session *s)
{
    list_remove(&s->link);
    role_done(&s->role);
    secret_wipe(s, sizeof *s);
    free(s);
    t->n--;
}

void dash_sessions_done(struct dash_sessions *t)
{
    list_each (&t->links, it, nxt)
        link_free(t, list_entry(it, struct dash_link, link));
    list_each (&t->all, it, nxt)
        dash_session_free(t, list_entry(it, struct dash_session, link));
}
