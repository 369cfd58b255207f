/* normalize.h - a Telegram update as an event: what was said, where, by whom, and to whom.
 *
 * Pure: no clock, no network, no memory but the arena's.  Updates are a stranger's bytes: whatever
 * differs from the documentation is left out or ignored.
 *
 * What becomes what:
 *
 *      private              dm
 *      group, supergroup    group; with topics: forum, thread_id is the topic (General has none)
 *      channel              channel
 *      photo, voice, file   message_type, a short note in the text, the file by its file_id
 *      "/help@my_bot x"     "/help x"; a command for another bot is ignored
 *      an edit              a new event whose text says so: "[edited] ..."; for an agent that the
 *                           message still waits for, the message gets the new text instead
 *      a reaction           "reaction:added:<emoji>", as a reply to the bot's message
 *
 * A Telegram file can only be fetched with the bot's token, which never leaves bellhop: telegram.c
 * finds the address.  Ignored are edited commands, edits that change no text (live locations,
 * buttons), joins, pins and other service messages, and the bot's own messages. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

struct tg_me {         /* the bot, as getMe says */
    int64_t id;        /* 0: not known yet */
    char username[64]; /* without the @; empty: not known yet */
};

/* True: @ev is filled, with strs borrowed from the update's parser, from @arena and from @bot.
 * False: nothing to deliver, and *@ret_why says why in a word for the log. */
bool tg_normalize(struct json update, const struct tg_me *me, struct str bot, struct arena *arena,
                  struct event *ev, const char **ret_why);

struct tg_press {    /* a button that was pressed; strs as in tg_normalize() */
    struct event ev; /* where, and by whom */
    struct str callback, data;
    int64_t message_id;
};
bool tg_normalize_press(struct json update, struct str bot, struct arena *arena,
                        struct tg_press *ret);

/* A person's reaction to a message of the bot in @thread (0: none).  False: nothing changed. */
bool tg_normalize_reaction(struct json update, struct str bot, int64_t thread, struct arena *arena,
                           struct event *ev);

/* True when @update says that a group became a supergroup. */
bool tg_migration(struct json update, int64_t *ret_from, int64_t *ret_to);

/* Where in @s the UTF-16 offset @units lies, in bytes; false: outside, or inside of a code point.
 */
bool tg_utf16_to_byte(struct str s, int64_t units, size_t *ret_at);
