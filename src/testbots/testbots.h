/* testbots.h - bots without a network, for `bellhop serve --ephemeral`: a test is the person, and
 * sees what the gateway does.
 *
 *      `bellhop say`    --> testbots_say() --> host_accept() --> gate, mailbox, gateway
 *      `bellhop expect` <-- testbots_take() <-- what came <-- actions, acks, sleeps of gateways
 *
 * A test bot has the name, the descriptor and the flags of its platform; a platform that this build
 * does not have gets a descriptor that can do everything.  Bots open when somebody names them: a
 * person, or a gateway's hello.  Each platform has an open route to the one instance of the server,
 * so everybody reaches that instance through every bot, until an operator adds other routes.
 *
 * Everything behind a test bot is the real thing: routes, gate, mailbox, guard, outbox.  A test bot
 * performs every action that the guard admits.
 *
 * What came is kept until it is taken, TESTBOTS_KEPT things and TESTBOTS_BYTES at most; the oldest
 * goes first.
 */
#pragma once
#include "core/accept.h"
#include "core/event.h"
#include "base/err.h"

struct facts;
struct host;
struct regex;

#define TESTBOTS_MAX 64 /* open bots */
#define TESTBOTS_KEPT 4096
#define TESTBOTS_BYTES ((size_t)64 << 20)

/* @host, @facts and the names of the instance are borrowed for the life of the bots.  The default
 * bot is open when this returns.  NULL: @ret_why (256 bytes) says why it is not. */
struct testbots *testbots_new(struct host *host, struct facts *facts, struct str tenant,
                              struct str instance, char *ret_why);
void testbots_free(struct testbots *t); /* after the host closed its bots; NULL is fine */

/* The bot that a person writes to who names none: the one that a gateway named last, or the default
 * bot.  @platform given: of that platform. */
void testbots_default(const struct testbots *t, struct str *platform, struct str *bot);

/* A person writes.  @ev names platform and bot; route key and event id are made here.  The bot and
 * its route are made if they are missing.  Runs @done later, exactly once.  False: @ret_why (256
 * bytes) says what is wrong, and nothing happened. */
bool testbots_say(struct testbots *t, const struct event *ev, accepted_cb *done, void *ctx,
                  char *ret_why);
/* A new id for a message that has none; borrowed until the next call. */
struct str testbots_message_id(struct testbots *t);

/* Takes the oldest thing of the kind @what ("send", "edit", ..., "ack", "sleep") that @match (NULL:
 * any) finds in its text or in its JSON.  Appends it as an object.  False: there is none yet. */
bool testbots_take(struct testbots *t, struct str what, const struct regex *match, struct buf *out);
/* The kinds that exist, as op_arg.one_of has them: "ack|sleep|send|...". */
extern const char testbots_kinds[];
