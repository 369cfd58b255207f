/* payload.h - reads and checks a payload, and writes it for each kind of receiver.
 *
 * deliver.c and request.c read payloads of callers; courier.c reads them back from the mailbox.
 * The sending program makes `meta`; this module passes it on unchanged, but for the caller that
 * an authenticated header names. */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "core/event.h"
#include "core/fault.h"

struct recipient;

#define PAYLOAD_WAKE_ID "wake-" /* prefix of the dispatch_id that call.c makes for a wake */

struct payload {     /* texts are borrowed from the document it was read from */
    bool template;   /* else augment */
    struct str text; /* content or prompt */
    struct str dispatch_id, correlation_id, event_type, skill; /* skill: never absent */
    struct str session;                                        /* absent: none */
    struct str caller;    /* replaces meta.origin.caller_agent_id; absent: as meta says */
    struct str reply_url; /* becomes meta.reply_url; absent: as meta says */
    struct str trace;     /* becomes meta.traceparent; absent: as meta says */
    struct json meta;     /* an object; absent: a wake, which has only an id and a time */
    int64_t sent_at;      /* used when meta is absent */
    bool wake;            /* made by dispatch_wake() */
    bool asks;            /* made by dispatch_request(): the caller waits for an answer */
};

/* @body: {kind, content | prompt, meta}, or the same under "payload".  False: @ret_fault is set. */
bool payload_read(struct json body, struct str agent_id, struct payload *ret,
                  struct fault *ret_fault);
/* Sets p->wake for a payload that was read from a mailbox.  Never call it for a caller's payload: a
 * dispatch could then pass as a wake. */
void payload_recall_wake(struct payload *p);
/* Sets p->asks and p->reply_url for a payload from a mailbox whose meta has a reply URL of ours,
 * one that starts with @base. */
void payload_recall_asks(struct payload *p, struct str base);
/* Writes {"agent_id", "kind", "content" | "prompt", "meta", "session_id"?} in one line, for
 * webhooks, files, pipes and programs. */
void payload_write_body(struct buf *out, const struct payload *p, struct str agent_id);
/* The valid W3C traceparent that the payload goes on with; absent: none. */
struct str payload_trace(const struct payload *p);
const char *payload_kind(const struct payload *p); /* "augment" */

/* Writes one line for people: "[context from the skill x, event y]", or "[question from ...".
 * @whole: with all of meta.  Nothing for a wake. */
void payload_write_header(struct buf *out, const struct payload *p, bool whole);

/* The relay's chat id of a dispatch: one chat per (agent, session, skill). */
void payload_chat_id(struct buf *out, const struct payload *p, struct str agent_id);
/* Appends the decoded agent and session of such a chat id.  False: not the chat of a dispatch. */
bool payload_chat_read(struct str chat_id, struct buf *ret_agent, struct buf *ret_session);

struct payload_event { /* an event and the texts it borrows */
    struct event ev;
    struct buf chat, user, text, id, dispatch;
};
/* Writes the event_id of a payload: its deduplication key in the agent's mailbox. */
void payload_event_id(struct buf *out, struct str agent_id, const char *word,
                      struct str dispatch_id);
/* The message a gateway gets.  @ret is zeroed; payload_event_done() frees it. */
void payload_event(const struct payload *p, const struct recipient *a, struct payload_event *ret);
void payload_event_done(struct payload_event *e);
