/* payload.h - what is put in front of an agent: read, checked, and written for each kind of
 * receiver.
 *
 * `meta` is made by the program that sends; here it is carried through as it is. */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "core/event.h"
#include "core/fault.h"

struct recipient;

#define PAYLOAD_WAKE_ID "wake-" /* how the dispatch_id of a wake begins, which comes without one */

struct payload {     /* everything borrowed from the document it was read from */
    bool template;   /* else augment */
    struct str text; /* content or prompt */
    struct str dispatch_id, correlation_id, event_type, skill; /* skill: never absent */
    struct str session;                                        /* absent: none */
    struct json meta; /* an object; absent: a wake, which has only an id and a time */
    int64_t sent_at;  /* without meta */
    bool wake;        /* it came by wake() */
};

/* @body: {kind, content | prompt, meta}, or the same under "payload".  False: @ret_fault is set. */
bool payload_read(struct json body, struct str agent_id, struct payload *ret,
                  struct fault *ret_fault);
/* @p was read from a mailbox: sets p->wake if it is one of ours.  Never for what a caller says: ids
 * of wakes and of dispatches would be the same. */
void payload_recall_wake(struct payload *p);
/* {"agent_id", "kind", "content" | "prompt", "meta", "session_id"?}: what webhooks, files, pipes
 * and programs get.  One line. */
void payload_write_body(struct buf *out, const struct payload *p, struct str agent_id);
const char *payload_kind(const struct payload *p); /* "augment" */

/* "[context from the skill x, event y]": one line for whoever reads text.  Nothing for a wake. */
void payload_write_header(struct buf *out, const struct payload *p);

/* The chat of a dispatch on the relay: one per (agent, session, skill). */
void payload_chat_id(struct buf *out, const struct payload *p, struct str agent_id);
/* The agent and session of such a chat; both are appended, decoded.  False: it is none. */
bool payload_chat_read(struct str chat_id, struct buf *ret_agent, struct buf *ret_session);

struct payload_event { /* an event and the texts it borrows */
    struct event ev;
    struct buf chat, user, text, id;
};
/* The message a gateway gets.  @ret is zeroed; payload_event_done() frees it. */
void payload_event(const struct payload *p, const struct recipient *a, struct payload_event *ret);
void payload_event_done(struct payload_event *e);
