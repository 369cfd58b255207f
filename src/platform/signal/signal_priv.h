/* signal_priv.h - struct signal_bot, one account, and the calls between the files of this folder.
 *
 *      signal.c     settings, open, close, check, status; the account at signal-cli; people's files
 *      inbound.c    notifications -> normalize.c -> host_accept(), one after the other
 *      outbound.c   actions -> the sender -> calls of signal-cli; reads their answers
 *
 *      STARTING --up(), subscribeReceive answered--> LIVE --down()--> STARTING
 *
 * normalize.h and compose.h are pure and do not know struct signal_bot. */
#pragma once
#include "base/clock.h"
#include "platform/child.h"
#include "platform/lru.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/signal/normalize.h"
#include "platform/signal/signal.h"

#define SIGNAL_CALL_MS 45000
#define SIGNAL_UPLOAD_MS 180000
#define SIGNAL_LINE_MAX ((size_t)32 << 20) /* holds a file of SIGNAL_FILE_MAX as base64 */

struct signal_chat { /* of a person, or a group */
    struct lru_entry lru;
    char *name;       /* owned; NULL: not known */
    int64_t typed_ms; /* monotonic; typing was shown then; 0: it is not shown */
};

struct signal_said {      /* a message that may be quoted, or was edited */
    struct lru_entry lru; /* chat, space, id */
    char *text;           /* owned; its beginning; NULL: not known */
    unsigned edits;
};

struct signal_told {      /* a late answer: how a part of a record ended */
    struct lru_entry lru; /* the id of the call */
    struct sender_verdict v;
};

struct signal_bot {
    struct platform base;
    const struct signal_settings *cfg; /* borrowed */
    struct child_peer *child;          /* owned */
    struct child_options options;
    char *dir;                    /* owned; of the program's lines */
    bool live;                    /* signal-cli sends what it receives */
    struct child_call *subscribe; /* NULL: none is open */
    char self[SIGNAL_UUID + 1];   /* the account's UUID; empty: not known */
    char version[64];             /* of signal-cli; empty: not known */
    struct child_call *ask_version;
    struct lru chats, said, told;
    struct arena arena; /* of the message that is being accepted */
    struct signal_out out;
    struct event taking; /* in @arena */
    struct accept_id accept;
    bool accepting, wants_receipt;
    struct timer again;        /* accepts it again */
    struct timer listen;       /* looks whether the account is deaf */
    struct work_pool *readers; /* owned; of files that go out; NULL: none was needed */
    bool uploading;            /* a file is being sent; one at a time */
    struct list files;    /* signal.c: struct signal_file, owned: people's files on their way */
    struct list receipts; /* inbound.c: calls under way */
    size_t n_receipts;
    int64_t poked_ms; /* monotonic; the program was restarted because it seemed deaf */
    struct {
        uint64_t synced, undecrypted, edits_shed, limited, late;
    } n;
};

static inline struct signal_bot *signal_of(struct platform *p)
{
    return container_of(p, struct signal_bot, base);
}

/* Begins the parameters of a call: {"account": ...  The caller ends the object. */
struct jw signal_params(struct signal_bot *s, struct buf *out);
struct signal_chat *signal_chat(struct signal_bot *s, struct str chat_id);
/* The message @id of @chat; NULL: not known. */
struct signal_said *signal_said(struct signal_bot *s, struct str chat, struct str id);
struct signal_said *signal_said_add(struct signal_bot *s, struct str chat, struct str id,
                                    struct str text);

/* ---- inbound.c ---- */
bool signal_notified(void *ctx, struct str method, struct json params);
void signal_again(struct timer *t);
void signal_inbound_close(struct signal_bot *s);

/* ---- outbound.c ---- */
void signal_act(struct platform *p, struct action_id id, const struct action_from *from,
                const struct action *a);
void signal_late(void *ctx, uint64_t id, const struct child_answer *a);
extern const struct sender_ops signal_sender;
