/* tmux.c - types into a pane: what a person at that terminal would see typed.
 *
 * The text goes through a paste buffer of tmux, in one piece and as a bracketed paste where the
 * program in the pane asks for such.  Control characters could act on the terminal or end the
 * paste, so they are replaced by their pictures before tmux sees them.
 *
 *      deliver   pastes the text and a line break: a program that asks for bracketed paste has it
 *                in its input and does nothing yet, one that reads lines has read it
 *      wake      pastes its text, or one fixed line; then Enter, and the pane's bell
 *
 * The target is the operator's, never the caller's: a session only chooses among those that are
 * configured. */
#include <stdio.h>
#include "dispatch/spawned.h"
#include "dispatch/dispatch_priv.h"

#define AT(member) offsetof(struct agent_settings, member)

static const struct config_key keys[] = {
    {"target", CFG_TEXT, CFG_RELOAD, AT(target), .required = true,
     .what = "The pane, as tmux names it: `session`, `session:window.pane` or `%3`."},
    {"socket", CFG_TEXT, CFG_RELOAD, AT(socket),
     .what = "The socket of the tmux server; without it, the default one of the user."},
    {"timeout", CFG_DURATION, CFG_RELOAD, AT(timeout_ms), "10s", .min = 100, .max = 60000,
     .what = "How long tmux may take."},
    {0},
};
static const struct config_section config = {.keys = keys,
                                             .size = sizeof(struct agent_settings),
                                             .name = "tmux"};

static const char *target(const struct agent_config *c)
{
    return c->s.target;
}

/* ---- the text ---- */

/* U+2400 and on: the picture of a control character. */
static void add_picture(struct buf *out, unsigned c)
{
    unsigned at = c == 0x7f ? 0x2421 : c < 0x20 ? 0x2400 + c : 0xfffd;

    buf_add_c(out, (char)(0xe0 | at >> 12));
    buf_add_c(out, (char)(0x80 | (at >> 6 & 0x3f)));
    buf_add_c(out, (char)(0x80 | (at & 0x3f)));
}

static void clean(struct buf *out, struct str text)
{
    while (text.n > 0) {
        unsigned char c = (unsigned char)text.p[0];
        size_t n = utf8_seq_bytes(text);
        bool c1 = n == 2 && c == 0xc2 && (unsigned char)text.p[1] < 0xa0;
        if (c == '\r' && text.n > 1 && text.p[1] == '\n') {
            n = 1; /* the line break follows */
        } else if (c == '\n' || c == '\t') {
            buf_add_c(out, (char)c);
        } else if (n == 0 || c < 0x20 || c == 0x7f || c1) {
            add_picture(out, n == 1 ? c : 0x80);
        } else {
            buf_add(out, text.p, n);
        }
        text = str_skip(text, n != 0 ? n : 1);
    }
}

/* ---- the command ---- */

#define BASE_MAX 4

size_t tmux_command(const struct agent_settings *s, const char *argv[4])
{
    size_t n = 0;

    argv[n++] = "tmux";
    if (s->socket != NULL) {
        argv[n++] = "-S";
        argv[n++] = s->socket;
    }
    argv[n] = NULL;
    return n;
}

/* tmux says so in words only. */
static bool is_away(struct str errors)
{
    return str_contains(errors, STR("can't find")) ||
           str_contains(errors, STR("no server running")) ||
           str_contains(errors, STR("error connecting")) ||
           str_contains(errors, STR("server exited")) || str_contains(errors, STR("lost server"));
}

static void write_text(struct buf *out, const struct errand *e)
{
    if (!str_is_empty(e->header)) {
        clean(out, e->header);
        buf_add_c(out, '\n');
    }
    clean(out, e->text);
    if (e->kind != ERRAND_WAKE)
        buf_add_c(out, '\n');
}

/* Words for tmux that paste the buffer; a wake goes on with Enter and the bell, which is what the
 * program in the pane would write to its terminal to ring. */
#define PASTE(pane, buffer) \
    "has-session", "-t", pane, ";", "load-buffer", "-b", buffer, "-", ";", "paste-buffer", "-p", \
        "-d", "-b", buffer, "-t", pane
#define RING(pane) \
    ";", "send-keys", "-t", pane, "Enter", ";", "run-shell", "-b", "-t", pane, \
        "printf '\\a' > '#{pane_tty}'"

static struct errand_job *run(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx)
{
    const struct agent_settings *s = &a->cfg->s;
    const char *chosen = agent_session_target(a->cfg, e->session), *base[BASE_MAX];
    const char *pane = chosen != NULL ? chosen : s->target;
    struct buf text = BUF_INIT;
    char buffer[48];

    snprintf(buffer, sizeof buffer, "bellhop-%llx", (unsigned long long)dispatch_number(a->d));
    /* The pane is asked for first: a buffer that nobody pastes would stay. */
    const char *const type[] = {PASTE(pane, buffer), NULL};
    const char *const ring[] = {PASTE(pane, buffer), RING(pane), NULL};
    const char *const look[] = {"has-session", "-t", pane, NULL};
    tmux_command(s, base);
    write_text(&text, e);
    struct spawned_order o = {.argv = base,
                              .more = e->kind == ERRAND_LOOK   ? look
                                      : e->kind == ERRAND_WAKE ? ring
                                                               : type,
                              .input = buf_str(&text),
                              .timeout_ms = s->timeout_ms,
                              .is_away = is_away};
    struct errand_job *job = spawned_run(a, &o, done, ctx);
    buf_done(&text);
    return job;
}

const struct substrate_ops substrate_tmux = {
    .name = "tmux", .config = &config, .can = SUBSTRATE_RINGS, .target = target, .run = run};
