/* link.h - one connection to an IRC server: capabilities, login, names, flood control, life signs.
 *
 *    CONNECTING --open--> GREETING --CAP LS--> ASKING --CAP ACK--> LOGGING_IN --903--> REGISTERING
 *                             '-- a server without CAP: 001 --> REGISTERING --376--> LIVE
 *    any state --lost, refused, silent--> on_closed(), once; then irc_link_free()
 *
 * A line leaves when the server's patience allows: a bucket of `burst` lines, refilled by one line
 * every `interval_ms`.  Servers cut off whoever is faster.  Answers to PING do not wait.
 *
 * irc.c and the check of `doctor` own it.  No handler runs inside a call. */
#pragma once
#include "platform/irc/line.h"
#include "platform/irc/sasl.h"

struct clock;
struct loop;
struct rand;

enum irc_cap { /* bits */
               IRC_TAGS = 1,
               IRC_TIME = 2,
               IRC_ACCOUNT = 4,
               IRC_BATCH = 8,
               IRC_ECHO = 16,
               IRC_LABELS = 32,
               IRC_HISTORY = 64,
               IRC_MULTILINE = 128,
               IRC_REDACT = 256,
               IRC_CHGHOST = 512,
               IRC_SASL = 1024,
               IRC_PLAYBACK =
                   2048, /* histories tell of joins as such, not as messages of a service */
};
struct irc_cap_name {
    const char *name;
    enum irc_cap bit;
    const char *lacks; /* what does not work without it; NULL: nothing that people notice */
};
extern const struct irc_cap_name irc_caps[]; /* ends with a NULL name */

struct irc_server { /* what the server said */
    unsigned caps;  /* agreed upon: bits of enum irc_cap */
    enum irc_case fold;
    char chantypes[16], statusmsg[16];
    char tag_deny[512];             /* CLIENTTAGDENY */
    char network[64], version[64];  /* as it calls itself */
    char account[IRC_NAME_MAX + 1]; /* the bot is logged in as; empty: it is not */
    size_t line_max;                /* bytes of a line without its tags */
    size_t history_max;             /* messages of one CHATHISTORY */
    bool history_by_id, history_by_time;
    size_t multi_bytes, multi_lines; /* of one multiline message */
    char bot_mode;                   /* the mode that marks bots; 0: it has none */
    bool utf8_only;
    bool sts;       /* a policy came over a secure connection */
    int64_t sts_ms; /* how long it lasts */
};

struct irc_link_options { /* texts are borrowed for the life of the link */
    const char *host;
    uint16_t port;
    bool tls;
    const char *ca;   /* NULL: the system's authorities */
    const char *cert; /* PEM of a certificate and its key; NULL: none */
    const char *nick, *user, *name;
    const char *password; /* of the server (PASS); NULL: none */
    enum sasl_mechanism sasl;
    const char *sasl_user, *sasl_password;
    uint32_t burst;
    int64_t interval_ms;
};

enum irc_end {
    IRC_END_LOST,
    IRC_END_DENIED, /* an operator has to change something */
    IRC_END_SECURE, /* the server wants TLS: irc_link_secure_port() */
};
struct irc_link_handlers {
    void (*on_live)(void *ctx);
    void (*on_line)(void *ctx, const struct irc_line *l); /* in LIVE; borrowed */
    void (*on_heard)(void *ctx);                          /* in LIVE: a sign of life */
    void (*on_closed)(void *ctx, enum irc_end how, const char *why);
};

struct irc_link *irc_link_open(struct loop *loop, struct rand *rand,
                               const struct irc_link_options *opt,
                               const struct irc_link_handlers *h, void *ctx);
void irc_link_free(struct irc_link *k); /* at once, silently; NULL is fine */

bool irc_link_is_live(const struct irc_link *k);
const struct irc_server *irc_link_server(const struct irc_link *k);
struct str irc_link_nick(const struct irc_link *k);
uint16_t irc_link_secure_port(const struct irc_link *k);
uint64_t irc_link_skipped(const struct irc_link *k); /* lines that were too long */
/* Bytes of text that fit into one message to @target, as others get it. */
size_t irc_link_room(const struct irc_link *k, struct str target);

/* Queues lines, each with its CR LF, that leave together and count as @cost lines.  Returns their
 * number, counted from 1. */
uint64_t irc_link_send(struct irc_link *k, struct str lines, unsigned cost);
uint64_t irc_link_sent(const struct irc_link *k); /* the number of the last that left */
/* Does nothing, and returns false, unless the lines can leave at once. */
bool irc_link_try(struct irc_link *k, struct str lines);
/* Ms until a line that is queued now would leave; 0: at once. */
int64_t irc_link_wait_ms(const struct irc_link *k);
size_t irc_link_queued(const struct irc_link *k);
void irc_link_regain(struct irc_link *k); /* asks for the nick that the bot should have */
