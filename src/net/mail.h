/* mail.h - how to log in to a mail server, and what one SMTP transaction carries.
 *
 * libcurl connects, upgrades to TLS and authenticates.  IMAP goes on as a connection of bytes
 * (tcp_client.h); a mail goes out through http_fetch() with `.mail` set (http_client.h). */
#pragma once
#include <stdint.h>
#include "base/err.h"

enum mail_tls {
    MAIL_IMPLICIT, /* TLS from the first byte */
    MAIL_STARTTLS, /* required: without it nothing is sent, not even the name of the user */
    MAIL_PLAIN,    /* no TLS */
};

struct mail_login { /* borrowed for the call */
    const char *host;
    uint16_t port;
    enum mail_tls tls;
    const char *user;     /* NULL: without a login */
    const char *password; /* NULL: none */
    const char *bearer;   /* an OAuth 2.0 access token, sent by XOAUTH2; NULL: none */
    const char *ca_path;  /* PEM file of the authorities to trust; NULL: the system's */
};

struct mail_envelope {        /* borrowed for the call */
    struct mail_login server; /* SMTP */
    const char *from, *to;    /* addresses, without angle brackets */
    const char *helo;         /* the name for EHLO; NULL: libcurl's */
};

/* Logs in and out again, blocking, for the command line.  @scheme is "imap" or "smtp"; @command: an
 * IMAP command to try after the login, NULL: none.  BH_REFUSED: the server refused the login or
 * the command.  BH_UNAVAILABLE: the server cannot be reached, or TLS failed.  @ret_why has 256
 * bytes. */
enum bh_err mail_check(const struct mail_login *to, const char *scheme, const char *command,
                       char *ret_why);
