/* tell.h - the monotonic clock, and log lines. */
#pragma once
#include <stdint.h>

int64_t now_ms(void);                                                  /* monotonic */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));  /* stdout: a line of life */
void warn(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* stderr */
