/* prompts.h - keeps the open questions of one bot: messages of agents with buttons to choose from.
 *
 *      prompts_add() --> asked --prompts_shown()--> open --prompts_accept() succeeded--> over
 *           its message was refused: prompts_drop()  '--timeout, or too many questions--> over
 *      over --ops->prompt_over(), retried--> its message has no buttons any more --> deleted
 *
 * Every button carries "hp1:<prompt>:<option>".  A press counts while its question is open.  The
 * press goes only to the instance that asked, and only if the gate lets the person who pressed
 * speak to that instance.  The first accepted press is the answer.  On platforms without buttons
 * the options are numbered (prompt_write_numbered), and a bare number answers the newest question.
 *
 * Adapters call this module; `erase` deletes questions through it.  A question is stored (namespace
 * "prompt", key platform US bot US chat US prompt) until its message has been updated, so open
 * questions survive a restart.  Its record is written before the sender's record, which is on disk
 * before the message leaves.
 */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "platform/platform.h"

#define PROMPT_MAX_OPTIONS 25
#define PROMPT_LABEL_CHARS 80 /* longer labels are cut */
#define PROMPT_TOKEN_MAX 64   /* bytes of a button's token */
#define PROMPTS_PER_CHAT 16   /* beyond it the oldest question of the chat ends */
#define PROMPTS_MAX 65536     /* of one bot, as above; limits.prompts bounds a tenant */

enum prompt_style { PROMPT_PLAIN, PROMPT_PRIMARY, PROMPT_SUCCESS, PROMPT_DANGER };

struct prompt_option {
    char *id, *label; /* owned by the prompt */
    enum prompt_style style;
};
struct prompt {
    struct str platform, bot;      /* of the key of its record; borrowed */
    char *tenant, *instance;       /* owned; the instance that asked */
    char *chat, *id, *message_id;  /* owned */
    char *thread;                  /* owned; where it was asked; NULL: in no thread */
    struct prompt_option *options; /* owned */
    size_t n_options;
    const struct prompt_option *chosen; /* one of @options; NULL: not answered */
    struct str chosen_id;               /* in its record; borrowed */
    int64_t until_ms;                   /* wall clock */
    bool owners_only;                   /* only people linked to the instance may answer */
    struct prompts *of;                 /* private from here on; borrowed */
    struct list link, in_chat, of_tenant;
    struct prompt_group *where, *asker; /* its chat and its tenant; borrowed */
    struct prompt_press *press;         /* being accepted; borrowed; NULL: none */
    struct timer late;
    bool shown, over, counted;
    unsigned tries; /* attempts to remove the buttons */
};
extern const struct record_form prompt_form;
extern const char *const prompt_styles[]; /* names of enum prompt_style, as gateways write them */

/* platform_ops.prompt_over(): the question was answered (q->chosen) or timed out.  The platform
 * removes the buttons of its message, q->message_id in q->chat, or shows the choice.  Then it calls
 * prompts_tidied(), now or later; the question stays until then or until prompts_close().  Called
 * for a few questions at a time. */

/* Sets p->prompts and reads the questions of an earlier process: blocks, for start-up. */
enum bh_err prompts_open(struct platform *p, char *ret_why) BH_MUST_USE;
void prompts_close(struct prompts *ps); /* cancels presses in flight.  NULL is fine. */

/* Why @a is not a valid question; NULL: it is valid. */
const char *prompt_wrong(const struct action *a);
/* Adds the question @a, which prompt_wrong() has checked.  A question of the same id that the
 * instance has in @chat is replaced.  The result is borrowed until the next call into the prompts.
 */
const struct prompt *prompts_add(struct prompts *ps, const struct action_from *from,
                                 const struct action *a, struct str chat);
/* The message with the question was delivered; @message_id may be absent.  Does nothing for an
 * unknown question. */
void prompts_shown(struct prompts *ps, const struct action_from *from, struct str chat,
                   struct str id, struct str message_id);
/* The message was refused: deletes the question.  Does nothing for an unknown question. */
void prompts_drop(struct prompts *ps, const struct action_from *from, struct str chat,
                  struct str id);
/* @again_ms 0: the message of @q is updated, or cannot be.  Else: retry, not before @again_ms. */
void prompts_tidied(struct prompt *q, int64_t again_ms);

/* Finds the open question of a button under the message @message_id (absent: not known); NULL: the
 * question is over, or another press is being accepted.  @token comes from the button; *@ret_option
 * is the option that was pressed. */
struct prompt *prompts_pressed_under(struct prompts *ps, struct str chat, struct str token,
                                     struct str message_id,
                                     const struct prompt_option **ret_option);
static inline struct prompt *prompts_pressed(struct prompts *ps, struct str chat, struct str token,
                                             const struct prompt_option **ret_option)
{
    return prompts_pressed_under(ps, chat, token, STR_NULL, ret_option);
}
/* Finds the newest question of the chat and thread of @ev if its text is a bare number of one of
 * the question's options; else NULL. */
struct prompt *prompts_numbered(struct prompts *ps, const struct event *ev,
                                const struct prompt_option **ret_option);
bool prompt_is_token(struct str payload); /* does a button of bellhop's carry it? */
/* Finds the question that the author of @ev answers and may answer: by @press, the token of a
 * button, or by a bare number as the text.  NULL: @ev answers none. */
struct prompt *prompts_answered(struct prompts *ps, const struct event *ev, struct str press,
                                const struct prompt_option **ret_option);
/* The open question of this message; NULL: none.  Borrowed until the next call. */
const struct prompt *prompts_of_message(const struct prompts *ps, struct str chat,
                                        struct str message_id);

/* Does the gate let the author of @ev answer the question? */
bool prompt_may_answer(const struct prompt *q, const struct event *ev);
/* Calls host_accept() for the answer, with @ev completed.  If the event is accepted, the question
 * is over; if not, the question is open again. */
struct accept_id prompts_accept(struct prompt *q, const struct prompt_option *o,
                                const struct event *ev, accepted_cb *done, void *ctx);

/* Writes "hp1:<prompt>:<option>". */
void prompt_token(char ret[PROMPT_TOKEN_MAX + 1], const struct prompt *q,
                  const struct prompt_option *o);
/* Writes the question and its numbered options, for platforms without buttons. */
void prompt_write_numbered(struct buf *out, struct str question, const struct prompt *q);
/* Adds the question @a, and puts its text with numbered options into a->content, in @room.  False:
 * the question is not valid, and was refused with host_fail(). */
bool prompts_add_numbered(struct platform *p, struct action_id id, const struct action_from *from,
                          struct action *a, struct buf *room);

/* Deletes the questions of a chat, or of a tenant. */
void prompts_forget_chat(struct prompts *ps, struct str chat);
void prompts_forget_tenant(struct prompts *ps, struct str tenant);

size_t prompts_count(const struct prompts *ps); /* for status */
