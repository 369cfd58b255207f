/* renewer.c - renews a lease from a thread of its own.  (postgres.h has the contract.) */
#include <stdlib.h>
#include <time.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "store/postgres/impl.h"

enum { RENEWALS = 3, TRY_MS = 250 };

struct lease_renewer {
    pthread_t thread;
    char *url; /* owned; secret */
    struct store_lease lease;
    int64_t end_us; /* when it stops renewing */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;   /* under the lock */
    int64_t kept_us; /* when the newest renewal that succeeded was requested; of the thread */
};

/* False: the renewer is being stopped. */
static bool pause_for(struct lease_renewer *k, int64_t ms)
{
    int64_t until_us = thread_now_us() + ms * 1000;
    struct timespec at = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000};

    pthread_mutex_lock(&k->lock);
    while (!k->stopping && pthread_cond_timedwait(&k->wake, &k->lock, &at) == 0)
        ;
    bool stopping = k->stopping;
    pthread_mutex_unlock(&k->lock);
    return !stopping && thread_now_us() < k->end_us;
}

static void *keep(void *arg)
{
    struct lease_renewer *k = arg;
    struct pg_line line = {0};
    struct params params = {0};
    int64_t wait_ms = 0;

    while (pause_for(k, wait_ms)) {
        int64_t asked_us = thread_now_us();
        enum line_end e = line_open(&line, k->url, LINE_WRITES)
                              ? pg_lease_ask(&line, &params, k->lease.ttl_ms, &k->lease)
                              : LINE_LOST;
        if (e == LINE_OK && k->lease.op.err != BH_OK)
            break; /* it is not ours any more */
        if (e == LINE_OK)
            k->kept_us = asked_us;
        wait_ms = e == LINE_OK ? k->lease.ttl_ms / RENEWALS : TRY_MS;
    }
    line_close(&line);
    params_done(&params);
    return NULL;
}

static void keeper_free(struct lease_renewer *k)
{
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->wake);
    secret_wipe(k->url, strlen(k->url));
    free(k->url);
    free(k);
}

struct lease_renewer *lease_renewer_start(const char *url, const struct store_lease *lease,
                                          int64_t most_ms)
{
    struct lease_renewer *k = xcalloc(1, sizeof *k);
    pthread_condattr_t attr;

    k->url = xstrdup(url);
    k->lease = *lease;
    k->lease.verb = LEASE_RENEW;
    k->end_us = thread_now_us() + most_ms * 1000;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (thread_start(&k->thread, keep, k, "bh-lease"))
        return k;
    keeper_free(k);
    return NULL;
}

int64_t lease_renewer_stop(struct lease_renewer **k)
{
    struct lease_renewer *is = *k;

    *k = NULL;
    if (is == NULL)
        return 0;
    pthread_mutex_lock(&is->lock);
    is->stopping = true;
    pthread_cond_signal(&is->wake);
    pthread_mutex_unlock(&is->lock);
    pthread_join(is->thread, NULL);
    int64_t kept_ms = is->kept_us / 1000;
    keeper_free(is);
    return kept_ms;
}
