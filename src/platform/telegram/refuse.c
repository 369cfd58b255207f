/* refuse.c - Telegram's refusals, as sentences a person can act on.
 *
 * Matched on parts of the description, which is all Telegram offers; what is not in the table is
 * passed on in its own words.  None of them may contain the words the gateway acts on ("network",
 * "timed out"): these refusals are final. */
#include <string.h>
#include "base/mem.h"
#include "platform/telegram/telegram_priv.h"

static const struct {
    const char *part, *sentence;
} refusals[] = {
    {"bot was blocked", "the person has blocked this bot; they have to unblock it or press Start"},
    {"user is deactivated", "this Telegram account no longer exists"},
    {"can't initiate conversation", "the person has to write to the bot first"},
    {"bot can't send messages to bots", "Telegram does not let bots write to bots"},
    {"bot was kicked", "the bot was removed from this chat; somebody has to add it again"},
    {"bot is not a member", "the bot is not a member of this chat; somebody has to add it"},
    {"group chat was deleted", "this group no longer exists"},
    {"chat not found", "Telegram knows no such chat, or the bot was never in it"},
    {"PEER_ID_INVALID", "Telegram knows no such chat, or the bot was never in it"},
    {"not enough rights", "the bot may not write here; an admin of the chat has to allow it"},
    {"have no rights to send", "the bot may not write here; an admin of the chat has to allow it"},
    {"CHAT_WRITE_FORBIDDEN", "the bot may not write here; an admin of the chat has to allow it"},
    {"CHAT_RESTRICTED", "the bot may not write here; an admin of the chat has to allow it"},
    {"message thread not found", "this topic no longer exists in the chat"},
    {"TOPIC_CLOSED", "this topic is closed; an admin of the chat has to reopen it"},
    {"TOPIC_DELETED", "this topic no longer exists in the chat"},
    {"message to edit not found", "there is no such message to edit"},
    {"MESSAGE_ID_INVALID", "there is no such message to edit"},
    {"message can't be edited", "Telegram does not let the bot edit this message"},
    {"message is too long", "the message is too long for Telegram"},
    {"text must be non-empty", "the message is empty"},
    {"message text is empty", "the message is empty"},
};

const char *tg_refusal(int code, const char *why)
{
    if (code == 401 || code == 404)
        return "Telegram does not know the bot's token: the operator has to renew it";
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
        if (strcasestr(why, refusals[i].part) != NULL)
            return refusals[i].sentence;
    return NULL;
}

bool tg_refuses_entities(const struct tg_answer *a)
{
    return a->code == 400 &&
           (strcasestr(a->why, "can't parse") != NULL || strcasestr(a->why, "entit") != NULL);
}
