/* errors.c - what Discord's refusals mean, in words a person can act on.
 *
 * Discord's own message is passed on only when it has no words the gateway's side would act on. */
#include <inttypes.h>
#include <stdio.h>
#include "base/mem.h"
#include "platform/discord/rest.h"

static const struct {
    int64_t code;
    const char *sentence;
} table[] = {
    {10003, "Discord does not know this channel: it was deleted, or the bot was removed from it"},
    {10004, "the bot is not in this Discord server any more: invite it again"},
    {10008, "this message does not exist any more on Discord"},
    {20022, "Discord allows no more edits of this announcement for now"},
    {20028, "Discord allows no more messages in this channel for now"},
    {30046, "Discord allows no more edits of this old message for now"},
    {40001, "Discord refuses the bot's token: put the current one into bellhop's config"},
    {40333, "Discord's front server refuses bellhop's requests: check `api_base` and proxies"},
    {50001, "the bot cannot see this Discord channel: give it View Channel there"},
    {50005, "the bot can only edit messages of its own"},
    {50006, "there is nothing to send: the text is empty"},
    {50007, "this person does not take direct messages from the bot on Discord"},
    {50008, "this Discord channel does not take text messages"},
    {50013, "the bot lacks a permission in this Discord channel: give it Send Messages (in "
            "threads: Send Messages in Threads)"},
    {50024, "Discord does not allow this in this kind of channel"},
    {50035, "Discord does not accept this message as it is"},
    {50083, "this Discord thread is archived: reopen it first"},
    {50278, "the bot shares no Discord server with this person and cannot write to them"},
    {160005, "this Discord thread is locked"},
    {200000, "the server's AutoMod blocked this message"},
    {240000, "Discord blocked this message because of a link in it"},
};

static const char *sentence_of(int64_t code)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].code == code)
            return table[i].sentence;
    return NULL;
}

void discord_refusal(const struct discord_answer *a, char ret_why[256])
{
    const char *sentence = sentence_of(a->code);
    char message[121];

    if (sentence == NULL && a->status == 401)
        sentence = sentence_of(40001);
    if (sentence != NULL) {
        snprintf(ret_why, 256, "%s", sentence);
        return;
    }
    snprintf(message, sizeof message, "%.*s", (int)(a->message.n < 120 ? a->message.n : 120),
             a->message.n > 0 ? a->message.p : "");
    snprintf(ret_why, 256, "Discord refused this (HTTP %d, code %" PRId64 ")%s%s", a->status,
             a->code, message[0] != '\0' && !sender_is_loaded(message) ? ": " : "",
             sender_is_loaded(message) ? "" : message);
}
