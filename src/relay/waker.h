/* waker.h - the interface that wakes a sleeping agent: one GET to its wake URL. */
#pragma once
#include <stdbool.h>

typedef void poke_done_cb(void *ctx, bool ok, const char *why);
struct waker {
    /* @done runs later, never inside this call. */
    void (*poke)(struct waker *w, const char *url, poke_done_cb *done, void *ctx);
};
