/* terminal.h - questions to the person at the terminal.
 *
 *      struct terminal t;
 *      terminal_open(&t);
 *      if (!terminal_ask(&t, "Name", "desk", &name)) ...   // Ctrl-C, or the input has ended
 *      terminal_close(&t);
 *
 * Everything is printed to stderr.  While a terminal is open, SIGINT, SIGTERM and SIGHUP only mark
 * it as stopped: every question then returns false, so the caller unwinds and cleans up. */
#pragma once
#include <signal.h>
#include "base/buf.h"

struct terminal {
    bool asks;    /* false: no terminal, every question takes its default */
    bool stopped; /* the person wants to stop, or the input has ended */
    struct sigaction old[3];
};

/* @t->asks is false if stdin or stderr is no terminal. */
void terminal_open(struct terminal *t);
void terminal_close(struct terminal *t);
bool terminal_is_stopped(struct terminal *t); /* also true after one of the signals */

/* Prints a line, made harmless by buf_add_plain(); "\n" in the text begins a new line. */
void terminal_say(const char *fmt, ...) BH_PRINTF(1, 2);
/* Asks for a line.  An empty answer is @otherwise, which may be NULL.  False: stopped. */
bool terminal_ask(struct terminal *t, const char *question, const char *otherwise, struct buf *out);
/* Asks for a secret, which the terminal does not show.  @kept: an empty answer keeps an old one. */
bool terminal_ask_secret(struct terminal *t, const char *question, bool kept, struct buf *out);
/* Asks for yes or no. */
bool terminal_confirm(struct terminal *t, const char *question, bool otherwise, bool *ret_yes);
/* Waits @timeout_ms for the Enter key.  True: the key was pressed, or the person wants to stop. */
bool terminal_wait(struct terminal *t, int timeout_ms);
