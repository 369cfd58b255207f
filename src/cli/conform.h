/* conform.h - `bellhop conformance`: the obligations of the relay contract as a table, and a peer
 * to check each of them with.
 *
 *      conformance URL        conform_peer.c dials       conform_connector.c, conform_delivery.c
 *      conformance --listen   conform_listen.c accepts   conform_gateway.c
 *                                                                |
 *      conformance.c runs the table, prints the report <---------'
 *
 * An obligation has a run(), which calls came() once, or skip().  Obligations about the form of
 * what the other side sends have no run(): every frame of every socket is checked as it arrives
 * (lint()), and they are judged at the end.  Everything here blocks: a run is one thread and one
 * obligation at a time. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/list.h"
#include "cli/cli.h"
#include "net/ws_codec.h"

struct conform;
struct peer;

/* ---- obligations ---- */

enum lint { /* the obligations that are checked on every frame; LINT_NONE: it has a run() */
            LINT_NONE,
            /* of both sides */
            LINT_LINES,    /* each line is a JSON object with a type */
            LINT_UTF8,     /* messages are UTF-8 */
            LINT_SIZE,     /* no message is over 1 MiB */
            LINT_COMPLETE, /* each line ends */
            /* of a connector */
            LINT_DESCRIPTOR_KEYS,
            LINT_DESCRIPTOR_TYPES,
            LINT_MAX_LENGTH,
            LINT_LEN_UNIT,
            LINT_VERSION,
            LINT_OPS,
            LINT_EVENT_OBJECT,
            LINT_TEXT,
            LINT_MESSAGE_TYPE,
            LINT_SOURCE_OBJECT,
            LINT_SOURCE_IDS,
            LINT_SOURCE_NULLS,
            LINT_CHAT_TYPE,
            LINT_SCOPE,
            LINT_MEDIA,
            LINT_REPLY_TO,
            LINT_BUFFER_ID,
            LINT_RESULT,
            LINT_RESULT_ERROR,
            LINT_INTERRUPT,
            LINT_FORWARD,
            LINT_ASKED, /* results belong to requests */
            /* of a gateway */
            LINT_HELLO_FIRST,
            LINT_HELLO,
            LINT_REQUEST_ID,
            LINT_ACTION,
            LINT_METADATA,
            LINT_ACK,
            LINT_N,
};

enum { /* what an obligation needs; without it, it is skipped */
       NEEDS_PERSON = 1,
       NEEDS_EVENTS = 2, /* a person who can send any event: --control */
};

struct obligation {
    const char *name;     /* "descriptor-per-hello": unique, never changes */
    const char *section;  /* of docs/contract.md */
    const char *expected; /* a sentence */
    unsigned needs;
    enum lint lint;
    void (*run)(struct conform *c);
};
/* Each ends with a NULL name. */
extern const struct obligation connector_obligations[], delivery_obligations[],
    gateway_obligations[];

/* ---- a run ---- */

enum conform_end { CONFORM_OPEN, CONFORM_MET, CONFORM_BROKEN, CONFORM_SKIPPED };

struct linted {
    uint64_t seen;  /* frames it was checked on */
    char came[256]; /* the first fault; empty: none */
};

struct conform {
    struct cli_job *j;
    int64_t timeout_ms; /* for everything that must come */
    int64_t quiet_ms;   /* for everything that must not */
    struct linted lint[LINT_N];
    /* of the obligation that runs */
    enum conform_end end;
    struct buf came;
    unsigned number;   /* of the obligation */
    struct list peers; /* its sockets, newest last */
    struct arena arena;
    /* conformance URL */
    struct gwc_url *url;      /* borrowed */
    struct buf id, secret;    /* the gateway; the secret is wiped */
    struct buf bearer;        /* of POST /relay/provision; empty: none; wiped */
    const char *ca_file;      /* PEM file of the authorities to trust; NULL: the system's */
    const char *control;      /* a server of `serve --ephemeral`; NULL: none */
    char **program;           /* the person; NULL: none */
    struct str platform, bot; /* the hello */
    size_t unacked;           /* deliveries that obligations left behind */
    /* conformance --listen */
    struct conform_listener *listener; /* owned */
};

/* The verdict on the obligation that runs; the first one counts.  @fmt says what came. */
bool came(struct conform *c, bool as_expected, const char *fmt, ...) BH_PRINTF(3, 4);
void skip(struct conform *c, const char *fmt, ...) BH_PRINTF(2, 3);
/* A check of the form of a frame: counts it, and keeps the first fault. */
void lint(struct conform *c, enum lint what, bool good, const char *fmt, ...) BH_PRINTF(4, 5);
int64_t conform_now_ms(void);
/* @s as JSON, with its quotes; lives as long as the obligation. */
const char *quoted(struct conform *c, struct str s);

/* ---- frames, of both sides: conform_frames.c ---- */

struct frames {        /* what one socket received: lines, and those not taken yet */
    struct list lines; /* struct frame_line, owned */
    size_t n_lines;
    struct buf part;            /* of a line that has not ended */
    struct json_parser *parser; /* of the frame taken last */
    struct json_parser *linting;
    bool hello_seen, is_connector; /* the other side is one */
    bool cut;                      /* we cut the socket, maybe in the middle of a line */
    struct list asked;             /* struct frame_line: ids of requests without a result */
    /* Sees each good line as it comes; NULL: nobody does. */
    void (*on_line)(void *ctx, struct json frame);
    void *on_line_ctx;
};
void frames_init(struct frames *f, bool is_connector);
void frames_end(struct conform *c, struct frames *f); /* the socket has ended */
void frames_done(struct frames *f);
/* A piece of a message. */
void frames_take(struct conform *c, struct frames *f, struct str bytes);
/* The oldest frame of @type that was not taken yet ("": any); absent: none.  Borrowed until
 * the next call. */
struct json frames_next(struct frames *f, const char *type);
size_t frames_count(const struct frames *f, const char *type);
void frames_asked(struct frames *f, struct str request_id);

/* ---- the gateway's side: conform_peer.c ---- */

struct peer_dial {
    const char *path;  /* NULL: that of the URL */
    const char *token; /* NULL: a good one; "": none */
    bool no_hello;
};
/* Dials, and says hello unless told not to.  NULL: it could not connect, and came() was called. */
struct peer *peer_dial(struct conform *c, const struct peer_dial *how);
/* peer_dial() with a good token, a hello and its descriptor.  NULL: came() was called. */
struct peer *peer_open(struct conform *c);
/* peer_open(), and acks what earlier obligations left. */
struct peer *peer_fresh(struct conform *c);
int peer_status(
    const struct peer *p);           /* of the upgrade: 101, 401, ...; 0: no HTTP, or a false 101 */
int peer_code(const struct peer *p); /* of its close; 0: open; CLOSE_CODE_LOST: vanished */
struct frames *peer_frames(struct peer *p);
uint64_t peer_messages(const struct peer *p); /* WebSocket messages that came */

void peer_frame(struct peer *p, enum ws_op op, bool fin, struct str bytes); /* raw */
void peer_send(struct peer *p, struct str message);                         /* one text message */
/* One line as one message. */
void peer_say(struct peer *p, const char *fmt, ...) BH_PRINTF(2, 3);
void peer_hello(struct peer *p);
void peer_close(struct peer *p, int code); /* our half of the handshake */
void peer_cut(struct peer *p);             /* without a word */

/* Waits for the next frame of @type, c->timeout_ms at most.  Absent: none came. */
struct json peer_next(struct peer *p, const char *type);
/* True when no frame of @type ("": of any) comes for c->quiet_ms. */
bool peer_quiet(struct peer *p, const char *type);
bool peer_pong(struct peer *p, struct str payload); /* true: the pong came */
int peer_closed(struct peer *p);                    /* waits; the code, 0: still open */
void peers_close(struct conform *c);                /* at the end of an obligation */

/* Waits for the inbound whose text contains @text; acks and drops others.  Absent: none came. */
struct json peer_hear(struct peer *p, const char *text);
void peer_ack(struct peer *p, struct json inbound);
/* Sends an action and waits for its result; absent: none came.  The text is the rest of the frame:
 * the action, and what is beside it. */
struct json peer_act(struct peer *p, const char *fmt, ...) BH_PRINTF(2, 3);

/* A person writes.  False: skip() was called, or came(). */
bool person_says(struct conform *c, const char *text);
bool person_sends(struct conform *c, const char *event_json);
/* A text for person_says(), unique in this run; lives as long as the obligation. */
const char *person_text(struct conform *c, const char *what);

/* HTTP to the connector.  False: came() was called.  @token NULL: a good one; "": none. */
struct conform_http {
    const char *method, *path, *token;
    const char *type; /* NULL: application/json */
    struct str body;
};
bool conform_http(struct conform *c, const struct conform_http *rq, int *ret_status,
                  struct buf *ret_body);
/* Gets the gateway's id and secret from POST /relay/provision.  False: @ret_why (256 bytes). */
bool conform_provision(struct conform *c, char *ret_why);

/* ---- the connector's side: conform_listen.c ----
 *
 * Answers by itself: each hello with a descriptor, each outbound with a success, going_idle with
 * its ack.  Every frame can be taken by an obligation too. */

struct guest; /* a socket of the gateway; valid until the next obligation */

/* Listens at @where, and starts c->program, the gateway, if there is one.  False: @ret_why (256
 * bytes) says why not. */
bool listen_open(struct conform *c, const char *where, char *ret_why);
void listen_close(struct conform *c); /* ends the program; harmless when not open */
const char *listen_url(const struct conform *c);

/* Waits for an open socket that has said hello, one that was opened after the @after-th.  NULL:
 * came() was called. */
struct guest *guest_wait(struct conform *c, unsigned after);
unsigned guest_number(const struct guest *g); /* from 1 */
/* How the newest dial was made. */
struct guest_dial {
    const char *path, *authorization; /* "" where there is none */
    int64_t at_ms;                    /* of the wall clock */
};
struct guest_dial guest_dialled(const struct conform *c);

void guest_send(struct guest *g, struct str message); /* one text message */
/* Delivers @text in the chat @chat, as one message.  @id NULL: without a bufferId; @source: more
 * members of the source, with a comma before each. */
void guest_deliver(struct guest *g, const char *id, const char *chat, const char *text,
                   const char *source);
/* Appends such a frame. */
void guest_inbound(struct guest *g, struct buf *out, const char *id, const char *chat,
                   const char *text, const char *source);
struct json guest_next(struct guest *g, const char *type);
bool guest_quiet(struct guest *g, const char *type);
bool guest_acks(struct guest *g, const char *id); /* waits for the ack; takes those before it */
/* Waits for a `send` in @chat; absent: none came. */
struct json guest_answers(struct guest *g, const char *chat);
bool guest_pong(struct guest *g); /* pings, waits */
void guest_close(struct guest *g, int code);
int guest_closed(struct guest *g); /* waits for the end; its code, 0: still open */

/* What the listener does next. */
void listen_refuse(struct conform *c, int status);  /* the next dial; 0: none */
void listen_fail_next(struct conform *c);           /* the next outbound gets a failure */
void listen_hold_idle(struct conform *c, bool yes); /* going_idle is not answered */
bool listen_restart(struct conform *c,
                    char *ret_why); /* all sockets vanish, the port opens again */
/* The program that was started: SIGTERM, and its end.  False: it does not run. */
bool listen_stop_program(struct conform *c);
void listen_end_program(struct conform *c);
bool listen_start_program(struct conform *c, char *ret_why); /* true without a program too */
/* Waits until @until_ms while the sockets are served. */
void listen_wait(struct conform *c, int64_t until_ms);
bool listen_redial_pause(struct conform *c); /* true: nobody dials for a while */
