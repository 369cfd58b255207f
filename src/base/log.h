/* log.h - one line per fact, on stderr, as text or as JSON.
 *
 * The context identifies the object, the message says what happened:
 *
 *      log_info(&s->log, "caught up: events=%" PRIu64, n);
 *      -> 2026-11-15T13:10:09.123Z info session=41 instance=acme caught up: events=12
 *
 * error = an operator must act; warn = degraded but running; info = one line per life event; debug
 * = state changes.  Secrets and message texts are never logged.  A NULL context is fine.  Any
 * thread may log.  Logging never blocks: if stderr is full, lines are dropped and counted. */
#pragma once
#include "base/buf.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

struct log_settings { /* `log:` in the configuration */
    int level;        /* enum log_level */
    int format;       /* enum log_format */
};
enum log_format { LOG_TEXT, LOG_JSON };
extern const struct config_section log_config;

struct log { /* embedded in the object that logs; the prefix is built only when a line is written */
    void (*prefix)(const struct log *log, struct buf *out); /* appends "session=41 instance=x " */
};

void log_setup(enum log_level level, bool as_json);
void log_apply(const struct log_settings *s); /* log_setup() from the configuration */
bool log_level_parse(struct str word, enum log_level *ret_level);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const struct log *ctx, const char *fmt, ...) BH_PRINTF(3, 4);

#define log_error(ctx, ...) log_write(LOG_ERROR, ctx, __VA_ARGS__)
#define log_warn(ctx, ...) log_write(LOG_WARN, ctx, __VA_ARGS__)
#define log_info(ctx, ...) log_write(LOG_INFO, ctx, __VA_ARGS__)
#define log_debug(ctx, ...) \
    do { \
        if (log_enabled(LOG_DEBUG)) \
            log_write(LOG_DEBUG, ctx, __VA_ARGS__); \
    } while (0)
