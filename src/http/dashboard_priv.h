/* dashboard_priv.h - sessions and live numbers of the dashboard.  Private to dashboard*.c. */
#pragma once
#include "base/bucket.h"
#include "base/buf.h"
#include "base/crypto.h"
#include "base/list.h"
#include "base/map.h"
#include "base/rand.h"
#include "http/dashboard.h"
#include "net/http_server.h"
#include "relay/relay.h"
#include "tenancy/keys.h"

/* ---- sessions: dashboard_session.c ----
 *
 *      sign-in --> SESSION --signed out, too old, unused, credential gone, pushed out--> over
 *
 * A session ends with its credential: when `admin.token` changes, or its key is revoked or expires.
 * The server keeps only a hash of the cookie.  Sessions are in memory: a restart ends them. */

#define DASH_SECRET_CHARS 43 /* 32 random bytes in base64url */

enum dash_by { DASH_BY_LINK, DASH_BY_TOKEN, DASH_BY_KEY };

struct dash_role {
    enum dash_by by;
    char *tenant; /* owned; NULL: the operator, who sees everything */
    bool read_only;
    char key_id[KEY_ID_CHARS + 1];    /* DASH_BY_KEY */
    uint8_t token_hash[SHA256_BYTES]; /* DASH_BY_TOKEN: of admin.token at sign-in */
};

struct dash_session {
    struct list link; /* the longest unused first */
    struct dash_role role;
    uint8_t cookie_hash[SHA256_BYTES];
    char csrf[DASH_SECRET_CHARS + 1]; /* wiped */
    int64_t made_ms, used_ms;         /* monotonic */
    struct list streams;              /* struct dash_stream */
    size_t n_streams;
};

struct dash_link {    /* a one-time link that was printed and not used yet */
    struct list link; /* the oldest first */
    struct dash_role role;
    uint8_t hash[SHA256_BYTES];
    int64_t until_ms; /* monotonic */
};

enum { DASH_SOURCES = 512 };
struct dash_sessions {
    struct front *f;   /* borrowed */
    struct rand *rand; /* borrowed */
    struct list all, links;
    size_t n, n_links;
    struct bucket_level tries[DASH_SOURCES], tries_of_all; /* wrong credentials */
};

void dash_sessions_init(struct dash_sessions *t, struct front *f, struct rand *rand);
void dash_sessions_done(struct dash_sessions *t); /* streams have ended */

/* Writes the secret of a new link to @ret_text. */
void dash_link_make(struct dash_sessions *t, struct str tenant, bool read_only, int64_t ttl_ms,
                    char ret_text[DASH_SECRET_CHARS + 1]);
void dash_links_forget(struct dash_sessions *t, struct str tenant);
/* False: no such link, or it was used or is too old.  A link works once. */
bool dash_link_use(struct dash_sessions *t, struct str text, struct dash_role *ret);
/* False: @text is no key of `bellhop token dashboard`; nobody guesses one, so tries are free. */
bool dash_key_check(struct dash_sessions *t, struct str text, struct dash_role *ret);
/* False: @text is not `admin.token`, which a person chose. */
bool dash_token_check(struct dash_sessions *t, struct str text, struct dash_role *ret);

/* True while the address may try a credential; a wrong one is told by dash_tried_wrong(). */
bool dash_may_try(struct dash_sessions *t, struct str peer);
void dash_tried_wrong(struct dash_sessions *t, struct str peer);

/* Begins a session, whose secret goes to @ret_cookie.  Takes over the role.  When there are too
 * many, the longest unused one of the tenant (or the operator) with the most makes room, so that a
 * tenant signs out nobody else: dash_session_oldest() says which, and the caller ends it first. */
struct dash_session *dash_session_begin(struct dash_sessions *t, struct dash_role *role,
                                        char ret_cookie[DASH_SECRET_CHARS + 1]);
struct dash_session *dash_session_oldest(struct dash_sessions *t); /* NULL: there is room */
/* Are both sessions of one tenant, or both of the operator? */
static inline bool dash_session_like(const struct dash_session *a, const struct dash_session *b)
{
    return str_eq(str_of(a->role.tenant), str_of(b->role.tenant));
}
struct dash_session *dash_session_find(struct dash_sessions *t, struct str cookie);
bool dash_session_is_over(const struct dash_sessions *t, const struct dash_session *s);
int64_t dash_session_left_ms(const struct dash_sessions *t, const struct dash_session *s);
void dash_session_free(struct dash_sessions *t, struct dash_session *s); /* no stream is left */

/* ---- live numbers: dashboard_live.c ---- */

enum dash_sort { DASH_BY_ATTENTION, DASH_BY_NAME, DASH_BY_WAITING, DASH_BY_AGE, DASH_BY_HEARD };
enum { DASH_WINDOW = 120 }; /* rows that one page may look at */

struct dash_look {    /* what a page shows of the instances */
    char filter[128]; /* in lower case; part of a name */
    char state[8];    /* "": any; "problem": those that need somebody */
    bool waiting;     /* only those whose mailbox is not empty */
    enum dash_sort sort;
    uint32_t offset, count; /* 0 rows: the page does not show instances */
};

struct dash_stream {
    struct list link;             /* session->streams */
    struct dash_live *live;       /* borrowed */
    struct dash_session *session; /* borrowed */
    struct http_id http;
    char id[17]; /* names the stream in POST look */
    struct dash_look look;
    struct dash_shown {       /* the rows that the page has */
        struct dash_row *row; /* borrowed; each sweep finds them anew */
        uint32_t number, rev;
    } shown[DASH_WINDOW];
    size_t n_shown;
    uint64_t told;   /* hash of the last head of the rows: total and tally */
    bool wants_rows; /* waits for live->showing */
};

struct dash_live {
    struct front *f;                /* borrowed */
    struct dash_sessions *sessions; /* borrowed */
    struct timer tick, sweep, show;
    struct dash_row **rows; /* owned; every instance, while a page is open */
    size_t n_rows, cap_rows;
    struct map by_name; /* -> struct dash_row */
    uint32_t next_number, changes, sweeps;
    uint32_t at;      /* the sweep: cursor of relay_next_instance() */
    char *at_gateway; /* owned; the sweep goes through the gateways; NULL: through the relay */
    bool sweeping, filling;       /* @filling: of an empty table, so a page waits for it */
    int swept;                    /* instances, since the last tick */
    struct dash_showing *showing; /* owned; the page whose rows are being found; NULL: none */
    size_t n_streams;
    int64_t alone_ms; /* monotonic; when the last page was closed */
    struct buf json, frame, bots;
    uint64_t bots_hash;
};

void dash_live_init(struct dash_live *l, struct front *f, struct dash_sessions *sessions);
void dash_live_done(struct dash_live *l); /* streams have ended */
void dash_stream_open(struct dash_live *l, struct http_req *req, struct dash_session *s);
void dash_stream_end(struct dash_stream *st);
/* Shows the rows of @look on the stream, now and with every change. */
void dash_stream_look(struct dash_stream *st, const struct dash_look *look);
