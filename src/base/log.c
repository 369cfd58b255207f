/* log.c - design.  (log.h has the contract.)
 *
 * A line is built in memory and leaves in one write(2), so lines of several threads, or of several
 * processes on one pipe, do not mix.  Control characters are escaped in both formats: a peer that
 * gets its text into a message cannot forge a line.
 *
 * A reader of the log may stop (a paused pager, a stuck collector) and must not block the loop.  So
 * the log writes only when poll() reports room, PIPE_BUF bytes at a time because that much fits
 * then, and drops lines otherwise.  The next line that gets through reports how many. */
#include "base/log.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include "base/config.h"
#include "base/jw.h"
#include "base/mem.h"

#define LINE_LIMIT 16384

enum { LOG_FIELDS = 16 }; /* of one line in JSON */

static const char *const words[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};
static atomic_int max_level = LOG_INFO;
static atomic_bool json_lines;

void log_setup(enum log_level level, bool as_json)
{
    atomic_store(&max_level, (int)level);
    atomic_store(&json_lines, as_json);
}

bool log_level_parse(struct str word, enum log_level *ret_level)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_eq(word, str_of(words[i]))) {
            *ret_level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&max_level, memory_order_relaxed);
}

static void add_time(struct buf *out)
{
    struct timespec ts;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900, tm.tm_mon + 1,
               tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000);
}

static void add_text_line(struct buf *out, enum log_level level, struct str prefix, struct str msg)
{
    add_time(out);
    buf_printf(out, " %s ", words[level]);
    buf_add_plain(out, prefix);
    buf_add_plain(out, msg);
}

/* Takes the next `key=value` off *@rest.  A value ends at a blank. */
static bool next_field(struct str *rest, struct str *ret_key, struct str *ret_value)
{
    struct str word;

    while (str_split(rest, ' ', &word)) {
        ptrdiff_t at = str_find(word, '=');
        size_t n = 0;
        while (at > 0 && n < (size_t)at &&
               ((word.p[n] >= 'a' && word.p[n] <= 'z') || word.p[n] == '_'))
            n++;
        if (at <= 0 || n != (size_t)at)
            continue;
        *ret_key = str_make(word.p, n);
        *ret_value = str_skip(word, n + 1);
        return true;
    }
    return false;
}

/* The `key=value` words of a line, as members of an object of their own: a value that a stranger
 * chose cannot pose as the time or the level.  Of a key that comes twice the first counts. */
static void add_fields(struct jw *w, struct str prefix, struct str msg)
{
    const struct str parts[] = {prefix, msg};
    struct str keys[LOG_FIELDS], key, value;
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        for (struct str rest = parts[i]; n < LOG_FIELDS && next_field(&rest, &key, &value);) {
            bool known = false;
            for (size_t k = 0; k < n; k++)
                known |= str_eq(keys[k], key);
            if (known)
                continue;
            if (n == 0)
                jw_kobj(w, "fields");
            keys[n++] = key;
            jw_key_str(w, key);
            jw_str(w, value);
        }
    if (n > 0)
        jw_end_obj(w);
}

static void add_json_line(struct buf *out, enum log_level level, struct str prefix, struct str msg)
{
    struct buf when = BUF_INIT;
    struct jw w = jw_begin(out);

    add_time(&when);
    jw_obj(&w);
    jw_kstr(&w, "time", buf_str(&when));
    jw_kstr(&w, "level", str_of(words[level]));
    if (prefix.n > 0)
        jw_kstr(&w, "context", str_trim(prefix));
    jw_kstr(&w, "msg", msg);
    add_fields(&w, prefix, msg);
    jw_end_obj(&w);
    buf_done(&when);
}

/* ---- the way out; all of it under the gate ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static unsigned long lost; /* lines, since the last one that got through */
static bool torn;          /* the last one lacks its end */

static bool has_room(void)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

    return poll(&p, 1, 0) != 0;
}

static void write_line(struct str line)
{
    bool begun = false;

    while (line.n > 0) {
        if (!has_room()) {
            torn |= begun;
            lost += !begun;
            return;
        }
        ssize_t n = write(STDERR_FILENO, line.p, line.n < PIPE_BUF ? line.n : PIPE_BUF);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nobody listens: there is nobody to tell */
        line = str_skip(line, (size_t)n);
        begun = true;
    }
}

static void emit(enum log_level level, struct str prefix, struct str msg)
{
    struct buf line = BUF_INIT;

    if (torn)
        buf_add_c(&line, '\n');
    torn = false;
    (atomic_load(&json_lines) ? add_json_line : add_text_line)(&line, level, prefix, msg);
    buf_add_c(&line, '\n');
    write_line(buf_str(&line));
    buf_done(&line);
}

static void tell_lost(void)
{
    char msg[64];
    int n = snprintf(msg, sizeof msg, "nobody read the log: lines lost=%lu", lost);

    lost = 0;
    emit(LOG_WARN, STR_NULL, str_make(msg, (size_t)n));
}

void log_write(enum log_level level, const struct log *ctx, const char *fmt, ...)
{
    int saved_errno = errno;
    char msg[LINE_LIMIT / 8];
    struct buf prefix = {.limit = LINE_LIMIT / 8};
    va_list args;

    if (!log_enabled(level))
        return;
    va_start(args, fmt);
    int n = vsnprintf(msg, sizeof msg, fmt, args);
    va_end(args);
    if (ctx != NULL && ctx->prefix != NULL)
        ctx->prefix(ctx, &prefix);
    size_t msg_n = n < 0 ? 0 : (size_t)n < sizeof msg ? (size_t)n : sizeof msg - 1;
    pthread_mutex_lock(&gate);
    if (lost > 0 && has_room())
        tell_lost();
    emit(level, buf_str(&prefix), str_make(msg, msg_n));
    pthread_mutex_unlock(&gate);
    buf_done(&prefix);
    errno = saved_errno; /* logging never disturbs what it reports on */
}

/* ---- `log:` in the configuration ---- */

#define AT(member) offsetof(struct log_settings, member)

static const struct config_key keys[] = {
    {"log.level", CFG_ENUM, CFG_RELOAD, AT(level), "info", "error|warn|info|debug",
     .what = "The least severe level that is logged."},
    {"log.format", CFG_ENUM, CFG_RELOAD, AT(format), "text", "text|json",
     .what = "`json` writes one object per line: time, level, msg, and `fields` with the "
             "key=value words of msg."},
    {0},
};

void log_apply(const struct log_settings *s)
{
    log_setup((enum log_level)s->level, s->format == LOG_JSON);
}

const struct config_section log_config = {.keys = keys, .size = sizeof(struct log_settings)};
