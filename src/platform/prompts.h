/* prompts.h - questions with buttons: those of one bot that nobody has answered yet.
 *
 *      prompts_add() --> asked --prompts_shown()--> open --prompts_accept(), it was taken--> over
 *           its message was refused: prompts_drop()  '--its time is up, or newer came----> over
 *      over --prompt_over_cb, as often as it takes--> its message has no buttons to press --> gone
 *
 * Every button carries "hp1:<prompt>:<option>".  A press counts while its question is open, goes to
 * the instance that asked and to nobody else, and only when the gate lets the person who pressed
 * speak to it.  The first press that was taken is the answer.  Where a platform has no buttons the
 * options are numbered (prompt_write_numbered) and a bare number answers the newest question.
 *
 * On disk (namespace "prompt", key platform US bot US chat US prompt) until its message is in
 * order, so a restart changes nothing: the record is submitted before the sender's own, which is on
 * disk before anything leaves.
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

/* It was answered (q->chosen), or its time is up: its message, q->message_id in q->chat, is to lose
 * its buttons, or to show what was chosen.  Ends with prompts_tidied(), now or later; @q stays
 * until then or until prompts_close().  A few are asked for at a time. */
typedef void prompt_over_cb(struct platform *p, struct prompt *q);

/* Reads what an earlier process left: blocks, for start-up.  @p is borrowed.  @over NULL: there are
 * no buttons, or they look after themselves. */
enum bh_err prompts_open(struct platform *p, prompt_over_cb *over, struct prompts **ret_ps,
                         char *ret_why) BH_MUST_USE;
void prompts_close(struct prompts *ps); /* presses under way are called off.  NULL is fine. */

/* Why this action cannot be shown as a question; NULL: it can. */
const char *prompt_wrong(const struct action *a);
/* Ask @a, which was checked, in @chat; the same id again replaces it.  Borrowed until the next call
 * into the prompts. */
const struct prompt *prompts_add(struct prompts *ps, const struct action_from *from,
                                 const struct action *a, struct str chat);
/* The message that asks is there; its id may be absent.  Harmless when it is gone meanwhile. */
void prompts_shown(struct prompts *ps, struct str chat, struct str id, struct str message_id);
void prompts_drop(struct prompts *ps, struct str chat, struct str id); /* the same */
/* The message of @q is in order, or cannot be changed: 0.  Else not yet, and not before so many
 * ms. */
void prompts_tidied(struct prompt *q, int64_t again_ms);

/* NULL: there is no such open question (any more), or somebody is just answering it.  @token is
 * what a button carried; *@ret_option is the one that was pressed. */
struct prompt *prompts_pressed(struct prompts *ps, struct str chat, struct str token,
                               const struct prompt_option **ret_option);
/* The same for a text that may be a bare number: of the newest question there. */
struct prompt *prompts_numbered(struct prompts *ps, struct str chat, struct str text,
                                const struct prompt_option **ret_option);
bool prompt_is_token(struct str payload); /* is it ours at all? */
/* The open question that this message asks; NULL: none.  Borrowed as above. */
const struct prompt *prompts_of_message(const struct prompts *ps, struct str chat,
                                        struct str message_id);

/* May whoever @ev says answer it?  @ev says where and who. */
bool prompt_may_answer(const struct prompt *q, const struct event *ev);
/* host_accept() of the answer: @ev as above, filled in here.  The question is over when it was
 * taken, and open again when it was not. */
struct accept_id prompts_accept(struct prompt *q, const struct prompt_option *o,
                                const struct event *ev, accepted_cb *done, void *ctx);

/* "hp1:<prompt>:<option>" */
void prompt_token(char ret[PROMPT_TOKEN_MAX + 1], const struct prompt *q,
                  const struct prompt_option *o);
/* The question and its options, for platforms without buttons. */
void prompt_write_numbered(struct buf *out, struct str question, const struct prompt *q);

/* Nothing is kept of a chat, or of who asked, any more. */
void prompts_forget_chat(struct prompts *ps, struct str chat);
void prompts_forget_tenant(struct prompts *ps, struct str tenant);

size_t prompts_count(const struct prompts *ps); /* for status */
