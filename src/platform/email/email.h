/* email.h - connects a mailbox: IMAP in, SMTP out.
 *
 * The bot is its address ("desk@example.org").  The chat is the correspondent's address, the thread
 * the Message-ID of the thread's first mail.  The route key of an event is the correspondent; if it
 * has no route, the bot's route applies.  docs/platforms/email.md describes the set-up. */
#pragma once
#include "platform/platform.h"

struct email_server { /* owned by the config */
    char *host, *user, *password;
    uint32_t port; /* 0: the usual one for @tls */
    int tls;       /* enum mail_tls */
};
struct email_settings {
    struct platform_settings base; /* first */
    struct email_server imap, smtp;
    char *authserv_id;
    char *folder; /* NULL: INBOX */
    char *name;   /* the name in From; NULL: none */
    char *ca;     /* NULL: the system's authorities */
    bool allow_lists;
    int64_t poll_ms;
    struct {
        char *token_url, *client_id, *client_secret, *refresh_token, *scope;
    } oauth; /* token_url NULL: passwords */
};
extern const struct config_section email_config;
extern const struct platform_ops email_ops;
