/* matrix_priv.h - struct matrix, one bot, and the calls between the files of this folder.
 *
 *      matrix.c      settings, open, close, check, status; people's files; the registration file
 *      inbound.c     /sync and gaps, or transactions of the homeserver -> batches of events
 *      rooms.c       what is known of rooms; invitations; encrypted rooms; names of people
 *      outbound.c    actions -> the sender -> requests; reads their answers
 *      service.c     the application service: its requests, the users of instances
 *
 * normalize.h is pure and does not know struct matrix. */
#pragma once
#include <regex.h>
#include "base/arena.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/work.h"
#include "platform/lru.h"
#include "platform/matrix/matrix.h"
#include "platform/matrix/normalize.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "store/record.h"
#include "store/store.h"

#define MX_MAX_ROOMS 65536
#define MX_MAX_CHARS 8000  /* of one message */
#define MX_MAX_BYTES 12000 /* of one message: an edit holds it twice, an event 65,536 bytes */
#define MX_MAX_ANSWER ((size_t)64 << 20)
#define MX_CLIENT "/_matrix/client/v3"
#define MX_SERVICE_ID "bellhop-" /* and the local part of the bot: the service's id */

struct mx_room {
    struct lru_entry lru; /* the room's id */
    char *name;           /* owned; NULL: none */
    char *users; /* owned; users of instances in the room, each followed by 0x1f; NULL: none */
    char *inviter, *invited; /* owned; an invitation that waits: its author, the user of ours, */
    char *invited_since;     /* and the `since` of the sync that told it */
    uint32_t members;        /* who joined */
    bool known;              /* members, name and encryption are known */
    bool joined;             /* the bot is in the room */
    bool encrypted, told;    /* told: people in the room know that the bot cannot read there */
    bool asking;             /* members, name and encryption are being asked for */
    bool joining;            /* the request to join is under way */
    int64_t typed_ms;        /* monotonic; when "typing" was sent last; 0: it is not shown */
    struct matrix *of;       /* borrowed */
    struct list waits;       /* matrix.invited, while @invited is not NULL */
};
struct mx_name { /* of a person */
    struct lru_entry lru;
    char *name; /* owned; NULL: none */
};
struct mx_said { /* a message: replies and reactions to one of ours are for the bot */
    struct lru_entry lru;
    char *named;  /* owned; users that one of ours mentions, each followed by 0x1f; NULL: none */
    bool foreign; /* it is somebody else's */
    bool asking;  /* the homeserver is being asked whose it is */
};

enum mx_in_state { MX_WHO, MX_FETCH, MX_DELIVER, MX_SAVE, MX_LISTEN, MX_REST };

struct mx_batch { /* what one sync or one transaction told; inbound.c */
    struct arena arena;
    struct map queues;   /* room id -> struct mx_queue, in the arena */
    struct list waiting; /* mx_queue.link: queues that wait for their turn to fill a gap */
    size_t n_open, n_gaps;
    uint32_t generation; /* late callbacks of an old batch are ignored */
    struct buf next;     /* the next `since`; empty: a transaction */
    struct buf txn;      /* the transaction; empty: a sync */
    struct http_id http; /* its request */
    struct timer again;  /* tries queues again whose event was not accepted */
    unsigned failures;
};

struct matrix {
    struct platform base;
    const struct matrix_settings *cfg; /* borrowed */
    char *auth;                        /* owned, secret: the Authorization header */
    struct str server;                 /* of the bot; borrowed */
    regex_t namespace;                 /* of the users of instances */
    bool has_namespace;
    bool old_media;           /* the homeserver has no authenticated media yet */
    struct work_pool *thread; /* owned; makes HTML */
    struct lru rooms, names, said;
    size_t n_encrypted;  /* rooms */
    struct list invited; /* mx_room.waits: invitations that wait, the oldest first */
    size_t n_invited;
    struct timer invites; /* looks at them again */
    struct {
        enum mx_in_state state, back_to;
        struct http_call *call; /* owned; NULL: none in flight */
        struct timer timer;     /* ends REST */
        unsigned failures;
        struct buf since, txn; /* as on disk */
        int64_t asked_ms;      /* monotonic; start of the last sync */
        unsigned quick;        /* empty answers in a row that came at once */
        struct store_put *put; /* owned */
        struct mx_batch batch;
    } in;
    struct timer ping;          /* service.c */
    struct {                    /* outbound.c: messages that the homeserver allows */
        int64_t at_ms, missing; /* thousandths of a message below the burst */
    } budget;
    char note[160]; /* for status */
    struct {
        uint64_t syncs, gaps, transactions, repeated, limited, plain, joins, refused_invites;
    } n;
};
static inline struct matrix *matrix_of(struct platform *p)
{
    return container_of(p, struct matrix, base);
}
static inline bool mx_is_service(const struct matrix *m)
{
    return m->cfg->token == NULL;
}

extern const struct record_form mx_cursor_form, mx_room_form;

/* ---- inbound.c ---- */
void mx_in_open(struct matrix *m);
void mx_in_start(struct matrix *m);
void mx_in_close(struct matrix *m);
const char *mx_in_state_name(struct platform *p);
void mx_in_registered(struct matrix *m); /* the bot exists: transactions are taken */
/* Takes a transaction, or answers that it must come again later. */
void mx_take_transaction(struct matrix *m, struct http_req *req, struct str txn);
/* What was asked about @room is known, or cannot be: its events go on. */
void mx_in_room_known(struct matrix *m, struct str room);

/* ---- rooms.c ---- */
enum bh_err mx_rooms_load(struct matrix *m, char *ret_why);
void mx_rooms_done(struct matrix *m);
struct mx_room *mx_room_use(struct matrix *m, struct str id);
static inline struct mx_room *mx_room_find(const struct matrix *m, struct str id)
{
    return lru_find(&m->rooms, id);
}
/* Applies a state event.  @live: it is new, not part of the state before. */
void mx_room_apply(struct matrix *m, struct str room, const struct mx_state *s, bool live);
void mx_room_save(struct matrix *m, const struct mx_room *r);
/* Asks for members, name and encryption; mx_in_room_known() follows. */
void mx_room_learn(struct matrix *m, struct mx_room *r);
void mx_room_left(struct matrix *m, struct str room, struct str user);
/* Says once in the room that the bot cannot read it. */
void mx_room_is_encrypted(struct matrix *m, struct mx_room *r);
/* @reason: what the author wrote with the invitation; absent: nothing. */
void mx_invited(struct matrix *m, struct str room, struct str inviter, struct str user,
                struct str reason);
/* The user of ours who acts in @r for an instance: its own, where it is in the room; else the
 * bot.  Absent parts of @from: anybody of ours in the room. */
void mx_room_actor(const struct matrix *m, const struct mx_room *r, const struct action_from *from,
                   struct buf *ret_user);
/* The users of ours in @r, the bot first; at most @max. */
size_t mx_room_selves(const struct matrix *m, const struct mx_room *r, struct mx_self *ret,
                      size_t max);
/* Notes whose message @id is. */
struct mx_said *mx_said_by(struct matrix *m, struct str id, bool ours);
bool mx_is_own(void *m, struct str id);
/* Is it known whether @event answers a message of ours?  False: the homeserver is being asked, and
 * mx_in_room_known() follows. */
bool mx_knows_answered(struct matrix *m, const struct mx_room *r, struct json event, bool dm);
void mx_person_named(struct matrix *m, struct str user, struct str name);
struct str mx_person_name(const struct matrix *m, struct str user);
void mx_forget(struct platform *p, struct str person);
extern const struct eraser mx_eraser;

/* ---- service.c ---- */
bool mx_http(struct platform *p, struct http_req *req);
/* Is @user the bot or a user of an instance? */
bool mx_is_ours(const struct matrix *m, struct str user);
/* Is @user another Matrix bot of this program, or a user of its instances?  It writes as people do,
 * and two agents must not answer each other for ever. */
bool mx_is_neighbour(const struct matrix *m, struct str user);
/* The instance of a user of ours.  False: the bot, or nobody. */
bool mx_instance_of(const struct matrix *m, struct str user, struct buf *ret_tenant,
                    struct buf *ret_instance);
void mx_register(struct matrix *m); /* the bot itself, at start */
/* Asks the homeserver to call bellhop, now and regularly: it may have become unable to. */
void mx_ping_start(struct matrix *m);
void mx_ping_stop(struct matrix *m);

/* ---- outbound.c ---- */
struct mx_answer { /* of the homeserver */
    int status;    /* 0: none came */
    struct json doc;
    struct str errcode;
    char why[200];          /* without secrets */
    int64_t retry_after_ms; /* of a 429; -1: not told */
};
void mx_answer_read(struct json_parser *parser, const struct http_result *r, struct mx_answer *ret);
extern const struct sender_ops mx_sender;
void mx_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a);
/* Makes a request of the adapter's own, in a lane of its own.  @user: the user of ours who makes
 * it; absent: the bot.  @q has no lane. */
void mx_ask(struct matrix *m, const char *method, struct str path, struct str body, struct str user,
            const struct sender_question *q);
/* Appends the path of @room, with @rest behind it: "/_matrix/client/v3/rooms/.../join". */
void mx_room_path(struct buf *out, struct str room, const char *rest);
/* The homeserver shows people that @user, one of ours, has read @event. */
void mx_send_receipt(struct matrix *m, struct str room, struct str event, struct str user);
