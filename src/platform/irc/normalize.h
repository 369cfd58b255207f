/* normalize.h - turns a line of IRC into an event.  Pure.
 *
 *      PRIVMSG            a message; in a channel it names the bot by "nick: ..."
 *      TAGMSG             a reaction to a message of the bot, where that is configured
 *      REDACT             deletes an earlier message
 *
 * Who wrote a line is known only by the account that the server itself puts beside it
 * (account-tag). The user id is then "account@network".  Without an account it is
 * "?nick@network": no account begins with "?", and inbound.c links no such person.  The chat is
 * "#channel@network" or "nick@network". */
#pragma once
#include "core/event.h"
#include "platform/irc/line.h"

struct irc_in { /* what the server said about itself and the bot; borrowed */
    struct str bot, network, nick;
    struct str chantypes, statusmsg;
    enum irc_case fold;
    bool has_accounts; /* account-tag was agreed upon */
    bool has_tags;     /* message-tags: msgid and client tags */
    bool reactions;    /* deliver reactions */
};

enum irc_verdict {
    IRC_EVENT,
    IRC_OWN,     /* the bot's own message, come back */
    IRC_IGNORED, /* not for an agent */
};
struct irc_out {
    struct event ev;    /* borrowed from the line and the arena */
    bool proven;        /* the author has an account */
    struct str account; /* that account, in lower case; absent: none */
    bool wants_link;    /* the text is "/link ..." */
    struct str target;  /* the chat without its network, folded; the key of the chat */
    struct str peer;    /* whom to answer: the channel, or the nick as it is spelled */
    struct str msgid;   /* absent: none */
    struct str reacted; /* of a reaction: the message it is about */
    const char *why;    /* IRC_IGNORED */
};
/* @id: the event id of a line without a msgid. */
enum irc_verdict irc_normalize(const struct irc_line *l, const struct irc_in *in, struct str id,
                               struct arena *arena, struct irc_out *ret);

/* Did a history add it to the message before it?  Its own place in the history is another. */
bool irc_is_context(const struct irc_line *l, struct arena *arena);
/* The id of a message in this tag; absent: there is none that can be used. */
struct str irc_msgid(const struct irc_line *l, struct str tag, struct arena *arena);
/* "target@network", folded. */
struct str irc_chat_id(const struct irc_in *in, struct str target, struct arena *arena);
