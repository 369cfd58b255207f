/* normalize.h - turns a Telegram update into an event.
 *
 *      private              dm
 *      group, supergroup    group; with topics: forum, thread_id is the topic (General has none)
 *      channel              channel
 *      photo, voice, file   message_type, a short note in the text, the file by its file_id
 *      "/help@my_bot x"     "/help x"; a command for another bot is ignored
 *      an edit              a new event with the text "[edited] ..."; if the message still waits in
 *                           the mailbox, its text is replaced instead
 *      a reaction           "reaction:added:<emoji>", as a reply to the bot's message
 *
 * Ignored: edited commands, edits without a change of text (live locations, buttons), joins, pins
 * and other service messages, and the bot's own messages.
 *
 * inbound.c calls it for every update.  Pure: no clock, no network, and all memory comes from the
 * arena.  Updates are untrusted: fields that differ from the Bot API's documentation are ignored.
 * A file's address contains the bot's token; telegram.c looks it up and no gateway sees it. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

struct tg_me {         /* the bot, from getMe */
    int64_t id;        /* 0: not known yet */
    char username[64]; /* without the @; empty: not known yet */
};

/* Fills @ev with strs borrowed from the update's parser, from @arena and from @bot.  False: nothing
 * to deliver; *@ret_why is the reason, for the log. */
bool tg_normalize(struct json update, const struct tg_me *me, struct str bot, struct arena *arena,
                  struct event *ev, const char **ret_why);

struct tg_press {    /* a press of a button; strs as in tg_normalize() */
    struct event ev; /* the chat and the person */
    struct str callback, data;
    int64_t message_id;
};
bool tg_normalize_press(struct json update, struct str bot, struct arena *arena,
                        struct tg_press *ret);

/* A person's reaction to a message of the bot in @thread (0: none).  False: nothing changed. */
bool tg_normalize_reaction(struct json update, struct str bot, int64_t thread, struct arena *arena,
                           struct event *ev);

/* True when @update reports that a group became a supergroup, which changes its id. */
bool tg_migration(struct json update, int64_t *ret_from, int64_t *ret_to);
