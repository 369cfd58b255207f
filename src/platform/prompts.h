/* prompts.h - questions with buttons: those of one bot that are not over yet.
 *
 *      prompts_add() --> asked --prompts_shown()--> open --prompts_accept() was taken--> over
 *           its message was refused: prompts_drop()  '--timeout, or too many questions--> over
 *      over --prompt_over_cb, as often as it takes--> its message has no buttons to press --> gone
 *
 * Every button carries "hp1:<prompt>:<option>".  A press counts while its question is open, goes to
 * the instance that asked and to no other, and only when the gate lets the person who pressed speak
 * to that instance.  The first press that is accepted is the answer.  On platforms without buttons
 * the options are numbered (prompt_write_numbered) and a bare number answers the newest question.
 *
 * A question is stored (namespace "prompt", key platform US bot US chat US prompt) until its
 * message is in order, so a restart changes nothing.  Its record is submitted before the sender's
 * record, and the sender's record is on disk before the message leaves.
 */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "platform/platform.h"

#define PROMPT_MAX_OPTIONS 25
#define PROMPT_LABEL_CHARS 80 /* longer ones are cut */
#define PROMPT_TOKEN_MAX 64   /* bytes of what a button carries */
#define PROMPTS_PER_CHAT 16   /* then the oldest goes */
#define PROMPTS_MAX 65536     /* of one bot; the same; of a tenant: limits.prompts */

enum prompt_style { PROMPT_PLAIN, PROMPT_PRIMARY, PROMPT_SUCCESS, PROMPT_DANGER };

struct prompt_option {
    char *id, *label; /* owned by the prompt */
    enum prompt_style style;
};
struct prompt {
    char *tenant, *instance; /* who asked; owned, as all of these */
    char *chat, *id, *message_id;
    struct prompt_option *options;
    size_t n_options;
    const struct prompt_option *chosen; /* of these; NULL: nobody has answered */
    int64_t until_ms;                   /* wall clock */
    struct prompts *of;                 /* private from here on; borrowed */
    struct list link, in_chat, of_tenant;
    struct prompt_chat *where;   /* borrowed */
    struct prompt_tenant *asker; /* borrowed */
    struct prompt_press *press;  /* under way; borrowed; NULL: none */
    struct timer late;
    bool shown, over, counted;
    unsigned tries; /* to take the buttons away */
};
struct prompts;

/* The question was answered (q->chosen) or timed out: its message, q->message_id in q->chat, has to
 * lose its buttons, or to show the choice.  The platform calls prompts_tidied(), now or later; @q
 * stays until then or until prompts_close().  Called for a few questions at a time. */
typedef void prompt_over_cb(struct platform *p, struct prompt *q);

/* Reads what an earlier process left: blocks, for start-up.  @p is borrowed.  @over NULL: messages
 * of this platform need no change. */
enum bh_err prompts_open(struct platform *p, prompt_over_cb *over, struct prompts **ret_ps,
                         char *ret_why) BH_MUST_USE;
void prompts_close(struct prompts *ps); /* cancels presses under way.  NULL is fine. */

/* Why this action cannot be shown as a question; NULL: it can. */
const char *prompt_wrong(const struct action *a);
/* Ask @a, which was checked, in @chat; the same id again replaces it.  Borrowed until the next call
 * into the prompts. */
const struct prompt *prompts_add(struct prompts *ps, const struct action_from *from,
                                 const struct action *a, struct str chat);
/* The message with the question was delivered; its id may be absent.  Harmless when the question is
 * gone. */
void prompts_shown(struct prompts *ps, struct str chat, struct str id, struct str message_id);
void prompts_drop(struct prompts *ps, struct str chat, struct str id); /* the same */
/* 0: the message of @q is in order, or cannot be changed.  Else: try again, not before so
 * many ms. */
void prompts_tidied(struct prompt *q, int64_t again_ms);

/* The open question of a button; NULL: it is over, or another press is being accepted.  @token is
 * what the button carried; *@ret_option is the option that was pressed. */
struct prompt *prompts_pressed(struct prompts *ps, struct str chat, struct str token,
                               const struct prompt_option **ret_option);
/* The same for a text that may be a bare number: of the newest question there. */
struct prompt *prompts_numbered(struct prompts *ps, struct str chat, struct str text,
                                const struct prompt_option **ret_option);
bool prompt_is_token(struct str payload); /* is it ours at all? */
/* The open question that this message asks; NULL: none.  Borrowed as above. */
const struct prompt *prompts_of_message(const struct prompts *ps, struct str chat,
                                        struct str message_id);

/* Does the gate let the author of @ev answer the question? */
bool prompt_may_answer(const struct prompt *q, const struct event *ev);
/* host_accept() of the answer; fills in the rest of @ev.  The question is over when the event is
 * accepted, and open again when it is not. */
struct accept_id prompts_accept(struct prompt *q, const struct prompt_option *o,
                                const struct event *ev, accepted_cb *done, void *ctx);

/* "hp1:<prompt>:<option>" */
void prompt_token(char ret[PROMPT_TOKEN_MAX + 1], const struct prompt *q,
                  const struct prompt_option *o);
/* The question and its options, for platforms without buttons. */
void prompt_write_numbered(struct buf *out, struct str question, const struct prompt *q);

/* Deletes the questions of a chat, or of a tenant. */
void prompts_forget_chat(struct prompts *ps, struct str chat);
void prompts_forget_tenant(struct prompts *ps, struct str tenant);

size_t prompts_count(const struct prompts *ps); /* for status */
