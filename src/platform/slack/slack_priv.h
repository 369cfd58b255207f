/* slack_priv.h - struct slack, one app, and the calls between the files of this folder.
 *
 *      slack.c         settings, open, close, check, status; finds the address of a person's file
 *      inbound.c       webhooks -> normalize.c -> host_accept(); the answer to Slack
 *      socket.c        Socket Mode: connections, envelopes and their acknowledgements
 *      install.c       installs the app in more workspaces, and keeps their tokens
 *      interactions.c  buttons, forms and slash commands
 *      outbound.c      actions -> the sender -> requests; reads their answers
 *      streams.c       messages that grow while an agent writes, and task cards
 *      api.c           workspaces and their tokens, rate limits, errors, questions, names
 *
 * normalize.h is pure and does not know struct slack. */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "edge/form.h"
#include "net/http_client.h"
#include "platform/attachment.h"
#include "platform/await.h"
#include "platform/lru.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/slack/normalize.h"
#include "platform/slack/slack.h"
#include "platform/split.h"
#include "platform/stream.h"

#define SLACK_MAX_CHARS 12000 /* UTF-16 units of Markdown in one message */
#define SLACK_MAX_TEXT 39000  /* UTF-16 units of plain text; Slack cuts at 40,000 characters */
#define SLACK_DEADLINE_MS 2500
/* Between two messages of a channel: a second, and by how much two ways to Slack may differ. */
#define SLACK_POST_MS 1100

enum slack_method {
    SLACK_AUTH_TEST,
    SLACK_POST,
    SLACK_UPDATE,
    SLACK_EPHEMERAL,
    SLACK_REACT,
    SLACK_UNREACT,
    SLACK_STATUS,
    SLACK_CHANNEL_INFO,
    SLACK_HISTORY,
    SLACK_REPLIES,
    SLACK_USER_INFO,
    SLACK_CONNECT,
    SLACK_START,
    SLACK_APPEND,
    SLACK_STOP,
    SLACK_UPLOAD_URL,
    SLACK_UPLOAD, /* not a method: a POST to the address that SLACK_UPLOAD_URL named */
    SLACK_COMPLETE,
    SLACK_FILE_INFO,
    SLACK_OAUTH,
    SLACK_METHODS,
};
const char *slack_method_name(enum slack_method m);

struct slack_limit {  /* of one method in one workspace; monotonic */
    int64_t until_ms; /* Slack asked to wait */
    double level;     /* requests above zero; they drain with time */
    int64_t at_ms;
};

struct jw;

struct slack_team {                                            /* a workspace */
    struct slack *s;                                           /* borrowed */
    char id[SLACK_ID_MAX + 1];                                 /* empty: not known yet */
    char bot_user[SLACK_ID_MAX + 1], bot_id[SLACK_ID_MAX + 1]; /* empty: not known yet */
    char *auth;                                                /* owned, secret: a header line */
    char *name, *missing; /* owned; NULL: not known; no scope */
    struct slack_limit limits[SLACK_METHODS];
    struct list gone;      /* in s->gone, once the app was removed */
    int64_t since_ms;      /* wall clock: of its installation; 0: not known */
    bool denied;           /* Slack refuses its token */
    bool no_names;         /* it lacks the scopes to look up names */
    int64_t no_streams_ms; /* monotonic: it starts no streams until then */
};

struct slack_chat { /* what is known of a chat while the process runs */
    struct lru_entry lru;
    char team[SLACK_ID_MAX + 1];
    int64_t next_post_ms;             /* monotonic */
    char status_ts[SLACK_ID_MAX + 1]; /* the thread that shows a status; empty: none */
    uint32_t status;                  /* hash of that status */
    int64_t status_ms;                /* monotonic */
};

struct slack_thread {     /* what is known of the thread of a message while the process runs */
    struct lru_entry lru; /* chat, blank, ts */
    bool joined;          /* the bot was mentioned or wrote there: what follows is meant for it */
    char user[SLACK_ID_MAX + 1],
        team[SLACK_ID_MAX + 1]; /* the last one who wrote; empty: unknown */
};

struct slack_sockets {      /* Socket Mode; socket.c has the pictures */
    struct slack_team *app; /* owned; only its token counts: the app-level one; NULL: no sockets */
    struct list conns;      /* struct slack_conn, owned */
    size_t n_waiting;       /* envelopes whose events are being made safe */
    struct json_parser *frames; /* owned */
    struct timer retry, tick;
    bool asking;               /* apps.connections.open is under way */
    unsigned failures;         /* in a row */
    uint64_t numbered;         /* connections so far */
    int64_t tick_ms, fresh_ms; /* monotonic: the last tick; the last connection that went live */
    uint64_t opened, lost, refreshed, deaf;
};

struct slack {
    struct platform base;
    const struct slack_settings *cfg; /* borrowed; holds secrets */
    struct slack_team *own;           /* the workspace of bot_token; NULL: there is none */
    struct slack_team *oauth;         /* owned; without a token, for oauth.v2.access; NULL: off */
    struct list gone;                 /* struct slack_team, owned: requests may still have them */
    struct list installs;             /* install.c: struct slack_install, owned */
    size_t n_installs;
    struct map teams;   /* workspace -> struct slack_team, owned; without @own */
    struct lru chats;   /* channel -> struct slack_chat */
    struct lru threads; /* struct slack_thread */
    struct lru cards;   /* streams.c: struct slack_card */
    struct timer cards_tick;
    struct lru names;   /* workspace and id -> struct slack_name */
    size_t names_asked; /* questions under way */
    struct arena arena; /* of the request being read */
    struct buf scratch;
    struct form form;
    struct slack_out out;
    struct slack_sockets sockets;
    struct timer again;    /* asks auth.test again */
    int64_t first_post_ms; /* monotonic; no message before */
    struct {
        uint64_t commands, presses, forwarded, edits, plain, limited, streams, appends, cards;
    } n;
};

static inline struct slack *slack_of(struct platform *p)
{
    return container_of(p, struct slack, base);
}

/* ---- api.c ---- */

struct slack_team *slack_team_new(struct slack *s, struct str id, struct str token);
void slack_team_free(struct slack_team *t); /* NULL is fine */
/* The workspace @id; the only one where there is one.  NULL: the app is not installed there. */
struct slack_team *slack_team_find(struct slack *s, struct str id);
/* Asks Slack who the bot is; fills the team in. */
void slack_team_ask(struct slack_team *t);
/* The scopes of the page that @granted, a list with commas, lacks; appends them with commas. */
void slack_scopes_missing(struct str granted, struct buf *out);

/* Finds or adds a chat; @team may be absent.  The oldest one may go for it. */
struct slack_chat *slack_chat_get(struct slack *s, struct str id, struct str team);
/* The thread of the message @ts; NULL: not known.  And: finds or adds it; NULL: these are
 * no ids. */
struct slack_thread *slack_thread_find(struct slack *s, struct str chat, struct str ts);
struct slack_thread *slack_thread_use(struct slack *s, struct str chat, struct str ts);
void slack_thread_joined(struct slack *s, struct str chat, struct str ts);
/* Ms until @m may be called in @t; 0: now.  And: until @c takes a message, too. */
int64_t slack_limit_ms(struct slack_team *t, enum slack_method m);
int64_t slack_wait_ms(struct slack_team *t, enum slack_method m, const struct slack_chat *c);
void slack_called(struct slack_team *t, enum slack_method m); /* counts a request */

/* Clears the problem, unless Slack refuses a token of the configuration or no socket is live. */
void slack_well(struct slack *s);
/* Reads an answer of Slack into @v: end, why, wait_ms, answer. */
void slack_answer_read(struct slack_team *t, enum slack_method m, const struct http_result *r,
                       struct sender_verdict *v);
struct str slack_error(const struct sender_verdict *v); /* Slack's word; absent: none */

/* A request of the adapter's own.  @body is JSON or a form, as the method takes it; copied. */
void slack_ask(struct slack_team *t, enum slack_method m, struct str body,
               const struct sender_question *q);

/* The names of a person and of a chat go into @ev where they are known; else Slack is asked, and
 * the next event has them. */
void slack_names_fill(struct slack *s, struct slack_team *t, struct event *ev);
void slack_name_free(struct lru *l, void *entry); /* of s->names */

struct str slack_scopes(void); /* those of the page, with commas */

/* ---- install.c ---- */
bool slack_install(struct platform *p, struct http_req *req);
enum bh_err slack_teams_load(struct slack *s, char *ret_why);
/* A workspace removed the app, or revoked its token, at @at_s.  Does nothing if the workspace did
 * not install the app, or has installed it again since. */
void slack_team_removed(struct slack *s, struct str team, int64_t at_s);
void slack_installs_cancel(struct slack *s);
extern const struct record_form slack_team_form;

/* ---- inbound.c ---- */
bool slack_http(struct platform *p, struct http_req *req);

struct slack_asker { /* who waits for the answer to a request of Slack's */
    struct http_id http;
    struct str path;
    uint64_t conn;       /* it came over this connection, in @envelope; 0: by webhook */
    struct str envelope; /* borrowed */
};
/* Gives @x to the host, and answers once it is safe.  @good: the body of the answer. */
void slack_accept(struct slack *s, const struct slack_asker *to, const struct webhook_delivery *x,
                  struct str good);
void slack_reply(struct slack *s, const struct slack_asker *to, struct str body);
void slack_refuse(struct slack *s, const struct slack_asker *to);
void slack_take_event(struct slack *s, const struct slack_asker *to, struct json body);
struct slack_in slack_in_of(struct slack *s, const struct slack_team *t);

/* ---- socket.c ---- */
void slack_sockets_start(struct slack *s);
void slack_sockets_stop(struct slack *s);
void slack_socket_ack(struct slack *s, const struct slack_asker *to);
/* Gives @x to the host, and acknowledges its envelope once it is safe. */
void slack_socket_accept(struct slack *s, const struct slack_asker *to,
                         const struct webhook_delivery *x);
size_t slack_sockets_live(const struct slack *s);

/* ---- interactions.c ---- */
void slack_take_interaction(struct slack *s, const struct slack_asker *to, struct json payload);
void slack_take_command(struct slack *s, const struct slack_asker *to, const struct form *f);
void slack_write_buttons(struct jw *w, const struct prompt *q);
void slack_prompt_over(struct platform *p, struct prompt *q);

/* ---- outbound.c ---- */

struct slack_outgoing {
    struct outgoing out;     /* first */
    struct slack *s;         /* borrowed */
    struct slack_team *team; /* borrowed; of a question */
    enum action_op op;       /* ACTION_UNKNOWN: a question */
    enum slack_method method;
    struct split parts;
    size_t plain_at; /* 1 + the part that Slack refused as Markdown; 0: none */
    char *word;      /* owned; an emoji's name, a status, the key of a task card */
    bool remove;
    struct attachment file;         /* send_media */
    char *upload_url;               /* owned; NULL: not asked for yet */
    char file_id[SLACK_ID_MAX + 1]; /* the uploaded file's; empty: none yet */
    bool resumed;                   /* an earlier process began it */
    bool captioned;                 /* the caption goes with the file */
    struct buf buttons;             /* the blocks of a prompt, as JSON */
    struct buf body;                /* of a question; the text or the chunks that a stream gets */
    bool rewrites;                  /* a seal: the message is edited to its whole text afterwards */

    char chat[SLACK_ID_MAX + 1], scope[SLACK_ID_MAX + 1];
    char thread[SLACK_ID_MAX + 1], message[SLACK_ID_MAX + 1]; /* empty: none */
};

/* The workspace of its chat: as the chat's events told, else as the gateway says. */
struct slack_team *slack_outgoing_team(const struct slack_outgoing *x);
void slack_act(struct platform *p, struct action_id id, const struct action_from *from,
               const struct action *a);
extern const struct sender_ops slack_sender;

/* ---- streams.c ---- */

enum stream_way slack_way(struct platform *p, const struct action *a);
/* A draft or a task card; what is wrong with it, or NULL. */
const char *slack_stream_read(struct slack_outgoing *x, const struct action_from *from,
                              const struct action *a);
/* Writes the body of the request that x->method names.  False: there is nothing to do. */
bool slack_stream_write(struct slack_outgoing *x, struct slack_team *t, struct buf *body);
void slack_stream_done(struct slack_outgoing *x, struct sender_verdict *v);
void slack_stream_refused(struct slack_outgoing *x, struct slack_team *t, struct sender_verdict *v);
void slack_streams_start(struct slack *s);
void slack_streams_stop(struct slack *s);
