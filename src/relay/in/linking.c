/* linking.c - design.  (linking.h has the contract.)
 *
 *      /link CODE -> link_code_redeem() -> on disk -> accepted, and told to the person
 *                                       -> store error -> the platform sends the message again
 */
#include "relay/in/linking.h"
#include <stdlib.h>
#include "core/session_key.h"
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/interrupt.h"
#include "relay/in/judge.h"
#include "relay/out/chats.h"
#include "relay/sleep/instance.h"
#include "tenancy/grants.h"

struct linking {
    struct list link;                                        /* linkings->under_way */
    struct relay *relay;                                     /* borrowed */
    struct accept *a;                                        /* held */
    char *platform, *bot, *chat_id, *thread_id, *message_id; /* owned */
    char *user_id, *key;                                     /* owned */
    bool direct;                                             /* in a direct chat with the bot */
};

static void linking_free(struct linking *l)
{
    list_remove(&l->link);
    free(l->platform);
    free(l->bot);
    free(l->chat_id);
    free(l->thread_id);
    free(l->message_id);
    free(l->user_id);
    free(l->key);
    free(l);
}

struct linkings {
    struct list under_way;
};

struct linkings *linkings_new(void)
{
    struct linkings *t = xcalloc(1, sizeof *t);

    list_init(&t->under_way);
    return t;
}

void linkings_free(struct linkings *t)
{
    if (t == NULL)
        return;
    list_each (&t->under_way, it, nxt)
        linking_free(list_entry(it, struct linking, link));
    free(t);
}

static void tell_person(const struct linking *l, const char *text)
{
    struct outside *outside = l->relay->env.outside;
    const struct outlet *at = outside->find(outside, str_of(l->platform), str_of(l->bot));
    struct action act = {.op = ACTION_SEND,
                         .op_name = STR("send"),
                         .chat_id = str_of(l->chat_id),
                         .content = str_of(text),
                         .reply_to = str_of(l->message_id),
                         .thread_id = str_of(l->thread_id),
                         .platform = str_of(l->platform),
                         .bot = str_of(l->bot),
                         .deadline_ms =
                             clock_now_ms(l->relay->env.clock) + l->relay->lim.action_ms};
    const struct action_from us = {STR(""), STR(""), STR_NULL, 0};
    const struct action_id nobody = {UINT32_MAX, 0}; /* the result is for no gateway */

    if (at != NULL && !str_is_empty(act.chat_id))
        outside->act(outside, at, nobody, &us, &act);
}

/* After a /link in a direct chat the instance may write in that chat, through that bot. */
static void note_chat(const struct linking *l)
{
    struct relay *r = l->relay;
    struct event ev = {.platform = str_of(l->platform),
                       .bot = str_of(l->bot),
                       .route_key = str_of(l->key),
                       .chat_id = str_of(l->chat_id),
                       .chat_type = STR("dm"),
                       .user_id = str_of(l->user_id)};
    const struct gate_instance *to = grant_newest_link(r->env.facts, ev.platform, ev.user_id);
    struct instance *i = to != NULL ? instance_get(r, to->tenant, to->instance) : NULL;
    struct buf key = BUF_INIT;

    if (!l->direct || i == NULL || i->life != to->life)
        return;
    session_key_of_event(&key, &ev);
    chats_note(i, &ev, interrupt_key(i, buf_str(&key)), true);
    buf_done(&key);
}

static const char *answer_to(enum bh_err err)
{
    switch (err) {
    case BH_OK:
        return "Linked. What you write here now goes to your agent.";
    case BH_BUSY:
        return "Too many wrong codes. Try again in an hour.";
    case BH_MALFORMED:
        return "Send /link followed by the code you were given.";
    case BH_NOT_FOUND:
    case BH_CONFLICT:
        return "That code is not valid. A code works once and for ten minutes; ask for a new one.";
    default:
        return NULL; /* ours to repeat, not theirs */
    }
}

static void on_redeemed(void *ctx, enum bh_err err, const char *why)
{
    struct linking *l = ctx;
    struct relay *r = l->relay;
    const char *answer = answer_to(err);

    (void)why;
    if (err == BH_OK) {
        r->n.linked++;
        note_chat(l);
        log_info(NULL, "a person was linked: platform=%s", l->platform);
    }
    if (answer != NULL)
        tell_person(l, answer);
    accept_release(r, l->a, answer != NULL ? BH_OK : BH_UNAVAILABLE);
    linking_free(l);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* "/link", "/link CODE", "/link@bot CODE".  False: it is something else. */
static bool read_link(const struct event *ev, struct str *ret_code)
{
    struct str text = str_trim(ev->text), head = str_make(text.p, text.n < 5 ? text.n : 5);
    size_t n = 0;

    if (ev->author_is_bot || !str_eq_ci(head, STR("/link")))
        return false;
    text = str_skip(text, 5);
    if (text.n > 0 && text.p[0] == '@') {
        while (n < text.n && !is_blank(text.p[n]))
            n++;
        if (!str_eq_ci(str_make(text.p + 1, n - 1), ev->bot))
            return false;
        text = str_skip(text, n);
    } else if (text.n > 0 && !is_blank(text.p[0])) {
        return false;
    }
    *ret_code = str_trim(text);
    for (size_t i = 0; i < ret_code->n; i++)
        if (is_blank(ret_code->p[i]))
            return false; /* more than one word: not a code */
    return true;
}

static char *dup_or_null(struct str s)
{
    return s.p != NULL ? str_dup(s) : NULL;
}

bool linking_take(struct relay *r, const struct event *ev, struct accept *a)
{
    struct str code;

    if (!read_link(ev, &code))
        return false;
    struct linking *l = xcalloc(1, sizeof *l);
    list_init(&l->link);
    l->relay = r;
    l->a = a;
    l->platform = str_dup(ev->platform);
    l->bot = dup_or_null(ev->bot);
    l->chat_id = dup_or_null(ev->chat_id);
    l->thread_id = dup_or_null(ev->thread_id);
    l->message_id = dup_or_null(ev->message_id);
    l->user_id = dup_or_null(ev->user_id);
    l->key = dup_or_null(ev->own_key.p != NULL ? ev->own_key : ev->route_key);
    l->direct = str_eq(ev->chat_type, STR("dm"));
    list_append(&r->linkings->under_way, &l->link);
    accept_hold(a);
    judge_consumed(r, ev, "/link");
    link_code_redeem(r->env.facts, ev->platform, ev->user_id, code, on_redeemed, l);
    return true;
}
