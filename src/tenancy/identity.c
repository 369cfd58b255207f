/* identity.c - design.  (identity.h has the contract.)
 *
 * Most gateways have one pair, which is in their record as it always was; the others are one
 * string, "platform \x1f bot \x1e" each, the one named last first. */
#include "tenancy/identity.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/jw.h"
#include "base/mem.h"

static bool next(struct str *rest, struct str *ret_platform, struct str *ret_bot)
{
    struct str pair;

    if (!str_split(rest, '\x1e', &pair) || pair.n == 0)
        return false;
    str_split(&pair, '\x1f', ret_platform);
    *ret_bot = pair;
    return true;
}

static void add(struct buf *out, struct str platform, struct str bot)
{
    buf_add_str(out, platform);
    buf_add_c(out, '\x1f');
    buf_add_str(out, bot);
    buf_add_c(out, '\x1e');
}

bool identity_nth(const struct gateway *g, size_t n, struct str *ret_platform, struct str *ret_bot)
{
    struct str rest = str_of(g->also);

    *ret_platform = str_of(g->platform);
    *ret_bot = str_of(g->bot);
    if (g->platform == NULL)
        return false;
    while (n-- > 0)
        if (!next(&rest, ret_platform, ret_bot))
            return false;
    return true;
}

void identity_take(struct gateway *g, const char *platform, const char *bot)
{
    struct str p, b, before = STR_NULL;
    struct buf also = BUF_INIT;

    for (size_t n = 0, kept = 1; identity_nth(g, n, &p, &b); n++) {
        if (str_eq(p, str_of(platform)))
            before = b;
        else if (kept++ < IDENTITIES_MAX)
            add(&also, p, b);
    }
    char *as = bot != NULL ? xstrdup(bot) : before.n != 0 ? str_dup(before) : NULL;
    free(g->platform);
    free(g->bot);
    free(g->also);
    g->platform = xstrdup(platform);
    g->bot = as;
    g->also = also.n != 0 ? buf_take(&also) : NULL;
    buf_done(&also);
}

bool identity_has(const struct gateway *g, struct str platform, struct str bot)
{
    struct str p, b;

    for (size_t n = 0; identity_nth(g, n, &p, &b); n++)
        if (str_eq(p, platform) && str_eq(b, bot))
            return true;
    return false;
}

void identity_write(struct jw *w, const struct gateway *g, size_t from)
{
    struct str p, b;

    jw_arr(w);
    for (size_t n = from; identity_nth(g, n, &p, &b); n++) {
        jw_obj(w);
        jw_kstr(w, "platform", p);
        jw_kstr(w, "bot", b);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

void identity_read(struct gateway *g, struct json array)
{
    struct buf out = BUF_INIT;
    size_t n = 1;

    for (struct json_iter it = {0}; n < IDENTITIES_MAX && json_next(array, &it); n++) {
        struct str platform = json_str(it.value, "platform"), bot = json_str(it.value, "bot");
        if (facts_name_ok(platform) && (bot.n == 0 || facts_name_ok(bot)))
            add(&out, platform, bot);
    }
    g->also = out.n != 0 ? buf_take(&out) : NULL;
    buf_done(&out);
}
