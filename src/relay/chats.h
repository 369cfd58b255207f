/* chats.h - which chats an instance was delivered something from: the ground of the egress guard.
 *
 * Kept for good (namespace "chat", key tenant \x1f instance \x1f platform \x1f chat id, value
 * {"bot":...,"scope":...}): an agent may answer long after, and after a restart of either side.  A
 * chat lives as long as the relay. */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct event;
struct instance;
struct relay;

struct chat {
    struct instance *inst; /* borrowed */
    struct chat *next;     /* the same chat id on another platform, less recently heard from */
    char *bot;             /* owned; the identity it was heard through last; "" when unnamed */
    char *scope;           /* owned; the guild it lies in; "" when none or not known */
    struct str id, platform;
    bool stored;  /* its record is on disk or on its way */
    char bytes[]; /* number of the mailbox, id, platform; number and id are the map key */
};

/* @ev goes to @i.  NULL when it names no chat. */
struct chat *chats_note(struct instance *i, const struct event *ev);
/* The platform heard from last comes first; NULL: never delivered. */
struct chat *chats_find(const struct instance *i, struct str chat_id);
struct chat *chats_find_on(const struct instance *i, struct str platform, struct str chat_id);

enum bh_err chats_load_all(struct relay *r);
void chats_free_all(struct relay *r);
