/* web_priv.h - struct web, one bot, and the calls between the files of the web platform.
 *
 *      web.c       settings, open, close, actions, status
 *      http.c      routes and access checks; page, assets, keys of files
 *      inbound.c   messages, names and presses of visitors; questions with buttons
 *      stream.c    messages as JSON; chats in memory and the streams of open pages
 *      history.c   writes messages to the store and reads them back for pages
 *      live.c      answers that stream to open pages
 *      sweep.c     deletes history above the limits of age and size
 *      visitor.c   tokens, chat ids, names
 *
 * Numbers.  One counter per bot, `boot << 40 | n`, numbers messages (id) and changes (rev).  The
 * store counts boots, so numbers keep growing after a restart and need no record.  A message gets
 * its id when it arrives and a rev each time its record is written.  Records are written in the
 * order of their revs, so a page that has seen everything up to rev r misses exactly the records
 * with a larger rev.  On the wire both are 16 hex digits, so that they sort as text.
 */
#pragma once
#include <inttypes.h>
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "net/http_server.h"
#include "platform/lru.h"
#include "platform/platform.h"
#include "platform/web/visitor.h"
#include "store/record.h"

#define WEB_MAX_TEXT_BYTES (16u * 1024)
#define WEB_MAX_CLIENT_ID 64
#define WEB_MAX_NAME_CHARS 64
#define WEB_MAX_NAMES 65536
#define WEB_BUCKETS 1024
#define WEB_ID_CHARS 16
#define WEB_HEARTBEAT_MS 15000
#define WEB_MAX_FILES 8 /* of one message */

struct prompt;

struct web_bucket { /* the rate limit of the visitor who wrote last of those with this place */
    uint64_t who;   /* hash of the chat id; 0: nobody */
    int64_t at_ms;
    int32_t left_milli; /* thousandths of a message */
};

struct web_counters {
    uint64_t posted, refused, sent, edits, streams_opened, store_failures;
};

struct web {
    struct platform base;         /* first */
    struct list link;             /* the list of open web bots; see web_sibling() */
    char *title;                  /* owned */
    uint32_t history;             /* messages kept per chat */
    bool secure_cookies;          /* public_url is https */
    struct hash_key visitor_key;  /* secret, kept sealed in the store */
    struct record_reader *reader; /* owned */
    uint64_t counter;             /* the last id or rev that was used */
    struct map chats;             /* chat id -> struct web_chat, owned */
    struct list idle;             /* chats without streams and jobs, oldest first */
    size_t n_idle;
    struct lru names;       /* chat id -> struct web_name; at most WEB_MAX_NAMES */
    struct list posts;      /* struct web_post in host_accept(); owned */
    struct list free_posts; /* for reuse */
    struct list lives;      /* live.c: struct web_live, owned */
    struct map live_by_key; /* live.c */
    size_t live_bytes;      /* of their texts */
    struct map live_shares; /* live.c: tenant -> struct web_share, owned */
    size_t n_previews;      /* live.c: those of @lives that are drafts */
    struct lru sealed;      /* live.c: final drafts -> struct web_sealed */
    struct list jobs;       /* history.c: struct web_job, owned */
    struct timer heartbeat;
    size_t n_streams;
    struct buf page;           /* the HTML of this bot */
    struct buf frame, scratch; /* reused */
    struct web_counters counters;
    struct web_sweep *sweep;    /* owned; NULL: no history is kept */
    size_t kept;                /* bytes of history, as counted by sweep.c */
    struct buf clean;           /* reused */
    struct web_bucket *buckets; /* owned; WEB_BUCKETS of them; NULL: no person has written yet */
};

struct web_chat { /* exists while it has streams or jobs, then on the idle list until replaced */
    char id[VISITOR_CHAT_CHARS + 1];
    struct web *web;     /* borrowed */
    struct list streams; /* struct web_stream, oldest first */
    size_t n_streams, n_jobs;
    struct web_job *reading; /* borrowed; the visitor's read in flight; NULL: none */
    struct list waiting;     /* struct web_job, reads that wait for @reading */
    size_t n_waiting;
    uint64_t published; /* rev of the newest published change */
    uint32_t untrimmed; /* records written since the last trim; UINT32_MAX: unknown */
    size_t untrimmed_bytes;
    struct list idle_link;
};

enum web_author { WEB_VISITOR, WEB_AGENT };
enum web_kind { WEB_WORDS, WEB_STOP };
struct web_message { /* strs borrowed */
    uint64_t id, rev;
    enum web_author from;
    enum web_kind kind;
    struct str text, client_id, reply_to;
    int64_t at_ms, edited_ms;                                   /* 0: never edited */
    struct record_json files, prompt;                           /* its files and its question */
    char id_text[WEB_ID_CHARS + 1], rev_text[WEB_ID_CHARS + 1]; /* of its record; private */
};
/* The record of a message is what pages get.  Its key is "<bot> 1f <chat> 1f <id>": history.c. */
extern const struct record_form web_message_form, web_once_form;

static inline uint64_t web_next(struct web *w)
{
    return ++w->counter;
}
static inline struct str web_bot(const struct web *w)
{
    return str_of(w->base.bot);
}
void web_id_format(uint64_t id, char ret[WEB_ID_CHARS + 1]);
bool web_id_parse(struct str text, uint64_t *ret_id);
void web_message_write(struct buf *out, const struct web_message *m);
/* Reads a record; strs are borrowed from w->reader.  False: not a message. */
bool web_message_read(struct web *w, struct str record, struct web_message *ret);

/* ---- web.c ---- */
/* The open web bot called @bot; absent: the first one.  NULL: none. */
struct web *web_sibling(struct str bot);
struct web *web_after(const struct web *w); /* the next open web bot; NULL: that was the last */
void web_succeed(struct web *w, struct action_id id, struct str message_id);

/* ---- visitor.c: names ---- */
/* Reads the stored names.  Blocks: for start-up. */
enum bh_err web_names_open(struct web *w, char *ret_why);
extern const struct record_form web_name_form;
/* The visitor's name, or one made from the chat id in @ret_made. */
struct str web_name_of(const struct web *w, struct str chat_id, char ret_made[16]);
struct str web_name_given(const struct web *w, struct str chat_id);    /* absent: none given */
void web_name_set(struct web *w, struct str chat_id, struct str name); /* empty: deletes it */
void web_name_heard(struct web *w, struct str chat_id); /* notes that the visitor wrote today */
void web_name_drop(struct web *w, struct str chat_id);  /* from memory only */
void web_names_age(struct web *w); /* deletes some names older than the retention */

/* ---- http.c ---- */
bool web_http(struct platform *p, struct http_req *req);
void web_page_build(struct web *w);
void web_refuse_for_now(struct web *w, struct http_id id, int status, const char *code,
                        const char *sentence, int retry_s);

bool web_page_visitor(struct platform *p, struct http_req *req, bool writes, struct buf *ret_chat);

void web_file_key(struct platform *p, struct str chat, const struct event_media *m,
                  struct buf *out);
/* Reads the files that a message names; strs are borrowed from @list.  False: a file's key is not
 * valid for this chat, or there are more than WEB_MAX_FILES. */
bool web_files_read(struct web *w, struct str chat, struct json list, struct event_media *ret,
                    size_t *ret_n);
/* Appends files as JSON, for pages and records. */
void web_files_write(struct web *w, struct str chat, const struct event_media *m, size_t n,
                     struct buf *out);
/* The message_type of a message with a file of this kind: "photo", "voice", ... */
struct str web_file_message_type(struct str kind);

/* ---- inbound.c ---- */
struct web_visitor {
    char chat_id[VISITOR_CHAT_CHARS + 1];
    bool is_person; /* came with the cookie */
};
void web_post_message(struct web *w, struct http_req *req, const struct web_visitor *v);
void web_post_name(struct web *w, struct http_req *req, const struct web_visitor *v);
void web_post_press(struct web *w, struct http_req *req, const struct web_visitor *v);
void web_act_prompt(struct web *w, struct action_id id, const struct action_from *from,
                    const struct action *a);
void web_prompt_over(struct platform *p, struct prompt *q);
bool web_may_write_now(struct web *w, struct str chat_id, bool is_person);
void web_inbound_cancel(struct web *w);
void web_post_answer(struct web *w, struct http_id id, uint64_t message_id);

/* ---- stream.c ---- */
struct web_stream {
    struct list link; /* on its chat */
    struct web_chat *chat;
    struct http_id http;
    struct party *party;         /* one hold; its limit counts the stream; NULL: nobody's */
    struct web_job *catching_up; /* NULL: live.  Until then it gets no published messages. */
};
struct web_chat *web_chat_get(struct web *w, struct str chat_id);  /* creates it if missing */
struct web_chat *web_chat_find(struct web *w, struct str chat_id); /* NULL: not in memory */
void web_chat_settle(struct web_chat *c); /* call after n_streams or n_jobs fell; may free @c */
void web_chats_free(struct web *w);
void web_stream_open(struct web *w, struct http_req *req, const struct web_visitor *v);
/* Makes @s live: it has everything up to @rev. */
void web_stream_go_live(struct web_stream *s, uint64_t rev);
void web_stream_end(struct web_stream *s); /* frees it; the chat stays */
void web_stream_reset(
    struct web_stream *s); /* too much was missed: the page reads its history again */
void web_stream_message(struct web_stream *s, const struct web_message *m, struct str json);
void web_publish(struct web_chat *c, const char *event, uint64_t rev,
                 struct str json); /* rev 0: none */
/* Publishes a message that is not stored. */
void web_publish_unkept(struct web *w, struct str chat_id, const char *event,
                        const struct web_message *m);
void web_publish_state(struct web *w, const char *state); /* to every page */
void web_heartbeat(struct timer *t);

/* ---- live.c ---- */
/* Takes an edit of a message whose text streams.  False: the first edit, which is stored first. */
bool web_live_edit(struct web *w, struct action_id id, const struct action_from *from,
                   const struct action *a);
/* The store was asked for the message of an edit.  @of_agent false: it shows nothing. */
void web_live_found(struct web *w, struct str chat, uint64_t message, bool of_agent);
/* Takes a draft.  True: it is the final one, which the caller sends under the id @ret_message and
 * with the client_id @ret_once.  A visitor's client_id has no blank, so theirs differ. */
#define WEB_ONCE_CHARS 40
bool web_live_draft(struct web *w, struct action_id id, const struct action_from *from,
                    const struct action *a, uint64_t *ret_message, char ret_once[WEB_ONCE_CHARS]);
void web_live_said(struct web *w, struct str chat);  /* a message of the agent ends its previews */
void web_live_lost(struct web *w, uint64_t message); /* the message of a final draft: not sealed */
void web_live_forget(struct web *w, struct str chat);
void web_live_open(struct web *w);
void web_live_close(struct web *w); /* before the sender is freed */

/* ---- history.c ---- */
/* Stores a visitor's message if web_may_keep(), publishes it, answers the request. */
void web_keep_post(struct web *w, struct str chat_id, const struct web_message *m,
                   struct http_id http);
/* Numbers the agent's message unless it has an id, stores it if web_may_keep(), publishes it,
 * answers the action. */
void web_keep_send(struct web *w, struct str chat_id, struct web_message *m, struct action_id id);
/* Stores the choice in the question's message, publishes it, then calls prompts_tidied(). */
void web_keep_choice(struct web *w, struct prompt *q);
/* Replaces the text of a stored message, publishes the edit, answers the action. */
void web_keep_edit(struct web *w, struct str chat_id, uint64_t message_id, struct str text,
                   struct action_id id);

void web_history_answer(struct web *w, struct http_req *req, const struct web_visitor *v);
/* Writes the changes after rev @last to @s, then web_stream_go_live().  A failure ends @s. */
void web_catch_up(struct web_stream *s, uint64_t last);
void web_catch_up_cancel(struct web_stream *s);

void web_jobs_leave(struct web *w); /* at close: writes in flight still complete */

/* ---- sweep.c: deletes messages older than `retention`, and the oldest above
 * limits.history_bytes ---- */
void web_sweep_start(struct web *w); /* at open, if history is kept */
void web_sweep_stop(struct web *w);  /* does nothing if it was not started */
/* Counts @bytes as stored.  False: no history, no route for the bot, or the limit is reached. */
bool web_may_keep(struct web *w, size_t bytes);
bool web_is_routed(struct web *w);               /* an instance gets the messages of visitors */
void web_kept_less(struct web *w, size_t bytes); /* @bytes were deleted */

extern const struct eraser web_eraser; /* erase.c */
