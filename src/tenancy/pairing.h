/* pairing.h - the queue of people who wrote to a bot and whom no instance hears.
 *
 *      accept.c --pairing_wrote()--> WAITING --approve--> a link on this bot (grants.h)
 *                                     |  ^ \--deny----> DENIED   returns if it writes a week later
 *                                     |  '----restore----'
 *                                     '------block---> BLOCKED   never listed again, told nothing
 *
 * An entry is a person on one bot: names, ids, times and a count.  It never has a text.  The relay
 * reports a person only after the gate refused the message, so a delivered message costs nothing
 * here.
 *
 * The queue is bounded: PAIRING_BOT_MAX people of one bot, PAIRING_MAX in all.  Then the person who
 * was silent for longest goes; over PAIRING_MAX that is one of the bot with the most people, so a
 * flood at one bot cannot empty the queue of another.  Blocks are an operator's decisions: they
 * have a bound of their own and are never pushed out.
 *
 * Entries are written behind, PAIRING_WRITE_MS after the first change and PAIRING_WRITE_MAX at a
 * time, so a flood of strangers costs no write per message.  A crash loses the newest seconds.
 * Decisions are changes of facts: on disk before they are answered, with an entry in the audit log.
 *
 * The queue decides nothing about deliveries: core/gate.h does, by the link that an approval makes.
 * A blocked person still reaches a place that an operator opened to everybody. */
#pragma once
#include "base/clock.h"
#include "tenancy/grants.h"

struct event;
struct pairing;
struct record_form;
struct store;

#define PAIRING_MAX 10000        /* people who wait or were denied, in all */
#define PAIRING_BOT_MAX 1000     /* ... of one bot */
#define PAIRING_BLOCKED_MAX 5000 /* blocked people of one bot */
#define PAIRING_NAME_MAX 96      /* bytes of a name that are kept */
#define PAIRING_WRITE_MS 2000
#define PAIRING_WRITE_MAX 256
#define PAIRING_DENIED_MS (7 * INT64_C(86400000)) /* how long a denied person is not listed */
#define PAIRING_TOLD_MS INT64_C(86400000)         /* at most one receipt per person in this time */
#define PAIRING_RECEIPTS_MAX 60                   /* receipts of one bot in an hour */

struct pairing_settings { /* `pairing:` in the configuration, owned by it */
    int64_t keep_ms;      /* 0: nobody is listed */
    bool receipt;
    char *receipt_text;
};
extern const struct config_section pairing_config;

enum pairing_state { PAIRING_WAITING, PAIRING_DENIED, PAIRING_BLOCKED };
const char *pairing_state_word(enum pairing_state s); /* "waiting" */

struct pairing_env { /* borrowed */
    struct clock *clock;
    struct store *store;
    struct facts *facts;
    const struct pairing_settings *settings; /* read at every use */
    const int64_t *retention_ms;             /* 0: none */
};
/* Loads the queue, and blocks meanwhile. */
enum bh_err pairing_open(const struct pairing_env *env, struct pairing **ret,
                         char *ret_why) BH_MUST_USE;
/* Submits what is not written yet.  Called before the store closes; NULL is fine. */
void pairing_flush(struct pairing *p);
/* The store must be closed and the facts idle.  NULL is fine. */
void pairing_free(struct pairing *p);

/* The gate let nobody receive @ev.  Lists the author, unless a link of the author counts on this
 * bot, or the author is a bot or unproven (core/event.h): those cannot be let in.  @addressed:
 * the message is for the bot; in a shared chat nobody else is listed. */
void pairing_wrote(struct pairing *p, const struct event *ev, bool addressed);

/* Sends @text to a person: to the chat of @place.  Called once it is on disk that the person was
 * told. */
typedef void pairing_tell_cb(void *ctx, const struct event *place, struct str text);
void pairing_on_tell(struct pairing *p, pairing_tell_cb *cb, void *ctx);

/* ---- reading ---- */

#define PAIRING_ID_CHARS 16
struct pairing_view { /* borrowed until the next call */
    char id[PAIRING_ID_CHARS + 1];
    struct str platform, bot, user, name, chat_type;
    struct str chat;   /* the direct chat; absent: the person wrote in shared chats only */
    struct str tenant; /* of the bot; absent: the bot serves every tenant */
    enum pairing_state state;
    uint32_t messages;
    int64_t first_ms, last_ms, told_ms; /* wall clock; 0: never */
};
/* The entry with this id.  @tenant, if present: only of bots that belong to this tenant.  False:
 * there is none. */
bool pairing_find(const struct pairing *p, struct str id, struct str tenant,
                  struct pairing_view *ret);
/* The entry behind the one with the id @after (empty: the first).  Bot by bot; of one bot those who
 * wrote last come first, then the blocked.  False: the end, or @after is gone. */
bool pairing_next(const struct pairing *p, struct str after, struct pairing_view *ret);

/* How many people wait; @tenant, if not empty: on the bots that belong to this tenant. */
uint64_t pairing_waiting(const struct pairing *p, struct str tenant);
const struct pairing_settings *pairing_settings_of(const struct pairing *p);

struct pairing_stats {
    uint64_t waiting, denied, blocked;               /* now */
    uint64_t messages, pushed_out, receipts, writes; /* since the start */
    uint64_t approvals, denials, blocks;
};
void pairing_stats(const struct pairing *p, struct pairing_stats *ret);

/* ---- deciding ---- */

struct pairing_link { /* what an approval did; for done() */
    bool owner;       /* nobody was linked to the instance before */
};
/* Links the person to the instance, on the bot of the entry, and removes the entry, in one
 * transaction.  BH_NOT_FOUND: no such entry, or instance.  BH_REFUSED: the bot belongs to another
 * tenant.  BH_CONFLICT: another decision about this person is under way.  @ret, which the caller
 * keeps until done(), is set before done() gets BH_OK. */
void pairing_approve(struct pairing *p, struct str id, struct grant_who who,
                     struct pairing_link *ret, facts_done_cb *done, void *ctx);
/* Sets the state of the entry.  PAIRING_WAITING undoes a denial or a block.  BH_BUSY: the bot has
 * PAIRING_BLOCKED_MAX blocked people. */
void pairing_set(struct pairing *p, struct str id, enum pairing_state state, facts_done_cb *done,
                 void *ctx);
/* Deletes the entry; the person is a stranger again. */
void pairing_forget(struct pairing *p, struct str id, facts_done_cb *done, void *ctx);

extern const struct record_form pairing_form;
extern const struct eraser pairing_eraser; /* ctx is the pairing */
