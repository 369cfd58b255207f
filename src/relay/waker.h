/* waker.h - how sleepers are woken: one GET to their wake URL. */
#pragma once
#include <stdbool.h>

typedef void poke_done_cb(void *ctx, bool ok, const char *why);
struct waker {
    /* Answered through @done later, never inside. */
    void (*poke)(struct waker *w, const char *url, poke_done_cb *done, void *ctx);
};
