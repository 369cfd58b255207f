/* notes.h - what a message carries besides text, said in a few words.
 *
 * A Telegram file can only be fetched through an address that contains the bot's token, so files
 * reach the agent as a note: "[photo]", "[voice message, 12 s]", "[document: report.pdf]".
 */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

/* The note for @message, in @arena or static; absent: it carries text only.  *@ret_type is its
 * message_type, untouched when that is "text". */
/* The file that a message carries: its file_id is the reference.  False: none. */
bool tg_file(struct json message, struct event_media *ret);
struct str tg_note(struct arena *a, struct json message, struct str *ret_type);
