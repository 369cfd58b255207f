/* stage_priv.h - between stage.c (order, records, life) and stage_files.c (the files). */
#pragma once
#include "base/arena.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "host/stage.h"
#include "media/media.h"
#include "media/media_fetch.h"

struct store_put;

enum item_state { ITEM_WAITS, ITEM_ASKED, ITEM_FETCHED, ITEM_HERE, ITEM_LOST };

struct item {          /* a file of an event */
    struct staged *of; /* borrowed */
    uint8_t state;
    struct media_fetch *fetch; /* owned; while ITEM_FETCHED */
    char id[MEDIA_ID_CHARS + 1];
    char why[96];
};

struct chat_queue {
    char *key; /* owned */
    struct list events;
};

struct staged {
    struct list link;    /* stages->all */
    struct list in_chat; /* its queue's events */
    struct stages *of;   /* borrowed */
    struct chat_queue *chat;
    struct arena arena;
    struct event ev; /* in the arena */
    struct event_media media[EVENT_MAX_MEDIA];
    struct item items[EVENT_MAX_MEDIA];
    char *tenant;      /* owned; who pays for its files; NULL: nobody would get it */
    accepted_cb *done; /* NULL: answered, or nobody asks */
    void *ctx;
    struct store_put *put; /* owned; NULL: on disk */
    struct timer timer;    /* the end of patience, or the next try to enter, or a late answer */
    struct accept_id entering;
    uint32_t index, generation; /* in stages->slots */
    bool begun, ready, is_entering;
    uint8_t context; /* enum item_state: of what was said before; ITEM_HERE: not wanted, either */
    bool failed;     /* it is told @late and goes */
    enum bh_err late;
    char *record;    /* owned: its key */
    char *event_key; /* owned; in stages->by_event; NULL: it has none */
};

struct stages {
    const struct host_env *env;
    struct media *media;
    struct stage_hooks hooks;
    void *ctx;
    struct list all;
    struct map chats, by_event; /* chat -> struct chat_queue; event id -> struct staged */
    struct staged **slots;      /* owned; not what they point at */
    uint32_t *generations;
    size_t n_slots, n;
    uint64_t next;
    struct json_parser *json;
    struct buf scratch;
};

/* NULL: it has gone. */
struct staged *stage_find(struct stages *s, uint32_t index, uint32_t generation);
/* Something about its files has changed: is it ready?  @e may be gone after. */
void stage_settle(struct staged *e);

static inline bool state_is_open(uint8_t state)
{
    return state == ITEM_WAITS || state == ITEM_ASKED || state == ITEM_FETCHED;
}
static inline bool item_is_open(const struct item *it)
{
    return state_is_open(it->state);
}
/* Its platform: where the files are, what was said before. */
void stage_ask(struct staged *e);
void stage_drop_files(struct staged *e); /* whatever is under way */
