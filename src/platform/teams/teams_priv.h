/* teams_priv.h - struct teams, one bot, and the calls between the files of this folder.
 *
 *      teams.c     settings, open, close, check, status
 *      auth.c      verifies webhooks with Microsoft's keys; the bot's own token
 *      inbound.c   webhooks -> normalize.c -> host_accept(); the answers to Teams
 *      chats.c     the places that the bot may write to, and cards that are not over: on disk
 *      cards.c     questions: Adaptive Cards, presses, the answer to an invoke
 *      files.c     files in both directions
 *      outbound.c  actions -> the sender -> requests; reads their answers
 *      streams.c   answers that grow in personal chats
 *
 * normalize.h and proof.h are pure and do not know struct teams. */
#pragma once
#include "base/clock.h"
#include "base/crypto.h"
#include "base/list.h"
#include "net/http_client.h"
#include "platform/attachment.h"
#include "platform/await.h"
#include "platform/bearer.h"
#include "platform/lru.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/split.h"
#include "platform/stream.h"
#include "platform/teams/normalize.h"
#include "platform/teams/proof.h"
#include "platform/teams/teams.h"

#define TEAMS_MAX_CHARS 12000     /* UTF-16 units of one message; Teams takes 100 KB of UTF-16 */
#define TEAMS_QUESTION_CHARS 4000 /* UTF-16 units of a card's text */
#define TEAMS_DEADLINE_MS 10000   /* Teams waits 15 s for the answer to a webhook */
#define TEAMS_INVOKE_MS 8000

struct jw;
struct rsa_key;

struct teams_chat {       /* a place that the bot may write to */
    struct lru_entry lru; /* by chat_id */
    enum teams_kind kind;
    char *service_url, *tenant, *team, *name, *account, *person, *self; /* owned; NULL: unknown */
    struct list cards;                                                  /* teams_card.of_chat */
    int64_t saved_ms;      /* wall clock; as it is on disk; 0: not there */
    int64_t typed_ms;      /* monotonic */
    int64_t no_streams_ms; /* monotonic: Teams starts no streams here until then */
};

struct teams_card {       /* a card that is not over: a question, or a file that is offered */
    struct lru_entry lru; /* chat, blank, id */
    struct list of_chat;  /* teams_chat.cards; not linked: the chat is not known */
    char *text;           /* owned; of the question; NULL: none */
    char *file, *name;    /* owned; of the offered file: media/media.h; NULL: none */
    char *thread;         /* owned; NULL: none */
};

struct teams {
    struct platform base;
    const struct teams_settings *cfg; /* borrowed; holds secrets */
    struct str app;                   /* the bot's app id */
    struct jwks *connector, *tenant;  /* owned; auth.c; @tenant NULL: its tokens are refused */
    struct list held;                 /* auth.c: struct teams_held, owned */
    size_t n_held, held_bytes;
    struct timer refresh; /* of the keys */
    struct bearer login;
    struct rsa_key *key;              /* owned; of `certificate`; NULL: there is none */
    uint8_t thumbprint[SHA256_BYTES]; /* of the certificate */
    struct buf auth;                  /* secret: the Authorization line with the current token */
    struct lru chats;                 /* struct teams_chat */
    struct lru cards;                 /* struct teams_card */
    struct lru threads;               /* chat, blank, thread: those that the bot takes part in */
    struct lru streams;               /* streams.c: message -> struct teams_stream */
    struct list uploads;              /* files.c: struct teams_upload, owned */
    size_t n_uploads;
    struct arena arena; /* of the activity being read */
    struct teams_out out;
    struct {
        uint64_t presses, edits, streams, appends, limited, other_tenants, invokes, offers, uploads;
    } n;
};

static inline struct teams *teams_of(struct platform *p)
{
    return container_of(p, struct teams, base);
}

/* ---- auth.c ---- */

enum bh_err teams_auth_open(struct teams *t, char *ret_why);
void teams_auth_start(struct teams *t);
void teams_auth_close(struct teams *t);
bool teams_http(struct platform *p, struct http_req *req);
bool teams_plausible(const struct http_req *req, int64_t wall_ms);
/* The Authorization line with the bot's token; NULL: there is none now, see bearer_wait(). */
const char *teams_auth_line(struct teams *t);
/* Requests a token to verify the settings.  Blocks; returns as platform_ops.check does. */
enum bh_err teams_auth_check(const struct teams_settings *cfg, char *ret_why);

/* ---- inbound.c ---- */

/* Takes an activity whose token is verified. */
void teams_take(struct teams *t, struct http_id http, struct json activity);
void teams_answer(struct teams *t, struct http_id http, struct str body);

/* ---- chats.c ---- */

enum bh_err teams_chats_load(struct teams *t, char *ret_why);
void teams_chats_free(struct teams *t);
/* An activity came from this place; @person may be absent. */
void teams_chat_heard(struct teams *t, const struct teams_place *at, struct str person);
void teams_chat_removed(struct teams *t, struct str chat);
struct teams_chat *teams_chat_find(struct teams *t, struct str chat); /* NULL: not known */
bool teams_thread_is_joined(struct teams *t, struct str chat, struct str thread);
void teams_thread_join(struct teams *t, struct str chat, struct str thread);
struct teams_card_as { /* borrowed; absent members are none */
    struct str text, file, name, thread;
};
void teams_card_keep(struct teams *t, struct str chat, struct str id,
                     const struct teams_card_as *as);
struct teams_card *teams_card_find(struct teams *t, struct str chat, struct str id);
void teams_card_over(struct teams *t, struct str chat, struct str id);
void teams_forget(struct platform *p, struct str person);
void teams_forget_chat(struct platform *p, struct str chat);
extern const struct eraser teams_eraser;
extern const struct record_form teams_chat_form, teams_card_form;

/* ---- cards.c ---- */

/* Writes the attachment of a question that is open, or is over. */
void teams_write_question(struct jw *w, struct str text, const struct prompt *q, bool open);
void teams_take_press(struct teams *t, struct http_id http);
void teams_prompt_over(struct platform *p, struct prompt *q);

/* ---- files.c ---- */

struct teams_outgoing;
void teams_media_where(struct platform *p, struct media_ask ask, struct str ref);
/* How the file of @x is sent; what is wrong with it, or NULL. */
const char *teams_file_read(struct teams_outgoing *x, const struct action *a);
/* Writes the members of an activity with the file.  False: the file cannot be read, and @v says
 * so. */
bool teams_file_write(struct teams_outgoing *x, struct jw *w, struct sender_verdict *v);
void teams_file_sent(struct teams_outgoing *x);
void teams_take_consent(struct teams *t, struct http_id http);
void teams_uploads_cancel(struct teams *t);

/* ---- outbound.c ---- */

enum teams_method {
    TEAMS_POST,
    TEAMS_EDIT,
    TEAMS_TYPING,
    TEAMS_STREAM, /* starts a message that grows, or lets it grow */
    TEAMS_SEAL,   /* completes it */
    TEAMS_INFO,
    TEAMS_ASK, /* a request of the adapter's own */
};
enum teams_carrier { TEAMS_INLINE, TEAMS_OFFER, TEAMS_LINK };

struct teams_outgoing {
    struct outgoing out; /* first */
    struct teams *t;     /* borrowed */
    enum action_op op;   /* ACTION_UNKNOWN: a question of the adapter's own */
    enum teams_method method;
    char *chat, *thread;                                     /* owned; thread NULL: none */
    char message[TEAMS_ID_MAX + 1], reply[TEAMS_ID_MAX + 1]; /* empty: none */
    struct split parts;
    struct attachment file; /* send_media */
    enum teams_carrier carrier;
    char *file_id;    /* owned; media/media.h */
    char offer[33];   /* the id of its card; empty: none */
    struct buf card;  /* the attachment of a question, as JSON */
    struct buf body;  /* of a question of the adapter's own; the text of a stream */
    struct buf whole; /* a seal: the message is edited to this text afterwards */
    unsigned refused; /* answers with 401 in a row */
    bool counted;     /* the stream has counted its next request: pace.h */
    bool by_put;      /* TEAMS_ASK: a PUT of message */
};

void teams_act(struct platform *p, struct action_id id, const struct action_from *from,
               const struct action *a);
extern const struct sender_ops teams_sender;
/* Posts the activity @body to a chat or, with @message, replaces that message.  Copied. */
void teams_ask(struct teams *t, struct str chat, struct str thread, struct str message,
               struct str body, const struct sender_question *q);
/* Writes the members that every activity has. */
void teams_write_head(struct jw *w, struct teams *t, struct str type, struct str chat,
                      struct str thread);

/* ---- streams.c ---- */

enum stream_way teams_way(struct platform *p, const struct action *a);
const char *teams_stream_read(struct teams_outgoing *x, const struct action *a);
/* False: there is nothing to send, and @v says how it ended. */
bool teams_stream_write(struct teams_outgoing *x, struct jw *w, struct sender_verdict *v);
void teams_stream_done(struct teams_outgoing *x, struct sender_verdict *v);
/* @code and @words are Teams'. */
void teams_stream_refused(struct teams_outgoing *x, struct str code, struct str words,
                          struct sender_verdict *v);
