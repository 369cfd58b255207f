/* prompts_priv.h - between prompts.c (records and life), prompts_answer.c (presses) and
 * prompts_over.c (messages whose buttons are to go). */
#pragma once
#include "base/map.h"
#include "platform/prompts.h"

#define PROMPT_PREFIX "hp1:"

struct prompt_chat {
    char *id;            /* owned */
    struct list prompts; /* struct prompt, newest last */
    size_t n;
};

struct prompt_tenant {   /* who asks here */
    char *name;          /* owned */
    struct list prompts; /* struct prompt.of_tenant that are open, oldest first */
    struct party *party; /* held; NULL: nothing is counted */
};

struct prompt_press { /* between host_accept() and its answer */
    struct list link;
    struct prompts *of;                 /* borrowed */
    struct prompt *q;                   /* borrowed; NULL: gone meanwhile */
    const struct prompt_option *option; /* of @q */
    struct accept_id accept;
    accepted_cb *done;
    void *ctx;
};

struct prompts {
    struct platform *p; /* borrowed */
    const struct host_env *env;
    prompt_over_cb *over; /* NULL: the platform has no buttons to take away */
    struct map chats;     /* chat id -> struct prompt_chat, owned */
    struct map tenants;   /* name -> struct prompt_tenant, owned */
    struct list all;      /* struct prompt that are open, oldest first; owned */
    struct list presses;  /* struct prompt_press, owned */
    size_t n;
    struct list due, resting, busy; /* struct prompt that are over; owned */
    size_t n_over, n_busy;
    struct timer tidy;          /* some of the due ones may be begun */
    struct json_parser *parser; /* owned; while opening */
};

/* NULL: there is no such open question. */
struct prompt *prompt_find(const struct prompts *ps, struct str chat, struct str id);
void prompt_save(const struct prompt *q);
void prompt_end(struct prompt *q);    /* no answer counts any more: over, or gone */
void prompt_leave(struct prompt *q);  /* it is none of the open ones any more */
void prompt_remove(struct prompt *q); /* with its record */
void prompt_free(struct prompt *q);   /* the record stays */

/* ---- prompts_over.c ---- */
void prompts_over_init(struct prompts *ps);
void prompts_over_close(struct prompts *ps);
/* Those of a chat, or of a tenant (the other is absent): nothing more is tried for them. */
void prompts_over_forget(struct prompts *ps, struct str chat, struct str tenant);
/* @q, which left, has a message: its buttons go. */
void prompt_over(struct prompt *q);
