/* terminal.c - see terminal.h.
 *
 * The terminal keeps its own line editing; only the echo is switched off for secrets.  Signals
 * interrupt the read, so the echo comes back whatever the person does. */
#include "cli/terminal.h"
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/mem.h"

#define MAX_LINE 65536

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    signalled = number;
}

void terminal_open(struct terminal *t)
{
    struct sigaction a = {.sa_handler = on_signal}; /* a signal ends read() */

    *t = (struct terminal){.asks = isatty(STDIN_FILENO) && isatty(STDERR_FILENO)};
    signalled = 0;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaction(signals[i], &a, &t->old[i]);
}

void terminal_close(struct terminal *t)
{
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        sigaction(signals[i], &t->old[i], NULL);
}

bool terminal_is_stopped(struct terminal *t)
{
    t->stopped |= signalled != 0;
    return t->stopped;
}

void terminal_say(const char *fmt, ...)
{
    BUF_LOCAL out = BUF_INIT;
    char *said = NULL;
    struct str rest, line;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&said, fmt, ap);
    va_end(ap);
    for (rest = n >= 0 ? str_of(said) : STR(""); str_split(&rest, '\n', &line);) {
        buf_add_plain(&out, line);
        buf_add_c(&out, '\n');
    }
    fwrite(buf_str(&out).p, 1, out.n, stderr);
    if (said != NULL)
        secret_wipe(said, strlen(said));
    free(said);
}

/* Reads one line without its end.  False: a signal, or the end of the input. */
static bool read_line(struct terminal *t, struct buf *out)
{
    char c = 0;

    buf_reset(out);
    while (!terminal_is_stopped(t)) {
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            t->stopped = true;
        else if (c == '\n')
            return true;
        else if (out->n < MAX_LINE)
            buf_add_c(out, c);
    }
    return false;
}

bool terminal_ask(struct terminal *t, const char *question, const char *otherwise, struct buf *out)
{
    BUF_LOCAL line = BUF_INIT;

    if (terminal_is_stopped(t))
        return false;
    if (t->asks) {
        fprintf(stderr, "%s%s%s%s: ", question, otherwise != NULL ? " [" : "",
                otherwise != NULL ? otherwise : "", otherwise != NULL ? "]" : "");
        if (!read_line(t, &line)) {
            fputc('\n', stderr);
            return false;
        }
    }
    struct str given = str_trim(buf_str(&line));
    buf_reset(out);
    buf_add_str(out, given.n > 0 ? given : str_of(otherwise));
    return true;
}

bool terminal_ask_secret(struct terminal *t, const char *question, bool kept, struct buf *out)
{
    struct termios was, hidden;
    BUF_SECRET line = BUF_INIT;

    buf_reset(out);
    if (!t->asks || terminal_is_stopped(t))
        return !t->stopped;
    if (tcgetattr(STDIN_FILENO, &was) != 0)
        return false;
    hidden = was;
    hidden.c_lflag &= (tcflag_t)~ECHO;
    bool ok = tcsetattr(STDIN_FILENO, TCSADRAIN, &hidden) == 0;
    fprintf(stderr, "%s (it is not shown%s): ", question, kept ? "; Enter keeps the old one" : "");
    ok = ok && read_line(t, &line);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &was);
    fputc('\n', stderr);
    t->stopped |= !ok;
    buf_add_str(out, str_trim(buf_str(&line)));
    return ok;
}

bool terminal_confirm(struct terminal *t, const char *question, bool otherwise, bool *ret_yes)
{
    BUF_LOCAL line = BUF_INIT, text = BUF_INIT;

    buf_printf(&text, "%s [%s]", question, otherwise ? "Y/n" : "y/N");
    for (;;) {
        if (!terminal_ask(t, buf_z(&text), NULL, &line))
            return false;
        char c = line.n > 0 ? (char)(line.p[0] | 32) : otherwise ? 'y' : 'n';
        *ret_yes = c == 'y';
        if (c == 'y' || c == 'n')
            return true;
        terminal_say("Please answer y or n.");
    }
}

bool terminal_wait(struct terminal *t, int timeout_ms)
{
    struct pollfd p = {.fd = t->asks ? STDIN_FILENO : -1, .events = POLLIN};
    BUF_LOCAL line = BUF_INIT;

    if (terminal_is_stopped(t))
        return true;
    if (poll(&p, 1, timeout_ms) <= 0)
        return terminal_is_stopped(t);
    read_line(t, &line);
    return true;
}
