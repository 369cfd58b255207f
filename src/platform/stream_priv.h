/* stream_priv.h - the internals that stream.c and stream_show.c share.
 *
 * stream.c keeps the streams of a bot and takes the actions of gateways; stream_show.c shows the
 * texts and handles the results. */
#pragma once
#include "base/map.h"
#include "platform/lru.h"
#include "platform/sender_priv.h"
#include "platform/stream.h"

#define MESSAGE_ID_MAX 128
#define STREAM_TOO_LONG "the text is too long: it would be more than %d messages"

enum stream_state {
    STREAM_IDLE,    /* nothing is newer than what is shown */
    STREAM_WAITING, /* for room in its chat */
    STREAM_READY,   /* for room of the bot; in all->ready */
    STREAM_SHOWING, /* its action is with the sender */
    STREAM_FAILED,  /* the platform refused; the next text is told why */
    STREAM_SEALING, /* all of it is shown; the record that says so is being written */
};

struct stream_part {
    char id[MESSAGE_ID_MAX]; /* of its message; "": not sent yet */
    uint64_t shown;          /* hash of the text it shows; 0: unknown */
};

struct stream_share { /* what the streams of one tenant hold */
    size_t n, bytes;
    char tenant[];
};

struct text_stream {
    struct streams *all;        /* borrowed */
    struct stream_share *share; /* borrowed from all->shares */
    struct list link;           /* all->streams */
    struct list ready;          /* all->ready[], while READY */
    enum stream_state state;
    char *key;      /* owned; in all->by_key; NULL: a send whose message is not known yet */
    size_t place_n; /* of @key: without the message or the draft */
    struct text_stream *next; /* draft: the next one of the same place; all->drafts has the first */
    char *block;              /* owned; the next three lines point into it */
    struct action_from from;
    struct str chat, thread, scope, user, reply_to;
    struct str place; /* see stream_ops.place */
    bool group;
    bool is_draft, is_message; /* a draft; one that becomes the message */
    enum stream_way way;       /* draft */
    int64_t draft_id;
    struct buf text;           /* the newest */
    size_t live;               /* STREAM_NATIVE: 1 + the part whose message grows; 0: none */
    struct buf showing, shown; /* of that part: what is being shown, and what is shown */
    bool ends;                 /* that message must not grow any more */
    bool sealing;              /* the action under way completes that message */
    size_t reached;            /* bytes of the text that were shown before it was finished */
    bool fresh;                /* @text is newer than what was shown last, or is being shown */
    bool more;                 /* more parts differ */
    bool final;                /* no newer text comes */
    bool quiet;                /* no newer text came for a while */
    bool promised;             /* a gateway was told "queued" for a text that is not shown yet */
    bool no_edits;             /* its message cannot be edited any more */
    bool kept_now;             /* the checkpoint has @text */
    bool kept_open;            /* the checkpoint completes the message that grows */
    struct stream_part *parts; /* owned */
    size_t n_parts;
    size_t going;        /* the part being shown */
    uint64_t going_hash; /* of its text */
    enum action_op going_op;
    bool going_last;      /* it is the last one of a final text */
    struct outgoing *out; /* borrowed; SHOWING */
    unsigned tries;
    int64_t typed_ms;       /* STREAM_NOTHING: when typing was shown last */
    struct action_id asker; /* of a final draft */
    bool asked;
    char request[MESSAGE_ID_MAX]; /* the id of its request */
    int64_t deadline_ms;
    struct timer timer;      /* what it means depends on the state: on_timer() */
    struct timer keep;       /* writes the checkpoint */
    uint64_t checkpoints[2]; /* numbers of records; 0: none */
    struct store_put *put;   /* SEALING; NULL: none */
    char why[256];           /* FAILED */
};

struct sealed {                   /* a final draft that was delivered, or may have been */
    struct lru_entry lru;         /* the hash of the draft: stream_said() */
    char message[MESSAGE_ID_MAX]; /* "": unknown */
    bool open;                    /* not delivered yet: @message shows a part of it */
};

struct streams {
    struct sender *sender; /* borrowed */
    const struct stream_ops *ops;
    struct pace *pace;   /* owned */
    struct list streams; /* owned */
    struct map by_key;
    struct map drafts;    /* place -> the first draft there */
    struct list ready[2]; /* READY: last texts, unfinished ones */
    struct timer pump;
    size_t n, bytes;
    struct map shares; /* tenant -> struct stream_share, owned; only tenants with streams */
    struct lru sealed; /* said -> struct sealed */
    struct buf scratch;
    struct streams_stats stats;
};

/* ---- stream.c ---- */

struct hash128 stream_said(const struct text_stream *st); /* the name of a sealed draft */
void stream_end(struct text_stream *st);  /* everything is shown, or its gateway was told */
void stream_free(struct text_stream *st); /* and leaves its checkpoints on disk */
/* The message of @st is known: further texts are edits of it. */
void stream_is_edit(struct text_stream *st, const char *message);
void stream_set_text(struct text_stream *st, struct str text);
bool stream_has_cursor(const struct text_stream *st);
const struct descriptor *streams_descriptor(const struct streams *all);

/* ---- stream_show.c ---- */

timer_cb stream_on_timer, stream_on_keep, streams_on_pump;
/* How long the text of @st has to wait for room, in its chat and for the bot, or for the bot. */
int64_t stream_room_ms(const struct text_stream *st, bool of_chat);
void stream_schedule(struct text_stream *st); /* newer text waits for room, then for its turn */
/* Newer text, or another part of it, is shown next. */
void stream_go_on(struct text_stream *st);
/* Shows the text of @st now, which is an edit; @id gets the result. */
void stream_show_edit(struct text_stream *st, struct action_id id);
bool stream_is_too_long(const struct streams *all, struct str text); /* for SENDER_MAX_PARTS */
void stream_checkpoints_write(struct text_stream *st); /* what the next start has to show */
void stream_checkpoints_delete(struct text_stream *st);
