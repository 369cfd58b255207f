/* persona.c - design.  (persona.h has the contract.)
 *
 * One string per session, "platform \x1f bot \x1e" per identity: most sockets have one or two. */
#include "relay/session/persona.h"
#include <stdlib.h>
#include "base/buf.h"
#include "relay/session/session.h"

enum { NAME_MAX_BYTES = 128 };

static bool name_ok(struct str s)
{
    return s.n <= NAME_MAX_BYTES && str_find(s, '\x1e') < 0 && str_find(s, '\x1f') < 0 &&
           (s.n == 0 || memchr(s.p, '\0', s.n) == NULL);
}

static bool next(struct str *rest, struct str *ret_platform, struct str *ret_bot)
{
    struct str pair;

    if (!str_split(rest, '\x1e', &pair) || pair.n == 0)
        return false;
    str_split(&pair, '\x1f', ret_platform);
    *ret_bot = pair;
    return true;
}

bool persona_find(const struct session *s, struct str platform, struct str bot, struct str *ret_bot)
{
    struct str rest = str_of(s->personas), p, b;

    while (next(&rest, &p, &b)) {
        if (str_eq(p, platform) && (bot.n == 0 || str_eq(b, bot))) {
            *ret_bot = b;
            return true;
        }
    }
    return false;
}

bool persona_default(const struct session *s, struct str *ret_platform, struct str *ret_bot)
{
    struct str rest = str_of(s->personas);

    return next(&rest, ret_platform, ret_bot);
}

void persona_add(struct session *s, struct str platform, struct str bot)
{
    struct str rest = str_of(s->personas), p, b;
    struct buf out = BUF_INIT;
    size_t n = 0;

    if (platform.n == 0 || !name_ok(platform) || !name_ok(bot))
        return;
    for (; next(&rest, &p, &b); n++)
        if (str_eq(p, platform) && str_eq(b, bot))
            return;
    if (n >= PERSONA_MAX)
        return;
    buf_add_str(&out, str_of(s->personas));
    buf_add_str(&out, platform);
    buf_add_c(&out, '\x1f');
    buf_add_str(&out, bot);
    buf_add_c(&out, '\x1e');
    free(s->personas);
    s->personas = buf_take(&out);
}
