/* secrets.c - the list of secrets.  (secrets.h has the contract.) */
#include "tenancy/secrets.h"
#include <stdlib.h>
#include <string.h>
#include "base/crypto.h"

static void forget(char *text)
{
    secret_wipe(text, strlen(text));
    free(text);
}

static bool newer_was_used(const struct gateway *g, size_t i)
{
    while (i-- > 0)
        if (g->secrets[i].used)
            return true;
    return false;
}

bool secret_is_live(const struct gateway *g, size_t i, int64_t now_ms)
{
    const struct gateway_secret *s = &g->secrets[i];

    return s->until_ms == 0 || s->until_ms > now_ms || (s->waits && !newer_was_used(g, i));
}

bool secret_was_used(struct gateway *g, size_t i)
{
    bool news = !g->secrets[i].used && g->n_secrets > 1;

    g->secrets[i].used = true;
    return news;
}

/* Which of the @n old ones goes when there is no room: never used, and the oldest of those. */
static size_t victim(const struct gateway_secret *old, size_t n)
{
    for (size_t i = n; i-- > 0;)
        if (!old[i].used)
            return i;
    return n - 1;
}

void secrets_push(struct gateway *g, char *secret, int64_t now_ms, int64_t keep_ms, bool until_used)
{
    struct gateway_secret old[GATEWAY_SECRETS];
    size_t n = 0;

    if (g->n_secrets == 1)
        g->secrets[0].used = true; /* the only one: whoever is there has it */
    for (size_t i = 0; i < g->n_secrets; i++) {
        struct gateway_secret s = g->secrets[i];
        if (!secret_is_live(g, i, now_ms) || (!until_used && keep_ms <= 0)) {
            forget(s.text);
            continue;
        }
        if (s.until_ms == 0 || s.until_ms > now_ms + keep_ms)
            s.until_ms = now_ms + keep_ms;
        s.waits = until_used;
        old[n++] = s;
    }
    if (n == GATEWAY_SECRETS) {
        size_t out = victim(old, n);
        forget(old[out].text);
        memmove(&old[out], &old[out + 1], (--n - out) * sizeof *old);
    }
    g->secrets[0] = (struct gateway_secret){.text = secret};
    memcpy(&g->secrets[1], old, n * sizeof *old);
    g->n_secrets = n + 1;
}
